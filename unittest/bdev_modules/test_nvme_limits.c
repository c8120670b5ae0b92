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

static struct nvme_ns preferring_ns(unsigned optperf)
{
	struct nvme_ns ns = {.block_size = 512};

	ns.id.nsfeat = (uint8_t)(optperf << 4);
	ns.id.npwg = htole16(7);
	ns.id.npwa = htole16(3);
	ns.id.npdg = htole16(15);
	ns.id.npda = htole16(1);
	ns.id.nows = htole16(63);
	return ns;
}

static void check_hints(unsigned optperf, uint32_t version, uint32_t physical, struct bdev_hints wanted)
{
	const struct nvme_ns ns = preferring_ns(optperf);
	struct bdev b = {.physical_block_size = 65536, .hints = {1, 2, 3, 4, 5}}; /* of another connection */

	bdev_nvme_set_hints(&b, &ns, version);
	CU_ASSERT_EQUAL(b.physical_block_size, physical);
	CU_ASSERT_EQUAL(b.hints.preferred_write_granularity, wanted.preferred_write_granularity);
	CU_ASSERT_EQUAL(b.hints.preferred_write_alignment, wanted.preferred_write_alignment);
	CU_ASSERT_EQUAL(b.hints.optimal_write_size, wanted.optimal_write_size);
	CU_ASSERT_EQUAL(b.hints.preferred_unmap_granularity, wanted.preferred_unmap_granularity);
	CU_ASSERT_EQUAL(b.hints.preferred_unmap_alignment, wanted.preferred_unmap_alignment);
}

/* OPTPERF has two bits since NVMe 2.1; the second one was reserved before. */
static void test_the_preferences_are_those_whose_fields_are_valid(void)
{
	const struct bdev_hints none = {0}, all = {8, 4, 64, 16, 2}, without_npdg = {8, 4, 64, 0, 2};
	const uint32_t old = 0x20000, new = 0x20100;

	check_hints(0, old, 512, none);
	check_hints(1, old, 4096, all);
	check_hints(2, old, 512, none);
	check_hints(3, old, 4096, all);
	check_hints(0, new, 512, none);
	check_hints(1, new, 4096, all);
	check_hints(2, new, 4096, without_npdg);
	check_hints(3, new, 4096, all);
}

static void test_a_granularity_of_more_than_32_bits_is_not_the_size_of_physical_blocks(void)
{
	struct nvme_ns ns = preferring_ns(1);
	struct bdev b = {0};

	ns.id.npwg = htole16(UINT16_MAX);
	ns.block_size = 32768;
	bdev_nvme_set_hints(&b, &ns, 0x10400);
	CU_ASSERT_EQUAL(b.physical_block_size, UINT32_C(1) << 31);
	ns.block_size = 65536;
	bdev_nvme_set_hints(&b, &ns, 0x10400);
	CU_ASSERT_EQUAL(b.physical_block_size, 65536);
	CU_ASSERT_EQUAL(b.hints.preferred_write_granularity, 65536);
}

static const struct unit_test tests[] = {
	UNIT(test_a_flush_is_passed_on_if_one_controller_has_a_cache),
	UNIT(test_other_commands_are_those_that_all_controllers_have),
	UNIT(test_fused_commands_need_a_queue_of_two),
	UNIT(test_the_preferences_are_those_whose_fields_are_valid),
	UNIT(test_a_granularity_of_more_than_32_bits_is_not_the_size_of_physical_blocks),
	UNIT_END,
};
UNIT_MAIN("bdev_nvme_limits", tests, NULL, NULL)
