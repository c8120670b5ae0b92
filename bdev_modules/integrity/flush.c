/* SPDX-License-Identifier: BSD-3-Clause */
/* FLUSHes. Some bases report data that they have lost to one FLUSH only, and the next one succeeds. So an error that
 * one FLUSH gets is for all who have written before it, be it a user or the module:
 *
 * - What the module has written is durable only if no FLUSH has failed since the write began. Otherwise it is written
 *   again (integrity_flush_is_void()). The second time the module has the turn over the write and its FLUSH
 *   (integrity_flush_turn()): or a user whose FLUSHes fail, or are aborted, would keep it from ending.
 * - The error of a FLUSH of the module is also that of the next FLUSH of a user, with the base's status: DNR tells
 *   whether the data are lost for good.
 *
 * For that it has to be known which FLUSH was first at the base. So those of users and those of the module take turns
 * there.
 *
 * A status that no user has been told outlives the bdev, for as long as the process: whoever makes the bdev again from
 * the same base gets it, and writes again what may only have been in a cache (open.c). */
#include <stdlib.h>

#include "bdev_modules/integrity/internal.h"
#include "util/log.h"

#define MODULES_TURN 0x80000000u

static void flush_next(struct integrity_bdev *d);
static void flush_now(struct integrity_bdev *d);

void integrity_flush_init(struct integrity_bdev *d)
{
	STAILQ_INIT(&d->flush_queue);
	STAILQ_INIT(&d->flush_turns);
	STAILQ_INIT(&d->flush_joined);
	STAILQ_INIT(&d->flush_waiters);
}

/* --- Statuses that no user has been told --- */

struct untold_flush {
	LIST_ENTRY(untold_flush) link;
	uint64_t id; /* of the layout */
	uint16_t status;
};
static LIST_HEAD(, untold_flush) untold_flushes = LIST_HEAD_INITIALIZER(untold_flushes);

void integrity_flush_lost(struct integrity_bdev *d, uint16_t status)
{
	if (!(atomic_load(&d->flush_untold) & NVME_SC_DNR)) {
		atomic_store(&d->flush_untold, status);
	}
}

void integrity_flush_remember(struct integrity_bdev *d)
{
	uint16_t status = atomic_load(&d->flush_untold);

	if (status == 0) {
		return;
	}
	struct untold_flush *u = calloc(1, sizeof(*u));
	if (u == NULL) {
		log_error("bdev %s: a flush of bdev %s has failed, and there is no memory to tell the next user of it",
			  d->name, d->base_name);
		return;
	}
	u->id = d->layout.id;
	u->status = status;
	LIST_INSERT_HEAD(&untold_flushes, u, link);
}

static void untold_free(struct untold_flush *u)
{
	LIST_REMOVE(u, link);
	free(u);
}

void integrity_flush_recall(struct integrity_bdev *d)
{
	struct untold_flush *u, *next;

	for (u = LIST_FIRST(&untold_flushes); u != NULL; u = next) {
		next = LIST_NEXT(u, link);
		if (u->id == d->layout.id) {
			integrity_flush_lost(d, u->status);
			untold_free(u);
		}
	}
}

void integrity_flush_fini(void)
{
	while (!LIST_EMPTY(&untold_flushes)) {
		untold_free(LIST_FIRST(&untold_flushes));
	}
}

/* --- Those of users --- */

bool integrity_flush_enter(struct integrity_bdev *d)
{
	uint32_t n = atomic_load(&d->user_flushes);

	while (!(n & MODULES_TURN)) {
		if (atomic_compare_exchange_weak(&d->user_flushes, &n, n + 1)) {
			return true;
		}
	}
	return false;
}

static void users_are_done(struct thread_msg *msg)
{
	flush_next(container_of(msg, struct integrity_bdev, flush_msg));
}

void integrity_flush_leave(struct integrity_bdev *d)
{
	if (atomic_fetch_sub(&d->user_flushes, 1) == (MODULES_TURN | 1)) {
		thread_post(thread_control(), &d->flush_msg, users_are_done);
	}
}

uint16_t integrity_flush_ended(struct integrity_bdev *d, uint16_t status, bool touched)
{
	if (status == 0) {
		status = atomic_exchange(&d->flush_untold, 0);
	} else if (touched) {
		atomic_fetch_add(&d->flush_failures, 1);
	}
	integrity_flush_leave(d);
	return status;
}

static void users_turn(struct integrity_bdev *d)
{
	const struct integrity_io *ctx;
	uint32_t n = 0;

	STAILQ_FOREACH (ctx, &d->flush_waiters, link) {
		n++;
	}
	atomic_store(&d->user_flushes, n);
	integrity_flushes_enter(d);
}

/* --- Those of the module --- */

/* If it has something to flush: as soon as no user's FLUSH is at the base. */
static void modules_turn(struct integrity_bdev *d)
{
	bool wants = !STAILQ_EMPTY(&d->flush_queue) || !STAILQ_EMPTY(&d->flush_turns);

	if (!d->flushing && wants) {
		d->flushing = true;
		if (atomic_fetch_or(&d->user_flushes, MODULES_TURN) == 0) {
			flush_next(d);
		}
	}
}

static void own_flush_ended(struct integrity_op *flush, int rc)
{
	struct integrity_bdev *d = flush->d;
	struct integrity_op *o;

	if (rc != 0) {
		atomic_fetch_add(&d->flush_failures, 1);
	} else {
		integrity_works(d, &d->flush_fails);
	}
	users_turn(d);
	while ((o = STAILQ_FIRST(&d->flush_joined)) != NULL) {
		STAILQ_REMOVE_HEAD(&d->flush_joined, link);
		o->op.error = rc;
		o->op.status = flush->op.status;
		o->done(o, rc);
	}
	d->flushing = false;
	modules_turn(d);
}

/* It is the module's turn, and no user's FLUSH is at the base. */
static void flush_next(struct integrity_bdev *d)
{
	struct integrity_op *o = STAILQ_FIRST(&d->flush_turns);

	if (o != NULL) {
		STAILQ_REMOVE_HEAD(&d->flush_turns, link);
		d->flush_holder = o;
		o->done(o, 0);
		return;
	}
	flush_now(d);
}

static void flush_now(struct integrity_bdev *d)
{
	STAILQ_CONCAT(&d->flush_joined, &d->flush_queue);
	integrity_op_start(d, &d->flush_op, BDEV_IO_FLUSH, 0, 0, NULL, own_flush_ended);
}

void integrity_flush(struct integrity_bdev *d, struct integrity_op *o, void (*done)(struct integrity_op *o, int rc))
{
	*o = (struct integrity_op){.d = d, .done = done};
	STAILQ_INSERT_TAIL(&d->flush_queue, o, link);
	if (o == d->flush_holder) {
		d->flush_holder = NULL;
		flush_now(d);
	} else {
		modules_turn(d);
	}
}

void integrity_flush_turn(struct integrity_bdev *d, struct integrity_op *o,
			  void (*done)(struct integrity_op *o, int rc))
{
	*o = (struct integrity_op){.d = d, .done = done};
	STAILQ_INSERT_TAIL(&d->flush_turns, o, link);
	modules_turn(d);
}

void integrity_flush_turn_end(struct integrity_bdev *d, const struct integrity_op *o)
{
	if (o == d->flush_holder) {
		d->flush_holder = NULL;
		users_turn(d);
		d->flushing = false;
		modules_turn(d);
	}
}
