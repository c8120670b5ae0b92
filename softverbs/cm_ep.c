/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints: identifiers that are made from the answer of rdma_getaddrinfo(), and whose calls wait for their events. */
#include <netdb.h>
#include <stdlib.h>

#include "softverbs/cm.h"

static int address_copy(const struct sockaddr *from, socklen_t length, struct sockaddr **to, socklen_t *to_length)
{
	*to = malloc(length);
	if (*to == NULL) {
		return ENOMEM;
	}
	memcpy(*to, from, length);
	*to_length = length;
	return 0;
}

static int address_to_rai(struct rdma_addrinfo *rai, const struct addrinfo *ai, const struct rdma_addrinfo *hints)
{
	rai->ai_family = ai->ai_family;
	if ((rai->ai_flags & RAI_PASSIVE) != 0) {
		return address_copy(ai->ai_addr, ai->ai_addrlen, &rai->ai_src_addr, &rai->ai_src_len);
	}
	if (hints != NULL && hints->ai_src_len != 0 && hints->ai_src_addr != NULL &&
	    address_copy(hints->ai_src_addr, hints->ai_src_len, &rai->ai_src_addr, &rai->ai_src_len) != 0) {
		return ENOMEM;
	}
	return address_copy(ai->ai_addr, ai->ai_addrlen, &rai->ai_dst_addr, &rai->ai_dst_len);
}

SV_EXPORT void rdma_freeaddrinfo(struct rdma_addrinfo *rai)
{
	while (rai != NULL) {
		struct rdma_addrinfo *next = rai->ai_next;

		free(rai->ai_src_addr);
		free(rai->ai_dst_addr);
		free(rai);
		rai = next;
	}
}

static int port_space_of(const struct rdma_addrinfo *hints)
{
	if (hints != NULL && hints->ai_port_space != 0) {
		return hints->ai_port_space;
	}
	return hints != NULL && hints->ai_qp_type == IBV_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP;
}

SV_EXPORT int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints,
			       struct rdma_addrinfo **res)
{
	struct addrinfo want = {.ai_socktype = SOCK_STREAM}, *found;
	int flags = hints != NULL ? hints->ai_flags : 0, rc;
	struct rdma_addrinfo *rai;

	if (node == NULL && service == NULL) {
		return EAI_NONAME;
	}
	want.ai_flags =
		((flags & RAI_PASSIVE) != 0 ? AI_PASSIVE : 0) | ((flags & RAI_NUMERICHOST) != 0 ? AI_NUMERICHOST : 0);
	want.ai_family = (flags & RAI_FAMILY) != 0 ? hints->ai_family : AF_UNSPEC;
	rc = getaddrinfo(node, service, &want, &found);
	if (rc != 0) {
		return rc;
	}
	rai = calloc(1, sizeof(*rai));
	if (rai != NULL) {
		rai->ai_flags = flags;
		rai->ai_qp_type = hints != NULL && hints->ai_qp_type != 0 ? hints->ai_qp_type : IBV_QPT_RC;
		rai->ai_port_space = port_space_of(hints);
		if (address_to_rai(rai, found, hints) != 0) {
			rdma_freeaddrinfo(rai);
			rai = NULL;
		}
	}
	freeaddrinfo(found);
	*res = rai;
	return rai != NULL ? 0 : EAI_MEMORY;
}

static int ep_prepare(struct rdma_cm_id *id, struct rdma_addrinfo *res, struct ibv_pd *pd,
		      struct ibv_qp_init_attr *attr)
{
	if ((res->ai_flags & RAI_PASSIVE) != 0) {
		if (attr != NULL) {
			/* For accepted connections. */
			sv_cm_id(id)->ep_qp_attr = malloc(sizeof(*attr));
			if (sv_cm_id(id)->ep_qp_attr == NULL) {
				return -1;
			}
			*sv_cm_id(id)->ep_qp_attr = *attr;
			id->pd = pd;
		}
		return rdma_bind_addr(id, res->ai_src_addr);
	}
	if (rdma_resolve_addr(id, res->ai_src_addr, res->ai_dst_addr, 2000) != 0 || rdma_resolve_route(id, 2000) != 0) {
		return -1;
	}
	if (attr == NULL) {
		return 0;
	}
	attr->qp_type = res->ai_qp_type;
	return rdma_create_qp(id, pd, attr);
}

SV_EXPORT int rdma_create_ep(struct rdma_cm_id **out, struct rdma_addrinfo *res, struct ibv_pd *pd,
			     struct ibv_qp_init_attr *attr)
{
	struct rdma_cm_id *id;

	if (rdma_create_id(NULL, &id, NULL, (enum rdma_port_space)res->ai_port_space) != 0) {
		return -1;
	}
	if (ep_prepare(id, res, pd, attr) != 0) {
		int error = errno;

		rdma_destroy_ep(id);
		errno = error;
		return -1;
	}
	*out = id;
	return 0;
}

SV_EXPORT void rdma_destroy_ep(struct rdma_cm_id *id)
{
	if (id->qp != NULL) {
		rdma_destroy_qp(id);
	}
	if (id->srq != NULL) {
		rdma_destroy_srq(id);
	}
	rdma_destroy_id(id);
}

/* Makes an incoming connection behave as its listener: it has no channel of its own, and gets a queue pair if the
 * listener was made with the attributes of one. */
static int request_adopt(struct rdma_cm_id *listen, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr;

	if (rdma_migrate_id(id, NULL) != 0) {
		return -1;
	}
	if (sv_cm_id(listen)->ep_qp_attr == NULL) {
		return 0;
	}
	attr = *sv_cm_id(listen)->ep_qp_attr;
	attr.qp_type = listen->qp_type;
	return rdma_create_qp(id, listen->pd, &attr);
}

SV_EXPORT int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **out)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	if (!sv_cm_id(listen)->sync) {
		errno = EINVAL;
		return -1;
	}
	if (listen->event != NULL) {
		rdma_ack_cm_event(listen->event);
		listen->event = NULL;
	}
	if (rdma_get_cm_event(listen->channel, &event) != 0) {
		return -1;
	}
	if (event->status != 0 || event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
		errno = event->status != 0 ? abs(event->status) : EINVAL;
		listen->event = event;
		return -1;
	}
	id = event->id;
	if (request_adopt(listen, id) != 0) {
		int error = errno;

		rdma_ack_cm_event(event);
		rdma_destroy_ep(id);
		errno = error;
		return -1;
	}
	id->event = event; /* kept for its private data; the next call on the id acknowledges it */
	*out = id;
	return 0;
}
