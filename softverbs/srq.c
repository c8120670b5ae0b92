/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared receive queues. Many processes take receives from one queue without a lock: a process takes a slot by a
 * compare and swap of its claim word, which then names the taker, so that the slot is not lost if the taker dies.
 */
#include <stdlib.h>

#include "softverbs/softverbs.h"

static uint32_t srq_register(struct sv_srq *srq)
{
	uint32_t index = 0;

	pthread_mutex_lock(&sv.table_lock);
	for (uint32_t i = 1; i < SV_MAX_SRQ && index == 0; i++) {
		if (sv.srq[i] == NULL) {
			index = i;
			srq->index = i;
			srq->shm = &sv.arena->srq[i];
			sv.srq[i] = srq;
		}
	}
	pthread_mutex_unlock(&sv.table_lock);
	return index;
}

static int srq_alloc(struct sv_srq *srq)
{
	uint32_t n = srq->attr.max_wr, size = sv_pow2(n);
	size_t slots;

	srq->ring.size = size;
	srq->ring.max_sge = srq->attr.max_sge;
	srq->ring.stride = sv_ring_stride(size, srq->attr.max_sge);
	srq->recv_stride = sizeof(struct sv_recv) + srq->attr.max_sge * sizeof(struct ibv_sge);
	srq->recvs = calloc(size, srq->recv_stride);
	srq->free = calloc(n, sizeof(*srq->free));
	slots = (size_t)size * srq->ring.stride;
	srq->heap_size = slots + size * sizeof(*srq->order);
	srq->heap = sv_heap_alloc(srq->heap_size);
	if (srq->recvs == NULL || srq->free == NULL || srq->heap == NULL) {
		return ENOMEM;
	}
	srq->ring.base = srq->heap;
	srq->order = (_Atomic uint32_t *)((uint8_t *)srq->heap + slots);
	for (uint32_t i = 0; i < n; i++) {
		srq->free[i] = n - 1 - i;
	}
	srq->num_free = n;
	return 0;
}

static void srq_free(struct sv_srq *srq)
{
	if (!atomic_load(&srq->spoilt)) {
		sv_heap_free(srq->heap, srq->heap_size);
	}
	free(srq->recvs);
	free(srq->free);
	free(srq);
}

static void srq_publish(struct sv_srq *srq)
{
	struct sv_srq_shm *shm = srq->shm;
	uint32_t gen = (atomic_load(&shm->gen) + 2) | 1;

	shm->pd = srq->ibv.pd->handle;
	shm->size = srq->ring.size;
	shm->stride = srq->ring.stride;
	shm->max_sge = srq->ring.max_sge;
	shm->slots_off = sv_heap_offset(srq->ring.base);
	shm->order_off = sv_heap_offset((const void *)srq->order);
	atomic_store(&shm->tail, 0);
	atomic_store(&shm->head, 0);
	atomic_store(&shm->limit, 0);
	atomic_store(&shm->limit_reached, 0);
	atomic_store(&shm->want, 0);
	atomic_store(&shm->gen, gen);
}

SV_EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
	struct sv_srq *srq;

	if (init->attr.max_wr == 0 || init->attr.max_wr > SV_MAX_WR || init->attr.max_sge > SV_MAX_SGE) {
		errno = EINVAL;
		return NULL;
	}
	srq = calloc(1, sizeof(*srq));
	if (srq == NULL) {
		return NULL;
	}
	init->attr.max_sge = init->attr.max_sge == 0 ? 1 : init->attr.max_sge;
	srq->attr = init->attr;
	srq->ibv.context = pd->context;
	srq->ibv.srq_context = init->srq_context;
	srq->ibv.pd = pd;
	pthread_mutex_init(&srq->lock, NULL);
	pthread_mutex_init(&srq->events_lock, NULL);
	pthread_cond_init(&srq->events_cond, NULL);
	if (srq_alloc(srq) != 0 || srq_register(srq) == 0) {
		srq_free(srq);
		errno = ENOMEM;
		return NULL;
	}
	srq->ibv.handle = srq->index;
	srq_publish(srq);
	atomic_fetch_add(&((struct sv_pd *)pd)->users, 1);
	atomic_fetch_add(&sv_context(pd->context)->objects, 1);
	return &srq->ibv;
}

SV_EXPORT int ibv_destroy_srq(struct ibv_srq *ibv)
{
	struct sv_srq *srq = (struct sv_srq *)ibv;

	if (atomic_load(&srq->users) != 0) {
		return EBUSY;
	}
	pthread_mutex_lock(&sv.table_lock);
	sv.srq[srq->index] = NULL;
	atomic_fetch_and(&srq->shm->gen, ~1u); /* even: it does not exist any more, and no receive is taken */
	pthread_mutex_unlock(&sv.table_lock);
	sv_async_forget(ibv->context, srq, &srq->events_lock, &srq->events_cond, &srq->events_got, &srq->events_acked);
	atomic_fetch_sub(&((struct sv_pd *)ibv->pd)->users, 1);
	atomic_fetch_sub(&sv_context(ibv->context)->objects, 1);
	srq_free(srq);
	return 0;
}

SV_EXPORT int ibv_query_srq(struct ibv_srq *ibv, struct ibv_srq_attr *attr)
{
	struct sv_srq *srq = (struct sv_srq *)ibv;

	*attr = srq->attr;
	attr->srq_limit = atomic_load(&srq->shm->limit);
	return 0;
}

SV_EXPORT int ibv_modify_srq(struct ibv_srq *ibv, struct ibv_srq_attr *attr, int mask)
{
	struct sv_srq *srq = (struct sv_srq *)ibv;
	uint32_t left, limit = attr->srq_limit;

	if ((mask & IBV_SRQ_MAX_WR) != 0) {
		return EOPNOTSUPP; /* the device does not offer IBV_DEVICE_SRQ_RESIZE */
	}
	if ((mask & ~IBV_SRQ_LIMIT) != 0 || ((mask & IBV_SRQ_LIMIT) != 0 && limit > srq->attr.max_wr)) {
		return EINVAL;
	}
	if ((mask & IBV_SRQ_LIMIT) == 0) {
		return 0;
	}
	atomic_store(&srq->shm->limit, limit);
	/* InfiniBand 10.2.9.4: if the limit is reached already, the event is raised at once. */
	left = atomic_load(&srq->shm->tail) - atomic_load(&srq->shm->head);
	if (limit != 0 && left < limit && atomic_compare_exchange_strong(&srq->shm->limit, &limit, 0)) {
		sv_async_raise(ibv->context, IBV_EVENT_SRQ_LIMIT_REACHED, srq);
	}
	return 0;
}

static int srq_post_one(struct sv_srq *srq, const struct ibv_recv_wr *wr)
{
	struct sv_slot *slot;
	uint32_t i;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > srq->attr.max_sge) {
		return EINVAL;
	}
	if (srq->num_free == 0) {
		return ENOMEM;
	}
	i = srq->free[--srq->num_free];
	slot = sv_ring_slot(&srq->ring, i);
	sv_recv_store(sv_srq_recv(srq, i), slot, wr);
	atomic_store_explicit(&slot->claim, (uint64_t)srq->tail << 32, memory_order_release);
	atomic_store_explicit(&srq->order[srq->tail & (srq->ring.size - 1)], i, memory_order_relaxed);
	srq->tail++;
	return 0;
}

int sv_post_srq_recv(struct ibv_srq *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct sv_srq *srq = (struct sv_srq *)ibv;
	int rc = 0;

	pthread_mutex_lock(&srq->lock);
	for (; wr != NULL && rc == 0; wr = wr->next) {
		rc = srq_post_one(srq, wr);
		if (rc != 0) {
			*bad_wr = wr;
		}
	}
	/* Sequentially consistent with the look at want; pairs with sv_deliver_take(). */
	atomic_store(&srq->shm->tail, srq->tail);
	pthread_mutex_unlock(&srq->lock);
	if (atomic_load(&srq->shm->want) != 0) {
		sv_kick_self();
	}
	return rc;
}

void sv_srq_release(struct sv_srq *srq, uint32_t slot)
{
	pthread_mutex_lock(&srq->lock);
	if (sv_srq_recv(srq, slot)->posted != 0) {
		sv_srq_recv(srq, slot)->posted = 0;
		srq->free[srq->num_free++] = slot;
	}
	pthread_mutex_unlock(&srq->lock);
}

void sv_srq_reclaim(struct sv_srq *srq, struct sv_qp *qp, bool flush)
{
	for (uint32_t i = 0; i < srq->attr.max_wr; i++) {
		struct sv_slot *slot = sv_ring_slot(&srq->ring, i);
		uint64_t claim = atomic_load(&slot->claim);
		uint32_t position = (uint32_t)(claim >> 32);

		if ((uint32_t)claim != qp->ex.qp_base.qp_num) {
			continue;
		}
		/*
		 * Its taker may have died before it moved the head. Senders would do that for it, but only as long as
		 * the order's entry is this posting's: a queue that is posted full again overwrites it.
		 */
		atomic_compare_exchange_strong(&srq->shm->head, &position, position + 1);
		atomic_store(&slot->claim, (uint64_t)SV_CLAIM_OWNER);
		if (!flush) {
			sv_srq_release(srq, i);
			continue;
		}
		sv_cq_push(sv_cq(qp->ex.qp_base.recv_cq),
			   &(struct sv_cqe){.qp = qp,
					    .srq = srq,
					    .slot = i,
					    .wr_id = sv_srq_recv(srq, i)->wr_id,
					    .status = IBV_WC_WR_FLUSH_ERR,
					    .opcode = IBV_WC_RECV,
					    .recv = true},
			   true);
	}
}
