/* SPDX-License-Identifier: BSD-3-Clause */
/* The order in which parts start and stop; the ends of starts that fail and of stops that are slow. */
#include "appliance/parts.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "appliance/signals.h"
#include "unittest/thread/fixture.h"
#include "unittest/unit.h"
#include "util/compiler.h"

#define ROWS      5
#define REPORT_US 2000

static char story[256];  /* what was called, in order: "+a" started, "-a" stopped */
static int failing = -1; /* the row whose start fails */

static void note(const char *what)
{
	strcat(story, what);
}

static int start(int row, const char *what, char *error)
{
	if (row == failing) {
		return -EIO;
	}
	note(what);
	return 0;
}

static int start_a(char *error)
{
	return start(0, "+a", error);
}

static int start_b(char *error)
{
	return start(1, "+b", error);
}

static int start_c(char *error)
{
	return start(2, "+c", error);
}

static int start_d(char *error)
{
	if (failing == 3) {
		strcpy(error, "d has a reason");
	}
	return start(3, "+d", error);
}

static void stop_a(void)
{
	note("-a");
}

static void stop_b(void (*done)(void *arg), void *arg)
{
	note("-b");
	done(arg);
}

static void stop_d(void)
{
	note("-d");
}

static void stop_e(void)
{
	note("-e");
}

/* d is started in an earlier state than c, and stopped before it; c needs no stop, e no start. */
static const struct part rows[ROWS] = {
	{"a", APPLIANCE_INIT, start_a, stop_a, NULL}, {"b", APPLIANCE_RPC, start_b, NULL, stop_b},
	{"c", APPLIANCE_CONFIG, start_c, NULL, NULL}, {"d", APPLIANCE_RPC, start_d, stop_d, NULL},
	{"e", APPLIANCE_CONFIG, NULL, stop_e, NULL},
};
static struct parts parts;
static char error[PART_ERROR_MAX];

static void begin(int fail)
{
	parts = (struct parts){.table = rows, .n = ROWS, .report_us = REPORT_US};
	failing = fail;
	story[0] = '\0';
	strcpy(error, "old");
}

/* The result of the first state that cannot be started. */
static int start_all(void)
{
	static const enum appliance_state states[] = {APPLIANCE_INIT, APPLIANCE_RPC, APPLIANCE_CONFIG};
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(states); i++) {
		rc = parts_start(&parts, states[i], error);
	}
	return rc;
}

static void test_parts_start_by_state_and_stop_in_reverse_order_of_the_table(void)
{
	begin(-1);
	CU_ASSERT_EQUAL(start_all(), 0);
	CU_ASSERT_STRING_EQUAL(story, "+a+b+d+c");
	parts_stop(&parts, APPLIANCE_RPC);
	CU_ASSERT_STRING_EQUAL(story, "+a+b+d+c-e-d-b");
	parts_stop(&parts, APPLIANCE_INIT);
	CU_ASSERT_STRING_EQUAL(story, "+a+b+d+c-e-d-b-a");
	parts_stop(&parts, APPLIANCE_INIT); /* nothing is running any more */
	CU_ASSERT_STRING_EQUAL(story, "+a+b+d+c-e-d-b-a");
}

static void test_rows_below_one_stop_and_start_again_while_those_above_run(void)
{
	begin(-1);
	CU_ASSERT_EQUAL(start_all(), 0);
	story[0] = '\0';
	parts_stop_from(&parts, "c");
	CU_ASSERT_STRING_EQUAL(story, "-e-d");
	CU_ASSERT_EQUAL(start_all(), 0);
	CU_ASSERT_STRING_EQUAL(story, "-e-d+d+c");
	parts_stop(&parts, APPLIANCE_INIT);
	CU_ASSERT_STRING_EQUAL(story, "-e-d+d+c-e-d-b-a");
}

static void test_after_a_failure_exactly_what_was_started_is_stopped(void)
{
	static const char *const stories[] = {"", "+a-a", "+a+b+d-d-b-a", "+a+b-b-a"};

	for (int fail = 0; fail < 4; fail++) {
		begin(fail);
		CU_ASSERT_EQUAL(start_all(), -EIO);
		if (fail == 3) {
			CU_ASSERT_STRING_EQUAL(error, "d has a reason");
		} else {
			CU_ASSERT_PTR_NOT_NULL(strstr(error, "cannot start"));
			CU_ASSERT_PTR_NOT_NULL(strstr(error, rows[fail].name));
			CU_ASSERT_PTR_NOT_NULL(strstr(error, strerror(EIO)));
		}
		parts_stop(&parts, APPLIANCE_INIT);
		CU_ASSERT_STRING_EQUAL(story, stories[fail]);
	}
}

/* ---- Slow stops ---- */

static unsigned reports;
static struct {
	void (*done)(void *arg);
	void *arg;
	struct thread_timer timer;
} slow;

/* The part is gone once its stop has been reported three times. */
static void look_at_reports(void *arg)
{
	if (reports < 3) {
		thread_timer_start(&slow.timer, REPORT_US / 4);
	} else {
		note("-slow");
		slow.done(slow.arg);
	}
}

static void stop_slowly(void (*done)(void *arg), void *arg)
{
	slow.done = done;
	slow.arg = arg;
	slow.timer.fn = look_at_reports;
	thread_timer_start(&slow.timer, REPORT_US / 4);
}

static void count_reports(enum log_level level, const char *file, int line, const char *text)
{
	reports += strncmp(text, "still waiting for snail to stop", 31) == 0;
}

static void test_a_slow_stop_is_reported_until_it_is_over_and_the_next_waits_for_it(void)
{
	static const struct part table[] = {
		{"a", APPLIANCE_INIT, start_a, stop_a, NULL},
		{"snail", APPLIANCE_INIT, NULL, NULL, stop_slowly},
	};

	begin(-1);
	parts.table = table;
	parts.n = ARRAY_SIZE(table);
	reports = 0;
	log_set_print_level(LOG_LEVEL_WARNING);
	log_set_tap(count_reports);
	CU_ASSERT_EQUAL(parts_start(&parts, APPLIANCE_INIT, error), 0);
	parts_stop(&parts, APPLIANCE_INIT);
	log_set_tap(NULL);
	log_set_print_level(LOG_LEVEL_DISABLED);
	CU_ASSERT(reports >= 3);
	CU_ASSERT_STRING_EQUAL(story, "+a-slow-a");
}

/* ---- Signals ---- */

/* What SIGTERM does to a stop that never ends: nothing at first; after the time in which two signals are one, it ends
 * the process. */
static void stop_never(void)
{
	const struct timespec pause = {.tv_nsec = 20000000};

	for (;;) {
		raise(SIGTERM);
		nanosleep(&pause, NULL);
	}
}

static void test_a_second_signal_ends_a_process_that_cannot_stop(void)
{
	static const struct part table[] = {{"a", APPLIANCE_INIT, NULL, stop_never, NULL}};
	pid_t child = fork();

	if (child == 0) {
		if (signals_install() != 0) {
			_exit(1);
		}
		raise(SIGTERM);
		begin(-1);
		parts.table = table;
		parts.n = 1;
		parts_start(&parts, APPLIANCE_INIT, error);
		parts_stop(&parts, signals_stop_requested() == SIGTERM ? APPLIANCE_INIT : APPLIANCE_FAILED);
		_exit(2);
	}
	int status = 0;
	CU_ASSERT_EQUAL_FATAL(waitpid(child, &status, 0), child);
	CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGTERM);
}

static const struct unit_test tests[] = {
	UNIT(test_parts_start_by_state_and_stop_in_reverse_order_of_the_table),
	UNIT(test_rows_below_one_stop_and_start_again_while_those_above_run),
	UNIT(test_after_a_failure_exactly_what_was_started_is_stopped),
	UNIT(test_a_slow_stop_is_reported_until_it_is_over_and_the_next_waits_for_it),
	UNIT(test_a_second_signal_ends_a_process_that_cannot_stop),
	UNIT_END,
};

UNIT_MAIN("appliance_parts", tests, fixture_start, fixture_stop)
