/* SPDX-License-Identifier: BSD-3-Clause */
/* Closes regions that nobody writes to, a batch at a time: writes their checksum pages, makes these and their data
 * durable by one flush, and then clears their bits. After a failure on the way they are open, and are closed another
 * time. Of a batch only those regions stay open whose checksum page cannot be written; they are tried again when they
 * have been idle for as long as others, so that they are in nobody's way. */
#include <inttypes.h>
#include <rte_common.h>
#include <string.h>

#include "bdev_modules/integrity/internal.h"
#include "env_dpdk/env.h"
#include "trace/trace.h"
#include "util/log.h"

#define HURRY_TICK_US 10000u
#define UNKNOWN_BATCH 64u

struct integrity_limits integrity_limits = {.idle_us = 5000000,
					    .tick_us = 1000000,
					    .learns = true,
					    .slots = 16384,
					    .end_us = 10000000,
					    .retry_us = 5000000};

static void batch_start(struct integrity_bdev *d);
static void sums_write_all(struct integrity_bdev *d);

/* --- The batch --- */

static void batch_ended(struct integrity_bdev *d)
{
	d->closing = false;
	integrity_serve_starved(d);
	if (d->ending || (d->hurried && !atomic_load(&d->failed))) {
		batch_start(d);
	} else {
		d->hurried = false; /* at the next tick; who starves until then has it come soon */
	}
}

void integrity_closer_slot_ended(struct integrity_slot *s)
{
	if (--s->d->batch_left == 0) {
		batch_ended(s->d);
	}
}

/* Nothing of it could be made durable. */
static void batch_give_up(struct integrity_bdev *d, int rc)
{
	struct integrity_slot *s;

	integrity_fail(d, &d->flush_fails, "a flush of data and checksums", rc);
	while ((s = STAILQ_FIRST(&d->batch)) != NULL) {
		STAILQ_REMOVE_HEAD(&d->batch, link);
		integrity_slot_set_state(s, SLOT_OPEN);
	}
	integrity_fail_starved(d, integrity_op_status(&d->flush));
	batch_ended(d);
}

static void batch_turn(struct integrity_op *o, int rc)
{
	sums_write_all(o->d);
}

static void batch_is_durable(struct integrity_op *o, int rc)
{
	struct integrity_bdev *d = o->d;
	struct integrity_slots slots = STAILQ_HEAD_INITIALIZER(slots);
	struct integrity_slot *s;

	if (rc != 0) {
		batch_give_up(d, rc);
		return;
	}
	if (STAILQ_EMPTY(&d->batch)) {
		batch_ended(d);
		return;
	}
	if (integrity_flush_is_void(d, d->failures_before)) {
		integrity_flush_turn(d, &d->flush, batch_turn);
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

void integrity_sums_work(struct integrity_slot *s)
{
	s->d->pages_failing -= s->sums_fail;
	s->sums_fail = s->stays_open = false;
}

static void sums_failed(struct integrity_slot *s)
{
	struct integrity_bdev *d = s->d;
	char text[BDEV_ERROR_MAX];

	d->close_status = integrity_op_status(&s->op);
	s->stays_open = d->ending;
	TRACE(INTEGRITY_PAGE_FAILED, d->bdev.trace_owner, 0, 0, s->region, d->close_status);
	if (s->sums_fail) {
		return;
	}
	s->sums_fail = true;
	snprintf(text, sizeof(text),
		 "checksum page %" PRIu32 " cannot be written (bdev %.80s: %.60s): its region stays open, and after a "
		 "restart its checksums do not count",
		 s->region, d->base_name, strerror(-s->op.op.error));
	if (d->pages_failing++ == 0) {
		integrity_tell(d, text);
	} else {
		log_limited(LOG_LEVEL_ERROR, "bdev %s: %s", d->name, text);
	}
}

static void batch_drop_failed(struct integrity_bdev *d)
{
	struct integrity_slots slots = STAILQ_HEAD_INITIALIZER(slots);
	struct integrity_slot *s;

	STAILQ_CONCAT(&slots, &d->batch);
	while ((s = STAILQ_FIRST(&slots)) != NULL) {
		STAILQ_REMOVE_HEAD(&slots, link);
		if (s->op.op.error == 0) {
			integrity_sums_work(s);
			STAILQ_INSERT_TAIL(&d->batch, s, link);
			continue;
		}
		sums_failed(s);
		rte_spinlock_lock(&s->lock);
		s->written_ticks = thread_now();
		rte_spinlock_unlock(&s->lock);
		integrity_slot_set_state(s, SLOT_OPEN);
	}
}

static void sums_written(struct integrity_op *o, int rc)
{
	struct integrity_bdev *d = o->d;

	if (--d->batch_left > 0) {
		return;
	}
	batch_drop_failed(d);
	if (STAILQ_EMPTY(&d->batch)) {
		integrity_flush_turn_end(d, &d->flush);
		integrity_fail_starved(d, d->close_status);
		batch_ended(d);
	} else {
		integrity_flush(d, &d->flush, batch_is_durable);
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

	d->failures_before = integrity_flush_failures(d);
	STAILQ_FOREACH (s, &d->batch, link) {
		d->batch_left++;
	}
	STAILQ_FOREACH (s, &d->batch, link) {
		sums_write(s, &d->batch_pages[n++]);
	}
}

/* --- Which regions --- */

enum gather { GATHER_IDLE, GATHER_BUSY, GATHER_ANY };

static void drained_message(struct thread_msg *msg)
{
	struct integrity_slot *s = container_of(msg, struct integrity_slot, drained_msg);

	if (--s->d->drains_left == 0) {
		sums_write_all(s->d);
	}
}

void integrity_check_drained(struct integrity_slot *s)
{
	if (unlikely(s->drains) && s->writers == 0) {
		s->drains = false;
		thread_post(thread_control(), &s->drained_msg, drained_message);
	}
}

/* Nobody writes to it, and nobody has for so long; or somebody does (GATHER_BUSY), and is waited for. Writes that come
 * wait until it has been closed. GATHER_ANY: even one that has still to be read. */
static bool slot_begin_closing(struct integrity_slot *s, enum gather which, uint64_t now, uint64_t idle_ticks)
{
	if (s->state != SLOT_OPEN || s == s->d->learning || s->stays_open ||
	    (which != GATHER_ANY && integrity_slot_is_unlearned(s))) {
		return false;
	}
	if (unlikely(s->sums_fail) && !s->d->ending) {
		which = GATHER_IDLE;
		idle_ticks = env_us_to_ticks(integrity_limits.idle_us);
	}
	rte_spinlock_lock(&s->lock);
	bool is_idle = s->writers == 0 && (s->written_ticks >= now ? 0 : now - s->written_ticks) >= idle_ticks;
	bool closes = is_idle || which != GATHER_IDLE;
	if (closes) {
		integrity_slot_mark(s, SLOT_CLOSING);
		s->drains = s->writers > 0;
		s->d->drains_left += s->drains;
	}
	rte_spinlock_unlock(&s->lock);
	return closes;
}

/* Begins where it ended the last time, so that each region has its turn. */
static uint32_t batch_gather(struct integrity_bdev *d, enum gather which, uint64_t idle_us, uint32_t most)
{
	uint64_t now = thread_now(), idle_ticks = env_us_to_ticks(idle_us);
	uint32_t n = 0;

	for (uint32_t i = 0; i < d->num_slots && n < most; i++) {
		struct integrity_slot *s = &d->slots[d->gather_at];
		d->gather_at = (d->gather_at + 1) % d->num_slots;
		if (slot_begin_closing(s, which, now, idle_ticks)) {
			STAILQ_INSERT_TAIL(&d->batch, s, link);
			n++;
		}
	}
	return n;
}

static uint32_t starved_count(const struct integrity_bdev *d)
{
	const struct integrity_io *ctx;
	uint32_t n = 0;

	STAILQ_FOREACH (ctx, &d->starved, link) {
		if (++n == INTEGRITY_CLOSE_BATCH) {
			break;
		}
	}
	return RTE_MAX(n, 1u);
}

/* Only regions that have still to be read are open, and they are written to without a pause. */
static uint32_t batch_gather_any(struct integrity_bdev *d)
{
	uint32_t n = batch_gather(d, GATHER_ANY, 0, starved_count(d));

	if (n > 0) {
		log_limited(LOG_LEVEL_WARNING,
			    "bdev %s: %u regions that were open at a crash are closed before they have been read, for "
			    "others are to be written; their blocks are not checked until they are written",
			    d->name, n);
	}
	return n;
}

/* For others that wait: those that have been idle for longest; if none is, some that are being written to. Those that
 * have still to be read only lose their slots, as long as one is idle. */
static uint32_t batch_gather_soon(struct integrity_bdev *d)
{
	uint64_t idle_us = integrity_limits.idle_us;
	uint32_t n = 0;

	while (n == 0 && idle_us > 0) {
		idle_us /= 16;
		n = batch_gather(d, GATHER_IDLE, idle_us, INTEGRITY_CLOSE_BATCH);
	}
	n = n > 0 ? n : batch_gather(d, GATHER_BUSY, 0, starved_count(d));
	if (n > 0 || integrity_slots_forget(d, starved_count(d)) > 0) {
		return n;
	}
	return batch_gather_any(d);
}

static bool batch_fill(struct integrity_bdev *d, bool soon)
{
	if (d->slots_open == 0 || d->end_failed) {
		return false;
	}
	if (d->ending) {
		return batch_gather(d, GATHER_IDLE, 0, INTEGRITY_CLOSE_BATCH) > 0;
	}
	uint32_t n = soon ? batch_gather_soon(d)
			  : batch_gather(d, GATHER_IDLE, integrity_limits.idle_us, INTEGRITY_CLOSE_BATCH);
	if (n == 0 && d->pages_failing > 0) {
		integrity_fail_starved(d, d->close_status);
	}
	return n > 0;
}

/* --- The end --- */

/* What the module still has at the base is not waited for. */
static void closer_end_now(struct integrity_bdev *d)
{
	thread_timer_stop(&d->tick);
	d->ended = true;
	thread_timer_stop(&d->flush_op.timer);
	thread_timer_stop(&d->learn_op.timer);
	for (uint32_t i = 0; i < d->num_slots; i++) {
		thread_timer_stop(&d->slots[i].op.timer);
	}
	for (uint32_t i = 0; i < d->layout.bitmap_pages; i++) {
		thread_timer_stop(&d->bitmap[i].op.timer);
	}
	integrity_closer_ended(d);
}

static bool bitmap_is_under_way(const struct integrity_bdev *d)
{
	bool is = d->slots_opening > 0;

	for (uint32_t i = 0; i < d->layout.bitmap_pages; i++) {
		is |= d->bitmap[i].writing;
	}
	return is;
}

/* Regions may stay open: that is as after a crash. */
static void closer_end_limit(void *arg)
{
	struct integrity_bdev *d = arg;

	if (thread_timer_was_absent(&d->tick, integrity_limits.end_us)) {
		thread_timer_start(&d->tick, integrity_limits.end_us);
		return;
	}
	log_warning("bdev %s: bdev %s did not answer in %lu ms; %u regions are not closed, and are read anew when the "
		    "bdev is made again",
		    d->name, d->base_name, integrity_limits.end_us / 1000, d->slots_open);
	closer_end_now(d);
}

static void batch_start(struct integrity_bdev *d)
{
	bool soon = d->hurried;

	if (d->closing || d->ended || (d->ending && d->learning != NULL)) {
		return;
	}
	d->hurried = false;
	d->closing = batch_fill(d, soon);
	if (d->closing && d->drains_left == 0) {
		sums_write_all(d);
	} else if (!d->closing && d->ending && (d->end_failed || !bitmap_is_under_way(d))) {
		closer_end_now(d);
	}
}

/* Nothing is to be closed, and the last FLUSH failed: another one tells whether that has passed. */
static void batch_start_empty(struct integrity_bdev *d)
{
	if (!d->closing && d->flush_fails) {
		d->closing = true;
		integrity_flush(d, &d->flush, batch_is_durable);
	}
}

/* --- Time --- */

static void closer_tick(void *arg)
{
	struct integrity_bdev *d = arg;

	d->hurried = d->hurried || !STAILQ_EMPTY(&d->starved);
	for (uint32_t n = 0;
	     n < UNKNOWN_BATCH && STAILQ_EMPTY(&d->starved) && d->slots_open < d->max_open && d->regions_unknown > 0 &&
	     (!atomic_load(&d->failed) || d->slots_open == 0) && integrity_slots_take_unknown(d);
	     n++) {
	}
	integrity_bitmap_again(d);
	integrity_learn(d);
	batch_start(d);
	batch_start_empty(d);
	integrity_serve_starved(d);
	d->hurried = !STAILQ_EMPTY(&d->starved); /* while it is true, the next tick is soon */
	thread_timer_start(&d->tick, d->hurried ? HURRY_TICK_US : integrity_limits.tick_us);
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
	if (!d->ending) {
		thread_timer_stop(&d->tick);
		d->tick = (struct thread_timer){.fn = closer_end_limit, .arg = d};
		thread_timer_start(&d->tick, integrity_limits.end_us);
		d->ending = true;
		integrity_bitmap_again(d); /* regions that are closed in memory may be open on the base */
	}
	batch_start(d);
}
