/* SPDX-License-Identifier: BSD-3-Clause */
/* The bitmap of open regions. A page is written with all changes that there are; those that come meanwhile are written
 * together when that has ended, so many regions may be opened at the cost of one write.
 *
 * After a write that has failed nobody knows what the copy has, but the other copy is right. So the page is written
 * again, with the changes there are then, to the same copy under the same number, until that succeeds. Regions of a
 * write that failed are closed in memory: those that were to be opened have not been written to, and those that were to
 * be closed have durable data and checksums. On the base they may be open; nobody writes to them before they have been
 * opened again. */
#include <stdio.h>
#include <string.h>

#include "bdev_modules/integrity/internal.h"
#include "trace/trace.h"
#include "util/log.h"

static void bitmap_write(struct integrity_bitmap *b);
static void bitmap_write_next(struct integrity_bitmap *b);

void integrity_fail(struct integrity_bdev *d, bool *part, const char *what, int rc)
{
	d->end_failed = d->ending;
	d->failing += !*part;
	*part = true;
	if (!atomic_exchange(&d->failed, true)) {
		char text[BDEV_ERROR_MAX + 128];
		snprintf(text, sizeof(text),
			 "%s on bdev %.80s failed: %.60s; it is tried again, and until it succeeds only regions that "
			 "are open can be written",
			 what, d->base_name, strerror(-rc));
		integrity_tell(d, text);
	}
}

void integrity_works(struct integrity_bdev *d, bool *part)
{
	bool was_last = *part && --d->failing == 0;

	*part = false;
	if (was_last) {
		atomic_store(&d->failed, false);
		log_limited(LOG_LEVEL_NOTICE, "bdev %s: what it keeps on bdev %s can be written again", d->name,
			    d->base_name);
	}
}

static void slot_change_ended(struct integrity_slot *s, uint16_t status)
{
	struct integrity_bdev *d = s->d;
	bool closes = s->state == SLOT_CLOSING;
	uint32_t region = s->region;

	if (closes && s->unknown) {
		s->unknown = false;
		d->regions_unknown--;
	}
	if (!closes && status != 0) {
		integrity_bitmap_set(&d->bitmap[region / INTEGRITY_BITMAP_REGIONS].page,
				     region % INTEGRITY_BITMAP_REGIONS, false);
		integrity_slot_fail(s, SLOT_CLEAN, status);
	} else {
		if (!closes) {
			TRACE(INTEGRITY_REGION_OPENED, d->bdev.trace_owner, 0, 0, s->region);
		}
		integrity_slot_set_state(s, closes ? SLOT_CLEAN : SLOT_OPEN);
	}
	if (closes) {
		TRACE(INTEGRITY_REGION_CLOSED, d->bdev.trace_owner, 0, 0, region, status);
		integrity_closer_slot_ended(s);
	}
}

static void slots_change_ended(struct integrity_slots *list, uint16_t status)
{
	struct integrity_slots slots = STAILQ_HEAD_INITIALIZER(slots);
	struct integrity_slot *s;

	STAILQ_CONCAT(&slots, list);
	while ((s = STAILQ_FIRST(&slots)) != NULL) {
		STAILQ_REMOVE_HEAD(&slots, link);
		slot_change_ended(s, status);
	}
}

static void bitmap_ended(struct integrity_op *o, int rc)
{
	struct integrity_bitmap *b = container_of(o, struct integrity_bitmap, op);

	b->writing = false;
	b->again = rc != 0;
	if (rc != 0) {
		integrity_fail(b->d, &b->fails, "writing the bitmap of open regions", rc);
	} else {
		integrity_works(b->d, &b->fails);
	}
	slots_change_ended(&b->now, rc != 0 ? integrity_op_status(o) : 0);
	bitmap_write_next(b);
	if (b->d->ending) { /* regions that were being opened are closed now, or all is done */
		integrity_closer_end(b->d);
	}
}

static void bitmap_turn(struct integrity_op *o, int rc)
{
	struct integrity_bitmap *b = container_of(o, struct integrity_bitmap, op);

	b->again = true;
	bitmap_write(b);
}

static void bitmap_flushed(struct integrity_op *o, int rc)
{
	struct integrity_bitmap *b = container_of(o, struct integrity_bitmap, op);

	if (rc == 0 && integrity_flush_is_void(b->d, b->failures_before)) {
		integrity_flush_turn(b->d, &b->op, bitmap_turn);
	} else {
		bitmap_ended(o, rc);
	}
}

static void bitmap_written(struct integrity_op *o, int rc)
{
	struct integrity_bitmap *b = container_of(o, struct integrity_bitmap, op);

	if (rc != 0) {
		integrity_flush_turn_end(b->d, o);
		bitmap_ended(o, rc);
	} else {
		integrity_flush(b->d, &b->op, bitmap_flushed);
	}
}

static void bitmap_write(struct integrity_bitmap *b)
{
	struct integrity_bdev *d = b->d;
	uint32_t index = (uint32_t)(b - d->bitmap);

	STAILQ_CONCAT(&b->now, &b->next);
	b->writing = true;
	b->failures_before = integrity_flush_failures(d);
	b->page.sequence += !b->again;
	integrity_bitmap_seal(&b->page, &d->layout, index);
	b->copy = b->page; /* that no change comes into, should there be no memory for the write at first */
	uint64_t unit = d->layout.bitmap_first + (b->page.sequence & 1) * d->layout.bitmap_pages + index;
	integrity_op_start(d, &b->op, BDEV_IO_WRITE, unit, 1, &b->copy, bitmap_written);
}

static void bitmap_write_next(struct integrity_bitmap *b)
{
	if (!b->writing && !STAILQ_EMPTY(&b->next)) {
		bitmap_write(b);
	}
}

void integrity_bitmap_again(struct integrity_bdev *d)
{
	for (uint32_t i = 0; i < d->layout.bitmap_pages; i++) {
		if (d->bitmap[i].again && !d->bitmap[i].writing) {
			bitmap_write(&d->bitmap[i]);
		}
	}
}

void integrity_bitmap_change(struct integrity_slot *s, bool open)
{
	uint32_t region = s->region;
	struct integrity_bitmap *b = &s->d->bitmap[region / INTEGRITY_BITMAP_REGIONS];

	integrity_bitmap_set(&b->page, region % INTEGRITY_BITMAP_REGIONS, open);
	STAILQ_INSERT_TAIL(&b->next, s, link);
	bitmap_write_next(b);
}
