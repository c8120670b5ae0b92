/* SPDX-License-Identifier: BSD-3-Clause */
/* Event channels of the connection manager: a list, and an eventfd that counts the events on it. */
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "softverbs/cm.h"

SV_EXPORT struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct sv_cm_channel *channel;

	if (sv_cm_context() == NULL) {
		errno = ENODEV;
		return NULL;
	}
	channel = calloc(1, sizeof(*channel));
	if (channel == NULL) {
		return NULL;
	}
	channel->rdma.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	if (channel->rdma.fd < 0) {
		free(channel);
		return NULL;
	}
	TAILQ_INIT(&channel->events);
	return &channel->rdma;
}

static void event_drop(struct sv_cm_event *e)
{
	if (e->child != NULL) {
		sv_cm_id_free(e->child); /* a request that the program has not got and never will */
	}
	free(e);
}

SV_EXPORT void rdma_destroy_event_channel(struct rdma_event_channel *rdma)
{
	struct sv_cm_channel *channel = (struct sv_cm_channel *)rdma;
	struct sv_cm_event *e;

	pthread_mutex_lock(&sv.lock);
	while ((e = TAILQ_FIRST(&channel->events)) != NULL) {
		TAILQ_REMOVE(&channel->events, e, link);
		event_drop(e);
	}
	pthread_mutex_unlock(&sv.lock);
	close(rdma->fd);
	free(channel);
}

static void event_queue(struct sv_cm_channel *channel, struct sv_cm_event *e)
{
	TAILQ_INSERT_TAIL(&channel->events, e, link);
	sv_kick(channel->rdma.fd);
}

struct sv_cm_event *sv_cm_raise(struct sv_cm_id *id, enum rdma_cm_event_type type, int status, const void *private_data,
				uint8_t length, uint8_t size)
{
	struct sv_cm_event *e = calloc(1, sizeof(*e));

	if (e == NULL) {
		sv_warn("connection event %d is lost: out of memory", type);
		return NULL;
	}
	e->id = id;
	e->rdma.id = &id->rdma;
	e->rdma.event = type;
	e->rdma.status = status;
	if (size != 0) {
		memcpy(e->private_data, private_data, length);
		e->rdma.param.conn.private_data = e->private_data;
		e->rdma.param.conn.private_data_len = size;
	}
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
		e->child = id;
		e->id = id->listener;
		e->rdma.listen_id = &id->listener->rdma;
	}
	event_queue((struct sv_cm_channel *)id->rdma.channel, e);
	return e;
}

void sv_cm_forget_events(struct sv_cm_id *id)
{
	struct sv_cm_channel *channel = (struct sv_cm_channel *)id->rdma.channel;
	struct sv_cm_event *e, *next;

	for (e = TAILQ_FIRST(&channel->events); e != NULL; e = next) {
		next = TAILQ_NEXT(e, link);
		if (e->id == id || e->rdma.id == &id->rdma) {
			TAILQ_REMOVE(&channel->events, e, link);
			sv_eventfd_take(channel->rdma.fd);
			event_drop(e);
			/* Freeing a request's id drops that id's events too. */
			next = TAILQ_FIRST(&channel->events);
		}
	}
}

void sv_cm_wait_acked(struct sv_cm_id *id)
{
	while (id->events_got != id->events_acked) {
		pthread_cond_wait(&id->acked, &sv.lock);
	}
}

/*
 * Handles the passive side's answer. If the connection manager owns the queue pair, the queue pair is brought up here,
 * in the thread that asks for the event, and the program gets ESTABLISHED; otherwise the program gets CONNECT_RESPONSE
 * and continues by itself.
 */
static void event_prepare(struct sv_cm_event *e)
{
	struct sv_cm_id *id = sv_cm_id(e->rdma.id);
	int rc;

	if (e->rdma.event == RDMA_CM_EVENT_REJECTED && id->rdma.qp != NULL) {
		sv_cm_qp_to(id, IBV_QPS_ERR); /* flushes work requests that have been posted already */
	}
	if (e->rdma.event != RDMA_CM_EVENT_CONNECT_RESPONSE || id->rdma.qp == NULL) {
		return;
	}
	rc = sv_cm_finish_connect(id);
	e->rdma.event = rc == 0 ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_CONNECT_ERROR;
	e->rdma.status = -rc;
}

SV_EXPORT int rdma_get_cm_event(struct rdma_event_channel *rdma, struct rdma_cm_event **event)
{
	struct sv_cm_channel *channel = (struct sv_cm_channel *)rdma;
	struct sv_cm_event *e;
	uint64_t one;

	if (event == NULL) {
		errno = EINVAL;
		return -1;
	}
	for (;;) {
		if (read(rdma->fd, &one, sizeof(one)) < 0) {
			return -1;
		}
		pthread_mutex_lock(&sv.lock);
		e = TAILQ_FIRST(&channel->events);
		if (e != NULL) {
			break;
		}
		pthread_mutex_unlock(&sv.lock); /* the id was destroyed meanwhile */
	}
	TAILQ_REMOVE(&channel->events, e, link);
	e->id->events_got++;
	if (e->child != NULL) {
		e->child = NULL;
		e->id->backlog++;
	}
	pthread_mutex_unlock(&sv.lock);
	event_prepare(e);
	*event = &e->rdma;
	return 0;
}

SV_EXPORT int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	struct sv_cm_event *e = (struct sv_cm_event *)event;

	if (event == NULL) {
		errno = EINVAL;
		return -1;
	}
	pthread_mutex_lock(&sv.lock);
	e->id->events_acked++;
	pthread_cond_broadcast(&e->id->acked);
	pthread_mutex_unlock(&sv.lock);
	free(e);
	return 0;
}

/* Moves an id's events that the program has not got yet to another channel. */
static void move_events(struct sv_cm_id *id, struct sv_cm_channel *from, struct sv_cm_channel *to)
{
	struct sv_cm_event *e, *next;

	for (e = TAILQ_FIRST(&from->events); e != NULL; e = next) {
		next = TAILQ_NEXT(e, link);
		if (e->id == id || e->rdma.id == &id->rdma) {
			TAILQ_REMOVE(&from->events, e, link);
			sv_eventfd_take(from->rdma.fd);
			if (e->child != NULL) {
				e->child->rdma.channel = &to->rdma;
			}
			event_queue(to, e);
		}
	}
}

SV_EXPORT int rdma_migrate_id(struct rdma_cm_id *rdma, struct rdma_event_channel *channel)
{
	struct sv_cm_id *id = sv_cm_id(rdma);
	struct rdma_event_channel *own = NULL, *old;
	bool was_sync = id->sync;

	if (channel == NULL) {
		own = channel = rdma_create_event_channel();
		if (channel == NULL) {
			return -1;
		}
	}
	if (was_sync && rdma->event != NULL) {
		rdma_ack_cm_event(rdma->event);
		rdma->event = NULL;
	}
	pthread_mutex_lock(&sv.lock);
	sv_cm_wait_acked(id);
	old = rdma->channel;
	move_events(id, (struct sv_cm_channel *)old, (struct sv_cm_channel *)channel);
	rdma->channel = channel;
	id->sync = own != NULL;
	pthread_mutex_unlock(&sv.lock);
	if (was_sync) {
		rdma_destroy_event_channel(old);
	}
	return 0;
}
