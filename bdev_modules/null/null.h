/* SPDX-License-Identifier: BSD-3-Clause */
/* A bdev that completes every I/O at once and stores nothing. A READ leaves the buffer as it is
 * (bdev_leaves_buffers()); if blocks have metadata, it zeroes the buffer, and makes protection information that fits.
 * Its zero-copy buffers for reads are zeroes. For measuring the layers above it. Control thread. */
#ifndef BDEV_NULL_H
#define BDEV_NULL_H

#include "bdev/bdev.h"

struct bdev_null_opts {
	const char *name;             /* copied */
	const uint8_t *uuid;          /* 16 bytes, copied; NULL: a random one */
	uint32_t block_size;          /* bytes of data; metadata comes on top */
	uint32_t physical_block_size; /* bytes; 0: block_size */
	uint64_t num_blocks;
	struct bdev_hints hints;
	struct bdev_md md; /* size, dif_type and dif_is_first count; bdev_check_md() chooses the checks */
};

/* Makes and registers one. 0; or a negative errno, and error (BDEV_ERROR_MAX bytes) names the field, its value, and the
 * values that are allowed. */
int bdev_null_create(const struct bdev_null_opts *opts, char *error);

/* As bdev_unregister(); or cb(arg, -ENODEV) if no null bdev has that name. */
void bdev_null_delete(const char *name, bdev_delete_cb cb, void *arg);

/* Changes its size to new_size_mb MiB. 0, -ENODEV or -EINVAL; on failure error says why. */
int bdev_null_resize(const char *name, uint64_t new_size_mb, char *error);

/* The options that would make b again. Pointers in opts are into b. False: b is of another module. */
bool bdev_null_get(const struct bdev *b, struct bdev_null_opts *opts);

#endif
