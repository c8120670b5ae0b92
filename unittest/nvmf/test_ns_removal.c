/* SPDX-License-Identifier: BSD-3-Clause */
/* A namespace that is removed under I/O: what has not begun is answered with a path error, what has begun ends as
 * usual, hosts hear of it when it begins, and nothing keeps it from ending but the device. */
#include "bdev_modules/passthru/passthru.h"
#include "unittest/nvmf/loop.h"

#define BLOCK  512
#define BLOCKS 1024

#define PATH_ERROR NVME_ST(PATH, CTRL_PATH_ERROR)
#define ABORTED    NVME_ST(GENERIC, ABORT_REQ)
#define NO_SUCH_NS NVME_ST_DNR(GENERIC, INVALID_NS)

static struct loop_conn *admin, *io;
static struct testdev *dev;
static uint32_t nsid;
static uint8_t buf[128 * BLOCK], answer[4096];
static struct loop_wait gone;

static void attach(uint32_t more_types)
{
	memset(buf, 0x5a, sizeof(buf));
	dev = testdev_new("dev", BLOCK, BLOCKS);
	dev->bdev.io_types |= more_types;
	CU_ASSERT_EQUAL_FATAL(testdev_register(dev), 0);
	nsid = loop_add_ns("dev", 0);
	admin = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 600000);
	CU_ASSERT_PTR_NOT_NULL_FATAL(admin);
	io = loop_io_queue(admin, 1);
	CU_ASSERT_PTR_NOT_NULL_FATAL(io);
	gone = (struct loop_wait)LOOP_WAIT;
}

/* The namespace is gone. */
static void detach(void)
{
	loop_close(io);
	loop_close(admin);
	CU_ASSERT_TRUE(testdev_delete(dev));
}

static void release(uint16_t status)
{
	struct user u;

	CU_ASSERT_EQUAL_FATAL(user_open(&u, "dev", false, io->thread), 0);
	testdev_release(dev, &u, status);
	user_close(&u);
}

static void submit(struct loop_cmd *c, uint8_t opcode, uint64_t lba)
{
	loop_cmd_init(c, io, opcode, nsid);
	c->sqe.cdw10 = htole32((uint32_t)lba);
	loop_cmd_data(c, buf, BLOCK);
	loop_submit(c);
}

static void submit_pair(struct loop_cmd pair[2], uint64_t lba)
{
	static uint8_t none[BLOCK];

	loop_cmd_init(&pair[0], io, nvme_cmd_compare, nsid);
	pair[0].sqe.flags |= NVME_FUSE_FIRST;
	pair[0].sqe.cdw10 = htole32((uint32_t)lba);
	loop_cmd_data(&pair[0], none, BLOCK);
	loop_cmd_init(&pair[1], io, nvme_cmd_write, nsid);
	pair[1].sqe.flags |= NVME_FUSE_SECOND;
	pair[1].sqe.cdw10 = htole32((uint32_t)lba);
	loop_cmd_data(&pair[1], buf, BLOCK);
	loop_submit(&pair[0]);
	loop_submit(&pair[1]);
}

struct expected {
	const char *waits_for;
	size_t count;
};

static bool so_many_wait(void *arg)
{
	const struct expected *e = arg;
	struct nvmf_inflight *list;
	ssize_t n = nvmf_tgt_get_inflight(loop_tgt(), &list);
	size_t count = 0;

	for (ssize_t i = 0; i < n; i++) {
		count += list[i].waits_for != NULL && strcmp(list[i].waits_for, e->waits_for) == 0;
	}
	free(list);
	return count == e->count;
}

static void expect_waiting(const char *waits_for, size_t count)
{
	struct expected e = {waits_for, count};

	CU_ASSERT_TRUE_FATAL(fixture_poll(so_many_wait, &e));
}

static void remove_begin(void)
{
	nvmf_subsystem_remove_ns(loop_subsystem(), nsid, loop_done, &gone);
}

static void set_limit(uint64_t w_bytes_per_sec)
{
	CU_ASSERT_EQUAL(bdev_set_qos_limits(&dev->bdev, &(struct rate_limits){.w_bytes_per_sec = w_bytes_per_sec}), 0);
}

/* A write that exceeds the limit by so much that the next one waits for minutes. */
static void fill_limit(void)
{
	set_limit(BLOCK);
	CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_write, nsid, 0, 127, buf, sizeof(buf)), 0);
}

static bool was_written(uint64_t lba)
{
	return dev->memory[lba * BLOCK] == 0x5a;
}

static void test_what_waits_for_a_rate_limit_does_not_keep_the_namespace(void)
{
	struct loop_cmd waits[3], pair[2];

	attach(0);
	fill_limit();
	for (unsigned i = 0; i < 3; i++) {
		submit(&waits[i], nvme_cmd_write, 200 + i);
	}
	submit_pair(pair, 300);
	expect_waiting("wait_qos", 5);
	remove_begin();
	CU_ASSERT_EQUAL(loop_wait_for(&gone), 0);
	for (unsigned i = 0; i < 3; i++) {
		CU_ASSERT_EQUAL(loop_wait(&waits[i]), PATH_ERROR);
		CU_ASSERT_FALSE(was_written(200 + i));
	}
	CU_ASSERT_EQUAL(loop_wait(&pair[0]), PATH_ERROR);
	CU_ASSERT_EQUAL(loop_wait(&pair[1]), PATH_ERROR);
	CU_ASSERT_FALSE(was_written(300));
	CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_write, nsid, 0, 0, buf, BLOCK), NO_SUCH_NS);
	detach();
}

/* Its data come when the namespace is gone: it is not one that never had a namespace. */
static void test_write_whose_data_come_after_the_removal_is_taken_back(void)
{
	struct loop_cmd write, pair[2];

	attach(0);
	atomic_store(&loop_hold_data, true);
	submit(&write, nvme_cmd_write, 200);
	submit_pair(pair, 300);
	expect_waiting("data buffer", 3);
	atomic_store(&loop_hold_data, false);
	remove_begin();
	CU_ASSERT_EQUAL(loop_wait_for(&gone), 0);
	loop_release_data(io);
	CU_ASSERT_EQUAL(loop_wait(&write), PATH_ERROR);
	CU_ASSERT_EQUAL(loop_wait(&pair[0]), PATH_ERROR);
	CU_ASSERT_EQUAL(loop_wait(&pair[1]), PATH_ERROR);
	CU_ASSERT_FALSE(was_written(200));
	CU_ASSERT_FALSE(was_written(300));
	CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_write, nsid, 0, 0, buf, BLOCK), NO_SUCH_NS);
	detach();
}

/* Seen by its hosts, while the device still has a command. */
static void expect_hosts_have_heard(struct loop_cmd *aer)
{
	CU_ASSERT_EQUAL(loop_wait(aer), 0);
	CU_ASSERT_EQUAL(le32toh(aer->cqe.dw0) >> 16 & 0xff, NVME_LOG_LID_CHANGED_NS);
	CU_ASSERT_EQUAL(loop_get_log(admin, NVME_LOG_LID_CHANGED_NS, false, 0, answer, sizeof(answer)), 0);
	uint32_t changed;
	memcpy(&changed, answer, sizeof(changed));
	CU_ASSERT_EQUAL(le32toh(changed), nsid);
	CU_ASSERT_EQUAL(loop_identify(admin, NVME_IDENTIFY_CNS_NS_ACTIVE_LIST, nsid - 1, 0, answer), 0);
	memcpy(&changed, answer, sizeof(changed));
	CU_ASSERT_NOT_EQUAL(le32toh(changed), nsid);
	CU_ASSERT_EQUAL(loop_identify(admin, NVME_IDENTIFY_CNS_NS, nsid, 0, answer), 0);
	for (unsigned i = 0; i < sizeof(answer); i++) {
		if (answer[i] != 0) {
			CU_FAIL("an inactive namespace is described");
			break;
		}
	}
}

static void test_what_has_begun_ends_and_hosts_hear_of_it_at_once(void)
{
	struct loop_cmd begun, refused, late, aer;
	struct loop_conn *other;

	attach(0);
	dev->hold = true;
	dev->slots = 1;
	loop_cmd_init(&aer, admin, nvme_admin_async_event, 0);
	loop_submit(&aer);
	submit(&begun, nvme_cmd_write, 1);
	CU_ASSERT_TRUE_FATAL(fixture_wait_count(&dev->held, 1));
	submit(&refused, nvme_cmd_write, 2);
	expect_waiting("wait_nomem", 1);
	remove_begin();
	CU_ASSERT_EQUAL(loop_wait(&refused), PATH_ERROR);
	submit(&late, nvme_cmd_write, 3);
	CU_ASSERT_EQUAL(loop_wait(&late), PATH_ERROR);
	expect_hosts_have_heard(&aer);
	other = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 600000); /* a controller that is connected now */
	CU_ASSERT_PTR_NOT_NULL_FATAL(other);
	CU_ASSERT_EQUAL(loop_identify(other, NVME_IDENTIFY_CNS_NS, nsid, 0, answer), 0);
	CU_ASSERT_EQUAL(answer[0], 0);
	loop_close(other);
	CU_ASSERT_EQUAL(atomic_load(&gone.status), LOOP_PENDING);
	CU_ASSERT_FALSE(atomic_load(&begun.done));
	release(0);
	CU_ASSERT_EQUAL(loop_wait(&begun), 0);
	CU_ASSERT_EQUAL(loop_wait_for(&gone), 0);
	CU_ASSERT_TRUE(was_written(1));
	CU_ASSERT_FALSE(was_written(2) || was_written(3));
	detach();
}

/* The device may have carried out what it ends with Command Abort Requested: a host would do it twice. */
static void test_what_the_device_aborts_is_not_a_path_error(void)
{
	struct loop_cmd begun, pair[2];

	attach(1u << BDEV_IO_COMPARE_AND_WRITE);
	dev->hold = true;
	submit(&begun, nvme_cmd_write, 1);
	submit_pair(pair, 2);
	CU_ASSERT_TRUE_FATAL(fixture_wait_count(&dev->held, 2));
	remove_begin();
	release(ABORTED);
	CU_ASSERT_EQUAL(loop_wait(&begun), ABORTED);
	CU_ASSERT_EQUAL(loop_wait(&pair[0]), ABORTED);
	CU_ASSERT_EQUAL(loop_wait(&pair[1]), NVME_ST_DNR(GENERIC, FUSED_FAIL));
	CU_ASSERT_EQUAL(loop_wait_for(&gone), 0);
	detach();
}

/* The device may have carried out what was lost on the way to it: a host would repeat the pair after a path error, and
 * find its own blocks. */
static void test_a_pair_that_was_lost_below_is_not_repeated(void)
{
	for (unsigned emulated = 0; emulated < 2; emulated++) {
		struct loop_cmd pair[2];

		attach(emulated ? 0 : 1u << BDEV_IO_COMPARE_AND_WRITE);
		dev->hold = true;
		submit_pair(pair, 2);
		CU_ASSERT_TRUE_FATAL(fixture_wait_count(&dev->held, 1));
		if (emulated) {
			unsigned submitted = atomic_load(&dev->submitted);
			release(0); /* it has compared, and writes */
			CU_ASSERT_TRUE_FATAL(fixture_wait_count(&dev->submitted, submitted + 1));
		}
		release(PATH_ERROR);
		CU_ASSERT_EQUAL(loop_wait(&pair[0]), NVME_ST_DNR(GENERIC, INTERNAL));
		CU_ASSERT_EQUAL(loop_wait(&pair[1]), NVME_ST_DNR(GENERIC, FUSED_FAIL));
		loop_remove_ns(nsid);
		detach();
	}
}

/* As a bdev that another process owns: a host is to repeat the pair there. */
static void test_a_pair_that_the_bdev_has_not_begun_is_repeated_elsewhere(void)
{
	for (unsigned emulated = 0; emulated < 2; emulated++) {
		struct loop_cmd pair[2];

		attach(emulated ? 0 : 1u << BDEV_IO_COMPARE_AND_WRITE);
		dev->untouched_status = PATH_ERROR;
		submit_pair(pair, 2);
		CU_ASSERT_EQUAL(loop_wait(&pair[0]), PATH_ERROR);
		CU_ASSERT_EQUAL(loop_wait(&pair[1]), PATH_ERROR);
		dev->untouched_status = 0;
		loop_remove_ns(nsid);
		detach();
	}
}

static uint16_t status_at_hold; /* of a command that comes just before the views hold the namespace */

unsigned __real_nvmf_views_hold_ns_for_removal(struct nvmf_subsystem *s, uint32_t number);
unsigned __wrap_nvmf_views_hold_ns_for_removal(struct nvmf_subsystem *s, uint32_t number);
unsigned __wrap_nvmf_views_hold_ns_for_removal(struct nvmf_subsystem *s, uint32_t number)
{
	struct loop_cmd c;

	if (status_at_hold != 0) {
		submit(&c, nvme_cmd_read, 0);
		status_at_hold = loop_wait(&c);
	}
	return __real_nvmf_views_hold_ns_for_removal(s, number);
}

/* A namespace that only some hosts see is not hidden from them before its commands are held: they would be told that it
 * does not exist, for good. */
static void test_a_namespace_is_held_before_it_is_hidden(void)
{
	struct nvmf_ns_opts opts = {.no_auto_visible = true};

	attach(0);
	loop_remove_ns(nsid);
	CU_ASSERT_EQUAL_FATAL(nvmf_subsystem_add_ns(loop_subsystem(), "dev", &opts, &nsid), 0);
	CU_ASSERT_EQUAL(nvmf_ns_add_host(loop_subsystem(), nsid, LOOP_HOSTNQN), 0);
	CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_read, nsid, 0, 0, buf, BLOCK), 0);
	status_at_hold = LOOP_STATUS_GONE;
	remove_begin();
	CU_ASSERT_EQUAL(loop_wait_for(&gone), 0);
	CU_ASSERT_EQUAL(status_at_hold, 0);
	detach();
}

/* Nor is what the host itself aborts, while it waits. */
static void test_what_the_host_aborts_is_not_a_path_error(void)
{
	struct loop_cmd waits, abort;

	attach(0);
	fill_limit();
	submit(&waits, nvme_cmd_write, 200);
	expect_waiting("wait_qos", 1);
	loop_cmd_init(&abort, admin, nvme_admin_abort_cmd, 0);
	abort.sqe.cdw10 = htole32(1u | (uint32_t)le16toh(waits.sqe.cid) << 16);
	CU_ASSERT_EQUAL(loop_run(&abort), 0);
	CU_ASSERT_EQUAL(loop_wait(&waits), ABORTED);
	remove_begin();
	CU_ASSERT_EQUAL(loop_wait_for(&gone), 0);
	detach();
}

/* Its ranges are separate I/Os: the rest is not carried out, and the host does not repeat those that were. */
static void test_command_of_several_ranges_ends_between_two(void)
{
	struct nvme_dsm_range ranges[3] = {
		{.nlb = htole32(1), .slba = htole64(1)},
		{.nlb = htole32(1), .slba = htole64(2)},
		{.nlb = htole32(1), .slba = htole64(3)},
	};
	struct loop_cmd dsm;

	attach(1u << BDEV_IO_UNMAP);
	dev->hold = true;
	loop_cmd_init(&dsm, io, nvme_cmd_dsm, nsid);
	dsm.sqe.cdw10 = htole32(2);
	dsm.sqe.cdw11 = htole32(4); /* deallocate */
	loop_cmd_data(&dsm, ranges, sizeof(ranges));
	loop_submit(&dsm);
	CU_ASSERT_TRUE_FATAL(fixture_wait_count(&dev->held, 1));
	remove_begin();
	release(0);
	CU_ASSERT_EQUAL(loop_wait(&dsm), ABORTED);
	CU_ASSERT_EQUAL(loop_wait_for(&gone), 0);
	CU_ASSERT_EQUAL(atomic_load(&dev->submitted), 1);
	detach();
}

/* The Write of the pair comes when the namespace is going: both are taken back. */
static void test_half_a_pair_is_taken_back_with_its_other_half(void)
{
	struct loop_cmd pair[2], begun;

	attach(0);
	dev->hold = true;
	submit(&begun, nvme_cmd_write, 1);
	CU_ASSERT_TRUE_FATAL(fixture_wait_count(&dev->held, 1));
	loop_cmd_init(&pair[0], io, nvme_cmd_compare, nsid);
	pair[0].sqe.flags |= NVME_FUSE_FIRST;
	loop_cmd_data(&pair[0], buf, BLOCK);
	loop_submit(&pair[0]);
	expect_waiting("other half of a fused pair", 1);
	remove_begin();
	loop_cmd_init(&pair[1], io, nvme_cmd_write, nsid);
	pair[1].sqe.flags |= NVME_FUSE_SECOND;
	loop_cmd_data(&pair[1], buf, BLOCK);
	loop_submit(&pair[1]);
	CU_ASSERT_EQUAL(loop_wait(&pair[1]), PATH_ERROR);
	CU_ASSERT_EQUAL(loop_wait(&pair[0]), PATH_ERROR);
	release(0);
	CU_ASSERT_EQUAL(loop_wait(&begun), 0);
	CU_ASSERT_EQUAL(loop_wait_for(&gone), 0);
	detach();
}

/* The first half comes when the namespace is going, and has been answered when the other one comes. */
static void test_half_a_pair_that_comes_late_is_answered_as_its_other_half(void)
{
	struct loop_cmd pair[2], begun;

	attach(0);
	dev->hold = true;
	submit(&begun, nvme_cmd_write, 1);
	CU_ASSERT_TRUE_FATAL(fixture_wait_count(&dev->held, 1));
	remove_begin();
	loop_cmd_init(&pair[0], io, nvme_cmd_compare, nsid);
	pair[0].sqe.flags |= NVME_FUSE_FIRST;
	loop_cmd_data(&pair[0], buf, BLOCK);
	loop_submit(&pair[0]);
	CU_ASSERT_EQUAL(loop_wait(&pair[0]), PATH_ERROR);
	loop_cmd_init(&pair[1], io, nvme_cmd_write, nsid);
	pair[1].sqe.flags |= NVME_FUSE_SECOND;
	loop_cmd_data(&pair[1], buf, BLOCK);
	loop_submit(&pair[1]);
	CU_ASSERT_EQUAL(loop_wait(&pair[1]), PATH_ERROR);
	release(0);
	CU_ASSERT_EQUAL(loop_wait(&begun), 0);
	CU_ASSERT_EQUAL(loop_wait_for(&gone), 0);
	detach();
}

static void unregistered(void *arg, int rc)
{
	loop_done(arg, rc);
}

static void test_bdev_that_goes_takes_back_what_waits(void)
{
	struct loop_wait away = LOOP_WAIT;
	struct loop_cmd waits[2], begun;

	attach(0);
	fill_limit();
	submit(&waits[0], nvme_cmd_write, 200);
	submit(&waits[1], nvme_cmd_write, 201);
	expect_waiting("wait_qos", 2);
	dev->hold = true;
	submit(&begun, nvme_cmd_read, 1);
	CU_ASSERT_TRUE_FATAL(fixture_wait_count(&dev->held, 1));
	struct user u;
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "dev", false, io->thread), 0);
	struct testdev *t = dev;
	bdev_unregister(&dev->bdev, unregistered, &away);
	CU_ASSERT_EQUAL(loop_wait(&waits[0]), PATH_ERROR);
	CU_ASSERT_EQUAL(loop_wait(&waits[1]), PATH_ERROR);
	CU_ASSERT_FALSE(was_written(200) || was_written(201));
	testdev_release(t, &u, 0);
	CU_ASSERT_EQUAL(loop_wait(&begun), 0);
	user_close(&u);
	CU_ASSERT_EQUAL(loop_wait_for(&away), 0);
	CU_ASSERT_PTR_NULL(nvmf_ns_find(loop_subsystem(), nsid));
	loop_close(io);
	loop_close(admin);
}

static char lost_why[512];

static void note_loss(const char *type, const char *text, const char *why)
{
	if (strcmp(type, "nvmf_ns_lost") == 0) {
		snprintf(lost_why, sizeof(lost_why), "%s", why);
	}
}

static bool one_is_ending(void *arg)
{
	struct nvmf_ctrlr_info info;
	struct nvmf_ctrlr *c = NULL;
	unsigned n = 0;

	while ((c = nvmf_ctrlr_next(loop_subsystem(), c)) != NULL) {
		nvmf_ctrlr_get_info(c, &info);
		n += info.state == NVMF_CTRLR_DESTROYING;
	}
	return n == 1;
}

/* Of two hosts one has left; its controller is still there, for a command that the device has begun. */
static void test_hosts_that_have_left_lose_nothing(void)
{
	struct loop_wait away = LOOP_WAIT;
	struct loop_conn *other;
	struct loop_cmd begun;
	struct user u;

	attach(0);
	other = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 600000);
	CU_ASSERT_PTR_NOT_NULL_FATAL(other);
	dev->hold = true;
	submit(&begun, nvme_cmd_write, 1);
	CU_ASSERT_TRUE_FATAL(fixture_wait_count(&dev->held, 1));
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "dev", false, io->thread), 0);
	loop_hang_up(admin);
	CU_ASSERT_TRUE_FATAL(fixture_poll(one_is_ending, NULL));
	nvmf_set_notice_fn(note_loss);
	struct testdev *t = dev;
	bdev_unregister(&dev->bdev, unregistered, &away);
	nvmf_set_notice_fn(NULL);
	CU_ASSERT_STRING_EQUAL(lost_why, "bdev dev is going; 1 connected controllers have the namespace");
	testdev_release(t, &u, 0);
	user_close(&u);
	CU_ASSERT_EQUAL(loop_wait_for(&away), 0);
	loop_close(io);
	loop_close(admin);
	loop_close(other);
}

/* Below a stack of bdevs I/Os wait for room. They do not keep the namespace for longer than the target's limit. The one
 * that the device had begun, and given back, is not answered with a path error; of the other one all bdevs say that
 * nothing has been carried out. */
static void test_what_a_module_holds_is_taken_back_after_the_limit(void)
{
	uint32_t limit = loop_tgt()->quiesce_limit_ms;
	struct loop_cmd begun, below;
	char error[BDEV_ERROR_MAX];
	struct user u;

	attach(0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "dev", false, io->thread), 0);
	loop_remove_ns(nsid);
	CU_ASSERT_EQUAL_FATAL(bdev_passthru_create("upper", "dev", NULL, error), 0);
	nsid = loop_add_ns("upper", 0);
	loop_tgt()->quiesce_limit_ms = 1;
	dev->hold = true;
	dev->slots = 1;
	submit(&begun, nvme_cmd_write, 1);
	CU_ASSERT_TRUE_FATAL(fixture_wait_count(&dev->held, 1));
	submit(&below, nvme_cmd_write, 2);
	remove_begin();
	CU_ASSERT_EQUAL(loop_wait(&below), PATH_ERROR);
	CU_ASSERT_FALSE(atomic_load(&begun.done));
	dev->nomem_type = BDEV_IO_WRITE;
	testdev_give_back(dev, &u);
	CU_ASSERT_EQUAL(loop_wait(&begun), ABORTED);
	CU_ASSERT_EQUAL(loop_wait_for(&gone), 0);
	CU_ASSERT_FALSE(was_written(1) || was_written(2));
	dev->nomem_type = 0;
	loop_tgt()->quiesce_limit_ms = limit;
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "upper"), 0);
	user_close(&u);
	detach();
}

static const struct unit_test tests[] = {
	UNIT(test_what_waits_for_a_rate_limit_does_not_keep_the_namespace),
	UNIT(test_write_whose_data_come_after_the_removal_is_taken_back),
	UNIT(test_what_has_begun_ends_and_hosts_hear_of_it_at_once),
	UNIT(test_what_the_device_aborts_is_not_a_path_error),
	UNIT(test_a_pair_that_was_lost_below_is_not_repeated),
	UNIT(test_a_pair_that_the_bdev_has_not_begun_is_repeated_elsewhere),
	UNIT(test_a_namespace_is_held_before_it_is_hidden),
	UNIT(test_what_the_host_aborts_is_not_a_path_error),
	UNIT(test_command_of_several_ranges_ends_between_two),
	UNIT(test_half_a_pair_is_taken_back_with_its_other_half),
	UNIT(test_half_a_pair_that_comes_late_is_answered_as_its_other_half),
	UNIT(test_bdev_that_goes_takes_back_what_waits),
	UNIT(test_hosts_that_have_left_lose_nothing),
	UNIT(test_what_a_module_holds_is_taken_back_after_the_limit),
	UNIT_END,
};
UNIT_MAIN("nvmf_ns_removal", tests, loop_start, loop_stop)
