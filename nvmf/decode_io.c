/* SPDX-License-Identifier: BSD-3-Clause */
/* I/O commands of the NVM command set: NVM 3.2. */
#include <string.h>
#include "nvmf/decode.h"

#define WHERE_SLBA NVMF_WHERE_CDW10
#define WHERE_NLB  NVMF_WHERE_CDW12

static bool range_fits(uint64_t slba, uint64_t count, const struct nvmf_geometry *geo)
{
	return count <= geo->num_blocks && slba <= geo->num_blocks - count;
}

static uint16_t decode_range(const struct nvme_sqe *sqe, const struct nvmf_geometry *geo, struct nvmf_lba_range *out,
			     uint16_t *where)
{
	out->slba = le32toh(sqe->cdw10) | (uint64_t)le32toh(sqe->cdw11) << 32;
	out->num_blocks = (le32toh(sqe->cdw12) & 0xffff) + 1;
	if (!range_fits(out->slba, out->num_blocks, geo)) {
		*where = WHERE_SLBA;
		return NVME_ST_DNR(GENERIC, LBA_RANGE);
	}
	return NVME_ST_SUCCESS;
}

uint16_t nvmf_decode_rw(const struct nvme_sqe *sqe, const struct nvmf_geometry *geo, struct nvmf_lba_range *out,
			uint16_t *where)
{
	uint16_t status = decode_range(sqe, geo, out, where);

	if (status == NVME_ST_SUCCESS && ((uint64_t)out->num_blocks << geo->block_shift) > geo->max_transfer_bytes) {
		*where = WHERE_NLB;
		return NVME_ST_DNR(GENERIC, INVALID_FIELD);
	}
	return status;
}

/* NLB has 16 bits and blocks have at most 64 KiB: no command exceeds 4096 << 20 bytes. */
#define WZSL_NO_LIMIT 20

uint16_t nvmf_decode_write_zeroes(const struct nvme_sqe *sqe, const struct nvmf_geometry *geo, uint8_t wzsl,
				  struct nvmf_lba_range *out, bool *deallocate, uint16_t *where)
{
	uint16_t status = decode_range(sqe, geo, out, where);

	*deallocate = (le32toh(sqe->cdw12) >> 16 & NVME_IO_DEAC) != 0;
	if (status == NVME_ST_SUCCESS && wzsl != 0 && wzsl < WZSL_NO_LIMIT &&
	    (uint64_t)out->num_blocks << geo->block_shift > UINT64_C(4096) << wzsl) {
		*where = WHERE_NLB;
		return NVME_ST_DNR(GENERIC, INVALID_FIELD);
	}
	return status;
}

uint16_t nvmf_decode_blocks(const struct nvme_sqe *sqe, const struct nvmf_geometry *geo, struct nvmf_lba_range *out,
			    uint16_t *where)
{
	return decode_range(sqe, geo, out, where);
}

/* ---- Copy: NVM 3.2.2 ---- */

#define COPY_RANGE_BYTES_MAX (UINT32_C(8) << 20)
#define COPY_BYTES_MAX       (UINT32_C(64) << 20)
#define WHERE_NR             NVMF_WHERE_CDW12
#define WHERE_FORMAT         NVMF_WHERE(49, 0)

struct nvmf_copy_limits nvmf_copy_limits(uint8_t block_shift)
{
	return (struct nvmf_copy_limits){.range_blocks = (uint16_t)(COPY_RANGE_BYTES_MAX >> block_shift),
					 .blocks = COPY_BYTES_MAX >> block_shift};
}
_Static_assert(COPY_RANGE_BYTES_MAX >> 9 <= UINT16_MAX, "MSSRL has 16 bits");

uint16_t nvmf_decode_copy(const struct nvme_sqe *sqe, struct nvmf_copy *out, uint16_t *where)
{
	uint32_t cdw12 = le32toh(sqe->cdw12);

	out->to = le32toh(sqe->cdw10) | (uint64_t)le32toh(sqe->cdw11) << 32;
	out->num_ranges = (uint16_t)((cdw12 & 0xff) + 1);
	out->format = cdw12 >> 8 & 0xf;
	out->range_bytes = out->format == 0 ? sizeof(struct nvme_copy_range) : sizeof(struct nvme_copy_range_f1);
	if (out->format > 1) { /* OCFS */
		*where = WHERE_FORMAT;
		return NVME_ST_DNR(GENERIC, INVALID_FIELD);
	}
	if (out->num_ranges > NVMF_COPY_RANGES_MAX) {
		*where = WHERE_NR;
		return NVME_ST_DNR(CMD_SPECIFIC, CMD_SIZE_LIMIT_EXCEEDED);
	}
	return NVME_ST_SUCCESS;
}

/* Format 1 is that of namespaces with longer tags: its ranges have room for them (NVM 3.2.2). */
uint16_t nvmf_decode_copy_format(const struct nvmf_copy *copy, uint8_t pi_format, uint16_t *where)
{
	if (copy->format == (pi_format != NVME_PI_GUARD_16)) {
		return NVME_ST_SUCCESS;
	}
	*where = WHERE_FORMAT;
	return NVME_ST_DNR(GENERIC, INVALID_NS);
}

_Static_assert(offsetof(struct nvme_copy_range, slba) == offsetof(struct nvme_copy_range_f1, slba) &&
		       offsetof(struct nvme_copy_range, nlb) == offsetof(struct nvme_copy_range_f1, nlb),
	       "NVM 3.2.2: the formats differ in the tags");

void nvmf_decode_copy_range(const struct nvme_copy_range *range, struct nvmf_lba_range *out)
{
	out->slba = le64toh(range->slba);
	out->num_blocks = le16toh(range->nlb) + UINT32_C(1);
}

static struct nvmf_lba_range copy_nth_range(const void *data, const struct nvmf_copy *copy, unsigned n)
{
	struct nvme_copy_range range;
	struct nvmf_lba_range out;

	memcpy(&range, (const uint8_t *)data + (size_t)n * copy->range_bytes, sizeof(range));
	nvmf_decode_copy_range(&range, &out);
	return out;
}

/* The sizes of the ranges are checked first, because they do not depend on the namespace. */
static uint16_t copy_check_sizes(const void *data, const struct nvmf_copy *copy, const struct nvmf_geometry *geo,
				 uint64_t *total)
{
	struct nvmf_copy_limits limits = nvmf_copy_limits(geo->block_shift);

	*total = 0;
	for (unsigned i = 0; i < copy->num_ranges; i++) {
		uint32_t blocks = copy_nth_range(data, copy, i).num_blocks;
		*total += blocks;
		if (blocks > limits.range_blocks || *total > limits.blocks) {
			return NVME_ST_DNR(CMD_SPECIFIC, CMD_SIZE_LIMIT_EXCEEDED);
		}
	}
	return NVME_ST_SUCCESS;
}

uint16_t nvmf_decode_copy_ranges(const void *data, const struct nvmf_copy *copy, const struct nvmf_geometry *geo,
				 uint16_t *where)
{
	uint64_t total;
	uint16_t status = copy_check_sizes(data, copy, geo, &total);

	*where = NVMF_WHERE_NOWHERE;
	if (status != NVME_ST_SUCCESS) {
		return status;
	}
	if (!range_fits(copy->to, total, geo)) {
		*where = WHERE_SLBA;
		return NVME_ST_DNR(GENERIC, LBA_RANGE);
	}
	for (unsigned i = 0; i < copy->num_ranges; i++) {
		struct nvmf_lba_range from = copy_nth_range(data, copy, i);
		if (!range_fits(from.slba, from.num_blocks, geo)) {
			return NVME_ST_DNR(GENERIC, LBA_RANGE);
		}
		if (from.slba < copy->to + total && copy->to < from.slba + from.num_blocks) {
			return NVME_ST_DNR(CMD_SPECIFIC, OVERLAPPING_IO_RANGE);
		}
	}
	return NVME_ST_SUCCESS;
}

void nvmf_decode_dsm(const struct nvme_sqe *sqe, struct nvmf_dsm *out)
{
	out->num_ranges = (uint16_t)((le32toh(sqe->cdw10) & 0xff) + 1);
	out->deallocate = (le32toh(sqe->cdw11) & NVME_DSMGMT_AD) != 0;
}

uint16_t nvmf_decode_dsm_range(const void *data, unsigned index, const struct nvmf_geometry *geo, uint32_t dmrsl,
			       struct nvmf_lba_range *out, uint16_t *where)
{
	struct nvme_dsm_range range;

	memcpy(&range, (const uint8_t *)data + index * sizeof(range), sizeof(range));
	out->slba = le64toh(range.slba);
	out->num_blocks = le32toh(range.nlb);
	*where = NVMF_WHERE_NOWHERE;
	if (dmrsl != 0 && out->num_blocks > dmrsl) {
		return NVME_ST_DNR(CMD_SPECIFIC, CMD_SIZE_LIMIT_EXCEEDED);
	}
	if (!range_fits(out->slba, out->num_blocks, geo)) {
		return NVME_ST_DNR(GENERIC, LBA_RANGE);
	}
	return NVME_ST_SUCCESS;
}
