/* SPDX-License-Identifier: BSD-3-Clause */
/* What a peer can cause is logged with a limit on the rate. */
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "unittest/unit.h"
#include "util/log.h"

#define AT_MOST 10 /* lines a second, from one place */

/* The clock that the limits look at stands still but for what a test adds. */
static uint64_t now_ns = 1000000000;

int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
	if (clock != CLOCK_MONOTONIC_COARSE) {
		return __real_clock_gettime(clock, t);
	}
	*t = (struct timespec){(time_t)(now_ns / 1000000000), (long)(now_ns % 1000000000)};
	return 0;
}

static unsigned lines, confessions;
static char last[256];

static void take_line(enum log_level level, const char *file, int line, const char *text)
{
	lines++;
	confessions += strstr(text, "(some earlier lines left out)") != NULL;
	snprintf(last, sizeof(last), "%s", text);
}

static void here(unsigned times)
{
	for (unsigned i = 0; i < times; i++) {
		log_limited(LOG_LEVEL_ERROR, "a host did it, number %u", i);
	}
}

static void there(unsigned times)
{
	for (unsigned i = 0; i < times; i++) {
		log_limited(LOG_LEVEL_ERROR, "a host did that");
	}
}

static unsigned lines_of(void (*place)(unsigned times), unsigned times)
{
	lines = confessions = 0;
	place(times);
	return lines;
}

static void a_second_goes_by(void)
{
	now_ns += 1000000000;
}

static void test_lines_of_one_place_are_limited_and_the_next_says_so(void)
{
	a_second_goes_by();
	CU_ASSERT_EQUAL(lines_of(here, 1000), AT_MOST);
	CU_ASSERT_EQUAL(confessions, 0);
	CU_ASSERT_STRING_EQUAL(last, "a host did it, number 9");
	now_ns += 999999999;
	CU_ASSERT_EQUAL(lines_of(here, 1000), 0);
	now_ns++;
	CU_ASSERT_EQUAL(lines_of(here, 1), 1);
	CU_ASSERT_STRING_EQUAL(last, "a host did it, number 0 (some earlier lines left out)");
	CU_ASSERT_EQUAL(lines_of(here, 1000), AT_MOST - 1);
	CU_ASSERT_EQUAL(confessions, 0);
}

static void test_what_is_seldom_is_all_there(void)
{
	for (unsigned i = 0; i < 100; i++) {
		a_second_goes_by();
		CU_ASSERT_EQUAL(lines_of(there, AT_MOST), AT_MOST);
		CU_ASSERT_EQUAL(confessions, 0);
	}
}

static void test_places_have_limits_of_their_own(void)
{
	a_second_goes_by();
	CU_ASSERT_EQUAL(lines_of(here, 1000), AT_MOST);
	CU_ASSERT_EQUAL(lines_of(there, 1000), AT_MOST);
	CU_ASSERT_EQUAL(lines_of(here, 1000), 0);
}

static int start(void)
{
	log_set_tap(take_line);
	return 0;
}

static int stop(void)
{
	log_set_tap(NULL);
	return 0;
}

static const struct unit_test tests[] = {
	UNIT(test_lines_of_one_place_are_limited_and_the_next_says_so),
	UNIT(test_what_is_seldom_is_all_there),
	UNIT(test_places_have_limits_of_their_own),
	UNIT_END,
};
UNIT_MAIN("util_log", tests, start, stop)
