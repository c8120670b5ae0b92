/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sender's work in the receiver's queues: taking the next receive, publishing the completion, failing the queue
 * pair. All functions run inside a busy section, change memory that the receiver owns, and never wait.
 */
#include "softverbs/softverbs.h"

#define MAX_CLAIM_TRIES 65536 /* attempts; a queue in which none succeeds is damaged */

static enum sv_block take_own_ring(struct sv_remote *rem, uint32_t *slot)
{
	uint32_t head = atomic_load_explicit(&rem->qp->rq_head, memory_order_relaxed);
	uint32_t tail = atomic_load_explicit(&rem->qp->rq_tail, memory_order_acquire);

	if (head == tail) {
		/* Asks for a kick, and looks again, since the receiver stores the tail before it looks at want. */
		atomic_fetch_or(&rem->qp->want, SV_WANT_RECEIVE);
		tail = atomic_load(&rem->qp->rq_tail);
		if (head == tail) {
			return SV_BLOCK_RNR;
		}
	}
	if (tail - head > rem->ring.size) {
		return SV_BLOCK_PEER;
	}
	atomic_store_explicit(&rem->qp->rq_head, head + 1, memory_order_release);
	*slot = head & (rem->ring.size - 1);
	return SV_BLOCK_NONE;
}

/* Raises the limit event if fewer receives are left than the owner's limit (InfiniBand 10.2.9.4). */
static void check_limit(struct sv_remote *rem, uint32_t left)
{
	uint32_t limit = atomic_load_explicit(&rem->srq->limit, memory_order_relaxed);

	if (limit != 0 && left < limit && atomic_compare_exchange_strong(&rem->srq->limit, &limit, 0)) {
		atomic_store(&rem->srq->limit_reached, 1);
		sv_kick(rem->kick_fd);
	}
}

static enum sv_block take_shared(struct sv_remote *rem, uint32_t *slot)
{
	struct sv_srq_shm *srq = rem->srq;

	if (atomic_load(&srq->gen) != rem->srq_gen) {
		return SV_BLOCK_PEER;
	}
	for (uint32_t tries = 0; tries < MAX_CLAIM_TRIES; tries++) {
		uint32_t head = atomic_load(&srq->head), tail = atomic_load(&srq->tail), i;
		uint64_t free = (uint64_t)head << 32;

		if (head == tail) {
			atomic_store(&srq->want, 1);
			if (head == atomic_load(&srq->tail)) {
				return SV_BLOCK_RNR;
			}
			continue;
		}
		i = atomic_load_explicit(&rem->order[head & (rem->ring.size - 1)], memory_order_relaxed);
		if (tail - head > rem->ring.size || i >= rem->ring.size) {
			continue; /* the head has moved on, or a peer wrote nonsense */
		}
		/* A claim has the position of the posting, so a claim with an old head fails. */
		if (atomic_compare_exchange_strong(&sv_ring_slot(&rem->ring, i)->claim, &free, free | rem->qpn)) {
			atomic_compare_exchange_strong(&srq->head, &head, head + 1);
			check_limit(rem, tail - (uint32_t)(free >> 32) - 1);
			*slot = i;
			return SV_BLOCK_NONE;
		}
		/* Taken already. Move the head in place of the taker, which may be dead. */
		atomic_compare_exchange_strong(&srq->head, &head, head + 1);
	}
	return SV_BLOCK_PEER;
}

enum sv_block sv_deliver_take(struct sv_qp *qp, uint32_t *slot)
{
	return qp->rem.srq != NULL ? take_shared(&qp->rem, slot) : take_own_ring(&qp->rem, slot);
}

void sv_deliver_untake(struct sv_qp *qp)
{
	/* In a shared receive queue the claim stays until the receiver's queue pair is destroyed. */
	if (qp->rem.srq == NULL) {
		atomic_fetch_sub(&qp->rem.qp->rq_head, 1);
	}
}

bool sv_deliver_publish(struct sv_qp *qp, const struct sv_rcqe *rcqe, bool solicited)
{
	struct sv_remote *rem = &qp->rem;
	uint32_t tail = atomic_load_explicit(&rem->qp->rcq_tail, memory_order_relaxed);

	if (!sv_cq_reserve(rem->cq)) {
		return false;
	}
	rem->rcq[tail & (rem->rcq_size - 1)] = *rcqe;
	atomic_store_explicit(&rem->qp->rcq_tail, tail + 1, memory_order_release); /* pairs with sv_recv_next() */
	atomic_fetch_or(&rem->cq->ready, rem->cq_bit);                             /* pairs with poll_remote() */
	sv_cq_notify(rem->cq, solicited || rcqe->status != IBV_WC_SUCCESS, rem->channel_fd);
	return true;
}

void sv_deliver_fail(struct sv_qp *qp, uint32_t events)
{
	struct sv_qp_shm *shm = qp->rem.qp;
	uint32_t state = atomic_load(&shm->state);

	while (state != IBV_QPS_ERR && state != IBV_QPS_RESET &&
	       !atomic_compare_exchange_weak(&shm->state, &state, IBV_QPS_ERR)) {
	}
	atomic_fetch_or(&shm->events, events);
	sv_kick(qp->rem.kick_fd);
}
