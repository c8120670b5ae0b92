/* SPDX-License-Identifier: BSD-3-Clause */
/* The RDMA transport of the NVMe host (NVMe RDMA Transport Specification 1.0b).
 *
 * Connections are made on the control thread, from the events of one rdma_cm channel per controller. Each queue pair
 * has its own completion queue, so that after it is handed out nobody but its user touches it. A command is complete
 * when both its response has arrived and its capsule's send has completed: before that, the device may still read the
 * capsule. */
#include "nvme/transport.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "env_dpdk/env.h"
#include "verbs/pd.h"
#include "util/log.h"

#define MAX_DESCRIPTORS  16 /* SGL descriptors, and so pieces of data, of one command */
#define MAX_TRANSFER     (UINT32_C(1) << 20)
#define CM_TIMEOUT_MS    2000
#define POLL_BATCH       32
#define CAPSULE_DATA_MAX 8192

/* One command id's place: the capsule to send, and what of the command is still to come. */
struct slot {
	struct ibv_send_wr wr;
	struct ibv_sge sge[1 + MAX_DESCRIPTORS];
	bool send_done, response_here;
	struct nvme_cqe cqe;
};

/* The connection's progress; every move is in cm_event(). */
enum link_state { LINK_RESOLVING, LINK_ROUTING, LINK_CONNECTING, LINK_UP, LINK_DOWN };

struct rdma_qpair {
	struct nvme_qpair base;
	struct rdma_cm_id *id;
	struct verbs_pd *pd;
	struct ibv_cq *cq;
	struct ibv_comp_channel *comp;
	enum link_state link; /* DOWN is stored by the control thread and read by the user: atomic */
	struct slot *slots;   /* by slot of the command id */
	uint8_t *capsules;    /* likewise; DMA memory */
	uint32_t capsule_size;
	uint32_t capsule_lkey;
	struct nvme_cqe *responses; /* one per receive; DMA memory */
	uint32_t response_lkey;
	struct ibv_recv_wr *recvs;
	struct ibv_sge *recv_sges;
	struct ibv_send_wr *send_first, *send_last; /* to be posted at the next flush */
	struct ibv_recv_wr *recv_first, *recv_last;
	uint32_t region_hint;
	uint32_t send_sges;      /* that the queue pair has for a capsule and the data behind it */
	uint32_t in_capsule_max; /* bytes of data that may follow the command in its capsule */
	uint32_t max_descriptors;
	bool told; /* how the connecting ended; control thread */
};

struct rdma_ctrlr {
	struct nvme_ctrlr base;
	struct rdma_event_channel *channel;
	struct fd_source *cm_source;
};

#define WR_RECV (UINT64_C(1) << 32)

static struct rdma_qpair *to_rdma(const struct nvme_qpair *q)
{
	return (struct rdma_qpair *)q;
}

static struct rdma_ctrlr *to_rdma_ctrlr(const struct nvme_ctrlr *c)
{
	return (struct rdma_ctrlr *)c;
}

/* The data pointer (Base 4.1.2, RDMA 3.4). */

static void put_in_capsule(struct rdma_qpair *q, struct nvme_request *req)
{
	req->cmd.sgl1 = nvme_sgl_make_plain(NVME_SGL_TYPE_DATA_BLOCK, NVME_SGL_SUBTYPE_OFFSET, 0, req->data_len);
}

/* Fills sge[1..] with the pieces of data. The number, or a negative errno. */
static int gather(struct rdma_qpair *q, const struct nvme_request *req, struct ibv_sge *sge)
{
	int n = 0;

	for (unsigned i = 0; i < req->iovcnt; i++) {
		const struct iovec *v = &req->iovs[i];
		if (v->iov_len == 0) {
			continue;
		}
		const struct verbs_region *r = verbs_region_find(q->pd, v->iov_base, v->iov_len, &q->region_hint);
		if (r == NULL) {
			return -EFAULT; /* memory that is not DMA-able */
		}
		if (n > 0 && sge[n - 1].addr + sge[n - 1].length == (uintptr_t)v->iov_base &&
		    sge[n - 1].lkey == r->mr->lkey) {
			sge[n - 1].length += (uint32_t)v->iov_len;
			continue;
		}
		if (n == MAX_DESCRIPTORS) {
			return -E2BIG;
		}
		sge[n++] = (struct ibv_sge){
			.addr = (uintptr_t)v->iov_base, .length = (uint32_t)v->iov_len, .lkey = r->mr->lkey};
	}
	return n;
}

static uint32_t rkey_of(struct rdma_qpair *q, const struct ibv_sge *sge)
{
	const struct verbs_region *r =
		verbs_region_find(q->pd, (void *)(uintptr_t)sge->addr, sge->length, &q->region_hint);

	return r->mr
		->rkey; /* gather() found it a moment ago, and memory goes only on the control thread after a stop */
}

/* Keyed descriptors: one in the command itself, or a last segment of several behind it in the capsule. */
static int put_keyed(struct rdma_qpair *q, struct nvme_request *req, struct slot *slot, uint8_t *capsule, int pieces)
{
	if (pieces == 1) {
		const struct ibv_sge *s = &slot->sge[1];
		req->cmd.sgl1 = nvme_sgl_make_keyed(s->addr, s->length, rkey_of(q, s), NVME_SGL_SUBTYPE_ADDRESS);
		return 0;
	}
	if ((uint32_t)pieces > q->max_descriptors) {
		return -E2BIG;
	}
	union nvme_sgl_desc *list = (union nvme_sgl_desc *)(capsule + sizeof(struct nvme_sqe));
	for (int i = 0; i < pieces; i++) {
		const struct ibv_sge *s = &slot->sge[1 + i];
		list[i] = nvme_sgl_make_keyed(s->addr, s->length, rkey_of(q, s), NVME_SGL_SUBTYPE_ADDRESS);
	}
	req->cmd.sgl1 = nvme_sgl_make_plain(NVME_SGL_TYPE_LAST_SEGMENT, NVME_SGL_SUBTYPE_OFFSET, 0,
					    (uint32_t)(pieces * sizeof(*list)));
	slot->sge[0].length += (uint32_t)(pieces * sizeof(*list));
	return 0;
}

static int build(struct rdma_qpair *q, struct nvme_request *req, struct slot *slot, uint8_t *capsule)
{
	int rc = 0, pieces = 0;

	slot->sge[0] = (struct ibv_sge){
		.addr = (uintptr_t)capsule, .length = sizeof(struct nvme_sqe), .lkey = q->capsule_lkey};
	slot->wr.num_sge = 1;
	req->cmd.flags = (uint8_t)((req->cmd.flags & ~NVME_CMD_FLAGS_PSDT_MASK) | NVME_CMD_FLAGS_PSDT_SGL);
	req->cmd.mptr = 0;
	if (req->data_len == 0) {
		/* a descriptor of nothing: keyed, length 0 */
		req->cmd.sgl1 = nvme_sgl_make_keyed(0, 0, 0, NVME_SGL_SUBTYPE_ADDRESS);
	} else {
		pieces = gather(q, req, &slot->sge[1]);
		if (pieces < 0) {
			return pieces;
		}
		if (req->to_device && req->data_len <= q->in_capsule_max && 1 + (uint32_t)pieces <= q->send_sges) {
			put_in_capsule(q, req);
			slot->wr.num_sge = 1 + pieces;
		} else {
			rc = put_keyed(q, req, slot, capsule, pieces);
		}
	}
	memcpy(capsule, &req->cmd, sizeof(req->cmd));
	return rc;
}

static int rdma_submit(struct nvme_qpair *base, struct nvme_request *req)
{
	struct rdma_qpair *q = to_rdma(base);
	uint16_t index = le16toh(req->cmd.cid) & base->slot_mask;
	struct slot *slot = &q->slots[index];
	int rc = build(q, req, slot, q->capsules + (size_t)index * q->capsule_size);

	if (rc != 0) {
		return rc;
	}
	slot->send_done = false;
	slot->response_here = false;
	slot->wr.next = NULL;
	if (q->send_last != NULL) {
		q->send_last->next = &slot->wr;
	} else {
		q->send_first = &slot->wr;
	}
	q->send_last = &slot->wr;
	return 0;
}

static void rdma_flush(struct nvme_qpair *base)
{
	struct rdma_qpair *q = to_rdma(base);
	struct ibv_send_wr *bad_send, *send = q->send_first;
	struct ibv_recv_wr *bad_recv, *recv = q->recv_first;

	q->send_first = q->send_last = NULL;
	q->recv_first = q->recv_last = NULL;
	/* receives first: the responses to what is sent need them */
	if ((recv != NULL && ibv_post_recv(q->id->qp, recv, &bad_recv) != 0) ||
	    (send != NULL && ibv_post_send(q->id->qp, send, &bad_send) != 0)) {
		log_limited(LOG_LEVEL_ERROR, "queue pair %u: posting failed", base->id);
		__atomic_store_n(&q->link, LINK_DOWN, __ATOMIC_RELAXED); /* the next poll fails the queue pair */
	}
}

static void repost(struct rdma_qpair *q, uint32_t index)
{
	struct ibv_recv_wr *wr = &q->recvs[index];

	wr->next = NULL;
	if (q->recv_last != NULL) {
		q->recv_last->next = wr;
	} else {
		q->recv_first = wr;
	}
	q->recv_last = wr;
}

static void maybe_complete(struct rdma_qpair *q, struct slot *slot)
{
	if (slot->send_done && slot->response_here) {
		slot->response_here = false;
		nvme_qpair_complete(&q->base, &slot->cqe);
	}
}

static void response_arrived(struct rdma_qpair *q, const struct ibv_wc *wc)
{
	uint32_t index = (uint32_t)wc->wr_id;
	struct nvme_cqe cqe = q->responses[index];
	uint16_t cid = le16toh(cqe.cid);
	struct slot *slot = &q->slots[cid & q->base.slot_mask];

	repost(q, index);
	if (wc->byte_len != sizeof(cqe) || nvme_qpair_request(&q->base, cid) == NULL || slot->response_here) {
		cqe.cid = UINT16_MAX; /* no such command: nvme_qpair_complete() counts it and fails the queue pair */
		nvme_qpair_complete(&q->base, &cqe);
		return;
	}
	slot->cqe = cqe;
	slot->response_here = true;
	maybe_complete(q, slot);
}

static void handle(struct rdma_qpair *q, const struct ibv_wc *wc)
{
	if (wc->status != IBV_WC_SUCCESS) {
		if (wc->status != IBV_WC_WR_FLUSH_ERR) {
			log_limited(LOG_LEVEL_WARNING, "%s queue pair %u: %s", q->base.ctrlr->trid.traddr, q->base.id,
				    ibv_wc_status_str(wc->status));
		}
		__atomic_store_n(&q->link, LINK_DOWN, __ATOMIC_RELAXED);
	} else if (wc->wr_id & WR_RECV) {
		response_arrived(q, wc);
	} else {
		struct slot *slot = &q->slots[wc->wr_id];
		slot->send_done = true;
		maybe_complete(q, slot);
	}
}

/* In the error state, the device accepts no more access to our memory through this queue pair. */
static void shut(struct rdma_qpair *q)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	int rc = q->id != NULL && q->id->qp != NULL ? ibv_modify_qp(q->id->qp, &attr, IBV_QP_STATE) : 0;

	if (rc != 0) {
		log_limited(LOG_LEVEL_WARNING, "queue pair %u: not put into the error state: %s", q->base.id,
			    strerror(rc));
	}
}

static void rdma_shut(struct nvme_qpair *base)
{
	shut(to_rdma(base));
}

/* The control thread, which alone makes and destroys them; the user may be posting meanwhile. */
static void cut(struct rdma_qpair *q)
{
	if (q->id != NULL && q->id->qp != NULL) {
		rdma_disconnect(q->id);
		shut(q);
	}
}

static int rdma_poll(struct nvme_qpair *base, uint32_t max)
{
	struct rdma_qpair *q = to_rdma(base);
	struct ibv_wc wc[POLL_BATCH];
	uint32_t done = 0;
	int n;

	if (q->cq == NULL) { /* still resolving */
		return __atomic_load_n(&q->link, __ATOMIC_RELAXED) == LINK_DOWN ? -ENXIO : 0;
	}
	do {
		n = ibv_poll_cq(q->cq, POLL_BATCH, wc);
		for (int i = 0; i < n && !base->failed; i++) {
			handle(q, &wc[i]);
		}
		done += n > 0 ? (uint32_t)n : 0;
	} while (n == POLL_BATCH && (max == 0 || done < max));
	if (__atomic_load_n(&q->link, __ATOMIC_RELAXED) == LINK_DOWN || n < 0) {
		if (base->created || base->id == 0) {
			nvme_qpair_fail(base);
		}
		return -ENXIO;
	}
	if (q->send_first != NULL || q->recv_first != NULL) {
		rdma_flush(base);
	}
	return (int)done;
}

static int rdma_fd(const struct nvme_qpair *base)
{
	return to_rdma(base)->comp ? to_rdma(base)->comp->fd : -1;
}

/* Takes the events that have been delivered, asks for the next one, and looks whether something came in between. */
static bool rdma_arm(struct nvme_qpair *base)
{
	struct rdma_qpair *q = to_rdma(base);
	struct ibv_cq *cq;
	void *ctx;

	if (__atomic_load_n(&q->link, __ATOMIC_RELAXED) == LINK_DOWN) {
		return true;
	}
	while (ibv_get_cq_event(q->comp, &cq, &ctx) == 0) {
		ibv_ack_cq_events(cq, 1);
	}
	int rc = ibv_req_notify_cq(q->cq, 0);
	if (rc != 0) {
		log_limited(LOG_LEVEL_WARNING, "ibv_req_notify_cq: %s: the reactor stays awake", strerror(rc));
		return true;
	}
	return rdma_poll(base, 0) != 0;
}

/* Making the queue pair, once the route is known. */

static void free_verbs(struct rdma_qpair *q)
{
	if (q->id != NULL && q->id->qp != NULL) {
		rdma_destroy_qp(q->id);
	}
	if (q->cq != NULL) {
		int rc = ibv_destroy_cq(q->cq);
		if (rc != 0) {
			log_limited(LOG_LEVEL_WARNING, "ibv_destroy_cq: %s", strerror(rc));
		}
		q->cq = NULL;
	}
	if (q->comp != NULL) {
		int rc = ibv_destroy_comp_channel(q->comp);
		if (rc != 0) {
			log_limited(LOG_LEVEL_WARNING, "ibv_destroy_comp_channel: %s", strerror(rc));
		}
		q->comp = NULL;
	}
	env_dma_free(q->capsules);
	env_dma_free(q->responses);
	free(q->slots);
	free(q->recvs);
	free(q->recv_sges);
	q->capsules = NULL;
	q->responses = NULL;
	q->slots = NULL;
	q->recvs = NULL;
	q->recv_sges = NULL;
	if (q->pd != NULL) {
		verbs_pd_put(q->pd);
		q->pd = NULL;
	}
}

/* As many as the submission queue has entries, the one that stays free included. */
static uint32_t num_receives(const struct rdma_qpair *q)
{
	return q->base.entries + 1u;
}

static int make_buffers(struct rdma_qpair *q)
{
	uint32_t n = q->base.entries, receives = num_receives(q), hint = 0;
	const struct verbs_region *c, *r;

	q->capsules = env_dma_zmalloc((size_t)n * q->capsule_size, 64, -1);
	q->responses = env_dma_zmalloc(receives * sizeof(struct nvme_cqe), 64, -1);
	q->slots = calloc(n, sizeof(*q->slots));
	q->recvs = calloc(receives, sizeof(*q->recvs));
	q->recv_sges = calloc(receives, sizeof(*q->recv_sges));
	if (!q->capsules || !q->responses || !q->slots || !q->recvs || !q->recv_sges) {
		return -ENOMEM;
	}
	c = verbs_region_find(q->pd, q->capsules, (size_t)n * q->capsule_size, &hint);
	r = verbs_region_find(q->pd, q->responses, receives * sizeof(struct nvme_cqe), &hint);
	if (c == NULL || r == NULL) {
		return -ENOMEM; /* the device did not take our memory: said when it was registered */
	}
	q->capsule_lkey = c->mr->lkey;
	q->response_lkey = r->mr->lkey;
	for (uint32_t i = 0; i < n; i++) {
		q->slots[i].wr = (struct ibv_send_wr){
			.wr_id = i, .sg_list = q->slots[i].sge, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	}
	for (uint32_t i = 0; i < receives; i++) {
		q->recv_sges[i] = (struct ibv_sge){.addr = (uintptr_t)&q->responses[i],
						   .length = sizeof(struct nvme_cqe),
						   .lkey = q->response_lkey};
		q->recvs[i] = (struct ibv_recv_wr){.wr_id = WR_RECV | i, .sg_list = &q->recv_sges[i], .num_sge = 1};
	}
	return 0;
}

static int make_qp(struct rdma_qpair *q, const struct ibv_device_attr *attr)
{
	uint32_t n = q->base.entries;

	q->pd = verbs_pd_get(q->id->verbs, VERBS_SIDE_HOST);
	if (q->pd == NULL) {
		return -errno;
	}
	q->comp = ibv_create_comp_channel(q->id->verbs);
	q->cq = q->comp ? ibv_create_cq(q->id->verbs, (int)(n + num_receives(q)), q, q->comp, 0) : NULL;
	if (q->cq == NULL || fcntl(q->comp->fd, F_SETFL, O_NONBLOCK) != 0) {
		return -errno;
	}
	unsigned sges = 1 + MAX_DESCRIPTORS;
	if (attr->max_sge < (int)sges) {
		sges = (unsigned)attr->max_sge;
	}
	struct ibv_qp_init_attr init = {
		.send_cq = q->cq,
		.recv_cq = q->cq,
		.cap = {.max_send_wr = n, .max_recv_wr = num_receives(q), .max_send_sge = sges, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	if (rdma_create_qp(q->id, q->pd->pd, &init) != 0) {
		return -errno;
	}
	q->send_sges = sges;
	return make_buffers(q);
}

static int start_connect(struct rdma_qpair *q)
{
	struct nvme_ctrlr *ctrlr = q->base.ctrlr;
	struct ibv_device_attr attr;
	int rc = ibv_query_device(q->id->verbs, &attr); /* the error itself, positive */

	if (rc != 0) {
		return -rc;
	}
	rc = make_qp(q, &attr);
	if (rc != 0) {
		return rc;
	}
	for (uint32_t i = 0; i < num_receives(q); i++) {
		repost(q, i);
	}
	rdma_flush(&q->base);
	struct nvmf_rdma_cm_req data = {
		.recfmt = htole16(NVMF_RDMA_CM_RECFMT),
		.qid = htole16(q->base.id),
		.hrqsize = htole16((uint16_t)num_receives(q)),
		.hsqsize = htole16(q->base.entries), /* 0's based, as Connect's SQSIZE */
		.cntlid = htole16(q->base.id == 0 ? UINT16_MAX : ctrlr->cntlid),
	};
	struct rdma_conn_param param = {
		.private_data = &data,
		.private_data_len = sizeof(data),
		/* the target reads and writes our memory; we do neither with its */
		.responder_resources = (uint8_t)(attr.max_qp_rd_atom < 255 ? attr.max_qp_rd_atom : 255),
		.initiator_depth = 0,
		.retry_count = ctrlr->opts.rdma_retry_count,
		.rnr_retry_count = 7,
		.flow_control = 1,
	};
	return rdma_connect(q->id, &param) == 0 ? 0 : -errno;
}

/* Connection events, on the control thread. */

static void report(struct rdma_qpair *q, int error, const char *why)
{
	q->told = true;
	if (q->base.id == 0) {
		nvme_ctrlr_connected(q->base.ctrlr, error, why);
	} else {
		if (error != 0) {
			log_warning("%s: queue pair %u: %s", q->base.ctrlr->trid.traddr, q->base.id, why);
		}
		nvme_qpair_transport_connected(&q->base, error);
	}
}

static const char *reject_reason(const struct rdma_cm_event *event)
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

	if (event->param.conn.private_data_len < sizeof(data) || event->param.conn.private_data == NULL) {
		return "nobody listens there";
	}
	memcpy(&data, event->param.conn.private_data, sizeof(data));
	uint16_t sts = le16toh(data.sts);
	if (sts == 0) { /* not from a target: zeroes from the connection manager */
		return "nobody listens there";
	}
	if (le16toh(data.recfmt) != NVMF_RDMA_CM_RECFMT || sts >= sizeof(reasons) / sizeof(reasons[0]) ||
	    !reasons[sts]) {
		return "rejected for an unknown reason";
	}
	return reasons[sts];
}

static void link_broken(struct rdma_qpair *q, const char *why)
{
	__atomic_store_n(&q->link, LINK_DOWN, __ATOMIC_RELAXED); /* its user's next poll fails it */
	if (q->told) {
		cut(q); /* a user that sleeps is woken by the receives that this flushes */
	} else {
		report(q, -ECONNREFUSED, why);
	}
}

static void established(struct rdma_qpair *q)
{
	q->link = LINK_UP;
	report(q, 0, "");
}

static int cm_timeout_ms(const struct rdma_qpair *q)
{
	uint16_t ms = q->base.ctrlr->opts.rdma_cm_timeout_ms;

	return ms != 0 ? ms : CM_TIMEOUT_MS;
}

static void cm_event(struct rdma_qpair *q, const struct rdma_cm_event *event)
{
	int rc = 0;

	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		q->link = LINK_ROUTING;
		rc = rdma_resolve_route(q->id, cm_timeout_ms(q)) == 0 ? 0 : -errno;
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		q->link = LINK_CONNECTING;
		rc = start_connect(q);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		established(q);
		break;
	case RDMA_CM_EVENT_REJECTED:
		link_broken(q, reject_reason(event));
		break;
	case RDMA_CM_EVENT_ADDR_CHANGE:
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	default:
		link_broken(q, rdma_event_str(event->event));
		break;
	}
	if (rc != 0) {
		link_broken(q, strerror(-rc));
	}
}

static void cm_readable(void *arg, uint32_t events)
{
	struct rdma_ctrlr *c = arg;
	struct rdma_cm_event *event;

	while (c->channel != NULL && rdma_get_cm_event(c->channel, &event) == 0) {
		struct rdma_qpair *q = event->id->context;
		/* acknowledged after a copy: destroying an id waits for its events, and handling one may destroy it */
		struct rdma_cm_event copy = *event;
		uint8_t private_data[256];

		if (copy.param.conn.private_data != NULL && copy.event == RDMA_CM_EVENT_REJECTED) {
			memcpy(private_data, copy.param.conn.private_data, copy.param.conn.private_data_len);
			copy.param.conn.private_data = private_data;
		}
		rdma_ack_cm_event(event);
		cm_event(q, &copy);
	}
}

/* The controller and its queue pairs. */

static struct nvme_ctrlr *rdma_ctrlr_alloc(const struct nvme_trid *trid, char error[NVME_ERROR_MAX])
{
	struct rdma_ctrlr *c = calloc(1, sizeof(*c));
	int rc;

	if (c == NULL) {
		snprintf(error, NVME_ERROR_MAX, "out of memory");
		return NULL;
	}
	c->channel = rdma_create_event_channel();
	if (c->channel == NULL || fcntl(c->channel->fd, F_SETFL, O_NONBLOCK) != 0) {
		rc = errno;
		snprintf(error, NVME_ERROR_MAX,
			 "no rdma_cm event channel: %s (is there an RDMA device? `softverbs` provides one)",
			 strerror(rc));
		goto fail;
	}
	c->cm_source = fd_source_add(c->channel->fd, EPOLLIN, cm_readable, c, "nvme_rdma_cm");
	if (c->cm_source == NULL) {
		rc = errno;
		snprintf(error, NVME_ERROR_MAX, "the rdma_cm event channel cannot be watched: %s", strerror(rc));
		goto fail;
	}
	return &c->base;
fail:
	if (c->channel != NULL) {
		rdma_destroy_event_channel(c->channel);
	}
	free(c);
	errno = rc;
	return NULL;
}

static void rdma_ctrlr_free(struct nvme_ctrlr *base)
{
	struct rdma_ctrlr *c = to_rdma_ctrlr(base);

	fd_source_remove(&c->cm_source);
	rdma_destroy_event_channel(c->channel);
	free(c);
}

/* Of MSDBD (0: no limit), of what fits into a capsule, and of ours. */
static uint16_t max_descriptors(const struct nvme_ctrlr *ctrlr)
{
	uint32_t fit = nvme_capsule_room(&ctrlr->id) / sizeof(union nvme_sgl_desc), n = MAX_DESCRIPTORS;

	n = ctrlr->id.msdbd != 0 && ctrlr->id.msdbd < n ? ctrlr->id.msdbd : n;
	n = fit < n ? fit : n;
	return (uint16_t)(n > 1 ? n : 1);
}

static struct nvme_qpair *rdma_qpair_alloc(struct nvme_ctrlr *ctrlr, uint16_t id, uint16_t entries,
					   const struct nvme_qpair_opts *opts)
{
	struct rdma_qpair *q = calloc(1, sizeof(*q));

	if (q == NULL) {
		return NULL;
	}
	if (nvme_qpair_init(&q->base, ctrlr, id, entries) != 0) {
		free(q);
		return NULL;
	}
	uint32_t room = id == 0 ? 0 : nvme_capsule_room(&ctrlr->id);

	q->in_capsule_max = room < CAPSULE_DATA_MAX ? room : CAPSULE_DATA_MAX;
	q->max_descriptors = id == 0 ? 1 : max_descriptors(ctrlr);
	q->capsule_size = sizeof(struct nvme_sqe) + MAX_DESCRIPTORS * sizeof(union nvme_sgl_desc);
	return &q->base;
}

static int resolve(const char *traddr, const char *trsvcid, uint8_t adrfam, struct addrinfo **out)
{
	struct addrinfo hints = {
		.ai_family = adrfam == NVMF_ADDR_FAMILY_IP6   ? AF_INET6
			     : adrfam == NVMF_ADDR_FAMILY_IP4 ? AF_INET
							      : 0,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, /* a name would be looked up on the network */
	};

	return getaddrinfo(traddr, trsvcid, &hints, out);
}

static int set_option(struct rdma_cm_id *id, int option, uint8_t value)
{
	return value == 0 ? 0 : rdma_set_option(id, RDMA_OPTION_ID, option, &value, sizeof(value));
}

/* from: NULL, or where we come from. */
static int start_resolve(struct rdma_qpair *q, struct addrinfo *from, struct addrinfo *to)
{
	const struct nvme_ctrlr_opts *opts = &q->base.ctrlr->opts;

	if (rdma_create_id(to_rdma_ctrlr(q->base.ctrlr)->channel, &q->id, q, RDMA_PS_TCP) != 0 ||
	    set_option(q->id, RDMA_OPTION_ID_TOS, opts->rdma_tos) != 0 ||
	    set_option(q->id, RDMA_OPTION_ID_ACK_TIMEOUT, opts->rdma_ack_timeout) != 0 ||
	    rdma_resolve_addr(q->id, from != NULL ? from->ai_addr : NULL, to->ai_addr, cm_timeout_ms(q)) != 0) {
		return -errno;
	}
	return 0;
}

static void rdma_qpair_connect(struct nvme_qpair *base)
{
	struct rdma_qpair *q = to_rdma(base);
	const struct nvme_trid *t = &base->ctrlr->trid;
	bool has_from = t->host_traddr[0] != '\0';
	struct addrinfo *to = NULL, *from = NULL;
	int rc = resolve(t->traddr, t->trsvcid[0] ? t->trsvcid : "4420", t->adrfam, &to);

	if (rc == 0 && has_from) {
		rc = resolve(t->host_traddr, t->host_trsvcid[0] ? t->host_trsvcid : NULL, t->adrfam, &from);
	}
	q->link = LINK_RESOLVING;
	if (rc != 0) {
		link_broken(q, gai_strerror(rc));
	} else {
		rc = start_resolve(q, from, to);
		if (rc != 0) {
			link_broken(q, strerror(-rc));
		}
	}
	if (from != NULL) {
		freeaddrinfo(from);
	}
	if (to != NULL) {
		freeaddrinfo(to);
	}
}

static void rdma_qpair_stop(struct nvme_qpair *base, void (*done)(void *arg), void *arg)
{
	struct rdma_qpair *q = to_rdma(base);

	__atomic_store_n(&q->link, LINK_DOWN, __ATOMIC_RELAXED);
	cut(q);
	done(arg);
}

static void rdma_qpair_free(struct nvme_qpair *base)
{
	struct rdma_qpair *q = to_rdma(base);

	if (q->id != NULL && q->link == LINK_UP) {
		rdma_disconnect(q->id);
	}
	free_verbs(q);
	if (q->id != NULL) {
		rdma_destroy_id(q->id);
	}
	nvme_qpair_fini(base);
	free(q);
}

static void rdma_connect_admin(struct nvme_ctrlr *ctrlr)
{
	ctrlr->admin = rdma_qpair_alloc(ctrlr, 0, ctrlr->opts.admin_queue_entries, NULL);
	if (ctrlr->admin == NULL) {
		nvme_ctrlr_connected(ctrlr, -ENOMEM, "out of memory");
		return;
	}
	rdma_qpair_connect(ctrlr->admin);
}

static void rdma_disconnect_admin(struct nvme_ctrlr *ctrlr)
{
	if (ctrlr->admin != NULL) {
		rdma_qpair_free(ctrlr->admin);
	}
}

static uint32_t rdma_max_transfer(struct nvme_ctrlr *ctrlr)
{
	return MAX_TRANSFER;
}

static const struct nvme_transport_ops rdma_ops = {
	.trtype = NVME_TRTYPE_RDMA,
	.request_size = 0, /* what a command needs stands in its slot */
	.fabrics = true,
	.ctrlr_alloc = rdma_ctrlr_alloc,
	.ctrlr_free = rdma_ctrlr_free,
	.connect = rdma_connect_admin,
	.disconnect = rdma_disconnect_admin,
	.max_transfer = rdma_max_transfer,
	.max_segments = max_descriptors,
	.qpair_alloc = rdma_qpair_alloc,
	.qpair_connect = rdma_qpair_connect,
	.qpair_stop = rdma_qpair_stop,
	.qpair_free = rdma_qpair_free,
	.shut = rdma_shut,
	.submit = rdma_submit,
	.flush = rdma_flush,
	.poll = rdma_poll,
	.fd = rdma_fd,
	.arm = rdma_arm,
};

__attribute__((constructor)) static void register_rdma(void)
{
	nvme_transport_register(&rdma_ops);
}
