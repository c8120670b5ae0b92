/* SPDX-License-Identifier: BSD-3-Clause */
/* Latencies by host: what is kept of hosts that are gone, and that many names cannot make the list long. */
#include "unittest/nvmf/loop.h"

#define BLOCK 512

static uint32_t nsid;

struct seen {
	unsigned named, others;
	uint64_t commands, counted;
	const char *look_for;
	struct nvmf_host_latency_info found;
};

static void see(void *arg, const struct nvmf_host_latency_info *info)
{
	struct seen *s = arg;
	bool others = strcmp(info->hostnqn, NVMF_HOST_LATENCY_OTHERS) == 0;

	s->named += !others;
	s->others += others;
	s->commands += info->commands;
	s->counted += info->latency.histogram.counted;
	if (s->look_for != NULL && strcmp(info->hostnqn, s->look_for) == 0) {
		s->found = *info;
	}
}

static struct seen look(const char *hostnqn)
{
	struct seen s = {.look_for = hostnqn};

	nvmf_tgt_for_each_host_latency(loop_tgt(), see, &s);
	return s;
}

/* A host of that name connects, reads, the first times measured and then not, and leaves. */
static void come_and_go_measured(const char *hostnqn, unsigned measured, unsigned others)
{
	static uint8_t buf[BLOCK];
	struct loop_conn *admin = loop_attach(LOOP_SUBNQN, hostnqn, 600000);
	CU_ASSERT_PTR_NOT_NULL_FATAL(admin);
	struct loop_conn *io = loop_io_queue(admin, 1);
	CU_ASSERT_PTR_NOT_NULL_FATAL(io);

	for (unsigned i = 0; i < measured + others; i++) {
		atomic_store(&loop_measures, i < measured);
		CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_read, nsid, 0, 0, buf, sizeof(buf)), 0);
	}
	atomic_store(&loop_measures, true);
	loop_close(io);
	loop_close(admin);
}

static void come_and_go(const char *hostnqn, unsigned n)
{
	come_and_go_measured(hostnqn, n, 0);
}

static void test_times_are_told_of_measured_queue_pairs_only(void)
{
	nsid = loop_add_malloc_ns("m", BLOCK, 1024);

	come_and_go_measured("nqn.2026-11.io.varve:unmeasured", 0, 5);
	struct seen s = look("nqn.2026-11.io.varve:unmeasured");
	CU_ASSERT(s.found.commands >= 5);
	CU_ASSERT(s.found.latency.histogram.counted == 0 && s.found.latency.ns == 0 && s.found.latency.bytes == 0);
	come_and_go_measured("nqn.2026-11.io.varve:measured", 2, 50);
	s = look("nqn.2026-11.io.varve:measured");
	uint64_t n = s.found.latency.histogram.counted, each = env_ticks_to_ns(env_us_to_ticks(LOOP_LATENCY_US));
	CU_ASSERT(n >= 52 && n == s.found.commands);
	CU_ASSERT(s.found.latency.ns > n * each - n && s.found.latency.ns <= n * each);
	CU_ASSERT(s.found.latency.bytes > n * BLOCK - n && s.found.latency.bytes <= n * BLOCK);
	loop_remove_malloc_ns(nsid, "m");
}

static bool so_many_are_named(void *arg)
{
	return look(NULL).named == *(const unsigned *)arg;
}

static void test_a_name_without_commands_keeps_no_entry(void)
{
	unsigned before = look(NULL).named;
	struct loop_conn *stranger = loop_attach(LOOP_SUBNQN, "nqn.2026-11.io.varve:stranger", 600000);
	CU_ASSERT_PTR_NOT_NULL_FATAL(stranger);
	struct loop_conn *again = loop_attach(LOOP_SUBNQN, "nqn.2026-11.io.varve:stranger", 600000);
	CU_ASSERT_PTR_NOT_NULL_FATAL(again);

	CU_ASSERT_EQUAL(look(NULL).named, before + 1);
	loop_close(stranger);
	CU_ASSERT_EQUAL(look(NULL).named, before + 1);
	loop_close(again);
	CU_ASSERT_TRUE(loop_until(so_many_are_named, &before));
}

static void test_figures_of_a_host_stay_when_it_has_gone(void)
{
	nsid = loop_add_malloc_ns("m", BLOCK, 1024);

	come_and_go("nqn.2026-11.io.varve:stays", 3);
	struct seen once = look("nqn.2026-11.io.varve:stays");
	CU_ASSERT(once.found.commands >= 3 && once.found.latency.histogram.counted == once.found.commands);
	CU_ASSERT_STRING_EQUAL(once.found.subnqn, LOOP_SUBNQN);
	come_and_go("nqn.2026-11.io.varve:stays", 3);
	struct seen twice = look("nqn.2026-11.io.varve:stays");
	CU_ASSERT_EQUAL(twice.found.commands, 2 * once.found.commands);
	CU_ASSERT_EQUAL(twice.found.latency.histogram.counted, twice.found.commands);
	CU_ASSERT_EQUAL(twice.named, once.named);
	loop_remove_malloc_ns(nsid, "m");
}

static void test_many_names_share_an_entry_and_nothing_is_lost(void)
{
	nsid = loop_add_malloc_ns("m", BLOCK, 1024);
	struct seen before = look(NVMF_HOST_LATENCY_OTHERS);
	char name[64];

	come_and_go("nqn.2026-11.io.varve:first", 1);
	uint64_t each = look("nqn.2026-11.io.varve:first").found.commands;
	for (unsigned i = 0; i < NVMF_HOST_LATENCIES_MAX + 9; i++) {
		snprintf(name, sizeof(name), "nqn.2026-11.io.varve:<script>%u", i);
		come_and_go(name, 1);
	}
	struct seen after = look(NVMF_HOST_LATENCY_OTHERS);
	CU_ASSERT_EQUAL(after.named, NVMF_HOST_LATENCIES_MAX);
	CU_ASSERT_EQUAL(after.others, 1);
	CU_ASSERT_EQUAL(after.commands - before.commands, (NVMF_HOST_LATENCIES_MAX + 10) * each);
	CU_ASSERT_EQUAL(after.found.commands - before.found.commands, (before.named + 10) * each);
	CU_ASSERT_EQUAL(after.counted - before.counted, after.commands - before.commands);
	loop_remove_malloc_ns(nsid, "m");
}

static void test_a_host_with_the_name_of_the_others_is_one_of_them(void)
{
	nsid = loop_add_malloc_ns("m", BLOCK, 1024);

	come_and_go(NVMF_HOST_LATENCY_OTHERS, 1);
	come_and_go(NVMF_HOST_LATENCY_OTHERS, 1);
	struct seen s = look(NVMF_HOST_LATENCY_OTHERS);
	CU_ASSERT(s.others == 1 && s.named == 0 && s.found.commands >= 2);
	loop_remove_malloc_ns(nsid, "m");
}

static const struct unit_test tests[] = {
	UNIT(test_a_host_with_the_name_of_the_others_is_one_of_them),
	UNIT(test_figures_of_a_host_stay_when_it_has_gone),
	UNIT(test_times_are_told_of_measured_queue_pairs_only),
	UNIT(test_a_name_without_commands_keeps_no_entry),
	UNIT(test_many_names_share_an_entry_and_nothing_is_lost),
	UNIT_END,
};
UNIT_MAIN("nvmf_host_latency", tests, loop_start, loop_stop)
