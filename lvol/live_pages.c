/* SPDX-License-Identifier: BSD-3-Clause */
/* Metadata pages that reservations keep.
 *
 * A first write needs a free page where its volume has no page yet for the places of these 512 clusters. A volume with
 * a reservation is promised as many pages as it may need for all of its clusters (lvol_reserve_pages()), not only for
 * as many as it has reserved: it may give clusters up and write others, and a page of places stays when it is empty.
 *
 * Only the owner takes pages, batch by batch. So nothing is held in advance: a batch is built, and then counted, before
 * any of it is written. While it is built it may take pages that are promised; they are back when it is committed, as
 * far as it wrote pages anew, and otherwise it is refused. The rule is that of clusters: free >= promised. A batch that
 * takes no more than it gives passes, whatever is free: another program may have broken the rule. So does one without
 * which the store would not open. */
#include <errno.h>

#include "lvol/live_internal.h"
#include "lvol/reserve.h"

uint64_t live_meta_promise(const struct live_meta *m)
{
	uint64_t tables = live_tables(m->num_clusters), present = 0;

	if (live_xattr_reserve_get(m) == 0) {
		return 0;
	}
	for (uint64_t i = 0; i < tables; i++) {
		present += m->tables[i] != 0;
	}
	return lvol_reserve_pages(tables, present, live_meta_chain_most(m), m->num_chain);
}

int live_pages_check(const struct live_batch *b)
{
	const struct lvol_live *s = b->store;
	int64_t costs = (int64_t)b->num_fresh - (int64_t)b->num_gone + b->promised;
	int64_t left = (int64_t)s->free_pages + (int64_t)b->num_gone - (int64_t)s->promised_pages - b->promised;

	if (b->change != NULL && b->change->type->of_open) {
		return 0;
	}
	return costs > 0 && left < 0 ? -ENOSPC : 0;
}

static uint64_t pages_there(const struct live_batch *b)
{
	return (uint64_t)b->store->free_pages + b->num_fresh;
}

uint64_t live_pages_left(const struct live_batch *b)
{
	uint64_t there = pages_there(b), promised = b->store->promised_pages;

	return promised < there ? there - promised : 0;
}

bool live_pages_lack(const struct live_batch *b, const struct live_meta *m, uint64_t own, uint64_t chain)
{
	/* The old chain is free when the new one is committed. */
	int64_t costs = (int64_t)(own + 1 + chain) - (int64_t)m->num_chain;

	return 1 + chain > pages_there(b) || (costs > 0 && (uint64_t)costs > live_pages_left(b));
}

void live_pages_publish(struct live_batch *b)
{
	struct lvol_live *s = b->store;

	s->promised_pages = (uint64_t)((int64_t)s->promised_pages + b->promised);
	b->promised = 0;
	b->num_fresh = 0;
}

uint64_t live_pages_missing(const struct lvol_live *s)
{
	/* What a batch under way has taken, it was promised, or nobody was. */
	uint64_t there = (uint64_t)s->free_pages + (s->batch != NULL ? s->batch->num_fresh : 0);

	return live_state(s) == -EIO || s->promised_pages <= there ? 0 : s->promised_pages - there;
}

uint32_t live_pages_open(const struct lvol_live *s)
{
	return s->promised_pages < s->free_pages ? s->free_pages - (uint32_t)s->promised_pages : 0;
}
