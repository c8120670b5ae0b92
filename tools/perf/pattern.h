/* SPDX-License-Identifier: BSD-3-Clause */
/* Data for verification: every 16 bytes of a block hold its LBA and the number of the write, so that a stale,
 * misplaced, torn or mixed block is recognised. */
#ifndef PERF_PATTERN_H
#define PERF_PATTERN_H

#include <stdbool.h>
#include <stdint.h>

/* Fills `blocks` blocks at buf for lba, written for the generation-th time (0 is never written). seed: of the run. */
void pattern_fill(void *buf, uint32_t block_size, uint32_t blocks, uint64_t lba, uint32_t generation, uint64_t seed);

struct pattern_fault {
	uint64_t lba;    /* of the block that is wrong */
	uint32_t offset; /* in that block, bytes */
	uint64_t found_lba;
	uint32_t found_generation;
};
/* Checks one block. False: it does not hold lba and generation; *fault says what it holds instead. */
bool pattern_check(const void *block, uint32_t block_size, uint64_t lba, uint32_t generation, uint64_t seed,
		   struct pattern_fault *fault);

#endif
