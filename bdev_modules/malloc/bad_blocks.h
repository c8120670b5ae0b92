/* SPDX-License-Identifier: BSD-3-Clause */
/* The blocks of a malloc bdev that WRITE_UNCORRECTABLE has made unreadable, one bit each. All functions but
 * bad_blocks_free() may run on any thread at any time. If a block is read while another thread writes or marks it, the
 * reader sees the state before or after. The bitmap is allocated when the first block is marked. */
#ifndef BDEV_BAD_BLOCKS_H
#define BDEV_BAD_BLOCKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "util/compiler.h"

struct bad_blocks {
	_Atomic uint64_t count; /* of bits set */
	/* The bitmap; NULL: none yet. */
	_Atomic(_Atomic uint64_t *) bits;
};

/* Frees the bitmap. (A struct bad_blocks that is all zero needs no other initialization.) */
void bad_blocks_free(struct bad_blocks *b);
/* How long the bitmap of a bdev of that size is. */
uint64_t bad_blocks_bytes(uint64_t num_blocks);
/* Uses a bitmap that is there already, of bad_blocks_bytes(), and counts what is marked in it. Before there is any I/O.
 */
void bad_blocks_adopt(struct bad_blocks *b, void *bits, uint64_t num_blocks);
/* Marks blocks [first, first + num) as unreadable. num_blocks: the size of the bdev. 0, or -ENOMEM if the bitmap, which
 * the first call allocates, cannot be allocated. */
int bad_blocks_mark(struct bad_blocks *b, uint64_t num_blocks, uint64_t first, uint64_t num);
/* True if no block is marked: the one check that most I/Os make, before the functions below. */
static inline bool bad_blocks_none(const struct bad_blocks *b)
{
	return likely(atomic_load_explicit(&b->count, memory_order_relaxed) == 0);
}
/* Whether any of the blocks [first, first + num) is marked. */
bool bad_blocks_any(const struct bad_blocks *b, uint64_t first, uint64_t num);
/* Makes blocks [first, first + num) readable again. */
void bad_blocks_clear(struct bad_blocks *b, uint64_t first, uint64_t num);

#endif
