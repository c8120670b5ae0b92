/* SPDX-License-Identifier: BSD-3-Clause */
/* notify_*: events, for clients that poll for them. */
#include "rpc/notify.h"

struct get_types {
	bool all;
};

static const struct rpc_param get_types_params[] = {
	RPC_PARAM(struct get_types, all, RPC_BOOL, RPC_OPTIONAL,
		  "also those that SPDK's targets do not have (default false)"),
	RPC_PARAM_END,
};

static void rpc_notify_get_types(struct rpc_request *req, void *params)
{
	const struct get_types *p = params;
	json_t *list = json_array();
	const char *type;

	for (unsigned i = 0; (type = notify_type(p->all ? NOTIFY_ALL : NOTIFY_COMMON, i)) != NULL; i++) {
		json_array_append_new(list, json_string(type));
	}
	rpc_reply(req, list);
}
RPC_METHOD("notify_get_types", rpc_notify_get_types, struct get_types, get_types_params, RPC_STARTUP | RPC_RUNTIME,
	   "List the types of notifications", .result = "[string]")

struct get_notifications {
	uint64_t id;
	uint64_t max;
	bool all;
};

static const struct rpc_param get_notifications_params[] = {
	RPC_PARAM(struct get_notifications, id, RPC_UINT64, RPC_OPTIONAL, "the first one wanted (default 0)"),
	RPC_PARAM(struct get_notifications, max, RPC_UINT64, RPC_OPTIONAL, "how many at most (default: all)"),
	RPC_PARAM(struct get_notifications, all, RPC_BOOL, RPC_OPTIONAL,
		  "also those of types that SPDK's targets do not have, with ids of their own (default false)"),
	RPC_PARAM_END,
};

static void notifications_defaults(void *params)
{
	((struct get_notifications *)params)->max = UINT64_MAX;
}

static void rpc_notify_get_notifications(struct rpc_request *req, void *params)
{
	const struct get_notifications *p = params;
	const struct notify_event *e;
	json_t *list = json_array();
	enum notify_view view = p->all ? NOTIFY_ALL : NOTIFY_COMMON;
	uint64_t id = p->id > notify_first(view) ? p->id : notify_first(view);

	for (uint64_t n = 0; n < p->max && (e = notify_get(view, id)) != NULL; n++, id++) {
		json_t *o = json_object();
		json_object_set_new(o, "type", json_string(e->type));
		json_object_set_new(o, "ctx", rpc_string(e->context));
		json_object_set_new(o, "id", rpc_uint(id));
		json_object_set_new(o, "time_us", rpc_uint(e->time_us));
		if (e->reason[0] != '\0') {
			json_object_set_new(o, "reason", rpc_string(e->reason));
		}
		json_array_append_new(list, o);
	}
	rpc_reply(req, list);
}
RPC_METHOD("notify_get_notifications", rpc_notify_get_notifications, struct get_notifications, get_notifications_params,
	   RPC_STARTUP | RPC_RUNTIME, "List notifications from an id on, oldest first",
	   .defaults = notifications_defaults,
	   .result = "[{type: string, ctx: string, id: int, time_us: int, reason?: string}]")
