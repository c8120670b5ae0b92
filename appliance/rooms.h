/* SPDX-License-Identifier: BSD-3-Clause */
/* What the daemon is made of, above the threads: each room in rooms.c's table is started in its order, and stopped in
 * reverse. */
#ifndef APPLIANCE_ROOMS_H
#define APPLIANCE_ROOMS_H

#include <stddef.h>

struct room {
	const char *name;
	/* Control thread, outside of callbacks. 0, or a negative errno. */
	int (*start)(void);
	/* Begins to stop; done(arg) is called on the control thread once everything of the room is gone. */
	void (*stop)(void (*done)(void *arg), void *arg);
};

/* Starts them all. 0, or the errno of the first that failed, *failed being its name; then those before it are
 * running. */
int rooms_start(const char **failed);
/* Stops those that are running, one after the other, and waits for each. */
void rooms_stop(void);

#endif
