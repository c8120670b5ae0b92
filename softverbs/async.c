/* SPDX-License-Identifier: BSD-3-Clause */
/* Asynchronous events: a list per device context, and an eventfd that counts the events on it. */
#include <stdlib.h>
#include <unistd.h>

#include "softverbs/softverbs.h"

void sv_async_raise(struct ibv_context *context, enum ibv_event_type type, void *element)
{
	struct sv_context *c = sv_context(context);
	struct sv_event *e = calloc(1, sizeof(*e));
	uint64_t one = 1;

	if (e == NULL) {
		sv_warn("asynchronous event %d is lost: out of memory", type);
		return;
	}
	e->ibv.event_type = type;
	e->ibv.element.qp = element; /* a union of pointers */
	pthread_mutex_lock(&c->lock);
	TAILQ_INSERT_TAIL(&c->events, e, link);
	if (write(context->async_fd, &one, sizeof(one)) < 0) {
		sv_warn("cannot announce asynchronous event %d: %s", type, strerror(errno));
	}
	pthread_mutex_unlock(&c->lock);
}

/* An object's counters of events that the program has got and acknowledged. */
struct counters {
	pthread_mutex_t *lock;
	pthread_cond_t *cond;
	uint32_t *got;
	uint32_t *acked;
};

static bool counters_of(struct ibv_async_event *event, struct counters *c)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR: {
		struct sv_cq *cq = sv_cq(event->element.cq);

		*c = (struct counters){&cq->events_lock, &cq->events_cond, &cq->async_events_got,
				       &cq->async_events_acked};
		return true;
	}
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED: {
		struct sv_srq *srq = (struct sv_srq *)event->element.srq;

		*c = (struct counters){&srq->events_lock, &srq->events_cond, &srq->events_got, &srq->events_acked};
		return true;
	}
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_QP_LAST_WQE_REACHED: {
		struct sv_qp *qp = sv_qp(event->element.qp);

		*c = (struct counters){&qp->events_lock, &qp->events_cond, &qp->events_got, &qp->events_acked};
		return true;
	}
	default:
		return false;
	}
}

SV_EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct sv_context *c = sv_context(context);
	struct counters counters;
	struct sv_event *e;
	uint64_t one;

	for (;;) {
		if (read(context->async_fd, &one, sizeof(one)) < 0) {
			return -1;
		}
		pthread_mutex_lock(&c->lock);
		e = TAILQ_FIRST(&c->events);
		if (e != NULL) {
			break;
		}
		pthread_mutex_unlock(&c->lock); /* the object was destroyed meanwhile */
	}
	TAILQ_REMOVE(&c->events, e, link);
	*event = e->ibv;
	if (counters_of(event, &counters)) {
		/* Under the context's lock, so that sv_async_forget() finds the event either on the list or counted. */
		pthread_mutex_lock(counters.lock);
		(*counters.got)++;
		pthread_mutex_unlock(counters.lock);
	}
	pthread_mutex_unlock(&c->lock);
	free(e);
	return 0;
}

SV_EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	struct counters counters;

	if (counters_of(event, &counters)) {
		pthread_mutex_lock(counters.lock);
		(*counters.acked)++;
		pthread_cond_broadcast(counters.cond);
		pthread_mutex_unlock(counters.lock);
	}
}

void sv_async_forget(struct ibv_context *context, void *element, pthread_mutex_t *lock, pthread_cond_t *cond,
		     const uint32_t *got, const uint32_t *acked)
{
	struct sv_context *c = sv_context(context);
	struct sv_event *e, *next;

	pthread_mutex_lock(&c->lock);
	for (e = TAILQ_FIRST(&c->events); e != NULL; e = next) {
		next = TAILQ_NEXT(e, link);
		if ((void *)e->ibv.element.qp == element) {
			TAILQ_REMOVE(&c->events, e, link);
			free(e);
			sv_eventfd_take(context->async_fd);
		}
	}
	pthread_mutex_unlock(&c->lock);
	pthread_mutex_lock(lock);
	while (*got != *acked) {
		pthread_cond_wait(cond, lock);
	}
	pthread_mutex_unlock(lock);
}
