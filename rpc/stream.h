/* SPDX-License-Identifier: BSD-3-Clause */
/* JSON values that come over a stream, one behind the other: answers to a client, and what two processes say to each
 * other while one takes over (appliance/takeover.h). Pure. */
#ifndef RPC_STREAM_H
#define RPC_STREAM_H

#include <jansson.h>
#include <stddef.h>

#include "rpc/frame.h"

#define RPC_STREAM_MESSAGE_MAX ((size_t)256 * 1024 * 1024) /* bytes; longer ones are refused */

/* What has come and has not been taken yet. Zeroed at the beginning of a stream. */
struct rpc_stream_in {
	struct rpc_frame frame;
	char *buf;
	size_t len, size;
};

/* Makes room for n more bytes: they may be written to s->buf + s->len, and counted in s->len then. 0; -ENOMEM;
 * -EMSGSIZE: a message is longer than may be. */
int rpc_stream_in_room(struct rpc_stream_in *s, size_t n);
/* Appends what has come. 0, or an error of rpc_stream_in_room(). */
int rpc_stream_in_add(struct rpc_stream_in *s, const char *bytes, size_t n);
/* The text of the next message, in s's memory until rpc_stream_in_drop(). 0; -EAGAIN: it is not complete; -EBADMSG: it
 * is no JSON text. */
int rpc_stream_in_next(struct rpc_stream_in *s, const char **text, size_t *len);
/* Drops the message that rpc_stream_in_next() gave, and overwrites it. */
void rpc_stream_in_drop(struct rpc_stream_in *s);
/* Takes the next message, which the caller releases. 0; -EAGAIN: it is not complete; -EBADMSG: it is no JSON object. */
int rpc_stream_in_take(struct rpc_stream_in *s, json_t **message);
/* Frees what it holds, and overwrites it: there may be keys in it. It is zeroed then. */
void rpc_stream_in_free(struct rpc_stream_in *s);

#endif
