/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of the reader library. */
#ifndef TRACE_READER_INTERNAL_H
#define TRACE_READER_INTERNAL_H

#include "trace/reader.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "trace files are little-endian");

#define TRACE_MAX_PROBLEMS    64
#define TRACE_MAX_DESCRIPTION 1023

/* The source of bytes: a file descriptor, or memory if fd is -1. */
struct trace_source {
	int fd;
	const uint8_t *bytes;
	uint64_t size; /* when it was opened */
};

/* Reads exactly `length` bytes; -ENODATA if the source ends before them. */
int trace_source_read(const struct trace_source *s, uint64_t offset, void *buf, size_t length);

/* A ring whose offset and lengths have been checked. */
struct trace_history {
	uint32_t lcore;
	char name[TRACE_THREAD_NAME_SIZE + 1];
	uint64_t attach_tsc; /* since when the thread of this name uses the ring; 0: not known */
	uint64_t offset;
	uint64_t num_entries; /* a power of two */
	uint64_t num_tpoint_ids;
	uint64_t entries_at;
	uint64_t readable;  /* slots that lie within the file */
	uint64_t stamps_at; /* 0: none */
};

struct trace_reader {
	struct trace_source source;
	uint64_t section[TRACE_NUM_SECTIONS]; /* 0: absent or unusable */
	uint64_t tsc_rate;

	struct trace_tpoint *tpoints; /* name[0] == 0: not defined */
	unsigned num_tpoints;
	unsigned max_slots; /* of the defined tracepoint with the most arguments */
	uint64_t masks[TRACE_NUM_GROUPS];
	char owner_prefix[TRACE_NUM_TYPES];
	char object_prefix[TRACE_NUM_TYPES];

	uint8_t *owners; /* the owner records, as they are in the file, copied by the last snapshot */
	size_t owner_stride;
	unsigned num_owners;
	char description[TRACE_MAX_DESCRIPTION + 1]; /* the last one asked for */

	struct trace_history *histories;
	size_t num_histories;
	bool has_info;
	struct trace_file_info info; /* its texts are terminated */

	bool has_cause;
	struct trace_file_cause cause; /* its texts are terminated */

	char *problems[TRACE_MAX_PROBLEMS];
	size_t num_problems, num_problems_kept;
};

/* reader_tables.c: checks everything but the rings' contents. */
int trace_tables_load(struct trace_reader *r, struct trace_error *err);
/* reader_cause.c */
void trace_cause_load(struct trace_reader *r);
/* Reads a ring's thread name and since when it applies. */
void trace_history_name(struct trace_reader *r, struct trace_history *h);
/* Copies the owner table anew. Keeps the old one on failure. */
int trace_owners_load(struct trace_reader *r);
/* Notes something wrong with the file. */
void trace_problem(struct trace_reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void trace_fail(struct trace_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A batch that grows. Arrays are freed by trace_batch_clear(). */
struct trace_growing_batch {
	struct trace_batch b;
	size_t max_events, max_arg_bytes;
};
int trace_batch_reserve(struct trace_growing_batch *g, size_t events, size_t arg_bytes);
void trace_batch_clear(struct trace_growing_batch *g);

/* A stretch of a ring, copied, that is expected to hold the entries number `from` and up. entries[0] is the
 * slot of number `first`: `from`, or 0 if the file ends within the ring and all that is there was copied. */
struct trace_stretch {
	uint64_t from;
	uint64_t first;
	size_t count;
	struct trace_file_entry *entries;
	uint64_t *stamps;                 /* NULL: the file has none */
	uint64_t next_before, next_after; /* next_entry before and after the copy */
	size_t room;
	uint64_t *accepted; /* entry numbers, ascending */
	size_t num_accepted;
};
void trace_stretch_free(struct trace_stretch *s);

/* malloc() for arrays that may be large: those are in huge pages where the kernel gives them, which spares most of the
 * time that page faults take. */
void *trace_large_alloc(size_t count, size_t size);

/* reader_ring.c */
int trace_history_next(const struct trace_reader *r, const struct trace_history *h, uint64_t *next);
/* Copies the slots of entries number `from` and up, at most a ring's length of them. */
int trace_stretch_copy(struct trace_reader *r, const struct trace_history *h, uint64_t from, bool live,
		       struct trace_stretch *s, struct trace_lcore *lc);
/* Fills s->accepted with the entries that are whole and in order; counts the others in lc. Pure. */
void trace_stretch_vet(const struct trace_reader *r, const struct trace_history *h, bool live, struct trace_stretch *s,
		       struct trace_lcore *lc);
/* Appends the events among the accepted entries to the batch. `gaps` is the lcore's running number of
 * holes. */
int trace_stretch_decode(const struct trace_reader *r, const struct trace_history *h, const struct trace_stretch *s,
			 uint64_t clear_tsc, uint32_t *gaps, struct trace_growing_batch *out, struct trace_lcore *lc);

/* reader_merge.c: sorts runs of events, each in order already (run k is [ends[k-1], ends[k])), into one. */
int trace_merge_runs(struct trace_growing_batch *g, const size_t *ends, size_t num_runs);

/* reader_objects.c: numbers objects and finds relations, event after event. */
struct trace_object;
struct trace_objects {
	struct trace_object *table; /* open addressing, by type and value */
	size_t room, used;          /* room is 0 or a power of two */
	uint64_t seed;              /* so that no file can be made whose values collide */
	uint64_t created[TRACE_NUM_TYPES];
	uint32_t num_lives;
};
int trace_objects_track(struct trace_objects *o, const struct trace_reader *r, const struct trace_batch *b,
			struct trace_event *e);
/* Makes `life` the latest life of a value; *before gets the one until now, if any. Errors: -ENOMEM. */
int trace_objects_replace(struct trace_objects *o, uint8_t type, uint64_t value, uint32_t life, uint32_t *before);
void trace_objects_clear(struct trace_objects *o);

/* reader_snapshot.c, for following too */
uint64_t trace_clear_tsc(const struct trace_reader *r);
/* Fills in all but the counters. */
void trace_lcore_begin(struct trace_reader *r, struct trace_history *h, struct trace_lcore *lc);
/* The rings asked for are histories [*first, *first + *n). */
int trace_select_histories(const struct trace_reader *r, int lcore, size_t *first, size_t *n, struct trace_error *err);

#endif
