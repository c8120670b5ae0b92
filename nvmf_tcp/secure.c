/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections over TLS: until its handshake is done, a connection is no queue pair, and nobody knows who it is. So
 * there are only so many of them, each has only so much time, and they cost the poll groups nothing (tls/handshake.h).
 * Control thread, except find_host_psk() and find_generated_psk(). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nvmf_tcp/internal.h"
#include "nvmf_tcp/rules.h"
#include "tls/handshake.h"
#include "tls/wire.h"

#define HANDSHAKE_US UINT64_C(10000000) /* the time that a host has for all of it */

struct nvmf_tcp_handshake {
	struct nvmf_tcp_listener *listener;
	struct nvmf_tgt *tgt;
	struct tls_handshake *tls;
	struct sockaddr_storage peer;
	char traddr[NVMF_TRADDR_MAX + 1];
	TAILQ_ENTRY(nvmf_tcp_handshake) link;
};

/* A worker thread. The target outlasts its listeners, and so a handshake, but for one that was cancelled: of that the
 * address of the target alone is used. */
static bool find_host_psk(void *arg, const struct tls_identity *identity, struct tls_psk *psk)
{
	return nvmf_psk_find(arg, identity, psk);
}

/* The same on a listener that does not demand TLS: hosts come over TLS that have generated a key on a connection
 * without. */
static bool find_generated_psk(void *arg, const struct tls_identity *identity, struct tls_psk *psk)
{
	return identity->generated && nvmf_psk_find(arg, identity, psk);
}

static void forget_handshake(struct nvmf_tcp_handshake *h)
{
	TAILQ_REMOVE(&h->listener->transport->handshakes, h, link);
	free(h);
}

static void handle_handshake_end(void *arg, struct tls_session *session, int error, const char *why)
{
	struct nvmf_tcp_handshake *h = arg;
	int fd = tls_session_fd(session);

	if (error == 0) {
		nvmf_tcp_qpair_accept(h->listener, fd, (const struct sockaddr *)&h->peer, session);
	} else if (error == -EPROTONOSUPPORT && !h->listener->secure) { /* nothing has been read */
		tls_session_free(session);
		nvmf_tcp_qpair_accept(h->listener, fd, (const struct sockaddr *)&h->peer, NULL);
	} else {
		if (error != -ENODATA || h->listener->secure) { /* else it need not have been a host over TLS */
			nvmf_connection_refused(h->traddr, why);
		}
		tls_session_free(session);
		close(fd);
	}
	forget_handshake(h);
}

/* Why one more connection of a host may not begin a handshake; NULL: it may. */
static const char *find_no_room(const struct nvmf_tcp_transport *t, const char *traddr)
{
	const struct nvmf_transport_opts *o = &t->base.opts;
	const struct nvmf_tcp_handshake *h;
	uint32_t all = 0, of_host = 0;

	TAILQ_FOREACH (h, &t->handshakes, link) {
		all++;
		of_host += strcmp(h->traddr, traddr) == 0;
	}
	return nvmf_tcp_handshake_refusal(all, of_host, o->max_anonymous, o->max_anonymous_per_host);
}

/* Whether a connection that is not to be decrypted begins with TLS, as far as its first byte has come. */
static bool begins_with_tls(int fd)
{
	uint8_t first;

	return recv(fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) == 1 && tls_record_bytes(&first, 1, true) > 0;
}

static int start_handshake(struct nvmf_tcp_handshake *h, int fd)
{
	struct tls_session *session =
		tls_session_server(fd, h->listener->secure ? find_host_psk : find_generated_psk, h->tgt);

	if (session != NULL && tcp_socket_opts()->ktls) {
		tls_session_ask_kernel(session);
	}
	h->tls = session != NULL ? tls_handshake_start(session, HANDSHAKE_US, handle_handshake_end, h) : NULL;
	if (h->tls == NULL) {
		tls_session_free(session);
		return -ENOMEM;
	}
	return 0;
}

void nvmf_tcp_secure_accept(struct nvmf_tcp_listener *l, int fd, const struct sockaddr *peer, size_t peer_bytes)
{
	struct nvmf_tcp_transport *t = l->transport;
	struct nvmf_tcp_handshake *h = calloc(1, sizeof(*h));
	struct nvmf_address from = {.traddr = "an unknown address"};

	nvmf_tcp_name_address(&from, peer);
	const char *why = find_no_room(t, from.traddr);
	if (why == NULL && h != NULL) {
		h->listener = l;
		h->tgt = t->base.tgt;
		memcpy(&h->peer, peer, peer_bytes);
		snprintf(h->traddr, sizeof(h->traddr), "%s", from.traddr);
		if (start_handshake(h, fd) == 0) {
			TAILQ_INSERT_TAIL(&t->handshakes, h, link);
			return;
		}
	}
	free(h);
	if (!l->secure && !begins_with_tls(fd)) { /* one without TLS is not refused because of others */
		nvmf_tcp_qpair_accept(l, fd, peer, NULL);
		return;
	}
	nvmf_connection_refused(from.traddr, why != NULL ? why : "no memory");
	close(fd);
}

void nvmf_tcp_secure_stop(struct nvmf_tcp_listener *l)
{
	struct nvmf_tcp_handshake *h, *next;

	for (h = TAILQ_FIRST(&l->transport->handshakes); h != NULL; h = next) {
		next = TAILQ_NEXT(h, link);
		if (h->listener == l) {
			tls_handshake_cancel(h->tls);
			forget_handshake(h);
		}
	}
}
