/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/rpc-stream.h"
#include "tools/top/top.h"

struct top_client {
	struct rpc_stream *stream;
	unsigned timeout_ms;
};

struct top_client *top_client_open(const char *path, unsigned timeout_ms, char *why)
{
	struct top_client *c = calloc(1, sizeof(*c));

	if (c == NULL) {
		snprintf(why, TOP_WHY_MAX, "%s", strerror(ENOMEM));
		return NULL;
	}
	c->timeout_ms = timeout_ms;
	c->stream = rpc_stream_open(path, timeout_ms, why, TOP_WHY_MAX);
	if (c->stream == NULL) {
		free(c);
		return NULL;
	}
	return c;
}

void top_client_close(struct top_client *c)
{
	if (c != NULL) {
		rpc_stream_close(c->stream);
		free(c);
	}
}

static char *top_client_batch_text(size_t n, const char *const *methods, json_t **params)
{
	json_t *batch = json_array();

	for (size_t i = 0; i < n; i++) {
		json_t *call =
			json_pack("{s:s, s:s, s:I}", "jsonrpc", "2.0", "method", methods[i], "id", (json_int_t)i);
		if (params != NULL && params[i] != NULL) {
			json_object_set_new(call, "params", params[i]);
		}
		json_array_append_new(batch, call);
	}
	char *text = json_dumps(batch, JSON_COMPACT);
	json_decref(batch);
	return text;
}

static void top_client_sort_answers(const json_t *answer, size_t n, json_t **results)
{
	const json_t *one;
	size_t i;

	json_array_foreach (answer, i, one) {
		json_int_t id = json_integer_value(json_object_get(one, "id"));
		if (json_is_integer(json_object_get(one, "id")) && id >= 0 && (size_t)id < n && results[id] == NULL) {
			results[id] = json_incref(json_object_get(one, "result"));
		}
	}
}

int top_client_call(struct top_client *c, size_t n, const char *const *methods, json_t **params, json_t **results,
		    char *why)
{
	uint64_t deadline = rpc_stream_deadline(c->timeout_ms);
	char *text = top_client_batch_text(n, methods, params);
	json_t *answer = NULL;
	int rc = text != NULL ? rpc_stream_send(c->stream, text, strlen(text), deadline) : -ENOMEM;

	free(text);
	memset(results, 0, n * sizeof(*results));
	if (rc == 0) {
		rc = rpc_stream_receive_json(c->stream, deadline, &answer);
	}
	if (rc == 0 && !json_is_array(answer)) {
		rc = -EPROTO;
	}
	if (rc == 0) {
		top_client_sort_answers(answer, n, results);
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
