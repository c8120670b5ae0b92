/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of a request, on its poll group's thread. The table says which state may follow which; req_set_state() is
 * the only place that changes one, and where tracepoint and probe are. */
#include <errno.h>
#include <stdlib.h>

#include "env_dpdk/env.h"
#include "nvmf_rdma/internal.h"

#define TO(s) (UINT32_C(1) << RDMA_REQ_##s)

static const struct {
	const char *name;
	uint32_t next;
} states[RDMA_REQ_STATES] = {
	[RDMA_REQ_FREE] = {"free", TO(NEW)},
	[RDMA_REQ_NEW] = {"new", TO(NEED_BUFFER) | TO(HAVE_BUFFER) | TO(RDY_TO_EXECUTE) | TO(EXECUTED)},
	[RDMA_REQ_NEED_BUFFER] = {"need buffer", TO(HAVE_BUFFER) | TO(EXECUTED)},
	[RDMA_REQ_HAVE_BUFFER] = {"have buffer", TO(NEED_DATA_WR) | TO(TX_PENDING_H2C) | TO(TX_H2C) |
							 TO(RDY_TO_EXECUTE) | TO(EXECUTED)},
	[RDMA_REQ_NEED_DATA_WR] = {"need data work request", TO(TX_PENDING_H2C) | TO(TX_H2C) | TO(EXECUTED) |
								     TO(TX_PENDING_C2H) | TO(RDY2COMPL_PEND) |
								     TO(RDY_TO_COMPL) | TO(COMPLETED)},
	[RDMA_REQ_TX_PENDING_H2C] = {"transfer host to controller pending", TO(TX_H2C) | TO(EXECUTED)},
	[RDMA_REQ_TX_H2C] = {"transferring host to controller", TO(RDY_TO_EXECUTE) | TO(EXECUTED)},
	[RDMA_REQ_RDY_TO_EXECUTE] = {"ready to execute", TO(EXECUTING)},
	[RDMA_REQ_EXECUTING] = {"executing", TO(EXECUTED)},
	[RDMA_REQ_EXECUTED] = {"executed", TO(NEED_DATA_WR) | TO(TX_PENDING_C2H) | TO(RDY2COMPL_PEND) |
						   TO(RDY_TO_COMPL) | TO(COMPLETED)},
	[RDMA_REQ_TX_PENDING_C2H] = {"transfer controller to host pending", TO(RDY_TO_COMPL) | TO(COMPLETED)},
	[RDMA_REQ_RDY2COMPL_PEND] = {"response pending", TO(RDY_TO_COMPL) | TO(COMPLETED)},
	[RDMA_REQ_RDY_TO_COMPL] = {"ready to complete", TO(COMPLETING_C2H) | TO(COMPLETING)},
	[RDMA_REQ_COMPLETING_C2H] = {"completing with data", TO(COMPLETED)},
	[RDMA_REQ_COMPLETING] = {"completing", TO(COMPLETED)},
	[RDMA_REQ_COMPLETED] = {"completed", TO(FREE)},
};

const char *rdma_request_state_name(enum rdma_req_state s)
{
	return s < RDMA_REQ_STATES ? states[s].name : "unknown";
}

static uint64_t illegal_transitions;

static void __attribute__((noinline, cold)) illegal(const struct rdma_request *r, enum rdma_req_state new)
{
	illegal_transitions++;
	log_limited(LOG_LEVEL_ERROR, "a request went from '%s' to '%s'", states[r->state].name, states[new].name);
#ifndef NDEBUG
	abort(); /* a fault of ours: input chooses among the table's rows only */
#endif
}

/* Inlined with a constant state, so that one record is left of the switch. */
static inline __attribute__((always_inline)) void record_state(const struct rdma_request *r, enum rdma_req_state new)
{
	const struct rdma_qp *qp = r->qp;
	uintptr_t id = (uintptr_t)&r->req;
	uint32_t size = r->req.length;

	switch (new) {
#define RECORD(s)                                                                                                      \
	case RDMA_REQ_##s:                                                                                             \
		TRACE(RDMA_REQ_##s, qp->owner, size, id, qp);                                                          \
		break
		RECORD(NEED_BUFFER);
		RECORD(HAVE_BUFFER);
		RECORD(NEED_DATA_WR);
		RECORD(TX_PENDING_H2C);
		RECORD(TX_H2C);
		RECORD(RDY_TO_EXECUTE);
		RECORD(EXECUTING);
		RECORD(EXECUTED);
		RECORD(TX_PENDING_C2H);
		RECORD(RDY2COMPL_PEND);
		RECORD(RDY_TO_COMPL);
		RECORD(COMPLETING_C2H);
		RECORD(COMPLETING);
#undef RECORD
	case RDMA_REQ_NEW:
		TRACE(RDMA_REQ_NEW, qp->owner, 0, id, qp, qp->in_use);
		break;
	case RDMA_REQ_COMPLETED:
		TRACE(RDMA_REQ_COMPLETED, qp->owner, size, id, qp, qp->in_use);
		break;
	case RDMA_REQ_FREE:
	case RDMA_REQ_STATES:
		break;
	}
}

static inline __attribute__((always_inline)) void req_set_state(struct rdma_request *r, enum rdma_req_state new)
{
	if (__builtin_expect((states[r->state].next & UINT32_C(1) << new) == 0, 0)) {
		illegal(r, new);
	}
	record_state(r, new);
	USDT(nvmf_req_state, r->qp->base.hostnqn, r->qp->base.qid, nvmf_request_cid(&r->req), r->req.sqe->opcode,
	     usdt_states(r->state, new));
	r->state = new;
	r->state_ticks = thread_now();
}

static struct rdma_tgroup *group_of(const struct rdma_request *r)
{
	return r->qp->poller->tgroup;
}

static void exec(struct rdma_request *r)
{
	req_set_state(r, RDMA_REQ_RDY_TO_EXECUTE);
	req_set_state(r, RDMA_REQ_EXECUTING);
	nvmf_request_exec(&r->req);
}

/* The end: the response is out, or never will be. */

static void release(struct rdma_request *r)
{
	struct rdma_qp *qp = r->qp;
	struct rdma_tgroup *g = group_of(r);

	rdma_data_release(r);
	nvmf_request_release(&r->req);
	if (r->buffers != 0) {
		rdma_buffers_put(&g->buffers, r->iov, r->buffers);
		r->buffers = 0;
	}
	req_set_state(r, RDMA_REQ_COMPLETED);
	req_set_state(r, RDMA_REQ_FREE);
	qp->in_use--;
	rdma_request_repost(qp->poller, r);
}

void rdma_request_repost(struct rdma_poller *p, struct rdma_request *r)
{
	struct rdma_qp *qp = p->srq != NULL ? NULL : r->qp;

	if (qp != NULL && qp->state != RDMA_QP_LIVE) {
		return; /* a queue pair that ends takes no more capsules */
	}
	rdma_qp_queue_recv(p, qp, &r->recv_wr);
}

/* The response, with the data in front of it. */

static bool closing(const struct rdma_request *r)
{
	return r->qp->state != RDMA_QP_LIVE;
}

static void send_response(struct rdma_request *r, bool with_data)
{
	struct rdma_qp *qp = r->qp;
	struct ibv_send_wr *first = &r->rsp_wr;

	req_set_state(r, RDMA_REQ_RDY_TO_COMPL);
	r->send_slots = (uint16_t)(1 + (with_data ? r->data_wrs : 0));
	qp->send_room -= r->send_slots;
	r->rsp_wr.next = NULL;
	if (with_data) {
		first = &r->data_wr;
		rdma_data_last(r)->next = &r->rsp_wr;
		req_set_state(r, RDMA_REQ_COMPLETING_C2H);
	} else {
		req_set_state(r, RDMA_REQ_COMPLETING);
	}
	rdma_qp_queue_send(qp, first, &r->rsp_wr);
}

static bool has_data_to_send(const struct rdma_request *r)
{
	return r->req.xfer == NVME_DATA_TFR_CTRL_TO_HOST && r->req.length != 0 && nvmf_request_status(&r->req) == 0;
}

/* A host that lists its keys for invalidation gets one of them invalidated with the response (RDMA 3.4). */
static void choose_opcode(struct rdma_request *r)
{
	struct nvmf_sgl_iter it;
	struct nvmf_sgl_block block;

	r->rsp_wr.opcode = IBV_WR_SEND;
	if (r->req.length == 0 || r->req.sgl.kind != NVMF_SGL_KEYED) {
		return;
	}
	it = nvmf_sgl_iter(&r->req.sgl);
	if (nvmf_sgl_next(&it, &block) && block.invalidate) {
		r->rsp_wr.opcode = IBV_WR_SEND_WITH_INV;
		r->rsp_wr.invalidate_rkey = block.key;
		r->rsp_wr.wr.rdma.rkey = block.key; /* where siw's provider looks for it; others do not look there */
	}
}

static void give_internal_error(struct rdma_request *r)
{
	r->req.cqe.status = htole16((uint16_t)(NVME_ST_DNR(GENERIC, INTERNAL) << 1));
}

/* EXECUTED, or waiting since: builds and sends, or says what it waits for. */
static void try_response(struct rdma_request *r)
{
	struct rdma_qp *qp = r->qp;
	bool with_data = has_data_to_send(r);

	if (with_data && r->data_wrs == 0) {
		int rc = rdma_data_build(r, IBV_WR_RDMA_WRITE);
		if (rc == -EAGAIN) {
			if (r->state != RDMA_REQ_NEED_DATA_WR) {
				req_set_state(r, RDMA_REQ_NEED_DATA_WR);
			}
			STAILQ_INSERT_TAIL(&group_of(r)->waiting_wrs, r, wait);
			return;
		}
		if (rc != 0) {
			give_internal_error(r);
			with_data = false;
		}
	}
	if (qp->send_room < (with_data ? r->data_wrs : 0) + 1u || !STAILQ_EMPTY(&qp->pending)) {
		if (with_data) {
			req_set_state(r, RDMA_REQ_TX_PENDING_C2H);
		} else {
			req_set_state(r, RDMA_REQ_RDY2COMPL_PEND);
		}
		STAILQ_INSERT_TAIL(&qp->pending, r, wait);
		return;
	}
	send_response(r, with_data);
}

void rdma_op_request_complete(struct nvmf_request *req)
{
	struct rdma_request *r = to_rdma_request(req);

	req_set_state(r, RDMA_REQ_EXECUTED);
	r->qp->poller->stats.request_latency += thread_now() - req->start_ticks;
	if (__builtin_expect(closing(r), 0)) {
		release(r);
		rdma_qp_check_closed(r->qp);
		return;
	}
	choose_opcode(r);
	try_response(r);
}

void rdma_request_sent(struct rdma_request *r)
{
	struct rdma_qp *qp = r->qp;

	qp->send_room += r->send_slots;
	r->send_slots = 0;
	release(r);
}

/* Fetching the host's data. */

static bool may_read(const struct rdma_qp *qp, const struct rdma_request *r)
{
	/* a transfer of more reads than there are credits goes when it has them all to itself */
	return qp->send_room >= r->data_wrs && (qp->reads == 0 || qp->reads + r->data_wrs <= qp->max_reads);
}

static void post_reads(struct rdma_request *r)
{
	struct rdma_qp *qp = r->qp;
	struct ibv_send_wr *last = rdma_data_last(r);

	last->wr_id = (uintptr_t)r;
	last->send_flags = IBV_SEND_SIGNALED;
	r->send_slots = r->data_wrs;
	qp->send_room -= r->data_wrs;
	qp->reads += r->data_wrs;
	r->read_posted = true;
	req_set_state(r, RDMA_REQ_TX_H2C);
	rdma_qp_queue_send(qp, &r->data_wr, last);
}

static void try_read(struct rdma_request *r)
{
	struct rdma_qp *qp = r->qp;
	int rc = rdma_data_build(r, IBV_WR_RDMA_READ);

	if (rc == -EAGAIN) {
		if (r->state != RDMA_REQ_NEED_DATA_WR) {
			req_set_state(r, RDMA_REQ_NEED_DATA_WR);
		}
		STAILQ_INSERT_TAIL(&group_of(r)->waiting_wrs, r, wait);
		return;
	}
	if (rc != 0) {
		nvmf_request_fail(&r->req, NVME_ST_DNR(GENERIC, INTERNAL));
		return;
	}
	if (!STAILQ_EMPTY(&qp->pending) || !may_read(qp, r)) {
		req_set_state(r, RDMA_REQ_TX_PENDING_H2C);
		qp->poller->stats.pending_rdma_read++;
		STAILQ_INSERT_TAIL(&qp->pending, r, wait);
		return;
	}
	post_reads(r);
}

static void reads_ended(struct rdma_request *r)
{
	struct rdma_qp *qp = r->qp;

	r->read_posted = false;
	qp->reads -= r->data_wrs;
	qp->send_room += r->send_slots;
	r->send_slots = 0;
	rdma_data_release(r);
}

void rdma_request_read_done(struct rdma_request *r)
{
	reads_ended(r);
	if (__builtin_expect(closing(r), 0)) {
		nvmf_request_fail(&r->req, NVME_ST(GENERIC, ABORT_QUEUE));
		return;
	}
	exec(r);
}

void rdma_request_read_failed(struct rdma_request *r)
{
	reads_ended(r);
	nvmf_request_fail(&r->req, NVME_ST(GENERIC, DATA_XFER_ERROR));
}

void rdma_qp_run_pending(struct rdma_qp *qp)
{
	struct rdma_request *r;

	while ((r = STAILQ_FIRST(&qp->pending)) != NULL) {
		if (r->state == RDMA_REQ_TX_PENDING_H2C) {
			if (!may_read(qp, r)) {
				return;
			}
			STAILQ_REMOVE_HEAD(&qp->pending, wait);
			post_reads(r);
		} else {
			bool with_data = r->state == RDMA_REQ_TX_PENDING_C2H;

			if (qp->send_room < (with_data ? r->data_wrs : 0) + 1u) {
				return;
			}
			STAILQ_REMOVE_HEAD(&qp->pending, wait);
			send_response(r, with_data);
		}
	}
}

/* Buffers. */

static void have_buffer(struct rdma_request *r)
{
	req_set_state(r, RDMA_REQ_HAVE_BUFFER);
	if (r->req.xfer == NVME_DATA_TFR_HOST_TO_CTRL) {
		try_read(r);
	} else {
		exec(r);
	}
}

static bool get_buffers(struct rdma_request *r)
{
	struct rdma_tgroup *g = group_of(r);
	uint16_t n = rdma_buffers_get(&g->buffers, g->buffer_size, r->iov, r->req.length, r->req.reserved_lane);

	if (n == 0) {
		return false;
	}
	r->req.iovcnt = n;
	r->buffers = n;
	return true;
}

static void need_buffer(struct rdma_request *r)
{
	struct rdma_tgroup *g = group_of(r);

	if (g->base.transport->opts.zcopy && nvmf_request_lend(&r->req)) {
		have_buffer(r);
		return;
	}
	/* who comes later does not overtake who waits - but the reserved lane has buffers of its own */
	if ((STAILQ_EMPTY(&g->waiting) || r->req.reserved_lane) && get_buffers(r)) {
		have_buffer(r);
		return;
	}
	req_set_state(r, RDMA_REQ_NEED_BUFFER);
	g->pending_data_buffer++;
	iobuf_waits(&g->buffers,
		    iobuf_class_of(&g->buffers, r->req.length < g->buffer_size ? r->req.length : g->buffer_size));
	USDT(buffer_wait, "nvmf_RDMA", r->qp->base.hostnqn, r->req.length);
	STAILQ_INSERT_TAIL(&g->waiting, r, wait);
}

void rdma_tgroup_run_waiting(struct rdma_tgroup *g)
{
	struct rdma_request_queue wrs = STAILQ_HEAD_INITIALIZER(wrs);
	struct rdma_request *r;

	while ((r = STAILQ_FIRST(&g->waiting)) != NULL && get_buffers(r)) {
		STAILQ_REMOVE_HEAD(&g->waiting, wait);
		have_buffer(r);
	}
	if (g->free_data_wrs == NULL) {
		return;
	}
	STAILQ_CONCAT(&wrs, &g->waiting_wrs);
	while ((r = STAILQ_FIRST(&wrs)) != NULL) {
		STAILQ_REMOVE_HEAD(&wrs, wait);
		if (r->req.xfer == NVME_DATA_TFR_HOST_TO_CTRL) {
			try_read(r);
		} else {
			try_response(r);
		}
	}
}

/* Arrival. */

static void go_on(struct rdma_request *r, enum nvmf_next next)
{
	switch (next) {
	case NVMF_NEXT_EXEC:
		exec(r);
		break;
	case NVMF_NEXT_BUFFER:
		need_buffer(r);
		break;
	case NVMF_NEXT_COMPLETE:
		rdma_op_request_complete(&r->req);
		break;
	case NVMF_NEXT_WAIT:
		break;
	}
}

void rdma_op_request_continue(struct nvmf_request *req, enum nvmf_next next)
{
	go_on(to_rdma_request(req), next);
}

void rdma_request_received(struct rdma_qp *qp, struct rdma_request *r, uint32_t bytes)
{
	r->qp = qp;
	r->req.qpair = &qp->base;
	qp->in_use++;
	if (__builtin_expect(!qp->described && qp->base.hostnqn[0] != '\0', 0)) {
		rdma_qp_describe(qp);
	}
	req_set_state(r, RDMA_REQ_NEW);
	r->req.icd_len = bytes - (uint32_t)sizeof(struct nvme_sqe);
	go_on(r, nvmf_request_start(&r->req));
}

/* Removing a request from the queue it waits in; false when it waits in none. */
static bool leave_queue(struct rdma_request *r)
{
	struct rdma_tgroup *g = group_of(r);

	switch ((enum rdma_req_state)r->state) {
	case RDMA_REQ_NEED_BUFFER:
		STAILQ_REMOVE(&g->waiting, r, rdma_request, wait);
		return true;
	case RDMA_REQ_NEED_DATA_WR:
		STAILQ_REMOVE(&g->waiting_wrs, r, rdma_request, wait);
		return true;
	case RDMA_REQ_TX_PENDING_H2C:
	case RDMA_REQ_TX_PENDING_C2H:
	case RDMA_REQ_RDY2COMPL_PEND:
		STAILQ_REMOVE(&r->qp->pending, r, rdma_request, wait);
		return true;
	default:
		return false;
	}
}

/* Whether its execution is over: what is left is its response. */
static bool is_executed(const struct rdma_request *r)
{
	return r->state == RDMA_REQ_TX_PENDING_C2H || r->state == RDMA_REQ_RDY2COMPL_PEND ||
	       (r->state == RDMA_REQ_NEED_DATA_WR && r->req.xfer == NVME_DATA_TFR_CTRL_TO_HOST);
}

bool rdma_op_request_abort(struct nvmf_request *req)
{
	struct rdma_request *r = to_rdma_request(req);

	if (is_executed(r) || !leave_queue(r)) {
		return false;
	}
	rdma_data_release(r);
	nvmf_request_fail(req, NVME_ST(GENERIC, ABORT_REQ));
	return true;
}

static void fail_waiting(struct rdma_request *r)
{
	bool executed = is_executed(r);

	if (!leave_queue(r)) {
		return;
	}
	rdma_data_release(r);
	if (executed) {
		release(r);
	} else {
		nvmf_request_fail(&r->req, NVME_ST(GENERIC, ABORT_QUEUE));
	}
}

static const struct rdma_requests *requests_of(const struct rdma_qp *qp)
{
	return qp->poller->srq != NULL ? &qp->poller->requests : &qp->requests;
}

void rdma_qp_fail_waiting(struct rdma_qp *qp)
{
	const struct rdma_requests *all = requests_of(qp);

	for (uint32_t i = 0; i < all->count; i++) {
		struct rdma_request *r = rdma_requests_at(all, i);
		if (r->state != RDMA_REQ_FREE && r->qp == qp) {
			fail_waiting(r);
		}
	}
}

/* A request of a queue pair that takes no new work is the device's while it reads or sends; any other ends by
 * itself. */
static bool is_owed(const struct rdma_request *r)
{
	return r->state == RDMA_REQ_TX_H2C || r->state == RDMA_REQ_COMPLETING || r->state == RDMA_REQ_COMPLETING_C2H;
}

uint32_t rdma_qp_owed(const struct rdma_qp *qp)
{
	uint32_t n = qp->receives;

	if (qp->poller == NULL) {
		return n; /* it never went live */
	}
	const struct rdma_requests *all = requests_of(qp);
	for (uint32_t i = 0; i < all->count; i++) {
		const struct rdma_request *r = rdma_requests_at(all, i);
		n += r->qp == qp && is_owed(r);
	}
	return n;
}

void rdma_qp_reclaim(struct rdma_qp *qp)
{
	const struct rdma_requests *all = qp->poller != NULL ? requests_of(qp) : NULL;

	for (uint32_t i = 0; all != NULL && i < all->count; i++) {
		struct rdma_request *r = rdma_requests_at(all, i);

		if (r->qp != qp || !is_owed(r)) {
			continue;
		}
		if (r->state == RDMA_REQ_TX_H2C) {
			rdma_request_read_failed(r);
		} else {
			rdma_request_sent(r);
		}
	}
	qp->receives = 0;
}

/* For who looks on. */

struct nvmf_request *rdma_op_request_next(struct nvmf_qpair *qpair, struct nvmf_request *after)
{
	struct rdma_qp *qp = to_rdma_qp(qpair);

	if (qp->poller == NULL) {
		return NULL;
	}
	const struct rdma_requests *all = requests_of(qp);
	uint32_t i = after ? (uint32_t)(((uint8_t *)to_rdma_request(after) - all->memory) / all->stride) + 1 : 0;
	for (; i < all->count; i++) {
		struct rdma_request *r = rdma_requests_at(all, i);
		if (r->state != RDMA_REQ_FREE && r->qp == qp) {
			return &r->req;
		}
	}
	return NULL;
}

const char *rdma_op_request_state(unsigned n)
{
	for (unsigned s = 0; s < RDMA_REQ_FREE; s++) { /* the numbers have gaps */
		if (states[s].name != NULL && n-- == 0) {
			return states[s].name;
		}
	}
	return NULL;
}

void rdma_op_request_describe(struct nvmf_request *req, struct nvmf_inflight *out)
{
	static const char *const waits[RDMA_REQ_STATES] = {
		[RDMA_REQ_NEED_BUFFER] = "data buffer",
		[RDMA_REQ_NEED_DATA_WR] = "data work request",
		[RDMA_REQ_TX_PENDING_H2C] = "RDMA READ credit",
		[RDMA_REQ_TX_H2C] = "the host's data",
		[RDMA_REQ_TX_PENDING_C2H] = "room in the send queue",
		[RDMA_REQ_RDY2COMPL_PEND] = "room in the send queue",
		[RDMA_REQ_COMPLETING_C2H] = "the host's acknowledgement",
		[RDMA_REQ_COMPLETING] = "the host's acknowledgement",
	};
	struct rdma_request *r = to_rdma_request(req);

	out->state = rdma_request_state_name(r->state);
	out->waits_for = waits[r->state];
	out->state_age_ticks = env_ticks() - r->state_ticks;
	out->object = req;
}
