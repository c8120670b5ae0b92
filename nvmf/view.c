/* SPDX-License-Identifier: BSD-3-Clause */
/* Poll groups' views of subsystems. The control thread changes the views by calling into one group after the other
 * (thread_call()). Commands run on the groups in the meantime; they wait only while their namespace is paused, in the
 * view's queue. */
#include <errno.h>
#include <stdlib.h>
#include "nvmf/internal.h"

static const char *view_state_name(enum nvmf_view_state state)
{
	static const char *const names[NVMF_VIEW_STATES] = {
		[NVMF_VIEW_INACTIVE] = "INACTIVE",
		[NVMF_VIEW_ACTIVE] = "ACTIVE",
		[NVMF_VIEW_PAUSED] = "PAUSED",
		[NVMF_VIEW_PAUSING] = "PAUSING",
	};

	return (size_t)state < ARRAY_SIZE(names) ? names[state] : "?";
}

static const uint32_t view_next_states[NVMF_VIEW_STATES] = {
	[NVMF_VIEW_INACTIVE] = 1 << NVMF_VIEW_ACTIVE,
	[NVMF_VIEW_ACTIVE] = 1 << NVMF_VIEW_PAUSING | 1 << NVMF_VIEW_PAUSED | 1 << NVMF_VIEW_INACTIVE,
	[NVMF_VIEW_PAUSING] = 1 << NVMF_VIEW_PAUSED | 1 << NVMF_VIEW_ACTIVE, /* ACTIVE: a change was given up */
	/* PAUSING: a namespace is held while another one is */
	[NVMF_VIEW_PAUSED] = 1 << NVMF_VIEW_ACTIVE | 1 << NVMF_VIEW_PAUSING | 1 << NVMF_VIEW_INACTIVE,
};
STATE_MACHINE(view_machine, "nvmf poll group view", view_state_name, view_next_states);

static void view_set_state(struct nvmf_subsystem_view *view, enum nvmf_view_state state)
{
	state_machine_check(&view_machine, view->state, state, view->subsystem->nqn);
	TRACE(NVMF_PG_STATE, view->subsystem->trace_owner, 0, (uintptr_t)view, view->state, state,
	      thread_id(view->group->thread));
	view->state = (uint8_t)state;
	if (state != NVMF_VIEW_PAUSING) {
		USDT(nvmf_pg_change_state_done, view->subsystem->nqn, state, thread_id(view->group->thread));
	}
}

/* Whether a user has paused the namespace. */
static bool view_user_pauses(const struct nvmf_subsystem_view *view, uint32_t nsid)
{
	return view->user_paused && (view->paused_nsid == NVME_NSID_ALL || view->paused_nsid == nsid);
}

/* Whether new commands of the namespace, which need not exist, wait. */
static bool view_pauses(const struct nvmf_subsystem_view *view, uint32_t nsid)
{
	const struct nvmf_ns_view *nsv = nsid != 0 && nsid <= view->max_nsid ? view->ns[nsid - 1] : NULL;

	return nsv != NULL ? nsv->paused : view_user_pauses(view, nsid);
}

static bool view_is_drained(const struct nvmf_subsystem_view *view)
{
	for (uint32_t i = 0; i < view->max_nsid; i++) {
		if (view->ns[i] != NULL && view->ns[i]->draining) {
			return false;
		}
	}
	return true;
}

/* Sets the state that the pauses of its namespaces amount to. */
static void view_update_state(struct nvmf_subsystem_view *view)
{
	enum nvmf_view_state state = NVMF_VIEW_ACTIVE;

	if (view->user_paused || view->num_changing != 0) {
		state = view_is_drained(view) ? NVMF_VIEW_PAUSED : NVMF_VIEW_PAUSING;
	}
	if (state != view->state) {
		view_set_state(view, state);
	}
}

/* ---- Commands that wait ---- */

bool nvmf_view_wait_if_paused(struct nvmf_subsystem_view *view, uint32_t nsid, struct nvmf_request *req,
			      bool before_data)
{
	if (!view_pauses(view, nsid)) {
		return false;
	}
	req->before_data = before_data;
	nvmf_request_set_where(req, NVMF_REQUEST_PAUSED);
	STAILQ_INSERT_TAIL(&view->paused, req, link);
	view->num_paused++;
	return true;
}

void nvmf_view_unwait(struct nvmf_request *req)
{
	struct nvmf_subsystem_view *view = req->qpair->view;

	STAILQ_REMOVE(&view->paused, req, nvmf_request, link);
	view->num_paused--;
	nvmf_request_set_where(req, NVMF_REQUEST_TRANSPORT);
}

/* Finishes the commands of one queue pair and of one namespace; NULL, NVME_NSID_ALL: of all. */
static void view_purge(struct nvmf_subsystem_view *view, const struct nvmf_qpair *qpair, uint32_t nsid, uint16_t status)
{
	struct nvmf_request_queue all = STAILQ_HEAD_INITIALIZER(all);

	STAILQ_CONCAT(&all, &view->paused);
	view->num_paused = 0;
	while (!STAILQ_EMPTY(&all)) {
		struct nvmf_request *req = STAILQ_FIRST(&all);
		STAILQ_REMOVE_HEAD(&all, link);
		if ((qpair == NULL || req->qpair == qpair) &&
		    (nsid == NVME_NSID_ALL || le32toh(req->sqe->nsid) == nsid)) {
			nvmf_request_finish(req, status);
		} else {
			STAILQ_INSERT_TAIL(&view->paused, req, link);
			view->num_paused++;
		}
	}
}

void nvmf_view_purge(struct nvmf_subsystem_view *view, struct nvmf_qpair *qpair, uint16_t status)
{
	view_purge(view, qpair, NVME_NSID_ALL, status);
	nvmf_qos_purge(view, qpair, NVME_NSID_ALL, status);
}

void nvmf_view_purge_ns(struct nvmf_subsystem_view *view, uint32_t nsid, uint16_t status)
{
	view_purge(view, NULL, nsid, status);
	nvmf_qos_purge(view, NULL, nsid, status);
}

static void view_run_waiting(struct nvmf_request *req)
{
	nvmf_request_set_where(req, NVMF_REQUEST_TRANSPORT);
	if (req->qpair->state != NVMF_QPAIR_ENABLED) {
		nvmf_request_finish(req, nvmf_qpair_end_status(req->qpair));
	} else if (req->before_data) {
		req->before_data = false;
		nvmf_io_restart(req);
	} else {
		nvmf_request_exec(req);
	}
}

/* Runs the commands that waited for namespaces which are not paused any more, in their order. */
static void view_run_unpaused(struct nvmf_subsystem_view *view)
{
	struct nvmf_request_queue all = STAILQ_HEAD_INITIALIZER(all), unpaused = STAILQ_HEAD_INITIALIZER(unpaused);
	struct nvmf_request *req;

	STAILQ_CONCAT(&all, &view->paused);
	while ((req = STAILQ_FIRST(&all)) != NULL) {
		STAILQ_REMOVE_HEAD(&all, link);
		bool waits = view_pauses(view, le32toh(req->sqe->nsid));
		struct nvmf_request_queue *queue = waits ? &view->paused : &unpaused;
		STAILQ_INSERT_TAIL(queue, req, link);
		view->num_paused -= !waits;
	}
	while ((req = STAILQ_FIRST(&unpaused)) != NULL) {
		STAILQ_REMOVE_HEAD(&unpaused, link);
		view_run_waiting(req);
	}
}

/* ---- Draining ---- */

static void ns_view_drained_on_control(struct thread_msg *msg)
{
	struct nvmf_ns_view *nsv = container_of(msg, struct nvmf_ns_view, drained_msg);

	nvmf_subsystem_ns_drained(nsv->view->subsystem, nsv->nsid);
}

void nvmf_ns_view_drained(struct nvmf_ns_view *nsv)
{
	if (nsv->draining) {
		nsv->draining = false;
		view_update_state(nsv->view);
		thread_post(thread_control(), &nsv->drained_msg, ns_view_drained_on_control);
	}
}

/* Pauses a namespace; true: it has commands under way, whose end will be told. */
static bool ns_view_pause(struct nvmf_ns_view *nsv)
{
	nsv->paused = true;
	nsv->draining = nsv->outstanding != 0;
	return nsv->draining;
}

static void ns_view_unpause(struct nvmf_ns_view *nsv)
{
	nsv->paused = nsv->changing || view_user_pauses(nsv->view, nsv->nsid);
	nsv->draining = nsv->draining && nsv->paused;
}

/* ---- On each group, called by the control thread ---- */

/* A call to one group after the other. */
struct view_call {
	struct nvmf_subsystem *subsystem;
	struct nvmf_poll_group *group;        /* the group that is called */
	const struct nvmf_ns *ns;             /* make, add, update: which namespace */
	uint32_t nsid;                        /* remove, pause: which namespace */
	bool removes;                         /* hold: it is for its removal */
	struct nvmf_subsystem_view *new_view; /* set: the group's view from now on, or NULL */
	struct nvmf_subsystem_view *old_view; /* set, returned: the view before */
	int make_rc;                  /* make, returned: 0 or a negative errno; groups called later do nothing */
	unsigned num_draining;        /* pause, hold, returned: namespaces' views with commands under way */
	unsigned num_not_drained;     /* release, returned: views that still had commands under way */
	uint32_t outstanding;         /* outstanding, returned: commands under way */
	struct nvmf_io_counters *sum; /* sum, returned */
};

static struct nvmf_subsystem_view *view_of_call(const struct view_call *call)
{
	return call->group->views[call->subsystem->index];
}

static void view_call_each_group(struct view_call *call, thread_fn fn)
{
	TAILQ_FOREACH (call->group, &call->subsystem->tgt->groups, link) {
		thread_call(call->group->thread, fn, call);
	}
}

/* These data belong to the control thread, which waits for this call. */
static uint8_t ns_view_limits(const struct nvmf_ns *ns)
{
	return (uint8_t)((ns->opts.no_auto_visible ? NVMF_NS_HIDDEN : 0) |
			 (nvmf_ns_resv_published(ns) != NULL ? NVMF_NS_RESV : 0) |
			 (nvmf_ana_restricts(ns->subsystem, ns->opts.anagrpid) ? NVMF_NS_ANA : 0) |
			 (!TAILQ_EMPTY(&ns->subsystem->qos) ? NVMF_NS_QOS : 0));
}

_Static_assert(offsetof(struct nvmf_ns_view, read_ops) == 64, "what every command touches is one cache line");

static void ns_view_fill(struct nvmf_ns_view *nsv, const struct nvmf_ns *ns)
{
	nsv->geo = ns->geo;
	nsv->anagrpid = ns->opts.anagrpid;
	nsv->limits = ns_view_limits(ns);
	nsv->resv = nvmf_ns_resv_published(ns);
	nsv->write_cache = bdev_write_cache(ns->bdev);
	nsv->clear_reads = bdev_leaves_buffers(ns->bdev);
	nsv->passthru = ns->opts.passthru;
}

/* Makes the view of a new namespace, where commands do not find it yet: the memory of another group may not suffice,
 * and then no group gets it. */
static void view_make_ns_on_group(void *arg)
{
	struct view_call *call = arg;
	struct nvmf_subsystem_view *view = view_of_call(call);
	struct nvmf_ns_view *nsv;

	if (call->make_rc != 0) {
		return;
	}
	nsv = aligned_alloc(64, sizeof(*nsv));
	if (nsv == NULL) {
		call->make_rc = -ENOMEM;
		return;
	}
	*nsv = (struct nvmf_ns_view){.view = view, .nsid = call->ns->nsid, .desc = call->ns->desc};
	nsv->ch = bdev_channel_get(call->ns->desc);
	if (nsv->ch == NULL) {
		call->make_rc = -errno;
		free(nsv);
		return;
	}
	view->new_ns = nsv;
}

static void view_add_ns_on_group(void *arg)
{
	struct view_call *call = arg;
	struct nvmf_subsystem_view *view = view_of_call(call);
	struct nvmf_ns_view *nsv = view->new_ns;

	view->new_ns = NULL;
	ns_view_fill(nsv, call->ns);
	nsv->paused = view_user_pauses(view, nsv->nsid);
	view->ns[nsv->nsid - 1] = nsv;
}

static void view_unmake_ns_on_group(void *arg)
{
	struct nvmf_subsystem_view *view = view_of_call(arg);

	if (view->new_ns != NULL) {
		bdev_channel_put(view->new_ns->ch);
		free(view->new_ns);
		view->new_ns = NULL;
	}
}

static void view_remove_ns_on_group(void *arg)
{
	struct view_call *call = arg;
	struct nvmf_subsystem_view *view = view_of_call(call);
	struct nvmf_ns_view *nsv = view->ns[call->nsid - 1];

	if (nsv == NULL) {
		return;
	}
	assert(nsv->outstanding == 0);
	nvmf_ns_view_end_removal(nsv);
	view->ns[call->nsid - 1] = NULL;
	view->removed.read_ops += nsv->read_ops;
	view->removed.write_ops += nsv->write_ops;
	view->removed.read_blocks += nsv->read_blocks;
	view->removed.written_blocks += nsv->written_blocks;
	bdev_channel_put(nsv->ch);
	free(nsv);
}

int nvmf_views_add_ns(struct nvmf_subsystem *s, struct nvmf_ns *ns)
{
	struct view_call call = {.subsystem = s, .ns = ns, .nsid = ns->nsid};

	view_call_each_group(&call, view_make_ns_on_group);
	view_call_each_group(&call, call.make_rc == 0 ? view_add_ns_on_group : view_unmake_ns_on_group);
	return call.make_rc;
}

void nvmf_views_remove_ns(struct nvmf_subsystem *s, uint32_t nsid)
{
	struct view_call call = {.subsystem = s, .nsid = nsid};

	view_call_each_group(&call, view_remove_ns_on_group);
}

static void view_update_ns_on_group(void *arg)
{
	struct view_call *call = arg;
	struct nvmf_ns_view *nsv = view_of_call(call)->ns[call->ns->nsid - 1];

	if (nsv != NULL) {
		ns_view_fill(nsv, call->ns);
	}
}

void nvmf_views_update_ns(struct nvmf_subsystem *s, struct nvmf_ns *ns)
{
	struct view_call call = {.subsystem = s, .ns = ns};

	view_call_each_group(&call, view_update_ns_on_group);
}

static void view_update_all_on_group(void *arg)
{
	struct view_call *call = arg;
	struct nvmf_subsystem_view *view = view_of_call(call);

	for (uint32_t i = 0; i < view->max_nsid; i++) {
		if (view->ns[i] != NULL) {
			ns_view_fill(view->ns[i], call->subsystem->ns[i]);
		}
	}
}

void nvmf_views_update_all(struct nvmf_subsystem *s)
{
	struct view_call call = {.subsystem = s};

	view_call_each_group(&call, view_update_all_on_group);
}

static void view_activate_on_group(void *arg)
{
	struct view_call *call = arg;

	USDT(nvmf_pg_change_state, call->subsystem->nqn, NVMF_SUBSYSTEM_ACTIVE, thread_id(call->group->thread));
	view_set_state(view_of_call(call), NVMF_VIEW_ACTIVE);
}

void nvmf_views_activate(struct nvmf_subsystem *s)
{
	struct view_call call = {.subsystem = s};

	view_call_each_group(&call, view_activate_on_group);
}

static void view_deactivate_on_group(void *arg)
{
	struct view_call *call = arg;
	struct nvmf_subsystem_view *view = view_of_call(call);

	assert(STAILQ_EMPTY(&view->paused)); /* no queue pair is left that could have commands */
	if (view->state != NVMF_VIEW_INACTIVE) {
		USDT(nvmf_pg_change_state, view->subsystem->nqn, NVMF_SUBSYSTEM_INACTIVE,
		     thread_id(view->group->thread));
		view_set_state(view, NVMF_VIEW_INACTIVE);
	}
}

void nvmf_views_deactivate(struct nvmf_subsystem *s)
{
	struct view_call call = {.subsystem = s};

	view_call_each_group(&call, view_deactivate_on_group);
}

static void view_pause_on_group(void *arg)
{
	struct view_call *call = arg;
	struct nvmf_subsystem_view *view = view_of_call(call);

	USDT(nvmf_pg_change_state, view->subsystem->nqn, NVMF_SUBSYSTEM_PAUSED, thread_id(view->group->thread));
	view->user_paused = true;
	view->paused_nsid = call->nsid;
	for (uint32_t i = 0; i < view->max_nsid; i++) {
		if (view->ns[i] != NULL && view_user_pauses(view, i + 1)) {
			call->num_draining += ns_view_pause(view->ns[i]);
		}
	}
	view_update_state(view);
}

unsigned nvmf_views_pause(struct nvmf_subsystem *s, uint32_t nsid)
{
	struct view_call call = {.subsystem = s, .nsid = nsid};

	view_call_each_group(&call, view_pause_on_group);
	return call.num_draining;
}

static void view_resume_on_group(void *arg)
{
	struct nvmf_subsystem_view *view = view_of_call(arg);

	USDT(nvmf_pg_change_state, view->subsystem->nqn, NVMF_SUBSYSTEM_ACTIVE, thread_id(view->group->thread));
	view->user_paused = false;
	for (uint32_t i = 0; i < view->max_nsid; i++) {
		if (view->ns[i] != NULL) {
			ns_view_unpause(view->ns[i]);
		}
	}
	view_update_state(view);
	view_run_unpaused(view);
}

void nvmf_views_resume(struct nvmf_subsystem *s)
{
	struct view_call call = {.subsystem = s};

	view_call_each_group(&call, view_resume_on_group);
}

static void view_hold_ns_on_group(void *arg)
{
	struct view_call *call = arg;
	struct nvmf_subsystem_view *view = view_of_call(call);
	struct nvmf_ns_view *nsv = view->ns[call->nsid - 1];

	USDT(nvmf_pg_change_state, view->subsystem->nqn, NVMF_SUBSYSTEM_PAUSED, thread_id(view->group->thread));
	view->num_changing++;
	if (nsv != NULL) {
		nsv->changing = true;
		call->num_draining += ns_view_pause(nsv);
	}
	view_update_state(view);
	if (nsv != NULL && call->removes) {
		nvmf_ns_view_begin_removal(nsv);
	}
}

unsigned nvmf_views_hold_ns(struct nvmf_subsystem *s, uint32_t nsid)
{
	struct view_call call = {.subsystem = s, .nsid = nsid};

	view_call_each_group(&call, view_hold_ns_on_group);
	return call.num_draining;
}

unsigned nvmf_views_hold_ns_for_removal(struct nvmf_subsystem *s, uint32_t nsid)
{
	struct view_call call = {.subsystem = s, .nsid = nsid, .removes = true};

	view_call_each_group(&call, view_hold_ns_on_group);
	return call.num_draining;
}

static void view_release_ns_on_group(void *arg)
{
	struct view_call *call = arg;
	struct nvmf_subsystem_view *view = view_of_call(call);
	struct nvmf_ns_view *nsv = view->ns[call->nsid - 1];

	USDT(nvmf_pg_change_state, view->subsystem->nqn, NVMF_SUBSYSTEM_ACTIVE, thread_id(view->group->thread));
	view->num_changing--;
	if (nsv != NULL) { /* otherwise the change was its removal */
		call->num_not_drained += nsv->draining;
		nsv->changing = nsv->draining = false;
		ns_view_unpause(nsv);
	}
	view_update_state(view);
	view_run_unpaused(view);
}

unsigned nvmf_views_release_ns(struct nvmf_subsystem *s, uint32_t nsid)
{
	struct view_call call = {.subsystem = s, .nsid = nsid};

	view_call_each_group(&call, view_release_ns_on_group);
	return call.num_not_drained;
}

static void view_count_outstanding_on_group(void *arg)
{
	struct view_call *call = arg;
	const struct nvmf_subsystem_view *view = view_of_call(call);

	for (uint32_t i = 0; i < view->max_nsid; i++) {
		if (view->ns[i] != NULL && (call->nsid == NVME_NSID_ALL || call->nsid == i + 1)) {
			call->outstanding += view->ns[i]->outstanding;
		}
	}
}

uint32_t nvmf_views_outstanding(struct nvmf_subsystem *s, uint32_t nsid)
{
	struct view_call call = {.subsystem = s, .nsid = nsid};

	view_call_each_group(&call, view_count_outstanding_on_group);
	return call.outstanding;
}

static void view_sum_on_group(void *arg)
{
	struct view_call *call = arg;
	const struct nvmf_subsystem_view *view = view_of_call(call);
	struct nvmf_io_counters *sum = call->sum;

	sum->read_ops += view->removed.read_ops;
	sum->write_ops += view->removed.write_ops;
	sum->read_blocks += view->removed.read_blocks;
	sum->written_blocks += view->removed.written_blocks;
	for (uint32_t i = 0; i < view->max_nsid; i++) {
		const struct nvmf_ns_view *nsv = view->ns[i];
		if (nsv != NULL) {
			sum->read_ops += nsv->read_ops;
			sum->write_ops += nsv->write_ops;
			sum->read_blocks += nsv->read_blocks;
			sum->written_blocks += nsv->written_blocks;
		}
	}
}

void nvmf_views_sum(struct nvmf_subsystem *s, struct nvmf_io_counters *sum)
{
	struct view_call call = {.subsystem = s, .sum = sum};

	*sum = (struct nvmf_io_counters){0};
	view_call_each_group(&call, view_sum_on_group);
}

/* ---- Making and freeing: the control thread allocates and frees, the group sets the pointer ---- */

static struct nvmf_subsystem_view *view_new(struct nvmf_subsystem *s, struct nvmf_poll_group *group)
{
	struct nvmf_subsystem_view *view = calloc(1, sizeof(*view) + s->max_nsid * sizeof(view->ns[0]));

	if (view != NULL) {
		view->subsystem = s;
		view->group = group;
		view->max_nsid = s->max_nsid;
		STAILQ_INIT(&view->paused);
		nvmf_qos_view_init(view);
	}
	return view;
}

static void view_set_on_group(void *arg)
{
	struct view_call *call = arg;
	struct nvmf_subsystem_view *old = view_of_call(call);

	if (call->new_view != NULL) {
		USDT(nvmf_poll_group_add_subsystem, thread_id(call->group->thread), call->subsystem->nqn);
	} else if (old != NULL) {
		USDT(nvmf_poll_group_remove_subsystem, call->group, thread_id(call->group->thread),
		     call->subsystem->nqn);
		nvmf_qos_view_fini(old);
	}

	call->group->views[call->subsystem->index] = call->new_view;
	call->old_view = old;
}

int nvmf_views_create(struct nvmf_subsystem *s)
{
	struct view_call call = {.subsystem = s};

	TAILQ_FOREACH (call.group, &s->tgt->groups, link) {
		call.new_view = view_new(s, call.group);
		if (call.new_view == NULL) {
			nvmf_views_destroy(s);
			return -ENOMEM;
		}
		thread_call(call.group->thread, view_set_on_group, &call);
	}
	return 0;
}

void nvmf_views_destroy(struct nvmf_subsystem *s)
{
	struct view_call call = {.subsystem = s};

	TAILQ_FOREACH (call.group, &s->tgt->groups, link) {
		thread_call(call.group->thread, view_set_on_group, &call);
		free(call.old_view);
	}
}
