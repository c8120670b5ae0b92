/* SPDX-License-Identifier: BSD-3-Clause */
/* Listeners. Control thread. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "nvmf_tcp/internal.h"

/* Connections that are accepted before the control thread's other work has its turn: anybody can make them. */
#define ACCEPTS_PER_ROUND 32
/* How long a listener takes no connections if the process has no descriptors left. */
#define ACCEPT_AGAIN_US 100000

static int resolve_tcp_address(const struct nvmf_address *a, struct addrinfo **out)
{
	struct addrinfo hints = {
		.ai_family = a->adrfam == NVMF_ADDR_FAMILY_IP6 ? AF_INET6 : AF_INET,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
	};
	int rc = getaddrinfo(a->traddr, a->trsvcid, &hints, out);

	if (rc != 0) {
		log_error("listen address %s port %s: %s", a->traddr, a->trsvcid, gai_strerror(rc));
		return -EINVAL;
	}
	return 0;
}

static int open_listening_socket(const struct addrinfo *at, int backlog)
{
	int fd = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1, rc;

	if (fd < 0) {
		return -errno;
	}
	tcp_socket_configure(fd);
	/* [::] and 0.0.0.0 are two listeners, which may be of the same port */
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
	    (at->ai_family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) != 0) ||
	    bind(fd, at->ai_addr, at->ai_addrlen) != 0 || listen(fd, backlog) != 0) {
		rc = -errno;
		close(fd);
		return rc;
	}
	return fd;
}

static void accept_again(void *arg)
{
	struct nvmf_tcp_listener *l = arg;

	fd_source_modify(l->source, EPOLLIN);
}

/* The error stays until a descriptor is free, and so does the readiness of the listener. */
static void pause_listener(struct nvmf_tcp_listener *l, int error)
{
	log_limited(LOG_LEVEL_WARNING, "a connection to %s port %s cannot be accepted: %s; hosts have to wait",
		    l->address.traddr, l->address.trsvcid, strerror(error));
	fd_source_modify(l->source, 0);
	l->again.fn = accept_again;
	l->again.arg = l;
	thread_timer_start(&l->again, ACCEPT_AGAIN_US);
}

static void take_connection(struct nvmf_tcp_listener *l, int fd, const struct sockaddr_storage *peer)
{
	if (l->secure || nvmf_psk_any_generated(l->transport->base.tgt)) {
		nvmf_tcp_secure_accept(l, fd, (const struct sockaddr *)peer, sizeof(*peer));
	} else {
		nvmf_tcp_qpair_accept(l, fd, (const struct sockaddr *)peer, NULL);
	}
}

static void accept_connections(void *arg, uint32_t events)
{
	struct nvmf_tcp_listener *l = arg;

	if (l->transport->base.held) {
		fd_source_modify(l->source, 0); /* nvmf_tcp_op_resume() looks again */
		return;
	}
	for (unsigned n = 0; n < ACCEPTS_PER_ROUND; n++) {
		struct sockaddr_storage peer = {0};
		socklen_t length = sizeof(peer);
		int fd = accept4(l->fd, (struct sockaddr *)&peer, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			take_connection(l, fd, &peer);
		} else if (errno == EAGAIN) {
			return;
		} else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
			pause_listener(l, errno);
			return;
		} /* else it is an error of that connection: accept(2) */
	}
}

void nvmf_tcp_op_resume(struct nvmf_transport *base)
{
	struct nvmf_tcp_listener *l;

	TAILQ_FOREACH (l, &nvmf_tcp_transport_of(base)->listeners, link) {
		fd_source_modify(l->source, EPOLLIN);
	}
}

static int start_listener(struct nvmf_tcp_listener *l, const struct addrinfo *at)
{
	l->fd = open_listening_socket(at, l->transport->base.opts.acceptor_backlog);
	if (l->fd < 0) {
		return l->fd;
	}
	l->source = fd_source_add(l->fd, EPOLLIN, accept_connections, l, "nvmf_tcp_listener");
	if (l->source == NULL) {
		int rc = -errno;

		close(l->fd);
		return rc;
	}
	TAILQ_INSERT_TAIL(&l->transport->listeners, l, link);
	return 0;
}

static int listen_at(struct nvmf_transport *base, const struct nvmf_address *address, bool secure)
{
	struct nvmf_tcp_listener *l = calloc(1, sizeof(*l));
	struct addrinfo *at = NULL;
	int rc = l != NULL ? resolve_tcp_address(address, &at) : -ENOMEM;

	if (rc != 0) {
		free(l);
		return rc;
	}
	l->transport = nvmf_tcp_transport_of(base);
	l->address = *address;
	l->secure = secure;
	rc = start_listener(l, at);
	freeaddrinfo(at);
	if (rc != 0) {
		log_error("cannot listen at %s port %s: %s%s", address->traddr, address->trsvcid, strerror(-rc),
			  rc == -EADDRNOTAVAIL ? " (no interface has that address; `ip address` lists them)"
			  : rc == -EADDRINUSE
				  ? " (another program, or a listener of this one at 0.0.0.0 or :: with the "
				    "same port; `ss -ltnp` lists them)"
				  : "");
		free(l);
	}
	return rc;
}

int nvmf_tcp_op_listen(struct nvmf_transport *base, const struct nvmf_address *address)
{
	return listen_at(base, address, false);
}

int nvmf_tcp_op_listen_secure(struct nvmf_transport *base, const struct nvmf_address *address)
{
	return listen_at(base, address, true);
}

void nvmf_tcp_op_stop_listen(struct nvmf_transport *base, const struct nvmf_address *address)
{
	struct nvmf_tcp_transport *t = nvmf_tcp_transport_of(base);
	struct nvmf_tcp_listener *l;

	TAILQ_FOREACH (l, &t->listeners, link) {
		if (nvmf_address_equal(&l->address, address)) {
			TAILQ_REMOVE(&t->listeners, l, link);
			thread_timer_stop(&l->again);
			fd_source_remove(&l->source);
			nvmf_tcp_secure_stop(l);
			close(l->fd);
			free(l);
			return;
		}
	}
}
