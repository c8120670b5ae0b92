/* SPDX-License-Identifier: BSD-3-Clause */
/* Objects. The event that creates one gives it the next number of its type. Later events name it by its value, an
 * address that is reused; events of its children name it in an argument. */
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "trace/reader_internal.h"

enum { FIRST_ROOM = 1024 };

/* The latest object of a type with a value. */
struct trace_object {
	uint64_t value;
	uint64_t index; /* TRACE_NO_OBJECT: seen, but not created within the trace */
	uint64_t start;
	uint64_t last; /* tsc of its latest event, on `lcore`, where events were missing `gaps` times until then */
	uint32_t lcore, gaps;
	uint32_t life;
	uint16_t last_tpoint;
	uint8_t type; /* 0: this place is free */
};

static size_t place_of(const struct trace_objects *o, uint8_t type, uint64_t value)
{
	uint64_t h = (value ^ o->seed) * 0x9e3779b97f4a7c15u + type;

	h ^= h >> 32;
	h *= 0xd6e8feb86659fd93u;
	return (size_t)(h >> 32) & (o->room - 1);
}

/* Where the object is, or the free place where it would be. */
static struct trace_object *object_place(const struct trace_objects *o, uint8_t type, uint64_t value)
{
	size_t at = place_of(o, type, value);

	while (o->table[at].type != 0 && (o->table[at].value != value || o->table[at].type != type)) {
		at = (at + 1) & (o->room - 1);
	}
	return &o->table[at];
}

static struct trace_object *object_find(const struct trace_objects *o, uint8_t type, uint64_t value)
{
	struct trace_object *obj = o->room > 0 ? object_place(o, type, value) : NULL;

	return obj != NULL && obj->type != 0 ? obj : NULL;
}

static int table_grow(struct trace_objects *o)
{
	struct trace_objects bigger = *o;

	if (o->room == 0 && getrandom(&bigger.seed, sizeof(bigger.seed), GRND_NONBLOCK) < 0) {
		bigger.seed = (uint64_t)(uintptr_t)o;
	}
	bigger.room = o->room > 0 ? 2 * o->room : FIRST_ROOM;
	bigger.table = calloc(bigger.room, sizeof(bigger.table[0]));
	if (bigger.table == NULL) {
		return -ENOMEM;
	}
	for (size_t i = 0; i < o->room; i++) {
		if (o->table[i].type != 0) {
			*object_place(&bigger, o->table[i].type, o->table[i].value) = o->table[i];
		}
	}
	free(o->table);
	*o = bigger;
	return 0;
}

static struct trace_object *object_add(struct trace_objects *o, uint8_t type, uint64_t value)
{
	if (2 * (o->used + 1) > o->room && table_grow(o) != 0) {
		return NULL;
	}
	struct trace_object *obj = object_place(o, type, value);
	*obj = (struct trace_object){
		.value = value, .type = type, .index = TRACE_NO_OBJECT, .last = TRACE_NO_TIME, .life = o->num_lives++};
	o->used++;
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
		if (obj->last != TRACE_NO_TIME) {
			obj->life = o->num_lives++;
		}
		obj->index = o->created[t->object_type]++;
		obj->start = e->tsc;
	} else {
		e->state_ticks = state_ticks(obj, e);
		e->prev_tpoint = obj->last_tpoint;
	}
	e->life = obj->life;
	e->object_index = obj->index;
	e->object_start = obj->start;
	obj->last = e->tsc;
	obj->last_tpoint = e->tpoint_id;
	obj->lcore = e->lcore;
	obj->gaps = e->gaps;
	return 0;
}

/* The first relation whose argument is the value of an object that was created within the trace. */
static void parent_find(const struct trace_objects *o, const struct trace_tpoint *t, const struct trace_batch *b,
			struct trace_event *e)
{
	for (unsigned i = 0; i < t->num_related; i++) {
		const struct trace_relation *rel = &t->related[i];
		const struct trace_object *parent =
			object_find(o, rel->object_type, trace_event_arg(b, e, t, rel->arg).number);
		if (parent != NULL && parent->index != TRACE_NO_OBJECT) {
			e->related_index = parent->index;
			e->related_life = parent->life;
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

int trace_objects_replace(struct trace_objects *o, uint8_t type, uint64_t value, uint32_t life, uint32_t *before)
{
	struct trace_object *obj = object_find(o, type, value);

	if (obj != NULL) {
		*before = obj->life;
	} else if ((obj = object_add(o, type, value)) == NULL) {
		return -ENOMEM;
	}
	obj->life = life;
	return 0;
}

void trace_objects_clear(struct trace_objects *o)
{
	free(o->table);
	*o = (struct trace_objects){0};
}
