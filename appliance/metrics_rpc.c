/* SPDX-License-Identifier: BSD-3-Clause */
/* metrics_start, metrics_stop and metrics_get_status, and their part of the configuration. */
#include <errno.h>

#include "appliance/metrics.h"
#include "rpc/rpc.h"
#include "util/log.h"

struct start_params {
	char *address;
	bool copies;
};

static const struct rpc_param start_params[] = {
	RPC_PARAM(struct start_params, address, RPC_STRING, RPC_REQUIRED,
		  "unix:PATH, 127.0.0.1:PORT or [::1]:PORT; port 0 takes any that is free"),
	RPC_PARAM(struct start_params, copies, RPC_BOOL, RPC_OPTIONAL,
		  "hand out the copies of the black box, which tell of hosts' commands; only with unix:PATH"),
	RPC_PARAM_END,
};

static void rpc_metrics_start(struct rpc_request *req, void *params)
{
	char error[METRICS_ERROR_MAX];
	const struct start_params *p = params;
	int rc = metrics_start(p->address, true, p->copies, error);
	struct metrics_status s;

	if (rc != 0) {
		log_error("no metrics: %s", error);
		rpc_error(req, rc == -EINVAL ? RPC_ERROR_INVALID_PARAMS : rc, "%s", error);
		return;
	}
	metrics_get_status(&s);
	rpc_reply(req, rpc_string(s.address));
}
RPC_METHOD("metrics_start", rpc_metrics_start, struct start_params, start_params, RPC_RUNTIME,
	   "Serve metrics in the Prometheus text format, and the console; answers with the address", .own = true,
	   .result = "string")

static void rpc_metrics_stop(struct rpc_request *req, void *params)
{
	if (metrics_stop() != 0) {
		rpc_error(req, -ENOENT, "metrics are not served");
	} else {
		rpc_reply_true(req);
	}
}
RPC_METHOD("metrics_stop", rpc_metrics_stop, struct rpc_no_params, NULL, RPC_RUNTIME, "Serve no metrics any more",
	   .result = "true")

static void rpc_metrics_get_status(struct rpc_request *req, void *params)
{
	struct metrics_status s;
	json_t *o = json_object();

	metrics_get_status(&s);
	json_object_set_new(o, "address", rpc_string(s.address));
	json_object_set_new(o, "copies", json_boolean(s.copies));
	json_object_set_new(o, "connections", json_integer(s.connections));
	json_object_set_new(o, "requests", rpc_uint(s.requests));
	json_object_set_new(o, "scrapes", rpc_uint(s.scrapes));
	json_object_set_new(o, "refused", rpc_uint(s.refused));
	json_object_set_new(o, "dropped", rpc_uint(s.dropped));
	json_object_set_new(o, "copies_paused", rpc_uint(s.copies_paused));
	rpc_reply(req, o);
}
RPC_METHOD("metrics_get_status", rpc_metrics_get_status, struct rpc_no_params, NULL, RPC_RUNTIME,
	   "Tell where metrics are served (null: nowhere), and how often they were asked for",
	   .result = "{address: string|null, copies: bool, connections: int, requests: int, scrapes: int, "
		     "refused: int, dropped: int, copies_paused: int, ...}")

static void metrics_write_config(json_t *methods)
{
	struct metrics_status s;

	metrics_get_status(&s);
	if (s.saved) {
		json_t *params = json_object();
		json_object_set_new(params, "address", rpc_string(s.saved_address));
		if (s.copies) {
			json_object_set_new(params, "copies", json_true());
		}
		rpc_config_add(methods, "metrics_start", params);
	}
}

__attribute__((constructor)) static void metrics_register_config(void)
{
	static struct rpc_config config = {.name = "metrics", .write = metrics_write_config};

	rpc_config_register(&config);
}
