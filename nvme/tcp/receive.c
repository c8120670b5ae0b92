/* SPDX-License-Identifier: BSD-3-Clause */
/* What a controller sends over TCP: responses, data of reads, R2Ts. It is not trusted: every PDU is checked against the
 * command that it names before a byte of it is placed. The using thread. */
#include "nvme/tcp/tcp.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "util/log.h"

#define READS_MAX 16 /* of one poll: others on this thread have their turn too */

#define CCCID_AT  ((uint8_t)offsetof(struct tcp_pdu_data, cccid))
#define TTAG_AT   ((uint8_t)offsetof(struct tcp_pdu_r2t, ttag))
#define CQE_AT    ((uint8_t)offsetof(struct tcp_pdu_capsule_resp, cqe))
#define CID_AT    ((uint8_t)(CQE_AT + offsetof(struct nvme_cqe, cid)))
#define STATUS_AT ((uint8_t)(CQE_AT + offsetof(struct nvme_cqe, status)))

static struct nvme_tcp_slot *slot_of(struct nvme_tcp_qpair *q, const struct nvme_request *req)
{
	return &q->slots[le16toh(req->cmd.cid) & q->base.slot_mask];
}

void nvme_tcp_term_log(const struct nvme_tcp_qpair *q)
{
	char text[TCP_FAULT_TEXT_MAX];
	struct tcp_term term;

	tcp_term_decode(&q->rx.header, &q->rx.shape, &term);
	log_limited(LOG_LEVEL_ERROR, "%s: queue pair %u: the controller ends the connection: C2HTermReq: %s",
		    q->base.ctrlr->trid.traddr, q->base.id, tcp_term_text(&term, TCP_CONTROLLER, text));
}

/* Checks. Each returns true, or false and the fault. */

/* The command that a C2HData or R2T names: it must be one that has been sent, has no response yet, and has data in that
 * direction. */
static bool command_check(struct nvme_tcp_qpair *q, uint8_t type, uint16_t cid, bool to_device,
			  struct nvme_request **req, struct tcp_fault *fault)
{
	struct nvme_request *r = nvme_qpair_request(&q->base, cid);
	const char *reason = NULL;

	if (r == NULL) {
		reason = "no command of this id is outstanding";
	} else if (slot_of(q, r)->phase != NVME_TCP_SENT) {
		reason = "the command of this id has not been sent yet";
	} else if (slot_of(q, r)->has_response) {
		reason = "the command of this id has had its response";
	} else if (r->to_device != to_device || r->data_len == 0 || slot_of(q, r)->in_capsule) {
		reason = to_device ? "the command of this id has no data to be asked for"
				   : "the command of this id reads no data";
	}
	*req = r;
	return reason == NULL || tcp_fault_set(fault, TCP_FES_INVALID_FIELD, type, CCCID_AT, "CCCID", cid, reason);
}

static bool c2h_data_check(struct nvme_tcp_qpair *q, struct nvme_request **req, struct tcp_fault *fault)
{
	struct tcp_piece *p = &q->piece;

	if (!tcp_c2h_data_decode(&q->rx.header.data, &q->rx.shape, p, fault) ||
	    !command_check(q, TCP_PDU_C2H_DATA, p->cccid, false, req, fault)) {
		return false;
	}
	const struct nvme_tcp_slot *slot = slot_of(q, *req);

	if (slot->last_came) {
		return tcp_fault_set(fault, TCP_FES_OUT_OF_RANGE, TCP_PDU_C2H_DATA,
				     (uint8_t)offsetof(struct tcp_pdu_data, datao), "DATAO", p->offset,
				     "data behind the PDU with LAST_PDU");
	}
	if (!tcp_piece_check(p, TCP_PDU_C2H_DATA, slot->received, (*req)->data_len, fault)) {
		return false;
	}
	if (p->success && p->offset + p->length != (*req)->data_len) {
		return tcp_fault_set(fault, TCP_FES_INVALID_FIELD, TCP_PDU_C2H_DATA,
				     (uint8_t)offsetof(struct tcp_pdu_common, flags), "FLAGS",
				     q->rx.header.common.flags, "SUCCESS before all data of the command");
	}
	return true;
}

static bool r2t_check(struct nvme_tcp_qpair *q, struct tcp_piece *p, struct nvme_request **req, struct tcp_fault *fault)
{
	if (!tcp_r2t_decode(&q->rx.header.r2t, p, fault) ||
	    !command_check(q, TCP_PDU_R2T, p->cccid, true, req, fault)) {
		return false;
	}
	const struct nvme_tcp_slot *slot = slot_of(q, *req);

	if (slot->r2ts_outstanding == NVME_TCP_R2TS) {
		return tcp_fault_set(fault, TCP_FES_LIMIT, TCP_PDU_R2T, TTAG_AT, "TTAG", p->ttag,
				     "more R2Ts of a command than MAXR2T allows");
	}
	return tcp_piece_check(p, TCP_PDU_R2T, slot->asked, (*req)->data_len, fault);
}

/* A success means that all data has been transferred. Only Fabrics commands may have less than there is room for. */
static bool success_check(const struct nvme_request *req, const struct nvme_tcp_slot *slot, struct tcp_fault *fault)
{
	uint32_t moved = req->to_device ? slot->in_capsule ? req->data_len : slot->asked : slot->received;

	if (moved == req->data_len || (req->cmd.opcode == nvme_admin_fabrics && !req->to_device)) {
		return true;
	}
	return tcp_fault_set(fault, TCP_FES_SEQUENCE, TCP_PDU_CAPSULE_RESP, STATUS_AT, "Status", 0,
			     req->to_device ? "a success before all data was asked for"
					    : "a success before all data has come");
}

static bool response_check(struct nvme_tcp_qpair *q, const struct nvme_cqe *cqe, struct nvme_request **out,
			   struct tcp_fault *fault)
{
	uint16_t cid = le16toh(cqe->cid);
	struct nvme_request *req = nvme_qpair_request(&q->base, cid);
	const char *reason = NULL;

	*out = req;
	if (req == NULL) {
		reason = "no command of this id is outstanding";
	} else if (slot_of(q, req)->phase < NVME_TCP_BATCH) {
		reason = "the command of this id has not been sent yet";
	} else if (slot_of(q, req)->has_response) {
		reason = "the command of this id has had its response";
	}
	if (reason != NULL) {
		return tcp_fault_set(fault, TCP_FES_INVALID_FIELD, TCP_PDU_CAPSULE_RESP, CID_AT, "CID", cid, reason);
	}
	return nvme_cqe_status(cqe) != 0 || success_check(req, slot_of(q, req), fault);
}

/* Effects. */

/* A command has its response. It is completed now, or when all PDUs of it have been sent. True: now. */
static bool command_respond(struct nvme_tcp_qpair *q, struct nvme_tcp_slot *slot, const struct nvme_cqe *cqe)
{
	slot->cqe = *cqe;
	if (slot->data_is_bad && nvme_cqe_status(cqe) == 0) {
		slot->cqe.status = htole16(NVME_ST(GENERIC, TRAN_TPORT_ERROR) << 1);
	}
	if (slot->unsent > 0) {
		slot->has_response = true;
		return false;
	}
	slot->phase = NVME_TCP_IDLE;
	nvme_qpair_complete(&q->base, &slot->cqe);
	return true;
}

static bool response_handle(struct nvme_tcp_qpair *q, uint32_t *done, struct tcp_fault *fault)
{
	struct nvme_request *req;
	struct nvme_cqe cqe;

	memcpy(&cqe, q->rx.header.resp.cqe, sizeof(cqe));
	if (!response_check(q, &cqe, &req, fault)) {
		return false;
	}
	*done += command_respond(q, slot_of(q, req), &cqe);
	return true;
}

static bool r2t_handle(struct nvme_tcp_qpair *q, struct tcp_fault *fault)
{
	struct nvme_request *req;
	struct tcp_piece p;

	if (!r2t_check(q, &p, &req, fault)) {
		return false;
	}
	struct nvme_tcp_slot *slot = slot_of(q, req);

	slot->r2ts[(slot->r2t_first + slot->r2ts_queued) % NVME_TCP_R2TS] =
		(struct nvme_tcp_r2t){.ttag = p.ttag, .left = p.length};
	slot->r2ts_queued++;
	slot->r2ts_outstanding++;
	slot->asked += p.length;
	nvme_tcp_queue(q, (uint16_t)(slot - q->slots));
	return true;
}

/* The header of a PDU has come. Those without data are handled when they are complete, which is next. */
static bool header_handle(struct nvme_tcp_qpair *q, struct tcp_fault *fault)
{
	struct nvme_request *req;

	if (q->rx.header.common.type == TCP_PDU_C2H_DATA) {
		if (!c2h_data_check(q, &req, fault)) {
			return false;
		}
		tcp_receiver_place(&q->rx, req->iovs, req->iovcnt, q->piece.offset);
	}
	return true;
}

static void c2h_data_handle(struct nvme_tcp_qpair *q, uint32_t *done)
{
	struct nvme_request *req = nvme_qpair_request(&q->base, q->piece.cccid); /* c2h_data_check() has found it */
	struct nvme_tcp_slot *slot = slot_of(q, req);

	slot->received += q->piece.length;
	slot->last_came = q->piece.last;
	if (q->rx.data_is_bad) {
		slot->data_is_bad = true;
		log_limited(LOG_LEVEL_WARNING, "%s: queue pair %u: C2HData: DDGST is not the CRC32C of the data",
			    q->base.ctrlr->trid.traddr, q->base.id);
	}
	if (q->piece.success) {
		struct nvme_cqe cqe = {.cid = req->cmd.cid};

		*done += command_respond(q, slot, &cqe);
	}
}

static bool pdu_handle(struct nvme_tcp_qpair *q, uint32_t *done, struct tcp_fault *fault)
{
	switch (q->rx.header.common.type) {
	case TCP_PDU_C2H_DATA:
		c2h_data_handle(q, done);
		return true;
	case TCP_PDU_CAPSULE_RESP:
		return response_handle(q, done, fault);
	case TCP_PDU_R2T:
		return r2t_handle(q, fault);
	default: /* C2HTermReq: no other type comes now */
		nvme_tcp_term_log(q);
		nvme_tcp_set_down(q);
		return true;
	}
}

/* Handles the PDUs that have been read, until `max` commands are completed (0: all). */
static void pdus_handle(struct nvme_tcp_qpair *q, uint32_t max, uint32_t *done)
{
	struct tcp_fault fault;
	bool good = true;

	while (good && !q->base.failed && !nvme_tcp_is_down(q) && (max == 0 || *done < max)) {
		switch (tcp_receiver_next(&q->rx, &fault)) {
		case TCP_EVENT_HEADER:
			good = header_handle(q, &fault);
			break;
		case TCP_EVENT_PDU:
			good = pdu_handle(q, done, &fault);
			break;
		case TCP_EVENT_FAULT:
			good = false;
			break;
		default:
			return;
		}
	}
	if (!good) {
		nvme_tcp_terminate(q, &fault);
	}
}

/* Completes the commands whose response had come before all was sent: only now nothing refers to their data. */
static void held_complete(struct nvme_tcp_qpair *q, uint32_t *done)
{
	for (uint16_t i = 0; q->held_due > 0 && i < q->base.entries && !q->base.failed; i++) {
		struct nvme_tcp_slot *slot = &q->slots[i];

		if (slot->has_response && slot->unsent == 0) {
			slot->has_response = false;
			slot->phase = NVME_TCP_IDLE;
			q->held_due--;
			(*done)++;
			nvme_qpair_complete(&q->base, &slot->cqe);
		}
	}
}

static void socket_read(struct nvme_tcp_qpair *q, uint32_t max, uint32_t *done)
{
	pdus_handle(q, max, done); /* those that a poll with a limit has left */
	for (unsigned reads = 0; reads < READS_MAX && !q->base.failed && !nvme_tcp_is_down(q); reads++) {
		int rc = max == 0 || *done < max ? tcp_receiver_read(&q->rx, q->fd) : -EAGAIN;
		if (rc == -EAGAIN) {
			return;
		}
		if (rc < 0) {
			if (!nvme_tcp_is_down(q)) { /* else this host has shut it down */
				log_limited(LOG_LEVEL_WARNING, "%s: queue pair %u: %s", q->base.ctrlr->trid.traddr,
					    q->base.id,
					    rc == -ECONNRESET ? "the controller has closed the connection"
					    : q->tls != NULL && rc == -EPROTO ? tls_session_why(q->tls)
									      : strerror(-rc));
			}
			nvme_tcp_set_down(q);
			return;
		}
		pdus_handle(q, max, done);
		if (q->rx.drained) {
			return;
		}
	}
}

int nvme_tcp_poll(struct nvme_qpair *base, uint32_t max)
{
	struct nvme_tcp_qpair *q = nvme_tcp_qpair_of(base);
	uint8_t link = __atomic_load_n(&q->link, __ATOMIC_RELAXED);
	uint32_t done = 0;

	if (link < NVME_TCP_LINK_UP) {
		return 0;
	}
	if (link == NVME_TCP_LINK_UP) {
		if (unlikely(q->zerocopy != NULL)) {
			nvme_tcp_zerocopy_read(q);
		}
		socket_read(q, max, &done);
		if (nvme_tcp_has_output(q)) {
			nvme_tcp_flush(base);
		}
		if (unlikely(q->held_due > 0)) {
			held_complete(q, &done);
		}
	}
	if (nvme_tcp_is_down(q)) {
		if (!nvme_tcp_zerocopy_end(q)) { /* the commands wait for the end of the stop, which follows */
			if (base->created) {
				nvme_qpair_break(base, "its connection is lost");
				return -ENXIO;
			}
			return (int)done;
		}
		if (base->created || base->id == 0) {
			nvme_qpair_fail(base);
		}
		return -ENXIO;
	}
	return (int)done;
}

/* Has epoll report, or not, when the socket takes bytes again. */
static void output_watch(struct nvme_tcp_qpair *q, bool wants_out)
{
	struct epoll_event event = {.events = EPOLLIN | (wants_out ? EPOLLOUT : 0u)};

	if (wants_out != q->wants_out && epoll_ctl(q->epoll, EPOLL_CTL_MOD, q->fd, &event) == 0) {
		q->wants_out = wants_out;
	}
}

bool nvme_tcp_arm(struct nvme_qpair *base)
{
	struct nvme_tcp_qpair *q = nvme_tcp_qpair_of(base);

	if (nvme_tcp_is_down(q) || tcp_receiver_has_bytes(&q->rx) || q->held_due > 0 ||
	    (nvme_tcp_has_output(q) && !q->blocked) || (unlikely(q->tls != NULL) && tls_session_has_more(q->tls))) {
		return true;
	}
	output_watch(q, q->blocked);
	return q->blocked && !q->wants_out; /* epoll has refused: the reactor stays awake */
}

void nvme_tcp_shut(struct nvme_qpair *base)
{
	tcp_receiver_skip(&nvme_tcp_qpair_of(base)->rx);
}
