/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/perf/pattern.h"

struct cell {
	uint64_t lba;        /* in the last cell of a block: the writer */
	uint32_t generation; /* in the last cell: issued_ms */
	uint32_t mark;
};
_Static_assert(sizeof(struct cell) == 16, "divides every block size");

static uint64_t pattern_mix(uint64_t x)
{
	x ^= x >> 29;
	x *= UINT64_C(0xbf58476d1ce4e5b9);
	return x ^ x >> 32;
}

uint64_t pattern_writer_id(const char *hostnqn, uint64_t seed, uint32_t target, uint32_t nsid)
{
	uint64_t x = pattern_mix(seed + UINT64_C(0x9e3779b97f4a7c15));

	for (const char *c = hostnqn; *c != '\0'; c++) {
		x = pattern_mix(x ^ (uint8_t)*c);
	}
	return pattern_mix(x ^ ((uint64_t)target << 32 | nsid));
}

static uint64_t pattern_key(uint64_t lba, const struct pattern_write *w)
{
	return pattern_mix((lba + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ w->writer ^
			   ((uint64_t)w->issued_ms << 32 | w->generation));
}

static uint32_t pattern_mark_of(uint64_t key, uint32_t index)
{
	return (uint32_t)((key + index) * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

void pattern_fill(void *buf, uint32_t block_size, uint32_t blocks, uint64_t lba, const struct pattern_write *w)
{
	struct cell *cell = buf;
	uint32_t last = block_size / sizeof(*cell) - 1;

	for (uint32_t b = 0; b < blocks; b++, lba++) {
		uint64_t key = pattern_key(lba, w);

		for (uint32_t i = 0; i < last; i++) {
			*cell++ =
				(struct cell){.lba = lba, .generation = w->generation, .mark = pattern_mark_of(key, i)};
		}
		*cell++ =
			(struct cell){.lba = w->writer, .generation = w->issued_ms, .mark = pattern_mark_of(key, last)};
	}
}

bool pattern_read(const void *block, uint32_t block_size, struct pattern_found *found)
{
	const struct cell *cell = block;
	uint32_t last = block_size / sizeof(*cell) - 1;

	*found = (struct pattern_found){.lba = cell[0].lba,
					.write = {.generation = cell[0].generation,
						  .writer = cell[last].lba,
						  .issued_ms = cell[last].generation}};
	uint64_t key = pattern_key(found->lba, &found->write);

	for (uint32_t i = 0; i <= last; i++) {
		if ((i < last && (cell[i].lba != found->lba || cell[i].generation != found->write.generation)) ||
		    cell[i].mark != pattern_mark_of(key, i)) {
			found->bad_offset = (uint32_t)(i * sizeof(*cell));
			return false;
		}
	}
	return true;
}
