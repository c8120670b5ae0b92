/* SPDX-License-Identifier: BSD-3-Clause */
#include "unittest/bdev_modules/fabric.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "env_dpdk/env.h"
#include "nvme/transport.h"

#define ENTRIES 31

struct fabric_target fabric_targets[FABRIC_TARGETS];
uint8_t fabric_store[FABRIC_BLOCKS][512];
static pthread_mutex_t fabric_mutex = PTHREAD_MUTEX_INITIALIZER;
static uint16_t last_cntlid;

struct fabric_qpair {
	struct nvme_qpair base;
	struct fabric_target *t;
	struct nvme_cqe answers[ENTRIES + 1];
	uint32_t num;
};

void fabric_lock(void)
{
	pthread_mutex_lock(&fabric_mutex);
}

void fabric_unlock(void)
{
	pthread_mutex_unlock(&fabric_mutex);
}

void fabric_init(void)
{
	memset(fabric_targets, 0, sizeof(fabric_targets));
	memset(fabric_store, 0, sizeof(fabric_store));
	for (unsigned i = 0; i < FABRIC_TARGETS; i++) {
		fabric_targets[i].aer_cid = -1;
	}
	last_cntlid = 0;
}

static void write_carry_out(const struct fabric_write *w)
{
	if (w->opcode == nvme_cmd_write) {
		memcpy(fabric_store[w->lba % FABRIC_BLOCKS], w->data, 512);
	} else {
		memset(fabric_store[w->lba % FABRIC_BLOCKS], 0, 512);
	}
}

void fabric_land(struct fabric_target *t)
{
	fabric_lock();
	for (unsigned i = 0; i < t->num_kept; i++) {
		write_carry_out(&t->kept[i]);
	}
	t->num_kept = 0;
	fabric_unlock();
}

/* --- Admin commands --- */

static uint64_t property(struct fabric_target *t, uint32_t offset)
{
	switch (offset) {
	case NVME_REG_CAP:
		return 63 | UINT64_C(1) << 37; /* MQES, CSS; TO is 0: 500 ms */
	case NVME_REG_VS:
		return 0x20000;
	case NVME_REG_CC:
		return t->cc;
	default:
		return ((t->cc & 1) != 0 || t->busy) | ((t->cc >> 14 & 3) != 0 ? 2 << 2 : 0); /* RDY, SHST */
	}
}

static void cc_write(struct fabric_target *t, uint32_t cc)
{
	if ((t->cc & 1) != 0 && (cc & 1) == 0) {
		t->disabled++;
		t->num_kept = t->busy ? t->num_kept : 0;
	}
	t->cc = cc;
}

static void identify_ctrlr(struct fabric_target *t, uint8_t *data)
{
	struct nvme_id_ctrl *id = (struct nvme_id_ctrl *)data;

	id->nn = htole32(1);
	id->cmic = NVME_CTRL_CMIC_MULTI_CTRL;
	id->oncs = htole16(NVME_CTRL_ONCS_WRITE_ZEROES | NVME_CTRL_ONCS_COMPARE | NVME_CTRL_ONCS_DSM);
	id->fuses = htole16(1);
	id->kas = htole16(1);
	id->vwc = t->cache;
	id->acl = 3;
	id->aerl = 3;
	id->oaes = htole32(t->has_ccr ? NVME_CTRL_OAES_CROSS_CTRL_RESET : 0);
	memcpy(id->sn, "FABRIC0             ", sizeof(id->sn));
	data[NVME_ID_CTRL_CQT] = (uint8_t)t->cqt;
	data[NVME_ID_CTRL_CQT + 1] = (uint8_t)(t->cqt >> 8);
	if (t->has_ccr) {
		uint64_t cirn = htole64(t->cirn);
		data[NVME_ID_CTRL_CIU] = 1;
		memcpy(data + NVME_ID_CTRL_CIRN, &cirn, sizeof(cirn));
		data[NVME_ID_CTRL_CCRL] = 4;
	}
}

static void identify(struct fabric_target *t, const struct nvme_request *req)
{
	uint8_t *data = req->iovs[0].iov_base;

	memset(data, 0, req->data_len);
	switch (le32toh(req->cmd.cdw10)) {
	case NVME_IDENTIFY_CNS_CTRL:
		identify_ctrlr(t, data);
		break;
	case NVME_IDENTIFY_CNS_NS_ACTIVE_LIST:
		data[0] = le32toh(req->cmd.nsid) == 0;
		break;
	case NVME_IDENTIFY_CNS_NS: {
		struct nvme_id_ns *id = (struct nvme_id_ns *)data;
		id->nsze = id->ncap = htole64(FABRIC_BLOCKS);
		id->lbaf[0].ds = 9;
		id->nmic = NVME_NS_NMIC_SHARED;
		id->nguid[0] = 7;
		break;
	}
	default: /* descriptors: the NGUID is all there is */
		break;
	}
}

/* The reset of a controller by another one: what it has kept is dropped. */
static void impacted_end(uint64_t cirn)
{
	for (unsigned i = 0; i < FABRIC_TARGETS; i++) {
		struct fabric_target *t = &fabric_targets[i];
		t->num_kept = t->cirn == cirn || t->cirn_before == cirn ? 0 : t->num_kept;
		t->cc = t->cirn == cirn ? 0 : t->cc;
	}
}

static void ccr(struct fabric_target *t, const struct nvme_sqe *cmd, struct nvme_cqe *cqe)
{
	uint64_t cirn = le32toh(cmd->cdw12) | (uint64_t)le32toh(cmd->cdw13) << 32;

	t->ccr_requests++;
	if (t->ccr_answer == 0) {
		impacted_end(cirn);
		cqe->dw0 = htole32(1);
	} else if (t->ccr_answer == 1 && t->num_ccr < FABRIC_CCR_LOGS) {
		t->ccr[t->num_ccr++] = (struct fabric_ccr){.icid = (uint16_t)le32toh(cmd->cdw10),
							   .ciu = (uint8_t)(le32toh(cmd->cdw10) >> 16),
							   .cirn = cirn};
	} else {
		cqe->status = htole16((uint16_t)(t->ccr_answer << 1));
	}
}

static void ccr_log(struct fabric_target *t, const struct nvme_request *req)
{
	uint8_t *data = req->iovs[0].iov_base;

	memset(data, 0, req->data_len);
	t->ccr_looks++;
	data[0] = (uint8_t)t->num_ccr;
	for (unsigned i = 0; i < t->num_ccr && 16 + i * 8 <= req->data_len; i++) {
		uint8_t *e = data + 8 + i * 8;
		e[0] = (uint8_t)t->ccr[i].icid;
		e[1] = (uint8_t)(t->ccr[i].icid >> 8);
		e[2] = t->ccr[i].ciu;
		e[6] = t->ccr[i].state;
	}
}

void fabric_ccr_end(struct fabric_target *t, bool success, bool notice)
{
	struct fabric_qpair *q = t->admin;

	fabric_lock();
	for (unsigned i = 0; i < t->num_ccr; i++) {
		t->ccr[i].state = success ? 1 : 2;
		if (success) {
			impacted_end(t->ccr[i].cirn);
		}
	}
	if (notice && q != NULL && t->aer_cid >= 0 && t->notices_asked) {
		q->answers[q->num++] =
			(struct nvme_cqe){.cid = htole16((uint16_t)t->aer_cid),
					  .dw0 = htole32(NVME_AER_NOTICE | NVME_AER_NOTICE_CROSS_CTRL_RESET << 8 |
							 NVME_LOG_LID_CROSS_CTRL_RESET << 16)};
		t->aer_cid = -1;
	}
	fabric_unlock();
}

static void fabrics_command(struct fabric_qpair *q, const struct nvme_request *req, struct nvme_cqe *cqe)
{
	const struct nvmf_property_set_sqe *set = (const void *)&req->cmd;
	const struct nvmf_property_get_sqe *get = (const void *)&req->cmd;
	struct fabric_target *t = q->t;

	if (set->fctype == nvme_fabrics_type_property_get) {
		cqe->result = htole64(property(t, le32toh(get->ofst)));
	} else if (set->fctype == nvme_fabrics_type_property_set) {
		cc_write(t, (uint32_t)le64toh(set->value));
	} else {
		if (q->base.id == 0) { /* a new controller; the old one keeps what it has */
			t->cntlid = ++last_cntlid;
			t->cirn_before = t->cirn;
			t->cirn = t->has_ccr ? UINT64_C(0x1234567800000000) | t->cntlid : 0;
			t->cc = 0;
			t->connects++;
		}
		cqe->dw0 = htole32(t->cntlid);
		cqe->status = htole16(t->refuses ? NVME_ST(GENERIC, INTERNAL) << 1 : 0);
	}
}

/* False: there is no answer. */
static bool admin_execute(struct fabric_qpair *q, const struct nvme_request *req, struct nvme_cqe *cqe)
{
	const struct nvme_sqe *cmd = &req->cmd;
	struct fabric_target *t = q->t;

	switch (cmd->opcode) {
	case nvme_admin_fabrics:
		fabrics_command(q, req, cqe);
		break;
	case nvme_admin_async_event:
		t->aer_cid = le16toh(cmd->cid);
		return false;
	case nvme_admin_identify:
		identify(t, req);
		break;
	case nvme_admin_set_features:
		if (le32toh(cmd->cdw10) == NVME_FEAT_FID_ASYNC_EVENT) {
			t->notices_asked = (le32toh(cmd->cdw11) & NVME_CTRL_OAES_CROSS_CTRL_RESET) != 0;
		}
		cqe->dw0 = htole32(le32toh(cmd->cdw10) == NVME_FEAT_FID_NUM_QUEUES ? 15 | 15 << 16 : 0);
		break;
	case nvme_admin_get_log_page:
		if ((le32toh(cmd->cdw10) & 0xff) == NVME_LOG_LID_CROSS_CTRL_RESET) {
			ccr_log(t, req);
		}
		break;
	case NVME_ADMIN_CROSS_CTRL_RESET:
		ccr(t, cmd, cqe);
		break;
	case nvme_admin_keep_alive:
		return !t->deaf;
	default:
		break;
	}
	return true;
}

/* --- I/O commands --- */

static bool io_execute(struct fabric_qpair *q, const struct nvme_request *req, struct nvme_cqe *cqe)
{
	struct fabric_target *t = q->t;
	uint64_t lba = le32toh(req->cmd.cdw10) | (uint64_t)le32toh(req->cmd.cdw11) << 32;
	struct fabric_write w = {.lba = lba, .opcode = req->cmd.opcode};

	if ((t->cc & 1) == 0) { /* as the kernel's target answers */
		cqe->status = htole16(NVME_ST_DNR(GENERIC, CMD_SEQ_ERROR) << 1);
		return true;
	}
	switch (req->cmd.opcode) {
	case nvme_cmd_read:
		t->reads += !t->keeps;
		if (!t->keeps) {
			memcpy(req->iovs[0].iov_base, fabric_store[lba % FABRIC_BLOCKS], 512);
		}
		break;
	case nvme_cmd_write:
	case nvme_cmd_write_zeroes:
		if (req->iovcnt != 0) {
			memcpy(w.data, req->iovs[0].iov_base, 512);
		}
		if (!t->keeps) {
			t->writes++;
			write_carry_out(&w);
		} else if (t->num_kept < FABRIC_KEPT) {
			t->kept[t->num_kept++] = w;
		}
		break;
	case nvme_cmd_flush:
		t->flushes++;
		break;
	default:
		break;
	}
	return !t->keeps;
}

/* --- The transport --- */

static int fabric_submit(struct nvme_qpair *base, struct nvme_request *req)
{
	struct fabric_qpair *q = (struct fabric_qpair *)base;
	struct nvme_cqe cqe = {.cid = req->cmd.cid};

	fabric_lock();
	if (q->t->broken) { /* nothing arrives */
	} else if (base->id == 0 && !q->t->mute ? admin_execute(q, req, &cqe)
		   : base->id != 0 ? (req->cmd.opcode == nvme_admin_fabrics ? (fabrics_command(q, req, &cqe), true)
									    : io_execute(q, req, &cqe))
				   : false) {
		q->answers[q->num++] = cqe;
	}
	fabric_unlock();
	return 0;
}

static void fabric_flush(struct nvme_qpair *base)
{
}

static int fabric_poll(struct nvme_qpair *base, uint32_t max)
{
	struct fabric_qpair *q = (struct fabric_qpair *)base;
	struct nvme_cqe answers[ENTRIES + 1];

	fabric_lock();
	uint32_t n = q->num;
	bool broken = q->t->broken || (q->t->hasty && base->id != 0 && (q->t->cc & 1) == 0);
	memcpy(answers, q->answers, sizeof(answers));
	q->num = 0;
	fabric_unlock();
	if (broken) {
		if (base->created || base->id == 0) {
			nvme_qpair_fail(base);
		}
		return -ENXIO;
	}
	for (uint32_t i = 0; i < n && !base->failed; i++) {
		nvme_qpair_complete(base, &answers[i]);
	}
	return (int)n;
}

static int fabric_fd(const struct nvme_qpair *base)
{
	return -1;
}

static bool fabric_arm(struct nvme_qpair *base)
{
	return false;
}

static struct nvme_qpair *fabric_qpair_alloc(struct nvme_ctrlr *ctrlr, uint16_t id, uint16_t entries,
					     const struct nvme_qpair_opts *opts)
{
	struct fabric_qpair *q = calloc(1, sizeof(*q));

	if (q == NULL || nvme_qpair_init(&q->base, ctrlr, id, entries < ENTRIES ? entries : ENTRIES) != 0) {
		free(q);
		return NULL;
	}
	q->t = &fabric_targets[ctrlr->trid.traddr[0] - '0'];
	return &q->base;
}

static void fabric_qpair_connect(struct nvme_qpair *qpair)
{
	nvme_qpair_transport_connected(qpair, 0);
}

static void fabric_qpair_stop(struct nvme_qpair *qpair, void (*done)(void *arg), void *arg)
{
	done(arg);
}

static void fabric_qpair_free(struct nvme_qpair *base)
{
	struct fabric_qpair *q = (struct fabric_qpair *)base;

	fabric_lock();
	if (q->t->admin == q) {
		q->t->admin = NULL;
	}
	fabric_unlock();
	nvme_qpair_fini(base);
	free(q);
}

static struct nvme_ctrlr *fabric_ctrlr_alloc(const struct nvme_trid *trid, char error[NVME_ERROR_MAX])
{
	return calloc(1, sizeof(struct nvme_ctrlr));
}

static void fabric_ctrlr_free(struct nvme_ctrlr *ctrlr)
{
	free(ctrlr);
}

static void fabric_connect(struct nvme_ctrlr *ctrlr)
{
	ctrlr->admin = fabric_qpair_alloc(ctrlr, 0, ENTRIES, NULL);
	if (ctrlr->admin == NULL) {
		nvme_ctrlr_connected(ctrlr, -ENOMEM, "out of memory");
		return;
	}
	struct fabric_qpair *q = (struct fabric_qpair *)ctrlr->admin;
	fabric_lock();
	q->t->admin = q;
	fabric_unlock();
	nvme_ctrlr_connected(ctrlr, q->t->refuses ? -ECONNREFUSED : 0, "it refuses connections");
}

static void fabric_disconnect(struct nvme_ctrlr *ctrlr)
{
	if (ctrlr->admin != NULL) {
		fabric_qpair_free(ctrlr->admin);
	}
}

static uint32_t fabric_max_transfer(struct nvme_ctrlr *ctrlr)
{
	return 65536;
}

static const struct nvme_transport_ops fabric_ops = {
	.transport = {.trtype = FABRIC, .name = "FABRIC", .fabrics = true, .keys = NVME_TRID_SUBNQN},
	.ctrlr_alloc = fabric_ctrlr_alloc,
	.ctrlr_free = fabric_ctrlr_free,
	.connect = fabric_connect,
	.disconnect = fabric_disconnect,
	.max_transfer = fabric_max_transfer,
	.qpair_alloc = fabric_qpair_alloc,
	.qpair_connect = fabric_qpair_connect,
	.qpair_stop = fabric_qpair_stop,
	.qpair_free = fabric_qpair_free,
	.submit = fabric_submit,
	.flush = fabric_flush,
	.poll = fabric_poll,
	.fd = fabric_fd,
	.arm = fabric_arm,
};

void fabric_register(void)
{
	nvme_transport_register(&fabric_ops);
}
