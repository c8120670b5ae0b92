/* SPDX-License-Identifier: BSD-3-Clause */
/* A bdev that passes I/O to its base bdev and holds each completion back for a while. It claims its base, and is
 * removed when its base is; when the base comes back, so does the bdev. Control thread. */
#ifndef BDEV_DELAY_H
#define BDEV_DELAY_H

#include "bdev/bdev.h"

/* How long completions are held back, in microseconds: the average for most I/Os, the 99th percentile for one in a
 * hundred, the 99.9th for one in a thousand. */
enum bdev_delay_latency {
	BDEV_DELAY_AVG_READ, /* READ, COMPARE, VERIFY */
	BDEV_DELAY_P99_READ,
	BDEV_DELAY_P999_READ,
	BDEV_DELAY_AVG_WRITE, /* I/O that changes data, and FLUSH */
	BDEV_DELAY_P99_WRITE,
	BDEV_DELAY_P999_WRITE,
	BDEV_DELAY_LATENCIES,
};

struct vbdev_waiting;

struct bdev_delay_opts {
	const char *name;           /* copied */
	const char *base_bdev_name; /* copied */
	const uint8_t *uuid;        /* 16 bytes, copied; NULL: a random one */
	/* At creation a 99th percentile is at least its average, and a 99.9th at least its 99th, or 0: as the 99th.
	 * Later bdev_delay_update_latency() may leave them otherwise; then the largest of them counts. */
	uint64_t latency_us[BDEV_DELAY_LATENCIES];
};

/* Makes and registers one, or, if there is no such base, notes that one is to be made when the base comes
 * (bdev/vbdev/waiting.h). 0; or a negative errno, and error (BDEV_ERROR_MAX bytes) names the field, its value, and the
 * values that are allowed. */
int bdev_delay_create(const struct bdev_delay_opts *opts, char *error);

/* As bdev_unregister(), also of one that waits for its base; or cb(arg, -ENODEV) if no delay bdev has that name. */
void bdev_delay_delete(const char *name, bdev_delete_cb cb, void *arg);

/* Changes a latency, for I/O that completes from now on. 0, -ENODEV or -EINVAL; on failure error says why. */
int bdev_delay_update_latency(const char *name, enum bdev_delay_latency which, uint64_t latency_us, char *error);

/* The options that would make b again. Pointers in opts are into b. False: b is of another module. */
bool bdev_delay_get(const struct bdev *b, struct bdev_delay_opts *opts);
/* The same of one that waits for its base; uuid is NULL if none was given. */
bool bdev_delay_get_waiting(const struct vbdev_waiting *w, struct bdev_delay_opts *opts);

#endif
