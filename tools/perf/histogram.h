/* SPDX-License-Identifier: BSD-3-Clause */
/* Latencies in buckets whose width is at most 1/128 of their value: percentiles are exact to 1 %. */
#ifndef PERF_HISTOGRAM_H
#define PERF_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_BITS    7
#define HISTOGRAM_BUCKETS ((64 - HISTOGRAM_BITS + 1) << HISTOGRAM_BITS)

struct histogram {
	uint64_t count[HISTOGRAM_BUCKETS];
	uint64_t total, min, max; /* min is meaningless while total is 0 */
	unsigned __int128 sum;
};

static inline unsigned histogram_index(uint64_t v)
{
	if (v < (UINT64_C(1) << HISTOGRAM_BITS)) {
		return (unsigned)v;
	}
	unsigned shift = 63u - (unsigned)__builtin_clzll(v) - HISTOGRAM_BITS;
	return ((shift + 1) << HISTOGRAM_BITS) + (unsigned)((v >> shift) & ((1u << HISTOGRAM_BITS) - 1));
}

/* The largest value that is counted in a bucket. */
static inline uint64_t histogram_upper(unsigned index)
{
	if (index < (1u << HISTOGRAM_BITS)) {
		return index;
	}
	unsigned shift = (index >> HISTOGRAM_BITS) - 1;
	uint64_t mantissa = (index & ((1u << HISTOGRAM_BITS) - 1)) | (UINT64_C(1) << HISTOGRAM_BITS);
	return (mantissa << shift) + ((UINT64_C(1) << shift) - 1);
}

static inline void histogram_add(struct histogram *h, uint64_t v)
{
	h->count[histogram_index(v)]++;
	if (h->total++ == 0 || v < h->min) {
		h->min = v;
	}
	if (v > h->max) {
		h->max = v;
	}
	h->sum += v;
}

/* Adds the counts of b to a. */
void histogram_merge(struct histogram *a, const struct histogram *b);
/* The value that `percent` per cent (0 < percent <= 100) of the values do not exceed; 0 if there are none. */
uint64_t histogram_percentile(const struct histogram *h, double percent);
uint64_t histogram_mean(const struct histogram *h);

#endif
