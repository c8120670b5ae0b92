/* SPDX-License-Identifier: BSD-3-Clause */
/* What bdevs on top of exactly one other have in common: a name, a base that is claimed, going when it goes. A module
 * embeds it first in its own struct. Control thread. */
#ifndef BDEV_VBDEV_H
#define BDEV_VBDEV_H

#include "bdev/module_util.h"

struct vbdev {
	struct bdev bdev;
	struct bdev_desc *base;
	char name[256];
	void (*free)(struct vbdev *v);
};

/* Opens and claims base_name and fills in what v inherits from it; v is zeroed. On failure nothing is held. */
int vbdev_open(struct vbdev *v, const char *name, const char *base_name, const char *claimer, char *error);
/* Registers it; on failure closes the base and frees v. */
int vbdev_register(struct vbdev *v, char *error);
/* For ops.destruct. */
void vbdev_destruct(struct bdev *b);
const char *vbdev_base_name(const struct vbdev *v);

#endif
