/* SPDX-License-Identifier: BSD-3-Clause */
/* A fault in each state of a local controller's life: it comes up at the next attempt, or is told as removed, whatever
 * struck it and whenever. The probe of the state machine, which is called in the midst of each change, is where the
 * faults come from.
 *
 * AUTHENTICATE, and the steps of a controller that is reached over a fabric, are the fault sweep's (doc/faults.md). */
#include "unittest/nvme/fixture.h"

#include <errno.h>
#include <string.h>

#include "nvme/internal.h"
#include "usdt/usdt.h"

#define ALL(s) (UINT32_C(1) << NVME_CTRLR_##s)
/* States that wait for CSTS, for a command, and for neither. */
#define WAITS     (ALL(WAIT_READY_OLD) | ALL(WAIT_DISABLED) | ALL(WAIT_READY))
#define COMMANDS  (ALL(IDENTIFY) | ALL(SET_QUEUES) | ALL(SET_AER) | ALL(SCAN_NS))
#define REGISTERS (ALL(CONNECT) | ALL(READ_CAP) | ALL(READ_VS) | ALL(CHECK_CC) | ALL(DISABLE) | ALL(ENABLE))
#define COMING_UP (WAITS | COMMANDS | REGISTERS)

static struct {
	enum nvme_ctrlr_state at;
	void (*strike)(void); /* called once, when `at` is entered; NULL: it has been called */
	unsigned failures;    /* attempts that have ended, each with its reason */
} plan;

static volatile uint32_t *reg(uint32_t offset)
{
	return (volatile uint32_t *)(fx.model.regs + offset);
}

static void be_slow(void)
{
	struct nvme_ctrlr_opts *o = fx.ctrlr != NULL ? &fx.ctrlr->opts : &fx.opts;

	o->admin_timeout_ms = o->connect_timeout_ms = o->io_timeout_ms = WAIT_US / 1000;
}

void __real_usdt_fire_nvme_ctrlr_state(uint64_t tsc, const char *at, const char *nqn, uint32_t old, uint32_t now);
void __wrap_usdt_fire_nvme_ctrlr_state(uint64_t tsc, const char *at, const char *nqn, uint32_t old, uint32_t now);
void __wrap_usdt_fire_nvme_ctrlr_state(uint64_t tsc, const char *at, const char *nqn, uint32_t old, uint32_t now)
{
	void (*strike)(void) = plan.strike;

	model_step(&fx.model); /* a drive sees each write of a register, not the last of two */
	if (now == NVME_CTRLR_BACK_OFF || now == NVME_CTRLR_FAILED || now == NVME_CTRLR_REMOVED) {
		plan.failures++;
		CU_ASSERT(fx.ctrlr == NULL || nvme_ctrlr_last_error(fx.ctrlr)[0] != '\0');
		fx.model.refuse_enable = fx.model.refuse_disable = false; /* the next attempt shall succeed, */
		be_slow();                                                /* also on a busy machine */
	}
	if (now == plan.at && strike != NULL) {
		plan.strike = NULL;
		strike();
	}
	__real_usdt_fire_nvme_ctrlr_state(tsc, at, nqn, old, now);
}

/* --- Faults --- */

static void next_command(enum model_fault_kind kind)
{
	/* but not the requests for events, which need no answer: they are sent before the namespaces are read */
	fx.model.fault = (struct model_fault){.kind = kind,
					      .opcode = plan.at == NVME_CTRLR_SCAN_NS ? nvme_admin_identify : -1,
					      .count = 1,
					      .status = NVME_ST(GENERIC, INTERNAL)};
}

static void strike_status(void)
{
	next_command(MODEL_FAULT_STATUS);
}

static void strike_deaf(void)
{
	next_command(MODEL_FAULT_DEAF);
}

static void strike_duplicate(void)
{
	next_command(MODEL_FAULT_DUPLICATE);
}

static void strike_unknown(void)
{
	next_command(MODEL_FAULT_UNKNOWN_CID);
}

static void strike_fatal_command(void)
{
	next_command(MODEL_FAULT_CFS);
}

static void strike_removed_command(void)
{
	next_command(MODEL_FAULT_REMOVED);
}

static void strike_fatal(void)
{
	*reg(NVME_REG_CSTS) |= 2;
}

static void strike_removed(void)
{
	model_remove(&fx.model);
}

static void strike_stuck(void)
{
	fx.model.refuse_enable = fx.model.refuse_disable = true;
}

static void strike_nothing(void)
{
}

/* --- Runs --- */

static void begin(enum nvme_ctrlr_state at, void (*strike)(void))
{
	memset(&plan, 0, sizeof(plan));
	plan.at = at;
	plan.strike = strike;
	fx_begin();
	if (strike != strike_nothing) {
		fx_be_quick();
		fx.opts.io_timeout_ms = 200;
	}
	fx.opts.loss_timeout_s = -1;
	if (at == NVME_CTRLR_DISABLE || at == NVME_CTRLR_WAIT_READY_OLD) { /* left enabled by another driver */
		*reg(NVME_REG_CC) = 1 | 6 << 16 | 4 << 20;
		fx.model.cc = *reg(NVME_REG_CC);
		*reg(NVME_REG_CSTS) = at == NVME_CTRLR_DISABLE;
	}
}

static void attach(void)
{
	const struct nvme_trid trid = {.trtype = NVME_TRTYPE_PCIE, .traddr = "0000:00:04.0"};
	char error[NVME_ERROR_MAX];

	fx.ctrlr = nvme_ctrlr_create(&trid, &fx.opts, error);
	CU_ASSERT_PTR_NOT_NULL_FATAL(fx.ctrlr);
}

static bool is_settled(bool fails)
{
	return plan.strike == NULL && (!fails || plan.failures > 0) && nvme_ctrlr_state(fx.ctrlr) == NVME_CTRLR_READY;
}

static void check_io(void)
{
	unsigned before = fx.io[0].completions;

	fx.model.fault.kind = MODEL_FAULT_NONE; /* if no command came that the fault could hit */
	fx_create_qpair(15);
	CU_ASSERT_PTR_NOT_NULL_FATAL(fx.qpair);
	CU_ASSERT_EQUAL(fx_submit(0, nvme_cmd_read, 1, 0, 8), 0);
	nvme_qpair_flush(fx.qpair);
	CU_ASSERT(FX_WAIT(fx.io[0].completions == before + 1));
	CU_ASSERT_EQUAL(fx.io[0].status, 0);
}

/* In each of the states: it is ready in the end, and does I/O. fails: an attempt, or a connection, has ended before
 * that. */
static void sweep(uint32_t at, void (*strike)(void), bool fails)
{
	for (enum nvme_ctrlr_state s = 0; s < NVME_CTRLR_STATES; s++) {
		if ((at & UINT32_C(1) << s) == 0) {
			continue;
		}
		begin(s, strike);
		attach();
		CU_ASSERT(FX_WAIT(is_settled(fails)));
		CU_ASSERT_EQUAL(fx.removed, 0);
		CU_ASSERT_EQUAL(fx.ready, 1 + fx.down);
		CU_ASSERT_EQUAL(fx.retry + fx.down, plan.failures);
		check_io();
		fx_end();
	}
}

static void test_no_fault_is_no_failure(void)
{
	sweep(COMING_UP, strike_nothing, false);
	CU_ASSERT_EQUAL(plan.failures, 0);
}

static void test_step_that_is_answered_with_an_error_is_tried_again(void)
{
	sweep(COMMANDS & ~ALL(SET_AER), strike_status, true);
	sweep(ALL(SET_AER), strike_status, false); /* the controller is used also without its events */
}

static void test_step_without_an_answer_is_tried_again(void)
{
	sweep(COMMANDS, strike_deaf, true);
	sweep(ALL(ENABLE), strike_stuck, true); /* it waits for CSTS.RDY in the next state */
}

static void test_step_that_is_answered_wrongly_is_tried_again(void)
{
	sweep(COMMANDS, strike_duplicate, true);
	sweep(COMMANDS & ~ALL(IDENTIFY), strike_unknown, true); /* Identify has the id of this completion */
}

static void test_fatal_status_in_any_state_is_survived(void)
{
	/* before CC.EN is set, a fatal status is no failure: a reset ends it */
	sweep(COMING_UP & ~COMMANDS, strike_fatal, false);
	sweep(COMMANDS, strike_fatal, true);
	sweep(COMMANDS, strike_fatal_command, true);
}

static void test_removal_in_any_state_is_told_once(void)
{
	for (enum nvme_ctrlr_state s = 0; s < NVME_CTRLR_STATES; s++) {
		for (int by_command = 0; by_command < 2; by_command++) {
			if (((by_command ? COMMANDS : COMING_UP | ALL(READY)) & UINT32_C(1) << s) == 0) {
				continue;
			}
			begin(s, by_command ? strike_removed_command : strike_removed);
			attach();
			CU_ASSERT(FX_WAIT(fx.removed == 1));
			CU_ASSERT_EQUAL(fx.ready, s == NVME_CTRLR_READY);
			CU_ASSERT_EQUAL(nvme_ctrlr_state(fx.ctrlr), NVME_CTRLR_REMOVED);
			fx_end();
			CU_ASSERT_EQUAL(fx.removed, 1);
		}
	}
}

/* Runs until the operation of the state is under way, and gets no answer. */
static void hang_in(enum nvme_ctrlr_state s)
{
	bool waits = s == NVME_CTRLR_WAIT_READY;

	begin(waits ? NVME_CTRLR_ENABLE : s, waits ? strike_stuck : strike_deaf);
	fx.opts.admin_timeout_ms = WAIT_US / 1000;
	attach();
	CU_ASSERT(FX_WAIT(plan.strike == NULL && nvme_ctrlr_state(fx.ctrlr) == s && (waits || fx.model.num_held == 1)));
}

static void test_whatever_is_asked_of_it_in_the_midst_of_a_step_ends(void)
{
	for (enum nvme_ctrlr_state s = 0; s < NVME_CTRLR_STATES; s++) {
		if (((ALL(WAIT_READY) | COMMANDS) & UINT32_C(1) << s) == 0) {
			continue;
		}
		hang_in(s); /* destroyed */
		fx_end();
		CU_ASSERT_EQUAL(fx.ready + fx.removed + fx.failed, 0);
		hang_in(s); /* reset: an attempt is under way already */
		CU_ASSERT_EQUAL(nvme_ctrlr_reset(fx.ctrlr), -EBUSY);
		CU_ASSERT_EQUAL(nvme_ctrlr_reset_subsystem(fx.ctrlr), -EBUSY);
		CU_ASSERT_EQUAL(nvme_ctrlr_state(fx.ctrlr), s);
		nvme_ctrlr_removed(fx.ctrlr); /* announced by the bus */
		nvme_ctrlr_removed(fx.ctrlr);
		CU_ASSERT(FX_WAIT(fx.removed == 1));
		fx_end();
		CU_ASSERT_EQUAL(fx.removed, 1);
	}
}

static void test_faults_of_a_controller_that_is_shut_down_do_not_keep_it(void)
{
	static const enum nvme_ctrlr_state ends[] = {NVME_CTRLR_SHUTDOWN, NVME_CTRLR_WAIT_SHUTDOWN};
	static void (*const strikes[])(void) = {strike_fatal, strike_removed, strike_stuck, strike_nothing};

	for (unsigned s = 0; s < 2; s++) {
		for (unsigned i = 0; i < sizeof(strikes) / sizeof(strikes[0]); i++) {
			begin(ends[s], strikes[i]);
			attach();
			CU_ASSERT(FX_WAIT(fx.ready == 1));
			fx_end(); /* which waits for the end */
			CU_ASSERT_PTR_NULL(plan.strike);
			CU_ASSERT_EQUAL(fx.removed + fx.failed + fx.down, 0);
		}
	}
}

/* One attempt has failed, and the next one is far in the future, or there is none. */
static void fail_once(bool for_ever)
{
	begin(NVME_CTRLR_IDENTIFY, strike_status);
	fx.opts.loss_timeout_s = for_ever ? 0 : -1;
	fx.opts.reconnect_delay_s = 3600;
	attach();
	CU_ASSERT(FX_WAIT(fx.retry + fx.failed == 1));
	CU_ASSERT_EQUAL(nvme_ctrlr_state(fx.ctrlr), for_ever ? NVME_CTRLR_FAILED : NVME_CTRLR_BACK_OFF);
	CU_ASSERT_PTR_NOT_NULL(strstr(nvme_ctrlr_last_error(fx.ctrlr), "identify"));
}

static void test_controller_that_waits_for_its_next_attempt_is_reset_removed_or_destroyed(void)
{
	for (int for_ever = 0; for_ever < 2; for_ever++) {
		fail_once(for_ever);
		fx_end();
		CU_ASSERT_EQUAL(fx.removed, 0);
		fail_once(for_ever);
		nvme_ctrlr_removed(fx.ctrlr);
		CU_ASSERT(FX_WAIT(fx.removed == 1));
		fx_end();
		fail_once(for_ever);
		CU_ASSERT_EQUAL(nvme_ctrlr_reset(fx.ctrlr), for_ever ? 0 : -EBUSY);
		if (for_ever) {
			CU_ASSERT(FX_WAIT(fx.ready == 1));
			check_io();
		}
		fx_end();
	}
}

/* From READY, on the owner's request and by failures, so often that anything left over would show. */
static void test_ready_controller_comes_back_from_any_fault(void)
{
	begin(NVME_CTRLR_READY, strike_nothing);
	attach();
	CU_ASSERT(FX_WAIT(fx.ready == 1));
	for (unsigned i = 0; i < 12; i++) {
		unsigned ready = fx.ready;

		check_io();
		fx_be_quick(); /* a look at CSTS soon */
		if (i % 4 == 0) {
			CU_ASSERT_EQUAL(nvme_ctrlr_reset(fx.ctrlr), 0);
		} else if (i % 4 == 1) {
			strike_fatal();
		} else if (i % 4 == 2) {
			*reg(NVME_REG_CSTS) = 0;
		} else {
			nvme_ctrlr_lost(fx.ctrlr, "lost");
		}
		CU_ASSERT(FX_WAIT(fx.ready == ready + 1));
		CU_ASSERT_EQUAL(fx.down, i + 1);
	}
	fx_end();
}

/* --- Queue pairs --- */

static struct {
	uint32_t qid;
	char text[256];
} steps;

void __real_usdt_fire_nvme_qpair_state(uint64_t tsc, const char *at, uint32_t qid, uint32_t old, uint32_t now);
void __wrap_usdt_fire_nvme_qpair_state(uint64_t tsc, const char *at, uint32_t qid, uint32_t old, uint32_t now);
void __wrap_usdt_fire_nvme_qpair_state(uint64_t tsc, const char *at, uint32_t qid, uint32_t old, uint32_t now)
{
	size_t n = strlen(steps.text);

	CU_ASSERT_STRING_EQUAL(at, "0000:00:04.0");
	if (qid == steps.qid) {
		snprintf(steps.text + n, sizeof(steps.text) - n, "%s>%s ", nvme_qpair_state_name(old),
			 nvme_qpair_state_name(now));
	}
	__real_usdt_fire_nvme_qpair_state(tsc, at, qid, old, now);
}

static void follow(uint32_t qid)
{
	steps.qid = qid;
	steps.text[0] = '\0';
	begin(NVME_CTRLR_READY, strike_nothing);
	attach();
	CU_ASSERT(FX_WAIT(fx.ready == 1));
}

static void test_states_of_a_queue_pair_are_told_by_its_probe(void)
{
	follow(1);
	check_io();
	fx_end();
	CU_ASSERT_STRING_EQUAL(steps.text, "none>connecting connecting>ready ready>stopping stopping>freed ");
	follow(1);
	check_io();
	fx.model.fault = (struct model_fault){.kind = MODEL_FAULT_HUGE_CID, .qid = 1, .opcode = -1, .count = 1};
	CU_ASSERT_EQUAL(fx_submit(1, nvme_cmd_read, 1, 0, 8), 0);
	CU_ASSERT(FX_WAIT(fx.ready == 2));
	fx_end();
	CU_ASSERT_STRING_EQUAL(steps.text,
			       "none>connecting connecting>ready ready>failed failed>stopping stopping>freed ");
	follow(1);
	fx.model.fault = (struct model_fault){.kind = MODEL_FAULT_STATUS,
					      .qid = 0,
					      .opcode = nvme_admin_create_sq,
					      .count = 1,
					      .status = NVME_ST(GENERIC, INTERNAL)};
	fx_create_qpair(15);
	CU_ASSERT_PTR_NULL(fx.qpair);
	fx_end();
	CU_ASSERT_STRING_EQUAL(steps.text, "none>connecting connecting>failed failed>freed ");
	follow(0);
	fx_end();
	CU_ASSERT_STRING_EQUAL(steps.text, "none>connecting connecting>ready ready>failed failed>freed ");
}

static void test_the_last_delay_ends_with_the_loss_timeout(void)
{
	static const struct {
		uint32_t attempts;
		uint64_t down_us, delay_us;
	} rows[] = {{1, 0, 500000},  {2, 2500000, 2000000}, {3, 7000000, 3000000},
		    {9, 9999999, 1}, {9, 10000000, 0},      {9, 11000000, 0}};
	struct nvme_ctrlr_opts opts = {.loss_timeout_s = 10, .reconnect_delay_s = 2};

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		CU_ASSERT_EQUAL(nvme_back_off_us(&opts, rows[i].attempts, rows[i].down_us), rows[i].delay_us);
	}
	opts.loss_timeout_s = -1;
	CU_ASSERT_EQUAL(nvme_back_off_us(&opts, 3, 7000000), 4000000);
	CU_ASSERT_EQUAL(nvme_back_off_us(&opts, 9, UINT64_C(1) << 50), 16000000);
}

static const struct unit_test tests[] = {
	UNIT(test_no_fault_is_no_failure),
	UNIT(test_step_that_is_answered_with_an_error_is_tried_again),
	UNIT(test_step_without_an_answer_is_tried_again),
	UNIT(test_step_that_is_answered_wrongly_is_tried_again),
	UNIT(test_fatal_status_in_any_state_is_survived),
	UNIT(test_removal_in_any_state_is_told_once),
	UNIT(test_whatever_is_asked_of_it_in_the_midst_of_a_step_ends),
	UNIT(test_faults_of_a_controller_that_is_shut_down_do_not_keep_it),
	UNIT(test_controller_that_waits_for_its_next_attempt_is_reset_removed_or_destroyed),
	UNIT(test_ready_controller_comes_back_from_any_fault),
	UNIT(test_states_of_a_queue_pair_are_told_by_its_probe),
	UNIT(test_the_last_delay_ends_with_the_loss_timeout),
	UNIT_END,
};

static int setup(void)
{
	varve_nvme_ctrlr_state_semaphore++;
	varve_nvme_qpair_state_semaphore++;
	return fx_setup();
}

UNIT_MAIN("nvme_ctrlr_states", tests, setup, fx_teardown)
