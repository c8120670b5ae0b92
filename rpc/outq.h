/* SPDX-License-Identifier: BSD-3-Clause */
/* A queue of answers that wait until a socket takes them. Control thread. */
#ifndef RPC_OUTQ_H
#define RPC_OUTQ_H

#include <stddef.h>
#include <sys/queue.h>

struct rpc_out;

struct rpc_outq {
	STAILQ_HEAD(, rpc_out) queue;
	size_t bytes;
};

/* Makes q empty, without freeing anything. */
void rpc_outq_init(struct rpc_outq *q);
/* Appends text, of malloc(). 0: the queue owns it now; -ENOMEM: the caller still does. */
int rpc_outq_add(struct rpc_outq *q, char *text, size_t len);
/* Sends as much as fd takes without blocking. 1: fd took something; 0: it took nothing; or a negative errno. */
int rpc_outq_send(struct rpc_outq *q, int fd);
/* Frees all that is queued. */
void rpc_outq_clear(struct rpc_outq *q);

/* Bytes that are queued. */
static inline size_t rpc_outq_bytes(const struct rpc_outq *q)
{
	return q->bytes;
}

#endif
