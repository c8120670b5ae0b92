/* SPDX-License-Identifier: BSD-3-Clause */
/* JSON values over a stream, however it is cut. */
#include "rpc/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "unittest/unit.h"

static const char two[] = "{\"a\": \"}{\"}\n {\"serving\": true}";

static void test_messages_are_found_however_they_are_cut(void)
{
	for (size_t cut = 1; cut <= strlen(two); cut++) {
		struct rpc_stream_in s = {0};
		unsigned found = 0;
		for (size_t at = 0; at < strlen(two); at += cut) {
			size_t n = strlen(two) - at < cut ? strlen(two) - at : cut;
			json_t *message;
			CU_ASSERT_EQUAL(rpc_stream_in_add(&s, two + at, n), 0);
			while (rpc_stream_in_take(&s, &message) == 0) {
				found++;
				CU_ASSERT_EQUAL(json_is_true(json_object_get(message, "serving")), found == 2);
				json_decref(message);
			}
		}
		CU_ASSERT_EQUAL(found, 2);
		CU_ASSERT_EQUAL(s.len, 0);
		rpc_stream_in_free(&s);
	}
}

static void test_what_is_no_object_is_refused(void)
{
	static const char *const bad[] = {"[1]", "7", "{]}", "{\"a\" 1}", "x{}"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct rpc_stream_in s = {0};
		json_t *message;
		CU_ASSERT_EQUAL(rpc_stream_in_take(&s, &message), -EAGAIN);
		CU_ASSERT_EQUAL(rpc_stream_in_add(&s, bad[i], strlen(bad[i])), 0);
		CU_ASSERT_EQUAL(rpc_stream_in_take(&s, &message), -EBADMSG);
		CU_ASSERT_PTR_NULL(message);
		rpc_stream_in_free(&s);
	}
}

static void test_a_long_message_is_whole_and_too_long_a_one_refused(void)
{
	const size_t long_bytes = 300000;
	struct rpc_stream_in s = {0};
	char *text = malloc(long_bytes + 16);
	json_t *message = NULL;

	CU_ASSERT_PTR_NOT_NULL_FATAL(text);
	memset(text, 'x', long_bytes + 16);
	memcpy(text, "{\"k\":\"", 6);
	memcpy(text + long_bytes, "\"}", 2);
	CU_ASSERT_EQUAL(rpc_stream_in_add(&s, text, long_bytes + 1), 0);
	CU_ASSERT_EQUAL(rpc_stream_in_take(&s, &message), -EAGAIN);
	CU_ASSERT_EQUAL(rpc_stream_in_add(&s, text + long_bytes + 1, 1), 0);
	CU_ASSERT_EQUAL(rpc_stream_in_take(&s, &message), 0);
	CU_ASSERT_EQUAL(json_string_length(json_object_get(message, "k")), long_bytes - 6);
	json_decref(message);
	CU_ASSERT_EQUAL(rpc_stream_in_add(&s, text, RPC_STREAM_MESSAGE_MAX + 1), -EMSGSIZE);
	rpc_stream_in_free(&s);
	free(text);
}

static const struct unit_test tests[] = {
	UNIT(test_messages_are_found_however_they_are_cut),
	UNIT(test_what_is_no_object_is_refused),
	UNIT(test_a_long_message_is_whole_and_too_long_a_one_refused),
	UNIT_END,
};

UNIT_MAIN("rpc_stream", tests, NULL, NULL)
