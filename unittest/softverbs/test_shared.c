/* SPDX-License-Identifier: BSD-3-Clause */
/* Registered memory that is a memfd: softverbs maps the peer's, which must look no different from outside. */
#include "unittest/softverbs/sides.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How many memfds of the suite this process has mapped: its own, and the peer's. */
static long count_mappings(int *unused)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512];
	long n = 0;

	while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
		n += strstr(line, "memfd:verbs-suite") != NULL;
	}
	if (f != NULL) {
		fclose(f);
	}
	return n;
}

static struct ibv_wc do_write(uint32_t off, uint32_t len, uint64_t remote)
{
	struct sr s = {.opcode = IBV_WR_RDMA_WRITE,
		       .flags = IBV_SEND_SIGNALED,
		       .remote_addr = FAR_ADDR(remote),
		       .rkey = FAR_RKEY,
		       .n = 1,
		       .p = {{off, len, 0}}};

	CU_ASSERT_EQUAL(post_send(&s), 0);
	return wait_send_wc();
}

static bool mappings_become(long n)
{
	int64_t end = sides_now_ms() + SIDE_DEADLINE_MS;

	while (count_mappings(NULL) != n && sides_now_ms() < end) {
		usleep(1000);
	}
	return count_mappings(NULL) == n;
}

/* A pair whose near side has the far one's buffer mapped; it is asked for by the first transfer. */
static bool open_mapped(void)
{
	int64_t end = sides_now_ms() + SIDE_DEADLINE_MS;

	CU_ASSERT_TRUE(mappings_become(0)); /* that of the test before goes with its registration */
	if (!pair_open_plain()) {
		return false;
	}
	while (count_mappings(NULL) < 2 && sides_now_ms() < end) {
		ASSERT_STATUS(do_write(0, 1, 0).status, IBV_WC_SUCCESS);
	}
	CU_ASSERT_EQUAL_FATAL(count_mappings(NULL), 2);
	return true;
}

#define SHARED_BEGIN()                                                                                                 \
	TEST_BEGIN();                                                                                                  \
	if (!sides_device_is("softverbs")) {                                                                           \
		UNIT_SKIP("only softverbs moves data through a mapping");                                              \
	}

static void test_write_changes_exactly_its_bytes(void)
{
	SHARED_BEGIN();
	if (!open_mapped()) {
		return;
	}
	FAR(fill, &((struct area){.len = 1 << 20, .seed = 1}));
	fill(&(struct area){.off = 5, .len = 500000, .seed = 2});
	ASSERT_STATUS(do_write(5, 500000, 1001).status, IBV_WC_SUCCESS);
	CU_ASSERT_EQUAL(FAR(check, &((struct area){.off = 1001, .len = 500000, .seed = 2})), 0);
	CU_ASSERT_EQUAL(FAR(check, &((struct area){.len = 1001, .seed = 1})), 0);
	CU_ASSERT_EQUAL(FAR(check, &((struct area){.off = 501001, .len = 8192, .seed = 1, .from = 501001})), 0);
	pair_close();
}

static void test_read_scatters_and_write_gathers(void)
{
	SHARED_BEGIN();
	if (!open_mapped()) {
		return;
	}
	FAR(fill, &((struct area){.off = 4000, .len = 9000, .seed = 3}));
	CU_ASSERT_EQUAL(post_send(&(struct sr){.opcode = IBV_WR_RDMA_READ,
					       .flags = IBV_SEND_SIGNALED,
					       .remote_addr = FAR_ADDR(4000),
					       .rkey = FAR_RKEY,
					       .n = 3,
					       .p = {{100, 3000, 0}, {10000, 1, 0}, {20000, 5999, 0}}}),
			0);
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_SUCCESS);
	CU_ASSERT_EQUAL(check(&(struct area){.off = 100, .len = 3000, .seed = 3}), 0);
	CU_ASSERT_EQUAL(check(&(struct area){.off = 20000, .len = 5999, .seed = 3, .from = 3001}), 0);
	CU_ASSERT_EQUAL(post_send(&(struct sr){.opcode = IBV_WR_RDMA_WRITE,
					       .flags = IBV_SEND_SIGNALED,
					       .remote_addr = FAR_ADDR(40000),
					       .rkey = FAR_RKEY,
					       .n = 2,
					       .p = {{100, 3000, 0}, {10000, 1, 0}}}),
			0);
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_SUCCESS);
	CU_ASSERT_EQUAL(FAR(check, &((struct area){.off = 40000, .len = 3001, .seed = 3})), 0);
	pair_close();
}

static void test_a_long_send_arrives_whole(void)
{
	SHARED_BEGIN();
	if (!open_mapped()) {
		return;
	}
	fill(&(struct area){.len = 1 << 20, .seed = 4});
	CU_ASSERT_EQUAL(FAR(post_recv, &((struct rr){.n = 1, .p = {{128, 1 << 20, 0}}})), 0);
	CU_ASSERT_EQUAL(post_send(&(struct sr){
				.opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED, .n = 1, .p = {{0, 1 << 20, 0}}}),
			0);
	ASSERT_STATUS(wait_send_wc().status, IBV_WC_SUCCESS);
	CU_ASSERT_EQUAL(far_recv_wc().byte_len, 1 << 20);
	CU_ASSERT_EQUAL(FAR(check, &((struct area){.off = 128, .len = 1 << 20, .seed = 4})), 0);
	pair_close();
}

/* The whole file is mapped here, but the key says what may be reached. */
static void test_one_byte_beyond_the_region_is_a_remote_access_error(void)
{
	SHARED_BEGIN();
	if (!open_mapped()) {
		return;
	}
	ASSERT_STATUS(do_write(0, 64, SIDE_BUFFER_BYTES - 64).status, IBV_WC_SUCCESS);
	ASSERT_STATUS(do_write(0, 64, SIDE_BUFFER_BYTES - 63).status, IBV_WC_REM_ACCESS_ERR);
	pair_close();
}

static long end_registration(int *unused)
{
	int rc = ibv_dereg_mr(me.mr);

	me.mr = NULL;
	memset(me.buf, 0x5a, 4096);
	return rc;
}

static long first_byte(int *unused)
{
	return me.buf[0];
}

static void test_after_the_registration_ends_nothing_is_written(void)
{
	SHARED_BEGIN();
	if (!open_mapped()) {
		return;
	}
	CU_ASSERT_EQUAL(FAR(end_registration, &(int){0}), 0);
	fill(&(struct area){.len = 64, .seed = 5});
	ASSERT_STATUS(do_write(0, 64, 0).status, IBV_WC_REM_ACCESS_ERR);
	CU_ASSERT_EQUAL(FAR(first_byte, &(int){0}), 0x5a);
	pair_close();
}

static long try_to_shrink(int *unused)
{
	return ftruncate(me.memfd, 4096);
}

/* Who has it mapped must not find pages gone: registered memory stays. */
static void test_registered_memory_cannot_be_truncated(void)
{
	SHARED_BEGIN();
	if (!open_mapped()) {
		return;
	}
	CU_ASSERT_EQUAL(FAR(try_to_shrink, &(int){0}), -1);
	ASSERT_STATUS(do_write(0, 4096, 1 << 20).status, IBV_WC_SUCCESS);
	pair_close();
}

static void test_the_mapping_goes_with_the_peer(void)
{
	SHARED_BEGIN();
	if (!open_mapped()) {
		return;
	}
	far_kill(9);
	CU_ASSERT_TRUE(mappings_become(1));
	side_close(&(int){0});
	CU_ASSERT_EQUAL(far_start(), 0);
}

static const struct unit_test tests[] = {
	UNIT(test_write_changes_exactly_its_bytes),
	UNIT(test_read_scatters_and_write_gathers),
	UNIT(test_a_long_send_arrives_whole),
	UNIT(test_one_byte_beyond_the_region_is_a_remote_access_error),
	UNIT(test_after_the_registration_ends_nothing_is_written),
	UNIT(test_registered_memory_cannot_be_truncated),
	UNIT(test_the_mapping_goes_with_the_peer),
	UNIT_END,
};

int main(int argc, char **argv)
{
	setenv("VERBS_SUITE_MEMFD", "1", 1); /* for both sides */
	sides_main(argc, argv);
	return unit_run("softverbs_shared", tests, sides_setup, sides_teardown, argc, argv);
}
