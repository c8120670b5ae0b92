/* SPDX-License-Identifier: BSD-3-Clause */
/* What is told of refused calls: never a secret, and not too often. */
#include <stdio.h>
#include <string.h>

#include "rpc/notify.h"
#include "rpc/refusal.h"
#include "unittest/unit.h"

#define SECRET "DHHC-1:01:c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0IQ==:"

/* Whether a text may be told with these params. */
static bool is_told(const char *params, const char *message)
{
	char text[RPC_ERROR_TEXT_MAX];
	json_error_t error;
	json_t *o = params != NULL ? json_loads(params, 0, &error) : NULL;

	CU_ASSERT_FATAL(params == NULL || o != NULL);
	const char *told = rpc_refusal_text(o, message, text);
	bool same = strcmp(told, message) == 0;
	CU_ASSERT(same || (strstr(told, "caller only") != NULL && strstr(told, "c2Vjc") == NULL));
	json_decref(o);
	return same;
}

static void test_texts_without_secrets_are_told(void)
{
	CU_ASSERT(is_told(NULL, "parameter \"name\" is missing"));
	CU_ASSERT(is_told("{}", "parameter \"name\" is missing"));
	CU_ASSERT(is_told("{\"name\": 5}", "parameter \"name\" is 5: expected a string"));
	CU_ASSERT(is_told("{\"dhchap_key\": \"k0\", \"nqn\": 5}", "parameter \"nqn\" is 5: expected a string"));
	CU_ASSERT(is_told("{\"psk\": null, \"nqn\": 5}", "parameter \"nqn\" is 5: expected a string"));
	CU_ASSERT(is_told("{\"a\": {\"b\": [1, \"x\"]}}", "parameter \"a.b[1]\" is \"x\": allowed are numbers"));
}

static void test_texts_with_secrets_are_not_told(void)
{
	CU_ASSERT(!is_told("{\"dhchap_key\": \"" SECRET "\"}", "there is no key '" SECRET "'"));
	CU_ASSERT(!is_told("{\"dhchap_key\": \"" SECRET "\"}", "there is no key 'DHHC-1:01:c2V...'"));
	CU_ASSERT(!is_told("{\"psk\": \"abc\"}", "parameter \"psk\" is \"abc\": expected null"));
	CU_ASSERT(!is_told("{\"psk\": 17}", "parameter \"psk\" is 17: expected a string"));
	CU_ASSERT(!is_told("{\"Password\": \"correct horse\"}", "'correct horse' is too short"));
	CU_ASSERT(!is_told("{\"auth\": {\"token\": \"abc\"}}", "parameter \"auth.token\" is \"abc\": unknown"));
	CU_ASSERT(!is_told("{\"keys\": [\"abcdefghijkl\"]}", "parameter \"keys[0]\" is \"abcdefghijkl\": unknown"));
	CU_ASSERT(!is_told("{\"keys\": [{\"x\": [\"" SECRET "\"]}]}", "parameter \"keys[0].x[0]\" is \"" SECRET "\""));
}

/* A key that was given where its name or its file belongs. */
static void test_keys_in_other_parameters_are_not_told(void)
{
	CU_ASSERT(!is_told("{\"path\": \"" SECRET "\"}", "path '" SECRET "': there is no such file"));
	CU_ASSERT(!is_told("{\"name\": \"NVMeTLSkey-1:01:c2VjcmV0:\"}", "'NVMeTLSkey-1:01:c2Vjc' is too long"));
	CU_ASSERT(!is_told("{\"list\": [\"" SECRET "\"]}", "list[0] '" SECRET "'"));
}

static void test_values_that_may_be_keys(void)
{
	static const char *const keys[] = {
		SECRET,
		" NVMeTLSkey-1:01:c2VjcmV0:",
		"nvmetlskey-1",
		"x DHHC-1:00:",
		"0123456789abcdef",
		"0x0123456789ABCDEF",
		"0123456789abcdef\n",
		"key-0123456789abcdef0",
	};
	static const char *const names[] = {"",       "k0",  "no-such-key", "0123456789abcde", "01234567-89abcdef",
					    "TLSkey", "DHHC"};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		CU_ASSERT(rpc_value_may_be_key(keys[i]));
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		CU_ASSERT(!rpc_value_may_be_key(names[i]));
	}
}

/* At the start of the appliance nobody else sees which key is missing. */
static void test_names_of_keys_are_told(void)
{
	CU_ASSERT(is_told("{\"keyring_key\": \"k0\"}", "parameter \"keyring_key\" is \"k0\": no such key"));
	CU_ASSERT(is_told("{\"key_name\": \"volume 17-4711\"}", "key_name 'volume 17-4711': there is no such key"));
	CU_ASSERT(is_told("{\"key_name\": \"\"}", "parameter \"key_name\" is \"\": no such key"));
	CU_ASSERT(!is_told("{\"key_name\": \"0123456789abcdefABCDEF0123456789\"}", "key_name '0123456789abc...'"));
	CU_ASSERT(!is_told("{\"key_name\": \"0x0123456789abcde 0123456789abcdef\"}", "key_name '0x0123456789a...'"));
	CU_ASSERT(!is_told("{\"keyring_key\": \"" SECRET "\"}", "parameter \"keyring_key\" is wrong"));
	CU_ASSERT(!is_told("{\"keyring_key\": {\"x\": \"abc\"}}", "parameter \"keyring_key\" is {\"x\": \"abc\"}"));
	CU_ASSERT(!is_told("{\"key_name\": 17}", "parameter \"key_name\" is 17: expected a string"));
}

static void check_mask(const char *params, const char *message, const char *wanted)
{
	char text[RPC_ERROR_TEXT_MAX];
	json_t *o = params != NULL ? json_loads(params, 0, NULL) : NULL;

	snprintf(text, sizeof(text), "%s", message);
	rpc_refusal_mask(o, text);
	CU_ASSERT_STRING_EQUAL(text, wanted);
	json_decref(o);
}

static void test_answers_do_not_show_keys(void)
{
	check_mask(NULL, "there is no key 'k'", "there is no key 'k'");
	check_mask("{\"psk\": \"host-key-of-node-17\"}", "psk 'host-key-of-node-17': no such key",
		   "psk 'host-key-of-node-17': no such key");
	check_mask("{\"psk\": \"" SECRET "\"}", "no key 'DHHC-1:01:c2Vj...', and 'DHHC-1:01:c2V'",
		   "no key '**************...', and '*************'");
	check_mask("{\"a\": [{\"nqn\": \"" SECRET "\"}]}", "a[0].nqn 'DHHC-1:01:c2Vj' is wrong",
		   "a[0].nqn '**************' is wrong");
	check_mask("{\"keys\": [\"0123456789abcdef\"]}", "'0123456789abcdef' is short", "'****************' is short");
	check_mask("{\"nguid\": \"0123456789abcdef\"}", "'0123456789abcdef' is short", "'0123456789abcdef' is short");
	check_mask("{\"secret\": \"DHHC-1\"}", "allowed is DHHC-1:XX:...", "allowed is DHHC-1:XX:...");
}

static void test_a_deep_value_is_looked_through_to_its_end(void)
{
	char text[300] = "{\"a\": ";
	size_t n = strlen(text);

	memset(text + n, '[', 100);
	memset(text + n + 100, ']', 100);
	strcpy(text + n + 200, "}");
	char out[RPC_ERROR_TEXT_MAX];
	json_t *o = json_loads(text, 0, NULL);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT(strstr(rpc_refusal_text(o, "anything", out), "caller only") != NULL);
	json_decref(o);
}

static void test_codes_of_wrong_calls_are_told(void)
{
	CU_ASSERT(rpc_refusal_is_told(RPC_ERROR_INVALID_PARAMS) && rpc_refusal_is_told(RPC_ERROR_NO_METHOD));
	CU_ASSERT(rpc_refusal_is_told(RPC_ERROR_INVALID_STATE));
	CU_ASSERT(!rpc_refusal_is_told(-19) && !rpc_refusal_is_told(0) && !rpc_refusal_is_told(RPC_ERROR_INTERNAL));
}

static unsigned count_told(const struct notify_event **last)
{
	const struct notify_event *e;
	unsigned n = 0;

	while ((e = notify_get(NOTIFY_ALL, n)) != NULL) {
		*last = e;
		n++;
	}
	return n;
}

static void test_refusals_are_notified_of_but_not_all_of_a_flood(void)
{
	const struct notify_event *last = NULL;

	rpc_refusal_tell("bdev_none", NULL, RPC_ERROR_NO_METHOD, "there is no method \"bdev_none\"");
	CU_ASSERT_EQUAL_FATAL(count_told(&last), 1);
	CU_ASSERT_STRING_EQUAL(last->type, "rpc_refused");
	CU_ASSERT_STRING_EQUAL(last->context, "bdev_none");
	CU_ASSERT_STRING_EQUAL(last->reason, "there is no method \"bdev_none\"");
	CU_ASSERT_PTR_NULL(notify_get(NOTIFY_COMMON, 0)); /* clients of SPDK do not see it */
	for (unsigned i = 0; i < 900; i++) {
		rpc_refusal_tell("m", NULL, RPC_ERROR_NO_METHOD, "no");
	}
	CU_ASSERT(count_told(&last) < 500); /* ten in a second, and 900 take less than half a minute */
}

static const struct unit_test tests[] = {
	UNIT(test_texts_without_secrets_are_told),
	UNIT(test_texts_with_secrets_are_not_told),
	UNIT(test_keys_in_other_parameters_are_not_told),
	UNIT(test_values_that_may_be_keys),
	UNIT(test_names_of_keys_are_told),
	UNIT(test_answers_do_not_show_keys),
	UNIT(test_a_deep_value_is_looked_through_to_its_end),
	UNIT(test_codes_of_wrong_calls_are_told),
	UNIT(test_refusals_are_notified_of_but_not_all_of_a_flood),
	UNIT_END,
};

UNIT_MAIN("rpc_refusal", tests, NULL, NULL)
