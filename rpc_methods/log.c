/* SPDX-License-Identifier: BSD-3-Clause */
/* log_*: the levels that are printed and that go to syslog, and the flags of components. */
#include "rpc/rpc.h"
#include "util/log.h"
#include "util/log_flags.h"

#define ALWAYS (RPC_STARTUP | RPC_RUNTIME)

static const struct rpc_enum levels[] = {
	{"DISABLED", LOG_LEVEL_DISABLED},
	{"ERROR", LOG_LEVEL_ERROR},
	{"WARNING", LOG_LEVEL_WARNING},
	{"NOTICE", LOG_LEVEL_NOTICE},
	{"INFO", LOG_LEVEL_INFO},
	{"DEBUG", LOG_LEVEL_DEBUG},
	{NULL, 0},
};

struct level_params {
	int level;
};

static const struct rpc_param level_params[] = {
	RPC_PARAM(struct level_params, level, RPC_ENUM, RPC_REQUIRED, "the least severe level to let through",
		  .enums = levels),
	RPC_PARAM_END,
};

static void rpc_log_set_print_level(struct rpc_request *req, void *params)
{
	log_set_print_level((enum log_level)((struct level_params *)params)->level);
	rpc_reply_true(req);
}
RPC_METHOD("log_set_print_level", rpc_log_set_print_level, struct level_params, level_params, ALWAYS,
	   "Choose what is printed to stderr", .result = "true")

static void rpc_log_get_print_level(struct rpc_request *req, void *params)
{
	rpc_reply(req, json_string(log_level_name(log_get_print_level())));
}
RPC_METHOD("log_get_print_level", rpc_log_get_print_level, struct rpc_no_params, NULL, ALWAYS,
	   "Tell what is printed to stderr", .result = "string")

static void rpc_log_set_level(struct rpc_request *req, void *params)
{
	log_set_level((enum log_level)((struct level_params *)params)->level);
	rpc_reply_true(req);
}
RPC_METHOD("log_set_level", rpc_log_set_level, struct level_params, level_params, ALWAYS, "Choose what goes to syslog",
	   .result = "true")

static void rpc_log_get_level(struct rpc_request *req, void *params)
{
	rpc_reply(req, json_string(log_level_name(log_get_level())));
}
RPC_METHOD("log_get_level", rpc_log_get_level, struct rpc_no_params, NULL, ALWAYS, "Tell what goes to syslog",
	   .result = "string")

struct flag_params {
	char *flag;
};

static const struct rpc_param flag_params[] = {
	RPC_PARAM(struct flag_params, flag, RPC_STRING, RPC_REQUIRED, "a flag of log_get_flags, or \"all\""),
	RPC_PARAM_END,
};

static void rpc_log_flag_switch(struct rpc_request *req, const char *flag, bool on)
{
	if (log_set_flag(flag, on) != 0) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "parameter \"flag\" is \"%s\": there is no such flag; log_get_flags lists those "
			  "there are",
			  flag);
		return;
	}
	log_other_flag_explain(flag);
	if (on && log_get_print_level() < LOG_LEVEL_INFO && log_get_level() < LOG_LEVEL_INFO) {
		log_notice("flag %s is on, but its lines are printed only after log_set_print_level level=DEBUG (it is "
			   "%s)",
			   flag, log_level_name(log_get_print_level()));
	}
	rpc_reply_true(req);
}

static void rpc_log_set_flag(struct rpc_request *req, void *params)
{
	rpc_log_flag_switch(req, ((struct flag_params *)params)->flag, true);
}
RPC_METHOD("log_set_flag", rpc_log_set_flag, struct flag_params, flag_params, ALWAYS,
	   "Let a component's INFO and DEBUG lines through, as far as the levels do (a flag of SPDK's that varve has "
	   "not is taken, and the log says what it means)",
	   .result = "true")

static void rpc_log_clear_flag(struct rpc_request *req, void *params)
{
	rpc_log_flag_switch(req, ((struct flag_params *)params)->flag, false);
}
RPC_METHOD("log_clear_flag", rpc_log_clear_flag, struct flag_params, flag_params, ALWAYS,
	   "Suppress a component's INFO and DEBUG lines", .result = "true")

static void rpc_log_get_flags(struct rpc_request *req, void *params)
{
	json_t *flags = json_object();

	for (const struct log_flag *f = log_first_flag(); f != NULL; f = SLIST_NEXT(f, link)) {
		json_object_set_new(flags, f->name, json_boolean(f->enabled));
	}
	for (const struct log_other_flag *f = NULL; (f = log_other_flag_next(f)) != NULL;) {
		json_object_set_new(flags, f->name, json_boolean(f->enabled));
	}
	rpc_reply(req, flags);
}
RPC_METHOD("log_get_flags", rpc_log_get_flags, struct rpc_no_params, NULL, ALWAYS,
	   "List the flags, with those of SPDK's components, and whether they are on", .result = "{*: bool}")

struct timestamps_params {
	bool enabled;
};

static const struct rpc_param timestamps_params[] = {
	RPC_PARAM(struct timestamps_params, enabled, RPC_BOOL, RPC_REQUIRED, "whether lines begin with the time"),
	RPC_PARAM_END,
};

static void rpc_log_enable_timestamps(struct rpc_request *req, void *params)
{
	log_enable_timestamps(((struct timestamps_params *)params)->enabled);
	rpc_reply_true(req);
}
RPC_METHOD("log_enable_timestamps", rpc_log_enable_timestamps, struct timestamps_params, timestamps_params, ALWAYS,
	   "Print the time in front of each log line, or not", .result = "true")
