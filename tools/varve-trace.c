/* SPDX-License-Identifier: BSD-3-Clause */
/* varve-trace: prints the contents of a trace file. */
#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/varve-trace.h"
#include "util/output.h"

enum { EXIT_USAGE = 2 };

void trace_cli_error(const char *fmt, ...)
{
	va_list ap;

	fputs("varve-trace: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	putc('\n', stderr);
}

/* ---- A snapshot ---- */

static int trace_cli_summary_print(struct trace_view *v, const struct trace_snapshot *s, const struct trace_lives *l,
				   const bool *keep)
{
	struct trace_report t;

	if (trace_report_make(v->r, &s->batch, l, keep, v->opt->by_owner, &t) != 0) {
		trace_cli_error("out of memory");
		return 1;
	}
	if (v->opt->json) {
		json_report(v, s, &t, l);
	} else {
		text_header(v, s);
		text_report(v, &t, l);
	}
	trace_report_clear(&t);
	return 0;
}

/* The owner column is as wide as the longest description that occurs. */
static void trace_cli_owner_width_find(struct trace_view *v, const struct trace_batch *b, const bool *keep)
{
	static bool seen[UINT16_MAX + 1];

	for (size_t i = 0; i < b->num_events; i++) {
		const struct trace_event *e = &b->events[i];
		if (e->owner_id != 0 && !seen[e->owner_id] && (keep == NULL || keep[i])) {
			int n = (int)owner_printed(v, e->owner_id, e->tsc)->text_length;
			seen[e->owner_id] = n > 0;
			v->owner_width = n > v->owner_width ? n : v->owner_width;
		}
	}
}

static void trace_cli_events_print(struct trace_view *v, const struct trace_snapshot *s, const bool *keep)
{
	if (v->opt->json) {
		json_begin(v, s);
	} else {
		trace_cli_owner_width_find(v, &s->batch, keep);
		text_header(v, s);
	}
	for (size_t i = 0; i < s->batch.num_events; i++) {
		if (keep != NULL && !keep[i]) {
			continue;
		}
		if (v->opt->json) {
			json_event(v, &s->batch, &s->batch.events[i]);
		} else {
			text_event(v, &s->batch, &s->batch.events[i]);
		}
	}
	if (v->opt->json) {
		json_end(v);
	}
}

static void trace_cli_problems_print(const struct trace_reader *r, size_t from)
{
	const char *problem;

	for (size_t i = from; (problem = trace_reader_problem(r, i)) != NULL; i++) {
		trace_cli_error("warning: %s", problem);
		from = i + 1;
	}
	if (trace_reader_num_problems(r) > from) {
		trace_cli_error("warning: and %zu more", trace_reader_num_problems(r) - from);
	}
}

static int trace_cli_view_run(struct trace_view *v, const struct trace_snapshot *s, const struct trace_lives *l,
			      const bool *keep)
{
	if (v->opt->slowest > 0) {
		return slowest_run(v, s, l, keep);
	}
	if (v->opt->summary) {
		return trace_cli_summary_print(v, s, l, keep);
	}
	if (v->opt->perfetto != NULL) {
		return file_write(v, s, l, keep, v->opt->perfetto, false, perfetto_run);
	}
	if (v->opt->html != NULL) {
		return file_write(v, s, l, keep, v->opt->html, true, html_run);
	}
	if (v->opt->ctf != NULL) {
		return ctf_run(v, s, keep, v->opt->ctf);
	}
	trace_cli_events_print(v, s, keep);
	return 0;
}

static int trace_cli_snapshot_show(struct trace_view *v, const struct trace_snapshot *s)
{
	const struct trace_options *opt = v->opt;
	struct trace_lives lives = {0};
	bool *keep = NULL;
	int status = 1;

	if ((opt->summary || opt->slowest > 0 || opt->age_ns != 0 || opt->unfinished || opt->perfetto != NULL ||
	     opt->html != NULL) &&
	    trace_lives_make(v->r, &s->batch, &lives) != 0) {
		trace_cli_error("out of memory");
		return 1;
	}
	if (events_are_chosen(opt) && (keep = calloc(s->batch.num_events + 1, sizeof(*keep))) == NULL) {
		trace_cli_error("out of memory");
	} else if (keep == NULL || events_mark(v, &s->batch, &lives, keep)) {
		status = trace_cli_view_run(v, s, &lives, keep);
	}
	free(keep);
	trace_lives_clear(&lives);
	return status;
}

static int trace_cli_snapshot_run(struct trace_view *v)
{
	struct trace_snapshot *s;
	struct trace_error err;

	if (trace_snapshot_take(v->r, v->opt->lcore, &s, &err) != 0) {
		trace_cli_error("%s", err.text);
		return 1;
	}
	trace_cli_problems_print(v->r, 0);
	v->base_tsc = s->first_tsc;
	int status = trace_cli_snapshot_show(v, s);
	trace_snapshot_free(s);
	return status;
}

/* Page faults took half of the time of a short run. So all arrays come from one heap that is never given back, in huge
 * pages if the kernel gives them. To be called before anything is allocated. */
static void trace_cli_heap_prepare(void)
{
	enum { HEAP = 64 << 20, HUGE_PAGE = 2 << 20, LARGEST_IN_HEAP = 32 << 20 };

	mallopt(M_MMAP_THRESHOLD, LARGEST_IN_HEAP);
	mallopt(M_TRIM_THRESHOLD, INT_MAX);
	mallopt(M_TOP_PAD, HEAP); /* the first malloc() takes as much address space; only touched pages take memory */
	uintptr_t first = (uintptr_t)malloc(1);
	if (first != 0) {
		free((void *)first);
		first = (first + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
		madvise((void *)first, HEAP - HUGE_PAGE, MADV_HUGEPAGE); /* a wish */
	}
	mallopt(M_TOP_PAD, HUGE_PAGE);
}

int main(int argc, char **argv)
{
	output_guard("varve-trace", EXIT_FAILURE);
	trace_cli_heap_prepare();
	struct trace_options opt;
	struct trace_error err;
	char path[4096];

	switch (trace_options_parse(&opt, argc, argv)) {
	case TRACE_OPTIONS_HELP:
		return 0;
	case TRACE_OPTIONS_WRONG:
		return EXIT_USAGE;
	case TRACE_OPTIONS_OK:
		break;
	}
	if (opt.list) {
		return files_list(&opt);
	}
	if (opt.remove_dead) {
		return files_remove_dead(&opt);
	}
	static struct out out = {.fd = STDOUT_FILENO};
	struct trace_view v = {.opt = &opt, .out = &out};
	if (!file_choose(&opt, path, sizeof(path))) {
		return 1;
	}
	if (trace_reader_open(path, &v.r, &err) != 0) {
		trace_cli_error("%s", err.text);
		return 1;
	}
	v.path = path;
	v.tsc_rate = trace_reader_tsc_rate(v.r);
	if (opt.follow) {
		trace_cli_problems_print(v.r, 0);
	}
	int status = 1;
	if (filter_names_known(&opt.filter, v.r)) {
		status = opt.follow ? follow_run(&v) : trace_cli_snapshot_run(&v);
	}
	owners_free(&v);
	trace_reader_close(v.r);
	out_flush(&out);
	if (out.error != 0) {
		trace_cli_error("writing failed: %s", strerror(out.error));
		status = 1;
	}
	return status;
}
