/* SPDX-License-Identifier: BSD-3-Clause */
/* Changes of a subsystem's state, and of its namespaces while hosts use it. Each is an operation in the subsystem's
 * queue, and begins when no earlier one is left that it has to wait for (op_waits_for()). Poll groups are changed by
 * calls. Two things are waited for without blocking the control thread: commands under way when a namespace is paused,
 * and controllers that are being destroyed. */
#include <errno.h>
#include <stdio.h>
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

static void op_finish(struct nvmf_op *op, int status)
{
	struct nvmf_subsystem *s = op->subsystem;

	USDT(nvmf_subsystem_change_state_done, s->nqn, op_target_state(op), op->original, status);
	thread_timer_stop(&op->timer);
	STAILQ_REMOVE(&s->ops, op, nvmf_op, link);
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

static void op_start_begin(struct nvmf_op *op)
{
	struct nvmf_subsystem *s = op->subsystem;
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
	op_finish(op, rc);
}

static void op_pause_drained(struct nvmf_op *op)
{
	subsystem_set_state(op->subsystem, NVMF_SUBSYSTEM_PAUSED);
	op_finish(op, 0);
}

static void op_pause_begin(struct nvmf_op *op)
{
	struct nvmf_subsystem *s = op->subsystem;

	if (s->state != NVMF_SUBSYSTEM_ACTIVE) {
		op_finish(op, -EINVAL);
		return;
	}
	s->paused_nsid = op->nsid;
	op->pending_views = s->views_open ? nvmf_views_pause(s, op->nsid) : 0;
	if (op->pending_views == 0) {
		op_pause_drained(op);
	}
}

static void op_resume_begin(struct nvmf_op *op)
{
	struct nvmf_subsystem *s = op->subsystem;

	if (s->state != NVMF_SUBSYSTEM_PAUSED) {
		op_finish(op, -EINVAL);
		return;
	}
	if (s->views_open) {
		nvmf_views_resume(s);
	}
	s->paused_nsid = 0;
	subsystem_set_state(s, NVMF_SUBSYSTEM_ACTIVE);
	op_finish(op, 0);
}

/* No command of the namespace is under way, or the change has been given up and released the namespace. */
static void op_change_drained(struct nvmf_op *op)
{
	struct nvmf_subsystem *s = op->subsystem;
	int rc = -ETIMEDOUT;

	if (!op->given_up) {
		rc = op->apply(s, op);
		if (s->views_open) {
			nvmf_views_release_ns(s, op->nsid);
		}
	}
	op_finish(op, rc);
}

/* The timeout of a change for a host's command: a bdev that does not end an I/O must not keep the namespace from the
 * other hosts for ever. Messages of views that have drained before this may still arrive; the other views will send
 * none. */
static void op_drain_timeout(void *arg)
{
	struct nvmf_op *op = arg;
	struct nvmf_subsystem *s = op->subsystem;

	log_limited(LOG_LEVEL_ERROR,
		    "namespace %u of %s was paused for a host's command for %llu s, and commands are still under way: "
		    "it goes on without "
		    "the change",
		    op->nsid, s->nqn, (unsigned long long)(s->drain_us / 1000000));
	op->given_up = true;
	op->pending_views -= nvmf_views_release_ns(s, op->nsid);
	if (op->pending_views == 0) {
		op_change_drained(op);
	}
}

static void op_change_begin(struct nvmf_op *op)
{
	struct nvmf_subsystem *s = op->subsystem;

	op->pending_views = !s->views_open        ? 0
			    : op->removes != NULL ? nvmf_views_hold_ns_for_removal(s, op->nsid)
						  : nvmf_views_hold_ns(s, op->nsid);
	if (op->removes != NULL) { /* hides it: what arrives from now on waits, and does not find it hidden */
		op->removes(s, op->nsid);
	}
	if (op->pending_views == 0) {
		op_change_drained(op);
	} else if (op->for_host) {
		thread_timer_stop(&op->timer);
		op->timer.fn = op_drain_timeout;
		thread_timer_start(&op->timer, s->drain_us);
		op->draining(op->arg);
	}
}

static bool op_touches(const struct nvmf_op *op, uint32_t nsid)
{
	return op->nsid == NVME_NSID_ALL || op->nsid == nsid;
}

void nvmf_subsystem_ns_drained(struct nvmf_subsystem *s, uint32_t nsid)
{
	struct nvmf_op *op;

	STAILQ_FOREACH (op, &s->ops, link) {
		if (op->begun && op->pending_views != 0 && op_touches(op, nsid)) {
			break;
		}
	}
	assert(op != NULL);
	if (--op->pending_views == 0) {
		op->kind == NVMF_OP_PAUSE ? op_pause_drained(op) : op_change_drained(op);
	}
}

/* A stop has begun when all controllers are going. It ends when they are gone, and with them all commands, after all
 * changes that were queued before it or are under way. */
static bool op_stop_can_end(const struct nvmf_op *stop)
{
	const struct nvmf_op *op;
	bool before = true;

	STAILQ_FOREACH (op, &stop->subsystem->ops, link) {
		before = before && op != stop;
		if (op != stop && (before || op->begun)) {
			return false;
		}
	}
	return TAILQ_EMPTY(&stop->subsystem->ctrlrs);
}

static void op_stop_end(struct nvmf_op *op)
{
	struct nvmf_subsystem *s = op->subsystem;

	subsystem_close_views(s);
	subsystem_set_state(s, NVMF_SUBSYSTEM_INACTIVE);
	op_finish(op, 0);
}

static struct nvmf_op *subsystem_find_stop(struct nvmf_subsystem *s)
{
	struct nvmf_op *op;

	STAILQ_FOREACH (op, &s->ops, link) {
		if (op->kind == NVMF_OP_STOP && op->begun) {
			break;
		}
	}
	return op;
}

/* Drops the queued changes that hosts wait for, of one namespace or of all (NVME_NSID_ALL). The list may change while
 * a host is answered, so the search begins anew. */
void nvmf_subsystem_drop_host_ops(struct nvmf_subsystem *s, uint32_t nsid, int status)
{
	struct nvmf_op *op = STAILQ_FIRST(&s->ops);

	while (op != NULL) {
		if (!op->for_host || op->begun || (nsid != NVME_NSID_ALL && op->nsid != nsid)) {
			op = STAILQ_NEXT(op, link);
			continue;
		}
		STAILQ_REMOVE(&s->ops, op, nvmf_op, link);
		op->done(op->arg, status);
		free(op);
		op = STAILQ_FIRST(&s->ops);
	}
}

static void op_stop_begin(struct nvmf_op *op)
{
	struct nvmf_subsystem *s = op->subsystem;
	struct nvmf_ctrlr *ctrlr, *next;

	if (s->state == NVMF_SUBSYSTEM_INACTIVE) {
		op_finish(op, 0);
		return;
	}
	s->connectable = false;
	nvmf_tgt_discovery_changed(s->tgt); /* hosts are shown it no more from now on */
	/* The commands that asked for these changes would keep their connections open. */
	nvmf_subsystem_drop_host_ops(s, NVME_NSID_ALL, -ESHUTDOWN);
	for (ctrlr = TAILQ_FIRST(&s->ctrlrs); ctrlr != NULL; ctrlr = next) {
		next = TAILQ_NEXT(ctrlr, link);
		nvmf_ctrlr_destroy(ctrlr, "the subsystem is being stopped");
	}
}

/* ---- The queue ---- */

/* Whether an operation has to wait for an earlier one. Changes of state are carried out in their order. A change of a
 * namespace waits only for what touches the same namespace. A stop begins beside changes of namespaces, whatever they
 * wait for, because the end of the controllers ends their commands. */
static bool op_waits_for(const struct nvmf_op *op, const struct nvmf_op *earlier)
{
	bool change = op->kind == NVMF_OP_CHANGE, earlier_change = earlier->kind == NVMF_OP_CHANGE;

	if (change && earlier_change) {
		return op->nsid == earlier->nsid;
	}
	if (!change && !earlier_change) {
		return true;
	}
	const struct nvmf_op *state = change ? earlier : op;
	uint32_t nsid = change ? op->nsid : earlier->nsid;
	switch (state->kind) {
	case NVMF_OP_PAUSE:
		return op_touches(state, nsid);
	case NVMF_OP_STOP:
		return false;
	default: /* they are over as soon as they begin */
		return change;
	}
}

const struct nvmf_op *nvmf_op_blocker(const struct nvmf_op *op)
{
	const struct nvmf_op *earlier;

	STAILQ_FOREACH (earlier, &op->subsystem->ops, link) {
		if (earlier == op) {
			return NULL;
		}
		if (op_waits_for(op, earlier)) {
			return earlier;
		}
	}
	return NULL;
}

static struct nvmf_op *subsystem_next_op(struct nvmf_subsystem *s)
{
	struct nvmf_op *op;

	STAILQ_FOREACH (op, &s->ops, link) {
		if (!op->begun && nvmf_op_blocker(op) == NULL) {
			break;
		}
	}
	return op;
}

/* An operation that takes longer is logged, and again from time to time. */
#define OP_SLOW_US       UINT64_C(10000000)
#define OP_SLOW_AGAIN_US UINT64_C(60000000)

static void op_slow_timeout(void *arg)
{
	struct nvmf_op *op = arg;

	nvmf_op_log_slow(op);
	thread_timer_start(&op->timer, OP_SLOW_AGAIN_US);
}

static void op_begin(struct nvmf_op *op)
{
	static void (*const begin[])(struct nvmf_op *) = {
		[NVMF_OP_START] = op_start_begin,   [NVMF_OP_PAUSE] = op_pause_begin,
		[NVMF_OP_RESUME] = op_resume_begin, [NVMF_OP_STOP] = op_stop_begin,
		[NVMF_OP_CHANGE] = op_change_begin,
	};
	struct nvmf_subsystem *s = op->subsystem;

	op->begun = true;
	op->original = s->state;
	if (op->timer.fn == NULL) {
		op->timer.fn = op_slow_timeout;
		thread_timer_start(&op->timer, OP_SLOW_US);
	}
	USDT(nvmf_subsystem_change_state, s->nqn, op_target_state(op), s->state);
	begin[op->kind](op);
}

/* Begins what need not wait any more. An operation that ends at once calls this again: it then returns to this loop. */
static void subsystem_run_ops(struct nvmf_subsystem *s)
{
	struct nvmf_op *op;

	if (s->running_ops) {
		return;
	}
	s->running_ops = true;
	for (;;) {
		if ((op = subsystem_next_op(s)) != NULL) {
			op_begin(op);
		} else if ((op = subsystem_find_stop(s)) != NULL && op_stop_can_end(op)) {
			op_stop_end(op);
		} else {
			break;
		}
	}
	s->running_ops = false;
}

void nvmf_subsystem_add_op(struct nvmf_subsystem *s, struct nvmf_op *op)
{
	op->subsystem = s;
	op->queued_ticks = env_ticks();
	op->timer.arg = op;
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
	const struct nvmf_ns *ns = nvmf_ns_find(s, nsid);

	if (!s->connectable || ns == NULL || ns->going) {
		done(arg, s->connectable ? -ENOENT : -ESHUTDOWN);
		return;
	}
	subsystem_queue_op(s, &(struct nvmf_op){.kind = NVMF_OP_CHANGE,
						.what = "reservation change of namespace",
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

	snprintf(w->why, sizeof(w->why), "%s", why);
	w->queued_ticks = env_ticks();
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
	subsystem_run_ops(s);
}
