/* SPDX-License-Identifier: BSD-3-Clause */
/* Pollers with a period as thread_get_pollers lists them: the daemon has none, and clients know them. */
#include "unittest/unit.h"
#include "unittest/thread/fixture.h"

#include "rpc/rpc.h"

static struct poller *poller;
static json_t *answer;

static int poll_nothing(void *ctx)
{
	return POLLER_IDLE;
}

static void take_answer(void *arg, struct rpc_answer *a)
{
	CU_ASSERT_EQUAL(a->code, 0);
	json_decref(answer);
	answer = json_incref(a->result);
}

/* The poller in one of the lists of the control thread; NULL. */
static const json_t *find_poller(const char *list)
{
	json_t *threads, *thread, *p;
	size_t i, k;

	rpc_call_method("thread_get_pollers", NULL, take_answer, NULL);
	threads = json_object_get(answer, "threads");
	json_array_foreach (threads, i, thread) {
		json_array_foreach (json_object_get(thread, list), k, p) {
			if (strcmp(json_string_value(json_object_get(p, "name")), "test") == 0) {
				return p;
			}
		}
	}
	return NULL;
}

static void test_a_poller_with_a_period_has_the_keys_that_clients_decode(void)
{
	static const char *const numbers[] = {"id", "run_count", "busy_count", "period_ticks"};
	const json_t *p = find_poller("timed_pollers");

	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		CU_ASSERT(json_is_integer(json_object_get(p, numbers[i])));
	}
	CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(p, "state")), "waiting");
	CU_ASSERT_EQUAL(json_integer_value(json_object_get(p, "period_ticks")), (json_int_t)env_us_to_ticks(5000));
	CU_ASSERT_EQUAL(json_object_size(p), 6);
	CU_ASSERT_PTR_NULL(find_poller("active_pollers"));
}

static void test_one_that_is_paused_is_in_the_list_of_those(void)
{
	poller_pause(poller);
	CU_ASSERT_PTR_NULL(find_poller("timed_pollers"));
	const json_t *p = find_poller("paused_pollers");
	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(p, "state")), "paused");
	poller_resume(poller);
	CU_ASSERT_PTR_NOT_NULL(find_poller("timed_pollers"));
}

static int setup(void)
{
	int rc = fixture_start();

	if (rc == 0) {
		rpc_set_state(RPC_RUNTIME);
		poller = poller_register(
			&(struct poller_opts){.name = "test", .fn = poll_nothing, .period_us = 5000, .fd = -1});
	}
	return rc != 0 ? rc : poller == NULL;
}

static int teardown(void)
{
	json_decref(answer);
	poller_unregister(&poller);
	return fixture_stop();
}

static const struct unit_test tests[] = {
	UNIT(test_a_poller_with_a_period_has_the_keys_that_clients_decode),
	UNIT(test_one_that_is_paused_is_in_the_list_of_those),
	UNIT_END,
};
UNIT_MAIN("pollers_rpc", tests, setup, teardown)
