/* SPDX-License-Identifier: BSD-3-Clause */
/* Listeners, and the events of the connection manager. Control thread. */
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "nvmf_rdma/internal.h"

static int resolve_listen_address(const struct nvmf_address *a, struct addrinfo **out)
{
	struct addrinfo hints = {
		.ai_family = a->adrfam == NVMF_ADDR_FAMILY_IP6 ? AF_INET6 : AF_INET,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
	};
	int rc = getaddrinfo(a->traddr, a->trsvcid, &hints, out);

	if (rc != 0) {
		log_error("listen address %s port %s: %s", a->traddr, a->trsvcid, gai_strerror(rc));
		return -EINVAL;
	}
	return 0;
}

/* 0 and l->id, or a negative errno and NULL. */
static int listener_open(struct nvmf_rdma_transport *t, struct nvmf_rdma_listener *l, struct sockaddr *at)
{
	int rc = 0;

	if (rdma_create_id(t->channel, &l->id, NULL, RDMA_PS_TCP) != 0) {
		l->id = NULL;
		return -errno;
	}
	if (rdma_bind_addr(l->id, at) != 0 || rdma_listen(l->id, t->base.opts.acceptor_backlog) != 0) {
		rc = -errno;
		rdma_destroy_id(l->id);
		l->id = NULL;
		return rc;
	}
	/* Registering all memory takes seconds where there is much of it or the device is software. The first host
	 * would wait for that, and give up (iWARP: after 10 s). So it begins here, on a worker thread:
	 * nvmf_rdma_op_settle() tells when it is over. Listening at any address says nothing about devices, and if it
	 * fails, the first host is refused, with the reason in the log. */
	if (l->id->verbs != NULL) {
		nvmf_rdma_device_get(t, l->id->verbs);
	}
	return 0;
}

int nvmf_rdma_op_listen(struct nvmf_transport *base, const struct nvmf_address *address)
{
	struct nvmf_rdma_transport *t = nvmf_rdma_transport_of(base);
	struct nvmf_rdma_listener *l = calloc(1, sizeof(*l));
	struct addrinfo *at = NULL;
	int rc = l ? resolve_listen_address(address, &at) : -ENOMEM;

	if (rc != 0) {
		free(l);
		return rc;
	}
	l->address = *address;
	rc = listener_open(t, l, at->ai_addr);
	if (rc != 0) {
		log_error("cannot listen at %s port %s: %s%s", address->traddr, address->trsvcid, strerror(-rc),
			  rc == -ENODEV || rc == -EADDRNOTAVAIL
				  ? " (no RDMA device has that address; `rdma link` lists them)"
				  : "");
		free(l);
	} else {
		TAILQ_INSERT_TAIL(&t->listeners, l, link);
	}
	freeaddrinfo(at);
	return rc;
}

/* A removed device may come back as another device with the same address, for example after a driver's reset. How long
 * varve waits before it tries to listen there again: */
#define RELISTEN_US 1000000

static void relisten_all(void *arg)
{
	struct nvmf_rdma_transport *t = arg;
	struct nvmf_rdma_listener *l;
	bool again = false;

	TAILQ_FOREACH (l, &t->listeners, link) {
		struct addrinfo *at;

		if (l->id != NULL || resolve_listen_address(&l->address, &at) != 0) {
			continue;
		}
		if (listener_open(t, l, at->ai_addr) == 0) {
			log_notice("listening at %s port %s again%s%s", l->address.traddr, l->address.trsvcid,
				   l->id->verbs ? ", on " : "",
				   l->id->verbs ? ibv_get_device_name(l->id->verbs->device) : "");
		} else {
			again = true;
		}
		freeaddrinfo(at);
	}
	if (again) {
		thread_timer_start(&t->relisten_timer, RELISTEN_US);
	}
}

const struct nvmf_rdma_listener *nvmf_rdma_listener_find(const struct nvmf_rdma_transport *t,
							 const struct rdma_cm_id *id)
{
	const struct nvmf_rdma_listener *l;

	TAILQ_FOREACH (l, &t->listeners, link) {
		if (l->id != NULL && l->id == id) {
			return l;
		}
	}
	return NULL;
}

void nvmf_rdma_op_stop_listen(struct nvmf_transport *base, const struct nvmf_address *address)
{
	struct nvmf_rdma_transport *t = nvmf_rdma_transport_of(base);
	struct nvmf_rdma_listener *l;

	TAILQ_FOREACH (l, &t->listeners, link) {
		if (nvmf_address_equal(&l->address, address)) {
			TAILQ_REMOVE(&t->listeners, l, link);
			if (l->id != NULL) {
				rdma_destroy_id(l->id);
			}
			free(l);
			return;
		}
	}
}

/* The device of a listener's or a connection's id is being removed. The kernel waits until all its ids are destroyed.
 */

static void listener_lost_device(struct nvmf_rdma_transport *t, struct nvmf_rdma_listener *l)
{
	log_warning("the device of listen address %s port %s is gone; varve listens there again when a device has it",
		    l->address.traddr, l->address.trsvcid);
	rdma_destroy_id(l->id);
	l->id = NULL;
	t->relisten_timer.fn = relisten_all;
	t->relisten_timer.arg = t;
	thread_timer_start(&t->relisten_timer, RELISTEN_US);
}

static void handle_device_removal(struct nvmf_rdma_transport *t, struct rdma_cm_id *id)
{
	struct nvmf_rdma_listener *l;

	nvmf_rdma_device_removed(
		t, id->verbs); /* this may destroy the id of a connection that waited: it is only compared below */
	TAILQ_FOREACH (l, &t->listeners, link) {
		if (l->id == id) {
			listener_lost_device(t, l);
			return;
		}
	}
}

static void handle_cm_event(struct nvmf_rdma_transport *t, const struct rdma_cm_event *event)
{
	struct nvmf_rdma_qpair *qp = event->event == RDMA_CM_EVENT_CONNECT_REQUEST ? NULL : event->id->context;

	TRACE(RDMA_CM_ASYNC_EVENT, qp ? qp->owner : 0, 0, (uintptr_t)event->id, event->event);
	switch (event->event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		nvmf_rdma_qpair_accept(t, event);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		handle_device_removal(t, event->id);
		break;
	case RDMA_CM_EVENT_ADDR_CHANGE:
		log_limited(LOG_LEVEL_NOTICE, "an address of %s has changed; its connections go on while they work",
			    event->id->verbs ? ibv_get_device_name(event->id->verbs->device) : "an RDMA device");
		break;
	default: /* DISCONNECTED, CONNECT_ERROR, UNREACHABLE, REJECTED ... */
		if (qp != NULL) {
			nvmf_rdma_qpair_broken(qp, NULL);
		}
		break;
	}
}

void nvmf_rdma_op_resume(struct nvmf_transport *base)
{
	fd_source_modify(nvmf_rdma_transport_of(base)->cm_source, EPOLLIN);
}

/* Events that are handled before the control thread's other work has its turn: anybody on the fabric can cause them.
 * The channel stays readable. */
#define EVENTS_PER_ROUND 32

void nvmf_rdma_cm_readable(void *arg, uint32_t events)
{
	struct nvmf_rdma_transport *t = arg;
	struct rdma_cm_event *event;

	if (t->base.held) {
		fd_source_modify(t->cm_source, 0); /* nvmf_rdma_op_resume() looks again */
		return;
	}
	for (unsigned n = 0; n < EVENTS_PER_ROUND && rdma_get_cm_event(t->channel, &event) == 0; n++) {
		/* The event is copied and acknowledged before it is handled: handling may destroy the id, which waits
		 * until all its events are acknowledged. */
		struct rdma_cm_event copy = *event;
		uint8_t private_data[UINT8_MAX];

		if (copy.param.conn.private_data != NULL && copy.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			memcpy(private_data, copy.param.conn.private_data, copy.param.conn.private_data_len);
			copy.param.conn.private_data = private_data;
		}
		rdma_ack_cm_event(event);
		handle_cm_event(t, &copy);
	}
}
