/* SPDX-License-Identifier: BSD-3-Clause */
/* Hosts that take or send too little: their commands hold data buffers that others could use. A poll group looks at its
 * connections at intervals, and counts looks: no time is measured, for this process may have been stopped. */
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include "nvmf_tcp/internal.h"
#include "nvmf_tcp/rules.h"

#define STALL_LOOKS    4
#define OLD_LOOKS      (4 * STALL_LOOKS) /* that what was begun at once may be under way: responses, data of commands */
#define ACK_TIMEOUT_MS 30000             /* where ack_timeout is not given */

/* Bytes that the host has taken and sent, ever. What the socket has taken is the host's when copied; what the kernel
 * refers to keeps its buffer until it is acknowledged, so that only then it is counted. */
static uint64_t count_moved(const struct nvmf_tcp_qpair *qp)
{
	int unacknowledged = 0;

	if (qp->zerocopy == NULL || ioctl(qp->fd, SIOCOUTQ, &unacknowledged) != 0) {
		return qp->moved;
	}
	return qp->moved - (uint32_t)unacknowledged;
}

/* The least of `oldest` (0: none) and of when requests came into a state, which `count` of them are in. */
static uint64_t oldest_ticks_in(const struct nvmf_tcp_qpair *qp, enum nvmf_tcp_request_state state, uint32_t count,
				uint64_t oldest)
{
	for (uint32_t i = 0; count != 0 && i < qp->array->base.count; i++) {
		const struct nvmf_tcp_request *r = nvmf_tcp_request_at(qp->array, i);

		if (r->state == state && (oldest == 0 || r->state_ticks < oldest)) {
			oldest = r->state_ticks;
		}
	}
	return oldest;
}

/* When the oldest transfer began; 0: there is none. */
static uint64_t oldest_transfer_ticks(const struct nvmf_tcp_qpair *qp)
{
	const struct nvmf_tcp_request *first = STAILQ_FIRST(&qp->out);

	return oldest_ticks_in(qp, TCP_REQ_TX_H_TO_C, qp->transfers, first != NULL ? first->state_ticks : 0);
}

/* Fills in what the look at a connection is about. Data that were sent since the last look may be under way. */
static void look_at(struct nvmf_tcp_qpair *qp, bool scarce)
{
	uint64_t moved = count_moved(qp), oldest = oldest_transfer_ticks(qp);
	uint64_t held = oldest_ticks_in(qp, TCP_REQ_HELD, qp->held, 0);
	int64_t progress = (int64_t)(moved - qp->moved_seen);

	qp->progress = progress > 0 ? (uint64_t)progress : 0;
	qp->moved_seen = moved;
	qp->has_to_move = qp->unsent != 0 || qp->transfers != 0 || (held != 0 && held == qp->held_seen);
	qp->held_seen = held;
	if (scarce && held != 0 && (oldest == 0 || held < oldest)) {
		oldest = held;
	}
	qp->old_looks = oldest != 0 && oldest == qp->oldest_seen ? (uint8_t)(qp->old_looks + 1) : 0;
	qp->oldest_seen = oldest;
}

/* Looks at all. Bytes that have to have moved since the last look. */
static uint64_t look_at_all(struct nvmf_tcp_group *g)
{
	bool scarce = nvmf_buffers_are_awaited(&g->buffers) || g->buffers.waits != g->waits_seen;
	struct nvmf_tcp_qpair *qp;
	uint32_t connections = 0;
	uint64_t moved = 0;

	g->waits_seen = g->buffers.waits;
	TAILQ_FOREACH (qp, &g->qpairs, link) {
		look_at(qp, scarce);
		if (qp->has_to_move) {
			moved += qp->progress;
			connections++;
		}
	}
	return nvmf_tcp_stall_bytes(scarce, moved, connections);
}

static bool is_stalled_tcp_qpair(struct nvmf_tcp_qpair *qp, uint64_t bytes)
{
	qp->stalled = qp->progress >= bytes || !qp->has_to_move ? 0 : (uint8_t)(qp->stalled + 1);
	return qp->stalled > STALL_LOOKS || qp->old_looks > OLD_LOOKS;
}

int nvmf_tcp_group_poll_stalled(void *ctx)
{
	struct nvmf_tcp_group *g = ctx;
	struct nvmf_tcp_qpair *qp, *next;
	uint64_t bytes = look_at_all(g);

	for (qp = TAILQ_FIRST(&g->qpairs); qp != NULL; qp = next) {
		next = TAILQ_NEXT(qp, link);
		if (qp->tls != NULL) {
			tls_session_rest(qp->tls);
		}
		if (is_stalled_tcp_qpair(qp, bytes)) {
			qp->broken = true;
			nvmf_qpair_fail(&qp->base, qp->unsent != 0 || qp->held != 0
							   ? "it takes too little of what it is sent"
							   : "it does not send the data of its commands in time");
		}
	}
	return POLLER_IDLE;
}

uint64_t nvmf_tcp_stall_poll_us(const struct nvmf_transport *t)
{
	uint64_t timeout_ms = t->opts.ack_timeout;

	return (timeout_ms != 0 ? timeout_ms : ACK_TIMEOUT_MS) * 1000 / STALL_LOOKS;
}
