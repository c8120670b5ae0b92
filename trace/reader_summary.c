/* SPDX-License-Identifier: BSD-3-Clause */
/* How long objects stay in each state: the time from the event that begins the state to the object's next
 * event. */
#include <errno.h>
#include <stdlib.h>

#include "trace/reader_internal.h"

static int ticks_compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* The nearest-rank percentile of n > 0 sorted values. */
static uint64_t percentile(const uint64_t *sorted, size_t n, unsigned percent)
{
	size_t rank = (n * percent + 99) / 100;

	return sorted[rank > 0 ? rank - 1 : 0];
}

static struct trace_dwell dwell_of(uint16_t tpoint_id, uint64_t *ticks, size_t n)
{
	struct trace_dwell d = {.tpoint_id = tpoint_id, .count = n};

	qsort(ticks, n, sizeof(ticks[0]), ticks_compare);
	d.min = ticks[0];
	d.median = percentile(ticks, n, 50);
	d.p99 = percentile(ticks, n, 99);
	d.max = ticks[n - 1];
	for (size_t i = 0; i < n; i++) {
		d.total = d.total + ticks[i] < d.total ? UINT64_MAX : d.total + ticks[i];
	}
	return d;
}

/* The state that an event ends, or NULL if it does not tell how long that was. */
static const struct trace_tpoint *ended_state(const struct trace_reader *r, const struct trace_event *e)
{
	return e->state_ticks == TRACE_NO_TIME ? NULL : trace_reader_tpoint(r, e->prev_tpoint);
}

/* Sorts the durations by tracepoint: those of tracepoint t are at [ends[t] - counts[t], ends[t]). */
static void durations_collect(const struct trace_reader *r, const struct trace_batch *b, uint64_t *ticks,
			      size_t *counts, size_t *ends)
{
	size_t sum = 0;

	for (size_t i = 0; i < b->num_events; i++) {
		const struct trace_tpoint *t = ended_state(r, &b->events[i]);
		if (t != NULL) {
			counts[t->id]++;
		}
	}
	for (size_t id = 0; id < trace_reader_num_tpoints(r); id++) {
		ends[id] = sum;
		sum += counts[id];
	}
	for (size_t i = 0; i < b->num_events; i++) {
		const struct trace_tpoint *t = ended_state(r, &b->events[i]);
		if (t != NULL) {
			ticks[ends[t->id]++] = b->events[i].state_ticks;
		}
	}
}

static size_t rows_make(const struct trace_reader *r, uint64_t *ticks, const size_t *counts,
			const size_t *ends, struct trace_dwell *rows)
{
	size_t n = 0;

	for (unsigned type = 1; type < TRACE_NUM_TYPES; type++) {
		for (unsigned id = 0; id < trace_reader_num_tpoints(r); id++) {
			const struct trace_tpoint *t = trace_reader_tpoint(r, id);
			if (counts[id] > 0 && t->object_type == type) {
				rows[n++] = dwell_of((uint16_t)id, ticks + ends[id] - counts[id], counts[id]);
			}
		}
	}
	return n;
}

int trace_summary_make(const struct trace_reader *r, const struct trace_batch *b, struct trace_dwell **rows,
		       size_t *num_rows)
{
	unsigned n = trace_reader_num_tpoints(r);
	uint64_t *ticks = malloc((b->num_events + 1) * sizeof(*ticks));
	size_t *counts = calloc(n, sizeof(*counts)), *ends = calloc(n, sizeof(*ends));
	int rc = -ENOMEM;

	*rows = malloc(n * sizeof(**rows));
	if (ticks != NULL && counts != NULL && ends != NULL && *rows != NULL) {
		durations_collect(r, b, ticks, counts, ends);
		*num_rows = rows_make(r, ticks, counts, ends, *rows);
		rc = 0;
	} else {
		free(*rows);
		*rows = NULL;
	}
	free(ticks);
	free(counts);
	free(ends);
	return rc;
}
