/* SPDX-License-Identifier: BSD-3-Clause */
/* framework_get_subsystems and framework_get_config, which save_config is made of; framework_get_state_machines. */
#include <errno.h>
#include <stdlib.h>

#include "rpc/registry.h"
#include "util/state_machine.h"

static void rpc_framework_get_subsystems(struct rpc_request *req, void *params)
{
	size_t n;
	const struct rpc_config **configs = rpc_config_in_order(&n);
	json_t *list = json_array();

	if (configs == NULL) { /* an empty list would mean that there is nothing to save */
		json_decref(list);
		rpc_error(req, -ENOMEM, "no memory for the list");
		return;
	}
	for (size_t i = 0; i < n; i++) {
		json_t *depends = json_array();
		if (configs[i]->after != NULL) {
			json_array_append_new(depends, json_string(configs[i]->after));
		}
		json_t *o = json_object();
		json_object_set_new(o, "subsystem", json_string(configs[i]->name));
		json_object_set_new(o, "depends_on", depends);
		json_array_append_new(list, o);
	}
	free(configs);
	rpc_reply(req, list);
}
RPC_METHOD("framework_get_subsystems", rpc_framework_get_subsystems, struct rpc_no_params, NULL, RPC_RUNTIME,
	   "List the subsystems that have a configuration, in the order of loading",
	   .result = "[{subsystem: string, depends_on: [string]}]")

struct get_config {
	char *name;
	bool with_batches, whole;
};

static const struct rpc_param get_config_params[] = {
	RPC_PARAM(struct get_config, name, RPC_STRING, RPC_REQUIRED, "a subsystem of framework_get_subsystems"),
	RPC_PARAM(struct get_config, with_batches, RPC_BOOL, RPC_OPTIONAL,
		  "the caller understands arrays of methods that may run at once (there are none)"),
	RPC_PARAM(struct get_config, whole, RPC_BOOL, RPC_OPTIONAL,
		  "also ANA states that only varve has, and parameters that only varve has and that have their usual "
		  "value; SPDK's targets refuse what has them (default false)",
		  .own = true),
	RPC_PARAM_END,
};

static void rpc_framework_get_config(struct rpc_request *req, void *params)
{
	const struct get_config *p = params;
	const struct rpc_config *c = rpc_config_find(p->name);

	if (c == NULL) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "parameter \"name\" is \"%s\": there is no such subsystem; "
			  "framework_get_subsystems lists those "
			  "there are",
			  p->name);
		return;
	}
	json_t *methods = json_array();
	rpc_config_write(c, p->whole, methods);
	rpc_reply(req, methods);
}
RPC_METHOD("framework_get_config", rpc_framework_get_config, struct get_config, get_config_params, RPC_RUNTIME,
	   "List the method calls that rebuild a subsystem's configuration",
	   .result = "[{method: string, params?: {*: any}}]")

static void rpc_framework_get_state_machines(struct rpc_request *req, void *params)
{
	json_t *list = json_array();

	for (const struct state_machine *m = state_machine_next(NULL); m != NULL; m = state_machine_next(m)) {
		json_t *states = json_array();
		for (unsigned i = 0; i < m->n_states; i++) {
			json_array_append_new(states, json_string(m->state_name(i)));
		}
		json_t *o = json_object();
		json_object_set_new(o, "name", json_string(m->name));
		json_object_set_new(o, "states", states);
		json_object_set_new(o, "violations", rpc_uint(state_machine_violations(m)));
		json_array_append_new(list, o);
	}
	rpc_reply(req, list);
}
RPC_METHOD(
	"framework_get_state_machines", rpc_framework_get_state_machines, struct rpc_no_params, NULL,
	RPC_STARTUP | RPC_RUNTIME,
	"List the state machines whose transitions are checked, with the number of transitions that must not be; each "
	"of those is a fault in varve, and in the log",
	.result = "[{name: string, states: [string], violations: int}]")
