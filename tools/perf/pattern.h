/* SPDX-License-Identifier: BSD-3-Clause */
/* Data for verification. Every 16 bytes of a block hold its LBA and the number of the write; the last 16 bytes hold who
 * wrote it and when. A checksum in each of them depends on all of that, so that a block which is stale, misplaced,
 * mixed from two writes, or another host's is recognised. Pure functions. */
#ifndef PERF_PATTERN_H
#define PERF_PATTERN_H

#include <stdbool.h>
#include <stdint.h>

struct pattern_write {
	uint64_t writer;     /* the host and its run: see pattern_writer_id() */
	uint32_t generation; /* the LBA is written for the generation-th time; 0 is never written */
	uint32_t issued_ms;  /* when the write was submitted, since the run began */
};

/* A number for what one run of one host writes to one namespace. */
uint64_t pattern_writer_id(const char *hostnqn, uint64_t seed, uint32_t target, uint32_t nsid);
/* Fills `blocks` blocks at buf from lba on. block_size: a multiple of 16, at least 32 bytes. */
void pattern_fill(void *buf, uint32_t block_size, uint32_t blocks, uint64_t lba, const struct pattern_write *w);

struct pattern_found {
	struct pattern_write write; /* as the first and the last 16 bytes say */
	uint64_t lba;               /* for which it was written */
	uint32_t bad_offset; /* if the block is not one that pattern_fill() makes: the first wrong byte's place */
};
/* Reads one block. False: the block is not one write's; found->bad_offset says where it begins to differ from the write
 * whose numbers it carries. */
bool pattern_read(const void *block, uint32_t block_size, struct pattern_found *found);

#endif
