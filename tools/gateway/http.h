/* SPDX-License-Identifier: BSD-3-Clause */
/* The gateway's HTTP side: from a request to its answer. */
#ifndef TOOLS_GATEWAY_HTTP_H
#define TOOLS_GATEWAY_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/gateway/backend.h"
#include "tools/gateway/login.h"

#define GATEWAY_BODY_MAX (4u << 20) /* bytes; the daemon's own limit of a message */

struct gateway_http {
	struct gateway_backend *backend;
	struct gateway_login *login;
	unsigned max_connections;
	bool tls;
	unsigned busy; /* requests between their head and their answer; atomic */
};

/* Serves on the listening socket fd, which the HTTP library owns from then on, with a thread for each connection. h
 * must stay until gateway_http_stop(). NULL: it cannot. */
struct MHD_Daemon *gateway_http_start(struct gateway_http *h, int fd);
/* Takes no more connections, and waits up to limit_ms for the requests that have begun. False: some have not ended;
 * nothing is freed then. */
bool gateway_http_stop(struct gateway_http *h, struct MHD_Daemon *d, unsigned limit_ms);

#endif
