/* SPDX-License-Identifier: BSD-3-Clause */
/* The black box: triggers that keep a copy of the trace rings, with the cause in it, when something goes wrong. All on
 * the control thread. What it watches for costs the data path nothing: ages are looked up by a timer of the control
 * thread, errors and lost hosts come from places that are never reached while all is well.
 *
 *     blackbox.c          the triggers, and what happens when one fires
 *     blackbox_watch.c    what sets them off
 *     blackbox_copy.c     the copy, a piece at a time
 *     blackbox_files.c    names of files, and that they stay few
 *     blackbox_trigger.c  the list of triggers, and the arithmetic
 *     blackbox_rpc.c      trace_set_trigger and its like, and what save_config writes */
#ifndef APPLIANCE_BLACKBOX_H
#define APPLIANCE_BLACKBOX_H

#include "appliance/blackbox_trigger.h"
#include "trace/trace_file.h"

/* app: the beginning of the files' names. After the rooms are up, and before they stop. A copy that is under way then
 * is given up. */
void blackbox_start(const char *app);
void blackbox_stop(void);

#define BLACKBOX_DEFAULT_DIR       "/var/tmp"
#define BLACKBOX_DEFAULT_MAX_FILES 8
#define BLACKBOX_DEFAULT_MAX_BYTES (UINT64_C(256) << 20)
struct blackbox_opts {
	char dir[1024];
	uint32_t max_files;
	uint64_t max_bytes; /* of all files together */
};
const struct blackbox_opts *blackbox_get_opts(void);
/* 0, or a negative errno and why (BLACKBOX_ERROR_MAX bytes): dir is no directory that can be written to. */
int blackbox_set_opts(const struct blackbox_opts *opts, char *why);

/* As in blackbox_trigger.h, and it works from now on. */
int blackbox_set(const struct blackbox_trigger_opts *opts, char *why);
int blackbox_remove(const char *name);
const struct blackbox_triggers *blackbox_triggers(void);

struct blackbox_stats {
	uint64_t copies;        /* files written */
	uint64_t copies_failed; /* why: the log says */
	uint64_t copies_missed; /* not begun, since another was being written */
	bool copying, frozen;
};
void blackbox_get_stats(struct blackbox_stats *stats);

/* For blackbox_watch.c. */

/* Fires every trigger of the type that fits: has no state to wait for or this one, a limit of at most measured_us, and
 * has not just fired. cause holds the culprit and the text; the rest is filled in. */
void blackbox_fire(enum blackbox_type type, uint64_t measured_us, struct trace_file_cause *cause);
/* Starts, changes or stops watching, after a change of the triggers. */
void blackbox_watch_update(const struct blackbox_triggers *list);
void blackbox_watch_stop(void);
uint64_t blackbox_now_us(void);

/* For blackbox.c: begins a copy for a trigger, or is busy with one (-EBUSY). */
int blackbox_copy_begin(const char *app, const struct blackbox_opts *opts, const char *trigger,
			const struct trace_file_cause *cause);
bool blackbox_copying(void);
/* Makes what is left of it at once. */
void blackbox_copy_complete(void);
void blackbox_copy_stop(void);
/* The end of a copy: path NULL if it failed. */
void blackbox_copied(const char *trigger, const char *path);

#endif
