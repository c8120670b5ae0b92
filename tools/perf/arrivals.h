/* SPDX-License-Identifier: BSD-3-Clause */
/* When the I/Os of an open loop are due: a Poisson process, whose gaps are independent and exponentially distributed.
 * It goes on whatever becomes of the I/Os, as requests of many independent users do. */
#ifndef PERF_ARRIVALS_H
#define PERF_ARRIVALS_H

#include <stdbool.h>
#include <stdint.h>

struct arrivals {
	uint64_t start; /* ticks */
	double gap;     /* mean, ticks */
	double next;    /* ticks after start */
	uint64_t random;
};

/* per_tick: arrivals per tick in the mean, above 0. The same seed gives the same arrivals. */
void arrivals_begin(struct arrivals *a, double per_tick, uint64_t start_ticks, uint64_t seed);
/* Whether the next arrival is not later than now. */
static inline bool arrivals_are_due(const struct arrivals *a, uint64_t now)
{
	return now >= a->start && a->next <= (double)(now - a->start);
}
/* Takes the next arrival. Returns its time in ticks. */
uint64_t arrivals_take(struct arrivals *a);
/* How many are due now: exact for 0, otherwise the mean, because there may be too many to count. */
uint64_t arrivals_backlog(const struct arrivals *a, uint64_t now);

#endif
