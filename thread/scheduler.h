/* SPDX-License-Identifier: BSD-3-Clause */
/* Which reactor a thread is on. Static: it stays where it was made, unless thread_set_cpumask() moves it. Dynamic: once
 * in a period the control thread looks at what each thread has done, and moves threads within their masks
 * (thread/balance.h). Also the count of context switches of the reactors. All functions: control thread, between
 * thread_lib_start(), which sets the defaults, and thread_lib_stop(). */
#ifndef THREAD_SCHEDULER_H
#define THREAD_SCHEDULER_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "thread/balance.h"

enum scheduler_kind { SCHEDULER_STATIC, SCHEDULER_DYNAMIC };

#define SCHEDULER_PERIOD_DEFAULT_US UINT64_C(1000000)
#define SCHEDULER_LIMITS_DEFAULT                                                                                       \
	{                                                                                                              \
		.load_limit = 20, .core_limit = 80, .core_busy = 95                                                    \
	}
#define SCHEDULER_PERIOD_MIN_US UINT64_C(1000)
#define SCHEDULER_PERIOD_MAX_US UINT64_C(86400000000) /* a day */

struct scheduler_opts {
	enum scheduler_kind kind;
	uint64_t period_us; /* of the dynamic one */
	struct balance_limits limits;
	unsigned gather_lcore; /* where it gathers threads with little load */
	cpu_set_t isolated;    /* lcores to which it moves no thread, and from which it moves none */
};

/* The options in use. */
void scheduler_get_opts(struct scheduler_opts *opts);
/* Puts other options to use, in whole; a new period begins. Threads stay where they are until it ends. -EINVAL: a limit
 * is over 100, the period is not between SCHEDULER_PERIOD_MIN_US and SCHEDULER_PERIOD_MAX_US, gather_lcore is isolated,
 * or an lcore of the options has no reactor; nothing is changed then. */
int scheduler_set_opts(const struct scheduler_opts *opts);
/* How many threads the dynamic scheduler has moved since thread_lib_start(). */
uint64_t scheduler_moves(void);

/* Logs once a second how often the kernel has taken each reactor's OS thread off its CPU, or stops that. */
void thread_monitor_switches(bool on);
/* Whether that is on. */
bool thread_monitors_switches(void);

#endif
