/* SPDX-License-Identifier: BSD-3-Clause */
/* How I/O queue pairs come and go. All on the control thread. */
#include "nvme/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/log.h"

#define CONNECT_POLL_US 1000 /* queue pairs without a descriptor */

/* Ids are used in turn: a target refuses an id whose last connection it has not ended yet. */
static uint16_t qid_allocate(struct nvme_ctrlr *ctrlr)
{
	for (uint16_t tries = 0; tries < ctrlr->io_queues; tries++) {
		uint16_t qid = ctrlr->last_qid < ctrlr->io_queues ? (uint16_t)(ctrlr->last_qid + 1) : 1;
		ctrlr->last_qid = qid;
		if ((ctrlr->qids[qid / 64] & UINT64_C(1) << qid % 64) == 0) {
			ctrlr->qids[qid / 64] |= UINT64_C(1) << qid % 64;
			return qid;
		}
	}
	return 0;
}

/* From the transport's connection to the hand-over, a queue pair is polled here, by its own descriptor, for the answers
 * to Connect and to authentication. */

static void connect_ended(struct nvme_qpair *qpair, int error)
{
	/* The user is called from a timer: this function may run within a poll of the queue pair, which the user could
	 * poll, or destroy. */
	poller_unregister(&qpair->connect_poller);
	qpair->connected = error == 0;
	qpair->failed = error != 0;
	thread_timer_start(&qpair->connect_timer, 0);
}

/* A connection that fails because its controller is being reset, disabled or detached by this host is no surprise. */
static enum log_level connect_failure_level(const struct nvme_qpair *qpair)
{
	return nvme_ctrlr_is_ending(qpair->ctrlr) ? LOG_LEVEL_NOTICE : LOG_LEVEL_WARNING;
}

static int connecting_qpair_poll(void *arg)
{
	struct nvme_qpair *qpair = arg;
	int n = nvme_qpair_poll(qpair, 0);

	if (n < 0 && qpair->connect_poller != NULL) { /* else connecting has ended already */
		log_write(connect_failure_level(qpair), __FILE__, __LINE__, __func__,
			  "%s: queue pair %u: its connection was lost before it was ready%s%s",
			  qpair->ctrlr->trid.traddr, qpair->id, qpair->why != NULL ? ": " : "",
			  qpair->why != NULL ? qpair->why : "");
		connect_ended(qpair, -ENXIO);
	}
	return n != 0 ? POLLER_BUSY : POLLER_IDLE;
}

static bool connecting_qpair_arm(void *arg)
{
	return nvme_qpair_arm(arg);
}

static int connect_poller_start(struct nvme_qpair *qpair)
{
	int fd = nvme_qpair_fd(qpair);

	qpair->connect_poller = poller_register(&(struct poller_opts){.name = "nvme_connect",
								      .fn = connecting_qpair_poll,
								      .ctx = qpair,
								      .fd = fd,
								      .arm = fd >= 0 ? connecting_qpair_arm : NULL,
								      .period_us = fd >= 0 ? 0 : CONNECT_POLL_US});
	return qpair->connect_poller != NULL ? 0 : -errno;
}

static void connect_timer_start(struct nvme_qpair *qpair, uint32_t ms)
{
	qpair->connect_ms = ms;
	thread_timer_start(&qpair->connect_timer, ms * UINT64_C(1000));
}

static void connect_timer_fired(void *arg)
{
	struct nvme_qpair *qpair = arg;

	if (qpair->connected && !qpair->failed) {
		qpair->created = true;
		nvme_qpair_set_state(qpair, NVME_QPAIR_READY);
		qpair->watched = qpair->ctrlr->opts.io_timeout_ms == 0;
		qpair->ready(qpair->ready_arg, qpair, 0);
		return;
	}
	if (!qpair->failed && thread_timer_was_absent(&qpair->connect_timer, qpair->connect_ms * UINT64_C(1000))) {
		connect_timer_start(qpair, qpair->connect_ms); /* this process was absent: answers that came meanwhile
								  have not been read yet */
		return;
	}
	if (!qpair->failed) {
		log_warning("%s: queue pair %u was not connected within %u ms", qpair->ctrlr->trid.traddr, qpair->id,
			    qpair->connect_ms);
	}
	nvme_qpair_fail(qpair);
	qpair->ready(qpair->ready_arg, NULL, -ECONNREFUSED);
	nvme_qpair_destroy(qpair);
}

static void qpair_authenticated(void *arg, int error, const char *why)
{
	struct nvme_qpair *qpair = arg;

	if (qpair->failed) { /* the queue pair is being ended */
		return;
	}
	if (error != 0) {
		log_write(connect_failure_level(qpair), __FILE__, __LINE__, __func__,
			  "%s: authentication of queue pair %u failed: %s", qpair->ctrlr->trid.traddr, qpair->id, why);
	}
	connect_ended(qpair, error);
}

static void qpair_authenticate(struct nvme_qpair *qpair)
{
	const struct nvme_ctrlr_opts *opts = &qpair->ctrlr->opts;

	connect_timer_start(qpair, opts->admin_timeout_ms); /* several commands */
	int rc = nvme_auth_start(qpair, opts->dhchap_key, opts->dhchap_ctrlr_key, qpair_authenticated, qpair);
	if (rc != 0) {
		qpair_authenticated(qpair, rc,
				    rc == -ENOKEY ? "the controller asks for it, and there is no dhchap_key"
						  : "it could not be begun");
	}
}

static void qpair_fabrics_connected(void *arg, const struct nvme_cqe *cqe)
{
	struct nvme_qpair *qpair = arg;
	uint16_t status = nvme_cqe_status(cqe);

	if (qpair->failed) { /* the queue pair is being ended */
		return;
	}
	if (status != 0) {
		log_write(connect_failure_level(qpair), __FILE__, __LINE__, __func__,
			  "%s: Connect of queue pair %u was refused: %s (dword 0: 0x%08x)", qpair->ctrlr->trid.traddr,
			  qpair->id, nvme_status_text(status), le32toh(cqe->dw0));
	} else if (nvme_auth_needed(qpair->ctrlr, cqe)) {
		qpair_authenticate(qpair);
		return;
	}
	connect_ended(qpair, status == 0 ? 0 : -ECONNREFUSED);
}

void nvme_qpair_transport_connected(struct nvme_qpair *qpair, int error)
{
	if (qpair->failed) {
		return;
	}
	if (error == 0 && qpair->ops->transport.fabrics) {
		error = connect_poller_start(qpair);
		error = error == 0 ? nvme_fabrics_connect(qpair, qpair_fabrics_connected, qpair) : error;
		if (error == 0) {
			return;
		}
		log_limited(LOG_LEVEL_WARNING, "%s: Connect of queue pair %u could not be sent: %s",
			    qpair->ctrlr->trid.traddr, qpair->id, strerror(-error));
	}
	connect_ended(qpair, error);
}

void nvme_qpair_create(struct nvme_ctrlr *ctrlr, const struct nvme_qpair_opts *opts,
		       void (*ready)(void *arg, struct nvme_qpair *qpair, int error), void *arg)
{
	uint32_t most = (uint32_t)NVME_CAP_MQES(ctrlr->cap); /* as in nvme_ctrlr_io_queue_entries() */
	uint32_t entries = opts->entries ? opts->entries : ctrlr->opts.io_queue_entries;
	uint16_t qid;

	if (ctrlr->state != NVME_CTRLR_READY || ctrlr->in_failure) {
		ready(arg, NULL, -ENXIO);
		return;
	}
	qid = qid_allocate(ctrlr);
	if (qid == 0) {
		ready(arg, NULL, ctrlr->qids_awaited != 0 ? -EAGAIN : -ENOSPC);
		return;
	}
	struct nvme_qpair *qpair =
		ctrlr->ops->qpair_alloc(ctrlr, qid, (uint16_t)(entries < most ? entries : most), opts);
	if (qpair == NULL) {
		/* the user tries again: the log is limited */
		log_limited(LOG_LEVEL_ERROR, "%s: out of memory for queue pair %u", ctrlr->trid.traddr, qid);
		ctrlr->qids[qid / 64] &= ~(UINT64_C(1) << qid % 64);
		ready(arg, NULL, -ENOMEM);
		return;
	}
	qpair->ready = ready;
	qpair->ready_arg = arg;
	qpair->connect_timer.fn = connect_timer_fired;
	qpair->connect_timer.arg = qpair;
	TAILQ_INSERT_TAIL(&ctrlr->qpairs, qpair, link);
	connect_timer_start(qpair, ctrlr->opts.connect_timeout_ms);
	ctrlr->ops->qpair_connect(qpair);
}

void nvme_qpair_stop(struct nvme_qpair *qpair, void (*done)(void *arg), void *arg)
{
	qpair->stopping = true;
	nvme_qpair_set_state(qpair, NVME_QPAIR_STOPPING);
	qpair->ops->qpair_stop(qpair, done, arg);
}

void nvme_qpair_leave(struct nvme_qpair *qpair)
{
	nvme_qpair_unwatch(qpair);
	nvme_fault_forget(qpair);
}

void nvme_qpair_abort_all(struct nvme_qpair *qpair)
{
	nvme_qpair_unwatch(qpair);
	nvme_qpair_fail(qpair);
}

void nvme_qpair_destroy(struct nvme_qpair *qpair)
{
	struct nvme_ctrlr *ctrlr = qpair->ctrlr;

	nvme_auth_cancel(qpair);
	thread_timer_stop(&qpair->connect_timer);
	poller_unregister(&qpair->connect_poller);
	TAILQ_REMOVE(&ctrlr->qpairs, qpair, link);
	ctrlr->qids[qpair->id / 64] &= ~(UINT64_C(1) << qpair->id % 64);
	ctrlr->ops->qpair_free(qpair);
}
