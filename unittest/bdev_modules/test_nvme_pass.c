/* SPDX-License-Identifier: BSD-3-Clause */
/* NVMe commands that are passed through: of bdev I/O, and raw ones. */
#include <errno.h>

#include "unittest/bdev_modules/nvme_fixture.h"

/* --- Commands that are passed through --- */

static uint16_t pass(struct user *u, enum bdev_io_type type, struct nvme_sqe *cmd, size_t len)
{
	struct request *r = request_new(u);
	struct iovec iov = {buffer, len};

	bdev_io_set_rw(r->io, type, &iov, len != 0, 0, 0);
	r->io->nvme.cmd = cmd;
	uint16_t status = request_run(r);
	request_free(r);
	return status;
}

static void test_commands_are_passed_through(void)
{
	struct user u;

	drive_begin_attached();
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(1)), 0);
	struct nvme_sqe identify = {.opcode = nvme_admin_identify, .cdw10 = htole32(NVME_IDENTIFY_CNS_CTRL)};
	CU_ASSERT_EQUAL(pass(&u, BDEV_IO_NVME_ADMIN, &identify, 4096), 0);
	CU_ASSERT_EQUAL(memcmp(((struct nvme_id_ctrl *)buffer)->sn, "MODEL0", 6), 0);
	fill(buffer, 1024, 40);
	struct nvme_sqe write = {
		.opcode = nvme_cmd_write, .nsid = htole32(2), .cdw10 = htole32(9), .cdw12 = htole32(1)};
	CU_ASSERT_EQUAL(pass(&u, BDEV_IO_NVME_IO, &write, 1024), 0);
	CU_ASSERT_EQUAL(memcmp(model.ns[0].data + 9 * 512, buffer, 1024),
			0); /* the bdev's namespace, not the one that the command names */
	CU_ASSERT_EQUAL(pass(&u, BDEV_IO_NVME_IO, &write, 512), NVME_ST_DNR(GENERIC, SGL_INVALID_DATA));
	struct nvme_sqe delete = {.opcode = nvme_admin_delete_sq, .cdw10 = htole32(1)};
	CU_ASSERT_EQUAL(pass(&u, BDEV_IO_NVME_ADMIN, &delete, 0), NVME_ST_DNR(GENERIC, INVALID_OPCODE));
	user_close(&u);
	drive_end();
}

/* The drive does not see the submitter's data pointers and flags. */
static struct nvme_sqe vendor_command(uint8_t opcode, uint32_t dwords)
{
	return (struct nvme_sqe){.opcode = opcode,
				 .flags = 0x41,
				 .nsid = htole32(3),
				 .mptr = 0x1234000,
				 .prp1 = 0xbad000,
				 .prp2 = 0xbad000,
				 .cdw10 = htole32(dwords),
				 .cdw14 = htole32(7)};
}

static void expect_vendor(struct user *u, enum bdev_io_type type, uint8_t base)
{
	struct nvme_sqe cmd = vendor_command((uint8_t)(base + 1), 256);

	fill(buffer, 1024, base);
	CU_ASSERT_EQUAL(pass(u, type, &cmd, 1024), 0);
	CU_ASSERT_EQUAL(memcmp(model.vendor, buffer, 1024), 0);
	CU_ASSERT_EQUAL(model.last_vendor.nsid, htole32(1)); /* the bdev's */
	CU_ASSERT_EQUAL(model.last_vendor.cdw14, htole32(7));
	CU_ASSERT_EQUAL(model.last_vendor.mptr, 0);
	memset(buffer, 0, 1024);
	cmd = vendor_command((uint8_t)(base + 2), 256);
	CU_ASSERT_EQUAL(pass(u, type, &cmd, 1024), 0);
	CU_ASSERT_EQUAL(memcmp(model.vendor, buffer, 1024), 0);
	/* more, or less, than the buffers have */
	CU_ASSERT_EQUAL(pass(u, type, &cmd, 512), NVME_ST_DNR(GENERIC, SGL_INVALID_DATA));
	cmd.cdw11 = htole32(1); /* and metadata */
	CU_ASSERT_EQUAL(pass(u, type, &cmd, 1024), NVME_ST_DNR(GENERIC, SGL_INVALID_DATA));
	cmd = vendor_command((uint8_t)(base + 4), 0);
	CU_ASSERT_EQUAL(pass(u, type, &cmd, 512), NVME_ST_DNR(GENERIC, SGL_INVALID_DATA));
	CU_ASSERT_EQUAL(pass(u, type, &cmd, 0), 0);
	CU_ASSERT_EQUAL(model.vendor[0] | model.last_vendor.prp1 | model.last_vendor.prp2, 0);
	cmd = vendor_command((uint8_t)(base + 3), 0);
	CU_ASSERT_EQUAL(pass(u, type, &cmd, 0), NVME_ST_DNR(GENERIC, INVALID_OPCODE));
}

static void test_vendor_specific_commands_move_what_they_say(void)
{
	struct bdev_nvme_attach a = attach_opts();
	struct user u;

	drive_begin();
	CU_ASSERT_EQUAL_FATAL(attach_with(&a), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(1)), 0);
	expect_vendor(&u, BDEV_IO_NVME_IO, 0x80);
	expect_vendor(&u, BDEV_IO_NVME_ADMIN, 0xc0);
	user_close(&u);
	drive_end();
	/* How much a vendor specific command of this drive moves is unknown: only those without data are passed. */
	drive_begin();
	model.no_vendor_sizes = true;
	CU_ASSERT_EQUAL_FATAL(attach_with(&a), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(1)), 0);
	struct nvme_sqe read = vendor_command(0x82, 256), clear = vendor_command(0x84, 0);
	CU_ASSERT_EQUAL(pass(&u, BDEV_IO_NVME_IO, &read, 1024), NVME_ST_DNR(GENERIC, INVALID_OPCODE));
	CU_ASSERT_EQUAL(pass(&u, BDEV_IO_NVME_IO, &clear, 0), 0);
	read.opcode = 0xc2;
	clear.opcode = 0xc4;
	CU_ASSERT_EQUAL(pass(&u, BDEV_IO_NVME_ADMIN, &read, 1024), NVME_ST_DNR(GENERIC, INVALID_OPCODE));
	CU_ASSERT_EQUAL(pass(&u, BDEV_IO_NVME_ADMIN, &clear, 0), 0);
	user_close(&u);
	drive_end();
}

static struct {
	bool done;
	int rc;
	uint16_t status;
} raw_result;

static void raw_done(void *arg, int rc, const struct nvme_cqe *cqe)
{
	raw_result.done = true;
	raw_result.rc = rc;
	raw_result.status = cqe ? nvme_cqe_status(cqe) : 0;
}

static bool raw_is_done(void *arg)
{
	return raw_result.done;
}

static uint16_t send_raw(struct bdev_nvme_raw *raw)
{
	raw_result.done = false;
	bdev_nvme_send(nvme, raw, raw_done, NULL);
	CU_ASSERT(thread_control_wait(raw_is_done, NULL, WAIT_US));
	CU_ASSERT_EQUAL(raw_result.rc, 0);
	return raw_result.status;
}

static void test_raw_commands_verify_and_copy(void)
{
	uint64_t ranges[2][4] = {{0, htole64(8), htole64(3), 0},
				 {0, htole64(20), htole64(0), 0}}; /* blocks 8 to 11, and 20 */
	struct bdev_nvme_raw raw = {.io = true,
				    .cmd = {.opcode = nvme_cmd_verify, .nsid = htole32(1), .cdw12 = htole32(7)}};

	drive_begin_attached();
	fill(model.ns[0].data, 32 * 512, 60);
	CU_ASSERT_EQUAL(send_raw(&raw), 0);
	raw.cmd.cdw11 = htole32(1); /* far beyond the end */
	CU_ASSERT_EQUAL(send_raw(&raw), NVME_ST_DNR(GENERIC, LBA_RANGE));
	raw = (struct bdev_nvme_raw){
		.io = true,
		.to_device = true,
		.data = ranges,
		.data_len = sizeof(ranges),
		.cmd = {.opcode = nvme_cmd_copy, .nsid = htole32(1), .cdw10 = htole32(100), .cdw12 = htole32(1)}};
	CU_ASSERT_EQUAL(send_raw(&raw), 0);
	CU_ASSERT_EQUAL(memcmp(model.ns[0].data + 100 * 512, model.ns[0].data + 8 * 512, 4 * 512), 0);
	CU_ASSERT_EQUAL(memcmp(model.ns[0].data + 104 * 512, model.ns[0].data + 20 * 512, 512), 0);
	drive_end();
}

static void test_raw_commands_carry_metadata(void)
{
	uint8_t md[2 * 16];
	struct bdev_nvme_raw raw = {
		.io = true,
		.to_device = true,
		.data = buffer,
		.data_len = 8192,
		.md = md,
		.md_len = sizeof(md),
		.cmd = {.opcode = nvme_cmd_write, .nsid = htole32(2), .cdw10 = htole32(5), .cdw12 = htole32(1)}};
	struct bdev_nvme_attach a = attach_opts();

	drive_begin();
	model.ns[1].md_size = 16;
	CU_ASSERT_EQUAL_FATAL(attach_with(&a), 0);
	fill(buffer, 8192, 1);
	fill(md, sizeof(md), 2);
	CU_ASSERT_EQUAL(send_raw(&raw), 0);
	CU_ASSERT_EQUAL(memcmp(model.ns[1].data + 5 * 4096, buffer, 8192), 0);
	CU_ASSERT_EQUAL(memcmp(model.ns[1].md + 5 * 16, md, sizeof(md)), 0);
	memset(md, 0, sizeof(md));
	raw.to_device = false;
	raw.cmd.opcode = nvme_cmd_read;
	CU_ASSERT_EQUAL(send_raw(&raw), 0);
	CU_ASSERT_EQUAL(memcmp(model.ns[1].md + 5 * 16, md, sizeof(md)), 0);
	raw.md_len = 16;
	CU_ASSERT_EQUAL(send_raw(&raw), NVME_ST_DNR(GENERIC, SGL_INVALID_METADATA));
	raw = (struct bdev_nvme_raw){.md = md, .md_len = 8, .cmd = {.opcode = nvme_admin_get_log_page}};
	raw_result.done = false;
	bdev_nvme_send(nvme, &raw, raw_done, NULL);
	CU_ASSERT(raw_result.done && raw_result.rc == -ENOTSUP);
	drive_end();
}

static void test_raw_commands_go_through_either_queue(void)
{
	drive_begin_attached();
	fill(model.ns[0].data, 1024, 60);
	struct bdev_nvme_raw raw = {.io = true,
				    .data = buffer,
				    .data_len = 1024,
				    .cmd = {.opcode = nvme_cmd_read, .nsid = htole32(1), .cdw12 = htole32(1)}};
	raw_result.done = false;
	bdev_nvme_send(nvme, &raw, raw_done, NULL);
	CU_ASSERT(thread_control_wait(raw_is_done, NULL, WAIT_US));
	CU_ASSERT_EQUAL(raw_result.rc, 0);
	CU_ASSERT_EQUAL(raw_result.status, 0);
	CU_ASSERT_EQUAL(memcmp(buffer, model.ns[0].data, 1024), 0);
	raw.data_len = 512;
	raw_result.done = false;
	bdev_nvme_send(nvme, &raw, raw_done, NULL);
	CU_ASSERT_EQUAL(raw_result.status, NVME_ST_DNR(GENERIC, SGL_INVALID_DATA));
	raw = (struct bdev_nvme_raw){
		.data = buffer,
		.data_len = 4096,
		.cmd = {.opcode = nvme_admin_identify, .nsid = htole32(2), .cdw10 = htole32(NVME_IDENTIFY_CNS_NS)}};
	raw_result.done = false;
	bdev_nvme_send(nvme, &raw, raw_done, NULL);
	CU_ASSERT(thread_control_wait(raw_is_done, NULL, WAIT_US));
	CU_ASSERT_EQUAL(le64toh(((struct nvme_id_ns *)buffer)->nsze), model.ns[1].blocks);
	raw.data_len = 64;
	CU_ASSERT_EQUAL(send_raw(&raw), NVME_ST_DNR(GENERIC, SGL_INVALID_DATA));
	raw.cmd = (struct nvme_sqe){.opcode = nvme_admin_get_log_page,
				    .nsid = htole32(NVME_NSID_ALL),
				    .cdw10 = htole32(NVME_LOG_LID_SMART | 127 << 16)};
	CU_ASSERT_EQUAL(send_raw(&raw), NVME_ST_DNR(GENERIC, SGL_INVALID_DATA));
	raw.data_len = 512;
	CU_ASSERT_EQUAL(send_raw(&raw), 0);
	drive_end();
}

static const struct unit_test tests[] = {
	UNIT(test_commands_are_passed_through),          UNIT(test_vendor_specific_commands_move_what_they_say),
	UNIT(test_raw_commands_verify_and_copy),         UNIT(test_raw_commands_carry_metadata),
	UNIT(test_raw_commands_go_through_either_queue), UNIT_END,
};
UNIT_MAIN("bdev_nvme_pass", tests, drive_setup, drive_teardown)
