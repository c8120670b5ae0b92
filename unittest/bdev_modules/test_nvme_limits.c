/* SPDX-License-Identifier: BSD-3-Clause */
/* What a bdev can do, from what its controllers can. */
#include "bdev_modules/nvme/internal.h"
#include "unittest/unit.h"

#define FLUSH             (1u << BDEV_IO_FLUSH)
#define COMPARE_AND_WRITE (1u << BDEV_IO_COMPARE_AND_WRITE)

/* A Flush that only one of them needs must not be a successful no-op. */
static void test_a_flush_is_passed_on_if_one_controller_has_a_cache(void)
{
	const struct nvme_ns ns = {.block_size = 512};
	struct nvme_id_ctrl cached = {.vwc = NVME_CTRL_VWC_PRESENT}, plain = {.vwc = 0};

	for (int i = 0; i < 2; i++) {
		struct bdev a = {.io_types = bdev_nvme_io_types(i ? &plain : &cached, &ns, 16), .write_cache = !i};
		struct bdev b = {.io_types = bdev_nvme_io_types(i ? &cached : &plain, &ns, 16), .write_cache = i};

		bdev_nvme_limits_narrow(&a, &b);
		CU_ASSERT_TRUE(a.write_cache);
		CU_ASSERT_EQUAL(a.io_types & FLUSH, FLUSH);
	}
	struct bdev a = {.io_types = bdev_nvme_io_types(&plain, &ns, 16)}, b = a;
	bdev_nvme_limits_narrow(&a, &b);
	CU_ASSERT_FALSE(a.write_cache);
	CU_ASSERT_EQUAL(a.io_types & FLUSH, 0);
}

static void test_other_commands_are_those_that_all_controllers_have(void)
{
	struct bdev a = {.io_types = 1u << BDEV_IO_COMPARE | 1u << BDEV_IO_COPY, .max_rw_blocks = 8, .buf_align = 1};
	const struct bdev b = {.io_types = 1u << BDEV_IO_COMPARE, .max_rw_blocks = 16, .buf_align = 4};

	bdev_nvme_limits_narrow(&a, &b);
	CU_ASSERT_EQUAL(a.io_types, 1u << BDEV_IO_COMPARE);
	CU_ASSERT_EQUAL(a.max_rw_blocks, 8);
	CU_ASSERT_EQUAL(a.buf_align, 4);
}

/* A pair would wait for room in a queue of one entry without end; the bdev layer emulates the command. */
static void test_fused_commands_need_a_queue_of_two(void)
{
	const struct nvme_ns ns = {.block_size = 512};
	const struct nvme_id_ctrl id = {.oncs = htole16(NVME_CTRL_ONCS_COMPARE),
					.fuses = htole16(NVME_CTRL_FUSES_COMPARE_AND_WRITE)};

	CU_ASSERT_EQUAL(bdev_nvme_io_types(&id, &ns, 1) & COMPARE_AND_WRITE, 0);
	CU_ASSERT_EQUAL(bdev_nvme_io_types(&id, &ns, 2) & COMPARE_AND_WRITE, COMPARE_AND_WRITE);
}

static const struct unit_test tests[] = {
	UNIT(test_a_flush_is_passed_on_if_one_controller_has_a_cache),
	UNIT(test_other_commands_are_those_that_all_controllers_have),
	UNIT(test_fused_commands_need_a_queue_of_two),
	UNIT_END,
};
UNIT_MAIN("bdev_nvme_limits", tests, NULL, NULL)
