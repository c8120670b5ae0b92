/* SPDX-License-Identifier: BSD-3-Clause */
/* TLS records by the kernel (its module tls, "kTLS"): it is given the keys when the handshake is done. From then on the
 * socket is written to and read as one without TLS is, but that what is no payload comes with its type. A socket is
 * used by one thread at a time; nothing here waits.
 *
 * OpenSSL's own way to the kernel, SSL_OP_ENABLE_KTLS, is not used: it needs OpenSSL's BIO of a socket, where varve
 * has one that bounds what is read, and OpenSSL 3.0 has the kernel only send with TLS 1.3.
 *
 * The kernel has no sessions: it sends alerts that it is told to send, and gives those that come, and messages of
 * the handshake protocol, to the reader. With new keys of the other side (KeyUpdate) kernels before 6.14 can do
 * nothing. */
#ifndef TLS_KERNEL_H
#define TLS_KERNEL_H

#include <sys/types.h>
#include <sys/uio.h>

#include "tls/psk.h"

/* The secrets that both sides of a connection have the keys of their records from (RFC 8446 7.1). To be overwritten
 * with dhchap_cleanse() after use. */
struct tls_secrets {
	uint8_t client[TLS_PSK_MAX], server[TLS_PSK_MAX];
	uint8_t client_len, server_len; /* bytes; 0: not known */
};
/* Takes a secret from a line of OpenSSL's key log, if it is one of these two. Pure. */
void tls_secrets_take(struct tls_secrets *secrets, const char *line);

/* Gives the kernel the keys of a connection, of which no record of payload has been sent or read: first those of what
 * is received, then those of what is sent. hash: DHCHAP_HASH_SHA256 (AES-128-GCM) or DHCHAP_HASH_SHA384 (AES-256-GCM).
 * *receives, *sends: what it does from now on; it sends for nobody whom it does not receive for. 0; or the negative
 * errno of what it does not do: -ENOENT: it has no module tls. Each errno is logged once; not -ENOTCONN: the other
 * side has gone. Any thread but reactors. */
int tls_kernel_begin(int fd, unsigned hash, const struct tls_secrets *secrets, bool is_server, bool *receives,
		     bool *sends);
/* Receives bytes of records of one type. How many; 0: the other side has closed; or a negative errno: -EBADMSG: a
 * record has been changed, -EMSGSIZE, -EINVAL: it is malformed. */
ssize_t tls_kernel_receive(int fd, const struct iovec *iovs, unsigned n, uint8_t *type);
/* Sends payload. How many bytes of it, or a negative errno. */
ssize_t tls_kernel_send(int fd, const struct iovec *iovs, unsigned n);
/* Sends an alert, if the socket takes it. */
void tls_kernel_alert(int fd, uint8_t level, uint8_t description);

#endif
