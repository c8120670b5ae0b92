/* SPDX-License-Identifier: BSD-3-Clause */
/* Changes of a volume that is there: its name, size, parent, attributes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lvol/live_internal.h"
#include "lvol/rescue.h"
#include "lvol/reserve.h"

/* A change of v. NULL: done was called. */
static struct live_change *edit_new(struct lvol_live_volume *v, const struct live_change_type *type,
				    lvol_live_done done, void *arg)
{
	struct live_change *c = live_change_new(v->store, type, arg);

	if (c == NULL) {
		done(arg, -ENOMEM);
		return NULL;
	}
	c->done = done;
	c->volume = v;
	return c;
}

/* A copy of the volume's metadata, to be changed. */
static int edit_begin(struct live_change *c, uint64_t num_clusters)
{
	return live_meta_copy(&c->metas[0], &c->volume->internal->meta, num_clusters);
}

static int edit_write(struct live_change *c, struct live_batch *b)
{
	return live_batch_meta(b, c->volume->id, &c->metas[0], &c->volume->internal->meta);
}

static void edit_publish(struct live_change *c)
{
	live_meta_take(c->volume, &c->metas[0]);
}

static int edit_check(const struct lvol_live_volume *v)
{
	return v->internal->fixed ? -EPERM : 0;
}

/* ---- Rename ---- */

static int rename_check(struct live_change *c)
{
	const struct lvol_live_volume *other = lvol_live_find(c->store, c->name);

	return other == c->volume ? 1 : other != NULL ? -EEXIST : edit_check(c->volume);
}

static int rename_build(struct live_change *c, struct live_batch *b)
{
	int rc = edit_begin(c, c->volume->num_clusters);

	rc = rc != 0 ? rc : live_xattr_name_set(&c->metas[0], c->name);
	return rc != 0 ? rc : edit_write(c, b);
}

static void rename_publish(struct live_change *c)
{
	memcpy(c->volume->name, c->name, sizeof(c->name));
	edit_publish(c);
}

static const struct live_change_type rename_type = {rename_check, rename_build, rename_publish, "rename"};

void lvol_live_volume_rename(struct lvol_live_volume *v, const char *name, lvol_live_done done, void *arg)
{
	struct live_change *c = edit_new(v, &rename_type, done, arg);

	if (c != NULL) {
		live_change_start(c, live_name_set(c, name));
	}
}

/* ---- The store's name and thresholds ---- */

/* Of the volume that names the store. */
static int names_build(struct live_change *c, struct live_batch *b, const char *name, const void *value, uint16_t bytes)
{
	const struct live_meta *old = &c->store->names;
	int rc = live_meta_copy(&c->metas[0], old, old->num_clusters);

	rc = rc != 0 ? rc : live_xattr_set(&c->metas[0], LVOL_DESC_XATTR, name, value, bytes);
	return rc != 0 ? rc : live_batch_meta(b, c->store->geometry.super_id, &c->metas[0], old);
}

static void names_publish(struct live_change *c)
{
	live_meta_clear(&c->store->names);
	c->store->names = c->metas[0];
	c->metas[0] = (struct live_meta){.xattrs = NULL};
}

static int store_rename_check(struct live_change *c)
{
	return strcmp(c->store->name, c->name) == 0 ? 1 : 0;
}

static int store_rename_build(struct live_change *c, struct live_batch *b)
{
	return names_build(c, b, "name", c->name, (uint16_t)(strlen(c->name) + 1));
}

static void store_rename_publish(struct live_change *c)
{
	memcpy(c->store->name, c->name, sizeof(c->name));
	names_publish(c);
}

static const struct live_change_type store_rename_type = {store_rename_check, store_rename_build, store_rename_publish,
							  "rename_store", .of_store = true};

void lvol_live_rename_store(struct lvol_live *s, const char *name, lvol_live_done done, void *arg)
{
	struct live_change *c = live_change_new(s, &store_rename_type, arg);

	if (c == NULL) {
		done(arg, -ENOMEM);
		return;
	}
	c->done = done;
	live_change_start(c, live_name_set(c, name));
}

static int space_check(struct live_change *c)
{
	(void)c;
	return 0;
}

static int space_build(struct live_change *c, struct live_batch *b)
{
	return names_build(c, b, LVOL_SPACE_XATTR, c->value, c->value_bytes);
}

static const struct live_change_type space_type = {space_check, space_build, names_publish, "set_thresholds",
						   .of_store = true};

static int space_copy(struct live_change *c, const struct lvol_space *space)
{
	struct lvol_error e;
	int rc = space == NULL ? 0 : lvol_space_check(space->percent, space->num, &e);

	if (rc != 0 || space == NULL) {
		return rc;
	}
	c->value = malloc(LVOL_SPACE_BYTES);
	if (c->value == NULL) {
		return -ENOMEM;
	}
	c->value_bytes = (uint16_t)lvol_space_encode(space, c->value);
	return 0;
}

void lvol_live_set_space(struct lvol_live *s, const struct lvol_space *space, lvol_live_done done, void *arg)
{
	struct live_change *c = live_change_new(s, &space_type, arg);

	if (c == NULL) {
		done(arg, -ENOMEM);
		return;
	}
	c->done = done;
	live_change_start(c, space_copy(c, space));
}

struct lvol_space lvol_live_space(const struct lvol_live *s, struct lvol_error *e)
{
	const struct live_xattr *x = live_xattr_find(&s->names, LVOL_DESC_XATTR, LVOL_SPACE_XATTR);
	struct lvol_error unused;
	struct lvol_space space;

	e = e != NULL ? e : &unused;
	e->text[0] = '\0';
	lvol_space_decode(x == NULL ? NULL : x->value, x == NULL ? 0 : x->value_length, &space, e);
	return space;
}

/* ---- The copy of the superblock ---- */

static int super_copy_build(struct live_change *c, struct live_batch *b)
{
	struct lvol_super_copy copy;

	return lvol_super_copy_make(c->store->super, &copy) ? names_build(c, b, LVOL_COPY_XATTR, &copy, sizeof(copy))
							    : -EINVAL;
}

static const struct live_change_type super_copy_type = {space_check,       super_copy_build, names_publish,
							"copy_superblock", .of_store = true, .quiet = true};

/* Another program, or an older varve, has not made it, or the store has grown. */
static bool super_copy_is_there(const struct lvol_live *s, const struct lvol_super_copy *copy)
{
	const struct live_xattr *x = live_xattr_find(&s->names, LVOL_DESC_XATTR, LVOL_COPY_XATTR);

	return x != NULL && x->value_length == sizeof(*copy) && memcmp(x->value, copy, sizeof(*copy)) == 0;
}

void live_super_copy(struct lvol_live *s, lvol_live_done done, void *arg)
{
	struct lvol_super_copy copy;
	struct live_change *c;

	if (!lvol_super_copy_make(s->super, &copy) || super_copy_is_there(s, &copy)) {
		done(arg, 0);
		return;
	}
	if ((c = live_change_new(s, &super_copy_type, arg)) == NULL) {
		done(arg, -ENOMEM);
		return;
	}
	c->done = done;
	live_change_start(c, 0);
}

/* ---- Read-only ---- */

static int read_only_check(struct live_change *c)
{
	c->paused = c->volume;
	return c->volume->read_only ? 1 : c->volume->internal->filling ? -EBUSY : edit_check(c->volume);
}

static int read_only_build(struct live_change *c, struct live_batch *b)
{
	int rc = edit_begin(c, c->volume->num_clusters);

	c->metas[0].flags.data_ro |= LVOL_DATA_RO_READ_ONLY;
	rc = rc != 0 ? rc : live_xattr_reserve_set(&c->metas[0], 0);
	return rc != 0 ? rc : edit_write(c, b);
}

static void read_only_publish(struct live_change *c)
{
	c->volume->read_only = true;
	live_account_set(c->volume, c->volume->num_own, 0, NULL);
	edit_publish(c);
}

static const struct live_change_type read_only_type = {read_only_check, read_only_build, read_only_publish,
						       "set_read_only"};

void lvol_live_volume_set_read_only(struct lvol_live_volume *v, lvol_live_done done, void *arg)
{
	struct live_change *c = edit_new(v, &read_only_type, done, arg);

	if (c != NULL) {
		live_change_start(c, 0);
	}
}

/* ---- Resize ---- */

static uint64_t resize_more(const struct live_change *c)
{
	const struct lvol_live_volume *v = c->volume;

	return v->thin || c->num_clusters <= v->num_clusters ? 0 : c->num_clusters - v->num_clusters;
}

static int resize_check(struct live_change *c)
{
	struct lvol_live_volume *v = c->volume;

	if (v->read_only || v->internal->fixed) {
		return -EPERM;
	}
	if (v->num_clusters == c->num_clusters) {
		return 1;
	}
	/* Another change may have come before, or it is being inflated. */
	if (v->internal->filling || resize_more(c) != c->num_taken) {
		return -EBUSY;
	}
	c->map = live_map_alloc(c->num_clusters);
	c->paused = v;
	return c->map == NULL ? -ENOMEM : 0;
}

/* The entry of cluster n afterwards. */
static uint32_t resize_entry(const struct live_change *c, uint64_t n)
{
	const struct lvol_live_volume *v = c->volume;

	if (n < v->num_clusters) {
		return lvol_live_entry(v, n);
	}
	return c->num_taken > 0 ? LVOL_LIVE_OWN | c->clusters[n - v->num_clusters] : live_inherited(v->parent, n);
}

/* The tables from the one on that has the end of the shorter of both. */
static int resize_tables(struct live_change *c, struct live_batch *b)
{
	const struct lvol_live_volume *v = c->volume;
	uint64_t old = live_tables(v->num_clusters), now = live_tables(c->num_clusters);
	uint64_t least = c->num_clusters < v->num_clusters ? c->num_clusters : v->num_clusters;
	uint32_t places[LVOL_EXTENT_PAGE_CLUSTERS];
	int rc = 0;

	for (uint64_t i = least / LVOL_EXTENT_PAGE_CLUSTERS; i < now && rc == 0; i++) {
		uint64_t first = i * LVOL_EXTENT_PAGE_CLUSTERS;
		uint32_t n = 0;
		for (; n < LVOL_EXTENT_PAGE_CLUSTERS && first + n < c->num_clusters; n++) {
			uint32_t entry = resize_entry(c, first + n);
			places[n] = (entry & LVOL_LIVE_OWN) != 0 ? lvol_live_cluster(entry) : 0;
		}
		rc = live_table_replace(b, v->id, first, places, n, &c->metas[0]);
	}
	for (uint64_t i = now; i < old && rc == 0; i++) {
		uint32_t table = v->internal->meta.tables[i];
		rc = table == 0 ? 0 : live_batch_gone(b, table);
	}
	return rc;
}

/* No volume reserves more than it can have. */
static uint64_t resize_reserved(const struct live_change *c)
{
	return c->volume->reserved < c->num_clusters ? c->volume->reserved : c->num_clusters;
}

static int resize_build(struct live_change *c, struct live_batch *b)
{
	const struct lvol_live_volume *v = c->volume;
	uint64_t less = c->num_clusters < v->num_clusters ? v->num_clusters - c->num_clusters : 0;
	int rc = edit_begin(c, c->num_clusters);

	rc = rc != 0 ? rc : live_freed_reserve(&b->freed, (size_t)less, 1);
	for (uint64_t n = c->num_clusters; n < v->num_clusters && rc == 0; n++) {
		uint32_t entry = lvol_live_entry(v, n);
		if ((entry & LVOL_LIVE_OWN) != 0) {
			live_freed_cluster(&b->freed, lvol_live_cluster(entry));
		}
	}
	rc = rc != 0 ? rc : resize_tables(c, b);
	rc = rc != 0 ? rc : live_xattr_reserve_set(&c->metas[0], resize_reserved(c));
	rc = rc != 0 ? rc : edit_write(c, b);
	if (rc == 0) {
		live_freed_memory(&b->freed, live_map(v));
	}
	return rc;
}

static void resize_publish(struct live_change *c)
{
	struct lvol_live_volume *v = c->volume;

	uint64_t own = 0;

	for (uint64_t n = 0; n < c->num_clusters; n++) {
		uint32_t entry = resize_entry(c, n);
		atomic_init(&c->map->entries[n], entry);
		own += (entry & LVOL_LIVE_OWN) != 0;
	}
	live_account_set(v, own, resize_reserved(c), NULL);
	/* Release: pairs with lvol_live_entry(). The old map is freed after a grace period. */
	atomic_store_explicit(&v->map, c->map, memory_order_release);
	c->map = NULL;
	live_change_taken(c);
	v->num_clusters = c->num_clusters;
	live_volume_inherit(v);
	edit_publish(c);
}

static const struct live_change_type resize_type = {resize_check, resize_build, resize_publish, "resize"};

void lvol_live_volume_resize(struct lvol_live_volume *v, uint64_t num_clusters, lvol_live_done done, void *arg)
{
	struct live_change *c = edit_new(v, &resize_type, done, arg);

	if (c == NULL) {
		return;
	}
	c->num_clusters = num_clusters;
	int rc = num_clusters > LVOL_LIVE_CLUSTERS_MAX ? -EFBIG : v->read_only ? -EPERM : live_state(v->store);
	if (rc == 0 && resize_more(c) > 0) {
		live_change_zero(c, resize_more(c));
	} else {
		live_change_start(c, rc);
	}
}

/* ---- Another parent ---- */

static bool is_ancestor(const struct lvol_live_volume *ancestor, const struct lvol_live_volume *v)
{
	while (v != NULL && v != ancestor) {
		v = v->parent;
	}
	return v != NULL;
}

static int set_parent_check(struct live_change *c)
{
	struct lvol_live_volume *v = c->volume, *parent = c->other;

	if (v->read_only || v->internal->fixed || (parent != NULL && !live_is_snapshot(parent))) {
		return -EPERM;
	}
	if (v->internal->filling) {
		return -EBUSY;
	}
	if (!v->thin || (parent != NULL && (parent->num_clusters != v->num_clusters || is_ancestor(v, parent)))) {
		return -EINVAL;
	}
	if (parent != NULL ? v->parent == parent : v->external != NULL && strcmp(v->external, c->text) == 0) {
		return -EEXIST;
	}
	c->paused = v;
	return 0;
}

static int set_parent_build(struct live_change *c, struct live_batch *b)
{
	int rc = edit_begin(c, c->volume->num_clusters);

	rc = rc != 0 ? rc : live_xattr_parent_set(&c->metas[0], c->other);
	rc = rc != 0 ? rc : live_xattr_external_set(&c->metas[0], c->text);
	return rc != 0 ? rc : edit_write(c, b);
}

/* The entries that are inherited: those that have a cluster now, or the others. */
static void inherit_entries(struct lvol_live_volume *v, bool with_cluster)
{
	for (uint64_t n = 0; n < v->num_clusters; n++) {
		uint32_t entry = live_inherited(v->parent, n);
		if ((lvol_live_entry(v, n) & LVOL_LIVE_OWN) == 0 && (entry != 0) == with_cluster) {
			atomic_store_explicit(&live_map(v)->entries[n], entry, memory_order_release);
		}
	}
}

/* Reads go on: whoever finds no cluster looks at external_clusters, at what is external, at external_clusters and at
 * the entry again, in this order. So what the new snapshots hide is in the entries before the new external snapshot is
 * there, no more of either one is read than it has, and an entry becomes 0 when the new one is there. */
static void set_parent_read(struct lvol_live_volume *v)
{
	struct lvol_live *s = v->store;
	uint64_t clusters = live_external_clusters(v);

	inherit_entries(v, true);
	if (clusters < v->external_clusters) {
		v->external_clusters = clusters;
	}
	if (v->user != NULL && s->user.external_changes != NULL) {
		const char *inherited = v->parent != NULL ? lvol_live_external(v->parent) : NULL;
		s->user.external_changes(s->user.ctx, v, v->external != NULL ? v->external : inherited);
	}
	live_volume_inherit(v);
	inherit_entries(v, false);
}

static void set_parent_publish(struct live_change *c)
{
	struct lvol_live_volume *v = c->volume;

	if (v->parent != NULL) {
		v->parent->num_clones--;
	}
	v->parent = c->other;
	if (v->parent != NULL) {
		v->parent->num_clones++;
	}
	free(v->external);
	v->external = c->text;
	c->text = NULL;
	set_parent_read(v);
	edit_publish(c);
}

static const struct live_change_type set_parent_type = {set_parent_check, set_parent_build, set_parent_publish,
							"set_parent"};

void lvol_live_volume_set_parent(struct lvol_live_volume *v, struct lvol_live_volume *snapshot, lvol_live_done done,
				 void *arg)
{
	struct live_change *c = edit_new(v, &set_parent_type, done, arg);

	if (c != NULL) {
		c->other = snapshot;
		live_change_start(c, 0);
	}
}

void lvol_live_volume_set_parent_external(struct lvol_live_volume *v, const char *external, lvol_live_done done,
					  void *arg)
{
	struct live_change *c = edit_new(v, &set_parent_type, done, arg);
	bool good = live_text_is_good(external, LVOL_EXTERNAL_MAX);

	if (c != NULL) {
		c->text = strdup(external);
		live_change_start(c, !good ? -EINVAL : c->text == NULL ? -ENOMEM : 0);
	}
}

/* ---- Attributes ---- */

static int xattr_check(struct live_change *c)
{
	if (c->value == NULL && live_xattr_find(&c->volume->internal->meta, LVOL_DESC_XATTR, c->text) == NULL) {
		return -ENOENT;
	}
	return edit_check(c->volume);
}

static int xattr_build(struct live_change *c, struct live_batch *b)
{
	int rc = edit_begin(c, c->volume->num_clusters);

	rc = rc != 0 ? rc : live_xattr_set(&c->metas[0], LVOL_DESC_XATTR, c->text, c->value, c->value_bytes);
	return rc != 0 ? rc : edit_write(c, b);
}

static const struct live_change_type xattr_type = {xattr_check, xattr_build, edit_publish, "set_xattr"};

static int xattr_copy(struct live_change *c, const char *name, const void *value, uint16_t bytes)
{
	if (name[0] == 0 || strlen(name) > UINT8_MAX || strcmp(name, "name") == 0 || strcmp(name, "uuid") == 0 ||
	    strcmp(name, LVOL_RESERVE_XATTR) == 0) {
		return -EINVAL;
	}
	c->text = strdup(name);
	c->value = value == NULL ? NULL : malloc((size_t)bytes + 1);
	c->value_bytes = bytes;
	if (c->text == NULL || (value != NULL && c->value == NULL)) {
		return -ENOMEM;
	}
	if (value != NULL) {
		memcpy(c->value, value, bytes);
	}
	return 0;
}

void lvol_live_volume_xattr_set(struct lvol_live_volume *v, const char *name, const void *value, uint16_t bytes,
				lvol_live_done done, void *arg)
{
	struct live_change *c = edit_new(v, &xattr_type, done, arg);

	if (c != NULL) {
		live_change_start(c, xattr_copy(c, name, value, bytes));
	}
}

const void *lvol_live_volume_xattr(const struct lvol_live_volume *v, const char *name, uint16_t *bytes)
{
	const struct live_xattr *x = live_xattr_find(&v->internal->meta, LVOL_DESC_XATTR, name);

	*bytes = x == NULL ? 0 : x->value_length;
	return x == NULL ? NULL : x->value;
}

/* ---- Metadata in the form that an older program wrote ---- */

static int convert_check(struct live_change *c)
{
	(void)c;
	return 0;
}

static int convert_build(struct live_change *c, struct live_batch *b)
{
	const struct lvol_live_volume *v = c->volume;
	uint32_t places[LVOL_EXTENT_PAGE_CLUSTERS];
	int rc = edit_begin(c, v->num_clusters);

	for (uint64_t i = 0; i < live_tables(v->num_clusters) && rc == 0; i++) {
		uint64_t first = i * LVOL_EXTENT_PAGE_CLUSTERS;
		uint32_t n = live_places(v, first, places);
		rc = live_table_replace(b, v->id, first, places, n, &c->metas[0]);
	}
	c->metas[0].rle = false;
	return rc != 0 ? rc : edit_write(c, b);
}

static const struct live_change_type convert_type = {
	.check = convert_check, .build = convert_build, .publish = edit_publish, .name = "convert", .of_open = true};

void live_volume_convert(struct lvol_live_volume *v, lvol_live_done done, void *arg)
{
	struct live_change *c = edit_new(v, &convert_type, done, arg);

	if (c != NULL) {
		live_change_start(c, 0);
	}
}
