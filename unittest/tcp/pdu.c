/* SPDX-License-Identifier: BSD-3-Clause */
/* PDUs of NVMe/TCP: what is encoded is decoded again, and each rule of the decoders, by a PDU that breaks only it. */
#include "unittest/unit.h"

#include "tcp/digest.h"
#include "tcp/pdu.h"

static union tcp_header h;
static struct tcp_shape shape;
static struct tcp_fault fault;
static const uint8_t bytes64[64] = {1, 2, 3, [63] = 9};

static const struct tcp_agreed plain = {.done = true,
					.align_to_ctrlr = 4,
					.align_to_host = 4,
					.max_r2t = 1,
					.max_h2c_data = 4096,
					.max_in_capsule = 8192};
static const struct tcp_agreed digests = {.done = true,
					  .header_digest = true,
					  .data_digest = true,
					  .align_to_ctrlr = 128,
					  .align_to_host = 64,
					  .max_r2t = 4,
					  .max_h2c_data = 8192,
					  .max_in_capsule = 8192};
static const struct tcp_agreed nothing;

static const struct tcp_piece piece = {.cccid = 7, .ttag = 9, .offset = 4096, .length = 512, .last = true};

static bool check(enum tcp_side side, const struct tcp_agreed *agreed)
{
	return tcp_common_check(&h.common, side, agreed, &shape, &fault);
}

/* The fault of the last check. */
static void expect_fault(uint16_t fes, uint32_t fei, const char *field)
{
	CU_ASSERT_EQUAL(fault.fes, fes);
	CU_ASSERT_EQUAL(fault.fei, fei);
	CU_ASSERT_STRING_EQUAL(fault.field, field);
}

static void expect_common_fault(enum tcp_side side, const struct tcp_agreed *agreed, uint16_t fes, uint32_t fei,
				const char *field)
{
	fault = (struct tcp_fault){.field = ""};
	CU_ASSERT_FALSE(check(side, agreed));
	expect_fault(fes, fei, field);
}

static void test_digests_are_crc32c(void)
{
	struct iovec iovs[] = {{"xx12", 4}, {NULL, 0}, {"3456", 4}, {"789yy", 5}};

	CU_ASSERT_EQUAL(tcp_digest_end(tcp_digest_add(TCP_DIGEST_START, "123456789", 9)), 0xe3069283);
	CU_ASSERT_EQUAL(tcp_digest_end(tcp_digest_add_iovs(TCP_DIGEST_START, iovs, 4, 2, 9)), 0xe3069283);
	CU_ASSERT_EQUAL(tcp_digest_end(tcp_digest_add_iovs(TCP_DIGEST_START, &iovs[2], 2, 4, 0)), 0);
	CU_ASSERT_EQUAL(tcp_digest_end(tcp_digest_add_iovs(TCP_DIGEST_START, iovs, 1, 2, 9)),
			tcp_digest_end(tcp_digest_add(TCP_DIGEST_START, "12", 2))); /* no bytes behind the last piece */
}

static void test_icreq_comes_back_as_it_was(void)
{
	struct tcp_icreq req = {.header_digest = true, .hpda = 31, .max_r2t = 16}, back;

	CU_ASSERT_EQUAL(tcp_icreq_encode(&h, &req), 128);
	CU_ASSERT_TRUE(check(TCP_CONTROLLER, &nothing));
	CU_ASSERT_EQUAL(shape.header, 128);
	CU_ASSERT_TRUE(tcp_icreq_decode(&h.icreq, &back, &fault));
	CU_ASSERT_TRUE(back.header_digest && !back.data_digest);
	CU_ASSERT_EQUAL(back.hpda, 31);
	CU_ASSERT_EQUAL(back.max_r2t, 16);
	CU_ASSERT_EQUAL(le32toh(h.icreq.maxr2t), 15);
	req.data_digest = true;
	req.header_digest = false;
	req.max_r2t = UINT32_MAX;
	tcp_icreq_encode(&h, &req);
	CU_ASSERT_EQUAL(h.icreq.dgst, TCP_DGST_DATA);
	h.icreq.maxr2t = UINT32_MAX;
	CU_ASSERT_TRUE(tcp_icreq_decode(&h.icreq, &back, &fault));
	CU_ASSERT_EQUAL(back.max_r2t, UINT32_MAX);
}

static void test_icreq_with_wrong_fields_is_refused(void)
{
	struct tcp_icreq req = {.max_r2t = 1}, back;

	tcp_icreq_encode(&h, &req);
	h.icreq.pfv = htole16(1);
	CU_ASSERT_FALSE(tcp_icreq_decode(&h.icreq, &back, &fault));
	expect_fault(TCP_FES_UNSUPPORTED, 8, "PFV");
	h.icreq.pfv = 0;
	h.icreq.hpda = 32;
	CU_ASSERT_FALSE(tcp_icreq_decode(&h.icreq, &back, &fault));
	expect_fault(TCP_FES_INVALID_FIELD, 10, "HPDA");
}

static void test_icresp_comes_back_as_it_was_and_both_agree(void)
{
	struct tcp_icreq req = {.header_digest = true, .data_digest = true, .hpda = 15, .max_r2t = 4};
	struct tcp_icresp resp = {.header_digest = true, .cpda = 31, .max_h2c_data = 65536}, back;

	CU_ASSERT_EQUAL(tcp_icresp_encode(&h, &resp), 128);
	CU_ASSERT_TRUE(check(TCP_HOST, &nothing));
	CU_ASSERT_TRUE(tcp_icresp_decode(&h.icresp, &req, &back, &fault));
	CU_ASSERT_TRUE(back.header_digest && !back.data_digest);
	CU_ASSERT_EQUAL(back.cpda, 31);
	CU_ASSERT_EQUAL(back.max_h2c_data, 65536);
	struct tcp_agreed a = tcp_agree(&req, &back);
	CU_ASSERT_TRUE(a.done && a.header_digest && !a.data_digest);
	CU_ASSERT_EQUAL(a.align_to_ctrlr, 128);
	CU_ASSERT_EQUAL(a.align_to_host, 64);
	CU_ASSERT_EQUAL(a.max_r2t, 4);
	CU_ASSERT_EQUAL(a.max_h2c_data, 65536);
	resp.data_digest = true;
	resp.header_digest = false;
	tcp_icresp_encode(&h, &resp);
	CU_ASSERT_TRUE(tcp_icresp_decode(&h.icresp, &req, &back, &fault));
	a = tcp_agree(&req, &back);
	CU_ASSERT_TRUE(!a.header_digest && a.data_digest);
	req = (struct tcp_icreq){.max_r2t = 1};
	a = tcp_agree(&req, &back); /* a side that does not want a digest gets none */
	CU_ASSERT_TRUE(!a.header_digest && !a.data_digest);
}

static void expect_icresp_fault(const struct tcp_icreq *req, uint16_t fes, uint32_t fei, const char *field)
{
	struct tcp_icresp back;

	CU_ASSERT_FALSE(tcp_icresp_decode(&h.icresp, req, &back, &fault));
	expect_fault(fes, fei, field);
}

static void test_icresp_with_wrong_fields_is_refused(void)
{
	struct tcp_icreq req = {.header_digest = true, .max_r2t = 1};
	struct tcp_icresp resp = {.max_h2c_data = 4096};

	tcp_icresp_encode(&h, &resp);
	h.icresp.pfv = htole16(2);
	expect_icresp_fault(&req, TCP_FES_UNSUPPORTED, 8, "PFV");
	h.icresp.pfv = 0;
	h.icresp.cpda = 32;
	expect_icresp_fault(&req, TCP_FES_INVALID_FIELD, 10, "CPDA");
	h.icresp.cpda = 0;
	h.icresp.dgst = TCP_DGST_HEADER | TCP_DGST_DATA;
	expect_icresp_fault(&req, TCP_FES_INVALID_FIELD, 11, "DGST");
	req = (struct tcp_icreq){.data_digest = true};
	expect_icresp_fault(&req, TCP_FES_INVALID_FIELD, 11, "DGST");
	h.icresp.dgst = 0;
	h.icresp.maxh2cdata = htole32(4092);
	expect_icresp_fault(&req, TCP_FES_INVALID_FIELD, 12, "MAXH2CDATA");
	h.icresp.maxh2cdata = htole32(4095);
	expect_icresp_fault(&req, TCP_FES_INVALID_FIELD, 12, "MAXH2CDATA");
}

/* Targets of Linux 5.0 to 5.6 say 65535. Data PDUs begin at multiples of 4. */
static void test_a_maxh2cdata_that_is_no_multiple_of_4_is_rounded_down(void)
{
	static const uint32_t cases[][2] = {{4096, 4096}, {4099, 4096}, {65535, 65532}, {UINT32_MAX, UINT32_MAX - 3}};
	struct tcp_icreq req = {.max_r2t = 1};
	struct tcp_icresp resp = {.max_h2c_data = 4096}, back;

	tcp_icresp_encode(&h, &resp);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		h.icresp.maxh2cdata = htole32(cases[i][0]);
		CU_ASSERT_TRUE(tcp_icresp_decode(&h.icresp, &req, &back, &fault));
		CU_ASSERT_EQUAL(back.max_h2c_data, cases[i][1]);
	}
}

static void test_a_capsule_has_its_data_where_the_alignment_says(void)
{
	CU_ASSERT_EQUAL(tcp_capsule_cmd_encode(&h, &plain, bytes64, 512), 72);
	CU_ASSERT_TRUE(check(TCP_CONTROLLER, &plain));
	CU_ASSERT_EQUAL(shape.header, 72);
	CU_ASSERT_EQUAL(shape.padding, 0);
	CU_ASSERT_EQUAL(shape.data, 512);
	CU_ASSERT_FALSE(shape.data_digest);
	CU_ASSERT_EQUAL(memcmp(h.cmd.sqe, bytes64, 64), 0);

	memset(&h, 0xee, sizeof(h));
	CU_ASSERT_EQUAL(tcp_capsule_cmd_encode(&h, &digests, bytes64, 512), 128);
	CU_ASSERT_EQUAL(h.bytes[76] | h.bytes[127], 0); /* padding is zeroes */
	CU_ASSERT_EQUAL(le32toh(h.common.plen), 128 + 512 + 4);
	CU_ASSERT_TRUE(check(TCP_CONTROLLER, &digests));
	CU_ASSERT_EQUAL(shape.header, 76);
	CU_ASSERT_EQUAL(shape.padding, 52);
	CU_ASSERT_EQUAL(shape.data, 512);
	CU_ASSERT_TRUE(shape.data_digest);
	CU_ASSERT_TRUE(tcp_header_digest_check(&h, &shape, &fault));

	CU_ASSERT_EQUAL(tcp_capsule_cmd_encode(&h, &digests, bytes64, 0), 76);
	CU_ASSERT_TRUE(check(TCP_CONTROLLER, &digests));
	CU_ASSERT_EQUAL(shape.data, 0);
	CU_ASSERT_FALSE(shape.data_digest);
	CU_ASSERT_EQUAL(tcp_data_digest_bytes(&digests, 1), 4);
	CU_ASSERT_EQUAL(tcp_data_digest_bytes(&digests, 0), 0);
	CU_ASSERT_EQUAL(tcp_data_digest_bytes(&plain, 1), 0);
}

static void test_responses_and_r2ts_come_back_as_they_were(void)
{
	struct tcp_piece back;

	CU_ASSERT_EQUAL(tcp_capsule_resp_encode(&h, &digests, bytes64), 28);
	CU_ASSERT_TRUE(check(TCP_HOST, &digests));
	CU_ASSERT_TRUE(tcp_header_digest_check(&h, &shape, &fault));
	CU_ASSERT_EQUAL(memcmp(h.resp.cqe, bytes64, 16), 0);
	CU_ASSERT_EQUAL(tcp_r2t_encode(&h, &plain, &piece), 24);
	CU_ASSERT_TRUE(check(TCP_HOST, &plain));
	CU_ASSERT_TRUE(tcp_header_digest_check(&h, &shape, &fault)); /* it has none */
	CU_ASSERT_TRUE(tcp_r2t_decode(&h.r2t, &back, &fault));
	CU_ASSERT_TRUE(back.cccid == 7 && back.ttag == 9 && back.offset == 4096 && back.length == 512);
	CU_ASSERT_TRUE(!back.last && !back.success);
}

static void test_data_comes_back_as_it_was(void)
{
	struct tcp_piece p = piece, back;

	CU_ASSERT_EQUAL(tcp_h2c_data_encode(&h, &digests, &p), 128);
	CU_ASSERT_TRUE(check(TCP_CONTROLLER, &digests));
	CU_ASSERT_TRUE(tcp_h2c_data_decode(&h.data, &shape, &back, &fault));
	CU_ASSERT_TRUE(back.cccid == 7 && back.ttag == 9 && back.offset == 4096 && back.length == 512);
	CU_ASSERT_TRUE(back.last && !back.success);
	p.last = false;
	CU_ASSERT_EQUAL(tcp_h2c_data_encode(&h, &plain, &p), 24);
	CU_ASSERT_TRUE(check(TCP_CONTROLLER, &plain));
	CU_ASSERT_TRUE(tcp_h2c_data_decode(&h.data, &shape, &back, &fault));
	CU_ASSERT_FALSE(back.last);
	CU_ASSERT_EQUAL(tcp_c2h_data_encode(&h, &digests, &p), 64);
	CU_ASSERT_TRUE(check(TCP_HOST, &digests));
	CU_ASSERT_TRUE(tcp_c2h_data_decode(&h.data, &shape, &back, &fault));
	CU_ASSERT_TRUE(!back.last && !back.success && back.ttag == 0 && back.length == 512);
	p.last = p.success = true;
	tcp_c2h_data_encode(&h, &plain, &p);
	CU_ASSERT_TRUE(check(TCP_HOST, &plain));
	CU_ASSERT_TRUE(tcp_c2h_data_decode(&h.data, &shape, &back, &fault));
	CU_ASSERT_TRUE(back.last && back.success);
}

static void test_types_that_do_not_come_now_or_from_there_are_refused(void)
{
	struct tcp_icreq req = {.max_r2t = 1};

	for (unsigned type = 0; type < 256; type++) {
		tcp_capsule_cmd_encode(&h, &plain, bytes64, 0);
		h.common.type = (uint8_t)type;
		if (type == 8 || type > 9) {
			expect_common_fault(TCP_HOST, &plain, TCP_FES_INVALID_FIELD, 0, "PDU-Type");
			expect_common_fault(TCP_CONTROLLER, &nothing, TCP_FES_INVALID_FIELD, 0, "PDU-Type");
		}
	}
	tcp_capsule_cmd_encode(&h, &plain, bytes64, 0);
	expect_common_fault(TCP_HOST, &plain, TCP_FES_INVALID_FIELD, 0, "PDU-Type");
	expect_common_fault(TCP_CONTROLLER, &nothing, TCP_FES_SEQUENCE, 0, "PDU-Type");
	tcp_r2t_encode(&h, &plain, &piece);
	expect_common_fault(TCP_CONTROLLER, &plain, TCP_FES_INVALID_FIELD, 0, "PDU-Type");
	tcp_icreq_encode(&h, &req);
	expect_common_fault(TCP_CONTROLLER, &plain, TCP_FES_SEQUENCE, 0, "PDU-Type");
}

static void test_wrong_sizes_and_flags_are_refused(void)
{
	tcp_c2h_data_encode(&h, &plain, &piece);
	h.common.hlen = 25;
	expect_common_fault(TCP_HOST, &plain, TCP_FES_INVALID_FIELD, 2, "HLEN");
	tcp_c2h_data_encode(&h, &plain, &piece);
	h.common.pdo = 20;
	expect_common_fault(TCP_HOST, &plain, TCP_FES_INVALID_FIELD, 3, "PDO");
	h.common.pdo = 26;
	expect_common_fault(TCP_HOST, &plain, TCP_FES_INVALID_FIELD, 3, "PDO");
	h.common.pdo = 24;
	h.common.plen = htole32(24);
	expect_common_fault(TCP_HOST, &plain, TCP_FES_INVALID_FIELD, 4, "PLEN");
	h.common.plen = htole32(25);
	CU_ASSERT_TRUE(check(TCP_HOST, &plain));
	h.common.plen = UINT32_MAX;
	CU_ASSERT_TRUE(check(TCP_HOST, &plain));
	CU_ASSERT_EQUAL(shape.data, UINT32_MAX - 24);
	h.common.flags |= TCP_FLAG_DDGST;
	expect_common_fault(TCP_HOST, &plain, TCP_FES_INVALID_FIELD, 1, "FLAGS");
	h.common.flags = TCP_FLAG_HDGST;
	expect_common_fault(TCP_HOST, &plain, TCP_FES_INVALID_FIELD, 1, "FLAGS");
	tcp_c2h_data_encode(&h, &digests, &piece);
	h.common.plen = htole32(64 + 4);
	expect_common_fault(TCP_HOST, &digests, TCP_FES_INVALID_FIELD, 4, "PLEN");
	h.common.flags &= (uint8_t)~TCP_FLAG_DDGST;
	expect_common_fault(TCP_HOST, &digests, TCP_FES_INVALID_FIELD, 1, "FLAGS");
	h.common.flags &= (uint8_t)~TCP_FLAG_HDGST;
	expect_common_fault(TCP_HOST, &digests, TCP_FES_INVALID_FIELD, 1, "FLAGS");
	tcp_capsule_resp_encode(&h, &plain, bytes64);
	h.common.plen = htole32(25);
	expect_common_fault(TCP_HOST, &plain, TCP_FES_INVALID_FIELD, 4, "PLEN");
}

static void test_more_data_than_the_controller_takes_is_refused(void)
{
	struct tcp_piece p = piece;

	tcp_capsule_cmd_encode(&h, &plain, bytes64, 8192);
	CU_ASSERT_TRUE(check(TCP_CONTROLLER, &plain));
	tcp_capsule_cmd_encode(&h, &plain, bytes64, 8196);
	expect_common_fault(TCP_CONTROLLER, &plain, TCP_FES_LIMIT, 0, "PLEN");
	p.length = 4096;
	tcp_h2c_data_encode(&h, &plain, &p);
	CU_ASSERT_TRUE(check(TCP_CONTROLLER, &plain));
	p.length = 4100;
	tcp_h2c_data_encode(&h, &plain, &p);
	expect_common_fault(TCP_CONTROLLER, &plain, TCP_FES_LIMIT, 0, "PLEN");
}

static void test_a_header_digest_that_does_not_fit_is_a_fault(void)
{
	tcp_capsule_resp_encode(&h, &digests, bytes64);
	CU_ASSERT_TRUE(check(TCP_HOST, &digests));
	memcpy(h.bytes + 24, "\x78\x56\x34\x12", 4);
	CU_ASSERT_FALSE(tcp_header_digest_check(&h, &shape, &fault));
	expect_fault(TCP_FES_HEADER_DIGEST, 0x12345678, "HDGST");
	CU_ASSERT_EQUAL(fault.offset, 24);
}

static void test_data_with_wrong_fields_is_refused(void)
{
	struct tcp_piece p = piece, back;

	p.offset = 4098;
	tcp_h2c_data_encode(&h, &plain, &p);
	CU_ASSERT_TRUE(check(TCP_CONTROLLER, &plain));
	CU_ASSERT_FALSE(tcp_h2c_data_decode(&h.data, &shape, &back, &fault));
	expect_fault(TCP_FES_INVALID_FIELD, 12, "DATAO");
	tcp_c2h_data_encode(&h, &plain, &piece);
	CU_ASSERT_TRUE(check(TCP_HOST, &plain));
	h.data.datal = htole32(508);
	CU_ASSERT_FALSE(tcp_c2h_data_decode(&h.data, &shape, &back, &fault));
	expect_fault(TCP_FES_INVALID_FIELD, 16, "DATAL");
	tcp_c2h_data_encode(&h, &plain, &piece);
	h.common.flags = TCP_FLAG_SUCCESS;
	CU_ASSERT_FALSE(tcp_c2h_data_decode(&h.data, &shape, &back, &fault));
	expect_fault(TCP_FES_INVALID_FIELD, 1, "FLAGS");
}

static void test_r2ts_with_wrong_fields_are_refused(void)
{
	struct tcp_piece p = piece, back;

	p.offset = 2;
	tcp_r2t_encode(&h, &plain, &p);
	CU_ASSERT_FALSE(tcp_r2t_decode(&h.r2t, &back, &fault));
	expect_fault(TCP_FES_INVALID_FIELD, 12, "R2TO");
	p.offset = 0;
	p.length = 0;
	tcp_r2t_encode(&h, &plain, &p);
	CU_ASSERT_FALSE(tcp_r2t_decode(&h.r2t, &back, &fault));
	expect_fault(TCP_FES_INVALID_FIELD, 16, "R2TL");
}

static void test_pieces_out_of_range_are_refused(void)
{
	CU_ASSERT_TRUE(tcp_piece_check(&piece, TCP_PDU_R2T, 4096, 4608, &fault));
	CU_ASSERT_FALSE(tcp_piece_check(&piece, TCP_PDU_R2T, 0, 8192, &fault));
	expect_fault(TCP_FES_OUT_OF_RANGE, 0, "R2TO");
	CU_ASSERT_FALSE(tcp_piece_check(&piece, TCP_PDU_C2H_DATA, 4092, 8192, &fault));
	expect_fault(TCP_FES_OUT_OF_RANGE, 0, "DATAO");
	CU_ASSERT_FALSE(tcp_piece_check(&piece, TCP_PDU_R2T, 4096, 4604, &fault));
	expect_fault(TCP_FES_OUT_OF_RANGE, 0, "R2TL");
	CU_ASSERT_FALSE(tcp_piece_check(&piece, TCP_PDU_H2C_DATA, 4096, 4096, &fault));
	expect_fault(TCP_FES_OUT_OF_RANGE, 0, "DATAL");
	CU_ASSERT_EQUAL(fault.value, 512);
}

static void test_termination_requests_carry_the_fault(void)
{
	char text[TCP_FAULT_TEXT_MAX];
	struct tcp_term term;
	uint8_t bad[200] = {TCP_PDU_C2H_DATA, [127] = 0xaa, [128] = 0xbb};

	tcp_fault_set(&fault, TCP_FES_INVALID_FIELD, TCP_PDU_C2H_DATA, 12, "DATAO", 2, "not a multiple of 4");
	CU_ASSERT_STRING_EQUAL(tcp_fault_text(&fault, text), "C2HData: DATAO (offset 12) is 2: not a multiple of 4");
	CU_ASSERT_EQUAL(tcp_term_encode(&h, TCP_HOST, &fault, bad, 24), 48);
	CU_ASSERT_TRUE(check(TCP_CONTROLLER, &nothing));
	tcp_term_decode(&h, &shape, &term);
	CU_ASSERT_EQUAL(term.pdu_bytes, 24);
	CU_ASSERT_STRING_EQUAL(tcp_term_text(&term, TCP_HOST, text),
			       "Invalid PDU Header Field (1), field at offset 12 of C2HData");

	tcp_fault_set(&fault, TCP_FES_HEADER_DIGEST, TCP_PDU_R2T, 24, "HDGST", 0x12345678, "wrong");
	CU_ASSERT_EQUAL(tcp_term_encode(&h, TCP_CONTROLLER, &fault, bad, sizeof(bad)), TCP_TERM_MAX);
	CU_ASSERT_EQUAL(h.bytes[TCP_TERM_MAX - 1], 0xaa);
	CU_ASSERT_TRUE(check(TCP_HOST, &digests)); /* it has no digest, ever */
	tcp_term_decode(&h, &shape, &term);
	CU_ASSERT_EQUAL(term.fei, 0x12345678);
	CU_ASSERT_STRING_EQUAL(tcp_term_text(&term, TCP_CONTROLLER, text), "Header Digest Error (3), of C2HData");
	term.pdu_bytes = 0;
	CU_ASSERT_STRING_EQUAL(tcp_term_text(&term, TCP_CONTROLLER, text),
			       "Header Digest Error (3), of a PDU that was not sent back");
	term.fes = TCP_FES_UNSUPPORTED;
	CU_ASSERT_PTR_NOT_NULL(strstr(tcp_term_text(&term, TCP_CONTROLLER, text), "Unsupported Parameter (6), field"));
	h.common.plen = htole32(23);
	expect_common_fault(TCP_HOST, &plain, TCP_FES_INVALID_FIELD, 4, "PLEN");
	h.common.plen = htole32(153);
	expect_common_fault(TCP_HOST, &plain, TCP_FES_INVALID_FIELD, 4, "PLEN");
}

/* Each head for a connection, written into a buffer that is no larger than the longest may be. */
static uint32_t heads_of(const struct tcp_agreed *agreed, uint32_t longest)
{
	uint64_t *head = malloc(TCP_HEAD_MAX); /* of its own: sanitizers see what goes beyond */
	const uint8_t *bytes = (const uint8_t *)head;
	uint32_t lengths[] = {
		tcp_capsule_cmd_encode(head, agreed, bytes64, 512),
		tcp_capsule_cmd_encode(head, agreed, bytes64, 0),
		tcp_capsule_resp_encode(head, agreed, bytes64),
		tcp_h2c_data_encode(head, agreed, &piece),
		tcp_r2t_encode(head, agreed, &piece),
		tcp_c2h_data_encode(head, agreed, &piece),
	};

	CU_ASSERT_EQUAL(bytes[3], lengths[5]); /* PDO is not cut off */
	tcp_capsule_cmd_encode(head, agreed, bytes64, 512);
	CU_ASSERT_EQUAL(bytes[3], lengths[0]);
	for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		CU_ASSERT_TRUE(lengths[i] <= TCP_HEAD_MAX);
		longest = lengths[i] > longest ? lengths[i] : longest;
	}
	free(head);
	return longest;
}

static void test_heads_of_all_alignments_are_no_longer_than_they_may_be(void)
{
	struct tcp_agreed agreed = plain;
	uint32_t longest = 0;

	for (unsigned i = 0; i < 4 * (TCP_PDA_MAX + 1u); i++) {
		agreed.header_digest = (i & 1) != 0;
		agreed.data_digest = (i & 2) != 0;
		agreed.align_to_ctrlr = agreed.align_to_host = (uint8_t)(i / 4 * 4 + 4);
		longest = heads_of(&agreed, longest);
	}
	CU_ASSERT_EQUAL(longest, TCP_HEAD_MAX);
}

static void test_names_are_those_of_the_specification(void)
{
	CU_ASSERT_STRING_EQUAL(tcp_pdu_type_name(9), "R2T");
	CU_ASSERT_STRING_EQUAL(tcp_pdu_type_name(8), "PDU of unknown type");
	CU_ASSERT_STRING_EQUAL(tcp_pdu_type_name(10), "PDU of unknown type");
	CU_ASSERT_STRING_EQUAL(tcp_fes_name(2, TCP_HOST), "PDU Sequence Error");
	CU_ASSERT_STRING_EQUAL(tcp_fes_name(4, TCP_HOST), "Data Transfer Out of Range");
	CU_ASSERT_STRING_EQUAL(tcp_fes_name(5, TCP_HOST), "R2T Limit Exceeded");
	CU_ASSERT_STRING_EQUAL(tcp_fes_name(5, TCP_CONTROLLER), "Data Transfer Limit Exceeded");
	CU_ASSERT_STRING_EQUAL(tcp_fes_name(7, TCP_CONTROLLER), "unknown");
}

static const struct unit_test tests[] = {
	UNIT(test_digests_are_crc32c),
	UNIT(test_icreq_comes_back_as_it_was),
	UNIT(test_icreq_with_wrong_fields_is_refused),
	UNIT(test_icresp_comes_back_as_it_was_and_both_agree),
	UNIT(test_icresp_with_wrong_fields_is_refused),
	UNIT(test_a_maxh2cdata_that_is_no_multiple_of_4_is_rounded_down),
	UNIT(test_a_capsule_has_its_data_where_the_alignment_says),
	UNIT(test_responses_and_r2ts_come_back_as_they_were),
	UNIT(test_data_comes_back_as_it_was),
	UNIT(test_types_that_do_not_come_now_or_from_there_are_refused),
	UNIT(test_wrong_sizes_and_flags_are_refused),
	UNIT(test_more_data_than_the_controller_takes_is_refused),
	UNIT(test_a_header_digest_that_does_not_fit_is_a_fault),
	UNIT(test_data_with_wrong_fields_is_refused),
	UNIT(test_r2ts_with_wrong_fields_are_refused),
	UNIT(test_pieces_out_of_range_are_refused),
	UNIT(test_termination_requests_carry_the_fault),
	UNIT(test_heads_of_all_alignments_are_no_longer_than_they_may_be),
	UNIT(test_names_are_those_of_the_specification),
	UNIT_END,
};
UNIT_MAIN("tcp_pdu", tests, NULL, NULL)
