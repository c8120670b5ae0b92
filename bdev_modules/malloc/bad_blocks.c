/* SPDX-License-Identifier: BSD-3-Clause */
#include "bdev_modules/malloc/bad_blocks.h"

#include <errno.h>
#include <stdlib.h>

#define BITS 64u

/* The bits of word `word` that lie in [first, end). */
static uint64_t bad_blocks_mask(uint64_t word, uint64_t first, uint64_t end)
{
	uint64_t begin = word * BITS, mask = UINT64_MAX;

	if (first > begin) {
		mask <<= first - begin;
	}
	if (end < begin + BITS) {
		mask &= UINT64_MAX >> (begin + BITS - end);
	}
	return mask;
}

void bad_blocks_free(struct bad_blocks *b)
{
	free(b->bits);
}

uint64_t bad_blocks_bytes(uint64_t num_blocks)
{
	return (num_blocks + BITS - 1) / BITS * sizeof(uint64_t);
}

void bad_blocks_adopt(struct bad_blocks *b, void *bits, uint64_t num_blocks)
{
	const uint64_t *words = bits;
	uint64_t count = 0;

	for (uint64_t i = 0; i < bad_blocks_bytes(num_blocks) / sizeof(*words); i++) {
		count += (uint64_t)__builtin_popcountll(words[i]);
	}
	atomic_store_explicit(&b->bits, (_Atomic uint64_t *)bits, memory_order_relaxed);
	atomic_store_explicit(&b->count, count, memory_order_relaxed);
}

/* Calls the allocator from an I/O: once in the life of a bdev, for a command that hosts use in tests. A new bitmap is
 * published by a release store of its pointer; the acquire loads of the pointer pair with it. */
static _Atomic uint64_t *bad_blocks_bitmap(struct bad_blocks *b, uint64_t num_blocks)
{
	_Atomic uint64_t *bits = atomic_load_explicit(&b->bits, memory_order_acquire);

	if (bits != NULL) {
		return bits;
	}
	_Atomic uint64_t *fresh = calloc(1, bad_blocks_bytes(num_blocks));
	/* another thread may have stored its bitmap first */
	if (fresh != NULL && atomic_compare_exchange_strong_explicit(&b->bits, &bits, fresh, memory_order_release,
								     memory_order_acquire)) {
		return fresh;
	}
	free(fresh);
	return bits;
}

int bad_blocks_mark(struct bad_blocks *b, uint64_t num_blocks, uint64_t first, uint64_t num)
{
	_Atomic uint64_t *bits = bad_blocks_bitmap(b, num_blocks);

	if (bits == NULL) {
		return -ENOMEM;
	}
	for (uint64_t w = first / BITS; w * BITS < first + num; w++) {
		uint64_t mask = bad_blocks_mask(w, first, first + num);
		uint64_t old = atomic_fetch_or_explicit(&bits[w], mask, memory_order_relaxed);
		atomic_fetch_add_explicit(&b->count, (uint64_t)__builtin_popcountll(mask & ~old), memory_order_relaxed);
	}
	return 0;
}

bool bad_blocks_any(const struct bad_blocks *b, uint64_t first, uint64_t num)
{
	const _Atomic uint64_t *bits = atomic_load_explicit(&b->bits, memory_order_acquire);

	for (uint64_t w = first / BITS; bits != NULL && w * BITS < first + num; w++) {
		if (atomic_load_explicit(&bits[w], memory_order_relaxed) & bad_blocks_mask(w, first, first + num)) {
			return true;
		}
	}
	return false;
}

void bad_blocks_clear(struct bad_blocks *b, uint64_t first, uint64_t num)
{
	_Atomic uint64_t *bits = atomic_load_explicit(&b->bits, memory_order_acquire);

	for (uint64_t w = first / BITS; bits != NULL && w * BITS < first + num; w++) {
		uint64_t mask = bad_blocks_mask(w, first, first + num);
		uint64_t old = atomic_fetch_and_explicit(&bits[w], ~mask, memory_order_relaxed);
		atomic_fetch_sub_explicit(&b->count, (uint64_t)__builtin_popcountll(mask & old), memory_order_relaxed);
	}
}
