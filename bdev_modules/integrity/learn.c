/* SPDX-License-Identifier: BSD-3-Clause */
/* After a crash: reads the regions that were open, and notes the checksums of what is there, one region at a time.
 * Meanwhile the learner has all units of the region to itself. What the medium has lost stays unknown, and so does what
 * users have unmapped, or failed to write, since: the base may return something else each time. After another
 * error the region is read again later, and until it has been read it stays open on the base, also if the bdev goes:
 * so it is read in the next life. */
#include <rte_common.h>
#include <stdlib.h>
#include <string.h>

#include "bdev_modules/integrity/internal.h"
#include "util/iov.h"
#include "util/log.h"

#define PIECE_UNITS 256u

static uint32_t region_units(const struct integrity_bdev *d, uint32_t region)
{
	uint64_t first = (uint64_t)region << INTEGRITY_REGION_SHIFT;

	return (uint32_t)RTE_MIN(d->layout.data_units - first, (uint64_t)INTEGRITY_REGION_UNITS);
}

static bool slot_take_all(struct integrity_slot *s)
{
	rte_spinlock_lock(&s->lock);
	bool taken = s->state == SLOT_OPEN && s->users == 0;
	if (taken) {
		memset(s->busy, 0xff, sizeof(s->busy));
		s->users = s->writers = 1;
	}
	rte_spinlock_unlock(&s->lock);
	return taken;
}

static void slot_give_back_all(struct integrity_slot *s)
{
	struct integrity_ios served = STAILQ_HEAD_INITIALIZER(served);

	rte_spinlock_lock(&s->lock);
	memset(s->busy, 0, sizeof(s->busy));
	s->users = s->writers = 0;
	integrity_hand_over(s, &served);
	integrity_check_drained(s);
	rte_spinlock_unlock(&s->lock);
	integrity_wake(&served);
}

static void piece_note(struct integrity_bdev *d, struct integrity_slot *s, uint32_t units)
{
	const struct iovec iov = {d->learn_buffer, (size_t)units * INTEGRITY_UNIT_BYTES};
	struct iov_cursor c = {.iov = &iov};

	for (uint32_t i = 0; i < units; i++) {
		_Atomic uint32_t *sum = &s->sum[d->learn_at + i];
		uint32_t found = integrity_sum(&c);
		bool is_lost = s->lost[(d->learn_at + i) / 64] >> (d->learn_at + i) % 64 & 1;
		if (!is_lost && atomic_load_explicit(sum, memory_order_relaxed) == INTEGRITY_SUM_UNKNOWN) {
			atomic_store_explicit(sum, found, memory_order_relaxed);
		}
	}
}

static void piece_read(struct integrity_bdev *d);

static uint32_t piece_units(const struct integrity_bdev *d)
{
	return RTE_MIN(region_units(d, d->learning->region) - d->learn_at, PIECE_UNITS);
}

/* goes_on: with the next one, if it is not time to go. */
static void learn_ended(struct integrity_bdev *d, bool goes_on)
{
	struct integrity_slot *s = d->learning;

	d->learning = NULL;
	s->learned = d->learn_at == region_units(d, s->region);
	slot_give_back_all(s);
	if (goes_on || d->ending) {
		integrity_learn(d);
	}
}

static void piece_was_read(struct integrity_op *o, int rc)
{
	struct integrity_bdev *d = o->d;
	uint32_t region = d->learning->region, units = piece_units(d);

	if (rc != 0 && !integrity_op_is_unreadable(o)) {
		log_limited(LOG_LEVEL_WARNING,
			    "bdev %s: region %u, which was open at a crash, cannot be read from bdev %s (%s); it is "
			    "tried again",
			    d->name, region, d->base_name, strerror(-rc));
		learn_ended(d, false);
		return;
	}
	if (rc == 0) {
		piece_note(d, d->learning, units);
	}
	d->learn_at += units;
	if (d->learn_at < region_units(d, region) && !d->ending) {
		piece_read(d);
	} else {
		learn_ended(d, true);
	}
}

static void piece_read(struct integrity_bdev *d)
{
	uint64_t unit = ((uint64_t)d->learning->region << INTEGRITY_REGION_SHIFT) + d->learn_at;

	integrity_op_start(d, &d->learn_op, BDEV_IO_READ, d->layout.data_first + unit, piece_units(d), d->learn_buffer,
			   piece_was_read);
}

/* Begins where it ended the last time: one that cannot be read is in nobody's way. */
static struct integrity_slot *slot_to_learn(struct integrity_bdev *d)
{
	for (uint32_t i = 0; i < d->num_slots; i++) {
		struct integrity_slot *s = &d->slots[d->learn_next];
		d->learn_next = (d->learn_next + 1) % d->num_slots;
		if (s->unknown && !s->learned && slot_take_all(s)) {
			return s;
		}
	}
	return NULL;
}

void integrity_learn(struct integrity_bdev *d)
{
	if (d->learning != NULL) {
		return;
	}
	if (d->ending) {
		integrity_closer_end(d);
		return;
	}
	if (d->regions_unknown == 0 || !integrity_limits.learns) {
		return;
	}
	if (d->learn_buffer == NULL) {
		d->learn_buffer = aligned_alloc(INTEGRITY_UNIT_BYTES, (size_t)PIECE_UNITS * INTEGRITY_UNIT_BYTES);
	}
	d->learning = d->learn_buffer != NULL ? slot_to_learn(d) : NULL;
	if (d->learning != NULL) {
		d->learn_at = 0;
		piece_read(d);
	}
}
