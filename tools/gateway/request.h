/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks the body of a POST before it goes to the daemon. Pure.
 *
 * Framing and parsing are the daemon's own (rpc/frame.h, rpc_json_load()). So the methods that are checked here are
 * those that the daemon will execute: a key that stands twice, a second message behind the first, an escaped key and a
 * number that is too big mean the same, or are the same error, on both sides. */
#ifndef TOOLS_GATEWAY_REQUEST_H
#define TOOLS_GATEWAY_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/gateway/roles.h"

#define GATEWAY_METHOD_MAX 128

struct gateway_request {
	size_t begin, end;               /* the message in the body */
	bool answered;                   /* a call has an id, so that an answer must come */
	char method[GATEWAY_METHOD_MAX]; /* the first one, or the one that is refused; cut off if longer; for the log */
	char why[256];                   /* of a status other than 200 */
};

/* Checks a body of len bytes, behind which is a NUL byte, for a user with this role. 200: it may be sent. 400: it is
 * not one JSON-RPC request or batch. 403: the role may not call one of its methods. 500: no memory. */
unsigned gateway_request_check(const char *body, size_t len, enum gateway_role role, struct gateway_request *r);

#endif
