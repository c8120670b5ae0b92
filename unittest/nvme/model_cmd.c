/* SPDX-License-Identifier: BSD-3-Clause */
/* The model's commands. */
#include "unittest/nvme/model_internal.h"

#include <string.h>

#define INVALID NVME_ST_DNR(GENERIC, INVALID_FIELD)

static void text(char *field, size_t size, const char *s)
{
	memset(field, ' ', size);
	memcpy(field, s, strlen(s));
}

/* Fuzzing: some bytes of an answer's data are replaced. */
static void spoil_data(struct model *m, uint8_t *data, size_t size)
{
	if (m->noise == NULL) {
		return;
	}
	for (uint64_t n = model_noise(m, 4); n > 0; n--) {
		data[model_noise(m, 12) % size] = (uint8_t)model_noise(m, 8);
	}
}

static bool has_ana(const struct model *m)
{
	return m->cmic & NVME_CTRL_CMIC_MULTI_ANA_REPORTING;
}

static uint32_t group_of(const struct model *m, uint32_t nsid)
{
	return m->ns[nsid - 1].anagrpid != 0 ? m->ns[nsid - 1].anagrpid : nsid;
}

static void identify_ctrl(struct model *m, uint8_t data[4096])
{
	struct nvme_id_ctrl *id = (struct nvme_id_ctrl *)data;

	id->vid = htole16((uint16_t)m->vendor_device);
	text(id->sn, sizeof(id->sn), m->serial);
	text(id->mn, sizeof(id->mn), "Model of a controller");
	text(id->fr, sizeof(id->fr), "1");
	id->mdts = m->mdts;
	id->cntlid = htole16(m->cntlid);
	id->cmic = m->cmic;
	id->ver = htole32(0x10400);
	id->oaes = htole32(has_ana(m) ? 1 << 8 | 1 << 11 : 1 << 8);
	id->oacs = htole16(m->shadow_offered ? 1 << 8 : 0);
	id->acl = 3;
	id->elpe = sizeof(m->errors) / sizeof(m->errors[0]) - 1;
	id->aerl = MODEL_AERS - 1;
	id->sqes = 0x66;
	id->cqes = 0x44;
	id->nn = htole32(MODEL_NAMESPACES);
	id->oncs = htole16(m->oncs);
	id->ctratt = htole32(m->extended_formats ? NVME_CTRL_CTRATT_ELBAS : 0);
	id->ocfs = htole16(m->ocfs);
	id->avscc = id->icsvscc = !m->no_vendor_sizes;
	id->fuses = htole16(NVME_CTRL_FUSES_COMPARE_AND_WRITE);
	id->vwc = NVME_CTRL_VWC_PRESENT;
	id->sgls = htole32(m->sgl_offered ? 1 : 0);
	if (has_ana(m)) {
		id->anatt = m->anatt;
		id->anacap = 0x1f; /* every state */
		id->anagrpmax = id->nanagrpid = htole32(MODEL_NAMESPACES);
	}
	id->vs[3] = 5;
}

static uint16_t identify_ns(struct model *m, uint32_t nsid, uint8_t data[4096])
{
	struct nvme_id_ns *id = (struct nvme_id_ns *)data;

	if (nsid == 0 || nsid > MODEL_NAMESPACES) {
		return NVME_ST_DNR(GENERIC, INVALID_NS);
	}
	const struct model_ns *ns = &m->ns[nsid - 1];
	if (ns->active) {
		id->nsze = id->ncap = id->nuse = htole64(ns->blocks);
		id->lbaf[0].ds = ns->block_shift;
		id->lbaf[0].ms = htole16(ns->md_size);
		id->flbas = ns->interleaved ? NVME_NS_FLBAS_META_EXT : 0;
		id->dps = (uint8_t)(ns->pi_type | (ns->pi_first ? NVME_NS_DPS_PI_FIRST : 0));
		id->nguid[0] = ns->no_nguid ? 0 : ns->nguid != 0 ? ns->nguid : (uint8_t)nsid;
		id->nmic = ns->shared ? NVME_NS_NMIC_SHARED : 0;
		id->anagrpid = htole32(has_ana(m) ? group_of(m, nsid) : 0);
		id->noiob = htole16(ns->noiob);
		id->mssrl = htole16(ns->mssrl);
		id->mcl = htole32(ns->mcl);
		id->msrc = ns->msrc;
	}
	return 0;
}

static uint16_t identify_nvm_ns(struct model *m, uint32_t nsid, uint8_t data[4096])
{
	struct nvme_nvm_id_ns *id = (struct nvme_nvm_id_ns *)data;

	if (!m->extended_formats) {
		return INVALID;
	}
	if (nsid == 0 || nsid > MODEL_NAMESPACES) {
		return NVME_ST_DNR(GENERIC, INVALID_NS);
	}
	const struct model_ns *ns = &m->ns[nsid - 1];
	id->lbstm = htole64(((UINT64_C(1) << ns->storage_bits) - 1) | ns->mask_rest);
	id->elbaf[0] = htole32(ns->storage_bits | (uint32_t)ns->pi_format << 7);
	id->elbaf[1] = htole32(3 << 7); /* another format, which no namespace has */
	return 0;
}

/* The data of Host Behavior Support: byte 2 is LBAFEE. */
static uint16_t set_behavior(struct model *m, const struct nvme_sqe *sqe)
{
	uint8_t data[512] = {0};
	uint16_t status = model_move(m, sqe, data, sizeof(data), false);

	if (m->behavior_status != 0) {
		return m->behavior_status;
	}
	m->extended_formats_known = data[2] != 0;
	return status;
}

static void list_ns(struct model *m, uint32_t after, uint8_t data[4096])
{
	__le32 *list = (__le32 *)data;

	for (uint32_t i = after; i < MODEL_NAMESPACES; i++) {
		if (m->ns[i].active) {
			*list++ = htole32(i + 1);
		}
	}
}

static uint16_t identify(struct model *m, const struct nvme_sqe *sqe)
{
	uint8_t data[4096] = {0};
	uint32_t nsid = le32toh(sqe->nsid);
	uint16_t status = 0;

	switch (le32toh(sqe->cdw10) & 0xff) {
	case NVME_IDENTIFY_CNS_NS:
		status = identify_ns(m, nsid, data);
		break;
	case NVME_IDENTIFY_CNS_CTRL:
		identify_ctrl(m, data);
		break;
	case NVME_IDENTIFY_CNS_CSI_NS:
		status = identify_nvm_ns(m, nsid, data);
		break;
	case NVME_IDENTIFY_CNS_NS_ACTIVE_LIST:
		list_ns(m, nsid, data);
		break;
	case NVME_IDENTIFY_CNS_NS_DESC_LIST:
		data[0] = NVME_NIDT_UUID;
		data[1] = 16;
		data[4] = 0x40;
		data[19] = (uint8_t)nsid;
		break;
	default:
		return INVALID;
	}
	spoil_data(m, data, sizeof(data));
	return status ? status : model_move(m, sqe, data, sizeof(data), true);
}

static uint16_t create_cq(struct model *m, const struct nvme_sqe *sqe)
{
	uint32_t qid = le32toh(sqe->cdw10) & 0xffff, size = (le32toh(sqe->cdw10) >> 16) + 1,
		 flags = le32toh(sqe->cdw11);

	if (qid == 0 || qid >= MODEL_QUEUES || m->queues[qid].cq != 0) {
		return NVME_ST_DNR(CMD_SPECIFIC, QID_INVALID);
	}
	if (size < 2 || size > 256) {
		return NVME_ST_DNR(CMD_SPECIFIC, QUEUE_SIZE);
	}
	if ((flags & 1) == 0 || le64toh(sqe->prp1) % 4096 != 0) {
		model_violation(m, "a completion queue that is not contiguous or not aligned");
		return INVALID;
	}
	if ((flags & 2) != 0 && flags >> 16 >= m->vectors) {
		model_violation(m, "an interrupt vector that is not there");
		return INVALID;
	}
	m->queues[qid].cq = le64toh(sqe->prp1);
	m->queues[qid].cq_size = (uint16_t)size;
	m->queues[qid].phase = true;
	return 0;
}

static uint16_t create_sq(struct model *m, const struct nvme_sqe *sqe)
{
	uint32_t qid = le32toh(sqe->cdw10) & 0xffff, size = (le32toh(sqe->cdw10) >> 16) + 1;

	if (qid == 0 || qid >= MODEL_QUEUES || m->queues[qid].sq != 0) {
		return NVME_ST_DNR(CMD_SPECIFIC, QID_INVALID);
	}
	if (size < 2 || size > 256) {
		return NVME_ST_DNR(CMD_SPECIFIC, QUEUE_SIZE);
	}
	if (le32toh(sqe->cdw11) >> 16 != qid || m->queues[qid].cq == 0) {
		model_violation(m, "a submission queue without its completion queue");
		return NVME_ST_DNR(CMD_SPECIFIC, CQ_INVALID);
	}
	if ((le32toh(sqe->cdw11) & 1) == 0 || le64toh(sqe->prp1) % 4096 != 0) {
		model_violation(m, "a submission queue that is not contiguous or not aligned");
		return INVALID;
	}
	m->queues[qid].sq = le64toh(sqe->prp1);
	m->queues[qid].sq_size = (uint16_t)size;
	return 0;
}

static uint16_t delete_sq(struct model *m, const struct nvme_sqe *sqe)
{
	uint32_t qid = le32toh(sqe->cdw10) & 0xffff;

	if (qid == 0 || qid >= MODEL_QUEUES || m->queues[qid].sq == 0) {
		return NVME_ST_DNR(CMD_SPECIFIC, QID_INVALID);
	}
	m->queues[qid].sq = 0;
	model_drop_held(m, (uint16_t)qid);
	return 0;
}

static uint16_t delete_cq(struct model *m, const struct nvme_sqe *sqe)
{
	uint32_t qid = le32toh(sqe->cdw10) & 0xffff;

	if (qid == 0 || qid >= MODEL_QUEUES || m->queues[qid].cq == 0) {
		return NVME_ST_DNR(CMD_SPECIFIC, QID_INVALID);
	}
	if (m->queues[qid].sq != 0) {
		model_violation(m, "a completion queue was deleted before its submission queue");
		return INVALID;
	}
	m->queues[qid] = (struct model_queue){0};
	model_queue_gone(m, qid);
	return 0;
}

static uint16_t set_shadow(struct model *m, const struct nvme_sqe *sqe)
{
	if (!m->shadow_offered || (le64toh(sqe->prp1) | le64toh(sqe->prp2)) % 4096 != 0 || sqe->prp1 == 0 ||
	    sqe->prp2 == 0) {
		return INVALID;
	}
	m->shadow = le64toh(sqe->prp1);
	m->event_idx = le64toh(sqe->prp2);
	return 0;
}

/* One group for each namespace, without the list of namespaces, as the driver requests it. */
static void ana_log(const struct model *m, uint8_t data[4096])
{
	struct nvme_ana_log header = {.ngrps = htole16(MODEL_NAMESPACES)};

	memcpy(data, &header, sizeof(header));
	for (uint32_t i = 0; i < MODEL_NAMESPACES; i++) {
		struct nvme_ana_group_desc d = {
			.grpid = htole32(i + 1),
			.state = (uint8_t)(m->ns[i].ana != 0 ? m->ns[i].ana : NVME_ANA_STATE_OPTIMIZED)};
		memcpy(data + sizeof(header) + i * sizeof(d), &d, sizeof(d));
	}
}

static uint16_t get_log(struct model *m, const struct nvme_sqe *sqe)
{
	uint8_t data[4096] = {0};
	size_t len = ((le32toh(sqe->cdw10) >> 16) + 1) * 4;

	switch (le32toh(sqe->cdw10) & 0xff) {
	case NVME_LOG_LID_ERROR:
		memcpy(data, m->errors, sizeof(m->errors));
		break;
	case NVME_LOG_LID_SMART:
		memcpy(data, &m->smart, sizeof(m->smart));
		break;
	case NVME_LOG_LID_ANA:
		if (has_ana(m)) {
			ana_log(m, data);
		}
		break;
	}
	spoil_data(m, data, sizeof(data));
	return len > sizeof(data) ? INVALID : model_move(m, sqe, data, len, true);
}

/* True: it is one of the model's vendor specific commands. As drives do, it transfers as many bytes as dword 10 says,
 * whatever the data pointer describes. */
static bool vendor(struct model *m, const struct nvme_sqe *sqe, uint8_t base, uint16_t *status)
{
	size_t len = (size_t)le32toh(sqe->cdw10) * 4;

	if (sqe->opcode != base + 1 && sqe->opcode != base + 2 && sqe->opcode != base + 4) {
		return false;
	}
	m->last_vendor = *sqe;
	if (len > sizeof(m->vendor)) {
		*status = INVALID;
	} else if (sqe->opcode == base + 4) {
		memset(m->vendor, 0, sizeof(m->vendor));
		*status = 0;
	} else {
		*status = len != 0 ? model_move(m, sqe, m->vendor, len, sqe->opcode == base + 2) : 0;
	}
	return true;
}

void model_admin_command(struct model *m, const struct nvme_sqe *sqe)
{
	uint16_t status = 0, cid = le16toh(sqe->cid);
	uint32_t dw0 = 0;

	switch (sqe->opcode) {
	case nvme_admin_identify:
		status = identify(m, sqe);
		break;
	case nvme_admin_create_cq:
		status = create_cq(m, sqe);
		break;
	case nvme_admin_create_sq:
		status = create_sq(m, sqe);
		break;
	case nvme_admin_delete_cq:
		status = delete_cq(m, sqe);
		break;
	case nvme_admin_delete_sq:
		status = delete_sq(m, sqe);
		break;
	case nvme_admin_set_features:
	case nvme_admin_get_features:
		if ((le32toh(sqe->cdw10) & 0xff) == NVME_FEAT_FID_NUM_QUEUES) {
			dw0 = (MODEL_QUEUES - 2) | (MODEL_QUEUES - 2) << 16;
		}
		if (sqe->opcode == nvme_admin_set_features &&
		    (le32toh(sqe->cdw10) & 0xff) == NVME_FEAT_FID_HOST_BEHAVIOR) {
			status = set_behavior(m, sqe);
		}
		break;
	case nvme_admin_get_log_page:
		status = get_log(m, sqe);
		break;
	case nvme_admin_dbbuf:
		status = set_shadow(m, sqe);
		break;
	case nvme_admin_abort_cmd:
		dw0 = !model_abort_held(m, (uint16_t)le32toh(sqe->cdw10), (uint16_t)(le32toh(sqe->cdw10) >> 16));
		break;
	case nvme_admin_async_event:
		if (m->num_aers == MODEL_AERS) {
			status = NVME_ST_DNR(CMD_SPECIFIC, ASYNC_LIMIT);
			break;
		}
		m->aer_cids[m->num_aers++] = cid;
		return;
	case nvme_admin_format_nvm:
		break;
	default:
		if (!vendor(m, sqe, 0xc0, &status)) {
			status = NVME_ST_DNR(GENERIC, INVALID_OPCODE);
		} else {
			dw0 = 0xc0ffee;
		}
		break;
	}
	model_complete(m, 0, cid, status, dw0);
}

/* I/O. */

static bool is_bad(const struct model_ns *ns, uint64_t lba, uint64_t blocks)
{
	return ns->bad_first < ns->bad_end && lba < ns->bad_end && lba + blocks > ns->bad_first;
}

/* Blocks that are written are readable again; so are bad blocks behind them, if there are bad ones before them too. */
static void written(struct model_ns *ns, uint64_t lba, uint64_t blocks)
{
	if (!is_bad(ns, lba, blocks)) {
		return;
	}
	if (lba <= ns->bad_first) {
		ns->bad_first = lba + blocks;
	} else {
		ns->bad_end = lba;
	}
}

static uint16_t move_blocks(struct model *m, const struct nvme_sqe *sqe, struct model_ns *ns, uint64_t lba,
			    uint32_t blocks)
{
	size_t len = (size_t)blocks << ns->block_shift;
	bool to_host = sqe->opcode == nvme_cmd_read;

	if (ns->data == NULL) {
		return 0;
	}
	uint16_t status = ns->md_size != 0 ? model_md_move(m, sqe, ns, lba, blocks)
					   : model_move(m, sqe, ns->data + (lba << ns->block_shift), len, to_host);
	if (!to_host && status == 0) {
		written(ns, lba, blocks);
	}
	return status;
}

static uint16_t compare(struct model *m, const struct nvme_sqe *sqe, struct model_ns *ns, uint64_t lba, uint32_t blocks)
{
	uint8_t data[65536];
	size_t len = (size_t)blocks << ns->block_shift;

	if (len > sizeof(data) || ns->data == NULL) {
		return INVALID;
	}
	if (ns->md_size != 0) {
		return model_md_move(m, sqe, ns, lba, blocks);
	}
	uint16_t status = model_move(m, sqe, data, len, false);
	return status                                                   ? status
	       : memcmp(data, ns->data + (lba << ns->block_shift), len) ? NVME_ST(MEDIA, COMPARE_FAILED)
									: 0;
}

/* Deallocated blocks read as zeroes. */
static uint16_t deallocate(struct model *m, const struct nvme_sqe *sqe, struct model_ns *ns)
{
	struct nvme_dsm_range ranges[NVME_DSM_MAX_RANGES];
	uint32_t n = (le32toh(sqe->cdw10) & 0xff) + 1;
	uint16_t status = model_move(m, sqe, (uint8_t *)ranges, n * sizeof(ranges[0]), false);

	for (uint32_t i = 0; i < n && status == 0 && (le32toh(sqe->cdw11) & NVME_DSMGMT_AD); i++) {
		uint64_t lba = le64toh(ranges[i].slba), blocks = le32toh(ranges[i].nlb);
		if (lba >= ns->blocks || blocks > ns->blocks - lba) {
			return NVME_ST_DNR(GENERIC, LBA_RANGE);
		}
		if (ns->data != NULL) {
			memset(ns->data + (lba << ns->block_shift), 0, blocks << ns->block_shift);
		}
		if (ns->data != NULL && ns->md_size != 0) {
			memset(ns->md + lba * ns->md_size, 0xff, blocks * ns->md_size); /* so that nothing is checked */
		}
	}
	return status;
}

/* NVM 3.2.2, source ranges of format 0. */
static uint16_t copy(struct model *m, const struct nvme_sqe *sqe, struct model_ns *ns)
{
	struct {
		__le64 rsvd, slba;
		__le16 nlb;
		uint8_t rest[14];
	} ranges[256];
	uint32_t n = (le32toh(sqe->cdw12) & 0xff) + 1;
	uint64_t to = le32toh(sqe->cdw10) | (uint64_t)le32toh(sqe->cdw11) << 32, sum = 0;
	uint16_t status = model_move(m, sqe, ranges, n * sizeof(ranges[0]), false);

	if (ns->mssrl != 0 && n > ns->msrc + 1u) {
		return NVME_ST_DNR(CMD_SPECIFIC, CMD_SIZE_LIMIT_EXCEEDED);
	}
	for (uint32_t i = 0; i < n && status == 0; i++) {
		uint64_t from = le64toh(ranges[i].slba), blocks = le16toh(ranges[i].nlb) + UINT64_C(1);
		sum += blocks;
		if (ns->mssrl != 0 && (blocks > ns->mssrl || sum > ns->mcl)) {
			return NVME_ST_DNR(CMD_SPECIFIC, CMD_SIZE_LIMIT_EXCEEDED);
		}
		if (is_bad(ns, from, blocks)) {
			return NVME_ST_DNR(MEDIA, READ_ERROR);
		}
		if (from >= ns->blocks || blocks > ns->blocks - from || to >= ns->blocks || blocks > ns->blocks - to) {
			return NVME_ST_DNR(GENERIC, LBA_RANGE);
		}
		if (ns->data != NULL) {
			memmove(ns->data + (to << ns->block_shift), ns->data + (from << ns->block_shift),
				blocks << ns->block_shift);
		}
		if (ns->data != NULL && ns->md_size != 0) {
			memmove(ns->md + to * ns->md_size, ns->md + from * ns->md_size, blocks * ns->md_size);
		}
		written(ns, to, blocks);
		to += blocks;
	}
	return status;
}

/* Base 8.1.4 */
static uint16_t access_status(const struct model *m, uint32_t nsid)
{
	switch (has_ana(m) ? m->ns[group_of(m, nsid) - 1].ana : NVME_ANA_STATE_OPTIMIZED) {
	case NVME_ANA_STATE_INACCESSIBLE:
		return NVME_ST(PATH, ANA_INACCESSIBLE);
	case NVME_ANA_STATE_PERSISTENT_LOSS:
		return NVME_ST(PATH, ANA_PERSISTENT_LOSS);
	case NVME_ANA_STATE_CHANGE:
		return NVME_ST(PATH, ANA_TRANSITION);
	default:
		return 0;
	}
}

static uint16_t io(struct model *m, const struct nvme_sqe *sqe)
{
	uint32_t nsid = le32toh(sqe->nsid), blocks = (le32toh(sqe->cdw12) & 0xffff) + 1;
	uint64_t lba = le32toh(sqe->cdw10) | (uint64_t)le32toh(sqe->cdw11) << 32;

	if (sqe->opcode == nvme_cmd_flush) {
		return 0;
	}
	if (nsid == 0 || nsid > MODEL_NAMESPACES || !m->ns[nsid - 1].active) {
		return NVME_ST_DNR(GENERIC, INVALID_NS);
	}
	struct model_ns *ns = &m->ns[nsid - 1];
	uint16_t status = access_status(m, nsid);
	if (status != 0 || vendor(m, sqe, 0x80, &status)) {
		return status;
	}
	if (sqe->opcode == nvme_cmd_dsm) {
		return deallocate(m, sqe, ns);
	}
	if (sqe->opcode == nvme_cmd_copy) {
		return copy(m, sqe, ns);
	}
	if (lba >= ns->blocks || blocks > ns->blocks - lba) {
		return NVME_ST_DNR(GENERIC, LBA_RANGE);
	}
	bool reads = sqe->opcode == nvme_cmd_read || sqe->opcode == nvme_cmd_compare || sqe->opcode == nvme_cmd_verify;
	if (reads && is_bad(ns, lba, blocks)) {
		return NVME_ST_DNR(MEDIA, READ_ERROR);
	}
	switch (sqe->opcode) {
	case nvme_cmd_write_uncor:
		ns->bad_first = lba;
		ns->bad_end = lba + blocks;
		return 0;
	case nvme_cmd_read:
	case nvme_cmd_write:
		return move_blocks(m, sqe, ns, lba, blocks);
	case nvme_cmd_compare:
		return compare(m, sqe, ns, lba, blocks);
	case nvme_cmd_write_zeroes:
		written(ns, lba, blocks);
		if (ns->data == NULL) {
			return 0;
		}
		memset(ns->data + (lba << ns->block_shift), 0, (size_t)blocks << ns->block_shift);
		if (ns->md_size != 0) {
			model_pi_zeroed(sqe, ns, lba, blocks);
		}
		return 0;
	case nvme_cmd_verify:
		return model_pi_check(sqe, ns, lba, blocks);
	default:
		return NVME_ST_DNR(GENERIC, INVALID_OPCODE);
	}
}

void model_io_command(struct model *m, unsigned qid, const struct nvme_sqe *sqe)
{
	struct model_queue *q = &m->queues[qid];
	unsigned fuse = sqe->flags & NVME_CMD_FLAGS_FUSE_MASK;

	if (fuse == NVME_FUSE_FIRST) {
		q->fused = true;
		q->fused_status = io(m, sqe);
		q->fused_cid = le16toh(sqe->cid);
		return;
	}
	if (q->fused != (fuse == NVME_FUSE_SECOND)) {
		model_violation(m, "the two commands of a fused operation do not stand next to each other");
	}
	uint16_t status = q->fused && q->fused_status != 0 ? NVME_ST(GENERIC, FUSED_FAIL) : io(m, sqe);
	if (q->fused) {
		q->fused = false;
		model_complete(m, qid, q->fused_cid, q->fused_status, 0);
	}
	model_complete(m, qid, le16toh(sqe->cid), status, 0);
}
