/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef HOSTILE_LANE_H
#define HOSTILE_LANE_H

#include "systest/hostile/cases.h"

/* Generates a case and queues it; a full lane is run. False: no controller could be had. */
bool lane_add(enum lane lane, const struct kase *k);
/* Sends what is queued, waits for the answers, and judges. */
void lane_run(enum lane lane);
void lanes_end(void);
extern unsigned lane_sessions; /* controllers that were connected for lanes */

#endif
