/* SPDX-License-Identifier: BSD-3-Clause */
/* How varve-rpc prints what daemons answer. */
#include "tools/print/print.h"

#include "unittest/unit.h"

static void check_printed(const char *json, enum print_format format, unsigned width, const char *expected)
{
	json_t *value = json_loads(json, JSON_DECODE_ANY, NULL);
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	CU_ASSERT_PTR_NOT_NULL_FATAL(value);
	CU_ASSERT_PTR_NOT_NULL_FATAL(out);
	print_value(value, format, width, out);
	fclose(out);
	if (strcmp(text, expected) != 0) {
		printf("%s\n", text);
		CU_FAIL("not what was expected");
	}
	free(text);
	json_decref(value);
}

#define BDEVS                                                                                                          \
	"[{\"name\":\"M\",\"block_size\":4096,\"num_blocks\":16384,\"aliases\":[],\"o\":{\"a\":true,\"b\":{\"c\":1}}}" \
	","                                                                                                            \
	"{\"name\":\"longer\",\"block_size\":512,\"num_blocks\":3,\"aliases\":[\"x\"],\"later\":null}]"

static void test_objects_are_a_table(void)
{
	check_printed(BDEVS, PRINT_TABLE, 0,
		      "name     size  block_size  num_blocks  aliases  later\n"
		      "M       64.0M        4.0K       16384  -        -\n"
		      "longer   1.5K         512           3  x        -\n");
	check_printed(BDEVS, PRINT_TABLE, 30,
		      "name     size  block_size\n"
		      "M       64.0M        4.0K\n"
		      "longer   1.5K         512\n"
		      "(3 more columns: -o wide)\n");
	check_printed(BDEVS, PRINT_TABLE, 1, "name\nM\nlonger\n(5 more columns: -o wide)\n");
	check_printed(BDEVS, PRINT_WIDE, 30,
		      "name     size  block_size  num_blocks  aliases  o.a   o.b.c  later\n"
		      "M       64.0M        4.0K       16384  -        true      1  -\n"
		      "longer   1.5K         512           3  x        -         -  -\n");
}

static void test_one_object_is_a_list_of_its_members(void)
{
	check_printed("[{\"name\":\"M\",\"block_size\":512,\"num_blocks\":4,\"o\":{\"inner\":[1,2]}}]", PRINT_TABLE, 0,
		      "name        M\n"
		      "block_size  512\n"
		      "num_blocks  4\n"
		      "size        2.0K\n"
		      "o:\n"
		      "  inner  [1,2]\n");
	check_printed("{\"n\":1,\"list\":[{\"a\":\"x\"}]}", PRINT_TABLE, 0, "n  1\nlist:\n  a\n  x\n");
}

static void test_other_values_stand_for_themselves(void)
{
	check_printed("[\"a\",\"b\"]", PRINT_TABLE, 0, "a\nb\n");
	check_printed("[]", PRINT_TABLE, 0, "(none)\n");
	check_printed("{}", PRINT_TABLE, 0, "(none)\n");
	check_printed("true", PRINT_TABLE, 0, "true\n");
	check_printed("12", PRINT_JSON, 0, "12\n");
	check_printed("[1,[2,{\"a\":3}]]", PRINT_TABLE, 0, "1\n[2,{\"a\":3}]\n");
}

static void test_long_cells_are_cut_between_characters(void)
{
	check_printed(
		"[{\"a\":\"\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4"
		"\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4"
		"\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\"},{\"a\":\"x\\ny\\u001b\"}]",
		PRINT_TABLE, 0,
		"a\n\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4"
		"\u00e4"
		"\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4"
		"\u00e4\u00e4\u00e4...\nx y\\u001b\n");
}

static void test_yaml_is_read_as_the_same_value(void)
{
	check_printed("{\"a\":\"yes\",\"b\":[1,{\"c\":null,\"d\":[]},[true]],\"e\":{}}", PRINT_YAML, 0,
		      "\"a\": \"yes\"\n"
		      "\"b\":\n"
		      "  - 1\n"
		      "  - \"c\": null\n"
		      "    \"d\": []\n"
		      "  - - true\n"
		      "\"e\": {}\n");
	check_printed("\"x: y\"", PRINT_YAML, 0, "\"x: y\"\n");
}

static void check_size(uint64_t bytes, const char *expected)
{
	char text[PRINT_SIZE_MAX];

	CU_ASSERT_STRING_EQUAL(print_size(bytes, text), expected);
}

static void test_sizes_have_units(void)
{
	check_size(0, "0");
	check_size(1023, "1023");
	check_size(1024, "1.0K");
	check_size(1048575, "1.0M");
	check_size(3ULL << 30, "3.0G");
	check_size(UINT64_MAX, "16.0E");
}

static void test_formats_have_names(void)
{
	CU_ASSERT_EQUAL(print_format_find("yaml"), PRINT_YAML);
	CU_ASSERT_EQUAL(print_format_find("json"), PRINT_JSON);
	CU_ASSERT_EQUAL(print_format_find("xml"), -1);
}

static const struct unit_test tests[] = {
	UNIT(test_objects_are_a_table),
	UNIT(test_one_object_is_a_list_of_its_members),
	UNIT(test_other_values_stand_for_themselves),
	UNIT(test_long_cells_are_cut_between_characters),
	UNIT(test_yaml_is_read_as_the_same_value),
	UNIT(test_sizes_have_units),
	UNIT(test_formats_have_names),
	UNIT_END,
};

UNIT_MAIN("rpc_print", tests, NULL, NULL)
