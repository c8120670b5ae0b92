/* SPDX-License-Identifier: BSD-3-Clause */
/* A poll group's share of the transport: one epoll set with all its sockets. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "nvmf_tcp/internal.h"

static void handle_socket(struct nvmf_tcp_group *g, const struct epoll_event *e)
{
	struct nvmf_tcp_qpair *qp = e->data.ptr;
	uint32_t bits = e->events;

	if (unlikely((e->data.u64 & NVMF_TCP_LEAVER_BIT) != 0)) {
		nvmf_tcp_leaver_readable(g, (struct nvmf_tcp_leaver *)(uintptr_t)(e->data.u64 - NVMF_TCP_LEAVER_BIT));
		return;
	}
	if (!nvmf_tcp_qpair_is_open(qp)) { /* closed by what an earlier event of this round has caused */
		return;
	}
	if ((bits & EPOLLOUT) != 0) {
		nvmf_tcp_qpair_mark_dirty(qp, false);
	}
	if (unlikely((bits & EPOLLERR) != 0) && qp->zerocopy != NULL && nvmf_tcp_zerocopy_notified(qp)) {
		bits &= ~(uint32_t)EPOLLERR; /* of an error epoll tells again when there are no notifications */
	}
	if (unlikely((bits & (EPOLLERR | EPOLLHUP)) != 0 && nvmf_tcp_qpair_reads_nothing(qp))) {
		qp->broken = true;
		nvmf_qpair_disconnect(&qp->base, "the connection broke");
	} else if ((bits & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0) {
		nvmf_tcp_qpair_receive(qp);
	}
}

/* Sends what the requests of this round have to send. Those that begin to read again go on. */
static unsigned run_dirty(struct nvmf_tcp_group *g)
{
	struct nvmf_tcp_qpair *qp;
	unsigned n = 0;

	/* those that become dirty meanwhile have their turn in the next round: a budget */
	for (unsigned left = g->num_dirty; left > 0 && (qp = STAILQ_FIRST(&g->dirty)) != NULL; left--, n++) {
		nvmf_tcp_qpair_unmark_dirty(qp);
		nvmf_tcp_qpair_send(qp);
		if (unlikely(qp->look) && nvmf_tcp_qpair_is_open(qp)) {
			qp->look = false;
			nvmf_tcp_qpair_receive(qp);
			if (nvmf_tcp_qpair_is_open(qp)) {
				nvmf_tcp_qpair_update_events(qp);
			}
		}
	}
	return n;
}

static int poll_sockets(void *ctx)
{
	struct nvmf_tcp_group *g = ctx;
	struct epoll_event events[NVMF_TCP_EVENTS];
	int n = epoll_wait(g->epoll, events, NVMF_TCP_EVENTS, 0);

	g->counters.polls++;
	for (int i = 0; i < n; i++) {
		handle_socket(g, &events[i]);
	}
	if (unlikely(nvmf_buffers_are_awaited(&g->buffers))) {
		nvmf_tcp_group_run_waiting(g);
	}
	if (run_dirty(g) == 0 && n <= 0) {
		g->counters.idle_polls++;
		return POLLER_IDLE;
	}
	return POLLER_BUSY;
}

/* Before the reactor sleeps. epoll's own descriptor wakes it when a socket is ready. A command that waits for a buffer
 * keeps it awake, because another group may give the buffer back. */
static bool arm_sockets(void *ctx)
{
	const struct nvmf_tcp_group *g = ctx;

	return !STAILQ_EMPTY(&g->dirty) || nvmf_buffers_are_awaited(&g->buffers);
}

/* ---- Making and unmaking ---- */

static bool make_pollers(struct nvmf_tcp_group *g, const struct nvmf_transport *t)
{
	g->stall_poller = poller_register(&(struct poller_opts){.name = "nvmf_tcp_stalled",
								.fn = nvmf_tcp_group_poll_stalled,
								.ctx = g,
								.fd = -1,
								.period_us = nvmf_tcp_stall_poll_us(t)});
	g->poller =
		g->stall_poller != NULL
			? poller_register(&(struct poller_opts){
				  .name = "nvmf_tcp", .fn = poll_sockets, .ctx = g, .fd = g->epoll, .arm = arm_sockets})
			: NULL;
	return g->poller != NULL;
}

struct nvmf_transport_group *nvmf_tcp_op_group_create(struct nvmf_transport *base, struct nvmf_poll_group *group,
						      char why[NVMF_ERROR_MAX])
{
	struct nvmf_tcp_transport *t = nvmf_tcp_transport_of(base);
	struct nvmf_tcp_group *g = calloc(1, sizeof(*g));
	char error[ENV_ERROR_MAX] = "no memory";
	int saved;

	if (g == NULL) {
		errno = ENOMEM;
		return NULL;
	}
	STAILQ_INIT(&g->dirty);
	TAILQ_INIT(&g->qpairs);
	TAILQ_INIT(&g->leavers);
	g->latency.until_sample = 1;
	g->latency.first_samples_left = LATENCY_FIRST_SAMPLES;
	g->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (g->epoll < 0) {
		saved = errno;
		snprintf(why, NVMF_ERROR_MAX, "a poll group cannot serve it: epoll: %s", strerror(saved));
		goto fail;
	}
	saved = ENOMEM;
	if (nvmf_buffer_group_create(&g->buffers, &t->buffers, &base->opts, error) != 0) {
		snprintf(why, NVMF_ERROR_MAX, "a poll group cannot serve it: %.220s", error);
		goto fail;
	}
	if (!make_pollers(g, base)) {
		snprintf(why, NVMF_ERROR_MAX, "a poll group cannot serve it: no memory for its pollers");
		nvmf_buffer_group_destroy(&g->buffers);
		goto fail;
	}
	g->base.buffers = &g->buffers;
	return &g->base;
fail:
	if (g->stall_poller != NULL) {
		poller_unregister(&g->stall_poller);
	}
	if (g->epoll >= 0) {
		close(g->epoll);
	}
	free(g);
	errno = saved;
	return NULL;
}

void nvmf_tcp_op_group_destroy(struct nvmf_transport_group *base)
{
	struct nvmf_tcp_group *g = nvmf_tcp_group_of(base);

	poller_unregister(&g->poller);
	poller_unregister(&g->stall_poller);
	nvmf_tcp_leavers_close(g);
	close(g->epoll);
	nvmf_buffer_group_destroy(&g->buffers);
	free(g);
}
