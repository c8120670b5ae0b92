/* SPDX-License-Identifier: BSD-3-Clause */
#include "bdev/vbdev/vbdev.h"

#include <errno.h>
#include <stdio.h>

#include "bdev/internal.h"
#include "bdev/owner.h"

#define SEARCH_DEPTH 16

static void base_event(struct bdev_desc *desc, enum bdev_event event, void *arg)
{
	struct vbdev *v = arg;

	switch (event) {
	case BDEV_EVENT_REMOVE:
		if (v->base_removed != NULL && bdev_get_state(&v->bdev) <= BDEV_READY && !bdev_is_stopping()) {
			v->base_removed(v);
		}
		bdev_unregister(&v->bdev, NULL, NULL);
		break;
	case BDEV_EVENT_RESIZE:
		bdev_resize(&v->bdev, bdev_num_blocks(bdev_desc_bdev(desc)));
		break;
	}
}

const struct bdev *vbdev_desc_user(const struct bdev_desc *desc)
{
	return desc->event_cb == base_event ? &((const struct vbdev *)desc->event_arg)->bdev : NULL;
}

static int base_open_as(const char *base_name, bool reads, const char *claimer, bdev_event_cb event_cb, void *arg,
			struct bdev_desc **desc, char *error)
{
	int rc = bdev_open(base_name, false, event_cb, arg, desc);

	if (rc == -ENODEV) {
		return bdev_error(error, rc, "there is no bdev '%.200s' to build on", base_name);
	}
	if (rc != 0) {
		return bdev_error(error, rc, "bdev '%.200s' cannot be opened: error %d", base_name, -rc);
	}
	const struct bdev *base = bdev_desc_bdev(*desc);
	const char *owner;
	bool claimed = bdev_get_claim(base, &owner) != BDEV_CLAIM_NONE;
	bdev_keep_io(*desc); /* what stands above may have to write before it closes it */
	rc = bdev_claim(*desc, reads || base->read_only ? BDEV_CLAIM_READ_MANY_WRITE_NONE : BDEV_CLAIM_EXCL_WRITE, 0,
			claimer);
	if (rc != 0) {
		bdev_close(*desc);
		return bdev_error(error, rc, "bdev '%.150s' cannot be claimed: %s%.60s", base_name,
				  claimed ? "it is claimed by " : "it is open for writing", claimed ? owner : "");
	}
	return 0;
}

int vbdev_base_open(const char *base_name, const char *claimer, bdev_event_cb event_cb, void *arg,
		    struct bdev_desc **desc, char *error)
{
	return base_open_as(base_name, false, claimer, event_cb, arg, desc, error);
}

int vbdev_base_open_to_read(const char *base_name, const char *claimer, bdev_event_cb event_cb, void *arg,
			    struct bdev_desc **desc, char *error)
{
	return base_open_as(base_name, true, claimer, event_cb, arg, desc, error);
}

int vbdev_open(struct vbdev *v, const char *name, const char *base_name, const char *claimer, char *error)
{
	const struct bdev *base = bdev_find(base_name);
	bool is_blank = base != NULL && base->is_blank; /* not any more when it is open */
	int rc = vbdev_base_open(base_name, claimer, base_event, v, &v->base, error);

	if (rc == 0) {
		snprintf(v->name, sizeof(v->name), "%s", name);
		v->bdev.name = v->name;
		bdev_inherit(&v->bdev, bdev_desc_bdev(v->base));
		v->bdev.is_blank = is_blank;
	}
	return rc;
}

int vbdev_register(struct vbdev *v, char *error)
{
	int rc = bdev_register_or_say(&v->bdev, error);

	if (rc != 0) {
		bdev_close(v->base);
		v->free(v);
	}
	return rc;
}

void vbdev_destruct_end(struct vbdev *v)
{
	struct bdev_desc *base = v->base;

	bdev_destruct_done(&v->bdev);
	v->free(v);
	bdev_close(base); /* last: it may be all that a base waits for that is being removed */
}

void vbdev_destruct(struct bdev *b)
{
	struct vbdev *v = (struct vbdev *)b;

	if (v->is_busy == NULL || !v->is_busy(v)) {
		vbdev_destruct_end(v);
	}
}

const struct bdev *vbdev_base_of(const struct bdev *b)
{
	return b->ops->destruct == vbdev_destruct ? bdev_desc_bdev(((const struct vbdev *)b)->base) : NULL;
}

static int bases_of(const struct bdev *b, const struct bdev *bases[BDEV_BASES_MAX])
{
	if (b->ops->bases != NULL) {
		return b->ops->bases(b, bases);
	}
	bases[0] = vbdev_base_of(b);
	return bases[0] != NULL ? 1 : -1;
}

static int search_down(const struct bdev *b, bool (*fn)(const struct bdev *one, const void *arg), const void *arg,
		       unsigned depth, const struct bdev **one)
{
	const struct bdev *bases[BDEV_BASES_MAX];

	if (fn(b, arg)) {
		*one = b;
		return 1;
	}
	int n = depth < SEARCH_DEPTH ? bases_of(b, bases) : -1;
	int found = n < 0 ? -1 : 0;
	for (int i = 0; i < n && found != 1; i++) {
		int below = search_down(bases[i], fn, arg, depth + 1, one);
		found = below != 0 ? below : found;
	}
	return found;
}

int vbdev_search_down(const struct bdev *b, bool (*fn)(const struct bdev *one, const void *arg), const void *arg)
{
	const struct bdev *one;

	return search_down(b, fn, arg, 0, &one);
}

static bool has_owner(const struct bdev *one, const void *arg)
{
	return bdev_has_owner(one);
}

int vbdev_search_owner(const struct bdev *b, const struct bdev **standby)
{
	const struct bdev *one = NULL;
	int found = search_down(b, has_owner, NULL, 0, &one);

	if (found > 0 && standby != NULL) {
		*standby = one;
	}
	return found;
}

const char *vbdev_base_name(const struct vbdev *v)
{
	return bdev_name(bdev_desc_bdev(v->base));
}

void bdev_inherit(struct bdev *b, const struct bdev *base)
{
	const uint32_t nvme = 1u << BDEV_IO_NVME_ADMIN | 1u << BDEV_IO_NVME_IO | 1u << BDEV_IO_NVME_IO_MD;

	b->num_blocks = bdev_num_blocks(base);
	b->block_size = base->block_size;
	b->physical_block_size = base->physical_block_size;
	b->optimal_io_boundary = base->optimal_io_boundary;
	b->numa_node = base->numa_node;
	b->write_cache = base->write_cache;
	b->leaves_buffers = base->leaves_buffers;
	b->hints = base->hints;
	b->md = base->md;
	/* These describe the base's device; the layer checks the I/O of what stands on it. */
	b->md.by_device = b->md.plain_by_device = b->md.separate = false;
	b->read_only = base->read_only;
	b->io_types = 0;
	for (enum bdev_io_type type = 0; type < BDEV_IO_TYPES; type++) {
		if (!(nvme & 1u << type) && bdev_io_type_supported(base, type)) {
			b->io_types |= 1u << type;
		}
	}
}
