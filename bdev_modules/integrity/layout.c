/* SPDX-License-Identifier: BSD-3-Clause */
#include "bdev_modules/integrity/layout.h"

#include <errno.h>
#include <inttypes.h>
#include <isa-l/crc.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "util/iov.h"

#define DATA_ALIGN_UNITS 256u /* 1 MiB */

static int layout_refuse(struct integrity_error *e, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static int layout_refuse(struct integrity_error *e, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(e->text, sizeof(e->text), fmt, ap);
	va_end(ap);
	return rc;
}

/* isa-l takes bytes that it does not change as bytes that it might. */
static uint32_t crc_add(uint32_t crc, const void *bytes, size_t n)
{
	return crc32_iscsi((unsigned char *)(uintptr_t)bytes, (int)n, crc);
}

/* Of a page, without its last four bytes. */
static uint32_t page_crc(const void *page)
{
	return ~crc_add(UINT32_MAX, page, INTEGRITY_UNIT_BYTES - sizeof(uint32_t));
}

static bool page_is_zero(const void *page)
{
	const uint8_t *p = page;

	return p[0] == 0 && memcmp(p, p + 1, INTEGRITY_UNIT_BYTES - 1) == 0;
}

/* --- The superblock --- */

int integrity_layout_make(struct integrity_layout *l, uint64_t size_units, struct integrity_error *e)
{
	/* Room for the checksum pages of all units but the superblocks: a few more than there are regions. */
	uint64_t most = size_units < 2 ? 0 : ((size_units - 2) >> INTEGRITY_REGION_SHIFT) + 1;

	if (most > INTEGRITY_REGIONS_MAX) {
		return layout_refuse(e, -EINVAL, "%" PRIu64 " blocks of 4096 bytes are too many: at most %" PRIu64,
				     size_units, (uint64_t)INTEGRITY_REGIONS_MAX << INTEGRITY_REGION_SHIFT);
	}
	l->size_units = size_units;
	l->bitmap_pages = (uint32_t)((most + INTEGRITY_BITMAP_REGIONS - 1) / INTEGRITY_BITMAP_REGIONS);
	l->bitmap_first = 1;
	l->sums_first = l->bitmap_first + 2 * (uint64_t)l->bitmap_pages;
	l->data_first = (l->sums_first + most + DATA_ALIGN_UNITS - 1) / DATA_ALIGN_UNITS * DATA_ALIGN_UNITS;
	if (l->data_first + 2 > size_units) {
		return layout_refuse(e, -EINVAL, "%" PRIu64 " blocks of 4096 bytes are too few: at least %u",
				     size_units, DATA_ALIGN_UNITS + 2);
	}
	l->data_units = size_units - 1 - l->data_first;
	l->regions = (uint32_t)((l->data_units + INTEGRITY_REGION_UNITS - 1) >> INTEGRITY_REGION_SHIFT);
	return 0;
}

void integrity_super_encode(struct integrity_super *s, const struct integrity_layout *l)
{
	memset(s, 0, sizeof(*s));
	memcpy(s->magic, INTEGRITY_MAGIC, sizeof(s->magic));
	s->version = INTEGRITY_VERSION;
	s->unit_bytes = INTEGRITY_UNIT_BYTES;
	s->region_units = INTEGRITY_REGION_UNITS;
	s->bitmap_pages = l->bitmap_pages;
	memcpy(s->uuid, l->uuid, sizeof(s->uuid));
	s->id = l->id;
	s->size_units = l->size_units;
	s->data_first = l->data_first;
	s->data_units = l->data_units;
	s->crc = page_crc(s);
}

bool integrity_super_is_one(const struct integrity_super *s)
{
	return memcmp(s->magic, INTEGRITY_MAGIC, sizeof(s->magic)) == 0;
}

static int super_check(const struct integrity_super *s, struct integrity_error *e)
{
	if (!integrity_super_is_one(s)) {
		return layout_refuse(e, -EILSEQ, "there is no superblock of an integrity bdev");
	}
	if (s->crc != page_crc(s)) {
		return layout_refuse(e, -EILSEQ, "superblock: crc is %08" PRIx32 ", that of its contents %08" PRIx32,
				     s->crc, page_crc(s));
	}
	if (s->version != INTEGRITY_VERSION) {
		return layout_refuse(e, -EILSEQ, "superblock: version %" PRIu32 ", known is %u", s->version,
				     INTEGRITY_VERSION);
	}
	if (s->unit_bytes != INTEGRITY_UNIT_BYTES || s->region_units != INTEGRITY_REGION_UNITS) {
		return layout_refuse(e, -EILSEQ,
				     "superblock: units of %" PRIu32 " bytes, %" PRIu32
				     " in a region: must be 4096 and %u",
				     s->unit_bytes, s->region_units, INTEGRITY_REGION_UNITS);
	}
	return 0;
}

int integrity_super_decode(const struct integrity_super *s, uint64_t base_units, struct integrity_layout *l,
			   struct integrity_error *e)
{
	int rc = super_check(s, e);

	if (rc != 0) {
		return rc;
	}
	if (s->size_units > base_units) {
		return layout_refuse(e, -EILSEQ,
				     "superblock: made for %" PRIu64 " blocks of 4096 bytes, there are %" PRIu64,
				     s->size_units, base_units);
	}
	if (integrity_layout_make(l, s->size_units, e) != 0) {
		return -EILSEQ;
	}
	if (s->bitmap_pages != l->bitmap_pages || s->data_first != l->data_first || s->data_units != l->data_units) {
		return layout_refuse(e, -EILSEQ,
				     "superblock: %" PRIu32 " pages of bitmap, data at %" PRIu64 ": must be %" PRIu32
				     " and %" PRIu64,
				     s->bitmap_pages, s->data_first, l->bitmap_pages, l->data_first);
	}
	memcpy(l->uuid, s->uuid, sizeof(l->uuid));
	l->id = s->id;
	return 0;
}

/* --- The bitmap --- */

void integrity_bitmap_seal(struct integrity_bitmap_page *p, const struct integrity_layout *l, uint32_t index)
{
	p->magic = INTEGRITY_BITMAP_MAGIC;
	p->index = index;
	p->id = l->id;
	memset(p->reserved, 0, sizeof(p->reserved));
	p->crc = page_crc(p);
}

int integrity_bitmap_decode(const struct integrity_bitmap_page *p, const struct integrity_layout *l, uint32_t index,
			    struct integrity_error *e)
{
	if (p->magic != INTEGRITY_BITMAP_MAGIC || p->crc != page_crc(p)) {
		return layout_refuse(e, -EILSEQ, "bitmap page %" PRIu32 ": wrong crc", index);
	}
	if (p->id != l->id || p->index != index) {
		return layout_refuse(e, -EILSEQ, "bitmap page %" PRIu32 ": is page %" PRIu32 " of %016" PRIx64, index,
				     p->index, p->id);
	}
	return 0;
}

void integrity_bitmap_open_all(const struct integrity_bitmap_page copies[2], struct integrity_bitmap_page *to)
{
	uint64_t later = 0;

	for (unsigned i = 0; i < 2; i++) {
		uint64_t sequence = copies[i].sequence;
		later = sequence > later && sequence < INTEGRITY_SEQUENCE_MAX ? sequence : later;
	}
	memset(to, 0, sizeof(*to));
	memset(to->bits, 0xff, sizeof(to->bits));
	to->sequence = later + 1;
}

int integrity_bitmap_choose(const struct integrity_bitmap_page copies[2], const struct integrity_layout *l,
			    uint32_t index, struct integrity_bitmap_page *to, struct integrity_error *e)
{
	bool right[2];

	for (unsigned i = 0; i < 2; i++) {
		right[i] = integrity_bitmap_decode(&copies[i], l, index, e) == 0;
	}
	if (!right[0] && !right[1]) {
		integrity_bitmap_open_all(copies, to);
		return -EILSEQ;
	}
	unsigned later = right[1] && (!right[0] || copies[1].sequence > copies[0].sequence);
	*to = copies[later];
	return 0;
}

void integrity_bitmap_set(struct integrity_bitmap_page *p, uint32_t bit, bool open)
{
	uint8_t mask = (uint8_t)(1u << bit % 8);

	p->bits[bit / 8] = (uint8_t)(open ? p->bits[bit / 8] | mask : p->bits[bit / 8] & ~mask);
}

void integrity_bitmap_set_has_sums(struct integrity_bitmap_page *p, uint32_t bit)
{
	p->closed[bit / 8] |= (uint8_t)(1u << bit % 8);
}

uint32_t integrity_bitmap_count(const struct integrity_bitmap_page *p, const struct integrity_layout *l, uint32_t index)
{
	uint64_t first = (uint64_t)index * INTEGRITY_BITMAP_REGIONS;
	uint32_t n = 0;

	for (uint32_t i = 0; i < INTEGRITY_BITMAP_REGIONS && first + i < l->regions; i++) {
		n += integrity_bitmap_is_open(p, i);
	}
	return n;
}

/* --- Checksums --- */

void integrity_sums_seal(struct integrity_sums_page *p, const struct integrity_layout *l, uint32_t region)
{
	p->magic = INTEGRITY_SUMS_MAGIC;
	p->region = region;
	p->id = l->id;
	memset(p->reserved, 0, sizeof(p->reserved));
	p->crc = page_crc(p);
}

static int sums_check(const struct integrity_sums_page *p, const struct integrity_layout *l, uint32_t region,
		      bool written, struct integrity_error *e)
{
	if (page_is_zero(p)) {
		return !written ? 0
				: layout_refuse(e, -EILSEQ, "checksum page %" PRIu32 ": zeroes, it was lost", region);
	}
	if (p->magic != INTEGRITY_SUMS_MAGIC || p->crc != page_crc(p)) {
		return layout_refuse(e, -EILSEQ, "checksum page %" PRIu32 ": wrong crc", region);
	}
	if (p->id != l->id || p->region != region) {
		return layout_refuse(e, -EILSEQ, "checksum page %" PRIu32 ": is page %" PRIu32 " of %016" PRIx64,
				     region, p->region, p->id);
	}
	return 0;
}

int integrity_sums_decode(const struct integrity_sums_page *p, const struct integrity_layout *l, uint32_t region,
			  bool written, uint32_t sum[INTEGRITY_REGION_UNITS], struct integrity_error *e)
{
	int rc = sums_check(p, l, region, written, e);

	if (rc == 0) {
		memcpy(sum, p->sum, sizeof(p->sum));
	} else {
		memset(sum, 0, sizeof(p->sum));
	}
	return rc;
}

uint32_t integrity_sum(struct iov_cursor *c)
{
	uint32_t crc = UINT32_MAX;

	for (size_t left = INTEGRITY_UNIT_BYTES, n; left > 0; left -= n) {
		n = left;
		const void *at = iov_next(c, &n);
		crc = crc_add(crc, at, n);
	}
	return ~crc != INTEGRITY_SUM_UNKNOWN ? ~crc : 1;
}

uint32_t integrity_sum_of_zeroes(void)
{
	static const uint8_t zeroes[INTEGRITY_UNIT_BYTES];
	const struct iovec iov = {(void *)(uintptr_t)zeroes, sizeof(zeroes)};
	struct iov_cursor c = {.iov = &iov};

	return integrity_sum(&c);
}
