/* SPDX-License-Identifier: BSD-3-Clause */
/* The measurement: filling, running, stopping, and how far it is. */
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "env_dpdk/env.h"
#include "tools/perf/perf.h"
#include "util/log.h"

struct count {
	unsigned opening, wanted, prefilling, outstanding, unconnected;
	struct perf_stats stats;
	uint64_t miscompares, budget;
};

static void perf_count_stream(struct perf_stream *s, void *arg)
{
	struct count *c = arg;

	c->opening += s->opening;
	c->wanted += s->wanted;
	c->unconnected += s->qpair == NULL && s->channel == NULL;
	/* Pairs with the store in perf_stream_check_filled(). */
	c->prefilling += __atomic_load_n(&s->phase, __ATOMIC_ACQUIRE) == STREAM_PREFILL;
	/* the counts of other threads are exact only after the streams have stopped */
	c->outstanding += __atomic_load_n(&s->outstanding, __ATOMIC_RELAXED);
	c->stats.reads += __atomic_load_n(&s->stats.reads, __ATOMIC_RELAXED);
	c->stats.writes += __atomic_load_n(&s->stats.writes, __ATOMIC_RELAXED);
	c->stats.errors += __atomic_load_n(&s->stats.errors, __ATOMIC_RELAXED);
	c->stats.retries += __atomic_load_n(&s->stats.retries, __ATOMIC_RELAXED);
	c->miscompares += __atomic_load_n(&s->miscompares, __ATOMIC_RELAXED);
	c->budget += __atomic_load_n(&s->budget, __ATOMIC_RELAXED);
}

static struct count perf_count(struct perf *p)
{
	struct count c = {0};

	perf_for_each_stream(p, perf_count_stream, &c);
	return c;
}

static bool perf_streams_are_open(void *arg)
{
	struct perf *p = arg;

	struct count c = perf_count(p);

	return perf_interrupted || perf_any_target_failed(p) || c.opening + c.wanted == 0;
}

static bool perf_streams_are_filled(void *arg)
{
	struct perf *p = arg;

	return perf_interrupted || perf_any_target_failed(p) || perf_count(p).prefilling == 0;
}

void perf_wait_until_filled(struct perf *p)
{
	thread_control_wait(perf_streams_are_open, p, UINT64_MAX);
	thread_control_wait(perf_streams_are_filled, p, UINT64_MAX);
}

struct phase {
	struct perf_stream *stream;
	enum stream_phase phase;
	uint64_t budget;
	uint64_t end; /* ticks; of STREAM_STOP */
};

static void perf_phase_set(void *arg)
{
	struct phase *ph = arg;
	struct perf_stream *s = ph->stream;

	if (s->worker->arrival_rate != 0 && s->phase == STREAM_RUN && ph->phase == STREAM_STOP) {
		uint64_t late = arrivals_backlog(&s->arrivals, ph->end);
		s->stats.late = late < s->budget ? late : s->budget;
	}
	if (s->worker->arrival_rate != 0 && ph->phase == STREAM_RUN) {
		arrivals_begin(&s->arrivals, s->worker->arrival_rate, env_ticks(), s->random);
	}
	s->phase = ph->phase;
	s->budget = ph->budget;
}

static void perf_stream_set_phase(struct perf_stream *s, void *arg)
{
	struct phase *ph = arg;

	ph->stream = s;
	if (ph->phase == STREAM_RUN && s->opts->check_ledger != NULL) {
		ph->budget = s->units;
	}
	thread_call(s->worker->thread, perf_phase_set, ph);
}

static bool perf_is_drained(void *arg)
{
	struct count c = perf_count(arg);

	return c.outstanding == 0;
}

static bool perf_run_is_over(void *arg)
{
	struct perf *p = arg;

	if (perf_interrupted || perf_any_target_failed(p)) {
		return true;
	}
	if (p->opts.ios != 0) {
		struct count c = perf_count(p);
		return c.budget == 0 && c.outstanding == 0 && c.unconnected == 0;
	}
	return env_ticks() >= p->run_end;
}

/* Whether the line that stderr's terminal has its cursor on is a line of progress. */
static atomic_bool progress_line;

static void perf_clear_progress(enum log_level level, const char *file, int line, const char *text)
{
	static const char clear[] = "\r\033[K";

	if (level <= log_get_print_level() && atomic_exchange(&progress_line, false)) {
		ssize_t ignored = write(STDERR_FILENO, clear, sizeof(clear) - 1);
		(void)ignored;
	}
}

static void perf_show_progress(void *arg)
{
	struct perf *p = arg;
	struct count c = perf_count(p);
	uint64_t ios = c.stats.reads + c.stats.writes;

	/* on a terminal the line is overwritten, elsewhere each one is a new line */
	bool terminal = isatty(STDERR_FILENO);
	fprintf(stderr, "%s%4llu s  %9llu IOPS  %llu errors%s%s", terminal ? "\r" : "",
		(unsigned long long)((env_ticks() - p->run_start) / env_ticks_hz()),
		(unsigned long long)(ios - p->progress_ios), (unsigned long long)c.stats.errors,
		c.unconnected ? "  (reconnecting)"
		: terminal    ? "               "
			      : "",
		terminal ? "" : "\n");
	atomic_store(&progress_line, terminal);
	p->progress_ios = ios;
	thread_timer_start(&p->progress, 1000000);
}

void perf_run(struct perf *p)
{
	unsigned n = 0;
	struct phase ph = {.phase = STREAM_RUN};

	for (unsigned i = 0; i < p->num_workers; i++) {
		struct perf_stream *s;
		TAILQ_FOREACH (s, &p->workers[i].streams, link) {
			n++;
		}
		if (p->opts.rate != 0) {
			p->workers[i].rate = (double)p->opts.rate / p->num_workers / (double)env_ticks_hz();
		}
	}
	for (unsigned i = 0; i < p->num_workers && p->opts.rate != 0; i++) {
		/* Poisson processes add up to one. */
		p->workers[i].arrival_rate = p->opts.poisson ? (double)p->opts.rate / n / (double)env_ticks_hz() : 0;
		thread_call(p->workers[i].thread, perf_worker_start_rate, &p->workers[i]);
	}
	ph.budget = p->opts.idle ? 0 : p->opts.ios ? (p->opts.ios + n - 1) / n : UINT64_MAX;
	p->run_start = env_ticks();
	p->run_end = p->run_start + p->opts.seconds * env_ticks_hz();
	perf_for_each_stream(p, perf_stream_set_phase, &ph);
	if (p->opts.progress || (!p->opts.quiet && !p->opts.json && isatty(STDERR_FILENO))) {
		p->progress.fn = perf_show_progress;
		p->progress.arg = p;
		thread_timer_start(&p->progress, 1000000);
		log_set_tap(perf_clear_progress);
	}
	thread_control_wait(perf_run_is_over, p, UINT64_MAX);
	p->run_end = env_ticks();
	thread_timer_stop(&p->progress);
	log_set_tap(NULL);
	if (atomic_exchange(&progress_line, false)) {
		fprintf(stderr, "\r%60s\r", "");
	}
	ph.phase = STREAM_STOP;
	ph.budget = 0;
	ph.end = p->run_end;
	perf_for_each_stream(p, perf_stream_set_phase, &ph);
	thread_control_wait(perf_is_drained, p, PERF_SETTLE_US);
	for (unsigned i = 0; i < p->num_workers && p->opts.rate != 0; i++) {
		thread_call(p->workers[i].thread, perf_worker_stop_rate, &p->workers[i]);
	}
}

void perf_stop_streams(struct perf *p)
{
	struct phase stop = {.phase = STREAM_STOP};

	perf_for_each_stream(p, perf_stream_set_phase, &stop);
	thread_control_wait(perf_is_drained, p, UINT64_MAX);
}
