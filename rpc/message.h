/* SPDX-License-Identifier: BSD-3-Clause */
/* One whole message (see rpc/frame.h) into calls: JSON-RPC 2.0 requests, notifications and batches. Pure.
 *
 * Numbers that the JSON library would refuse or round (integers beyond int64_t, reals beyond double) do not
 * void a message: they arrive as strings that begin with RPC_BIG_NUMBER and go on as they were written;
 * rpc_big_number() recognizes them. */
#ifndef RPC_MESSAGE_H
#define RPC_MESSAGE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define RPC_WHY_MAX   256
#define RPC_BATCH_MAX 1024

struct rpc_call {
	char *id;           /* the id's JSON text as it came, to be echoed; NULL: a notification, which is never
			       answered */
	const char *method; /* owned by the message, like params */
	json_t *params;     /* an object, or NULL when there are none */
	int error;          /* 0, or the RPC_ERROR_* to answer with */
	char why[RPC_WHY_MAX];
};

struct rpc_message {
	bool batch; /* answered by one array */
	size_t n_calls;
	struct rpc_call *calls; /* a message that cannot be understood is one call with an error and the id null */
	json_t *tree;
};

/* 0, or -ENOMEM: then there is nothing to free. */
int rpc_message_decode(const char *text, size_t len, struct rpc_message *m);
void rpc_message_free(struct rpc_message *m);

#define RPC_BIG_NUMBER '\x7f'
/* The text of a number that was too big for the tree, or NULL if value is not one. */
const char *rpc_big_number(const json_t *value);

#endif
