/* SPDX-License-Identifier: BSD-3-Clause */
/* Commands without an answer, and queue pairs that have failed: the using thread finds them, and the control thread
 * acts on them.
 *
 * A command that has had no answer for io_timeout_ms is aborted by an Abort command. If it still has none after as long
 * again, its queue pair is broken and the controller is reset: then all outstanding commands are completed, with a
 * status. */
#include "nvme/internal.h"

#include <errno.h>
#include <stdlib.h>

#include "env_dpdk/env.h"
#include "util/log.h"

#define LOOK_MIN_US   UINT64_C(10000)
#define LOOK_MAX_US   UINT64_C(1000000)
#define FORMAT_NVM_OP 0x80 /* has no time limit */

/* The steps that have been taken for a command without an answer. It must be found late twice before anything is done:
 * a thread that was absent reads the answers that it has missed in between. */
enum nvme_late { LATE_NOT, LATE_SEEN, LATE_ABORTED };

bool nvme_request_was_late(const struct nvme_request *req)
{
	return req->late == LATE_ABORTED;
}

/* Four looks per time limit: precise enough, and rare. */
static uint64_t look_interval_us(uint32_t limit_ms)
{
	uint64_t us = limit_ms * UINT64_C(250);

	return us < LOOK_MIN_US ? LOOK_MIN_US : us > LOOK_MAX_US ? LOOK_MAX_US : us;
}

/* The using thread. */

static bool alarm_is_free(struct nvme_qpair *qpair)
{
	/* pairs with alarm_received() */
	return qpair->alarm != NULL && !__atomic_load_n(&qpair->alarm->posted, __ATOMIC_ACQUIRE);
}

static void alarm_received(struct thread_msg *msg);

static void alarm_post(struct nvme_qpair_alarm *a)
{
	__atomic_store_n(&a->posted, true, __ATOMIC_RELAXED);
	thread_post(thread_control(), &a->msg, alarm_received);
}

void nvme_qpair_report(struct nvme_qpair *qpair)
{
	if (qpair->reported || !qpair->created || !alarm_is_free(qpair)) {
		return;
	}
	qpair->reported = true;
	qpair->alarm->broken = true;
	qpair->alarm->why = qpair->why != NULL ? qpair->why : "its connection is lost";
	alarm_post(qpair->alarm);
}

/* The controller had as many Aborts as it takes (Identify Controller ACL): the command whose Abort was not sent is as
 * late as before it was reported. */
static void alarm_take_back(struct nvme_qpair *qpair)
{
	if (alarm_is_free(qpair) && qpair->alarm->not_aborted) {
		struct nvme_request *req = nvme_qpair_request(qpair, qpair->alarm->cid);

		if (req != NULL && req->late == LATE_ABORTED) {
			req->late = LATE_SEEN;
		}
		qpair->alarm->not_aborted = false;
	}
}

static void abort_request(struct nvme_qpair *qpair, struct nvme_request *req, uint64_t now)
{
	if (alarm_is_free(qpair)) { /* else it is aborted at the next look */
		req->late = LATE_ABORTED;
		req->abort_ticks = now;
		qpair->alarm->broken = false;
		qpair->alarm->cid = le16toh(req->cmd.cid);
		qpair->alarm->opcode = req->cmd.opcode;
		alarm_post(qpair->alarm);
	}
}

static void late_check_request(struct nvme_qpair *qpair, struct nvme_request *req, uint64_t now, uint64_t limit)
{
	uint64_t since = req->late == LATE_ABORTED ? req->abort_ticks : req->submitted_ticks;

	if (now < since || now - since <= limit) {
		return;
	}
	switch (req->late) {
	case LATE_NOT:
		req->late = LATE_SEEN;
		break;
	case LATE_SEEN:
		if (qpair->ctrlr->opts.io_timeout_resets) {
			nvme_qpair_break(qpair, "a command had no answer");
		} else {
			abort_request(qpair, req, now);
		}
		break;
	default:
		nvme_qpair_break(qpair, "a command had no answer, neither to itself nor to its Abort");
		break;
	}
}

static void qpair_watch_due(void *arg)
{
	struct nvme_qpair *qpair = arg;
	uint64_t now = env_ticks(), limit = env_us_to_ticks(qpair->ctrlr->opts.io_timeout_ms * UINT64_C(1000));

	if (nvme_qpair_outstanding(qpair) == 0 || (qpair->failed && qpair->reported)) {
		qpair->watched = qpair->failed; /* the next submission starts the timer again */
		return;
	}
	alarm_take_back(qpair);
	for (uint16_t slot = 0; slot < qpair->entries && !qpair->failed; slot++) {
		struct nvme_request *req = qpair->by_slot[slot];

		if (req != NULL) {
			late_check_request(qpair, req, now, limit);
		}
	}
	if (qpair->failed) {
		nvme_qpair_report(qpair);
	}
	thread_timer_start(&qpair->watch_timer, look_interval_us(qpair->ctrlr->opts.io_timeout_ms));
}

void nvme_qpair_watch(struct nvme_qpair *qpair)
{
	qpair->watched = true;
	qpair->watch_timer.fn = qpair_watch_due;
	qpair->watch_timer.arg = qpair;
	thread_timer_start(&qpair->watch_timer, look_interval_us(qpair->ctrlr->opts.io_timeout_ms));
}

void nvme_qpair_unwatch(struct nvme_qpair *qpair)
{
	thread_timer_stop(&qpair->watch_timer);
	qpair->watched = true;
}

/* The control thread. */

int nvme_qpair_alarm_init(struct nvme_qpair *qpair)
{
	qpair->alarm = calloc(1, sizeof(*qpair->alarm));
	if (qpair->alarm == NULL) {
		return -ENOMEM;
	}
	qpair->alarm->qpair = qpair;
	return 0;
}

/* A message that is under way is freed when it arrives. */
void nvme_qpair_alarm_fini(struct nvme_qpair *qpair)
{
	struct nvme_qpair_alarm *a = qpair->alarm;

	qpair->alarm = NULL;
	if (a != NULL && __atomic_load_n(&a->posted, __ATOMIC_ACQUIRE)) {
		a->qpair = NULL;
	} else {
		free(a);
	}
}

static void late_abort_done(void *arg, const struct nvme_cqe *cqe)
{
	struct nvme_ctrlr *ctrlr = arg;

	ctrlr->aborts--; /* the result does not matter: either the command is completed, or it reaches the second limit
			  */
}

/* False: it could not be sent, because of the Abort limit or for want of a free command. */
static bool late_command_abort(struct nvme_ctrlr *ctrlr, const struct nvme_qpair_alarm *a)
{
	struct nvme_sqe cmd = {.opcode = nvme_admin_abort_cmd, .cdw10 = htole32(a->qpair->id | (uint32_t)a->cid << 16)};

	if (ctrlr->aborts > ctrlr->id.acl ||
	    nvme_ctrlr_admin(ctrlr, &cmd, NULL, 0, false, late_abort_done, ctrlr) != 0) {
		return false;
	}
	ctrlr->aborts++;
	log_warning("%s: queue pair %u: command %u (opcode 0x%02x) has had no answer for %u ms: it is aborted",
		    ctrlr->trid.traddr, a->qpair->id, a->cid, a->opcode, ctrlr->opts.io_timeout_ms);
	return true;
}

static void alarm_received(struct thread_msg *msg)
{
	struct nvme_qpair_alarm *a = container_of(msg, struct nvme_qpair_alarm, msg);

	if (a->qpair == NULL) {
		free(a);
		return;
	}
	struct nvme_ctrlr *ctrlr = a->qpair->ctrlr;
	/* otherwise the controller or the queue pair is being ended already */
	bool in_use = ctrlr->state == NVME_CTRLR_READY && !ctrlr->in_failure && !a->qpair->stopping;
	if (in_use && a->broken) {
		nvme_ctrlr_lost(ctrlr, "queue pair %u: %s", a->qpair->id, a->why);
	} else if (in_use) {
		a->not_aborted = !late_command_abort(ctrlr, a);
	}
	__atomic_store_n(&a->posted, false, __ATOMIC_RELEASE); /* pairs with alarm_is_free() */
}

static bool admin_command_has_no_limit(const struct nvme_request *req)
{
	return req->cmd.opcode == nvme_admin_async_event || req->cmd.opcode == FORMAT_NVM_OP;
}

static void admin_queue_check_late(struct nvme_ctrlr *ctrlr)
{
	const struct nvme_qpair *q = ctrlr->admin;
	uint64_t now = env_ticks(), limit = env_us_to_ticks(ctrlr->opts.admin_timeout_ms * UINT64_C(1000));

	for (uint16_t slot = 0; slot < q->entries; slot++) {
		const struct nvme_request *req = q->by_slot[slot];

		if (req != NULL && !admin_command_has_no_limit(req) && now > req->submitted_ticks &&
		    now - req->submitted_ticks > limit) {
			nvme_ctrlr_lost(ctrlr, "admin command with opcode 0x%02x: no answer within %u ms",
					req->cmd.opcode, ctrlr->opts.admin_timeout_ms);
			return;
		}
	}
}

static void ctrlr_watch_due(void *arg)
{
	struct nvme_ctrlr *ctrlr = arg;
	uint64_t period_us = look_interval_us(ctrlr->opts.admin_timeout_ms);

	if (ctrlr->in_failure || ctrlr->admin == NULL || ctrlr->state != NVME_CTRLR_READY) {
		return;
	}
	if (ctrlr->ops->check != NULL) {
		ctrlr->ops->check(ctrlr);
	}
	/* If this thread was absent, the answers that it has missed are read first. */
	if (!ctrlr->in_failure && !thread_timer_was_absent(&ctrlr->watch_timer, THREAD_ABSENT_PART * period_us)) {
		admin_queue_check_late(ctrlr);
	}
	if (!ctrlr->in_failure) {
		nvme_ctrlr_retry_events(ctrlr);
	}
	thread_timer_start(&ctrlr->watch_timer, period_us);
}

void nvme_ctrlr_start_watch(struct nvme_ctrlr *ctrlr)
{
	ctrlr->watch_timer.fn = ctrlr_watch_due;
	ctrlr->watch_timer.arg = ctrlr;
	thread_timer_start(&ctrlr->watch_timer, look_interval_us(ctrlr->opts.admin_timeout_ms));
}
