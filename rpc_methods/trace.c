/* SPDX-License-Identifier: BSD-3-Clause */
/* trace_*: the tracepoints that are enabled, the trace file, and lost events. */
#include <errno.h>

#include "rpc/rpc.h"
#include "trace/trace.h"

#define ALWAYS (RPC_STARTUP | RPC_RUNTIME)

static json_t *rpc_trace_hex_json(uint64_t value)
{
	return json_sprintf("0x%llx", (unsigned long long)value);
}

/* Answers with rc, the result of a function that changes masks. */
static void rpc_trace_reply_changed(struct rpc_request *req, int rc)
{
	if (rc == -ENODEV) {
		rpc_error(req, -ENODEV,
			  "tracing is off: the trace file could not be made at the start (see the log), or "
			  "--num-trace-entries is 0");
	} else {
		rpc_reply_true(req);
	}
}

/* Decodes the same text as the option -e, without help. False: the request has been answered with what is wrong. */
static bool rpc_trace_spec_decode(struct rpc_request *req, const char *spec, struct trace_masks *masks)
{
	char error[TRACE_ERROR_MAX];
	int rc = trace_spec_parse(spec, masks, error);

	if (rc == TRACE_SPEC_HELP) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "parameter \"name\" is \"%s\": trace_get_tpoint_group_mask lists what there is", spec);
	} else if (rc != 0) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "parameter \"name\" is \"%s\": %s", spec, error);
	}
	return rc == 0;
}

struct group_params {
	char *name;
};

static const struct rpc_param group_params[] = {
	RPC_PARAM(struct group_params, name, RPC_STRING, RPC_REQUIRED,
		  "a group, \"all\", or anything that -e takes: GROUP:NAME+NAME, GROUP:HEXMASK, lists with "
		  "commas"),
	RPC_PARAM_END,
};

static void rpc_trace_enable_tpoint_group(struct rpc_request *req, void *params)
{
	struct trace_masks masks;

	if (rpc_trace_spec_decode(req, ((struct group_params *)params)->name, &masks)) {
		rpc_trace_reply_changed(req, trace_set_masks(&masks));
	}
}
RPC_METHOD("trace_enable_tpoint_group", rpc_trace_enable_tpoint_group, struct group_params, group_params, ALWAYS,
	   "Start recording the tracepoints of a group", .result = "true")

static void rpc_trace_disable_tpoint_group(struct rpc_request *req, void *params)
{
	struct trace_masks masks;

	if (rpc_trace_spec_decode(req, ((struct group_params *)params)->name, &masks)) {
		rpc_trace_reply_changed(req, trace_clear_masks(&masks));
	}
}
RPC_METHOD("trace_disable_tpoint_group", rpc_trace_disable_tpoint_group, struct group_params, group_params, ALWAYS,
	   "Stop recording the tracepoints of a group", .result = "true")

struct mask_params {
	char *name;
	uint64_t tpoint_mask;
};

static const struct rpc_param mask_params[] = {
	RPC_PARAM(struct mask_params, name, RPC_STRING, RPC_REQUIRED, "a group of tracepoints"),
	RPC_PARAM(struct mask_params, tpoint_mask, RPC_UINT64, RPC_REQUIRED, "bit n is the group's tracepoint n"),
	RPC_PARAM_END,
};

/* The number of the group; -1: there is none, and the request has been answered with that error. */
static int rpc_trace_group_decode(struct rpc_request *req, const char *name)
{
	char names[TRACE_ERROR_MAX] = "";
	size_t used = 0;
	int group = trace_group_by_name(name);

	if (group >= 0) {
		return group;
	}
	for (unsigned g = 0; g < TRACE_NUM_GROUPS; g++) {
		if (trace_group_info(g) != NULL && used < sizeof(names)) {
			used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", used > 0 ? ", " : "",
						 trace_group_info(g)->name);
		}
	}
	rpc_error(req, RPC_ERROR_INVALID_PARAMS, "parameter \"name\" is \"%s\": the groups of tracepoints are %s", name,
		  names);
	return -1;
}

static void rpc_trace_set_tpoint_mask(struct rpc_request *req, void *params)
{
	const struct mask_params *p = params;
	int group = rpc_trace_group_decode(req, p->name);

	if (group >= 0) {
		rpc_trace_reply_changed(req, trace_set_tpoints((unsigned)group, p->tpoint_mask));
	}
}
RPC_METHOD("trace_set_tpoint_mask", rpc_trace_set_tpoint_mask, struct mask_params, mask_params, ALWAYS,
	   "Start recording the tracepoints of a group that a mask names, besides those that are on", .result = "true")

static void rpc_trace_clear_tpoint_mask(struct rpc_request *req, void *params)
{
	const struct mask_params *p = params;
	int group = rpc_trace_group_decode(req, p->name);

	if (group >= 0) {
		rpc_trace_reply_changed(req, trace_clear_tpoints((unsigned)group, p->tpoint_mask));
	}
}
RPC_METHOD("trace_clear_tpoint_mask", rpc_trace_clear_tpoint_mask, struct mask_params, mask_params, ALWAYS,
	   "Stop recording the tracepoints of a group that a mask names", .result = "true")

static json_t *rpc_trace_group_tpoints_json(unsigned group, uint64_t mask)
{
	json_t *list = json_array();

	for (unsigned n = 0; n < TRACE_TPOINTS_PER_GROUP; n++) {
		const struct trace_tpoint_info *t = trace_tpoint_info(group * TRACE_TPOINTS_PER_GROUP + n);
		if (t != NULL) {
			json_array_append_new(list, json_pack("{s:s, s:i, s:b}", "name", t->def.name, "tpoint_id",
							      (int)n, "enabled", (int)(mask >> n & 1)));
		}
	}
	return list;
}

static void rpc_trace_get_tpoint_group_mask(struct rpc_request *req, void *params)
{
	json_t *result = json_object();

	json_object_set_new(result, "tpoint_group_mask", rpc_trace_hex_json(trace_get_group_mask()));
	for (unsigned g = 0; g < TRACE_NUM_GROUPS; g++) {
		uint64_t mask = trace_get_tpoint_mask(g);
		if (trace_group_info(g) != NULL) {
			json_object_set_new(result, trace_group_info(g)->name,
					    json_pack("{s:b, s:o, s:o, s:o}", "enabled", mask != 0, "mask",
						      rpc_trace_hex_json(UINT64_C(1) << g), "tpoint_mask",
						      rpc_trace_hex_json(mask), "tpoints",
						      rpc_trace_group_tpoints_json(g, mask)));
		}
	}
	rpc_reply(req, result);
}
RPC_METHOD("trace_get_tpoint_group_mask", rpc_trace_get_tpoint_group_mask, struct rpc_no_params, NULL, ALWAYS,
	   "List all tracepoints, by group, and which are on",
	   .result = "{tpoint_group_mask: string, *: {enabled: bool, mask: string, tpoint_mask: string, "
		     "tpoints: [{name: string, tpoint_id: int, enabled: bool}]}}")

static void rpc_trace_get_info(struct rpc_request *req, void *params)
{
	json_t *result = json_object();

	json_object_set_new(result, "tpoint_shm_path", json_string(trace_is_on() ? trace_file_path() : ""));
	json_object_set_new(result, "tpoint_group_mask", rpc_trace_hex_json(trace_get_group_mask()));
	for (unsigned g = 0; g < TRACE_NUM_GROUPS; g++) {
		if (trace_group_info(g) != NULL) {
			json_object_set_new(result, trace_group_info(g)->name,
					    json_pack("{s:o, s:o}", "mask", rpc_trace_hex_json(UINT64_C(1) << g),
						      "tpoint_mask", rpc_trace_hex_json(trace_get_tpoint_mask(g))));
		}
	}
	rpc_reply(req, result);
}
RPC_METHOD("trace_get_info", rpc_trace_get_info, struct rpc_no_params, NULL, ALWAYS,
	   "Tell where the trace file is (\"\" if there is none), and which groups of tracepoints are on",
	   .result = "{tpoint_shm_path: string, tpoint_group_mask: string, *: {mask: string, tpoint_mask: "
		     "string}}")

static void rpc_trace_clear(struct rpc_request *req, void *params)
{
	rpc_trace_reply_changed(req, trace_clear());
}
RPC_METHOD("trace_clear", rpc_trace_clear, struct rpc_no_params, NULL, ALWAYS,
	   "Have readers ignore what was recorded before now", .result = "true")

static json_t *rpc_trace_slot_json(unsigned slot)
{
	struct trace_slot_stats s;

	if (!trace_get_slot_stats(slot, &s)) {
		return NULL;
	}
	return json_pack("{s:i, s:s, s:b, s:I, s:I, s:I, s:I}", "lcore", s.lcore, "thread", s.name, "attached",
			 s.attached, "num_entries", (json_int_t)s.num_entries, "recorded", (json_int_t)s.recorded,
			 "overwritten", (json_int_t)s.wrapped, "strings_truncated", (json_int_t)s.strings_truncated);
}

static void rpc_trace_get_stats(struct rpc_request *req, void *params)
{
	struct trace_file_loss loss;
	json_t *slots = json_array();

	for (unsigned i = 0; i < trace_num_slots(); i++) {
		json_t *slot = rpc_trace_slot_json(i);
		if (slot != NULL) {
			json_array_append_new(slots, slot);
		}
	}
	trace_get_loss(&loss);
	rpc_reply(req, json_pack("{s:o, s:I, s:I, s:I, s:I, s:I}", "slots", slots, "no_slot", (json_int_t)loss.no_slot,
				 "threads_refused", (json_int_t)loss.threads_refused, "owner_table_full",
				 (json_int_t)loss.owner_table_full, "mask_changes", (json_int_t)loss.mask_changes,
				 "off_count", (json_int_t)loss.off_count));
}
RPC_METHOD("trace_get_stats", rpc_trace_get_stats, struct rpc_no_params, NULL, ALWAYS,
	   "Tell per ring how many slots were recorded and overwritten, and what else was lost",
	   .result = "{slots: [{lcore: int, thread: string, attached: bool, num_entries: int, recorded: int, "
		     "overwritten: int, strings_truncated: int}], no_slot: int, threads_refused: int, "
		     "owner_table_full: int, mask_changes: int, off_count: int}")
