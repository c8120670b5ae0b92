/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/rate.h"

#include <stddef.h>

/* A sixteenth of a tick: it counts years without a wrap, and the fastest limits without a rounding that matters. */
#define TIME_SHIFT 4
#define COST_SHIFT 24
#define COST_MAX   (UINT64_C(1) << 58) /* of an I/O: sums of a few do not wrap */

uint64_t rate_limit(const struct rate_limits *limits, enum rate_bucket_id id)
{
	switch (id) {
	case RATE_RW_IOS:
		return limits->rw_ios_per_sec;
	case RATE_RW_BYTES:
		return limits->rw_bytes_per_sec;
	case RATE_R_BYTES:
		return limits->r_bytes_per_sec;
	default:
		return limits->w_bytes_per_sec;
	}
}

uint64_t rate_cost(enum rate_bucket_id id, enum rate_kind kind, uint64_t bytes)
{
	switch (id) {
	case RATE_RW_IOS:
		return 1;
	case RATE_R_BYTES:
		return kind == RATE_READS ? bytes : 0;
	case RATE_W_BYTES:
		return kind == RATE_WRITES ? bytes : 0;
	default:
		return bytes;
	}
}

/* ---- Counters ---- */

void rate_counters_add_io(struct rate_counters *c, enum rate_kind kind, uint64_t bytes)
{
	atomic_fetch_add_explicit(&c->ios[kind], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&c->bytes[kind], bytes, memory_order_relaxed);
}

void rate_counters_add_waits(struct rate_counters *c, uint64_t n)
{
	atomic_fetch_add_explicit(&c->waits, n, memory_order_relaxed);
}

void rate_counters_add_waited(struct rate_counters *c, uint64_t us)
{
	atomic_fetch_add_explicit(&c->waited_us, us, memory_order_relaxed);
}

void rate_counters_set(struct rate_counters *c, const struct rate_counts *counts)
{
	for (unsigned k = 0; k < RATE_KINDS; k++) {
		atomic_store_explicit(&c->ios[k], counts->ios[k], memory_order_relaxed);
		atomic_store_explicit(&c->bytes[k], counts->bytes[k], memory_order_relaxed);
	}
	atomic_store_explicit(&c->waits, counts->waits, memory_order_relaxed);
	atomic_store_explicit(&c->waited_us, counts->waited_us, memory_order_relaxed);
}

void rate_counters_sum(const struct rate_counters *c, struct rate_counts *sum)
{
	for (unsigned k = 0; k < RATE_KINDS; k++) {
		sum->ios[k] += atomic_load_explicit(&c->ios[k], memory_order_relaxed);
		sum->bytes[k] += atomic_load_explicit(&c->bytes[k], memory_order_relaxed);
	}
	sum->waits += atomic_load_explicit(&c->waits, memory_order_relaxed);
	sum->waited_us += atomic_load_explicit(&c->waited_us, memory_order_relaxed);
}

/* ---- Limits ---- */

/* Relaxed throughout: the limits order nothing but themselves. */
#define LOAD(field_)          atomic_load_explicit(&(field_), memory_order_relaxed)
#define STORE(field_, value_) atomic_store_explicit(&(field_), (value_), memory_order_relaxed)

void rate_limiter_init(struct rate_limiter *l, uint64_t hz)
{
	*l = (struct rate_limiter){.hz = hz};
}

/* Rounded up, so that no more than the limit goes. */
static uint64_t bucket_cost_of(uint64_t per_sec, uint64_t hz)
{
	unsigned __int128 second = (unsigned __int128)hz << (TIME_SHIFT + COST_SHIFT);
	unsigned __int128 cost = per_sec != 0 ? (second + per_sec - 1) / per_sec : 0;

	return cost < UINT64_MAX ? (uint64_t)cost : UINT64_MAX;
}

void rate_limiter_set(struct rate_limiter *l, const struct rate_limits *limits, uint64_t now)
{
	uint64_t burst_ms = limits->burst_ms != 0 ? limits->burst_ms : RATE_BURST_MS;
	uint64_t burst = (burst_ms * l->hz / 1000) << TIME_SHIFT, turn = (RATE_TURN_US * l->hz / 1000000) << TIME_SHIFT;

	STORE(l->burst, burst);
	STORE(l->turn, turn < burst / 2 ? turn : burst / 2);
	for (unsigned i = 0; i < RATE_BUCKETS; i++) {
		uint64_t per_sec = rate_limit(limits, (enum rate_bucket_id)i);
		if (per_sec != l->per_sec[i]) {
			l->per_sec[i] = per_sec;
			STORE(l->buckets[i].used_until, now << TIME_SHIFT);
			STORE(l->buckets[i].cost, bucket_cost_of(per_sec, l->hz));
			STORE(l->buckets[i].claim, 0);
		}
	}
}

bool rate_limits_are_set(const struct rate_limits *limits)
{
	return limits->rw_ios_per_sec != 0 || limits->rw_bytes_per_sec != 0 || limits->r_bytes_per_sec != 0 ||
	       limits->w_bytes_per_sec != 0;
}

static bool bucket_has_limit(const struct rate_bucket *b)
{
	return LOAD(b->cost) != 0;
}

/* 0: it is not used up. */
static uint64_t bucket_wait(const struct rate_bucket *b, uint64_t now)
{
	int64_t ahead = (int64_t)(LOAD(b->used_until) - (now << TIME_SHIFT));

	return bucket_has_limit(b) && ahead >= 0 ? ((uint64_t)ahead >> TIME_SHIFT) + 1 : 0;
}

static bool bucket_is_dry(const struct rate_bucket *b, uint64_t now)
{
	return bucket_wait(b, now) != 0;
}

/* ---- Turns ---- */

/* A claim: its owner in the lower half, in the upper one since when it waits, in 1024 ticks, which may wrap. */
static uint32_t claim_owner(const void *who)
{
	return (uint32_t)((uintptr_t)who >> 5) | 1; /* not 0 */
}

static uint64_t claim_of(const void *who, uint64_t since)
{
	return since >> 10 << 32 | claim_owner(who);
}

static bool claim_is_older(uint64_t a, uint64_t b)
{
	return (int32_t)((uint32_t)(a >> 32) - (uint32_t)(b >> 32)) < 0;
}

/* Whether the bucket has been open for so long that the one whose turn it was does not come. */
static bool turn_has_passed(uint64_t used_until, uint64_t turn, uint64_t now)
{
	return (int64_t)((now << TIME_SHIFT) - used_until) > (int64_t)turn;
}

/* Of a bucket that is not used up. */
static bool bucket_is_claimed_by_another(const struct rate_limiter *l, unsigned i, const void *who, uint64_t now)
{
	uint64_t claim = LOAD(l->buckets[i].claim);

	return claim != 0 && (who == NULL || (uint32_t)claim != claim_owner(who)) && bucket_has_limit(&l->buckets[i]) &&
	       !turn_has_passed(LOAD(l->buckets[i].used_until), LOAD(l->turn), now);
}

/* Returns whether the turn has become that of who. */
static bool bucket_claim(struct rate_bucket *b, const void *who, uint64_t since)
{
	uint64_t mine = claim_of(who, since), claim = LOAD(b->claim);

	return (claim == 0 || claim_is_older(mine, claim)) && /* if another is faster, the next look claims again */
	       atomic_compare_exchange_strong_explicit(&b->claim, &claim, mine, memory_order_relaxed,
						       memory_order_relaxed);
}

/* Somebody takes: the owner, or another because the owner has not come. */
static void bucket_end_claim(struct rate_bucket *b, const void *who, uint64_t used_until, uint64_t turn, uint64_t now)
{
	uint64_t claim = LOAD(b->claim);

	if (claim != 0 &&
	    ((who != NULL && (uint32_t)claim == claim_owner(who)) || turn_has_passed(used_until, turn, now))) {
		atomic_compare_exchange_strong_explicit(&b->claim, &claim, 0, memory_order_relaxed,
							memory_order_relaxed);
	}
}

/* Returns until when it was used up before. */
static uint64_t bucket_take(struct rate_bucket *b, uint64_t units, uint64_t burst, uint64_t now)
{
	unsigned __int128 exact = (unsigned __int128)units * LOAD(b->cost);
	unsigned __int128 cost = (exact + (1 << COST_SHIFT) - 1) >> COST_SHIFT;
	uint64_t add = cost < COST_MAX ? (uint64_t)cost : COST_MAX;
	uint64_t oldest = (now << TIME_SHIFT) - burst;
	uint64_t old = LOAD(b->used_until), from;

	do {
		from = (int64_t)(old - oldest) < 0 ? oldest : old;
	} while (!atomic_compare_exchange_weak_explicit(&b->used_until, &old, from + add, memory_order_relaxed,
							memory_order_relaxed));
	return old;
}

/* The wait for one limit, which a minimum may shorten. Nobody knows when another has its turn: soon. */
static uint64_t limiter_wait(const struct rate_limiter *l, const struct rate_limiter *minimum, const void *who,
			     unsigned i, uint64_t now)
{
	uint64_t wait = bucket_wait(&l->buckets[i], now);

	if (wait == 0 && bucket_is_claimed_by_another(l, i, who, now)) {
		wait = 1;
	}
	if (wait != 0 && minimum != NULL && bucket_has_limit(&minimum->buckets[i])) {
		uint64_t least = bucket_wait(&minimum->buckets[i], now);
		wait = least < wait ? least : wait;
	}
	return wait;
}

uint64_t rate_limiter_wait(const struct rate_limiter *l, const struct rate_limiter *minimum, const void *who,
			   enum rate_kind kind, uint64_t bytes, uint64_t now)
{
	uint64_t longest = 0;

	for (unsigned i = 0; i < RATE_BUCKETS; i++) {
		uint64_t wait =
			rate_cost((enum rate_bucket_id)i, kind, bytes) != 0 ? limiter_wait(l, minimum, who, i, now) : 0;
		longest = wait > longest ? wait : longest;
	}
	return longest;
}

uint64_t rate_limiter_claim(struct rate_limiter *l, const void *who, uint64_t since, enum rate_kind kind,
			    uint64_t bytes, uint64_t now)
{
	struct rate_bucket *last = NULL; /* the one that opens last: a turn at another would pass meanwhile */
	uint64_t longest = 0;

	for (unsigned i = 0; i < RATE_BUCKETS; i++) {
		uint64_t wait =
			rate_cost((enum rate_bucket_id)i, kind, bytes) != 0 ? limiter_wait(l, NULL, who, i, now) : 0;
		if (wait > longest) {
			longest = wait;
			last = &l->buckets[i];
		}
	}
	return last != NULL && bucket_claim(last, who, since) ? longest : 0;
}

bool rate_limiter_allows(const struct rate_limiter *l, enum rate_kind kind, uint64_t bytes, uint64_t now)
{
	return rate_limiter_wait(l, NULL, NULL, kind, bytes, now) == 0;
}

bool rate_limiter_is_covered(const struct rate_limiter *l, const struct rate_limiter *minimum, enum rate_kind kind,
			     uint64_t bytes, uint64_t now)
{
	for (unsigned i = 0; i < RATE_BUCKETS; i++) {
		if (rate_cost((enum rate_bucket_id)i, kind, bytes) != 0 && bucket_has_limit(&l->buckets[i]) &&
		    (!bucket_has_limit(&minimum->buckets[i]) || bucket_is_dry(&minimum->buckets[i], now))) {
			return false;
		}
	}
	return true;
}

void rate_limiter_take(struct rate_limiter *l, struct rate_limiter *minimum, const void *who, enum rate_kind kind,
		       uint64_t bytes, uint64_t now)
{
	for (unsigned i = 0; i < RATE_BUCKETS; i++) {
		uint64_t units = rate_cost((enum rate_bucket_id)i, kind, bytes);
		if (units == 0 || !bucket_has_limit(&l->buckets[i])) {
			continue;
		}
		uint64_t used_until = bucket_take(&l->buckets[i], units, LOAD(l->burst), now);
		bucket_end_claim(&l->buckets[i], who, used_until, LOAD(l->turn), now);
		if (minimum != NULL && bucket_has_limit(&minimum->buckets[i]) &&
		    !bucket_is_dry(&minimum->buckets[i], now)) {
			bucket_take(&minimum->buckets[i], units, LOAD(minimum->burst), now);
		}
	}
}

bool rate_limiter_is_dry_for(const struct rate_limiter *l, enum rate_kind kind, uint64_t now)
{
	return bucket_is_dry(&l->buckets[kind == RATE_READS ? RATE_R_BYTES : RATE_W_BYTES], now);
}

bool rate_limiter_is_shared(const struct rate_limiter *l)
{
	return bucket_has_limit(&l->buckets[RATE_RW_IOS]) || bucket_has_limit(&l->buckets[RATE_RW_BYTES]);
}
