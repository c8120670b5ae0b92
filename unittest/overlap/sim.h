/* SPDX-License-Identifier: BSD-3-Clause */
/* The thread room with a scheduler that a test controls: linked in place of thread/message.c, reactor.c, sleep.c and
 * worker.c. All threads run on the caller's OS thread. Which thread runs next, how much it does before another one
 * runs, when a worker thread's job ends and how time passes are decided by a generator of pseudo-random numbers. So a
 * run with the same seeds and the same operations is the same run. Needs a build in which time is virtual
 * (ENV_TICKS_VIRTUAL).
 *
 * What one step runs is not interrupted: a message, the timers that are due, or one round of a thread's pollers. While
 * the control thread waits (thread_call(), thread_synchronize()), other threads make steps.
 *
 * Messages keep the order that thread/thread.h promises, and no other: a posted message may run before one that was
 * sent earlier. */
#ifndef UNITTEST_OVERLAP_SIM_H
#define UNITTEST_OVERLAP_SIM_H

#include <stdbool.h>
#include <stdint.h>

/* A new run: the scheduler forgets what was before. */
void sim_reset(void);
/* Sets the scheduler's numbers. */
void sim_seed(uint64_t seed);
/* One step of some thread. */
void sim_step(void);
/* Runs until no message, job or due timer is left; time does not pass. False: that took more than max_steps. */
bool sim_settle(unsigned max_steps);
/* Has time pass until the next timer is due, but at most max_us. False: there is no timer within max_us, and max_us
 * have passed. */
bool sim_pass_time(uint64_t max_us);
/* Has time pass although timers are due: the process does not run. */
void sim_be_absent(uint64_t us);
/* Microseconds since the start. */
uint64_t sim_now_us(void);
/* Steps so far. */
uint64_t sim_steps(void);
/* Makes the caller the control thread inside a round, as an event on its descriptors would find it; and back. */
void sim_enter_control(void);
void sim_leave_control(void);
struct thread;
/* Runs fn(arg) as t at once, before anything else. */
void sim_as(struct thread *t, void (*fn)(void *arg), void *arg);
/* Messages to all threads that have not run. */
unsigned sim_pending(void);

#endif
