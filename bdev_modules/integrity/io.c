/* SPDX-License-Identifier: BSD-3-Clause */
/* I/O of users. Each becomes one child at a time; the layer has split READ and WRITE at the boundaries of regions.
 *
 * READ is passed to the base at once, and what has come is checked against the checksums, which are read meanwhile if
 * they are not in memory. If they differ, perhaps because a write of the unit is under way, it is read again with its
 * units marked as busy. What differs then is wrong.
 *
 * WRITE waits until its region is open, marks its units as busy, is passed to the base, and notes their new checksums
 * when it has succeeded; if the base did nothing of it, the old ones still count.
 * The memory of a write must not change until it ends, as for every bdev. UNMAP and WRITE_ZEROES do the same, from
 * region to region. What is read after UNMAP is not known, and not checked; an UNMAP of units of which nothing is known
 * needs no open region. On a base without UNMAP it does nothing.
 *
 * FLUSH is passed on when no FLUSH of the module is at the base (flush.c): whatever a write needs in order to be read
 * right was durable before it went to the base. All other types the layer makes of these. A RESET waits for what is
 * under way: were it passed on, it would end writes of the bitmap too. */
#include <errno.h>
#include <rte_common.h>
#include <stdio.h>
#include <string.h>

#include "bdev_modules/integrity/internal.h"
#include "util/iov.h"
#include "util/log.h"

#define CHILDREN     256u /* I/Os that a channel may have at its base; more wait in the pool */
#define STEPS_NESTED 32u
#define STATUS_WRONG BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_READ_ERROR)

struct integrity_channel {
	struct bdev_child_pool *pool;
	struct integrity_bdev *d;
	bool unmaps; /* the base has UNMAP */
	/* Units read; written by the channel's thread only. */
	_Atomic uint64_t checked, unchecked;
	LIST_ENTRY(integrity_channel) link;
	LIST_HEAD(, integrity_io) held;
	LIST_HEAD(, integrity_io) long_ios; /* those of several regions */
};

/* --- I/O that waits for the control thread, or for units --- */

static void held_begin(struct integrity_io *ctx)
{
	struct integrity_channel *c = bdev_channel_ctx(bdev_io_from_ctx(ctx)->ch);

	ctx->held = true;
	LIST_INSERT_HEAD(&c->held, ctx, held_link);
}

static void held_end(struct integrity_io *ctx)
{
	if (ctx->held) {
		LIST_REMOVE(ctx, held_link);
		ctx->held = false;
	}
}

static void io_ask(struct integrity_io *ctx, enum integrity_want want)
{
	held_begin(ctx);
	integrity_ask(ctx, want);
}

/* --- Units that an I/O has to itself --- */

static uint64_t busy_mask(const struct integrity_io *ctx, uint32_t word)
{
	uint32_t from = RTE_MAX(ctx->first, word * 64), to = RTE_MIN(ctx->first + ctx->count, word * 64 + 64);

	if (from >= to) {
		return 0;
	}
	return (to - from == 64 ? UINT64_MAX : (UINT64_C(1) << (to - from)) - 1) << from % 64;
}

static bool units_meet(const uint64_t units[INTEGRITY_BUSY_WORDS], const struct integrity_io *ctx)
{
	for (uint32_t w = ctx->first / 64; w <= (ctx->first + ctx->count - 1) / 64; w++) {
		if (units[w] & busy_mask(ctx, w)) {
			return true;
		}
	}
	return false;
}

static void units_add(uint64_t units[INTEGRITY_BUSY_WORDS], const struct integrity_io *ctx)
{
	for (uint32_t w = ctx->first / 64; w <= (ctx->first + ctx->count - 1) / 64; w++) {
		units[w] |= busy_mask(ctx, w);
	}
}

static void units_remove(uint64_t units[INTEGRITY_BUSY_WORDS], const struct integrity_io *ctx)
{
	for (uint32_t w = ctx->first / 64; w <= (ctx->first + ctx->count - 1) / 64; w++) {
		units[w] &= ~busy_mask(ctx, w);
	}
}

/* Whether it changes no checksum: so that the region may be closed, or be closed meanwhile. */
static bool changes_no_sum(const struct integrity_slot *s, const struct integrity_io *ctx)
{
	return bdev_io_from_ctx((void *)(uintptr_t)ctx)->type == BDEV_IO_UNMAP &&
	       integrity_sums_are_unknown(s, ctx->first, ctx->count);
}

static void units_give(struct integrity_slot *s, struct integrity_io *ctx)
{
	units_add(s->busy, ctx);
	s->users++;
	ctx->is_writer = ctx->stage == STAGE_CHANGE && !changes_no_sum(s, ctx);
	s->writers += ctx->is_writer;
	ctx->loses = false;
	ctx->slot = s;
}

enum acquired { ACQUIRED, ACQUIRE_WAITS, ACQUIRE_ASKS };

/* ACQUIRE_WAITS: another I/O has some of the units, or has waited for some of them longer; integrity_io_resumed()
 * follows. ACQUIRE_ASKS: the slot is not that of the region, or not in a state for that. */
static enum acquired units_acquire(struct integrity_slot *s, struct integrity_io *ctx)
{
	bool writes = ctx->stage == STAGE_CHANGE;
	enum acquired result = ACQUIRE_ASKS;

	rte_spinlock_lock(&s->lock);
	bool is_ours = atomic_load_explicit(&s->region, memory_order_relaxed) == ctx->region;
	if (is_ours && (s->state == SLOT_OPEN || (s->state >= SLOT_CLEAN && (!writes || changes_no_sum(s, ctx))))) {
		bool waits = units_meet(s->busy, ctx) || (!STAILQ_EMPTY(&s->waiters) && units_meet(s->wanted, ctx));
		result = waits ? ACQUIRE_WAITS : ACQUIRED;
	}
	if (result == ACQUIRED) {
		units_give(s, ctx);
	} else if (result == ACQUIRE_WAITS) {
		units_add(s->wanted, ctx);
		ctx->waits = true;
		ctx->waits_at = s;
		STAILQ_INSERT_TAIL(&s->waiters, ctx, link);
	}
	rte_spinlock_unlock(&s->lock);
	return result;
}

/* Whether it may have units now; with none it asks anew. */
static bool waiter_goes_on(struct integrity_slot *s, struct integrity_io *ctx)
{
	if (ctx->stage == STAGE_CHANGE && s->state != SLOT_OPEN) {
		return true;
	}
	if (units_meet(s->busy, ctx) || units_meet(s->wanted, ctx)) {
		return false;
	}
	units_give(s, ctx);
	return true;
}

/* Nobody waits while no units are busy, so as long as there are waiters the slot keeps its region. */
void integrity_hand_over(struct integrity_slot *s, struct integrity_ios *served)
{
	struct integrity_ios waiters = STAILQ_HEAD_INITIALIZER(waiters);
	struct integrity_io *ctx;

	if (STAILQ_EMPTY(&s->waiters)) {
		return;
	}
	STAILQ_CONCAT(&waiters, &s->waiters);
	memset(s->wanted, 0, sizeof(s->wanted));
	while ((ctx = STAILQ_FIRST(&waiters)) != NULL) {
		STAILQ_REMOVE_HEAD(&waiters, link);
		if (waiter_goes_on(s, ctx)) {
			ctx->waits = false;
			STAILQ_INSERT_TAIL(served, ctx, link);
		} else {
			units_add(s->wanted, ctx);
			STAILQ_INSERT_TAIL(&s->waiters, ctx, link);
		}
	}
}

void integrity_wake(struct integrity_ios *ios)
{
	struct integrity_io *ctx;

	while ((ctx = STAILQ_FIRST(ios)) != NULL) {
		STAILQ_REMOVE_HEAD(ios, link);
		ctx->answer = 0;
		thread_post(ctx->thread, &ctx->msg, integrity_io_resumed);
	}
}

static void units_release(struct integrity_io *ctx)
{
	struct integrity_ios served = STAILQ_HEAD_INITIALIZER(served);
	struct integrity_slot *s = ctx->slot;

	rte_spinlock_lock(&s->lock);
	units_remove(s->busy, ctx);
	s->users--;
	if (unlikely(ctx->loses)) {
		units_add(s->lost, ctx);
	}
	if (ctx->is_writer) {
		s->writers--;
		s->written_ticks = thread_now();
	}
	integrity_hand_over(s, &served);
	integrity_check_drained(s);
	rte_spinlock_unlock(&s->lock);
	ctx->slot = NULL;
	integrity_wake(&served);
}

/* --- Checksums --- */

/* Notes the checksums of what has been written. Whoever read the new data before that reads again, and waits. */
static void sums_note(struct integrity_bdev *d, struct integrity_io *ctx)
{
	const struct bdev_io *io = bdev_io_from_ctx(ctx);
	struct iov_cursor c = {.iov = io->iovs};

	ctx->loses = io->type == BDEV_IO_UNMAP;
	for (uint32_t i = 0; i < ctx->count; i++) {
		uint32_t sum = INTEGRITY_SUM_UNKNOWN;
		if (io->type == BDEV_IO_WRITE) {
			sum = integrity_sum(&c);
		} else if (io->type == BDEV_IO_WRITE_ZEROES) {
			sum = d->zero_sum;
		}
		atomic_store_explicit(&ctx->slot->sum[ctx->first + i], sum, memory_order_relaxed);
	}
}

/* After a write that has failed the units have old data, new data, or some of both. */
static void sums_forget(struct integrity_io *ctx)
{
	ctx->loses = true;
	for (uint32_t i = 0; i < ctx->count; i++) {
		atomic_store_explicit(&ctx->slot->sum[ctx->first + i], INTEGRITY_SUM_UNKNOWN, memory_order_relaxed);
	}
}

/* Whether what was read is what the slot has checksums for. report: a unit that is not is wrong. */
static bool sums_match(struct integrity_bdev *d, struct integrity_slot *s, struct integrity_io *ctx, bool report)
{
	const struct bdev_io *io = bdev_io_from_ctx(ctx);
	struct iov_cursor c = {.iov = io->iovs};
	uint32_t unchecked = 0;
	bool match = true;

	for (uint32_t i = 0; i < ctx->count && (match || report); i++) {
		uint32_t expected = atomic_load_explicit(&s->sum[ctx->first + i], memory_order_relaxed);
		if (expected == INTEGRITY_SUM_UNKNOWN) {
			unchecked++;
			iov_skip(&c, INTEGRITY_UNIT_BYTES);
			continue;
		}
		uint32_t found = integrity_sum(&c);
		if (unlikely(found != expected)) {
			match = false;
			if (report) {
				integrity_report(d, io->offset_blocks + i, expected, found);
			}
		}
	}
	ctx->unchecked = unchecked;
	return match;
}

static void units_count_add(_Atomic uint64_t *count, uint64_t n)
{
	atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + n, memory_order_relaxed);
}

/* The last time that the checksums of a READ were looked at. */
static void read_count(struct integrity_io *ctx)
{
	struct integrity_channel *c = bdev_channel_ctx(bdev_io_from_ctx(ctx)->ch);

	units_count_add(&c->checked, ctx->count - ctx->unchecked);
	if (unlikely(ctx->unchecked != 0)) {
		units_count_add(&c->unchecked, ctx->unchecked);
	}
}

void integrity_count(struct integrity_bdev *d, uint64_t *checked, uint64_t *unchecked)
{
	struct integrity_channel *c;

	rte_spinlock_lock(&d->channels_lock);
	*checked = d->checked_before;
	*unchecked = d->unchecked_before;
	LIST_FOREACH (c, &d->channels, link) {
		*checked += atomic_load_explicit(&c->checked, memory_order_relaxed);
		*unchecked += atomic_load_explicit(&c->unchecked, memory_order_relaxed);
	}
	rte_spinlock_unlock(&d->channels_lock);
}

/* --- Children --- */

static void step_set(struct integrity_io *ctx)
{
	const struct bdev_io *io = bdev_io_from_ctx(ctx);
	uint64_t unit = io->offset_blocks + ctx->done_units, left = io->num_blocks - ctx->done_units;

	ctx->region = (uint32_t)(unit >> INTEGRITY_REGION_SHIFT);
	ctx->first = (uint32_t)(unit & (INTEGRITY_REGION_UNITS - 1));
	ctx->count = (uint32_t)RTE_MIN(left, INTEGRITY_REGION_UNITS - ctx->first);
}

static void child_send(struct bdev_io *io)
{
	struct integrity_channel *c = bdev_channel_ctx(io->ch);
	struct integrity_io *ctx = bdev_io_ctx(io);
	struct integrity_bdev *d = c->d;
	struct bdev_io *child;
	int rc = bdev_child_get(c->pool, 0, io, &child);

	if (unlikely(rc == -EAGAIN)) {
		return;
	}
	if (likely(rc == 0)) {
		uint64_t unit = d->layout.data_first + io->offset_blocks + ctx->done_units;
		bdev_io_set_rw(child, io->type, io->iovs, io->iovcnt, unit * d->unit_blocks,
			       (uint64_t)ctx->count * d->unit_blocks);
		bdev_child_send(child);
	} else if (rc != -ECANCELED) {
		bdev_children_fail(io, NVME_SC_INVALID_NS | NVME_SC_DNR);
	}
	bdev_children_sent(io);
}

static uint16_t integrity_child_ended(struct bdev_io *child, struct bdev_io *parent)
{
	struct integrity_io *ctx = bdev_io_ctx(parent);

	ctx->touched |= !bdev_io_was_untouched(child);
	return child->status;
}

static void child_begin(struct integrity_io *ctx)
{
	struct bdev_io *io = bdev_io_from_ctx(ctx);

	ctx->touched = false;
	bdev_children_begin(io);
	child_send(io);
}

/* --- I/Os of several regions --- */

/* They may take long, and are ended between two regions, whatever they are doing. */
static void long_begin(struct integrity_channel *c, struct integrity_io *ctx)
{
	ctx->is_long = ctx->count < bdev_io_from_ctx(ctx)->num_blocks;
	if (unlikely(ctx->is_long)) {
		LIST_INSERT_HEAD(&c->long_ios, ctx, long_link);
	}
}

static void long_end(struct integrity_io *ctx)
{
	if (unlikely(ctx->is_long)) {
		LIST_REMOVE(ctx, long_link);
		ctx->is_long = false;
	}
}

/* --- An I/O with its units to itself --- */

static void units_take(struct integrity_io *ctx)
{
	struct integrity_bdev *d = integrity_io_bdev(ctx);
	struct integrity_slot *s = integrity_slot_ready(d, ctx->region);
	bool changes = ctx->stage == STAGE_CHANGE, is_unmap = bdev_io_from_ctx(ctx)->type == BDEV_IO_UNMAP;

	ctx->thread = thread_current();
	switch (s != NULL ? units_acquire(s, ctx) : ACQUIRE_ASKS) {
	case ACQUIRED:
		child_begin(ctx);
		break;
	case ACQUIRE_WAITS:
		held_begin(ctx);
		break;
	case ACQUIRE_ASKS:
		io_ask(ctx, changes && (s != NULL || !is_unmap) ? WANT_OPEN : WANT_SUMS);
		break;
	}
}

/* With an error; the base has done nothing of it if that is so for its only step. */
static void io_fail(struct integrity_io *ctx, uint16_t status)
{
	struct bdev_io *io = bdev_io_from_ctx(ctx);

	long_end(ctx);
	if (ctx->touched || ctx->done_units > 0) {
		bdev_io_complete(io, status);
	} else {
		bdev_io_complete_untouched(io, status);
	}
}

/* After many steps in one call, by way of a message: on a base that completes at once they are nested. */
static void next_step(struct integrity_io *ctx)
{
	if (unlikely(ctx->ended)) {
		io_fail(ctx, NVME_SC_ABORT_REQ);
		return;
	}
	step_set(ctx);
	if (++ctx->steps % STEPS_NESTED == 0) {
		ctx->answer = 0;
		thread_post(thread_current(), &ctx->msg, integrity_io_resumed);
	} else {
		units_take(ctx);
	}
}

static void change_ended(struct integrity_io *ctx)
{
	struct bdev_io *io = bdev_io_from_ctx(ctx);
	uint16_t status = ctx->status;

	if (likely(status == 0)) {
		sums_note(integrity_io_bdev(ctx), ctx);
	} else if (ctx->touched) {
		sums_forget(ctx);
	}
	units_release(ctx);
	if (unlikely(status != 0)) {
		io_fail(ctx, status);
		return;
	}
	ctx->done_units += ctx->count;
	if (ctx->done_units == io->num_blocks) {
		long_end(ctx);
		bdev_io_complete(io, 0);
	} else {
		next_step(ctx);
	}
}

static void read_again_ended(struct integrity_io *ctx)
{
	struct integrity_bdev *d = integrity_io_bdev(ctx);
	uint16_t status = ctx->status;

	if (status == 0) {
		status = sums_match(d, ctx->slot, ctx, true) ? 0 : STATUS_WRONG;
		read_count(ctx);
	}
	units_release(ctx);
	if (status != 0) {
		io_fail(ctx, status);
	} else {
		bdev_io_complete(bdev_io_from_ctx(ctx), 0);
	}
}

/* --- READ --- */

/* Whether the data is right, without the lock: another region may be given the slot meanwhile. */
static bool read_is_right(struct integrity_bdev *d, struct integrity_slot *s, struct integrity_io *ctx)
{
	if (atomic_load_explicit(&s->region, memory_order_acquire) != ctx->region || !sums_match(d, s, ctx, false)) {
		return false;
	}
	atomic_thread_fence(memory_order_acquire); /* pairs with slot_set_region() */
	return atomic_load_explicit(&s->region, memory_order_relaxed) == ctx->region;
}

/* The data has come, or the checksums have. */
static void read_arrived(struct integrity_io *ctx)
{
	struct integrity_bdev *d = integrity_io_bdev(ctx);

	if (--ctx->pending > 0) {
		return;
	}
	if (ctx->status != 0 || ctx->answer != 0) {
		io_fail(ctx, ctx->status != 0 ? ctx->status : ctx->answer);
		return;
	}
	struct integrity_slot *s = integrity_slot_ready(d, ctx->region);
	if (unlikely(s == NULL)) {
		ctx->pending = 1;
		io_ask(ctx, WANT_SUMS);
	} else if (likely(read_is_right(d, s, ctx))) {
		read_count(ctx);
		bdev_io_complete(bdev_io_from_ctx(ctx), 0);
	} else {
		ctx->stage = STAGE_AGAIN;
		units_take(ctx);
	}
}

static void read_begin(struct integrity_bdev *d, struct integrity_io *ctx)
{
	ctx->pending = 1;
	if (integrity_slot_ready(d, ctx->region) == NULL) {
		ctx->pending = 2;
		io_ask(ctx, WANT_SUMS);
	}
	child_begin(ctx);
}

/* --- FLUSH --- */

/* All of the base: the data are at another place there. */
static void flush_send(struct bdev_io *io)
{
	struct integrity_channel *c = bdev_channel_ctx(io->ch);
	struct bdev_io *child;
	int rc = bdev_child_get(c->pool, 0, io, &child);

	if (rc == -EAGAIN) {
		return;
	}
	if (rc == 0) {
		bdev_io_set_rw(child, BDEV_IO_FLUSH, NULL, 0, 0, bdev_num_blocks(bdev_desc_bdev(c->d->base)));
		bdev_child_send(child);
	} else if (rc != -ECANCELED) {
		bdev_children_fail(io, NVME_SC_INVALID_NS | NVME_SC_DNR);
	}
	bdev_children_sent(io);
}

static void flush_begin(struct integrity_io *ctx)
{
	struct bdev_io *io = bdev_io_from_ctx(ctx);

	ctx->touched = false;
	bdev_children_begin(io);
	flush_send(io);
}

static void flush_ask(struct integrity_io *ctx)
{
	ctx->stage = STAGE_FLUSH;
	ctx->slot = NULL;
	ctx->touched = false;
	ctx->done_units = 0;
	if (likely(integrity_flush_enter(integrity_io_bdev(ctx)))) {
		flush_begin(ctx);
	} else {
		io_ask(ctx, WANT_TURN);
	}
}

/* It has been its turn, or it is aborted. */
static void flush_go_on(struct integrity_io *ctx)
{
	if (ctx->answer == 0 && !ctx->ended) {
		flush_begin(ctx);
		return;
	}
	if (ctx->answer == 0) {
		integrity_flush_leave(integrity_io_bdev(ctx));
	}
	io_fail(ctx, NVME_SC_ABORT_REQ);
}

static void flush_ended(struct integrity_io *ctx)
{
	uint16_t status = integrity_flush_ended(integrity_io_bdev(ctx), ctx->status, ctx->touched);

	if (status != 0) {
		io_fail(ctx, status);
	} else {
		bdev_io_complete(bdev_io_from_ctx(ctx), 0);
	}
}

/* --- All types --- */

static void io_go_on(struct integrity_io *ctx)
{
	if (ctx->stage == STAGE_FLUSH) {
		flush_go_on(ctx);
		return;
	}
	if (unlikely(ctx->ended)) {
		if (ctx->slot != NULL) {
			units_release(ctx);
		}
		ctx->answer = ctx->answer != 0 ? ctx->answer : NVME_SC_ABORT_REQ;
	}
	if (ctx->stage == STAGE_READ) {
		read_arrived(ctx);
	} else if (ctx->answer != 0) {
		io_fail(ctx, ctx->answer);
	} else if (ctx->slot != NULL) {
		child_begin(ctx);
	} else {
		units_take(ctx);
	}
}

void integrity_io_resumed(struct thread_msg *msg)
{
	struct integrity_io *ctx = container_of(msg, struct integrity_io, msg);

	held_end(ctx);
	ctx->waits_at = NULL;
	if (!ctx->cancelling) {
		io_go_on(ctx);
	}
}

void integrity_io_cancelled(struct thread_msg *msg)
{
	struct integrity_io *ctx = container_of(msg, struct integrity_io, cancel_msg);

	ctx->cancelling = false;
	io_go_on(ctx);
}

/* False: it has been given its units, and is on its way back. */
static bool waiter_remove(struct integrity_io *ctx)
{
	struct integrity_ios served = STAILQ_HEAD_INITIALIZER(served);
	struct integrity_slot *s = ctx->waits_at;

	rte_spinlock_lock(&s->lock);
	bool waits = ctx->waits;
	if (waits) {
		STAILQ_REMOVE(&s->waiters, ctx, integrity_io, link);
		ctx->waits = false;
		integrity_hand_over(s, &served);
	}
	rte_spinlock_unlock(&s->lock);
	integrity_wake(&served);
	return waits;
}

/* Ends an I/O that is held, with Command Abort Requested: now, or when the control thread has let it go, which waits
 * for no base. */
static void held_cancel(struct integrity_io *ctx)
{
	held_end(ctx);
	ctx->ended = true;
	if (ctx->waits_at == NULL) {
		ctx->cancelling = true;
		integrity_ask_cancel(ctx);
	} else if (waiter_remove(ctx)) {
		ctx->waits_at = NULL;
		io_fail(ctx, NVME_SC_ABORT_REQ);
	}
}

static void integrity_abort(struct integrity_channel *c, struct bdev_io *abort)
{
	struct integrity_io *ctx = bdev_io_ctx(abort->abort.target);
	bool only_held = ctx->held && ctx->stage != STAGE_READ; /* it has no child */

	ctx->ended |= ctx->is_long;
	if (ctx->held) {
		held_cancel(ctx);
	}
	if (only_held) {
		abort->cdw0 = 0;
		bdev_io_complete(abort, 0);
	} else {
		bdev_child_abort(c->pool, abort);
	}
}

static void step_ended(struct bdev_io *io, uint16_t status)
{
	struct integrity_io *ctx = bdev_io_ctx(io);

	ctx->status = status;
	if (ctx->stage == STAGE_FLUSH) {
		flush_ended(ctx);
	} else if (ctx->stage == STAGE_READ) {
		read_arrived(ctx);
	} else if (ctx->stage == STAGE_AGAIN) {
		read_again_ended(ctx);
	} else {
		change_ended(ctx);
	}
}

static void integrity_resume(struct bdev_io *io)
{
	if (io->type == BDEV_IO_FLUSH) {
		flush_send(io);
	} else {
		child_send(io);
	}
}

static void integrity_submit(void *channel, struct bdev_io *io)
{
	struct integrity_channel *c = channel;
	struct integrity_io *ctx = bdev_io_ctx(io);

	ctx->held = ctx->cancelling = ctx->ended = ctx->waits = ctx->is_long = false;
	ctx->waits_at = NULL;
	switch (io->type) {
	case BDEV_IO_ABORT:
		integrity_abort(c, io);
		return;
	case BDEV_IO_FLUSH:
		flush_ask(ctx);
		return;
	case BDEV_IO_UNMAP:
		if (!c->unmaps) {
			bdev_io_complete(io, 0);
			return;
		}
		break;
	default:
		break;
	}
	ctx->slot = NULL;
	ctx->touched = ctx->starved = false;
	ctx->steps = 0;
	ctx->done_units = 0;
	ctx->answer = ctx->status = 0;
	step_set(ctx);
	if (io->type == BDEV_IO_READ) {
		ctx->stage = STAGE_READ;
		read_begin(c->d, ctx);
	} else {
		ctx->stage = STAGE_CHANGE;
		long_begin(c, ctx);
		units_take(ctx);
	}
}

static void integrity_reset_channel(struct bdev *b, void *channel)
{
	struct integrity_channel *c = channel;
	struct integrity_io *ctx;

	LIST_FOREACH (ctx, &c->long_ios, long_link) {
		ctx->ended = true;
	}
	while (!LIST_EMPTY(&c->held)) {
		held_cancel(LIST_FIRST(&c->held));
	}
	bdev_child_fail_waiting(c->pool, NVME_SC_ABORT_REQ);
}

static void integrity_take_back(void *channel, struct bdev_io *io)
{
	struct integrity_channel *c = channel;
	struct integrity_io *ctx = bdev_io_ctx(io);

	bool ends_here = ctx->held && ctx->waits_at != NULL;

	ctx->ended |= ctx->is_long;
	if (ctx->held) {
		held_cancel(ctx);
	}
	if (!ends_here) {
		bdev_child_take_back(c->pool, io);
	}
}

static int integrity_channel_create(struct bdev *b, void *channel)
{
	struct integrity_channel *c = channel;

	LIST_INIT(&c->held);
	LIST_INIT(&c->long_ios);
	c->d = integrity_of(b);
	c->unmaps = b->io_types >> BDEV_IO_UNMAP & 1;
	c->pool = bdev_child_pool_create_for(
		&(struct bdev_child_pool_opts){.bases = &c->d->base, .n_bases = 1, .count = CHILDREN});
	if (c->pool == NULL) {
		return -errno;
	}
	rte_spinlock_lock(&c->d->channels_lock);
	LIST_INSERT_HEAD(&c->d->channels, c, link);
	rte_spinlock_unlock(&c->d->channels_lock);
	return 0;
}

static void integrity_channel_destroy(struct bdev *b, void *channel)
{
	struct integrity_channel *c = channel;
	struct integrity_bdev *d = c->d;

	bdev_child_pool_destroy(c->pool);
	rte_spinlock_lock(&d->channels_lock);
	d->checked_before += c->checked;
	d->unchecked_before += c->unchecked;
	LIST_REMOVE(c, link);
	rte_spinlock_unlock(&d->channels_lock);
}

static void integrity_describe_io(struct bdev_io *io, char *text, size_t size)
{
	const struct integrity_io *ctx = bdev_io_ctx(io);

	bool has_units = io->type != BDEV_IO_FLUSH && io->type != BDEV_IO_ABORT;

	if (has_units && io->children == 0 && ctx->slot == NULL) {
		snprintf(text, size, "region %u: its checksums, that it is open, or another write of the same units",
			 ctx->region);
	} else if (io->type == BDEV_IO_FLUSH && io->children == 0) {
		snprintf(text, size, "a FLUSH of the bdev itself");
	}
}

static const struct bdev_child_ops integrity_child_ops = {
	.resume = integrity_resume, .child_ended = integrity_child_ended, .all_ended = step_ended};

const struct bdev_ops integrity_ops = {
	.bases = integrity_bases,
	.submit = integrity_submit,
	.channel_create = integrity_channel_create,
	.channel_destroy = integrity_channel_destroy,
	.channel_size = sizeof(struct integrity_channel),
	.reset_channel = integrity_reset_channel,
	.take_back = integrity_take_back,
	.destruct = integrity_destruct,
	.child_ops = &integrity_child_ops,
	.describe_io = integrity_describe_io,
	.dump_info = integrity_dump_info,
};
