/* SPDX-License-Identifier: BSD-3-Clause */
/* What -e takes, and the declarations it draws on. */
#include <errno.h>

#include "trace/trace.h"
#include "unittest/unit.h"

static struct trace_masks masks;
static char error[TRACE_ERROR_MAX];

static int parse(const char *spec)
{
	return trace_spec_parse(spec, &masks, error);
}

/* Bits of the groups that have anything enabled. */
static uint64_t groups(void)
{
	uint64_t mask = 0;

	for (unsigned g = 0; g < TRACE_NUM_GROUPS; g++) {
		mask |= (uint64_t)(masks.group[g] != 0) << g;
	}
	return mask;
}

static void test_group_name_means_all_its_tracepoints(void)
{
	CU_ASSERT_EQUAL(parse("bdev"), 0);
	CU_ASSERT_EQUAL(groups(), 0x8);
	CU_ASSERT_EQUAL(masks.group[3], UINT64_MAX);
}

static void test_groups_are_separated_by_commas(void)
{
	CU_ASSERT_EQUAL(parse("nvmf_rdma:2,thread"), 0);
	CU_ASSERT_EQUAL(groups(), 0x410);
	CU_ASSERT_EQUAL(masks.group[4], 2);
	CU_ASSERT_EQUAL(masks.group[10], UINT64_MAX);
}

static void test_mask_of_a_group_is_hexadecimal(void)
{
	CU_ASSERT_EQUAL(parse("nvmf_rdma:FF"), 0);
	CU_ASSERT_EQUAL(masks.group[4], 0xff);
	CU_ASSERT_EQUAL(parse("nvmf_rdma:0x1f"), 0);
	CU_ASSERT_EQUAL(masks.group[4], 0x1f);
	CU_ASSERT_EQUAL(parse("bdev:ffffffffffffffff"), 0);
	CU_ASSERT_EQUAL(masks.group[3], UINT64_MAX);
}

static void test_tracepoints_by_name_are_separated_by_plus(void)
{
	CU_ASSERT_EQUAL(parse("nvmf_rdma:RDMA_REQ_NEW+RDMA_REQ_COMPLETED"), 0);
	CU_ASSERT_EQUAL(masks.group[4], 1u << 0 | 1u << 11);
	CU_ASSERT_EQUAL(parse("bdev:BDEV_IO_DONE,bdev:1"), 0);
	CU_ASSERT_EQUAL(masks.group[3], 3);
}

static void test_whole_group_mask(void)
{
	CU_ASSERT_EQUAL(parse("0x18"), 0);
	CU_ASSERT_EQUAL(groups(), 0x18);
	CU_ASSERT_EQUAL(parse("0x8,thread:1"), 0);
	CU_ASSERT_EQUAL(groups(), 0x408);
}

static void test_wide_group_mask_takes_the_groups_there_are(void)
{
	CU_ASSERT_EQUAL(parse("0xffffffffffffffff"), 0);
	uint64_t all = groups();
	CU_ASSERT_EQUAL(parse("all"), 0);
	CU_ASSERT_EQUAL(groups(), all);
	CU_ASSERT_EQUAL(all & 1, 0); /* there is no group 0 */
	CU_ASSERT(all & 0x8);
}

static void test_help_is_asked_for(void)
{
	CU_ASSERT_EQUAL(parse("help"), TRACE_SPEC_HELP);
	CU_ASSERT_EQUAL(parse("bdev,help"), TRACE_SPEC_HELP);
}

static void test_unknown_group_lists_the_right_ones(void)
{
	CU_ASSERT_EQUAL(parse("bdve"), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "'bdve'"));
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "bdev, "));
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "scheduler"));
	CU_ASSERT_EQUAL(parse("bdevx:1"), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "'bdevx'"));
}

static void test_unknown_tracepoint_lists_those_of_the_group(void)
{
	CU_ASSERT_EQUAL(parse("bdev:BDEV_IO_START+BDEV_IO_STOP"), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "'BDEV_IO_STOP'"));
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "BDEV_IO_START, BDEV_IO_DONE"));
	CU_ASSERT_PTR_NULL(strstr(error, "RDMA_REQ_NEW"));
}

static void test_malformed_specs_are_rejected(void)
{
	const char *const bad[] = {"",
				   ",",
				   "bdev,",
				   ",bdev",
				   "bdev:",
				   "bdev:+",
				   "bdev:BDEV_IO_DONE+",
				   "bdev:1:2",
				   "0x",
				   "0xg",
				   "0x11111111111111111",
				   "bdev:11111111111111111",
				   "ALL",
				   " bdev",
				   "bdev:0",
				   "bdev:8000000000000000",
				   "0x1",
				   "18",
				   "bdev:0x",
				   "help:1",
				   "bdev;thread",
				   NULL};

	for (unsigned i = 0; bad[i] != NULL; i++) {
		int rc = parse(bad[i]);
		CU_ASSERT_EQUAL(rc, -EINVAL);
		CU_ASSERT_NOT_EQUAL(error[0], '\0');
		if (rc != -EINVAL) {
			printf("accepted: '%s'\n", bad[i]);
		}
	}
}

static void test_endless_name_is_shortened_in_the_error(void)
{
	char spec[5000];

	memset(spec, 'x', sizeof(spec) - 1);
	spec[sizeof(spec) - 1] = '\0';
	CU_ASSERT_EQUAL(parse(spec), -EINVAL);
	CU_ASSERT(strlen(error) < TRACE_ERROR_MAX);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "scheduler"));
}

static void test_every_listed_name_is_accepted(void)
{
	for (unsigned id = 0; id < TRACE_NUM_TPOINTS; id++) {
		const struct trace_tpoint_info *t = trace_tpoint_info(id);
		char spec[80];
		if (t == NULL) {
			continue;
		}
		snprintf(spec, sizeof(spec), "%s:%s", trace_group_info(id / 64)->name, t->def.name);
		CU_ASSERT_EQUAL(parse(spec), 0);
		CU_ASSERT_EQUAL(masks.group[id / 64], 1ull << id % 64);
	}
}

/* Id, name, owner, object, birth and arguments as existing readers and scripts know them. */
static void test_known_tracepoints_keep_their_ids_and_arguments(void)
{
	static const struct {
		unsigned id;
		const char *name;
		unsigned object, new_object, stock_args;
		const char *args;
	} known[] = {
		{192, "BDEV_IO_START", 2, 1, 4, "type:08 ctx:18 offset:08 qd:04 "},
		{193, "BDEV_IO_DONE", 2, 0, 2, "ctx:18 qd:04 "},
		{194, "BDEV_IOCH_CREATE", 0, 0, 1, "tid:08 "},
		{195, "BDEV_IOCH_DESTROY", 0, 0, 1, "tid:08 "},
		{256, "RDMA_REQ_NEW", 0x40, 1, 2, "qpair:18 qd:04 "},
		{260, "RDMA_REQ_RDY_TO_EXECUTE", 0x40, 0, 1, "qpair:18 "},
		{267, "RDMA_REQ_COMPLETED", 0x40, 0, 2, "qpair:18 qd:04 "},
		{268, "RDMA_QP_CREATE", 0, 0, 0, ""},
		{269, "RDMA_IBV_ASYNC_EVENT", 0, 0, 1, "type:08 "},
		{272, "RDMA_QP_DISCONNECT", 0, 0, 0, ""},
		{276, "RDMA_REQ_NEED_DATA_WR", 0x40, 0, 1, "qpair:18 "},
		{640, "THREAD_IOCH_GET", 0, 0, 1, "refcnt:04 "},
		{641, "THREAD_IOCH_PUT", 0, 0, 1, "refcnt:04 "},
		{704, "NVME_PCIE_SUBMIT", 3, 1, 7, "ctx:18 cid:04 opc:04 dw10:14 dw11:14 dw12:14 qd:04 "},
		{705, "NVME_PCIE_COMPLETE", 3, 0, 4, "ctx:18 cid:04 cpl:14 qd:04 "},
		{896, "BDEV_NVME_IO_START", 5, 1, 1, "ctx:18 "},
		{897, "BDEV_NVME_IO_DONE", 5, 0, 1, "ctx:18 "},
		{1152, "SCHEDULER_PERIOD_START", 0, 0, 0, ""},
		{1153, "SCHEDULER_CORE_STATS", 0, 0, 2, "busy:08 idle:08 "},
		{1155, "SCHEDULER_MOVE_THREAD", 0, 0, 2, "src:08 dst:08 "},
	};

	for (unsigned i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		const struct trace_tpoint_info *t = trace_tpoint_info(known[i].id);
		char args[256] = "";
		CU_ASSERT_PTR_NOT_NULL_FATAL(t);
		CU_ASSERT_STRING_EQUAL(t->def.name, known[i].name);
		CU_ASSERT_EQUAL(t->def.tpoint_id, known[i].id);
		CU_ASSERT_EQUAL(t->def.object_type, known[i].object);
		CU_ASSERT_EQUAL(t->def.new_object, known[i].new_object);
		CU_ASSERT(t->def.num_args >= known[i].stock_args);
		for (unsigned a = 0; a < known[i].stock_args; a++) {
			size_t n = strlen(args);
			snprintf(args + n, sizeof(args) - n, "%s:%u%u ", t->def.args[a].name, t->def.args[a].type,
				 t->def.args[a].size);
		}
		CU_ASSERT_STRING_EQUAL(args, known[i].args);
	}
}

static const struct unit_test tests[] = {
	UNIT(test_group_name_means_all_its_tracepoints),
	UNIT(test_groups_are_separated_by_commas),
	UNIT(test_mask_of_a_group_is_hexadecimal),
	UNIT(test_tracepoints_by_name_are_separated_by_plus),
	UNIT(test_whole_group_mask),
	UNIT(test_wide_group_mask_takes_the_groups_there_are),
	UNIT(test_help_is_asked_for),
	UNIT(test_unknown_group_lists_the_right_ones),
	UNIT(test_unknown_tracepoint_lists_those_of_the_group),
	UNIT(test_malformed_specs_are_rejected),
	UNIT(test_endless_name_is_shortened_in_the_error),
	UNIT(test_every_listed_name_is_accepted),
	UNIT(test_known_tracepoints_keep_their_ids_and_arguments),
	UNIT_END,
};
UNIT_MAIN("trace_spec", tests, NULL, NULL)
