/* SPDX-License-Identifier: BSD-3-Clause */
/* The RDMA READs or WRITEs for a command's data: between the host memory that its keyed descriptors name and its local
 * buffers. Nearly always one work request is enough, which the request has itself; others come from the group's pool.
 */
#include <errno.h>

#include "nvmf_rdma/internal.h"

struct local_cursor {
	const struct iovec *iov;
	uint16_t left; /* iovs, this one included */
	size_t offset;
};

struct ibv_send_wr *nvmf_rdma_data_last(struct nvmf_rdma_request *r)
{
	struct ibv_send_wr *wr = &r->data_wr;

	for (struct nvmf_rdma_data_wr *m = r->more; m != NULL; m = m->next_free) {
		wr = &m->wr;
	}
	return wr;
}

void nvmf_rdma_data_release(struct nvmf_rdma_request *r)
{
	struct nvmf_rdma_group *g = r->qp->poller->tgroup;

	while (r->more != NULL) {
		struct nvmf_rdma_data_wr *m = r->more;

		r->more = m->next_free;
		m->next_free = g->free_data_wrs;
		g->free_data_wrs = m;
	}
	r->data_wrs = 0;
}

/* A work request chained to the last one of the transfer. NULL: the pool is empty. */
static struct ibv_send_wr *take_data_wr(struct nvmf_rdma_request *r)
{
	struct nvmf_rdma_group *g = r->qp->poller->tgroup;

	if (likely(r->data_wrs++ == 0)) {
		return &r->data_wr;
	}
	struct nvmf_rdma_data_wr *m = g->free_data_wrs, **link = &r->more;
	if (m == NULL) {
		return NULL;
	}
	g->free_data_wrs = m->next_free;
	m->next_free = NULL;
	m->wr.sg_list = m->sge;
	nvmf_rdma_data_last(r)->next = &m->wr;
	while (*link != NULL) {
		link = &(*link)->next_free;
	}
	*link = m;
	return &m->wr;
}

/* Adds local memory to wr, up to length bytes or the last scatter/gather element that it may have. Returns the bytes
 * added; 0: the memory is not registered. */
static uint32_t add_local_memory(struct nvmf_rdma_poller *p, struct ibv_send_wr *wr, struct local_cursor *c,
				 uint32_t length)
{
	int most = wr->opcode == IBV_WR_RDMA_READ ? p->device->read_sges : p->device->sges;
	uint32_t added = 0;

	while (added < length && wr->num_sge < most && c->left > 0) {
		uint8_t *at = (uint8_t *)c->iov->iov_base + c->offset;
		size_t piece = c->iov->iov_len - c->offset;
		const struct verbs_region *region;

		if (piece > length - added) {
			piece = length - added;
		}
		region = verbs_region_find(p->device->pd, at, piece, &p->region_hint);
		if (region == NULL) {
			return 0;
		}
		wr->sg_list[wr->num_sge++] =
			(struct ibv_sge){.addr = (uintptr_t)at, .length = (uint32_t)piece, .lkey = region->mr->lkey};
		added += (uint32_t)piece;
		c->offset += piece;
		if (c->offset == c->iov->iov_len) {
			c->iov++;
			c->left--;
			c->offset = 0;
		}
	}
	return added;
}

/* Builds the work requests for one host descriptor: one, or several if the local memory has too many pieces. */
static int build_descriptor(struct nvmf_rdma_request *r, enum ibv_wr_opcode opcode, struct local_cursor *c,
			    uint64_t address, uint32_t key, uint32_t length)
{
	while (length > 0) {
		struct ibv_send_wr *wr = take_data_wr(r);
		if (wr == NULL) {
			return -EAGAIN;
		}
		wr->wr_id = 0;
		wr->next = NULL;
		wr->num_sge = 0;
		wr->opcode = opcode;
		wr->send_flags = 0;
		wr->wr.rdma.remote_addr = address;
		wr->wr.rdma.rkey = key;
		uint32_t added = add_local_memory(r->qp->poller, wr, c, length);
		if (added == 0) {
			return -EFAULT;
		}
		address += added;
		length -= added;
	}
	return 0;
}

static NOINLINE int build_any_transfer(struct nvmf_rdma_request *r, enum ibv_wr_opcode opcode)
{
	struct nvmf_sgl_iter it = nvmf_sgl_iter(&r->req.sgl);
	struct nvmf_sgl_block block;
	struct local_cursor c = {.iov = r->req.iov, .left = r->req.iovcnt};
	uint32_t left = r->req.length;
	int rc = 0;

	r->data_wrs = 0;
	while (rc == 0 && left > 0 && nvmf_sgl_next(&it, &block)) {
		uint32_t length = block.length < left ? block.length : left;

		rc = build_descriptor(r, opcode, &c, block.address, block.key, length);
		left -= length;
	}
	if (rc != 0) {
		nvmf_rdma_data_release(r);
	}
	return rc;
}

/* The common case, one descriptor of the host's and one piece of local memory: one work request with one element.
 * False: nothing is built, and the general way has to be taken, also for what is wrong. */
static ALWAYS_INLINE bool build_single_transfer(struct nvmf_rdma_request *r, enum ibv_wr_opcode opcode)
{
	const union nvme_sgl_desc *d = nvmf_sgl_single(&r->req.sgl);
	struct nvmf_rdma_poller *p = r->qp->poller;
	const struct iovec *iov = r->req.iov;
	uint32_t length = r->req.length;

	if (d == NULL || r->req.iovcnt != 1 || iov->iov_len < length || nvme_sgl_keyed_length(d) < length ||
	    length == 0) {
		return false;
	}
	const struct verbs_region *region = verbs_region_find(p->device->pd, iov->iov_base, length, &p->region_hint);
	if (unlikely(region == NULL)) {
		return false;
	}
	r->data_sge[0] = (struct ibv_sge){.addr = (uintptr_t)iov->iov_base, .length = length, .lkey = region->mr->lkey};
	r->data_wr.wr_id = 0;
	r->data_wr.next = NULL;
	r->data_wr.num_sge = 1;
	r->data_wr.opcode = opcode;
	r->data_wr.send_flags = 0;
	r->data_wr.wr.rdma.remote_addr = le64toh(d->keyed.address);
	r->data_wr.wr.rdma.rkey = nvme_sgl_key(d);
	r->data_wrs = 1;
	return true;
}

int nvmf_rdma_data_build(struct nvmf_rdma_request *r, enum ibv_wr_opcode opcode)
{
	if (likely(build_single_transfer(r, opcode))) {
		return 0;
	}
	return build_any_transfer(r, opcode);
}
