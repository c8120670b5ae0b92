/* SPDX-License-Identifier: BSD-3-Clause */
/* Making a store: it is laid out as other programs lay it out, closed, and then opened. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lvol/live_internal.h"
#include "lvol/rescue.h"

enum { CLUSTER_DEFAULT = 4 << 20, CLUSTER_MIN = 64 << 10, CLUSTER_MAX = 1 << 30 };

struct live_creating {
	struct lvol_live_user user;
	lvol_live_open_done done;
	void *arg;
};

static int create_refuse(struct lvol_error *e, const char *what)
{
	lvol_refuse(e, "%s", what);
	return -EINVAL;
}

static uint64_t pages_of(uint64_t bytes)
{
	return (bytes + LVOL_PAGE_BYTES - 1) / LVOL_PAGE_BYTES;
}

/* The areas behind each other: the masks, then the metadata pages. The mask of clusters has room for as many as there
 * are metadata pages, so that the store may grow. */
static int layout(const struct lvol_live_user *u, const struct lvol_live_create_opts *o, struct lvol_super *s,
		  struct lvol_error *e)
{
	uint64_t clusters = u->size_bytes / s->cluster_bytes;
	uint64_t md = clusters * (o->md_ratio == 0 ? 100 : o->md_ratio) / 100;

	if (clusters > LVOL_LIVE_CLUSTER || md > LVOL_LIVE_CLUSTER) {
		return create_refuse(e, "the device has too many clusters: larger ones are needed");
	}
	md = md < 1 + LVOL_JOURNAL_SLOTS * LVOL_JOURNAL_SLOT_MIN ? 1 + LVOL_JOURNAL_SLOTS * LVOL_JOURNAL_SLOT_MIN + 7
								 : md;
	uint32_t md_mask = (uint32_t)pages_of(lvol_mask_bytes((uint32_t)md));
	s->page_mask_first = 1;
	s->page_mask_pages = md_mask;
	s->cluster_mask_first = s->page_mask_first + md_mask;
	s->cluster_mask_pages = (uint32_t)pages_of(lvol_mask_bytes((uint32_t)(clusters > md ? clusters : md)));
	s->id_mask_first = s->cluster_mask_first + s->cluster_mask_pages;
	s->id_mask_pages = md_mask;
	s->md_first = s->id_mask_first + s->id_mask_pages;
	s->md_pages = (uint32_t)md;
	uint64_t md_clusters =
		(((uint64_t)s->md_first + md) * LVOL_PAGE_BYTES + s->cluster_bytes - 1) / s->cluster_bytes;
	return md_clusters >= clusters ? create_refuse(e, "the device is too small for the metadata") : 0;
}

static int super_make(const struct lvol_live_user *u, const struct lvol_live_create_opts *o, struct lvol_super *s,
		      struct lvol_error *e)
{
	uint32_t cluster = o->cluster_bytes == 0 ? (uint32_t)CLUSTER_DEFAULT : o->cluster_bytes;

	if (cluster < CLUSTER_MIN || cluster > CLUSTER_MAX || (cluster & (cluster - 1)) != 0) {
		return create_refuse(e, "the size of a cluster must be a power of two from 64 KiB to 1 GiB");
	}
	if (!live_text_is_good(o->name, LVOL_NAME_MAX - 1) || !live_text_is_good(o->uuid, LVOL_UUID_TEXT - 1)) {
		return create_refuse(e, "the name must have 1 to 63 printable characters, the UUID 36");
	}
	if (o->space != NULL && lvol_space_check(o->space->percent, o->space->num, e) != 0) {
		return -EINVAL;
	}
	memcpy(s->signature, LVOL_SIGNATURE, sizeof(s->signature));
	memcpy(s->type, LVOL_STORE_TYPE, sizeof(LVOL_STORE_TYPE));
	s->version = LVOL_VERSION_CLOSED;
	s->length = sizeof(*s);
	s->clean = 1;
	s->super_id = LVOL_ID_HIGH;
	s->cluster_bytes = cluster;
	s->size_bytes = u->size_bytes;
	s->io_unit_bytes = u->block_bytes;
	s->md_page_bytes = LVOL_PAGE_BYTES;
	return layout(u, o, s, e);
}

/* ---- Pages ---- */

static size_t desc_put(struct lvol_md_page *p, size_t at, uint8_t type, const void *data, size_t bytes)
{
	const struct lvol_desc_head h = {.type = type, .length = (uint32_t)bytes};

	memcpy(p->descriptors + at, &h, sizeof(h));
	memcpy(p->descriptors + at + sizeof(h), data, bytes);
	return at + sizeof(h) + bytes;
}

static size_t xattr_put(struct lvol_md_page *p, size_t at, const char *name, const void *value, size_t bytes)
{
	uint8_t data[4 + sizeof(LVOL_SPACE_XATTR) + LVOL_NAME_MAX + 1];
	const uint16_t lengths[2] = {(uint16_t)strlen(name), (uint16_t)bytes};

	memcpy(data, lengths, sizeof(lengths));
	memcpy(data + sizeof(lengths), name, lengths[0]);
	memcpy(data + sizeof(lengths) + lengths[0], value, lengths[1]);
	return desc_put(p, at, LVOL_DESC_XATTR, data, sizeof(lengths) + lengths[0] + lengths[1]);
}

/* The root page of the volume that names the store; it has no clusters. */
static void *names_page(const struct lvol_live_create_opts *o, const struct lvol_super *super)
{
	const struct lvol_desc_flags flags = {.invalid = LVOL_INVALID_EXTENT_TABLE};
	const uint64_t no_clusters = 0;
	uint8_t space[LVOL_SPACE_BYTES];
	struct lvol_super_copy copy;
	struct lvol_md_page *p = live_pages_alloc(1);

	if (p == NULL) {
		return NULL;
	}
	p->id = LVOL_ID_HIGH;
	p->next = LVOL_PAGE_NONE;
	size_t at = desc_put(p, 0, LVOL_DESC_FLAGS, &flags, sizeof(flags));
	at = xattr_put(p, at, "uuid", o->uuid, strlen(o->uuid) + 1);
	at = xattr_put(p, at, "name", o->name, strlen(o->name) + 1);
	if (o->space != NULL) {
		at = xattr_put(p, at, LVOL_SPACE_XATTR, space, lvol_space_encode(o->space, space));
	}
	if (lvol_super_copy_make(super, &copy)) {
		at = xattr_put(p, at, LVOL_COPY_XATTR, &copy, sizeof(copy));
	}
	desc_put(p, at, LVOL_DESC_EXTENT_TABLE, &no_clusters, sizeof(no_clusters));
	p->crc = lvol_crc(p);
	return p;
}

static void masks_script(struct live_script *c, const struct lvol_super *s)
{
	uint32_t clusters = (uint32_t)(s->size_bytes / s->cluster_bytes);
	uint64_t md_bytes = ((uint64_t)s->md_first + s->md_pages) * LVOL_PAGE_BYTES;
	uint8_t *bits = calloc(1, ((size_t)(clusters > s->md_pages ? clusters : s->md_pages) + 7) / 8);

	if (bits == NULL) {
		live_script_write(c, 0, NULL, 0);
		return;
	}
	bits[0] = 1;
	live_mask_script(c, (struct lvol_area){s->page_mask_first, s->page_mask_pages}, LVOL_MASK_PAGES, bits,
			 s->md_pages);
	live_mask_script(c, (struct lvol_area){s->id_mask_first, s->id_mask_pages}, LVOL_MASK_IDS, bits, s->md_pages);
	for (uint64_t i = 0; i * s->cluster_bytes < md_bytes; i++) {
		bits[i / 8] |= (uint8_t)(1 << i % 8);
	}
	live_mask_script(c, (struct lvol_area){s->cluster_mask_first, s->cluster_mask_pages}, LVOL_MASK_CLUSTERS, bits,
			 clusters);
	free(bits);
}

static void creating_done(void *arg, int status)
{
	struct live_creating *k = arg;
	struct live_creating ended = *k;
	struct lvol_error e;

	free(k);
	if (status != 0) {
		lvol_refuse(&e, "the store cannot be written: %s", strerror(-status));
		ended.done(ended.arg, status, NULL, &e);
		return;
	}
	lvol_live_open(&ended.user, ended.done, ended.arg);
}

static void creating_start(struct live_creating *k, const struct lvol_live_create_opts *o, struct lvol_super *s)
{
	struct live_script *c = live_script_new(&k->user);

	/* What was there is no store any more, before any of it is written over. Old metadata pages must not be taken
	 * for new ones. */
	live_script_write(c, 0, live_pages_alloc(1), 1);
	live_script_flush(c);
	live_script_zeroes(c, s->md_first, s->md_pages);
	live_script_write(c, s->md_first, names_page(o, s), 1);
	if (c != NULL) {
		masks_script(c, s);
	}
	live_script_flush(c);
	s->crc = lvol_crc(s);
	live_script_write(c, 0, s, 1);
	live_script_flush(c);
	live_script_run(c, creating_done, k);
}

void lvol_live_create(const struct lvol_live_user *user, const struct lvol_live_create_opts *opts,
		      lvol_live_open_done done, void *arg)
{
	struct live_creating *k = malloc(sizeof(*k));
	struct lvol_super *s = live_pages_alloc(1);
	struct lvol_error e = {"no memory"};
	int rc = k == NULL || s == NULL ? -ENOMEM : super_make(user, opts, s, &e);

	if (rc != 0) {
		free(k);
		free(s);
		done(arg, rc, NULL, &e);
		return;
	}
	*k = (struct live_creating){.user = *user, .done = done, .arg = arg};
	creating_start(k, opts, s);
}
