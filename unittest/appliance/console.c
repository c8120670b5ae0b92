/* SPDX-License-Identifier: BSD-3-Clause */
/* The console's series, and its list of commands under way. */
#include "appliance/console_series.h"

#include <stdlib.h>

#include "appliance/console_api.h"
#include "nvmf/nvmf.h"
#include "unittest/unit.h"

#define SECOND 1000000

static void test_numbers_are_packed_with_a_small_error(void)
{
	uint64_t last = 0;

	for (uint64_t v = 0; v < 1ull << 41; v = v < 5000 ? v + 1 : v + v / 777) {
		uint64_t back = series_unpack(series_pack(v));
		CU_ASSERT(back <= v && (v - back) * 2000 <= v && back >= last);
		CU_ASSERT_NOT_EQUAL(series_pack(v), SERIES_NONE);
		last = back;
	}
	CU_ASSERT_NOT_EQUAL(series_pack(UINT64_MAX), SERIES_NONE);
	CU_ASSERT(series_unpack(series_pack(UINT64_MAX)) > 1ull << 41);
}

static struct series *series_make(void)
{
	struct series *s = series_create(SERIES_FINE);

	CU_ASSERT_PTR_NOT_NULL_FATAL(s);
	return s;
}

static uint64_t newest(const struct series *s, bool coarse, enum series_figure f)
{
	return series_unpack(series_get(s, coarse, series_count(s, coarse) - 1)->figure[f]);
}

static bool newest_is_none(const struct series *s, bool coarse, enum series_figure f)
{
	return series_get(s, coarse, series_count(s, coarse) - 1)->figure[f] == SERIES_NONE;
}

static void do_ios(struct series_counters *c, uint64_t n, uint64_t ns)
{
	c->ops += n;
	c->bytes += n * 4096;
	c->ns += n * ns;
	latency_histogram_sample(&c->histogram, c->ops, ns);
}

static void test_a_point_is_what_happened_in_its_second(void)
{
	struct series *s = series_make();
	struct series_counters c = {.depth = SERIES_DEPTH_UNKNOWN};

	do_ios(&c, 1000000, 7);
	series_add(s, &c, SECOND);
	CU_ASSERT_TRUE(newest_is_none(s, false, SERIES_IOPS)); /* the first counters say nothing of a second */
	do_ios(&c, 500, 10000000);
	series_add(s, &c, SECOND / 2);
	CU_ASSERT_EQUAL(newest(s, false, SERIES_IOPS), 1000);
	CU_ASSERT_EQUAL(newest(s, false, SERIES_BYTES_PER_S) / 1000, 4096000 / 1000);
	CU_ASSERT_EQUAL(newest(s, false, SERIES_DEPTH_MILLI) / 100, 100); /* 10 ms each: ten at a time */
	CU_ASSERT(newest(s, false, SERIES_P99_NS) > 7000000 && newest(s, false, SERIES_P99_NS) <= 10000000);
	series_add(s, &c, SECOND);
	CU_ASSERT(newest(s, false, SERIES_IOPS) == 0 && newest_is_none(s, false, SERIES_P99_NS));
	c.depth = 7;
	series_add(s, &c, SECOND);
	CU_ASSERT_EQUAL(newest(s, false, SERIES_DEPTH_MILLI), series_unpack(series_pack(7000)));
	free(s);
}

static void test_counters_that_began_anew_and_seconds_that_were_missed_leave_gaps(void)
{
	struct series *s = series_make();
	struct series_counters c = {0}, anew = {0};

	do_ios(&c, 100, 1000);
	series_add(s, &c, SECOND);
	series_add(s, &anew, SECOND);
	CU_ASSERT_TRUE(newest_is_none(s, false, SERIES_IOPS));
	do_ios(&anew, 5, 1000);
	series_add(s, &anew, SECOND);
	CU_ASSERT_EQUAL(newest(s, false, SERIES_IOPS), 5);
	series_skip(s);
	CU_ASSERT_TRUE(newest_is_none(s, false, SERIES_IOPS));
	do_ios(&anew, 5, 1000);
	series_add(s, &anew, SECOND);
	CU_ASSERT_TRUE(newest_is_none(s, false, SERIES_IOPS));
	CU_ASSERT_EQUAL(series_count(s, false), 5);
	free(s);
}

/* Statistics were set back, and since then there was more I/O than before. */
static void test_each_counter_tells_that_counters_began_anew(void)
{
	struct series_counters before = {.ops = 10, .bytes = 10, .ns = 10}, c[4];

	before.histogram.buckets[3] = 10;
	for (unsigned i = 0; i < 4; i++) {
		struct series *s = series_make();
		c[i] = (struct series_counters){.ops = 20, .bytes = 20, .ns = 20};
		c[i].histogram.buckets[3] = 20;
		uint64_t *const less[] = {&c[i].ops, &c[i].bytes, &c[i].ns, &c[i].histogram.buckets[3]};
		*less[i] = 9;
		series_add(s, &before, SECOND);
		series_add(s, &c[i], SECOND);
		CU_ASSERT_TRUE(newest_is_none(s, false, SERIES_IOPS));
		CU_ASSERT_TRUE(newest_is_none(s, false, SERIES_P99_NS));
		free(s);
	}
}

static void test_buckets_may_wrap(void)
{
	struct series *s = series_make();
	struct series_counters c = {0};

	c.histogram.buckets[3] = UINT32_MAX - 1;
	series_add(s, &c, SECOND);
	c.histogram.buckets[3] += 5;
	c.ops = 5;
	series_add(s, &c, SECOND);
	CU_ASSERT_EQUAL(newest(s, false, SERIES_IOPS), 5);
	CU_ASSERT_FALSE(newest_is_none(s, false, SERIES_P99_NS));
	free(s);
}

static void test_rings_keep_the_newest_points(void)
{
	struct series *s = series_make();
	struct series_counters c = {0};

	for (unsigned i = 0; i <= 4000; i++) {
		do_ios(&c, i < 3990 ? 10 : 20, 1000);
		series_add(s, &c, SECOND);
	}
	CU_ASSERT(series_count(s, false) == SERIES_FINE && series_count(s, true) == SERIES_COARSE);
	CU_ASSERT_EQUAL(series_unpack(series_get(s, false, 0)->figure[SERIES_IOPS]), 10);
	CU_ASSERT_EQUAL(newest(s, false, SERIES_IOPS), 20);
	CU_ASSERT_EQUAL(newest(s, true, SERIES_IOPS), 20);
	CU_ASSERT_EQUAL(series_unpack(series_get(s, true, 0)->figure[SERIES_IOPS]), 10);
	free(s);
}

/* ---- Commands under way ---- */

static struct nvmf_inflight command_of(uint64_t object, uint64_t start_ticks)
{
	return (struct nvmf_inflight){.object = (const void *)(uintptr_t)object, .start_ticks = start_ticks};
}

static bool has_command(const struct nvmf_inflight *list, size_t n, uint64_t object, uint64_t start_ticks)
{
	for (size_t i = 0; i < n; i++) {
		if (list[i].object == (const void *)(uintptr_t)object && list[i].start_ticks == start_ticks) {
			return true;
		}
	}
	return false;
}

static void test_a_look_that_found_all_commands_replaces_the_list(void)
{
	struct nvmf_inflight list[4] = {command_of(1, 1)}, found[4] = {command_of(2, 2), command_of(3, 3)};

	CU_ASSERT_EQUAL(console_inflight_merge(list, 1, found, 2, 4), 2);
	CU_ASSERT_TRUE(has_command(list, 2, 2, 2) && has_command(list, 2, 3, 3));
	CU_ASSERT_EQUAL(console_inflight_merge(list, 2, found, 0, 4), 0);
}

/* A thousand young commands, of which a look tells four, do not push out those that hang. */
static void test_old_commands_stay_when_there_is_no_room_for_all(void)
{
	struct nvmf_inflight list[4] = {command_of(1, 1), command_of(2, 2)};
	struct nvmf_inflight found[4] = {command_of(7, 7), command_of(2, 2), command_of(1, 9), command_of(8, 8)};

	CU_ASSERT_EQUAL(console_inflight_merge(list, 2, found, 4, 4), 4);
	CU_ASSERT_TRUE(has_command(list, 4, 1, 1) && has_command(list, 4, 2, 2));
	CU_ASSERT_TRUE(has_command(list, 4, 7, 7) && has_command(list, 4, 1, 9)); /* another command in 1's place */
}

static void test_the_node_keeps_each_second_of_the_hour(void)
{
	struct series *s = series_create(SERIES_NODE_FINE);
	struct series_counters c = {.depth = SERIES_DEPTH_UNKNOWN};

	CU_ASSERT_PTR_NOT_NULL_FATAL(s);
	series_add(s, &c, SECOND);
	for (unsigned i = 1; i <= 4000; i++) {
		c.ops += i;
		series_add(s, &c, SECOND);
	}
	CU_ASSERT_EQUAL(series_count(s, false), SERIES_NODE_FINE);
	CU_ASSERT_EQUAL(series_get(s, false, 0)->figure[SERIES_IOPS], series_pack(4000 - SERIES_NODE_FINE + 1));
	CU_ASSERT_EQUAL(newest(s, false, SERIES_IOPS), series_unpack(series_pack(4000)));
	free(s);
}

static const struct unit_test tests[] = {
	UNIT(test_numbers_are_packed_with_a_small_error),
	UNIT(test_a_point_is_what_happened_in_its_second),
	UNIT(test_counters_that_began_anew_and_seconds_that_were_missed_leave_gaps),
	UNIT(test_each_counter_tells_that_counters_began_anew),
	UNIT(test_buckets_may_wrap),
	UNIT(test_rings_keep_the_newest_points),
	UNIT(test_the_node_keeps_each_second_of_the_hour),
	UNIT(test_a_look_that_found_all_commands_replaces_the_list),
	UNIT(test_old_commands_stay_when_there_is_no_room_for_all),
	UNIT_END,
};
UNIT_MAIN("appliance_console", tests, NULL, NULL)
