/* SPDX-License-Identifier: BSD-3-Clause */
/* Which looks at the trace are wanted, which is the next one, and what is told until it is done. A look is for all that
 * ask for the same. Times are in microseconds of any clock that only advances. Used by the control thread. */
#ifndef APPLIANCE_CONSOLE_LOOKS_H
#define APPLIANCE_CONSOLE_LOOKS_H

#include "appliance/console_trace_look.h"

#define LOOKS            4        /* different ones at a time */
#define LOOK_FRESH_US    1000000  /* for how long a result is given again */
#define LOOK_WANTED_US   1000000  /* who waits for a first result asks again sooner */
#define LOOK_KEPT_US     2500000  /* who has a result asks again sooner: the page each two seconds */
#define LOOK_PATIENCE_US 500000   /* for how long a new result is waited for, if there is one of before */
#define LOOK_SHARE       200      /* after a look that took t of a CPU's time, the next one waits LOOK_SHARE * t */
#define LOOK_FORGET_US   10000000 /* a look that nobody has asked for is freed after that */

enum look_state { LOOK_FREE, LOOK_WAITS, LOOK_RUNS, LOOK_DONE };

struct console_look {
	enum look_state state;
	struct console_trace_query query;
	uint64_t asked_us, waits_us; /* asked for the last time; LOOK_WAITS since */
	uint64_t done_us;            /* when `result` was found */
	struct look_result *result;  /* the last one; NULL: there was none */
	struct look_result *next;    /* LOOK_WAITS: empty; LOOK_RUNS: the worker thread's; else NULL */
};

struct console_looks {
	struct console_look looks[LOOKS];
	uint64_t begin_us; /* no look begins before that */
};

/* Asks for a look, which then waits if there is none for this query or its result is not fresh. A new one takes a free
 * place, or that of one that nobody asks for any more and that does not run. NULL: all places are wanted, or there is
 * no memory. */
struct console_look *looks_ask(struct console_looks *s, const struct console_trace_query *q, uint64_t now_us);
/* Of the looks that wait, the one that has waited for the longest time; NULL: none waits. */
struct console_look *looks_next(struct console_looks *s);
/* What a look that ran for cpu_us of a CPU's time has found in l->next becomes its result. */
void look_done(struct console_looks *s, struct console_look *l, uint64_t now_us, uint64_t cpu_us);
/* Whether to tell of l->result: it is fresh, or the next one will take its time, because no look may begin yet or this
 * one has waited long enough. */
bool look_is_told(const struct console_looks *s, const struct console_look *l, uint64_t now_us);
/* Frees looks that nobody asks for. Returns whether there are others. */
bool looks_forget(struct console_looks *s, uint64_t now_us);
/* Frees all but the one that runs, which is forgotten when it is done. */
void looks_stop(struct console_looks *s);

#endif
