/* SPDX-License-Identifier: BSD-3-Clause */
/* What is looked at before another process takes over, and after it has failed. Linked with all of the daemon but its
 * main(). */
#include "appliance/hand_over_caller.h"
#include "appliance/hand_over_config.h"
#include "appliance/hand_over_keys.h"
#include "appliance/hand_over_resv.h"
#include "keyring/keyring.h"
#include "nvmf/resv_kept.h"
#include "unittest/unit.h"

static void check_unit(const char *groups, const char *expected)
{
	char unit[HAND_OVER_UNIT_MAX] = "before";

	hand_over_unit_of(groups, unit);
	CU_ASSERT_STRING_EQUAL(unit, expected);
}

static void test_the_unit_is_the_last_name_of_one_in_the_path(void)
{
	check_unit("0::/system.slice/varve.service\n", "/system.slice/varve.service");
	check_unit("0::/system.slice/varve.service/.control\n", "/system.slice/varve.service");
	check_unit("0::/user.slice/user-1.slice/user@1.service/app.slice/v:w.service\n",
		   "/user.slice/user-1.slice/user@1.service/app.slice/v:w.service");
	check_unit("12:cpu,cpuacct:/a.service\n1:name=systemd:/user.slice/session-2.scope\n0::/b.service\n",
		   "/user.slice/session-2.scope");
	check_unit("0::/a/b\n", "/a/b");
	check_unit("0::/\n", "/");
	check_unit("0::/a.service", "/a.service"); /* the text ends early */
	check_unit("", "");
	check_unit("no group\n:\n\n::\n", "");
	check_unit("1:cpu:/a.service\n", "");
}

static json_t *parse(const char *text)
{
	json_error_t wrong;
	json_t *o = json_loads(text, 0, &wrong);

	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	return o;
}

#define A "{\"method\": \"m\", \"params\": {\"name\": \"a\", \"n\": 1}}"
#define B "{\"method\": \"m\", \"params\": {\"n\": 1, \"name\": \"b\"}}"
#define CONFIG(one_, two_)                                                                                             \
	"{\"subsystems\": [{\"subsystem\": \"bdev\", \"config\": [" one_                                               \
	"]}, {\"subsystem\": \"nvmf\", \"config\": [" two_ "]}]}"

static unsigned reports;
static char reported[64];

static void note_report(const char *subsystem, const json_t *entry)
{
	reports++;
	snprintf(reported, sizeof(reported), "%s %s", subsystem,
		 json_string_value(json_object_get(json_object_get(entry, "params"), "name")));
}

static void check_missing(const char *of, const char *in, unsigned expected, const char *last)
{
	json_t *a = parse(of), *b = parse(in);

	reports = 0;
	reported[0] = '\0';
	CU_ASSERT_EQUAL(hand_over_config_missing(a, b, note_report), expected);
	CU_ASSERT_EQUAL(reports, expected);
	CU_ASSERT_STRING_EQUAL(reported, last);
	CU_ASSERT_EQUAL(hand_over_config_missing(a, b, NULL), expected);
	json_decref(a);
	json_decref(b);
}

static void test_what_a_configuration_lacks_is_found_whatever_the_order(void)
{
	check_missing(CONFIG(A "," B, A), CONFIG(B "," A, A), 0, "");
	check_missing(CONFIG(A "," B, A), CONFIG(A, A), 1, "bdev b");
	check_missing(CONFIG(A, A), CONFIG(A "," B, A), 0, "");
	check_missing(CONFIG(A "," A, ""), CONFIG(A, A), 1, "bdev a"); /* each counts, and in its subsystem */
	check_missing(CONFIG("", B), CONFIG(B, ""), 1, "nvmf b");
	check_missing(CONFIG(A, B), "{\"subsystems\": []}", 2, "nvmf b");
	check_missing(CONFIG(A, B), "{}", 2, "nvmf b");
	check_missing("{}", CONFIG(A, B), 0, "");
}

#define HEX "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static void test_digests_of_keys_that_make_no_sense_are_refused(void)
{
	static const struct {
		const char *text;
		int rc;
	} cases[] = {
		{"[]", 0},
		{"{}", -EBADMSG},
		{"[{}]", -EBADMSG},
		{"[{\"name\": \"a\", \"salt\": \"" HEX "\", \"digest\": \"" HEX "\"}]", 0},
		{"[{\"name\": 1, \"salt\": \"" HEX "\", \"digest\": \"" HEX "\"}]", -EBADMSG},
		{"[{\"name\": \"\", \"salt\": \"" HEX "\", \"digest\": \"" HEX "\"}]", -EINVAL},
		{"[{\"name\": \"a\", \"salt\": \"" HEX "00\", \"digest\": \"" HEX "\"}]", -EBADMSG},
		{"[{\"name\": \"a\", \"salt\": \"" HEX "\", \"digest\": \"00\"}]", -EBADMSG},
		{"[{\"name\": \"a\", \"salt\": \"" HEX "\"}, 1]", -EBADMSG},
	};

	CU_ASSERT_EQUAL(hand_over_keys_import(NULL), 0); /* of a process that knows none */
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		json_t *list = parse(cases[i].text);
		CU_ASSERT_EQUAL(hand_over_keys_import(list), cases[i].rc);
		json_decref(list);
	}
	keyring_clear();
}

static void check_resv_lie(const json_t *good, const char *name, json_t *lie)
{
	json_t *list = json_deep_copy(good), *o = json_array_get(list, 0);

	json_object_set_new(o, name, lie);
	CU_ASSERT_EQUAL(hand_over_resv_import(list), -EBADMSG);
	CU_ASSERT_EQUAL(nvmf_resv_kept_clear(), 0);
	json_decref(list);
}

static void test_reservations_that_make_no_sense_are_refused(void)
{
	struct nvmf_resv state = {.num_registrants = 1, .generation = 7, .registrants[0] = {.key = 5, .hostid = {1}}};
	struct nvmf_resv_kept k = {.tgt_name = "t", .nqn = "nqn.a", .nsid = 3, .uuid = {1, 2, 3}, .state = &state};

	CU_ASSERT_EQUAL(nvmf_resv_kept_add(&k), 0);
	json_t *good = hand_over_resv_export(), *twice = json_deep_copy(good);
	CU_ASSERT_EQUAL_FATAL(json_array_size(good), 1);
	CU_ASSERT_EQUAL(nvmf_resv_kept_clear(), 1);
	CU_ASSERT_EQUAL(hand_over_resv_import(NULL), 0);
	CU_ASSERT_EQUAL(hand_over_resv_import(good), 0);
	CU_ASSERT_EQUAL(nvmf_resv_kept_clear(), 1);
	json_array_extend(twice, good);
	CU_ASSERT_EQUAL(hand_over_resv_import(twice), -EEXIST);
	CU_ASSERT_EQUAL(nvmf_resv_kept_clear(), 0); /* nothing of a list that is wrong */
	check_resv_lie(good, "nsid", json_integer(0));
	check_resv_lie(good, "nsid", json_integer(1LL << 32));
	check_resv_lie(good, "generation", json_integer(-1));
	check_resv_lie(good, "uuid", json_string("00000000-0000-0000-0000-000000000001")); /* not that in the text */
	check_resv_lie(good, "uuid", json_string("x"));
	check_resv_lie(good, "nqn", json_null());
	check_resv_lie(good, "tgt_name", json_integer(1));
	check_resv_lie(good, "text", json_string("x"));
	CU_ASSERT_EQUAL(hand_over_resv_import(json_array_get(good, 0)), -EBADMSG);
	json_decref(good);
	json_decref(twice);
}

static const struct unit_test tests[] = {
	UNIT(test_reservations_that_make_no_sense_are_refused),
	UNIT(test_digests_of_keys_that_make_no_sense_are_refused),
	UNIT(test_the_unit_is_the_last_name_of_one_in_the_path),
	UNIT(test_what_a_configuration_lacks_is_found_whatever_the_order),
	UNIT_END,
};

UNIT_MAIN("appliance_hand_over", tests, NULL, NULL)
