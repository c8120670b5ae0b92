/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/gateway/conns.h"

#include <arpa/inet.h>
#include <limits.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "tools/gateway/tls.h"
#include "util/log.h"

static TAILQ_HEAD(, gateway_conn) gateway_conns = TAILQ_HEAD_INITIALIZER(gateway_conns);
static pthread_mutex_t gateway_conns_lock = PTHREAD_MUTEX_INITIALIZER;

uint64_t gateway_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void gateway_conn_set_v4(struct gateway_conn *c, const struct sockaddr_in *in)
{
	char text[INET_ADDRSTRLEN];

	c->address[0] = 4;
	memcpy(c->address + 1, &in->sin_addr, sizeof(in->sin_addr));
	inet_ntop(AF_INET, &in->sin_addr, text, sizeof(text));
	snprintf(c->peer, sizeof(c->peer), "%s:%u", text, ntohs(in->sin_port));
}

static void gateway_conn_set_v6(struct gateway_conn *c, const struct sockaddr_in6 *in)
{
	char text[INET6_ADDRSTRLEN];

	c->address[0] = 6;
	memcpy(c->address + 1, &in->sin6_addr, 8); /* whoever has one address has a /64 of them */
	inet_ntop(AF_INET6, &in->sin6_addr, text, sizeof(text));
	snprintf(c->peer, sizeof(c->peer), "[%s]:%u", text, ntohs(in->sin6_port));
}

static void gateway_conn_set_peer(struct gateway_conn *c)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);

	strcpy(c->peer, "unix socket");
	if (getpeername(c->fd, (struct sockaddr *)&peer, &len) != 0) {
		strcpy(c->peer, "a client that has gone");
	} else if (peer.ss_family == AF_INET) {
		gateway_conn_set_v4(c, (struct sockaddr_in *)&peer);
	} else if (peer.ss_family == AF_INET6) {
		gateway_conn_set_v6(c, (struct sockaddr_in6 *)&peer);
	}
}

static void gateway_conn_begin(struct MHD_Connection *connection, void **context)
{
	const union MHD_ConnectionInfo *fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct gateway_conn *c = calloc(1, sizeof(*c));

	*context = c;
	if (c == NULL || fd == NULL) {
		free(c);
		*context = NULL;
		return;
	}
	c->fd = fd->connect_fd;
	c->since_ms = gateway_now_ms();
	gateway_conn_set_peer(c);
	pthread_mutex_lock(&gateway_conns_lock);
	c->certificate = gateway_tls_generation();
	TAILQ_INSERT_TAIL(&gateway_conns, c, link);
	pthread_mutex_unlock(&gateway_conns_lock);
}

void gateway_conns_notify(void *arg, struct MHD_Connection *connection, void **context,
			  enum MHD_ConnectionNotificationCode code)
{
	struct gateway_conn *c = *context;

	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		gateway_conn_begin(connection, context);
	} else if (c != NULL) { /* before the library closes the descriptor */
		pthread_mutex_lock(&gateway_conns_lock);
		TAILQ_REMOVE(&gateway_conns, c, link);
		pthread_mutex_unlock(&gateway_conns_lock);
		free(c);
		*context = NULL;
	}
}

struct gateway_conn *gateway_conn_get(struct MHD_Connection *connection)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return info != NULL ? info->socket_context : NULL;
}

void gateway_conn_step(struct gateway_conn *c, enum gateway_step step)
{
	pthread_mutex_lock(&gateway_conns_lock);
	c->step = step;
	c->since_ms = gateway_now_ms();
	pthread_mutex_unlock(&gateway_conns_lock);
}

void gateway_conns_end_slow(uint64_t limit_ms)
{
	uint64_t now_ms = gateway_now_ms();
	struct gateway_conn *c;

	pthread_mutex_lock(&gateway_conns_lock);
	TAILQ_FOREACH (c, &gateway_conns, link) {
		if (c->step != GATEWAY_STEP_CALL && now_ms - c->since_ms > limit_ms) {
			log_limited(LOG_LEVEL_NOTICE, "%s: ended: too slow", c->peer);
			c->since_ms = now_ms;
			shutdown(c->fd, SHUT_RDWR); /* its thread sees the end, and closes it */
		}
	}
	pthread_mutex_unlock(&gateway_conns_lock);
}

unsigned gateway_conns_oldest_certificate(void)
{
	unsigned oldest = UINT_MAX;
	struct gateway_conn *c;

	pthread_mutex_lock(&gateway_conns_lock);
	TAILQ_FOREACH (c, &gateway_conns, link) {
		oldest = c->certificate < oldest ? c->certificate : oldest;
	}
	pthread_mutex_unlock(&gateway_conns_lock);
	return oldest;
}
