/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes and flushes one after the other: what opens, makes and closes a store. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lvol/live_internal.h"

enum script_op { SCRIPT_WRITE, SCRIPT_ZEROES, SCRIPT_FLUSH };

struct script_entry {
	enum script_op op;
	uint64_t page, pages;
	void *bytes;
};

struct live_script {
	const struct lvol_live_user *user;
	struct script_entry *entries;
	size_t num, room, at;
	int status;
	bool running, pending;
	lvol_live_done done;
	void *arg;
};

struct live_script *live_script_new(const struct lvol_live_user *user)
{
	struct live_script *c = calloc(1, sizeof(*c));

	if (c != NULL) {
		c->user = user;
	}
	return c;
}

static void script_add(struct live_script *c, struct script_entry e)
{
	if (c->num == c->room) {
		size_t room = c->room == 0 ? 16 : 2 * c->room;
		struct script_entry *entries = realloc(c->entries, room * sizeof(*entries));
		if (entries == NULL) {
			free(e.bytes);
			c->status = -ENOMEM;
			return;
		}
		c->entries = entries;
		c->room = room;
	}
	c->entries[c->num++] = e;
}

void live_script_write(struct live_script *c, uint64_t page, void *bytes, size_t pages)
{
	if (c == NULL || bytes == NULL) {
		free(bytes);
		if (c != NULL) {
			c->status = -ENOMEM;
		}
		return;
	}
	script_add(c, (struct script_entry){.op = SCRIPT_WRITE, .page = page, .pages = pages, .bytes = bytes});
}

void live_script_zeroes(struct live_script *c, uint64_t page, uint64_t pages)
{
	if (c != NULL) {
		script_add(c, (struct script_entry){.op = SCRIPT_ZEROES, .page = page, .pages = pages});
	}
}

void live_script_flush(struct live_script *c)
{
	if (c != NULL) {
		script_add(c, (struct script_entry){.op = SCRIPT_FLUSH});
	}
}

bool live_script_is_whole(const struct live_script *c)
{
	return c != NULL && c->status == 0;
}

/* ---- Running ---- */

static void script_go_on(struct live_script *c);

static void script_entry_done(void *arg, int status)
{
	struct live_script *c = arg;

	c->pending = false;
	c->status = status;
	script_go_on(c);
}

static void script_entry_start(struct live_script *c, const struct script_entry *e)
{
	const struct lvol_live_user *u = c->user;

	c->pending = true;
	switch (e->op) {
	case SCRIPT_WRITE:
		u->write(u->ctx, e->page * LVOL_PAGE_BYTES, e->bytes, (size_t)e->pages * LVOL_PAGE_BYTES,
			 script_entry_done, c);
		break;
	case SCRIPT_ZEROES:
		u->write_zeroes(u->ctx, e->page * LVOL_PAGE_BYTES, e->pages * LVOL_PAGE_BYTES, script_entry_done, c);
		break;
	case SCRIPT_FLUSH:
		u->flush(u->ctx, script_entry_done, c);
		break;
	}
}

static void script_end(struct live_script *c)
{
	lvol_live_done done = c->done;
	void *arg = c->arg;
	int status = c->status;

	for (size_t i = 0; i < c->num; i++) {
		free(c->entries[i].bytes);
	}
	free(c->entries);
	free(c);
	done(arg, status);
}

/* An entry may be done before its start returns. */
static void script_go_on(struct live_script *c)
{
	if (c->running) {
		return;
	}
	c->running = true;
	while (!c->pending && c->status == 0 && c->at < c->num) {
		script_entry_start(c, &c->entries[c->at++]);
	}
	c->running = false;
	if (!c->pending) {
		script_end(c);
	}
}

void live_script_run(struct live_script *c, lvol_live_done done, void *arg)
{
	if (c == NULL) {
		done(arg, -ENOMEM);
		return;
	}
	c->done = done;
	c->arg = arg;
	script_go_on(c);
}

/* ---- Superblock, masks, journal ---- */

struct lvol_super_open live_super_open(const struct lvol_live *s)
{
	struct lvol_super_open open = {
		.version = LVOL_VERSION_OPEN,
		.clean = 0,
		.size_bytes = s->geometry.size_bytes,
		.journal_first = s->geometry.journal_first,
		.journal_slot_pages = s->geometry.journal_slot_pages,
		.owner = s->owner,
	};

	memcpy(open.magic, LVOL_OPEN_MAGIC, sizeof(open.magic));
	return open;
}

void live_super_script(struct live_script *c, struct lvol_live *s, bool open)
{
	struct lvol_super *super = s->super, *bytes = live_pages_alloc(1);

	super->version = open ? LVOL_VERSION_OPEN : LVOL_VERSION_CLOSED;
	super->clean = !open;
	super->size_bytes = s->geometry.size_bytes;
	super->open = open ? live_super_open(s) : (struct lvol_super_open){.magic = ""};
	super->crc = lvol_crc(super);
	if (bytes != NULL) {
		memcpy(bytes, super, sizeof(*super));
	}
	live_script_write(c, 0, bytes, 1);
	live_script_flush(c);
}

/* The head of the slot of a generation. */
static void slot_script(struct live_script *c, const struct lvol_geometry *g, uint64_t generation, void *head)
{
	uint64_t slot = generation % LVOL_JOURNAL_SLOTS;

	live_script_write(c, (uint64_t)g->md.first + g->journal_first + slot * g->journal_slot_pages, head, 1);
	live_script_flush(c);
}

void live_journal_begin_script(struct live_script *c, struct lvol_live *s)
{
	for (uint32_t i = 0; i < LVOL_JOURNAL_SLOTS; i++) {
		struct lvol_journal_head *h = live_pages_alloc(1);
		s->generation++;
		if (h != NULL) {
			memcpy(h->magic, LVOL_JOURNAL_MAGIC, sizeof(h->magic));
			h->generation = s->generation;
			h->used_below = s->used_below;
			h->open = live_super_open(s);
			h->pages_crc = lvol_journal_crc(h);
			h->crc = lvol_crc(h);
		}
		slot_script(c, &s->geometry, s->generation, h);
	}
}

void live_journal_script(struct live_script *c, const struct lvol_live *s)
{
	/* The newer one last: the pages of the older one are old. */
	for (uint64_t i = 1; i <= LVOL_JOURNAL_SLOTS; i++) {
		slot_script(c, &s->geometry, s->generation + i, live_pages_alloc(1));
	}
}

void live_mask_script(struct live_script *c, struct lvol_area area, enum lvol_mask_type type, const uint8_t *bits,
		      uint32_t num_bits)
{
	const struct lvol_mask_head head = {.type = (uint8_t)type, .num_bits = num_bits};
	uint8_t *mask = live_pages_alloc(area.pages);

	if (mask != NULL) {
		memcpy(mask, &head, sizeof(head));
		memcpy(mask + sizeof(head), bits, lvol_mask_bytes(num_bits) - sizeof(head));
	}
	live_script_write(c, area.first, mask, area.pages);
}

static void bit_set(uint8_t *bits, uint32_t n, bool value)
{
	bits[n / 8] = (uint8_t)((bits[n / 8] & ~(1 << n % 8)) | value << n % 8);
}

static void masks_make(const struct lvol_live *s, uint8_t *pages, uint8_t *clusters, uint8_t *ids)
{
	const struct lvol_geometry *g = &s->geometry;

	memcpy(pages, s->pages, ((size_t)g->md.pages + 7) / 8);
	for (uint32_t i = 0; i < LVOL_JOURNAL_SLOTS * g->journal_slot_pages; i++) {
		bit_set(pages, g->journal_first + i, false);
	}
	for (uint32_t i = 0; i < g->num_clusters; i++) {
		bit_set(clusters, i, live_cluster_is_used(s, i));
	}
	bit_set(ids, (uint32_t)g->super_id, true);
	for (const struct lvol_live_volume *v = s->first; v != NULL; v = v->internal->next) {
		bit_set(ids, (uint32_t)v->id, true);
	}
}

void live_masks_script(struct live_script *c, const struct lvol_live *s)
{
	const struct lvol_geometry *g = &s->geometry;
	size_t md_bytes = (size_t)g->md.pages / 8 + 1;
	uint8_t *bits = calloc(1, 2 * md_bytes + g->num_clusters / 8 + 1);

	if (bits == NULL) {
		live_script_write(c, 0, NULL, 0);
		return;
	}
	uint8_t *ids = bits + md_bytes, *clusters = ids + md_bytes;
	masks_make(s, bits, clusters, ids);
	live_mask_script(c, g->page_mask, LVOL_MASK_PAGES, bits, g->md.pages);
	live_mask_script(c, g->cluster_mask, LVOL_MASK_CLUSTERS, clusters, g->num_clusters);
	live_mask_script(c, g->id_mask, LVOL_MASK_IDS, ids, g->md.pages);
	live_script_flush(c);
	free(bits);
}

/* Whether so many metadata pages from `first` on are free. */
static bool pages_are_free(const struct lvol_live *s, uint32_t first, uint32_t pages)
{
	for (uint32_t i = 0; i < pages; i++) {
		if (lvol_bit(s->pages, first + i)) {
			return false;
		}
	}
	return true;
}

int live_journal_place(struct lvol_live *s)
{
	uint32_t all = s->geometry.md.pages, most = live_pages_open(s) / 8;

	most = most < LVOL_JOURNAL_SLOT_MIN   ? (uint32_t)LVOL_JOURNAL_SLOT_MIN
	       : most > LVOL_JOURNAL_SLOT_MAX ? (uint32_t)LVOL_JOURNAL_SLOT_MAX
					      : most;
	for (uint32_t slot = most; slot >= LVOL_JOURNAL_SLOT_MIN;
	     slot = slot == LVOL_JOURNAL_SLOT_MIN ? 0 : (slot + LVOL_JOURNAL_SLOT_MIN) / 2) {
		for (uint32_t first = all; first-- > 1;) {
			uint32_t pages = LVOL_JOURNAL_SLOTS * slot;
			if (pages <= all - first && pages_are_free(s, first, pages)) {
				s->geometry.journal_first = first;
				s->geometry.journal_slot_pages = slot;
				return 0;
			}
		}
	}
	return -ENOSPC;
}
