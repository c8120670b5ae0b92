/* SPDX-License-Identifier: BSD-3-Clause */
/* --verify, --ledger, --check-ledger. */
#ifndef PERF_VERIFY_H
#define PERF_VERIFY_H

#include <stdbool.h>
#include <stdint.h>

struct perf;
struct perf_io;
struct perf_options;
struct perf_stream;

/* A ledger's file: this header, then a perf_ledger_block for each block from first_lba on. All little-endian. */
struct perf_ledger_header {
	uint64_t magic;
	uint32_t version, block_size, blocks_per_unit, reserved0;
	uint64_t writer; /* pattern_writer_id() */
	uint64_t first_lba, blocks;
	uint64_t reserved1[2];
};
/* A read of the block may return the writer's generations floor to issued. */
struct perf_ledger_block {
	uint32_t floor, issued;
};

/* The worker's thread. A write is about to be submitted: fills its buffer. */
void perf_verify_issue(struct perf_stream *s, struct perf_io *io);
/* The worker's thread. A write was answered, for good. */
void perf_verify_answer(struct perf_stream *s, const struct perf_io *io, bool success);
/* The worker's thread. A read has ended with success: judges its data. */
void perf_verify_read(struct perf_stream *s, const struct perf_io *io);

/* Control thread. Writes the file of --ledger, if there is that option. False: said on stderr. */
bool perf_ledger_save(struct perf *p);
/* Control thread. Reads the header of --check-ledger's file and sets the options that follow from it. False: said on
 * stderr. */
bool perf_ledger_open(struct perf_options *o);
/* Control thread. Gives a new stream what the file says; the stream will only read. False: said on stderr. */
bool perf_ledger_load(struct perf *p, struct perf_stream *s);

#endif
