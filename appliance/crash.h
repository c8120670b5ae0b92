/* SPDX-License-Identifier: BSD-3-Clause */
/* What is said when the process dies of a signal: which, where, in which thread, of which build, and where the trace
 * is. The core dump is left to the kernel. */
#ifndef APPLIANCE_CRASH_H
#define APPLIANCE_CRASH_H

#include <stdbool.h>

/* Installs the handlers (SEGV, BUS, ILL, FPE, ABRT, QUIT), with a stack of its own for the calling thread. Once. */
int crash_install(void);
/* Gives another thread that may crash a stack for the handler. Called on it. */
void crash_thread_init(void);
/* Where the trace file is; NULL: none. The string must stay. */
void crash_set_trace_file(const char *path);
/* Lets core dumps have any size, unless limited. (env_init() chooses what is in them.) */
void crash_prepare_core(bool limited);

#endif
