/* SPDX-License-Identifier: BSD-3-Clause */
/* Marks the events of an object and of the objects related to it. */
#include <errno.h>
#include <search.h>
#include <stdlib.h>

#include "trace/reader_internal.h"

/* An object within a batch: its number and its type; never 0, since type 0 is none. */
typedef uint64_t object_key;

struct edge {
	object_key from, to;
};

struct edges {
	struct edge *e;
	size_t n;
};

/* A set that keeps the order in which its members were added, as a work list. The tree's nodes hold the keys
 * themselves. */
struct key_set {
	void *tree;
	object_key *list;
	size_t n, max;
};

static object_key edge_key_make(uint8_t type, uint64_t index)
{
	return index << 8 | type;
}

static object_key own_key(const struct trace_reader *r, const struct trace_event *e)
{
	return e->object_index == TRACE_NO_OBJECT
		       ? 0
		       : edge_key_make(trace_reader_tpoint(r, e->tpoint_id)->object_type, e->object_index);
}

static object_key parent_key(const struct trace_event *e)
{
	return e->related_index == TRACE_NO_OBJECT ? 0 : edge_key_make(e->related_type, e->related_index);
}

static int edge_key_compare(const void *a, const void *b)
{
	return ((uintptr_t)a > (uintptr_t)b) - ((uintptr_t)a < (uintptr_t)b);
}

static bool set_has(const struct key_set *s, object_key key)
{
	return key != 0 && tfind((void *)(uintptr_t)key, &s->tree, edge_key_compare) != NULL;
}

static int set_add(struct key_set *s, object_key key)
{
	if (key == 0 || set_has(s, key)) {
		return 0;
	}
	if (s->n == s->max) {
		size_t max = s->max > 0 ? 2 * s->max : 16;
		void *p = realloc(s->list, max * sizeof(s->list[0]));
		if (p == NULL) {
			return -ENOMEM;
		}
		s->list = p;
		s->max = max;
	}
	if (tsearch((void *)(uintptr_t)key, &s->tree, edge_key_compare) == NULL) {
		return -ENOMEM;
	}
	s->list[s->n++] = key;
	return 0;
}

static void edge_key_free(void *key)
{
}

static void set_clear(struct key_set *s)
{
	tdestroy(s->tree, edge_key_free);
	free(s->list);
	*s = (struct key_set){0};
}

static int edge_compare(const void *a, const void *b)
{
	const struct edge *x = a, *y = b;

	if (x->from != y->from) {
		return x->from < y->from ? -1 : 1;
	}
	return (x->to > y->to) - (x->to < y->to);
}

/* Adds all objects that can be reached from the members of the set. */
static int set_spread(struct key_set *s, const struct edges *g)
{
	for (size_t i = 0; i < s->n; i++) {
		size_t low = 0, high = g->n;
		while (low < high) {
			size_t middle = (low + high) / 2;
			if (g->e[middle].from < s->list[i]) {
				low = middle + 1;
			} else {
				high = middle;
			}
		}
		for (; low < g->n && g->e[low].from == s->list[i]; low++) {
			if (set_add(s, g->e[low].to) != 0) {
				return -ENOMEM;
			}
		}
	}
	return 0;
}

static int edges_collect(const struct trace_reader *r, const struct trace_batch *b, struct edges *up)
{
	up->e = malloc((b->num_events + 1) * sizeof(up->e[0]));
	if (up->e == NULL) {
		return -ENOMEM;
	}
	for (size_t i = 0; i < b->num_events; i++) {
		object_key child = own_key(r, &b->events[i]), parent = parent_key(&b->events[i]);
		if (child != 0 && parent != 0) {
			up->e[up->n++] = (struct edge){child, parent};
		}
	}
	qsort(up->e, up->n, sizeof(up->e[0]), edge_compare);
	return 0;
}

static void edges_turn(struct edges *g)
{
	for (size_t i = 0; i < g->n; i++) {
		g->e[i] = (struct edge){g->e[i].to, g->e[i].from};
	}
	qsort(g->e, g->n, sizeof(g->e[0]), edge_compare);
}

static int family_find(const struct trace_reader *r, const struct trace_batch *b, char prefix, uint64_t index,
		       struct key_set *family)
{
	struct edges g = {0};
	int rc = edges_collect(r, b, &g);

	for (size_t i = 0; i < b->num_events && rc == 0; i++) {
		const struct trace_event *e = &b->events[i];
		if (e->object_index == index &&
		    trace_reader_object_prefix(r, trace_reader_tpoint(r, e->tpoint_id)->object_type) == prefix) {
			rc = set_add(family, own_key(r, e));
		}
	}
	if (rc == 0) {
		rc = set_spread(family, &g); /* all its ancestors ... */
	}
	edges_turn(&g);
	if (rc == 0) {
		rc = set_spread(family, &g); /* ... and all that was done for them */
	}
	free(g.e);
	return rc;
}

int trace_life_mark(const struct trace_reader *r, const struct trace_batch *b, char prefix, uint64_t index, bool *keep,
		    size_t *start)
{
	struct key_set family = {0};
	int rc = index > UINT64_MAX >> 8 ? -ENOENT : family_find(r, b, prefix, index, &family);

	if (rc == 0 && family.n == 0) {
		rc = -ENOENT;
	}
	*start = SIZE_MAX;
	for (size_t i = 0; rc == 0 && i < b->num_events; i++) {
		keep[i] = set_has(&family, own_key(r, &b->events[i])) || set_has(&family, parent_key(&b->events[i]));
		if (keep[i] && *start == SIZE_MAX) {
			*start = i;
		}
	}
	set_clear(&family);
	return rc;
}
