/* SPDX-License-Identifier: BSD-3-Clause */
/* Statistics, queue-depth sampling, lists of I/O in flight, and reports of I/O that takes too long or fails. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <stdatomic.h>
#include <stdio.h>

#include "bdev/internal.h"
#include "bdev/kept_stat.h"
#include "bdev/qos_group.h"

/* --- Statistics --- */

void bdev_stat_init(struct bdev_stat *s)
{
	memset(s, 0, sizeof(*s));
	for (unsigned i = 0; i < BDEV_STAT_CLASSES; i++) {
		s->class[i].min_ticks = UINT64_MAX;
	}
}

static void stat_add_errors(struct bdev_stat *s, uint16_t status, uint64_t count)
{
	for (unsigned i = 0; i < BDEV_STAT_ERRORS; i++) {
		struct bdev_stat_error *e = &s->errors[i];
		if (e->count == 0 || e->status == status || i == BDEV_STAT_ERRORS - 1) {
			e->status = e->count == 0 ? status : e->status;
			e->count += count;
			return;
		}
	}
}

void bdev_stat_error(struct bdev_stat *s, uint16_t status)
{
	stat_add_errors(s, status & BDEV_STATUS_MASK, 1);
	s->faults += bdev_status_is_fault(status);
}

void bdev_stat_add(struct bdev_stat *sum, const struct bdev_stat *s)
{
	for (unsigned i = 0; i < BDEV_STAT_CLASSES; i++) {
		struct bdev_stat_ops *to = &sum->class[i];
		const struct bdev_stat_ops *from = &s->class[i];
		to->ops += from->ops;
		to->bytes += from->bytes;
		to->ticks += from->ticks;
		to->max_ticks = from->max_ticks > to->max_ticks ? from->max_ticks : to->max_ticks;
		to->min_ticks = from->min_ticks < to->min_ticks ? from->min_ticks : to->min_ticks;
	}
	for (unsigned i = 0; i < BDEV_STAT_ERRORS; i++) {
		if (s->errors[i].count != 0) {
			stat_add_errors(sum, s->errors[i].status, s->errors[i].count);
		}
	}
	sum->faults += s->faults;
	latency_histogram_add(&sum->reads, &s->reads);
	latency_histogram_add(&sum->writes, &s->writes);
	sum->queue_depth += s->queue_depth;
	sum->nomem_waits += s->nomem_waits;
	sum->qos_waits += s->qos_waits;
	sum->child_waits += s->child_waits;
}

void bdev_stat_settle(struct bdev_stat *s)
{
	latency_histogram_settle(&s->reads, s->class[BDEV_STAT_READ].ops);
	latency_histogram_settle(&s->writes, s->class[BDEV_STAT_WRITE].ops);
}

/* --- Statistics that outlive their bdev --- */

#define STAT_CLASSES(name_, member_, ...)                                                                              \
	KEPT_STAT_ARRAY(struct bdev_stat, name_, class[0].member_, class, ##__VA_ARGS__)
#define STAT_HISTOGRAM(name_, member_) KEPT_STAT_ARRAY(struct bdev_stat, name_, member_.buckets[0], member_.buckets)
static const struct kept_stat_field stat_field_list[] = {
	STAT_CLASSES("ios", ops),
	STAT_CLASSES("bytes", bytes),
	STAT_CLASSES("ns", ticks, .type = KEPT_STAT_TICKS),
	STAT_CLASSES("max_ns", max_ticks, .type = KEPT_STAT_TICKS),
	STAT_CLASSES("min_ns", min_ticks, .type = KEPT_STAT_TICKS),
	KEPT_STAT_ARRAY(struct bdev_stat, "errors", errors[0].count, errors),
	KEPT_STAT_ARRAY(struct bdev_stat, "error_statuses", errors[0].status, errors, .type = KEPT_STAT_U16),
	KEPT_STAT(struct bdev_stat, "faults", faults),
	KEPT_STAT(struct bdev_stat, "nomem_waits", nomem_waits),
	KEPT_STAT(struct bdev_stat, "qos_waits", qos_waits),
	KEPT_STAT(struct bdev_stat, "child_waits", child_waits),
	STAT_HISTOGRAM("reads", reads),
	STAT_HISTOGRAM("writes", writes),
};
static const struct kept_stat_fields stat_fields = {stat_field_list, ARRAY_SIZE(stat_field_list)};
static const char stat_set[] = "bdev";

void bdev_stat_note(const struct bdev *b)
{
	kept_stat_note(stat_set, b->name, &stat_fields, &b->core->closed_stat);
}

void bdev_stat_take(struct bdev *b)
{
	struct bdev_stat s;

	if (kept_stat_first(stat_set) == NULL) { /* nearly always */
		return;
	}
	bdev_stat_init(&s);
	if (kept_stat_take(stat_set, b->name, &stat_fields, &s)) {
		bdev_stat_add(&b->core->closed_stat, &s); /* adds up the histograms, too */
	}
}

/* A call of bdev_get_stats(). */
struct stat_walk {
	struct bdev_core *next; /* the first of those that are still to be visited on the thread that is asked now */
	uint64_t piece_ticks;
	size_t visits; /* of a bdev on a thread */
};

/* From here on, what channels leave that go before their turn is added to stat. */
static void stat_begin(struct bdev_core *core, struct bdev_stat *stat)
{
	bdev_stat_init(stat);
	pthread_mutex_lock(&core->mutex);
	bdev_stat_add(stat, &core->closed_stat);
	assert(core->round_stat == NULL); /* no bdev is in the list twice */
	core->stat_rounds++;
	core->round_stat = stat;
	pthread_mutex_unlock(&core->mutex);
}

static void stat_end(struct bdev_core *core)
{
	pthread_mutex_lock(&core->mutex);
	core->round_stat = NULL;
	pthread_mutex_unlock(&core->mutex);
}

/* Adds what the calling thread's channel has counted, if there is one. The mutex: other threads' channels may go, and
 * add to the same sum. */
static void stat_add_here(struct bdev_core *core, struct bdev_stat *sum)
{
	pthread_mutex_lock(&core->mutex);
	struct bdev_channel *ch = bdev_channel_on(core, thread_current());
	if (ch != NULL) {
		bdev_stat_settle(&ch->stat);
		bdev_stat_add(sum, &ch->stat);
		sum->queue_depth += ch->qd;
		ch->stat_round = core->stat_rounds;
	}
	pthread_mutex_unlock(&core->mutex);
}

/* Runs on a thread that has channels: one piece of its part. It ends no I/O, so it calls nobody back. */
static void stat_collect_piece(void *arg)
{
	struct stat_walk *w = arg;
	uint64_t begin = env_ticks();

	do {
		stat_add_here(w->next, w->next->round_stat);
		w->next = w->next->round_next;
		w->visits++;
	} while (w->next != NULL && env_ticks() - begin < w->piece_ticks);
}

/* Chains the bdevs of which t has a channel, so that t looks at no other. Returns the first, or NULL. */
static struct bdev_core *stat_chain(struct bdev *const *list, size_t n, const struct thread *t)
{
	struct bdev_core *first = NULL, **end = &first;

	for (size_t i = 0; i < n; i++) {
		struct bdev_core *core = list[i]->core;
		pthread_mutex_lock(&core->mutex);
		bool found = bdev_channel_on(core, t) != NULL;
		pthread_mutex_unlock(&core->mutex);
		if (found) {
			*end = core;
			end = &core->round_next;
		}
	}
	*end = NULL;
	return first;
}

/* Each channel counts once: a channel that goes meanwhile counts as it was when its thread was asked, or else as it
 * went. */
size_t bdev_get_stats_by(struct bdev *const *list, struct bdev_stat *stats, size_t n, uint64_t piece_us)
{
	struct stat_walk w = {.piece_ticks = env_us_to_ticks(piece_us)};

	for (size_t i = 0; i < n; i++) {
		stat_begin(list[i]->core, &stats[i]);
	}
	for (struct thread *t = NULL; (t = thread_next(t)) != NULL;) {
		w.next = stat_chain(list, n, t);
		while (w.next != NULL) {
			thread_call(t, stat_collect_piece, &w);
		}
	}
	for (size_t i = 0; i < n; i++) {
		stat_end(list[i]->core);
	}
	return w.visits;
}

/* For which a reactor may be held. The I/O of its hosts waits as long, so it is little beside what a command over the
 * network takes under load; and it is much beside the message that each piece costs. */
#define STAT_PIECE_US 200

void bdev_get_stats(struct bdev *const *list, struct bdev_stat *stats, size_t n)
{
	bdev_get_stats_by(list, stats, n, STAT_PIECE_US);
}

void bdev_get_stat(struct bdev *b, struct bdev_stat *stat)
{
	bdev_get_stats(&b, stat, 1);
}

static uint64_t peek(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

static void stat_add_peeked(struct bdev_stat *sum, const struct bdev_stat *s)
{
	for (unsigned i = 0; i < BDEV_STAT_CLASSES; i++) {
		sum->class[i].ops += peek(&s->class[i].ops);
		sum->class[i].bytes += peek(&s->class[i].bytes);
		sum->class[i].ticks += peek(&s->class[i].ticks);
	}
	for (unsigned i = 0; i < BDEV_STAT_ERRORS; i++) {
		uint64_t count = peek(&s->errors[i].count);
		if (count != 0) {
			stat_add_errors(sum, __atomic_load_n(&s->errors[i].status, __ATOMIC_RELAXED), count);
		}
	}
	sum->faults += peek(&s->faults);
	latency_histogram_add(&sum->reads, &s->reads);
	latency_histogram_add(&sum->writes, &s->writes);
}

void bdev_peek_stat(struct bdev *b, struct bdev_stat *stat)
{
	struct bdev_channel *ch;

	bdev_stat_init(stat);
	/* A channel is in the list as long as it is there. Its thread changes its counters meanwhile, each by one
	 * store. */
	pthread_mutex_lock(&b->core->mutex);
	stat_add_peeked(stat, &b->core->closed_stat);
	TAILQ_FOREACH (ch, &b->core->channels, link) {
		stat_add_peeked(stat, &ch->stat);
		stat->queue_depth += __atomic_load_n(&ch->qd, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&b->core->mutex);
}

/* What the layer has learned about the times of I/O is no statistic. */
static void stat_reset_all(struct bdev_stat *s)
{
	struct bdev_stat old = *s;

	bdev_stat_init(s);
	for (unsigned i = 0; i < BDEV_STAT_CLASSES; i++) {
		s->class[i].correction = old.class[i].correction;
	}
}

static void stat_reset(struct bdev_stat *s, enum bdev_stat_reset what)
{
	switch (what) {
	case BDEV_STAT_RESET_NONE:
		break;
	case BDEV_STAT_RESET_ALL:
		stat_reset_all(s);
		break;
	case BDEV_STAT_RESET_MAXMIN:
		for (unsigned i = 0; i < BDEV_STAT_CLASSES; i++) {
			s->class[i].max_ticks = 0;
			s->class[i].min_ticks = UINT64_MAX;
		}
		break;
	case BDEV_STAT_RESET_ERROR:
		memset(s->errors, 0, sizeof(s->errors));
		s->faults = 0;
		break;
	}
}

static void visit_reset(struct bdev_channel *ch, void *arg)
{
	stat_reset(&ch->stat, *(const enum bdev_stat_reset *)arg);
	memset(ch->until_sample, 1, sizeof(ch->until_sample)); /* the next ones: there is no shortest time before */
}

void bdev_reset_stat(struct bdev *b, enum bdev_stat_reset what)
{
	if (what == BDEV_STAT_RESET_NONE) {
		return; /* and the choice of samples stays */
	}
	bdev_visit_channels(b, visit_reset, &what);
	pthread_mutex_lock(&b->core->mutex);
	stat_reset(&b->core->closed_stat, what);
	pthread_mutex_unlock(&b->core->mutex);
	if ((what == BDEV_STAT_RESET_ALL || what == BDEV_STAT_RESET_ERROR) && b->ops->reset_stat != NULL) {
		b->ops->reset_stat(b);
	}
}

struct per_channel {
	void (*fn)(void *arg, uint64_t thread_id, const struct bdev_stat *stat);
	void *arg;
};

static void visit_each(struct bdev_channel *ch, void *arg)
{
	const struct per_channel *p = arg;
	struct bdev_stat stat = ch->stat;

	stat.queue_depth = ch->qd;
	p->fn(p->arg, thread_id(ch->thread->thread), &stat);
}

void bdev_for_each_channel_stat(struct bdev *b, void (*fn)(void *arg, uint64_t thread_id, const struct bdev_stat *stat),
				void *arg)
{
	struct per_channel p = {.fn = fn, .arg = arg};
	bdev_visit_channels(b, visit_each, &p);
}

/* --- Queue-depth sampling --- */

/* Reads the counters from the control thread, so that idle reactors are not woken for each sample: they would stay
 * awake for an idle spell each time. A sample may be off by what is submitted or ends at that moment. The mutex keeps
 * the channels. */
__attribute__((no_sanitize("thread"))) static uint64_t qd_read(struct bdev_core *core)
{
	const struct bdev_channel *ch;
	uint64_t qd = 0;

	pthread_mutex_lock(&core->mutex);
	TAILQ_FOREACH (ch, &core->channels, link) {
		qd += __atomic_load_n(&ch->qd, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&core->mutex);
	return qd;
}

static void qd_sample(void *arg)
{
	struct bdev_core *core = arg;
	struct bdev_qd_sampling *s = &core->qd;
	uint64_t now = env_ticks();
	uint64_t elapsed_us = env_ticks_to_ns(now - core->qd_last_ticks) / 1000;
	uint64_t qd = qd_read(core);

	s->queue_depth = qd;
	s->io_time_us += qd != 0 ? elapsed_us : 0;
	s->weighted_io_time_us += qd * elapsed_us;
	core->qd_last_ticks = now;
	thread_timer_start(&core->qd_timer, s->period_us);
}

void bdev_set_qd_sampling_period(struct bdev *b, uint64_t period_us)
{
	struct bdev_core *core = b->core;

	thread_timer_stop(&core->qd_timer);
	core->qd = (struct bdev_qd_sampling){.period_us = period_us};
	if (period_us != 0) {
		core->qd_last_ticks = env_ticks();
		core->qd_timer.fn = qd_sample;
		core->qd_timer.arg = core;
		thread_timer_start(&core->qd_timer, period_us);
	}
}

void bdev_get_qd_sampling(const struct bdev *b, struct bdev_qd_sampling *s)
{
	*s = b->core->qd;
}

/* --- In flight --- */

struct inflight_walk {
	bool (*fn)(void *arg, const struct bdev_inflight *one);
	void *arg;
};

static void describe_limit(const struct bdev_io *io, char *text, size_t size)
{
	const struct bdev_qos_group *g = bdev_qos_waits_for_group(io);

	if (g != NULL) {
		snprintf(text, size, "rate limit of the group %s", bdev_qos_group_name(g));
	} else {
		snprintf(text, size, "rate limit of the bdev");
	}
}

static void visit_inflight(struct bdev_channel *ch, void *arg)
{
	const struct inflight_walk *w = arg;
	const struct bdev_io *io;
	uint64_t now = env_ticks();

	TAILQ_FOREACH (io, &ch->inflight, link) {
		bool has_children = io->state == BDEV_IO_SPLIT || io->state == BDEV_IO_WAIT_CHILD ||
				    (io->state == BDEV_IO_MODULE && (io->flags & IO_CHILDREN));
		struct bdev_inflight one = {
			.io = io,
			.ctx = io->cb_arg,
			.thread_id = thread_id(ch->thread->thread),
			.age_ticks = now > io->submit_ticks ? now - io->submit_ticks : 0,
			.offset_blocks = io->offset_blocks,
			.num_blocks = io->num_blocks,
			.type = io->type,
			.state = io->state,
			.children = has_children ? io->children : 0,
		};
		if (io->state == BDEV_IO_MODULE && ch->bdev->ops->describe_io != NULL) {
			ch->bdev->ops->describe_io((struct bdev_io *)io, one.waits_for, sizeof(one.waits_for));
		} else if (io->state == BDEV_IO_WAIT_QOS) {
			describe_limit(io, one.waits_for, sizeof(one.waits_for));
		}
		if (!w->fn(w->arg, &one)) {
			return;
		}
	}
}

void bdev_for_each_inflight(struct bdev *b, bool (*fn)(void *arg, const struct bdev_inflight *one), void *arg)
{
	struct inflight_walk w = {.fn = fn, .arg = arg};
	bdev_visit_channels(b, visit_inflight, &w);
}

/* --- Timeouts --- */

#define TIMEOUT_REPORTS 64 /* per check */

struct timeout_check {
	uint64_t timeout_ticks, since_ticks;
	uint32_t n;
	struct bdev_inflight late[TIMEOUT_REPORTS];
};

/* Collects I/Os whose age has passed a multiple of the limit since the last check. On the channels' threads. */
static bool timeout_collect(void *arg, const struct bdev_inflight *one)
{
	struct timeout_check *c = arg;

	if (one->age_ticks < c->timeout_ticks) {
		return false; /* and so have all younger ones */
	}
	uint64_t then = one->age_ticks > c->since_ticks ? one->age_ticks - c->since_ticks : 0;
	if (one->age_ticks / c->timeout_ticks > then / c->timeout_ticks && c->n < TIMEOUT_REPORTS) {
		c->late[c->n++] = *one;
	}
	return true;
}

static void timeout_report(struct bdev_core *core, const struct bdev_inflight *one)
{
	const struct thread *t = thread_by_id(one->thread_id);

	log_warning("bdev %s: %s of %lu blocks at %lu has been in flight for %lu ms: io %p for %p on thread "
		    "%s, state %s",
		    core->bdev->name, bdev_io_type_name(one->type), one->num_blocks, one->offset_blocks,
		    env_ticks_to_ns(one->age_ticks) / 1000000, (const void *)one->io, one->ctx,
		    t != NULL ? thread_name(t) : "?", bdev_io_state_name(one->state));
	USDT(slow_io, core->bdev->name, one->type, one->offset_blocks, one->num_blocks, one->age_ticks);
	if (core->timeout_fn != NULL) {
		core->timeout_fn(core->timeout_arg, core->bdev, one);
	}
}

static void timeout_check_all(void *arg)
{
	struct bdev_core *core = arg;
	struct timeout_check *c = calloc(1, sizeof(*c));
	uint64_t now = env_ticks();

	if (c != NULL) {
		c->timeout_ticks = env_us_to_ticks(core->timeout_us);
		c->since_ticks = now - core->timeout_last_ticks;
		core->timeout_last_ticks = now;
		bdev_for_each_inflight(core->bdev, timeout_collect, c);
		for (uint32_t i = 0; i < c->n; i++) {
			timeout_report(core, &c->late[i]);
		}
		free(c);
	}
	if (core->timeout_us != 0) { /* timeout_fn may have stopped the check */
		thread_timer_start(&core->timeout_timer, core->timeout_us / 4 + 1);
	}
}

uint64_t bdev_get_timeout(const struct bdev *b)
{
	return b->core->timeout_us;
}

void bdev_set_timeout(struct bdev *b, uint64_t timeout_us,
		      void (*fn)(void *arg, struct bdev *b, const struct bdev_inflight *one), void *arg)
{
	struct bdev_core *core = b->core;

	thread_timer_stop(&core->timeout_timer);
	core->timeout_us = timeout_us;
	core->timeout_fn = fn;
	core->timeout_arg = arg;
	if (timeout_us != 0) {
		core->timeout_last_ticks = env_ticks();
		core->timeout_timer.fn = timeout_check_all;
		core->timeout_timer.arg = core;
		thread_timer_start(&core->timeout_timer, timeout_us / 4 + 1);
	}
}

void bdev_watch_stop(struct bdev_core *core)
{
	thread_timer_stop(&core->qd_timer);
	thread_timer_stop(&core->timeout_timer);
	core->timeout_us = 0;
}

/* --- The next error --- */

bool bdev_status_is_fault(uint16_t status)
{
	unsigned sc = status & NVME_SC_MASK;

	switch ((status & BDEV_STATUS_MASK) >> NVME_SCT_SHIFT) {
	case NVME_SCT_GENERIC:
		return sc == NVME_SC_DATA_XFER_ERROR || sc == NVME_SC_POWER_LOSS || sc == NVME_SC_INTERNAL ||
		       sc == NVME_SC_CMD_INTERRUPTED || sc == NVME_SC_TRAN_TPORT_ERROR || sc == NVME_SC_CAP_EXCEEDED ||
		       sc == NVME_SC_NS_NOT_READY;
	case NVME_SCT_MEDIA:
		return sc != NVME_SC_COMPARE_FAILED && sc != NVME_SC_ACCESS_DENIED;
	case NVME_SCT_PATH:
		return sc != NVME_SC_CMD_ABORTED_BY_HOST;
	default:
		return sc != 0 && (status & BDEV_STATUS_MASK) >> NVME_SCT_SHIFT == NVME_SCT_VS;
	}
}

enum { REPORT_OFF, REPORT_ARMED, REPORT_TAKEN };

static struct {
	_Atomic uint32_t
		state; /* REPORT_*; the thread that turns ARMED into TAKEN owns the other fields until msg has run */
	void (*fn)(const struct bdev_error *e); /* the control thread's */
	struct bdev_error error;
	struct thread_msg msg;
} report_next;

static void error_deliver_message(struct thread_msg *msg)
{
	struct bdev_error e = report_next.error;

	/* Release: pairs with the acquire in bdev_report_error; from here on it may be armed, and taken, anew. */
	atomic_store_explicit(&report_next.state, REPORT_OFF, memory_order_release);
	if (report_next.fn != NULL) {
		report_next.fn(&e);
	}
}

void bdev_report_next_error(void (*fn)(const struct bdev_error *e))
{
	uint32_t now = atomic_load_explicit(&report_next.state, memory_order_relaxed);

	report_next.fn = fn;
	if (now == REPORT_TAKEN) {
		return; /* an error is on its way to fn, and counts as the next one */
	}
	uint32_t want = fn != NULL ? REPORT_ARMED : REPORT_OFF;
	atomic_compare_exchange_strong_explicit(&report_next.state, &now, want, memory_order_release,
						memory_order_relaxed);
}

void bdev_report_error(const struct bdev_channel *ch, const struct bdev_io *io)
{
	struct bdev_error *e = &report_next.error;
	uint32_t armed = REPORT_ARMED;

	if (atomic_load_explicit(&report_next.state, memory_order_relaxed) != REPORT_ARMED ||
	    !bdev_status_is_fault(io->status) ||
	    !atomic_compare_exchange_strong_explicit(&report_next.state, &armed, REPORT_TAKEN, memory_order_acquire,
						     memory_order_relaxed)) {
		return;
	}
	*e = (struct bdev_error){
		.io = io,
		.ctx = io->cb_arg,
		.thread_id = thread_id(ch->thread->thread),
		.submit_ticks = io->submit_ticks,
		.done_ticks = env_ticks(),
		.offset_blocks = io->offset_blocks,
		.num_blocks = io->num_blocks,
		.type = io->type,
		.status = io->status & BDEV_STATUS_MASK,
	};
	snprintf(e->bdev, sizeof(e->bdev), "%s", ch->bdev->name);
	thread_post(thread_control(), &report_next.msg, error_deliver_message);
}
