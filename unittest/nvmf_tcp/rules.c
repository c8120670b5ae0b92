/* SPDX-License-Identifier: BSD-3-Clause */
/* Which H2CData the target takes, and how much a connection has to move. */
#include "unittest/unit.h"

#include "nvmf_tcp/rules.h"

static const struct nvmf_tcp_awaited awaited = {.cid = 7, .received = 4096, .length = 12288};
static struct tcp_fault fault;

static struct tcp_piece piece_of(uint32_t offset, uint32_t length)
{
	return (struct tcp_piece){
		.cccid = 7, .ttag = 3, .offset = offset, .length = length, .last = offset + length == 12288};
}

static bool check(struct tcp_piece piece)
{
	fault = (struct tcp_fault){.field = ""};
	return nvmf_tcp_h2c_data_check(&piece, piece.last ? TCP_FLAG_LAST_PDU : 0, &awaited, &fault);
}

static void expect_fault(struct tcp_piece piece, uint16_t fes, uint32_t fei, const char *field, uint64_t value)
{
	CU_ASSERT_FALSE(check(piece));
	CU_ASSERT_EQUAL(fault.type, TCP_PDU_H2C_DATA);
	CU_ASSERT_EQUAL(fault.fes, fes);
	CU_ASSERT_EQUAL(fault.fei, fei);
	CU_ASSERT_STRING_EQUAL(fault.field, field);
	CU_ASSERT_EQUAL(fault.value, value);
}

static void test_the_next_data_are_taken(void)
{
	CU_ASSERT_TRUE(check(piece_of(4096, 4)));
	CU_ASSERT_TRUE(check(piece_of(4096, 8188)));
	CU_ASSERT_TRUE(check(piece_of(4096, 8192)));
}

static void test_data_without_an_r2t_are_a_fault_of_the_tag(void)
{
	struct tcp_piece piece = piece_of(4096, 4096);

	CU_ASSERT_FALSE(nvmf_tcp_h2c_data_check(&piece, 0, NULL, &fault));
	CU_ASSERT_EQUAL(fault.fes, TCP_FES_INVALID_FIELD);
	CU_ASSERT_EQUAL(fault.fei, 10);
	CU_ASSERT_STRING_EQUAL(fault.field, "TTAG");
	CU_ASSERT_EQUAL(fault.value, 3);
}

static void test_data_of_another_command_are_a_fault_of_its_identifier(void)
{
	struct tcp_piece piece = piece_of(4096, 4096);

	piece.cccid = 8;
	expect_fault(piece, TCP_FES_INVALID_FIELD, 8, "CCCID", 8);
}

static void test_data_come_in_order_and_end_where_the_r2t_does(void)
{
	expect_fault(piece_of(0, 4096), TCP_FES_OUT_OF_RANGE, 0, "DATAO", 0);
	expect_fault(piece_of(4100, 4096), TCP_FES_OUT_OF_RANGE, 0, "DATAO", 4100);
	expect_fault(piece_of(4096, 8196), TCP_FES_OUT_OF_RANGE, 0, "DATAL", 8196);
	expect_fault(piece_of(4096, UINT32_MAX), TCP_FES_OUT_OF_RANGE, 0, "DATAL", UINT32_MAX);
}

static void test_last_pdu_is_set_at_the_end_and_only_there(void)
{
	struct tcp_piece piece = piece_of(4096, 4096);

	piece.last = true;
	expect_fault(piece, TCP_FES_INVALID_FIELD, 1, "FLAGS", TCP_FLAG_LAST_PDU);
	piece = piece_of(4096, 8192);
	piece.last = false;
	expect_fault(piece, TCP_FES_INVALID_FIELD, 1, "FLAGS", 0);
}

static void test_while_there_are_buffers_little_has_to_move(void)
{
	CU_ASSERT_EQUAL(nvmf_tcp_stall_bytes(false, 0, 0), 4096);
	CU_ASSERT_EQUAL(nvmf_tcp_stall_bytes(false, UINT64_MAX, 2), 4096);
}

static void test_while_buffers_are_scarce_neighbours_are_the_measure(void)
{
	CU_ASSERT_EQUAL(nvmf_tcp_stall_bytes(true, 0, 0), 4096);
	CU_ASSERT_EQUAL(nvmf_tcp_stall_bytes(true, 0, 3), 4096);
	/* all are slow: nobody is disconnected */
	CU_ASSERT_EQUAL(nvmf_tcp_stall_bytes(true, 10 * 16384, 10), 4096);
	CU_ASSERT_EQUAL(nvmf_tcp_stall_bytes(true, 10 * 16388, 10), 4097);
	/* one moves 4 MiB, and one nearly nothing */
	CU_ASSERT_EQUAL(nvmf_tcp_stall_bytes(true, 4 << 20, 2), 1 << 19);
	/* and beside fast ones, a limit */
	CU_ASSERT_EQUAL(nvmf_tcp_stall_bytes(true, UINT64_C(2) * ((4 << 20) - 4), 2), (1 << 20) - 1);
	CU_ASSERT_EQUAL(nvmf_tcp_stall_bytes(true, UINT64_C(1) << 40, 2), 1 << 20);
	/* whoever moves as much as the others goes on, however few those are and however much it is */
	for (uint64_t each = 4096; each < UINT64_C(1) << 40; each *= 2) {
		for (uint32_t n = 1; n < 1000; n *= 3) {
			CU_ASSERT_TRUE(each >= nvmf_tcp_stall_bytes(true, each * n, n));
		}
	}
}

static void test_handshakes_are_limited_in_all_and_by_address(void)
{
	CU_ASSERT_PTR_NULL(nvmf_tcp_handshake_refusal(0, 0, 0, 0));
	CU_ASSERT_PTR_NULL(nvmf_tcp_handshake_refusal(1023, 127, 0, 0));
	CU_ASSERT_PTR_NOT_NULL(strstr(nvmf_tcp_handshake_refusal(128, 128, 0, 0), "with this address"));
	CU_ASSERT_PTR_NOT_NULL(strstr(nvmf_tcp_handshake_refusal(128, 128, 32768, 1024), "with this address"));
	CU_ASSERT_PTR_NOT_NULL(strstr(nvmf_tcp_handshake_refusal(1024, 0, 0, 0), "too many handshakes are under way"));
	CU_ASSERT_PTR_NOT_NULL(nvmf_tcp_handshake_refusal(1024, 0, 32768, 1024));
	CU_ASSERT_PTR_NULL(nvmf_tcp_handshake_refusal(4, 4, 5, 5));
	CU_ASSERT_PTR_NOT_NULL(strstr(nvmf_tcp_handshake_refusal(5, 4, 5, 5), "max_anonymous)"));
	CU_ASSERT_PTR_NOT_NULL(strstr(nvmf_tcp_handshake_refusal(5, 5, 6, 5), "max_anonymous_per_host"));
	CU_ASSERT_PTR_NULL(nvmf_tcp_handshake_refusal(5, 5, 6, 0));
}

static const struct unit_test tests[] = {
	UNIT(test_the_next_data_are_taken),
	UNIT(test_data_without_an_r2t_are_a_fault_of_the_tag),
	UNIT(test_data_of_another_command_are_a_fault_of_its_identifier),
	UNIT(test_data_come_in_order_and_end_where_the_r2t_does),
	UNIT(test_last_pdu_is_set_at_the_end_and_only_there),
	UNIT(test_while_there_are_buffers_little_has_to_move),
	UNIT(test_while_buffers_are_scarce_neighbours_are_the_measure),
	UNIT(test_handshakes_are_limited_in_all_and_by_address),
	UNIT_END,
};
UNIT_MAIN("nvmf_tcp_rules", tests, NULL, NULL)
