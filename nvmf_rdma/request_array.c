/* SPDX-License-Identifier: BSD-3-Clause */
/* Arrays of requests and their capsules: for each, 64 bytes for the command, in-capsule data aligned to a page, and the
 * array of buffers of its transfer. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "env_dpdk/env.h"
#include "nvmf_rdma/internal.h"

static size_t align_to_line(size_t n)
{
	return (n + 63) & ~(size_t)63;
}

/* Over iWARP a response has two scatter/gather elements, to avoid a fault of siw. siw copies a message of one element
 * and up to 32 bytes itself. If the queue pair's flag in_syscall is set, it copies from the memory of the process that
 * it believes to be in a system call. But siw's own thread may have taken over the queue before that system call has
 * cleared the flag: the copy fails, and the connection ends (siw_try_1seg() and siw_post_send() in the kernel). Inline
 * data would avoid it too, but not with IBV_WR_SEND_WITH_INV. */
static uint32_t response_sges(const struct nvmf_rdma_device *d)
{
	return d->iwarp && d->sges > 1 ? 2 : 1;
}

static void init_request(struct nvmf_rdma_request *r, uint8_t *command, uint32_t command_lkey, uint8_t *icd,
			 uint32_t icd_lkey, uint32_t icd_size, uint32_t request_lkey, uint32_t rsp_pieces)
{
	uint32_t piece = (uint32_t)sizeof(struct nvme_cqe) / rsp_pieces;

	r->state = RDMA_REQ_FREE;
	r->recv_sge[0] =
		(struct ibv_sge){.addr = (uintptr_t)command, .length = sizeof(struct nvme_sqe), .lkey = command_lkey};
	r->recv_sge[1] = (struct ibv_sge){.addr = (uintptr_t)icd, .length = icd_size, .lkey = icd_lkey};
	r->recv_wr = (struct ibv_recv_wr){.wr_id = (uintptr_t)r, .sg_list = r->recv_sge, .num_sge = icd_size ? 2 : 1};
	for (uint32_t i = 0; i < rsp_pieces; i++) {
		r->rsp_sge[i] = (struct ibv_sge){
			.addr = (uintptr_t)&r->req.cqe + i * piece, .length = piece, .lkey = request_lkey};
	}
	r->rsp_wr = (struct ibv_send_wr){.wr_id = (uintptr_t)r,
					 .sg_list = r->rsp_sge,
					 .num_sge = (int)rsp_pieces,
					 .send_flags = IBV_SEND_SIGNALED};
	r->data_wr.sg_list = r->data_sge;
	r->req.sqe = (const struct nvme_sqe *)command;
	r->req.icd = icd;
}

/* False: the memory is not registered with the device, which the log has said when registering failed. */
static bool find_local_key(struct nvmf_rdma_poller *p, const void *addr, size_t len, uint32_t *lkey)
{
	const struct verbs_region *region = verbs_region_find(p->device->pd, addr, len, &p->region_hint);

	*lkey = region != NULL ? region->mr->lkey : 0;
	return region != NULL;
}

static bool array_allocate(struct nvmf_rdma_request_array *a, uint32_t all, size_t icd_stride, uint32_t iovs)
{
	a->memory = env_dma_zmalloc(all * a->base.stride, 64, -1);
	a->commands = env_dma_zmalloc(all * sizeof(struct nvme_sqe), 64, -1);
	a->icd = icd_stride ? env_dma_malloc(a->receives * icd_stride, 4096, -1) : NULL;
	a->iovs = calloc((size_t)a->receives * iovs, sizeof(*a->iovs));
	a->bytes =
		all * (a->base.stride + sizeof(struct nvme_sqe)) + a->receives * (icd_stride + iovs * sizeof(*a->iovs));
	return a->memory && a->commands && (icd_stride == 0 || a->icd) && a->iovs;
}

int nvmf_rdma_request_array_create(struct nvmf_rdma_request_array *a, uint32_t receives, uint32_t spares,
				   const struct nvmf_rdma_transport *t, struct nvmf_rdma_poller *p)
{
	uint32_t icd = t->base.opts.in_capsule_data_size, all = receives + spares;
	size_t icd_stride = (icd + 4095u) & ~4095u;
	uint32_t request_lkey, command_lkey, icd_lkey = 0, iovs = t->buffers.max_per_request;

	*a = (struct nvmf_rdma_request_array){
		.receives = receives,
		.base.count = receives,
		.base.stride = align_to_line(offsetof(struct nvmf_rdma_request, req) + nvmf_request_size())};
	if (!array_allocate(a, all, icd_stride, iovs)) {
		nvmf_rdma_request_array_destroy(a);
		return -ENOMEM;
	}
	a->base.first = &nvmf_rdma_request_at(a, 0)->req;
	/* each of the three lies within one region, but not necessarily in the same */
	if (!find_local_key(p, a->memory, all * a->base.stride, &request_lkey) ||
	    !find_local_key(p, a->commands, all * sizeof(struct nvme_sqe), &command_lkey) ||
	    (icd != 0 && !find_local_key(p, a->icd, receives * icd_stride, &icd_lkey))) {
		nvmf_rdma_request_array_destroy(a);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < all; i++) {
		struct nvmf_rdma_request *r = nvmf_rdma_request_at(a, i);
		uint8_t *command = a->commands + i * sizeof(struct nvme_sqe);
		uint8_t *data = icd && i < receives ? a->icd + i * icd_stride : NULL;

		r->req.iov = i < receives ? &a->iovs[(size_t)i * iovs] : NULL;
		init_request(r, command, command_lkey, data, icd_lkey, icd, request_lkey, response_sges(p->device));
	}
	return 0;
}

void nvmf_rdma_request_array_destroy(struct nvmf_rdma_request_array *a)
{
	env_dma_free(a->memory);
	env_dma_free(a->commands);
	env_dma_free(a->icd);
	free(a->iovs);
	*a = (struct nvmf_rdma_request_array){0};
}
