/* SPDX-License-Identifier: BSD-3-Clause */
/* Rate limits of hosts and of subsystems.
 *
 * A limit is one object for all poll groups, which take from its buckets with atomics. A view knows its subsystem's
 * limit, a queue pair its host's; the control thread changes both in calls to each group, and frees a limit when no
 * group knows it any more. A command that both limits let through is counted by both. One that has to wait is queued at
 * its queue pair, and a timer of the view tries all queue pairs in turn. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "nvmf/command_internal.h"
#include "nvmf/internal.h"

#define RUN_BUDGET 1024 /* queue pairs that one call of the timer looks at */

struct nvmf_qos {
	struct rate_limiter limiter;
	struct rate_counters counters;
	/* Control thread. */
	struct rate_limits limits;
	TAILQ_ENTRY(nvmf_qos) link;
	char hostnqn[NVMF_NQN_MAX + 1]; /* empty: of all hosts together */
};

/* ---- What a command costs ---- */

struct qos_cost {
	enum rate_kind kind;
	uint64_t bytes;
};

/* False: the command does not count. A range that is too long will be refused, and counts as the longest there may be.
 */
static bool qos_cost_of(const struct nvmf_request *req, const struct nvmf_command *cmd, const struct nvmf_ns_view *nsv,
			struct qos_cost *cost)
{
	uint64_t blocks = (cmd->flags & NVMF_CMD_NLB) != 0 ? (le32toh(req->sqe->cdw12) & 0xffff) + UINT64_C(1) : 0;
	uint64_t bytes = blocks << nsv->geo.block_shift, most = req->qpair->transport->opts.max_io_size;

	cost->bytes = RTE_MIN(bytes, most);
	switch ((enum bdev_io_type)cmd->bdev_type) {
	case BDEV_IO_READ:
	case BDEV_IO_COMPARE:
	case BDEV_IO_VERIFY:
		cost->kind = RATE_READS;
		return true;
	case BDEV_IO_WRITE:
		cost->kind = RATE_WRITES;
		return true;
	case BDEV_IO_COPY:
		*cost = (struct qos_cost){.kind = RATE_WRITES};
		return true;
	default:
		return false;
	}
}

static struct qos_cost qos_waiting_cost(const struct nvmf_request *req)
{
	const struct nvmf_ns_view *nsv = req->qpair->view->ns[le32toh(req->sqe->nsid) - 1];
	struct qos_cost cost = {.kind = RATE_READS};

	if (nsv != NULL) { /* otherwise its namespace has gone, and it ends with an error */
		qos_cost_of(req, nvmf_command_of(req), nsv, &cost);
	}
	return cost;
}

static bool qos_allows(const struct nvmf_qos *q, const struct qos_cost *cost)
{
	return q == NULL || rate_limiter_allows(&q->limiter, cost->kind, cost->bytes);
}

static void qos_take(struct nvmf_qos *q, const struct qos_cost *cost, bool allowed)
{
	if (q == NULL) {
		return;
	}
	if (allowed) {
		rate_limiter_take(&q->limiter, cost->kind, cost->bytes);
	}
	rate_counters_add_io(&q->counters, cost->kind, cost->bytes);
}

/* Of a command that does not wait: it takes tokens only from a limit that has some. Otherwise a host could run up a
 * debt for which all others would have to wait. */
static void qos_take_unasked(struct nvmf_qos *q, const struct qos_cost *cost)
{
	qos_take(q, cost, qos_allows(q, cost));
}

static void qos_refill(struct nvmf_qos *q)
{
	if (q != NULL) {
		rate_limiter_refill(&q->limiter, thread_now());
	}
}

/* ---- Waiting ---- */

/* Which of its two limits the queue pair's first command of a kind waits for. That of the subsystem is shared with
 * others, who must not overtake it. */
static void qpair_set_waits_for_all(struct nvmf_qpair *qpair, enum rate_kind kind, bool waits)
{
	struct nvmf_subsystem_view *view = qpair->view;

	view->qos_waits_for_all[kind] += (uint32_t)waits - (uint32_t)qpair->qos_waits_for_all[kind];
	qpair->qos_waits_for_all[kind] = waits;
}

static bool qpair_has_waiting(const struct nvmf_qpair *qpair)
{
	return !STAILQ_EMPTY(&qpair->qos_wait[RATE_READS]) || !STAILQ_EMPTY(&qpair->qos_wait[RATE_WRITES]);
}

/* Commands of that kind have been taken out. */
static void qpair_has_fewer_waiting(struct nvmf_qpair *qpair, enum rate_kind kind, uint32_t taken)
{
	qpair->view->qos_waiting[kind] -= taken;
	if (STAILQ_EMPTY(&qpair->qos_wait[kind])) {
		qpair_set_waits_for_all(qpair, kind, false);
	}
	if (qpair->qos_listed && !qpair_has_waiting(qpair)) {
		TAILQ_REMOVE(&qpair->view->qos_qpairs, qpair, qos_link);
		qpair->view->num_qos_qpairs--;
		qpair->qos_listed = false;
	}
}

static void view_start_timer(struct nvmf_subsystem_view *view)
{
	view->qos_fruitless = 0;
	thread_timer_start(&view->qos_timer, RATE_REFILL_US);
}

static void qos_wait(struct nvmf_request *req, enum rate_kind kind, bool for_all)
{
	struct nvmf_qpair *qpair = req->qpair;
	struct nvmf_subsystem_view *view = qpair->view;
	struct nvmf_qos *q = for_all ? view->qos : qpair->qos;

	if (!qpair->qos_listed) {
		if (TAILQ_EMPTY(&view->qos_qpairs)) {
			view_start_timer(view);
		}
		TAILQ_INSERT_TAIL(&view->qos_qpairs, qpair, qos_link);
		view->num_qos_qpairs++;
		qpair->qos_listed = true;
	}
	if (STAILQ_EMPTY(&qpair->qos_wait[kind])) {
		qpair_set_waits_for_all(qpair, kind, for_all);
	}
	view->qos_waiting[kind]++;
	if (q != NULL) {
		rate_counters_add_wait(&q->counters);
	}
	req->qos_kind = (uint8_t)kind;
	req->qos_for_all = for_all;
	nvmf_request_set_where(req, NVMF_REQUEST_LIMITED);
	STAILQ_INSERT_TAIL(&qpair->qos_wait[kind], req, link);
	TRACE(NVMF_REQ_LIMITED, qpair->trace_owner, 0, (uintptr_t)req, req->sqe->opcode, for_all, kind);
	USDT(nvmf_qos_wait, req, qpair->hostnqn, view->subsystem->nqn, req->sqe->opcode, for_all);
}

/* Whether commands of a kind may be overtaken by the other kind: they wait for a limit of their own kind only. */
static bool limit_may_be_passed(const struct nvmf_qos *q, enum rate_kind kind)
{
	return q == NULL || !rate_limiter_is_shared(&q->limiter) || rate_limiter_is_dry_for(&q->limiter, kind);
}

/* Whether commands of a kind, of any host, wait for the subsystem's limit. */
static bool view_has_waiting_for_all(const struct nvmf_subsystem_view *view, enum rate_kind kind)
{
	return view->qos != NULL && view->qos_waits_for_all[kind] != 0;
}

/* Whether others wait who come first: those of the same kind, and those of the other kind if they wait for a limit of
 * both. *for_all: they wait for the subsystem's limit. */
static bool qos_others_come_first(const struct nvmf_qpair *qpair, enum rate_kind kind, bool *for_all)
{
	const struct nvmf_subsystem_view *view = qpair->view;
	enum rate_kind other = rate_other_kind(kind);

	if (!STAILQ_EMPTY(&qpair->qos_wait[kind])) {
		*for_all = qpair->qos_waits_for_all[kind];
		return true;
	}
	*for_all = view_has_waiting_for_all(view, kind) ||
		   (view_has_waiting_for_all(view, other) && !limit_may_be_passed(view->qos, other));
	return *for_all || (!STAILQ_EMPTY(&qpair->qos_wait[other]) && !qpair->qos_waits_for_all[other] &&
			    !limit_may_be_passed(qpair->qos, other));
}

bool nvmf_qos_hold(struct nvmf_request *req, const struct nvmf_command *cmd, const struct nvmf_ns_view *nsv)
{
	struct nvmf_qpair *qpair = req->qpair;
	struct nvmf_qos *own = qpair->qos, *all = qpair->view->qos;
	struct qos_cost cost;
	bool for_all;

	if (req->qos_counted || (own == NULL && all == NULL) || !qos_cost_of(req, cmd, nsv, &cost)) {
		return false;
	}
	qos_refill(own);
	qos_refill(all);
	if (req->fuse != NVME_FUSE_NONE) {
		qos_take_unasked(own, &cost);
		qos_take_unasked(all, &cost);
		req->qos_counted = true;
		return false;
	}
	if (qos_others_come_first(qpair, cost.kind, &for_all)) {
		qos_wait(req, cost.kind, for_all);
		return true;
	}
	bool own_allows = qos_allows(own, &cost);
	if (!own_allows || !qos_allows(all, &cost)) {
		qos_wait(req, cost.kind, own_allows);
		return true;
	}
	qos_take(own, &cost, true);
	qos_take(all, &cost, true);
	req->qos_counted = true;
	return false;
}

/* ---- Going on ---- */

static void qos_go(struct nvmf_request *req, struct nvmf_qos *waited_for)
{
	uint64_t waited = thread_now() - req->where_ticks;

	if (waited_for != NULL && (int64_t)waited > 0) {
		rate_counters_add_waited(&waited_for->counters, env_ticks_to_ns(waited) / 1000);
	}
	nvmf_request_set_where(req, NVMF_REQUEST_TRANSPORT);
	if (req->qpair->state != NVMF_QPAIR_ENABLED) {
		nvmf_request_finish(req, nvmf_qpair_end_status(req->qpair));
	} else {
		nvmf_io_restart(req);
	}
}

/* Lets the first waiting command of a kind go, if both limits allow it; then it is the other kind's turn. */
static bool qpair_release_first(struct nvmf_qpair *qpair, enum rate_kind kind)
{
	struct nvmf_request *req = STAILQ_FIRST(&qpair->qos_wait[kind]);
	struct nvmf_qos *own = qpair->qos, *all = qpair->view->qos;

	if (req == NULL) {
		return false;
	}
	struct qos_cost cost = qos_waiting_cost(req);
	bool own_allows = qos_allows(own, &cost);
	if (!own_allows || !qos_allows(all, &cost)) {
		qpair_set_waits_for_all(qpair, kind, own_allows);
		return false;
	}
	qos_take(own, &cost, true);
	qos_take(all, &cost, true);
	req->qos_counted = true;
	STAILQ_REMOVE_HEAD(&qpair->qos_wait[kind], link);
	qpair->qos_turn = (uint8_t)rate_other_kind(kind);
	qpair_has_fewer_waiting(qpair, kind, 1);
	qos_go(req, req->qos_for_all ? all : own);
	return true;
}

static bool qos_is_dry_for(const struct nvmf_subsystem_view *view, enum rate_kind kind)
{
	return view->qos_waiting[kind] == 0 || !rate_limiter_allows(&view->qos->limiter, kind, 1);
}

/* Whether the subsystem's limit lets nothing go of what waits. */
static bool qos_is_dry(const struct nvmf_subsystem_view *view)
{
	return view->qos != NULL && qos_is_dry_for(view, RATE_READS) && qos_is_dry_for(view, RATE_WRITES);
}

/* One command of each queue pair in turn, so that each gets its share of the subsystem's limit. What goes on may end
 * any queue pair, so none is held across it. Returns false if the budget did not suffice. */
static bool view_run_limited(struct nvmf_subsystem_view *view)
{
	unsigned budget = RUN_BUDGET;
	struct nvmf_qpair *qpair;

	while ((qpair = TAILQ_FIRST(&view->qos_qpairs)) != NULL && view->qos_fruitless < view->num_qos_qpairs &&
	       !qos_is_dry(view)) {
		enum rate_kind kind = (enum rate_kind)qpair->qos_turn;
		if (budget-- == 0) {
			return false;
		}
		TAILQ_REMOVE(&view->qos_qpairs, qpair, qos_link);
		TAILQ_INSERT_TAIL(&view->qos_qpairs, qpair, qos_link);
		qos_refill(qpair->qos);
		bool went = qpair_release_first(qpair, kind) || qpair_release_first(qpair, rate_other_kind(kind));
		view->qos_fruitless = went ? 0 : view->qos_fruitless + 1;
	}
	return true;
}

static void qos_timer(void *arg)
{
	struct nvmf_subsystem_view *view = arg;

	thread_absence_check();
	qos_refill(view->qos);
	bool all = view_run_limited(view);
	if (TAILQ_EMPTY(&view->qos_qpairs)) {
		return;
	}
	if (all) {
		view_start_timer(view);
	} else {
		thread_timer_start(&view->qos_timer, 0); /* the next ones in turn */
	}
}

/* ---- Taking back ---- */

void nvmf_qos_unwait(struct nvmf_request *req)
{
	struct nvmf_qpair *qpair = req->qpair;

	STAILQ_REMOVE(&qpair->qos_wait[req->qos_kind], req, nvmf_request, link);
	qpair_has_fewer_waiting(qpair, (enum rate_kind)req->qos_kind, 1);
	nvmf_request_set_where(req, NVMF_REQUEST_TRANSPORT);
}

/* Moves the commands of a namespace, or of all, from a queue to the end of another. Returns their number. */
static uint32_t qos_move(struct nvmf_request_queue *from, struct nvmf_request_queue *to, uint32_t nsid)
{
	struct nvmf_request_queue all = STAILQ_HEAD_INITIALIZER(all);
	struct nvmf_request *req;
	uint32_t moved = 0;

	STAILQ_CONCAT(&all, from);
	while ((req = STAILQ_FIRST(&all)) != NULL) {
		STAILQ_REMOVE_HEAD(&all, link);
		bool goes = nsid == NVME_NSID_ALL || le32toh(req->sqe->nsid) == nsid;
		STAILQ_INSERT_TAIL(goes ? to : from, req, link);
		moved += goes;
	}
	return moved;
}

static void qpair_take_waiting(struct nvmf_qpair *qpair, uint32_t nsid, struct nvmf_request_queue *to)
{
	for (enum rate_kind kind = RATE_READS; kind < RATE_KINDS; kind++) {
		uint32_t taken = qos_move(&qpair->qos_wait[kind], to, nsid);
		if (taken != 0) {
			qpair_has_fewer_waiting(qpair, kind, taken);
		}
	}
}

void nvmf_qos_purge(struct nvmf_subsystem_view *view, struct nvmf_qpair *qpair, uint32_t nsid, uint16_t status)
{
	struct nvmf_request_queue taken = STAILQ_HEAD_INITIALIZER(taken);
	struct nvmf_qpair *next;

	if (qpair != NULL) {
		qpair_take_waiting(qpair, nsid, &taken);
	} else {
		for (qpair = TAILQ_FIRST(&view->qos_qpairs); qpair != NULL; qpair = next) {
			next = TAILQ_NEXT(qpair, qos_link);
			qpair_take_waiting(qpair, nsid, &taken);
		}
	}
	while (!STAILQ_EMPTY(&taken)) {
		struct nvmf_request *req = STAILQ_FIRST(&taken);
		STAILQ_REMOVE_HEAD(&taken, link);
		nvmf_request_finish(req, status);
	}
}

void nvmf_qos_view_init(struct nvmf_subsystem_view *view)
{
	TAILQ_INIT(&view->qos_qpairs);
	view->qos_timer = (struct thread_timer){.fn = qos_timer, .arg = view};
	view->qos = (struct nvmf_qos *)nvmf_qos_find(view->subsystem, NULL);
}

void nvmf_qos_view_fini(struct nvmf_subsystem_view *view)
{
	assert(TAILQ_EMPTY(&view->qos_qpairs));
	thread_timer_stop(&view->qos_timer);
}

/* ---- Control thread ---- */

const struct nvmf_qos *nvmf_qos_find(const struct nvmf_subsystem *s, const char *hostnqn)
{
	const char *name = hostnqn != NULL ? hostnqn : "";
	const struct nvmf_qos *q;

	TAILQ_FOREACH (q, &s->qos, link) {
		if (strcmp(q->hostnqn, name) == 0) {
			return q;
		}
	}
	return NULL;
}

const struct nvmf_qos *nvmf_qos_next(const struct nvmf_subsystem *s, const struct nvmf_qos *after)
{
	return after == NULL ? TAILQ_FIRST(&s->qos) : TAILQ_NEXT(after, link);
}

const char *nvmf_qos_host(const struct nvmf_qos *q)
{
	return q->hostnqn[0] != 0 ? q->hostnqn : NULL;
}

const struct rate_limits *nvmf_qos_limits(const struct nvmf_qos *q)
{
	return &q->limits;
}

void nvmf_qos_get_counts(const struct nvmf_qos *q, struct rate_counts *counts)
{
	*counts = (struct rate_counts){0};
	rate_counters_sum(&q->counters, counts);
}

void nvmf_qos_link(struct nvmf_qpair *qpair, struct nvmf_qos *q)
{
	STAILQ_INIT(&qpair->qos_wait[RATE_READS]);
	STAILQ_INIT(&qpair->qos_wait[RATE_WRITES]);
	qpair->qos = q;
}

struct qos_call {
	const struct nvmf_subsystem *subsystem;
	struct nvmf_poll_group *group; /* the group that is called */
	const char *hostnqn;           /* NULL: all */
	struct nvmf_qos *q;            /* what it has from now on */
};

static void qos_install_on_group(void *arg)
{
	const struct qos_call *call = arg;
	struct nvmf_subsystem_view *view = call->group->views[call->subsystem->index];
	struct nvmf_qpair *qpair;

	if (view == NULL) {
		return;
	}
	if (call->hostnqn == NULL) {
		view->qos = call->q;
		return;
	}
	TAILQ_FOREACH (qpair, &call->group->qpairs, group_link) {
		if (qpair->view == view && strcmp(qpair->hostnqn, call->hostnqn) == 0) {
			qpair->qos = call->q;
		}
	}
}

/* Every group has what was set, and none knows what was there before, when it returns. Queue pairs that connect later
 * get it from their controllers. changes_ns: whether the subsystem has limits at all has changed (NVMF_NS_QOS). */
static void qos_install(struct nvmf_subsystem *s, const char *hostnqn, struct nvmf_qos *q, bool changes_ns)
{
	struct qos_call call = {.subsystem = s, .hostnqn = hostnqn, .q = q};
	struct nvmf_ctrlr *ctrlr;

	TAILQ_FOREACH (ctrlr, &s->ctrlrs, link) {
		if (hostnqn != NULL && strcmp(ctrlr->hostnqn, hostnqn) == 0) {
			ctrlr->qos = q;
		}
	}
	TAILQ_FOREACH (call.group, &s->tgt->groups, link) {
		thread_call(call.group->thread, qos_install_on_group, &call);
	}
	if (changes_ns && s->views_open) {
		nvmf_views_update_all(s);
	}
}

static unsigned qos_count(const struct nvmf_subsystem *s)
{
	const struct nvmf_qos *q;
	unsigned n = 0;

	TAILQ_FOREACH (q, &s->qos, link) {
		n++;
	}
	return n;
}

static int qos_add(struct nvmf_subsystem *s, const char *hostnqn, const struct rate_limits *limits)
{
	struct nvmf_qos *q;

	if (qos_count(s) >= NVMF_QOS_MAX) {
		return -ENOSPC;
	}
	q = calloc(1, sizeof(*q));
	if (q == NULL) {
		return -ENOMEM;
	}
	rate_limiter_init(&q->limiter, env_ticks(), env_ticks_hz());
	rate_limiter_set(&q->limiter, limits);
	q->limits = *limits;
	snprintf(q->hostnqn, sizeof(q->hostnqn), "%s", hostnqn != NULL ? hostnqn : "");
	bool is_first = TAILQ_EMPTY(&s->qos);
	TAILQ_INSERT_TAIL(&s->qos, q, link);
	qos_install(s, hostnqn, q, is_first);
	return 0;
}

int nvmf_subsystem_set_qos(struct nvmf_subsystem *s, const char *hostnqn, const struct rate_limits *limits)
{
	struct nvmf_qos *q = (struct nvmf_qos *)nvmf_qos_find(s, hostnqn);
	int rc = nvmf_subsystem_refuse_change(s, "limits");

	if (rc != 0) {
		return rc;
	}
	if (hostnqn != NULL && !nvmf_nqn_is_valid(hostnqn)) {
		return -EINVAL;
	}
	if (s->subtype == NVMF_SUBTYPE_DISCOVERY) {
		return -EOPNOTSUPP;
	}
	if (q == NULL) {
		return rate_limits_are_set(limits) ? qos_add(s, hostnqn, limits) : 0;
	}
	if (rate_limits_are_set(limits)) {
		q->limits = *limits;
		rate_limiter_set(&q->limiter, limits);
		return 0;
	}
	TAILQ_REMOVE(&s->qos, q, link);
	qos_install(s, hostnqn, NULL, TAILQ_EMPTY(&s->qos));
	free(q);
	return 0;
}

void nvmf_qos_free(struct nvmf_subsystem *s)
{
	struct nvmf_qos *q;

	while ((q = TAILQ_FIRST(&s->qos)) != NULL) {
		TAILQ_REMOVE(&s->qos, q, link);
		free(q);
	}
}
