/* SPDX-License-Identifier: BSD-3-Clause */
/* Merging the lcores' events by time: a k-way merge with a binary heap of runs. Equal times come in the order
 * of the runs, so nothing is lost and the order on one lcore stays. */
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

int trace_merge_runs(struct trace_batch *b, const size_t *ends, size_t num_runs)
{
	size_t n = 0, begin = 0, out = 0;
	struct run *heap = malloc((num_runs + 1) * sizeof(*heap));
	struct trace_event *merged = trace_large_alloc(b->num_events + 1, sizeof(*merged));

	for (size_t k = 0; k < num_runs; k++) {
		n += ends[k] > (k > 0 ? ends[k - 1] : 0);
	}
	if (n <= 1) { /* in order already */
		free(heap);
		free(merged);
		return 0;
	}
	n = 0;
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
	return 0;
}
