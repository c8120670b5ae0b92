/* SPDX-License-Identifier: BSD-3-Clause */
/* Whose look at the trace is next, who gets a place, and what is told meanwhile. */
#include <stdio.h>

#include "appliance/console_looks.h"
#include "unittest/unit.h"

#define MS     UINT64_C(1000)
#define SECOND (1000 * MS)

static struct console_looks looks;

static struct console_trace_query query(const char *text)
{
	struct console_trace_query q = {.group = -1};

	snprintf(q.text, sizeof(q.text), "%s", text);
	return q;
}

static struct console_look *ask(const char *text, uint64_t now_us)
{
	struct console_trace_query q = query(text);

	return looks_ask(&looks, &q, now_us);
}

/* Runs the next look. Returns its text. */
static const char *run_next(uint64_t begin_us, uint64_t end_us)
{
	struct console_look *l = looks_next(&looks);

	CU_ASSERT_PTR_NOT_NULL_FATAL(l);
	l->state = LOOK_RUNS;
	l->next->entries = begin_us;
	look_done(&looks, l, end_us, 0);
	return l->query.text;
}

static void forget_all(void)
{
	looks_stop(&looks);
	CU_ASSERT_FALSE(looks_forget(&looks, 1000 * SECOND));
}

/* One page looks at the same again and again, and there always are new choices that wait. */
static void test_new_choices_do_not_pass_one_that_waits_already(void)
{
	uint64_t now = 100 * SECOND;
	unsigned found = 0;
	char text[16];

	ask("page", now);
	run_next(now, now);
	for (unsigned i = 0; i < 20; i++) {
		now += SECOND;
		ask("page", now);
		snprintf(text, sizeof(text), "new %u", i);
		CU_ASSERT_PTR_NOT_NULL_FATAL(ask(text, now + 1));
		found += strcmp(run_next(now + 2, now + 3), "page") == 0;
	}
	CU_ASSERT(found >= 6); /* each third at least: three of four places may wait before it */
	forget_all();
}

static void test_a_filter_typed_letter_by_letter_finds_a_place(void)
{
	static const char *const typed[] = {"m", "ma", "mal", "mall"};
	uint64_t now = 100 * SECOND;

	for (unsigned i = 0; i < 4; i++) {
		CU_ASSERT_PTR_NOT_NULL(ask(typed[i], now + i * 50 * MS));
	}
	CU_ASSERT_PTR_NULL(ask("mallo", now + 200 * MS)); /* the others may be other pages' */
	struct console_look *first = looks_next(&looks);
	first->state = LOOK_RUNS; /* the worker thread has it: it keeps its place */
	struct console_look *l = ask("mallo", now + 1050 * MS);
	CU_ASSERT_PTR_NOT_NULL_FATAL(l);
	CU_ASSERT_STRING_EQUAL(first->query.text, "m");
	CU_ASSERT_PTR_EQUAL(ask("mall", now + 1060 * MS), ask("mall", now + 1070 * MS));
	look_done(&looks, first, now + 1100 * MS, 0);
	forget_all();
}

static void test_who_asks_each_two_seconds_keeps_the_place(void)
{
	uint64_t now = 100 * SECOND;
	struct console_look *page = ask("page", now);

	run_next(now, now);
	for (unsigned i = 0; i < LOOKS - 1; i++) {
		static const char *const others[] = {"a", "b", "c"};
		CU_ASSERT_PTR_NOT_NULL(ask(others[i], now + SECOND + 500 * MS));
	}
	CU_ASSERT_PTR_NULL(ask("d", now + 2 * SECOND));
	CU_ASSERT_PTR_EQUAL(ask("page", now + 2 * SECOND), page);
	CU_ASSERT_PTR_NOT_EQUAL(ask("d", now + 4 * SECOND), page);
	CU_ASSERT_PTR_EQUAL(ask("page", now + 4 * SECOND), page);
	CU_ASSERT_EQUAL(page->waits_us, now + 2 * SECOND);
	forget_all();
}

static void test_the_last_result_is_told_until_the_next_one_is_there(void)
{
	uint64_t now = 100 * SECOND;
	struct console_look *l = ask("a", now);

	CU_ASSERT_FALSE(look_is_told(&looks, l, now + 10 * SECOND)); /* there is none */
	run_next(7, now);
	CU_ASSERT(look_is_told(&looks, l, now));
	CU_ASSERT_PTR_EQUAL(ask("a", now + 999 * MS), l);
	CU_ASSERT_EQUAL(l->state, LOOK_DONE);
	now += 2 * SECOND;
	ask("a", now);
	CU_ASSERT_EQUAL(l->state, LOOK_WAITS);
	CU_ASSERT_FALSE(look_is_told(&looks, l, now)); /* a new one is there in a moment */
	looks.begin_us = now + 1;
	CU_ASSERT(look_is_told(&looks, l, now)); /* no look may begin yet */
	looks.begin_us = now;
	CU_ASSERT(look_is_told(&looks, l, now + 500 * MS)); /* others' looks are before it */
	l->state = LOOK_RUNS;
	CU_ASSERT_FALSE(look_is_told(&looks, l, now));
	CU_ASSERT(look_is_told(&looks, l, now + 500 * MS)); /* it takes long */
	CU_ASSERT_EQUAL(l->result->entries, 7);
	l->next->entries = 8;
	look_done(&looks, l, now + SECOND, 0);
	CU_ASSERT_EQUAL(l->result->entries, 8);
	forget_all();
}

/* The process's time that looks take is less than half a percent. */
static void test_a_look_that_took_long_is_followed_by_a_long_pause(void)
{
	struct console_look *l = ask("a", 100 * SECOND);

	l->state = LOOK_RUNS;
	look_done(&looks, l, 101 * SECOND, 20 * MS);
	CU_ASSERT(looks.begin_us >= 105 * SECOND);
	ask("a", 103 * SECOND);
	CU_ASSERT_EQUAL(l->state, LOOK_WAITS);
	CU_ASSERT(look_is_told(&looks, l, 103 * SECOND));
	forget_all();
}

static void test_what_nobody_asks_for_is_forgotten_but_not_while_it_runs(void)
{
	struct console_look *a = ask("a", 100 * SECOND), *b = ask("b", 105 * SECOND);

	a->state = LOOK_RUNS;
	CU_ASSERT(looks_forget(&looks, 114 * SECOND));
	CU_ASSERT_EQUAL(b->state, LOOK_WAITS);
	CU_ASSERT(looks_forget(&looks, 115 * SECOND));
	CU_ASSERT_EQUAL(b->state, LOOK_FREE);
	CU_ASSERT_EQUAL(a->state, LOOK_RUNS);
	looks_stop(&looks);
	CU_ASSERT_EQUAL(a->state, LOOK_RUNS);
	look_done(&looks, a, 116 * SECOND, 0);
	CU_ASSERT_FALSE(looks_forget(&looks, 116 * SECOND));
}

static const struct unit_test tests[] = {
	UNIT(test_new_choices_do_not_pass_one_that_waits_already),
	UNIT(test_a_filter_typed_letter_by_letter_finds_a_place),
	UNIT(test_who_asks_each_two_seconds_keeps_the_place),
	UNIT(test_the_last_result_is_told_until_the_next_one_is_there),
	UNIT(test_a_look_that_took_long_is_followed_by_a_long_pause),
	UNIT(test_what_nobody_asks_for_is_forgotten_but_not_while_it_runs),
	UNIT_END,
};
UNIT_MAIN("appliance_console_looks", tests, NULL, NULL)
