/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completion queues. Completions that a process makes itself (sends, flushed receives) wait in a ring of its private
 * memory. Receives that a peer completed wait in the ring of their queue pair; a bit in the completion queue's shared
 * cache line says which queue pairs to look at. Both kinds count against the same capacity.
 */
#include <stdlib.h>

#include "softverbs/softverbs.h"

#define MAX_CQE (1 << 22)
/* How many completions a poll takes from one queue pair before the next one has its turn. */
#define TURN 16

static uint32_t cq_register(struct sv_cq *cq)
{
	uint32_t index = 0;

	pthread_mutex_lock(&sv.table_lock);
	for (uint32_t i = 1; i < SV_MAX_CQ && index == 0; i++) {
		if (sv.cq[i] == NULL) {
			index = i;
			cq->index = i;
			cq->shm = &sv.arena->cq[i];
			memset(cq->shm, 0, sizeof(*cq->shm));
			sv.cq[i] = cq;
		}
	}
	pthread_mutex_unlock(&sv.table_lock);
	return index;
}

static struct ibv_cq *cq_create(struct ibv_context *context, uint32_t cqe, void *cq_context,
				struct ibv_comp_channel *channel)
{
	struct sv_cq *cq = calloc(1, sizeof(*cq));

	if (cq == NULL) {
		return NULL;
	}
	for (uint32_t i = 0; i < SV_CQ_BUCKETS; i++) {
		TAILQ_INIT(&cq->buckets[i]);
	}
	pthread_mutex_init(&cq->lock, NULL);
	pthread_mutex_init(&cq->events_lock, NULL);
	pthread_cond_init(&cq->events_cond, NULL);
	pthread_mutex_init(&cq->ex_lock, NULL);
	cq->ex.context = context;
	cq->ex.channel = channel;
	cq->ex.cq_context = cq_context;
	cq->ex.cqe = (int)cqe;
	cq->ring_size = sv_pow2(cqe);
	cq->ring = malloc(cq->ring_size * sizeof(*cq->ring));
	if (cq->ring == NULL || cq_register(cq) == 0) {
		free(cq->ring);
		free(cq);
		errno = ENOMEM;
		return NULL;
	}
	cq->ex.handle = cq->index;
	atomic_store(&cq->shm->capacity, cqe);
	atomic_store(&cq->shm->channel, sv_channel_id(channel));
	if (channel != NULL) {
		sv_channel_add(channel, cq);
	}
	atomic_fetch_add(&sv_context(context)->objects, 1);
	return sv_ibv_cq(cq);
}

SV_EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
				       struct ibv_comp_channel *channel, int comp_vector)
{
	if (cqe < 1 || cqe > MAX_CQE || comp_vector < 0 || comp_vector >= context->num_comp_vectors) {
		errno = EINVAL;
		return NULL;
	}
	return cq_create(context, (uint32_t)cqe, cq_context, channel);
}

SV_EXPORT int ibv_destroy_cq(struct ibv_cq *ibv)
{
	struct sv_cq *cq = sv_cq(ibv);

	if (atomic_load(&cq->users) != 0) {
		return EBUSY;
	}
	pthread_mutex_lock(&sv.table_lock);
	sv.cq[cq->index] = NULL;
	pthread_mutex_unlock(&sv.table_lock);
	if (ibv->channel != NULL) {
		sv_channel_remove(ibv->channel, cq);
	}
	pthread_mutex_lock(&cq->events_lock);
	while (cq->comp_events_got != cq->comp_events_acked) {
		pthread_cond_wait(&cq->events_cond, &cq->events_lock);
	}
	pthread_mutex_unlock(&cq->events_lock);
	sv_async_forget(ibv->context, cq, &cq->events_lock, &cq->events_cond, &cq->async_events_got,
			&cq->async_events_acked);
	atomic_fetch_sub(&sv_context(ibv->context)->objects, 1);
	pthread_mutex_destroy(&cq->lock);
	free(cq->ring);
	free(cq);
	return 0;
}

SV_EXPORT int ibv_resize_cq(struct ibv_cq *ibv, int cqe)
{
	struct sv_cq *cq = sv_cq(ibv);
	struct sv_cqe *ring;
	uint32_t size, head, tail;

	if (cqe < 1 || cqe > MAX_CQE) {
		return EINVAL;
	}
	size = sv_pow2((uint32_t)cqe);
	ring = malloc(size * sizeof(*ring));
	if (ring == NULL) {
		return ENOMEM;
	}
	pthread_mutex_lock(&cq->lock);
	head = atomic_load(&cq->head);
	tail = atomic_load(&cq->tail);
	if (atomic_load(&cq->shm->count) > (uint32_t)cqe || tail - head > (uint32_t)cqe) {
		pthread_mutex_unlock(&cq->lock);
		free(ring);
		return EINVAL;
	}
	for (uint32_t i = head; i != tail; i++) {
		ring[i & (size - 1)] = cq->ring[i & (cq->ring_size - 1)];
	}
	free(cq->ring);
	cq->ring = ring;
	cq->ring_size = size;
	cq->ex.cqe = cqe;
	atomic_store(&cq->shm->capacity, (uint32_t)cqe);
	pthread_mutex_unlock(&cq->lock);
	return 0;
}

bool sv_cq_reserve(struct sv_cq_shm *cq)
{
	if (atomic_fetch_add(&cq->count, 1) < atomic_load_explicit(&cq->capacity, memory_order_relaxed)) {
		return true;
	}
	atomic_fetch_sub(&cq->count, 1);
	atomic_store(&cq->overrun, 1);
	return false;
}

void sv_cq_notify(struct sv_cq_shm *cq, bool solicited, int channel_fd)
{
	/* Sequentially consistent with the publishing before it and the arming in sv_req_notify_cq(). */
	uint32_t armed = atomic_load(&cq->armed);

	if (armed == SV_CQ_UNARMED || (armed == SV_CQ_ARMED_SOLICITED && !solicited) || channel_fd < 0) {
		return;
	}
	if (atomic_compare_exchange_strong(&cq->armed, &armed, SV_CQ_UNARMED)) {
		atomic_fetch_add(&cq->fired, 1);
		sv_kick(channel_fd);
	}
}

int sv_req_notify_cq(struct ibv_cq *ibv, int solicited_only)
{
	struct sv_cq_shm *shm = sv_cq(ibv)->shm;
	uint32_t none = SV_CQ_UNARMED;

	if (solicited_only == 0) {
		atomic_store(&shm->armed, SV_CQ_ARMED_ANY);
	} else {
		/* Leaves a request for any completion as it is. */
		atomic_compare_exchange_strong(&shm->armed, &none, SV_CQ_ARMED_SOLICITED);
	}
	return 0;
}

static int cq_channel_fd(const struct sv_cq *cq)
{
	return cq->ex.channel != NULL ? cq->ex.channel->fd : -1;
}

static void cq_append(struct sv_cq *cq, const struct sv_cqe *cqe)
{
	uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);

	cq->ring[tail & (cq->ring_size - 1)] = *cqe;
	atomic_store(&cq->tail, tail + 1);
}

void sv_cq_push(struct sv_cq *cq, const struct sv_cqe *cqe, bool solicited)
{
	bool room;

	pthread_mutex_lock(&cq->lock);
	room = sv_cq_reserve(cq->shm);
	if (room && atomic_load(&cq->tail) - atomic_load(&cq->head) >= cq->ring_size) {
		room = false; /* the count is shared, and a peer has stored a wrong value */
		atomic_store(&cq->shm->overrun, 1);
	}
	if (room) {
		cq_append(cq, cqe);
	}
	pthread_mutex_unlock(&cq->lock);
	if (room) {
		sv_cq_notify(cq->shm, solicited || cqe->status != IBV_WC_SUCCESS, cq_channel_fd(cq));
		return;
	}
	/* InfiniBand 11.6.3.2: the queue pair that needed the room fails. */
	atomic_store(&cqe->qp->shm->state, IBV_QPS_ERR);
	atomic_fetch_or(&cqe->qp->shm->events, SV_QP_EVENT_FATAL);
	sv_kick_self();
}

void sv_cq_wake(struct sv_cq *cq)
{
	if (cq->ex.channel != NULL) {
		atomic_fetch_add(&cq->shm->fired, 1);
		sv_kick(cq->ex.channel->fd);
	}
}

/* Frees the places that a completion occupied in its queues. */
static void cqe_retire(const struct sv_cqe *cqe)
{
	if (!cqe->recv) {
		atomic_store_explicit(&cqe->qp->sq_retired, cqe->position + 1, memory_order_release);
	} else if (cqe->srq != NULL) {
		sv_srq_release(cqe->srq, cqe->slot);
	} else {
		atomic_fetch_add_explicit(&cqe->qp->rq_polled, 1, memory_order_release);
	}
}

static void cqe_to_wc(const struct sv_cqe *cqe, struct ibv_wc *wc)
{
	*wc = (struct ibv_wc){
		.wr_id = cqe->wr_id,
		.status = cqe->status,
		.opcode = cqe->opcode,
		.byte_len = cqe->byte_len,
		.imm_data = cqe->imm,
		.qp_num = cqe->qp->ex.qp_base.qp_num,
		.src_qp = cqe->recv ? cqe->qp->attr.dest_qp_num : 0,
		.wc_flags = cqe->wc_flags,
	};
	cqe_retire(cqe);
}

static int poll_local(struct sv_cq *cq, int max, struct ibv_wc *wc)
{
	uint32_t head = atomic_load_explicit(&cq->head, memory_order_relaxed);
	uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);
	int n = 0;

	while (n < max && head != tail) {
		cqe_to_wc(&cq->ring[head & (cq->ring_size - 1)], &wc[n]);
		n++;
		head++;
	}
	atomic_store_explicit(&cq->head, head, memory_order_release);
	return n;
}

/* Takes up to max completions of a queue pair; *more: some may be left. */
static int poll_qp(struct sv_qp *qp, int max, struct ibv_wc *wc, bool *more)
{
	struct sv_cqe cqe;
	int n = 0;

	while (n < max && sv_recv_next(qp, &cqe)) {
		cqe_to_wc(&cqe, &wc[n]);
		n++;
	}
	*more = *more || n == max;
	return n;
}

/* Receives of the queue pairs of one bucket: each of them has one turn, if there is room. Whoever had it is the last
 * one of the next poll. *more tells whether some may be left. */
static int poll_bucket(struct sv_cq *cq, uint32_t bucket, int max, struct ibv_wc *wc, bool *more)
{
	struct sv_qp *last = TAILQ_LAST(&cq->buckets[bucket], sv_bucket), *qp = NULL;
	int n = 0;

	while (qp != last && n < max) {
		qp = TAILQ_FIRST(&cq->buckets[bucket]);
		n += poll_qp(qp, max - n < TURN ? max - n : TURN, wc + n, more);
		if (qp != TAILQ_LAST(&cq->buckets[bucket], sv_bucket)) {
			TAILQ_REMOVE(&cq->buckets[bucket], qp, in_bucket);
			TAILQ_INSERT_TAIL(&cq->buckets[bucket], qp, in_bucket);
		}
	}
	*more = *more || qp != last;
	return n;
}

/* Gives each of the buckets in *bits one turn, from cq->next_bucket on; in *bits those are left that may have more. */
static int poll_buckets(struct sv_cq *cq, uint64_t *bits, int max, struct ibv_wc *wc)
{
	uint64_t before = *bits & ((1ull << cq->next_bucket) - 1), turns[2] = {*bits & ~before, before};
	int n = 0;

	for (int i = 0; i < 2; i++) {
		for (; turns[i] != 0 && n < max; turns[i] &= turns[i] - 1) {
			uint32_t bucket = (uint32_t)__builtin_ctzll(turns[i]);
			bool more = false;

			n += poll_bucket(cq, bucket, max - n, wc + n, &more);
			*bits &= more ? ~0ull : ~(1ull << bucket);
			cq->next_bucket = (bucket + 1) % SV_CQ_BUCKETS;
		}
	}
	return n;
}

static int poll_remote(struct sv_cq *cq, int max, struct ibv_wc *wc)
{
	uint64_t bits = atomic_load_explicit(&cq->carried, memory_order_relaxed);
	int n = 0;

	if (atomic_load_explicit(&cq->shm->ready, memory_order_relaxed) != 0) {
		bits |= atomic_exchange(&cq->shm->ready, 0); /* pairs with sv_deliver_publish() */
	}
	while (bits != 0 && n < max) {
		n += poll_buckets(cq, &bits, max - n, wc + n);
	}
	atomic_store_explicit(&cq->carried, bits, memory_order_relaxed);
	return n;
}

/* Tries sends that wait for a peer again. */
static void progress_blocked(struct sv_cq *cq)
{
	uint32_t end = atomic_load(&sv.qp_end);

	if (pthread_mutex_trylock(&sv.table_lock) != 0) {
		return; /* the control thread or the next poll tries it */
	}
	for (uint32_t i = 0; i < end; i++) {
		struct sv_qp *qp = sv.qp[i];

		if (qp != NULL && qp->ex.qp_base.send_cq == sv_ibv_cq(cq) && pthread_mutex_trylock(&qp->lock) == 0) {
			sv_send_progress(qp);
			pthread_mutex_unlock(&qp->lock);
		}
	}
	pthread_mutex_unlock(&sv.table_lock);
}

int sv_poll_cq(struct ibv_cq *ibv, int num_entries, struct ibv_wc *wc)
{
	struct sv_cq *cq = sv_cq(ibv);
	int n;

	if (atomic_load_explicit(&cq->blocked, memory_order_relaxed) != 0) {
		progress_blocked(cq);
	}
	/* No completions, the usual case of a poller: three loads. */
	if (atomic_load_explicit(&cq->shm->ready, memory_order_acquire) == 0 &&
	    atomic_load_explicit(&cq->head, memory_order_relaxed) ==
		    atomic_load_explicit(&cq->tail, memory_order_acquire) &&
	    atomic_load_explicit(&cq->carried, memory_order_relaxed) == 0) {
		return 0;
	}
	if (num_entries <= 0) {
		return 0;
	}
	pthread_mutex_lock(&cq->lock);
	n = poll_local(cq, num_entries, wc);
	if (n < num_entries) {
		n += poll_remote(cq, num_entries - n, wc + n);
	}
	pthread_mutex_unlock(&cq->lock);
	if (n != 0) {
		atomic_fetch_sub(&cq->shm->count, (uint32_t)n);
	}
	return n;
}

void sv_cq_absorb(struct sv_cq *cq, struct sv_qp *qp)
{
	struct sv_cqe cqe;
	uint32_t tail;

	pthread_mutex_lock(&cq->lock);
	/* There is room, since peers reserve capacity before they publish; a buggy peer may not have done so. */
	while ((tail = atomic_load(&cq->tail)) - atomic_load(&cq->head) < cq->ring_size && sv_recv_next(qp, &cqe)) {
		cq_append(cq, &cqe);
	}
	pthread_mutex_unlock(&cq->lock);
}

void sv_cq_attach(struct sv_cq *cq, struct sv_qp *qp)
{
	pthread_mutex_lock(&cq->lock);
	qp->cq_bit = cq->qps++ % SV_CQ_BUCKETS;
	TAILQ_INSERT_TAIL(&cq->buckets[qp->cq_bit], qp, in_bucket);
	pthread_mutex_unlock(&cq->lock);
}

/* Drops the local completions of a queue pair. Under cq->lock. */
static uint32_t purge_local(struct sv_cq *cq, const struct sv_qp *qp)
{
	uint32_t head = atomic_load(&cq->head), tail = atomic_load(&cq->tail), to = head;

	for (uint32_t i = head; i != tail; i++) {
		struct sv_cqe *cqe = &cq->ring[i & (cq->ring_size - 1)];

		if (cqe->qp == qp) {
			cqe_retire(cqe);
		} else {
			cq->ring[to++ & (cq->ring_size - 1)] = *cqe;
		}
	}
	atomic_store(&cq->tail, to);
	return tail - to;
}

void sv_cq_purge(struct sv_cq *cq, struct sv_qp *qp)
{
	struct sv_cqe cqe;
	uint32_t n;

	pthread_mutex_lock(&cq->lock);
	n = purge_local(cq, qp);
	if (qp->ex.qp_base.recv_cq == sv_ibv_cq(cq)) {
		while (sv_recv_next(qp, &cqe)) {
			cqe_retire(&cqe);
			n++;
		}
	}
	pthread_mutex_unlock(&cq->lock);
	atomic_fetch_sub(&cq->shm->count, n);
}

void sv_cq_detach(struct sv_cq *cq, struct sv_qp *qp)
{
	pthread_mutex_lock(&cq->lock);
	TAILQ_REMOVE(&cq->buckets[qp->cq_bit], qp, in_bucket);
	pthread_mutex_unlock(&cq->lock);
}
