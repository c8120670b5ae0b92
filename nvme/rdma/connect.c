/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections of the RDMA transport: address, route, connection, by the events of librdmacm. Control thread. */
#include "nvme/rdma/rdma.h"

#include <errno.h>
#include <netdb.h>
#include <string.h>

#include "util/log.h"

#define REASON_MAX    512
#define CM_TIMEOUT_MS 2000 /* for an address or a route, unless the options say otherwise */

static void connect_report(struct nvme_rdma_qpair *q, int error, const char *why)
{
	q->connect_reported = true;
	if (q->base.id == 0) {
		nvme_ctrlr_connected(q->base.ctrlr, error, why);
	} else {
		if (error != 0) {
			log_warning("%s: queue pair %u: %s", q->base.ctrlr->trid.traddr, q->base.id, why);
		}
		nvme_qpair_transport_connected(&q->base, error);
	}
}

/* The reason, or a text in `text`. */
static const char *reject_reason(const struct nvme_rdma_qpair *q, const struct rdma_cm_event *event,
				 char text[REASON_MAX])
{
	static const char *const reasons[] = {
		[NVMF_RDMA_CM_INVALID_LEN] = "invalid private data length",
		[NVMF_RDMA_CM_INVALID_RECFMT] = "invalid RECFMT",
		[NVMF_RDMA_CM_INVALID_QID] = "invalid queue id",
		[NVMF_RDMA_CM_INVALID_HSQSIZE] = "invalid host send queue size",
		[NVMF_RDMA_CM_INVALID_HRQSIZE] = "invalid host receive queue size",
		[NVMF_RDMA_CM_NO_RSC] = "the target has no resources left",
		[NVMF_RDMA_CM_INVALID_IRD] = "invalid IRD",
		[NVMF_RDMA_CM_INVALID_ORD] = "invalid ORD",
		[NVMF_RDMA_CM_INVALID_CNTLID] = "invalid controller id",
	};
	struct nvmf_rdma_cm_reject data;

	snprintf(text, REASON_MAX, "nobody listens at %s port %s", q->base.ctrlr->trid.traddr,
		 q->base.ctrlr->trid.trsvcid);
	if (event->param.conn.private_data_len < sizeof(data) || event->param.conn.private_data == NULL) {
		return text;
	}
	memcpy(&data, event->param.conn.private_data, sizeof(data));
	uint16_t sts = le16toh(data.sts);
	if (sts == 0) { /* it is not a target's: the connection manager has filled it with zeroes */
		return text;
	}
	if (le16toh(data.recfmt) != NVMF_RDMA_CM_RECFMT || sts >= sizeof(reasons) / sizeof(reasons[0]) ||
	    !reasons[sts]) {
		return "rejected for an unknown reason";
	}
	return reasons[sts];
}

static void link_break(struct nvme_rdma_qpair *q, const char *why)
{
	__atomic_store_n(&q->link, NVME_RDMA_LINK_DOWN, __ATOMIC_RELAXED); /* the next poll fails the queue pair */
	if (q->connect_reported) {
		nvme_rdma_link_cut(q); /* this flushes the receives, whose completions wake up a user that sleeps */
	} else {
		connect_report(q, -ECONNREFUSED, why);
	}
}

static void link_established(struct nvme_rdma_qpair *q)
{
	q->link = NVME_RDMA_LINK_UP;
	connect_report(q, 0, "");
}

static int link_timeout_ms(const struct nvme_rdma_qpair *q)
{
	uint16_t ms = q->base.ctrlr->opts.rdma_cm_timeout_ms;

	return ms != 0 ? ms : CM_TIMEOUT_MS;
}

static int link_request_connection(struct nvme_rdma_qpair *q)
{
	struct nvme_ctrlr *ctrlr = q->base.ctrlr;
	struct ibv_device_attr attr;
	int rc = ibv_query_device(q->id->verbs, &attr); /* the error itself, positive */

	if (rc != 0) {
		return -rc;
	}
	rc = nvme_rdma_make_verbs(q, &attr);
	if (rc != 0) {
		return rc;
	}
	for (uint32_t i = 0; i < nvme_rdma_num_receives(q); i++) {
		nvme_rdma_queue_receive(q, i);
	}
	nvme_rdma_flush(&q->base);
	struct nvmf_rdma_cm_req data = {
		.recfmt = htole16(NVMF_RDMA_CM_RECFMT),
		.qid = htole16(q->base.id),
		.hrqsize = htole16((uint16_t)nvme_rdma_num_receives(q)),
		.hsqsize = htole16(q->base.entries), /* 0's based, as Connect's SQSIZE */
		.cntlid = htole16(q->base.id == 0 ? UINT16_MAX : ctrlr->cntlid),
	};
	struct rdma_conn_param param = {
		.private_data = &data,
		.private_data_len = sizeof(data),
		/* the target reads and writes the host's memory, and the host none of the target's */
		.responder_resources = (uint8_t)(attr.max_qp_rd_atom < 255 ? attr.max_qp_rd_atom : 255),
		.initiator_depth = 0,
		.retry_count = ctrlr->opts.rdma_retry_count,
		.rnr_retry_count = 7,
		.flow_control = 1,
	};
	return rdma_connect(q->id, &param) == 0 ? 0 : -errno;
}

static void cm_event_handle(struct nvme_rdma_qpair *q, const struct rdma_cm_event *event)
{
	char reason[REASON_MAX];
	int rc = 0;

	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		q->link = NVME_RDMA_LINK_ROUTING;
		rc = rdma_resolve_route(q->id, link_timeout_ms(q)) == 0 ? 0 : -errno;
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		q->link = NVME_RDMA_LINK_CONNECTING;
		rc = link_request_connection(q);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		link_established(q);
		break;
	case RDMA_CM_EVENT_REJECTED:
		link_break(q, reject_reason(q, event, reason));
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
		snprintf(reason, sizeof(reason), "no RDMA device of this machine knows a way to %s (%s)",
			 q->base.ctrlr->trid.traddr, rdma_event_str(event->event));
		link_break(q, reason);
		break;
	case RDMA_CM_EVENT_ADDR_CHANGE:
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	default:
		link_break(q, rdma_event_str(event->event));
		break;
	}
	if (rc != 0) {
		link_break(q, strerror(-rc));
	}
}

void nvme_rdma_cm_events_read(void *arg, uint32_t events)
{
	struct nvme_rdma_ctrlr *c = arg;
	struct rdma_cm_event *event;

	/* no budget: these are the few events of each connection that this controller has asked for */
	while (c->channel != NULL && rdma_get_cm_event(c->channel, &event) == 0) {
		struct nvme_rdma_qpair *q = event->id->context;
		/* the event is copied, then acknowledged, then handled: handling it may destroy the id, which waits
		 * until all events of the id have been acknowledged */
		struct rdma_cm_event copy = *event;
		uint8_t private_data[256];

		if (copy.param.conn.private_data != NULL && copy.event == RDMA_CM_EVENT_REJECTED) {
			memcpy(private_data, copy.param.conn.private_data, copy.param.conn.private_data_len);
			copy.param.conn.private_data = private_data;
		}
		rdma_ack_cm_event(event);
		cm_event_handle(q, &copy);
	}
}

static int traddr_resolve(const char *traddr, const char *trsvcid, uint8_t adrfam, struct addrinfo **out)
{
	struct addrinfo hints = {
		.ai_family = adrfam == NVMF_ADDR_FAMILY_IP6   ? AF_INET6
			     : adrfam == NVMF_ADDR_FAMILY_IP4 ? AF_INET
							      : 0,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, /* no names: they would be looked up on the network */
	};

	return getaddrinfo(traddr, trsvcid, &hints, out);
}

static int cm_id_set_option(struct rdma_cm_id *id, int option, uint8_t value)
{
	return value == 0 ? 0 : rdma_set_option(id, RDMA_OPTION_ID, option, &value, sizeof(value));
}

/* from: the source address, or NULL. */
static int link_resolve(struct nvme_rdma_qpair *q, struct addrinfo *from, struct addrinfo *to)
{
	const struct nvme_ctrlr_opts *opts = &q->base.ctrlr->opts;

	if (rdma_create_id(nvme_rdma_ctrlr_of(q->base.ctrlr)->channel, &q->id, q, RDMA_PS_TCP) != 0 ||
	    cm_id_set_option(q->id, RDMA_OPTION_ID_TOS, opts->rdma_tos) != 0 ||
	    cm_id_set_option(q->id, RDMA_OPTION_ID_ACK_TIMEOUT, opts->rdma_ack_timeout) != 0 ||
	    rdma_resolve_addr(q->id, from != NULL ? from->ai_addr : NULL, to->ai_addr, link_timeout_ms(q)) != 0) {
		return -errno;
	}
	return 0;
}

void nvme_rdma_qpair_connect(struct nvme_qpair *base)
{
	struct nvme_rdma_qpair *q = nvme_rdma_qpair_of(base);
	const struct nvme_trid *t = &base->ctrlr->trid;
	bool has_from = t->host_traddr[0] != '\0';
	struct addrinfo *to = NULL, *from = NULL;
	int rc = traddr_resolve(t->traddr, t->trsvcid[0] ? t->trsvcid : NVME_RDMA_DEFAULT_TRSVCID, t->adrfam, &to);

	if (rc == 0 && has_from) {
		rc = traddr_resolve(t->host_traddr, t->host_trsvcid[0] ? t->host_trsvcid : NULL, t->adrfam, &from);
	}
	q->link = NVME_RDMA_LINK_RESOLVING;
	if (rc != 0) {
		link_break(q, gai_strerror(rc));
	} else {
		rc = link_resolve(q, from, to);
		if (rc != 0) {
			link_break(q, strerror(-rc));
		}
	}
	if (from != NULL) {
		freeaddrinfo(from);
	}
	if (to != NULL) {
		freeaddrinfo(to);
	}
}
