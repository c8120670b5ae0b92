/* SPDX-License-Identifier: BSD-3-Clause */
/* The way of an I/O: submit, stages, module, completion. Everything here runs on the channel's thread. */
#include <assert.h>
#include <errno.h>

#include "bdev/internal.h"

/* Completions that one completion frame, or one call of the thread's poller, runs at most, so that other pollers get
 * their turn. */
#define DRAIN_BUDGET 64

static inline uint16_t io_check_range(const struct bdev *b, const struct bdev_io *io)
{
	uint64_t size = __atomic_load_n(&b->num_blocks, __ATOMIC_RELAXED); /* pairs with bdev_resize() */
	if (unlikely(io->num_blocks == 0 || io->offset_blocks >= size || io->num_blocks > size - io->offset_blocks)) {
		return STATUS_OUT_OF_RANGE;
	}
	return 0;
}

/* Checks the source range of a COPY, whose destination has been checked. */
static uint16_t io_check_source(const struct bdev *b, const struct bdev_io *io)
{
	uint64_t size = __atomic_load_n(&b->num_blocks, __ATOMIC_RELAXED);
	uint64_t from = io->copy.src_offset_blocks, to = io->offset_blocks;

	if (from >= size || io->num_blocks > size - from) {
		return STATUS_OUT_OF_RANGE;
	}
	return (from > to ? from - to : to - from) < io->num_blocks ? STATUS_OVERLAP : 0;
}

static inline uint16_t io_check_permission(const struct bdev *b, const struct bdev_io *io)
{
	if (unlikely(!io->desc->write)) {
		return STATUS_DENIED;
	}
	return unlikely(b->read_only) ? STATUS_READ_ONLY : 0;
}

/* Checks the I/O's own fields: 0, or the status that it is to end with. Changes nothing. */
static inline uint16_t io_check(const struct bdev *b, const struct bdev_io *io)
{
	if (unlikely(io->type >= BDEV_IO_TYPES)) {
		return STATUS_INVALID_TYPE;
	}
	uint8_t traits = bdev_io_traits(io->type);
	if (unlikely(!(b->io_types & 1u << io->type)) && !(traits & TRAIT_EMULATED)) {
		return STATUS_INVALID_TYPE;
	}
	uint16_t status;
	if ((traits & TRAIT_RANGE) && unlikely((status = io_check_range(b, io)) != 0)) {
		return status;
	}
	if ((traits & TRAIT_WRITES) && unlikely((status = io_check_permission(b, io)) != 0)) {
		return status;
	}
	if (unlikely(traits & TRAIT_SOURCE) && (status = io_check_source(b, io)) != 0) {
		return status;
	}
	if (traits & TRAIT_DATA) {
		size_t bytes = io->num_blocks * b->block_size, given = iov_length(io->iovs, io->iovcnt);
		if (unlikely(given != bytes) && !bdev_dif_length_is_good(b, io, given)) {
			return STATUS_BAD_LENGTH;
		}
		if (io->type == BDEV_IO_COMPARE_AND_WRITE &&
		    iov_length(io->compare.iovs, io->compare.iovcnt) != given) {
			return STATUS_BAD_LENGTH;
		}
	}
	return 0;
}

/* --- Times (enum bdev_stat_class says which are exact) --- */

/* Whether io's exact time counts for the statistics. Counts io. now: of the round. */
static ALWAYS_INLINE bool io_is_sample(struct bdev_channel *ch, const struct bdev_io *io, uint64_t now)
{
	return unlikely(io->type > BDEV_IO_WRITE) || unlikely(--ch->until_sample[io->type] == 0) ||
	       unlikely(latency_period(now) != ch->sample_period);
}

static void io_next_sample(struct bdev_channel *ch, const struct bdev_io *io)
{
	ch->sample_period = latency_period(io->submit_ticks);
	if (io->type <= BDEV_IO_WRITE && ch->until_sample[io->type] == 0) {
		ch->until_sample[io->type] = latency_until_sample(&ch->first_samples_left[io->type]);
	}
}

/* Reads the clock for io at its submission. */
static NOINLINE void io_begin_exact(struct bdev_channel *ch, struct bdev_io *io, bool sampled)
{
	uint64_t ticks = env_ticks() - io->submit_ticks;

	io->flags |= IO_EXACT;
	io->sampled = sampled;
	io->exact_ticks = ticks < UINT32_MAX ? (uint32_t)ticks : UINT32_MAX;
	if (sampled) {
		io_next_sample(ch, io);
	}
}

/* At the end of an I/O with IO_EXACT. */
static uint64_t io_exact_time(const struct bdev_io *io)
{
	int64_t ticks = (int64_t)(env_ticks() - io->submit_ticks - io->exact_ticks);
	return ticks > 0 ? (uint64_t)ticks : 0; /* the clocks of two CPUs may differ, and a thread may move */
}

/* The time in whole rounds: 0 if io ends in the round in which it began. */
static inline uint64_t io_round_time(const struct bdev_io *io)
{
	int64_t ticks = (int64_t)(thread_now() - io->submit_ticks);
	return ticks > 0 ? (uint64_t)ticks : 0;
}

static inline void io_begin(struct bdev_channel *ch, struct bdev_io *io)
{
	uint64_t now = thread_now();
	io->submit_ticks = now;
	io->stage = STAGE_FREEZE;
	ch->qd++;
	TAILQ_INSERT_TAIL(&ch->inflight, io, link);
	if (unlikely(io_is_sample(ch, io, now))) {
		io_begin_exact(ch, io, true);
	} else if (USDT_ENABLED(bdev_io_done)) {
		io_begin_exact(ch, io, false);
	}
}

static void io_dispatch_other(struct bdev_io *io)
{
	switch (io->type) {
	case BDEV_IO_RESET:
		bdev_reset_start(io);
		break;
	case BDEV_IO_ABORT:
		bdev_abort_start(io);
		break;
	case BDEV_IO_UNMAP: /* advisory */
	case BDEV_IO_FLUSH: /* no cache to flush */
		if (!(io->ch->bdev->io_types & 1u << io->type)) {
			bdev_io_complete(io, 0);
			break;
		}
		/* fall through */
	default:
		bdev_split_start(io);
	}
}

static ALWAYS_INLINE void io_dispatch(struct bdev_io *io, bool traced)
{
	struct bdev_channel *ch = io->ch;
	const struct bdev *b = ch->bdev;
	const uint32_t own = b->io_types & ~(1u << BDEV_IO_RESET | 1u << BDEV_IO_ABORT);

	if (likely((own & 1u << io->type) && (!b->limited || bdev_io_fits(b, io)))) {
		if (traced) {
			bdev_io_trace_dispatch(io);
		}
		bdev_io_set_state(io, BDEV_IO_MODULE);
		io->stage = STAGE_HANDED;
		ch->submit(ch->module, io);
	} else {
		io_dispatch_other(io);
	}
}

void bdev_io_dispatch(struct bdev_io *io)
{
	io_dispatch(io, true);
}

/* With any SLOW_* set. */
static void io_submit_slow(struct bdev_channel *ch, struct bdev_io *io)
{
	if ((ch->slow & SLOW_EXACT) && !(io->flags & IO_EXACT)) {
		io_begin_exact(ch, io, false);
	}
	if ((ch->slow & ~SLOW_EXACT) == 0) {
		bdev_io_dispatch(io);
	} else {
		bdev_io_run_stages(io);
	}
}

static ALWAYS_INLINE void io_check_and_dispatch(struct bdev_channel *ch, struct bdev_io *io, bool traced)
{
	struct bdev_thread *t = ch->thread;

	bdev_enter(t);
	uint16_t error = io_check(ch->bdev, io);
	if (unlikely(error != 0)) {
		bdev_io_complete(io, error);
	} else if (likely(ch->slow == 0)) {
		io_dispatch(io, traced);
	} else {
		io_submit_slow(ch, io);
	}
	bdev_leave(t);
}

static NOINLINE void io_submit_traced(struct bdev_channel *ch, struct bdev_io *io)
{
	TRACE(BDEV_IO_START, ch->bdev->trace_owner, (uint32_t)io->num_blocks, (uintptr_t)io, io->type, io->cb_arg,
	      io->offset_blocks, ch->qd);
	io_check_and_dispatch(ch, io, true);
}

void bdev_submit(struct bdev_io *io)
{
	struct bdev_channel *ch = io->ch;

	if (likely(!(io->flags & IO_ZCOPY))) {
		io_begin(ch, io);
	}
	io->cdw0 = 0;
	USDT(bdev_io_submit, ch->bdev->name, io->type, io->offset_blocks, io->num_blocks);
	/* One test for both events, so that the second one costs nothing while they are off. */
	if (TRACE_ANY_ENABLED(BDEV_IO_START, BDEV_IO_DISPATCH)) {
		io_submit_traced(ch, io);
	} else {
		io_check_and_dispatch(ch, io, false);
	}
}

static void io_wait_in(struct bdev_io_queue *q, struct bdev_io *io, enum bdev_io_state state)
{
	bdev_io_set_state(io, state);
	STAILQ_INSERT_TAIL(q, io, queue);
}

/* True: go on. A zero-copy I/O is never held back: a reset waits until it has ended. */
static bool stage_freeze(struct bdev_channel *ch, struct bdev_io *io)
{
	/* An abort goes on: a user that is to close the bdev may need it to end an I/O that hangs. */
	if ((ch->slow & SLOW_REMOVED) && io->type != BDEV_IO_ABORT && !io->desc->keeps_io) {
		bdev_io_end_waiting(io, STATUS_REMOVED);
		return false;
	}
	/* An ABORT may be for an I/O that the reset has not ended. A RESET waits for the running one elsewhere. */
	if ((ch->slow & SLOW_FROZEN) && !(io->flags & IO_ZCOPY) && io->type != BDEV_IO_ABORT &&
	    io->type != BDEV_IO_RESET) {
		io_wait_in(&ch->frozen, io, BDEV_IO_WAIT_FREEZE);
		return false;
	}
	return true;
}

/* The removal of a bdev waits for its users, so what they still do waits for no limit: its tokens might never come. */
static bool stage_qos(struct bdev_channel *ch, struct bdev_io *io)
{
	if ((ch->slow & (SLOW_QOS | SLOW_REMOVED)) != SLOW_QOS || (io->flags & IO_ZCOPY) ||
	    !(bdev_io_traits(io->type) & TRAIT_LIMITED) || bdev_qos_pass(ch, io)) {
		return true;
	}
	bdev_qos_begin_waiting(io);
	io_wait_in(&ch->qos_wait[bdev_qos_kind_of(io)], io, BDEV_IO_WAIT_QOS);
	return false;
}

static bool stage_lock(struct bdev_channel *ch, struct bdev_io *io)
{
	if (!(ch->slow & SLOW_LOCKED) || (io->flags & IO_ZCOPY) || !bdev_lock_blocks(ch, io)) {
		return true;
	}
	io_wait_in(&ch->lock_wait, io, BDEV_IO_WAIT_LOCK);
	return false;
}

static bool stage_dif(struct bdev_channel *ch, struct bdev_io *io)
{
	return !(ch->slow & SLOW_DIF) || bdev_dif_pass(io);
}

void bdev_io_run_stages(struct bdev_io *io)
{
	static bool (*const stages[STAGE_MODULE])(struct bdev_channel *, struct bdev_io *) = {
		[STAGE_FREEZE] = stage_freeze,
		[STAGE_QOS] = stage_qos,
		[STAGE_LOCK] = stage_lock,
		[STAGE_DIF] = stage_dif,
	};
	while (io->stage < STAGE_MODULE) {
		if (!stages[io->stage](io->ch, io)) {
			return;
		}
		io->stage++;
	}
	bdev_io_dispatch(io);
}

void bdev_io_requeue(struct bdev_io_queue *q)
{
	struct bdev_io_queue taken = STAILQ_HEAD_INITIALIZER(taken);
	struct bdev_io *io;
	STAILQ_CONCAT(&taken, q);
	while ((io = STAILQ_FIRST(&taken)) != NULL) {
		STAILQ_REMOVE_HEAD(&taken, queue);
		bdev_io_run_stages(io);
	}
}

bool bdev_io_queue_remove(struct bdev_io_queue *q, struct bdev_io *io)
{
	struct bdev_io *i;

	STAILQ_FOREACH (i, q, queue) {
		if (i == io) {
			STAILQ_REMOVE(q, io, bdev_io, queue);
			return true;
		}
	}
	return false;
}

void bdev_io_fail_queue(struct bdev_io_queue *q, uint16_t status)
{
	struct bdev_io *io;
	while ((io = STAILQ_FIRST(q)) != NULL) {
		STAILQ_REMOVE_HEAD(q, queue);
		bdev_io_complete(io, status);
	}
}

void bdev_io_end_waiting(struct bdev_io *io, uint16_t status)
{
	if (bdev_io_is_untouched(io)) {
		io->stage = STAGE_UNTOUCHED;
	}
	bdev_io_complete(io, status);
}

bool bdev_io_was_untouched(const struct bdev_io *io)
{
	return io->stage == STAGE_UNTOUCHED;
}

/* --- Completion --- */

static NOINLINE void stat_learn(struct bdev_stat *stat, struct bdev_stat_ops *s, uint64_t round_ticks,
				uint64_t exact_ticks)
{
	latency_learn(&s->correction, round_ticks, exact_ticks);
	s->min_ticks = exact_ticks < s->min_ticks ? exact_ticks : s->min_ticks;
	if (s == &stat->class[BDEV_STAT_READ]) {
		latency_histogram_sample(&stat->reads, s->ops + 1, env_ticks_to_ns(exact_ticks));
	} else if (s == &stat->class[BDEV_STAT_WRITE]) {
		latency_histogram_sample(&stat->writes, s->ops + 1, env_ticks_to_ns(exact_ticks));
	}
}

/* sampled: exact_ticks is io's exact time, and counts. */
static inline void io_account(struct bdev_channel *ch, const struct bdev_io *io, uint64_t round_ticks, bool sampled,
			      uint64_t exact_ticks)
{
	if (unlikely(io->status != 0)) {
		bdev_stat_error(&ch->stat, io->status);
		bdev_report_error(ch, io);
		return;
	}
	struct bdev_stat_ops *s = &ch->stat.class[bdev_io_type_infos[io->type].stat_class];
	uint64_t ticks = exact_ticks;
	if (likely(!sampled)) {
		ticks = latency_estimate(&s->correction, round_ticks);
	} else {
		stat_learn(&ch->stat, s, round_ticks, exact_ticks);
	}
	s->ops++;
	s->bytes += io->num_blocks * ch->bdev->block_size;
	s->ticks += ticks;
	s->max_ticks = ticks > s->max_ticks ? ticks : s->max_ticks;
}

/* An ABORT that waits until the module takes it has nothing to abort any more: io, which its owner may use for another
 * I/O from now on. */
static void nomem_end_aborts(struct bdev_channel *ch, const struct bdev_io *io)
{
	struct bdev_io *abort = STAILQ_FIRST(&ch->nomem), *next;

	for (; abort != NULL; abort = next) {
		next = STAILQ_NEXT(abort, queue);
		if (abort->type == BDEV_IO_ABORT && abort->abort.target == io) {
			STAILQ_REMOVE(&ch->nomem, abort, bdev_io, queue);
			bdev_io_complete_cdw0(abort, 0, 1);
		}
	}
}

static void io_finish_slow(struct bdev_channel *ch, const struct bdev_io *io, uint64_t ticks)
{
	if (ch->histogram != NULL) {
		bdev_histogram_tally(ch->histogram, io, ticks);
	}
	if (ch->slow & SLOW_LOCKED) {
		bdev_lock_check_acks(ch);
	}
	if (ch->slow & SLOW_NOMEM) {
		nomem_end_aborts(ch, io);
		bdev_nomem_retry(ch, 4);
	}
}

/* Ends I/O of the layer's own, and checks what an I/O has read. True: nothing more is to be done. */
NOINLINE static bool io_finish_internal(struct bdev_io *io)
{
	if (io->flags & IO_CHILD) {
		bdev_split_child_done(io);
		return true;
	}
	if (io->flags & IO_RESET) {
		bdev_reset_module_done(io);
		return true;
	}
	if ((io->flags & IO_DIF) && io->status == 0) {
		io->status = bdev_dif_check_read(io);
	}
	return false;
}

/* Ends io; inside a frame. Calls the callback last, because io belongs to its owner from then on. */
static ALWAYS_INLINE void io_finish(struct bdev_io *io)
{
	struct bdev_channel *ch = io->ch;
	uint64_t exact_ticks = 0;
	bool exact = false;

	if (unlikely(io->flags & (IO_CHILD | IO_RESET | IO_DIF | IO_EXACT))) {
		if (io_finish_internal(io)) {
			return;
		}
		exact = io->flags & IO_EXACT;
		exact_ticks = io_exact_time(io);
	}
	uint64_t round_ticks = io_round_time(io);
	ch->qd--;
	TAILQ_REMOVE(&ch->inflight, io, link);
	TRACE(BDEV_IO_DONE, ch->bdev->trace_owner, 0, (uintptr_t)io, io->cb_arg, ch->qd, io->status);
	USDT(bdev_io_done, ch->bdev->name, io->type, io->offset_blocks, io->num_blocks,
	     usdt_result(io->status, exact ? exact_ticks : round_ticks));
	/* After the trace event: reporting an error may have the trace copied. */
	io_account(ch, io, round_ticks, exact && io->sampled, exact_ticks);
	io->flags = 0;
	bdev_io_set_state(io, BDEV_IO_IDLE);
	if (unlikely(ch->slow != 0)) {
		io_finish_slow(ch, io, exact ? exact_ticks : round_ticks);
	}
	io->cb(io, io->cb_arg);
}

void bdev_channel_plug(struct bdev_channel *ch)
{
	if (!ch->plugged) {
		ch->plugged = true;
		SLIST_INSERT_HEAD(&ch->thread->plugged, ch, plug_link);
	}
}

static void channels_unplug(struct bdev_thread *t)
{
	struct bdev_channel *ch;

	while ((ch = SLIST_FIRST(&t->plugged)) != NULL) {
		SLIST_REMOVE_HEAD(&t->plugged, plug_link);
		ch->plugged = false;
		ch->bdev->ops->unplug(ch->module);
	}
}

/* Runs up to `budget` completions. Returns how many more it might have run. */
static unsigned completions_run(struct bdev_thread *t, unsigned budget)
{
	struct bdev_io *io;

	while (budget > 0 && (io = STAILQ_FIRST(&t->done)) != NULL) {
		STAILQ_REMOVE_HEAD(&t->done, queue);
		io_finish(io);
		budget--;
	}
	return budget;
}

/* Runs completions, whose callbacks submit, and unplugs channels, which completes, until neither has anything to do or
 * the budget is spent. True: nothing is left for the poller. */
static bool completions_settle(struct bdev_thread *t)
{
	unsigned budget = DRAIN_BUDGET;

	do {
		budget = completions_run(t, budget);
		channels_unplug(t);
	} while (budget > 0 && !STAILQ_EMPTY(&t->done));
	return STAILQ_EMPTY(&t->done);
}

void bdev_leave(struct bdev_thread *t)
{
	if (likely(t->depth == 1) && !completions_settle(t)) {
		bdev_thread_kick(t);
	}
	t->depth--;
}

void bdev_io_complete(struct bdev_io *io, uint16_t status)
{
	struct bdev_thread *t = io->ch->thread;

	assert(io->state != BDEV_IO_DONE);
	io->status = status;
	bdev_io_set_state(io, BDEV_IO_DONE);
	if (t->depth > 0) {
		STAILQ_INSERT_TAIL(&t->done, io, queue);
		return;
	}
	bdev_enter(t);
	io_finish(io);
	bdev_leave(t);
}

void bdev_io_mark_untouched(struct bdev_io *io)
{
	if (io->stage == STAGE_HANDED) {
		io->stage = STAGE_UNTOUCHED;
	}
}

void bdev_io_complete_untouched(struct bdev_io *io, uint16_t status)
{
	bdev_io_mark_untouched(io);
	bdev_io_complete(io, status);
}

void bdev_io_complete_as(struct bdev_io *io, const struct bdev_io *other)
{
	io->cdw0 = other->cdw0;
	if (unlikely(bdev_io_was_untouched(other))) {
		bdev_io_complete_untouched(io, other->status);
	} else {
		bdev_io_complete(io, other->status);
	}
}

void bdev_io_complete_cdw0(struct bdev_io *io, uint16_t status, uint32_t cdw0)
{
	io->cdw0 = cdw0;
	bdev_io_complete(io, status);
}

uint16_t bdev_status_from_errno(int rc)
{
	switch (-rc) {
	case 0:
		return 0;
	case EIO:
		return NVME_SC_INTERNAL;
	case ENOSPC:
	case EDQUOT:
	case EFBIG: /* RLIMIT_FSIZE, or the file system's largest file */
		return NVME_SC_CAP_EXCEEDED | NVME_SC_DNR;
	case EROFS:
	case EPERM:
	case EACCES:
		return STATUS_READ_ONLY;
	case EINVAL:
		return NVME_SC_INVALID_FIELD | NVME_SC_DNR;
	case EOPNOTSUPP:
		return STATUS_INVALID_TYPE;
	case ENODEV:
	case ENXIO:
	case ENOENT:
		return STATUS_REMOVED;
	case ECANCELED:
		return STATUS_ABORTED;
	case EAGAIN:
	case ENOMEM:
	case EINTR:
		return STATUS_NO_RESOURCES;
	case ENODATA: /* block devices: a medium error on read */
	case EBADMSG:
		return BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_READ_ERROR);
	case EILSEQ:
		return BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_GUARD_CHECK);
	default:
		return NVME_SC_INTERNAL;
	}
}

int bdev_status_to_errno(uint16_t status)
{
	static const struct {
		uint16_t status;
		int rc;
	} table[] = {
		{0, 0},
		{NVME_SC_ABORT_REQ, -ECANCELED},
		{NVME_SC_CMD_INTERRUPTED, -EAGAIN},
		{NVME_SC_CAP_EXCEEDED, -ENOSPC},
		{NVME_SC_INVALID_NS, -ENODEV},
		{NVME_SC_INVALID_OPCODE, -EOPNOTSUPP},
		{NVME_SC_INVALID_FIELD, -EINVAL},
		{NVME_SC_LBA_RANGE, -EINVAL},
		{NVME_SC_OP_DENIED, -EPERM},
		{NVME_SC_NS_WRITE_PROTECTED, -EROFS},
		{BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_GUARD_CHECK), -EILSEQ},
		{BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_APPTAG_CHECK), -EILSEQ},
		{BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_REFTAG_CHECK), -EILSEQ},
		{BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_STORAGE_TAG_CHECK), -EILSEQ},
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		if (table[i].status == (status & BDEV_STATUS_MASK)) {
			return table[i].rc;
		}
	}
	return -EIO;
}

void bdev_io_complete_errno(struct bdev_io *io, int rc)
{
	bdev_io_complete(io, bdev_status_from_errno(rc));
}

/* --- The module's resources --- */

#define NOMEM_RETRY_US 1000

static void io_wait_for_module(struct bdev_io *io)
{
	struct bdev_channel *ch = io->ch;
	uint64_t waited = 0; /* before the module took it and gave it back */

	if (io->flags & IO_NOMEM) {
		waited = io->nomem_ticks;
	} else {
		io->flags |= IO_NOMEM;
		ch->stat.nomem_waits++;
		USDT(nomem_wait, ch->bdev->name, io->type, io->offset_blocks, io->num_blocks);
	}
	TRACE(BDEV_IO_NOMEM, ch->bdev->trace_owner, 0, (uintptr_t)io, io->cb_arg);
	io->nomem_ticks = thread_now() - waited;
	io_wait_in(&ch->nomem, io, BDEV_IO_WAIT_NOMEM);
	if (!(ch->slow & SLOW_NOMEM)) {
		ch->slow |= SLOW_NOMEM;
		thread_timer_start(&ch->nomem_timer, NOMEM_RETRY_US);
	}
}

void bdev_io_nomem(struct bdev_io *io)
{
	io->stage = STAGE_BEGUN;
	io_wait_for_module(io);
}

void bdev_io_refuse(struct bdev_io *io)
{
	if (io->stage == STAGE_HANDED) {
		io->stage = STAGE_MODULE;
	}
	io_wait_for_module(io);
}

/* Submits waiting I/Os again, in order. One that the module refuses again goes to the end of the queue, so that it
 * cannot hold up the others for ever; one that has waited too long fails. Inside a frame. */
void bdev_nomem_retry(struct bdev_channel *ch, uint32_t failures_allowed)
{
	uint64_t limit = (uint64_t)bdev_options.nomem_timeout_ms * (env_ticks_hz() / 1000);
	uint32_t failures = 0;
	struct bdev_io *io;

	thread_absence_check();
	while (failures < failures_allowed && (io = STAILQ_FIRST(&ch->nomem)) != NULL) {
		STAILQ_REMOVE_HEAD(&ch->nomem, queue);
		int64_t waited = (int64_t)(thread_now() - io->nomem_ticks);
		io->nomem_ticks = waited > 0 ? (uint64_t)waited : 0;
		if (io->nomem_ticks > limit) {
			bdev_io_complete(io, STATUS_NO_RESOURCES);
			continue;
		}
		if (io->type == BDEV_IO_ABORT) {
			bdev_abort_start(io); /* its target may wait itself by now */
		} else {
			bdev_io_trace_dispatch(io);
			bdev_io_set_state(io, BDEV_IO_MODULE);
			io->stage = io->stage == STAGE_BEGUN ? STAGE_BEGUN : STAGE_HANDED;
			ch->submit(ch->module, io);
		}
		failures += io->state == BDEV_IO_WAIT_NOMEM;
	}
	if (STAILQ_EMPTY(&ch->nomem)) {
		ch->slow &= ~(uint32_t)SLOW_NOMEM;
		thread_timer_stop(&ch->nomem_timer);
	}
}

static uint32_t io_queue_length(const struct bdev_io_queue *q)
{
	const struct bdev_io *io;
	uint32_t n = 0;
	STAILQ_FOREACH (io, q, queue) {
		n++;
	}
	return n;
}

/* Tries again when no I/O of the channel is with the module, whose end would do so. */
void bdev_nomem_timer(void *channel)
{
	struct bdev_channel *ch = channel;

	bdev_enter(ch->thread);
	bdev_nomem_retry(ch, io_queue_length(&ch->nomem));
	if (ch->slow & SLOW_NOMEM) {
		thread_timer_start(&ch->nomem_timer, NOMEM_RETRY_US);
	}
	bdev_leave(ch->thread);
}

/* --- Zero copy --- */

void *bdev_zcopy_get(struct bdev_io *io)
{
	struct bdev_channel *ch = io->ch;
	struct bdev *b = ch->bdev;

	/* An I/O that would have to wait, or would fail, is done with a buffer. */
	if (b->ops->zcopy_addr == NULL || (ch->slow & ~SLOW_EXACT) != 0 ||
	    (io->type != BDEV_IO_READ && io->type != BDEV_IO_WRITE) || io_check_range(b, io) != 0 ||
	    (io->type == BDEV_IO_WRITE && io_check_permission(b, io) != 0)) {
		return NULL;
	}
	void *addr = b->ops->zcopy_addr(b, io->type, io->offset_blocks, io->num_blocks);
	if (addr != NULL) {
		io_begin(ch, io);
		io->flags |= IO_ZCOPY;
		bdev_io_set_state(io, BDEV_IO_ZCOPY_OPEN);
	}
	return addr;
}

void bdev_zcopy_put(struct bdev_io *io)
{
	struct bdev_channel *ch = io->ch;

	assert(io->state == BDEV_IO_ZCOPY_OPEN);
	ch->qd--;
	TAILQ_REMOVE(&ch->inflight, io, link);
	io->flags = 0;
	bdev_io_set_state(io, BDEV_IO_IDLE);
	if (ch->slow & SLOW_LOCKED) {
		bdev_lock_check_acks(ch);
	}
}

/* --- Facts for modules --- */

struct bdev *bdev_channel_bdev(const struct bdev_channel *ch)
{
	return ch->bdev;
}

void *bdev_channel_ctx(struct bdev_channel *ch)
{
	return ch->module;
}

uint32_t bdev_channel_qd(const struct bdev_channel *ch)
{
	return ch->qd;
}
