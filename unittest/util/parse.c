/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>

#include "unittest/unit.h"
#include "util/parse.h"

static void test_decimal_and_hexadecimal_numbers_are_parsed(void)
{
	uint64_t v;

	CU_ASSERT_EQUAL(parse_uint64("0", 0, UINT64_MAX, &v), 0);
	CU_ASSERT_EQUAL(v, 0);
	CU_ASSERT_EQUAL(parse_uint64("18446744073709551615", 0, UINT64_MAX, &v), 0);
	CU_ASSERT_EQUAL(v, UINT64_MAX);
	CU_ASSERT_EQUAL(parse_uint64("0xFf", 0, UINT64_MAX, &v), 0);
	CU_ASSERT_EQUAL(v, 255);
	CU_ASSERT_EQUAL(parse_uint64("0xffffffffffffffff", 0, UINT64_MAX, &v), 0);
	CU_ASSERT_EQUAL(v, UINT64_MAX);
}

static void test_what_is_not_wholly_a_number_is_rejected(void)
{
	const char *const wrong[] = {"", "-1", "+1", " 1", "1 ", "0x", "12a", "a", "0b1", "1.0", "0x1g"};
	uint64_t v = 7;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		CU_ASSERT_EQUAL(parse_uint64(wrong[i], 0, UINT64_MAX, &v), -EINVAL);
	}
	CU_ASSERT_EQUAL(v, 7);
}

static void test_numbers_out_of_range_are_rejected(void)
{
	uint64_t v;

	CU_ASSERT_EQUAL(parse_uint64("18446744073709551616", 0, UINT64_MAX, &v), -ERANGE);
	CU_ASSERT_EQUAL(parse_uint64("0x10000000000000000", 0, UINT64_MAX, &v), -ERANGE);
	CU_ASSERT_EQUAL(parse_uint64("4", 5, 9, &v), -ERANGE);
	CU_ASSERT_EQUAL(parse_uint64("10", 5, 9, &v), -ERANGE);
	CU_ASSERT_EQUAL(parse_uint64("9", 5, 9, &v), 0);
}

static void test_sizes_take_a_power_of_1024(void)
{
	uint64_t v;

	CU_ASSERT_EQUAL(parse_size("4096", 0, UINT64_MAX, &v), 0);
	CU_ASSERT_EQUAL(v, 4096);
	CU_ASSERT_EQUAL(parse_size("64k", 0, UINT64_MAX, &v), 0);
	CU_ASSERT_EQUAL(v, 65536);
	CU_ASSERT_EQUAL(parse_size("3G", 0, UINT64_MAX, &v), 0);
	CU_ASSERT_EQUAL(v, 3ULL << 30);
	CU_ASSERT_EQUAL(parse_size("1x", 0, UINT64_MAX, &v), -EINVAL);
	CU_ASSERT_EQUAL(parse_size("1kB", 0, UINT64_MAX, &v), -EINVAL);
	CU_ASSERT_EQUAL(parse_size("k", 0, UINT64_MAX, &v), -EINVAL);
	CU_ASSERT_EQUAL(parse_size("18014398509481984k", 0, UINT64_MAX, &v), -ERANGE);
	CU_ASSERT_EQUAL(parse_size("1k", 0, 1023, &v), -ERANGE);
	CU_ASSERT_EQUAL(parse_size("1k", 1025, UINT64_MAX, &v), -ERANGE);
}

static void test_uuids_become_canonical(void)
{
	char uuid[PARSE_UUID_MAX];

	CU_ASSERT_EQUAL(parse_uuid("12345678-9ABC-def0-1234-56789abcdef0", uuid), 0);
	CU_ASSERT_STRING_EQUAL(uuid, "12345678-9abc-def0-1234-56789abcdef0");
	CU_ASSERT_EQUAL(parse_uuid("", uuid), -EINVAL);
	CU_ASSERT_EQUAL(parse_uuid("12345678-9abc-def0-1234-56789abcdef", uuid), -EINVAL);
	CU_ASSERT_EQUAL(parse_uuid("12345678-9abc-def0-1234-56789abcdef01", uuid), -EINVAL);
	CU_ASSERT_EQUAL(parse_uuid("12345678+9abc-def0-1234-56789abcdef0", uuid), -EINVAL);
	CU_ASSERT_EQUAL(parse_uuid("1234567g-9abc-def0-1234-56789abcdef0", uuid), -EINVAL);
}

static void test_utf8_is_told_from_other_bytes(void)
{
	CU_ASSERT_TRUE(utf8_valid("plain", 5));
	CU_ASSERT_TRUE(utf8_valid("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", 9));
	CU_ASSERT_FALSE(utf8_valid("\xc0\x80", 2));         /* overlong */
	CU_ASSERT_FALSE(utf8_valid("\xe0\x80\x80", 3));     /* overlong */
	CU_ASSERT_FALSE(utf8_valid("\xed\xa0\x80", 3));     /* a surrogate */
	CU_ASSERT_FALSE(utf8_valid("\xf4\x90\x80\x80", 4)); /* beyond U+10FFFF */
	CU_ASSERT_FALSE(utf8_valid("\xe2\x82", 2));         /* cut short */
	CU_ASSERT_FALSE(utf8_valid("\xff", 1));
	CU_ASSERT_EQUAL(utf8_sequence("", 0), 0);
}

static void test_control_characters_are_not_printable(void)
{
	CU_ASSERT_EQUAL(utf8_printable(" ", 1), 1);
	CU_ASSERT_EQUAL(utf8_printable("~", 1), 1);
	CU_ASSERT_EQUAL(utf8_printable("\0", 1), 0);
	CU_ASSERT_EQUAL(utf8_printable("\x1f", 1), 0);
	CU_ASSERT_EQUAL(utf8_printable("\x7f", 1), 0);
	CU_ASSERT_EQUAL(utf8_printable("\xc2\x80", 2), 0);
	CU_ASSERT_EQUAL(utf8_printable("\xc2\x9f", 2), 0);
	CU_ASSERT_EQUAL(utf8_printable("\xc2\xa0", 2), 2);
	CU_ASSERT_EQUAL(utf8_printable("\xc3\x80", 2), 2);
	CU_ASSERT_EQUAL(utf8_printable("\xe2\x82\xac", 3), 3);
	CU_ASSERT_EQUAL(utf8_printable("\xe2\x82\xac", 2), 0); /* cut short */
}

static void test_characters_that_turn_or_break_lines_are_not_printable(void)
{
	static const char *const bad[] = {"\xe2\x80\xa8", "\xe2\x80\xa9", "\xe2\x80\xaa",
					  "\xe2\x80\xae", "\xe2\x81\xa6", "\xe2\x81\xa9"};
	static const char *const good[] = {"\xe2\x80\xa7", "\xe2\x80\xaf", "\xe2\x81\xa5",
					   "\xe2\x81\xaa", "\xe2\x82\xa8", "\xe3\x80\xa8"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CU_ASSERT_EQUAL(utf8_printable(bad[i], 3), 0);
		CU_ASSERT_EQUAL(utf8_sequence(bad[i], 3), 3);
	}
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		CU_ASSERT_EQUAL(utf8_printable(good[i], 3), 3);
	}
}

static void expect_quoted(const char *s, size_t size, const char *expected)
{
	char out[32];

	memset(out, 'x', sizeof(out));
	utf8_quote(s, out, size);
	CU_ASSERT_STRING_EQUAL(out, expected);
	CU_ASSERT(size == sizeof(out) || out[size] == 'x');
}

static void test_quoted_texts_have_one_end_and_whole_characters(void)
{
	expect_quoted("", 16, "\"\"");
	expect_quoted("a b", 16, "\"a b\"");
	expect_quoted("x\": allowed", 16, "\"x': allowed\"");
	expect_quoted("0123456789abc", 16, "\"0123456789abc\"");
	expect_quoted("0123456789abcd", 16, "\"01234...9abcd\"");
	expect_quoted("\xc3\xa4\xc3\xb6\xc3\xbc\xc3\xa4\xc3\xb6\xc3\xbc\xc3\x9f", 16,
		      "\"\xc3\xa4\xc3\xb6...\xc3\xbc\xc3\x9f\"");
	expect_quoted("\xf0\x9f\x98\x80\xf0\x9f\x98\x80", 8, "\"...\"");
	expect_quoted("0123456789", 8, "\"0...9\"");
}

static void test_sanitizing_keeps_text_and_replaces_the_rest(void)
{
	char out[16];

	CU_ASSERT_EQUAL(utf8_sanitize("a\xff\xc3\xa4", out, sizeof(out)), 6);
	CU_ASSERT_STRING_EQUAL(out, "a\xef\xbf\xbd\xc3\xa4");
	CU_ASSERT_EQUAL(utf8_sanitize("abcd", out, 4), 3);
	CU_ASSERT_STRING_EQUAL(out, "abc");
	CU_ASSERT_EQUAL(utf8_sanitize("ab\xc3\xa4", out, 4), 2); /* a sequence is not cut */
	CU_ASSERT_STRING_EQUAL(out, "ab");
}

static void test_ports(void)
{
	static const char *const good[] = {"1", "4420", "65535"}, *const bad[] = {
									  "",      "0",     "65536",
									  "99999", "04420", "0x10",
									  "-1",    "+1",    " 1",
									  "1 ",    "http",  "99999999999999999999"};

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		CU_ASSERT_TRUE(parse_is_port(good[i]));
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CU_ASSERT_FALSE(parse_is_port(bad[i]));
	}
}

static void test_ip_addresses(void)
{
	CU_ASSERT_TRUE(parse_is_ip_address("192.0.2.1", false));
	CU_ASSERT_FALSE(parse_is_ip_address("192.0.2.1", true));
	CU_ASSERT_FALSE(parse_is_ip_address("192.0.2.256", false));
	CU_ASSERT_TRUE(parse_is_ip_address("127.1", false));
	CU_ASSERT_FALSE(parse_is_ip_address("127.1 ", false));
	CU_ASSERT_FALSE(parse_is_ip_address("localhost", false));
	CU_ASSERT_FALSE(parse_is_ip_address("", false));
	CU_ASSERT_TRUE(parse_is_ip_address("2001:db8::1", true));
	CU_ASSERT_FALSE(parse_is_ip_address("2001:db8::1", false));
	CU_ASSERT_TRUE(parse_is_ip_address("fe80::1%eth0", true));
	CU_ASSERT_FALSE(parse_is_ip_address("fe80::1%", true));
	CU_ASSERT_FALSE(parse_is_ip_address("2001:db8:0000:0000:0000:0000:0000:0001:0000:0000:0000:0001", true));
}

static const struct unit_test tests[] = {
	UNIT(test_decimal_and_hexadecimal_numbers_are_parsed),
	UNIT(test_what_is_not_wholly_a_number_is_rejected),
	UNIT(test_numbers_out_of_range_are_rejected),
	UNIT(test_sizes_take_a_power_of_1024),
	UNIT(test_uuids_become_canonical),
	UNIT(test_utf8_is_told_from_other_bytes),
	UNIT(test_control_characters_are_not_printable),
	UNIT(test_characters_that_turn_or_break_lines_are_not_printable),
	UNIT(test_quoted_texts_have_one_end_and_whole_characters),
	UNIT(test_sanitizing_keeps_text_and_replaces_the_rest),
	UNIT(test_ports),
	UNIT(test_ip_addresses),
	UNIT_END,
};

UNIT_MAIN("util_parse", tests, NULL, NULL)
