/* SPDX-License-Identifier: BSD-3-Clause */
/* Range locks: they make an emulated COMPARE_AND_WRITE atomic against every other user of its blocks, on whatever
 * thread.
 *
 *     channel of the initiator	control thread			every channel
 *     bdev_lock_take() --post-->	queue; once no lock before it
 *     overlaps: visit	----------->	note the range: new writes to it wait;
 *     writes in flight there must end first
 *     <-------post----------	the last one to acknowledge, at once or then
 *     locked: compare, write <--post--
 *     bdev_lock_release() --post-->	visit ------------------------>	forget the range, continue what waits
 *     (in the initiator's visit, the I/O completes)
 *
 * Whoever holds the blocks may hold them for ever, on a device that does not answer. So an I/O that waits for its lock
 * can be taken back (bdev_lock_cancel()): the control thread then waits for nobody any more, and grants a lock that the
 * initiator gives back at once.
 *
 * The I/O is rare (VMware's ATS, cluster locks), so its price is two trips through the control thread, and the price
 * for all others is one bit test. */
#include <assert.h>

#include "bdev/internal.h"

static bool ranges_overlap(uint64_t first, uint64_t last, uint64_t other_first, uint64_t other_last)
{
	return first <= other_last && other_first <= last;
}

static bool io_writes_in_range(const struct bdev_io *io, uint64_t first, uint64_t last)
{
	return (bdev_io_traits(io->type) & TRAIT_WRITES) && (bdev_io_traits(io->type) & TRAIT_RANGE) &&
	       ranges_overlap(io->offset_blocks, io->offset_blocks + io->num_blocks - 1, first, last);
}

/* An emulated COMPARE_AND_WRITE, which takes a lock of its own. */
static bool takes_lock(const struct bdev_io *io)
{
	return io->type == BDEV_IO_COMPARE_AND_WRITE && io->lock != NULL;
}

bool bdev_lock_blocks(const struct bdev_channel *ch, const struct bdev_io *io)
{
	if (io->type == BDEV_IO_COMPARE_AND_WRITE && !(ch->bdev->io_types & 1u << BDEV_IO_COMPARE_AND_WRITE)) {
		return false; /* queues with the control thread */
	}
	for (unsigned i = 0; i < BDEV_LOCKS_ACTIVE; i++) {
		const struct bdev_locked *l = &ch->locked[i];
		if (l->lock != NULL && io_writes_in_range(io, l->first, l->last)) {
			return true;
		}
	}
	return false;
}

/* Whether an I/O that has passed the lock's stage may still change blocks of the range. */
static bool range_has_writes_in_flight(const struct bdev_channel *ch, const struct bdev_locked *l)
{
	const struct bdev_io *io;

	TAILQ_FOREACH (io, &ch->inflight, link) {
		switch ((enum bdev_io_state)io->state) {
		case BDEV_IO_IDLE:
		case BDEV_IO_WAIT_FREEZE:
		case BDEV_IO_WAIT_QOS:
		case BDEV_IO_WAIT_LOCK:
		case BDEV_IO_STATES:
			break;
		case BDEV_IO_ZCOPY_OPEN:
		case BDEV_IO_WAIT_NOMEM:
		case BDEV_IO_WAIT_CHILD:
		case BDEV_IO_SPLIT:
		case BDEV_IO_MODULE:
		case BDEV_IO_DONE:
			if (!takes_lock(io) && io_writes_in_range(io, l->first, l->last)) {
				return true;
			}
		}
	}
	return false;
}

/* --- Control thread --- */

static void lock_granted_message(struct thread_msg *msg)
{
	struct bdev_lock *lock = container_of(msg, struct bdev_lock, msg);

	bdev_enter(lock->ch->thread);
	if (lock->cancelled) {
		bdev_lock_release(lock->io, lock->cancel_status);
	} else {
		bdev_caw_locked(lock->io);
	}
	bdev_leave(lock->ch->thread);
}

static void lock_held_message(struct thread_msg *msg)
{
	struct bdev_lock *lock = container_of(msg, struct bdev_lock, msg);

	lock->state = LOCK_HELD;
	thread_post(lock->ch->thread->thread, &lock->msg, lock_granted_message);
}

/* Any thread. The message is part of the lock, because a channel may be destroyed as soon as it has acknowledged. */
static void lock_acknowledge(struct bdev_lock *lock)
{
	/* acquire and release: whoever comes last sees what the others wrote before */
	if (atomic_fetch_sub_explicit(&lock->acks_missing, 1, memory_order_acq_rel) == 1) {
		thread_post(thread_control(), &lock->msg, lock_held_message);
	}
}

static void lock_note(struct bdev_channel *ch, struct bdev_lock *lock, bool is_acked)
{
	for (unsigned i = 0; i < BDEV_LOCKS_ACTIVE; i++) {
		struct bdev_locked *l = &ch->locked[i];
		if (l->lock == lock) {
			return; /* inherited */
		}
	}
	for (unsigned i = 0; i < BDEV_LOCKS_ACTIVE; i++) {
		struct bdev_locked *l = &ch->locked[i];
		if (l->lock == NULL) {
			l->lock = lock;
			l->first = lock->first;
			l->last = lock->last;
			l->acked = is_acked || !range_has_writes_in_flight(ch, l);
			if (!l->acked) {
				/* the control thread is waiting for this visit, which counts too */
				atomic_fetch_add_explicit(&lock->acks_missing, 1, memory_order_relaxed);
			}
			ch->slow |= SLOW_LOCKED;
			return;
		}
	}
	abort(); /* lock_run_queue() lets no more than BDEV_LOCKS_ACTIVE be active */
}

static void visit_lock_note(struct bdev_channel *ch, void *arg)
{
	lock_note(ch, arg, false);
}

void bdev_lock_inherit(struct bdev_channel *ch)
{
	for (unsigned i = 0; i < BDEV_LOCKS_ACTIVE; i++) {
		struct bdev_lock *lock = ch->bdev->core->closing[i];
		if (lock != NULL) {
			lock_note(ch, lock, true); /* nothing is in flight on a new channel */
		}
	}
}

/* Adds lock to the active ones, where new channels find it. False: there are too many. */
static bool lock_activate(struct bdev_core *core, struct bdev_lock *lock)
{
	for (unsigned i = 0; i < BDEV_LOCKS_ACTIVE; i++) {
		if (core->closing[i] == NULL) {
			pthread_mutex_lock(&core->mutex);
			core->closing[i] = lock;
			pthread_mutex_unlock(&core->mutex);
			return true;
		}
	}
	return false;
}

static void lock_deactivate(struct bdev_core *core, struct bdev_lock *lock)
{
	pthread_mutex_lock(&core->mutex);
	for (unsigned i = 0; i < BDEV_LOCKS_ACTIVE; i++) {
		if (core->closing[i] == lock) {
			core->closing[i] = NULL;
		}
	}
	pthread_mutex_unlock(&core->mutex);
}

static bool lock_is_behind_another(const struct bdev_lock *lock)
{
	const struct bdev_lock *l;

	TAILQ_FOREACH (l, &lock->bdev->core->locks, link) {
		if (l == lock) {
			return false;
		}
		if (ranges_overlap(l->first, l->last, lock->first, lock->last)) {
			return true;
		}
	}
	return false;
}

static void lock_run_queue(struct bdev *b)
{
	struct bdev_lock *lock;

	TAILQ_FOREACH (lock, &b->core->locks, link) {
		if (lock->state != LOCK_QUEUED || lock_is_behind_another(lock)) {
			continue;
		}
		if (!lock_activate(b->core, lock)) {
			return;
		}
		lock->state = LOCK_CLOSING;
		atomic_store_explicit(&lock->acks_missing, 1, memory_order_relaxed); /* this visit's own */
		bdev_visit_channels(b, visit_lock_note, lock);
		lock_acknowledge(lock);
	}
}

static void lock_take_message(struct thread_msg *msg)
{
	struct bdev_lock *lock = container_of(msg, struct bdev_lock, msg);

	lock->state = LOCK_QUEUED;
	TAILQ_INSERT_TAIL(&lock->bdev->core->locks, lock, link);
	lock_run_queue(lock->bdev);
}

/* A write in flight is not waited for: the lock's owner does nothing with the blocks. */
static void visit_lock_acknowledge(struct bdev_channel *ch, void *arg)
{
	struct bdev_lock *lock = arg;

	for (unsigned i = 0; i < BDEV_LOCKS_ACTIVE; i++) {
		struct bdev_locked *l = &ch->locked[i];
		if (l->lock == lock && !l->acked) {
			l->acked = true;
			lock_acknowledge(lock);
		}
	}
}

/* Arrives behind the message that took the lock, and before the one that gives it back. */
static void lock_cancel_message(struct thread_msg *msg)
{
	struct bdev_lock *lock = container_of(msg, struct bdev_lock, cancel_msg);

	if (lock->state == LOCK_QUEUED) { /* no channel knows of it */
		lock->state = LOCK_HELD;
		thread_post(lock->ch->thread->thread, &lock->msg, lock_granted_message);
	} else if (lock->state == LOCK_CLOSING) {
		bdev_visit_channels(lock->bdev, visit_lock_acknowledge, lock);
	}
}

static void lock_start_waiting(struct bdev_channel *ch);

struct forget {
	struct bdev_lock *lock;
	const struct bdev_channel *ch; /* the initiator; both may be gone once it has been visited */
};

static void visit_lock_forget(struct bdev_channel *ch, void *arg)
{
	const struct forget *forget = arg;
	struct bdev_lock *lock = forget->lock;
	uint32_t left = 0;

	for (unsigned i = 0; i < BDEV_LOCKS_ACTIVE; i++) {
		if (ch->locked[i].lock == lock) {
			ch->locked[i].lock = NULL;
		}
		left += ch->locked[i].lock != NULL;
	}
	if (left == 0) {
		ch->slow &= ~(uint32_t)SLOW_LOCKED;
	}
	bdev_io_requeue(&ch->lock_wait);
	if (ch == forget->ch) {
		struct bdev_io *io = lock->io;
		lock->state = LOCK_FREE;
		lock->io = NULL;
		io->lock = NULL;
		bdev_io_complete(io, io->child_status);
		lock_start_waiting(ch);
	}
}

static void lock_release_message(struct thread_msg *msg)
{
	struct bdev_lock *lock = container_of(msg, struct bdev_lock, msg);
	struct bdev *b = lock->bdev;

	TAILQ_REMOVE(&b->core->locks, lock, link);
	lock_deactivate(b->core, lock);
	bdev_visit_channels(b, visit_lock_forget, &(struct forget){.lock = lock, .ch = lock->ch});
	/* The initiator, and with it the lock, may be gone now. */
	lock_run_queue(b);
}

/* --- The channels' threads --- */

static struct bdev_lock *lock_find_free(struct bdev_channel *ch)
{
	for (unsigned i = 0; i < BDEV_LOCKS_PER_CHANNEL; i++) {
		if (ch->locks[i].io == NULL) {
			return &ch->locks[i];
		}
	}
	return NULL;
}

void bdev_lock_take(struct bdev_io *io)
{
	struct bdev_channel *ch = io->ch;
	struct bdev_lock *lock = lock_find_free(ch);

	bdev_io_set_state(io, BDEV_IO_WAIT_LOCK);
	io->lock = lock;
	if (lock == NULL) {
		STAILQ_INSERT_TAIL(&ch->locks_wait, io, queue);
		return;
	}
	lock->ch = ch;
	lock->io = io;
	lock->bdev = ch->bdev;
	lock->cancelled = lock->released = false;
	lock->first = io->offset_blocks;
	lock->last = io->offset_blocks + io->num_blocks - 1;
	thread_post(thread_control(), &lock->msg, lock_take_message);
}

bool bdev_lock_cancel(struct bdev_io *io, uint16_t status)
{
	struct bdev_lock *lock = io->lock;

	if (io->state != BDEV_IO_WAIT_LOCK || !takes_lock(io)) {
		return false;
	}
	/* one that is being given back may be gone when a message arrives */
	if (lock->cancelled || lock->released || !bdev_io_is_untouched(io)) {
		return lock->cancelled;
	}
	io->stage = STAGE_UNTOUCHED;
	lock->cancelled = true;
	lock->cancel_status = status;
	thread_post(thread_control(), &lock->cancel_msg, lock_cancel_message);
	return true;
}

static void lock_start_waiting(struct bdev_channel *ch)
{
	struct bdev_io *io = STAILQ_FIRST(&ch->locks_wait);

	if (io != NULL) {
		STAILQ_REMOVE_HEAD(&ch->locks_wait, queue);
		bdev_lock_take(io);
	}
}

void bdev_lock_release(struct bdev_io *io, uint16_t status)
{
	struct bdev_lock *lock = io->lock;

	bdev_io_set_state(io, BDEV_IO_WAIT_LOCK);
	io->child_status = status;
	lock->released = true;
	thread_post(thread_control(), &lock->msg, lock_release_message);
}

void bdev_lock_check_acks(struct bdev_channel *ch)
{
	for (unsigned i = 0; i < BDEV_LOCKS_ACTIVE; i++) {
		struct bdev_locked *l = &ch->locked[i];
		if (l->lock != NULL && !l->acked && !range_has_writes_in_flight(ch, l)) {
			l->acked = true;
			lock_acknowledge(l->lock);
		}
	}
}
