/* SPDX-License-Identifier: BSD-3-Clause */
/* Handing over to another process, the successor, which is taking over (takeover.h has its side, and what is said).
 *
 * Never do both serve. This process serves nothing from hand_over_run() on, until the successor has ended: that is seen
 * at a descriptor of the process (pidfd), which no other process can be behind, and which becomes readable when none of
 * its threads is left. What it had submitted to files by then, the kernel may still carry out, and it keeps the locks
 * of those files meanwhile: they are waited for. What was in the buffers of its connections to other targets may still
 * be delivered. A successor that neither serves nor ends within its time is killed.
 *
 * A signal that asks this process to stop is for the node: before anything was given, the successor is told so, and
 * ends; later it is sent SIGTERM, and its end is waited for.
 *
 * Control thread. */
#ifndef APPLIANCE_HAND_OVER_H
#define APPLIANCE_HAND_OVER_H

#include <stdbool.h>

#include "appliance/lifecycle.h"

/* In RUNNING, after framework_hand_over was answered: refuses further calls, waits for those under way, and notes the
 * configuration. False: that could not be done; the successor has been told why, and this process goes on. Outside of
 * the control loop. */
bool hand_over_prepare(void);

/* Then, in HANDING_OVER: stops serving, and waits for what becomes of the successor. DONE: it serves; STOP: a signal
 * asked for the end, and the successor serves nothing; ERROR: the successor has ended without having served, and all
 * that was handed over is to be started again. Outside of the control loop. */
enum appliance_event hand_over_run(void);

#endif
