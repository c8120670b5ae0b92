/* SPDX-License-Identifier: BSD-3-Clause */
/* The metadata of one volume: in memory, and as descriptors in pages. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lvol/live_internal.h"

/* ---- In memory ---- */

static void xattr_clear(struct live_xattr *x)
{
	free(x->name);
}

void live_meta_clear(struct live_meta *m)
{
	for (size_t i = 0; i < m->num_xattrs; i++) {
		xattr_clear(&m->xattrs[i]);
	}
	free(m->xattrs);
	free(m->tables);
	free(m->chain);
	*m = (struct live_meta){.xattrs = NULL};
}

/* The value lies behind the name, in one piece of memory. */
static int xattr_make(struct live_xattr *x, uint8_t type, const char *name, size_t name_length, const void *value,
		      uint16_t bytes)
{
	char *memory = malloc(name_length + 1 + bytes);

	if (memory == NULL) {
		return -ENOMEM;
	}
	memcpy(memory, name, name_length);
	memory[name_length] = 0;
	memcpy(memory + name_length + 1, value, bytes);
	*x = (struct live_xattr){.type = type,
				 .name_length = (uint16_t)name_length,
				 .value_length = bytes,
				 .name = memory,
				 .value = (uint8_t *)memory + name_length + 1};
	return 0;
}

static int xattr_add(struct live_meta *m, uint8_t type, const char *name, size_t name_length, const void *value,
		     uint16_t bytes)
{
	struct live_xattr *all = realloc(m->xattrs, (m->num_xattrs + 1) * sizeof(*all));

	if (all == NULL) {
		return -ENOMEM;
	}
	m->xattrs = all;
	int rc = xattr_make(&all[m->num_xattrs], type, name, name_length, value, bytes);
	m->num_xattrs += rc == 0;
	return rc;
}

const struct live_xattr *live_xattr_find(const struct live_meta *m, uint8_t type, const char *name)
{
	for (size_t i = 0; i < m->num_xattrs; i++) {
		if (m->xattrs[i].type == type && strcmp(m->xattrs[i].name, name) == 0) {
			return &m->xattrs[i];
		}
	}
	return NULL;
}

/* A damaged store may have it more than once. */
static void xattr_remove(struct live_meta *m, uint8_t type, const char *name)
{
	const struct live_xattr *old;

	while ((old = live_xattr_find(m, type, name)) != NULL) {
		struct live_xattr *at = &m->xattrs[old - m->xattrs];
		xattr_clear(at);
		memmove(at, at + 1, (size_t)(m->xattrs + m->num_xattrs - (at + 1)) * sizeof(*at));
		m->num_xattrs--;
	}
}

int live_xattr_set(struct live_meta *m, uint8_t type, const char *name, const void *value, uint16_t bytes)
{
	const struct live_xattr *old;
	struct live_xattr x;

	if (value == NULL) {
		xattr_remove(m, type, name);
		return 0;
	}
	if ((old = live_xattr_find(m, type, name)) == NULL) {
		return xattr_add(m, type, name, strlen(name), value, bytes);
	}
	struct live_xattr *at = &m->xattrs[old - m->xattrs];
	int rc = xattr_make(&x, type, name, strlen(name), value, bytes);
	if (rc == 0) {
		xattr_clear(at);
		*at = x;
	}
	return rc;
}

int live_xattr_name_set(struct live_meta *m, const char *name)
{
	char padded[LVOL_NAME_MAX] = "";

	memcpy(padded, name, strnlen(name, sizeof(padded) - 1));
	return live_xattr_set(m, LVOL_DESC_XATTR, "name", padded, sizeof(padded));
}

static int meta_copy(struct live_meta *to, const struct live_meta *from, uint64_t num_clusters)
{
	uint64_t tables = live_tables(num_clusters), old = live_tables(from->num_clusters);
	int rc = 0;

	to->tables = calloc((size_t)tables + 1, sizeof(*to->tables));
	if (to->tables == NULL) {
		return -ENOMEM;
	}
	memcpy(to->tables, from->tables, (size_t)(tables < old ? tables : old) * sizeof(*to->tables));
	for (size_t i = 0; i < from->num_xattrs && rc == 0; i++) {
		const struct live_xattr *x = &from->xattrs[i];
		rc = xattr_add(to, x->type, x->name, x->name_length, x->value, x->value_length);
	}
	return rc;
}

int live_meta_copy(struct live_meta *to, const struct live_meta *from, uint64_t num_clusters)
{
	*to = (struct live_meta){.flags = from->flags, .num_clusters = num_clusters, .rle = from->rle};
	int rc = meta_copy(to, from, num_clusters);
	if (rc != 0) {
		live_meta_clear(to);
	}
	return rc;
}

/* ---- From pages ---- */

/* What is read here, lvol_volume_read() has read before: all lengths are right. */
struct meta_reader {
	struct live_meta *meta;
	uint64_t num_tables;
};

static int meta_table_read(struct meta_reader *r, const struct lvol_desc *d)
{
	struct live_meta *m = r->meta;

	if (m->tables == NULL) {
		m->num_clusters = lvol_desc_u64(d, 0);
		m->tables = calloc((size_t)live_tables(m->num_clusters) + 1, sizeof(*m->tables));
		if (m->tables == NULL) {
			return -ENOMEM;
		}
	}
	for (size_t i = 0; i < (d->length - 8) / sizeof(struct lvol_desc_table_entry); i++) {
		struct lvol_desc_rle x = lvol_desc_pair(d, 8, i);
		if (x.cluster != 0) {
			m->tables[r->num_tables] = x.cluster;
		}
		r->num_tables += x.count;
	}
	return 0;
}

static void meta_rle_read(struct meta_reader *r, const struct lvol_desc *d)
{
	r->meta->rle = true;
	for (size_t i = 0; i < d->length / sizeof(struct lvol_desc_rle); i++) {
		r->meta->num_clusters += lvol_desc_pair(d, 0, i).count;
	}
}

static int meta_desc_read(struct meta_reader *r, const struct lvol_desc *d)
{
	struct lvol_error e;
	struct lvol_xattr x;

	switch (d->type) {
	case LVOL_DESC_EXTENTS_RLE:
		meta_rle_read(r, d);
		return 0;
	case LVOL_DESC_EXTENT_TABLE:
		return meta_table_read(r, d);
	case LVOL_DESC_FLAGS:
		return lvol_flags_decode(d, &r->meta->flags, &e);
	case LVOL_DESC_XATTR:
	case LVOL_DESC_XATTR_INTERNAL:
		return lvol_xattr_decode(d, &x, &e) != 0
			       ? -EILSEQ
			       : xattr_add(r->meta, d->type, x.name, x.name_length, x.value, x.value_length);
	default:
		return 0;
	}
}

static int meta_page_read(struct meta_reader *r, const struct lvol_md_page *p)
{
	struct lvol_error e;
	struct lvol_desc d;
	size_t at = 0;
	int rc = lvol_desc_next(p, &at, &d, &e);

	while (rc == 1) {
		rc = meta_desc_read(r, &d);
		rc = rc != 0 ? rc : lvol_desc_next(p, &at, &d, &e);
	}
	return rc;
}

static int meta_chain_add(struct live_meta *m, uint32_t page)
{
	uint32_t *chain = realloc(m->chain, (m->num_chain + 1) * sizeof(*chain));

	if (chain == NULL) {
		return -ENOMEM;
	}
	m->chain = chain;
	chain[m->num_chain++] = page;
	return 0;
}

static int meta_read(const struct lvol_store *from, uint64_t id, struct meta_reader *r, struct lvol_md_page *p)
{
	uint32_t page = (uint32_t)id;
	int rc = 0;

	for (; page != LVOL_PAGE_NONE && rc == 0; page = p->next) {
		rc = page == (uint32_t)id ? 0 : meta_chain_add(r->meta, page);
		rc = rc != 0 ? rc
			     : lvol_store_pages_read(from, (uint64_t)from->geometry.md.first + page, p, sizeof(*p));
		rc = rc != 0 ? rc : meta_page_read(r, p);
	}
	if (rc == 0 && r->meta->tables == NULL) {
		r->meta->tables = calloc((size_t)live_tables(r->meta->num_clusters) + 1, sizeof(*r->meta->tables));
		rc = r->meta->tables == NULL ? -ENOMEM : 0;
	}
	return rc;
}

int live_meta_read(const struct lvol_store *from, uint64_t id, struct live_meta *m)
{
	struct meta_reader r = {.meta = m};
	struct lvol_md_page *p = malloc(sizeof(*p));

	*m = (struct live_meta){.xattrs = NULL};
	int rc = p == NULL ? -ENOMEM : meta_read(from, id, &r, p);
	if (rc != 0) {
		live_meta_clear(m);
	}
	free(p);
	return rc;
}

/* ---- Into pages ---- */

struct meta_writer {
	struct live_batch *batch;
	struct live_meta *meta;
	uint64_t id;
	struct lvol_md_page *page;
	uint32_t sequence;
	size_t filled;
};

static void writer_page_begin(struct meta_writer *w, struct lvol_md_page *p)
{
	p->id = w->id;
	p->sequence = w->sequence++;
	p->next = LVOL_PAGE_NONE;
	w->page = p;
	w->filled = 0;
}

static size_t writer_left(const struct meta_writer *w)
{
	return sizeof(w->page->descriptors) - w->filled;
}

/* Goes on in a new page unless `bytes` and the head of a descriptor fit. */
static int writer_need(struct meta_writer *w, size_t bytes)
{
	uint32_t page;
	int rc = 0;

	if (sizeof(struct lvol_desc_head) + bytes <= writer_left(w)) {
		return 0;
	}
	if (sizeof(struct lvol_desc_head) + bytes > sizeof(w->page->descriptors)) {
		return -ENOSPC;
	}
	struct lvol_md_page *p = live_batch_new(w->batch, &page, &rc);
	rc = rc != 0 ? rc : meta_chain_add(w->meta, page);
	if (rc == 0) {
		w->page->next = page;
		writer_page_begin(w, p);
	}
	return rc;
}

/* Begins a descriptor that fits; returns where its contents go. */
static uint8_t *writer_desc(struct meta_writer *w, uint8_t type, size_t bytes)
{
	const struct lvol_desc_head h = {.type = type, .length = (uint32_t)bytes};
	uint8_t *at = w->page->descriptors + w->filled;

	memcpy(at, &h, sizeof(h));
	w->filled += sizeof(h) + bytes;
	return at + sizeof(h);
}

static int write_flags(struct meta_writer *w)
{
	int rc = writer_need(w, sizeof(w->meta->flags));

	if (rc == 0) {
		memcpy(writer_desc(w, LVOL_DESC_FLAGS, sizeof(w->meta->flags)), &w->meta->flags,
		       sizeof(w->meta->flags));
	}
	return rc;
}

static int write_xattr(struct meta_writer *w, const struct live_xattr *x)
{
	const uint16_t lengths[2] = {x->name_length, x->value_length};
	size_t bytes = sizeof(lengths) + x->name_length + x->value_length;
	int rc = writer_need(w, bytes);

	if (rc == 0) {
		uint8_t *to = writer_desc(w, x->type, bytes);
		memcpy(to, lengths, sizeof(lengths));
		memcpy(to + sizeof(lengths), x->name, x->name_length);
		memcpy(to + sizeof(lengths) + x->name_length, x->value, x->value_length);
	}
	return rc;
}

static int write_xattrs(struct meta_writer *w, uint8_t type)
{
	int rc = 0;

	for (size_t i = 0; i < w->meta->num_xattrs && rc == 0; i++) {
		rc = w->meta->xattrs[i].type == type ? write_xattr(w, &w->meta->xattrs[i]) : 0;
	}
	return rc;
}

/* The next entry of the table of extents: one page, or several that there are not. */
static struct lvol_desc_table_entry table_entry(const struct live_meta *m, uint64_t at)
{
	uint64_t all = live_tables(m->num_clusters);
	struct lvol_desc_table_entry e = {.page = m->tables[at], .count = 1};

	while (e.page == 0 && at + e.count < all && m->tables[at + e.count] == 0) {
		e.count++;
	}
	return e;
}

/* One descriptor with as many entries as fit. */
static int write_table_part(struct meta_writer *w, uint64_t *at)
{
	uint64_t all = live_tables(w->meta->num_clusters);
	struct lvol_desc_table_entry e;
	int rc = writer_need(w, 8 + sizeof(e));

	if (rc != 0) {
		return rc;
	}
	uint8_t *begin = w->page->descriptors + w->filled, *to = writer_desc(w, LVOL_DESC_EXTENT_TABLE, 8);
	memcpy(to, &w->meta->num_clusters, 8);
	while (*at < all && sizeof(e) <= writer_left(w)) {
		e = table_entry(w->meta, *at);
		memcpy(w->page->descriptors + w->filled, &e, sizeof(e));
		w->filled += sizeof(e);
		*at += e.count;
	}
	const struct lvol_desc_head h = {
		.type = LVOL_DESC_EXTENT_TABLE,
		.length = (uint32_t)(w->page->descriptors + w->filled - begin - (ptrdiff_t)sizeof(h)),
	};
	memcpy(begin, &h, sizeof(h));
	return 0;
}

static int write_table(struct meta_writer *w)
{
	uint64_t at = 0;
	int rc;

	do {
		rc = write_table_part(w, &at);
	} while (rc == 0 && at < live_tables(w->meta->num_clusters));
	return rc;
}

/* A descriptor as writer_need() and writer_desc() place it. */
static void size_add(size_t *left, uint64_t *chain, size_t bytes)
{
	bytes += sizeof(struct lvol_desc_head);
	if (bytes > *left) {
		*left = sizeof(((struct lvol_md_page *)NULL)->descriptors);
		++*chain;
	}
	*left -= bytes;
}

static void size_xattrs(const struct live_meta *m, uint8_t type, size_t *left, uint64_t *chain)
{
	for (size_t i = 0; i < m->num_xattrs; i++) {
		const struct live_xattr *x = &m->xattrs[i];
		if (x->type == type) {
			size_add(left, chain, 2 * sizeof(uint16_t) + x->name_length + x->value_length);
		}
	}
}

/* With so many entries in the table of extents. */
static uint64_t size_chain(const struct live_meta *m, uint64_t entries)
{
	const size_t entry = sizeof(struct lvol_desc_table_entry);
	size_t left = sizeof(((struct lvol_md_page *)NULL)->descriptors);
	uint64_t chain = 0;

	size_add(&left, &chain, sizeof(m->flags));
	size_xattrs(m, LVOL_DESC_XATTR, &left, &chain);
	size_xattrs(m, LVOL_DESC_XATTR_INTERNAL, &left, &chain);
	do {
		size_add(&left, &chain, 8 + entry);
		left += entry;
		uint64_t here = left / entry < entries ? left / entry : entries;
		left -= here * entry;
		entries -= here;
	} while (entries > 0);
	return chain;
}

uint64_t live_meta_chain_most(const struct live_meta *m)
{
	return size_chain(m, live_tables(m->num_clusters));
}

uint64_t live_meta_chain_now(const struct live_meta *m)
{
	uint64_t entries = 0;

	for (uint64_t at = 0; at < live_tables(m->num_clusters); entries++) {
		at += table_entry(m, at).count;
	}
	return size_chain(m, entries);
}

int live_batch_meta(struct live_batch *b, uint64_t id, struct live_meta *m, const struct live_meta *old)
{
	size_t num_old = old == NULL ? 0 : old->num_chain;
	struct meta_writer w = {.batch = b, .meta = m, .id = id};
	int rc = 0;

	m->flags.invalid |= LVOL_INVALID_EXTENT_TABLE;
	struct lvol_md_page *root = live_batch_page(b, (uint32_t)id, &rc);
	if (root == NULL) {
		return rc;
	}
	writer_page_begin(&w, root);
	rc = write_flags(&w);
	rc = rc != 0 ? rc : write_xattrs(&w, LVOL_DESC_XATTR);
	rc = rc != 0 ? rc : write_xattrs(&w, LVOL_DESC_XATTR_INTERNAL);
	rc = rc != 0 ? rc : write_table(&w);
	for (size_t i = 0; i < num_old && rc == 0; i++) {
		rc = live_batch_gone(b, old->chain[i]);
	}
	/* With the new chain. */
	b->promised += (int64_t)live_meta_promise(m) - (old == NULL ? 0 : (int64_t)live_meta_promise(old));
	return rc;
}

void live_table_fill(struct lvol_md_page *p, uint64_t id, uint64_t first, const uint32_t *places, uint32_t n)
{
	const struct lvol_desc_head h = {.type = LVOL_DESC_EXTENT_PAGE, .length = 4 + 4 * n};
	const uint32_t begin = (uint32_t)first;

	p->id = id;
	p->next = LVOL_PAGE_NONE;
	memcpy(p->descriptors, &h, sizeof(h));
	memcpy(p->descriptors + sizeof(h), &begin, sizeof(begin));
	memcpy(p->descriptors + sizeof(h) + sizeof(begin), places, n * sizeof(*places));
}

uint32_t live_places(const struct lvol_live_volume *v, uint64_t first, uint32_t *places)
{
	const struct lvol_live_map *map = live_map(v);
	uint64_t left = map->num_clusters - first;
	uint32_t n = left < LVOL_EXTENT_PAGE_CLUSTERS ? (uint32_t)left : (uint32_t)LVOL_EXTENT_PAGE_CLUSTERS;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t entry = atomic_load_explicit(&map->entries[first + i], memory_order_relaxed);
		places[i] = (entry & LVOL_LIVE_OWN) != 0 ? lvol_live_cluster(entry) : 0;
	}
	return n;
}
