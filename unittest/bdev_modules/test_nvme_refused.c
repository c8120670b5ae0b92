/* SPDX-License-Identifier: BSD-3-Clause */
/* Bdevs on an NVMe controller that refuses queue pairs: whose I/O fails or waits, and when the controller is reset. */
#include <string.h>

#include "bdev_modules/nvme/internal.h"
#include "unittest/bdev_modules/nvme_fixture.h"
#include "util/log.h"

static void refuse_queues(unsigned skip, unsigned count)
{
	model.fault = (struct model_fault){.kind = MODEL_FAULT_STATUS,
					   .qid = 0,
					   .opcode = nvme_admin_create_sq,
					   .skip = skip,
					   .count = count,
					   .status = NVME_ST(GENERIC, INTERNAL)};
}

static bool is_refused_so_often(void *times)
{
	return model.admin_commands[nvme_admin_delete_cq] >= *(uint64_t *)times;
}

/* Each attempt ends with the deletion of its completion queue. */
static void await_refusals(unsigned n)
{
	CU_ASSERT_FATAL(fixture_poll(is_refused_so_often, &(uint64_t){model.admin_commands[nvme_admin_delete_cq] + n}));
}

/* u is served, and each queue pair that is connected after that of u is refused. */
static void begin_with_one_served(struct user *u)
{
	drive_begin_attached();
	CU_ASSERT_EQUAL_FATAL(user_open(u, "Nvme0n1", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(user_io(u, BDEV_IO_READ, buffer, 0, 1), 0);
	refuse_queues(0, 1000);
}

/* The queue pair of v was refused so often that I/O of v fails; u is served. */
static void begin_with_one_shut_out(struct user *u, struct user *v, struct thread *thread)
{
	begin_with_one_served(u);
	CU_ASSERT_EQUAL_FATAL(user_open(v, "Nvme0n1", true, thread), 0);
	CU_ASSERT_EQUAL(user_io(v, BDEV_IO_READ, buffer, 0, 1), NVME_ST(PATH, CTRL_PATH_ERROR));
}

static void test_queue_pair_that_is_refused_fails_alone_and_is_tried_again(void)
{
	struct user u, v;

	begin_with_one_shut_out(&u, &v, fixture_thread(1));
	await_refusals(2);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buffer, 0, 1), 0);
	CU_ASSERT_EQUAL(bdev_nvme_resets(nvme), 0);
	/* After a reset, the queue pairs of both are refused. */
	CU_ASSERT_EQUAL(drive_reset(), 0);
	await_refusals(2);
	CU_ASSERT_EQUAL(bdev_nvme_resets(nvme), 1);
	refuse_queues(1, 1000); /* whichever tries next is admitted */
	bool u_is_served = user_io(&u, BDEV_IO_READ, buffer, 0, 1) == 0;
	bool v_is_served = user_io(&v, BDEV_IO_READ, buffer, 0, 1) == 0;
	CU_ASSERT(u_is_served != v_is_served);
	CU_ASSERT_EQUAL(bdev_nvme_resets(nvme), 1);
	refuse_queues(0, 0);
	wait_usable(2);
	CU_ASSERT_EQUAL(user_io(&v, BDEV_IO_READ, buffer, 0, 1), 0);
	CU_ASSERT_EQUAL(bdev_nvme_resets(nvme), 1);
	user_close(&u);
	user_close(&v);
	drive_end();
}

static void test_what_was_refused_before_a_reset_is_waited_for_after_it(void)
{
	struct user u, v;

	begin_with_one_shut_out(&u, &v, fixture_thread(1));
	refuse_queues(0, 1);
	CU_ASSERT_EQUAL(drive_reset(), 0);
	CU_ASSERT_EQUAL(user_io(&v, BDEV_IO_READ, buffer, 0, 1), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buffer, 0, 1), 0);
	user_close(&u);
	user_close(&v);
	drive_end();
}

/* Returns when the controller holds a Create I/O Submission Queue, until model_release() or a reset. */
static void hold_next_queue(void)
{
	model.fault =
		(struct model_fault){.kind = MODEL_FAULT_LATE, .qid = 0, .opcode = nvme_admin_create_sq, .count = 1};
	CU_ASSERT_FATAL(fixture_poll(model_holds, &(unsigned){1}));
}

static const char *awaited_line;
static atomic_uint lines;

static void count_lines(enum log_level level, const char *file, int line, const char *text)
{
	atomic_fetch_add(&lines, strstr(text, awaited_line) != NULL);
}

static void lines_begin(const char *text)
{
	awaited_line = text;
	atomic_store(&lines, 0);
	log_set_print_level(LOG_LEVEL_NOTICE);
	log_set_tap(count_lines);
}

static unsigned lines_end(void)
{
	log_set_tap(NULL);
	log_set_print_level(LOG_LEVEL_DISABLED);
	return atomic_load(&lines);
}

static void test_queue_pair_that_ends_with_the_connection_is_not_refused(void)
{
	struct user u, v;

	begin_with_one_served(&u);
	uint64_t times = model.admin_commands[nvme_admin_delete_cq] + 4;
	CU_ASSERT_EQUAL_FATAL(user_open(&v, "Nvme0n1", true, fixture_thread(1)), 0);
	CU_ASSERT_FATAL(fixture_poll(is_refused_so_often, &times)); /* once more, and it is shut out */
	hold_next_queue();
	lines_begin("refused the queue pair of thread");
	CU_ASSERT_EQUAL(drive_reset(), 0);
	CU_ASSERT_EQUAL(user_io(&v, BDEV_IO_READ, buffer, 0, 1), 0);
	CU_ASSERT_EQUAL(lines_end(), 0);
	user_close(&u);
	user_close(&v);
	drive_end();
}

static bool has_one_queue(void *arg)
{
	unsigned n = 0;

	for (unsigned i = 1; i < MODEL_QUEUES; i++) {
		n += model.queues[i].cq != 0;
	}
	return n == 1;
}

static void test_thread_may_end_while_its_queue_pair_is_connected(void)
{
	struct user u, v;
	cpu_set_t mask;

	CPU_ZERO(&mask);
	CPU_SET(1, &mask);
	struct thread *thread = thread_create("leaving", &mask);
	CU_ASSERT_PTR_NOT_NULL_FATAL(thread);
	begin_with_one_shut_out(&u, &v, thread);
	hold_next_queue();
	user_close(&v);
	CU_ASSERT_EQUAL(thread_destroy(thread), 0);
	lines_begin("is connected"); /* with the name of a thread that is gone */
	model_release(&model);
	CU_ASSERT(fixture_poll(has_one_queue, NULL));
	CU_ASSERT_EQUAL(lines_end(), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buffer, 0, 1), 0);
	user_close(&u);
	drive_end();
}

static void test_controller_that_serves_nobody_is_reset(void)
{
	struct user u;

	drive_begin_attached();
	refuse_queues(0, 5);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buffer, 0, 1), 0);
	CU_ASSERT_EQUAL(bdev_nvme_resets(nvme), 1);
	user_close(&u);
	drive_end();
}

/* The only user that is served leaves, while another one is shut out: now the controller serves nobody. */
static void test_controller_that_serves_nobody_any_more_is_reset(void)
{
	struct user u, v;

	begin_with_one_shut_out(&u, &v, fixture_thread(1));
	user_close(&u);
	CU_ASSERT_FATAL(fixture_poll(is_up_after, &(uint32_t){1}));
	refuse_queues(0, 0);
	wait_usable(1);
	CU_ASSERT_EQUAL(user_io(&v, BDEV_IO_READ, buffer, 0, 1), 0);
	user_close(&v);
	drive_end();
}

static bool has_waited_twice(void *unused)
{
	return atomic_load(&lines) >= 2;
}

/* The only queue pair is created too late, and so its number is not free at once. */
static void test_io_waits_for_the_number_of_a_late_queue_pair(void)
{
	struct bdev_nvme_attach a = attach_opts();
	struct iovec iov = {buffer, 512};
	struct user u;

	drive_begin();
	a.num_io_queues = 1;
	CU_ASSERT_EQUAL_FATAL(attach_with(&a), 0);
	nvme->ctrlr->opts.connect_timeout_ms = 100;
	nvme->ctrlr->opts.admin_timeout_ms = WAIT_US / 1000;
	model.fault =
		(struct model_fault){.kind = MODEL_FAULT_LATE, .qid = 0, .opcode = nvme_admin_create_cq, .count = 1};
	lines_begin("waits until the controller has deleted");
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	struct request *r = request_new(&u);
	bdev_io_set_rw(r->io, BDEV_IO_WRITE, &iov, 1, 0, 1);
	request_submit(r);
	CU_ASSERT_FATAL(fixture_poll(has_waited_twice, NULL));
	lines_end();
	nvme->ctrlr->opts.connect_timeout_ms = WAIT_US / 1000;
	model_release(&model);
	CU_ASSERT_EQUAL(request_finish(r), 0);
	CU_ASSERT_EQUAL(bdev_nvme_resets(nvme), 0);
	user_close(&u);
	drive_end();
}

static const struct unit_test tests[] = {
	UNIT(test_queue_pair_that_is_refused_fails_alone_and_is_tried_again),
	UNIT(test_what_was_refused_before_a_reset_is_waited_for_after_it),
	UNIT(test_queue_pair_that_ends_with_the_connection_is_not_refused),
	UNIT(test_thread_may_end_while_its_queue_pair_is_connected),
	UNIT(test_io_waits_for_the_number_of_a_late_queue_pair),
	UNIT(test_controller_that_serves_nobody_is_reset),
	UNIT(test_controller_that_serves_nobody_any_more_is_reset),
	UNIT_END,
};
UNIT_MAIN("bdev_nvme_refused", tests, drive_setup, drive_teardown)
