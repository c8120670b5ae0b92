/* SPDX-License-Identifier: BSD-3-Clause */
/* What two processes say to each other while one takes over (takeover.h): JSON objects, one behind the other. Pure. */
#ifndef APPLIANCE_TAKEOVER_STREAM_H
#define APPLIANCE_TAKEOVER_STREAM_H

#include <jansson.h>
#include <stddef.h>

#include "rpc/frame.h"

#define TAKEOVER_MESSAGE_MAX (256 * 1024 * 1024) /* bytes; longer ones are refused */

/* What has come and has not been taken yet. Zeroed at the beginning of a stream. */
struct takeover_stream {
	struct rpc_frame frame;
	char *buf;
	size_t len, size;
};

/* Appends what has come. 0; -ENOMEM; -EMSGSIZE: a message is longer than may be. */
int takeover_stream_add(struct takeover_stream *s, const char *bytes, size_t n);
/* Takes the next message, which the caller releases. 0; -EAGAIN: it is not complete; -EBADMSG: it is no JSON object. */
int takeover_stream_take(struct takeover_stream *s, json_t **message);
/* Frees what it holds, and overwrites it: there may be keys in it. It is zeroed then. */
void takeover_stream_free(struct takeover_stream *s);

#endif
