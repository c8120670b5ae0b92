/* SPDX-License-Identifier: BSD-3-Clause */
/* First writes, and clusters that volumes give up. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lvol/live_internal.h"

/* ---- Any thread ---- */

static int claim_state(const struct lvol_live_volume *v, uint64_t n)
{
	int rc = live_state(v->store);

	if (rc != 0) {
		return rc;
	}
	return v->read_only ? -EPERM : n >= live_map(v)->num_clusters ? -EINVAL : 0;
}

static int claim_entry(uint32_t entry)
{
	return (entry & LVOL_LIVE_BUSY) != 0 ? -EAGAIN : (entry & LVOL_LIVE_OWN) != 0 ? -EALREADY : 0;
}

/* since: what live_account_look() said before the entry was loaded. */
static int claim_cluster(struct lvol_live_volume *v, uint64_t since, uint32_t *cluster)
{
	struct lvol_live *s = v->store;

	*cluster = live_cluster_take(s, v);
	if (*cluster == 0 && live_account_may_come(s, v, live_space_coming(s))) {
		return -EAGAIN;
	}
	*cluster = *cluster != 0 ? *cluster : live_cluster_take(s, v);
	if (*cluster != 0) {
		return 0;
	}
	/* Another claim may have taken the last one for this very entry, or be about to give one back. */
	return live_account_was_still(s, since) ? -ENOSPC : -EAGAIN;
}

static int claim_mark(struct lvol_live_volume *v, _Atomic uint32_t *at, uint32_t *entry, uint32_t cluster)
{
	int rc = 0;

	if (!atomic_compare_exchange_strong_explicit(at, entry, *entry | LVOL_LIVE_BUSY, memory_order_acq_rel,
						     memory_order_acquire)) {
		live_cluster_return(v, cluster);
		/* Somebody has claimed it, or published it. */
		rc = claim_entry(*entry);
		rc = rc != 0 ? rc : -EALREADY;
	}
	live_account_settle(v->store);
	return rc;
}

int lvol_live_fill_claim(struct lvol_live_volume *v, uint64_t n, struct lvol_live_fill *fill)
{
	int rc = claim_state(v, n);

	if (rc != 0) {
		return rc;
	}
	_Atomic uint32_t *at = &live_map(v)->entries[n];
	uint64_t since = live_account_look(v->store);
	uint32_t entry = atomic_load_explicit(at, memory_order_acquire), cluster;
	rc = claim_entry(entry);
	rc = rc != 0 ? rc : claim_cluster(v, since, &cluster);
	rc = rc != 0 ? rc : claim_mark(v, at, &entry, cluster);
	if (rc != 0) {
		return rc;
	}
	*fill = (struct lvol_live_fill){
		.volume = v,
		.n = n,
		.cluster = cluster,
		.source = lvol_live_cluster(entry),
		.external = lvol_live_cluster(entry) == 0 && n < v->external_clusters,
	};
	return 0;
}

/* ---- Waiting ---- */

static struct lvol_live_waiter **waiters(struct lvol_live *s, uint64_t n)
{
	return &s->waiters[n % LIVE_WAITER_LISTS];
}

void lvol_live_wait(struct lvol_live_volume *v, uint64_t n, struct lvol_live_waiter *w)
{
	struct lvol_live_waiter **list = waiters(v->store, n);

	if ((lvol_live_entry(v, n) & LVOL_LIVE_BUSY) == 0) {
		if (lvol_live_is_writable(lvol_live_entry(v, n)) || live_state(v->store) != 0) {
			w->wake(w);
		} else {
			live_space_wait(v->store, v, w);
		}
		return;
	}
	w->volume = v;
	w->n = n;
	w->next = *list;
	*list = w;
}

static void fills_wake(struct lvol_live_volume *v, uint64_t n)
{
	struct lvol_live_waiter **at = waiters(v->store, n), *w, *woken = NULL;

	while ((w = *at) != NULL) {
		if (w->volume == v && w->n == n) {
			*at = w->next;
			w->next = woken;
			woken = w;
		} else {
			at = &w->next;
		}
	}
	while ((w = woken) != NULL) {
		woken = w->next;
		w->wake(w);
	}
}

/* The owner alone changes an entry that is busy. */
static void entry_set(const struct lvol_live_volume *v, uint64_t n, uint32_t entry)
{
	/* Release: pairs with lvol_live_entry(). */
	atomic_store_explicit(&live_map(v)->entries[n], entry, memory_order_release);
}

static uint32_t entry_get(const struct lvol_live_volume *v, uint64_t n)
{
	return atomic_load_explicit(&live_map(v)->entries[n], memory_order_relaxed);
}

static void entry_free(struct lvol_live_volume *v, uint64_t n)
{
	entry_set(v, n, entry_get(v, n) & ~LVOL_LIVE_BUSY);
	fills_wake(v, n);
}

void lvol_live_fill_abort(struct lvol_live_fill *fill)
{
	struct lvol_live *s = fill->volume->store;

	live_cluster_return(fill->volume, fill->cluster);
	entry_free(fill->volume, fill->n);
	live_pump(s);
}

void lvol_live_fill_commit(struct lvol_live_fill *fill, lvol_live_done done, void *arg)
{
	struct lvol_live *s = fill->volume->store;

	fill->done = done;
	fill->arg = arg;
	fill->next = NULL;
	*s->fills_end = fill;
	s->fills_end = &fill->next;
	live_pump(s);
}

bool live_fills_wait(const struct lvol_live *s)
{
	return s->fills != NULL || !STAILQ_EMPTY(&s->releases);
}

/* ---- Building a batch ---- */

/* A page with the places of 512 clusters, or the root page of a volume whose table of extents changes. */
struct live_touch {
	struct lvol_live_volume *volume;
	bool root;
	bool fresh;     /* the page is new */
	uint64_t table; /* which 512 clusters */
	uint8_t *places;
	struct live_meta meta; /* of a root: the new chain */
};

static struct live_touch *touch_find(struct live_batch *b, const struct lvol_live_volume *v, bool root, uint64_t table)
{
	for (size_t i = b->num_touched; i-- > 0;) {
		struct live_touch *t = &b->touched[i];
		if (t->volume == v && t->root == root && (root || t->table == table)) {
			return t;
		}
	}
	return NULL;
}

static size_t touched_roots(const struct live_batch *b)
{
	size_t n = 0;

	for (size_t i = 0; i < b->num_touched; i++) {
		n += b->touched[i].root;
	}
	return n;
}

/* NULL: no memory. */
static struct live_touch *touch_add(struct live_batch *b, struct lvol_live_volume *v, bool root, uint64_t table)
{
	if (b->num_touched == b->room_touched) {
		size_t room = b->room_touched == 0 ? 16 : 2 * b->room_touched;
		struct live_touch *touched = realloc(b->touched, room * sizeof(*touched));
		if (touched == NULL) {
			return NULL;
		}
		b->touched = touched;
		b->room_touched = room;
	}
	struct live_touch *t = &b->touched[b->num_touched++];
	*t = (struct live_touch){.volume = v, .root = root, .table = table};
	return t;
}

/* The table is one that the volume had not: its root page changes. */
static int touch_fresh(struct live_batch *b, struct lvol_live_volume *v, uint64_t table, struct lvol_md_page **p)
{
	uint32_t *tables = v->internal->meta.tables, page;
	int rc = 0;

	if (touch_find(b, v, true, 0) == NULL) {
		if (touch_add(b, v, true, 0) == NULL) {
			return -ENOMEM;
		}
		b->promised -= (int64_t)live_meta_promise(&v->internal->meta); /* build_roots() adds what is left */
	}
	struct live_touch *t = touch_add(b, v, false, table);
	if (t == NULL) {
		return -ENOMEM;
	}
	*p = live_batch_new(b, &page, &rc);
	if (rc != 0) {
		b->num_touched--;
		return rc;
	}
	t->fresh = true;
	tables[table] = page;
	return 0;
}

/* The id that a page of places keeps when it is written again: that of the volume that it was written for is forgotten,
 * and any is right. */
static int touch_table(struct live_batch *b, struct lvol_live_volume *v, uint64_t table)
{
	uint32_t places[LVOL_EXTENT_PAGE_CLUSTERS], page = v->internal->meta.tables[table];
	struct lvol_md_page *p = NULL;
	int rc = 0;

	if (page == 0) {
		rc = touch_fresh(b, v, table, &p);
	} else {
		rc = touch_add(b, v, false, table) == NULL ? -ENOMEM : 0;
		p = rc != 0 ? NULL : live_batch_page(b, page, &rc);
	}
	if (rc != 0) {
		return rc;
	}
	uint64_t first = table * LVOL_EXTENT_PAGE_CLUSTERS;
	uint32_t n = live_places(v, first, places);
	live_table_fill(p, v->id, first, places, n);
	b->touched[b->num_touched - 1].places = p->descriptors + sizeof(struct lvol_desc_head) + sizeof(uint32_t);
	return 0;
}

/* Returns the page with the places of cluster n, or NULL: *rc says why; 0: the batch is full. */
static struct live_touch *touch(struct live_batch *b, struct lvol_live_volume *v, uint64_t n, int *rc)
{
	uint64_t table = n / LVOL_EXTENT_PAGE_CLUSTERS;
	struct live_touch *t = touch_find(b, v, false, table);

	*rc = 0;
	if (t != NULL) {
		return t;
	}
	/* Root pages are written last. */
	if (live_batch_room(b) < touched_roots(b) + 1) {
		return NULL;
	}
	*rc = touch_table(b, v, table);
	return *rc != 0 ? NULL : &b->touched[b->num_touched - 1];
}

static void touch_set(struct live_touch *t, uint64_t n, uint32_t cluster)
{
	memcpy(t->places + n % LVOL_EXTENT_PAGE_CLUSTERS * sizeof(cluster), &cluster, sizeof(cluster));
}

/* The chain of a volume when one more table is there. */
static uint64_t chain_with(struct live_meta *m, uint64_t table)
{
	m->tables[table] = 1; /* any page */
	uint64_t chain = live_meta_chain_now(m);
	m->tables[table] = 0;
	return chain;
}

static uint64_t touched_fresh(const struct live_batch *b, const struct lvol_live_volume *v)
{
	uint64_t n = 0;

	for (size_t i = 0; i < b->num_touched; i++) {
		n += b->touched[i].volume == v && b->touched[i].fresh;
	}
	return n;
}

/* Whether there is a metadata page for a fill, if it needs one that nobody has been promised. 0; -ENOSPC: there is
 * none; 1: there may be, in a batch of its own. A batch with a fill for which there is none could not be built, and
 * would be tried again in single parts, a commit for each: who repeats such a fill would slow down everybody. */
static int fill_ask(struct live_batch *b, const struct lvol_live_fill *f)
{
	struct live_meta *m = &f->volume->internal->meta;
	uint64_t table = f->n / LVOL_EXTENT_PAGE_CLUSTERS;

	if (m->tables[table] != 0 || live_xattr_reserve_get(m) != 0) {
		return 0;
	}
	uint64_t most = 1 + (touch_find(b, f->volume, true, 0) == NULL ? live_meta_chain_most(m) : 0);
	if (b->unpromised + most <= live_pages_left(b)) {
		b->unpromised += most;
		return 0;
	}
	if (live_pages_lack(b, m, touched_fresh(b, f->volume), chain_with(m, table))) {
		return -ENOSPC;
	}
	b->alone = b->num_touched == 0;
	return b->alone ? 0 : 1;
}

static struct lvol_live_fill *fills_take_first(struct lvol_live *s)
{
	struct lvol_live_fill *f = s->fills;

	s->fills = f->next;
	if (s->fills == NULL) {
		s->fills_end = &s->fills;
	}
	f->next = NULL;
	return f;
}

/* One fill. Returns 0, 1 (the batch is full), or an error. */
static int build_fill(struct live_batch *b)
{
	struct lvol_live *s = b->store;
	struct lvol_live_fill *f = s->fills;
	int rc = fill_ask(b, f);

	if (rc == -ENOSPC) {
		f = fills_take_first(s);
		f->next = b->refused;
		b->refused = f;
		return 0;
	}
	struct live_touch *t = rc == 0 ? touch(b, f->volume, f->n, &rc) : NULL;
	if (rc == 1 || (rc == 0 && t == NULL)) {
		return 1;
	}
	/* It is the batch's now, to be undone with it if it cannot be built. */
	fills_take_first(s);
	*b->fills_end = f;
	b->fills_end = &f->next;
	if (rc == 0) {
		touch_set(t, f->n, f->cluster);
	}
	return rc == 0 && b->alone ? 1 : rc;
}

static bool release_may(const struct lvol_live_volume *v, uint64_t n)
{
	return (entry_get(v, n) & (LVOL_LIVE_OWN | LVOL_LIVE_BUSY)) == LVOL_LIVE_OWN && v->thin &&
	       n >= v->external_clusters && live_inherited(v->parent, n) == 0;
}

static int release_cluster(struct live_batch *b, struct live_release *r, uint64_t n)
{
	struct lvol_live_volume *v = r->volume;
	uint32_t entry = entry_get(v, n);
	int rc;

	if (!release_may(v, n)) {
		bool data = lvol_live_cluster(entry) != 0 || n < v->external_clusters;
		bool other = (entry & LVOL_LIVE_OWN) != 0 && (entry & LVOL_LIVE_BUSY) != 0;
		r->kept_now += data && !other;
		return 0;
	}
	struct live_touch *t = touch(b, v, n, &rc);
	if (t == NULL) {
		return rc != 0 ? rc : 1;
	}
	rc = live_freed_reserve(&b->freed, 1, 0);
	if (rc == 0) {
		live_freed_cluster(&b->freed, lvol_live_cluster(entry));
		touch_set(t, n, 0);
		entry_set(v, n, entry | LVOL_LIVE_BUSY);
	}
	return rc;
}

/* As much of the first release as there is room for. Returns 0 (all of it), 1 (the batch is full), or an error. */
static int build_release(struct live_batch *b)
{
	struct live_release *r = STAILQ_FIRST(&b->store->releases);
	int rc = 0;

	STAILQ_REMOVE_HEAD(&b->store->releases, link);
	STAILQ_INSERT_TAIL(&b->releases, r, link);
	r->until = r->at;
	r->kept_now = 0;
	while (r->until < r->end && rc == 0) {
		rc = release_cluster(b, r, r->until);
		r->until += rc == 0;
	}
	return rc;
}

/* The root pages of volumes whose tables of extents have changed. */
static int build_roots(struct live_batch *b)
{
	int rc = 0;

	for (size_t i = 0; i < b->num_touched && rc == 0; i++) {
		struct live_touch *t = &b->touched[i];
		if (t->root) {
			const struct live_meta *m = &t->volume->internal->meta;
			t->meta = *m;
			t->meta.chain = NULL;
			t->meta.num_chain = 0;
			b->promised += (int64_t)live_meta_promise(m);
			rc = live_batch_meta(b, t->volume->id, &t->meta, m);
		}
	}
	return rc;
}

int live_fills_build(struct live_batch *b)
{
	struct lvol_live *s = b->store;
	bool single = s->single_parts > 0;
	int rc = 0;

	while (s->fills != NULL && rc == 0 && !(single && b->fills != NULL)) {
		rc = build_fill(b);
	}
	while (!STAILQ_EMPTY(&s->releases) && rc == 0 && !(single && b->num_touched > 0)) {
		rc = build_release(b);
	}
	return rc < 0 ? rc : build_roots(b);
}

bool live_fills_are_none(const struct live_batch *b)
{
	return b->fills == NULL && STAILQ_EMPTY(&b->releases);
}

/* ---- The end of a batch ---- */

/* The volumes have their new chains, or keep their old ones. */
static void touches_end(struct live_batch *b, bool committed)
{
	for (size_t i = 0; i < b->num_touched; i++) {
		struct live_touch *t = &b->touched[i];
		struct live_meta *m = &t->volume->internal->meta;
		if (t->root && committed) {
			free(m->chain);
			m->chain = t->meta.chain;
			m->num_chain = t->meta.num_chain;
			m->flags = t->meta.flags;
		} else if (t->root) {
			free(t->meta.chain);
		} else if (t->fresh && !committed) {
			m->tables[t->table] = 0;
		}
	}
	b->num_touched = 0;
}

/* Of a store that has failed nobody knows whether they were released: a write in place must not be acknowledged that
 * the next open would forget, so the clusters are not the volume's own any more. */
static void release_entries(const struct live_release *r, bool committed)
{
	bool failed = !committed && live_state(r->volume->store) == -EIO;
	struct lvol_live_volume *v = r->volume;
	uint64_t gone = 0;

	for (uint64_t n = r->at; n < r->until; n++) {
		uint32_t entry = entry_get(v, n);
		if ((entry & LVOL_LIVE_OWN) != 0 && (entry & LVOL_LIVE_BUSY) != 0) {
			entry_set(v, n, committed ? 0 : failed ? lvol_live_cluster(entry) : entry & ~LVOL_LIVE_BUSY);
			gone += committed || failed;
		}
	}
	if (gone > 0) {
		live_account_set(v, v->num_own - gone, v->reserved, NULL);
	}
}

void live_clusters_disown(struct lvol_live_volume *v, uint64_t first)
{
	uint64_t gone = 0;

	for (uint64_t n = first; n < live_map(v)->num_clusters; n++) {
		uint32_t entry = entry_get(v, n);
		if (lvol_live_is_writable(entry)) {
			entry_set(v, n, lvol_live_cluster(entry));
			gone++;
		}
	}
	live_account_set(v, v->num_own - gone, v->reserved, NULL);
}

static void release_wake(const struct live_release *r, uint64_t from, uint64_t to)
{
	bool any = false;

	for (size_t i = 0; i < LIVE_WAITER_LISTS; i++) {
		any |= r->volume->store->waiters[i] != NULL;
	}
	for (uint64_t n = from; any && n < to; n++) {
		fills_wake(r->volume, n);
	}
}

static void release_end(struct live_release *r, int status)
{
	struct live_release ended = *r;

	free(r);
	if (ended.kept != NULL) {
		*ended.kept = ended.kept_before;
	}
	ended.done(ended.arg, status);
}

/* A part of it is committed. */
static void release_go_on(struct live_batch *b, struct live_release *r)
{
	uint64_t from = r->at;

	r->kept_before += r->kept_now;
	r->at = r->until;
	release_wake(r, from, r->until);
	if (r->at < r->end) {
		STAILQ_INSERT_HEAD(&b->store->releases, r, link);
	} else {
		release_end(r, 0);
	}
}

static struct live_release *batch_release_take(struct live_batch *b)
{
	struct live_release *r = STAILQ_FIRST(&b->releases);

	if (r != NULL) {
		STAILQ_REMOVE_HEAD(&b->releases, link);
	}
	return r;
}

static struct lvol_live_fill *batch_fill_take(struct live_batch *b)
{
	struct lvol_live_fill *f = b->fills;

	if (f != NULL) {
		b->fills = f->next;
	}
	return f;
}

void live_fills_publish(struct live_batch *b)
{
	struct lvol_live_fill *f;
	struct live_release *r;

	touches_end(b, true);
	STAILQ_FOREACH (r, &b->releases, link) {
		release_entries(r, true);
	}
	for (f = b->fills; f != NULL; f = f->next) {
		entry_set(f->volume, f->n, LVOL_LIVE_OWN | f->cluster);
		live_account_filled(f->volume);
	}
	while ((f = batch_fill_take(b)) != NULL) {
		fills_wake(f->volume, f->n);
		f->done(f->arg, 0);
	}
	while ((r = batch_release_take(b)) != NULL) {
		release_go_on(b, r);
	}
}

/* Of a store that has failed the clusters may be on the device, so they are not free. */
void live_fills_refuse(struct lvol_live *s, struct lvol_live_fill *fills, int status)
{
	bool free_again = live_state(s) != -EIO;
	struct lvol_live_fill *f;

	while ((f = fills) != NULL) {
		fills = f->next;
		if (free_again) {
			live_cluster_return(f->volume, f->cluster);
		}
		entry_free(f->volume, f->n);
		f->done(f->arg, status);
	}
}

/* The batch is not committed. */
void live_fills_fail(struct live_batch *b, int status)
{
	struct lvol_live_fill *fills = b->fills;
	struct live_release *r;

	touches_end(b, false);
	STAILQ_FOREACH (r, &b->releases, link) {
		release_entries(r, false);
	}
	b->fills = NULL;
	live_fills_refuse(b->store, fills, status);
	while ((r = batch_release_take(b)) != NULL) {
		/* All of it, whatever parts it was to have. */
		release_wake(r, r->at, r->end);
		release_end(r, status);
	}
}

void live_fills_return(struct live_batch *b)
{
	struct lvol_live *s = b->store;
	struct live_release *r;

	touches_end(b, false);
	STAILQ_FOREACH (r, &b->releases, link) {
		release_entries(r, false);
		r->until = r->at;
	}
	STAILQ_CONCAT(&b->releases, &s->releases);
	STAILQ_CONCAT(&s->releases, &b->releases);
	if (b->fills != NULL) {
		*b->fills_end = s->fills;
		if (s->fills == NULL) {
			s->fills_end = b->fills_end;
		}
		s->fills = b->fills;
		b->fills = NULL;
	}
}

bool live_fills_drop(struct lvol_live *s)
{
	struct live_batch all = {.store = s, .fills = s->fills};
	int status = live_state(s) == -EIO ? s->abandoned ? -ENODEV : -EIO : -ENOMEM;
	struct live_release *r;

	if (!live_fills_wait(s)) {
		return false;
	}
	s->fills = NULL;
	s->fills_end = &s->fills;
	STAILQ_INIT(&all.releases);
	STAILQ_CONCAT(&all.releases, &s->releases);
	STAILQ_FOREACH (r, &all.releases, link) {
		r->until = r->at;
	}
	live_fills_fail(&all, status);
	return true;
}

/* ---- Releases ---- */

static int release_state(const struct lvol_live_volume *v, uint64_t first, uint64_t count)
{
	int rc = live_state(v->store);

	rc = rc != 0 ? rc : v->read_only ? -EPERM : 0;
	return rc != 0 ? rc : first > v->num_clusters || count > v->num_clusters - first ? -EINVAL : 0;
}

void lvol_live_release(struct lvol_live_volume *v, uint64_t first, uint64_t count, uint64_t *kept, lvol_live_done done,
		       void *arg)
{
	int rc = release_state(v, first, count);
	struct live_release *r = rc != 0 ? NULL : malloc(sizeof(*r));

	if (r == NULL) {
		done(arg, rc != 0 ? rc : -ENOMEM);
		return;
	}
	*r = (struct live_release){
		.volume = v, .at = first, .end = first + count, .kept = kept, .done = done, .arg = arg};
	STAILQ_INSERT_TAIL(&v->store->releases, r, link);
	live_pump(v->store);
}
