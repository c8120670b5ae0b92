/* SPDX-License-Identifier: BSD-3-Clause */
/* The store: superblock, masks, and which volumes there are. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lvol/internal.h"
#include "lvol/rescue.h"

enum { READ_AT_ONCE_PAGES = 256 };

int lvol_problem_add(struct lvol_store *s, const char *fmt, ...)
{
	char *text = NULL;
	va_list ap;

	if (s->num_problems++ >= LVOL_PROBLEMS_MAX) {
		return 0;
	}
	va_start(ap, fmt);
	int n = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (n < 0) {
		s->num_problems--;
		return -ENOMEM;
	}
	s->problems[s->num_problems - 1] = text;
	return 0;
}

int lvol_store_pages_read(const struct lvol_store *s, uint64_t page, void *to, size_t bytes)
{
	int rc = s->device.read(s->device.ctx, page * LVOL_PAGE_BYTES, to, bytes);

	for (uint32_t i = 0; rc == 0 && s->journal != NULL && i < s->journal->num_pages; i++) {
		uint64_t place = (uint64_t)s->geometry.md.first + s->journal->places[i];
		if (place >= page && (place - page + 1) * LVOL_PAGE_BYTES <= bytes) {
			memcpy((uint8_t *)to + (place - page) * LVOL_PAGE_BYTES,
			       (const uint8_t *)s->journal + (size_t)(i + 1) * LVOL_PAGE_BYTES, LVOL_PAGE_BYTES);
		}
	}
	return rc;
}

int lvol_journal_read(const struct lvol_device *d, const struct lvol_geometry *g, struct lvol_journal_head **journal)
{
	size_t bytes = (size_t)g->journal_slot_pages * LVOL_PAGE_BYTES;
	int rc = 0;

	for (uint32_t i = 0; i < LVOL_JOURNAL_SLOTS && bytes > 0 && rc == 0; i++) {
		uint64_t page = (uint64_t)g->md.first + g->journal_first + (uint64_t)i * g->journal_slot_pages;
		struct lvol_journal_head *slot = malloc(bytes);
		rc = slot == NULL ? -ENOMEM : d->read(d->ctx, page * LVOL_PAGE_BYTES, slot, bytes);
		if (rc == 0 && lvol_journal_decode(slot, g->journal_slot_pages, g->md.pages) &&
		    (*journal == NULL || slot->generation > (*journal)->generation)) {
			free(*journal);
			*journal = slot;
		} else {
			free(slot);
		}
	}
	return rc;
}

/* ---- Masks ---- */

/* Reads the bits of a mask. Returns 0 or a negative errno. */
static int store_mask_read(const struct lvol_store *s, enum lvol_mask_type type, struct lvol_area area,
			   uint32_t num_bits, uint8_t **bits, struct lvol_error *e)
{
	size_t bytes = lvol_mask_bytes(num_bits);
	uint8_t *mask = malloc(bytes);

	if (mask == NULL) {
		return -ENOMEM;
	}
	int rc = lvol_store_pages_read(s, area.first, mask, bytes);
	if (rc == 0 && lvol_mask_decode(mask, type, num_bits, e) == NULL) {
		rc = -EILSEQ;
	}
	if (rc != 0) {
		free(mask);
		return rc;
	}
	memmove(mask, mask + sizeof(struct lvol_mask_head), bytes - sizeof(struct lvol_mask_head));
	*bits = mask;
	return 0;
}

static int store_masks_read(struct lvol_store *s, struct lvol_error *e)
{
	const struct lvol_geometry *g = &s->geometry;
	int rc = store_mask_read(s, LVOL_MASK_PAGES, g->page_mask, g->md.pages, &s->page_mask, e);

	rc = rc != 0 ? rc
		     : store_mask_read(s, LVOL_MASK_CLUSTERS, g->cluster_mask, g->num_clusters, &s->cluster_mask, e);
	return rc != 0 ? rc : store_mask_read(s, LVOL_MASK_IDS, g->id_mask, g->md.pages, &s->id_mask, e);
}

static void store_masks_forget(struct lvol_store *s)
{
	uint8_t **const masks[] = {&s->page_mask, &s->cluster_mask, &s->id_mask};

	for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
		free(*masks[i]);
		*masks[i] = NULL;
	}
}

/* ---- Volumes ---- */

static int store_volume_add(struct lvol_store *s, uint32_t root)
{
	if ((s->num_volumes & (s->num_volumes - 1)) == 0) {
		size_t room = s->num_volumes == 0 ? 1 : 2 * s->num_volumes;
		struct lvol_volume *volumes = realloc(s->volumes, room * sizeof(*volumes));
		if (volumes == NULL) {
			return -ENOMEM;
		}
		s->volumes = volumes;
	}
	return lvol_volume_read(s, &s->volumes[s->num_volumes++], root);
}

/* Of a store that was closed. */
static int store_roots_by_mask(struct lvol_store *s)
{
	int rc = 0;

	for (uint32_t i = 0; i < s->geometry.md.pages && rc == 0; i++) {
		rc = lvol_bit(s->id_mask, i) ? store_volume_add(s, i) : 0;
	}
	return rc;
}

/* Of a store whose masks may be old: each good root page is a volume. No other page than those that the journal says
 * may be in use is looked at. */
static int store_roots_by_scan(struct lvol_store *s)
{
	struct lvol_md_page *pages = malloc(READ_AT_ONCE_PAGES * sizeof(*pages));
	uint32_t all = lvol_journal_used(s->geometry.rescued ? NULL : s->journal, s->geometry.md.pages);
	struct lvol_error e;
	int rc = pages == NULL ? -ENOMEM : 0;

	for (uint32_t i = 0; i < all && rc == 0; i++) {
		uint32_t at = i % READ_AT_ONCE_PAGES, n = all - i < READ_AT_ONCE_PAGES ? all - i : READ_AT_ONCE_PAGES;
		if (at == 0) {
			rc = lvol_store_pages_read(s, (uint64_t)s->geometry.md.first + i, pages, n * sizeof(*pages));
		}
		if (rc == 0 && lvol_page_is_root(&pages[at], i) &&
		    lvol_page_decode(&pages[at], i, s->geometry.md.pages, &e) == 0) {
			rc = store_volume_add(s, i);
		}
	}
	free(pages);
	return rc;
}

static int volume_id_compare(const void *a, const void *b)
{
	const struct lvol_volume *x = a, *y = b;

	return x->id < y->id ? -1 : x->id > y->id;
}

static struct lvol_volume *store_volume_by_id(const struct lvol_store *s, uint64_t id)
{
	struct lvol_volume key = {.id = id};

	return s->num_volumes == 0 ? NULL : bsearch(&key, s->volumes, s->num_volumes, sizeof(key), volume_id_compare);
}

/* Takes the volume that names the store out of the list. */
static int store_name_take(struct lvol_store *s)
{
	struct lvol_volume *v =
		s->geometry.super_id == LVOL_ID_NONE ? NULL : store_volume_by_id(s, s->geometry.super_id);

	if (v == NULL) {
		return lvol_problem_add(s, "the store has no name: its super blob %#" PRIx64 " is not there",
					s->geometry.super_id);
	}
	s->named = !v->damaged;
	memcpy(s->name, v->name, sizeof(s->name));
	memcpy(s->uuid, v->uuid, sizeof(s->uuid));
	int rc = s->name[0] == 0 || s->uuid[0] == 0
			 ? lvol_problem_add(s, "the store has no %s", s->name[0] == 0 ? "name" : "UUID")
			 : 0;
	lvol_volume_clear(v);
	memmove(v, v + 1, (size_t)(s->volumes + s->num_volumes - (v + 1)) * sizeof(*v));
	s->num_volumes--;
	return rc;
}

/* Goes from a volume to its ancestors, as far as no earlier walk has come. Returns the one that has an earlier one of
 * this walk for its snapshot, which closes a ring; or NULL. All walks together take one step a volume. */
static struct lvol_volume *store_ring_find(struct lvol_store *s, struct lvol_volume *v, size_t walk)
{
	for (; v != NULL && v->walk == 0; v = v->parent) {
		s->steps++;
		v->walk = walk;
		if (v->parent != NULL && v->parent->walk == walk) {
			return v;
		}
	}
	return NULL;
}

static int store_parent_find(struct lvol_store *s, struct lvol_volume *v)
{
	if (v->parent_id == LVOL_ID_NONE) {
		return 0;
	}
	v->parent = store_volume_by_id(s, v->parent_id);
	if (v->parent != NULL) {
		return 0;
	}
	v->damaged = true;
	return lvol_problem_add(s, "volume %s: its snapshot %#" PRIx64 " is not there", v->name, v->parent_id);
}

static int store_rings_break(struct lvol_store *s)
{
	int rc = 0;

	for (size_t i = 0; i < s->num_volumes && rc == 0; i++) {
		struct lvol_volume *v = store_ring_find(s, &s->volumes[i], i + 1);
		if (v != NULL) {
			v->parent = NULL;
			v->damaged = true;
			rc = lvol_problem_add(s, "volume %s: it is its own snapshot's snapshot", v->name);
		}
	}
	return rc;
}

static int store_parents_find(struct lvol_store *s)
{
	int rc = 0;

	for (size_t i = 0; i < s->num_volumes && rc == 0; i++) {
		rc = store_parent_find(s, &s->volumes[i]);
	}
	rc = rc != 0 ? rc : store_rings_break(s);
	for (size_t i = 0; i < s->num_volumes; i++) {
		if (s->volumes[i].parent != NULL) {
			s->volumes[i].parent->clones = true;
		}
	}
	return rc;
}

/* ---- All of it ---- */

/* Looks for the copy of a superblock that is damaged or cannot be read. damage: its error. */
static int store_rescue(struct lvol_store *s, int damage, struct lvol_error *e)
{
	uint8_t *pages = malloc((size_t)LVOL_RESCUE_PAGES_MAX * LVOL_PAGE_BYTES);
	struct lvol_rescue r;
	uint64_t first;
	uint32_t n;
	int rc = pages == NULL ? -ENOMEM : 0;

	lvol_rescue_begin(&r, s->device.size_bytes);
	while (rc == 0 && (n = lvol_rescue_next(&r, &first)) > 0) {
		rc = lvol_store_pages_read(s, first, pages, (size_t)n * LVOL_PAGE_BYTES);
		lvol_rescue_take(&r, pages);
	}
	free(pages);
	rc = rc != 0 ? rc : lvol_rescue_decode(&r, s->super, &s->geometry, e);
	return rc == -EILSEQ ? damage : rc != 0 ? rc : lvol_problem_add(s, "%s", e->text);
}

static int store_super_read(struct lvol_store *s, struct lvol_error *e)
{
	struct lvol_super *found = malloc(sizeof(*found));
	int rc = found == NULL ? -ENOMEM : lvol_store_pages_read(s, 0, found, sizeof(*found));
	bool damaged = rc != 0 && rc != -ENOMEM;

	if (damaged) {
		lvol_refuse(e, "superblock: %s", strerror(-rc));
	} else if (rc == 0) {
		rc = lvol_super_decode(found, s->device.size_bytes, &s->geometry, e);
		damaged = rc == -EILSEQ && lvol_super_is_damaged(found);
		lvol_super_settle(found, s->super);
	}
	free(found);
	return damaged ? store_rescue(s, rc, e) : rc;
}

static int store_open(struct lvol_store *s, struct lvol_error *e)
{
	if (s->device.size_bytes < sizeof(*s->super)) {
		return lvol_refuse(e, "there is no volume store: %" PRIu64 " bytes are too few", s->device.size_bytes);
	}
	s->super = malloc(sizeof(*s->super));
	s->problems = calloc(LVOL_PROBLEMS_MAX, sizeof(*s->problems));
	int rc = s->super == NULL || s->problems == NULL ? -ENOMEM : store_super_read(s, e);
	rc = rc != 0 ? rc : lvol_journal_read(&s->device, &s->geometry, &s->journal);
	if (rc != 0) {
		return rc;
	}
	s->pages_owned = calloc(1, ((size_t)s->geometry.md.pages + 7) / 8);
	return s->pages_owned == NULL ? -ENOMEM : 0;
}

static int store_volumes_read(struct lvol_store *s, struct lvol_error *e)
{
	int rc = s->geometry.clean ? store_masks_read(s, e) : 0;

	if (rc == -EILSEQ) {
		/* Whoever opens it reads all pages, then. */
		store_masks_forget(s);
		rc = lvol_problem_add(s, "%s", e->text);
	}
	rc = rc != 0 ? rc : s->id_mask != NULL ? store_roots_by_mask(s) : store_roots_by_scan(s);
	rc = rc != 0 ? rc : store_name_take(s);
	return rc != 0 ? rc : store_parents_find(s);
}

int lvol_store_read(const struct lvol_device *d, struct lvol_store **store, struct lvol_error *e)
{
	struct lvol_store *s = calloc(1, sizeof(*s));

	e->text[0] = 0;
	if (s == NULL) {
		return -ENOMEM;
	}
	s->device = *d;
	int rc = store_open(s, e);
	rc = rc != 0 ? rc : store_volumes_read(s, e);
	if (rc != 0) {
		if (rc != -EILSEQ) {
			snprintf(e->text, sizeof(e->text), "%s", strerror(-rc));
		}
		lvol_store_free(s);
		return rc;
	}
	*store = s;
	return 0;
}

void lvol_store_free(struct lvol_store *s)
{
	for (size_t i = 0; i < s->num_volumes; i++) {
		lvol_volume_clear(&s->volumes[i]);
	}
	for (size_t i = 0; s->problems != NULL && i < s->num_problems && i < LVOL_PROBLEMS_MAX; i++) {
		free(s->problems[i]);
	}
	store_masks_forget(s);
	free(s->journal);
	free(s->super);
	free(s->problems);
	free(s->volumes);
	free(s->pages_owned);
	free(s->clusters_owned);
	free(s);
}

const struct lvol_volume *lvol_store_find(const struct lvol_store *s, const char *name)
{
	size_t prefix = strlen(s->name);
	const char *alias = strncmp(name, s->name, prefix) == 0 && name[prefix] == '/' ? name + prefix + 1 : name;

	for (size_t i = 0; i < s->num_volumes; i++) {
		const struct lvol_volume *v = &s->volumes[i];
		if (name[0] != 0 && (strcmp(v->name, alias) == 0 || strcmp(v->uuid, name) == 0)) {
			return v;
		}
	}
	return NULL;
}
