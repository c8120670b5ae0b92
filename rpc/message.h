/* SPDX-License-Identifier: BSD-3-Clause */
/* Decodes a whole message (rpc/frame.h) into calls: JSON-RPC 2.0 requests, notifications and batches. Pure.
 *
 * Numbers that the JSON library would refuse or round (integers beyond int64_t, reals beyond double) are accepted: in
 * the tree they are strings that begin with RPC_BIG_NUMBER, followed by the number as the client wrote it.
 * rpc_big_number() recognizes them. */
#ifndef RPC_MESSAGE_H
#define RPC_MESSAGE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define RPC_WHY_MAX   256
#define RPC_BATCH_MAX 1024

struct rpc_call {
	char *id;           /* the id's JSON text as the client wrote it, to be echoed; NULL: a notification, which is
			       never answered */
	const char *method; /* owned by the message, like params */
	json_t *params;     /* an object, or NULL when there are none */
	int error;          /* 0, or the RPC_ERROR_* of the answer, whose message is why */
	char why[RPC_WHY_MAX];
};

struct rpc_message {
	bool batch; /* answered by one array */
	size_t n_calls;
	struct rpc_call *calls; /* a message that cannot be decoded is one call with an error and the id null */
	json_t *tree;
};

/* Decodes text into m. 0, also for a message that is wrong (then its calls have errors); or -ENOMEM, and there is
 * nothing to free. */
int rpc_message_decode(const char *text, size_t len, struct rpc_message *m);
/* Frees everything that m owns. */
void rpc_message_free(struct rpc_message *m);

#define RPC_BIG_NUMBER '\x7f'
/* The text of a number that was too big for the tree, or NULL if value is not one. */
const char *rpc_big_number(const json_t *value);

#endif
