/* SPDX-License-Identifier: BSD-3-Clause */
/* Reservation commands of hosts. They arrive as I/O commands and are carried out on the control thread, one after the
 * other for each namespace. A command ends after its change is in every group's view, and on the disk if it has to
 * survive a restart. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "nvmf/command_internal.h"
#include "nvmf/internal.h"

/* The reservations of a namespace; made for its first reservation command. */
struct nvmf_ns_resv {
	struct nvmf_ns *ns; /* NULL: it was removed; this is freed after the command under way */
	struct nvmf_resv state;
	struct nvmf_resv *published; /* the copy that groups read; NULL: not reserved */
	STAILQ_HEAD(, nvmf_request) waiting;
	bool draining_list;
	/* The command under way, the state that it will lead to, and the hosts to be notified. */
	struct nvmf_request *running;
	bool aborts;
	struct nvmf_resv next;
	struct nvmf_resv *next_published;
	struct nvmf_resv_notices notices;
	/* Of a Preempt and Abort. */
	struct nvmf_preempt preempt;
	bool aborting, drained;
	int drain_status;
};

static struct nvmf_ns_resv *resv_ns_get(struct nvmf_ns *ns)
{
	if (ns->resv == NULL) {
		ns->resv = calloc(1, sizeof(*ns->resv));
		if (ns->resv != NULL) {
			ns->resv->ns = ns;
			STAILQ_INIT(&ns->resv->waiting);
		}
	}
	return ns->resv;
}

const struct nvmf_resv *nvmf_ns_resv_state(const struct nvmf_ns *ns)
{
	static const struct nvmf_resv nothing;

	return ns->resv != NULL ? &ns->resv->state : &nothing;
}

const struct nvmf_resv *nvmf_ns_resv_published(const struct nvmf_ns *ns)
{
	return ns->resv != NULL ? ns->resv->published : NULL;
}

/* ---- Notices ---- */

static bool resv_notice_is_masked(const struct nvmf_ctrlr *ctrlr, uint32_t nsid, uint8_t what)
{
	return ctrlr->resv_mask != NULL && (ctrlr->resv_mask[nsid - 1] >> what & 1) != 0;
}

/* If there is no room, the oldest notice is dropped; the host notices by the count. */
static void resv_queue_notice(struct nvmf_ctrlr *ctrlr, uint32_t nsid, uint8_t what)
{
	struct nvmf_resv_log *log = &ctrlr->resv_log;

	if (resv_notice_is_masked(ctrlr, nsid, what) || !nvmf_ctrlr_sees(ctrlr, nsid)) {
		return;
	}
	log->count++;
	if (log->num == NVMF_RESV_LOG_SIZE) {
		log->num--;
	}
	log->entries[log->count % NVMF_RESV_LOG_SIZE].nsid = nsid;
	log->entries[log->count % NVMF_RESV_LOG_SIZE].what = what;
	log->num++;
	nvmf_event_raise(ctrlr, NVMF_EVENT_RESERVATION);
}

static void resv_notify_hosts(struct nvmf_ns *ns, const struct nvmf_resv_notices *notices)
{
	struct nvmf_ctrlr *ctrlr;

	TAILQ_FOREACH (ctrlr, &ns->subsystem->ctrlrs, link) {
		for (unsigned i = 0; i < notices->num; i++) {
			if (memcmp(ctrlr->hostid, notices->hosts[i].hostid, NVMF_HOSTID_SIZE) == 0) {
				resv_queue_notice(ctrlr, ns->nsid, notices->hosts[i].what);
			}
		}
	}
}

uint64_t nvmf_resv_log(const struct nvmf_ctrlr *ctrlr, struct nvmf_window *w)
{
	const struct nvmf_resv_log *log = &ctrlr->resv_log;
	struct nvme_resv_notification_log page = {0};

	if (log->num != 0) {
		uint64_t oldest = log->count - log->num + 1;
		page.lpc = htole64(oldest);
		page.rnlpt = log->entries[oldest % NVMF_RESV_LOG_SIZE].what;
		page.nalp = (uint8_t)(log->num - 1);
		page.nsid = htole32(log->entries[oldest % NVMF_RESV_LOG_SIZE].nsid);
	}
	nvmf_window_put(w, 0, &page, sizeof(page));
	return sizeof(page);
}

void nvmf_resv_log_pop(struct nvmf_ctrlr *ctrlr)
{
	if (ctrlr->resv_log.num != 0 && --ctrlr->resv_log.num != 0) {
		nvmf_event_raise(ctrlr, NVMF_EVENT_RESERVATION); /* there are more */
	}
}

/* ---- A command's end ---- */

static void resv_ns_run_waiting(struct nvmf_ns_resv *rn);

/* Set Features, Reservation Persistence of all namespaces, one after the other. Each continues from the event loop, so
 * that the stack does not grow with their number. */
static void resv_persist_next(struct thread_msg *msg)
{
	struct nvmf_request *req = container_of(msg, struct nvmf_request, msg);
	const struct nvmf_ctrlr *ctrlr = nvmf_request_ctrlr(req);

	while (req->persist_nsid < ctrlr->subsystem->max_nsid) {
		struct nvmf_ns *ns = nvmf_ns_find(ctrlr->subsystem, ++req->persist_nsid);
		if (ns != NULL && ns->ptpl_file != NULL && nvmf_ctrlr_sees(ctrlr, ns->nsid) &&
		    nvmf_ana_status(nvmf_ana_of(ctrlr, ns)) == NVME_ST_SUCCESS) {
			nvmf_resv_persist(req, ns);
			return;
		}
	}
	nvmf_request_answer(req, NVME_ST_SUCCESS);
}

void nvmf_resv_persist_all(struct nvmf_request *req)
{
	req->persist_nsid = 0;
	resv_persist_next(&req->msg);
}

static bool resv_request_is_of_all_ns(const struct nvmf_request *req)
{
	return req->qpair->ctl_qid == 0 && le32toh(req->sqe->nsid) == NVME_NSID_ALL;
}

static void resv_ns_answer(struct nvmf_request *req, uint16_t status, uint16_t where)
{
	if (!resv_request_is_of_all_ns(req)) {
		nvmf_request_answer_at(req, status, where);
	} else if (status == NVME_ST_SUCCESS || status == NVME_ST_DNR(GENERIC, INVALID_NS)) {
		thread_post(thread_control(), &req->msg, resv_persist_next);
	} else {
		nvmf_request_answer_at(req, status, where);
	}
}

static void resv_ns_finish(struct nvmf_ns_resv *rn, uint16_t status, uint16_t where)
{
	struct nvmf_request *req = rn->running;

	rn->running = NULL;
	free(rn->next_published);
	rn->next_published = NULL;
	resv_ns_answer(req, status, where);
	resv_ns_run_waiting(rn);
}

static void resv_ns_publish(struct nvmf_ns_resv *rn)
{
	struct nvmf_resv *old = rn->published;

	rn->state = rn->next;
	rn->published = rn->next_published;
	rn->next_published = NULL;
	if (rn->ns->subsystem->views_open) {
		nvmf_views_update_ns(rn->ns->subsystem, rn->ns);
	}
	free(old); /* no group uses it any more */
	resv_notify_hosts(rn->ns, &rn->notices);
}

/* Whether the change has to be on the disk before the command ends. */
static bool resv_ns_is_persistent(const struct nvmf_ns_resv *rn)
{
	return rn->ns->ptpl_file != NULL && (rn->state.ptpl || rn->next.ptpl);
}

/* ---- Preempt and Abort: it ends after all commands of the preempted hosts have ended ---- */

static int resv_ns_publish_drained(struct nvmf_subsystem *s, struct nvmf_op *op)
{
	struct nvmf_ns_resv *rn = op->arg;

	if (rn->ns == NULL) {
		return -ENOENT;
	}
	resv_ns_publish(rn);
	return 0;
}

static void resv_ns_not_done(void *arg, int status)
{
	struct nvmf_ns_resv *rn = arg;

	if (rn->ns == NULL || rn->drain_status == -ENOENT) {
		resv_ns_finish(rn, NVME_ST_DNR(GENERIC, INVALID_NS), NVMF_WHERE_NSID);
	} else {
		resv_ns_finish(
			rn, rn->drain_status == -ETIMEDOUT ? NVME_ST(GENERIC, INTERNAL) : NVME_ST(GENERIC, ABORT_QUEUE),
			NVMF_WHERE_NOWHERE);
	}
}

/* When the aborts are over and the change is made or has failed. If it has failed, the file has to be written once
 * more, with the state that still holds. */
static void resv_ns_preempt_check(struct nvmf_ns_resv *rn)
{
	if (rn->aborting || !rn->drained) {
		return;
	}
	if (rn->drain_status == 0) {
		resv_ns_finish(rn, NVME_ST_SUCCESS, NVMF_WHERE_NOWHERE);
	} else if (rn->ns == NULL || !resv_ns_is_persistent(rn) ||
		   nvmf_resv_save(rn->ns->ptpl_file, rn->ns->opts.uuid, &rn->state, resv_ns_not_done, rn) != 0) {
		resv_ns_not_done(rn, 0);
	}
}

static void resv_ns_drained(void *arg, int status)
{
	struct nvmf_ns_resv *rn = arg;

	rn->drained = true;
	rn->drain_status = status;
	resv_ns_preempt_check(rn);
}

static void resv_ns_aborted(struct nvmf_preempt *p)
{
	struct nvmf_ns_resv *rn = container_of(p, struct nvmf_ns_resv, preempt);

	rn->aborting = false;
	resv_ns_preempt_check(rn);
}

static void resv_ns_draining(void *arg)
{
	struct nvmf_ns_resv *rn = arg;

	assert(rn->ns != NULL); /* the removal of a namespace ends the changes of it that are queued */
	rn->aborting = true;
	rn->preempt = (struct nvmf_preempt){.req = rn->running,
					    .subsystem = rn->ns->subsystem,
					    .nsid = rn->ns->nsid,
					    .notices = &rn->notices,
					    .done = resv_ns_aborted};
	nvmf_preempt_start(&rn->preempt);
}

/* ---- Carrying out ---- */

static void resv_ns_commit(struct nvmf_ns_resv *rn)
{
	if (rn->aborts && rn->notices.num != 0) {
		rn->drained = false;
		nvmf_subsystem_change_for_host(rn->ns->subsystem, rn->ns->nsid, resv_ns_publish_drained,
					       resv_ns_draining, resv_ns_drained, rn);
		return;
	}
	resv_ns_publish(rn);
	resv_ns_finish(rn, NVME_ST_SUCCESS, NVMF_WHERE_NOWHERE);
}

static void resv_ns_not_saved(void *arg, int status)
{
	struct nvmf_ns_resv *rn = arg;

	if (rn->ns == NULL) {
		resv_ns_finish(rn, NVME_ST_DNR(GENERIC, INVALID_NS), NVMF_WHERE_NSID);
	} else {
		resv_ns_finish(rn, NVME_ST(GENERIC, INTERNAL), NVMF_WHERE_NOWHERE);
	}
}

/* If the folder could not be synced, the file may contain the new state although saving it has failed: then the file is
 * written once more, with the state that still holds. */
static void resv_ns_saved(void *arg, int status)
{
	struct nvmf_ns_resv *rn = arg;

	if (rn->ns != NULL && status == 0) {
		resv_ns_commit(rn);
	} else if (rn->ns == NULL ||
		   nvmf_resv_save(rn->ns->ptpl_file, rn->ns->opts.uuid, &rn->state, resv_ns_not_saved, rn) != 0) {
		resv_ns_not_saved(rn, 0);
	}
}

static bool resv_ns_prepare_published(struct nvmf_ns_resv *rn)
{
	if (rn->next.type == 0) {
		return true;
	}
	rn->next_published = malloc(sizeof(rn->next));
	if (rn->next_published == NULL) {
		log_limited(LOG_LEVEL_ERROR, "out of memory for a reservation of namespace %u of %s", rn->ns->nsid,
			    rn->ns->subsystem->nqn);
		return false;
	}
	*rn->next_published = rn->next;
	return true;
}

/* Makes rn->next the state. */
static void resv_ns_apply(struct nvmf_ns_resv *rn)
{
	if (nvmf_resv_equal(&rn->next, &rn->state)) {
		rn->state = rn->next; /* the generation */
		resv_ns_finish(rn, NVME_ST_SUCCESS, NVMF_WHERE_NOWHERE);
		return;
	}
	if (!resv_ns_prepare_published(rn)) {
		resv_ns_finish(rn, NVME_ST(GENERIC, INTERNAL), NVMF_WHERE_NOWHERE);
		return;
	}
	if (!resv_ns_is_persistent(rn)) {
		resv_ns_commit(rn);
		return;
	}
	int rc = nvmf_resv_save(rn->ns->ptpl_file, rn->ns->opts.uuid, &rn->next, resv_ns_saved, rn);
	if (rc != 0) {
		log_limited(LOG_LEVEL_ERROR, "ptpl_file %s cannot be written: %s", rn->ns->ptpl_file, strerror(-rc));
		resv_ns_finish(rn, NVME_ST(GENERIC, INTERNAL), NVMF_WHERE_NOWHERE);
	}
}

static uint16_t resv_ns_run_register(struct nvmf_ns_resv *rn, uint16_t *where)
{
	const struct nvmf_ctrlr *ctrlr = nvmf_request_ctrlr(rn->running);
	uint8_t data[NVMF_RESV_REGISTER_DATA] = {0};
	struct nvmf_resv_register cmd;

	nvmf_request_copy_data(rn->running, data, sizeof(data));
	uint16_t status = nvmf_decode_resv_register(rn->running->sqe, data, &cmd, where);
	if (status == NVME_ST_SUCCESS && cmd.change_ptpl == NVME_RESERVATION_CPTPL_PERSIST &&
	    rn->ns->ptpl_file == NULL) {
		log_limited(LOG_LEVEL_WARNING,
			    "%s cannot register with namespace %u of %s: CPTPL is 3, which asks that the registration "
			    "survives a restart: the namespace has no ptpl_file (nvmf_subsystem_add_ns)",
			    ctrlr->hostnqn, rn->ns->nsid, rn->ns->subsystem->nqn);
		*where = NVMF_WHERE(43, 6);
		status = NVME_ST_DNR(GENERIC, INVALID_FIELD);
	}
	if (status == NVME_ST_SUCCESS) {
		status = nvmf_resv_register(&rn->next, ctrlr->hostid, &cmd, &rn->notices, where);
	}
	if (status == NVME_ST_DNR(GENERIC, INTERNAL)) {
		log_limited(LOG_LEVEL_WARNING,
			    "%s cannot register with namespace %u of %s: it has %d registrants already", ctrlr->hostnqn,
			    rn->ns->nsid, rn->ns->subsystem->nqn, NVMF_RESV_REGISTRANTS_MAX);
	}
	return status;
}

static uint16_t resv_ns_run_acquire(struct nvmf_ns_resv *rn, uint16_t *where)
{
	uint8_t data[NVMF_RESV_ACQUIRE_DATA] = {0};
	struct nvmf_resv_acquire cmd;

	nvmf_request_copy_data(rn->running, data, sizeof(data));
	uint16_t status = nvmf_decode_resv_acquire(rn->running->sqe, data, &cmd, where);
	if (status != NVME_ST_SUCCESS) {
		return status;
	}
	rn->aborts = cmd.action == NVME_RESERVATION_RACQA_PREEMPT_AND_ABORT;
	return nvmf_resv_acquire(&rn->next, nvmf_request_ctrlr(rn->running)->hostid, &cmd, &rn->notices, where);
}

static uint16_t resv_ns_run_release(struct nvmf_ns_resv *rn, uint16_t *where)
{
	uint8_t data[NVMF_RESV_RELEASE_DATA] = {0};
	struct nvmf_resv_release cmd;

	nvmf_request_copy_data(rn->running, data, sizeof(data));
	uint16_t status = nvmf_decode_resv_release(rn->running->sqe, data, &cmd, where);
	return status != NVME_ST_SUCCESS ? status
					 : nvmf_resv_release(&rn->next, nvmf_request_ctrlr(rn->running)->hostid, &cmd,
							     &rn->notices, where);
}

/* Set Features, Reservation Persistence (Base 5.27.1.27). */
static uint16_t resv_ns_run_persistence(struct nvmf_ns_resv *rn, uint16_t *where)
{
	rn->next.ptpl = (le32toh(rn->running->sqe->cdw11) & 1) != 0;
	rn->notices.num = 0;
	if (rn->next.ptpl && rn->ns->ptpl_file == NULL) {
		*where = NVMF_WHERE_CDW11;
		return NVME_ST_DNR(GENERIC, INVALID_FIELD);
	}
	return NVME_ST_SUCCESS;
}

static void resv_ns_run(struct nvmf_ns_resv *rn, struct nvmf_request *req)
{
	uint16_t where = NVMF_WHERE_NOWHERE, status;

	rn->running = req;
	rn->aborts = false;
	rn->next = rn->state;
	status = req->resv_change(rn, &where);
	if (status != NVME_ST_SUCCESS) {
		resv_ns_finish(rn, status, where);
	} else {
		resv_ns_apply(rn);
	}
}

/* Runs the waiting commands. resv_ns_finish() calls this too: a command that ends at once returns to this loop. */
static void resv_ns_run_waiting(struct nvmf_ns_resv *rn)
{
	if (rn->draining_list) {
		return;
	}
	rn->draining_list = true;
	while (rn->running == NULL && !STAILQ_EMPTY(&rn->waiting)) {
		struct nvmf_request *req = STAILQ_FIRST(&rn->waiting);
		STAILQ_REMOVE_HEAD(&rn->waiting, link);
		if (rn->ns == NULL) {
			resv_ns_answer(req, NVME_ST_DNR(GENERIC, INVALID_NS), NVMF_WHERE_NSID);
		} else {
			resv_ns_run(rn, req);
		}
	}
	rn->draining_list = false;
	if (rn->ns == NULL && rn->running == NULL) {
		free(rn);
	}
}

/* Queues a command. change: makes rn->next and rn->notices from it and returns its status. */
static void resv_ns_queue(struct nvmf_request *req, struct nvmf_ns *ns,
			  uint16_t (*change)(struct nvmf_ns_resv *rn, uint16_t *where))
{
	struct nvmf_ns_resv *rn = resv_ns_get(ns);

	if (rn == NULL) {
		resv_ns_answer(req, NVME_ST(GENERIC, INTERNAL), NVMF_WHERE_NOWHERE);
		return;
	}
	req->resv_change = change;
	STAILQ_INSERT_TAIL(&rn->waiting, req, link);
	resv_ns_run_waiting(rn);
}

void nvmf_resv_persist(struct nvmf_request *req, struct nvmf_ns *ns)
{
	resv_ns_queue(req, ns, resv_ns_run_persistence);
}

/* The namespace of a reservation command; NULL after the command was answered: its host sees no such namespace. */
static struct nvmf_ns *resv_find_ns(struct nvmf_request *req)
{
	struct nvmf_ns *ns = nvmf_ctrlr_visible_ns(nvmf_request_ctrlr(req), le32toh(req->sqe->nsid));

	if (ns == NULL) {
		nvmf_request_answer_at(req, NVME_ST_DNR(GENERIC, INVALID_NS), NVMF_WHERE_NSID);
	}
	return ns;
}

static void resv_queue_change(struct nvmf_request *req, uint16_t (*change)(struct nvmf_ns_resv *rn, uint16_t *where))
{
	struct nvmf_ns *ns = resv_find_ns(req);

	if (ns != NULL) {
		resv_ns_queue(req, ns, change);
	}
}

void nvmf_resv_register_run(struct nvmf_request *req)
{
	resv_queue_change(req, resv_ns_run_register);
}

void nvmf_resv_acquire_run(struct nvmf_request *req)
{
	resv_queue_change(req, resv_ns_run_acquire);
}

void nvmf_resv_release_run(struct nvmf_request *req)
{
	resv_queue_change(req, resv_ns_run_release);
}

/* ---- Report (Base 7.5.1): controllers are made when hosts connect, so registrants have the id FFFFh ---- */

static void resv_report_answer(struct nvmf_request *req, const struct nvmf_ns *ns)
{
	const struct nvmf_resv *r = nvmf_ns_resv_state(ns);
	struct nvmf_window w = {.req = req};
	struct nvme_resv_status head = {
		.gen = htole32(r->generation),
		.rtype = r->type,
		.regctl = {r->num_registrants, 0},
		.ptpls = r->ptpl,
	};

	nvmf_window_put(&w, 0, &head, sizeof(head));
	for (unsigned i = 0; i < r->num_registrants; i++) {
		struct nvme_registered_ctrl_ext entry = {
			.cntlid = htole16(NVMF_CNTLID_DYNAMIC),
			.rcsts = nvmf_resv_holds(r, i),
			.rkey = htole64(r->registrants[i].key),
		};
		memcpy(entry.hostid, r->registrants[i].hostid, sizeof(entry.hostid));
		nvmf_window_put(&w, sizeof(head) + i * sizeof(entry), &entry, sizeof(entry));
	}
	nvmf_request_answer(req, NVME_ST_SUCCESS);
}

_Static_assert(sizeof(struct nvme_resv_status) == 64 && sizeof(struct nvme_registered_ctrl_ext) == 64, "Base 7.5.1");

void nvmf_resv_report_run(struct nvmf_request *req)
{
	const struct nvmf_ns *ns = resv_find_ns(req);

	if (ns != NULL) {
		resv_report_answer(req, ns);
	}
}

/* Poll group. Checks only what the command itself tells; the namespace is looked up on the control thread. */
uint16_t nvmf_resv_report_length(const struct nvmf_request *req, uint64_t *bytes, uint16_t *where)
{
	struct nvmf_resv_report report;
	uint16_t status = nvmf_decode_resv_report(req->sqe, &report, where);

	*bytes = report.length;
	if (status == NVME_ST_SUCCESS && report.length > req->qpair->transport->opts.max_io_size) {
		return nvmf_bad_field(where, NVMF_WHERE_CDW10);
	}
	return status;
}

/* ---- The life of a namespace ---- */

static const struct nvmf_ns *resv_find_clashing_ns(const struct nvmf_subsystem *s, const char *path)
{
	const struct nvmf_ns *ns;

	for (ns = nvmf_ns_next(s, NULL); ns != NULL; ns = nvmf_ns_next(s, ns)) {
		if (ns->ptpl_file != NULL && nvmf_resv_files_clash(ns->ptpl_file, path)) {
			break;
		}
	}
	return ns;
}

static const struct nvmf_ns *resv_find_clashing_ns_anywhere(const char *path)
{
	const struct nvmf_ns *ns = NULL;

	for (struct nvmf_tgt *tgt = nvmf_tgt_next(NULL); tgt != NULL && ns == NULL; tgt = nvmf_tgt_next(tgt)) {
		struct nvmf_subsystem *s = nvmf_subsystem_next(tgt, NULL);
		for (; s != NULL && ns == NULL; s = nvmf_subsystem_next(tgt, s)) {
			ns = resv_find_clashing_ns(s, path);
		}
	}
	return ns;
}

/* Whether another namespace uses the file, or a removed one: a Set Features under way does not keep a namespace from
 * being removed, and a new namespace would read the file before it is written. */
static bool resv_file_is_in_use(const char *path)
{
	const struct nvmf_ns *ns = resv_find_clashing_ns_anywhere(path);

	if (ns != NULL) {
		log_error("ptpl_file \"%s\": namespace %u of %s has \"%s\", which is written under that name with .new "
			  "first; "
			  "allowed is a file of its own",
			  path, ns->nsid, ns->subsystem->nqn, ns->ptpl_file);
	} else if (nvmf_resv_is_being_saved(path)) {
		log_error("ptpl_file \"%s\" is still being written for a namespace that was removed; try again when it "
			  "is",
			  path);
	} else {
		return false;
	}
	return true;
}

/* A new namespace begins with that state. */
static int resv_ns_begin_with(struct nvmf_ns *ns, const struct nvmf_resv *state)
{
	struct nvmf_ns_resv *rn = resv_ns_get(ns);

	if (rn == NULL) {
		return -ENOMEM;
	}
	rn->next = *state;
	if (!resv_ns_prepare_published(rn)) {
		return -ENOMEM;
	}
	rn->state = *state;
	rn->published = rn->next_published;
	rn->next_published = NULL;
	return 0;
}

/* Locks and reads the namespace's file. */
static int resv_ns_load(struct nvmf_ns *ns, struct nvmf_resv *loaded)
{
	int rc = nvmf_resv_check_path(ns->ptpl_file);
	if (rc != 0) {
		return rc;
	}
	if (resv_file_is_in_use(ns->ptpl_file)) {
		return -EBUSY;
	}
	rc = nvmf_resv_lock(ns->ptpl_file);
	if (rc != 0) {
		return rc;
	}
	ns->ptpl_locked = true;
	return nvmf_resv_load(ns->ptpl_file, ns->opts.uuid, loaded);
}

int nvmf_resv_attach(struct nvmf_ns *ns)
{
	struct nvmf_resv state = {0}, kept;
	int rc = ns->ptpl_file != NULL ? resv_ns_load(ns, &state) : 0;

	if (rc != 0) {
		return rc;
	}
	bool had = nvmf_resv_kept_take(ns, &kept);
	if (had && (state.num_registrants == 0 || nvmf_resv_equal(&state, &kept))) {
		state = kept; /* with its generation, which no file has */
	} else if (had) {
		log_warning("%s has other reservations of namespace %u than those that were kept: the file's count",
			    ns->ptpl_file, ns->nsid);
	}
	return had || ns->ptpl_file != NULL ? resv_ns_begin_with(ns, &state) : 0;
}

void nvmf_resv_detach(struct nvmf_ns *ns)
{
	struct nvmf_ns_resv *rn = ns->resv;

	if (rn == NULL) {
		return;
	}
	nvmf_resv_kept_note(ns, &rn->state);
	ns->resv = NULL;
	rn->ns = NULL;
	free(rn->published);
	rn->published = NULL;
	resv_ns_run_waiting(rn);
}
