/* SPDX-License-Identifier: BSD-3-Clause */
/* The decision of the dynamic scheduler: which threads move, by what they did in the last period. Pure:
 * it reads and writes nothing but its arguments. Any OS thread. */
#ifndef THREAD_BALANCE_H
#define THREAD_BALANCE_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

/* A core with a reactor. */
struct balance_core {
	unsigned lcore;
	bool isolated; /* no thread is moved to it, and none from it */
	uint32_t load; /* out: what its threads will need, in ten-thousandths of its time; more than 10000: too much */
	uint64_t busy_ticks, idle_ticks; /* out: of its threads, in the last period */
};

/* A thread. */
struct balance_thread {
	cpu_set_t mask;                  /* lcores that it may run on; it stays within them */
	unsigned from;                   /* index of the core that it is on */
	uint64_t busy_ticks, idle_ticks; /* in the last period */
	/* In and out, from period to period; 0 and false at first: how much of a core's time it needs, in
	 * ten-thousandths, and whether that was measured where there was enough. */
	uint32_t need;
	bool known;
	unsigned to; /* out: index of the core that it should be on; from: it stays */
	bool light;  /* out: it needs little */
};

/* Percentages, at most 100. */
struct balance_limits {
	uint8_t load_limit; /* a thread that needs less of a core is light */
	uint8_t core_limit; /* light threads gather on a core up to this load, and a busy core is relieved down to it */
	uint8_t core_busy;  /* a core with more load is busy */
};

/* Decides where each thread should be, and returns how many should move.
 *
 * Light threads gather on the core `gather` (an index into cores), as far as core_limit permits; so others have no
 * thread, and sleep. Threads that are not light leave a busy core, one by one, for the least busy core, if that will
 * have less to do than the busy one has.
 *
 * With loads that stay the same, this ends in a state in which nothing moves. What threads need becomes known once
 * and then stays; each thread that leaves a busy core makes the loads more equal, and each light thread gathers once,
 * as it does not leave (core_limit is at least 5 less than core_busy; if it is not, it is taken to be). */
unsigned balance(const struct balance_limits *limits, struct balance_core *cores, unsigned num_cores, unsigned gather,
		 struct balance_thread *threads, unsigned num_threads);

#endif
