/* SPDX-License-Identifier: BSD-3-Clause */
/* The model's protection information (NVM 5.2): 16-bit guards, reference tags of type 1, generated and checked by the controller. */
#include "unittest/nvme/model_internal.h"

#define POLYNOMIAL 0x8bb7 /* of T10's CRC */

struct tuple {
	__be16 guard, app;
	__be32 ref;
};

uint16_t model_pi_guard(const uint8_t *data, size_t len)
{
	uint16_t crc = 0;

	for (size_t i = 0; i < len; i++) {
		crc ^= (uint16_t)(data[i] << 8);
		for (unsigned bit = 0; bit < 8; bit++) {
			crc = (uint16_t)(crc & 0x8000 ? crc << 1 ^ POLYNOMIAL : crc << 1);
		}
	}
	return crc;
}

void model_pi_generate(const struct nvme_sqe *sqe, struct model_ns *ns, uint64_t lba, uint32_t blocks)
{
	for (uint32_t i = 0; i < blocks; i++) {
		*(struct tuple *)(ns->md + (lba + i) * ns->md_size) = (struct tuple){
			.guard = htobe16(model_pi_guard(ns->data + ((lba + i) << ns->block_shift), (size_t)1 << ns->block_shift)),
			.app = htobe16((uint16_t)le32toh(sqe->cdw15)),
			.ref = htobe32(le32toh(sqe->cdw14) + i),
		};
	}
}

uint16_t model_pi_check(const struct nvme_sqe *sqe, const struct model_ns *ns, uint64_t lba, uint32_t blocks)
{
	uint32_t how = le32toh(sqe->cdw12);

	for (uint32_t i = 0; i < blocks; i++) {
		const struct tuple *t = (const struct tuple *)(ns->md + (lba + i) * ns->md_size);
		if (t->app == UINT16_MAX) { /* checks are off */
			continue;
		}
		if ((how & NVME_PI_CHECK_GUARD) && be16toh(t->guard) != model_pi_guard(ns->data + ((lba + i) << ns->block_shift),
										      (size_t)1 << ns->block_shift)) {
			return NVME_ST(MEDIA, GUARD_CHECK);
		}
		if ((how & NVME_PI_CHECK_REF) && be32toh(t->ref) != le32toh(sqe->cdw14) + i) {
			return NVME_ST(MEDIA, REFTAG_CHECK);
		}
	}
	return 0;
}
