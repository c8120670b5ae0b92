/* SPDX-License-Identifier: BSD-3-Clause */
/* Which blocks of a bdev in memory cannot be read (WRITE_UNCORRECTABLE), a bit each. Any thread, at any time; who reads
 * and writes a block at once sees it either way. There is no bitmap before the first block goes bad. */
#ifndef BDEV_BAD_BLOCKS_H
#define BDEV_BAD_BLOCKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct bad_blocks {
	_Atomic uint64_t count;
	_Atomic(_Atomic uint64_t *) bits;
};

/* Zeroed memory needs no other beginning. */
void bad_blocks_free(struct bad_blocks *b);
/* num_blocks: of the whole bdev. 0 or -ENOMEM. Allocates the first time. */
int bad_blocks_mark(struct bad_blocks *b, uint64_t num_blocks, uint64_t first, uint64_t num);
/* For the functions below, where there are none: the only thing that an ordinary I/O looks at. */
static inline bool bad_blocks_none(const struct bad_blocks *b)
{
	return __builtin_expect(atomic_load_explicit(&b->count, memory_order_relaxed) == 0, 1);
}
bool bad_blocks_any(const struct bad_blocks *b, uint64_t first, uint64_t num);
void bad_blocks_clear(struct bad_blocks *b, uint64_t first, uint64_t num);

#endif
