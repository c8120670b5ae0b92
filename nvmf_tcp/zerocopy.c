/* SPDX-License-Identifier: BSD-3-Clause */
#include "tcp/zerocopy.h"

#include <sys/epoll.h>

#include "nvmf_tcp/internal.h"

#define LOOK_US     1000  /* between looks for notifications of a connection that has ended */
#define RESET_LOOKS 1000  /* after them, what the host has not taken is not sent any more */
#define TELL_LOOKS  10000 /* after them, the network device has kept what it was given for too long */

void nvmf_tcp_zerocopy_begin(struct nvmf_tcp_qpair *qp)
{
	const struct tcp_socket_opts *o = tcp_socket_opts();

	if (!o->zerocopy_server || qp->tls != NULL) {
		return;
	}
	qp->zerocopy = tcp_zerocopy_make(qp->fd, o->zerocopy_threshold);
	qp->bytes += qp->zerocopy != NULL ? sizeof(*qp->zerocopy) : 0;
}

ssize_t nvmf_tcp_zerocopy_send(struct nvmf_tcp_qpair *qp, struct nvmf_tcp_request *r, const struct msghdr *msg,
			       int flags)
{
	bool refers;
	ssize_t n = tcp_zerocopy_send(qp->zerocopy, qp->fd, msg, flags, r, &refers);

	if (refers) {
		r->zerocopies++;
		qp->tgroup->counters.zerocopy_sends++;
	}
	return n;
}

static void note_starvation(struct nvmf_tcp_qpair *qp)
{
	qp->starved = qp->held != 0 && STAILQ_EMPTY(&qp->free);
}

void nvmf_tcp_zerocopy_hold(struct nvmf_tcp_request *r)
{
	nvmf_tcp_request_hold(r);
	r->qp->held++;
	note_starvation(r->qp);
}

static void end_notified_send(void *arg, void *owner, bool copied)
{
	struct nvmf_tcp_qpair *qp = arg;
	struct nvmf_tcp_request *r = owner;

	qp->tgroup->counters.zerocopy_copied += copied;
	if (--r->zerocopies == 0 && r->state == TCP_REQ_HELD) {
		qp->held--;
		nvmf_tcp_request_sent(r);
	}
}

static bool read_notifications(struct nvmf_tcp_qpair *qp)
{
	return tcp_zerocopy_read(qp->zerocopy, qp->fd, end_notified_send, qp);
}

bool nvmf_tcp_zerocopy_notified(struct nvmf_tcp_qpair *qp)
{
	bool any = read_notifications(qp);

	if (qp->starved) {
		note_starvation(qp);
		nvmf_tcp_qpair_update_events(qp);
	}
	return any;
}

/* ---- The end ----
 *
 * The kernel goes on sending what the host has not taken when a connection has ended. A host that takes it in time
 * gets all of it; of others nothing is sent any more, after which notifications come by themselves. */

static void look_for_notifications(void *arg)
{
	struct nvmf_tcp_qpair *qp = arg;

	(void)read_notifications(qp);
	if (qp->zerocopy->unnotified == 0) {
		nvmf_tcp_qpair_release_socket(qp);
		qp->in_use--;
		nvmf_tcp_qpair_check_closed(qp);
		return;
	}
	qp->zerocopy_looks++;
	qp->broken = qp->broken || qp->zerocopy_looks >= RESET_LOOKS;
	if (qp->broken) {
		tcp_zerocopy_reset(qp->fd);
	}
	if (qp->zerocopy_looks % TELL_LOOKS == 0) {
		log_limited(
			LOG_LEVEL_WARNING,
			"a connection of %s has ended, but the kernel still uses the data of %u sends; their buffers "
			"stay in use until it has released them",
			qp->base.peer_address.traddr, qp->zerocopy->unnotified);
	}
	thread_timer_start(&qp->zerocopy_timer, LOOK_US);
}

bool nvmf_tcp_zerocopy_end(struct nvmf_tcp_qpair *qp)
{
	if (qp->zerocopy == NULL || qp->zerocopy->unnotified == 0) {
		return false;
	}
	qp->in_use++; /* ours */
	qp->zerocopy_timer.fn = look_for_notifications;
	qp->zerocopy_timer.arg = qp;
	thread_timer_start(&qp->zerocopy_timer, 0);
	return true;
}
