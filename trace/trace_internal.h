/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the recorder's files: the mapped file, and where its sections are. */
#ifndef TRACE_TRACE_INTERNAL_H
#define TRACE_TRACE_INTERNAL_H

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "trace/trace.h"
#include "util/log.h"

struct rte_memzone;

/* A file that is also a memzone; trace_map.c. */
struct trace_map {
	char path[PATH_MAX];
	char heap[32]; /* name of the external heap */
	int fd;
	uint8_t *lead; /* one anonymous page for the heap's bookkeeping; the file is mapped behind it */
	uint8_t *file;
	size_t size;
	const struct rte_memzone *zone;
	bool locked;
};

struct trace_map_opts {
	const char *path;
	const char *zone_name;
	size_t size;
	const char *group; /* or NULL */
};
/* Makes and maps the file. 0; or a negative errno, and error says what is wrong. */
int trace_map_create(struct trace_map *map, const struct trace_map_opts *opts, char *error);
/* Unmaps the file, and removes it unless keep. */
void trace_map_destroy(struct trace_map *map, bool keep);

/* One ring: slot n of section 6. */
struct trace_slot {
	struct trace_file_history *history; /* NULL: an lcore that is not in use */
	uint64_t *stamps;
	struct trace_file_slot_loss *loss;
	bool attached;
	uint64_t detach_tsc;
};

/* Protected by trace_lock, except the fields of rings that the recording threads write (record.h). */
struct trace_state {
	bool on;
	struct trace_map map;
	struct trace_file_main *main;
	struct trace_file_owner *owners;
	uint64_t *masks; /* the file's copy of trace_group_mask */
	struct trace_file_info *info;
	struct trace_file_loss *loss;
	struct trace_slot *slots;
	unsigned num_slots;
	unsigned first_user_slot;
};
extern struct trace_state trace_state;
extern pthread_mutex_t trace_lock;

/* A slot of an event that trace_keep() has kept. */
struct trace_kept_slot {
	uint32_t ring;         /* slot n of section 6 */
	bool whole;            /* it was not overwritten while it was read */
	uint64_t index, event; /* its number in the ring, and that of the event's first slot */
	struct trace_file_entry entry;
};
enum { TRACE_KEEP_SLOTS = 128 };
/* Copies what was kept of the object to `to` (TRACE_KEEP_SLOTS), in no order. Returns the number of slots. */
unsigned trace_kept_take(uint64_t id, uint64_t start_tsc, struct trace_kept_slot *to);

void trace_info_init(struct trace_file_info *info, const struct trace_opts *opts);
/* Reads the three clocks as close together as it can. Async-signal-safe. */
struct trace_file_clock trace_clock_read(void);
void trace_owners_init(void);
/* With trace_lock held. */
void trace_masks_reset(void);
/* Records a line of the log, as the log's tap. Lines of a thread without a ring are counted as lost. Any thread. */
void trace_log_line(enum log_level level, const char *file, int line, const char *text);

void trace_errorf(char *error, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
