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

void lvol_bounce_free(struct lvol_slow *slow)
{
	if (slow->bounce != NULL) {
		env_dma_free(slow->bounce->bytes);
		free(slow->bounce);
		slow->bounce = NULL;
	}
}

#define BOUNCE_BYTES (1u << 20)

/* `blocks` of the volume from `block` on, as far as the external snapshot has them, into the bounce buffer or the
 * reader's memory; lvol_io_external_ended() follows. False: it has none of them. */
static bool external_begin(struct bdev_io *io, uint64_t block, uint64_t blocks, const struct lvol_external_view *view)
{
	struct lvol_io *ctx = bdev_io_ctx(io);
	struct lvol_slow *slow = ctx->slow;
	uint64_t offset = block << view->block_shift, all = blocks << view->block_shift;

	slow->num_steps = 0;
	slow->place = view->place;
	if (offset >= view->num_blocks) {
		return false;
	}
	all = RTE_MIN(all, view->num_blocks - offset);
	if (slow->bounce != NULL) {
		slow->bounce->iov.iov_len = (all * io_channel_of(io)->lvol->bdev.block_size) >> view->block_shift;
	}
	ctx->stage = STAGE_EXTERNAL;
	lvol_io_add_step(slow, BDEV_IO_READ, offset, 0, all);
	lvol_io_steps_begin(io);
	return true;
}

/* A buffer for a piece of a cluster; what is not read into it stays zeroes. */
static int bounce_make(struct lvol_slow *slow, uint64_t blocks)
{
	size_t bytes = blocks * slow->lvol->bdev.block_size;
	struct lvol_bounce *b = slow->bounce != NULL ? slow->bounce : calloc(1, sizeof(*b));

	if (b == NULL) {
		return -ENOMEM;
	}
	slow->bounce = b;
	b->bytes = b->bytes != NULL ? b->bytes : env_dma_malloc(bytes, LVOL_PAGE_BYTES, -1);
	b->iov.iov_base = b->bytes;
	return b->bytes != NULL ? 0 : -ENOMEM;
}

/* The next piece of a cluster that is copied from an external snapshot. */
static void bounce_read(struct bdev_io *io)
{
	struct lvol_slow *slow = ((struct lvol_io *)bdev_io_ctx(io))->slow;
	const struct bdev_lvol *l = slow->lvol;
	struct lvol_bounce *b = slow->bounce;
	struct lvol_external_view view;

	b->blocks = RTE_MIN(l->cluster_blocks - b->at, BOUNCE_BYTES / l->bdev.block_size);
	memset(b->bytes, 0, b->blocks * l->bdev.block_size);
	if (!lvol_external_view(l, &view)) {
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
	lvol_io_add_step(slow, BDEV_IO_WRITE, base_block(l, slow->fill.cluster, b->at), 0,
			 b->blocks << l->store->block_shift);
	lvol_io_steps_begin(io);
}

static void bounce_next(struct thread_msg *msg)
{
	bounce_read(container_of(msg, struct lvol_slow, msg)->io);
}

void lvol_bounce_written(struct bdev_io *io, uint16_t status)
{
	struct lvol_slow *slow = ((struct lvol_io *)bdev_io_ctx(io))->slow;
	struct lvol_bounce *b = slow->bounce;

	b->at += b->blocks;
	if (status == 0 && b->at < slow->lvol->cluster_blocks) {
		/* Where bases end I/Os at once, that must not cost stack for each piece. */
		thread_post(slow->thread, &slow->msg, bounce_next);
	} else {
		lvol_bounce_free(slow);
		lvol_io_filled(io, status);
	}
}

void lvol_bounce_begin(struct bdev_io *io, uint64_t within, uint64_t blocks)
{
	struct lvol_io *ctx = bdev_io_ctx(io);
	struct lvol_slow *slow = ctx->slow;
	uint32_t size = slow->lvol->bdev.block_size;

	ctx->stage = STAGE_EXTERNAL;
	if (bounce_make(slow, RTE_MIN(slow->lvol->cluster_blocks, BOUNCE_BYTES / size)) != 0) {
		lvol_bounce_free(slow);
		lvol_io_filled(io, bdev_status_from_errno(-ENOMEM));
		return;
	}
	slow->bounce->at = 0;
	slow->bounce->within = within;
	slow->bounce->own = blocks;
	bounce_read(io);
}

static void io_end_zeroes(struct bdev_io *io)
{
	for (uint32_t i = 0; i < io->iovcnt; i++) {
		memset(io->iovs[i].iov_base, 0, io->iovs[i].iov_len);
	}
	lvol_io_end(io, 0);
}

/* A READ where the external snapshot has some blocks, but not all. */
static bool read_needs_bounce(const struct bdev_io *io, const struct lvol_external_view *view)
{
	return io->offset_blocks << view->block_shift < view->num_blocks &&
	       (io->offset_blocks + io->num_blocks) << view->block_shift > view->num_blocks;
}

void lvol_io_read_external(struct bdev_io *io)
{
	const struct bdev_lvol *l = io_channel_of(io)->lvol;
	struct lvol_external_view view;
	uint64_t n = cluster_of(l, io->offset_blocks);
	/* Its parent may just have become another one: see the head of lvol/live.h, "read". */
	bool inside = n < l->v->external_clusters, there = lvol_external_view(l, &view);
	bool is_external = inside && n < l->v->external_clusters;

	if (lvol_live_cluster(lvol_live_entry(l->v, n)) != 0) {
		lvol_io_run(io);
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
	if (read_needs_bounce(io, &view)) {
		if (bounce_make(slow, io->num_blocks) != 0) {
			lvol_io_end_errno(io, -ENOMEM);
			return;
		}
		memset(slow->bounce->bytes, 0, io->num_blocks * l->bdev.block_size);
	}
	if (!external_begin(io, io->offset_blocks, io->num_blocks, &view)) {
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
		ctx->stage = STAGE_BASE;
		lvol_bounce_free(slow);
		lvol_io_run(io);
		return;
	}
	if (status == 0 && slow->bounce != NULL) {
		struct iov_cursor c = iov_cursor_at(io->iovs, 0);
		iov_from_buffer(&c, slow->bounce->bytes, io->num_blocks * slow->lvol->bdev.block_size);
	}
	lvol_io_end(io, status);
}
