/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptors that epoll refuses when their thread moves, or when their events change: nothing of them is lost, and
 * epoll gets them as soon as it takes them. */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>

#include "thread/thread_internal.h"
#include "unittest/thread/fixture.h"
#include "unittest/unit.h"

#define SOURCES 3

static struct {
	struct thread *thread;
	int fd[SOURCES], poller_fd;
	struct fd_source *source[SOURCES];
	struct poller *poller;
	_Atomic uint64_t sum, polled;
	atomic_uint calls, ends;
	bool remove_all;
} t;

/* Of the descriptors of the test. */
static atomic_bool refuse_add, refuse_mod;
static atomic_uint refused;

static bool is_ours(int fd)
{
	bool ours = fd == t.poller_fd;

	for (unsigned i = 0; i < SOURCES; i++) {
		ours |= fd == t.fd[i];
	}
	return ours;
}

int __wrap_epoll_ctl(int ep, int op, int fd, struct epoll_event *e);
int __real_epoll_ctl(int ep, int op, int fd, struct epoll_event *e);
int __wrap_epoll_ctl(int ep, int op, int fd, struct epoll_event *e)
{
	bool refuse =
		(op == EPOLL_CTL_ADD && atomic_load(&refuse_add)) || (op == EPOLL_CTL_MOD && atomic_load(&refuse_mod));

	if (refuse && is_ours(fd)) {
		atomic_fetch_add(&refused, 1);
		errno = ENOSPC;
		return -1;
	}
	return __real_epoll_ctl(ep, op, fd, e);
}

static void source_ready(void *arg, uint32_t events)
{
	size_t i = (size_t)(uintptr_t)arg;
	uint64_t value;

	CU_ASSERT_PTR_EQUAL(thread_current(), t.thread);
	atomic_fetch_add(&t.calls, 1);
	if (events & EPOLLERR) {
		atomic_fetch_add(&t.ends, 1);
		fd_source_remove(&t.source[i]);
		return;
	}
	if (read(t.fd[i], &value, sizeof(value)) == sizeof(value)) {
		atomic_fetch_add(&t.sum, value);
	}
	for (unsigned k = 0; t.remove_all && k < SOURCES; k++) {
		fd_source_remove(&t.source[k]);
	}
}

static int poller_run(void *ctx)
{
	uint64_t value;

	if (read(t.poller_fd, &value, sizeof(value)) != sizeof(value)) {
		return POLLER_IDLE;
	}
	atomic_fetch_add(&t.polled, value);
	return POLLER_BUSY;
}

static bool poller_arm(void *ctx)
{
	struct pollfd p = {.fd = t.poller_fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

static void begin_here(void *arg)
{
	const struct poller_opts opts = {.name = "poller", .fn = poller_run, .fd = t.poller_fd, .arm = poller_arm};

	for (size_t i = 0; i < SOURCES; i++) {
		t.source[i] = fd_source_add(t.fd[i], EPOLLIN, source_ready, (void *)(uintptr_t)i, "source");
		CU_ASSERT_PTR_NOT_NULL_FATAL(t.source[i]);
	}
	t.poller = poller_register(&opts);
}

static void end_here(void *arg)
{
	for (unsigned i = 0; i < SOURCES; i++) {
		fd_source_remove(&t.source[i]);
	}
	poller_unregister(&t.poller);
}

static void begin(void)
{
	memset(&t, 0, sizeof(t));
	for (unsigned i = 0; i < SOURCES; i++) {
		t.fd[i] = eventfd(0, EFD_NONBLOCK);
	}
	t.poller_fd = eventfd(0, EFD_NONBLOCK);
	t.thread = fixture_thread("fds", 0);
	thread_call(t.thread, begin_here, NULL);
}

struct counts {
	uint32_t sleepless, refused;
	int descriptors;
};

static void count_here(void *arg)
{
	struct counts *c = arg;
	const struct reactor *r = reactor_self;

	*c = (struct counts){t.thread->sleepless, r->fd_refused, (int)r->fd_count};
}

static struct counts counts(void)
{
	struct counts c;

	thread_call(t.thread, count_here, &c);
	return c;
}

static void end(void)
{
	thread_call(t.thread, end_here, NULL);
	CU_ASSERT_EQUAL(counts().sleepless, 0);
	CU_ASSERT_EQUAL(counts().refused, 0);
	CU_ASSERT_EQUAL(counts().descriptors, 0);
	CU_ASSERT_EQUAL(thread_destroy(t.thread), 0);
	for (unsigned i = 0; i < SOURCES; i++) {
		close(t.fd[i]);
	}
	close(t.poller_fd);
}

static void move_to(unsigned lcore)
{
	cpu_set_t mask = fixture_mask(lcore);

	CU_ASSERT_EQUAL(thread_set_cpumask(t.thread, &mask), 0);
	thread_call(t.thread, count_here, &(struct counts){0}); /* it has arrived */
}

static void put(int fd, uint64_t value)
{
	CU_ASSERT_EQUAL(write(fd, &value, sizeof(value)), sizeof(value));
}

static bool reaches(const _Atomic uint64_t *value, uint64_t wanted)
{
	uint64_t deadline = env_ticks() + env_us_to_ticks(WAIT_US);

	while (atomic_load(value) != wanted && env_ticks() < deadline) {
		sched_yield();
	}
	return atomic_load(value) == wanted;
}

static bool all_are_watched(void)
{
	uint64_t deadline = env_ticks() + env_us_to_ticks(WAIT_US);

	while (counts().refused != 0 && env_ticks() < deadline) {
	}
	return counts().refused == 0;
}

static void test_events_of_descriptors_that_a_move_has_cost_arrive(void)
{
	begin();
	atomic_store(&refuse_add, true);
	move_to(1);
	CU_ASSERT_EQUAL(counts().refused, SOURCES + 1);
	for (unsigned i = 0; i < SOURCES; i++) {
		put(t.fd[i], 1);
	}
	put(t.poller_fd, 1);
	CU_ASSERT_TRUE(reaches(&t.sum, SOURCES));
	CU_ASSERT_TRUE(reaches(&t.polled, 1));
	move_to(2); /* and away from there again */
	put(t.fd[0], 1);
	put(t.poller_fd, 1);
	CU_ASSERT_TRUE(reaches(&t.sum, SOURCES + 1));
	CU_ASSERT_TRUE(reaches(&t.polled, 2));
	atomic_store(&refuse_add, false);
	CU_ASSERT_TRUE(all_are_watched());
	CU_ASSERT_EQUAL(counts().sleepless, 0); /* the reactor sleeps again */
	CU_ASSERT_EQUAL(counts().descriptors, SOURCES);
	put(t.fd[0], 1);
	put(t.poller_fd, 1);
	CU_ASSERT_TRUE(reaches(&t.sum, SOURCES + 2));
	CU_ASSERT_TRUE(reaches(&t.polled, 3));
	end();
}

static void mute_here(void *arg)
{
	fd_source_modify(t.source[0], arg != NULL ? EPOLLIN : 0);
}

static void test_events_that_epoll_does_not_change_are_those_that_were_asked_for(void)
{
	begin();
	atomic_store(&refuse_mod, true);
	unsigned before = atomic_load(&refused);
	thread_call(t.thread, mute_here, NULL);
	CU_ASSERT_EQUAL(atomic_load(&refused), before + 1);
	put(t.fd[0], 1);
	put(t.fd[1], 2);
	CU_ASSERT_TRUE(all_are_watched()); /* epoll takes it anew */
	CU_ASSERT_TRUE(reaches(&t.sum, 2));
	atomic_store(&refuse_add, true);
	thread_call(t.thread, mute_here, "no more");
	CU_ASSERT_TRUE(reaches(&t.sum, 3));
	thread_call(t.thread, mute_here, NULL); /* while it is refused */
	put(t.fd[0], 1);
	put(t.fd[1], 2);
	CU_ASSERT_TRUE(reaches(&t.sum, 5));
	thread_call(t.thread, mute_here, "no more");
	CU_ASSERT_TRUE(reaches(&t.sum, 6));
	atomic_store(&refuse_mod, false);
	atomic_store(&refuse_add, false);
	CU_ASSERT_TRUE(all_are_watched());
	end();
}

static void test_refused_descriptors_may_be_removed_by_each_other_and_at_the_end(void)
{
	begin();
	t.remove_all = true;
	atomic_store(&refuse_add, true);
	for (unsigned i = 0; i < SOURCES; i++) {
		put(t.fd[i], 1);
	}
	/* the worker may serve one of them before it moves */
	move_to(3);
	CU_ASSERT_TRUE(reaches(&t.sum, 1));
	CU_ASSERT_EQUAL(counts().refused, 1); /* the poller's */
	CU_ASSERT_EQUAL(atomic_load(&t.calls), 1);
	end();
	atomic_store(&refuse_add, false);
}

static void test_owner_of_a_descriptor_that_is_none_any_more_is_told_of_an_error(void)
{
	begin();
	atomic_store(&refuse_add, true);
	move_to(1);
	close(t.fd[2]);
	uint64_t deadline = env_ticks() + env_us_to_ticks(WAIT_US);
	while (atomic_load(&t.ends) == 0 && env_ticks() < deadline) {
		sched_yield();
	}
	CU_ASSERT_EQUAL(atomic_load(&t.ends), 1);
	t.fd[2] = eventfd(0, EFD_NONBLOCK);
	atomic_store(&refuse_add, false);
	CU_ASSERT_TRUE(all_are_watched());
	end();
}

static const struct unit_test tests[] = {
	UNIT(test_events_of_descriptors_that_a_move_has_cost_arrive),
	UNIT(test_events_that_epoll_does_not_change_are_those_that_were_asked_for),
	UNIT(test_refused_descriptors_may_be_removed_by_each_other_and_at_the_end),
	UNIT(test_owner_of_a_descriptor_that_is_none_any_more_is_told_of_an_error),
	UNIT_END,
};
UNIT_MAIN("thread_fd", tests, fixture_start, fixture_stop)
