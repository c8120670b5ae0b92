/* SPDX-License-Identifier: BSD-3-Clause */
/* Writing a trace file event by event, where time does not matter: captures (varve-trace --record), and files made up
 * for benchmarks and tests. The recorder of a running process is trace.h. Needs no DPDK.
 *
 * The file has the layout of trace_file.h, with sections 0 to 6 and 8. It needs no stamps, because next_entry is
 * advanced only after the entries before it have been written, so readers never meet a half-written one. The file is
 * sparse: rings take space as they fill, and overwrite their oldest entries when they are full. When it is closed, a
 * copy with shorter rings takes its place if that has less than half the size, so that a file of a few events is small
 * in every sense. Without room for the copy the file stays as it is.
 *
 * A writer is used by one thread at a time. */
#ifndef TRACE_FILE_WRITER_H
#define TRACE_FILE_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "trace/reader.h"
#include "trace/trace_file.h"

struct trace_file_tables {
	uint64_t tsc_rate; /* ticks per second, not 0 */
	struct trace_file_tpoint tpoints[TRACE_NUM_TPOINTS];
	uint64_t masks[TRACE_NUM_GROUPS];
	char owner_prefix[TRACE_NUM_TYPES], object_prefix[TRACE_NUM_TYPES];
	struct trace_file_info info; /* version 0: none */
	unsigned num_rings;          /* lcores 0 .. num_rings - 1 */
	uint64_t num_entries;        /* of each ring: a power of two */
};

/* Fills *t from an open file, for a copy of it: everything but the rings' contents. */
void trace_file_tables_copy(struct trace_reader *r, struct trace_file_tables *t);

struct trace_file_writer;

/* Makes a file at path, where none may exist, and *out, for trace_file_close(). 0, or a negative errno: of open() or
 * write(), or -EINVAL: num_entries is no power of two, or tsc_rate is 0. */
int trace_file_create(const char *path, const struct trace_file_tables *t, struct trace_file_writer **out);
/* Sets an owner since tsc. id is below TRACE_NUM_OWNERS; a description that is too long is cut. Errors: those of
 * write(). */
int trace_file_owner(struct trace_file_writer *w, uint16_t id, uint64_t tsc, uint8_t type, const char *description);
/* Sets the name of the user thread that a ring belongs to; one that is too long is cut. */
void trace_file_ring_name(struct trace_file_writer *w, unsigned ring, const char *name);
/* Appends an event with its packed arguments; `args` has as many bytes as the tracepoint's arguments. Errors: those of
 * write(). */
int trace_file_put(struct trace_file_writer *w, unsigned ring, const struct trace_file_entry *head, const void *args,
		   size_t arg_bytes);
/* Appends a TRACE_LOST, which stands for a number of entries that are missing. Errors: those of write(). */
int trace_file_lost(struct trace_file_writer *w, unsigned ring, uint64_t tsc, uint64_t entries);
/* Writes buffered entries and the rings' heads to the file. Errors: those of write(). */
int trace_file_flush(struct trace_file_writer *w);
/* Bytes of entries appended so far. */
uint64_t trace_file_bytes(const struct trace_file_writer *w);
/* Flushes, puts the small copy in the file's place, closes and frees w. Whoever is killed meanwhile leaves the file as
 * it was, and maybe a part of the copy, whose name is the path, a dot and six letters. Returns the first error that any
 * call on w has met, or 0; that no copy could be made is none. */
int trace_file_close(struct trace_file_writer *w);

#endif
