/* SPDX-License-Identifier: BSD-3-Clause */
/* Abort (Base 5.1). The control thread finds the queue pair, its group finds the command and aborts it wherever it is,
 * and the control thread answers. Dword 0 of the completion is 0 if the command was aborted, 1 if not. */
#include "nvmf/command_internal.h"
#include "nvmf/internal.h"

enum { ABORTED = 0, NOT_ABORTED = 1 };

static void abort_answer_on_control(struct thread_msg *msg)
{
	struct nvmf_request *req = container_of(msg, struct nvmf_request, msg);

	nvmf_request_ctrlr(req)->num_aborts--;
	nvmf_request_answer(req, NVME_ST_SUCCESS);
}

/* ---- On the group of the command ---- */

static void abort_send_result(struct nvmf_request *abort, uint32_t result)
{
	abort->cqe.dw0 = htole32(result);
	thread_post(thread_control(), &abort->msg, abort_answer_on_control);
}

/* The bdev has carried out the abort. The aborted command completes, or has completed, separately. */
static void abort_bdev_done(struct bdev_io *io, void *arg)
{
	struct nvmf_request *abort = arg;
	bool aborted = io->status == NVME_ST_SUCCESS && io->cdw0 == ABORTED;

	nvmf_ns_view_leave(abort);
	abort_send_result(abort, aborted ? ABORTED : NOT_ABORTED);
}

/* An Abort command has no I/O of its own, so its bdev_io is free for this. */
void nvmf_abort_in_bdev(struct nvmf_request *abort, struct nvmf_request *victim, bdev_io_cb done, void *arg)
{
	struct nvmf_request *holder = nvmf_request_io_owner(victim);
	struct nvmf_ns_view *nsv = holder->ns_view;

	nvmf_ns_view_enter(nsv, abort);
	bdev_io_init(&abort->bdev_io, nsv->desc, nsv->ch, done, arg);
	bdev_io_set_rw(&abort->bdev_io, BDEV_IO_ABORT, NULL, 0, 0, 0);
	abort->bdev_io.abort.target = &holder->bdev_io;
	bdev_submit(&abort->bdev_io);
}

static void abort_victim(struct nvmf_request *abort, struct nvmf_request *victim)
{
	const struct nvmf_transport_ops *ops = victim->qpair->transport->ops;

	switch (victim->where) {
	case NVMF_REQUEST_PAUSED:
		nvmf_view_unwait(victim);
		nvmf_request_finish(victim, NVME_ST(GENERIC, ABORT_REQ));
		abort_send_result(abort, ABORTED);
		break;
	case NVMF_REQUEST_LIMITED:
		nvmf_qos_unwait(victim);
		nvmf_request_finish(victim, NVME_ST(GENERIC, ABORT_REQ));
		abort_send_result(abort, ABORTED);
		break;
	case NVMF_REQUEST_FUSED:
		nvmf_request_finish(victim, NVME_ST(GENERIC, ABORT_REQ));
		abort_send_result(abort, ABORTED);
		break;
	case NVMF_REQUEST_BDEV:
	case NVMF_REQUEST_PREEMPTED: /* once more does no harm */
		nvmf_abort_in_bdev(abort, victim, abort_bdev_done, abort);
		break;
	case NVMF_REQUEST_TRANSPORT:
		abort_send_result(abort,
				  ops->request_abort(victim, NVME_ST(GENERIC, ABORT_REQ)) ? ABORTED : NOT_ABORTED);
		break;
	default: /* on the control thread: it ends before the control thread would receive a message */
		abort_send_result(abort, NOT_ABORTED);
		break;
	}
}

/* Its response is on the way, or has arrived: the host may have used the command's identifier again. */
static bool is_answered(const struct nvmf_request *req)
{
	const struct nvmf_transport_state *state =
		nvmf_transport_ops_state(req->qpair->transport->ops, nvmf_request_state_number(req));

	return state != NULL && state->class == NVMF_CLASS_COMPLETES;
}

/* One that is answered is found if there is no other. */
static struct nvmf_request *abort_find_victim(struct nvmf_qpair *qpair, const struct nvmf_request *abort, uint16_t cid)
{
	struct nvmf_request *answered = NULL;

	for (struct nvmf_request *req = nvmf_qpair_next_request(qpair, NULL); req != NULL;
	     req = nvmf_qpair_next_request(qpair, req)) {
		if (req == abort || nvmf_request_cid(req) != cid) {
			continue;
		}
		if (!is_answered(req)) {
			return req;
		}
		answered = req;
	}
	return answered;
}

static void abort_run_on_group(struct thread_msg *msg)
{
	struct nvmf_request *abort = container_of(msg, struct nvmf_request, msg);
	struct nvmf_qpair *qpair = abort->abort_qpair;
	struct nvmf_abort cmd;

	nvmf_decode_abort(abort->sqe, &cmd);
	struct nvmf_request *victim =
		qpair->state != NVMF_QPAIR_CLOSED ? abort_find_victim(qpair, abort, cmd.cid) : NULL;
	if (victim == NULL) {
		abort_send_result(abort, NOT_ABORTED);
	} else {
		abort_victim(abort, victim);
	}
}

/* ---- On the control thread ---- */

static struct nvmf_qpair *abort_find_qpair(const struct nvmf_ctrlr *ctrlr, uint16_t qid)
{
	struct nvmf_qpair *qpair;

	TAILQ_FOREACH (qpair, &ctrlr->qpairs, ctrlr_link) {
		if (qpair->ctl_qid == qid) {
			return qpair;
		}
	}
	return NULL;
}

void nvmf_abort_run(struct nvmf_request *req)
{
	struct nvmf_ctrlr *ctrlr = nvmf_request_ctrlr(req);
	struct nvmf_abort cmd;

	nvmf_decode_abort(req->sqe, &cmd);
	struct nvmf_qpair *qpair = abort_find_qpair(ctrlr, cmd.sqid);
	if (qpair == NULL) { /* it has ended, perhaps just before the host has learned of it */
		req->cqe.dw0 = htole32(NOT_ABORTED);
		nvmf_request_answer(req, NVME_ST_SUCCESS);
		return;
	}
	if (ctrlr->num_aborts == NVMF_ABORT_MAX) {
		nvmf_request_answer_at(req, NVME_ST_DNR(CMD_SPECIFIC, ABORT_LIMIT), NVMF_WHERE_OPCODE);
		return;
	}
	if (cmd.sqid == 0 && nvmf_event_abort(ctrlr, cmd.cid)) {
		req->cqe.dw0 = htole32(ABORTED);
		nvmf_request_answer(req, NVME_ST_SUCCESS);
		return;
	}
	ctrlr->num_aborts++;
	req->abort_qpair = qpair;
	thread_post(qpair->group->thread, &req->msg, abort_run_on_group);
}
