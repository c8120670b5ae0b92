/* SPDX-License-Identifier: BSD-3-Clause */
/* A namespace that two controllers share: `model`, which is attached first, and `second`. Both have the same blocks. */
#include <errno.h>

#include "bdev_modules/nvme/internal.h"
#include "unittest/bdev_modules/nvme_two.h"

#define HELD 4

/* A fatal error at once; on demand the controller cannot be connected again either. */
static void lose(struct model *m, bool for_long)
{
	m->refuse_enable = for_long;
	*(volatile uint32_t *)(m->regs + NVME_REG_CSTS) |= htole32(2); /* CFS */
}

static bool is_only_one_there(void *arg)
{
	const struct bdev_nvme *c = bdev_nvme_next(NULL);

	return c != NULL && bdev_nvme_next(c) == NULL;
}

static uint16_t read_one(struct user *u)
{
	return user_io(u, BDEV_IO_READ, other, 0, 1);
}

/* --- I/O that the first controller does not answer --- */

static struct request *held[HELD];
static struct iovec held_iov[HELD];

static void hold_writes(struct user *u)
{
	fill(buffer, HELD * 512, 77);
	set_fault(MODEL_FAULT_NO_ANSWER, nvme_cmd_write, HELD, 0);
	for (unsigned i = 0; i < HELD; i++) {
		held[i] = request_new(u);
		held_iov[i] = (struct iovec){buffer + i * 512, 512};
		bdev_io_set_rw(held[i]->io, BDEV_IO_WRITE, &held_iov[i], 1, i, 1);
		request_submit(held[i]);
	}
	CU_ASSERT_FATAL(fixture_poll(model_holds, &(unsigned){HELD}));
}

static void expect_written_by_second(void)
{
	for (unsigned i = 0; i < HELD; i++) {
		CU_ASSERT(request_wait(held[i]));
		CU_ASSERT_EQUAL(held[i]->status, 0);
		request_free(held[i]);
	}
	CU_ASSERT_EQUAL(second.commands[nvme_cmd_write], HELD);
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_write], 0);
	CU_ASSERT_EQUAL(memcmp(second.ns[0].data, buffer, HELD * 512), 0);
}

/* --- Tests --- */

static void test_second_controller_of_a_name_is_a_path(void)
{
	struct bdev_nvme_attach a = path_opts();
	struct user u;

	begin_two(&a, &u);
	struct bdev *b = bdev_find("Nvme0n1");
	CU_ASSERT_PTR_NULL(bdev_nvme_bdev_next(nvme, b)); /* there is one bdev */
	CU_ASSERT_EQUAL(read_one(&u), 0);
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_read], 1); /* the first one */
	CU_ASSERT_EQUAL(bdev_nvme_set_preferred(b, 2, last_error), 0);
	CU_ASSERT_EQUAL(read_one(&u), 0);
	CU_ASSERT_EQUAL(second.commands[nvme_cmd_read], 1);
	CU_ASSERT_EQUAL(bdev_nvme_set_preferred(b, 3, last_error), -ENODEV);
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_read], 1);
	user_close(&u);
	end_two();
}

static void expect_refused(struct bdev_nvme_attach a, int rc, const char *why)
{
	CU_ASSERT_EQUAL(attach_second(a), rc);
	CU_ASSERT_PTR_NOT_NULL(strstr(last_error, why));
	CU_ASSERT(!second.open);
}

static void test_controller_that_does_not_fit_is_refused(void)
{
	struct bdev_nvme_attach a = path_opts();
	struct user u;

	begin_apart();
	CU_ASSERT_EQUAL_FATAL(attach_first(a), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	second.serial = "MODEL1";
	expect_refused(a, -EIO, "the serial number is 'MODEL1");
	second.serial = "MODEL0";
	second.cntlid = 1;
	expect_refused(a, -EIO, "the controller id 1 is that of the controller at 0000:00:04.0");
	second.cntlid = 2;
	second.cmic = 0;
	expect_refused(a, -EIO, "CMIC");
	second.cmic = model.cmic;
	a.multipath = BDEV_NVME_DISABLE;
	expect_refused(a, -EALREADY, "multipath is disabled");
	a.multipath = BDEV_NVME_MULTIPATH;
	a.policy.rr_min_io = 0;
	expect_refused(a, -EINVAL, "min_io 0");
	a = path_opts();
	CU_ASSERT_EQUAL(attach_first(a), -EALREADY);
	CU_ASSERT_PTR_NOT_NULL(strstr(last_error, "by the same path"));
	second.ns[0].shared = false; /* the controller fits, but its namespace does not */
	CU_ASSERT_EQUAL(attach_second(a), 0);
	wait_usable(1);
	CU_ASSERT_EQUAL(read_one(&u), 0);
	user_close(&u);
	end_two();
}

static void test_io_in_flight_on_a_lost_path_goes_by_the_other(void)
{
	struct bdev_nvme_attach a = path_opts();
	struct user u;

	begin_two(&a, &u);
	hold_writes(&u);
	lose(&model, true);
	expect_written_by_second();
	CU_ASSERT_EQUAL(read_one(&u), 0);
	CU_ASSERT_EQUAL(second.commands[nvme_cmd_read], 1);
	model.refuse_enable = false;
	wait_usable(2);
	CU_ASSERT_EQUAL(read_one(&u), 0);
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_read], 1); /* back to the first one */
	user_close(&u);
	end_two();
}

/* The first controller does not answer, but for the Abort. */
static void test_io_that_was_aborted_for_want_of_an_answer_goes_by_the_other(void)
{
	struct bdev_nvme_attach a = path_opts();
	struct bdev_nvme_options o;
	struct user u;

	begin_apart();
	bdev_nvme_default_options(&o);
	o.timeout_us = 1000000;
	o.action_on_timeout = BDEV_NVME_TIMEOUT_ABORT;
	CU_ASSERT_EQUAL(bdev_nvme_set_options(&o, last_error), 0);
	CU_ASSERT_EQUAL_FATAL(attach_first(a), 0);
	CU_ASSERT_EQUAL_FATAL(attach_second(a), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	wait_usable(2);
	hold_writes(&u);
	expect_written_by_second();
	CU_ASSERT(model.admin_commands[nvme_admin_abort_cmd] != 0);
	wait_usable(2);
	user_close(&u);
	end_two();
}

static void reset_begins_here(void *arg)
{
	const struct request *r = arg;
	struct bdev_nvme_channel *ch = bdev_channel_ctx(r->user->ch);

	bdev_submit(r->io);
	ch->resetting = true; /* before its completion is looked for */
}

/* The network of the first path is at fault, and a reset of the bdev has begun, which is to end all I/O. */
static void test_io_of_a_bdev_that_is_reset_does_not_go_by_the_other(void)
{
	struct bdev_nvme_attach a = path_opts();
	struct user u;

	begin_two(&a, &u);
	set_fault(MODEL_FAULT_STATUS, nvme_cmd_write, 1, NVME_ST(GENERIC, TRAN_TPORT_ERROR));
	struct request *r = request_new(&u);
	struct iovec iov = {buffer, 512};
	bdev_io_set_rw(r->io, BDEV_IO_WRITE, &iov, 1, 0, 1);
	thread_call(u.thread, reset_begins_here, r);
	CU_ASSERT_EQUAL(request_finish(r), NVME_ST(GENERIC, ABORT_REQ));
	CU_ASSERT_EQUAL(second.commands[nvme_cmd_write], 0);
	CU_ASSERT_EQUAL(read_one(&u), 0); /* the reset has ended */
	user_close(&u);
	end_two();
}

static void test_without_failback_io_stays_until_it_is_told(void)
{
	struct bdev_nvme_attach a = path_opts();
	struct bdev_nvme_options o;
	char error[BDEV_ERROR_MAX];
	struct user u;

	begin_apart();
	bdev_nvme_default_options(&o);
	o.disable_auto_failback = true;
	CU_ASSERT_EQUAL_FATAL(bdev_nvme_set_options(&o, error), 0);
	CU_ASSERT_EQUAL_FATAL(attach_first(a), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	wait_usable(1); /* I/O takes the path that is connected first */
	CU_ASSERT_EQUAL_FATAL(attach_second(a), 0);
	wait_usable(2);
	CU_ASSERT_EQUAL(read_one(&u), 0);
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_read], 1);
	lose(&model, true);
	wait_usable(1);
	CU_ASSERT_EQUAL(read_one(&u), 0);
	model.refuse_enable = false;
	wait_usable(2);
	CU_ASSERT_EQUAL(read_one(&u), 0);
	CU_ASSERT_EQUAL(second.commands[nvme_cmd_read], 2); /* the first one is connected again */
	CU_ASSERT_EQUAL(bdev_nvme_set_preferred(bdev_find("Nvme0n1"),
						nvme_ctrlr_cntlid(bdev_nvme_ctrlr(bdev_nvme_next(NULL))), error),
			0);
	CU_ASSERT_EQUAL(read_one(&u), 0);
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_read], 2);
	lose(&model, true);
	wait_usable(1);
	CU_ASSERT_EQUAL(read_one(&u), 0);
	CU_ASSERT_EQUAL(second.commands[nvme_cmd_read], 3);
	model.refuse_enable = false;
	wait_usable(2);
	user_close(&u);
	end_two();
}

static void test_io_in_flight_on_a_removed_device_goes_by_the_other(void)
{
	struct bdev_nvme_attach a = path_opts();
	struct user u;

	begin_two(&a, &u);
	hold_writes(&u);
	model_remove(&model);
	expect_written_by_second();
	CU_ASSERT(fixture_poll(is_only_one_there, NULL));
	CU_ASSERT_EQUAL(u.removes, 0);
	CU_ASSERT_EQUAL(read_one(&u), 0);
	user_close(&u);
	end_two();
}

static void test_io_in_flight_on_a_detached_path_goes_by_the_other(void)
{
	struct bdev_nvme_attach a = path_opts();
	struct user u;

	begin_two(&a, &u);
	hold_writes(&u);
	nvme = bdev_nvme_next(NULL);
	CU_ASSERT_EQUAL(drive_detach(), 0);
	expect_written_by_second();
	CU_ASSERT_EQUAL(u.removes, 0);
	CU_ASSERT_EQUAL(read_one(&u), 0);
	user_close(&u);
	end_two();
}

static void test_detach_does_not_wait_for_a_queue_pair_that_is_refused(void)
{
	struct bdev_nvme_attach a = path_opts();
	struct wait w = {0};
	struct user u;

	begin_two(&a, NULL);
	set_fault(MODEL_FAULT_LATE, nvme_admin_create_cq, 1, 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	CU_ASSERT_FATAL(thread_control_wait(model_holds, &(unsigned){1}, WAIT_US));
	bdev_nvme_detach(bdev_nvme_next(NULL), ended, &w);
	CU_ASSERT(!w.done);
	set_fault(MODEL_FAULT_STATUS, nvme_admin_create_sq, 1, NVME_ST(GENERIC, INTERNAL));
	model_release(&model);
	CU_ASSERT_FATAL(thread_control_wait(is_done, &w, WAIT_US));
	CU_ASSERT_EQUAL(w.rc, 0);
	wait_usable(1);
	CU_ASSERT_EQUAL(read_one(&u), 0);
	user_close(&u);
	end_two();
}

static bool were_lost(void *times)
{
	const struct bdev_nvme *c = bdev_nvme_next(NULL);

	return bdev_nvme_resets(c) + bdev_nvme_resets(bdev_nvme_next(c)) >= *(unsigned *)times;
}

static void lose_in_turn(const struct bdev_nvme_attach *a)
{
	begin_two(a, NULL);
	workers_start();
	wait_usable(6);
	for (unsigned i = 0; i < 4; i++) {
		workers_progress(40);
		lose(i % 2 ? &second : &model, false);
		CU_ASSERT(fixture_poll(were_lost, &(unsigned){i + 1}));
		wait_usable(6);
	}
	workers_progress(40);
	workers_stop();
	CU_ASSERT_EQUAL(count_errors(), 0);
	end_two();
}

static void test_paths_that_are_lost_in_turn_lose_and_spoil_nothing(void)
{
	struct bdev_nvme_attach a = path_opts();

	lose_in_turn(&a);
	a.policy_given = a.policy.active_active = true;
	lose_in_turn(&a);
}

static struct request *submit_read(struct user *u)
{
	static struct iovec iov;
	struct request *r = request_new(u);

	iov = (struct iovec){other, 512};
	bdev_io_set_rw(r->io, BDEV_IO_READ, &iov, 1, 0, 1);
	request_submit(r);
	return r;
}

static void expect_read(struct request *r)
{
	CU_ASSERT(request_wait(r));
	CU_ASSERT_EQUAL(r->status, 0);
	request_free(r);
}

static void test_without_a_path_io_waits_for_one(void)
{
	struct bdev_nvme_attach a = path_opts();
	struct user u;

	begin_two(&a, &u);
	lose(&model, true);
	lose(&second, true);
	wait_usable(0);
	struct request *r = submit_read(&u);
	wait_usable(0); /* on the thread of r, and so after its submission */
	CU_ASSERT(!atomic_load(&r->done));
	second.refuse_enable = false;
	expect_read(r);
	CU_ASSERT_EQUAL(second.commands[nvme_cmd_read], 1);
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_read], 0);
	user_close(&u);
	end_two();
}

/* Its submitter was told that nothing of it is carried out: a path that comes back does not carry it out. */
static void test_io_that_waits_for_a_path_and_is_taken_back_goes_nowhere(void)
{
	struct bdev_nvme_attach a = path_opts();
	struct iovec iov = {buffer, 512};
	struct user u;

	begin_two(&a, &u);
	lose(&model, true);
	lose(&second, true);
	wait_usable(0);
	struct request *r = request_new(&u);
	bdev_io_set_rw(r->io, BDEV_IO_WRITE, &iov, 1, 0, 1);
	request_submit(r);
	request_take_back(r);
	CU_ASSERT(request_wait(r));
	CU_ASSERT_EQUAL(r->status, NVME_ST(GENERIC, ABORT_REQ));
	CU_ASSERT(bdev_io_was_untouched(r->io));
	request_free(r);
	second.refuse_enable = false;
	wait_usable(1);
	CU_ASSERT_EQUAL(read_one(&u), 0);
	CU_ASSERT_EQUAL(second.commands[nvme_cmd_write], 0);
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_write], 0);
	user_close(&u);
	end_two();
}

static void test_without_a_path_io_fails_after_fast_io_fail(void)
{
	struct bdev_nvme_attach a = path_opts();
	struct user u;

	a.fast_io_fail_timeout_sec = 1;
	begin_two(&a, &u);
	lose(&model, true);
	lose(&second, true);
	wait_usable(0);
	CU_ASSERT_EQUAL(read_one(&u), NVME_ST(PATH, CTRL_PATH_ERROR));
	second.refuse_enable = false;
	wait_usable(1);
	CU_ASSERT_EQUAL(read_one(&u), 0);
	CU_ASSERT_EQUAL(second.commands[nvme_cmd_read], 1);
	user_close(&u);
	end_two();
}

/* Each of its addresses leads to another subsystem now. */
static void test_controller_whose_addresses_are_anothers_stays_away(void)
{
	struct bdev_nvme_attach a = path_opts();
	struct user u;

	a.ctrlr_loss_timeout_sec = 3;
	a.fast_io_fail_timeout_sec = 1;
	begin_apart();
	CU_ASSERT_EQUAL_FATAL(attach_first(a), 0);
	a.multipath = BDEV_NVME_FAILOVER;
	CU_ASSERT_EQUAL_FATAL(attach_second(a), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	wait_usable(1);
	model_current = &model;
	model.serial = "OTHER0";
	CU_ASSERT_EQUAL(drive_reset(), -EIO);
	CU_ASSERT_PTR_NOT_NULL(strstr(last_error, "serial number 'OTHER0"));
	CU_ASSERT_EQUAL(read_one(&u), NVME_ST(PATH, CTRL_PATH_ERROR));
	CU_ASSERT(fixture_poll(is_told, &u));
	user_close(&u);
	nvme = NULL;
	CU_ASSERT(thread_control_wait(all_detached, NULL, WAIT_US));
	end_two();
}

static void test_status_that_is_final_is_not_tried_by_the_other(void)
{
	static const uint16_t final[] = {NVME_ST_DNR(PATH, CTRL_PATH_ERROR), NVME_ST_DNR(PATH, ANA_INACCESSIBLE),
					 NVME_ST_DNR(GENERIC, INTERNAL), NVME_ST(MEDIA, READ_ERROR)};
	struct bdev_nvme_attach a = path_opts();
	struct user u;

	begin_two(&a, &u);
	for (unsigned i = 0; i < sizeof(final) / sizeof(final[0]); i++) {
		set_fault(MODEL_FAULT_STATUS, nvme_cmd_read, 1, final[i]);
		CU_ASSERT_EQUAL(read_one(&u), final[i]);
	}
	CU_ASSERT_EQUAL(second.commands[nvme_cmd_read], 0);
	set_fault(MODEL_FAULT_STATUS, nvme_cmd_read, 1, NVME_ST(PATH, CTRL_PATH_ERROR));
	CU_ASSERT_EQUAL(read_one(&u), 0);
	CU_ASSERT_EQUAL(second.commands[nvme_cmd_read], 1);
	set_fault(MODEL_FAULT_STATUS, nvme_cmd_read, 1,
		  NVME_ST(GENERIC, CMD_INTERRUPTED)); /* that of the drive, not of the path */
	CU_ASSERT_EQUAL(read_one(&u), 0);
	CU_ASSERT_EQUAL(second.commands[nvme_cmd_read], 1);
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_read], 1);
	user_close(&u);
	end_two();
}

/* --- Asymmetric access --- */

static void set_ana(struct model *m, enum nvme_ana_state state)
{
	m->ns[0].ana = state;
	CU_ASSERT(model_event(m, NVME_AER_NOTICE | NVME_AER_NOTICE_ANA << 8 | NVME_LOG_LID_ANA << 16));
}

struct state {
	enum nvme_ana_state wanted;
	bool found;
};

static void compare_state(void *arg, const struct bdev_nvme_io_path *path)
{
	struct state *s = arg;

	s->found |= path->ana == s->wanted;
}

static bool is_known(void *arg)
{
	struct state *s = arg;

	s->found = false;
	bdev_nvme_for_each_io_path(bdev_find("Nvme0n1"), compare_state, s);
	return s->found;
}

static void wait_state(enum nvme_ana_state state)
{
	CU_ASSERT_FATAL(fixture_poll(is_known, &(struct state){.wanted = state}));
}

static void test_io_that_is_refused_for_want_of_access_goes_by_the_other(void)
{
	static const enum nvme_ana_state states[] = {NVME_ANA_STATE_INACCESSIBLE, NVME_ANA_STATE_CHANGE,
						     NVME_ANA_STATE_PERSISTENT_LOSS};
	struct bdev_nvme_attach a = path_opts();
	struct user u;

	begin_two(&a, &u);
	for (unsigned i = 0; i < 3; i++) {
		memset(model.commands, 0, sizeof(model.commands));
		memset(second.commands, 0, sizeof(second.commands));
		model.ns[0].ana = states[i]; /* without an event */
		CU_ASSERT_EQUAL(read_one(&u), 0);
		CU_ASSERT_EQUAL(model.commands[nvme_cmd_read], 1);
		CU_ASSERT_EQUAL(second.commands[nvme_cmd_read], 1);
		wait_state(states[i]); /* the module reads the log without an event */
		CU_ASSERT_EQUAL(read_one(&u), 0);
		CU_ASSERT_EQUAL(model.commands[nvme_cmd_read], 1);
		CU_ASSERT_EQUAL(second.commands[nvme_cmd_read], 2);
		set_ana(&model, NVME_ANA_STATE_OPTIMIZED);
		wait_usable(2);
		CU_ASSERT_EQUAL(read_one(&u), 0);
		CU_ASSERT_EQUAL(model.commands[nvme_cmd_read], 2);
	}
	user_close(&u);
	end_two();
}

static unsigned raw_answers;
static int raw_error;

static void raw_done(void *arg, int rc, const struct nvme_cqe *cqe)
{
	raw_answers++;
	raw_error = rc;
}

static bool all_answered(void *sent)
{
	return raw_answers == *(unsigned *)sent;
}

/* Until the admin queue takes no more. */
static unsigned fill_admin_queue(void)
{
	struct bdev_nvme_raw raw = {.data = buffer,
				    .data_len = 4096,
				    .cmd = {.opcode = nvme_admin_identify, .cdw10 = htole32(NVME_IDENTIFY_CNS_CTRL)}};
	unsigned sent = 0;

	set_fault(MODEL_FAULT_LATE, nvme_admin_identify, 256, 0);
	for (raw_error = 0, raw_answers = 0; raw_answers == 0; sent++) {
		bdev_nvme_send(nvme, &raw, raw_done, NULL);
	}
	CU_ASSERT_EQUAL(raw_error, -EAGAIN);
	return sent;
}

static void test_log_that_finds_no_room_in_the_queue_is_read_later(void)
{
	struct bdev_nvme_attach a = path_opts();
	struct user u;

	begin_apart();
	CU_ASSERT_EQUAL_FATAL(attach_first(a), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	wait_usable(1);
	unsigned sent = fill_admin_queue();
	model.ns[0].ana = NVME_ANA_STATE_NONOPTIMIZED;
	nvme_ctrlr_read_ana(bdev_nvme_ctrlr(nvme));
	CU_ASSERT_FATAL(thread_control_wait(model_holds, &(unsigned){sent - 1}, WAIT_US));
	model.fault.kind = MODEL_FAULT_NONE;
	model_release(&model);
	wait_state(NVME_ANA_STATE_NONOPTIMIZED);
	CU_ASSERT_FATAL(thread_control_wait(all_answered, &sent, WAIT_US));
	CU_ASSERT_EQUAL(bdev_nvme_resets(nvme), 0);
	user_close(&u);
	end_two();
}

static void add_retries(void *arg, const struct bdev_nvme_qpair_stat *stat)
{
	*(uint64_t *)arg += stat->retries; /* only delayed retries are counted */
}

static void test_refusals_that_the_log_does_not_explain_are_outlasted(void)
{
	struct bdev_nvme_attach a = path_opts();
	uint64_t retries = 0;
	struct user u;

	begin_apart();
	model.anatt = 2;
	CU_ASSERT_EQUAL_FATAL(attach_first(a), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	wait_usable(1);
	set_fault(MODEL_FAULT_STATUS, nvme_cmd_read, 4, NVME_ST(PATH, ANA_TRANSITION));
	model.fault.qid = 1; /* the log is read by the same opcode */
	CU_ASSERT_EQUAL(read_one(&u), 0);
	bdev_nvme_for_each_qpair(nvme, add_retries, &retries);
	CU_ASSERT_EQUAL(retries, 3); /* all but the first, which is submitted again when the log has been read */
	user_close(&u);
	end_two();
}

/* The change is reported by an ANA event only (Base 5.2.1). */
static void test_namespace_that_moves_to_another_group_is_followed(void)
{
	struct bdev_nvme_attach a = path_opts();
	struct user u;

	begin_two(&a, &u);
	model.ns[2].ana = NVME_ANA_STATE_NONOPTIMIZED;
	model.ns[0].anagrpid = 3;
	second.ns[2].ana = NVME_ANA_STATE_INACCESSIBLE;
	second.ns[0].anagrpid = 3;
	set_ana(&model, NVME_ANA_STATE_INACCESSIBLE); /* the group that the namespace was in */
	set_ana(&second, NVME_ANA_STATE_OPTIMIZED);
	wait_state(NVME_ANA_STATE_NONOPTIMIZED);
	wait_state(NVME_ANA_STATE_INACCESSIBLE);
	wait_usable(1);
	CU_ASSERT_EQUAL(read_one(&u), 0);
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_read], 1);
	CU_ASSERT_EQUAL(u.removes, 0);
	user_close(&u);
	end_two();
}

static bool has_identified(void *times)
{
	return model.admin_commands[nvme_admin_identify] >= *(uint64_t *)times;
}

static void test_namespace_without_access_and_size_is_not_gone(void)
{
	struct bdev_nvme_attach a = path_opts();
	struct user u;

	begin_apart();
	CU_ASSERT_EQUAL_FATAL(attach_first(a), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	uint64_t blocks = model.ns[0].blocks, scanned = model.admin_commands[nvme_admin_identify] + 3;
	model.ns[0].blocks = 0;
	set_ana(&model, NVME_ANA_STATE_INACCESSIBLE);
	CU_ASSERT_FATAL(thread_control_wait(has_identified, &scanned, WAIT_US)); /* list, namespace, descriptors */
	wait_state(NVME_ANA_STATE_INACCESSIBLE);
	model.ns[0].blocks = blocks;
	set_ana(&model, NVME_ANA_STATE_OPTIMIZED);
	wait_usable(1);
	CU_ASSERT_EQUAL(u.removes, 0);
	CU_ASSERT_EQUAL(read_one(&u), 0);
	user_close(&u);
	end_two();
}

static void test_optimized_access_comes_first(void)
{
	struct bdev_nvme_attach a = path_opts();
	struct user u;

	begin_two(&a, &u);
	set_ana(&model, NVME_ANA_STATE_NONOPTIMIZED);
	wait_state(NVME_ANA_STATE_NONOPTIMIZED);
	CU_ASSERT_EQUAL(read_one(&u), 0);
	CU_ASSERT_EQUAL(second.commands[nvme_cmd_read], 1);
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_read], 0);
	set_ana(&second, NVME_ANA_STATE_INACCESSIBLE);
	wait_usable(1);
	CU_ASSERT_EQUAL(read_one(&u), 0);
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_read], 1);
	user_close(&u);
	end_two();
}

static void test_without_access_io_waits_for_it(void)
{
	struct bdev_nvme_attach a = path_opts();
	struct user u;

	begin_two(&a, &u);
	set_ana(&model, NVME_ANA_STATE_INACCESSIBLE);
	set_ana(&second, NVME_ANA_STATE_CHANGE);
	wait_usable(0);
	struct request *r = submit_read(&u);
	wait_usable(0);
	CU_ASSERT(!atomic_load(&r->done));
	set_ana(&second, NVME_ANA_STATE_NONOPTIMIZED);
	expect_read(r);
	CU_ASSERT_EQUAL(second.commands[nvme_cmd_read], 1);
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_read], 0);
	user_close(&u);
	end_two();
}

static void set_detached(void *detached, int rc, const char *error)
{
	CU_ASSERT_EQUAL(rc, 0);
	set_done(detached);
}

/* The user closes the bdev when its I/O has ended, and the bdev goes when it is closed. */
static void test_without_access_io_ends_when_its_bdev_goes(void)
{
	struct bdev_nvme_attach a = path_opts();
	atomic_bool detached = false;
	struct user u;

	begin_apart();
	model.anatt = 255;
	CU_ASSERT_EQUAL_FATAL(attach_first(a), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	wait_usable(1);
	set_ana(&model, NVME_ANA_STATE_INACCESSIBLE);
	wait_usable(0);
	struct request *waits = submit_read(&u);
	wait_usable(0);
	CU_ASSERT(!atomic_load(&waits->done));
	bdev_nvme_detach(bdev_nvme_find("Nvme0"), set_detached, &detached);
	CU_ASSERT_EQUAL(request_finish(waits), NVME_ST(PATH, CTRL_PATH_ERROR));
	CU_ASSERT_EQUAL(u.removes, 1);
	user_close(&u);
	CU_ASSERT(fixture_wait(&detached));
	end_two();
}

static void test_without_access_io_fails_when_there_is_no_hope(void)
{
	struct bdev_nvme_attach a = path_opts();
	struct user u;

	begin_apart();
	model.anatt = 1;
	CU_ASSERT_EQUAL_FATAL(attach_first(a), 0);
	CU_ASSERT_EQUAL_FATAL(attach_second(a), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	wait_usable(2);
	set_ana(&model, NVME_ANA_STATE_INACCESSIBLE);     /* for no longer than ANATT */
	set_ana(&second, NVME_ANA_STATE_PERSISTENT_LOSS); /* at once */
	wait_usable(0);
	CU_ASSERT_EQUAL(read_one(&u), NVME_ST(PATH, CTRL_PATH_ERROR));
	set_ana(&model, NVME_ANA_STATE_OPTIMIZED);
	wait_usable(1);
	CU_ASSERT_EQUAL(read_one(&u), 0);
	user_close(&u);
	end_two();
}

static bool was_lost(void *ctrlr)
{
	return bdev_nvme_resets(ctrlr) == 1;
}

/* ANATT limits the wait only while the controller is connected. */
static void test_io_waits_for_a_controller_that_had_no_access_when_it_was_lost(void)
{
	struct bdev_nvme_attach a = path_opts();
	struct user u;

	begin_apart();
	model.anatt = 1;
	CU_ASSERT_EQUAL_FATAL(attach_first(a), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	wait_usable(1);
	set_ana(&model, NVME_ANA_STATE_CHANGE);
	wait_usable(0);
	CU_ASSERT_EQUAL(read_one(&u), NVME_ST(PATH, CTRL_PATH_ERROR));
	lose(&model, true);
	CU_ASSERT_FATAL(thread_control_wait(was_lost, nvme, WAIT_US));
	struct request *r = submit_read(&u);
	wait_usable(0); /* on the thread of r, and so after its submission */
	CU_ASSERT(!atomic_load(&r->done));
	model.refuse_enable = false;
	CU_ASSERT(request_wait(r)); /* connected again with the same access: I/O waits no longer than ANATT */
	CU_ASSERT_EQUAL(r->status, NVME_ST(PATH, CTRL_PATH_ERROR));
	request_free(r);
	set_ana(&model, NVME_ANA_STATE_OPTIMIZED);
	wait_usable(1);
	CU_ASSERT_EQUAL(read_one(&u), 0);
	user_close(&u);
	end_two();
}

/* --- Policies --- */

static void test_round_robin_spreads(void)
{
	struct bdev_nvme_attach a = path_opts();
	struct user u;

	a.policy_given = true;
	a.policy = (struct bdev_nvme_policy){.active_active = true, .rr_min_io = 2};
	begin_two(&a, &u);
	for (unsigned i = 0; i < 8; i++) {
		CU_ASSERT_EQUAL(read_one(&u), 0);
	}
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_read], 4);
	CU_ASSERT_EQUAL(second.commands[nvme_cmd_read], 4);
	set_ana(&second, NVME_ANA_STATE_NONOPTIMIZED);
	wait_state(NVME_ANA_STATE_NONOPTIMIZED);
	for (unsigned i = 0; i < 4; i++) {
		CU_ASSERT_EQUAL(read_one(&u), 0);
	}
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_read], 8);
	CU_ASSERT_EQUAL(second.commands[nvme_cmd_read], 4);
	user_close(&u);
	end_two();
}

static void test_queue_depth_takes_the_less_busy_one(void)
{
	const struct bdev_nvme_policy policy = {.active_active = true, .queue_depth = true, .rr_min_io = 1};
	struct bdev_nvme_attach a = path_opts();
	struct user u;

	begin_two(&a, &u);
	CU_ASSERT_EQUAL(bdev_nvme_set_policy(bdev_find("Nvme0n1"), &policy, last_error), 0);
	set_fault(MODEL_FAULT_LATE, nvme_cmd_read, 1, 0);
	struct request *r = submit_read(&u); /* by the first of two that are idle */
	CU_ASSERT_FATAL(fixture_poll(model_holds, &(unsigned){1}));
	for (unsigned i = 0; i < 4; i++) {
		CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buffer, 0, 1), 0);
	}
	CU_ASSERT_EQUAL(second.commands[nvme_cmd_read], 4);
	model_release(&model);
	expect_read(r);
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_read], 1);
	user_close(&u);
	end_two();
}

static const struct unit_test tests[] = {
	UNIT(test_second_controller_of_a_name_is_a_path),
	UNIT(test_controller_that_does_not_fit_is_refused),
	UNIT(test_io_in_flight_on_a_lost_path_goes_by_the_other),
	UNIT(test_io_that_was_aborted_for_want_of_an_answer_goes_by_the_other),
	UNIT(test_io_of_a_bdev_that_is_reset_does_not_go_by_the_other),
	UNIT(test_without_failback_io_stays_until_it_is_told),
	UNIT(test_io_in_flight_on_a_removed_device_goes_by_the_other),
	UNIT(test_io_in_flight_on_a_detached_path_goes_by_the_other),
	UNIT(test_detach_does_not_wait_for_a_queue_pair_that_is_refused),
	UNIT(test_paths_that_are_lost_in_turn_lose_and_spoil_nothing),
	UNIT(test_without_a_path_io_waits_for_one),
	UNIT(test_io_that_waits_for_a_path_and_is_taken_back_goes_nowhere),
	UNIT(test_without_a_path_io_fails_after_fast_io_fail),
	UNIT(test_controller_whose_addresses_are_anothers_stays_away),
	UNIT(test_status_that_is_final_is_not_tried_by_the_other),
	UNIT(test_io_that_is_refused_for_want_of_access_goes_by_the_other),
	UNIT(test_log_that_finds_no_room_in_the_queue_is_read_later),
	UNIT(test_refusals_that_the_log_does_not_explain_are_outlasted),
	UNIT(test_namespace_that_moves_to_another_group_is_followed),
	UNIT(test_namespace_without_access_and_size_is_not_gone),
	UNIT(test_optimized_access_comes_first),
	UNIT(test_without_access_io_waits_for_it),
	UNIT(test_without_access_io_ends_when_its_bdev_goes),
	UNIT(test_without_access_io_fails_when_there_is_no_hope),
	UNIT(test_io_waits_for_a_controller_that_had_no_access_when_it_was_lost),
	UNIT(test_round_robin_spreads),
	UNIT(test_queue_depth_takes_the_less_busy_one),
	UNIT_END,
};
UNIT_MAIN("bdev_nvme_multipath", tests, drive_setup, drive_teardown)
