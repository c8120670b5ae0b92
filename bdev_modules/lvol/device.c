/* SPDX-License-Identifier: BSD-3-Clause */
/* What a store asks of this module: I/O on the base from the control thread, grace periods, and pauses of volumes. */
#include <assert.h>
#include <errno.h>
#include <rte_common.h>
#include <stdlib.h>
#include <string.h>

#include "bdev_modules/lvol/internal.h"
#include "util/compiler.h"
#include "util/log.h"

#define RESERVED_OPS 16u /* for when there is no memory; the engine writes little at a time */

/* --- I/O of the store itself --- */

#define RETRY_US 10000u /* until an operation is tried again for which there was no memory */

struct device_op {
	struct vbdev_meta_op op;
	struct bdev_lvol_store *store;
	lvol_live_done done;
	void *arg;
	struct thread_timer timer;
	bool retried;
	STAILQ_ENTRY(device_op) link; /* in the reserve */
};

int lvol_device_init(struct bdev_lvol_store *s)
{
	STAILQ_INIT(&s->reserve);
	s->reserve_memory = calloc(RESERVED_OPS, sizeof(*s->reserve_memory));
	for (unsigned i = 0; s->reserve_memory != NULL && i < RESERVED_OPS; i++) {
		STAILQ_INSERT_TAIL(&s->reserve, &s->reserve_memory[i], link);
	}
	return s->reserve_memory != NULL ? 0 : -ENOMEM;
}

static struct device_op *device_op_new(struct bdev_lvol_store *s)
{
	struct device_op *d = calloc(1, sizeof(*d));

	if (d == NULL && (d = STAILQ_FIRST(&s->reserve)) != NULL) {
		STAILQ_REMOVE_HEAD(&s->reserve, link);
		memset(d, 0, sizeof(*d));
	}
	return d;
}

static void device_op_free(struct bdev_lvol_store *s, struct device_op *d)
{
	if (d >= s->reserve_memory && d < s->reserve_memory + RESERVED_OPS) {
		STAILQ_INSERT_HEAD(&s->reserve, d, link);
	} else {
		free(d);
	}
}

static void device_op_retry(void *arg)
{
	struct device_op *d = arg;

	vbdev_meta_start(d->store->meta, &d->op);
}

/* A store whose metadata cannot be written changes nothing until it is opened anew; a lack of memory passes. Reads, and
 * with them what opens a store, may fail. */
static bool device_op_waits_for_memory(struct device_op *d)
{
	const struct bdev_lvol_store *s = d->store;

	if (d->op.error != -ENOMEM || d->op.status != 0 || d->op.type == BDEV_IO_READ) {
		return false;
	}
	if (!d->retried) {
		log_warning("lvol store on bdev %s: out of memory for a %s of metadata, which is tried again",
			    s->base_name, bdev_io_type_name(d->op.type));
	}
	d->retried = true;
	d->timer = (struct thread_timer){.fn = device_op_retry, .arg = d};
	thread_timer_start(&d->timer, RETRY_US);
	return true;
}

static void device_op_done(struct vbdev_meta_op *op)
{
	struct device_op *d = container_of(op, struct device_op, op);

	if (device_op_waits_for_memory(d)) {
		return;
	}
	lvol_live_done done = d->done;
	void *arg = d->arg;
	int error = op->error;

	device_op_free(d->store, d);
	done(arg, error);
}

static void device_start(void *ctx, enum bdev_io_type type, uint64_t offset, void *data, uint64_t bytes,
			 lvol_live_done done, void *arg)
{
	struct bdev_lvol_store *s = ctx;
	struct device_op *d = device_op_new(s);

	if (d == NULL) {
		done(arg, -ENOMEM);
		return;
	}
	d->store = s;
	d->op.type = type;
	d->op.offset_blocks = offset / s->base_block_bytes;
	d->op.num_blocks = bytes / s->base_block_bytes;
	d->op.data = data;
	d->op.done = device_op_done;
	d->done = done;
	d->arg = arg;
	vbdev_meta_start(s->meta, &d->op);
}

static void base_io_read(void *ctx, uint64_t offset, void *to, size_t bytes, lvol_live_done done, void *arg)
{
	device_start(ctx, BDEV_IO_READ, offset, to, bytes, done, arg);
}

static void base_io_write(void *ctx, uint64_t offset, const void *from, size_t bytes, lvol_live_done done, void *arg)
{
	device_start(ctx, BDEV_IO_WRITE, offset, (void *)(uintptr_t)from, bytes, done, arg);
}

static void base_io_flush(void *ctx, lvol_live_done done, void *arg)
{
	const struct bdev_lvol_store *s = ctx;

	device_start(ctx, BDEV_IO_FLUSH, 0, NULL, bdev_num_blocks(bdev_desc_bdev(s->base)) * s->base_block_bytes, done,
		     arg);
}

static void device_write_zeroes(void *ctx, uint64_t offset, uint64_t bytes, lvol_live_done done, void *arg)
{
	device_start(ctx, BDEV_IO_WRITE_ZEROES, offset, NULL, bytes, done, arg);
}

static void device_unmap(void *ctx, uint64_t offset, uint64_t bytes, lvol_live_done done, void *arg)
{
	device_start(ctx, BDEV_IO_UNMAP, offset, NULL, bytes, done, arg);
}

/* --- Grace periods --- */

static void grace_start(struct bdev_lvol_store *s);

static void grace_ended(struct thread_msg *msg)
{
	struct grace *g = container_of(msg, struct grace, msg);
	struct bdev_lvol_store *s = container_of(g, struct bdev_lvol_store, grace);
	struct grace_waiters ended = STAILQ_HEAD_INITIALIZER(ended);
	struct grace_waiter *w;

	STAILQ_CONCAT(&ended, &g->waiting);
	g->running = false;
	if (!STAILQ_EMPTY(&g->next)) {
		STAILQ_CONCAT(&g->waiting, &g->next);
		grace_start(s);
	}
	while ((w = STAILQ_FIRST(&ended)) != NULL) {
		STAILQ_REMOVE_HEAD(&ended, link);
		lvol_live_done done = w->done;
		void *arg = w->arg;
		STAILQ_INSERT_TAIL(&g->free, w, link);
		done(arg, 0); /* closes the store only from a message of its own */
	}
}

static void grace_put(struct grace *g)
{
	/* Pairs with the other channels' decrements: their I/O has ended when the period has. */
	if (atomic_fetch_sub_explicit(&g->left, 1, memory_order_acq_rel) == 1) {
		thread_post(thread_control(), &g->msg, grace_ended);
	}
}

COLD void lvol_grace_report(struct store_channel *sc)
{
	sc->grace_reports = false;
	grace_put(&sc->store->grace);
}

static void grace_visit(void *channel, void *arg)
{
	struct store_channel *sc = channel;
	uint8_t old = sc->parity;

	sc->parity = old ^ 1;
	if (sc->inflight[old] != 0) {
		sc->grace_reports = true;
		atomic_fetch_add_explicit(&sc->store->grace.left, 1, memory_order_relaxed);
	}
}

static void grace_start(struct bdev_lvol_store *s)
{
	s->grace.running = true;
	atomic_store(&s->grace.left, 1);
	io_device_for_each_channel(&s->device, grace_visit, NULL);
	grace_put(&s->grace);
}

static void device_synchronize(void *ctx, lvol_live_done done, void *arg)
{
	struct bdev_lvol_store *s = ctx;
	struct grace_waiter *w = STAILQ_FIRST(&s->grace.free);

	assert(w != NULL);
	STAILQ_REMOVE_HEAD(&s->grace.free, link);
	w->done = done;
	w->arg = arg;
	STAILQ_INSERT_TAIL(s->grace.running ? &s->grace.next : &s->grace.waiting, w, link);
	if (!s->grace.running) {
		grace_start(s);
	}
}

/* --- Pauses --- */

static void pause_end(struct thread_msg *msg)
{
	struct bdev_lvol *l = container_of(msg, struct bdev_lvol, pause_msg);
	lvol_live_done done = l->pause_done;
	void *arg = l->pause_arg;

	done(arg, 0);
	lvol_volume_put(l);
}

static void pause_put(struct bdev_lvol *l)
{
	if (atomic_fetch_sub_explicit(&l->pause_left, 1, memory_order_acq_rel) == 1) {
		thread_post(thread_control(), &l->pause_msg, pause_end);
	}
}

COLD void lvol_pause_report(struct lvol_channel *ch)
{
	ch->pause_reports = false;
	pause_put(ch->lvol);
}

static void pause_visit(struct bdev *b, void *channel, void *arg)
{
	struct lvol_channel *ch = channel;

	ch->paused = true;
	if (ch->writes != 0) {
		ch->pause_reports = true;
		atomic_fetch_add_explicit(&ch->lvol->pause_left, 1, memory_order_relaxed);
	}
}

/* For channels that are made from now on. One that is being made may have looked before, and not yet be among those
 * that are visited: after the grace period it is. */
static void set_paused(struct bdev_lvol *l, bool paused)
{
	atomic_store(&l->paused, paused);
	thread_synchronize();
}

static void device_pause(void *ctx, struct lvol_live_volume *v, lvol_live_done done, void *arg)
{
	struct bdev_lvol *l = v->user;

	atomic_fetch_add(&l->refs, 1);
	l->pause_done = done;
	l->pause_arg = arg;
	atomic_store(&l->pause_left, 1);
	set_paused(l, true);
	bdev_visit_module_channels(&l->bdev, pause_visit, NULL);
	pause_put(l);
}

static void resume_visit(struct bdev *b, void *channel, void *arg)
{
	struct lvol_channel *ch = channel;

	ch->paused = false;
	lvol_io_resume(ch);
}

/* The volume may have become read-only. Its bdev may have gone meanwhile, with all its I/O. */
static void device_resume(void *ctx, struct lvol_live_volume *v)
{
	struct bdev_lvol *l = v->user;

	if (l != NULL) {
		l->bdev.read_only = v->read_only;
		set_paused(l, false);
		bdev_visit_module_channels(&l->bdev, resume_visit, NULL);
	}
}

void lvol_grace_init(struct grace *g)
{
	STAILQ_INIT(&g->waiting);
	STAILQ_INIT(&g->next);
	STAILQ_INIT(&g->free);
	for (unsigned i = 0; i < GRACE_WAITERS; i++) {
		STAILQ_INSERT_TAIL(&g->free, &g->room[i], link);
	}
}

void lvol_device_fill_in(struct bdev_lvol_store *s, struct lvol_live_user *u)
{
	const struct bdev *base = bdev_desc_bdev(s->base);

	*u = (struct lvol_live_user){
		.ctx = s,
		.size_bytes = bdev_num_blocks(base) * s->base_block_bytes,
		.block_bytes = s->base_block_bytes,
		.read = base_io_read,
		.write = base_io_write,
		.flush = base_io_flush,
		.write_zeroes = device_write_zeroes,
		.unmap = bdev_io_type_supported(base, BDEV_IO_UNMAP) ? device_unmap : NULL,
		.synchronize = device_synchronize,
		.pause = device_pause,
		.resume = device_resume,
		.external_read = lvol_external_read,
		.external_changes = lvol_external_switch,
		.space_changed = lvol_space_changed,
		.happened = lvol_events_happened,
	};
}
