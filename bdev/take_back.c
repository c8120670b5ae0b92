/* SPDX-License-Identifier: BSD-3-Clause */
/* Taking back what has not begun: the end of an I/O for a submitter that must know that nothing of it is carried out
 * later. Nothing here touches the device. */
#include "bdev/internal.h"

static bool take_out_of(struct bdev_io_queue *q, struct bdev_io *io)
{
	if (!bdev_io_queue_remove(q, io)) {
		return false;
	}
	bdev_io_end_waiting(io, STATUS_ABORTED);
	return true;
}

/* An emulated COMPARE_AND_WRITE that gives its lock back has been carried out. */
static void take_back_lock_waiter(struct bdev_channel *ch, struct bdev_io *io)
{
	if (!take_out_of(&ch->lock_wait, io) && !take_out_of(&ch->locks_wait, io)) {
		(void)bdev_lock_cancel(io, STATUS_ABORTED);
	}
}

static void take_back_split(struct bdev_io *io)
{
	uint8_t stage = io->stage;

	if (bdev_split_must_end(io)) {
		return;
	}
	/* before it ends */
	io->stage = bdev_split_is_untouched(io) ? STAGE_UNTOUCHED : stage;
	if (!bdev_split_abort(io)) {
		io->stage = stage;
	}
}

static void take_back_child(struct bdev_io *child);

static void take_back_child_not_begun(struct bdev_io *child)
{
	if (child->stage != STAGE_BEGUN) {
		take_back_child(child);
	}
}

/* An emulated COMPARE_AND_WRITE that writes one block has one child: either it is carried out, or nothing is. */
static void take_back_split_and_children(struct bdev_io *io)
{
	take_back_split(io);
	if (!bdev_split_must_end(io)) {
		bdev_split_visit_children(io, take_back_child);
	} else if (io->num_blocks == 1) {
		bdev_split_visit_children(io, take_back_child_not_begun);
	}
}

static void take_back_from_module(struct bdev_channel *ch, struct bdev_io *io)
{
	if (ch->bdev->ops->take_back != NULL && io->type != BDEV_IO_RESET && io->type != BDEV_IO_ABORT) {
		ch->bdev->ops->take_back(ch->module, io);
	}
}

static void take_back_child(struct bdev_io *child)
{
	if (child->state == BDEV_IO_WAIT_NOMEM) {
		take_out_of(&child->ch->nomem, child);
	} else if (child->state == BDEV_IO_MODULE) {
		take_back_from_module(child->ch, child);
	}
}

static void take_back_inside(struct bdev_channel *ch, struct bdev_io *io)
{
	switch ((enum bdev_io_state)io->state) {
	case BDEV_IO_WAIT_FREEZE:
		take_out_of(&ch->frozen, io);
		break;
	case BDEV_IO_WAIT_QOS:
		take_out_of(&ch->qos_wait[bdev_qos_kind_of(io)], io);
		break;
	case BDEV_IO_WAIT_LOCK:
		take_back_lock_waiter(ch, io);
		break;
	case BDEV_IO_WAIT_NOMEM:
		take_out_of(&ch->nomem, io);
		break;
	case BDEV_IO_WAIT_CHILD:
	case BDEV_IO_SPLIT:
		take_back_split_and_children(io);
		break;
	case BDEV_IO_MODULE:
		take_back_from_module(ch, io);
		break;
	case BDEV_IO_IDLE:
	case BDEV_IO_ZCOPY_OPEN:
	case BDEV_IO_DONE:
	case BDEV_IO_STATES:
		break;
	}
}

void bdev_io_take_back(struct bdev_io *io)
{
	struct bdev_thread *t = io->ch->thread;

	bdev_enter(t);
	take_back_inside(io->ch, io);
	bdev_leave(t);
}

/* --- All of a user's --- */

static bool io_is_of(const struct bdev_io *io, const struct bdev_desc *desc)
{
	return io->desc == desc && io->type != BDEV_IO_ABORT && io->type != BDEV_IO_RESET;
}

/* One pass, however many wait. */
static void take_untouched_out_of(struct bdev_io_queue *q, const struct bdev_desc *desc)
{
	struct bdev_io_queue all = STAILQ_HEAD_INITIALIZER(all);
	struct bdev_io *io;

	STAILQ_CONCAT(&all, q);
	while ((io = STAILQ_FIRST(&all)) != NULL) {
		STAILQ_REMOVE_HEAD(&all, queue);
		if (io_is_of(io, desc) && bdev_io_is_untouched(io)) {
			bdev_io_end_waiting(io, STATUS_ABORTED);
		} else {
			STAILQ_INSERT_TAIL(q, io, queue);
		}
	}
}

static void take_back_untouched(struct bdev_channel *ch, struct bdev_io *io)
{
	if (io->state == BDEV_IO_WAIT_LOCK) {
		take_back_lock_waiter(ch, io);
	} else if ((io->state == BDEV_IO_WAIT_CHILD || io->state == BDEV_IO_SPLIT) && bdev_split_is_untouched(io)) {
		take_back_split(io);
	}
}

void bdev_channel_take_back(struct bdev_channel *ch, const struct bdev_desc *desc, bool begun_too)
{
	struct bdev_thread *t = ch->thread;
	struct bdev_io *io;

	bdev_enter(t); /* nothing leaves the list of those in flight meanwhile */
	take_untouched_out_of(&ch->frozen, desc);
	take_untouched_out_of(&ch->qos_wait[RATE_READS], desc);
	take_untouched_out_of(&ch->qos_wait[RATE_WRITES], desc);
	take_untouched_out_of(&ch->lock_wait, desc);
	take_untouched_out_of(&ch->locks_wait, desc);
	take_untouched_out_of(&ch->nomem, desc);
	TAILQ_FOREACH (io, &ch->inflight, link) {
		if (!io_is_of(io, desc)) {
			continue;
		}
		(begun_too ? take_back_inside : take_back_untouched)(ch, io);
	}
	bdev_leave(t);
}
