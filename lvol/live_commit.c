/* SPDX-License-Identifier: BSD-3-Clause */
/* Batches. The order that makes each of them atomic:
 *
 *   direct     pages that were free are written to their places, where nothing names them yet
 *   flush      they are durable, and so is the data of first writes, and what the batch before wrote in place
 *   journal    all other pages go into the slot that the batch before did not use
 *   commit     a flush: it has happened, the user is told
 *   in place   the pages of the journal go to their places
 *
 * A slot is valid with all of its pages or not at all. Before any byte of a slot is written, the pages of the other one
 * are durable in their places: so after a crash only the newest valid slot is put in place. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lvol/live_internal.h"

void *live_pages_alloc(size_t pages)
{
	void *p = aligned_alloc(LVOL_PAGE_BYTES, pages * LVOL_PAGE_BYTES);

	if (p != NULL) {
		memset(p, 0, pages * LVOL_PAGE_BYTES);
	}
	return p;
}

/* ---- Building ---- */

static uint8_t *slot_page(const struct lvol_live *s, uint32_t n)
{
	return (uint8_t *)s->slot + (size_t)(n + 1) * LVOL_PAGE_BYTES;
}

uint32_t live_batch_room(const struct live_batch *b)
{
	return b->store->geometry.journal_slot_pages - 1 - b->store->slot->num_pages;
}

struct lvol_md_page *live_batch_page(struct live_batch *b, uint32_t page, int *rc)
{
	struct lvol_journal_head *h = b->store->slot;

	if (live_batch_room(b) == 0) {
		*rc = -E2BIG;
		return NULL;
	}
	uint8_t *bytes = slot_page(b->store, h->num_pages);
	memset(bytes, 0, LVOL_PAGE_BYTES);
	h->places[h->num_pages++] = page;
	return (struct lvol_md_page *)bytes;
}

int live_batch_root(struct live_batch *b, uint32_t *page)
{
	if (!live_page_take(b->store, page)) {
		return -ENOSPC;
	}
	b->taken[b->num_taken++] = *page;
	b->num_fresh++;
	return 0;
}

static int batch_direct_reserve(struct live_batch *b)
{
	if (b->num_direct < b->room_direct) {
		return 0;
	}
	size_t room = b->room_direct == 0 ? 8 : 2 * b->room_direct;
	struct live_buffer *direct = realloc(b->direct, room * sizeof(*direct));
	if (direct == NULL) {
		return -ENOMEM;
	}
	b->direct = direct;
	b->room_direct = room;
	return 0;
}

struct lvol_md_page *live_batch_new(struct live_batch *b, uint32_t *page, int *rc)
{
	uint8_t *bytes = batch_direct_reserve(b) == 0 ? live_pages_alloc(1) : NULL;

	if (bytes == NULL) {
		*rc = -ENOMEM;
		return NULL;
	}
	if (!live_page_take(b->store, page)) {
		free(bytes);
		*rc = -ENOSPC;
		return NULL;
	}
	b->direct[b->num_direct++] = (struct live_buffer){.page = *page, .bytes = bytes};
	b->num_fresh++;
	return (struct lvol_md_page *)bytes;
}

int live_batch_gone(struct live_batch *b, uint32_t page)
{
	if (b->num_gone == b->room_gone) {
		size_t room = b->room_gone == 0 ? 8 : 2 * b->room_gone;
		uint32_t *gone = realloc(b->gone, room * sizeof(*gone));
		if (gone == NULL) {
			return -ENOMEM;
		}
		b->gone = gone;
		b->room_gone = room;
	}
	b->gone[b->num_gone++] = page;
	return 0;
}

static struct live_batch *batch_new(struct lvol_live *s)
{
	struct live_batch *b = calloc(1, sizeof(*b));

	if (b != NULL) {
		b->store = s;
		b->fills_end = &b->fills;
		STAILQ_INIT(&b->releases);
		s->slot->num_pages = 0;
	}
	return b;
}

static void batch_free(struct live_batch *b)
{
	for (size_t i = 0; i < b->num_direct; i++) {
		free(b->direct[i].bytes);
	}
	free(b->direct);
	free(b->gone);
	free(b->freed.clusters);
	free(b->freed.memory);
	free(b->touched);
	free(b);
}

/* Its pages were not used. */
static void batch_undo(struct live_batch *b)
{
	for (size_t i = 0; i < b->num_direct; i++) {
		live_page_give(b->store, b->direct[i].page);
	}
	for (size_t i = 0; i < b->num_taken; i++) {
		live_page_give(b->store, b->taken[i]);
	}
}

static void page_seal(uint8_t *bytes)
{
	struct lvol_md_page *p = (struct lvol_md_page *)bytes;

	/* A root page of zeroes is that of a volume that was deleted. */
	p->crc = p->id == 0 ? 0 : lvol_crc(p);
}

static void batch_seal(struct live_batch *b)
{
	struct lvol_live *s = b->store;
	struct lvol_journal_head *h = s->slot;

	for (size_t i = 0; i < b->num_direct; i++) {
		page_seal(b->direct[i].bytes);
	}
	for (uint32_t i = 0; i < h->num_pages; i++) {
		page_seal(slot_page(s, i));
	}
	memcpy(h->magic, LVOL_JOURNAL_MAGIC, sizeof(h->magic));
	h->generation = ++s->generation;
	h->used_below = s->used_below;
	h->open = live_super_open(s);
	memset(h->places + h->num_pages, 0, (LVOL_JOURNAL_SLOT_MAX - 1 - h->num_pages) * sizeof(h->places[0]));
	h->pages_crc = lvol_journal_crc(h);
	h->crc = lvol_crc(h);
}

static void batch_tell(const struct live_batch *b, enum lvol_live_event_kind kind, int status)
{
	const struct lvol_journal_head *h = b->store->slot;

	live_happened(b->store, &(struct lvol_live_event){.kind = kind,
							  .status = status,
							  .generation = h->generation,
							  .pages = h->num_pages,
							  .change = b->change != NULL ? b->change->type->name : "",
							  .volume = ""});
}

/* ---- Beginning ---- */

/* The batch could not be built: parts of it may be built alone. */
static void batch_refuse(struct live_batch *b, int rc)
{
	struct lvol_live *s = b->store;

	batch_undo(b);
	s->batch = NULL;
	if (b->change != NULL) {
		live_change_end(b->change, rc);
	} else if (s->single_parts > 0 || b->alone) {
		s->single_parts -= s->single_parts > 0;
		live_fills_fail(b, rc);
	} else {
		s->single_parts = LVOL_JOURNAL_SLOT_MAX;
		live_fills_return(b);
	}
	batch_free(b);
}

/* It has been built, or not (rc): it is written, refused, or has nothing. */
static void batch_built(struct live_batch *b, int rc)
{
	struct lvol_live *s = b->store;

	if (rc != 0) {
		batch_refuse(b, rc);
		return;
	}
	if (b->change == NULL && live_fills_are_none(b)) {
		s->batch = NULL;
		batch_free(b);
		return;
	}
	if (b->change != NULL) {
		b->change->state = LIVE_CHANGE_COMMITS;
	} else if (s->single_parts > 0) {
		s->single_parts--;
	}
	batch_seal(b);
	batch_tell(b, LVOL_LIVE_JOURNAL, 0);
	b->phase = LIVE_DIRECT;
}

static bool batch_begin(struct lvol_live *s)
{
	struct live_change *c = live_change_ready(s);
	bool fills = live_fills_wait(s);

	if ((c == NULL && !fills) || live_state(s) == -EIO) {
		return false;
	}
	if (c != NULL && fills && s->change_last) {
		c = NULL;
	}
	struct live_batch *b = batch_new(s);
	if (b == NULL) {
		return c != NULL ? (live_change_end(c, -ENOMEM), true) : live_fills_drop(s);
	}
	s->batch = b;
	s->change_last = c != NULL;
	b->change = c;
	int rc = c != NULL ? c->type->build(c, b) : live_fills_build(b);
	rc = rc != 0 ? rc : live_pages_check(b);
	rc = rc != 0 ? rc : live_freed_reserve(&s->freed, b->freed.num_clusters, b->freed.num_memory);
	struct lvol_live_fill *refused = b->refused;
	batch_built(b, rc);
	live_fills_refuse(s, refused, -ENOSPC);
	return true;
}

/* ---- Device operations ---- */

static void batch_op_done(void *arg, int status)
{
	struct live_batch *b = arg;

	b->pending--;
	if (status != 0 && b->status == 0) {
		b->status = status;
	}
	live_pump(b->store);
}

static void batch_write(struct live_batch *b, uint32_t page, const void *from, size_t pages)
{
	struct lvol_live *s = b->store;

	b->pending++;
	s->md_bytes += pages * LVOL_PAGE_BYTES;
	s->user.write(s->user.ctx, live_md_offset(s, page), from, pages * LVOL_PAGE_BYTES, batch_op_done, b);
}

static void batch_flush(struct live_batch *b)
{
	b->pending++;
	b->store->user.flush(b->store->user.ctx, batch_op_done, b);
}

static void batch_direct(struct live_batch *b)
{
	for (size_t i = 0; i < b->num_direct; i++) {
		batch_write(b, b->direct[i].page, b->direct[i].bytes, 1);
	}
}

static void batch_journal(struct live_batch *b)
{
	struct lvol_live *s = b->store;
	uint32_t slot = (uint32_t)(s->slot->generation % LVOL_JOURNAL_SLOTS), pages = s->slot->num_pages + 1;

	s->journal_bytes += (uint64_t)pages * LVOL_PAGE_BYTES;
	batch_write(b, s->geometry.journal_first + slot * s->geometry.journal_slot_pages, s->slot, pages);
}

static void batch_in_place(struct live_batch *b)
{
	struct lvol_live *s = b->store;

	for (uint32_t i = 0; i < s->slot->num_pages; i++) {
		batch_write(b, s->slot->places[i], slot_page(s, i), 1);
	}
}

/* ---- Ending ---- */

/* It is durable. */
static void batch_publish(struct live_batch *b)
{
	struct lvol_live *s = b->store;

	s->commits++;
	batch_tell(b, LVOL_LIVE_COMMITTED, 0);
	live_space_comes(s, b->freed.num_clusters);
	for (size_t i = 0; i < b->num_gone; i++) {
		live_page_give(s, b->gone[i]);
	}
	live_pages_publish(b);
	if (b->change != NULL) {
		struct live_change *c = b->change;
		b->change = NULL;
		c->type->publish(c);
		live_change_end(c, 0);
	} else {
		live_fills_publish(b);
	}
	/* batch_begin() has made room, and no grace period begins during a batch. */
	for (size_t i = 0; i < b->freed.num_clusters; i++) {
		live_freed_cluster(&s->freed, b->freed.clusters[i]);
	}
	for (size_t i = 0; i < b->freed.num_memory; i++) {
		live_freed_memory(&s->freed, b->freed.memory[i]);
	}
}

/* A flush that failed may have lost any write, and from the journal on nobody knows what is on the device. */
static void batch_fail(struct live_batch *b)
{
	struct lvol_live *s = b->store;
	int status = b->status;

	s->batch = NULL;
	if (b->phase > LIVE_FLUSH) {
		live_fail(s);
		status = s->abandoned ? -ENODEV : -EIO;
	} else {
		/* The slot that is newest stays as it is. */
		s->generation--;
		batch_undo(b);
	}
	if (b->phase != LIVE_IN_PLACE_DONE) {
		batch_tell(b, LVOL_LIVE_COMMITTED, status);
	}
	if (b->phase == LIVE_IN_PLACE_DONE) {
		/* It was committed: the journal has it, for the next open. */
	} else if (b->change != NULL) {
		if (live_state(s) == -EIO && b->freed.num_clusters > 0) {
			/* Of a volume that shrinks, or goes: then its new size is 0. */
			live_clusters_disown(b->change->volume, b->change->num_clusters);
		}
		live_change_end(b->change, status);
	} else {
		live_fills_fail(b, status);
	}
	batch_free(b);
}

/* The phase is over, and the next one begins. */
static void batch_step(struct live_batch *b)
{
	switch (b->phase) {
	case LIVE_DIRECT:
		batch_direct(b);
		b->phase = LIVE_FLUSH;
		break;
	case LIVE_FLUSH:
		batch_flush(b);
		b->phase = LIVE_JOURNAL;
		break;
	case LIVE_JOURNAL:
		batch_journal(b);
		b->phase = LIVE_COMMIT;
		break;
	case LIVE_COMMIT:
		batch_flush(b);
		b->phase = LIVE_IN_PLACE;
		break;
	case LIVE_IN_PLACE:
		batch_publish(b);
		batch_in_place(b);
		b->phase = LIVE_IN_PLACE_DONE;
		break;
	case LIVE_IN_PLACE_DONE:
		b->store->batch = NULL;
		batch_free(b);
		break;
	}
}

bool live_commit_step(struct lvol_live *s)
{
	struct live_batch *b = s->batch;

	if (b == NULL) {
		return batch_begin(s);
	}
	if (b->pending > 0) {
		return false;
	}
	if (b->status != 0 || (s->abandoned && b->phase != LIVE_IN_PLACE_DONE)) {
		b->status = b->status != 0 ? b->status : -ENODEV;
		batch_fail(b);
	} else {
		batch_step(b);
	}
	return true;
}
