/* SPDX-License-Identifier: BSD-3-Clause */
/* Metrics in the Prometheus text format, and the console, over HTTP on a Unix socket or on the loopback address. Off
 * unless asked for. Control thread.
 *
 *     metrics_http.c, metrics_address.c, metrics_text.c    the protocol, the addresses, the format: pure
 *     metrics_collect.c                                    what is told; a file per room: metrics_threads.c,
 *                                                          metrics_bdev.c, metrics_nvmf.c, metrics_qpairs.c
 *     metrics.c                                            connections
 *     metrics_peer.c                                       who asks, at a Unix socket
 *     metrics_rpc.c                                        metrics_start and its like
 *     console_api.c, console_copies.c, console_findings.c, console_topology.c    what the console's page asks for
 *     console_history.c, console_series.c                  the last hour
 *     console_trace.c, console_trace_look.c                what the recorder has: who looks when, and a look
 *     console_query.c                                      what is asked for: pure
 *     console/                                             the page */
#ifndef APPLIANCE_METRICS_H
#define APPLIANCE_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "appliance/metrics_address.h"
#include "appliance/metrics_text.h"

/* Listens. saved: save_config writes it. copies: hands out the copies of the black box, to who may
 * read their files; only at a unix: address, because nothing tells who asks at 127.0.0.1. 0, or a negative errno
 * and error (METRICS_ERROR_MAX bytes): -EINVAL: no such address, or copies at another one, -EALREADY: it listens,
 * -EADDRINUSE ... */
int metrics_start(const char *address, bool saved, bool copies, char *error);
/* Stops to listen and closes all connections. 0; -ENOENT: it did not listen. */
int metrics_stop(void);

struct metrics_status {
	const char *address; /* as Prometheus is to be given it, with the port in use; NULL: off */
	bool saved, copies;
	const char *saved_address; /* as it was given */
	unsigned connections;
	uint64_t requests, scrapes, refused; /* refused: answered otherwise than with metrics */
	uint64_t dropped; /* connections ended because they took too long, were too many, or a copy became shorter */
	uint64_t copies_paused; /* how often a copy had to wait for the next second */
};
/* Fills in status; its texts stay until metrics_stop(). */
void metrics_get_status(struct metrics_status *status);

/* Writes all metrics. It asks reactors, so it takes a few microseconds per thread and device. */
void metrics_collect(struct metrics_text *m);

#endif
