/* SPDX-License-Identifier: BSD-3-Clause */
/* Lives of objects: which events an object had, which object is its parent, whether it ended, and where its time went.
 */
#include <errno.h>
#include <stdlib.h>

#include "trace/reader_internal.h"

static void life_begin(struct trace_life *life, const struct trace_tpoint *t, const struct trace_event *e, uint32_t at)
{
	*life = (struct trace_life){
		.value = e->object_id,
		.index = e->object_index,
		.start = e->object_index != TRACE_NO_OBJECT ? e->object_start : e->tsc,
		.first_event = at,
		.parent = TRACE_NO_LIFE,
		.first_child = TRACE_NO_LIFE,
		.next_sibling = TRACE_NO_LIFE,
		.type = t->object_type,
	};
}

static void life_continue(struct trace_life *life, const struct trace_tpoint *t, const struct trace_event *e,
			  uint32_t at)
{
	if (e->state_ticks != TRACE_NO_TIME && e->state_ticks >= life->slowest_ticks) {
		life->slowest_ticks = e->state_ticks;
		life->slowest_tpoint = e->prev_tpoint;
	}
	if (life->owner_id == 0 && t->owner_type != 0) {
		life->owner_id = e->owner_id;
	}
	/* The first parent that is named, since parents do not change. Parents are older, so there are no cycles. */
	if (life->parent == TRACE_NO_LIFE && e->related_life < e->life) {
		life->parent = e->related_life;
	}
	life->last = e->tsc;
	life->last_event = at;
	life->last_tpoint = e->tpoint_id;
	life->ended = t->end_object;
}

/* Marks the lives whose value a later life has taken: these have ended. */
static int superseded_mark(struct trace_lives *l)
{
	struct trace_objects latest = {0};
	int rc = 0;

	for (size_t i = 0; i < l->num_lives && rc == 0; i++) {
		uint32_t before = TRACE_NO_LIFE;
		if (l->lives[i].type != 0) {
			rc = trace_objects_replace(&latest, l->lives[i].type, l->lives[i].value, (uint32_t)i, &before);
		}
		if (before != TRACE_NO_LIFE) {
			l->lives[before].superseded = true;
		}
	}
	trace_objects_clear(&latest);
	return rc;
}

static void family_link(struct trace_lives *l)
{
	for (size_t i = l->num_lives; i-- > 0;) { /* backwards: children come out in the order of their creation */
		struct trace_life *life = &l->lives[i];
		if (life->parent != TRACE_NO_LIFE) {
			life->next_sibling = l->lives[life->parent].first_child;
			l->lives[life->parent].first_child = (uint32_t)i;
		}
	}
	for (size_t i = 0; i < l->num_lives; i++) { /* parents have lower numbers */
		struct trace_life *life = &l->lives[i];
		if (life->owner_id == 0 && life->parent != TRACE_NO_LIFE) {
			life->owner_id = l->lives[life->parent].owner_id;
		}
		if (trace_life_is_unfinished(life) && l->end_tsc - life->last >= life->slowest_ticks) {
			life->slowest_ticks = l->end_tsc - life->last;
			life->slowest_tpoint = life->last_tpoint;
		}
	}
}

int trace_lives_make(const struct trace_reader *r, const struct trace_batch *b, struct trace_lives *out)
{
	size_t num_lives = 0;

	*out = (struct trace_lives){0};
	for (size_t i = 0; i < b->num_events; i++) {
		uint32_t life = b->events[i].life;
		num_lives = life != TRACE_NO_LIFE && life >= num_lives ? (size_t)life + 1 : num_lives;
	}
	out->lives = calloc(num_lives + 1, sizeof(out->lives[0]));
	out->next_event = malloc((b->num_events + 1) * sizeof(out->next_event[0]));
	if (out->lives == NULL || out->next_event == NULL) {
		trace_lives_clear(out);
		return -ENOMEM;
	}
	out->num_lives = num_lives;
	for (size_t i = 0; i < b->num_events; i++) {
		const struct trace_event *e = &b->events[i];
		const struct trace_tpoint *t = trace_reader_tpoint(r, e->tpoint_id);
		out->next_event[i] = UINT32_MAX;
		out->end_tsc = e->tsc;
		if (e->life == TRACE_NO_LIFE) {
			continue;
		}
		struct trace_life *life = &out->lives[e->life];
		if (life->type == 0) {
			life_begin(life, t, e, (uint32_t)i);
		} else {
			out->next_event[life->last_event] = (uint32_t)i;
		}
		life_continue(life, t, e, (uint32_t)i);
	}
	if (superseded_mark(out) != 0) {
		trace_lives_clear(out);
		return -ENOMEM;
	}
	family_link(out);
	return 0;
}

void trace_lives_clear(struct trace_lives *l)
{
	free(l->lives);
	free(l->next_event);
	*l = (struct trace_lives){0};
}

bool trace_life_is_unfinished(const struct trace_life *life)
{
	return life->index != TRACE_NO_OBJECT && !life->ended && !life->superseded;
}

uint64_t trace_life_ticks(const struct trace_lives *l, const struct trace_life *life)
{
	return (trace_life_is_unfinished(life) ? l->end_tsc : life->last) - life->start;
}

uint32_t trace_life_root(const struct trace_lives *l, uint32_t n)
{
	while (l->lives[n].parent != TRACE_NO_LIFE) {
		n = l->lives[n].parent; /* always a lower number */
	}
	return n;
}

uint32_t trace_life_culprit(const struct trace_lives *l, uint32_t n)
{
	for (;;) {
		const struct trace_life *life = &l->lives[n];
		uint32_t worst = TRACE_NO_LIFE;
		uint64_t most = life->slowest_ticks / 2;
		for (uint32_t c = life->first_child; c != TRACE_NO_LIFE; c = l->lives[c].next_sibling) {
			if (l->lives[c].slowest_ticks > most &&
			    l->lives[c].slowest_ticks <= trace_life_ticks(l, life)) {
				most = l->lives[c].slowest_ticks;
				worst = c;
			}
		}
		if (worst == TRACE_NO_LIFE) {
			return n;
		}
		n = worst;
	}
}
