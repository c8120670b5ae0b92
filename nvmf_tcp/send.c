/* SPDX-License-Identifier: BSD-3-Clause */
/* Sending: one sendmsg() for the PDUs of as many requests as there are, straight from their data buffers. The kernel
 * copies, so that a request ends as soon as all its bytes have been taken. Where it is to send large data without a
 * copy, they are a sendmsg() of their own, and the request ends when the kernel does not refer to them any more. */
#include <errno.h>

#include "nvmf_tcp/internal.h"
#include "util/iov.h"

void nvmf_tcp_qpair_queue(struct nvmf_tcp_qpair *qp, struct nvmf_tcp_request *r)
{
	STAILQ_INSERT_TAIL(&qp->out, r, link);
	qp->unsent += r->unsent;
	nvmf_tcp_qpair_mark_dirty(qp, false);
}

void nvmf_tcp_qpair_drop_unsent(struct nvmf_tcp_qpair *qp)
{
	STAILQ_INIT(&qp->out);
	qp->unsent = 0;
	qp->sent_of_first = 0;
}

/* ---- What is sent next ---- */

struct pieces {
	struct iovec *iovs;
	unsigned count;
	int flags;                      /* of sendmsg(), besides those that it always has */
	uint64_t skip;                  /* bytes that have been sent already */
	struct nvmf_tcp_request *large; /* they are its data, and not to be copied; NULL: they are */
};

static ALWAYS_INLINE void add_piece(struct pieces *p, const void *at, size_t length)
{
	if (p->skip >= length) {
		p->skip -= length;
		return;
	}
	if (p->count < NVMF_TCP_SEND_IOVS) {
		p->iovs[p->count++] = (struct iovec){(uint8_t *)(uintptr_t)at + p->skip, length - (size_t)p->skip};
		p->skip = 0;
	}
}

static ALWAYS_INLINE void add_data(struct pieces *p, const struct nvmf_request *req)
{
	struct iov_cursor c = iov_cursor_at(req->iov, 0);

	for (size_t left = req->length, n; left > 0 && p->count < NVMF_TCP_SEND_IOVS; left -= n) {
		n = left;
		const void *at = iov_next(&c, &n);
		add_piece(p, at, n);
	}
}

/* What is behind the data. */
static ALWAYS_INLINE void add_tail(struct pieces *p, const struct nvmf_tcp_request *r)
{
	if (r->sends_data && r->qp->receiver.agreed.data_digest) {
		add_piece(p, &r->data_digest, sizeof(r->data_digest));
	}
	if (r->sends_response) {
		add_piece(p, r->response_pdu, r->response_head);
	}
}

/* An R2T, or data and response. */
static ALWAYS_INLINE void add_request(struct pieces *p, const struct nvmf_tcp_request *r)
{
	if (r->state == TCP_REQ_AWAIT_R2T_ACK) {
		add_piece(p, r->data_pdu, r->data_head);
		return;
	}
	if (r->sends_data) {
		add_piece(p, r->data_pdu, r->data_head);
		add_data(p, &r->req);
	}
	add_tail(p, r);
}

/* ---- Large data, without a copy: in a sendmsg() of their own ---- */

static bool has_large_data(const struct nvmf_tcp_request *r)
{
	return r->sends_data && r->req.length >= r->qp->zerocopy->threshold;
}

/* Adds the head of a request with large data if it is not sent yet, or else the rest of these data, and nothing more.
 * False: both have been sent, and what is behind them is added. */
static NOINLINE bool add_until_cut(struct pieces *p, struct nvmf_tcp_request *r)
{
	add_piece(p, r->data_pdu, r->data_head);
	if (p->count != 0) {
		p->flags = MSG_MORE;
		return true;
	}
	add_data(p, &r->req);
	if (p->count != 0) {
		p->large = r;
		p->flags = r->sends_response || r->qp->receiver.agreed.data_digest ? MSG_MORE : 0;
		return true;
	}
	add_tail(p, r);
	return false;
}

/* Pieces that do not fit, or are behind a cut, are left to the next call, which begins where this one's bytes end. */
static ALWAYS_INLINE void collect_pieces(struct nvmf_tcp_qpair *qp, struct pieces *p, bool cut)
{
	struct nvmf_tcp_request *r;

	STAILQ_FOREACH (r, &qp->out, link) {
		nvmf_tcp_request_sending(r);
		if (unlikely(cut) && has_large_data(r)) {
			struct pieces copy = *p; /* so that `p` need not be in memory elsewhere */
			bool is_cut = add_until_cut(&copy, r);

			*p = copy;
			if (is_cut) {
				break;
			}
		} else {
			add_request(p, r);
		}
		if (p->count == NVMF_TCP_SEND_IOVS) {
			break;
		}
	}
}

/* ---- Sending ---- */

static void account_sent(struct nvmf_tcp_qpair *qp, size_t bytes)
{
	bool holds = qp->zerocopy != NULL;
	struct nvmf_tcp_request *r;

	qp->tgroup->counters.sent_bytes += bytes;
	qp->moved += bytes;
	qp->unsent -= bytes;
	qp->sent_of_first += bytes;
	while ((r = STAILQ_FIRST(&qp->out)) != NULL && qp->sent_of_first >= r->unsent) {
		qp->sent_of_first -= r->unsent;
		STAILQ_REMOVE_HEAD(&qp->out, link);
		if (unlikely(holds) && r->zerocopies != 0) {
			nvmf_tcp_zerocopy_hold(r);
		} else {
			nvmf_tcp_request_sent(r);
		}
	}
}

static ssize_t send_pieces(struct nvmf_tcp_qpair *qp)
{
	struct pieces p = {.iovs = qp->tgroup->iovs, .skip = qp->sent_of_first};

	collect_pieces(qp, &p, unlikely(qp->zerocopy != NULL) && qp->zerocopy->on);
	struct msghdr msg = {.msg_iov = p.iovs, .msg_iovlen = p.count};
	qp->tgroup->counters.sends++;
	if (unlikely(qp->tls != NULL)) {
		ssize_t taken = tls_session_write(qp->tls, msg.msg_iov, (unsigned)msg.msg_iovlen);

		return taken != 0 ? taken : -EAGAIN;
	}
	if (unlikely(p.large != NULL)) {
		return nvmf_tcp_zerocopy_send(qp, p.large, &msg, p.flags);
	}
	ssize_t n = sendmsg(qp->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL | p.flags);

	return n >= 0 ? n : -errno;
}

static void wait_for_room(struct nvmf_tcp_qpair *qp)
{
	if (!qp->send_blocked) {
		qp->send_blocked = true;
		qp->tgroup->counters.pending_send++;
	}
	nvmf_tcp_qpair_update_events(qp);
}

static void end_unsent(struct nvmf_tcp_qpair *qp)
{
	nvmf_tcp_tell_tls_failure(qp);
	qp->broken = true;
	nvmf_qpair_disconnect(&qp->base, "the connection broke while it was sent to");
}

/* Over TLS: what was encrypted has to be sent, too. True: all was. */
static bool send_encrypted(struct nvmf_tcp_qpair *qp)
{
	if (tls_session_write(qp->tls, NULL, 0) < 0) {
		end_unsent(qp);
		return false;
	}
	if (tls_session_has_unsent(qp->tls)) {
		wait_for_room(qp);
		return false;
	}
	return true;
}

void nvmf_tcp_qpair_send(struct nvmf_tcp_qpair *qp)
{
	/* no budget: `out` has at most as many requests as the queue, and none is added meanwhile */
	while (!STAILQ_EMPTY(&qp->out)) {
		ssize_t n = send_pieces(qp);

		if (n >= 0) {
			account_sent(qp, (size_t)n);
		} else if (n == -EAGAIN) {
			wait_for_room(qp);
			return;
		} else if (n != -EINTR) {
			end_unsent(qp);
			return;
		}
	}
	/* with nothing to send, what is wrong with the session is left to the next read: the host may have closed */
	if (unlikely(qp->tls != NULL) && tls_session_has_unsent(qp->tls) && !send_encrypted(qp)) {
		return;
	}
	qp->send_blocked = false;
	nvmf_tcp_qpair_update_events(qp);
}

bool nvmf_tcp_qpair_send_now(struct nvmf_tcp_qpair *qp, const void *bytes, size_t length)
{
	if (unlikely(qp->tls != NULL)) {
		return tls_session_send_now(qp->tls, bytes, length);
	}
	return send(qp->fd, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)length;
}
