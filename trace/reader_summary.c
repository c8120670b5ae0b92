/* SPDX-License-Identifier: BSD-3-Clause */
/* How long objects stay in each state, and live: tables of percentiles, by state and by owner. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "trace/reader_internal.h"
#include "util/compiler.h"

/* One measured time. */
struct sample {
	uint64_t ticks;
	uint16_t tpoint, owner;
	uint8_t type;
};

struct samples {
	struct sample *s, *room; /* `room` is as large, for sorting */
	size_t n;
};

/* ---- Sorting ---- */

enum sort_key { KEY_TICKS, KEY_TPOINT, KEY_TYPE, KEY_OWNER };

static inline uint64_t key_of(const struct sample *s, enum sort_key key)
{
	return key == KEY_TICKS ? s->ticks : key == KEY_TPOINT ? s->tpoint : key == KEY_TYPE ? s->type : s->owner;
}

/* Sorts by one key and leaves equal ones as they are: 11 bits at a time, from the lowest that differ anywhere.
 * Durations are small numbers and the other keys smaller, so there are few passes, each linear. */
static ALWAYS_INLINE void samples_sort(struct samples *a, enum sort_key key)
{
	uint64_t differ = 0;

	for (size_t i = 1; i < a->n; i++) {
		differ |= key_of(&a->s[i], key) ^ key_of(&a->s[0], key);
	}
	for (unsigned shift = 0; shift < 64; shift += 11) {
		size_t at[2049] = {0};
		if ((differ >> shift & 2047) == 0) {
			continue;
		}
		for (size_t i = 0; i < a->n; i++) {
			at[(key_of(&a->s[i], key) >> shift & 2047) + 1]++;
		}
		for (unsigned k = 1; k < 2048; k++) {
			at[k] += at[k - 1];
		}
		for (size_t i = 0; i < a->n; i++) {
			a->room[at[key_of(&a->s[i], key) >> shift & 2047]++] = a->s[i];
		}
		struct sample *sorted = a->room;
		a->room = a->s;
		a->s = sorted;
	}
}

/* ---- Rows ---- */

/* The nearest-rank quantile of n > 0 sorted values, in thousandths. */
static uint64_t quantile(const struct sample *sorted, size_t n, unsigned permille)
{
	size_t rank = (n * permille + 999) / 1000;

	return sorted[rank > 0 ? rank - 1 : 0].ticks;
}

static struct trace_dwell row_of(const struct sample *sorted, size_t n, bool by_owner)
{
	struct trace_dwell d = {
		.tpoint_id = sorted[0].tpoint,
		.owner_id = by_owner ? sorted[0].owner : 0,
		.object_type = sorted[0].type,
		.count = n,
		.min = sorted[0].ticks,
		.median = quantile(sorted, n, 500),
		.p90 = quantile(sorted, n, 900),
		.p99 = quantile(sorted, n, 990),
		.p999 = quantile(sorted, n, 999),
		.max = sorted[n - 1].ticks,
	};

	for (size_t i = 0; i < n; i++) {
		d.total = d.total + sorted[i].ticks < d.total ? UINT64_MAX : d.total + sorted[i].ticks;
	}
	return d;
}

static bool same_row(const struct sample *a, const struct sample *b, bool by_owner)
{
	return a->type == b->type && a->tpoint == b->tpoint && (!by_owner || a->owner == b->owner);
}

/* One row for each run of samples that belong together. */
static int rows_make(const struct samples *a, bool by_owner, struct trace_dwell **rows, size_t *num_rows)
{
	size_t n = 0, end;

	for (size_t i = 0; i < a->n; i++) {
		n += i == 0 || !same_row(&a->s[i - 1], &a->s[i], by_owner);
	}
	*rows = malloc((n + 1) * sizeof(**rows));
	if (*rows == NULL) {
		return -ENOMEM;
	}
	*num_rows = 0;
	for (size_t i = 0; i < a->n; i = end) {
		for (end = i + 1; end < a->n && same_row(&a->s[i], &a->s[end], by_owner); end++) {
		}
		(*rows)[(*num_rows)++] = row_of(&a->s[i], end - i, by_owner);
	}
	return 0;
}

/* ---- Samples ---- */

static int samples_reserve(struct samples *a, size_t max)
{
	a->s = trace_large_alloc(max + 1, sizeof(a->s[0]));
	a->room = trace_large_alloc(max + 1, sizeof(a->s[0]));
	a->n = 0;
	return a->s == NULL || a->room == NULL ? -ENOMEM : 0;
}

static void samples_clear(struct samples *a)
{
	free(a->s);
	free(a->room);
	*a = (struct samples){0};
}

/* For whom a life counts in the tables by owner: for its own owner, and, if asked, a request also for the bdev that
 * served it, which is the owner of what was done for it first. 0: for nobody. */
enum counted_for { FOR_OWNER, FOR_SERVER };

static uint16_t owner_of(const struct trace_lives *l, uint32_t n, enum counted_for whom)
{
	if (l == NULL || n == TRACE_NO_LIFE) {
		return 0;
	}
	const struct trace_life *life = &l->lives[n];
	if (whom == FOR_OWNER) {
		return life->owner_id;
	}
	if (life->parent != TRACE_NO_LIFE || life->first_child == TRACE_NO_LIFE) {
		return 0;
	}
	uint16_t server = l->lives[life->first_child].owner_id;
	return server != life->owner_id ? server : 0;
}

static void states_collect(const struct trace_reader *r, const struct trace_batch *b, const struct trace_lives *l,
			   const bool *keep, enum counted_for whom, struct samples *a)
{
	for (size_t i = 0; i < b->num_events; i++) {
		const struct trace_event *e = &b->events[i];
		if (e->state_ticks == TRACE_NO_TIME || (keep != NULL && !keep[i])) {
			continue;
		}
		const struct trace_tpoint *t = trace_reader_tpoint(r, e->prev_tpoint);
		uint16_t owner = owner_of(l, e->life, whom);
		if (t != NULL && t->object_type != 0 && (owner != 0 || whom == FOR_OWNER)) {
			a->s[a->n++] = (struct sample){e->state_ticks, t->id, owner, t->object_type};
		}
	}
}

static void lives_collect(const struct trace_lives *l, const bool *keep, enum counted_for whom, struct samples *a)
{
	for (size_t i = 0; i < l->num_lives; i++) {
		const struct trace_life *life = &l->lives[i];
		uint16_t owner = owner_of(l, (uint32_t)i, whom);
		if (life->type != 0 && life->index != TRACE_NO_OBJECT && life->ended &&
		    (keep == NULL || keep[life->last_event]) && (owner != 0 || whom == FOR_OWNER)) {
			a->s[a->n++] = (struct sample){life->last - life->start, 0, owner, life->type};
		}
	}
}

static void by_state_sort(struct samples *a)
{
	samples_sort(a, KEY_TICKS);
	samples_sort(a, KEY_TPOINT);
	samples_sort(a, KEY_TYPE);
}

int trace_summary_make(const struct trace_reader *r, const struct trace_batch *b, struct trace_dwell **rows,
		       size_t *num_rows)
{
	struct samples a;
	int rc = samples_reserve(&a, b->num_events);

	*rows = NULL;
	if (rc == 0) {
		states_collect(r, b, NULL, NULL, FOR_OWNER, &a);
		by_state_sort(&a);
		rc = rows_make(&a, false, rows, num_rows);
	}
	samples_clear(&a);
	return rc;
}

static int states_report(const struct trace_reader *r, const struct trace_batch *b, const struct trace_lives *l,
			 const bool *keep, bool served, struct trace_report *out)
{
	struct samples a;
	int rc = samples_reserve(&a, b->num_events * (served ? 2 : 1));

	if (rc == 0) {
		states_collect(r, b, l, keep, FOR_OWNER, &a);
		by_state_sort(&a);
		rc = rows_make(&a, false, &out->rows[TRACE_BY_STATE], &out->num_rows[TRACE_BY_STATE]);
	}
	if (rc == 0) {
		if (served) {
			states_collect(r, b, l, keep, FOR_SERVER, &a);
			by_state_sort(&a);
		}
		samples_sort(&a, KEY_OWNER);
		rc = rows_make(&a, true, &out->rows[TRACE_BY_OWNER_STATE], &out->num_rows[TRACE_BY_OWNER_STATE]);
	}
	samples_clear(&a);
	return rc;
}

static int lives_report(const struct trace_lives *l, const bool *keep, bool served, struct trace_report *out)
{
	struct samples a;
	int rc = samples_reserve(&a, l->num_lives * (served ? 2 : 1));

	if (rc == 0) {
		lives_collect(l, keep, FOR_OWNER, &a);
		by_state_sort(&a);
		rc = rows_make(&a, false, &out->rows[TRACE_BY_TYPE], &out->num_rows[TRACE_BY_TYPE]);
	}
	if (rc == 0) {
		if (served) {
			lives_collect(l, keep, FOR_SERVER, &a);
			by_state_sort(&a);
		}
		samples_sort(&a, KEY_OWNER);
		rc = rows_make(&a, true, &out->rows[TRACE_BY_OWNER_TYPE], &out->num_rows[TRACE_BY_OWNER_TYPE]);
	}
	samples_clear(&a);
	return rc;
}

int trace_report_make(const struct trace_reader *r, const struct trace_batch *b, const struct trace_lives *l,
		      const bool *keep, bool served, struct trace_report *out)
{
	*out = (struct trace_report){0};
	int rc = states_report(r, b, l, keep, served, out);
	if (rc == 0) {
		rc = lives_report(l, keep, served, out);
	}
	if (rc != 0) {
		trace_report_clear(out);
	}
	return rc;
}

void trace_report_clear(struct trace_report *t)
{
	for (int i = 0; i < TRACE_NUM_TABLES; i++) {
		free(t->rows[i]);
	}
	*t = (struct trace_report){0};
}
