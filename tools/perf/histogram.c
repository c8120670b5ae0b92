/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/perf/histogram.h"

void histogram_merge(struct histogram *a, const struct histogram *b)
{
	if (b->total == 0) {
		return;
	}
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		a->count[i] += b->count[i];
	}
	if (a->total == 0 || b->min < a->min) {
		a->min = b->min;
	}
	if (b->max > a->max) {
		a->max = b->max;
	}
	a->total += b->total;
	a->sum += b->sum;
}

uint64_t histogram_percentile(const struct histogram *h, double percent)
{
	uint64_t wanted = (uint64_t)((double)h->total * percent / 100.0 + 0.999999), seen = 0;

	if (h->total == 0) {
		return 0;
	}
	if (wanted == 0) {
		wanted = 1;
	}
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		seen += h->count[i];
		if (seen >= wanted) {
			uint64_t upper = histogram_upper(i);
			return upper < h->max ? upper : h->max;
		}
	}
	return h->max;
}

uint64_t histogram_mean(const struct histogram *h)
{
	return h->total ? (uint64_t)(h->sum / h->total) : 0;
}
