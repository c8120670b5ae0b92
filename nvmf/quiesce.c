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
#include "nvmf/internal.h"

LOG_FLAG(nvmf)

#define FIRST_LOOK_US UINT64_C(1000)
#define LAST_LOOK_US  UINT64_C(64000) /* the time between two looks doubles up to this */
/* How long a host has for taking its answers when nothing is being carried out any more. */
#define ANSWER_US UINT64_C(1000000)

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
	case NVMF_REQUEST_CONTROL:
	case NVMF_REQUEST_HELD:
	case NVMF_REQUEST_WHERES:
		break;
	case NVMF_REQUEST_FUSED:
		nvmf_request_finish(req, status);
		break;
	case NVMF_REQUEST_BDEV:
	case NVMF_REQUEST_PREEMPTED:
		if (req->fuse != NVME_FUSE_FIRST || req->fuse_peer == NULL) {
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
	qpair->fused_first = NULL;
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

/* Whether its commands have ended and been answered. A host that does not take its answers is not waited for. */
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
	}
	return env_ticks() - qpair->answering_ticks > env_us_to_ticks(ANSWER_US);
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
