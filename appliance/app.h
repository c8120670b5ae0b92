/* SPDX-License-Identifier: BSD-3-Clause */
/* The daemon's life from start to stop. */
#ifndef APPLIANCE_APP_H
#define APPLIANCE_APP_H

#include "appliance/lifecycle.h"
#include "appliance/options.h"

/* Runs until somebody stops it. The process's exit status. */
int app_run(const struct appliance_options *options);

enum appliance_state app_state(void);
uint64_t app_state_age_us(void);
const struct appliance_options *app_options(void);
/* Goes on from WAIT. False: that is not the state. */
bool app_start_init(void);
/* Calls fn(arg) once, on the control thread: as soon as the daemon is RUNNING (perhaps at once), or will never be. */
void app_when_running(void (*fn)(void *arg), void *arg);

#endif
