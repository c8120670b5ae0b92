/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams as the control thread sees them: their memory, and the opening and closing of their queue pairs. */
#include "tools/perf/perf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "env_dpdk/env.h"
#include "tools/perf/pattern.h"
#include "util/log.h"

static size_t perf_io_size(void)
{
	size_t remote = nvme_request_size(), local = bdev_io_size();

	return (offsetof(struct perf_io, req) + (remote > local ? remote : local) + 63) & ~(size_t)63;
}

static bool perf_stream_create_ios(struct perf_stream *s)
{
	uint32_t n = s->opts->queue_depth;

	s->memory = aligned_alloc(64, n * perf_io_size());
	s->buffers = env_dma_zmalloc((size_t)n * s->opts->io_size, 4096, env_lcore_numa_node(s->worker->lcore));
	if (s->memory == NULL || s->buffers == NULL) {
		return false;
	}
	memset(s->memory, 0, n * perf_io_size());
	for (uint32_t i = 0; i < n; i++) {
		struct perf_io *io = (struct perf_io *)((uint8_t *)s->memory + i * perf_io_size());

		io->stream = s;
		io->iov = (struct iovec){.iov_base = (uint8_t *)s->buffers + (size_t)i * s->opts->io_size,
					 .iov_len = s->opts->io_size};
		if (s->target->desc == NULL) {
			io->req.iovs = &io->iov;
			io->req.iovcnt = 1;
			io->req.data_len = s->opts->io_size;
			io->req.cb_arg = io;
		}
		STAILQ_INSERT_TAIL(&s->idle, io, link);
	}
	return true;
}

static bool perf_stream_create_verification(struct perf_stream *s)
{
	if (!s->opts->verify) {
		return true;
	}
	s->writer = pattern_writer_id(s->opts->hostnqn, s->opts->seed, s->target->index, s->nsid);
	s->created_ticks = env_ticks();
	s->found = calloc(s->blocks_per_unit, sizeof(*s->found));
	s->busy = calloc(s->units / 64 + 1, sizeof(*s->busy));
	return ledger_init(&s->ledger, s->units, s->blocks_per_unit) && s->found != NULL && s->busy != NULL;
}

struct perf_stream *perf_stream_create(const struct perf_options *opts, struct perf_target *target,
				       struct perf_worker *worker, const struct nvme_ns *ns, uint64_t first_lba,
				       uint64_t units)
{
	static uint64_t serial;
	struct perf_stream *s = calloc(1, sizeof(*s));

	if (s == NULL) {
		return NULL;
	}
	*s = (struct perf_stream){.target = target,
				  .worker = worker,
				  .opts = opts,
				  .nsid = ns->nsid,
				  .block_size = ns->block_size,
				  .blocks_per_unit = opts->io_size / ns->block_size,
				  .first_lba = first_lba,
				  .units = units,
				  .random = (opts->seed + ++serial) * UINT64_C(0x9e3779b97f4a7c15) | 1};
	s->pi_format = ns->pi_format;
	if (ns->pi_type != 0) { /* type 3 has no reference tag to check */
		s->prinfo = NVME_PI_ACT | NVME_PI_CHECK_GUARD |
			    (ns->pi_type != NVME_NS_DPS_PI_TYPE3 ? NVME_PI_CHECK_REF : 0);
	}
	s->phase = opts->verify ? STREAM_PREFILL : STREAM_FILLED;
	s->budget = opts->verify ? units : 0;
	STAILQ_INIT(&s->idle);
	STAILQ_INIT(&s->retry);
	if (!perf_stream_create_ios(s) || !perf_stream_create_verification(s)) {
		perf_stream_free(s);
		return NULL;
	}
	TAILQ_INSERT_TAIL(&worker->streams, s, link);
	return s;
}

void perf_stream_free(struct perf_stream *s)
{
	free(s->memory);
	env_dma_free(s->buffers);
	ledger_fini(&s->ledger);
	free(s->found);
	free(s->busy);
	free(s);
}

static void perf_stream_on_stop(void *arg)
{
	struct perf_stream *s = arg;

	thread_call(s->worker->thread, perf_stream_abort, s);
	nvme_qpair_destroy(s->closing);
	s->closing = NULL;
}

static void perf_stream_on_open(void *arg, struct nvme_qpair *qpair, int error)
{
	struct perf_stream *s = arg;

	s->opening = false;
	if (error != 0) {
		if (!s->target->closed && s->target->ready && error != -ECONNRESET) {
			perf_target_refuses_queue(s->target, error);
		}
		return;
	}
	if (s->target->closed || !s->target->ready) { /* the target has failed or closed meanwhile: disconnect again */
		s->closing = qpair;
		nvme_qpair_stop(qpair, perf_stream_on_stop, s);
		return;
	}
	s->qpair = qpair;
	thread_call(s->worker->thread, perf_stream_attach, s);
}

void perf_stream_open(struct perf_stream *s)
{
	struct nvme_qpair_opts q = {.entries = (uint16_t)(s->opts->queue_depth < 16 ? 16 : s->opts->queue_depth),
				    .numa_node = env_lcore_numa_node(s->worker->lcore),
				    .lcore = s->worker->lcore};

	s->wanted = false;
	if (s->target->desc != NULL) {
		thread_call(s->worker->thread, perf_stream_attach_local, s);
		if (s->channel == NULL) {
			log_error("no channel to a block device: out of memory");
			s->target->failed = true;
		}
		return;
	}
	s->opening = true;
	nvme_qpair_create(s->target->ctrlr, &q, perf_stream_on_open, s);
}

void perf_stream_close(struct perf_stream *s)
{
	s->wanted = false;
	if (s->channel != NULL) {
		thread_call(s->worker->thread, perf_stream_detach_local, s);
	}
	if (s->qpair == NULL) {
		return;
	}
	thread_call(s->worker->thread, perf_stream_detach, s);
	nvme_qpair_stop(s->closing, perf_stream_on_stop, s);
}
