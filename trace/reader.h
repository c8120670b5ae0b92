/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading trace files: of a running process, of one that died, or copied. A library of its own, without DPDK.
 *
 *     trace_reader_open() -> struct trace_reader     the file's tables, every field checked
 *     trace_snapshot_take() -> struct trace_snapshot what the rings held at one moment, merged by time
 *     trace_follow_start(), trace_follow_next()      the same events as they are recorded
 *     trace_summary_make()                           how long objects stayed in each state
 *
 * A file is never trusted. Damaged parts are left out and reported as problems (lines of text); a file is refused only
 * if it has no readable header, main section, tracepoints or rings. The memory used is bounded by the size of the file.
 * Files are read with pread() and never mapped. So a file that shrinks meanwhile causes an error and not SIGBUS, and
 * reading hardly disturbs the writer: it never waits, and its cache lines are fetched once per copy.
 *
 * An object may be used by one thread at a time. Times are ticks of the writer's TSC (`tsc`) or nanoseconds (`_ns`),
 * both integers. Functions that can fail return 0 or a negative errno; if they take a `struct trace_error`, its text
 * then says what was wrong, with the value found and what would be right.
 */
#ifndef TRACE_READER_H
#define TRACE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "trace/trace_file.h"

/* The most ring entries that a snapshot can hold (512 MB of rings). If a file has more, take one lcore's. */
#define TRACE_READER_MAX_ENTRIES (1u << 24)
#define TRACE_NO_OBJECT          UINT64_MAX
#define TRACE_NO_TIME            UINT64_MAX
#define TRACE_NO_LIFE            UINT32_MAX

struct trace_error {
	char text[320];
};

/* ---- The file and its tables ---- */

enum trace_writer {
	TRACE_WRITER_UNKNOWN, /* the file is not locked and does not name its writer: a copy, or a stock target's */
	TRACE_WRITER_LIVE,    /* a process holds the file's lock */
	TRACE_WRITER_GONE,    /* the process that wrote it has ended */
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

/* Opens and checks a file; *out is for trace_reader_close(). Errors: those of open() and read(); -EINVAL: the file is
 * no trace file, or too damaged to have events. */
int trace_reader_open(const char *path, struct trace_reader **out, struct trace_error *err);
/* As trace_reader_open(), for a file in memory (a section of a core, a test). The bytes must stay until
 * trace_reader_close(). */
int trace_reader_open_memory(const void *bytes, size_t size, struct trace_reader **out, struct trace_error *err);
/* Closes the file and frees r, after all that was made from it. */
void trace_reader_close(struct trace_reader *r);

/* Whether a process is still writing the file. Each call asks the kernel for the file's lock. */
enum trace_writer trace_reader_writer(struct trace_reader *r);
/* Whether the process that info names is running on this machine, as it is behind a copy of its file: the same pid,
 * start time and boot. */
bool trace_info_process_runs(const struct trace_file_info *info);
/* Problem number n (from 0) of those found so far, or NULL: there are fewer. The first 64 are kept. Valid until
 * trace_reader_close(). */
const char *trace_reader_problem(const struct trace_reader *r, size_t n);
/* How many problems have been found so far. */
size_t trace_reader_num_problems(const struct trace_reader *r);

/* The process that wrote the file, or NULL: the file does not say. Its texts are terminated. */
const struct trace_file_info *trace_reader_info(const struct trace_reader *r);

/* Why a trigger made this copy, or NULL: no trigger made it. Its texts are terminated. */
const struct trace_file_cause *trace_reader_cause(const struct trace_reader *r);
struct trace_event;
/* Whether the event belongs to the object, or the reactor, that the cause names. */
bool trace_event_is_culprit(const struct trace_reader *r, const struct trace_event *e);

/* Ticks per second of the writer's TSC; never 0. */
uint64_t trace_reader_tsc_rate(const struct trace_reader *r);
/* Ticks in nanoseconds; UINT64_MAX if that does not fit. */
uint64_t trace_ticks_to_ns(uint64_t ticks, uint64_t tsc_rate);
/* Nanoseconds in ticks; UINT64_MAX if that does not fit. */
uint64_t trace_ns_to_ticks(uint64_t ns, uint64_t tsc_rate);

/* The tracepoint of this id, or NULL: it is not defined, or its definition is damaged. */
const struct trace_tpoint *trace_reader_tpoint(const struct trace_reader *r, unsigned id);
/* One more than the highest id of a tracepoint. */
unsigned trace_reader_num_tpoints(const struct trace_reader *r);
/* One more than the highest lcore (number of a ring). */
unsigned trace_reader_num_lcores(const struct trace_reader *r);
/* The enabled tracepoints of a group when the file was opened: bit n for tracepoint n; 0: no such group. */
uint64_t trace_reader_tpoint_mask(const struct trace_reader *r, unsigned group);
/* The letter that ids of objects of this type begin with, or 0. */
char trace_reader_object_prefix(const struct trace_reader *r, uint8_t type);
/* The letter that ids of owners of this type begin with, or 0. */
char trace_reader_owner_prefix(const struct trace_reader *r, uint8_t type);
/* The description of an owner at the time tsc; NULL: id 0, never registered, or registered after tsc (the id was used
 * again). Valid until the next snapshot or follow step. */
const char *trace_reader_owner(struct trace_reader *r, uint16_t id, uint64_t tsc);
/* The tsc since which the id has had its owner, and the owner's type; 0: never registered. */
uint64_t trace_reader_owner_since(const struct trace_reader *r, uint16_t id, uint8_t *type);
/* One more than the highest id of an owner. */
unsigned trace_reader_num_owners(const struct trace_reader *r);

/* The name of the user thread that recorded in this ring at the time tsc; "": a reactor's ring, or not known. */
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
	uint32_t gaps;        /* how often events of this lcore are missing, up to here */
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

/* Argument n (below t->num_args) of an event of this batch. Its text is valid as long as the batch. */
struct trace_arg trace_event_arg(const struct trace_batch *b, const struct trace_event *e, const struct trace_tpoint *t,
				 unsigned n);

/* Counts of one ring's slots and events. An event takes one slot and, if it has more than 8 bytes of arguments, one
 * more for each further 22 bytes. */
struct trace_lcore {
	uint32_t lcore;
	char name[TRACE_THREAD_NAME_SIZE + 1]; /* of a registered user thread, or empty */
	uint64_t num_entries;                  /* slots of the ring */
	uint64_t written;                      /* slots ever written */
	uint64_t recorded;                     /* events ever recorded */
	uint64_t events;                       /* events returned */
	/* Slots that were not returned: */
	uint64_t overwritten;  /* older than the ring is long */
	uint64_t skipped;      /* left out by trace_follow_skip(), or by trace_snapshot_take_newest() */
	uint64_t unreadable;   /* the file ends before them */
	uint64_t unstable;     /* the writer was or may have been writing there during the copy */
	uint64_t torn;         /* their stamp says that a write was under way */
	uint64_t out_of_order; /* their time contradicts that of their neighbours */
	/* Events that were not returned: */
	uint64_t cut;     /* a continuation is missing */
	uint64_t unknown; /* of an undefined tracepoint */
	uint64_t cleared; /* from before the last clear */
	/* In a capture: entries that the process recorded and the capture could not read in time. */
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

/* The time of day of a tsc, in nanoseconds since 1970 (CLOCK_REALTIME); 0: the file has no clocks. */
uint64_t trace_snapshot_realtime_ns(const struct trace_snapshot *s, uint64_t tsc);

#define TRACE_ALL_LCORES (-1)

/* Copies the contents of one lcore's ring, or of all (TRACE_ALL_LCORES). A live writer goes on recording; entries that
 * it may have changed during the copy are left out and counted. *out is for trace_snapshot_free(). Errors: -ENOENT (no
 * such lcore), -E2BIG (more than TRACE_READER_MAX_ENTRIES), -ENOMEM, those of read(). */
int trace_snapshot_take(struct trace_reader *r, int lcore, struct trace_snapshot **out, struct trace_error *err);
/* As trace_snapshot_take() of all rings, but of each ring at most the `newest` entries are copied. So a look at a trace
 * that is being recorded costs little, however long the rings are. An event whose first entry is older is left out. */
int trace_snapshot_take_newest(struct trace_reader *r, uint64_t newest, struct trace_snapshot **out,
			       struct trace_error *err);
/* Frees a snapshot; NULL is ignored. */
void trace_snapshot_free(struct trace_snapshot *s);

/* ---- Following ---- */

struct trace_follow;

/* Begins to follow a file, or one lcore's ring, from its end or, with from_start, from the oldest event in it. *out is
 * for trace_follow_stop(), and uses r until then. Errors as trace_snapshot_take(). */
int trace_follow_start(struct trace_reader *r, int lcore, bool from_start, struct trace_follow **out,
		       struct trace_error *err);
/* Copies what was recorded since the last call, and returns in *out the events that are certainly complete and in
 * order: those that the previous call had copied. last: returns all that is left. The batch is valid until the next
 * call. To be called every few milliseconds: calls more often slow down the writer, with whose index they share a cache
 * line; calls less often lose events, if a ring is overwritten meanwhile. */
int trace_follow_next(struct trace_follow *f, bool last, const struct trace_batch **out);
/* The lcores' counters so far; *n of them. Valid until the next call. */
const struct trace_lcore *trace_follow_lcores(const struct trace_follow *f, size_t *n);
/* How many slots of a ring were written between the last two calls, in percent of its length, of the ring where that is
 * most; over 100: events were lost. */
unsigned trace_follow_fill(const struct trace_follow *f);
/* For a follower that gets too little CPU time to keep up. With skip, if a whole ring was overwritten since the last
 * call, only the newest eighth of it is read, and the rest is counted as skipped. So the follower disturbs the writer
 * less, and continues with newer events. */
void trace_follow_skip(struct trace_follow *f, bool skip);
/* Ends following and frees f. */
void trace_follow_stop(struct trace_follow *f);

/* ---- Analysis of a batch ---- */

/* One object's life, as far as it is in the batch. Lives are numbered as in struct trace_event. */
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

/* Finds the lives of all objects in a batch, which must be that of a snapshot. *out is for trace_lives_clear(). Errors:
 * -ENOMEM. */
int trace_lives_make(const struct trace_reader *r, const struct trace_batch *b, struct trace_lives *out);
/* Frees the contents of *l. */
void trace_lives_clear(struct trace_lives *l);
/* Whether an object was created within the batch, and has neither ended nor been superseded in it. */
bool trace_life_is_unfinished(const struct trace_life *life);
/* How long an object lived, in ticks; of an unfinished one, until the end of the batch. */
uint64_t trace_life_ticks(const struct trace_lives *l, const struct trace_life *life);
/* The topmost ancestor of life n: its parent's parent, and so on. */
uint32_t trace_life_root(const struct trace_lives *l, uint32_t n);
/* Finds where the time of life n went: takes its longest state, the child that was at work during most of it, that
 * child's longest state, and so on. Returns the last life, whose state (slowest_tpoint) is to blame. */
uint32_t trace_life_culprit(const struct trace_lives *l, uint32_t n);

/* How long objects of a batch stayed in the state that one tracepoint begins (without objects that are still in it), or
 * how long whole lives were. Times are ticks, percentiles are by nearest rank. */
struct trace_dwell {
	uint16_t tpoint_id; /* the state; of whole lives 0 */
	uint16_t owner_id;  /* in tables by owner */
	uint8_t object_type;
	uint64_t count;
	uint64_t min, median, p90, p99, p999, max, total;
};

/* Makes one row per state, ordered by object type and tracepoint id, without object type 0. The caller frees the array.
 * Errors: -ENOMEM. */
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

/* Makes all tables, of the events with keep[i] (NULL: of all). A state counts if the event that ends it is kept, a life
 * if its last event is. served: in the tables by owner, a request (an object without parent) counts also for the bdev
 * that served it, which is the owner of its first child. *out is for trace_report_clear(). Errors: -ENOMEM. */
int trace_report_make(const struct trace_reader *r, const struct trace_batch *b, const struct trace_lives *l,
		      const bool *keep, bool served, struct trace_report *out);
/* Frees the contents of *t. */
void trace_report_clear(struct trace_report *t);

/* Marks, in keep[num_events], the events of an object and of all objects related to it: its parents, and all children
 * of the topmost parent. prefix and index are those of the object's id ('r', 12). *start is then the index of the first
 * marked event. Errors: -ENOENT (no such object in this batch), -ENOMEM. */
int trace_life_mark(const struct trace_reader *r, const struct trace_batch *b, char prefix, uint64_t index, bool *keep,
		    size_t *start);

/* ---- Files in a directory ---- */

struct trace_found_file {
	char path[4096];
	pid_t pid;                /* from the name, or 0 */
	enum trace_writer writer; /* UNKNOWN: the file is not locked and not varve's, and a process of this id runs,
				     which may be a stock target */
	uint64_t size_bytes;
	uint64_t mtime_ns;
	int error; /* why its state is not known (a negative errno), or 0 */
};

/* As trace_reader_writer(). For a stock target's file, which is not locked, it looks whether the process runs whose id
 * is in the file's name. path: the one that r was opened with. */
enum trace_writer trace_file_writer(struct trace_reader *r, const char *path);
/* Lists the trace files (NAME_trace.pidN, NAME_trace.N) of a directory, the most recent first. The caller frees the
 * array. Errors: those of opendir(), -ENOMEM. */
int trace_files_find(const char *dir, struct trace_found_file **files, size_t *num_files);

#endif
