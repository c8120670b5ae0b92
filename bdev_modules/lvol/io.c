/* SPDX-License-Identifier: BSD-3-Clause */
/* The way of an I/O. No READ or WRITE crosses the end of a cluster, because the layer splits them there.
 *
 * READ of a cluster, and WRITE to a cluster of the volume's own: one I/O on the base, at the place that the map says.
 * WRITE to another: a first write. It claims a cluster, makes it whole by up to three I/Os on the base (the data, and
 * what is around it: a copy of a snapshot's cluster, or zeroes), and commits it on the control thread.
 * WRITE_ZEROES: cluster by cluster, one after the other; those without data stay so.
 * UNMAP: whole clusters go back to the store by the control thread; the rest is unmapped on the base.
 *
 * Counting: `inflight` counts I/Os that use a cluster, for grace periods; `writes` those that change something, until
 * the change is published, for pauses. An I/O that is held back, or waits for a cluster that is busy, is in neither. */
#include <errno.h>
#include <rte_common.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bdev_modules/lvol/io.h"
#include "nvme/spec.h"

const size_t lvol_io_ctx_size = sizeof(struct lvol_io);

static void range_go_on(struct bdev_io *io, uint16_t status);

/* --- Counting --- */

static ALWAYS_INLINE void grace_leave(struct store_channel *sc, struct lvol_io *ctx)
{
	if (ctx->in_grace) {
		ctx->in_grace = false;
		sc->inflight[ctx->parity]--;
		if (unlikely(sc->grace_reports) && ctx->parity != sc->parity && sc->inflight[ctx->parity] == 0) {
			lvol_grace_report(sc);
		}
	}
}

/* For the next cluster of an I/O. */
static void grace_reenter(struct store_channel *sc, struct lvol_io *ctx)
{
	grace_leave(sc, ctx);
	grace_enter(sc, ctx);
}

static ALWAYS_INLINE void writes_enter(struct lvol_channel *ch, struct lvol_io *ctx)
{
	ctx->in_writes = true;
	ch->writes++;
}

static ALWAYS_INLINE void writes_leave(struct lvol_channel *ch, struct lvol_io *ctx)
{
	if (ctx->in_writes) {
		ctx->in_writes = false;
		ch->writes--;
		if (unlikely(ch->pause_reports) && ch->writes == 0) {
			lvol_pause_report(ch);
		}
	}
}

static ALWAYS_INLINE void io_uncount(struct bdev_io *io, struct lvol_io *ctx)
{
	struct lvol_channel *ch = io_channel_of(io);

	grace_leave(ch->sc, ctx);
	writes_leave(ch, ctx);
}

/* NULL: there is none. */
static NOINLINE void slow_free(struct lvol_slow *slow)
{
	if (slow != NULL) {
		lvol_bounce_free(slow);
		free(slow);
	}
}

/* What every end of an I/O that is in no list does before its completion. */
static void io_forget(struct bdev_io *io)
{
	struct lvol_io *ctx = bdev_io_ctx(io);

	io_uncount(io, ctx);
	slow_free(ctx->slow);
	ctx->slow = NULL;
}

void lvol_io_end(struct bdev_io *io, uint16_t status)
{
	io_forget(io);
	bdev_io_complete(io, status);
}

void lvol_io_end_errno(struct bdev_io *io, int rc)
{
	lvol_io_end(io, bdev_status_from_errno(rc));
}

/* The rest of lvol_io_child_done(). */
static COLD void child_done_slow(struct bdev_io *io, const struct bdev_io *child)
{
	struct lvol_io *ctx = bdev_io_ctx(io);

	slow_free(ctx->slow);
	ctx->slow = NULL;
	bdev_io_complete_as(io, child);
}

void lvol_io_child_done(struct bdev_io *child, void *parent)
{
	struct bdev_io *io = parent;
	struct lvol_io *ctx = bdev_io_ctx(io);

	io_uncount(io, ctx);
	if (unlikely(ctx->slow != NULL)) { /* it had waited for its cluster */
		child_done_slow(io, child);
		return;
	}
	bdev_io_complete_as(io, child);
}

/* --- Several I/Os on the base --- */

/* Its slow part; NULL: no memory, and io has ended. */
struct lvol_slow *lvol_io_get_slow(struct bdev_io *io)
{
	struct lvol_io *ctx = bdev_io_ctx(io);

	if (ctx->slow == NULL) {
		struct lvol_slow *slow = calloc(1, sizeof(*slow));
		if (slow == NULL) {
			lvol_io_end_errno(io, -ENOMEM);
			return NULL;
		}
		slow->io = io;
		slow->lvol = io_channel_of(io)->lvol;
		slow->thread = thread_current();
		ctx->slow = slow;
	}
	return ctx->slow;
}

void lvol_io_add_step(struct lvol_slow *slow, enum bdev_io_type type, uint64_t offset, uint64_t source, uint64_t blocks)
{
	if (blocks != 0) {
		slow->steps[slow->num_steps++] =
			(struct lvol_step){.type = type, .offset = offset, .source = source, .blocks = blocks};
	}
}

/* The pool of an I/O's children, which are of one pool at a time. */
static struct bdev_child_pool *io_pool(struct bdev_io *io)
{
	const struct lvol_channel *ch = io_channel_of(io);
	const struct lvol_io *ctx = bdev_io_ctx(io);

	return ctx->stage == STAGE_EXTERNAL ? ch->external : ch->sc->pool;
}

static void step_fill_in(const struct lvol_step *step, const struct lvol_slow *slow, const struct bdev_io *io,
			 struct bdev_io *child)
{
	bool has_data = step->type == BDEV_IO_WRITE || step->type == BDEV_IO_READ;

	if (step->type == BDEV_IO_COPY) {
		bdev_io_set_copy(child, step->source, step->offset, step->blocks);
	} else if (!has_data) {
		bdev_io_set_rw(child, step->type, NULL, 0, step->offset, step->blocks);
	} else if (slow->bounce != NULL) {
		bdev_io_set_rw(child, step->type, &slow->bounce->iov, 1, step->offset, step->blocks);
	} else {
		bdev_io_set_rw(child, step->type, io->iovs, io->iovcnt, step->offset, step->blocks);
	}
}

static void steps_go_on(struct bdev_io *io)
{
	const struct lvol_io *ctx = bdev_io_ctx(io);
	struct lvol_slow *slow = ctx->slow;
	struct bdev_child_pool *pool = io_pool(io);
	uint32_t base = ctx->stage == STAGE_EXTERNAL ? slow->place : 0;

	while (slow->step < slow->num_steps) {
		const struct lvol_step *step = &slow->steps[slow->step];
		struct bdev_io *child;
		int rc = bdev_child_get(pool, base, io, &child);
		if (rc == -EAGAIN) {
			return;
		}
		if (rc != 0) {
			bdev_children_fail(io, bdev_status_from_errno(rc));
			break;
		}
		step_fill_in(step, slow, io, child);
		slow->step++;
		bdev_child_send(child);
	}
	bdev_children_sent(io);
}

/* Carries out the steps, all at once; steps_ended() follows. */
void lvol_io_steps_begin(struct bdev_io *io)
{
	struct lvol_io *ctx = bdev_io_ctx(io);

	ctx->slow->step = 0;
	bdev_children_begin(io);
	steps_go_on(io);
}

/* One I/O on the base where blocks differ in size, or the range is another one. */
static NOINLINE void step_run(struct bdev_io *io, enum bdev_io_type type, uint64_t offset, uint64_t blocks)
{
	struct lvol_io *ctx = bdev_io_ctx(io);
	struct lvol_slow *slow = lvol_io_get_slow(io);

	if (slow != NULL) {
		ctx->stage = STAGE_BASE;
		slow->num_steps = 0;
		lvol_io_add_step(slow, type, offset, 0, blocks);
		lvol_io_steps_begin(io);
	}
}

/* A READ or WRITE in one cluster. */
static ALWAYS_INLINE void io_to_base(struct lvol_channel *ch, struct bdev_io *io, uint64_t offset)
{
	uint32_t shift = ch->lvol->block_shift;

	if (likely(shift == 0)) {
		bdev_child_submit_at(ch->sc->pool, io, offset);
	} else {
		step_run(io, io->type, offset, io->num_blocks << shift);
	}
}

/* --- Held back --- */

static void io_hold(struct lvol_channel *ch, struct bdev_io *io)
{
	struct lvol_io *ctx = bdev_io_ctx(io);

	ctx->stage = STAGE_HELD;
	TAILQ_INSERT_TAIL(&ch->held, ctx, link);
}

static struct lvol_io *held_first(const struct lvol_channel *ch)
{
	struct lvol_io *ctx = TAILQ_FIRST(&ch->held);

	while (ctx != NULL && ctx->stage != STAGE_HELD) {
		ctx = TAILQ_NEXT(ctx, link);
	}
	return ctx;
}

/* Looks anew each time: the end of one I/O may have others aborted. */
void lvol_io_resume(struct lvol_channel *ch)
{
	struct lvol_io *ctx;

	while ((ctx = held_first(ch)) != NULL) {
		TAILQ_REMOVE(&ch->held, ctx, link);
		ctx->stage = STAGE_BASE;
		lvol_io_run(bdev_io_from_ctx(ctx));
	}
}

static void wait_abandon(struct lvol_slow *slow)
{
	slow->io = NULL;
	(void)atomic_exchange(&slow->wait, WAIT_ABANDONED); /* if it was woken, the message that comes frees it */
}

/* Ends an I/O that is held back. */
static bool io_end_held(struct lvol_channel *ch, struct bdev_io *io, bool untouched)
{
	struct lvol_io *ctx = bdev_io_ctx(io);

	if (ctx->stage != STAGE_HELD && ctx->stage != STAGE_WAIT) {
		return false;
	}
	TAILQ_REMOVE(&ch->held, ctx, link);
	io_uncount(io, ctx);
	bool begun = ctx->slow != NULL && ctx->slow->at != 0;
	if (ctx->stage == STAGE_WAIT && ctx->slow != NULL) {
		wait_abandon(ctx->slow);
	} else {
		slow_free(ctx->slow);
	}
	ctx->slow = NULL;
	ctx->stage = STAGE_BASE;
	if (untouched && !begun) {
		bdev_io_complete_untouched(io, NVME_SC_ABORT_REQ);
	} else {
		bdev_io_complete(io, NVME_SC_ABORT_REQ);
	}
	return true;
}

/* --- Waiting for a cluster --- */

static void wait_has_ended(struct thread_msg *msg)
{
	struct lvol_slow *slow = container_of(msg, struct lvol_slow, msg);
	struct bdev_io *io = slow->io;

	if (io == NULL) {
		slow_free(slow);
		return;
	}
	struct lvol_io *ctx = bdev_io_ctx(io);
	TAILQ_REMOVE(&io_channel_of(io)->held, ctx, link);
	ctx->stage = STAGE_BASE;
	lvol_io_run(io);
}

static void waiter_wake(struct lvol_live_waiter *w)
{
	struct lvol_slow *slow = container_of(w, struct lvol_slow, waiter);

	lvol_volume_put(slow->lvol);
	if (atomic_exchange(&slow->wait, WAIT_WOKEN) == WAIT_ABANDONED) {
		slow_free(slow);
	} else {
		thread_post(slow->thread, &slow->msg, wait_has_ended);
	}
}

static void wait_on_control(struct thread_msg *msg)
{
	struct lvol_slow *slow = container_of(msg, struct lvol_slow, msg);

	slow->waiter.wake = waiter_wake;
	lvol_live_wait(slow->lvol->v, slow->cluster, &slow->waiter);
}

static void io_wait_for_cluster(struct lvol_channel *ch, struct bdev_io *io, uint64_t n)
{
	struct lvol_io *ctx = bdev_io_ctx(io);
	struct lvol_slow *slow = lvol_io_get_slow(io);

	if (slow == NULL) {
		return;
	}
	grace_leave(ch->sc, ctx); /* the cluster may be busy until a grace period has ended */
	if (io->type == BDEV_IO_WRITE) {
		writes_leave(ch, ctx);
	}
	ctx->stage = STAGE_WAIT;
	TAILQ_INSERT_TAIL(&ch->held, ctx, link);
	slow->cluster = n;
	atomic_store(&slow->wait, WAIT_BOTH);
	/* The I/O may be aborted, and its channel put, before the control thread looks at the volume. */
	atomic_fetch_add(&slow->lvol->refs, 1);
	thread_post(thread_control(), &slow->msg, wait_on_control);
}

/* --- First writes --- */

static void fill_has_ended(struct thread_msg *msg)
{
	struct lvol_slow *slow = container_of(msg, struct lvol_slow, msg);
	struct bdev_io *io = slow->io;
	struct lvol_io *ctx = bdev_io_ctx(io);

	ctx->stage = STAGE_BASE;
	if (slow->status != 0 || io->type == BDEV_IO_WRITE) {
		lvol_io_end(io, slow->status);
	} else {
		slow->at += slow->piece;
		range_go_on(io, 0);
	}
}

static void fill_committed(void *arg, int status)
{
	struct lvol_slow *slow = arg;

	if (status == 0) {
		lvol_events_allocated(slow->io, slow->lvol, &slow->fill);
	}
	slow->status = bdev_status_from_errno(status);
	thread_post(slow->thread, &slow->msg, fill_has_ended);
}

static void fill_commit(struct thread_msg *msg)
{
	struct lvol_slow *slow = container_of(msg, struct lvol_slow, msg);

	lvol_live_fill_commit(&slow->fill, fill_committed, slow);
}

static void fill_failed(struct thread_msg *msg)
{
	struct lvol_slow *slow = container_of(msg, struct lvol_slow, msg);

	lvol_live_fill_abort(&slow->fill);
	thread_post(slow->thread, &slow->msg, fill_has_ended);
}

/* The cluster has been made whole, or not. */
void lvol_io_filled(struct bdev_io *io, uint16_t status)
{
	struct lvol_io *ctx = bdev_io_ctx(io);
	struct lvol_slow *slow = ctx->slow;

	lvol_events_copy_ended(io, slow->lvol, &slow->fill, status);
	ctx->stage = STAGE_COMMIT;
	grace_leave(io_channel_of(io)->sc, ctx);
	slow->status = status;
	thread_post(thread_control(), &slow->msg, status == 0 ? fill_commit : fill_failed);
}

/* Makes the cluster of slow->fill whole, with `blocks` of io's own from `within` on. */
static void fill_begin(struct lvol_channel *ch, struct bdev_io *io, uint64_t within, uint64_t blocks)
{
	const struct bdev_lvol *l = ch->lvol;
	struct lvol_io *ctx = bdev_io_ctx(io);
	struct lvol_slow *slow = ctx->slow;
	const struct lvol_live_fill *f = &slow->fill;
	uint64_t behind = within + blocks;
	uint32_t shift = l->block_shift;
	enum bdev_io_type around = f->source != 0 ? BDEV_IO_COPY : BDEV_IO_WRITE_ZEROES;

	lvol_events_copy_begins(io, l, f);
	grace_reenter(ch->sc, ctx);
	if (!ctx->in_writes) {
		writes_enter(ch, ctx);
	}
	if (f->external && blocks < l->cluster_blocks) {
		lvol_bounce_begin(io, within, blocks);
		return;
	}
	ctx->stage = STAGE_FILL;
	slow->num_steps = 0;
	lvol_io_add_step(slow, around, base_block(l, f->cluster, 0), base_block(l, f->source, 0), within << shift);
	lvol_io_add_step(slow, io->type, base_block(l, f->cluster, within), 0, blocks << shift);
	lvol_io_add_step(slow, around, base_block(l, f->cluster, behind), base_block(l, f->source, behind),
			 (l->cluster_blocks - behind) << shift);
	lvol_io_steps_begin(io);
}

/* 0: it has begun, or waits; -EALREADY: look at the cluster's entry again; or another negative errno. */
static int first_write(struct lvol_channel *ch, struct bdev_io *io, uint64_t n, uint64_t within, uint64_t blocks)
{
	struct lvol_slow *slow = lvol_io_get_slow(io);

	if (slow == NULL) {
		return 0;
	}
	int rc = lvol_live_fill_claim(ch->lvol->v, n, &slow->fill);
	if (rc == 0) {
		fill_begin(ch, io, within, blocks);
	} else if (rc == -EAGAIN) {
		io_wait_for_cluster(ch, io, n);
		rc = 0;
	}
	return rc;
}

/* --- READ, WRITE --- */

static ALWAYS_INLINE void read_run(struct lvol_channel *ch, struct bdev_io *io)
{
	const struct bdev_lvol *l = ch->lvol;
	uint32_t cluster = lvol_live_cluster(lvol_live_entry(l->v, cluster_of(l, io->offset_blocks)));

	if (likely(cluster != 0)) {
		grace_enter(ch->sc, bdev_io_ctx(io));
		io_to_base(ch, io, base_block(l, cluster, within_cluster(l, io->offset_blocks)));
		return;
	}
	lvol_io_read_external(io);
}

static ALWAYS_INLINE void write_to_cluster(struct lvol_channel *ch, struct bdev_io *io, uint32_t entry)
{
	const struct bdev_lvol *l = ch->lvol;
	struct lvol_io *ctx = bdev_io_ctx(io);

	grace_enter(ch->sc, ctx);
	writes_enter(ch, ctx);
	io_to_base(ch, io, base_block(l, lvol_live_cluster(entry), within_cluster(l, io->offset_blocks)));
}

/* A WRITE that goes to no cluster of the volume's own, or may not. */
static NOINLINE void write_run_otherwise(struct lvol_channel *ch, struct bdev_io *io)
{
	const struct bdev_lvol *l = ch->lvol;
	uint64_t n = cluster_of(l, io->offset_blocks), within = within_cluster(l, io->offset_blocks);
	int rc;

	if (ch->paused) {
		io_hold(ch, io);
		return;
	}
	/* The layer's check is older where the I/O has waited in the layer: for a limit, a lock, the rest of a split.
	 */
	if (l->bdev.read_only) {
		lvol_io_end(io, NVME_SC_NS_WRITE_PROTECTED | NVME_SC_DNR);
		return;
	}
	do {
		uint32_t entry = lvol_live_entry(l->v, n);
		if (lvol_live_is_writable(entry)) {
			write_to_cluster(ch, io, entry);
			return;
		}
		rc = first_write(ch, io, n, within, io->num_blocks);
	} while (rc == -EALREADY);
	if (rc != 0) {
		lvol_io_end_errno(io, rc);
	}
}

static ALWAYS_INLINE void write_run(struct lvol_channel *ch, struct bdev_io *io)
{
	const struct bdev_lvol *l = ch->lvol;

	if (likely(!ch->paused && !l->bdev.read_only)) {
		uint32_t entry = lvol_live_entry(l->v, cluster_of(l, io->offset_blocks));
		if (likely(lvol_live_is_writable(entry))) {
			write_to_cluster(ch, io, entry);
			return;
		}
	}
	write_run_otherwise(ch, io);
}

/* --- WRITE_ZEROES --- */

/* The next blocks of io that lie in one cluster. */
static uint64_t io_next_piece(const struct bdev_lvol *l, const struct bdev_io *io, uint64_t at, uint64_t *within)
{
	*within = within_cluster(l, io->offset_blocks + at);
	return RTE_MIN(io->num_blocks - at, l->cluster_blocks - *within);
}

/* True: go on. */
static bool zeroes_piece(struct lvol_channel *ch, struct bdev_io *io, struct lvol_slow *slow)
{
	const struct bdev_lvol *l = ch->lvol;
	uint64_t within, at = io->offset_blocks + slow->at, blocks = io_next_piece(l, io, slow->at, &within);
	uint64_t n = cluster_of(l, at);
	uint32_t entry = lvol_live_entry(l->v, n);

	if (lvol_live_is_writable(entry)) {
		slow->at += blocks;
		grace_reenter(ch->sc, bdev_io_ctx(io));
		step_run(io, BDEV_IO_WRITE_ZEROES, base_block(l, lvol_live_cluster(entry), within),
			 blocks << l->block_shift);
		return false;
	}
	if (entry == 0 && n >= l->v->external_clusters) {
		slow->at += blocks;
		return true;
	}
	if (entry & LVOL_LIVE_BUSY) {
		io_wait_for_cluster(ch, io, n);
		return false;
	}
	slow->piece = blocks;
	int rc = first_write(ch, io, n, within, blocks);
	if (rc != 0 && rc != -EALREADY) {
		slow->status = bdev_status_from_errno(rc);
	}
	return rc != 0;
}

/* --- UNMAP --- */

/* Own clusters that the store has not taken back: the base may. */
static bool unmap_piece(struct lvol_channel *ch, struct bdev_io *io, struct lvol_slow *slow)
{
	const struct bdev_lvol *l = ch->lvol;
	uint64_t within, at = io->offset_blocks + slow->at, blocks = io_next_piece(l, io, slow->at, &within);
	uint32_t entry = lvol_live_entry(l->v, cluster_of(l, at));

	if (!(bdev_desc_bdev(l->store->base)->io_types & 1u << BDEV_IO_UNMAP)) {
		slow->at = io->num_blocks;
		return true;
	}
	slow->at += blocks;
	if (!lvol_live_is_writable(entry)) {
		return true;
	}
	grace_reenter(ch->sc, bdev_io_ctx(io));
	step_run(io, BDEV_IO_UNMAP, base_block(l, lvol_live_cluster(entry), within), blocks << l->block_shift);
	return false;
}

/* Goes through the pieces of a WRITE_ZEROES or UNMAP, one after the other. status: how the last one ended. Where the
 * base ends an I/O at once, that leads here again, which must not cost stack for each piece. */
static void range_go_on(struct bdev_io *io, uint16_t status)
{
	struct lvol_channel *ch = io_channel_of(io);
	struct lvol_slow *slow = ((struct lvol_io *)bdev_io_ctx(io))->slow;

	slow->status = status;
	slow->ended = true;
	if (slow->running) {
		return;
	}
	slow->running = true;
	while (slow->ended && slow->status == 0 && slow->at < io->num_blocks) {
		slow->ended = false;
		if (io->type == BDEV_IO_UNMAP ? unmap_piece(ch, io, slow) : zeroes_piece(ch, io, slow)) {
			slow->ended = true; /* nothing was to be done */
		}
	}
	slow->running = false;
	if (slow->ended) {
		lvol_io_end(io, slow->status);
	}
}

static void release_has_ended(struct thread_msg *msg)
{
	struct lvol_slow *slow = container_of(msg, struct lvol_slow, msg);
	struct bdev_io *io = slow->io;
	struct lvol_io *ctx = bdev_io_ctx(io);

	ctx->stage = STAGE_BASE;
	range_go_on(io, slow->status);
}

static void release_done(void *arg, int status)
{
	struct lvol_slow *slow = arg;

	slow->status = bdev_status_from_errno(status);
	thread_post(slow->thread, &slow->msg, release_has_ended);
}

static void release_on_control(struct thread_msg *msg)
{
	struct lvol_slow *slow = container_of(msg, struct lvol_slow, msg);

	lvol_live_release(slow->lvol->v, slow->cluster, slow->count, NULL, release_done, slow);
}

/* Gives whole clusters back to the store, then unmaps what is left. */
static void unmap_begin(struct lvol_channel *ch, struct bdev_io *io, struct lvol_slow *slow)
{
	const struct bdev_lvol *l = ch->lvol;
	struct lvol_io *ctx = bdev_io_ctx(io);
	uint64_t first = cluster_of(l, io->offset_blocks + l->cluster_blocks - 1),
		 end = cluster_of(l, io->offset_blocks + io->num_blocks);

	if (first >= end) {
		range_go_on(io, 0);
		return;
	}
	ctx->stage = STAGE_RELEASE;
	slow->cluster = first;
	slow->count = end - first;
	thread_post(thread_control(), &slow->msg, release_on_control);
}

/* --- All types --- */

/* WRITE_ZEROES and UNMAP count as writes until they end. */
static void range_run(struct lvol_channel *ch, struct bdev_io *io)
{
	struct lvol_io *ctx = bdev_io_ctx(io);

	if (ch->paused && !ctx->in_writes) {
		io_hold(ch, io);
		return;
	}
	if (ch->lvol->bdev.read_only && !ctx->in_writes) {
		lvol_io_end(io, NVME_SC_NS_WRITE_PROTECTED | NVME_SC_DNR);
		return;
	}
	struct lvol_slow *slow = lvol_io_get_slow(io);
	if (slow == NULL) {
		return;
	}
	if (!ctx->in_writes) {
		writes_enter(ch, ctx);
	}
	if (io->type == BDEV_IO_WRITE_ZEROES) {
		range_go_on(io, 0);
	} else {
		unmap_begin(ch, io, slow);
	}
}

static void io_abort(struct lvol_channel *ch, struct bdev_io *io)
{
	struct bdev_io *target = io->abort.target;

	if (io_end_held(ch, target, false) || lvol_bounce_end_waiting(target, NVME_SC_ABORT_REQ)) {
		bdev_io_complete_cdw0(io, 0, 0);
	} else {
		bdev_child_abort(io_pool(target), io);
	}
}

void lvol_io_run(struct bdev_io *io)
{
	struct lvol_channel *ch = io_channel_of(io);

	switch (io->type) {
	case BDEV_IO_READ:
		read_run(ch, io);
		break;
	case BDEV_IO_WRITE:
		write_run(ch, io);
		break;
	case BDEV_IO_FLUSH:
		step_run(io, BDEV_IO_FLUSH, 0, bdev_num_blocks(bdev_desc_bdev(ch->lvol->store->base)));
		break;
	case BDEV_IO_ABORT:
		io_abort(ch, io);
		break;
	default:
		range_run(ch, io);
		break;
	}
}

void lvol_io_submit(void *channel, struct bdev_io *io)
{
	struct lvol_io *ctx = bdev_io_ctx(io);

	ctx->slow = NULL;
	ctx->stage = STAGE_BASE;
	ctx->in_grace = ctx->in_writes = false;
	/* The two that matter are here at once, and all else is out of their way. */
	if (likely(io->type == BDEV_IO_READ)) {
		read_run(channel, io);
	} else if (likely(io->type == BDEV_IO_WRITE)) {
		write_run(channel, io);
	} else {
		lvol_io_run(io);
	}
}

static void io_steps_ended(struct bdev_io *io, uint16_t status)
{
	const struct lvol_io *ctx = bdev_io_ctx(io);

	if (ctx->stage == STAGE_EXTERNAL) {
		lvol_io_external_ended(io, status);
	} else if (ctx->stage == STAGE_FILL && ctx->slow->bounce != NULL) {
		lvol_bounce_written(io, status);
	} else if (ctx->stage == STAGE_FILL) {
		lvol_io_filled(io, status);
	} else if (io->type == BDEV_IO_WRITE_ZEROES || io->type == BDEV_IO_UNMAP) {
		range_go_on(io, status);
	} else {
		lvol_io_end(io, status);
	}
}

const struct bdev_child_ops lvol_io_child_ops = {
	.resume = steps_go_on, .all_ended = io_steps_ended, .dropped = io_forget};

/* Ends what waits for a change of the volume, for a cluster or for a child. All volumes of the thread share the
 * children; I/O of the other volumes goes on. What the base is carrying out, and writes of metadata, end when the base
 * ends them: the layer waits for that. */
void lvol_io_reset_channel(struct bdev *b, void *channel)
{
	struct lvol_channel *ch = channel;
	struct lvol_io *ctx;

	bdev_child_end_waiting_of(ch->sc->pool, b, NVME_SC_ABORT_REQ);
	if (ch->external != NULL) {
		bdev_child_end_waiting_of(ch->external, b, NVME_SC_ABORT_REQ);
	}
	lvol_bounce_end_all_waiting(ch, NVME_SC_ABORT_REQ);
	while ((ctx = TAILQ_FIRST(&ch->held)) != NULL) {
		io_end_held(ch, bdev_io_from_ctx(ctx), false);
	}
}

void lvol_io_take_back(void *channel, struct bdev_io *io)
{
	struct lvol_channel *ch = channel;

	if (!io_end_held(ch, io, true)) {
		bdev_child_take_back(io_pool(io), io);
	}
}

void lvol_io_describe(struct bdev_io *io, char *text, size_t size)
{
	static const char *const reasons[] = {
		[STAGE_HELD] = "its volume to be changed: I/O that writes is held back meanwhile",
		[STAGE_WAIT] = "another first write to its cluster, or for its cluster to be given up",
		[STAGE_EXTERNAL] = "the bdev that its volume is a clone of",
		[STAGE_FILL] = "its cluster to be filled, as the first write to it",
		[STAGE_COMMIT] = "its cluster to be recorded in the metadata, as the first write to it",
		[STAGE_RELEASE] = "its clusters to be given up in the metadata",
	};
	const struct lvol_io *ctx = bdev_io_ctx(io);

	if (ctx->stage < RTE_DIM(reasons) && reasons[ctx->stage] != NULL) {
		snprintf(text, size, "%s", reasons[ctx->stage]);
	}
}
