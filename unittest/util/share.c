/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared budgets: what all members get together, what is guaranteed to each, how the rest is divided, and that all of
 * this holds for members, sizes, limits and moments chosen at random. The clock is a number. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "unittest/unit.h"
#include "util/share.h"

#define HZ    UINT64_C(1000000000)
#define MS    (HZ / 1000)
#define US    (HZ / 1000000)
#define TOKEN 1000000

static struct share_group g;
static struct share_member members[SHARE_MEMBERS_MAX];

static void begin(struct rate_limits limits)
{
	share_group_init(&g, 0, HZ);
	share_group_set(&g, &limits);
}

static bool go(struct share_member *m, enum rate_kind kind, uint64_t bytes, uint64_t now)
{
	if (!share_allows(&g, m, kind, bytes)) {
		share_want(m, now);
		return false;
	}
	share_take(&g, m, kind, bytes);
	return true;
}

/* What a member that has always more to do gets through at a moment. */
static uint64_t flood(struct share_member *m, enum rate_kind kind, uint64_t bytes, uint64_t now)
{
	uint64_t n = 0;

	share_refill(&g, now);
	while (go(m, kind, bytes, now)) {
		n++;
	}
	return n;
}

static void test_a_group_gets_its_rate_through_one_member_or_many(void)
{
	for (unsigned n = 1; n <= 3; n++) {
		uint64_t went = 0;
		begin((struct rate_limits){.rw_ios_per_sec = 5000});
		for (unsigned i = 0; i < n; i++) {
			share_group_add(&g, &members[i], &(struct rate_limits){0});
		}
		for (uint64_t now = MS; now <= 2000 * MS; now += MS) {
			for (unsigned i = 0; i < n; i++) {
				went += flood(&members[i], RATE_READS, 4096, now + i * 100 * US);
			}
		}
		CU_ASSERT(went >= 9980 && went <= 10010);
	}
}

static void test_a_minimum_is_kept_while_others_flood(void)
{
	uint64_t went[3] = {0};

	begin((struct rate_limits){.rw_ios_per_sec = 10000});
	share_group_add(&g, &members[0], &(struct rate_limits){.rw_ios_per_sec = 8000});
	share_group_add(&g, &members[1], &(struct rate_limits){0});
	share_group_add(&g, &members[2], &(struct rate_limits){0});
	for (uint64_t now = MS; now <= 1000 * MS; now += MS) {
		for (unsigned look = 0; look < 5; look++) { /* the others look more often, and first */
			went[1] += flood(&members[1], RATE_READS, 4096, now + look * 10 * US);
			went[2] += flood(&members[2], RATE_WRITES, 4096, now + look * 10 * US);
		}
		went[0] += flood(&members[0], RATE_READS, 4096, now + 60 * US);
	}
	/* 8000, and a third of the other 2000 */
	CU_ASSERT(went[0] >= 8630 && went[0] <= 8700);
	CU_ASSERT(went[1] >= 630 && went[1] <= 700);
	CU_ASSERT(went[2] >= 630 && went[2] <= 700);
}

static void test_what_a_member_does_not_use_is_for_the_others(void)
{
	uint64_t went[2] = {0};

	begin((struct rate_limits){.rw_ios_per_sec = 10000});
	share_group_add(&g, &members[0], &(struct rate_limits){.rw_ios_per_sec = 9000});
	share_group_add(&g, &members[1], &(struct rate_limits){0});
	for (uint64_t now = MS; now <= 1000 * MS; now += MS) {
		share_refill(&g, now);
		went[0] += now % (4 * MS) == 0 && go(&members[0], RATE_READS, 4096, now); /* 250 a second */
		went[1] += flood(&members[1], RATE_READS, 4096, now);
	}
	CU_ASSERT_EQUAL(went[0], 250);
	CU_ASSERT(went[1] >= 9500 && went[1] <= 9760);
}

static void test_a_member_that_was_idle_has_what_it_saved_up(void)
{
	begin((struct rate_limits){.rw_ios_per_sec = 10000, .burst_ms = 100});
	share_group_add(&g, &members[0], &(struct rate_limits){.rw_ios_per_sec = 4000});
	share_group_add(&g, &members[1], &(struct rate_limits){0});
	share_refill(&g, 5000 * MS);
	uint64_t other = flood(&members[1], RATE_READS, 512, 5000 * MS);
	uint64_t own = flood(&members[0], RATE_READS, 512, 5000 * MS);
	CU_ASSERT_EQUAL(other, 800); /* the rest, for 100 ms, and half of the other's minimum */
	CU_ASSERT_EQUAL(own, 200);
}

/* Also where there is no rest but what the others leave. */
static void test_what_idle_members_leave_is_given_away_whatever_their_minimums_are(void)
{
	static const uint64_t minimums[] = {0, 1, 50000, 99000, 100000};
	static const uint32_t bursts[] = {SHARE_BURST_MS_MIN, RATE_BURST_MS, 1000};

	for (unsigned i = 0; i < 5 * 3; i++) {
		uint64_t went = 0;
		begin((struct rate_limits){.rw_ios_per_sec = 100000, .burst_ms = bursts[i % 3]});
		share_group_add(&g, &members[0], &(struct rate_limits){.rw_ios_per_sec = minimums[i / 3]});
		share_group_add(&g, &members[1], &(struct rate_limits){0});
		for (uint64_t now = MS; now <= 3000 * MS; now += 1100 * US) {
			uint64_t n = flood(&members[1], RATE_READS, 4096, now);
			went += now > 1000 * MS ? n : 0; /* the idle one's bucket has been filled */
		}
		CU_ASSERT(went >= 190000 && went <= 200000 + 100 * bursts[i % 3] + 1);
	}
}

static void test_an_io_larger_than_a_bucket_goes_and_is_paid_for_by_its_member(void)
{
	begin((struct rate_limits){.rw_bytes_per_sec = 2000000});
	share_group_add(&g, &members[0], &(struct rate_limits){.rw_bytes_per_sec = 1000000});
	share_group_add(&g, &members[1], &(struct rate_limits){.rw_bytes_per_sec = 1000000});
	share_refill(&g, 2 * MS);
	CU_ASSERT_TRUE(go(&members[0], RATE_READS, 1000000, 2 * MS)); /* a second's worth */
	CU_ASSERT_FALSE(go(&members[0], RATE_READS, 1, 2 * MS));
	CU_ASSERT_TRUE(go(&members[1], RATE_READS, 1, 2 * MS));
	for (uint64_t now = 3 * MS; now < 900 * MS; now += MS) {
		flood(&members[1], RATE_WRITES, 1000, now);
		CU_ASSERT_FALSE(go(&members[0], RATE_READS, 1, now));
	}
	share_refill(&g, 1100 * MS);
	CU_ASSERT_TRUE(go(&members[0], RATE_READS, 1, 1100 * MS));
}

static void test_each_kind_has_its_own_limit(void)
{
	begin((struct rate_limits){.w_bytes_per_sec = 512});
	share_group_add(&g, &members[0], &(struct rate_limits){0});
	CU_ASSERT_FALSE(share_has_common_limit(&g));
	CU_ASSERT_TRUE(share_is_dry_for(&g, &members[0], RATE_WRITES));
	CU_ASSERT_FALSE(share_is_dry_for(&g, &members[0], RATE_READS));
	CU_ASSERT_TRUE(go(&members[0], RATE_READS, 1 << 20, 0));
	CU_ASSERT_FALSE(go(&members[0], RATE_WRITES, 512, 0));
	CU_ASSERT_TRUE(go(&members[0], RATE_WRITES, 0, 0)); /* without data: counts for IOPS only */
	share_group_set(&g, &(struct rate_limits){.rw_bytes_per_sec = 512});
	CU_ASSERT_TRUE(share_has_common_limit(&g));
	CU_ASSERT_FALSE(share_is_dry_for(&g, &members[0], RATE_WRITES));
	CU_ASSERT_FALSE(go(&members[0], RATE_READS, 512, 0));
	share_group_set(&g, &(struct rate_limits){.r_bytes_per_sec = 512, .rw_ios_per_sec = 1000});
	CU_ASSERT_FALSE(go(&members[0], RATE_READS, 512, 0));
	CU_ASSERT_FALSE(go(&members[0], RATE_WRITES, 512, 0));
	CU_ASSERT_TRUE(share_is_dry_for(&g, &members[0], RATE_READS));
	share_group_set(&g, &(struct rate_limits){0});
	CU_ASSERT_TRUE(go(&members[0], RATE_READS, 1 << 30, 0));
}

static void test_a_changed_limit_begins_empty_and_debts_stay(void)
{
	begin((struct rate_limits){.rw_ios_per_sec = 1000, .w_bytes_per_sec = 1000000});
	share_group_add(&g, &members[0], &(struct rate_limits){.w_bytes_per_sec = 500000});
	share_refill(&g, 20 * MS);
	CU_ASSERT_TRUE(go(&members[0], RATE_WRITES, 1000000, 20 * MS)); /* its own bucket owes a million, less 10000 */
	share_group_set(&g, &(struct rate_limits){.rw_ios_per_sec = 2000, .w_bytes_per_sec = 2000000});
	CU_ASSERT_FALSE(go(&members[0], RATE_READS, 512, 20 * MS));
	share_refill(&g, 21 * MS);
	CU_ASSERT_TRUE(go(&members[0], RATE_READS, 512, 21 * MS));
	CU_ASSERT(atomic_load(&members[0].tokens[RATE_W_BYTES]) < INT64_C(-980000) * TOKEN);
	share_group_set(&g, &(struct rate_limits){0});
	share_group_set(&g, &(struct rate_limits){.w_bytes_per_sec = 1000000});
	share_refill(&g, 23 * MS);
	CU_ASSERT_TRUE(
		go(&members[0], RATE_WRITES, 1, 23 * MS)); /* debts of a limit that was taken away are forgotten */
}

static void test_who_leaves_takes_no_tokens_along(void)
{
	begin((struct rate_limits){.rw_bytes_per_sec = 1000000});
	share_group_add(&g, &members[0], &(struct rate_limits){.rw_bytes_per_sec = 900000});
	share_group_add(&g, &members[1], &(struct rate_limits){0});
	share_refill(&g, 20 * MS);
	CU_ASSERT_TRUE(go(&members[0], RATE_READS, 900000, 20 * MS));
	share_group_remove(&g, &members[0]);
	CU_ASSERT_FALSE(go(&members[1], RATE_READS, 1, 20 * MS)); /* its debt is that of all now */
	share_group_add(&g, &members[0], &(struct rate_limits){0});
	for (uint64_t now = 21 * MS; now < 800 * MS; now += MS) {
		share_refill(&g, now);
		CU_ASSERT_FALSE(go(&members[0], RATE_READS, 1, now));
	}
	share_refill(&g, 1000 * MS);
	CU_ASSERT_TRUE(go(&members[0], RATE_READS, 1, 1000 * MS));
}

/* What waited before the limit came, and long ago, counts no more. */
static void test_minimums_of_a_group_without_limits_hold_when_it_gets_one(void)
{
	uint64_t went[2] = {0};

	begin((struct rate_limits){.rw_ios_per_sec = 1});
	share_group_add(&g, &members[0], &(struct rate_limits){.rw_ios_per_sec = 1});
	share_group_add(&g, &members[1], &(struct rate_limits){0});
	CU_ASSERT_FALSE(go(&members[1], RATE_READS, 1, 0));
	share_group_set(&g, &(struct rate_limits){0});
	share_group_set_minimum(&g, &members[0], &(struct rate_limits){.rw_ios_per_sec = 9000});
	for (uint64_t now = MS; now <= 100 * MS; now += MS) {
		share_refill(&g, now);
		CU_ASSERT_TRUE(go(&members[0], RATE_READS, 4096, now) && go(&members[1], RATE_WRITES, 4096, now));
		CU_ASSERT_FALSE(share_is_dry_for(&g, &members[0], RATE_READS));
	}
	CU_ASSERT_EQUAL(atomic_load(&members[0].tokens[RATE_RW_IOS]), 0);
	share_group_set(&g, &(struct rate_limits){.rw_ios_per_sec = 10000});
	for (uint64_t now = 101 * MS; now <= 1100 * MS; now += MS) {
		for (unsigned look = 0; look < 3; look++) { /* the second looks more often, and first */
			went[1] += flood(&members[1], RATE_READS, 4096, now + look * 10 * US);
		}
		went[0] += flood(&members[0], RATE_READS, 4096, now + 60 * US);
	}
	CU_ASSERT(went[0] >= 9480 && went[0] <= 9510); /* 9000, and a half of the other 1000 */
	CU_ASSERT(went[1] >= 480 && went[1] <= 510);
}

static void test_sums_of_minimums_are_checked(void)
{
	struct rate_limits sum = {0};
	enum rate_bucket_id id = RATE_BUCKETS;

	share_sum(&sum, &(struct rate_limits){.rw_ios_per_sec = 5, .r_bytes_per_sec = UINT64_MAX});
	share_sum(&sum, &(struct rate_limits){.rw_ios_per_sec = 6, .r_bytes_per_sec = 1, .w_bytes_per_sec = 3});
	CU_ASSERT(sum.rw_ios_per_sec == 11 && sum.r_bytes_per_sec == UINT64_MAX && sum.w_bytes_per_sec == 3);
	CU_ASSERT_TRUE(share_sum_fits(&(struct rate_limits){.rw_ios_per_sec = 11, .rw_bytes_per_sec = 1}, &sum, &id));
	CU_ASSERT_EQUAL(id, RATE_BUCKETS);
	CU_ASSERT_FALSE(share_sum_fits(&(struct rate_limits){.rw_ios_per_sec = 10}, &sum, &id));
	CU_ASSERT_EQUAL(id, RATE_RW_IOS);
	CU_ASSERT_FALSE(share_sum_fits(&(struct rate_limits){.w_bytes_per_sec = 2}, &sum, &id));
	CU_ASSERT_EQUAL(id, RATE_W_BYTES);
}

static void test_extremes_do_not_wrap(void)
{
	begin((struct rate_limits){.rw_bytes_per_sec = UINT64_MAX, .burst_ms = RATE_BURST_MS_MAX});
	for (unsigned i = 0; i < SHARE_MEMBERS_MAX; i++) {
		share_group_add(&g, &members[i],
				&(struct rate_limits){.rw_bytes_per_sec = UINT64_MAX / SHARE_MEMBERS_MAX});
	}
	share_refill(&g, HZ * 3600 * 24 * 365);
	for (unsigned i = 0; i < SHARE_MEMBERS_MAX; i++) {
		CU_ASSERT_TRUE(go(&members[i], RATE_READS, UINT64_MAX, HZ)); /* takes what a bucket can hold at most */
		share_want(&members[i], HZ * 3600 * 24 * 365);
	}
	share_refill(&g, HZ); /* a clock that another CPU is behind */
	share_refill(&g, HZ * 3600 * 24 * 366);
	for (unsigned i = 0; i < SHARE_MEMBERS_MAX; i++) {
		CU_ASSERT_TRUE(go(&members[i], RATE_WRITES, UINT32_MAX, HZ));
		share_group_remove(&g, &members[i]);
	}
	CU_ASSERT_TRUE(atomic_load(&g.tokens[RATE_RW_BYTES]) >= 0);
	CU_ASSERT_EQUAL(g.num_members, 0);
}

/* ---- Anything may happen ---- */

#define FEW 8

/* Every window of time counts: excess is the most by which what went through was above the rate, in any window that
 * ends now; lack the most by which it was below. */
struct window {
	double excess, lack;
};

static void window_pass(struct window *w, double due)
{
	w->excess = w->excess > due ? w->excess - due : 0;
	w->lack += due;
}

static void window_count(struct window *w, double n)
{
	w->excess += n;
	w->lack = w->lack > n ? w->lack - n : 0;
}

struct one {
	uint64_t min, look_us, next, bytes, idle_until, went;
	bool is_member, is_greedy; /* greedy: always has more to do */
	enum rate_kind kind;
	struct window window;
};

struct world {
	struct one ones[SHARE_MEMBERS_MAX];
	unsigned members;      /* that there may be at once */
	enum rate_bucket_id k; /* the limit that there is */
	uint64_t limit, burst_ms, max_cost, now;
	unsigned buckets; /* that there are and were */
	struct window window;
};

static uint64_t below(uint64_t n)
{
	return n > 0 ? ((uint64_t)random() << 31 | (uint64_t)random()) % n : 0;
}

static struct rate_limits limits_of(enum rate_bucket_id k, uint64_t per_sec)
{
	return (struct rate_limits){
		.rw_ios_per_sec = k == RATE_RW_IOS ? per_sec : 0,
		.rw_bytes_per_sec = k == RATE_RW_BYTES ? per_sec : 0,
		.r_bytes_per_sec = k == RATE_R_BYTES ? per_sec : 0,
		.w_bytes_per_sec = k == RATE_W_BYTES ? per_sec : 0,
	};
}

static uint64_t cost_of(const struct world *w, const struct one *o)
{
	return w->k == RATE_RW_IOS ? 1 : o->bytes;
}

static void world_look(struct world *w, unsigned i)
{
	struct one *o = &w->ones[i];
	bool is_idle = w->now < o->idle_until;
	uint64_t left = is_idle ? 0 : o->is_greedy ? UINT64_MAX : below(20);

	o->next = w->now + o->look_us * US;
	share_refill(&g, w->now);
	for (; left > 0 && go(&members[i], o->kind, o->bytes, w->now); left--) {
		o->went += cost_of(w, o);
		window_count(&o->window, (double)cost_of(w, o));
		window_count(&w->window, (double)cost_of(w, o));
	}
}

static void world_check(const struct world *w, double looks_ms)
{
	double burst = (double)w->limit * (double)w->burst_ms / 1000;

	/* What has become due since the last refill is not given yet: it counts as lack, not as excess. */
	if (w->window.excess > burst + w->buckets * (double)w->max_cost + 1) {
		printf("limit %lu: %.0f too much\n", w->limit, w->window.excess - burst);
		CU_FAIL("more than rate x time + burst");
	}
	for (unsigned i = 0; i < w->members; i++) {
		const struct one *o = &w->ones[i];
		double owed = (double)o->min * looks_ms / 1000 + 2 * (double)w->max_cost + 2;
		if (o->is_member && o->is_greedy && o->min != 0 && o->window.lack > owed) {
			printf("member %u, minimum %lu: %.0f too little\n", i, o->min, o->window.lack - owed);
			CU_FAIL("less than the minimum");
		}
	}
}

static void world_add(struct world *w, unsigned i, uint64_t min)
{
	static const uint64_t looks[] = {300, 1000, 1100, 2500}; /* the last: a quarter of the burst time or less */
	struct one *o = &w->ones[i];

	*o = (struct one){.min = min,
			  .look_us = looks[below(w->burst_ms < 10 ? 3 : 4)],
			  .is_member = true,
			  .is_greedy = below(3) != 0};
	o->kind = w->k == RATE_R_BYTES ? RATE_READS : w->k == RATE_W_BYTES ? RATE_WRITES : (enum rate_kind)below(2);
	o->bytes = w->k == RATE_RW_IOS ? 4096 : (1 + below(w->max_cost / 512)) * 512;
	o->next = w->now + below(1000) * US;
	w->buckets++;
	share_group_add(&g, &members[i], &(struct rate_limits){0});
	struct rate_limits minimum = limits_of(w->k, min);
	share_group_set_minimum(&g, &members[i], &minimum);
}

static uint64_t world_free(const struct world *w)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < w->members; i++) {
		sum += w->ones[i].is_member ? w->ones[i].min : 0;
	}
	return w->limit - sum;
}

static void world_change(struct world *w)
{
	unsigned i = (unsigned)below(w->members);
	struct one *o = &w->ones[i];

	if (!o->is_member) {
		world_add(w, i, below(3) == 0 ? 0 : below(below(4) == 0 ? world_free(w) + 1 : world_free(w) / 4 + 1));
	} else if (below(3) == 0) {
		share_group_remove(&g, &members[i]);
		o->is_member = false;
	} else if (below(2) == 0) {
		o->min = below(world_free(w) + o->min + 1);
		o->window.lack = 0;
		struct rate_limits minimum = limits_of(w->k, o->min);
		share_group_set_minimum(&g, &members[i], &minimum);
	} else if (!o->is_greedy) {
		o->idle_until = w->now + below(100) * MS;
	}
}

static void world_begin(struct world *w, unsigned seed, unsigned members_max)
{
	static const uint64_t limits[] = {3, 50, 1000, 20000, 300000, UINT64_C(5000000), UINT64_C(3000000000)};

	srandom(seed);
	*w = (struct world){.k = (enum rate_bucket_id)below(RATE_BUCKETS), .members = members_max, .buckets = 1};
	w->burst_ms = below(4) == 0 ? SHARE_BURST_MS_MIN : SHARE_BURST_MS_MIN + below(100);
	w->limit = limits[below(w->k == RATE_RW_IOS ? 5 : 7)];
	w->max_cost = w->k == RATE_RW_IOS ? 1 : 512 << below(9);
	struct rate_limits l = limits_of(w->k, w->limit);
	l.burst_ms = (uint32_t)w->burst_ms;
	begin(l);
}

static void world_run(unsigned seed, unsigned members_max, unsigned steps)
{
	static struct world w;

	world_begin(&w, seed, members_max);
	/* How long ago the last look was, and the last refill before it: of a fourth of the burst time at most. */
	double looks_ms = 2.5 + 0.2 + 0.1 + (members_max > FEW ? (double)w.burst_ms / 4 : 0);
	for (unsigned i = 0; members_max > FEW && i < members_max; i++) {
		world_add(&w, i, below(w.limit / members_max + 1));
	}
	for (unsigned step = 0; step < steps; step++) {
		w.now += 100 * US;
		window_pass(&w.window, (double)w.limit / 10000);
		for (unsigned i = 0; i < w.members; i++) {
			struct one *o = &w.ones[i];
			window_pass(&o->window, o->is_member ? (double)o->min / 10000 : 0);
			if (o->is_member && w.now >= o->next) {
				world_look(&w, i);
			}
		}
		world_check(&w, looks_ms);
		if (below(60) == 0) {
			world_change(&w);
		}
	}
}

static void worlds_run(unsigned seeds, unsigned members_max, unsigned steps)
{
	for (unsigned seed = 1; seed <= seeds; seed++) {
		unsigned failed = CU_get_number_of_failures();
		world_run(seed, members_max, steps);
		if (CU_get_number_of_failures() != failed) {
			printf("seed %u of %u members\n", seed, members_max);
			return;
		}
	}
}

static void test_no_more_than_the_limit_and_no_less_than_the_minimum_ever(void)
{
	worlds_run(300 / unit_stride(), FEW, 6000);
	worlds_run(8 / unit_stride(), SHARE_MEMBERS_MAX, 1500);
}

/* Members have minimums, of any sum up to the limit, and one uses what all of them leave. */
static void test_one_that_is_greedy_alone_gets_all(void)
{
	static struct world w;

	for (unsigned seed = 1; seed <= 200 / unit_stride(); seed++) {
		world_begin(&w, seed, 2 + (unsigned)random() % 7);
		for (unsigned i = 0; i < w.members; i++) {
			bool takes_all = i + 1 == w.members && below(2) == 0;
			world_add(&w, i, takes_all ? world_free(&w) : below(world_free(&w) + 1));
			w.ones[i].is_greedy = true;
		}
		unsigned alone = (unsigned)below(w.members);
		for (; w.now < 2000 * MS; w.now += w.ones[alone].look_us * US) {
			world_look(&w, alone);
		}
		double due = (double)w.limit * 2, most = due + (double)(w.limit * w.burst_ms) / 1000;
		double went = (double)w.ones[alone].went, slack = w.buckets * (double)w.max_cost + 1;
		if (went < due * 0.95 - slack || went > most + slack) {
			printf("seed %u: %.0f of %.0f\n", seed, went, due);
			CU_FAIL("what nobody else wants is not given away");
			return;
		}
	}
}

/* Greedy members get equal parts of the rest, however often, and in whatever order, each of them looks. */
static void test_greedy_members_get_equal_parts_however_often_they_look(void)
{
	static const unsigned every_us[4] = {100, 500, 1000, 2000};
	uint64_t went[4] = {0};

	begin((struct rate_limits){.rw_bytes_per_sec = 40 << 20});
	for (unsigned i = 0; i < 4; i++) {
		share_group_add(&g, &members[i], &(struct rate_limits){0});
	}
	for (uint64_t us = 1000; us <= 5000000; us += 100) {
		for (unsigned i = 0; i < 4; i++) {
			went[i] += us % every_us[i] == 0 ? flood(&members[i], RATE_READS, 4096, us * US) * 4096 : 0;
		}
	}
	for (unsigned i = 0; i < 4; i++) {
		CU_ASSERT(went[i] >= (50 << 20) * UINT64_C(98) / 100 && went[i] <= (50 << 20) * UINT64_C(102) / 100);
	}
}

/* ---- Threads ---- */

static atomic_bool stop;
static atomic_ulong granted, clock_us;

static void *thread_floods(void *arg)
{
	struct share_member *m = arg;

	while (!atomic_load(&stop)) {
		uint64_t now = atomic_fetch_add(&clock_us, 1) * US;
		share_refill(&g, now);
		if (go(m, RATE_READS, 512, now)) {
			atomic_fetch_add(&granted, 1);
		}
	}
	return NULL;
}

static bool a_second_has_passed(void)
{
	return atomic_load(&clock_us) >= 1000000;
}

/* Four threads that take and refill while members come and go; the sum is exact whatever they do. */
static void test_threads_take_while_members_come_and_go(void)
{
	pthread_t threads[4];

	begin((struct rate_limits){.rw_ios_per_sec = 20000});
	for (unsigned i = 0; i < 2; i++) {
		share_group_add(&g, &members[i], &(struct rate_limits){.rw_ios_per_sec = 5000});
	}
	for (unsigned i = 0; i < 4; i++) {
		CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL, thread_floods, &members[i % 2]), 0);
	}
	while (!a_second_has_passed()) {
		share_group_add(&g, &members[2], &(struct rate_limits){.rw_ios_per_sec = 10000});
		share_group_set_minimum(&g, &members[2], &(struct rate_limits){.rw_ios_per_sec = 1});
		share_group_remove(&g, &members[2]);
		sched_yield();
	}
	atomic_store(&stop, true);
	for (unsigned i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
	}
	double seconds = (double)atomic_load(&clock_us) / 1000000;
	double most = 20000 * (seconds + RATE_BURST_MS / 1000.0) + 4 * 4;
	CU_ASSERT(atomic_load(&granted) > 0 && (double)atomic_load(&granted) <= most);
	int64_t left = 0;
	for (unsigned i = 0; i < 2; i++) {
		left += atomic_load(&members[i].tokens[RATE_RW_IOS]);
	}
	left += atomic_load(&g.tokens[RATE_RW_IOS]) + g.kept_back[RATE_RW_IOS];
	CU_ASSERT(left <= INT64_C(20000) * TOKEN * RATE_BURST_MS / 1000);
}

static const struct unit_test tests[] = {
	UNIT(test_a_group_gets_its_rate_through_one_member_or_many),
	UNIT(test_a_minimum_is_kept_while_others_flood),
	UNIT(test_what_a_member_does_not_use_is_for_the_others),
	UNIT(test_a_member_that_was_idle_has_what_it_saved_up),
	UNIT(test_what_idle_members_leave_is_given_away_whatever_their_minimums_are),
	UNIT(test_an_io_larger_than_a_bucket_goes_and_is_paid_for_by_its_member),
	UNIT(test_each_kind_has_its_own_limit),
	UNIT(test_a_changed_limit_begins_empty_and_debts_stay),
	UNIT(test_who_leaves_takes_no_tokens_along),
	UNIT(test_minimums_of_a_group_without_limits_hold_when_it_gets_one),
	UNIT(test_sums_of_minimums_are_checked),
	UNIT(test_extremes_do_not_wrap),
	UNIT(test_no_more_than_the_limit_and_no_less_than_the_minimum_ever),
	UNIT(test_one_that_is_greedy_alone_gets_all),
	UNIT(test_greedy_members_get_equal_parts_however_often_they_look),
	UNIT(test_threads_take_while_members_come_and_go),
	UNIT_END,
};
UNIT_MAIN("util_share", tests, NULL, NULL)
