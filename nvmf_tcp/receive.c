/* SPDX-License-Identifier: BSD-3-Clause */
/* What hosts send: ICReq, command capsules, data, H2CTermReq. tcp/receiver.h cuts the stream into PDUs and checks them
 * as far as that needs no knowledge of commands; the rest is checked here. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "nvmf_tcp/internal.h"
#include "nvmf_tcp/rules.h"

/* A queue pair in SETUP has one request. While it is in use, nothing is read, except for its data: whatever the host
 * has sent behind Connect waits in the socket. */
static bool waits_for_setup(const struct nvmf_tcp_qpair *qp)
{
	return qp->state == NVMF_TCP_QPAIR_SETUP && (qp->growing || STAILQ_EMPTY(&qp->free)) && qp->transfers == 0 &&
	       qp->receiving == NULL;
}

/* A host that does not read its responses gets no other commands carried out: they would hold data buffers. Data of
 * commands that were accepted are behind them, and such a host has to read first, too. And a host that has had all
 * responses may send as many commands as its queue has entries before the kernel has told that it does not refer to the
 * data of those before any more: they wait until a request is free. */
static bool waits_for_sending(const struct nvmf_tcp_qpair *qp)
{
	return unlikely(qp->send_blocked || qp->starved) &&
	       ((qp->starved && STAILQ_EMPTY(&qp->free) && qp->receiving == NULL) ||
		(qp->send_blocked && qp->unsent > NVMF_TCP_UNSENT_MAX));
}

bool nvmf_tcp_qpair_reads_nothing(const struct nvmf_tcp_qpair *qp)
{
	return waits_for_setup(qp) || waits_for_sending(qp);
}

/* ---- ICReq ---- */

static bool answer_icreq(struct nvmf_tcp_qpair *qp, struct tcp_fault *fault)
{
	const struct nvmf_transport_opts *o = &qp->base.transport->opts;
	struct tcp_icreq req;
	uint8_t head[TCP_HEAD_MAX];

	if (!tcp_icreq_decode(&qp->receiver.header.icreq, &req, fault)) {
		return false;
	}
	struct tcp_icresp resp = {.header_digest = req.header_digest,
				  .data_digest = req.data_digest,
				  .max_h2c_data = nvmf_max_transfer(o->max_io_size)};
	qp->receiver.agreed = tcp_agree(&req, &resp);
	qp->receiver.agreed.max_in_capsule =
		o->in_capsule_data_size > NVMF_TCP_CONTROL_DATA ? o->in_capsule_data_size : NVMF_TCP_CONTROL_DATA;
	nvmf_tcp_qpair_initialized(qp);
	if (!nvmf_tcp_qpair_send_now(qp, head, tcp_icresp_encode(head, &resp))) {
		qp->broken = true;
		nvmf_qpair_disconnect(&qp->base, "ICResp could not be sent");
	}
	return true;
}

/* ---- Capsules ---- */

static bool capsule_fault(struct tcp_fault *fault, enum tcp_fes fes, uint32_t plen, const char *reason)
{
	return tcp_fault_set(fault, fes, TCP_PDU_CAPSULE_CMD, offsetof(struct tcp_pdu_common, plen), "PLEN", plen,
			     reason);
}

/* Where the data of a capsule go to: r->place. */
static bool find_place(struct nvmf_tcp_request *r, uint32_t bytes)
{
	struct nvmf_tcp_qpair *qp = r->qp;

	r->place = (struct iovec){r->icd, bytes};
	if (likely(bytes <= qp->array->icd_size)) {
		return true;
	}
	r->place.iov_base = qp->setup.icd;
	return nvmf_tcp_request_take_control_room(r, bytes);
}

static bool begin_capsule(struct nvmf_tcp_qpair *qp, struct tcp_fault *fault)
{
	const struct tcp_pdu_capsule_cmd *pdu = &qp->receiver.header.cmd;
	uint32_t plen = le32toh(pdu->common.plen);
	struct nvmf_tcp_request *r = nvmf_tcp_request_begin(qp, pdu->sqe);

	if (unlikely(r == NULL)) {
		return tcp_fault_set(fault, TCP_FES_SEQUENCE, TCP_PDU_CAPSULE_CMD, 0, "PDU-Type", TCP_PDU_CAPSULE_CMD,
				     "a command more than the queue has entries");
	}
	if (unlikely(!find_place(r, qp->receiver.shape.data))) {
		nvmf_tcp_request_drop(r);
		return capsule_fault(fault, TCP_FES_LIMIT, plen,
				     "more in-capsule data than the queue's commands may have");
	}
	qp->receiving = r;
	if (qp->receiver.shape.data != 0) {
		tcp_receiver_place(&qp->receiver, &r->place, 1, 0);
	}
	return true;
}

static void end_capsule(struct nvmf_tcp_qpair *qp)
{
	struct nvmf_tcp_request *r = qp->receiving;
	uint32_t bytes = qp->receiver.shape.data;

	qp->receiving = NULL;
	qp->tgroup->counters.digest_errors += bytes != 0 && qp->receiver.data_is_bad;
	nvmf_tcp_request_received(r, bytes, bytes != 0 && qp->receiver.data_is_bad);
}

/* ---- Data ---- */

static bool begin_data(struct nvmf_tcp_qpair *qp, struct tcp_fault *fault)
{
	struct tcp_piece *piece = &qp->piece;

	if (!tcp_h2c_data_decode(&qp->receiver.header.data, &qp->receiver.shape, piece, fault)) {
		return false;
	}
	struct nvmf_tcp_awaited awaited;
	struct nvmf_tcp_request *r = nvmf_tcp_request_awaiting(qp, piece->ttag, &awaited, &qp->receives_late);

	if (!nvmf_tcp_h2c_data_check(piece, qp->receiver.header.common.flags, r != NULL ? &awaited : NULL, fault)) {
		return false;
	}
	qp->receiving = r;
	if (likely(!qp->receives_late)) { /* where nothing is named, the receiver drops them */
		tcp_receiver_place(&qp->receiver, r->req.iov, r->req.iovcnt, piece->offset);
	}
	return true;
}

static void end_data(struct nvmf_tcp_qpair *qp)
{
	struct nvmf_tcp_request *r = qp->receiving;

	qp->receiving = NULL;
	if (unlikely(qp->receives_late)) {
		nvmf_tcp_request_late_data_received(r, &qp->piece);
		return;
	}
	if (unlikely(qp->receiver.data_is_bad)) {
		r->bad_digest = true;
		qp->tgroup->counters.digest_errors++;
	}
	nvmf_tcp_request_data_received(r, &qp->piece);
}

/* ---- H2CTermReq ---- */

static void end_by_host(struct nvmf_tcp_qpair *qp)
{
	char text[TCP_FAULT_TEXT_MAX];
	struct tcp_term term;

	tcp_term_decode(&qp->receiver.header, &qp->receiver.shape, &term);
	log_limited(LOG_LEVEL_NOTICE, "host %s at %s ends a connection with H2CTermReq: %s",
		    qp->base.hostnqn[0] != '\0' ? qp->base.hostnqn : "(unknown)", qp->base.peer_address.traddr,
		    tcp_term_text(&term, TCP_HOST, text));
	nvmf_qpair_fail(&qp->base, "the host ended the connection with H2CTermReq");
}

/* ---- The stream ---- */

static bool handle_header(struct nvmf_tcp_qpair *qp, struct tcp_fault *fault)
{
	switch (qp->receiver.header.common.type) {
	case TCP_PDU_CAPSULE_CMD:
		return begin_capsule(qp, fault);
	case TCP_PDU_H2C_DATA:
		return begin_data(qp, fault);
	default:
		return true;
	}
}

static bool handle_pdu(struct nvmf_tcp_qpair *qp, struct tcp_fault *fault)
{
	switch (qp->receiver.header.common.type) {
	case TCP_PDU_ICREQ:
		return answer_icreq(qp, fault);
	case TCP_PDU_CAPSULE_CMD:
		end_capsule(qp);
		return true;
	case TCP_PDU_H2C_DATA:
		end_data(qp);
		return true;
	default:
		end_by_host(qp);
		return true;
	}
}

/* Handles what has been read. False: there is nothing to be read at present. */
static bool handle_read(struct nvmf_tcp_qpair *qp)
{
	struct tcp_fault fault;
	bool good = true;

	while (good && nvmf_tcp_qpair_is_open(qp) && !nvmf_tcp_qpair_reads_nothing(qp)) {
		switch (tcp_receiver_next(&qp->receiver, &fault)) {
		case TCP_EVENT_HEADER:
			good = handle_header(qp, &fault);
			break;
		case TCP_EVENT_PDU:
			good = handle_pdu(qp, &fault);
			break;
		case TCP_EVENT_FAULT:
			good = false;
			break;
		case TCP_EVENT_NONE:
			return true;
		}
	}
	if (!good) {
		nvmf_tcp_qpair_terminate(qp, &fault);
	} else if (nvmf_tcp_qpair_is_open(qp)) {
		nvmf_tcp_qpair_update_events(qp);
	}
	return false;
}

void nvmf_tcp_tell_tls_failure(const struct nvmf_tcp_qpair *qp)
{
	int error = qp->tls != NULL ? tls_session_error(qp->tls) : 0;

	if (error == -EPROTO || error == -EIO) { /* not if the socket has ended */
		log_limited(LOG_LEVEL_NOTICE, "host %s at %s: %s",
			    qp->base.hostnqn[0] != '\0' ? qp->base.hostnqn : "(unknown)", qp->base.peer_address.traddr,
			    tls_session_why(qp->tls));
	}
}

static void end_unread(struct nvmf_tcp_qpair *qp, int rc)
{
	nvmf_tcp_tell_tls_failure(qp);
	qp->broken = true;
	nvmf_qpair_disconnect(&qp->base, rc == -ECONNRESET ? "the host closed the connection"
							   : "the connection broke while it was read");
}

/* Many commands, with their data, come in one read of the group's stage, and it stays in the CPU's cache. It is for one
 * connection after the other: nothing is left in it when what was read has been handled. Handling may stop in between
 * only where nvmf_tcp_qpair_reads_nothing() can become true: there the connection has its own stage. It becomes starved
 * only while requests are held, and none comes to be held in between. */
static void choose_stage(struct nvmf_tcp_qpair *qp)
{
	if (likely(qp->state == NVMF_TCP_QPAIR_LIVE && !qp->send_blocked && qp->held == 0)) {
		tcp_receiver_set_stage(&qp->receiver, qp->tgroup->stage, NVMF_TCP_SHARED_STAGE);
	}
}

static void leave_shared_stage(struct nvmf_tcp_qpair *qp)
{
	if (unlikely(!nvmf_tcp_qpair_is_open(qp))) {
		return; /* the control thread may be freeing its stage */
	}
	if (likely(qp->receiver.stage != qp->stage)) {
		assert(!tcp_receiver_has_bytes(&qp->receiver));
		tcp_receiver_set_stage(&qp->receiver, qp->stage, NVMF_TCP_STAGE);
	}
}

static void read_for_a_while(struct nvmf_tcp_qpair *qp)
{
	struct nvmf_tcp_counters *counters = &qp->tgroup->counters;

	if (tcp_receiver_has_bytes(&qp->receiver)) {
		thread_absence_check(); /* they were read before this process was stopped, perhaps */
	}
	for (unsigned i = 0; i < NVMF_TCP_READS && handle_read(qp); i++) {
		choose_stage(qp);
		int rc = tcp_receiver_read(&qp->receiver, qp->fd);

		if (rc == -EAGAIN) {
			return;
		}
		if (rc < 0) {
			end_unread(qp, rc);
			return;
		}
		counters->reads++;
		counters->read_bytes += (uint64_t)rc;
		qp->moved += (uint64_t)rc;
		thread_absence_check(); /* what was received during an absence may have to be refused */
		if (qp->receiver.drained) {
			break; /* the socket is empty, or epoll says so if it is not */
		}
	}
	(void)handle_read(qp);
}

/* epoll does not know what was decrypted and not read yet; and what was read may have been answered (KeyUpdate). */
static void look_after_tls(struct nvmf_tcp_qpair *qp)
{
	if (tls_session_has_more(qp->tls) && !nvmf_tcp_qpair_reads_nothing(qp)) {
		nvmf_tcp_qpair_mark_dirty(qp, true);
	}
	if (tls_session_has_unsent(qp->tls) && !qp->send_blocked) {
		nvmf_tcp_qpair_mark_dirty(qp, false);
	}
}

void nvmf_tcp_qpair_receive(struct nvmf_tcp_qpair *qp)
{
	read_for_a_while(qp);
	leave_shared_stage(qp);
	if (unlikely(qp->tls != NULL) && nvmf_tcp_qpair_is_open(qp)) {
		look_after_tls(qp);
	}
}
