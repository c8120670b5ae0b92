/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "appliance/console_looks.h"

static void look_free(struct console_look *l)
{
	free(l->result);
	free(l->next);
	*l = (struct console_look){.state = LOOK_FREE};
}

static bool look_query_equal(const struct console_trace_query *a, const struct console_trace_query *b)
{
	return a->group == b->group && strcmp(a->text, b->text) == 0;
}

static bool look_is_unused(const struct console_look *l, uint64_t now_us)
{
	return l->state != LOOK_RUNS && now_us - l->asked_us >= (l->result != NULL ? LOOK_KEPT_US : LOOK_WANTED_US);
}

/* The look for this query, a free place, or one that nobody wants any more. NULL: all are wanted. */
static struct console_look *look_place(struct console_looks *s, const struct console_trace_query *q, uint64_t now_us)
{
	struct console_look *free_one = NULL, *old = NULL;

	for (unsigned i = 0; i < LOOKS; i++) {
		struct console_look *l = &s->looks[i];
		if (l->state == LOOK_FREE) {
			free_one = l;
			continue;
		}
		if (look_query_equal(&l->query, q)) {
			return l;
		}
		if (look_is_unused(l, now_us) && (old == NULL || l->asked_us < old->asked_us)) {
			old = l;
		}
	}
	return free_one != NULL ? free_one : old;
}

struct console_look *looks_ask(struct console_looks *s, const struct console_trace_query *q, uint64_t now_us)
{
	struct console_look *l = look_place(s, q, now_us);

	if (l == NULL) {
		return NULL;
	}
	if (l->state != LOOK_FREE && !look_query_equal(&l->query, q)) {
		look_free(l);
	}
	if (l->state == LOOK_FREE || (l->state == LOOK_DONE && now_us - l->done_us >= LOOK_FRESH_US)) {
		l->next = calloc(1, sizeof(*l->next));
		if (l->next == NULL) {
			return NULL;
		}
		l->query = *q;
		l->state = LOOK_WAITS;
		l->waits_us = now_us;
	}
	l->asked_us = now_us;
	return l;
}

struct console_look *looks_next(struct console_looks *s)
{
	struct console_look *first = NULL;

	for (unsigned i = 0; i < LOOKS; i++) {
		struct console_look *l = &s->looks[i];
		if (l->state == LOOK_WAITS && (first == NULL || l->waits_us < first->waits_us)) {
			first = l;
		}
	}
	return first;
}

void look_done(struct console_looks *s, struct console_look *l, uint64_t now_us, uint64_t cpu_us)
{
	free(l->result);
	l->result = l->next;
	l->next = NULL;
	l->state = LOOK_DONE;
	l->done_us = now_us;
	s->begin_us = now_us + cpu_us * LOOK_SHARE;
}

bool look_is_told(const struct console_looks *s, const struct console_look *l, uint64_t now_us)
{
	return l->result != NULL && (l->state == LOOK_DONE || (l->state == LOOK_WAITS && now_us < s->begin_us) ||
				     now_us - l->waits_us >= LOOK_PATIENCE_US);
}

bool looks_forget(struct console_looks *s, uint64_t now_us)
{
	bool any = false;

	for (unsigned i = 0; i < LOOKS; i++) {
		struct console_look *l = &s->looks[i];
		if (l->state != LOOK_FREE && l->state != LOOK_RUNS && now_us - l->asked_us >= LOOK_FORGET_US) {
			look_free(l);
		}
		any = any || l->state != LOOK_FREE;
	}
	return any;
}

void looks_stop(struct console_looks *s)
{
	for (unsigned i = 0; i < LOOKS; i++) {
		s->looks[i].asked_us = 0;
		if (s->looks[i].state != LOOK_RUNS) {
			look_free(&s->looks[i]);
		}
	}
}
