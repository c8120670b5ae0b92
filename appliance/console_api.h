/* SPDX-License-Identifier: BSD-3-Clause */
/* What the console's page asks for, as JSON. Control thread. */
#ifndef APPLIANCE_CONSOLE_API_H
#define APPLIANCE_CONSOLE_API_H

#include <stdint.h>

#include "appliance/blackbox_files.h"
#include "appliance/metrics_http.h"

struct json_t;
/* The answer to a route from HTTP_STATE on. NULL: there is no memory; or (HTTP_HISTORY) there is no such series. Texts
 * are as hosts and operators gave them, with U+FFFD for what is not UTF-8. */
struct json_t *console_answer(enum http_route route, const char *query, size_t query_len);

struct console_copy {
	int fd;
	uint64_t bytes;
	char name[BLACKBOX_COPY_NAME_MAX];
};
/* Opens the copy of the black box that a query names ("name=NAME") for who asks at the Unix socket peer_fd. 0: the
 * caller closes copy->fd. Otherwise copy->fd is -1: -ENOENT: there is no such copy, -EPERM: its file is not for who
 * asks, or another negative errno. */
int console_copy_open(const char *query, size_t query_len, int peer_fd, struct console_copy *copy);

/* Private to console_*.c. */

/* What is wrong, the worst first: [{severity, text, next}], as varve-doctor would say it of a running daemon. */
struct json_t *console_findings(void);
/* {subsystems: [...], bdevs: [...]}: who uses what. */
struct json_t *console_topology(void);
/* The copies of the black box, the newest first: {directory, offered, complete, error?, copies: [{name, bytes, time,
 * cause}]}. error: why the folder cannot be read; complete: false: it cannot, or there may be copies beyond the entries
 * that a listing looks at. */
struct json_t *console_copies(void);
/* What the recorder has: {groups: [{name, on}], state: "off", "busy", "pending", "done" or "failed", error, events:
 * [...], matching, entries, ago_us}. "pending": a worker thread looks; ask again. NULL: the query is none. An event is
 * {shown, family, ...}: those that are not shown are there for the lives of those that are. */
struct json_t *console_trace(const char *query, size_t query_len);
/* Forgets all looks at the trace; one that is under way ends by itself. */
void console_trace_stop(void);
/* Runs the control thread's loop until no look is under way. Not from a callback of the loop. */
void console_trace_wait(void);
/* Outstanding commands, the oldest first: [...]. */
struct json_t *console_inflight(void);
struct nvmf_inflight;
/* Merges what a look for younger commands found into the list of the n oldest ones. A look that found less than max
 * found all, and what it found replaces the list; otherwise the list is kept, and what is new is added up to max.
 * Returns the length of the list, which has room for max. Pure. */
size_t console_inflight_merge(struct nvmf_inflight *list, size_t n, const struct nvmf_inflight *found, size_t n_found,
			      size_t max);

#endif
