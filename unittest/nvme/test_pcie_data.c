/* SPDX-License-Identifier: BSD-3-Clause */
/* Data pointers: the PRPs and SGLs that describe given segments of memory. */
#include "nvme/pcie/pcie.h"
#include "unittest/unit.h"

#include <errno.h>

#define LIST_IOVA UINT64_C(0x7000000)
#define MB        (UINT64_C(1) << 20)

static uint64_t list[512];
static struct nvme_sqe cmd;

/* The device's view: addresses are shifted by 16 MB, the memory from 8 MB to 10 MB lies elsewhere, and beyond 64 MB
 * there is none. */
static uint64_t translate(const void *buf, size_t *len)
{
	uint64_t va = (uintptr_t)buf;
	uint64_t borders[] = {8 * MB, 10 * MB, 64 * MB};

	for (unsigned i = 0; i < 3; i++) {
		if (va < borders[i]) {
			*len = *len < borders[i] - va ? *len : borders[i] - va;
			return i == 1 ? va + 512 * MB : va + 16 * MB;
		}
	}
	return ENV_IOVA_BAD;
}

static int point(enum nvme_pcie_sgl sgl, uint32_t list_bytes, unsigned iovcnt, const struct iovec *iovs)
{
	struct nvme_pcie_data d = {
		.translate = translate, .list = list, .list_iova = LIST_IOVA, .list_bytes = list_bytes, .sgl = sgl};
	uint32_t len = 0;

	memset(&cmd, 0, sizeof(cmd));
	memset(list, 0xee, sizeof(list));
	for (unsigned i = 0; i < iovcnt; i++) {
		len += (uint32_t)iovs[i].iov_len;
	}
	return nvme_pcie_data_pointer(&d, iovs, iovcnt, len, &cmd);
}

#define PIECE(addr_, len_)                                                                                             \
	{                                                                                                              \
		.iov_base = (void *)(uintptr_t)(addr_), .iov_len = (len_)                                              \
	}
#define POINT(sgl_, bytes_, ...)                                                                                       \
	point(sgl_, bytes_, sizeof((struct iovec[]){__VA_ARGS__}) / sizeof(struct iovec), (struct iovec[]){__VA_ARGS__})
#define IS_PRP() (CU_ASSERT_EQUAL(cmd.flags & NVME_CMD_FLAGS_PSDT_MASK, 0))

static void test_part_of_a_page_needs_prp1_only(void)
{
	CU_ASSERT_EQUAL(POINT(NVME_PCIE_SGL_NONE, 512, PIECE(MB + 512, 3584)), 0);
	IS_PRP();
	CU_ASSERT_EQUAL(cmd.prp1, 17 * MB + 512);
	CU_ASSERT_EQUAL(cmd.prp2, 0);
}

static void test_two_pages_need_prp2_but_no_list(void)
{
	CU_ASSERT_EQUAL(POINT(NVME_PCIE_SGL_NONE, 512, PIECE(MB + 512, 4096)), 0);
	CU_ASSERT_EQUAL(cmd.prp1, 17 * MB + 512);
	CU_ASSERT_EQUAL(cmd.prp2, 17 * MB + 4096);
}

static void test_more_pages_need_a_list(void)
{
	CU_ASSERT_EQUAL(POINT(NVME_PCIE_SGL_NONE, 512, PIECE(MB, 16384)), 0);
	CU_ASSERT_EQUAL(cmd.prp1, 17 * MB);
	CU_ASSERT_EQUAL(cmd.prp2, LIST_IOVA);
	CU_ASSERT_EQUAL(list[0], 17 * MB + 4096);
	CU_ASSERT_EQUAL(list[2], 17 * MB + 12288);
	CU_ASSERT_EQUAL(list[3], UINT64_C(0xeeeeeeeeeeeeeeee)); /* nothing beyond */
}

static void test_offset_needs_one_entry_more(void)
{
	CU_ASSERT_EQUAL(POINT(NVME_PCIE_SGL_NONE, 512, PIECE(MB + 4092, 16384)), 0);
	CU_ASSERT_EQUAL(cmd.prp1, 17 * MB + 4092);
	CU_ASSERT_EQUAL(list[3], 17 * MB + 16384);
}

static void test_pieces_that_meet_at_page_borders_are_prps(void)
{
	CU_ASSERT_EQUAL(POINT(NVME_PCIE_SGL_NONE, 512, PIECE(MB + 2048, 2048), PIECE(3 * MB, 8192), PIECE(5 * MB, 512)),
			0);
	IS_PRP();
	CU_ASSERT_EQUAL(cmd.prp1, 17 * MB + 2048);
	CU_ASSERT_EQUAL(list[0], 19 * MB);
	CU_ASSERT_EQUAL(list[1], 19 * MB + 4096);
	CU_ASSERT_EQUAL(list[2], 21 * MB);
}

static void test_adjacent_pieces_may_meet_anywhere(void)
{
	CU_ASSERT_EQUAL(POINT(NVME_PCIE_SGL_NONE, 512, PIECE(MB, 512), PIECE(MB + 512, 3584), PIECE(MB + 4096, 100)),
			0);
	CU_ASSERT_EQUAL(cmd.prp1, 17 * MB);
	CU_ASSERT_EQUAL(cmd.prp2, 17 * MB + 4096);
}

static void test_empty_pieces_are_passed_over(void)
{
	CU_ASSERT_EQUAL(POINT(NVME_PCIE_SGL_NONE, 512, PIECE(0, 0), PIECE(MB, 512), PIECE(3, 0)), 0);
	CU_ASSERT_EQUAL(cmd.prp1, 17 * MB);
	CU_ASSERT_EQUAL(cmd.prp2, 0);
}

static void test_memory_that_is_not_contiguous_for_the_device_is_followed(void)
{
	CU_ASSERT_EQUAL(POINT(NVME_PCIE_SGL_NONE, 512, PIECE(8 * MB - 4096, 12288)), 0);
	CU_ASSERT_EQUAL(cmd.prp1, 24 * MB - 4096);
	CU_ASSERT_EQUAL(list[0], 520 * MB);
	CU_ASSERT_EQUAL(list[1], 520 * MB + 4096);
}

static void test_pieces_within_pages_become_an_sgl(void)
{
	const union nvme_sgl_desc *d = (const union nvme_sgl_desc *)list;

	CU_ASSERT_EQUAL(POINT(NVME_PCIE_SGL_BYTES, 512, PIECE(MB + 1, 511), PIECE(3 * MB + 7, 513)), 0);
	CU_ASSERT_EQUAL(cmd.flags & NVME_CMD_FLAGS_PSDT_MASK, NVME_CMD_FLAGS_PSDT_SGL);
	CU_ASSERT_EQUAL(nvme_sgl_type(&cmd.sgl1), NVME_SGL_TYPE_LAST_SEGMENT);
	CU_ASSERT_EQUAL(cmd.sgl1.plain.address, LIST_IOVA);
	CU_ASSERT_EQUAL(cmd.sgl1.plain.length, 32);
	CU_ASSERT_EQUAL(d[0].plain.address, 17 * MB + 1);
	CU_ASSERT_EQUAL(d[0].plain.length, 511);
	CU_ASSERT_EQUAL(d[1].plain.address, 19 * MB + 7);
	CU_ASSERT_EQUAL(d[1].plain.length, 513);
}

static void test_large_contiguous_data_is_one_descriptor(void)
{
	CU_ASSERT_EQUAL(POINT(NVME_PCIE_SGL_BYTES, 512, PIECE(MB, 131072)), 0);
	CU_ASSERT_EQUAL(nvme_sgl_type(&cmd.sgl1), NVME_SGL_TYPE_DATA_BLOCK);
	CU_ASSERT_EQUAL(cmd.sgl1.plain.address, 17 * MB);
	CU_ASSERT_EQUAL(cmd.sgl1.plain.length, 131072);
}

static void test_small_contiguous_data_stays_prps_on_drives_with_sgls(void)
{
	CU_ASSERT_EQUAL(POINT(NVME_PCIE_SGL_BYTES, 512, PIECE(MB, 4096)), 0);
	IS_PRP();
}

static void test_pieces_within_pages_are_refused_without_sgls(void)
{
	CU_ASSERT_EQUAL(POINT(NVME_PCIE_SGL_NONE, 512, PIECE(MB, 512), PIECE(3 * MB, 512)), -EINVAL);
	CU_ASSERT_EQUAL(POINT(NVME_PCIE_SGL_NONE, 512, PIECE(MB, 4096), PIECE(3 * MB + 512, 3584)), -EINVAL);
	CU_ASSERT_EQUAL(POINT(NVME_PCIE_SGL_NONE, 512, PIECE(MB + 2, 512)), -EINVAL);
}

static void test_odd_addresses_are_refused_where_sgls_want_dwords(void)
{
	CU_ASSERT_EQUAL(POINT(NVME_PCIE_SGL_DWORDS, 512, PIECE(MB + 2, 512)), -EINVAL);
	CU_ASSERT_EQUAL(POINT(NVME_PCIE_SGL_DWORDS, 512, PIECE(MB, 510), PIECE(3 * MB, 514)), -EINVAL);
	CU_ASSERT_EQUAL(POINT(NVME_PCIE_SGL_DWORDS, 512, PIECE(MB, 508), PIECE(3 * MB, 516)), 0);
}

static void test_list_that_is_too_short_is_refused(void)
{
	CU_ASSERT_EQUAL(POINT(NVME_PCIE_SGL_NONE, 16, PIECE(MB, 3 * 4096)), 0);
	CU_ASSERT_EQUAL(POINT(NVME_PCIE_SGL_NONE, 16, PIECE(MB, 4 * 4096)), -E2BIG);
	CU_ASSERT_EQUAL(list[2], UINT64_C(0xeeeeeeeeeeeeeeee));
	CU_ASSERT_EQUAL(POINT(NVME_PCIE_SGL_BYTES, 16, PIECE(MB, 512), PIECE(3 * MB, 512)), -E2BIG);
	CU_ASSERT_EQUAL(list[2], UINT64_C(0xeeeeeeeeeeeeeeee));
}

static void test_memory_out_of_reach_is_refused(void)
{
	CU_ASSERT_EQUAL(POINT(NVME_PCIE_SGL_NONE, 512, PIECE(65 * MB, 512)), -EFAULT);
	CU_ASSERT_EQUAL(POINT(NVME_PCIE_SGL_NONE, 512, PIECE(64 * MB - 512, 1024)), -EFAULT);
	CU_ASSERT_EQUAL(POINT(NVME_PCIE_SGL_BYTES, 512, PIECE(MB + 1, 512), PIECE(65 * MB, 512)), -EFAULT);
}

static const struct unit_test tests[] = {
	UNIT(test_part_of_a_page_needs_prp1_only),
	UNIT(test_two_pages_need_prp2_but_no_list),
	UNIT(test_more_pages_need_a_list),
	UNIT(test_offset_needs_one_entry_more),
	UNIT(test_pieces_that_meet_at_page_borders_are_prps),
	UNIT(test_adjacent_pieces_may_meet_anywhere),
	UNIT(test_empty_pieces_are_passed_over),
	UNIT(test_memory_that_is_not_contiguous_for_the_device_is_followed),
	UNIT(test_pieces_within_pages_become_an_sgl),
	UNIT(test_large_contiguous_data_is_one_descriptor),
	UNIT(test_small_contiguous_data_stays_prps_on_drives_with_sgls),
	UNIT(test_pieces_within_pages_are_refused_without_sgls),
	UNIT(test_odd_addresses_are_refused_where_sgls_want_dwords),
	UNIT(test_list_that_is_too_short_is_refused),
	UNIT(test_memory_out_of_reach_is_refused),
	UNIT_END,
};
UNIT_MAIN("nvme_pcie_data", tests, NULL, NULL)
