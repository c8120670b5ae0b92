/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/share.h"

#include <sched.h>

/* Relaxed throughout, but for the flag: the buckets order nothing but themselves. Only who has the group busy adds to
 * them, so a bucket never rises above what was computed from an older, higher level. */
#define LOAD(field_)          atomic_load_explicit(&(field_), memory_order_relaxed)
#define STORE(field_, value_) atomic_store_explicit(&(field_), (value_), memory_order_relaxed)
#define ADD(field_, value_)   atomic_fetch_add_explicit(&(field_), (value_), memory_order_relaxed)

#define TOKEN      1000000
#define TOKENS_MAX (INT64_MAX / 8) /* in a bucket, and that an I/O takes: sums of a few do not wrap */

static void group_enter(struct share_group *g)
{
	while (atomic_flag_test_and_set_explicit(&g->busy, memory_order_acquire)) { /* pairs with group_leave() */
		sched_yield();
	}
}

static void group_leave(struct share_group *g)
{
	atomic_flag_clear_explicit(&g->busy, memory_order_release);
}

/* With many members a refill takes longer, so that they come less often: each costs about a quarter of a microsecond
 * per member. But much more often than a bucket of a minimum runs over, which holds half a burst. */
static void group_set_interval(struct share_group *g)
{
	uint64_t us = g->num_members * (uint64_t)SHARE_REFILL_US_PER_MEMBER;

	us = us < g->burst_us / 4 ? us : g->burst_us / 4;
	us = us > SHARE_REFILL_MIN_US ? us : SHARE_REFILL_MIN_US;
	STORE(g->interval_us, us);
	STORE(g->interval_ticks, g->hz * us / 1000000);
}

void share_group_init(struct share_group *g, uint64_t now, uint64_t hz)
{
	*g = (struct share_group){.hz = hz, .burst_us = RATE_BURST_MS * UINT64_C(1000), .busy = ATOMIC_FLAG_INIT};
	TAILQ_INIT(&g->members);
	STORE(g->refilled_ticks, now);
	group_set_interval(g);
}

/* ---- Changes ---- */

static uint64_t saturating_sum(uint64_t a, uint64_t b)
{
	return a + b < a ? UINT64_MAX : a + b;
}

void share_sum(struct rate_limits *sum, const struct rate_limits *minimum)
{
	sum->rw_ios_per_sec = saturating_sum(sum->rw_ios_per_sec, minimum->rw_ios_per_sec);
	sum->rw_bytes_per_sec = saturating_sum(sum->rw_bytes_per_sec, minimum->rw_bytes_per_sec);
	sum->r_bytes_per_sec = saturating_sum(sum->r_bytes_per_sec, minimum->r_bytes_per_sec);
	sum->w_bytes_per_sec = saturating_sum(sum->w_bytes_per_sec, minimum->w_bytes_per_sec);
}

bool share_sum_fits(const struct rate_limits *limits, const struct rate_limits *sum, enum rate_bucket_id *id)
{
	for (unsigned k = 0; k < RATE_BUCKETS; k++) {
		uint64_t limit = rate_limit(limits, (enum rate_bucket_id)k);
		if (limit != 0 && rate_limit(sum, (enum rate_bucket_id)k) > limit) {
			*id = (enum rate_bucket_id)k;
			return false;
		}
	}
	return true;
}

/* Takes out what a bucket has; debts_too: also forgives what it owes. What other threads take meanwhile, it owes. */
static void bucket_empty(_Atomic int64_t *tokens, bool debts_too)
{
	int64_t had = LOAD(*tokens);

	if (had > 0 || debts_too) {
		ADD(*tokens, -had);
	}
}

static void group_set_limit(struct share_group *g, enum rate_bucket_id k, uint64_t per_sec)
{
	struct share_member *m;
	uint64_t old = atomic_exchange_explicit(&g->per_sec[k], per_sec, memory_order_relaxed);

	if (old == per_sec) {
		return;
	}
	bool is_fresh = old == 0; /* debts of earlier limits are forgotten */
	bucket_empty(&g->tokens[k], is_fresh);
	g->kept_back[k] = 0;
	TAILQ_FOREACH (m, &g->members, link) {
		bucket_empty(&m->tokens[k], is_fresh);
	}
}

void share_group_set(struct share_group *g, const struct rate_limits *limits)
{
	group_enter(g);
	g->burst_us = (limits->burst_ms != 0 ? limits->burst_ms : RATE_BURST_MS) * UINT64_C(1000);
	for (unsigned k = 0; k < RATE_BUCKETS; k++) {
		group_set_limit(g, (enum rate_bucket_id)k, rate_limit(limits, (enum rate_bucket_id)k));
	}
	group_set_interval(g);
	group_leave(g);
}

static void group_change_minimum(struct share_group *g, struct share_member *m, const struct rate_limits *minimum)
{
	for (unsigned k = 0; k < RATE_BUCKETS; k++) {
		uint64_t per_sec = rate_limit(minimum, (enum rate_bucket_id)k);
		g->min_per_sec[k] = g->min_per_sec[k] - m->min_per_sec[k] + per_sec;
		m->min_per_sec[k] = per_sec;
	}
}

void share_group_add(struct share_group *g, struct share_member *m, const struct rate_limits *minimum)
{
	group_enter(g);
	*m = (struct share_member){0};
	group_change_minimum(g, m, minimum);
	TAILQ_INSERT_TAIL(&g->members, m, link);
	g->num_members++;
	group_set_interval(g);
	group_leave(g);
}

void share_group_set_minimum(struct share_group *g, struct share_member *m, const struct rate_limits *minimum)
{
	group_enter(g);
	group_change_minimum(g, m, minimum);
	group_leave(g);
}

void share_group_remove(struct share_group *g, struct share_member *m)
{
	group_enter(g);
	group_change_minimum(g, m, &(struct rate_limits){0});
	for (unsigned k = 0; k < RATE_BUCKETS; k++) {
		int64_t left = LOAD(m->tokens[k]);
		if (LOAD(g->tokens[k]) < TOKENS_MAX || left < 0) {
			ADD(g->tokens[k], left);
		}
	}
	TAILQ_REMOVE(&g->members, m, link);
	g->num_members--;
	group_set_interval(g);
	group_leave(g);
}

/* ---- Refill ---- */

/* What a rate yields in a time. */
static int64_t tokens_due(uint64_t per_sec, uint64_t time, uint64_t units_per_sec)
{
	unsigned __int128 exact = (unsigned __int128)per_sec * TOKEN * time / units_per_sec;

	return exact < (unsigned __int128)TOKENS_MAX ? (int64_t)exact : TOKENS_MAX;
}

/* Adds to a member's bucket, up to cap. Returns what found no room, or was above the cap already. */
static int64_t member_fill(struct share_member *m, unsigned k, int64_t add, int64_t cap)
{
	int64_t had = LOAD(m->tokens[k]);
	int64_t filled = had + add < cap ? had + add : cap;

	if (filled != had) {
		ADD(m->tokens[k], filled - had);
	}
	return had + add - filled;
}

static uint32_t group_count_wanting(struct share_group *g, uint64_t now)
{
	uint64_t want_ticks = g->hz * SHARE_WANT_US / 1000000;
	struct share_member *m;
	uint32_t n = 0;

	TAILQ_FOREACH (m, &g->members, link) {
		int64_t since =
			(int64_t)(now - LOAD(m->wanted_ticks)); /* negative if the clock of the member's CPU is ahead */
		m->wants = LOAD(m->has_wanted) && since < (int64_t)want_ticks;
		n += m->wants;
	}
	return n;
}

struct refill {
	uint64_t ticks;
	uint32_t wanting;
	unsigned k;
	int64_t room;      /* how much all buckets together may hold besides the minimums */
	int64_t most;      /* how much of that one member's bucket may hold if the member wants more */
	__int128 saved;    /* how much of it these buckets hold */
	__int128 leftover; /* what is still to be given away */
};

/* How much of its minimum a member may save up: half a burst. The buckets of members that want more have room for the
 * other half, so that they get what idle members leave also if the minimums add up to the limit. */
static int64_t minimum_room(const struct share_group *g, const struct share_member *m, unsigned k)
{
	return tokens_due(m->min_per_sec[k], g->burst_us / 2, 1000000);
}

/* So that all buckets together have room for what the limit yields in the burst time. */
static int64_t rest_room(const struct share_group *g, uint64_t rest, uint64_t minimums)
{
	int64_t room =
		tokens_due(rest, g->burst_us, 1000000) + tokens_due(minimums, g->burst_us - g->burst_us / 2, 1000000);

	return room < TOKENS_MAX ? room : TOKENS_MAX;
}

/* Each member gets its minimum. */
static void refill_minimums(struct share_group *g, struct refill *r)
{
	struct share_member *m;

	TAILQ_FOREACH (m, &g->members, link) {
		int64_t cap = minimum_room(g, m, r->k) + (m->wants ? r->most : 0);
		r->leftover += member_fill(m, r->k, tokens_due(m->min_per_sec[r->k], r->ticks, g->hz), cap);
	}
}

/* Each member that wants more gets an equal part of what is left. */
static void refill_rest(struct share_group *g, struct refill *r)
{
	__int128 exact = r->wanting != 0 && r->leftover > 0 ? r->leftover / r->wanting : 0;
	int64_t part = exact < TOKENS_MAX ? (int64_t)exact : TOKENS_MAX;
	struct share_member *m;

	TAILQ_FOREACH (m, &g->members, link) {
		if (!m->wants) {
			continue;
		}
		int64_t cap = minimum_room(g, m, r->k);
		if (part > 0) {
			r->leftover -= part - member_fill(m, r->k, part, cap + r->most);
		}
		int64_t has = LOAD(m->tokens[r->k]);
		r->saved += has > cap ? has - cap : 0;
	}
}

/* What nobody had room for is anybody's. But not while some want more: the little that does not divide would be an I/O,
 * each time for whoever looks first. */
static void refill_common(struct share_group *g, struct refill *r, int64_t common)
{
	__int128 room = r->room > r->saved ? r->room - r->saved : 0;
	__int128 left = r->leftover < room ? r->leftover : room;
	bool is_kept_back = r->wanting != 0 && left > 0;

	g->kept_back[r->k] = is_kept_back ? (int64_t)left : 0;
	ADD(g->tokens[r->k], (is_kept_back ? 0 : (int64_t)left) - common);
}

static void refill_one(struct share_group *g, struct refill *r)
{
	uint64_t per_sec = LOAD(g->per_sec[r->k]), minimums = g->min_per_sec[r->k];
	uint64_t rest = per_sec > minimums ? per_sec - minimums : 0;
	int64_t common = LOAD(g->tokens[r->k]);

	r->room = rest_room(g, rest, minimums);
	r->most = r->wanting != 0 ? r->room / r->wanting : 0;
	r->saved = 0;
	r->leftover = (__int128)common + g->kept_back[r->k] + tokens_due(rest, r->ticks, g->hz);
	refill_minimums(g, r);
	refill_rest(g, r);
	refill_common(g, r, common);
}

static bool group_has_limits(const struct share_group *g)
{
	bool has = false;

	for (unsigned k = 0; k < RATE_BUCKETS; k++) {
		has = has || LOAD(g->per_sec[k]) != 0;
	}
	return has;
}

static void group_refill(struct share_group *g, uint64_t ticks, uint64_t now)
{
	if (!group_has_limits(g)) {
		return; /* minimums of a group without limits have no tokens: everything goes */
	}
	struct refill r = {.ticks = ticks, .wanting = group_count_wanting(g, now)};

	for (r.k = 0; r.k < RATE_BUCKETS; r.k++) {
		if (LOAD(g->per_sec[r.k]) != 0) {
			refill_one(g, &r);
		}
	}
}

static bool group_is_due(const struct share_group *g, uint64_t now)
{
	return (int64_t)(now - LOAD(g->refilled_ticks)) >= (int64_t)LOAD(g->interval_ticks);
}

void share_refill(struct share_group *g, uint64_t now)
{
	if (!group_is_due(g, now) || atomic_flag_test_and_set_explicit(&g->busy, memory_order_acquire)) {
		return;
	}
	if (group_is_due(g, now)) { /* another thread may have been faster */
		uint64_t ticks = now - LOAD(g->refilled_ticks);
		STORE(g->refilled_ticks, now);
		group_refill(g, ticks, now);
	}
	group_leave(g);
}

uint64_t share_look_us(const struct share_group *g)
{
	uint64_t us = LOAD(g->interval_us);

	return us < RATE_REFILL_US ? us : RATE_REFILL_US;
}

/* ---- Taking ---- */

/* The tokens that an I/O takes for a limit; 0 also where there is none. */
static int64_t share_cost(const struct share_group *g, unsigned k, enum rate_kind kind, uint64_t bytes)
{
	uint64_t n = LOAD(g->per_sec[k]) != 0 ? rate_cost((enum rate_bucket_id)k, kind, bytes) : 0;

	return n < TOKENS_MAX / TOKEN ? (int64_t)(n * TOKEN) : TOKENS_MAX;
}

bool share_allows(const struct share_group *g, const struct share_member *m, enum rate_kind kind, uint64_t bytes)
{
	for (unsigned k = 0; k < RATE_BUCKETS; k++) {
		if (share_cost(g, k, kind, bytes) != 0 && LOAD(m->tokens[k]) <= 0 && LOAD(g->tokens[k]) <= 0) {
			return false;
		}
	}
	return true;
}

void share_take(struct share_group *g, struct share_member *m, enum rate_kind kind, uint64_t bytes)
{
	for (unsigned k = 0; k < RATE_BUCKETS; k++) {
		int64_t cost = share_cost(g, k, kind, bytes);
		if (cost != 0) {
			ADD(*(LOAD(m->tokens[k]) > 0 ? &m->tokens[k] : &g->tokens[k]), -cost);
		}
	}
}

void share_want(struct share_member *m, uint64_t now)
{
	STORE(m->wanted_ticks, now);
	STORE(m->has_wanted, true);
}

bool share_is_dry_for(const struct share_group *g, const struct share_member *m, enum rate_kind kind)
{
	unsigned k = kind == RATE_READS ? RATE_R_BYTES : RATE_W_BYTES;

	return LOAD(g->per_sec[k]) != 0 && LOAD(m->tokens[k]) <= 0 && LOAD(g->tokens[k]) <= 0;
}

bool share_has_common_limit(const struct share_group *g)
{
	return LOAD(g->per_sec[RATE_RW_IOS]) != 0 || LOAD(g->per_sec[RATE_RW_BYTES]) != 0;
}
