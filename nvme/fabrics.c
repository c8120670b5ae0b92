/* SPDX-License-Identifier: BSD-3-Clause */
/* Commands that every transport over fabrics needs: Connect, and properties in place of registers. Control thread. */
#include "nvme/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "env_dpdk/env.h"
#include "util/log.h"

struct connect {
	struct nvme_ctrlr *ctrlr;
	void (*done)(void *arg, const struct nvme_cqe *cqe);
	void *arg;
	struct iovec iov;
	struct nvmf_connect_data *data;
	struct nvme_request req; /* last: the transport's room follows */
};

static void connect_cmd_done(struct nvme_request *req, const struct nvme_cqe *cqe)
{
	struct connect *c = req->cb_arg;

	c->done(c->arg, cqe);
	env_dma_free(c->data);
	free(c);
}

static void connect_cmd_fill(struct connect *c, const struct nvme_qpair *qpair)
{
	struct nvme_ctrlr *ctrlr = qpair->ctrlr;
	struct nvmf_connect_sqe *sqe = (struct nvmf_connect_sqe *)&c->req.cmd;

	sqe->opcode = nvme_admin_fabrics;
	sqe->fctype = nvme_fabrics_type_connect;
	sqe->qid = htole16(qpair->id);
	/* 0's based, and a queue of n + 1 entries is full with n commands in it (Base 3.3.1.5) */
	sqe->sqsize = htole16(qpair->entries);
	sqe->cattr = ctrlr->opts.disable_sq_flow_control ? NVMF_CATTR_DISABLE_SQ_FLOW : 0;
	if (qpair->id == 0) {
		sqe->kato = htole32(ctrlr->opts.keep_alive_ms);
	}
	memcpy(c->data->hostid, ctrlr->opts.hostid, sizeof(c->data->hostid));
	c->data->cntlid = htole16(qpair->id == 0 ? NVMF_CNTLID_DYNAMIC : ctrlr->cntlid);
	strcpy((char *)c->data->subsysnqn, ctrlr->trid.subnqn);
	strcpy((char *)c->data->hostnqn, ctrlr->opts.hostnqn);
}

int nvme_fabrics_connect(struct nvme_qpair *qpair, void (*done)(void *arg, const struct nvme_cqe *cqe), void *arg)
{
	struct connect *c = calloc(1, offsetof(struct connect, req) + nvme_request_size());

	if (c == NULL) {
		return -ENOMEM;
	}
	c->data = env_dma_zmalloc(sizeof(*c->data), 0, -1);
	if (c->data == NULL) {
		free(c);
		return -ENOMEM;
	}
	c->ctrlr = qpair->ctrlr;
	c->done = done;
	c->arg = arg;
	c->iov = (struct iovec){.iov_base = c->data, .iov_len = sizeof(*c->data)};
	c->req.iovs = &c->iov;
	c->req.iovcnt = 1;
	c->req.data_len = sizeof(*c->data);
	c->req.to_device = true;
	c->req.cb = connect_cmd_done;
	c->req.cb_arg = c;
	connect_cmd_fill(c, qpair);
	int rc = nvme_qpair_submit(qpair, &c->req);
	if (rc != 0) {
		env_dma_free(c->data);
		free(c);
		return rc;
	}
	nvme_qpair_flush(qpair);
	return 0;
}

uint32_t nvme_capsule_room(const struct nvme_id_ctrl *id)
{
	uint64_t capsule = le32toh(id->ioccsz) * UINT64_C(16);

	if ((le32toh(id->sgls) & NVME_CTRL_SGLS_OFFSET) == 0 || id->icdoff != 0 || capsule <= sizeof(struct nvme_sqe)) {
		return 0;
	}
	capsule -= sizeof(struct nvme_sqe);
	return capsule < UINT32_MAX ? (uint32_t)capsule : UINT32_MAX;
}

struct property {
	struct nvme_ctrlr *ctrlr;
	nvme_reg_fn fn;
	bool wide;
};

static void property_cmd_done(void *arg, const struct nvme_cqe *cqe)
{
	struct property p = *(struct property *)arg;
	uint16_t status = nvme_cqe_status(cqe);
	uint64_t value = le64toh(cqe->result);

	free(arg);
	p.fn(p.ctrlr, status == 0 ? 0 : -EIO, p.wide ? value : (uint32_t)value);
}

static void property_cmd_send(struct nvme_ctrlr *ctrlr, struct nvme_sqe *sqe, unsigned size, nvme_reg_fn fn)
{
	struct property *p = malloc(sizeof(*p));

	if (p == NULL) {
		log_limited(LOG_LEVEL_ERROR, "%s: out of memory to reach a register", ctrlr->trid.traddr);
		fn(ctrlr, -ENOMEM, 0);
		return;
	}
	*p = (struct property){.ctrlr = ctrlr, .fn = fn, .wide = size == 8};
	int rc = nvme_ctrlr_admin(ctrlr, sqe, NULL, 0, false, property_cmd_done, p);
	if (rc != 0) {
		free(p);
		fn(ctrlr, rc, 0);
	}
}

void nvme_reg_read(struct nvme_ctrlr *ctrlr, uint32_t offset, unsigned size, nvme_reg_fn fn)
{
	if (ctrlr->ops->reg_read != NULL) {
		ctrlr->ops->reg_read(ctrlr, offset, size, fn);
		return;
	}
	struct nvmf_property_get_sqe sqe = {
		.opcode = nvme_admin_fabrics,
		.fctype = nvme_fabrics_type_property_get,
		.attrib = size == 8 ? NVMF_PROPERTY_SIZE_8 : NVMF_PROPERTY_SIZE_4,
		.ofst = htole32(offset),
	};
	property_cmd_send(ctrlr, (struct nvme_sqe *)&sqe, size, fn);
}

void nvme_reg_write(struct nvme_ctrlr *ctrlr, uint32_t offset, unsigned size, uint64_t value, nvme_reg_fn fn)
{
	if (ctrlr->ops->reg_write != NULL) {
		ctrlr->ops->reg_write(ctrlr, offset, size, value, fn);
		return;
	}
	struct nvmf_property_set_sqe sqe = {
		.opcode = nvme_admin_fabrics,
		.fctype = nvme_fabrics_type_property_set,
		.attrib = size == 8 ? NVMF_PROPERTY_SIZE_8 : NVMF_PROPERTY_SIZE_4,
		.ofst = htole32(offset),
		.value = htole64(value),
	};
	property_cmd_send(ctrlr, (struct nvme_sqe *)&sqe, size, fn);
}
