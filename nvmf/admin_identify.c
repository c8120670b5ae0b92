/* SPDX-License-Identifier: BSD-3-Clause */
/* Identify: Base 5.17, NVM 4.1.5. Control thread. */
#include <stdio.h>
#include <string.h>
#include "nvmf/command_internal.h"
#include "nvmf/internal.h"

#define IDENTIFY_CQT 386 /* Command Quiesce Time, in Identify Controller (TP4129) */

#define WHERE_CNS NVMF_WHERE_CDW10
#define WHERE_CSI NVMF_WHERE(47, 0)

/* The IEEE OUI and the vendor ids stay 0: this is not a hardware vendor's product. */
#define FIRMWARE_REVISION VARVE_VERSION

/* MDTS, in powers of two of 4096 bytes (CAP.MPSMIN is 0), without metadata (CTRATT.MEM). */
static uint8_t identify_mdts(const struct nvmf_ctrlr *ctrlr)
{
	return (uint8_t)(__builtin_ctz(ctrlr->transport->opts.max_io_size) - 12);
}

static uint32_t identify_sgls(const struct nvmf_transport *t)
{
	return 1 /* any alignment */ | NVME_CTRL_SGLS_OVERSIZE | (t->sgl_rules.keyed ? NVME_CTRL_SGLS_KEYED : 0) |
	       (t->sgl_rules.in_capsule ? NVME_CTRL_SGLS_OFFSET : 0) |
	       (t->sgl_rules.transport ? NVME_CTRL_SGLS_TPORT : 0);
}

/* A field that the library's structure does not name. */
static void identify_put_le16(struct nvme_id_ctrl *id, size_t offset, uint16_t value)
{
	value = htole16(value);
	memcpy((uint8_t *)id + offset, &value, sizeof(value));
}

static void identify_fill_common(const struct nvmf_ctrlr *ctrlr, struct nvme_id_ctrl *id)
{
	const struct nvmf_transport_opts *opts = &ctrlr->transport->opts;

	nvmf_put_padded(id->fr, sizeof(id->fr), FIRMWARE_REVISION);
	id->mdts = identify_mdts(ctrlr);
	id->cntlid = htole16(ctrlr->cntlid);
	id->ver = htole32(0x20000);
	id->aerl = (uint8_t)(nvmf_aer_max(ctrlr) - 1);
	id->elpe = NVMF_ERROR_LOG_SIZE - 1;
	id->lpa = NVME_CTRL_LPA_CMD_EFFECTS | NVME_CTRL_LPA_EXTENDED;
	id->ctratt = htole32(NVME_CTRL_CTRATT_128_ID | NVME_CTRL_CTRATT_TBKAS | NVME_ID_CTRL_CTRATT_MEM);
	id->kas = htole16(opts->kas);
	identify_put_le16(id, IDENTIFY_CQT, nvmf_keepalive_cqt_ms(ctrlr));
	id->maxcmd = htole16(opts->max_queue_depth);
	id->sgls = htole32(identify_sgls(ctrlr->transport));
	snprintf(id->subnqn, sizeof(id->subnqn), "%s", ctrlr->subsystem->nqn);
}

static void identify_fill_discovery(const struct nvmf_ctrlr *ctrlr, struct nvme_id_ctrl *id)
{
	id->cntrltype = NVME_CTRL_CNTRLTYPE_DISCOVERY;
	id->oaes = htole32((uint32_t)NVME_CTRL_OAES_DL);
	nvmf_put_padded(id->sn, sizeof(id->sn), ctrlr->subsystem->serial_number);
	nvmf_put_padded(id->mn, sizeof(id->mn), "varve discovery");
}

static void identify_fill_fabrics(const struct nvmf_ctrlr *ctrlr, struct nvme_id_ctrl *id)
{
	const struct nvmf_transport *t = ctrlr->transport;

	id->ioccsz = htole32((uint32_t)(sizeof(struct nvme_sqe) + t->opts.in_capsule_data_size) / 16);
	id->iorcsz = htole32(sizeof(struct nvme_cqe) / 16);
	id->icdoff = 0;
	((uint8_t *)id)[NVME_ID_CTRL_CCRL] = NVMF_CROSS_RESETS_MAX;
	id->fcatt = ctrlr->subsystem->static_ctrlrs ? NVME_CTRL_FCATT_DYNAMIC : 0; /* the bit means static */
	id->msdbd = (uint8_t)(t->sgl_rules.max_descs < UINT8_MAX ? t->sgl_rules.max_descs : UINT8_MAX);
}

/* ANATT: the longest time that a group may be in the state CHANGE, which only an operator sets. */
#define ANA_TRANSITION_SECONDS 10

static void identify_fill_ana(const struct nvmf_subsystem *s, struct nvme_id_ctrl *id)
{
	id->cmic |= NVME_CTRL_CMIC_MULTI_ANA_REPORTING;
	id->anatt = ANA_TRANSITION_SECONDS;
	id->anacap = NVME_CTRL_ANACAP_OPT | NVME_CTRL_ANACAP_NON_OPT | NVME_CTRL_ANACAP_INACCESSIBLE |
		     NVME_CTRL_ANACAP_PERSISTENT_LOSS | NVME_CTRL_ANACAP_CHANGE;
	id->anagrpmax = htole32(s->max_nsid);
	id->nanagrpid = htole32(s->max_nsid);
}

/* With the controller's id, what hosts name it by in Cross-Controller Reset. */
static void identify_fill_instance(const struct nvmf_ctrlr *ctrlr, struct nvme_id_ctrl *id)
{
	uint64_t cirn = htole64(ctrlr->cirn);

	((uint8_t *)id)[NVME_ID_CTRL_CIU] = ctrlr->ciu;
	memcpy((uint8_t *)id + NVME_ID_CTRL_CIRN, &cirn, sizeof(cirn));
}

static void identify_fill_io(const struct nvmf_ctrlr *ctrlr, struct nvme_id_ctrl *id)
{
	const struct nvmf_subsystem *s = ctrlr->subsystem;

	id->cntrltype = NVME_CTRL_CNTRLTYPE_IO;
	nvmf_put_padded(id->sn, sizeof(id->sn), s->serial_number);
	nvmf_put_padded(id->mn, sizeof(id->mn), s->model_number);
	id->rab = 6;
	id->ctratt |= htole32(NVME_CTRL_CTRATT_ELBAS);
	id->cmic = NVME_CTRL_CMIC_MULTI_PORT | NVME_CTRL_CMIC_MULTI_CTRL;
	id->oaes = htole32(NVME_CTRL_OAES_NA | NVME_CTRL_OAES_CROSS_CTRL_RESET |
			   (s->ana_reporting ? NVME_CTRL_OAES_ANA : 0));
	id->crdt1 = htole16(s->tgt->crdt[0]);
	id->crdt2 = htole16(s->tgt->crdt[1]);
	id->crdt3 = htole16(s->tgt->crdt[2]);
	id->acl = NVMF_ABORT_MAX - 1;
	id->frmw = NVME_CTRL_FRMW_1ST_RO | 1 << 1; /* one slot, read only */
	id->sqes = 6 << 4 | 6;
	id->cqes = 4 << 4 | 4;
	id->nn = htole32(s->max_nsid);
	id->mnan = htole32(s->max_nsid);
	id->oncs = htole16(nvmf_ctrlr_oncs(ctrlr));
	id->ocfs = htole16((le16toh(id->oncs) & NVME_CTRL_ONCS_COPY) != 0 ? 3 : 0); /* formats 0 and 1 */
	id->fuses = htole16(nvmf_ctrlr_fuses(ctrlr));
	id->vwc = NVME_CTRL_VWC_PRESENT | 2 << 1; /* Flush with NSID FFFFFFFFh is not supported */
	if (ctrlr->ana != NULL) {
		identify_fill_ana(s, id);
	}
	identify_fill_instance(ctrlr, id);
	identify_fill_fabrics(ctrlr, id);
}

static void identify_ctrlr(struct nvmf_request *req, const struct nvmf_identify *cmd)
{
	const struct nvmf_ctrlr *ctrlr = nvmf_request_ctrlr(req);
	struct nvmf_window w = {.req = req};
	struct nvme_id_ctrl id = {0};

	identify_fill_common(ctrlr, &id);
	if (ctrlr->subsystem->subtype == NVMF_SUBTYPE_DISCOVERY) {
		identify_fill_discovery(ctrlr, &id);
	} else {
		identify_fill_io(ctrlr, &id);
	}
	nvmf_window_put(&w, 0, &id, sizeof(id));
	nvmf_request_answer(req, NVME_ST_SUCCESS);
}

/* ---- Namespaces ---- */

static bool identify_nsid_is_valid(const struct nvmf_ctrlr *ctrlr, uint32_t nsid)
{
	return nsid != 0 && nsid <= ctrlr->subsystem->max_nsid;
}

static void identify_answer_invalid_ns(struct nvmf_request *req)
{
	nvmf_request_answer_at(req, NVME_ST_DNR(GENERIC, INVALID_NS), NVMF_WHERE_NSID);
}

/* All types of reservations; IEKEY as NVMe 1.3 defines it. */
static uint8_t identify_rescap(const struct nvmf_ctrlr *ctrlr, const struct nvmf_ns *ns)
{
	if ((ctrlr->transport->opts.masked_oncs & NVME_CTRL_ONCS_RESERVATIONS) != 0) {
		return 0;
	}
	return (uint8_t)((ns->ptpl_file != NULL ? NVME_NS_RESCAP_PTPL : 0) | NVME_NS_RESCAP_WE | NVME_NS_RESCAP_EA |
			 NVME_NS_RESCAP_WERO | NVME_NS_RESCAP_EARO | NVME_NS_RESCAP_WEAR | NVME_NS_RESCAP_EAAR |
			 NVME_NS_RESCAP_IEK_13);
}

static void identify_fill_copy(const struct nvmf_ns *ns, struct nvme_id_ns *id)
{
	struct nvmf_copy_limits limits = nvmf_copy_limits(ns->geo.block_shift);

	id->mssrl = htole16(limits.range_blocks);
	id->mcl = htole32(limits.blocks);
	id->msrc = NVMF_COPY_RANGES_MAX - 1;
}

#define PREFERENCE_MAX (UINT16_MAX + UINT32_C(1)) /* the fields are 0's based */

static uint32_t identify_preference(uint32_t blocks, uint32_t otherwise, uint32_t most)
{
	blocks = blocks != 0 && blocks <= most ? blocks : otherwise;
	return blocks != 0 && blocks <= most ? blocks : 1;
}

/* A granularity has to be a multiple of the alignment: where it is not, it is the alignment. */
static void identify_put_granularity(uint32_t granularity, uint32_t alignment, uint16_t *granularity_field,
				     uint16_t *alignment_field)
{
	granularity = granularity % alignment == 0 ? granularity : alignment;
	*granularity_field = htole16((uint16_t)(granularity - 1));
	*alignment_field = htole16((uint16_t)(alignment - 1));
}

/* What the bdev prefers; where it does not say, the blocks of the device. What cannot be told is left out: sizes of
 * writes above MDTS, sizes above what a field holds, and a NOWS that is no multiple of NPWG (NVM 4.1.5.1). NOWS is 0
 * where there is no preference. */
static void identify_fill_preferences(const struct nvmf_ctrlr *ctrlr, const struct nvmf_ns *ns, struct nvme_id_ns *id)
{
	static const struct bdev_hints none;
	const struct bdev_hints *h = bdev_get_hints(ns->bdev);
	uint32_t physical = bdev_physical_block_size(ns->bdev) >> ns->geo.block_shift;
	uint32_t most = RTE_MIN(ctrlr->transport->opts.max_io_size >> ns->geo.block_shift, PREFERENCE_MAX);

	physical = physical <= PREFERENCE_MAX ? physical : 1;
	if (physical <= 1 && memcmp(h, &none, sizeof(none)) == 0) {
		return;
	}
	id->nsfeat |= NVME_NS_FEAT_IO_OPT;
	identify_put_granularity(identify_preference(h->preferred_write_granularity, physical, most),
				 identify_preference(h->preferred_write_alignment, physical, most), &id->npwg,
				 &id->npwa);
	identify_put_granularity(identify_preference(h->preferred_unmap_granularity, physical, PREFERENCE_MAX),
				 identify_preference(h->preferred_unmap_alignment, physical, PREFERENCE_MAX), &id->npdg,
				 &id->npda);
	if (h->optimal_write_size % (le16toh(id->npwg) + UINT32_C(1)) == 0) {
		id->nows = htole16((uint16_t)(identify_preference(h->optimal_write_size, 1, most) - 1));
	}
}

static void identify_fill_ns(const struct nvmf_ctrlr *ctrlr, const struct nvmf_ns *ns, struct nvme_id_ns *id)
{
	uint32_t boundary = bdev_optimal_io_boundary(ns->bdev);

	id->nsze = id->ncap = htole64(ns->geo.num_blocks);
	/* The namespace utilization is not reported in ANA states without access. */
	if (nvmf_ana_status(nvmf_ana_of(ctrlr, ns)) == NVME_ST_SUCCESS) {
		id->nuse = id->nsze;
	}
	id->nmic = NVME_NS_NMIC_SHARED;
	id->rescap = identify_rescap(ctrlr, ns);
	id->noiob = htole16(boundary <= UINT16_MAX ? (uint16_t)boundary : 0);
	id->dlfeat = NVME_NS_DLFEAT_RB_NR;
	id->anagrpid = ns->subsystem->ana_reporting ? htole32(ns->opts.anagrpid) : 0;
	id->nsattr = bdev_read_only(ns->bdev) ? NVME_NS_NSATTR_WRITE_PROTECTED : 0;
	memcpy(id->nguid, ns->opts.nguid, sizeof(id->nguid));
	memcpy(id->eui64, ns->opts.eui64, sizeof(id->eui64));
	id->lbaf[0].ds = ns->geo.block_shift;
	nvmf_md_identify(ctrlr->transport, ns, id);
	identify_fill_copy(ns, id);
	identify_fill_preferences(ctrlr, ns, id);
}

/* NSID FFFFFFFFh, the capabilities that all namespaces have in common, is refused (NVM 4.1.5.1). An inactive namespace
 * is all zeroes. */
static void identify_ns(struct nvmf_request *req, const struct nvmf_identify *cmd)
{
	const struct nvmf_ctrlr *ctrlr = nvmf_request_ctrlr(req);
	struct nvmf_window w = {.req = req};
	struct nvme_id_ns id = {0};

	if (!identify_nsid_is_valid(ctrlr, cmd->nsid)) {
		identify_answer_invalid_ns(req);
		return;
	}
	const struct nvmf_ns *ns = nvmf_ctrlr_visible_ns(ctrlr, cmd->nsid);
	if (ns != NULL) {
		identify_fill_ns(ctrlr, ns, &id);
	}
	nvmf_window_put(&w, 0, &id, sizeof(id));
	nvmf_request_answer(req, NVME_ST_SUCCESS);
}

/* The buffer is zeroed before a command is carried out. */
static void identify_answer_zeroes(struct nvmf_request *req)
{
	nvmf_request_answer(req, NVME_ST_SUCCESS);
}

/* The ids above cmd->nsid, in order; FFFFFFFEh and FFFFFFFFh are invalid (Base 5.17.2.2). */
static void identify_active_list(struct nvmf_request *req, const struct nvmf_identify *cmd)
{
	const struct nvmf_ctrlr *ctrlr = nvmf_request_ctrlr(req);
	struct nvmf_window w = {.req = req};
	struct nvme_ns_list list = {0};
	unsigned n = 0;

	if (cmd->nsid >= 0xfffffffe) {
		identify_answer_invalid_ns(req);
		return;
	}
	for (uint64_t nsid = (uint64_t)cmd->nsid + 1; nsid <= ctrlr->subsystem->max_nsid && n < NVME_ID_NS_LIST_MAX;
	     nsid++) {
		if (nvmf_ctrlr_visible_ns(ctrlr, (uint32_t)nsid) != NULL) {
			list.ns[n++] = htole32((uint32_t)nsid);
		}
	}
	nvmf_window_put(&w, 0, &list, sizeof(list));
	nvmf_request_answer(req, NVME_ST_SUCCESS);
}

static size_t identify_put_descriptor(struct nvmf_window *w, size_t at, uint8_t type, const void *id, uint8_t len)
{
	struct nvme_ns_id_desc desc = {.nidt = type, .nidl = len};

	nvmf_window_put(w, at, &desc, sizeof(desc));
	nvmf_window_put(w, at + sizeof(desc), id, len);
	return at + sizeof(desc) + len;
}

static bool identify_any_byte(const uint8_t *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (bytes[i] != 0) {
			return true;
		}
	}
	return false;
}

static void identify_descriptors(struct nvmf_request *req, const struct nvmf_identify *cmd)
{
	const struct nvmf_ns *ns = nvmf_ctrlr_visible_ns(nvmf_request_ctrlr(req), cmd->nsid);
	struct nvmf_window w = {.req = req};
	uint8_t csi = NVME_CSI_NVM;
	size_t at = 0;

	if (ns == NULL) {
		identify_answer_invalid_ns(req);
		return;
	}
	if (identify_any_byte(ns->opts.eui64, sizeof(ns->opts.eui64))) {
		at = identify_put_descriptor(&w, at, NVME_NIDT_EUI64, ns->opts.eui64, NVME_NIDT_EUI64_LEN);
	}
	at = identify_put_descriptor(&w, at, NVME_NIDT_NGUID, ns->opts.nguid, NVME_NIDT_NGUID_LEN);
	at = identify_put_descriptor(&w, at, NVME_NIDT_UUID, ns->opts.uuid, NVME_NIDT_UUID_LEN);
	identify_put_descriptor(&w, at, NVME_NIDT_CSI, &csi, NVME_NIDT_CSI_LEN);
	nvmf_request_answer(req, NVME_ST_SUCCESS);
}

static void identify_independent(struct nvmf_request *req, const struct nvmf_identify *cmd)
{
	const struct nvmf_ctrlr *ctrlr = nvmf_request_ctrlr(req);
	const struct nvmf_ns *ns = nvmf_ctrlr_visible_ns(ctrlr, cmd->nsid);
	struct nvme_id_independent_id_ns id = {0};
	struct nvmf_window w = {.req = req};

	if (!identify_nsid_is_valid(ctrlr, cmd->nsid)) {
		identify_answer_invalid_ns(req);
		return;
	}
	if (ns == NULL) { /* zeroes, as for CNS 00h */
		identify_answer_zeroes(req);
		return;
	}
	id.nmic = NVME_NS_NMIC_SHARED;
	id.rescap = identify_rescap(ctrlr, ns);
	id.anagrpid = ns->subsystem->ana_reporting ? htole32(ns->opts.anagrpid) : 0;
	id.nsattr = bdev_read_only(ns->bdev) ? NVME_NS_NSATTR_WRITE_PROTECTED : 0;
	id.nstat = 1; /* ready */
	nvmf_window_put(&w, 0, &id, sizeof(id));
	nvmf_request_answer(req, NVME_ST_SUCCESS);
}

/* ---- Of the NVM command set ---- */

static bool identify_csi_is_nvm(struct nvmf_request *req, const struct nvmf_identify *cmd)
{
	if (cmd->csi == NVME_CSI_NVM) {
		return true;
	}
	nvmf_request_answer_at(req, NVME_ST_DNR(GENERIC, INVALID_FIELD), WHERE_CSI);
	return false;
}

/* All zeroes but for the format of protection information. */
static void identify_nvm_ns(struct nvmf_request *req, const struct nvmf_identify *cmd)
{
	const struct nvmf_ctrlr *ctrlr = nvmf_request_ctrlr(req);
	struct nvmf_window w = {.req = req};
	struct nvme_nvm_id_ns id = {0};

	if (!identify_csi_is_nvm(req, cmd)) {
		return;
	}
	if (!identify_nsid_is_valid(ctrlr, cmd->nsid)) {
		identify_answer_invalid_ns(req);
		return;
	}
	const struct nvmf_ns *ns = nvmf_ctrlr_visible_ns(ctrlr, cmd->nsid);
	if (ns != NULL) {
		nvmf_md_identify_nvm(ctrlr->transport, ns, &id);
	}
	nvmf_window_put(&w, 0, &id, sizeof(id));
	nvmf_request_answer(req, NVME_ST_SUCCESS);
}

/* Only their own fields limit Verify, Write Uncorrectable, the number of a deallocation's ranges and their sum. */
static void identify_nvm_ctrlr(struct nvmf_request *req, const struct nvmf_identify *cmd)
{
	const struct nvmf_subsystem *s = nvmf_request_ctrlr(req)->subsystem;
	const struct nvme_id_ctrl_nvm id = {.wzsl = s->wzsl, .dmrsl = htole32(s->dmrsl)};
	struct nvmf_window w = {.req = req};

	if (identify_csi_is_nvm(req, cmd)) {
		nvmf_window_put(&w, 0, &id, sizeof(id));
		nvmf_request_answer(req, NVME_ST_SUCCESS);
	}
}

static void identify_nvm_active_list(struct nvmf_request *req, const struct nvmf_identify *cmd)
{
	if (identify_csi_is_nvm(req, cmd)) {
		identify_active_list(req, cmd);
	}
}

/* ---- Controller lists ---- */

/* Sorted by id, from CNTID on. */
static void identify_answer_ctrlr_list(struct nvmf_request *req, const struct nvmf_identify *cmd, uint32_t nsid)
{
	const struct nvmf_subsystem *s = nvmf_request_ctrlr(req)->subsystem;
	bool present[UINT16_MAX + 1] = {false};
	struct nvmf_window w = {.req = req};
	struct nvme_ctrl_list list = {0};
	const struct nvmf_ctrlr *ctrlr;
	unsigned n = 0;

	TAILQ_FOREACH (ctrlr, &s->ctrlrs, link) {
		present[ctrlr->cntlid] = nsid == 0 || nvmf_ctrlr_sees(ctrlr, nsid);
	}
	for (uint32_t id = cmd->cntid; id <= s->max_cntlid && n < NVME_ID_CTRL_LIST_MAX; id++) {
		if (present[id]) {
			list.identifier[n++] = htole16((uint16_t)id);
		}
	}
	list.num = htole16((uint16_t)n);
	nvmf_window_put(&w, 0, &list, sizeof(list));
	nvmf_request_answer(req, NVME_ST_SUCCESS);
}

static void identify_ctrlr_list(struct nvmf_request *req, const struct nvmf_identify *cmd)
{
	identify_answer_ctrlr_list(req, cmd, 0);
}

static void identify_ns_ctrlr_list(struct nvmf_request *req, const struct nvmf_identify *cmd)
{
	if (nvmf_ctrlr_visible_ns(nvmf_request_ctrlr(req), cmd->nsid) == NULL) {
		identify_answer_invalid_ns(req);
		return;
	}
	identify_answer_ctrlr_list(req, cmd, cmd->nsid);
}

static const struct {
	void (*fn)(struct nvmf_request *req, const struct nvmf_identify *cmd);
	bool discovery;
} structures[] = {
	[NVME_IDENTIFY_CNS_NS] = {identify_ns, false},
	[NVME_IDENTIFY_CNS_CTRL] = {identify_ctrlr, true},
	[NVME_IDENTIFY_CNS_NS_ACTIVE_LIST] = {identify_active_list, false},
	[NVME_IDENTIFY_CNS_NS_DESC_LIST] = {identify_descriptors, false},
	[NVME_IDENTIFY_CNS_CSI_NS] = {identify_nvm_ns, false},
	[NVME_IDENTIFY_CNS_CSI_CTRL] = {identify_nvm_ctrlr, false},
	[NVME_IDENTIFY_CNS_CSI_NS_ACTIVE_LIST] = {identify_nvm_active_list, false},
	[NVME_IDENTIFY_CNS_CSI_INDEPENDENT_ID_NS] = {identify_independent, false},
	[NVME_IDENTIFY_CNS_NS_CTRL_LIST] = {identify_ns_ctrlr_list, false},
	[NVME_IDENTIFY_CNS_CTRL_LIST] = {identify_ctrlr_list, false},
};

void nvmf_identify_run(struct nvmf_request *req)
{
	bool discovery = nvmf_request_ctrlr(req)->subsystem->subtype == NVMF_SUBTYPE_DISCOVERY;
	struct nvmf_identify cmd;
	uint16_t where;
	uint16_t status = nvmf_decode_identify(req->sqe, &cmd, &where);

	if (status == NVME_ST_SUCCESS && (cmd.cns >= ARRAY_SIZE(structures) || structures[cmd.cns].fn == NULL ||
					  (discovery && !structures[cmd.cns].discovery))) {
		status = NVME_ST_DNR(GENERIC, INVALID_FIELD);
		where = WHERE_CNS;
	}
	if (status != NVME_ST_SUCCESS) {
		nvmf_request_answer_at(req, status, where);
		return;
	}
	structures[cmd.cns].fn(req, &cmd);
}
