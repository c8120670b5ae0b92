/* SPDX-License-Identifier: BSD-3-Clause */
/* Statistics. Those of a thread are collected on it. */
#include "thread/thread_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <rte_ring.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "env_dpdk/startup.h"
#include "util/log.h"

/* A list whose length is not known before. The collecting function stores up to `capacity` items and counts all; if
 * there are more, the control thread allocates more room and asks again. */
struct answer {
	void *items;
	size_t capacity, count;
};

static int answer_collect(struct thread *t, thread_fn fn, size_t item_size, void **items)
{
	struct answer a = {.count = 8};

	do {
		free(a.items);
		a.capacity = a.count;
		a.items = calloc(a.capacity, item_size);
		if (a.items == NULL) {
			return -ENOMEM;
		}
		a.count = 0;
		thread_call(t, fn, &a);
	} while (a.count > a.capacity);
	if (a.count == 0) {
		free(a.items);
		a.items = NULL;
	}
	*items = a.items;
	return (int)a.count;
}

static uint32_t pollers_count(const struct poller_list *list)
{
	const struct poller *p;
	uint32_t n = 0;

	TAILQ_FOREACH (p, list, link) {
		n++;
	}
	return n;
}

static void thread_collect(void *arg)
{
	struct thread_stats *s = arg;
	struct thread *t = thread_self;
	struct io_channel *ch;
	struct fd_source *f;

	s->lcore = reactor_self->lcore;
	s->busy_ticks = t->busy_ticks;
	s->idle_ticks = t->idle_ticks;
	s->active_pollers = pollers_count(&t->active);
	s->timed_pollers = pollers_count(&t->timed);
	s->paused_pollers = pollers_count(&t->paused);
	s->timers = (uint32_t)t->timer_count - s->timed_pollers;
	s->pending_messages = rte_ring_count(t->ring);
	TAILQ_FOREACH (ch, &t->channels, link) {
		s->channels++;
	}
	TAILQ_FOREACH (f, &t->sources, link) {
		s->descriptors += f->counted;
	}
}

void thread_get_stats(struct thread *t, struct thread_stats *stats)
{
	memset(stats, 0, sizeof(*stats));
	memcpy(stats->name, t->name, sizeof(stats->name));
	stats->id = t->id;
	stats->cpumask = t->mask;
	thread_call(t, thread_collect, stats);
}

static void pollers_add(struct answer *a, const struct poller_list *list, enum poller_kind kind)
{
	const struct poller *p;

	TAILQ_FOREACH (p, list, link) {
		if (a->count < a->capacity) {
			struct poller_stats *s = (struct poller_stats *)a->items + a->count;
			*s = (struct poller_stats){.id = p->id,
						   .kind = kind,
						   .run_count = p->run_count,
						   .busy_count = p->busy_count,
						   .period_ticks = p->period_ticks,
						   .ticks = p->ticks};
			memcpy(s->name, p->name, sizeof(s->name));
		}
		a->count++;
	}
}

static void pollers_collect(void *arg)
{
	pollers_add(arg, &thread_self->active, POLLER_KIND_ACTIVE);
	pollers_add(arg, &thread_self->timed, POLLER_KIND_TIMED);
	pollers_add(arg, &thread_self->paused, POLLER_KIND_PAUSED);
}

int thread_get_pollers(struct thread *t, struct poller_stats **stats)
{
	return answer_collect(t, pollers_collect, sizeof(**stats), (void **)stats);
}

static void channels_collect(void *arg)
{
	struct answer *a = arg;
	const struct io_channel *ch;

	TAILQ_FOREACH (ch, &thread_self->channels, link) {
		if (a->count < a->capacity) {
			struct io_channel_stats *s = (struct io_channel_stats *)a->items + a->count;
			snprintf(s->name, sizeof(s->name), "%s", ch->dev->name);
			s->refs = ch->refs;
		}
		a->count++;
	}
}

int thread_get_io_channels(struct thread *t, struct io_channel_stats **stats)
{
	return answer_collect(t, channels_collect, sizeof(**stats), (void **)stats);
}

/* /proc/stat: "cpu0 user nice system idle iowait irq softirq ...", in jiffies. */
static void cpu_collect(uint32_t cpu, struct reactor_stats *stats)
{
	char line[256];
	unsigned number;
	uint64_t usr, sys, irq, softirq;
	FILE *f = fopen("/proc/stat", "re");

	if (f == NULL) {
		log_limited(LOG_LEVEL_WARNING, "/proc/stat: %s; the system's share of CPU %u is shown as 0",
			    strerror(errno), cpu);
	}
	while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
		if (sscanf(line, "cpu%u %" SCNu64 " %*u %" SCNu64 " %*u %*u %" SCNu64 " %" SCNu64, &number, &usr, &sys,
			   &irq, &softirq) == 5 &&
		    number == cpu) {
			stats->usr_jiffies = usr;
			stats->sys_jiffies = sys;
			stats->irq_jiffies = irq + softirq;
		}
	}
	if (f != NULL) {
		fclose(f);
	}
}

static void reactor_collect(void *arg)
{
	struct reactor_stats *s = arg;

	s->tid = reactor_self->tid;
	s->busy_ticks = reactor_self->busy_ticks;
	s->idle_ticks = reactor_self->idle_ticks;
	s->sleeps = reactor_self->sleeps;
}

int reactor_get_progress(uint32_t index, struct reactor_progress *p)
{
	struct reactor *r = reactor_by_index(index);

	if (r == NULL || r->control) {
		return -ENODEV;
	}
	p->lcore = r->lcore;
	p->tid = r->tid;
	p->round_ticks = __atomic_load_n(&r->now, __ATOMIC_RELAXED);
	p->sleeping = __atomic_load_n(&r->sleeping, __ATOMIC_RELAXED) != 0;
	return 0;
}

void reactor_wake(uint32_t index)
{
	struct reactor *r = reactor_by_index(index);

	if (r != NULL) {
		reactor_notify(r);
	}
}

int reactor_get_stats(uint32_t lcore, struct reactor_stats *stats)
{
	struct reactor *r = NULL;

	memset(stats, 0, sizeof(*stats));
	stats->lcore = lcore;
	for (unsigned i = 0; (r = reactor_by_index(i)) != NULL && r->lcore != lcore; i++) {
	}
	if (r == NULL || r->control) {
		return -ENODEV;
	}
	stats->sleeping = __atomic_load_n(&r->sleeping, __ATOMIC_RELAXED) != 0;
	reactor_call(r, reactor_collect, stats);
	int cpu = env_lcore_cpu(lcore);
	if (cpu >= 0) {
		cpu_collect((uint32_t)cpu, stats);
	}
	return 0;
}
