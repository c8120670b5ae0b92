/* SPDX-License-Identifier: BSD-3-Clause */
/* Sleeping reactors: that they sleep, and that each kind of event wakes them, at every moment of falling asleep. */
#include "unittest/unit.h"
#include "unittest/thread/fixture.h"
#include "thread/thread_internal.h"

#include <errno.h>
#include <pthread.h>
#include <rte_pause.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#define HAMMER_SENDS 50000
#define HAMMER_FDS   5000

static struct thread *workers[2];

static int setup(void)
{
	int rc = fixture_start();

	if (rc == 0) {
		workers[0] = fixture_thread("worker 0", 1);
		workers[1] = fixture_thread("worker 1", 2);
	}
	return rc;
}

static int teardown(void)
{
	int rc = thread_destroy(workers[0]) | thread_destroy(workers[1]);

	fixture_stop();
	return rc;
}

/* A reactor that is asked is awake: its count of sleeps says what it did before. */
static bool sleeps_again(unsigned lcore)
{
	uint64_t deadline = env_ticks() + env_us_to_ticks(WAIT_US);
	struct reactor_stats s;
	uint64_t before;

	reactor_get_stats(lcore, &s);
	before = s.sleeps;
	while (s.sleeps <= before + 3 && env_ticks() < deadline) {
		uint64_t until = env_ticks() + env_us_to_ticks(200);
		while (env_ticks() < until) {
			sched_yield();
		}
		reactor_get_stats(lcore, &s);
	}
	return s.sleeps > before + 3;
}

static uint64_t cpu_us(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 +
	       (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static bool never(void *arg)
{
	return false;
}

static void test_idle_reactors_sleep(void)
{
	unsigned lcore;

	ENV_FOREACH_LCORE (lcore) {
		CU_ASSERT(sleeps_again(lcore));
	}
	uint64_t before = cpu_us();
	thread_control_wait(never, NULL, 200000);
	printf("NOTE idle for 200 ms with %u reactors: %u us of CPU\n", env_lcore_count(),
	       (unsigned)(cpu_us() - before));
}

static int poll_idle(void *ctx)
{
	return POLLER_IDLE;
}

static struct poller *poller;

static void poller_begin(void *arg)
{
	poller = poller_register(&(struct poller_opts){.name = "needs polling", .fn = poll_idle, .fd = -1});
}

static void poller_end(void *arg)
{
	poller_unregister(&poller);
}

static void test_poller_without_descriptor_keeps_its_reactor_awake(void)
{
	struct reactor_stats s, later;

	thread_call(workers[0], poller_begin, NULL);
	reactor_get_stats(1, &s);
	thread_control_wait(never, NULL, 5000);
	reactor_get_stats(1, &later);
	CU_ASSERT_EQUAL(later.sleeps, s.sleeps);
	CU_ASSERT_FALSE(later.sleeping);
	thread_call(workers[0], poller_end, NULL);
	CU_ASSERT(sleeps_again(1));
}

/* Back and forth between two workers, each time after a pause of random length around the idle spell, so that messages
 * meet the other in every stage of falling asleep. A lost wake-up stops the game for ever. */
static struct {
	uint64_t sends;
	unsigned seed;
} hammer;

static bool hammer_over(void *arg)
{
	return __atomic_load_n(&hammer.sends, __ATOMIC_ACQUIRE) >= HAMMER_SENDS;
}

static void hammer_ended(void *arg)
{
}

static void hammer_receive(void *arg)
{
	uintptr_t me = (uintptr_t)arg;

	if (__atomic_add_fetch(&hammer.sends, 1, __ATOMIC_ACQ_REL) >= HAMMER_SENDS) {
		thread_send(thread_control(), hammer_ended, NULL);
		return;
	}
	unsigned pause_us = (unsigned)rand_r(&hammer.seed) % 100;
	if (pause_us > 40) {
		/* The other's spell is at most 50 us from its last message: it is about to sleep about now. */
		uint64_t until = env_ticks() + env_us_to_ticks(pause_us);
		while (env_ticks() < until) {
			rte_pause();
		}
	}
	thread_send(workers[!me], hammer_receive, (void *)(uintptr_t)!me);
}

static void test_no_message_is_lost_between_sleeping_threads(void)
{
	struct reactor_stats before, after;

	hammer.sends = 0;
	hammer.seed = 1;
	reactor_get_stats(1, &before);
	thread_send(workers[0], hammer_receive, (void *)0);
	CU_ASSERT(thread_control_wait(hammer_over, NULL, 3 * WAIT_US));
	reactor_get_stats(1, &after);
	CU_ASSERT_EQUAL(hammer.sends, HAMMER_SENDS);
	CU_ASSERT(after.sleeps > before.sleeps);
}

/* The same for descriptors that wake pollers, with an arm function that may find work. */
static struct {
	int fd;
	struct poller *poller;
	uint64_t found, armed, arm_found;
} source;

static int source_poll(void *ctx)
{
	uint64_t value;

	if (read(source.fd, &value, sizeof(value)) != sizeof(value)) {
		return POLLER_IDLE;
	}
	__atomic_fetch_add(&source.found, value, __ATOMIC_RELEASE);
	return POLLER_BUSY;
}

static bool source_arm(void *ctx)
{
	source.armed++;
	bool found = source_poll(NULL) == POLLER_BUSY;
	source.arm_found += found;
	return found;
}

static void source_begin(void *arg)
{
	source.poller = poller_register(
		&(struct poller_opts){.name = "source", .fn = source_poll, .fd = source.fd, .arm = source_arm});
}

static void source_end(void *arg)
{
	poller_unregister(&source.poller);
}

static void source_pause(void *arg)
{
	poller_pause(source.poller);
}

static void source_resume(void *arg)
{
	poller_resume(source.poller);
}

static bool source_found(uint64_t value)
{
	uint64_t deadline = env_ticks() + env_us_to_ticks(WAIT_US);

	while (__atomic_load_n(&source.found, __ATOMIC_ACQUIRE) < value) {
		if (env_ticks() > deadline) {
			return false;
		}
		sched_yield();
	}
	return true;
}

static void put(int fd)
{
	uint64_t one = 1;

	CU_ASSERT_EQUAL(write(fd, &one, sizeof(one)), sizeof(one));
}

static void test_descriptor_of_a_poller_wakes_its_reactor(void)
{
	unsigned seed = 3;
	uint64_t n;

	memset(&source, 0, sizeof(source));
	source.fd = eventfd(0, EFD_NONBLOCK);
	thread_call(workers[0], source_begin, NULL);
	for (n = 1; n <= HAMMER_FDS; n++) {
		uint64_t until = env_ticks() + env_us_to_ticks((unsigned)rand_r(&seed) % 100);
		while (env_ticks() < until) {
			rte_pause();
		}
		put(source.fd);
		if (!source_found(n)) {
			break;
		}
	}
	CU_ASSERT_EQUAL(n, HAMMER_FDS + 1);
	CU_ASSERT(sleeps_again(1));
	thread_call(workers[0], source_pause, NULL);
	put(source.fd);
	/* Readable, but nobody cares: it can sleep. */
	CU_ASSERT(sleeps_again(1));
	CU_ASSERT_EQUAL(source.found, HAMMER_FDS);
	thread_call(workers[0], source_resume, NULL);
	CU_ASSERT(source_found(HAMMER_FDS + 1));
	thread_call(workers[0], source_end, NULL);
	CU_ASSERT(source.armed > 0);
	close(source.fd);
}

static struct {
	struct thread_timer timer;
	uint64_t late_ticks_max;
	unsigned runs;
} clockwork;

static void clockwork_ended(void *arg)
{
	*(bool *)arg = true;
}

static bool clockwork_done;

static void clockwork_fire(void *arg)
{
	if (++clockwork.runs == 100) {
		thread_send(thread_control(), clockwork_ended, &clockwork_done);
		return;
	}
	thread_timer_start(&clockwork.timer, 3000);
}

static void clockwork_begin(void *arg)
{
	clockwork.timer = (struct thread_timer){.fn = clockwork_fire};
	clockwork.runs = 0;
	thread_timer_start(&clockwork.timer, 3000);
}

static bool is_true(void *arg)
{
	return *(bool *)arg;
}

/* It sleeps in between, rather than polling through: a timer alone does not keep it awake. */
static void expect_sleep_between_timers(void)
{
	struct reactor_stats before, after;

	clockwork_done = false;
	reactor_get_stats(2, &before);
	thread_call(workers[1], clockwork_begin, NULL);
	CU_ASSERT(thread_control_wait(is_true, &clockwork_done, WAIT_US));
	reactor_get_stats(2, &after);
	CU_ASSERT_EQUAL(clockwork.runs, 100);
	CU_ASSERT(after.sleeps - before.sleeps >= 50);
}

static void test_timers_wake_sleeping_reactors(void)
{
	expect_sleep_between_timers();
}

static void *foreign_sender(void *arg)
{
	thread_send(thread_control(), clockwork_ended, arg);
	return NULL;
}

static void test_control_thread_is_woken_by_any_thread(void)
{
	for (int i = 0; i < 200; i++) {
		bool told = false;
		pthread_t t;
		CU_ASSERT_EQUAL_FATAL(pthread_create(&t, NULL, foreign_sender, &told), 0);
		CU_ASSERT(thread_control_wait(is_true, &told, WAIT_US));
		pthread_join(t, NULL);
	}
}

static void test_exit_does_not_end_a_wait(void)
{
	thread_control_exit();
	CU_ASSERT_FALSE(thread_control_wait(never, NULL, 1000));
	thread_control_run(); /* here it counts */
}

static void destroy_workers(void)
{
	CU_ASSERT_EQUAL(thread_destroy(workers[0]), 0);
	CU_ASSERT_EQUAL(thread_destroy(workers[1]), 0);
}

static void start_with_spell(uint32_t us)
{
	const struct thread_lib_opts opts = {.poll_mode = POLL_MODE_ADAPTIVE, .idle_spell_us = us};

	CU_ASSERT_EQUAL_FATAL(thread_lib_start(&opts), 0);
	workers[0] = fixture_thread("worker 0", 1);
	workers[1] = fixture_thread("worker 1", 2);
}

static void restart_with_spell(uint32_t us)
{
	destroy_workers();
	thread_lib_stop();
	start_with_spell(us);
}

/* The spell is longer than the timer's period: a reactor that began one at each timer would never sleep. */
static void test_a_timer_begins_no_idle_spell(void)
{
	restart_with_spell(20000);
	expect_sleep_between_timers();
	restart_with_spell(50);
}

static bool last_has_run;

static void run_last(struct thread_msg *msg)
{
	last_has_run = true;
}

static void post_last(void *arg)
{
	thread_post(thread_control(), arg, run_last);
}

static void test_stop_runs_what_the_control_thread_was_sent(void)
{
	static struct thread_msg msg;

	thread_call(workers[0], post_last, &msg);
	destroy_workers();
	CU_ASSERT_FALSE(last_has_run);
	thread_lib_stop();
	CU_ASSERT_TRUE(last_has_run);
	start_with_spell(50);
}

static void come_and_go(void *arg)
{
	int fd = eventfd(0, EFD_NONBLOCK);
	struct poller *p = poller_register(&(struct poller_opts){.name = "short", .fn = poll_idle, .fd = fd});

	poller_unregister(&p);
	close(fd);
	*(bool *)arg = TAILQ_EMPTY(&reactor_self->dead);
}

/* Nothing but the removal itself would free it: no descriptor is served on a reactor that polls for pollers only. */
static void test_a_descriptor_that_goes_while_none_is_served_leaves_nothing(void)
{
	bool nothing_left = false;

	thread_call(workers[0], poller_begin, NULL); /* keeps it awake */
	thread_call(workers[0], come_and_go, &nothing_left);
	CU_ASSERT(nothing_left);
	thread_call(workers[0], poller_end, NULL);
}

/* Stops everything and starts it again in the other mode, and back. */
static void test_busy_reactors_never_sleep(void)
{
	struct thread_lib_opts opts = {.poll_mode = POLL_MODE_BUSY};
	struct reactor_stats s;
	unsigned lcore, runs = 0;

	destroy_workers();
	thread_lib_stop();
	CU_ASSERT_EQUAL_FATAL(thread_lib_start(&opts), 0);
	thread_control_wait(never, NULL, 20000);
	ENV_FOREACH_LCORE (lcore) {
		struct thread *t = fixture_thread("busy", lcore);
		for (int i = 0; i < 100; i++) {
			bool ran = false;
			thread_call(t, clockwork_ended, &ran);
			runs += ran;
		}
		CU_ASSERT_EQUAL(thread_destroy(t), 0);
		CU_ASSERT_EQUAL(reactor_get_stats(lcore, &s), 0);
		CU_ASSERT_EQUAL(s.sleeps, 0);
	}
	CU_ASSERT_EQUAL(runs, 400);
	thread_lib_stop();
	start_with_spell(50);
}

static uint64_t spell_now;

static void look_at_spell(void *arg)
{
	spell_now = reactor_self->spell.ticks;
}

/* Sends messages, one each pause_us, until the spell of their reactor is within these limits. */
static bool spell_becomes(uint64_t least, uint64_t most, uint64_t pause_us)
{
	uint64_t deadline = env_ticks() + env_us_to_ticks(WAIT_US);
	bool does;

	do {
		thread_control_wait(never, NULL, pause_us);
		thread_call(workers[0], look_at_spell, NULL);
		does = spell_now >= least && spell_now <= most;
	} while (!does && env_ticks() < deadline);
	return does;
}

/* How long a machine's other work delays these messages does not matter: those whose time is right decide in the end.
 */
static void test_spell_follows_the_waits_of_its_reactor(void)
{
	const uint64_t longest = env_us_to_ticks(200000), least = idle_spell_min(longest);

	restart_with_spell(200000);
	thread_call(workers[0], look_at_spell, NULL);
	CU_ASSERT_EQUAL(spell_now, longest);
	CU_ASSERT(spell_becomes(least, least, 450000));
	CU_ASSERT(spell_becomes(4 * least, longest, 60000));
	restart_with_spell(50);
}

static const struct unit_test tests[] = {
	UNIT(test_idle_reactors_sleep),
	UNIT(test_poller_without_descriptor_keeps_its_reactor_awake),
	UNIT(test_no_message_is_lost_between_sleeping_threads),
	UNIT(test_descriptor_of_a_poller_wakes_its_reactor),
	UNIT(test_timers_wake_sleeping_reactors),
	UNIT(test_control_thread_is_woken_by_any_thread),
	UNIT(test_exit_does_not_end_a_wait),
	UNIT(test_a_timer_begins_no_idle_spell),
	UNIT(test_stop_runs_what_the_control_thread_was_sent),
	UNIT(test_a_descriptor_that_goes_while_none_is_served_leaves_nothing),
	UNIT(test_busy_reactors_never_sleep),
	UNIT(test_spell_follows_the_waits_of_its_reactor),
	UNIT_END,
};

UNIT_MAIN("sleep", tests, setup, teardown)
