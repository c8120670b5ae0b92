/* SPDX-License-Identifier: BSD-3-Clause */
/* Rate limits that any number of threads take from, without a lock.
 *
 * A limit is one number: the time until which it is used up. An I/O may go when that time has passed, and moves it on
 * by what its cost takes at the limit's rate. Idle time counts back to a burst time before now, and no further. So a
 * rate holds however many cores take part, nothing has to be refilled, and it is known when the next I/O may go. An
 * I/O may be larger than a burst; those after it wait the longer. Threads that look at the same moment may all find the
 * limit open, and each lets one I/O go; the limit counts them all, so the next one waits the longer.
 *
 * All who wait know the same time, and the thread with the shortest rounds would always be the first. So who looks in
 * vain claims the next turn, and the claim of the one who has waited longest stands. Others find the limit used up
 * until its owner has taken from it, or has not come in RATE_TURN_US.
 *
 * Times are ticks of one clock, which the caller reads. */
#ifndef UTIL_RATE_H
#define UTIL_RATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Whoever waits for a limit looks again when the next I/O may go, but not before RATE_PACE_US have passed, and at the
 * latest after RATE_REFILL_US: the limit may have been changed meanwhile. */
#define RATE_PACE_US   50
#define RATE_REFILL_US 1000
/* Whoever lets waiting I/O go lets so many go at once at most, and then lets its reactor serve others; at its next look
 * RATE_BATCH_PER_US for each microsecond since, if those are more, so that long rounds of a reactor limit nothing. */
#define RATE_BATCH        8
#define RATE_BATCH_PER_US 4
#define RATE_BATCH_MAX    1024
/* So long a limit that is open again is kept for the one who has waited for it longest, but not longer than half of
 * what the limit saves up, so that none of it is lost. */
#define RATE_TURN_US 2000
/* A limit saves up so much idle time, if the limits do not say. */
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
/* So many I/Os have to wait. Any thread. */
void rate_counters_add_waits(struct rate_counters *c, uint64_t n);
/* An I/O that had to wait goes on. Any thread. */
void rate_counters_add_waited(struct rate_counters *c, uint64_t us);
/* Begins with those counts. Nobody counts meanwhile. */
void rate_counters_set(struct rate_counters *c, const struct rate_counts *counts);
/* Adds what has been counted to sum. Any thread. */
void rate_counters_sum(const struct rate_counters *c, struct rate_counts *sum);

/* Private. Times are sixteenths of a tick. */
struct rate_bucket {
	_Atomic uint64_t used_until; /* an I/O may go when this has passed */
	_Atomic uint64_t cost;       /* what an I/O or a byte takes, in 2^-24 of that; 0: no limit */
	_Atomic uint64_t claim;      /* whose turn is next, and since when it has waited; 0: nobody's */
};

/* The state of one set of limits. Any thread, if nothing else is said. */
struct rate_limiter {
	struct rate_bucket buckets[RATE_BUCKETS];
	_Atomic uint64_t burst, turn; /* idle time that is saved up; how long a claim stands when the limit is open */
	uint64_t hz, per_sec[RATE_BUCKETS]; /* of who sets them */
};

/* Sets up a limiter without limits. hz: ticks per second. Before any other call. */
void rate_limiter_init(struct rate_limiter *l, uint64_t hz);
/* Sets all limits. A limit that changes is used up until now. One thread at a time. */
void rate_limiter_set(struct rate_limiter *l, const struct rate_limits *limits, uint64_t now);
/* Whether there is any limit. Pure. */
bool rate_limits_are_set(const struct rate_limits *limits);
/* How many ticks an I/O of so many bytes has to wait; 0: it may go. minimum: what is guaranteed to whose I/O it is, as
 * limits of their own; NULL: nothing. A limit that is used up does not hold an I/O for which there is a minimum that is
 * not. who: any object of the caller, of 64 bytes or more, by whose address its claim is known; NULL: it has none. */
uint64_t rate_limiter_wait(const struct rate_limiter *l, const struct rate_limiter *minimum, const void *who,
			   enum rate_kind kind, uint64_t bytes, uint64_t now);
/* who has looked in vain, and wants the next turn. since: when it last had one, or began to wait. Not for an I/O that
 * another limiter holds for longer: the turn would pass unused. Returns 0: it is another's, or was that of who before;
 * otherwise who has it from now on, and in so many ticks the limit will be open (1: it may be open already). */
uint64_t rate_limiter_claim(struct rate_limiter *l, const void *who, uint64_t since, enum rate_kind kind,
			    uint64_t bytes, uint64_t now);
/* Whether it may go, without a claim. */
bool rate_limiter_allows(const struct rate_limiter *l, enum rate_kind kind, uint64_t bytes, uint64_t now);
/* Whether it might go by its minimum alone, were all limits used up. */
bool rate_limiter_is_covered(const struct rate_limiter *l, const struct rate_limiter *minimum, enum rate_kind kind,
			     uint64_t bytes, uint64_t now);
/* Counts an I/O that goes, whether or not it may. Its minimum counts it as well while it is not used up. The claim of
 * who, if any, has been met. */
void rate_limiter_take(struct rate_limiter *l, struct rate_limiter *minimum, const void *who, enum rate_kind kind,
		       uint64_t bytes, uint64_t now);
/* How many may go at once, so long after the last look if that one ended because of this number; otherwise 0. Pure. */
static inline unsigned rate_batch(uint64_t us)
{
	uint64_t n = us < RATE_BATCH_MAX ? us * RATE_BATCH_PER_US : RATE_BATCH_MAX;

	n = n < RATE_BATCH ? RATE_BATCH : n;
	return n < RATE_BATCH_MAX ? (unsigned)n : RATE_BATCH_MAX;
}
/* When to look again if that may go in wait_us microseconds: pace_us, a longer time, or at the latest after
 * RATE_REFILL_US. Rounded up, because a look that comes too soon is in vain. Pure. */
static inline uint64_t rate_pace_us(uint64_t wait_us, uint64_t pace_us)
{
	uint64_t us = wait_us < pace_us ? pace_us : wait_us + 1;

	return us < RATE_REFILL_US ? us : RATE_REFILL_US;
}
/* Whether I/O of this kind may not go because of a limit of its own kind. */
bool rate_limiter_is_dry_for(const struct rate_limiter *l, enum rate_kind kind, uint64_t now);
/* Whether a limit holds for reads and writes together. */
bool rate_limiter_is_shared(const struct rate_limiter *l);

#endif
