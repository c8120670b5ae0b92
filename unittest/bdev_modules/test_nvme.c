/* SPDX-License-Identifier: BSD-3-Clause */
/* Bdevs on an NVMe controller: the driver and the bdev layer are the real ones, the controller is a model, run by a
 * poller of the control thread while users' threads submit I/O. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bdev_modules/nvme/internal.h"
#include "env_dpdk/env.h"
#include "env_dpdk/env_internal.h"
#include "env_dpdk/pci_internal.h"
#include "unittest/bdev_modules/nvme_fixture.h"

static bool is_attached_by_itself(void *name)
{
	nvme = bdev_nvme_find(name);
	return nvme != NULL && is_up(NULL);
}

/* --- Attach and detach --- */

static void test_each_namespace_becomes_a_bdev(void)
{
	struct bdev_nvme_attach opts = attach_opts();
	drive_begin();
	model.ns[0].no_nguid = true;
	CU_ASSERT_EQUAL_FATAL(attach_with(&opts), 0);
	struct bdev *a = bdev_find("Nvme0n1"), *b = bdev_find("Nvme0n2");
	CU_ASSERT_FATAL(a != NULL && b != NULL);
	CU_ASSERT_STRING_EQUAL(bdev_product_name(a), "NVMe disk");
	CU_ASSERT_EQUAL(bdev_block_size(a), 512);
	CU_ASSERT_EQUAL(bdev_num_blocks(a), model.ns[0].blocks);
	CU_ASSERT_EQUAL(bdev_block_size(b), 4096);
	CU_ASSERT(bdev_uuid(a)[0] == 0x40 && bdev_uuid(a)[15] == 1); /* its UUID */
	CU_ASSERT(bdev_uuid(b)[0] == 2 && bdev_uuid(b)[15] == 0);    /* its NGUID, although it has a UUID as well */
	CU_ASSERT_PTR_EQUAL(bdev_nvme_bdev_next(nvme, NULL), a);
	CU_ASSERT_PTR_EQUAL(bdev_nvme_bdev_next(nvme, a), b);
	CU_ASSERT_PTR_NULL(bdev_nvme_bdev_next(nvme, b));
	CU_ASSERT_STRING_EQUAL(bdev_nvme_state_name(nvme), "enabled");
	CU_ASSERT_EQUAL(drive_detach(), 0);
	CU_ASSERT_PTR_NULL(bdev_find("Nvme0n1"));
	CU_ASSERT_PTR_NULL(bdev_nvme_find("Nvme0"));
	drive_end();
}

static void test_namespaces_with_the_same_nguid_are_known_by_their_uuids(void)
{
	static const uint8_t nguid[16] = {9}, uuid[16] = {[0] = 0x40, [15] = 2};
	struct bdev_nvme_attach opts = attach_opts();

	drive_begin();
	model.ns[0].nguid = model.ns[1].nguid = 9;
	CU_ASSERT_EQUAL_FATAL(attach_with(&opts), 0);
	const struct bdev *a = bdev_find("Nvme0n1"), *b = bdev_find("Nvme0n2");
	CU_ASSERT_FATAL(a != NULL && b != NULL);
	CU_ASSERT_EQUAL(memcmp(bdev_uuid(a), nguid, 16), 0);
	CU_ASSERT_EQUAL(memcmp(bdev_uuid(b), uuid, 16), 0);
	drive_end();
}

static void test_namespace_whose_blocks_do_not_fit_into_a_transfer_is_left_out(void)
{
	drive_begin();
	model.mdts = 1;
	model.ns[0].block_shift = 14;
	model.ns[0].blocks = 4;
	struct bdev_nvme_attach a = attach_opts();
	CU_ASSERT_EQUAL_FATAL(attach_with(&a), 0);
	CU_ASSERT_PTR_NULL(bdev_find("Nvme0n1"));
	CU_ASSERT_PTR_NOT_NULL_FATAL(bdev_find("Nvme0n2"));
	CU_ASSERT_EQUAL(bdev_find("Nvme0n2")->max_rw_blocks, 2);
	drive_end();
}

static void test_io_is_split_at_a_boundary_that_is_no_power_of_two(void)
{
	struct user u;

	drive_begin();
	model.ns[0].noiob = 12;
	struct bdev_nvme_attach a = attach_opts();
	CU_ASSERT_EQUAL_FATAL(attach_with(&a), 0);
	CU_ASSERT_EQUAL(bdev_optimal_io_boundary(bdev_find("Nvme0n1")), 12);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	fill(buffer, 32 * 512, 3);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, buffer, 10, 32), 0);
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_write], 4); /* 10, 12 to 23, 24 to 35, 36 to 41 */
	CU_ASSERT_EQUAL(memcmp(model.ns[0].data + 10 * 512, buffer, 32 * 512), 0);
	user_close(&u);
	drive_end();
}

static void test_drive_that_is_plugged_in_is_attached_if_so_wanted(void)
{
	drive_begin();
	nvme_pcie_hotplug_arrived("0000:00:04.0");
	CU_ASSERT_PTR_NULL(bdev_nvme_next(NULL)); /* hotplug is disabled */
	CU_ASSERT_EQUAL_FATAL(bdev_nvme_set_hotplug(true), 0);
	CU_ASSERT(bdev_nvme_hotplug());
	nvme_pcie_hotplug_arrived("0000:00:04.0");
	CU_ASSERT_FATAL(thread_control_wait(is_attached_by_itself, "HotInNvme0", WAIT_US));
	CU_ASSERT_PTR_NOT_NULL(bdev_find("HotInNvme0n1"));
	nvme_pcie_hotplug_arrived("0000:00:04.0"); /* reported twice */
	CU_ASSERT_PTR_NULL(bdev_nvme_find("HotInNvme1"));
	model_remove(&model);
	CU_ASSERT(thread_control_wait(all_detached, NULL, WAIT_US));
	CU_ASSERT_EQUAL(bdev_nvme_set_hotplug(false), 0);
	nvme_pcie_hotplug_arrived("0000:00:04.0");
	CU_ASSERT_PTR_NULL(bdev_nvme_next(NULL));
	CU_ASSERT(!bdev_nvme_hotplug());
	nvme = NULL;
	drive_end();
}

/* A machine with one drive, bound to vfio-pci. */
static void make_machine(char folder[64])
{
	char path[128];

	snprintf(folder, 64, "/tmp/varve-unit-nvme.XXXXXX");
	CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/0000:00:04.0", folder);
	CU_ASSERT_EQUAL_FATAL(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/0000:00:04.0/driver", folder);
	CU_ASSERT_EQUAL_FATAL(symlink("../../drivers/vfio-pci", path), 0);
	snprintf(path, sizeof(path), "%s/0000:00:04.0/class", folder);
	FILE *f = fopen(path, "w");
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	fprintf(f, "0x010802\n");
	fclose(f);
	env_pci_set_folder(folder);
	env_pci_start(&(struct env_opts){.no_pci = false});
}

static void drop_machine(const char *folder)
{
	static const char *const names[] = {"/0000:00:04.0/driver", "/0000:00:04.0/class", "/0000:00:04.0", ""};
	char path[128];

	env_pci_start(&(struct env_opts){.no_pci = true});
	env_pci_set_folder("/sys/bus/pci/devices");
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s%s", folder, names[i]);
		CU_ASSERT_EQUAL(remove(path), 0);
	}
}

static void test_drive_that_is_there_already_is_attached_if_so_wanted(void)
{
	char folder[64];

	drive_begin();
	make_machine(folder);
	CU_ASSERT_EQUAL_FATAL(bdev_nvme_set_hotplug(true), 0);
	CU_ASSERT_FATAL(thread_control_wait(is_attached_by_itself, "HotInNvme0", WAIT_US));
	CU_ASSERT_EQUAL(bdev_nvme_set_hotplug(true), 0); /* it is attached already: not attached again */
	CU_ASSERT_PTR_NULL(bdev_nvme_next(nvme));
	CU_ASSERT_EQUAL(bdev_nvme_set_hotplug(false), 0);
	drop_machine(folder);
	drive_end();
}

static void test_drive_whose_news_was_lost_is_attached_if_so_wanted(void)
{
	char folder[64];

	drive_begin();
	CU_ASSERT_EQUAL_FATAL(bdev_nvme_set_hotplug(true), 0);
	make_machine(folder);
	nvme_pcie_hotplug_lost();
	CU_ASSERT_FATAL(thread_control_wait(is_attached_by_itself, "HotInNvme0", WAIT_US));
	nvme_pcie_hotplug_lost(); /* not attached again */
	CU_ASSERT_PTR_NULL(bdev_nvme_next(nvme));
	CU_ASSERT_EQUAL(bdev_nvme_set_hotplug(false), 0);
	nvme_pcie_hotplug_lost(); /* hotplug is disabled */
	drop_machine(folder);
	drive_end();
}

static struct {
	unsigned warnings;
	char why[NVME_HEALTH_TEXT_MAX];
} health;

static void on_news(const struct bdev_nvme *c, enum bdev_nvme_news news, const struct nvme_trid *path, const char *why)
{
	if (news == BDEV_NVME_HEALTH) {
		health.warnings++;
		snprintf(health.why, sizeof(health.why), "%s", why);
	}
}

static bool has_warned(void *arg)
{
	return health.warnings != 0;
}

static bool has_seen_errors(void *count)
{
	return nvme->errors_seen == *(uint64_t *)count;
}

static void test_what_a_drive_tells_of_its_health_is_told(void)
{
	uint64_t count = 5;

	drive_begin_attached();
	memset(&health, 0, sizeof(health));
	bdev_nvme_observe(on_news);
	model.smart.critical_warning = 1 << 1;
	CU_ASSERT(model_event(&model, NVME_AER_SMART | 1 << 8 | NVME_LOG_LID_SMART << 16));
	CU_ASSERT(thread_control_wait(has_warned, NULL, WAIT_US));
	CU_ASSERT_PTR_NOT_NULL(strstr(health.why, "a temperature is beyond its threshold"));
	model.errors[0].error_count = htole64(count);
	CU_ASSERT(model_event(&model, NVME_AER_ERROR | 3 << 8 | NVME_LOG_LID_ERROR << 16));
	CU_ASSERT(thread_control_wait(has_seen_errors, &count, WAIT_US));
	CU_ASSERT_EQUAL(health.warnings, 1);
	bdev_nvme_observe(NULL);
	drive_end();
}

static void test_wrong_arguments_are_refused_with_the_reason(void)
{
	drive_begin_attached();
	struct bdev_nvme *first = nvme;
	struct bdev_nvme_attach a = attach_opts();
	CU_ASSERT_EQUAL(attach_with(&a), -EALREADY);
	CU_ASSERT_PTR_NOT_NULL(strstr(last_error, "Nvme0"));
	a.name = "";
	CU_ASSERT_EQUAL(attach_with(&a), -EINVAL);
	a.name = "a";
	a.num_io_queues = 0;
	CU_ASSERT_EQUAL(attach_with(&a), -EINVAL);
	a = attach_opts();
	a.name = "a";
	a.ctrlr_loss_timeout_sec = -2;
	CU_ASSERT_EQUAL(attach_with(&a), -EINVAL);
	a.ctrlr_loss_timeout_sec = 10;
	CU_ASSERT_EQUAL(attach_with(&a), -EINVAL); /* no delay */
	CU_ASSERT_PTR_NOT_NULL(strstr(last_error, "reconnect_delay_sec 0"));
	a.reconnect_delay_sec = 11;
	CU_ASSERT_EQUAL(attach_with(&a), -EINVAL);
	a.reconnect_delay_sec = 2;
	a.fast_io_fail_timeout_sec = 1;
	CU_ASSERT_EQUAL(attach_with(&a), -EINVAL);
	a.ctrlr_loss_timeout_sec = 0;
	CU_ASSERT_EQUAL(attach_with(&a), -EINVAL);
	struct bdev_nvme_options o;
	bdev_nvme_get_options(&o);
	CU_ASSERT_EQUAL(bdev_nvme_set_options(&o, last_error), -EBUSY);
	CU_ASSERT_PTR_NOT_NULL(strstr(last_error, "Nvme0"));
	nvme = first;
	drive_end();
}

static void test_controller_that_does_not_come_up_is_an_error(void)
{
	drive_begin();
	model.refuse_enable = true;
	struct bdev_nvme_attach a = attach_opts();
	CU_ASSERT_EQUAL(attach_with(&a), -EIO);
	CU_ASSERT_PTR_NOT_NULL(strstr(last_error, "wait for ready"));
	CU_ASSERT_PTR_NULL(bdev_nvme_next(NULL));
	drive_end();
}

static void test_too_many_namespaces_are_refused(void)
{
	drive_begin();
	struct bdev_nvme_attach a = attach_opts();
	a.max_bdevs = 1;
	CU_ASSERT_EQUAL(attach_with(&a), -EIO);
	CU_ASSERT_PTR_NOT_NULL(strstr(last_error, "max_bdevs is 1"));
	CU_ASSERT_PTR_NULL(bdev_find("Nvme0n1"));
	drive_end();
}

/* --- I/O --- */

static void test_data_written_on_one_thread_is_read_on_another(void)
{
	struct user u, v;

	drive_begin_attached();
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&v, "Nvme0n1", false, fixture_thread(1)), 0);
	fill(buffer, BUFFER, 1);
	/* 512 KiB: four times what the controller takes at a time */
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, buffer, 100, 1024), 0);
	memset(other, 0, BUFFER);
	CU_ASSERT_EQUAL(user_io(&v, BDEV_IO_READ, other, 100, 1024), 0);
	CU_ASSERT_EQUAL(memcmp(buffer, other, 1024 * 512), 0);
	CU_ASSERT_EQUAL(memcmp(buffer, model.ns[0].data + 100 * 512, 1024 * 512), 0);
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_write], 4);
	user_close(&u);
	user_close(&v);
	drive_end();
}

static void test_other_commands_reach_the_controller(void)
{
	struct user u;

	drive_begin_attached();
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n2", true, fixture_thread(2)), 0);
	fill(buffer, 8 * 4096, 9);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, buffer, 0, 8), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_FLUSH, NULL, 0, 1024), 0);
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_flush], 1);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_COMPARE, buffer, 0, 8), 0);
	buffer[5] ^= 1;
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_COMPARE, buffer, 0, 8) & 0x7ff, NVME_ST(MEDIA, COMPARE_FAILED));
	buffer[5] ^= 1;
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE_ZEROES, NULL, 1, 2), 0);
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_write_zeroes], 1);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_UNMAP, NULL, 5, 1), 0);
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_dsm], 1);
	memset(buffer + 4096, 0, 2 * 4096);
	memset(buffer + 5 * 4096, 0, 4096);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, other, 0, 8), 0);
	CU_ASSERT_EQUAL(memcmp(other, buffer, 8 * 4096), 0);
	user_close(&u);
	drive_end();
}

static uint16_t copy(struct user *u, uint64_t from, uint64_t to, uint64_t num)
{
	struct request *r = request_new(u);

	bdev_io_set_copy(r->io, from, to, num);
	uint16_t status = request_run(r);
	request_free(r);
	return status;
}

static void test_copy_is_the_controllers_within_its_limits(void)
{
	struct user u;

	drive_begin_attached();
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	fill(model.ns[0].data, 1000 * 512, 9);
	CU_ASSERT_EQUAL(copy(&u, 100, 4000, 300), 0);
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_copy], 5); /* of 64 blocks at most */
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_read] + model.commands[nvme_cmd_write], 0);
	CU_ASSERT_EQUAL(memcmp(model.ns[0].data + 4000 * 512, model.ns[0].data + 100 * 512, 300 * 512), 0);
	user_close(&u);
	drive_end();
}

/* Copies that a controller cannot carry out are emulated by reads and writes. */
static void expect_emulated_copy(void)
{
	struct bdev_nvme_attach a = attach_opts();
	struct user u;

	CU_ASSERT_EQUAL_FATAL(attach_with(&a), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	fill(model.ns[0].data, 1000 * 512, 9);
	CU_ASSERT_EQUAL(copy(&u, 100, 4000, 300), 0);
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_copy], 0);
	CU_ASSERT_TRUE(model.commands[nvme_cmd_read] >= 2 &&
		       model.commands[nvme_cmd_read] == model.commands[nvme_cmd_write]);
	CU_ASSERT_EQUAL(memcmp(model.ns[0].data + 4000 * 512, model.ns[0].data + 100 * 512, 300 * 512), 0);
	user_close(&u);
	drive_end();
}

static void test_copy_is_read_and_written_where_the_controller_has_none(void)
{
	drive_begin();
	model.oncs &= (uint16_t)~NVME_CTRL_ONCS_COPY;
	expect_emulated_copy();
	drive_begin();
	model.ocfs = 2; /* not the format that the module uses */
	expect_emulated_copy();
	drive_begin();
	model.ns[0].mssrl = 0; /* no limits that make sense */
	expect_emulated_copy();
}

static void test_verify_and_uncorrectable_blocks_are_the_controllers(void)
{
	const uint16_t bad = NVME_ST_DNR(MEDIA, READ_ERROR);
	struct user u;

	drive_begin_attached();
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n2", true, fixture_thread(2)), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_VERIFY, NULL, 0, 1024), 0);
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_verify], 1024 / 32); /* as large as a transfer may be */
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE_UNCORRECTABLE, NULL, 500, 4), 0);
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_write_uncor], 1);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_VERIFY, NULL, 0, 1024), bad);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, other, 503, 1), bad);
	CU_ASSERT_EQUAL(copy(&u, 500, 0, 1), bad);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, buffer, 500, 4), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_VERIFY, NULL, 0, 1024), 0);
	user_close(&u);
	drive_end();
}

static void test_verify_reads_where_the_controller_has_none(void)
{
	struct bdev_nvme_attach a = attach_opts();
	struct user u;

	drive_begin();
	model.oncs &= (uint16_t) ~(NVME_CTRL_ONCS_VERIFY | NVME_CTRL_ONCS_WRITE_UNCORRECTABLE);
	CU_ASSERT_EQUAL_FATAL(attach_with(&a), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_VERIFY, NULL, 0, 1024), 0);
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_verify], 0);
	CU_ASSERT_TRUE(model.commands[nvme_cmd_read] >= 4);
	CU_ASSERT_FALSE(bdev_io_type_supported(bdev_find("Nvme0n1"), BDEV_IO_WRITE_UNCORRECTABLE));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE_UNCORRECTABLE, NULL, 0, 1), NVME_ST_DNR(GENERIC, INVALID_OPCODE));
	user_close(&u);
	drive_end();
}

static uint16_t compare_and_write(struct user *u, uint8_t *expected, uint8_t *new)
{
	struct request *r = request_new(u);
	struct iovec compare = {expected, 512}, write = {new, 512};

	bdev_io_set_rw(r->io, BDEV_IO_COMPARE_AND_WRITE, &write, 1, 7, 1);
	r->io->compare.iovs = &compare;
	r->io->compare.iovcnt = 1;
	uint16_t status = request_run(r);
	request_free(r);
	return status;
}

static void test_compare_and_write_is_fused(void)
{
	struct user u;

	drive_begin_attached();
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	fill(buffer, 512, 3);
	memset(other, 0, 512);
	CU_ASSERT_EQUAL(compare_and_write(&u, other, buffer), 0);
	CU_ASSERT_EQUAL(memcmp(model.ns[0].data + 7 * 512, buffer, 512), 0);
	CU_ASSERT_EQUAL(compare_and_write(&u, other, other) & 0x7ff, NVME_ST(MEDIA, COMPARE_FAILED));
	CU_ASSERT_EQUAL(memcmp(model.ns[0].data + 7 * 512, buffer, 512), 0);
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_compare], 2);
	user_close(&u);
	drive_end();
}

/* Both commands of a fused pair must be in the queue at once: without room the bdev layer does it. */
static void test_compare_and_write_needs_no_queue_of_two(void)
{
	struct bdev_nvme_attach a = attach_opts();
	struct user u;

	drive_begin();
	model.regs[NVME_REG_CAP] = 1; /* MQES, 0's based; one entry stays free */
	model.regs[NVME_REG_CAP + 1] = 0;
	CU_ASSERT_EQUAL_FATAL(attach_with(&a), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	fill(buffer, 512, 3);
	memset(other, 0, 512);
	CU_ASSERT_EQUAL(compare_and_write(&u, other, buffer), 0);
	CU_ASSERT_EQUAL(memcmp(model.ns[0].data + 7 * 512, buffer, 512), 0);
	CU_ASSERT_EQUAL(compare_and_write(&u, other, other) & 0x7ff, NVME_ST(MEDIA, COMPARE_FAILED));
	user_close(&u);
	drive_end();
}

static void test_more_io_than_a_queue_holds_waits(void)
{
	enum { N = 400 };
	struct user u;
	struct request *r[N];
	static struct iovec iovs[N];

	drive_begin_attached();
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	fill(buffer, N * 512, 5);
	for (unsigned i = 0; i < N; i++) { /* the first ones before the queue pair is connected */
		r[i] = request_new(&u);
		iovs[i] = (struct iovec){buffer + i * 512, 512};
		bdev_io_set_rw(r[i]->io, i % 50 == 49 ? BDEV_IO_COMPARE : BDEV_IO_WRITE, &iovs[i], 1,
			       i - (i % 50 == 49), 1);
		if (i % 50 == 49) {
			bdev_io_set_rw(r[i]->io, BDEV_IO_UNMAP, NULL, 0, 1000 + i, 1);
		}
		request_submit(r[i]);
	}
	for (unsigned i = 0; i < N; i++) {
		CU_ASSERT(request_wait(r[i]));
		CU_ASSERT_EQUAL(r[i]->status, 0);
		request_free(r[i]);
	}
	for (unsigned i = 0; i < N; i++) {
		CU_ASSERT(i % 50 == 49 || memcmp(model.ns[0].data + i * 512, buffer + i * 512, 512) == 0);
	}
	user_close(&u);
	drive_end();
}

static void test_resets_lose_and_spoil_nothing(void)
{
	drive_begin_attached();
	workers_start();
	for (unsigned i = 0; i < 5; i++) {
		workers_progress(40);
		CU_ASSERT_EQUAL(drive_reset(), 0);
	}
	workers_progress(40);
	workers_stop();
	CU_ASSERT_EQUAL(count_errors(), 0);
	CU_ASSERT_EQUAL(bdev_nvme_resets(nvme), 5);
	drive_end();
}

static void test_faults_of_the_controller_lose_nothing(void)
{
	static const enum model_fault_kind kinds[] = {MODEL_FAULT_CFS, MODEL_FAULT_HUGE_CID, MODEL_FAULT_CFS};

	drive_begin_attached();
	workers_start();
	for (unsigned i = 0; i < 3; i++) {
		workers_progress(40);
		unsigned resets = i + 1;
		set_fault(kinds[i], i == 2 ? nvme_cmd_write : nvme_cmd_read, 1, 0);
		CU_ASSERT(fixture_poll(is_up_after, &resets));
	}
	workers_progress(40);
	workers_stop();
	CU_ASSERT_EQUAL(count_errors(), 0);
	drive_end();
}

static void test_detach_under_io_ends_all_of_it(void)
{
	struct wait w = {0};

	drive_begin_attached();
	workers_start();
	workers_progress(40);
	bdev_nvme_detach(nvme, ended, &w);
	CU_ASSERT(fixture_poll(workers_told, NULL));
	workers_stop();
	CU_ASSERT(thread_control_wait(is_done, &w, WAIT_US));
	CU_ASSERT_EQUAL(w.rc, 0);
	CU_ASSERT_PTR_NULL(bdev_find("Nvme0n1"));
	nvme = NULL;
	struct bdev_nvme_attach a = attach_opts();
	CU_ASSERT_EQUAL(attach_with(&a), 0);
	CU_ASSERT_PTR_NOT_NULL(bdev_find("Nvme0n1"));
	drive_end();
}

static void test_removed_device_takes_its_bdevs_along(void)
{
	drive_begin_attached();
	workers_start();
	workers_progress(40);
	model_remove(&model);
	CU_ASSERT(fixture_poll(workers_told, NULL));
	workers_stop();
	nvme = NULL;
	drive_end();
	CU_ASSERT_PTR_NULL(bdev_find("Nvme0n1"));
}

/* --- Not connected --- */

static void test_io_fails_when_the_controller_is_given_up_and_works_after_a_reset(void)
{
	struct user u;

	drive_begin_attached();
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, buffer, 0, 1), 0);
	model.refuse_enable = true;
	CU_ASSERT_EQUAL(drive_reset(), -EIO);
	CU_ASSERT_STRING_EQUAL(bdev_nvme_state_name(nvme), "failed");
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buffer, 0, 1), NVME_ST(PATH, CTRL_PATH_ERROR));
	CU_ASSERT_EQUAL(drive_reset(), -EIO);
	model.refuse_enable = false;
	CU_ASSERT_EQUAL(drive_reset(), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buffer, 0, 1), 0);
	user_close(&u);
	drive_end();
}

static void test_controller_is_detached_after_the_loss_timeout(void)
{
	struct user u;
	struct bdev_nvme_attach a = attach_opts();

	drive_begin();
	a.ctrlr_loss_timeout_sec = 16; /* an attempt takes one second, by CAP.TO; a busy machine looks late */
	a.reconnect_delay_sec = 1;
	CU_ASSERT_EQUAL_FATAL(attach_with(&a), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	model.refuse_enable = true;
	CU_ASSERT_EQUAL(drive_reset(), -EIO);
	CU_ASSERT_STRING_EQUAL(bdev_nvme_state_name(nvme), "reconnect_is_delayed");
	/* waits until the controller is given up */
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buffer, 0, 1), NVME_ST(PATH, CTRL_PATH_ERROR));
	CU_ASSERT(fixture_poll(is_told, &u));
	user_close(&u);
	nvme = NULL;
	drive_end();
}

static void test_io_fails_after_fast_io_fail(void)
{
	struct user u;
	struct bdev_nvme_attach a = attach_opts();

	drive_begin();
	a.ctrlr_loss_timeout_sec = -1;
	a.reconnect_delay_sec = 1;
	a.fast_io_fail_timeout_sec = 1;
	CU_ASSERT_EQUAL_FATAL(attach_with(&a), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	model.refuse_enable = true;
	CU_ASSERT_EQUAL(drive_reset(), -EIO);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buffer, 0, 1), NVME_ST(PATH, CTRL_PATH_ERROR));
	model.refuse_enable = false;
	CU_ASSERT(fixture_poll(is_up, NULL));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buffer, 0, 1), 0);
	user_close(&u);
	drive_end();
}

static void test_thread_without_a_queue_fails_until_one_is_free(void)
{
	struct user u[4], v;

	drive_begin();
	struct bdev_nvme_attach a = attach_opts();
	a.num_io_queues = 3;
	CU_ASSERT_EQUAL_FATAL(attach_with(&a), 0);
	for (unsigned i = 0; i < 3; i++) {
		CU_ASSERT_EQUAL_FATAL(user_open(&u[i], "Nvme0n1", true, fixture_thread(i)), 0);
		CU_ASSERT_EQUAL(user_io(&u[i], BDEV_IO_READ, buffer, 0, 1), 0);
	}
	CU_ASSERT_EQUAL_FATAL(user_open(&v, "Nvme0n1", true, fixture_thread(3)), 0);
	CU_ASSERT_EQUAL(user_io(&v, BDEV_IO_READ, buffer, 0, 1), NVME_ST(PATH, CTRL_PATH_ERROR));
	user_close(&u[1]);
	uint16_t status;
	do { /* it ends: user_io() has a deadline, and the queue is offered at once */
		status = user_io(&v, BDEV_IO_READ, buffer, 0, 1);
	} while (status == NVME_ST(PATH, CTRL_PATH_ERROR));
	CU_ASSERT_EQUAL(status, 0);
	user_close(&u[0]);
	user_close(&u[2]);
	user_close(&v);
	drive_end();
}

/* --- Timeouts, aborts, resets of a bdev --- */

static void set_timeout(enum bdev_nvme_timeout_action action)
{
	struct bdev_nvme_options o;

	bdev_nvme_default_options(&o);
	/* the answer to an Abort must arrive within this time, and resets are to follow soon */
	o.timeout_us = action == BDEV_NVME_TIMEOUT_ABORT ? 1000000 : 40000;
	o.action_on_timeout = action;
	CU_ASSERT_EQUAL(bdev_nvme_set_options(&o, last_error), 0);
}

static uint16_t read_with_fault(enum bdev_nvme_timeout_action action, enum model_fault_kind kind, unsigned resets)
{
	struct user u;
	struct bdev_nvme_attach a = attach_opts();

	drive_begin();
	set_timeout(action);
	CU_ASSERT_EQUAL_FATAL(attach_with(&a), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	set_fault(kind, nvme_cmd_read, 1, 0);
	uint16_t status = user_io(&u, BDEV_IO_READ, buffer, 0, 1);
	CU_ASSERT_EQUAL(bdev_nvme_resets(nvme), resets);
	user_close(&u);
	drive_end();
	return status;
}

static void test_io_without_an_answer_is_aborted(void)
{
	CU_ASSERT_EQUAL(read_with_fault(BDEV_NVME_TIMEOUT_ABORT, MODEL_FAULT_NO_ANSWER, 0),
			NVME_ST(GENERIC, ABORT_REQ));
}

static void test_io_that_an_abort_does_not_end_is_done_after_a_reset(void)
{
	CU_ASSERT_EQUAL(read_with_fault(BDEV_NVME_TIMEOUT_ABORT, MODEL_FAULT_DEAF, 1), 0);
}

static void test_io_without_an_answer_resets_if_so_wanted(void)
{
	CU_ASSERT_EQUAL(read_with_fault(BDEV_NVME_TIMEOUT_RESET, MODEL_FAULT_NO_ANSWER, 1), 0);
	CU_ASSERT_EQUAL(model.admin_commands[nvme_admin_abort_cmd], 0);
}

static void test_abort_ends_its_target(void)
{
	struct user u;

	drive_begin_attached();
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	set_fault(MODEL_FAULT_NO_ANSWER, nvme_cmd_read, 1, 0);
	struct request *r = request_new(&u), *a = request_new(&u);
	struct iovec iov = {buffer, 512};
	bdev_io_set_rw(r->io, BDEV_IO_READ, &iov, 1, 0, 1);
	request_submit(r);
	CU_ASSERT(fixture_poll(model_holds, &(unsigned){1}));
	bdev_io_set_rw(a->io, BDEV_IO_ABORT, NULL, 0, 0, 0);
	a->io->abort.target = r->io;
	CU_ASSERT_EQUAL(request_run(a), 0);
	CU_ASSERT_EQUAL(a->cdw0, 0);
	CU_ASSERT(request_wait(r));
	CU_ASSERT_EQUAL(r->status, NVME_ST(GENERIC, ABORT_REQ));
	CU_ASSERT_EQUAL(request_run(a), 0); /* the target has ended: nothing is aborted */
	CU_ASSERT_EQUAL(a->cdw0, 1);
	request_free(r);
	request_free(a);
	user_close(&u);
	drive_end();
}

static void test_reset_of_a_bdev_ends_its_io_and_no_others(void)
{
	struct user u, v;

	drive_begin_attached();
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&v, "Nvme0n2", true, fixture_thread(0)), 0);
	set_fault(MODEL_FAULT_NO_ANSWER, nvme_cmd_read, 2, 0);
	struct request *r = request_new(&u), *s = request_new(&v), *reset_request = request_new(&u);
	struct iovec iov = {buffer, 512}, iov2 = {other, 4096};
	bdev_io_set_rw(r->io, BDEV_IO_READ, &iov, 1, 0, 1);
	bdev_io_set_rw(s->io, BDEV_IO_READ, &iov2, 1, 0, 1);
	request_submit(r);
	request_submit(s);
	CU_ASSERT(fixture_poll(model_holds, &(unsigned){2}));
	bdev_io_set_rw(reset_request->io, BDEV_IO_RESET, NULL, 0, 0, 0);
	CU_ASSERT_EQUAL(request_run(reset_request), 0);
	CU_ASSERT(request_wait(r));
	CU_ASSERT_EQUAL(r->status, NVME_ST(GENERIC, ABORT_REQ));
	CU_ASSERT(request_wait(s));
	CU_ASSERT_EQUAL(s->status, 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buffer, 0, 1), 0);
	request_free(r);
	request_free(s);
	request_free(reset_request);
	user_close(&u);
	user_close(&v);
	drive_end();
}

/* --- Namespaces are added and removed --- */

static void announce_change(void)
{
	/* notice, changed namespace list, log page 4 (Base figure 146) */
	CU_ASSERT(model_event(&model, 2 | 0 << 8 | 4 << 16));
}

static bool is_resized(void *user)
{
	return ((struct user *)user)->resizes == 1;
}

static bool is_there(void *name)
{
	return bdev_find(name) != NULL;
}

static bool is_of_4096(void *name)
{
	return is_there(name) && bdev_block_size(bdev_find(name)) == 4096;
}

static void test_namespaces_come_go_and_grow(void)
{
	struct user u, v;

	drive_begin_attached();
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&v, "Nvme0n2", true, fixture_thread(0)), 0);
	model.ns[1].blocks /= 2;
	announce_change();
	CU_ASSERT(fixture_poll(is_resized, &v));
	CU_ASSERT_EQUAL(bdev_num_blocks(bdev_find("Nvme0n2")), model.ns[1].blocks);
	model.ns[0].active = false;
	announce_change();
	CU_ASSERT(fixture_poll(is_told, &u));
	user_close(&u);
	CU_ASSERT_EQUAL(v.removes, 0);
	CU_ASSERT_EQUAL(user_io(&v, BDEV_IO_READ, buffer, 0, 1), 0);
	CU_ASSERT_PTR_NULL(bdev_find("Nvme0n1"));
	model.ns[0].active = true;
	announce_change();
	CU_ASSERT(fixture_poll(is_there, "Nvme0n1"));
	user_close(&v);
	drive_end();
}

static void test_namespace_with_other_blocks_is_another_bdev(void)
{
	struct user u;

	drive_begin_attached();
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	u.close_on_remove = true;
	model.ns[0].block_shift = 12;
	model.ns[0].blocks /= 8;
	announce_change();
	CU_ASSERT(fixture_poll(is_of_4096, "Nvme0n1"));
	CU_ASSERT_EQUAL(u.removes, 1);
	drive_end();
}

static void expect_option_refused(const struct bdev_nvme_options *o, const char *why)
{
	char error[BDEV_ERROR_MAX] = "";

	CU_ASSERT_EQUAL(bdev_nvme_set_options(o, error), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, why));
}

static void test_timeouts_that_do_not_fit_are_refused(void)
{
	static const uint64_t bad_us[] = {1, 999, BDEV_NVME_TIMEOUT_MAX_US + 1, UINT64_C(1) << 42, UINT64_MAX};
	struct bdev_nvme_options o;
	char error[BDEV_ERROR_MAX];

	for (unsigned i = 0; i < sizeof(bad_us) / sizeof(bad_us[0]); i++) {
		bdev_nvme_default_options(&o);
		o.timeout_admin_us = bad_us[i];
		expect_option_refused(&o, "must be 0 or 1000 to 2147483647000");
	}
	bdev_nvme_default_options(&o);
	o.timeout_us = BDEV_NVME_TIMEOUT_MAX_US + 1;
	expect_option_refused(&o, "timeout_us 2147483647001: must be 0 to 2147483647000");
	o.timeout_us = 0; /* clients whose default of action_on_timeout is none disable it so */
	CU_ASSERT_EQUAL(bdev_nvme_set_options(&o, error), 0);
	o.timeout_us = o.timeout_admin_us = BDEV_NVME_TIMEOUT_MAX_US;
	CU_ASSERT_EQUAL(bdev_nvme_set_options(&o, error), 0);
	bdev_nvme_default_options(&o);
	CU_ASSERT_EQUAL(bdev_nvme_set_options(&o, error), 0);
}

static const struct unit_test tests[] = {
	UNIT(test_each_namespace_becomes_a_bdev),
	UNIT(test_namespaces_with_the_same_nguid_are_known_by_their_uuids),
	UNIT(test_namespace_whose_blocks_do_not_fit_into_a_transfer_is_left_out),
	UNIT(test_io_is_split_at_a_boundary_that_is_no_power_of_two),
	UNIT(test_drive_that_is_plugged_in_is_attached_if_so_wanted),
	UNIT(test_drive_that_is_there_already_is_attached_if_so_wanted),
	UNIT(test_drive_whose_news_was_lost_is_attached_if_so_wanted),
	UNIT(test_what_a_drive_tells_of_its_health_is_told),
	UNIT(test_wrong_arguments_are_refused_with_the_reason),
	UNIT(test_controller_that_does_not_come_up_is_an_error),
	UNIT(test_too_many_namespaces_are_refused),
	UNIT(test_data_written_on_one_thread_is_read_on_another),
	UNIT(test_other_commands_reach_the_controller),
	UNIT(test_copy_is_the_controllers_within_its_limits),
	UNIT(test_copy_is_read_and_written_where_the_controller_has_none),
	UNIT(test_verify_and_uncorrectable_blocks_are_the_controllers),
	UNIT(test_verify_reads_where_the_controller_has_none),
	UNIT(test_compare_and_write_is_fused),
	UNIT(test_compare_and_write_needs_no_queue_of_two),
	UNIT(test_more_io_than_a_queue_holds_waits),
	UNIT(test_resets_lose_and_spoil_nothing),
	UNIT(test_faults_of_the_controller_lose_nothing),
	UNIT(test_detach_under_io_ends_all_of_it),
	UNIT(test_removed_device_takes_its_bdevs_along),
	UNIT(test_io_fails_when_the_controller_is_given_up_and_works_after_a_reset),
	UNIT(test_controller_is_detached_after_the_loss_timeout),
	UNIT(test_io_fails_after_fast_io_fail),
	UNIT(test_thread_without_a_queue_fails_until_one_is_free),
	UNIT(test_io_without_an_answer_is_aborted),
	UNIT(test_io_that_an_abort_does_not_end_is_done_after_a_reset),
	UNIT(test_io_without_an_answer_resets_if_so_wanted),
	UNIT(test_abort_ends_its_target),
	UNIT(test_reset_of_a_bdev_ends_its_io_and_no_others),
	UNIT(test_namespaces_come_go_and_grow),
	UNIT(test_namespace_with_other_blocks_is_another_bdev),
	UNIT(test_timeouts_that_do_not_fit_are_refused),
	UNIT_END,
};
UNIT_MAIN("bdev_nvme", tests, drive_setup, drive_teardown)
