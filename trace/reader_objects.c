/* SPDX-License-Identifier: BSD-3-Clause */
/* Objects: an event that creates one gives it the next number of its type; later events name it by its value
 * (an address, which is used again), and so do children of it, in an argument. */
#include <errno.h>
#include <search.h>
#include <stdlib.h>

#include "trace/reader_internal.h"

/* The latest object of a type with a value. */
struct trace_object {
	uint64_t value;
	uint64_t index; /* TRACE_NO_OBJECT: seen, but not created within the trace */
	uint64_t start;
	uint64_t last; /* tsc of its latest event, on `lcore`, which had `gaps` holes until then */
	uint32_t lcore, gaps;
	uint16_t last_tpoint;
	uint8_t type;
};

static int object_compare(const void *a, const void *b)
{
	const struct trace_object *x = a, *y = b;

	if (x->value != y->value) {
		return x->value < y->value ? -1 : 1;
	}
	return (int)x->type - (int)y->type;
}

static struct trace_object *object_find(const struct trace_objects *o, uint8_t type, uint64_t value)
{
	struct trace_object key = {.value = value, .type = type};
	void *node = tfind(&key, &o->by_value, object_compare);

	return node != NULL ? *(struct trace_object **)node : NULL;
}

static struct trace_object *object_add(struct trace_objects *o, uint8_t type, uint64_t value)
{
	struct trace_object *obj = calloc(1, sizeof(*obj));

	if (obj == NULL) {
		return NULL;
	}
	*obj = (struct trace_object){
		.value = value, .type = type, .index = TRACE_NO_OBJECT, .last = TRACE_NO_TIME};
	if (tsearch(obj, &o->by_value, object_compare) == NULL) {
		free(obj);
		return NULL;
	}
	return obj;
}

/* How long the object was in the state that this event ends; unknown if events may be missing in between. */
static uint64_t state_ticks(const struct trace_object *obj, const struct trace_event *e)
{
	bool hole = obj->lcore == e->lcore && obj->gaps != e->gaps;

	return obj->last == TRACE_NO_TIME || obj->last > e->tsc || hole ? TRACE_NO_TIME : e->tsc - obj->last;
}

static int own_object_track(struct trace_objects *o, const struct trace_tpoint *t, struct trace_event *e)
{
	struct trace_object *obj = object_find(o, t->object_type, e->object_id);

	if (obj == NULL && (obj = object_add(o, t->object_type, e->object_id)) == NULL) {
		return -ENOMEM;
	}
	if (t->new_object) {
		obj->index = o->created[t->object_type]++;
		obj->start = e->tsc;
	} else {
		e->state_ticks = state_ticks(obj, e);
		e->prev_tpoint = obj->last_tpoint;
	}
	e->object_index = obj->index;
	e->object_start = obj->start;
	obj->last = e->tsc;
	obj->last_tpoint = e->tpoint_id;
	obj->lcore = e->lcore;
	obj->gaps = e->gaps;
	return 0;
}

/* The first relation whose argument is the value of an object that was created within the trace. */
static void parent_find(const struct trace_objects *o, const struct trace_tpoint *t,
			const struct trace_batch *b, struct trace_event *e)
{
	for (unsigned i = 0; i < t->num_related; i++) {
		const struct trace_relation *rel = &t->related[i];
		const struct trace_object *parent =
			object_find(o, rel->object_type, trace_event_arg(b, e, t, rel->arg).number);
		if (parent != NULL && parent->index != TRACE_NO_OBJECT) {
			e->related_index = parent->index;
			e->related_type = rel->object_type;
			e->related_arg = rel->arg;
			return;
		}
	}
}

int trace_objects_track(struct trace_objects *o, const struct trace_reader *r, const struct trace_batch *b,
			struct trace_event *e)
{
	const struct trace_tpoint *t = trace_reader_tpoint(r, e->tpoint_id);

	if (t->object_type != 0 && own_object_track(o, t, e) != 0) {
		return -ENOMEM;
	}
	parent_find(o, t, b, e);
	return 0;
}

void trace_objects_clear(struct trace_objects *o)
{
	tdestroy(o->by_value, free);
	*o = (struct trace_objects){0};
}
