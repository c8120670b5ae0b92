/* SPDX-License-Identifier: BSD-3-Clause */
/* I/O of modules on top of other bdevs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bdev/internal.h"

struct bdev_child {
	struct bdev_child_pool *pool;
	struct bdev_io *parent; /* NULL: free */
	SLIST_ENTRY(bdev_child) link;
	struct bdev_io io __attribute__((aligned(64)));
};

struct bdev_child_pool {
	SLIST_HEAD(, bdev_child) free;
	struct bdev_io_queue waiters; /* parents */
	bdev_io_cb done;
	struct bdev_channel *base_ch;
	uint32_t count;
	size_t stride;
	uint8_t *memory;
};

static struct bdev_child *child_at(const struct bdev_child_pool *pool, uint32_t i)
{
	return (struct bdev_child *)(pool->memory + i * pool->stride);
}

static void child_copy_done(struct bdev_io *io, void *arg);

struct bdev_child_pool *bdev_child_pool_create(struct bdev_desc *base, uint32_t count, bdev_io_cb done)
{
	struct bdev_child_pool *pool = calloc(1, sizeof(*pool));

	if (pool == NULL) {
		return NULL;
	}
	pool->done = done;
	pool->count = count;
	pool->stride = offsetof(struct bdev_child, io) + bdev_io_size();
	pool->memory = aligned_alloc(64, count * pool->stride);
	pool->base_ch = bdev_channel_get(base);
	if (pool->memory == NULL || pool->base_ch == NULL) {
		bdev_child_pool_destroy(pool);
		errno = ENOMEM;
		return NULL;
	}
	memset(pool->memory, 0, count * pool->stride);
	STAILQ_INIT(&pool->waiters);
	for (uint32_t i = 0; i < count; i++) {
		struct bdev_child *c = child_at(pool, i);
		c->pool = pool;
		bdev_io_init(&c->io, base, pool->base_ch, child_copy_done, NULL);
		SLIST_INSERT_HEAD(&pool->free, c, link);
	}
	return pool;
}

void bdev_child_pool_destroy(struct bdev_child_pool *pool)
{
	if (pool == NULL) {
		return;
	}
	if (pool->base_ch != NULL) {
		bdev_channel_put(pool->base_ch);
	}
	free(pool->memory);
	free(pool);
}

static void child_submit_copy(struct bdev_child *c, struct bdev_io *parent)
{
	c->parent = parent;
	c->io.cb_arg = parent;
	bdev_io_set_rw(&c->io, parent->type, parent->iovs, parent->iovcnt, parent->offset_blocks, parent->num_blocks);
	if (parent->type == BDEV_IO_COMPARE_AND_WRITE) {
		c->io.compare = parent->compare;
	} else if (parent->type == BDEV_IO_COPY) {
		c->io.copy = parent->copy;
	}
	if (parent->ch->slow & SLOW_DIF) {
		bdev_dif_pass_on(parent, 0, &c->io);
	}
	bdev_submit(&c->io);
}

static struct bdev_child *child_take(struct bdev_child_pool *pool)
{
	struct bdev_child *c = SLIST_FIRST(&pool->free);

	if (c != NULL) {
		SLIST_REMOVE_HEAD(&pool->free, link);
	}
	return c;
}

static void child_release(struct bdev_child *c)
{
	struct bdev_child_pool *pool = c->pool;
	struct bdev_io *parent = STAILQ_FIRST(&pool->waiters);

	c->parent = NULL;
	if (parent != NULL) {
		STAILQ_REMOVE_HEAD(&pool->waiters, queue);
		child_submit_copy(c, parent);
	} else {
		SLIST_INSERT_HEAD(&pool->free, c, link);
	}
}

static void child_copy_done(struct bdev_io *io, void *arg)
{
	struct bdev_child *c = container_of(io, struct bdev_child, io);

	/* The module's function may not put the channel, and with it the pool: parent is in flight on it. */
	c->pool->done(io, c->parent);
	child_release(c);
}

void bdev_child_submit(struct bdev_child_pool *pool, struct bdev_io *parent)
{
	struct bdev_child *c = child_take(pool);

	if (c == NULL) {
		STAILQ_INSERT_TAIL(&pool->waiters, parent, queue);
	} else {
		child_submit_copy(c, parent);
	}
}

void bdev_child_fail_waiting(struct bdev_child_pool *pool, uint16_t status)
{
	bdev_io_fail_queue(&pool->waiters, status);
}

static bool child_abort_waiting(struct bdev_child_pool *pool, struct bdev_io *target)
{
	struct bdev_io *io;

	STAILQ_FOREACH (io, &pool->waiters, queue) {
		if (io == target) {
			STAILQ_REMOVE(&pool->waiters, io, bdev_io, queue);
			bdev_io_complete(io, STATUS_ABORTED);
			return true;
		}
	}
	return false;
}

static struct bdev_child *child_of(struct bdev_child_pool *pool, const struct bdev_io *parent)
{
	for (uint32_t i = 0; i < pool->count; i++) {
		if (child_at(pool, i)->parent == parent) {
			return child_at(pool, i);
		}
	}
	return NULL;
}

static void child_abort_done(struct bdev_io *io, void *arg)
{
	struct bdev_child *c = container_of(io, struct bdev_child, io);

	bdev_io_complete_cdw0(c->parent, io->status, io->cdw0);
	c->io.cb = child_copy_done;
	child_release(c);
}

void bdev_child_abort(struct bdev_child_pool *pool, struct bdev_io *abort)
{
	struct bdev_io *target = abort->abort.target;
	struct bdev_child *victim = child_of(pool, target), *c;

	if (child_abort_waiting(pool, target)) {
		bdev_io_complete_cdw0(abort, 0, 0);
	} else if (victim == NULL || (c = child_take(pool)) == NULL) {
		bdev_io_complete_cdw0(abort, 0, 1);
	} else {
		c->parent = abort;
		c->io.cb = child_abort_done;
		c->io.cb_arg = abort;
		c->io.type = BDEV_IO_ABORT;
		c->io.abort.target = &victim->io;
		bdev_submit(&c->io);
	}
}

void bdev_inherit(struct bdev *b, const struct bdev *base)
{
	b->num_blocks = bdev_num_blocks(base);
	b->block_size = base->block_size;
	b->physical_block_size = base->physical_block_size;
	b->optimal_io_boundary = base->optimal_io_boundary;
	b->numa_node = base->numa_node;
	b->write_cache = base->write_cache;
	b->hints = base->hints;
	b->md = base->md;
	b->md.by_device = b->md.plain_by_device = b->md.separate =
		false; /* for the base these are; what stands on it checks by itself */
	b->read_only = base->read_only;
	b->io_types = 0;
	for (enum bdev_io_type type = 0; type < BDEV_IO_TYPES; type++) {
		bool nvme = type == BDEV_IO_NVME_ADMIN || type == BDEV_IO_NVME_IO || type == BDEV_IO_NVME_IO_MD;
		if (!nvme && bdev_io_type_supported(base, type)) {
			b->io_types |= 1u << type;
		}
	}
}
