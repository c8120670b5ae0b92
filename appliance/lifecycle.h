/* SPDX-License-Identifier: BSD-3-Clause */
/* The states of the daemon, and which event leads from one to another. Pure functions. */
#ifndef APPLIANCE_LIFECYCLE_H
#define APPLIANCE_LIFECYCLE_H

#include <stdbool.h>

/* Each state but WAIT, RUNNING and the last four is named after what starts in it (rooms.c). The trace and the probe
 * appliance_state carry these numbers. */
enum appliance_state {
	APPLIANCE_INIT,    /* nothing but the command line */
	APPLIANCE_ENV,     /* memory, cores, PCI devices */
	APPLIANCE_TRACING, /* the trace file */
	APPLIANCE_THREADS, /* reactors */
	APPLIANCE_RPC,     /* the socket */
	APPLIANCE_WAIT,    /* for framework_start_init */
	APPLIANCE_CONFIG,  /* rooms start, the configuration is loaded */
	APPLIANCE_RUNNING,
	APPLIANCE_STOPPING, /* everything stops, in the order of the table in rooms.c */
	APPLIANCE_STOPPED,
	APPLIANCE_FAILED, /* something could not be started: what was started stops */
	/* Another process takes over (hand_over.h): nothing is served. */
	APPLIANCE_HANDING_OVER,
	APPLIANCE_STATES,
};

/* How the work of a state ended. */
enum appliance_event {
	APPLIANCE_DONE,
	APPLIANCE_PAUSE,     /* the RPC socket is there, and the command line says to wait */
	APPLIANCE_STOP,      /* a signal or an RPC asked for the end of the process */
	APPLIANCE_ERROR,     /* something could not be started, or could not take over; the log says what */
	APPLIANCE_HAND_OVER, /* another process takes over */
};

/* The state that follows, or -1: in that state the event cannot occur. Any thread. */
int appliance_next_state(enum appliance_state state, enum appliance_event event);
/* To be called before the state changes: a transition that cannot be is reported, as util/state_machine.h says; false
 * then. Any thread. */
bool appliance_state_check(enum appliance_state old, enum appliance_state new_state);
/* "RUNNING"; "unknown" for a number that is no state. Any thread. */
const char *appliance_state_name(enum appliance_state state);

#endif
