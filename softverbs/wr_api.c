/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The extended way to post: ibv_wr_start(), one call per work request and per part of it, ibv_wr_complete(). Requests
 * are collected in ordinary structures, and posted as one chain at the end.
 */
#include <stdlib.h>

#include "softverbs/softverbs.h"

#define ALL_OPS                                                                                                        \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |                        \
	 IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |                 \
	 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW |                     \
	 IBV_QP_EX_WITH_SEND_WITH_INV)

struct sv_wr_builder {
	struct ibv_send_wr *wr;
	struct ibv_sge *sge;  /* max_send_sge for each */
	uint8_t *inline_data; /* max_inline_data for each */
	uint32_t max;
	uint32_t count;
	int error;
};

static struct sv_wr_builder *wr_builder(struct ibv_qp_ex *ex)
{
	return ((struct sv_qp *)ex)->builder;
}

static void wr_start(struct ibv_qp_ex *ex)
{
	struct sv_qp *qp = (struct sv_qp *)ex;

	pthread_mutex_lock(&qp->lock); /* until it is completed or aborted */
	qp->builder->count = 0;
	qp->builder->error = 0;
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct sv_qp *qp = (struct sv_qp *)ex;
	struct sv_wr_builder *b = qp->builder;
	struct ibv_send_wr *bad;
	int rc = b->error;

	if (rc == 0 && b->count != 0) {
		b->wr[b->count - 1].next = NULL;
		rc = sv_post_send_locked(qp, b->wr, &bad);
	}
	pthread_mutex_unlock(&qp->lock);
	return rc;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	pthread_mutex_unlock(&((struct sv_qp *)ex)->lock);
}

/* Begins a work request. If there are too many, the last is overwritten, and none will be posted. */
static struct ibv_send_wr *wr_begin(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode)
{
	struct sv_qp *qp = (struct sv_qp *)ex;
	struct sv_wr_builder *b = qp->builder;
	struct ibv_send_wr *wr;

	if (b->count == b->max) {
		b->error = ENOMEM;
		b->count--;
	}
	wr = &b->wr[b->count];
	*wr = (struct ibv_send_wr){.wr_id = ex->wr_id,
				   .next = wr + 1,
				   .sg_list = b->sge + (size_t)b->count * qp->cap.max_send_sge,
				   .opcode = opcode,
				   .send_flags = ex->wr_flags & ~(unsigned)IBV_SEND_INLINE};
	b->count++;
	return wr;
}

/* The current work request; if there is none, the caller's mistake is noted. */
static struct ibv_send_wr *wr_current(struct ibv_qp_ex *ex)
{
	struct sv_wr_builder *b = wr_builder(ex);

	if (b->count == 0) {
		b->error = EINVAL;
		return NULL;
	}
	return &b->wr[b->count - 1];
}

static void wr_rdma(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey, uint64_t remote_addr, __be32 imm)
{
	struct ibv_send_wr *wr = wr_begin(ex, opcode);

	wr->imm_data = imm;
	wr->wr.rdma.rkey = rkey;
	wr->wr.rdma.remote_addr = remote_addr;
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
	wr_rdma(ex, IBV_WR_RDMA_WRITE, rkey, remote_addr, 0);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, __be32 imm)
{
	wr_rdma(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, remote_addr, imm);
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
	wr_rdma(ex, IBV_WR_RDMA_READ, rkey, remote_addr, 0);
}

static void wr_send(struct ibv_qp_ex *ex)
{
	wr_begin(ex, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm)
{
	wr_begin(ex, IBV_WR_SEND_WITH_IMM)->imm_data = imm;
}

static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	wr_begin(ex, IBV_WR_SEND_WITH_INV)->invalidate_rkey = rkey;
}

static void wr_local_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	wr_begin(ex, IBV_WR_LOCAL_INV)->invalidate_rkey = rkey;
}

static void wr_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info)
{
	struct ibv_send_wr *wr = wr_begin(ex, IBV_WR_BIND_MW);

	wr->bind_mw.mw = mw;
	wr->bind_mw.rkey = rkey;
	wr->bind_mw.bind_info = *info;
}

static void wr_atomic(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey, uint64_t remote_addr,
		      uint64_t compare_add, uint64_t swap)
{
	struct ibv_send_wr *wr = wr_begin(ex, opcode);

	wr->wr.atomic.rkey = rkey;
	wr->wr.atomic.remote_addr = remote_addr;
	wr->wr.atomic.compare_add = compare_add;
	wr->wr.atomic.swap = swap;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, uint64_t compare,
			      uint64_t swap)
{
	wr_atomic(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, remote_addr, compare, swap);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, uint64_t add)
{
	wr_atomic(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, remote_addr, add, 0);
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t num_sge, const struct ibv_sge *list)
{
	struct ibv_send_wr *wr = wr_current(ex);

	if (wr == NULL || num_sge > ((struct sv_qp *)ex)->cap.max_send_sge) {
		wr_builder(ex)->error = EINVAL;
		return;
	}
	memcpy(wr->sg_list, list, num_sge * sizeof(*list));
	wr->num_sge = (int)num_sge;
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	wr_set_sge_list(ex, 1, &(struct ibv_sge){.addr = addr, .length = length, .lkey = lkey});
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t num_buf, const struct ibv_data_buf *list)
{
	struct sv_qp *qp = (struct sv_qp *)ex;
	struct ibv_send_wr *wr = wr_current(ex);
	uint8_t *data;
	size_t total = 0;

	for (size_t i = 0; i < num_buf; i++) {
		total += list[i].length;
	}
	if (wr == NULL || total > qp->cap.max_inline_data || qp->cap.max_send_sge == 0) {
		qp->builder->error = wr == NULL ? EINVAL : ENOMEM;
		return;
	}
	data = qp->builder->inline_data + (size_t)(wr - qp->builder->wr) * qp->cap.max_inline_data;
	wr->sg_list[0] = (struct ibv_sge){.addr = (uintptr_t)data, .length = (uint32_t)total};
	wr->num_sge = 1;
	wr->send_flags |= IBV_SEND_INLINE;
	for (size_t i = 0; i < num_buf; i++) {
		memcpy(data, list[i].addr, list[i].length);
		data += list[i].length;
	}
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	wr_set_inline_data_list(ex, 1, &(struct ibv_data_buf){addr, length});
}

static void wr_api_fill(struct ibv_qp_ex *ex)
{
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	ex->wr_rdma_write = wr_rdma_write;
	ex->wr_rdma_write_imm = wr_rdma_write_imm;
	ex->wr_rdma_read = wr_rdma_read;
	ex->wr_send = wr_send;
	ex->wr_send_imm = wr_send_imm;
	ex->wr_send_inv = wr_send_inv;
	ex->wr_local_inv = wr_local_inv;
	ex->wr_bind_mw = wr_bind_mw;
	ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
}

int sv_wr_api_init(struct sv_qp *qp, uint64_t ops)
{
	struct sv_wr_builder *b;

	if ((ops & ~(uint64_t)ALL_OPS) != 0) {
		return EOPNOTSUPP;
	}
	b = calloc(1, sizeof(*b));
	if (b == NULL) {
		return ENOMEM;
	}
	qp->builder = b;
	b->max = qp->cap.max_send_wr == 0 ? 1 : qp->cap.max_send_wr;
	b->wr = calloc(b->max, sizeof(*b->wr));
	b->sge = calloc((size_t)b->max * qp->cap.max_send_sge + 1, sizeof(*b->sge));
	b->inline_data = malloc((size_t)b->max * qp->cap.max_inline_data + 1);
	if (b->wr == NULL || b->sge == NULL || b->inline_data == NULL) {
		return ENOMEM;
	}
	wr_api_fill(&qp->ex);
	qp->with_wr_api = true;
	return 0;
}

void sv_wr_api_free(struct sv_qp *qp)
{
	struct sv_wr_builder *b = qp->builder;

	if (b != NULL) {
		free(b->wr);
		free(b->sge);
		free(b->inline_data);
		free(b);
	}
}
