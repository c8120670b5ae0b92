/* SPDX-License-Identifier: BSD-3-Clause */
/* Views of CPU time: reactors, threads, pollers. */
#include <limits.h>
#include <unistd.h>

#include "tools/top/top.h"

#define N(columns_) (sizeof(columns_) / sizeof((columns_)[0]))

/* The share of busy time between two samples; without one before: since the start. */
static double top_busy_percent(const json_t *now, const json_t *before)
{
	double busy = top_number(now, "busy") - top_number(before, "busy");
	double idle = top_number(now, "idle") - top_number(before, "idle");

	return busy >= 0 && idle >= 0 && busy + idle > 0 ? 100 * busy / (busy + idle) : -1;
}

static const json_t *top_member_of(const struct top_sample *s, enum top_answer answer, const char *key)
{
	return s != NULL ? json_object_get(s->answers[answer], key) : NULL;
}

/* ---- Reactors ---- */

static const struct top_column reactor_columns[] = {
	{"LCORE", "lcore", TOP_COUNT, 5},          {"TID", "tid", TOP_COUNT, 8},
	{"BUSY%", "busy_percent", TOP_PERCENT, 6}, {"STATE", "state", TOP_TEXT, 8},
	{"SLEEPS/s", "sleeps_per_s", TOP_RATE, 9}, {"SYS%", "sys_percent", TOP_PERCENT, 6},
	{"IRQ%", "irq_percent", TOP_PERCENT, 6},   {"THREADS", "threads", TOP_COUNT, 7},
	{"NAMES", "thread_names", TOP_TEXT, 40},
};

/* Of the time of a CPU, as the kernel counts it. */
static double top_jiffies_percent(const json_t *now, const json_t *before, const char *key, double seconds)
{
	double rate = top_rate(now, before, key, seconds);

	return rate >= 0 ? 100 * rate / (double)sysconf(_SC_CLK_TCK) : -1;
}

static double top_ticks_percent(const json_t *now, const json_t *before, const char *key, const struct top_sample *s,
				double seconds)
{
	double rate = top_rate(now, before, key, seconds);

	return rate >= 0 && s->tick_rate > 0 ? 100 * rate / (double)s->tick_rate : -1;
}

static void top_thread_names(const json_t *threads, char *to, size_t size)
{
	const json_t *one;
	size_t i, used = 0;

	to[0] = '\0';
	json_array_foreach (threads, i, one) {
		const char *name = top_text(one, "name");
		if (name != NULL && used < size) {
			used += (size_t)snprintf(to + used, size - used, "%s%s", used > 0 ? " " : "", name);
		}
	}
}

static void top_build_reactors(struct top_table *t, const struct top_sample *now, const struct top_sample *before)
{
	const json_t *list = top_member_of(now, TOP_REACTORS, "reactors"),
		     *old = top_member_of(before, TOP_REACTORS, "reactors"), *r;
	double seconds = top_seconds(now, before);
	char names[512];
	size_t i;

	json_array_foreach (list, i, r) {
		const json_t *b = top_same(old, r, "lcore");
		struct top_row *row = top_table_row(t);
		bool asleep = json_is_true(json_object_get(r, "in_interrupt"));
		top_thread_names(json_object_get(r, "lw_threads"), names, sizeof(names));
		top_set(row, 0, top_number(r, "lcore"));
		top_set(row, 1, top_number(r, "tid"));
		top_set(row, 2, top_busy_percent(r, b));
		top_set_text(row, 3, asleep ? "sleeping" : "polling");
		top_set(row, 4, top_rate(r, b, "sleeps", seconds));
		top_set(row, 5, top_jiffies_percent(r, b, "sys", seconds));
		top_set(row, 6, top_jiffies_percent(r, b, "irq", seconds));
		top_set(row, 7, (double)json_array_size(json_object_get(r, "lw_threads")));
		top_set_text(row, 8, names);
	}
}

const struct top_view top_view_reactors = {"reactors", "Reactors", reactor_columns,   N(reactor_columns),
					   UINT_MAX,   1,          top_build_reactors};

/* ---- Threads ---- */

static const struct top_column thread_columns[] = {
	{"THREAD", "name", TOP_TEXT, 28},           {"ID", "id", TOP_COUNT, 5},
	{"LCORE", "lcore", TOP_COUNT, 5},           {"BUSY%", "busy_percent", TOP_PERCENT, 6},
	{"ACTIVE", "active_pollers", TOP_COUNT, 6}, {"TIMED", "timed_pollers", TOP_COUNT, 6},
	{"PAUSED", "paused_pollers", TOP_COUNT, 6}, {"TIMERS", "timers", TOP_COUNT, 6},
	{"CHANNELS", "channels", TOP_COUNT, 8},     {"MESSAGES", "pending_messages", TOP_COUNT, 8},
	{"CPUMASK", "cpumask", TOP_TEXT, 12},
};

static void top_build_threads(struct top_table *t, const struct top_sample *now, const struct top_sample *before)
{
	const json_t *list = top_member_of(now, TOP_THREADS, "threads"),
		     *old = top_member_of(before, TOP_THREADS, "threads"), *one;
	size_t i;

	json_array_foreach (list, i, one) {
		struct top_row *row = top_table_row(t);
		top_set_text(row, 0, top_text(one, "name"));
		top_set(row, 1, top_number(one, "id"));
		top_set(row, 2, json_is_integer(json_object_get(one, "lcore")) ? top_number(one, "lcore") : -1);
		top_set(row, 3, top_busy_percent(one, top_same(old, one, "id")));
		top_set(row, 4, top_number(one, "active_pollers_count"));
		top_set(row, 5, top_number(one, "timed_pollers_count"));
		top_set(row, 6, top_number(one, "paused_pollers_count"));
		top_set(row, 7, top_number(one, "timers_count"));
		top_set(row, 8, top_number(one, "channels_count"));
		top_set(row, 9, top_number(one, "pending_messages"));
		top_set_text(row, 10, top_text(one, "cpumask"));
	}
}

const struct top_view top_view_threads = {"threads", "Threads", thread_columns,   N(thread_columns),
					  3,         3,         top_build_threads};

/* ---- Pollers ---- */

static const struct top_column poller_columns[] = {
	{"POLLER", "name", TOP_TEXT, 28},
	{"THREAD", "thread", TOP_TEXT, 28},
	{"KIND", "kind", TOP_TEXT, 7},
	{"CPU%", "cpu_percent", TOP_PERCENT, 6},
	{"RUNS/s", "runs_per_s", TOP_RATE, 8},
	{"BUSY/s", "busy_per_s", TOP_RATE, 8},
	{"BUSY%", "busy_percent", TOP_PERCENT, 6},
	{"PERIOD", "period_us", TOP_US, 9},
	{"RUNS", "runs", TOP_COUNT, 14},
};

static void top_add_pollers(struct top_table *t, const json_t *thread, const json_t *old_thread, const char *key,
			    const char *kind, const struct top_sample *now, double seconds)
{
	static const char *const lists[] = {"active_pollers", "timed_pollers", "paused_pollers"};
	const json_t *p;
	size_t i;

	json_array_foreach (json_object_get(thread, key), i, p) {
		const json_t *b = NULL;
		for (unsigned k = 0; b == NULL && k < 3; k++) { /* it may have been paused meanwhile */
			b = top_same(json_object_get(old_thread, lists[k]), p, "id");
		}
		double runs = top_rate(p, b, "run_count", seconds), busy = top_rate(p, b, "busy_count", seconds);
		double period = top_number(p, "period_ticks");
		struct top_row *row = top_table_row(t);
		top_set_text(row, 0, top_text(p, "name"));
		top_set_text(row, 1, top_text(thread, "name"));
		top_set_text(row, 2, kind);
		top_set(row, 3, top_ticks_percent(p, b, "ticks", now, seconds));
		top_set(row, 4, runs);
		top_set(row, 5, busy);
		top_set(row, 6, runs > 0 && busy >= 0 ? 100 * busy / runs : -1);
		top_set(row, 7, period > 0 && now->tick_rate > 0 ? 1e6 * period / (double)now->tick_rate : -1);
		top_set(row, 8, top_number(p, "run_count"));
	}
}

static void top_build_pollers(struct top_table *t, const struct top_sample *now, const struct top_sample *before)
{
	const json_t *list = top_member_of(now, TOP_POLLERS, "threads"),
		     *old = top_member_of(before, TOP_POLLERS, "threads"), *one;
	double seconds = top_seconds(now, before);
	size_t i;

	json_array_foreach (list, i, one) {
		const json_t *b = top_same(old, one, "id");
		top_add_pollers(t, one, b, "active_pollers", "active", now, seconds);
		top_add_pollers(t, one, b, "timed_pollers", "timed", now, seconds);
		top_add_pollers(t, one, b, "paused_pollers", "paused", now, seconds);
	}
}

const struct top_view top_view_pollers = {"pollers", "Pollers", poller_columns,   N(poller_columns),
					  3,         7,         top_build_pollers};
