/* SPDX-License-Identifier: BSD-3-Clause */
/* Absence: a reactor finds out that it did not run for a time, because its process was stopped, its virtual machine
 * paused, or its memory swapped out, and tells the threads that watch for it before it does anything else.
 *
 * A reactor reads the clock once per thread and round, and compares with the last reading. It looks there, and
 * where a poller or a queue asks for it (thread_absence_check()), so an absence is noticed wherever in a round it
 * began. A reactor that sleeps is not absent as long as it wakes in time: while one of its threads watches, it sleeps
 * for THREAD_ABSENCE_MIN_US at most, and compares the time with that at which it was to wake.
 *
 * The TSC may stand still while the system is suspended. The kernel knows for how long that was: CLOCK_BOOTTIME is
 * ahead of CLOCK_MONOTONIC by all times of suspension together. To read both in each poll would cost too much, so the
 * coarse clock of the day is read, a few nanoseconds, which the kernel moves on when the system wakes. If it has
 * jumped, the two clocks are read, which nobody sets.
 *
 * The TSC may also begin anew when the system resumes from suspend to RAM, on machines that do not keep it. All times
 * that were taken before would then lie far ahead. So whichever reactor reads a time before its last one has
 * env_ticks() go on from the latest time that any reactor has read. Until then, some microseconds, others may read an
 * earlier time; timers do not. CLOCK_MONOTONIC has to confirm it: if only the TSCs of CPUs differ, time stands still
 * for the reactor until its CPU has caught up. Each minute the control thread notes how the two go together. */
#include "thread/thread_internal.h"

#include "util/compiler.h"
#include "util/log.h"
#include <inttypes.h>
#include <time.h>

#define SECOND_NS      UINT64_C(1000000000)
#define ABSENCE_MIN_NS (THREAD_ABSENCE_MIN_US * 1000)
#define READ_ATTEMPTS  8
#define READ_MAX_NS    UINT64_C(1000000) /* a reading that takes longer was interrupted, and is not exact */

/* TSCs of several CPUs may differ, and a thread may move between CPUs. Less than this is not looked into. */
#define CLOCK_SKEW_MAX_US 1000

#define NOTE_PERIOD_US UINT64_C(60000000)

uint64_t absence_min_ticks;
static struct thread_timer note_timer; /* the control thread's */

void absence_init(void)
{
	absence_min_ticks = env_us_to_ticks(THREAD_ABSENCE_MIN_US);
}

static void note_timer_fired(void *arg)
{
	env_ticks_note();
	thread_timer_start(&note_timer, NOTE_PERIOD_US);
}

void absence_start(void)
{
	note_timer = (struct thread_timer){.fn = note_timer_fired};
	note_timer_fired(NULL);
}

void absence_stop(void)
{
	thread_timer_stop(&note_timer);
}

static uint64_t reactors_latest_time(void)
{
	const struct reactor *r;
	uint64_t latest = 0;

	for (unsigned i = 0; (r = reactor_by_index(i)) != NULL; i++) {
		uint64_t now = __atomic_load_n(&r->now, __ATOMIC_RELAXED);
		latest = now > latest ? now : latest;
	}
	return latest;
}

uint64_t reactor_clock_went_back(const struct reactor *r)
{
	uint64_t now = env_ticks(), latest = reactors_latest_time();

	if (now >= r->now) { /* another reactor was faster */
		return now;
	}
	uint64_t behind = r->now - now;
	if (behind < env_us_to_ticks(CLOCK_SKEW_MAX_US)) {
		return r->now;
	}
	if (env_ticks_go_on(latest)) {
		log_warning("the CPU's time-stamp counter was set back by %" PRIu64
			    " s (resumed from suspend to RAM?): "
			    "timers go on as if it had stood still; times in the trace begin anew",
			    env_ticks_to_ns(behind) / SECOND_NS);
	}
	now = env_ticks();
	return now > r->now ? now : r->now;
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec;
}

/* False: this thread was interrupted each time. */
static bool clock_read_suspended(uint64_t *suspended_ns)
{
	for (int i = 0; i < READ_ATTEMPTS; i++) {
		uint64_t before = clock_ns(CLOCK_MONOTONIC), boot = clock_ns(CLOCK_BOOTTIME);
		uint64_t after = clock_ns(CLOCK_MONOTONIC);
		if (after - before < READ_MAX_NS) {
			*suspended_ns = boot - before;
			return true;
		}
	}
	return false;
}

static void thread_tell_absence(struct thread *t, uint64_t ticks);

/* The clock of the day has jumped, or it was not looked at for a while. Not so exact a reading is repeated by the next
 * look. */
static COLD void thread_check_suspended(struct thread *t, uint64_t looked_ns)
{
	uint64_t before_ns = t->suspended_ns;

	if (!clock_read_suspended(&t->suspended_ns)) {
		return;
	}
	t->looked_ns = looked_ns;
	if (t->suspended_ns > before_ns + ABSENCE_MIN_NS) {
		thread_tell_absence(t, env_us_to_ticks((t->suspended_ns - before_ns) / 1000));
	}
}

static void thread_look_at_suspension(struct thread *t)
{
	uint64_t ns = clock_ns(CLOCK_REALTIME_COARSE);

	if (likely(ns - t->looked_ns < ABSENCE_MIN_NS)) {
		t->looked_ns = ns;
	} else {
		thread_check_suspended(t, ns);
	}
}

void thread_absence_watch(struct thread_absence *w)
{
	if (SLIST_EMPTY(&thread_self->absences)) {
		thread_self->looked_ns = clock_ns(CLOCK_REALTIME_COARSE);
		if (!clock_read_suspended(&thread_self->suspended_ns)) {
			thread_self->suspended_ns = UINT64_MAX - ABSENCE_MIN_NS; /* the first exact reading counts */
			thread_self->looked_ns = 0;
		}
	}
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
	uint64_t now = env_ticks(), left = t->left_ticks;
	uint64_t ticks = now > left ? now - left : 0; /* the TSC of the other CPU may be ahead */

	if (left != 0 && ticks > absence_min_ticks) {
		thread_tell_absence(t, ticks);
	}
	t->left_ticks = 0;
}

void thread_absence_check(void)
{
	struct reactor *r = reactor_self;
	uint64_t now = r != NULL ? reactor_read_clock(r) : 0;

	if (unlikely(r != NULL && now - r->now > absence_min_ticks)) {
		uint64_t ticks = now - r->now;
		__atomic_store_n(&r->now, now, __ATOMIC_RELAXED);
		thread_round_ticks = thread_round_ticks != 0 ? now : 0;
		r->idle_ticks += ticks;
		reactor_tell_absence(r, ticks);
	}
	if (thread_self != NULL && !SLIST_EMPTY(&thread_self->absences)) {
		thread_look_at_suspension(thread_self);
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
