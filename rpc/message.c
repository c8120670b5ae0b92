/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/message.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/dispatch.h"
#include "rpc/lexer.h"
#include "rpc/rpc.h"
#include "util/secret.h"

static void __attribute__((format(printf, 3, 4))) message_call_fail(struct rpc_call *c, int error, const char *fmt, ...)
{
	va_list ap;

	c->error = error;
	va_start(ap, fmt);
	vsnprintf(c->why, sizeof(c->why), fmt, ap);
	va_end(ap);
}

/* True if the JSON library would refuse the number. */
static bool message_number_is_big(const struct rpc_lexer *lexer, const struct rpc_token *t)
{
	char text[64];
	size_t len = t->end - t->begin;

	if (!t->real) {
		if (len < sizeof("9223372036854775807") - 1) {
			return false;
		}
		if (len >= sizeof(text)) {
			return true;
		}
		memcpy(text, t->text + t->begin, len);
		text[len] = '\0';
		errno = 0;
		strtoll(text, NULL, 10);
		return errno == ERANGE;
	}
	/* strtod() stops at the latest at the bracket that ends each message; a text without a bracket is not a
	 * message. */
	return t->end < lexer->len && isinf(strtod(t->text + t->begin, NULL));
}

/* A copy of the message in which big numbers are strings. NULL: there are no big numbers, or there is no memory
 * (*failed). */
static char *message_quote_big_numbers(const char *text, size_t *len, bool *failed)
{
	struct rpc_lexer lexer;
	struct rpc_token t;
	size_t n = 0, from = 0, used = 0;

	*failed = false;
	rpc_lexer_init(&lexer, text, *len);
	while (rpc_lexer_next(&lexer, &t)) {
		n += t.type == RPC_TOKEN_NUMBER && message_number_is_big(&lexer, &t);
	}
	if (n == 0) {
		return NULL;
	}
	char *copy = malloc(*len + 3 * n + 1);
	if (copy == NULL) {
		*failed = true;
		return NULL;
	}
	rpc_lexer_init(&lexer, text, *len);
	while (rpc_lexer_next(&lexer, &t)) {
		if (t.type != RPC_TOKEN_NUMBER || !message_number_is_big(&lexer, &t)) {
			continue;
		}
		memcpy(copy + used, text + from, t.begin - from);
		used += t.begin - from;
		copy[used++] = '"';
		copy[used++] = RPC_BIG_NUMBER;
		memcpy(copy + used, text + t.begin, t.end - t.begin);
		used += t.end - t.begin;
		copy[used++] = '"';
		from = t.end;
	}
	memcpy(copy + used, text + from, *len - from);
	*len += 3 * n;
	return copy;
}

const char *rpc_big_number(const json_t *value)
{
	const char *s = json_string_value(value);

	return s != NULL && s[0] == RPC_BIG_NUMBER ? s + 1 : NULL;
}

/* Copies the text of each call's id: a member of the outermost object, or, in a batch, of the objects in the outermost
 * array. An id whose key is written with escapes is not found. */
static int message_find_ids(const char *text, size_t len, struct rpc_message *m)
{
	struct rpc_lexer lexer;
	struct rpc_token t;
	unsigned depth = m->batch ? 2 : 1;
	size_t index = 0;

	rpc_lexer_init(&lexer, text, len);
	while (rpc_lexer_next(&lexer, &t) && index < m->n_calls) {
		if (m->batch && t.type == RPC_TOKEN_COMMA && t.depth == 1) {
			index++;
		}
		if (t.type != RPC_TOKEN_COLON || t.depth != depth || !rpc_lexer_key_is(&lexer, "id")) {
			continue;
		}
		if (!rpc_lexer_next(&lexer, &t)) {
			break;
		}
		bool scalar = t.type == RPC_TOKEN_STRING || t.type == RPC_TOKEN_NUMBER || t.type == RPC_TOKEN_WORD;
		struct rpc_call *c = &m->calls[index];
		if (scalar && c->id == NULL) {
			c->id = strndup(text + t.begin, t.end - t.begin);
			if (c->id == NULL) {
				return -ENOMEM;
			}
		}
	}
	return 0;
}

/* Called after message_find_ids(): makes the id agree with the one that the parser found. */
static int message_check_id(struct rpc_call *c, const json_t *id)
{
	bool usable = json_is_string(id) || json_is_number(id) || json_is_null(id);

	if (usable && c->id == NULL) {
		c->id = json_dumps(id, JSON_ENCODE_ANY);
		return c->id == NULL ? -ENOMEM : 0;
	}
	if (id == NULL || !usable) {
		free(c->id);
		c->id = NULL;
	}
	if (id != NULL && !usable) {
		message_call_fail(c, RPC_ERROR_INVALID_REQUEST, "\"id\" must be a string, a number or null");
	}
	return 0;
}

static void message_check_params(struct rpc_call *c, json_t *params)
{
	if (params == NULL || (json_is_array(params) && json_array_size(params) == 0) || json_is_null(params)) {
		return;
	}
	if (json_is_array(params)) {
		message_call_fail(c, RPC_ERROR_INVALID_PARAMS,
				  "parameters are passed by name: \"params\" must be an object, not an array");
		return;
	}
	if (!json_is_object(params)) {
		message_call_fail(c, RPC_ERROR_INVALID_REQUEST, "\"params\" must be an object");
		return;
	}
	c->params = params;
}

/* Checks a request that is an object: fills in method and params, or error. */
static void message_check_request(struct rpc_call *c, const json_t *request)
{
	const json_t *version = json_object_get(request, "jsonrpc");
	const json_t *method = json_object_get(request, "method");

	if (version != NULL && (!json_is_string(version) || strcmp(json_string_value(version), "2.0") != 0)) {
		message_call_fail(c, RPC_ERROR_INVALID_REQUEST, "\"jsonrpc\" must be \"2.0\"");
	} else if (method == NULL) {
		message_call_fail(c, RPC_ERROR_INVALID_REQUEST, "\"method\" is missing");
	} else if (!json_is_string(method)) {
		message_call_fail(c, RPC_ERROR_INVALID_REQUEST, "\"method\" must be a string");
	} else {
		c->method = json_string_value(method);
		message_check_params(c, json_object_get(request, "params"));
	}
}

static int message_decode_call(struct rpc_call *c, const json_t *request)
{
	int rc = 0;

	if (json_is_object(request)) {
		rc = message_check_id(c, json_object_get(request, "id"));
		if (rc == 0 && c->error == 0) {
			message_check_request(c, request);
		}
	} else {
		free(c->id);
		c->id = NULL;
		message_call_fail(c, RPC_ERROR_INVALID_REQUEST, "a request must be an object");
	}
	/* A request that is so wrong that it is not even a notification is answered with the id null (section 5 of the
	 * specification). */
	if (rc == 0 && c->id == NULL && c->error == RPC_ERROR_INVALID_REQUEST) {
		c->id = strdup("null");
		rc = c->id == NULL ? -ENOMEM : 0;
	}
	return rc;
}

/* Makes the whole message one call with an error. */
static int __attribute__((format(printf, 3, 4))) message_fail(struct rpc_message *m, int error, const char *fmt, ...)
{
	va_list ap;

	rpc_message_free(m);
	m->calls = calloc(1, sizeof(*m->calls));
	if (m->calls == NULL) {
		return -ENOMEM;
	}
	m->n_calls = 1;
	struct rpc_call *c = m->calls;
	c->id = strdup("null");
	c->error = error;
	va_start(ap, fmt);
	vsnprintf(c->why, sizeof(c->why), fmt, ap);
	va_end(ap);
	if (c->id == NULL) {
		rpc_message_free(m);
		return -ENOMEM;
	}
	return 0;
}

static int message_decode_calls(const char *text, size_t len, struct rpc_message *m)
{
	m->batch = json_is_array(m->tree);
	m->n_calls = m->batch ? json_array_size(m->tree) : 1;
	if (m->n_calls == 0) {
		return message_fail(m, RPC_ERROR_INVALID_REQUEST, "a batch must hold at least one request");
	}
	if (m->n_calls > RPC_BATCH_MAX) {
		return message_fail(m, RPC_ERROR_INVALID_REQUEST, "a batch of %zu requests: at most %d are allowed",
				    m->n_calls, RPC_BATCH_MAX);
	}
	m->calls = calloc(m->n_calls, sizeof(*m->calls));
	int rc = m->calls == NULL ? -ENOMEM : message_find_ids(text, len, m);
	for (size_t i = 0; rc == 0 && i < m->n_calls; i++) {
		rc = message_decode_call(&m->calls[i], m->batch ? json_array_get(m->tree, i) : m->tree);
	}
	if (rc != 0) {
		rpc_message_free(m);
	}
	return rc;
}

json_t *rpc_json_load(const char *text, size_t len, json_error_t *error)
{
	size_t parse_len = len;
	bool failed;
	char *copy = message_quote_big_numbers(text, &parse_len, &failed);

	if (failed) {
		*error = (json_error_t){.text = "no memory"};
		error->text[JSON_ERROR_TEXT_LENGTH - 1] = json_error_out_of_memory; /* where jansson has the code */
		return NULL;
	}
	json_t *tree = json_loadb(copy != NULL ? copy : text, parse_len, JSON_REJECT_DUPLICATES, error);
	secret_wipe_free(copy);
	return tree;
}

int rpc_message_decode(const char *text, size_t len, struct rpc_message *m)
{
	json_error_t error;

	memset(m, 0, sizeof(*m));
	rpc_json_was_refused(); /* forgets refusals before this text */
	m->tree = rpc_json_load(text, len, &error);
	if (m->tree != NULL) {
		return message_decode_calls(text, len, m);
	}
	if (rpc_json_was_refused()) { /* which jansson may report as an error in the text */
		return -ENOMEM;
	}
	switch (json_error_code(&error)) {
	case json_error_out_of_memory:
		return -ENOMEM;
	case json_error_duplicate_key:
		return message_fail(m, RPC_ERROR_INVALID_REQUEST, "line %d, column %d: %s", error.line, error.column,
				    error.text);
	default:
		return message_fail(m, RPC_ERROR_PARSE, "line %d, column %d: %s", error.line, error.column, error.text);
	}
}

void rpc_message_free(struct rpc_message *m)
{
	for (size_t i = 0; m->calls != NULL && i < m->n_calls; i++) {
		free(m->calls[i].id);
	}
	free(m->calls);
	json_decref(m->tree);
	memset(m, 0, sizeof(*m));
}
