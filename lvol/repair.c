/* SPDX-License-Identifier: BSD-3-Clause */
/* The only writes to a store: masks that fit its volumes, the mark that it was closed, and volumes that nobody can read
 * any more. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lvol/internal.h"

static int store_pages_write(const struct lvol_store *s, uint64_t page, const void *from, size_t pages)
{
	return s->device.write(s->device.ctx, page * LVOL_PAGE_BYTES, from, pages * LVOL_PAGE_BYTES);
}

/* ---- The superblock ---- */

/* Ends a slot of the journal. After a rescue it may be one that was left when the store was closed: its pages may be a
 * volume's by now. */
static int store_slot_end(const struct lvol_store *s, uint64_t slot)
{
	static const uint8_t zeroes[LVOL_PAGE_BYTES];
	uint64_t page =
		(uint64_t)s->geometry.md.first + s->geometry.journal_first + slot * s->geometry.journal_slot_pages;
	char magic[LVOL_PAGE_BYTES];
	int rc = s->device.read(s->device.ctx, page * LVOL_PAGE_BYTES, magic, sizeof(magic));

	if (rc != 0 || memcmp(magic, LVOL_JOURNAL_MAGIC, strlen(LVOL_JOURNAL_MAGIC)) != 0) {
		return rc;
	}
	rc = store_pages_write(s, page, zeroes, 1);
	return rc != 0 ? rc : s->device.flush(s->device.ctx);
}

/* Puts the pages of the journal of a store that was open for writing into their places, and ends the journal. */
static int store_journal_replay(struct lvol_store *s)
{
	const struct lvol_geometry *g = &s->geometry;
	int rc = 0;

	for (uint32_t i = 0; s->journal != NULL && i < s->journal->num_pages && rc == 0; i++) {
		rc = store_pages_write(s, (uint64_t)g->md.first + s->journal->places[i],
				       (const uint8_t *)s->journal + (size_t)(i + 1) * LVOL_PAGE_BYTES, 1);
	}
	rc = rc != 0 || s->journal == NULL ? rc : s->device.flush(s->device.ctx);
	/* The newer one last: the pages of the older one are old. */
	for (uint64_t i = 1; g->journal_slot_pages > 0 && i <= LVOL_JOURNAL_SLOTS && rc == 0; i++) {
		rc = store_slot_end(s, ((s->journal == NULL ? 0 : s->journal->generation) + i) % LVOL_JOURNAL_SLOTS);
	}
	if (rc == 0) {
		free(s->journal);
		s->journal = NULL;
	}
	return rc;
}

static int store_clean_write(struct lvol_store *s, bool clean)
{
	struct lvol_super *super = s->super;
	int rc = store_journal_replay(s);

	if (rc == 0) {
		super->version = LVOL_VERSION_CLOSED;
		super->clean = clean;
		super->open = (struct lvol_super_open){.magic = ""};
		super->crc = lvol_crc(super);
		rc = store_pages_write(s, 0, super, 1);
	}
	rc = rc != 0 ? rc : s->device.flush(s->device.ctx);
	s->geometry.clean = rc == 0 && clean;
	return rc;
}

/* ---- Dropping a volume ---- */

int lvol_volume_drop(struct lvol_store *s, const struct lvol_volume *v)
{
	static const uint8_t zeroes[LVOL_PAGE_BYTES];

	for (size_t i = 0; i < s->num_volumes; i++) {
		if (s->volumes[i].parent == v && !s->volumes[i].damaged) {
			return -EBUSY;
		}
	}
	if (!v->damaged) {
		return -EBUSY;
	}
	/* The masks do not fit what follows. */
	int rc = store_clean_write(s, false);
	rc = rc != 0 ? rc : store_pages_write(s, (uint64_t)s->geometry.md.first + (uint32_t)v->id, zeroes, 1);
	return rc != 0 ? rc : s->device.flush(s->device.ctx);
}

/* ---- Masks ---- */

static int store_mask_write(const struct lvol_store *s, enum lvol_mask_type type, struct lvol_area area,
			    const uint8_t *bits, uint32_t num_bits)
{
	const struct lvol_mask_head head = {.type = (uint8_t)type, .num_bits = num_bits};
	uint8_t *mask = calloc(area.pages, LVOL_PAGE_BYTES);

	if (mask == NULL) {
		return -ENOMEM;
	}
	memcpy(mask, &head, sizeof(head));
	memcpy(mask + sizeof(head), bits, lvol_mask_bytes(num_bits) - sizeof(head));
	int rc = store_pages_write(s, area.first, mask, area.pages);
	free(mask);
	return rc;
}

static void id_mark(uint8_t *ids, uint64_t id)
{
	ids[(uint32_t)id / 8] |= (uint8_t)(1 << (uint32_t)id % 8);
}

/* Which volumes there are. The one that names the store is one of them. */
static uint8_t *store_ids_make(const struct lvol_store *s)
{
	uint8_t *ids = calloc(1, ((size_t)s->geometry.md.pages + 7) / 8);

	for (size_t i = 0; ids != NULL && i < s->num_volumes; i++) {
		id_mark(ids, s->volumes[i].id);
	}
	if (ids != NULL && s->named) {
		id_mark(ids, s->geometry.super_id);
	}
	return ids;
}

static int store_masks_write(const struct lvol_store *s)
{
	const struct lvol_geometry *g = &s->geometry;
	uint8_t *ids = store_ids_make(s);

	if (ids == NULL) {
		return -ENOMEM;
	}
	int rc = store_mask_write(s, LVOL_MASK_PAGES, g->page_mask, s->pages_owned, g->md.pages);
	rc = rc != 0 ? rc
		     : store_mask_write(s, LVOL_MASK_CLUSTERS, g->cluster_mask, s->clusters_owned, g->num_clusters);
	rc = rc != 0 ? rc : store_mask_write(s, LVOL_MASK_IDS, g->id_mask, ids, g->md.pages);
	free(ids);
	return rc != 0 ? rc : s->device.flush(s->device.ctx);
}

int lvol_store_certain(const struct lvol_store *s, struct lvol_error *e)
{
	for (size_t i = 0; i < s->num_volumes; i++) {
		const struct lvol_volume *v = &s->volumes[i];
		if (v->damaged || v->going) {
			return lvol_refuse(e, "volume %#" PRIx64 " (%s) %s: which clusters are free is not certain",
					   v->id, v->name[0] != 0 ? v->name : "without name",
					   v->damaged ? "is damaged" : "has a snapshot or deletion under way");
		}
	}
	if (!s->named) {
		return lvol_refuse(e, "the volume that names the store cannot be read");
	}
	return s->clusters_shared > 0
		       ? lvol_refuse(e, "%" PRIu32 " clusters belong to two volumes: one of them has wrong data",
				     s->clusters_shared)
		       : 0;
}

int lvol_store_close_write(struct lvol_store *s, struct lvol_error *e)
{
	int rc = lvol_store_certain(s, e);

	/* Masks that are being written are not to be believed. */
	rc = rc != 0 ? rc : store_clean_write(s, false);
	rc = rc != 0 ? rc : store_masks_write(s);
	return rc != 0 ? rc : store_clean_write(s, true);
}
