/* SPDX-License-Identifier: BSD-3-Clause */
/* Handshakes of TLS sessions, for host and target. The control thread waits for the socket, and has each step that
 * calculates done on a worker thread, one at a time of each side, host and target: so many hosts that connect at once
 * take one core at most, and neither a reactor nor the control thread calculates.
 *
 * A step begins only when a whole record has arrived. So a host that sends byte by byte makes no work, and a handshake
 * of more than 64 records fails. All functions: control thread. */
#ifndef TLS_HANDSHAKE_H
#define TLS_HANDSHAKE_H

#include "tls/session.h"
#include "thread/thread.h"

struct tls_handshake;

/* How it has ended: error 0, and the session is ready; or a negative errno, and why says what was wrong:
 * -EPROTONOSUPPORT: the other side, a host, does not begin with TLS, and nothing of what it sends has been read;
 * -ENODATA: it has sent nothing until it closed, or its time was over.
 * Session and socket are the callee's again. The handshake is gone. */
typedef void (*tls_handshake_fn)(void *arg, struct tls_session *session, int error, const char *why);

/* Makes the handshake of a new session within timeout_us, then calls done(arg, ...), never before this returns.
 * Meanwhile session and socket are the handshake's. NULL: no memory; then they stay the caller's. */
struct tls_handshake *tls_handshake_start(struct tls_session *session, uint64_t timeout_us, tls_handshake_fn done,
					  void *arg);
/* Ends it: done is not called. The session is freed and the socket closed, now or when its step has ended. */
void tls_handshake_cancel(struct tls_handshake *h);
/* Waits until no step is being done: before the process ends. Not from a callback. */
void tls_handshake_stop(void);

#endif
