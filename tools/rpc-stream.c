/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/rpc-stream.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "rpc/stream.h"

#define CHUNK 65536

struct rpc_stream {
	int fd;
	struct rpc_stream_in in;
};

static uint64_t rpc_stream_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

uint64_t rpc_stream_deadline(uint64_t timeout_ms)
{
	return rpc_stream_now_ms() + timeout_ms;
}

struct rpc_stream *rpc_stream_open(const char *path, uint64_t timeout_ms, char *why, size_t why_size)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	struct timeval wait = {.tv_sec = (time_t)(timeout_ms / 1000),
			       .tv_usec = (suseconds_t)(timeout_ms % 1000 * 1000)};

	if (strlen(path) >= sizeof(addr.sun_path)) {
		snprintf(why, why_size, "the path \"%.200s\" is longer than %zu bytes", path,
			 sizeof(addr.sun_path) - 1);
		return NULL;
	}
	strcpy(addr.sun_path, path);
	struct rpc_stream *s = calloc(1, sizeof(*s));
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	/* Connects; blocks while the backlog of the daemon's socket is full. */
	if (s == NULL || fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)) != 0 ||
	    connect(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0) {
		snprintf(why, why_size, "%.200s: %s", path,
			 errno == EAGAIN ? "nobody takes the connections that wait there: its control thread is held "
					   "up, varve-doctor tells by what"
					 : strerror(errno));
		if (fd >= 0) {
			close(fd);
		}
		free(s);
		return NULL;
	}
	s->fd = fd;
	return s;
}

void rpc_stream_close(struct rpc_stream *s)
{
	if (s == NULL) {
		return;
	}
	close(s->fd);
	rpc_stream_in_free(&s->in);
	free(s);
}

/* Waits until the socket is ready for the events `what`. 0, perhaps too early; or a negative errno. */
static int rpc_stream_wait_for(struct rpc_stream *s, short what, uint64_t deadline)
{
	struct pollfd p = {.fd = s->fd, .events = what};
	uint64_t now = rpc_stream_now_ms();
	int rc = poll(&p, 1, deadline > now ? (int)(deadline - now) : 0);

	if (rc < 0 && errno == EINTR) {
		return now < deadline ? 0 : -ETIMEDOUT;
	}
	return rc > 0 ? 0 : rc == 0 ? -ETIMEDOUT : -errno;
}

void rpc_stream_end(struct rpc_stream *s)
{
	shutdown(s->fd, SHUT_WR);
}

static int rpc_stream_receive_more(struct rpc_stream *s, uint64_t deadline)
{
	if (rpc_stream_in_room(&s->in, CHUNK) != 0) {
		return -ENOMEM;
	}
	int rc = rpc_stream_wait_for(s, POLLIN, deadline);
	if (rc != 0) {
		return rc;
	}
	ssize_t n = recv(s->fd, s->in.buf + s->in.len, s->in.size - s->in.len, MSG_DONTWAIT);
	if (n < 0) {
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	}
	s->in.len += (size_t)n;
	return n == 0 ? -ECONNRESET : 0;
}

/* A daemon does not read from a client that does not read its answers: so answers that come while sending are received
 * and kept. */
static int rpc_stream_wait_for_room(struct rpc_stream *s, uint64_t deadline)
{
	int rc = rpc_stream_wait_for(s, POLLOUT | POLLIN, deadline);

	if (rc == 0) {
		rc = rpc_stream_receive_more(s, rpc_stream_deadline(0));
	}
	return rc == -ETIMEDOUT && rpc_stream_now_ms() < deadline ? 0 : rc; /* 0: it can send now */
}

int rpc_stream_send(struct rpc_stream *s, const char *text, size_t len, uint64_t deadline)
{
	while (len > 0) {
		ssize_t n = send(s->fd, text, len, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EAGAIN) {
			int rc = rpc_stream_wait_for_room(s, deadline);
			if (rc != 0) {
				return rc;
			}
		} else if (n < 0 && errno != EINTR) {
			return -errno;
		}
		if (n > 0) {
			text += n;
			len -= (size_t)n;
		}
	}
	return 0;
}

int rpc_stream_receive(struct rpc_stream *s, uint64_t deadline, const char **text, size_t *len)
{
	int rc;

	while ((rc = rpc_stream_in_next(&s->in, text, len)) == -EAGAIN) {
		rc = rpc_stream_receive_more(s, deadline);
		if (rc != 0) {
			return rc;
		}
	}
	return rc == 0 ? 0 : -EPROTO;
}

void rpc_stream_drop(struct rpc_stream *s)
{
	rpc_stream_in_drop(&s->in);
}

int rpc_stream_receive_json(struct rpc_stream *s, uint64_t deadline, json_t **value)
{
	const char *text;
	size_t len;
	int rc = rpc_stream_receive(s, deadline, &text, &len);

	if (rc != 0) {
		return rc;
	}
	*value = json_loadb(text, len, 0, NULL);
	rpc_stream_drop(s);
	return *value != NULL ? 0 : -EPROTO;
}
