/* SPDX-License-Identifier: BSD-3-Clause */
#include "bdev/vbdev/waiting.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/log.h"

static TAILQ_HEAD(, vbdev_waiting) list = TAILQ_HEAD_INITIALIZER(list);

void vbdev_waiting_init(struct vbdev_waiting *w, const struct bdev_module *module, const char *name,
			const char *base_name, const uint8_t *uuid)
{
	w->module = module;
	snprintf(w->name, sizeof(w->name), "%s", name);
	snprintf(w->base_name, sizeof(w->base_name), "%s", base_name);
	if (uuid != NULL) {
		memcpy(w->uuid, uuid, sizeof(w->uuid));
	}
}

int vbdev_waiting_check(const char *name, const char *base_name, char *error)
{
	const struct vbdev_waiting *w;

	if (base_name[0] == '\0' || strlen(base_name) >= sizeof(w->base_name)) {
		return bdev_error(error, -EINVAL, "the name of the base has %zu bytes: must have 1 to %zu",
				  strlen(base_name), sizeof(w->base_name) - 1);
	}

	TAILQ_FOREACH (w, &list, link) {
		if (strcmp(w->name, name) == 0) {
			return bdev_error(error, -EEXIST,
					  "a bdev '%.120s' waits for its base '%.120s'; "
					  "bdev_%s_delete ends that",
					  name, w->base_name, w->module->name);
		}
	}
	return 0;
}

void vbdev_waiting_add(struct vbdev_waiting *w)
{
	log_notice("bdev %s: waits for its base, bdev %s", w->name, w->base_name);
	TAILQ_INSERT_TAIL(&list, w, link);
}

struct vbdev_waiting *vbdev_waiting_find(const char *name, const struct bdev_module *module)
{
	struct vbdev_waiting *w;

	TAILQ_FOREACH (w, &list, link) {
		if (w->module == module && strcmp(w->name, name) == 0) {
			return w;
		}
	}
	return NULL;
}

const struct vbdev_waiting *vbdev_waiting_next(const struct vbdev_waiting *after)
{
	return after == NULL ? TAILQ_FIRST(&list) : TAILQ_NEXT(after, link);
}

static bool waits_for(const struct vbdev_waiting *w, const struct bdev *base, const struct bdev_module *module)
{
	return w->module == module && bdev_find(w->base_name) == base;
}

static struct vbdev_waiting *first_for(const struct bdev *base, const struct bdev_module *module)
{
	struct vbdev_waiting *w;

	TAILQ_FOREACH (w, &list, link) {
		if (waits_for(w, base, module)) {
			return w;
		}
	}
	return NULL;
}

void vbdev_waiting_examine(const struct bdev *base, const struct bdev_module *module,
			   int (*make)(const struct vbdev_waiting *w, char *error))
{
	char error[BDEV_ERROR_MAX];
	struct vbdev_waiting *w;
	unsigned n = 0;

	TAILQ_FOREACH (w, &list, link) {
		n += waits_for(w, base, module);
	}
	/* What is made is examined in its turn, so that the list changes meanwhile; w is taken out, and what fails is
	 * tried once. */
	for (; n > 0 && (w = first_for(base, module)) != NULL; n--) {
		TAILQ_REMOVE(&list, w, link);
		if (make(w, error) == 0) {
			free(w);
			continue;
		}
		log_error("bdev %s: its base %s is there, but it cannot be made: %s", w->name, w->base_name, error);
		TAILQ_INSERT_TAIL(&list, w, link);
	}
}

static bool forget(const char *name, const struct bdev_module *module)
{
	struct vbdev_waiting *w = vbdev_waiting_find(name, module);

	if (w == NULL) {
		return false;
	}
	TAILQ_REMOVE(&list, w, link);
	free(w);
	return true;
}

void vbdev_waiting_delete(const char *name, const struct bdev_module *module, bdev_delete_cb cb, void *arg)
{
	const struct bdev *b = bdev_find_of(name, module);

	if (forget(b != NULL ? bdev_name(b) : name, module) && b == NULL) {
		cb(arg, 0);
	} else {
		bdev_delete_of(name, module, cb, arg);
	}
}

void vbdev_waiting_free(const struct bdev_module *module)
{
	struct vbdev_waiting *w, *next;

	for (w = TAILQ_FIRST(&list); w != NULL; w = next) {
		next = TAILQ_NEXT(w, link);
		if (w->module == module) {
			TAILQ_REMOVE(&list, w, link);
			free(w);
		}
	}
}
