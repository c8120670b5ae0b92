/* SPDX-License-Identifier: BSD-3-Clause */
/* Completions of the RDMA transport: of sends, and of the receives that responses arrive in. The using thread. */
#include "nvme/rdma/rdma.h"

#include <errno.h>
#include <string.h>

#include "util/log.h"

#define POLL_BATCH 32

static void slot_complete_when_due(struct nvme_rdma_qpair *q, struct nvme_rdma_slot *slot)
{
	if (slot->send_done && slot->response_received) {
		slot->response_received = false;
		nvme_qpair_complete(&q->base, &slot->cqe);
	}
}

static void response_arrived(struct nvme_rdma_qpair *q, const struct ibv_wc *wc)
{
	uint32_t index = (uint32_t)wc->wr_id;
	struct nvme_cqe cqe = q->responses[index];
	uint16_t cid = le16toh(cqe.cid);
	struct nvme_rdma_slot *slot = &q->slots[cid & q->base.slot_mask];

	nvme_rdma_queue_receive(q, index);
	if (wc->byte_len != sizeof(cqe) || nvme_qpair_request(&q->base, cid) == NULL || slot->response_received) {
		cqe.cid = UINT16_MAX; /* no command has this id: nvme_qpair_complete() counts the completion and fails
					 the queue pair */
		nvme_qpair_complete(&q->base, &cqe);
		return;
	}
	slot->cqe = cqe;
	slot->response_received = true;
	slot_complete_when_due(q, slot);
}

static void work_completion_handle(struct nvme_rdma_qpair *q, const struct ibv_wc *wc)
{
	if (wc->status != IBV_WC_SUCCESS) {
		if (wc->status != IBV_WC_WR_FLUSH_ERR) {
			log_limited(LOG_LEVEL_WARNING, "%s queue pair %u: %s", q->base.ctrlr->trid.traddr, q->base.id,
				    ibv_wc_status_str(wc->status));
		}
		__atomic_store_n(&q->link, NVME_RDMA_LINK_DOWN, __ATOMIC_RELAXED);
	} else if (wc->wr_id & NVME_RDMA_WR_RECV) {
		response_arrived(q, wc);
	} else {
		struct nvme_rdma_slot *slot = &q->slots[wc->wr_id];
		slot->send_done = true;
		slot_complete_when_due(q, slot);
	}
}

int nvme_rdma_poll(struct nvme_qpair *base, uint32_t max)
{
	struct nvme_rdma_qpair *q = nvme_rdma_qpair_of(base);
	struct ibv_wc wc[POLL_BATCH];
	uint32_t done = 0;
	int n;

	if (q->cq == NULL) { /* the address is still being resolved */
		return __atomic_load_n(&q->link, __ATOMIC_RELAXED) == NVME_RDMA_LINK_DOWN ? -ENXIO : 0;
	}
	do {
		n = ibv_poll_cq(q->cq, POLL_BATCH, wc);
		for (int i = 0; i < n && !base->failed; i++) {
			work_completion_handle(q, &wc[i]);
		}
		done += n > 0 ? (uint32_t)n : 0;
	} while (n == POLL_BATCH && (max == 0 || done < max));
	if (__atomic_load_n(&q->link, __ATOMIC_RELAXED) == NVME_RDMA_LINK_DOWN || n < 0) {
		if (base->created || base->id == 0) {
			nvme_qpair_fail(base);
		}
		return -ENXIO;
	}
	if (q->send_first != NULL || q->recv_first != NULL) {
		nvme_rdma_flush(base);
	}
	return (int)done;
}

int nvme_rdma_fd(const struct nvme_qpair *base)
{
	return nvme_rdma_qpair_of(base)->comp ? nvme_rdma_qpair_of(base)->comp->fd : -1;
}

/* Reads the events there are, requests the next one, and polls once more for completions that came in between. */
bool nvme_rdma_arm(struct nvme_qpair *base)
{
	struct nvme_rdma_qpair *q = nvme_rdma_qpair_of(base);
	struct ibv_cq *cq;
	void *ctx;

	if (__atomic_load_n(&q->link, __ATOMIC_RELAXED) == NVME_RDMA_LINK_DOWN) {
		return true;
	}
	/* one event at most: a completion queue tells one, and no other before it is asked for the next */
	while (ibv_get_cq_event(q->comp, &cq, &ctx) == 0) {
		ibv_ack_cq_events(cq, 1);
	}
	int rc = ibv_req_notify_cq(q->cq, 0);
	if (rc != 0) {
		log_limited(LOG_LEVEL_WARNING, "ibv_req_notify_cq: %s: the reactor stays awake", strerror(rc));
		return true;
	}
	return nvme_rdma_poll(base, 0) != 0;
}
