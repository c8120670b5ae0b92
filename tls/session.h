/* SPDX-License-Identifier: BSD-3-Clause */
/* A TLS 1.3 connection over a socket, with a pre-shared key and nothing else: no certificate, no resumption, no early
 * data. OpenSSL makes the handshake. The records are made by the kernel if it is asked and can (tls/kernel.h), else in
 * user space, with OpenSSL's ciphers (tls/record.h).
 *
 * A session is used by one thread at a time, and never waits for the network. It does not own the socket, which is
 * non-blocking. The handshake calculates for up to some milliseconds: tls/handshake.h has it done on a worker thread.
 *
 * What is to be sent is encrypted into a buffer of the session, and sent from there. So whatever the other side asks
 * for (KeyUpdate) can be answered at any time, and a write that has been taken cannot be changed any more. What comes
 * is decrypted from a buffer of the session straight into the caller's memory. If the kernel has the records, a
 * KeyUpdate ends the connection. */
#ifndef TLS_SESSION_H
#define TLS_SESSION_H

#include <sys/types.h>
#include <sys/uio.h>

#include "tls/psk.h"

struct tls_session;

/* Finds the PSK of a host for a subsystem: the configured one; or, by the digest of the identity, the generated
 * one. False: there is none. Called by tls_session_step(), on its thread. */
typedef bool (*tls_find_fn)(void *arg, const struct tls_identity *identity, struct tls_psk *psk);

/* The controller's side of a connection. NULL: no memory. */
struct tls_session *tls_session_server(int fd, tls_find_fn find, void *arg);
/* The host's side. The credential is copied. NULL: no memory. */
struct tls_session *tls_session_client(int fd, const struct tls_credential *credential);
/* Frees it and overwrites its keys. The socket stays as it is. NULL is ignored. */
void tls_session_free(struct tls_session *s);
/* Before the first step: has the kernel asked for the records. What it does not do is done in user space: no session
 * fails because of it. */
void tls_session_ask_kernel(struct tls_session *s);
enum tls_records { TLS_RECORDS_BY_OPENSSL, TLS_RECORDS_RECEIVED_BY_KERNEL, TLS_RECORDS_BY_KERNEL };
/* After TLS_STEP_DONE: who makes and reads the records. */
enum tls_records tls_session_records(const struct tls_session *s);
/* For humans and RPC: "kernel". */
const char *tls_records_name(enum tls_records records);
/* The socket. */
int tls_session_fd(const struct tls_session *s);
/* Whether it is the controller's side. */
bool tls_session_is_server(const struct tls_session *s);

enum tls_step { TLS_STEP_DONE, TLS_STEP_READ, TLS_STEP_WRITE, TLS_STEP_FAILED };
/* Goes on with the handshake: done, or it waits until the socket can be read, or written to; or it has failed:
 * tls_session_why(). Reads at most `bytes` bytes: those of a whole record, so that nothing of the next one is taken. */
enum tls_step tls_session_step(struct tls_session *s, size_t bytes);
/* Why the handshake or the connection has failed: a text with the value that was wrong. */
const char *tls_session_why(const struct tls_session *s);
/* What has ended the session: a negative errno, -EPROTO for what the other side did wrong; 0: nothing yet. */
int tls_session_error(const struct tls_session *s);
/* A server's session, after TLS_STEP_DONE: the names in the identity of the key. */
const struct tls_identity *tls_session_identity(const struct tls_session *s);

/* After TLS_STEP_DONE: reads into iovs as much as there is, but no more than some hundred records, and not beyond a
 * KeyUpdate. The number of bytes;
 * -EAGAIN: there are none; -ECONNRESET: the other side has closed; -EPROTO: a record is wrong, or there came more
 * messages (KeyUpdate) than TLS_MESSAGES_MAX and TLS_UPDATES_MAX allow; or another negative errno. Memory behind the
 * bytes read may have been written to as well, also with bytes of a record that is wrong. */
ssize_t tls_session_read(struct tls_session *s, const struct iovec *iovs, unsigned n);
/* Whether another read brings more, although the socket may be empty, and although the last one may have brought
 * nothing (-EAGAIN). */
bool tls_session_has_more(const struct tls_session *s);
/* Takes bytes to be sent. How many, maybe 0; or a negative errno. */
ssize_t tls_session_write(struct tls_session *s, const struct iovec *iovs, unsigned n);
/* Whether bytes that were taken wait for room in the socket: then to be called again, also with n 0. */
bool tls_session_has_unsent(const struct tls_session *s);
/* Takes and sends all of some bytes, or returns false. */
bool tls_session_send_now(struct tls_session *s, const void *bytes, size_t length);
/* Tells the other side that nothing more will be sent (close_notify), if the socket takes it. */
void tls_session_end(struct tls_session *s);
/* The bytes of memory that are allocated for it, of which those that were never used take none. Not those of OpenSSL's
 * ciphers. */
size_t tls_session_bytes(const struct tls_session *s);
/* To be called every few seconds: at the second call after the last read or write, memory that has nothing in it is
 * given back to the system until it is used again. */
void tls_session_rest(struct tls_session *s);

#endif
