/* SPDX-License-Identifier: BSD-3-Clause */
/* What requests for series, for history and for the trace ask for. Pure. */
#ifndef APPLIANCE_CONSOLE_QUERY_H
#define APPLIANCE_CONSOLE_QUERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum console_kind {
	CONSOLE_NODE,
	CONSOLE_SUBSYSTEM,
	CONSOLE_HOST,
	CONSOLE_PATH, /* a host's way to a subsystem: named "HOSTNQN SUBNQN" */
	CONSOLE_BDEV,
	CONSOLE_KINDS,
};
/* "bdev" ... */
const char *console_kind_name(enum console_kind kind);

#define CONSOLE_NAME_MAX 512 /* bytes of the name of a series, with the NUL */

struct console_history_query {
	enum console_kind kind;
	char name[CONSOLE_NAME_MAX];
	uint32_t step_s; /* seconds from a point to the next one: 1 or SERIES_COARSE_STEP */
	uint32_t points; /* at most, the newest: SERIES_FINE, SERIES_COARSE or SERIES_NODE_FINE */
};

/* The kind of "kind=bdev". False: there is none of that name, or kind is missing. */
bool console_query_kind(const char *query, size_t len, enum console_kind *kind);
/* Parses "kind=KIND&name=NAME&span=SPAN&step=STEP". span: minutes (if it is missing), with a step of 1, or hour, with a
 * step of 10 (if it is missing) or, of the node only, 1. False: there is no such history. */
bool console_query_history(const char *query, size_t len, struct console_history_query *q);

struct console_trace_query {
	int group;     /* of tracepoints; -1: all */
	char text[64]; /* that the owner, the tracepoint, the object, its parent or the thread contains; "": all */
};
/* Parses "group=NAME&text=TEXT", of which each may be missing; an empty one means all. False: there is no such group,
 * or a value is not well-formed. */
bool console_query_trace(const char *query, size_t len, struct console_trace_query *q);

#endif
