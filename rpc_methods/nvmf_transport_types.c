/* SPDX-License-Identifier: BSD-3-Clause */
/* What the transports that are linked in tell about themselves, for tools that show any of them: varve-top has its
 * words for waits from here. */
#include "nvmf/transport_options.h"
#include "rpc_methods/nvmf.h"

static json_t *options_json(const char *trtype)
{
	const struct nvmf_transport_option *o;
	json_t *list = json_array();

	for (unsigned n = 0; (o = nvmf_transport_option(trtype, n)) != NULL; n++) {
		json_array_append_new(list, json_pack("{s:s,s:s}", "name", o->name, "help", o->help));
	}
	return list;
}

static json_t *state_json(unsigned n, const struct nvmf_transport_state *s)
{
	json_t *o = json_object();

	json_object_set_new(o, "number", json_integer(n));
	json_object_set_new(o, "name", rpc_string(s->name));
	json_object_set_new(o, "trace_name", rpc_string(s->trace_name));
	json_object_set_new(o, "class", rpc_string(nvmf_request_class_name(s->class)));
	json_object_set_new(o, "waits_for", rpc_string(s->waits_for));
	json_object_set_new(o, "remedy", rpc_string(s->remedy));
	return o;
}

static json_t *states_json(const char *trtype)
{
	json_t *list = json_array();

	for (unsigned n = 0; n < NVMF_TRANSPORT_STATES; n++) {
		const struct nvmf_transport_state *s = nvmf_transport_state(trtype, n);
		if (s != NULL) {
			json_array_append_new(list, state_json(n, s));
		}
	}
	return list;
}

static json_t *counters_json(const char *trtype)
{
	const struct nvmf_device_counter *c;
	json_t *list = json_array();

	for (unsigned n = 0; (c = nvmf_transport_counter(trtype, n)) != NULL; n++) {
		json_t *o = json_object();

		json_object_set_new(o, "name", rpc_string(c->name));
		json_object_set_new(o, "metric", rpc_string(c->metric));
		json_object_set_new(o, "waits_for", rpc_string(c->waits_for));
		json_array_append_new(list, o);
	}
	return list;
}

static void rpc_get_transport_types(struct rpc_request *req, void *params)
{
	json_t *list = json_array();
	const char *type;

	for (unsigned i = 0; (type = nvmf_transport_type(i)) != NULL; i++) {
		const char *group, *prefix;
		json_t *o = json_object();

		nvmf_transport_trace_names(type, &group, &prefix);
		json_object_set_new(o, "trtype", rpc_string(type));
		json_object_set_new(o, "trace_group", rpc_string(group));
		json_object_set_new(o, "trace_prefix", rpc_string(prefix));
		json_object_set_new(o, "options", options_json(type));
		json_object_set_new(o, "states", states_json(type));
		json_object_set_new(o, "counters", counters_json(type));
		json_array_append_new(list, o);
	}
	rpc_reply(req, list);
}
RPC_METHOD(
	"nvmf_get_transport_types", rpc_get_transport_types, struct rpc_no_params, NULL, RPC_STARTUP | RPC_RUNTIME,
	"List the transports that this program has: their options, the states of their requests with what each means, "
	"the counters of their devices",
	.result = "[{trtype: string, trace_group: string|null, trace_prefix: string|null, "
		  "options: [{name: string, help: string}], "
		  "states: [{number: int, name: string, trace_name: string, class: string, waits_for: string|null, "
		  "remedy: string|null}], "
		  "counters: [{name: string, metric: string|null, waits_for: string|null}]}]")
