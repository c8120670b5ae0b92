/* SPDX-License-Identifier: BSD-3-Clause */
/* Commands of the TCP transport and the data of writes: a queue of slots, from it a batch of PDUs, and one sendmsg()
 * for the batch. The using thread. */
#include "nvme/tcp/tcp.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "tcp/digest.h"
#include "util/log.h"

#define FABRICS_DATA_MAX 8192 /* bytes in a capsule of the admin queue, or of a Fabrics command (TCP 3.3.2) */

void nvme_tcp_queue(struct nvme_tcp_qpair *q, uint16_t index)
{
	q->slots[index].unsent++;
	q->queue[q->queue_tail++ & q->queue_mask] = index;
}

bool nvme_tcp_has_output(const struct nvme_tcp_qpair *q)
{
	return q->queue_head != q->queue_tail || q->first_iov != q->num_iovs ||
	       (unlikely(q->tls != NULL) && tls_session_has_unsent(q->tls));
}

static uint32_t capsule_data_max(const struct nvme_tcp_qpair *q, const struct nvme_request *req)
{
	bool admin = q->base.id == 0 || req->cmd.opcode == nvme_admin_fabrics;

	return admin && q->in_capsule_max < FABRICS_DATA_MAX ? FABRICS_DATA_MAX : q->in_capsule_max;
}

int nvme_tcp_submit(struct nvme_qpair *base, struct nvme_request *req)
{
	struct nvme_tcp_qpair *q = nvme_tcp_qpair_of(base);
	uint16_t index = le16toh(req->cmd.cid) & base->slot_mask;
	struct nvme_tcp_slot *slot = &q->slots[index];

	if (req->iovcnt > NVME_TCP_SEGMENTS) {
		return -E2BIG;
	}
	*slot = (struct nvme_tcp_slot){.phase = NVME_TCP_QUEUED};
	slot->in_capsule = req->to_device && req->data_len > 0 && req->data_len <= capsule_data_max(q, req);
	req->cmd.flags = (uint8_t)((req->cmd.flags & ~NVME_CMD_FLAGS_PSDT_MASK) | NVME_CMD_FLAGS_PSDT_SGL);
	req->cmd.mptr = 0;
	req->cmd.sgl1 = slot->in_capsule ? nvme_sgl_make_plain(NVME_SGL_TYPE_DATA_BLOCK, NVME_SGL_SUBTYPE_OFFSET, 0,
							       req->data_len)
					 : nvme_sgl_make_plain(NVME_SGL_TYPE_TRANSPORT_DATA_BLOCK,
							       NVME_SGL_SUBTYPE_TRANSPORT, 0, req->data_len);
	nvme_tcp_queue(q, index);
	return 0;
}

/* The batch. */

static void batch_add(struct nvme_tcp_qpair *q, void *bytes, size_t length)
{
	q->iovs[q->num_iovs++] = (struct iovec){.iov_base = bytes, .iov_len = length};
}

/* Adds `length` bytes of a command's data, from `offset` on, and their digest. */
static void batch_add_data(struct nvme_tcp_qpair *q, struct nvme_tcp_pdu *pdu, const struct nvme_request *req,
			   size_t offset, size_t length)
{
	pdu->length = (uint32_t)length;
	if (q->rx.agreed.data_digest) {
		pdu->digest = htole32(
			tcp_digest_end(tcp_digest_add_iovs(TCP_DIGEST_START, req->iovs, req->iovcnt, offset, length)));
	}
	for (const struct iovec *v = req->iovs; length > 0; v++) {
		if (offset >= v->iov_len) {
			offset -= v->iov_len;
			continue;
		}
		size_t n = v->iov_len - offset < length ? v->iov_len - offset : length;
		batch_add(q, (uint8_t *)v->iov_base + offset, n);
		length -= n;
		offset = 0;
	}
	if (q->rx.agreed.data_digest) {
		batch_add(q, &pdu->digest, sizeof(pdu->digest));
	}
}

static struct nvme_tcp_pdu *batch_pdu_begin(struct nvme_tcp_qpair *q, uint16_t index)
{
	struct nvme_tcp_pdu *pdu = &q->pdus[q->num_pdus++];

	pdu->slot = index;
	pdu->iov_begin = q->num_iovs;
	pdu->is_capsule = pdu->ends_r2t = false;
	pdu->length = 0;
	return pdu;
}

static void capsule_make(struct nvme_tcp_qpair *q, uint16_t index, const struct nvme_request *req)
{
	struct nvme_tcp_slot *slot = &q->slots[index];
	struct nvme_tcp_pdu *pdu = batch_pdu_begin(q, index);
	uint32_t data = slot->in_capsule ? req->data_len : 0;

	batch_add(q, &pdu->head, tcp_capsule_cmd_encode(&pdu->head, &q->rx.agreed, &req->cmd, data));
	if (data > 0) {
		batch_add_data(q, pdu, req, 0, data);
	}
	pdu->is_capsule = true;
	pdu->iov_end = q->num_iovs;
	slot->phase = NVME_TCP_BATCH;
}

/* Makes the next H2CData PDU for the oldest R2T of a slot. True: it is the last one for it. */
static bool h2c_data_make(struct nvme_tcp_qpair *q, uint16_t index, const struct nvme_request *req)
{
	struct nvme_tcp_slot *slot = &q->slots[index];
	struct nvme_tcp_r2t *r2t = &slot->r2ts[slot->r2t_first];
	struct nvme_tcp_pdu *pdu = batch_pdu_begin(q, index);
	uint32_t most = q->rx.agreed.max_h2c_data;
	struct tcp_piece piece = {.cccid = le16toh(req->cmd.cid),
				  .ttag = r2t->ttag,
				  .offset = slot->made,
				  .length = r2t->left < most ? r2t->left : most,
				  .last = r2t->left <= most};

	batch_add(q, &pdu->head, tcp_h2c_data_encode(&pdu->head, &q->rx.agreed, &piece));
	batch_add_data(q, pdu, req, piece.offset, piece.length);
	pdu->ends_r2t = piece.last;
	pdu->iov_end = q->num_iovs;
	slot->made += piece.length;
	r2t->left -= piece.length;
	if (piece.last) {
		slot->r2t_first = (uint8_t)((slot->r2t_first + 1) % NVME_TCP_R2TS);
		slot->r2ts_queued--;
	}
	return piece.last;
}

/* Makes PDUs from the queue as long as the batch has room. */
static void batch_make(struct nvme_tcp_qpair *q)
{
	while (q->queue_head != q->queue_tail && q->num_pdus < NVME_TCP_BATCH_PDUS) {
		uint16_t index = q->queue[q->queue_head & q->queue_mask];
		const struct nvme_request *req = q->base.by_slot[index];
		bool done = true;

		if (q->num_iovs + req->iovcnt + 2u > NVME_TCP_BATCH_IOVS) {
			break; /* head, data, digest */
		}
		if (q->slots[index].phase == NVME_TCP_QUEUED) {
			capsule_make(q, index, req);
		} else {
			done = h2c_data_make(q, index, req);
		}
		q->queue_head += done;
	}
}

static void pdu_sent(struct nvme_tcp_qpair *q, const struct nvme_tcp_pdu *pdu)
{
	struct nvme_tcp_slot *slot = &q->slots[pdu->slot];

	if (pdu->is_capsule) {
		slot->phase = NVME_TCP_SENT;
	}
	slot->r2ts_outstanding = (uint8_t)(slot->r2ts_outstanding - pdu->ends_r2t);
	if (pdu->is_capsule || pdu->ends_r2t) {
		slot->unsent--;
		q->held_due += slot->has_response && slot->unsent == 0;
	}
}

/* n bytes of the batch have been sent. */
static void batch_advance(struct nvme_tcp_qpair *q, size_t n)
{
	while (n > 0) {
		struct iovec *v = &q->iovs[q->first_iov];

		q->partly = n < v->iov_len;
		if (q->partly) {
			v->iov_base = (uint8_t *)v->iov_base + n;
			v->iov_len -= n;
			break;
		}
		n -= v->iov_len;
		q->first_iov++;
	}
	while (q->first_pdu < q->num_pdus && q->pdus[q->first_pdu].iov_end <= q->first_iov) {
		pdu_sent(q, &q->pdus[q->first_pdu++]);
	}
	if (q->first_iov == q->num_iovs) {
		q->first_iov = q->num_iovs = q->first_pdu = q->num_pdus = 0;
	}
}

/* As sendmsg() of what is left of the batch; cut: of its next part, for large data are sent without a copy. Over TLS it
 * may take all of it, and have bytes left to be sent. */
static ssize_t batch_sendmsg(struct nvme_tcp_qpair *q, bool cut)
{
	struct msghdr msg = {.msg_iov = &q->iovs[q->first_iov], .msg_iovlen = q->num_iovs - q->first_iov};

	if (unlikely(q->tls != NULL)) {
		ssize_t n = tls_session_write(q->tls, msg.msg_iov, (unsigned)msg.msg_iovlen);

		errno = n < 0 ? (int)-n : 0;
		return n;
	}
	if (unlikely(cut)) {
		return nvme_tcp_zerocopy_send(q);
	}
	return sendmsg(q->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void batch_send(struct nvme_tcp_qpair *q)
{
	bool cut = unlikely(q->zerocopy != NULL) && nvme_tcp_zerocopy_is_on(q);
	ssize_t n = batch_sendmsg(q, cut);

	if (n >= 0) {
		batch_advance(q, (size_t)n);
		/* of a batch that is cut, the next part tells whether there is room */
		q->blocked = (q->first_iov != q->num_iovs && !cut) ||
			     (unlikely(q->tls != NULL) && tls_session_has_unsent(q->tls));
		return;
	}
	q->blocked = true;
	if (errno != EAGAIN) {
		if (!nvme_tcp_is_down(q)) { /* else this host has shut it down */
			log_limited(LOG_LEVEL_WARNING, "%s: queue pair %u: sending failed: %s",
				    q->base.ctrlr->trid.traddr, q->base.id, strerror(errno));
		}
		nvme_tcp_set_down(q);
	}
}

void nvme_tcp_flush(struct nvme_qpair *base)
{
	struct nvme_tcp_qpair *q = nvme_tcp_qpair_of(base);

	q->blocked = false;
	/* commands of a queue pair that has failed are completed: the batch refers to memory that has another use */
	while (!base->failed && !q->blocked && nvme_tcp_has_output(q) && !nvme_tcp_is_down(q)) {
		if (q->first_iov == q->num_iovs) {
			batch_make(q);
		}
		batch_send(q);
	}
}

/* The end over a fault. */

void nvme_tcp_terminate(struct nvme_tcp_qpair *q, const struct tcp_fault *fault)
{
	char text[TCP_FAULT_TEXT_MAX];
	union tcp_header term;
	uint32_t n = tcp_term_encode(&term, TCP_HOST, fault, &q->rx.header, tcp_receiver_header_bytes(&q->rx));
	bool within_pdu = q->first_pdu < q->num_pdus && (q->partly || q->first_iov != q->pdus[q->first_pdu].iov_begin);

	log_limited(LOG_LEVEL_ERROR,
		    "%s: queue pair %u: the controller has sent a wrong PDU, and the connection ends: %s",
		    q->base.ctrlr->trid.traddr, q->base.id, tcp_fault_text(fault, text));
	/* in the middle of a PDU it would be taken for data; and if the socket has no room, the end says enough */
	if (!within_pdu && nvme_tcp_send_now(q, &term, n)) {
		if (q->tls != NULL) {
			tls_session_end(q->tls);
		}
		shutdown(q->fd, SHUT_WR);
	}
	nvme_tcp_set_down(q);
}
