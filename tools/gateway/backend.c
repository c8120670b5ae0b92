/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/gateway/backend.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/rpc-stream.h"

#define CONNECT_MS 1000
#define ALIVE_MS   2000 /* for the answer that shows that the daemon is alive */

/* What a call that ended with -rc means to the client. */
static void backend_failed(struct gateway_answer *a, int rc, bool answered)
{
	if (rc == -ECONNRESET && !answered) {
		a->status = 204;
		return;
	}
	a->status = rc == -ETIMEDOUT ? 504 : 502;
	snprintf(a->why, sizeof(a->why),
		 rc == -ETIMEDOUT ? "the daemon has not answered in time; the call may still be carried out"
				  : "the daemon ended the connection without an answer (%s); the call may have been "
				    "carried out",
		 strerror(-rc));
}

static void backend_exchange(struct rpc_stream *s, uint64_t timeout_ms, const char *text, size_t len, bool answered,
			     struct gateway_answer *a)
{
	uint64_t deadline = rpc_stream_deadline(timeout_ms);
	const char *answer;
	int rc = rpc_stream_send(s, text, len, deadline);

	if (rc == 0 && !answered) {
		rpc_stream_end(s);
	}
	if (rc == 0) {
		rc = rpc_stream_receive(s, deadline, &answer, &a->len);
	}
	if (rc != 0) {
		backend_failed(a, rc, answered);
		return;
	}
	a->text = malloc(a->len + 1);
	a->status = a->text != NULL ? 200 : 500;
	if (a->text == NULL) {
		snprintf(a->why, sizeof(a->why), "no memory for the answer; the call was carried out");
		return;
	}
	memcpy(a->text, answer, a->len);
	a->text[a->len] = '\0';
}

static void backend_call(struct gateway_backend *b, uint64_t timeout_ms, const char *text, size_t len, bool answered,
			 struct gateway_answer *a)
{
	char why[256];
	struct rpc_stream *s = rpc_stream_open(b->path, CONNECT_MS, why, sizeof(why));

	*a = (struct gateway_answer){.status = 503};
	if (s == NULL) {
		snprintf(a->why, sizeof(a->why), "the daemon cannot be reached at %s", why);
		return;
	}
	backend_exchange(s, timeout_ms, text, len, answered, a);
	rpc_stream_close(s);
}

void gateway_backend_call(struct gateway_backend *b, const char *text, size_t len, bool answered,
			  struct gateway_answer *a)
{
	if (__atomic_add_fetch(&b->calls, 1, __ATOMIC_ACQ_REL) <= b->max_calls) {
		backend_call(b, b->timeout_ms, text, len, answered, a);
	} else {
		*a = (struct gateway_answer){.status = 429};
		snprintf(a->why, sizeof(a->why), "%u calls are under way, more are not allowed at once", b->max_calls);
	}
	__atomic_sub_fetch(&b->calls, 1, __ATOMIC_ACQ_REL);
}

void gateway_backend_method(struct gateway_backend *b, const char *method, json_t **result, struct gateway_answer *a)
{
	char text[128];
	int len = snprintf(text, sizeof(text), "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"%s\"}", method);

	*result = NULL;
	gateway_backend_call(b, text, (size_t)len, true, a);
	if (a->status != 200) {
		return;
	}
	json_t *answer = json_loadb(a->text, a->len, 0, NULL);
	free(a->text);
	a->text = NULL;
	*result = json_incref(json_object_get(answer, "result"));
	json_decref(answer);
	if (*result == NULL) {
		a->status = 502;
		snprintf(a->why, sizeof(a->why), "the daemon answered %s with an error", method);
	}
}

static bool backend_answers(struct gateway_backend *b)
{
	static const char text[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"spdk_get_version\"}";
	struct gateway_answer a;

	/* Not among the calls that are counted: a gateway at its limit is in order. */
	backend_call(b, ALIVE_MS, text, sizeof(text) - 1, true, &a);
	free(a.text);
	return a.status == 200;
}

bool gateway_backend_is_alive(struct gateway_backend *b)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static uint64_t until_ms;
	static bool alive;

	pthread_mutex_lock(&lock);
	if (rpc_stream_deadline(0) >= until_ms) {
		alive = backend_answers(b);
		until_ms = rpc_stream_deadline(1000);
	}
	bool result = alive;
	pthread_mutex_unlock(&lock);
	return result;
}
