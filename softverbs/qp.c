/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue pairs: creating, failing and destroying them. */
#include <sched.h>
#include <stdlib.h>

#include "softverbs/softverbs.h"

#define QUIESCE_CHECK_NS  10000000ull   /* then see whether the peer lives */
#define QUIESCE_GIVEUP_NS 2000000000ull /* a peer that is stopped inside a busy section */

bool sv_qp_quiesce(uint32_t index)
{
	struct sv_qp_shm *shm = &sv.arena->qp[index];
	uint64_t seen = atomic_load(&shm->busy), start = 0, now;

	if (!atomic_load(&sv.qp_live[index])) {
		return true;
	}
	while ((seen & 1) != 0 && atomic_load(&shm->busy) == seen) {
		sched_yield();
		now = sv_now_ns();
		start = start == 0 ? now : start;
		if (now - start > QUIESCE_CHECK_NS && !sv_slot_alive(SV_QPN_SLOT(atomic_load(&shm->dest_qpn)))) {
			return true;
		}
		if (now - start > QUIESCE_GIVEUP_NS) {
			return false;
		}
	}
	return true;
}

bool sv_qp_lock_out(struct sv_qp *qp, uint32_t new_gen)
{
	uint64_t fresh = (uint64_t)new_gen << 32, seen;

	atomic_store(&qp->shm->gen, new_gen & ~1u); /* even: it does not exist for now */
	do {
		if (!sv_qp_quiesce(qp->index)) {
			return false;
		}
		seen = atomic_load(&qp->shm->busy);
		/* Odd: a live peer has entered another busy section meanwhile, so this tries again; or the peer died
		 * inside. */
	} while (((seen & 1) != 0 && sv_slot_alive(SV_QPN_SLOT(atomic_load(&qp->shm->dest_qpn)))) ||
		 !atomic_compare_exchange_strong(&qp->shm->busy, &seen, fresh));
	return true;
}

void sv_qp_publish(struct sv_qp *qp, uint32_t gen)
{
	struct sv_qp_shm *shm = qp->shm;

	qp->sq_posted = qp->sq_exec = 0;
	atomic_store(&qp->sq_retired, 0);
	qp->failed = qp->peer_died = qp->want_attach = qp->attaching = qp->rq_flushed = false;
	qp->rq_posted = qp->rq_completed = qp->rcq_head = 0;
	atomic_store(&qp->rq_polled, 0);
	shm->pd = qp->ex.qp_base.pd->handle;
	shm->cq = sv_cq(qp->ex.qp_base.recv_cq)->index;
	shm->cq_bit = qp->cq_bit;
	shm->srq = qp->ex.qp_base.srq != NULL ? ((struct sv_srq *)qp->ex.qp_base.srq)->index + 1 : 0;
	shm->rq_size = qp->ring.size;
	shm->rq_stride = qp->ring.stride;
	shm->rq_max_sge = qp->ring.max_sge;
	shm->rq_off = sv_heap_offset(qp->ring.base);
	shm->rcq_size = qp->rcq_size;
	shm->rcq_off = sv_heap_offset(qp->rcq);
	atomic_store(&shm->dest_qpn, 0);
	atomic_store(&shm->rq_tail, 0);
	atomic_store(&shm->rq_head, 0);
	atomic_store(&shm->rcq_tail, 0);
	atomic_store(&shm->want, 0);
	atomic_store(&shm->events, 0);
	atomic_store(&qp->state, IBV_QPS_RESET);
	atomic_store(&shm->state, IBV_QPS_RESET);
	qp->gen = gen;
	atomic_store(&shm->gen, gen);
}

static bool caps_ok(const struct ibv_qp_cap *cap)
{
	return cap->max_send_wr <= SV_MAX_WR && cap->max_recv_wr <= SV_MAX_WR && cap->max_send_sge <= SV_MAX_SGE &&
	       cap->max_recv_sge <= SV_MAX_SGE && cap->max_inline_data <= SV_MAX_INLINE;
}

/* Allocates the receive ring (of one slot if there is a shared queue) and the ring of receive completions together. */
static int qp_alloc_receive(struct sv_qp *qp)
{
	struct sv_srq *srq = (struct sv_srq *)qp->ex.qp_base.srq;
	uint32_t size = sv_pow2(srq != NULL ? 1 : qp->cap.max_recv_wr);
	size_t slots;

	qp->ring.size = size;
	qp->ring.max_sge = qp->cap.max_recv_sge;
	qp->ring.stride = sv_ring_stride(size, qp->ring.max_sge);
	qp->rcq_size = srq != NULL ? srq->ring.size : size;
	slots = (size_t)size * qp->ring.stride;
	qp->heap_size = slots + qp->rcq_size * sizeof(*qp->rcq);
	qp->heap = sv_heap_alloc(qp->heap_size);
	qp->recv_stride = sizeof(struct sv_recv) + qp->cap.max_recv_sge * sizeof(struct ibv_sge);
	qp->recvs = calloc(size, qp->recv_stride);
	if (qp->heap == NULL || qp->recvs == NULL) {
		return ENOMEM;
	}
	qp->ring.base = qp->heap;
	qp->rcq = (struct sv_rcqe *)((uint8_t *)qp->heap + slots);
	return 0;
}

static int qp_alloc(struct sv_qp *qp)
{
	uint32_t size = sv_pow2(qp->cap.max_send_wr);

	qp->sq_mask = size - 1;
	qp->sq_stride = sv_send_stride(&qp->cap);
	qp->sq = calloc(size, qp->sq_stride);
	return qp->sq == NULL ? ENOMEM : qp_alloc_receive(qp);
}

static void qp_free(struct sv_qp *qp)
{
	sv_heap_free(qp->heap, qp->heap_size);
	sv_wr_api_free(qp);
	free(qp->sq);
	free(qp->recvs);
	free(qp);
}

/* Numbers are used in turn, so that a late message for an old queue pair does not reach a new one. */
static int qp_register(struct sv_qp *qp)
{
	int rc = ENOMEM;

	pthread_mutex_lock(&sv.table_lock);
	for (uint32_t i = 0; i < SV_MAX_QP; i++) {
		uint32_t index = (sv.next_qp + i) % SV_MAX_QP;

		if (index != 0 && sv.qp[index] == NULL && !sv.qp_quarantine[index]) {
			qp->index = index;
			qp->shm = &sv.arena->qp[index];
			sv.next_qp = index + 1;
			if (index >= atomic_load(&sv.qp_end)) {
				atomic_store(&sv.qp_end, index + 1);
			}
			rc = 0;
			break;
		}
	}
	if (rc == 0) {
		uint32_t gen = (atomic_load(&qp->shm->gen) + 1) | 1;

		qp->ex.qp_base.qp_num = SV_QPN(sv.slot, qp->index);
		qp->ex.qp_base.handle = qp->index;
		atomic_store(&qp->shm->busy, (uint64_t)gen << 32);
		atomic_store(&sv.qp_live[qp->index], true);
		sv_cq_attach(sv_cq(qp->ex.qp_base.recv_cq), qp);
		sv_qp_publish(qp, gen);
		sv.qp[qp->index] = qp;
	}
	pthread_mutex_unlock(&sv.table_lock);
	return rc;
}

static void count_users(struct sv_qp *qp, int by)
{
	struct ibv_qp *ibv = &qp->ex.qp_base;

	atomic_fetch_add(&((struct sv_pd *)ibv->pd)->users, (uint32_t)by);
	atomic_fetch_add(&sv_cq(ibv->send_cq)->users, (uint32_t)by);
	atomic_fetch_add(&sv_cq(ibv->recv_cq)->users, (uint32_t)by);
	if (ibv->srq != NULL) {
		atomic_fetch_add(&((struct sv_srq *)ibv->srq)->users, (uint32_t)by);
	}
	atomic_fetch_add(&sv_context(ibv->context)->objects, (uint32_t)by);
}

static void qp_fill(struct sv_qp *qp, struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct ibv_qp *ibv = &qp->ex.qp_base;

	ibv->context = pd->context;
	ibv->qp_context = init->qp_context;
	ibv->pd = pd;
	ibv->send_cq = init->send_cq;
	ibv->recv_cq = init->recv_cq;
	ibv->srq = init->srq;
	ibv->state = IBV_QPS_RESET;
	ibv->qp_type = init->qp_type;
	if (init->srq != NULL) {
		init->cap.max_recv_wr = init->cap.max_recv_sge = 0;
	}
	if (init->cap.max_inline_data < SV_MIN_INLINE) {
		init->cap.max_inline_data = SV_MIN_INLINE;
	}
	qp->cap = init->cap;
	qp->sq_sig_all = init->sq_sig_all != 0;
	qp->rem.channel_fd = -1;
	qp->attr.port_num = 1;
	pthread_mutex_init(&qp->lock, NULL);
	pthread_mutex_init(&qp->rq_lock, NULL);
	pthread_mutex_init(&qp->events_lock, NULL);
	pthread_cond_init(&qp->events_cond, NULL);
	pthread_cond_init(&qp->attach_cond, NULL);
}

SV_EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct sv_qp *qp;
	int rc;

	if (init->qp_type != IBV_QPT_RC) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (init->send_cq == NULL || init->recv_cq == NULL || !caps_ok(&init->cap)) {
		errno = EINVAL;
		return NULL;
	}
	qp = calloc(1, sizeof(*qp));
	if (qp == NULL) {
		return NULL;
	}
	qp_fill(qp, pd, init);
	rc = qp_alloc(qp);
	if (rc == 0) {
		rc = qp_register(qp);
	}
	if (rc != 0) {
		qp_free(qp);
		errno = rc;
		return NULL;
	}
	count_users(qp, 1);
	return &qp->ex.qp_base;
}

struct ibv_qp *sv_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	struct ibv_qp *ibv;
	int rc = 0;

	if ((attr->comp_mask & ~known) != 0 || (attr->comp_mask & IBV_QP_INIT_ATTR_PD) == 0 ||
	    ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 && attr->create_flags != 0)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	/* The extended attributes begin like the plain ones. */
	ibv = ibv_create_qp(attr->pd, (struct ibv_qp_init_attr *)attr);
	if (ibv != NULL && (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0) {
		rc = sv_wr_api_init(sv_qp(ibv), attr->send_ops_flags);
	}
	if (rc != 0) {
		ibv_destroy_qp(ibv);
		errno = rc;
		return NULL;
	}
	return ibv;
}

SV_EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *ibv)
{
	return sv_qp(ibv)->with_wr_api ? &sv_qp(ibv)->ex : NULL;
}

/* Locks the peer out for good. False: a stopped peer is inside, and the rings must not be freed. */
static bool qp_retire(struct sv_qp *qp)
{
	bool clean;

	pthread_mutex_lock(&qp->lock);
	atomic_store(&qp->state, IBV_QPS_RESET);
	atomic_store(&qp->shm->state, IBV_QPS_RESET);
	clean = sv_qp_lock_out(qp, qp->gen + 1);
	pthread_mutex_unlock(&qp->lock);
	return clean;
}

SV_EXPORT int ibv_destroy_qp(struct ibv_qp *ibv)
{
	struct sv_qp *qp = sv_qp(ibv);
	bool clean;

	pthread_mutex_lock(&sv.table_lock);
	/* While it is still in the table, so that the peer's death is not missed. */
	pthread_mutex_lock(&qp->lock);
	sv_send_forget(qp);
	sv_peer_detach(qp);
	pthread_mutex_unlock(&qp->lock);
	sv.qp[qp->index] = NULL;
	sv.qp_quarantine[qp->index] = true; /* until its rings are free */
	pthread_mutex_unlock(&sv.table_lock);
	clean = qp_retire(qp);
	sv_cq_purge(sv_cq(ibv->send_cq), qp);
	sv_cq_purge(sv_cq(ibv->recv_cq), qp);
	if (ibv->srq != NULL) {
		sv_srq_reclaim((struct sv_srq *)ibv->srq, qp, false);
	}
	sv_cq_detach(sv_cq(ibv->recv_cq), qp);
	sv_async_forget(ibv->context, qp, &qp->events_lock, &qp->events_cond, &qp->events_got, &qp->events_acked);
	if (clean) {
		pthread_mutex_lock(&sv.table_lock);
		sv.qp_quarantine[qp->index] = false;
		atomic_store(&sv.qp_live[qp->index], false);
		pthread_mutex_unlock(&sv.table_lock);
	} else {
		/* The stopped peer may still write there, so this memory is never used again. */
		qp->heap = NULL;
		if (ibv->srq != NULL) {
			atomic_store(&((struct sv_srq *)ibv->srq)->spoilt, true);
		}
	}
	count_users(qp, -1);
	qp_free(qp);
	return 0;
}

void sv_qp_fail(struct sv_qp *qp, enum ibv_wc_status status)
{
	if (qp->failed) {
		return;
	}
	qp->failed = true;
	atomic_store(&qp->state, IBV_QPS_ERR);
	atomic_store(&qp->shm->state, IBV_QPS_ERR);
	qp->ex.qp_base.state = IBV_QPS_ERR;
	/* A peer that is inside finds ERR the next time. Completions that it publishes now precede the flushed ones. */
	sv_qp_quiesce(qp->index);
	sv_send_flush(qp, status);
	sv_recv_flush(qp);
	if (qp->ex.qp_base.srq != NULL) {
		sv_async_raise(qp->ex.qp_base.context, IBV_EVENT_QP_LAST_WQE_REACHED, qp);
	}
}

static void raise_events(struct sv_qp *qp, uint32_t events)
{
	static const struct {
		uint32_t bit;
		enum ibv_event_type type;
	} types[] = {
		{SV_QP_EVENT_COMM_EST, IBV_EVENT_COMM_EST},
		{SV_QP_EVENT_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR},
		{SV_QP_EVENT_REQ_ERR, IBV_EVENT_QP_REQ_ERR},
		{SV_QP_EVENT_FATAL, IBV_EVENT_QP_FATAL},
	};

	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		if ((events & types[i].bit) != 0) {
			sv_async_raise(qp->ex.qp_base.context, types[i].type, qp);
		}
	}
}

/* Kicks a sender if what it waits for has come. A kick at another time would make it try in vain and ask again. */
static void answer_wants(struct sv_qp *qp)
{
	struct sv_qp_shm *shm = qp->shm;
	uint32_t met = qp->announce ? SV_WANT_READY : 0;

	if (atomic_load(&shm->rq_tail) != atomic_load(&shm->rq_head)) {
		met |= SV_WANT_RECEIVE;
	}
	qp->announce = false;
	if (met != 0 && (atomic_fetch_and(&shm->want, ~met) & met) != 0) {
		sv_kick(qp->rem.kick_fd);
	}
}

void sv_qp_attend(struct sv_qp *qp)
{
	pthread_mutex_lock(&qp->lock);
	if (qp->want_attach) {
		qp->attaching = !sv_peer_try_attach(qp);
		pthread_cond_broadcast(&qp->attach_cond);
	}
	raise_events(qp, atomic_exchange(&qp->shm->events, 0));
	if (sv_qp_state(qp) == IBV_QPS_ERR) {
		sv_qp_fail(qp, IBV_WC_WR_FLUSH_ERR);
	}
	if (qp->rem.peer != NULL) {
		answer_wants(qp);
	}
	sv_send_progress(qp);
	pthread_mutex_unlock(&qp->lock);
}
