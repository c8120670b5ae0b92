/* SPDX-License-Identifier: BSD-3-Clause */
/* The console's series. */
#include "appliance/console_series.h"

#include <stdlib.h>

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
	struct series *s = series_create(SERIES_FINE);
	struct series_counters c = {.depth = SERIES_DEPTH_UNKNOWN};

	CU_ASSERT_PTR_NOT_NULL_FATAL(s);
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
	struct series *s = series_create(SERIES_FINE);
	struct series_counters c = {0}, anew = {0};

	CU_ASSERT_PTR_NOT_NULL_FATAL(s);
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

static void test_rings_keep_the_newest_points(void)
{
	struct series *s = series_create(SERIES_FINE);
	struct series_counters c = {0};

	CU_ASSERT_PTR_NOT_NULL_FATAL(s);
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

static const struct unit_test tests[] = {
	UNIT(test_numbers_are_packed_with_a_small_error),
	UNIT(test_a_point_is_what_happened_in_its_second),
	UNIT(test_counters_that_began_anew_and_seconds_that_were_missed_leave_gaps),
	UNIT(test_rings_keep_the_newest_points),
	UNIT_END,
};
UNIT_MAIN("appliance_console", tests, NULL, NULL)
