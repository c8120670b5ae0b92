/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of methods of another process, through its RPC socket. Nothing blocks. Control thread. */
#ifndef RPC_REMOTE_H
#define RPC_REMOTE_H

#include <jansson.h>
#include <stdint.h>

struct rpc_remote;

/* How a call ended. */
struct rpc_remote_answer {
	int code;             /* 0; what the other process answered as the error's code; RPC_REMOTE_NO_ANSWER */
	const json_t *result; /* of code 0; borrowed */
	const char *message;  /* of an error: why, in words */
};
/* The other process could not be reached, or did not answer in time, or its answer makes no sense. Whether it has
 * carried the call out is unknown. */
#define RPC_REMOTE_NO_ANSWER INT32_MIN

/* Called once, never before rpc_remote_call() has returned. The call is freed after it. */
typedef void (*rpc_remote_done_fn)(void *arg, const struct rpc_remote_answer *answer);

/* Calls a method of the process whose RPC socket is at path, on a connection of its own. params is consumed. The
 * process must be of this process's effective user or of root; nothing is sent to others. timeout_ms, not 0: how long
 * it may take from now on; when this process did not run for a while, an answer that has arrived counts nevertheless.
 * NULL: no memory; done is not called. */
struct rpc_remote *rpc_remote_call(const char *path, const char *method, json_t *params, uint32_t timeout_ms,
				   rpc_remote_done_fn done, void *arg);
/* Gives a call up: done is not called. The other process may carry it out nevertheless. */
void rpc_remote_cancel(struct rpc_remote *r);

#endif
