/* SPDX-License-Identifier: BSD-3-Clause */
/* The flight recorder. Tracepoints are declared once, in trace/tracepoints.def, and recorded by
 *
 *     TRACE(BDEV_IO_START, owner_id, size, object_id, type, ctx, offset, qd);
 *
 * with the arguments that the .def file lists, in that order and with those C types (a wrong number does not
 * compile). A disabled tracepoint evaluates nothing: one load, one test, a branch never taken. An enabled one
 * costs the TSC read and a few stores into the calling thread's ring in /dev/shm/<name>_trace.pid<N>, a file
 * that outlives the process; its layout is trace/trace_file.h. object_id may be a pointer or a number.
 *
 * Recording is for threads that have a ring: reactors (trace_thread_attach) and registered user threads.
 * Everything else here may be called from any thread and takes a lock: it is for control paths, never for a
 * reactor's data path. */
#ifndef TRACE_TRACE_H
#define TRACE_TRACE_H

#include <stdio.h>

#include "trace/record.h"

/* True if the tracepoint is on: for computing arguments that cost something. */
#define TRACE_ENABLED(tpoint) TRACE_ID_ENABLED(TRACE_TPOINT_##tpoint)
#define TRACE_ID_ENABLED(id_)                                                                                          \
	unlikely((__atomic_load_n(&trace_group_mask[(id_) / TRACE_TPOINTS_PER_GROUP], __ATOMIC_RELAXED) &              \
		  (1ull << ((id_) % TRACE_TPOINTS_PER_GROUP))) != 0)

#define TRACE(tpoint, owner_id, size, object_id, ...)                                                                  \
	do {                                                                                                           \
		if (TRACE_ID_ENABLED(TRACE_TPOINT_##tpoint)) {                                                         \
			trace_record_##tpoint((owner_id), (size), (uint64_t)(object_id), ##__VA_ARGS__);               \
		}                                                                                                      \
	} while (0)

#define TRACE_ERROR_MAX 1024

struct trace_opts {
	const char *name;          /* "varve": names the file and the memzone */
	const char *version;       /* of the program, for the file */
	int instance_id;           /* -1: the file is <name>_trace.pid<N>, otherwise <name>_trace.<id> */
	uint32_t num_entries;      /* slots of a reactor's ring: a power of two from 64 to 2^24, or 0: no tracing,
				      no file */
	uint32_t num_user_threads; /* slots for threads that are not reactors, the control thread included */
	uint32_t num_user_entries; /* slots of their rings; 0: like num_entries */
	uint64_t tsc_hz;           /* 0: DPDK's, which is rounded */
	const char *group;         /* a group that may read the file (mode 0640), or NULL (0600) */
	const char *dir;           /* NULL: /dev/shm */
};
#define TRACE_DEFAULT_ENTRIES      32768
#define TRACE_DEFAULT_USER_THREADS 4
#define TRACE_DEFAULT_USER_ENTRIES 4096

/* Makes the file, a ring for every lcore of the EAL (which must run) and for user threads. Nothing is enabled
 * yet. A file of the same name left by a dead process is kept as <file>.old. 0, also when num_entries is 0; error is
 * then empty, or a warning (the file is not locked in memory). On failure a negative errno, and error (TRACE_ERROR_MAX
 * bytes) says what is wrong and what to do; the program may go on, with every tracepoint off. */
int trace_start(const struct trace_opts *opts, char *error);

/* Disables everything and lets go of the file, which stays unless nothing was ever recorded. No other thread
 * may be recording any more: reactors have detached. Before rte_eal_cleanup(). */
void trace_stop(void);

bool trace_is_on(void);
/* "/dev/shm/varve_trace.pid4711", or NULL. */
const char *trace_file_path(void);

/* Gives the calling thread the ring of lcore; name is shown by readers. 0 (also when tracing is off),
 * -ENOENT: the lcore has no ring, -EBUSY: another thread has it, -EEXIST: the caller has one. */
int trace_thread_attach(unsigned lcore, const char *name);
/* The same for a thread that is no reactor; -ENOSPC: all slots are taken (counted). */
int trace_register_user_thread(const char *name);
/* Gives the ring back, before the thread ends. Nothing happens if it has none. */
void trace_thread_detach(void);

/* What to enable, as -e and configuration files say it: comma-separated items
 *     all | GROUP | GROUP:HEXMASK | GROUP:NAME+NAME... | 0xGROUPMASK | help
 * Pure. 0 and the union in masks, TRACE_SPEC_HELP if help was asked for, -EINVAL and what is wrong, with what
 * is right, in error (TRACE_ERROR_MAX bytes). */
struct trace_masks {
	uint64_t group[TRACE_NUM_GROUPS];
};
enum { TRACE_SPEC_HELP = 1 };
int trace_spec_parse(const char *spec, struct trace_masks *masks, char *error);
/* All groups and tracepoints with a line each. */
void trace_print_help(FILE *out);

/* Run-time switches; they work at once, while others record. -ENODEV when tracing is off. */
int trace_set_tpoints(unsigned group, uint64_t mask);   /* enables, leaving others of the group as they are */
int trace_clear_tpoints(unsigned group, uint64_t mask); /* disables */
int trace_set_masks(const struct trace_masks *masks);   /* trace_set_tpoints for all groups */
int trace_clear_masks(const struct trace_masks *masks); /* trace_clear_tpoints for all groups */
/* Has fn called after each change by these functions, on the thread that made it and without a lock; NULL: no more. For
 * who records something periodically, and need not while it is disabled. */
void trace_set_masks_hook(void (*fn)(void));
uint64_t trace_get_tpoint_mask(unsigned group);
uint64_t trace_get_group_mask(void); /* bit g: something of group g is enabled */
/* Readers are to ignore what was recorded before now. -ENODEV */
int trace_clear(void);

/* A copy of the live file with a cause in it, made in steps so that who makes it can do other things between them;
 * recording goes on meanwhile. (See trace_file.h: a copy is consistent however long it takes.) By the thread that calls
 * trace_stop(), before that. It is written under a hidden name beside path (a dot before the name, ".part" behind it),
 * locked, and gets its name when it is whole. trace_copy_begin(): 0 and *copy, -ENODEV: tracing is off, or what the
 * file system says, with the reason in error (TRACE_ERROR_MAX bytes). trace_copy_step(): 1: there is more to do; 0:
 * done; or a negative errno, and the file is gone; after 0 and errors *copy is freed. trace_copy_abandon() is for one
 * that is no longer wanted. */
struct trace_copy;
int trace_copy_begin(const char *path, const struct trace_file_cause *cause, struct trace_copy **copy, char *error);
int trace_copy_step(struct trace_copy *copy, size_t max_bytes, char *error);
void trace_copy_abandon(struct trace_copy *copy);
/* How many bytes a copy has; 0: tracing is off. */
uint64_t trace_copy_size(void);

/* The declarations of tracepoints.def. */
struct trace_group_info {
	const char *name;
	const char *help;
};
/* NULL if there is none of that number. */
const struct trace_group_info *trace_group_info(unsigned group);
/* Bit n: the group has a tracepoint n. */
uint64_t trace_group_tpoints(unsigned group);
/* The number, or -ENOENT. */
int trace_group_by_name(const char *name);
struct trace_tpoint_info {
	const char *help;
	struct trace_file_tpoint def;
};
/* NULL if there is none of that id. */
const struct trace_tpoint_info *trace_tpoint_info(unsigned tpoint_id);

/* Registers an owner (type: TRACE_OWNER_BDEV ...) with a description that readers show; the first 118 bytes
 * are kept. Returns its id, or 0 (none) when the table is full (counted) or tracing is off. */
uint16_t trace_owner_register(uint8_t type, const char *description);
void trace_owner_update(uint16_t id, const char *description);
/* The description stays in the file until the id is used again, as late as possible. 0 is ignored. */
void trace_owner_release(uint16_t id);

/* Adds a (TSC, CLOCK_REALTIME, CLOCK_MONOTONIC) triple to the file, so that events can be matched to logs. To
 * be called every ten seconds or so. */
void trace_clock_refresh(void);

/* For crash handlers: notes the signal, the faulting address and the thread's name in the file.
 * Async-signal-safe. */
void trace_note_crash(int signal_number, const void *address, const char *thread_name);

/* How much there is and what was lost. */
struct trace_slot_stats {
	int lcore;
	char name[TRACE_THREAD_NAME_SIZE];
	bool attached;
	uint64_t num_entries;
	uint64_t recorded; /* slots written since the start */
	uint64_t wrapped;  /* of which were overwritten */
	uint64_t strings_truncated;
};
unsigned trace_num_slots(void);
/* False if slot (0 to trace_num_slots() - 1) has no ring. */
bool trace_get_slot_stats(unsigned slot, struct trace_slot_stats *stats);
/* The file's LOSS section; zeroes when tracing is off. */
void trace_get_loss(struct trace_file_loss *loss);

#endif
