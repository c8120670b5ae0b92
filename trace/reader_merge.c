/* SPDX-License-Identifier: BSD-3-Clause */
/* Merges the lcores' events by time: a k-way merge with a binary heap of runs. Events of equal time keep the order of
 * their runs, so the order of one lcore's events does not change. */
#include <errno.h>
#include <stdlib.h>

#include "trace/reader_internal.h"

struct run {
	const struct trace_event *at, *end;
	size_t number;
};

static bool run_is_before(const struct run *a, const struct run *b)
{
	return a->at->tsc != b->at->tsc ? a->at->tsc < b->at->tsc : a->number < b->number;
}

static void heap_sink(struct run *heap, size_t n, size_t i)
{
	for (;;) {
		size_t first = i;
		for (size_t child = 2 * i + 1; child <= 2 * i + 2 && child < n; child++) {
			first = run_is_before(&heap[child], &heap[first]) ? child : first;
		}
		if (first == i) {
			return;
		}
		struct run r = heap[i];
		heap[i] = heap[first];
		heap[first] = r;
		i = first;
	}
}

/* Whether each run begins where the one before it ends, or later: one lcore is busy and the others are not. */
static bool runs_are_in_order(const struct trace_batch *b, const size_t *ends, size_t num_runs)
{
	for (size_t k = 1; k < num_runs; k++) {
		size_t begin = ends[k - 1];
		if (begin > 0 && ends[k] > begin && b->events[begin].tsc < b->events[begin - 1].tsc) {
			return false;
		}
	}
	return true;
}

int trace_merge_runs(struct trace_growing_batch *g, const size_t *ends, size_t num_runs)
{
	struct trace_batch *b = &g->b;
	size_t n = 0, begin = 0, out = 0;

	if (runs_are_in_order(b, ends, num_runs)) {
		return 0;
	}
	struct run *heap = malloc((num_runs + 1) * sizeof(*heap));
	struct trace_event *merged = trace_large_alloc(b->num_events + 1, sizeof(*merged));
	if (heap == NULL || merged == NULL) {
		free(heap);
		free(merged);
		return -ENOMEM;
	}
	for (size_t k = 0; k < num_runs; begin = ends[k++]) {
		if (ends[k] > begin) {
			heap[n++] = (struct run){b->events + begin, b->events + ends[k], k};
		}
	}
	for (size_t i = n; i-- > 0;) {
		heap_sink(heap, n, i);
	}
	while (n > 0) {
		merged[out++] = *heap[0].at++;
		if (heap[0].at == heap[0].end) {
			heap[0] = heap[--n];
		}
		heap_sink(heap, n, 0);
	}
	free(heap);
	free(b->events);
	b->events = merged;
	g->max_events = b->num_events;
	return 0;
}
