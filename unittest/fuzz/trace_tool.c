/* SPDX-License-Identifier: BSD-3-Clause */
/* Any bytes as a trace file through varve-trace's printers and exporters: what they write has no bounds but those of
 * the buffer, and nothing of the file may lead them outside. What they write goes nowhere. */
#include <fcntl.h>
#include <stdlib.h>

#include "tools/varve-trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

void trace_cli_error(const char *fmt, ...)
{
}

static void views_run(struct trace_view *v, const struct trace_snapshot *s)
{
	struct trace_lives l;
	struct trace_report t;
	bool *keep = calloc(s->batch.num_events + 1, sizeof(*keep));

	if (keep == NULL || trace_lives_make(v->r, &s->batch, &l) != 0) {
		abort();
	}
	events_mark(v, &s->batch, &l, keep);
	if (trace_report_make(v->r, &s->batch, &l, keep, true, &t) == 0) {
		text_header(v, s);
		text_report(v, &t, &l);
		json_report(v, s, &t, &l);
		trace_report_clear(&t);
	}
	slowest_run(v, s, &l, keep);
	perfetto_run(v, s, &l, keep, v->out);
	html_run(v, s, &l, NULL, v->out);
	json_begin(v, s);
	for (size_t i = 0; i < s->batch.num_events; i++) {
		text_event(v, &s->batch, &s->batch.events[i]);
		json_event(v, &s->batch, &s->batch.events[i]);
	}
	json_end(v);
	trace_lives_clear(&l);
	free(keep);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct out out = {.fd = -1};
	static struct trace_options opt;
	struct trace_view v = {.opt = &opt, .out = &out};
	struct trace_snapshot *s;
	struct trace_error err;

	if (out.fd < 0) {
		out.fd = open("/dev/null", O_WRONLY);
	}
	if (size == 0 || trace_reader_open_memory(data, size, &v.r, &err) != 0) {
		return 0;
	}
	opt = (struct trace_options){
		.since_ns = UINT64_MAX, .until_ns = UINT64_MAX, .last_ns = UINT64_MAX, .slowest = 3};
	opt.by_owner = data[size - 1] & 1;
	opt.ticks = data[size - 1] & 2;
	opt.unfinished = data[size - 1] & 4;
	opt.json = data[size - 1] & 8;
	v.tsc_rate = trace_reader_tsc_rate(v.r);
	if (trace_snapshot_take(v.r, TRACE_ALL_LCORES, &s, &err) == 0) {
		v.base_tsc = s->first_tsc;
		views_run(&v, s);
		trace_snapshot_free(s);
	}
	owners_free(&v);
	trace_reader_close(v.r);
	return 0;
}
