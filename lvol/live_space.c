/* SPDX-License-Identifier: BSD-3-Clause */
/* Free clusters and metadata pages, and what becomes free after a grace period. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lvol/live_internal.h"

/* ---- Clusters: any thread ---- */

enum { WORD_BITS = 64 };

/* As many as the mask on the device has room for: a store that grows needs no others. */
static size_t space_words(const struct lvol_live *s)
{
	uint64_t room =
		((uint64_t)s->geometry.cluster_mask.pages * LVOL_PAGE_BYTES - sizeof(struct lvol_mask_head)) * 8;

	return (size_t)((room < LVOL_LIVE_CLUSTER ? room : LVOL_LIVE_CLUSTER) / WORD_BITS) + 1;
}

int live_space_init(struct lvol_live *s)
{
	size_t words = space_words(s);

	s->cluster_words = malloc(words * sizeof(*s->cluster_words));
	s->pages = calloc(1, ((size_t)s->geometry.md.pages + 7) / 8);
	if (s->cluster_words == NULL || s->pages == NULL) {
		return -ENOMEM;
	}
	for (size_t i = 0; i < words; i++) {
		atomic_init(&s->cluster_words[i], UINT64_MAX);
	}
	for (uint32_t i = s->geometry.num_md_clusters; i < s->geometry.num_clusters; i++) {
		live_cluster_give(s, i);
	}
	s->free_pages = s->geometry.md.pages;
	return 0;
}

/* Makes a cluster free that is not counted yet. */
static void cluster_unmark(struct lvol_live *s, uint32_t cluster)
{
	uint32_t word = cluster / WORD_BITS;

	/* Release: the I/O of the one who gives it is behind that of the one who takes it (live_cluster_take()). */
	atomic_fetch_and_explicit(&s->cluster_words[word], ~(1ull << cluster % WORD_BITS), memory_order_release);
	if (word < atomic_load_explicit(&s->cluster_hint, memory_order_relaxed)) {
		atomic_store_explicit(&s->cluster_hint, word, memory_order_relaxed);
	}
}

void live_cluster_give(struct lvol_live *s, uint32_t cluster)
{
	cluster_unmark(s, cluster);
	/* After the bit: whoever has counted one down finds one. */
	atomic_fetch_add_explicit(&s->space, LIVE_SPACE_FREE, memory_order_release);
}

void live_cluster_return(struct lvol_live_volume *v, uint32_t cluster)
{
	cluster_unmark(v->store, cluster);
	live_account_return(v);
}

uint32_t live_cluster_take(struct lvol_live *s, struct lvol_live_volume *v)
{
	if (!live_account_take(s, v)) {
		return 0;
	}
	uint32_t words = (uint32_t)space_words(s), at = atomic_load_explicit(&s->cluster_hint, memory_order_relaxed);
	for (;; at = at + 1 < words ? at + 1 : 0) {
		uint64_t word = atomic_load_explicit(&s->cluster_words[at], memory_order_relaxed);
		while (word != UINT64_MAX) {
			uint64_t bit = ~word & (word + 1);
			word = atomic_fetch_or_explicit(&s->cluster_words[at], bit, memory_order_acquire);
			if ((word & bit) == 0) {
				atomic_store_explicit(&s->cluster_hint, at, memory_order_relaxed);
				return at * WORD_BITS + (uint32_t)__builtin_ctzll(bit);
			}
		}
	}
}

bool live_cluster_is_used(const struct lvol_live *s, uint32_t cluster)
{
	return atomic_load_explicit(&s->cluster_words[cluster / WORD_BITS], memory_order_relaxed) >>
		       cluster % WORD_BITS &
	       1;
}

bool live_cluster_mark(struct lvol_live *s, uint32_t cluster)
{
	uint64_t bit = 1ull << cluster % WORD_BITS;

	if ((atomic_fetch_or(&s->cluster_words[cluster / WORD_BITS], bit) & bit) != 0) {
		return false;
	}
	atomic_fetch_sub(&s->space, LIVE_SPACE_FREE);
	return true;
}

uint32_t lvol_live_free_clusters(const struct lvol_live *s)
{
	return live_space_free(atomic_load_explicit(&s->space, memory_order_relaxed));
}

/* It goes by what volumes have, and not by what is free: a first write under way has taken a cluster, which it gives
 * back if it fails, or if another first write to the same cluster was faster. What a store grows by is counted before
 * it is free: it tells when it is. */
bool live_space_tell(struct lvol_live *s)
{
	if (s->growing) {
		return false;
	}
	uint32_t all = s->geometry.num_clusters;
	uint64_t used = live_space_used(s);

	if (s->user.space_changed == NULL || (used == s->told_used && all == s->told_clusters)) {
		return false;
	}
	s->told_used = used;
	s->told_clusters = all;
	s->user.space_changed(s->user.ctx);
	return true;
}

/* ---- Metadata pages ---- */

bool live_page_take(struct lvol_live *s, uint32_t *page)
{
	uint32_t all = s->geometry.md.pages;

	for (uint32_t i = 0, at = s->page_hint; s->free_pages > 0 && i < all; i++, at = at + 1 < all ? at + 1 : 0) {
		if (!lvol_bit(s->pages, at)) {
			s->pages[at / 8] |= (uint8_t)(1 << at % 8);
			s->free_pages--;
			s->page_hint = at;
			s->used_below = at < s->used_below ? s->used_below : at + 1;
			*page = at;
			return true;
		}
	}
	return false;
}

void live_page_give(struct lvol_live *s, uint32_t page)
{
	s->pages[page / 8] &= (uint8_t) ~(1 << page % 8);
	s->free_pages++;
	if (page < s->page_hint) {
		s->page_hint = page;
	}
}

/* ---- What a grace period sets free ---- */

/* Makes room for `more` behind the first num entries. */
static int array_reserve(void **array, size_t *room, size_t num, size_t more, size_t entry)
{
	size_t want = *room;

	if (more <= *room - num) {
		return 0;
	}
	while (want - num < more) {
		want = want == 0 ? 8 : 2 * want;
	}
	void *p = realloc(*array, want * entry);
	if (p == NULL) {
		return -ENOMEM;
	}
	*array = p;
	*room = want;
	return 0;
}

int live_freed_reserve(struct live_freed *f, size_t clusters, size_t memory)
{
	void *c = f->clusters, *m = f->memory;
	int rc = array_reserve(&c, &f->room_clusters, f->num_clusters, clusters, sizeof(*f->clusters));

	f->clusters = c;
	rc = rc != 0 ? rc : array_reserve(&m, &f->room_memory, f->num_memory, memory, sizeof(*f->memory));
	f->memory = m;
	return rc;
}

void live_freed_cluster(struct live_freed *f, uint32_t cluster)
{
	f->clusters[f->num_clusters++] = cluster;
}

void live_freed_memory(struct live_freed *f, void *memory)
{
	f->memory[f->num_memory++] = memory;
}

uint32_t live_space_coming(const struct lvol_live *s)
{
	return atomic_load_explicit(&s->coming_clusters, memory_order_acquire);
}

void live_space_comes(struct lvol_live *s, size_t clusters)
{
	atomic_fetch_add_explicit(&s->coming_clusters, (uint32_t)clusters, memory_order_relaxed);
}

uint64_t live_space_used(const struct lvol_live *s)
{
	uint32_t all = s->geometry.num_clusters - s->geometry.num_md_clusters;
	uint64_t used = s->volume_clusters + s->zeroed_clusters;

	/* More than there are, if another program has filled the store. */
	return used < all ? used : all;
}

void live_space_wait(struct lvol_live *s, const struct lvol_live_volume *v, struct lvol_live_waiter *w)
{
	if (live_space_coming(s) == 0 || live_account_can_take(s, v)) {
		w->wake(w);
		return;
	}
	w->next = NULL;
	*s->space_waiters_end = w;
	s->space_waiters_end = &w->next;
}

/* Wakes up to n that wait, those who came first. They may wait again. */
static void space_wake(struct lvol_live *s, size_t n)
{
	struct lvol_live_waiter *first = s->space_waiters, **end = &s->space_waiters;

	for (; *end != NULL && n > 0; n--) {
		end = &(*end)->next;
	}
	if (end == &s->space_waiters) {
		return;
	}
	s->space_waiters = *end;
	if (s->space_waiters == NULL) {
		s->space_waiters_end = &s->space_waiters;
	}
	*end = NULL;
	while (first != NULL) {
		struct lvol_live_waiter *w = first;
		first = w->next;
		w->wake(w);
	}
}

static void grace_done(void *arg, int status)
{
	struct lvol_live *s = arg;

	(void)status;
	s->grace = LIVE_GRACE_OVER;
	live_pump(s);
}

static void unmap_done(void *arg, int status)
{
	struct lvol_live *s = arg;

	(void)status;
	s->grace = LIVE_GRACE_UNMAPPED;
	live_pump(s);
}

/* Neighbours in the list that are neighbours in the store. */
static size_t grace_run(const struct lvol_live *s)
{
	const struct live_freed *f = &s->in_grace;
	size_t n = 1;

	while (s->unmap_at + n < f->num_clusters &&
	       f->clusters[s->unmap_at + n] == f->clusters[s->unmap_at] + (uint32_t)n) {
		n++;
	}
	return n;
}

/* Tells the device of a run, and makes the run free when it has answered. */
static void grace_unmap(struct lvol_live *s)
{
	uint64_t bytes = (uint64_t)grace_run(s) * s->geometry.cluster_bytes;

	s->grace = LIVE_GRACE_UNMAPS;
	if (s->user.unmap == NULL || s->abandoned) {
		unmap_done(s, 0);
		return;
	}
	s->user.unmap(s->user.ctx, (uint64_t)s->in_grace.clusters[s->unmap_at] * s->geometry.cluster_bytes, bytes,
		      unmap_done, s);
}

static void grace_unmapped(struct lvol_live *s)
{
	size_t run = grace_run(s);

	for (size_t n = run; n > 0; n--) {
		live_cluster_give(s, s->in_grace.clusters[s->unmap_at++]);
	}
	/* Release: whoever does not see them coming any more finds them free. */
	atomic_fetch_sub_explicit(&s->coming_clusters, (uint32_t)run, memory_order_release);
	s->grace = LIVE_GRACE_OVER;
	/* Where some are promised, the first ones that wait may get none, and others do. */
	uint64_t space = atomic_load_explicit(&s->space, memory_order_relaxed);
	space_wake(s, live_space_promised(space) > 0 ? SIZE_MAX : run);
}

static void grace_end(struct lvol_live *s)
{
	s->in_grace.num_clusters = 0;
	s->grace = LIVE_GRACE_IDLE;
	/* Some that were woken before may not have taken any. */
	space_wake(s, SIZE_MAX);
}

static void grace_over(struct lvol_live *s)
{
	while (s->in_grace.num_memory > 0) {
		free(s->in_grace.memory[--s->in_grace.num_memory]);
	}
	if (s->unmap_at < s->in_grace.num_clusters) {
		grace_unmap(s);
	} else {
		grace_end(s);
	}
}

static bool grace_begin(struct lvol_live *s)
{
	struct live_freed swap = s->in_grace;

	if (s->batch != NULL || (s->freed.num_clusters == 0 && s->freed.num_memory == 0)) {
		return false;
	}
	s->in_grace = s->freed;
	s->freed = swap;
	s->unmap_at = 0;
	s->grace = LIVE_GRACE_WAITS;
	s->user.synchronize(s->user.ctx, grace_done, s);
	return true;
}

bool live_grace_step(struct lvol_live *s)
{
	switch (s->grace) {
	case LIVE_GRACE_IDLE:
		return grace_begin(s);
	case LIVE_GRACE_OVER:
		grace_over(s);
		return true;
	case LIVE_GRACE_UNMAPPED:
		grace_unmapped(s);
		return true;
	default:
		return false;
	}
}
