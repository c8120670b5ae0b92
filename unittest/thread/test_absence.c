/* SPDX-License-Identifier: BSD-3-Clause */
/* A reactor that did not run for a time tells it before it does anything else. An absence is made by setting back the
 * time at which the reactor last read the clock. */
#include "unittest/unit.h"
#include "unittest/thread/fixture.h"
#include "thread/thread_internal.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>

#define ABSENT_US UINT64_C(5000000)

static struct thread *workers[2]; /* on one reactor */
static struct thread_absence watches[2];
static unsigned told[2], told_when_next_ran[2];
static uint64_t told_us;
static struct thread *told_on;

static int setup(void)
{
	env_ticks_offset =
		UINT64_C(1) << 62; /* the TSC of a machine that was just started cannot be set back by hours */
	int rc = fixture_start();

	if (rc == 0) {
		workers[0] = fixture_thread("worker 0", 1);
		workers[1] = fixture_thread("worker 1", 1);
	}
	return rc;
}

static int teardown(void)
{
	int rc = thread_destroy(workers[0]) | thread_destroy(workers[1]);

	fixture_stop();
	return rc;
}

static void note_absence(void *arg, uint64_t us)
{
	unsigned i = (unsigned)(uintptr_t)arg;

	if (us < ABSENT_US - 1000) {
		return; /* a busy machine has kept the reactor for so long; the test's absences are longer */
	}
	told[i]++;
	told_us = us;
	told_on = thread_current();
	CU_ASSERT_PTR_EQUAL(told_on, workers[i]);
}

static void watch_here(void *arg)
{
	unsigned i = (unsigned)(uintptr_t)arg;

	watches[i] = (struct thread_absence){.fn = note_absence, .arg = arg};
	thread_absence_watch(&watches[i]);
}

static void unwatch_here(void *arg)
{
	thread_absence_unwatch(&watches[(uintptr_t)arg]);
}

static void watch_both(void)
{
	for (uintptr_t i = 0; i < 2; i++) {
		told[i] = told_when_next_ran[i] = 0;
		thread_call(workers[i], watch_here, (void *)i);
	}
}

static void unwatch_both(void)
{
	for (uintptr_t i = 0; i < 2; i++) {
		thread_call(workers[i], unwatch_here, (void *)i);
	}
}

static void be_absent(void)
{
	reactor_self->now -= env_us_to_ticks(ABSENT_US);
}

static void note_what_was_told(void *arg)
{
	memcpy(told_when_next_ran, told, sizeof(told));
}

/* What runs next is in the other thread's part of the round, or in the next round. */
static void be_absent_and_go_on(void *arg)
{
	be_absent();
	thread_send(workers[1], note_what_was_told, NULL);
}

static void test_those_who_watch_are_told_before_anything_else(void)
{
	watch_both();
	thread_call(workers[0], be_absent_and_go_on, NULL);
	thread_call(workers[1], note_what_was_told, NULL);
	CU_ASSERT_EQUAL(told_when_next_ran[0], 1);
	CU_ASSERT_EQUAL(told_when_next_ran[1], 1);
	CU_ASSERT(told_us >= ABSENT_US);
	unwatch_both();
}

static void check_in_the_middle(void *arg)
{
	be_absent();
	thread_absence_check();
	CU_ASSERT_EQUAL(told[0], 1);
	CU_ASSERT_EQUAL(told[1], 1);
	CU_ASSERT_PTR_EQUAL(thread_current(), workers[0]);
	thread_absence_check(); /* once for each absence */
	CU_ASSERT_EQUAL(told[0], 1);
}

static void test_who_asks_in_the_middle_of_a_round_has_them_told(void)
{
	watch_both();
	thread_call(workers[0], check_in_the_middle, NULL);
	thread_call(workers[1], note_what_was_told, NULL);
	CU_ASSERT_EQUAL(told_when_next_ran[0], 1);
	unwatch_both();
}

static void test_a_thread_that_does_not_watch_is_not_told(void)
{
	told[0] = 0;
	thread_call(workers[0], be_absent_and_go_on, NULL);
	thread_call(workers[1], note_what_was_told, NULL);
	CU_ASSERT_EQUAL(told[0], 0);
}

/* Sleeping until there is work is no absence; coming late is. */
static void test_sleep_is_an_absence_if_the_reactor_wakes_late(void)
{
	uint64_t late = absence_min_ticks + 1;

	CU_ASSERT_EQUAL(absence_of_sleep(1000, UINT64_MAX, 1000 + 100 * late), 0);
	CU_ASSERT_EQUAL(absence_of_sleep(1000, 1000 + 100 * late, 2000), 0);
	CU_ASSERT_EQUAL(absence_of_sleep(1000, 5000, 5000 + absence_min_ticks), 0);
	CU_ASSERT_EQUAL(absence_of_sleep(1000, 5000, 5000 + late), 4000 + late);
}

/* A move of worker 0, in the middle of which the process is stopped. */
static void move_out_when_absent(void *arg)
{
	be_absent();
	reactor_detach(reactor_self, workers[0], arg);
}

static void move_in(void *arg)
{
	reactor_attach(arg, workers[0]);
}

static void test_a_thread_that_is_being_moved_is_told_where_it_arrives(void)
{
	struct reactor *home = workers[0]->reactor, *other = reactor_by_index(home->index == 2 ? 3 : 2);

	watch_both();
	reactor_call(home, move_out_when_absent, other);
	reactor_call(other, move_in, other);
	thread_call(workers[0], note_what_was_told, NULL);
	CU_ASSERT_EQUAL(told_when_next_ran[0], 1);
	CU_ASSERT(told_us >= ABSENT_US);
	unwatch_both();
}

static struct poller *idle;
static int idle_fd;
static _Atomic unsigned times_asleep;

static int find_nothing(void *ctx)
{
	return POLLER_IDLE;
}

static bool count_falling_asleep(void *ctx)
{
	atomic_fetch_add(&times_asleep, 1);
	return false;
}

static void add_idle_poller(void *arg)
{
	idle = poller_register(
		&(struct poller_opts){.name = "idle", .fn = find_nothing, .arm = count_falling_asleep, .fd = idle_fd});
}

static void remove_idle_poller(void *arg)
{
	poller_unregister(&idle);
}

static bool never(void *arg)
{
	return false;
}

/* Its sleep is short, so that it knows within what time it should have woken. Nobody wakes it here. */
static void test_reactor_of_who_watches_wakes_by_itself(void)
{
	idle_fd = eventfd(0, EFD_NONBLOCK);
	watch_both();
	thread_call(workers[0], add_idle_poller, NULL);
	unsigned before = atomic_load(&times_asleep);
	for (unsigned i = 0; i < 1000 && atomic_load(&times_asleep) < before + 4; i++) {
		thread_control_wait(never, NULL, 10000);
	}
	CU_ASSERT(atomic_load(&times_asleep) >= before + 4);
	CU_ASSERT_EQUAL(told[0], 0);
	thread_call(workers[0], remove_idle_poller, NULL);
	unwatch_both();
	close(idle_fd);
}

/* ---- A suspended system ---- */

static _Atomic int64_t suspended_ns, day_ns; /* what the kernel's clocks are taken to be ahead by */

int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
	int rc = __real_clock_gettime(clock, t);
	bool is_day = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
	int64_t ns = t->tv_sec * INT64_C(1000000000) + t->tv_nsec;

	if (is_day || clock == CLOCK_BOOTTIME) {
		ns += atomic_load(&suspended_ns) + (is_day ? atomic_load(&day_ns) : 0);
		t->tv_sec = ns / 1000000000;
		t->tv_nsec = ns % 1000000000;
	}
	return rc;
}

static void check_here(void *arg)
{
	thread_absence_check();
}

/* Each thread looks for itself. */
static void suspend_and_look(uint64_t us)
{
	told_us = 0;
	memset(told, 0, sizeof(told));
	atomic_fetch_add(&suspended_ns, (int64_t)us * 1000);
	for (unsigned i = 0; i < 2; i++) {
		thread_call(workers[i], check_here, NULL);
	}
}

static void test_suspended_system_was_absent_though_the_tsc_stood_still(void)
{
	suspend_and_look(ABSENT_US); /* nobody watches */
	watch_both();
	suspend_and_look(0);
	CU_ASSERT(told[0] == 0 && told[1] == 0);
	for (unsigned i = 0; i < 3; i++) {
		suspend_and_look(ABSENT_US);
		CU_ASSERT(told[0] == 1 && told[1] == 1);
		CU_ASSERT(told_us >= ABSENT_US - 1000);
		CU_ASSERT(told_us < 2 * ABSENT_US);
		suspend_and_look(0);
		CU_ASSERT(told[0] == 0 && told[1] == 0);
	}
	suspend_and_look(THREAD_ABSENCE_MIN_US / 2);
	CU_ASSERT(told[0] == 0 && told[1] == 0);
	unwatch_both();
}

static void test_clock_of_the_day_may_be_set(void)
{
	static const int64_t hours[] = {3, -5, 24 * 365, 0};

	watch_both();
	for (unsigned i = 0; i < sizeof(hours) / sizeof(hours[0]); i++) {
		atomic_store(&day_ns, hours[i] * 3600 * INT64_C(1000000000));
		suspend_and_look(0);
		CU_ASSERT(told[0] == 0 && told[1] == 0);
	}
	unwatch_both();
}

/* ---- A TSC that begins anew ---- */

static struct thread_timer timers[2];
static _Atomic unsigned fired[2];
static atomic_uint lines;
static uint64_t armed_at[2], fired_at[2];

static void wake_control(void *arg)
{
}

static void note_timer(void *arg)
{
	unsigned i = (unsigned)(uintptr_t)arg;

	fired_at[i] = thread_now();
	atomic_fetch_add(&fired[i], 1);
	thread_send(thread_control(), wake_control, NULL);
}

static void arm_timer(void *arg)
{
	unsigned i = (unsigned)(uintptr_t)arg;

	armed_at[i] = env_ticks();
	timers[i] = (struct thread_timer){.fn = note_timer, .arg = arg};
	thread_timer_start(&timers[i], 20000);
}

static void stop_timer(void *arg)
{
	thread_timer_stop(&timers[(uintptr_t)arg]);
}

static bool both_fired(void *arg)
{
	return atomic_load(&fired[0]) != 0 && atomic_load(&fired[1]) != 0;
}

static void count_lines(enum log_level level, const char *file, int line, const char *text)
{
	atomic_fetch_add(&lines, strstr(text, "was set back by") != NULL);
}

static void set_clock_back(uint64_t us)
{
	__atomic_fetch_sub(&env_ticks_offset, env_us_to_ticks(us), __ATOMIC_RELAXED);
}

static void expect_time_goes_on(void)
{
	uint64_t min = env_us_to_ticks(20000);

	for (unsigned i = 0; i < 2; i++) {
		atomic_store(&fired[i], 0);
		thread_call(workers[i], arm_timer, (void *)(uintptr_t)i);
	}
	uint64_t before = env_ticks();
	set_clock_back(UINT64_C(3600) * 1000000);
	CU_ASSERT(thread_control_wait(both_fired, NULL, WAIT_US));
	CU_ASSERT(env_ticks() > before);
	for (unsigned i = 0; i < 2; i++) {
		CU_ASSERT(fired_at[i] >= armed_at[i] + min);
		CU_ASSERT(fired_at[i] - armed_at[i] < env_us_to_ticks(WAIT_US));
		thread_call(workers[i], stop_timer, (void *)(uintptr_t)i);
	}
}

static void test_timers_go_on_when_the_tsc_begins_anew(void)
{
	watch_both();
	log_set_print_level(LOG_LEVEL_WARNING);
	log_set_tap(count_lines);
	for (unsigned i = 0; i < 3; i++) {
		atomic_store(&lines, 0);
		expect_time_goes_on();
		CU_ASSERT_EQUAL(atomic_load(&lines), 1); /* whoever notices it first */
	}
	log_set_tap(NULL);
	log_set_print_level(LOG_LEVEL_DISABLED);
	CU_ASSERT(told[0] == 0 && told[1] == 0); /* how long the system was suspended, other clocks tell */
	unwatch_both();
}

static void read_skewed(void *arg)
{
	uint64_t before = reactor_self->now = env_ticks() + env_us_to_ticks(500);

	CU_ASSERT(reactor_read_clock(reactor_self) >= before);
	thread_absence_check();
}

/* CPUs whose TSCs differ a little are no reason to move the time on. */
static void test_a_little_less_is_no_new_beginning(void)
{
	uint64_t offset = __atomic_load_n(&env_ticks_offset, __ATOMIC_RELAXED);

	watch_both();
	thread_call(workers[0], read_skewed, NULL);
	CU_ASSERT_EQUAL(__atomic_load_n(&env_ticks_offset, __ATOMIC_RELAXED), offset);
	CU_ASSERT(told[0] == 0 && told[1] == 0);
	unwatch_both();
}

static void read_far_skewed(void *arg)
{
	uint64_t before = reactor_self->now = env_ticks() + env_us_to_ticks(3000000);

	CU_ASSERT(reactor_read_clock(reactor_self) >= before);
	thread_absence_check();
}

/* Nor are CPUs whose TSCs differ more, as long as CLOCK_MONOTONIC knows of no step back: the time would move on with
 * each change of the CPU. */
static void test_step_back_that_the_clock_does_not_confirm_is_no_new_beginning(void)
{
	uint64_t offset = __atomic_load_n(&env_ticks_offset, __ATOMIC_RELAXED);

	watch_both();
	thread_call(workers[0], read_far_skewed, NULL);
	CU_ASSERT_EQUAL(__atomic_load_n(&env_ticks_offset, __ATOMIC_RELAXED), offset);
	CU_ASSERT(told[0] == 0 && told[1] == 0);
	unwatch_both();
}

static void arrive_from_a_cpu_that_is_ahead(void *arg)
{
	thread_self->left_ticks = env_ticks() + env_us_to_ticks(500);
	thread_tell_absence_of_move(thread_self);
}

static void test_thread_that_comes_from_a_cpu_that_is_ahead_was_not_absent(void)
{
	watch_both();
	thread_call(workers[0], arrive_from_a_cpu_that_is_ahead, NULL);
	CU_ASSERT(told[0] == 0 && told[1] == 0);
	unwatch_both();
}

static const struct unit_test tests[] = {
	UNIT(test_those_who_watch_are_told_before_anything_else),
	UNIT(test_who_asks_in_the_middle_of_a_round_has_them_told),
	UNIT(test_a_thread_that_does_not_watch_is_not_told),
	UNIT(test_sleep_is_an_absence_if_the_reactor_wakes_late),
	UNIT(test_a_thread_that_is_being_moved_is_told_where_it_arrives),
	UNIT(test_reactor_of_who_watches_wakes_by_itself),
	UNIT(test_suspended_system_was_absent_though_the_tsc_stood_still),
	UNIT(test_clock_of_the_day_may_be_set),
	UNIT(test_timers_go_on_when_the_tsc_begins_anew),
	UNIT(test_a_little_less_is_no_new_beginning),
	UNIT(test_thread_that_comes_from_a_cpu_that_is_ahead_was_not_absent),
	UNIT(test_step_back_that_the_clock_does_not_confirm_is_no_new_beginning),
	UNIT_END,
};
UNIT_MAIN("absence", tests, setup, teardown)
