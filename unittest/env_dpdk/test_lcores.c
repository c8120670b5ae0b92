/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>

#include "env_dpdk/startup.h"
#include "unittest/unit.h"

static struct env_lcore_map map;
static char error[ENV_ERROR_MAX], lcores[ENV_CORES_MAX], cpus[ENV_CORES_MAX];

static void check_map(const char *text, const char *want_lcores, const char *want_cpus, bool shared)
{
	CU_ASSERT_EQUAL(env_lcores_parse(text, &map, error), 0);
	env_cores_format(&map.lcores, lcores);
	env_cores_format(&map.cpus, cpus);
	CU_ASSERT_STRING_EQUAL(lcores, want_lcores);
	CU_ASSERT_STRING_EQUAL(cpus, want_cpus);
	CU_ASSERT_EQUAL(map.shared, shared);
}

static void check_lcores_refused(const char *text, const char *word)
{
	CU_ASSERT_EQUAL(env_lcores_parse(text, &map, error), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, word));
}

static void test_lcores_run_on_the_cpus_that_are_given(void)
{
	check_map("0", "0", "0", false);
	check_map("0-3", "0-3", "0-3", false);
	check_map("0@5,1@6", "0-1", "5-6", false);
	check_map("0-1,4@(2,7-8)", "0-1,4", "0-2,7-8", false);
	check_map("(0,2)@1", "0,2", "1", true);
	check_map("(0-1)", "0-1", "0-1", true);
	check_map("0@1,1", "0-1", "1", true);
}

static void test_wrong_lcores_are_refused(void)
{
	check_lcores_refused("", "expected a number");
	check_lcores_refused("0@", "expected a number");
	check_lcores_refused("0,", "expected a number");
	check_lcores_refused("(0,1", "closing )");
	check_lcores_refused("3-1", "backwards");
	check_lcores_refused("0-", "expected a number");
	check_lcores_refused("0,0", "named twice");
	check_lcores_refused("1024", "highest possible, 1023");
	check_lcores_refused("99999999999999999999", "highest possible");
	check_lcores_refused("1000@0", "lcore 1000");
	check_lcores_refused("0 1", "' 1' does not belong");
	check_lcores_refused("0@1@2", "LCORES[@CPUS]");
}

static void test_words_for_the_eal_are_those_that_undo_nothing(void)
{
	CU_ASSERT_EQUAL(env_eal_words_check("", error), 0);
	CU_ASSERT_EQUAL(env_eal_words_check(" --log-level=lib.eal:debug  --vfio-intr=msix ", error), 0);
	CU_ASSERT_EQUAL(env_eal_words_check("--log-level=8 --iova-mode=pa", error), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "--iova-mode=pa"));
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "--vfio-intr=VALUE"));
	CU_ASSERT_EQUAL(env_eal_words_check("--log-level=", error), -EINVAL);
	CU_ASSERT_EQUAL(env_eal_words_check("--log-levels=8", error), -EINVAL);
	CU_ASSERT_EQUAL(env_eal_words_check("8", error), -EINVAL);
}

static void test_words_for_the_eal_are_limited(void)
{
	char words[ENV_EAL_WORDS_MAX + 1][16], text[sizeof(words) + 32] = "";

	for (int i = 0; i < ENV_EAL_WORDS_MAX; i++) {
		strcat(text, "--log-level=8 ");
	}
	CU_ASSERT_EQUAL(env_eal_words_check(text, error), 0);
	strcat(text, "--log-level=8");
	CU_ASSERT_EQUAL(env_eal_words_check(text, error), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "at most 16"));
}

static const struct unit_test tests[] = {
	UNIT(test_lcores_run_on_the_cpus_that_are_given),
	UNIT(test_wrong_lcores_are_refused),
	UNIT(test_words_for_the_eal_are_those_that_undo_nothing),
	UNIT(test_words_for_the_eal_are_limited),
	UNIT_END,
};

UNIT_MAIN("lcores", tests, NULL, NULL)
