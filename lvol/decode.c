/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <inttypes.h>
#include <isa-l/crc.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lvol/decode.h"
#include "lvol/internal.h"

int lvol_refuse(struct lvol_error *e, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(e->text, sizeof(e->text), fmt, ap);
	va_end(ap);
	return -EILSEQ;
}

uint32_t lvol_crc(const void *page)
{
	/* isa-l takes bytes that it does not change as bytes that it might. */
	return ~crc32_iscsi((unsigned char *)(uintptr_t)page, LVOL_PAGE_BYTES - 4, UINT32_MAX);
}

/* ---- The superblock ---- */

static bool lvol_super_is_open(const struct lvol_super *s)
{
	return memcmp(s->open.magic, LVOL_OPEN_MAGIC, sizeof(s->open.magic)) == 0;
}

bool lvol_super_settle(const struct lvol_super *s, struct lvol_super *to)
{
	*to = *s;
	for (uint32_t i = 0; to->crc != lvol_crc(to) && i < 2; i++) {
		/* Power failed while it was marked as closed or as open: its last sector has the crc. */
		to->version = lvol_super_is_open(s) ? s->open.version : (uint32_t)LVOL_VERSION_CLOSED;
		to->clean = lvol_super_is_open(s) ? s->open.clean : i;
		to->size_bytes = lvol_super_is_open(s) ? s->open.size_bytes : s->size_bytes;
	}
	return to->crc == lvol_crc(to);
}

bool lvol_super_has_partitions(const struct lvol_super *found)
{
	const uint8_t *bytes = (const uint8_t *)found;

	return bytes[510] == 0x55 && bytes[511] == 0xaa;
}

static int lvol_super_identity_check(const struct lvol_super *s, struct lvol_error *e)
{
	static const char type[16] = LVOL_STORE_TYPE;

	if (memcmp(s->signature, LVOL_SIGNATURE, sizeof(s->signature)) != 0) {
		return lvol_refuse(e, "there is no volume store: it does not begin with \"" LVOL_SIGNATURE "\"");
	}
	if (s->crc != lvol_crc(s)) {
		return lvol_refuse(e, "superblock: crc is %08" PRIx32 ", that of its contents %08" PRIx32 "%s", s->crc,
				   lvol_crc(s), lvol_super_has_partitions(s) ? "; it has a partition table" : "");
	}
	if (s->version != LVOL_VERSION_CLOSED && (s->version != LVOL_VERSION_OPEN || !lvol_super_is_open(s))) {
		return lvol_refuse(e, "superblock: version %" PRIu32 ", known is %d, and varve's %d", s->version,
				   LVOL_VERSION_CLOSED, LVOL_VERSION_OPEN);
	}
	if (s->length != sizeof(*s)) {
		return lvol_refuse(e, "superblock: length %" PRIu32 ", must be %zu", s->length, sizeof(*s));
	}
	if (s->clean > 1) {
		return lvol_refuse(e, "superblock: clean is %" PRIu32 ", allowed are 0 and 1", s->clean);
	}
	if (memcmp(s->type, type, sizeof(type)) != 0) {
		return lvol_refuse(e, "superblock: the store's type is \"%.16s\", not \"" LVOL_STORE_TYPE "\"",
				   s->type);
	}
	return 0;
}

static int lvol_super_sizes_check(const struct lvol_super *s, uint64_t device_bytes, struct lvol_error *e)
{
	if (s->md_page_bytes != LVOL_PAGE_BYTES) {
		return lvol_refuse(e, "superblock: md_page_size %" PRIu32 ", known is %d", s->md_page_bytes,
				   LVOL_PAGE_BYTES);
	}
	if (s->cluster_bytes == 0 || s->cluster_bytes % LVOL_PAGE_BYTES != 0) {
		return lvol_refuse(e, "superblock: cluster_size %" PRIu32 " is not a multiple of %d", s->cluster_bytes,
				   LVOL_PAGE_BYTES);
	}
	if (s->io_unit_bytes == 0 || LVOL_PAGE_BYTES % s->io_unit_bytes != 0) {
		return lvol_refuse(e, "superblock: io_unit_size %" PRIu32 " does not divide %d", s->io_unit_bytes,
				   LVOL_PAGE_BYTES);
	}
	if (s->size_bytes > device_bytes) {
		return lvol_refuse(e, "superblock: size %" PRIu64 ", but the device has %" PRIu64 " bytes",
				   s->size_bytes, device_bytes);
	}
	if (s->size_bytes / s->cluster_bytes > UINT32_MAX - 1) {
		return lvol_refuse(e, "superblock: size %" PRIu64 " has more than 2^32 - 2 clusters", s->size_bytes);
	}
	return 0;
}

/* before: the first page that is free. */
static int lvol_area_check(const char *name, struct lvol_area a, uint64_t *before, uint64_t store_pages, uint64_t need,
			   struct lvol_error *e)
{
	if (a.first < *before || a.first >= store_pages || a.pages > store_pages - a.first) {
		return lvol_refuse(
			e, "superblock: %s has pages %" PRIu32 " to %" PRIu64 ", allowed are %" PRIu64 " to %" PRIu64,
			name, a.first, (uint64_t)a.first + a.pages, *before, store_pages);
	}
	if (a.pages < need) {
		return lvol_refuse(e, "superblock: %s has %" PRIu32 " pages, needs %" PRIu64, name, a.pages, need);
	}
	*before = (uint64_t)a.first + a.pages;
	return 0;
}

size_t lvol_mask_bytes(uint32_t num_bits)
{
	return sizeof(struct lvol_mask_head) + ((size_t)num_bits + 7) / 8;
}

uint64_t lvol_mask_pages(uint32_t num_bits)
{
	return (lvol_mask_bytes(num_bits) + LVOL_PAGE_BYTES - 1) / LVOL_PAGE_BYTES;
}

static int lvol_super_areas_check(const struct lvol_geometry *g, struct lvol_error *e)
{
	uint64_t pages = g->size_bytes / LVOL_PAGE_BYTES, before = 1;

	return lvol_area_check("used_page_mask", g->page_mask, &before, pages, lvol_mask_pages(g->md.pages), e) != 0 ||
			       lvol_area_check("used_cluster_mask", g->cluster_mask, &before, pages,
					       lvol_mask_pages(g->num_clusters), e) != 0 ||
			       lvol_area_check("used_blobid_mask", g->id_mask, &before, pages,
					       lvol_mask_pages(g->md.pages), e) != 0 ||
			       lvol_area_check("md", g->md, &before, pages, 1, e) != 0
		       ? -EILSEQ
		       : 0;
}

/* The journal of a store that is open. */
static int lvol_super_journal_decode(const struct lvol_super *s, struct lvol_geometry *g, struct lvol_error *e)
{
	uint32_t first = s->open.journal_first, pages = s->open.journal_slot_pages;

	if (!lvol_super_is_open(s)) {
		return 0;
	}
	if (pages < LVOL_JOURNAL_SLOT_MIN || pages > LVOL_JOURNAL_SLOT_MAX || first == 0 || first >= g->md.pages ||
	    LVOL_JOURNAL_SLOTS * pages > g->md.pages - first) {
		return lvol_refuse(e,
				   "superblock: the journal has %d times %" PRIu32 " metadata pages from %" PRIu32
				   ", there are %" PRIu32,
				   LVOL_JOURNAL_SLOTS, pages, first, g->md.pages);
	}
	g->journal_first = first;
	g->journal_slot_pages = pages;
	g->owner = s->open.owner;
	return 0;
}

int lvol_super_decode(const struct lvol_super *found, uint64_t device_bytes, struct lvol_geometry *g,
		      struct lvol_error *e)
{
	struct lvol_super settled, *s = &settled;

	lvol_super_settle(found, s);
	if (lvol_super_identity_check(s, e) != 0 || lvol_super_sizes_check(s, device_bytes, e) != 0) {
		return -EILSEQ;
	}
	*g = (struct lvol_geometry){
		.version = s->version,
		.clean = s->clean == 1 && s->version == LVOL_VERSION_CLOSED && found->crc == lvol_crc(found),
		.super_id = s->super_id,
		.size_bytes = s->size_bytes,
		.cluster_bytes = s->cluster_bytes,
		.io_unit_bytes = s->io_unit_bytes,
		.num_clusters = (uint32_t)(s->size_bytes / s->cluster_bytes),
		.page_mask = {s->page_mask_first, s->page_mask_pages},
		.cluster_mask = {s->cluster_mask_first, s->cluster_mask_pages},
		.id_mask = {s->id_mask_first, s->id_mask_pages},
		.md = {s->md_first, s->md_pages},
	};
	if (lvol_super_areas_check(g, e) != 0 || lvol_super_journal_decode(s, g, e) != 0) {
		return -EILSEQ;
	}
	uint64_t md_bytes = ((uint64_t)g->md.first + g->md.pages) * LVOL_PAGE_BYTES;
	uint64_t md_clusters = (md_bytes + g->cluster_bytes - 1) / g->cluster_bytes;
	if (md_clusters > g->num_clusters) {
		return lvol_refuse(e, "superblock: the metadata takes %" PRIu64 " clusters, the store has %" PRIu32,
				   md_clusters, g->num_clusters);
	}
	g->num_md_clusters = (uint32_t)md_clusters;
	return 0;
}

/* ---- The journal ---- */

uint32_t lvol_journal_crc(const struct lvol_journal_head *h)
{
	uint32_t crc = UINT32_MAX;

	/* Without the crc of each page: a crc of bytes and their crc is the same for all bytes. */
	for (uint32_t i = 1; i <= h->num_pages; i++) {
		const uint8_t *page = (const uint8_t *)h + (size_t)i * LVOL_PAGE_BYTES;
		crc = crc32_iscsi((unsigned char *)(uintptr_t)page, LVOL_PAGE_BYTES - 4, crc);
	}
	return ~crc;
}

/* Whether its crc is that of its contents: 0 of zeroes, which take the place of a root page. */
static bool lvol_journal_page_is_whole(const struct lvol_md_page *p)
{
	return p->crc == (p->id == 0 ? 0 : lvol_crc(p));
}

uint32_t lvol_journal_used(const struct lvol_journal_head *h, uint32_t md_pages)
{
	return h == NULL || h->used_below == 0 ? md_pages : h->used_below;
}

bool lvol_journal_decode(const void *slot, uint32_t slot_pages, uint32_t md_pages)
{
	const struct lvol_journal_head *h = slot;

	if (memcmp(h->magic, LVOL_JOURNAL_MAGIC, sizeof(h->magic)) != 0 || h->crc != lvol_crc(h) ||
	    h->num_pages >= slot_pages || h->used_below > md_pages) {
		return false;
	}
	for (uint32_t i = 0; i < h->num_pages; i++) {
		const uint8_t *page = (const uint8_t *)slot + (size_t)(i + 1) * LVOL_PAGE_BYTES;
		if (h->places[i] >= md_pages || !lvol_journal_page_is_whole((const struct lvol_md_page *)page)) {
			return false;
		}
	}
	return h->pages_crc == lvol_journal_crc(h);
}

/* ---- Masks ---- */

const uint8_t *lvol_mask_decode(const void *bytes, enum lvol_mask_type type, uint32_t num_bits, struct lvol_error *e)
{
	static const char *const names[] = {"used_page_mask", "used_cluster_mask", "used_blobid_mask"};
	struct lvol_mask_head h;

	memcpy(&h, bytes, sizeof(h));
	if (h.type != type) {
		lvol_refuse(e, "%s: type %u, must be %u", names[type], h.type, type);
		return NULL;
	}
	if (h.num_bits != num_bits) {
		lvol_refuse(e, "%s: length %" PRIu32 ", must be %" PRIu32, names[type], h.num_bits, num_bits);
		return NULL;
	}
	return (const uint8_t *)bytes + sizeof(h);
}

/* ---- Metadata pages ---- */

int lvol_page_decode(const struct lvol_md_page *p, uint32_t index, uint32_t md_pages, struct lvol_error *e)
{
	if (p->crc != lvol_crc(p)) {
		return lvol_refuse(e,
				   "metadata page %" PRIu32 ": crc is %08" PRIx32 ", that of its contents %08" PRIx32,
				   index, p->crc, lvol_crc(p));
	}
	if ((p->id & ~(uint64_t)UINT32_MAX) != LVOL_ID_HIGH || (uint32_t)p->id >= md_pages) {
		return lvol_refuse(e, "metadata page %" PRIu32 ": volume %#" PRIx64 " has no root page among %" PRIu32,
				   index, p->id, md_pages);
	}
	if (p->next != LVOL_PAGE_NONE && p->next >= md_pages) {
		return lvol_refuse(e, "metadata page %" PRIu32 ": next is %" PRIu32 ", there are %" PRIu32 " pages",
				   index, p->next, md_pages);
	}
	return 0;
}

bool lvol_page_is_root(const struct lvol_md_page *p, uint32_t index)
{
	return p->id == (LVOL_ID_HIGH | index) && p->sequence == 0;
}

int lvol_desc_next(const struct lvol_md_page *p, size_t *at, struct lvol_desc *d, struct lvol_error *e)
{
	struct lvol_desc_head h;
	size_t left = sizeof(p->descriptors) - *at;

	if (left < sizeof(h)) {
		return 0;
	}
	memcpy(&h, p->descriptors + *at, sizeof(h));
	if (h.type == LVOL_DESC_PADDING && h.length == 0) {
		return 0;
	}
	if (h.length > left - sizeof(h)) {
		return lvol_refuse(e, "descriptor at %zu: length %" PRIu32 ", the page has %zu bytes left", *at,
				   h.length, left - sizeof(h));
	}
	*d = (struct lvol_desc){.type = h.type, .length = h.length, .data = p->descriptors + *at + sizeof(h)};
	*at += sizeof(h) + h.length;
	return 1;
}

int lvol_xattr_decode(const struct lvol_desc *d, struct lvol_xattr *x, struct lvol_error *e)
{
	uint16_t lengths[2];

	if (d->length < sizeof(lengths)) {
		return lvol_refuse(e, "extended attribute: length %" PRIu32 ", at least %zu", d->length,
				   sizeof(lengths));
	}
	memcpy(lengths, d->data, sizeof(lengths));
	if (sizeof(lengths) + lengths[0] + lengths[1] != d->length) {
		return lvol_refuse(e, "extended attribute: name of %u and value of %u bytes in %" PRIu32, lengths[0],
				   lengths[1], d->length);
	}
	*x = (struct lvol_xattr){
		.name = (const char *)d->data + sizeof(lengths),
		.name_length = lengths[0],
		.value = d->data + sizeof(lengths) + lengths[0],
		.value_length = lengths[1],
	};
	return 0;
}

bool lvol_xattr_is(const struct lvol_xattr *x, const char *name)
{
	return x->name_length == strlen(name) && memcmp(x->name, name, x->name_length) == 0;
}

int lvol_flags_decode(const struct lvol_desc *d, struct lvol_desc_flags *f, struct lvol_error *e)
{
	if (d->length != sizeof(*f)) {
		return lvol_refuse(e, "flags: length %" PRIu32 ", must be %zu", d->length, sizeof(*f));
	}
	memcpy(f, d->data, sizeof(*f));
	if ((f->invalid & ~LVOL_INVALID_KNOWN) != 0) {
		return lvol_refuse(e, "flags: invalid_flags %#" PRIx64 " has bits that are not known (%#llx are)",
				   f->invalid, LVOL_INVALID_KNOWN);
	}
	return 0;
}

struct lvol_desc_rle lvol_desc_pair(const struct lvol_desc *d, size_t skip, size_t n)
{
	struct lvol_desc_rle pair;

	memcpy(&pair, d->data + skip + n * sizeof(pair), sizeof(pair));
	return pair;
}

uint32_t lvol_desc_u32(const struct lvol_desc *d, size_t at)
{
	uint32_t v;

	memcpy(&v, d->data + at, sizeof(v));
	return v;
}

uint64_t lvol_desc_u64(const struct lvol_desc *d, size_t at)
{
	uint64_t v;

	memcpy(&v, d->data + at, sizeof(v));
	return v;
}
