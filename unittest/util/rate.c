/* SPDX-License-Identifier: BSD-3-Clause */
/* Token buckets: the rate that comes through, what idle time saves up, and what one kind of I/O leaves to the other. */
#include "unittest/unit.h"
#include "util/rate.h"

#define HZ UINT64_C(1000000000)
#define MS (HZ / 1000)

static struct rate_limiter l;

static void begin(struct rate_limits limits)
{
	rate_limiter_init(&l, 0, HZ);
	rate_limiter_set(&l, &limits);
}

static bool go(enum rate_kind kind, uint64_t bytes)
{
	if (!rate_limiter_allows(&l, kind, bytes)) {
		return false;
	}
	rate_limiter_take(&l, kind, bytes);
	return true;
}

/* How many I/Os go in a time, if somebody tries each millisecond. */
static unsigned count(uint64_t from, uint64_t to, enum rate_kind kind, uint64_t bytes)
{
	unsigned n = 0;

	for (uint64_t now = from; now < to; now += MS) {
		rate_limiter_refill(&l, now);
		while (go(kind, bytes)) {
			n++;
		}
	}
	return n;
}

static void test_the_rate_that_comes_through(void)
{
	begin((struct rate_limits){.rw_ios_per_sec = 5000});
	CU_ASSERT_FALSE(go(RATE_READS, 4096)); /* a bucket begins empty */
	CU_ASSERT_EQUAL(count(MS, 1001 * MS, RATE_READS, 4096), 5000);

	begin((struct rate_limits){.rw_bytes_per_sec = 1 << 20});
	CU_ASSERT_EQUAL(count(MS, 10001 * MS, RATE_WRITES, 64 << 10), 160);

	/* three a second: one third of a second apart, none lost to rounding */
	begin((struct rate_limits){.rw_ios_per_sec = 3});
	CU_ASSERT_EQUAL(count(MS, 100001 * MS, RATE_READS, 512), 300);
}

/* Two threads that want more than the limit look each millisecond, one of them half a millisecond later. */
static void test_threads_that_look_at_different_moments_share_a_limit(void)
{
	unsigned first = 0, second = 0;

	begin((struct rate_limits){.rw_ios_per_sec = 20000});
	for (unsigned i = 1; i <= 1000; i++) {
		first += count(i * MS, i * MS + 1, RATE_READS, 512);
		second += count(i * MS + MS / 2, i * MS + MS / 2 + 1, RATE_READS, 512);
	}
	CU_ASSERT(first + second >= 20000 && first + second <= 20010);
	CU_ASSERT(first >= 9000 && second >= 9000);
}

static void test_an_io_larger_than_the_bucket_goes_and_those_after_it_wait(void)
{
	begin((struct rate_limits){.r_bytes_per_sec = 1000000});
	rate_limiter_refill(&l, 2 * MS);
	CU_ASSERT_TRUE(go(RATE_READS, 1000000)); /* a second's worth */
	rate_limiter_refill(&l, 900 * MS);
	CU_ASSERT_FALSE(go(RATE_READS, 1));
	rate_limiter_refill(&l, 1100 * MS);
	CU_ASSERT_TRUE(go(RATE_READS, 1));
}

static void test_idle_time_is_saved_up_to_the_burst(void)
{
	begin((struct rate_limits){.rw_ios_per_sec = 1000});
	CU_ASSERT_EQUAL(count(10000 * MS, 10001 * MS, RATE_READS, 512), RATE_BURST_MS);
	begin((struct rate_limits){.rw_ios_per_sec = 1000, .burst_ms = 500});
	CU_ASSERT_EQUAL(count(10000 * MS, 10001 * MS, RATE_READS, 512), 500);
	begin((struct rate_limits){.rw_ios_per_sec = 1, .burst_ms = 1}); /* at least one I/O after any wait */
	CU_ASSERT_EQUAL(count(10000 * MS, 10001 * MS, RATE_READS, 512), 1);
}

static void test_each_kind_has_its_own_limit(void)
{
	begin((struct rate_limits){.w_bytes_per_sec = 512});
	CU_ASSERT_TRUE(rate_limiter_is_dry_for(&l, RATE_WRITES));
	CU_ASSERT_FALSE(rate_limiter_is_dry_for(&l, RATE_READS));
	CU_ASSERT_FALSE(rate_limiter_is_shared(&l));
	CU_ASSERT_TRUE(go(RATE_READS, 1 << 20));
	CU_ASSERT_FALSE(go(RATE_WRITES, 512));
	CU_ASSERT_TRUE(go(RATE_WRITES, 0)); /* a command without data counts for IOPS only */

	begin((struct rate_limits){.rw_bytes_per_sec = 512});
	CU_ASSERT_TRUE(rate_limiter_is_shared(&l));
	CU_ASSERT_FALSE(go(RATE_READS, 512));
}

static void test_a_changed_limit_begins_empty_and_others_go_on(void)
{
	begin((struct rate_limits){.rw_ios_per_sec = 1000, .r_bytes_per_sec = 1 << 20});
	rate_limiter_refill(&l, 20 * MS);
	CU_ASSERT_TRUE(go(RATE_WRITES, 0));
	rate_limiter_set(&l, &(struct rate_limits){.rw_ios_per_sec = 2000, .r_bytes_per_sec = 1 << 20});
	CU_ASSERT_FALSE(go(RATE_WRITES, 0));
	CU_ASSERT_FALSE(rate_limiter_is_dry_for(&l, RATE_READS));
	rate_limiter_set(&l, &(struct rate_limits){0});
	CU_ASSERT_TRUE(go(RATE_READS, 1 << 30));
	CU_ASSERT_FALSE(rate_limits_are_set(&(struct rate_limits){.burst_ms = 7}));
	CU_ASSERT_TRUE(rate_limits_are_set(&(struct rate_limits){.w_bytes_per_sec = 7}));
}

static void test_what_an_io_counts_for(void)
{
	static const struct rate_limits limits = {
		.rw_ios_per_sec = 1, .rw_bytes_per_sec = 2, .r_bytes_per_sec = 3, .w_bytes_per_sec = 4};
	static const uint64_t costs[RATE_BUCKETS][RATE_KINDS] = {[RATE_RW_IOS] = {1, 1},
								 [RATE_RW_BYTES] = {512, 512},
								 [RATE_R_BYTES] = {512, 0},
								 [RATE_W_BYTES] = {0, 512}};

	for (enum rate_bucket_id id = RATE_RW_IOS; id < RATE_BUCKETS; id++) {
		CU_ASSERT_EQUAL(rate_limit(&limits, id), id + 1);
		CU_ASSERT_EQUAL(rate_cost(id, RATE_READS, 512), costs[id][RATE_READS]);
		CU_ASSERT_EQUAL(rate_cost(id, RATE_WRITES, 512), costs[id][RATE_WRITES]);
	}
}

static void test_counters_add_up_and_begin_anew(void)
{
	struct rate_counts sum = {.ios = {1, 2}, .bytes = {3, 4}, .waits = 5, .waited_us = 6};
	static struct rate_counters c;

	rate_counters_add_io(&c, RATE_READS, 10);
	rate_counters_add_io(&c, RATE_WRITES, 20);
	rate_counters_add_io(&c, RATE_WRITES, 20);
	rate_counters_add_wait(&c);
	rate_counters_add_waited(&c, 100);
	rate_counters_sum(&c, &sum);
	CU_ASSERT(sum.ios[RATE_READS] == 2 && sum.ios[RATE_WRITES] == 4);
	CU_ASSERT(sum.bytes[RATE_READS] == 13 && sum.bytes[RATE_WRITES] == 44);
	CU_ASSERT(sum.waits == 6 && sum.waited_us == 106);
	rate_counters_reset(&c);
	struct rate_counts before = sum;
	rate_counters_sum(&c, &sum);
	CU_ASSERT(memcmp(&before, &sum, sizeof(sum)) == 0);
}

static void test_extremes_do_not_wrap(void)
{
	begin((struct rate_limits){.rw_bytes_per_sec = UINT64_MAX, .burst_ms = RATE_BURST_MS_MAX});
	rate_limiter_refill(&l, HZ * 3600 * 24 * 365);
	CU_ASSERT_TRUE(go(RATE_READS, UINT32_MAX));
	CU_ASSERT_TRUE(go(RATE_READS, UINT32_MAX));
	rate_limiter_refill(&l, HZ); /* a clock that another CPU is behind */
	CU_ASSERT_TRUE(go(RATE_READS, UINT32_MAX));
}

static const struct unit_test tests[] = {
	UNIT(test_the_rate_that_comes_through),
	UNIT(test_threads_that_look_at_different_moments_share_a_limit),
	UNIT(test_an_io_larger_than_the_bucket_goes_and_those_after_it_wait),
	UNIT(test_idle_time_is_saved_up_to_the_burst),
	UNIT(test_each_kind_has_its_own_limit),
	UNIT(test_a_changed_limit_begins_empty_and_others_go_on),
	UNIT(test_what_an_io_counts_for),
	UNIT(test_counters_add_up_and_begin_anew),
	UNIT(test_extremes_do_not_wrap),
	UNIT_END,
};
UNIT_MAIN("util_rate", tests, NULL, NULL)
