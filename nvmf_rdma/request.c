/* SPDX-License-Identifier: BSD-3-Clause */
/* A request from its capsule to its response, on its poll group's thread. The table says which state may follow which.
 * Only set_request_state() changes a state; it records the tracepoint and fires the probe. */
#include <errno.h>

#include "env_dpdk/env.h"
#include "nvmf_rdma/internal.h"
#include "util/state_machine.h"

#define TO(s) (UINT32_C(1) << RDMA_REQ_##s)

static const uint32_t next_states[RDMA_REQ_STATES] = {
	[RDMA_REQ_FREE] = TO(NEW),
	[RDMA_REQ_NEW] = TO(NEED_BUFFER) | TO(HAVE_BUFFER) | TO(RDY_TO_EXECUTE) | TO(EXECUTED),
	[RDMA_REQ_NEED_BUFFER] = TO(HAVE_BUFFER) | TO(EXECUTED),
	[RDMA_REQ_HAVE_BUFFER] = TO(NEED_DATA_WR) | TO(TX_PENDING_H2C) | TO(TX_H2C) | TO(RDY_TO_EXECUTE) | TO(EXECUTED),
	[RDMA_REQ_NEED_DATA_WR] = TO(TX_PENDING_H2C) | TO(TX_H2C) | TO(EXECUTED) | TO(TX_PENDING_C2H) |
				  TO(RDY2COMPL_PEND) | TO(RDY_TO_COMPL) | TO(COMPLETED),
	[RDMA_REQ_TX_PENDING_H2C] = TO(TX_H2C) | TO(EXECUTED),
	[RDMA_REQ_TX_H2C] = TO(RDY_TO_EXECUTE) | TO(EXECUTED),
	[RDMA_REQ_RDY_TO_EXECUTE] = TO(EXECUTING),
	[RDMA_REQ_EXECUTING] = TO(EXECUTED),
	[RDMA_REQ_EXECUTED] =
		TO(NEED_DATA_WR) | TO(TX_PENDING_C2H) | TO(RDY2COMPL_PEND) | TO(RDY_TO_COMPL) | TO(COMPLETED),
	[RDMA_REQ_TX_PENDING_C2H] = TO(RDY_TO_COMPL) | TO(COMPLETED),
	[RDMA_REQ_RDY2COMPL_PEND] = TO(RDY_TO_COMPL) | TO(COMPLETED),
	[RDMA_REQ_RDY_TO_COMPL] = TO(COMPLETING_C2H) | TO(COMPLETING),
	[RDMA_REQ_COMPLETING_C2H] = TO(COMPLETED),
	[RDMA_REQ_COMPLETING] = TO(COMPLETED),
	[RDMA_REQ_COMPLETED] = TO(FREE),
};

#define STATE(s_, name_, class_, ...) [RDMA_REQ_##s_] = {name_, #s_, .class = NVMF_CLASS_##class_, ##__VA_ARGS__}
#define MORE_WRS                      "nvmf_create_transport data_wr_pool_size=N"

const struct nvmf_transport_state nvmf_rdma_request_states[RDMA_REQ_STATES] = {
	STATE(FREE, "free", IDLE),
	STATE(NEW, "new", PASSING),
	STATE(NEED_BUFFER, "need buffer", WAITS_FOR_BUFFER, .waits_for = "data buffer"),
	STATE(HAVE_BUFFER, "have buffer", PASSING),
	STATE(NEED_DATA_WR, "need data work request", WAITS_FOR_ROOM, .waits_for = "data work request",
	      .remedy = MORE_WRS),
	STATE(TX_PENDING_H2C, "transfer host to controller pending", WAITS_FOR_ROOM, .waits_for = "RDMA READ credit"),
	STATE(TX_H2C, "transferring host to controller", TRANSFERS, .waits_for = "the host's data"),
	STATE(RDY_TO_EXECUTE, "ready to execute", PASSING),
	STATE(EXECUTING, "executing", EXECUTES),
	STATE(EXECUTED, "executed", PASSING),
	STATE(TX_PENDING_C2H, "transfer controller to host pending", WAITS_FOR_ROOM,
	      .waits_for = "room in the send queue"),
	STATE(RDY2COMPL_PEND, "response pending", WAITS_FOR_ROOM, .waits_for = "room in the send queue"),
	STATE(RDY_TO_COMPL, "ready to complete", PASSING),
	STATE(COMPLETING_C2H, "completing with data", COMPLETES, .waits_for = "the host's acknowledgement"),
	STATE(COMPLETING, "completing", COMPLETES, .waits_for = "the host's acknowledgement"),
	STATE(COMPLETED, "completed", PASSING),
};

static const char *request_state_name(unsigned n)
{
	const char *name = n < RDMA_REQ_STATES ? nvmf_rdma_request_states[n].name : NULL;

	return name != NULL ? name : "unknown";
}
STATE_MACHINE(request_machine, "nvmf_rdma request", request_state_name, next_states)

/* Inlined where the state is a constant, so that one case of the switch is left. */
static ALWAYS_INLINE void record_request_state(const struct nvmf_rdma_request *r, enum nvmf_rdma_request_state new)
{
	const struct nvmf_rdma_qpair *qp = r->qp;
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

/* The check is state_machine_check() without its loads: the table is this file's, new is a constant where it is called,
 * and nothing else writes r->state. */
static ALWAYS_INLINE void set_request_state(struct nvmf_rdma_request *r, enum nvmf_rdma_request_state new)
{
	if (unlikely((next_states[r->state] & UINT32_C(1) << new) == 0)) {
		state_machine_violation(&request_machine, r->state, new, r->qp->base.hostnqn);
	}
	record_request_state(r, new);
	USDT(nvmf_req_state, r->qp->base.hostnqn, r->qp->base.qid, nvmf_request_cid(&r->req), r->req.sqe->opcode,
	     usdt_states(r->state, new));
	r->state = new;
	r->state_ticks = thread_now();
}

/* Whether anybody sees a state that a request is in for no time. */
static ALWAYS_INLINE bool states_are_watched(void)
{
	return unlikely(__atomic_load_n(&trace_group_mask[TRACE_GROUP_NVMF_RDMA], __ATOMIC_RELAXED) != 0) ||
	       USDT_ENABLED(nvmf_req_state);
}

/* Two states, one right after the other. Without tracer the first is checked and leaves nothing. */
static ALWAYS_INLINE void set_two_request_states(struct nvmf_rdma_request *r, enum nvmf_rdma_request_state first,
						 enum nvmf_rdma_request_state second)
{
	if (states_are_watched() || unlikely((next_states[r->state] & UINT32_C(1) << first) == 0)) {
		set_request_state(r, first);
	} else {
		r->state = first;
	}
	set_request_state(r, second);
}

static struct nvmf_rdma_group *request_group(const struct nvmf_rdma_request *r)
{
	return r->qp->poller->tgroup;
}

static void execute_request(struct nvmf_rdma_request *r)
{
	set_two_request_states(r, RDMA_REQ_RDY_TO_EXECUTE, RDMA_REQ_EXECUTING);
	nvmf_request_exec(&r->req);
}

/* ---- The end: the response has been sent, or never will be ---- */

static void release_request(struct nvmf_rdma_request *r)
{
	struct nvmf_rdma_qpair *qp = r->qp;
	struct nvmf_rdma_group *g = request_group(r);

	nvmf_rdma_data_release(r);
	nvmf_request_release(&r->req);
	if (r->buffers != 0) {
		nvmf_buffers_put(&g->buffers, r->req.iov, r->buffers);
		r->buffers = 0;
	}
	set_two_request_states(r, RDMA_REQ_COMPLETED, RDMA_REQ_FREE);
	qp->in_use--;
	nvmf_rdma_request_repost(qp->poller, r);
}

/* The array is looked at up to the last spare that was ever used, so that those that nobody needs cost nothing. */
static void count_used_spare(struct nvmf_rdma_poller *p, const struct nvmf_rdma_request *spare)
{
	uint32_t index = (uint32_t)((size_t)((const uint8_t *)spare - p->requests.memory) / p->requests.base.stride);

	if (index >= p->requests.base.count) {
		p->requests.base.count = index + 1;
	}
}

/* The spare takes r's place in the shared receive queue, and r becomes a spare. */
static void give_receive_to_spare(struct nvmf_rdma_poller *p, struct nvmf_rdma_request *r,
				  struct nvmf_rdma_request *spare)
{
	spare->recv_sge[1] = r->recv_sge[1];
	spare->req.icd = r->req.icd;
	spare->req.iov = r->req.iov;
	r->req.icd = NULL;
	r->req.iov = NULL;
	count_used_spare(p, spare);
	nvmf_rdma_qpair_queue_recv(p, NULL, &spare->recv_wr);
}

/* Anybody may have half of the spares, so that hosts of subsystems find one. */
bool nvmf_rdma_op_request_hold(struct nvmf_request *req, bool anybody)
{
	struct nvmf_rdma_request *r = nvmf_rdma_request_of(req);
	struct nvmf_rdma_poller *p = r->qp->poller;
	struct nvmf_rdma_spares *spares = &p->spares;

	if (p->srq == NULL || spares->count == 0) {
		return true; /* it occupies a receive of its own host, or as the operator wants it */
	}
	if (spares->num_free == 0 || (anybody && spares->num_free <= spares->count / 2)) {
		log_limited(LOG_LEVEL_WARNING,
			    "an Asynchronous Event Request of %s is refused: %u wait for an event in its poll group; "
			    "num_event_requests of nvmf_create_transport is %u%s",
			    req->qpair->hostnqn, spares->count - spares->num_free, spares->count,
			    anybody ? ", of which discovery controllers may have half" : "");
		return false;
	}
	struct nvmf_rdma_request *spare = STAILQ_FIRST(&spares->free);
	STAILQ_REMOVE_HEAD(&spares->free, wait);
	spares->num_free--;
	give_receive_to_spare(p, r, spare);
	return true;
}

void nvmf_rdma_request_repost(struct nvmf_rdma_poller *p, struct nvmf_rdma_request *r)
{
	if (unlikely(nvmf_rdma_request_is_spare(r))) {
		STAILQ_INSERT_HEAD(&p->spares.free, r, wait);
		p->spares.num_free++;
		return;
	}
	struct nvmf_rdma_qpair *qp = p->srq != NULL ? NULL : r->qp;

	if (qp != NULL && qp->state != NVMF_RDMA_QPAIR_LIVE) {
		return; /* a closing queue pair takes no more capsules */
	}
	nvmf_rdma_qpair_queue_recv(p, qp, &r->recv_wr);
}

/* ---- The response, with the data before it ---- */

static bool is_closing(const struct nvmf_rdma_request *r)
{
	return r->qp->state != NVMF_RDMA_QPAIR_LIVE;
}

static void send_response(struct nvmf_rdma_request *r, bool with_data)
{
	struct nvmf_rdma_qpair *qp = r->qp;
	struct ibv_send_wr *first = &r->rsp_wr;

	r->send_slots = (uint16_t)(1 + (with_data ? r->data_wrs : 0));
	qp->send_room -= r->send_slots;
	r->rsp_wr.next = NULL;
	if (with_data) {
		first = &r->data_wr;
		nvmf_rdma_data_last(r)->next = &r->rsp_wr;
		set_two_request_states(r, RDMA_REQ_RDY_TO_COMPL, RDMA_REQ_COMPLETING_C2H);
	} else {
		set_two_request_states(r, RDMA_REQ_RDY_TO_COMPL, RDMA_REQ_COMPLETING);
	}
	nvmf_rdma_qpair_queue_send(qp, first, &r->rsp_wr);
}

static bool has_data_to_send(const struct nvmf_rdma_request *r)
{
	return r->req.xfer == NVME_DATA_TFR_CTRL_TO_HOST && r->req.length != 0 && nvmf_request_status(&r->req) == 0;
}

/* A host that lists its keys for invalidation gets one of them invalidated with the response (RDMA 3.4). */
static void choose_opcode(struct nvmf_rdma_request *r)
{
	struct nvmf_sgl_iter it;
	struct nvmf_sgl_block block;

	r->rsp_wr.opcode = IBV_WR_SEND;
	if (r->req.length == 0 || r->req.sgl.kind != NVMF_SGL_KEYED) {
		return;
	}
	const union nvme_sgl_desc *single = nvmf_sgl_single(&r->req.sgl);
	if (likely(single != NULL && nvme_sgl_subtype(single) != NVME_SGL_SUBTYPE_INVALIDATE_KEY)) {
		return;
	}
	it = nvmf_sgl_iter(&r->req.sgl);
	if (nvmf_sgl_next(&it, &block) && block.invalidate) {
		r->rsp_wr.opcode = IBV_WR_SEND_WITH_INV;
		r->rsp_wr.invalidate_rkey = block.key;
		r->rsp_wr.wr.rdma.rkey = block.key; /* siw's provider reads the key here; others do not */
	}
}

static void set_internal_error(struct nvmf_rdma_request *r)
{
	r->req.cqe.status = htole16((uint16_t)(NVME_ST_DNR(GENERIC, INTERNAL) << 1));
}

/* Sends the response of a request that is EXECUTED or has waited since, or lets it wait (again). */
static void start_response(struct nvmf_rdma_request *r)
{
	struct nvmf_rdma_qpair *qp = r->qp;
	bool with_data = has_data_to_send(r);

	if (with_data && r->data_wrs == 0) {
		int rc = nvmf_rdma_data_build(r, IBV_WR_RDMA_WRITE);
		if (rc == -EAGAIN) {
			if (r->state != RDMA_REQ_NEED_DATA_WR) {
				set_request_state(r, RDMA_REQ_NEED_DATA_WR);
			}
			STAILQ_INSERT_TAIL(&request_group(r)->waiting_wrs, r, wait);
			return;
		}
		if (rc != 0) {
			set_internal_error(r);
			with_data = false;
		}
	}
	if (qp->send_room < (with_data ? r->data_wrs : 0) + 1u || !STAILQ_EMPTY(&qp->pending)) {
		if (with_data) {
			set_request_state(r, RDMA_REQ_TX_PENDING_C2H);
			qp->poller->counters.pending_rdma_write++;
		} else {
			set_request_state(r, RDMA_REQ_RDY2COMPL_PEND);
			qp->poller->counters.pending_rdma_send++;
		}
		STAILQ_INSERT_TAIL(&qp->pending, r, wait);
		return;
	}
	send_response(r, with_data);
}

/* The time of a request whose exact time is measured; what follows learns from an I/O command. */
static NOINLINE uint64_t request_exact_ticks(struct nvmf_rdma_request *r, uint64_t round_ticks)
{
	int64_t measured = (int64_t)(env_ticks() - r->req.start_ticks - r->req.exact_ticks);
	uint64_t ticks = measured > 0 ? (uint64_t)measured : 0;

	if (r->qp->base.qid != 0 && r->req.sqe->opcode != nvme_admin_fabrics) {
		latency_learn(&r->qp->poller->latency.correction, round_ticks, ticks);
		nvmf_request_measured(&r->req, ticks);
	}
	return ticks;
}

/* From the arrival of a request that is being completed. */
static inline uint64_t request_ticks(struct nvmf_rdma_request *r)
{
	int64_t rounds = (int64_t)(thread_now() - r->req.start_ticks);
	uint64_t round_ticks = rounds > 0 ? (uint64_t)rounds : 0;

	if (unlikely(r->req.exact_ticks != 0)) {
		return request_exact_ticks(r, round_ticks);
	}
	return latency_estimate(&r->qp->poller->latency.correction, round_ticks);
}

void nvmf_rdma_op_request_complete(struct nvmf_request *req)
{
	struct nvmf_rdma_request *r = nvmf_rdma_request_of(req);

	r->qp->poller->counters.request_latency += request_ticks(r);
	set_request_state(r, RDMA_REQ_EXECUTED);
	if (unlikely(is_closing(r))) {
		release_request(r);
		nvmf_rdma_qpair_check_closed(r->qp);
		return;
	}
	choose_opcode(r);
	start_response(r);
}

void nvmf_rdma_request_sent(struct nvmf_rdma_request *r)
{
	struct nvmf_rdma_qpair *qp = r->qp;

	qp->send_room += r->send_slots;
	r->send_slots = 0;
	release_request(r);
}

/* ---- Fetching the host's data ---- */

static bool has_read_credits(const struct nvmf_rdma_qpair *qp, const struct nvmf_rdma_request *r)
{
	/* a transfer of more RDMA READs than there are credits is posted when no other READ is outstanding */
	return qp->send_room >= r->data_wrs && (qp->reads == 0 || qp->reads + r->data_wrs <= qp->max_reads);
}

static void post_reads(struct nvmf_rdma_request *r)
{
	struct nvmf_rdma_qpair *qp = r->qp;
	struct ibv_send_wr *last = nvmf_rdma_data_last(r);

	last->wr_id = (uintptr_t)r;
	last->send_flags = IBV_SEND_SIGNALED;
	r->send_slots = r->data_wrs;
	qp->send_room -= r->data_wrs;
	qp->reads += r->data_wrs;
	r->read_posted = true;
	set_request_state(r, RDMA_REQ_TX_H2C);
	nvmf_rdma_qpair_queue_send(qp, &r->data_wr, last);
}

static void start_read(struct nvmf_rdma_request *r)
{
	struct nvmf_rdma_qpair *qp = r->qp;
	int rc = nvmf_rdma_data_build(r, IBV_WR_RDMA_READ);

	if (rc == -EAGAIN) {
		if (r->state != RDMA_REQ_NEED_DATA_WR) {
			set_request_state(r, RDMA_REQ_NEED_DATA_WR);
		}
		STAILQ_INSERT_TAIL(&request_group(r)->waiting_wrs, r, wait);
		return;
	}
	if (rc != 0) {
		nvmf_request_fail(&r->req, NVME_ST_DNR(GENERIC, INTERNAL));
		return;
	}
	if (!STAILQ_EMPTY(&qp->pending) || !has_read_credits(qp, r)) {
		set_request_state(r, RDMA_REQ_TX_PENDING_H2C);
		qp->poller->counters.pending_rdma_read++;
		STAILQ_INSERT_TAIL(&qp->pending, r, wait);
		return;
	}
	post_reads(r);
}

static void end_reads(struct nvmf_rdma_request *r)
{
	struct nvmf_rdma_qpair *qp = r->qp;

	r->read_posted = false;
	qp->reads -= r->data_wrs;
	qp->send_room += r->send_slots;
	r->send_slots = 0;
	nvmf_rdma_data_release(r);
}

void nvmf_rdma_request_read_done(struct nvmf_rdma_request *r)
{
	end_reads(r);
	if (unlikely(is_closing(r))) {
		nvmf_request_fail(&r->req, NVME_ST(GENERIC, ABORT_QUEUE));
		return;
	}
	execute_request(r);
}

void nvmf_rdma_request_read_failed(struct nvmf_rdma_request *r)
{
	end_reads(r);
	nvmf_request_fail(&r->req, NVME_ST(GENERIC, DATA_XFER_ERROR));
}

void nvmf_rdma_qpair_run_pending(struct nvmf_rdma_qpair *qp)
{
	struct nvmf_rdma_request *r;

	while ((r = STAILQ_FIRST(&qp->pending)) != NULL) {
		if (r->state == RDMA_REQ_TX_PENDING_H2C) {
			if (!has_read_credits(qp, r)) {
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

/* ---- Buffers ---- */

static void use_buffer(struct nvmf_rdma_request *r)
{
	set_request_state(r, RDMA_REQ_HAVE_BUFFER);
	if (r->req.xfer == NVME_DATA_TFR_HOST_TO_CTRL) {
		start_read(r);
	} else {
		execute_request(r);
	}
}

static void need_buffer(struct nvmf_rdma_request *r)
{
	struct nvmf_rdma_group *g = request_group(r);

	if (g->base.transport->opts.zcopy && nvmf_request_zcopy_get(&r->req)) {
		use_buffer(r);
		return;
	}
	uint16_t n = nvmf_buffers_get(&g->buffers, &r->req);
	if (n != 0) {
		r->buffers = n;
		use_buffer(r);
		return;
	}
	set_request_state(r, RDMA_REQ_NEED_BUFFER);
	nvmf_buffers_wait(&g->buffers, &r->req);
}

void nvmf_rdma_group_run_waiting(struct nvmf_rdma_group *g)
{
	struct nvmf_rdma_request_queue wrs = STAILQ_HEAD_INITIALIZER(wrs);
	struct nvmf_rdma_request *r;
	struct nvmf_request *req;
	uint16_t n;

	/* no budget: at most as many as there are requests, and each takes a buffer */
	while ((req = nvmf_buffers_next(&g->buffers, &n)) != NULL) {
		r = nvmf_rdma_request_of(req);
		r->buffers = n;
		use_buffer(r);
	}
	if (g->free_data_wrs == NULL) {
		return;
	}
	STAILQ_CONCAT(&wrs, &g->waiting_wrs);
	while ((r = STAILQ_FIRST(&wrs)) != NULL) {
		STAILQ_REMOVE_HEAD(&wrs, wait);
		if (r->req.xfer == NVME_DATA_TFR_HOST_TO_CTRL) {
			start_read(r);
		} else {
			start_response(r);
		}
	}
}

/* ---- Arrival ---- */

static void take_next_step(struct nvmf_rdma_request *r, enum nvmf_next next)
{
	switch (next) {
	case NVMF_NEXT_EXEC:
		execute_request(r);
		break;
	case NVMF_NEXT_BUFFER:
		need_buffer(r);
		break;
	case NVMF_NEXT_COMPLETE:
		nvmf_rdma_op_request_complete(&r->req);
		break;
	case NVMF_NEXT_WAIT:
		break;
	}
}

void nvmf_rdma_op_request_continue(struct nvmf_request *req, enum nvmf_next next)
{
	take_next_step(nvmf_rdma_request_of(req), next);
}

/* Reads the clock for a request: exact_ticks. */
static NOINLINE uint32_t begin_exact(struct nvmf_rdma_qpair *qp, uint64_t now)
{
	struct nvmf_rdma_latency *l = &qp->poller->latency;

	if (qp->base.qid != 0) {
		l->sample_period = latency_period(now);
		if (l->until_sample == 0) {
			l->until_sample = latency_until_sample(&l->first_samples_left);
		}
	}
	return nvmf_exact_ticks(now);
}

/* The exact time of commands on admin queues counts, but is no sample: they are few, and take much longer than I/O. */
static ALWAYS_INLINE uint32_t sample_request(struct nvmf_rdma_qpair *qp)
{
	struct nvmf_rdma_latency *l = &qp->poller->latency;
	uint64_t now = thread_now();

	if (unlikely(qp->base.qid == 0) || unlikely(--l->until_sample == 0) ||
	    unlikely(latency_period(now) != l->sample_period)) {
		return begin_exact(qp, now);
	}
	return 0;
}

void nvmf_rdma_request_received(struct nvmf_rdma_qpair *qp, struct nvmf_rdma_request *r, uint32_t bytes)
{
	r->qp = qp;
	r->req.qpair = &qp->base;
	qp->in_use++;
	if (unlikely(!qp->described && qp->base.hostnqn[0] != '\0')) {
		nvmf_rdma_qpair_describe(qp);
	}
	set_request_state(r, RDMA_REQ_NEW);
	r->req.icd_len = bytes - (uint32_t)sizeof(struct nvme_sqe);
	r->req.exact_ticks = sample_request(qp);
	take_next_step(r, nvmf_request_start(&r->req));
}

/* Removes a request from the queue in which it waits. False: it waits in none. */
static bool remove_from_wait_queue(struct nvmf_rdma_request *r)
{
	struct nvmf_rdma_group *g = request_group(r);

	switch ((enum nvmf_rdma_request_state)r->state) {
	case RDMA_REQ_NEED_BUFFER:
		nvmf_buffers_stop_waiting(&g->buffers, &r->req);
		return true;
	case RDMA_REQ_NEED_DATA_WR:
		STAILQ_REMOVE(&g->waiting_wrs, r, nvmf_rdma_request, wait);
		return true;
	case RDMA_REQ_TX_PENDING_H2C:
	case RDMA_REQ_TX_PENDING_C2H:
	case RDMA_REQ_RDY2COMPL_PEND:
		STAILQ_REMOVE(&r->qp->pending, r, nvmf_rdma_request, wait);
		return true;
	default:
		return false;
	}
}

/* Whether only its response is left to be sent. */
static bool is_executed(const struct nvmf_rdma_request *r)
{
	return r->state == RDMA_REQ_TX_PENDING_C2H || r->state == RDMA_REQ_RDY2COMPL_PEND ||
	       (r->state == RDMA_REQ_NEED_DATA_WR && r->req.xfer == NVME_DATA_TFR_CTRL_TO_HOST);
}

bool nvmf_rdma_op_request_abort(struct nvmf_request *req, uint16_t status)
{
	struct nvmf_rdma_request *r = nvmf_rdma_request_of(req);

	if (is_executed(r) || !remove_from_wait_queue(r)) {
		return false;
	}
	nvmf_rdma_data_release(r);
	nvmf_request_fail(req, status);
	/* Answers wait behind commands that wait for RDMA READ credits, and so does this command's own answer. Without
	 * this call they would wait for the next completion, which a host that sends no data delays at will. */
	nvmf_rdma_qpair_run_pending(r->qp);
	return true;
}

static void fail_waiting_request(struct nvmf_rdma_request *r)
{
	bool executed = is_executed(r);

	if (!remove_from_wait_queue(r)) {
		return;
	}
	nvmf_rdma_data_release(r);
	if (executed) {
		release_request(r);
	} else {
		nvmf_request_fail(&r->req, NVME_ST(GENERIC, ABORT_QUEUE));
	}
}

static const struct nvmf_rdma_request_array *qpair_requests(const struct nvmf_rdma_qpair *qp)
{
	return qp->poller->srq != NULL ? &qp->poller->requests : &qp->requests;
}

void nvmf_rdma_qpair_fail_waiting(struct nvmf_rdma_qpair *qp)
{
	const struct nvmf_rdma_request_array *all = qpair_requests(qp);

	for (uint32_t i = 0; i < all->base.count; i++) {
		struct nvmf_rdma_request *r = nvmf_rdma_request_at(all, i);
		if (r->state != RDMA_REQ_FREE && r->qp == qp) {
			fail_waiting_request(r);
		}
	}
}

/* Of a queue pair that is not LIVE: whether the request waits for a completion of the device. Others end without one.
 */
static bool device_owes_request(const struct nvmf_rdma_request *r)
{
	return r->state == RDMA_REQ_TX_H2C || r->state == RDMA_REQ_COMPLETING || r->state == RDMA_REQ_COMPLETING_C2H;
}

uint32_t nvmf_rdma_qpair_owed(const struct nvmf_rdma_qpair *qp)
{
	uint32_t n = qp->receives;

	if (qp->poller == NULL) {
		return n; /* it never went live */
	}
	const struct nvmf_rdma_request_array *all = qpair_requests(qp);
	for (uint32_t i = 0; i < all->base.count; i++) {
		const struct nvmf_rdma_request *r = nvmf_rdma_request_at(all, i);
		n += r->qp == qp && device_owes_request(r);
	}
	return n;
}

void nvmf_rdma_qpair_reclaim(struct nvmf_rdma_qpair *qp)
{
	const struct nvmf_rdma_request_array *all = qp->poller != NULL ? qpair_requests(qp) : NULL;

	for (uint32_t i = 0; all != NULL && i < all->base.count; i++) {
		struct nvmf_rdma_request *r = nvmf_rdma_request_at(all, i);

		if (r->qp != qp || !device_owes_request(r)) {
			continue;
		}
		if (r->state == RDMA_REQ_TX_H2C) {
			nvmf_rdma_request_read_failed(r);
		} else {
			nvmf_rdma_request_sent(r);
		}
	}
	qp->receives = 0;
}
