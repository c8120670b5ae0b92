/* SPDX-License-Identifier: BSD-3-Clause */
/* Any bytes as what an integrity bdev has on its base: what is accepted lies within the base, and what is refused
 * leaves nothing that counts. Input: a byte of which bit 0 leaves the checksums of the pages as they are, and then the
 * first HEAD bytes of the superblock, of both copies of a bitmap page and of a checksum page; all else is zeroes. */
#include <isa-l/crc.h>
#include <stdlib.h>
#include <string.h>

#include "bdev_modules/integrity/layout.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PAGES = 4, HEAD = 96, BASE_UNITS = 70000 };
static uint8_t pages[PAGES][INTEGRITY_UNIT_BYTES] __attribute__((aligned(8)));

static void expect(bool truth)
{
	if (!truth) {
		abort();
	}
}

static void seal(uint8_t *page)
{
	uint32_t crc = ~crc32_iscsi(page, INTEGRITY_UNIT_BYTES - 4, UINT32_MAX);

	memcpy(page + INTEGRITY_UNIT_BYTES - 4, &crc, 4);
}

static void read_pages(const uint8_t *data, size_t size)
{
	bool sealed = (data[0] & 1) == 0;

	memset(pages, 0, sizeof(pages));
	for (size_t i = 1; i < size && i <= (size_t)PAGES * HEAD; i++) {
		pages[(i - 1) / HEAD][(i - 1) % HEAD] = data[i];
	}
	for (unsigned i = 0; i < PAGES && sealed; i++) {
		seal(pages[i]);
	}
}

static void check_layout(const struct integrity_layout *l)
{
	expect(l->size_units <= BASE_UNITS && l->data_units > 0);
	expect(l->sums_first >= l->bitmap_first + 2 * (uint64_t)l->bitmap_pages);
	expect(l->data_first >= l->sums_first + l->regions);
	expect(l->data_first + l->data_units < l->size_units);
	expect((uint64_t)l->regions * INTEGRITY_REGION_UNITS >= l->data_units);
	expect((uint64_t)l->bitmap_pages * INTEGRITY_BITMAP_REGIONS >= l->regions);
}

static void check_bitmap(const struct integrity_layout *l)
{
	static struct integrity_bitmap_page copies[2], chosen;
	struct integrity_error e = {""};

	memcpy(copies, pages[1], sizeof(copies));
	int rc = integrity_bitmap_choose(copies, l, 0, &chosen, &e);
	expect(integrity_bitmap_count(&chosen, l, 0) <= l->regions);
	expect(rc == 0 || (e.text[0] != '\0' && integrity_bitmap_count(&chosen, l, 0) == l->regions));
	integrity_bitmap_seal(&chosen, l, 0);
	expect(integrity_bitmap_decode(&chosen, l, 0, &e) == 0);
}

static void check_sums(const struct integrity_layout *l, bool written)
{
	static const uint32_t unknown[INTEGRITY_REGION_UNITS];
	uint32_t sum[INTEGRITY_REGION_UNITS];
	struct integrity_sums_page page;
	struct integrity_error e = {""};

	memcpy(&page, pages[3], sizeof(page));
	if (integrity_sums_decode(&page, l, 1, written, sum, &e) != 0) {
		expect(e.text[0] != '\0' && memcmp(sum, unknown, sizeof(sum)) == 0);
	} else {
		expect(memcmp(sum, page.sum, sizeof(sum)) == 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct integrity_layout l;
	struct integrity_super s;
	struct integrity_error e = {""};

	if (size == 0) {
		return 0;
	}
	read_pages(data, size);
	memcpy(&s, pages[0], sizeof(s));
	if (integrity_super_decode(&s, BASE_UNITS, &l, &e) != 0) {
		expect(e.text[0] != '\0');
		expect(integrity_layout_make(&l, BASE_UNITS, &e) == 0);
		memset(l.uuid, 0, sizeof(l.uuid));
		l.id = 0;
	} else {
		expect(integrity_super_is_one(&s));
	}
	check_layout(&l);
	check_bitmap(&l);
	check_sums(&l, false);
	check_sums(&l, true);
	return 0;
}
