/* SPDX-License-Identifier: BSD-3-Clause */
/* What a service manager is told: sd_notify(3)'s protocol, one datagram per message to the socket named in
 * $NOTIFY_SOCKET.
 *
 * Spoken here rather than through libsystemd: the protocol is documented as stable and to be implemented by others, it
 * is one sendmsg(), and the library (with those that it pulls in) would be mapped into every daemon for it, also where
 * there is no systemd. Control thread. Without $NOTIFY_SOCKET nothing of this does anything. */
#ifndef APPLIANCE_SERVICE_H
#define APPLIANCE_SERVICE_H

/* Reads $NOTIFY_SOCKET, $WATCHDOG_USEC and $WATCHDOG_PID. Before threads are started. */
void service_init(void);
/* STATUS=: one line for people. */
void service_status(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* READY=1, once: RPC is served. */
void service_ready(void);
/* STOPPING=1, once. */
void service_stopping(void);

/* From now on WATCHDOG=1 goes out several times within the time that the manager allows ($WATCHDOG_USEC), each time
 * only if every reactor has made a round since the last time, sleeping ones woken for it; and only by the control
 * thread's own timer. So if one of them hangs, the manager's time runs out, and it ends the process with SIGABRT: a
 * backtrace, a core dump, and a start anew. After thread_lib_start(). */
void service_watchdog_start(void);
/* Before thread_lib_stop(). */
void service_watchdog_stop(void);

#endif
