/* SPDX-License-Identifier: BSD-3-Clause */
/* One ring: copies a stretch of it, keeps the entries that are whole, and decodes them into events. trace/trace_file.h
 * says why a copy is consistent. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "trace/reader_internal.h"

enum { HUGE_PAGE = 2 << 20 };

void *trace_large_alloc(size_t count, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX - HUGE_PAGE) {
		return NULL;
	}
	if (bytes < 2 * HUGE_PAGE) {
		return malloc(bytes);
	}
	void *p = aligned_alloc(HUGE_PAGE, (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
	if (p != NULL) {
		madvise(p, bytes, MADV_HUGEPAGE); /* a wish */
	}
	return p;
}

/* ---- Copying ---- */

/* The kernel may copy the 8 bytes of next_entry in several steps, while they change. So this reads until two readings
 * differ by less than the length of the ring, and returns the smaller; a torn reading is off by at least 256. If the
 * writer is too fast even for that, it is overwriting the ring faster than it can be read. */
int trace_history_next(const struct trace_reader *r, const struct trace_history *h, uint64_t *next)
{
	uint64_t at = h->offset + offsetof(struct trace_file_history, next_entry);
	uint64_t again = 0;
	int rc = trace_source_read(&r->source, at, next, sizeof(*next));

	for (unsigned tries = 0; rc == 0 && tries < 8; tries++) {
		rc = trace_source_read(&r->source, at, &again, sizeof(again));
		if (rc == 0 && again >= *next && again - *next < 256) {
			return 0;
		}
		*next = again;
	}
	return rc;
}

static int stretch_reserve(struct trace_stretch *s, size_t count)
{
	if (count <= s->room) {
		return 0;
	}
	trace_stretch_free(s);
	s->entries = trace_large_alloc(count, sizeof(s->entries[0]));
	s->stamps = trace_large_alloc(count, sizeof(s->stamps[0]));
	s->accepted = trace_large_alloc(count, sizeof(s->accepted[0]));
	if (s->entries == NULL || s->stamps == NULL || s->accepted == NULL) {
		trace_stretch_free(s);
		return -ENOMEM;
	}
	s->room = count;
	return 0;
}

void trace_stretch_free(struct trace_stretch *s)
{
	free(s->entries);
	free(s->stamps);
	free(s->accepted);
	s->entries = NULL;
	s->stamps = s->accepted = NULL;
	s->room = 0;
}

/* Reads `count` items of `size` bytes, from ring position `from` on, around the end. */
static int ring_read(const struct trace_reader *r, const struct trace_history *h, uint64_t base, size_t size,
		     uint64_t from, size_t count, void *to)
{
	uint64_t slot = from & (h->num_entries - 1);
	size_t run = h->num_entries - slot < count ? (size_t)(h->num_entries - slot) : count;
	int rc = run == 0 ? 0 : trace_source_read(&r->source, base + slot * size, to, run * size);

	if (rc == 0 && run < count) {
		rc = trace_source_read(&r->source, base, (uint8_t *)to + run * size, (count - run) * size);
	}
	return rc;
}

int trace_stretch_copy(struct trace_reader *r, const struct trace_history *h, uint64_t from, bool live,
		       struct trace_stretch *s, struct trace_lcore *lc)
{
	int rc = trace_history_next(r, h, &s->next_before);
	if (rc != 0) {
		return rc;
	}
	uint64_t next = s->next_before, oldest = next > h->num_entries ? next - h->num_entries : 0;
	if (from < oldest) {
		lc->overwritten += oldest - from;
		from = oldest;
	}
	/* In the copy of a live file, or after a crash, there may be whole entries that next_entry does not
	 * count yet. */
	bool later = h->stamps_at != 0 && !live, cut = h->readable < h->num_entries;
	s->from = from;
	s->first = cut ? 0 : from;
	s->count = (size_t)(cut || later ? h->readable : next - from);
	if ((rc = stretch_reserve(s, s->count)) != 0) {
		return rc;
	}
	rc = ring_read(r, h, h->entries_at, sizeof(s->entries[0]), s->first, s->count, s->entries);
	if (rc == 0 && h->stamps_at != 0) {
		__atomic_thread_fence(__ATOMIC_ACQUIRE); /* stamps after entries, see (a) in trace_file.h */
		rc = ring_read(r, h, h->stamps_at, sizeof(s->stamps[0]), s->first, s->count, s->stamps);
	}
	if (rc != 0) {
		return rc;
	}
	__atomic_thread_fence(__ATOMIC_ACQUIRE); /* next_entry after the entries, see (b) there */
	lc->written = next;
	return trace_history_next(r, h, &s->next_after);
}

/* ---- Vetting ---- */

/* The number of the entry that a stamp belongs to: the number closest to `near` with these low 32 bits. */
static uint64_t stamp_number(uint64_t stamp, uint64_t near)
{
	return near + (uint64_t)(int64_t)(int32_t)((uint32_t)stamp - 1 - (uint32_t)near);
}

/* The first entry that the writer had certainly not begun to overwrite when the copy was complete. Without stamps, or
 * with a CPU that reorders stores, an event of max_slots may have been under way. */
static uint64_t first_stable(const struct trace_reader *r, const struct trace_history *h, const struct trace_stretch *s)
{
	uint64_t reserve = 0;

	if (h->stamps_at == 0 || (r->info.flags & TRACE_INFO_TSO) == 0) {
		reserve = r->max_slots;
	}
	uint64_t busy_to = s->next_after > UINT64_MAX - reserve ? UINT64_MAX : s->next_after + reserve;
	return busy_to > h->num_entries ? busy_to - h->num_entries : 0;
}

enum slot_verdict {
	SLOT_WHOLE,
	SLOT_UNUSED, /* never written, or after the end */
	SLOT_UNSTABLE,
	SLOT_TORN,
};

/* Judges slot n of the stretch. *number: in, the entry that should be there; out, the entry that is. */
static enum slot_verdict slot_judge(const struct trace_history *h, const struct trace_stretch *s, uint64_t stable,
				    bool live, size_t n, uint64_t *number)
{
	uint64_t expected = *number, tsc = s->entries[n].tsc;
	bool published = expected < s->next_before;

	if (h->stamps_at == 0) {
		if (tsc == 0 || !published) {
			return SLOT_UNUSED;
		}
		return expected < stable ? SLOT_UNSTABLE : SLOT_WHOLE;
	}
	uint64_t held = stamp_number(s->stamps[n], expected);
	bool whole = tsc != 0 && s->stamps[n] == TRACE_FILE_STAMP(tsc, held) && held >= s->from &&
		     (held & (h->num_entries - 1)) == (expected & (h->num_entries - 1));
	if (whole && held >= stable && (held < s->next_before || !live)) {
		*number = held;
		return SLOT_WHOLE;
	}
	if (!published) {
		return SLOT_UNUSED; /* perhaps under way */
	}
	return expected < stable || (whole && held != expected) ? SLOT_UNSTABLE : SLOT_TORN;
}

static int number_compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static const struct trace_file_entry *entry_of(const struct trace_history *h, const struct trace_stretch *s,
					       uint64_t number)
{
	return &s->entries[(number - s->first) & (h->num_entries - 1)];
}

/* Keeps the largest set of entries whose times never decrease (a longest non-decreasing subsequence): the
 * entries of one ring are in the order of time, so a few that contradict the others are damaged. Returns how
 * many are left. */
static size_t keep_in_order(const struct trace_history *h, struct trace_stretch *s, size_t n)
{
	size_t sorted = 1, length = 0;

	while (sorted < n && entry_of(h, s, s->accepted[sorted - 1])->tsc <= entry_of(h, s, s->accepted[sorted])->tsc) {
		sorted++;
	}
	if (sorted >= n) {
		return n;
	}
	/* ends[k]: the position of the smallest tsc that ends a sequence of length k + 1; before[i]: the one
	 * before i in it. */
	size_t *ends = malloc(n * sizeof(*ends)), *before = malloc(n * sizeof(*before));
	if (ends == NULL || before == NULL) {
		free(ends);
		free(before);
		return sorted; /* at least these are in order */
	}
	for (size_t i = 0; i < n; i++) {
		uint64_t tsc = entry_of(h, s, s->accepted[i])->tsc;
		size_t low = 0, high = length;
		while (low < high) {
			size_t middle = (low + high) / 2;
			if (entry_of(h, s, s->accepted[ends[middle]])->tsc <= tsc) {
				low = middle + 1;
			} else {
				high = middle;
			}
		}
		before[i] = low > 0 ? ends[low - 1] : SIZE_MAX;
		ends[low] = i;
		length = low == length ? length + 1 : length;
	}
	size_t at = ends[length - 1];
	for (size_t k = length; k-- > 0; at = before[at]) {
		ends[k] = at;
	}
	for (size_t k = 0; k < length; k++) {
		s->accepted[k] = s->accepted[ends[k]];
	}
	free(ends);
	free(before);
	return length;
}

void trace_stretch_vet(const struct trace_reader *r, const struct trace_history *h, bool live, struct trace_stretch *s,
		       struct trace_lcore *lc)
{
	uint64_t stable = first_stable(r, h, s), published = s->next_before - s->from;
	bool ascending = true;
	size_t n = 0;

	for (size_t i = 0; i < s->count; i++) {
		uint64_t number = s->from + ((s->first + i - s->from) & (h->num_entries - 1));
		published -= number < s->next_before;
		switch (slot_judge(h, s, stable, live, i, &number)) {
		case SLOT_WHOLE:
			ascending = ascending && (n == 0 || s->accepted[n - 1] < number);
			s->accepted[n++] = number;
			break;
		case SLOT_UNUSED:
			break;
		case SLOT_UNSTABLE:
			lc->unstable++;
			break;
		case SLOT_TORN:
			lc->torn++;
			break;
		}
	}
	lc->unreadable += published;
	if (!ascending) {
		qsort(s->accepted, n, sizeof(s->accepted[0]), number_compare);
	}
	s->num_accepted = keep_in_order(h, s, n);
	lc->out_of_order += n - s->num_accepted;
}

/* ---- Events ---- */

int trace_batch_reserve(struct trace_growing_batch *g, size_t events, size_t arg_bytes)
{
	size_t want = g->b.num_events + events, want_bytes = g->b.num_arg_bytes + arg_bytes;

	if (want > g->max_events) {
		size_t n = want < 2 * g->max_events ? 2 * g->max_events : want;
		void *p = trace_large_alloc(n, sizeof(g->b.events[0]));
		if (p == NULL) {
			return -ENOMEM;
		}
		if (g->b.num_events > 0) {
			memcpy(p, g->b.events, g->b.num_events * sizeof(g->b.events[0]));
		}
		free(g->b.events);
		g->b.events = p;
		g->max_events = n;
	}
	if (want_bytes > g->max_arg_bytes) {
		size_t n = want_bytes < 2 * g->max_arg_bytes ? 2 * g->max_arg_bytes : want_bytes;
		void *p = realloc(g->b.arg_bytes, n);
		if (p == NULL) {
			return -ENOMEM;
		}
		g->b.arg_bytes = p;
		g->max_arg_bytes = n;
	}
	return 0;
}

void trace_batch_clear(struct trace_growing_batch *g)
{
	free(g->b.events);
	free(g->b.arg_bytes);
	*g = (struct trace_growing_batch){0};
}

/* Whether all slots of the event at accepted entry `at` are there: consecutive continuations with the same
 * tsc. */
static bool event_is_whole(const struct trace_history *h, const struct trace_stretch *s, size_t at, unsigned num_slots)
{
	const struct trace_file_entry *e = entry_of(h, s, s->accepted[at]);

	if (num_slots > s->num_accepted - at) {
		return false;
	}
	for (unsigned k = 1; k < num_slots; k++) {
		const struct trace_file_entry *c = entry_of(h, s, s->accepted[at + k]);
		if (s->accepted[at + k] != s->accepted[at] + k || c->tpoint_id != TRACE_TPOINT_ID_CONTINUATION ||
		    c->tsc != e->tsc) {
			return false;
		}
	}
	return true;
}

/* How many continuations follow at `at`, without a hole, that have this tsc. */
static size_t continuations_at(const struct trace_history *h, const struct trace_stretch *s, size_t at, uint64_t tsc)
{
	size_t n = 0;

	while (at + n < s->num_accepted) {
		const struct trace_file_entry *c = entry_of(h, s, s->accepted[at + n]);
		if (c->tpoint_id != TRACE_TPOINT_ID_CONTINUATION || c->tsc != tsc ||
		    s->accepted[at + n] != s->accepted[at] + n) {
			break;
		}
		n++;
	}
	return n;
}

static void args_gather(const struct trace_history *h, const struct trace_stretch *s, size_t at, size_t length,
			uint8_t *to)
{
	size_t part = length < TRACE_ENTRY_ARG_BYTES ? length : TRACE_ENTRY_ARG_BYTES;

	memcpy(to, entry_of(h, s, s->accepted[at])->args, part);
	while ((length -= part) > 0) {
		struct trace_file_continuation c;
		to += part;
		memcpy(&c, entry_of(h, s, s->accepted[++at]), sizeof(c));
		part = length < sizeof(c.args) ? length : sizeof(c.args);
		memcpy(to, c.args, part);
	}
}

static void event_append(const struct trace_history *h, const struct trace_stretch *s, size_t at,
			 const struct trace_tpoint *t, uint32_t gaps, struct trace_batch *b)
{
	const struct trace_file_entry *e = entry_of(h, s, s->accepted[at]);

	b->events[b->num_events++] = (struct trace_event){
		.tsc = e->tsc,
		.object_id = e->object_id,
		.object_index = TRACE_NO_OBJECT,
		.state_ticks = TRACE_NO_TIME,
		.related_index = TRACE_NO_OBJECT,
		.life = TRACE_NO_LIFE,
		.related_life = TRACE_NO_LIFE,
		.size = e->size,
		.lcore = h->lcore,
		.args = (uint32_t)b->num_arg_bytes,
		.gaps = gaps,
		.tpoint_id = e->tpoint_id,
		.owner_id = e->owner_id,
	};
	args_gather(h, s, at, t->arg_bytes, b->arg_bytes + b->num_arg_bytes);
	b->num_arg_bytes += t->arg_bytes;
}

int trace_stretch_decode(const struct trace_reader *r, const struct trace_history *h, const struct trace_stretch *s,
			 uint64_t clear_tsc, uint32_t *gaps, struct trace_growing_batch *out, struct trace_lcore *lc)
{
	size_t arg_bytes = s->num_accepted * TRACE_CONTINUATION_ARG_BYTES; /* an entry brings 8, a continuation 22 */
	size_t slots;

	if (out->b.num_arg_bytes + arg_bytes > UINT32_MAX ||
	    trace_batch_reserve(out, s->num_accepted, arg_bytes) != 0) {
		return -ENOMEM;
	}
	for (size_t at = 0; at < s->num_accepted; at += slots) {
		const struct trace_file_entry *e = entry_of(h, s, s->accepted[at]);
		bool hole = at > 0 && s->accepted[at] != s->accepted[at - 1] + 1;
		const struct trace_tpoint *t = trace_reader_tpoint(r, e->tpoint_id);
		uint64_t *left_out = NULL;
		if (e->tpoint_id == TRACE_TPOINT_ID_CONTINUATION) {
			slots = continuations_at(h, s, at, e->tsc); /* those of an event whose entry is lost */
			left_out = &lc->cut;
		} else if (t == NULL) {
			slots = 1 + continuations_at(h, s, at + 1, e->tsc);
			left_out = &lc->unknown;
		} else if (!event_is_whole(h, s, at, t->num_slots)) {
			slots = 1 + continuations_at(h, s, at + 1, e->tsc);
			left_out = &lc->cut;
		} else {
			slots = t->num_slots;
		}
		if (e->tsc < clear_tsc) {
			lc->cleared++;
			continue;
		}
		*gaps += hole || left_out != NULL;
		if (left_out != NULL) {
			(*left_out)++;
			continue;
		}
		if (t->lost_mark) {
			uint64_t lost;
			memcpy(&lost, e->args, sizeof(lost));
			lc->missed = lc->missed + lost < lost ? UINT64_MAX : lc->missed + lost;
			++*gaps;
		}
		event_append(h, s, at, t, *gaps, &out->b);
		lc->events++;
	}
	return 0;
}

struct trace_arg trace_event_arg(const struct trace_batch *b, const struct trace_event *e, const struct trace_tpoint *t,
				 unsigned n)
{
	const struct trace_tpoint_arg *a = &t->args[n];
	const uint8_t *bytes = b->arg_bytes + e->args + a->offset;
	struct trace_arg value = {.type = a->type};

	if (a->type == TRACE_ARG_STR) {
		value.text = (const char *)bytes;
		value.length = strnlen(value.text, a->size);
	} else {
		memcpy(&value.number, bytes, a->size);
	}
	return value;
}
