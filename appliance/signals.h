/* SPDX-License-Identifier: BSD-3-Clause */
/* Signals that ask for something: stop (INT, TERM, HUP) and tell (USR1). */
#ifndef APPLIANCE_SIGNALS_H
#define APPLIANCE_SIGNALS_H

#include <stdbool.h>

/* Before any other thread is made. 0 or a negative errno. */
int signals_install(void);
/* Makes the control thread wake up for them: stop() and tell() are called there. After thread_lib_start(). */
int signals_listen(void (*stop)(void), void (*tell)(void));
void signals_unlisten(void);

/* The first signal that asked to stop, or 0. */
int signals_stop_requested(void);

#endif
