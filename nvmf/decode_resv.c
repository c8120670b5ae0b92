/* SPDX-License-Identifier: BSD-3-Clause */
/* Reservation commands: Base 7.2 to 7.5. */
#include <string.h>
#include "nvmf/decode.h"

#define WHERE_ACTION NVMF_WHERE_CDW10
#define WHERE_IEKEY  NVMF_WHERE(40, 3)
#define WHERE_RTYPE  NVMF_WHERE(41, 0)
#define WHERE_CPTPL  NVMF_WHERE(43, 6)

static uint16_t bad_field(uint16_t *where, uint16_t place)
{
	*where = place;
	return NVME_ST_DNR(GENERIC, INVALID_FIELD);
}

static uint64_t key_at(const void *data, size_t offset)
{
	uint64_t le;

	memcpy(&le, (const uint8_t *)data + offset, sizeof(le));
	return le64toh(le);
}

static uint8_t action_of(const struct nvme_sqe *sqe)
{
	return le32toh(sqe->cdw10) & 0x7;
}

static bool ignores_key(const struct nvme_sqe *sqe)
{
	return (le32toh(sqe->cdw10) >> 3 & 1) != 0;
}

static uint8_t type_of(const struct nvme_sqe *sqe)
{
	return (uint8_t)(le32toh(sqe->cdw10) >> 8);
}

uint16_t nvmf_decode_resv_register(const struct nvme_sqe *sqe, const void *data, struct nvmf_resv_register *out,
				   uint16_t *where)
{
	*out = (struct nvmf_resv_register){
		.action = action_of(sqe),
		.ignore_key = ignores_key(sqe),
		.change_ptpl = (uint8_t)(le32toh(sqe->cdw10) >> 30),
		.crkey = key_at(data, 0),
		.nrkey = key_at(data, 8),
	};
	if (out->action > NVME_RESERVATION_RREGA_REPLACE_KEY) {
		return bad_field(where, WHERE_ACTION);
	}
	return out->change_ptpl != 1 ? NVME_ST_SUCCESS : bad_field(where, WHERE_CPTPL);
}

/* The existing key cannot be ignored (Base 7.2, and RESCAP bit 7 says that we go by that). */
uint16_t nvmf_decode_resv_acquire(const struct nvme_sqe *sqe, const void *data, struct nvmf_resv_acquire *out,
				  uint16_t *where)
{
	*out = (struct nvmf_resv_acquire){
		.action = action_of(sqe),
		.type = type_of(sqe),
		.crkey = key_at(data, 0),
		.prkey = key_at(data, 8),
	};
	if (out->action > NVME_RESERVATION_RACQA_PREEMPT_AND_ABORT) {
		return bad_field(where, WHERE_ACTION);
	}
	if (ignores_key(sqe)) {
		return bad_field(where, WHERE_IEKEY);
	}
	return out->type != 0 && out->type <= NVME_RESERVATION_RTYPE_EAAR ? NVME_ST_SUCCESS
									  : bad_field(where, WHERE_RTYPE);
}

uint16_t nvmf_decode_resv_release(const struct nvme_sqe *sqe, const void *data, struct nvmf_resv_release *out,
				  uint16_t *where)
{
	*out = (struct nvmf_resv_release){
		.action = action_of(sqe),
		.type = type_of(sqe),
		.crkey = key_at(data, 0),
	};
	if (out->action > NVME_RESERVATION_RRELA_CLEAR) {
		return bad_field(where, WHERE_ACTION);
	}
	return ignores_key(sqe) ? bad_field(where, WHERE_IEKEY) : NVME_ST_SUCCESS;
}

/* Our hosts have identifiers of 128 bits, which only the extended data structure can hold. */
uint16_t nvmf_decode_resv_report(const struct nvme_sqe *sqe, struct nvmf_resv_report *out, uint16_t *where)
{
	*out = (struct nvmf_resv_report){.length = ((uint64_t)le32toh(sqe->cdw10) + 1) * 4};
	if ((le32toh(sqe->cdw11) & 1) == 0) {
		*where = NVMF_WHERE_CDW11;
		return NVME_ST_DNR(GENERIC, HOSTID_FORMAT);
	}
	return NVME_ST_SUCCESS;
}
