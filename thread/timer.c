/* SPDX-License-Identifier: BSD-3-Clause */
/* One-shot timers: a binary heap per thread, of pointers to the timers in their owners; index 0 stays empty, so that a timer's
 * index is 0 when it is not running. */
#include "thread/thread_internal.h"

#include "util/log.h"
#include "usdt/usdt.h"
#include <assert.h>
#include <stdlib.h>

#define TIMERS_MIN 64

static void heap_put(struct thread *t, size_t i, struct thread_timer *timer)
{
	t->timers[i] = timer;
	timer->heap_index = i;
}

static void heap_up(struct thread *t, size_t i, struct thread_timer *timer)
{
	while (i > 1 && t->timers[i / 2]->deadline > timer->deadline) {
		heap_put(t, i, t->timers[i / 2]);
		i /= 2;
	}
	heap_put(t, i, timer);
}

static void heap_down(struct thread *t, size_t i, struct thread_timer *timer)
{
	for (;;) {
		size_t child = i * 2;
		if (child > t->timer_count) {
			break;
		}
		if (child < t->timer_count && t->timers[child + 1]->deadline < t->timers[child]->deadline) {
			child++;
		}
		if (t->timers[child]->deadline >= timer->deadline) {
			break;
		}
		heap_put(t, i, t->timers[child]);
		i = child;
	}
	heap_put(t, i, timer);
}

static void heap_move(struct thread *t, size_t i, struct thread_timer *timer)
{
	if (i > 1 && t->timers[i / 2]->deadline > timer->deadline) {
		heap_up(t, i, timer);
	} else {
		heap_down(t, i, timer);
	}
}

/* Doubles, so that it is no matter for the I/O path. Without memory for a few pointers nothing else would go on either. */
static void heap_reserve(struct thread *t)
{
	size_t capacity = t->timer_capacity < TIMERS_MIN ? TIMERS_MIN : t->timer_capacity * 2;

	if (t->timer_count + 1 < t->timer_capacity) {
		return;
	}
	struct thread_timer **timers = realloc(t->timers, capacity * sizeof(*timers));
	if (timers == NULL) {
		log_error("out of memory for %zu timers", capacity);
		abort();
	}
	t->timers = timers;
	t->timer_capacity = capacity;
}

void timer_start_at(struct thread_timer *timer, uint64_t deadline)
{
	struct thread *t = thread_self;

	assert(t != NULL);
	timer->deadline = deadline;
	if (timer->heap_index != 0) {
		assert(timer->heap_index <= t->timer_count && t->timers[timer->heap_index] == timer);
		heap_move(t, timer->heap_index, timer);
		return;
	}
	heap_reserve(t);
	heap_up(t, ++t->timer_count, timer);
}

void thread_timer_start(struct thread_timer *timer, uint64_t delay_us)
{
	/* Not thread_now(): in a long round that would fire early. */
	uint64_t now = env_ticks(), delay = env_us_to_ticks(delay_us);

	timer_start_at(timer, delay < UINT64_MAX - now ? now + delay : UINT64_MAX);
}

void thread_timer_stop(struct thread_timer *timer)
{
	struct thread *t = thread_self;
	size_t i = timer->heap_index;

	if (i == 0) {
		return;
	}
	assert(t != NULL && i <= t->timer_count && t->timers[i] == timer);
	timer->heap_index = 0;
	struct thread_timer *last = t->timers[t->timer_count--];
	if (last != timer) {
		heap_move(t, i, last);
	}
}

/* Those that are due at `now`; one that is started again meanwhile waits for the next round. */
unsigned timers_run(struct thread *t, uint64_t now)
{
	unsigned n = 0;

	while (timers_next(t) <= now) {
		struct thread_timer *timer = t->timers[1];
		thread_timer_stop(timer);
		USDT(timerfd_exec, timer->fn, timer->arg);
		timer->fn(timer->arg);
		n++;
	}
	return n;
}
