/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue pairs of the RDMA transport: their memory, their verbs objects, their end. Control thread, but for
 * nvme_rdma_shut(). */
#include "nvme/rdma/rdma.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "env_dpdk/env.h"
#include "util/log.h"

#define CAPSULE_DATA_MAX 8192

/* Puts the queue pair into the error state, in which the device allows no access to the host's memory through it. */
void nvme_rdma_shut(struct nvme_qpair *base)
{
	struct nvme_rdma_qpair *q = nvme_rdma_qpair_of(base);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	int rc = q->id != NULL && q->id->qp != NULL ? ibv_modify_qp(q->id->qp, &attr, IBV_QP_STATE) : 0;

	if (rc != 0) {
		log_limited(LOG_LEVEL_WARNING, "queue pair %u: not put into the error state: %s", q->base.id,
			    strerror(rc));
	}
}

void nvme_rdma_link_cut(struct nvme_rdma_qpair *q)
{
	if (q->id != NULL && q->id->qp != NULL) {
		rdma_disconnect(q->id);
		nvme_rdma_shut(&q->base);
	}
}

/* Verbs objects and buffers. */

static void qpair_free_objects(struct nvme_rdma_qpair *q)
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

static int buffers_make(struct nvme_rdma_qpair *q)
{
	uint32_t n = q->base.entries, receives = nvme_rdma_num_receives(q), hint = 0;
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
		return -ENOMEM; /* the device has refused this memory, which was logged when it was registered */
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
		q->recvs[i] =
			(struct ibv_recv_wr){.wr_id = NVME_RDMA_WR_RECV | i, .sg_list = &q->recv_sges[i], .num_sge = 1};
	}
	return 0;
}

int nvme_rdma_make_verbs(struct nvme_rdma_qpair *q, const struct ibv_device_attr *attr)
{
	uint32_t n = q->base.entries;

	q->pd = verbs_pd_get(q->id->verbs, VERBS_SIDE_HOST);
	if (q->pd == NULL) {
		return -errno;
	}
	q->comp = ibv_create_comp_channel(q->id->verbs);
	q->cq = q->comp ? ibv_create_cq(q->id->verbs, (int)(n + nvme_rdma_num_receives(q)), q, q->comp, 0) : NULL;
	if (q->cq == NULL || fcntl(q->comp->fd, F_SETFL, O_NONBLOCK) != 0) {
		return -errno;
	}
	unsigned sges = 1 + NVME_RDMA_DESCRIPTORS_MAX;
	if (attr->max_sge < (int)sges) {
		sges = (unsigned)attr->max_sge;
	}
	struct ibv_qp_init_attr init = {
		.send_cq = q->cq,
		.recv_cq = q->cq,
		.cap = {.max_send_wr = n,
			.max_recv_wr = nvme_rdma_num_receives(q),
			.max_send_sge = sges,
			.max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	if (rdma_create_qp(q->id, q->pd->pd, &init) != 0) {
		return -errno;
	}
	q->send_sges = sges;
	return buffers_make(q);
}

/* The lowest of MSDBD (0: no limit), the number that fits into a capsule, and this driver's limit. */
uint16_t nvme_rdma_max_descriptors(const struct nvme_ctrlr *ctrlr)
{
	uint32_t fit = nvme_capsule_room(&ctrlr->id) / sizeof(union nvme_sgl_desc), n = NVME_RDMA_DESCRIPTORS_MAX;

	n = ctrlr->id.msdbd != 0 && ctrlr->id.msdbd < n ? ctrlr->id.msdbd : n;
	n = fit < n ? fit : n;
	return (uint16_t)(n > 1 ? n : 1);
}

struct nvme_qpair *nvme_rdma_qpair_alloc(struct nvme_ctrlr *ctrlr, uint16_t id, uint16_t entries,
					 const struct nvme_qpair_opts *opts)
{
	struct nvme_rdma_qpair *q = calloc(1, sizeof(*q));

	if (q == NULL) {
		return NULL;
	}
	if (nvme_qpair_init(&q->base, ctrlr, id, entries) != 0) {
		free(q);
		return NULL;
	}
	uint32_t room = id == 0 ? 0 : nvme_capsule_room(&ctrlr->id);

	q->in_capsule_max = room < CAPSULE_DATA_MAX ? room : CAPSULE_DATA_MAX;
	q->max_descriptors = id == 0 ? 1 : nvme_rdma_max_descriptors(ctrlr);
	q->capsule_size = sizeof(struct nvme_sqe) + NVME_RDMA_DESCRIPTORS_MAX * sizeof(union nvme_sgl_desc);
	return &q->base;
}

void nvme_rdma_qpair_stop(struct nvme_qpair *base, void (*done)(void *arg), void *arg)
{
	struct nvme_rdma_qpair *q = nvme_rdma_qpair_of(base);

	__atomic_store_n(&q->link, NVME_RDMA_LINK_DOWN, __ATOMIC_RELAXED);
	nvme_rdma_link_cut(q);
	done(arg);
}

void nvme_rdma_qpair_free(struct nvme_qpair *base)
{
	struct nvme_rdma_qpair *q = nvme_rdma_qpair_of(base);

	if (q->id != NULL && q->link == NVME_RDMA_LINK_UP) {
		rdma_disconnect(q->id);
	}
	qpair_free_objects(q);
	if (q->id != NULL) {
		rdma_destroy_id(q->id);
	}
	nvme_qpair_fini(base);
	free(q);
}
