/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The send queue. A work request is executed in the call that posts it, unless it must wait for a receive at the other
 * side, for the other side to be ready, or for an earlier work request. Then it is copied into the queue, and tried
 * again when the owner polls, when the peer kicks, or when its time is over.
 */
#include "softverbs/softverbs.h"

#define NEVER             UINT64_MAX
#define RNR_RECHECK_NS    100000000ull /* with endless retries, in case a kick is lost with a dying peer */
#define ATTACH_NS         5000000000ull
#define ACK_TIMEOUT_NS(t) (4096ull << (t))

/* InfiniBand table 46, in units of 10 us. */
static const uint32_t g_rnr_timer_10us[32] = {65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
					      48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
					      2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

/* The properties of opcodes. */
static const struct {
	bool allowed;
	bool can_inline;
	enum ibv_wc_opcode wc_opcode;
} g_ops[] = {
	[IBV_WR_RDMA_WRITE] = {true, true, IBV_WC_RDMA_WRITE},
	[IBV_WR_RDMA_WRITE_WITH_IMM] = {true, true, IBV_WC_RDMA_WRITE},
	[IBV_WR_SEND] = {true, true, IBV_WC_SEND},
	[IBV_WR_SEND_WITH_IMM] = {true, true, IBV_WC_SEND},
	[IBV_WR_RDMA_READ] = {true, false, IBV_WC_RDMA_READ},
	[IBV_WR_ATOMIC_CMP_AND_SWP] = {true, false, IBV_WC_COMP_SWAP},
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = {true, false, IBV_WC_FETCH_ADD},
	[IBV_WR_LOCAL_INV] = {true, false, IBV_WC_LOCAL_INV},
	[IBV_WR_BIND_MW] = {true, false, IBV_WC_BIND_MW},
	[IBV_WR_SEND_WITH_INV] = {true, true, IBV_WC_SEND},
};

/* A copy of a work request that waits, with its scatter list and its inline data behind it. */
struct waiting {
	struct sv_op op;
	struct ibv_sge sge[];
};

static struct waiting *waiting_at(const struct sv_qp *qp, uint32_t position)
{
	return (struct waiting *)(qp->sq + (size_t)(position & qp->sq_mask) * qp->sq_stride);
}

size_t sv_send_stride(const struct ibv_qp_cap *cap)
{
	size_t size = sizeof(struct waiting) + cap->max_send_sge * sizeof(struct ibv_sge) + cap->max_inline_data;

	return (size + 63) & ~(size_t)63;
}

static uint64_t inline_length(const struct ibv_send_wr *wr)
{
	uint64_t n = 0;

	for (int i = 0; i < wr->num_sge; i++) {
		n += wr->sg_list[i].length;
	}
	return n;
}

static int check_wr(const struct sv_qp *qp, const struct ibv_send_wr *wr)
{
	if (wr->opcode >= ARRAY_SIZE(g_ops) || !g_ops[wr->opcode].allowed || wr->num_sge < 0 ||
	    (uint32_t)wr->num_sge > qp->cap.max_send_sge) {
		return EINVAL;
	}
	if ((wr->send_flags & IBV_SEND_INLINE) != 0 &&
	    (!g_ops[wr->opcode].can_inline || inline_length(wr) > qp->cap.max_inline_data)) {
		return EINVAL;
	}
	if (qp->sq_posted - atomic_load_explicit(&qp->sq_retired, memory_order_acquire) >= qp->cap.max_send_wr) {
		return ENOMEM;
	}
	return 0;
}

static void op_from_wr(struct sv_op *op, const struct ibv_send_wr *wr, uint32_t position)
{
	*op = (struct sv_op){
		.wr_id = wr->wr_id,
		.opcode = wr->opcode,
		.flags = wr->send_flags,
		.imm = wr->imm_data, /* or the key to invalidate */
		.sge = wr->sg_list,
		.num_sge = (uint32_t)wr->num_sge,
		.position = position,
	};
	switch (wr->opcode) {
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		op->remote_addr = wr->wr.atomic.remote_addr;
		op->rkey = wr->wr.atomic.rkey;
		op->compare_add = wr->wr.atomic.compare_add;
		op->swap = wr->wr.atomic.swap;
		break;
	case IBV_WR_BIND_MW:
		op->mw = wr->bind_mw.mw;
		op->rkey = wr->bind_mw.rkey;
		op->bind = wr->bind_mw.bind_info;
		break;
	default:
		op->remote_addr = wr->wr.rdma.remote_addr;
		op->rkey = wr->wr.rdma.rkey;
		break;
	}
}

/* Copies a work request, whose structure, list and inline data the caller may change after the call. */
static void send_enqueue(struct sv_qp *qp, const struct sv_op *op)
{
	struct waiting *w = waiting_at(qp, op->position);
	uint8_t *data = (uint8_t *)(w->sge + qp->cap.max_send_sge);

	w->op = *op;
	w->op.sge = w->sge;
	memcpy(w->sge, op->sge, op->num_sge * sizeof(*op->sge));
	if ((op->flags & IBV_SEND_INLINE) == 0) {
		return;
	}
	for (uint32_t i = 0; i < op->num_sge; i++) {
		memcpy(data, (const void *)(uintptr_t)op->sge[i].addr, op->sge[i].length);
		w->sge[i].addr = (uintptr_t)data;
		data += op->sge[i].length;
	}
}

static void send_complete(struct sv_qp *qp, const struct sv_op *op, uint32_t status, uint32_t byte_len)
{
	if (status == IBV_WC_SUCCESS && !qp->sq_sig_all && (op->flags & IBV_SEND_SIGNALED) == 0) {
		return;
	}
	sv_cq_push(sv_cq(qp->ex.qp_base.send_cq),
		   &(struct sv_cqe){.qp = qp,
				    .wr_id = op->wr_id,
				    .status = status,
				    .opcode = g_ops[op->opcode].wc_opcode,
				    .byte_len = byte_len,
				    .position = op->position},
		   false);
}

static uint64_t rnr_wait_ns(const struct sv_qp *qp)
{
	uint32_t code = qp->rem.peer != NULL ? atomic_load(&qp->rem.qp->min_rnr_timer) & 31 : 0;

	return qp->attr.rnr_retry == 7 ? RNR_RECHECK_NS : g_rnr_timer_10us[code] * 10000ull;
}

static uint64_t peer_wait_ns(const struct sv_qp *qp)
{
	uint64_t wait = ACK_TIMEOUT_NS(qp->attr.timeout) * (qp->attr.retry_cnt + 1u);

	/* Not attached: both control threads must run first, which has no equal in a network, and takes long on a busy
	 * machine. So it waits longer; a peer that dies meanwhile is noticed at once. */
	return qp->rem.peer == NULL && wait < ATTACH_NS ? ATTACH_NS : wait;
}

static void send_unblock(struct sv_qp *qp)
{
	if (qp->blocked != SV_BLOCK_NONE) {
		qp->blocked = SV_BLOCK_NONE;
		atomic_fetch_sub(&sv_cq(qp->ex.qp_base.send_cq)->blocked, 1);
	}
}

/* The head of the queue must wait, for the first time or again. Returns a status other than success if it has waited
 * long enough. */
static int send_block(struct sv_qp *qp, enum sv_block reason)
{
	uint64_t now = sv_now_ns();

	if (reason == SV_BLOCK_PEER && qp->peer_died) {
		return IBV_WC_RETRY_EXC_ERR;
	}
	if (qp->blocked != reason) {
		if (reason == SV_BLOCK_RNR && qp->attr.rnr_retry == 0) {
			return IBV_WC_RNR_RETRY_EXC_ERR;
		}
		if (qp->blocked == SV_BLOCK_NONE) {
			atomic_fetch_add(&sv_cq(qp->ex.qp_base.send_cq)->blocked, 1);
		}
		qp->blocked = reason;
		qp->rnr_left = qp->attr.rnr_retry;
		if (reason == SV_BLOCK_RNR) {
			qp->deadline_ns = now + rnr_wait_ns(qp);
		} else {
			qp->deadline_ns = qp->attr.timeout == 0 ? NEVER : now + peer_wait_ns(qp);
		}
		sv_kick_self(); /* the control thread watches the deadline */
		return IBV_WC_SUCCESS;
	}
	if (now < qp->deadline_ns) {
		return IBV_WC_SUCCESS;
	}
	if (reason == SV_BLOCK_PEER) {
		return IBV_WC_RETRY_EXC_ERR;
	}
	if (qp->attr.rnr_retry != 7 && --qp->rnr_left == 0) {
		return IBV_WC_RNR_RETRY_EXC_ERR;
	}
	qp->deadline_ns = now + rnr_wait_ns(qp);
	return IBV_WC_SUCCESS;
}

/* Executes one. True: it has ended, with success or not; false: it waits. */
static bool send_execute(struct sv_qp *qp, const struct sv_op *op)
{
	uint32_t byte_len = 0;
	int status = sv_exec(qp, op, &byte_len);

	if (status < 0) {
		status = send_block(qp, (enum sv_block)status);
		if (status == IBV_WC_SUCCESS) {
			return false;
		}
	}
	send_unblock(qp);
	qp->sq_exec = op->position + 1;
	send_complete(qp, op, (uint32_t)status, byte_len);
	if (status != IBV_WC_SUCCESS) {
		sv_qp_fail(qp, IBV_WC_WR_FLUSH_ERR);
	}
	return true;
}

/* In SQD only work requests that were posted before are executed (InfiniBand 10.3.1.5). */
static bool may_execute(const struct sv_qp *qp)
{
	enum ibv_qp_state state = sv_qp_state(qp);

	return !qp->failed && (state == IBV_QPS_RTS || (state == IBV_QPS_SQD && qp->sq_exec != qp->drain_end));
}

static void report_drained(struct sv_qp *qp)
{
	if (sv_qp_state(qp) == IBV_QPS_SQD && !qp->drained && qp->sq_exec == qp->drain_end) {
		qp->drained = true;
		if (qp->attr.en_sqd_async_notify != 0) {
			sv_async_raise(qp->ex.qp_base.context, IBV_EVENT_SQ_DRAINED, qp);
		}
	}
}

void sv_send_progress(struct sv_qp *qp)
{
	while (qp->sq_exec != qp->sq_posted && may_execute(qp) && send_execute(qp, &waiting_at(qp, qp->sq_exec)->op)) {
	}
	report_drained(qp);
}

void sv_send_flush(struct sv_qp *qp, enum ibv_wc_status status)
{
	send_unblock(qp);
	for (; qp->sq_exec != qp->sq_posted; qp->sq_exec++) {
		send_complete(qp, &waiting_at(qp, qp->sq_exec)->op, status, 0);
		status = IBV_WC_WR_FLUSH_ERR;
	}
}

void sv_send_forget(struct sv_qp *qp)
{
	send_unblock(qp);
	qp->sq_exec = qp->sq_posted;
}

static void send_post_one(struct sv_qp *qp, const struct ibv_send_wr *wr)
{
	struct sv_op op;

	op_from_wr(&op, wr, qp->sq_posted);
	if (qp->failed) {
		qp->sq_posted++;
		qp->sq_exec = qp->sq_posted;
		send_complete(qp, &op, IBV_WC_WR_FLUSH_ERR, 0);
		return;
	}
	if (qp->sq_exec == qp->sq_posted && may_execute(qp)) {
		qp->sq_posted++;
		if (send_execute(qp, &op)) {
			return;
		}
		send_enqueue(qp, &op);
		return;
	}
	send_enqueue(qp, &op);
	qp->sq_posted++;
}

int sv_post_send_locked(struct sv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	enum ibv_qp_state state = sv_qp_state(qp);
	int rc = state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_ERR ? 0 : EINVAL;

	while (wr != NULL && rc == 0) {
		rc = check_wr(qp, wr);
		if (rc == 0) {
			send_post_one(qp, wr);
			wr = wr->next;
		}
	}
	if (rc != 0) {
		*bad_wr = wr;
	}
	return rc;
}

int sv_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct sv_qp *qp = sv_qp(ibv);
	int rc;

	pthread_mutex_lock(&qp->lock);
	rc = sv_post_send_locked(qp, wr, bad_wr);
	pthread_mutex_unlock(&qp->lock);
	return rc;
}
