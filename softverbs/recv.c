/* SPDX-License-Identifier: BSD-3-Clause */
/* The receiving side: posts receives, and makes completions from what peers have published. */
#include <stdlib.h>

#include "softverbs/softverbs.h"

void sv_recv_store(struct sv_recv *recv, struct sv_slot *slot, const struct ibv_recv_wr *wr)
{
	uint32_t n = (uint32_t)wr->num_sge;

	recv->wr_id = wr->wr_id;
	recv->num_sge = n;
	recv->posted = 1;
	memcpy(recv->sge, wr->sg_list, n * sizeof(*wr->sg_list));
	slot->num_sge = n;
	memcpy(slot->sge, wr->sg_list, n * sizeof(*wr->sg_list));
}

static int recv_post_one(struct sv_qp *qp, const struct ibv_recv_wr *wr)
{
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->cap.max_recv_sge) {
		return EINVAL;
	}
	if (qp->rq_posted - atomic_load_explicit(&qp->rq_polled, memory_order_acquire) >= qp->cap.max_recv_wr) {
		return ENOMEM;
	}
	if (qp->rq_flushed) {
		sv_cq_push(sv_cq(qp->ex.qp_base.recv_cq),
			   &(struct sv_cqe){.qp = qp,
					    .wr_id = wr->wr_id,
					    .status = IBV_WC_WR_FLUSH_ERR,
					    .opcode = IBV_WC_RECV,
					    .recv = true},
			   true);
		qp->rq_posted++;
		return 0;
	}
	sv_recv_store(sv_qp_recv(qp, qp->rq_posted), sv_ring_slot(&qp->ring, qp->rq_posted), wr);
	qp->rq_posted++;
	return 0;
}

/* Kicks a sender that found no receive, so that it tries again. */
static void wake_sender(struct sv_qp *qp)
{
	if ((atomic_load(&qp->shm->want) & SV_WANT_RECEIVE) != 0) {
		sv_kick_self(); /* the control thread, which may use the sender's descriptor, does it */
	}
}

int sv_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct sv_qp *qp = sv_qp(ibv);
	int rc = 0;

	if (ibv->srq != NULL || sv_qp_state(qp) == IBV_QPS_RESET) {
		*bad_wr = wr;
		return EINVAL;
	}
	pthread_mutex_lock(&qp->rq_lock);
	for (; wr != NULL && rc == 0; wr = wr->next) {
		rc = recv_post_one(qp, wr);
		if (rc != 0) {
			*bad_wr = wr;
		}
	}
	if (!qp->rq_flushed) {
		/* Sequentially consistent with the look at want; pairs with sv_deliver_take(). */
		atomic_store(&qp->shm->rq_tail, qp->rq_posted);
	}
	pthread_mutex_unlock(&qp->rq_lock);
	wake_sender(qp);
	return rc;
}

/* Copies a small message from the ring to its place. The scatter list is our private copy. */
static bool recv_scatter(const struct sv_recv *recv, uint32_t pd, const uint8_t *data, uint32_t length)
{
	for (uint32_t i = 0; i < recv->num_sge && length > 0; i++) {
		uint32_t n = recv->sge[i].length < length ? recv->sge[i].length : length;
		struct sv_span where;

		/* The sender has checked the key; if it was deregistered since, the memory may be unmapped. */
		if (sv_key_check(sv.keys, recv->sge[i].lkey, pd, 0, IBV_ACCESS_LOCAL_WRITE, recv->sge[i].addr, n,
				 &where)) {
			memcpy((void *)(uintptr_t)where.addr, data, n);
		}
		data += n;
		length -= n;
	}
	return length == 0;
}

static struct sv_recv *recv_of(struct sv_qp *qp, uint32_t index, struct sv_slot **slot, struct sv_srq **srq_out)
{
	struct sv_srq *srq = (struct sv_srq *)qp->ex.qp_base.srq;

	*srq_out = srq;
	if (srq == NULL) {
		/* Receives of a queue pair's own ring complete in order. */
		if (index != (qp->rq_completed & (qp->ring.size - 1)) ||
		    qp->rq_completed == atomic_load(&qp->shm->rq_tail)) {
			return NULL;
		}
		*slot = sv_ring_slot(&qp->ring, index);
		return sv_qp_recv(qp, index);
	}
	/* The tail orders this after the posting, by another thread perhaps. */
	if (index >= srq->ring.size || atomic_load(&srq->shm->tail) == 0 || sv_srq_recv(srq, index)->posted == 0) {
		return NULL;
	}
	*slot = sv_ring_slot(&srq->ring, index);
	atomic_store(&(*slot)->claim, (uint64_t)SV_CLAIM_OWNER);
	return sv_srq_recv(srq, index);
}

static bool entry_to_cqe(struct sv_qp *qp, const struct sv_rcqe *e, struct sv_cqe *cqe)
{
	struct sv_slot *slot;
	struct sv_srq *srq;
	struct sv_recv *recv = recv_of(qp, e->slot, &slot, &srq);
	const struct sv_ring *ring = srq != NULL ? &srq->ring : &qp->ring;
	uint32_t pd = srq != NULL ? srq->ibv.pd->handle : qp->ex.qp_base.pd->handle;

	if (recv == NULL || e->status > IBV_WC_GENERAL_ERR) {
		return false;
	}
	if ((e->flags & SV_RCQE_STAGED) != 0 && (e->byte_len > sv_ring_stage_size(ring) ||
						 !recv_scatter(recv, pd, sv_ring_stage(ring, slot), e->byte_len))) {
		return false;
	}
	*cqe = (struct sv_cqe){
		.qp = qp,
		.srq = srq,
		.wr_id = recv->wr_id,
		.status = e->status,
		.opcode = (e->flags & SV_RCQE_WRITE_IMM) != 0 ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
		.byte_len = e->byte_len,
		.imm = e->imm,
		.wc_flags = ((e->flags & SV_RCQE_IMM) != 0 ? IBV_WC_WITH_IMM : 0) |
			    ((e->flags & SV_RCQE_INV) != 0 ? IBV_WC_WITH_INV : 0),
		.slot = e->slot,
		.recv = true,
	};
	return true;
}

bool sv_recv_next(struct sv_qp *qp, struct sv_cqe *cqe)
{
	uint32_t tail = atomic_load_explicit(&qp->shm->rcq_tail, memory_order_acquire); /* sv_deliver_publish() */
	struct sv_rcqe e;

	if (tail == qp->rcq_head) {
		return false;
	}
	e = qp->rcq[qp->rcq_head & (qp->rcq_size - 1)];
	if (tail - qp->rcq_head > qp->rcq_size || !entry_to_cqe(qp, &e, cqe)) {
		/* The peer wrote nonsense, so its further completions are ignored. */
		sv_warn("queue pair 0x%x: its peer broke the protocol", qp->ex.qp_base.qp_num);
		qp->rcq_head = tail;
		atomic_store(&qp->shm->state, IBV_QPS_ERR);
		atomic_fetch_or(&qp->shm->events, SV_QP_EVENT_FATAL);
		sv_kick_self();
		return false;
	}
	qp->rcq_head++;
	qp->rq_completed++;
	return true;
}

/* Flushes the receives that no message has completed: since they complete in order, these are the last ones. */
static void flush_ring(struct sv_qp *qp)
{
	for (uint32_t head = qp->rq_completed; head != qp->rq_posted; head++) {
		sv_cq_push(sv_cq(qp->ex.qp_base.recv_cq),
			   &(struct sv_cqe){.qp = qp,
					    .wr_id = sv_qp_recv(qp, head)->wr_id,
					    .status = IBV_WC_WR_FLUSH_ERR,
					    .opcode = IBV_WC_RECV,
					    .recv = true},
			   true);
	}
}

void sv_recv_flush(struct sv_qp *qp)
{
	sv_cq_absorb(sv_cq(qp->ex.qp_base.recv_cq), qp);
	pthread_mutex_lock(&qp->rq_lock);
	qp->rq_flushed = true;
	if (qp->ex.qp_base.srq != NULL) {
		sv_srq_reclaim((struct sv_srq *)qp->ex.qp_base.srq, qp, true);
	} else {
		flush_ring(qp);
	}
	pthread_mutex_unlock(&qp->rq_lock);
}
