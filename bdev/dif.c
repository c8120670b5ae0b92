/* SPDX-License-Identifier: BSD-3-Clause */
/* The CRC is ISA-L's, which picks what the processor does best: carry-less multiplication, some 10 bytes per cycle.
 * DPDK's rte_net_crc has no T10-DIF. Where data moves anyway it is computed on the way: one pass instead of two. */
#include "bdev/dif.h"

#include <endian.h>
#include <isa-l/crc.h>
#include <string.h>

#include "util/iov.h"

/* As it lies in a block. */
struct tuple {
	uint16_t guard, app; /* big endian */
	uint32_t ref;
} __attribute__((packed));
_Static_assert(sizeof(struct tuple) == DIF_BYTES, "NVM 5.2.1");

uint16_t dif_crc(uint16_t crc, const void *data, size_t bytes)
{
	return crc16_t10dif(crc, data, bytes);
}

/* ---- Bytes in a list of iovs ---- */

static uint16_t cursor_crc(struct iov_cursor *c, uint16_t crc, size_t bytes)
{
	while (bytes > 0) {
		size_t n = bytes;
		const void *at = iov_next(c, &n);
		crc = crc16_t10dif(crc, at, n);
		bytes -= n;
	}
	return crc;
}

/* ---- One block ---- */

static uint32_t ref_of(const struct dif_format *f, const struct dif_tags *tags, uint32_t block)
{
	return f->type == 3 ? tags->ref : tags->ref + block;
}

static struct tuple tuple_make(const struct dif_format *f, const struct dif_tags *tags, uint32_t block, uint16_t guard)
{
	return (struct tuple){
		.guard = htobe16(guard), .app = htobe16(tags->app), .ref = htobe32(ref_of(f, tags, block))};
}

static bool tuple_is_escaped(const struct dif_format *f, const struct tuple *t)
{
	return t->app == UINT16_MAX && (f->type != 3 || t->ref == UINT32_MAX);
}

static bool dif_error_set(struct dif_error *error, enum dif_check check, uint32_t block, uint32_t expected,
			  uint32_t found)
{
	*error = (struct dif_error){.check = check, .block = block, .expected = expected, .found = found};
	return false;
}

static bool tuple_is_good(const struct dif_format *f, const struct dif_tags *tags, uint32_t block, uint16_t guard,
			  const struct tuple *t, struct dif_error *error)
{
	if (tuple_is_escaped(f, t)) {
		return true;
	}
	if ((tags->checks & DIF_CHECK_GUARD) && be16toh(t->guard) != guard) {
		return dif_error_set(error, DIF_CHECK_GUARD, block, guard, be16toh(t->guard));
	}
	if ((tags->checks & DIF_CHECK_APP) && ((be16toh(t->app) ^ tags->app) & tags->app_mask) != 0) {
		return dif_error_set(error, DIF_CHECK_APP, block, tags->app & tags->app_mask,
				     be16toh(t->app) & tags->app_mask);
	}
	if ((tags->checks & DIF_CHECK_REF) && f->type != 3 && be32toh(t->ref) != ref_of(f, tags, block)) {
		return dif_error_set(error, DIF_CHECK_REF, block, ref_of(f, tags, block), be32toh(t->ref));
	}
	return true;
}

/* ---- In place ---- */

void dif_generate(const struct dif_format *f, const struct dif_tags *tags, const struct iovec *iovs, uint32_t blocks)
{
	struct iov_cursor c = iov_cursor_at(iovs, 0);

	for (uint32_t i = 0; f->type != 0 && i < blocks; i++) {
		struct tuple t = tuple_make(f, tags, i, cursor_crc(&c, 0, f->data_size + f->offset));
		iov_from_buffer(&c, &t, sizeof(t));
		iov_skip(&c, f->md_size - f->offset - sizeof(t));
	}
}

bool dif_verify(const struct dif_format *f, const struct dif_tags *tags, const struct iovec *iovs, uint32_t blocks,
		struct dif_error *error)
{
	bool guard_counts = (tags->checks & DIF_CHECK_GUARD) != 0;
	struct iov_cursor c = iov_cursor_at(iovs, 0);
	struct tuple t;

	for (uint32_t i = 0; f->type != 0 && tags->checks != 0 && i < blocks; i++) {
		uint16_t guard = 0;
		if (guard_counts) {
			guard = cursor_crc(&c, 0, f->data_size + f->offset);
		} else {
			iov_skip(&c, f->data_size + f->offset);
		}
		iov_to_buffer(&c, &t, sizeof(t));
		if (!tuple_is_good(f, tags, i, guard, &t, error)) {
			return false;
		}
		iov_skip(&c, f->md_size - f->offset - sizeof(t));
	}
	return true;
}

void dif_move(const struct dif_format *f, uint32_t ref, const struct iovec *iovs, uint32_t blocks)
{
	struct iov_cursor c = iov_cursor_at(iovs, 0);
	struct tuple t;

	for (uint32_t i = 0; (f->type == 1 || f->type == 2) && i < blocks; i++) {
		iov_skip(&c, f->data_size + f->offset);
		struct iov_cursor here = c;
		iov_to_buffer(&c, &t, sizeof(t));
		if (!tuple_is_escaped(f, &t)) {
			t.ref = htobe32(ref + i);
			iov_from_buffer(&here, &t, sizeof(t));
		}
		iov_skip(&c, f->md_size - f->offset - sizeof(t));
	}
}

/* ---- Between plain and extended blocks ---- */

/* ISA-L does not write to its source, although it does not say so. */
static uint16_t copy_crc(uint16_t crc, void *to, const void *from, size_t n)
{
	return crc16_t10dif_copy(crc, to, (uint8_t *)(uintptr_t)from, n);
}

static uint16_t cursor_crc_to_buffer(struct iov_cursor *c, uint8_t *to, size_t bytes)
{
	uint16_t crc = 0;

	while (bytes > 0) {
		size_t n = bytes;
		const void *at = iov_next(c, &n);
		crc = copy_crc(crc, to, at, n);
		to += n;
		bytes -= n;
	}
	return crc;
}

static uint16_t cursor_crc_from_buffer(struct iov_cursor *c, const uint8_t *from, size_t bytes)
{
	uint16_t crc = 0;

	while (bytes > 0) {
		size_t n = bytes;
		void *at = iov_next(c, &n);
		crc = copy_crc(crc, at, from, n);
		from += n;
		bytes -= n;
	}
	return crc;
}

void dif_insert(const struct dif_format *f, const struct dif_tags *tags, const struct iovec *iovs, size_t skip,
		uint32_t blocks, void *extended)
{
	struct iov_cursor c = iov_cursor_at(iovs, skip);
	uint8_t *to = extended;

	for (uint32_t i = 0; i < blocks; i++, to += f->data_size + f->md_size) {
		uint8_t *md = to + f->data_size;
		memset(md, 0, f->md_size);
		if (f->type == 0) {
			iov_to_buffer(&c, to, f->data_size);
			continue;
		}
		uint16_t guard = dif_crc(cursor_crc_to_buffer(&c, to, f->data_size), md, f->offset);
		struct tuple t = tuple_make(f, tags, i, guard);
		memcpy(md + f->offset, &t, sizeof(t));
	}
}

bool dif_strip(const struct dif_format *f, const struct dif_tags *tags, const struct iovec *iovs, size_t skip,
	       uint32_t blocks, const void *extended, struct dif_error *error)
{
	bool guard_counts = f->type != 0 && (tags->checks & DIF_CHECK_GUARD) != 0;
	struct iov_cursor c = iov_cursor_at(iovs, skip);
	const uint8_t *from = extended;
	struct tuple t;

	for (uint32_t i = 0; i < blocks; i++, from += f->data_size + f->md_size) {
		const uint8_t *md = from + f->data_size;
		uint16_t guard = 0;
		if (guard_counts) {
			guard = dif_crc(cursor_crc_from_buffer(&c, from, f->data_size), md, f->offset);
		} else {
			iov_from_buffer(&c, from, f->data_size);
		}
		if (f->type == 0) {
			continue;
		}
		memcpy(&t, md + f->offset, sizeof(t));
		if (!tuple_is_good(f, tags, i, guard, &t, error)) {
			return false;
		}
	}
	return true;
}
