/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/remote.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "rpc/frame.h"
#include "rpc/outq.h"
#include "rpc/rpc.h"
#include "thread/thread.h"

/* Answers are short: what sends more is not a varve. */
#define ANSWER_MAX 65536
/* While the other process's backlog is full, it is tried again; epoll does not tell when there is room (unix(7)). */
#define CONNECT_AGAIN_US 50000

struct rpc_remote {
	struct sockaddr_un address;
	int fd;
	struct fd_source *source; /* NULL until it is connected */
	struct thread_timer deadline, connect_timer;
	uint32_t timeout_ms;
	uint32_t id; /* random: an answer that has it was given by who has read the request */
	struct rpc_outq out;
	struct rpc_frame frame;
	size_t in_len;
	rpc_remote_done_fn done;
	void *arg;
	char in[ANSWER_MAX];
};

void rpc_remote_cancel(struct rpc_remote *r)
{
	thread_timer_stop(&r->deadline);
	thread_timer_stop(&r->connect_timer);
	if (r->source != NULL) {
		fd_source_remove(&r->source);
	}
	if (r->fd >= 0) {
		close(r->fd);
	}
	rpc_outq_clear(&r->out);
	free(r);
}

static void remote_finish(struct rpc_remote *r, const struct rpc_remote_answer *answer)
{
	rpc_remote_done_fn done = r->done;
	void *arg = r->arg;

	rpc_remote_cancel(r);
	done(arg, answer);
}

static void remote_fail(struct rpc_remote *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void remote_fail(struct rpc_remote *r, const char *fmt, ...)
{
	char why[256];
	va_list args;

	va_start(args, fmt);
	vsnprintf(why, sizeof(why), fmt, args);
	va_end(args);
	remote_finish(r, &(struct rpc_remote_answer){.code = RPC_REMOTE_NO_ANSWER, .message = why});
}

/* ---- The answer ---- */

/* An error's code and text; its code must be an integer that fits, and not that of a success. */
static bool remote_decode_error(const json_t *error, struct rpc_remote_answer *answer)
{
	const json_t *code = json_object_get(error, "code");
	json_int_t value = json_integer_value(code);

	answer->message = json_string_value(json_object_get(error, "message"));
	if (!json_is_integer(code) || value == 0 || value <= INT32_MIN || value > INT32_MAX) {
		return false;
	}
	answer->code = (int)value;
	answer->message = answer->message != NULL ? answer->message : "an error without a message";
	return true;
}

static void remote_take_answer(struct rpc_remote *r, const char *text, size_t len)
{
	struct rpc_remote_answer answer = {0};
	json_error_t parse_error;
	json_t *tree = rpc_json_load(text, len, &parse_error);
	const json_t *error = json_object_get(tree, "error"), *id = json_object_get(tree, "id");

	answer.result = json_object_get(tree, "result");
	bool good = json_is_integer(id) && json_integer_value(id) == r->id &&
		    (answer.result != NULL) != (error != NULL) &&
		    (error == NULL || remote_decode_error(error, &answer));
	if (good) {
		remote_finish(r, &answer);
	} else {
		remote_fail(r, "its answer is not one of JSON-RPC: %.100s", text);
	}
	json_decref(tree);
}

/* Looks for an answer in what has arrived. True: the call has ended. */
static bool remote_scan(struct rpc_remote *r)
{
	size_t begin, end;

	switch (rpc_frame_scan(&r->frame, r->in, r->in_len, &begin, &end)) {
	case RPC_FRAME_MORE:
		return false;
	case RPC_FRAME_MESSAGE:
		r->in[end] = 0; /* what follows the answer is of no interest */
		remote_take_answer(r, r->in + begin, end - begin);
		return true;
	default:
		remote_fail(r, "its answer is not JSON");
		return true;
	}
}

/* Receives once. True: the call has ended. */
static bool remote_receive(struct rpc_remote *r)
{
	if (r->in_len == sizeof(r->in) - 1) {
		remote_fail(r, "its answer is longer than %zu bytes", sizeof(r->in) - 1);
		return true;
	}
	ssize_t n = recv(r->fd, r->in + r->in_len, sizeof(r->in) - 1 - r->in_len, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		return false;
	}
	if (n <= 0) {
		remote_fail(r, "it closed the connection: %s",
			    n == 0 ? "it ended, or it has too many clients" : strerror(errno));
		return true;
	}
	r->in_len += (size_t)n;
	return remote_scan(r);
}

/* ---- Connecting and sending ---- */

static void remote_on_socket(void *arg, uint32_t events)
{
	struct rpc_remote *r = arg;

	if ((events & ~(uint32_t)EPOLLOUT) != 0 && remote_receive(r)) {
		return;
	}
	if (rpc_outq_bytes(&r->out) != 0) {
		int rc = rpc_outq_send(&r->out, r->fd);
		if (rc < 0) {
			remote_fail(r, "it takes no request: %s", strerror(-rc));
			return;
		}
	}
	fd_source_modify(r->source, EPOLLIN | (rpc_outq_bytes(&r->out) != 0 ? EPOLLOUT : 0u));
}

/* Who listens there must be this user or root: what others say is not believed. */
static bool remote_check_user(struct rpc_remote *r)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (getsockopt(r->fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0) {
		remote_fail(r, "nobody knows whose it is: %s", strerror(errno));
		return false;
	}
	if (peer.uid != 0 && peer.uid != geteuid()) {
		remote_fail(r, "process %d of user %u listens there: only user %u and root are asked", (int)peer.pid,
			    peer.uid, geteuid());
		return false;
	}
	return true;
}

static void remote_connect(void *arg)
{
	struct rpc_remote *r = arg;

	if (r->fd < 0) {
		r->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	}
	if (r->fd < 0 || connect(r->fd, (struct sockaddr *)&r->address, sizeof(r->address)) != 0) {
		if (r->fd >= 0 && (errno == EAGAIN || errno == EINTR)) {
			thread_timer_start(&r->connect_timer, CONNECT_AGAIN_US);
		} else {
			remote_fail(r, "it cannot be connected to: %s", strerror(errno));
		}
		return;
	}
	if (!remote_check_user(r)) {
		return;
	}
	r->source = fd_source_add(r->fd, EPOLLIN | EPOLLOUT, remote_on_socket, r, "remote RPC");
	if (r->source == NULL) {
		remote_fail(r, "it cannot be connected to: %s", strerror(errno));
	}
}

/* An answer that lies in the socket counts: this process may have been the one that was late. */
static void remote_timeout(void *arg)
{
	struct rpc_remote *r = arg;

	for (size_t len = SIZE_MAX; r->source != NULL && len != r->in_len;) {
		len = r->in_len;
		if (remote_receive(r)) {
			return;
		}
	}
	remote_fail(r, "no answer within %u ms", r->timeout_ms);
}

static char *remote_request_text(const char *method, uint32_t id, json_t *params)
{
	json_t *request = json_pack("{s:s, s:s, s:I, s:o}", "jsonrpc", "2.0", "method", method, "id", (json_int_t)id,
				    "params", params);
	char *text = request != NULL ? json_dumps(request, JSON_COMPACT) : NULL;

	json_decref(request);
	return text;
}

struct rpc_remote *rpc_remote_call(const char *path, const char *method, json_t *params, uint32_t timeout_ms,
				   rpc_remote_done_fn done, void *arg)
{
	uint32_t id = 0;
	if (getrandom(&id, sizeof(id), 0) != sizeof(id)) {
		abort(); /* 4 bytes never block and never fail once the system is up: getrandom(2) */
	}
	char *text = remote_request_text(method, id, params);
	struct rpc_remote *r = calloc(1, sizeof(*r));

	if (r != NULL) {
		rpc_outq_init(&r->out);
	}
	if (r == NULL || text == NULL || rpc_outq_add(&r->out, text, strlen(text)) != 0) {
		free(text);
		free(r);
		return NULL;
	}
	r->fd = -1;
	r->address.sun_family = AF_UNIX;
	snprintf(r->address.sun_path, sizeof(r->address.sun_path), "%s", path);
	r->timeout_ms = timeout_ms;
	r->id = id;
	r->done = done;
	r->arg = arg;
	r->deadline = (struct thread_timer){.fn = remote_timeout, .arg = r};
	r->connect_timer = (struct thread_timer){.fn = remote_connect, .arg = r};
	thread_timer_start(&r->deadline, UINT64_C(1000) * timeout_ms);
	thread_timer_start(&r->connect_timer, 0);
	return r;
}
