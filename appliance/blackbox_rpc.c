/* SPDX-License-Identifier: BSD-3-Clause */
/* trace_set_trigger and the other methods of the black box, and their part of the configuration. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "appliance/blackbox.h"
#include "nvmf/nvmf.h"
#include "rpc/rpc.h"

#define ALWAYS             (RPC_STARTUP | RPC_RUNTIME)
#define DEFAULT_HOLDOFF_US 60000000

static const struct rpc_enum types[] = {
	{"request_age", BLACKBOX_REQUEST_AGE},
	{"state_age", BLACKBOX_STATE_AGE},
	{"io_error", BLACKBOX_IO_ERROR},
	{"qpair_error", BLACKBOX_QPAIR_ERROR},
	{"keep_alive_loss", BLACKBOX_KEEP_ALIVE_LOSS},
	{"reactor_stall", BLACKBOX_REACTOR_STALL},
	{NULL, 0},
};

static const struct rpc_enum actions[] = {
	{"copy", BLACKBOX_COPY}, {"freeze", BLACKBOX_FREEZE}, {"notify", BLACKBOX_NOTIFY}, {NULL, 0}};

struct set_trigger {
	char *name, *state;
	int type, action;
	uint64_t limit_us, holdoff_us;
};

static const struct rpc_param set_trigger_params[] = {
	RPC_PARAM(struct set_trigger, name, RPC_STRING, RPC_REQUIRED, "of the trigger; one that exists is replaced"),
	RPC_PARAM(struct set_trigger, type, RPC_ENUM, RPC_REQUIRED, "what sets it off", .enums = types),
	RPC_PARAM(struct set_trigger, limit_us, RPC_UINT64, RPC_OPTIONAL,
		  "microseconds: how old a request may become (request_age), how long it may stay in a state "
		  "(state_age), how long a reactor may not poll (reactor_stall)"),
	RPC_PARAM(struct set_trigger, state, RPC_STRING, RPC_OPTIONAL,
		  "state_age: only this state, by its name in nvmf_get_inflight"),
	RPC_PARAM(struct set_trigger, action, RPC_ENUM, RPC_OPTIONAL,
		  "copy (default) keeps a copy of the trace in a file; freeze stops all recording first; "
		  "notify "
		  "writes no file",
		  .enums = actions),
	RPC_PARAM(struct set_trigger, holdoff_us, RPC_UINT64, RPC_OPTIONAL,
		  "microseconds that must pass before it fires again; default: a minute"),
	RPC_PARAM_END,
};

static void trigger_params_defaults(void *params)
{
	((struct set_trigger *)params)->holdoff_us = DEFAULT_HOLDOFF_US;
}

/* Copies a text into to. False: it is too long, and the request has been answered with that error. */
static bool trigger_take_text(struct rpc_request *req, const char *what, const char *text, char *to, size_t size)
{
	if (text != NULL && strlen(text) >= size) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "parameter \"%s\" is \"%.100s...\": at most %zu bytes are possible", what, text, size - 1);
		return false;
	}
	snprintf(to, size, "%s", text != NULL ? text : "");
	return true;
}

/* A trigger for a state that no request can have would never fire. False: there is no such state, and the request has
 * been answered with that error. */
static bool trigger_state_exists(struct rpc_request *req, const char *state)
{
	char all[1024] = "";
	const char *name;

	for (unsigned i = 0; state[0] != '\0' && (name = nvmf_request_state(i)) != NULL; i++) {
		if (strcmp(name, state) == 0) {
			return true;
		}
		size_t used = strlen(all);
		snprintf(all + used, sizeof(all) - used, "%s\"%s\"", used > 0 ? ", " : "", name);
	}
	if (state[0] != '\0') {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "parameter \"state\" is \"%s\": no request is ever in it; there are %s", state, all);
	}
	return state[0] == '\0';
}

static void rpc_trace_set_trigger(struct rpc_request *req, void *params)
{
	const struct set_trigger *p = params;
	char why[BLACKBOX_ERROR_MAX];
	struct blackbox_trigger_opts opts = {
		.type = (enum blackbox_type)p->type,
		.action = (enum blackbox_action)p->action,
		.limit_us = p->limit_us,
		.holdoff_us = p->holdoff_us,
	};

	if (!trigger_take_text(req, "name", p->name, opts.name, sizeof(opts.name)) ||
	    !trigger_take_text(req, "state", p->state, opts.state, sizeof(opts.state)) ||
	    !trigger_state_exists(req, opts.state)) {
		return;
	}
	int rc = blackbox_set(&opts, why);
	if (rc == -EINVAL) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "%s", why);
	} else if (rc != 0) {
		rpc_error(req, rc, "%s", why);
	} else {
		rpc_reply_true(req);
	}
}
RPC_METHOD("trace_set_trigger", rpc_trace_set_trigger, struct set_trigger, set_trigger_params, ALWAYS,
	   "Have the trace kept, in a file that names the culprit, when something goes wrong",
	   .defaults = trigger_params_defaults, .own = true, .result = "true")

struct remove_trigger {
	char *name;
};

static const struct rpc_param remove_trigger_params[] = {
	RPC_PARAM(struct remove_trigger, name, RPC_STRING, RPC_REQUIRED, "of the trigger"),
	RPC_PARAM_END,
};

static void rpc_trace_remove_trigger(struct rpc_request *req, void *params)
{
	const struct remove_trigger *p = params;

	if (blackbox_remove(p->name) != 0) {
		rpc_error(req, -ENOENT, "there is no trigger \"%s\"; trace_get_triggers lists all triggers", p->name);
	} else {
		rpc_reply_true(req);
	}
}
RPC_METHOD("trace_remove_trigger", rpc_trace_remove_trigger, struct remove_trigger, remove_trigger_params, ALWAYS,
	   "Remove a trigger; the files it has made stay", .result = "true")

/* ---- Where files go ---- */

struct set_blackbox {
	char *directory;
	uint32_t max_files;
	uint64_t max_bytes;
};

static const struct rpc_param set_blackbox_params[] = {
	RPC_PARAM(struct set_blackbox, directory, RPC_STRING, RPC_OPTIONAL,
		  "where triggers put their files; default: /var/tmp"),
	RPC_PARAM(struct set_blackbox, max_files, RPC_UINT32, RPC_OPTIONAL,
		  "how many there may be: the oldest is removed for a new one; default: 8", .min = 1, .max = 1000),
	RPC_PARAM(struct set_blackbox, max_bytes, RPC_UINT64, RPC_OPTIONAL,
		  "how many bytes they may have together; default: 256 MiB", .bytes = true),
	RPC_PARAM_END,
};

static void blackbox_params_defaults(void *params)
{
	struct set_blackbox *p = params;

	p->max_files = BLACKBOX_DEFAULT_MAX_FILES;
	p->max_bytes = BLACKBOX_DEFAULT_MAX_BYTES;
}

static void rpc_trace_set_blackbox(struct rpc_request *req, void *params)
{
	const struct set_blackbox *p = params;
	struct blackbox_opts opts = {.max_files = p->max_files, .max_bytes = p->max_bytes};
	char why[BLACKBOX_ERROR_MAX];

	if (!trigger_take_text(req, "directory", p->directory != NULL ? p->directory : BLACKBOX_DEFAULT_DIR, opts.dir,
			       sizeof(opts.dir))) {
		return;
	}
	if (blackbox_set_opts(&opts, why) != 0) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "%s", why);
	} else {
		rpc_reply_true(req);
	}
}
RPC_METHOD("trace_set_blackbox", rpc_trace_set_blackbox, struct set_blackbox, set_blackbox_params, ALWAYS,
	   "Choose where the files of triggers go, and how many there may be", .defaults = blackbox_params_defaults,
	   .own = true, .result = "true")

/* ---- Showing and saving ---- */

/* The parameters of trace_set_trigger that make this trigger. */
static json_t *trigger_params_json(const struct blackbox_trigger_opts *t)
{
	json_t *o = json_object();

	json_object_set_new(o, "name", rpc_string(t->name));
	json_object_set_new(o, "type", json_string(blackbox_type_name(t->type)));
	if (blackbox_type_has_limit(t->type)) {
		json_object_set_new(o, "limit_us", rpc_uint(t->limit_us));
	}
	if (t->state[0] != '\0') {
		json_object_set_new(o, "state", rpc_string(t->state));
	}
	json_object_set_new(o, "action", json_string(blackbox_action_name(t->action)));
	json_object_set_new(o, "holdoff_us", rpc_uint(t->holdoff_us));
	return o;
}

static json_t *trigger_time_json(uint64_t realtime_ns)
{
	time_t t = (time_t)(realtime_ns / 1000000000u);
	struct tm tm;
	char text[40];

	if (gmtime_r(&t, &tm) == NULL || strftime(text, sizeof(text), "%FT%T", &tm) == 0) {
		return json_null();
	}
	return rpc_string_format("%s.%06uZ", text, (unsigned)(realtime_ns % 1000000000u / 1000));
}

static json_t *trigger_json(const struct blackbox_trigger *t)
{
	json_t *o = trigger_params_json(&t->opts);

	json_object_set_new(o, "fired", rpc_uint(t->fired));
	json_object_set_new(o, "held_off", rpc_uint(t->held_off));
	if (t->fired != 0) {
		json_object_set_new(o, "last_time", trigger_time_json(t->last_realtime_ns));
		json_object_set_new(o, "last_cause", rpc_string(t->last_text));
		json_object_set_new(o, "last_file", t->last_file[0] != '\0' ? rpc_string(t->last_file) : json_null());
	}
	return o;
}

static json_t *blackbox_json(const struct blackbox_opts *b)
{
	json_t *o = json_object();

	json_object_set_new(o, "directory", rpc_string(b->dir));
	json_object_set_new(o, "max_files", json_integer(b->max_files));
	json_object_set_new(o, "max_bytes", rpc_uint(b->max_bytes));
	return o;
}

static void rpc_trace_get_triggers(struct rpc_request *req, void *params)
{
	json_t *o = blackbox_json(blackbox_get_opts()), *list = json_array();
	const struct blackbox_trigger *t;
	struct blackbox_stats s;

	blackbox_get_stats(&s);
	uint64_t ring_us = blackbox_ring_us();
	if (ring_us != UINT64_MAX) {
		json_object_set_new(o, "ring_us", rpc_uint(ring_us));
	}
	json_object_set_new(o, "copies", rpc_uint(s.copies));
	json_object_set_new(o, "copies_failed", rpc_uint(s.copies_failed));
	json_object_set_new(o, "copies_missed", rpc_uint(s.copies_missed));
	json_object_set_new(o, "copying", json_boolean(s.copying));
	json_object_set_new(o, "frozen", json_boolean(s.frozen));
	TAILQ_FOREACH (t, blackbox_triggers(), link) {
		json_array_append_new(list, trigger_json(t));
	}
	json_object_set_new(o, "triggers", list);
	rpc_reply(req, o);
}
RPC_METHOD("trace_get_triggers", rpc_trace_get_triggers, struct rpc_no_params, NULL, ALWAYS,
	   "List the triggers, how often each has fired, why it last did, and the file that it made",
	   .result = "{directory: string, max_files: int, max_bytes: int, copies: int, copies_failed: int, "
		     "copies_missed: int, copying: bool, frozen: bool, ring_us?: int, triggers: [{name: string, type: "
		     "string, limit_us?: int, state?: string, action: string, holdoff_us: int, fired: int, "
		     "held_off: int, last_time?: string|null, last_cause?: string, last_file?: string|null}]}")

static void blackbox_write_config(json_t *methods)
{
	const struct blackbox_opts *b = blackbox_get_opts();
	const struct blackbox_trigger *t;

	if (strcmp(b->dir, BLACKBOX_DEFAULT_DIR) != 0 || b->max_files != BLACKBOX_DEFAULT_MAX_FILES ||
	    b->max_bytes != BLACKBOX_DEFAULT_MAX_BYTES) {
		rpc_config_add(methods, "trace_set_blackbox", blackbox_json(b));
	}
	TAILQ_FOREACH (t, blackbox_triggers(), link) {
		rpc_config_add(methods, "trace_set_trigger", trigger_params_json(&t->opts));
	}
}

__attribute__((constructor)) static void blackbox_register_config(void)
{
	static struct rpc_config config = {.name = "trace", .write = blackbox_write_config};

	rpc_config_register(&config);
}
