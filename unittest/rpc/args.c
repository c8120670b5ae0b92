/* SPDX-License-Identifier: BSD-3-Clause */
/* varve-rpc's key=value arguments. */
#include "tools/varve-rpc.h"
#include "unittest/unit.h"

static const char description_text[] =
	"[{\"name\":\"name\",\"type\":\"string\"},{\"name\":\"size\",\"type\":\"uint64\"},{\"name\":\"id\","
	"\"type\":\"uuid\"},"
	"{\"name\":\"address\",\"type\":\"object\",\"fields\":[{\"name\":\"traddr\",\"type\":\"string\"},"
	"{\"name\":\"port\",\"type\":\"uint16\"}]}]";

/* The arguments, separated by blanks, must give the object (sorted, compact); NULL: they must be refused. */
static void check(const char *args, bool described, const char *object)
{
	char copy[512], *argv[16], *save, error[256] = "";
	int argc = 0;
	json_t *description = described ? json_loads(description_text, 0, NULL) : NULL;

	snprintf(copy, sizeof(copy), "%s", args);
	for (char *a = strtok_r(copy, " ", &save); a != NULL; a = strtok_r(NULL, " ", &save)) {
		argv[argc++] = a;
	}
	json_t *params = rpc_args_parse(argc, argv, description, error, sizeof(error));
	if (object == NULL) {
		CU_ASSERT_PTR_NULL(params);
		CU_ASSERT_NOT_EQUAL(error[0], '\0');
	} else {
		char *text = json_dumps(params, JSON_COMPACT | JSON_SORT_KEYS);
		CU_ASSERT_PTR_NOT_NULL_FATAL(text);
		CU_ASSERT_STRING_EQUAL(text, object);
		free(text);
	}
	json_decref(params);
	json_decref(description);
}

static void test_values_that_are_json_are_taken_as_such(void)
{
	check("a=1 b=true c=null d=[1,\"x\"] e={\"f\":2} g=\"1\"", false,
	      "{\"a\":1,\"b\":true,\"c\":null,\"d\":[1,\"x\"],\"e\":{\"f\":2},\"g\":\"1\"}");
}

static void test_other_values_are_strings(void)
{
	check("a=Malloc0 b=0x1f c= d=1k e=a=b f=nqn.2014-08.org:x", false,
	      "{\"a\":\"Malloc0\",\"b\":\"0x1f\",\"c\":\"\",\"d\":\"1k\",\"e\":\"a=b\",\"f\":\"nqn.2014-08."
	      "org:x\"}");
}

static void test_a_string_parameter_gets_a_string_in_any_case(void)
{
	check("name=123 size=123 id=1", true, "{\"id\":\"1\",\"name\":\"123\",\"size\":123}");
	check("address.traddr=127 address.port=4420", true, "{\"address\":{\"port\":4420,\"traddr\":\"127\"}}");
}

static void test_dots_make_objects(void)
{
	check("a.b.c=1 a.b.d=2 a.e=3", false, "{\"a\":{\"b\":{\"c\":1,\"d\":2},\"e\":3}}");
	check("a={\"x\":1} a.b=2", false, "{\"a\":{\"b\":2,\"x\":1}}");
}

static void test_integers_beyond_int64_become_hexadecimal(void)
{
	check("size=18446744073709551615", true, "{\"size\":\"0xffffffffffffffff\"}");
	check("size=18446744073709551616", true, "{\"size\":\"18446744073709551616\"}");
}

static void test_wrong_arguments_are_refused(void)
{
	check("novalue", false, NULL);
	check("=1", false, NULL);
	check("a=1 a=2", false, NULL);
	check("a=1 a.b=2", false, NULL);
	check("a.=1", false, NULL);
	check("a=\xff", false, NULL);
	check("\xff=1", false, NULL);
}

static const struct unit_test tests[] = {
	UNIT(test_values_that_are_json_are_taken_as_such),
	UNIT(test_other_values_are_strings),
	UNIT(test_a_string_parameter_gets_a_string_in_any_case),
	UNIT(test_dots_make_objects),
	UNIT(test_integers_beyond_int64_become_hexadecimal),
	UNIT(test_wrong_arguments_are_refused),
	UNIT_END,
};

UNIT_MAIN("rpc_args", tests, NULL, NULL)
