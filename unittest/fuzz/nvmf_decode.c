/* SPDX-License-Identifier: BSD-3-Clause */
/* Any bytes as a capsule, and as a reservation's file: no decoder reads outside them, and what they accept keeps its
 * promises. Input: one byte of rules, then the command (64 bytes), then the capsule's data. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "nvmf/resv.h"

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

/* Type, format and storage tag in turn: a space of 32, 80 or 48 bits, of which the storage tag is no part. */
static void decode_md_of(const struct nvme_sqe *sqe, const struct nvmf_geometry *geo, unsigned ref_bits)
{
	uint64_t ref_mask = ref_bits == 64 ? UINT64_MAX : (UINT64_C(1) << ref_bits) - 1;
	struct nvmf_lba_range range;
	struct nvmf_pi pi;
	uint64_t bytes;
	uint16_t where;

	if (nvmf_decode_rw_md(sqe, geo, &range, &pi, &bytes, &where) != 0) {
		return;
	}
	uint64_t data = (uint64_t)range.num_blocks << 9, all = range.num_blocks * (512 + geo->md_eighths * UINT64_C(8));
	expect(range.slba + range.num_blocks <= geo->num_blocks && bytes <= geo->max_transfer_bytes);
	expect(bytes == all || (bytes == data && pi.act && geo->pi_type != 0 &&
				geo->md_eighths == (geo->pi_format == NVME_PI_GUARD_16 ? 1 : 2)));
	expect(!pi.check_ref || geo->pi_type == 2 || (geo->pi_type == 1 && ((pi.ref ^ range.slba) & ref_mask) == 0));
	expect(pi.storage == 0 || geo->pi_format == NVME_PI_GUARD_32);
}

static void decode_md(const struct nvme_sqe *sqe)
{
	static const struct {
		uint8_t format, storage_bits, ref_bits;
	} formats[] = {{NVME_PI_GUARD_16, 0, 32},
		       {NVME_PI_GUARD_32, 16, 64},
		       {NVME_PI_GUARD_32, 40, 40},
		       {NVME_PI_GUARD_64, 0, 48}};

	for (unsigned i = 0; i < 4 * 5 * 4; i++) {
		const unsigned f = i / 20;
		const struct nvmf_geometry geo = {.num_blocks = 1000,
						  .max_transfer_bytes = 1 << 17,
						  .block_shift = 9,
						  .md_eighths = (uint8_t)(1u << i % 5),
						  .pi_type = i / 5 % 4,
						  .pi_format = formats[f].format & 3,
						  .storage_bits = formats[f].storage_bits};
		decode_md_of(sqe, &geo, formats[f].ref_bits);
	}
}

static void decode_copy(const struct nvme_sqe *sqe, const uint8_t *icd, size_t icd_len, const struct nvmf_geometry *geo)
{
	struct nvmf_copy_limits limits = nvmf_copy_limits(geo->block_shift);
	struct nvmf_lba_range range;
	struct nvmf_copy copy;
	uint64_t total = 0;
	uint16_t where;

	if (nvmf_decode_copy(sqe, &copy, &where) != 0 || (size_t)copy.num_ranges * copy.range_bytes > icd_len ||
	    nvmf_decode_copy_ranges(icd, &copy, geo, &where) != 0) {
		return;
	}
	expect(copy.num_ranges >= 1 && copy.num_ranges <= NVMF_COPY_RANGES_MAX);
	expect(copy.range_bytes == (copy.format == 0 ? 32 : 40) && copy.range_bytes <= NVMF_COPY_RANGE_BYTES_MAX);
	for (unsigned pi = NVME_PI_GUARD_16; pi <= NVME_PI_GUARD_64; pi++) {
		expect((nvmf_decode_copy_format(&copy, (uint8_t)pi, &where) == 0) ==
		       (copy.format == (pi != NVME_PI_GUARD_16)));
	}
	for (unsigned i = 0; i < copy.num_ranges; i++) {
		struct nvme_copy_range entry;
		memcpy(&entry, icd + (size_t)i * copy.range_bytes, sizeof(entry));
		nvmf_decode_copy_range(&entry, &range);
		expect(range.num_blocks <= limits.range_blocks && range.slba + range.num_blocks <= geo->num_blocks);
		total += range.num_blocks;
	}
	expect(total <= limits.blocks && copy.to + total <= geo->num_blocks);
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
	struct nvmf_ctrlr_name name;
	struct nvmf_lba_range range;
	struct nvmf_resv_report report;
	struct nvmf_dsm dsm;
	uint32_t length;
	uint16_t where;
	bool deallocate;

	if (nvmf_decode_connect((const void *)sqe, icd, icd_len, &connect, &fault) == 0) {
		expect(strlen(connect.subnqn) <= NVMF_NQN_MAX && strlen(connect.hostnqn) <= NVMF_NQN_MAX);
		expect(connect.sqsize >= 2);
		nvmf_nqn_is_valid(connect.subnqn);
	}
	nvmf_decode_property_get((const void *)sqe, &property, &where);
	nvmf_decode_property_set((const void *)sqe, &property, &where);
	if (nvmf_decode_auth((const void *)sqe, 4096, &length, &where) == 0) {
		expect(length >= 1 && length <= 4096);
	}
	nvmf_decode_identify(sqe, &identify, &where);
	if (nvmf_decode_get_log(sqe, &log, &where) == 0) {
		expect(log.offset % 4 == 0 && log.length >= 4);
	}
	nvmf_decode_get_features(sqe, &feature, &where);
	nvmf_decode_set_features(sqe, &feature, &where);
	nvmf_decode_abort(sqe, &abort_cmd);
	if (nvmf_decode_cross_reset(sqe, &name, &where) == 0) {
		expect(name.ciu != 0 && name.cirn != 0);
	}
	if (nvmf_decode_rw(sqe, &geo, &range, &where) == 0) {
		expect(range.num_blocks >= 1 && range.slba + range.num_blocks <= geo.num_blocks);
		expect((uint64_t)range.num_blocks << geo.block_shift <= geo.max_transfer_bytes);
	}
	decode_md(sqe);
	if (nvmf_decode_write_zeroes(sqe, &geo, (uint8_t)sqe->cdw13, &range, &deallocate, &where) == 0) {
		expect(range.slba + range.num_blocks <= geo.num_blocks);
	}
	if (nvmf_decode_blocks(sqe, &geo, &range, &where) == 0) {
		expect(range.slba + range.num_blocks <= geo.num_blocks);
	}
	decode_copy(sqe, icd, icd_len, &geo);
	if (nvmf_decode_resv_report(sqe, &report, &where) == 0) {
		expect(report.length >= 4 && report.length % 4 == 0);
	}
	nvmf_decode_dsm(sqe, &dsm);
	for (unsigned i = 0; i < dsm.num_ranges && (i + 1) * sizeof(struct nvme_dsm_range) <= icd_len; i++) {
		if (nvmf_decode_dsm_range(icd, i, &geo, sqe->cdw13, &range, &where) == 0) {
			expect(range.slba + range.num_blocks <= geo.num_blocks);
		}
	}
}

/* What holds of every reservation, whatever the commands. */
static void expect_sound(const struct nvmf_resv *r)
{
	unsigned holders = 0;

	expect(r->num_registrants <= NVMF_RESV_REGISTRANTS_MAX && r->type <= NVME_RESERVATION_RTYPE_EAAR);
	for (unsigned i = 0; i < r->num_registrants; i++) {
		holders += nvmf_resv_holds(r, i);
		for (unsigned j = 0; j < i; j++) {
			expect(memcmp(r->registrants[i].hostid, r->registrants[j].hostid, NVMF_HOSTID_SIZE) != 0);
		}
	}
	expect(r->type == 0 ? holders == 0 : holders == 1 || holders == r->num_registrants);
	expect(r->type == 0 || holders != 0);
}

/* Each 26 bytes are a command: who, which, and its data. */
static void run_reservations(const uint8_t *data, size_t size)
{
	struct nvmf_resv r = {0}, before;
	struct nvmf_resv_notices notices;
	struct nvmf_resv_register reg;
	struct nvmf_resv_acquire acq;
	struct nvmf_resv_release rel;
	struct nvme_sqe sqe = {0};
	uint16_t status, where;

	for (; size >= 26; data += 26, size -= 26) {
		uint8_t hostid[NVMF_HOSTID_SIZE] = {data[0]};
		memcpy(&sqe.cdw10, data + 2, 4);
		before = r;
		if (data[1] % 3 == 0) {
			status = nvmf_decode_resv_register(&sqe, data + 10, &reg, &where);
			status = status != 0 ? status : nvmf_resv_register(&r, hostid, &reg, &notices, &where);
		} else if (data[1] % 3 == 1) {
			status = nvmf_decode_resv_acquire(&sqe, data + 10, &acq, &where);
			status = status != 0 ? status : nvmf_resv_acquire(&r, hostid, &acq, &notices, &where);
		} else {
			status = nvmf_decode_resv_release(&sqe, data + 10, &rel, &where);
			status = status != 0 ? status : nvmf_resv_release(&r, hostid, &rel, &notices, &where);
		}
		expect(status == 0 || (nvmf_resv_equal(&r, &before) && r.generation == before.generation));
		expect(status != 0 || notices.num <= NVMF_RESV_REGISTRANTS_MAX);
		expect_sound(&r);
		nvmf_resv_conflicts(&r, hostid, data[1] & 0x80);
	}
}

/* What is accepted is written as it was read. */
static void read_file(const uint8_t *data, size_t size)
{
	static const uint8_t uuid[16] = {1};
	char text[NVMF_RESV_FILE_MAX];
	struct nvmf_resv r;
	unsigned line = 0;
	int rc = nvmf_resv_file_decode((const char *)data, size, uuid, &r, &line);

	if (rc == 0) {
		expect_sound(&r);
		expect(nvmf_resv_file_encode(&r, uuid, text) == size && memcmp(text, data, size) == 0);
	} else {
		expect(rc == -EINVAL || line > 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint16_t where;

	read_file(data, size);
	run_reservations(data, size);
	if (size < 1 + sizeof(struct nvme_sqe)) {
		expect(nvmf_decode_header(data, size < 64 ? size : 63, &where) != 0);
		return 0;
	}
	/* Blocks of their exact size, so that a read beyond one is seen. */
	size_t icd_len = size - 1 - sizeof(struct nvme_sqe);
	struct nvme_sqe *sqe = malloc(sizeof(*sqe));
	uint8_t *icd = malloc(icd_len);
	struct nvmf_sgl_rules rules = {
		.in_capsule = data[0] & 1, .keyed = data[0] & 2, .transport = data[0] & 4, .max_descs = data[0] >> 3};
	struct nvmf_sgl sgl;

	memcpy(sqe, data + 1, sizeof(*sqe));
	memcpy(icd, data + 1 + sizeof(*sqe), icd_len);
	nvmf_decode_header(sqe, sizeof(*sqe), &where);
	if (nvmf_decode_sgl(sqe, icd, icd_len, &rules, data[0] & 0x80, 4096, &sgl, &where) == 0) {
		walk(&sgl, icd_len, 4096);
	}
	uint64_t length;
	if (nvmf_decode_described(sqe, icd, icd_len, &rules, data[0] & 0x80, &length, &where) == 0) {
		expect(length % 4 == 0);
	}
	decode_commands(sqe, icd, icd_len);
	free(icd);
	free(sqe);
	return 0;
}
