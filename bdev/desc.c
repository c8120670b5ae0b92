/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptors and claims. Control thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "bdev/internal.h"

static bool claim_writes(enum bdev_claim_type type)
{
	return type == BDEV_CLAIM_EXCL_WRITE || type == BDEV_CLAIM_READ_MANY_WRITE_ONE ||
	       type == BDEV_CLAIM_READ_MANY_WRITE_SHARED;
}

/* The first claim of another descriptor, or NULL. */
static const struct bdev_desc *claim_of_others(const struct bdev *b, const struct bdev_desc *but)
{
	const struct bdev_desc *d;

	TAILQ_FOREACH (d, &b->core->descs, link) {
		if (d != but && d->claim_type != BDEV_CLAIM_NONE) {
			return d;
		}
	}
	return NULL;
}

int bdev_open(const char *name, bool write, bdev_event_cb event_cb, void *arg, struct bdev_desc **desc)
{
	struct bdev *b = bdev_find(name);

	if (b == NULL || b->core->state != BDEV_READY) {
		return -ENODEV;
	}
	if (write && b->read_only) {
		return -EROFS;
	}
	const struct bdev_desc *claim = claim_of_others(b, NULL);
	if (write && claim != NULL) {
		log_error("bdev %s cannot be opened for writing: claimed (%s) by %s", b->name,
			  bdev_claim_type_name(claim->claim_type), claim->claim_owner);
		return -EPERM;
	}
	struct bdev_desc *d = calloc(1, sizeof(*d));
	if (d == NULL) {
		return -ENOMEM;
	}
	d->bdev = b;
	d->write = write;
	b->is_blank = b->is_blank && !write;
	d->event_cb = event_cb;
	d->event_arg = arg;
	TAILQ_INSERT_TAIL(&b->core->descs, d, link);
	*desc = d;
	return 0;
}

void bdev_close(struct bdev_desc *desc)
{
	struct bdev *b = desc->bdev;

	TAILQ_REMOVE(&b->core->descs, desc, link);
	free(desc);
	bdev_check_close(b);
}

void bdev_keep_io(struct bdev_desc *desc)
{
	desc->keeps_io = true;
}

struct bdev *bdev_desc_bdev(const struct bdev_desc *desc)
{
	return desc->bdev;
}

/* --- Claims --- */

static bool compatible(const struct bdev_desc *other, enum bdev_claim_type type, uint64_t key)
{
	switch (type) {
	case BDEV_CLAIM_READ_MANY_WRITE_NONE:
		return other->claim_type == type;
	case BDEV_CLAIM_READ_MANY_WRITE_SHARED:
		return other->claim_type == type && other->claim_key == key;
	default:
		return false;
	}
}

/* A descriptor that may write but has no claim that says how. */
static bool other_writer(const struct bdev *b, const struct bdev_desc *but)
{
	const struct bdev_desc *d;

	TAILQ_FOREACH (d, &b->core->descs, link) {
		if (d != but && d->write && d->claim_type == BDEV_CLAIM_NONE) {
			return true;
		}
	}
	return false;
}

int bdev_claim(struct bdev_desc *desc, enum bdev_claim_type type, uint64_t key, const char *owner)
{
	const struct bdev *b = desc->bdev;
	const struct bdev_desc *d;

	if (type <= BDEV_CLAIM_NONE || type > BDEV_CLAIM_READ_MANY_WRITE_SHARED ||
	    (type == BDEV_CLAIM_READ_MANY_WRITE_NONE && desc->write)) {
		return -EINVAL;
	}
	if (claim_writes(type) && b->read_only) {
		return -EROFS;
	}
	if (desc->claim_type != BDEV_CLAIM_NONE) {
		log_error("bdev %s: this descriptor is claimed already, by %s", b->name, desc->claim_owner);
		return -EPERM;
	}
	TAILQ_FOREACH (d, &b->core->descs, link) {
		if (d != desc && d->claim_type != BDEV_CLAIM_NONE && !compatible(d, type, key)) {
			log_error("bdev %s: %s cannot claim it (%s): claimed (%s) by %s", b->name, owner,
				  bdev_claim_type_name(type), bdev_claim_type_name(d->claim_type), d->claim_owner);
			return -EPERM;
		}
	}
	if (other_writer(b, desc)) {
		log_error("bdev %s: %s cannot claim it (%s): somebody else has it open for writing", b->name, owner,
			  bdev_claim_type_name(type));
		return -EPERM;
	}
	desc->claim_type = type;
	desc->claim_key = key;
	snprintf(desc->claim_owner, sizeof(desc->claim_owner), "%s", owner);
	desc->write = desc->write || claim_writes(type);
	desc->bdev->is_blank = desc->bdev->is_blank && !desc->write;
	return 0;
}

void bdev_unclaim(struct bdev_desc *desc)
{
	desc->claim_type = BDEV_CLAIM_NONE;
}

enum bdev_claim_type bdev_get_claim(const struct bdev *b, const char **owner)
{
	const struct bdev_desc *d = claim_of_others(b, NULL);

	if (owner != NULL) {
		*owner = d != NULL ? d->claim_owner : NULL;
	}
	return d != NULL ? d->claim_type : BDEV_CLAIM_NONE;
}
