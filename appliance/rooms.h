/* SPDX-License-Identifier: BSD-3-Clause */
/* What varve is made of: the order in which everything is started and stopped is the table in rooms.c. */
#ifndef APPLIANCE_ROOMS_H
#define APPLIANCE_ROOMS_H

#include "appliance/parts.h"

/* Starts what belongs to a state: 0; -ECANCELED: a signal asked for the end of the process meanwhile; or another
 * negative errno, with the message for the log in error (PART_ERROR_MAX bytes). What was started before stays so.
 * Control thread, outside of its loop. */
int rooms_start(enum appliance_state state, char *error);

/* Stops everything that was started in the state `first` or later, and waits for each part. Control thread, outside of
 * its loop. */
void rooms_stop(enum appliance_state first);

/* Stops all that another process is to take over: what belongs to RPC and CONFIG, and waits for each part. Control
 * thread, outside of its loop. */
void rooms_hand_over(void);
/* Before that, as long as it may fail: keeps the configuration for rooms_take_back(). text: the configuration as it is.
 * 0, or a negative errno and error (PART_ERROR_MAX bytes) says why. Control thread. */
int rooms_keep_configuration(const char *text, size_t len, char *error);
/* After rooms_hand_over(): takes it all back, to be started by rooms_start(): THREADS, RPC, CONFIG. Control thread. */
void rooms_take_back(void);

/* Whether trace_start() has made a trace file. */
bool rooms_have_trace(void);

#endif
