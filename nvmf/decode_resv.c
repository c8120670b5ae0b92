/* SPDX-License-Identifier: BSD-3-Clause */
/* Reservation commands: Base 7.2 to 7.5. */
#include <string.h>
#include "nvmf/decode.h"

#define WHERE_ACTION NVMF_WHERE_CDW10
#define WHERE_IEKEY  NVMF_WHERE(40, 3)
#define WHERE_RTYPE  NVMF_WHERE(41, 0)
#define WHERE_CPTPL  NVMF_WHERE(43, 6)

static uint64_t resv_decode_key(const void *data, size_t offset)
{
	uint64_t le;

	memcpy(&le, (const uint8_t *)data + offset, sizeof(le));
	return le64toh(le);
}

static uint8_t resv_decode_action(const struct nvme_sqe *sqe)
{
	return le32toh(sqe->cdw10) & 0x7;
}

static bool resv_decode_iekey(const struct nvme_sqe *sqe)
{
	return (le32toh(sqe->cdw10) >> 3 & 1) != 0;
}

static uint8_t resv_decode_type(const struct nvme_sqe *sqe)
{
	return (uint8_t)(le32toh(sqe->cdw10) >> 8);
}

uint16_t nvmf_decode_resv_register(const struct nvme_sqe *sqe, const void *data, struct nvmf_resv_register *out,
				   uint16_t *where)
{
	*out = (struct nvmf_resv_register){
		.action = resv_decode_action(sqe),
		.ignore_key = resv_decode_iekey(sqe),
		.change_ptpl = (uint8_t)(le32toh(sqe->cdw10) >> 30),
		.crkey = resv_decode_key(data, 0),
		.nrkey = resv_decode_key(data, 8),
	};
	if (out->action > NVME_RESERVATION_RREGA_REPLACE_KEY) {
		return nvmf_bad_field(where, WHERE_ACTION);
	}
	return out->change_ptpl != 1 ? NVME_ST_SUCCESS : nvmf_bad_field(where, WHERE_CPTPL);
}

/* The existing key cannot be ignored (Base 7.2; RESCAP bit 7). */
uint16_t nvmf_decode_resv_acquire(const struct nvme_sqe *sqe, const void *data, struct nvmf_resv_acquire *out,
				  uint16_t *where)
{
	*out = (struct nvmf_resv_acquire){
		.action = resv_decode_action(sqe),
		.type = resv_decode_type(sqe),
		.crkey = resv_decode_key(data, 0),
		.prkey = resv_decode_key(data, 8),
	};
	if (out->action > NVME_RESERVATION_RACQA_PREEMPT_AND_ABORT) {
		return nvmf_bad_field(where, WHERE_ACTION);
	}
	if (resv_decode_iekey(sqe)) {
		return nvmf_bad_field(where, WHERE_IEKEY);
	}
	return out->type != 0 && out->type <= NVME_RESERVATION_RTYPE_EAAR ? NVME_ST_SUCCESS
									  : nvmf_bad_field(where, WHERE_RTYPE);
}

/* IEKEY makes no difference here: the key is checked anyway. Linux before 6.0 sets it where it gives the right key. */
uint16_t nvmf_decode_resv_release(const struct nvme_sqe *sqe, const void *data, struct nvmf_resv_release *out,
				  uint16_t *where)
{
	*out = (struct nvmf_resv_release){
		.action = resv_decode_action(sqe),
		.type = resv_decode_type(sqe),
		.crkey = resv_decode_key(data, 0),
	};
	return out->action <= NVME_RESERVATION_RRELA_CLEAR ? NVME_ST_SUCCESS : nvmf_bad_field(where, WHERE_ACTION);
}

/* Host identifiers have 128 bits, which only the extended data structure can hold. */
uint16_t nvmf_decode_resv_report(const struct nvme_sqe *sqe, struct nvmf_resv_report *out, uint16_t *where)
{
	*out = (struct nvmf_resv_report){.length = ((uint64_t)le32toh(sqe->cdw10) + 1) * 4};
	if ((le32toh(sqe->cdw11) & 1) == 0) {
		*where = NVMF_WHERE_CDW11;
		return NVME_ST_DNR(GENERIC, HOSTID_FORMAT);
	}
	return NVME_ST_SUCCESS;
}
