/* SPDX-License-Identifier: BSD-3-Clause */
/* Signals that ask for the end of the process (INT, TERM, HUP), or for its state (USR1). */
#ifndef APPLIANCE_SIGNALS_H
#define APPLIANCE_SIGNALS_H

#include <stdbool.h>

/* Installs the handlers. A second signal that asks for the end, half a second or more after the first, ends the process
 * at once. 0 or a negative errno. Before any other thread is made. */
int signals_install(void);
/* From now on stop() and tell() are called on the control thread, from its loop, for the two kinds of signals, also for
 * signals that came before. 0 or -ENOMEM. After thread_lib_start(). */
int signals_listen(void (*stop)(void), void (*tell)(void));
/* Ends that; also if it never began. Before thread_lib_stop(). */
void signals_unlisten(void);

/* The first signal that asked for the end, or 0. Any thread. */
int signals_stop_requested(void);

#endif
