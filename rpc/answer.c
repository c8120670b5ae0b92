/* SPDX-License-Identifier: BSD-3-Clause */
/* Builds answers: values that are valid JSON whatever the text, and the message around them. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/dispatch.h"
#include "util/parse.h"
#include "util/secret.h"

/* Methods do not check each call that adds to a JSON tree, and a tree that lacks a part for want of memory looks like
 * any other. So a failed allocation is noted here, and rpc_reply() does not send a result that was built meanwhile. */
static _Atomic bool refused;

static void *answer_json_memory(size_t bytes)
{
	void *p = malloc(bytes);

	if (p == NULL) {
		refused = true;
	}
	return p;
}

__attribute__((constructor)) static void answer_watch_json_memory(void)
{
	json_set_alloc_funcs(answer_json_memory, secret_wipe_free); /* calls may bring keys */
}

bool rpc_json_was_refused(void)
{
	return atomic_exchange(&refused, false);
}

void rpc_result_lacks_memory(void)
{
	refused = true;
}

json_t *rpc_string(const char *text)
{
	json_t *s = text != NULL ? json_string(text) : json_null();

	if (s != NULL) {
		return s;
	}
	size_t size = 3 * strlen(text) + 1;
	char *clean = malloc(size);
	if (clean == NULL) {
		refused = true;
		return NULL;
	}
	utf8_sanitize(text, clean, size);
	s = json_string(clean);
	free(clean);
	return s;
}

json_t *rpc_string_format(const char *fmt, ...)
{
	char *text;
	va_list ap;

	va_start(ap, fmt);
	int n = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (n < 0) {
		refused = true;
		return NULL;
	}
	json_t *s = rpc_string(text);
	free(text);
	return s;
}

json_t *rpc_hex(uint64_t value)
{
	return rpc_string_format("0x%" PRIx64, value);
}

json_t *rpc_uint(uint64_t value)
{
	return value <= INT64_MAX ? json_integer((json_int_t)value) : rpc_hex(value);
}

/* The words of SPDK for a code: clients look for them in the message. strerrordesc_np() gives English words in any
 * locale. NULL: there are none. */
static const char *answer_words_of(int code)
{
	switch (code) {
	case RPC_ERROR_INVALID_PARAMS:
		return "Invalid parameters";
	case RPC_ERROR_NO_METHOD:
		return "Method not found";
	case RPC_ERROR_INVALID_STATE:
		return NULL;
	default:
		return code < 0 && code > -4096 ? strerrordesc_np(-code) : NULL;
	}
}

static json_t *answer_message_json(const struct rpc_answer *answer)
{
	const char *words = answer_words_of(answer->code);

	if (answer->message == NULL || words == NULL || strstr(answer->message, words) != NULL) {
		return rpc_string(answer->message);
	}
	return rpc_string_format("%s (%s)", answer->message, words);
}

/* The error object, as text. */
static char *answer_error_body(const struct rpc_answer *answer)
{
	json_t *error = json_object();

	json_object_set_new(error, "code", json_integer(answer->code));
	json_object_set_new(error, "message", answer_message_json(answer));
	char *body = json_dumps(error, JSON_COMPACT);
	json_decref(error);
	return body;
}

char *rpc_answer_text(const char *id, const struct rpc_answer *answer, size_t *len)
{
	bool ok = answer->result != NULL;
	char *text;

	rpc_json_was_refused(); /* refusals before this point have been handled */
	char *body = ok ? json_dumps(answer->result, JSON_COMPACT | JSON_ENCODE_ANY) : answer_error_body(answer);
	if (rpc_json_was_refused() || body == NULL) { /* then jansson's text may be incomplete, and not JSON */
		free(body);
		return NULL;
	}
	int n = asprintf(&text, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"%s\":%s}", id, ok ? "result" : "error", body);
	free(body);
	if (n < 0) {
		return NULL;
	}
	*len = (size_t)n;
	return text;
}
