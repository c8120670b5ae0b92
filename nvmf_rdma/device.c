/* SPDX-License-Identifier: BSD-3-Clause */
/* RDMA devices that connections came in through: protection domain, limits, asynchronous events. Control thread. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "nvmf_rdma/internal.h"

static struct rdma_qp *find_qp(struct rdma_transport *t, const struct ibv_qp *verbs)
{
	struct rdma_qp *qp;

	TAILQ_FOREACH(qp, &t->qps, link) {
		if (qp->id != NULL && qp->id->qp == verbs) {
			return qp;
		}
	}
	return NULL;
}

static void break_all(struct rdma_transport *t, const struct rdma_device *d, const char *why)
{
	struct rdma_qp *qp, *next;

	for (qp = TAILQ_FIRST(&t->qps); qp != NULL; qp = next) {
		next = TAILQ_NEXT(qp, link);
		if (qp->device == d) {
			rdma_qp_broken(qp, why);
		}
	}
}

static void handle(struct rdma_device *d, const struct ibv_async_event *event)
{
	struct rdma_transport *t = d->transport;
	struct rdma_qp *qp = NULL;

	switch (event->event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		qp = find_qp(t, event->element.qp);
		if (qp != NULL) {
			atomic_store_explicit(&qp->base.faulty, true, memory_order_relaxed);
			rdma_qp_broken(qp, ibv_event_type_str(event->event_type));
		}
		break;
	case IBV_EVENT_DEVICE_FATAL:
		d->removed = true;
		log_error("%s: %s; its connections end", ibv_get_device_name(d->verbs->device),
			  ibv_event_type_str(event->event_type));
		break_all(t, d, "the device failed");
		break;
	case IBV_EVENT_CQ_ERR:
	case IBV_EVENT_SRQ_ERR:
		log_error("%s: %s; its connections end", ibv_get_device_name(d->verbs->device),
			  ibv_event_type_str(event->event_type));
		break_all(t, d, ibv_event_type_str(event->event_type));
		break;
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
		/* connections survive a port that comes back in time; those that do not are reported one by one */
		log_notice("%s port %d: %s", ibv_get_device_name(d->verbs->device), event->element.port_num,
			   ibv_event_type_str(event->event_type));
		break;
	default:
		break;
	}
	TRACE(RDMA_IBV_ASYNC_EVENT, qp ? qp->owner : 0, 0, (uintptr_t)d, event->event_type);
}

static void async_readable(void *arg, uint32_t events)
{
	struct rdma_device *d = arg;
	struct ibv_async_event event;

	while (ibv_get_async_event(d->verbs, &event) == 0) {
		handle(d, &event);
		ibv_ack_async_event(&event);
	}
}

struct rdma_device *rdma_device_get(struct rdma_transport *t, struct ibv_context *verbs)
{
	struct rdma_device *d;

	TAILQ_FOREACH(d, &t->devices, link) {
		if (d->verbs == verbs) {
			return d;
		}
	}
	d = calloc(1, sizeof(*d));
	if (d == NULL) {
		return NULL;
	}
	d->verbs = verbs;
	d->transport = t;
	if (ibv_query_device(verbs, &d->attr) != 0 || (d->pd = rdma_pd_get(verbs)) == NULL) {
		log_error("%s cannot be used: %s", ibv_get_device_name(verbs->device), strerror(errno));
		free(d);
		return NULL;
	}
	if (fcntl(verbs->async_fd, F_SETFL, O_NONBLOCK) == 0) {
		d->async = fd_source_add(verbs->async_fd, EPOLLIN, async_readable, d, "nvmf_rdma_async");
	}
	TAILQ_INSERT_TAIL(&t->devices, d, link);
	return d;
}

void rdma_devices_destroy(struct rdma_transport *t)
{
	struct rdma_device *d;

	while ((d = TAILQ_FIRST(&t->devices)) != NULL) {
		TAILQ_REMOVE(&t->devices, d, link);
		if (d->async != NULL) {
			fd_source_remove(&d->async);
		}
		rdma_pd_put(d->pd);
		free(d);
	}
}
