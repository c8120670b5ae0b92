/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Executes a work request: does the work of both requester and responder in the requester's call. The statuses are
 * those of InfiniBand 11.6.2 (requester) and 9.9.3 (responder).
 */
#include <sched.h>

#include "softverbs/softverbs.h"

#define ATOMIC_LOCK_CHECK_NS 1000000ull /* a holder that takes this long may be dead */
#define ATOMIC_LOCK_STEAL_NS                                                                                           \
	1000000000ull /* a holder that takes this long is treated as dead, although it may only be stopped */

/* A list of ranges of memory, ours or the peer's, ready for sv_copy(). */
struct spans {
	struct sv_span span[SV_MAX_SGE];
	uint32_t count;
	uint64_t total;
};

static void spans_add(struct spans *s, const struct sv_span *range)
{
	s->span[s->count] = *range;
	s->count++;
	s->total += range->length;
}

/* Lists the requester's memory. Keys are checked, except for inline data, which has none. */
static int local_spans(const struct sv_qp *qp, const struct sv_op *op, uint32_t access, struct spans *s)
{
	uint32_t pd = qp->ex.qp_base.pd->handle;

	s->count = 0;
	s->total = 0;
	for (uint32_t i = 0; i < op->num_sge; i++) {
		const struct ibv_sge *e = &op->sge[i];
		struct sv_span where = {.addr = e->addr, .length = e->length};

		if (e->length == 0) {
			continue;
		}
		if ((op->flags & IBV_SEND_INLINE) == 0 &&
		    !sv_key_check(sv.keys, e->lkey, pd, 0, access, e->addr, e->length, &where)) {
			return IBV_WC_LOC_PROT_ERR;
		}
		spans_add(s, &where);
	}
	return s->total > SV_MAX_MSG ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS;
}

/* The receive buffer's ranges for a message of that length; the status is the receiver's. */
static int receive_spans(const struct sv_qp *qp, const struct sv_slot *slot, uint64_t length, struct spans *s)
{
	const struct sv_remote *rem = &qp->rem;
	uint32_t num_sge = slot->num_sge;

	s->count = 0;
	s->total = 0;
	for (uint32_t i = 0; i < num_sge && i < rem->ring.max_sge && s->total < length; i++) {
		struct sv_sge e = slot->sge[i];
		uint64_t n = e.length < length - s->total ? e.length : length - s->total;
		struct sv_span where;

		if (n == 0) {
			continue;
		}
		if (!sv_key_check(rem->keys, e.lkey, rem->pd, 0, IBV_ACCESS_LOCAL_WRITE, e.addr, n, &where)) {
			return IBV_WC_LOC_PROT_ERR;
		}
		spans_add(s, &where);
	}
	return s->total < length ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS;
}

static void spans_gather(uint8_t *to, const struct spans *from)
{
	for (uint32_t i = 0; i < from->count; i++) {
		memcpy(to, (const void *)(uintptr_t)from->span[i].addr, from->span[i].length);
		to += from->span[i].length;
	}
}

/* Fails both sides: the receiver's work request with its status, ours with the status that corresponds to it. */
static int fail_receive(struct sv_qp *qp, struct sv_rcqe *rcqe, int status)
{
	rcqe->status = (uint32_t)status;
	rcqe->flags = 0;
	rcqe->byte_len = 0;
	if (!sv_deliver_publish(qp, rcqe, true)) {
		sv_deliver_fail(qp, SV_QP_EVENT_FATAL);
	} else {
		sv_deliver_fail(qp, 0);
	}
	return status == IBV_WC_LOC_LEN_ERR ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_OP_ERR;
}

/* Fails the responder's queue pair for a request that uses no receive, so that its owner gets only an event. */
static int receiver_refuse(struct sv_qp *qp, int status)
{
	sv_deliver_fail(qp, status == IBV_WC_REM_ACCESS_ERR ? SV_QP_EVENT_ACCESS_ERR : SV_QP_EVENT_REQ_ERR);
	return status;
}

static int receive_publish(struct sv_qp *qp, const struct sv_rcqe *rcqe, const struct sv_op *op)
{
	if (sv_deliver_publish(qp, rcqe, (op->flags & IBV_SEND_SOLICITED) != 0)) {
		return IBV_WC_SUCCESS;
	}
	sv_deliver_fail(qp, SV_QP_EVENT_FATAL);
	return IBV_WC_REM_OP_ERR;
}

static int send_data(struct sv_qp *qp, const struct spans *local, struct sv_slot *slot, struct sv_rcqe *rcqe)
{
	struct spans remote;
	int status = receive_spans(qp, slot, local->total, &remote);

	if (status != IBV_WC_SUCCESS) {
		return fail_receive(qp, rcqe, status);
	}
	if (local->total <= sv_ring_stage_size(&qp->rem.ring)) {
		spans_gather(sv_ring_stage(&qp->rem.ring, slot), local);
		rcqe->flags |= SV_RCQE_STAGED;
		return IBV_WC_SUCCESS;
	}
	switch (sv_copy(&qp->rem, true, local->span, local->count, remote.span, remote.count)) {
	case SV_COPY_LOCAL_FAULT:
		sv_deliver_untake(qp);
		return IBV_WC_LOC_PROT_ERR;
	case SV_COPY_REMOTE_FAULT:
		return fail_receive(qp, rcqe, IBV_WC_LOC_PROT_ERR);
	default:
		return IBV_WC_SUCCESS;
	}
}

static int exec_send(struct sv_qp *qp, const struct sv_op *op, uint32_t *byte_len)
{
	struct sv_rcqe rcqe = {.imm = op->imm};
	struct spans local;
	enum sv_block block;
	int status = local_spans(qp, op, 0, &local);

	if (status != IBV_WC_SUCCESS) {
		return status;
	}
	block = sv_deliver_take(qp, &rcqe.slot);
	if (block != SV_BLOCK_NONE) {
		return block;
	}
	rcqe.byte_len = *byte_len = (uint32_t)local.total;
	rcqe.flags = op->opcode == IBV_WR_SEND_WITH_IMM ? SV_RCQE_IMM : 0;
	status = send_data(qp, &local, sv_ring_slot(&qp->rem.ring, rcqe.slot), &rcqe);
	if (status != IBV_WC_SUCCESS) {
		return status;
	}
	if (op->opcode == IBV_WR_SEND_WITH_INV) {
		if (sv_key_invalidate(qp->rem.keys, op->imm, qp->rem.qp_pd, qp->rem.qpn) != 0) {
			return fail_receive(qp, &rcqe, IBV_WC_LOC_ACCESS_ERR);
		}
		rcqe.flags |= SV_RCQE_INV;
	}
	return receive_publish(qp, &rcqe, op);
}

/* Checks and lists the responder's memory that a one-sided request names. */
static int remote_span(struct sv_qp *qp, const struct sv_op *op, uint32_t access, uint64_t length, struct sv_span *span)
{
	*span = (struct sv_span){.length = length};
	/* InfiniBand 9.7.4.1.5: the queue pair has to allow it, or the request is invalid. */
	if ((atomic_load_explicit(&qp->rem.qp->access, memory_order_relaxed) & access) == 0) {
		return receiver_refuse(qp, IBV_WC_REM_INV_REQ_ERR);
	}
	/* Without data the key does not matter (C9-88). */
	if (length != 0 &&
	    !sv_key_check(qp->rem.keys, op->rkey, qp->rem.qp_pd, qp->rem.qpn, access, op->remote_addr, length, span)) {
		return receiver_refuse(qp, IBV_WC_REM_ACCESS_ERR);
	}
	return IBV_WC_SUCCESS;
}

static int copy_one_sided(struct sv_qp *qp, bool to_remote, const struct spans *local, const struct sv_span *remote)
{
	if (local->total == 0) {
		return IBV_WC_SUCCESS;
	}
	switch (sv_copy(&qp->rem, to_remote, local->span, local->count, remote, 1)) {
	case SV_COPY_LOCAL_FAULT:
		return IBV_WC_LOC_PROT_ERR;
	case SV_COPY_REMOTE_FAULT:
		return receiver_refuse(qp, IBV_WC_REM_ACCESS_ERR);
	default:
		return IBV_WC_SUCCESS;
	}
}

static int exec_write(struct sv_qp *qp, const struct sv_op *op, uint32_t *byte_len)
{
	bool with_imm = op->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	struct sv_rcqe rcqe = {.imm = op->imm, .flags = SV_RCQE_WRITE_IMM | SV_RCQE_IMM};
	struct spans local;
	struct sv_span remote;
	int status = local_spans(qp, op, 0, &local);

	if (status == IBV_WC_SUCCESS) {
		status = remote_span(qp, op, IBV_ACCESS_REMOTE_WRITE, local.total, &remote);
	}
	if (status != IBV_WC_SUCCESS) {
		return status;
	}
	if (with_imm) {
		enum sv_block block = sv_deliver_take(qp, &rcqe.slot);

		if (block != SV_BLOCK_NONE) {
			return block;
		}
	}
	status = copy_one_sided(qp, true, &local, &remote);
	rcqe.byte_len = *byte_len = (uint32_t)local.total;
	if (status != IBV_WC_SUCCESS || !with_imm) {
		return status;
	}
	return receive_publish(qp, &rcqe, op);
}

/* READ and the atomics need responder resources there and initiator depth here. */
static int check_rd_atomic(struct sv_qp *qp)
{
	if (qp->attr.max_rd_atomic == 0) {
		return IBV_WC_LOC_QP_OP_ERR;
	}
	if (atomic_load_explicit(&qp->rem.qp->max_dest_rd_atomic, memory_order_relaxed) == 0) {
		return receiver_refuse(qp, IBV_WC_REM_INV_REQ_ERR);
	}
	return IBV_WC_SUCCESS;
}

static int exec_read(struct sv_qp *qp, const struct sv_op *op, uint32_t *byte_len)
{
	struct spans local;
	struct sv_span remote;
	int status = local_spans(qp, op, IBV_ACCESS_LOCAL_WRITE, &local);

	if (status == IBV_WC_SUCCESS) {
		status = check_rd_atomic(qp);
	}
	if (status == IBV_WC_SUCCESS) {
		status = remote_span(qp, op, IBV_ACCESS_REMOTE_READ, local.total, &remote);
	}
	if (status == IBV_WC_SUCCESS) {
		status = copy_one_sided(qp, false, &local, &remote);
	}
	*byte_len = (uint32_t)local.total;
	return status;
}

/*
 * Atomic operations are atomic with respect to each other, as with IBV_ATOMIC_HCA. The lock is in the owner's arena. It
 * is the only one that processes share, and can be taken over from a process that died, or was stopped, while it held
 * it.
 */
static uint64_t atomic_lock(_Atomic uint64_t *lock)
{
	uint64_t seen = atomic_load(lock), since = 0, mine;

	for (;;) {
		uint64_t now, current;

		mine = ((seen >> 32) + 1) << 32 | sv.slot;
		if ((uint32_t)seen == 0 && atomic_compare_exchange_strong(lock, &seen, mine)) {
			return mine;
		}
		sched_yield();
		now = sv_now_ns();
		current = atomic_load(lock);
		if (current != seen || since == 0) {
			seen = current;
			since = now;
		} else if (now - since > ATOMIC_LOCK_STEAL_NS ||
			   (now - since > ATOMIC_LOCK_CHECK_NS && !sv_slot_alive((uint32_t)seen % SV_MAX_SLOTS))) {
			mine = ((seen >> 32) + 1) << 32 | sv.slot;
			if (atomic_compare_exchange_strong(lock, &seen, mine)) {
				return mine;
			}
		}
	}
}

static void atomic_unlock(_Atomic uint64_t *lock, uint64_t mine)
{
	atomic_compare_exchange_strong(lock, &mine, mine & ~0xffffffffull);
}

static enum sv_copy_result atomic_apply(struct sv_qp *qp, const struct sv_op *op, const struct sv_span *there,
					uint64_t *before)
{
	uint64_t after;
	struct sv_span here = {.addr = (uintptr_t)before, .length = sizeof(*before)};
	enum sv_copy_result result = sv_copy(&qp->rem, false, &here, 1, there, 1);

	if (result != SV_COPY_OK) {
		return result;
	}
	if (op->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		after = *before + op->compare_add;
	} else if (*before == op->compare_add) {
		after = op->swap;
	} else {
		return SV_COPY_OK;
	}
	here.addr = (uintptr_t)&after;
	return sv_copy(&qp->rem, true, &here, 1, there, 1);
}

static int exec_atomic(struct sv_qp *qp, const struct sv_op *op, uint32_t *byte_len)
{
	struct spans local;
	struct sv_span remote;
	uint64_t before, mine;
	enum sv_copy_result result;
	int status = local_spans(qp, op, IBV_ACCESS_LOCAL_WRITE, &local);

	if (status == IBV_WC_SUCCESS && local.total != sizeof(before)) {
		status = IBV_WC_LOC_LEN_ERR;
	}
	if (status == IBV_WC_SUCCESS) {
		status = check_rd_atomic(qp);
	}
	/* InfiniBand 9.4.5: the address is aligned, or the request is invalid. */
	if (status == IBV_WC_SUCCESS && op->remote_addr % sizeof(before) != 0) {
		status = receiver_refuse(qp, IBV_WC_REM_INV_REQ_ERR);
	}
	if (status == IBV_WC_SUCCESS) {
		status = remote_span(qp, op, IBV_ACCESS_REMOTE_ATOMIC, sizeof(before), &remote);
	}
	if (status != IBV_WC_SUCCESS) {
		return status;
	}
	mine = atomic_lock(&qp->rem.arena->atomic_lock);
	result = atomic_apply(qp, op, &remote, &before);
	atomic_unlock(&qp->rem.arena->atomic_lock, mine);
	if (result != SV_COPY_OK) {
		return receiver_refuse(qp, IBV_WC_REM_ACCESS_ERR);
	}
	for (uint32_t i = 0, done = 0; i < local.count; i++) {
		memcpy((void *)(uintptr_t)local.span[i].addr, (uint8_t *)&before + done, local.span[i].length);
		done += (uint32_t)local.span[i].length;
	}
	*byte_len = sizeof(before);
	return IBV_WC_SUCCESS;
}

static int exec_bind(struct sv_qp *qp, const struct sv_op *op, uint32_t *byte_len)
{
	*byte_len = 0;
	return sv_mw_bind(qp, (struct sv_mw *)op->mw, op->rkey, &op->bind);
}

static int exec_local_inv(struct sv_qp *qp, const struct sv_op *op, uint32_t *byte_len)
{
	struct ibv_qp *ibv = &qp->ex.qp_base;

	*byte_len = 0;
	return sv_key_invalidate(sv.keys, op->imm, ibv->pd->handle, ibv->qp_num) == 0 ? IBV_WC_SUCCESS
										      : IBV_WC_LOC_QP_OP_ERR;
}

/*
 * Begins a busy section: while busy is odd, the owner neither frees the rings nor reuses memory of a key. The exchange
 * is sequentially consistent with the owner's stores to gen, state and keys, which the owner makes before it reads
 * busy.
 */
static bool busy_enter(struct sv_remote *rem)
{
	uint64_t idle = rem->busy;

	return atomic_compare_exchange_strong(&rem->qp->busy, &idle, rem->busy | 1);
}

static void busy_leave(struct sv_remote *rem)
{
	/* The sequence stays in the lower half. */
	rem->busy = (rem->busy & ~0xffffffffull) | (uint32_t)(rem->busy + 2);
	atomic_store_explicit(&rem->qp->busy, rem->busy, memory_order_release);
}

/* Whether the connected queue pair would accept packets of this one now. */
static bool receiver_is_ready(struct sv_qp *qp)
{
	struct sv_qp_shm *shm = qp->rem.qp;
	uint32_t state = atomic_load(&shm->state);

	if (atomic_load(&shm->gen) != qp->rem.gen ||
	    atomic_load_explicit(&shm->dest_qpn, memory_order_relaxed) != qp->ex.qp_base.qp_num ||
	    atomic_load_explicit(&shm->rq_psn, memory_order_relaxed) != qp->attr.sq_psn) {
		return false;
	}
	if (state == IBV_QPS_RTR && !qp->rem.est_sent) {
		qp->rem.est_sent = true;
		atomic_fetch_or(&shm->events, SV_QP_EVENT_COMM_EST);
		sv_kick(qp->rem.kick_fd);
	}
	return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE;
}

typedef int (*exec_fn)(struct sv_qp *qp, const struct sv_op *op, uint32_t *byte_len);

static const exec_fn g_remote_ops[] = {
	[IBV_WR_RDMA_WRITE] = exec_write,
	[IBV_WR_RDMA_WRITE_WITH_IMM] = exec_write,
	[IBV_WR_SEND] = exec_send,
	[IBV_WR_SEND_WITH_IMM] = exec_send,
	[IBV_WR_RDMA_READ] = exec_read,
	[IBV_WR_ATOMIC_CMP_AND_SWP] = exec_atomic,
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = exec_atomic,
	[IBV_WR_SEND_WITH_INV] = exec_send,
};

int sv_exec(struct sv_qp *qp, const struct sv_op *op, uint32_t *byte_len)
{
	int status;

	if (op->opcode == IBV_WR_BIND_MW) {
		return exec_bind(qp, op, byte_len);
	}
	if (op->opcode == IBV_WR_LOCAL_INV) {
		return exec_local_inv(qp, op, byte_len);
	}
	if (qp->rem.peer == NULL || !busy_enter(&qp->rem)) {
		return SV_BLOCK_PEER;
	}
	if (receiver_is_ready(qp)) {
		status = g_remote_ops[op->opcode](qp, op, byte_len);
	} else {
		atomic_fetch_or(&qp->rem.qp->want, SV_WANT_READY);
		status = receiver_is_ready(qp) ? g_remote_ops[op->opcode](qp, op, byte_len) : SV_BLOCK_PEER;
	}
	busy_leave(&qp->rem);
	return status;
}
