/* SPDX-License-Identifier: BSD-3-Clause */
/* The black box: a trigger that fires keeps a copy of the trace rings, with the cause of the firing in it. All
 * functions run on the control thread. Watching costs the data path nothing: a timer of the control thread looks at the
 * ages of requests, and errors and lost hosts are reported by code that runs only when something fails.
 *
 *     blackbox.c          the triggers, and what follows when one fires
 *     blackbox_watch.c    finds what the triggers are for
 *     blackbox_copy.c     makes the copy, in steps
 *     blackbox_files.c    names files, and removes old ones
 *     blackbox_trigger.c  the list of triggers, and the arithmetic
 *     blackbox_rpc.c      the RPC methods, and what save_config writes */
#ifndef APPLIANCE_BLACKBOX_H
#define APPLIANCE_BLACKBOX_H

#include "appliance/blackbox_trigger.h"
#include "trace/trace_file.h"

/* Begins to watch. app: the beginning of the files' names; must stay. After the rooms have been started. */
void blackbox_start(const char *app);
/* Removes all triggers and ends a copy that is under way, which is removed. Before the rooms stop; also if
 * blackbox_start() was never called. */
void blackbox_stop(void);

#define BLACKBOX_DEFAULT_DIR       "/var/tmp"
#define BLACKBOX_DEFAULT_MAX_FILES 8
#define BLACKBOX_DEFAULT_MAX_BYTES (UINT64_C(256) << 20)
struct blackbox_opts {
	char dir[1024];
	uint32_t max_files;
	uint64_t max_bytes; /* of all files together */
};
/* The beginning of the files' names; NULL before blackbox_start(). */
const char *blackbox_app(void);
/* Where copies go, and how many are kept. */
const struct blackbox_opts *blackbox_get_opts(void);
/* Sets these options. 0; or a negative errno, and why (BLACKBOX_ERROR_MAX bytes) says why dir is no directory that
 * varve can write to. */
int blackbox_set_opts(const struct blackbox_opts *opts, char *why);

/* Adds or changes a trigger, as blackbox_trigger_set() does; it is watched for from now on. */
int blackbox_set(const struct blackbox_trigger_opts *opts, char *why);
/* Removes a trigger. 0 or -ENOENT. */
int blackbox_remove(const char *name);
/* All triggers. */
const struct blackbox_triggers *blackbox_triggers(void);

struct blackbox_stats {
	uint64_t copies;        /* files written */
	uint64_t copies_failed; /* the log says why */
	uint64_t copies_missed; /* not begun, because another one was being written */
	bool copying, frozen;
};
/* Fills in stats. */
void blackbox_get_stats(struct blackbox_stats *stats);

/* For blackbox_watch.c. */

/* Fires each trigger of the type that matches: its limit is at most measured_us, its state, if it has one, is that of
 * cause, and it has not fired within its hold-off time. cause holds the culprit and the text; the other members are
 * filled in. */
void blackbox_fire(enum blackbox_type type, uint64_t measured_us, struct trace_file_cause *cause);
/* Starts, changes or stops watching. To be called after a change of the triggers. */
void blackbox_watch_update(struct blackbox_triggers *list);
/* Stops watching. */
void blackbox_watch_stop(void);
/* For how many microseconds the trace rings cover at the present rate; UINT64_MAX: not known yet. */
uint64_t blackbox_ring_us(void);
/* CLOCK_MONOTONIC in microseconds. */
uint64_t blackbox_now_us(void);

/* For blackbox.c. */

/* Begins a copy for a trigger. 0; -EBUSY: another copy is under way; or another negative errno, which has been
 * logged. */
int blackbox_copy_begin(const char *app, const struct blackbox_opts *opts, const char *trigger,
			const struct trace_file_cause *cause);
/* Whether a copy is under way. */
bool blackbox_copying(void);
/* Finishes the copy at once, instead of in steps. */
void blackbox_copy_complete(void);
/* Ends the copy, and removes its file. */
void blackbox_copy_stop(void);
/* Called by blackbox_copy.c at the end of a copy. path: NULL if it failed. */
void blackbox_copied(const char *trigger, const char *path);

#endif
