/* SPDX-License-Identifier: BSD-3-Clause */
/* Opening crafted files, and looking through everything that a reader gives out. */
#ifndef UNITTEST_TRACE_READER_USE_H
#define UNITTEST_TRACE_READER_USE_H

#include "trace/reader.h"
#include "unittest/trace/reader_craft.h"
#include "unittest/unit.h"

struct opened {
	struct trace_reader *r;
	struct trace_snapshot *s;
};

static inline struct opened open_craft(const struct craft *c)
{
	struct opened o = {0};
	struct trace_error err = {{0}};

	CU_ASSERT_EQUAL_FATAL(trace_reader_open_memory(c->bytes, c->size, &o.r, &err), 0);
	CU_ASSERT_EQUAL_FATAL(trace_snapshot_take(o.r, TRACE_ALL_LCORES, &o.s, &err), 0);
	return o;
}

static inline void close_opened(struct opened *o)
{
	trace_snapshot_free(o->s);
	trace_reader_close(o->r);
}

/* Whether one of the file's problems contains a text. */
static inline bool has_problem(const struct trace_reader *r, const char *text)
{
	const char *p;

	for (size_t i = 0; (p = trace_reader_problem(r, i)) != NULL; i++) {
		if (strstr(p, text) != NULL) {
			return true;
		}
	}
	return false;
}

/* Whether two files' events are the same in what was recorded. */
static inline bool same_event(const struct trace_event *a, const struct trace_event *b)
{
	return a->tsc == b->tsc && a->lcore == b->lcore && a->tpoint_id == b->tpoint_id && a->owner_id == b->owner_id &&
	       a->size == b->size && a->object_id == b->object_id;
}

/* Whether all events of `a` occur in `b`, in the same order. */
static inline bool is_part_of(const struct trace_batch *a, const struct trace_batch *b)
{
	size_t k = 0;

	for (size_t i = 0; i < b->num_events && k < a->num_events; i++) {
		k += same_event(&a->events[k], &b->events[i]);
	}
	return k == a->num_events;
}

static inline bool is_in_time_order(const struct trace_batch *b)
{
	for (size_t i = 1; i < b->num_events; i++) {
		if (b->events[i - 1].tsc > b->events[i].tsc) {
			return false;
		}
	}
	return true;
}

#endif
