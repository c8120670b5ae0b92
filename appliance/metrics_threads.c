/* SPDX-License-Identifier: BSD-3-Clause */
/* Metrics of reactors, threads and pollers. */
#include "appliance/metrics_collect.h"
#include "env_dpdk/env.h"
#include "thread/thread.h"

/* ---- Reactors ---- */

#define REACTOR(name_, type_, unit_, member_, help_)                                                                   \
	METRIC("varve_reactor_" name_, type_, unit_, struct reactor_stats, member_, help_)
static const struct metric reactor_families[] = {
	REACTOR("busy_seconds_total", METRICS_COUNTER, METRICS_TICKS, busy_ticks,
		"Time in which the reactor found work."),
	REACTOR("idle_seconds_total", METRICS_COUNTER, METRICS_TICKS, idle_ticks,
		"Time in which it found none, or slept."),
	REACTOR("user_seconds_total", METRICS_COUNTER, METRICS_JIFFIES, usr_jiffies, "Time of its core in programs."),
	REACTOR("system_seconds_total", METRICS_COUNTER, METRICS_JIFFIES, sys_jiffies,
		"Time of its core in the kernel."),
	REACTOR("interrupt_seconds_total", METRICS_COUNTER, METRICS_JIFFIES, irq_jiffies,
		"Time of its core in interrupts."),
	REACTOR("sleeps_total", METRICS_COUNTER, METRICS_PLAIN, sleeps, "How often it went to sleep."),
	REACTOR("sleeping", METRICS_GAUGE, METRICS_PLAIN, sleeping, "1 if it was asleep when it was asked."),
};

void metrics_collect_reactors(struct metrics_text *m)
{
	struct reactor_stats *list = collect_array(env_lcore_count(), sizeof(*list));
	char lcore[COLLECT_NUMBER_MAX];
	unsigned n = 0, id;

	if (list == NULL) {
		return;
	}
	ENV_FOREACH_LCORE (id) {
		if (n < env_lcore_count() && reactor_get_stats(id, &list[n]) == 0) {
			n++;
		}
	}
	for (size_t f = 0; f < ARRAY_SIZE(reactor_families); f++) {
		metrics_begin(m, &reactor_families[f]);
		for (unsigned i = 0; i < n; i++) {
			metrics_sample(m, &reactor_families[f], &list[i], "lcore", collect_number(lcore, list[i].lcore),
				       NULL);
		}
	}
	free(list);
}

/* ---- Threads ---- */

struct one_thread {
	struct thread_stats stats;
	struct poller_stats *pollers;
	int n_pollers;
	char id[COLLECT_NUMBER_MAX];
};

#define THREAD(name_, type_, unit_, member_, help_)                                                                    \
	METRIC("varve_thread_" name_, type_, unit_, struct thread_stats, member_, help_)
static const struct metric thread_families[] = {
	THREAD("busy_seconds_total", METRICS_COUNTER, METRICS_TICKS, busy_ticks, "Time in which the thread had work."),
	THREAD("idle_seconds_total", METRICS_COUNTER, METRICS_TICKS, idle_ticks, "Time in which it had none."),
	THREAD("pending_messages", METRICS_GAUGE, METRICS_PLAIN, pending_messages, "Messages that it has not run yet."),
	THREAD("channels", METRICS_GAUGE, METRICS_PLAIN, channels, "Its channels to devices."),
	THREAD("timers", METRICS_GAUGE, METRICS_PLAIN, timers, "Its timers."),
};
static const struct metric thread_lcore = THREAD("lcore", METRICS_GAUGE, METRICS_PLAIN, lcore,
						 "The reactor that it is on; the control thread is on none.");

static void collect_thread_families(struct metrics_text *m, const struct one_thread *t, size_t n)
{
	for (size_t f = 0; f < ARRAY_SIZE(thread_families); f++) {
		metrics_begin(m, &thread_families[f]);
		for (size_t i = 0; i < n; i++) {
			metrics_sample(m, &thread_families[f], &t[i].stats, "thread", t[i].stats.name, "id", t[i].id,
				       NULL);
		}
	}
}

static void collect_thread_places(struct metrics_text *m, const struct one_thread *t, size_t n)
{
	metrics_begin(m, &thread_lcore);
	for (size_t i = 0; i < n; i++) {
		if (t[i].stats.lcore != ENV_LCORE_NONE) {
			metrics_sample(m, &thread_lcore, &t[i].stats, "thread", t[i].stats.name, "id", t[i].id, NULL);
		}
	}
	metrics_family(m, "varve_thread_pollers", METRICS_GAUGE, "Its pollers by kind.");
	for (size_t i = 0; i < n; i++) {
		const struct thread_stats *s = &t[i].stats;
		metrics_uint(m, s->active_pollers, "thread", s->name, "id", t[i].id, "kind", "active", NULL);
		metrics_uint(m, s->timed_pollers, "thread", s->name, "id", t[i].id, "kind", "timed", NULL);
		metrics_uint(m, s->paused_pollers, "thread", s->name, "id", t[i].id, "kind", "paused", NULL);
	}
}

/* ---- Pollers ---- */

#define POLLER(name_, type_, unit_, member_, help_)                                                                    \
	METRIC("varve_poller_" name_, type_, unit_, struct poller_stats, member_, help_)
static const struct metric poller_families[] = {
	POLLER("runs_total", METRICS_COUNTER, METRICS_PLAIN, run_count, "How often the poller ran."),
	POLLER("busy_runs_total", METRICS_COUNTER, METRICS_PLAIN, busy_count, "How often it found work."),
	POLLER("seconds_total", METRICS_COUNTER, METRICS_TICKS, ticks,
	       "Time in it; for those that run in every round an estimate."),
};
static const struct metric poller_period = POLLER("period_seconds", METRICS_GAUGE, METRICS_TICKS, period_ticks,
						  "How often the poller is to run; 0: in every round.");

static void collect_poller_family(struct metrics_text *m, const struct metric *family, const struct one_thread *t,
				  size_t n)
{
	char id[COLLECT_NUMBER_MAX];

	metrics_begin(m, family);
	for (size_t i = 0; i < n; i++) {
		for (int k = 0; k < t[i].n_pollers; k++) {
			const struct poller_stats *p = &t[i].pollers[k];
			metrics_sample(m, family, p, "thread", t[i].stats.name, "thread_id", t[i].id, "poller", p->name,
				       "id", collect_number(id, p->id), NULL);
		}
	}
}

static void collect_poller_periods(struct metrics_text *m, const struct one_thread *t, size_t n)
{
	static const char *const kinds[] = {
		[POLLER_KIND_ACTIVE] = "active", [POLLER_KIND_TIMED] = "timed", [POLLER_KIND_PAUSED] = "paused"};
	char id[COLLECT_NUMBER_MAX];

	metrics_begin(m, &poller_period);
	for (size_t i = 0; i < n; i++) {
		for (int k = 0; k < t[i].n_pollers; k++) {
			const struct poller_stats *p = &t[i].pollers[k];
			metrics_sample(m, &poller_period, p, "thread", t[i].stats.name, "thread_id", t[i].id, "poller",
				       p->name, "id", collect_number(id, p->id), "kind", kinds[p->kind], NULL);
		}
	}
}

void metrics_collect_threads(struct metrics_text *m)
{
	size_t room = 0, n = 0;

	for (struct thread *t = NULL; (t = thread_next(t)) != NULL;) {
		room++;
	}
	struct one_thread *list = collect_array(room, sizeof(*list));
	for (struct thread *t = NULL; list != NULL && n < room && (t = thread_next(t)) != NULL; n++) {
		thread_get_stats(t, &list[n].stats);
		list[n].n_pollers = thread_get_pollers(t, &list[n].pollers);
		collect_number(list[n].id, list[n].stats.id);
	}
	collect_thread_families(m, list, n);
	collect_thread_places(m, list, n);
	for (size_t f = 0; f < ARRAY_SIZE(poller_families); f++) {
		collect_poller_family(m, &poller_families[f], list, n);
	}
	collect_poller_periods(m, list, n);
	for (size_t i = 0; i < n; i++) {
		if (list[i].n_pollers > 0) {
			free(list[i].pollers);
		}
	}
	free(list);
}
