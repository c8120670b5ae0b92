/* SPDX-License-Identifier: BSD-3-Clause */
/* The flight recorder. Tracepoints are declared once, in trace/tracepoints.def. An event is recorded by
 *
 *     TRACE(BDEV_IO_START, owner_id, size, object_id, type, ctx, offset, qd);
 *
 * with the arguments that the .def file lists, in that order and with those C types (a wrong number does not
 * compile). object_id may be a pointer or a number. A disabled tracepoint evaluates none of its arguments: it costs one
 * load, one test and a branch that is not taken. An enabled one costs a reading of the TSC and a few stores into the
 * calling thread's ring. The rings are in /dev/shm/<name>_trace.pid<N>, a file that outlives the process; its layout is
 * trace/trace_file.h.
 *
 * Only a thread that has a ring can record: a reactor (trace_thread_attach()) or a registered user thread. All other
 * functions here may be called from any thread unless they say otherwise. They take a lock: call them on control
 * paths, never on a reactor's data path. */
#ifndef TRACE_TRACE_H
#define TRACE_TRACE_H

#include <stdio.h>

#include "trace/record.h"

/* True if the tracepoint is enabled; for arguments that are expensive to compute. */
#define TRACE_ENABLED(tpoint) TRACE_ID_ENABLED(TRACE_TPOINT_##tpoint)
#define TRACE_ID_ENABLED(id_)                                                                                          \
	unlikely((__atomic_load_n(&trace_group_mask[(id_) / TRACE_TPOINTS_PER_GROUP], __ATOMIC_RELAXED) &              \
		  (1ull << ((id_) % TRACE_TPOINTS_PER_GROUP))) != 0)

/* True if one of two tracepoints of a group is enabled; one test for both. */
#define TRACE_ANY_ENABLED(a, b)                                                                                        \
	unlikely((__atomic_load_n(&trace_group_mask[TRACE_TPOINT_##a / TRACE_TPOINTS_PER_GROUP], __ATOMIC_RELAXED) &   \
		  (1ull << (TRACE_TPOINT_##a % TRACE_TPOINTS_PER_GROUP) |                                              \
		   1ull << (TRACE_TPOINT_##b % TRACE_TPOINTS_PER_GROUP))) != 0)

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

/* Makes the file, with a ring for every lcore of the EAL (which must run) and for num_user_threads others. No
 * tracepoint is enabled yet. A file of the same name that a dead process has left is renamed to <file>.old. Returns 0,
 * also if num_entries is 0; error is then empty or has a warning (the file could not be locked in memory). On failure
 * returns a negative errno, and error (TRACE_ERROR_MAX bytes) says what is wrong and what to do; the program may go on,
 * with all tracepoints disabled. */
int trace_start(const struct trace_opts *opts, char *error);

/* Disables all tracepoints and closes the file, which is kept unless no event was recorded. All other threads must have
 * given their rings back. Before rte_eal_cleanup(). */
void trace_stop(void);

/* True between a trace_start() that made a file and trace_stop(). */
bool trace_is_on(void);
/* The path of the file, until trace_stop(): "/dev/shm/varve_trace.pid4711", or NULL. */
const char *trace_file_path(void);

/* Gives the calling thread the ring of lcore; readers show name (copied). 0, also if tracing is off; -ENOENT: the lcore
 * has no ring; -EBUSY: another thread has it; -EEXIST: the caller has a ring already. */
int trace_thread_attach(unsigned lcore, const char *name);
/* Gives the calling thread, which is no reactor, a free ring. As trace_thread_attach(); -ENOSPC: all rings are taken,
 * which is counted in the LOSS section. */
int trace_register_user_thread(const char *name);
/* Gives the calling thread's ring back; to be called before the thread ends. Does nothing if it has none. */
void trace_thread_detach(void);

/* A set of tracepoints. */
struct trace_masks {
	uint64_t group[TRACE_NUM_GROUPS]; /* bit n: tracepoint n of the group */
};
enum { TRACE_SPEC_HELP = 1 };
/* Parses which tracepoints to enable, as -e and configuration files say it: comma-separated items
 *     all | GROUP | GROUP:HEXMASK | GROUP:NAME+NAME... | 0xGROUPMASK | help
 * Returns 0 and their union in masks; TRACE_SPEC_HELP if help was asked for; or -EINVAL, and error (TRACE_ERROR_MAX
 * bytes) says what is wrong and which values are right. Takes no lock. */
int trace_spec_parse(const char *spec, struct trace_masks *masks, char *error);
/* Prints a line for each group and tracepoint. */
void trace_print_help(FILE *out);

/* Enables the tracepoints of a group whose bits are set in mask (bit n: tracepoint n of the group) and leaves the
 * others as they are. Takes effect at once, while threads record. 0; -ENODEV: tracing is off; -ENOENT: no such group.
 */
int trace_set_tpoints(unsigned group, uint64_t mask);
/* Disables the tracepoints of a group whose bits are set in mask. As trace_set_tpoints(). */
int trace_clear_tpoints(unsigned group, uint64_t mask);
/* Enables the tracepoints of all groups whose bits are set. 0, or -ENODEV: tracing is off. */
int trace_set_masks(const struct trace_masks *masks);
/* Disables the tracepoints of all groups whose bits are set. 0, or -ENODEV: tracing is off. */
int trace_clear_masks(const struct trace_masks *masks);
/* Has fn called after each change by the four functions above, on the thread that made the change and without a lock;
 * NULL: no more. For code that records something periodically, and has nothing to do while that is disabled. */
void trace_set_masks_hook(void (*fn)(void));
/* The enabled tracepoints of a group: bit n for tracepoint n. Takes no lock. */
uint64_t trace_get_tpoint_mask(unsigned group);
/* The groups with an enabled tracepoint: bit g for group g. Takes no lock. */
uint64_t trace_get_group_mask(void);
/* Marks the present in the file: readers leave out what was recorded before. 0, or -ENODEV: tracing is off. */
int trace_clear(void);

/* A copy of the live file, with the cause for which it was made. It is written in steps, so that its maker can do other
 * things between them; recording goes on meanwhile (trace_file.h says why a copy is consistent however long it takes).
 * The copy is written under a hidden name in the folder of path (".NAME.part"), locked, and renamed to path when it is
 * complete. All three functions: on the thread that calls trace_stop(), and before that. */
struct trace_copy;
/* Begins a copy. 0 and *copy; -ENODEV: tracing is off; or the file system's errno, with the reason in error
 * (TRACE_ERROR_MAX bytes). */
int trace_copy_begin(const char *path, const struct trace_file_cause *cause, struct trace_copy **copy, char *error);
/* Copies up to max_bytes more. 1: there is more to do; 0: the copy is complete; or a negative errno, with the reason in
 * error, and the file has been removed. After 0 and errors copy is freed. */
int trace_copy_step(struct trace_copy *copy, size_t max_bytes, char *error);
/* Ends a copy that is not wanted any more: removes its file and frees copy. */
void trace_copy_abandon(struct trace_copy *copy);
/* The size of a copy in bytes; 0: tracing is off. */
uint64_t trace_copy_size(void);

/* The declarations of tracepoints.def. */
struct trace_group_info {
	const char *name;
	const char *help;
};
/* Name and description of a group, or NULL: no such group. Takes no lock. */
const struct trace_group_info *trace_group_info(unsigned group);
/* The tracepoints that a group has: bit n for tracepoint n. Takes no lock. */
uint64_t trace_group_tpoints(unsigned group);
/* The number of the group of that name, or -ENOENT. Takes no lock. */
int trace_group_by_name(const char *name);
struct trace_tpoint_info {
	const char *help;
	struct trace_file_tpoint def;
};
/* The declaration of a tracepoint, or NULL: no such id. Takes no lock. */
const struct trace_tpoint_info *trace_tpoint_info(unsigned tpoint_id);

/* Registers an owner of events (type: TRACE_OWNER_BDEV ...). Readers show its description, of which the first 118 bytes
 * are kept. Returns its id for TRACE(); or 0, which means no owner, if tracing is off or the table is full, which is
 * counted in the LOSS section. */
uint16_t trace_owner_register(uint8_t type, const char *description);
/* Changes the description of an owner. 0 is ignored. */
void trace_owner_update(uint16_t id, const char *description);
/* Gives an id back. The description stays in the file until the id is used again, which is as late as possible. 0 is
 * ignored. */
void trace_owner_release(uint16_t id);

/* Adds a reading of TSC, CLOCK_REALTIME and CLOCK_MONOTONIC to the file, so that events can be matched to logs. To be
 * called about every ten seconds. */
void trace_clock_refresh(void);

struct trace_crash {
	int signal, code;    /* si_signo and si_code */
	const void *address; /* of a fault; NULL if the signal was sent */
	const char *thread;  /* name of the thread that crashed */
	bool sent;           /* by a process, which the next three describe */
	uint32_t sender, sender_uid;
	const char *sender_name; /* "": not known */
};
/* ---- Events of objects that may become older than the rings are long ---- */

/* For how many ticks the shortest of the rings in use keeps an event, at its present rate; UINT64_MAX: it is not known,
 * because hardly anything was recorded yet. */
uint64_t trace_ring_ticks(void);

enum { TRACE_KEEP_OBJECTS = 16 };
struct trace_keep_object {
	uint64_t id, start_tsc; /* as object_id and object_start_tsc of a cause */
};
/* Keeps the events that the rings have of these objects, TRACE_KEEP_OBJECTS at most, and of the objects that were
 * created for them; what was kept of all other objects is forgotten. To be called again and again, more often than the
 * rings are overwritten, with those that are still of interest. A copy whose cause names one of the objects has the
 * events that the rings do not have any more in a ring of their own, "kept". Reads what was recorded since the last
 * call, and whole rings if there is a new object. On the thread that calls trace_copy_begin(). */
void trace_keep(const struct trace_keep_object *objects, size_t n);
/* Forgets everything, and frees the memory. */
void trace_keep_stop(void);

/* Writes which thread crashed, by which signal, and the fault's address or the signal's sender into the file. For crash
 * handlers: takes no lock and is async-signal-safe. */
void trace_note_crash(const struct trace_crash *crash);

/* A ring. */
struct trace_slot_stats {
	int lcore;
	char name[TRACE_THREAD_NAME_SIZE];
	bool attached;
	uint64_t num_entries;
	uint64_t recorded; /* entries written since the start */
	uint64_t wrapped;  /* those of them that have been overwritten */
	uint64_t strings_truncated;
};
/* The number of slots for rings; 0: tracing is off. */
unsigned trace_num_slots(void);
/* Statistics of a slot (0 to trace_num_slots() - 1). False: it has no ring. */
bool trace_get_slot_stats(unsigned slot, struct trace_slot_stats *stats);
/* Copies the file's LOSS section: what was not recorded, by kind. Zeroes if tracing is off. */
void trace_get_loss(struct trace_file_loss *loss);

#endif
