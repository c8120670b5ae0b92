/* SPDX-License-Identifier: BSD-3-Clause */
/* The daemon's life from start to stop. */
#ifndef APPLIANCE_APP_H
#define APPLIANCE_APP_H

#include "appliance/lifecycle.h"
#include "appliance/options.h"

/* Starts everything, runs until a signal or an RPC asks for the end, stops everything. The process's exit status. The
 * options must stay. The thread that calls it becomes the control thread. */
int app_run(const struct appliance_options *options);

/* The state of the daemon. Control thread, like all that follows. */
enum appliance_state app_state(void);
/* For how many microseconds it has been in that state. */
uint64_t app_state_age_us(void);
/* The command line. */
const struct appliance_options *app_options(void);
/* Goes on from WAIT. False: that is not the state. */
bool app_start_init(void);
/* Calls fn(arg) once, on the control thread: as soon as the daemon is RUNNING (perhaps at once), or will never be. */
void app_when_running(void (*fn)(void *arg), void *arg);

/* Leads from RUNNING to HANDING_OVER, or back if hand_over_prepare() says so. For hand_over.c. */
void app_hand_over(void);

/* For rooms.c. */

/* Ends RUNNING; called when a signal has asked for the end. */
void app_wake_up(void);
/* Writes the state to the log: the answer to SIGUSR1. */
void app_log_state(void);
/* Writes to the log how the trace is read. Scripts look for these lines, with app.c as their file. */
void app_log_how_to_trace(void);
/* Calls everything that waits because of app_when_running(). */
void app_call_waiters(void);

#endif
