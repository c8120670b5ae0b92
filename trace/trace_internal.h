/* SPDX-License-Identifier: BSD-3-Clause */
/* What the recorder's files share: the mapped file and where its sections are. */
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

/* A file that is a memzone; trace_map.c. */
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
/* Negative errno, and error filled in. */
int trace_map_create(struct trace_map *map, const struct trace_map_opts *opts, char *error);
/* Gives everything back; the file stays if keep, with its contents. */
void trace_map_destroy(struct trace_map *map, bool keep);

/* One ring: slot n of section 6. */
struct trace_slot {
	struct trace_file_history *history; /* NULL: an lcore that is not in use */
	uint64_t *stamps;
	struct trace_file_slot_loss *loss;
	bool attached;
	uint64_t detach_tsc;
};

/* All of it under trace_lock, except what record.h's threads own. */
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

void trace_info_init(struct trace_file_info *info, const struct trace_opts *opts);
/* Reads the three clocks as close together as it can. Async-signal-safe. */
struct trace_file_clock trace_clock_read(void);
void trace_owners_init(void);
/* With trace_lock held. */
void trace_masks_reset(void);
/* What the log tells while tracing is on; of a thread without a ring it is counted as lost. Any thread. */
void trace_log_line(enum log_level level, const char *file, int line, const char *text);

void trace_errorf(char *error, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
