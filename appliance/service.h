/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages to a service manager, by the protocol of sd_notify(3): one datagram each, to the socket named in
 * $NOTIFY_SOCKET. Without that variable none of these functions does anything. Control thread.
 *
 * libsystemd is not used: its documentation calls the protocol stable and free to implement, it takes one sendmsg(),
 * and the library and those that it needs would be mapped into every daemon, also where there is no systemd. */
#ifndef APPLIANCE_SERVICE_H
#define APPLIANCE_SERVICE_H

#include <stdint.h>

/* Reads $NOTIFY_SOCKET, $WATCHDOG_USEC and $WATCHDOG_PID. Before other threads are made. */
void service_init(void);
/* Sends STATUS=: one line for people. */
void service_status(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Sends READY=1, the first time: RPC is served. */
void service_ready(void);
/* Sends MAINPID=: that process is the service from now on. */
void service_hand_over(int pid);
/* Speaks to the predecessor's manager from now on, which listens at that path, with a watchdog of that time (0: none);
 * the predecessor has called service_hand_over(). If it had none (path is NULL), or $NOTIFY_SOCKET names another one,
 * to that of this process, as service_init() would. Behind thread_lib_start(). */
void service_adopt(const char *path, uint64_t watchdog_us);
/* Where the manager listens, or NULL, and the watchdog's time, or 0. */
const char *service_path(uint64_t *watchdog_us);
/* Sends STOPPING=1, the first time. */
void service_stopping(void);

/* From now on a timer of the control thread sends WATCHDOG=1 several times within the time that the manager allows
 * ($WATCHDOG_USEC), but only if every reactor has made a round since the last time; sleeping reactors are woken for it.
 * So if a reactor or the control thread hangs, the manager's time runs out, and it ends the process with SIGABRT: that
 * gives a backtrace, a core dump, and a new start. After thread_lib_start(). */
void service_watchdog_start(void);
/* Ends that. Before thread_lib_stop(). */
void service_watchdog_stop(void);

#endif
