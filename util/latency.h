/* SPDX-License-Identifier: BSD-3-Clause */
/* Times of I/O in statistics, without reading the clock for each I/O: that would cost as much as the rest of it. The
 * exact time is known of samples only. Of every I/O it is known in which rounds of the reactor it began and ended. The
 * samples show by how much this differs from the exact time in the mean, and the others are corrected by that. */
#ifndef UTIL_LATENCY_H
#define UTIL_LATENCY_H

#include <stdint.h>

/* Which I/Os are samples: the first ones, then one in every LATENCY_SAMPLE_INTERVAL, and the first one in each period
 * of time (latency_period()). */
#define LATENCY_FIRST_SAMPLES   64
#define LATENCY_SAMPLE_INTERVAL 127 /* a prime number, so that it keeps step with no pattern of a user */
#define LATENCY_PERIOD_SHIFT    22  /* a period has 2^22 ticks: one or two milliseconds */

/* The period of a time in ticks. */
static inline uint32_t latency_period(uint64_t now)
{
	return (uint32_t)(now >> LATENCY_PERIOD_SHIFT);
}

/* After a sample: how many I/Os are left up to the next one. *first_left: the first samples that are still to be taken;
 * LATENCY_FIRST_SAMPLES before the first I/O. */
static inline uint8_t latency_until_sample(uint8_t *first_left)
{
	*first_left -= *first_left != 0;
	return *first_left != 0 ? 1 : LATENCY_SAMPLE_INTERVAL;
}

/* The mean of what the samples' exact times had more than their times in whole rounds, in ticks /
 * 2^LATENCY_CORRECTION_SHIFT. [0]: of I/Os that ended in the round in which they began; [1]: of the others. 0 at first.
 */
#define LATENCY_CORRECTION_SHIFT 4
struct latency_correction {
	int64_t mean[2];
};

/* What the statistics take for the time of an I/O that is no sample. round_ticks: from the start of the round in which
 * it began to the start of the one in which it ended. */
static inline uint64_t latency_estimate(const struct latency_correction *c, uint64_t round_ticks)
{
	int64_t ticks = (int64_t)round_ticks + (c->mean[round_ticks != 0] >> LATENCY_CORRECTION_SHIFT);
	return ticks > 0 ? (uint64_t)ticks : 0;
}

/* Learns from a sample, whose exact time is exact_ticks. */
void latency_learn(struct latency_correction *c, uint64_t round_ticks, uint64_t exact_ticks);

/* ---- Histograms ----
 * A sample stands for all I/Os that have ended since the sample before it, so a histogram has the right number of I/Os
 * and costs nothing between samples. Where each I/O is a sample, it is exact. */

/* Bucket i has the times up to latency_bounds_ns[i]; the last bucket those that are longer than all bounds. */
#define LATENCY_BUCKETS 30
extern const uint64_t latency_bounds_ns[LATENCY_BUCKETS - 1];

/* Zero-initialised. One thread changes it; others may read it meanwhile, with latency_histogram_add(). */
struct latency_histogram {
	uint64_t counted; /* the sum of the buckets */
	uint64_t buckets[LATENCY_BUCKETS];
	uint8_t last; /* the bucket of the last sample */
};
/* Counts a sample of that time, with all I/Os before it that are not counted yet: total I/Os have ended so far, the
 * sample included. Returns for how many the sample stands. */
uint64_t latency_histogram_sample(struct latency_histogram *h, uint64_t total, uint64_t ns);
/* Counts what has ended since the last sample as if it had taken as long: h has total I/Os then. */
void latency_histogram_settle(struct latency_histogram *h, uint64_t total);
/* Adds h to sum. */
void latency_histogram_add(struct latency_histogram *sum, const struct latency_histogram *h);
/* The time that a share of the I/Os (0 to 1) did not exceed, in nanoseconds, by linear interpolation in its bucket; 0
 * if h is empty. What is in the last bucket counts as the greatest bound. */
uint64_t latency_histogram_quantile(const struct latency_histogram *h, double share);

#endif
