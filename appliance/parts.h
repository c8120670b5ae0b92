/* SPDX-License-Identifier: BSD-3-Clause */
/* Starts and stops the parts that a daemon is made of, in the order of a table. rooms.c has varve's. */
#ifndef APPLIANCE_PARTS_H
#define APPLIANCE_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "appliance/lifecycle.h"

#define PART_ERROR_MAX 4096
#define PARTS_MAX      64

/* A row of the table. All functions run on the control thread, outside of its loop. */
struct part {
	const char *name;          /* for the log: "cannot start NAME", "still waiting for NAME to stop" */
	enum appliance_state when; /* the daemon's state in which the part is started */
	/* 0, or a negative errno; then the part is as if it had never been started, and error (PART_ERROR_MAX bytes)
	 * says why, or is left empty. NULL: the part needs no start, but is stopped as if it had been started. */
	int (*start)(char *error);
	/* At most one of the two; none: the part needs no stop. */
	void (*stop)(void); /* everything of the part is gone when this function returns */
	/* Begins to stop. done(arg) is called on the control thread, perhaps at once, when everything of the part is
	 * gone. The control loop must run until then: reactors have been started and are stopped later. */
	void (*stop_slow)(void (*done)(void *arg), void *arg);
};

/* The table, and which of its rows are running. */
struct parts {
	const struct part *table;
	size_t n;           /* rows, at most PARTS_MAX */
	uint64_t report_us; /* the log names a part that takes longer to stop, each time this has passed */
	uint64_t running;   /* bit i: row i has been started and not been stopped; zero-initialised */
};

/* Starts the parts of a state that are not running, in the order of the table. 0, or the error of the first that could
 * not be started; error (PART_ERROR_MAX bytes) then has a message for the log. The parts before it stay started.
 * Control thread, outside of its loop. */
int parts_start(struct parts *p, enum appliance_state when, char *error);

/* Stops all parts that were started in the state `first` or a later one, in the reverse order of the table, each when
 * the one before is gone. Control thread, outside of its loop. */
void parts_stop(struct parts *p, enum appliance_state first);
/* The same with the row of that name and all rows below it, whatever their states; the first row of that name counts.
 */
void parts_stop_from(struct parts *p, const char *name);

#endif
