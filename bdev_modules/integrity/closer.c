/* SPDX-License-Identifier: BSD-3-Clause */
/* Closes regions that nobody writes to, a batch at a time: writes their checksum pages, makes these and their data
 * durable by one flush, and then clears their bits. After a failure on the way they are open, and are closed another
 * time. */
#include <string.h>

#include "bdev_modules/integrity/internal.h"
#include "env_dpdk/env.h"

#define HURRY_TICK_US 10000u
#define UNKNOWN_BATCH 64u

struct integrity_limits integrity_limits = {.idle_us = 5000000, .tick_us = 1000000, .learns = true, .slots = 16384};

static void batch_start(struct integrity_bdev *d);

/* --- The batch --- */

static void batch_ended(struct integrity_bdev *d)
{
	d->closing = false;
	integrity_serve_starved(d);
	if (d->ending || (d->hurried && !atomic_load(&d->failed))) { /* otherwise at the next tick */
		batch_start(d);
	}
}

void integrity_closer_slot_ended(struct integrity_slot *s)
{
	if (--s->d->batch_left == 0) {
		batch_ended(s->d);
	}
}

static void batch_give_up(struct integrity_bdev *d, const char *what, int rc)
{
	struct integrity_slot *s;

	integrity_fail(d, what, rc);
	while ((s = STAILQ_FIRST(&d->batch)) != NULL) {
		STAILQ_REMOVE_HEAD(&d->batch, link);
		integrity_slot_set_state(s, SLOT_OPEN);
	}
	batch_ended(d);
}

static void batch_is_durable(struct integrity_op *o, int rc)
{
	struct integrity_bdev *d = o->d;
	struct integrity_slots slots = STAILQ_HEAD_INITIALIZER(slots);
	struct integrity_slot *s;

	if (rc != 0) {
		batch_give_up(d, "a flush of data and checksums", rc);
		return;
	}
	STAILQ_CONCAT(&slots, &d->batch);
	STAILQ_FOREACH (s, &slots, link) {
		d->batch_left++;
	}
	while ((s = STAILQ_FIRST(&slots)) != NULL) {
		STAILQ_REMOVE_HEAD(&slots, link);
		integrity_bitmap_change(s, false);
	}
}

static void sums_written(struct integrity_op *o, int rc)
{
	struct integrity_bdev *d = o->d;

	d->batch_error = d->batch_error != 0 ? d->batch_error : rc;
	if (--d->batch_left > 0) {
		return;
	}
	if (d->batch_error != 0) {
		batch_give_up(d, "writing checksums", d->batch_error);
	} else {
		integrity_op_start(d, &d->flush, BDEV_IO_FLUSH, 0, 0, NULL, batch_is_durable);
	}
}

static void sums_write(struct integrity_slot *s, struct integrity_sums_page *p)
{
	struct integrity_bdev *d = s->d;

	memset(p, 0, sizeof(*p));
	for (uint32_t i = 0; i < INTEGRITY_REGION_UNITS; i++) {
		p->sum[i] = atomic_load_explicit(&s->sum[i], memory_order_relaxed);
	}
	integrity_sums_seal(p, &d->layout, s->region);
	integrity_op_start(d, &s->op, BDEV_IO_WRITE, d->layout.sums_first + s->region, 1, p, sums_written);
}

static void sums_write_all(struct integrity_bdev *d)
{
	struct integrity_slot *s;
	uint32_t n = 0;

	d->batch_error = 0;
	STAILQ_FOREACH (s, &d->batch, link) {
		d->batch_left++;
	}
	STAILQ_FOREACH (s, &d->batch, link) {
		sums_write(s, &d->batch_pages[n++]);
	}
}

/* --- Which regions --- */

/* Nobody writes to it, and nobody has for so long. Writes that come wait until it has been closed. */
static bool slot_begin_closing(struct integrity_slot *s, uint64_t now, uint64_t idle_ticks)
{
	bool to_learn = s->unknown && !s->learned && integrity_limits.learns && idle_ticks > 0;

	if (s->state != SLOT_OPEN || to_learn) {
		return false;
	}
	rte_spinlock_lock(&s->lock);
	bool closes = s->users == 0 && (s->written_ticks >= now ? 0 : now - s->written_ticks) >= idle_ticks;
	if (closes) {
		integrity_slot_mark(s, SLOT_CLOSING);
	}
	rte_spinlock_unlock(&s->lock);
	return closes;
}

static uint32_t batch_gather(struct integrity_bdev *d, uint64_t idle_us)
{
	uint64_t now = thread_now(), idle_ticks = env_us_to_ticks(idle_us);
	uint32_t n = 0;

	for (uint32_t i = 0; i < d->num_slots && n < INTEGRITY_CLOSE_BATCH; i++) {
		if (slot_begin_closing(&d->slots[i], now, idle_ticks)) {
			STAILQ_INSERT_TAIL(&d->batch, &d->slots[i], link);
			n++;
		}
	}
	return n;
}

static void batch_start(struct integrity_bdev *d)
{
	bool hurried = d->hurried || d->ending;

	if (d->closing || (d->ending && d->learning != NULL)) {
		return;
	}
	d->hurried = false;
	if (d->slots_open > 0 && !d->end_failed) {
		uint32_t n =
			d->ending ? 0
				  : batch_gather(d, hurried ? integrity_limits.idle_us / 16 : integrity_limits.idle_us);
		n = n == 0 && hurried ? batch_gather(d, 0) : n;
		d->closing = n > 0;
	}
	if (d->closing) {
		sums_write_all(d);
	} else if (d->ending) {
		integrity_closer_ended(d);
	}
}

/* --- Time --- */

static void closer_tick(void *arg)
{
	struct integrity_bdev *d = arg;

	d->hurried = d->hurried || !STAILQ_EMPTY(&d->starved);
	for (uint32_t n = 0; n < UNKNOWN_BATCH && d->slots_open < d->max_open && d->regions_unknown > 0 &&
			     (!atomic_load(&d->failed) || d->slots_open == 0) && integrity_slots_take_unknown(d);
	     n++) {
	}
	integrity_bitmap_again(d);
	integrity_learn(d);
	batch_start(d);
	integrity_serve_starved(d);
	thread_timer_start(&d->tick, STAILQ_EMPTY(&d->starved) ? integrity_limits.tick_us : HURRY_TICK_US);
}

void integrity_closer_hurry(struct integrity_bdev *d)
{
	if (!d->hurried) { /* one after the other would put it off for ever */
		d->hurried = true;
		thread_timer_start(&d->tick, HURRY_TICK_US);
	}
}

void integrity_closer_start(struct integrity_bdev *d)
{
	d->tick = (struct thread_timer){.fn = closer_tick, .arg = d};
	thread_timer_start(&d->tick, integrity_limits.tick_us);
}

void integrity_closer_end(struct integrity_bdev *d)
{
	thread_timer_stop(&d->tick);
	d->ending = true;
	batch_start(d);
}
