/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods about methods, and the version. */
#include <stdio.h>
#include <string.h>

#include "rpc/allowed.h"
#include "rpc/dispatch.h"
#include "rpc/registry.h"

struct get_methods {
	bool current;
	bool include_aliases;
};

static const struct rpc_param get_methods_params[] = {
	RPC_PARAM(struct get_methods, current, RPC_BOOL, RPC_OPTIONAL, "only those that may be called now"),
	RPC_PARAM(struct get_methods, include_aliases, RPC_BOOL, RPC_OPTIONAL, "older names too"),
	RPC_PARAM_END,
};

static void rpc_get_methods(struct rpc_request *req, void *params)
{
	const struct get_methods *p = params;
	json_t *names = json_array();

	for (const struct rpc_method *m = NULL; (m = rpc_method_next(m)) != NULL;) {
		if (!rpc_method_allowed(m) || (p->current && (m->states & rpc_get_state()) == 0)) {
			continue;
		}
		json_array_append_new(names, json_string(m->name));
		if (p->include_aliases && m->alias != NULL) {
			json_array_append_new(names, json_string(m->alias));
		}
	}
	rpc_reply(req, names);
}
RPC_METHOD("rpc_get_methods", rpc_get_methods, struct get_methods, get_methods_params, RPC_STARTUP | RPC_RUNTIME,
	   "List the methods there are", .result = "[string]")

struct describe_methods {
	char *method;
};

static const struct rpc_param describe_methods_params[] = {
	RPC_PARAM(struct describe_methods, method, RPC_STRING, RPC_OPTIONAL, "only this one"),
	RPC_PARAM_END,
};

static void rpc_describe_methods(struct rpc_request *req, void *params)
{
	const struct describe_methods *p = params;
	json_t *list = json_array();

	if (p->method != NULL) {
		const struct rpc_method *m = rpc_method_find(p->method);
		if (m == NULL) {
			json_decref(list);
			rpc_error(req, RPC_ERROR_INVALID_PARAMS,
				  "parameter \"method\" is \"%s\": there is no such method; rpc_get_methods "
				  "lists "
				  "those there are",
				  p->method);
			return;
		}
		json_array_append_new(list, rpc_method_describe(m));
	}
	for (const struct rpc_method *m = NULL; p->method == NULL && (m = rpc_method_next(m)) != NULL;) {
		if (rpc_method_allowed(m)) {
			json_array_append_new(list, rpc_method_describe(m));
		}
	}
	rpc_reply(req, list);
}
RPC_METHOD(
	"rpc_describe_methods", rpc_describe_methods, struct describe_methods, describe_methods_params,
	RPC_STARTUP | RPC_RUNTIME, "Describe methods: parameters with types, allowed values and help",
	.result =
		"[{name: string, help: string, alias?: string, module?: string, states: [string], params: [{name: "
		"string, "
		"type: string, required: bool, help?: string, values?: [string], only?: any, unit?: string, min?: int, "
		"max?: int, fields?: [{name: string, ...}]}], result: string, ...}]")

struct listed_calls {
	json_t *list;
	size_t left; /* how many calls are still to be listed */
};

static void calls_add(void *arg, const struct rpc_call_info *info)
{
	struct listed_calls *calls = arg;

	if (calls->left == 0) {
		return;
	}
	calls->left--;
	json_t *o = json_object();
	json_object_set_new(o, "method", json_string(info->method));
	json_object_set_new(o, "client", json_integer(info->client));
	json_object_set_new(o, "age_us", rpc_uint(info->age_us));
	json_object_set_new(o, "timed_out", json_boolean(info->timed_out));
	if (info->waits_for != NULL) {
		json_object_set_new(o, "waits_for", rpc_string(info->waits_for));
	}
	json_array_append_new(calls->list, o);
}

static void rpc_get_calls(struct rpc_request *req, void *params)
{
	struct listed_calls calls = {json_array(), rpc_outstanding() - 1}; /* the last one is this call */

	rpc_for_each_call(calls_add, &calls);
	rpc_reply(req, calls.list);
}
RPC_METHOD("rpc_get_calls", rpc_get_calls, struct rpc_no_params, NULL, RPC_STARTUP | RPC_RUNTIME,
	   "List the calls that have not ended, with their age and, where known, what they wait for",
	   .result = "[{method: string, client: int, age_us: int, timed_out: bool, waits_for?: string, ...}]")

static void rpc_get_version(struct rpc_request *req, void *params)
{
	unsigned major = 0, minor = 0, patch = 0;

	sscanf(VARVE_VERSION, "%u.%u.%u", &major, &minor, &patch);
	rpc_reply(req, json_pack("{s:s, s:{s:i, s:i, s:i, s:s}}", "version", "varve v" VARVE_VERSION, "fields", "major",
				 major, "minor", minor, "patch", patch, "suffix", ""));
}
RPC_METHOD("spdk_get_version", rpc_get_version, struct rpc_no_params, NULL, RPC_STARTUP | RPC_RUNTIME,
	   "Tell the version of varve",
	   .result = "{version: string, fields: {major: int, minor: int, patch: int, suffix: string, ...}}")
