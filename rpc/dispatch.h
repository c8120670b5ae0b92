/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs methods, and keeps a list of the calls that have not been answered yet. Control thread. */
#ifndef RPC_DISPATCH_H
#define RPC_DISPATCH_H

#include "rpc/rpc.h"

/* The origin of a call, for the trace. */
struct rpc_origin {
	uint32_t client; /* a number of its own for each connection; 0: none */
	uint32_t bytes;  /* of the message */
	int fd;          /* of the connection, unless client is 0 */
};
/* Runs a method as rpc_call_method() does, but for a client: a method that the state does not allow is refused, and the
 * deadline applies. */
void rpc_dispatch(const struct rpc_origin *origin, const char *method, json_t *params, rpc_done_fn done, void *arg);

/* The number of calls that have not ended, those past their deadline included. */
size_t rpc_outstanding(void);
struct rpc_call_info {
	const char *method;
	uint32_t client; /* as in struct rpc_origin */
	uint64_t age_us;
	bool timed_out;        /* past its deadline: the client has been answered with -ETIMEDOUT */
	const char *waits_for; /* NULL: its method does not tell; valid during the call of fn */
};
/* Calls fn(arg, info) for each of those calls, the oldest first. */
void rpc_for_each_call(void (*fn)(void *arg, const struct rpc_call_info *info), void *arg);
/* To be called about once a second while rpc_outstanding() is not 0. Logs each slow call once, and answers each call
 * that is past its deadline. */
void rpc_check_calls(void);

/* True if jansson, or a helper of answer.c, got no memory since the last call of this function: a JSON tree that was
 * built meanwhile may be incomplete. */
bool rpc_json_was_refused(void);

/* The answer as text for the wire, which the caller frees, and its length; NULL: no memory. id: the JSON text of the
 * call's id, which is echoed. */
char *rpc_answer_text(const char *id, const struct rpc_answer *answer, size_t *len);

#endif
