/* SPDX-License-Identifier: BSD-3-Clause */
/* Whose a store is that is open for writing (struct lvol_owner of lvol/spec.h). Any thread. */
#ifndef VARVE_LVOL_OWNER_H
#define VARVE_LVOL_OWNER_H

#include "lvol/decode.h"

/* This process, on this machine. `opening` is 0. */
void lvol_owner_self(struct lvol_owner *o);

/* When a process of this machine was started (see struct lvol_owner); 0: there is none, or it has ended and only its
 * parent does not know yet. */
uint64_t lvol_process_started(uint32_t pid);

/* Decodes a line of /proc/PID/stat: see lvol_process_started(). */
uint64_t lvol_process_stat_decode(const char *line);

enum lvol_owner_state {
	LVOL_OWNER_UNKNOWN,   /* it is not said */
	LVOL_OWNER_GONE,      /* a process of this machine that has ended */
	LVOL_OWNER_LIVES,     /* a process of this machine, perhaps this one */
	LVOL_OWNER_ELSEWHERE, /* a process of another machine: nobody here knows whether it lives */
};

/* What is known of the owner that was found in a store. started: lvol_process_started() of its pid. Pure. */
enum lvol_owner_state lvol_owner_judge(const struct lvol_owner *found, const struct lvol_owner *self, uint64_t started);

/* Writes the machine and the process, for people: at most 100 characters, all of them printable. */
void lvol_owner_text(const struct lvol_owner *o, char text[101]);

/* Whether a store may be opened that was found to have an owner in that state. Returns 0, or -EBUSY: e says why. */
int lvol_owner_refuse(const struct lvol_owner *found, enum lvol_owner_state state, struct lvol_error *e);

#endif
