/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completion channels: an eventfd that counts events, which peers write to directly, and a count per completion queue
 * in shared memory that tells which of them fired.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "softverbs/softverbs.h"

#define MAX_DRAIN 4096

/* Peers ask for a channel by its id. */
static pthread_mutex_t g_channels_lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, sv_channel) g_channels = LIST_HEAD_INITIALIZER(g_channels);
static uint32_t g_last_id;

void sv_eventfd_take(int fd)
{
	uint64_t one;
	struct iovec iov = {&one, sizeof(one)};
	struct pollfd p = {.fd = fd, .events = POLLIN};

	if (preadv2(fd, &iov, 1, -1, RWF_NOWAIT) >= 0 || errno == EAGAIN) {
		return;
	}
	/* An old kernel. If another reader is faster, this read blocks until the next event. */
	if (poll(&p, 1, 0) == 1 && read(fd, &one, sizeof(one)) < 0) {
		return;
	}
}

SV_EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct sv_channel *channel = calloc(1, sizeof(*channel));

	if (channel == NULL) {
		return NULL;
	}
	channel->ibv.context = context;
	channel->ibv.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	if (channel->ibv.fd < 0) {
		free(channel);
		return NULL;
	}
	pthread_mutex_init(&channel->lock, NULL);
	TAILQ_INIT(&channel->cqs);
	pthread_mutex_lock(&g_channels_lock);
	channel->id = ++g_last_id;
	LIST_INSERT_HEAD(&g_channels, channel, link);
	pthread_mutex_unlock(&g_channels_lock);
	atomic_fetch_add(&sv_context(context)->objects, 1);
	return &channel->ibv;
}

SV_EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *ibv)
{
	struct sv_channel *channel = (struct sv_channel *)ibv;
	bool empty;

	pthread_mutex_lock(&channel->lock);
	empty = TAILQ_EMPTY(&channel->cqs);
	pthread_mutex_unlock(&channel->lock);
	if (!empty) {
		return EBUSY;
	}
	pthread_mutex_lock(&g_channels_lock);
	LIST_REMOVE(channel, link);
	pthread_mutex_unlock(&g_channels_lock);
	close(ibv->fd);
	atomic_fetch_sub(&sv_context(ibv->context)->objects, 1);
	pthread_mutex_destroy(&channel->lock);
	free(channel);
	return 0;
}

void sv_channel_add(struct ibv_comp_channel *ibv, struct sv_cq *cq)
{
	struct sv_channel *channel = (struct sv_channel *)ibv;

	pthread_mutex_lock(&channel->lock);
	TAILQ_INSERT_TAIL(&channel->cqs, cq, on_channel);
	ibv->refcnt++;
	pthread_mutex_unlock(&channel->lock);
}

void sv_channel_remove(struct ibv_comp_channel *ibv, struct sv_cq *cq)
{
	struct sv_channel *channel = (struct sv_channel *)ibv;
	uint32_t pending;

	pthread_mutex_lock(&channel->lock);
	TAILQ_REMOVE(&channel->cqs, cq, on_channel);
	ibv->refcnt--;
	/* Bounded, since a buggy peer may have changed the count: each event should be one write to the eventfd. */
	pending = atomic_exchange(&cq->shm->fired, 0);
	for (uint32_t i = 0; i < pending && i < MAX_DRAIN; i++) {
		sv_eventfd_take(ibv->fd);
	}
	pthread_mutex_unlock(&channel->lock);
}

uint32_t sv_channel_id(const struct ibv_comp_channel *channel)
{
	return channel != NULL ? ((const struct sv_channel *)channel)->id : 0;
}

int sv_channel_fd_by_id(uint32_t id)
{
	struct sv_channel *channel;
	int fd = -1;

	pthread_mutex_lock(&g_channels_lock);
	LIST_FOREACH (channel, &g_channels, link) {
		if (channel->id == id) {
			fd = fcntl(channel->ibv.fd, F_DUPFD_CLOEXEC, 0);
		}
	}
	pthread_mutex_unlock(&g_channels_lock);
	return fd;
}

/* The next completion queue with an event, moved to the end so that none starves. Under channel->lock. */
static struct sv_cq *channel_next(struct sv_channel *channel)
{
	struct sv_cq *cq;

	TAILQ_FOREACH (cq, &channel->cqs, on_channel) {
		uint32_t fired = atomic_load(&cq->shm->fired);

		while (fired != 0) {
			if (atomic_compare_exchange_weak(&cq->shm->fired, &fired, fired - 1)) {
				TAILQ_REMOVE(&channel->cqs, cq, on_channel);
				TAILQ_INSERT_TAIL(&channel->cqs, cq, on_channel);
				return cq;
			}
		}
	}
	return NULL;
}

SV_EXPORT int ibv_get_cq_event(struct ibv_comp_channel *ibv, struct ibv_cq **cq_out, void **cq_context)
{
	struct sv_channel *channel = (struct sv_channel *)ibv;
	struct sv_cq *cq;
	uint64_t one;

	for (;;) {
		if (read(ibv->fd, &one, sizeof(one)) < 0) {
			return -1;
		}
		pthread_mutex_lock(&channel->lock);
		cq = channel_next(channel);
		if (cq != NULL) {
			break;
		}
		pthread_mutex_unlock(&channel->lock); /* the completion queue was destroyed meanwhile */
	}
	pthread_mutex_lock(&cq->events_lock);
	cq->comp_events_got++;
	pthread_mutex_unlock(&cq->events_lock);
	pthread_mutex_unlock(&channel->lock);
	*cq_out = sv_ibv_cq(cq);
	*cq_context = cq->ex.cq_context;
	return 0;
}

SV_EXPORT void ibv_ack_cq_events(struct ibv_cq *ibv, unsigned int nevents)
{
	struct sv_cq *cq = sv_cq(ibv);

	pthread_mutex_lock(&cq->events_lock);
	cq->comp_events_acked += nevents;
	pthread_cond_broadcast(&cq->events_cond);
	pthread_mutex_unlock(&cq->events_lock);
}
