/* SPDX-License-Identifier: BSD-3-Clause */
/* Rate limits of bdevs (util/rate.h) and of their groups (util/share.h). I/Os that have to wait do so on their channel,
 * reads and writes each in order, and a timer of the channel tries both in turn. */
#include <errno.h>
#include <stdlib.h>

#include "bdev/qos_internal.h"

enum rate_kind bdev_qos_kind_of(const struct bdev_io *io)
{
	return bdev_io_traits(io->type) & TRAIT_WRITES ? RATE_WRITES : RATE_READS;
}

static void qos_refill_group(struct bdev_qos *q)
{
	struct bdev_qos_group *g = bdev_qos_group_load(q);

	if (g != NULL) {
		share_refill(&g->share, thread_now());
	}
}

/* Takes tokens of the group, if there is one, for an I/O that the bdev's own limits do not hold up. False: the group
 * has none, and the I/O waits. */
static bool qos_group_takes_tokens(struct bdev_qos *q, enum rate_kind kind, uint64_t bytes)
{
	struct bdev_qos_group *g = bdev_qos_group_load(q);

	if (g == NULL) {
		return !atomic_load_explicit(&q->is_moving, memory_order_relaxed); /* is_moving was set first */
	}
	if (!share_allows(&g->share, &q->member, kind, bytes)) {
		share_want(&q->member, thread_now());
		return false;
	}
	share_take(&g->share, &q->member, kind, bytes);
	rate_counters_add_io(&q->counters, kind, bytes);
	return true;
}

/* In qos_since_ticks: the I/O waits for the bdev's own limits, and was counted when it waited for the group. */
#define QOS_COUNTED 1

static bool qos_cause_is_group(const struct bdev_channel *ch, enum rate_kind kind)
{
	return ch->qos_for_group >> kind & 1;
}

static bool qos_waits_for_group(const struct bdev_io *io)
{
	return io->qos_since_ticks > QOS_COUNTED;
}

/* Each I/O is counted once, however often the cause changes. */
static void qos_begin_group_wait(struct bdev_io *io, const struct bdev_qos_group *g)
{
	const struct bdev *b = io->ch->bdev;
	bool is_counted = io->qos_since_ticks == QOS_COUNTED;

	io->qos_since_ticks = thread_now();
	if (!is_counted) {
		rate_counters_add_waits(&b->core->qos->counters, 1);
		USDT(qos_group_wait, b->name, g->name, io->type, io->offset_blocks, io->num_blocks);
	}
}

static void qos_add_waited(struct bdev_qos *q, const struct bdev_io *io)
{
	int64_t waited = qos_waits_for_group(io) ? (int64_t)(thread_now() - io->qos_since_ticks) : 0;

	if (waited > 0) {
		rate_counters_add_waited(&q->counters, env_ticks_to_ns((uint64_t)waited) / 1000);
	}
}

static void qos_end_group_wait(struct bdev_qos *q, struct bdev_io *io)
{
	qos_add_waited(q, io);
	io->qos_since_ticks = 0;
}

/* What waits for the group, and came before the bdev was in it or for the sake of another limit, is counted, too. */
static void qos_begin_group_waits(struct bdev_channel *ch, enum rate_kind kind)
{
	const struct bdev_qos_group *g = bdev_qos_group_load(ch->bdev->core->qos);
	struct bdev_io *io;

	if (g == NULL || !qos_cause_is_group(ch, kind)) {
		return;
	}
	STAILQ_FOREACH (io, &ch->qos_wait[kind], queue) {
		if (!qos_waits_for_group(io)) {
			qos_begin_group_wait(io, g);
		}
	}
}

/* The bdev's own limits hold up from now on what waits for the group. */
static void qos_suspend_group_waits(struct bdev_channel *ch, enum rate_kind kind)
{
	struct bdev_io *io;

	STAILQ_FOREACH (io, &ch->qos_wait[kind], queue) {
		if (qos_waits_for_group(io)) {
			qos_add_waited(ch->bdev->core->qos, io);
			io->qos_since_ticks = QOS_COUNTED;
		}
	}
}

/* Why the first I/O of a kind waits, and with it those behind it. */
static void qos_set_cause(struct bdev_channel *ch, enum rate_kind kind, bool is_group)
{
	if (qos_cause_is_group(ch, kind) == is_group) {
		return;
	}
	ch->qos_for_group ^= (uint8_t)(1u << kind);
	if (is_group) {
		qos_begin_group_waits(ch, kind);
	} else {
		qos_suspend_group_waits(ch, kind);
	}
}

/* who: the channel, for an I/O that has waited; NULL: for one that comes. */
static bool qos_take_tokens(struct bdev_qos *q, struct bdev_channel *ch, const struct bdev_channel *who,
			    const struct bdev_io *io)
{
	uint64_t bytes = io->num_blocks * ch->bdev->block_size;
	enum rate_kind kind = bdev_qos_kind_of(io);
	uint64_t now = thread_now();
	bool own_allow = rate_limiter_wait(&q->limiter, NULL, who, kind, bytes, now) == 0;

	if (!own_allow || !qos_group_takes_tokens(q, kind, bytes)) {
		qos_set_cause(ch, kind, own_allow);
		if (who != NULL && !own_allow) {
			rate_limiter_claim(&q->limiter, who, ch->qos_turn_ticks[kind], kind, bytes, now);
		}
		return false;
	}
	rate_limiter_take(&q->limiter, NULL, who, kind, bytes, now);
	return true;
}

/* Whether an I/O of the other kind may be released although I/Os of this kind wait: they wait for a limit of their own
 * kind only. */
static bool qos_may_be_passed(const struct bdev_channel *ch, const struct bdev_qos *q, enum rate_kind kind)
{
	const struct bdev_qos_group *g = bdev_qos_group_load(q);

	if (STAILQ_EMPTY(&ch->qos_wait[kind]) || rate_limiter_is_dry_for(&q->limiter, kind, thread_now()) ||
	    (g != NULL && share_is_dry_for(&g->share, &q->member, kind))) {
		return true;
	}
	return !rate_limiter_is_shared(&q->limiter) && !(g != NULL && share_has_common_limit(&g->share));
}

/* When to look again after an I/O that is the first of its kind to wait. */
static uint64_t qos_look_us(const struct bdev_channel *ch, const struct bdev_io *io)
{
	const struct bdev_qos *q = ch->bdev->core->qos;
	const struct bdev_qos_group *g = bdev_qos_group_load(q);
	enum rate_kind kind = bdev_qos_kind_of(io);

	if (qos_cause_is_group(ch, kind)) {
		return g != NULL ? share_look_us(&g->share) : RATE_REFILL_US;
	}
	uint64_t bytes = io->num_blocks * ch->bdev->block_size;
	uint64_t wait = rate_limiter_wait(&q->limiter, NULL, ch, kind, bytes, thread_now());
	return rate_pace_us(env_ticks_to_ns(wait) / 1000, RATE_PACE_US);
}

static bool qos_nobody_waits(const struct bdev_channel *ch)
{
	return STAILQ_EMPTY(&ch->qos_wait[RATE_READS]) && STAILQ_EMPTY(&ch->qos_wait[RATE_WRITES]);
}

bool bdev_qos_pass(struct bdev_channel *ch, struct bdev_io *io)
{
	struct bdev_qos *q = ch->bdev->core->qos;
	enum rate_kind kind = bdev_qos_kind_of(io);

	qos_refill_group(q);
	if (STAILQ_EMPTY(&ch->qos_wait[kind])) {
		if (!qos_may_be_passed(ch, q, rate_other_kind(kind))) {
			qos_set_cause(ch, kind, qos_cause_is_group(ch, rate_other_kind(kind)));
		} else if (qos_take_tokens(q, ch, NULL, io)) {
			return true;
		}
		ch->qos_turn_ticks[kind] = thread_now();
	}
	if (qos_nobody_waits(ch)) {
		thread_timer_start(&ch->qos_timer, qos_look_us(ch, io));
	}
	return false;
}

const struct bdev_qos_group *bdev_qos_waits_for_group(const struct bdev_io *io)
{
	return qos_cause_is_group(io->ch, bdev_qos_kind_of(io)) ? bdev_qos_group_load(io->ch->bdev->core->qos) : NULL;
}

void bdev_qos_begin_waiting(struct bdev_io *io)
{
	const struct bdev *b = io->ch->bdev;
	const struct bdev_qos_group *g = bdev_qos_waits_for_group(io);

	io->ch->stat.qos_waits++;
	io->qos_since_ticks = 0;
	TRACE(BDEV_IO_LIMITED, b->trace_owner, 0, (uintptr_t)io, io->cb_arg, g != NULL);
	if (g != NULL) {
		qos_begin_group_wait(io, g);
	} else {
		USDT(qos_wait, b->name, io->type, io->offset_blocks, io->num_blocks);
	}
}

/* Releases the first waiting I/O of a kind, if the buckets allow it; then it is the other kind's turn. */
static bool qos_release_first(struct bdev_channel *ch, enum rate_kind kind)
{
	struct bdev_io *io = STAILQ_FIRST(&ch->qos_wait[kind]);

	if (io == NULL || !qos_take_tokens(ch->bdev->core->qos, ch, ch, io)) {
		return false;
	}
	STAILQ_REMOVE_HEAD(&ch->qos_wait[kind], queue);
	qos_end_group_wait(ch->bdev->core->qos, io);
	ch->qos_turn = (uint8_t)rate_other_kind(kind);
	ch->qos_turn_ticks[kind] = thread_now();
	io->stage = STAGE_QOS + 1;
	bdev_io_run_stages(io);
	return true;
}

/* For both kinds, whichever may go sooner. */
static uint64_t qos_next_look_us(const struct bdev_channel *ch)
{
	uint64_t least = RATE_REFILL_US;

	for (unsigned kind = 0; kind < RATE_KINDS; kind++) {
		const struct bdev_io *io = STAILQ_FIRST(&ch->qos_wait[kind]);
		uint64_t us = io != NULL ? qos_look_us(ch, io) : RATE_REFILL_US;
		least = us < least ? us : least;
	}
	return least;
}

static void qos_run_waiting(struct bdev_channel *ch)
{
	uint64_t now = thread_now(), ticks = ch->qos_batch_ticks != 0 ? now - ch->qos_batch_ticks : 0;
	unsigned budget = rate_batch(env_ticks_to_ns(ticks) / 1000);

	qos_refill_group(ch->bdev->core->qos);
	while (budget != 0 &&
	       (qos_release_first(ch, ch->qos_turn) || qos_release_first(ch, rate_other_kind(ch->qos_turn)))) {
		budget--;
	}
	ch->qos_batch_ticks = budget != 0 ? 0 : now;
	if (!qos_nobody_waits(ch)) {
		thread_timer_start(&ch->qos_timer, budget != 0 ? qos_next_look_us(ch) : 0);
	}
}

void bdev_qos_timer(void *channel)
{
	struct bdev_channel *ch = channel;

	thread_absence_check();
	bdev_enter(ch->thread);
	qos_run_waiting(ch);
	bdev_leave(ch->thread);
}

/* --- Control thread --- */

static void qos_end_group_waits(struct bdev_channel *ch)
{
	struct bdev_io *io;

	for (unsigned kind = 0; kind < RATE_KINDS; kind++) {
		STAILQ_FOREACH (io, &ch->qos_wait[kind], queue) {
			qos_end_group_wait(ch->bdev->core->qos, io);
		}
	}
}

void bdev_qos_end_waiting(struct bdev_channel *ch)
{
	thread_timer_stop(&ch->qos_timer);
	qos_end_group_waits(ch);
	bdev_io_requeue(&ch->qos_wait[RATE_READS]);
	bdev_io_requeue(&ch->qos_wait[RATE_WRITES]);
}

static void visit_qos_limits(struct bdev_channel *ch, void *arg)
{
	if (bdev_qos_group_load(ch->bdev->core->qos) == NULL) {
		qos_end_group_waits(ch);
	}
	if (*(const bool *)arg) {
		ch->slow |= SLOW_QOS;
		qos_run_waiting(ch);
		qos_begin_group_waits(ch, RATE_READS);
		qos_begin_group_waits(ch, RATE_WRITES);
	} else {
		ch->slow &= ~(uint32_t)SLOW_QOS;
		bdev_qos_end_waiting(ch);
	}
}

struct bdev_qos *bdev_qos_get_or_alloc(struct bdev *b)
{
	struct bdev_core *core = b->core;

	if (core->qos == NULL) {
		struct bdev_qos *q = calloc(1, sizeof(*q));
		if (q == NULL) {
			return NULL;
		}
		q->bdev = b;
		rate_limiter_init(&q->limiter, env_ticks_hz());
		core->qos = q;
	}
	return core->qos;
}

void bdev_qos_apply(struct bdev *b)
{
	struct bdev_core *core = b->core;
	bool on = rate_limits_are_set(&core->qos->limits) || bdev_qos_group_load(core->qos) != NULL ||
		  atomic_load_explicit(&core->qos->is_moving, memory_order_relaxed);

	pthread_mutex_lock(&core->mutex);
	core->new_channel_slow = on ? core->new_channel_slow | SLOW_QOS : core->new_channel_slow & ~(uint32_t)SLOW_QOS;
	pthread_mutex_unlock(&core->mutex);
	bdev_visit_channels(b, visit_qos_limits, &on);
}

int bdev_set_qos_limits(struct bdev *b, const struct rate_limits *limits)
{
	struct bdev_qos *q = bdev_qos_get_or_alloc(b);

	if (q == NULL) {
		return -ENOMEM;
	}
	q->limits = *limits;
	rate_limiter_set(&q->limiter, limits, env_ticks());
	bdev_qos_apply(b);
	return 0;
}

void bdev_get_qos_limits(const struct bdev *b, struct rate_limits *limits)
{
	*limits = b->core->qos != NULL ? b->core->qos->limits : (struct rate_limits){0};
}

void bdev_qos_free(struct bdev_core *core)
{
	if (core->qos != NULL) {
		bdev_qos_group_forget(core->qos);
	}
	free(core->qos);
	core->qos = NULL;
}
