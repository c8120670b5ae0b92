/* SPDX-License-Identifier: BSD-3-Clause */
/* The dynamic scheduler moves real threads within their masks; what may come meanwhile. Context switches of reactors.
 */
#include "unittest/thread/fixture.h"
#include "unittest/unit.h"

#include <errno.h>
#include <string.h>

#include "thread/scheduler.h"
#include "thread/thread_internal.h"

#define REACTORS 4
#define CHURN_US 5000
/* Long enough for the collection of measurements to be a small part of what is measured. */
#define PERIOD_US 50000

/* A thread with a poller that is busy on demand. */
static struct worker {
	struct thread *thread;
	struct poller *poller;
	bool busy; /* atomic */
	uint64_t rounds;
} workers[REACTORS];

static int worker_poll(void *ctx)
{
	struct worker *worker = ctx;

	worker->rounds++;
	return __atomic_load_n(&worker->busy, __ATOMIC_RELAXED) ? POLLER_BUSY : POLLER_IDLE;
}

static void worker_begin(void *arg)
{
	struct worker *worker = arg;
	const struct poller_opts opts = {.name = "worker", .fn = worker_poll, .ctx = worker, .fd = -1};

	worker->poller = poller_register(&opts);
}

static void worker_end(void *arg)
{
	poller_unregister(&((struct worker *)arg)->poller);
}

static cpu_set_t all_lcores(void)
{
	cpu_set_t mask;

	CPU_ZERO(&mask);
	for (unsigned i = 0; i < REACTORS; i++) {
		CPU_SET(i, &mask);
	}
	return mask;
}

static void workers_begin(bool busy)
{
	cpu_set_t mask = all_lcores();

	for (unsigned i = 0; i < REACTORS; i++) {
		workers[i] = (struct worker){.thread = thread_create_at("worker", i, &mask), .busy = busy};
		CU_ASSERT_PTR_NOT_NULL_FATAL(workers[i].thread);
		thread_call(workers[i].thread, worker_begin, &workers[i]);
	}
}

static void worker_destroy(struct worker *worker)
{
	thread_call(worker->thread, worker_end, worker);
	CU_ASSERT_EQUAL(thread_destroy(worker->thread), 0);
	worker->thread = NULL;
}

static void workers_end(void)
{
	for (unsigned i = 0; i < REACTORS; i++) {
		if (workers[i].thread != NULL) {
			worker_destroy(&workers[i]);
		}
	}
}

static unsigned lcore_of(struct thread *t)
{
	return t->reactor->lcore; /* without a message to it, which would be work */
}

static unsigned workers_on(unsigned lcore)
{
	unsigned n = 0;

	for (unsigned i = 0; i < REACTORS; i++) {
		n += workers[i].thread != NULL && lcore_of(workers[i].thread) == lcore;
	}
	return n;
}

/* thread_control_wait() asks again after each round of the loop, and this makes rounds. */
static void make_round(void *arg)
{
	thread_timer_start(arg, CHURN_US);
}

static bool wait_for(bool (*done)(void *arg), void *arg)
{
	struct thread_timer t = {.fn = make_round, .arg = &t};

	thread_timer_start(&t, PERIOD_US);
	bool is_done = thread_control_wait(done, arg, WAIT_US);
	thread_timer_stop(&t);
	return is_done;
}

static void schedule(enum scheduler_kind kind, uint64_t period_us)
{
	struct scheduler_opts o;

	scheduler_get_opts(&o);
	o.kind = kind;
	o.period_us = period_us;
	CU_ASSERT_EQUAL(scheduler_set_opts(&o), 0);
}

static void schedule_as_at_first(void)
{
	struct scheduler_opts o;

	scheduler_get_opts(&o);
	CPU_ZERO(&o.isolated);
	o.kind = SCHEDULER_STATIC;
	o.gather_lcore = 0;
	o.limits = (struct balance_limits){20, 80, 95};
	CU_ASSERT_EQUAL(scheduler_set_opts(&o), 0);
}

static bool all_are_on(void *arg)
{
	return workers_on(*(unsigned *)arg) == REACTORS;
}

static bool are_apart(void *arg)
{
	return workers_on(0) < REACTORS;
}

static void test_threads_gather_when_idle_and_part_when_busy(void)
{
	unsigned core = 0;

	workers_begin(false);
	schedule(SCHEDULER_DYNAMIC, PERIOD_US);
	CU_ASSERT(wait_for(all_are_on, &core));
	for (unsigned i = 0; i < REACTORS; i++) {
		__atomic_store_n(&workers[i].busy, true, __ATOMIC_RELAXED);
	}
	CU_ASSERT(wait_for(are_apart, NULL));
	CU_ASSERT(scheduler_moves() >= REACTORS);
	for (unsigned i = 0; i < REACTORS; i++) {
		__atomic_store_n(&workers[i].busy, false, __ATOMIC_RELAXED);
	}
	CU_ASSERT(wait_for(all_are_on, &core));
	schedule_as_at_first();
	CU_ASSERT_EQUAL(workers_on(0), REACTORS); /* they stay where they are */
	workers_end();
}

static void test_threads_gather_where_they_are_told_to(void)
{
	struct scheduler_opts o;
	unsigned core = 2;

	workers_begin(false);
	scheduler_get_opts(&o);
	o.gather_lcore = core;
	CU_ASSERT_EQUAL(scheduler_set_opts(&o), 0);
	schedule(SCHEDULER_DYNAMIC, PERIOD_US);
	CU_ASSERT(wait_for(all_are_on, &core));
	schedule_as_at_first();
	workers_end();
}

static bool is_on_core_0(void *arg)
{
	return lcore_of(((struct worker *)arg)->thread) == 0;
}

/* Masks are the operator's: the scheduler stays within them, and does not change them. */
static void test_no_thread_is_moved_out_of_its_mask_or_from_or_to_an_isolated_core(void)
{
	cpu_set_t only_1 = fixture_mask(1), all = all_lcores();
	struct scheduler_opts o;
	struct thread_stats s;

	workers_begin(false);
	CU_ASSERT_EQUAL(thread_set_cpumask(workers[1].thread, &only_1), 0);
	scheduler_get_opts(&o);
	CPU_SET(2, &o.isolated);
	CU_ASSERT_EQUAL(scheduler_set_opts(&o), 0);
	schedule(SCHEDULER_DYNAMIC, PERIOD_US);
	CU_ASSERT(wait_for(is_on_core_0, &workers[3]));
	CU_ASSERT_EQUAL(lcore_of(workers[1].thread), 1);
	CU_ASSERT_EQUAL(lcore_of(workers[2].thread), 2);
	CU_ASSERT_EQUAL(thread_set_cpumask(workers[1].thread, &all), 0);
	CU_ASSERT(wait_for(is_on_core_0, &workers[1]));
	thread_get_stats(workers[1].thread, &s);
	CU_ASSERT(CPU_EQUAL(&s.cpumask, &all));
	schedule_as_at_first();
	workers_end();
}

static struct thread_timer churn_timer;
static unsigned churns;

/* In the midst of periods, threads end, begin, get other masks, and become busy and idle. */
static void churn(void *arg)
{
	struct worker *worker = &workers[churns % REACTORS];
	cpu_set_t mask = fixture_mask(churns % 3), all = all_lcores();

	switch (churns++ % 5) {
	case 0:
		worker_destroy(worker);
		worker->thread = thread_create_at("worker", churns % REACTORS, &all);
		thread_call(worker->thread, worker_begin, worker);
		break;
	case 1:
		CU_ASSERT_EQUAL(thread_set_cpumask(worker->thread, &mask), 0);
		break;
	case 2:
		CU_ASSERT_EQUAL(thread_set_cpumask(worker->thread, &all), 0);
		break;
	case 3:
		__atomic_store_n(&worker->busy, !__atomic_load_n(&worker->busy, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
		break;
	default:
		schedule(churns % 2 == 0 ? SCHEDULER_STATIC : SCHEDULER_DYNAMIC, CHURN_US);
	}
	thread_timer_start(&churn_timer, CHURN_US);
}

static bool has_churned(void *arg)
{
	return churns >= 60;
}

static void test_threads_that_begin_end_and_change_meanwhile(void)
{
	workers_begin(true);
	schedule(SCHEDULER_DYNAMIC, CHURN_US);
	churns = 0;
	churn_timer = (struct thread_timer){.fn = churn};
	thread_timer_start(&churn_timer, CHURN_US);
	CU_ASSERT(wait_for(has_churned, NULL));
	thread_timer_stop(&churn_timer);
	for (unsigned i = 0; i < REACTORS; i++) {
		struct worker *worker = &workers[i];
		uint64_t rounds = worker->rounds, deadline = env_ticks() + env_us_to_ticks(WAIT_US);
		while (worker->rounds == rounds && env_ticks() < deadline) {
			thread_synchronize();
		}
		CU_ASSERT(worker->rounds > rounds);
	}
	schedule_as_at_first();
	workers_end();
}

/* The timer of a period stops with the room; threads of the next start have the defaults. */
static void test_the_room_stops_while_the_scheduler_is_dynamic(void)
{
	const struct thread_lib_opts lib = {.idle_spell_us = 50};
	struct scheduler_opts o;

	schedule(SCHEDULER_DYNAMIC, CHURN_US);
	thread_monitor_switches(true);
	thread_lib_stop();
	CU_ASSERT_EQUAL_FATAL(thread_lib_start(&lib), 0);
	scheduler_get_opts(&o);
	CU_ASSERT_EQUAL(o.kind, SCHEDULER_STATIC);
	CU_ASSERT_EQUAL(o.period_us, SCHEDULER_PERIOD_DEFAULT_US);
	CU_ASSERT_FALSE(thread_monitors_switches());
}

static bool is_asleep(void *arg)
{
	struct reactor_progress p;

	return reactor_get_progress(3, &p) == 0 && p.sleeping;
}

static bool is_awake(void *arg)
{
	return !is_asleep(arg);
}

static void test_a_reactor_without_threads_sleeps_though_reactors_poll(void)
{
	const struct thread_lib_opts busy = {.poll_mode = POLL_MODE_BUSY}, lib = {.idle_spell_us = 50};

	thread_lib_stop();
	CU_ASSERT_EQUAL_FATAL(thread_lib_start(&busy), 0);
	/* While nothing is scheduled, busy reactors poll, as operators want (test_sleep.c). */
	schedule(SCHEDULER_DYNAMIC, SCHEDULER_PERIOD_MAX_US);
	CU_ASSERT(wait_for(is_asleep, NULL));
	struct thread *t = fixture_thread("worker", 3);
	CU_ASSERT_EQUAL(lcore_of(t), 3);
	CU_ASSERT_EQUAL(thread_destroy(t), 0);
	CU_ASSERT(wait_for(is_asleep, NULL));
	schedule(SCHEDULER_STATIC, SCHEDULER_PERIOD_MAX_US);
	CU_ASSERT(wait_for(is_awake, NULL));
	thread_lib_stop();
	CU_ASSERT_EQUAL_FATAL(thread_lib_start(&lib), 0);
}

static void check_opts_refused(const struct scheduler_opts *wrong)
{
	struct scheduler_opts before, after;

	scheduler_get_opts(&before);
	CU_ASSERT_EQUAL(scheduler_set_opts(wrong), -EINVAL);
	scheduler_get_opts(&after);
	CU_ASSERT_EQUAL(memcmp(&before, &after, sizeof(before)), 0);
}

static void test_options_that_cannot_be_are_refused(void)
{
	struct scheduler_opts good, o;

	scheduler_get_opts(&good);
	o = good, o.limits.load_limit = 101;
	check_opts_refused(&o);
	o = good, o.limits.core_limit = 101;
	check_opts_refused(&o);
	o = good, o.limits.core_busy = 101;
	check_opts_refused(&o);
	o = good, o.period_us = SCHEDULER_PERIOD_MIN_US - 1;
	check_opts_refused(&o);
	o = good, o.period_us = SCHEDULER_PERIOD_MAX_US + 1;
	check_opts_refused(&o);
	o = good, o.gather_lcore = REACTORS;
	check_opts_refused(&o);
	o = good, o.gather_lcore = UINT32_MAX;
	check_opts_refused(&o);
	o = good;
	CPU_SET(0, &o.isolated); /* where threads gather */
	check_opts_refused(&o);
	o = good;
	CPU_SET(REACTORS, &o.isolated);
	check_opts_refused(&o);
}

static char heard[256]; /* the last line of context switches */

static void hear_switches(enum log_level level, const char *file, int line, const char *text)
{
	if (strstr(text, "voluntary context switches") != NULL) {
		snprintf(heard, sizeof(heard), "%s", text);
	}
}

static bool has_heard(void *arg)
{
	return heard[0] != '\0';
}

static void test_context_switches_of_reactors_are_logged(void)
{
	unsigned lcore;
	unsigned long long voluntary, involuntary;

	heard[0] = '\0';
	log_set_tap(hear_switches);
	log_set_print_level(LOG_LEVEL_NOTICE);
	CU_ASSERT_FALSE(thread_monitors_switches());
	thread_monitor_switches(true);
	thread_monitor_switches(true);
	CU_ASSERT(thread_monitors_switches());
	workers_begin(false); /* reactors yield between rounds */
	CU_ASSERT(wait_for(has_heard, NULL));
	thread_monitor_switches(false);
	log_set_print_level(LOG_LEVEL_DISABLED);
	log_set_tap(NULL);
	CU_ASSERT_FALSE(thread_monitors_switches());
	CU_ASSERT_EQUAL(sscanf(heard, "Reactor %u: %llu voluntary context switches and %llu involuntary", &lcore,
			       &voluntary, &involuntary),
			3);
	CU_ASSERT(lcore < REACTORS && voluntary + involuntary > 0);
	workers_end();
}

static const struct unit_test tests[] = {
	UNIT(test_threads_gather_when_idle_and_part_when_busy),
	UNIT(test_threads_gather_where_they_are_told_to),
	UNIT(test_no_thread_is_moved_out_of_its_mask_or_from_or_to_an_isolated_core),
	UNIT(test_threads_that_begin_end_and_change_meanwhile),
	UNIT(test_the_room_stops_while_the_scheduler_is_dynamic),
	UNIT(test_a_reactor_without_threads_sleeps_though_reactors_poll),
	UNIT(test_options_that_cannot_be_are_refused),
	UNIT(test_context_switches_of_reactors_are_logged),
	UNIT_END,
};

UNIT_MAIN("scheduler", tests, fixture_start, fixture_stop)
