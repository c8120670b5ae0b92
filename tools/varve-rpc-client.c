/* SPDX-License-Identifier: BSD-3-Clause */
/* The connection to the daemon. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "rpc/frame.h"
#include "tools/varve-rpc.h"

#define CHUNK 65536

struct rpc_client {
	int fd;
	unsigned timeout_s;
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

struct rpc_client *rpc_client_open(const char *path, unsigned timeout_s)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	struct rpc_client *c = calloc(1, sizeof(*c));

	if (c == NULL || strlen(path) >= sizeof(addr.sun_path)) {
		fprintf(stderr, "varve-rpc: the socket path \"%s\" is longer than %zu bytes\n", path,
			sizeof(addr.sun_path) - 1);
		free(c);
		return NULL;
	}
	strcpy(addr.sun_path, path);
	c->timeout_s = timeout_s;
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&addr, sizeof(addr)) != 0) {
		fprintf(stderr,
			"varve-rpc: cannot connect to %s: %s (is varve running? -s chooses another socket)\n",
			path, strerror(errno));
		rpc_client_close(c);
		return NULL;
	}
	return c;
}

void rpc_client_close(struct rpc_client *c)
{
	if (c->fd >= 0) {
		close(c->fd);
	}
	free(c->in);
	free(c);
}

static int send_all(struct rpc_client *c, const char *text, size_t len)
{
	while (len > 0) {
		ssize_t n = send(c->fd, text, len, MSG_NOSIGNAL);
		if (n < 0 && errno != EINTR) {
			return -errno;
		}
		if (n > 0) {
			text += n;
			len -= (size_t)n;
		}
	}
	return 0;
}

/* Waits until deadline for more bytes. Their number; 0: the daemon closed; or a negative errno. */
static ssize_t receive_more(struct rpc_client *c, uint64_t deadline_ms)
{
	struct pollfd p = {.fd = c->fd, .events = POLLIN};
	uint64_t now = now_ms();

	if (c->in_size - c->in_len < CHUNK) {
		char *in = realloc(c->in, 2 * c->in_size + CHUNK);
		if (in == NULL) {
			return -ENOMEM;
		}
		c->in = in;
		c->in_size = 2 * c->in_size + CHUNK;
	}
	int rc = poll(&p, 1, deadline_ms > now ? (int)(deadline_ms - now) : 0);
	if (rc == 0) {
		return -ETIMEDOUT;
	}
	ssize_t n = rc > 0 ? recv(c->fd, c->in + c->in_len, c->in_size - c->in_len, 0) : -1;
	if (n < 0) {
		return -errno;
	}
	c->in_len += (size_t)n;
	return n;
}

/* Waits for the next whole message, [*begin, *end) of the buffer. 0, or a negative errno: -ECONNRESET: closed,
 * -EPROTO: not JSON. */
static int receive_message(struct rpc_client *c, size_t *begin, size_t *end)
{
	uint64_t deadline = now_ms() + 1000 * (uint64_t)c->timeout_s;
	enum rpc_frame_result result;

	while ((result = rpc_frame_scan(&c->frame, c->in, c->in_len, begin, end)) == RPC_FRAME_MORE) {
		ssize_t n = receive_more(c, deadline);
		if (n < 0 && n != -EINTR) {
			return (int)n;
		}
		if (n == 0) {
			return -ECONNRESET;
		}
	}
	return result == RPC_FRAME_MESSAGE ? 0 : -EPROTO;
}

/* The message has been read. */
static void drop_message(struct rpc_client *c)
{
	size_t drop = rpc_frame_droppable(&c->frame);

	memmove(c->in, c->in + drop, c->in_len - drop);
	c->in_len -= drop;
	rpc_frame_dropped(&c->frame, drop);
}

static json_t *receive_answer(struct rpc_client *c, int *rc)
{
	size_t begin, end;

	*rc = receive_message(c, &begin, &end);
	if (*rc != 0) {
		return NULL;
	}
	json_t *answer = json_loadb(c->in + begin, end - begin, 0, NULL);
	drop_message(c);
	*rc = answer != NULL ? 0 : -EPROTO;
	return answer;
}

static void print_failure(const struct rpc_client *c, const char *method, int rc)
{
	switch (rc) {
	case -ETIMEDOUT:
		fprintf(stderr,
			"varve-rpc: %s: no answer within %u s (-t waits longer; the daemon goes on with "
			"it)\n",
			method, c->timeout_s);
		break;
	case -ECONNRESET:
	case -EPIPE:
		fprintf(stderr, "varve-rpc: %s: the daemon closed the connection\n", method);
		break;
	case -EPROTO:
		fprintf(stderr, "varve-rpc: %s: the answer is not JSON\n", method);
		break;
	default:
		fprintf(stderr, "varve-rpc: %s: %s\n", method, strerror(-rc));
	}
}

static int take_answer(const char *method, json_t *answer, bool quiet, json_t **result)
{
	json_t *error = json_object_get(answer, "error");

	*result = json_incref(json_object_get(answer, "result"));
	if (*result != NULL) {
		return RPC_TOOL_OK;
	}
	if (!quiet) {
		const char *message = json_string_value(json_object_get(error, "message"));
		fprintf(stderr, "varve-rpc: %s: %s (%lld)\n", method,
			message != NULL ? message : "an error without a message",
			(long long)json_integer_value(json_object_get(error, "code")));
	}
	return RPC_TOOL_REFUSED;
}

int rpc_client_call(struct rpc_client *c, const char *method, json_t *params, bool quiet, json_t **result)
{
	json_t *request = json_pack("{s:s, s:s, s:i}", "jsonrpc", "2.0", "method", method, "id", 1);
	int rc = -EPROTO;

	if (request == NULL) {
		fprintf(stderr, "varve-rpc: the method must be UTF-8 text\n");
		json_decref(params);
		return RPC_TOOL_USAGE;
	}
	if (params != NULL && json_object_size(params) > 0) {
		json_object_set(request, "params", params);
	}
	json_decref(params);
	char *text = json_dumps(request, JSON_COMPACT);
	json_decref(request);
	json_t *answer = NULL;
	if (text != NULL && (rc = send_all(c, text, strlen(text))) == 0) {
		answer = receive_answer(c, &rc);
	}
	free(text);
	if (answer == NULL) {
		print_failure(c, method, rc);
		return RPC_TOOL_NO_ANSWER;
	}
	int status = take_answer(method, answer, quiet, result);
	json_decref(answer);
	return status;
}

int rpc_client_raw(struct rpc_client *c, FILE *in, FILE *out)
{
	char buf[4096];
	size_t n;
	int rc = 0;

	while (rc == 0 && (n = fread(buf, 1, sizeof(buf), in)) > 0) {
		rc = send_all(c, buf, n);
	}
	if (rc == 0) {
		shutdown(c->fd, SHUT_WR);
	}
	size_t begin, end;
	while (rc == 0 && (rc = receive_message(c, &begin, &end)) == 0) {
		fwrite(c->in + begin, 1, end - begin, out);
		fputc('\n', out);
		drop_message(c);
	}
	if (rc != 0 && rc != -ECONNRESET) { /* the end of the stream is the end of the answers */
		print_failure(c, "-", rc);
		return RPC_TOOL_NO_ANSWER;
	}
	return RPC_TOOL_OK;
}
