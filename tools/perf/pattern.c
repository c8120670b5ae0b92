/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/perf/pattern.h"

#include <string.h>

/* 16 bytes: the LBA, then the generation combined with offset and seed, so that no two places have the same bytes. */
struct cell {
	uint64_t lba;
	uint32_t generation;
	uint32_t mark;
};
_Static_assert(sizeof(struct cell) == 16, "divides every block size");

static uint32_t pattern_mark_of(uint64_t lba, uint32_t generation, uint32_t index, uint64_t seed)
{
	uint64_t x = lba * UINT64_C(0x9e3779b97f4a7c15) ^ ((uint64_t)generation << 32 | index) ^ seed;

	x ^= x >> 29;
	x *= UINT64_C(0xbf58476d1ce4e5b9);
	return (uint32_t)(x >> 32);
}

void pattern_fill(void *buf, uint32_t block_size, uint32_t blocks, uint64_t lba, uint32_t generation, uint64_t seed)
{
	struct cell *cell = buf;

	for (uint32_t b = 0; b < blocks; b++, lba++) {
		for (uint32_t i = 0; i < block_size / sizeof(*cell); i++) {
			*cell++ = (struct cell){.lba = lba,
						.generation = generation,
						.mark = pattern_mark_of(lba, generation, i, seed)};
		}
	}
}

bool pattern_check(const void *block, uint32_t block_size, uint64_t lba, uint32_t generation, uint64_t seed,
		   struct pattern_fault *fault)
{
	const struct cell *cell = block;

	for (uint32_t i = 0; i < block_size / sizeof(*cell); i++) {
		if (cell[i].lba != lba || cell[i].generation != generation ||
		    cell[i].mark != pattern_mark_of(lba, generation, i, seed)) {
			*fault = (struct pattern_fault){.lba = lba,
							.offset = (uint32_t)(i * sizeof(*cell)),
							.found_lba = cell[i].lba,
							.found_generation = cell[i].generation};
			return false;
		}
	}
	return true;
}
