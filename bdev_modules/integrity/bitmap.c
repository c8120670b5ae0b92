/* SPDX-License-Identifier: BSD-3-Clause */
/* The bitmap of open regions. A page is written with all changes that there are; those that come meanwhile are written
 * together when that has ended, so many regions may be opened at the cost of one write. */
#include <string.h>

#include "bdev_modules/integrity/internal.h"
#include "util/log.h"

static void bitmap_write_next(struct integrity_bitmap *b);

void integrity_fail(struct integrity_bdev *d, const char *what, int rc)
{
	if (!atomic_exchange(&d->failed, true)) {
		log_error(
			"bdev %s: %s on bdev %s failed: %s; nothing can be written until it is deleted and made again",
			d->name, what, d->base_name, strerror(-rc));
	}
}

static void slot_change_ended(struct integrity_slot *s, int rc)
{
	bool closes = s->state == SLOT_CLOSING;

	if (closes && rc == 0 && s->unknown) {
		s->unknown = false;
		s->d->regions_unknown--;
	}
	integrity_slot_set_state(s, closes == (rc == 0) ? SLOT_CLEAN : SLOT_OPEN);
	if (closes) {
		integrity_closer_slot_ended(s);
	}
}

static void slots_change_ended(struct integrity_slots *list, int rc)
{
	struct integrity_slots slots = STAILQ_HEAD_INITIALIZER(slots);
	struct integrity_slot *s;

	STAILQ_CONCAT(&slots, list);
	while ((s = STAILQ_FIRST(&slots)) != NULL) {
		STAILQ_REMOVE_HEAD(&slots, link);
		slot_change_ended(s, rc);
	}
}

static void bitmap_ended(struct integrity_op *o, int rc)
{
	struct integrity_bitmap *b = container_of(o, struct integrity_bitmap, op);

	b->writing = false;
	if (rc != 0) {
		/* Which of both the base has now, nobody knows. Open regions are open in both, so their writes may go
		 * on until they notice; none is opened or closed any more. */
		integrity_fail(b->d, "writing the bitmap of open regions", rc);
		slots_change_ended(&b->now, rc);
		slots_change_ended(&b->next, rc);
		return;
	}
	slots_change_ended(&b->now, 0);
	bitmap_write_next(b);
}

static void bitmap_written(struct integrity_op *o, int rc)
{
	struct integrity_bitmap *b = container_of(o, struct integrity_bitmap, op);

	if (rc != 0) {
		bitmap_ended(o, rc);
	} else {
		integrity_op_start(b->d, &b->op, BDEV_IO_FLUSH, 0, 0, NULL, bitmap_ended);
	}
}

static void bitmap_write_next(struct integrity_bitmap *b)
{
	struct integrity_bdev *d = b->d;
	uint32_t index = (uint32_t)(b - d->bitmap);

	if (b->writing || STAILQ_EMPTY(&b->next)) {
		return;
	}
	STAILQ_CONCAT(&b->now, &b->next);
	b->writing = true;
	b->page.sequence++;
	integrity_bitmap_seal(&b->page, &d->layout, index);
	b->copy = b->page; /* that no change comes into, should there be no memory for the write at first */
	uint64_t unit = d->layout.bitmap_first + (b->page.sequence & 1) * d->layout.bitmap_pages + index;
	integrity_op_start(d, &b->op, BDEV_IO_WRITE, unit, 1, &b->copy, bitmap_written);
}

void integrity_bitmap_change(struct integrity_slot *s, bool open)
{
	uint32_t region = s->region;
	struct integrity_bitmap *b = &s->d->bitmap[region / INTEGRITY_BITMAP_REGIONS];

	integrity_bitmap_set(&b->page, region % INTEGRITY_BITMAP_REGIONS, open);
	STAILQ_INSERT_TAIL(&b->next, s, link);
	bitmap_write_next(b);
}
