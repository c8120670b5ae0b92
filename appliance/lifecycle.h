/* SPDX-License-Identifier: BSD-3-Clause */
/* The states of the daemon's life, and what leads from one to another. Pure. */
#ifndef APPLIANCE_LIFECYCLE_H
#define APPLIANCE_LIFECYCLE_H

/* The numbers are those in the trace and in the probe appliance_state. */
enum appliance_state {
	APPLIANCE_INIT,    /* nothing but the command line */
	APPLIANCE_ENV,     /* memory, cores, PCI devices */
	APPLIANCE_TRACING, /* the trace file */
	APPLIANCE_THREADS, /* reactors */
	APPLIANCE_RPC,     /* the socket */
	APPLIANCE_WAIT,    /* for framework_start_init */
	APPLIANCE_CONFIG,  /* rooms start, the configuration is loaded */
	APPLIANCE_RUNNING,
	APPLIANCE_STOPPING, /* rooms stop, and everything else in reverse */
	APPLIANCE_STOPPED,
	APPLIANCE_FAILED, /* could not start: what was started stops */
	APPLIANCE_STATES,
};

/* What an action of a state ends with. */
enum appliance_event {
	APPLIANCE_DONE,
	APPLIANCE_PAUSE, /* the RPC socket is there, and the command line says to wait */
	APPLIANCE_STOP,  /* somebody wants it to stop */
	APPLIANCE_ERROR,
};

/* The state that follows, or -1: in that state the event cannot be. */
int appliance_next_state(enum appliance_state state, enum appliance_event event);
const char *appliance_state_name(enum appliance_state state);

#endif
