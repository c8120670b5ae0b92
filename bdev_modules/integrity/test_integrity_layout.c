/* SPDX-License-Identifier: BSD-3-Clause */
/* What is on the base of an integrity bdev: the functions that make and check it. */
#include <errno.h>
#include <isa-l/crc.h>
#include <string.h>

#include "bdev_modules/integrity/layout.h"
#include "unittest/unit.h"
#include "util/iov.h"

static struct integrity_layout layout;
static struct integrity_error why;

static void layout_of(uint64_t units)
{
	CU_ASSERT_EQUAL_FATAL(integrity_layout_make(&layout, units, &why), 0);
	memset(layout.uuid, 7, sizeof(layout.uuid));
	layout.id = 0x1234567890abcdef;
}

static void test_areas_lie_behind_each_other(void)
{
	const uint64_t sizes[] = {258,
				  300,
				  1000,
				  1793,
				  70000,
				  8314880,
				  8314881,
				  16629760,
				  UINT64_C(1) << 28,
				  UINT64_C(1) << 35,
				  UINT64_C(1) << 39};

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		layout_of(sizes[i]);
		CU_ASSERT_TRUE(layout.bitmap_first >= 1);
		CU_ASSERT_EQUAL(layout.sums_first, layout.bitmap_first + 2 * (uint64_t)layout.bitmap_pages);
		CU_ASSERT_TRUE(layout.data_first >= layout.sums_first + layout.regions);
		CU_ASSERT_EQUAL(layout.data_first % 256, 0);
		CU_ASSERT_EQUAL(layout.data_first + layout.data_units, sizes[i] - 1);
		CU_ASSERT_TRUE((uint64_t)layout.regions * INTEGRITY_REGION_UNITS >= layout.data_units);
		CU_ASSERT_TRUE((uint64_t)(layout.regions - 1) * INTEGRITY_REGION_UNITS < layout.data_units);
		CU_ASSERT_TRUE((uint64_t)layout.bitmap_pages * INTEGRITY_BITMAP_REGIONS >= layout.regions);
	}
	for (uint64_t size = 0; size < 258; size++) {
		CU_ASSERT_EQUAL(integrity_layout_make(&layout, size, &why), -EINVAL);
	}
	CU_ASSERT_EQUAL(integrity_layout_make(&layout, UINT64_C(1) << 40, &why), -EINVAL);
	CU_ASSERT_EQUAL(integrity_layout_make(&layout, UINT64_MAX, &why), -EINVAL);
}

static void test_a_superblock_is_read_as_it_was_written(void)
{
	struct integrity_super s;
	struct integrity_layout read;

	layout_of(70000);
	integrity_super_encode(&s, &layout);
	CU_ASSERT_EQUAL_FATAL(integrity_super_decode(&s, 70000, &read, &why), 0);
	CU_ASSERT_EQUAL(memcmp(read.uuid, layout.uuid, 16), 0);
	CU_ASSERT_EQUAL(read.id, layout.id);
	CU_ASSERT_EQUAL(read.data_first, layout.data_first);
	CU_ASSERT_EQUAL(read.data_units, layout.data_units);
	CU_ASSERT_EQUAL(integrity_super_decode(&s, 80000, &read, &why), 0); /* the base has grown */
	CU_ASSERT_EQUAL(read.data_units, layout.data_units);
	CU_ASSERT_EQUAL(integrity_super_decode(&s, 69999, &read, &why), -EILSEQ);
	CU_ASSERT_PTR_NOT_NULL(strstr(why.text, "made for 70000"));
}

static void test_a_superblock_with_a_wrong_byte_is_refused(void)
{
	struct integrity_super s;
	struct integrity_layout read;

	layout_of(70000);
	integrity_super_encode(&s, &layout);
	for (size_t i = 0; i < sizeof(s); i++) {
		((uint8_t *)&s)[i] ^= 0x10;
		CU_ASSERT_EQUAL(integrity_super_decode(&s, 70000, &read, &why), -EILSEQ);
		CU_ASSERT_EQUAL(integrity_super_is_one(&s), i >= 16);
		((uint8_t *)&s)[i] ^= 0x10;
	}
}

/* The crc is right, and what it covers is not: each field is looked at. */
static void refused_with(void (*change)(struct integrity_super *s), const char *text)
{
	struct integrity_super s;
	struct integrity_layout read;

	layout_of(70000);
	integrity_super_encode(&s, &layout);
	change(&s);
	s.crc = ~crc32_iscsi((unsigned char *)&s, sizeof(s) - 4, UINT32_MAX);
	CU_ASSERT_EQUAL(integrity_super_decode(&s, 70000, &read, &why), -EILSEQ);
	CU_ASSERT_PTR_NOT_NULL(strstr(why.text, text));
}

static void change_version(struct integrity_super *s)
{
	s->version = 2;
}
static void change_unit(struct integrity_super *s)
{
	s->unit_bytes = 512;
}
static void change_region(struct integrity_super *s)
{
	s->region_units = 1024;
}
static void change_size(struct integrity_super *s)
{
	s->size_units = 200;
}
static void change_bitmap(struct integrity_super *s)
{
	s->bitmap_pages++;
}
static void change_first(struct integrity_super *s)
{
	s->data_first -= 256;
}
static void change_units(struct integrity_super *s)
{
	s->data_units++;
}

static void test_each_field_of_a_superblock_is_checked(void)
{
	refused_with(change_version, "version 2");
	refused_with(change_unit, "units of 512");
	refused_with(change_region, "1024 in a region");
	refused_with(change_size, "too few");
	refused_with(change_bitmap, "pages of bitmap");
	refused_with(change_first, "data at");
	refused_with(change_units, "data at");
}

static void test_the_later_right_copy_of_the_bitmap_counts(void)
{
	static struct integrity_bitmap_page copies[2], chosen;

	layout_of(70000);
	memset(copies, 0, sizeof(copies));
	CU_ASSERT_EQUAL(integrity_bitmap_choose(copies, &layout, 0, &chosen, &why), -EILSEQ); /* both are lost */
	CU_ASSERT_EQUAL(integrity_bitmap_count(&chosen, &layout, 0), layout.regions);
	for (unsigned i = 0; i < 2; i++) {
		copies[i].sequence = 7 + i;
		integrity_bitmap_set(&copies[i], 3 + i, true);
		integrity_bitmap_seal(&copies[i], &layout, 0);
	}
	CU_ASSERT_EQUAL(integrity_bitmap_choose(copies, &layout, 0, &chosen, &why), 0);
	CU_ASSERT_EQUAL(chosen.sequence, 8);
	CU_ASSERT_TRUE(integrity_bitmap_is_open(&chosen, 4));
	CU_ASSERT_FALSE(integrity_bitmap_is_open(&chosen, 3));
	copies[1].bits[99] ^= 1; /* torn */
	CU_ASSERT_EQUAL(integrity_bitmap_choose(copies, &layout, 0, &chosen, &why), 0);
	CU_ASSERT_EQUAL(chosen.sequence, 7);
	copies[0].magic ^= 1;
	CU_ASSERT_EQUAL(integrity_bitmap_choose(copies, &layout, 0, &chosen, &why), -EILSEQ);
	CU_ASSERT_EQUAL(integrity_bitmap_count(&chosen, &layout, 0), layout.regions);
	CU_ASSERT_EQUAL(chosen.sequence, 9); /* above both, although they are wrong */
	copies[0].sequence = UINT64_MAX;
	CU_ASSERT_EQUAL(integrity_bitmap_choose(copies, &layout, 0, &chosen, &why), -EILSEQ);
	CU_ASSERT_EQUAL(chosen.sequence, 9); /* no right page has such a number */
	copies[0].magic ^= 1;
	copies[0].sequence = 9;
	integrity_bitmap_seal(&copies[0], &layout, 0);
	copies[1].bits[99] ^= 1;
	CU_ASSERT_EQUAL(integrity_bitmap_choose(copies, &layout, 0, &chosen, &why), 0);
	CU_ASSERT_EQUAL(chosen.sequence, 9);
	integrity_bitmap_set(&chosen, 3, false);
	CU_ASSERT_EQUAL(integrity_bitmap_count(&chosen, &layout, 0), 0);
}

static void test_a_region_that_was_closed_has_checksums_for_good(void)
{
	static struct integrity_bitmap_page p;

	integrity_bitmap_set(&p, 9, true);
	integrity_bitmap_set(&p, 9, false); /* it could not be opened */
	CU_ASSERT_FALSE(integrity_bitmap_has_sums(&p, 9));
	integrity_bitmap_set_has_sums(&p, 9);
	integrity_bitmap_set(&p, 9, true);
	CU_ASSERT_TRUE(integrity_bitmap_has_sums(&p, 9));
	CU_ASSERT_FALSE(integrity_bitmap_has_sums(&p, 8) || integrity_bitmap_has_sums(&p, 10));
	CU_ASSERT_TRUE(integrity_bitmap_is_open(&p, 9));
}

static void test_a_bitmap_has_as_many_pages_as_it_needs(void)
{
	static struct integrity_bitmap_page copies[2], chosen;

	layout_of(UINT64_C(2) * INTEGRITY_BITMAP_REGIONS * INTEGRITY_REGION_UNITS);
	CU_ASSERT_EQUAL(layout.bitmap_pages, 2);
	copies[0].magic = copies[1].magic = 1; /* all of its regions are open, then */
	CU_ASSERT_EQUAL(integrity_bitmap_choose(copies, &layout, 0, &chosen, &why), -EILSEQ);
	CU_ASSERT_EQUAL(integrity_bitmap_count(&chosen, &layout, 0), INTEGRITY_BITMAP_REGIONS);
	CU_ASSERT_EQUAL(integrity_bitmap_count(&chosen, &layout, 1), layout.regions - INTEGRITY_BITMAP_REGIONS);
}

static void test_a_bitmap_page_of_elsewhere_is_refused(void)
{
	static struct integrity_bitmap_page p;

	layout_of(70000);
	integrity_bitmap_seal(&p, &layout, 1);
	CU_ASSERT_EQUAL(integrity_bitmap_decode(&p, &layout, 1, &why), 0);
	CU_ASSERT_EQUAL(integrity_bitmap_decode(&p, &layout, 0, &why), -EILSEQ);
	layout.id++;
	CU_ASSERT_EQUAL(integrity_bitmap_decode(&p, &layout, 1, &why), -EILSEQ);
}

static void test_a_checksum_page_that_is_wrong_has_no_checksums(void)
{
	static struct integrity_sums_page p;
	uint32_t sum[INTEGRITY_REGION_UNITS];

	layout_of(70000);
	CU_ASSERT_EQUAL(integrity_sums_decode(&p, &layout, 5, false, sum, &why), 0); /* new */
	CU_ASSERT_EQUAL(sum[0], INTEGRITY_SUM_UNKNOWN);
	CU_ASSERT_EQUAL(integrity_sums_decode(&p, &layout, 5, true, sum, &why), -EILSEQ); /* lost */
	for (unsigned i = 0; i < INTEGRITY_REGION_UNITS; i++) {
		p.sum[i] = i + 1;
	}
	integrity_sums_seal(&p, &layout, 5);
	CU_ASSERT_EQUAL(integrity_sums_decode(&p, &layout, 5, true, sum, &why), 0);
	CU_ASSERT_EQUAL(sum[511], 512);
	CU_ASSERT_EQUAL(integrity_sums_decode(&p, &layout, 6, true, sum, &why), -EILSEQ);
	CU_ASSERT_EQUAL(sum[511], INTEGRITY_SUM_UNKNOWN);
	for (size_t i = 0; i < sizeof(p); i += unit_stride()) {
		((uint8_t *)&p)[i] ^= 1;
		CU_ASSERT_EQUAL(integrity_sums_decode(&p, &layout, 5, true, sum, &why), -EILSEQ);
		((uint8_t *)&p)[i] ^= 1;
	}
	layout.id++;
	CU_ASSERT_EQUAL(integrity_sums_decode(&p, &layout, 5, true, sum, &why), -EILSEQ);
}

static void test_checksums_do_not_depend_on_how_memory_lies(void)
{
	static uint8_t data[INTEGRITY_UNIT_BYTES];
	struct iovec iov[3] = {{data, 1}, {data + 1, 2000}, {data + 2001, 2095}}, one = {data, sizeof(data)};
	struct iov_cursor c = {.iov = &one}, parts = {.iov = iov};

	CU_ASSERT_EQUAL(integrity_sum(&c), integrity_sum_of_zeroes());
	memcpy(data, "123456789", 9);
	c = (struct iov_cursor){.iov = &one};
	CU_ASSERT_EQUAL(integrity_sum(&parts), integrity_sum(&c));
	c = (struct iov_cursor){.iov = &one};
	CU_ASSERT_NOT_EQUAL(integrity_sum(&c), integrity_sum_of_zeroes());
}

/* The last four bytes are chosen so that the CRC32C is 0. They go into the CRC by a linear function of 32 bits, so
 * which they must be is a system of 32 equations. */
static uint32_t word_that_makes(uint32_t wanted)
{
	uint32_t value[32], word[32], result = 0;

	for (unsigned i = 0; i < 32; i++) {
		word[i] = 1u << i;
		value[i] = crc32_iscsi((unsigned char *)&word[i], 4, 0);
	}
	for (unsigned bit = 0; bit < 32; bit++) {
		unsigned pivot = bit;
		while (!(value[pivot] >> bit & 1)) {
			pivot++;
		}
		uint32_t v = value[pivot], w = word[pivot];
		value[pivot] = value[bit];
		word[pivot] = word[bit];
		value[bit] = v;
		word[bit] = w;
		for (unsigned i = 0; i < 32; i++) {
			if (i != bit && value[i] >> bit & 1) {
				value[i] ^= v;
				word[i] ^= w;
			}
		}
	}
	for (unsigned bit = 0; bit < 32; bit++) {
		result ^= wanted >> bit & 1 ? word[bit] : 0;
	}
	return result;
}

static void test_a_crc_of_zero_is_no_unknown_checksum(void)
{
	static uint8_t data[INTEGRITY_UNIT_BYTES];
	struct iovec one = {data, sizeof(data)};
	struct iov_cursor c = {.iov = &one};
	uint32_t before = crc32_iscsi(data, sizeof(data) - 4, UINT32_MAX), word = before ^ word_that_makes(UINT32_MAX);

	memcpy(data + sizeof(data) - 4, &word, 4);
	CU_ASSERT_EQUAL((uint32_t)~crc32_iscsi(data, sizeof(data), UINT32_MAX), 0);
	CU_ASSERT_EQUAL(integrity_sum(&c), 1);
}

static const struct unit_test tests[] = {
	UNIT(test_areas_lie_behind_each_other),
	UNIT(test_a_superblock_is_read_as_it_was_written),
	UNIT(test_a_superblock_with_a_wrong_byte_is_refused),
	UNIT(test_each_field_of_a_superblock_is_checked),
	UNIT(test_the_later_right_copy_of_the_bitmap_counts),
	UNIT(test_a_region_that_was_closed_has_checksums_for_good),
	UNIT(test_a_bitmap_has_as_many_pages_as_it_needs),
	UNIT(test_a_bitmap_page_of_elsewhere_is_refused),
	UNIT(test_a_checksum_page_that_is_wrong_has_no_checksums),
	UNIT(test_checksums_do_not_depend_on_how_memory_lies),
	UNIT(test_a_crc_of_zero_is_no_unknown_checksum),
	UNIT_END,
};
UNIT_MAIN("bdev_integrity_layout", tests, NULL, NULL)
