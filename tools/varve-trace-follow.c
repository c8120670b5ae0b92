/* SPDX-License-Identifier: BSD-3-Clause */
/* -F: prints events as they are recorded. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/varve-trace.h"

enum {
	PERIOD_MIN_US = 1000, /* the writer is not disturbed by one look a millisecond */
	PERIOD_MAX_US = 50000,
	FILL_HIGH_PERCENT = 25, /* look more often if a ring has filled by more than this meanwhile */
	LIVENESS_US = 500000,
	REST_FACTOR = 3, /* a quarter of the scheduler's usual time slice */
	REST_MAX_US = 1000000,
};

static volatile sig_atomic_t stopped;

static void follow_on_signal(int sig)
{
	stopped = 1;
}

static void follow_batch_print(struct trace_view *v, const struct trace_batch *b)
{
	for (size_t i = 0; i < b->num_events; i++) {
		const struct trace_event *e = &b->events[i];
		if (v->base_tsc == 0) {
			v->base_tsc = e->tsc;
		}
		if (!filter_match(&v->opt->filter, v->r, e)) {
			continue;
		}
		if (v->opt->json) {
			json_event(v, b, e);
		} else {
			text_event(v, b, e);
		}
	}
	out_flush(v->out);
}

/* Prints what was lost since the last time: within the text; to stderr if the output is JSON. */
static void follow_lost_print(struct trace_view *v, const struct trace_follow *f, struct trace_lcore *before)
{
	struct trace_view lost_view = *v;
	size_t n;
	const struct trace_lcore *now = trace_follow_lcores(f, &n);

	static struct out lost_output = {.fd = STDERR_FILENO};
	lost_view.out = v->opt->json ? &lost_output : v->out;
	for (size_t i = 0; i < n; i++) {
		text_lost(&lost_view, &now[i], &before[i]);
		before[i] = now[i];
	}
	out_flush(lost_view.out);
}

static unsigned follow_period_adapt(unsigned period_us, unsigned fill_percent)
{
	if (fill_percent > FILL_HIGH_PERCENT) {
		return period_us / 2 > PERIOD_MIN_US ? period_us / 2 : PERIOD_MIN_US;
	}
	return period_us * 2 < PERIOD_MAX_US ? period_us * 2 : PERIOD_MAX_US;
}

static uint64_t follow_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* For how long this thread has run, and has waited for a CPU, since it began; zeros if the kernel does not tell. */
struct effort {
	uint64_t ran_ns, waited_ns;
};

static struct effort follow_effort_now(void)
{
	struct effort e = {0, 0};
	FILE *file = fopen("/proc/self/schedstat", "re");

	if (file != NULL) {
		if (fscanf(file, "%" SCNu64 " %" SCNu64, &e.ran_ns, &e.waited_ns) != 2) {
			e = (struct effort){0, 0};
		}
		fclose(file);
	}
	return e;
}

/* How long to rest after a step that began at `before` and lost events. If the step waited for a CPU for a third of its
 * time, other threads need that CPU, perhaps the ones that are traced: a follower that loses events anyway then leaves
 * it to them. After a step that had its CPU, it rests half as long as the last time. */
static unsigned follow_rest_adapt(unsigned rest_us, const struct effort *before)
{
	struct effort now = follow_effort_now();
	uint64_t ran_us = (now.ran_ns - before->ran_ns) / 1000, waited_us = (now.waited_ns - before->waited_ns) / 1000;

	if (2 * waited_us <= ran_us) {
		return rest_us / 2;
	}
	return ran_us + waited_us < REST_MAX_US / REST_FACTOR ? (unsigned)(ran_us + waited_us) * REST_FACTOR
							      : REST_MAX_US;
}

/* Sleeps for us, but not longer than left_ns. */
static void follow_sleep_us(uint64_t us, uint64_t left_ns)
{
	uint64_t ns = us * 1000 < left_ns ? us * 1000 : left_ns;
	struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};

	nanosleep(&t, NULL);
}

/* Takes the events of a step, and prints them or writes them into the capture. */
static bool follow_step_take(struct trace_view *v, struct trace_follow *f, struct capture *c,
			     struct trace_lcore *before, const struct trace_batch *b)
{
	size_t n;
	const struct trace_lcore *lcores = trace_follow_lcores(f, &n);

	if (c != NULL) {
		return capture_batch(c, b, lcores, n) == 0;
	}
	follow_batch_print(v, b);
	follow_lost_print(v, f, before);
	if (v->out->error != 0) {
		stopped = 1; /* the reader of the output has gone */
	}
	return true;
}

static const char *follow_error_text(int rc)
{
	switch (rc) {
	case -ENODATA:
		return "it has become shorter";
	case -ESTALE:
		return "its rings begin anew: another process writes it now";
	default:
		return strerror(-rc);
	}
}

static int follow_loop(struct trace_view *v, struct trace_follow *f, struct trace_lcore *before, struct capture *c)
{
	bool was_live = trace_reader_writer(v->r) == TRACE_WRITER_LIVE, last = false;
	unsigned period_us = PERIOD_MIN_US, rest_us = 0, since_check_us = LIVENESS_US;
	const struct trace_batch *b;
	uint64_t start = follow_now_ns();

	for (;;) {
		struct effort before_step = follow_effort_now();
		if (since_check_us >= LIVENESS_US) {
			enum trace_writer writer = trace_file_writer(v->r, v->path);
			last = writer == TRACE_WRITER_GONE || (was_live && writer != TRACE_WRITER_LIVE);
			since_check_us = 0;
		}
		uint64_t passed_ns = follow_now_ns() - start;
		bool end = last || stopped || passed_ns >= v->opt->duration_ns;
		int rc = trace_follow_next(f, end, &b);
		if (rc != 0) {
			trace_cli_error("the file cannot be followed any longer: %s", follow_error_text(rc));
			return 1;
		}
		if (!follow_step_take(v, f, c, before, b)) {
			return 1;
		}
		if (end) {
			break;
		}
		/* A capture may not rest: it must lose nothing. */
		rest_us = c == NULL && trace_follow_fill(f) > 100 ? follow_rest_adapt(rest_us, &before_step) : 0;
		trace_follow_skip(f, rest_us > PERIOD_MIN_US);
		period_us = follow_period_adapt(period_us, trace_follow_fill(f));
		unsigned pause_us = rest_us > period_us ? rest_us : period_us;
		follow_sleep_us(pause_us, v->opt->duration_ns - passed_ns);
		since_check_us += pause_us;
	}
	if (last) {
		fputs("varve-trace: the process that wrote this file is gone\n", stderr);
	}
	return 0;
}

int follow_run(struct trace_view *v)
{
	struct sigaction sa = {.sa_handler = follow_on_signal};
	struct trace_follow *f;
	struct capture *capture = NULL;
	struct trace_error err;
	size_t n;
	int status = 1;

	if (trace_follow_start(v->r, v->opt->lcore, v->opt->from_start, &f, &err) != 0) {
		trace_cli_error("%s", err.text);
		return 1;
	}
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	const struct trace_lcore *lcores = trace_follow_lcores(f, &n);
	struct trace_lcore *before = calloc(n + 1, sizeof(*before));
	if (before != NULL && (v->opt->record == NULL || capture_start(v, lcores, n, &capture) == 0)) {
		if (v->opt->json && capture == NULL) {
			json_begin(v, NULL);
		}
		status = follow_loop(v, f, before, capture);
		if (capture != NULL) {
			status = capture_end(capture) != 0 ? 1 : status;
		} else if (v->opt->json) {
			json_end(v);
		}
	}
	free(before);
	trace_follow_stop(f);
	return status;
}
