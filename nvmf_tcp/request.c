/* SPDX-License-Identifier: BSD-3-Clause */
/* A request from its capsule to its response, on its poll group's thread. The table says which state may follow which.
 * Only set_tcp_request_state() changes a state; it records the tracepoint and fires the probe. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "env_dpdk/env.h"
#include "nvmf_tcp/internal.h"
#include "util/state_machine.h"

#define SENDING_US                                                                                                     \
	UINT64_C(50000) /* that a host has for data that it was asked for, while its queue pair is QUIESCING */

#define TO(s) (UINT32_C(1) << TCP_REQ_##s)

static const uint32_t next_states[TCP_REQ_STATES] = {
	[TCP_REQ_FREE] = TO(NEW),
	[TCP_REQ_NEW] = TO(NEED_BUFFER) | TO(HAVE_BUFFER) | TO(RDY_TO_EXECUTE) | TO(EXECUTED),
	[TCP_REQ_NEED_BUFFER] = TO(HAVE_BUFFER) | TO(EXECUTED),
	[TCP_REQ_HAVE_BUFFER] = TO(AWAIT_R2T_ACK) | TO(RDY_TO_EXECUTE) | TO(EXECUTED),
	[TCP_REQ_AWAIT_R2T_ACK] = TO(TX_H_TO_C) | TO(EXECUTED),
	[TCP_REQ_TX_H_TO_C] = TO(RDY_TO_EXECUTE) | TO(EXECUTED),
	[TCP_REQ_RDY_TO_EXECUTE] = TO(EXECUTING),
	[TCP_REQ_EXECUTING] = TO(EXECUTED),
	[TCP_REQ_EXECUTED] = TO(RDY_TO_COMPLETE) | TO(COMPLETED),
	[TCP_REQ_RDY_TO_COMPLETE] = TO(TRANSFER_C2H) | TO(COMPLETED),
	[TCP_REQ_TRANSFER_C2H] = TO(HELD) | TO(COMPLETED),
	[TCP_REQ_HELD] = TO(COMPLETED),
	[TCP_REQ_COMPLETED] = TO(FREE),
};

#define STATE(s_, name_, class_, ...) [TCP_REQ_##s_] = {name_, #s_, .class = NVMF_CLASS_##class_, ##__VA_ARGS__}

const struct nvmf_transport_state nvmf_tcp_request_states[TCP_REQ_STATES] = {
	STATE(FREE, "free", IDLE),
	STATE(NEW, "new", PASSING),
	STATE(NEED_BUFFER, "need buffer", WAITS_FOR_BUFFER, .waits_for = "data buffer"),
	STATE(HAVE_BUFFER, "have buffer", PASSING),
	STATE(AWAIT_R2T_ACK, "awaiting r2t acknowledgement", WAITS_FOR_ROOM, .waits_for = "room in the socket"),
	STATE(TX_H_TO_C, "transferring host to controller", TRANSFERS, .waits_for = "the host's data"),
	STATE(RDY_TO_EXECUTE, "ready to execute", PASSING),
	STATE(EXECUTING, "executing", EXECUTES),
	STATE(EXECUTED, "executed", PASSING),
	STATE(RDY_TO_COMPLETE, "ready to complete", WAITS_FOR_ROOM, .waits_for = "room in the socket"),
	STATE(TRANSFER_C2H, "transferring controller to host", COMPLETES, .waits_for = "room in the socket"),
	STATE(HELD, "held until it is acknowledged", COMPLETES, .waits_for = "the host's acknowledgement"),
	STATE(COMPLETED, "completed", PASSING),
};

static const char *name_tcp_request_state(unsigned n)
{
	const char *name = n < TCP_REQ_STATES ? nvmf_tcp_request_states[n].name : NULL;

	return name != NULL ? name : "unknown";
}
STATE_MACHINE(request_machine, "nvmf_tcp request", name_tcp_request_state, next_states)

/* Inlined where the state is a constant, so that one case of the switch is left. */
static ALWAYS_INLINE void record_tcp_request_state(const struct nvmf_tcp_request *r, enum nvmf_tcp_request_state new)
{
	const struct nvmf_tcp_qpair *qp = r->qp;
	uintptr_t id = (uintptr_t)&r->req;
	uint32_t size = r->req.length;

	switch (new) {
#define RECORD(s)                                                                                                      \
	case TCP_REQ_##s:                                                                                              \
		TRACE(TCP_REQ_##s, qp->owner, size, id);                                                               \
		break
		RECORD(NEED_BUFFER);
		RECORD(HAVE_BUFFER);
		RECORD(AWAIT_R2T_ACK);
		RECORD(TX_H_TO_C);
		RECORD(RDY_TO_EXECUTE);
		RECORD(EXECUTING);
		RECORD(EXECUTED);
		RECORD(RDY_TO_COMPLETE);
		RECORD(TRANSFER_C2H);
		RECORD(HELD);
#undef RECORD
	case TCP_REQ_NEW:
		TRACE(TCP_REQ_NEW, qp->owner, 0, id, qp->in_use);
		break;
	case TCP_REQ_COMPLETED:
		TRACE(TCP_REQ_COMPLETED, qp->owner, size, id, qp->in_use);
		break;
	case TCP_REQ_FREE:
	case TCP_REQ_STATES:
		break;
	}
}

/* The check is state_machine_check() without its loads: the table is this file's, new is a constant where it is called,
 * and nothing else writes r->state. */
static ALWAYS_INLINE void set_tcp_request_state(struct nvmf_tcp_request *r, enum nvmf_tcp_request_state new)
{
	if (unlikely((next_states[r->state] & UINT32_C(1) << new) == 0)) {
		state_machine_violation(&request_machine, r->state, new, r->qp->base.hostnqn);
	}
	record_tcp_request_state(r, new);
	USDT(nvmf_req_state, r->qp->base.hostnqn, r->qp->base.qid, nvmf_request_cid(&r->req), r->req.sqe->opcode,
	     usdt_states(r->state, new) | NVMF_TRTYPE_TCP << 16);
	r->state = new;
	r->state_ticks = thread_now();
}

static struct nvmf_tcp_group *group_of_tcp_request(const struct nvmf_tcp_request *r)
{
	return r->qp->tgroup;
}

/* ---- Arrays ---- */

static size_t align_to_cache_line(size_t n)
{
	return (n + 63) & ~(size_t)63;
}

/* Data for a bdev begin where they may go to a disk as they are: at a page, or at a block if they are no page. */
static size_t align_room(size_t n)
{
	size_t to = n < 4096 ? 512 : 4096;

	return (n + to - 1) / to * to;
}

int nvmf_tcp_request_array_create(struct nvmf_tcp_request_array *a, struct nvmf_tcp_qpair *qp, uint32_t count,
				  uint32_t icd_size)
{
	uint32_t iovs = nvmf_tcp_transport_of(qp->base.transport)->buffers.max_per_request;
	size_t stride = align_to_cache_line(offsetof(struct nvmf_tcp_request, req) + nvmf_request_size());
	size_t icd_stride = align_room(icd_size);

	*a = (struct nvmf_tcp_request_array){
		.base.count = count,
		.base.stride = stride,
		.icd_size = icd_size,
		.memory = env_dma_zmalloc(count * stride, 64, -1),
		.icd = icd_size != 0 ? env_dma_malloc(count * icd_stride, 4096, -1) : NULL,
		.iovs = calloc((size_t)count * iovs, sizeof(*a->iovs)),
		.bytes = count * (stride + icd_stride + iovs * sizeof(*a->iovs)),
	};
	if (a->memory == NULL || a->iovs == NULL || (icd_size != 0 && a->icd == NULL)) {
		nvmf_tcp_request_array_destroy(a);
		return -ENOMEM;
	}
	a->base.first = &nvmf_tcp_request_at(a, 0)->req;
	for (uint32_t i = 0; i < count; i++) {
		struct nvmf_tcp_request *r = nvmf_tcp_request_at(a, i);

		r->qp = qp;
		r->state = TCP_REQ_FREE;
		r->ttag = (uint16_t)i;
		r->icd = icd_size != 0 ? a->icd + i * icd_stride : NULL;
		r->req.qpair = &qp->base;
		r->req.sqe = &r->sqe;
		r->req.iov = &a->iovs[(size_t)i * iovs];
	}
	return 0;
}

void nvmf_tcp_request_array_destroy(struct nvmf_tcp_request_array *a)
{
	env_dma_free(a->memory);
	env_dma_free(a->icd);
	free(a->iovs);
	*a = (struct nvmf_tcp_request_array){0};
}

/* ---- The end: the response has been sent, or never will be ---- */

static void release_tcp_request(struct nvmf_tcp_request *r)
{
	struct nvmf_tcp_qpair *qp = r->qp;

	nvmf_request_release(&r->req);
	if (r->buffers != 0) {
		nvmf_buffers_put(&group_of_tcp_request(r)->buffers, r->req.iov, r->buffers);
		r->buffers = 0;
	}
	set_tcp_request_state(r, TCP_REQ_COMPLETED);
	set_tcp_request_state(r, TCP_REQ_FREE);
	qp->in_use--;
	if (qp->control_data_user == r) {
		qp->control_data_user = NULL;
	}
	STAILQ_INSERT_HEAD(&qp->free, r, link);
	if (likely(qp->state == NVMF_TCP_QPAIR_LIVE)) {
		return;
	}
	nvmf_tcp_qpair_request_freed(qp);
}

/* ---- The response, with the data before it ---- */

static bool has_data_for_host(const struct nvmf_tcp_request *r)
{
	return r->req.xfer == NVME_DATA_TFR_CTRL_TO_HOST && r->req.length != 0 && nvmf_request_status(&r->req) == 0;
}

/* C2HData may say that the command is successful, instead of a response, which then would tell nothing (TCP 3.3.2.2).
 */
static bool is_told_by_data(const struct nvmf_tcp_request *r)
{
	return nvmf_tcp_opts(r->qp->base.transport)->c2h_success && !r->qp->base.sq_flow_control &&
	       r->req.cqe.result == 0;
}

static void prepare_data(struct nvmf_tcp_request *r)
{
	const struct tcp_agreed *agreed = &r->qp->receiver.agreed;
	uint32_t length = r->req.length;
	struct tcp_piece piece = {
		.cccid = nvmf_request_cid(&r->req), .length = length, .last = true, .success = !r->sends_response};

	r->data_head = (uint8_t)tcp_c2h_data_encode(r->data_pdu, agreed, &piece);
	r->unsent += r->data_head + (uint64_t)length;
	if (agreed->data_digest) {
		uint32_t digest = tcp_digest_add_iovs(TCP_DIGEST_START, r->req.iov, r->req.iovcnt, 0, length);

		r->data_digest = htole32(tcp_digest_end(digest));
		r->unsent += sizeof(r->data_digest);
	}
}

static void send_tcp_response(struct nvmf_tcp_request *r)
{
	r->sends_data = has_data_for_host(r);
	r->sends_response = !r->sends_data || !is_told_by_data(r);
	r->unsent = 0;
	if (r->sends_data) {
		prepare_data(r);
	}
	if (r->sends_response) {
		r->response_head =
			(uint8_t)tcp_capsule_resp_encode(r->response_pdu, &r->qp->receiver.agreed, &r->req.cqe);
		r->unsent += r->response_head;
	}
	set_tcp_request_state(r, TCP_REQ_RDY_TO_COMPLETE);
	nvmf_tcp_qpair_queue(r->qp, r);
}

/* The time of a request whose exact time is measured; what follows learns from an I/O command. */
static NOINLINE uint64_t exact_ticks_of_tcp_request(struct nvmf_tcp_request *r, uint64_t round_ticks)
{
	int64_t measured = (int64_t)(env_ticks() - r->req.start_ticks - r->req.exact_ticks);
	uint64_t ticks = measured > 0 ? (uint64_t)measured : 0;

	if (r->qp->base.qid != 0 && r->req.sqe->opcode != nvme_admin_fabrics) {
		latency_learn(&group_of_tcp_request(r)->latency.correction, round_ticks, ticks);
		nvmf_request_measured(&r->req, ticks);
	}
	return ticks;
}

/* From the arrival of a request that is being completed. */
static inline uint64_t ticks_of_tcp_request(struct nvmf_tcp_request *r)
{
	int64_t rounds = (int64_t)(thread_now() - r->req.start_ticks);
	uint64_t round_ticks = rounds > 0 ? (uint64_t)rounds : 0;

	if (unlikely(r->req.exact_ticks != 0)) {
		return exact_ticks_of_tcp_request(r, round_ticks);
	}
	return latency_estimate(&group_of_tcp_request(r)->latency.correction, round_ticks);
}

void nvmf_tcp_op_request_complete(struct nvmf_request *req)
{
	struct nvmf_tcp_request *r = nvmf_tcp_request_of(req);
	struct nvmf_tcp_qpair *qp = r->qp;

	group_of_tcp_request(r)->counters.request_latency += ticks_of_tcp_request(r);
	set_tcp_request_state(r, TCP_REQ_EXECUTED);
	if (unlikely(!nvmf_tcp_qpair_is_open(qp))) {
		release_tcp_request(r);
		return;
	}
	if (unlikely(qp->state == NVMF_TCP_QPAIR_SETUP && qp->base.sq_size != 0)) {
		nvmf_tcp_qpair_connected(qp);
	}
	send_tcp_response(r);
}

/* ---- The host's data ---- */

static void execute_tcp_request(struct nvmf_tcp_request *r)
{
	set_tcp_request_state(r, TCP_REQ_RDY_TO_EXECUTE);
	set_tcp_request_state(r, TCP_REQ_EXECUTING);
	nvmf_request_exec(&r->req);
}

/* One R2T asks for all of a command's data, so that no host's MAXR2T is exceeded. */
static void ask_for_data(struct nvmf_tcp_request *r)
{
	struct tcp_piece piece = {
		.cccid = nvmf_request_cid(&r->req), .ttag = r->ttag, .length = r->req.length, .last = true};

	r->received = 0;
	r->sends_data = false;
	r->sends_response = false;
	r->data_head = (uint8_t)tcp_r2t_encode(r->data_pdu, &r->qp->receiver.agreed, &piece);
	r->unsent = r->data_head;
	r->qp->transfers++;
	group_of_tcp_request(r)->counters.r2ts++;
	set_tcp_request_state(r, TCP_REQ_AWAIT_R2T_ACK);
	nvmf_tcp_qpair_queue(r->qp, r);
}

void nvmf_tcp_request_data_received(struct nvmf_tcp_request *r, const struct tcp_piece *piece)
{
	r->received += piece->length;
	if (r->received < r->req.length) {
		return;
	}
	r->qp->transfers--;
	if (unlikely(r->bad_digest)) {
		nvmf_request_fail(&r->req, NVME_ST(GENERIC, TRAN_TPORT_ERROR));
	} else {
		execute_tcp_request(r);
	}
}

struct nvmf_tcp_request *nvmf_tcp_request_awaiting(const struct nvmf_tcp_qpair *qp, uint16_t ttag,
						   struct nvmf_tcp_awaited *awaited, bool *late)
{
	uint32_t count = qp->array->base.count;
	struct nvmf_tcp_request *r = ttag < 2 * count ? nvmf_tcp_request_at(qp->array, ttag % count) : NULL;

	*late = false;
	if (likely(r != NULL && r->ttag == ttag && r->state == TCP_REQ_TX_H_TO_C)) {
		*awaited = (struct nvmf_tcp_awaited){
			.cid = nvmf_request_cid(&r->req), .received = r->received, .length = r->req.length};
		return r;
	}
	*late = r != NULL && r->late_ttag == ttag && r->late.length != 0;
	if (*late) {
		*awaited = r->late;
	}
	return *late ? r : NULL;
}

void nvmf_tcp_request_late_data_received(struct nvmf_tcp_request *r, const struct tcp_piece *piece)
{
	r->late.received += piece->length;
	if (r->late.received == r->late.length) {
		r->late.length = 0;
	}
}

/* ---- Buffers ---- */

static void use_tcp_buffer(struct nvmf_tcp_request *r)
{
	set_tcp_request_state(r, TCP_REQ_HAVE_BUFFER);
	if (r->req.xfer == NVME_DATA_TFR_HOST_TO_CTRL) {
		ask_for_data(r);
	} else {
		execute_tcp_request(r);
	}
}

bool nvmf_tcp_request_take_control_room(struct nvmf_tcp_request *r, uint32_t bytes)
{
	struct nvmf_tcp_qpair *qp = r->qp;
	bool control = r->sqe.opcode == nvme_admin_fabrics || qp->base.qid == 0;

	if (!control || bytes > NVMF_TCP_CONTROL_DATA ||
	    (qp->control_data_user != NULL && qp->control_data_user != r)) {
		return false;
	}
	qp->control_data_user = r;
	return true;
}

/* Data from the host go to its connection's own room, if that has enough: a host that is asked for data and never sends
 * them would keep buffers from all others, and anybody can have an admin queue. What came in the capsule beside a data
 * pointer to elsewhere has no meaning, and is not looked at any more. */
static bool use_own_room(struct nvmf_tcp_request *r)
{
	uint32_t length = r->req.length;
	uint8_t *room = r->icd;

	if (r->req.xfer != NVME_DATA_TFR_HOST_TO_CTRL) {
		return false;
	}
	if (unlikely(length > r->qp->array->icd_size)) {
		if (!nvmf_tcp_request_take_control_room(r, length)) {
			return false;
		}
		room = r->qp->setup.icd;
	}
	r->req.iov[0] = (struct iovec){room, length};
	r->req.iovcnt = 1;
	return true;
}

/* A bdev's own memory is not used (nvmf_request_zcopy_get()): data are sent and arrive piece by piece, at the host's
 * pace. Another command may write the blocks meanwhile, and the host would get half of each; or a block would be half
 * new, while the rest of its data may never come. */
static void need_tcp_buffer(struct nvmf_tcp_request *r)
{
	struct nvmf_tcp_group *g = group_of_tcp_request(r);

	if (use_own_room(r)) {
		use_tcp_buffer(r);
		return;
	}
	if (unlikely(r->req.xfer == NVME_DATA_TFR_HOST_TO_CTRL && nvmf_tcp_qpair_is_of_a_stranger(r->qp))) {
		nvmf_request_fail(&r->req, NVME_ST_DNR(GENERIC, CMD_SEQ_ERROR));
		return;
	}
	uint16_t n = nvmf_buffers_get(&g->buffers, &r->req);
	if (n != 0) {
		r->buffers = n;
		use_tcp_buffer(r);
		return;
	}
	set_tcp_request_state(r, TCP_REQ_NEED_BUFFER);
	nvmf_buffers_wait(&g->buffers, &r->req);
}

void nvmf_tcp_group_run_waiting(struct nvmf_tcp_group *g)
{
	struct nvmf_request *req;
	uint16_t n;

	/* no budget: at most as many as there are requests, and each takes a buffer */
	while ((req = nvmf_buffers_next(&g->buffers, &n)) != NULL) {
		struct nvmf_tcp_request *r = nvmf_tcp_request_of(req);

		r->buffers = n;
		use_tcp_buffer(r);
	}
}

/* ---- Arrival ---- */

static void take_tcp_next_step(struct nvmf_tcp_request *r, enum nvmf_next next)
{
	if (unlikely(r->bad_digest) && (next == NVMF_NEXT_EXEC || next == NVMF_NEXT_BUFFER)) {
		nvmf_request_fail(&r->req, NVME_ST(GENERIC, TRAN_TPORT_ERROR));
		return;
	}
	switch (next) {
	case NVMF_NEXT_EXEC:
		execute_tcp_request(r);
		break;
	case NVMF_NEXT_BUFFER:
		need_tcp_buffer(r);
		break;
	case NVMF_NEXT_COMPLETE:
		nvmf_tcp_op_request_complete(&r->req);
		break;
	case NVMF_NEXT_WAIT:
		break;
	}
}

void nvmf_tcp_op_request_continue(struct nvmf_request *req, enum nvmf_next next)
{
	take_tcp_next_step(nvmf_tcp_request_of(req), next);
}

/* Reads the clock for a request: exact_ticks. */
static NOINLINE uint32_t begin_exact_tcp(struct nvmf_tcp_qpair *qp, uint64_t now)
{
	struct nvmf_tcp_latency *l = &qp->tgroup->latency;

	if (qp->base.qid != 0) {
		l->sample_period = latency_period(now);
		if (l->until_sample == 0) {
			l->until_sample = latency_until_sample(&l->first_samples_left);
		}
	}
	return nvmf_exact_ticks(now);
}

/* The exact time of commands on admin queues counts, but is no sample: they are few, and take much longer than I/O. */
static ALWAYS_INLINE uint32_t sample_tcp_request(struct nvmf_tcp_qpair *qp)
{
	struct nvmf_tcp_latency *l = &qp->tgroup->latency;
	uint64_t now = thread_now();

	if (unlikely(qp->base.qid == 0) || unlikely(--l->until_sample == 0) ||
	    unlikely(latency_period(now) != l->sample_period)) {
		return begin_exact_tcp(qp, now);
	}
	return 0;
}

struct nvmf_tcp_request *nvmf_tcp_request_begin(struct nvmf_tcp_qpair *qp, const void *sqe)
{
	struct nvmf_tcp_request *r = STAILQ_FIRST(&qp->free);

	if (likely(r != NULL)) {
		STAILQ_REMOVE_HEAD(&qp->free, link);
		if (unlikely(STAILQ_EMPTY(&qp->free)) && qp->held != 0) {
			qp->starved = true; /* when the command is complete */
		}
		memcpy(&r->sqe, sqe, sizeof(r->sqe));
	}
	return r;
}

void nvmf_tcp_request_drop(struct nvmf_tcp_request *r)
{
	STAILQ_INSERT_HEAD(&r->qp->free, r, link);
}

void nvmf_tcp_request_received(struct nvmf_tcp_request *r, uint32_t icd_len, bool bad_digest)
{
	struct nvmf_tcp_qpair *qp = r->qp;

	qp->in_use++;
	qp->tgroup->counters.requests++;
	if (unlikely(!qp->described && qp->base.hostnqn[0] != '\0')) {
		nvmf_tcp_qpair_describe(qp);
	}
	r->req.icd = r->place.iov_base;
	r->req.icd_len = icd_len;
	r->bad_digest = bad_digest;
	set_tcp_request_state(r, TCP_REQ_NEW);
	r->req.exact_ticks = sample_tcp_request(qp);
	take_tcp_next_step(r, nvmf_request_start(&r->req));
}

/* ---- Sending ---- */

void nvmf_tcp_request_sending(struct nvmf_tcp_request *r)
{
	if (r->state == TCP_REQ_RDY_TO_COMPLETE) {
		set_tcp_request_state(r, TCP_REQ_TRANSFER_C2H);
	}
}

void nvmf_tcp_request_sent(struct nvmf_tcp_request *r)
{
	if (r->state == TCP_REQ_AWAIT_R2T_ACK) {
		set_tcp_request_state(r, TCP_REQ_TX_H_TO_C);
	} else {
		release_tcp_request(r);
	}
}

void nvmf_tcp_request_hold(struct nvmf_tcp_request *r)
{
	set_tcp_request_state(r, TCP_REQ_HELD);
}

/* ---- The end of a request by other hands ---- */

/* Nobody has been asked for data yet. An R2T of which a part has been sent has to go on. */
static bool take_back_r2t(struct nvmf_tcp_request *r)
{
	struct nvmf_tcp_qpair *qp = r->qp;

	if (STAILQ_FIRST(&qp->out) == r && qp->sent_of_first != 0) {
		return false;
	}
	STAILQ_REMOVE(&qp->out, r, nvmf_tcp_request, link);
	qp->unsent -= r->unsent;
	qp->transfers--;
	return true;
}

/* The host may send what it was asked for nevertheless, perhaps it has begun to. What still comes goes nowhere: the
 * request will have another command, with another tag, while this tag stays known until all has come. A request
 * remembers one such command. */
static bool stop_awaiting_data(struct nvmf_tcp_request *r)
{
	struct nvmf_tcp_qpair *qp = r->qp;
	uint32_t count = qp->array->base.count;

	if (r->late.length != 0 || 2 * count > UINT16_MAX + 1u) {
		return false;
	}
	r->late = (struct nvmf_tcp_awaited){
		.cid = nvmf_request_cid(&r->req), .received = r->received, .length = r->req.length};
	r->late_ttag = r->ttag;
	r->ttag = (uint16_t)(r->ttag < count ? r->ttag + count : r->ttag - count);
	if (qp->receiving == r) {
		tcp_receiver_skip(&qp->receiver);
		qp->receives_late = true;
	}
	qp->transfers--;
	return true;
}

/* Where a queue pair is being ended, hosts that are sending are let finish: their commands end a moment later, and
 * some hosts do not take it well if a command ends before they have sent its data. */
static bool may_be_sending(const struct nvmf_tcp_request *r)
{
	return r->qp->base.state == NVMF_QPAIR_QUIESCING && thread_now() - r->state_ticks < env_us_to_ticks(SENDING_US);
}

bool nvmf_tcp_op_request_abort(struct nvmf_request *req, uint16_t status)
{
	struct nvmf_tcp_request *r = nvmf_tcp_request_of(req);

	switch ((enum nvmf_tcp_request_state)r->state) {
	case TCP_REQ_NEED_BUFFER:
		nvmf_buffers_stop_waiting(&group_of_tcp_request(r)->buffers, req);
		break;
	case TCP_REQ_AWAIT_R2T_ACK:
		if (!take_back_r2t(r)) {
			return false;
		}
		break;
	case TCP_REQ_TX_H_TO_C:
		if (may_be_sending(r) || !stop_awaiting_data(r)) {
			return false;
		}
		break;
	default:
		return false;
	}
	nvmf_request_fail(req, status);
	return true;
}

/* `out` is empty already. */
static void fail_waiting_tcp_request(struct nvmf_tcp_request *r)
{
	switch ((enum nvmf_tcp_request_state)r->state) {
	case TCP_REQ_NEED_BUFFER:
		nvmf_buffers_stop_waiting(&group_of_tcp_request(r)->buffers, &r->req);
		break;
	case TCP_REQ_AWAIT_R2T_ACK:
	case TCP_REQ_TX_H_TO_C:
		r->qp->transfers--;
		break;
	case TCP_REQ_RDY_TO_COMPLETE:
	case TCP_REQ_TRANSFER_C2H:
		if (unlikely(r->zerocopies != 0)) {
			nvmf_tcp_zerocopy_hold(r);
		} else {
			release_tcp_request(r);
		}
		return;
	default:
		return;
	}
	nvmf_request_fail(&r->req, NVME_ST(GENERIC, ABORT_QUEUE));
}

void nvmf_tcp_qpair_fail_waiting(struct nvmf_tcp_qpair *qp)
{
	const struct nvmf_tcp_request_array *all = qp->array;

	for (uint32_t i = 0; i < all->base.count; i++) {
		fail_waiting_tcp_request(nvmf_tcp_request_at(all, i));
	}
}
