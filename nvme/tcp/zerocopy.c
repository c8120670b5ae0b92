/* SPDX-License-Identifier: BSD-3-Clause */
#include "nvme/tcp/tcp.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "tcp/socket.h"
#include "util/log.h"

#define LOOK_US     1000  /* between looks for notifications, while a queue pair is stopped */
#define RESET_LOOKS 10    /* after them, what the controller has not acknowledged is not sent any more */
#define TELL_LOOKS  10000 /* after them, the network device has kept what it was given for too long */

/* The control thread comes to it only when the connection is down, while the user may still be at work on it: that is
 * what the lock is for. The user holds it during its calls on the socket, which do not wait. */
struct nvme_tcp_zerocopy {
	struct tcp_zerocopy *sends; /* whose owners are slots */
	atomic_flag lock;
	bool on;          /* what sends->on was when the user has looked last */
	uint32_t awaited; /* sends that the user waits for; the user's thread alone */
	bool ended;       /* nothing more is sent, and slots are not looked at any more */
	uint32_t looks;
	void (*done)(void *arg); /* of nvme_tcp_zerocopy_stop() */
	void *arg;
};

static void lock(struct nvme_tcp_zerocopy *z)
{
	while (atomic_flag_test_and_set_explicit(&z->lock, memory_order_acquire)) { /* paired with unlock() */
		sched_yield();
	}
}

static void unlock(struct nvme_tcp_zerocopy *z)
{
	atomic_flag_clear_explicit(&z->lock, memory_order_release);
}

void nvme_tcp_zerocopy_begin(struct nvme_tcp_qpair *q)
{
	const struct tcp_socket_opts *o = tcp_socket_opts();

	if (!o->zerocopy_client || q->tls != NULL || q->base.id == 0) {
		return;
	}
	struct nvme_tcp_zerocopy *z = calloc(1, sizeof(*z));
	if (z == NULL) {
		log_limited(LOG_LEVEL_WARNING, "%s: queue pair %u: no memory for zero copy: what it sends is copied",
			    q->base.ctrlr->trid.traddr, q->base.id);
		return;
	}
	z->sends = tcp_zerocopy_make(q->fd, o->zerocopy_threshold);
	if (z->sends == NULL) {
		free(z);
		return;
	}
	z->on = true;
	q->zerocopy = z;
}

bool nvme_tcp_zerocopy_is_on(const struct nvme_tcp_qpair *q)
{
	return q->zerocopy->on;
}

/* ---- Sending ---- */

static bool is_large(const struct nvme_tcp_qpair *q, const struct nvme_tcp_pdu *pdu)
{
	return pdu->length >= q->zerocopy->sends->threshold;
}

/* Where the data of a PDU end in the batch; its digest may be behind them. */
static uint16_t data_end(const struct nvme_tcp_qpair *q, const struct nvme_tcp_pdu *pdu)
{
	return (uint16_t)(pdu->iov_end - (q->rx.agreed.data_digest ? 1 : 0));
}

/* The end of what is copied: behind the next head of large data that is not sent completely. */
static uint16_t copied_end(const struct nvme_tcp_qpair *q)
{
	for (uint16_t i = q->first_pdu; i < q->num_pdus; i++) {
		if (is_large(q, &q->pdus[i]) && q->pdus[i].iov_begin >= q->first_iov) {
			return (uint16_t)(q->pdus[i].iov_begin + 1);
		}
	}
	return q->num_iovs;
}

static ssize_t send_large_data(struct nvme_tcp_qpair *q, const struct nvme_tcp_pdu *pdu)
{
	struct nvme_tcp_zerocopy *z = q->zerocopy;
	struct nvme_tcp_slot *slot = &q->slots[pdu->slot];
	uint16_t end = data_end(q, pdu);
	struct msghdr msg = {.msg_iov = &q->iovs[q->first_iov], .msg_iovlen = end - q->first_iov};
	bool refers = false;
	ssize_t n = -ECONNRESET;

	lock(z);
	if (!z->ended) {
		n = tcp_zerocopy_send(z->sends, q->fd, &msg, end < q->num_iovs ? MSG_MORE : 0, slot, &refers);
	}
	unlock(z);
	slot->unsent = (uint16_t)(slot->unsent + refers);
	z->awaited += refers;
	errno = n < 0 ? (int)-n : 0;
	return n < 0 ? -1 : n;
}

ssize_t nvme_tcp_zerocopy_send(struct nvme_tcp_qpair *q)
{
	const struct nvme_tcp_pdu *pdu = &q->pdus[q->first_pdu];

	if (is_large(q, pdu) && q->first_iov > pdu->iov_begin && q->first_iov < data_end(q, pdu)) {
		return send_large_data(q, pdu);
	}
	uint16_t end = copied_end(q);
	struct msghdr msg = {.msg_iov = &q->iovs[q->first_iov], .msg_iovlen = end - q->first_iov};

	return sendmsg(q->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL | (end < q->num_iovs ? MSG_MORE : 0));
}

/* ---- Notifications ---- */

static void slot_notified(void *arg, void *owner, bool copied)
{
	struct nvme_tcp_qpair *q = arg;
	struct nvme_tcp_slot *slot = owner;

	if (!q->zerocopy->ended) { /* else the commands are lost with their connection */
		slot->unsent--;
		q->zerocopy->awaited--;
		q->held_due = (uint16_t)(q->held_due + (slot->has_response && slot->unsent == 0));
	}
}

void nvme_tcp_zerocopy_read(struct nvme_tcp_qpair *q)
{
	struct nvme_tcp_zerocopy *z = q->zerocopy;

	if (z->awaited == 0) { /* so a poll has no lock to take */
		return;
	}
	lock(z);
	if (!z->ended) {
		(void)tcp_zerocopy_read(z->sends, q->fd, slot_notified, q);
		z->on = z->sends->on;
	}
	unlock(z);
}

/* ---- The end ---- */

bool nvme_tcp_zerocopy_end(struct nvme_tcp_qpair *q)
{
	struct nvme_tcp_zerocopy *z = q->zerocopy;

	if (z == NULL) {
		return true;
	}
	lock(z);
	z->ended = true;
	if (z->sends->unnotified != 0) {
		if (z->looks >= RESET_LOOKS) {
			tcp_zerocopy_reset(q->fd);
		}
		(void)tcp_zerocopy_read(z->sends, q->fd, slot_notified, q);
	}
	bool settled = z->sends->unnotified == 0;
	unlock(z);
	return settled;
}

static void stop_when_ended(void *arg)
{
	struct nvme_tcp_qpair *q = arg;
	struct nvme_tcp_zerocopy *z = q->zerocopy;

	if (nvme_tcp_zerocopy_end(q)) {
		z->done(z->arg);
		return;
	}
	lock(z); /* the user may look, too */
	bool tell = ++z->looks % TELL_LOOKS == 0;
	unlock(z);
	if (tell) {
		log_limited(
			LOG_LEVEL_WARNING,
			"%s: queue pair %u: the connection has ended, but the kernel still uses data that were to be "
			"sent on it; the commands of these data end when it has released them",
			q->base.ctrlr->trid.traddr, q->base.id);
	}
	thread_timer_start(&q->timer, LOOK_US);
}

void nvme_tcp_zerocopy_stop(struct nvme_tcp_qpair *q, void (*done)(void *arg), void *arg)
{
	if (nvme_tcp_zerocopy_end(q)) {
		done(arg);
		return;
	}
	q->zerocopy->done = done;
	q->zerocopy->arg = arg;
	q->timer.fn = stop_when_ended; /* the time limit of connecting has been met */
	q->timer.arg = q;
	thread_timer_start(&q->timer, LOOK_US);
}

void nvme_tcp_zerocopy_free(struct nvme_tcp_qpair *q)
{
	if (q->zerocopy != NULL) {
		free(q->zerocopy->sends);
		free(q->zerocopy);
	}
}
