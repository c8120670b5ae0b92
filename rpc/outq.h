/* SPDX-License-Identifier: BSD-3-Clause */
/* Answers on their way out of a socket that takes them when it likes. */
#ifndef RPC_OUTQ_H
#define RPC_OUTQ_H

#include <stddef.h>
#include <sys/queue.h>

struct rpc_out;

struct rpc_outq {
	STAILQ_HEAD(, rpc_out) queue;
	size_t bytes;
};

void rpc_outq_init(struct rpc_outq *q);
/* text (from malloc()) becomes the queue's, unless -ENOMEM. */
int rpc_outq_add(struct rpc_outq *q, char *text, size_t len);
/* Sends what fd takes without blocking: 1 if it took something, 0 if not, or a negative errno. */
int rpc_outq_send(struct rpc_outq *q, int fd);
void rpc_outq_clear(struct rpc_outq *q);

static inline size_t rpc_outq_bytes(const struct rpc_outq *q)
{
	return q->bytes;
}

#endif
