/* SPDX-License-Identifier: BSD-3-Clause */
/* The governor of CPU frequencies, on a folder that looks like the kernel's: what is written there, what is given back,
 * and what is left alone. CPUs 2 and 3 share a frequency. */
#include "unittest/thread/fixture.h"
#include "unittest/unit.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "thread/governor.h"
#include "thread/scheduler.h"
#include "thread/thread_internal.h"

#define REACTORS  4
#define PERIOD_US 20000

static char folder[] = "/tmp/varve-governor-XXXXXX";
static const unsigned lcores[REACTORS] = {0, 1, 2, 3};

static const char *path_of(unsigned cpu, const char *file)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/cpu%u/cpufreq/%s", folder, cpu, file);
	return path;
}

static void put(unsigned cpu, const char *file, const char *text)
{
	FILE *f = fopen(path_of(cpu, file), "w");

	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	fprintf(f, "%s\n", text);
	fclose(f);
}

static bool has(unsigned cpu, const char *file, const char *text)
{
	FILE *f = fopen(path_of(cpu, file), "r");
	char line[256] = "";

	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	bool some = fgets(line, sizeof(line), f) != NULL;
	fclose(f);
	line[strcspn(line, "\n")] = '\0';
	return some && strcmp(line, text) == 0;
}

static void run(const char *command)
{
	char text[600];

	snprintf(text, sizeof(text), "cd %s && %s", folder, command);
	CU_ASSERT_EQUAL_FATAL(system(text), 0);
}

static void folder_make(bool userspace, const char *frequencies)
{
	run("rm -rf * && mkdir -p cpu0/cpufreq cpu1/cpufreq policy2 cpu2 cpu3 && ln -s ../policy2 cpu2/cpufreq && "
	    "ln -s ../policy2 cpu3/cpufreq");
	for (unsigned i = 0; i < 3; i++) {
		put(i, "scaling_driver", "a-driver");
		put(i, "scaling_governor", "schedutil");
		put(i, "scaling_available_governors",
		    userspace ? "performance userspace schedutil" : "performance powersave");
		put(i, "scaling_min_freq", "1000000");
		put(i, "scaling_max_freq", "2000000");
		put(i, "scaling_cur_freq", i == 0 ? "1900000" : "1200000");
		put(i, "scaling_setspeed", "<unsupported>");
		if (frequencies != NULL) {
			put(i, "scaling_available_frequencies", frequencies);
		}
	}
}

static void apply(enum governor_step a, enum governor_step b, enum governor_step c, enum governor_step d)
{
	const enum governor_step steps[REACTORS] = {a, b, c, d};

	governor_apply(lcores, steps, REACTORS);
}

static bool speeds_are(const char *a, const char *b, const char *c, const char *file)
{
	return has(0, file, a) && has(1, file, b) && has(2, file, c);
}

static void test_a_core_gets_what_it_needs(void)
{
	const struct balance_limits limits = {.load_limit = 20, .core_limit = 80, .core_busy = 95};

	CU_ASSERT_EQUAL(governor_decide(&limits, 0, 0), GOVERNOR_LOWEST);
	CU_ASSERT_EQUAL(governor_decide(&limits, 0, 1), GOVERNOR_DOWN);
	CU_ASSERT_EQUAL(governor_decide(&limits, 1999, 3), GOVERNOR_DOWN);
	CU_ASSERT_EQUAL(governor_decide(&limits, 2000, 3), GOVERNOR_STAY);
	CU_ASSERT_EQUAL(governor_decide(&limits, 8000, 3), GOVERNOR_STAY);
	CU_ASSERT_EQUAL(governor_decide(&limits, 8001, 3), GOVERNOR_HIGHEST);
	CU_ASSERT_EQUAL(governor_decide(&limits, 30000, 3), GOVERNOR_HIGHEST);
}

static void test_speeds_are_set_within_the_operators_limits_and_given_back(void)
{
	folder_make(true, "2600000 2000000 1600000 1200000 800000 ");
	governor_start();
	CU_ASSERT_TRUE(governor_is_used());
	CU_ASSERT_STRING_EQUAL(governor_driver(), "a-driver");
	CU_ASSERT_EQUAL(governor_khz(0), 1900000);
	CU_ASSERT_EQUAL(governor_khz(3), 1200000);
	CU_ASSERT_TRUE(has(0, "scaling_governor", "userspace") && has(2, "scaling_governor", "userspace"));
	CU_ASSERT_TRUE(speeds_are("2000000", "2000000", "2000000", "scaling_setspeed"));
	apply(GOVERNOR_DOWN, GOVERNOR_LOWEST, GOVERNOR_STAY, GOVERNOR_STAY);
	CU_ASSERT_TRUE(speeds_are("1600000", "1200000", "2000000", "scaling_setspeed"));
	apply(GOVERNOR_DOWN, GOVERNOR_DOWN, GOVERNOR_STAY, GOVERNOR_STAY);
	apply(GOVERNOR_DOWN, GOVERNOR_STAY, GOVERNOR_STAY, GOVERNOR_STAY); /* not below the lowest */
	CU_ASSERT_TRUE(speeds_are("1200000", "1200000", "2000000", "scaling_setspeed"));
	apply(GOVERNOR_HIGHEST, GOVERNOR_STAY, GOVERNOR_STAY, GOVERNOR_STAY);
	CU_ASSERT_TRUE(speeds_are("2000000", "1200000", "2000000", "scaling_setspeed"));
	governor_stop();
	CU_ASSERT_FALSE(governor_is_used());
	for (unsigned i = 0; i < 3; i++) {
		CU_ASSERT_TRUE(has(i, "scaling_governor", "schedutil"));
		CU_ASSERT_TRUE(has(i, "scaling_min_freq", "1000000") && has(i, "scaling_max_freq", "2000000"));
	}
	governor_stop(); /* again: nothing */
}

static void test_cores_with_one_frequency_get_what_the_busiest_needs(void)
{
	folder_make(true, "2000000 1500000 1000000");
	governor_start();
	apply(GOVERNOR_STAY, GOVERNOR_STAY, GOVERNOR_LOWEST, GOVERNOR_DOWN);
	CU_ASSERT_TRUE(has(2, "scaling_setspeed", "1500000"));
	apply(GOVERNOR_STAY, GOVERNOR_STAY, GOVERNOR_LOWEST, GOVERNOR_LOWEST);
	CU_ASSERT_TRUE(has(2, "scaling_setspeed", "1000000"));
	apply(GOVERNOR_STAY, GOVERNOR_STAY, GOVERNOR_HIGHEST, GOVERNOR_DOWN);
	CU_ASSERT_TRUE(speeds_are("2000000", "2000000", "2000000", "scaling_setspeed"));
	governor_stop();
}

/* Drivers that choose by themselves have no such governor. */
static void test_without_userspace_nothing_is_set(void)
{
	folder_make(false, NULL);
	governor_start();
	CU_ASSERT_FALSE(governor_is_used());
	CU_ASSERT_TRUE(speeds_are("2000000", "2000000", "2000000", "scaling_max_freq"));
	CU_ASSERT_TRUE(has(0, "scaling_governor", "schedutil") && has(0, "scaling_setspeed", "<unsupported>"));
}

static void test_a_speed_that_was_set_before_is_given_back(void)
{
	folder_make(true, NULL);
	put(0, "scaling_governor", "userspace");
	put(0, "scaling_setspeed", "1600000");
	governor_start();
	CU_ASSERT_TRUE(governor_is_used());
	CU_ASSERT_EQUAL(governor_khz_set(0), 2000000);
	apply(GOVERNOR_DOWN, GOVERNOR_LOWEST, GOVERNOR_STAY, GOVERNOR_STAY);
	CU_ASSERT_TRUE(speeds_are("1900000", "1000000", "2000000", "scaling_setspeed"));
	CU_ASSERT_EQUAL(governor_khz_set(0), 1900000);
	CU_ASSERT_EQUAL(governor_khz_set(3), 2000000);
	governor_stop();
	CU_ASSERT_EQUAL(governor_khz_set(0), 0);
	CU_ASSERT_TRUE(has(0, "scaling_governor", "userspace") && has(0, "scaling_setspeed", "1600000"));
	CU_ASSERT_TRUE(has(1, "scaling_governor", "schedutil"));
}

/* CPU 9 has no reactor. */
static void test_a_cpu_without_a_reactor_is_not_slowed(void)
{
	folder_make(true, NULL);
	put(2, "affected_cpus", "2 3 9");
	governor_start();
	CU_ASSERT_FALSE(governor_is_used());
	CU_ASSERT_TRUE(has(0, "scaling_governor", "schedutil") && has(2, "scaling_governor", "schedutil"));
	put(2, "affected_cpus", "2 3");
	governor_start();
	CU_ASSERT_TRUE(governor_is_used());
	governor_stop();
}

static void test_where_one_core_cannot_be_governed_all_are_left_alone(void)
{
	static const char *const harms[] = {
		"rm -r *",
		"rm cpu1/cpufreq/scaling_governor",
		"rm cpu1/cpufreq/scaling_min_freq",
		"echo 999999 > cpu1/cpufreq/scaling_max_freq",
		"echo none > cpu1/cpufreq/scaling_max_freq",
		"echo > cpu1/cpufreq/scaling_governor",
		"echo 1 2 x > cpu1/cpufreq/scaling_available_frequencies && echo 1500000 > "
		"cpu1/cpufreq/scaling_min_freq && "
		"echo 1400000 > cpu1/cpufreq/scaling_max_freq",
		/* it is there, but cannot be written, even by root */
		"rm cpu1/cpufreq/scaling_setspeed && mkdir cpu1/cpufreq/scaling_setspeed",
		"rm cpu1/cpufreq/scaling_governor && mkdir cpu1/cpufreq/scaling_governor",
	};

	for (size_t i = 0; i < sizeof(harms) / sizeof(harms[0]); i++) {
		folder_make(true, "2000000 1500000 1000000");
		run(harms[i]);
		governor_start();
		CU_ASSERT_FALSE(governor_is_used());
		CU_ASSERT_TRUE(i == 0 || has(0, "scaling_governor", "schedutil"));
		apply(GOVERNOR_LOWEST, GOVERNOR_LOWEST, GOVERNOR_LOWEST, GOVERNOR_LOWEST);
		CU_ASSERT_TRUE(i == 0 || !has(0, "scaling_setspeed", "1000000"));
	}
}

static void test_a_write_that_fails_ends_it(void)
{
	folder_make(true, "2000000 1500000 1000000");
	governor_start();
	CU_ASSERT_TRUE(governor_is_used());
	run("rm cpu1/cpufreq/scaling_setspeed && mkdir cpu1/cpufreq/scaling_setspeed");
	apply(GOVERNOR_DOWN, GOVERNOR_DOWN, GOVERNOR_DOWN, GOVERNOR_DOWN);
	CU_ASSERT_FALSE(governor_is_used());
	CU_ASSERT_TRUE(has(0, "scaling_governor", "schedutil") && has(2, "scaling_governor", "schedutil"));
}

static bool idle_cores_are_low(void *arg)
{
	return speeds_are("1000000", "1000000", "1000000", "scaling_setspeed");
}

static void make_round(void *arg)
{
	thread_timer_start(arg, PERIOD_US / 4);
}

/* There is no thread at all, so every core goes down; and with the static scheduler the frequencies are the kernel's.
 */
static void test_the_dynamic_scheduler_governs_and_the_static_one_does_not(void)
{
	struct thread_timer rounds = {.fn = make_round, .arg = &rounds};
	struct scheduler_opts o;

	folder_make(true, "2000000 1500000 1000000");
	scheduler_get_opts(&o);
	o.kind = SCHEDULER_DYNAMIC;
	o.period_us = PERIOD_US;
	CU_ASSERT_EQUAL(scheduler_set_opts(&o), 0);
	CU_ASSERT_TRUE(governor_is_used());
	thread_timer_start(&rounds, PERIOD_US);
	CU_ASSERT_TRUE(thread_control_wait(idle_cores_are_low, NULL, WAIT_US));
	o.limits.core_limit = 70; /* it goes on */
	CU_ASSERT_EQUAL(scheduler_set_opts(&o), 0);
	CU_ASSERT_TRUE(governor_is_used() && has(0, "scaling_governor", "userspace"));
	o.kind = SCHEDULER_STATIC;
	CU_ASSERT_EQUAL(scheduler_set_opts(&o), 0);
	thread_timer_stop(&rounds);
	CU_ASSERT_FALSE(governor_is_used());
	CU_ASSERT_TRUE(has(0, "scaling_governor", "schedutil") && has(2, "scaling_governor", "schedutil"));
}

static int begin(void)
{
	return mkdtemp(folder) == NULL || setenv(GOVERNOR_FOLDER_VARIABLE, folder, 1) != 0 || fixture_start() != 0;
}

static int end(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return fixture_stop() != 0 || system(command) != 0;
}

static const struct unit_test tests[] = {
	UNIT(test_a_core_gets_what_it_needs),
	UNIT(test_speeds_are_set_within_the_operators_limits_and_given_back),
	UNIT(test_cores_with_one_frequency_get_what_the_busiest_needs),
	UNIT(test_without_userspace_nothing_is_set),
	UNIT(test_a_speed_that_was_set_before_is_given_back),
	UNIT(test_a_cpu_without_a_reactor_is_not_slowed),
	UNIT(test_where_one_core_cannot_be_governed_all_are_left_alone),
	UNIT(test_a_write_that_fails_ends_it),
	UNIT(test_the_dynamic_scheduler_governs_and_the_static_one_does_not),
	UNIT_END,
};

UNIT_MAIN("governor", tests, begin, end)
