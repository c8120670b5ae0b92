/* SPDX-License-Identifier: BSD-3-Clause */
/* One volume: its metadata, and where its data is. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lvol/internal.h"
#include "lvol/rescue.h"
#include "lvol/reserve.h"

/* What is read of a volume's metadata, page by page. */
struct volume_reader {
	struct lvol_store *store;
	struct lvol_volume *volume;
	bool names_store;        /* the volume whose name is the store's */
	bool in_root;            /* what is read is of its root page */
	bool has_rle, has_table; /* it has extents of that kind; never both */
	bool has_name, has_uuid, has_parent, has_reserved;
	uint64_t table_pages; /* entries of the table of extents so far */
};

static const uint32_t pages_per_table = LVOL_EXTENT_PAGE_CLUSTERS;

/* ---- Where its clusters are ---- */

static int volume_run_add(struct lvol_volume *v, uint64_t first, uint32_t cluster, uint32_t count)
{
	struct lvol_run *last = v->num_runs > 0 ? &v->runs[v->num_runs - 1] : NULL;

	v->num_allocated += count;
	if (last != NULL && last->first + last->count == first && last->cluster + last->count == cluster) {
		/* All clusters of a volume together are no more than 32 bits count. */
		last->count += count;
		return 0;
	}
	if (v->num_runs == v->room_runs) {
		size_t room = v->room_runs == 0 ? 8 : 2 * v->room_runs;
		struct lvol_run *runs = realloc(v->runs, room * sizeof(*runs));
		if (runs == NULL) {
			return -ENOMEM;
		}
		v->runs = runs;
		v->room_runs = room;
	}
	v->runs[v->num_runs++] = (struct lvol_run){.first = first, .cluster = cluster, .count = count};
	return 0;
}

/* Clusters that a volume says are its own. */
static int volume_clusters_add(const struct volume_reader *r, uint64_t first, uint32_t cluster, uint32_t count,
			       struct lvol_error *e)
{
	const struct lvol_geometry *g = &r->store->geometry;

	if (cluster < g->num_md_clusters || cluster >= g->num_clusters || count > g->num_clusters - cluster) {
		return lvol_refuse(e, "clusters %" PRIu32 " to %" PRIu64 ", a volume may have %" PRIu32 " to %" PRIu32,
				   cluster, (uint64_t)cluster + count - 1, g->num_md_clusters, g->num_clusters - 1);
	}
	if (count > g->num_clusters - r->volume->num_allocated) {
		return lvol_refuse(e, "more clusters than the store has (%" PRIu32 ")", g->num_clusters);
	}
	return volume_run_add(r->volume, first, cluster, count);
}

static int volume_rle_read(struct volume_reader *r, const struct lvol_desc *d, struct lvol_error *e)
{
	struct lvol_volume *v = r->volume;
	size_t n = d->length / sizeof(struct lvol_desc_rle);
	int rc = 0;

	if (d->length % sizeof(struct lvol_desc_rle) != 0 || r->has_table) {
		return lvol_refuse(e, "extents: length %" PRIu32 "%s", d->length,
				   r->has_table ? ", but there is a table of extents" : " is not a multiple of 8");
	}
	r->has_rle = true;
	for (size_t i = 0; i < n && rc == 0; i++) {
		struct lvol_desc_rle x = lvol_desc_pair(d, 0, i);
		if (x.count == 0) {
			return lvol_refuse(e, "extents: entry %zu has no clusters", i);
		}
		rc = x.cluster == 0 ? 0 : volume_clusters_add(r, v->num_clusters, x.cluster, x.count, e);
		v->num_clusters += x.count;
		if (v->num_clusters > UINT64_MAX / r->store->geometry.cluster_bytes) {
			return lvol_refuse(e, "extents: %" PRIu64 " clusters, the size exceeds 64 bits",
					   v->num_clusters);
		}
	}
	return rc;
}

/* ---- Pages ---- */

static int store_page_read(const struct lvol_store *s, uint32_t index, struct lvol_md_page *p)
{
	return lvol_store_pages_read(s, (uint64_t)s->geometry.md.first + index, p, sizeof(*p));
}

/* Reads a page that belongs to the volume, and to no other. */
static int volume_page_get(const struct volume_reader *r, uint32_t index, struct lvol_md_page *p, struct lvol_error *e)
{
	struct lvol_store *s = r->store;

	if (lvol_bit(s->pages_owned, index)) {
		return lvol_refuse(e, "metadata page %" PRIu32 " is used twice", index);
	}
	s->pages_owned[index / 8] |= (uint8_t)(1 << index % 8);
	int rc = store_page_read(s, index, p);
	if (rc != 0) {
		return lvol_refuse(e, "metadata page %" PRIu32 ": %s", index, strerror(-rc));
	}
	return lvol_page_decode(p, index, s->geometry.md.pages, e);
}

/* A page of extents: the volume's clusters from `first` on. Its id may be another volume's: a snapshot takes over the
 * pages of the volume that it is made of, as they are. */
static int volume_extent_page_read(struct volume_reader *r, uint32_t index, uint64_t first, struct lvol_error *e)
{
	struct lvol_volume *v = r->volume;
	struct lvol_md_page page;
	struct lvol_desc d;
	size_t at = 0;
	int rc = volume_page_get(r, index, &page, e);

	if (rc != 0) {
		return rc;
	}
	rc = lvol_desc_next(&page, &at, &d, e);
	if (rc < 0) {
		return rc;
	}
	uint64_t left = v->num_clusters - first, n = left < pages_per_table ? left : pages_per_table;
	if (rc == 0 || d.type != LVOL_DESC_EXTENT_PAGE || d.length < 4 + 4 * n || d.length > 4 + 4 * pages_per_table ||
	    lvol_desc_u32(&d, 0) != first) {
		return lvol_refuse(e, "metadata page %" PRIu32 " has not the clusters %" PRIu64 " to %" PRIu64, index,
				   first, first + n - 1);
	}
	for (uint64_t i = 0; i < n; i++) {
		uint32_t cluster = lvol_desc_u32(&d, 4 + 4 * i);
		if (cluster != 0 && (rc = volume_clusters_add(r, first + i, cluster, 1, e)) != 0) {
			return rc;
		}
	}
	return 0;
}

static uint64_t volume_table_need(const struct lvol_volume *v)
{
	return v->num_clusters / pages_per_table + (v->num_clusters % pages_per_table != 0);
}

static int volume_table_head_read(struct volume_reader *r, const struct lvol_desc *d, struct lvol_error *e)
{
	if (d->length < 8 || (d->length - 8) % sizeof(struct lvol_desc_table_entry) != 0) {
		return lvol_refuse(e, "table of extents: length %" PRIu32 " is not 8 more than a multiple of 8",
				   d->length);
	}
	if (r->has_rle) {
		return lvol_refuse(e, "table of extents, but there are extents of the other kind");
	}
	uint64_t clusters = lvol_desc_u64(d, 0);
	if (r->has_table && clusters != r->volume->num_clusters) {
		return lvol_refuse(e, "table of extents: %" PRIu64 " clusters, its first part says %" PRIu64, clusters,
				   r->volume->num_clusters);
	}
	if (clusters > UINT64_MAX / r->store->geometry.cluster_bytes) {
		return lvol_refuse(e, "table of extents: %" PRIu64 " clusters, the size exceeds 64 bits", clusters);
	}
	r->has_table = true;
	r->volume->num_clusters = clusters;
	return 0;
}

static int volume_table_read(struct volume_reader *r, const struct lvol_desc *d, struct lvol_error *e)
{
	int rc = volume_table_head_read(r, d, e);

	for (size_t i = 0; rc == 0 && i < (d->length - 8) / sizeof(struct lvol_desc_table_entry); i++) {
		struct lvol_desc_rle x = lvol_desc_pair(d, 8, i);
		uint64_t left = volume_table_need(r->volume) - r->table_pages;
		if (x.count == 0 || x.count > left || (x.cluster != 0 && x.count != 1)) {
			return lvol_refuse(
				e, "table of extents: an entry for %" PRIu32 " pages, there are %" PRIu64 " left",
				x.count, left);
		}
		if (x.cluster >= r->store->geometry.md.pages) {
			return lvol_refuse(e, "table of extents: metadata page %" PRIu32 " of %" PRIu32, x.cluster,
					   r->store->geometry.md.pages);
		}
		rc = x.cluster == 0 ? 0 : volume_extent_page_read(r, x.cluster, r->table_pages * pages_per_table, e);
		r->volume->num_tables += x.cluster != 0;
		r->table_pages += x.count;
	}
	return rc;
}

/* ---- Names ---- */

/* A text that may or may not end with a 0, as names do. */
static int volume_text_read(const struct lvol_xattr *x, char *to, size_t max, struct lvol_error *e)
{
	size_t n = strnlen((const char *)x->value, x->value_length);

	if (n > max) {
		return lvol_refuse(e, "the %.*s has %zu characters, at most %zu", x->name_length, x->name, n, max);
	}
	memcpy(to, x->value, n);
	to[n] = 0;
	for (size_t i = 0; i < n; i++) {
		if (to[i] < ' ' || to[i] > '~') {
			return lvol_refuse(e, "the %.*s has a character %#x", x->name_length, x->name, (uint8_t)to[i]);
		}
	}
	return 0;
}

/* Programs differ in which one of two they read and which one they replace: none of them is to be believed. */
static int volume_once(bool *has, const char *what, struct lvol_error *e)
{
	bool had = *has;

	*has = true;
	return had ? lvol_refuse(e, "%s is there twice", what) : 0;
}

/* The volume can be used without it. */
static void volume_reserve_read(struct volume_reader *r, const struct lvol_xattr *x)
{
	struct lvol_volume *v = r->volume;
	struct lvol_error e;

	v->reserved_bad |= lvol_reserve_decode(x->value, x->value_length, &v->reserved, &e) != 0 || r->has_reserved;
	r->has_reserved = true;
	v->reserved = v->reserved_bad ? 0 : v->reserved;
}

static int volume_xattr_read(struct volume_reader *r, const struct lvol_desc *d, struct lvol_error *e)
{
	struct lvol_xattr x;
	int rc = lvol_xattr_decode(d, &x, e);

	if (rc != 0) {
		return rc;
	}
	if (lvol_xattr_is(&x, "name")) {
		rc = volume_text_read(&x, r->volume->name, LVOL_NAME_MAX, e);
		return rc != 0 ? rc : volume_once(&r->has_name, "the name", e);
	}
	if (lvol_xattr_is(&x, "uuid")) {
		rc = volume_text_read(&x, r->volume->uuid, LVOL_UUID_TEXT - 1, e);
		return rc != 0 ? rc : volume_once(&r->has_uuid, "the uuid", e);
	}
	if (lvol_xattr_is(&x, LVOL_RESERVE_XATTR)) {
		volume_reserve_read(r, &x);
	}
	if (lvol_xattr_is(&x, LVOL_COPY_XATTR) && r->in_root) {
		r->store->super_copied |=
			lvol_super_copy_is_of(r->store->super, r->volume->id, x.value, x.value_length);
	}
	return 0;
}

static int volume_parent_read(struct lvol_volume *v, const struct lvol_xattr *x, struct lvol_error *e)
{
	if (x->value_length != sizeof(v->parent_id)) {
		return lvol_refuse(e, "SNAP has %u bytes, must have %zu", x->value_length, sizeof(v->parent_id));
	}
	memcpy(&v->parent_id, x->value, sizeof(v->parent_id));
	return 0;
}

static int volume_external_read(struct lvol_volume *v, const struct lvol_xattr *x, struct lvol_error *e)
{
	char text[256];
	int rc = volume_text_read(x, text, sizeof(text) - 1, e);

	if (rc != 0 || v->external != NULL) {
		return rc != 0 ? rc : lvol_refuse(e, "EXTSNAP is there twice");
	}
	size_t bytes = strlen(text) + 1;
	v->external = malloc(bytes);
	if (v->external == NULL) {
		return -ENOMEM;
	}
	memcpy(v->external, text, bytes);
	return 0;
}

static int volume_internal_read(struct volume_reader *r, const struct lvol_desc *d, struct lvol_error *e)
{
	struct lvol_volume *v = r->volume;
	struct lvol_xattr x;
	int rc = lvol_xattr_decode(d, &x, e);

	if (rc != 0) {
		return rc;
	}
	if (lvol_xattr_is(&x, "SNAP")) {
		rc = volume_parent_read(v, &x, e);
		return rc != 0 ? rc : volume_once(&r->has_parent, "SNAP", e);
	}
	if (lvol_xattr_is(&x, "EXTSNAP")) {
		return volume_external_read(v, &x, e);
	}
	v->going |= lvol_xattr_is(&x, "SNAPTMP") || lvol_xattr_is(&x, "SNAPRM");
	return 0;
}

/* ---- All of it ---- */

static int volume_desc_read(struct volume_reader *r, const struct lvol_desc *d, struct lvol_error *e)
{
	switch (d->type) {
	case LVOL_DESC_PADDING:
		return 0;
	case LVOL_DESC_EXTENTS_RLE:
		return volume_rle_read(r, d, e);
	case LVOL_DESC_XATTR:
		return volume_xattr_read(r, d, e);
	case LVOL_DESC_FLAGS:
		return lvol_flags_decode(d, &r->volume->flags, e);
	case LVOL_DESC_XATTR_INTERNAL:
		return volume_internal_read(r, d, e);
	case LVOL_DESC_EXTENT_TABLE:
		return volume_table_read(r, d, e);
	default:
		return lvol_refuse(e, "descriptor of type %u, known are %d to %d", d->type, LVOL_DESC_PADDING,
				   LVOL_DESC_EXTENT_TABLE);
	}
}

static int volume_descs_read(struct volume_reader *r, const struct lvol_md_page *p, struct lvol_error *e)
{
	struct lvol_desc d;
	size_t at = 0;
	int rc = lvol_desc_next(p, &at, &d, e);

	while (rc == 1) {
		rc = volume_desc_read(r, &d, e);
		rc = rc != 0 ? rc : lvol_desc_next(p, &at, &d, e);
	}
	return rc;
}

/* Each page is owned once, so this ends. */
static int volume_pages_read(struct volume_reader *r, uint32_t index, struct lvol_error *e)
{
	struct lvol_md_page page;
	uint32_t sequence = 0;
	int rc;

	for (; index != LVOL_PAGE_NONE; index = page.next, sequence++) {
		if ((rc = volume_page_get(r, index, &page, e)) != 0) {
			return rc;
		}
		if (page.id != r->volume->id) {
			return lvol_refuse(e, "metadata page %" PRIu32 " is that of volume %#" PRIx64, index, page.id);
		}
		if (page.sequence != sequence) {
			return lvol_refuse(e, "metadata page %" PRIu32 ": sequence %" PRIu32 ", must be %" PRIu32,
					   index, page.sequence, sequence);
		}
		r->in_root = sequence == 0;
		if ((rc = volume_descs_read(r, &page, e)) != 0) {
			return rc;
		}
	}
	return 0;
}

static int volume_whole_check(const struct volume_reader *r, struct lvol_error *e)
{
	const struct lvol_volume *v = r->volume;

	if (r->has_table && r->table_pages != volume_table_need(v)) {
		return lvol_refuse(e, "table of extents: %" PRIu64 " entries for %" PRIu64 " clusters", r->table_pages,
				   v->num_clusters);
	}
	if ((v->flags.invalid & LVOL_INVALID_EXTERNAL_SNAPSHOT) != 0 && v->external == NULL) {
		return lvol_refuse(e, "a clone of an external snapshot without EXTSNAP");
	}
	if (r->has_parent && v->external != NULL) {
		return lvol_refuse(e, "a clone of a snapshot (SNAP) and of a bdev outside of the store (EXTSNAP)");
	}
	return 0;
}

int lvol_volume_read(struct lvol_store *s, struct lvol_volume *v, uint32_t root)
{
	struct volume_reader r = {.store = s, .volume = v};
	struct lvol_error e = {""};

	*v = (struct lvol_volume){.id = LVOL_ID_HIGH | root, .parent_id = LVOL_ID_NONE};
	int rc = volume_pages_read(&r, root, &e);
	rc = rc != 0 ? rc : volume_whole_check(&r, &e);
	if (rc != -EILSEQ) {
		return rc;
	}
	v->damaged = true;
	return lvol_problem_add(s, "volume %#" PRIx64 " (%s): %s", v->id, v->name[0] != 0 ? v->name : "without name",
				e.text);
}

void lvol_volume_clear(struct lvol_volume *v)
{
	free(v->runs);
	free(v->external);
}

/* ---- Its data ---- */

uint32_t lvol_volume_cluster(const struct lvol_volume *v, uint64_t n)
{
	size_t low = 0, high = v->num_runs;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		const struct lvol_run *run = &v->runs[mid];
		if (n < run->first) {
			high = mid;
		} else if (n - run->first >= run->count) {
			low = mid + 1;
		} else {
			return run->cluster + (uint32_t)(n - run->first);
		}
	}
	return 0;
}

int lvol_volume_data(const struct lvol_store *s, const struct lvol_volume *v, uint64_t offset, void *to, size_t bytes)
{
	uint32_t cluster_bytes = s->geometry.cluster_bytes;
	uint64_t n = offset / cluster_bytes;

	/* lvol_store_read() has left no parent that is its own descendant, and a clone without its snapshot is damaged.
	 */
	for (; v != NULL; v = v->parent) {
		/* First: where the metadata is cut off, its size may be too small. */
		if (v->damaged) {
			return -EILSEQ;
		}
		if (n >= v->num_clusters) {
			break; /* a clone that has grown */
		}
		uint32_t cluster = lvol_volume_cluster(v, n);
		if (cluster != 0) {
			return s->device.read(s->device.ctx, (uint64_t)cluster * cluster_bytes + offset % cluster_bytes,
					      to, bytes);
		}
		if (v->external != NULL) {
			return -ENXIO;
		}
	}
	memset(to, 0, bytes);
	return 0;
}
