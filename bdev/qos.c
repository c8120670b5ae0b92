/* SPDX-License-Identifier: BSD-3-Clause */
/* Rate limits: one token bucket per limit and bdev, shared by all its channels.
 *
 * A channel takes from the buckets with atomics, and whichever comes by when a millisecond has passed refills them in
 * proportion to the time that went by: no owner thread, no messages, and the rate holds however many cores take part.
 * An I/O is released when every bucket that it counts for is above zero. It may take more than the bucket holds, so
 * that an I/O larger than a bucket is released too; those after it wait the longer. Other I/Os wait on their channel,
 * reads and writes each in order, and a timer of the channel tries both in turn. */
#include <errno.h>
#include <rte_common.h>
#include <stdlib.h>

#include "bdev/internal.h"

#define REFILL_US 1000
/* A bucket holds the tokens of this much time: more idle time than that is not saved up. */
#define BURST_US 20000

enum {
	BUCKET_RW_IOS,
	BUCKET_RW_BYTES,
	BUCKET_R_BYTES,
	BUCKET_W_BYTES,
	BUCKETS,
};

struct bucket {
	_Atomic int64_t tokens;   /* millionths of an I/O or byte, so that slow rates refill evenly */
	_Atomic uint64_t per_sec; /* 0: no limit */
};
#define TOKEN 1000000

struct bdev_qos {
	struct bucket buckets[BUCKETS];
	_Atomic uint64_t refilled_ticks;
	uint64_t refill_interval_ticks;
	struct bdev_qos_limits limits; /* control thread */
};

enum bdev_qos_kind bdev_qos_kind_of(const struct bdev_io *io)
{
	return bdev_io_traits(io->type) & TRAIT_WRITES ? QOS_WRITES : QOS_READS;
}

/* The tokens that an I/O takes from each bucket. */
static void qos_costs(const struct bdev_channel *ch, const struct bdev_io *io, int64_t cost[BUCKETS])
{
	int64_t bytes = (int64_t)(io->num_blocks * ch->bdev->block_size);
	bool writes = bdev_qos_kind_of(io) == QOS_WRITES;

	cost[BUCKET_RW_IOS] = 1;
	cost[BUCKET_RW_BYTES] = bytes;
	cost[BUCKET_R_BYTES] = writes ? 0 : bytes;
	cost[BUCKET_W_BYTES] = writes ? bytes : 0;
}

static void bucket_refill(struct bucket *bucket, uint64_t ticks, uint64_t hz)
{
	uint64_t per_sec = atomic_load_explicit(&bucket->per_sec, memory_order_relaxed);
	if (per_sec == 0) {
		return;
	}
	unsigned __int128 exact = (unsigned __int128)per_sec * TOKEN * ticks / hz;
	int64_t add = (int64_t)RTE_MIN(exact, (unsigned __int128)(INT64_MAX / 4));
	/* At least one I/O or a block may go after any wait. */
	int64_t cap =
		(int64_t)RTE_MAX((unsigned __int128)per_sec * TOKEN * BURST_US / 1000000, (unsigned __int128)TOKEN);
	int64_t old = atomic_load_explicit(&bucket->tokens, memory_order_relaxed), filled;
	/* In one step: if the excess were removed later, other threads could spend it meanwhile. */
	do {
		filled = RTE_MIN(old + add, cap);
	} while (!atomic_compare_exchange_weak_explicit(&bucket->tokens, &old, filled, memory_order_relaxed,
							memory_order_relaxed));
}

/* Relaxed throughout: the buckets order nothing but themselves, and the exchange lets one channel refill. */
static void qos_refill(struct bdev_qos *q)
{
	uint64_t now = thread_now();
	uint64_t last = atomic_load_explicit(&q->refilled_ticks, memory_order_relaxed);

	if ((int64_t)(now - last) < (int64_t)q->refill_interval_ticks ||
	    !atomic_compare_exchange_strong_explicit(&q->refilled_ticks, &last, now, memory_order_relaxed,
						     memory_order_relaxed)) {
		return;
	}
	for (unsigned i = 0; i < BUCKETS; i++) {
		bucket_refill(&q->buckets[i], now - last, env_ticks_hz());
	}
}

static bool qos_take_tokens(struct bdev_qos *q, const struct bdev_channel *ch, const struct bdev_io *io)
{
	int64_t cost[BUCKETS];

	qos_costs(ch, io, cost);
	for (unsigned i = 0; i < BUCKETS; i++) {
		struct bucket *b = &q->buckets[i];
		if (cost[i] != 0 && atomic_load_explicit(&b->per_sec, memory_order_relaxed) != 0 &&
		    atomic_load_explicit(&b->tokens, memory_order_relaxed) <= 0) {
			return false;
		}
	}
	for (unsigned i = 0; i < BUCKETS; i++) {
		struct bucket *b = &q->buckets[i];
		if (cost[i] != 0 && atomic_load_explicit(&b->per_sec, memory_order_relaxed) != 0) {
			atomic_fetch_sub_explicit(&b->tokens, cost[i] * TOKEN, memory_order_relaxed);
		}
	}
	return true;
}

static bool bucket_has_limit(const struct bucket *b)
{
	return atomic_load_explicit(&b->per_sec, memory_order_relaxed) != 0;
}

static bool bucket_is_dry(const struct bucket *b)
{
	return bucket_has_limit(b) && atomic_load_explicit(&b->tokens, memory_order_relaxed) <= 0;
}

/* Whether an I/O of the other kind may be released although I/Os of this kind wait: they wait for a limit of their own
 * kind only. */
static bool qos_may_be_passed(const struct bdev_channel *ch, const struct bdev_qos *q, enum bdev_qos_kind kind)
{
	return STAILQ_EMPTY(&ch->qos_wait[kind]) ||
	       (!bucket_has_limit(&q->buckets[BUCKET_RW_IOS]) && !bucket_has_limit(&q->buckets[BUCKET_RW_BYTES])) ||
	       bucket_is_dry(&q->buckets[kind == QOS_READS ? BUCKET_R_BYTES : BUCKET_W_BYTES]);
}

static bool qos_nobody_waits(const struct bdev_channel *ch)
{
	return STAILQ_EMPTY(&ch->qos_wait[QOS_READS]) && STAILQ_EMPTY(&ch->qos_wait[QOS_WRITES]);
}

static enum bdev_qos_kind qos_other_kind(enum bdev_qos_kind kind)
{
	return kind == QOS_READS ? QOS_WRITES : QOS_READS;
}

bool bdev_qos_pass(struct bdev_channel *ch, struct bdev_io *io)
{
	struct bdev_qos *q = ch->bdev->core->qos;
	enum bdev_qos_kind kind = bdev_qos_kind_of(io);

	qos_refill(q);
	if (STAILQ_EMPTY(&ch->qos_wait[kind]) && qos_may_be_passed(ch, q, qos_other_kind(kind)) &&
	    qos_take_tokens(q, ch, io)) {
		return true;
	}
	if (qos_nobody_waits(ch)) {
		thread_timer_start(&ch->qos_timer, REFILL_US);
	}
	return false;
}

/* Releases the first waiting I/O of a kind, if the buckets allow it; then it is the other kind's turn. */
static bool qos_release_first(struct bdev_channel *ch, enum bdev_qos_kind kind)
{
	struct bdev_io *io = STAILQ_FIRST(&ch->qos_wait[kind]);

	if (io == NULL || !qos_take_tokens(ch->bdev->core->qos, ch, io)) {
		return false;
	}
	STAILQ_REMOVE_HEAD(&ch->qos_wait[kind], queue);
	ch->qos_turn = (uint8_t)qos_other_kind(kind);
	io->stage = STAGE_QOS + 1;
	bdev_io_run_stages(io);
	return true;
}

static void qos_run_waiting(struct bdev_channel *ch)
{
	qos_refill(ch->bdev->core->qos);
	while (qos_release_first(ch, ch->qos_turn) || qos_release_first(ch, qos_other_kind(ch->qos_turn))) {
	}
	if (!qos_nobody_waits(ch)) {
		thread_timer_start(&ch->qos_timer, REFILL_US);
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
		bdev_io_requeue(&ch->qos_wait[QOS_READS]);
		bdev_io_requeue(&ch->qos_wait[QOS_WRITES]);
	}
}

static struct bdev_qos *qos_get_or_alloc(struct bdev_core *core)
{
	if (core->qos == NULL) {
		struct bdev_qos *q = calloc(1, sizeof(*q));
		if (q == NULL) {
			return NULL;
		}
		atomic_store_explicit(&q->refilled_ticks, env_ticks(), memory_order_relaxed);
		q->refill_interval_ticks = env_ticks_hz() * REFILL_US / 1000000;
		core->qos = q;
	}
	return core->qos;
}

static void bucket_set_limit(struct bucket *b, uint64_t per_sec)
{
	if (atomic_exchange_explicit(&b->per_sec, per_sec, memory_order_relaxed) != per_sec) {
		atomic_store_explicit(&b->tokens, 0, memory_order_relaxed);
	}
}

int bdev_set_qos_limits(struct bdev *b, const struct bdev_qos_limits *limits)
{
	struct bdev_core *core = b->core;
	struct bdev_qos *q = qos_get_or_alloc(core);
	bool on = limits->rw_ios_per_sec != 0 || limits->rw_bytes_per_sec != 0 || limits->r_bytes_per_sec != 0 ||
		  limits->w_bytes_per_sec != 0;

	if (q == NULL) {
		return -ENOMEM;
	}
	q->limits = *limits;
	bucket_set_limit(&q->buckets[BUCKET_RW_IOS], limits->rw_ios_per_sec);
	bucket_set_limit(&q->buckets[BUCKET_RW_BYTES], limits->rw_bytes_per_sec);
	bucket_set_limit(&q->buckets[BUCKET_R_BYTES], limits->r_bytes_per_sec);
	bucket_set_limit(&q->buckets[BUCKET_W_BYTES], limits->w_bytes_per_sec);
	pthread_mutex_lock(&core->mutex);
	core->new_channel_slow = on ? core->new_channel_slow | SLOW_QOS : core->new_channel_slow & ~(uint32_t)SLOW_QOS;
	pthread_mutex_unlock(&core->mutex);
	bdev_visit_channels(b, visit_qos_limits, &on);
	return 0;
}

void bdev_get_qos_limits(const struct bdev *b, struct bdev_qos_limits *limits)
{
	*limits = b->core->qos != NULL ? b->core->qos->limits : (struct bdev_qos_limits){0};
}

void bdev_qos_free(struct bdev_core *core)
{
	free(core->qos);
	core->qos = NULL;
}
