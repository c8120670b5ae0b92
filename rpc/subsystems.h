/* SPDX-License-Identifier: BSD-3-Clause */
/* The names of subsystems that a configuration may have. Pure. */
#ifndef RPC_SUBSYSTEMS_H
#define RPC_SUBSYSTEMS_H

#include <stdbool.h>

/* Whether varve or a stock program saves a subsystem of that name. */
bool rpc_subsystem_is_known(const char *name);
/* The known name that an unknown one was probably meant to be; NULL: it is like none, and may be of a newer program. */
const char *rpc_subsystem_nearest(const char *name);

#endif
