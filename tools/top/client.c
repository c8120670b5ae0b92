/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "rpc/frame.h"
#include "tools/top/top.h"

#define CHUNK      65536
#define ANSWER_MAX (256u * 1024 * 1024)

struct top_client {
	int fd;
	unsigned timeout_ms;
	struct rpc_frame frame;
	char *in;
	size_t in_len, in_size;
};

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

struct top_client *top_client_open(const char *path, unsigned timeout_ms, char *why)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	struct top_client *c = calloc(1, sizeof(*c));

	if (c == NULL || strlen(path) >= sizeof(addr.sun_path)) {
		snprintf(why, TOP_WHY_MAX, "the path \"%.200s\" is longer than %zu bytes", path,
			 sizeof(addr.sun_path) - 1);
		free(c);
		return NULL;
	}
	strcpy(addr.sun_path, path);
	c->timeout_ms = timeout_ms;
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&addr, sizeof(addr)) != 0) {
		snprintf(why, TOP_WHY_MAX, "%.200s: %s", path, strerror(errno));
		top_client_close(c);
		return NULL;
	}
	return c;
}

void top_client_close(struct top_client *c)
{
	if (c == NULL) {
		return;
	}
	if (c->fd >= 0) {
		close(c->fd);
	}
	free(c->in);
	free(c);
}

/* 0, or a negative errno; waits for the socket to be ready for what. */
static int wait_for(struct top_client *c, short what, uint64_t deadline_ms)
{
	struct pollfd p = {.fd = c->fd, .events = what};
	uint64_t now = now_ms();
	int rc = poll(&p, 1, deadline_ms > now ? (int)(deadline_ms - now) : 0);

	if (rc < 0 && errno == EINTR) {
		return now < deadline_ms ? 0 : -ETIMEDOUT;
	}
	return rc > 0 ? 0 : rc == 0 ? -ETIMEDOUT : -errno;
}

static int send_all(struct top_client *c, const char *text, size_t len, uint64_t deadline_ms)
{
	while (len > 0) {
		ssize_t n = send(c->fd, text, len, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EAGAIN) {
			int rc = wait_for(c, POLLOUT, deadline_ms);
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

static int receive_more(struct top_client *c, uint64_t deadline_ms)
{
	if (c->in_size - c->in_len < CHUNK) {
		char *in = c->in_size < ANSWER_MAX ? realloc(c->in, 2 * c->in_size + CHUNK) : NULL;
		if (in == NULL) {
			return -ENOMEM;
		}
		c->in = in;
		c->in_size = 2 * c->in_size + CHUNK;
	}
	int rc = wait_for(c, POLLIN, deadline_ms);
	if (rc != 0) {
		return rc;
	}
	ssize_t n = recv(c->fd, c->in + c->in_len, c->in_size - c->in_len, MSG_DONTWAIT);
	if (n < 0) {
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	}
	c->in_len += (size_t)n;
	return n == 0 ? -ECONNRESET : 0;
}

static int receive_answer(struct top_client *c, uint64_t deadline_ms, json_t **answer)
{
	enum rpc_frame_result result;
	size_t begin, end;

	while ((result = rpc_frame_scan(&c->frame, c->in, c->in_len, &begin, &end)) == RPC_FRAME_MORE) {
		int rc = receive_more(c, deadline_ms);
		if (rc != 0) {
			return rc;
		}
	}
	*answer = result == RPC_FRAME_MESSAGE ? json_loadb(c->in + begin, end - begin, 0, NULL) : NULL;
	if (*answer == NULL) {
		return -EPROTO;
	}
	size_t drop = rpc_frame_droppable(&c->frame);
	memmove(c->in, c->in + drop, c->in_len - drop);
	c->in_len -= drop;
	rpc_frame_dropped(&c->frame, drop);
	return 0;
}

static char *batch_text(size_t n, const char *const *methods, json_t **params)
{
	json_t *batch = json_array();

	for (size_t i = 0; i < n; i++) {
		json_t *call = json_pack("{s:s, s:s, s:I}", "jsonrpc", "2.0", "method", methods[i], "id",
					 (json_int_t)i);
		if (params != NULL && params[i] != NULL) {
			json_object_set_new(call, "params", params[i]);
		}
		json_array_append_new(batch, call);
	}
	char *text = json_dumps(batch, JSON_COMPACT);
	json_decref(batch);
	return text;
}

static void sort_out(const json_t *answer, size_t n, json_t **results)
{
	const json_t *one;
	size_t i;

	json_array_foreach (answer, i, one) {
		json_int_t id = json_integer_value(json_object_get(one, "id"));
		if (json_is_integer(json_object_get(one, "id")) && id >= 0 && (size_t)id < n &&
		    results[id] == NULL) {
			results[id] = json_incref(json_object_get(one, "result"));
		}
	}
}

int top_client_call(struct top_client *c, size_t n, const char *const *methods, json_t **params,
		    json_t **results, char *why)
{
	uint64_t deadline = now_ms() + c->timeout_ms;
	char *text = batch_text(n, methods, params);
	json_t *answer = NULL;
	int rc = text != NULL ? send_all(c, text, strlen(text), deadline) : -ENOMEM;

	free(text);
	memset(results, 0, n * sizeof(*results));
	if (rc == 0) {
		rc = receive_answer(c, deadline, &answer);
	}
	if (rc == 0 && !json_is_array(answer)) {
		rc = -EPROTO;
	}
	if (rc == 0) {
		sort_out(answer, n, results);
	} else {
		snprintf(why, TOP_WHY_MAX, "%s",
			 rc == -ETIMEDOUT                    ? "the daemon does not answer in time"
			 : rc == -ECONNRESET || rc == -EPIPE ? "the daemon closed the connection"
			 : rc == -EPROTO                     ? "the answer is not one of a varve"
							     : strerror(-rc));
	}
	json_decref(answer);
	return rc;
}
