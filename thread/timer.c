/* SPDX-License-Identifier: BSD-3-Clause */
/* One-shot timers: a pairing heap per thread, whose links are in the timers. So starting a timer allocates nothing and
 * cannot fail. */
#include "thread/thread_internal.h"

#include "usdt/usdt.h"
#include <assert.h>
#include <stddef.h>

/* Merges two heaps, given by their roots: the later root becomes the first child of the other. */
static struct thread_timer *timers_merge(struct thread_timer *a, struct thread_timer *b)
{
	if (b->deadline < a->deadline) {
		struct thread_timer *first = b;
		b = a;
		a = first;
	}
	b->prev = a;
	b->next = a->child;
	if (b->next != NULL) {
		b->next->prev = b;
	}
	a->child = b;
	return a;
}

/* Merges siblings into one heap: first in pairs, then the pairs with each other. This order makes removal logarithmic
 * on average. */
static struct thread_timer *timers_combine(struct thread_timer *list)
{
	struct thread_timer *pairs = NULL, *root;

	while (list != NULL) {
		struct thread_timer *a = list, *b = a->next;

		list = b != NULL ? b->next : NULL;
		a = b != NULL ? timers_merge(a, b) : a;
		a->next = pairs;
		pairs = a;
	}
	if ((root = pairs) == NULL) {
		return NULL;
	}
	for (pairs = root->next; pairs != NULL;) {
		struct thread_timer *more = pairs->next;

		root = timers_merge(root, pairs);
		pairs = more;
	}
	root->next = root->prev = NULL;
	return root;
}

static void timer_insert(struct thread *t, struct thread_timer *timer)
{
	timer->child = timer->next = timer->prev = NULL;
	t->timers = t->timers != NULL ? timers_merge(t->timers, timer) : timer;
	t->timers->next = t->timers->prev = NULL;
}

static void timer_take_out(struct thread *t, struct thread_timer *timer)
{
	struct thread_timer *below = timers_combine(timer->child);

	if (timer == t->timers) {
		t->timers = below;
		return;
	}
	if (timer->prev->child == timer) {
		timer->prev->child = timer->next;
	} else {
		timer->prev->next = timer->next;
	}
	if (timer->next != NULL) {
		timer->next->prev = timer->prev;
	}
	if (below != NULL) {
		t->timers = timers_merge(t->timers, below);
		t->timers->next = t->timers->prev = NULL;
	}
}

void timer_start_at(struct thread_timer *timer, uint64_t deadline)
{
	struct thread *t = thread_self;

	assert(t != NULL);
	thread_timer_stop(timer);
	timer->deadline = deadline;
	timer->running = true;
	t->timer_count++;
	timer_insert(t, timer);
}

void thread_timer_start(struct thread_timer *timer, uint64_t delay_us)
{
	/* Not thread_now(), with which a timer that is started in a long round would fire early. */
	uint64_t now = reactor_self != NULL ? reactor_read_clock(reactor_self) : env_ticks();
	uint64_t delay = env_us_to_ticks(delay_us);

	timer_start_at(timer, delay < UINT64_MAX - now ? now + delay : UINT64_MAX);
}

void thread_timer_stop(struct thread_timer *timer)
{
	struct thread *t = thread_self;

	if (!timer->running) {
		return;
	}
	assert(t != NULL && t->timers != NULL);
	timer->running = false;
	t->timer_count--;
	timer_take_out(t, timer);
}

bool thread_timer_was_absent(const struct thread_timer *timer, uint64_t timeout_us)
{
	uint64_t now = env_ticks();

	return now > timer->deadline && thread_was_absent(env_ticks_to_ns(now - timer->deadline) / 1000, timeout_us);
}

/* Runs the timers that are due at `now`. One that is started again meanwhile waits for the next round. */
unsigned timers_run(struct thread *t, uint64_t now)
{
	unsigned n = 0;

	while (timers_next(t) <= now) {
		struct thread_timer *timer = t->timers;
		thread_timer_stop(timer);
		USDT(timerfd_exec, timer->fn, timer->arg);
		timer->fn(timer->arg);
		n++;
	}
	return n;
}
