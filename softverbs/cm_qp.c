/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue pairs that belong to an identifier, and the completion queues that come with them if the program has none. */
#include <stdlib.h>

#include "softverbs/cm.h"

int sv_cm_qp_to(struct sv_cm_id *id, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};
	int mask = IBV_QP_STATE, rc;

	/* The access rights depend on what was negotiated: they are set once more before RTR. */
	if (state == IBV_QPS_RTR) {
		rc = sv_cm_qp_to(id, IBV_QPS_INIT);
		if (rc != 0) {
			return rc;
		}
	}
	rdma_init_qp_attr(&id->rdma, &attr, &mask);
	return ibv_modify_qp(id->rdma.qp, &attr, mask);
}

static void destroy_cqs(struct rdma_cm_id *id)
{
	bool shared = id->recv_cq == id->send_cq;

	if (id->recv_cq != NULL) {
		ibv_destroy_cq(id->recv_cq);
	}
	if (id->recv_cq_channel != NULL) {
		ibv_destroy_comp_channel(id->recv_cq_channel);
	}
	if (id->send_cq != NULL && !shared) {
		ibv_destroy_cq(id->send_cq);
	}
	if (id->send_cq_channel != NULL && id->send_cq_channel != id->recv_cq_channel) {
		ibv_destroy_comp_channel(id->send_cq_channel);
	}
	id->recv_cq = id->send_cq = NULL;
	id->recv_cq_channel = id->send_cq_channel = NULL;
}

static struct ibv_cq *create_cq(struct rdma_cm_id *id, uint32_t size, struct ibv_comp_channel **channel)
{
	*channel = ibv_create_comp_channel(id->verbs);
	return *channel == NULL ? NULL : ibv_create_cq(id->verbs, (int)(size == 0 ? 1 : size), id, *channel, 0);
}

static int fill_cqs(struct rdma_cm_id *id, struct ibv_qp_init_attr *attr)
{
	if (attr->recv_cq == NULL) {
		id->recv_cq = create_cq(id, attr->cap.max_recv_wr, &id->recv_cq_channel);
		attr->recv_cq = id->recv_cq;
	}
	if (attr->send_cq == NULL) {
		id->send_cq = create_cq(id, attr->cap.max_send_wr, &id->send_cq_channel);
		attr->send_cq = id->send_cq;
	}
	if (attr->recv_cq == NULL || attr->send_cq == NULL) {
		destroy_cqs(id);
		return -1;
	}
	return 0;
}

static int qp_init_state(struct sv_cm_id *id)
{
	int rc = sv_cm_qp_to(id, IBV_QPS_INIT);

	if (rc != 0) {
		ibv_destroy_qp(id->rdma.qp);
		id->rdma.qp = NULL;
		errno = rc;
		return -1;
	}
	return 0;
}

SV_EXPORT int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	if (id->qp != NULL || id->verbs == NULL || attr->qp_type != id->qp_type) {
		errno = EINVAL;
		return -1;
	}
	if ((attr->comp_mask & IBV_QP_INIT_ATTR_PD) == 0) {
		attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
		attr->pd = id->pd != NULL ? id->pd : sv_cm_default_pd();
	}
	if (attr->pd == NULL) {
		errno = ENODEV;
		return -1;
	}
	if (id->srq != NULL && attr->srq == NULL) {
		attr->srq = id->srq;
	}
	if (fill_cqs(id, (struct ibv_qp_init_attr *)attr) != 0) {
		return -1;
	}
	id->qp = ibv_create_qp_ex(id->verbs, attr);
	if (id->qp == NULL || qp_init_state(sv_cm_id(id)) != 0) {
		int error = errno;

		destroy_cqs(id);
		errno = error;
		return -1;
	}
	id->pd = attr->pd;
	return 0;
}

SV_EXPORT int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex = {.comp_mask = pd != NULL ? IBV_QP_INIT_ATTR_PD : 0, .pd = pd};
	int rc;

	/* The extended structure begins like the plain one, which has padding in place of the mask. */
	memcpy(&ex, attr, offsetof(struct ibv_qp_init_attr_ex, comp_mask));
	rc = rdma_create_qp_ex(id, &ex);
	memcpy(attr, &ex, offsetof(struct ibv_qp_init_attr_ex, comp_mask));
	return rc;
}

SV_EXPORT void rdma_destroy_qp(struct rdma_cm_id *id)
{
	if (id->qp != NULL) {
		ibv_destroy_qp(id->qp);
		id->qp = NULL;
		destroy_cqs(id);
	}
}

SV_EXPORT int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	if (id->srq != NULL || id->verbs == NULL) {
		errno = EINVAL;
		return -1;
	}
	pd = pd != NULL ? pd : id->pd != NULL ? id->pd : sv_cm_default_pd();
	if (pd == NULL) {
		errno = ENODEV;
		return -1;
	}
	id->srq = ibv_create_srq(pd, attr);
	if (id->srq == NULL) {
		return -1;
	}
	id->pd = pd;
	return 0;
}

SV_EXPORT int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
	if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0 && attr->srq_type != IBV_SRQT_BASIC) {
		errno = EOPNOTSUPP;
		return -1;
	}
	return rdma_create_srq(id, (attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) != 0 ? attr->pd : NULL,
			       (struct ibv_srq_init_attr *)attr);
}

SV_EXPORT void rdma_destroy_srq(struct rdma_cm_id *id)
{
	if (id->srq != NULL) {
		ibv_destroy_srq(id->srq);
		id->srq = NULL;
	}
}

SV_EXPORT int rdma_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	errno = EOPNOTSUPP;
	return -1;
}

SV_EXPORT int rdma_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	memset(ece, 0, sizeof(*ece));
	return 0;
}

SV_EXPORT int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context)
{
	errno = EOPNOTSUPP;
	return -1;
}

SV_EXPORT int rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *attr, void *context)
{
	errno = EOPNOTSUPP;
	return -1;
}

SV_EXPORT int rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *addr)
{
	errno = EOPNOTSUPP;
	return -1;
}
