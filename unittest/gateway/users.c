/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/gateway/users.h"

#include <errno.h>

#include "unittest/unit.h"

#define SALT "00112233445566778899aabbccddeeff"
#define HASH "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define TAIL ":pbkdf2-sha512:10000:" SALT ":" HASH

static char why[GATEWAY_WHY_MAX];

static void test_lines_are_read(void)
{
	const char text[] = "# users\n\nann:admin" TAIL "\nb.o-b_2:read" TAIL;
	struct gateway_users users;

	CU_ASSERT_EQUAL_FATAL(gateway_users_parse(text, strlen(text), &users, why), 0);
	CU_ASSERT_EQUAL_FATAL(users.n, 2);
	const struct gateway_user *ann = gateway_users_find(&users, "ann");
	CU_ASSERT_PTR_NOT_NULL_FATAL(ann);
	CU_ASSERT_EQUAL(ann->role, GATEWAY_ADMIN);
	CU_ASSERT_EQUAL(ann->iterations, 10000);
	CU_ASSERT_EQUAL(ann->salt[15], 0xff);
	CU_ASSERT_EQUAL(ann->hash[31], 0x1f);
	CU_ASSERT_EQUAL(gateway_users_find(&users, "b.o-b_2")->role, GATEWAY_READ);
	CU_ASSERT_PTR_NULL(gateway_users_find(&users, "an"));
	gateway_users_free(&users);
}

static void test_wrong_lines_are_refused_with_their_number(void)
{
	static const struct {
		const char *line, *why;
	} rows[] = {
		{"ann", "not NAME"},
		{"ann:read" TAIL ":", "not NAME"},
		{":read" TAIL, "the name"},
		{"a b:read" TAIL, "the name"},
		{"ann:root" TAIL, "the role"},
		{"ann:read:sha1:10000:" SALT ":" HASH, "the third field"},
		{"ann:read:pbkdf2-sha512:9999:" SALT ":" HASH, "the iterations"},
		{"ann:read:pbkdf2-sha512:10000001:" SALT ":" HASH, "the iterations"},
		{"ann:read:pbkdf2-sha512:-10000:" SALT ":" HASH, "the iterations"},
		{"ann:read:pbkdf2-sha512:10000:00:" HASH, "the salt"},
		{"ann:read:pbkdf2-sha512:10000:" SALT ":" SALT, "the hash"},
		{"ann:read:pbkdf2-sha512:10000:" SALT ":Z" HASH, "the hash"},
		{"first:read" TAIL, "already"},
	};
	struct gateway_users users;
	char text[1024];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		snprintf(text, sizeof(text), "first:read" TAIL "\n%s\n", rows[i].line);
		CU_ASSERT_EQUAL(gateway_users_parse(text, strlen(text), &users, why), -EINVAL);
		CU_ASSERT_PTR_NOT_NULL(strstr(why, "line 2"));
		CU_ASSERT_PTR_NOT_NULL(strstr(why, rows[i].why));
		CU_ASSERT_EQUAL(users.n, 0);
	}
}

static void test_a_line_with_a_nul_or_too_long_is_refused(void)
{
	struct gateway_users users;
	char text[GATEWAY_LINE_MAX + 1];

	memset(text, 'a', sizeof(text));
	CU_ASSERT_EQUAL(gateway_users_parse(text, sizeof(text), &users, why), -EINVAL);
	CU_ASSERT_EQUAL(gateway_users_parse("ann:admin\0", 10, &users, why), -EINVAL);
}

static void test_what_is_written_is_read_again(void)
{
	struct gateway_user user = {.name = "ann", .role = GATEWAY_OPERATE, .iterations = 10000};
	struct gateway_users users;
	char line[GATEWAY_LINE_MAX];

	memset(user.salt, 7, sizeof(user.salt));
	CU_ASSERT_TRUE(gateway_user_hash(&user, "secret of ann", user.hash));
	gateway_user_format(&user, line);
	CU_ASSERT_EQUAL_FATAL(gateway_users_parse(line, strlen(line), &users, why), 0);
	CU_ASSERT_EQUAL(users.list[0].role, GATEWAY_OPERATE);
	CU_ASSERT_EQUAL(memcmp(users.list[0].salt, user.salt, sizeof(user.salt)), 0);
	CU_ASSERT_EQUAL(memcmp(users.list[0].hash, user.hash, sizeof(user.hash)), 0);
	gateway_users_free(&users);
}

/* PBKDF2-HMAC-SHA512, as other programs compute it (python3: hashlib.pbkdf2_hmac). */
static void test_the_hash_is_the_known_one(void)
{
	static const uint8_t expected[8] = {0xbe, 0x34, 0x7a, 0xbe, 0xfc, 0xc3, 0xfe, 0xcf};
	struct gateway_user user = {.iterations = 10000};

	memcpy(user.salt, "0123456789abcdef", 16);
	CU_ASSERT_TRUE(gateway_user_hash(&user, "password", user.hash));
	CU_ASSERT_EQUAL(memcmp(user.hash, expected, sizeof(expected)), 0);
}

static void test_credentials_are_read(void)
{
	struct gateway_credentials c;

	CU_ASSERT_TRUE(gateway_credentials_parse("Basic YW5uOnNlOmNyZXQ=", &c));
	CU_ASSERT_STRING_EQUAL(c.name, "ann");
	CU_ASSERT_STRING_EQUAL(c.password, "se:cret");
	CU_ASSERT_TRUE(gateway_credentials_parse("basic   Og==", &c));
	CU_ASSERT_STRING_EQUAL(c.name, "");
	CU_ASSERT_STRING_EQUAL(c.password, "");
}

static void test_what_is_no_credentials_is_refused(void)
{
	static const char *const rows[] = {
		"",           "Basic",      "Basic ",         "Bearer YW5uOnNlY3JldA==", "BasicYW5uOnNlY3JldA==",
		"Basic YW5u", "Basic !!!!", "Basic YTpiAGM=", "Basic YW5uOnNlOmNyZXQ= x"};
	struct gateway_credentials c;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		CU_ASSERT_FALSE(gateway_credentials_parse(rows[i], &c));
	}
}

static void test_long_names_and_passwords_are_refused(void)
{
	struct gateway_credentials c;
	char value[1024] = "Basic ";

	memset(value + 6, 'Y', 4 * 30); /* 90 bytes without a colon */
	CU_ASSERT_FALSE(gateway_credentials_parse(value, &c));
	strcpy(value + 6, "YTpi"); /* a:b, then 300 bytes */
	memset(value + 10, 'Y', 400);
	CU_ASSERT_FALSE(gateway_credentials_parse(value, &c));
}

static const struct unit_test tests[] = {
	UNIT(test_lines_are_read),
	UNIT(test_wrong_lines_are_refused_with_their_number),
	UNIT(test_a_line_with_a_nul_or_too_long_is_refused),
	UNIT(test_what_is_written_is_read_again),
	UNIT(test_the_hash_is_the_known_one),
	UNIT(test_credentials_are_read),
	UNIT(test_what_is_no_credentials_is_refused),
	UNIT(test_long_names_and_passwords_are_refused),
	UNIT_END,
};
UNIT_MAIN("gateway_users", tests, NULL, NULL)
