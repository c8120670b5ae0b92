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

#endif
