/* SPDX-License-Identifier: BSD-3-Clause */
/* The model follows data pointers: PRPs (Base 4.1.1) and SGLs (Base 4.1.2). */
#include "unittest/nvme/model_internal.h"

#include <string.h>

#define PAGE 4096u

struct move {
	uint8_t *buf;
	size_t left;
	bool to_host;
};

static void move_piece(struct move *mv, uint64_t addr, size_t len)
{
	void *host = (void *)(uintptr_t)addr;

	len = len < mv->left ? len : mv->left;
	if (mv->to_host) {
		memcpy(host, mv->buf, len);
	} else {
		memcpy(mv->buf, host, len);
	}
	mv->buf += len;
	mv->left -= len;
}

static uint16_t move_by_prps(struct model *m, const struct nvme_sqe *sqe, struct move *mv)
{
	uint64_t prp1 = le64toh(sqe->prp1), prp2 = le64toh(sqe->prp2);

	if (prp1 & 3) {
		model_violation(m, "PRP1 is not aligned to a dword");
		return NVME_ST(GENERIC, INVALID_FIELD);
	}
	move_piece(mv, prp1, PAGE - prp1 % PAGE);
	if (mv->left == 0) {
		return 0;
	}
	if (mv->left <= PAGE) {
		if (prp2 % PAGE != 0) {
			model_violation(m, "PRP2 is not aligned to a page");
			return NVME_ST(GENERIC, INVALID_FIELD);
		}
		move_piece(mv, prp2, PAGE);
		return 0;
	}
	if (prp2 % 8 != 0) {
		model_violation(m, "the PRP list is not aligned to a quadword");
	}
	for (uint64_t at = prp2; mv->left > 0; at += 8) {
		uint64_t page = le64toh(*(const __le64 *)(uintptr_t)at);
		if (at % PAGE == PAGE - 8 && mv->left > PAGE) {
			model_violation(m, "the PRP list goes beyond its page without a pointer to the next");
			return NVME_ST(GENERIC, INVALID_FIELD);
		}
		if (page % PAGE != 0) {
			model_violation(m, "a PRP list entry is not aligned to a page");
			return NVME_ST(GENERIC, INVALID_FIELD);
		}
		move_piece(mv, page, PAGE);
	}
	return 0;
}

static uint16_t move_by_descriptor(struct model *m, const union nvme_sgl_desc *d, struct move *mv)
{
	if (nvme_sgl_type(d) != NVME_SGL_TYPE_DATA_BLOCK || nvme_sgl_subtype(d) != NVME_SGL_SUBTYPE_ADDRESS) {
		model_violation(m, "an SGL descriptor that is no data block");
		return NVME_ST(GENERIC, SGL_INVALID_TYPE);
	}
	if (le32toh(d->plain.length) > mv->left) {
		model_violation(m, "the SGL is longer than the data");
		return NVME_ST(GENERIC, SGL_INVALID_DATA);
	}
	move_piece(mv, le64toh(d->plain.address), le32toh(d->plain.length));
	return 0;
}

static uint16_t move_by_sgl(struct model *m, const struct nvme_sqe *sqe, struct move *mv)
{
	const union nvme_sgl_desc *d = &sqe->sgl1;
	uint16_t status = 0;

	if (!m->sgl_offered) {
		model_violation(m, "an SGL, which was not offered");
		return NVME_ST(GENERIC, INVALID_FIELD);
	}
	if (nvme_sgl_type(d) != NVME_SGL_TYPE_LAST_SEGMENT) {
		status = move_by_descriptor(m, d, mv);
	} else {
		uint32_t n = le32toh(d->plain.length) / 16;
		const union nvme_sgl_desc *list = (const union nvme_sgl_desc *)(uintptr_t)le64toh(d->plain.address);
		for (uint32_t i = 0; i < n && status == 0; i++) {
			status = move_by_descriptor(m, &list[i], mv);
		}
	}
	if (status == 0 && mv->left > 0) {
		model_violation(m, "the SGL is shorter than the data");
		return NVME_ST(GENERIC, SGL_INVALID_DATA);
	}
	return status;
}

uint16_t model_move(struct model *m, const struct nvme_sqe *sqe, void *buf, size_t len, bool to_host)
{
	struct move mv = {.buf = buf, .left = len, .to_host = to_host};

	if (len == 0) {
		return 0;
	}
	if ((sqe->flags & NVME_CMD_FLAGS_PSDT_MASK) == 0) {
		m->prp_commands++;
		return move_by_prps(m, sqe, &mv);
	}
	m->sgl_commands++;
	return move_by_sgl(m, sqe, &mv);
}
