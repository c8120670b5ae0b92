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

static void test_names_tell_the_strings_of_a_daemon_that_describes_nothing(void)
{
	check("trsvcid=4420 num_blocks=4420", false, "{\"num_blocks\":4420,\"trsvcid\":\"4420\"}");
	check("listen_address.trsvcid=4420 listen_address.adrfam=4", false,
	      "{\"listen_address\":{\"adrfam\":\"4\",\"trsvcid\":\"4420\"}}");
	check("name=1.50 serial_number=007 uuid=null nguid=true bdev=18446744073709551615", false,
	      "{\"bdev\":\"18446744073709551615\",\"name\":\"1.50\",\"nguid\":\"true\",\"serial_number\":\"007\","
	      "\"uuid\":\"null\"}");
	check("config_param={\"a\":1} name=[1]", false, "{\"config_param\":{\"a\":1},\"name\":[1]}");
	check("vtrsvcid=1 trsvcidx=1 aaa=1 zzz=1", false, "{\"aaa\":1,\"trsvcidx\":1,\"vtrsvcid\":1,\"zzz\":1}");
	check("path=1", true, "{\"path\":1}");
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

static void check_blocks(const char *args, const char *expected)
{
	static const char blocks[] =
		"[{\"name\":\"num_blocks\",\"type\":\"uint64\"},{\"name\":\"block_size\",\"type\":\"uint32\","
		"\"unit\":\"bytes\"},{\"name\":\"name\",\"type\":\"string\"}]";
	char copy[256], *argv[8], *save, error[512] = "", *text;
	int argc = 0;
	json_t *description = json_loads(blocks, 0, NULL);

	snprintf(copy, sizeof(copy), "%s", args);
	for (char *a = strtok_r(copy, " ", &save); a != NULL; a = strtok_r(NULL, " ", &save)) {
		argv[argc++] = a;
	}
	json_t *params = rpc_args_parse(argc, argv, description, error, sizeof(error));
	text = params != NULL ? json_dumps(params, JSON_COMPACT | JSON_SORT_KEYS) : strdup(error);
	CU_ASSERT_STRING_EQUAL(text, expected);
	free(text);
	json_decref(params);
	json_decref(description);
}

static void test_sizes_may_have_units(void)
{
	check_blocks("block_size=4K num_blocks=5", "{\"block_size\":4096,\"num_blocks\":5}");
	check_blocks("block_size=4096 size=1G", "{\"block_size\":4096,\"num_blocks\":262144}");
	check_blocks("size=8192 block_size=512", "{\"block_size\":512,\"num_blocks\":16}");
	check_blocks("name=4K", "{\"name\":\"4K\"}");
	check_blocks("num_blocks=4K", "{\"num_blocks\":\"4K\"}"); /* blocks have no unit: the daemon refuses it */
	check_blocks("block_size=4Q", "{\"block_size\":\"4Q\"}");
	check_blocks("size=1G", "size needs block_size, such as block_size=4096");
	check_blocks("size=1G block_size=x", "size needs block_size, such as block_size=4096");
	check_blocks("size=1G block_size=512 num_blocks=1", "give either size or num_blocks");
	check_blocks("size=0 block_size=512", "size is not a number of bytes such as 64M or 1G");
	check_blocks("size=-1 block_size=512", "size is not a number of bytes such as 64M or 1G");
	check_blocks("size=big block_size=512", "size is not a number of bytes such as 64M or 1G");
	check_blocks("size=1000 block_size=512", "size, 1000 bytes, is not a multiple of block_size, 512");
}

static void check_hints(const char *arg, const char *expected)
{
	char copy[128], *argv[] = {copy}, *text = NULL;
	size_t size;
	json_t *description = json_loads(description_text, 0, NULL);
	FILE *out = open_memstream(&text, &size);

	CU_ASSERT_PTR_NOT_NULL_FATAL(out);
	snprintf(copy, sizeof(copy), "%s", arg);
	rpc_args_print_hints(1, argv, description, out);
	fclose(out);
	CU_ASSERT_STRING_EQUAL(text, expected);
	CU_ASSERT_STRING_EQUAL(copy, arg);
	free(text);
	json_decref(description);
}

static void test_the_key_that_was_meant_is_named(void)
{
	check_hints("nmae=1", "varve-rpc: nmae: did you mean name?\n");
	check_hints("adress.traddr=1", "varve-rpc: adress: did you mean address?\n");
	check_hints("address.tradr=a.b", "varve-rpc: tradr: did you mean traddr?\n");
	check_hints("address.traddr=1", "");
	check_hints("name.nmae=1", "");
	check_hints("quite=other", "");
	check_hints("", "");
	check_hints("address.", "");
}

static const struct unit_test tests[] = {
	UNIT(test_values_that_are_json_are_taken_as_such),
	UNIT(test_other_values_are_strings),
	UNIT(test_a_string_parameter_gets_a_string_in_any_case),
	UNIT(test_names_tell_the_strings_of_a_daemon_that_describes_nothing),
	UNIT(test_dots_make_objects),
	UNIT(test_integers_beyond_int64_become_hexadecimal),
	UNIT(test_wrong_arguments_are_refused),
	UNIT(test_sizes_may_have_units),
	UNIT(test_the_key_that_was_meant_is_named),
	UNIT_END,
};

UNIT_MAIN("rpc_args", tests, NULL, NULL)
