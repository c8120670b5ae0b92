/* SPDX-License-Identifier: BSD-3-Clause */
/* Child I/Os: what a module on top of other bdevs submits to them in order to carry out an I/O of its own, the parent.
 * Each channel of the module has a pool of children, so that nothing is allocated on the way of an I/O, and a stack of
 * modules needs no more room in a request than one module does. All functions run on the thread of that channel.
 *
 * A parent that is the same I/O on the base, at the same place, takes one call:
 *
 *     bdev_child_submit(pool, parent);		ends in done(child, parent), which completes the parent
 *
 * A parent that needs children at other offsets, of other lengths, with memory of their own, several of them at once,
 * or on several bases, is a group. The module makes its children in one function, which it can call again:
 *
 *     static void stripe_go_on(struct bdev_io *parent)
 *     {
 *         struct stripe_ctx *ctx = bdev_io_ctx(parent);	how far it has come
 *         while (ctx->next < parent->num_blocks) {
 *             struct bdev_io *child;
 *             int rc = bdev_child_get(pool, base, parent, &child);
 *             if (rc == -EAGAIN) {
 *                 return;					resume(parent) follows
 *             }
 *             if (rc != 0) {
 *                 bdev_children_fail(parent, NVME_SC_INTERNAL);
 *                 break;
 *             }
 *             child->iovcnt = iov_slice(&ctx->memory, child->iovs, IOVS, &bytes);
 *             bdev_io_set_rw(child, parent->type, child->iovs, child->iovcnt, offset, blocks);
 *             ctx->next += blocks;
 *             bdev_child_send(child);
 *         }
 *         bdev_children_sent(parent);
 *     }
 *     static void stripe_submit(void *channel, struct bdev_io *parent)
 *     {
 *         ...
 *         bdev_children_begin(parent);
 *         stripe_go_on(parent);
 *     }
 *     static const struct bdev_child_ops stripe_child_ops = {.resume = stripe_go_on};
 *     static const struct bdev_ops stripe_ops = {.submit = stripe_submit, .child_ops = &stripe_child_ops, ...};
 *
 * The parent completes by itself when bdev_children_sent() has been called and all its children have ended: with 0, or
 * with the first error of a child; as untouched (bdev_io_was_untouched()) if all of them ended so. */
#ifndef BDEV_VBDEV_CHILD_H
#define BDEV_VBDEV_CHILD_H

#include "bdev/module.h"

struct bdev_child_pool;

/* What a module does about children and their parents; bdev_ops.child_ops. Each function may be NULL; groups need
 * `resume`. */
struct bdev_child_ops {
	/* bdev_child_get() returned -EAGAIN for parent, and may succeed now, or return another error: make the rest of
	 * the children. Not called for a parent that was aborted or reset meanwhile. */
	void (*resume)(struct bdev_io *parent);
	/* A child has ended, with child->status. Returns the status that counts for the parent: 0 for an error that the
	 * module makes up for. It may get and send further children of parent, for example a read of another mirror;
	 * bdev_child_get() returning -EAGAIN means here, too, that resume(parent) is called. NULL: child->status. */
	uint16_t (*child_ended)(struct bdev_io *child, struct bdev_io *parent);
	/* All children have ended; status: 0, or the first error. Completes parent, or begins its next group with
	 * bdev_children_begin(). A parent that was aborted or reset gets no children in that either, so a module that
	 * begins a group anew after an error must not do so for ever. NULL: bdev_io_complete(parent, status). */
	void (*all_ended)(struct bdev_io *parent, uint16_t status);
	/* The pool is about to end a parent of bdev_child_submit(), of which nothing was passed to a base: it was
	 * aborted, taken back or reset while it waited, or the base is absent. opts.done does not see it, so the module
	 * undoes here what it noted of it, and leaves its completion to the pool. */
	void (*dropped)(struct bdev_io *parent);
};

/* How a channel's pool is made. */
struct bdev_child_pool_opts {
	struct bdev_desc *const *bases; /* n_bases of them, open while the pool exists; NULL: absent */
	uint32_t n_bases;
	uint32_t count; /* children that the channel may have with each base at a time; at least 1 */
	uint32_t iovs;  /* iovs that each child has of its own; 0: none */
	/* For bdev_child_submit(): a child's end; completes parent (arg), as by bdev_io_complete_as(). Parents that got
	 * no child are ended by the pool (child_ops.dropped). NULL: the module makes groups only. */
	bdev_io_cb done;
};
/* Makes the pool of a channel, and gets the thread's channels of the bases. From ops.channel_create. NULL and errno;
 * EINVAL: with two more for each base, these are more children than an I/O can count (UINT16_MAX - 1). */
struct bdev_child_pool *bdev_child_pool_create_for(const struct bdev_child_pool_opts *opts);
/* The same for one base, and children that are copies of their parents. */
struct bdev_child_pool *bdev_child_pool_create(struct bdev_desc *base, uint32_t count, bdev_io_cb done);
/* Frees the pool, and puts the channels of its bases. From ops.channel_destroy, when no I/O of the channel is in
 * flight. pool may be NULL. */
void bdev_child_pool_destroy(struct bdev_child_pool *pool);

/* Submits a copy of parent (type, range, iovs) to the first base. While all children are in use the parent waits in the
 * pool; parents are served in order. A RESET does not wait: each base has a child for it alone. */
void bdev_child_submit(struct bdev_child_pool *pool, struct bdev_io *parent);

/* The same for a READ or WRITE that is at another place on the base. */
void bdev_child_submit_at(struct bdev_child_pool *pool, struct bdev_io *parent, uint64_t offset_blocks);

/* Begins a group of children of parent, which is with the module. */
void bdev_children_begin(struct bdev_io *parent);
/* Gets a child for base number `base` of the pool. Fill it in with bdev_io_set_rw() (or bdev_io_set_copy() ...), then
 * bdev_child_send() it, in the same call of the module: a child that has been got must be sent. child->iovs is an array
 * of opts.iovs entries that the module may fill in and point at, or not.
 * 0; -EAGAIN: all children of that base are in use: return, child_ops.resume(parent) follows (the parent waits for one
 * base at a time); -ENODEV: the base is absent or being removed; -ECANCELED: the parent was aborted, or waited in
 * the pool when a reset came, and its status is set: make no more children. */
int bdev_child_get(struct bdev_child_pool *pool, uint32_t base, struct bdev_io *parent, struct bdev_io **child);
/* On a bdev with metadata, before bdev_child_send(): child begins at the parent's block `first`, and that block's
 * checks and tags are the child's, wherever on the base it goes. */
void bdev_child_set_dif(struct bdev_io *child, uint64_t first);
/* Submits a child. */
void bdev_child_send(struct bdev_io *child);
/* Notes that a part of the group cannot be carried out, as if a child had ended with status: the first error counts. */
void bdev_children_fail(struct bdev_io *parent, uint16_t status);
/* The module makes no more children of this group, but from child_ended. The parent may complete in this call. */
void bdev_children_sent(struct bdev_io *parent);
/* The number of the base that the child was got for. */
uint32_t bdev_child_base(const struct bdev_io *child);

/* For the module's ABORT: ends abort->abort.target if it waits in the pool, has the base abort each child of it, makes
 * no more children, and completes abort when that has been done. Dword 0 tells whether anything was aborted. */
void bdev_child_abort(struct bdev_child_pool *pool, struct bdev_io *abort);
/* For ops.take_back: ends parent if it waits in the pool, has the bases take back each child of it that has not begun,
 * and makes no more children. */
void bdev_child_take_back(struct bdev_child_pool *pool, struct bdev_io *parent);
/* For ops.reset_channel: ends the parents that wait in the pool, with status; those of a group when their children
 * have ended, and they get no more. */
void bdev_child_fail_waiting(struct bdev_child_pool *pool, uint16_t status);

/* The same for the parents of bdev b, where several bdevs share the pool. Also has the bases take back those of their
 * children that have not begun; what a base is carrying out ends when the base ends it. */
void bdev_child_end_waiting_of(struct bdev_child_pool *pool, const struct bdev *b, uint16_t status);

/* Whether a base may be carrying out an I/O of blocks first to last, or will without asking the module again: a child
 * that has not ended, or a parent that waits for one and is no group. FLUSH and RESET do not count. */
bool bdev_child_pool_touches(const struct bdev_child_pool *pool, uint64_t first, uint64_t last);

/* Makes bdev_child_get() return -ENODEV for this base, also for the parents that wait for it. When its last child has
 * ended, puts the channel of the base and calls detached(arg) once, on this thread, perhaps before it returns. Not to
 * be called again for this base before that. */
void bdev_child_pool_detach(struct bdev_child_pool *pool, uint32_t base, void (*detached)(void *arg), void *arg);
/* Gives the pool a base in the place of an absent one: 0, also if the pool was made with that base; or a negative errno
 * if the thread can have no channel of it. -EBUSY: the place is not free (yet). */
int bdev_child_pool_attach(struct bdev_child_pool *pool, uint32_t base, struct bdev_desc *desc);

#endif
