/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/latency.h"

/* The correction follows the error of the estimate itself, so the mean of the estimates becomes right although none of
 * them is less than 0. One round that was far longer than the others (another process had the CPU) must not make many
 * estimates 0, so the correction is not less than what makes this one 0. */
void latency_learn(struct latency_correction *c, uint64_t round_ticks, uint64_t exact_ticks)
{
	int64_t *correction = &c->mean[round_ticks != 0], least = -(int64_t)(round_ticks << LATENCY_CORRECTION_SHIFT);
	int64_t error = (int64_t)((exact_ticks - latency_estimate(c, round_ticks)) << LATENCY_CORRECTION_SHIFT);

	if (*correction == 0) { /* as it is before the first sample */
		*correction = error;
	} else {
		*correction = (*correction > least ? *correction : least) + error / 16;
	}
}
