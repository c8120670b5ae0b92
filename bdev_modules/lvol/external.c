/* SPDX-License-Identifier: BSD-3-Clause */
/* Volumes that are clones of bdevs outside of the store. Each bdev of such a volume has that bdev open, and claimed so
 * that nobody writes to it. If it goes, the volume's bdev goes, and comes back with it.
 *
 * A volume may change from one to another, while reads go on: the new one is given to all channels before the change,
 * which says itself when it is to be read (lvol_external_switch()), and the old one is taken from them after it. One
 * such change of a volume at a time. */
#include <errno.h>
#include <inttypes.h>
#include <rte_common.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "bdev_modules/lvol/internal.h"
#include "util/log.h"

#define CHILDREN 64u /* I/Os that a thread may have at it, for one volume */

static bool any; /* there has been such a volume: whoever has none is not searched for them */

/* --- Which --- */

int lvol_external_check(const struct bdev_lvol_store *s, const char *bdev_name, char *error)
{
	const struct bdev *b = bdev_find(bdev_name);
	const struct bdev_lvol *l = lvol_volume_of(b);

	if (b == NULL) {
		return bdev_error(error, -ENODEV, "there is no bdev '%.200s'", bdev_name);
	}
	if (l != NULL && l->store == s) {
		return bdev_error(error, -EINVAL, "bdev '%.150s' is a volume of the same store: use bdev_lvol_clone",
				  bdev_name);
	}
	if (b->leaves_buffers) {
		return bdev_error(
			error, -EINVAL,
			"bdev '%.150s' has no data: a READ leaves memory as it is, so a volume would show what "
			"was there before",
			bdev_name);
	}
	if (b->md.size != 0 || b->block_size > s->block_bytes || !rte_is_power_of_2(b->block_size)) {
		return bdev_error(error, -EINVAL,
				  "bdev '%.100s' has blocks of %u bytes, %u of them metadata: at most %u, a power of "
				  "two, and no metadata are allowed",
				  bdev_name, b->block_size, b->md.size, s->block_bytes);
	}
	return 0;
}

void lvol_external_name(const struct bdev *base, char name[LVOL_EXTERNAL_BYTES])
{
	if (base->has_random_uuid) {
		snprintf(name, LVOL_EXTERNAL_BYTES, "%s", base->name);
	} else {
		bdev_uuid_format(base->uuid, name);
	}
}

void bdev_lvol_get_bases(const struct bdev *b, const struct bdev *bases[2])
{
	const struct bdev_lvol *l = lvol_volume_of(b);
	const char *name = lvol_live_external(l->v);

	bases[0] = bdev_find(l->store->base_name);
	bases[1] = name != NULL ? bdev_find(name) : NULL;
}

/* --- Opening --- */

static struct bdev_lvol *lvol_of_bases(struct vbdev_bases *bases)
{
	return container_of(bases, struct bdev_lvol, external.bases);
}

static void place_release(struct bdev_lvol *l, uint32_t i);

/* An I/O would end with an error soon; unless the volume does not depend on it yet, or no more. */
static void external_removed(struct vbdev_bases *bases, uint32_t place)
{
	struct bdev_lvol *l = lvol_of_bases(bases);

	if (l->external.closed != NULL) {
		return; /* all is being closed, and the volume may have been deleted */
	}
	const char *own = lvol_live_external(l->v);
	if (own == NULL || strcmp(own, l->external.place[place].name) != 0) {
		place_release(l, place);
	} else if (l->bdev.core != NULL) {
		log_warning("volume %s/%s: bdev %s, which it is a clone of, is being removed, and the volume's bdev "
			    "with it",
			    l->store->name, l->v->name, l->external.place[place].name);
		bdev_unregister(&l->bdev, NULL, NULL);
	}
}

static void external_detached(struct vbdev_bases *bases, uint32_t place)
{
	struct bdev_lvol *l = lvol_of_bases(bases);

	l->external.place[place].is_taken = false;
}

static const struct vbdev_bases_ops external_ops = {
	.removed = external_removed, .detached = external_detached, .pool = lvol_external_pool, .reads_only = true};

/* Notes who is in a place. The caller gives the place back after an error. */
static int place_take(struct bdev_lvol *l, uint32_t i, const char *name, char *error)
{
	struct lvol_external_place *p = &l->external.place[i];

	p->lvol = l;
	p->is_taken = true;
	snprintf(p->name, sizeof(p->name), "%s", name);
	int rc = lvol_external_check(l->store, name, error);
	rc = rc != 0 ? rc : vbdev_meta_open(vbdev_bases_desc(&l->external.bases, i), l->bdev.name, &p->meta);
	if (rc != 0) {
		p->meta = NULL;
		return rc;
	}
	const struct bdev *b = bdev_desc_bdev(vbdev_bases_desc(&l->external.bases, i));
	p->block_shift = rte_log2_u32(l->bdev.block_size / b->block_size);
	p->num_blocks = bdev_num_blocks(b);
	l->external.metas++;
	return 0;
}

int lvol_external_open(struct bdev_lvol *l, char *error)
{
	const char *name = lvol_live_external(l->v), *names[EXTERNAL_PLACES] = {name};

	atomic_init(&l->external.active, -1);
	any |= name != NULL;
	if (name != NULL && bdev_find(name) == NULL) {
		return bdev_error(error, -ENODEV, "volume %s/%s: it is a clone of bdev '%.80s', and waits for that",
				  l->store->name, l->v->name, name);
	}
	int rc = vbdev_bases_open(&l->external.bases, &external_ops, &l->bdev, names, EXTERNAL_PLACES, "lvol", error);
	if (rc != 0 || name == NULL) {
		return rc;
	}
	rc = place_take(l, 0, name, error);
	atomic_store(&l->external.active, 0);
	return rc;
}

/* --- Closing --- */

static void external_closed(void *arg)
{
	struct bdev_lvol *l = arg;

	l->external.closed(l);
}

static void external_check_closed(struct bdev_lvol *l)
{
	if (l->external.closed != NULL && l->external.metas == 0) {
		vbdev_bases_close(&l->external.bases, external_closed, l);
	}
}

static void place_meta_closed(void *arg)
{
	struct lvol_external_place *p = arg;
	struct bdev_lvol *l = p->lvol;

	l->external.metas--;
	if (l->external.closed != NULL) {
		external_check_closed(l);
		return;
	}
	vbdev_bases_detach(&l->external.bases, (uint32_t)(p - l->external.place));
}

static void place_release(struct bdev_lvol *l, uint32_t i)
{
	struct lvol_external_place *p = &l->external.place[i];
	struct vbdev_meta *meta = p->meta;

	p->meta = NULL;
	if (meta != NULL) {
		vbdev_meta_close(meta, place_meta_closed, p);
	}
}

void lvol_external_close(struct bdev_lvol *l, void (*closed)(struct bdev_lvol *l))
{
	l->external.closed = closed;
	for (uint32_t i = 0; i < EXTERNAL_PLACES; i++) {
		place_release(l, i);
	}
	external_check_closed(l);
}

/* --- Changing --- */

static int external_place_of(const struct bdev_lvol *l, const char *name)
{
	const struct lvol_external *e = &l->external;

	for (int i = 0; i < EXTERNAL_PLACES && name != NULL; i++) {
		if (e->place[i].meta != NULL && strcmp(e->place[i].name, name) == 0) {
			return i;
		}
	}
	return -1;
}

static int external_attach(struct bdev_lvol *l, const char *name, char *error)
{
	struct lvol_external *e = &l->external;
	uint32_t i = 0;

	if (external_place_of(l, name) >= 0) {
		return 0;
	}
	while (i < EXTERNAL_PLACES && e->place[i].is_taken) {
		i++;
	}
	if (i == EXTERNAL_PLACES) {
		return bdev_error(error, -EBUSY, "volume %s/%s: its last change of that kind has not ended",
				  l->store->name, l->v->name);
	}
	any = true;
	int rc = vbdev_bases_attach(&e->bases, i, name, "lvol", error);
	if (rc != 0) {
		return rc;
	}
	rc = place_take(l, i, name, error);
	if (rc != 0) {
		vbdev_bases_detach(&e->bases, i);
	}
	return rc;
}

int lvol_external_prepare(struct bdev_lvol *l, const char *name, const void *change, char *error)
{
	if (l->external.change != NULL) {
		return bdev_error(error, -EBUSY, "volume %s/%s: another change of its parent has not ended",
				  l->store->name, l->v->name);
	}
	int rc = name == NULL ? 0 : external_attach(l, name, error);
	l->external.change = rc == 0 ? change : NULL;
	return rc;
}

void lvol_external_switch(void *ctx, struct lvol_live_volume *v, const char *name)
{
	struct bdev_lvol *l = v->user;

	atomic_store(&l->external.active, external_place_of(l, name));
}

void lvol_external_settle(struct bdev_lvol *l, const void *change)
{
	const char *name = lvol_live_external(l->v);
	struct lvol_external *e = &l->external;
	char error[BDEV_ERROR_MAX];

	if (e->closed != NULL || (e->change != NULL && e->change != change)) {
		return;
	}
	e->change = NULL;
	/* It may have gone since it was prepared, or the volume's bdev is another one that came meanwhile. */
	if (name != NULL && external_attach(l, name, error) != 0) {
		log_warning("volume %s/%s: it is a clone of bdev '%.80s' now, so its bdev is removed: %s",
			    l->store->name, l->v->name, name, error);
		bdev_unregister(&l->bdev, NULL, NULL);
	}
	/* First: who finds the old one gone looks here again. */
	int active = external_place_of(l, name);
	atomic_store(&e->active, active);
	for (uint32_t i = 0; i < EXTERNAL_PLACES; i++) {
		if ((int)i != active) {
			place_release(l, i);
		}
	}
}

/* --- Reading --- */

bool lvol_external_is_used(const struct bdev_lvol *l)
{
	for (uint32_t i = 0; i < EXTERNAL_PLACES; i++) {
		if (vbdev_bases_desc(&l->external.bases, i) != NULL) {
			return true;
		}
	}
	return false;
}

struct bdev_child_pool *lvol_external_pool(void *channel)
{
	struct lvol_channel *ch = channel;

	if (ch->external == NULL) {
		ch->external = vbdev_bases_pool_create(&ch->lvol->external.bases, CHILDREN, 0, NULL);
	}
	return ch->external;
}

bool lvol_external_view(const struct bdev_lvol *l, struct lvol_external_view *view)
{
	const struct bdev_desc *desc;
	int active, now = atomic_load(&l->external.active);

	do { /* it may have been taken away after another one had come in its place */
		active = now;
		desc = active < 0 ? NULL : vbdev_bases_desc(&l->external.bases, (uint32_t)active);
		now = atomic_load(&l->external.active);
	} while (desc == NULL && now != active);
	if (desc == NULL) {
		return false;
	}
	const struct lvol_external_place *p = &l->external.place[active];
	view->place = (uint32_t)active;
	view->block_shift = p->block_shift;
	view->num_blocks = p->num_blocks;
	return true;
}

struct external_read {
	struct vbdev_meta_op op;
	lvol_live_done done;
	void *arg;
};

static void external_read_done(struct vbdev_meta_op *op)
{
	struct external_read ended = *container_of(op, struct external_read, op);

	free(container_of(op, struct external_read, op));
	ended.done(ended.arg, ended.op.error);
}

void lvol_external_read(void *ctx, struct lvol_live_volume *v, uint64_t offset, void *to, size_t bytes,
			lvol_live_done done, void *arg)
{
	const struct bdev_lvol *l = v->user;
	int active = l == NULL ? -1 : atomic_load(&l->external.active);
	struct vbdev_meta *meta = active < 0 ? NULL : l->external.place[active].meta;

	if (meta == NULL) {
		done(arg, -ENODEV); /* it has gone, and with it the volume's bdev */
		return;
	}
	const struct lvol_external_place *p = &l->external.place[active];
	uint32_t block_size = l->bdev.block_size >> p->block_shift;
	uint64_t size = p->num_blocks * block_size, there = offset < size ? RTE_MIN(size - offset, bytes) : 0;
	struct external_read *r = there == 0 ? NULL : calloc(1, sizeof(*r));
	memset((uint8_t *)to + there, 0, bytes - there);
	if (r == NULL) {
		done(arg, there == 0 ? 0 : -ENOMEM);
		return;
	}
	r->op = (struct vbdev_meta_op){.type = BDEV_IO_READ,
				       .offset_blocks = offset / block_size,
				       .num_blocks = there / block_size,
				       .data = to,
				       .done = external_read_done};
	r->done = done;
	r->arg = arg;
	vbdev_meta_start(meta, &r->op);
}

/* --- Bdevs that come --- */

static void store_examine(struct bdev_lvol_store *s, const struct bdev *b)
{
	char error[BDEV_ERROR_MAX];
	struct lvol_live_volume *v;

	for (v = lvol_live_next(s->live, NULL); v != NULL; v = lvol_live_next(s->live, v)) {
		const char *name = lvol_volume_is_degraded(v) ? lvol_live_external(v) : NULL;
		if (name != NULL && bdev_find(name) == b && lvol_volume_register(s, v, error) != 0) {
			log_error("%s", error);
		}
	}
}

void lvol_external_examine(const struct bdev *b)
{
	struct bdev_lvol_store *s;

	for (s = bdev_lvol_store_next(NULL); any && s != NULL; s = bdev_lvol_store_next(s)) {
		store_examine(s, b);
	}
}
