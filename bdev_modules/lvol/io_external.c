/* SPDX-License-Identifier: BSD-3-Clause */
/* I/O where neither a volume nor its snapshots have a cluster, but a bdev outside of the store may have the data. A
 * READ is one on that bdev. A first write copies the cluster from there through a buffer, piece by piece: no bdev
 * copies from another one. Behind the end of the bdev there are zeroes. */
#include <errno.h>
#include <rte_common.h>
#include <stdlib.h>
#include <string.h>

#include "bdev_modules/lvol/io.h"
#include "env_dpdk/env.h"
#include "util/iov.h"

static void bounce_write(struct bdev_io *io);

#define BOUNCE_BYTES (128u << 10)
#define BOUNCES      16u /* a channel's buffers: who finds none waits for one */

/* Ends an I/O that gets no buffer. */
static void bounce_fail(struct bdev_io *io, uint16_t status)
{
	if (io->type == BDEV_IO_READ) {
		lvol_io_end(io, status);
	} else {
		lvol_io_filled(io, status);
	}
}

/* Allocates the buffer of an I/O whose turn has come, and begins its first piece. */
static void bounce_get(struct bdev_io *io)
{
	struct lvol_slow *slow = ((struct lvol_io *)bdev_io_ctx(io))->slow;
	struct lvol_bounce *b = slow->bounce;
	uint64_t blocks = RTE_MIN(b->all, BOUNCE_BYTES / slow->lvol->bdev.block_size);

	b->bytes = env_dma_malloc(blocks * slow->lvol->bdev.block_size, LVOL_PAGE_BYTES, -1);
	b->iov.iov_base = b->bytes;
	if (b->bytes != NULL) {
		b->go_on(io);
		return;
	}
	lvol_bounce_free(slow);
	bounce_fail(io, bdev_status_from_errno(-ENOMEM));
}

static void bounce_woken(struct thread_msg *msg)
{
	bounce_get(container_of(msg, struct lvol_slow, msg)->io);
}

void lvol_bounce_free(struct lvol_slow *slow)
{
	if (slow->bounce == NULL) {
		return;
	}
	struct lvol_channel *ch = io_channel_of(slow->io);
	struct lvol_slow *next = STAILQ_FIRST(&ch->bounce_waiters);

	env_dma_free(slow->bounce->bytes);
	free(slow->bounce);
	slow->bounce = NULL;
	if (next != NULL) {
		STAILQ_REMOVE_HEAD(&ch->bounce_waiters, bounce_link);
		next->bounce->waits = false;
		thread_post(next->thread, &next->msg, bounce_woken);
	} else {
		ch->bounces--;
	}
}

bool lvol_bounce_end_waiting(struct bdev_io *io, uint16_t status)
{
	struct lvol_slow *slow = ((struct lvol_io *)bdev_io_ctx(io))->slow;

	if (slow == NULL || slow->bounce == NULL || !slow->bounce->waits) {
		return false;
	}
	STAILQ_REMOVE(&io_channel_of(io)->bounce_waiters, slow, lvol_slow, bounce_link);
	free(slow->bounce); /* it has no place that others wait for */
	slow->bounce = NULL;
	bounce_fail(io, status);
	return true;
}

void lvol_bounce_end_all_waiting(struct lvol_channel *ch, uint16_t status)
{
	const struct lvol_slow *slow;

	while ((slow = STAILQ_FIRST(&ch->bounce_waiters)) != NULL) {
		lvol_bounce_end_waiting(slow->io, status);
	}
}

/* Copies `all` blocks piece by piece: go_on begins each of them, the first one when there is a buffer. */
static void bounce_begin(struct bdev_io *io, const struct lvol_bounce *first)
{
	struct lvol_channel *ch = io_channel_of(io);
	struct lvol_io *ctx = bdev_io_ctx(io);
	struct lvol_slow *slow = ctx->slow;

	ctx->stage = STAGE_EXTERNAL;
	slow->num_steps = 0;
	slow->bounce = malloc(sizeof(*slow->bounce));
	if (slow->bounce == NULL) {
		bounce_fail(io, bdev_status_from_errno(-ENOMEM));
		return;
	}
	*slow->bounce = *first;
	if (ch->bounces == BOUNCES) {
		slow->bounce->waits = true;
		STAILQ_INSERT_TAIL(&ch->bounce_waiters, slow, bounce_link);
	} else {
		ch->bounces++;
		bounce_get(io);
	}
}

static void bounce_choose_piece(struct lvol_slow *slow)
{
	struct lvol_bounce *b = slow->bounce;

	b->blocks = RTE_MIN(b->all - b->at, BOUNCE_BYTES / slow->lvol->bdev.block_size);
}

/* The external snapshot ends `bytes` behind the beginning of the piece: there are zeroes from there on. */
static void bounce_zero_from(const struct lvol_slow *slow, size_t bytes)
{
	const struct lvol_bounce *b = slow->bounce;

	memset(b->bytes + bytes, 0, b->blocks * slow->lvol->bdev.block_size - bytes);
}

static void bounce_next(struct thread_msg *msg)
{
	struct lvol_slow *slow = container_of(msg, struct lvol_slow, msg);

	slow->bounce->go_on(slow->io);
}

/* A piece has been copied. False: it was the last one. */
static bool bounce_goes_on(struct lvol_slow *slow)
{
	struct lvol_bounce *b = slow->bounce;

	b->at += b->blocks;
	if (b->at == b->all) {
		return false;
	}
	/* Where bases end I/Os at once, that must not cost stack for each piece. */
	thread_post(slow->thread, &slow->msg, bounce_next);
	return true;
}

/* Reads `blocks` of the volume from `block` on, as far as the external snapshot has them, into the buffer of the copy,
 * where zeroes follow them, or into the reader's memory; lvol_io_external_ended() follows. False: the snapshot has none
 * of them, and a buffer is all zeroes. */
static bool external_begin(struct bdev_io *io, uint64_t block, uint64_t blocks, const struct lvol_external_view *view)
{
	struct lvol_io *ctx = bdev_io_ctx(io);
	struct lvol_slow *slow = ctx->slow;
	uint64_t offset = block << view->block_shift, all = blocks << view->block_shift;

	slow->num_steps = 0;
	slow->place = view->place;
	all = offset < view->num_blocks ? RTE_MIN(all, view->num_blocks - offset) : 0;
	if (slow->bounce != NULL) {
		slow->bounce->iov.iov_len = (all * slow->lvol->bdev.block_size) >> view->block_shift;
		bounce_zero_from(slow, slow->bounce->iov.iov_len);
	}
	if (all == 0) {
		return false;
	}
	ctx->stage = STAGE_EXTERNAL;
	lvol_io_add_step(slow, BDEV_IO_READ, offset, 0, all);
	lvol_io_steps_begin(io);
	return true;
}

/* Whether the I/O itself writes all of the piece. */
static bool bounce_is_own(const struct lvol_bounce *b)
{
	return b->at >= b->within && b->at + b->blocks <= b->within + b->own;
}

/* The next piece of a cluster that is copied from an external snapshot. What the I/O overwrites is not read. */
static void bounce_read(struct bdev_io *io)
{
	struct lvol_slow *slow = ((struct lvol_io *)bdev_io_ctx(io))->slow;
	const struct bdev_lvol *l = slow->lvol;
	struct lvol_bounce *b = slow->bounce;
	struct lvol_external_view view;

	bounce_choose_piece(slow);
	if (bounce_is_own(b)) {
		bounce_write(io);
	} else if (!lvol_external_view(l, &view)) {
		lvol_bounce_free(slow);
		lvol_io_filled(io, bdev_status_from_errno(-ENODEV));
	} else if (!external_begin(io, slow->fill.n * l->cluster_blocks + b->at, b->blocks, &view)) {
		bounce_write(io);
	}
}

/* Puts what the I/O itself writes into the piece. */
static void bounce_overlay(const struct bdev_io *io, const struct lvol_slow *slow)
{
	const struct lvol_bounce *b = slow->bounce;
	uint64_t first = RTE_MAX(b->at, b->within), end = RTE_MIN(b->at + b->blocks, b->within + b->own);
	uint32_t size = slow->lvol->bdev.block_size;

	if (first >= end) {
		return;
	}
	uint8_t *to = b->bytes + (first - b->at) * size;
	if (io->type == BDEV_IO_WRITE) {
		struct iov_cursor c = iov_cursor_at(io->iovs, (first - b->within) * size);
		iov_to_buffer(&c, to, (end - first) * size);
	} else {
		memset(to, 0, (end - first) * size);
	}
}

static void bounce_write(struct bdev_io *io)
{
	struct lvol_io *ctx = bdev_io_ctx(io);
	struct lvol_slow *slow = ctx->slow;
	const struct bdev_lvol *l = slow->lvol;
	struct lvol_bounce *b = slow->bounce;

	bounce_overlay(io, slow);
	ctx->stage = STAGE_FILL;
	slow->num_steps = 0;
	b->iov.iov_len = b->blocks * l->bdev.block_size;
	lvol_io_add_step(slow, BDEV_IO_WRITE, base_block(l, slow->fill.cluster, b->at), 0, b->blocks << l->block_shift);
	lvol_io_steps_begin(io);
}

void lvol_bounce_written(struct bdev_io *io, uint16_t status)
{
	struct lvol_slow *slow = ((struct lvol_io *)bdev_io_ctx(io))->slow;

	if (status != 0 || !bounce_goes_on(slow)) {
		lvol_bounce_free(slow);
		lvol_io_filled(io, status);
	}
}

void lvol_bounce_begin(struct bdev_io *io, uint64_t within, uint64_t blocks)
{
	bounce_begin(io, &(struct lvol_bounce){.go_on = bounce_read,
					       .all = io_channel_of(io)->lvol->cluster_blocks,
					       .within = within,
					       .own = blocks});
}

static void io_end_zeroes(struct bdev_io *io)
{
	struct iov_cursor c = iov_cursor_at(io->iovs, 0);

	iov_fill(&c, 0, io->num_blocks * io_channel_of(io)->lvol->bdev.block_size);
	lvol_io_end(io, 0);
}

/* A READ where the external snapshot has some blocks, but not all. */
static bool read_needs_bounce(const struct bdev_io *io, const struct lvol_external_view *view)
{
	return io->offset_blocks << view->block_shift < view->num_blocks &&
	       (io->offset_blocks + io->num_blocks) << view->block_shift > view->num_blocks;
}

/* Begins a READ again: there may be a cluster now. */
static void read_anew(struct bdev_io *io)
{
	struct lvol_io *ctx = bdev_io_ctx(io);

	if (ctx->slow != NULL) {
		lvol_bounce_free(ctx->slow);
	}
	ctx->stage = STAGE_BASE;
	lvol_io_run(io);
}

static void read_piece_ended(struct bdev_io *io)
{
	struct lvol_slow *slow = ((struct lvol_io *)bdev_io_ctx(io))->slow;
	const struct lvol_bounce *b = slow->bounce;
	uint32_t size = slow->lvol->bdev.block_size;
	struct iov_cursor c = iov_cursor_at(io->iovs, b->at * size);

	iov_from_buffer(&c, b->bytes, b->blocks * size);
	if (!bounce_goes_on(slow)) {
		lvol_io_end(io, 0);
	}
}

static void read_piece(struct bdev_io *io, const struct lvol_external_view *view)
{
	struct lvol_slow *slow = ((struct lvol_io *)bdev_io_ctx(io))->slow;
	const struct lvol_bounce *b = slow->bounce;

	bounce_choose_piece(slow);
	if (!external_begin(io, io->offset_blocks + b->at, b->blocks, view)) {
		read_piece_ended(io);
	}
}

/* Also begins each further piece of a READ that goes through a buffer: the external snapshot may be another one then.
 */
void lvol_io_read_external(struct bdev_io *io)
{
	const struct bdev_lvol *l = io_channel_of(io)->lvol;
	struct lvol_external_view view;
	uint64_t n = cluster_of(l, io->offset_blocks);
	/* Its parent may just have become another one: see the head of lvol/live.h, "read". */
	bool inside = n < l->v->external_clusters, there = lvol_external_view(l, &view);
	bool is_external = inside && n < l->v->external_clusters;

	if (lvol_live_cluster(lvol_live_entry(l->v, n)) != 0) {
		read_anew(io);
		return;
	}
	if (!is_external) {
		io_end_zeroes(io);
		return;
	}
	if (!there) { /* its bdev is going, too */
		lvol_io_end_errno(io, -ENODEV);
		return;
	}
	struct lvol_slow *slow = lvol_io_get_slow(io);
	if (slow == NULL) {
		return;
	}
	if (slow->bounce != NULL) {
		read_piece(io, &view);
	} else if (read_needs_bounce(io, &view)) {
		bounce_begin(io, &(struct lvol_bounce){.go_on = lvol_io_read_external, .all = io->num_blocks});
	} else if (!external_begin(io, io->offset_blocks, io->num_blocks, &view)) {
		io_end_zeroes(io);
	}
}

void lvol_io_external_ended(struct bdev_io *io, uint16_t status)
{
	struct lvol_io *ctx = bdev_io_ctx(io);
	struct lvol_slow *slow = ctx->slow;
	bool has_changed = status != 0 && atomic_load(&slow->lvol->external.active) != (int)slow->place;

	if (io->type != BDEV_IO_READ) {
		if (has_changed) {
			bounce_read(io);
		} else if (status == 0) {
			bounce_write(io);
		} else {
			lvol_bounce_written(io, status);
		}
		return;
	}
	if (has_changed) {
		read_anew(io);
	} else if (status == 0 && slow->bounce != NULL) {
		read_piece_ended(io);
	} else {
		lvol_io_end(io, status);
	}
}
