/* SPDX-License-Identifier: BSD-3-Clause */
/* Pollers, timers, descriptors and channels: what may be done to them from inside each other. */
#include "unittest/unit.h"
#include "unittest/thread/fixture.h"

#include <errno.h>
#include <sys/eventfd.h>

static struct thread *worker;

static int setup(void)
{
	int rc = fixture_start();

	if (rc == 0) {
		worker = fixture_thread("worker", 1);
	}
	return rc;
}

static int teardown(void)
{
	int rc = thread_destroy(worker);

	fixture_stop();
	return rc;
}

static void on_worker(thread_fn fn)
{
	thread_call(worker, fn, NULL);
}

static void get_u64(void *arg)
{
	uint64_t **p = arg;

	p[1] = (uint64_t *)(uintptr_t)*p[0];
}

/* Reads a counter that belongs to the worker. */
static uint64_t read_on_worker(uint64_t *counter)
{
	uint64_t *p[2] = {counter, NULL};

	thread_call(worker, get_u64, p);
	return (uint64_t)(uintptr_t)p[1];
}

/* Waits until a counter of the worker's has reached a value. */
static bool reaches(uint64_t *counter, uint64_t value)
{
	uint64_t deadline = env_ticks() + env_us_to_ticks(WAIT_US);

	while (read_on_worker(counter) < value) {
		if (env_ticks() > deadline) {
			return false;
		}
		sched_yield();
	}
	return true;
}

static struct {
	struct poller *p[4];
	uint64_t runs[4];
	int act_on; /* which one the first acts on, once */
	void (*act)(struct poller **p);
} set;

static int set_poll(void *ctx)
{
	size_t i = (size_t)(uintptr_t)ctx;

	set.runs[i]++;
	if (i == 1 && set.act != NULL) {
		void (*act)(struct poller * *p) = set.act;
		set.act = NULL;
		act(&set.p[set.act_on]);
	}
	return POLLER_IDLE;
}

static void set_begin(void *arg)
{
	uint64_t period = (uint64_t)(uintptr_t)arg;

	for (size_t i = 0; i < 4; i++) {
		set.runs[i] = 0;
		set.p[i] = poller_register(&(struct poller_opts){
			.name = "set", .fn = set_poll, .ctx = (void *)(uintptr_t)i, .period_us = period, .fd = -1});
	}
}

static void set_end(void *arg)
{
	for (size_t i = 0; i < 4; i++) {
		poller_unregister(&set.p[i]);
	}
}

static void act_unregister(struct poller **p)
{
	poller_unregister(p);
}

static void act_pause(struct poller **p)
{
	poller_pause(*p);
}

static void act_pause_and_resume(struct poller **p)
{
	poller_pause(*p);
	poller_resume(*p);
}

static void act_pause_and_unregister(struct poller **p)
{
	poller_pause(*p);
	poller_unregister(p);
}

/* The second poller does something to another, or to itself, from inside: afterwards the target has run at most once
 * more, and all the others go on. */
static void check_act(void (*act)(struct poller **p), int target, bool goes_on, uint64_t period)
{
	set.act_on = target;
	set.act = act;
	thread_call(worker, set_begin, (void *)(uintptr_t)period);
	for (int i = 0; i < 4; i++) {
		if (i != target || goes_on) {
			CU_ASSERT(reaches(&set.runs[i], 20));
		}
	}
	if (!goes_on) {
		uint64_t runs = read_on_worker(&set.runs[target]);
		CU_ASSERT(runs <= 2);
		CU_ASSERT(reaches(&set.runs[target == 0 ? 1 : 0], 40));
		CU_ASSERT_EQUAL(read_on_worker(&set.runs[target]), runs);
	}
	on_worker(set_end);
}

static void check_act_on_all(void (*act)(struct poller **p), bool goes_on)
{
	for (int target = 0; target < 4; target++) {
		check_act(act, target, goes_on, 0);
		check_act(act, target, goes_on, 50);
	}
}

static void test_poller_unregisters_any_from_inside(void)
{
	check_act_on_all(act_unregister, false);
}

static void test_poller_pauses_any_from_inside(void)
{
	check_act_on_all(act_pause, false);
}

static void test_poller_paused_and_resumed_from_inside_goes_on(void)
{
	check_act_on_all(act_pause_and_resume, true);
}

static void test_poller_paused_and_unregistered_from_inside_is_gone(void)
{
	check_act_on_all(act_pause_and_unregister, false);
}

static void resume_first(void *arg)
{
	poller_resume(set.p[0]);
}

static void pause_first(void *arg)
{
	poller_pause(set.p[0]);
}

static void test_paused_poller_runs_again_after_resume(void)
{
	for (uint64_t period = 0; period <= 50; period += 50) {
		set.act = NULL;
		thread_call(worker, set_begin, (void *)(uintptr_t)period);
		CU_ASSERT(reaches(&set.runs[0], 5));
		on_worker(pause_first);
		uint64_t runs = read_on_worker(&set.runs[0]);
		CU_ASSERT(reaches(&set.runs[1], read_on_worker(&set.runs[1]) + 10));
		CU_ASSERT_EQUAL(read_on_worker(&set.runs[0]), runs);
		on_worker(resume_first);
		CU_ASSERT(reaches(&set.runs[0], runs + 5));
		on_worker(set_end);
	}
}

#define TIMERS 1000

static struct {
	struct thread_timer t[TIMERS];
	uint64_t fired, last_deadline, early, disorder;
} timers;

static void timer_fired(void *arg)
{
	struct thread_timer *t = arg;

	timers.early += env_ticks() < t->deadline;
	timers.disorder += t->deadline < timers.last_deadline;
	timers.last_deadline = t->deadline;
	timers.fired++;
}

/* Some are moved, earlier and later, and every tenth is stopped. */
static void timers_begin(void *arg)
{
	unsigned seed = 1;

	memset(&timers, 0, sizeof(timers));
	for (size_t i = 0; i < TIMERS; i++) {
		timers.t[i] = (struct thread_timer){.fn = timer_fired, .arg = &timers.t[i]};
		thread_timer_start(&timers.t[i], 1000 + (uint64_t)rand_r(&seed) % 5000);
	}
	for (size_t i = 0; i < TIMERS; i += 3) {
		thread_timer_start(&timers.t[i], (uint64_t)rand_r(&seed) % 8000);
	}
	for (size_t i = 0; i < TIMERS; i += 10) {
		thread_timer_stop(&timers.t[i]);
		thread_timer_stop(&timers.t[i]);
	}
}

static void test_timers_fire_in_order_and_never_early(void)
{
	on_worker(timers_begin);
	CU_ASSERT(reaches(&timers.fired, TIMERS - TIMERS / 10));
	CU_ASSERT_EQUAL(timers.early, 0);
	CU_ASSERT_EQUAL(timers.disorder, 0);
	struct thread_stats s;
	thread_get_stats(worker, &s);
	CU_ASSERT_EQUAL(s.timers, 0);
	CU_ASSERT_EQUAL(read_on_worker(&timers.fired), TIMERS - TIMERS / 10);
}

static struct {
	struct thread_timer a, b;
	uint64_t a_runs, b_runs;
} pair;

static void pair_a(void *arg)
{
	pair.a_runs++;
	thread_timer_stop(&pair.b);
	if (pair.a_runs < 5) {
		thread_timer_start(&pair.a, 0);
	}
}

static void pair_b(void *arg)
{
	pair.b_runs++;
}

static void pair_begin(void *arg)
{
	memset(&pair, 0, sizeof(pair));
	pair.a.fn = pair_a;
	pair.b.fn = pair_b;
	thread_timer_start(&pair.a, 100);
	thread_timer_start(&pair.b, 101);
	thread_timer_start(&pair.b, UINT64_MAX); /* and back */
	thread_timer_start(&pair.b, 101);
	uint64_t until = pair.b.deadline;
	while (env_ticks() < until) {
		/* both are due when the loop looks */
	}
}

static void test_away_is_late_by_an_eighth_and_by_more_than_a_busy_machine_is(void)
{
	static const struct {
		uint64_t late_us, timeout_us;
		bool away;
	} cases[] = {
		{0, 0, false},
		{THREAD_ABSENT_MIN_US, 0, false},
		{THREAD_ABSENT_MIN_US + 1, 0, true},
		{THREAD_ABSENT_MIN_US + 1, 8 * THREAD_ABSENT_MIN_US, true},
		{125000, 1000000, false},
		{125001, 1000000, true},
		{14999999, 120000000, false},
		{UINT64_MAX, UINT64_MAX, true},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		CU_ASSERT_EQUAL(thread_was_absent(cases[i].late_us, cases[i].timeout_us), cases[i].away);
	}
	struct thread_timer t = {.deadline = env_ticks() + env_us_to_ticks(WAIT_US)};
	CU_ASSERT_FALSE(thread_timer_was_absent(&t, 0));
	t.deadline = env_ticks() - env_us_to_ticks(2000000);
	CU_ASSERT_TRUE(thread_timer_was_absent(&t, 1000000));
	CU_ASSERT_FALSE(thread_timer_was_absent(&t, UINT64_MAX));
}

static void test_timer_may_stop_another_that_is_due_and_start_itself(void)
{
	on_worker(pair_begin);
	CU_ASSERT(reaches(&pair.a_runs, 5));
	CU_ASSERT_EQUAL(read_on_worker(&pair.b_runs), 0);
}

static struct {
	int fd[2];
	struct fd_source *source[2];
	uint64_t events[2], sum;
	bool remove_both;
} fds;

static void fd_ready(void *arg, uint32_t events)
{
	size_t i = (size_t)(uintptr_t)arg;
	uint64_t value;

	if (read(fds.fd[i], &value, sizeof(value)) == sizeof(value)) {
		fds.sum += value;
	}
	fds.events[i]++;
	if (fds.remove_both) {
		fd_source_remove(&fds.source[0]);
		fd_source_remove(&fds.source[1]);
	}
}

static void fds_begin(void *arg)
{
	for (size_t i = 0; i < 2; i++) {
		fds.source[i] = fd_source_add(fds.fd[i], EPOLLIN, fd_ready, (void *)(uintptr_t)i, "eventfd");
	}
}

static void fds_end(void *arg)
{
	fd_source_remove(&fds.source[0]);
	fd_source_remove(&fds.source[1]);
}

static void fds_mute_first(void *arg)
{
	fd_source_modify(fds.source[0], 0);
}

static void fds_unmute_first(void *arg)
{
	fd_source_modify(fds.source[0], EPOLLIN);
}

static void fds_open(void)
{
	memset(&fds, 0, sizeof(fds));
	fds.fd[0] = eventfd(0, EFD_NONBLOCK);
	fds.fd[1] = eventfd(0, EFD_NONBLOCK);
}

static void fds_close(void)
{
	close(fds.fd[0]);
	close(fds.fd[1]);
}

static void fd_put(size_t i, uint64_t value)
{
	CU_ASSERT_EQUAL(write(fds.fd[i], &value, sizeof(value)), sizeof(value));
}

static void test_descriptors_are_served_asleep_and_while_polling(void)
{
	fds_open();
	on_worker(fds_begin);
	fd_put(0, 1);
	CU_ASSERT(reaches(&fds.sum, 1));
	thread_call(worker, set_begin, (void *)0); /* pollers that keep it awake */
	fd_put(1, 2);
	CU_ASSERT(reaches(&fds.sum, 3));
	on_worker(set_end);
	on_worker(fds_end);
	fds_close();
}

static void test_descriptor_without_events_is_silent(void)
{
	fds_open();
	on_worker(fds_begin);
	on_worker(fds_mute_first);
	fd_put(0, 1);
	fd_put(1, 1);
	CU_ASSERT(reaches(&fds.events[1], 1));
	CU_ASSERT_EQUAL(read_on_worker(&fds.events[0]), 0);
	on_worker(fds_unmute_first);
	CU_ASSERT(reaches(&fds.events[0], 1));
	on_worker(fds_end);
	fds_close();
}

static void test_descriptor_removed_by_another_in_the_same_batch_is_not_served(void)
{
	fds_open();
	fds.remove_both = true;
	/* Both are ready before the worker looks at either. */
	fd_put(0, 1);
	fd_put(1, 1);
	on_worker(fds_begin);
	CU_ASSERT(reaches(&fds.sum, 1));
	CU_ASSERT_EQUAL(read_on_worker(&fds.sum), 1);
	struct thread_stats s;
	thread_get_stats(worker, &s);
	CU_ASSERT_EQUAL(s.descriptors, 0);
	fds_close();
}

static void bad_descriptor(void *arg)
{
	bool *refused = arg;

	errno = 0;
	*refused = fd_source_add(987654, EPOLLIN, fd_ready, NULL, "no such descriptor") == NULL && errno == EBADF;
}

static void test_bad_descriptor_is_refused(void)
{
	bool refused = false;

	thread_call(worker, bad_descriptor, &refused);
	CU_ASSERT(refused);
}

struct channel {
	uint64_t magic;
	struct thread *thread;
};

static struct {
	unsigned created, destroyed;
	int fail;
} channels;

static int channel_create(struct io_device *dev, void *ctx)
{
	struct channel *c = ctx;

	if (channels.fail != 0) {
		return channels.fail;
	}
	__atomic_fetch_add(&channels.created, 1, __ATOMIC_RELAXED);
	*c = (struct channel){.magic = 7, .thread = thread_current()};
	return 0;
}

static void channel_destroy(struct io_device *dev, void *ctx)
{
	struct channel *c = ctx;

	channels.destroyed += c->magic == 7 && c->thread == thread_current();
}

static struct io_device device = {.name = "device",
				  .channel_size = sizeof(struct channel),
				  .channel_create = channel_create,
				  .channel_destroy = channel_destroy};

static void channel_get(void *arg)
{
	errno = 0;
	*(struct io_channel **)arg = io_channel_get(&device);
}

static void channel_put(void *arg)
{
	io_channel_put(arg);
}

static void channel_get_errno(void *arg)
{
	*(int *)arg = io_channel_get(&device) == NULL ? errno : 0;
}

static void visit(void *ctx, void *arg)
{
	struct channel *c = ctx;

	*(unsigned *)arg += c->magic == 7 && c->thread == thread_current();
}

static void test_channels_are_counted_per_thread(void)
{
	struct io_channel *a, *b, *c;
	struct io_channel_stats *stats;
	unsigned visited = 0;

	memset(&channels, 0, sizeof(channels));
	io_device_register(&device);
	thread_call(worker, channel_get, &a);
	thread_call(worker, channel_get, &b);
	channel_get(&c);
	CU_ASSERT_PTR_EQUAL(a, b);
	CU_ASSERT_PTR_NOT_EQUAL(a, c);
	CU_ASSERT_PTR_EQUAL(io_channel_thread(a), worker);
	CU_ASSERT_PTR_EQUAL(io_channel_thread(c), thread_control());
	CU_ASSERT_EQUAL((uintptr_t)io_channel_ctx(a) % 64, 0);
	CU_ASSERT_EQUAL(channels.created, 2);
	io_device_for_each_channel(&device, visit, &visited);
	CU_ASSERT_EQUAL(visited, 2);
	CU_ASSERT_EQUAL_FATAL(thread_get_io_channels(worker, &stats), 1);
	CU_ASSERT_STRING_EQUAL(stats->name, "device");
	CU_ASSERT_EQUAL(stats->refs, 2);
	free(stats);
	CU_ASSERT_EQUAL(io_device_unregister(&device), -EBUSY);
	thread_call(worker, channel_put, a);
	io_channel_put(c);
	CU_ASSERT_EQUAL(channels.destroyed, 1);
	CU_ASSERT_EQUAL(thread_destroy(worker), -EBUSY);
	thread_call(worker, channel_put, b);
	CU_ASSERT_EQUAL(channels.destroyed, 2);
	CU_ASSERT_EQUAL(io_device_unregister(&device), 0);
}

static void test_failed_channel_leaves_nothing(void)
{
	int error = 0;

	memset(&channels, 0, sizeof(channels));
	thread_call(worker, channel_get_errno, &error);
	CU_ASSERT_EQUAL(error, ENODEV); /* not registered */
	io_device_register(&device);
	channels.fail = -EAGAIN;
	thread_call(worker, channel_get_errno, &error);
	CU_ASSERT_EQUAL(error, EAGAIN);
	CU_ASSERT_EQUAL(io_device_unregister(&device), 0);
}

static const struct unit_test tests[] = {
	UNIT(test_poller_unregisters_any_from_inside),
	UNIT(test_poller_pauses_any_from_inside),
	UNIT(test_poller_paused_and_resumed_from_inside_goes_on),
	UNIT(test_poller_paused_and_unregistered_from_inside_is_gone),
	UNIT(test_paused_poller_runs_again_after_resume),
	UNIT(test_timers_fire_in_order_and_never_early),
	UNIT(test_timer_may_stop_another_that_is_due_and_start_itself),
	UNIT(test_away_is_late_by_an_eighth_and_by_more_than_a_busy_machine_is),
	UNIT(test_descriptors_are_served_asleep_and_while_polling),
	UNIT(test_descriptor_without_events_is_silent),
	UNIT(test_descriptor_removed_by_another_in_the_same_batch_is_not_served),
	UNIT(test_bad_descriptor_is_refused),
	UNIT(test_channels_are_counted_per_thread),
	UNIT(test_failed_channel_leaves_nothing),
	UNIT_END,
};

UNIT_MAIN("poller", tests, setup, teardown)
