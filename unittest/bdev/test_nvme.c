/* SPDX-License-Identifier: BSD-3-Clause */
/* Bdevs on an NVMe controller: the driver and the bdev layer are the real ones, the controller is a model, run by a poller of the
 * control thread while users' threads submit I/O. */
#include <errno.h>

#include "bdev/bdev_nvme.h"
#include "env_dpdk/env.h"
#include "unittest/bdev/fixture.h"
#include "unittest/nvme/model.h"

#define BUFFER (1u << 20)

static struct model model;
static struct poller *model_poller;
static uint8_t *buffer, *other; /* DMA memory, BUFFER bytes each */
static struct bdev_nvme *nvme;
static char last_error[BDEV_ERROR_MAX];

/* --- A controller, attached --- */

static int run_model(void *ctx)
{
	model_step(&model);
	return POLLER_BUSY;
}

static int setup(void)
{
	int rc = fixture_start();

	pcie_set_border(&model_border);
	buffer = env_dma_zmalloc(BUFFER, 4096, -1);
	other = env_dma_zmalloc(BUFFER, 4096, -1);
	return rc;
}

static int teardown(void)
{
	env_dma_free(buffer);
	env_dma_free(other);
	return fixture_stop();
}

static void begin(void)
{
	struct bdev_nvme_options o;

	model_init(&model);
	model.ns[1].md_size = 0;
	model_current = &model;
	bdev_nvme_default_options(&o);
	CU_ASSERT_EQUAL(bdev_nvme_set_options(&o, last_error), 0);
	model_poller = poller_register(&(struct poller_opts){.name = "model", .fn = run_model, .fd = -1});
}

struct wait {
	bool done;
	int rc;
};

static bool is_done(void *arg)
{
	return ((struct wait *)arg)->done;
}

static void attached(void *arg, int rc, struct bdev_nvme *c, const char *error)
{
	*(struct wait *)arg = (struct wait){.done = true, .rc = rc};
	nvme = c;
	snprintf(last_error, sizeof(last_error), "%s", error ? error : "");
}

static void ended(void *arg, int rc, const char *error)
{
	*(struct wait *)arg = (struct wait){.done = true, .rc = rc};
	snprintf(last_error, sizeof(last_error), "%s", error ? error : "");
}

static struct bdev_nvme_attach attach_opts(void)
{
	struct bdev_nvme_attach a;

	bdev_nvme_attach_default(&a);
	a.name = "Nvme0";
	a.trid = (struct nvme_trid){.trtype = NVME_TRTYPE_PCIE, .traddr = "0000:00:04.0"};
	return a;
}

static int attach_with(const struct bdev_nvme_attach *a)
{
	struct wait w = {0};

	bdev_nvme_attach(a, attached, &w);
	CU_ASSERT(thread_control_wait(is_done, &w, WAIT_US));
	return w.rc;
}

static void begin_attached(void)
{
	struct bdev_nvme_attach a = attach_opts();

	begin();
	CU_ASSERT_EQUAL_FATAL(attach_with(&a), 0);
}

static int detach(void)
{
	struct wait w = {0};

	bdev_nvme_detach(nvme, ended, &w);
	CU_ASSERT(thread_control_wait(is_done, &w, WAIT_US));
	nvme = NULL;
	return w.rc;
}

static int reset(void)
{
	struct wait w = {0};

	bdev_nvme_reset(nvme, ended, &w);
	CU_ASSERT(thread_control_wait(is_done, &w, WAIT_US));
	return w.rc;
}

static bool all_detached(void *arg)
{
	return bdev_nvme_next(NULL) == NULL;
}

static void end(void)
{
	if (bdev_nvme_next(NULL) != NULL && nvme != NULL) {
		CU_ASSERT_EQUAL(detach(), 0);
	}
	CU_ASSERT(thread_control_wait(all_detached, NULL, WAIT_US));
	poller_unregister(&model_poller);
	CU_ASSERT_STRING_EQUAL(model.violation, "");
	CU_ASSERT(!model.open);
	model_fini(&model);
	nvme = NULL;
}

static void set_fault(enum model_fault_kind kind, int opcode, unsigned count, uint16_t status)
{
	model.fault = (struct model_fault){.kind = kind, .qid = -1, .opcode = opcode, .count = count, .status = status};
}

static void fill(uint8_t *p, size_t len, uint8_t seed)
{
	for (size_t i = 0; i < len; i++) {
		p[i] = (uint8_t)(seed + i * 7 + (i >> 8));
	}
}

static bool model_holds(void *count)
{
	return model.num_held == *(unsigned *)count;
}

static bool is_told(void *user)
{
	return ((struct user *)user)->removes == 1;
}

static bool is_up(void *arg)
{
	return strcmp(bdev_nvme_state_name(nvme), "enabled") == 0;
}

/* Up, and down before that so often. */
static bool is_up_after(void *resets)
{
	return bdev_nvme_resets(nvme) >= *(unsigned *)resets && is_up(NULL);
}

static bool is_attached_by_itself(void *name)
{
	nvme = bdev_nvme_find(name);
	return nvme != NULL && is_up(NULL);
}

/* --- Attach and detach --- */

static void test_each_namespace_becomes_a_bdev(void)
{
	begin_attached();
	struct bdev *a = bdev_find("Nvme0n1"), *b = bdev_find("Nvme0n2");
	CU_ASSERT_FATAL(a != NULL && b != NULL);
	CU_ASSERT_STRING_EQUAL(bdev_product_name(a), "NVMe disk");
	CU_ASSERT_EQUAL(bdev_block_size(a), 512);
	CU_ASSERT_EQUAL(bdev_num_blocks(a), model.ns[0].blocks);
	CU_ASSERT_EQUAL(bdev_block_size(b), 4096);
	CU_ASSERT_EQUAL(bdev_uuid(b)[15], 2);
	CU_ASSERT_PTR_EQUAL(bdev_nvme_bdev_next(nvme, NULL), a);
	CU_ASSERT_PTR_EQUAL(bdev_nvme_bdev_next(nvme, a), b);
	CU_ASSERT_PTR_NULL(bdev_nvme_bdev_next(nvme, b));
	CU_ASSERT_STRING_EQUAL(bdev_nvme_state_name(nvme), "enabled");
	CU_ASSERT_EQUAL(detach(), 0);
	CU_ASSERT_PTR_NULL(bdev_find("Nvme0n1"));
	CU_ASSERT_PTR_NULL(bdev_nvme_find("Nvme0"));
	end();
}

static void test_namespace_with_metadata_is_left_out(void)
{
	begin();
	model.ns[1].md_size = 16;
	struct bdev_nvme_attach a = attach_opts();
	CU_ASSERT_EQUAL_FATAL(attach_with(&a), 0);
	CU_ASSERT_PTR_NOT_NULL(bdev_find("Nvme0n1"));
	CU_ASSERT_PTR_NULL(bdev_find("Nvme0n2"));
	end();
}

static void test_drive_that_is_plugged_in_is_attached_if_so_wanted(void)
{
	begin();
	pcie_hotplug_arrived("0000:00:04.0");
	CU_ASSERT_PTR_NULL(bdev_nvme_next(NULL)); /* nobody wants it */
	CU_ASSERT_EQUAL_FATAL(bdev_nvme_set_hotplug(true), 0);
	CU_ASSERT(bdev_nvme_hotplug());
	pcie_hotplug_arrived("0000:00:04.0");
	CU_ASSERT_FATAL(thread_control_wait(is_attached_by_itself, "HotInNvme0", WAIT_US));
	CU_ASSERT_PTR_NOT_NULL(bdev_find("HotInNvme0n1"));
	pcie_hotplug_arrived("0000:00:04.0"); /* told twice */
	CU_ASSERT_PTR_NULL(bdev_nvme_find("HotInNvme1"));
	model_remove(&model);
	CU_ASSERT(thread_control_wait(all_detached, NULL, WAIT_US));
	CU_ASSERT_EQUAL(bdev_nvme_set_hotplug(false), 0);
	pcie_hotplug_arrived("0000:00:04.0");
	CU_ASSERT_PTR_NULL(bdev_nvme_next(NULL));
	CU_ASSERT(!bdev_nvme_hotplug());
	nvme = NULL;
	end();
}

static void test_protection_information_is_the_controllers(void)
{
	struct bdev_nvme_attach a = attach_opts();
	struct user u;

	begin();
	model.ns[1].pi = true;
	model.ns[1].md_size = 8;
	memset(model.ns[1].md, 0, model.ns[1].blocks * 8); /* there is room for 16 */
	a.prchk_guard = a.prchk_reftag = true;
	CU_ASSERT_EQUAL_FATAL(attach_with(&a), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n2", true, fixture_thread(0)), 0);
	fill(buffer, 8 * 4096, 3);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, buffer, 16, 8), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE_ZEROES, NULL, 24, 1), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, other, 16, 9), 0);
	CU_ASSERT_EQUAL(memcmp(buffer, other, 8 * 4096), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_COMPARE, buffer, 16, 8), 0);
	model.ns[1].data[20 * 4096 + 7] ^= 1;
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, other, 16, 4), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, other, 20, 1), NVME_ST(MEDIA, GUARD_CHECK));
	model.ns[1].data[20 * 4096 + 7] ^= 1;
	memcpy(model.ns[1].data + 17 * 4096, model.ns[1].data + 16 * 4096, 4096); /* the right block in the wrong place */
	memcpy(model.ns[1].md + 17 * 8, model.ns[1].md + 16 * 8, 8);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, other, 17, 1), NVME_ST(MEDIA, REFTAG_CHECK));
	user_close(&u);
	end();
}

static void test_wrong_arguments_are_refused_with_the_reason(void)
{
	begin_attached();
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
	end();
}

static void test_controller_that_does_not_come_up_is_an_error(void)
{
	begin();
	model.refuse_enable = true;
	struct bdev_nvme_attach a = attach_opts();
	CU_ASSERT_EQUAL(attach_with(&a), -EIO);
	CU_ASSERT_PTR_NOT_NULL(strstr(last_error, "wait for ready"));
	CU_ASSERT_PTR_NULL(bdev_nvme_next(NULL));
	end();
}

static void test_too_many_namespaces_are_refused(void)
{
	begin();
	struct bdev_nvme_attach a = attach_opts();
	a.max_bdevs = 1;
	CU_ASSERT_EQUAL(attach_with(&a), -EIO);
	CU_ASSERT_PTR_NOT_NULL(strstr(last_error, "max_bdevs is 1"));
	CU_ASSERT_PTR_NULL(bdev_find("Nvme0n1"));
	end();
}

/* --- I/O --- */

static void test_data_written_on_one_thread_is_read_on_another(void)
{
	struct user u, v;

	begin_attached();
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
	end();
}

static void test_other_commands_reach_the_controller(void)
{
	struct user u;

	begin_attached();
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
	end();
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

	begin_attached();
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	fill(model.ns[0].data, 1000 * 512, 9);
	CU_ASSERT_EQUAL(copy(&u, 100, 4000, 300), 0);
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_copy], 5); /* of 64 blocks at most */
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_read] + model.commands[nvme_cmd_write], 0);
	CU_ASSERT_EQUAL(memcmp(model.ns[0].data + 4000 * 512, model.ns[0].data + 100 * 512, 300 * 512), 0);
	user_close(&u);
	end();
}

/* Copies that a controller cannot do: by reads and writes. */
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
	end();
}

static void test_copy_is_read_and_written_where_the_controller_has_none(void)
{
	begin();
	model.oncs &= (uint16_t)~NVME_CTRL_ONCS_COPY;
	expect_emulated_copy();
	begin();
	model.ocfs = 2; /* not the format that is ours */
	expect_emulated_copy();
	begin();
	model.ns[0].mssrl = 0; /* no limits that make sense */
	expect_emulated_copy();
}

static void test_verify_and_uncorrectable_blocks_are_the_controllers(void)
{
	const uint16_t bad = NVME_ST_DNR(MEDIA, READ_ERROR);
	struct user u;

	begin_attached();
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n2", true, fixture_thread(2)), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_VERIFY, NULL, 0, 1024), 0);
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_verify], 1024 / 32); /* as much as a transfer may have */
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE_UNCORRECTABLE, NULL, 500, 4), 0);
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_write_uncor], 1);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_VERIFY, NULL, 0, 1024), bad);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, other, 503, 1), bad);
	CU_ASSERT_EQUAL(copy(&u, 500, 0, 1), bad);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, buffer, 500, 4), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_VERIFY, NULL, 0, 1024), 0);
	user_close(&u);
	end();
}

static void test_verify_reads_where_the_controller_has_none(void)
{
	struct bdev_nvme_attach a = attach_opts();
	struct user u;

	begin();
	model.oncs &= (uint16_t) ~(NVME_CTRL_ONCS_VERIFY | NVME_CTRL_ONCS_WRITE_UNCORRECTABLE);
	CU_ASSERT_EQUAL_FATAL(attach_with(&a), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_VERIFY, NULL, 0, 1024), 0);
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_verify], 0);
	CU_ASSERT_TRUE(model.commands[nvme_cmd_read] >= 4);
	CU_ASSERT_FALSE(bdev_io_type_supported(bdev_find("Nvme0n1"), BDEV_IO_WRITE_UNCORRECTABLE));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE_UNCORRECTABLE, NULL, 0, 1),
			NVME_ST_DNR(GENERIC, INVALID_OPCODE));
	user_close(&u);
	end();
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

	begin_attached();
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	fill(buffer, 512, 3);
	memset(other, 0, 512);
	CU_ASSERT_EQUAL(compare_and_write(&u, other, buffer), 0);
	CU_ASSERT_EQUAL(memcmp(model.ns[0].data + 7 * 512, buffer, 512), 0);
	CU_ASSERT_EQUAL(compare_and_write(&u, other, other) & 0x7ff, NVME_ST(MEDIA, COMPARE_FAILED));
	CU_ASSERT_EQUAL(memcmp(model.ns[0].data + 7 * 512, buffer, 512), 0);
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_compare], 2);
	user_close(&u);
	end();
}

static void test_more_io_than_a_queue_holds_waits(void)
{
	enum { N = 400 };
	struct user u;
	struct request *r[N];
	static struct iovec iovs[N];

	begin_attached();
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	fill(buffer, N * 512, 5);
	for (unsigned i = 0; i < N; i++) { /* the first ones before the queue pair is connected */
		r[i] = request_new(&u);
		iovs[i] = (struct iovec){buffer + i * 512, 512};
		bdev_io_set_rw(r[i]->io, i % 50 == 49 ? BDEV_IO_COMPARE : BDEV_IO_WRITE, &iovs[i], 1, i - (i % 50 == 49), 1);
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
	end();
}

/* --- Threads that verify what they read, while things happen --- */

#define SLOTS 8

struct slot {
	struct worker *w;
	struct bdev_io *io;
	struct iovec iov;
	uint64_t lba;
	uint32_t generation;
	bool reading;
};

struct worker {
	struct user u;
	struct slot slots[SLOTS];
	bool stop; /* atomic */
	atomic_uint outstanding, done, errors, path_errors, miscompares;
};

static void slot_next(struct slot *s)
{
	s->reading = !s->reading && s->generation != 0;
	if (s->reading) {
		memset(s->iov.iov_base, 0xee, s->iov.iov_len);
	} else {
		fill(s->iov.iov_base, s->iov.iov_len, (uint8_t)(++s->generation * 13 + s->lba));
	}
	bdev_io_set_rw(s->io, s->reading ? BDEV_IO_READ : BDEV_IO_WRITE, &s->iov, 1, s->lba, 8);
	bdev_submit(s->io);
}

static bool slot_is_right(const struct slot *s)
{
	uint8_t expected[4096];

	fill(expected, sizeof(expected), (uint8_t)(s->generation * 13 + s->lba));
	return memcmp(s->iov.iov_base, expected, sizeof(expected)) == 0;
}

static void slot_done(struct bdev_io *io, void *arg)
{
	struct slot *s = arg;
	struct worker *w = s->w;

	atomic_fetch_add(&w->done, 1);
	if (io->status != 0) {
		atomic_fetch_add(io->status == NVME_ST(PATH, CTRL_PATH_ERROR) ? &w->path_errors : &w->errors, 1);
		s->generation = 0; /* whether it was written is unknown */
	} else if (s->reading && !slot_is_right(s)) {
		atomic_fetch_add(&w->miscompares, 1);
	}
	if (__atomic_load_n(&w->stop, __ATOMIC_RELAXED)) {
		atomic_fetch_sub(&w->outstanding, 1);
		fixture_wake();
	} else {
		slot_next(s);
	}
}

static void worker_go(void *arg)
{
	struct worker *w = arg;

	for (unsigned i = 0; i < SLOTS; i++) {
		slot_next(&w->slots[i]);
	}
}

static void worker_start(struct worker *w, unsigned n, uint8_t *memory)
{
	memset(w, 0, sizeof(*w));
	CU_ASSERT_EQUAL_FATAL(user_open(&w->u, "Nvme0n1", true, fixture_thread(n)), 0);
	for (unsigned i = 0; i < SLOTS; i++) {
		struct slot *s = &w->slots[i];
		*s = (struct slot){.w = w, .lba = (n * SLOTS + i) * 8, .iov = {memory + i * 4096, 4096}};
		s->io = aligned_alloc(64, bdev_io_size());
		memset(s->io, 0, bdev_io_size());
		bdev_io_init(s->io, w->u.desc, w->u.ch, slot_done, s);
	}
	w->outstanding = SLOTS;
	thread_call(w->u.thread, worker_go, w);
}

static bool worker_idle(void *arg)
{
	return atomic_load(&((struct worker *)arg)->outstanding) == 0;
}

static void worker_stop(struct worker *w)
{
	__atomic_store_n(&w->stop, true, __ATOMIC_RELAXED);
	CU_ASSERT_FATAL(fixture_poll(worker_idle, w));
	user_close(&w->u);
	for (unsigned i = 0; i < SLOTS; i++) {
		free(w->slots[i].io);
	}
	CU_ASSERT_EQUAL(w->miscompares, 0);
}

static struct worker workers[3];

static void workers_start(void)
{
	for (unsigned i = 0; i < 3; i++) {
		worker_start(&workers[i], i, buffer + i * SLOTS * 4096);
	}
}

static void workers_stop(void)
{
	for (unsigned i = 0; i < 3; i++) {
		worker_stop(&workers[i]);
	}
}

/* Until each has done n more. */
static void workers_progress(unsigned n)
{
	for (unsigned i = 0; i < 3; i++) {
		CU_ASSERT(fixture_wait_count(&workers[i].done, atomic_load(&workers[i].done) + n));
	}
}

static bool workers_told(void *arg)
{
	return is_told(&workers[0].u) && is_told(&workers[1].u) && is_told(&workers[2].u);
}

static unsigned count_errors(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < 3; i++) {
		n += workers[i].errors + workers[i].path_errors;
	}
	return n;
}

static void test_resets_lose_and_spoil_nothing(void)
{
	begin_attached();
	workers_start();
	for (unsigned i = 0; i < 5; i++) {
		workers_progress(40);
		CU_ASSERT_EQUAL(reset(), 0);
	}
	workers_progress(40);
	workers_stop();
	CU_ASSERT_EQUAL(count_errors(), 0);
	CU_ASSERT_EQUAL(bdev_nvme_resets(nvme), 5);
	end();
}

static void test_faults_of_the_controller_lose_nothing(void)
{
	static const enum model_fault_kind kinds[] = {MODEL_FAULT_CFS, MODEL_FAULT_HUGE_CID, MODEL_FAULT_CFS};

	begin_attached();
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
	end();
}

static void test_detach_under_io_ends_all_of_it(void)
{
	struct wait w = {0};

	begin_attached();
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
	end();
}

static void test_removed_device_takes_its_bdevs_along(void)
{
	begin_attached();
	workers_start();
	workers_progress(40);
	model_remove(&model);
	CU_ASSERT(fixture_poll(workers_told, NULL));
	workers_stop();
	nvme = NULL;
	end();
	CU_ASSERT_PTR_NULL(bdev_find("Nvme0n1"));
}

/* --- Away --- */

static void test_io_fails_when_the_controller_is_given_up_and_works_after_a_reset(void)
{
	struct user u;

	begin_attached();
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, buffer, 0, 1), 0);
	model.refuse_enable = true;
	CU_ASSERT_EQUAL(reset(), -EIO);
	CU_ASSERT_STRING_EQUAL(bdev_nvme_state_name(nvme), "failed");
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buffer, 0, 1), NVME_ST(PATH, CTRL_PATH_ERROR));
	CU_ASSERT_EQUAL(reset(), -EIO);
	model.refuse_enable = false;
	CU_ASSERT_EQUAL(reset(), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buffer, 0, 1), 0);
	user_close(&u);
	end();
}

static void test_controller_is_detached_after_the_loss_timeout(void)
{
	struct user u;
	struct bdev_nvme_attach a = attach_opts();

	begin();
	a.ctrlr_loss_timeout_sec = 2; /* an attempt takes one second, by CAP.TO */
	a.reconnect_delay_sec = 1;
	CU_ASSERT_EQUAL_FATAL(attach_with(&a), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	model.refuse_enable = true;
	CU_ASSERT_EQUAL(reset(), -EIO);
	CU_ASSERT_STRING_EQUAL(bdev_nvme_state_name(nvme), "reconnect_is_delayed");
	/* waits until there is no hope */
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buffer, 0, 1), NVME_ST(PATH, CTRL_PATH_ERROR));
	CU_ASSERT(fixture_poll(is_told, &u));
	user_close(&u);
	nvme = NULL;
	end();
}

static void test_io_fails_after_fast_io_fail(void)
{
	struct user u;
	struct bdev_nvme_attach a = attach_opts();

	begin();
	a.ctrlr_loss_timeout_sec = -1;
	a.reconnect_delay_sec = 1;
	a.fast_io_fail_timeout_sec = 1;
	CU_ASSERT_EQUAL_FATAL(attach_with(&a), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	model.refuse_enable = true;
	CU_ASSERT_EQUAL(reset(), -EIO);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buffer, 0, 1), NVME_ST(PATH, CTRL_PATH_ERROR));
	model.refuse_enable = false;
	CU_ASSERT(fixture_poll(is_up, NULL));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buffer, 0, 1), 0);
	user_close(&u);
	end();
}

static void test_thread_without_a_queue_fails_until_one_is_free(void)
{
	struct user u[4], v;

	begin();
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
	end();
}

/* --- Timeouts, aborts, resets of a bdev --- */

static void set_timeout(enum bdev_nvme_timeout_action action)
{
	struct bdev_nvme_options o;

	bdev_nvme_default_options(&o);
	/* an answer that an Abort brings must come within this time; the resets are to be soon */
	o.timeout_us = action == BDEV_NVME_TIMEOUT_ABORT ? 1000000 : 40000;
	o.action_on_timeout = action;
	CU_ASSERT_EQUAL(bdev_nvme_set_options(&o, last_error), 0);
}

static uint16_t read_with_fault(enum bdev_nvme_timeout_action action, enum model_fault_kind kind, unsigned resets)
{
	struct user u;
	struct bdev_nvme_attach a = attach_opts();

	begin();
	set_timeout(action);
	CU_ASSERT_EQUAL_FATAL(attach_with(&a), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	set_fault(kind, nvme_cmd_read, 1, 0);
	uint16_t status = user_io(&u, BDEV_IO_READ, buffer, 0, 1);
	CU_ASSERT_EQUAL(bdev_nvme_resets(nvme), resets);
	user_close(&u);
	end();
	return status;
}

static void test_io_without_an_answer_is_aborted(void)
{
	CU_ASSERT_EQUAL(read_with_fault(BDEV_NVME_TIMEOUT_ABORT, MODEL_FAULT_NO_ANSWER, 0), NVME_ST(GENERIC, ABORT_REQ));
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

	begin_attached();
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
	CU_ASSERT_EQUAL(request_run(a), 0); /* nothing there any more */
	CU_ASSERT_EQUAL(a->cdw0, 1);
	request_free(r);
	request_free(a);
	user_close(&u);
	end();
}

static void test_reset_of_a_bdev_ends_its_io_and_no_others(void)
{
	struct user u, v;

	begin_attached();
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
	end();
}

/* --- Namespaces come and go --- */

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

	begin_attached();
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
	end();
}

static void test_namespace_with_other_blocks_is_another_bdev(void)
{
	struct user u;

	begin_attached();
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	u.close_on_remove = true;
	model.ns[0].block_shift = 12;
	model.ns[0].blocks /= 8;
	announce_change();
	CU_ASSERT(fixture_poll(is_of_4096, "Nvme0n1"));
	CU_ASSERT_EQUAL(u.removes, 1);
	end();
}

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

	begin_attached();
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(1)), 0);
	struct nvme_sqe identify = {.opcode = nvme_admin_identify, .cdw10 = htole32(NVME_IDENTIFY_CNS_CTRL)};
	CU_ASSERT_EQUAL(pass(&u, BDEV_IO_NVME_ADMIN, &identify, 4096), 0);
	CU_ASSERT_EQUAL(memcmp(((struct nvme_id_ctrl *)buffer)->sn, "MODEL0", 6), 0);
	fill(buffer, 1024, 40);
	struct nvme_sqe write = {.opcode = nvme_cmd_write, .nsid = htole32(2), .cdw10 = htole32(9), .cdw12 = htole32(1)};
	CU_ASSERT_EQUAL(pass(&u, BDEV_IO_NVME_IO, &write, 1024), 0);
	CU_ASSERT_EQUAL(memcmp(model.ns[0].data + 9 * 512, buffer, 1024), 0); /* the bdev's namespace, not the one it names */
	CU_ASSERT_EQUAL(pass(&u, BDEV_IO_NVME_IO, &write, 512), NVME_ST_DNR(GENERIC, SGL_INVALID_DATA));
	struct nvme_sqe delete = {.opcode = nvme_admin_delete_sq, .cdw10 = htole32(1)};
	CU_ASSERT_EQUAL(pass(&u, BDEV_IO_NVME_ADMIN, &delete, 0), NVME_ST_DNR(GENERIC, INVALID_OPCODE));
	user_close(&u);
	end();
}

/* What comes with the command's pointers and flags is not the drive's to see. */
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
	/* more, or less, than there are buffers for */
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

	begin();
	CU_ASSERT_EQUAL_FATAL(attach_with(&a), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(1)), 0);
	expect_vendor(&u, BDEV_IO_NVME_IO, 0x80);
	expect_vendor(&u, BDEV_IO_NVME_ADMIN, 0xc0);
	user_close(&u);
	end();
	/* A drive that says nothing might write anywhere: only what moves no data is passed on. */
	begin();
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
	end();
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
	uint64_t ranges[2][4] = {{0, htole64(8), htole64(3), 0}, {0, htole64(20), htole64(0), 0}}; /* blocks 8 to 11, and 20 */
	struct bdev_nvme_raw raw = {.io = true, .cmd = {.opcode = nvme_cmd_verify, .nsid = htole32(1), .cdw12 = htole32(7)}};

	begin_attached();
	fill(model.ns[0].data, 32 * 512, 60);
	CU_ASSERT_EQUAL(send_raw(&raw), 0);
	raw.cmd.cdw11 = htole32(1); /* far beyond the end */
	CU_ASSERT_EQUAL(send_raw(&raw), NVME_ST_DNR(GENERIC, LBA_RANGE));
	raw = (struct bdev_nvme_raw){.io = true, .to_device = true, .data = ranges, .data_len = sizeof(ranges),
				     .cmd = {.opcode = nvme_cmd_copy, .nsid = htole32(1), .cdw10 = htole32(100), .cdw12 = htole32(1)}};
	CU_ASSERT_EQUAL(send_raw(&raw), 0);
	CU_ASSERT_EQUAL(memcmp(model.ns[0].data + 100 * 512, model.ns[0].data + 8 * 512, 4 * 512), 0);
	CU_ASSERT_EQUAL(memcmp(model.ns[0].data + 104 * 512, model.ns[0].data + 20 * 512, 512), 0);
	end();
}

static void test_raw_commands_carry_metadata(void)
{
	uint8_t md[2 * 16];
	struct bdev_nvme_raw raw = {.io = true, .to_device = true, .data = buffer, .data_len = 8192, .md = md, .md_len = sizeof(md),
				    .cmd = {.opcode = nvme_cmd_write, .nsid = htole32(2), .cdw10 = htole32(5), .cdw12 = htole32(1)}};
	struct bdev_nvme_attach a = attach_opts();

	begin();
	model.ns[1].md_size = 16; /* no bdev, but raw commands reach it */
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
	end();
}

static void test_raw_commands_go_through_either_queue(void)
{
	begin_attached();
	fill(model.ns[0].data, 1024, 60);
	struct bdev_nvme_raw raw = {.io = true, .data = buffer, .data_len = 1024,
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
	raw = (struct bdev_nvme_raw){.data = buffer, .data_len = 4096,
				     .cmd = {.opcode = nvme_admin_identify, .nsid = htole32(2), .cdw10 = htole32(NVME_IDENTIFY_CNS_NS)}};
	raw_result.done = false;
	bdev_nvme_send(nvme, &raw, raw_done, NULL);
	CU_ASSERT(thread_control_wait(raw_is_done, NULL, WAIT_US));
	CU_ASSERT_EQUAL(le64toh(((struct nvme_id_ns *)buffer)->nsze), model.ns[1].blocks);
	end();
}

static const struct unit_test tests[] = {
	UNIT(test_each_namespace_becomes_a_bdev),
	UNIT(test_namespace_with_metadata_is_left_out),
	UNIT(test_drive_that_is_plugged_in_is_attached_if_so_wanted),
	UNIT(test_protection_information_is_the_controllers),
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
	UNIT(test_commands_are_passed_through),
	UNIT(test_vendor_specific_commands_move_what_they_say),
	UNIT(test_raw_commands_verify_and_copy),
	UNIT(test_raw_commands_carry_metadata),
	UNIT(test_raw_commands_go_through_either_queue),
	UNIT_END,
};
UNIT_MAIN("bdev_nvme", tests, setup, teardown)
