/* SPDX-License-Identifier: BSD-3-Clause */
/* Rate limits of hosts and of subsystems, and what is guaranteed to a host.
 *
 * A limit is one object for all poll groups, which count in it with atomics. A view knows its subsystem's limit, a
 * queue pair its host's; the control thread changes both in calls to each group, and frees a limit when no group knows
 * it any more. A command that both limits let through is counted by both. One that has to wait is queued at its queue
 * pair. A timer of the view, which runs out when the next command may go, tries all queue pairs in turn. It lets few
 * commands go at once, so that those of other hosts, which have come meanwhile, are between them. Views that wait for
 * the same limit take turns: the next one is of that whose queue pair has waited longest (rate_limiter_claim()). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "bdev/kept_stat.h"
#include "nvmf/command_internal.h"
#include "nvmf/internal.h"
#include "util/share.h"

#define RUN_BUDGET 1024 /* queue pairs that one call of the timer looks at */

struct nvmf_qos {
	struct rate_limiter limiter;
	struct rate_limiter minimum; /* of a host: what is guaranteed to it of the limit of all hosts together */
	struct rate_counters counters;
	_Atomic bool has_minimums; /* of all hosts together: a host has a minimum */
	/* Control thread. */
	struct nvmf_qos_set set;
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

/* How many ticks a command has to wait for each limit; 0: that one lets it go. */
struct qos_ticks {
	uint64_t own, all;
};

/* who: the view, of a command that has waited; NULL: of one that comes. */
static struct qos_ticks qos_ticks_to_wait(const struct nvmf_qos *own, const struct nvmf_qos *all,
					  const struct nvmf_subsystem_view *who, const struct qos_cost *cost)
{
	const struct rate_limiter *minimum = own != NULL ? &own->minimum : NULL;
	struct qos_ticks ticks = {0};
	uint64_t now = thread_now();

	if (own != NULL) {
		ticks.own = rate_limiter_wait(&own->limiter, NULL, who, cost->kind, cost->bytes, now);
	}
	if (all != NULL) {
		ticks.all = rate_limiter_wait(&all->limiter, minimum, who, cost->kind, cost->bytes, now);
	}
	return ticks;
}

static uint64_t qos_ticks_longest(const struct qos_ticks *ticks)
{
	return RTE_MAX(ticks->own, ticks->all);
}

/* Of a command that waits. If it is for both limits, that of its host counts, which would hold it also without the
 * others. */
static enum nvmf_qos_cause qos_cause_of(const struct qos_ticks *ticks)
{
	return ticks->own != 0 ? NVMF_QOS_HOST : NVMF_QOS_ALL;
}

static void qos_take_own(struct nvmf_qos *own, const struct nvmf_subsystem_view *who, const struct qos_cost *cost)
{
	if (own != NULL) {
		rate_limiter_take(&own->limiter, NULL, who, cost->kind, cost->bytes, thread_now());
	}
}

static void qos_take_of_all(struct nvmf_qos *own, struct nvmf_qos *all, const struct nvmf_subsystem_view *who,
			    const struct qos_cost *cost)
{
	struct rate_limiter *minimum = own != NULL ? &own->minimum : NULL;

	if (all != NULL) {
		rate_limiter_take(&all->limiter, minimum, who, cost->kind, cost->bytes, thread_now());
	}
}

static void qos_count(struct nvmf_qos *q, const struct qos_cost *cost)
{
	if (q != NULL) {
		rate_counters_add_io(&q->counters, cost->kind, cost->bytes);
	}
}

static void qos_take(struct nvmf_request *req, const struct nvmf_subsystem_view *who, const struct qos_cost *cost)
{
	struct nvmf_qos *own = req->qpair->qos, *all = req->qpair->view->qos;

	qos_take_own(own, who, cost);
	qos_take_of_all(own, all, who, cost);
	qos_count(own, cost);
	qos_count(all, cost);
	req->qos_counted = true;
}

/* Of a command that does not wait: a limit that is used up does not count it. Otherwise a host could run up a debt for
 * which all others would have to wait. */
static void qos_take_unasked(struct nvmf_request *req, const struct qos_cost *cost)
{
	struct nvmf_qos *own = req->qpair->qos, *all = req->qpair->view->qos;

	if (own != NULL && rate_limiter_allows(&own->limiter, cost->kind, cost->bytes, thread_now())) {
		qos_take_own(own, NULL, cost);
	}
	if (all != NULL && rate_limiter_allows(&all->limiter, cost->kind, cost->bytes, thread_now())) {
		qos_take_of_all(own, all, NULL, cost);
	}
	qos_count(own, cost);
	qos_count(all, cost);
	req->qos_counted = true;
}

/* ---- Waiting ---- */

static struct nvmf_qos *qpair_qos_of_cause(const struct nvmf_qpair *qpair, unsigned cause)
{
	return cause == NVMF_QOS_ALL ? qpair->view->qos : qpair->qos;
}

static void qpair_add_waits(const struct nvmf_qpair *qpair, unsigned cause, uint32_t n)
{
	struct nvmf_qos *q = qpair_qos_of_cause(qpair, cause);

	if (q != NULL && n != 0) {
		rate_counters_add_waits(&q->counters, n);
	}
}

static void line_advance(struct nvmf_qos_line *line)
{
	uint64_t now = thread_now();

	if ((int64_t)(now - line->since_ticks) > 0) {
		line->ticks[line->cause] += now - line->since_ticks;
	}
	line->since_ticks = now;
}

/* Which limit the queue pair's first command of a kind waits for, and with it those behind it. That of the subsystem is
 * shared with others, who must not overtake it. Those that have waited for the other limit only begin to count here. */
static void qpair_set_cause(struct nvmf_qpair *qpair, enum rate_kind kind, enum nvmf_qos_cause cause)
{
	struct nvmf_qos_line *line = &qpair->qos_wait[kind];
	struct nvmf_subsystem_view *view = qpair->view;

	if (line->cause == cause) {
		return;
	}
	line_advance(line);
	view->qos_waits_for_all[kind] += cause == NVMF_QOS_ALL ? 1 : -1u;
	line->cause = (uint8_t)cause;
	line->changes++;
	qpair_add_waits(qpair, cause, line->fresh);
	line->fresh = 0;
}

static bool line_is_empty(const struct nvmf_qos_line *line)
{
	return STAILQ_EMPTY(&line->queue);
}

static bool qpair_has_waiting(const struct nvmf_qpair *qpair)
{
	return !line_is_empty(&qpair->qos_wait[RATE_READS]) || !line_is_empty(&qpair->qos_wait[RATE_WRITES]);
}

static void line_forget(struct nvmf_qos_line *line, const struct nvmf_request *req)
{
	line->fresh -= req->qos_changes == line->changes;
}

/* Commands of that kind have been taken out, and their lines have forgotten them. */
static void qpair_has_fewer_waiting(struct nvmf_qpair *qpair, enum rate_kind kind, uint32_t taken)
{
	qpair->view->qos_waiting[kind] -= taken;
	if (line_is_empty(&qpair->qos_wait[kind])) {
		qpair_set_cause(qpair, kind, NVMF_QOS_HOST);
		qpair->view->qos_lines[kind]--;
	}
	if (qpair->qos_listed && !qpair_has_waiting(qpair)) {
		TAILQ_REMOVE(&qpair->view->qos_qpairs, qpair, qos_link);
		qpair->view->num_qos_qpairs--;
		qpair->qos_listed = false;
	}
}

/* Starts the timer, unless it runs already and ends sooner. It waits at least a microsecond for each queue pair, so
 * that looking at all of them takes only a part of the time. */
static void view_start_timer(struct nvmf_subsystem_view *view, uint64_t wait_ticks)
{
	uint64_t pace_us = RTE_MAX((uint64_t)RATE_PACE_US, view->num_qos_qpairs);
	uint64_t us = rate_pace_us(env_ticks_to_ns(RTE_MIN(wait_ticks, UINT32_MAX)) / 1000, pace_us);
	uint64_t look_ns = env_ticks_to_ns(thread_now()) + us * 1000;

	if (!view->qos_timer.running || look_ns < view->qos_look_ns) {
		view->qos_look_ns = look_ns;
		thread_timer_start(&view->qos_timer, us);
	}
}

static void line_append(struct nvmf_qos_line *line, struct nvmf_request *req)
{
	line_advance(line);
	memcpy(req->qos_ticks, line->ticks, sizeof(req->qos_ticks));
	req->qos_changes = line->changes;
	line->fresh++;
	STAILQ_INSERT_TAIL(&line->queue, req, link);
}

/* wait_ticks: when it may go; UINT64_MAX: when others have gone, who come first. */
static void qos_wait(struct nvmf_request *req, enum rate_kind kind, enum nvmf_qos_cause cause, uint64_t wait_ticks)
{
	struct nvmf_qpair *qpair = req->qpair;
	struct nvmf_subsystem_view *view = qpair->view;
	bool for_all = cause == NVMF_QOS_ALL;

	if (!qpair->qos_listed) {
		TAILQ_INSERT_TAIL(&view->qos_qpairs, qpair, qos_link);
		view->num_qos_qpairs++;
		qpair->qos_listed = true;
	}
	if (line_is_empty(&qpair->qos_wait[kind])) {
		view->qos_lines[kind]++;
		qpair->qos_wait[kind].turn_ticks = thread_now();
		qpair_set_cause(qpair, kind, cause);
	}
	view->qos_waiting[kind]++;
	qpair_add_waits(qpair, cause, 1);
	req->qos_kind = (uint8_t)kind;
	nvmf_request_set_where(req, NVMF_REQUEST_LIMITED);
	line_append(&qpair->qos_wait[kind], req);
	view_start_timer(view, wait_ticks);
	TRACE(NVMF_REQ_LIMITED, qpair->trace_owner, 0, (uintptr_t)req, req->sqe->opcode, for_all, kind);
	USDT(nvmf_qos_wait, req, qpair->hostnqn, view->subsystem->nqn, req->sqe->opcode, for_all);
}

/* Whether commands of a kind may be overtaken by the other kind: they wait for a limit of their own kind only. */
static bool limit_may_be_passed(const struct nvmf_qos *q, enum rate_kind kind)
{
	return q == NULL || !rate_limiter_is_shared(&q->limiter) ||
	       rate_limiter_is_dry_for(&q->limiter, kind, thread_now());
}

/* Whether commands of a kind, of any host, wait for the subsystem's limit. */
static bool view_has_waiting_for_all(const struct nvmf_subsystem_view *view, enum rate_kind kind)
{
	return view->qos != NULL && view->qos_waits_for_all[kind] != 0;
}

/* Whether a command goes by its host's minimum, whoever else waits for the subsystem's limit. */
static bool qos_is_guaranteed(const struct nvmf_qpair *qpair, const struct qos_cost *cost)
{
	const struct nvmf_qos *own = qpair->qos, *all = qpair->view->qos;

	return own != NULL && all != NULL &&
	       rate_limiter_is_covered(&all->limiter, &own->minimum, cost->kind, cost->bytes, thread_now());
}

/* Whether others wait who come first: those of the same kind, and those of the other kind if they wait for a limit of
 * both. *cause: what they wait for. A command that its host's minimum covers passes those of other hosts; it passes the
 * other kind of its own queue pair only where that may be passed anyway. */
static bool qos_others_come_first(const struct nvmf_qpair *qpair, const struct qos_cost *cost,
				  enum nvmf_qos_cause *cause)
{
	const struct nvmf_subsystem_view *view = qpair->view;
	enum rate_kind kind = cost->kind, other = rate_other_kind(kind);
	const struct nvmf_qos_line *line = &qpair->qos_wait[kind], *other_line = &qpair->qos_wait[other];

	if (!line_is_empty(line)) {
		*cause = (enum nvmf_qos_cause)line->cause;
		return true;
	}
	bool others_wait = view_has_waiting_for_all(view, kind) ||
			   (view_has_waiting_for_all(view, other) && !limit_may_be_passed(view->qos, other));
	if (others_wait &&
	    !(qos_is_guaranteed(qpair, cost) && (line_is_empty(other_line) || limit_may_be_passed(view->qos, other)))) {
		*cause = NVMF_QOS_ALL;
		return true;
	}
	*cause = NVMF_QOS_HOST;
	return !line_is_empty(other_line) && other_line->cause == NVMF_QOS_HOST &&
	       !limit_may_be_passed(qpair->qos, other);
}

bool nvmf_qos_hold(struct nvmf_request *req, const struct nvmf_command *cmd, const struct nvmf_ns_view *nsv)
{
	struct nvmf_qpair *qpair = req->qpair;
	struct nvmf_qos *own = qpair->qos, *all = qpair->view->qos;
	enum nvmf_qos_cause cause;
	struct qos_cost cost;

	if (req->qos_counted || (own == NULL && all == NULL) || !qos_cost_of(req, cmd, nsv, &cost)) {
		return false;
	}
	if (req->fuse != NVME_FUSE_NONE) {
		qos_take_unasked(req, &cost);
		return false;
	}
	if (qos_others_come_first(qpair, &cost, &cause)) {
		qos_wait(req, cost.kind, cause, UINT64_MAX);
		return true;
	}
	struct qos_ticks ticks = qos_ticks_to_wait(own, all, NULL, &cost);
	if (qos_ticks_longest(&ticks) != 0) {
		qos_wait(req, cost.kind, qos_cause_of(&ticks), qos_ticks_longest(&ticks));
		return true;
	}
	qos_take(req, NULL, &cost);
	return false;
}

/* ---- Going on ---- */

/* A command leaves its line because it may go: how long it has waited is counted for each limit that held it. */
static void qos_count_waited(const struct nvmf_request *req, unsigned nth)
{
	const struct nvmf_qpair *qpair = req->qpair;
	const struct nvmf_qos_line *line = &qpair->qos_wait[req->qos_kind];
	uint64_t us[NVMF_QOS_CAUSES];

	for (unsigned c = 0; c < NVMF_QOS_CAUSES; c++) {
		struct nvmf_qos *q = qpair_qos_of_cause(qpair, c);
		us[c] = env_ticks_to_ns(line->ticks[c] - req->qos_ticks[c]) / 1000;
		if (q != NULL && us[c] != 0) {
			rate_counters_add_waited(&q->counters, us[c]);
		}
	}
	TRACE(NVMF_REQ_LIMIT_PASSED, qpair->trace_owner, 0, (uintptr_t)req, req->sqe->opcode,
	      (uint32_t)RTE_MIN(us[NVMF_QOS_HOST], UINT32_MAX), (uint32_t)RTE_MIN(us[NVMF_QOS_ALL], UINT32_MAX), nth);
}

static void qos_go(struct nvmf_request *req)
{
	nvmf_request_set_where(req, NVMF_REQUEST_TRANSPORT);
	if (req->qpair->state != NVMF_QPAIR_ENABLED) {
		nvmf_request_finish(req, nvmf_qpair_end_status(req->qpair));
	} else {
		nvmf_io_restart(req);
	}
}

/* The first command of a line may not go: it gets the next turn of a limit before those that have waited less. */
static void qpair_claim(struct nvmf_qpair *qpair, struct nvmf_qos *q, const struct qos_cost *cost)
{
	uint64_t open_ticks = rate_limiter_claim(&q->limiter, qpair->view, qpair->qos_wait[cost->kind].turn_ticks,
						 cost->kind, cost->bytes, thread_now());

	if (open_ticks != 0) {
		uint64_t open_us = env_ticks_to_ns(RTE_MIN(open_ticks, UINT32_MAX)) / 1000;
		TRACE(NVMF_LIMIT_CLAIM, qpair->trace_owner, 0, 0, q == qpair->view->qos, cost->kind, open_us);
	}
}

/* Lets the first waiting command of a kind go, if both limits allow it; then it is the other kind's turn. nth: its
 * number among those that go at once. Returns 0: it went; otherwise in how many ticks it may, or UINT64_MAX: there is
 * none.
 */
static uint64_t qpair_release_first(struct nvmf_qpair *qpair, enum rate_kind kind, unsigned nth)
{
	struct nvmf_qos_line *line = &qpair->qos_wait[kind];
	struct nvmf_request *req = STAILQ_FIRST(&line->queue);
	struct nvmf_subsystem_view *view = qpair->view;

	if (req == NULL) {
		return UINT64_MAX;
	}
	struct qos_cost cost = qos_waiting_cost(req);
	struct qos_ticks ticks = qos_ticks_to_wait(qpair->qos, view->qos, view, &cost);
	if (qos_ticks_longest(&ticks) != 0) {
		qpair_set_cause(qpair, kind, qos_cause_of(&ticks));
		qpair_claim(qpair, ticks.own >= ticks.all ? qpair->qos : view->qos, &cost); /* of that which is last */
		return qos_ticks_longest(&ticks);
	}
	line_advance(line);
	line->turn_ticks = thread_now();
	qos_count_waited(req, nth);
	qos_take(req, view, &cost);
	STAILQ_REMOVE_HEAD(&line->queue, link);
	line_forget(line, req);
	qpair->qos_turn = (uint8_t)rate_other_kind(kind);
	qpair_has_fewer_waiting(qpair, kind, 1);
	qos_go(req);
	return 0;
}

/* The same of a queue pair, whichever kind may go first. If a command went, the queue pair may have ended. */
static uint64_t qpair_release_one(struct nvmf_qpair *qpair, unsigned nth)
{
	enum rate_kind kind = (enum rate_kind)qpair->qos_turn;
	uint64_t wait_ticks = qpair_release_first(qpair, kind, nth);

	if (wait_ticks != 0) {
		uint64_t other = qpair_release_first(qpair, rate_other_kind(kind), nth);
		wait_ticks = RTE_MIN(wait_ticks, other);
	}
	return wait_ticks;
}

/* Returns UINT64_MAX if nothing of that kind waits. */
static uint64_t qos_dry_ticks(const struct nvmf_subsystem_view *view, enum rate_kind kind)
{
	return view->qos_waiting[kind] != 0 ? rate_limiter_wait(&view->qos->limiter, NULL, view, kind, 1, thread_now())
					    : UINT64_MAX;
}

/* Whether all that waits waits for the limit of all, which nothing passes by a minimum. */
static bool view_waits_for_all(const struct nvmf_subsystem_view *view)
{
	return view->qos != NULL && !atomic_load_explicit(&view->qos->has_minimums, memory_order_relaxed) &&
	       view->qos_waits_for_all[RATE_READS] == view->qos_lines[RATE_READS] &&
	       view->qos_waits_for_all[RATE_WRITES] == view->qos_lines[RATE_WRITES];
}

/* For the queue pair whose turn is next. */
static void view_claim(struct nvmf_subsystem_view *view)
{
	struct nvmf_qpair *qpair = TAILQ_FIRST(&view->qos_qpairs);

	for (enum rate_kind kind = RATE_READS; kind < RATE_KINDS; kind++) {
		if (!line_is_empty(&qpair->qos_wait[kind])) {
			struct qos_cost cost = qos_waiting_cost(STAILQ_FIRST(&qpair->qos_wait[kind].queue));
			qpair_claim(qpair, view->qos, &cost);
		}
	}
}

/* Whether the subsystem's limit lets nothing go of what waits: without looking at each queue pair. */
static bool view_is_dry(struct nvmf_subsystem_view *view)
{
	if (!view_waits_for_all(view)) {
		return false;
	}
	uint64_t reads = qos_dry_ticks(view, RATE_READS), writes = qos_dry_ticks(view, RATE_WRITES);
	uint64_t wait_ticks = RTE_MIN(reads, writes);
	if (wait_ticks != 0) {
		view->qos_wait_ticks = RTE_MIN(view->qos_wait_ticks, wait_ticks);
		view_claim(view);
	}
	return wait_ticks != 0;
}

/* One command of each queue pair in turn, so that each gets its share of the subsystem's limit. What goes on may end
 * any queue pair, so none is held across it. Returns false if batch or the budget did not suffice. */
static bool view_run_limited(struct nvmf_subsystem_view *view, unsigned batch)
{
	unsigned budget = RUN_BUDGET, went = 0;
	struct nvmf_qpair *qpair;

	while ((qpair = TAILQ_FIRST(&view->qos_qpairs)) != NULL && view->qos_fruitless < view->num_qos_qpairs &&
	       !view_is_dry(view)) {
		if (budget-- == 0 || went == batch) {
			return false;
		}
		TAILQ_REMOVE(&view->qos_qpairs, qpair, qos_link);
		TAILQ_INSERT_TAIL(&view->qos_qpairs, qpair, qos_link);
		uint64_t wait_ticks = qpair_release_one(qpair, went + 1);
		if (wait_ticks == 0) {
			went++;
			view->qos_fruitless = 0;
			view->qos_wait_ticks = UINT64_MAX;
		} else {
			view->qos_fruitless++;
			view->qos_wait_ticks = RTE_MIN(view->qos_wait_ticks, wait_ticks);
		}
	}
	return true;
}

static unsigned view_batch(const struct nvmf_subsystem_view *view)
{
	uint64_t ticks = view->qos_batch_ticks != 0 ? thread_now() - view->qos_batch_ticks : 0;

	return rate_batch(env_ticks_to_ns(ticks) / 1000);
}

static void qos_timer(void *arg)
{
	struct nvmf_subsystem_view *view = arg;
	uint64_t now = thread_now();

	thread_absence_check();
	bool all = view_run_limited(view, view_batch(view));
	view->qos_batch_ticks = all ? 0 : now;
	if (!all) {
		view->qos_look_ns = 0;
		thread_timer_start(&view->qos_timer, 0); /* the next ones in turn, when others have had theirs */
		return;
	}
	if (!TAILQ_EMPTY(&view->qos_qpairs)) {
		view_start_timer(view, view->qos_wait_ticks);
	}
	view->qos_fruitless = 0;
	view->qos_wait_ticks = UINT64_MAX;
}

/* ---- Taking back ---- */

void nvmf_qos_unwait(struct nvmf_request *req)
{
	struct nvmf_qpair *qpair = req->qpair;

	STAILQ_REMOVE(&qpair->qos_wait[req->qos_kind].queue, req, nvmf_request, link);
	line_forget(&qpair->qos_wait[req->qos_kind], req);
	qpair_has_fewer_waiting(qpair, (enum rate_kind)req->qos_kind, 1);
	nvmf_request_set_where(req, NVMF_REQUEST_TRANSPORT);
}

/* Moves the commands of a namespace, or of all, from a line to the end of a queue. Returns their number. */
static uint32_t line_move(struct nvmf_qos_line *line, struct nvmf_request_queue *to, uint32_t nsid)
{
	struct nvmf_request_queue all = STAILQ_HEAD_INITIALIZER(all);
	struct nvmf_request *req;
	uint32_t moved = 0;

	STAILQ_CONCAT(&all, &line->queue);
	while ((req = STAILQ_FIRST(&all)) != NULL) {
		STAILQ_REMOVE_HEAD(&all, link);
		if (nsid == NVME_NSID_ALL || le32toh(req->sqe->nsid) == nsid) {
			line_forget(line, req);
			STAILQ_INSERT_TAIL(to, req, link);
			moved++;
		} else {
			STAILQ_INSERT_TAIL(&line->queue, req, link);
		}
	}
	return moved;
}

static void qpair_take_waiting(struct nvmf_qpair *qpair, uint32_t nsid, struct nvmf_request_queue *to)
{
	for (enum rate_kind kind = RATE_READS; kind < RATE_KINDS; kind++) {
		uint32_t taken = line_move(&qpair->qos_wait[kind], to, nsid);
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
	view->qos_wait_ticks = UINT64_MAX;
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
	return &q->set.limits;
}

const struct rate_limits *nvmf_qos_minimum(const struct nvmf_qos *q)
{
	return &q->set.minimum;
}

void nvmf_qos_get_counts(const struct nvmf_qos *q, struct rate_counts *counts)
{
	*counts = (struct rate_counts){0};
	rate_counters_sum(&q->counters, counts);
}

void nvmf_qos_link(struct nvmf_qpair *qpair, struct nvmf_qos *q)
{
	STAILQ_INIT(&qpair->qos_wait[RATE_READS].queue);
	STAILQ_INIT(&qpair->qos_wait[RATE_WRITES].queue);
	qpair->qos = q;
}

struct qos_call {
	const struct nvmf_subsystem *subsystem;
	struct nvmf_poll_group *group; /* the group that is called */
	const char *hostnqn;           /* NULL: all */
	struct nvmf_qos *q;            /* what it has from now on */
};

/* The limit is another one from now on: what has been waited until now is not counted for it. */
static void qpair_forget_waited(struct nvmf_qpair *qpair, enum nvmf_qos_cause cause)
{
	struct nvmf_request *req;

	for (enum rate_kind kind = RATE_READS; kind < RATE_KINDS; kind++) {
		struct nvmf_qos_line *line = &qpair->qos_wait[kind];
		line_advance(line);
		STAILQ_FOREACH (req, &line->queue, link) {
			req->qos_ticks[cause] = line->ticks[cause];
		}
	}
}

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
		TAILQ_FOREACH (qpair, &view->qos_qpairs, qos_link) {
			qpair_forget_waited(qpair, NVMF_QOS_ALL);
		}
		return;
	}
	TAILQ_FOREACH (qpair, &call->group->qpairs, group_link) {
		if (qpair->view == view && strcmp(qpair->hostnqn, call->hostnqn) == 0) {
			qpair->qos = call->q;
			qpair_forget_waited(qpair, NVMF_QOS_HOST);
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

static unsigned qos_number_of(const struct nvmf_subsystem *s)
{
	const struct nvmf_qos *q;
	unsigned n = 0;

	TAILQ_FOREACH (q, &s->qos, link) {
		n++;
	}
	return n;
}

static void qos_apply(struct nvmf_qos *q, const struct nvmf_qos_set *set)
{
	q->set = *set;
	rate_limiter_set(&q->limiter, &set->limits, env_ticks());
	rate_limiter_set(&q->minimum, &set->minimum, env_ticks());
}

/* What was counted under a limit of that name before: in a process that this one has taken over from. */
static void qos_take_counts(struct nvmf_subsystem *s, struct nvmf_qos *q)
{
	struct nvmf_kept_set set = nvmf_kept_set("limits", s->tgt, s->nqn);
	struct rate_counts counts = {0};

	kept_stat_take_rates(set.name, q->hostnqn, &counts);
	rate_counters_set(&q->counters, &counts);
}

static int qos_add(struct nvmf_subsystem *s, const char *hostnqn, const struct nvmf_qos_set *set)
{
	struct nvmf_qos *q;

	if (qos_number_of(s) >= NVMF_QOS_MAX) {
		return -ENOSPC;
	}
	q = calloc(1, sizeof(*q));
	if (q == NULL) {
		return -ENOMEM;
	}
	rate_limiter_init(&q->limiter, env_ticks_hz());
	rate_limiter_init(&q->minimum, env_ticks_hz());
	qos_apply(q, set);
	snprintf(q->hostnqn, sizeof(q->hostnqn), "%s", hostnqn != NULL ? hostnqn : "");
	qos_take_counts(s, q);
	bool is_first = TAILQ_EMPTY(&s->qos);
	TAILQ_INSERT_TAIL(&s->qos, q, link);
	qos_install(s, hostnqn, q, is_first);
	return 0;
}

static void qos_remove(struct nvmf_subsystem *s, struct nvmf_qos *q, const char *hostnqn)
{
	TAILQ_REMOVE(&s->qos, q, link);
	qos_install(s, hostnqn, NULL, TAILQ_EMPTY(&s->qos));
	free(q);
}

struct rate_limits nvmf_qos_minimums(const struct nvmf_subsystem *s, const char *without)
{
	struct rate_limits sum = {0};
	const struct nvmf_qos *q;

	TAILQ_FOREACH (q, &s->qos, link) {
		if (without == NULL || strcmp(q->hostnqn, without) != 0) {
			share_sum(&sum, &q->set.minimum);
		}
	}
	return sum;
}

/* Whether the minimums can be kept when a host, or all hosts together, have this. */
static bool qos_minimums_fit(const struct nvmf_subsystem *s, const char *hostnqn, const struct nvmf_qos_set *set,
			     enum rate_bucket_id *id)
{
	const struct nvmf_qos *all = nvmf_qos_find(s, NULL);
	struct rate_limits sum = nvmf_qos_minimums(s, hostnqn);

	if (hostnqn == NULL) {
		return share_sum_fits(&set->limits, &sum, id);
	}
	share_sum(&sum, &set->minimum);
	return all == NULL || share_sum_fits(&all->set.limits, &sum, id);
}

static void qos_note_minimums(struct nvmf_subsystem *s)
{
	struct nvmf_qos *all = (struct nvmf_qos *)nvmf_qos_find(s, NULL);
	struct rate_limits sum = nvmf_qos_minimums(s, NULL);

	if (all != NULL) {
		atomic_store_explicit(&all->has_minimums, rate_limits_are_set(&sum), memory_order_relaxed);
	}
}

static int qos_refuse(const struct nvmf_subsystem *s, const char *hostnqn, const struct nvmf_qos_set *set,
		      enum rate_bucket_id *id)
{
	int rc = nvmf_subsystem_refuse_change(s, "limits");

	if (rc != 0) {
		return rc;
	}
	if (hostnqn != NULL ? !nvmf_nqn_is_valid(hostnqn) : rate_limits_are_set(&set->minimum)) {
		return -EINVAL;
	}
	if (s->subtype == NVMF_SUBTYPE_DISCOVERY) {
		return -EOPNOTSUPP;
	}
	return qos_minimums_fit(s, hostnqn, set, id) ? 0 : -ERANGE;
}

int nvmf_subsystem_set_qos(struct nvmf_subsystem *s, const char *hostnqn, const struct nvmf_qos_set *set,
			   enum rate_bucket_id *id)
{
	struct nvmf_qos *q = (struct nvmf_qos *)nvmf_qos_find(s, hostnqn);
	bool is_set = rate_limits_are_set(&set->limits) || rate_limits_are_set(&set->minimum);
	int rc = qos_refuse(s, hostnqn, set, id);

	if (rc != 0) {
		return rc;
	}
	if (q == NULL) {
		rc = is_set ? qos_add(s, hostnqn, set) : 0;
	} else if (is_set) {
		qos_apply(q, set);
	} else {
		qos_remove(s, q, hostnqn);
	}
	qos_note_minimums(s);
	return rc;
}

void nvmf_qos_free(struct nvmf_subsystem *s)
{
	struct nvmf_kept_set set = nvmf_kept_set("limits", s->tgt, s->nqn);
	struct rate_counts counts;
	struct nvmf_qos *q;

	while ((q = TAILQ_FIRST(&s->qos)) != NULL) {
		nvmf_qos_get_counts(q, &counts);
		kept_stat_note_rates(set.name, q->hostnqn, &counts);
		TAILQ_REMOVE(&s->qos, q, link);
		free(q);
	}
}
