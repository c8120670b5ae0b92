/* SPDX-License-Identifier: BSD-3-Clause */
/* The list of triggers, and which of them fire. Pure: no clock and no threads. */
#ifndef APPLIANCE_BLACKBOX_TRIGGER_H
#define APPLIANCE_BLACKBOX_TRIGGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

enum blackbox_type {
	BLACKBOX_REQUEST_AGE,     /* a command of a host is older than the limit */
	BLACKBOX_STATE_AGE,       /* a command of a host has been in one state for longer than the limit */
	BLACKBOX_IO_ERROR,        /* a block device failed an I/O */
	BLACKBOX_QPAIR_ERROR,     /* a queue pair broke */
	BLACKBOX_KEEP_ALIVE_LOSS, /* a host was silent for its keep-alive timeout */
	BLACKBOX_REACTOR_STALL,   /* a reactor did not poll for longer than the limit */
	BLACKBOX_TYPES,
};
/* "request_age" */
const char *blackbox_type_name(enum blackbox_type type);
/* Whether limit_us means anything for the type. */
bool blackbox_type_has_limit(enum blackbox_type type);

enum blackbox_action {
	BLACKBOX_COPY,   /* copies the rings while recording goes on */
	BLACKBOX_FREEZE, /* stops all recording first, then copies the rings */
	BLACKBOX_NOTIFY, /* makes no file */
	BLACKBOX_ACTIONS,
};
/* "copy" */
const char *blackbox_action_name(enum blackbox_action action);

#define BLACKBOX_NAME_MAX     32 /* with the 0 */
#define BLACKBOX_STATE_MAX    32
#define BLACKBOX_TRIGGERS_MAX 64
#define BLACKBOX_FILE_MAX     4096

struct blackbox_trigger_opts {
	char name[BLACKBOX_NAME_MAX];
	enum blackbox_type type;
	enum blackbox_action action;
	uint64_t limit_us;              /* types that have one */
	char state[BLACKBOX_STATE_MAX]; /* STATE_AGE: of this state only; empty: any */
	uint64_t holdoff_us;            /* after firing, the trigger does not fire again for so long */
};

struct blackbox_trigger {
	struct blackbox_trigger_opts opts;
	uint64_t fired;    /* how often */
	uint64_t held_off; /* how often it did not fire because of holdoff_us */
	uint64_t last_us;  /* CLOCK_MONOTONIC, when it last fired */
	uint64_t last_realtime_ns;
	bool short_ring; /* it was said that the rings do not reach back to the limit */
	char last_text[512], last_file[BLACKBOX_FILE_MAX];
	TAILQ_ENTRY(blackbox_trigger) link;
};
TAILQ_HEAD(blackbox_triggers, blackbox_trigger);

#define BLACKBOX_ERROR_MAX 512
/* Checks the options. 0; or -EINVAL, and why (BLACKBOX_ERROR_MAX bytes) names the field, its value, and the values that
 * are allowed. */
int blackbox_opts_check(const struct blackbox_trigger_opts *opts, char *why);
/* Adds a trigger, or replaces the one of that name, whose counts become 0. 0; -EINVAL: as blackbox_opts_check();
 * -ENOSPC: there are BLACKBOX_TRIGGERS_MAX; -ENOMEM. */
int blackbox_trigger_set(struct blackbox_triggers *list, const struct blackbox_trigger_opts *opts, char *why);
/* Removes and frees the trigger of that name. 0 or -ENOENT. */
int blackbox_trigger_remove(struct blackbox_triggers *list, const char *name);
/* Removes and frees all triggers. */
void blackbox_triggers_clear(struct blackbox_triggers *list);
/* The trigger of that name, or NULL. */
struct blackbox_trigger *blackbox_trigger_find(const struct blackbox_triggers *list, const char *name);

/* Whether the hold-off time since t last fired is over. */
bool blackbox_trigger_ready(const struct blackbox_trigger *t, uint64_t now_us);
/* Whether the age measured_us went over the limit after t last fired. A request that is stuck for ever must not fire
 * the trigger again and again: the new files would in the end push out the one that shows how it began. */
bool blackbox_trigger_is_news(const struct blackbox_trigger *t, uint64_t now_us, uint64_t measured_us);
/* The smallest limit of any trigger of these types (mask: of 1 << type), or UINT64_MAX if there is none. */
uint64_t blackbox_min_limit_us(const struct blackbox_triggers *list, unsigned mask);
/* The largest limit of the triggers of these types that make a copy; 0: there is none. */
uint64_t blackbox_max_copy_limit_us(const struct blackbox_triggers *list, unsigned mask);
#define BLACKBOX_PERIOD_MIN_US 10000
/* The period for looking at ages with that limit: a quarter of it, but 10 ms at least and 1 s at most. */
uint64_t blackbox_period_us(uint64_t limit_us);

/* From which age, in microseconds, the events of a request are kept aside, because the rings, which cover ring_us, may
 * not have its first events any more when the trigger fires at limit_us. UINT64_MAX: the rings reach back far enough.
 */
uint64_t blackbox_keep_us(uint64_t limit_us, uint64_t ring_us);

/* What blackbox_stall_us() remembers of a reactor. Zero-initialised. */
struct blackbox_seen {
	uint64_t round_ticks;
	uint64_t since_us; /* when it was first seen in that round and not sleeping; 0: it was sleeping */
};
/* For how many microseconds, at least, a reactor has been in the same round without sleeping. To be called again and
 * again, with the reactor's state at now_us. */
uint64_t blackbox_stall_us(struct blackbox_seen *seen, uint64_t round_ticks, bool sleeping, uint64_t now_us);

#endif
