/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/gateway/request.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "rpc/frame.h"
#include "rpc/message.h"
#include "rpc/rpc.h"
#include "tools/safe-text.h"

static unsigned __attribute__((format(printf, 3, 4)))
gateway_request_fail(struct gateway_request *r, unsigned status, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r->why, sizeof(r->why), fmt, ap);
	va_end(ap);
	return status;
}

/* Finds the one message of the body. */
static unsigned gateway_request_frame(const char *body, size_t len, struct gateway_request *r)
{
	struct rpc_frame frame = {0};

	switch (rpc_frame_scan(&frame, body, len, &r->begin, &r->end)) {
	case RPC_FRAME_MORE:
		return gateway_request_fail(r, 400, "the body ends before its JSON does");
	case RPC_FRAME_JUNK:
		return gateway_request_fail(r, 400, "byte %zu of the body begins neither an object nor an array",
					    r->begin);
	case RPC_FRAME_DEEP:
		return gateway_request_fail(r, 400, "nested deeper than %d", RPC_FRAME_DEPTH_MAX);
	case RPC_FRAME_MESSAGE:
		break;
	}
	for (size_t i = r->end; i < len; i++) {
		if (strchr(" \t\r\n", body[i]) == NULL || body[i] == '\0') {
			return gateway_request_fail(r, 400, "byte %zu of the body is behind the end of its JSON", i);
		}
	}
	return 200;
}

/* Parameters that need more than their method does. */
static const struct gateway_param_rule {
	const char *method, *object, *name; /* object: a parameter that has this one as a member, or NULL */
	const char *harmless;               /* a value that any may give, or NULL */
	enum gateway_role role;
} gateway_param_rules[] = {
	{"bdev_get_iostat", NULL, "reset_mode", "none", GATEWAY_OPERATE},
	/* A file that the daemon writes. */
	{"nvmf_subsystem_add_ns", "namespace", "ptpl_file", NULL, GATEWAY_ADMIN},
};

/* The least role that may make this call. *what is the parameter that asks for it, or NULL. */
static enum gateway_role gateway_call_needs(const char *method, const json_t *params, const char **what)
{
	enum gateway_role role = gateway_role_needed(method);

	*what = NULL;
	for (size_t i = 0; i < sizeof(gateway_param_rules) / sizeof(gateway_param_rules[0]); i++) {
		const struct gateway_param_rule *rule = &gateway_param_rules[i];
		const json_t *object = rule->object != NULL ? json_object_get(params, rule->object) : params;
		const json_t *value = json_object_get(object, rule->name);
		const char *text = json_string_value(value);
		bool harmless =
			value == NULL || (rule->harmless != NULL && text != NULL && strcmp(text, rule->harmless) == 0);
		if (strcmp(rule->method, method) == 0 && !harmless && rule->role > role) {
			role = rule->role;
			*what = rule->name;
		}
	}
	return role;
}

static unsigned gateway_request_call(const json_t *call, enum gateway_role role, struct gateway_request *r)
{
	const char *method = json_string_value(json_object_get(call, "method"));

	if (method == NULL) {
		return gateway_request_fail(r, 400, "a request must be an object with a string \"method\"");
	}
	r->answered |= json_object_get(call, "id") != NULL;
	const char *param;
	enum gateway_role needed = gateway_call_needs(method, json_object_get(call, "params"), &param);
	bool allowed = needed <= role;
	if (r->method[0] == '\0' || !allowed) {
		snprintf(r->method, sizeof(r->method), "%s", method);
		safe_text_line(r->method);
	}
	return allowed ? 200
		       : gateway_request_fail(r, 403, "the method %s%s%s needs the role %s, the user has the role %s",
					      r->method, param != NULL ? " with " : "", param != NULL ? param : "",
					      gateway_role_name(needed), gateway_role_name(role));
}

static unsigned gateway_request_batch(const json_t *batch, enum gateway_role role, struct gateway_request *r)
{
	unsigned status = 200;
	size_t n = json_array_size(batch);

	if (n == 0 || n > RPC_BATCH_MAX) {
		return gateway_request_fail(r, 400, "a batch of %zu requests: 1 to %d are allowed", n, RPC_BATCH_MAX);
	}
	for (size_t i = 0; i < n && status == 200; i++) {
		status = gateway_request_call(json_array_get(batch, i), role, r);
	}
	return status;
}

unsigned gateway_request_check(const char *body, size_t len, enum gateway_role role, struct gateway_request *r)
{
	json_error_t error;

	*r = (struct gateway_request){0};
	unsigned status = gateway_request_frame(body, len, r);
	if (status != 200) {
		return status;
	}
	json_t *tree = rpc_json_load(body + r->begin, r->end - r->begin, &error);
	if (tree == NULL) {
		bool memory = json_error_code(&error) == json_error_out_of_memory;
		safe_text_line(error.text);
		return gateway_request_fail(r, memory ? 500 : 400, "line %d, column %d: %s", error.line, error.column,
					    error.text);
	}
	status = json_is_array(tree) ? gateway_request_batch(tree, role, r) : gateway_request_call(tree, role, r);
	json_decref(tree);
	return status;
}
