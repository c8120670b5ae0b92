/* SPDX-License-Identifier: BSD-3-Clause */
/* TLS on connections of the TCP transport: the handshake, before ICReq. Control thread. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "keyring/keyring.h"
#include "nvme/tcp/tcp.h"
#include "tcp/socket.h"

#define HANDSHAKE_US UINT64_C(600000000) /* connect.c has a limit of its own, which is shorter */

static ssize_t read_from_tls(void *tls, const struct iovec *iovs, unsigned iovcnt)
{
	return tls_session_read(tls, iovs, iovcnt);
}

static void secure_end(void *arg, struct tls_session *session, int error, const char *why)
{
	struct nvme_tcp_qpair *q = arg;

	q->handshake = NULL;
	if (error != 0) {
		close(tls_session_fd(session));
		tls_session_free(session);
	} else {
		q->fd = tls_session_fd(session);
		q->tls = session;
		q->rx.read = read_from_tls;
		q->rx.read_arg = session;
	}
	q->secured(q, error, why);
}

/* A session of the key of this host for the subsystem. NULL: no memory, or a name that is too long for the key. */
static struct tls_session *secure_session_make(struct nvme_tcp_qpair *q, int *error)
{
	const struct nvme_ctrlr *c = q->base.ctrlr;
	struct tls_credential credential;
	struct tls_session *session = NULL;

	struct tls_psk psk = c->generated != NULL ? *c->generated : *keyring_key_psk(c->opts.tcp_psk);
	psk.compat = c->generated == NULL && c->opts.tcp_psk_compat;
	*error = tls_credential_make(&psk, c->opts.hostnqn, c->trid.subnqn, q->identity, &credential);
	if (*error == 0) {
		session = tls_session_client(q->fd, &credential);
		if (session != NULL && tcp_socket_opts()->ktls) {
			tls_session_ask_kernel(session);
		}
		*error = session != NULL ? 0 : -ENOMEM;
	}
	dhchap_cleanse(&psk, sizeof(psk));
	dhchap_cleanse(&credential, sizeof(credential));
	return session;
}

void nvme_tcp_secure_begin(struct nvme_tcp_qpair *q, nvme_tcp_secure_fn fn)
{
	int error;
	struct tls_session *session = secure_session_make(q, &error);

	q->secured = fn;
	q->handshake = session != NULL ? tls_handshake_start(session, HANDSHAKE_US, secure_end, q) : NULL;
	if (q->handshake == NULL) {
		tls_session_free(session);
		close(q->fd);
		q->fd = -1;
		fn(q, error != 0 ? error : -ENOMEM, strerror(error != 0 ? -error : ENOMEM));
		return;
	}
	q->fd = -1; /* the handshake's */
}

void nvme_tcp_secure_cancel(struct nvme_tcp_qpair *q)
{
	if (q->handshake != NULL) {
		tls_handshake_cancel(q->handshake);
		q->handshake = NULL;
	}
}

bool nvme_tcp_send_now(struct nvme_tcp_qpair *q, const void *bytes, size_t length)
{
	if (q->tls != NULL) {
		errno = EPROTO;
		return tls_session_send_now(q->tls, bytes, length);
	}
	ssize_t n = send(q->fd, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL);

	errno = n >= 0 ? 0 : errno;
	return n == (ssize_t)length;
}
