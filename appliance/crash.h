/* SPDX-License-Identifier: BSD-3-Clause */
/* Reports on stderr that the process dies of a signal: which signal, where, in which thread, of which build, and where
 * the trace is. Then the signal has its default effect, so that the kernel writes the core dump. */
#ifndef APPLIANCE_CRASH_H
#define APPLIANCE_CRASH_H

#include <stdbool.h>

/* Installs the handlers (SEGV, BUS, ILL, FPE, ABRT, QUIT), and gives the calling thread a stack for them. 0 or a
 * negative errno. Once. */
int crash_install(void);
/* Gives the calling thread, another one, a stack for the handlers. */
void crash_thread_init(void);
/* Says where the trace file is; NULL: there is none. The string must stay. Control thread. */
void crash_set_trace_file(const char *path);
/* Removes the limit on the size of core dumps, unless limited. (env_init() chooses what is in them.) */
void crash_prepare_core(bool limited);

#endif
