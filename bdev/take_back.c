/* SPDX-License-Identifier: BSD-3-Clause */
/* Taking back what has not begun: the end of an I/O for a submitter that must know that nothing of it is carried out
 * later. Nothing here touches the device. */
#include "bdev/internal.h"

static bool take_out_of(struct bdev_io_queue *q, struct bdev_io *io)
{
	if (!bdev_io_queue_remove(q, io)) {
		return false;
	}
	bdev_io_complete(io, STATUS_ABORTED);
	return true;
}

/* An emulated COMPARE_AND_WRITE that the control thread has in its queue of locks ends when it gets the lock. */
static void take_back_lock_waiter(struct bdev_channel *ch, struct bdev_io *io)
{
	if (!take_out_of(&ch->lock_wait, io) && !take_out_of(&ch->locks_wait, io)) {
		io->flags |= IO_ABORTED;
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
		bdev_split_abort(io);
		bdev_split_visit_children(io, take_back_child);
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
