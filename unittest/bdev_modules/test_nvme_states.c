/* SPDX-License-Identifier: BSD-3-Clause */
/* A fault at each change of state of a controller with bdevs and of its queue pairs, under verified I/O on three
 * threads: in the end the controller is up again, or detached with its bdevs, and no data is lost or wrong. The faults
 * are caused from the probes of the state machines. */
#include <errno.h>
#include <string.h>

#include "bdev_modules/nvme/internal.h"
#include "unittest/bdev_modules/nvme_fixture.h"
#include "usdt/usdt.h"

enum machine { CTRLR, QPAIR };

static struct {
	enum machine machine;
	uint32_t old, now;
	void (*strike)(void); /* to be called once, at that change; NULL: has been called */
	struct thread_timer timer;
	struct wait detached, disabled, disabled_too;
	bool detaching, disabling;
} plan;

static void look(enum machine machine, uint32_t old, uint32_t now)
{
	void (*strike)(void) = plan.strike;

	if (machine == plan.machine && old == plan.old && now == plan.now && strike != NULL) {
		plan.strike = NULL;
		strike();
	}
}

void __real_usdt_fire_bdev_nvme_state(uint64_t tsc, const char *name, const char *at, uint32_t old, uint32_t now);
void __wrap_usdt_fire_bdev_nvme_state(uint64_t tsc, const char *name, const char *at, uint32_t old, uint32_t now);
void __wrap_usdt_fire_bdev_nvme_state(uint64_t tsc, const char *name, const char *at, uint32_t old, uint32_t now)
{
	look(CTRLR, old, now);
	__real_usdt_fire_bdev_nvme_state(tsc, name, at, old, now);
}

void __real_usdt_fire_bdev_nvme_qpair_state(uint64_t tsc, const char *name, uint64_t thread, uint32_t old,
					    uint32_t now);
void __wrap_usdt_fire_bdev_nvme_qpair_state(uint64_t tsc, const char *name, uint64_t thread, uint32_t old,
					    uint32_t now);
void __wrap_usdt_fire_bdev_nvme_qpair_state(uint64_t tsc, const char *name, uint64_t thread, uint32_t old, uint32_t now)
{
	look(QPAIR, old, now);
	__real_usdt_fire_bdev_nvme_qpair_state(tsc, name, thread, old, now);
}

/* --- Faults --- */

static void strike_nothing(void)
{
}

static void strike_refused(void)
{
	model.fault = (struct model_fault){
		.kind = MODEL_FAULT_STATUS, .opcode = -1, .count = 1, .status = NVME_ST(GENERIC, INTERNAL)};
}

static void strike_deaf(void)
{
	model.fault = (struct model_fault){.kind = MODEL_FAULT_DEAF, .opcode = -1, .count = 1};
}

static void strike_fatal(void)
{
	*(volatile uint32_t *)(model.regs + NVME_REG_CSTS) |= 2;
}

static void strike_removed(void)
{
	model_remove(&model);
}

/* As soon as the change is over, since users do not call from within one. */
static void detach_now(void *arg)
{
	bdev_nvme_detach(nvme, ended, &plan.detached);
}

static void strike_detach(void)
{
	plan.detaching = true;
	plan.timer = (struct thread_timer){.fn = detach_now};
	thread_timer_start(&plan.timer, 0);
}

/* The second one joins the first. */
static void disable_now(void *arg)
{
	bdev_nvme_disable(nvme, ended, &plan.disabled);
	bdev_nvme_disable(nvme, ended, &plan.disabled_too);
}

static void strike_disable(void)
{
	plan.disabling = true;
	plan.timer = (struct thread_timer){.fn = disable_now};
	thread_timer_start(&plan.timer, 0);
}

/* --- Runs --- */

/* The changes of state in a reset. */
static const struct change {
	enum machine machine;
	uint32_t old, now;
} changes[] = {
	{CTRLR, BDEV_NVME_UP, BDEV_NVME_DOWN},
	{CTRLR, BDEV_NVME_DOWN, BDEV_NVME_UP},
	{QPAIR, BDEV_NVME_QPAIR_UP, BDEV_NVME_QPAIR_STOPPING},
	{QPAIR, BDEV_NVME_QPAIR_STOPPING, BDEV_NVME_QPAIR_IDLE},
	{QPAIR, BDEV_NVME_QPAIR_IDLE, BDEV_NVME_QPAIR_CONNECTING},
	{QPAIR, BDEV_NVME_QPAIR_CONNECTING, BDEV_NVME_QPAIR_UP},
};
#define CHANGES (sizeof(changes) / sizeof(changes[0]))

static void begin(void)
{
	struct bdev_nvme_attach a = attach_opts();
	struct bdev_nvme_options o;

	memset(&plan, 0, sizeof(plan));
	drive_begin();
	bdev_nvme_default_options(&o);
	o.timeout_us = o.timeout_admin_us = 1000000;
	CU_ASSERT_EQUAL(bdev_nvme_set_options(&o, last_error), 0);
	a.ctrlr_loss_timeout_sec = -1;
	a.reconnect_delay_sec = 1;
	CU_ASSERT_EQUAL_FATAL(attach_with(&a), 0);
	workers_start();
	workers_progress(10);
}

static void strike_at(const struct change *c, void (*strike)(void))
{
	plan.machine = c->machine;
	plan.old = c->old;
	plan.now = c->now;
	plan.strike = strike;
}

static bool has_struck(void *unused)
{
	return plan.strike == NULL;
}

static void test_controller_is_up_again_after_a_fault_at_any_change(void)
{
	static void (*const strikes[])(void) = {strike_nothing, strike_refused, strike_deaf, strike_fatal};

	for (unsigned s = 0; s < sizeof(strikes) / sizeof(strikes[0]); s++) {
		for (unsigned i = 0; i < CHANGES; i++) {
			struct wait w = {0};

			begin();
			strike_at(&changes[i], strikes[s]);
			bdev_nvme_reset(nvme, ended, &w);
			CU_ASSERT(thread_control_wait(is_done, &w, WAIT_US));
			CU_ASSERT(thread_control_wait(has_struck, NULL, WAIT_US));
			CU_ASSERT(fixture_poll(is_up, NULL));
			workers_progress(10);
			CU_ASSERT_EQUAL(count_errors(), 0);
			workers_stop();
			model.fault.kind = MODEL_FAULT_NONE; /* if no command came that the fault applied to */
			drive_end();
		}
	}
}

static void test_controller_that_is_pulled_out_at_any_change_takes_its_bdevs_along(void)
{
	for (unsigned i = 0; i < CHANGES; i++) {
		struct wait w = {0};

		begin();
		strike_at(&changes[i], strike_removed);
		bdev_nvme_reset(nvme, ended, &w);
		CU_ASSERT(thread_control_wait(is_done, &w, WAIT_US));
		CU_ASSERT(fixture_poll(workers_told, NULL));
		workers_stop();
		CU_ASSERT_PTR_NULL(plan.strike);
		nvme = NULL;
		drive_end();
		CU_ASSERT_PTR_NULL(bdev_find("Nvme0n1"));
	}
}

static void test_controller_is_detached_at_any_change(void)
{
	for (unsigned i = 0; i < CHANGES; i++) {
		struct wait w = {0};

		begin();
		strike_at(&changes[i], strike_detach);
		bdev_nvme_reset(nvme, ended, &w);
		CU_ASSERT(thread_control_wait(is_done, &w, WAIT_US));
		CU_ASSERT(fixture_poll(workers_told, NULL));
		workers_stop();
		CU_ASSERT(plan.detaching && thread_control_wait(is_done, &plan.detached, WAIT_US));
		CU_ASSERT_EQUAL(plan.detached.rc, 0);
		nvme = NULL;
		drive_end();
		CU_ASSERT_PTR_NULL(bdev_find("Nvme0n1"));
	}
}

static bool counts_down(void *rounds)
{
	return --*(unsigned *)rounds == 0;
}

/* Would it be connected, it would be by now. */
static void pass_rounds(void)
{
	unsigned rounds = 1000;

	CU_ASSERT(thread_control_wait(counts_down, &rounds, WAIT_US));
}

static bool is_disabled(void *unused)
{
	return strcmp(bdev_nvme_state_name(nvme), "disabled") == 0;
}

static void disabled_check_refusals(void)
{
	struct wait w = {0};

	bdev_nvme_disable(nvme, ended, &w);
	CU_ASSERT(w.done && w.rc == -EALREADY);
	w = (struct wait){0};
	bdev_nvme_reset(nvme, ended, &w);
	CU_ASSERT(w.done && w.rc == -EALREADY);
	CU_ASSERT(is_disabled(NULL));
}

static void enable_and_check(void)
{
	struct wait w = {0};

	bdev_nvme_enable(nvme, ended, &w);
	CU_ASSERT(thread_control_wait(is_done, &w, WAIT_US));
	CU_ASSERT_EQUAL(w.rc, 0);
	CU_ASSERT(is_up(NULL));
	w = (struct wait){0};
	bdev_nvme_enable(nvme, ended, &w);
	CU_ASSERT(w.done && w.rc == -EALREADY);
}

/* Whatever is under way in a reset when it is asked for: the controller is disabled and stays so, its I/O fails with
 * path errors and never with wrong data, and it works again when it is enabled. */
static void test_controller_is_disabled_at_any_change_and_enabled_again(void)
{
	for (unsigned i = 0; i < CHANGES; i++) {
		struct wait w = {0};

		begin();
		strike_at(&changes[i], strike_disable);
		bdev_nvme_reset(nvme, ended, &w);
		CU_ASSERT(thread_control_wait(is_done, &w, WAIT_US));
		CU_ASSERT(thread_control_wait(has_struck, NULL, WAIT_US));
		CU_ASSERT(thread_control_wait(is_done, &plan.disabled, WAIT_US) && plan.disabled.rc == 0);
		CU_ASSERT(plan.disabled_too.done && plan.disabled_too.rc == 0);
		CU_ASSERT(is_disabled(NULL));
		disabled_check_refusals();
		enable_and_check();
		workers_progress(10);
		workers_stop();
		drive_end();
	}
}

/* While it waits for its next attempt. An attempt to enable it that fails leaves it to its timeouts, as any loss. */
static void test_controller_that_cannot_be_connected_is_disabled_too(void)
{
	begin();
	model.refuse_enable = true;
	CU_ASSERT_EQUAL(drive_reset(), -EIO);
	CU_ASSERT_STRING_EQUAL(bdev_nvme_state_name(nvme), "reconnect_is_delayed");
	disable_now(NULL);
	CU_ASSERT(thread_control_wait(is_done, &plan.disabled, WAIT_US) && plan.disabled.rc == 0);
	disabled_check_refusals();
	struct wait w = {0};
	bdev_nvme_enable(nvme, ended, &w);
	CU_ASSERT(thread_control_wait(is_done, &w, WAIT_US));
	CU_ASSERT_EQUAL(w.rc, -EIO);
	CU_ASSERT(!is_disabled(NULL));
	model.refuse_enable = false;
	CU_ASSERT(fixture_poll(is_up, NULL));
	workers_progress(10);
	workers_stop();
	drive_end();
}

/* In one turn of the control thread: an attempt to connect it is asked for, and it is disabled before that begins. */
static void test_controller_that_is_disabled_before_its_attempt_begins_stays_disabled(void)
{
	struct wait enabled = {0}, reset = {0}, disabled = {0};
	struct bdev_nvme_options o;

	begin();
	disable_now(NULL);
	CU_ASSERT(thread_control_wait(is_done, &plan.disabled, WAIT_US) && plan.disabled.rc == 0);
	bdev_nvme_enable(nvme, ended, &enabled);
	bdev_nvme_disable(nvme, ended, &disabled);
	CU_ASSERT(disabled.done && disabled.rc == 0);
	CU_ASSERT(enabled.done && enabled.rc == -EIO);
	pass_rounds();
	disabled_check_refusals();
	enable_and_check();
	workers_progress(10);
	workers_stop();
	drive_end();

	drive_begin(); /* given up, as it cannot be connected */
	bdev_nvme_default_options(&o);
	CU_ASSERT_EQUAL(bdev_nvme_set_options(&o, last_error), 0);
	struct bdev_nvme_attach a = attach_opts();
	CU_ASSERT_EQUAL_FATAL(attach_with(&a), 0);
	model.refuse_enable = true;
	CU_ASSERT_EQUAL(drive_reset(), -EIO);
	CU_ASSERT_STRING_EQUAL(bdev_nvme_state_name(nvme), "failed");
	model.refuse_enable = false;
	disabled = (struct wait){0};
	bdev_nvme_reset(nvme, ended, &reset);
	bdev_nvme_disable(nvme, ended, &disabled);
	CU_ASSERT(disabled.done && disabled.rc == 0);
	CU_ASSERT(reset.done && reset.rc == -EIO);
	pass_rounds();
	disabled_check_refusals();
	enable_and_check();
	drive_end();
}

/* Its commands have not ended when it is only being disabled. */
static void test_reset_waits_until_a_controller_is_disabled(void)
{
	struct wait reset = {0};

	begin();
	disable_now(NULL);
	bdev_nvme_reset(nvme, ended, &reset);
	CU_ASSERT_FALSE(reset.done);
	CU_ASSERT(thread_control_wait(is_done, &reset, WAIT_US));
	CU_ASSERT_EQUAL(reset.rc, -EIO);
	CU_ASSERT(thread_control_wait(is_done, &plan.disabled, WAIT_US) && plan.disabled.rc == 0);
	CU_ASSERT(is_disabled(NULL));
	disabled_check_refusals();
	enable_and_check();
	workers_progress(10);
	workers_stop();
	drive_end();
}

static void test_disabled_controller_is_detached(void)
{
	for (unsigned under_way = 0; under_way < 2; under_way++) {
		begin();
		disable_now(NULL);
		CU_ASSERT(under_way || thread_control_wait(is_done, &plan.disabled, WAIT_US));
		bdev_nvme_detach(nvme, ended, &plan.detached);
		CU_ASSERT(fixture_poll(workers_told, NULL));
		workers_stop();
		CU_ASSERT(thread_control_wait(is_done, &plan.detached, WAIT_US) && plan.detached.rc == 0);
		CU_ASSERT(plan.disabled.done && plan.disabled.rc == (under_way ? -ENODEV : 0));
		nvme = NULL;
		drive_end();
		CU_ASSERT_PTR_NULL(bdev_find("Nvme0n1"));
	}
}

/* Queue pairs stop while a controller is detached; a fault at that time does not prevent the detach. */
static void test_faults_of_a_controller_that_is_being_detached_do_not_keep_it(void)
{
	static const struct change ends[] = {{CTRLR, BDEV_NVME_UP, BDEV_NVME_DETACHING},
					     {QPAIR, BDEV_NVME_QPAIR_UP, BDEV_NVME_QPAIR_STOPPING},
					     {QPAIR, BDEV_NVME_QPAIR_STOPPING, BDEV_NVME_QPAIR_IDLE}};
	static void (*const strikes[])(void) = {strike_nothing, strike_refused, strike_deaf, strike_fatal,
						strike_removed};

	for (unsigned s = 0; s < sizeof(strikes) / sizeof(strikes[0]); s++) {
		for (unsigned i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
			struct wait w = {0};

			begin();
			strike_at(&ends[i], strikes[s]);
			bdev_nvme_detach(nvme, ended, &w);
			CU_ASSERT(fixture_poll(workers_told, NULL));
			workers_stop();
			CU_ASSERT(thread_control_wait(is_done, &w, WAIT_US));
			CU_ASSERT_PTR_NULL(plan.strike);
			nvme = NULL;
			drive_end();
			CU_ASSERT_PTR_NULL(bdev_find("Nvme0n1"));
		}
	}
}

static const struct unit_test tests[] = {
	UNIT(test_controller_is_up_again_after_a_fault_at_any_change),
	UNIT(test_controller_that_is_pulled_out_at_any_change_takes_its_bdevs_along),
	UNIT(test_controller_is_detached_at_any_change),
	UNIT(test_faults_of_a_controller_that_is_being_detached_do_not_keep_it),
	UNIT(test_controller_is_disabled_at_any_change_and_enabled_again),
	UNIT(test_controller_that_cannot_be_connected_is_disabled_too),
	UNIT(test_controller_that_is_disabled_before_its_attempt_begins_stays_disabled),
	UNIT(test_reset_waits_until_a_controller_is_disabled),
	UNIT(test_disabled_controller_is_detached),
	UNIT_END,
};

static int setup(void)
{
	varve_bdev_nvme_state_semaphore++;
	varve_bdev_nvme_qpair_state_semaphore++;
	return drive_setup();
}

UNIT_MAIN("bdev_nvme_states", tests, setup, drive_teardown)
