/* SPDX-License-Identifier: BSD-3-Clause */
/* I/O commands: what they do to the disk, and how wrong ones are refused. */
#include "unittest/nvmf/loop.h"

#define BLOCK    4096
#define BLOCKS   256
#define MAX_BLKS (LOOP_MAX_IO / BLOCK)

static struct loop_conn *admin, *io;
static uint32_t nsid, plain; /* plain: of the namespace that another stands in for */
static uint8_t out[LOOP_MAX_IO + BLOCK], in[LOOP_MAX_IO + BLOCK];
static struct loop_cmd cmd, second;

static void attach(void)
{
	nsid = loop_add_malloc_ns("m", BLOCK, BLOCKS);
	admin = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
	io = loop_io_queue(admin, 1);
	CU_ASSERT_PTR_NOT_NULL_FATAL(io);
}

static void detach(void)
{
	loop_close(io);
	loop_close(admin);
	loop_remove_malloc_ns(nsid, "m");
}

/* With the namespace on a bdev of the fixture, which can do that besides; one that can be flushed has a cache. */
static struct testdev *attach_dev(uint64_t blocks, uint32_t io_types)
{
	struct testdev *t = testdev_new("dev", BLOCK, blocks);

	attach();
	t->bdev.io_types |= io_types;
	t->bdev.write_cache = (io_types & 1u << BDEV_IO_FLUSH) != 0;
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	plain = nsid;
	nsid = loop_add_ns("dev", 0);
	return t;
}

static void detach_dev(struct testdev *t)
{
	loop_remove_ns(nsid);
	CU_ASSERT_TRUE(testdev_delete(t));
	nsid = plain;
	detach();
}

static void fill(uint8_t *buf, size_t len, uint64_t seed)
{
	for (size_t i = 0; i < len; i++) {
		buf[i] = (uint8_t)fixture_random(&seed);
	}
}

static void rw_init(struct loop_cmd *c, uint8_t opcode, uint64_t slba, uint16_t nlb)
{
	loop_cmd_init(c, io, opcode, nsid);
	c->sqe.cdw10 = htole32((uint32_t)slba);
	c->sqe.cdw11 = htole32((uint32_t)(slba >> 32));
	c->sqe.cdw12 = htole32(nlb);
}

static uint16_t rw(uint8_t opcode, uint64_t slba, uint16_t nlb, void *buf)
{
	return loop_rw(io, opcode, nsid, slba, nlb, buf, (nlb + UINT32_C(1)) * BLOCK);
}

static bool disk_is(uint64_t slba, uint16_t nlb, const uint8_t *expected)
{
	memset(in, 0, sizeof(in));
	return rw(nvme_cmd_read, slba, nlb, in) == 0 && memcmp(in, expected, (nlb + UINT32_C(1)) * BLOCK) == 0;
}

static void test_what_is_written_is_read(void)
{
	attach();
	for (unsigned zcopy = 0; zcopy < 2; zcopy++) {
		atomic_store(&loop_zcopy, zcopy != 0);
		for (uint16_t nlb = 0; nlb < MAX_BLKS; nlb = (uint16_t)(nlb * 2 + 1)) {
			fill(out, sizeof(out), nlb + zcopy * 1000);
			CU_ASSERT_EQUAL(rw(nvme_cmd_write, nlb, nlb, out), 0);
			CU_ASSERT_TRUE(disk_is(nlb, nlb, out));
		}
	}
	CU_ASSERT_NOT_EQUAL(atomic_load(&loop_zcopy_requests), 0);
	atomic_store(&loop_zcopy, false);
	detach();
}

static void test_data_in_the_capsule_is_written(void)
{
	attach();
	fill(cmd.icd, sizeof(cmd.icd), 5);
	rw_init(&cmd, nvme_cmd_write, 10, 0);
	cmd.icd_len = LOOP_ICD_MAX;
	cmd.sqe.sgl1 = nvme_sgl_make_plain(NVME_SGL_TYPE_DATA_BLOCK, NVME_SGL_SUBTYPE_OFFSET, 100, BLOCK);
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	CU_ASSERT_TRUE(disk_is(10, 0, cmd.icd + 100));
	cmd.icd_len = 100 + BLOCK - 1;
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(GENERIC, SGL_INVALID_DATA));
	detach();
}

static void test_scattered_host_memory_is_gathered(void)
{
	union nvme_sgl_desc list[3];

	attach();
	fill(out, sizeof(out), 6);
	list[0] = nvme_sgl_make_keyed((uintptr_t)out, 1000, LOOP_KEY, NVME_SGL_SUBTYPE_ADDRESS);
	list[1] = nvme_sgl_make_keyed((uintptr_t)out + 1000, 96, LOOP_KEY, NVME_SGL_SUBTYPE_INVALIDATE_KEY);
	list[2] = nvme_sgl_make_keyed((uintptr_t)out + 1096, 2 * BLOCK - 1096, LOOP_KEY, NVME_SGL_SUBTYPE_ADDRESS);
	rw_init(&cmd, nvme_cmd_write, 20, 1);
	memcpy(cmd.icd, list, sizeof(list));
	cmd.icd_len = sizeof(list);
	cmd.sqe.sgl1 = nvme_sgl_make_plain(NVME_SGL_TYPE_LAST_SEGMENT, NVME_SGL_SUBTYPE_OFFSET, 0, sizeof(list));
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	CU_ASSERT_TRUE(disk_is(20, 1, out));
	detach();
}

static void test_wrong_io_is_rejected(void)
{
	attach();
	CU_ASSERT_EQUAL(rw(nvme_cmd_read, BLOCKS, 0, in), NVME_ST_DNR(GENERIC, LBA_RANGE));
	CU_ASSERT_EQUAL(rw(nvme_cmd_write, BLOCKS - 1, 1, out), NVME_ST_DNR(GENERIC, LBA_RANGE));
	CU_ASSERT_EQUAL(rw(nvme_cmd_read, UINT64_MAX, 0, in), NVME_ST_DNR(GENERIC, LBA_RANGE));
	CU_ASSERT_EQUAL(rw(nvme_cmd_read, 0, MAX_BLKS, in), NVME_ST_DNR(GENERIC, INVALID_FIELD));
	CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_read, nsid, 0, 1, in, BLOCK), NVME_ST_DNR(GENERIC, SGL_INVALID_DATA));
	static const uint32_t nsids[] = {0, 2, 32, 33, 0x80000000, NVME_NSID_ALL};
	for (size_t i = 0; i < ARRAY_SIZE(nsids); i++) {
		CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_read, nsids[i], 0, 0, in, BLOCK),
				NVME_ST_DNR(GENERIC, INVALID_NS));
	}
	static const uint8_t opcodes[] = {0x03, 0x12, 0x18, 0x79, 0x7d, 0x80, 0x81, 0xc2, 0xff};
	for (size_t i = 0; i < ARRAY_SIZE(opcodes); i++) {
		CU_ASSERT_EQUAL(rw(opcodes[i], 0, 0, in), NVME_ST_DNR(GENERIC, INVALID_OPCODE));
	}
	rw_init(&cmd, nvme_cmd_read, 0, 0);
	cmd.sqe.flags = 0;
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(GENERIC, INVALID_FIELD));
	loop_cmd_init(&cmd, io, nvme_admin_fabrics, 0);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(GENERIC, INVALID_OPCODE));
	((struct nvmf_fabrics_sqe *)&cmd.sqe)->fctype = nvme_fabrics_type_connect;
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(GENERIC, CMD_SEQ_ERROR));
	/* The queue works on. */
	CU_ASSERT_EQUAL(rw(nvme_cmd_read, 0, 0, in), 0);
	detach();
}

static void test_compare(void)
{
	attach();
	fill(out, sizeof(out), 7);
	CU_ASSERT_EQUAL(rw(nvme_cmd_write, 30, 3, out), 0);
	CU_ASSERT_EQUAL(rw(nvme_cmd_compare, 30, 3, out), 0);
	out[4 * BLOCK - 1] ^= 1;
	CU_ASSERT_EQUAL(rw(nvme_cmd_compare, 30, 3, out) & ~NVME_SC_DNR, NVME_ST(MEDIA, COMPARE_FAILED));
	detach();
}

static void test_write_zeroes(void)
{
	attach();
	fill(out, sizeof(out), 8);
	CU_ASSERT_EQUAL(rw(nvme_cmd_write, 40, 7, out), 0);
	rw_init(&cmd, nvme_cmd_write_zeroes, 41, 5);
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	memset(out + BLOCK, 0, 6 * BLOCK);
	CU_ASSERT_TRUE(disk_is(40, 7, out));
	rw_init(&cmd, nvme_cmd_write_zeroes, 0, BLOCKS - 1); /* beyond MDTS: there are no data */
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	rw_init(&cmd, nvme_cmd_write_zeroes, 1, BLOCKS - 1);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(GENERIC, LBA_RANGE));
	detach();
}

static void test_flush(void)
{
	attach();
	loop_cmd_init(&cmd, io, nvme_cmd_flush, nsid);
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	loop_cmd_init(&cmd, io, nvme_cmd_flush, NVME_NSID_ALL);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(GENERIC, INVALID_NS));
	detach();
}

static void test_fua_writes(void)
{
	struct testdev *t = attach_dev(100, 1u << BDEV_IO_FLUSH);
	fill(out, sizeof(out), 9);
	rw_init(&cmd, nvme_cmd_write, 3, 0);
	loop_cmd_data(&cmd, out, BLOCK);
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	CU_ASSERT_EQUAL(atomic_load(&t->submitted), 1);
	cmd.sqe.cdw12 |= htole32((uint32_t)NVME_IO_FUA << 16);
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	CU_ASSERT_EQUAL(atomic_load(&t->submitted), 3); /* the write, and the flush that makes it last */
	CU_ASSERT_TRUE(disk_is(3, 0, out));
	detach_dev(t);
}

static void test_without_a_write_cache_all_writes_are_flushed(void)
{
	struct testdev *t = attach_dev(100, 1u << BDEV_IO_FLUSH);
	CU_ASSERT_EQUAL(loop_set_feature(admin, NVME_FEAT_FID_VOLATILE_WC, 0, NULL), 0);
	CU_ASSERT_EQUAL(rw(nvme_cmd_write, 3, 0, out), 0);
	CU_ASSERT_EQUAL(atomic_load(&t->submitted), 2);
	CU_ASSERT_EQUAL(rw(nvme_cmd_read, 3, 0, in), 0);
	CU_ASSERT_EQUAL(atomic_load(&t->submitted), 3);
	struct loop_conn *later = loop_io_queue(admin, 2);
	CU_ASSERT_EQUAL(loop_rw(later, nvme_cmd_write, nsid, 3, 0, out, BLOCK), 0);
	CU_ASSERT_EQUAL(atomic_load(&t->submitted), 5);
	loop_close(later);
	CU_ASSERT_EQUAL(loop_set_feature(admin, NVME_FEAT_FID_VOLATILE_WC, 1, NULL), 0);
	CU_ASSERT_EQUAL(rw(nvme_cmd_write, 3, 0, out), 0);
	CU_ASSERT_EQUAL(atomic_load(&t->submitted), 6);
	detach_dev(t);
}

static void test_bdev_errors_reach_the_host(void)
{
	struct testdev *t = attach_dev(100, 0);
	t->fail_status = NVME_ST_DNR(MEDIA, READ_ERROR);
	CU_ASSERT_EQUAL(rw(nvme_cmd_read, 3, 0, in), NVME_ST_DNR(MEDIA, READ_ERROR));
	detach_dev(t);
}

static void test_dataset_management(void)
{
	struct nvme_dsm_range ranges[256] = {0};

	struct testdev *t = attach_dev(BLOCKS, 1u << BDEV_IO_UNMAP);
	for (unsigned i = 0; i < 256; i++) {
		ranges[i].slba = htole64(i);
		ranges[i].nlb = htole32(i % 2); /* every other is empty */
	}
	loop_cmd_init(&cmd, io, nvme_cmd_dsm, nsid);
	cmd.sqe.cdw10 = htole32(255);
	loop_cmd_data(&cmd, ranges, sizeof(ranges));
	CU_ASSERT_EQUAL(loop_run(&cmd), 0); /* no attribute: nothing to do */
	CU_ASSERT_EQUAL(atomic_load(&t->submitted), 0);
	cmd.sqe.cdw11 = htole32(NVME_DSMGMT_AD);
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	CU_ASSERT_EQUAL(atomic_load(&t->submitted), 128);
	CU_ASSERT_EQUAL(t->memory[5 * BLOCK], 0xee); /* what that bdev leaves behind */
	CU_ASSERT_EQUAL(t->memory[6 * BLOCK], 0);
	/* One bad range, and nothing happens. */
	ranges[255].slba = htole64(BLOCKS);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(GENERIC, LBA_RANGE));
	CU_ASSERT_EQUAL(atomic_load(&t->submitted), 128);
	loop_cmd_data(&cmd, ranges, sizeof(ranges) - 1);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(GENERIC, SGL_INVALID_DATA));
	detach_dev(t);
}

/* ---- Copy, Verify, Write Uncorrectable ---- */

static void copy_init(struct nvme_copy_range *ranges, unsigned n, uint64_t to)
{
	rw_init(&cmd, nvme_cmd_copy, to, 0);
	cmd.sqe.cdw12 = htole32(n - 1);
	loop_cmd_data(&cmd, ranges, n * (uint32_t)sizeof(*ranges));
}

static struct nvme_copy_range range_of(uint64_t slba, uint16_t nlb)
{
	return (struct nvme_copy_range){.slba = htole64(slba), .nlb = htole16(nlb)};
}

static void test_copy_gathers_its_ranges(void)
{
	struct nvme_copy_range ranges[4] = {range_of(10, 3), range_of(2, 0), range_of(11, 1), range_of(0, 1)};

	attach();
	fill(out, 32 * BLOCK, 11);
	CU_ASSERT_EQUAL(rw(nvme_cmd_write, 0, 31, out), 0);
	copy_init(ranges, 4, 100);
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	memcpy(out + 20 * BLOCK, out + 10 * BLOCK, 4 * BLOCK);
	memcpy(out + 24 * BLOCK, out + 2 * BLOCK, BLOCK);
	memcpy(out + 25 * BLOCK, out + 11 * BLOCK, 2 * BLOCK);
	memcpy(out + 27 * BLOCK, out, 2 * BLOCK);
	CU_ASSERT_TRUE(disk_is(100, 8, out + 20 * BLOCK));
	/* the ranges in the capsule */
	rw_init(&cmd, nvme_cmd_copy, 200, 0);
	memcpy(cmd.icd, ranges, sizeof(ranges[0]));
	cmd.icd_len = sizeof(ranges[0]);
	cmd.sqe.cdw12 = 0;
	cmd.sqe.sgl1 = nvme_sgl_make_plain(NVME_SGL_TYPE_DATA_BLOCK, NVME_SGL_SUBTYPE_OFFSET, 0, sizeof(ranges[0]));
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	CU_ASSERT_TRUE(disk_is(200, 3, out + 10 * BLOCK));
	detach();
}

static void test_wrong_copies_are_refused_and_copy_nothing(void)
{
	struct nvme_copy_range ranges[256] = {range_of(10, 3), range_of(BLOCKS, 0)};

	attach();
	fill(out, 4 * BLOCK, 12);
	CU_ASSERT_EQUAL(rw(nvme_cmd_write, 100, 3, out), 0);
	copy_init(ranges, 2, 100);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(GENERIC, LBA_RANGE));
	CU_ASSERT_EQUAL(cmd.cqe.dw0, 0);
	ranges[1] = range_of(103, 0);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(CMD_SPECIFIC, OVERLAPPING_IO_RANGE));
	ranges[1] = range_of(0, 2048);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(CMD_SPECIFIC, CMD_SIZE_LIMIT_EXCEEDED));
	copy_init(ranges, 1, BLOCKS - 3);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(GENERIC, LBA_RANGE));
	copy_init(ranges, 129, 100);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(CMD_SPECIFIC, CMD_SIZE_LIMIT_EXCEEDED));
	copy_init(ranges, 1, 100);
	cmd.sqe.cdw12 = htole32(2 << 8);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(GENERIC, INVALID_FIELD));
	cmd.sqe.cdw12 = htole32(1 << 8); /* ranges of 40 bytes, for namespaces with longer tags */
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(GENERIC, SGL_INVALID_DATA));
	loop_cmd_data(&cmd, ranges, 40);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(GENERIC, INVALID_NS));
	copy_init(ranges, 2, 100);
	loop_cmd_data(&cmd, ranges, 63);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(GENERIC, SGL_INVALID_DATA));
	CU_ASSERT_TRUE(disk_is(100, 3, out));
	detach();
}

static void test_copy_that_fails_says_which_range(void)
{
	struct nvme_copy_range ranges[3] = {range_of(10, 1), range_of(20, 1), range_of(30, 1)};

	attach();
	fill(out, 2 * BLOCK, 13);
	CU_ASSERT_EQUAL(rw(nvme_cmd_write, 10, 1, out), 0);
	rw_init(&cmd, nvme_cmd_write_uncor, 21, 0);
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	copy_init(ranges, 3, 100);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(MEDIA, READ_ERROR));
	CU_ASSERT_EQUAL(le32toh(cmd.cqe.dw0), 1);
	CU_ASSERT_TRUE(disk_is(100, 1, out));
	detach();
}

static void test_fua_copy_is_flushed(void)
{
	struct nvme_copy_range ranges[2] = {range_of(10, 1), range_of(20, 1)};

	struct testdev *t = attach_dev(100, 1u << BDEV_IO_FLUSH | 1u << BDEV_IO_COPY);
	copy_init(ranges, 2, 50);
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	CU_ASSERT_EQUAL(atomic_load(&t->submitted), 2);
	cmd.sqe.cdw12 |= htole32((uint32_t)NVME_IO_FUA << 16);
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	CU_ASSERT_EQUAL(atomic_load(&t->submitted), 5);
	/* what the bdev cannot, be it advertised for another's sake */
	rw_init(&cmd, nvme_cmd_write_uncor, 0, 0);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(GENERIC, INVALID_OPCODE));
	detach_dev(t);
}

static void test_uncorrectable_blocks_are_found_by_verify(void)
{
	attach();
	fill(out, 4 * BLOCK, 14);
	rw_init(&cmd, nvme_cmd_verify, 0, BLOCKS - 1); /* beyond MDTS: there are no data */
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
	rw_init(&second, nvme_cmd_write_uncor, 50, 1);
	CU_ASSERT_EQUAL(loop_run(&second), 0);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(MEDIA, READ_ERROR));
	for (unsigned zcopy = 0; zcopy < 2; zcopy++) {
		atomic_store(&loop_zcopy, zcopy != 0);
		CU_ASSERT_EQUAL(rw(nvme_cmd_read, 49, 1, in), NVME_ST_DNR(MEDIA, READ_ERROR));
		CU_ASSERT_EQUAL(rw(nvme_cmd_read, 52, 1, in), 0);
		CU_ASSERT_EQUAL(rw(nvme_cmd_write, 50, 1, out), 0);
		CU_ASSERT_TRUE(disk_is(50, 1, out));
		CU_ASSERT_EQUAL(loop_run(&second), 0);
	}
	atomic_store(&loop_zcopy, false);
	rw_init(&cmd, nvme_cmd_verify, BLOCKS - 1, 1);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(GENERIC, LBA_RANGE));
	rw_init(&cmd, nvme_cmd_write_uncor, BLOCKS, 0);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(GENERIC, LBA_RANGE));
	detach();
}

/* ---- Fused compare and write ---- */

static void fused_init(uint64_t slba, uint16_t nlb, void *compare, void *write)
{
	rw_init(&cmd, nvme_cmd_compare, slba, nlb);
	cmd.sqe.flags |= NVME_FUSE_FIRST;
	loop_cmd_data(&cmd, compare, (nlb + UINT32_C(1)) * BLOCK);
	rw_init(&second, nvme_cmd_write, slba, nlb);
	second.sqe.flags |= NVME_FUSE_SECOND;
	loop_cmd_data(&second, write, (nlb + UINT32_C(1)) * BLOCK);
}

static void expect_fused(uint16_t first_status, uint16_t second_status)
{
	loop_submit(&cmd);
	loop_submit(&second);
	CU_ASSERT_EQUAL(loop_wait(&cmd) & ~NVME_SC_DNR, first_status);
	CU_ASSERT_EQUAL(loop_wait(&second) & ~NVME_SC_DNR, second_status);
}

static void test_fused_compare_and_write(void)
{
	attach();
	uint8_t *old = out, *new = out + 4 * BLOCK;
	fill(out, sizeof(out), 11);
	CU_ASSERT_EQUAL(rw(nvme_cmd_write, 50, 3, old), 0);
	fused_init(50, 3, old, new);
	expect_fused(0, 0);
	CU_ASSERT_TRUE(disk_is(50, 3, new));
	expect_fused(NVME_ST(MEDIA, COMPARE_FAILED), NVME_ST(GENERIC, FUSED_FAIL));
	CU_ASSERT_TRUE(disk_is(50, 3, new));
	detach();
}

static void test_fused_write_with_fua_is_flushed(void)
{
	struct testdev *t = attach_dev(100, 1u << BDEV_IO_FLUSH | 1u << BDEV_IO_COMPARE_AND_WRITE);
	memset(out, 0, sizeof(out));
	fused_init(5, 0, out, out);
	expect_fused(0, 0);
	uint32_t without = atomic_load(&t->submitted);
	fused_init(5, 0, out, out);
	second.sqe.cdw12 |= htole32((uint32_t)NVME_IO_FUA << 16);
	expect_fused(0, 0);
	CU_ASSERT_EQUAL(atomic_load(&t->submitted), 2 * without + 1);
	detach_dev(t);
}

static void test_fused_commands_can_be_masked(void)
{
	struct nvmf_transport_opts *opts =
		(void *)(uintptr_t)nvmf_transport_get_opts(nvmf_transport_next(loop_tgt(), NULL));
	struct nvme_id_ctrl id;

	attach();
	opts->masked_fuses = NVME_CTRL_FUSES_COMPARE_AND_WRITE;
	CU_ASSERT_EQUAL(loop_identify(admin, NVME_IDENTIFY_CNS_CTRL, 0, 0, &id), 0);
	CU_ASSERT_EQUAL(id.fuses, 0);
	CU_ASSERT_NOT_EQUAL(le16toh(id.oncs) & NVME_CTRL_ONCS_COMPARE, 0);
	fused_init(50, 3, in, out);
	expect_fused(NVME_ST(GENERIC, INVALID_FIELD), NVME_ST(GENERIC, FUSED_FAIL));
	opts->masked_fuses = 0;
	opts->masked_oncs = NVME_CTRL_ONCS_COMPARE;
	fused_init(50, 3, in, out);
	expect_fused(NVME_ST(GENERIC, INVALID_OPCODE), NVME_ST(GENERIC, FUSED_FAIL));
	opts->masked_oncs = 0;
	detach();
}

static void test_fused_commands_must_match(void)
{
	attach();
	fill(out, sizeof(out), 12);
	CU_ASSERT_EQUAL(rw(nvme_cmd_write, 50, 3, out), 0);
	fused_init(50, 3, out, out);
	second.sqe.cdw10 = htole32(51);
	expect_fused(NVME_ST(GENERIC, INVALID_FIELD), NVME_ST(GENERIC, FUSED_FAIL));
	fused_init(50, 3, out, out);
	second.sqe.cdw10 = htole32(BLOCKS);
	expect_fused(NVME_ST(GENERIC, FUSED_FAIL), NVME_ST(GENERIC, LBA_RANGE));
	fused_init(50, 3, out, out);
	cmd.sqe.cdw10 = htole32(BLOCKS);
	expect_fused(NVME_ST(GENERIC, LBA_RANGE), NVME_ST(GENERIC, FUSED_FAIL));
	fused_init(50, 3, out, out);
	cmd.sqe.opcode = nvme_cmd_read;
	expect_fused(NVME_ST(GENERIC, INVALID_FIELD), NVME_ST(GENERIC, FUSED_FAIL));
	fused_init(50, 3, out, out);
	second.sqe.opcode = nvme_cmd_read;
	expect_fused(NVME_ST(GENERIC, FUSED_FAIL), NVME_ST(GENERIC, INVALID_FIELD));
	detach();
}

static void test_lone_halves_of_fused_pairs_fail(void)
{
	attach();
	fused_init(50, 0, out, out);
	CU_ASSERT_EQUAL(loop_run(&second), NVME_ST_DNR(GENERIC, FUSED_MISSING));
	loop_submit(&cmd);
	CU_ASSERT_EQUAL(rw(nvme_cmd_read, 0, 0, in), 0);
	CU_ASSERT_EQUAL(loop_wait(&cmd), NVME_ST_DNR(GENERIC, FUSED_MISSING));
	/* Two firsts, then a second. */
	struct loop_cmd *lone = malloc(sizeof(*lone));
	memcpy(lone, &cmd, sizeof(cmd));
	CU_ASSERT_EQUAL(rw(nvme_cmd_write, 50, 0, out), 0);
	loop_submit(lone);
	expect_fused(0, 0);
	CU_ASSERT_EQUAL(loop_wait(lone), NVME_ST_DNR(GENERIC, FUSED_MISSING));
	free(lone);
	/* A first alone, when the connection ends. */
	loop_submit(&cmd);
	loop_close(io);
	CU_ASSERT_TRUE(loop_given_up(loop_wait(&cmd)));
	io = loop_io_queue(admin, 1);
	detach();
}

static bool both_held(void *arg)
{
	struct nvmf_inflight *list;
	size_t n = (size_t)nvmf_tgt_get_inflight(loop_tgt(), &list), held = 0;

	for (size_t i = 0; i < n; i++) {
		held += list[i].waits_for != NULL && strcmp(list[i].waits_for, "data buffer") == 0;
	}
	free(list);
	return held == *(size_t *)arg;
}

static bool both_in_bdev(void *arg)
{
	struct nvmf_inflight *list;
	size_t n = (size_t)nvmf_tgt_get_inflight(loop_tgt(), &list), there = 0;

	for (size_t i = 0; i < n; i++) {
		there += strcmp(list[i].bdev, "held") == 0;
	}
	free(list);
	return there == 2;
}

static void test_both_commands_of_a_fused_pair_are_listed_with_their_bdev(void)
{
	struct testdev *t = testdev_new("held", BLOCK, 100);
	struct user u;

	attach();
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	uint32_t held = loop_add_ns("held", 0);
	t->hold = true;
	memset(out, 0, 2 * BLOCK);
	fused_init(0, 0, out, out + BLOCK);
	cmd.sqe.nsid = second.sqe.nsid = htole32(held);
	loop_submit(&cmd);
	loop_submit(&second);
	CU_ASSERT_TRUE(loop_until(both_in_bdev, NULL));
	t->hold = false;
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "held", false, io->thread), 0);
	testdev_release(t, &u, 0);
	user_close(&u);
	CU_ASSERT_EQUAL(loop_wait(&cmd), 0);
	CU_ASSERT_EQUAL(loop_wait(&second), 0);
	loop_remove_ns(held);
	CU_ASSERT_TRUE(testdev_delete(t));
	detach();
}

static void test_fused_data_may_come_in_any_order(void)
{
	size_t one = 1, two = 2;

	attach();
	fill(out, sizeof(out), 13);
	CU_ASSERT_EQUAL(rw(nvme_cmd_write, 60, 0, out), 0);
	/* The second's data come first: the first waits for a buffer. */
	fused_init(60, 0, out, out + BLOCK);
	atomic_store(&loop_hold_data, true);
	loop_submit(&cmd);
	CU_ASSERT_TRUE(loop_until(both_held, &one));
	atomic_store(&loop_hold_data, false);
	loop_submit(&second);
	CU_ASSERT_EQUAL(rw(nvme_cmd_read, 0, 0, in), 0); /* nothing else is held up */
	loop_release_data(io);
	CU_ASSERT_EQUAL(loop_wait(&cmd), 0);
	CU_ASSERT_EQUAL(loop_wait(&second), 0);
	CU_ASSERT_TRUE(disk_is(60, 0, out + BLOCK));
	/* Abort of one ends both. */
	fused_init(60, 0, out, out + BLOCK);
	atomic_store(&loop_hold_data, true);
	loop_submit(&cmd);
	loop_submit(&second);
	CU_ASSERT_TRUE(loop_until(both_held, &two));
	atomic_store(&loop_hold_data, false);
	struct loop_cmd *abort_cmd = malloc(sizeof(*abort_cmd));
	loop_cmd_init(abort_cmd, admin, nvme_admin_abort_cmd, 0);
	abort_cmd->sqe.cdw10 = htole32(1 | (uint32_t)le16toh(cmd.sqe.cid) << 16);
	CU_ASSERT_EQUAL(loop_run(abort_cmd), 0);
	CU_ASSERT_EQUAL(le32toh(abort_cmd->cqe.dw0), 0);
	free(abort_cmd);
	loop_release_data(io);
	CU_ASSERT_EQUAL(loop_wait(&cmd), NVME_ST(GENERIC, ABORT_REQ));
	CU_ASSERT_EQUAL(loop_wait(&second), NVME_ST_DNR(GENERIC, FUSED_FAIL));
	detach();
}

static const struct unit_test tests[] = {
	UNIT(test_what_is_written_is_read),
	UNIT(test_data_in_the_capsule_is_written),
	UNIT(test_scattered_host_memory_is_gathered),
	UNIT(test_wrong_io_is_rejected),
	UNIT(test_compare),
	UNIT(test_write_zeroes),
	UNIT(test_flush),
	UNIT(test_fua_writes),
	UNIT(test_without_a_write_cache_all_writes_are_flushed),
	UNIT(test_bdev_errors_reach_the_host),
	UNIT(test_dataset_management),
	UNIT(test_copy_gathers_its_ranges),
	UNIT(test_wrong_copies_are_refused_and_copy_nothing),
	UNIT(test_copy_that_fails_says_which_range),
	UNIT(test_fua_copy_is_flushed),
	UNIT(test_uncorrectable_blocks_are_found_by_verify),
	UNIT(test_fused_compare_and_write),
	UNIT(test_fused_write_with_fua_is_flushed),
	UNIT(test_fused_commands_can_be_masked),
	UNIT(test_fused_commands_must_match),
	UNIT(test_lone_halves_of_fused_pairs_fail),
	UNIT(test_both_commands_of_a_fused_pair_are_listed_with_their_bdev),
	UNIT(test_fused_data_may_come_in_any_order),
	UNIT_END,
};
UNIT_MAIN("nvmf_io", tests, loop_start, loop_stop)
