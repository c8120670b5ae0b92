/* SPDX-License-Identifier: BSD-3-Clause */
/* The states of a queue pair: which transition may carry which attributes (InfiniBand 11.2.5.2, tables for RC). */
#include <time.h>

#include "softverbs/softverbs.h"

#define ATTACH_WAIT_S 1

#define PATH_OPT (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE)
#define RTS_OPT  (IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | PATH_OPT)

struct transition {
	bool legal;
	int required;
	int optional;
};

/* clang-format off */
static const struct transition g_transitions[IBV_QPS_ERR + 1][IBV_QPS_ERR + 1] = {
	[IBV_QPS_RESET] = {
		[IBV_QPS_RESET] = {true, 0, 0},
		[IBV_QPS_INIT] = {true, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
		[IBV_QPS_ERR] = {true, 0, 0},
	},
	[IBV_QPS_INIT] = {
		[IBV_QPS_RESET] = {true, 0, 0},
		[IBV_QPS_INIT] = {true, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
		[IBV_QPS_RTR] = {true,
				 IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
				 IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
		[IBV_QPS_ERR] = {true, 0, 0},
	},
	[IBV_QPS_RTR] = {
		[IBV_QPS_RESET] = {true, 0, 0},
		[IBV_QPS_RTS] = {true,
				 IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					 IBV_QP_MAX_QP_RD_ATOMIC,
				 RTS_OPT},
		[IBV_QPS_ERR] = {true, 0, 0},
	},
	[IBV_QPS_RTS] = {
		[IBV_QPS_RESET] = {true, 0, 0},
		[IBV_QPS_RTS] = {true, 0, RTS_OPT},
		[IBV_QPS_SQD] = {true, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
		[IBV_QPS_ERR] = {true, 0, 0},
	},
	[IBV_QPS_SQD] = {
		[IBV_QPS_RESET] = {true, 0, 0},
		[IBV_QPS_RTS] = {true, 0, RTS_OPT},
		[IBV_QPS_SQD] = {true, 0,
				 RTS_OPT | IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					 IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC |
					 IBV_QP_PKEY_INDEX},
		[IBV_QPS_ERR] = {true, 0, 0},
	},
	[IBV_QPS_SQE] = {
		[IBV_QPS_RESET] = {true, 0, 0},
		[IBV_QPS_ERR] = {true, 0, 0},
	},
	[IBV_QPS_ERR] = {
		[IBV_QPS_RESET] = {true, 0, 0},
		[IBV_QPS_ERR] = {true, 0, 0},
	},
};
/* clang-format on */

bool sv_qp_transition_ok(enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
	const struct transition *t;

	if (from > IBV_QPS_ERR || to > IBV_QPS_ERR) {
		return false;
	}
	t = &g_transitions[from][to];
	return t->legal && (mask & t->required) == t->required &&
	       (mask & ~(t->required | t->optional | IBV_QP_STATE)) == 0;
}

/* Checks the ranges of the attributes that the mask names. */
static bool values_ok(const struct ibv_qp_attr *a, int mask)
{
	const unsigned int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				    IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_OPTIONAL_RANGE;

	return !((mask & IBV_QP_PORT) != 0 && a->port_num != 1) &&
	       !((mask & IBV_QP_PKEY_INDEX) != 0 && a->pkey_index != 0) &&
	       !((mask & IBV_QP_ACCESS_FLAGS) != 0 && (a->qp_access_flags & ~access) != 0) &&
	       !((mask & IBV_QP_PATH_MTU) != 0 && (a->path_mtu < IBV_MTU_256 || a->path_mtu > IBV_MTU_4096)) &&
	       !((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0 && a->max_rd_atomic > SV_MAX_RD_ATOM) &&
	       !((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0 && a->max_dest_rd_atomic > SV_MAX_RD_ATOM) &&
	       !((mask & IBV_QP_MIN_RNR_TIMER) != 0 && a->min_rnr_timer > 31) &&
	       !((mask & IBV_QP_TIMEOUT) != 0 && a->timeout > 31) &&
	       !((mask & IBV_QP_RETRY_CNT) != 0 && a->retry_cnt > 7) &&
	       !((mask & IBV_QP_RNR_RETRY) != 0 && a->rnr_retry > 7) &&
	       !((mask & IBV_QP_ALT_PATH) != 0) && /* no path migration */
	       !((mask & IBV_QP_PATH_MIG_STATE) != 0 && a->path_mig_state != IBV_MIG_MIGRATED);
}

static bool path_ok(struct ibv_context *context, const struct ibv_qp_attr *a, int mask)
{
	struct ibv_gid_entry entry;

	if ((mask & IBV_QP_AV) == 0) {
		return true;
	}
	if (a->ah_attr.port_num != 1 && a->ah_attr.port_num != 0) {
		return false;
	}
	return a->ah_attr.is_global == 0 ||
	       _ibv_query_gid_ex(context, 1, a->ah_attr.grh.sgid_index, &entry, 0, sizeof(entry)) == 0;
}

/* Stores the attributes that the mask names. */
static void store_attributes(struct sv_qp *qp, const struct ibv_qp_attr *a, int mask)
{
	struct ibv_qp_attr *to = &qp->attr;

#define TAKE(bit, field)                                                                                               \
	do {                                                                                                           \
		if ((mask & (bit)) != 0) {                                                                             \
			to->field = a->field;                                                                          \
		}                                                                                                      \
	} while (0)
	TAKE(IBV_QP_EN_SQD_ASYNC_NOTIFY, en_sqd_async_notify);
	TAKE(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	TAKE(IBV_QP_PKEY_INDEX, pkey_index);
	TAKE(IBV_QP_PORT, port_num);
	TAKE(IBV_QP_AV, ah_attr);
	TAKE(IBV_QP_PATH_MTU, path_mtu);
	TAKE(IBV_QP_TIMEOUT, timeout);
	TAKE(IBV_QP_RETRY_CNT, retry_cnt);
	TAKE(IBV_QP_RNR_RETRY, rnr_retry);
	TAKE(IBV_QP_RQ_PSN, rq_psn);
	TAKE(IBV_QP_SQ_PSN, sq_psn);
	TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	TAKE(IBV_QP_DEST_QPN, dest_qp_num);
#undef TAKE
	to->rq_psn &= 0xffffff;
	to->sq_psn &= 0xffffff;
	to->dest_qp_num &= 0xffffff;
	atomic_store(&qp->shm->access, to->qp_access_flags);
	atomic_store(&qp->shm->dest_qpn, to->dest_qp_num);
	atomic_store(&qp->shm->rq_psn, to->rq_psn);
	atomic_store(&qp->shm->min_rnr_timer, to->min_rnr_timer);
	atomic_store(&qp->shm->max_dest_rd_atomic, to->max_dest_rd_atomic);
}

static int enter_reset(struct sv_qp *qp)
{
	uint32_t gen = qp->gen;

	atomic_store(&qp->state, IBV_QPS_RESET);
	atomic_store(&qp->shm->state, IBV_QPS_RESET);
	if (!sv_qp_lock_out(qp, gen + 2)) {
		return EBUSY;
	}
	sv_peer_detach(qp);
	sv_send_forget(qp);
	sv_cq_purge(sv_cq(qp->ex.qp_base.send_cq), qp);
	sv_cq_purge(sv_cq(qp->ex.qp_base.recv_cq), qp);
	if (qp->ex.qp_base.srq != NULL) {
		sv_srq_reclaim((struct sv_srq *)qp->ex.qp_base.srq, qp, false);
	}
	pthread_mutex_lock(&qp->rq_lock);
	sv_qp_publish(qp, gen + 2);
	pthread_mutex_unlock(&qp->rq_lock);
	return 0;
}

/* Enters a state, after the attributes have been stored. The owner changes the state only here. */
static int enter_state(struct sv_qp *qp, enum ibv_qp_state from, enum ibv_qp_state to)
{
	uint32_t expected = from;

	switch (to) {
	case IBV_QPS_RESET:
		return enter_reset(qp);
	case IBV_QPS_ERR:
		sv_qp_fail(qp, IBV_WC_WR_FLUSH_ERR);
		return 0;
	case IBV_QPS_RTR:
		qp->want_attach = qp->attaching = qp->announce = true;
		break;
	case IBV_QPS_SQD:
		if (from != IBV_QPS_SQD) {
			qp->drain_end = qp->sq_posted;
			qp->drained = false;
		}
		break;
	default:
		break;
	}
	/* A peer may have moved it to ERR meanwhile; then it stays there. */
	atomic_store(&qp->state, to);
	atomic_compare_exchange_strong(&qp->shm->state, &expected, to);
	sv_send_progress(qp);
	if (to == IBV_QPS_RTR) {
		sv_kick_self(); /* the control thread attaches it, and tells a sender that was early */
	}
	return 0;
}

/*
 * A program that has a connection expects to reach the other side's memory even if that side's process is stopped at
 * that moment. Attaching needs the other side's control thread, so this waits, for a limited time, until it has ended,
 * before RTS.
 */
static void wait_attached(struct sv_qp *qp)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += ATTACH_WAIT_S;
	while (qp->attaching && !qp->failed &&
	       pthread_cond_clockwait(&qp->attach_cond, &qp->lock, CLOCK_MONOTONIC, &until) == 0) {
	}
}

SV_EXPORT int ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask)
{
	struct sv_qp *qp = sv_qp(ibv);
	enum ibv_qp_state from, to;
	int rc = EINVAL;

	pthread_mutex_lock(&qp->lock);
	from = sv_qp_state(qp);
	to = (mask & IBV_QP_STATE) != 0 ? attr->qp_state : from;
	if (((mask & IBV_QP_CUR_STATE) == 0 || attr->cur_qp_state == from) && sv_qp_transition_ok(from, to, mask) &&
	    values_ok(attr, mask) && path_ok(ibv->context, attr, mask)) {
		store_attributes(qp, attr, mask);
		rc = enter_state(qp, from, to);
		if (to == IBV_QPS_RTS) {
			wait_attached(qp);
		}
		ibv->state = sv_qp_state(qp);
	}
	pthread_mutex_unlock(&qp->lock);
	return rc;
}

SV_EXPORT int ibv_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	struct sv_qp *qp = sv_qp(ibv);

	pthread_mutex_lock(&qp->lock);
	*attr = qp->attr;
	attr->qp_state = attr->cur_qp_state = ibv->state = sv_qp_state(qp);
	attr->path_mig_state = IBV_MIG_MIGRATED;
	attr->cap = qp->cap;
	attr->sq_draining = attr->qp_state == IBV_QPS_SQD && !qp->drained;
	*init = (struct ibv_qp_init_attr){.qp_context = ibv->qp_context,
					  .send_cq = ibv->send_cq,
					  .recv_cq = ibv->recv_cq,
					  .srq = ibv->srq,
					  .cap = qp->cap,
					  .qp_type = ibv->qp_type,
					  .sq_sig_all = qp->sq_sig_all};
	pthread_mutex_unlock(&qp->lock);
	return 0;
}

SV_EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	return 0;
}

SV_EXPORT int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return ece->vendor_id == 0 ? 0 : EOPNOTSUPP;
}

SV_EXPORT int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	memset(ece, 0, sizeof(*ece));
	return 0;
}
