/* SPDX-License-Identifier: BSD-3-Clause */
/* Blocks in memory whose metadata is kept apart from their data: the data of all blocks lies in one area, and the
 * metadata of all blocks in another. Users of the bdev see extended blocks (data, then metadata) all the same: these
 * functions move those in and out. Any thread; the caller sees to it that the blocks exist. */
#ifndef BDEV_MALLOC_APART_H
#define BDEV_MALLOC_APART_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

/* A place in both areas, and the bytes that a block has in each. */
struct apart_blocks {
	uint8_t *data, *md;
	uint32_t data_size, md_size;
};

/* Copies num_blocks blocks from the areas to extended blocks in iovs. */
void apart_read(const struct apart_blocks *at, const struct iovec *iovs, uint64_t num_blocks);
/* Copies num_blocks extended blocks in iovs to the areas. */
void apart_write(const struct apart_blocks *at, const struct iovec *iovs, uint64_t num_blocks);
/* Whether num_blocks extended blocks in iovs are those of the areas, data and metadata. */
bool apart_equals(const struct apart_blocks *at, const struct iovec *iovs, uint64_t num_blocks);
/* Copies num_blocks blocks from one place to another, which have no block in common. */
void apart_copy(const struct apart_blocks *to, const struct apart_blocks *from, uint64_t num_blocks);

#endif
