/* SPDX-License-Identifier: BSD-3-Clause */
/* What every unit test program is made of: CUnit suites, run by UNIT_MAIN, one `PASS suite.test`, `FAIL suite.test:
 * where` or `SKIP suite.test: why` line each. The exit status is 0 when nothing failed. `PROGRAM PATTERN...` runs the
 * tests whose names contain a pattern.
 *
 *     static void test_connect_with_unknown_nqn_is_rejected(void) { ... CU_ASSERT_EQUAL(...) ... }
 *     static const struct unit_test tests[] = { UNIT(test_connect_with_unknown_nqn_is_rejected), UNIT_END };
 *     UNIT_MAIN("nvmf_connect", tests, setup, teardown)      setup and teardown run once, or NULL; setup returns 0
 */
#ifndef UNITTEST_UNIT_H
#define UNITTEST_UNIT_H

#include <CUnit/CUnit.h>
#include <CUnit/TestRun.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct unit_test {
	const char *name;
	void (*fn)(void);
};
#define UNIT(fn_)                                                                                                      \
	{                                                                                                              \
#fn_, fn_                                                                                              \
	}
#define UNIT_END                                                                                                       \
	{                                                                                                              \
		NULL, NULL                                                                                             \
	}

/* util/state_machine.h, where the program links it: a transition that must not be ends the test. */
extern _Bool state_machine_abort __attribute__((weak));

static const char *unit_skip_reason;
/* Ends this test as skipped. */
#define UNIT_SKIP(why)                                                                                                 \
	do {                                                                                                           \
		unit_skip_reason = (why);                                                                              \
		return;                                                                                                \
	} while (0)

/* For tests of many cases that differ in values, not in what is run: each how-manieth is tried. Under valgrind, which
 * is there for reads of what was never written, each eighth; all of them are judged in the other builds. */
static inline unsigned unit_stride(void)
{
	return getenv("VARVE_VALGRIND") != NULL ? 8 : 1;
}

static inline void unit_test_begins(const CU_pTest test, const CU_pSuite suite)
{
	unit_skip_reason = NULL;
}

static inline void unit_test_ended(const CU_pTest test, const CU_pSuite suite, const CU_pFailureRecord failure)
{
	if (failure != NULL) {
		for (CU_pFailureRecord f = failure; f != NULL; f = f->pNext) {
			printf("FAIL %s.%s: %s:%u: %s\n", suite->pName, test->pName, f->strFileName, f->uiLineNumber,
			       f->strCondition);
		}
	} else if (unit_skip_reason != NULL) {
		printf("SKIP %s.%s: %s\n", suite->pName, test->pName, unit_skip_reason);
	} else {
		printf("PASS %s.%s\n", suite->pName, test->pName);
	}
	fflush(stdout);
}

static inline int unit_run(const char *name, const struct unit_test *tests, int (*setup)(void), int (*teardown)(void),
			   int argc, char **argv)
{
	if (&state_machine_abort != NULL) {
		state_machine_abort = 1;
	}
	if (CU_initialize_registry() != CUE_SUCCESS) {
		return 2;
	}
	CU_pSuite suite = CU_add_suite(name, setup, teardown);
	for (const struct unit_test *t = tests; t->name != NULL; t++) {
		int wanted = argc < 2;
		for (int i = 1; i < argc; i++) {
			wanted |= strstr(t->name, argv[i]) != NULL;
		}
		if (wanted) {
			CU_add_test(suite, t->name, t->fn);
		}
	}
	CU_set_test_start_handler(unit_test_begins);
	CU_set_test_complete_handler(unit_test_ended);
	CU_run_all_tests();
	unsigned failed = CU_get_number_of_tests_failed();
	if (CU_get_number_of_suites_failed() != 0) {
		printf("FAIL %s: its setup or teardown failed\n", name);
		failed++;
	}
	CU_cleanup_registry();
	return failed != 0;
}

#define UNIT_MAIN(name_, tests_, setup_, teardown_)                                                                    \
	int main(int argc, char **argv)                                                                                \
	{                                                                                                              \
		return unit_run(name_, tests_, setup_, teardown_, argc, argv);                                         \
	}

#endif
