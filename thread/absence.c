/* SPDX-License-Identifier: BSD-3-Clause */
/* Absence: a reactor finds out that it did not run for a time, because its process was stopped, its virtual machine
 * paused, or its memory swapped out, and tells the threads that watch for it before it does anything else.
 *
 * A reactor reads the clock once per thread and round, and compares with the last reading. It looks there, and
 * where a poller or a queue asks for it (thread_absence_check()), so an absence is noticed wherever in a round it
 * began. A reactor that sleeps is not absent as long as it wakes in time: while one of its threads watches, it sleeps
 * for THREAD_ABSENCE_MIN_US at most, and compares the time with that at which it was to wake. */
#include "thread/thread_internal.h"

uint64_t absence_min_ticks;

void absence_init(void)
{
	absence_min_ticks = env_us_to_ticks(THREAD_ABSENCE_MIN_US);
}

void thread_absence_watch(struct thread_absence *w)
{
	SLIST_INSERT_HEAD(&thread_self->absences, w, link);
}

void thread_absence_unwatch(struct thread_absence *w)
{
	SLIST_REMOVE(&thread_self->absences, w, thread_absence, link);
}

static void thread_tell_absence(struct thread *t, uint64_t ticks)
{
	struct thread *self = thread_self;
	struct thread_absence *w, *next;

	thread_self = t;
	for (w = SLIST_FIRST(&t->absences); w != NULL; w = next) {
		next = SLIST_NEXT(w, link);
		w->fn(w->arg, env_ticks_to_ns(ticks) / 1000);
	}
	thread_self = self;
}

void reactor_tell_absence(struct reactor *r, uint64_t ticks)
{
	bool in_round = r->in_round;
	bool time_stands = thread_round_ticks != 0;
	struct thread *t;

	reactor_enter_round(r);
	TAILQ_FOREACH (t, &r->threads, reactor_link) {
		thread_tell_absence(t, ticks);
	}
	r->in_round = in_round;
	thread_round_ticks = time_stands ? r->now : 0; /* an absence within this one has moved it on */
}

void thread_tell_absence_of_move(struct thread *t)
{
	uint64_t ticks = env_ticks() - t->left_ticks;

	if (t->left_ticks != 0 && ticks > absence_min_ticks) {
		thread_tell_absence(t, ticks);
	}
	t->left_ticks = 0;
}

void thread_absence_check(void)
{
	struct reactor *r = reactor_self;
	uint64_t now = env_ticks();

	if (unlikely(r != NULL && now - r->now > absence_min_ticks)) {
		uint64_t ticks = now - r->now;
		__atomic_store_n(&r->now, now, __ATOMIC_RELAXED);
		thread_round_ticks = thread_round_ticks != 0 ? now : 0;
		r->idle_ticks += ticks;
		reactor_tell_absence(r, ticks);
	}
}

bool reactor_watches_absence(const struct reactor *r)
{
	const struct thread *t;

	TAILQ_FOREACH (t, &r->threads, reactor_link) {
		if (!SLIST_EMPTY(&t->absences)) {
			return true;
		}
	}
	return false;
}

uint64_t absence_of_sleep(uint64_t fell_asleep, uint64_t deadline, uint64_t woke)
{
	return deadline != UINT64_MAX && woke > deadline && woke - deadline > absence_min_ticks ? woke - fell_asleep
												: 0;
}
