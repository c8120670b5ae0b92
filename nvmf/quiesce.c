/* SPDX-License-Identifier: BSD-3-Clause */
/* What becomes of a queue pair's commands when it ends. Those that have begun, because a block device has them or the
 * control thread carries them out, end as usual. All others are taken back, and nothing of them is carried out later.
 *
 * If the target ends the queue pair, it is QUIESCING meanwhile: each command is answered, those that were taken back or
 * arrive now with a path error, so that the host may submit them on another path. Only when nothing is left are the
 * queue pairs of the controller disconnected, all together (ctrlr.c). If the connection is gone, it is DISCONNECTING at
 * once, and there are no answers.
 *
 * A command may be held back again after it was with a module, so commands are taken back repeatedly, by a timer. */
#include <inttypes.h>
#include <stdio.h>
#include "nvmf/internal.h"

LOG_FLAG(nvmf)

#define FIRST_LOOK_US UINT64_C(1000)
#define LAST_LOOK_US  UINT64_C(64000) /* the time between two looks doubles up to this */
/* How long a host has for taking its answers when nothing is being carried out any more. One that sends on takes them,
 * but may never come to an end: it may submit again at once what has been answered with a path error. */
#define ANSWER_US         UINT64_C(1000000)
#define ANSWER_SENDING_US UINT64_C(50000)

/* ---- Taking back ---- */

uint16_t nvmf_qpair_end_status(const struct nvmf_qpair *qpair)
{
	return qpair->state == NVMF_QPAIR_QUIESCING ? NVME_ST(PATH, CTRL_PATH_ERROR) : NVME_ST(GENERIC, ABORT_QUEUE);
}

/* Of a fused pair the second command has the bdev I/O. */
static void request_take_back(struct nvmf_request *req, uint16_t status)
{
	const struct nvmf_qpair *qpair = req->qpair;

	switch ((enum nvmf_request_where)req->where) {
	case NVMF_REQUEST_PAUSED: /* nvmf_view_purge() */
	case NVMF_REQUEST_LIMITED:
	case NVMF_REQUEST_CONTROL:
	case NVMF_REQUEST_HELD:
	case NVMF_REQUEST_WHERES:
		break;
	case NVMF_REQUEST_FUSED:
		nvmf_request_finish(req, status);
		break;
	case NVMF_REQUEST_BDEV:
	case NVMF_REQUEST_PREEMPTED:
		if (nvmf_request_io_owner(req) == req) {
			bdev_io_take_back(&req->bdev_io);
		}
		break;
	case NVMF_REQUEST_TRANSPORT:
		if (qpair->state == NVMF_QPAIR_QUIESCING) { /* otherwise ops->qpair_close() has ended it */
			qpair->transport->ops->request_abort(req, status);
		}
		break;
	}
}

/* The end of one command may end others, also those behind it in the array. */
static void qpair_take_back(struct nvmf_qpair *qpair)
{
	uint16_t status = nvmf_qpair_end_status(qpair);
	struct nvmf_request *req;

	if (qpair->view != NULL) {
		nvmf_view_purge(qpair->view, qpair, status);
	}
	if (qpair->state != NVMF_QPAIR_QUIESCING) { /* otherwise the second of a pair gets the answer of its first */
		qpair->fused_first = NULL;
	}
	for (req = nvmf_qpair_next_request(qpair, NULL); req != NULL; req = nvmf_qpair_next_request(qpair, req)) {
		request_take_back(req, status);
	}
}

/* ---- Watching what has begun ---- */

/* Whether a command is with a block device, or with the control thread. */
static bool qpair_carries_out(const struct nvmf_qpair *qpair)
{
	const struct nvmf_request *req = nvmf_qpair_next_request(qpair, NULL);

	while (req != NULL && req->where == NVMF_REQUEST_TRANSPORT) {
		req = nvmf_qpair_next_request(qpair, req);
	}
	return req != NULL;
}

/* Whether its commands have ended and been answered. A host is not waited for without end. */
static bool qpair_is_quiesced(struct nvmf_qpair *qpair)
{
	if (qpair->transport->ops->qpair_is_idle(qpair)) {
		return true;
	}
	if (qpair_carries_out(qpair)) {
		qpair->answering_ticks = 0;
		return false;
	}
	if (qpair->answering_ticks == 0) {
		qpair->answering_ticks = env_ticks();
		qpair->answering_sq_head = qpair->sq_head;
	}
	bool sends = qpair->sq_head != qpair->answering_sq_head;
	return env_ticks() - qpair->answering_ticks > env_us_to_ticks(sends ? ANSWER_SENDING_US : ANSWER_US);
}

static void qpair_quiesced_on_control(struct thread_msg *msg)
{
	nvmf_ctrlr_qpair_quiesced(container_of(msg, struct nvmf_qpair, quiesced_msg));
}

static void qpair_look(void *arg)
{
	struct nvmf_qpair *qpair = arg;

	qpair_take_back(qpair);
	if (qpair->state == NVMF_QPAIR_QUIESCING && qpair_is_quiesced(qpair)) {
		log_debug(nvmf, "queue pair %u of %s: quiesced", qpair->qid, qpair->hostnqn);
		thread_post(thread_control(), &qpair->quiesced_msg, qpair_quiesced_on_control);
	} else if (qpair->state != NVMF_QPAIR_CLOSED) {
		thread_timer_start(&qpair->end_timer, qpair->look_us);
		qpair->look_us = qpair->look_us < LAST_LOOK_US ? 2 * qpair->look_us : LAST_LOOK_US;
	}
}

void nvmf_qpair_begin_end(struct nvmf_qpair *qpair)
{
	thread_timer_stop(&qpair->end_timer);
	qpair->end_timer.fn = qpair_look;
	qpair->end_timer.arg = qpair;
	qpair->look_us = FIRST_LOOK_US;
	qpair_look(qpair);
}

/* ---- What does not end in time: control thread ---- */

#define REPORT_AGAIN_US UINT64_C(60000000)

struct late_call {
	const struct nvmf_qpair *qpair;
	struct nvmf_inflight oldest;
	unsigned n; /* commands, without those that wait for an event */
};

static void qpair_find_oldest_on_group(void *arg)
{
	struct late_call *call = arg;
	struct nvmf_request *oldest = NULL, *req;

	for (req = nvmf_qpair_next_request(call->qpair, NULL); req != NULL;
	     req = nvmf_qpair_next_request(call->qpair, req)) {
		if (req->where != NVMF_REQUEST_HELD) {
			call->n++;
			oldest = oldest == NULL || req->start_ticks < oldest->start_ticks ? req : oldest;
		}
	}
	if (oldest != NULL) {
		nvmf_request_describe(oldest, &call->oldest);
	}
}

static void late_call_describe(const struct late_call *call, char *text, size_t size)
{
	const struct nvmf_inflight *o = &call->oldest;

	if (call->n == 0) {
		snprintf(text, size, "no command is left, but the transport has not ended the connection");
		return;
	}
	int n = snprintf(text, size, "%s (cid %u, nsid %u", o->command != NULL ? o->command : "a command", o->cid,
			 o->nsid);
	if (o->num_blocks != 0) {
		n += snprintf(text + n, size - (size_t)n, ", LBA %" PRIu64 ", %u blocks", o->slba, o->num_blocks);
	}
	snprintf(text + n, size - (size_t)n,
		 ") has been under way for %" PRIu64 " s, state %s, waits for: %s%s%s; %u commands in all",
		 env_ticks_to_ns(o->age_ticks) / 1000000000, o->state, o->waits_for != NULL ? o->waits_for : "nothing",
		 o->bdev[0] != 0 ? " of bdev " : "", o->bdev, call->n);
}

static void qpair_end_is_late(void *arg)
{
	struct nvmf_qpair *qpair = arg;
	const struct nvmf_ctrlr *ctrlr = qpair->ctl_ctrlr;
	struct late_call call = {.qpair = qpair};
	char text[400];

	thread_timer_start(&qpair->late_timer, REPORT_AGAIN_US);
	if (qpair->quiesced && !qpair->disconnect_posted) {
		return; /* it waits for others of its controller, which are reported */
	}
	thread_call(qpair->group->thread, qpair_find_oldest_on_group, &call);
	late_call_describe(&call, text, sizeof(text));
	TRACE(NVMF_QPAIR_LATE, qpair->trace_owner, 0, (uintptr_t)call.oldest.object, qpair->ctl_qid, call.oldest.nsid,
	      call.oldest.slba, call.oldest.num_blocks, env_ticks_to_ns(call.oldest.age_ticks) / 1000000);
	log_limited(LOG_LEVEL_WARNING,
		    "queue pair %u of controller %u of %s, host %s, is being ended (%s), but not all has ended: %s. "
		    "Nothing of it "
		    "is freed before that, and its host may wait for it",
		    qpair->ctl_qid, ctrlr->cntlid, ctrlr->subsystem->nqn, ctrlr->hostnqn, qpair->why, text);
	nvmf_notice(NVMF_NOTICE_QUIESCE_LATE, text, "%s %s %u %u", ctrlr->subsystem->nqn, ctrlr->hostnqn, ctrlr->cntlid,
		    qpair->ctl_qid);
}

void nvmf_qpair_watch_end(struct nvmf_qpair *qpair)
{
	if (qpair->linked) {
		qpair->late_timer = (struct thread_timer){.fn = qpair_end_is_late, .arg = qpair};
		thread_timer_start(&qpair->late_timer, qpair->group->tgt->quiesce_limit_ms * UINT64_C(1000));
	}
}
