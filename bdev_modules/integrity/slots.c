/* SPDX-License-Identifier: BSD-3-Clause */
/* Checksums in memory. A slot is given to a region when the first I/O asks for it, and to another one when nobody has
 * used it since the hand of a clock passed twice. */
#include <errno.h>
#include <rte_common.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bdev_modules/integrity/internal.h"
#include "trace/trace.h"
#include "util/state_machine.h"

#define OPEN_AHEAD 64u

static const char *slot_state_name(unsigned state)
{
	static const char *const names[SLOT_STATES] = {
		[SLOT_FREE] = "free",       [SLOT_LOADING] = "loading", [SLOT_CLEAN] = "clean",
		[SLOT_OPENING] = "opening", [SLOT_OPEN] = "open",       [SLOT_CLOSING] = "closing",
	};

	return state < SLOT_STATES ? names[state] : "?";
}

static const uint32_t slot_next_states[SLOT_STATES] = {
	[SLOT_FREE] = 1u << SLOT_LOADING | 1u << SLOT_OPEN | 1u << SLOT_CLEAN,
	[SLOT_LOADING] = 1u << SLOT_CLEAN | 1u << SLOT_FREE,
	[SLOT_CLEAN] = 1u << SLOT_OPENING | 1u << SLOT_FREE,
	[SLOT_OPENING] = 1u << SLOT_OPEN | 1u << SLOT_CLEAN,
	[SLOT_OPEN] = 1u << SLOT_CLOSING | 1u << SLOT_FREE,
	[SLOT_CLOSING] = 1u << SLOT_CLEAN | 1u << SLOT_OPEN,
};
STATE_MACHINE(slot_machine, "integrity_region", slot_state_name, slot_next_states)

static bool slot_state_is_open(unsigned state)
{
	return state == SLOT_OPENING || state == SLOT_OPEN || state == SLOT_CLOSING;
}

void integrity_slot_mark(struct integrity_slot *s, enum integrity_slot_state state)
{
	state_machine_check(&slot_machine, s->state, state, s->d->name);
	s->d->slots_open += slot_state_is_open(state);
	s->d->slots_open -= slot_state_is_open(s->state);
	s->d->slots_opening += state == SLOT_OPENING;
	s->d->slots_opening -= s->state == SLOT_OPENING;
	s->state = (uint8_t)state;
	if (state == SLOT_CLOSING) { /* its checksum page is written before its bit is cleared */
		uint32_t region = atomic_load_explicit(&s->region, memory_order_relaxed);
		integrity_bitmap_set_has_sums(&s->d->bitmap[region / INTEGRITY_BITMAP_REGIONS].page,
					      region % INTEGRITY_BITMAP_REGIONS);
	}
}

static void slot_set_region(struct integrity_slot *s, uint32_t region)
{
	/* The order is for readers without the lock: their checksums count only if the region is the same before and
	 * after they have read them. */
	atomic_store_explicit(&s->region, region, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
}

/* --- I/Os that ask --- */

static void ask_serve(struct integrity_bdev *d, struct integrity_io *ctx);

static void ask_answer(struct integrity_io *ctx, uint16_t status)
{
	ctx->answer = status;
	ctx->starved = false;
	thread_post(ctx->thread, &ctx->msg, integrity_io_resumed);
}

static void ask_wait(struct integrity_io *ctx, struct integrity_ios *list)
{
	ctx->list = list;
	STAILQ_INSERT_TAIL(list, ctx, link);
}

static void asks_serve(struct integrity_bdev *d, struct integrity_ios *list)
{
	struct integrity_ios ios = STAILQ_HEAD_INITIALIZER(ios);
	struct integrity_io *ctx;

	STAILQ_CONCAT(&ios, list);
	while ((ctx = STAILQ_FIRST(&ios)) != NULL) {
		STAILQ_REMOVE_HEAD(&ios, link);
		ctx->list = NULL;
		ask_serve(d, ctx);
	}
}

static void asks_fail(struct integrity_slot *s, uint16_t status)
{
	struct integrity_io *ctx;

	while ((ctx = STAILQ_FIRST(&s->asks)) != NULL) {
		STAILQ_REMOVE_HEAD(&s->asks, link);
		ctx->list = NULL;
		ask_answer(ctx, status);
	}
}

void integrity_slot_set_state(struct integrity_slot *s, enum integrity_slot_state state)
{
	rte_spinlock_lock(&s->lock);
	integrity_slot_mark(s, state);
	rte_spinlock_unlock(&s->lock);
	asks_serve(s->d, &s->asks);
}

void integrity_slot_fail(struct integrity_slot *s, enum integrity_slot_state state, uint16_t status)
{
	rte_spinlock_lock(&s->lock);
	integrity_slot_mark(s, state);
	rte_spinlock_unlock(&s->lock);
	asks_fail(s, status);
}

void integrity_flushes_enter(struct integrity_bdev *d)
{
	struct integrity_io *ctx;

	while ((ctx = STAILQ_FIRST(&d->flush_waiters)) != NULL) {
		STAILQ_REMOVE_HEAD(&d->flush_waiters, link);
		ctx->list = NULL;
		ask_answer(ctx, 0);
	}
}

void integrity_serve_starved(struct integrity_bdev *d)
{
	asks_serve(d, &d->starved);
}

void integrity_fail_starved(struct integrity_bdev *d, uint16_t status)
{
	struct integrity_ios ios = STAILQ_HEAD_INITIALIZER(ios);
	struct integrity_io *ctx;

	integrity_serve_starved(d);
	STAILQ_CONCAT(&ios, &d->starved);
	while ((ctx = STAILQ_FIRST(&ios)) != NULL) {
		STAILQ_REMOVE_HEAD(&ios, link);
		if (ctx->want == WANT_OPEN) {
			ctx->list = NULL;
			ask_answer(ctx, status);
		} else {
			STAILQ_INSERT_TAIL(&d->starved, ctx, link);
		}
	}
}

/* --- Slots and their regions --- */

/* While nothing can be closed, regions that were found open need no slot: nothing is known of them, as before. */
static bool slot_may_be_evicted(const struct integrity_slot *s)
{
	bool forgets = s->state == SLOT_OPEN && s->unknown && (s->sums_fail || atomic_load(&s->d->failed));

	return (s->state == SLOT_CLEAN || forgets) && STAILQ_EMPTY(&s->asks);
}

static void region_is_unknown_again(struct integrity_bdev *d, uint32_t region)
{
	d->unknown[region / 8] |= (uint8_t)(1u << region % 8);
	d->unknown_at = RTE_MIN(d->unknown_at, region);
}

static bool slot_has_lost(const struct integrity_slot *s)
{
	uint64_t lost = 0;

	for (uint32_t w = 0; w < INTEGRITY_BUSY_WORDS; w++) {
		lost |= s->lost[w];
	}
	return lost != 0;
}

/* Only its slot knows what is not to be learned of a region. */
static bool slot_reclaim(struct integrity_slot *s)
{
	rte_spinlock_lock(&s->lock);
	bool evicted = s->users == 0 && !(s->unknown && slot_has_lost(s));
	uint32_t region = atomic_load_explicit(&s->region, memory_order_relaxed);
	if (evicted) {
		slot_set_region(s, INTEGRITY_NO_REGION);
		integrity_slot_mark(s, SLOT_FREE);
	}
	rte_spinlock_unlock(&s->lock);
	if (evicted) {
		atomic_store_explicit(&s->d->slot_of[region], 0, memory_order_release);
		if (s->unknown) {
			region_is_unknown_again(s->d, region);
		}
		s->unknown = false;
		integrity_sums_work(s);
	}
	return evicted;
}

static bool slot_evict(struct integrity_slot *s)
{
	return slot_may_be_evicted(s) && slot_reclaim(s);
}

uint32_t integrity_slots_forget(struct integrity_bdev *d, uint32_t most)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < d->num_slots && n < most; i++) {
		struct integrity_slot *s = &d->slots[i];
		bool may_go = s->state == SLOT_OPEN && integrity_slot_is_unlearned(s) && STAILQ_EMPTY(&s->asks);
		if (may_go && slot_reclaim(s)) {
			STAILQ_INSERT_TAIL(&d->free, s, link);
			n++;
		}
	}
	return n;
}

/* NULL: all are in use. */
static struct integrity_slot *slot_get(struct integrity_bdev *d)
{
	struct integrity_slot *s = STAILQ_FIRST(&d->free);

	if (s != NULL) {
		STAILQ_REMOVE_HEAD(&d->free, link);
		return s;
	}
	for (uint32_t n = 0; n < 2 * d->num_slots; n++) {
		s = &d->slots[d->hand];
		d->hand = (d->hand + 1) % d->num_slots;
		if (!s->referenced && slot_evict(s)) {
			return s;
		}
		s->referenced = false;
	}
	return NULL;
}

static void slot_publish(struct integrity_slot *s, uint32_t ready)
{
	uint32_t n = (uint32_t)(s - s->d->slots) + 1;

	/* Pairs with integrity_slot_ready(): the checksums are there. */
	atomic_store_explicit(&s->d->slot_of[atomic_load_explicit(&s->region, memory_order_relaxed)], 2 * n + ready,
			      memory_order_release);
}

static void slot_set_sums(struct integrity_slot *s, const uint32_t *sum)
{
	for (uint32_t i = 0; i < INTEGRITY_REGION_UNITS; i++) {
		atomic_store_explicit(&s->sum[i], sum != NULL ? sum[i] : INTEGRITY_SUM_UNKNOWN, memory_order_relaxed);
	}
}

static void slot_load_failed(struct integrity_slot *s, uint16_t status)
{
	atomic_store_explicit(&s->d->slot_of[s->region], 0, memory_order_release);
	rte_spinlock_lock(&s->lock);
	slot_set_region(s, INTEGRITY_NO_REGION);
	integrity_slot_mark(s, SLOT_FREE);
	rte_spinlock_unlock(&s->lock);
	STAILQ_INSERT_HEAD(&s->d->free, s, link);
	asks_fail(s, status);
	integrity_serve_starved(s->d);
}

static void slot_open_now(struct integrity_slot *s)
{
	rte_spinlock_lock(&s->lock);
	integrity_slot_mark(s, SLOT_OPENING);
	s->written_ticks = thread_now();
	rte_spinlock_unlock(&s->lock);
	integrity_bitmap_change(s, true);
}

/* A wrong page is written anew: its region is opened, and closed in its turn. */
static void slot_mend(struct integrity_slot *s)
{
	struct integrity_bdev *d = s->d;

	if (s->state != SLOT_CLEAN || d->slots_open >= d->max_open || d->ending ||
	    atomic_load_explicit(&d->failed, memory_order_relaxed)) {
		return; /* it is being opened by a write; or the next time that the page is read */
	}
	slot_open_now(s);
}

static bool region_has_sums(const struct integrity_bdev *d, uint32_t region)
{
	return integrity_bitmap_has_sums(&d->bitmap[region / INTEGRITY_BITMAP_REGIONS].page,
					 region % INTEGRITY_BITMAP_REGIONS);
}

static void slot_loaded(struct integrity_op *o, int rc)
{
	struct integrity_slot *s = container_of(o, struct integrity_slot, op);
	uint32_t sum[INTEGRITY_REGION_UNITS] = {0};
	struct integrity_error e;
	bool wrong = false;

	if (rc != 0 && integrity_op_is_unreadable(o)) {
		wrong = true;
		snprintf(e.text, sizeof(e.text), "checksum page %u: cannot be read", s->region);
	} else if (rc == 0) {
		wrong = integrity_sums_decode(s->page, &s->d->layout, s->region, region_has_sums(s->d, s->region), sum,
					      &e) != 0;
	}
	free(s->page);
	s->page = NULL;
	if (rc != 0 && !wrong) {
		slot_load_failed(s, integrity_op_status(o));
		return;
	}
	if (wrong) {
		integrity_report_page(s->d, s->region, e.text);
	}
	slot_set_sums(s, sum);
	slot_publish(s, 1);
	integrity_slot_set_state(s, SLOT_CLEAN);
	if (wrong) {
		slot_mend(s);
	}
}

/* Of a region that was found open no checksum is known, and its page is not read. */
static void slot_take_unknown(struct integrity_slot *s)
{
	struct integrity_bdev *d = s->d;

	d->unknown[s->region / 8] &= (uint8_t) ~(1u << s->region % 8);
	s->unknown = true;
	s->learned = false;
	s->written_ticks = 0;
	memset(s->lost, 0, sizeof(s->lost));
	slot_set_sums(s, NULL);
	slot_publish(s, 1);
	TRACE(INTEGRITY_REGION_OPENED, d->bdev.trace_owner, 0, 0, s->region);
	integrity_slot_set_state(s, SLOT_OPEN);
}

/* Its checksum page has never been written. */
static void slot_take_new(struct integrity_slot *s)
{
	slot_set_sums(s, NULL);
	slot_publish(s, 1);
	integrity_slot_set_state(s, SLOT_CLEAN);
}

static bool region_is_unknown(const struct integrity_bdev *d, uint32_t region)
{
	return d->unknown[region / 8] >> region % 8 & 1;
}

static void slot_give(struct integrity_slot *s, uint32_t region)
{
	struct integrity_bdev *d = s->d;

	rte_spinlock_lock(&s->lock);
	slot_set_region(s, region);
	rte_spinlock_unlock(&s->lock);
	if (region_is_unknown(d, region)) {
		slot_take_unknown(s);
		return;
	}
	if (!region_has_sums(d, region)) {
		slot_take_new(s);
		return;
	}
	integrity_slot_set_state(s, SLOT_LOADING);
	slot_publish(s, 0);
	s->page = aligned_alloc(INTEGRITY_UNIT_BYTES, sizeof(*s->page));
	if (s->page != NULL) {
		integrity_op_start(d, &s->op, BDEV_IO_READ, d->layout.sums_first + region, 1, s->page, slot_loaded);
	}
}

bool integrity_slots_take_unknown(struct integrity_bdev *d)
{
	while (d->unknown_at < d->layout.regions && !region_is_unknown(d, d->unknown_at)) {
		d->unknown_at++;
	}
	struct integrity_slot *s = d->unknown_at < d->layout.regions ? slot_get(d) : NULL;
	if (s != NULL) {
		slot_give(s, d->unknown_at);
	}
	return s != NULL;
}

/* --- Asking --- */

static void ask_starves(struct integrity_bdev *d, struct integrity_io *ctx)
{
	ctx->starved = true;
	ask_wait(ctx, &d->starved);
	integrity_closer_hurry(d);
}

static void slot_open(struct integrity_slot *s, struct integrity_io *ctx)
{
	struct integrity_bdev *d = s->d;

	bool waits_behind = !ctx->starved && !STAILQ_EMPTY(&d->starved);

	if (d->slots_open >= d->max_open || waits_behind) {
		ask_starves(d, ctx);
		return;
	}
	ask_wait(ctx, &s->asks);
	slot_open_now(s);
}

static struct integrity_slot *slot_find(struct integrity_bdev *d, uint32_t region)
{
	uint32_t n = atomic_load_explicit(&d->slot_of[region], memory_order_relaxed);

	return n != 0 ? &d->slots[n / 2 - 1] : NULL;
}

/* The slot of a region, which is given one if it has none. NULL: no slot can be had; or there is no memory to read its
 * page. */
static struct integrity_slot *slot_find_or_give(struct integrity_bdev *d, uint32_t region, bool *no_memory)
{
	struct integrity_slot *s = slot_find(d, region);

	*no_memory = false;
	if (s != NULL) {
		return s;
	}
	s = slot_get(d);
	if (s == NULL) {
		return NULL;
	}
	slot_give(s, region);
	*no_memory = s->state == SLOT_LOADING && s->page == NULL;
	if (*no_memory) {
		slot_load_failed(s, NVME_SC_INTERNAL);
	}
	return *no_memory ? NULL : s;
}

/* NULL: ctx waits, or has been answered. */
static struct integrity_slot *ask_find_slot(struct integrity_bdev *d, struct integrity_io *ctx)
{
	bool no_memory;
	struct integrity_slot *s = slot_find_or_give(d, ctx->region, &no_memory);

	if (no_memory) {
		ask_answer(ctx, NVME_SC_INTERNAL);
	} else if (s == NULL) {
		ask_starves(d, ctx);
	}
	return s;
}

/* False: there is no room, or no memory. */
static bool region_open_ahead(struct integrity_bdev *d, uint32_t region, bool unmap)
{
	bool no_memory;
	struct integrity_slot *s = slot_find_or_give(d, region, &no_memory);

	if (s == NULL) {
		return false;
	}
	bool needs_it = !unmap || !integrity_sums_are_unknown(s, 0, INTEGRITY_REGION_UNITS);
	if (s->state == SLOT_CLEAN && needs_it) {
		slot_open_now(s);
	}
	return true;
}

/* ctx goes on to the regions behind its present one: they are loaded, and opened together. */
static void open_ahead(struct integrity_bdev *d, struct integrity_io *ctx)
{
	const struct bdev_io *io = bdev_io_from_ctx(ctx);
	uint64_t last = (io->offset_blocks + io->num_blocks - 1) >> INTEGRITY_REGION_SHIFT;
	uint32_t ahead = RTE_MIN(OPEN_AHEAD, d->max_open / 4);

	last = RTE_MIN(last, (uint64_t)ctx->region + ahead);
	for (uint32_t r = ctx->region + 1; r <= last && d->slots_open + 1 < d->max_open; r++) {
		if (!STAILQ_EMPTY(&d->starved) || !region_open_ahead(d, r, io->type == BDEV_IO_UNMAP)) {
			break;
		}
	}
}

static void ask_serve(struct integrity_bdev *d, struct integrity_io *ctx)
{
	bool writes = ctx->want == WANT_OPEN;

	struct integrity_slot *s = ask_find_slot(d, ctx);
	if (s == NULL) {
		return;
	}
	/* Most of those that UNMAP passes through are not used by others. */
	s->referenced |= bdev_io_from_ctx(ctx)->type != BDEV_IO_UNMAP;
	if (s->state == SLOT_OPEN || (!writes && s->state != SLOT_LOADING)) {
		ask_answer(ctx, 0);
	} else if (s->state == SLOT_CLEAN) {
		slot_open(s, ctx);
		open_ahead(d, ctx);
	} else {
		ask_wait(ctx, &s->asks);
		open_ahead(d, ctx); /* SLOT_LOADING: the pages are read together */
	}
}

static void ask_message(struct thread_msg *msg)
{
	struct integrity_io *ctx = container_of(msg, struct integrity_io, msg);
	struct integrity_bdev *d = integrity_io_bdev(ctx);

	if (ctx->want != WANT_TURN) {
		ask_serve(d, ctx);
	} else if (integrity_flush_enter(d)) {
		ask_answer(ctx, 0);
	} else {
		ask_wait(ctx, &d->flush_waiters);
	}
}

void integrity_ask(struct integrity_io *ctx, enum integrity_want want)
{
	ctx->want = (uint8_t)want;
	ctx->list = NULL;
	ctx->thread = thread_current();
	thread_post(thread_control(), &ctx->msg, ask_message);
}

static void cancel_message(struct thread_msg *msg)
{
	struct integrity_io *ctx = container_of(msg, struct integrity_io, cancel_msg);

	if (ctx->list != NULL) {
		STAILQ_REMOVE(ctx->list, ctx, integrity_io, link);
		ctx->list = NULL;
		ask_answer(ctx, NVME_SC_ABORT_REQ);
	}
	thread_post(ctx->thread, &ctx->cancel_msg, integrity_io_cancelled);
}

void integrity_ask_cancel(struct integrity_io *ctx)
{
	thread_post(thread_control(), &ctx->cancel_msg, cancel_message);
}

/* --- The beginning and the end --- */

static void slot_init(struct integrity_bdev *d, struct integrity_slot *s)
{
	s->d = d;
	atomic_store(&s->region, INTEGRITY_NO_REGION);
	rte_spinlock_init(&s->lock);
	STAILQ_INIT(&s->waiters);
	STAILQ_INIT(&s->asks);
	STAILQ_INSERT_TAIL(&d->free, s, link);
}

int integrity_slots_init(struct integrity_bdev *d)
{
	const struct integrity_layout *l = &d->layout;

	STAILQ_INIT(&d->free);
	STAILQ_INIT(&d->starved);
	STAILQ_INIT(&d->batch);
	integrity_flush_init(d);
	d->num_slots = RTE_MIN(l->regions, integrity_limits.slots);
	/* While there are more regions than slots, half of the slots are for regions that are only read. */
	d->max_open = d->num_slots == l->regions ? d->num_slots : RTE_MAX(d->num_slots / 2, 1u);
	d->slots = calloc(d->num_slots, sizeof(*d->slots));
	d->slot_of = calloc(l->regions, sizeof(*d->slot_of));
	d->unknown = calloc(l->regions / 8 + 1, 1);
	d->bitmap = calloc(l->bitmap_pages, sizeof(*d->bitmap));
	d->batch_pages = aligned_alloc(INTEGRITY_UNIT_BYTES, INTEGRITY_CLOSE_BATCH * sizeof(*d->batch_pages));
	if (d->slots == NULL || d->slot_of == NULL || d->unknown == NULL || d->bitmap == NULL ||
	    d->batch_pages == NULL) {
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < d->num_slots; i++) {
		slot_init(d, &d->slots[i]);
	}
	for (uint32_t i = 0; i < l->bitmap_pages; i++) {
		d->bitmap[i].d = d;
		STAILQ_INIT(&d->bitmap[i].now);
		STAILQ_INIT(&d->bitmap[i].next);
	}
	return 0;
}

void integrity_slots_fini(struct integrity_bdev *d)
{
	for (uint32_t i = 0; d->slots != NULL && i < d->num_slots; i++) {
		free(d->slots[i].page); /* that was being read ahead when the bdev went */
	}
	free(d->slots);
	free((void *)d->slot_of);
	free(d->unknown);
	free(d->bitmap);
	free(d->batch_pages);
	free(d->learn_buffer);
}
