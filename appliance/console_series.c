/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/console_series.h"

#include <stdlib.h>
#include <string.h>

#define US_PER_S      UINT64_C(1000000)
#define NS_PER_S      UINT64_C(1000000000)
#define MANTISSA_BITS 11
#define MANTISSA      (1u << MANTISSA_BITS)

/* Values below 2^11 are themselves; above, the bits after the leading one, and how far they were shifted plus one. */
uint16_t series_pack(uint64_t value)
{
	if (value < MANTISSA) {
		return (uint16_t)value;
	}
	unsigned shift = 63u - (unsigned)__builtin_clzll(value) - MANTISSA_BITS;
	uint64_t packed = ((uint64_t)(shift + 1) << MANTISSA_BITS) + ((value >> shift) - MANTISSA);
	return packed < SERIES_NONE ? (uint16_t)packed : SERIES_NONE - 1;
}

uint64_t series_unpack(uint16_t packed)
{
	unsigned shift = packed >> MANTISSA_BITS;
	uint64_t mantissa = packed & (MANTISSA - 1);

	return shift == 0 ? mantissa : (mantissa + MANTISSA) << (shift - 1);
}

struct series *series_create(uint32_t fine_size)
{
	struct series *s = calloc(1, sizeof(*s) + fine_size * sizeof(s->fine[0]));

	if (s != NULL) {
		s->fine_size = fine_size;
	}
	return s;
}

static void series_note(struct series_state *to, const struct series_counters *c)
{
	to->ops = c->ops;
	to->bytes = c->bytes;
	to->ns = c->ns;
	for (unsigned i = 0; i < LATENCY_BUCKETS; i++) {
		to->buckets[i] = (uint32_t)c->histogram.buckets[i];
	}
}

/* The times of the period. Differences of 32-bit counters are right also when they wrap. */
static void series_times(const struct series_state *before, const struct series_counters *c, struct series_point *p)
{
	struct latency_histogram h = {0};

	for (unsigned i = 0; i < LATENCY_BUCKETS; i++) {
		h.buckets[i] = (uint32_t)c->histogram.buckets[i] - before->buckets[i];
		h.counted += h.buckets[i];
	}
	if (h.counted != 0) {
		p->figure[SERIES_P50_NS] = series_pack(latency_histogram_quantile(&h, 0.5));
		p->figure[SERIES_P99_NS] = series_pack(latency_histogram_quantile(&h, 0.99));
	}
}

static struct series_point series_none(void)
{
	struct series_point p;

	for (unsigned i = 0; i < SERIES_FIGURES; i++) {
		p.figure[i] = SERIES_NONE;
	}
	return p;
}

static struct series_point series_point_of(const struct series_state *before, const struct series_counters *c,
					   uint64_t us, uint64_t depth_milli)
{
	struct series_point p = series_none();

	p.figure[SERIES_IOPS] = series_pack((c->ops - before->ops) * US_PER_S / us);
	p.figure[SERIES_BYTES_PER_S] =
		series_pack((uint64_t)((unsigned __int128)(c->bytes - before->bytes) * US_PER_S / us));
	p.figure[SERIES_DEPTH_MILLI] = series_pack(depth_milli);
	series_times(before, c, &p);
	return p;
}

static void series_put(struct series *s, bool coarse, struct series_point p)
{
	if (coarse) {
		s->coarse[s->n_coarse++ % SERIES_COARSE] = p;
	} else {
		s->fine[s->n_fine++ % s->fine_size] = p;
	}
}

/* Thousandths of an I/O in flight, in the mean: by Little's law the time that I/Os took in a time is that. */
static uint64_t series_depth(const struct series_state *before, const struct series_counters *c, uint64_t us)
{
	if (c->depth != SERIES_DEPTH_UNKNOWN) {
		return c->depth * 1000;
	}
	return c->ns > before->ns ? (c->ns - before->ns) / us : 0; /* ns / (us * 1000) * 1000 */
}

static bool series_began_anew(const struct series_state *before, const struct series_counters *c)
{
	if (c->ops < before->ops || c->bytes < before->bytes || c->ns < before->ns) {
		return true;
	}
	for (unsigned i = 0; i < LATENCY_BUCKETS; i++) {
		/* Of a counter of 32 bits that wraps, the difference is small: less than 2^31 in a second. */
		if ((int32_t)((uint32_t)c->histogram.buckets[i] - before->buckets[i]) < 0) {
			return true;
		}
	}
	return false;
}

static void series_coarse_step(struct series *s, const struct series_counters *c)
{
	if (++s->coarse_seconds < SERIES_COARSE_STEP) {
		return;
	}
	if (c != NULL && s->coarse_us != 0) {
		series_put(s, true,
			   series_point_of(&s->coarse_state, c, s->coarse_us, s->depth_sum / SERIES_COARSE_STEP));
	} else {
		series_put(s, true, series_none());
	}
	if (c != NULL) {
		series_note(&s->coarse_state, c);
	}
	s->coarse_seconds = 0;
	s->depth_sum = 0;
	s->coarse_us = 0;
}

void series_add(struct series *s, const struct series_counters *c, uint64_t us)
{
	us = us != 0 ? us : 1;
	if (s->known && !series_began_anew(&s->fine_state, c)) {
		uint64_t depth = series_depth(&s->fine_state, c, us);
		s->depth_sum += depth;
		s->coarse_us += us;
		series_put(s, false, series_point_of(&s->fine_state, c, us, depth));
	} else {
		series_put(s, false, series_none());
		series_note(&s->coarse_state, c);
		s->coarse_us = 0;
	}
	series_coarse_step(s, c);
	series_note(&s->fine_state, c);
	s->known = true;
}

void series_skip(struct series *s)
{
	series_put(s, false, series_none());
	series_coarse_step(s, NULL);
	s->known = false;
}

static uint32_t series_size(const struct series *s, bool coarse)
{
	return coarse ? SERIES_COARSE : s->fine_size;
}

uint32_t series_count(const struct series *s, bool coarse)
{
	uint32_t n = coarse ? s->n_coarse : s->n_fine, size = series_size(s, coarse);

	return n < size ? n : size;
}

const struct series_point *series_get(const struct series *s, bool coarse, uint32_t i)
{
	uint32_t n = coarse ? s->n_coarse : s->n_fine, size = series_size(s, coarse);
	uint32_t at = (n - series_count(s, coarse) + i) % size;

	return coarse ? &s->coarse[at] : &s->fine[at];
}
