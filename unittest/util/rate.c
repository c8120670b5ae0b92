/* SPDX-License-Identifier: BSD-3-Clause */
/* Rate limits: the rate that comes through, in which portions, what idle time saves up, what one kind of I/O leaves to
 * the other, and what a minimum guarantees. The clock is a number. */
#include "unittest/unit.h"
#include "util/rate.h"

#define HZ UINT64_C(1000000000)
#define MS (HZ / 1000)
#define US (HZ / 1000000)

static struct rate_limiter l, m;

static void begin(struct rate_limits limits)
{
	rate_limiter_init(&l, HZ);
	rate_limiter_set(&l, &limits, 0);
}

static void begin_minimum(struct rate_limits minimum)
{
	rate_limiter_init(&m, HZ);
	rate_limiter_set(&m, &minimum, 0);
}

static bool go_with(struct rate_limiter *minimum, enum rate_kind kind, uint64_t bytes, uint64_t now)
{
	if (rate_limiter_wait(&l, minimum, NULL, kind, bytes, now) != 0) {
		return false;
	}
	rate_limiter_take(&l, minimum, NULL, kind, bytes, now);
	return true;
}

static bool go(enum rate_kind kind, uint64_t bytes, uint64_t now)
{
	CU_ASSERT_EQUAL(rate_limiter_allows(&l, kind, bytes, now),
			rate_limiter_wait(&l, NULL, NULL, kind, bytes, now) == 0);
	return go_with(NULL, kind, bytes, now);
}

/* How many I/Os go in a time, if somebody tries each millisecond. */
static unsigned count(uint64_t from, uint64_t to, enum rate_kind kind, uint64_t bytes)
{
	unsigned n = 0;

	for (uint64_t now = from; now < to; now += MS) {
		while (go(kind, bytes, now)) {
			n++;
		}
	}
	return n;
}

static void test_the_rate_that_comes_through(void)
{
	begin((struct rate_limits){.rw_ios_per_sec = 5000});
	CU_ASSERT_FALSE(go(RATE_READS, 4096, 0)); /* a limit begins used up */
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

static void test_an_io_larger_than_the_burst_goes_and_those_after_it_wait(void)
{
	begin((struct rate_limits){.r_bytes_per_sec = 1000000});
	CU_ASSERT_TRUE(go(RATE_READS, 1000000, 2 * MS)); /* a second's worth */
	CU_ASSERT_FALSE(go(RATE_READS, 1, 900 * MS));
	CU_ASSERT_TRUE(go(RATE_READS, 1, 1100 * MS));
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
	CU_ASSERT_TRUE(rate_limiter_is_dry_for(&l, RATE_WRITES, 0));
	CU_ASSERT_FALSE(rate_limiter_is_dry_for(&l, RATE_READS, 0));
	CU_ASSERT_FALSE(rate_limiter_is_shared(&l));
	CU_ASSERT_TRUE(go(RATE_READS, 1 << 20, 0));
	CU_ASSERT_FALSE(go(RATE_WRITES, 512, 0));
	CU_ASSERT_TRUE(go(RATE_WRITES, 0, 0)); /* a command without data counts for IOPS only */

	begin((struct rate_limits){.rw_bytes_per_sec = 512});
	CU_ASSERT_TRUE(rate_limiter_is_shared(&l));
	CU_ASSERT_FALSE(go(RATE_READS, 512, 0));
}

static void test_a_changed_limit_begins_used_up_and_others_go_on(void)
{
	begin((struct rate_limits){.rw_ios_per_sec = 1000, .r_bytes_per_sec = 1 << 20});
	CU_ASSERT_TRUE(go(RATE_WRITES, 0, 20 * MS));
	rate_limiter_set(&l, &(struct rate_limits){.rw_ios_per_sec = 2000, .r_bytes_per_sec = 1 << 20}, 20 * MS);
	CU_ASSERT_FALSE(go(RATE_WRITES, 0, 20 * MS));
	CU_ASSERT_FALSE(rate_limiter_is_dry_for(&l, RATE_READS, 20 * MS));
	rate_limiter_set(&l, &(struct rate_limits){0}, 20 * MS);
	CU_ASSERT_TRUE(go(RATE_READS, 1 << 30, 20 * MS));
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
	rate_counters_add_waits(&c, 2);
	rate_counters_add_waited(&c, 100);
	rate_counters_sum(&c, &sum);
	CU_ASSERT(sum.ios[RATE_READS] == 2 && sum.ios[RATE_WRITES] == 4);
	CU_ASSERT(sum.bytes[RATE_READS] == 13 && sum.bytes[RATE_WRITES] == 44);
	CU_ASSERT(sum.waits == 7 && sum.waited_us == 106);
	rate_counters_set(&c, &(struct rate_counts){.waits = 3});
	struct rate_counts before = sum;
	before.waits += 3;
	rate_counters_sum(&c, &sum);
	CU_ASSERT(memcmp(&before, &sum, sizeof(sum)) == 0);
}

static void test_extremes_do_not_wrap(void)
{
	const uint64_t year = HZ * 3600 * 24 * 365;

	begin((struct rate_limits){.rw_bytes_per_sec = UINT64_MAX, .burst_ms = RATE_BURST_MS_MAX});
	CU_ASSERT_TRUE(go(RATE_READS, UINT32_MAX, year));
	CU_ASSERT_TRUE(go(RATE_READS, UINT32_MAX, year));
	CU_ASSERT_TRUE(go(RATE_READS, UINT32_MAX, year - US)); /* the clock of another CPU is behind */
	begin((struct rate_limits){.rw_bytes_per_sec = 1});
	CU_ASSERT_TRUE(go(RATE_READS, UINT64_MAX, year)); /* a debt of months, not one that wraps */
	rate_limiter_take(&l, NULL, NULL, RATE_READS, UINT64_MAX, year);
	CU_ASSERT(rate_limiter_wait(&l, NULL, NULL, RATE_READS, 1, year) > year);
}

/* Whoever always has I/O waiting looks when the next one may go, as nvmf/qos.c and bdev/qos.c do. */
static void test_waiting_io_goes_evenly(void)
{
	static const uint64_t rates[] = {100, 10000, 100000};

	for (unsigned i = 0; i < 3; i++) {
		uint64_t now = 0, total = 0, most = 0, gap = HZ / rates[i] > RATE_PACE_US * US ? HZ / rates[i] : 0;
		begin((struct rate_limits){.rw_ios_per_sec = rates[i]});
		while (now < HZ) {
			uint64_t wait = rate_limiter_wait(&l, NULL, NULL, RATE_READS, 512, now), before = total;
			CU_ASSERT_FATAL(wait != 0);
			CU_ASSERT_TRUE(wait <= HZ / rates[i] + 1);
			now += wait > RATE_PACE_US * US ? wait : RATE_PACE_US * US;
			while (go(RATE_READS, 512, now)) {
				total++;
			}
			most = total - before > most ? total - before : most;
		}
		CU_ASSERT_EQUAL(most, gap != 0 ? 1 : RATE_PACE_US * rates[i] / 1000000);
		CU_ASSERT(total >= rates[i] - rates[i] / 1000 - 1 && total <= rates[i] + most);
	}
}

/* Threads that always have I/O waiting, in rounds of different lengths. */
struct looker {
	uint64_t round, next, last, went;
	uint8_t size[64]; /* it is known by its address */
};

static void looker_look(struct looker *k)
{
	uint64_t now = k->next, went = k->went, wait;

	while ((wait = rate_limiter_wait(&l, NULL, k, RATE_READS, 512, now)) == 0) {
		rate_limiter_take(&l, NULL, k, RATE_READS, 512, now);
		k->went++;
	}
	k->last = k->went != went ? now : k->last;
	rate_limiter_claim(&l, k, k->last, RATE_READS, 512, now);
	uint64_t look = now + rate_pace_us(wait / US, RATE_PACE_US) * US;
	k->next = (look + k->round - 1) / k->round * k->round;
}

/* Until a second has passed. */
static void lookers_run(struct looker *lookers, unsigned n)
{
	for (;;) {
		struct looker *first = &lookers[0];
		for (unsigned i = 1; i < n; i++) {
			first = lookers[i].next < first->next ? &lookers[i] : first;
		}
		if (first->next > HZ) {
			return;
		}
		looker_look(first);
	}
}

static void test_a_thread_with_short_rounds_does_not_take_all_turns(void)
{
	static const uint64_t rates[] = {100, 1000, 10000, 100000};

	for (unsigned i = 0; i < 4; i++) {
		for (unsigned n = 2; n <= 3; n++) {
			struct looker lookers[] = {{.round = US}, {.round = 30 * US}, {.round = US}};
			uint64_t sum = 0;
			begin((struct rate_limits){.rw_ios_per_sec = rates[i]});
			lookers_run(lookers, n);
			for (unsigned k = 0; k < n; k++) {
				CU_ASSERT(lookers[k].went >= rates[i] * 6 / 10 / n);
				sum += lookers[k].went;
			}
			CU_ASSERT(sum >= rates[i] - rates[i] / 100 - 1 && sum <= rates[i] + rates[i] / 1000 + 1);
		}
	}
}

/* The one who has waited longest has the turn. If it does not come, others wait for it once only. */
static void test_a_claim_stands_for_a_while(void)
{
	static uint8_t first[64], second[64];

	begin((struct rate_limits){.rw_ios_per_sec = 1000});
	CU_ASSERT_NOT_EQUAL(rate_limiter_claim(&l, first, 5 * MS, RATE_READS, 512, 0), 0);
	CU_ASSERT_NOT_EQUAL(rate_limiter_claim(&l, second, 2 * MS, RATE_READS, 512, 0), 0); /* it has waited longer */
	CU_ASSERT_EQUAL(rate_limiter_claim(&l, second, 2 * MS, RATE_READS, 512, 0), 0); /* it has the turn already */
	CU_ASSERT_EQUAL(rate_limiter_claim(&l, first, 3 * MS, RATE_READS, 512, 0), 0);
	CU_ASSERT_EQUAL(rate_limiter_wait(&l, NULL, second, RATE_READS, 512, 1), 0);
	CU_ASSERT_NOT_EQUAL(rate_limiter_wait(&l, NULL, first, RATE_READS, 512, 1), 0);
	CU_ASSERT_FALSE(rate_limiter_allows(&l, RATE_READS, 512, RATE_TURN_US * US));
	begin_minimum((struct rate_limits){.rw_ios_per_sec = 1});
	CU_ASSERT_EQUAL(rate_limiter_wait(&l, &m, first, RATE_READS, 512, 1), 0);
	CU_ASSERT_TRUE(go(RATE_READS, 512, RATE_TURN_US * US + 1));
	CU_ASSERT_TRUE(go(RATE_READS, 512, RATE_TURN_US * US + 1)); /* the claim has gone */

	begin((struct rate_limits){.rw_ios_per_sec = 1000});
	rate_limiter_claim(&l, first, 0, RATE_READS, 512, 0);
	rate_limiter_set(&l, &(struct rate_limits){.rw_ios_per_sec = 2000}, 0);
	CU_ASSERT_TRUE(go(RATE_READS, 512, 1)); /* another limit is nobody's */

	/* a claim of writes, which a limit of their own holds, does not hold reads */
	begin((struct rate_limits){.rw_ios_per_sec = 1000, .w_bytes_per_sec = 512});
	CU_ASSERT_TRUE(go(RATE_WRITES, 512, MS));
	rate_limiter_claim(&l, first, 0, RATE_WRITES, 512, MS);
	CU_ASSERT_TRUE(go(RATE_READS, 512, 3 * MS));
}

static void test_more_go_at_once_in_longer_rounds(void)
{
	CU_ASSERT_EQUAL(rate_batch(0), RATE_BATCH);
	CU_ASSERT_EQUAL(rate_batch(100), 100 * RATE_BATCH_PER_US);
	CU_ASSERT_EQUAL(rate_batch(1000), RATE_BATCH_MAX);
	CU_ASSERT_EQUAL(rate_batch(UINT64_MAX), RATE_BATCH_MAX);
}

/* Of 1000 a second, 300 are guaranteed to one; others use all that there is, and first. */
static void test_a_minimum_is_had_while_others_use_up_the_limit(void)
{
	unsigned had = 0, others = 0;

	begin((struct rate_limits){.rw_ios_per_sec = 1000});
	begin_minimum((struct rate_limits){.rw_ios_per_sec = 300});
	for (uint64_t now = MS; now <= 10000 * MS; now += MS) {
		while (go(RATE_READS, 512, now)) {
			others++;
		}
		while (go_with(&m, RATE_WRITES, 512, now)) {
			had++;
		}
	}
	CU_ASSERT(had >= 2999 && had <= 3001);
	CU_ASSERT(had + others >= 9990 && had + others <= 10010);
}

/* What goes while there is enough for all is no debt of the minimum. */
static void test_a_minimum_counts_no_more_than_it_guarantees(void)
{
	begin((struct rate_limits){.rw_ios_per_sec = 100000});
	begin_minimum((struct rate_limits){.rw_ios_per_sec = 10});
	for (uint64_t now = MS; now <= 1000 * MS; now += MS) {
		CU_ASSERT_TRUE(go_with(&m, RATE_READS, 512, now));
	}
	while (go(RATE_READS, 512, 1000 * MS)) {
	}
	CU_ASSERT_FALSE(rate_limiter_is_covered(&l, &m, RATE_READS, 512, 1000 * MS));
	CU_ASSERT_TRUE(rate_limiter_wait(&l, &m, NULL, RATE_READS, 512, 1000 * MS) <= 100 * MS + 1);
	CU_ASSERT_TRUE(rate_limiter_is_covered(&l, &m, RATE_READS, 512, 1101 * MS));
}

/* Each limit needs its own minimum. */
static void test_a_minimum_of_one_limit_does_not_pass_another(void)
{
	begin((struct rate_limits){.rw_ios_per_sec = 1, .rw_bytes_per_sec = 1});
	begin_minimum((struct rate_limits){.rw_ios_per_sec = 1000});
	CU_ASSERT_TRUE(go(RATE_READS, 1 << 20, MS));
	CU_ASSERT_FALSE(go_with(&m, RATE_READS, 512, 2 * MS));
	CU_ASSERT_FALSE(rate_limiter_is_covered(&l, &m, RATE_READS, 512, 2 * MS));
	CU_ASSERT_TRUE(go_with(&m, RATE_READS, 0, 2 * MS)); /* no bytes: the limit on I/Os alone */
	begin_minimum((struct rate_limits){.rw_ios_per_sec = 1000, .rw_bytes_per_sec = 1 << 20});
	CU_ASSERT_TRUE(go_with(&m, RATE_READS, 512, 3 * MS));
	CU_ASSERT_FALSE(go(RATE_READS, 512, 3 * MS)); /* of another */
}

static const struct unit_test tests[] = {
	UNIT(test_the_rate_that_comes_through),
	UNIT(test_threads_that_look_at_different_moments_share_a_limit),
	UNIT(test_an_io_larger_than_the_burst_goes_and_those_after_it_wait),
	UNIT(test_idle_time_is_saved_up_to_the_burst),
	UNIT(test_each_kind_has_its_own_limit),
	UNIT(test_a_changed_limit_begins_used_up_and_others_go_on),
	UNIT(test_what_an_io_counts_for),
	UNIT(test_counters_add_up_and_begin_anew),
	UNIT(test_extremes_do_not_wrap),
	UNIT(test_waiting_io_goes_evenly),
	UNIT(test_a_thread_with_short_rounds_does_not_take_all_turns),
	UNIT(test_a_claim_stands_for_a_while),
	UNIT(test_more_go_at_once_in_longer_rounds),
	UNIT(test_a_minimum_is_had_while_others_use_up_the_limit),
	UNIT(test_a_minimum_counts_no_more_than_it_guarantees),
	UNIT(test_a_minimum_of_one_limit_does_not_pass_another),
	UNIT_END,
};
UNIT_MAIN("util_rate", tests, NULL, NULL)
