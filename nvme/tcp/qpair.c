/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue pairs of the TCP transport: their memory and their end. Control thread. */
#include "nvme/tcp/tcp.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define STAGE_IO    65536 /* bytes: responses of many commands in one read */
#define STAGE_ADMIN 8192

static bool qpair_buffers_make(struct nvme_tcp_qpair *q)
{
	uint32_t most = q->base.entries * (1u + NVME_TCP_R2TS), ring = 1,
		 stage = q->base.id == 0 ? STAGE_ADMIN : STAGE_IO;

	while (ring < most) {
		ring *= 2;
	}
	q->queue_mask = ring - 1;
	q->slots = calloc(q->base.entries, sizeof(*q->slots));
	q->queue = calloc(ring, sizeof(*q->queue));
	q->pdus = aligned_alloc(64, sizeof(*q->pdus) * NVME_TCP_BATCH_PDUS);
	q->iovs = calloc(NVME_TCP_BATCH_IOVS, sizeof(*q->iovs));
	q->stage = aligned_alloc(64, stage);
	if (q->slots == NULL || q->queue == NULL || q->pdus == NULL || q->iovs == NULL || q->stage == NULL) {
		return false;
	}
	tcp_receiver_init(&q->rx, TCP_HOST, q->stage, stage);
	return true;
}

static void qpair_buffers_free(struct nvme_tcp_qpair *q)
{
	free(q->slots);
	free(q->queue);
	free(q->pdus);
	free(q->iovs);
	free(q->stage);
}

struct nvme_qpair *nvme_tcp_qpair_alloc(struct nvme_ctrlr *ctrlr, uint16_t id, uint16_t entries,
					const struct nvme_qpair_opts *opts)
{
	struct nvme_tcp_qpair *q = calloc(1, sizeof(*q));

	if (q == NULL) {
		return NULL;
	}
	if (nvme_qpair_init(&q->base, ctrlr, id, entries) != 0) {
		free(q);
		return NULL;
	}
	q->fd = q->epoll = -1;
	q->in_capsule_max = id == 0 ? 0 : nvme_capsule_room(&ctrlr->id);
	if (!qpair_buffers_make(q)) {
		qpair_buffers_free(q);
		nvme_qpair_fini(&q->base);
		free(q);
		return NULL;
	}
	return &q->base;
}

/* The user reads the end of the stream then, and its next send fails: both end its use of the socket. What has been
 * sent arrives nevertheless, as the commands of an RDMA queue pair do, unless some of it was sent without a copy and is
 * not acknowledged (nvme_tcp_zerocopy_end()): nvme_ctrlr_has_ended() says whether they are carried out. */
void nvme_tcp_qpair_stop(struct nvme_qpair *base, void (*done)(void *arg), void *arg)
{
	struct nvme_tcp_qpair *q = nvme_tcp_qpair_of(base);

	nvme_tcp_set_down(q);
	if (q->fd >= 0) {
		shutdown(q->fd, SHUT_RDWR);
	}
	nvme_tcp_zerocopy_stop(q, done, arg);
}

void nvme_tcp_qpair_free(struct nvme_qpair *base)
{
	struct nvme_tcp_qpair *q = nvme_tcp_qpair_of(base);

	thread_timer_stop(&q->timer);
	if (q->source != NULL) {
		fd_source_remove(&q->source);
	}
	nvme_tcp_secure_cancel(q);
	tls_session_free(q->tls);
	if (q->epoll >= 0) {
		close(q->epoll);
	}
	if (q->fd >= 0) {
		close(q->fd);
	}
	nvme_tcp_zerocopy_free(q);
	qpair_buffers_free(q);
	nvme_qpair_fini(base);
	free(q);
}

int nvme_tcp_fd(const struct nvme_qpair *base)
{
	return nvme_tcp_qpair_of(base)->epoll;
}
