/* SPDX-License-Identifier: BSD-3-Clause */
/* Rate limits of bdevs (util/rate.h). I/Os that have to wait do so on their channel, reads and writes each in order,
 * and a timer of the channel tries both in turn. */
#include <errno.h>
#include <stdlib.h>

#include "bdev/internal.h"

struct bdev_qos {
	struct rate_limiter limiter;
	struct rate_limits limits; /* control thread */
};

enum rate_kind bdev_qos_kind_of(const struct bdev_io *io)
{
	return bdev_io_traits(io->type) & TRAIT_WRITES ? RATE_WRITES : RATE_READS;
}

static bool qos_take_tokens(struct bdev_qos *q, const struct bdev_channel *ch, const struct bdev_io *io)
{
	uint64_t bytes = io->num_blocks * ch->bdev->block_size;
	enum rate_kind kind = bdev_qos_kind_of(io);

	if (!rate_limiter_allows(&q->limiter, kind, bytes)) {
		return false;
	}
	rate_limiter_take(&q->limiter, kind, bytes);
	return true;
}

/* Whether an I/O of the other kind may be released although I/Os of this kind wait: they wait for a limit of their own
 * kind only. */
static bool qos_may_be_passed(const struct bdev_channel *ch, const struct bdev_qos *q, enum rate_kind kind)
{
	return STAILQ_EMPTY(&ch->qos_wait[kind]) || !rate_limiter_is_shared(&q->limiter) ||
	       rate_limiter_is_dry_for(&q->limiter, kind);
}

static bool qos_nobody_waits(const struct bdev_channel *ch)
{
	return STAILQ_EMPTY(&ch->qos_wait[RATE_READS]) && STAILQ_EMPTY(&ch->qos_wait[RATE_WRITES]);
}

bool bdev_qos_pass(struct bdev_channel *ch, struct bdev_io *io)
{
	struct bdev_qos *q = ch->bdev->core->qos;
	enum rate_kind kind = bdev_qos_kind_of(io);

	rate_limiter_refill(&q->limiter, thread_now());
	if (STAILQ_EMPTY(&ch->qos_wait[kind]) && qos_may_be_passed(ch, q, rate_other_kind(kind)) &&
	    qos_take_tokens(q, ch, io)) {
		return true;
	}
	if (qos_nobody_waits(ch)) {
		thread_timer_start(&ch->qos_timer, RATE_REFILL_US);
	}
	return false;
}

/* Releases the first waiting I/O of a kind, if the buckets allow it; then it is the other kind's turn. */
static bool qos_release_first(struct bdev_channel *ch, enum rate_kind kind)
{
	struct bdev_io *io = STAILQ_FIRST(&ch->qos_wait[kind]);

	if (io == NULL || !qos_take_tokens(ch->bdev->core->qos, ch, io)) {
		return false;
	}
	STAILQ_REMOVE_HEAD(&ch->qos_wait[kind], queue);
	ch->qos_turn = (uint8_t)rate_other_kind(kind);
	io->stage = STAGE_QOS + 1;
	bdev_io_run_stages(io);
	return true;
}

static void qos_run_waiting(struct bdev_channel *ch)
{
	rate_limiter_refill(&ch->bdev->core->qos->limiter, thread_now());
	while (qos_release_first(ch, ch->qos_turn) || qos_release_first(ch, rate_other_kind(ch->qos_turn))) {
	}
	if (!qos_nobody_waits(ch)) {
		thread_timer_start(&ch->qos_timer, RATE_REFILL_US);
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

static void visit_qos_limits(struct bdev_channel *ch, void *arg)
{
	if (*(const bool *)arg) {
		ch->slow |= SLOW_QOS;
		qos_run_waiting(ch);
	} else {
		ch->slow &= ~(uint32_t)SLOW_QOS;
		thread_timer_stop(&ch->qos_timer);
		bdev_io_requeue(&ch->qos_wait[RATE_READS]);
		bdev_io_requeue(&ch->qos_wait[RATE_WRITES]);
	}
}

static struct bdev_qos *qos_get_or_alloc(struct bdev_core *core)
{
	if (core->qos == NULL) {
		struct bdev_qos *q = calloc(1, sizeof(*q));
		if (q == NULL) {
			return NULL;
		}
		rate_limiter_init(&q->limiter, env_ticks(), env_ticks_hz());
		core->qos = q;
	}
	return core->qos;
}

int bdev_set_qos_limits(struct bdev *b, const struct rate_limits *limits)
{
	struct bdev_core *core = b->core;
	struct bdev_qos *q = qos_get_or_alloc(core);
	bool on = rate_limits_are_set(limits);

	if (q == NULL) {
		return -ENOMEM;
	}
	q->limits = *limits;
	rate_limiter_set(&q->limiter, limits);
	pthread_mutex_lock(&core->mutex);
	core->new_channel_slow = on ? core->new_channel_slow | SLOW_QOS : core->new_channel_slow & ~(uint32_t)SLOW_QOS;
	pthread_mutex_unlock(&core->mutex);
	bdev_visit_channels(b, visit_qos_limits, &on);
	return 0;
}

void bdev_get_qos_limits(const struct bdev *b, struct rate_limits *limits)
{
	*limits = b->core->qos != NULL ? b->core->qos->limits : (struct rate_limits){0};
}

void bdev_qos_free(struct bdev_core *core)
{
	free(core->qos);
	core->qos = NULL;
}
