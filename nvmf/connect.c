/* SPDX-License-Identifier: BSD-3-Clause */
/* Connect (Base 6.3): decides which hosts may connect. decode_fabrics.c decodes the command; this file checks its
 * parameters against the target. Control thread, except for the last step. */
#include <stdlib.h>
#include <string.h>
#include "nvmf/command_internal.h"
#include "nvmf/internal.h"

/* Whether the bad parameter is in the command or in its data. */
enum { IN_COMMAND = 0, IN_DATA = 1 };

#define IPO_QID     offsetof(struct nvmf_connect_sqe, qid)
#define IPO_SQSIZE  offsetof(struct nvmf_connect_sqe, sqsize)
#define IPO_HOSTID  offsetof(struct nvmf_connect_data, hostid)
#define IPO_CNTLID  offsetof(struct nvmf_connect_data, cntlid)
#define IPO_SUBNQN  offsetof(struct nvmf_connect_data, subsysnqn)
#define IPO_HOSTNQN offsetof(struct nvmf_connect_data, hostnqn)

static uint16_t connect_invalid(struct nvmf_connect_fault *fault, uint8_t iattr, size_t ipo)
{
	fault->iattr = iattr;
	fault->ipo = (uint16_t)ipo;
	return NVME_ST_DNR(CMD_SPECIFIC, CONNECT_INVALID_PARAM);
}

/* ---- Controller ids ---- */

/* The next free controller id; 0: there is none. An id that becomes free is used again as late as possible, so that a
 * host that returns after a break does not find its old id in use by another host. */
static uint16_t connect_next_free_cntlid(struct nvmf_subsystem *s)
{
	uint32_t range = s->max_cntlid - s->min_cntlid + UINT32_C(1);

	for (uint32_t i = 0; i < range; i++) {
		uint16_t cntlid = s->next_cntlid;
		s->next_cntlid = cntlid == s->max_cntlid ? s->min_cntlid : (uint16_t)(cntlid + 1);
		if (nvmf_ctrlr_find(s, cntlid) == NULL) {
			return cntlid;
		}
	}
	return 0;
}

static uint16_t connect_pick_static_cntlid(struct nvmf_subsystem *s, uint16_t wanted, uint16_t *cntlid,
					   struct nvmf_connect_fault *fault)
{
	if (wanted == NVMF_CNTLID_STATIC_ANY) {
		*cntlid = connect_next_free_cntlid(s);
		return *cntlid != 0 ? NVME_ST_SUCCESS : NVME_ST(CMD_SPECIFIC, CONNECT_CTRL_BUSY);
	}
	if (wanted < s->min_cntlid || wanted > s->max_cntlid) {
		return connect_invalid(fault, IN_DATA, IPO_CNTLID);
	}
	*cntlid = wanted;
	return nvmf_ctrlr_find(s, wanted) == NULL ? NVME_ST_SUCCESS : NVME_ST(CMD_SPECIFIC, CONNECT_CTRL_BUSY);
}

static uint16_t connect_pick_cntlid(struct nvmf_subsystem *s, uint16_t wanted, uint16_t *cntlid,
				    struct nvmf_connect_fault *fault)
{
	if (s->static_ctrlrs) {
		return connect_pick_static_cntlid(s, wanted, cntlid, fault);
	}
	if (wanted != NVMF_CNTLID_DYNAMIC) {
		return connect_invalid(fault, IN_DATA, IPO_CNTLID);
	}
	*cntlid = connect_next_free_cntlid(s);
	return *cntlid != 0 ? NVME_ST_SUCCESS : NVME_ST(CMD_SPECIFIC, CONNECT_CTRL_BUSY);
}

/* ---- Admin queues and I/O queues ---- */

static uint16_t connect_admin(struct nvmf_subsystem *s, struct nvmf_qpair *qpair, const struct nvmf_connect *c,
			      struct nvmf_connect_fault *fault)
{
	uint16_t cntlid;

	if (c->sqsize > qpair->transport->opts.max_aq_depth) {
		return connect_invalid(fault, IN_COMMAND, IPO_SQSIZE);
	}
	uint16_t status = connect_pick_cntlid(s, c->cntlid, &cntlid, fault);
	if (status != NVME_ST_SUCCESS) {
		return status;
	}
	struct nvmf_ctrlr *ctrlr = nvmf_ctrlr_create(s, qpair, c, cntlid);
	if (ctrlr == NULL) {
		log_limited(LOG_LEVEL_WARNING, "%s from %s cannot connect to %s: no memory for a controller",
			    c->hostnqn, qpair->peer_address.traddr, s->nqn);
		return NVME_ST(CMD_SPECIFIC, CONNECT_CTRL_BUSY);
	}
	nvmf_notice(NVMF_NOTICE_HOST_CONNECT, NULL, "%s %s %u", s->nqn, c->hostnqn, cntlid);
	log_limited(LOG_LEVEL_NOTICE, "%s from %s connects to %s: controller %u", c->hostnqn,
		    qpair->peer_address.traddr, s->nqn, cntlid);
	return NVME_ST_SUCCESS;
}

static bool connect_qid_in_use(const struct nvmf_ctrlr *ctrlr, uint16_t qid)
{
	const struct nvmf_qpair *qpair;

	TAILQ_FOREACH (qpair, &ctrlr->qpairs, ctrlr_link) {
		if (qpair->ctl_qid == qid) {
			return true;
		}
	}
	return false;
}

static uint16_t connect_io(struct nvmf_subsystem *s, struct nvmf_qpair *qpair, const struct nvmf_connect *c,
			   struct nvmf_connect_fault *fault)
{
	struct nvmf_ctrlr *ctrlr = nvmf_ctrlr_find(s, c->cntlid);

	if (ctrlr == NULL || ctrlr->transport != qpair->transport || ctrlr->state == NVMF_CTRLR_DESTROYING) {
		return connect_invalid(fault, IN_DATA, IPO_CNTLID);
	}
	if (strcmp(ctrlr->hostnqn, c->hostnqn) != 0) {
		return connect_invalid(fault, IN_DATA, IPO_HOSTNQN);
	}
	if (memcmp(ctrlr->hostid, c->hostid, sizeof(c->hostid)) != 0) {
		return connect_invalid(fault, IN_DATA, IPO_HOSTID);
	}
	if (c->qid > ctrlr->max_io_qpairs) {
		return connect_invalid(fault, IN_COMMAND, IPO_QID);
	}
	if (c->sqsize > qpair->transport->opts.max_queue_depth) {
		return connect_invalid(fault, IN_COMMAND, IPO_SQSIZE);
	}
	if (ctrlr->state != NVMF_CTRLR_READY || connect_qid_in_use(ctrlr, c->qid)) {
		return NVME_ST(GENERIC, CMD_SEQ_ERROR);
	}
	nvmf_ctrlr_link_qpair(ctrlr, qpair, c->qid);
	return NVME_ST_SUCCESS;
}

/* To a host, a subsystem that does not listen on the host's address does not exist. */
static uint16_t connect_admit(struct nvmf_qpair *qpair, const struct nvmf_connect *c, struct nvmf_connect_fault *fault)
{
	struct nvmf_subsystem *s = nvmf_subsystem_find(qpair->transport->tgt, c->subnqn);

	if (s == NULL || !nvmf_subsystem_reachable(s, &qpair->listen_address)) {
		return connect_invalid(fault, IN_DATA, IPO_SUBNQN);
	}
	if (!nvmf_subsystem_host_allowed(s, c->hostnqn)) {
		log_limited(LOG_LEVEL_WARNING, "%s is not allowed to connect to %s", c->hostnqn, s->nqn);
		nvmf_notice_refused(NVMF_NOTICE_HOST_REFUSED, s->nqn, c->hostnqn,
				    "it is not among the subsystem's hosts");
		return NVME_ST_DNR(CMD_SPECIFIC, CONNECT_INVALID_HOST);
	}
	if (!s->connectable) {
		return NVME_ST(CMD_SPECIFIC, CONNECT_CTRL_BUSY);
	}
	if (nvmf_auth_required(s, c->hostnqn) && nvmf_auth_create(qpair) != 0) {
		return NVME_ST(CMD_SPECIFIC, CONNECT_CTRL_BUSY);
	}
	return c->qid == 0 ? connect_admin(s, qpair, c, fault) : connect_io(s, qpair, c, fault);
}

/* ---- */

/* Group: copies to the queue pair what Connect has set on the control thread, and finishes the command. */
static void connect_finish_on_group(struct thread_msg *msg)
{
	struct nvmf_request *req = container_of(msg, struct nvmf_request, msg);
	struct nvmf_qpair *qpair = req->qpair;
	const struct nvmf_connect_sqe *sqe = (const void *)req->sqe;
	uint16_t status = req->answer_status;

	if (status == NVME_ST_SUCCESS && qpair->state == NVMF_QPAIR_CONNECTING) {
		qpair->ctrlr = qpair->ctl_ctrlr;
		strcpy(qpair->hostnqn, qpair->ctrlr->hostnqn);
		qpair->view = qpair->group->views[qpair->ctl_ctrlr->subsystem->index];
		qpair->qid = le16toh(sqe->qid);
		qpair->sq_size = (uint16_t)(le16toh(sqe->sqsize) + 1);
		qpair->sq_flow_control = (sqe->cattr & NVMF_CATTR_DISABLE_SQ_FLOW) == 0;
		qpair->sq_head = 1;
		nvmf_qpair_connected(qpair);
	}
	nvmf_request_finish(req, status);
}

/* Sets dword 0 of the response, which also tells a host that it has to authenticate. */
static void connect_accept(struct nvmf_request *req)
{
	struct nvmf_qpair *qpair = req->qpair;
	uint32_t authreq = 0;

	if (qpair->auth != NULL) {
		qpair->auth_required = true;
		authreq = NVMF_AUTHREQ_ATR;
		nvmf_auth_begin(qpair);
	}
	req->cqe.dw0 = htole32(qpair->ctl_ctrlr->cntlid | authreq << 16);
}

static void connect_set_fault(struct nvmf_request *req, const struct nvmf_connect_fault *fault)
{
	req->cqe.dw0 = htole32(fault->ipo | (uint32_t)fault->iattr << 16);
	req->error_location = fault->iattr == IN_COMMAND ? fault->ipo : NVMF_WHERE_NOWHERE;
}

void nvmf_connect_run(struct nvmf_request *req)
{
	struct nvmf_qpair *qpair = req->qpair;
	struct nvmf_connect_fault fault = {0};
	struct nvmf_connect_data data;
	struct nvmf_connect c;
	size_t len = nvmf_request_copy_data(req, &data, sizeof(data));
	uint16_t status = NVME_ST_DNR(GENERIC, CMD_SEQ_ERROR);

	/* A host may send a second Connect before the first is answered. */
	if (!qpair->linked) {
		status = nvmf_decode_connect((const void *)req->sqe, &data, len, &c, &fault);
		if (status == NVME_ST_SUCCESS) {
			status = connect_admit(qpair, &c, &fault);
			if (status != NVME_ST_SUCCESS) {
				nvmf_auth_destroy(qpair);
			}
		}
	}
	if (status == NVME_ST_SUCCESS) {
		connect_accept(req);
	} else if (fault.ipo != 0 || fault.iattr != 0) {
		connect_set_fault(req, &fault);
	}
	req->answer_status = status;
	thread_post(qpair->group->thread, &req->msg, connect_finish_on_group);
}
