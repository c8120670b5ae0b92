/* SPDX-License-Identifier: BSD-3-Clause */
/* The capsule's header and its SGL: Base 3.3.2 (capsules), 3.3.3.1 (command dword 0), 4.1.2 (SGLs), 6
 * (fabrics commands). */
#include <string.h>
#include "nvmf/decode.h"

/* The number of segments of a list that are followed; hosts need one. It limits the walk over segments that refer to
 * each other. */
#define SEGMENTS_MAX 4

uint16_t nvmf_decode_header(const void *capsule, size_t len, uint16_t *where)
{
	const struct nvme_sqe *sqe = capsule;

	if (len < sizeof(*sqe)) {
		*where = NVMF_WHERE_NOWHERE;
		return NVME_ST_DNR(GENERIC, DATA_XFER_ERROR);
	}
	unsigned fuse = sqe->flags & NVME_CMD_FLAGS_FUSE_MASK;
	if (fuse == NVME_FUSE_RESERVED || (fuse != NVME_FUSE_NONE && sqe->opcode == nvme_admin_fabrics)) {
		*where = NVMF_WHERE_FLAGS_FUSE;
		return NVME_ST_DNR(GENERIC, INVALID_FIELD);
	}
	if ((sqe->flags & NVME_CMD_FLAGS_PSDT_MASK) != NVME_CMD_FLAGS_PSDT_SGL) {
		*where = NVMF_WHERE_FLAGS_PSDT;
		return NVME_ST_DNR(GENERIC, INVALID_FIELD);
	}
	return NVME_ST_SUCCESS;
}

static uint16_t sgl_bad_type(uint16_t *where)
{
	*where = NVMF_WHERE_SGL_TYPE;
	return NVME_ST_DNR(GENERIC, SGL_INVALID_TYPE);
}

static uint16_t sgl_bad_count(uint16_t *where)
{
	*where = NVMF_WHERE_SGL_LENGTH;
	return NVME_ST_DNR(GENERIC, SGL_INVALID_COUNT);
}

static uint16_t sgl_bad_offset(uint16_t *where)
{
	*where = NVMF_WHERE_SGL_ADDRESS;
	return NVME_ST_DNR(GENERIC, SGL_INVALID_OFFSET);
}

static uint16_t sgl_bad_length(uint16_t *where)
{
	*where = NVMF_WHERE_SGL_LENGTH;
	return NVME_ST_DNR(GENERIC, SGL_INVALID_DATA);
}

/* Finds what is wrong with a (last) segment descriptor: its length, its alignment, or that it may not be there (Base
 * figure 95). */
static uint16_t sgl_bad_segment(uint16_t *where, uint16_t place)
{
	*where = place;
	return NVME_ST_DNR(GENERIC, SGL_INVALID_LAST);
}

static bool sgl_is_segment(const union nvme_sgl_desc *d)
{
	return nvme_sgl_type(d) == NVME_SGL_TYPE_SEGMENT || nvme_sgl_type(d) == NVME_SGL_TYPE_LAST_SEGMENT;
}

static bool sgl_keyed_is_good(const union nvme_sgl_desc *d)
{
	return nvme_sgl_type(d) == NVME_SGL_TYPE_KEYED_DATA_BLOCK &&
	       (nvme_sgl_subtype(d) == NVME_SGL_SUBTYPE_ADDRESS ||
		nvme_sgl_subtype(d) == NVME_SGL_SUBTYPE_INVALIDATE_KEY);
}

/* A position in a list: the descriptors of one segment. */
struct segment {
	const uint8_t *next;
	const uint8_t *end;
	bool last;
};

/* Opens the segment of a (last) segment descriptor. Its descriptors have to be in the capsule's data. */
static uint16_t sgl_segment_open(const union nvme_sgl_desc *d, const uint8_t *icd, size_t icd_len, struct segment *seg,
				 uint16_t *where)
{
	uint64_t offset = le64toh(d->plain.address);
	uint32_t length = le32toh(d->plain.length);

	if (nvme_sgl_subtype(d) != NVME_SGL_SUBTYPE_OFFSET) {
		return sgl_bad_type(where);
	}
	if (length == 0 || length % sizeof(*d) != 0) {
		return sgl_bad_segment(where, NVMF_WHERE_SGL_LENGTH);
	}
	if (offset > icd_len || length > icd_len - offset) {
		return sgl_bad_offset(where);
	}
	if (offset % 8 != 0) {
		return sgl_bad_segment(where, NVMF_WHERE_SGL_ADDRESS);
	}
	seg->next = icd + offset;
	seg->end = seg->next + length;
	seg->last = nvme_sgl_type(d) == NVME_SGL_TYPE_LAST_SEGMENT;
	return NVME_ST_SUCCESS;
}

/* Adds the descriptors of a segment to sgl. They are keyed data blocks; the last may be a (last) segment descriptor,
 * which is stored in *link. */
static uint16_t sgl_segment_add(const struct segment *seg, unsigned max_descs, struct nvmf_sgl *sgl,
				union nvme_sgl_desc *link, uint16_t *where)
{
	for (const uint8_t *p = seg->next; p < seg->end; p += sizeof(*link)) {
		bool at_end = p + sizeof(*link) == seg->end;

		memcpy(link, p, sizeof(*link));
		if (sgl_is_segment(link) && seg->last) {
			return sgl_bad_segment(where, NVMF_WHERE_SGL_TYPE);
		}
		if (sgl_is_segment(link)) {
			return at_end ? NVME_ST_SUCCESS : sgl_bad_count(where);
		}
		if (!sgl_keyed_is_good(link)) {
			return sgl_bad_type(where);
		}
		if (sgl->num_descs == max_descs) {
			return sgl_bad_count(where);
		}
		sgl->num_descs++;
		sgl->length += nvme_sgl_keyed_length(link);
	}
	return seg->last ? NVME_ST_SUCCESS : sgl_bad_segment(where, NVMF_WHERE_SGL_TYPE);
}

static uint16_t sgl_decode_list(const union nvme_sgl_desc *sgl1, size_t icd_len, unsigned max_descs,
				struct nvmf_sgl *sgl, uint16_t *where)
{
	union nvme_sgl_desc link = *sgl1;
	struct segment seg = {.last = false};

	for (unsigned segments = 0; !seg.last; segments++) {
		if (segments == SEGMENTS_MAX) {
			return sgl_bad_count(where);
		}
		uint16_t status = sgl_segment_open(&link, sgl->icd, icd_len, &seg, where);
		if (status == NVME_ST_SUCCESS) {
			status = sgl_segment_add(&seg, max_descs, sgl, &link, where);
		}
		if (status != NVME_ST_SUCCESS) {
			return status;
		}
	}
	sgl->kind = NVMF_SGL_KEYED;
	return NVME_ST_SUCCESS;
}

static uint16_t sgl_decode_in_capsule(const union nvme_sgl_desc *d, size_t icd_len, struct nvmf_sgl *sgl,
				      uint16_t *where)
{
	uint64_t offset = le64toh(d->plain.address);
	uint32_t length = le32toh(d->plain.length);

	if (offset > icd_len) {
		return sgl_bad_offset(where);
	}
	if (length > icd_len - offset) {
		return sgl_bad_length(where);
	}
	sgl->kind = NVMF_SGL_IN_CAPSULE;
	sgl->num_descs = 1;
	sgl->icd_offset = (uint32_t)offset;
	sgl->length = length;
	return NVME_ST_SUCCESS;
}

static uint16_t sgl_decode_sgl1(const union nvme_sgl_desc *d, size_t icd_len, const struct nvmf_sgl_rules *rules,
				bool to_target, struct nvmf_sgl *sgl, uint16_t *where)
{
	switch (nvme_sgl_type(d)) {
	case NVME_SGL_TYPE_DATA_BLOCK:
		if (nvme_sgl_subtype(d) != NVME_SGL_SUBTYPE_OFFSET || !rules->in_capsule || !to_target) {
			return sgl_bad_type(where);
		}
		return sgl_decode_in_capsule(d, icd_len, sgl, where);
	case NVME_SGL_TYPE_KEYED_DATA_BLOCK:
		if (!rules->keyed || !sgl_keyed_is_good(d)) {
			return sgl_bad_type(where);
		}
		sgl->kind = NVMF_SGL_KEYED;
		sgl->num_descs = 1;
		sgl->length = nvme_sgl_keyed_length(d);
		return NVME_ST_SUCCESS;
	case NVME_SGL_TYPE_SEGMENT:
	case NVME_SGL_TYPE_LAST_SEGMENT:
		return rules->keyed ? sgl_decode_list(d, icd_len, rules->max_descs, sgl, where) : sgl_bad_type(where);
	case NVME_SGL_TYPE_TRANSPORT_DATA_BLOCK:
		if (!rules->transport || nvme_sgl_subtype(d) != NVME_SGL_SUBTYPE_TRANSPORT) {
			return sgl_bad_type(where);
		}
		sgl->kind = NVMF_SGL_TRANSPORT;
		sgl->num_descs = 1;
		sgl->length = le32toh(d->plain.length);
		return NVME_ST_SUCCESS;
	default:
		return sgl_bad_type(where);
	}
}

uint16_t nvmf_decode_sgl(const struct nvme_sqe *sqe, const void *icd, size_t icd_len,
			 const struct nvmf_sgl_rules *rules, bool to_target, uint32_t need, struct nvmf_sgl *sgl,
			 uint16_t *where)
{
	sgl->kind = NVMF_SGL_NONE;
	sgl->num_descs = 0;
	sgl->icd_offset = 0;
	sgl->length = 0;
	sgl->sgl1 = &sqe->sgl1;
	sgl->icd = icd;

	uint16_t status = sgl_decode_sgl1(&sqe->sgl1, icd_len, rules, to_target, sgl, where);
	if (status == NVME_ST_SUCCESS && sgl->length < need) {
		status = sgl_bad_length(where);
	}
	return status;
}

uint16_t nvmf_decode_described(const struct nvme_sqe *sqe, const void *icd, size_t icd_len,
			       const struct nvmf_sgl_rules *rules, bool to_target, uint64_t *length, uint16_t *where)
{
	struct nvmf_sgl sgl;
	uint16_t status = nvmf_decode_sgl(sqe, icd, icd_len, rules, to_target, 0, &sgl, where);

	*length = sgl.length;
	return status == NVME_ST_SUCCESS && sgl.length % 4 != 0 ? sgl_bad_length(where) : status;
}

struct nvmf_sgl_iter nvmf_sgl_iter(const struct nvmf_sgl *sgl)
{
	return (struct nvmf_sgl_iter){
		.icd = sgl->icd,
		.next = sgl->sgl1->bytes,
		.end = sgl->sgl1->bytes + sizeof(*sgl->sgl1),
	};
}

bool nvmf_sgl_next(struct nvmf_sgl_iter *it, struct nvmf_sgl_block *block)
{
	union nvme_sgl_desc d;

	while (it->next < it->end) {
		memcpy(&d, it->next, sizeof(d));
		if (!sgl_is_segment(&d)) {
			it->next += sizeof(d);
			block->address = le64toh(d.keyed.address);
			block->length = nvme_sgl_keyed_length(&d);
			block->key = nvme_sgl_key(&d);
			block->invalidate = nvme_sgl_subtype(&d) == NVME_SGL_SUBTYPE_INVALIDATE_KEY;
			return true;
		}
		it->next = it->icd + le64toh(d.plain.address);
		it->end = it->next + le32toh(d.plain.length);
	}
	return false;
}
