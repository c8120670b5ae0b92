/* SPDX-License-Identifier: BSD-3-Clause */
/* Commands of the RDMA transport: the data pointer, the capsule, the send. The using thread of a queue pair. */
#include "nvme/rdma/rdma.h"

#include <errno.h>
#include <string.h>

#include "util/log.h"

/* The data pointer (Base 4.1.2, RDMA 3.4). */

/* Fills in sge[] for the data: an entry for each contiguous segment within a memory region. The number, or a negative
 * errno. */
static int data_gather(struct nvme_rdma_qpair *q, const struct nvme_request *req, struct ibv_sge *sge)
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
		if (n == NVME_RDMA_DESCRIPTORS_MAX) {
			return -E2BIG;
		}
		sge[n++] = (struct ibv_sge){
			.addr = (uintptr_t)v->iov_base, .length = (uint32_t)v->iov_len, .lkey = r->mr->lkey};
	}
	return n;
}

static uint32_t sge_rkey(struct nvme_rdma_qpair *q, const struct ibv_sge *sge)
{
	const struct verbs_region *r =
		verbs_region_find(q->pd, (void *)(uintptr_t)sge->addr, sge->length, &q->region_hint);

	return r->mr->rkey; /* data_gather() has just found it, and the control thread removes memory only after all
			       queue pairs have been stopped */
}

/* Describes the data by keyed descriptors: one in the command itself, or several in a last segment, which follows the
 * command in the capsule. */
static int point_by_keys(struct nvme_rdma_qpair *q, struct nvme_request *req, struct nvme_rdma_slot *slot,
			 uint8_t *capsule, int segments)
{
	if (segments == 1) {
		const struct ibv_sge *s = &slot->sge[1];
		req->cmd.sgl1 = nvme_sgl_make_keyed(s->addr, s->length, sge_rkey(q, s), NVME_SGL_SUBTYPE_ADDRESS);
		return 0;
	}
	if ((uint32_t)segments > q->max_descriptors) {
		return -E2BIG;
	}
	union nvme_sgl_desc *list = (union nvme_sgl_desc *)(capsule + sizeof(struct nvme_sqe));
	for (int i = 0; i < segments; i++) {
		const struct ibv_sge *s = &slot->sge[1 + i];
		list[i] = nvme_sgl_make_keyed(s->addr, s->length, sge_rkey(q, s), NVME_SGL_SUBTYPE_ADDRESS);
	}
	req->cmd.sgl1 = nvme_sgl_make_plain(NVME_SGL_TYPE_LAST_SEGMENT, NVME_SGL_SUBTYPE_OFFSET, 0,
					    (uint32_t)(segments * sizeof(*list)));
	slot->sge[0].length += (uint32_t)(segments * sizeof(*list));
	return 0;
}

static int capsule_build(struct nvme_rdma_qpair *q, struct nvme_request *req, struct nvme_rdma_slot *slot,
			 uint8_t *capsule)
{
	int rc = 0, segments = 0;

	slot->sge[0] = (struct ibv_sge){
		.addr = (uintptr_t)capsule, .length = sizeof(struct nvme_sqe), .lkey = q->capsule_lkey};
	slot->wr.num_sge = 1;
	req->cmd.flags = (uint8_t)((req->cmd.flags & ~NVME_CMD_FLAGS_PSDT_MASK) | NVME_CMD_FLAGS_PSDT_SGL);
	req->cmd.mptr = 0;
	if (req->data_len == 0) {
		/* no data: a keyed descriptor of length 0 */
		req->cmd.sgl1 = nvme_sgl_make_keyed(0, 0, 0, NVME_SGL_SUBTYPE_ADDRESS);
	} else {
		segments = data_gather(q, req, &slot->sge[1]);
		if (segments < 0) {
			return segments;
		}
		if (req->to_device && req->data_len <= q->in_capsule_max && 1 + (uint32_t)segments <= q->send_sges) {
			req->cmd.sgl1 = nvme_sgl_make_plain(NVME_SGL_TYPE_DATA_BLOCK, NVME_SGL_SUBTYPE_OFFSET, 0,
							    req->data_len);
			slot->wr.num_sge = 1 + segments;
		} else {
			rc = point_by_keys(q, req, slot, capsule, segments);
		}
	}
	memcpy(capsule, &req->cmd, sizeof(req->cmd));
	return rc;
}

int nvme_rdma_submit(struct nvme_qpair *base, struct nvme_request *req)
{
	struct nvme_rdma_qpair *q = nvme_rdma_qpair_of(base);
	uint16_t index = le16toh(req->cmd.cid) & base->slot_mask;
	struct nvme_rdma_slot *slot = &q->slots[index];
	int rc = capsule_build(q, req, slot, q->capsules + (size_t)index * q->capsule_size);

	if (rc != 0) {
		return rc;
	}
	slot->send_done = false;
	slot->response_received = false;
	slot->wr.next = NULL;
	if (q->send_last != NULL) {
		q->send_last->next = &slot->wr;
	} else {
		q->send_first = &slot->wr;
	}
	q->send_last = &slot->wr;
	return 0;
}

void nvme_rdma_flush(struct nvme_qpair *base)
{
	struct nvme_rdma_qpair *q = nvme_rdma_qpair_of(base);
	struct ibv_send_wr *bad_send, *send = q->send_first;
	struct ibv_recv_wr *bad_recv, *recv = q->recv_first;

	q->send_first = q->send_last = NULL;
	q->recv_first = q->recv_last = NULL;
	/* receives first: responses to these commands need them */
	if ((recv != NULL && ibv_post_recv(q->id->qp, recv, &bad_recv) != 0) ||
	    (send != NULL && ibv_post_send(q->id->qp, send, &bad_send) != 0)) {
		log_limited(LOG_LEVEL_ERROR, "queue pair %u: posting failed", base->id);
		__atomic_store_n(&q->link, NVME_RDMA_LINK_DOWN,
				 __ATOMIC_RELAXED); /* the next poll fails the queue pair */
	}
}
