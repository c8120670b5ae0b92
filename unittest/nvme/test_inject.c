/* SPDX-License-Identifier: BSD-3-Clause */
/* Injected errors (nvme/inject.c), on the model controller. */
#include "unittest/nvme/fixture.h"

#include <errno.h>

#define MEDIA NVME_ST(MEDIA, READ_ERROR)

static struct nvme_injection on_reads(bool hold, uint64_t delay_us, uint32_t times)
{
	return (struct nvme_injection){.io = true,
				       .opcode = nvme_cmd_read,
				       .hold = hold,
				       .delay_us = delay_us,
				       .times = times,
				       .status = MEDIA};
}

static int inject(struct nvme_injection i)
{
	return nvme_ctrlr_inject(fx.ctrlr, &i);
}

static void test_status_is_replaced_so_many_times(void)
{
	fx_begin_ready(15);
	CU_ASSERT_EQUAL(inject(on_reads(false, 0, 2)), 0);
	for (unsigned i = 0; i < 3; i++) {
		CU_ASSERT_EQUAL(fx_submit(i, nvme_cmd_read, 1, i, 1), 0);
	}
	CU_ASSERT_EQUAL(fx_submit(3, nvme_cmd_write, 1, 0, 1), 0);
	fx_run();
	CU_ASSERT_EQUAL(fx.io[0].status, MEDIA);
	CU_ASSERT_EQUAL(fx.io[1].status, MEDIA);
	CU_ASSERT_EQUAL(fx.io[2].status, 0);
	CU_ASSERT_EQUAL(fx.io[3].status, 0);
	CU_ASSERT_EQUAL(fx.model.commands[nvme_cmd_read], 3); /* they were sent */
	fx_end();
}

static void test_held_commands_are_completed_without_being_sent(void)
{
	fx_begin_ready(15);
	CU_ASSERT_EQUAL(inject(on_reads(true, 0, 3)), 0);
	for (unsigned i = 0; i < 4; i++) {
		CU_ASSERT_EQUAL(fx_submit(i, nvme_cmd_read, 1, i, 1), 0);
	}
	CU_ASSERT_EQUAL(fx.io[0].completions, 0); /* never within the submission */
	CU_ASSERT(
		FX_WAIT(fx.io[0].completions && fx.io[1].completions && fx.io[2].completions && fx.io[3].completions));
	CU_ASSERT_EQUAL(fx.io[0].status, MEDIA);
	CU_ASSERT_EQUAL(fx.io[2].status, MEDIA);
	CU_ASSERT_EQUAL(fx.io[3].status, 0);
	CU_ASSERT_EQUAL(fx.model.commands[nvme_cmd_read], 1);
	fx_end();
}

static void test_success_can_be_forged(void)
{
	struct nvme_injection i = {.io = true, .opcode = nvme_cmd_flush, .hold = true, .times = 1};

	fx_begin_ready(15);
	CU_ASSERT_EQUAL(inject(i), 0);
	CU_ASSERT_EQUAL(fx_submit(0, nvme_cmd_flush, 1, 0, 1), 0);
	CU_ASSERT(FX_WAIT(fx.io[0].completions));
	CU_ASSERT_EQUAL(fx.io[0].status, 0);
	CU_ASSERT_EQUAL(fx.model.commands[nvme_cmd_flush], 0);
	fx_end();
}

/* The buffer may have another host's data. */
static void test_a_forged_read_is_of_zeroes(void)
{
	struct nvme_injection i = {.io = true, .opcode = nvme_cmd_read, .hold = true, .times = 1};
	unsigned other = 0;

	fx_begin_ready(15);
	memset(fx.io[0].buf, 0xd7, 512);
	memset(fx.io[1].buf, 0xd7, 512);
	CU_ASSERT_EQUAL(inject(i), 0);
	CU_ASSERT_EQUAL(fx_submit(0, nvme_cmd_read, 1, 0, 1), 0);
	CU_ASSERT(FX_WAIT(fx.io[0].completions));
	CU_ASSERT_EQUAL(fx.io[0].status, 0);
	CU_ASSERT_EQUAL(inject(on_reads(true, 0, 1)), 0); /* an error: nobody looks at the data */
	CU_ASSERT_EQUAL(fx_submit(1, nvme_cmd_read, 1, 0, 1), 0);
	CU_ASSERT(FX_WAIT(fx.io[1].completions));
	for (unsigned b = 0; b < 512; b++) {
		other += fx.io[0].buf[b] != 0 || fx.io[1].buf[b] != 0xd7;
	}
	CU_ASSERT_EQUAL(other, 0);
	fx_end();
}

static void test_held_commands_do_not_hold_up_each_other(void)
{
	fx_begin_ready(15);
	CU_ASSERT_EQUAL(inject(on_reads(true, UINT64_C(1) << 40, 1)), 0); /* longer than any test */
	CU_ASSERT_EQUAL(fx_submit(0, nvme_cmd_read, 1, 0, 1), 0);
	CU_ASSERT_EQUAL(inject(on_reads(true, 1000, 1)), 0);
	CU_ASSERT_EQUAL(fx_submit(1, nvme_cmd_read, 1, 0, 1), 0);
	CU_ASSERT(FX_WAIT(fx.io[1].completions));
	CU_ASSERT_EQUAL(fx.io[0].completions, 0);
	fx_end(); /* which completes it */
	CU_ASSERT_EQUAL(fx.io[0].status, NVME_ST(GENERIC, ABORT_QUEUE));
}

static void test_reset_completes_what_is_held_and_keeps_the_rules(void)
{
	fx_begin_ready(15);
	CU_ASSERT_EQUAL(inject(on_reads(true, UINT64_C(1) << 40, 1)), 0);
	CU_ASSERT_EQUAL(fx_submit(0, nvme_cmd_read, 1, 0, 1), 0);
	CU_ASSERT_EQUAL(inject(on_reads(false, 0, 1)), 0);
	CU_ASSERT_EQUAL(nvme_ctrlr_reset(fx.ctrlr), 0);
	CU_ASSERT(FX_WAIT(fx.ready == 2));
	CU_ASSERT_EQUAL(fx.io[0].completions, 1);
	fx_create_qpair(15);
	CU_ASSERT_EQUAL(fx_submit(1, nvme_cmd_read, 1, 0, 1), 0);
	CU_ASSERT(FX_WAIT(fx.io[1].completions));
	CU_ASSERT_EQUAL(fx.io[1].status, MEDIA);
	fx_end();
}

static void test_held_command_without_end_is_timed_out(void)
{
	fx_begin();
	fx_connect();
	fx_be_quick();
	fx_create_qpair(15);
	CU_ASSERT_EQUAL(inject(on_reads(true, UINT64_C(1) << 40, 1)), 0);
	CU_ASSERT_EQUAL(fx_submit(0, nvme_cmd_read, 1, 0, 1), 0);
	CU_ASSERT(FX_WAIT(fx.down == 1)); /* the drive's Abort finds nothing, so a reset ends it */
	CU_ASSERT(FX_WAIT(fx.ready == 2));
	CU_ASSERT_EQUAL(fx.io[0].completions, 1);
	fx_end();
}

static void admin_done(void *arg, const struct nvme_cqe *cqe)
{
	*(int *)arg = nvme_cqe_status(cqe);
}

static void test_admin_commands_fail_on_demand(void)
{
	struct nvme_sqe cmd = {.opcode = nvme_admin_get_features, .cdw10 = htole32(NVME_FEAT_FID_NUM_QUEUES)};
	int status = -1;

	fx_begin_ready(15);
	CU_ASSERT_EQUAL(inject((struct nvme_injection){.opcode = nvme_admin_get_features, .times = 1, .status = 6}), 0);
	CU_ASSERT_EQUAL(nvme_ctrlr_admin(fx.ctrlr, &cmd, NULL, 0, false, admin_done, &status), 0);
	CU_ASSERT(FX_WAIT(status >= 0));
	CU_ASSERT_EQUAL(status, 6);
	fx_end();
}

static void test_rule_can_be_ended(void)
{
	fx_begin_ready(15);
	CU_ASSERT_EQUAL(nvme_ctrlr_inject_end(fx.ctrlr, true, nvme_cmd_read), -ENOENT);
	CU_ASSERT_EQUAL(inject(on_reads(false, NVME_INJECTION_DELAY_MAX_US + 1, 1)), -EINVAL);
	CU_ASSERT_EQUAL(inject(on_reads(false, 0, 9)), 0);
	CU_ASSERT_EQUAL(nvme_ctrlr_inject_end(fx.ctrlr, false, nvme_cmd_read), -ENOENT);
	CU_ASSERT_EQUAL(nvme_ctrlr_inject_end(fx.ctrlr, true, nvme_cmd_read), 0);
	CU_ASSERT_EQUAL(nvme_ctrlr_inject_end(fx.ctrlr, true, nvme_cmd_read), -ENOENT);
	CU_ASSERT_EQUAL(fx_submit(0, nvme_cmd_read, 1, 0, 1), 0);
	fx_run();
	CU_ASSERT_EQUAL(fx.io[0].status, 0);
	fx_end();
}

static const struct unit_test tests[] = {
	UNIT(test_status_is_replaced_so_many_times),
	UNIT(test_held_commands_are_completed_without_being_sent),
	UNIT(test_success_can_be_forged),
	UNIT(test_a_forged_read_is_of_zeroes),
	UNIT(test_held_commands_do_not_hold_up_each_other),
	UNIT(test_reset_completes_what_is_held_and_keeps_the_rules),
	UNIT(test_held_command_without_end_is_timed_out),
	UNIT(test_admin_commands_fail_on_demand),
	UNIT(test_rule_can_be_ended),
	UNIT_END,
};
UNIT_MAIN("nvme_inject", tests, fx_setup, fx_teardown)
