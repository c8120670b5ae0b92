/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/gateway/login.h"
#include "unittest/unit.h"

#define NOW 1000000

static const uint8_t here[GATEWAY_ADDRESS_SIZE] = {4, 192, 0, 2, 1}, there[GATEWAY_ADDRESS_SIZE] = {4, 192, 0, 2, 2};
static struct gateway_login *login;
static enum gateway_role role;

/* Replaces the users by ann with this password. */
static void set_ann(const char *password)
{
	struct gateway_users users = {.n = 1, .list = calloc(1, sizeof(*users.list))};

	users.list[0] = (struct gateway_user){.name = "ann", .role = GATEWAY_OPERATE, .iterations = 10};
	gateway_user_hash(&users.list[0], password, users.list[0].hash);
	gateway_login_set_users(login, &users);
}

static void begin(uint32_t rate)
{
	login = gateway_login_new(rate);
	set_ann("right");
}

static enum gateway_login_result try(const char *name, const char *password, const uint8_t *address, uint64_t now_ms)
{
	struct gateway_credentials c = {0};

	strcpy(c.name, name);
	strcpy(c.password, password);
	return gateway_login_check(login, &c, address, now_ms, &role);
}

static void test_the_right_password_is_taken_again_and_again(void)
{
	begin(0);
	for (int i = 0; i < 100; i++) {
		role = GATEWAY_READ;
		CU_ASSERT_EQUAL(try("ann", "right", here, NOW), GATEWAY_LOGIN_OK);
		CU_ASSERT_EQUAL(role, GATEWAY_OPERATE);
	}
	gateway_login_free(login);
}

static void test_wrong_names_and_passwords_are_refused(void)
{
	begin(0);
	CU_ASSERT_EQUAL(try("ann", "right", here, NOW), GATEWAY_LOGIN_OK);
	CU_ASSERT_EQUAL(try("ann", "wrong", here, NOW), GATEWAY_LOGIN_WRONG);
	CU_ASSERT_EQUAL(try("ann", "", here, NOW), GATEWAY_LOGIN_WRONG);
	CU_ASSERT_EQUAL(try("bob", "right", here, NOW), GATEWAY_LOGIN_WRONG);
	CU_ASSERT_EQUAL(try("", "", here, NOW), GATEWAY_LOGIN_WRONG);
	gateway_login_free(login);
}

static void test_an_address_that_guesses_is_limited_and_others_are_not(void)
{
	begin(0);
	for (int i = 0; i < GATEWAY_LOGIN_FAILURES; i++) {
		CU_ASSERT_EQUAL(try("ann", "wrong", here, NOW), GATEWAY_LOGIN_WRONG);
	}
	CU_ASSERT_EQUAL(try("ann", "wrong", here, NOW), GATEWAY_LOGIN_LIMITED);
	CU_ASSERT_EQUAL(try("ann", "right", here, NOW), GATEWAY_LOGIN_LIMITED);
	CU_ASSERT_EQUAL(try("ann", "right", there, NOW), GATEWAY_LOGIN_OK);
	/* What is remembered needs no guess. */
	CU_ASSERT_EQUAL(try("ann", "right", here, NOW), GATEWAY_LOGIN_OK);
	CU_ASSERT_EQUAL(try("ann", "wrong", here, NOW + GATEWAY_LOGIN_WAIT_MS + 1), GATEWAY_LOGIN_WRONG);
	CU_ASSERT_EQUAL(try("ann", "wrong", here, NOW + GATEWAY_LOGIN_WAIT_MS + 1), GATEWAY_LOGIN_LIMITED);
	gateway_login_free(login);
}

static void test_a_right_password_does_not_pay_for_wrong_ones(void)
{
	begin(0);
	for (int i = 0; i < GATEWAY_LOGIN_FAILURES - 1; i++) {
		CU_ASSERT_EQUAL(try("bob", "wrong", here, NOW), GATEWAY_LOGIN_WRONG);
	}
	CU_ASSERT_EQUAL(try("ann", "right", here, NOW), GATEWAY_LOGIN_OK);
	CU_ASSERT_EQUAL(try("bob", "wrong", here, NOW), GATEWAY_LOGIN_WRONG);
	CU_ASSERT_EQUAL(try("bob", "wrong", here, NOW), GATEWAY_LOGIN_LIMITED);
	gateway_login_free(login);
}

static void test_another_password_in_the_file_ends_the_old_one(void)
{
	begin(0);
	CU_ASSERT_EQUAL(try("ann", "right", here, NOW), GATEWAY_LOGIN_OK);
	set_ann("new one");
	CU_ASSERT_EQUAL(try("ann", "right", here, NOW), GATEWAY_LOGIN_WRONG);
	CU_ASSERT_EQUAL(try("ann", "new one", here, NOW), GATEWAY_LOGIN_OK);
	struct gateway_users none = {0};
	gateway_login_set_users(login, &none);
	CU_ASSERT_EQUAL(try("ann", "new one", here, NOW), GATEWAY_LOGIN_WRONG);
	gateway_login_free(login);
}

static void test_a_user_has_so_many_requests_in_a_second(void)
{
	begin(5);
	for (int i = 0; i < 5; i++) {
		CU_ASSERT_EQUAL(try("ann", "right", here, NOW), GATEWAY_LOGIN_OK);
	}
	CU_ASSERT_EQUAL(try("ann", "right", there, NOW), GATEWAY_LOGIN_RATE);
	CU_ASSERT_EQUAL(try("ann", "right", here, NOW + 250), GATEWAY_LOGIN_OK);
	CU_ASSERT_EQUAL(try("ann", "right", here, NOW + 250), GATEWAY_LOGIN_RATE);
	gateway_login_free(login);
}

static void test_more_addresses_than_are_kept_do_no_harm(void)
{
	uint8_t address[GATEWAY_ADDRESS_SIZE] = {6};

	begin(0);
	for (unsigned i = 0; i < 1100; i++) {
		memcpy(address + 1, &i, sizeof(i));
		CU_ASSERT_EQUAL(try("ann", "wrong", address, NOW + i), GATEWAY_LOGIN_WRONG);
	}
	CU_ASSERT_EQUAL(try("ann", "right", here, NOW + 1100), GATEWAY_LOGIN_OK);
	gateway_login_free(login);
}

static const struct unit_test tests[] = {
	UNIT(test_the_right_password_is_taken_again_and_again),
	UNIT(test_wrong_names_and_passwords_are_refused),
	UNIT(test_an_address_that_guesses_is_limited_and_others_are_not),
	UNIT(test_a_right_password_does_not_pay_for_wrong_ones),
	UNIT(test_another_password_in_the_file_ends_the_old_one),
	UNIT(test_a_user_has_so_many_requests_in_a_second),
	UNIT(test_more_addresses_than_are_kept_do_no_harm),
	UNIT_END,
};
UNIT_MAIN("gateway_login", tests, NULL, NULL)
