/* SPDX-License-Identifier: BSD-3-Clause */
/* The extended way to poll: one completion at a time, its fields read by calls. */
#include <stdlib.h>

#include "softverbs/softverbs.h"

static int take_next(struct sv_cq *cq)
{
	int n = sv_poll_cq(sv_ibv_cq(cq), 1, &cq->wc);

	if (n != 1) {
		return ENOENT;
	}
	cq->ex.status = cq->wc.status;
	cq->ex.wr_id = cq->wc.wr_id;
	return 0;
}

/* The caller holds the queue's lock from a successful start to the end. */
static int ex_start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	struct sv_cq *cq = (struct sv_cq *)ex;
	int rc;

	if (attr->comp_mask != 0) {
		return EINVAL;
	}
	pthread_mutex_lock(&cq->ex_lock);
	rc = take_next(cq);
	if (rc != 0) {
		pthread_mutex_unlock(&cq->ex_lock);
	}
	return rc;
}

static int ex_next_poll(struct ibv_cq_ex *ex)
{
	return take_next((struct sv_cq *)ex);
}

static void ex_end_poll(struct ibv_cq_ex *ex)
{
	pthread_mutex_unlock(&((struct sv_cq *)ex)->ex_lock);
}

static enum ibv_wc_opcode ex_read_opcode(struct ibv_cq_ex *ex)
{
	return ((struct sv_cq *)ex)->wc.opcode;
}

static uint32_t ex_read_vendor_err(struct ibv_cq_ex *ex)
{
	return ((struct sv_cq *)ex)->wc.vendor_err;
}

static uint32_t ex_read_byte_len(struct ibv_cq_ex *ex)
{
	return ((struct sv_cq *)ex)->wc.byte_len;
}

static __be32 ex_read_imm_data(struct ibv_cq_ex *ex)
{
	return ((struct sv_cq *)ex)->wc.imm_data;
}

static uint32_t ex_read_qp_num(struct ibv_cq_ex *ex)
{
	return ((struct sv_cq *)ex)->wc.qp_num;
}

static uint32_t ex_read_src_qp(struct ibv_cq_ex *ex)
{
	return ((struct sv_cq *)ex)->wc.src_qp;
}

static unsigned int ex_read_wc_flags(struct ibv_cq_ex *ex)
{
	return ((struct sv_cq *)ex)->wc.wc_flags;
}

static uint32_t ex_read_slid(struct ibv_cq_ex *ex)
{
	return ((struct sv_cq *)ex)->wc.slid;
}

static uint8_t ex_read_sl(struct ibv_cq_ex *ex)
{
	return ((struct sv_cq *)ex)->wc.sl;
}

static uint8_t ex_read_dlid_path_bits(struct ibv_cq_ex *ex)
{
	return ((struct sv_cq *)ex)->wc.dlid_path_bits;
}

struct ibv_cq_ex *sv_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	struct ibv_cq_ex *ex;

	if ((attr->comp_mask & ~(unsigned)IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 ||
	    ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 &&
	     (attr->flags & ~(unsigned)IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0) ||
	    (attr->wc_flags & ~(uint64_t)IBV_WC_STANDARD_FLAGS) != 0) {
		errno = EOPNOTSUPP; /* no timestamps, no VLANs, no overrun that is ignored */
		return NULL;
	}
	ex = (struct ibv_cq_ex *)ibv_create_cq(context, (int)attr->cqe, attr->cq_context, attr->channel,
					       (int)attr->comp_vector);
	if (ex == NULL) {
		return NULL;
	}
	ex->start_poll = ex_start_poll;
	ex->next_poll = ex_next_poll;
	ex->end_poll = ex_end_poll;
	ex->read_opcode = ex_read_opcode;
	ex->read_vendor_err = ex_read_vendor_err;
	ex->read_byte_len = ex_read_byte_len;
	ex->read_imm_data = ex_read_imm_data;
	ex->read_qp_num = ex_read_qp_num;
	ex->read_src_qp = ex_read_src_qp;
	ex->read_wc_flags = ex_read_wc_flags;
	ex->read_slid = ex_read_slid;
	ex->read_sl = ex_read_sl;
	ex->read_dlid_path_bits = ex_read_dlid_path_bits;
	return ex;
}
