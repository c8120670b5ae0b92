/* SPDX-License-Identifier: BSD-3-Clause */
/* The connection to the daemon. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tools/rpc-stream.h"
#include "tools/safe-text.h"
#include "tools/varve-rpc.h"

#define PROBE_TIMEOUT_MS 2000

struct rpc_client {
	struct rpc_stream *stream;
	const char *path;
	unsigned timeout_s;
	bool proposes; /* the last error asked "did you mean ...?" */
};

struct rpc_client *rpc_client_open(const char *path, unsigned timeout_s, bool quiet)
{
	char why[512];
	struct rpc_client *c = calloc(1, sizeof(*c));

	if (c == NULL) {
		fprintf(stderr, "varve-rpc: %s\n", strerror(ENOMEM));
		return NULL;
	}
	c->path = path;
	c->timeout_s = timeout_s;
	c->stream = rpc_stream_open(path, 1000 * (uint64_t)timeout_s, why, sizeof(why));
	if (c->stream == NULL) {
		if (!quiet) {
			fprintf(stderr,
				"varve-rpc: cannot connect to %s (is varve running? -s chooses another socket)\n", why);
		}
		rpc_client_close(c);
		return NULL;
	}
	return c;
}

void rpc_client_close(struct rpc_client *c)
{
	rpc_stream_close(c->stream);
	free(c);
}

static uint64_t rpc_client_deadline_of(const struct rpc_client *c)
{
	return rpc_stream_deadline(1000 * (uint64_t)c->timeout_s);
}

/* Whether the daemon answers another connection at the moment, to a method that only reads a variable. */
static bool rpc_client_answers_others(const struct rpc_client *c)
{
	static const char request[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"appliance_get_state\"}";
	char why[512];
	uint64_t deadline = rpc_stream_deadline(PROBE_TIMEOUT_MS);
	struct rpc_stream *s = rpc_stream_open(c->path, PROBE_TIMEOUT_MS, why, sizeof(why));
	json_t *answer = NULL;

	if (s != NULL && rpc_stream_send(s, request, strlen(request), deadline) == 0) {
		rpc_stream_receive_json(s, deadline, &answer);
	}
	rpc_stream_close(s);
	json_decref(answer);
	return answer != NULL;
}

/* The daemon's control thread answers calls at their deadline; if that thread hangs, only this client can report it. */
static void rpc_client_print_timeout(const struct rpc_client *c, const char *method)
{
	fprintf(stderr, "varve-rpc: %s: no answer within %u s (-t waits longer). ", method, c->timeout_s);
	if (rpc_client_answers_others(c)) {
		fprintf(stderr, "The daemon answers other calls and goes on with this one: rpc_get_calls lists it "
				"until it has ended\n");
	} else {
		fprintf(stderr, "The daemon answers no other call either: its control thread is held up, varve-doctor "
				"tells by what. "
				"The call may yet be carried out\n");
	}
}

static void rpc_client_print_failure(const struct rpc_client *c, const char *method, int rc)
{
	switch (rc) {
	case -ETIMEDOUT:
		rpc_client_print_timeout(c, method);
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

static int rpc_client_take_answer(struct rpc_client *c, const char *method, json_t *answer, bool quiet, json_t **result)
{
	json_t *error = json_object_get(answer, "error");
	const char *message = json_string_value(json_object_get(error, "message"));

	message = message != NULL ? message : "an error without a message";
	c->proposes = strstr(message, "did you mean") != NULL;
	*result = json_incref(json_object_get(answer, "result"));
	if (*result != NULL) {
		return RPC_TOOL_OK;
	}
	if (!quiet) {
		fprintf(stderr, "varve-rpc: %s: ", method);
		safe_text_print(stderr, message, strlen(message));
		fprintf(stderr, " (%lld)\n", (long long)json_integer_value(json_object_get(error, "code")));
	}
	return RPC_TOOL_REFUSED;
}

bool rpc_client_proposes(const struct rpc_client *c)
{
	return c->proposes;
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
	if (text != NULL && (rc = rpc_stream_send(c->stream, text, strlen(text), rpc_client_deadline_of(c))) == 0) {
		rc = rpc_stream_receive_json(c->stream, rpc_client_deadline_of(c), &answer);
	}
	free(text);
	if (answer == NULL) {
		rpc_client_print_failure(c, method, rc);
		return RPC_TOOL_NO_ANSWER;
	}
	int status = rpc_client_take_answer(c, method, answer, quiet, result);
	json_decref(answer);
	return status;
}

/* Prints answers until none has come for the timeout, or the daemon closes. Returns the negative errno of the end. */
static int rpc_client_print_answers(struct rpc_client *c, uint64_t timeout_ms, FILE *out)
{
	const char *text;
	size_t n;
	int rc;

	while ((rc = rpc_stream_receive(c->stream, rpc_stream_deadline(timeout_ms), &text, &n)) == 0) {
		safe_text_print(out, text, n);
		fputc('\n', out);
		rpc_stream_drop(c->stream);
	}
	return rc;
}

int rpc_client_raw(struct rpc_client *c, FILE *in, FILE *out)
{
	char buf[4096];
	size_t n;
	int rc = 0;

	while (rc == 0 && (n = fread(buf, 1, sizeof(buf), in)) > 0) {
		rc = rpc_stream_send(c->stream, buf, n, rpc_client_deadline_of(c));
		rpc_client_print_answers(c, 0, out);
	}
	if (rc == 0) {
		rpc_stream_end(c->stream);
		rc = rpc_client_print_answers(c, 1000 * (uint64_t)c->timeout_s, out);
		rc = rc == -ECONNRESET ? 0 : rc; /* the daemon has closed: all answers have been printed */
	}
	if (rc != 0) {
		rpc_client_print_failure(c, "-", rc);
		return RPC_TOOL_NO_ANSWER;
	}
	return RPC_TOOL_OK;
}
