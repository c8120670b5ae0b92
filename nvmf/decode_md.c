/* SPDX-License-Identifier: BSD-3-Clause */
/* Metadata and protection information fields: NVM 5.2, and dwords 12, 14 and 15 of I/O commands. */
#include "nvmf/decode.h"

#define WHERE_PRINFO NVMF_WHERE(51, 2)

static uint64_t pi_ref_mask(const struct nvmf_geometry *geo)
{
	return nvme_low_bits(NVME_PI_SPACE_BITS(geo->pi_format) - geo->storage_bits);
}

uint16_t nvmf_decode_pi(const struct nvme_sqe *sqe, const struct nvmf_geometry *geo, struct nvmf_pi *out,
			uint16_t *where)
{
	uint32_t cdw12 = le32toh(sqe->cdw12), cdw15 = le32toh(sqe->cdw15);
	uint64_t slba = (uint64_t)le32toh(sqe->cdw11) << 32 | le32toh(sqe->cdw10);

	*out = (struct nvmf_pi){.act = (cdw12 & NVME_PI_ACT) != 0,
				.check_guard = (cdw12 & NVME_PI_CHECK_GUARD) != 0,
				.check_app = (cdw12 & NVME_PI_CHECK_APP) != 0,
				.check_ref = (cdw12 & NVME_PI_CHECK_REF) != 0,
				.check_storage = (cdw12 & NVME_PI_CHECK_STORAGE) != 0,
				.app = (uint16_t)cdw15,
				.app_mask = (uint16_t)(cdw15 >> 16)};
	if (geo->pi_type == 0) { /* the fields are ignored then */
		*out = (struct nvmf_pi){.act = false};
		return NVME_ST_SUCCESS;
	}
	out->ref = nvme_pi_space(sqe, geo->pi_format, &out->storage);
	/* With type 1 the reference tag is the LBA, as much of it as there is room for. With type 3 it cannot be
	 * checked. */
	if (out->check_ref && geo->pi_type == 1 && ((out->ref ^ slba) & pi_ref_mask(geo)) != 0) {
		*where = NVMF_WHERE_CDW14;
		return NVME_ST_DNR(CMD_SPECIFIC, INVALID_PI);
	}
	if (out->check_ref && geo->pi_type == 3) {
		*where = WHERE_PRINFO;
		return NVME_ST_DNR(CMD_SPECIFIC, INVALID_PI);
	}
	return NVME_ST_SUCCESS;
}

uint16_t nvmf_decode_rw_md(const struct nvme_sqe *sqe, const struct nvmf_geometry *geo, struct nvmf_lba_range *out,
			   struct nvmf_pi *pi, uint64_t *bytes, uint16_t *where)
{
	uint32_t md = geo->md_eighths * UINT32_C(8);
	uint16_t status = nvmf_decode_rw(sqe, geo, out, where);

	if (status == NVME_ST_SUCCESS) {
		status = nvmf_decode_pi(sqe, geo, pi, where);
	}
	if (status != NVME_ST_SUCCESS) {
		return status;
	}
	/* Metadata that consists of protection information only is not transferred if the controller generates or
	 * strips it. */
	if (pi->act && md == NVME_PI_BYTES(geo->pi_format)) {
		md = 0;
	}
	*bytes = ((uint64_t)out->num_blocks << geo->block_shift) + (uint64_t)out->num_blocks * md;
	if (*bytes > geo->max_transfer_bytes) {
		*where = NVMF_WHERE_CDW12;
		return NVME_ST_DNR(GENERIC, INVALID_FIELD);
	}
	return NVME_ST_SUCCESS;
}
