/* SPDX-License-Identifier: BSD-3-Clause */
/* RDMA devices that connections came in through: protection domain, limits, and their end. Control thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nvmf_rdma/internal.h"

const char *nvmf_rdma_device_name(const struct nvmf_rdma_device *d)
{
	return ibv_get_device_name(d->verbs->device);
}

/* Ends the connections of a device, or only those on one poll group's queues of it. */
static void device_break_qpairs(struct nvmf_rdma_device *d, const struct nvmf_rdma_poller *only, const char *why)
{
	struct nvmf_rdma_qpair *qp;

	TAILQ_FOREACH (qp, &d->transport->qps, link) {
		if (qp->device == d && (only == NULL || qp->device_poller == only)) {
			atomic_store_explicit(&qp->base.faulty, true, memory_order_relaxed);
			nvmf_rdma_qpair_broken(qp, why);
		}
	}
}

void nvmf_rdma_device_lost(struct nvmf_rdma_device *d, const char *what)
{
	if (d->removed) {
		return;
	}
	d->removed = true;
	log_error("%s: %s; its %u connections end; it is closed after the last of them", nvmf_rdma_device_name(d), what,
		  d->qps);
	nvmf_rdma_watch_lost(d);
	device_break_qpairs(d, NULL, "the device is gone");
}

void nvmf_rdma_device_release(struct nvmf_rdma_device *d)
{
	struct nvmf_rdma_poller *p, *next;

	for (p = TAILQ_FIRST(&d->pollers); p != NULL; p = next) {
		next = TAILQ_NEXT(p, device_link);
		if ((p->failed || p->lossy || d->removed) && p->qps == 0) {
			nvmf_rdma_poller_release(p);
		}
	}
	if (!d->removed || d->qps != 0) {
		return;
	}
	log_notice("%s: closed; no connection is left on it", nvmf_rdma_device_name(d));
	nvmf_rdma_watch_end(d);
	TAILQ_REMOVE(&d->transport->devices, d, link);
	verbs_pd_put(d->pd);
	free(d);
}

void nvmf_rdma_device_queue_failed(struct nvmf_rdma_device *d, const struct ibv_async_event *event)
{
	struct nvmf_rdma_poller *p;

	TAILQ_FOREACH (p, &d->pollers, device_link) {
		if (event->event_type == IBV_EVENT_CQ_ERR ? p->cq == event->element.cq : p->srq == event->element.srq) {
			break;
		}
	}
	if (p == NULL || p->failed) {
		return;
	}
	p->failed = true;
	log_limited(LOG_LEVEL_ERROR, "%s: %s; the %u connections of one poll group on it end, new ones get new queues",
		    nvmf_rdma_device_name(d), ibv_event_type_str(event->event_type), p->qps);
	device_break_qpairs(d, p,
			    event->event_type == IBV_EVENT_CQ_ERR ? "its completion queue failed"
								  : "its shared receive queue failed");
}

/* How many pieces of local memory a work request may name. An RDMA READ may name fewer than others: over iWARP, which
 * tells the other side where the data go, it is one. 0: the device's driver says nothing about it. */
static void device_set_limits(struct nvmf_rdma_device *d)
{
	int any = d->attr.max_sge > 0 ? d->attr.max_sge : 1, reads = d->attr.max_sge_rd;

	d->sges = any < NVMF_RDMA_MAX_SGE ? any : NVMF_RDMA_MAX_SGE;
	d->read_sges = reads > 0 && reads < d->sges ? reads : d->sges;
	d->iwarp = d->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
}

static bool all_devices_ready(const struct nvmf_rdma_transport *t)
{
	const struct nvmf_rdma_device *d;

	TAILQ_FOREACH (d, &t->devices, link) {
		if (!d->ready) {
			return false;
		}
	}
	return true;
}

void nvmf_rdma_op_settle(struct nvmf_transport *base, nvmf_done_fn done, void *arg)
{
	struct nvmf_rdma_transport *t = nvmf_rdma_transport_of(base);
	struct nvmf_rdma_settler *s = all_devices_ready(t) ? NULL : malloc(sizeof(*s));

	if (s == NULL) { /* all are ready, or there is no memory to remember who asked */
		done(arg, 0);
		return;
	}
	*s = (struct nvmf_rdma_settler){.done = done, .arg = arg};
	STAILQ_INSERT_TAIL(&t->settlers, s, link);
}

static void answer_settlers(struct nvmf_rdma_transport *t)
{
	struct nvmf_rdma_settler *s;

	while (all_devices_ready(t) && (s = STAILQ_FIRST(&t->settlers)) != NULL) {
		STAILQ_REMOVE_HEAD(&t->settlers, link);
		s->done(s->arg, 0);
		free(s);
	}
}

/* All memory has been registered with the device, or could not be (status): then the device serves nobody. */
static void device_ready(void *arg, int status)
{
	struct nvmf_rdma_device *d = arg;
	struct nvmf_rdma_transport *t = d->transport;

	d->ready = true;
	if (status != 0) {
		log_limited(LOG_LEVEL_ERROR, "%s cannot be used: %s", nvmf_rdma_device_name(d), strerror(-status));
		d->removed = true;
	} else {
		nvmf_rdma_watch_begin(d);
	}
	nvmf_rdma_qpairs_device_ready(d);
	nvmf_rdma_device_release(d);
	answer_settlers(t);
}

static struct nvmf_rdma_device *device_find(const struct nvmf_rdma_transport *t, const struct ibv_context *verbs)
{
	struct nvmf_rdma_device *d;

	TAILQ_FOREACH (d, &t->devices, link) {
		if (d->verbs == verbs) {
			return d;
		}
	}
	return NULL;
}

void nvmf_rdma_device_removed(struct nvmf_rdma_transport *t, const struct ibv_context *verbs)
{
	struct nvmf_rdma_device *d = device_find(t, verbs);

	if (d != NULL) {
		verbs_pd_settle(d->pd);
		d = device_find(t, verbs); /* NULL: no memory could be registered with it, and it is closed */
	}
	if (d != NULL) {
		nvmf_rdma_device_lost(d, "removed");
		nvmf_rdma_device_release(d);
	}
}

struct nvmf_rdma_device *nvmf_rdma_device_get(struct nvmf_rdma_transport *t, struct ibv_context *verbs)
{
	struct nvmf_rdma_device *d = device_find(t, verbs);

	if (d != NULL) {
		return d;
	}
	d = calloc(1, sizeof(*d));
	if (d == NULL) {
		return NULL;
	}
	d->verbs = verbs;
	d->transport = t;
	d->waiter = (struct verbs_pd_waiter){.fn = device_ready, .arg = d};
	TAILQ_INIT(&d->pollers);
	if (ibv_query_device(verbs, &d->attr) != 0 ||
	    (d->pd = verbs_pd_get_async(verbs, VERBS_SIDE_TARGET, &d->waiter)) == NULL) {
		log_limited(LOG_LEVEL_ERROR, "%s cannot be used: %s", ibv_get_device_name(verbs->device),
			    strerror(errno));
		free(d);
		return NULL;
	}
	device_set_limits(d);
	TAILQ_INSERT_TAIL(&t->devices, d, link);
	if (!verbs_pd_is_registering(d->pd)) { /* another target has it already */
		device_ready(d, d->pd->error);
	}
	return device_find(t, verbs);
}

void nvmf_rdma_devices_destroy(struct nvmf_rdma_transport *t)
{
	struct nvmf_rdma_device *d, *next;

	for (d = TAILQ_FIRST(&t->devices); d != NULL; d = next) {
		next = TAILQ_NEXT(d, link);
		verbs_pd_settle(d->pd); /* turns those away that wait, and answers who asked */
	}
	while ((d = TAILQ_FIRST(&t->devices)) != NULL) {
		TAILQ_REMOVE(&t->devices, d, link);
		nvmf_rdma_watch_end(d);
		verbs_pd_put(d->pd);
		free(d);
	}
}
