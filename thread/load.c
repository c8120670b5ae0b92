/* SPDX-License-Identifier: BSD-3-Clause */
/* How busy reactors and threads are, recorded once a second while a tracepoint for it is enabled: so a trace or a black
 * box tells which reactor was overloaded before something happened. */
#include "thread/thread_internal.h"

#include <inttypes.h>
#include <stdio.h>

#include "trace/trace.h"

#define LOAD_PERIOD_US UINT64_C(1000000)

static struct thread_timer load_timer; /* the control thread's; runs while load_is_wanted() */

static bool load_is_wanted(void)
{
	return TRACE_ENABLED(SCHEDULER_PERIOD_START) || TRACE_ENABLED(SCHEDULER_CORE_STATS) ||
	       TRACE_ENABLED(SCHEDULER_THREAD_STATS);
}

/* On a reactor, between two of its rounds. */
static void reactor_load_record(void *arg)
{
	const bool *first = arg;
	struct reactor *r = reactor_self;
	struct thread *t;

	if (!*first) {
		TRACE(SCHEDULER_CORE_STATS, r->trace_owner, 0, 0, r->busy_ticks - r->load_busy_ticks,
		      r->idle_ticks - r->load_idle_ticks);
	}
	r->load_busy_ticks = r->busy_ticks;
	r->load_idle_ticks = r->idle_ticks;
	TAILQ_FOREACH (t, &r->threads, reactor_link) {
		if (!*first) {
			TRACE(SCHEDULER_THREAD_STATS, t->trace_owner, 0, (uintptr_t)t,
			      t->busy_ticks - t->load_busy_ticks, t->idle_ticks - t->load_idle_ticks);
		}
		t->load_busy_ticks = t->busy_ticks;
		t->load_idle_ticks = t->idle_ticks;
	}
}

static void reactor_owner_register(struct reactor *r)
{
	char name[32];

	snprintf(name, sizeof(name), r->control ? "control" : "reactor_%u", r->lcore);
	r->trace_owner = trace_owner_register(TRACE_OWNER_REACTOR, name);
}

/* first: sets from when the next one counts, and records nothing. Control thread. */
static void load_collect(bool first)
{
	struct reactor *r;

	if (!first) {
		TRACE(SCHEDULER_PERIOD_START, 0, 0, 0);
	}
	for (unsigned i = 0; (r = reactor_by_index(i)) != NULL; i++) {
		if (r->trace_owner == 0) {
			reactor_owner_register(r);
		}
		reactor_call(r, reactor_load_record, &first);
	}
}

static void load_timer_fired(void *arg)
{
	if (load_is_wanted()) {
		load_collect(false);
		thread_timer_start(&load_timer, LOAD_PERIOD_US);
	}
}

static void load_begin(void *arg)
{
	if (load_timer.fn != NULL && !load_timer.running && load_is_wanted()) {
		load_collect(true);
		thread_timer_start(&load_timer, LOAD_PERIOD_US);
	}
}

/* On whichever thread changed the masks, which may be one that must not wait for reactors. If the control thread's ring
 * of messages is full, the group stays silent until the next change. */
static void load_masks_changed(void)
{
	if (load_is_wanted()) {
		thread_send(thread_control(), load_begin, NULL);
	}
}

void load_start(void)
{
	load_timer = (struct thread_timer){.fn = load_timer_fired};
	trace_set_masks_hook(load_masks_changed);
	load_masks_changed();
}

void load_stop(void)
{
	struct reactor *r;

	trace_set_masks_hook(NULL);
	thread_timer_stop(&load_timer);
	load_timer.fn = NULL;
	for (unsigned i = 0; (r = reactor_by_index(i)) != NULL; i++) {
		if (r->trace_owner != 0) {
			trace_owner_release(r->trace_owner);
		}
	}
}
