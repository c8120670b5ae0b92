/* SPDX-License-Identifier: BSD-3-Clause */
/* A tool's connection to the daemon's RPC socket: whole JSON messages both ways, each with a deadline. To be used by
 * one thread. */
#pragma once
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct rpc_stream;

/* Connects to the Unix socket at path. timeout_ms, not 0: the limit on waiting while the socket's backlog is full.
 * NULL: why (of why_size bytes) has the reason in words. To be closed with rpc_stream_close(). */
struct rpc_stream *rpc_stream_open(const char *path, uint64_t timeout_ms, char *why, size_t why_size);

/* NULL is fine. */
void rpc_stream_close(struct rpc_stream *s);

/* The deadline timeout_ms from now, for the functions below. */
uint64_t rpc_stream_deadline(uint64_t timeout_ms);

/* Sends len bytes; bytes received meanwhile are kept for rpc_stream_receive(). 0, -ETIMEDOUT, -ECONNRESET and -ENOMEM
 * as there, or the negative errno of send(2). */
int rpc_stream_send(struct rpc_stream *s, const char *text, size_t len, uint64_t deadline);

/* Tells the daemon that no more bytes will be sent. */
void rpc_stream_end(struct rpc_stream *s);

/* Waits for the next whole message, *len bytes at *text, which belong to s and last until rpc_stream_drop() or
 * rpc_stream_close(). 0, -ETIMEDOUT, -ECONNRESET: the daemon closed, -EPROTO: it is not JSON, -ENOMEM: none left, or it
 * is larger than 256 MiB, or a negative errno. */
int rpc_stream_receive(struct rpc_stream *s, uint64_t deadline, const char **text, size_t *len);

/* Drops the message that rpc_stream_receive() returned. */
void rpc_stream_drop(struct rpc_stream *s);

/* Receives the next message as a JSON value, which the caller releases. */
int rpc_stream_receive_json(struct rpc_stream *s, uint64_t deadline, json_t **value);
