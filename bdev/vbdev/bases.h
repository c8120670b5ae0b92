/* SPDX-License-Identifier: BSD-3-Clause */
/* The bases of a bdev that stands on several: opened and claimed all or none, taken out and put in while I/O goes on.
 * A module embeds a struct vbdev_bases in its own structure. Each channel of its bdev has one pool of children for all
 * bases (bdev/vbdev/child.h), where a base has the number that it has here. Control thread, where nothing else is said.
 */
#ifndef BDEV_VBDEV_BASES_H
#define BDEV_VBDEV_BASES_H

#include <stdatomic.h>

#include "bdev/vbdev/child.h"

struct vbdev_bases;

struct vbdev_bases_ops {
	/* Base number `base` is being removed, and waits until it is closed. The module calls vbdev_bases_detach(), and
	 * goes on without this base; or it unregisters its own bdev, whose destruct calls vbdev_bases_close(). This may
	 * come as soon as vbdev_bases_open() has returned: a module that registers its bdev later unregisters it only
	 * if it has. */
	void (*removed)(struct vbdev_bases *bases, uint32_t base);
	/* The size of the base has changed. NULL: the module does not care. */
	void (*resized)(struct vbdev_bases *bases, uint32_t base);
	/* vbdev_bases_detach() has ended: the base is closed, and its place is free. NULL: the module does not care. */
	void (*detached)(struct vbdev_bases *bases, uint32_t base);
	/* The pool in a channel of the module's bdev. Called on the channel's thread. NULL: the channel has none, and
	 * gets no base: to attach one fails. */
	struct bdev_child_pool *(*pool)(void *channel);
	/* The module only reads its bases: others may, too, and nobody writes to them (READ_MANY_WRITE_NONE). */
	bool reads_only;
};

/* Private to bases.c, but for what its functions return. */
struct vbdev_base {
	struct vbdev_bases *bases;
	struct bdev_desc *desc;    /* NULL: absent or being detached; written by the control thread, read by channels */
	struct bdev_desc *leaving; /* being detached; otherwise NULL */
	atomic_uint channels_left; /* that have yet to detach it, and one while the control thread asks them to */
	struct thread_msg msg;
};
struct vbdev_bases {
	const struct vbdev_bases_ops *ops;
	struct bdev *bdev; /* the module's, which stands on them */
	uint32_t n;
	struct vbdev_base *base;
	void (*closed)(void *arg);
	void *closed_arg;
};

/* Opens and claims n bases by name for b; claimer: for messages. A NULL name leaves its place free. bases is zeroed.
 * 0; or a negative errno and the reason in error (BDEV_ERROR_MAX bytes), and no base is held. */
int vbdev_bases_open(struct vbdev_bases *bases, const struct vbdev_bases_ops *ops, struct bdev *b,
		     const char *const *names, uint32_t n, const char *claimer, char *error);
/* Closes all bases. Calls closed(arg) when that is done, which takes longer than this call if a base is being detached;
 * bases must exist until then. From ops.destruct of the module's bdev, or if the bdev has not been registered; closed
 * may then call bdev_destruct_done() and free the memory. */
void vbdev_bases_close(struct vbdev_bases *bases, void (*closed)(void *arg), void *arg);
/* The descriptor of a base, for as long as the base is there; NULL: its place is free, or it is being detached. On any
 * thread; on others than the control thread for use in ops.channel_create only. */
struct bdev_desc *vbdev_bases_desc(const struct vbdev_bases *bases, uint32_t base);
/* The pool for a channel of the module's bdev; see struct bdev_child_pool_opts. From ops.channel_create, on the
 * channel's thread. NULL and errno. */
struct bdev_child_pool *vbdev_bases_pool_create(const struct vbdev_bases *bases, uint32_t count, uint32_t iovs,
						bdev_io_cb done);
/* Takes a base out: no channel gets children for it any more, and when those in use have ended the base is closed and
 * ops.detached called. Does nothing if the place is free or the base is being detached. If an I/O of the base never
 * ends, neither does this; bdev_get_inflight of the base shows the I/O. */
void vbdev_bases_detach(struct vbdev_bases *bases, uint32_t base);
/* Opens and claims a base in a free place, and gives it to all channels. 0; or a negative errno and the reason in
 * error. -EBUSY: the place is not free. -EINVAL: name is that of the module's own bdev, or of a bdev that stands on it
 * by vbdev_open() or vbdev_bases_open(). If a thread can have no channel of it, the base is detached again:
 * ops.detached follows. */
int vbdev_bases_attach(struct vbdev_bases *bases, uint32_t base, const char *name, const char *claimer, char *error);

#endif
