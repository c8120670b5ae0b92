/* SPDX-License-Identifier: BSD-3-Clause */
/* The dynamic scheduler's period: collects what the threads have done, has balance() decide, and moves threads.
 *
 * All of it happens in one callback of the control thread. Threads are created, destroyed and given other masks by the
 * control thread alone, so no thread begins or ends meanwhile, and none is being moved already. A thread that waits, or
 * whose reactor sleeps, is moved like any other: the reactor wakes for it. The control thread itself stays. */
#include "thread/scheduler.h"

#include "thread/governor.h"
#include "thread/thread_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "usdt/usdt.h"
#include "util/log.h"

LOG_FLAG(scheduler)

static struct scheduler_opts options;
static struct thread_timer period_timer; /* the control thread's; runs while the dynamic scheduler is in use */
static uint64_t moves;

/* What one period is decided with. */
struct period {
	struct balance_core *cores;
	struct balance_thread *threads; /* by thread->balance_index */
	unsigned *lcores;               /* of the cores, for the governor */
	enum governor_step *steps;
	unsigned num_cores, num_threads;
};

static unsigned reactors_count(void)
{
	struct reactor *r;
	unsigned n = 0;

	while ((r = reactor_by_index(n)) != NULL && !r->control) {
		n++;
	}
	return n;
}

static unsigned threads_count(void)
{
	unsigned n = 0;

	for (struct thread *t = NULL; (t = thread_next(t)) != NULL;) {
		n += t != thread_control();
	}
	return n;
}

static bool period_alloc(struct period *p)
{
	p->num_cores = reactors_count();
	p->num_threads = threads_count();
	p->cores = calloc(p->num_cores, sizeof(p->cores[0]));
	p->threads = calloc(p->num_threads + 1, sizeof(p->threads[0]));
	p->lcores = calloc(p->num_cores, sizeof(p->lcores[0]));
	p->steps = calloc(p->num_cores, sizeof(p->steps[0]));
	return p->cores != NULL && p->threads != NULL && p->lcores != NULL && p->steps != NULL;
}

static void period_free(struct period *p)
{
	free(p->cores);
	free(p->threads);
	free(p->lcores);
	free(p->steps);
}

/* On a reactor, between two of its rounds. */
static void reactor_ticks_collect(void *arg)
{
	struct period *p = arg;
	struct thread *t;

	TAILQ_FOREACH (t, &reactor_self->threads, reactor_link) {
		struct balance_thread *b = &p->threads[t->balance_index];
		b->busy_ticks = t->busy_ticks - t->balance_busy_ticks;
		b->idle_ticks = t->idle_ticks - t->balance_idle_ticks;
		t->balance_busy_ticks = t->busy_ticks;
		t->balance_idle_ticks = t->idle_ticks;
	}
}

/* A reactor without threads is left asleep. */
static void period_collect(struct period *p)
{
	struct thread *t = NULL;

	for (unsigned i = 0; (t = thread_next(t)) != NULL;) {
		if (t != thread_control()) {
			t->balance_index = i;
			p->threads[i++] = (struct balance_thread){.mask = t->mask,
								  .from = t->reactor->index,
								  .need = t->balance_need,
								  .known = t->balance_known};
		}
	}
	for (unsigned i = 0; i < p->num_cores; i++) {
		struct reactor *r = reactor_by_index(i);
		p->cores[i].lcore = r->lcore;
		p->cores[i].isolated = CPU_ISSET(r->lcore, &options.isolated);
		if (r->assigned > 0) {
			reactor_call(r, reactor_ticks_collect, p);
		}
	}
}

static unsigned core_of_lcore(const struct period *p, unsigned lcore)
{
	unsigned i = 0;

	while (i + 1 < p->num_cores && p->cores[i].lcore != lcore) {
		i++;
	}
	return i;
}

static void period_move(struct period *p)
{
	for (struct thread *t = NULL; (t = thread_next(t)) != NULL;) {
		if (t == thread_control()) {
			continue;
		}
		const struct balance_thread *b = &p->threads[t->balance_index];
		t->balance_need = b->need;
		t->balance_known = b->known;
		if (b->to != b->from) {
			USDT(dynsched_move, t->id, t->name, p->cores[b->from].lcore, p->cores[b->to].lcore);
			log_info(scheduler, "thread %s, which needs %u.%02u %% of a core, moves from core %u to %u",
				 t->name, b->need / 100, b->need % 100, p->cores[b->from].lcore, p->cores[b->to].lcore);
			thread_move(t, reactor_by_index(b->to));
		}
	}
}

/* After the threads have moved. An isolated core is like the others: its threads do not move, but it may be idle. */
static void period_govern(struct period *p)
{
	if (!governor_is_used()) {
		return;
	}
	for (unsigned i = 0; i < p->num_cores; i++) {
		p->lcores[i] = p->cores[i].lcore;
		p->steps[i] = governor_decide(&options.limits, p->cores[i].load, reactor_by_index(i)->assigned);
	}
	governor_apply(p->lcores, p->steps, p->num_cores);
}

/* Whether a reactor is held up in a function. Its threads cannot be asked what they did without waiting for it. */
static bool reactor_is_held_up(const struct reactor *r)
{
	uint64_t round = __atomic_load_n(&r->now, __ATOMIC_RELAXED), now = env_ticks();

	return __atomic_load_n(&r->sleeping, __ATOMIC_RELAXED) == 0 && now > round && now - round > absence_min_ticks;
}

static bool any_reactor_is_held_up(void)
{
	struct reactor *r;

	for (unsigned i = 0; (r = reactor_by_index(i)) != NULL && !r->control; i++) {
		if (r->assigned > 0 && reactor_is_held_up(r)) {
			return true;
		}
	}
	return false;
}

static void period_end(void *arg)
{
	struct period p = {.cores = NULL};

	if (any_reactor_is_held_up()) {
		log_limited(LOG_LEVEL_NOTICE, "a reactor stands still; the scheduler waits until it goes on");
	} else if (period_alloc(&p)) {
		period_collect(&p);
		unsigned n = balance(&options.limits, p.cores, p.num_cores, core_of_lcore(&p, options.gather_lcore),
				     p.threads, p.num_threads);
		period_move(&p);
		period_govern(&p);
		moves += n;
		USDT(dynsched_balance, p.num_threads, n);
	} else {
		log_limited(LOG_LEVEL_WARNING, "the scheduler lacks memory, and leaves all threads where they are");
	}
	period_free(&p);
	thread_timer_start(&period_timer, options.period_us);
}

/* Measurements begin anew. */
static void period_begin(void)
{
	struct period p = {.cores = NULL};

	for (struct thread *t = NULL; (t = thread_next(t)) != NULL;) {
		t->balance_need = 0;
		t->balance_known = false;
	}
	if (period_alloc(&p)) {
		period_collect(&p);
	} /* else the first period's measurements go back to the beginning */
	period_free(&p);
	thread_timer_start(&period_timer, options.period_us);
}

void scheduler_get_opts(struct scheduler_opts *opts)
{
	*opts = options;
}

uint64_t scheduler_moves(void)
{
	return moves;
}

static bool lcore_has_reactor(unsigned lcore)
{
	cpu_set_t mask;

	if (lcore >= CPU_SETSIZE) {
		return false;
	}
	CPU_ZERO(&mask);
	CPU_SET(lcore, &mask);
	return reactor_choose(&mask) != NULL;
}

static bool scheduler_opts_are_valid(const struct scheduler_opts *o)
{
	for (unsigned lcore = 0; lcore < CPU_SETSIZE; lcore++) {
		if (CPU_ISSET(lcore, &o->isolated) && !lcore_has_reactor(lcore)) {
			return false;
		}
	}
	return o->limits.load_limit <= 100 && o->limits.core_limit <= 100 && o->limits.core_busy <= 100 &&
	       o->period_us >= SCHEDULER_PERIOD_MIN_US && o->period_us <= SCHEDULER_PERIOD_MAX_US &&
	       lcore_has_reactor(o->gather_lcore) && !CPU_ISSET(o->gather_lcore, &o->isolated);
}

static void reactor_do_nothing(void *arg)
{
}

/* Reactors that were left without threads, and poll again. */
static void reactors_wake(void)
{
	struct reactor *r;

	for (unsigned i = 0; (r = reactor_by_index(i)) != NULL && !r->control; i++) {
		reactor_call(r, reactor_do_nothing, NULL);
	}
}

int scheduler_set_opts(const struct scheduler_opts *opts)
{
	assert(thread_self == thread_control());
	if (!scheduler_opts_are_valid(opts)) {
		return -EINVAL;
	}
	if (memcmp(&options, opts, sizeof(options)) == 0) {
		return 0; /* periods go on: a script may say the same again and again */
	}
	options = *opts;
	thread_timer_stop(&period_timer);
	reactor_let_empty_sleep(options.kind == SCHEDULER_DYNAMIC);
	if (options.kind == SCHEDULER_DYNAMIC) {
		governor_start();
		period_begin();
	} else {
		governor_stop();
		reactors_wake();
	}
	return 0;
}

void scheduler_start(void)
{
	options = (struct scheduler_opts){.kind = SCHEDULER_STATIC,
					  .period_us = SCHEDULER_PERIOD_DEFAULT_US,
					  .limits = SCHEDULER_LIMITS_DEFAULT,
					  .gather_lcore = env_lcore_next(ENV_LCORE_NONE)};
	period_timer = (struct thread_timer){.fn = period_end};
	moves = 0;
}

void scheduler_stop(void)
{
	reactor_let_empty_sleep(false);
	thread_timer_stop(&period_timer);
	governor_stop();
	thread_monitor_switches(false);
}
