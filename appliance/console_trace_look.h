/* SPDX-License-Identifier: BSD-3-Clause */
/* A look at the recorder's own rings, for the console: what was recorded last, with the lives of its objects. Reads the
 * trace file as varve-trace does, so no reactor notices. Meant for a worker thread: uses nothing that others have. */
#ifndef APPLIANCE_CONSOLE_TRACE_LOOK_H
#define APPLIANCE_CONSOLE_TRACE_LOOK_H

#include <stdbool.h>
#include <stdint.h>

#include "appliance/console_query.h"
#include "trace/reader.h"

#define LOOK_SHOWN_MAX  100 /* events that were asked for */
#define LOOK_EVENTS_MAX 600 /* with those that belong to the same lives */
#define LOOK_NO_FAMILY  UINT32_MAX

/* One event, as texts. Texts may have bytes that are not UTF-8, and may end in the middle of a character. */
struct look_event {
	uint64_t tsc;
	uint64_t at_ns;       /* since the oldest event that the look has read */
	uint64_t realtime_us; /* 0: not known */
	uint64_t state_ns;    /* since the object's previous event; TRACE_NO_TIME: not known */
	uint32_t lcore;
	uint32_t size;
	/* The same number: the objects of these events descend from the same topmost object, and all events of it and
	 * of its descendants are here. LOOK_NO_FAMILY: no object, or there was no room for its family. */
	uint32_t family;
	bool shown; /* it was asked for */
	char thread[TRACE_THREAD_NAME_SIZE + 1];
	char owner[192];
	char tpoint[25];
	char object[12], parent[12]; /* "i3fa21c"; "": none */
	char args[192];              /* "offset: 12010, qd: 1" */
};

struct look_result {
	char error[320];  /* "": none */
	uint64_t entries; /* at most so many of each ring were read */
	size_t matching;  /* events that were asked for; the newest of them are shown */
	size_t n;         /* in the order of time */
	struct look_event events[LOOK_EVENTS_MAX];
};

/* Reads the newest entries of the file, and picks those that q asks for. secret: objects are named by a hash of their
 * address with it, because addresses are nothing for everybody who reaches the console. Errors are in r->error. */
void look_take(const char *path, const struct console_trace_query *q, uint64_t secret, struct look_result *r);

#endif
