/* SPDX-License-Identifier: BSD-3-Clause */
/* The admin queue: commands, asynchronous events, keep-alive. All on the control thread. */
#include "nvme/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "env_dpdk/env.h"
#include "util/log.h"

#define STATUS_MASK 0x7ff /* SCT and SC */

LOG_FLAG(nvme)

struct admin {
	void (*cb)(void *arg, const struct nvme_cqe *cqe);
	void *arg;
	struct iovec iov;
	struct nvme_request req; /* last: the transport's room follows */
};

static void admin_cmd_done(struct nvme_request *req, const struct nvme_cqe *cqe)
{
	struct admin *a = req->cb_arg;

	a->cb(a->arg, cqe);
	free(a);
}

int nvme_ctrlr_admin(struct nvme_ctrlr *ctrlr, const struct nvme_sqe *cmd, void *data, uint32_t data_len,
		     bool to_device, void (*cb)(void *arg, const struct nvme_cqe *cqe), void *arg)
{
	if (ctrlr->admin == NULL) {
		return -ENXIO;
	}
	struct admin *a = calloc(1, offsetof(struct admin, req) + nvme_request_size());
	if (a == NULL) {
		log_limited(LOG_LEVEL_ERROR, "%s: out of memory for admin command 0x%02x", ctrlr->trid.traddr,
			    cmd->opcode);
		return -ENOMEM;
	}
	a->cb = cb;
	a->arg = arg;
	a->iov = (struct iovec){.iov_base = data, .iov_len = data_len};
	a->req.cmd = *cmd;
	a->req.iovs = &a->iov;
	a->req.iovcnt = data_len != 0;
	a->req.data_len = data_len;
	a->req.to_device = to_device;
	a->req.cb = admin_cmd_done;
	a->req.cb_arg = a;
	int rc = nvme_qpair_submit(ctrlr->admin, &a->req);
	if (rc != 0) {
		free(a);
		return rc;
	}
	nvme_qpair_flush(ctrlr->admin);
	return 0;
}

/* Asynchronous events (Base 5.2). The controller sends no further event of a kind before the log page that its answer
 * names has been read. So an answer is kept in ctrlr->unread until its page has been requested, and the Asynchronous
 * Event Request is sent again only then: there are never more answers than unread[] holds. */

static void aer_done(void *arg, const struct nvme_cqe *cqe);

static bool aer_submit_one(struct nvme_ctrlr *ctrlr)
{
	struct nvme_sqe cmd = {.opcode = nvme_admin_async_event};
	bool sent = nvme_ctrlr_admin(ctrlr, &cmd, NULL, 0, false, aer_done, ctrlr) == 0;

	ctrlr->aers += sent;
	return sent;
}

static void aers_submit(struct nvme_ctrlr *ctrlr)
{
	while (ctrlr->aers + ctrlr->num_unread < ctrlr->aers_wanted && aer_submit_one(ctrlr)) {
	}
}

static void rescan_finished(struct nvme_ctrlr *ctrlr, int error)
{
	/* not the controller's fault: later there may be memory, or room in the queue */
	if (error == -ENOMEM || error == -EAGAIN) {
		ctrlr->rescan_due = true;
		return;
	}
	if (error != 0) {
		nvme_ctrlr_lost(ctrlr, "the namespaces could not be read again: %s", strerror(-error));
		return;
	}
	nvme_ctrlr_emit(ctrlr, NVME_EVENT_NS_CHANGED, 0);
}

/* Before READY it is put off: the scan under way may have passed the namespaces that changed. */
static void rescan_if_due(struct nvme_ctrlr *ctrlr)
{
	if (ctrlr->rescan_due && ctrlr->state == NVME_CTRLR_READY && !ctrlr->in_failure) {
		ctrlr->rescan_due = false;
		nvme_ns_scan(ctrlr, rescan_finished);
	}
}

struct log_read {
	struct nvme_ctrlr *ctrlr;
	uint32_t aer;
	void *page;
};

/* Reading the log page without RAE has cleared the event, so that the controller sends the next of its kind
 * (Base 5.16). */
static void event_log_received(void *arg, const struct nvme_cqe *cqe)
{
	struct log_read *r = arg;
	struct nvme_ctrlr *ctrlr = r->ctrlr;
	uint32_t type = r->aer & 7, info = (r->aer >> 8) & 0xff;

	if (!ctrlr->in_failure) {
		if (type != NVME_AER_NOTICE) {
			ctrlr->event_log = nvme_cqe_status(cqe) == 0 ? r->page : NULL;
			nvme_ctrlr_emit(ctrlr, NVME_EVENT_LOG, r->aer);
			ctrlr->event_log = NULL;
		} else if (info == NVME_AER_NOTICE_NS_CHANGED) {
			ctrlr->rescan_due = true;
			rescan_if_due(ctrlr);
		} else if (info == NVME_AER_NOTICE_CROSS_CTRL_RESET) {
			nvme_cross_resets_read(ctrlr);
		} else if (info == NVME_AER_NOTICE_ANA) {
			nvme_ctrlr_read_ana(ctrlr);
			ctrlr->rescan_due = true; /* a namespace may have moved to another group, which shows only in
						     its Identify */
			rescan_if_due(ctrlr);
		} else if (info == 0xf0) { /* discovery log page changed, Base figure 146 */
			nvme_ctrlr_emit(ctrlr, NVME_EVENT_DISCOVERY_CHANGED, r->aer);
		}
	}
	env_dma_free(r->page);
	free(r);
}

const void *nvme_ctrlr_event_log(const struct nvme_ctrlr *ctrlr)
{
	return ctrlr->event_log;
}

/* False: no memory, or no room in the admin queue, at the moment. */
static bool event_log_request(struct nvme_ctrlr *ctrlr, uint32_t aer)
{
	uint8_t lid = (uint8_t)(aer >> 16);
	/* the whole log of changed namespaces: the kernel's target refuses to send a part of it, and sends no further
	 * notice before it was read */
	uint32_t len = lid == NVME_LOG_LID_CHANGED_NS ? 4096 : NVME_EVENT_LOG_BYTES;
	struct nvme_sqe cmd = {
		.opcode = nvme_admin_get_log_page,
		.nsid = htole32(NVME_NSID_ALL),
		.cdw10 = htole32(lid | (len / 4 - 1) << 16),
	};
	struct log_read *r = calloc(1, sizeof(*r));

	if (r == NULL) {
		return false;
	}
	r->ctrlr = ctrlr;
	r->aer = aer;
	r->page = env_dma_zmalloc(len, 0, -1);
	if (r->page == NULL || nvme_ctrlr_admin(ctrlr, &cmd, r->page, len, false, event_log_received, r) != 0) {
		env_dma_free(r->page);
		free(r);
		return false;
	}
	return true;
}

static void unread_logs_request(struct nvme_ctrlr *ctrlr)
{
	while (ctrlr->num_unread > 0 && event_log_request(ctrlr, ctrlr->unread[0])) {
		memmove(&ctrlr->unread[0], &ctrlr->unread[1], --ctrlr->num_unread * sizeof(ctrlr->unread[0]));
	}
}

static void aer_done(void *arg, const struct nvme_cqe *cqe)
{
	struct nvme_ctrlr *ctrlr = arg;
	uint16_t status = nvme_cqe_status(cqe);
	uint32_t aer = le32toh(cqe->dw0);

	ctrlr->aers--;
	if (ctrlr->in_failure || ctrlr->destroying) {
		return;
	}
	if (status != 0) { /* a controller that refuses one (limit exceeded) is sent no more than it takes */
		ctrlr->aers_wanted--;
		/* ABORT_QUEUE: the end of the queue, which is reported as that */
		if ((status & STATUS_MASK) != NVME_ST(GENERIC, ABORT_QUEUE)) {
			log_notice("%s: a request for events was refused: %s; %u are left", ctrlr->trid.traddr,
				   nvme_status_text(status), ctrlr->aers_wanted);
		}
		return;
	}
	log_info(nvme, "asynchronous event: type %u, information 0x%02x, log page 0x%02x", aer & 7, (aer >> 8) & 0xff,
		 (aer >> 16) & 0xff);
	ctrlr->unread[ctrlr->num_unread++] = aer;
	unread_logs_request(ctrlr);
	aers_submit(ctrlr);
}

void nvme_ctrlr_start_aers(struct nvme_ctrlr *ctrlr)
{
	ctrlr->aers_wanted = (uint8_t)(ctrlr->id.aerl + 1u < NVME_AER_MAX ? ctrlr->id.aerl + 1u : NVME_AER_MAX);
	aers_submit(ctrlr);
}

void nvme_ctrlr_retry_events(struct nvme_ctrlr *ctrlr)
{
	unread_logs_request(ctrlr);
	aers_submit(ctrlr);
	rescan_if_due(ctrlr);
	if (ctrlr->ana_due) {
		nvme_ctrlr_read_ana(ctrlr);
	}
}

/* Keep Alive (Base 3.9): sent at half of the time that the controller allows. */

static void keep_alive_done(void *arg, const struct nvme_cqe *cqe)
{
	struct nvme_ctrlr *ctrlr = arg;

	ctrlr->keep_alive_outstanding = false;
	if (!ctrlr->in_failure && nvme_cqe_status(cqe) != 0) {
		nvme_ctrlr_lost(ctrlr, "Keep Alive failed: %s", nvme_status_text(nvme_cqe_status(cqe)));
	}
}

static void keep_alive_due(void *arg)
{
	struct nvme_ctrlr *ctrlr = arg;
	struct nvme_sqe cmd = {.opcode = nvme_admin_keep_alive};
	uint64_t turn_us = ctrlr->opts.keep_alive_ms * UINT64_C(500);

	/* This process was absent: the answer may have come meanwhile, or the controller was absent too and answers
	 * now. */
	if (ctrlr->keep_alive_outstanding && thread_timer_was_absent(&ctrlr->keep_alive_timer, turn_us)) {
		thread_timer_start(&ctrlr->keep_alive_timer, turn_us);
		return;
	}
	if (ctrlr->keep_alive_outstanding) {
		nvme_ctrlr_lost(ctrlr, "no answer to Keep Alive within %u ms", ctrlr->opts.keep_alive_ms / 2);
		return;
	}
	int rc = nvme_ctrlr_admin(ctrlr, &cmd, NULL, 0, false, keep_alive_done, ctrlr);
	if (rc == -ENXIO) {
		nvme_ctrlr_lost(ctrlr, "the admin queue is gone");
		return;
	}
	/* if the queue is full, that is traffic enough: Keep Alive is sent at the next turn */
	ctrlr->keep_alive_outstanding = rc == 0;
	thread_timer_start(&ctrlr->keep_alive_timer, turn_us);
}

void nvme_ctrlr_start_keep_alive(struct nvme_ctrlr *ctrlr)
{
	if (ctrlr->opts.keep_alive_ms == 0 || !ctrlr->ops->transport.fabrics) { /* a local drive has no use for it */
		return;
	}
	ctrlr->keep_alive_timer.fn = keep_alive_due;
	ctrlr->keep_alive_timer.arg = ctrlr;
	thread_timer_start(&ctrlr->keep_alive_timer, ctrlr->opts.keep_alive_ms * UINT64_C(500));
}

void nvme_ctrlr_stop_admin(struct nvme_ctrlr *ctrlr)
{
	thread_timer_stop(&ctrlr->keep_alive_timer);
	thread_timer_stop(&ctrlr->watch_timer);
	ctrlr->keep_alive_outstanding = false;
}
