/* SPDX-License-Identifier: BSD-3-Clause */
/* Snapshots, and following: all lcores' rings, merged, with objects and relations. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "trace/reader_internal.h"

/* ---- For snapshots and following ---- */

uint64_t trace_clear_tsc(const struct trace_reader *r)
{
	uint64_t tsc = 0;
	uint64_t at = r->section[TRACE_SECTION_MAIN] + offsetof(struct trace_file_main, clear_tsc);

	return trace_source_read(&r->source, at, &tsc, sizeof(tsc)) == 0 ? tsc : 0;
}

/* The sum of a ring's counters: how many events were ever recorded in it. */
static uint64_t recorded_read(const struct trace_reader *r, const struct trace_history *h)
{
	uint64_t counts[TRACE_NUM_TPOINTS], sum = 0;
	size_t n = h->num_tpoint_ids < TRACE_NUM_TPOINTS ? (size_t)h->num_tpoint_ids : TRACE_NUM_TPOINTS;

	if (trace_source_read(&r->source, h->offset + offsetof(struct trace_file_history, tpoint_count), counts,
			      n * sizeof(counts[0])) != 0) {
		return 0;
	}
	for (size_t i = 0; i < n; i++) {
		sum += counts[i];
	}
	return sum;
}

void trace_lcore_begin(struct trace_reader *r, struct trace_history *h, struct trace_lcore *lc)
{
	*lc = (struct trace_lcore){.lcore = h->lcore, .num_entries = h->num_entries};
	trace_history_name(r, h);
	memcpy(lc->name, h->name, sizeof(lc->name));
}

/* Selects the rings of one lcore or of all: histories [first, first + n). */
int trace_select_histories(const struct trace_reader *r, int lcore, size_t *first, size_t *n, struct trace_error *err)
{
	*first = 0;
	*n = r->num_histories;
	if (lcore == TRACE_ALL_LCORES) {
		return 0;
	}
	for (size_t i = 0; i < r->num_histories; i++) {
		if (lcore >= 0 && r->histories[i].lcore == (uint32_t)lcore) {
			*first = i;
			*n = 1;
			return 0;
		}
	}
	trace_fail(err, "lcore %d has no ring in this file; %zu have, from %" PRIu32 " to %" PRIu32, lcore,
		   r->num_histories, r->num_histories > 0 ? r->histories[0].lcore : 0,
		   r->num_histories > 0 ? r->histories[r->num_histories - 1].lcore : 0);
	return -ENOENT;
}

/* How many slots of a ring are copied, if at most `newest` of each are wanted. */
static uint64_t ring_share(const struct trace_history *h, uint64_t newest)
{
	return h->readable < newest ? h->readable : newest;
}

static int size_check(const struct trace_reader *r, size_t first, size_t n, uint64_t newest, struct trace_error *err)
{
	uint64_t entries = 0;

	for (size_t i = first; i < first + n; i++) {
		entries += ring_share(&r->histories[i], newest);
	}
	if (entries > TRACE_READER_MAX_ENTRIES) {
		trace_fail(err,
			   "the rings have %" PRIu64 " entries, at most %u can be taken in at a time: choose one lcore",
			   entries, TRACE_READER_MAX_ENTRIES);
		return -E2BIG;
	}
	return 0;
}

/* ---- Clocks ---- */

#define CLOCK_SET_NS 10000000 /* more than lies between the readings of two clocks */

static bool clock_is_sane(const struct trace_file_clock *c)
{
	return c->tsc != 0 && c->realtime_ns != 0 && c->tsc < (uint64_t)1 << 63 && c->realtime_ns < (uint64_t)1 << 63;
}

/* Whether the time of day was set between two readings: then it has advanced by another time than the monotonic clock,
 * whose rate is corrected in the same way. Not known for a file without monotonic readings. */
static bool clock_was_set(const struct trace_file_clock *a, const struct trace_file_clock *b)
{
	int64_t real = (int64_t)(b->realtime_ns - a->realtime_ns),
		monotonic = (int64_t)(b->monotonic_ns - a->monotonic_ns);

	return a->monotonic_ns != 0 && b->monotonic_ns != 0 &&
	       (real > monotonic + CLOCK_SET_NS || real < monotonic - CLOCK_SET_NS);
}

/* Uses a reading as the second one if it is later than the present one and agrees with tsc_rate within 1 %; if it does
 * not agree, the time of day was set meanwhile. So times of day are extrapolated from the first reading and never jump.
 */
static void clock_consider(struct trace_snapshot *s, const struct trace_file_clock *c)
{
	const struct trace_file_clock *start = &s->clocks[0];

	if (!clock_is_sane(c) || c->tsc <= s->clocks[s->num_clocks - 1].tsc || c->realtime_ns < start->realtime_ns ||
	    clock_was_set(start, c)) {
		return;
	}
	uint64_t real = c->realtime_ns - start->realtime_ns;
	uint64_t measured = trace_ticks_to_ns(c->tsc - start->tsc, s->tsc_rate);
	if (real >= measured - measured / 100 && real - measured / 100 <= measured) {
		s->clocks[1] = *c;
		s->num_clocks = 2;
	}
}

static void clocks_read(struct trace_reader *r, struct trace_snapshot *s)
{
	struct trace_file_info info;

	if (!r->has_info || trace_source_read(&r->source, r->section[TRACE_SECTION_INFO], &info, sizeof(info)) != 0 ||
	    !clock_is_sane(&info.start)) {
		return;
	}
	s->clocks[0] = info.start;
	s->num_clocks = 1;
	for (unsigned i = 0; i < TRACE_INFO_NUM_CLOCKS; i++) {
		clock_consider(s, &info.clock[i]);
	}
	clock_consider(s, &info.end);
}

uint64_t trace_snapshot_realtime_ns(const struct trace_snapshot *s, uint64_t tsc)
{
	const struct trace_file_clock *c = s->clocks;
	__int128 ticks = (__int128)tsc - (__int128)c[0].tsc, ns;

	if (s->num_clocks == 0) {
		return 0;
	}
	if (s->num_clocks == 2) {
		ns = ticks * (__int128)(c[1].realtime_ns - c[0].realtime_ns) / (__int128)(c[1].tsc - c[0].tsc);
	} else {
		ns = ticks * 1000000000 / (__int128)s->tsc_rate;
	}
	ns += c[0].realtime_ns;
	return ns < 0 || ns > UINT64_MAX ? 0 : (uint64_t)ns;
}

/* ---- Snapshot ---- */

/* The number of the first of a ring's `newest` entries; 0: all are wanted. Counts those before it. */
static int ring_from(const struct trace_reader *r, const struct trace_history *h, uint64_t newest,
		     struct trace_lcore *lc, uint64_t *from)
{
	uint64_t next = 0;
	int rc = newest < h->num_entries ? trace_history_next(r, h, &next) : 0;

	*from = next > newest ? next - newest : 0;
	if (*from != 0) {
		lc->overwritten = next > h->num_entries ? next - h->num_entries : 0;
		lc->skipped = *from - lc->overwritten;
	}
	return rc;
}

/* newest: how many entries of each ring, the newest ones, are copied. */
static int rings_copy(struct trace_reader *r, size_t first, size_t n, uint64_t newest, struct trace_snapshot *s,
		      struct trace_growing_batch *g, size_t *ends)
{
	struct trace_stretch stretch = {0};
	size_t entries = 0;
	int rc = 0;

	/* Reserved once for all rings; pages that they do not fill are not touched and use no memory. */
	for (size_t i = 0; i < n; i++) {
		entries += ring_share(&r->histories[first + i], newest);
	}
	trace_batch_reserve(g, entries, 0);
	for (size_t i = 0; i < n && rc == 0; i++) {
		struct trace_history *h = &r->histories[first + i];
		struct trace_lcore *lc = &s->lcores[i];
		bool live = trace_reader_writer(r) == TRACE_WRITER_LIVE;
		uint32_t gaps = 0;
		uint64_t from;
		trace_lcore_begin(r, h, lc);
		rc = ring_from(r, h, newest, lc, &from);
		if (rc == 0) {
			rc = trace_stretch_copy(r, h, from, live, &stretch, lc);
		}
		if (rc == 0) {
			lc->recorded = recorded_read(r, h);
			trace_stretch_vet(r, h, live, &stretch, lc);
			rc = trace_stretch_decode(r, h, &stretch, s->clear_tsc, &gaps, g, lc);
		}
		ends[i] = g->b.num_events;
	}
	trace_stretch_free(&stretch);
	return rc;
}

static int snapshot_fill(struct trace_reader *r, size_t first, size_t n, uint64_t newest, struct trace_snapshot *s)
{
	struct trace_growing_batch g = {0};
	struct trace_objects objects = {0};
	size_t *ends = calloc(n + 1, sizeof(*ends));
	int rc = -ENOMEM;

	s->lcores = calloc(n + 1, sizeof(s->lcores[0]));
	if (ends != NULL && s->lcores != NULL) {
		s->num_lcores = n;
		rc = rings_copy(r, first, n, newest, s, &g, ends);
	}
	if (rc == 0) {
		rc = trace_merge_runs(&g, ends, n);
	}
	s->batch = g.b;
	for (size_t i = 0; rc == 0 && i < s->batch.num_events; i++) {
		rc = trace_objects_track(&objects, r, &s->batch, &s->batch.events[i]);
	}
	trace_objects_clear(&objects);
	free(ends);
	return rc;
}

static int snapshot_take(struct trace_reader *r, int lcore, uint64_t newest, struct trace_snapshot **out,
			 struct trace_error *err)
{
	size_t first, n;
	int rc = trace_select_histories(r, lcore, &first, &n, err);

	if (rc == 0) {
		rc = size_check(r, first, n, newest, err);
	}
	if (rc != 0) {
		return rc;
	}
	struct trace_snapshot *s = calloc(1, sizeof(*s));
	if (s == NULL) {
		trace_fail(err, "out of memory");
		return -ENOMEM;
	}
	s->tsc_rate = r->tsc_rate;
	s->clear_tsc = trace_clear_tsc(r);
	rc = snapshot_fill(r, first, n, newest, s);
	if (rc != 0) {
		trace_fail(err, "the rings cannot be read: %s", strerror(-rc));
		trace_snapshot_free(s);
		return rc;
	}
	/* After the rings: an owner that is new among the events is in the table by now. */
	if (trace_owners_load(r) != 0) {
		trace_problem(r, "section OWNER cannot be read");
	}
	clocks_read(r, s);
	if (r->section[TRACE_SECTION_LOSS] != 0 &&
	    trace_source_read(&r->source, r->section[TRACE_SECTION_LOSS], &s->loss, sizeof(s->loss)) != 0) {
		trace_problem(r, "section LOSS is cut off");
	}
	s->first_tsc = s->batch.num_events > 0 ? s->batch.events[0].tsc : 0;
	*out = s;
	return 0;
}

int trace_snapshot_take(struct trace_reader *r, int lcore, struct trace_snapshot **out, struct trace_error *err)
{
	return snapshot_take(r, lcore, UINT64_MAX, out, err);
}

int trace_snapshot_take_newest(struct trace_reader *r, uint64_t newest, struct trace_snapshot **out,
			       struct trace_error *err)
{
	return snapshot_take(r, TRACE_ALL_LCORES, newest, out, err);
}

void trace_snapshot_free(struct trace_snapshot *s)
{
	if (s == NULL) {
		return;
	}
	free(s->batch.events);
	free(s->batch.arg_bytes);
	free(s->lcores);
	free(s);
}
