/* SPDX-License-Identifier: BSD-3-Clause */
/* I/O commands against a namespace: NVM 3.2. */
#include <string.h>
#include "nvmf/decode.h"

#define WHERE_SLBA NVMF_WHERE_CDW10
#define WHERE_NLB  NVMF_WHERE_CDW12

static bool range_fits(uint64_t slba, uint64_t count, const struct nvmf_geometry *geo)
{
	return count <= geo->num_blocks && slba <= geo->num_blocks - count;
}

static uint16_t decode_range(const struct nvme_sqe *sqe, const struct nvmf_geometry *geo,
			     struct nvmf_lba_range *out, uint16_t *where)
{
	out->slba = le32toh(sqe->cdw10) | (uint64_t)le32toh(sqe->cdw11) << 32;
	out->num_blocks = (le32toh(sqe->cdw12) & 0xffff) + 1;
	if (!range_fits(out->slba, out->num_blocks, geo)) {
		*where = WHERE_SLBA;
		return NVME_ST_DNR(GENERIC, LBA_RANGE);
	}
	return NVME_ST_SUCCESS;
}

uint16_t nvmf_decode_rw(const struct nvme_sqe *sqe, const struct nvmf_geometry *geo,
			struct nvmf_lba_range *out, uint16_t *where)
{
	uint16_t status = decode_range(sqe, geo, out, where);

	if (status == NVME_ST_SUCCESS &&
	    ((uint64_t)out->num_blocks << geo->block_shift) > geo->max_transfer_bytes) {
		*where = WHERE_NLB;
		return NVME_ST_DNR(GENERIC, INVALID_FIELD);
	}
	return status;
}

uint16_t nvmf_decode_write_zeroes(const struct nvme_sqe *sqe, const struct nvmf_geometry *geo,
				  struct nvmf_lba_range *out, bool *deallocate, uint16_t *where)
{
	*deallocate = (le32toh(sqe->cdw12) >> 16 & NVME_IO_DEAC) != 0;
	return decode_range(sqe, geo, out, where);
}

void nvmf_decode_dsm(const struct nvme_sqe *sqe, struct nvmf_dsm *out)
{
	out->num_ranges = (uint16_t)((le32toh(sqe->cdw10) & 0xff) + 1);
	out->deallocate = (le32toh(sqe->cdw11) & NVME_DSMGMT_AD) != 0;
}

uint16_t nvmf_decode_dsm_range(const void *data, unsigned index, const struct nvmf_geometry *geo,
			       struct nvmf_lba_range *out, uint16_t *where)
{
	struct nvme_dsm_range range;

	memcpy(&range, (const uint8_t *)data + index * sizeof(range), sizeof(range));
	out->slba = le64toh(range.slba);
	out->num_blocks = le32toh(range.nlb);
	if (!range_fits(out->slba, out->num_blocks, geo)) {
		*where = NVMF_WHERE_NOWHERE;
		return NVME_ST_DNR(GENERIC, LBA_RANGE);
	}
	return NVME_ST_SUCCESS;
}
