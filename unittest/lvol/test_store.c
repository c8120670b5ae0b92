/* SPDX-License-Identifier: BSD-3-Clause */
/* Stores that are good, and stores that are damaged in one place: what is wrong is named, and the rest is there. */
#include <errno.h>
#include <stddef.h>

#include "lvol/rescue.h"
#include "unittest/lvol/image.h"
#include "unittest/unit.h"
#include "util/compiler.h"

static struct image m;
static struct lvol_store *store;
static struct lvol_error error;

/* Allocations succeed until this many have been made. */
static const char uuid[] = "00000000-0000-0000-0000-0000000000aa";
static unsigned allocations_left = UINT32_MAX;
void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);

static bool allocation_fails(void)
{
	return allocations_left == 0 || (allocations_left != UINT32_MAX && --allocations_left == 0);
}

void *__wrap_malloc(size_t size)
{
	return allocation_fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return allocation_fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
	return allocation_fails() ? NULL : __real_realloc(p, size);
}

static int open_as_it_is(void)
{
	struct lvol_device d = image_device(&m);

	if (store != NULL) {
		lvol_store_free(store);
		store = NULL;
	}
	return lvol_store_read(&d, &store, &error);
}

static int open_sealed(void)
{
	image_seal(&m);
	return open_as_it_is();
}

static void expect_refused(const char *words)
{
	CU_ASSERT_EQUAL(open_sealed(), -EILSEQ);
	if (strstr(error.text, words) == NULL) {
		printf("'%s' does not say '%s'\n", error.text, words);
		CU_FAIL("what is wrong");
	}
	image_init(&m);
}

static bool has_problem(const char *words)
{
	for (size_t i = 0; i < store->num_problems; i++) {
		if (strstr(store->problems[i], words) != NULL) {
			return true;
		}
		printf("problem: %s\n", store->problems[i]);
	}
	return false;
}

static void expect_problem(const char *words)
{
	CU_ASSERT_EQUAL_FATAL(open_sealed(), 0);
	CU_ASSERT_EQUAL(lvol_store_check(store), 0);
	if (!has_problem(words)) {
		printf("wanted: %s\n", words);
		CU_FAIL("the problem is named");
	}
	image_init(&m);
}

static void expect_good(size_t num_volumes)
{
	CU_ASSERT_EQUAL_FATAL(open_sealed(), 0);
	CU_ASSERT_EQUAL(lvol_store_check(store), 0);
	CU_ASSERT_EQUAL(store->num_volumes, num_volumes);
	CU_ASSERT_FALSE(has_problem("nothing has these words"));
	CU_ASSERT_EQUAL(store->num_problems, 0);
}

static void test_an_empty_store_is_good(void)
{
	image_init(&m);
	expect_good(0);
	CU_ASSERT_STRING_EQUAL(store->name, "s");
	CU_ASSERT_EQUAL(store->geometry.num_clusters, IMAGE_CLUSTERS);
	CU_ASSERT_EQUAL(store->geometry.num_md_clusters, 4);
	CU_ASSERT_PTR_NULL(lvol_store_find(store, "s"));
	CU_ASSERT_PTR_NULL(lvol_store_find(store, ""));
}

static void test_each_field_of_the_superblock_is_checked(void)
{
	struct lvol_super *s = image_super(&m);

	image_init(&m);
	s->signature[0] = 'X', expect_refused("does not begin with");
	s->version = 2, expect_refused("version 2");
	s->version = 4, expect_refused("version 4");
	s->length = 4095, expect_refused("length 4095");
	s->clean = 2, expect_refused("clean is 2");
	s->type[3] = 'X', expect_refused("type");
	s->md_page_bytes = 8192, expect_refused("md_page_size 8192");
	s->cluster_bytes = 0, expect_refused("cluster_size 0");
	s->cluster_bytes = 4097, expect_refused("cluster_size 4097");
	s->io_unit_bytes = 0, expect_refused("io_unit_size 0");
	s->io_unit_bytes = 3000, expect_refused("io_unit_size 3000");
	s->size_bytes++, expect_refused("size 524289");
	s->size_bytes = 0, expect_refused("used_page_mask");
	s->cluster_bytes = 1 << 19, s->size_bytes = 1 << 18, expect_refused("metadata takes 1 clusters");
	s->page_mask_first = 0, expect_refused("used_page_mask has pages 0");
	s->page_mask_pages = 0, expect_refused("used_page_mask has 0 pages");
	s->page_mask_pages = 2, expect_refused("used_cluster_mask has pages 2");
	s->cluster_mask_pages = 0, expect_refused("used_cluster_mask has 0");
	s->id_mask_first = UINT32_MAX, expect_refused("used_blobid_mask has pages 4294967295");
	s->id_mask_pages = UINT32_MAX, expect_refused("used_blobid_mask");
	s->md_first = 3, expect_refused("md has pages 3");
	s->md_pages = 0, expect_refused("md has 0 pages");
	s->md_pages = 125, expect_refused("md has pages 4 to 129");
}

static void test_a_superblock_of_another_crc_is_refused(void)
{
	image_init(&m);
	image_super(&m)->reserved[7]++;
	CU_ASSERT_EQUAL(open_as_it_is(), -EILSEQ);
	CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "crc"));
}

static void test_too_small_and_too_large_devices_are_refused(void)
{
	struct lvol_device d = image_device(&m);
	struct lvol_geometry g;

	image_init(&m);
	d.size_bytes = 4095;
	CU_ASSERT_EQUAL(lvol_store_read(&d, &store, &error), -EILSEQ);
	CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "4095 bytes are too few"));
	image_super(&m)->size_bytes = UINT64_MAX;
	image_super(&m)->cluster_bytes = 4096;
	image_seal(&m);
	CU_ASSERT_EQUAL(lvol_super_decode(image_super(&m), UINT64_MAX, &g, &error), -EILSEQ);
	CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "2^32 - 2 clusters"));
}

static void test_errors_of_the_device_are_told(void)
{
	for (uint64_t page = 0; page <= 3; page++) {
		image_init(&m);
		m.read_error = -EIO;
		m.fail_page = page;
		CU_ASSERT_EQUAL(open_sealed(), -EIO);
		CU_ASSERT_STRING_EQUAL(error.text, strerror(EIO));
	}
	image_init(&m);
	image_volume_add(&m, 1, "v", NULL, 0);
	m.read_error = -EIO;
	m.fail_page = IMAGE_MD_FIRST + 1;
	CU_ASSERT_EQUAL(open_sealed(), 0);
	CU_ASSERT_TRUE(has_problem("metadata page 1: Input/output error"));
	image_super(&m)->clean = 0;
	CU_ASSERT_EQUAL(open_sealed(), -EIO);
}

static void test_a_damaged_mask_has_all_pages_read(void)
{
	static const struct {
		uint32_t page;
		const char *name;
	} masks[] = {{1, "used_page_mask"}, {2, "used_cluster_mask"}, {3, "used_blobid_mask"}};

	for (size_t i = 0; i < ARRAY_SIZE(masks); i++) {
		for (size_t at = 0; at <= 1; at++) {
			image_init(&m);
			image_volume_add(&m, 1, "v", &(struct lvol_desc_rle){4, 2}, 1);
			m.bytes[masks[i].page * LVOL_PAGE_BYTES + at] ^= 0x40;
			CU_ASSERT_EQUAL(open_sealed(), 0);
			CU_ASSERT_TRUE(has_problem(masks[i].name));
			CU_ASSERT_PTR_NOT_NULL(lvol_store_find(store, "v"));
			CU_ASSERT_EQUAL(lvol_store_check(store), 0);
			CU_ASSERT_EQUAL(store->num_problems, 1);
		}
	}
}

static void test_what_is_lost_or_missing_in_masks_is_found(void)
{
	static const struct lvol_desc_rle run = {4, 2};

	image_init(&m);
	image_volume_add(&m, 1, "v", &run, 1), image_mark(&m, 2, 5, false),
		expect_problem("1 clusters in use are not in the mask; the first is 5");
	image_mark(&m, 2, 9, true), image_mark(&m, 2, 8, true),
		expect_problem("2 clusters are lost: in the mask, but of no volume; the first is 8");
	image_mark(&m, 1, 0, false), expect_problem("1 metadata pages in use are not in the mask; the first is 0");
	image_mark(&m, 1, 7, true), expect_problem("1 metadata pages are lost");
	image_volume_add(&m, 1, "v", &run, 1), image_mark(&m, 3, 1, false), expect_problem("2 clusters are lost");
	image_mark(&m, 3, 5, true), expect_problem("volume 0x100000005 (without name): metadata page 5");
}

static void test_extents_of_runs(void)
{
	static const struct lvol_desc_rle runs[] = {{4, 2}, {0, 3}, {6, 1}, {7, 2}, {20, 1}};
	const struct lvol_volume *v;
	static const uint32_t clusters[] = {4, 5, 0, 0, 0, 6, 7, 8, 20};
	uint8_t data[16];

	image_init(&m);
	image_volume_add(&m, 2, "v", runs, ARRAY_SIZE(runs));
	memset(m.bytes + 7 * IMAGE_CLUSTER + 100, 0xab, 16);
	expect_good(1);
	v = lvol_store_find(store, "s/v");
	CU_ASSERT_PTR_NOT_NULL_FATAL(v);
	CU_ASSERT_EQUAL(v->num_clusters, 9);
	CU_ASSERT_EQUAL(v->num_allocated, 6);
	CU_ASSERT_EQUAL(v->num_runs, 3);
	for (size_t i = 0; i < ARRAY_SIZE(clusters); i++) {
		CU_ASSERT_EQUAL(lvol_volume_cluster(v, i), clusters[i]);
	}
	CU_ASSERT_EQUAL(lvol_volume_cluster(v, 9), 0);
	CU_ASSERT_EQUAL(lvol_volume_data(store, v, 6 * IMAGE_CLUSTER + 100, data, 16), 0);
	CU_ASSERT_EQUAL(data[0], 0xab);
	CU_ASSERT_EQUAL(lvol_volume_data(store, v, 3 * IMAGE_CLUSTER, data, 16), 0);
	CU_ASSERT_EQUAL(data[0], 0);
	CU_ASSERT_PTR_EQUAL(lvol_store_find(store, "00000000-0000-0000-0000-000000000002"), v);
}

/* One descriptor in volume 1. */
static void one_desc(uint8_t type, const void *data, uint32_t length)
{
	image_volume_add(&m, 1, "v", NULL, 0);
	image_desc_add(&m, 1, type, data, length);
}

static void test_many_runs(void)
{
	struct lvol_desc_rle runs[20];

	image_init(&m);
	for (uint32_t i = 0; i < 20; i++) {
		runs[i] = (struct lvol_desc_rle){31 - i, 1};
	}
	image_volume_add(&m, 1, "v", runs, 20);
	expect_good(1);
	for (uint32_t i = 0; i < 20; i++) {
		CU_ASSERT_EQUAL(lvol_volume_cluster(lvol_store_find(store, "v"), i), 31 - i);
	}
}

static void test_extents_that_cannot_be_are_named(void)
{
	struct lvol_desc_rle x = {3, 1};

	image_init(&m);
	one_desc(LVOL_DESC_EXTENTS_RLE, &x, 8), expect_problem("clusters 3 to 3, a volume may have 4 to 31");
	x = (struct lvol_desc_rle){32, 1};
	one_desc(LVOL_DESC_EXTENTS_RLE, &x, 8), expect_problem("clusters 32 to 32");
	x = (struct lvol_desc_rle){30, 3};
	one_desc(LVOL_DESC_EXTENTS_RLE, &x, 8), expect_problem("clusters 30 to 32");
	x = (struct lvol_desc_rle){30, 0};
	one_desc(LVOL_DESC_EXTENTS_RLE, &x, 8), expect_problem("entry 0 has no clusters");
	one_desc(LVOL_DESC_EXTENTS_RLE, &x, 7), expect_problem("length 7 is not a multiple of 8");
	struct lvol_desc_rle twice[] = {{4, 20}, {4, 20}};
	one_desc(LVOL_DESC_EXTENTS_RLE, twice, sizeof(twice)), expect_problem("more clusters than the store has (32)");
	twice[0].count = twice[1].count = 2;
	one_desc(LVOL_DESC_EXTENTS_RLE, twice, sizeof(twice)), expect_problem("cluster 4 is also that of v");
	image_volume_add(&m, 2, "w", twice, 1), one_desc(LVOL_DESC_EXTENTS_RLE, twice, 8),
		expect_problem("volume w: cluster 4 is also that of v");
	struct lvol_desc_rle pair[] = {{3, 1}, {4, 1}};
	one_desc(LVOL_DESC_EXTENTS_RLE, pair, sizeof(pair)), expect_problem("clusters 3 to 3");
	uint64_t table = 0;
	one_desc(LVOL_DESC_EXTENT_TABLE, &table, 8), image_desc_add(&m, 1, LVOL_DESC_EXTENTS_RLE, twice, 8),
		expect_problem("but there is a table of extents");
	one_desc(LVOL_DESC_EXTENTS_RLE, twice, 8), image_desc_add(&m, 1, LVOL_DESC_EXTENT_TABLE, &table, 8),
		expect_problem("extents of the other kind");
}

static void test_a_size_beyond_64_bits_is_refused(void)
{
	static const struct lvol_desc_rle none = {0, UINT32_MAX};
	uint64_t table[2] = {UINT64_MAX / IMAGE_CLUSTER + 1, 0};

	image_init(&m);
	one_desc(LVOL_DESC_EXTENT_TABLE, table, 8), expect_problem("exceeds 64 bits");
	/* With clusters of 2 GiB, 2^33 of them are the limit. */
	struct lvol_device d = image_device(&m);
	image_super(&m)->cluster_bytes = 1u << 31;
	image_super(&m)->size_bytes = d.size_bytes = 4ull << 31;
	image_super(&m)->clean = 0;
	one_desc(LVOL_DESC_EXTENTS_RLE, &none, sizeof(none));
	image_desc_add(&m, 1, LVOL_DESC_EXTENTS_RLE, &none, sizeof(none));
	image_desc_add(&m, 1, LVOL_DESC_EXTENTS_RLE, &none, sizeof(none));
	image_seal(&m);
	lvol_store_free(store);
	CU_ASSERT_EQUAL_FATAL(lvol_store_read(&d, &store, &error), 0);
	CU_ASSERT_TRUE(has_problem("extents: 12884901885 clusters, the size exceeds 64 bits"));
}

/* A table of extents in page 1, with a page of extents in page 2. */
struct table_desc {
	uint64_t clusters;
	struct lvol_desc_table_entry entries[2];
} __attribute__((packed));

static void table_volume(struct table_desc t, uint32_t num_entries)
{
	uint32_t extents[1 + 3] = {0, 8, 0, 9};

	image_volume_add(&m, 1, "t", NULL, 0);
	image_desc_add(&m, 1, LVOL_DESC_EXTENT_TABLE, &t, 8 + 8 * num_entries);
	image_page_begin(&m, 2, 5, 0);
	image_desc_add(&m, 2, LVOL_DESC_EXTENT_PAGE, extents, sizeof(extents));
	image_mark(&m, 2, 8, true);
	image_mark(&m, 2, 9, true);
}

static void test_tables_of_extents(void)
{
	const struct lvol_volume *v;

	image_init(&m);
	table_volume((struct table_desc){3, {{2, 1}}}, 1);
	expect_good(1);
	v = lvol_store_find(store, "t");
	CU_ASSERT_EQUAL(v->num_clusters, 3);
	CU_ASSERT_EQUAL(lvol_volume_cluster(v, 0), 8);
	CU_ASSERT_EQUAL(lvol_volume_cluster(v, 1), 0);
	CU_ASSERT_EQUAL(lvol_volume_cluster(v, 2), 9);
	/* The first 512 clusters have no page. */
	table_volume((struct table_desc){512 + 3, {{0, 1}, {2, 1}}}, 2);
	memcpy(image_page(&m, 2)->descriptors + 5, &(uint32_t){512}, 4);
	expect_good(1);
	v = lvol_store_find(store, "t");
	CU_ASSERT_EQUAL(lvol_volume_cluster(v, 512), 8);
	CU_ASSERT_EQUAL(lvol_volume_cluster(v, 514), 9);
	/* A table in two parts. */
	table_volume((struct table_desc){512 + 3, {{0, 1}}}, 1);
	memcpy(image_page(&m, 2)->descriptors + 5, &(uint32_t){512}, 4);
	image_desc_add(&m, 1, LVOL_DESC_EXTENT_TABLE, &(struct table_desc){512 + 3, {{2, 1}}}, 16);
	expect_good(1);
	CU_ASSERT_EQUAL(lvol_volume_cluster(lvol_store_find(store, "t"), 514), 9);
}

static void test_tables_that_cannot_be_are_named(void)
{
	image_init(&m);
	table_volume((struct table_desc){3, {{2, 1}}}, 0), expect_problem("0 entries for 3 clusters");
	table_volume((struct table_desc){3, {{2, 2}}}, 1), expect_problem("an entry for 2 pages, there are 1 left");
	table_volume((struct table_desc){3, {{2, 0}}}, 1), expect_problem("an entry for 0 pages");
	table_volume((struct table_desc){600, {{2, 2}}}, 1), expect_problem("an entry for 2 pages");
	table_volume((struct table_desc){3, {{12, 1}}}, 1), expect_problem("metadata page 12 of 12");
	table_volume((struct table_desc){1024, {{0, 1}, {2, 1}}}, 2),
		expect_problem("has not the clusters 512 to 1023");
	table_volume((struct table_desc){600, {{2, 1}, {2, 1}}}, 2), expect_problem("has not the clusters 0 to 511");
	table_volume((struct table_desc){1, {{1, 1}}}, 1), expect_problem("metadata page 1 is used twice");
	table_volume((struct table_desc){4, {{2, 1}}}, 1), expect_problem("has not the clusters 0 to 3");
	table_volume((struct table_desc){3, {{2, 1}}}, 1), image_page_begin(&m, 2, 1, 0),
		expect_problem("has not the clusters");
	table_volume((struct table_desc){3, {{2, 1}}}, 1), image_page(&m, 2)->descriptors[0] = 5,
									  expect_problem("has not the clusters");
	table_volume((struct table_desc){3, {{2, 1}}}, 1), image_page(&m, 2)->descriptors[4] = 0x7f,
									  expect_problem("descriptor at 0: length");
	table_volume((struct table_desc){3, {{2, 1}}}, 1), image_page(&m, 2)->descriptors[9] = 3,
									  expect_problem("clusters 3 to 3");
	table_volume((struct table_desc){3, {{2, 1}}}, 1), image_page(&m, 1)->descriptors[0] = 0xfe,
									  expect_problem("descriptor of type 254");
	table_volume((struct table_desc){3, {{2, 1}}}, 1), image_page(&m, 2)->descriptors[5] = 1;
	expect_problem("has not the clusters 0 to 2");
	struct table_desc t = {3, {{2, 1}}};
	one_desc(LVOL_DESC_EXTENT_TABLE, &t, 12), expect_problem("is not 8 more than a multiple of 8");
	one_desc(LVOL_DESC_EXTENT_TABLE, &t, 4), expect_problem("is not 8 more than a multiple of 8");
	one_desc(LVOL_DESC_EXTENT_TABLE, &t, 8), t.clusters = 4, image_desc_add(&m, 1, LVOL_DESC_EXTENT_TABLE, &t, 8),
						 expect_problem("4 clusters, its first part says 3");
	uint32_t all[1 + 514] = {0};
	table_volume((struct table_desc){3, {{2, 1}}}, 1), image_page_begin(&m, 2, 1, 0);
	image_desc_add(&m, 2, LVOL_DESC_EXTENT_PAGE, all, sizeof(all)), expect_problem("has not the clusters");
}

static void test_pages_in_a_row(void)
{
	image_init(&m);
	image_volume_add(&m, 1, "v", NULL, 0);
	image_page(&m, 1)->next = 3;
	image_page_begin(&m, 3, 1, 1);
	image_desc_add(&m, 3, LVOL_DESC_EXTENTS_RLE, &(struct lvol_desc_rle){4, 1}, 8);
	image_mark(&m, 2, 4, true);
	expect_good(1);
	image_page(&m, 3)->sequence = 2, expect_problem("sequence 2, must be 1");
	image_volume_add(&m, 1, "v", NULL, 0), image_page(&m, 1)->next = 1,
							      expect_problem("metadata page 1 is used twice");
	image_volume_add(&m, 1, "v", NULL, 0), image_page(&m, 1)->next = 12, expect_problem("next is 12, there are 12");
	image_volume_add(&m, 1, "v", NULL, 0),
		image_page(&m, 1)->next = 3, image_page_begin(&m, 3, 2, 1),
			       expect_problem("metadata page 3 is that of volume 0x100000002");
	image_volume_add(&m, 1, "v", NULL, 0), image_page(&m, 1)->id = LVOL_ID_HIGH | 12,
							      expect_problem("volume 0x10000000c has no root page");
	image_volume_add(&m, 1, "v", NULL, 0), image_page(&m, 1)->id = 1, expect_problem("volume 0x1 has no root page");
}

static void test_a_page_of_another_crc_damages_its_volume_only(void)
{
	image_init(&m);
	image_volume_add(&m, 1, "v", NULL, 0);
	image_volume_add(&m, 2, "w", &(struct lvol_desc_rle){4, 1}, 1);
	image_seal(&m);
	image_page(&m, 1)->descriptors[0]++;
	CU_ASSERT_EQUAL(open_as_it_is(), 0);
	CU_ASSERT_TRUE(has_problem("volume 0x100000001 (without name): metadata page 1: crc"));
	CU_ASSERT_EQUAL(lvol_volume_cluster(lvol_store_find(store, "w"), 0), 4);
	CU_ASSERT_TRUE(store->volumes[0].damaged);
	CU_ASSERT_EQUAL(lvol_store_check(store), 0);
}

static void test_descriptors_that_cannot_be_are_named(void)
{
	uint8_t value[300] = {1, 0};

	image_init(&m);
	one_desc(LVOL_DESC_PADDING, value, 20), expect_good(1);
	one_desc(9, value, 1), expect_problem("descriptor of type 9");
	one_desc(LVOL_DESC_EXTENT_PAGE, value, 4), expect_problem("descriptor of type 6");
	one_desc(LVOL_DESC_XATTR, value, 3), expect_problem("extended attribute: length 3");
	one_desc(LVOL_DESC_XATTR, value, 4), expect_problem("name of 1 and value of 0 bytes in 4");
	one_desc(LVOL_DESC_XATTR_INTERNAL, value, 3), expect_problem("extended attribute: length 3");
	one_desc(LVOL_DESC_FLAGS, value, 23), expect_problem("flags: length 23");
	one_desc(LVOL_DESC_PADDING, value, 1), image_flags_add(&m, 1, 16, 0), expect_problem("invalid_flags 0x10");
	one_desc(LVOL_DESC_PADDING, value, 1), image_flags_add(&m, 1, 0, 2), expect_problem("data_ro_flags 0x2");
	one_desc(LVOL_DESC_PADDING, value, 1), image_flags_add(&m, 1, LVOL_INVALID_EXTERNAL_SNAPSHOT, 0),
		expect_problem("without EXTSNAP");
	memset(value, 'x', sizeof(value));
	image_volume_add(&m, 1, "v", NULL, 0), image_xattr_add(&m, 1, false, "name", value, 65),
		expect_problem("the name has 65 characters, at most 64");
	image_volume_add(&m, 1, "v", NULL, 0), image_xattr_add(&m, 1, false, "uuid", value, 37),
		expect_problem("the uuid has 37 characters, at most 36");
	image_volume_add(&m, 1, "v", NULL, 0), image_xattr_add(&m, 1, false, "name", "a\nb", 3),
		expect_problem("the name has a character 0xa");
	image_volume_add(&m, 1, "v", NULL, 0), image_xattr_add(&m, 1, false, "name", "a\177b", 3),
		expect_problem("the name has a character 0x7f");
	image_volume_add(&m, 1, "v", NULL, 0), image_xattr_add(&m, 1, true, "SNAP", value, 7),
		expect_problem("SNAP has 7 bytes");
	image_volume_add(&m, 1, "v", NULL, 0), image_xattr_add(&m, 1, true, "EXTSNAP", value, 256),
		expect_problem("the EXTSNAP has 256 characters");
	image_volume_add(&m, 1, "v", NULL, 0), image_xattr_add(&m, 1, true, "EXTSNAP", "a", 1),
		image_xattr_add(&m, 1, true, "EXTSNAP", "b", 1), expect_problem("EXTSNAP is there twice");
	image_volume_add(&m, 1, "v", NULL, 0), image_xattr_add(&m, 1, false, "other", value, 100), expect_good(1);
	image_init(&m), one_desc(LVOL_DESC_PADDING, m.durable, 3000), one_desc(LVOL_DESC_PADDING, value, 0),
		expect_good(1);
	/* The last 4 bytes of a page are too few for a descriptor. */
	image_volume_add(&m, 1, "v", NULL, 0);
	image_desc_add(&m, 1, LVOL_DESC_PADDING, m.bytes,
		       (uint32_t)(sizeof(image_page(&m, 1)->descriptors) - m.filled[1] - 5 - 4));
	image_page(&m, 1)->descriptors[4071] = 0xff;
	expect_good(1);
}

static void test_clones_read_through_their_snapshots(void)
{
	static const struct lvol_desc_rle snap[] = {{4, 2}}, clone[] = {{0, 1}, {6, 1}, {0, 1}};
	uint64_t id = LVOL_ID_HIGH | 1;
	uint8_t data[2];

	image_init(&m);
	image_volume_add(&m, 1, "snap", snap, 1);
	image_flags_add(&m, 1, LVOL_INVALID_THIN, LVOL_DATA_RO_READ_ONLY);
	image_volume_add(&m, 2, "clone", clone, 3);
	image_xattr_add(&m, 2, true, "SNAP", &id, sizeof(id));
	memset(m.bytes + 4 * IMAGE_CLUSTER, 4, IMAGE_CLUSTER);
	memset(m.bytes + 5 * IMAGE_CLUSTER, 5, IMAGE_CLUSTER);
	memset(m.bytes + 6 * IMAGE_CLUSTER, 6, IMAGE_CLUSTER);
	expect_good(2);
	const struct lvol_volume *v = lvol_store_find(store, "clone");
	CU_ASSERT_TRUE(v->parent == lvol_store_find(store, "snap") && v->parent->clones && !v->clones);
	CU_ASSERT_EQUAL(lvol_volume_data(store, v, 0, data, 1), 0);
	CU_ASSERT_EQUAL(lvol_volume_data(store, v, 1 * IMAGE_CLUSTER, data + 1, 1), 0);
	CU_ASSERT_TRUE(data[0] == 4 && data[1] == 6);
	CU_ASSERT_EQUAL(lvol_volume_data(store, v, 2 * IMAGE_CLUSTER, data, 1), 0);
	CU_ASSERT_EQUAL(data[0], 0);
	m.read_error = -EIO;
	m.fail_page = 16;
	CU_ASSERT_EQUAL(lvol_volume_data(store, v, 0, data, 1), -EIO);
	m.read_error = 0;
	/* Of a snapshot that is cut off nothing is guessed. */
	image_page(&m, 1)->descriptors[0] = 9;
	CU_ASSERT_EQUAL(open_sealed(), 0);
	v = lvol_store_find(store, "clone");
	CU_ASSERT_EQUAL(lvol_volume_data(store, v, 0, data, 1), -EILSEQ);
	CU_ASSERT_EQUAL(lvol_volume_data(store, v, 1 * IMAGE_CLUSTER, data, 1), 0);
	/* A clone may have grown beyond its snapshot. */
	image_volume_add(&m, 1, "snap", snap, 1);
	image_volume_add(&m, 2, "clone", (struct lvol_desc_rle[]){{0, 5}}, 1);
	image_xattr_add(&m, 2, true, "SNAP", &id, sizeof(id));
	CU_ASSERT_EQUAL(open_sealed(), 0);
	CU_ASSERT_EQUAL(lvol_volume_data(store, lvol_store_find(store, "clone"), 4 * IMAGE_CLUSTER, data, 1), 0);
	CU_ASSERT_EQUAL(data[0], 0);
}

static void test_clones_that_cannot_be_are_named(void)
{
	uint64_t one = LVOL_ID_HIGH | 1, two = LVOL_ID_HIGH | 2, gone = LVOL_ID_HIGH | 9;
	uint8_t data[1];

	image_init(&m);
	image_volume_add(&m, 1, "a", NULL, 0), image_xattr_add(&m, 1, true, "SNAP", &two, 8);
	image_volume_add(&m, 2, "b", NULL, 0), image_xattr_add(&m, 2, true, "SNAP", &one, 8),
		expect_problem("it is its own snapshot's snapshot");
	image_volume_add(&m, 1, "a", NULL, 0), image_xattr_add(&m, 1, true, "SNAP", &one, 8),
		expect_problem("it is its own snapshot's snapshot");
	image_volume_add(&m, 1, "a", NULL, 0), image_volume_add(&m, 2, "b", NULL, 0),
		image_xattr_add(&m, 2, true, "SNAP", &one, 8),
		expect_problem("volume b: its snapshot a may be written");
	image_volume_add(&m, 1, "a", &(struct lvol_desc_rle){0, 1}, 1), image_xattr_add(&m, 1, true, "SNAP", &gone, 8),
		expect_problem("volume a: its snapshot 0x100000009 is not there");
	CU_ASSERT_EQUAL(lvol_volume_data(store, lvol_store_find(store, "a"), 0, data, 1), -EILSEQ);
	image_volume_add(&m, 1, "a", &(struct lvol_desc_rle){0, 1}, 1),
		image_xattr_add(&m, 1, true, "EXTSNAP", "far", 4), expect_good(1);
	CU_ASSERT_EQUAL(lvol_volume_data(store, lvol_store_find(store, "a"), 0, data, 1), -ENXIO);
	CU_ASSERT_STRING_EQUAL(lvol_store_find(store, "a")->external, "far");
	image_volume_add(&m, 1, "a", NULL, 0), image_flags_add(&m, 1, LVOL_INVALID_EXTERNAL_SNAPSHOT, 0);
	image_xattr_add(&m, 1, true, "EXTSNAP", "far", 4), image_xattr_add(&m, 1, true, "OTHER", "x", 1),
		expect_good(1);
}

/* Of two that say different things, another program may believe the other one. */
static void test_what_is_there_twice_is_named(void)
{
	uint64_t one = LVOL_ID_HIGH | 1;

	image_init(&m);
	image_volume_add(&m, 1, "v", NULL, 0), image_xattr_add(&m, 1, false, "name", "w", 1),
		expect_problem("volume 0x100000001 (w): the name is there twice");
	image_volume_add(&m, 1, "v", NULL, 0), image_xattr_add(&m, 1, false, "uuid", uuid, sizeof(uuid)),
		expect_problem("volume 0x100000001 (v): the uuid is there twice");
	image_volume_add(&m, 1, "a", NULL, 0), image_volume_add(&m, 2, "b", NULL, 0);
	image_xattr_add(&m, 2, true, "SNAP", &one, 8), image_xattr_add(&m, 2, true, "SNAP", &one, 8),
		expect_problem("volume 0x100000002 (b): SNAP is there twice");
	image_volume_add(&m, 1, "a", NULL, 0), image_xattr_add(&m, 1, true, "EXTSNAP", "x", 1);
	image_xattr_add(&m, 1, true, "EXTSNAP", "x", 1), expect_problem("(a): EXTSNAP is there twice");
	image_volume_add(&m, 1, "a", NULL, 0), image_volume_add(&m, 2, "b", NULL, 0);
	image_xattr_add(&m, 2, true, "SNAP", &one, 8), image_xattr_add(&m, 2, true, "EXTSNAP", "x", 1),
		expect_problem("(b): a clone of a snapshot (SNAP) and of a bdev outside of the store (EXTSNAP)");
	image_xattr_add(&m, 0, false, "name", "t", 1),
		expect_problem("volume 0x100000000 (t): the name is there twice");
}

static void test_two_volumes_of_one_uuid_are_named(void)
{
	static const char lower[] = "0000000a-0000-0000-0000-000000000001",
			  upper[] = "0000000A-0000-0000-0000-000000000001";

	image_init(&m);
	for (uint32_t i = 1; i <= 2; i++) {
		image_page_begin(&m, i, i, 0);
		image_mark(&m, 3, i, true);
		image_xattr_add(&m, i, false, "name", i == 1 ? "v" : "w", 1);
		image_xattr_add(&m, i, false, "uuid", i == 1 ? lower : upper, sizeof(lower));
	}
	expect_problem("have the same UUID");
	/* Those that have none are not the same. */
	for (uint32_t i = 1; i <= 2; i++) {
		image_page_begin(&m, i, i, 0);
		image_mark(&m, 3, i, true);
		image_xattr_add(&m, i, false, "name", i == 1 ? "v" : "w", 1);
	}
	expect_good(2);
}

static void test_names_and_what_was_under_way(void)
{
	image_init(&m);
	image_volume_add(&m, 1, "v", NULL, 0), image_volume_add(&m, 2, "v", NULL, 0),
		expect_problem("two volumes have the name v");
	image_volume_add(&m, 1, "", NULL, 0), expect_problem("volume 0x100000001 has no name");
	image_volume_add(&m, 1, "v", NULL, 0), image_xattr_add(&m, 1, true, "SNAPTMP", "", 0),
		expect_problem("was not completed");
	image_volume_add(&m, 1, "v", NULL, 0), image_xattr_add(&m, 1, true, "SNAPRM", "", 0),
		expect_problem("was not completed");
	image_page_begin(&m, 0, 0, 0);
	image_xattr_add(&m, 0, false, "uuid", uuid, sizeof(uuid)), expect_problem("the store has no name");
	image_page_begin(&m, 0, 0, 0);
	image_xattr_add(&m, 0, false, "name", "s", 1), expect_problem("the store has no UUID");
	image_super(&m)->super_id = LVOL_ID_NONE, expect_problem("the store has no name: its super blob");
	image_super(&m)->super_id = LVOL_ID_HIGH | 5,
	expect_problem("the store has no name: its super blob 0x100000005 is not there");
}

static void test_a_store_that_was_not_closed_is_scanned(void)
{
	image_init(&m);
	image_volume_add(&m, 1, "v", &(struct lvol_desc_rle){4, 2}, 1);
	image_volume_add(&m, 11, "w", &(struct lvol_desc_rle){6, 2}, 1);
	image_super(&m)->clean = 0;
	memset(m.bytes + 4096, 0xff, 3 * 4096); /* its masks */
	expect_good(2);
	CU_ASSERT_FALSE(store->geometry.clean);
	CU_ASSERT_PTR_NOT_NULL(lvol_store_find(store, "w"));
	/* Nor is a page that says that it is not the first. */
	image_page_begin(&m, 1, 1, 1);
	expect_good(1);
	image_init(&m);
	image_volume_add(&m, 1, "v", NULL, 0);
	image_volume_add(&m, 11, "w", NULL, 0);
	image_super(&m)->clean = 0;
	image_seal(&m);
	/* A torn root page is no volume: it was never complete. */
	image_page(&m, 1)->crc++;
	CU_ASSERT_EQUAL(open_as_it_is(), 0);
	CU_ASSERT_EQUAL(store->num_volumes, 1);
}

static void test_many_problems_are_counted(void)
{
	static struct lvol_desc_rle all[400];

	image_init(&m);
	for (size_t i = 0; i < 28; i++) {
		all[i] = (struct lvol_desc_rle){(uint32_t)(4 + i), 1};
	}
	for (uint32_t root = 1; root < IMAGE_MD_PAGES; root++) {
		image_volume_add(&m, root, (char[]){(char)('a' + root), 0}, all, 28);
	}
	CU_ASSERT_EQUAL(open_sealed(), 0);
	CU_ASSERT_EQUAL(lvol_store_check(store), 0);
	CU_ASSERT_EQUAL(store->num_problems, 28 * 10);
	CU_ASSERT_TRUE(strstr(store->problems[0], "is also that of b") != NULL);
	CU_ASSERT_TRUE(strstr(store->problems[279], "is also that of another volume") != NULL);
}

/* ---- Repairs ---- */

static void two_volumes_with_lost_clusters(bool clean)
{
	image_init(&m);
	image_volume_add(&m, 1, "v", &(struct lvol_desc_rle){4, 2}, 1);
	image_volume_add(&m, 2, "w", &(struct lvol_desc_rle){9, 3}, 1);
	image_mark(&m, 2, 20, true);
	image_mark(&m, 1, 7, true);
	image_super(&m)->clean = clean;
	image_seal(&m);
}

static int read_and_repair(void)
{
	int rc = open_as_it_is();

	rc = rc != 0 ? rc : lvol_store_check(store);
	return rc != 0 ? rc : lvol_store_close_write(store, &error);
}

static void test_a_repair_makes_the_masks_anew(void)
{
	for (int clean = 0; clean <= 1; clean++) {
		two_volumes_with_lost_clusters(clean);
		if (!clean) {
			memset(m.bytes + LVOL_PAGE_BYTES, 0xa5, 3 * LVOL_PAGE_BYTES);
		}
		CU_ASSERT_EQUAL(read_and_repair(), 0);
		CU_ASSERT_EQUAL(open_as_it_is(), 0);
		CU_ASSERT_TRUE(store->geometry.clean);
		CU_ASSERT_EQUAL(lvol_store_check(store), 0);
		CU_ASSERT_EQUAL(store->num_problems, 0);
		CU_ASSERT_EQUAL(store->num_volumes, 2);
		CU_ASSERT_TRUE(lvol_bit(store->cluster_mask, 11) && !lvol_bit(store->cluster_mask, 20));
	}
}

/* The superblock is damaged, and has a copy. */
static void super_copy_and_damage(void)
{
	struct lvol_super_copy c;

	CU_ASSERT_TRUE_FATAL(lvol_super_copy_make(image_super(&m), &c));
	image_xattr_add(&m, 0, false, LVOL_COPY_XATTR, &c, sizeof(c));
	image_seal(&m);
	memset(m.bytes + IMAGE_SECTOR, 0x5a, IMAGE_SECTOR);
}

/* Whatever of it has reached the medium: the volumes are there, and a second repair succeeds. */
static unsigned power_fails_in_repairs(bool damaged)
{
	unsigned failed = 0;
	int rc = -EIO;

	for (unsigned steps = 1; rc != 0; steps++) {
		for (uint32_t seed = 0; seed < 8; seed++) {
			two_volumes_with_lost_clusters(seed & 1);
			if (damaged) {
				super_copy_and_damage();
			}
			image_power_fails(&m, steps);
			rc = read_and_repair();
			CU_ASSERT_TRUE(rc == 0 || rc == -EIO);
			failed += rc != 0;
			image_power_returns(&m, seed);
			CU_ASSERT_EQUAL_FATAL(open_as_it_is(), 0);
			CU_ASSERT_EQUAL(store->num_volumes, 2);
			CU_ASSERT_EQUAL(lvol_volume_cluster(lvol_store_find(store, "v"), 1), 5);
			CU_ASSERT_EQUAL(lvol_volume_cluster(lvol_store_find(store, "w"), 2), 11);
			CU_ASSERT_EQUAL(lvol_store_check(store), 0);
			/* Masks that do not fit are not believed: at most, what was lost before still is. */
			CU_ASSERT_FALSE(store->num_problems > 0 && has_problem("not in the mask"));
			CU_ASSERT_EQUAL(read_and_repair(), 0);
			CU_ASSERT_EQUAL(open_as_it_is(), 0);
			CU_ASSERT_TRUE(store->geometry.clean && lvol_store_check(store) == 0 &&
				       store->num_problems == 0);
		}
	}
	return failed;
}

static void test_power_may_fail_at_any_time_of_a_repair(void)
{
	CU_ASSERT_TRUE(power_fails_in_repairs(false) > 200);
	CU_ASSERT_TRUE(power_fails_in_repairs(true) > 200);
}

static void expect_no_repair(const char *words)
{
	static uint8_t before[sizeof(m.bytes)];

	image_seal(&m);
	memcpy(before, m.bytes, sizeof(before));
	CU_ASSERT_EQUAL(read_and_repair(), -EILSEQ);
	CU_ASSERT_EQUAL(memcmp(before, m.bytes, sizeof(before)), 0);
	if (strstr(error.text, words) == NULL) {
		printf("'%s' does not say '%s'\n", error.text, words);
		CU_FAIL("why it is not repaired");
	}
	image_init(&m);
}

static void test_what_is_not_certain_is_left_as_it_is(void)
{
	static const struct lvol_desc_rle run = {4, 2};

	image_init(&m);
	image_volume_add(&m, 1, "v", &run, 1), image_page(&m, 1)->descriptors[0] = 9,
							      expect_no_repair("(without name) is damaged");
	image_volume_add(&m, 1, "a", NULL, 0), image_xattr_add(&m, 1, false, "name", "b", 1),
		expect_no_repair("volume 0x100000001 (b) is damaged");
	image_volume_add(&m, 1, "v", &run, 1), image_xattr_add(&m, 1, true, "SNAPRM", "", 0),
		expect_no_repair("(v) has a snapshot or deletion under way");
	image_volume_add(&m, 1, "v", &run, 1), image_volume_add(&m, 2, "w", &run, 1),
		expect_no_repair("2 clusters belong to two volumes");
	image_page(&m, 0)->descriptors[0] = 9, expect_no_repair("the volume that names the store cannot be read");
	image_super(&m)->super_id = LVOL_ID_NONE, expect_no_repair("the volume that names the store cannot be read");
}

static void test_a_damaged_volume_can_be_dropped(void)
{
	uint64_t one = LVOL_ID_HIGH | 1;

	two_volumes_with_lost_clusters(true);
	CU_ASSERT_EQUAL(open_as_it_is(), 0);
	CU_ASSERT_EQUAL(lvol_volume_drop(store, lvol_store_find(store, "v")), -EBUSY);
	image_page(&m, 1)->descriptors[0] = 9;
	CU_ASSERT_EQUAL(open_sealed(), 0);
	CU_ASSERT_EQUAL(lvol_volume_drop(store, &store->volumes[0]), 0);
	CU_ASSERT_EQUAL(read_and_repair(), 0);
	CU_ASSERT_EQUAL(open_as_it_is(), 0);
	CU_ASSERT_EQUAL(store->num_volumes, 1);
	CU_ASSERT_FALSE(lvol_bit(store->cluster_mask, 4));
	/* Not while others read through it. */
	two_volumes_with_lost_clusters(true);
	image_xattr_add(&m, 2, true, "SNAP", &one, sizeof(one));
	image_page(&m, 1)->descriptors[0] = 9;
	CU_ASSERT_EQUAL(open_sealed(), 0);
	CU_ASSERT_EQUAL(lvol_volume_drop(store, &store->volumes[0]), -EBUSY);
	/* Power may fail: it is there, or it is not. */
	for (unsigned steps = 1; steps < 20; steps++) {
		for (uint32_t seed = 0; seed < 8; seed++) {
			two_volumes_with_lost_clusters(true);
			image_page(&m, 1)->descriptors[0] = 9;
			CU_ASSERT_EQUAL(open_sealed(), 0);
			image_power_fails(&m, steps);
			int rc = lvol_volume_drop(store, &store->volumes[0]);
			image_power_returns(&m, seed);
			CU_ASSERT_EQUAL(open_as_it_is(), 0);
			CU_ASSERT_PTR_NOT_NULL(lvol_store_find(store, "w"));
			CU_ASSERT_TRUE(store->num_volumes == 1 || rc != 0);
		}
	}
}

static void test_each_allocation_may_fail(void)
{
	unsigned failed = 0;

	image_init(&m);
	image_volume_add(&m, 1, "v", &(struct lvol_desc_rle){4, 2}, 1);
	image_xattr_add(&m, 1, true, "EXTSNAP", "far", 4);
	image_seal(&m);
	for (unsigned n = 1;; n++) {
		if (store != NULL) {
			lvol_store_free(store);
			store = NULL;
		}
		struct lvol_device d = image_device(&m);
		allocations_left = n;
		int rc = lvol_store_read(&d, &store, &error);
		rc = rc == 0 ? lvol_store_check(store) : rc;
		rc = rc == 0 ? lvol_store_close_write(store, &error) : rc;
		bool all_made = allocations_left != 0;
		allocations_left = UINT32_MAX;
		if (all_made) {
			CU_ASSERT_EQUAL(rc, 0);
			break;
		}
		CU_ASSERT_EQUAL(rc, -ENOMEM);
		failed++;
	}
	CU_ASSERT_TRUE(failed >= 8);
}

/* ---- What an open store has beside ---- */

static void open_with_journal(uint32_t first, uint32_t pages)
{
	struct lvol_super *s = image_super(&m);

	s->version = LVOL_VERSION_OPEN;
	s->clean = 0;
	memcpy(s->open.magic, LVOL_OPEN_MAGIC, sizeof(s->open.magic));
	s->open.version = LVOL_VERSION_OPEN;
	s->open.size_bytes = s->size_bytes;
	s->open.journal_first = first;
	s->open.journal_slot_pages = pages;
}

static void test_a_journal_lies_within_the_metadata(void)
{
	static const struct {
		uint32_t first, pages;
	} wrong[] = {{1, 3}, {1, 129}, {0, 4}, {IMAGE_MD_PAGES, 4}, {IMAGE_MD_PAGES - 7, 4}};

	image_init(&m);
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		open_with_journal(wrong[i].first, wrong[i].pages);
		expect_refused("superblock: the journal has 2 times");
	}
	open_with_journal(IMAGE_MD_PAGES - 8, 4);
	CU_ASSERT_EQUAL(open_sealed(), 0);
	image_super(&m)->clean = 1; /* whatever it says: it is open */
	CU_ASSERT_EQUAL(open_sealed(), 0);
	CU_ASSERT_FALSE(store->geometry.clean);
	image_init(&m);
}

/* Power failed while it was marked as closed: the last sector has the crc of that. */
static void test_a_superblock_that_was_half_written_is_not_closed(void)
{
	image_init(&m);
	image_seal(&m);
	image_super(&m)->clean = 0;
	CU_ASSERT_EQUAL(open_as_it_is(), 0);
	CU_ASSERT_FALSE(store->geometry.clean);
	image_init(&m);
}

static union {
	struct lvol_journal_head head;
	struct lvol_md_page pages[3];
} slot;

static void slot_make(void)
{
	memset(&slot, 0, sizeof(slot));
	memcpy(slot.head.magic, LVOL_JOURNAL_MAGIC, sizeof(slot.head.magic));
	slot.head.num_pages = 2;
	slot.head.places[0] = 3;
	slot.head.places[1] = 5; /* zeroes */
	slot.pages[1].id = 3;
	slot.pages[1].crc = lvol_crc(&slot.pages[1]);
}

static bool slot_is_valid(uint32_t slot_pages, uint32_t md_pages)
{
	slot.head.pages_crc = lvol_journal_crc(&slot.head);
	slot.head.crc = lvol_crc(&slot.head);
	return lvol_journal_decode(&slot, slot_pages, md_pages);
}

static void test_a_slot_of_a_journal_counts_only_if_it_is_whole(void)
{
	slot_make();
	CU_ASSERT_TRUE(slot_is_valid(3, 6));
	CU_ASSERT_FALSE(slot_is_valid(2, 6)); /* more pages than it has room for */
	CU_ASSERT_FALSE(slot_is_valid(3, 5)); /* a place that is not there */
	slot.pages[1].sequence = 1;
	CU_ASSERT_FALSE(slot_is_valid(3, 6));
	slot_make();
	slot.pages[2].crc = 1;
	CU_ASSERT_FALSE(slot_is_valid(3, 6));
	slot_make();
	CU_ASSERT_TRUE(slot_is_valid(3, 6));
	slot.head.generation++;
	CU_ASSERT_FALSE(lvol_journal_decode(&slot, 3, 6));
	slot_make();
	slot.head.magic[0]++;
	CU_ASSERT_FALSE(slot_is_valid(3, 6));
	slot_make();
	CU_ASSERT_TRUE(slot_is_valid(3, 6));
	slot.head.pages_crc++;
	slot.head.crc = lvol_crc(&slot.head);
	CU_ASSERT_FALSE(lvol_journal_decode(&slot, 3, 6));
}

static void test_a_slot_of_a_journal_says_which_pages_may_be_in_use(void)
{
	slot_make();
	CU_ASSERT_EQUAL(lvol_journal_used(NULL, 6), 6);
	CU_ASSERT_EQUAL(lvol_journal_used(&slot.head, 6), 6); /* an older program wrote it */
	slot.head.used_below = 5;
	CU_ASSERT_EQUAL(lvol_journal_used(&slot.head, 6), 5);
	slot.head.used_below = 6;
	CU_ASSERT_TRUE(slot_is_valid(3, 6));
	slot.head.used_below = 7;
	CU_ASSERT_FALSE(slot_is_valid(3, 6));
}

static int teardown(void)
{
	if (store != NULL) {
		lvol_store_free(store);
	}
	return 0;
}

static const struct unit_test tests[] = {
	UNIT(test_an_empty_store_is_good),
	UNIT(test_each_field_of_the_superblock_is_checked),
	UNIT(test_a_superblock_of_another_crc_is_refused),
	UNIT(test_too_small_and_too_large_devices_are_refused),
	UNIT(test_errors_of_the_device_are_told),
	UNIT(test_a_damaged_mask_has_all_pages_read),
	UNIT(test_what_is_lost_or_missing_in_masks_is_found),
	UNIT(test_extents_of_runs),
	UNIT(test_many_runs),
	UNIT(test_extents_that_cannot_be_are_named),
	UNIT(test_a_size_beyond_64_bits_is_refused),
	UNIT(test_tables_of_extents),
	UNIT(test_tables_that_cannot_be_are_named),
	UNIT(test_pages_in_a_row),
	UNIT(test_a_page_of_another_crc_damages_its_volume_only),
	UNIT(test_descriptors_that_cannot_be_are_named),
	UNIT(test_clones_read_through_their_snapshots),
	UNIT(test_clones_that_cannot_be_are_named),
	UNIT(test_what_is_there_twice_is_named),
	UNIT(test_two_volumes_of_one_uuid_are_named),
	UNIT(test_names_and_what_was_under_way),
	UNIT(test_a_store_that_was_not_closed_is_scanned),
	UNIT(test_many_problems_are_counted),
	UNIT(test_a_repair_makes_the_masks_anew),
	UNIT(test_power_may_fail_at_any_time_of_a_repair),
	UNIT(test_what_is_not_certain_is_left_as_it_is),
	UNIT(test_a_damaged_volume_can_be_dropped),
	UNIT(test_a_journal_lies_within_the_metadata),
	UNIT(test_a_superblock_that_was_half_written_is_not_closed),
	UNIT(test_a_slot_of_a_journal_counts_only_if_it_is_whole),
	UNIT(test_a_slot_of_a_journal_says_which_pages_may_be_in_use),
	UNIT(test_each_allocation_may_fail),
	UNIT_END,
};
UNIT_MAIN("lvol_store", tests, NULL, teardown)
