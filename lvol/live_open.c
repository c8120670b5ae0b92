/* SPDX-License-Identifier: BSD-3-Clause */
/* Opening a store: its metadata is read and checked, what the journal has is put in place, and the superblock is
 * marked. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lvol/live_image.h"
#include "lvol/reserve.h"

struct live_opening {
	struct lvol_live_user user;
	lvol_live_open_done done;
	void *arg;
	struct lvol_live *store;
	struct lvol_live_volume *next; /* the next one to be converted */
	struct lvol_error error;
	int status; /* why it is closed again */
};

static void opening_end(struct live_opening *o, int status)
{
	struct live_opening ended = *o;

	free(o);
	if (status != 0 && status != -EILSEQ && ended.error.text[0] == 0) {
		lvol_refuse(&ended.error, "the store cannot be opened: %s", strerror(-status));
	}
	if (status != 0 && ended.store != NULL) {
		lvol_live_abandon(ended.store);
		ended.store = NULL;
	}
	ended.done(ended.arg, status, ended.store, &ended.error);
}

/* ---- Volumes of what was read ---- */

static void pages_mark(struct lvol_live *s, const struct lvol_store *from)
{
	memcpy(s->pages, from->pages_owned, ((size_t)s->geometry.md.pages + 7) / 8);
	for (uint32_t i = 0; i < s->geometry.md.pages; i++) {
		s->free_pages -= lvol_bit(s->pages, i);
		s->used_below = lvol_bit(s->pages, i) ? i + 1 : s->used_below;
	}
}

/* The pages of the journal are in use until the store is closed. Returns whether none of them is a volume's. */
static bool pages_journal_mark(struct lvol_live *s)
{
	bool good = true;

	for (uint32_t i = 0; i < LVOL_JOURNAL_SLOTS * s->geometry.journal_slot_pages; i++) {
		uint32_t page = s->geometry.journal_first + i;
		good &= !lvol_bit(s->pages, page);
		s->pages[page / 8] |= (uint8_t)(1 << page % 8);
		s->free_pages--;
	}
	return good;
}

/* Clusters of its own. */
static void volume_map(struct lvol_live_volume *v, const struct lvol_volume *from)
{
	struct lvol_live_map *map = live_map(v);

	for (size_t i = 0; i < from->num_runs; i++) {
		const struct lvol_run *r = &from->runs[i];
		for (uint32_t k = 0; k < r->count; k++) {
			atomic_init(&map->entries[r->first + k], (r->cluster + k) | LVOL_LIVE_OWN);
		}
	}
}

static void volume_clusters_mark(struct lvol_live *s, const struct lvol_volume *from)
{
	for (size_t i = 0; i < from->num_runs; i++) {
		for (uint32_t k = 0; k < from->runs[i].count; k++) {
			live_cluster_mark(s, from->runs[i].cluster + k);
		}
	}
}

static int volume_make(struct lvol_live *s, const struct lvol_store *store, const struct lvol_volume *from,
		       struct lvol_live_volume **made)
{
	struct lvol_live_volume *v = live_volume_new(s, from->name, from->uuid, from->num_clusters);

	if (v == NULL) {
		return -ENOMEM;
	}
	live_volume_link(v);
	*made = v;
	v->id = from->id;
	v->external = from->external == NULL ? NULL : strdup(from->external);
	if (from->external != NULL && v->external == NULL) {
		return -ENOMEM;
	}
	int rc = live_meta_read(store, v->id, &v->internal->meta);
	const struct lvol_desc_flags *f = &v->internal->meta.flags;
	v->thin = (f->invalid & LVOL_INVALID_THIN) != 0;
	v->internal->fixed = (f->md_ro & ~LVOL_MD_RO_KNOWN) != 0 || (f->data_ro & ~LVOL_DATA_RO_KNOWN) != 0;
	v->read_only = f->data_ro != 0 || v->internal->fixed;
	volume_map(v, from);
	volume_clusters_mark(s, from);
	live_account_open(v, from->num_allocated, lvol_reserve_counts(f, v->num_clusters, from->reserved));
	s->promised_pages += rc == 0 ? live_meta_promise(&v->internal->meta) : 0;
	return rc;
}

/* What is made of the volumes that were read; both have the same order. */
struct making {
	struct lvol_live *store;
	const struct lvol_store *from;
	struct lvol_live_volume **made;
	bool *complete;
	size_t *line; /* a volume and its ancestors that are not complete */
};

static size_t volume_index(const struct making *m, const struct lvol_volume *v)
{
	return (size_t)(v - m->from->volumes);
}

/* Its snapshot, which is complete, and what it reads of that one: clusters, and what is external. */
static void volume_inherit(struct making *m, size_t i)
{
	const struct lvol_volume *parent = m->from->volumes[i].parent;
	struct lvol_live_volume *v = m->made[i];
	struct lvol_live_map *map = live_map(v);

	m->complete[i] = true;
	v->parent = parent == NULL ? NULL : m->made[volume_index(m, parent)];
	live_volume_inherit(v);
	if (v->parent == NULL) {
		return;
	}
	v->parent->num_clones++;
	for (uint64_t n = 0; n < v->num_clusters && n < v->parent->num_clusters; n++) {
		m->store->opening_steps++;
		if (atomic_load_explicit(&map->entries[n], memory_order_relaxed) == 0) {
			atomic_init(&map->entries[n], live_inherited(v->parent, n));
		}
	}
}

/* Each volume is complete before those that are made of it, so that none has to look further than its snapshot. */
static void volumes_inherit(struct making *m)
{
	for (size_t i = 0; i < m->from->num_volumes; i++) {
		const struct lvol_volume *v = &m->from->volumes[i];
		size_t n = 0;
		for (; v != NULL && !m->complete[volume_index(m, v)]; v = v->parent) {
			m->line[n++] = volume_index(m, v);
			m->store->opening_steps++;
		}
		while (n > 0) {
			volume_inherit(m, m->line[--n]);
		}
	}
}

static int volumes_make(struct lvol_live *s, const struct lvol_store *from)
{
	size_t n = from->num_volumes + 1;
	struct making m = {.store = s,
			   .from = from,
			   .made = calloc(n, sizeof(*m.made)),
			   .complete = calloc(n, sizeof(*m.complete)),
			   .line = calloc(n, sizeof(*m.line))};
	int rc = m.made == NULL || m.complete == NULL || m.line == NULL ? -ENOMEM : 0;

	s->opening_steps = from->steps;
	for (size_t i = 0; i < from->num_volumes && rc == 0; i++) {
		rc = volume_make(s, from, &from->volumes[i], &m.made[i]);
	}
	if (rc == 0) {
		volumes_inherit(&m);
	}
	free(m.made);
	free(m.complete);
	free(m.line);
	return rc;
}

static int sizes_check(const struct lvol_live_user *user, const struct lvol_store *store, struct lvol_error *e)
{
	if (store->geometry.num_clusters > LVOL_LIVE_CLUSTER) {
		return lvol_refuse(e, "the store has %" PRIu32 " clusters, more than %u cannot be served",
				   store->geometry.num_clusters, LVOL_LIVE_CLUSTER);
	}
	if (user->block_bytes > store->geometry.io_unit_bytes) {
		return lvol_refuse(e, "the store has blocks of %" PRIu32 " bytes, the device those of %" PRIu32,
				   store->geometry.io_unit_bytes, user->block_bytes);
	}
	for (size_t i = 0; i < store->num_volumes; i++) {
		const struct lvol_volume *v = &store->volumes[i];
		if (v->num_clusters > LVOL_LIVE_CLUSTERS_MAX) {
			return lvol_refuse(e, "volume %s has %" PRIu64 " clusters, more than %u cannot be served",
					   v->name, v->num_clusters, LVOL_LIVE_CLUSTERS_MAX);
		}
		if (v->parent != NULL && (v->parent->flags.data_ro & LVOL_DATA_RO_READ_ONLY) == 0) {
			return lvol_refuse(e, "volume %s: its snapshot %s may be written", v->name, v->parent->name);
		}
	}
	return 0;
}

static int store_make(struct live_opening *o, const struct live_image *m, struct lvol_store *store)
{
	int rc = lvol_store_check(store);

	rc = rc != 0 ? rc : lvol_store_certain(store, &o->error);
	rc = rc != 0 ? rc : sizes_check(&o->user, store, &o->error);
	if (rc != 0) {
		return rc;
	}
	struct lvol_live *s = live_alloc(&o->user, live_image_geometry(m), live_image_super(m));
	o->store = s;
	if (s == NULL) {
		return -ENOMEM;
	}
	memcpy(s->name, store->name, sizeof(s->name));
	memcpy(s->uuid, store->uuid, sizeof(s->uuid));
	s->recovered = !store->geometry.clean;
	rc = live_meta_read(store, s->geometry.super_id, &s->names);
	rc = rc != 0 ? rc : volumes_make(s, store);
	if (rc == 0) {
		pages_mark(s, store);
	}
	return rc;
}

/* ---- Marking it as open ---- */

static void opening_closed(void *arg, int status)
{
	struct live_opening *o = arg;

	(void)status;
	opening_end(o, o->status);
}

/* It could be opened but for an older form of metadata: it is left closed, as it was found. */
static void opening_close(struct live_opening *o, int status)
{
	struct lvol_live *s = o->store;

	o->status = status;
	o->store = NULL;
	lvol_live_close(s, opening_closed, o);
}

/* A store without room for the copy of its superblock is as good as it was. */
static void opening_copied(void *arg, int status)
{
	struct live_opening *o = arg;

	opening_end(o, live_state(o->store) == 0 ? 0 : status);
}

/* Volumes whose metadata has a form that an older program wrote get today's. */
static void opening_convert(void *arg, int status)
{
	struct live_opening *o = arg;
	struct lvol_live_volume *v = o->next;

	while (status == 0 && v != NULL && !v->internal->meta.rle) {
		v = v->internal->next;
	}
	if (status != 0 && live_state(o->store) == 0) {
		opening_close(o, status);
		return;
	}
	if (status != 0) {
		opening_end(o, status);
		return;
	}
	if (v == NULL) {
		live_super_copy(o->store, opening_copied, o);
		return;
	}
	o->next = v->internal->next;
	live_volume_convert(v, opening_convert, o);
}

static void opening_marked(void *arg, int status)
{
	struct live_opening *o = arg;

	o->next = o->store->first;
	if (status != 0) {
		opening_end(o, status);
	} else {
		opening_convert(o, 0);
	}
}

/* What the newest slot of the journal has goes to its place. Then the slots begin anew: their generations go on. */
static void opening_mark(struct live_opening *o, const struct lvol_journal_head *journal)
{
	struct lvol_live *s = o->store;
	struct live_script *c = live_script_new(&s->user);

	s->generation = journal == NULL ? 0 : journal->generation;
	for (uint32_t i = 0; journal != NULL && i < journal->num_pages; i++) {
		uint8_t *bytes = live_pages_alloc(1);
		if (bytes != NULL) {
			memcpy(bytes, (const uint8_t *)journal + (size_t)(i + 1) * LVOL_PAGE_BYTES, LVOL_PAGE_BYTES);
		}
		live_script_write(c, (uint64_t)s->geometry.md.first + journal->places[i], bytes, 1);
	}
	live_script_flush(c);
	live_journal_begin_script(c, s);
	live_super_script(c, s, true);
	live_script_run(c, opening_marked, o);
}

static int opening_place(struct live_opening *o)
{
	int rc = o->store->geometry.journal_slot_pages > 0 ? 0 : live_journal_place(o->store);

	if (rc != 0) {
		lvol_refuse(&o->error,
			    "there is no room for the journal: %" PRIu32 " of %" PRIu32
			    " metadata pages are free, and no %d of them in a row",
			    o->store->free_pages, o->store->geometry.md.pages,
			    LVOL_JOURNAL_SLOTS * LVOL_JOURNAL_SLOT_MIN);
		return rc;
	}
	return pages_journal_mark(o->store) ? 0 : lvol_refuse(&o->error, "a volume has pages of the journal");
}

/* Before anything is written. */
static int opening_ask(struct live_opening *o)
{
	const struct lvol_live_user *u = &o->user;

	return u->may_open == NULL ? 0 : u->may_open(u->ctx, o->store->name, o->store->uuid, &o->error);
}

static void opening_read(void *arg, int status, struct live_image *m, const struct lvol_error *e)
{
	struct live_opening *o = arg;
	struct lvol_store *store = NULL;

	o->error = *e;
	if (status != 0) {
		opening_end(o, status);
		return;
	}
	struct lvol_device d = live_image_device(m);
	status = lvol_store_read(&d, &store, &o->error);
	status = status != 0 ? status : store_make(o, m, store);
	status = status != 0 ? status : opening_place(o);
	status = status != 0 ? status : opening_ask(o);
	live_image_free(m);
	if (status != 0) {
		opening_end(o, status);
	} else {
		opening_mark(o, store->journal);
	}
	if (store != NULL) {
		lvol_store_free(store);
	}
}

void lvol_live_open(const struct lvol_live_user *user, lvol_live_open_done done, void *arg)
{
	struct live_opening *o = calloc(1, sizeof(*o));
	struct lvol_error e = {"no memory"};

	if (o == NULL) {
		done(arg, -ENOMEM, NULL, &e);
		return;
	}
	o->user = *user;
	o->done = done;
	o->arg = arg;
	live_image_read(user, opening_read, o);
}
