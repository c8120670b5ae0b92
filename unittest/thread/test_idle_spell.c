/* SPDX-License-Identifier: BSD-3-Clause */
/* How the idle spell follows what waits brought. Times are made up. */
#include "thread/idle_spell.h"
#include "unittest/unit.h"

#define MAX 1600
#define MIN (MAX / IDLE_SPELL_RANGE)

static struct idle_spell spell;
static uint64_t now, waking; /* waking: how long that takes */

static int setup(void)
{
	now = 1000000;
	waking = 0;
	idle_spell_init(&spell, MAX);
	return 0;
}

/* Polls from now on until the spell is over, and returns how long that was. */
static uint64_t poll_until_over(void)
{
	uint64_t since = now;

	while (!idle_spell_is_over(&spell, since, now)) {
		now++;
	}
	return now - since;
}

/* Work has come just now. Its reactor has nothing more to do, and the next work comes after `wait`. Returns how long it
 * polled; it slept for the rest, if there was any. */
static uint64_t wait_for_work(uint64_t wait)
{
	uint64_t since = now;

	while (now - since < wait && !idle_spell_is_over(&spell, since, now)) {
		now++;
	}
	uint64_t polled = now - since;
	if (polled < wait) {
		now = since + wait + waking;
		idle_spell_slept(&spell, since, now);
	}
	idle_spell_met(&spell, now - since);
	return polled;
}

static void test_spell_begins_with_the_longest(void)
{
	setup();
	CU_ASSERT_EQUAL(poll_until_over(), MAX);
}

static void test_work_that_comes_rarely_shortens_the_spell_down_to_the_least(void)
{
	setup();
	CU_ASSERT_EQUAL(wait_for_work(1000 * MAX), MAX);
	CU_ASSERT_EQUAL(wait_for_work(1000 * MAX), MAX / 2);
	CU_ASSERT_EQUAL(wait_for_work(1000 * MAX), MAX / 4);
	CU_ASSERT_EQUAL(wait_for_work(1000 * MAX), MAX / 8);
	for (int i = 0; i < 10; i++) {
		CU_ASSERT_EQUAL(wait_for_work(1000 * MAX), MIN);
	}
}

static void test_work_that_a_longer_spell_had_met_lengthens_it_up_to_the_longest(void)
{
	uint64_t wait = MAX - 1, polled = 0;

	test_work_that_comes_rarely_shortens_the_spell_down_to_the_least();
	CU_ASSERT_EQUAL(wait_for_work(wait), MIN); /* the wait before this one was long */
	CU_ASSERT_EQUAL(wait_for_work(wait), 2 * MIN);
	CU_ASSERT_EQUAL(wait_for_work(wait), 4 * MIN);
	CU_ASSERT_EQUAL(wait_for_work(wait), 8 * MIN);
	for (int i = 0; i < 10; i++) {
		polled = wait_for_work(wait);
		CU_ASSERT_EQUAL(polled, wait); /* it does not sleep any more */
	}
	CU_ASSERT_EQUAL(poll_until_over(), MAX);
}

static void test_spell_grows_only_as_far_as_needed(void)
{
	test_work_that_comes_rarely_shortens_the_spell_down_to_the_least();
	wait_for_work(3 * MIN);
	wait_for_work(3 * MIN);
	wait_for_work(3 * MIN);
	CU_ASSERT_EQUAL(spell.ticks, 4 * MIN);
	CU_ASSERT_EQUAL(wait_for_work(3 * MIN), 3 * MIN);
	CU_ASSERT_EQUAL(spell.ticks, 4 * MIN);
}

static void test_a_wait_that_the_longest_spell_had_met_is_short_also_with_the_time_to_wake(void)
{
	const uint64_t most = MAX + MAX / IDLE_SPELL_WAKING;

	setup();
	spell.ticks = 4 * MIN;
	idle_spell_slept(&spell, now, now + most);
	(void)idle_spell_is_over(&spell, now + most + 1, now + most + 1);
	CU_ASSERT_EQUAL(spell.ticks, 8 * MIN);
	idle_spell_slept(&spell, now, now + most + 1);
	(void)idle_spell_is_over(&spell, now + most + 2, now + most + 2);
	CU_ASSERT_EQUAL(spell.ticks, 4 * MIN);
}

/* Otherwise a reactor that has had some pauses would sleep in each wait for ever. */
static void test_work_that_comes_just_in_time_ends_the_sleeping(void)
{
	uint64_t wait = MAX - 20, polled = 0;

	test_work_that_comes_rarely_shortens_the_spell_down_to_the_least();
	waking = MAX / 16;
	for (int i = 0; i < 8; i++) {
		polled = wait_for_work(wait);
	}
	CU_ASSERT_EQUAL(polled, wait);
}

/* A host with one command at a time: the device takes its time, the host makes a pause. */
static void test_what_a_device_takes_between_long_pauses_is_polled_for(void)
{
	static const uint64_t devices[] = {MAX / 40, MAX / 5, MAX / 2, MAX - 1};

	for (unsigned d = 0; d < 4; d++) {
		setup();
		waking = MAX / 16;
		for (int i = 0; i < 20; i++) {
			uint64_t polled = wait_for_work(devices[d]);
			CU_ASSERT(i < 10 || polled == devices[d]);
			(void)wait_for_work(4 * MAX);
		}
		for (int i = 0; i < 10; i++) { /* the device is not asked any more */
			(void)wait_for_work(4 * MAX);
		}
		CU_ASSERT_EQUAL(wait_for_work(4 * MAX), MIN);
	}
}

static void test_a_wait_is_judged_once(void)
{
	setup();
	wait_for_work(10 * MAX);
	uint64_t since = now + 10;
	for (now = since; now < since + MAX / 2; now++) {
		CU_ASSERT_FALSE(idle_spell_is_over(&spell, since, now));
	}
	CU_ASSERT_EQUAL(spell.ticks, MAX / 2);
	CU_ASSERT_TRUE(idle_spell_is_over(&spell, since, now));
	CU_ASSERT_EQUAL(spell.ticks, MAX / 2);
	now += 10; /* more work, met while polling */
	CU_ASSERT_EQUAL(poll_until_over(), MAX / 2);
}

/* A reactor that a timer wakes goes to sleep again at once, and the wait goes on. */
static void test_timers_that_bring_no_work_are_no_end_of_a_wait(void)
{
	setup();
	uint64_t since = now;
	for (int i = 1; i <= 20; i++) {
		idle_spell_slept(&spell, since, since + (uint64_t)i * MAX / 4);
		CU_ASSERT_TRUE(idle_spell_is_over(&spell, since, since + (uint64_t)i * MAX / 4 + MAX));
		CU_ASSERT_EQUAL(spell.ticks, MAX);
	}
	now = since + 20 * MAX / 4 + 1; /* then there is work: it was a long wait, and one only */
	CU_ASSERT_EQUAL(poll_until_over(), MAX / 2);
}

static void test_shortest_spells_are_no_trap(void)
{
	struct idle_spell s;

	for (uint64_t max = 0; max < 2 * IDLE_SPELL_RANGE; max++) {
		idle_spell_init(&s, max);
		for (uint64_t i = 1; i < 20; i++) {
			idle_spell_slept(&s, i * 100000, i * 100000 + max + max / IDLE_SPELL_WAKING + 1);
			(void)idle_spell_is_over(&s, i * 100000 + 50000, i * 100000 + 50000);
			CU_ASSERT(s.ticks <= max);
		}
		CU_ASSERT_EQUAL(s.ticks, idle_spell_min(max));
		for (uint64_t i = 20; i < 40; i++) {
			idle_spell_slept(&s, i * 100000, i * 100000 + max);
			(void)idle_spell_is_over(&s, i * 100000 + 50000, i * 100000 + 50000);
		}
		CU_ASSERT_EQUAL(s.ticks, max);
	}
}

static const struct unit_test tests[] = {
	UNIT(test_spell_begins_with_the_longest),
	UNIT(test_work_that_comes_rarely_shortens_the_spell_down_to_the_least),
	UNIT(test_work_that_a_longer_spell_had_met_lengthens_it_up_to_the_longest),
	UNIT(test_spell_grows_only_as_far_as_needed),
	UNIT(test_a_wait_that_the_longest_spell_had_met_is_short_also_with_the_time_to_wake),
	UNIT(test_work_that_comes_just_in_time_ends_the_sleeping),
	UNIT(test_what_a_device_takes_between_long_pauses_is_polled_for),
	UNIT(test_a_wait_is_judged_once),
	UNIT(test_timers_that_bring_no_work_are_no_end_of_a_wait),
	UNIT(test_shortest_spells_are_no_trap),
	UNIT_END,
};

UNIT_MAIN("idle_spell", tests, setup, NULL)
