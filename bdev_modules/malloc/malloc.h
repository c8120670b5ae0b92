/* SPDX-License-Identifier: BSD-3-Clause */
/* A disk in DMA memory. Its blocks can be used as zero-copy buffers unless they have metadata. Control thread. */
#ifndef BDEV_MALLOC_H
#define BDEV_MALLOC_H

#include "bdev/bdev.h"

struct bdev_malloc_opts {
	const char *name;             /* copied; NULL: the first free one of Malloc0, Malloc1, ... */
	const uint8_t *uuid;          /* 16 bytes, copied; NULL: a random one */
	uint32_t block_size;          /* bytes of data; metadata comes on top */
	uint32_t physical_block_size; /* bytes; 0: block_size */
	uint32_t optimal_io_boundary; /* blocks, a power of two; 0: none */
	uint64_t num_blocks;
	int numa_id; /* node of its memory; -1: any */
	/* size, dif_type, dif_is_first and kept_apart count; bdev_check_md() chooses the checks. */
	struct bdev_md md;
};

/* Makes and registers one; the caller waits while its memory is allocated and zeroed. 0, and name (256 bytes, or NULL)
 * receives its name; or a negative errno, and error (BDEV_ERROR_MAX bytes) names the field, its value, and the values
 * that are allowed. */
int bdev_malloc_create(const struct bdev_malloc_opts *opts, char *name, char *error);

/* rc: 0, and text is the bdev's name; or a negative errno, and text says why. */
typedef void (*bdev_malloc_cb)(void *arg, int rc, const char *text);
/* The same without waiting: the memory of a large bdev is allocated and zeroed on a worker thread, one bdev at a time.
 * opts is copied. Calls cb exactly once, on the control thread; before it returns if the bdev is small or cannot be
 * made. */
void bdev_malloc_create_async(const struct bdev_malloc_opts *opts, bdev_malloc_cb cb, void *arg);

/* As bdev_unregister(); or cb(arg, -ENODEV) if no malloc bdev has that name. */
void bdev_malloc_delete(const char *name, bdev_delete_cb cb, void *arg);

/* The options that would make b again. Pointers in opts are into b. False: b is of another module. */
bool bdev_malloc_get(const struct bdev *b, struct bdev_malloc_opts *opts);

#endif
