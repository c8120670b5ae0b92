/* SPDX-License-Identifier: BSD-3-Clause */
/* The decision of the dynamic scheduler, and where a sequence of decisions ends. */
#include "unittest/unit.h"
#include "util/compiler.h"

#include <stdlib.h>
#include <string.h>

#include "thread/balance.h"

#define CORES_MAX   8
#define THREADS_MAX 24
#define PERIOD      1000000U /* ticks */
#define ROUNDS_MAX  200
/* What a thread on a full core is taken to need grows for so many periods at most. */
#define QUIET_ROUNDS 24

static const struct balance_limits usual = {.load_limit = 20, .core_limit = 80, .core_busy = 95};

/* Cores, and threads that need a part of a core each. */
static struct world {
	struct balance_limits limits;
	struct balance_core cores[CORES_MAX];
	struct balance_thread threads[THREADS_MAX];
	double needs[THREADS_MAX];
	unsigned num_cores, num_threads, gather;
	double noise; /* part of each measurement that is random */
	unsigned seed;
	bool in_proportion; /* how a full core is shared: in proportion to the needs; or evenly, as far as needed */
} w;

static void world_begin(unsigned num_cores)
{
	memset(&w, 0, sizeof(w));
	w.limits = usual;
	w.num_cores = num_cores;
	for (unsigned i = 0; i < num_cores; i++) {
		w.cores[i].lcore = i;
	}
}

static struct balance_thread *world_add(unsigned core, double needs)
{
	struct balance_thread *t = &w.threads[w.num_threads];

	memset(&t->mask, 0xff, sizeof(t->mask));
	t->from = core;
	w.needs[w.num_threads++] = needs;
	return t;
}

static void world_add_pinned(unsigned core, double needs)
{
	struct balance_thread *t = world_add(core, needs);

	CPU_ZERO(&t->mask);
	CPU_SET(w.cores[core].lcore, &t->mask);
}

static double needed_of(unsigned core)
{
	double sum = 0;

	for (unsigned i = 0; i < w.num_threads; i++) {
		sum += w.threads[i].from == core ? w.needs[i] : 0;
	}
	return sum;
}

/* What each thread gets at most, so that together they get one core. */
static double even_part(unsigned core)
{
	double low = 0, high = 1;

	for (unsigned i = 0; i < 40; i++) {
		double middle = (low + high) / 2, sum = 0;
		for (unsigned j = 0; j < w.num_threads; j++) {
			if (w.threads[j].from == core) {
				sum += w.needs[j] < middle ? w.needs[j] : middle;
			}
		}
		*(sum < 1 ? &low : &high) = middle;
	}
	return low;
}

static uint64_t measured(double part)
{
	double error = w.noise * (rand_r(&w.seed) % 2001 - 1000) / 1000;

	return (uint64_t)(PERIOD * part * (1 + error));
}

/* Lets a core run for a period. */
static void core_run(unsigned core)
{
	double needed = needed_of(core), part = needed > 1 ? even_part(core) : 1;
	unsigned n = 0;

	for (unsigned i = 0; i < w.num_threads; i++) {
		n += w.threads[i].from == core;
	}
	for (unsigned i = 0; i < w.num_threads; i++) {
		struct balance_thread *t = &w.threads[i];
		if (t->from == core) {
			double gets = needed <= 1 ? w.needs[i] : w.in_proportion ? w.needs[i] / needed : part;
			t->busy_ticks = measured(gets < w.needs[i] ? gets : w.needs[i]);
			t->idle_ticks = needed < 1 ? (uint64_t)(PERIOD * (1 - needed) / n) : 0;
		}
	}
}

static unsigned world_decide(void)
{
	for (unsigned i = 0; i < w.num_cores; i++) {
		core_run(i);
	}
	return balance(&w.limits, w.cores, w.num_cores, w.gather, w.threads, w.num_threads);
}

/* One period: returns how many threads moved. */
static unsigned world_step(void)
{
	unsigned moves = world_decide();

	for (unsigned i = 0; i < w.num_threads; i++) {
		w.threads[i].from = w.threads[i].to;
	}
	return moves;
}

/* Runs until nothing moves any more. */
static bool world_settle(void)
{
	unsigned quiet = 0;

	for (unsigned round = 0; round < ROUNDS_MAX && quiet < QUIET_ROUNDS; round++) {
		quiet = world_step() == 0 ? quiet + 1 : 0;
	}
	return quiet == QUIET_ROUNDS;
}

static unsigned threads_on(unsigned core)
{
	unsigned n = 0;

	for (unsigned i = 0; i < w.num_threads; i++) {
		n += w.threads[i].from == core;
	}
	return n;
}

static void test_light_threads_gather_and_leave_the_other_cores_empty(void)
{
	world_begin(4);
	w.gather = 2;
	for (unsigned i = 0; i < 4; i++) {
		world_add(i, i == 3 ? 0 : 0.1);
	}
	CU_ASSERT_EQUAL(world_step(), 3);
	CU_ASSERT_EQUAL(threads_on(2), 4);
	CU_ASSERT_EQUAL(world_step(), 0);
}

static void test_light_threads_gather_as_far_as_the_limit_of_the_core(void)
{
	world_begin(2);
	for (unsigned i = 0; i < 10; i++) {
		world_add(1, 0.09);
	}
	CU_ASSERT_EQUAL(world_step(), 8);
	CU_ASSERT_EQUAL(threads_on(0), 8); /* 72 %; one more would be 81 % */
	CU_ASSERT_EQUAL(world_step(), 0);
}

static void test_busy_threads_leave_a_full_core_for_where_there_is_room(void)
{
	world_begin(4);
	for (unsigned i = 0; i < 4; i++) {
		world_add(0, 1);
	}
	CU_ASSERT(world_settle());
	for (unsigned i = 0; i < 4; i++) {
		CU_ASSERT_EQUAL(threads_on(i), 1);
	}
}

static void test_busy_threads_share_cores_evenly_if_there_is_room_nowhere(void)
{
	world_begin(3);
	for (unsigned i = 0; i < 9; i++) {
		world_add(0, 1);
	}
	CU_ASSERT(world_settle());
	for (unsigned i = 0; i < 3; i++) {
		CU_ASSERT_EQUAL(threads_on(i), 3);
	}
}

/* They grow slowly first, so that what is known of them makes up nearly the whole core, and no more. */
static void test_threads_that_have_grown_on_a_full_core_leave_it(void)
{
	static const double loads[] = {0.1, 0.155, 0.5};

	world_begin(4);
	for (unsigned i = 0; i < 6; i++) {
		world_add(0, loads[0]);
	}
	for (unsigned k = 0; k < ARRAY_SIZE(loads); k++) {
		for (unsigned i = 0; i < 6; i++) {
			w.needs[i] = loads[k];
		}
		CU_ASSERT(world_settle());
	}
	CU_ASSERT_TRUE(threads_on(0) <= 2);
}

static void test_a_thread_that_fills_a_core_alone_stays(void)
{
	world_begin(2);
	world_add(0, 1);
	CU_ASSERT_EQUAL(world_step(), 0);
	world_add(0, 0); /* does nothing, so it is no company */
	CU_ASSERT_EQUAL(world_step(), 0);
}

static void test_of_a_full_core_for_light_threads_the_heaviest_leaves_elsewhere_the_lightest(void)
{
	for (unsigned core = 0; core < 2; core++) {
		world_begin(2);
		world_add(core, 0.7);
		world_add(core, 0.3);
		CU_ASSERT_EQUAL(world_step(), 1);
		CU_ASSERT_EQUAL(w.threads[0].from, 1);
		CU_ASSERT_EQUAL(w.threads[1].from, 0);
	}
}

static void test_a_core_that_is_not_full_keeps_its_busy_threads(void)
{
	world_begin(2);
	world_add(0, 0.5);
	world_add(0, 0.44);
	CU_ASSERT_EQUAL(world_step(), 0);
	world_add(0, 0.03);
	CU_ASSERT_EQUAL(world_step(), 1);
}

static void test_no_thread_leaves_its_mask(void)
{
	world_begin(3);
	for (unsigned i = 0; i < 3; i++) {
		world_add_pinned(1, i == 0 ? 0 : 1);
	}
	CU_ASSERT_EQUAL(world_step(), 0);
	CPU_SET(2, &w.threads[0].mask); /* light, and may not go to core 0 */
	CPU_SET(2, &w.threads[2].mask);
	CU_ASSERT_EQUAL(world_step(), 1);
	CU_ASSERT_EQUAL(w.threads[2].from, 2);
}

static void test_masks_name_lcores_and_not_indexes(void)
{
	world_begin(2);
	w.cores[0].lcore = 5;
	w.cores[1].lcore = 9;
	CPU_ZERO(&world_add(1, 0)->mask);
	CU_ASSERT_EQUAL(world_step(), 0);
	CPU_SET(0, &w.threads[0].mask);
	CU_ASSERT_EQUAL(world_step(), 0);
	CPU_SET(5, &w.threads[0].mask);
	CU_ASSERT_EQUAL(world_step(), 1);
}

static void test_an_isolated_core_keeps_its_threads_and_gets_none(void)
{
	world_begin(3);
	w.cores[1].isolated = w.cores[2].isolated = true;
	world_add(1, 0);
	world_add(1, 1);
	world_add(1, 1);
	world_add(0, 1);
	world_add(0, 1);
	CU_ASSERT_EQUAL(world_step(), 0);
	w.cores[2].isolated = false;
	CU_ASSERT_EQUAL(world_step(), 1);
	CU_ASSERT_EQUAL(threads_on(1), 3);
	CU_ASSERT_EQUAL(threads_on(2), 1);
}

static void test_threads_without_measurements_are_light(void)
{
	world_begin(2);
	world_add(1, 1);
	CU_ASSERT_EQUAL(balance(&usual, w.cores, 2, 0, w.threads, 1), 1);
	CU_ASSERT(w.threads[0].light);
	CU_ASSERT_EQUAL(w.cores[0].load, 0);
	CU_ASSERT_EQUAL(balance(&usual, w.cores, 2, 0, w.threads, 0), 0);
}

static void test_large_numbers_of_ticks_do_not_overflow(void)
{
	world_begin(2);
	struct balance_thread *t = world_add(1, 0);
	t->busy_ticks = t->idle_ticks = UINT64_MAX / 2;
	CU_ASSERT_EQUAL(balance(&usual, w.cores, 2, 0, w.threads, 1), 0);
	CU_ASSERT(w.cores[1].load >= 4999 && w.cores[1].load <= 5001);
	t->busy_ticks = UINT64_MAX; /* more than there can be */
	CU_ASSERT_EQUAL(balance(&usual, w.cores, 2, 0, w.threads, 1), 0);
	CU_ASSERT_EQUAL(w.cores[1].busy_ticks, UINT64_MAX);
	CU_ASSERT_EQUAL(w.threads[0].need, 10000);
}

static void test_extreme_limits_are_taken_as_they_are(void)
{
	world_begin(2);
	w.limits = (struct balance_limits){0, 0, 0};
	world_add(1, 0.5);
	world_add(1, 0.3);
	CU_ASSERT_EQUAL(world_step(), 1); /* nothing is light, there is room nowhere, and each core is full */
	CU_ASSERT_EQUAL(world_step(), 0);
	w.limits = (struct balance_limits){100, 100, 100};
	CU_ASSERT_EQUAL(world_step(), 1); /* both are light, and together take 80 % */
	CU_ASSERT_EQUAL(threads_on(0), 2);
	CU_ASSERT_EQUAL(world_step(), 0);
}

static unsigned random_below(unsigned *seed, unsigned n)
{
	return (unsigned)rand_r(seed) % n;
}

static double random_need(unsigned *seed)
{
	switch (random_below(seed, 4)) {
	case 0:
		return 0;
	case 1:
		return random_below(seed, 250) / 1000.0;
	case 2:
		return random_below(seed, 1000) / 1000.0;
	default:
		return 1;
	}
}

static void world_make_random(unsigned *seed)
{
	world_begin(1 + random_below(seed, CORES_MAX));
	w.in_proportion = random_below(seed, 2) != 0;
	for (unsigned i = 0; i < w.num_cores; i++) {
		w.cores[i].isolated = i > 0 && random_below(seed, 8) == 0;
	}
	if (random_below(seed, 2) != 0) {
		w.limits = (struct balance_limits){(uint8_t)random_below(seed, 101), (uint8_t)random_below(seed, 101),
						   (uint8_t)random_below(seed, 101)};
	}
	for (unsigned i = random_below(seed, THREADS_MAX + 1); i > 0; i--) {
		unsigned core = random_below(seed, w.num_cores);
		struct balance_thread *t = world_add(core, random_need(seed));
		for (unsigned j = 0; j < w.num_cores; j++) {
			if (random_below(seed, 4) == 0 && j != core) {
				CPU_CLR(j, &t->mask);
			}
		}
	}
}

static bool all_are_allowed(void)
{
	for (unsigned i = 0; i < w.num_threads; i++) {
		const struct balance_thread *t = &w.threads[i];
		if (t->to >= w.num_cores || !CPU_ISSET(w.cores[t->to].lcore, &t->mask) ||
		    (t->to != t->from && (w.cores[t->to].isolated || w.cores[t->from].isolated))) {
			return false;
		}
	}
	return true;
}

static void test_constant_loads_end_in_a_state_without_moves(void)
{
	for (unsigned round = 0; round < 20000; round += unit_stride()) {
		unsigned seed = round;
		world_make_random(&seed);
		world_decide();
		if (!all_are_allowed()) {
			CU_FAIL("a thread where it may not be");
			printf("seed %u\n", round);
			return;
		}
		if (!world_settle()) {
			CU_FAIL("the threads never come to rest");
			printf("seed %u\n", round);
			return;
		}
	}
}

/* Measurements differ by up to a fiftieth. */
static void test_loads_that_waver_end_in_a_state_without_moves(void)
{
	for (unsigned round = 0; round < 5000; round += unit_stride()) {
		unsigned seed = round;
		world_make_random(&seed);
		w.seed = seed;
		w.noise = 0.02;
		if (!world_settle()) {
			CU_FAIL("the threads never come to rest");
			printf("seed %u\n", round);
			return;
		}
	}
}

static void test_a_thread_that_needs_more_leaves_and_comes_back_when_it_needs_less(void)
{
	world_begin(2);
	for (unsigned i = 0; i < 4; i++) {
		world_add(0, 0.1);
	}
	CU_ASSERT(world_settle());
	w.needs[2] = 1;
	CU_ASSERT(world_settle());
	CU_ASSERT_EQUAL(w.threads[2].from, 1);
	CU_ASSERT_EQUAL(threads_on(0), 3);
	w.needs[2] = 0.1;
	CU_ASSERT(world_settle());
	CU_ASSERT_EQUAL(threads_on(0), 4);
}

static const struct unit_test tests[] = {
	UNIT(test_light_threads_gather_and_leave_the_other_cores_empty),
	UNIT(test_light_threads_gather_as_far_as_the_limit_of_the_core),
	UNIT(test_busy_threads_leave_a_full_core_for_where_there_is_room),
	UNIT(test_busy_threads_share_cores_evenly_if_there_is_room_nowhere),
	UNIT(test_threads_that_have_grown_on_a_full_core_leave_it),
	UNIT(test_a_thread_that_fills_a_core_alone_stays),
	UNIT(test_of_a_full_core_for_light_threads_the_heaviest_leaves_elsewhere_the_lightest),
	UNIT(test_a_core_that_is_not_full_keeps_its_busy_threads),
	UNIT(test_no_thread_leaves_its_mask),
	UNIT(test_masks_name_lcores_and_not_indexes),
	UNIT(test_an_isolated_core_keeps_its_threads_and_gets_none),
	UNIT(test_threads_without_measurements_are_light),
	UNIT(test_large_numbers_of_ticks_do_not_overflow),
	UNIT(test_extreme_limits_are_taken_as_they_are),
	UNIT(test_constant_loads_end_in_a_state_without_moves),
	UNIT(test_loads_that_waver_end_in_a_state_without_moves),
	UNIT(test_a_thread_that_needs_more_leaves_and_comes_back_when_it_needs_less),
	UNIT_END,
};

UNIT_MAIN("balance", tests, NULL, NULL)
