/* SPDX-License-Identifier: BSD-3-Clause */
/* Rate limits: token buckets that any number of threads take from, without a lock.
 *
 * Whoever comes by when an eighth of a millisecond has passed refills the buckets in proportion to the time that went
 * by: no thread owns them, no messages are sent, and a rate holds however many cores take part. An I/O may go when
 * every bucket that it counts for is above zero. It may take more than a bucket holds, so that an I/O larger than a
 * bucket goes too; those after it wait the longer.
 *
 * Times are ticks of one clock, which the caller reads. */
#ifndef UTIL_RATE_H
#define UTIL_RATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define RATE_REFILL_US 1000 /* whoever waits for tokens looks again after this time */
/* A refill comes this long after the one before, or later. Less than the time above: of two threads that look at
 * different moments, the second would otherwise always find the bucket that the first has emptied. */
#define RATE_REFILL_MIN_US (RATE_REFILL_US / 8)
/* A bucket holds the tokens of this much time, if the limits do not say: more idle time than that is not saved up. */
#define RATE_BURST_MS     20
#define RATE_BURST_MS_MAX 60000

/* 0: no limit. */
struct rate_limits {
	uint64_t rw_ios_per_sec; /* reads and writes together */
	uint64_t rw_bytes_per_sec;
	uint64_t r_bytes_per_sec;
	uint64_t w_bytes_per_sec;
	uint32_t burst_ms; /* milliseconds of idle time that are saved up; 0: RATE_BURST_MS */
};

/* I/O by kind: some limits are for one kind only, and must not hold up the other. */
enum rate_kind { RATE_READS, RATE_WRITES, RATE_KINDS };

static inline enum rate_kind rate_other_kind(enum rate_kind kind)
{
	return kind == RATE_READS ? RATE_WRITES : RATE_READS;
}

enum rate_bucket_id { RATE_RW_IOS, RATE_RW_BYTES, RATE_R_BYTES, RATE_W_BYTES, RATE_BUCKETS };

/* A limit by its number. Pure. */
uint64_t rate_limit(const struct rate_limits *limits, enum rate_bucket_id id);
/* What an I/O of so many bytes counts for that limit: an I/O, its bytes, or 0 if the limit is for the other kind. Pure.
 */
uint64_t rate_cost(enum rate_bucket_id id, enum rate_kind kind, uint64_t bytes);

/* What limits have let through, and what had to wait. */
struct rate_counts {
	uint64_t ios[RATE_KINDS], bytes[RATE_KINDS]; /* that were let through */
	uint64_t waits;                              /* I/O that had to wait */
	uint64_t waited_us;                          /* how long those of them that went on have waited, in all */
};

/* The same while it is counted. */
struct rate_counters {
	_Atomic uint64_t ios[RATE_KINDS], bytes[RATE_KINDS], waits, waited_us;
};

/* An I/O goes. Any thread. */
void rate_counters_add_io(struct rate_counters *c, enum rate_kind kind, uint64_t bytes);
/* An I/O has to wait. Any thread. */
void rate_counters_add_wait(struct rate_counters *c);
/* An I/O that had to wait goes on. Any thread. */
void rate_counters_add_waited(struct rate_counters *c, uint64_t us);
/* Begins anew. Nobody counts meanwhile. */
void rate_counters_reset(struct rate_counters *c);
/* Adds what has been counted to sum. Any thread. */
void rate_counters_sum(const struct rate_counters *c, struct rate_counts *sum);

/* Private. */
struct rate_bucket {
	_Atomic int64_t tokens;   /* millionths of an I/O or byte, so that slow rates refill evenly */
	_Atomic uint64_t per_sec; /* 0: no limit */
};

/* The state of one set of limits. Any thread, if nothing else is said. */
struct rate_limiter {
	struct rate_bucket buckets[RATE_BUCKETS];
	_Atomic uint64_t refilled_ticks;
	_Atomic uint64_t burst_us;
	uint64_t refill_interval_ticks, hz;
};

/* Sets up a limiter without limits. now: the time; hz: ticks per second. Before any other call. */
void rate_limiter_init(struct rate_limiter *l, uint64_t now, uint64_t hz);
/* Sets all limits. A bucket whose limit changes begins empty. One thread at a time. */
void rate_limiter_set(struct rate_limiter *l, const struct rate_limits *limits);
/* Whether there is any limit. Pure. */
bool rate_limits_are_set(const struct rate_limits *limits);
/* Puts into the buckets what has become due, if RATE_REFILL_MIN_US have passed. */
void rate_limiter_refill(struct rate_limiter *l, uint64_t now);
/* Whether an I/O of so many bytes may go: no bucket that it counts for is empty. */
bool rate_limiter_allows(const struct rate_limiter *l, enum rate_kind kind, uint64_t bytes);
/* Takes its tokens, whether or not they are there. */
void rate_limiter_take(struct rate_limiter *l, enum rate_kind kind, uint64_t bytes);
/* Whether I/O of this kind may not go because of a limit of its own kind. */
bool rate_limiter_is_dry_for(const struct rate_limiter *l, enum rate_kind kind);
/* Whether a limit holds for reads and writes together. */
bool rate_limiter_is_shared(const struct rate_limiter *l);

#endif
