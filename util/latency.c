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

/* ---- Histograms ---- */

#define DECADE(ns_) (ns_), 2 * (ns_), 3 * (ns_), 5 * (ns_), 7 * (ns_)
const uint64_t latency_bounds_ns[LATENCY_BUCKETS - 1] = {
	2000,      5000,      DECADE(10000), DECADE(100000), DECADE(1000000), DECADE(10000000), 100000000,
	200000000, 500000000, 1000000000,    2000000000,     5000000000,      10000000000,
};

static unsigned latency_bucket(uint64_t ns)
{
	unsigned low = 0, high = LATENCY_BUCKETS - 1;

	while (low < high) {
		unsigned middle = (low + high) / 2;
		if (ns <= latency_bounds_ns[middle]) {
			high = middle;
		} else {
			low = middle + 1;
		}
	}
	return low;
}

/* The stores pair with the loads of latency_histogram_add(), which want whole numbers only. */
static uint64_t latency_histogram_count(struct latency_histogram *h, uint64_t total)
{
	uint64_t more = total > h->counted ? total - h->counted : 0;

	__atomic_store_n(&h->buckets[h->last], h->buckets[h->last] + more, __ATOMIC_RELAXED);
	h->counted += more;
	return more;
}

uint64_t latency_histogram_sample(struct latency_histogram *h, uint64_t total, uint64_t ns)
{
	h->last = (uint8_t)latency_bucket(ns);
	return latency_histogram_count(h, total);
}

void latency_histogram_settle(struct latency_histogram *h, uint64_t total)
{
	latency_histogram_count(h, total);
}

void latency_histogram_add(struct latency_histogram *sum, const struct latency_histogram *h)
{
	for (unsigned i = 0; i < LATENCY_BUCKETS; i++) {
		uint64_t n = __atomic_load_n(&h->buckets[i], __ATOMIC_RELAXED);
		sum->buckets[i] += n;
		sum->counted += n;
	}
}

uint64_t latency_histogram_quantile(const struct latency_histogram *h, double share)
{
	double rank = share * (double)h->counted, before = 0;

	for (unsigned i = 0; i < LATENCY_BUCKETS - 1; i++) {
		double n = (double)h->buckets[i];
		if (n > 0 && before + n >= rank) {
			uint64_t from = i != 0 ? latency_bounds_ns[i - 1] : 0;
			double within = rank > before ? (rank - before) / n : 0;
			return from + (uint64_t)((double)(latency_bounds_ns[i] - from) * within);
		}
		before += n;
	}
	return h->counted != 0 ? latency_bounds_ns[LATENCY_BUCKETS - 2] : 0;
}
