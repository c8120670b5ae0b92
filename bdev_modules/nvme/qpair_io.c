/* SPDX-License-Identifier: BSD-3-Clause */
/* A queue pair as the thread that uses it sees it. Everything here runs on that thread.
 *
 * An I/O is submitted to the driver, or it waits here: for a connected queue pair, for room in it, or for the time of
 * its retry. So no I/O is lost when the driver's queue pair is destroyed: the driver completes its commands as aborted,
 * and they are submitted to another queue pair or wait here. */
#include <errno.h>

#include "bdev_modules/nvme/internal.h"
#include "env_dpdk/env.h"
#include "util/log.h"
#include "util/compiler.h"

#define PART_COMMAND 1
#define PART_FUSED   2

void bdev_nvme_qpair_enter(struct bdev_nvme_qpair *qp)
{
	qp->in_use++;
}

void bdev_nvme_qpair_exit(struct bdev_nvme_qpair *qp)
{
	if (--qp->in_use == 0 && unlikely(qp->closing)) {
		bdev_nvme_qpair_leave(qp);
	}
}

/* --- Completion --- */

static void bdev_nvme_qpair_free_range(struct bdev_nvme_qpair *qp, struct bdev_nvme_io *n)
{
	if (n->wants_range && n->iov.iov_base != NULL) {
		qp->ranges_free[qp->num_ranges_free++] =
			(uint8_t)((union bdev_nvme_range *)n->iov.iov_base - qp->ranges);
		n->iov.iov_base = NULL;
	}
}

static void bdev_nvme_qpair_command_done(struct nvme_request *req, const struct nvme_cqe *cqe)
{
	struct bdev_nvme_io *n = req->cb_arg;
	struct bdev_nvme_qpair *qp = n->qpair;
	uint16_t status = nvme_cqe_status(cqe);

	qp->outstanding--;
	qp->completions++;
	if (unlikely(n->fused)) {
		/* The first error is the result: the other command then ends with "failed fused command", which only
		 * repeats it. */
		bool is_echo = (status & BDEV_STATUS_MASK) == NVME_ST(GENERIC, FUSED_FAIL) && n->status != 0;
		bool had_echo = (n->status & BDEV_STATUS_MASK) == NVME_ST(GENERIC, FUSED_FAIL);
		if (status != 0 && !is_echo && (n->status == 0 || had_echo)) {
			n->status = status;
		}
		if (--n->parts != 0) {
			return;
		}
		qp->fused_io = NULL;
		status = n->status;
		if (n->counted && status == 0) {
			bdev_nvme_stat_io(n);
		}
	} else if (unlikely(n->wants_range || n->everywhere || n->counted)) {
		if (n->counted && status == 0) {
			bdev_nvme_stat_io(n);
		}
		bdev_nvme_qpair_free_range(qp, n);
		if (n->everywhere && status == 0 && bdev_nvme_channel_flush_next(n)) {
			return;
		}
	}
	n->place = BDEV_NVME_IO_NOWHERE;
	bdev_nvme_io_ended(n, status, le32toh(cqe->dw0));
}

/* --- Submission --- */

static int bdev_nvme_qpair_alloc_range(struct bdev_nvme_qpair *qp, struct bdev_nvme_io *n)
{
	const struct bdev_io *io = bdev_io_from_ctx(n);

	if (qp->num_ranges_free == 0) {
		return -EAGAIN;
	}
	union bdev_nvme_range *r = &qp->ranges[qp->ranges_free[--qp->num_ranges_free]];
	if (io->type == BDEV_IO_COPY) { /* 0's based; fits by max_copy_blocks */
		r->copy = (struct nvme_copy_range){.nlb = htole16((uint16_t)(io->num_blocks - 1)),
						   .slba = htole64(io->copy.src_offset_blocks)};
		n->iov = (struct iovec){.iov_base = r, .iov_len = sizeof(r->copy)};
	} else {
		r->dsm = (struct nvme_dsm_range){.nlb = htole32((uint32_t)io->num_blocks),
						 .slba = htole64(io->offset_blocks)};
		n->iov = (struct iovec){.iov_base = r, .iov_len = sizeof(r->dsm)};
	}
	n->req.iovs = &n->iov;
	n->req.iovcnt = 1;
	n->req.data_len = (uint32_t)n->iov.iov_len;
	n->req.to_device = true;
	return 0;
}

/* The two commands must be adjacent in the queue (Base 3.4.2): both are submitted, or none is. */
static int bdev_nvme_qpair_submit_fused(struct bdev_nvme_qpair *qp, struct bdev_nvme_io *n)
{
	const struct bdev_io *io = bdev_io_from_ctx(n);

	if (unlikely(nvme_qpair_entries(qp->driver_qpair) < 2)) {
		return -ENOBUFS; /* submitted before the controller came back with smaller queues */
	}
	if (qp->fused_io != NULL ||
	    nvme_qpair_outstanding(qp->driver_qpair) + 2u > nvme_qpair_entries(qp->driver_qpair)) {
		return -EAGAIN;
	}
	qp->fused->cmd = n->req.cmd;
	qp->fused->cmd.opcode = nvme_cmd_write;
	qp->fused->cmd.flags = NVME_FUSE_SECOND;
	qp->fused->iovs = io->iovs;
	qp->fused->iovcnt = (uint16_t)io->iovcnt;
	qp->fused->data_len = n->req.data_len;
	qp->fused->to_device = true;
	qp->fused->cb = bdev_nvme_qpair_command_done;
	qp->fused->cb_arg = n;
	n->status = 0;
	n->parts = PART_COMMAND;
	int rc = nvme_qpair_submit(qp->driver_qpair, &n->req);
	if (rc != 0) {
		return rc;
	}
	qp->fused_io = n;
	qp->outstanding++;
	n->parts = PART_FUSED;
	rc = nvme_qpair_submit(qp->driver_qpair, qp->fused);
	if (rc == 0) {
		qp->outstanding++;
	} else {
		n->parts = PART_COMMAND; /* the controller ends the first because the second does not follow */
		n->status = NVME_ST(GENERIC, FUSED_FAIL);
	}
	return 0;
}

/* 0: submitted; -EAGAIN, -ENXIO: it must wait; others: it cannot be submitted at all. */
static ALWAYS_INLINE int bdev_nvme_qpair_try_submit(struct bdev_nvme_qpair *qp, struct bdev_nvme_io *n)
{
	int rc;

	n->req.cb = bdev_nvme_qpair_command_done;
	n->req.cb_arg = n;
	if (unlikely(n->fused)) {
		rc = bdev_nvme_qpair_submit_fused(qp, n);
	} else {
		rc = unlikely(n->wants_range) ? bdev_nvme_qpair_alloc_range(qp, n) : 0;
		if (likely(rc == 0)) {
			rc = nvme_qpair_submit(qp->driver_qpair, &n->req);
			qp->outstanding += rc == 0;
		}
		if (unlikely(rc != 0)) {
			bdev_nvme_qpair_free_range(qp, n);
		}
	}
	if (unlikely(rc != 0)) {
		return rc;
	}
	n->place = BDEV_NVME_IO_SUBMITTED;
	if (unlikely(qp->paused)) {
		qp->paused = false;
		poller_resume(qp->poller);
	}
	return 0;
}

static void bdev_nvme_qpair_queue(struct bdev_nvme_qpair *qp, struct bdev_nvme_io *n)
{
	n->place = BDEV_NVME_IO_WAITING;
	qp->queued++;
	STAILQ_INSERT_TAIL(&qp->waiting, n, link);
}

static bool must_wait(int rc)
{
	return rc == -EAGAIN || rc == -ENXIO;
}

static void bdev_nvme_qpair_fail_io(struct bdev_nvme_qpair *qp, struct bdev_nvme_io *n, int rc)
{
	log_limited(LOG_LEVEL_ERROR, "%s: command 0x%02x with %u bytes in %u segments cannot be sent: %s", qp->c->name,
		    n->req.cmd.opcode, n->req.data_len, n->req.iovcnt,
		    rc == -EFAULT  ? "the memory is not DMA-able"
		    : rc == -E2BIG ? "too many segments"
				   : "out of resources");
	bdev_nvme_io_complete(n, NVME_ST(GENERIC, DATA_XFER_ERROR), 0);
}

/* The driver's queue pair has failed: channels do not choose qp until it has a new one. */
static void bdev_nvme_qpair_break_off(struct bdev_nvme_qpair *qp)
{
	if (!qp->broken) {
		qp->broken = true;
		bdev_nvme_qpair_redistribute(qp, NULL);
		bdev_nvme_channels_qpair_changed(qp);
	}
}

void bdev_nvme_qpair_submit(struct bdev_nvme_qpair *qp, struct bdev_nvme_io *n)
{
	n->qpair = qp;
	if (likely(qp->driver_qpair != NULL && STAILQ_EMPTY(&qp->waiting))) {
		int rc = bdev_nvme_qpair_try_submit(qp, n);
		if (likely(rc == 0)) {
			return;
		}
		if (!must_wait(rc)) {
			bdev_nvme_qpair_fail_io(qp, n, rc);
			return;
		}
		if (rc == -ENXIO && !n->raw) { /* the queue pair has failed: another path may be usable */
			bdev_nvme_qpair_break_off(qp);
			bdev_nvme_channel_submit(bdev_nvme_io_channel(n), n);
			return;
		}
	} else if (qp->driver_qpair == NULL && !n->raw) {
		/* it was disconnected after the choice: the next choice is another */
		bdev_nvme_channel_submit(bdev_nvme_io_channel(n), n);
		return;
	} else if (qp->driver_qpair == NULL && qp->fails) {
		bdev_nvme_io_complete(n, BDEV_NVME_IO_PATH_ERROR, 0);
		return;
	}
	bdev_nvme_qpair_queue(qp, n);
}

/* Submits what waits, in order, until there is no room. */
static void bdev_nvme_qpair_submit_waiting(struct bdev_nvme_qpair *qp)
{
	struct bdev_nvme_io *n;

	while (qp->driver_qpair != NULL && (n = STAILQ_FIRST(&qp->waiting)) != NULL) {
		int rc = bdev_nvme_qpair_try_submit(qp, n);
		if (must_wait(rc)) {
			break;
		}
		STAILQ_REMOVE_HEAD(&qp->waiting, link);
		if (rc != 0) {
			bdev_nvme_qpair_fail_io(qp, n, rc);
		}
	}
	if (qp->driver_qpair != NULL) {
		nvme_qpair_flush(qp->driver_qpair);
	}
}

/* --- Polling --- */

static int bdev_nvme_qpair_poll(void *ctx)
{
	struct bdev_nvme_qpair *qp = ctx;

	bdev_nvme_qpair_enter(qp);
	int n = nvme_qpair_poll(qp->driver_qpair, 0);
	qp->polls++;
	/* A queue pair that has failed is polled until the control thread, which the driver tells, detaches it. */
	if (unlikely(!STAILQ_EMPTY(&qp->waiting)) && n >= 0 && !qp->broken) {
		bdev_nvme_qpair_submit_waiting(qp);
	}
	if (unlikely(n < 0)) {
		bdev_nvme_qpair_break_off(qp);
	}
	qp->idle_polls += n == 0;
	if (qp->pausable && qp->outstanding == 0 && !qp->paused && qp->poller != NULL) {
		qp->paused = true;
		poller_pause(qp->poller);
	}
	bdev_nvme_qpair_exit(qp);
	return n > 0 ? POLLER_BUSY : POLLER_IDLE;
}

static bool bdev_nvme_qpair_arm(void *ctx)
{
	struct bdev_nvme_qpair *qp = ctx;

	bdev_nvme_qpair_enter(qp);
	bool work = nvme_qpair_arm(qp->driver_qpair) || (!STAILQ_EMPTY(&qp->waiting) && qp->outstanding == 0);
	bdev_nvme_qpair_exit(qp);
	return work;
}

/* --- Delayed retries --- */

static void bdev_nvme_qpair_resubmit(struct bdev_nvme_qpair *qp, struct bdev_nvme_io *n)
{
	if (n->raw) {
		bdev_nvme_qpair_submit(qp, n);
	} else {
		bdev_nvme_channel_submit(bdev_nvme_io_channel(n), n);
	}
}

static void bdev_nvme_qpair_delay_timer_fired(void *arg)
{
	struct bdev_nvme_qpair *qp = arg;
	struct bdev_nvme_io_list due = STAILQ_HEAD_INITIALIZER(due);
	uint64_t now = env_ticks(), next = UINT64_MAX;
	struct bdev_nvme_io *n;

	bdev_nvme_qpair_enter(qp);
	STAILQ_CONCAT(&due, &qp->delayed);
	while ((n = STAILQ_FIRST(&due)) != NULL) {
		STAILQ_REMOVE_HEAD(&due, link);
		if (n->due_ticks <= now) {
			n->place = BDEV_NVME_IO_NOWHERE;
			bdev_nvme_qpair_resubmit(qp, n);
		} else {
			next = n->due_ticks < next ? n->due_ticks : next;
			STAILQ_INSERT_TAIL(&qp->delayed, n, link);
		}
	}
	if (next != UINT64_MAX) {
		thread_timer_start(&qp->delay_timer, env_ticks_to_ns(next - now) / 1000 + 1);
	}
	if (qp->driver_qpair != NULL) {
		nvme_qpair_flush(qp->driver_qpair);
	}
	bdev_nvme_qpair_exit(qp);
}

void bdev_nvme_qpair_delay(struct bdev_nvme_qpair *qp, struct bdev_nvme_io *n, uint32_t delay_ms)
{
	bool first = STAILQ_EMPTY(&qp->delayed);

	qp->retries++;
	n->place = BDEV_NVME_IO_DELAYED;
	n->due_ticks = env_ticks() + delay_ms * (env_ticks_hz() / 1000);
	STAILQ_INSERT_TAIL(&qp->delayed, n, link);
	if (first || n->due_ticks < qp->delay_timer.deadline) {
		thread_timer_start(&qp->delay_timer, delay_ms * UINT64_C(1000));
	}
}

/* --- Taking back what waits --- */

static bool io_list_remove(struct bdev_nvme_io_list *list, struct bdev_nvme_io *n)
{
	struct bdev_nvme_io *i;

	STAILQ_FOREACH (i, list, link) {
		if (i == n) {
			STAILQ_REMOVE(list, n, bdev_nvme_io, link);
			n->place = BDEV_NVME_IO_NOWHERE;
			return true;
		}
	}
	return false;
}

bool bdev_nvme_qpair_take_back(struct bdev_nvme_qpair *qp, struct bdev_nvme_io *n)
{
	return (n->place == BDEV_NVME_IO_WAITING && io_list_remove(&qp->waiting, n)) ||
	       (n->place == BDEV_NVME_IO_DELAYED && io_list_remove(&qp->delayed, n));
}

/* Ends the I/O of ch on a list, or (NULL) all of it. */
static void io_list_fail(struct bdev_nvme_io_list *list, const struct bdev_nvme_channel *ch, uint16_t status)
{
	struct bdev_nvme_io_list taken = STAILQ_HEAD_INITIALIZER(taken);
	struct bdev_nvme_io *n;

	STAILQ_CONCAT(&taken, list);
	while ((n = STAILQ_FIRST(&taken)) != NULL) {
		STAILQ_REMOVE_HEAD(&taken, link);
		if (ch == NULL || (!n->raw && bdev_channel_ctx(bdev_io_from_ctx(n)->ch) == ch)) {
			n->place = BDEV_NVME_IO_NOWHERE;
			bdev_nvme_io_complete(n, status, 0);
		} else {
			STAILQ_INSERT_TAIL(list, n, link);
		}
	}
}

void bdev_nvme_qpair_fail_channel(struct bdev_nvme_qpair *qp, const struct bdev_nvme_channel *ch, uint16_t status)
{
	bdev_nvme_qpair_enter(qp);
	io_list_fail(&qp->waiting, ch, status);
	io_list_fail(&qp->delayed, ch, status);
	bdev_nvme_qpair_exit(qp);
}

void bdev_nvme_qpair_set_fails(void *qpair)
{
	struct bdev_nvme_qpair *qp = qpair;

	bdev_nvme_qpair_enter(qp);
	/* the control thread's fields may be read: it waits meanwhile */
	qp->fails = qp->c->io_fails || qp->shut_out != BDEV_NVME_ADMITTED;
	if (qp->fails && qp->driver_qpair == NULL) {
		bdev_nvme_qpair_redistribute(qp, NULL);
	}
	bdev_nvme_channels_qpair_changed(qp);
	bdev_nvme_qpair_exit(qp);
}

static void bdev_nvme_qpair_redistribute_list(struct bdev_nvme_qpair *qp, struct bdev_nvme_io_list *list,
					      const struct bdev_nvme_channel *ch)
{
	struct bdev_nvme_io_list taken = STAILQ_HEAD_INITIALIZER(taken);
	struct bdev_nvme_io *n;

	STAILQ_CONCAT(&taken, list);
	while ((n = STAILQ_FIRST(&taken)) != NULL) {
		STAILQ_REMOVE_HEAD(&taken, link);
		if (!n->raw && (ch == NULL || bdev_nvme_io_channel(n) == ch)) {
			n->place = BDEV_NVME_IO_NOWHERE;
			bdev_nvme_channel_submit(bdev_nvme_io_channel(n), n);
		} else if (n->raw && ch == NULL && qp->fails) {
			n->place = BDEV_NVME_IO_NOWHERE;
			bdev_nvme_io_complete(n, BDEV_NVME_IO_PATH_ERROR, 0);
		} else {
			STAILQ_INSERT_TAIL(list, n, link);
		}
	}
}

void bdev_nvme_qpair_redistribute(struct bdev_nvme_qpair *qp, const struct bdev_nvme_channel *ch)
{
	struct bdev_nvme_channel_path *cp;

	bdev_nvme_qpair_enter(qp);
	/* before anything is resubmitted, which would otherwise choose qp again */
	LIST_FOREACH (cp, &qp->paths, link) {
		bdev_nvme_channel_choose(cp->ch);
	}
	bdev_nvme_qpair_redistribute_list(qp, &qp->waiting, ch);
	bdev_nvme_qpair_redistribute_list(qp, &qp->delayed, ch);
	bdev_nvme_qpair_exit(qp);
}

/* --- Called by the control thread --- */

void bdev_nvme_qpair_init(struct bdev_nvme_qpair *qp)
{
	STAILQ_INIT(&qp->waiting);
	STAILQ_INIT(&qp->delayed);
	LIST_INIT(&qp->paths);
	qp->delay_timer = (struct thread_timer){.fn = bdev_nvme_qpair_delay_timer_fired, .arg = qp};
	for (uint8_t i = 0; i < BDEV_NVME_QPAIR_RANGES; i++) {
		qp->ranges_free[i] = i;
	}
	qp->num_ranges_free = BDEV_NVME_QPAIR_RANGES;
}

void bdev_nvme_qpair_attach(void *qpair)
{
	struct bdev_nvme_qpair *qp = qpair;
	int fd = nvme_qpair_fd(qp->created);

	if (qp->closing) {
		return;
	}
	qp->poller = poller_register(&(struct poller_opts){.name = "bdev_nvme",
							   .fn = bdev_nvme_qpair_poll,
							   .ctx = qp,
							   .fd = fd,
							   .arm = fd >= 0 ? bdev_nvme_qpair_arm : NULL});
	if (qp->poller == NULL) {
		return; /* the control thread looks for the poller */
	}
	qp->paused = false;
	qp->pausable = fd < 0;
	qp->driver_qpair = qp->created;
	qp->broken = false;
	qp->fence = qp->c->fence; /* the control thread waits meanwhile */
	bdev_nvme_qpair_enter(qp);
	bdev_nvme_qpair_submit_waiting(qp);
	bdev_nvme_channels_qpair_changed(qp);
	nvme_qpair_flush(qp->driver_qpair);
	bdev_nvme_qpair_exit(qp);
}

void bdev_nvme_qpair_detach(void *qpair)
{
	struct bdev_nvme_qpair *qp = qpair;

	poller_unregister(&qp->poller);
	if (qp->driver_qpair != NULL) {
		nvme_qpair_leave(qp->driver_qpair);
		qp->driver_qpair = NULL;
		bdev_nvme_qpair_redistribute(qp, NULL);
		bdev_nvme_channels_qpair_changed(qp);
	}
}

void bdev_nvme_qpair_abort_all(void *qpair)
{
	struct bdev_nvme_qpair *qp = qpair;

	bdev_nvme_qpair_enter(qp);
	nvme_qpair_abort_all(qp->created);
	qp->fence = NULL;
	bdev_nvme_qpair_exit(qp);
}

void bdev_nvme_qpair_suspend(void *qpair)
{
	struct bdev_nvme_qpair *qp = qpair;

	bdev_nvme_qpair_enter(qp);
	if (qp->driver_qpair != NULL) {
		bdev_nvme_qpair_break_off(qp);
	}
	bdev_nvme_qpair_exit(qp);
}

void bdev_nvme_qpair_leave(struct bdev_nvme_qpair *qp)
{
	qp->in_use = 1; /* never 0 again: exits further down the stack do not lead here a second time */
	bdev_nvme_qpair_detach(qp);
	thread_timer_stop(&qp->delay_timer);
	bdev_nvme_qpair_post_leave(qp);
}
