/* SPDX-License-Identifier: BSD-3-Clause */
/* What runs on the reactors: choosing the next I/O, submitting, checking, counting. */
#include "tools/perf/perf.h"

#include <string.h>

#include "env_dpdk/env.h"
#include "tools/perf/verify.h"
#include "util/log.h"

/* With a rate limit: the shortest time between two looks whether an I/O is due, and the time until the next one when
 * one is due that no stream could submit, which it does when an earlier one completes. */
#define RATE_POLL_US 100
#define RATE_FULL_US 1000

static uint64_t perf_stream_next_random(struct perf_stream *s)
{
	s->random ^= s->random << 13;
	s->random ^= s->random >> 7;
	s->random ^= s->random << 17;
	return s->random;
}

/* A random number below n, without a division. */
static uint64_t perf_stream_random_below(struct perf_stream *s, uint64_t n)
{
	return (uint64_t)(((unsigned __int128)perf_stream_next_random(s) * n) >> 64);
}

static bool perf_unit_is_busy(const struct perf_stream *s, uint64_t unit)
{
	return s->busy != NULL && (s->busy[unit / 64] >> unit % 64 & 1) != 0;
}

static void perf_unit_set_busy(struct perf_stream *s, uint64_t unit, bool on)
{
	if (s->busy == NULL) {
		return;
	}
	if (on) {
		s->busy[unit / 64] |= UINT64_C(1) << unit % 64;
	} else {
		s->busy[unit / 64] &= ~(UINT64_C(1) << unit % 64);
	}
}

static uint64_t perf_stream_next_in_sequence(struct perf_stream *s)
{
	uint64_t unit = s->cursor++;

	if (s->cursor == s->units) {
		s->cursor = 0;
	}
	return unit;
}

/* Chooses the next unit that has no I/O outstanding. False: a few attempts found none, because the queue is nearly as
 * deep as the region is large. */
static bool perf_stream_choose_unit(struct perf_stream *s, uint64_t *unit)
{
	for (unsigned i = 0; i < 8; i++) {
		*unit = s->opts->random && s->phase == STREAM_RUN ? perf_stream_random_below(s, s->units)
								  : perf_stream_next_in_sequence(s);
		if (!perf_unit_is_busy(s, *unit)) {
			return true;
		}
	}
	return false;
}

static bool perf_stream_may_issue(const struct perf_stream *s)
{
	const struct perf_worker *w = s->worker;

	if (w->rate == 0) {
		return true;
	}
	if (w->arrival_rate != 0) {
		return arrivals_are_due(&s->arrivals, thread_now());
	}
	return (double)w->rate_issued < (double)(thread_now() - w->rate_start) * w->rate;
}

/* Lost with the connection; or refused, without having been carried out, by a target that is about to end it. */
static bool perf_status_asks_for_another_time(uint16_t status)
{
	return (status & 0x7ff) == NVME_ST(GENERIC, ABORT_QUEUE) || status == NVME_ST(PATH, CTRL_PATH_ERROR);
}

static void perf_request_done(struct nvme_request *req, const struct nvme_cqe *cqe);

static void perf_bdev_io_done(struct bdev_io *bio, void *arg);

/* The I/O may end before this function returns. */
static int perf_io_submit_local(struct perf_stream *s, struct perf_io *io)
{
	bdev_io_init(&io->bio, s->target->desc, s->channel, perf_bdev_io_done, io);
	bdev_io_set_rw(&io->bio, io->is_read ? BDEV_IO_READ : BDEV_IO_WRITE, &io->iov, 1,
		       s->first_lba + io->unit * s->blocks_per_unit, s->blocks_per_unit);
	s->outstanding++;
	bdev_submit(&io->bio);
	return 0;
}

static int perf_io_submit(struct perf_stream *s, struct perf_io *io)
{
	if (s->channel != NULL) {
		return perf_io_submit_local(s, io);
	}
	uint64_t lba = s->first_lba + io->unit * s->blocks_per_unit;

	memset(&io->req.cmd, 0, sizeof(io->req.cmd));
	io->req.cmd.opcode = io->is_read ? nvme_cmd_read : nvme_cmd_write;
	io->req.cmd.nsid = htole32(s->nsid);
	io->req.cmd.cdw10 = htole32((uint32_t)lba);
	io->req.cmd.cdw11 = htole32((uint32_t)(lba >> 32));
	io->req.cmd.cdw12 = htole32((s->blocks_per_unit - 1) | s->prinfo);
	nvme_pi_space_set(&io->req.cmd, s->pi_format, 0, lba); /* the reference tag, where there is one */
	io->req.to_device = !io->is_read;
	io->req.cb = perf_request_done;
	int rc = nvme_qpair_submit(s->qpair, &io->req);
	if (rc == 0) {
		s->outstanding++;
	}
	return rc;
}

static void perf_io_prepare(struct perf_stream *s, struct perf_io *io, uint64_t unit)
{
	io->unit = unit;
	io->is_read = s->phase == STREAM_RUN && perf_stream_random_below(s, 100) < s->opts->read_percent;
	/* The latency of an arrival begins when it is due: if it has to wait, because the queue is full or the worker
	 * is late, so would a user's request. */
	io->start_ticks = s->worker->arrival_rate != 0 ? arrivals_take(&s->arrivals) : env_ticks();
	perf_unit_set_busy(s, unit, true);
	if (s->opts->verify && !io->is_read) {
		perf_verify_issue(s, io);
	}
}

/* Submits the I/Os again that were lost with a connection, unchanged: whether a write had been carried out or not, the
 * result is the same. There is no fence as bdev_modules/nvme has it: a write that the lost controller carries out late
 * may land behind a newer one of the same unit. */
static void perf_stream_resubmit(struct perf_stream *s)
{
	struct perf_io *io;

	while ((io = STAILQ_FIRST(&s->retry)) != NULL) {
		STAILQ_REMOVE_HEAD(&s->retry, link);
		if (perf_io_submit(s, io) != 0) {
			STAILQ_INSERT_HEAD(&s->retry, io, link);
			return;
		}
	}
}

static void perf_stream_refill(struct perf_stream *s)
{
	struct perf_io *io;
	uint64_t unit;

	perf_stream_resubmit(s);
	/* bounded, because an I/O that a block device completes at once is idle again */
	for (uint32_t n = s->opts->queue_depth; n > 0; n--) {
		if ((io = STAILQ_FIRST(&s->idle)) == NULL || s->budget == 0 || !perf_stream_may_issue(s) ||
		    !perf_stream_choose_unit(s, &unit)) {
			return;
		}
		STAILQ_REMOVE_HEAD(&s->idle, link);
		perf_io_prepare(s, io, unit);
		s->budget--;
		s->worker->rate_issued++;
		if (perf_io_submit(s, io) != 0) {
			STAILQ_INSERT_TAIL(&s->retry, io, link);
			return;
		}
	}
}

static void perf_io_count(struct perf_stream *s, const struct perf_io *io)
{
	uint64_t ticks = env_ticks() - io->start_ticks;

	if (io->is_read) {
		s->stats.reads++;
		histogram_add(&s->stats.read_ticks, ticks);
	} else {
		s->stats.writes++;
		histogram_add(&s->stats.write_ticks, ticks);
	}
}

static void perf_io_finish(struct perf_stream *s, struct perf_io *io, uint16_t status)
{
	perf_unit_set_busy(s, io->unit, false);
	STAILQ_INSERT_HEAD(&s->idle, io, link); /* the most recently used buffer is the warmest */
	if (s->opts->verify && !io->is_read) {
		perf_verify_answer(s, io, status == 0);
	}
	if (status != 0) {
		s->stats.errors++;
		log_limited(LOG_LEVEL_ERROR, "%s of namespace %u failed: %s", io->is_read ? "read" : "write", s->nsid,
			    nvme_status_text(status));
		return;
	}
	if (s->phase != STREAM_PREFILL) {
		perf_io_count(s, io);
	}
	if (io->is_read && s->opts->verify) {
		perf_verify_read(s, io);
	}
}

static void perf_request_done(struct nvme_request *req, const struct nvme_cqe *cqe)
{
	struct perf_io *io = req->cb_arg;
	struct perf_stream *s = io->stream;
	uint16_t status = nvme_cqe_status(cqe);

	s->outstanding--;
	if (perf_status_asks_for_another_time(status)) {
		s->stats.retries++;
		STAILQ_INSERT_TAIL(&s->retry, io, link);
		return;
	}
	perf_io_finish(s, io, status);
}

static void perf_bdev_io_done(struct bdev_io *bio, void *arg)
{
	struct perf_io *io = arg;

	io->stream->outstanding--;
	perf_io_finish(io->stream, io, bio->status);
}

static bool perf_stream_is_working(const struct perf_stream *s)
{
	return s->phase == STREAM_PREFILL || s->phase == STREAM_RUN;
}

static void perf_stream_check_filled(struct perf_stream *s)
{
	if (s->phase == STREAM_PREFILL && s->budget == 0 && s->outstanding == 0 && STAILQ_EMPTY(&s->retry)) {
		__atomic_store_n(&s->phase, STREAM_FILLED, __ATOMIC_RELEASE); /* read by the control thread */
	}
}

/* Submits I/O to a block device; completions come from the pollers of the block device itself. */
static int perf_stream_poll_local(void *ctx)
{
	struct perf_stream *s = ctx;

	if (perf_stream_is_working(s)) {
		perf_stream_refill(s);
	}
	perf_stream_check_filled(s);
	return s->outstanding != 0 ? POLLER_BUSY : POLLER_IDLE;
}

static int perf_stream_poll(void *ctx)
{
	struct perf_stream *s = ctx;
	int n = nvme_qpair_poll(s->qpair, 0);

	if (n < 0) { /* the control thread gets NVME_EVENT_DOWN and closes the queue pair */
		return POLLER_IDLE;
	}
	if (perf_stream_is_working(s)) {
		perf_stream_refill(s);
	} else {
		perf_stream_resubmit(s);
	}
	nvme_qpair_flush(s->qpair);
	perf_stream_check_filled(s);
	return n > 0 ? POLLER_BUSY : POLLER_IDLE;
}

static bool perf_stream_arm(void *ctx)
{
	return nvme_qpair_arm(((struct perf_stream *)ctx)->qpair);
}

void perf_stream_attach(void *arg)
{
	struct perf_stream *s = arg;

	s->poller = poller_register(&(struct poller_opts){.name = "perf_stream",
							  .fn = perf_stream_poll,
							  .ctx = s,
							  .fd = nvme_qpair_fd(s->qpair),
							  .arm = perf_stream_arm});
}

void perf_stream_detach(void *arg)
{
	struct perf_stream *s = arg;

	poller_unregister(&s->poller);
	s->closing = s->qpair;
	s->qpair = NULL;
}

void perf_stream_attach_local(void *arg)
{
	struct perf_stream *s = arg;

	s->channel = bdev_channel_get(s->target->desc);
	if (s->channel != NULL) {
		s->poller = poller_register(
			&(struct poller_opts){.name = "perf_local", .fn = perf_stream_poll_local, .ctx = s, .fd = -1});
	}
}

void perf_stream_detach_local(void *arg)
{
	struct perf_stream *s = arg;

	poller_unregister(&s->poller);
	bdev_channel_put(s->channel);
	s->channel = NULL;
}

void perf_stream_abort(void *arg)
{
	nvme_qpair_abort_all(((struct perf_stream *)arg)->closing);
}

/* Submits what is due of all streams, those of a sleeping worker too. */
static void perf_worker_submit_due(struct perf_worker *w)
{
	struct perf_stream *s;

	TAILQ_FOREACH (s, &w->streams, link) {
		if (s->qpair != NULL && perf_stream_may_issue(s)) { /* streams of block devices never sleep */
			perf_stream_poll(s);
		}
	}
}

static int perf_worker_poll_arrivals(void *ctx)
{
	perf_worker_submit_due(ctx);
	return POLLER_BUSY;
}

/* Microseconds until the next look whether an I/O is due. */
static uint64_t perf_worker_rate_delay_us(const struct perf_worker *w)
{
	if ((double)w->rate_issued < (double)(thread_now() - w->rate_start) * w->rate) {
		return RATE_FULL_US; /* one is due, as perf_stream_may_issue() has it, and no stream has room */
	}
	double ticks = (double)w->rate_issued / w->rate - (double)(env_ticks() - w->rate_start);
	uint64_t us = ticks > 0 ? (uint64_t)(ticks * 1e6 / (double)env_ticks_hz()) + 1 : 0;

	return us > RATE_POLL_US ? us : RATE_POLL_US;
}

static void perf_worker_rate_due(void *arg)
{
	struct perf_worker *w = arg;

	perf_worker_submit_due(w);
	thread_timer_start(&w->rate_timer, perf_worker_rate_delay_us(w));
}

void perf_worker_start_rate(void *arg)
{
	struct perf_worker *w = arg;

	w->rate_start = env_ticks();
	w->rate_issued = 0;
	if (w->arrival_rate == 0) {
		w->rate_timer = (struct thread_timer){.fn = perf_worker_rate_due, .arg = w};
		thread_timer_start(&w->rate_timer, RATE_POLL_US);
		return;
	}
	/* in every round, so that no arrival waits for the poller */
	w->arrivals_poller = poller_register(
		&(struct poller_opts){.name = "perf_arrivals", .fn = perf_worker_poll_arrivals, .ctx = w, .fd = -1});
}

void perf_worker_stop_rate(void *arg)
{
	struct perf_worker *w = arg;

	thread_timer_stop(&w->rate_timer);
	poller_unregister(&w->arrivals_poller);
}
