/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading trace files: of a running process, of one that died, or copied. A library of its own, without DPDK.
 *
 *     trace_reader_open() -> struct trace_reader     the file's tables, every field checked
 *     trace_snapshot_take() -> struct trace_snapshot what the rings held at one moment, merged by time
 *     trace_follow_start(), trace_follow_next()      the same events as they are recorded
 *     trace_summary_make()                           how long objects stayed in each state
 *
 * A file is never trusted. What cannot be used is left out and reported as a problem (a line of text); only a
 * file without a readable header, main section, tracepoints or rings is refused. Memory is bounded by the size
 * of the file. Files are read with pread(), never mapped, so that one which shrinks meanwhile ends in an error
 * and not in SIGBUS, and so that reading costs the writer nothing: it never waits, and its cache lines are
 * fetched once per copy.
 *
 * Nothing here may be used by two threads at once with the same object. Times are ticks of the writer's TSC
 * (`tsc`) or nanoseconds (`_ns`), both integers. Functions return 0 or a negative errno; where a `struct
 * trace_error` is passed, it then says in words what was wrong, with the value found and what would be right.
 */
#ifndef TRACE_READER_H
#define TRACE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "trace/trace_file.h"

/* Ring entries that one snapshot takes in at most (512 MB of rings); more are refused, lcores can be
 * chosen. */
#define TRACE_READER_MAX_ENTRIES (1u << 24)
#define TRACE_NO_OBJECT          UINT64_MAX
#define TRACE_NO_TIME            UINT64_MAX
#define TRACE_NO_LIFE            UINT32_MAX

struct trace_error {
	char text[320];
};

/* ---- The file and its tables ---- */

enum trace_writer {
	TRACE_WRITER_UNKNOWN, /* no lock on the file, and it does not say who wrote it: a copy, or a stock
				 target's */
	TRACE_WRITER_LIVE,    /* a process holds the file's lock */
	TRACE_WRITER_GONE,    /* the process that wrote it is gone */
};

struct trace_tpoint_arg {
	char name[15];
	uint8_t type;    /* enum trace_arg_type */
	uint8_t size;    /* bytes in the ring */
	uint16_t offset; /* of the first byte, from the start of the event's argument bytes */
};

/* "The object of type `object_type` whose value is argument `arg` is this event's parent." */
struct trace_relation {
	uint8_t object_type;
	uint8_t arg;
};

struct trace_tpoint {
	char name[25];
	uint16_t id;         /* group * 64 + number */
	uint8_t owner_type;  /* 0: none */
	uint8_t object_type; /* 0: none */
	bool new_object;     /* the event begins an object's life */
	bool lost_mark;      /* in a capture: stands for entries that were lost, their number is the argument */
	bool end_object;     /* the event ends it, going by its name: ..._DONE, _COMPLETE, _COMPLETED, _END */
	uint8_t num_args;
	uint8_t num_related;
	uint16_t arg_bytes; /* of all arguments */
	uint16_t num_slots; /* ring slots that one event takes */
	struct trace_tpoint_arg args[TRACE_MAX_ARGS];
	struct trace_relation related[TRACE_MAX_RELATIONS];
};

struct trace_reader;

/* Opens and checks a file. The reader is the caller's, until trace_reader_close().
 * Errors: those of open() and read(); -EINVAL when the file is no trace file or too damaged to yield events.
 */
int trace_reader_open(const char *path, struct trace_reader **out, struct trace_error *err);
/* The same for bytes in memory (a section of a core, a test), which must stay until the reader is closed. */
int trace_reader_open_memory(const void *bytes, size_t size, struct trace_reader **out, struct trace_error *err);
void trace_reader_close(struct trace_reader *r);

/* Whether a process is still writing; asks the kernel for the file's lock each time. */
enum trace_writer trace_reader_writer(struct trace_reader *r);
/* Problem number n (from 0), or NULL; found while opening and since. The first 64 are kept; the other call
 * counts all. */
const char *trace_reader_problem(const struct trace_reader *r, size_t n);
size_t trace_reader_num_problems(const struct trace_reader *r);

/* Who wrote the file, or NULL if it does not say; its texts are terminated. */
const struct trace_file_info *trace_reader_info(const struct trace_reader *r);

/* Why this copy was made, if a trigger made it, or NULL; its texts are terminated. */
const struct trace_file_cause *trace_reader_cause(const struct trace_reader *r);
struct trace_event;
/* Whether the event is of the object (or the reactor) that the cause names. */
bool trace_event_is_culprit(const struct trace_reader *r, const struct trace_event *e);

/* Ticks per second of the writer's TSC; never 0. */
uint64_t trace_reader_tsc_rate(const struct trace_reader *r);
uint64_t trace_ticks_to_ns(uint64_t ticks, uint64_t tsc_rate);
/* Saturates at UINT64_MAX. */
uint64_t trace_ns_to_ticks(uint64_t ns, uint64_t tsc_rate);

/* The tracepoint with this id, or NULL when it is not defined or its definition is damaged. */
const struct trace_tpoint *trace_reader_tpoint(const struct trace_reader *r, unsigned id);
/* Ids are below this. */
unsigned trace_reader_num_tpoints(const struct trace_reader *r);
/* Lcores (numbers of rings) are below this. */
unsigned trace_reader_num_lcores(const struct trace_reader *r);
/* The mask of enabled tracepoints of a group as the file had it when it was opened; 0 for an unknown
 * group. */
uint64_t trace_reader_tpoint_mask(const struct trace_reader *r, unsigned group);
/* The letter that ids of this type begin with, or 0. */
char trace_reader_object_prefix(const struct trace_reader *r, uint8_t type);
char trace_reader_owner_prefix(const struct trace_reader *r, uint8_t type);
/* The description of an owner as it was at a time, or NULL: id 0, never registered, or registered later than
 * `tsc` (the id was reused). Valid until the next snapshot or follow step. */
const char *trace_reader_owner(struct trace_reader *r, uint16_t id, uint64_t tsc);
/* Since when (a tsc) the id has had its owner, and the owner's type; 0: never registered. */
uint64_t trace_reader_owner_since(const struct trace_reader *r, uint16_t id, uint8_t *type);
unsigned trace_reader_num_owners(const struct trace_reader *r);

/* The name of the user thread that recorded in this ring at a time; "" for a reactor, or if not known. */
const char *trace_reader_thread_name(const struct trace_reader *r, uint32_t lcore, uint64_t tsc);

/* ---- Events ---- */

struct trace_event {
	uint64_t tsc;
	uint64_t object_id;     /* the object's value (its address), 0 if none */
	uint64_t object_index;  /* r12: 12, counted per object type in order of creation; TRACE_NO_OBJECT when
				   unknown */
	uint64_t object_start;  /* tsc at which the object was created; set with object_index */
	uint64_t state_ticks;   /* since the object's previous event; TRACE_NO_TIME for its first one, or if
				   events are missing */
	uint64_t related_index; /* of the parent object, or TRACE_NO_OBJECT */
	uint32_t life;          /* of the object: counted over all types, also for objects created before the trace;
				 * TRACE_NO_LIFE without an object */
	uint32_t related_life;  /* of the parent, or TRACE_NO_LIFE */
	uint32_t size;
	uint32_t lcore;       /* number of the ring */
	uint32_t args;        /* where the argument bytes are, in the batch's `arg_bytes` */
	uint32_t gaps;        /* how many holes this lcore's events have had so far */
	uint16_t tpoint_id;   /* always a defined one */
	uint16_t owner_id;    /* 0: none */
	uint16_t prev_tpoint; /* the event that began the state that state_ticks measures */
	uint8_t related_type; /* object type of the parent */
	uint8_t related_arg;  /* the argument that names the parent */
};

/* Events in the order of time; equal times in the order of lcores, and on one lcore as recorded. */
struct trace_batch {
	struct trace_event *events;
	size_t num_events;
	uint8_t *arg_bytes;
	size_t num_arg_bytes;
};

struct trace_arg {
	enum trace_arg_type type;
	uint64_t number;  /* numbers and addresses */
	const char *text; /* texts: not terminated */
	size_t length;
};

/* Argument n (below the tracepoint's num_args) of an event of this batch. */
struct trace_arg trace_event_arg(const struct trace_batch *b, const struct trace_event *e, const struct trace_tpoint *t,
				 unsigned n);

/* What happened to one ring's entries. An event takes one ring slot and, when it has more than 8 bytes of
 * arguments, one more for each further 22. */
struct trace_lcore {
	uint32_t lcore;
	char name[TRACE_THREAD_NAME_SIZE + 1]; /* of a registered user thread, or empty */
	uint64_t num_entries;                  /* slots of the ring */
	uint64_t written;                      /* slots ever written */
	uint64_t recorded;                     /* events ever recorded */
	uint64_t events;                       /* events returned */
	/* Slots that were not returned: */
	uint64_t overwritten;  /* older than the ring is long */
	uint64_t skipped;      /* left out by trace_follow_skip() */
	uint64_t unreadable;   /* the file ends before them */
	uint64_t unstable;     /* the writer was or may have been writing there during the copy */
	uint64_t torn;         /* their stamp says that a write was under way */
	uint64_t out_of_order; /* their time contradicts that of their neighbours */
	/* Events that were not returned: */
	uint64_t cut;     /* a continuation is missing */
	uint64_t unknown; /* of an undefined tracepoint */
	uint64_t cleared; /* from before the last clear */
	/* In a capture: entries that the process recorded and the capture did not get. */
	uint64_t missed;
};

struct trace_snapshot {
	struct trace_batch batch;
	struct trace_lcore *lcores;
	size_t num_lcores;
	uint64_t tsc_rate;
	uint64_t clear_tsc;
	uint64_t first_tsc; /* of the oldest event, or 0 */
	/* Two readings of the clocks, as far apart as the file has them; num_clocks 0: the file has none. */
	struct trace_file_clock clocks[2];
	unsigned num_clocks;
	struct trace_file_loss loss; /* section 9, all zeroes if absent */
};

/* The time of day of a tsc, in nanoseconds since 1970 (CLOCK_REALTIME), or 0 if the file carries no
 * clocks. */
uint64_t trace_snapshot_realtime_ns(const struct trace_snapshot *s, uint64_t tsc);

#define TRACE_ALL_LCORES (-1)

/* Copies what the rings hold. A live writer goes on meanwhile; what it may have touched during the copy is
 * left out and counted. lcore: one ring only, or TRACE_ALL_LCORES. The snapshot is the caller's, until
 * trace_snapshot_free(). Errors: -ENOENT no such lcore, -E2BIG more than TRACE_READER_MAX_ENTRIES, -ENOMEM.
 */
int trace_snapshot_take(struct trace_reader *r, int lcore, struct trace_snapshot **out, struct trace_error *err);
void trace_snapshot_free(struct trace_snapshot *s);

/* ---- Following ---- */

struct trace_follow;

/* Begins to follow a file from its end (or, `from_start`, from the oldest event it still holds). Keeps using
 * the reader. */
int trace_follow_start(struct trace_reader *r, int lcore, bool from_start, struct trace_follow **out,
		       struct trace_error *err);
/* Copies what was recorded since the last call and gives the events that are certainly complete and in order:
 * those seen by the call before this one. `last`: gives all that is left. The batch is valid until the next
 * call. Call it every few milliseconds: more often costs the writer (it shares the cache line of its index),
 * less often loses events when a ring is lapped. */
int trace_follow_next(struct trace_follow *f, bool last, const struct trace_batch **out);
/* The lcores' counters so far; *n of them. */
const struct trace_lcore *trace_follow_lcores(const struct trace_follow *f, size_t *n);
/* How full the fullest ring got between the last two calls, in percent of its length; over 100: events were
 * lost. */
unsigned trace_follow_fill(const struct trace_follow *f);
/* From now on, or no longer: of a ring that was lapped since the step before, only the newest eighth is read, and the
 * rest, which most likely could not be handed out in time either, is counted as skipped. For a follower that gets too
 * little CPU time to keep up: it disturbs the writer less, and begins anew closer to what happens now. */
void trace_follow_skip(struct trace_follow *f, bool skip);
void trace_follow_stop(struct trace_follow *f);

/* ---- Analysis of a batch ---- */

/* One object's life, as far as the batch has it. Lives are numbered as in struct trace_event. */
struct trace_life {
	uint64_t value;         /* the object's value (its address) */
	uint64_t index;         /* r12: 12; TRACE_NO_OBJECT if it was created before the batch */
	uint64_t start;         /* tsc of its creation, or of its first event here */
	uint64_t last;          /* tsc of its last event */
	uint64_t slowest_ticks; /* the longest time between two of its events; for an unfinished object also the time
				   since the last one */
	uint32_t first_event, last_event; /* in the batch */
	uint32_t parent;                  /* the object that it was created for, or TRACE_NO_LIFE */
	uint32_t first_child, next_sibling;
	uint16_t owner_id; /* its own, or its parent's */
	uint16_t last_tpoint;
	uint16_t slowest_tpoint; /* the state that slowest_ticks measures: the event that began it */
	uint8_t type;
	bool ended;      /* its last event is one that ends such objects */
	bool superseded; /* another object took its value, so that it has certainly ended */
};

struct trace_lives {
	struct trace_life *lives;
	size_t num_lives;
	uint32_t *next_event; /* per event of the batch: the next one of the same object, or UINT32_MAX */
	uint64_t end_tsc;     /* of the last event of all: until when unfinished objects are known to have waited */
};

/* The batch must be a whole snapshot's. Errors: -ENOMEM. */
int trace_lives_make(const struct trace_reader *r, const struct trace_batch *b, struct trace_lives *out);
void trace_lives_clear(struct trace_lives *l);
/* Created within the batch, and neither ended nor superseded. */
bool trace_life_is_unfinished(const struct trace_life *life);
/* How long it lived, up to the end of the batch if it is unfinished. */
uint64_t trace_life_ticks(const struct trace_lives *l, const struct trace_life *life);
/* The topmost ancestor. */
uint32_t trace_life_root(const struct trace_lives *l, uint32_t n);
/* Where an object's time went: from its longest state down into the object that was at work during most of it, and so
 * on. The life whose state (slowest_tpoint) is to blame. */
uint32_t trace_life_culprit(const struct trace_lives *l, uint32_t n);

/* How long objects stayed in the state that one tracepoint begins, over a batch (objects still in the state are not in
 * it); or how long whole lives were. Times in ticks, percentiles by nearest rank. */
struct trace_dwell {
	uint16_t tpoint_id; /* the state; of whole lives 0 */
	uint16_t owner_id;  /* in tables by owner */
	uint8_t object_type;
	uint64_t count;
	uint64_t min, median, p90, p99, p999, max, total;
};

/* One row per state, ordered by object type and tracepoint id; the array is the caller's, free() it.
 * Rows of object type 0 do not occur. Errors: -ENOMEM. */
int trace_summary_make(const struct trace_reader *r, const struct trace_batch *b, struct trace_dwell **rows,
		       size_t *num_rows);

enum trace_report_table {
	TRACE_BY_STATE,       /* ordered by object type and tracepoint id */
	TRACE_BY_OWNER_STATE, /* by owner, object type and tracepoint id */
	TRACE_BY_TYPE,        /* whole lives of finished objects, by object type */
	TRACE_BY_OWNER_TYPE,  /* by owner and object type */
	TRACE_NUM_TABLES,
};

struct trace_report {
	struct trace_dwell *rows[TRACE_NUM_TABLES];
	size_t num_rows[TRACE_NUM_TABLES];
};

/* All tables at once, over the events with keep[i] (all if NULL): a state counts when the event that ends it is
 * kept, a life when its last event is. served: by owner, a request (what was done for nothing else) counts also for the
 * bdev that served it, the owner of the first thing that was done for it. Errors: -ENOMEM. */
int trace_report_make(const struct trace_reader *r, const struct trace_batch *b, const struct trace_lives *l,
		      const bool *keep, bool served, struct trace_report *out);
void trace_report_clear(struct trace_report *t);

/* Marks, in keep[num_events], the events of an object and of all that is related to it: its parents, and
 * everything done on behalf of the topmost of them. prefix and index are those of its id ('r', 12). *start
 * gets the index of the first marked event. Errors: -ENOENT no such object in this batch, -ENOMEM. */
int trace_life_mark(const struct trace_reader *r, const struct trace_batch *b, char prefix, uint64_t index, bool *keep,
		    size_t *start);

/* ---- Files in a directory ---- */

struct trace_found_file {
	char path[4096];
	pid_t pid;                /* from the name, or 0 */
	enum trace_writer writer; /* UNKNOWN: unlocked, not ours, and a process with this id runs: perhaps a
				     stock target */
	uint64_t size_bytes;
	uint64_t mtime_ns;
	int error; /* why its state could not be found out (a negative errno), or 0 */
};

/* As trace_reader_writer(), but of a stock target's file, which no lock tells of, the process id in its name does.
 * path: the one that r was opened by. */
enum trace_writer trace_file_writer(struct trace_reader *r, const char *path);
/* The trace files (NAME_trace.pidN, NAME_trace.N) of a directory, the most recent first; free() the array. */
int trace_files_find(const char *dir, struct trace_found_file **files, size_t *num_files);

#endif
