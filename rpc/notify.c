/* SPDX-License-Identifier: BSD-3-Clause */
/* Keeps the last events, numbered from 0, for clients that ask for those after the last one they have seen. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "rpc/notify.h"
#include "util/log.h"

#define EVENTS_MAX 1024

static const char *types[NOTIFY_TYPES_MAX];
static unsigned n_types;
static struct notify_event events[EVENTS_MAX];
static uint64_t next_id;

static const char *notify_type_find(const char *type)
{
	for (unsigned i = 0; i < n_types; i++) {
		if (strcmp(types[i], type) == 0) {
			return types[i];
		}
	}
	return NULL;
}

void notify_type_register(const char *type)
{
	if (notify_type_find(type) != NULL) {
		return;
	}
	if (n_types == NOTIFY_TYPES_MAX) {
		log_error("more than %d types of notifications: \"%s\" is left out", NOTIFY_TYPES_MAX, type);
		return;
	}
	types[n_types++] = type;
}

static uint64_t notify_now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

void notify_send_reason(const char *type, const char *context, const char *reason)
{
	const char *known = notify_type_find(type);

	if (known == NULL) {
		log_error("a notification of the type \"%s\", which is not registered", type);
		return;
	}
	struct notify_event *e = &events[next_id++ % EVENTS_MAX];
	e->type = known;
	e->time_us = notify_now_us();
	snprintf(e->context, sizeof(e->context), "%s", context);
	snprintf(e->reason, sizeof(e->reason), "%s", reason != NULL ? reason : "");
}

void notify_send(const char *type, const char *context)
{
	notify_send_reason(type, context, NULL);
}

const char *notify_type(unsigned index)
{
	return index < n_types ? types[index] : NULL;
}

uint64_t notify_first(void)
{
	return next_id > EVENTS_MAX ? next_id - EVENTS_MAX : 0;
}

const struct notify_event *notify_get(uint64_t id)
{
	return id < notify_first() || id >= next_id ? NULL : &events[id % EVENTS_MAX];
}
