/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/gateway/request.h"
#include "tools/gateway/openapi.h"
#include "unittest/unit.h"

static struct gateway_request r;

static unsigned checked(const char *body, enum gateway_role role)
{
	return gateway_request_check(body, strlen(body), role, &r);
}

static void test_a_request_and_a_batch_pass(void)
{
	CU_ASSERT_EQUAL(checked(" {\"id\":1,\"method\":\"bdev_get_bdevs\"}\n", GATEWAY_READ), 200);
	CU_ASSERT_EQUAL(r.begin, 1);
	CU_ASSERT_EQUAL(r.end, 35);
	CU_ASSERT_TRUE(r.answered);
	CU_ASSERT_STRING_EQUAL(r.method, "bdev_get_bdevs");
	CU_ASSERT_EQUAL(checked("[{\"method\":\"bdev_get_bdevs\"}]", GATEWAY_READ), 200);
	CU_ASSERT_FALSE(r.answered);
}

static void test_numbers_beyond_the_library_pass(void)
{
	CU_ASSERT_EQUAL(checked("{\"id\":18446744073709551616,\"method\":\"bdev_get_bdevs\",\"params\":{\"x\":1e400}}",
				GATEWAY_READ),
			200);
}

static void test_what_is_no_request_is_refused(void)
{
	static const char *const rows[] = {
		"",
		"x",
		"1",
		"\"x\"",
		"null",
		"{",
		"[",
		"[]",
		"{}",
		"[1]",
		"[[]]",
		"{\"method\":1}",
		"{\"method\":null}",
		"{\"method\":\"a\"}{\"method\":\"b\"}",
		"{\"method\":\"a\"},",
		"{\"method\":\"a\"}x",
		"{\"method\":\"a\",}",
		"{\"method\":\"\xff\"}",
		"{\"method\":\"a\\u0000b\"}",
		"{'method':'a'}",
		"[{\"method\":\"bdev_get_bdevs\"}, 5]",
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		CU_ASSERT_EQUAL(checked(rows[i], GATEWAY_ADMIN), 400);
		CU_ASSERT_NOT_EQUAL(r.why[0], '\0');
	}
	CU_ASSERT_EQUAL(gateway_request_check("{\"method\":\"a\"}\0", 15, GATEWAY_ADMIN, &r), 400);
}

/* Whichever of the two the daemon would execute. */
static void test_a_key_that_stands_twice_is_refused(void)
{
	static const char *const rows[] = {
		"{\"method\":\"bdev_get_bdevs\",\"method\":\"spdk_kill_instance\"}",
		"{\"method\":\"spdk_kill_instance\",\"method\":\"bdev_get_bdevs\"}",
		"{\"method\":\"bdev_get_bdevs\",\"\\u006dethod\":\"spdk_kill_instance\"}",
		"{\"method\":\"bdev_get_bdevs\",\"params\":{\"a\":1,\"a\":2}}",
		"[{\"method\":\"bdev_get_bdevs\",\"method\":\"spdk_kill_instance\"}]",
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		CU_ASSERT_EQUAL(checked(rows[i], GATEWAY_READ), 400);
		CU_ASSERT_PTR_NOT_NULL(strstr(r.why, "duplicate"));
	}
}

static void test_an_escaped_key_or_name_is_the_same(void)
{
	CU_ASSERT_EQUAL(checked("{\"\\u006dethod\":\"spdk_kill_instance\"}", GATEWAY_OPERATE), 403);
	CU_ASSERT_EQUAL(checked("{\"method\":\"spdk\\u005fkill_instance\"}", GATEWAY_OPERATE), 403);
	CU_ASSERT_STRING_EQUAL(r.method, "spdk_kill_instance");
}

static void test_one_call_of_a_batch_that_is_forbidden_refuses_it(void)
{
	const char *batch = "[{\"method\":\"bdev_get_bdevs\"},{\"method\":\"bdev_malloc_create\"},{\"method\":\"x\"}]";

	CU_ASSERT_EQUAL(checked(batch, GATEWAY_READ), 403);
	CU_ASSERT_STRING_EQUAL(r.method, "bdev_malloc_create");
	CU_ASSERT_EQUAL(checked(batch, GATEWAY_OPERATE), 403);
	CU_ASSERT_STRING_EQUAL(r.method, "x");
	CU_ASSERT_EQUAL(checked(batch, GATEWAY_ADMIN), 200);
}

static void test_parameters_may_need_more_than_their_method(void)
{
	CU_ASSERT_EQUAL(checked("{\"method\":\"bdev_get_iostat\",\"params\":{\"reset_mode\":\"none\"}}", GATEWAY_READ),
			200);
	CU_ASSERT_EQUAL(checked("{\"method\":\"bdev_get_iostat\",\"params\":{\"reset_mode\":\"all\"}}", GATEWAY_READ),
			403);
	CU_ASSERT_EQUAL(
		checked("{\"method\":\"bdev_get_iostat\",\"params\":{\"reset_mode\":\"all\"}}", GATEWAY_OPERATE), 200);
	const char *file =
		"{\"method\":\"nvmf_subsystem_add_ns\",\"params\":{\"namespace\":{\"ptpl_file\":\"/etc/x\"}}}";
	CU_ASSERT_EQUAL(checked(file, GATEWAY_OPERATE), 403);
	CU_ASSERT_PTR_NOT_NULL(strstr(r.why, "ptpl_file"));
	CU_ASSERT_EQUAL(checked(file, GATEWAY_ADMIN), 200);
}

static void test_what_is_nested_too_deep_or_too_long_is_refused(void)
{
	char body[70000];

	memset(body, '[', 100);
	body[100] = '\0';
	CU_ASSERT_EQUAL(checked(body, GATEWAY_ADMIN), 400);
	size_t len = 0;
	body[len++] = '[';
	for (int i = 0; i < 1025; i++) {
		len += (size_t)sprintf(body + len, "%s{\"method\":\"get_bdevs\"}", i > 0 ? "," : "");
	}
	strcpy(body + len, "]");
	CU_ASSERT_EQUAL(checked(body, GATEWAY_ADMIN), 400);
	CU_ASSERT_PTR_NOT_NULL(strstr(r.why, "1025"));
}

static void test_a_name_cannot_write_into_the_log(void)
{
	CU_ASSERT_EQUAL(checked("{\"method\":\"a\\nroot: \\u001b[2J\"}", GATEWAY_READ), 403);
	CU_ASSERT_PTR_NULL(strchr(r.why, '\n'));
	CU_ASSERT_PTR_NULL(strchr(r.why, '\x1b'));
}

static void test_unknown_methods_need_admin(void)
{
	CU_ASSERT_EQUAL(gateway_role_needed("no_such_method"), GATEWAY_ADMIN);
	CU_ASSERT_EQUAL(gateway_role_needed(""), GATEWAY_ADMIN);
	CU_ASSERT_EQUAL(gateway_role_needed("bdev_get_bdevs"), GATEWAY_READ);
	CU_ASSERT_EQUAL(gateway_role_needed("keyring_get_keys"), GATEWAY_ADMIN);
}

static void test_the_document_has_what_the_role_may_call(void)
{
	json_t *methods = json_loads(
		"[{\"name\":\"bdev_get_bdevs\",\"params\":[{\"name\":\"name\",\"type\":\"string\",\"required\":false},"
		"{\"name\":\"list\",\"type\":\"array\",\"required\":true}]},"
		"{\"name\":\"spdk_kill_instance\",\"params\":[]}]",
		0, NULL);
	json_t *document = gateway_openapi(methods, GATEWAY_READ);
	json_t *schemas = json_object_get(json_object_get(document, "components"), "schemas");
	json_t *params = json_object_get(
		json_object_get(json_object_get(json_object_get(schemas, "bdev_get_bdevs"), "properties"), "params"),
		"properties");

	CU_ASSERT_EQUAL(json_object_size(params), 2);
	CU_ASSERT_PTR_NOT_NULL(json_object_get(json_object_get(params, "list"), "items"));
	CU_ASSERT_EQUAL(json_array_size(json_object_get(json_object_get(schemas, "call"), "oneOf")), 1);
	CU_ASSERT_PTR_NULL(json_object_get(schemas, "spdk_kill_instance"));
	json_decref(document);
	json_decref(methods);
}

static const struct unit_test tests[] = {
	UNIT(test_a_request_and_a_batch_pass),
	UNIT(test_numbers_beyond_the_library_pass),
	UNIT(test_what_is_no_request_is_refused),
	UNIT(test_a_key_that_stands_twice_is_refused),
	UNIT(test_an_escaped_key_or_name_is_the_same),
	UNIT(test_one_call_of_a_batch_that_is_forbidden_refuses_it),
	UNIT(test_parameters_may_need_more_than_their_method),
	UNIT(test_what_is_nested_too_deep_or_too_long_is_refused),
	UNIT(test_a_name_cannot_write_into_the_log),
	UNIT(test_unknown_methods_need_admin),
	UNIT(test_the_document_has_what_the_role_may_call),
	UNIT_END,
};
UNIT_MAIN("gateway_request", tests, NULL, NULL)
