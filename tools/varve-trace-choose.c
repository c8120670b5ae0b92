/* SPDX-License-Identifier: BSD-3-Clause */
/* Chooses the events of a snapshot that the options ask for. */
#include <inttypes.h>
#include <stdlib.h>

#include "tools/varve-trace.h"

struct window {
	uint64_t from, to;
};

static uint64_t choose_later(uint64_t tsc, uint64_t ns, uint64_t rate)
{
	uint64_t ticks = trace_ns_to_ticks(ns, rate);

	return ticks > UINT64_MAX - tsc ? UINT64_MAX : tsc + ticks;
}

static struct window choose_window_of(const struct trace_view *v, const struct trace_batch *b)
{
	const struct trace_options *opt = v->opt;
	uint64_t last = b->num_events > 0 ? b->events[b->num_events - 1].tsc : 0;
	struct window w = {0, UINT64_MAX};

	if (opt->since_ns != UINT64_MAX) {
		w.from = choose_later(v->base_tsc, opt->since_ns, v->tsc_rate);
	}
	if (opt->until_ns != UINT64_MAX) {
		w.to = choose_later(v->base_tsc, opt->until_ns, v->tsc_rate);
	}
	if (opt->last_ns != UINT64_MAX) {
		uint64_t ticks = trace_ns_to_ticks(opt->last_ns, v->tsc_rate);
		w.from = ticks < last ? last - ticks : 0;
	}
	return w;
}

bool events_are_chosen(const struct trace_options *opt)
{
	return opt->life_prefix != 0 || opt->since_ns != UINT64_MAX || opt->until_ns != UINT64_MAX ||
	       opt->last_ns != UINT64_MAX || opt->filter.n > 0 || opt->age_ns != 0 || opt->unfinished;
}

static bool choose_life_is_wanted(const struct trace_view *v, const struct trace_lives *l, uint32_t n, uint64_t age)
{
	if (v->opt->age_ns == 0 && !v->opt->unfinished) {
		return true;
	}
	return n != TRACE_NO_LIFE && l->lives[n].index != TRACE_NO_OBJECT && trace_life_ticks(l, &l->lives[n]) >= age &&
	       (!v->opt->unfinished || trace_life_is_unfinished(&l->lives[n]));
}

bool events_mark(const struct trace_view *v, const struct trace_batch *b, const struct trace_lives *l, bool *keep)
{
	const struct trace_options *opt = v->opt;
	struct window w = choose_window_of(v, b);
	uint64_t age = trace_ns_to_ticks(opt->age_ns, v->tsc_rate);
	size_t start;

	if (opt->life_prefix != 0 && trace_life_mark(v->r, b, opt->life_prefix, opt->life_index, keep, &start) != 0) {
		trace_cli_error("--life: no object %c%" PRIu64 " was created in this trace", opt->life_prefix,
				opt->life_index);
		return false;
	}
	for (size_t i = 0; i < b->num_events; i++) {
		const struct trace_event *e = &b->events[i];
		keep[i] = (opt->life_prefix == 0 || keep[i]) && e->tsc >= w.from && e->tsc <= w.to &&
			  choose_life_is_wanted(v, l, e->life, age) && filter_match(&opt->filter, v->r, e);
	}
	return true;
}
