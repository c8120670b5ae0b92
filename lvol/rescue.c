/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <string.h>

#include "lvol/internal.h"
#include "lvol/rescue.h"

static const char super_type[16] = LVOL_STORE_TYPE;

bool lvol_super_is_damaged(const struct lvol_super *found)
{
	bool signature = memcmp(found->signature, LVOL_SIGNATURE, sizeof(found->signature)) == 0;
	bool type = memcmp(found->type, super_type, sizeof(super_type)) == 0;
	struct lvol_super settled;

	return (signature || type) && !lvol_super_settle(found, &settled) && !lvol_super_has_partitions(found);
}

/* What is wrong with it. */
static const char *damage_text(const struct lvol_error *e)
{
	return strncmp(e->text, "superblock: ", strlen("superblock: ")) == 0 ? e->text
									     : "superblock: it has lost its signature";
}

void lvol_rescue_refuse(struct lvol_error *e)
{
	struct lvol_error before = *e;

	lvol_refuse(e, "%.90s; if it has a copy, 'varve-lvol repair --superblock' makes it anew", damage_text(&before));
}

/* ---- Where the areas are ---- */

/* Programs lay the areas behind each other. The mask of clusters has room for as many as there are metadata pages;
 * tight: it has not. */
static void areas_lay(struct lvol_rescue *r)
{
	uint32_t ids = (uint32_t)lvol_mask_pages(r->md.pages);
	uint32_t most = !r->tight && r->md.pages > r->num_clusters ? r->md.pages : r->num_clusters;

	r->page_mask = (struct lvol_area){1, ids};
	r->cluster_mask = (struct lvol_area){1 + ids, (uint32_t)lvol_mask_pages(most)};
	r->id_mask = (struct lvol_area){r->cluster_mask.first + r->cluster_mask.pages, ids};
	r->md.first = r->id_mask.first + ids;
}

/* The mask of clusters of the copy may end before the next area. */
static bool copy_fits(const struct lvol_super_copy *c, const struct lvol_rescue *r)
{
	return c->page_mask_first == r->page_mask.first && c->page_mask_pages == r->page_mask.pages &&
	       c->cluster_mask_first == r->cluster_mask.first && c->cluster_mask_pages <= r->cluster_mask.pages &&
	       c->id_mask_first == r->id_mask.first && c->id_mask_pages == r->id_mask.pages &&
	       c->md_first == r->md.first && c->md_pages == r->md.pages;
}

bool lvol_super_copy_make(const struct lvol_super *s, struct lvol_super_copy *c)
{
	struct lvol_rescue r = {.num_clusters = (uint32_t)(s->size_bytes / s->cluster_bytes), .md = {0, s->md_pages}};

	*c = (struct lvol_super_copy){
		.form = LVOL_COPY_FORM,
		.cluster_bytes = s->cluster_bytes,
		.io_unit_bytes = s->io_unit_bytes,
		.page_mask_first = s->page_mask_first,
		.page_mask_pages = s->page_mask_pages,
		.cluster_mask_first = s->cluster_mask_first,
		.cluster_mask_pages = s->cluster_mask_pages,
		.id_mask_first = s->id_mask_first,
		.id_mask_pages = s->id_mask_pages,
		.md_first = s->md_first,
		.md_pages = s->md_pages,
		.size_bytes = s->size_bytes,
	};
	areas_lay(&r);
	if (!copy_fits(c, &r)) {
		r.tight = true;
		areas_lay(&r);
	}
	return s->super_id == LVOL_ID_HIGH && copy_fits(c, &r);
}

bool lvol_super_copy_is_of(const struct lvol_super *s, uint64_t volume, const void *value, size_t bytes)
{
	struct lvol_super_copy c, found;

	if (volume != s->super_id || bytes != sizeof(found) || !lvol_super_copy_make(s, &c)) {
		return false;
	}
	memcpy(&found, value, sizeof(found));
	found.size_bytes = c.size_bytes;
	found.cluster_mask_pages = c.cluster_mask_pages;
	return memcmp(&found, &c, sizeof(c)) == 0;
}

/* ---- The search ---- */

void lvol_rescue_begin(struct lvol_rescue *r, uint64_t device_bytes)
{
	*r = (struct lvol_rescue){.device_bytes = device_bytes, .page_mask = {1, 1}};
}

static uint32_t rescue_wants(const struct lvol_rescue *r, uint64_t *first)
{
	switch (r->step) {
	case LVOL_RESCUE_PAGE_MASK:
		*first = r->page_mask.first;
		return 1;
	case LVOL_RESCUE_CLUSTER_MASK:
		*first = r->cluster_mask.first;
		return 1;
	case LVOL_RESCUE_ID_MASK:
		*first = r->id_mask.first;
		return 1;
	case LVOL_RESCUE_PAGES:
		*first = (uint64_t)r->md.first + r->at;
		return r->md.pages - r->at < LVOL_RESCUE_PAGES_MAX ? r->md.pages - r->at
								   : (uint32_t)LVOL_RESCUE_PAGES_MAX;
	default:
		return 0;
	}
}

uint32_t lvol_rescue_next(const struct lvol_rescue *r, uint64_t *first)
{
	uint32_t pages = rescue_wants(r, first);

	return pages > 0 && (*first + pages) * LVOL_PAGE_BYTES <= r->device_bytes ? pages : 0;
}

/* The number of bits by the head of a mask; 0: it is none of that type. */
static uint32_t mask_bits(const void *page, enum lvol_mask_type type)
{
	struct lvol_mask_head h;

	memcpy(&h, page, sizeof(h));
	return h.type == type && h.num_bits < UINT32_MAX ? h.num_bits : 0;
}

/* The mask of volumes is where it must be if the mask of clusters has room for more, or if it has not. */
static void ids_take(struct lvol_rescue *r, const void *page)
{
	if (mask_bits(page, LVOL_MASK_IDS) == r->md.pages) {
		r->step = LVOL_RESCUE_PAGES;
		return;
	}
	r->step = r->tight ? LVOL_RESCUE_LOST : LVOL_RESCUE_ID_MASK;
	r->tight = true;
	areas_lay(r);
}

static void masks_take(struct lvol_rescue *r, const void *page)
{
	uint32_t bits;

	if (r->step == LVOL_RESCUE_PAGE_MASK) {
		r->md.pages = bits = mask_bits(page, LVOL_MASK_PAGES);
	} else {
		r->num_clusters = bits = mask_bits(page, LVOL_MASK_CLUSTERS);
	}
	if (bits == 0 || bits > r->device_bytes / LVOL_PAGE_BYTES) {
		r->step = LVOL_RESCUE_LOST;
		return;
	}
	r->step++;
	areas_lay(r);
}

static void copy_take(struct lvol_rescue *r, const struct lvol_super_copy *c)
{
	if (c->form != LVOL_COPY_FORM || !copy_fits(c, r)) {
		return;
	}
	if (!r->has_copy) {
		r->has_copy = true;
		r->copy = *c;
		return;
	}
	r->copies_differ |= c->cluster_bytes != r->copy.cluster_bytes || c->io_unit_bytes != r->copy.io_unit_bytes;
	if (c->size_bytes > r->copy.size_bytes) {
		r->copy = *c;
	}
}

/* The root page of the volume that names the store: in its place, or in the journal. What an older one says is as good:
 * see the head of rescue.h. */
static void names_take(struct lvol_rescue *r, const struct lvol_md_page *p)
{
	struct lvol_super_copy c;
	struct lvol_xattr x;
	struct lvol_desc d;
	struct lvol_error e;
	size_t at = 0;

	if (!lvol_page_is_root(p, 0) || p->crc != lvol_crc(p)) {
		return;
	}
	while (lvol_desc_next(p, &at, &d, &e) == 1) {
		if (d.type == LVOL_DESC_XATTR && lvol_xattr_decode(&d, &x, &e) == 0 &&
		    lvol_xattr_is(&x, LVOL_COPY_XATTR) && x.value_length == sizeof(c)) {
			memcpy(&c, x.value, sizeof(c));
			copy_take(r, &c);
		}
	}
}

static bool opens_have_one_place(const struct lvol_super_open *a, const struct lvol_super_open *b)
{
	return a->journal_first == b->journal_first && a->journal_slot_pages == b->journal_slot_pages;
}

/* Of two heads of one journal, the newer counts: it may be another owner's, who was stopped while he opened the store.
 * Of two journals, the one that has pages: the other one was begun when the store was closed, by an opening that was
 * cut before the superblock said so, and nobody has ended it. */
static bool head_counts(const struct lvol_rescue *r, const struct lvol_journal_head *h)
{
	bool used = h->num_pages > 0;

	if (!r->has_open) {
		return true;
	}
	return used == r->open_used || opens_have_one_place(&h->open, &r->open) ? h->generation > r->generation : used;
}

/* Whether it leaves open which one counts. */
static bool head_contradicts(const struct lvol_rescue *r, const struct lvol_journal_head *h)
{
	if (!r->has_open) {
		return false;
	}
	return opens_have_one_place(&h->open, &r->open)
		       ? h->generation != r->generation + 1 && h->generation + 1 != r->generation
		       : h->num_pages > 0 && r->open_used;
}

/* A head of the journal. */
static void head_take(struct lvol_rescue *r, const struct lvol_journal_head *h, uint32_t page)
{
	uint64_t slot = h->generation % LVOL_JOURNAL_SLOTS;

	if (memcmp(h->magic, LVOL_JOURNAL_MAGIC, sizeof(h->magic)) != 0 || h->crc != lvol_crc(h)) {
		return;
	}
	if (memcmp(h->open.magic, LVOL_OPEN_MAGIC, sizeof(h->open.magic)) != 0) {
		r->old_journal = true;
		return;
	}
	bool placed = page == h->open.journal_first + slot * h->open.journal_slot_pages;
	bool same = r->has_open && opens_have_one_place(&h->open, &r->open);
	r->opens_differ |= !placed || head_contradicts(r, h);
	r->open_bytes = h->open.size_bytes > r->open_bytes ? h->open.size_bytes : r->open_bytes;
	bool used = h->num_pages > 0 || (same && r->open_used);
	if (head_counts(r, h)) {
		r->open = h->open;
		r->generation = h->generation;
		r->open_used = used;
	}
	r->open_used = same ? used : r->open_used;
	r->has_open = true;
}

static void pages_take(struct lvol_rescue *r, const uint8_t *pages, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		const void *page = pages + (size_t)i * LVOL_PAGE_BYTES;
		names_take(r, page);
		head_take(r, page, r->at + i);
	}
	r->at += n;
	r->step = r->at == r->md.pages ? LVOL_RESCUE_FOUND : LVOL_RESCUE_PAGES;
}

void lvol_rescue_take(struct lvol_rescue *r, const void *pages)
{
	uint64_t first;

	switch (r->step) {
	case LVOL_RESCUE_PAGE_MASK:
	case LVOL_RESCUE_CLUSTER_MASK:
		masks_take(r, pages);
		break;
	case LVOL_RESCUE_ID_MASK:
		ids_take(r, pages);
		break;
	case LVOL_RESCUE_PAGES:
		pages_take(r, pages, rescue_wants(r, &first));
		break;
	default:
		break;
	}
}

/* ---- What was found ---- */

static void rescue_make(const struct lvol_rescue *r, struct lvol_super *s)
{
	const struct lvol_super_copy *c = &r->copy;
	uint64_t by_mask = (uint64_t)r->num_clusters * c->cluster_bytes;

	*s = (struct lvol_super){
		.signature = LVOL_SIGNATURE,
		.version = r->has_open ? LVOL_VERSION_OPEN : LVOL_VERSION_CLOSED,
		.length = sizeof(*s),
		.super_id = LVOL_ID_HIGH,
		.cluster_bytes = c->cluster_bytes,
		.page_mask_first = c->page_mask_first,
		.page_mask_pages = c->page_mask_pages,
		.cluster_mask_first = c->cluster_mask_first,
		.md_first = c->md_first,
		.md_pages = c->md_pages,
		.id_mask_first = c->id_mask_first,
		.id_mask_pages = c->id_mask_pages,
		.size_bytes = c->size_bytes > by_mask ? c->size_bytes : by_mask,
		.io_unit_bytes = c->io_unit_bytes,
		.md_page_bytes = LVOL_PAGE_BYTES,
	};
	memcpy(s->type, super_type, sizeof(super_type));
	if (r->has_open) {
		s->open = r->open;
		s->size_bytes = r->open_bytes > s->size_bytes ? r->open_bytes : s->size_bytes;
		s->open.size_bytes = s->size_bytes;
	}
	/* Another program gives the mask as many pages as it needs when the store grows. */
	uint64_t need = c->cluster_bytes == 0 ? 0 : lvol_mask_pages((uint32_t)(s->size_bytes / c->cluster_bytes));
	s->cluster_mask_pages = need > c->cluster_mask_pages ? (uint32_t)need : c->cluster_mask_pages;
	s->crc = lvol_crc(s);
}

int lvol_rescue_decode(const struct lvol_rescue *r, struct lvol_super *super, struct lvol_geometry *g,
		       struct lvol_error *e)
{
	const char *what = "its copy is used";
	struct lvol_error why = {""}, before = *e;
	int rc = -EILSEQ;

	if (r->step != LVOL_RESCUE_FOUND || !r->has_copy) {
		what = "there is no copy of it";
	} else if (r->copies_differ || r->opens_differ || r->old_journal) {
		what = "its copies contradict each other";
	} else {
		rescue_make(r, super);
		rc = lvol_super_decode(super, r->device_bytes, g, &why);
		what = rc == 0 ? what : "of its copy: ";
	}
	g->rescued = rc == 0;
	lvol_refuse(e, "%.90s; %s%s", damage_text(&before), what, why.text);
	return rc;
}
