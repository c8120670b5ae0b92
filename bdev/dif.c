/* SPDX-License-Identifier: BSD-3-Clause */
/* The CRCs of 16 and 32 bits are ISA-L's, which picks what the processor does best: carry-less multiplication, some 10
 * bytes per cycle. DPDK's rte_net_crc has no T10-DIF. Where data moves anyway the one of 16 bits is computed on the
 * way: one pass instead of two; the others have no such function, and follow in the cache. */
#include "bdev/dif.h"

#include <endian.h>
#include <isa-l/crc.h>
#include <string.h>

#include "bdev/dif_crc64.h"
#include "util/iov.h"

/* As they lie in a block, big endian. */
struct tuple_16 {
	uint16_t guard, app;
	uint32_t ref;
} __attribute__((packed, may_alias));
struct tuple_32 {
	uint32_t guard;
	uint16_t app, storage;
	uint64_t ref;
} __attribute__((packed, may_alias));
struct tuple_64 {
	uint64_t guard;
	uint16_t app, ref_first;
	uint32_t ref_last;
} __attribute__((packed, may_alias));
_Static_assert(sizeof(struct tuple_16) == DIF_BYTES_MIN, "NVM 5.2.1.1");
_Static_assert(sizeof(struct tuple_32) == DIF_BYTES_MAX, "NVM 5.2.1.2");
_Static_assert(sizeof(struct tuple_64) == DIF_BYTES_MAX, "NVM 5.2.1.3");

/* The same decoded. */
struct tuple {
	uint64_t guard;
	uint64_t ref;     /* the last 64 bits of the storage and reference space */
	uint16_t storage; /* those in front of them */
	uint16_t app;
};

uint64_t dif_crc(enum dif_guard guard, uint64_t crc, const void *data, size_t bytes)
{
	switch (guard) {
	case DIF_GUARD_64:
		return dif_crc64(crc, data, bytes);
	case DIF_GUARD_32: /* ISA-L does not write to its source, although it does not say so; a block's length fits */
		return ~crc32_iscsi((unsigned char *)(uintptr_t)data, (int)bytes, ~(uint32_t)crc);
	default:
		return crc16_t10dif((uint16_t)crc, data, bytes);
	}
}

/* ---- Bytes in a list of iovs ---- */

static uint64_t cursor_crc(struct iov_cursor *c, enum dif_guard guard, size_t bytes)
{
	uint64_t crc = 0;

	while (bytes > 0) {
		size_t n = bytes;
		const void *at = iov_next(c, &n);
		crc = dif_crc(guard, crc, at, n);
		bytes -= n;
	}
	return crc;
}

/* ---- One block ---- */

static uint64_t low_bits(unsigned n)
{
	return n >= 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
}

/* The format's part of the last 64 bits of the space. */
static uint64_t space_mask(const struct dif_format *f)
{
	return low_bits(dif_space_bits(f->guard));
}

/* The reference tag's part of them. */
static uint64_t ref_mask(const struct dif_format *f)
{
	return low_bits(dif_space_bits(f->guard) - f->storage_bits);
}

uint64_t dif_ref_after(const struct dif_format *f, uint64_t ref, uint64_t blocks)
{
	uint64_t mask = ref_mask(f);

	return f->type == 3 || f->type == 0 ? ref : (ref & ~mask) | ((ref + blocks) & mask);
}

static uint64_t storage_tag(const struct dif_format *f, uint16_t first, uint64_t last)
{
	unsigned ref_bits = dif_space_bits(f->guard) - f->storage_bits;

	if (f->storage_bits == 0) {
		return 0;
	}
	return ref_bits >= 64 ? first : (last & space_mask(f)) >> ref_bits | (uint64_t)first << (64 - ref_bits);
}

static struct tuple tuple_make(const struct dif_format *f, const struct dif_tags *tags, uint32_t block, uint64_t guard)
{
	return (struct tuple){.guard = guard,
			      .ref = dif_ref_after(f, tags->ref, block) & space_mask(f),
			      .storage = f->guard == DIF_GUARD_32 ? tags->storage : 0,
			      .app = tags->app};
}

static void tuple_encode(enum dif_guard guard, const struct tuple *t, uint8_t bytes[DIF_BYTES_MAX])
{
	switch (guard) {
	case DIF_GUARD_64:
		*(struct tuple_64 *)bytes = (struct tuple_64){.guard = htobe64(t->guard),
							      .app = htobe16(t->app),
							      .ref_first = htobe16((uint16_t)(t->ref >> 32)),
							      .ref_last = htobe32((uint32_t)t->ref)};
		break;
	case DIF_GUARD_32:
		*(struct tuple_32 *)bytes = (struct tuple_32){.guard = htobe32((uint32_t)t->guard),
							      .app = htobe16(t->app),
							      .storage = htobe16(t->storage),
							      .ref = htobe64(t->ref)};
		break;
	default:
		*(struct tuple_16 *)bytes = (struct tuple_16){
			.guard = htobe16((uint16_t)t->guard), .app = htobe16(t->app), .ref = htobe32((uint32_t)t->ref)};
	}
}

static struct tuple tuple_decode(enum dif_guard guard, const void *bytes)
{
	const struct tuple_16 *t16 = bytes;
	const struct tuple_32 *t32 = bytes;
	const struct tuple_64 *t64 = bytes;

	switch (guard) {
	case DIF_GUARD_64:
		return (struct tuple){.guard = be64toh(t64->guard),
				      .app = be16toh(t64->app),
				      .ref = (uint64_t)be16toh(t64->ref_first) << 32 | be32toh(t64->ref_last)};
	case DIF_GUARD_32:
		return (struct tuple){.guard = be32toh(t32->guard),
				      .app = be16toh(t32->app),
				      .storage = be16toh(t32->storage),
				      .ref = be64toh(t32->ref)};
	default:
		return (struct tuple){.guard = be16toh(t16->guard), .app = be16toh(t16->app), .ref = be32toh(t16->ref)};
	}
}

static bool tuple_is_escaped(const struct dif_format *f, const struct tuple *t)
{
	return t->app == UINT16_MAX && (f->type != 3 || (~t->ref & ref_mask(f)) == 0);
}

static bool dif_error_set(struct dif_error *error, enum dif_check check, uint32_t block, uint64_t expected,
			  uint64_t found)
{
	*error = (struct dif_error){.check = check, .block = block, .expected = expected, .found = found};
	return false;
}

static bool tags_are_good(const struct dif_format *f, const struct dif_tags *tags, uint32_t block,
			  const struct tuple *t, struct dif_error *error)
{
	uint64_t ref = t->ref & ref_mask(f), wanted = dif_ref_after(f, tags->ref, block) & ref_mask(f);

	if ((tags->checks & DIF_CHECK_APP) && ((t->app ^ tags->app) & tags->app_mask) != 0) {
		return dif_error_set(error, DIF_CHECK_APP, block, tags->app & tags->app_mask, t->app & tags->app_mask);
	}
	if ((tags->checks & DIF_CHECK_REF) && f->type != 3 && ref != wanted) {
		return dif_error_set(error, DIF_CHECK_REF, block, wanted, ref);
	}
	if (tags->checks & DIF_CHECK_STORAGE) {
		uint64_t tag = storage_tag(f, t->storage, t->ref) & f->storage_mask;
		wanted = storage_tag(f, tags->storage, tags->ref) & f->storage_mask;
		return tag == wanted || dif_error_set(error, DIF_CHECK_STORAGE, block, wanted, tag);
	}
	return true;
}

static bool tuple_is_good(const struct dif_format *f, const struct dif_tags *tags, uint32_t block, uint64_t guard,
			  const struct tuple *t, struct dif_error *error)
{
	if (tuple_is_escaped(f, t)) {
		return true;
	}
	if ((tags->checks & DIF_CHECK_GUARD) && t->guard != guard) {
		return dif_error_set(error, DIF_CHECK_GUARD, block, guard, t->guard);
	}
	return tags_are_good(f, tags, block, t, error);
}

/* ---- In place ---- */

void dif_generate(const struct dif_format *f, const struct dif_tags *tags, const struct iovec *iovs, uint32_t blocks)
{
	struct iov_cursor c = iov_cursor_at(iovs, 0);
	unsigned size = dif_bytes(f->guard);
	uint8_t bytes[DIF_BYTES_MAX];

	for (uint32_t i = 0; f->type != 0 && i < blocks; i++) {
		struct tuple t = tuple_make(f, tags, i, cursor_crc(&c, f->guard, f->data_size + f->offset));
		tuple_encode(f->guard, &t, bytes);
		iov_from_buffer(&c, bytes, size);
		iov_skip(&c, f->md_size - f->offset - size);
	}
}

bool dif_verify(const struct dif_format *f, const struct dif_tags *tags, const struct iovec *iovs, uint32_t blocks,
		struct dif_error *error)
{
	bool guard_counts = (tags->checks & DIF_CHECK_GUARD) != 0;
	struct iov_cursor c = iov_cursor_at(iovs, 0);
	unsigned size = dif_bytes(f->guard);
	uint8_t bytes[DIF_BYTES_MAX];

	for (uint32_t i = 0; f->type != 0 && tags->checks != 0 && i < blocks; i++) {
		uint64_t guard = 0;
		if (guard_counts) {
			guard = cursor_crc(&c, f->guard, f->data_size + f->offset);
		} else {
			iov_skip(&c, f->data_size + f->offset);
		}
		iov_to_buffer(&c, bytes, size);
		struct tuple t = tuple_decode(f->guard, bytes);
		if (!tuple_is_good(f, tags, i, guard, &t, error)) {
			return false;
		}
		iov_skip(&c, f->md_size - f->offset - size);
	}
	return true;
}

void dif_move(const struct dif_format *f, uint64_t ref, const struct iovec *iovs, uint32_t blocks)
{
	struct iov_cursor c = iov_cursor_at(iovs, 0);
	unsigned size = dif_bytes(f->guard);
	uint64_t mask = ref_mask(f);
	uint8_t bytes[DIF_BYTES_MAX];

	for (uint32_t i = 0; (f->type == 1 || f->type == 2) && i < blocks; i++) {
		iov_skip(&c, f->data_size + f->offset);
		struct iov_cursor here = c;
		iov_to_buffer(&c, bytes, size);
		struct tuple t = tuple_decode(f->guard, bytes);
		if (!tuple_is_escaped(f, &t)) {
			t.ref = (t.ref & ~mask) | ((ref + i) & mask);
			tuple_encode(f->guard, &t, bytes);
			iov_from_buffer(&here, bytes, size);
		}
		iov_skip(&c, f->md_size - f->offset - size);
	}
}

/* ---- Between plain and extended blocks ---- */

static uint64_t cursor_crc_to_buffer(struct iov_cursor *c, enum dif_guard guard, uint8_t *to, size_t bytes)
{
	uint64_t crc = 0;

	while (bytes > 0) {
		size_t n = bytes;
		void *at = iov_next(c, &n);
		if (guard == DIF_GUARD_16) {
			crc = crc16_t10dif_copy((uint16_t)crc, to, at, n);
		} else { /* of the copy, which nobody else writes to */
			memcpy(to, at, n);
			crc = dif_crc(guard, crc, to, n);
		}
		to += n;
		bytes -= n;
	}
	return crc;
}

/* ISA-L does not write to its source, although it does not say so. */
static uint64_t cursor_crc_from_buffer(struct iov_cursor *c, enum dif_guard guard, const uint8_t *from, size_t bytes)
{
	uint64_t crc = 0;

	while (bytes > 0) {
		size_t n = bytes;
		void *at = iov_next(c, &n);
		if (guard == DIF_GUARD_16) {
			crc = crc16_t10dif_copy((uint16_t)crc, at, (uint8_t *)(uintptr_t)from, n);
		} else {
			crc = dif_crc(guard, crc, from, n);
			memcpy(at, from, n);
		}
		from += n;
		bytes -= n;
	}
	return crc;
}

/* The guard of a block, from the CRC of its data: most have no metadata in front of the protection information. */
static inline uint64_t crc_with_md(const struct dif_format *f, uint64_t crc, const uint8_t *md)
{
	return f->offset == 0 ? crc : dif_crc(f->guard, crc, md, f->offset);
}

void dif_insert(const struct dif_format *f, const struct dif_tags *tags, const struct iovec *iovs, size_t skip,
		uint32_t blocks, void *extended)
{
	struct iov_cursor c = iov_cursor_at(iovs, skip);
	uint8_t *to = extended;

	for (uint32_t i = 0; i < blocks; i++, to += f->data_size + f->md_size) {
		uint8_t bytes[DIF_BYTES_MAX], *md = to + f->data_size;
		memset(md, 0, f->md_size);
		if (f->type == 0) {
			iov_to_buffer(&c, to, f->data_size);
			continue;
		}
		uint64_t guard = crc_with_md(f, cursor_crc_to_buffer(&c, f->guard, to, f->data_size), md);
		struct tuple t = tuple_make(f, tags, i, guard);
		tuple_encode(f->guard, &t, bytes);
		memcpy(md + f->offset, bytes, dif_bytes(f->guard));
	}
}

bool dif_strip(const struct dif_format *f, const struct dif_tags *tags, const struct iovec *iovs, size_t skip,
	       uint32_t blocks, const void *extended, struct dif_error *error)
{
	bool guard_counts = f->type != 0 && (tags->checks & DIF_CHECK_GUARD) != 0;
	struct iov_cursor c = iov_cursor_at(iovs, skip);
	const uint8_t *from = extended;

	for (uint32_t i = 0; i < blocks; i++, from += f->data_size + f->md_size) {
		const uint8_t *md = from + f->data_size;
		uint64_t guard = 0;
		if (guard_counts) {
			guard = crc_with_md(f, cursor_crc_from_buffer(&c, f->guard, from, f->data_size), md);
		} else {
			iov_from_buffer(&c, from, f->data_size);
		}
		if (f->type == 0) {
			continue;
		}
		struct tuple t = tuple_decode(f->guard, md + f->offset);
		if (!tuple_is_good(f, tags, i, guard, &t, error)) {
			return false;
		}
	}
	return true;
}
