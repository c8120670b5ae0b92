/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/blackbox_trigger.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIN_LIMIT_US  1000
#define MAX_LIMIT_US  UINT64_C(86400000000)
#define MAX_PERIOD_US 1000000

static const struct {
	const char *name;
	bool has_limit;
} types[BLACKBOX_TYPES] = {
	[BLACKBOX_REQUEST_AGE] = {"request_age", true},
	[BLACKBOX_STATE_AGE] = {"state_age", true},
	[BLACKBOX_IO_ERROR] = {"io_error", false},
	[BLACKBOX_QPAIR_ERROR] = {"qpair_error", false},
	[BLACKBOX_KEEP_ALIVE_LOSS] = {"keep_alive_loss", false},
	[BLACKBOX_REACTOR_STALL] = {"reactor_stall", true},
};

const char *blackbox_type_name(enum blackbox_type type)
{
	return types[type].name;
}

bool blackbox_type_has_limit(enum blackbox_type type)
{
	return types[type].has_limit;
}

const char *blackbox_action_name(enum blackbox_action action)
{
	static const char *const names[BLACKBOX_ACTIONS] = {
		[BLACKBOX_COPY] = "copy", [BLACKBOX_FREEZE] = "freeze", [BLACKBOX_NOTIFY] = "notify"};

	return names[action];
}

int blackbox_opts_check(const struct blackbox_trigger_opts *o, char *why)
{
	if (o->name[0] == '\0') {
		snprintf(why, BLACKBOX_ERROR_MAX, "the name is empty");
	} else if (types[o->type].has_limit && (o->limit_us < MIN_LIMIT_US || o->limit_us > MAX_LIMIT_US)) {
		snprintf(why, BLACKBOX_ERROR_MAX, "limit_us is %llu: a trigger of the type %s takes %d to %llu",
			 (unsigned long long)o->limit_us, types[o->type].name, MIN_LIMIT_US,
			 (unsigned long long)MAX_LIMIT_US);
	} else if (!types[o->type].has_limit && o->limit_us != 0) {
		snprintf(why, BLACKBOX_ERROR_MAX, "limit_us is %llu: a trigger of the type %s takes none",
			 (unsigned long long)o->limit_us, types[o->type].name);
	} else if (o->state[0] != '\0' && o->type != BLACKBOX_STATE_AGE) {
		snprintf(why, BLACKBOX_ERROR_MAX, "state is \"%s\": only the type state_age takes one", o->state);
	} else if (o->holdoff_us > MAX_LIMIT_US) {
		snprintf(why, BLACKBOX_ERROR_MAX, "holdoff_us is %llu: at most %llu is possible",
			 (unsigned long long)o->holdoff_us, (unsigned long long)MAX_LIMIT_US);
	} else {
		return 0;
	}
	return -EINVAL;
}

struct blackbox_trigger *blackbox_trigger_find(const struct blackbox_triggers *list, const char *name)
{
	struct blackbox_trigger *t;

	TAILQ_FOREACH (t, list, link) {
		if (strcmp(t->opts.name, name) == 0) {
			return t;
		}
	}
	return NULL;
}

static unsigned blackbox_triggers_count(const struct blackbox_triggers *list)
{
	const struct blackbox_trigger *t;
	unsigned n = 0;

	TAILQ_FOREACH (t, list, link) {
		n++;
	}
	return n;
}

int blackbox_trigger_set(struct blackbox_triggers *list, const struct blackbox_trigger_opts *opts, char *why)
{
	struct blackbox_trigger *old = blackbox_trigger_find(list, opts->name);
	int rc = blackbox_opts_check(opts, why);

	if (rc != 0) {
		return rc;
	}
	if (old == NULL && blackbox_triggers_count(list) == BLACKBOX_TRIGGERS_MAX) {
		snprintf(why, BLACKBOX_ERROR_MAX, "there are %d triggers, and may be no more", BLACKBOX_TRIGGERS_MAX);
		return -ENOSPC;
	}
	struct blackbox_trigger *t = calloc(1, sizeof(*t));
	if (t == NULL) {
		snprintf(why, BLACKBOX_ERROR_MAX, "no memory for a trigger");
		return -ENOMEM;
	}
	t->opts = *opts;
	if (old != NULL) {
		TAILQ_INSERT_AFTER(list, old, t, link);
		TAILQ_REMOVE(list, old, link);
		free(old);
	} else {
		TAILQ_INSERT_TAIL(list, t, link);
	}
	return 0;
}

int blackbox_trigger_remove(struct blackbox_triggers *list, const char *name)
{
	struct blackbox_trigger *t = blackbox_trigger_find(list, name);

	if (t == NULL) {
		return -ENOENT;
	}
	TAILQ_REMOVE(list, t, link);
	free(t);
	return 0;
}

void blackbox_triggers_clear(struct blackbox_triggers *list)
{
	struct blackbox_trigger *t;

	while ((t = TAILQ_FIRST(list)) != NULL) {
		TAILQ_REMOVE(list, t, link);
		free(t);
	}
}

bool blackbox_trigger_ready(const struct blackbox_trigger *t, uint64_t now_us)
{
	return t->fired == 0 || now_us - t->last_us >= t->opts.holdoff_us;
}

bool blackbox_trigger_is_news(const struct blackbox_trigger *t, uint64_t now_us, uint64_t measured_us)
{
	if (measured_us < t->opts.limit_us) {
		return false;
	}
	return t->fired == 0 || !types[t->opts.type].has_limit || measured_us - t->opts.limit_us < now_us - t->last_us;
}

uint64_t blackbox_min_limit_us(const struct blackbox_triggers *list, unsigned mask)
{
	const struct blackbox_trigger *t;
	uint64_t min = UINT64_MAX;

	TAILQ_FOREACH (t, list, link) {
		if ((mask & 1u << t->opts.type) && t->opts.limit_us < min) {
			min = t->opts.limit_us;
		}
	}
	return min;
}

uint64_t blackbox_max_copy_limit_us(const struct blackbox_triggers *list, unsigned mask)
{
	const struct blackbox_trigger *t;
	uint64_t max = 0;

	TAILQ_FOREACH (t, list, link) {
		if ((mask & 1u << t->opts.type) != 0 && t->opts.action != BLACKBOX_NOTIFY && t->opts.limit_us > max) {
			max = t->opts.limit_us;
		}
	}
	return max;
}

uint64_t blackbox_period_us(uint64_t limit_us)
{
	uint64_t period = limit_us / 4;

	return period < BLACKBOX_PERIOD_MIN_US ? BLACKBOX_PERIOD_MIN_US
	       : period > MAX_PERIOD_US        ? MAX_PERIOD_US
					       : period;
}

/* At a quarter of what the rings cover there is time for some more looks before the events are overwritten, also if
 * more is recorded meanwhile. */
uint64_t blackbox_keep_us(uint64_t limit_us, uint64_t ring_us)
{
	return ring_us / 2 >= limit_us ? UINT64_MAX : ring_us / 4;
}

uint64_t blackbox_stall_us(struct blackbox_seen *seen, uint64_t round_ticks, bool sleeping, uint64_t now_us)
{
	if (sleeping) {
		seen->since_us = 0;
		return 0;
	}
	if (seen->since_us == 0 || seen->round_ticks != round_ticks) {
		seen->round_ticks = round_ticks;
		seen->since_us = now_us;
		return 0;
	}
	return now_us - seen->since_us;
}
