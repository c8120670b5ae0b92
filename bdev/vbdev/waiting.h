/* SPDX-License-Identifier: BSD-3-Clause */
/* Bdevs that wait for their base: a module on one base may be asked for a bdev before the base is there, and a bdev
 * whose base is removed comes back when the base does. While it waits there is no bdev, only this note of how to make
 * it. Control thread.
 *
 * The module embeds a struct vbdev_waiting as the first member of what it needs to make the bdev, allocated by
 * calloc(). Its bdev_module.examine calls vbdev_waiting_examine(), its bdev_module.fini vbdev_waiting_free(). */
#ifndef BDEV_VBDEV_WAITING_H
#define BDEV_VBDEV_WAITING_H

#include "bdev/module_util.h"

struct vbdev_waiting {
	char name[256], base_name[256];
	uint8_t uuid[16]; /* zeros: none was given */
	const struct bdev_module *module;
	TAILQ_ENTRY(vbdev_waiting) link;
};

/* Fills in w; uuid may be NULL. */
void vbdev_waiting_init(struct vbdev_waiting *w, const struct bdev_module *module, const char *name,
			const char *base_name, const uint8_t *uuid);
/* Checks that no bdev waits under that name, and that a bdev may have the name base_name. 0; or -EEXIST or -EINVAL, and
 * the reason in error (BDEV_ERROR_MAX bytes). */
int vbdev_waiting_check(const char *name, const char *base_name, char *error);
/* w waits from now on, and belongs to this list. */
void vbdev_waiting_add(struct vbdev_waiting *w);
/* The one of that name and module; NULL: there is none. */
struct vbdev_waiting *vbdev_waiting_find(const char *name, const struct bdev_module *module);
/* The ones of all modules, in the order in which they began to wait. after NULL: the first; NULL: no more. */
const struct vbdev_waiting *vbdev_waiting_next(const struct vbdev_waiting *after);
/* Makes the module's bdevs that wait for base, which has come. make() makes one: 0, and the bdev is there; or a
 * negative errno and the reason in error: then it goes on waiting, and the log says why. */
void vbdev_waiting_examine(const struct bdev *base, const struct bdev_module *module,
			   int (*make)(const struct vbdev_waiting *w, char *error));
/* The end of the bdev of that name, whether it is there, or waits, or both: one that is being removed because of its
 * base. As bdev_delete_of(). */
void vbdev_waiting_delete(const char *name, const struct bdev_module *module, bdev_delete_cb cb, void *arg);
/* Forgets all of the module. */
void vbdev_waiting_free(const struct bdev_module *module);

#endif
