/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs methods, and keeps those that have not answered yet. */
#ifndef RPC_DISPATCH_H
#define RPC_DISPATCH_H

#include "rpc/rpc.h"

/* Where a call came from, for the trace. */
struct rpc_origin {
	uint32_t client; /* a number of its own for each connection; 0: none */
	uint32_t bytes;  /* of the message */
};
/* As rpc_call_method(), for a client: refuses what the state does not allow. */
void rpc_dispatch(const struct rpc_origin *origin, const char *method, json_t *params, rpc_done_fn done, void *arg);

/* Calls that have not ended: how many; and each of them, the oldest first. */
size_t rpc_outstanding(void);
struct rpc_call_info {
	const char *method;
	uint32_t client; /* as in struct rpc_origin */
	uint64_t age_us;
	bool timed_out; /* its client has been told that it goes on */
};
void rpc_for_each_call(void (*fn)(void *arg, const struct rpc_call_info *info), void *arg);
/* To be called about once a second while there are any: one log line for each that has been waiting longer than it
 * should, and an answer for each that is past its deadline. */
void rpc_check_calls(void);

/* True once after jansson, or a helper of answer.c, got no memory: a tree that was built since may lack parts. */
bool rpc_json_was_refused(void);

/* The answer as it goes onto the wire, with the id's own text; NULL: no memory. The caller frees it. */
char *rpc_answer_text(const char *id, const struct rpc_answer *answer, size_t *len);

#endif
