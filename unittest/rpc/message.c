/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/message.h"
#include "rpc/rpc.h"
#include "unittest/unit.h"

static struct rpc_message decode(const char *text)
{
	struct rpc_message m;

	CU_ASSERT_EQUAL_FATAL(rpc_message_decode(text, strlen(text), &m), 0);
	CU_ASSERT_TRUE_FATAL(m.n_calls >= 1);
	return m;
}

/* The id that the only call of text would be answered with. */
static void check_id(const char *text, const char *id, int error)
{
	struct rpc_message m = decode(text);

	CU_ASSERT_EQUAL(m.n_calls, 1);
	CU_ASSERT_EQUAL(m.calls[0].error, error);
	if (id == NULL) {
		CU_ASSERT_PTR_NULL(m.calls[0].id);
	} else {
		CU_ASSERT_PTR_NOT_NULL_FATAL(m.calls[0].id);
		CU_ASSERT_STRING_EQUAL(m.calls[0].id, id);
	}
	rpc_message_free(&m);
}

static void test_a_request_is_decoded(void)
{
	struct rpc_message m = decode("{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"id\":1,\"params\":{\"a\":2}}");

	CU_ASSERT_FALSE(m.batch);
	CU_ASSERT_EQUAL(m.calls[0].error, 0);
	CU_ASSERT_STRING_EQUAL(m.calls[0].method, "m");
	CU_ASSERT_STRING_EQUAL(m.calls[0].id, "1");
	CU_ASSERT_EQUAL(json_integer_value(json_object_get(m.calls[0].params, "a")), 2);
	rpc_message_free(&m);
}

static void test_ids_are_kept_as_they_were_written(void)
{
	const char *const ids[] = {"0",
				   "-0",
				   "-17",
				   "1.0",
				   "1e2",
				   "0.1",
				   "18446744073709551616",
				   "-9223372036854775809",
				   "123456789012345678901234567890",
				   "1e400",
				   "null",
				   "\"\"",
				   "\"a b\"",
				   "\"\\u0041\\n\"",
				   "\"\xc3\xa4\"",
				   "\"]},{\""};
	char text[256];

	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		snprintf(text, sizeof(text), "{\"method\":\"m\", \"params\":{\"id\":7}, \"id\" :\n%s }", ids[i]);
		check_id(text, ids[i], 0);
		snprintf(text, sizeof(text), "{\"id\":%s,\"method\":\"m\",\"params\":{\"id\":\"id\"}}", ids[i]);
		check_id(text, ids[i], 0);
	}
}

static void test_an_id_under_an_escaped_key_is_found(void)
{
	check_id("{\"method\":\"m\",\"\\u0069d\":5}", "5", 0);
}

static void test_a_request_without_id_is_a_notification(void)
{
	check_id("{\"method\":\"m\"}", NULL, 0);
	check_id("{\"method\":\"m\",\"params\":[1]}", NULL, RPC_ERROR_INVALID_PARAMS);
}

static void test_ids_of_other_types_are_invalid(void)
{
	check_id("{\"method\":\"m\",\"id\":true}", "null", RPC_ERROR_INVALID_REQUEST);
	check_id("{\"method\":\"m\",\"id\":[1]}", "null", RPC_ERROR_INVALID_REQUEST);
	check_id("{\"method\":\"m\",\"id\":{\"id\":1}}", "null", RPC_ERROR_INVALID_REQUEST);
}

static void test_invalid_requests_are_told_from_parse_errors(void)
{
	check_id("{\"id\":1}", "1", RPC_ERROR_INVALID_REQUEST);
	check_id("{\"id\":1,\"method\":5}", "1", RPC_ERROR_INVALID_REQUEST);
	check_id("{\"id\":1,\"method\":\"m\",\"jsonrpc\":\"1.0\"}", "1", RPC_ERROR_INVALID_REQUEST);
	check_id("{\"id\":1,\"method\":\"m\",\"params\":5}", "1", RPC_ERROR_INVALID_REQUEST);
	check_id("{\"id\":1,\"method\":\"m\",\"params\":[5]}", "1", RPC_ERROR_INVALID_PARAMS);
	check_id("{}", "null", RPC_ERROR_INVALID_REQUEST);
	check_id("[]", "null", RPC_ERROR_INVALID_REQUEST);
	check_id("{\"id\":1,\"id\":2,\"method\":\"m\"}", "null", RPC_ERROR_INVALID_REQUEST);
	check_id("{]", "null", RPC_ERROR_PARSE);
	check_id("{\"id\":01,\"method\":\"m\"}", "null", RPC_ERROR_PARSE);
	check_id("{\"id\":1,\"method\":\"\xff\"}", "null", RPC_ERROR_PARSE);
	check_id("{\"id\":1,\"method\":\"\\u0000\"}", "null", RPC_ERROR_PARSE);
	check_id("{\"id\":1,\"method\":\"m\",}", "null", RPC_ERROR_PARSE);
}

static void test_empty_params_are_none(void)
{
	const char *const none[] = {"[]", "{}", "null"};
	char text[64];

	for (size_t i = 0; i < 3; i++) {
		snprintf(text, sizeof(text), "{\"id\":1,\"method\":\"m\",\"params\":%s}", none[i]);
		struct rpc_message m = decode(text);
		CU_ASSERT_EQUAL(m.calls[0].error, 0);
		CU_ASSERT_EQUAL(json_object_size(m.calls[0].params), 0);
		rpc_message_free(&m);
	}
}

static void test_a_batch_keeps_order_and_ids(void)
{
	struct rpc_message m = decode("[{\"method\":\"a\",\"id\":1,\"params\":{\"x\":[1,2,{\"id\":9}]}},"
				      "{\"method\":\"b\"}, 7, {\"id\":\"x,\",\"method\":\"c\"},[{\"id\":4}]]");

	CU_ASSERT_TRUE(m.batch);
	CU_ASSERT_EQUAL_FATAL(m.n_calls, 5);
	CU_ASSERT_STRING_EQUAL(m.calls[0].id, "1");
	CU_ASSERT_STRING_EQUAL(m.calls[0].method, "a");
	CU_ASSERT_PTR_NULL(m.calls[1].id);
	CU_ASSERT_EQUAL(m.calls[1].error, 0);
	CU_ASSERT_STRING_EQUAL(m.calls[2].id, "null");
	CU_ASSERT_EQUAL(m.calls[2].error, RPC_ERROR_INVALID_REQUEST);
	CU_ASSERT_STRING_EQUAL(m.calls[3].id, "\"x,\"");
	CU_ASSERT_STRING_EQUAL(m.calls[4].id, "null");
	CU_ASSERT_EQUAL(m.calls[4].error, RPC_ERROR_INVALID_REQUEST);
	rpc_message_free(&m);
}

static void test_a_batch_has_a_limit(void)
{
	char *text = malloc(3 * (RPC_BATCH_MAX + 1) + 3);
	size_t used = 0;

	text[used++] = '[';
	for (int i = 0; i <= RPC_BATCH_MAX; i++) {
		used += (size_t)sprintf(text + used, "%s{}", i == 0 ? "" : ",");
	}
	strcpy(text + used, "]");
	check_id(text, "null", RPC_ERROR_INVALID_REQUEST);
	free(text);
}

static void test_big_numbers_do_not_void_a_message(void)
{
	struct rpc_message m = decode("{\"id\":1,\"method\":\"m\",\"params\":{\"a\":18446744073709551615,"
				      "\"b\":[-9223372036854775809,9223372036854775807,-9223372036854775808],"
				      "\"c\":1e999,\"d\":\"18446744073709551615\"}}");
	json_t *p = m.calls[0].params;

	CU_ASSERT_EQUAL_FATAL(m.calls[0].error, 0);
	CU_ASSERT_STRING_EQUAL(rpc_big_number(json_object_get(p, "a")), "18446744073709551615");
	CU_ASSERT_STRING_EQUAL(rpc_big_number(json_array_get(json_object_get(p, "b"), 0)), "-9223372036854775809");
	CU_ASSERT_EQUAL(json_integer_value(json_array_get(json_object_get(p, "b"), 1)), INT64_MAX);
	CU_ASSERT_EQUAL(json_integer_value(json_array_get(json_object_get(p, "b"), 2)), INT64_MIN);
	CU_ASSERT_STRING_EQUAL(rpc_big_number(json_object_get(p, "c")), "1e999");
	CU_ASSERT_PTR_NULL(rpc_big_number(json_object_get(p, "d")));
	rpc_message_free(&m);
}

static void test_the_text_need_not_be_terminated(void)
{
	static const char text[] = "{\"id\":1e999}";

	for (size_t len = 0; len < sizeof(text) - 1; len++) {
		char *copy = malloc(len + 1); /* exactly as long, for the address sanitizer */
		memcpy(copy, text, len);
		char *exact = realloc(copy, len != 0 ? len : 1);
		struct rpc_message m;
		CU_ASSERT_EQUAL_FATAL(rpc_message_decode(exact, len, &m), 0);
		CU_ASSERT_EQUAL(m.calls[0].error, RPC_ERROR_PARSE);
		rpc_message_free(&m);
		free(exact);
	}
}

static const struct unit_test tests[] = {
	UNIT(test_a_request_is_decoded),
	UNIT(test_ids_are_kept_as_they_were_written),
	UNIT(test_an_id_under_an_escaped_key_is_found),
	UNIT(test_a_request_without_id_is_a_notification),
	UNIT(test_ids_of_other_types_are_invalid),
	UNIT(test_invalid_requests_are_told_from_parse_errors),
	UNIT(test_empty_params_are_none),
	UNIT(test_a_batch_keeps_order_and_ids),
	UNIT(test_a_batch_has_a_limit),
	UNIT(test_big_numbers_do_not_void_a_message),
	UNIT(test_the_text_need_not_be_terminated),
	UNIT_END,
};

UNIT_MAIN("rpc_message", tests, NULL, NULL)
