/* SPDX-License-Identifier: BSD-3-Clause */
/* The last hour of the node, its subsystems, hosts, paths and bdevs, for the console. Sampled once a second while the
 * console is served, without waiting for a reactor. Memory is bounded: CONSOLE_SERIES_MAX series of a fixed size, less
 * than 10 MB. Control thread. */
#ifndef APPLIANCE_CONSOLE_HISTORY_H
#define APPLIANCE_CONSOLE_HISTORY_H

#include "appliance/console_query.h"
#include "appliance/console_series.h"

#define CONSOLE_SERIES_MAX 1400

struct console_series {
	enum console_kind kind;
	char *name;
	struct series *series;
	uint64_t faults;       /* of a bdev: I/O that failed for a fault of the device, ever */
	uint64_t faults_ticks; /* when that was seen to grow; 0: never */
	/* Private. */
	struct series_counters now;
	uint64_t seen;
	struct console_series *next_in_bucket;
	struct console_series *next;
};

/* Begins to sample; there are no series. */
void console_history_start(void);
/* Ends that and frees all. Also if it was not started. */
void console_history_stop(void);
/* The series one by one, in no order: NULL for the first; NULL: no more. Those of objects that are gone included, for
 * an hour. */
const struct console_series *console_series_next(const struct console_series *after);
/* NULL: there is none. */
const struct console_series *console_series_find(enum console_kind kind, const char *name);
/* Whether its object was there in the last second. */
bool console_series_is_live(const struct console_series *s);
/* How many objects have no series, because there are too many. */
unsigned console_series_left_out(void);
/* The bytes that all series take. */
size_t console_history_bytes(void);

#endif
