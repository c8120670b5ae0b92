/* SPDX-License-Identifier: BSD-3-Clause */
/* Any bytes as a trace file: an error in words, or events that are in order, with everything about them within
 * bounds. */
#include <stdlib.h>
#include <string.h>

#include "trace/reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition) {
		abort();
	}
}

/* Reads every byte that a caller could. */
static uint64_t touch(const void *bytes, size_t n)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < n; i++) {
		sum += ((const volatile uint8_t *)bytes)[i];
	}
	return sum;
}

static void check_event(struct trace_reader *r, const struct trace_batch *b, const struct trace_event *e)
{
	const struct trace_tpoint *t = trace_reader_tpoint(r, e->tpoint_id);

	require(t != NULL && t->num_args <= TRACE_MAX_ARGS);
	touch(t->name, strlen(t->name));
	for (unsigned i = 0; i < t->num_args; i++) {
		struct trace_arg a = trace_event_arg(b, e, t, i);
		touch(t->args[i].name, strlen(t->args[i].name));
		require((a.type == TRACE_ARG_STR) == (a.text != NULL));
		touch(a.text, a.length);
	}
	const char *owner = trace_reader_owner(r, e->owner_id, e->tsc);
	touch(owner, owner != NULL ? strlen(owner) : 0);
	trace_reader_object_prefix(r, t->object_type);
	trace_reader_owner_prefix(r, t->owner_type);
	const char *name = trace_reader_thread_name(r, e->lcore, e->tsc);
	touch(name, strlen(name));
	require(e->object_index == TRACE_NO_OBJECT || e->object_start <= e->tsc);
	require(e->state_ticks == TRACE_NO_TIME || trace_reader_tpoint(r, e->prev_tpoint) != NULL);
}

static void check_batch(struct trace_reader *r, const struct trace_batch *b)
{
	for (size_t i = 0; i < b->num_events; i++) {
		require(i == 0 || b->events[i - 1].tsc <= b->events[i].tsc);
		check_event(r, b, &b->events[i]);
	}
}

static void check_lives(struct trace_reader *r, const struct trace_batch *b)
{
	struct trace_lives l;
	struct trace_report t;

	require(trace_lives_make(r, b, &l) == 0);
	require(l.num_lives <= b->num_events);
	for (size_t i = 0; i < l.num_lives; i++) {
		const struct trace_life *life = &l.lives[i];
		size_t events = 0;
		require(life->type != 0 && life->start <= life->last && life->last <= l.end_tsc);
		require(life->parent == TRACE_NO_LIFE || life->parent < i);
		require(trace_life_root(&l, (uint32_t)i) <= i);
		for (uint32_t e = life->first_event; e != UINT32_MAX; e = l.next_event[e]) {
			require(b->events[e].life == i);
			events++;
		}
		require(events > 0);
		const struct trace_life *culprit = &l.lives[trace_life_culprit(&l, (uint32_t)i)];
		require(culprit->slowest_ticks == 0 || trace_reader_tpoint(r, culprit->slowest_tpoint) != NULL);
		trace_life_ticks(&l, life);
	}
	require(trace_report_make(r, b, &l, NULL, true, &t) == 0);
	for (int k = 0; k < TRACE_NUM_TABLES; k++) {
		for (size_t i = 0; i < t.num_rows[k]; i++) {
			const struct trace_dwell *d = &t.rows[k][i];
			require(d->count > 0 && d->min <= d->median && d->median <= d->p90 && d->p90 <= d->p99 &&
				d->p99 <= d->p999 && d->p999 <= d->max);
			require(k == TRACE_BY_TYPE || k == TRACE_BY_OWNER_TYPE ||
				trace_reader_tpoint(r, d->tpoint_id) != NULL);
		}
	}
	trace_report_clear(&t);
	trace_lives_clear(&l);
}

static void check_snapshot(struct trace_reader *r, const struct trace_snapshot *s, size_t size)
{
	struct trace_dwell *rows = NULL;
	size_t n = 0, start;
	bool *keep = calloc(s->batch.num_events + 1, sizeof(*keep));

	require(s->batch.num_events <= size / sizeof(struct trace_file_entry));
	check_batch(r, &s->batch);
	require(keep != NULL && trace_summary_make(r, &s->batch, &rows, &n) == 0);
	for (size_t i = 0; i < n; i++) {
		require(rows[i].min <= rows[i].median && rows[i].median <= rows[i].p99 && rows[i].p99 <= rows[i].max);
	}
	free(rows);
	for (size_t i = 0; i < s->batch.num_events && i < 4; i++) {
		const struct trace_event *e = &s->batch.events[i];
		uint8_t type = trace_reader_tpoint(r, e->tpoint_id)->object_type;
		char prefix = trace_reader_object_prefix(r, type);
		if (e->object_index != TRACE_NO_OBJECT && prefix != 0) {
			require(trace_life_mark(r, &s->batch, prefix, e->object_index, keep, &start) == 0 && keep[i]);
		}
		trace_snapshot_realtime_ns(s, e->tsc);
	}
	free(keep);
	check_lives(r, &s->batch);
}

static void check_follow(struct trace_reader *r)
{
	struct trace_follow *f;
	struct trace_error err;
	const struct trace_batch *b;

	if (trace_follow_start(r, TRACE_ALL_LCORES, true, &f, &err) != 0) {
		return;
	}
	for (int step = 0; step < 3 && trace_follow_next(f, step == 2, &b) == 0; step++) {
		check_batch(r, b);
	}
	trace_follow_stop(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct trace_reader *r;
	struct trace_snapshot *s;
	struct trace_error err = {{0}};
	const char *problem;

	if (trace_reader_open_memory(data, size, &r, &err) != 0) {
		require(err.text[0] != '\0');
		return 0;
	}
	if (trace_snapshot_take(r, TRACE_ALL_LCORES, &s, &err) == 0) {
		check_snapshot(r, s, size);
		trace_snapshot_free(s);
	}
	check_follow(r);
	for (size_t i = 0; (problem = trace_reader_problem(r, i)) != NULL; i++) {
		touch(problem, strlen(problem));
	}
	trace_reader_close(r);
	return 0;
}
