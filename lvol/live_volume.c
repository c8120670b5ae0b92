/* SPDX-License-Identifier: BSD-3-Clause */
/* Changes that make and remove volumes: create, clone, snapshot, delete. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lvol/live_internal.h"

/* ---- What the kinds have in common ---- */

bool live_text_is_good(const char *text, size_t max)
{
	size_t n = text == NULL ? 0 : strnlen(text, max + 1);

	if (n == 0 || n > max) {
		return false;
	}
	for (size_t i = 0; i < n; i++) {
		if (text[i] < ' ' || text[i] > '~') {
			return false;
		}
	}
	return true;
}

int live_name_set(struct live_change *c, const char *name)
{
	if (!live_text_is_good(name, LVOL_NAME_MAX - 1)) {
		return -EINVAL;
	}
	memcpy(c->name, name, strlen(name));
	return 0;
}

static int names_set(struct live_change *c, const char *name, const char *uuid)
{
	if (!live_text_is_good(uuid, LVOL_UUID_TEXT - 1)) {
		return -EINVAL;
	}
	memcpy(c->uuid, uuid, strlen(uuid));
	return live_name_set(c, name);
}

/* Whether a new volume may have its names. */
static int names_check(const struct live_change *c)
{
	return lvol_live_find(c->store, c->name) != NULL || lvol_live_find_uuid(c->store, c->uuid) != NULL ? -EEXIST
													   : 0;
}

int live_xattr_parent_set(struct live_meta *m, const struct lvol_live_volume *parent)
{
	m->flags.invalid |= parent != NULL ? LVOL_INVALID_XATTR_INTERNAL : 0;
	return live_xattr_set(m, LVOL_DESC_XATTR_INTERNAL, "SNAP", parent == NULL ? NULL : &parent->id,
			      sizeof(parent->id));
}

int live_xattr_external_set(struct live_meta *m, const char *external)
{
	if (external == NULL) {
		m->flags.invalid &= ~LVOL_INVALID_EXTERNAL_SNAPSHOT;
	} else {
		m->flags.invalid |= LVOL_INVALID_EXTERNAL_SNAPSHOT | LVOL_INVALID_XATTR_INTERNAL;
	}
	return live_xattr_set(m, LVOL_DESC_XATTR_INTERNAL, "EXTSNAP", external,
			      external == NULL ? 0 : (uint16_t)(strlen(external) + 1));
}

/* The metadata of a new volume, in metas[0], but for its parent. */
static int meta_new(struct live_change *c, uint64_t num_clusters, bool thin)
{
	struct live_meta *m = &c->metas[0];

	m->num_clusters = num_clusters;
	m->flags.invalid = thin ? LVOL_INVALID_THIN : 0;
	m->tables = calloc((size_t)live_tables(num_clusters) + 1, sizeof(*m->tables));
	int rc = m->tables == NULL ? -ENOMEM : live_xattr_name_set(m, c->name);
	return rc != 0 ? rc : live_xattr_set(m, LVOL_DESC_XATTR, "uuid", c->uuid, (uint16_t)(strlen(c->uuid) + 1));
}

static int made_new(struct live_change *c, uint64_t num_clusters)
{
	c->made = live_volume_new(c->store, c->name, c->uuid, num_clusters);
	return c->made == NULL ? -ENOMEM : 0;
}

/* A root page for the new volume, with the metadata of metas[0]. */
static int made_build(struct live_change *c, struct live_batch *b)
{
	uint32_t root;
	int rc = live_batch_root(b, &root);

	c->made->id = LVOL_ID_HIGH | root;
	return rc != 0 ? rc : live_batch_meta(b, c->made->id, &c->metas[0], NULL);
}

void live_meta_take(struct lvol_live_volume *v, struct live_meta *m)
{
	live_meta_clear(&v->internal->meta);
	v->internal->meta = *m;
	*m = (struct live_meta){.xattrs = NULL};
}

/* The new volume is there. */
static void made_publish(struct live_change *c)
{
	struct lvol_live_volume *v = c->made;

	live_meta_take(v, &c->metas[0]);
	v->thin = (v->internal->meta.flags.invalid & LVOL_INVALID_THIN) != 0;
	v->read_only = (v->internal->meta.flags.data_ro & LVOL_DATA_RO_READ_ONLY) != 0;
	if (v->parent != NULL) {
		v->parent->num_clones++;
	}
	live_volume_inherit(v);
	live_volume_link(v);
	c->result = v;
	c->made = NULL;
}

static void map_set(const struct lvol_live_volume *v, uint64_t n, uint32_t entry)
{
	/* Release: pairs with lvol_live_entry(). */
	atomic_store_explicit(&live_map(v)->entries[n], entry, memory_order_release);
}

/* ---- Create ---- */

static int create_check(struct live_change *c)
{
	int rc = names_check(c);

	rc = rc != 0 ? rc : made_new(c, c->num_clusters);
	rc = rc != 0 ? rc : meta_new(c, c->num_clusters, c->thin);
	if (rc == 0 && c->text != NULL) {
		c->made->external = strdup(c->text);
		rc = c->made->external == NULL ? -ENOMEM : live_xattr_external_set(&c->metas[0], c->text);
	}
	return rc;
}

static int create_build(struct live_change *c, struct live_batch *b)
{
	int rc = live_account_hold(c, NULL, c->num_taken, c->reserved);

	rc = rc != 0 ? rc : live_xattr_reserve_set(&c->metas[0], c->reserved);
	for (uint64_t at = 0; at < c->num_taken && rc == 0; at += LVOL_EXTENT_PAGE_CLUSTERS) {
		uint64_t left = c->num_taken - at;
		uint32_t n = left < LVOL_EXTENT_PAGE_CLUSTERS ? (uint32_t)left : (uint32_t)LVOL_EXTENT_PAGE_CLUSTERS;
		uint32_t *page = &c->metas[0].tables[at / LVOL_EXTENT_PAGE_CLUSTERS];
		struct lvol_md_page *p = live_batch_new(b, page, &rc);
		if (p != NULL) {
			/* Its id is known with the root page. */
			live_table_fill(p, 0, at, c->clusters + at, n);
		}
	}
	rc = rc != 0 ? rc : made_build(c, b);
	for (size_t i = 0; i < b->num_direct; i++) {
		((struct lvol_md_page *)b->direct[i].bytes)->id = c->made->id;
	}
	return rc;
}

static void create_publish(struct live_change *c)
{
	struct lvol_live_volume *v = c->made;

	for (uint64_t n = 0; n < c->num_taken; n++) {
		map_set(v, n, LVOL_LIVE_OWN | c->clusters[n]);
	}
	live_account_set(v, c->num_taken, c->reserved, c);
	live_change_taken(c);
	made_publish(c);
}

static const struct live_change_type create = {create_check, create_build, create_publish, "create"};

static int create_opts_check(struct live_change *c, const struct lvol_live_volume_opts *o)
{
	int rc = names_set(c, o->name, o->uuid);

	if (rc != 0 || (o->external != NULL && !live_text_is_good(o->external, LVOL_EXTERNAL_MAX)) ||
	    o->reserved > o->num_clusters) {
		return -EINVAL;
	}
	if (o->num_clusters > LVOL_LIVE_CLUSTERS_MAX) {
		return -EFBIG;
	}
	c->num_clusters = o->num_clusters;
	c->reserved = o->reserved;
	c->thin = o->thin || o->external != NULL;
	c->text = o->external == NULL ? NULL : strdup(o->external);
	return o->external != NULL && c->text == NULL ? -ENOMEM : 0;
}

void lvol_live_volume_create(struct lvol_live *s, const struct lvol_live_volume_opts *o, lvol_live_volume_done done,
			     void *arg)
{
	struct live_change *c = live_change_new(s, &create, arg);

	if (c == NULL) {
		done(arg, -ENOMEM, NULL);
		return;
	}
	c->volume_done = done;
	int rc = create_opts_check(c, o);
	rc = rc != 0 ? rc : names_check(c);
	if (rc == 0 && !c->thin && live_state(s) == 0) {
		live_change_zero(c, o->num_clusters);
	} else {
		live_change_start(c, rc);
	}
}

/* ---- Clone ---- */

static int clone_check(struct live_change *c)
{
	struct lvol_live_volume *v = c->volume;
	int rc = live_is_snapshot(v) ? names_check(c) : -EPERM;

	rc = rc != 0 ? rc : made_new(c, v->num_clusters);
	rc = rc != 0 ? rc : meta_new(c, v->num_clusters, true);
	return rc != 0 ? rc : live_xattr_parent_set(&c->metas[0], v);
}

static void clone_publish(struct live_change *c)
{
	for (uint64_t n = 0; n < c->made->num_clusters; n++) {
		map_set(c->made, n, live_inherited(c->volume, n));
	}
	c->made->parent = c->volume;
	made_publish(c);
}

static const struct live_change_type clone_type = {clone_check, made_build, clone_publish, "clone"};

/* A change that makes a volume of v. */
static void of_volume(struct lvol_live_volume *v, const struct live_change_type *type, const char *name,
		      const char *uuid, lvol_live_volume_done done, void *arg)
{
	struct live_change *c = live_change_new(v->store, type, arg);

	if (c == NULL) {
		done(arg, -ENOMEM, NULL);
		return;
	}
	c->volume_done = done;
	c->volume = v;
	live_change_start(c, names_set(c, name, uuid));
}

void lvol_live_volume_clone(struct lvol_live_volume *v, const char *name, const char *uuid, lvol_live_volume_done done,
			    void *arg)
{
	of_volume(v, &clone_type, name, uuid, done, arg);
}

/* ---- Snapshot ---- */

/* The snapshot gets the volume's tables, its parent and its external snapshot. */
static int snapshot_meta(struct live_change *c)
{
	const struct lvol_live_volume *v = c->volume;
	struct live_meta *m = &c->metas[0];
	int rc = meta_new(c, v->num_clusters, v->thin);

	if (rc != 0) {
		return rc;
	}
	memcpy(m->tables, v->internal->meta.tables, (size_t)live_tables(v->num_clusters) * sizeof(*m->tables));
	m->flags.data_ro = LVOL_DATA_RO_READ_ONLY;
	rc = live_xattr_parent_set(m, v->parent);
	return rc != 0 ? rc : live_xattr_external_set(m, v->external);
}

static int snapshot_check(struct live_change *c)
{
	struct lvol_live_volume *v = c->volume;
	int rc = v->read_only ? -EPERM : v->internal->filling || v->internal->jobs > 0 ? -EBUSY : names_check(c);

	rc = rc != 0 ? rc : made_new(c, v->num_clusters);
	c->paused = v;
	return rc;
}

static int snapshot_build(struct live_change *c, struct live_batch *b)
{
	struct lvol_live_volume *v = c->volume;
	struct live_meta *m = &c->metas[1], *old = &v->internal->meta;
	/* What it has is the snapshot's then: it may need all that it has reserved once more. */
	int rc = live_account_hold(c, v, 0, v->reserved);

	rc = rc != 0 ? rc : snapshot_meta(c);
	rc = rc != 0 ? rc : live_meta_copy(m, old, v->num_clusters);
	rc = rc != 0 ? rc : made_build(c, b);
	if (rc != 0) {
		return rc;
	}
	memset(m->tables, 0, (size_t)live_tables(v->num_clusters) * sizeof(*m->tables));
	m->flags.invalid |= LVOL_INVALID_THIN;
	rc = live_xattr_external_set(m, NULL);
	rc = rc != 0 ? rc : live_xattr_parent_set(m, c->made);
	return rc != 0 ? rc : live_batch_meta(b, v->id, m, old);
}

static void snapshot_publish(struct live_change *c)
{
	struct lvol_live_volume *v = c->volume, *snapshot = c->made;

	for (uint64_t n = 0; n < v->num_clusters; n++) {
		uint32_t entry = lvol_live_entry(v, n);
		map_set(snapshot, n, entry);
		map_set(v, n, lvol_live_cluster(entry));
	}
	live_account_set(snapshot, v->num_own, 0, NULL);
	snapshot->external = v->external;
	snapshot->parent = v->parent;
	if (v->parent != NULL) {
		v->parent->num_clones--; /* made_publish() counts the snapshot */
	}
	live_meta_take(v, &c->metas[1]);
	made_publish(c);
	live_account_set(v, 0, v->reserved, c);
	v->external = NULL;
	v->thin = true;
	v->parent = snapshot;
	snapshot->num_clones = 1;
	live_volume_inherit(v);
}

static const struct live_change_type snapshot_type = {snapshot_check, snapshot_build, snapshot_publish, "snapshot"};

void lvol_live_volume_snapshot(struct lvol_live_volume *v, const char *name, const char *uuid,
			       lvol_live_volume_done done, void *arg)
{
	of_volume(v, &snapshot_type, name, uuid, done, arg);
}

/* ---- Delete ---- */

static struct lvol_live_volume *clone_of(const struct lvol_live_volume *v)
{
	struct lvol_live_volume *clone = v->store->first;

	while (clone != NULL && clone->parent != v) {
		clone = clone->internal->next;
	}
	return clone;
}

/* Whether the clone is longer than its snapshot and would read there, in place of zeroes, what is behind the snapshot.
 */
static bool delete_shows(const struct lvol_live_volume *v, const struct lvol_live_volume *clone)
{
	return clone->num_clusters > v->num_clusters &&
	       (v->external != NULL || (v->parent != NULL && v->parent->num_clusters > v->num_clusters));
}

int lvol_live_volume_may_delete(const struct lvol_live_volume *v)
{
	if (v->num_clones > 1 || v->internal->filling || v->internal->jobs > 0) {
		return -EBUSY;
	}
	const struct lvol_live_volume *clone = v->num_clones == 1 ? clone_of(v) : NULL;
	if (v->internal->fixed || (clone != NULL && clone->internal->fixed)) {
		return -EPERM;
	}
	return clone != NULL && (clone->internal->filling || clone->internal->jobs > 0 || delete_shows(v, clone))
		       ? -EBUSY
		       : 0;
}

static int delete_check(struct live_change *c)
{
	c->other = c->volume->num_clones == 1 ? clone_of(c->volume) : NULL;
	c->paused = c->other;
	return lvol_live_volume_may_delete(c->volume);
}

/* What the clone has of 512 clusters when it has what its snapshot had. Clusters that it does not need are free. */
static int merge_places(struct live_batch *b, const struct lvol_live_volume *clone, const struct lvol_live_volume *v,
			uint64_t first, uint32_t *places, uint32_t *n)
{
	uint32_t theirs[LVOL_EXTENT_PAGE_CLUSTERS];
	uint32_t have = first < v->num_clusters ? live_places(v, first, theirs) : 0;
	int rc = live_freed_reserve(&b->freed, have, 0);

	*n = first < clone->num_clusters ? live_places(clone, first, places) : 0;
	for (uint32_t i = 0; i < have && rc == 0; i++) {
		if (theirs[i] == 0) {
			continue;
		}
		if (i < *n && places[i] == 0) {
			places[i] = theirs[i];
		} else {
			live_freed_cluster(&b->freed, theirs[i]);
		}
	}
	return rc;
}

int live_table_replace(struct live_batch *b, uint64_t id, uint64_t first, const uint32_t *places, uint32_t n,
		       struct live_meta *m)
{
	uint32_t *table = &m->tables[first / LVOL_EXTENT_PAGE_CLUSTERS], old = *table;
	bool any = old != 0 && live_xattr_reserve_get(m) > 0;
	int rc = 0;

	for (uint32_t i = 0; i < n; i++) {
		any |= places[i] != 0;
	}
	*table = 0;
	if (any) {
		struct lvol_md_page *p = live_batch_new(b, table, &rc);
		if (p != NULL) {
			live_table_fill(p, id, first, places, n);
		}
	}
	return rc != 0 || old == 0 ? rc : live_batch_gone(b, old);
}

/* 512 clusters: the clone's table, its snapshot's if that one fits as it is, or a new one. */
static int merge_table(struct live_change *c, struct live_batch *b, uint64_t i)
{
	const struct lvol_live_volume *v = c->volume, *clone = c->other;
	uint32_t places[LVOL_EXTENT_PAGE_CLUSTERS], n, *table = &c->metas[0].tables[i];
	uint32_t theirs = i < live_tables(v->num_clusters) ? v->internal->meta.tables[i] : 0;
	uint64_t first = i * LVOL_EXTENT_PAGE_CLUSTERS, end = first + LVOL_EXTENT_PAGE_CLUSTERS;

	if (theirs == 0) {
		return 0;
	}
	if (i >= live_tables(clone->num_clusters)) {
		int rc = merge_places(b, clone, v, first, places, &n);
		return rc != 0 ? rc : live_batch_gone(b, theirs);
	}
	bool fits = v->num_clusters == clone->num_clusters || (end <= v->num_clusters && end <= clone->num_clusters);
	if (*table == 0 && fits) {
		*table = theirs;
		return 0;
	}
	int rc = merge_places(b, clone, v, first, places, &n);
	rc = rc != 0 ? rc : live_batch_gone(b, theirs);
	return rc != 0 ? rc : live_table_replace(b, clone->id, first, places, n, &c->metas[0]);
}

/* The clone has what its snapshot had: its clusters, its parent, its external snapshot. */
static int merge_build(struct live_change *c, struct live_batch *b)
{
	const struct lvol_live_volume *v = c->volume, *clone = c->other;
	struct live_meta *m = &c->metas[0], *old = &clone->internal->meta;
	int rc = live_meta_copy(m, old, clone->num_clusters);

	for (uint64_t i = 0; i < live_tables(v->num_clusters) && rc == 0; i++) {
		rc = merge_table(c, b, i);
	}
	rc = rc != 0 ? rc : live_xattr_parent_set(m, v->parent);
	rc = rc != 0 ? rc : live_xattr_external_set(m, v->external);
	return rc != 0 ? rc : live_batch_meta(b, clone->id, m, old);
}

/* All clusters and tables of the volume are free. */
static int delete_all(struct live_change *c, struct live_batch *b)
{
	const struct lvol_live_volume *v = c->volume;
	int rc = live_freed_reserve(&b->freed, (size_t)v->num_own, 0);

	for (uint64_t n = 0; n < v->num_clusters && rc == 0; n++) {
		uint32_t entry = lvol_live_entry(v, n);
		if ((entry & LVOL_LIVE_OWN) != 0) {
			live_freed_cluster(&b->freed, lvol_live_cluster(entry));
		}
	}
	for (uint64_t i = 0; i < live_tables(v->num_clusters) && rc == 0; i++) {
		uint32_t table = v->internal->meta.tables[i];
		rc = table == 0 ? 0 : live_batch_gone(b, table);
	}
	return rc;
}

static int delete_build(struct live_change *c, struct live_batch *b)
{
	const struct lvol_live_volume *v = c->volume;
	const struct live_meta *m = &v->internal->meta;
	int rc = c->other != NULL ? merge_build(c, b) : delete_all(c, b);

	for (size_t i = 0; i < m->num_chain && rc == 0; i++) {
		rc = live_batch_gone(b, m->chain[i]);
	}
	rc = rc != 0 ? rc : live_batch_gone(b, (uint32_t)v->id);
	b->promised -= (int64_t)live_meta_promise(m);
	if (rc == 0) {
		live_batch_page(b, (uint32_t)v->id, &rc); /* of zeroes */
	}
	return rc;
}

static void merge_publish(struct live_change *c)
{
	struct lvol_live_volume *v = c->volume, *clone = c->other;
	uint64_t n = v->num_clusters < clone->num_clusters ? v->num_clusters : clone->num_clusters;
	uint64_t own = clone->num_own;

	for (uint64_t i = 0; i < n; i++) {
		uint32_t theirs = lvol_live_entry(v, i), entry = lvol_live_entry(clone, i);
		if ((entry & LVOL_LIVE_OWN) == 0 && (theirs & LVOL_LIVE_OWN) != 0) {
			map_set(clone, i, theirs);
			own++;
		}
	}
	live_account_set(clone, own, clone->reserved, NULL);
	live_meta_take(clone, &c->metas[0]);
	clone->parent = v->parent;
	clone->external = v->external;
	v->external = NULL;
	for (struct lvol_live_volume *w = c->store->first; w != NULL; w = w->internal->next) {
		w->external_at = w->external_at == v ? clone : w->external_at;
	}
}

static void delete_publish(struct live_change *c)
{
	struct lvol_live_volume *v = c->volume;

	if (c->other != NULL) {
		merge_publish(c);
	} else if (v->parent != NULL) {
		v->parent->num_clones--;
	}
	live_account_set(v, 0, 0, NULL);
	live_volume_unlink(v);
	c->deleted = v;
}

static const struct live_change_type delete_type = {delete_check, delete_build, delete_publish, "delete"};

void lvol_live_volume_delete(struct lvol_live_volume *v, lvol_live_done done, void *arg)
{
	struct live_change *c = live_change_new(v->store, &delete_type, arg);

	if (c == NULL) {
		done(arg, -ENOMEM);
		return;
	}
	c->done = done;
	c->volume = v;
	live_change_start(c, 0);
}
