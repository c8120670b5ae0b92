/* SPDX-License-Identifier: BSD-3-Clause */
/* Any bytes as a capsule: no decoder reads outside them, and what they accept keeps its promises.
 * Input: one byte of rules, then the command (64 bytes), then the capsule's data. */
#include <stdlib.h>
#include <string.h>
#include "nvmf/decode.h"

static void expect(bool truth)
{
	if (!truth) {
		abort();
	}
}

static void walk(const struct nvmf_sgl *sgl, size_t icd_len, uint32_t need)
{
	struct nvmf_sgl_iter it = nvmf_sgl_iter(sgl);
	struct nvmf_sgl_block block;
	uint64_t total = 0;
	unsigned count = 0;

	expect(sgl->length >= need);
	if (sgl->kind == NVMF_SGL_IN_CAPSULE) {
		expect(sgl->icd_offset + sgl->length <= icd_len);
	}
	if (sgl->kind != NVMF_SGL_KEYED) {
		return;
	}
	while (nvmf_sgl_next(&it, &block)) {
		total += block.length;
		count++;
	}
	expect(total == sgl->length && count == sgl->num_descs);
}

static void decode_commands(const struct nvme_sqe *sqe, const void *icd, size_t icd_len)
{
	struct nvmf_geometry geo = {.num_blocks = 1000, .max_transfer_bytes = 1 << 17, .block_shift = 12};
	struct nvmf_connect_fault fault;
	struct nvmf_connect connect;
	struct nvmf_property property;
	struct nvmf_identify identify;
	struct nvmf_get_log log;
	struct nvmf_feature feature;
	struct nvmf_abort abort_cmd;
	struct nvmf_lba_range range;
	struct nvmf_dsm dsm;
	uint16_t where;
	bool deallocate;

	if (nvmf_decode_connect((const void *)sqe, icd, icd_len, &connect, &fault) == 0) {
		expect(strlen(connect.subnqn) <= NVMF_NQN_MAX && strlen(connect.hostnqn) <= NVMF_NQN_MAX);
		expect(connect.sqsize >= 2);
		nvmf_nqn_is_valid(connect.subnqn);
	}
	nvmf_decode_property_get((const void *)sqe, &property, &where);
	nvmf_decode_property_set((const void *)sqe, &property, &where);
	nvmf_decode_identify(sqe, &identify, &where);
	if (nvmf_decode_get_log(sqe, &log, &where) == 0) {
		expect(log.offset % 4 == 0 && log.length >= 4);
	}
	nvmf_decode_get_features(sqe, &feature, &where);
	nvmf_decode_set_features(sqe, &feature, &where);
	nvmf_decode_abort(sqe, &abort_cmd);
	if (nvmf_decode_rw(sqe, &geo, &range, &where) == 0) {
		expect(range.num_blocks >= 1 && range.slba + range.num_blocks <= geo.num_blocks);
		expect((uint64_t)range.num_blocks << geo.block_shift <= geo.max_transfer_bytes);
	}
	if (nvmf_decode_write_zeroes(sqe, &geo, &range, &deallocate, &where) == 0) {
		expect(range.slba + range.num_blocks <= geo.num_blocks);
	}
	nvmf_decode_dsm(sqe, &dsm);
	for (unsigned i = 0; i < dsm.num_ranges && (i + 1) * sizeof(struct nvme_dsm_range) <= icd_len; i++) {
		if (nvmf_decode_dsm_range(icd, i, &geo, &range, &where) == 0) {
			expect(range.slba + range.num_blocks <= geo.num_blocks);
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint16_t where;

	if (size < 1 + sizeof(struct nvme_sqe)) {
		expect(nvmf_decode_header(data, size < 64 ? size : 63, &where) != 0);
		return 0;
	}
	/* Blocks of their exact size, so that a read beyond one is seen. */
	size_t icd_len = size - 1 - sizeof(struct nvme_sqe);
	struct nvme_sqe *sqe = malloc(sizeof(*sqe));
	uint8_t *icd = malloc(icd_len);
	struct nvmf_sgl_rules rules = {.in_capsule = data[0] & 1,
				       .keyed = data[0] & 2,
				       .transport = data[0] & 4,
				       .max_descs = data[0] >> 3};
	struct nvmf_sgl sgl;

	memcpy(sqe, data + 1, sizeof(*sqe));
	memcpy(icd, data + 1 + sizeof(*sqe), icd_len);
	nvmf_decode_header(sqe, sizeof(*sqe), &where);
	if (nvmf_decode_sgl(sqe, icd, icd_len, &rules, data[0] & 0x80, 4096, &sgl, &where) == 0) {
		walk(&sgl, icd_len, 4096);
	}
	decode_commands(sqe, icd, icd_len);
	free(icd);
	free(sqe);
	return 0;
}
