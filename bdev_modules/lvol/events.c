/* SPDX-License-Identifier: BSD-3-Clause */
/* Tracepoints and probes of stores and volumes. What the engine does, it tells through lvol_events_happened(); first
 * writes are recorded where they are carried out, with the I/O that they are for. */
#include "bdev_modules/lvol/io.h"
#include "trace/trace.h"
#include "usdt/usdt.h"

/* --- The store: control thread --- */

/* Events of a store belong to the bdev that it is on. */
static uint16_t store_owner(const struct bdev_lvol_store *s)
{
	return bdev_desc_bdev(s->base)->trace_owner;
}

void lvol_events_store_state(const struct bdev_lvol_store *s, unsigned old, unsigned now)
{
	TRACE(LVOL_STORE_STATE, store_owner(s), 0, 0, old, now, s->name);
	USDT(lvol_store_state, s->base_name, s->name, old, now);
}

static void tell_journal(const struct bdev_lvol_store *s, const struct lvol_live_event *e)
{
	TRACE(LVOL_JOURNAL, store_owner(s), e->pages, 0, e->generation, e->change);
	USDT(lvol_journal, s->name, e->generation, e->pages, e->change);
}

static void tell_committed(const struct bdev_lvol_store *s, const struct lvol_live_event *e)
{
	TRACE(LVOL_COMMITTED, store_owner(s), 0, 0, e->generation, (uint32_t)-e->status, e->change);
	USDT(lvol_committed, s->name, e->generation, e->status, e->change);
}

static void tell_failed(const struct bdev_lvol_store *s, const struct lvol_live_event *e)
{
	TRACE(LVOL_STORE_FAILED, store_owner(s), 0, 0, s->name);
	USDT(lvol_store_failed, s->base_name, s->name);
}

static void tell_change_waits(const struct bdev_lvol_store *s, const struct lvol_live_event *e)
{
	TRACE(LVOL_CHANGE_WAITS, store_owner(s), 0, 0, e->change, e->volume);
	USDT(lvol_change_waits, s->name, e->volume, e->change);
}

static void tell_change_ended(const struct bdev_lvol_store *s, const struct lvol_live_event *e)
{
	TRACE(LVOL_CHANGE_ENDED, store_owner(s), 0, 0, (uint32_t)-e->status, e->change, e->volume);
	USDT(lvol_change_ended, s->name, e->volume, e->change, e->status);
}

void lvol_events_happened(void *ctx, const struct lvol_live_event *e)
{
	static void (*const tell[])(const struct bdev_lvol_store *s, const struct lvol_live_event *e) = {
		[LVOL_LIVE_JOURNAL] = tell_journal,
		[LVOL_LIVE_COMMITTED] = tell_committed,
		[LVOL_LIVE_FAILED] = tell_failed,
		[LVOL_LIVE_CHANGE_WAITS] = tell_change_waits,
		[LVOL_LIVE_CHANGE_ENDED] = tell_change_ended,
	};

	tell[e->kind](ctx, e);
}

/* --- First writes: the I/O's thread --- */

void lvol_events_copy_begins(const struct bdev_io *io, const struct bdev_lvol *l, const struct lvol_live_fill *f)
{
	TRACE(LVOL_COPY_BEGIN, l->bdev.trace_owner, 0, (uintptr_t)io, f->n, f->cluster, f->source, f->external);
	USDT(lvol_copy_begin, l->bdev.name, f->n, f->cluster, f->source, f->external);
}

void lvol_events_copy_ended(const struct bdev_io *io, const struct bdev_lvol *l, const struct lvol_live_fill *f,
			    uint16_t status)
{
	TRACE(LVOL_COPY_END, l->bdev.trace_owner, 0, (uintptr_t)io, f->n, f->cluster, status);
	USDT(lvol_copy_end, l->bdev.name, f->n, f->cluster, status);
}

/* Control thread. */
void lvol_events_allocated(const struct bdev_io *io, const struct bdev_lvol *l, const struct lvol_live_fill *f)
{
	TRACE(LVOL_ALLOCATED, l->bdev.trace_owner, 0, (uintptr_t)io, f->n, f->cluster);
	USDT(lvol_allocated, l->bdev.name, f->n, f->cluster);
}
