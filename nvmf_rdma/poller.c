/* SPDX-License-Identifier: BSD-3-Clause */
/* A device's queues in a poll group: one completion queue, and a shared receive queue if the device has them. Work
 * requests are chained during a poll and posted together at its end. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "env_dpdk/env.h"
#include "nvmf_rdma/internal.h"

/* wr_id: the request, or 0 for the work requests of a chain before its last. The opcode of a failed completion is not
 * valid (ibv_poll_cq(3)), so the request's state tells which work request it was. */

void nvmf_rdma_qpair_queue_send(struct nvmf_rdma_qpair *qp, struct ibv_send_wr *first, struct ibv_send_wr *last)
{
	if (qp->send_last != NULL) {
		qp->send_last->next = first;
	} else {
		qp->send_first = first;
	}
	qp->send_last = last;
	if (!qp->dirty) {
		qp->dirty = true;
		STAILQ_INSERT_TAIL(&qp->poller->dirty, qp, dirty_link);
	}
}

void nvmf_rdma_qpair_queue_recv(struct nvmf_rdma_poller *p, struct nvmf_rdma_qpair *qp, struct ibv_recv_wr *wr)
{
	struct ibv_recv_wr **first = qp ? &qp->recv_first : &p->recv_first,
			   **last = qp ? &qp->recv_last : &p->recv_last;

	wr->next = NULL;
	if (*last != NULL) {
		(*last)->next = wr;
	} else {
		*first = wr;
	}
	*last = wr;
	if (qp != NULL && !qp->dirty) {
		qp->dirty = true;
		STAILQ_INSERT_TAIL(&p->dirty, qp, dirty_link);
	}
}

/* Posting. If it fails, the work requests from `bad` on are never posted, and their requests end here. */

/* `bad` may be in the middle of a request's chain. The device still reads or writes the buffers of the work requests
 * before it, so that request ends only when the queue pair is destroyed (flush_timer_expired()). Returns the first work
 * request of the next request. */
static struct ibv_send_wr *skip_begun_request(struct ibv_send_wr *bad)
{
	struct ibv_send_wr *last = bad;

	while (last->wr_id == 0 && last->next != NULL) {
		last = last->next;
	}
	const struct nvmf_rdma_request *r = (const struct nvmf_rdma_request *)(uintptr_t)last->wr_id;
	bool with_data = r != NULL && (r->read_posted || r->state == RDMA_REQ_COMPLETING_C2H);

	return with_data && bad != &r->data_wr ? last->next : bad;
}

static void end_unposted_sends(struct nvmf_rdma_qpair *qp, struct ibv_send_wr *bad)
{
	bad = skip_begun_request(bad);
	while (bad != NULL) {
		struct ibv_send_wr *next = bad->next;
		struct nvmf_rdma_request *r = (struct nvmf_rdma_request *)(uintptr_t)bad->wr_id;

		if (r != NULL && r->read_posted) {
			nvmf_rdma_request_read_failed(r);
		} else if (r != NULL) {
			nvmf_rdma_request_sent(r);
		}
		bad = next;
	}
	nvmf_qpair_fail(&qp->base, "work requests could not be posted");
}

/* no_wr_batching. */
static void post_sends_singly(struct nvmf_rdma_qpair *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *next, *bad;

	for (; wr != NULL; wr = next) {
		next = wr->next;
		wr->next = NULL;
		qp->poller->counters.send_doorbell_updates++;
		qp->poller->counters.total_send_wrs++;
		if (ibv_post_send(qp->verbs, wr, &bad) != 0) {
			wr->next = next;
			end_unposted_sends(qp, wr);
			return;
		}
	}
}

static void post_qpair_sends(struct nvmf_rdma_qpair *qp)
{
	struct ibv_send_wr *first = qp->send_first, *bad = NULL;

	if (first == NULL) {
		return;
	}
	qp->send_first = qp->send_last = NULL;
	if (unlikely(qp->poller->no_wr_batching)) {
		post_sends_singly(qp, first);
		return;
	}
	qp->poller->counters.send_doorbell_updates++;
	for (const struct ibv_send_wr *wr = first; wr != NULL; wr = wr->next) {
		qp->poller->counters.total_send_wrs++;
	}
	if (unlikely(ibv_post_send(qp->verbs, first, &bad) != 0)) {
		end_unposted_sends(qp, bad);
	}
}

static void post_qpair_receives(struct nvmf_rdma_qpair *qp)
{
	struct ibv_recv_wr *first = qp->recv_first, *bad = NULL;
	uint32_t n = 0;

	if (first == NULL) {
		return;
	}
	qp->recv_first = qp->recv_last = NULL;
	for (const struct ibv_recv_wr *wr = first; wr != NULL; wr = wr->next) {
		n++;
	}
	if (unlikely(ibv_post_recv(qp->verbs, first, &bad) != 0)) {
		for (; bad != NULL; bad = bad->next) {
			n--;
		}
		nvmf_qpair_fail(&qp->base, "receives could not be posted");
	}
	qp->receives += n;
	qp->poller->counters.recv_doorbell_updates++;
	qp->poller->counters.total_recv_wrs += n;
}

static void post_shared_receives(struct nvmf_rdma_poller *p)
{
	struct ibv_recv_wr *first = p->recv_first, *bad = NULL;

	if (first == NULL) {
		return;
	}
	p->recv_first = p->recv_last = NULL;
	p->counters.recv_doorbell_updates++;
	for (const struct ibv_recv_wr *wr = first; wr != NULL; wr = wr->next) {
		p->counters.total_recv_wrs++;
	}
	if (unlikely(ibv_post_srq_recv(p->srq, first, &bad) != 0)) {
		log_limited(LOG_LEVEL_WARNING, "receives could not be posted to the shared queue");
		/* kept for the next turn: a device that refuses for good has sent a fatal event */
		p->recv_first = bad;
		for (p->recv_last = bad; p->recv_last->next != NULL; p->recv_last = p->recv_last->next) {
		}
	}
}

static void poller_post_queued(struct nvmf_rdma_poller *p)
{
	struct nvmf_rdma_qpair *qp;

	post_shared_receives(p);
	/* no budget: only what this round has handled, which has one, makes queue pairs dirty */
	while ((qp = STAILQ_FIRST(&p->dirty)) != NULL) {
		STAILQ_REMOVE_HEAD(&p->dirty, dirty_link);
		qp->dirty = false;
		post_qpair_receives(qp);
		post_qpair_sends(qp);
		nvmf_rdma_qpair_check_closed(qp);
	}
}

/* Completions. */

static struct nvmf_rdma_qpair *poller_find_qpair(const struct nvmf_rdma_poller *p, uint32_t number)
{
	struct nvmf_rdma_qpair *qp;

	SLIST_FOREACH (qp, &p->by_number[number % NVMF_RDMA_QPAIR_BUCKETS], number_link) {
		if (qp->verbs->qp_num == number) {
			return qp;
		}
	}
	return NULL;
}

/* Does not process a received capsule, because its queue pair ends or is gone. */
static void drop_received_capsule(struct nvmf_rdma_poller *p, struct nvmf_rdma_request *r)
{
	if (p->srq != NULL) {
		nvmf_rdma_qpair_queue_recv(p, NULL, &r->recv_wr);
	}
}

/* A flush error is the consequence of a connection's end, whatever its cause; any other error is the cause. One that
 * comes while the connection is being ended for another reason is told in the log. */
static void COLD end_failed_qpair(struct nvmf_rdma_qpair *qp, const struct ibv_wc *wc)
{
	const char *why = ibv_wc_status_str(wc->status);

	if (wc->status == IBV_WC_WR_FLUSH_ERR) {
		nvmf_qpair_disconnect(&qp->base, why);
	} else if (qp->state == NVMF_RDMA_QPAIR_LIVE) {
		nvmf_qpair_fail(&qp->base, why);
	} else {
		log_limited(LOG_LEVEL_NOTICE,
			    "a work request of queue pair %u of %s, whose connection is being ended, failed: %s",
			    qp->base.qid, qp->base.hostnqn[0] != '\0' ? qp->base.hostnqn : "an unknown host", why);
	}
}

static void handle_receive(struct nvmf_rdma_poller *p, struct nvmf_rdma_request *r, const struct ibv_wc *wc)
{
	struct nvmf_rdma_qpair *qp = p->srq != NULL ? poller_find_qpair(p, wc->qp_num) : r->qp;

	if (p->srq == NULL) {
		qp->receives--;
	}
	if (qp == NULL || qp->state != NVMF_RDMA_QPAIR_LIVE || wc->status != IBV_WC_SUCCESS) {
		drop_received_capsule(p, r);
		if (qp != NULL && wc->status != IBV_WC_SUCCESS) {
			end_failed_qpair(qp, wc);
		}
		if (qp != NULL) {
			nvmf_rdma_qpair_check_closed(qp);
		}
		return;
	}
	/* in_use also counts responses that have not been acknowledged, so a host that keeps to its queue depth can
	 * reach twice the depth, and no more. */
	if (wc->byte_len < sizeof(struct nvme_sqe) || qp->in_use >= 2u * qp->depth) {
		drop_received_capsule(p, r);
		nvmf_qpair_fail(&qp->base, wc->byte_len < sizeof(struct nvme_sqe)
						   ? "a capsule of less than 64 bytes"
						   : "more commands than its queue has entries");
		return;
	}
	p->counters.requests++;
	nvmf_rdma_request_received(qp, r, wc->byte_len);
}

static void handle_send(struct nvmf_rdma_request *r, const struct ibv_wc *wc)
{
	struct nvmf_rdma_qpair *qp = r->qp;

	qp->sends_done++;
	if (unlikely(wc->status != IBV_WC_SUCCESS)) {
		bool was_read = r->read_posted;

		end_failed_qpair(qp, wc);
		if (was_read) {
			nvmf_rdma_request_read_failed(r);
		} else {
			nvmf_rdma_request_sent(r);
		}
	} else if (r->read_posted) {
		nvmf_rdma_request_read_done(r);
	} else {
		nvmf_rdma_request_sent(r);
	}
	if (unlikely(!STAILQ_EMPTY(&qp->pending))) {
		nvmf_rdma_qpair_run_pending(qp);
	}
	nvmf_rdma_qpair_check_closed(qp);
}

/* An unsignalled work request failed. The signalled one behind it is flushed and ends the request, but its completion
 * does not tell the cause. */
static void COLD handle_unsignalled_failure(struct nvmf_rdma_poller *p, const struct ibv_wc *wc)
{
	struct nvmf_rdma_qpair *qp = poller_find_qpair(p, wc->qp_num);

	if (qp != NULL) {
		end_failed_qpair(qp, wc);
	}
}

static void handle_completion(struct nvmf_rdma_poller *p, const struct ibv_wc *wc)
{
	struct nvmf_rdma_request *r = (struct nvmf_rdma_request *)(uintptr_t)wc->wr_id;

	if (r == NULL) {
		handle_unsignalled_failure(p, wc);
		return;
	}
	if (r->state == RDMA_REQ_FREE) {
		handle_receive(p, r, wc);
	} else {
		handle_send(r, wc);
	}
}

static unsigned poller_take_completions(struct nvmf_rdma_poller *p)
{
	struct ibv_wc wc[NVMF_RDMA_POLL_BATCH];
	unsigned done = 0;
	int n;

	do {
		n = ibv_poll_cq(p->cq, NVMF_RDMA_POLL_BATCH, wc);
		if (unlikely(n < 0)) { /* the next round tries again */
			log_limited(LOG_LEVEL_ERROR,
				    "a completion queue of RDMA could not be read: ibv_poll_cq returned %d", n);
			break;
		}
		if (n > 0) { /* after an absence, what was received meanwhile is not carried out */
			thread_absence_check();
		}
		for (int i = 0; i < n; i++) {
			handle_completion(p, &wc[i]);
		}
		done += (unsigned)n;
	} while (n == NVMF_RDMA_POLL_BATCH && done < 4 * NVMF_RDMA_POLL_BATCH);
	return done;
}

static int poll_device(void *ctx)
{
	struct nvmf_rdma_poller *p = ctx;
	unsigned n = poller_take_completions(p);

	p->counters.polls++;
	if (n == 0) {
		p->counters.idle_polls++;
	}
	p->counters.completions += n;
	if (unlikely(nvmf_buffers_are_awaited(&p->tgroup->buffers) || !STAILQ_EMPTY(&p->tgroup->waiting_wrs))) {
		nvmf_rdma_group_run_waiting(p->tgroup);
	}
	poller_post_queued(p);
	return n > 0 ? POLLER_BUSY : POLLER_IDLE;
}

/* Disconnects hosts that acknowledge nothing: they post no receive for a response, so that the device retries forever,
 * or their device is silent and the local one does not notice. Their commands hold receives, buffers and work requests
 * that others could use. */
#define STALL_LOOKS 4

static bool qpair_is_stalled(struct nvmf_rdma_qpair *qp)
{
	if (qp->send_room == qp->send_entries || qp->sends_done != qp->sends_seen) {
		qp->sends_seen = qp->sends_done;
		qp->stalled = 0;
		return false;
	}
	return ++qp->stalled >= STALL_LOOKS;
}

static int poll_stalled_qpairs(void *ctx)
{
	struct nvmf_rdma_poller *p = ctx;
	struct nvmf_rdma_qpair *qp;

	for (unsigned i = 0; i < NVMF_RDMA_QPAIR_BUCKETS; i++) {
		SLIST_FOREACH (qp, &p->by_number[i], number_link) {
			if (qpair_is_stalled(qp) && qp->state == NVMF_RDMA_QPAIR_LIVE) {
				nvmf_qpair_fail(&qp->base, "it acknowledges nothing of what it is sent");
			}
		}
	}
	return POLLER_IDLE;
}

/* Before the reactor sleeps: consumes delivered events, asks for the next one, and polls once more for what came in
 * between. A command that waits for a buffer keeps the reactor awake, because another group may give the buffer back.
 */
static bool arm_poller(void *ctx)
{
	struct nvmf_rdma_poller *p = ctx;
	struct ibv_cq *cq;
	void *cq_context;

	/* one event at most: a completion queue tells one, and no other before it is asked for the next */
	while (ibv_get_cq_event(p->comp, &cq, &cq_context) == 0) {
		ibv_ack_cq_events(cq, 1);
	}
	if (nvmf_buffers_are_awaited(&p->tgroup->buffers)) {
		return true;
	}
	int rc = ibv_req_notify_cq(p->cq, 0);
	if (rc != 0) {
		log_limited(LOG_LEVEL_WARNING, "ibv_req_notify_cq: %s: the reactor stays awake", strerror(rc));
		return true;
	}
	return poll_device(p) == POLLER_BUSY;
}

/* Queue pairs of the poller. */

/* Other connections of the queue go on, and their hosts must not be able to keep it here: no more than fit are taken.
 */
void nvmf_rdma_poller_drain(struct nvmf_rdma_poller *p)
{
	uint32_t taken = 0, n;

	while (taken < p->cq_size && (n = poller_take_completions(p)) != 0) {
		taken += n;
	}
}

void nvmf_rdma_poller_add_qpair(struct nvmf_rdma_poller *p, struct nvmf_rdma_qpair *qp)
{
	/* completions of an earlier queue pair of this number are handled first */
	nvmf_rdma_poller_drain(p);
	qp->poller = p;
	qp->last_wqe = p->srq == NULL;
	qp->base.requests = p->srq != NULL ? &p->requests.base : &qp->requests.base;
	p->tgroup->connections++;
	p->tgroup->connection_bytes += sizeof(*qp) + qp->requests.bytes;
	SLIST_INSERT_HEAD(&p->by_number[qp->verbs->qp_num % NVMF_RDMA_QPAIR_BUCKETS], qp, number_link);
}

void nvmf_rdma_poller_forget_qpair(struct nvmf_rdma_poller *p, struct nvmf_rdma_qpair *qp)
{
	nvmf_rdma_poller_drain(p);
	poller_post_queued(p);
	SLIST_REMOVE(&p->by_number[qp->verbs->qp_num % NVMF_RDMA_QPAIR_BUCKETS], qp, nvmf_rdma_qpair, number_link);
}

void nvmf_rdma_poller_remove_qpair(struct nvmf_rdma_poller *p, struct nvmf_rdma_qpair *qp)
{
	if (!qp->abandoned) {
		nvmf_rdma_poller_forget_qpair(p, qp);
	}
	qp->base.requests = NULL;
	p->tgroup->connections--;
	p->tgroup->connection_bytes -= sizeof(*qp) + qp->requests.bytes;
}

/* Making and unmaking. */

int nvmf_rdma_poller_reserve(struct nvmf_rdma_poller *p, uint32_t n)
{
	uint32_t needed = p->cq_reserved + n, most = (uint32_t)p->device->attr.max_cqe;

	if (needed > p->cq_size) {
		/* by half more, so that it is not done for every connection */
		uint32_t size = needed + needed / 2 < most ? needed + needed / 2 : most;
		int rc = needed <= most ? ibv_resize_cq(p->cq, (int)size) : ENOSPC;

		if (rc != 0) {
			log_limited(LOG_LEVEL_WARNING,
				    "%s: a completion queue of %u entries cannot grow to %u: %s (fewer connections, or "
				    "a smaller max_srq_depth or max_queue_depth, need less)",
				    nvmf_rdma_device_name(p->device), p->cq_size, needed,
				    strerror(rc > 0 ? rc : errno));
			return -ENOSPC;
		}
		p->cq_size = size;
	}
	p->cq_reserved = needed;
	return 0;
}

static void poller_free(struct nvmf_rdma_poller *p)
{
	if (p->srq != NULL) {
		ibv_destroy_srq(p->srq);
	}
	if (p->cq != NULL) {
		ibv_destroy_cq(p->cq);
	}
	if (p->comp != NULL) {
		ibv_destroy_comp_channel(p->comp);
	}
	nvmf_rdma_request_array_destroy(&p->requests);
	free(p);
}

static int make_shared_receive_queue(struct nvmf_rdma_poller *p, const struct nvmf_rdma_transport *t)
{
	uint32_t depth = nvmf_rdma_opts(t)->max_srq_depth, limit = (uint32_t)p->device->attr.max_srq_wr;

	if (nvmf_rdma_opts(t)->no_srq || p->device->attr.max_srq == 0 || depth == 0) {
		return 0;
	}
	depth = depth < limit ? depth : limit;
	struct ibv_srq_init_attr init = {.srq_context = p, .attr = {.max_wr = depth, .max_sge = 2}};
	p->srq = ibv_create_srq(p->device->pd->pd, &init);
	if (p->srq == NULL) {
		log_limited(LOG_LEVEL_WARNING,
			    "%s: no shared receive queue of %u entries (%s); each connection gets its own receives",
			    ibv_get_device_name(p->device->verbs->device), depth, strerror(errno));
		return 0;
	}
	/* a request is posted as a receive, or has up to two work requests of its own (data and response); the pool has
	 * the others; one that gave its receive away has a response */
	uint32_t spares = nvmf_rdma_opts(t)->num_event_requests;
	int rc = nvmf_rdma_poller_reserve(p, 2 * depth + nvmf_rdma_data_wr_count(t) + spares);
	if (rc == 0) {
		rc = nvmf_rdma_request_array_create(&p->requests, depth, spares, t, p);
	}
	if (rc != 0) {
		errno = -rc;
		return rc;
	}
	for (uint32_t i = 0; i < depth; i++) {
		nvmf_rdma_qpair_queue_recv(p, NULL, &nvmf_rdma_request_at(&p->requests, i)->recv_wr);
	}
	post_shared_receives(p);
	for (uint32_t i = 0; i < spares; i++) {
		STAILQ_INSERT_TAIL(&p->spares.free, nvmf_rdma_request_at(&p->requests, depth + i), wait);
	}
	p->spares.count = p->spares.num_free = spares;
	return 0;
}

/* Milliseconds, where ack_timeout is not given: a device that notices a silent peer has done so long before. */
#define ACK_TIMEOUT_MS 30000

static uint64_t stall_poll_us(const struct nvmf_rdma_poller *p)
{
	uint64_t timeout_ms = p->tgroup->base.transport->opts.ack_timeout;

	return (timeout_ms != 0 ? timeout_ms : ACK_TIMEOUT_MS) * 1000 / STALL_LOOKS;
}

static void attach_poller(void *arg)
{
	struct nvmf_rdma_poller *p = arg;

	p->stall_poller = poller_register(&(struct poller_opts){.name = "nvmf_rdma_stalled",
								.fn = poll_stalled_qpairs,
								.ctx = p,
								.fd = -1,
								.period_us = stall_poll_us(p)});
	if (p->stall_poller == NULL) {
		return;
	}

	p->poller = poller_register(&(struct poller_opts){
		.name = "nvmf_rdma", .fn = poll_device, .ctx = p, .fd = p->comp->fd, .arm = arm_poller});
	if (p->poller == NULL) {
		poller_unregister(&p->stall_poller);
		return;
	}
	TAILQ_INSERT_TAIL(&p->tgroup->pollers, p, link);
	TAILQ_INSERT_TAIL(&p->device->pollers, p, device_link); /* the control thread waits for us */
}

static void detach_poller(void *arg)
{
	struct nvmf_rdma_poller *p = arg;
	struct ibv_cq *cq;
	void *cq_context;

	poller_unregister(&p->poller);
	poller_unregister(&p->stall_poller);
	TAILQ_REMOVE(&p->tgroup->pollers, p, link);
	TAILQ_REMOVE(&p->device->pollers, p, device_link);
	while (ibv_get_cq_event(p->comp, &cq, &cq_context) == 0) {
		ibv_ack_cq_events(cq, 1);
	}
}

/* The entries of a completion queue that cannot grow (siw): 2 MiB at most. */
#define FIXED_CQ_ENTRIES 65536

static struct ibv_cq *make_completion_queue(struct nvmf_rdma_poller *p, int entries)
{
	struct ibv_context *verbs = p->device->verbs;
	int most = p->device->attr.max_cqe;
	struct ibv_cq *cq = ibv_create_cq(verbs, entries, p, p->comp, 0);
	int rc = cq ? ibv_resize_cq(cq, cq->cqe) : 0;

	if ((rc != EOPNOTSUPP && rc != ENOSYS) || cq->cqe >= FIXED_CQ_ENTRIES) {
		return cq;
	}
	ibv_destroy_cq(cq);
	return ibv_create_cq(verbs, most < FIXED_CQ_ENTRIES ? most : FIXED_CQ_ENTRIES, p, p->comp, 0);
}

static struct nvmf_rdma_poller *poller_create(struct nvmf_rdma_group *g, struct nvmf_rdma_device *d)
{
	struct nvmf_rdma_poller *p = calloc(1, sizeof(*p));
	const struct nvmf_rdma_transport *t = nvmf_rdma_transport_of(g->base.transport);
	int cqes = nvmf_rdma_opts(t)->num_cqe < d->attr.max_cqe ? nvmf_rdma_opts(t)->num_cqe : d->attr.max_cqe;

	if (p == NULL) {
		return NULL;
	}
	cqes = cqes > 0 ? cqes : 1; /* it grows */
	p->device = d;
	p->tgroup = g;
	p->latency.until_sample = 1;
	p->latency.first_samples_left = LATENCY_FIRST_SAMPLES;
	p->no_wr_batching = nvmf_rdma_opts(t)->no_wr_batching;
	STAILQ_INIT(&p->dirty);
	STAILQ_INIT(&p->spares.free);
	p->comp = ibv_create_comp_channel(d->verbs);
	p->cq = p->comp ? make_completion_queue(p, cqes) : NULL;
	p->cq_size = p->cq ? (uint32_t)p->cq->cqe : 0;
	if (p->cq == NULL || fcntl(p->comp->fd, F_SETFL, O_NONBLOCK) != 0 || make_shared_receive_queue(p, t) != 0) {
		log_limited(LOG_LEVEL_ERROR, "%s: no completion queue of %d entries for a poll group: %s",
			    nvmf_rdma_device_name(p->device), cqes, strerror(errno));
		poller_free(p);
		return NULL;
	}
	thread_call(nvmf_rdma_group_thread(g), attach_poller, p);
	if (p->poller == NULL) {
		poller_free(p);
		return NULL;
	}
	return p;
}

struct nvmf_rdma_poller *nvmf_rdma_poller_get(struct nvmf_rdma_group *g, struct nvmf_rdma_device *d)
{
	struct nvmf_rdma_poller *p;

	TAILQ_FOREACH (p, &g->pollers, link) {
		if (p->device == d && !p->failed) {
			return p;
		}
	}
	return poller_create(g, d);
}

void nvmf_rdma_poller_destroy(struct nvmf_rdma_poller *p)
{
	detach_poller(p);
	poller_free(p);
}

void nvmf_rdma_poller_release(struct nvmf_rdma_poller *p)
{
	/* destroying queues may take long, so it is not done on the thread that serves other connections */
	thread_call(nvmf_rdma_group_thread(p->tgroup), detach_poller, p);
	poller_free(p);
}
