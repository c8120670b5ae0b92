/* SPDX-License-Identifier: BSD-3-Clause */
/* Vendor specific commands to what is under a namespace: only those listed, and no more data than the host has
 * described. */
#include "unittest/nvmf/loop.h"

#define BLOCK   4096
#define INVALID NVME_ST_DNR(GENERIC, INVALID_OPCODE)

static struct loop_conn *admin, *io;
static uint32_t nsid, plain;
static struct testdev *dev;
static uint8_t data[8192];
static struct loop_cmd cmd;

static uint32_t add_listing(const char *bdev, int *rc)
{
	struct nvmf_ns_opts opts = {0};
	uint32_t got = 0;

	nvmf_passthru_add(&opts.passthru, 0x81, false);
	nvmf_passthru_add(&opts.passthru, 0x82, false);
	nvmf_passthru_add(&opts.passthru, 0xfe, false);
	nvmf_passthru_add(&opts.passthru, 0xc0, true);
	nvmf_passthru_add(&opts.passthru, 0xc1, true);
	nvmf_passthru_add(&opts.passthru, 0xc2, true);
	*rc = nvmf_subsystem_add_ns(loop_subsystem(), bdev, &opts, &got);
	return got;
}

static void attach(void)
{
	int rc;

	plain = loop_add_malloc_ns("m", BLOCK, 16);
	dev = testdev_new("dev", BLOCK, 16);
	dev->bdev.io_types |= 1u << BDEV_IO_NVME_IO | 1u << BDEV_IO_NVME_ADMIN;
	CU_ASSERT_EQUAL_FATAL(testdev_register(dev), 0);
	nsid = add_listing("dev", &rc);
	CU_ASSERT_EQUAL_FATAL(rc, 0);
	admin = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
	io = loop_io_queue(admin, 1);
	CU_ASSERT_PTR_NOT_NULL_FATAL(io);
}

static void detach(void)
{
	loop_close(io);
	loop_close(admin);
	loop_remove_ns(nsid);
	CU_ASSERT_TRUE(testdev_delete(dev));
	loop_remove_malloc_ns(plain, "m");
}

static uint16_t vendor(struct loop_conn *c, uint8_t opcode, uint32_t ns, uint32_t len)
{
	loop_cmd_init(&cmd, c, opcode, ns);
	cmd.sqe.cdw10 = htole32(len / 4);
	cmd.sqe.cdw15 = htole32(15);
	loop_cmd_data(&cmd, data, len);
	return loop_run(&cmd);
}

static void expect_both_ways(struct loop_conn *c, uint8_t write, uint8_t read)
{
	uint64_t seed = write;

	for (size_t i = 0; i < 2048; i++) {
		data[i] = (uint8_t)fixture_random(&seed);
	}
	CU_ASSERT_EQUAL(vendor(c, write, nsid, 2048), 0);
	CU_ASSERT_EQUAL(le32toh(cmd.cqe.dw0), 0xc0ffee);
	CU_ASSERT_EQUAL(memcmp(dev->scratch, data, 2048), 0);
	CU_ASSERT(dev->passed.opcode == write && dev->passed.cdw15 == htole32(15));
	memset(data, 0, sizeof(data));
	CU_ASSERT_EQUAL(vendor(c, read, nsid, 1024), 0);
	CU_ASSERT_EQUAL(memcmp(dev->scratch, data, 1024), 0);
	CU_ASSERT_EQUAL(data[1024], 0);
}

static void test_listed_commands_are_passed_on_with_their_data(void)
{
	attach();
	expect_both_ways(io, 0x81, 0x82);
	expect_both_ways(admin, 0xc1, 0xc2);
	CU_ASSERT_EQUAL(vendor(admin, 0xc0, nsid, 0), 0);
	CU_ASSERT_EQUAL(vendor(io, 0xfe, nsid, 4), 0);
	CU_ASSERT_EQUAL(vendor(io, 0x82, nsid, 0), 0); /* none described: none moved */
	detach();
}

static void test_others_are_not(void)
{
	attach();
	unsigned before = atomic_load(&dev->submitted);
	for (unsigned opcode = 0x80; opcode <= 0xff; opcode++) {
		bool listed = opcode == 0x81 || opcode == 0x82 || opcode == 0xfe;
		CU_ASSERT_EQUAL(vendor(io, (uint8_t)opcode, plain, 4), INVALID);
		CU_ASSERT_EQUAL(listed ? INVALID : vendor(io, (uint8_t)opcode, nsid, 4), INVALID);
	}
	for (unsigned opcode = 0xc0; opcode <= 0xff; opcode++) {
		CU_ASSERT_EQUAL(vendor(admin, (uint8_t)opcode, plain, 4), INVALID);
		CU_ASSERT_EQUAL(opcode <= 0xc2 ? INVALID : vendor(admin, (uint8_t)opcode, nsid, 4), INVALID);
	}
	CU_ASSERT_EQUAL(vendor(admin, 0x81, nsid, 4), INVALID);
	CU_ASSERT_EQUAL(vendor(admin, 0xc2, 9, 4), NVME_ST_DNR(GENERIC, INVALID_NS));
	CU_ASSERT_EQUAL(vendor(admin, 0xc2, NVME_NSID_ALL, 4), NVME_ST_DNR(GENERIC, INVALID_NS));
	CU_ASSERT_EQUAL(vendor(admin, 0xc9, 9, 4), INVALID); /* no namespace has it: whichever is named */
	CU_ASSERT_EQUAL(vendor(admin, 0xc9, NVME_NSID_ALL, 4), INVALID);
	CU_ASSERT_EQUAL(vendor(io, 0x82, NVME_NSID_ALL, 4), NVME_ST_DNR(GENERIC, INVALID_NS));
	CU_ASSERT_EQUAL(vendor(io, 0x82, nsid, 6), NVME_ST_DNR(GENERIC, SGL_INVALID_DATA));
	loop_cmd_init(&cmd, io, 0x82, nsid);
	cmd.sqe.sgl1 = nvme_sgl_make_keyed((uintptr_t)data, LOOP_MAX_IO + 4, LOOP_KEY, NVME_SGL_SUBTYPE_ADDRESS);
	CU_ASSERT_EQUAL(loop_run(&cmd), NVME_ST_DNR(GENERIC, SGL_INVALID_DATA));
	CU_ASSERT_EQUAL(atomic_load(&dev->submitted), before);
	detach();
}

/* A command of no namespace is the only one's that lists it. */
static void test_admin_command_without_a_namespace_finds_the_one(void)
{
	int rc;

	attach();
	CU_ASSERT_EQUAL(vendor(admin, 0xc2, 0, 512), 0);
	CU_ASSERT_EQUAL(dev->passed.nsid, 0);
	CU_ASSERT_EQUAL(vendor(admin, 0xc4, 0, 512), INVALID);
	struct testdev *second = testdev_new("second", BLOCK, 16);
	second->bdev.io_types = dev->bdev.io_types;
	CU_ASSERT_EQUAL_FATAL(testdev_register(second), 0);
	uint32_t other = add_listing("second", &rc);
	CU_ASSERT_EQUAL(rc, 0);
	CU_ASSERT_EQUAL(vendor(admin, 0xc2, 0, 512), INVALID); /* which one? */
	CU_ASSERT_EQUAL(vendor(admin, 0xc2, other, 512), 0);
	loop_remove_ns(other);
	CU_ASSERT_TRUE(testdev_delete(second));
	CU_ASSERT_EQUAL(vendor(admin, 0xc2, 0, 512), 0);
	detach();
}

static void test_failures_and_pauses_reach_the_host(void)
{
	struct loop_wait paused = LOOP_WAIT, resumed = LOOP_WAIT;

	attach();
	dev->fail_status = NVME_ST_DNR(VS, INVALID_FIELD);
	CU_ASSERT_EQUAL(vendor(io, 0x82, nsid, 512), dev->fail_status);
	CU_ASSERT_EQUAL(vendor(admin, 0xc2, nsid, 512), dev->fail_status);
	dev->fail_status = 0;
	nvmf_subsystem_pause(loop_subsystem(), nsid, loop_done, &paused);
	CU_ASSERT_EQUAL(loop_wait_for(&paused), 0);
	CU_ASSERT_EQUAL(vendor(admin, 0xc2, nsid, 512),
			NVME_ST(GENERIC, NS_NOT_READY)); /* admin commands do not wait */
	nvmf_subsystem_resume(loop_subsystem(), loop_done, &resumed);
	CU_ASSERT_EQUAL(loop_wait_for(&resumed), 0);
	CU_ASSERT_EQUAL(vendor(admin, 0xc2, nsid, 512), 0);
	/* a controller that is not enabled */
	CU_ASSERT_EQUAL(loop_property_set(admin, NVME_REG_CC, 0, 0), 0);
	CU_ASSERT_EQUAL(vendor(admin, 0xc2, nsid, 512), NVME_ST_DNR(GENERIC, CMD_SEQ_ERROR));
	detach();
}

static void release(uint16_t status)
{
	for (unsigned i = 0; i < 2; i++) { /* the groups of both queues */
		struct user u;

		CU_ASSERT_EQUAL_FATAL(user_open(&u, "dev", false, i == 0 ? io->thread : admin->thread), 0);
		testdev_release(dev, &u, status);
		user_close(&u);
	}
}

static void test_what_has_not_begun_is_repeated_elsewhere(void)
{
	attach();
	dev->untouched_status = NVME_ST(PATH, CTRL_PATH_ERROR);
	CU_ASSERT_EQUAL(vendor(io, 0x82, nsid, 512), NVME_ST(PATH, CTRL_PATH_ERROR));
	CU_ASSERT_EQUAL(vendor(admin, 0xc2, nsid, 512), NVME_ST(PATH, CTRL_PATH_ERROR));
	dev->untouched_status = 0;
	detach();
}

/* Nobody knows what they do: a host is never asked to repeat one that the device has had. */
static void test_what_has_begun_is_not_repeated(void)
{
	static const struct {
		bool ends; /* the target ends the connections meanwhile */
		uint16_t device, host;
	} cases[] = {
		{false, NVME_ST(PATH, CTRL_PATH_ERROR), NVME_ST_DNR(GENERIC, INTERNAL)},
		{false, NVME_ST(PATH, ANA_INTERNAL_PATH_ERROR), NVME_ST_DNR(GENERIC, INTERNAL)},
		{true, NVME_ST(PATH, CTRL_PATH_ERROR), NVME_ST_DNR(GENERIC, INTERNAL)},
		{true, NVME_ST(GENERIC, ABORT_REQ), NVME_ST(GENERIC, ABORT_REQ)},
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct loop_cmd c[2];

		attach();
		dev->hold = true;
		for (unsigned k = 0; k < 2; k++) {
			loop_cmd_init(&c[k], k == 0 ? io : admin, k == 0 ? 0x82 : 0xc0, nsid);
			loop_cmd_data(&c[k], data, k == 0 ? 512 : 0);
			loop_submit(&c[k]);
		}
		CU_ASSERT_TRUE_FATAL(fixture_wait_count(&dev->held, 2));
		if (cases[i].ends) {
			nvmf_ctrlr_destroy(nvmf_ctrlr_next(loop_subsystem(), NULL), "the test wants it");
		}
		while (cases[i].ends && loop_rw(io, nvme_cmd_read, plain, 0, 0, data, BLOCK) == 0) {
		}
		release(cases[i].device);
		CU_ASSERT_EQUAL(loop_wait(&c[0]), cases[i].host);
		CU_ASSERT_EQUAL(loop_wait(&c[1]), cases[i].host);
		dev->hold = false;
		detach();
	}
}

static void test_they_are_in_the_effects_log(void)
{
	struct nvme_cmd_effects_log log;

	attach();
	CU_ASSERT_EQUAL(loop_get_log(admin, NVME_LOG_LID_CMD_EFFECTS, true, 0, &log, sizeof(log)), 0);
	CU_ASSERT(log.iocs[0x81] == htole32(1) && log.iocs[0x82] == htole32(1) && log.iocs[0xfe] == htole32(1));
	CU_ASSERT(log.iocs[0x80] == 0 && log.iocs[0xc1] == 0 && log.acs[0xc1] == htole32(1) && log.acs[0xc3] == 0);
	detach();
}

static void test_only_bdevs_on_nvme_controllers_can_list_any(void)
{
	int rc;

	make_malloc("m", BLOCK, 16);
	add_listing("m", &rc);
	CU_ASSERT_EQUAL(rc, -ENOTSUP);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m"), 0);
	CU_ASSERT(nvmf_passthru_can_list(0x80, false) && nvmf_passthru_can_list(0xc1, true));
	CU_ASSERT(!nvmf_passthru_can_list(0x7e, false) && !nvmf_passthru_can_list(0xbe, true));
	CU_ASSERT(!nvmf_passthru_can_list(0x83, false) && !nvmf_passthru_can_list(0xff, true));
}

static const struct unit_test tests[] = {
	UNIT(test_listed_commands_are_passed_on_with_their_data),
	UNIT(test_others_are_not),
	UNIT(test_admin_command_without_a_namespace_finds_the_one),
	UNIT(test_failures_and_pauses_reach_the_host),
	UNIT(test_what_has_not_begun_is_repeated_elsewhere),
	UNIT(test_what_has_begun_is_not_repeated),
	UNIT(test_they_are_in_the_effects_log),
	UNIT(test_only_bdevs_on_nvme_controllers_can_list_any),
	UNIT_END,
};
UNIT_MAIN("nvmf_passthru", tests, loop_start, loop_stop)
