/* SPDX-License-Identifier: BSD-3-Clause */
/* A tool's connection to the daemon's RPC socket: whole JSON messages both ways, each with a deadline. Of one
 * thread. */
#pragma once
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct rpc_stream;

/* Connects to the Unix socket at path, for so long (not 0) where others wait already. NULL, and why in words in why (of
 * why_size bytes). Close it with rpc_stream_close(). */
struct rpc_stream *rpc_stream_open(const char *path, uint64_t timeout_ms, char *why, size_t why_size);

/* NULL is fine. */
void rpc_stream_close(struct rpc_stream *s);

/* The deadline that is timeout_ms from now, for the functions below. */
uint64_t rpc_stream_deadline(uint64_t timeout_ms);

/* Sends len bytes, and keeps for rpc_stream_receive() what comes meanwhile. 0, -ETIMEDOUT, -ECONNRESET and -ENOMEM as
 * there, or the negative errno of send(2). */
int rpc_stream_send(struct rpc_stream *s, const char *text, size_t len, uint64_t deadline);

/* No more will be sent. */
void rpc_stream_end(struct rpc_stream *s);

/* Waits for the next whole message, *len bytes at *text, which belong to s and last until rpc_stream_drop() or
 * rpc_stream_close(). 0, -ETIMEDOUT, -ECONNRESET: the daemon closed, -EPROTO: it is not JSON, -ENOMEM: none left, or it
 * is larger than 256 MiB, or a negative errno. */
int rpc_stream_receive(struct rpc_stream *s, uint64_t deadline, const char **text, size_t *len);

/* The message that rpc_stream_receive() returned has been read. */
void rpc_stream_drop(struct rpc_stream *s);

/* Both of the above: the next message as a value that the caller releases. */
int rpc_stream_receive_json(struct rpc_stream *s, uint64_t deadline, json_t **value);
