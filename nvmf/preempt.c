/* SPDX-License-Identifier: BSD-3-Clause */
/* Preempt and Abort (Base 8.1.22.7): aborts the commands of the preempted hosts on the namespace, one after the other,
 * in one group after the other. It uses the thread message and the bdev_io of the command that asks for it. The
 * namespace is being paused in the meantime, so that no further commands begin. */
#include <string.h>
#include "nvmf/internal.h"

static bool preempt_is_victim(const struct nvmf_preempt *p, const struct nvmf_qpair *qpair)
{
	for (unsigned i = 0; qpair->ctrlr != NULL && i < p->notices->num; i++) {
		if (p->notices->hosts[i].what == NVME_RESV_NOTIFY_RNLPT_REGISTRATION_PREEMPTED &&
		    memcmp(qpair->ctrlr->hostid, p->notices->hosts[i].hostid, NVMF_HOSTID_SIZE) == 0) {
			return true;
		}
	}
	return false;
}

/* The next command to be aborted; NULL: there are no more. A command that the bdev has already been asked to abort is
 * in NVMF_REQUEST_PREEMPTED, so it is not found again. */
static struct nvmf_request *preempt_next_victim(const struct nvmf_preempt *p, const struct nvmf_ns_view *nsv)
{
	struct nvmf_qpair *qpair;

	TAILQ_FOREACH (qpair, &p->group->qpairs, group_link) {
		if (!preempt_is_victim(p, qpair)) {
			continue;
		}
		for (struct nvmf_request *req = nvmf_qpair_next_request(qpair, NULL); req != NULL;
		     req = nvmf_qpair_next_request(qpair, req)) {
			if (req->where == NVMF_REQUEST_BDEV && req->counted && req->ns_view == nsv) {
				return req;
			}
		}
	}
	return NULL;
}

static void preempt_next_group(struct thread_msg *msg);
static void preempt_abort_next(struct nvmf_preempt *p);

static void preempt_abort_done(struct bdev_io *io, void *arg)
{
	struct nvmf_preempt *p = arg;

	nvmf_ns_view_leave(p->req);
	preempt_abort_next(p);
}

static void preempt_abort_next(struct nvmf_preempt *p)
{
	const struct nvmf_subsystem_view *view = p->group->views[p->subsystem->index];
	struct nvmf_ns_view *nsv = view != NULL ? view->ns[p->nsid - 1] : NULL;
	struct nvmf_request *victim = nsv != NULL ? preempt_next_victim(p, nsv) : NULL;

	if (victim == NULL) {
		thread_post(thread_control(), &p->msg, preempt_next_group);
		return;
	}
	p->aborted++;
	nvmf_request_set_where(victim, NVMF_REQUEST_PREEMPTED);
	if (victim->fuse_peer != NULL) {
		nvmf_request_set_where(victim->fuse_peer, NVMF_REQUEST_PREEMPTED);
	}
	nvmf_abort_in_bdev(p->req, victim, preempt_abort_done, p);
}

static void preempt_run_on_group(struct thread_msg *msg)
{
	preempt_abort_next(container_of(msg, struct nvmf_preempt, msg));
}

static void preempt_next_group(struct thread_msg *msg)
{
	struct nvmf_preempt *p = container_of(msg, struct nvmf_preempt, msg);

	p->group = p->group == NULL ? TAILQ_FIRST(&p->subsystem->tgt->groups) : TAILQ_NEXT(p->group, link);
	if (p->group != NULL) {
		thread_post(p->group->thread, &p->msg, preempt_run_on_group);
		return;
	}
	if (p->aborted != 0) {
		log_limited(LOG_LEVEL_NOTICE,
			    "Preempt and Abort of namespace %u of %s by %s: %u commands of others were under way",
			    p->nsid, p->subsystem->nqn, nvmf_request_ctrlr(p->req)->hostnqn, p->aborted);
	}
	p->done(p);
}

void nvmf_preempt_start(struct nvmf_preempt *p)
{
	p->group = NULL;
	p->aborted = 0;
	preempt_next_group(&p->msg);
}
