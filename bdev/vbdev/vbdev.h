/* SPDX-License-Identifier: BSD-3-Clause */
/* What bdevs on top of exactly one other have in common: a name, a base that is claimed, going when it goes. A module
 * embeds it first in its own struct. Control thread. */
#ifndef BDEV_VBDEV_H
#define BDEV_VBDEV_H

#include "bdev/module_util.h"
#include "bdev/vbdev/bases.h"
#include "bdev/vbdev/child.h"
#include "bdev/vbdev/meta.h"

struct vbdev {
	struct bdev bdev;
	struct bdev_desc *base;
	char name[256];
	void (*free)(struct vbdev *v);
};

/* Opens a base for reading and writing (a read-only one for reading) and claims it for one user; claimer: for messages.
 * event_cb(arg): as for bdev_open(). 0 and *desc; or a negative errno, and the reason in error (BDEV_ERROR_MAX bytes).
 */
int vbdev_base_open(const char *base_name, const char *claimer, bdev_event_cb event_cb, void *arg,
		    struct bdev_desc **desc, char *error);
/* Opens and claims base_name and fills in what v inherits from it; v is zeroed. On failure nothing is held. */
int vbdev_open(struct vbdev *v, const char *name, const char *base_name, const char *claimer, char *error);
/* Registers it; on failure closes the base and frees v. */
int vbdev_register(struct vbdev *v, char *error);
/* For ops.destruct. */
void vbdev_destruct(struct bdev *b);
/* The name of the base. Valid while v is. */
const char *vbdev_base_name(const struct vbdev *v);
/* Fills in b what a bdev on top of base has in common with it: size, block sizes and metadata, hints, and the types of
 * I/O that the base can do, NVMe commands apart. vbdev_open() calls it; the module may change the result before it
 * registers b. */
void bdev_inherit(struct bdev *b, const struct bdev *base);

#endif
