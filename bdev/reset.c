/* SPDX-License-Identifier: BSD-3-Clause */
/* RESET and ABORT.
 *
 * The control thread carries out a reset, one at a time for each bdev. It freezes every channel, so that new I/O waits;
 * ends the I/O that waits in the layer or is held back by the module; has the module reset the device, or, if the
 * module has no reset, waits until all I/O in flight has ended; and unfreezes the channels. */
#include <errno.h>

#include "bdev/internal.h"

#define DRAIN_CHECK_US 500
/* How long a module without a reset may take to end the I/O that it has; then the reset fails. */
#define DRAIN_LIMIT_S 15

/* --- On a channel --- */

static void reset_abort_split(struct bdev_channel *ch)
{
	struct bdev_io *io;

	TAILQ_FOREACH (io, &ch->inflight, link) {
		if (io->state == BDEV_IO_WAIT_CHILD || io->state == BDEV_IO_SPLIT) {
			(void)bdev_split_abort(io);
		} else {
			(void)bdev_lock_cancel(io, STATUS_ABORTED);
		}
	}
}

static void visit_reset_freeze(struct bdev_channel *ch, void *arg)
{
	const struct bdev *b = ch->bdev;

	ch->slow |= SLOW_FROZEN;
	bdev_io_fail_queue(&ch->qos_wait[RATE_READS], STATUS_ABORTED);
	bdev_io_fail_queue(&ch->qos_wait[RATE_WRITES], STATUS_ABORTED);
	bdev_io_fail_queue(&ch->lock_wait, STATUS_ABORTED);
	bdev_io_fail_queue(&ch->locks_wait, STATUS_ABORTED);
	bdev_io_fail_queue(&ch->nomem, STATUS_ABORTED);
	reset_abort_split(ch);
	if (b->ops->reset_channel != NULL) {
		b->ops->reset_channel(ch->bdev, ch->module);
	}
}

static void reset_start_waiting(struct bdev_channel *ch)
{
	struct bdev_io *io = STAILQ_FIRST(&ch->resets_wait);

	if (io != NULL) {
		STAILQ_REMOVE_HEAD(&ch->resets_wait, queue);
		bdev_reset_start(io);
	}
}

struct thaw {
	struct bdev_reset *reset;
	const struct bdev_channel *ch; /* of the reset; both may be gone once it has been visited */
	bool more;                     /* another reset follows: stay frozen */
};

static void visit_reset_thaw(struct bdev_channel *ch, void *arg)
{
	const struct thaw *thaw = arg;

	if (!thaw->more) {
		ch->slow &= ~(uint32_t)SLOW_FROZEN;
		bdev_io_requeue(&ch->frozen);
	}
	if (ch == thaw->ch) {
		struct bdev_io *io = thaw->reset->io;
		thaw->reset->io = NULL;
		io->flags &= (uint8_t)~IO_RESET;
		bdev_io_complete(io, thaw->reset->status);
		reset_start_waiting(ch);
	}
}

static void visit_reset_submit(struct bdev_channel *ch, void *arg)
{
	struct bdev_reset *r = arg;

	if (ch == r->ch) {
		r->io->flags |= IO_RESET;
		bdev_io_set_state(r->io, BDEV_IO_MODULE);
		r->io->stage = STAGE_HANDED;
		ch->submit(ch->module, r->io);
	}
}

static void visit_reset_count(struct bdev_channel *ch, void *arg)
{
	const struct bdev_io *io;
	uint64_t *busy = arg;

	TAILQ_FOREACH (io, &ch->inflight, link) {
		*busy += io->type != BDEV_IO_RESET && io->state != BDEV_IO_WAIT_FREEZE;
	}
}

/* --- Control thread --- */

static void reset_run_first(struct bdev_core *core);

static void reset_finish_first(struct bdev_core *core, uint16_t status)
{
	struct bdev_reset *r = TAILQ_FIRST(&core->resets);
	struct thaw thaw = {.reset = r, .ch = r->ch, .more = TAILQ_NEXT(r, link) != NULL};

	r->status = status;
	TAILQ_REMOVE(&core->resets, r, link);
	if (!thaw.more) {
		pthread_mutex_lock(&core->mutex);
		core->new_channel_slow &= ~(uint32_t)SLOW_FROZEN;
		pthread_mutex_unlock(&core->mutex);
	}
	bdev_visit_channels(core->bdev, visit_reset_thaw, &thaw);
	if (thaw.more) {
		reset_run_first(core);
	}
}

static void reset_check_drained(struct bdev_core *core)
{
	const struct bdev_reset *r = TAILQ_FIRST(&core->resets);
	uint64_t busy = 0;

	bdev_visit_channels(core->bdev, visit_reset_count, &busy);
	if (busy == 0) {
		reset_finish_first(core, 0);
	} else if (env_ticks() - r->started_ticks > DRAIN_LIMIT_S * env_ticks_hz()) {
		log_error("bdev %s: reset failed: %lu I/Os still in flight after %u s", core->bdev->name, busy,
			  DRAIN_LIMIT_S);
		reset_finish_first(core, NVME_SC_INTERNAL);
	} else {
		thread_timer_start(&core->reset_timer, DRAIN_CHECK_US);
	}
}

void bdev_reset_timer(void *arg)
{
	reset_check_drained(arg);
}

static void reset_run_first(struct bdev_core *core)
{
	struct bdev_reset *r = TAILQ_FIRST(&core->resets);

	r->started_ticks = env_ticks();
	pthread_mutex_lock(&core->mutex);
	core->new_channel_slow |= SLOW_FROZEN;
	pthread_mutex_unlock(&core->mutex);
	bdev_visit_channels(core->bdev, visit_reset_freeze, NULL);
	if (core->bdev->io_types & 1u << BDEV_IO_RESET) {
		bdev_visit_channels(core->bdev, visit_reset_submit, r);
	} else {
		reset_check_drained(core);
	}
}

static void reset_start_message(struct thread_msg *msg)
{
	struct bdev_reset *r = container_of(msg, struct bdev_reset, msg);
	struct bdev_core *core = r->bdev->core;
	bool first = TAILQ_EMPTY(&core->resets);

	TAILQ_INSERT_TAIL(&core->resets, r, link);
	if (first) {
		reset_run_first(core);
	}
}

static void reset_module_done_message(struct thread_msg *msg)
{
	struct bdev_reset *r = container_of(msg, struct bdev_reset, msg);

	reset_finish_first(r->bdev->core, r->status);
}

/* --- The channel's thread --- */

void bdev_reset_start(struct bdev_io *io)
{
	struct bdev_channel *ch = io->ch;
	struct bdev_reset *r = &ch->reset;

	bdev_io_set_state(io, BDEV_IO_WAIT_FREEZE);
	if (r->io != NULL) {
		STAILQ_INSERT_TAIL(&ch->resets_wait, io, queue);
		return;
	}
	r->ch = ch;
	r->io = io;
	r->bdev = ch->bdev;
	thread_post(thread_control(), &r->msg, reset_start_message);
}

void bdev_reset_module_done(struct bdev_io *io)
{
	struct bdev_reset *r = &io->ch->reset;

	bdev_io_set_state(io, BDEV_IO_WAIT_FREEZE);
	r->status = io->status;
	thread_post(thread_control(), &r->msg, reset_module_done_message);
}

/* --- ABORT --- */

/* True if target waited in the layer and has ended, or will soon without being carried out. */
static bool abort_if_waiting(struct bdev_channel *ch, struct bdev_io *target)
{
	if (bdev_io_queue_remove(&ch->frozen, target) || bdev_io_queue_remove(&ch->qos_wait[RATE_READS], target) ||
	    bdev_io_queue_remove(&ch->qos_wait[RATE_WRITES], target) || bdev_io_queue_remove(&ch->lock_wait, target) ||
	    bdev_io_queue_remove(&ch->locks_wait, target) || bdev_io_queue_remove(&ch->nomem, target)) {
		bdev_io_complete(target, STATUS_ABORTED);
		return true;
	}
	if (target->state == BDEV_IO_WAIT_CHILD || target->state == BDEV_IO_SPLIT) {
		return bdev_split_abort(target);
	}
	return bdev_lock_cancel(target, STATUS_ABORTED);
}

static bool is_in_flight(const struct bdev_channel *ch, const struct bdev_io *target)
{
	const struct bdev_io *io;

	TAILQ_FOREACH (io, &ch->inflight, link) {
		if (io == target) {
			return true;
		}
	}
	return false;
}

/* Always succeeds; cdw0 says whether the target was aborted (NVMe base specification, Abort command). */
void bdev_abort_start(struct bdev_io *io)
{
	struct bdev_channel *ch = io->ch;
	struct bdev_io *target = io->abort.target;

	if (target == io || !is_in_flight(ch, target)) {
		bdev_io_complete_cdw0(io, 0, 1);
	} else if (abort_if_waiting(ch, target)) {
		bdev_io_complete_cdw0(io, 0, 0);
	} else if (target->state == BDEV_IO_MODULE && (ch->bdev->io_types & 1u << BDEV_IO_ABORT)) {
		bdev_io_trace_dispatch(io);
		bdev_io_set_state(io, BDEV_IO_MODULE);
		io->stage = STAGE_HANDED;
		ch->submit(ch->module, io);
	} else {
		bdev_io_complete_cdw0(io, 0, 1);
	}
}
