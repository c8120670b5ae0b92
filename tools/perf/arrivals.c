/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/perf/arrivals.h"

#include <math.h>

/* SplitMix64, which takes any seed. */
static uint64_t arrivals_random(struct arrivals *a)
{
	uint64_t z = a->random += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* By inversion. The random number is above 0 and at most 1, so the logarithm is finite and not above 0. */
static double arrivals_gap(struct arrivals *a)
{
	double u = (double)((arrivals_random(a) >> 11) + 1) * 0x1p-53;

	return -log(u) * a->gap;
}

void arrivals_begin(struct arrivals *a, double per_tick, uint64_t start_ticks, uint64_t seed)
{
	*a = (struct arrivals){.start = start_ticks, .gap = 1 / per_tick, .random = seed};
	a->next = arrivals_gap(a);
}

uint64_t arrivals_take(struct arrivals *a)
{
	uint64_t at = a->start + (uint64_t)a->next;

	a->next += arrivals_gap(a);
	return at;
}

uint64_t arrivals_backlog(const struct arrivals *a, uint64_t now)
{
	return arrivals_are_due(a, now) ? 1 + (uint64_t)(((double)(now - a->start) - a->next) / a->gap) : 0;
}
