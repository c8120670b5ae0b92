/* SPDX-License-Identifier: BSD-3-Clause */
/* A queue pair as the thread that uses it sees it. Everything here runs on that thread.
 *
 * An I/O is with the driver, or it waits here: for a queue pair, for room in it, or for the time of its retry. So
 * nothing is lost when a queue pair goes: the driver completes what it had as aborted, and that is put among what
 * waits. */
#include <errno.h>
#include <rte_branch_prediction.h>

#include "bdev_modules/nvme/internal.h"
#include "env_dpdk/env.h"
#include "util/log.h"

#define PART_COMMAND 1
#define PART_FUSED   2

void nvme_queue_enter(struct nvme_path *p)
{
	p->in_use++;
}

void nvme_queue_exit(struct nvme_path *p)
{
	if (--p->in_use == 0 && unlikely(p->closing)) {
		nvme_queue_leave(p);
	}
}

/* --- Completion --- */

static void give_back_range(struct nvme_path *p, struct nvme_io *n)
{
	if (n->wants_range && n->iov.iov_base != NULL) {
		p->ranges_free[p->num_ranges_free++] = (uint8_t)((union nvme_path_range *)n->iov.iov_base - p->ranges);
		n->iov.iov_base = NULL;
	}
}

static void command_done(struct nvme_request *req, const struct nvme_cqe *cqe)
{
	struct nvme_io *n = req->cb_arg;
	struct nvme_path *p = n->path;
	uint16_t status = nvme_cqe_status(cqe);

	p->outstanding--;
	p->completions++;
	if (unlikely(n->fused)) {
		/* The first error counts: the other command then only says that this one failed. */
		bool is_echo = (status & BDEV_STATUS_MASK) == NVME_ST(GENERIC, FUSED_FAIL) && n->status != 0;
		bool had_echo = (n->status & BDEV_STATUS_MASK) == NVME_ST(GENERIC, FUSED_FAIL);
		if (status != 0 && !is_echo && (n->status == 0 || had_echo)) {
			n->status = status;
		}
		if (--n->parts != 0) {
			return;
		}
		p->fused_io = NULL;
		status = n->status;
	} else if (unlikely(n->wants_range)) {
		give_back_range(p, n);
	}
	n->place = NVME_IO_NOWHERE;
	nvme_io_ended(n, status, le32toh(cqe->dw0));
}

/* --- Submission --- */

static int take_range(struct nvme_path *p, struct nvme_io *n)
{
	const struct bdev_io *io = bdev_io_from_ctx(n);

	if (p->num_ranges_free == 0) {
		return -EAGAIN;
	}
	union nvme_path_range *r = &p->ranges[p->ranges_free[--p->num_ranges_free]];
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

/* The two commands must stand next to each other in the queue (Base 3.4.2), so they go together or not at all. */
static int submit_fused(struct nvme_path *p, struct nvme_io *n)
{
	const struct bdev_io *io = bdev_io_from_ctx(n);

	if (p->fused_io != NULL || nvme_qpair_outstanding(p->qpair) + 2u > nvme_qpair_entries(p->qpair)) {
		return -EAGAIN;
	}
	p->fused->cmd = n->req.cmd;
	p->fused->cmd.opcode = nvme_cmd_write;
	p->fused->cmd.flags = NVME_FUSE_SECOND;
	p->fused->iovs = io->iovs;
	p->fused->iovcnt = (uint16_t)io->iovcnt;
	p->fused->data_len = n->req.data_len;
	p->fused->to_device = true;
	p->fused->cb = command_done;
	p->fused->cb_arg = n;
	n->status = 0;
	n->parts = PART_COMMAND;
	int rc = nvme_qpair_submit(p->qpair, &n->req);
	if (rc != 0) {
		return rc;
	}
	p->fused_io = n;
	p->outstanding++;
	n->parts = PART_FUSED;
	rc = nvme_qpair_submit(p->qpair, p->fused);
	if (rc == 0) {
		p->outstanding++;
	} else {
		n->parts = PART_COMMAND; /* the controller ends the first for want of the second */
		n->status = NVME_ST(GENERIC, FUSED_FAIL);
	}
	return 0;
}

/* 0: it is with the driver; -EAGAIN, -ENXIO: it must wait; others: it cannot be done. */
static int try_submit(struct nvme_path *p, struct nvme_io *n)
{
	int rc;

	n->req.cb = command_done;
	n->req.cb_arg = n;
	if (unlikely(n->fused)) {
		rc = submit_fused(p, n);
	} else {
		rc = unlikely(n->wants_range) ? take_range(p, n) : 0;
		if (likely(rc == 0)) {
			rc = nvme_qpair_submit(p->qpair, &n->req);
			p->outstanding += rc == 0;
		}
		if (unlikely(rc != 0)) {
			give_back_range(p, n);
		}
	}
	if (unlikely(rc != 0)) {
		return rc;
	}
	n->place = NVME_IO_QUEUED;
	if (unlikely(p->paused)) {
		p->paused = false;
		poller_resume(p->poller);
	}
	return 0;
}

static void wait(struct nvme_path *p, struct nvme_io *n)
{
	n->place = NVME_IO_WAITING;
	p->queued++;
	STAILQ_INSERT_TAIL(&p->waiting, n, link);
}

static bool must_wait(int rc)
{
	return rc == -EAGAIN || rc == -ENXIO;
}

static void cannot(struct nvme_path *p, struct nvme_io *n, int rc)
{
	log_limited(LOG_LEVEL_ERROR, "%s: command 0x%02x with %u bytes in %u pieces cannot be sent: %s", p->c->name,
		    n->req.cmd.opcode, n->req.data_len, n->req.iovcnt,
		    rc == -EFAULT  ? "the memory is not DMA-able"
		    : rc == -E2BIG ? "too many pieces"
				   : "out of resources");
	nvme_io_complete(n, NVME_ST(GENERIC, DATA_XFER_ERROR), 0);
}

/* Nobody chooses p any more until it has a new queue pair. */
static void break_off(struct nvme_path *p)
{
	if (!p->broken) {
		p->broken = true;
		nvme_queue_redistribute(p, NULL);
		nvme_leg_path_changed(p);
	}
}

void nvme_queue_submit(struct nvme_path *p, struct nvme_io *n)
{
	n->path = p;
	if (likely(p->qpair != NULL && STAILQ_EMPTY(&p->waiting))) {
		int rc = try_submit(p, n);
		if (likely(rc == 0)) {
			return;
		}
		if (!must_wait(rc)) {
			cannot(p, n, rc);
			return;
		}
		if (rc == -ENXIO && !n->raw) { /* it has failed, and will be taken from us: others may do */
			break_off(p);
			nvme_leg_submit(nvme_io_channel(n), n);
			return;
		}
	} else if (p->qpair == NULL && !n->raw) {
		nvme_leg_submit(nvme_io_channel(n), n); /* its queue pair has just gone: not chosen again */
		return;
	} else if (p->qpair == NULL && p->fails) {
		nvme_io_complete(n, NVME_IO_PATH_ERROR, 0);
		return;
	}
	wait(p, n);
}

/* As many of those that wait as there is room for, in order. */
static void submit_waiting(struct nvme_path *p)
{
	struct nvme_io *n;

	while (p->qpair != NULL && (n = STAILQ_FIRST(&p->waiting)) != NULL) {
		int rc = try_submit(p, n);
		if (must_wait(rc)) {
			break;
		}
		STAILQ_REMOVE_HEAD(&p->waiting, link);
		if (rc != 0) {
			cannot(p, n, rc);
		}
	}
	if (p->qpair != NULL) {
		nvme_qpair_flush(p->qpair);
	}
}

/* --- Polling --- */

static int queue_poll(void *ctx)
{
	struct nvme_path *p = ctx;

	nvme_queue_enter(p);
	int n = nvme_qpair_poll(p->qpair, 0);
	p->polls++;
	/* one that has failed is polled on: the driver tells the control thread, which detaches it */
	if (unlikely(!STAILQ_EMPTY(&p->waiting)) && n >= 0) {
		submit_waiting(p);
	}
	if (unlikely(n < 0)) {
		break_off(p);
	}
	p->idle_polls += n == 0;
	if (p->pausable && p->outstanding == 0 && !p->paused && p->poller != NULL) {
		p->paused = true;
		poller_pause(p->poller);
	}
	nvme_queue_exit(p);
	return n > 0 ? POLLER_BUSY : POLLER_IDLE;
}

static bool queue_arm(void *ctx)
{
	struct nvme_path *p = ctx;

	nvme_queue_enter(p);
	bool work = nvme_qpair_arm(p->qpair) || (!STAILQ_EMPTY(&p->waiting) && p->outstanding == 0);
	nvme_queue_exit(p);
	return work;
}

/* --- Waiting for the time of a retry --- */

static void go(struct nvme_path *p, struct nvme_io *n)
{
	if (n->raw) {
		nvme_queue_submit(p, n);
	} else {
		nvme_leg_submit(nvme_io_channel(n), n);
	}
}

static void delay_timer_fired(void *arg)
{
	struct nvme_path *p = arg;
	struct nvme_io_list due = STAILQ_HEAD_INITIALIZER(due);
	uint64_t now = env_ticks(), next = UINT64_MAX;
	struct nvme_io *n;

	nvme_queue_enter(p);
	STAILQ_CONCAT(&due, &p->delayed);
	while ((n = STAILQ_FIRST(&due)) != NULL) {
		STAILQ_REMOVE_HEAD(&due, link);
		if (n->due_ticks <= now) {
			n->place = NVME_IO_NOWHERE;
			go(p, n);
		} else {
			next = n->due_ticks < next ? n->due_ticks : next;
			STAILQ_INSERT_TAIL(&p->delayed, n, link);
		}
	}
	if (next != UINT64_MAX) {
		thread_timer_start(&p->delay_timer, env_ticks_to_ns(next - now) / 1000 + 1);
	}
	if (p->qpair != NULL) {
		nvme_qpair_flush(p->qpair);
	}
	nvme_queue_exit(p);
}

void nvme_queue_delay(struct nvme_path *p, struct nvme_io *n, uint32_t delay_ms)
{
	bool first = STAILQ_EMPTY(&p->delayed);

	p->retries++;
	n->place = NVME_IO_DELAYED;
	n->due_ticks = env_ticks() + delay_ms * (env_ticks_hz() / 1000);
	STAILQ_INSERT_TAIL(&p->delayed, n, link);
	if (first || n->due_ticks < p->delay_timer.deadline) {
		thread_timer_start(&p->delay_timer, delay_ms * UINT64_C(1000));
	}
}

/* --- Taking back --- */

static bool remove_from(struct nvme_io_list *list, struct nvme_io *n)
{
	struct nvme_io *i;

	STAILQ_FOREACH (i, list, link) {
		if (i == n) {
			STAILQ_REMOVE(list, n, nvme_io, link);
			n->place = NVME_IO_NOWHERE;
			return true;
		}
	}
	return false;
}

bool nvme_queue_take_back(struct nvme_path *p, struct nvme_io *n)
{
	return (n->place == NVME_IO_WAITING && remove_from(&p->waiting, n)) ||
	       (n->place == NVME_IO_DELAYED && remove_from(&p->delayed, n));
}

/* Ends those of a list that are ch's, or (NULL) all. */
static void fail_list(struct nvme_io_list *list, const struct nvme_ns_channel *ch, uint16_t status)
{
	struct nvme_io_list taken = STAILQ_HEAD_INITIALIZER(taken);
	struct nvme_io *n;

	STAILQ_CONCAT(&taken, list);
	while ((n = STAILQ_FIRST(&taken)) != NULL) {
		STAILQ_REMOVE_HEAD(&taken, link);
		if (ch == NULL || (!n->raw && bdev_channel_ctx(bdev_io_from_ctx(n)->ch) == ch)) {
			n->place = NVME_IO_NOWHERE;
			nvme_io_complete(n, status, 0);
		} else {
			STAILQ_INSERT_TAIL(list, n, link);
		}
	}
}

void nvme_queue_fail_channel(struct nvme_path *p, const struct nvme_ns_channel *ch, uint16_t status)
{
	nvme_queue_enter(p);
	fail_list(&p->waiting, ch, status);
	fail_list(&p->delayed, ch, status);
	nvme_queue_exit(p);
}

void nvme_queue_set_fails(void *path)
{
	struct nvme_path *p = path;

	nvme_queue_enter(p);
	p->fails = p->c->io_fails || p->no_queue_told; /* the control thread waits meanwhile */
	if (p->fails && p->qpair == NULL) {
		nvme_queue_redistribute(p, NULL);
	}
	nvme_leg_path_changed(p);
	nvme_queue_exit(p);
}

static void redistribute_list(struct nvme_path *p, struct nvme_io_list *list, const struct nvme_ns_channel *ch)
{
	struct nvme_io_list taken = STAILQ_HEAD_INITIALIZER(taken);
	struct nvme_io *n;

	STAILQ_CONCAT(&taken, list);
	while ((n = STAILQ_FIRST(&taken)) != NULL) {
		STAILQ_REMOVE_HEAD(&taken, link);
		if (!n->raw && (ch == NULL || nvme_io_channel(n) == ch)) {
			n->place = NVME_IO_NOWHERE;
			nvme_leg_submit(nvme_io_channel(n), n);
		} else if (n->raw && ch == NULL && p->fails) {
			n->place = NVME_IO_NOWHERE;
			nvme_io_complete(n, NVME_IO_PATH_ERROR, 0);
		} else {
			STAILQ_INSERT_TAIL(list, n, link);
		}
	}
}

void nvme_queue_redistribute(struct nvme_path *p, const struct nvme_ns_channel *ch)
{
	struct nvme_leg_channel *l;

	nvme_queue_enter(p);
	LIST_FOREACH (l, &p->legs, link) {
		nvme_leg_choose(l->ch); /* or it would come straight back */
	}
	redistribute_list(p, &p->waiting, ch);
	redistribute_list(p, &p->delayed, ch);
	nvme_queue_exit(p);
}

/* --- From and to the control thread --- */

void nvme_queue_init(struct nvme_path *p)
{
	STAILQ_INIT(&p->waiting);
	STAILQ_INIT(&p->delayed);
	LIST_INIT(&p->legs);
	p->delay_timer = (struct thread_timer){.fn = delay_timer_fired, .arg = p};
	for (uint8_t i = 0; i < NVME_PATH_RANGES; i++) {
		p->ranges_free[i] = i;
	}
	p->num_ranges_free = NVME_PATH_RANGES;
}

void nvme_queue_attach(void *path)
{
	struct nvme_path *p = path;
	int fd = nvme_qpair_fd(p->own);

	if (p->closing) {
		return;
	}
	p->poller = poller_register(&(struct poller_opts){
		.name = "bdev_nvme", .fn = queue_poll, .ctx = p, .fd = fd, .arm = fd >= 0 ? queue_arm : NULL});
	if (p->poller == NULL) {
		return; /* the control thread sees it */
	}
	p->paused = false;
	p->pausable = fd < 0;
	p->qpair = p->own;
	p->broken = false;
	nvme_queue_enter(p);
	submit_waiting(p);
	nvme_leg_path_changed(p);
	nvme_qpair_flush(p->qpair);
	nvme_queue_exit(p);
}

void nvme_queue_detach(void *path)
{
	struct nvme_path *p = path;

	poller_unregister(&p->poller);
	if (p->qpair != NULL) {
		nvme_qpair_leave(p->qpair);
		p->qpair = NULL;
		nvme_queue_redistribute(p, NULL);
		nvme_leg_path_changed(p);
	}
}

void nvme_queue_abort_all(void *path)
{
	struct nvme_path *p = path;

	nvme_queue_enter(p);
	nvme_qpair_abort_all(p->own);
	nvme_queue_exit(p);
}

void nvme_queue_leave(struct nvme_path *p)
{
	p->in_use = 1; /* for good: the frames below do not lead here again */
	nvme_queue_detach(p);
	thread_timer_stop(&p->delay_timer);
	nvme_path_post_leave(p);
}
