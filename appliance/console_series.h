/* SPDX-License-Identifier: BSD-3-Clause */
/* A series of figures over the last hour: of the node, a subsystem, a host, a path, a bdev. One point a second for the
 * last four minutes, one every ten seconds for the hour; of the node one a second for the hour. Bounded: a series has a
 * fixed size. Pure. */
#ifndef APPLIANCE_CONSOLE_SERIES_H
#define APPLIANCE_CONSOLE_SERIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/latency.h"

#define SERIES_FINE        240 /* seconds */
#define SERIES_COARSE      360 /* points of ten seconds */
#define SERIES_COARSE_STEP 10
#define SERIES_NODE_FINE   3600

/* What a series counts; all but depth since the beginning. */
struct series_counters {
	uint64_t ops, bytes;
	uint64_t ns;    /* the sum of the times of ops */
	uint64_t depth; /* in flight now; SERIES_DEPTH_UNKNOWN: the mean of the period is taken, from ns */
	struct latency_histogram histogram;
};
#define SERIES_DEPTH_UNKNOWN UINT64_MAX

enum series_figure {
	SERIES_IOPS,
	SERIES_BYTES_PER_S,
	SERIES_P50_NS,
	SERIES_P99_NS,
	SERIES_DEPTH_MILLI, /* thousandths */
	SERIES_FIGURES,
};

/* A number with eleven significant bits in two bytes: 0 to 2^41, with an error of less than 1/2000. */
#define SERIES_NONE UINT16_MAX /* packed: there is no figure */
/* The value packed; rounded down. */
uint16_t series_pack(uint64_t value);
/* The value of packed, which is not SERIES_NONE. */
uint64_t series_unpack(uint16_t packed);

struct series_point {
	uint16_t figure[SERIES_FIGURES]; /* packed; SERIES_NONE */
};

struct series_state {
	uint64_t ops, bytes, ns;
	uint32_t buckets[LATENCY_BUCKETS];
};

struct series {
	bool known; /* the states are of counters that were seen */
	struct series_state fine_state, coarse_state;
	uint16_t coarse_seconds;   /* since the last coarse point */
	uint64_t depth_sum;        /* of that time */
	uint64_t coarse_us;        /* since coarse_state, as far as it is known */
	uint32_t n_fine, n_coarse; /* points that were added, ever */
	uint32_t fine_size;
	struct series_point coarse[SERIES_COARSE];
	struct series_point fine[]; /* fine_size */
};

/* An empty series, to be freed with free(). NULL: no memory. */
struct series *series_create(uint32_t fine_size);
/* Adds what the counters say of the time since the last call. us: how long that is. Counters that are less than they
 * were began anew. */
void series_add(struct series *s, const struct series_counters *c, uint64_t us);
/* Adds a second of which nothing is known. */
void series_skip(struct series *s);
/* The number of points that there are. coarse: those of ten seconds. */
uint32_t series_count(const struct series *s, bool coarse);
/* The i-th of them, the oldest first. */
const struct series_point *series_get(const struct series *s, bool coarse, uint32_t i);

#endif
