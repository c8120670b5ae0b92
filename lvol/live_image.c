/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lvol/live_image.h"
#include "lvol/rescue.h"

enum { CHUNK_PAGES = 256, CHUNKS = 8, GAP_PAGES = 8 };

struct live_image_chunk {
	struct live_image *image;
	uint64_t first;
	uint32_t pages;
	uint8_t *bytes;
	bool busy;
};

struct live_image {
	struct lvol_live_user user;
	live_image_done done;
	void *arg;
	struct lvol_super *super; /* as it is on the device, and as it must have been */
	struct lvol_super *settled;
	struct lvol_geometry geometry;
	struct lvol_error error;
	uint64_t num_pages;
	uint8_t **pages; /* NULL: zeroes */
	uint8_t *wanted; /* bits */
	uint64_t at;     /* what is before it was read or is being read */
	bool first;      /* the masks or the journal are being read, not yet what they name */
	struct live_image_chunk chunks[CHUNKS];
	unsigned busy;
	int status;
	bool running;
};

void live_image_free(struct live_image *m)
{
	for (uint64_t i = 0; m->pages != NULL && i < m->num_pages; i++) {
		free(m->pages[i]);
	}
	for (size_t i = 0; i < CHUNKS; i++) {
		free(m->chunks[i].bytes);
	}
	free(m->pages);
	free(m->wanted);
	free(m->super);
	free(m->settled);
	free(m);
}

const struct lvol_super *live_image_super(const struct live_image *m)
{
	return m->settled;
}

const struct lvol_geometry *live_image_geometry(const struct live_image *m)
{
	return &m->geometry;
}

static int image_read(void *ctx, uint64_t offset, void *to, size_t bytes)
{
	const struct live_image *m = ctx;

	for (size_t at = 0; at < bytes;) {
		uint64_t page = (offset + at) / LVOL_PAGE_BYTES;
		size_t begin = (size_t)((offset + at) % LVOL_PAGE_BYTES), n = LVOL_PAGE_BYTES - begin;
		const uint8_t *from = page < m->num_pages ? m->pages[page] : NULL;
		n = n < bytes - at ? n : bytes - at;
		if (from != NULL) {
			memcpy((uint8_t *)to + at, from + begin, n);
		} else {
			memset((uint8_t *)to + at, 0, n);
		}
		at += n;
	}
	return 0;
}

struct lvol_device live_image_device(struct live_image *m)
{
	return (struct lvol_device){.size_bytes = m->user.size_bytes, .read = image_read, .ctx = m};
}

static void image_end(struct live_image *m)
{
	int status = m->status;

	if (status == 0) {
		m->done(m->arg, 0, m, &m->error);
		return;
	}
	if (status != -EILSEQ && m->error.text[0] == 0) {
		lvol_refuse(&m->error, "the metadata cannot be read: %s", strerror(-status));
	}
	m->done(m->arg, status, NULL, &m->error);
	live_image_free(m);
}

/* ---- What is wanted ---- */

static void image_want(struct live_image *m, uint64_t first, uint64_t pages)
{
	for (uint64_t i = first; i < first + pages; i++) {
		m->wanted[i / 8] |= (uint8_t)(1 << i % 8);
	}
}

static void image_want_area(struct live_image *m, struct lvol_area a)
{
	image_want(m, a.first, a.pages);
}

/* The bits of a mask that was read, in memory of their own; NULL: it is damaged, or there is no memory. */
static uint8_t *image_mask(struct live_image *m, enum lvol_mask_type type, struct lvol_area area, uint32_t bits)
{
	size_t bytes = lvol_mask_bytes(bits);
	uint8_t *mask = malloc(bytes);
	struct lvol_error e;

	if (mask == NULL) {
		m->status = -ENOMEM;
		return NULL;
	}
	image_read(m, (uint64_t)area.first * LVOL_PAGE_BYTES, mask, bytes);
	if (lvol_mask_decode(mask, type, bits, &e) == NULL) {
		free(mask);
		return NULL;
	}
	return mask;
}

static bool image_mask_is_good(struct live_image *m, enum lvol_mask_type type, struct lvol_area area, uint32_t bits)
{
	uint8_t *mask = image_mask(m, type, area, bits);

	free(mask);
	return mask != NULL;
}

/* The pages that the mask names; all if a mask is damaged: lvol_store_read() does not believe any, then. */
static void image_want_used(struct live_image *m)
{
	const struct lvol_geometry *g = &m->geometry;
	uint8_t *mask = image_mask(m, LVOL_MASK_PAGES, g->page_mask, g->md.pages);

	if (mask == NULL || !image_mask_is_good(m, LVOL_MASK_CLUSTERS, g->cluster_mask, g->num_clusters) ||
	    !image_mask_is_good(m, LVOL_MASK_IDS, g->id_mask, g->md.pages)) {
		image_want_area(m, g->md);
	} else {
		for (uint32_t i = 0; i < g->md.pages; i++) {
			if (lvol_bit(mask + sizeof(struct lvol_mask_head), i)) {
				image_want(m, (uint64_t)g->md.first + i, 1);
			}
		}
	}
	free(mask);
}

/* Of a store that was open: the pages that may be in use by its journal. */
static void image_want_below(struct live_image *m)
{
	const struct lvol_geometry *g = &m->geometry;
	const struct lvol_device d = live_image_device(m);
	struct lvol_journal_head *journal = NULL;

	m->status = lvol_journal_read(&d, g, &journal);
	image_want(m, g->md.first, lvol_journal_used(journal, g->md.pages));
	free(journal);
}

/* ---- Reading ---- */

static bool image_wants(const struct live_image *m, uint64_t page)
{
	return lvol_bit(m->wanted, page);
}

/* Whether a page may belong to a volume, to a mask, or to the journal. */
static bool page_counts(const struct live_image *m, uint64_t page, const uint8_t *bytes)
{
	const struct lvol_md_page *p = (const struct lvol_md_page *)bytes;

	return page < m->geometry.md.first || (p->id & ~(uint64_t)UINT32_MAX) == LVOL_ID_HIGH ||
	       page - m->geometry.md.first - m->geometry.journal_first <
		       LVOL_JOURNAL_SLOTS * (uint64_t)m->geometry.journal_slot_pages;
}

static int image_keep(struct live_image *m, uint64_t page, const uint8_t *bytes)
{
	if (!image_wants(m, page) || m->pages[page] != NULL || !page_counts(m, page, bytes)) {
		return 0;
	}
	m->pages[page] = malloc(LVOL_PAGE_BYTES);
	if (m->pages[page] == NULL) {
		return -ENOMEM;
	}
	memcpy(m->pages[page], bytes, LVOL_PAGE_BYTES);
	return 0;
}

/* The next run of wanted pages, with short gaps. 0: there is none. */
static uint32_t image_next(struct live_image *m, uint64_t *first)
{
	while (m->at < m->num_pages && !image_wants(m, m->at)) {
		m->at++;
	}
	*first = m->at;
	uint64_t end = m->at;
	for (uint64_t i = m->at; i < m->num_pages && i < *first + CHUNK_PAGES && i < end + GAP_PAGES; i++) {
		end = image_wants(m, i) ? i + 1 : end;
	}
	m->at = end;
	return (uint32_t)(end - *first);
}

static void image_go_on(struct live_image *m);

static void chunk_done(void *arg, int status)
{
	struct live_image_chunk *c = arg;
	struct live_image *m = c->image;

	c->busy = false;
	m->busy--;
	for (uint32_t i = 0; i < c->pages && status == 0; i++) {
		status = image_keep(m, c->first + i, c->bytes + (size_t)i * LVOL_PAGE_BYTES);
	}
	m->status = m->status != 0 ? m->status : status;
	image_go_on(m);
}

static struct live_image_chunk *chunk_free(struct live_image *m)
{
	for (size_t i = 0; i < CHUNKS; i++) {
		struct live_image_chunk *c = &m->chunks[i];
		if (!c->busy) {
			c->image = m;
			c->bytes = c->bytes != NULL ? c->bytes : live_pages_alloc(CHUNK_PAGES);
			m->status = c->bytes == NULL ? -ENOMEM : m->status;
			return c->bytes == NULL ? NULL : c;
		}
	}
	return NULL;
}

/* Starts one more read. */
static bool image_start(struct live_image *m)
{
	struct live_image_chunk *c = m->status != 0 || m->at >= m->num_pages ? NULL : chunk_free(m);

	if (c == NULL || (c->pages = image_next(m, &c->first)) == 0) {
		return false;
	}
	c->busy = true;
	m->busy++;
	m->user.read(m->user.ctx, c->first * LVOL_PAGE_BYTES, c->bytes, (size_t)c->pages * LVOL_PAGE_BYTES, chunk_done,
		     c);
	return true;
}

/* All that was wanted is there. Returns whether there is more. */
static bool image_more(struct live_image *m)
{
	if (!m->first || m->status != 0) {
		return false;
	}
	m->first = false;
	m->at = 0;
	memset(m->wanted, 0, (size_t)(m->num_pages / 8 + 1));
	if (m->geometry.clean) {
		image_want_used(m);
	} else {
		image_want_below(m);
	}
	return m->status == 0;
}

static void image_go_on(struct live_image *m)
{
	if (m->running) {
		return;
	}
	m->running = true;
	do {
		while (image_start(m)) {
		}
	} while (m->busy == 0 && image_more(m));
	m->running = false;
	if (m->busy == 0) {
		image_end(m);
	}
}

/* ---- The superblock ---- */

/* m->settled: the superblock that counts. */
static int image_begin(struct live_image *m)
{
	const struct lvol_geometry *g = &m->geometry;
	int rc = live_owner_check(&m->user, &g->owner, &m->error);

	if (rc != 0) {
		return rc;
	}
	m->num_pages = (uint64_t)g->md.first + g->md.pages;
	m->pages = calloc((size_t)m->num_pages, sizeof(*m->pages));
	m->wanted = calloc(1, (size_t)(m->num_pages / 8 + 1));
	if (m->pages == NULL || m->wanted == NULL || (m->pages[0] = malloc(LVOL_PAGE_BYTES)) == NULL) {
		return -ENOMEM;
	}
	memcpy(m->pages[0], m->super, LVOL_PAGE_BYTES);
	m->first = true;
	if (g->clean) {
		image_want_area(m, g->page_mask);
		image_want_area(m, g->cluster_mask);
		image_want_area(m, g->id_mask);
	}
	if (!g->clean) {
		image_want(m, (uint64_t)g->md.first + g->journal_first,
			   (uint64_t)LVOL_JOURNAL_SLOTS * g->journal_slot_pages);
	}
	return 0;
}

static void super_ended(struct live_image *m, int status)
{
	m->status = status != 0 ? status : image_begin(m);
	image_go_on(m);
}

static void super_done(void *arg, int status)
{
	struct live_image *m = arg;

	status = status != 0 ? status : lvol_super_decode(m->super, m->user.size_bytes, &m->geometry, &m->error);
	if (status == -EILSEQ && lvol_super_is_damaged(m->super)) {
		/* Whether the device has been given another use meanwhile, only people know. */
		lvol_rescue_refuse(&m->error);
	}
	lvol_super_settle(m->super, m->settled);
	super_ended(m, status);
}

void live_image_read(const struct lvol_live_user *user, live_image_done done, void *arg)
{
	struct live_image *m = calloc(1, sizeof(*m));
	struct lvol_error e = {"no memory"};

	if (m == NULL) {
		done(arg, -ENOMEM, NULL, &e);
		return;
	}
	m->user = *user;
	m->done = done;
	m->arg = arg;
	m->super = live_pages_alloc(1);
	m->settled = live_pages_alloc(1);
	if (m->super == NULL || m->settled == NULL) {
		m->status = -ENOMEM;
		image_end(m);
	} else if (user->size_bytes < LVOL_PAGE_BYTES) {
		m->status = lvol_refuse(&m->error, "there is no volume store: the device has less than a page");
		image_end(m);
	} else {
		user->read(user->ctx, 0, m->super, LVOL_PAGE_BYTES, super_done, m);
	}
}
