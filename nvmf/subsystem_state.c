/* SPDX-License-Identifier: BSD-3-Clause */
/* Changes of a subsystem's state, and of its namespaces while hosts use it. Each is an operation in the subsystem's
 * queue; one is carried out at a time. Poll groups are changed by calls. Two things are waited for without blocking the
 * control thread: commands under way when a view is paused, and controllers that are being destroyed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "nvmf/internal.h"

static const uint32_t subsystem_next_states[NVMF_SUBSYSTEM_STATES] = {
	[NVMF_SUBSYSTEM_INACTIVE] = 1 << NVMF_SUBSYSTEM_ACTIVE,
	[NVMF_SUBSYSTEM_ACTIVE] = 1 << NVMF_SUBSYSTEM_PAUSED | 1 << NVMF_SUBSYSTEM_INACTIVE,
	[NVMF_SUBSYSTEM_PAUSED] = 1 << NVMF_SUBSYSTEM_ACTIVE | 1 << NVMF_SUBSYSTEM_INACTIVE,
};
STATE_MACHINE(subsystem_machine, "nvmf subsystem", nvmf_subsystem_state_name, subsystem_next_states);

static void subsystem_set_state(struct nvmf_subsystem *s, enum nvmf_subsystem_state state)
{
	state_machine_check(&subsystem_machine, s->state, state, s->nqn);
	TRACE(NVMF_SUBSYSTEM_STATE, s->trace_owner, 0, (uintptr_t)s, s->state, state);
	s->state = state;
	s->state_ticks = env_ticks();
}

static void subsystem_run_ops(struct nvmf_subsystem *s);

static uint32_t op_target_state(const struct nvmf_op *op)
{
	switch (op->kind) {
	case NVMF_OP_PAUSE:
	case NVMF_OP_CHANGE:
		return NVMF_SUBSYSTEM_PAUSED;
	case NVMF_OP_STOP:
		return NVMF_SUBSYSTEM_INACTIVE;
	default:
		return NVMF_SUBSYSTEM_ACTIVE;
	}
}

static void op_finish(struct nvmf_subsystem *s, int status)
{
	struct nvmf_op *op = s->op;

	USDT(nvmf_subsystem_change_state_done, s->nqn, op_target_state(op), op->original, status);
	s->op = NULL;
	if (op->done != NULL) {
		op->done(op->arg, status);
	}
	free(op);
	subsystem_run_ops(s);
}

/* ---- Views ---- */

/* Frees the views, which have the namespaces with an index less than `below`. */
static void subsystem_drop_views(struct nvmf_subsystem *s, uint32_t below)
{
	for (uint32_t i = 0; i < below; i++) {
		if (s->ns[i] != NULL) {
			nvmf_views_remove_ns(s, i + 1);
		}
	}
	nvmf_views_destroy(s);
}

static int subsystem_make_views(struct nvmf_subsystem *s)
{
	int rc = nvmf_views_create(s);

	for (uint32_t i = 0; rc == 0 && i < s->max_nsid; i++) {
		rc = s->ns[i] != NULL ? nvmf_views_add_ns(s, s->ns[i]) : 0;
		if (rc != 0) {
			subsystem_drop_views(s, i);
		}
	}
	return rc;
}

int nvmf_subsystem_open_views(struct nvmf_subsystem *s)
{
	int rc = subsystem_make_views(s);

	if (rc != 0) {
		log_error("subsystem %s cannot be started: %s", s->nqn, strerror(-rc));
		return rc;
	}
	nvmf_views_activate(s);
	s->views_open = true;
	if (s->state == NVMF_SUBSYSTEM_PAUSED) { /* it was paused before there were groups */
		nvmf_views_pause(s, s->paused_nsid);
	}
	return 0;
}

static void subsystem_close_views(struct nvmf_subsystem *s)
{
	if (s->views_open) {
		nvmf_views_deactivate(s);
		subsystem_drop_views(s, s->max_nsid);
		s->views_open = false;
	}
}

/* ---- The operations ---- */

static void op_start_begin(struct nvmf_subsystem *s)
{
	/* It was queued before the subsystem or its target began to go. */
	int rc = nvmf_subsystem_refuse_change(s, "the start of a subsystem");

	rc = rc == 0 && s->state != NVMF_SUBSYSTEM_INACTIVE ? -EINVAL : rc;

	if (rc == 0 && !TAILQ_EMPTY(&s->tgt->groups)) {
		rc = nvmf_subsystem_open_views(s);
	}
	if (rc == 0) {
		subsystem_set_state(s, NVMF_SUBSYSTEM_ACTIVE);
		s->connectable = true;
		nvmf_tgt_discovery_changed(s->tgt);
	}
	op_finish(s, rc);
}

static void op_paused(struct nvmf_subsystem *s);
static void op_drain_timeout(void *arg);

static void op_pause_begin(struct nvmf_subsystem *s)
{
	if (s->state != NVMF_SUBSYSTEM_ACTIVE) {
		op_finish(s, -EINVAL);
		return;
	}
	s->paused_nsid = s->op->nsid;
	s->pending_views = s->views_open ? nvmf_views_pause(s, s->op->nsid) : 0;
	if (s->pending_views == 0) {
		op_paused(s);
	} else if (s->op->for_host) {
		s->drain_timer.fn = op_drain_timeout;
		s->drain_timer.arg = s;
		thread_timer_start(&s->drain_timer, s->drain_us);
		s->op->draining(s->op->arg);
	}
}

static void subsystem_resume_views(struct nvmf_subsystem *s)
{
	if (s->views_open) {
		nvmf_views_resume(s);
	}
	s->paused_nsid = 0;
	subsystem_set_state(s, NVMF_SUBSYSTEM_ACTIVE);
}

static void op_resume_begin(struct nvmf_subsystem *s)
{
	if (s->state != NVMF_SUBSYSTEM_PAUSED) {
		op_finish(s, -EINVAL);
		return;
	}
	subsystem_resume_views(s);
	op_finish(s, 0);
}

/* The subsystem is paused: carries out the change that asked for it, or stays paused until it is resumed. */
static void op_paused(struct nvmf_subsystem *s)
{
	int rc = 0;

	subsystem_set_state(s, NVMF_SUBSYSTEM_PAUSED);
	if (s->op->kind == NVMF_OP_CHANGE) {
		rc = s->op->apply(s, s->op);
		subsystem_resume_views(s);
	}
	op_finish(s, rc);
}

static void op_drained(struct nvmf_subsystem *s)
{
	bool given_up = s->drain_given_up;

	s->drain_given_up = false;
	thread_timer_stop(&s->drain_timer);
	if (given_up) {
		op_finish(s, -ETIMEDOUT);
	} else {
		op_paused(s);
	}
}

void nvmf_subsystem_view_drained(struct nvmf_subsystem *s)
{
	if (--s->pending_views == 0) {
		op_drained(s);
	}
}

/* The timeout of a pause for a host's command: a bdev that does not end an I/O must not stop the other hosts for ever.
 * Messages of views that have drained before this may still arrive; the other views will send none. */
static void op_drain_timeout(void *arg)
{
	struct nvmf_subsystem *s = arg;

	log_limited(LOG_LEVEL_ERROR,
		    "namespace %u of %s was paused for a host's command for %llu s, and commands are still under way: "
		    "it goes on without "
		    "the change",
		    s->paused_nsid, s->nqn, (unsigned long long)(s->drain_us / 1000000));
	s->drain_given_up = true;
	s->pending_views -= nvmf_views_resume(s);
	s->paused_nsid = 0;
	if (s->pending_views == 0) {
		op_drained(s);
	}
}

static void op_change_begin(struct nvmf_subsystem *s)
{
	if (s->state == NVMF_SUBSYSTEM_ACTIVE) {
		op_pause_begin(s);
	} else {
		op_finish(s, s->op->apply(s, s->op));
	}
}

static void op_stop_check(struct nvmf_subsystem *s)
{
	if (!TAILQ_EMPTY(&s->ctrlrs)) {
		return;
	}
	subsystem_close_views(s);
	subsystem_set_state(s, NVMF_SUBSYSTEM_INACTIVE);
	op_finish(s, 0);
}

/* Drops the changes that hosts wait for: the commands that asked for them would keep their connections open. */
static void subsystem_drop_host_ops(struct nvmf_subsystem *s)
{
	struct nvmf_op *op, *next;

	for (op = STAILQ_FIRST(&s->ops); op != NULL; op = next) {
		next = STAILQ_NEXT(op, link);
		if (op->for_host) {
			STAILQ_REMOVE(&s->ops, op, nvmf_op, link);
			op->done(op->arg, -ESHUTDOWN);
			free(op);
		}
	}
}

static void op_stop_begin(struct nvmf_subsystem *s)
{
	struct nvmf_ctrlr *ctrlr, *next;

	if (s->state == NVMF_SUBSYSTEM_INACTIVE) {
		op_finish(s, 0);
		return;
	}
	s->connectable = false;
	nvmf_tgt_discovery_changed(s->tgt); /* hosts are shown it no more from now on */
	subsystem_drop_host_ops(s);
	for (ctrlr = TAILQ_FIRST(&s->ctrlrs); ctrlr != NULL; ctrlr = next) {
		next = TAILQ_NEXT(ctrlr, link);
		nvmf_ctrlr_destroy(ctrlr, "the subsystem is being stopped");
	}
	op_stop_check(s);
}

/* While another namespace is paused by a user, a change waits until the subsystem is resumed. */
static bool op_can_run(const struct nvmf_subsystem *s, const struct nvmf_op *op)
{
	return op->kind != NVMF_OP_CHANGE || s->state != NVMF_SUBSYSTEM_PAUSED || op->nsid == 0 ||
	       s->paused_nsid == NVME_NSID_ALL || s->paused_nsid == op->nsid;
}

static void subsystem_run_ops(struct nvmf_subsystem *s)
{
	static void (*const begin[])(struct nvmf_subsystem *) = {
		[NVMF_OP_START] = op_start_begin,   [NVMF_OP_PAUSE] = op_pause_begin,
		[NVMF_OP_RESUME] = op_resume_begin, [NVMF_OP_STOP] = op_stop_begin,
		[NVMF_OP_CHANGE] = op_change_begin,
	};
	struct nvmf_op *op;

	if (s->op != NULL) {
		return;
	}
	STAILQ_FOREACH (op, &s->ops, link) {
		if (op_can_run(s, op)) {
			break;
		}
	}
	if (op == NULL) {
		return;
	}
	STAILQ_REMOVE(&s->ops, op, nvmf_op, link);
	s->op = op;
	op->original = s->state;
	USDT(nvmf_subsystem_change_state, s->nqn, op_target_state(op), s->state);
	begin[op->kind](s);
}

void nvmf_subsystem_add_op(struct nvmf_subsystem *s, struct nvmf_op *op)
{
	STAILQ_INSERT_TAIL(&s->ops, op, link);
	subsystem_run_ops(s);
}

static void subsystem_queue_op(struct nvmf_subsystem *s, const struct nvmf_op *proto)
{
	struct nvmf_op *op = malloc(sizeof(*op));

	if (op == NULL) {
		if (proto->done != NULL) {
			proto->done(proto->arg, -ENOMEM);
		}
		return;
	}
	*op = *proto;
	nvmf_subsystem_add_op(s, op);
}

void nvmf_subsystem_start(struct nvmf_subsystem *s, nvmf_done_fn done, void *arg)
{
	subsystem_queue_op(s, &(struct nvmf_op){.kind = NVMF_OP_START, .done = done, .arg = arg});
}

void nvmf_subsystem_pause(struct nvmf_subsystem *s, uint32_t nsid, nvmf_done_fn done, void *arg)
{
	subsystem_queue_op(s, &(struct nvmf_op){.kind = NVMF_OP_PAUSE, .nsid = nsid, .done = done, .arg = arg});
}

void nvmf_subsystem_resume(struct nvmf_subsystem *s, nvmf_done_fn done, void *arg)
{
	subsystem_queue_op(s, &(struct nvmf_op){.kind = NVMF_OP_RESUME, .done = done, .arg = arg});
}

void nvmf_subsystem_stop(struct nvmf_subsystem *s, nvmf_done_fn done, void *arg)
{
	subsystem_queue_op(s, &(struct nvmf_op){.kind = NVMF_OP_STOP, .done = done, .arg = arg});
}

void nvmf_subsystem_change_for_host(struct nvmf_subsystem *s, uint32_t nsid,
				    int (*apply)(struct nvmf_subsystem *s, struct nvmf_op *op),
				    void (*draining)(void *arg), nvmf_done_fn done, void *arg)
{
	if (!s->connectable) {
		done(arg, -ESHUTDOWN);
		return;
	}
	subsystem_queue_op(s, &(struct nvmf_op){.kind = NVMF_OP_CHANGE,
						.nsid = nsid,
						.apply = apply,
						.draining = draining,
						.done = done,
						.arg = arg,
						.for_host = true});
}

/* ---- Waiting for controllers to be destroyed ---- */

static bool ctrlr_waiter_is_done(const struct nvmf_subsystem *s, const struct nvmf_ctrlr_waiter *w)
{
	const struct nvmf_ctrlr *ctrlr;

	TAILQ_FOREACH (ctrlr, &s->ctrlrs, link) {
		if (ctrlr->state == NVMF_CTRLR_DESTROYING && w->match(ctrlr, w)) {
			return false;
		}
	}
	return true;
}

static void subsystem_check_waiters(struct nvmf_subsystem *s)
{
	TAILQ_HEAD(, nvmf_ctrlr_waiter) finished = TAILQ_HEAD_INITIALIZER(finished);
	struct nvmf_ctrlr_waiter *w, *next;

	for (w = TAILQ_FIRST(&s->waiters); w != NULL; w = next) {
		next = TAILQ_NEXT(w, link);
		if (ctrlr_waiter_is_done(s, w)) {
			TAILQ_REMOVE(&s->waiters, w, link);
			TAILQ_INSERT_TAIL(&finished, w, link);
		}
	}
	while (!TAILQ_EMPTY(&finished)) {
		w = TAILQ_FIRST(&finished);
		TAILQ_REMOVE(&finished, w, link);
		if (w->done != NULL) {
			w->done(w->arg, 0);
		}
		free(w);
	}
}

void nvmf_subsystem_end_ctrlrs(struct nvmf_subsystem *s, struct nvmf_ctrlr_waiter *w, const char *why)
{
	struct nvmf_ctrlr *ctrlr, *next;

	TAILQ_INSERT_TAIL(&s->waiters, w, link);
	for (ctrlr = TAILQ_FIRST(&s->ctrlrs); ctrlr != NULL; ctrlr = next) {
		next = TAILQ_NEXT(ctrlr, link);
		if (w->match(ctrlr, w)) {
			nvmf_ctrlr_destroy(ctrlr, why);
		}
	}
	subsystem_check_waiters(s);
}

void nvmf_subsystem_ctrlr_gone(struct nvmf_subsystem *s)
{
	subsystem_check_waiters(s);
	if (s->op != NULL && s->op->kind == NVMF_OP_STOP) {
		op_stop_check(s);
	}
}
