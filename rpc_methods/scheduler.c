/* SPDX-License-Identifier: BSD-3-Clause */
/* framework_set_scheduler, scheduler_set_options and what belongs to them: on which reactors threads run. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "env_dpdk/env.h"
#include "rpc/rpc.h"
#include "thread/governor.h"
#include "thread/scheduler.h"
#include "thread/thread.h"
#include "util/log.h"

#define ALWAYS (RPC_STARTUP | RPC_RUNTIME)

static const char *const scheduler_names[] = {[SCHEDULER_STATIC] = "static", [SCHEDULER_DYNAMIC] = "dynamic"};

struct set_scheduler {
	char *name, *mappings;
	uint64_t period;
	uint8_t load_limit, core_limit, core_busy;
};

#define SCHEDULER_LIMIT(field_, help_)                                                                                 \
	RPC_PARAM(struct set_scheduler, field_, RPC_UINT8, RPC_OPTIONAL, help_, .min = 0, .max = 100)
static const struct rpc_param set_scheduler_params[] = {
	RPC_PARAM(struct set_scheduler, name, RPC_STRING, RPC_REQUIRED,
		  "static: threads stay where they are; dynamic: they move to where there is room"),
	RPC_PARAM(struct set_scheduler, period, RPC_UINT64, RPC_OPTIONAL,
		  "of dynamic: microseconds between its decisions, from 1000; 0 or not given: as it is (at first "
		  "1000000)"),
	SCHEDULER_LIMIT(load_limit,
			"of dynamic: a thread that needs less percent of a core is light, and light threads "
			"gather on one core (not given: as it is, at first 20)"),
	SCHEDULER_LIMIT(core_limit,
			"of dynamic: percent up to which that core is filled, and down to which a busy core "
			"gives threads away (not given: as it is, at first 80)"),
	SCHEDULER_LIMIT(core_busy,
			"of dynamic: a core with more percent of load is busy (not given: as it is, at first 95)"),
	RPC_PARAM(struct set_scheduler, mappings, RPC_STRING, RPC_OPTIONAL,
		  "no effect, and a line in the log: thread_set_cpumask places a thread"),
	RPC_PARAM_END};

/* What is not given stays as it is. */
static void set_scheduler_defaults(void *params)
{
	struct set_scheduler *p = params;
	struct scheduler_opts o;

	scheduler_get_opts(&o);
	p->period = 0;
	p->load_limit = o.limits.load_limit;
	p->core_limit = o.limits.core_limit;
	p->core_busy = o.limits.core_busy;
}

static int scheduler_find(const char *name)
{
	for (int i = 0; i < (int)(sizeof(scheduler_names) / sizeof(scheduler_names[0])); i++) {
		if (strcmp(name, scheduler_names[i]) == 0) {
			return i;
		}
	}
	return -ENOENT;
}

static void rpc_framework_set_scheduler(struct rpc_request *req, void *params)
{
	const struct set_scheduler *p = params;
	struct scheduler_opts o;
	int kind = scheduler_find(p->name);

	if (kind < 0) {
		rpc_error(req, -EINVAL,
			  "parameter \"name\" is \"%.64s\": there is no such scheduler; allowed are static and dynamic",
			  p->name);
		return;
	}
	if (p->period != 0 && (p->period < SCHEDULER_PERIOD_MIN_US || p->period > SCHEDULER_PERIOD_MAX_US)) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "parameter \"period\" is %" PRIu64 ": allowed are 0 and %" PRIu64 " to %" PRIu64
			  " microseconds",
			  p->period, SCHEDULER_PERIOD_MIN_US, SCHEDULER_PERIOD_MAX_US);
		return;
	}
	scheduler_get_opts(&o);
	o.kind = (enum scheduler_kind)kind;
	o.period_us = p->period != 0 ? p->period : o.period_us;
	o.limits = (struct balance_limits){p->load_limit, p->core_limit, p->core_busy};
	int rc = scheduler_set_opts(&o);
	if (rc != 0) {
		rpc_error(req, rc, "the scheduler cannot be set: %s", strerror(-rc));
		return;
	}
	if (p->mappings != NULL) {
		log_warning("framework_set_scheduler: parameter \"mappings\" has no effect; thread_set_cpumask places "
			    "a thread");
	}
	rpc_reply_true(req);
}
RPC_METHOD("framework_set_scheduler", rpc_framework_set_scheduler, struct set_scheduler, set_scheduler_params, ALWAYS,
	   "Choose whether threads are moved between reactors, within their masks, by what they have to do",
	   .result = "true", .defaults = set_scheduler_defaults)

struct scheduler_options {
	uint32_t scheduling_core;
	char *isolated_core_mask;
};

static const struct rpc_param scheduler_options_params[] = {
	RPC_PARAM(struct scheduler_options, scheduling_core, RPC_UINT32, RPC_OPTIONAL,
		  "where the dynamic scheduler gathers threads with little load (not given: as it is, at first the "
		  "first core)"),
	RPC_PARAM(struct scheduler_options, isolated_core_mask, RPC_STRING, RPC_OPTIONAL,
		  "cores to which it moves no thread and from which it moves none, as 0x3, [0,2-3] or 0-1; 0: none "
		  "(not given: as "
		  "it is, at first none)"),
	RPC_PARAM_END};

static void scheduler_options_defaults(void *params)
{
	struct scheduler_opts o;

	scheduler_get_opts(&o);
	((struct scheduler_options *)params)->scheduling_core = o.gather_lcore;
}

static void scheduler_reactor_cores(cpu_set_t *cores)
{
	unsigned lcore;

	CPU_ZERO(cores);
	ENV_FOREACH_LCORE (lcore) {
		CPU_SET(lcore, cores);
	}
}

/* Whether all cores of mask have reactors; otherwise the call has its error. */
static bool scheduler_isolated_are_valid(struct rpc_request *req, const char *text, const cpu_set_t *mask)
{
	char available[ENV_CORES_MAX];
	cpu_set_t reactors, both;

	scheduler_reactor_cores(&reactors);
	CPU_AND(&both, mask, &reactors);
	if (CPU_EQUAL(&both, mask)) {
		return true;
	}
	env_cores_format(&reactors, available);
	rpc_error(req, RPC_ERROR_INVALID_PARAMS,
		  "parameter \"isolated_core_mask\" is \"%.128s\": the reactors are on %s", text, available);
	return false;
}

static bool scheduler_core_is_valid(struct rpc_request *req, uint32_t core, const cpu_set_t *isolated)
{
	char available[ENV_CORES_MAX];
	cpu_set_t reactors;

	scheduler_reactor_cores(&reactors);
	if (core < CPU_SETSIZE && CPU_ISSET(core, &reactors) && !CPU_ISSET(core, isolated)) {
		return true;
	}
	env_cores_format(&reactors, available);
	rpc_error(req, RPC_ERROR_INVALID_PARAMS,
		  "parameter \"scheduling_core\" is %" PRIu32
		  ": allowed is a core with a reactor (%s) that is not isolated",
		  core, available);
	return false;
}

/* A mask of no core, which env_cores_parse() refuses. */
static bool is_empty_mask(const char *text)
{
	text += strncmp(text, "0x", 2) == 0 ? 2 : 0;
	return text[0] != '\0' && strspn(text, "0") == strlen(text);
}

static void rpc_scheduler_set_options(struct rpc_request *req, void *params)
{
	const struct scheduler_options *p = params;
	char why[ENV_ERROR_MAX];
	struct scheduler_opts o;

	scheduler_get_opts(&o);
	if (p->isolated_core_mask != NULL) {
		CPU_ZERO(&o.isolated);
		if (!is_empty_mask(p->isolated_core_mask) &&
		    env_cores_parse(p->isolated_core_mask, &o.isolated, why) != 0) {
			rpc_error(req, RPC_ERROR_INVALID_PARAMS, "parameter \"isolated_core_mask\": %s", why);
			return;
		}
		if (!scheduler_isolated_are_valid(req, p->isolated_core_mask, &o.isolated)) {
			return;
		}
	}
	o.gather_lcore = p->scheduling_core;
	if (!scheduler_core_is_valid(req, p->scheduling_core, &o.isolated)) {
		return;
	}
	int rc = scheduler_set_opts(&o);
	if (rc != 0) {
		rpc_error(req, rc, "the options cannot be set: %s", strerror(-rc));
		return;
	}
	rpc_reply_true(req);
}
RPC_METHOD("scheduler_set_options", rpc_scheduler_set_options, struct scheduler_options, scheduler_options_params,
	   RPC_STARTUP, "Choose the cores of the dynamic scheduler", .result = "true",
	   .defaults = scheduler_options_defaults)

static void scheduler_add_limits(json_t *o, const struct balance_limits *limits)
{
	json_object_set_new(o, "load_limit", json_integer(limits->load_limit));
	json_object_set_new(o, "core_limit", json_integer(limits->core_limit));
	json_object_set_new(o, "core_busy", json_integer(limits->core_busy));
}

static json_t *scheduler_isolated_json(const struct scheduler_opts *o)
{
	char mask[ENV_CORES_MAX];

	env_cores_format_mask(&o->isolated, mask);
	return json_string(mask);
}

/* Called by a stock spdk_top again and again. */
static void rpc_framework_get_scheduler(struct rpc_request *req, void *params)
{
	struct scheduler_opts opts;
	json_t *o = json_object();

	scheduler_get_opts(&opts);
	json_object_set_new(o, "scheduler_name", json_string(scheduler_names[opts.kind]));
	if (governor_is_used()) {
		json_object_set_new(o, "governor_name", json_string(GOVERNOR_NAME));
	}
	json_object_set_new(o, "scheduler_period", rpc_uint(opts.kind == SCHEDULER_DYNAMIC ? opts.period_us : 0));
	json_object_set_new(o, "isolated_core_mask", scheduler_isolated_json(&opts));
	json_object_set_new(o, "scheduling_core", json_integer(opts.gather_lcore));
	if (opts.kind == SCHEDULER_DYNAMIC) {
		scheduler_add_limits(o, &opts.limits);
	}
	rpc_reply(req, o);
}
RPC_METHOD(
	"framework_get_scheduler", rpc_framework_get_scheduler, struct rpc_no_params, NULL, ALWAYS,
	"Say how threads are placed on reactors, and of the dynamic scheduler its period (in microseconds) and limits",
	.result = "{scheduler_name: string, governor_name?: string, scheduler_period: int, isolated_core_mask: string, "
		  "scheduling_core: int, "
		  "load_limit?: int, core_limit?: int, core_busy?: int}")

static json_t *governor_cores_json(void)
{
	json_t *list = json_array();
	unsigned lcore;

	ENV_FOREACH_LCORE (lcore) {
		json_t *core = json_object();
		json_object_set_new(core, "lcore_id", json_integer(lcore));
		json_object_set_new(core, "current_frequency", json_integer(governor_khz(lcore)));
		json_array_append_new(list, core);
	}
	return list;
}

static void rpc_framework_get_governor(struct rpc_request *req, void *params)
{
	json_t *o = json_object(), *specific = json_object();

	if (governor_is_used()) {
		json_object_set_new(o, "governor_name", json_string(GOVERNOR_NAME));
		json_object_set_new(specific, "env", json_string(governor_driver()));
		json_object_set(o, "module_specific", specific);
		json_object_set_new(o, "cores", governor_cores_json());
	}
	json_decref(specific);
	rpc_reply(req, o);
}
RPC_METHOD("framework_get_governor", rpc_framework_get_governor, struct rpc_no_params, NULL, ALWAYS,
	   "Say what governs the frequency of CPUs while the dynamic scheduler is in use, and their present "
	   "frequencies (in "
	   "kHz); an empty object if the kernel does",
	   .result = "{governor_name?: string, module_specific?: {env: string}, cores?: [{lcore_id: int, "
		     "current_frequency: int}]}")

struct monitor_switches {
	bool enabled;
};

static const struct rpc_param monitor_switches_params[] = {
	RPC_PARAM(struct monitor_switches, enabled, RPC_BOOL, RPC_OPTIONAL,
		  "whether to log them (not given: as it is, at first false)"),
	RPC_PARAM_END};

static void monitor_switches_defaults(void *params)
{
	((struct monitor_switches *)params)->enabled = thread_monitors_switches();
}

static void rpc_framework_monitor_context_switch(struct rpc_request *req, void *params)
{
	json_t *o = json_object();

	thread_monitor_switches(((struct monitor_switches *)params)->enabled);
	json_object_set_new(o, "enabled", json_boolean(thread_monitors_switches()));
	rpc_reply(req, o);
}
RPC_METHOD("framework_monitor_context_switch", rpc_framework_monitor_context_switch, struct monitor_switches,
	   monitor_switches_params, ALWAYS,
	   "Log once a second how often the kernel has taken each reactor off its CPU, or say whether that is done",
	   .result = "{enabled: bool}", .defaults = monitor_switches_defaults)

/* --- Saved configuration --- */

static bool scheduler_cores_are_default(const struct scheduler_opts *o)
{
	return o->gather_lcore == env_lcore_next(ENV_LCORE_NONE) && CPU_COUNT(&o->isolated) == 0;
}

/* Also while the static scheduler is in use: the dynamic one goes by them again. */
static bool scheduler_limits_are_default(const struct scheduler_opts *o)
{
	static const struct balance_limits limits = SCHEDULER_LIMITS_DEFAULT;

	return o->period_us == SCHEDULER_PERIOD_DEFAULT_US && o->limits.load_limit == limits.load_limit &&
	       o->limits.core_limit == limits.core_limit && o->limits.core_busy == limits.core_busy;
}

static void scheduler_write_config(json_t *methods)
{
	struct scheduler_opts opts;
	json_t *params = json_object();

	scheduler_get_opts(&opts);
	if (!scheduler_cores_are_default(&opts)) {
		json_t *cores = json_object();
		json_object_set_new(cores, "scheduling_core", json_integer(opts.gather_lcore));
		json_object_set_new(cores, "isolated_core_mask", scheduler_isolated_json(&opts));
		rpc_config_add(methods, "scheduler_set_options", cores);
	}
	json_object_set_new(params, "name", json_string(scheduler_names[opts.kind]));
	if (opts.kind == SCHEDULER_DYNAMIC || !scheduler_limits_are_default(&opts)) {
		json_object_set_new(params, "period", rpc_uint(opts.period_us));
		scheduler_add_limits(params, &opts.limits);
	}
	rpc_config_add(methods, "framework_set_scheduler", params);
}

static struct rpc_config scheduler_config = {.name = "scheduler", .write = scheduler_write_config};
__attribute__((constructor)) static void scheduler_config_register(void)
{
	rpc_config_register(&scheduler_config);
}
