/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/base64.h"

#include "unittest/unit.h"

static void round_trip(const char *bytes, size_t len, const char *text)
{
	char *encoded = base64url_encode(bytes, len);
	size_t n = 0;

	CU_ASSERT_STRING_EQUAL(encoded, text);
	uint8_t *decoded = base64url_decode(text, &n);
	CU_ASSERT_FATAL(decoded != NULL);
	CU_ASSERT_EQUAL(n, len);
	CU_ASSERT_EQUAL(memcmp(decoded, bytes, len), 0);
	free(encoded);
	free(decoded);
}

static void test_known_texts_round_trip(void)
{
	round_trip("", 0, "");
	round_trip("f", 1, "Zg==");
	round_trip("fo", 2, "Zm8=");
	round_trip("foo", 3, "Zm9v");
	round_trip("foobar", 6, "Zm9vYmFy");
	round_trip("\xfb\xff\xfe\0\0", 5, "-__-AAA=");
}

static void test_other_spellings_are_taken(void)
{
	static const char *const same[] = {"-__-AAA", "+//+AAA=", "-_/+AAA="};
	size_t n;

	for (unsigned i = 0; i < 3; i++) {
		uint8_t *b = base64url_decode(same[i], &n);
		CU_ASSERT_FATAL(b != NULL);
		CU_ASSERT(n == 5 && memcmp(b, "\xfb\xff\xfe\0\0", 5) == 0);
		free(b);
	}
}

static void test_what_is_not_base64_is_refused(void)
{
	static const char *const wrong[] = {"A",     "AAAAA", "A===",  "=",          "====",   "AA=",  "AA=A",
					    "AAAA=", "A A=",  "AA\n=", "\xc3\xa9qu", "AA==AA", "AAA{", "A~AA"};
	size_t n;

	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		CU_ASSERT_PTR_NULL(base64url_decode(wrong[i], &n));
	}
}

static const struct unit_test tests[] = {
	UNIT(test_known_texts_round_trip),
	UNIT(test_other_spellings_are_taken),
	UNIT(test_what_is_not_base64_is_refused),
	UNIT_END,
};
UNIT_MAIN("rpc_base64", tests, NULL, NULL)
