/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/dispatch.h"

#include <time.h>
#include <unistd.h>

#include "rpc/allowed.h"
#include "rpc/registry.h"
#include "unittest/unit.h"

struct echo {
	char *text;
};

static const struct rpc_param echo_params[] = {
	RPC_PARAM(struct echo, text, RPC_STRING, RPC_REQUIRED, "what to say"),
	RPC_PARAM_END,
};

static struct rpc_request *deferred;

static void rpc_echo(struct rpc_request *req, void *params)
{
	rpc_reply(req, rpc_string(((struct echo *)params)->text));
}
RPC_METHOD("test_echo", rpc_echo, struct echo, echo_params, RPC_RUNTIME, "Says it again", .alias = "test_old_echo",
	   .result = "any")

static void rpc_later(struct rpc_request *req, void *params)
{
	deferred = req;
}
RPC_METHOD("test_later", rpc_later, struct rpc_no_params, NULL, RPC_RUNTIME, "Answers later", .result = "any")

static void rpc_startup_only(struct rpc_request *req, void *params)
{
	rpc_reply_true(req);
}
RPC_METHOD("test_a_startup", rpc_startup_only, struct rpc_no_params, NULL, RPC_STARTUP, "Start-up only",
	   .result = "any")

static void rpc_fails(struct rpc_request *req, void *params)
{
	rpc_error(req, -17, "\"%s\" exists", "na\xffme");
}
RPC_METHOD("test_fails", rpc_fails, struct rpc_no_params, NULL, RPC_RUNTIME, "Fails", .result = "any")

static json_t *wrong;

static void rpc_dislikes(struct rpc_request *req, void *params)
{
	rpc_wrong_element(req, "list", 3, wrong, "are %d kinds", 2);
}
RPC_METHOD("test_dislikes", rpc_dislikes, struct rpc_no_params, NULL, RPC_RUNTIME, "Takes no element", .result = "any")

static void rpc_broken(struct rpc_request *req, void *params)
{
	rpc_reply(req, NULL);
}
RPC_METHOD("test_broken", rpc_broken, struct rpc_no_params, NULL, RPC_RUNTIME, "Cannot build its result",
	   .result = "any")

static char seen_after[16];

static void rpc_looks_back(struct rpc_request *req, void *params)
{
	rpc_error(req, -22, "no");
	snprintf(seen_after, sizeof(seen_after), "%s", ((struct echo *)params)->text);
}
RPC_METHOD("test_looks_back", rpc_looks_back, struct echo, echo_params, RPC_RUNTIME,
	   "Looks at its parameters after the answer", .result = "any")

static void rpc_twice(struct rpc_request *req, void *params)
{
	rpc_error(req, -22, "no");
	rpc_reply_true(req);
}
RPC_METHOD("test_twice", rpc_twice, struct rpc_no_params, NULL, RPC_RUNTIME, "Answers twice", .result = "any")

static void rpc_waits(struct rpc_request *req, void *params)
{
	deferred = req;
}

static bool waits_on_request(const void *params)
{
	return ((const struct echo *)params)->text[0] != '\0';
}
RPC_METHOD("test_waits", rpc_waits, struct echo, echo_params, RPC_RUNTIME,
	   "Answers later, with its own time if there is a text", .has_own_time = waits_on_request, .result = "any")

static struct rpc_origin origin;
static char answer_text[2048];
static unsigned answers;

static void keep_answer(void *arg, struct rpc_answer *answer)
{
	size_t len;
	char *text = rpc_answer_text("7", answer, &len);

	CU_ASSERT_PTR_NOT_NULL_FATAL(text);
	CU_ASSERT_EQUAL(strlen(text), len);
	snprintf(answer_text, sizeof(answer_text), "%s", text);
	free(text);
	answers++;
}

static void call(const char *method, const char *params)
{
	json_t *given = params != NULL ? json_loads(params, 0, NULL) : NULL;

	answers = 0;
	answer_text[0] = '\0';
	rpc_set_state(RPC_RUNTIME);
	rpc_dispatch(&origin, method, given, keep_answer, NULL);
	json_decref(given);
}

static int left; /* allocations of the JSON library until one fails */

static void *memory_that_ends(size_t bytes)
{
	if (left-- == 0) {
		rpc_result_lacks_memory(); /* as the allocator does that is in its place */
		return NULL;
	}
	return malloc(bytes);
}

/* Clients look for both members. */
static void test_an_error_is_whole_or_there_is_none(void)
{
	const struct rpc_answer answer = {.code = -ENODEV, .message = "no bdev of that name"};
	json_malloc_t usual;
	json_free_t usual_free;
	unsigned missing = 0;
	size_t len;

	json_get_alloc_funcs(&usual, &usual_free);
	json_set_alloc_funcs(memory_that_ends, free);
	for (int i = 0; i < 30; i++) {
		left = i;
		char *text = rpc_answer_text("7", &answer, &len);
		CU_ASSERT(text == NULL ||
			  (strstr(text, "\"code\":-19") != NULL && strstr(text, "\"message\":\"no bdev") != NULL));
		missing += text == NULL;
		free(text);
	}
	json_set_alloc_funcs(usual, usual_free);
	CU_ASSERT(missing > 0 && missing < 30);
}

static void test_a_method_answers(void)
{
	call("test_echo", "{\"text\":\"hello\"}");
	CU_ASSERT_STRING_EQUAL(answer_text, "{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":\"hello\"}");
	CU_ASSERT_EQUAL(answers, 1);
	CU_ASSERT_EQUAL(rpc_outstanding(), 0);
}

static void test_parameters_outlive_an_answer_from_within_the_method(void)
{
	call("test_looks_back", "{\"text\":\"still here\"}");
	CU_ASSERT_EQUAL(answers, 1);
	CU_ASSERT_STRING_EQUAL(seen_after, "still here");
	CU_ASSERT_EQUAL(rpc_outstanding(), 0);
}

static void test_a_second_answer_is_dropped(void)
{
	call("test_twice", NULL);
	CU_ASSERT_EQUAL(answers, 1);
	CU_ASSERT_PTR_NOT_NULL(strstr(answer_text, "-22"));
	CU_ASSERT_EQUAL(rpc_outstanding(), 0);
}

static void test_an_alias_works(void)
{
	call("test_old_echo", "{\"text\":\"x\"}");
	CU_ASSERT_PTR_NOT_NULL(strstr(answer_text, "\"result\":\"x\""));
}

static void take_call(void *arg, const struct rpc_call_info *info)
{
	struct rpc_call_info *only = arg;

	CU_ASSERT_PTR_NULL(only->method);
	*only = *info;
}

/* What has not ended, which is one call. */
static struct rpc_call_info only_call(void)
{
	struct rpc_call_info only = {.method = NULL};

	rpc_for_each_call(take_call, &only);
	CU_ASSERT_PTR_NOT_NULL_FATAL(only.method);
	return only;
}

static void test_a_deferred_answer_comes_later(void)
{
	call("test_later", NULL);
	CU_ASSERT_EQUAL(answers, 0);
	CU_ASSERT_EQUAL(rpc_outstanding(), 1);
	CU_ASSERT_STRING_EQUAL(only_call().method, "test_later");
	rpc_reply_true(deferred);
	CU_ASSERT_EQUAL(answers, 1);
	CU_ASSERT_PTR_NOT_NULL(strstr(answer_text, "\"result\":true"));
	CU_ASSERT_EQUAL(rpc_outstanding(), 0);
}

/* Deadlines are those of clients, in whole seconds; the clock is the real one. */
static void call_of_a_client(const char *method, const char *params)
{
	origin.client = 5;
	call(method, params);
	origin.client = 0;
}

static void wait_a_second(void)
{
	struct timespec begin, now;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		usleep(1000);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - begin.tv_sec) * 1000000000LL + now.tv_nsec - begin.tv_nsec <= 1000000000);
}

static void test_a_call_past_its_deadline_is_answered_and_goes_on(void)
{
	rpc_set_deadline(1);
	call_of_a_client("test_waits", "{\"text\":\"\"}");
	CU_ASSERT_FALSE(only_call().timed_out);
	wait_a_second();
	rpc_check_calls();
	CU_ASSERT_EQUAL(answers, 1);
	CU_ASSERT_PTR_NOT_NULL(strstr(answer_text, "-110"));
	CU_ASSERT_PTR_NOT_NULL(strstr(answer_text, "test_waits has not ended within 1 s; it goes on"));
	rpc_check_calls();
	CU_ASSERT_EQUAL(answers, 1);
	CU_ASSERT_EQUAL(rpc_outstanding(), 1);
	CU_ASSERT_TRUE(only_call().timed_out);
	CU_ASSERT_EQUAL(only_call().client, 5);
	rpc_reply_true(deferred); /* nobody hears it */
	CU_ASSERT_EQUAL(answers, 1);
	CU_ASSERT_EQUAL(rpc_outstanding(), 0);
	rpc_set_deadline(RPC_DEFAULT_DEADLINE_S);
}

static void test_some_calls_have_no_deadline(void)
{
	struct rpc_request *own_time, *within, *never;

	rpc_set_deadline(1);
	call_of_a_client("test_waits", "{\"text\":\"as long as it takes\"}");
	own_time = deferred;
	call("test_later", NULL);
	within = deferred;
	rpc_set_deadline(0);
	call_of_a_client("test_later", NULL);
	never = deferred;
	wait_a_second();
	rpc_check_calls();
	CU_ASSERT_EQUAL(answers, 0);
	CU_ASSERT_EQUAL(rpc_outstanding(), 3);
	rpc_reply_true(own_time);
	rpc_error(within, -5, "no");
	rpc_reply_true(never);
	CU_ASSERT_EQUAL(answers, 3);
	CU_ASSERT_EQUAL(rpc_outstanding(), 0);
	rpc_set_deadline(RPC_DEFAULT_DEADLINE_S);
}

/* Each is kept until it ends, so there are not more than a bounded number of them. */
static void test_a_client_that_asks_again_and_again_is_held_up_in_the_end(void)
{
	enum { LIMIT = 1024 };
	static struct rpc_request *reqs[LIMIT + 1];

	rpc_set_deadline(1);
	for (unsigned i = 0; i <= LIMIT; i++) {
		call_of_a_client("test_later", NULL);
		reqs[i] = deferred;
	}
	wait_a_second();
	answers = 0;
	rpc_check_calls();
	CU_ASSERT_EQUAL(answers, LIMIT);
	rpc_reply_true(reqs[0]);
	CU_ASSERT_EQUAL(answers, LIMIT);
	rpc_check_calls();
	CU_ASSERT_EQUAL(answers, LIMIT + 1);
	for (unsigned i = 1; i <= LIMIT; i++) {
		rpc_reply_true(reqs[i]);
	}
	CU_ASSERT_EQUAL(answers, LIMIT + 1);
	CU_ASSERT_EQUAL(rpc_outstanding(), 0);
	rpc_set_deadline(RPC_DEFAULT_DEADLINE_S);
}

static void test_an_unknown_method_is_named(void)
{
	call("no_such", NULL);
	CU_ASSERT_PTR_NOT_NULL(strstr(answer_text, "-32601"));
	CU_ASSERT_PTR_NOT_NULL(strstr(answer_text, "no_such"));
}

static void test_wrong_parameters_do_not_reach_the_method(void)
{
	call("test_echo", "{}");
	CU_ASSERT_PTR_NOT_NULL(strstr(answer_text, "-32602"));
	CU_ASSERT_EQUAL(rpc_outstanding(), 0);
}

static void test_the_state_decides_what_may_be_called(void)
{
	call("test_a_startup", NULL);
	CU_ASSERT_PTR_NOT_NULL(strstr(answer_text, "\"code\":-1,"));
	rpc_set_state(RPC_STARTUP);
	rpc_dispatch(&origin, "test_a_startup", NULL, keep_answer, NULL);
	CU_ASSERT_PTR_NOT_NULL(strstr(answer_text, "\"result\":true"));
	rpc_dispatch(&origin, "test_later", NULL, keep_answer, NULL);
	CU_ASSERT_PTR_NOT_NULL(strstr(answer_text, "\"code\":-1,"));
}

static void test_invalid_utf8_never_voids_an_answer(void)
{
	json_t *s = rpc_string("a\xff");

	CU_ASSERT_STRING_EQUAL(json_string_value(s), "a\xef\xbf\xbd");
	json_decref(s);
	call("test_fails", NULL);
	CU_ASSERT_PTR_NOT_NULL(
		strstr(answer_text, "\"code\":-17,\"message\":\"\\\"na\xef\xbf\xbdme\\\" exists (File exists)\""));
}

static void test_a_result_that_cannot_be_built_is_an_internal_error(void)
{
	call("test_broken", NULL);
	CU_ASSERT_PTR_NOT_NULL(strstr(answer_text, "-32603"));
}

/* As a method whose result lacks a part. */
static void starved(struct rpc_request *req, void *params)
{
	json_t *o = json_object();

	json_object_set_new(o, "text", json_stringn_nocheck("x", (size_t)1 << 60));
	rpc_reply(req, o);
}
RPC_METHOD("test_starved", starved, struct rpc_no_params, NULL, RPC_RUNTIME, "Has no memory for its result",
	   .result = "any")

static void test_a_result_that_lacks_a_part_for_want_of_memory_is_an_error(void)
{
#ifndef __SANITIZE_ADDRESS__ /* which takes such a size for a fault */
	call("test_starved", NULL);
	CU_ASSERT_PTR_NOT_NULL(strstr(answer_text, "\"code\":-12,"));
	CU_ASSERT_PTR_NOT_NULL(strstr(answer_text, "no memory for the result"));
	call("test_broken", NULL); /* and that is over then */
	CU_ASSERT_PTR_NOT_NULL(strstr(answer_text, "-32603"));
#endif
}

static void test_64_bit_values_survive(void)
{
	json_t *hex = rpc_hex(UINT64_MAX), *big = rpc_uint(UINT64_MAX), *small = rpc_uint(INT64_MAX);

	CU_ASSERT_STRING_EQUAL(json_string_value(hex), "0xffffffffffffffff");
	CU_ASSERT_STRING_EQUAL(json_string_value(big), "0xffffffffffffffff");
	CU_ASSERT_EQUAL(json_integer_value(small), INT64_MAX);
	json_decref(hex);
	json_decref(big);
	json_decref(small);
}

static void test_checking_runs_nothing(void)
{
	char why[RPC_ERROR_TEXT_MAX] = "";
	unsigned states = 0;
	json_t *params = json_pack("{s:s}", "text", "x");

	CU_ASSERT_EQUAL(rpc_check_method("test_later", NULL, &states, why), 0);
	CU_ASSERT_EQUAL(states, RPC_RUNTIME);
	CU_ASSERT_EQUAL(rpc_check_method("test_echo", params, &states, why), 0);
	CU_ASSERT_EQUAL(rpc_check_method("test_echo", NULL, &states, why), RPC_ERROR_INVALID_PARAMS);
	CU_ASSERT_EQUAL(rpc_check_method("none", NULL, &states, why), RPC_ERROR_NO_METHOD);
	CU_ASSERT_EQUAL(rpc_outstanding(), 0);
	json_decref(params);
}

static void check_not_found(const char *name, const char *wanted)
{
	char why[RPC_ERROR_TEXT_MAX] = "";
	unsigned states = 0;

	CU_ASSERT_EQUAL(rpc_check_method(name, NULL, &states, why), RPC_ERROR_NO_METHOD);
	CU_ASSERT_STRING_EQUAL(why, wanted);
}

static void test_a_misspelt_method_is_answered_with_the_one_that_was_meant(void)
{
	char longest[100] = "";

	check_not_found("test_ehco",
			"there is no method \"test_ehco\"; did you mean \"test_echo\"? rpc_get_methods lists "
			"all methods");
	check_not_found("echo_test",
			"there is no method \"echo_test\"; did you mean \"test_echo\"? rpc_get_methods lists "
			"all methods");
	check_not_found("none", "there is no method \"none\"; rpc_get_methods lists all methods");
	check_not_found("", "there is no method \"\"; rpc_get_methods lists all methods");
	check_not_found("test_ech\xff",
			"there is no method \"test_ech\xef\xbf\xbd\"; did you mean \"test_echo\"? rpc_get_methods "
			"lists all methods");
	memset(longest, 'x', sizeof(longest) - 1);
	check_not_found(longest,
			"there is no method \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
			"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"; rpc_get_methods lists all methods");
}

static void test_only_methods_that_may_be_called_are_proposed(void)
{
	rpc_set_allowed("test_later");
	check_not_found("test_ehco", "there is no method \"test_ehco\"; rpc_get_methods lists all methods");
	check_not_found("test_latre", "there is no method \"test_latre\"; did you mean \"test_later\"? rpc_get_methods "
				      "lists all methods");
	rpc_set_allowed(NULL);
}

static void test_methods_are_sorted(void)
{
	const struct rpc_method *m = rpc_method_next(NULL);

	CU_ASSERT_STRING_EQUAL(m->name, "test_a_startup");
	for (const struct rpc_method *n; (n = rpc_method_next(m)) != NULL; m = n) {
		CU_ASSERT_TRUE(strcmp(m->name, n->name) < 0);
	}
}

static void write_nothing(json_t *list)
{
}
static struct rpc_config config_a = {.name = "a", .after = "z", .write = write_nothing};
static struct rpc_config config_m = {.name = "m", .after = "absent", .write = write_nothing};
static struct rpc_config config_z = {.name = "z", .write = write_nothing};

static void test_configuration_follows_what_it_needs(void)
{
	size_t n;

	rpc_config_register(&config_a);
	rpc_config_register(&config_m);
	rpc_config_register(&config_z);
	const struct rpc_config **list = rpc_config_in_order(&n);
	CU_ASSERT_EQUAL_FATAL(n, 3);
	CU_ASSERT_STRING_EQUAL(list[0]->name, "m");
	CU_ASSERT_STRING_EQUAL(list[1]->name, "z");
	CU_ASSERT_STRING_EQUAL(list[2]->name, "a");
	free(list);
}

/* What a client wrote, whatever type it has. */
static void test_a_wrong_element_is_shown_with_its_place(void)
{
	static const struct {
		const char *element, *words;
	} cases[] = {
		{"null", "parameter \\\"list[3]\\\" is null: allowed are 2 kinds"},
		{"-1", "is -1: "},
		{"\"-1\"", "is \\\"-1\\\": "},
		{"[{ }]", "is [{}]: "},
		{"\"\\u007f18446744073709551616\"", "is 18446744073709551616: "}, /* as rpc/message.h has big numbers */
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		wrong = json_loads(cases[i].element, JSON_DECODE_ANY, NULL);
		call("test_dislikes", NULL);
		CU_ASSERT_PTR_NOT_NULL(strstr(answer_text, cases[i].words));
		CU_ASSERT_PTR_NOT_NULL(strstr(answer_text, "-32602"));
		json_decref(wrong);
	}
}

static int kept_fd;

static void rpc_keeps(struct rpc_request *req, void *params)
{
	kept_fd = rpc_request_dup_connection(req);
	rpc_reply_true(req);
	CU_ASSERT_EQUAL(rpc_request_dup_connection(req), -ENOTCONN); /* it has been answered */
}
RPC_METHOD("test_keeps", rpc_keeps, struct rpc_no_params, NULL, RPC_RUNTIME, "Keeps its connection", .result = "true")

static void test_a_connection_can_be_kept_if_there_is_one(void)
{
	const struct rpc_origin from = {.client = 1, .fd = STDERR_FILENO};
	const struct rpc_origin closed = {.client = 1, .fd = -1};

	rpc_set_state(RPC_RUNTIME);
	rpc_dispatch(&from, "test_keeps", NULL, keep_answer, NULL);
	CU_ASSERT(kept_fd > STDERR_FILENO);
	close(kept_fd);
	rpc_dispatch(&closed, "test_keeps", NULL, keep_answer, NULL);
	CU_ASSERT_EQUAL(kept_fd, -EBADF);
	rpc_call_method("test_keeps", NULL, keep_answer, NULL);
	CU_ASSERT_EQUAL(kept_fd, -ENOTCONN);
}

static void test_no_method_is_called_while_another_process_takes_over(void)
{
	answers = 0;
	rpc_set_state(RPC_HANDING_OVER);
	rpc_dispatch(&origin, "test_echo", NULL, keep_answer, NULL);
	rpc_set_state(RPC_RUNTIME);
	CU_ASSERT_EQUAL(answers, 1);
	CU_ASSERT_PTR_NOT_NULL(strstr(answer_text, "\"code\":-1"));
	CU_ASSERT_PTR_NOT_NULL(strstr(answer_text, "another process is taking over"));
}

static const struct unit_test tests[] = {
	UNIT(test_an_error_is_whole_or_there_is_none),
	UNIT(test_a_method_answers),
	UNIT(test_parameters_outlive_an_answer_from_within_the_method),
	UNIT(test_a_second_answer_is_dropped),
	UNIT(test_an_alias_works),
	UNIT(test_a_deferred_answer_comes_later),
	UNIT(test_a_call_past_its_deadline_is_answered_and_goes_on),
	UNIT(test_some_calls_have_no_deadline),
	UNIT(test_a_client_that_asks_again_and_again_is_held_up_in_the_end),
	UNIT(test_an_unknown_method_is_named),
	UNIT(test_wrong_parameters_do_not_reach_the_method),
	UNIT(test_a_wrong_element_is_shown_with_its_place),
	UNIT(test_the_state_decides_what_may_be_called),
	UNIT(test_invalid_utf8_never_voids_an_answer),
	UNIT(test_a_result_that_cannot_be_built_is_an_internal_error),
	UNIT(test_a_result_that_lacks_a_part_for_want_of_memory_is_an_error),
	UNIT(test_64_bit_values_survive),
	UNIT(test_checking_runs_nothing),
	UNIT(test_a_misspelt_method_is_answered_with_the_one_that_was_meant),
	UNIT(test_only_methods_that_may_be_called_are_proposed),
	UNIT(test_methods_are_sorted),
	UNIT(test_configuration_follows_what_it_needs),
	UNIT(test_a_connection_can_be_kept_if_there_is_one),
	UNIT(test_no_method_is_called_while_another_process_takes_over),
	UNIT_END,
};

UNIT_MAIN("rpc_dispatch", tests, NULL, NULL)
