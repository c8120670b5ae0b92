/* SPDX-License-Identifier: BSD-3-Clause */
/* For bdevs that stand on others; with bdev/module.h this is all that such a module needs.
 *
 *     this file	a bdev on exactly one base
 *     bases.h	a bdev on several bases, which come and go
 *     child.h	the I/Os that carry out an I/O on the bases
 *     meta.h	the module's own reads and writes on a base
 *     waiting.h	bdevs that are asked for before their base is there
 *
 * A module on one base embeds a struct vbdev as the first member of its own structure. The bdev has a claim on its
 * base, takes over the base's size when that changes, and is removed when the base is removed. Control thread. The
 * worked example is bdev_modules/passthru. */
#ifndef BDEV_VBDEV_H
#define BDEV_VBDEV_H

#include "bdev/module_util.h"
#include "bdev/vbdev/bases.h"
#include "bdev/vbdev/child.h"
#include "bdev/vbdev/meta.h"
#include "bdev/vbdev/waiting.h"

/* A bdev on one base. The module sets `free`, and the fields of bdev that vbdev_open() does not. */
struct vbdev {
	struct bdev bdev;
	struct bdev_desc *base; /* claimed; for bdev_child_pool_create() */
	char name[256];
	void (*free)(struct vbdev *v); /* frees the module's structure, when the bdev is gone */
	/* The base is being removed, and the bdev with it, which nobody else asked for: the module may note how to make
	 * it again (vbdev_waiting_add()). Or NULL. */
	void (*base_removed)(const struct vbdev *v);
	/* The bdev is to go, and nobody uses it any more. True: the module still needs the base, and calls
	 * vbdev_destruct_end() later. Or NULL. */
	bool (*is_busy)(struct vbdev *v);
};

/* Opens a base for reading and writing (a read-only one for reading) and claims it for one user; claimer: for messages.
 * event_cb(arg): as for bdev_open(). 0 and *desc; or a negative errno, and the reason in error (BDEV_ERROR_MAX bytes).
 */
int vbdev_base_open(const char *base_name, const char *claimer, bdev_event_cb event_cb, void *arg,
		    struct bdev_desc **desc, char *error);
/* The same for a base that is only read, by many, and that nobody writes to while it is open here. */
int vbdev_base_open_to_read(const char *base_name, const char *claimer, bdev_event_cb event_cb, void *arg,
			    struct bdev_desc **desc, char *error);
/* Opens and claims base_name, and fills in v->bdev: the name, and what bdev_inherit() takes from the base. v is zeroed.
 * claimer: for messages. 0; or a negative errno and the reason in error (BDEV_ERROR_MAX bytes), and nothing is held. */
int vbdev_open(struct vbdev *v, const char *name, const char *base_name, const char *claimer, char *error);
/* Registers v->bdev. 0; or a negative errno and the reason in error, and the base has been closed and v freed. */
int vbdev_register(struct vbdev *v, char *error);
/* The module's ops.destruct: closes the base and frees v. */
void vbdev_destruct(struct bdev *b);
/* Goes on with the destruction that v->is_busy() has put off. */
void vbdev_destruct_end(struct vbdev *v);
/* The base of a bdev that is a struct vbdev, as its ops.destruct, vbdev_destruct, tells; otherwise NULL. */
const struct bdev *vbdev_base_of(const struct bdev *b);
/* Searches b, the bdevs that it stands on (ops.bases, or vbdev_base_of()), and so on downwards. 1: fn(one, arg) was
 * true; 0: it was of none; -1: it was of none, and some of them are not known. */
int vbdev_search_down(const struct bdev *b, bool (*fn)(const struct bdev *one, const void *arg), const void *arg);
/* Whether b, or a bdev that it stands on, was made as a standby (bdev/owner.h), whatever it is now: 1, 0 or -1, as
 * vbdev_search_down(). 1: *standby, unless it is NULL, is that one. */
int vbdev_search_owner(const struct bdev *b, const struct bdev **standby);
/* The name of the base. Valid while v is. */
const char *vbdev_base_name(const struct vbdev *v);
/* The bdev that stands on desc's bdev by way of desc, if vbdev_open() has opened desc; otherwise NULL. */
const struct bdev *vbdev_desc_user(const struct bdev_desc *desc);
/* Fills in b what a bdev on top of base has in common with it: size, block sizes and metadata, hints, and the types of
 * I/O that the base can do, NVMe commands apart. vbdev_open() calls it; the module may change the result before it
 * registers b. */
void bdev_inherit(struct bdev *b, const struct bdev *base);

#endif
