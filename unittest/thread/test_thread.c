/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads, messages, calls, moving and destroying. */
#include "unittest/unit.h"
#include "unittest/thread/fixture.h"
#include "trace/trace.h"

#include <errno.h>
#include <pthread.h>

#define NUMBERS 20000

static struct {
	struct thread *receiver;
	uint64_t count[3];
	bool wrong;
} order;

/* The sender is in the upper bits, the number in the lower ones. */
static void receive_number(void *arg)
{
	uint64_t value = (uint64_t)(uintptr_t)arg, sender = value >> 32, number = value & UINT32_MAX;

	order.wrong |= thread_current() != order.receiver || order.count[sender] != number;
	order.count[sender]++;
}

static void send_numbers(void *arg)
{
	uint64_t sender = (uint64_t)(uintptr_t)arg;

	for (uint64_t n = 0; n < NUMBERS; n++) {
		while (thread_send(order.receiver, receive_number, (void *)(uintptr_t)(sender << 32 | n)) != 0) {
			sched_yield();
		}
	}
}

static void *send_numbers_thread(void *arg)
{
	send_numbers(arg);
	return NULL;
}

static void count_up(void *arg)
{
	(*(unsigned *)arg)++;
}

static void nothing(void *arg)
{
}

static void test_messages_of_one_sender_arrive_in_order(void)
{
	struct thread *a = fixture_thread("a", 0), *b = fixture_thread("b", 1);
	pthread_t foreign;

	memset(&order, 0, sizeof(order));
	order.receiver = fixture_thread("receiver", 2);
	CU_ASSERT_EQUAL(thread_send(a, send_numbers, (void *)0), 0);
	CU_ASSERT_EQUAL(thread_send(b, send_numbers, (void *)1), 0);
	CU_ASSERT_EQUAL(pthread_create(&foreign, NULL, send_numbers_thread, (void *)2), 0);
	pthread_join(foreign, NULL);
	thread_call(a, nothing, NULL);
	thread_call(b, nothing, NULL);
	thread_call(order.receiver, nothing, NULL);
	CU_ASSERT_FALSE(order.wrong);
	for (unsigned i = 0; i < 3; i++) {
		CU_ASSERT_EQUAL(order.count[i], NUMBERS);
	}
	CU_ASSERT_EQUAL(thread_destroy(a), 0);
	CU_ASSERT_EQUAL(thread_destroy(b), 0);
	CU_ASSERT_EQUAL(thread_destroy(order.receiver), 0);
}

struct posted {
	struct thread_msg msg;
	unsigned number, rounds;
};

static struct {
	struct thread *there;
	unsigned next[2], wrong, done;
} post;

static void post_again(struct thread_msg *msg);

static void post_arrived(struct thread_msg *msg)
{
	struct posted *p = (struct posted *)msg;
	unsigned sender = p->number % 2;

	post.wrong += p->number != post.next[sender] || thread_current() != post.there;
	post.next[sender] += 2;
	if (--p->rounds == 0) {
		__atomic_add_fetch(&post.done, 1, __ATOMIC_RELEASE);
		thread_send(thread_control(), nothing, NULL); /* who waits for the last one sleeps */
	} else {
		p->number += 200;
		thread_post(thread_control(), msg, post_again);
	}
}

static void post_again(struct thread_msg *msg)
{
	thread_post(post.there, msg, post_arrived);
}

static bool all_posted(void *arg)
{
	return __atomic_load_n(&post.done, __ATOMIC_ACQUIRE) == 200;
}

static void test_posts_of_one_sender_arrive_in_order_and_can_go_back_and_forth(void)
{
	static struct posted posts[200];

	memset(&post, 0, sizeof(post));
	post.next[1] = 1;
	post.there = fixture_thread("there", 1);
	for (unsigned i = 0; i < 200; i++) {
		posts[i] = (struct posted){.number = i, .rounds = 50};
		thread_post(post.there, &posts[i].msg, post_arrived);
	}
	CU_ASSERT_TRUE(thread_control_wait(all_posted, NULL, WAIT_US));
	CU_ASSERT_EQUAL(post.wrong, 0);
	CU_ASSERT_EQUAL(thread_destroy(post.there), 0);
}

static void test_what_was_posted_before_destroying_is_run(void)
{
	static struct posted p = {.rounds = 1};

	memset(&post, 0, sizeof(post));
	post.there = fixture_thread("short-lived", 2);
	p.number = 0;
	thread_post(post.there, &p.msg, post_arrived);
	CU_ASSERT_EQUAL(thread_destroy(post.there), 0);
	CU_ASSERT_EQUAL(post.done, 1);
}

static struct {
	unsigned started, release;
} gate;

static void wait_at_gate(void *arg)
{
	__atomic_store_n(&gate.started, 1, __ATOMIC_RELEASE);
	while (__atomic_load_n(&gate.release, __ATOMIC_ACQUIRE) == 0) {
		sched_yield();
	}
}

static void test_full_ring_refuses_and_loses_nothing(void)
{
	struct thread *t = fixture_thread("full", 1);
	unsigned sent = 0, received = 0;

	memset(&gate, 0, sizeof(gate));
	CU_ASSERT_EQUAL(thread_send(t, wait_at_gate, NULL), 0);
	while (__atomic_load_n(&gate.started, __ATOMIC_ACQUIRE) == 0) {
		sched_yield();
	}
	int rc;
	while ((rc = thread_send(t, count_up, &received)) == 0 && sent < 1000000) {
		sent++;
	}
	CU_ASSERT_EQUAL(rc, -ENOBUFS);
	CU_ASSERT(sent > 1000);
	__atomic_store_n(&gate.release, 1, __ATOMIC_RELEASE);
	thread_call(t, nothing, NULL);
	CU_ASSERT_EQUAL(received, sent);
	CU_ASSERT_EQUAL(thread_destroy(t), 0);
}

static void note_thread(void *arg)
{
	*(struct thread **)arg = thread_current();
}

static void note_lcore(void *arg)
{
	*(unsigned *)arg = env_lcore_current();
}

static void test_call_returns_after_it_ran_on_the_thread(void)
{
	struct thread *t = fixture_thread("called", 3), *ran_on = NULL;
	unsigned lcore = 99;

	for (int i = 0; i < 1000; i++) {
		ran_on = NULL;
		thread_call(t, note_thread, &ran_on);
		if (ran_on != t) {
			break;
		}
	}
	CU_ASSERT_PTR_EQUAL(ran_on, t);
	thread_call(t, note_lcore, &lcore);
	CU_ASSERT_EQUAL(lcore, 3);
	thread_call(thread_control(), note_thread, &ran_on);
	CU_ASSERT_PTR_EQUAL(ran_on, thread_control());
	CU_ASSERT_EQUAL(thread_destroy(t), 0);
}

static void test_threads_are_listed_and_found(void)
{
	struct thread *a = thread_create("one", NULL), *b = thread_create("two", NULL);
	unsigned n = 0;

	for (struct thread *t = thread_next(NULL); t != NULL; t = thread_next(t)) {
		n++;
	}
	CU_ASSERT_EQUAL(n, 3);
	CU_ASSERT_PTR_EQUAL(thread_next(NULL), thread_control());
	CU_ASSERT_PTR_EQUAL(thread_by_id(thread_id(b)), b);
	CU_ASSERT_PTR_NULL(thread_by_id(123456));
	CU_ASSERT_STRING_EQUAL(thread_name(a), "one");
	CU_ASSERT_EQUAL(thread_destroy(a), 0);
	CU_ASSERT_EQUAL(thread_destroy(b), 0);
}

static void test_threads_spread_over_the_reactors(void)
{
	struct thread *t[4];
	unsigned lcores = 0;

	for (unsigned i = 0; i < 4; i++) {
		unsigned lcore;
		t[i] = thread_create("spread", NULL);
		thread_call(t[i], note_lcore, &lcore);
		lcores |= 1U << lcore;
	}
	CU_ASSERT_EQUAL(lcores, 0xf);
	for (unsigned i = 0; i < 4; i++) {
		CU_ASSERT_EQUAL(thread_destroy(t[i]), 0);
	}
}

static void test_thread_without_a_reactor_in_its_mask_is_refused(void)
{
	cpu_set_t mask = fixture_mask(77);
	struct thread *t = fixture_thread("stays", 0);

	errno = 0;
	CU_ASSERT_PTR_NULL(thread_create("nowhere", &mask));
	CU_ASSERT_EQUAL(errno, EINVAL);
	CU_ASSERT_EQUAL(thread_set_cpumask(t, &mask), -EINVAL);
	CU_ASSERT_EQUAL(thread_set_cpumask(thread_control(), &mask), -EINVAL);
	CU_ASSERT_EQUAL(thread_destroy(t), 0);
}

/* Everything a thread can own, all of it busy while the thread goes round the reactors. */
static struct {
	struct thread *thread;
	struct poller *every_round, *timed;
	struct thread_timer timer;
	struct fd_source *source;
	int pipe[2];
	uint64_t rounds, timed_runs, timer_runs, bytes, messages;
	unsigned lcores_seen;
	bool wrong_thread;
} moving;

static void moving_note(void)
{
	moving.wrong_thread |= thread_current() != moving.thread;
	moving.lcores_seen |= 1U << env_lcore_current();
}

static int moving_every_round(void *ctx)
{
	moving_note();
	moving.rounds++;
	return POLLER_IDLE;
}

static int moving_timed(void *ctx)
{
	moving_note();
	moving.timed_runs++;
	return POLLER_IDLE;
}

static void moving_timer(void *arg)
{
	moving_note();
	moving.timer_runs++;
	thread_timer_start(&moving.timer, 100);
}

static void moving_fd(void *arg, uint32_t events)
{
	char byte;

	moving_note();
	if (read(moving.pipe[0], &byte, 1) == 1) {
		moving.bytes++;
	}
}

static void moving_begin(void *arg)
{
	const struct poller_opts every_round = {.name = "every round", .fn = moving_every_round, .fd = -1};
	const struct poller_opts timed = {.name = "timed", .fn = moving_timed, .period_us = 100};

	moving.every_round = poller_register(&every_round);
	moving.timed = poller_register(&timed);
	moving.source = fd_source_add(moving.pipe[0], EPOLLIN, moving_fd, NULL, "pipe");
	moving.timer = (struct thread_timer){.fn = moving_timer};
	thread_timer_start(&moving.timer, 100);
}

static void moving_end(void *arg)
{
	poller_unregister(&moving.every_round);
	poller_unregister(&moving.timed);
	fd_source_remove(&moving.source);
	thread_timer_stop(&moving.timer);
}

static void moving_message(void *arg)
{
	moving_note();
	moving.messages++;
}

static void moving_pause(void *arg)
{
	poller_pause(moving.every_round);
}

static void *moving_sender(void *arg)
{
	for (unsigned n = 0; n < NUMBERS; n++) {
		while (thread_send(moving.thread, moving_message, NULL) != 0) {
			sched_yield();
		}
		if (n % 100 == 0 && write(moving.pipe[1], "x", 1) != 1) {
			return "write failed";
		}
		if (n % 16 == 0) {
			sched_yield();
		}
	}
	return NULL;
}

static void moving_get_bytes(void *arg)
{
	*(uint64_t *)arg = moving.bytes;
}

static void test_thread_moves_under_load_without_loss(void)
{
	pthread_t sender;
	void *result;

	memset(&moving, 0, sizeof(moving));
	CU_ASSERT_EQUAL(pipe(moving.pipe), 0);
	moving.thread = fixture_thread("moving", 0);
	thread_call(moving.thread, moving_begin, NULL);
	CU_ASSERT_EQUAL(pthread_create(&sender, NULL, moving_sender, NULL), 0);
	for (unsigned i = 0; i < 400; i++) {
		cpu_set_t mask = fixture_mask(i % 4);
		CU_ASSERT_EQUAL(thread_set_cpumask(moving.thread, &mask), 0);
		if (i == 200) {
			thread_call(moving.thread, moving_pause, NULL); /* it can sleep from here on */
		}
		thread_call(moving.thread, nothing, NULL);
	}
	pthread_join(sender, &result);
	CU_ASSERT_PTR_NULL(result);
	/* Without the poller, a byte is noticed by a sleeping reactor, which is where the thread is now. */
	uint64_t deadline = env_ticks() + env_us_to_ticks(WAIT_US), bytes = 0;
	while (bytes < NUMBERS / 100 && env_ticks() < deadline) {
		thread_call(moving.thread, moving_get_bytes, &bytes);
	}
	thread_call(moving.thread, moving_end, NULL);
	CU_ASSERT_EQUAL(moving.messages, NUMBERS);
	CU_ASSERT_EQUAL(moving.bytes, NUMBERS / 100);
	CU_ASSERT(moving.rounds > 0 && moving.timed_runs > 0 && moving.timer_runs > 0);
	CU_ASSERT_EQUAL(moving.lcores_seen, 0xf);
	CU_ASSERT_FALSE(moving.wrong_thread);
	CU_ASSERT_EQUAL(thread_destroy(moving.thread), 0);
	close(moving.pipe[0]);
	close(moving.pipe[1]);
}

static struct poller *leaked;

static void leak_poller(void *arg)
{
	const struct poller_opts opts = {.name = "leaked poller", .fn = moving_every_round, .period_us = 1000000};

	leaked = poller_register(&opts);
}

static void unleak_poller(void *arg)
{
	poller_unregister(&leaked);
}

static void test_destroying_a_thread_with_a_poller_is_refused(void)
{
	struct thread *t = fixture_thread("leaky", 0);

	thread_call(t, leak_poller, NULL);
	CU_ASSERT_EQUAL(thread_destroy(t), -EBUSY);
	thread_call(t, unleak_poller, NULL);
	CU_ASSERT_EQUAL(thread_destroy(t), 0);
}

static void test_messages_sent_before_destroying_are_run(void)
{
	struct thread *t = fixture_thread("short-lived", 2);
	unsigned received = 0;

	for (unsigned i = 0; i < 1000; i++) {
		CU_ASSERT_EQUAL(thread_send(t, count_up, &received), 0);
	}
	CU_ASSERT_EQUAL(thread_destroy(t), 0);
	CU_ASSERT_EQUAL(received, 1000);
}

static void test_synchronize_waits_for_busy_reactors_only(void)
{
	struct thread *t = fixture_thread("busy", 1);
	unsigned done = 0;

	for (unsigned i = 0; i < 100; i++) {
		CU_ASSERT_EQUAL(thread_send(t, count_up, &done), 0);
		thread_synchronize();
	}
	thread_call(t, nothing, NULL);
	CU_ASSERT_EQUAL(done, 100);
	CU_ASSERT_EQUAL(thread_destroy(t), 0);
}

static struct {
	uint64_t *published; /* what readers use, swapped by the control thread */
	unsigned stop, used_after_free;
} shared;

static int reader_poll(void *ctx)
{
	uint64_t *p = __atomic_load_n(&shared.published, __ATOMIC_ACQUIRE);

	for (int i = 0; i < 20; i++) {
		if (__atomic_load_n(p, __ATOMIC_RELAXED) != 42) {
			__atomic_store_n(&shared.used_after_free, 1, __ATOMIC_RELAXED);
		}
	}
	return POLLER_IDLE;
}

static struct poller *readers[4];

static void reader_begin(void *arg)
{
	const struct poller_opts opts = {.name = "reader", .fn = reader_poll, .fd = -1};

	readers[env_lcore_current()] = poller_register(&opts);
}

static void reader_end(void *arg)
{
	poller_unregister(&readers[env_lcore_current()]);
}

static void test_what_was_unpublished_is_unused_after_synchronize(void)
{
	struct thread *t[4];
	static uint64_t values[2] = {42, 42};

	shared.published = &values[0];
	for (unsigned i = 0; i < 4; i++) {
		t[i] = fixture_thread("reader", i);
		thread_call(t[i], reader_begin, NULL);
	}
	for (unsigned i = 1; i < 200; i++) {
		uint64_t *old = shared.published;
		values[i % 2] = 42;
		__atomic_store_n(&shared.published, &values[i % 2], __ATOMIC_RELEASE);
		thread_synchronize();
		__atomic_store_n(old, 0, __ATOMIC_RELAXED);
		__atomic_store_n(old, 0xdead, __ATOMIC_RELAXED);
	}
	CU_ASSERT_EQUAL(shared.used_after_free, 0);
	for (unsigned i = 0; i < 4; i++) {
		thread_call(t[i], reader_end, NULL);
		CU_ASSERT_EQUAL(thread_destroy(t[i]), 0);
	}
}

static void exit_control(void *arg)
{
	thread_control_exit();
}

static void test_control_loop_runs_until_told_to_exit(void)
{
	struct thread *t = fixture_thread("teller", 0);

	CU_ASSERT_EQUAL(thread_send(t, exit_control, NULL), 0);
	thread_control_run();
	CU_ASSERT_EQUAL(thread_send(t, exit_control, NULL), 0);
	thread_control_run();
	CU_ASSERT_EQUAL(thread_destroy(t), 0);
}

static bool never(void *arg)
{
	return false;
}

static void test_control_wait_ends_at_its_deadline(void)
{
	uint64_t before = env_ticks();

	CU_ASSERT_FALSE(thread_control_wait(never, NULL, 2000));
	CU_ASSERT(env_ticks() - before >= env_us_to_ticks(2000));
}

static void stats_begin(void *arg)
{
	leak_poller(NULL);
	reader_begin(NULL);
}

static void stats_end(void *arg)
{
	unleak_poller(NULL);
	reader_end(NULL);
}

static void stats_pause(void *arg)
{
	poller_pause(leaked);
}

static void test_statistics_tell_what_a_thread_owns(void)
{
	struct thread *t = fixture_thread("counted", 1);
	struct thread_stats s;
	struct poller_stats *p;
	struct reactor_stats r;
	static uint64_t value = 42;

	shared.published = &value;
	thread_call(t, stats_begin, NULL);
	thread_get_stats(t, &s);
	CU_ASSERT_STRING_EQUAL(s.name, "counted");
	CU_ASSERT_EQUAL(s.id, thread_id(t));
	CU_ASSERT_EQUAL(s.lcore, 1);
	CU_ASSERT(CPU_ISSET(1, &s.cpumask) && CPU_COUNT(&s.cpumask) == 1);
	CU_ASSERT_EQUAL(s.active_pollers, 1);
	CU_ASSERT_EQUAL(s.timed_pollers, 1);
	CU_ASSERT_EQUAL(s.paused_pollers, 0);
	CU_ASSERT_EQUAL(s.timers, 0);
	thread_call(t, stats_pause, NULL);
	CU_ASSERT_EQUAL_FATAL(thread_get_pollers(t, &p), 2);
	CU_ASSERT_STRING_EQUAL(p[0].name, "reader");
	CU_ASSERT_EQUAL(p[0].kind, POLLER_KIND_ACTIVE);
	CU_ASSERT(p[0].run_count > 0);
	CU_ASSERT_EQUAL(p[0].busy_count, 0);
	CU_ASSERT_STRING_EQUAL(p[1].name, "leaked poller");
	CU_ASSERT_EQUAL(p[1].kind, POLLER_KIND_PAUSED);
	CU_ASSERT_EQUAL(p[1].period_ticks, env_us_to_ticks(1000000));
	free(p);
	CU_ASSERT_EQUAL(reactor_get_stats(1, &r), 0);
	CU_ASSERT(r.tid > 0 && r.busy_ticks + r.idle_ticks > 0);
	CU_ASSERT_EQUAL(reactor_get_stats(99, &r), -ENODEV);
	thread_call(t, stats_end, NULL);
	CU_ASSERT_EQUAL(thread_get_pollers(t, &p), 0);
	CU_ASSERT_PTR_NULL(p);
	thread_get_stats(thread_control(), &s);
	CU_ASSERT_EQUAL(s.lcore, UINT32_MAX);
	CU_ASSERT_EQUAL(thread_destroy(t), 0);
}

static struct {
	bool begun;
	unsigned looks;
} stuck;

static void be_stuck_until_looked_at(void *arg)
{
	uint64_t deadline = env_ticks() + env_us_to_ticks(WAIT_US);

	__atomic_store_n(&stuck.begun, true, __ATOMIC_RELEASE);
	while (__atomic_load_n(&stuck.looks, __ATOMIC_ACQUIRE) == 0 && env_ticks() < deadline) {
		sched_yield();
	}
}

static void look(void)
{
	__atomic_fetch_add(&stuck.looks, 1, __ATOMIC_RELEASE);
}

static void begin_to_be_stuck(struct thread *t)
{
	stuck.begun = false;
	stuck.looks = 0;
	thread_send(t, be_stuck_until_looked_at, NULL);
	while (!__atomic_load_n(&stuck.begun, __ATOMIC_ACQUIRE)) {
		sched_yield();
	}
}

static void test_who_waits_for_a_stuck_reactor_looks_at_it(void)
{
	struct thread *t = fixture_thread("stuck", 1);

	thread_set_wait_hook(look, 1000);
	begin_to_be_stuck(t);
	thread_call(t, nothing, NULL);
	CU_ASSERT(stuck.looks > 0);
	begin_to_be_stuck(t);
	thread_synchronize();
	CU_ASSERT(stuck.looks > 0);
	thread_set_wait_hook(NULL, 0);
	CU_ASSERT_EQUAL(thread_destroy(t), 0);
}

/* Stops all and starts it again. */
static void test_the_control_thread_keeps_the_ring_it_had_before_the_reactors(void)
{
	struct trace_opts opts = {
		.name = "unit_thread", .version = "", .instance_id = -1, .num_entries = 64, .num_user_threads = 2};
	const struct thread_lib_opts lib = {.idle_spell_us = 50};
	char error[TRACE_ERROR_MAX];

	thread_lib_stop();
	CU_ASSERT_EQUAL_FATAL(trace_start(&opts, error), 0);
	CU_ASSERT_EQUAL(thread_lib_start(&lib), 0);
	thread_lib_stop();
	CU_ASSERT_EQUAL(trace_register_user_thread("control"),
			0); /* what the reactors' start took has been given back */
	CU_ASSERT_EQUAL(thread_lib_start(&lib), 0);
	thread_lib_stop();
	CU_ASSERT_EQUAL(trace_register_user_thread("control"), -EEXIST);
	trace_stop();
	CU_ASSERT_EQUAL_FATAL(thread_lib_start(&lib), 0);
}

static const struct unit_test tests[] = {
	UNIT(test_messages_of_one_sender_arrive_in_order),
	UNIT(test_posts_of_one_sender_arrive_in_order_and_can_go_back_and_forth),
	UNIT(test_what_was_posted_before_destroying_is_run),
	UNIT(test_full_ring_refuses_and_loses_nothing),
	UNIT(test_call_returns_after_it_ran_on_the_thread),
	UNIT(test_threads_are_listed_and_found),
	UNIT(test_threads_spread_over_the_reactors),
	UNIT(test_thread_without_a_reactor_in_its_mask_is_refused),
	UNIT(test_thread_moves_under_load_without_loss),
	UNIT(test_destroying_a_thread_with_a_poller_is_refused),
	UNIT(test_messages_sent_before_destroying_are_run),
	UNIT(test_synchronize_waits_for_busy_reactors_only),
	UNIT(test_what_was_unpublished_is_unused_after_synchronize),
	UNIT(test_control_loop_runs_until_told_to_exit),
	UNIT(test_control_wait_ends_at_its_deadline),
	UNIT(test_statistics_tell_what_a_thread_owns),
	UNIT(test_who_waits_for_a_stuck_reactor_looks_at_it),
	UNIT(test_the_control_thread_keeps_the_ring_it_had_before_the_reactors),
	UNIT_END,
};

UNIT_MAIN("thread", tests, fixture_start, fixture_stop)
