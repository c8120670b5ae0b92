/* SPDX-License-Identifier: BSD-3-Clause */
/* Following a live file. Each step copies the new entries of all rings. Events are returned one step late: by then
 * every event that is older than the newest one of the step before has been published. So the events of several lcores
 * are returned in order, without help of the writer. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "trace/reader_internal.h"

enum { SKIP_PART = 8 }; /* of a ring */

struct followed_ring {
	uint64_t next; /* the entry to read next */
	uint32_t gaps;
};

struct trace_follow {
	struct trace_reader *r;
	size_t first, n; /* rings */
	struct followed_ring *rings;
	struct trace_lcore *lcores;
	size_t *ends;
	struct trace_objects objects;
	struct trace_stretch stretch;
	/* Events that were read and have not been returned, or were returned by the last step. */
	struct trace_growing_batch held;
	size_t given;    /* how many of `held`, from the first on, the last step has returned */
	uint64_t newest; /* tsc of the newest event seen until the last step */
	unsigned fill_percent;
	bool skip;
	struct trace_batch out;
};

int trace_follow_start(struct trace_reader *r, int lcore, bool from_start, struct trace_follow **out,
		       struct trace_error *err)
{
	size_t first, n;
	int rc = trace_select_histories(r, lcore, &first, &n, err);

	if (rc != 0) {
		return rc;
	}
	struct trace_follow *f = calloc(1, sizeof(*f));
	if (f != NULL) {
		f->rings = calloc(n + 1, sizeof(f->rings[0]));
		f->lcores = calloc(n + 1, sizeof(f->lcores[0]));
		f->ends = calloc(n + 2, sizeof(f->ends[0]));
	}
	if (f == NULL || f->rings == NULL || f->lcores == NULL || f->ends == NULL) {
		trace_follow_stop(f);
		trace_fail(err, "out of memory");
		return -ENOMEM;
	}
	f->r = r;
	f->first = first;
	f->n = n;
	for (size_t i = 0; i < n && rc == 0; i++) {
		trace_lcore_begin(r, &r->histories[first + i], &f->lcores[i]);
		if (!from_start) {
			rc = trace_history_next(r, &r->histories[first + i], &f->rings[i].next);
		}
	}
	if (rc != 0) {
		trace_follow_stop(f);
		trace_fail(err, "the rings cannot be read: %s", strerror(-rc));
		return rc;
	}
	*out = f;
	return 0;
}

/* Drops the events that the last step returned. */
static void given_drop(struct trace_follow *f)
{
	struct trace_batch *b = &f->held.b;

	b->num_events -= f->given;
	if (b->num_events > 0) {
		memmove(b->events, b->events + f->given, b->num_events * sizeof(b->events[0]));
	}
	f->given = 0;
	if (b->num_events == 0) {
		b->num_arg_bytes = 0;
	}
}

/* Moves the arguments of the events that are still held to the front, so that the buffer does not grow without bound.
 */
static int args_compact(struct trace_follow *f)
{
	struct trace_batch *b = &f->held.b;
	size_t used = 0;

	if (b->num_events == 0) {
		return 0;
	}
	uint8_t *packed = malloc(f->held.max_arg_bytes + 1);
	if (packed == NULL) {
		return -ENOMEM;
	}
	for (size_t i = 0; i < b->num_events; i++) {
		size_t size = trace_reader_tpoint(f->r, b->events[i].tpoint_id)->arg_bytes;
		memcpy(packed + used, b->arg_bytes + b->events[i].args, size);
		b->events[i].args = (uint32_t)used;
		used += size;
	}
	free(b->arg_bytes);
	b->arg_bytes = packed;
	b->num_arg_bytes = used;
	return 0;
}

/* For a follower whose whole ring was overwritten: continues near the end of the ring. */
static void lapped_skip(struct followed_ring *ring, uint64_t num_entries, uint64_t next, struct trace_lcore *lc)
{
	uint64_t oldest = next - num_entries, from = next - num_entries / SKIP_PART;

	lc->overwritten += oldest - ring->next;
	lc->skipped += from - oldest;
	ring->next = from;
	ring->gaps++;
}

/* Reads the new entries of a ring. skip: see trace_follow_skip(). */
static int ring_step(struct trace_follow *f, size_t i, bool skip, uint64_t clear_tsc)
{
	struct trace_history *h = &f->r->histories[f->first + i];
	struct followed_ring *ring = &f->rings[i];
	uint64_t next;
	int rc = trace_history_next(f->r, h, &next);

	if (rc != 0 || next == ring->next) {
		return rc;
	}
	trace_history_name(f->r, h);
	if (next < ring->next) { /* not the same file any more */
		return -ESTALE;
	}
	uint64_t percent = (next - ring->next) * 100 / h->num_entries;
	f->fill_percent = percent > f->fill_percent ? (unsigned)(percent > 10000 ? 10000 : percent) : f->fill_percent;
	if (skip && next - ring->next > h->num_entries) {
		lapped_skip(ring, h->num_entries, next, &f->lcores[i]);
	}
	uint64_t lost_before = f->lcores[i].overwritten;
	/* true: the stretch ends at next_entry also if the writer is dead; later entries come with the next step. */
	rc = trace_stretch_copy(f->r, h, ring->next, true, &f->stretch, &f->lcores[i]);
	if (rc != 0) {
		return rc;
	}
	trace_stretch_vet(f->r, h, true, &f->stretch, &f->lcores[i]);
	if (f->lcores[i].overwritten != lost_before ||
	    (f->stretch.num_accepted > 0 && f->stretch.accepted[0] != ring->next)) {
		ring->gaps++;
	}
	ring->next = f->stretch.next_before;
	return trace_stretch_decode(f->r, h, &f->stretch, clear_tsc, &ring->gaps, &f->held, &f->lcores[i]);
}

/* How many of the held events are older than all events that may still come. */
static size_t ripe_count(const struct trace_follow *f, bool all)
{
	const struct trace_batch *b = &f->held.b;
	size_t low = 0, high = b->num_events;

	while (!all && low < high) {
		size_t middle = (low + high) / 2;
		if (b->events[middle].tsc <= f->newest) {
			low = middle + 1;
		} else {
			high = middle;
		}
	}
	return high;
}

int trace_follow_next(struct trace_follow *f, bool last, const struct trace_batch **out)
{
	uint64_t clear_tsc = trace_clear_tsc(f->r);
	int rc = 0;

	given_drop(f);
	rc = args_compact(f);
	size_t runs = 0, before = f->held.b.num_events;
	f->ends[runs++] = before;
	f->fill_percent = 0;
	for (size_t i = 0; i < f->n && rc == 0; i++) {
		/* The last step does not skip: the newest events, which show how it ended, matter most. */
		rc = ring_step(f, i, f->skip && !last, clear_tsc);
		f->ends[runs++] = f->held.b.num_events;
	}
	if (rc != 0) {
		return rc;
	}
	bool news = f->held.b.num_events > before;
	if (news && (rc = trace_merge_runs(&f->held, f->ends, runs)) != 0) {
		return rc;
	}
	if (news && trace_owners_load(f->r) != 0) {
		trace_problem(f->r, "section OWNER cannot be read");
	}
	f->given = ripe_count(f, last || !news);
	for (size_t i = 0; i < f->given && rc == 0; i++) {
		rc = trace_objects_track(&f->objects, f->r, &f->held.b, &f->held.b.events[i]);
	}
	if (f->held.b.num_events > 0) {
		f->newest = f->held.b.events[f->held.b.num_events - 1].tsc;
	}
	f->out = f->held.b;
	f->out.num_events = f->given;
	*out = &f->out;
	return rc;
}

const struct trace_lcore *trace_follow_lcores(const struct trace_follow *f, size_t *n)
{
	*n = f->n;
	return f->lcores;
}

unsigned trace_follow_fill(const struct trace_follow *f)
{
	return f->fill_percent;
}

void trace_follow_skip(struct trace_follow *f, bool skip)
{
	f->skip = skip;
}

void trace_follow_stop(struct trace_follow *f)
{
	if (f == NULL) {
		return;
	}
	trace_objects_clear(&f->objects);
	trace_stretch_free(&f->stretch);
	trace_batch_clear(&f->held);
	free(f->rings);
	free(f->lcores);
	free(f->ends);
	free(f);
}
