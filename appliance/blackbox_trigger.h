/* SPDX-License-Identifier: BSD-3-Clause */
/* The triggers that are set, and which of them something sets off. Pure: no clock and no threads in here. */
#ifndef APPLIANCE_BLACKBOX_TRIGGER_H
#define APPLIANCE_BLACKBOX_TRIGGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

enum blackbox_type {
	BLACKBOX_REQUEST_AGE,     /* a fabrics command is older than the limit */
	BLACKBOX_STATE_AGE,       /* ... or has been in one state for longer */
	BLACKBOX_IO_ERROR,        /* a block device failed an I/O */
	BLACKBOX_QPAIR_ERROR,     /* a queue pair broke */
	BLACKBOX_KEEP_ALIVE_LOSS, /* a host was silent for its keep-alive timeout */
	BLACKBOX_REACTOR_STALL,   /* a reactor did not poll for longer than the limit */
	BLACKBOX_TYPES,
};
const char *blackbox_type_name(enum blackbox_type type);
bool blackbox_type_has_limit(enum blackbox_type type);

enum blackbox_action {
	BLACKBOX_COPY,   /* copies the rings while recording goes on */
	BLACKBOX_FREEZE, /* stops all recording first */
	BLACKBOX_NOTIFY, /* no file */
	BLACKBOX_ACTIONS,
};
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
	uint64_t holdoff_us;            /* after it has fired it does not again for so long */
};

struct blackbox_trigger {
	struct blackbox_trigger_opts opts;
	uint64_t fired, held_off; /* how often; how often it would have, but for holdoff_us */
	uint64_t last_us;         /* CLOCK_MONOTONIC, when it last fired */
	uint64_t last_realtime_ns;
	char last_text[512], last_file[BLACKBOX_FILE_MAX];
	TAILQ_ENTRY(blackbox_trigger) link;
};
TAILQ_HEAD(blackbox_triggers, blackbox_trigger);

#define BLACKBOX_ERROR_MAX 512
/* 0, or -EINVAL and why: the field, its value, what is allowed. */
int blackbox_opts_check(const struct blackbox_trigger_opts *opts, char *why);
/* Adds a trigger, or changes the one of that name, which begins anew. 0, -EINVAL (see above), -ENOSPC, -ENOMEM. */
int blackbox_trigger_set(struct blackbox_triggers *list, const struct blackbox_trigger_opts *opts, char *why);
/* -ENOENT */
int blackbox_trigger_remove(struct blackbox_triggers *list, const char *name);
void blackbox_triggers_clear(struct blackbox_triggers *list);
struct blackbox_trigger *blackbox_trigger_find(const struct blackbox_triggers *list, const char *name);

/* Whether it may fire now, as far as the time since it last did is concerned. */
bool blackbox_trigger_ready(const struct blackbox_trigger *t, uint64_t now_us);
/* Whether what is measured now went over the limit after the trigger last fired: so that one request that is stuck for
 * ever, or a hundred, do not fire it again and again, and in the end push out the file that shows how it began. */
bool blackbox_trigger_is_news(const struct blackbox_trigger *t, uint64_t now_us, uint64_t measured_us);
/* The smallest limit of any trigger of these types (a mask of 1 << type), or UINT64_MAX if there is none. */
uint64_t blackbox_min_limit_us(const struct blackbox_triggers *list, unsigned types);
/* How often to look: a quarter of the limit, from 10 ms to 1 s. */
uint64_t blackbox_period_us(uint64_t limit_us);

/* A reactor as it was seen each time; see blackbox_stall_us(). */
struct blackbox_seen {
	uint64_t round_ticks;
	uint64_t since_us; /* when it was first seen in that round and awake; 0: it was not */
};
/* For how long, at least, a reactor has been awake in one and the same round. */
uint64_t blackbox_stall_us(struct blackbox_seen *seen, uint64_t round_ticks, bool sleeping, uint64_t now_us);

#endif
