/* SPDX-License-Identifier: BSD-3-Clause */
/* The model's metadata and protection information (NVM 5.2): guards of 16, 32 and 64 bits of types 1 to 3, generated
 * and checked by the controller; blocks moved with their metadata behind them, or beside them. */
#include "unittest/nvme/model_internal.h"

#include <stdlib.h>
#include <string.h>

#define POLYNOMIAL 0x8bb7 /* of T10's CRC */
#define INVALID_PI NVME_ST_DNR(CMD_SPECIFIC, INVALID_PI)

__extension__ typedef unsigned __int128 wide; /* the storage and reference space, of up to 80 bits */

/* By format: bytes of the guard, and of the space; the application tag has two. */
static const struct {
	unsigned guard, space;
} layouts[] = {[NVME_PI_GUARD_16] = {2, 4}, [NVME_PI_GUARD_32] = {4, 10}, [NVME_PI_GUARD_64] = {8, 6}};

static void field_put(uint8_t *at, wide value, unsigned bytes)
{
	while (bytes-- > 0) {
		at[bytes] = (uint8_t)value;
		value >>= 8;
	}
}

static wide field_get(const uint8_t *at, unsigned bytes)
{
	wide value = 0;

	while (bytes-- > 0) {
		value = value << 8 | *at++;
	}
	return value;
}

static unsigned tuple_bytes(const struct model_ns *ns)
{
	return layouts[ns->pi_format].guard + 2 + layouts[ns->pi_format].space;
}

/* CRC-32C and CRC-64/NVME, continued from crc, the register as it is. */
static uint64_t reflected_from(uint64_t polynomial, uint64_t crc, const uint8_t *data, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		crc ^= data[i];
		for (unsigned bit = 0; bit < 8; bit++) {
			crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
		}
	}
	return crc;
}

static uint16_t guard_from(uint16_t crc, const uint8_t *data, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		crc ^= (uint16_t)(data[i] << 8);
		for (unsigned bit = 0; bit < 8; bit++) {
			crc = (uint16_t)(crc & 0x8000 ? crc << 1 ^ POLYNOMIAL : crc << 1);
		}
	}
	return crc;
}

uint16_t model_pi_guard(const uint8_t *data, size_t len)
{
	return guard_from(0, data, len);
}

static size_t block_bytes(const struct model_ns *ns)
{
	return (size_t)1 << ns->block_shift;
}

static size_t tuple_offset(const struct model_ns *ns)
{
	return ns->pi_first ? 0 : ns->md_size - tuple_bytes(ns);
}

static uint64_t guard_of(const struct model_ns *ns, const uint8_t *data, const uint8_t *md)
{
	uint64_t polynomial = ns->pi_format == NVME_PI_GUARD_32 ? 0x82f63b78 : UINT64_C(0x9a6c9329ac4bc9b5),
		 ones = ns->pi_format == NVME_PI_GUARD_32 ? UINT32_MAX : UINT64_MAX;

	if (ns->pi_format == NVME_PI_GUARD_16) {
		return guard_from(model_pi_guard(data, block_bytes(ns)), md, tuple_offset(ns));
	}
	uint64_t of_data = reflected_from(polynomial, ones, data, block_bytes(ns));
	return reflected_from(polynomial, of_data, md, tuple_offset(ns)) ^ ones;
}

static wide ref_mask(const struct model_ns *ns)
{
	return ((wide)1 << (layouts[ns->pi_format].space * 8 - ns->storage_bits)) - 1;
}

/* What the command names, for its i-th block. */
static wide space_of(const struct nvme_sqe *sqe, const struct model_ns *ns, uint32_t i)
{
	wide space = le32toh(sqe->cdw14), mask = ref_mask(ns);

	if (ns->pi_format != NVME_PI_GUARD_16) {
		space |= (wide)le32toh(sqe->cdw3) << 32;
	}
	if (ns->pi_format == NVME_PI_GUARD_32) {
		space |= (wide)le32toh(sqe->cdw2) << 64;
	}
	return ns->pi_type == 3 ? space : (space & ~mask) | ((space + i) & mask);
}

static void generate(const struct nvme_sqe *sqe, const struct model_ns *ns, const uint8_t *data, uint8_t *md,
		     uint32_t blocks)
{
	unsigned guard = layouts[ns->pi_format].guard;

	for (uint32_t i = 0; i < blocks; i++, data += block_bytes(ns), md += ns->md_size) {
		uint8_t *t = md + tuple_offset(ns);
		field_put(t, guard_of(ns, data, md), guard);
		field_put(t + guard, le32toh(sqe->cdw15), 2);
		field_put(t + guard + 2, space_of(sqe, ns, i), layouts[ns->pi_format].space);
	}
}

static uint16_t check_block(const struct nvme_sqe *sqe, const struct model_ns *ns, const uint8_t *data,
			    const uint8_t *md, uint32_t i)
{
	uint32_t how = le32toh(sqe->cdw12), expected_app = le32toh(sqe->cdw15);
	unsigned guard = layouts[ns->pi_format].guard;
	const uint8_t *t = md + tuple_offset(ns);
	wide app = field_get(t + guard, 2), space = field_get(t + guard + 2, layouts[ns->pi_format].space),
	     wrong = space ^ space_of(sqe, ns, i), mask = ref_mask(ns);

	if (app == UINT16_MAX && (ns->pi_type != 3 || (space & mask) == mask)) { /* checks are off */
		return 0;
	}
	if ((how & NVME_PI_CHECK_GUARD) && field_get(t, guard) != guard_of(ns, data, md)) {
		return NVME_ST(MEDIA, GUARD_CHECK);
	}
	if ((how & NVME_PI_CHECK_APP) && ((app ^ expected_app) & expected_app >> 16) != 0) {
		return NVME_ST(MEDIA, APPTAG_CHECK);
	}
	if ((how & NVME_PI_CHECK_REF) && (wrong & mask) != 0) {
		return NVME_ST(MEDIA, REFTAG_CHECK);
	}
	return (how & NVME_PI_CHECK_STORAGE) && (wrong & ~mask) != 0 ? NVME_ST(MEDIA, STORAGE_TAG_CHECK) : 0;
}

static uint16_t check(const struct nvme_sqe *sqe, const struct model_ns *ns, const uint8_t *data, const uint8_t *md,
		      uint32_t blocks)
{
	uint16_t status = 0;

	for (uint32_t i = 0; i < blocks && status == 0; i++) {
		status = check_block(sqe, ns, data + i * block_bytes(ns), md + (size_t)i * ns->md_size, i);
	}
	return status;
}

/* NVM 5.2.3: the reference tag of type 1 is the address; that of type 3 is not checked. */
static uint16_t check_prinfo(const struct nvme_sqe *sqe, const struct model_ns *ns, uint64_t lba)
{
	bool wrong = ns->pi_type == 3 || (ns->pi_type == 1 && ((space_of(sqe, ns, 0) ^ lba) & ref_mask(ns)) != 0);

	return ns->pi_type != 0 && wrong && (le32toh(sqe->cdw12) & NVME_PI_CHECK_REF) ? INVALID_PI : 0;
}

uint16_t model_pi_check(const struct nvme_sqe *sqe, const struct model_ns *ns, uint64_t lba, uint32_t blocks)
{
	if (ns->pi_type == 0 || ns->data == NULL) {
		return 0;
	}
	uint16_t status = check_prinfo(sqe, ns, lba);
	return status != 0 ? status
			   : check(sqe, ns, ns->data + (lba << ns->block_shift), ns->md + lba * ns->md_size, blocks);
}

void model_pi_zeroed(const struct nvme_sqe *sqe, struct model_ns *ns, uint64_t lba, uint32_t blocks)
{
	uint8_t *md = ns->md + lba * ns->md_size;

	memset(md, 0, (size_t)blocks * ns->md_size);
	if (ns->pi_type != 0 && (le32toh(sqe->cdw12) & NVME_PI_ACT)) {
		generate(sqe, ns, ns->data + (lba << ns->block_shift), md, blocks);
	}
}

/* Blocks that are transferred between the host and the medium: data, and after it metadata. */
struct staged {
	uint8_t *data, *md, *extended;
	uint32_t blocks;
	size_t md_moved; /* bytes per block that the host transfers */
};

static void interleave(const struct model_ns *ns, const struct staged *s, bool to_host)
{
	size_t in_block = block_bytes(ns), stride = in_block + s->md_moved;

	for (uint32_t i = 0; i < s->blocks; i++) {
		uint8_t *x = s->extended + i * stride, *d = s->data + i * in_block,
			*md = s->md + (size_t)i * ns->md_size;
		memcpy(to_host ? x : d, to_host ? d : x, in_block);
		memcpy(to_host ? x + in_block : md, to_host ? md : x + in_block, s->md_moved);
	}
}

static uint16_t move(struct model *m, const struct nvme_sqe *sqe, const struct model_ns *ns, struct staged *s,
		     bool to_host)
{
	size_t data_len = s->blocks * block_bytes(ns), md_len = s->blocks * s->md_moved;

	if (ns->interleaved) {
		if (sqe->mptr != 0) {
			model_violation(m, "a metadata pointer, where metadata is part of the data");
		}
		if (to_host) {
			interleave(ns, s, true);
		}
		uint16_t status = model_move(m, sqe, s->extended, data_len + md_len, to_host);
		if (!to_host && status == 0) {
			interleave(ns, s, false);
		}
		return status;
	}
	if (md_len != 0 && sqe->mptr != 0) {
		void *host = (void *)(uintptr_t)le64toh(sqe->mptr);
		memcpy(to_host ? host : s->md, to_host ? s->md : host, md_len);
	}
	return model_move(m, sqe, s->data, data_len, to_host);
}

static uint16_t move_staged(struct model *m, const struct nvme_sqe *sqe, struct model_ns *ns, uint64_t lba,
			    struct staged *s)
{
	size_t data_len = s->blocks * block_bytes(ns), md_len = (size_t)s->blocks * ns->md_size;
	uint8_t *data = ns->data + (lba << ns->block_shift), *md = ns->md + lba * ns->md_size;
	bool act = ns->pi_type != 0 && (le32toh(sqe->cdw12) & NVME_PI_ACT), to_host = sqe->opcode == nvme_cmd_read;
	uint16_t status = to_host ? model_pi_check(sqe, ns, lba, s->blocks) : check_prinfo(sqe, ns, lba);

	memcpy(s->data, data, data_len);
	memcpy(s->md, md, md_len); /* the part that the host does not send is kept */
	status = status != 0 ? status : move(m, sqe, ns, s, to_host);
	if (status != 0 || to_host) {
		return status;
	}
	if (sqe->opcode == nvme_cmd_compare) {
		bool same =
			memcmp(s->data, data, data_len) == 0 && (ns->pi_type != 0 || memcmp(s->md, md, md_len) == 0);
		return same ? 0 : NVME_ST(MEDIA, COMPARE_FAILED);
	}
	if (act) {
		generate(sqe, ns, s->data, s->md, s->blocks);
	} else if (ns->pi_type != 0 && (status = check(sqe, ns, s->data, s->md, s->blocks)) != 0) {
		return status;
	}
	memcpy(data, s->data, data_len);
	memcpy(md, s->md, md_len);
	return 0;
}

uint16_t model_md_move(struct model *m, const struct nvme_sqe *sqe, struct model_ns *ns, uint64_t lba, uint32_t blocks)
{
	bool stripped = ns->pi_type != 0 && ns->md_size == tuple_bytes(ns) && (le32toh(sqe->cdw12) & NVME_PI_ACT);
	size_t extended = (block_bytes(ns) + ns->md_size) * blocks;
	struct staged s = {.blocks = blocks, .md_moved = stripped ? 0 : ns->md_size, .data = calloc(2, extended)};

	s.md = s.data + blocks * block_bytes(ns);
	s.extended = s.data + extended;
	bool is_extended = ns->pi_format != NVME_PI_GUARD_16 || ns->storage_bits != 0;
	bool known = !is_extended || m->extended_formats_known; /* Host Behavior Support */
	uint16_t status = known ? move_staged(m, sqe, ns, lba, &s) : NVME_ST_DNR(GENERIC, INVALID_NS);
	free(s.data);
	return status;
}
