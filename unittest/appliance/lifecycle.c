/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/lifecycle.h"
#include "unittest/unit.h"
#include "util/state_machine.h"

static void test_a_start_leads_to_running(void)
{
	enum appliance_state state = APPLIANCE_INIT;

	for (int steps = 0; state != APPLIANCE_RUNNING && steps < APPLIANCE_STATES; steps++) {
		int next = appliance_next_state(state, APPLIANCE_DONE);
		CU_ASSERT_TRUE_FATAL(next >= 0);
		state = (enum appliance_state)next;
	}
	CU_ASSERT_EQUAL(state, APPLIANCE_RUNNING);
}

static void test_waiting_for_rpc_is_between_rpc_and_config(void)
{
	CU_ASSERT_EQUAL(appliance_next_state(APPLIANCE_RPC, APPLIANCE_PAUSE), APPLIANCE_WAIT);
	CU_ASSERT_EQUAL(appliance_next_state(APPLIANCE_WAIT, APPLIANCE_DONE), APPLIANCE_CONFIG);
}

static void test_a_stop_passes_through_stopping(void)
{
	const enum appliance_state from[] = {APPLIANCE_RPC, APPLIANCE_WAIT, APPLIANCE_CONFIG, APPLIANCE_RUNNING};

	for (int i = 0; i < 4; i++) {
		CU_ASSERT_EQUAL(appliance_next_state(from[i], APPLIANCE_STOP), APPLIANCE_STOPPING);
	}
	CU_ASSERT_EQUAL(appliance_next_state(APPLIANCE_STOPPING, APPLIANCE_DONE), APPLIANCE_STOPPED);
}

static void test_an_error_at_the_start_is_a_failure(void)
{
	const enum appliance_state from[] = {APPLIANCE_INIT, APPLIANCE_ENV, APPLIANCE_THREADS, APPLIANCE_RPC,
					     APPLIANCE_CONFIG};

	for (int i = 0; i < 5; i++) {
		CU_ASSERT_EQUAL(appliance_next_state(from[i], APPLIANCE_ERROR), APPLIANCE_FAILED);
	}
}

static void test_a_hand_over_ends_in_a_stop_or_in_a_start(void)
{
	CU_ASSERT_EQUAL(appliance_next_state(APPLIANCE_RUNNING, APPLIANCE_HAND_OVER), APPLIANCE_HANDING_OVER);
	CU_ASSERT_EQUAL(appliance_next_state(APPLIANCE_HANDING_OVER, APPLIANCE_DONE), APPLIANCE_STOPPING);
	CU_ASSERT_EQUAL(appliance_next_state(APPLIANCE_HANDING_OVER, APPLIANCE_STOP), APPLIANCE_STOPPING);
	CU_ASSERT_EQUAL(appliance_next_state(APPLIANCE_HANDING_OVER, APPLIANCE_ERROR), APPLIANCE_THREADS);
	for (int s = 0; s < APPLIANCE_STATES; s++) { /* nothing else leads there */
		int next = appliance_next_state((enum appliance_state)s, APPLIANCE_HAND_OVER);
		CU_ASSERT_EQUAL(next, s == APPLIANCE_RUNNING ? APPLIANCE_HANDING_OVER : -1);
	}
}

static void test_nothing_follows_the_end(void)
{
	for (int e = APPLIANCE_DONE; e <= APPLIANCE_HAND_OVER; e++) {
		CU_ASSERT_EQUAL(appliance_next_state(APPLIANCE_STOPPED, (enum appliance_event)e), -1);
		CU_ASSERT_EQUAL(appliance_next_state(APPLIANCE_FAILED, (enum appliance_event)e), -1);
	}
}

static bool event_leads(enum appliance_state from, enum appliance_state to)
{
	for (int e = APPLIANCE_DONE; e <= APPLIANCE_HAND_OVER; e++) {
		if (appliance_next_state(from, (enum appliance_event)e) == (int)to) {
			return true;
		}
	}
	return false;
}

static void test_the_checker_knows_exactly_the_transitions_of_the_events(void)
{
	bool abort_before = state_machine_abort;

	state_machine_abort = false;
	for (int from = 0; from < APPLIANCE_STATES; from++) {
		for (int to = 0; to < APPLIANCE_STATES; to++) {
			CU_ASSERT_EQUAL(appliance_state_check((enum appliance_state)from, (enum appliance_state)to),
					event_leads((enum appliance_state)from, (enum appliance_state)to));
		}
	}
	state_machine_abort = abort_before;
}

static void test_every_state_has_a_name(void)
{
	for (int s = 0; s < APPLIANCE_STATES; s++) {
		CU_ASSERT_PTR_NOT_NULL(appliance_state_name((enum appliance_state)s));
	}
}

static const struct unit_test tests[] = {
	UNIT(test_a_start_leads_to_running),
	UNIT(test_waiting_for_rpc_is_between_rpc_and_config),
	UNIT(test_a_stop_passes_through_stopping),
	UNIT(test_an_error_at_the_start_is_a_failure),
	UNIT(test_a_hand_over_ends_in_a_stop_or_in_a_start),
	UNIT(test_nothing_follows_the_end),
	UNIT(test_the_checker_knows_exactly_the_transitions_of_the_events),
	UNIT(test_every_state_has_a_name),
	UNIT_END,
};

UNIT_MAIN("appliance_lifecycle", tests, NULL, NULL)
