/* SPDX-License-Identifier: BSD-3-Clause */
/* Identify, Get Log Page, Get and Set Features, Abort: Base 5.17, 5.16, 5.15, 5.27, 5.1. Cross-Controller Reset:
 * TP8028. */
#include "nvmf/decode.h"

/* There is no UUID list (CTRATT bit 9 is 0), so a command may not select a UUID (Base 8.25). */
static uint16_t decode_uuid_index(uint8_t index, uint16_t *where)
{
	return index == 0 ? NVME_ST_SUCCESS : nvmf_bad_field(where, NVMF_WHERE_CDW14);
}

uint16_t nvmf_decode_identify(const struct nvme_sqe *sqe, struct nvmf_identify *out, uint16_t *where)
{
	uint32_t cdw10 = le32toh(sqe->cdw10), cdw11 = le32toh(sqe->cdw11);

	*out = (struct nvmf_identify){
		.cns = (uint8_t)cdw10,
		.cntid = (uint16_t)(cdw10 >> 16),
		.cns_specific = (uint16_t)cdw11,
		.csi = (uint8_t)(cdw11 >> 24),
		.uuid_index = le32toh(sqe->cdw14) & 0x7f,
		.nsid = le32toh(sqe->nsid),
	};
	return decode_uuid_index(out->uuid_index, where);
}

uint16_t nvmf_decode_get_log(const struct nvme_sqe *sqe, struct nvmf_get_log *out, uint16_t *where)
{
	uint32_t cdw10 = le32toh(sqe->cdw10), cdw11 = le32toh(sqe->cdw11), cdw14 = le32toh(sqe->cdw14);
	uint32_t numd = cdw10 >> 16 | (cdw11 & 0xffff) << 16;

	*out = (struct nvmf_get_log){
		.lid = (uint8_t)cdw10,
		.lsp = (cdw10 >> 8) & 0x7f,
		.rae = (cdw10 >> 15) & 1,
		.lsi = (uint16_t)(cdw11 >> 16),
		.offset = le32toh(sqe->cdw12) | (uint64_t)le32toh(sqe->cdw13) << 32,
		.length = ((uint64_t)numd + 1) * 4,
		.csi = (uint8_t)(cdw14 >> 24),
		.uuid_index = cdw14 & 0x7f,
		.nsid = le32toh(sqe->nsid),
	};
	/* Bit 23 makes the offset an index into a list; no log page supports that (Supported Log Pages bit 1). */
	if (cdw14 & (UINT32_C(1) << 23)) {
		return nvmf_bad_field(where, NVMF_WHERE(58, 7));
	}
	if (out->offset % 4 != 0) {
		return nvmf_bad_field(where, NVMF_WHERE_CDW12);
	}
	return decode_uuid_index(out->uuid_index, where);
}

static void decode_feature(const struct nvme_sqe *sqe, struct nvmf_feature *out)
{
	*out = (struct nvmf_feature){
		.fid = (uint8_t)le32toh(sqe->cdw10),
		.uuid_index = le32toh(sqe->cdw14) & 0x7f,
		.nsid = le32toh(sqe->nsid),
		.cdw11 = le32toh(sqe->cdw11),
	};
}

uint16_t nvmf_decode_get_features(const struct nvme_sqe *sqe, struct nvmf_feature *out, uint16_t *where)
{
	decode_feature(sqe, out);
	out->select = (le32toh(sqe->cdw10) >> 8) & 0x7;
	if (out->select > NVME_GET_FEATURES_SEL_SUPPORTED) {
		return nvmf_bad_field(where, NVMF_WHERE(41, 0));
	}
	return decode_uuid_index(out->uuid_index, where);
}

uint16_t nvmf_decode_set_features(const struct nvme_sqe *sqe, struct nvmf_feature *out, uint16_t *where)
{
	decode_feature(sqe, out);
	out->save = le32toh(sqe->cdw10) >> 31;
	return decode_uuid_index(out->uuid_index, where);
}

uint32_t nvmf_feature_data_length(uint8_t fid, uint32_t cdw11)
{
	switch (fid) {
	case NVME_FEAT_FID_HOST_ID: /* EXHID: 16 bytes, else 8 (Base 5.27.1.25) */
		return cdw11 & 1 ? 16 : 8;
	case NVME_FEAT_FID_HOST_BEHAVIOR:
		return sizeof(struct nvme_feat_host_behavior);
	default:
		return 0;
	}
}

void nvmf_decode_abort(const struct nvme_sqe *sqe, struct nvmf_abort *out)
{
	uint32_t cdw10 = le32toh(sqe->cdw10);

	out->sqid = (uint16_t)cdw10;
	out->cid = (uint16_t)(cdw10 >> 16);
}

uint16_t nvmf_decode_cross_reset(const struct nvme_sqe *sqe, struct nvmf_ctrlr_name *out, uint16_t *where)
{
	uint32_t cdw10 = le32toh(sqe->cdw10);

	*out = (struct nvmf_ctrlr_name){
		.cntlid = (uint16_t)cdw10,
		.ciu = (uint8_t)(cdw10 >> 16),
		.cirn = le32toh(sqe->cdw12) | (uint64_t)le32toh(sqe->cdw13) << 32,
	};
	if (out->ciu == 0) {
		return nvmf_bad_field(where, NVMF_WHERE(42, 0));
	}
	return out->cirn != 0 ? NVME_ST_SUCCESS : nvmf_bad_field(where, NVMF_WHERE_CDW12);
}
