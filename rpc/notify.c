/* SPDX-License-Identifier: BSD-3-Clause */
/* Keeps the last events, numbered from 0, for clients that ask for those after the last one they have seen. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "rpc/notify.h"
#include "util/log.h"

#define EVENTS_MAX 1024

struct view {
	const char *types[NOTIFY_TYPES_MAX];
	unsigned n_types;
	struct notify_event events[EVENTS_MAX];
	uint64_t next_id;
};
static struct view views[NOTIFY_VIEWS];

static const char *notify_type_find(const struct view *v, const char *type)
{
	for (unsigned i = 0; i < v->n_types; i++) {
		if (strcmp(v->types[i], type) == 0) {
			return v->types[i];
		}
	}
	return NULL;
}

static void notify_type_add(struct view *v, const char *type)
{
	if (notify_type_find(v, type) != NULL) {
		return;
	}
	if (v->n_types == NOTIFY_TYPES_MAX) {
		log_error("more than %d types of notifications: \"%s\" is left out", NOTIFY_TYPES_MAX, type);
		return;
	}
	v->types[v->n_types++] = type;
}

void notify_type_register(const char *type)
{
	notify_type_add(&views[NOTIFY_ALL], type);
}

void notify_type_register_common(const char *type)
{
	notify_type_add(&views[NOTIFY_COMMON], type);
	notify_type_add(&views[NOTIFY_ALL], type);
}

static uint64_t notify_now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void notify_add(struct view *v, const char *type, const char *context, const char *reason)
{
	struct notify_event *e = &v->events[v->next_id++ % EVENTS_MAX];

	e->type = type;
	e->time_us = notify_now_us();
	snprintf(e->context, sizeof(e->context), "%s", context);
	snprintf(e->reason, sizeof(e->reason), "%s", reason != NULL ? reason : "");
}

void notify_send_reason(const char *type, const char *context, const char *reason)
{
	if (notify_type_find(&views[NOTIFY_ALL], type) == NULL) {
		log_error("a notification of the type \"%s\", which is not registered", type);
		return;
	}
	for (unsigned i = 0; i < NOTIFY_VIEWS; i++) {
		const char *known = notify_type_find(&views[i], type);
		if (known != NULL) {
			notify_add(&views[i], known, context, reason);
		}
	}
}

void notify_send(const char *type, const char *context)
{
	notify_send_reason(type, context, NULL);
}

const char *notify_type(enum notify_view view, unsigned index)
{
	return index < views[view].n_types ? views[view].types[index] : NULL;
}

uint64_t notify_first(enum notify_view view)
{
	uint64_t next_id = views[view].next_id;

	return next_id > EVENTS_MAX ? next_id - EVENTS_MAX : 0;
}

const struct notify_event *notify_get(enum notify_view view, uint64_t id)
{
	struct view *v = &views[view];

	return id < notify_first(view) || id >= v->next_id ? NULL : &v->events[id % EVENTS_MAX];
}
