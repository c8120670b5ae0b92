/* SPDX-License-Identifier: BSD-3-Clause */
/* Asynchronous events of RDMA devices. Control thread.
 *
 * librdmacm opens each device once for the process, so the transports of several targets share its ibv_context and the
 * one queue of its events. That queue has one watcher, which hands each event to whom it concerns: an event of a queue
 * to the transport that has the queue, an event of the device to all of them. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "nvmf_rdma/internal.h"

struct nvmf_rdma_watcher {
	struct ibv_context *verbs;
	struct fd_source *source; /* NULL: no more events are expected */
	bool reading;             /* it is in use further up the stack, and must not be freed */
	bool failed;              /* the device has failed */
	TAILQ_HEAD(, nvmf_rdma_device) devices;
	TAILQ_ENTRY(nvmf_rdma_watcher) link;
};
static TAILQ_HEAD(, nvmf_rdma_watcher) watchers = TAILQ_HEAD_INITIALIZER(watchers);

static struct nvmf_rdma_qpair *watcher_find_qpair(const struct nvmf_rdma_watcher *w, const struct ibv_qp *verbs)
{
	const struct nvmf_rdma_device *d;
	struct nvmf_rdma_qpair *qp;

	TAILQ_FOREACH (d, &w->devices, watcher_link) {
		TAILQ_FOREACH (qp, &d->transport->qps, link) {
			if (qp->id != NULL && qp->id->qp == verbs) {
				return qp;
			}
		}
	}
	return NULL;
}

static void watcher_fail_devices(struct nvmf_rdma_watcher *w, const char *what)
{
	struct nvmf_rdma_device *d;

	w->failed = true;
	TAILQ_FOREACH (d, &w->devices, watcher_link) {
		nvmf_rdma_device_lost(d, what);
	}
}

static void watcher_fail_queue(struct nvmf_rdma_watcher *w, const struct ibv_async_event *event)
{
	struct nvmf_rdma_device *d;

	TAILQ_FOREACH (d, &w->devices, watcher_link) {
		nvmf_rdma_device_queue_failed(d, event);
	}
}

/* The consequences of an event that ends no connection, for the log; NULL: the event is not worth a line. */
static const char *describe_port_event(enum ibv_event_type type)
{
	switch (type) {
	case IBV_EVENT_PORT_ERR:
		return "its connections last as long as their retries, or until their keep-alive runs out";
	case IBV_EVENT_PORT_ACTIVE:
		return "connections that outlasted it go on, and hosts can connect";
	case IBV_EVENT_GID_CHANGE:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
		return "connections go on if their path still works";
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
		return "connections go on";
	default:
		return NULL;
	}
}

static void tell_port_event(const struct nvmf_rdma_watcher *w, const struct ibv_async_event *event)
{
	const char *follows = describe_port_event(event->event_type);

	if (follows != NULL) {
		log_limited(LOG_LEVEL_NOTICE, "%s port %d: %s; %s", ibv_get_device_name(w->verbs->device),
			    event->element.port_num, ibv_event_type_str(event->event_type), follows);
	}
}

static void break_failed_qpair(struct nvmf_rdma_qpair *qp, enum ibv_event_type type)
{
	log_limited(LOG_LEVEL_NOTICE, "%s: %s; the connection from %s ends", nvmf_rdma_device_name(qp->device),
		    ibv_event_type_str(type), qp->base.peer_address.traddr);
	atomic_store_explicit(&qp->base.faulty, true, memory_order_relaxed);
	nvmf_rdma_qpair_broken(qp, ibv_event_type_str(type));
}

static void handle_async_event(struct nvmf_rdma_watcher *w, const struct ibv_async_event *event)
{
	struct nvmf_rdma_qpair *qp = NULL;

	switch (event->event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		qp = watcher_find_qpair(w, event->element.qp);
		if (qp != NULL) {
			break_failed_qpair(qp, event->event_type);
		}
		break;
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		/* the queue pair is in the error state: varve has put it there, or its connection broke */
		qp = watcher_find_qpair(w, event->element.qp);
		if (qp != NULL) {
			nvmf_rdma_qpair_broken(qp, NULL);
			nvmf_rdma_qpair_reached_last_wqe(qp);
		}
		break;
	case IBV_EVENT_DEVICE_FATAL:
		watcher_fail_devices(w, ibv_event_type_str(event->event_type));
		break;
	case IBV_EVENT_CQ_ERR:
	case IBV_EVENT_SRQ_ERR:
		watcher_fail_queue(w, event);
		break;
	default:
		tell_port_event(w, event);
		break;
	}
	TRACE(RDMA_IBV_ASYNC_EVENT, qp ? qp->owner : 0, 0, (uintptr_t)(qp ? qp->device : TAILQ_FIRST(&w->devices)),
	      event->event_type);
}

static void watcher_free_unused(struct nvmf_rdma_watcher *w)
{
	if (w->reading || !TAILQ_EMPTY(&w->devices)) {
		return;
	}
	if (w->source != NULL) {
		fd_source_remove(&w->source);
	}
	TAILQ_REMOVE(&watchers, w, link);
	free(w);
}

/* Events of a device that are handled before the control thread's other work has its turn: hosts whose queue pairs
 * break cause them. The descriptor stays readable. */
#define EVENTS_PER_ROUND 64

static void async_event_readable(void *arg, uint32_t events)
{
	struct nvmf_rdma_watcher *w = arg;
	struct nvmf_rdma_device *d, *next;
	struct ibv_async_event event;
	unsigned n = 0;

	w->reading = true;
	while (w->source != NULL && n < EVENTS_PER_ROUND && ibv_get_async_event(w->verbs, &event) == 0) {
		handle_async_event(w, &event);
		ibv_ack_async_event(&event);
		n++;
	}
	if (w->source != NULL && n < EVENTS_PER_ROUND && errno != EAGAIN && errno != EINTR) {
		watcher_fail_devices(w, strerror(errno)); /* EIO: the kernel has taken it away */
	}
	/* only now, because destroying a queue waits until its events are acknowledged */
	for (d = TAILQ_FIRST(&w->devices); d != NULL; d = next) {
		next = TAILQ_NEXT(d, watcher_link);
		nvmf_rdma_device_release(d);
	}
	w->reading = false;
	watcher_free_unused(w);
}

static struct nvmf_rdma_watcher *watcher_get(struct ibv_context *verbs)
{
	struct nvmf_rdma_watcher *w;

	TAILQ_FOREACH (w, &watchers, link) {
		if (w->verbs == verbs) {
			return w;
		}
	}
	w = calloc(1, sizeof(*w));
	if (w != NULL) {
		w->verbs = verbs;
		TAILQ_INIT(&w->devices);
		TAILQ_INSERT_TAIL(&watchers, w, link);
	}
	return w;
}

static bool watcher_start(struct nvmf_rdma_watcher *w)
{
	if (w->source == NULL && fcntl(w->verbs->async_fd, F_SETFL, O_NONBLOCK) == 0) {
		w->source = fd_source_add(w->verbs->async_fd, EPOLLIN, async_event_readable, w, "nvmf_rdma_async");
	}
	return w->source != NULL;
}

void nvmf_rdma_watch_begin(struct nvmf_rdma_device *d)
{
	struct nvmf_rdma_watcher *w = watcher_get(d->verbs);

	if (w != NULL && w->failed) {
		nvmf_rdma_device_lost(d, "it has failed");
		return;
	}
	if (w == NULL || !watcher_start(w)) {
		log_error("%s: its events cannot be read: %s; its faults show when connections time out, and nothing "
			  "says when a queue pair holds no receive of the shared receive queue any more",
			  nvmf_rdma_device_name(d), strerror(w == NULL ? ENOMEM : errno));
		d->no_last_wqe = true;
		if (w != NULL) {
			watcher_free_unused(w);
		}
		return;
	}
	TAILQ_INSERT_TAIL(&w->devices, d, watcher_link);
	d->watcher = w;
}

void nvmf_rdma_watch_lost(struct nvmf_rdma_device *d)
{
	struct nvmf_rdma_watcher *w = d->watcher;
	const struct nvmf_rdma_device *other;

	if (w == NULL || w->source == NULL) {
		return;
	}
	TAILQ_FOREACH (other, &w->devices, watcher_link) {
		if (!other->removed) {
			return;
		}
	}
	fd_source_remove(&w->source); /* the descriptor of a device that is gone stays readable */
}

void nvmf_rdma_watch_end(struct nvmf_rdma_device *d)
{
	struct nvmf_rdma_watcher *w = d->watcher;

	if (w != NULL) {
		d->watcher = NULL;
		TAILQ_REMOVE(&w->devices, d, watcher_link);
		watcher_free_unused(w);
	}
}
