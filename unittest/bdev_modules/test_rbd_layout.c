/* SPDX-License-Identifier: BSD-3-Clause */
/* What hosts are told of an image's objects and stripes. */
#include "bdev_modules/rbd/internal.h"
#include "unittest/bdev_modules/rbd_kit.h"

#define MIB ((uint64_t)1 << 20)

static struct bdev limits_of(uint32_t block_size, uint64_t object, uint64_t stripe, uint64_t count)
{
	/* of an earlier layout */
	struct bdev b = {.block_size = block_size, .optimal_io_boundary = 7, .max_unmap_blocks = 7};

	b.hints.optimal_write_size = 7;
	bdev_rbd_set_limits(&b, &(struct rbd_layout){object, stripe, count});
	return b;
}

static void test_an_image_without_stripes_has_the_limits_of_its_objects(void)
{
	struct bdev b = limits_of(BS, 4 * MIB, 4 * MIB, 1);

	CU_ASSERT_EQUAL(b.optimal_io_boundary, 1024);
	CU_ASSERT_EQUAL(b.hints.optimal_write_size, 1024);
	CU_ASSERT_EQUAL(b.max_unmap_blocks, 256 * 1024);
	CU_ASSERT_EQUAL(b.max_rw_blocks, 8192);
	b = limits_of(512, 4 * MIB, 4 * MIB, 1);
	CU_ASSERT_EQUAL(b.optimal_io_boundary, 8192);
}

static void test_the_stripes_of_an_image_are_its_boundaries(void)
{
	struct bdev b = limits_of(BS, 4 * MIB, MIB / 16, 16);

	CU_ASSERT_EQUAL(b.optimal_io_boundary, 16); /* an I/O that does not cross it is one object's */
	CU_ASSERT_EQUAL(b.hints.optimal_write_size, 256);
	CU_ASSERT_EQUAL(b.max_unmap_blocks, 256 * 1024);
}

static void test_small_stripes_are_no_boundaries(void)
{
	struct bdev b = limits_of(BS, 4 * MIB, MIB / 32, 4);

	CU_ASSERT_EQUAL(b.optimal_io_boundary, 0); /* hosts would cut large I/O into many commands */
	CU_ASSERT_EQUAL(b.hints.optimal_write_size, 32);
}

static void test_a_layout_that_cannot_be_gives_no_limits(void)
{
	static const struct rbd_layout none[] = {
		{4 * MIB, 0, 1},
		{4 * MIB, MIB, 0},
		{4 * MIB, 3 * MIB, 1},
		{4 * MIB, 8 * MIB, 1},
		{4 * MIB, UINT64_MAX, 1},
		{4 * MIB, MIB, UINT64_MAX},
		{4 * MIB, 512, 1}, /* less than a block */
		{0, 0, 0},
	};

	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		struct bdev b = limits_of(BS, none[i].object_bytes, none[i].stripe_bytes, none[i].stripe_count);
		CU_ASSERT_EQUAL(b.optimal_io_boundary, 0);
		CU_ASSERT_EQUAL(b.hints.optimal_write_size, 0);
		CU_ASSERT_EQUAL(b.max_unmap_blocks, none[i].object_bytes / BS * 256);
		CU_ASSERT_EQUAL(b.max_rw_blocks, 8192);
	}
	struct bdev b = limits_of(BS, UINT64_C(1) << 62, UINT64_C(1) << 62, 1);
	CU_ASSERT_EQUAL(b.optimal_io_boundary | b.max_unmap_blocks, 0);
	b = limits_of(BS, UINT64_C(1) << 40, UINT64_C(1) << 40, 1 << 20); /* a full stripe is too large for a hint */
	CU_ASSERT_EQUAL(b.optimal_io_boundary, 1 << 28);
	CU_ASSERT_EQUAL(b.hints.optimal_write_size, 0);
	CU_ASSERT_EQUAL(limits_of(BS, 12345, 12345, 1).max_unmap_blocks, 0);
}

static void test_an_image_is_asked_for_its_stripes(void)
{
	struct bdev_rbd_opts opts = opts_of("R");
	struct answer a;

	fake.stripes_rc = -EIO;
	CU_ASSERT_EQUAL(create(&opts, &a), -EIO);
	CU_ASSERT_PTR_NOT_NULL(strstr(a.text, "the stripes of image 'image' of pool 'rbd'"));
	fake.stripes_rc = 0;
	fake.stripe_bytes = 16 * BS;
	fake.stripe_count = 4;
	CU_ASSERT_EQUAL(create(&opts, &a), 0);
	CU_ASSERT_EQUAL(bdev_optimal_io_boundary(bdev_find("R")), 16);
	CU_ASSERT_EQUAL(bdev_get_hints(bdev_find("R"))->optimal_write_size, 64);
	CU_ASSERT_EQUAL(fixture_delete(bdev_rbd_delete, "R"), 0);
	check_nothing_is_left();
}

static const struct unit_test tests[] = {
	UNIT(test_an_image_without_stripes_has_the_limits_of_its_objects),
	UNIT(test_the_stripes_of_an_image_are_its_boundaries),
	UNIT(test_small_stripes_are_no_boundaries),
	UNIT(test_a_layout_that_cannot_be_gives_no_limits),
	UNIT(test_an_image_is_asked_for_its_stripes),
	UNIT_END,
};

UNIT_MAIN("bdev_rbd_layout", tests, rbd_kit_start, rbd_kit_end)
