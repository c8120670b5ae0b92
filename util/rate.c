/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/rate.h"

#define TOKEN 1000000

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

void rate_counters_add_wait(struct rate_counters *c)
{
	atomic_fetch_add_explicit(&c->waits, 1, memory_order_relaxed);
}

void rate_counters_add_waited(struct rate_counters *c, uint64_t us)
{
	atomic_fetch_add_explicit(&c->waited_us, us, memory_order_relaxed);
}

void rate_counters_reset(struct rate_counters *c)
{
	for (unsigned k = 0; k < RATE_KINDS; k++) {
		atomic_store_explicit(&c->ios[k], 0, memory_order_relaxed);
		atomic_store_explicit(&c->bytes[k], 0, memory_order_relaxed);
	}
	atomic_store_explicit(&c->waits, 0, memory_order_relaxed);
	atomic_store_explicit(&c->waited_us, 0, memory_order_relaxed);
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

/* ---- Buckets ---- */

void rate_limiter_init(struct rate_limiter *l, uint64_t now, uint64_t hz)
{
	*l = (struct rate_limiter){.refill_interval_ticks = hz * RATE_REFILL_MIN_US / 1000000, .hz = hz};
	atomic_store_explicit(&l->refilled_ticks, now, memory_order_relaxed);
	atomic_store_explicit(&l->burst_us, RATE_BURST_MS * 1000, memory_order_relaxed);
}

static void bucket_set_limit(struct rate_bucket *b, uint64_t per_sec)
{
	if (atomic_exchange_explicit(&b->per_sec, per_sec, memory_order_relaxed) != per_sec) {
		atomic_store_explicit(&b->tokens, 0, memory_order_relaxed);
	}
}

void rate_limiter_set(struct rate_limiter *l, const struct rate_limits *limits)
{
	uint32_t burst_ms = limits->burst_ms != 0 ? limits->burst_ms : RATE_BURST_MS;

	atomic_store_explicit(&l->burst_us, burst_ms * UINT64_C(1000), memory_order_relaxed);
	for (unsigned i = 0; i < RATE_BUCKETS; i++) {
		bucket_set_limit(&l->buckets[i], rate_limit(limits, (enum rate_bucket_id)i));
	}
}

bool rate_limits_are_set(const struct rate_limits *limits)
{
	return limits->rw_ios_per_sec != 0 || limits->rw_bytes_per_sec != 0 || limits->r_bytes_per_sec != 0 ||
	       limits->w_bytes_per_sec != 0;
}

static bool bucket_has_limit(const struct rate_bucket *b)
{
	return atomic_load_explicit(&b->per_sec, memory_order_relaxed) != 0;
}

static bool bucket_is_dry(const struct rate_bucket *b)
{
	return bucket_has_limit(b) && atomic_load_explicit(&b->tokens, memory_order_relaxed) <= 0;
}

static void bucket_refill(struct rate_bucket *b, uint64_t ticks, uint64_t hz, uint64_t burst_us)
{
	uint64_t per_sec = atomic_load_explicit(&b->per_sec, memory_order_relaxed);
	const int64_t most = INT64_MAX / 4;

	if (per_sec == 0) {
		return;
	}
	unsigned __int128 exact = (unsigned __int128)per_sec * TOKEN * ticks / hz;
	unsigned __int128 room = (unsigned __int128)per_sec * TOKEN * burst_us / 1000000;
	int64_t add = exact < (unsigned __int128)most ? (int64_t)exact : most;
	/* At least one I/O or a block may go after any wait. */
	int64_t cap = room < TOKEN ? TOKEN : room < (unsigned __int128)most ? (int64_t)room : most;
	int64_t old = atomic_load_explicit(&b->tokens, memory_order_relaxed), filled;
	/* In one step: if the excess were removed later, other threads could spend it meanwhile. */
	do {
		filled = old + add < cap ? old + add : cap;
	} while (!atomic_compare_exchange_weak_explicit(&b->tokens, &old, filled, memory_order_relaxed,
							memory_order_relaxed));
}

/* Relaxed throughout: the buckets order nothing but themselves, and the exchange lets one thread refill. */
void rate_limiter_refill(struct rate_limiter *l, uint64_t now)
{
	uint64_t last = atomic_load_explicit(&l->refilled_ticks, memory_order_relaxed);
	uint64_t burst_us = atomic_load_explicit(&l->burst_us, memory_order_relaxed);

	if ((int64_t)(now - last) < (int64_t)l->refill_interval_ticks ||
	    !atomic_compare_exchange_strong_explicit(&l->refilled_ticks, &last, now, memory_order_relaxed,
						     memory_order_relaxed)) {
		return;
	}
	for (unsigned i = 0; i < RATE_BUCKETS; i++) {
		bucket_refill(&l->buckets[i], now - last, l->hz, burst_us);
	}
}

bool rate_limiter_allows(const struct rate_limiter *l, enum rate_kind kind, uint64_t bytes)
{
	for (unsigned i = 0; i < RATE_BUCKETS; i++) {
		if (rate_cost((enum rate_bucket_id)i, kind, bytes) != 0 && bucket_is_dry(&l->buckets[i])) {
			return false;
		}
	}
	return true;
}

void rate_limiter_take(struct rate_limiter *l, enum rate_kind kind, uint64_t bytes)
{
	for (unsigned i = 0; i < RATE_BUCKETS; i++) {
		uint64_t cost = rate_cost((enum rate_bucket_id)i, kind, bytes);
		if (cost != 0 && bucket_has_limit(&l->buckets[i])) {
			atomic_fetch_sub_explicit(&l->buckets[i].tokens, (int64_t)(cost * TOKEN), memory_order_relaxed);
		}
	}
}

bool rate_limiter_is_dry_for(const struct rate_limiter *l, enum rate_kind kind)
{
	return bucket_is_dry(&l->buckets[kind == RATE_READS ? RATE_R_BYTES : RATE_W_BYTES]);
}

bool rate_limiter_is_shared(const struct rate_limiter *l)
{
	return bucket_has_limit(&l->buckets[RATE_RW_IOS]) || bucket_has_limit(&l->buckets[RATE_RW_BYTES]);
}
