/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/params.h"

#include <errno.h>

#include "rpc/message.h"
#include "util/log.h"
#include "unittest/unit.h"

struct address {
	char *traddr;
	uint16_t port;
	bool port_given;
};

struct sample {
	char *name;
	bool flag;
	uint8_t small;
	uint16_t medium;
	int32_t number;
	uint32_t large;
	uint64_t mask;
	int colour;
	char *uuid;
	json_t *anything;
	json_t *list;
	struct address address;
	uint32_t limited;
	int32_t offset;
};

static const struct rpc_enum colours[] = {{"red", 1}, {"green", 2}, {NULL, 0}};
static const struct rpc_param address_params[] = {
	RPC_PARAM(struct address, traddr, RPC_STRING, RPC_REQUIRED, "where"),
	RPC_PARAM(struct address, port, RPC_UINT16, RPC_OPTIONAL, "which",
		  .given_offset = offsetof(struct address, port_given)),
	RPC_PARAM_END,
};
static const struct rpc_param sample_params[] = {
	RPC_PARAM(struct sample, name, RPC_STRING, RPC_REQUIRED, "a name"),
	RPC_PARAM(struct sample, flag, RPC_BOOL, RPC_OPTIONAL, ""),
	RPC_PARAM(struct sample, small, RPC_UINT8, RPC_OPTIONAL, ""),
	RPC_PARAM(struct sample, medium, RPC_UINT16, RPC_OPTIONAL, ""),
	RPC_PARAM(struct sample, number, RPC_INT32, RPC_OPTIONAL, ""),
	RPC_PARAM(struct sample, large, RPC_UINT32, RPC_OPTIONAL, ""),
	RPC_PARAM(struct sample, mask, RPC_UINT64, RPC_OPTIONAL, ""),
	RPC_PARAM(struct sample, colour, RPC_ENUM, RPC_OPTIONAL, "", .enums = colours),
	RPC_PARAM(struct sample, uuid, RPC_UUID, RPC_OPTIONAL, ""),
	RPC_PARAM(struct sample, anything, RPC_OBJECT, RPC_OPTIONAL, ""),
	RPC_PARAM(struct sample, list, RPC_ARRAY, RPC_OPTIONAL, ""),
	RPC_PARAM(struct sample, address, RPC_OBJECT, RPC_OPTIONAL, "", .object = address_params),
	RPC_PARAM(struct sample, limited, RPC_UINT32, RPC_OPTIONAL, "", .min = 5, .max = 10),
	RPC_PARAM(struct sample, offset, RPC_INT32, RPC_OPTIONAL, "", .min = (uint64_t)-5, .max = 10),
	RPC_ONLY(digest, RPC_BOOL, "false", "there are none"),
	RPC_ONLY(secret, RPC_STRING, "null", "there is no use for one"),
	RPC_ONLY(mode, RPC_STRING, "\"any\"", "there is one mode"),
	RPC_ONLY(masks, RPC_ARRAY, "[]", "nothing is masked"),
	RPC_NO_EFFECT(socket, RPC_STRING, "null", "there are no sockets"),
	RPC_NO_EFFECT(queue, RPC_UINT32, "0", "there is one"),
	RPC_NO_EFFECT(node, RPC_INT32, "-1", "all are near"),
	RPC_NO_EFFECT(bar, RPC_BOOL, "false", "there is none"),
	RPC_PARAM_END,
};

/* Decodes the params of a request, as the server would; s starts as zeroes. */
static int decode(const char *params, struct sample *s, char *why)
{
	char text[1024];
	struct rpc_message m;

	snprintf(text, sizeof(text), "{\"method\":\"m\",\"params\":%s}", params);
	CU_ASSERT_EQUAL_FATAL(rpc_message_decode(text, strlen(text), &m), 0);
	CU_ASSERT_EQUAL_FATAL(m.calls[0].error, 0);
	memset(s, 0, sizeof(*s));
	int rc = rpc_params_decode(sample_params, m.calls[0].params, s, why, RPC_ERROR_TEXT_MAX);
	rpc_message_free(&m);
	return rc;
}

/* The params must be refused, and the reason hold each of the words (separated by `|`). */
static void check_refused(const char *params, const char *words)
{
	struct sample s;
	char why[RPC_ERROR_TEXT_MAX] = "", list[256], *save;

	CU_ASSERT_EQUAL(decode(params, &s, why), -EINVAL);
	rpc_params_free(sample_params, &s);
	snprintf(list, sizeof(list), "%s", words);
	for (char *w = strtok_r(list, "|", &save); w != NULL; w = strtok_r(NULL, "|", &save)) {
		if (strstr(why, w) == NULL) {
			printf("\"%s\" is not in: %s\n", w, why);
			CU_FAIL("the reason lacks a word");
		}
	}
}

static void test_every_type_is_decoded(void)
{
	struct sample s;
	char why[RPC_ERROR_TEXT_MAX];

	CU_ASSERT_EQUAL_FATAL(
		decode("{\"name\":\"n\",\"flag\":true,\"small\":255,\"medium\":65535,\"number\":-2147483648,"
		       "\"large\":4294967295,\"mask\":1,\"colour\":\"Green\",\"uuid\":\"AAAAAAAA-bbbb-cccc-"
		       "dddd-eeeeeeeeeeee\","
		       "\"address\":{\"traddr\":\"::1\",\"port\":4420},\"limited\":5,\"offset\":-5}",
		       &s, why),
		0);
	CU_ASSERT_STRING_EQUAL(s.name, "n");
	CU_ASSERT_TRUE(s.flag);
	CU_ASSERT_EQUAL(s.small, 255);
	CU_ASSERT_EQUAL(s.medium, 65535);
	CU_ASSERT_EQUAL(s.number, INT32_MIN);
	CU_ASSERT_EQUAL(s.large, UINT32_MAX);
	CU_ASSERT_EQUAL(s.mask, 1);
	CU_ASSERT_EQUAL(s.colour, 2);
	CU_ASSERT_STRING_EQUAL(s.uuid, "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee");
	CU_ASSERT_STRING_EQUAL(s.address.traddr, "::1");
	CU_ASSERT_EQUAL(s.address.port, 4420);
	CU_ASSERT_TRUE(s.address.port_given);
	CU_ASSERT_EQUAL(s.limited, 5);
	CU_ASSERT_EQUAL(s.offset, -5);
	rpc_params_free(sample_params, &s);
}

static void test_defaults_stay_where_nothing_is_given(void)
{
	struct sample s = {.small = 7, .name = strdup("before"), .uuid = strdup("kept")};
	char why[RPC_ERROR_TEXT_MAX];
	json_t *given = json_pack("{s:s}", "name", "after");

	CU_ASSERT_EQUAL(rpc_params_decode(sample_params, given, &s, why, sizeof(why)), 0);
	CU_ASSERT_EQUAL(s.small, 7);
	CU_ASSERT_STRING_EQUAL(s.name, "after");
	CU_ASSERT_STRING_EQUAL(s.uuid, "kept");
	CU_ASSERT_FALSE(s.address.port_given);
	json_decref(given);
	rpc_params_free(sample_params, &s);
}

static void test_64_bits_come_as_a_number_or_a_hexadecimal_string(void)
{
	static const struct {
		const char *text;
		uint64_t value;
	} cases[] = {
		{"{\"name\":\"\",\"mask\":18446744073709551615}", UINT64_MAX},
		{"{\"name\":\"\",\"mask\":9223372036854775808}", 1ULL << 63},
		{"{\"name\":\"\",\"mask\":\"0xffffffffffffffff\"}", UINT64_MAX},
		{"{\"name\":\"\",\"mask\":\"0X10\"}", 16},
	};
	struct sample s;
	char why[RPC_ERROR_TEXT_MAX];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		CU_ASSERT_EQUAL(decode(cases[i].text, &s, why), 0);
		CU_ASSERT_EQUAL(s.mask, cases[i].value);
		rpc_params_free(sample_params, &s);
	}
}

static void test_integers_out_of_range_are_refused(void)
{
	check_refused("{\"name\":\"\",\"small\":256}", "\"small\"|256|from 0 to 255");
	check_refused("{\"name\":\"\",\"small\":-1}", "\"small\"|-1");
	check_refused("{\"name\":\"\",\"medium\":65536}", "\"medium\"|65536");
	check_refused("{\"name\":\"\",\"large\":4294967296}", "\"large\"|4294967296|4294967295");
	check_refused("{\"name\":\"\",\"number\":2147483648}", "\"number\"|-2147483648 to 2147483647");
	check_refused("{\"name\":\"\",\"number\":-2147483649}", "\"number\"|-2147483649");
	check_refused("{\"name\":\"\",\"mask\":18446744073709551616}", "\"mask\"|18446744073709551616");
	check_refused("{\"name\":\"\",\"mask\":-1}", "\"mask\"|-1");
	check_refused("{\"name\":\"\",\"mask\":\"0x10000000000000000\"}", "\"mask\"|0x10000000000000000");
	check_refused("{\"name\":\"\",\"limited\":4}", "\"limited\"|4|from 5 to 10");
	check_refused("{\"name\":\"\",\"limited\":11}", "\"limited\"|11|from 5 to 10");
	check_refused("{\"name\":\"\",\"offset\":-6}", "\"offset\"|-6|from -5 to 10");
	check_refused("{\"name\":\"\",\"offset\":11}", "\"offset\"|11");
}

static void test_wrong_types_are_refused(void)
{
	check_refused("{\"name\":5}", "\"name\"|5|a string");
	check_refused("{\"name\":18446744073709551616}", "\"name\"|18446744073709551616|a string");
	check_refused("{\"name\":null}", "\"name\"|null|a string");
	check_refused("{\"name\":\"\",\"flag\":1}", "\"flag\"|true or false");
	check_refused("{\"name\":\"\",\"large\":\"5\"}", "\"large\"|\"5\"|an integer");
	check_refused("{\"name\":\"\",\"large\":1.0}", "\"large\"|an integer");
	check_refused("{\"name\":\"\",\"large\":\"0x5\"}", "\"large\"");
	check_refused("{\"name\":\"\",\"mask\":\"5\"}", "\"mask\"");
	check_refused("{\"name\":\"\",\"colour\":\"blue\"}", "\"colour\"|\"blue\"|\"red\", \"green\"");
	check_refused("{\"name\":\"\",\"colour\":1}", "\"colour\"|\"red\"");
	check_refused("{\"name\":\"\",\"uuid\":\"1234\"}", "\"uuid\"|1234|a UUID");
	check_refused("{\"name\":\"\",\"anything\":[]}", "\"anything\"|an object");
	check_refused("{\"name\":\"\",\"list\":{}}", "\"list\"|an array");
	check_refused("{\"name\":\"\",\"address\":\"::1\"}", "\"address\"|an object");
}

static void test_missing_and_unknown_parameters_are_named(void)
{
	check_refused("{}", "\"name\"|missing|string");
	check_refused("{\"name\":\"\",\"nmae\":1}", "\"nmae\"|unknown|name, flag, small");
	check_refused("{\"name\":\"\",\"address\":{}}", "\"address.traddr\"|missing");
	check_refused("{\"name\":\"\",\"address\":{\"traddr\":\"\",\"x\":1}}", "\"address.x\"|traddr, port");
	check_refused("{\"name\":\"\",\"address\":{\"traddr\":\"\",\"port\":70000}}", "\"address.port\"|70000");
}

static void test_of_what_others_have_only_one_value_is_taken(void)
{
	char why[RPC_ERROR_TEXT_MAX];
	struct sample s;

	CU_ASSERT_EQUAL(
		decode("{\"name\":\"n\",\"digest\":false,\"secret\":null,\"mode\":\"any\",\"masks\":[ ]}", &s, why), 0);
	CU_ASSERT_STRING_EQUAL(s.name, "n");
	rpc_params_free(sample_params, &s);
	check_refused("{\"name\":\"\",\"digest\":true}", "\"digest\" is true|expected false: there are none");
	check_refused("{\"name\":\"\",\"digest\":0}", "\"digest\" is 0|false");
	check_refused("{\"name\":\"\",\"secret\":\"\"}", "\"secret\" is \"\"|null");
	check_refused("{\"name\":\"\",\"secret\":true}", "\"secret\" is true|null");
	check_refused("{\"name\":\"\",\"mode\":\"some\"}", "\"mode\" is \"some\"|expected \"any\"");
	check_refused("{\"name\":\"\",\"masks\":[1]}", "\"masks\" is [1]|expected []");
	check_refused("{\"name\":\"\",\"digest\":18446744073709551615}", "\"digest\"|18446744073709551615");
}

static void check_not_shown(const char *text, const char *hidden)
{
	char why[RPC_ERROR_TEXT_MAX];
	struct sample s;

	CU_ASSERT_EQUAL(decode(text, &s, why), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(why, "is not shown, for it may be a secret: expected"));
	CU_ASSERT_PTR_NULL(strstr(why, hidden));
	rpc_params_free(sample_params, &s);
}

/* Clients write errors to logs of their own. */
static void test_errors_do_not_show_secrets(void)
{
	check_not_shown("{\"name\":\"\",\"secret\":\"hunter22\"}", "hunter");
	check_not_shown("{\"name\":\"\",\"secret\":{\"a\":\"hunter22\"}}", "hunter");
	check_not_shown("{\"name\":\"\",\"secret\":4711}", "4711");
	check_not_shown("{\"name\":\"\",\"mode\":\"DHHC-1:00:abcdefgh:\"}", "abcd");
	check_not_shown("{\"name\":\"\",\"masks\":[\"NVMeTLSkey-1:01:abcdefgh:\"]}", "abcd");
}

static void test_what_has_no_effect_is_taken_if_it_has_its_type(void)
{
	char why[RPC_ERROR_TEXT_MAX];
	struct sample s;

	CU_ASSERT_EQUAL(decode("{\"name\":\"n\",\"socket\":\"ssl\",\"queue\":7,\"node\":-2,\"bar\":true}", &s, why), 0);
	CU_ASSERT_STRING_EQUAL(s.name, "n");
	rpc_params_free(sample_params, &s);
	CU_ASSERT_EQUAL(decode("{\"name\":\"\",\"socket\":null,\"queue\":0,\"node\":-1,\"bar\":false}", &s, why), 0);
	rpc_params_free(sample_params, &s);
	check_refused("{\"name\":\"\",\"socket\":1}", "\"socket\" is 1|expected a string");
	check_refused("{\"name\":\"\",\"queue\":-1}", "\"queue\" is -1|expected an integer from 0 to 4294967295");
	check_refused("{\"name\":\"\",\"queue\":18446744073709551615}", "\"queue\"|18446744073709551615");
	check_refused("{\"name\":\"\",\"bar\":0}", "\"bar\" is 0|expected true or false");
}

static unsigned lines_logged;

static void count_line(enum log_level level, const char *file, int line, const char *text)
{
	lines_logged += strstr(text, "no effect") != NULL;
}

static unsigned lines_about(const struct rpc_param *table, const char *text)
{
	json_t *given = json_loads(text, 0, NULL);

	CU_ASSERT_PTR_NOT_NULL_FATAL(given);
	lines_logged = 0;
	rpc_params_log_no_effect("method", table, given);
	json_decref(given);
	return lines_logged;
}

static void test_what_asks_for_no_effect_is_logged_once(void)
{
	static const struct rpc_param inner[] = {RPC_NO_EFFECT(deep, RPC_BOOL, "false", "it is not there"),
						 RPC_PARAM_END};
	static const struct rpc_param outer[] = {
		RPC_NO_EFFECT(socket, RPC_STRING, "null", "it is not there"),
		{.name = "address", .type = RPC_OBJECT, .object = inner},
		{.name = "any", .type = RPC_OBJECT},
		RPC_PARAM_END,
	};
	static struct rpc_param many[71];

	log_set_tap(count_line);
	CU_ASSERT_EQUAL(lines_about(NULL, "{}"), 0);
	CU_ASSERT_EQUAL(lines_about(outer, "{\"socket\":null,\"address\":{\"deep\":false},\"any\":{}}"), 0);
	CU_ASSERT_EQUAL(lines_about(outer, "{\"socket\":\"a\",\"address\":{\"deep\":true}}"), 2);
	CU_ASSERT_EQUAL(lines_about(outer, "{\"socket\":\"b\",\"address\":{\"deep\":true}}"), 0);
	/* One that there is no place for is logged each time. */
	for (unsigned i = 0; i < 70; i++) {
		many[i] = (struct rpc_param)RPC_NO_EFFECT(more, RPC_BOOL, "false", "it is not there");
	}
	CU_ASSERT_EQUAL(lines_about(many, "{\"more\":true}"), 70);
	CU_ASSERT_EQUAL(lines_about(&many[69], "{\"more\":true}"), 1);
	log_set_tap(NULL);
}

static void test_a_range_around_zero_has_both_signs(void)
{
	char why[RPC_ERROR_TEXT_MAX];
	struct sample s;

	for (int32_t n = -5; n <= 10; n++) {
		char text[64];

		snprintf(text, sizeof(text), "{\"name\":\"\",\"offset\":%d}", n);
		CU_ASSERT_EQUAL(decode(text, &s, why), 0);
		CU_ASSERT_EQUAL(s.offset, n);
		rpc_params_free(sample_params, &s);
	}
}

static void test_a_long_value_is_cut_in_the_message(void)
{
	char text[512], why[RPC_ERROR_TEXT_MAX];
	struct sample s;

	snprintf(text, sizeof(text), "{\"name\":\"\",\"colour\":\"%0300d\"}", 0);
	CU_ASSERT_EQUAL(decode(text, &s, why), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(why, "..."));
	CU_ASSERT_TRUE(strlen(why) < 300);
	rpc_params_free(sample_params, &s);
}

static void test_a_method_without_parameters_takes_none(void)
{
	static const struct rpc_param none[] = {RPC_PARAM_END};
	char why[RPC_ERROR_TEXT_MAX], nothing;
	json_t *given = json_pack("{s:i}", "x", 1);

	CU_ASSERT_EQUAL(rpc_params_decode(NULL, NULL, &nothing, why, sizeof(why)), 0);
	CU_ASSERT_EQUAL(rpc_params_decode(NULL, given, &nothing, why, sizeof(why)), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(why, "\"x\""));
	CU_ASSERT_EQUAL(rpc_params_decode(none, given, &nothing, why, sizeof(why)), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(why, "none is taken"));
	rpc_params_free(NULL, &nothing);
	rpc_params_free(none, &nothing);
	json_decref(given);
}

static const struct unit_test tests[] = {
	UNIT(test_every_type_is_decoded),
	UNIT(test_defaults_stay_where_nothing_is_given),
	UNIT(test_64_bits_come_as_a_number_or_a_hexadecimal_string),
	UNIT(test_integers_out_of_range_are_refused),
	UNIT(test_wrong_types_are_refused),
	UNIT(test_missing_and_unknown_parameters_are_named),
	UNIT(test_of_what_others_have_only_one_value_is_taken),
	UNIT(test_errors_do_not_show_secrets),
	UNIT(test_what_has_no_effect_is_taken_if_it_has_its_type),
	UNIT(test_what_asks_for_no_effect_is_logged_once),
	UNIT(test_a_range_around_zero_has_both_signs),
	UNIT(test_a_long_value_is_cut_in_the_message),
	UNIT(test_a_method_without_parameters_takes_none),
	UNIT_END,
};

UNIT_MAIN("rpc_params", tests, NULL, NULL)
