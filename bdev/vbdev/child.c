/* SPDX-License-Identifier: BSD-3-Clause */
/* Pools of child I/Os, and the parents they serve.
 *
 * A group's bookkeeping is in the parent's fields that the layer uses for I/O it splits itself, which an I/O that is
 * with a module is not: `children` counts what the parent waits for (each child sent; one while the module is making
 * children; one while the parent waits in the pool), `child_status` is the first error, `phase` has GROUP_* bits. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bdev/internal.h"
#include "bdev/vbdev/child.h"

struct bdev_child {
	struct child_base *base;
	struct bdev_io *parent; /* NULL: free */
	struct bdev_io *abort;  /* the ABORT that is yet to abort this child, or NULL */
	bool is_reserved;       /* for RESET or ABORT: never in the list of free ones */
	SLIST_ENTRY(bdev_child) link;
	struct bdev_io io __attribute__((aligned(64))); /* its iovs follow the module's context */
};

/* A base of a pool, and the children that only it gets. */
struct child_base {
	SLIST_HEAD(, bdev_child) free;
	struct bdev_io_queue waiters; /* parents */
	struct bdev_child_pool *pool;
	struct bdev_desc *desc; /* NULL: absent, or being detached */
	struct bdev_channel *ch;
	void (*detached)(void *arg); /* being detached; otherwise NULL */
	void *detached_arg;
	/* Two more children, one for RESET only and one for ABORT only, so that these do not wait for what they are to
	 * end. */
	struct bdev_child *reset_child, *abort_child;
	struct bdev_io_queue abort_waiters; /* ABORTs */
};

struct bdev_child_pool {
	bdev_io_cb done;
	uint32_t n_bases, count;
	size_t stride;
	uint8_t *memory;
	struct child_base bases[];
};

#define RESERVED_CHILDREN 2u /* of each base */

enum {
	GROUP_SENDING = 1, /* bdev_children_sent() has yet to be called */
	GROUP_WAITS = 2,   /* in the waiters of a base */
	GROUP_TOUCHED = 4, /* a base may have carried out a child, or a part of it */
};

static void copy_child_done(struct bdev_io *io, void *arg);

/* --- The pool --- */

/* Number `count` is the one for RESET, and the last one that for ABORT. */
static struct bdev_child *base_child(const struct child_base *base, uint32_t i)
{
	const struct bdev_child_pool *pool = base->pool;
	size_t at = (size_t)(base - pool->bases) * (pool->count + RESERVED_CHILDREN) + i;

	return (struct bdev_child *)(pool->memory + at * pool->stride);
}

static void base_set_desc(struct child_base *base, struct bdev_desc *desc, struct bdev_channel *ch)
{
	base->desc = desc;
	base->ch = ch;
	for (uint32_t i = 0; i < base->pool->count + RESERVED_CHILDREN; i++) {
		bdev_io_init(&base_child(base, i)->io, desc, ch, copy_child_done, NULL);
	}
}

static int base_open(struct child_base *base, struct bdev_desc *desc)
{
	errno = ENOMEM;
	struct bdev_channel *ch = bdev_channel_get(desc);

	if (ch == NULL) {
		return -errno;
	}
	base_set_desc(base, desc, ch);
	return 0;
}

static void base_init(struct bdev_child_pool *pool, struct child_base *base)
{
	base->pool = pool;
	STAILQ_INIT(&base->waiters);
	STAILQ_INIT(&base->abort_waiters);
	for (uint32_t i = 0; i < pool->count + RESERVED_CHILDREN; i++) {
		struct bdev_child *c = base_child(base, i);
		c->base = base;
		c->is_reserved = i >= pool->count;
		if (!c->is_reserved) {
			SLIST_INSERT_HEAD(&base->free, c, link);
		}
	}
	base->reset_child = base_child(base, pool->count);
	base->abort_child = base_child(base, pool->count + 1);
}

/* Whether a parent's count of children (bdev_io.children), its own hold included, has room for all of the pool. */
static bool pool_fits_count(const struct bdev_child_pool_opts *opts)
{
	return ((uint64_t)opts->count + RESERVED_CHILDREN) * opts->n_bases < UINT16_MAX;
}

struct bdev_child_pool *bdev_child_pool_create_for(const struct bdev_child_pool_opts *opts)
{
	if (!pool_fits_count(opts)) {
		errno = EINVAL;
		return NULL;
	}
	struct bdev_child_pool *pool = calloc(1, sizeof(*pool) + opts->n_bases * sizeof(pool->bases[0]));
	int rc = 0;

	if (pool == NULL) {
		errno = ENOMEM;
		return NULL;
	}
	pool->done = opts->done;
	pool->n_bases = opts->n_bases;
	pool->count = opts->count;
	pool->stride = offsetof(struct bdev_child, io) + bdev_io_size() + opts->iovs * sizeof(struct iovec);
	pool->stride = (pool->stride + 63) & ~(size_t)63;
	size_t bytes = (size_t)opts->n_bases * (opts->count + RESERVED_CHILDREN) * pool->stride;
	pool->memory = aligned_alloc(64, bytes);
	if (pool->memory == NULL) {
		rc = -ENOMEM;
		pool->n_bases = 0;
	} else {
		memset(pool->memory, 0, bytes);
	}
	for (uint32_t i = 0; i < pool->n_bases; i++) {
		base_init(pool, &pool->bases[i]);
	}
	for (uint32_t i = 0; i < pool->n_bases && rc == 0; i++) {
		rc = opts->bases[i] != NULL ? base_open(&pool->bases[i], opts->bases[i]) : 0;
	}
	if (rc != 0) {
		bdev_child_pool_destroy(pool);
		errno = -rc;
		return NULL;
	}
	return pool;
}

struct bdev_child_pool *bdev_child_pool_create(struct bdev_desc *base, uint32_t count, bdev_io_cb done)
{
	return bdev_child_pool_create_for(
		&(struct bdev_child_pool_opts){.bases = &base, .n_bases = 1, .count = count, .done = done});
}

void bdev_child_pool_destroy(struct bdev_child_pool *pool)
{
	if (pool == NULL) {
		return;
	}
	for (uint32_t i = 0; i < pool->n_bases; i++) {
		if (pool->bases[i].ch != NULL) {
			bdev_channel_put(pool->bases[i].ch);
		}
	}
	free(pool->memory);
	free(pool);
}

/* --- Taking and giving back --- */

static struct bdev_child *child_take(struct child_base *base)
{
	struct bdev_child *c = SLIST_FIRST(&base->free);

	if (c != NULL) {
		SLIST_REMOVE_HEAD(&base->free, link);
	}
	return c;
}

/* For a RESET while all children are in use, perhaps by I/Os that only the RESET can end. A bdev has one RESET with its
 * module at a time, so that each base has this child free for it. */
static COLD struct bdev_child *reset_child_take(const struct child_base *base, const struct bdev_io *parent)
{
	bool may_have_it = parent->type == BDEV_IO_RESET && base->reset_child->parent == NULL;

	return may_have_it ? base->reset_child : NULL;
}

static void copy_submit(struct bdev_child *c, struct bdev_io *parent, uint64_t offset)
{
	c->parent = parent;
	c->io.cb_arg = parent;
	bdev_io_set_rw(&c->io, parent->type, parent->iovs, parent->iovcnt, offset, parent->num_blocks);
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

static void group_wait_ends(struct bdev_io *parent, bool resume);

/* Ends one that is no group's and has no child. */
static COLD void parent_drop(struct bdev_io *parent, uint16_t status)
{
	const struct bdev_child_ops *ops = parent->ch->bdev->ops->child_ops;

	if (ops != NULL && ops->dropped != NULL) {
		ops->dropped(parent);
	}
	bdev_io_complete_untouched(parent, status);
}

/* Its waiters get what is free, or learn that the base is absent. */
static NOINLINE void base_serve_waiters(struct child_base *base)
{
	struct bdev_io *parent;

	while ((parent = STAILQ_FIRST(&base->waiters)) != NULL && (base->desc == NULL || !SLIST_EMPTY(&base->free))) {
		STAILQ_REMOVE_HEAD(&base->waiters, queue);
		if (parent->flags & IO_CHILDREN) {
			group_wait_ends(parent, true);
		} else if (base->desc != NULL) {
			copy_submit(child_take(base), parent, parent->children_blocks);
		} else {
			parent_drop(parent, STATUS_REMOVED);
		}
	}
}

static bool base_is_quiet(const struct child_base *base)
{
	for (uint32_t i = 0; i < base->pool->count + RESERVED_CHILDREN; i++) {
		if (base_child(base, i)->parent != NULL) {
			return false;
		}
	}
	return true;
}

static COLD void base_check_detached(struct child_base *base)
{
	void (*detached)(void *arg) = base->detached;

	if (base_is_quiet(base)) {
		bdev_channel_put(base->ch);
		base_set_desc(base, NULL, NULL);
		base->detached = NULL;
		detached(base->detached_arg);
	}
}

static void child_release(struct bdev_child *c)
{
	struct child_base *base = c->base;

	c->parent = NULL;
	c->abort = NULL;
	if (likely(!c->is_reserved)) {
		SLIST_INSERT_HEAD(&base->free, c, link);
	}
	if (unlikely(!STAILQ_EMPTY(&base->waiters))) {
		base_serve_waiters(base);
	}
	if (unlikely(base->detached != NULL)) {
		base_check_detached(base);
	}
}

static bool io_touches(const struct bdev_io *io, uint64_t first, uint64_t last)
{
	return io->type != BDEV_IO_FLUSH && io->type != BDEV_IO_RESET && io->offset_blocks <= last &&
	       io->offset_blocks + io->num_blocks > first;
}

static bool base_touches(const struct child_base *base, uint64_t first, uint64_t last)
{
	const struct bdev_io *parent;

	for (uint32_t i = 0; i < base->pool->count; i++) {
		const struct bdev_child *c = base_child(base, i);
		if (c->parent != NULL && io_touches(&c->io, first, last)) {
			return true;
		}
	}
	STAILQ_FOREACH (parent, &base->waiters, queue) {
		if (!(parent->flags & IO_CHILDREN) && io_touches(parent, first, last)) {
			return true;
		}
	}
	return false;
}

bool bdev_child_pool_touches(const struct bdev_child_pool *pool, uint64_t first, uint64_t last)
{
	for (uint32_t i = 0; i < pool->n_bases; i++) {
		if (base_touches(&pool->bases[i], first, last)) {
			return true;
		}
	}
	return false;
}

/* --- Copies --- */

static void copy_child_done(struct bdev_io *io, void *arg)
{
	struct bdev_child *c = container_of(io, struct bdev_child, io);

	/* The module's function may not put the channel, and with it the pool: parent is in flight on it. */
	c->base->pool->done(io, c->parent);
	child_release(c);
}

/* While a parent waits, its children_blocks, which only I/O that the layer splits uses, is the place on the base. */
void bdev_child_submit_at(struct bdev_child_pool *pool, struct bdev_io *parent, uint64_t offset_blocks)
{
	struct child_base *base = &pool->bases[0];
	struct bdev_child *c = likely(base->desc != NULL) ? child_take(base) : NULL;

	if (likely(c != NULL)) {
		copy_submit(c, parent, offset_blocks);
	} else if (base->desc == NULL) {
		parent_drop(parent, STATUS_REMOVED);
	} else if ((c = reset_child_take(base, parent)) != NULL) {
		copy_submit(c, parent, offset_blocks);
	} else {
		parent->children_blocks = offset_blocks;
		STAILQ_INSERT_TAIL(&base->waiters, parent, queue);
	}
}

void bdev_child_submit(struct bdev_child_pool *pool, struct bdev_io *parent)
{
	bdev_child_submit_at(pool, parent, parent->offset_blocks);
}

/* --- Groups --- */

static const struct bdev_child_ops *group_ops(const struct bdev_io *parent)
{
	return parent->ch->bdev->ops->child_ops;
}

/* The parent waits for one thing less. */
static void group_put(struct bdev_io *parent)
{
	if (--parent->children != 0) {
		return;
	}
	parent->flags &= (uint8_t)~IO_CHILDREN;
	if (group_ops(parent)->all_ended != NULL) {
		group_ops(parent)->all_ended(parent, parent->child_status);
	} else if (parent->child_status != 0 && !(parent->phase & GROUP_TOUCHED)) {
		bdev_io_complete_untouched(parent, parent->child_status);
	} else {
		bdev_io_complete(parent, parent->child_status);
	}
}

/* It has been taken out of the waiters. resume false: nobody makes children for it any more. */
static void group_wait_ends(struct bdev_io *parent, bool resume)
{
	parent->phase &= (uint8_t)~GROUP_WAITS;
	if (resume) {
		group_ops(parent)->resume(parent);
	} else {
		bdev_children_sent(parent);
	}
	group_put(parent);
}

void bdev_children_begin(struct bdev_io *parent)
{
	parent->flags |= IO_CHILDREN;
	parent->phase = GROUP_SENDING;
	parent->child_status = 0;
	parent->children = 1;
}

int bdev_child_get(struct bdev_child_pool *pool, uint32_t base_index, struct bdev_io *parent, struct bdev_io **child)
{
	struct child_base *base = &pool->bases[base_index];

	if (unlikely(parent->flags & IO_ABORTED)) {
		bdev_children_fail(parent, STATUS_ABORTED);
		return -ECANCELED;
	}
	if (unlikely(base->desc == NULL)) {
		return -ENODEV;
	}
	struct bdev_child *c = child_take(base);
	if (unlikely(c == NULL) && (c = reset_child_take(base, parent)) == NULL) {
		if (!(parent->phase & GROUP_WAITS)) {
			parent->phase |= GROUP_WAITS;
			parent->children++;
			STAILQ_INSERT_TAIL(&base->waiters, parent, queue);
		}
		return -EAGAIN;
	}
	c->parent = parent;
	c->io.cb_arg = parent;
	c->io.iovs = (struct iovec *)((uint8_t *)&c->io + bdev_io_size());
	c->io.iovcnt = 0;
	c->io.dif_flags = 0;
	*child = &c->io;
	return 0;
}

void bdev_child_set_dif(struct bdev_io *child, uint64_t first)
{
	struct bdev_io *parent = container_of(child, struct bdev_child, io)->parent;

	if (parent->ch->slow & SLOW_DIF) {
		bdev_dif_pass_tags(parent, first, child);
	}
}

static void group_child_done(struct bdev_io *io, void *arg)
{
	struct bdev_child *c = container_of(io, struct bdev_child, io);
	struct bdev_io *parent = c->parent;
	const struct bdev_child_ops *ops = group_ops(parent);

	if (!bdev_io_was_untouched(io)) {
		parent->phase |= GROUP_TOUCHED;
	}
	bdev_children_fail(parent, ops->child_ended != NULL ? ops->child_ended(io, parent) : io->status);
	io->cb = copy_child_done;
	child_release(c);
	group_put(parent);
}

void bdev_child_send(struct bdev_io *child)
{
	child->cb = group_child_done;
	container_of(child, struct bdev_child, io)->parent->children++;
	bdev_submit(child);
}

void bdev_children_fail(struct bdev_io *parent, uint16_t status)
{
	if (parent->child_status == 0) {
		parent->child_status = status;
	}
}

void bdev_children_sent(struct bdev_io *parent)
{
	if (parent->phase & GROUP_SENDING) {
		parent->phase &= (uint8_t)~GROUP_SENDING;
		group_put(parent);
	}
}

uint32_t bdev_child_base(const struct bdev_io *child)
{
	const struct bdev_child *c = container_of(child, struct bdev_child, io);

	return (uint32_t)(c->base - c->base->pool->bases);
}

/* --- Reset --- */

static void waiter_end(struct bdev_io *parent, uint16_t status)
{
	if (parent->flags & IO_CHILDREN) {
		parent->flags |= IO_ABORTED; /* nor does it get children from child_ended or for a next group */
		bdev_children_fail(parent, status);
		group_wait_ends(parent, false);
	} else {
		parent_drop(parent, status);
	}
}

void bdev_child_fail_waiting(struct bdev_child_pool *pool, uint16_t status)
{
	for (uint32_t i = 0; i < pool->n_bases; i++) {
		struct bdev_io_queue *q = &pool->bases[i].waiters;
		struct bdev_io *parent;

		while ((parent = STAILQ_FIRST(q)) != NULL) {
			STAILQ_REMOVE_HEAD(q, queue);
			waiter_end(parent, status);
		}
	}
}

/* The first I/O of bdev b that waits for a child of the base. */
static struct bdev_io *waiter_of(const struct child_base *base, const struct bdev *b)
{
	struct bdev_io *parent;

	STAILQ_FOREACH (parent, &base->waiters, queue) {
		if (parent->ch->bdev == b) {
			return parent;
		}
	}
	return NULL;
}

/* An I/O that ends gives its child back, which may serve one that waits: so those that wait are ended first. */
void bdev_child_end_waiting_of(struct bdev_child_pool *pool, const struct bdev *b, uint16_t status)
{
	for (uint32_t i = 0; i < pool->n_bases; i++) {
		struct bdev_io *parent;

		while ((parent = waiter_of(&pool->bases[i], b)) != NULL) {
			STAILQ_REMOVE(&pool->bases[i].waiters, parent, bdev_io, queue);
			waiter_end(parent, status);
		}
	}
	for (uint32_t n = 0; n < pool->n_bases * (pool->count + RESERVED_CHILDREN); n++) {
		struct bdev_child *c = base_child(&pool->bases[0], n);
		if (!c->is_reserved && c->parent != NULL && c->parent->ch->bdev == b) {
			c->parent->flags |= c->parent->flags & IO_CHILDREN ? IO_ABORTED : 0;
			bdev_io_take_back(&c->io);
		}
	}
}

/* --- Abort --- */

/* True: target waited in the pool and has been ended, but for children that it has. */
static bool abort_waiting_parent(struct bdev_child_pool *pool, struct bdev_io *target)
{
	for (uint32_t i = 0; i < pool->n_bases; i++) {
		struct bdev_io_queue *q = &pool->bases[i].waiters;
		struct bdev_io *io;

		STAILQ_FOREACH (io, q, queue) {
			if (io == target) {
				STAILQ_REMOVE(q, io, bdev_io, queue);
				waiter_end(io, STATUS_ABORTED);
				return true;
			}
		}
	}
	return false;
}

/* Chooses the children that abort is for: target may end, and be submitted anew, before the last is aborted. */
static void abort_mark_children(struct bdev_child_pool *pool, struct bdev_io *abort)
{
	for (uint32_t i = 0; i < pool->n_bases; i++) {
		for (uint32_t n = 0; n <= pool->count; n++) {
			struct bdev_child *c = base_child(&pool->bases[i], n);
			if (c->parent == abort->abort.target) {
				c->abort = abort;
			}
		}
	}
}

static struct bdev_child *abort_next_victim(struct bdev_child_pool *pool, const struct bdev_io *abort)
{
	for (uint32_t i = 0; i < pool->n_bases; i++) {
		for (uint32_t n = 0; n <= pool->count; n++) {
			struct bdev_child *c = base_child(&pool->bases[i], n);
			if (c->abort == abort) {
				return c;
			}
		}
	}
	return NULL;
}

static void abort_go_on(struct bdev_child_pool *pool, struct bdev_io *abort);

static void abort_child_done(struct bdev_io *io, void *arg)
{
	struct bdev_child *c = container_of(io, struct bdev_child, io);
	struct child_base *base = c->base;
	struct bdev_child_pool *pool = base->pool;
	struct bdev_io *abort = c->parent, *next;

	c->parent = NULL;
	if (io->status == 0 && io->cdw0 == 0) {
		abort->cdw0 = 0;
	}
	/* One that waited may have nothing left to abort here: then the child is for the next one. */
	while (c->parent == NULL && (next = STAILQ_FIRST(&base->abort_waiters)) != NULL) {
		STAILQ_REMOVE_HEAD(&base->abort_waiters, queue);
		abort_go_on(pool, next);
	}
	abort_go_on(pool, abort);
	if (base->detached != NULL) {
		base_check_detached(base);
	}
}

/* Aborts the marked children one after the other. */
static void abort_go_on(struct bdev_child_pool *pool, struct bdev_io *abort)
{
	struct bdev_child *victim = abort_next_victim(pool, abort);

	if (victim == NULL) {
		bdev_io_complete_cdw0(abort, 0, abort->cdw0);
		return;
	}
	struct bdev_child *c = victim->base->abort_child;
	if (c->parent != NULL) {
		STAILQ_INSERT_TAIL(&victim->base->abort_waiters, abort, queue);
		return;
	}
	victim->abort = NULL;
	c->parent = abort;
	c->io.cb = abort_child_done;
	c->io.cb_arg = abort;
	c->io.type = BDEV_IO_ABORT;
	c->io.abort.target = &victim->io;
	bdev_submit(&c->io);
}

void bdev_child_abort(struct bdev_child_pool *pool, struct bdev_io *abort)
{
	struct bdev_io *target = abort->abort.target;

	abort->cdw0 = 1;
	if (target->flags & IO_CHILDREN) {
		target->flags |= IO_ABORTED; /* what children it has yet to make, it does not get */
	}
	abort_mark_children(pool, abort);
	if (abort_waiting_parent(pool, target)) {
		abort->cdw0 = 0;
	}
	abort_go_on(pool, abort);
}

/* --- Taking back --- */

void bdev_child_take_back(struct bdev_child_pool *pool, struct bdev_io *parent)
{
	if (parent->flags & IO_CHILDREN) {
		parent->flags |= IO_ABORTED; /* what children it has yet to make, it does not get */
	}
	abort_waiting_parent(pool, parent);
	for (uint32_t i = 0; i < pool->n_bases; i++) {
		for (uint32_t n = 0; n < pool->count; n++) {
			struct bdev_child *c = base_child(&pool->bases[i], n);
			if (c->parent == parent) {
				bdev_io_take_back(&c->io);
			}
		}
	}
}

/* --- Bases that come and go --- */

void bdev_child_pool_detach(struct bdev_child_pool *pool, uint32_t base_index, void (*detached)(void *arg), void *arg)
{
	struct child_base *base = &pool->bases[base_index];

	if (base->ch == NULL) {
		detached(arg);
		return;
	}
	struct bdev_thread *t = base->ch->thread;
	bdev_enter(t); /* what is completed here runs its callbacks when this is done */
	base->desc = NULL;
	base_serve_waiters(base);
	base->detached = detached;
	base->detached_arg = arg;
	base_check_detached(base);
	bdev_leave(t);
}

int bdev_child_pool_attach(struct bdev_child_pool *pool, uint32_t base_index, struct bdev_desc *desc)
{
	struct child_base *base = &pool->bases[base_index];

	if (base->ch != NULL) {
		return base->desc == desc ? 0 : -EBUSY;
	}
	return base_open(base, desc);
}
