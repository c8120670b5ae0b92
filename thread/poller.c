/* SPDX-License-Identifier: BSD-3-Clause */
/* Pollers. Those that run in every round are on their thread's active list; those with a period are timers. A poller
 * may unregister or pause itself or any other; therefore none leaves the active list while the loop is on it. The loop
 * skips pollers that are not active, and pollers_sweep() moves them to their lists afterwards. */
#include "thread/thread_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "util/log.h"

#define SAMPLE_ROUNDS 256

static bool poller_is_sleepless(const struct poller *p)
{
	return p->period_ticks == 0 && p->fd < 0;
}

static void poller_count(struct poller *p, int rc)
{
	p->run_count++;
	p->busy_count += rc != POLLER_IDLE;
}

static void poller_source_fired(void *arg, uint32_t events)
{
	/* The descriptor only woke the reactor; the poller looks for its work in the round that follows. */
}

static void poller_fire(void *arg)
{
	struct poller *p = arg;
	uint64_t due = p->timer.deadline, before = env_ticks();

	p->running = true;
	int rc = p->fn(p->ctx);
	p->running = false;
	uint64_t now = env_ticks();
	poller_count(p, rc);
	p->ticks += now - before;
	if (p->state == POLLER_GONE) {
		free(p);
	} else if (p->state == POLLER_ACTIVE && !p->timer.running) {
		/* Keeps in step with the period, unless a whole period was missed. */
		uint64_t next = due + p->period_ticks;
		timer_start_at(&p->timer, next > now ? next : now + p->period_ticks);
	}
}

static void poller_enter(struct poller *p)
{
	struct thread *t = p->thread;

	p->state = POLLER_ACTIVE;
	if (p->period_ticks != 0) {
		TAILQ_INSERT_TAIL(&t->timed, p, link);
		timer_start_at(&p->timer, env_ticks() + p->period_ticks);
		return;
	}
	if (p->fd >= 0) {
		p->source = fd_source_add_for(t, p->fd, EPOLLIN, poller_source_fired, p, p->name, false);
		if (p->source == NULL) {
			log_limited(
				LOG_LEVEL_WARNING,
				"poller %s: its descriptor cannot be watched: thread %s polls for it without sleeping",
				p->name, t->name);
			p->fd = -1;
		}
	}
	t->sleepless += poller_is_sleepless(p);
	if (!p->in_active) {
		p->in_active = true;
		TAILQ_INSERT_TAIL(&t->active, p, link);
	}
}

/* Puts a poller that is not active any more on the paused list, or frees it. */
static void poller_settle(struct poller *p)
{
	if (p->state == POLLER_PAUSED) {
		TAILQ_INSERT_TAIL(&p->thread->paused, p, link);
	} else if (!p->running) {
		free(p);
	}
}

static void pollers_sweep(struct thread *t)
{
	struct poller *p, *next;

	t->poller_changes = false;
	for (p = TAILQ_FIRST(&t->active); p != NULL; p = next) {
		next = TAILQ_NEXT(p, link);
		if (p->state != POLLER_ACTIVE) {
			TAILQ_REMOVE(&t->active, p, link);
			p->in_active = false;
			poller_settle(p);
		}
	}
}

/* Takes an active poller to the state paused or gone. */
static void poller_leave(struct poller *p, enum poller_state state)
{
	struct thread *t = p->thread;

	p->state = state;
	if (p->period_ticks != 0) {
		thread_timer_stop(&p->timer);
		TAILQ_REMOVE(&t->timed, p, link);
		poller_settle(p);
		return;
	}
	t->sleepless -= poller_is_sleepless(p);
	if (p->source != NULL) {
		fd_source_remove(&p->source);
	}
	t->poller_changes = true;
	if (!t->iterating) {
		pollers_sweep(t);
	}
}

struct poller *poller_register(const struct poller_opts *opts)
{
	struct thread *t = thread_self;
	struct poller *p = aligned_alloc(RTE_CACHE_LINE_SIZE, sizeof(*p));

	assert(t != NULL);
	if (p == NULL) {
		errno = ENOMEM;
		return NULL;
	}
	memset(p, 0, sizeof(*p));
	p->fn = opts->fn;
	p->ctx = opts->ctx;
	p->arm = opts->arm;
	p->fd = opts->period_us == 0 ? opts->fd : -1;
	p->period_ticks = env_us_to_ticks(opts->period_us);
	p->timer = (struct thread_timer){.fn = poller_fire, .arg = p};
	p->thread = t;
	p->id = ++t->last_poller_id;
	snprintf(p->name, sizeof(p->name), "%s", opts->name);
	poller_enter(p);
	return p;
}

void poller_unregister(struct poller **pp)
{
	struct poller *p = *pp;

	if (p == NULL) {
		return;
	}
	assert(p->thread == thread_self && p->state != POLLER_GONE);
	*pp = NULL;
	if (p->state == POLLER_ACTIVE) {
		poller_leave(p, POLLER_GONE);
		return;
	}
	p->state = POLLER_GONE;
	if (!p->in_active) { /* otherwise pollers_sweep() frees it */
		TAILQ_REMOVE(&p->thread->paused, p, link);
		poller_settle(p);
	}
}

void poller_pause(struct poller *p)
{
	assert(p->thread == thread_self);
	if (p->state == POLLER_ACTIVE) {
		poller_leave(p, POLLER_PAUSED);
	}
}

void poller_resume(struct poller *p)
{
	assert(p->thread == thread_self);
	if (p->state == POLLER_PAUSED) {
		if (!p->in_active) {
			TAILQ_REMOVE(&p->thread->paused, p, link);
		}
		poller_enter(p);
	}
}

static unsigned pollers_run_sampled(struct thread *t)
{
	struct poller *p;
	unsigned busy = 0;
	uint64_t before = env_ticks();

	TAILQ_FOREACH (p, &t->active, link) {
		if (p->state == POLLER_ACTIVE) {
			int rc = p->fn(p->ctx);
			uint64_t now = env_ticks();
			poller_count(p, rc);
			p->ticks += (now - before) * SAMPLE_ROUNDS;
			before = now;
			busy += rc != POLLER_IDLE;
		}
	}
	return busy;
}

/* Calls the active pollers of t. Returns how many found work. */
unsigned pollers_run(struct thread *t, bool sample)
{
	struct poller *p;
	unsigned busy = 0;

	t->iterating = true;
	if (unlikely(sample)) {
		busy = pollers_run_sampled(t);
	} else {
		TAILQ_FOREACH (p, &t->active, link) {
			if (likely(p->state == POLLER_ACTIVE)) {
				int rc = p->fn(p->ctx);
				poller_count(p, rc);
				busy += rc != POLLER_IDLE;
			}
		}
	}
	t->iterating = false;
	if (unlikely(t->poller_changes)) {
		pollers_sweep(t);
	}
	return busy;
}

bool pollers_arm(struct thread *t)
{
	struct poller *p;
	bool work = false;

	t->iterating = true;
	TAILQ_FOREACH (p, &t->active, link) {
		if (p->state == POLLER_ACTIVE && p->arm != NULL && p->arm(p->ctx)) {
			work = true;
			break;
		}
	}
	t->iterating = false;
	if (unlikely(t->poller_changes)) {
		pollers_sweep(t);
	}
	return work;
}
