/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods about the state of the daemon. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "appliance/app.h"
#include "appliance/core_locks.h"
#include "appliance/hand_over_config.h"
#include "rpc/rpc.h"
#include "util/build_id.h"

/* By name, or by number as kill(1) takes it. */
static const struct rpc_enum kill_signals[] = {
	/* clang-format off */
	{"SIGINT", SIGINT}, {"SIGTERM", SIGTERM}, {"SIGQUIT", SIGQUIT}, {"SIGHUP", SIGHUP}, {"SIGKILL", SIGKILL}, {"SIGUSR1", SIGUSR1},
	{"2", SIGINT},      {"15", SIGTERM},      {"3", SIGQUIT},       {"1", SIGHUP},      {"9", SIGKILL},       {"10", SIGUSR1},
	/* clang-format on */
	{NULL, 0},
};
_Static_assert(SIGINT == 2 && SIGTERM == 15 && SIGQUIT == 3 && SIGHUP == 1 && SIGKILL == 9 && SIGUSR1 == 10,
	       "numbers of signals");

struct kill_params {
	int sig_name;
};

static const struct rpc_param kill_params[] = {
	RPC_PARAM(struct kill_params, sig_name, RPC_ENUM, RPC_REQUIRED, "the signal", .enums = kill_signals),
	RPC_PARAM_END,
};

static void rpc_kill_instance(struct rpc_request *req, void *params)
{
	int number = ((struct kill_params *)params)->sig_name;

	/* Answers first: some signals end the process before it could answer. */
	rpc_reply_true(req);
	kill(getpid(), number);
}
RPC_METHOD("spdk_kill_instance", rpc_kill_instance, struct kill_params, kill_params, RPC_STARTUP | RPC_RUNTIME,
	   "Send the daemon a signal: INT, TERM, HUP stop it, USR1 logs its state, QUIT dumps core", .result = "true")

static void rpc_appliance_get_state(struct rpc_request *req, void *params)
{
	const struct appliance_options *options = app_options();
	json_t *o = json_object();

	json_object_set_new(o, "state", json_string(appliance_state_name(app_state())));
	json_object_set_new(o, "age_us", rpc_uint(app_state_age_us()));
	json_object_set_new(o, "pid", json_integer(getpid()));
	json_object_set_new(o, "not_taken_back", rpc_uint(hand_over_config_not_taken_back()));
	json_object_set_new(o, "version", json_string(VARVE_VERSION));
	json_object_set_new(o, "build_id", json_string(build_id()));
	json_object_set_new(o, "config_file", rpc_string(options->config_file));
	json_object_set_new(o, "rpc_socket", rpc_string(options->rpc_path));
	json_object_set_new(o, "trace_file", rpc_string(trace_file_path()));
	json_object_set_new(o, "hugepages", json_boolean(env_has_hugepages()));
	json_object_set_new(o, "poll_mode", json_string(options->poll_mode == POLL_MODE_BUSY ? "busy" : "adaptive"));
	rpc_reply(req, o);
}
RPC_METHOD("appliance_get_state", rpc_appliance_get_state, struct rpc_no_params, NULL, RPC_STARTUP | RPC_RUNTIME,
	   "Tell the daemon's state, how long it has been in it, and how it was started",
	   .result = "{state: string, age_us: int, pid: int, not_taken_back: int, version: string, build_id: string, "
		     "config_file: "
		     "string|null, rpc_socket: string|null, trace_file: string|null, hugepages: bool, poll_mode: "
		     "string, ...}")

static void wait_init_answer(void *arg)
{
	struct rpc_request *req = arg;

	if (app_state() == APPLIANCE_RUNNING) {
		rpc_reply_true(req);
	} else {
		rpc_error(req, -ECANCELED, "the start-up ended in the state %s", appliance_state_name(app_state()));
	}
}

static bool wait_init_has_own_time(const void *params)
{
	return true;
}

static void rpc_framework_start_init(struct rpc_request *req, void *params)
{
	if (!app_start_init()) {
		rpc_error(req, -EALREADY,
			  "the start-up goes on already, in the state %s; framework_wait_init waits for its "
			  "end",
			  appliance_state_name(app_state()));
		return;
	}
	app_when_running(wait_init_answer, req);
}
RPC_METHOD("framework_start_init", rpc_framework_start_init, struct rpc_no_params, NULL, RPC_STARTUP,
	   "Start the subsystems, after --wait-for-rpc; answers when everything runs",
	   .has_own_time = wait_init_has_own_time, .result = "true")

static void rpc_framework_wait_init(struct rpc_request *req, void *params)
{
	app_when_running(wait_init_answer, req);
}
RPC_METHOD("framework_wait_init", rpc_framework_wait_init, struct rpc_no_params, NULL, RPC_STARTUP | RPC_RUNTIME,
	   "Answer when the start-up is over", .has_own_time = wait_init_has_own_time, .result = "true")

static void rpc_framework_enable_cpumask_locks(struct rpc_request *req, void *params)
{
	char why[256];

	/* Oversubscribed lcores are on no CPU of their own. */
	if (!app_options()->env.oversubscribe && core_locks_enable(why, sizeof(why)) != 0) {
		rpc_error(req, RPC_ERROR_INTERNAL, "%s", why);
		return;
	}
	rpc_reply_true(req);
}
RPC_METHOD("framework_enable_cpumask_locks", rpc_framework_enable_cpumask_locks, struct rpc_no_params, NULL,
	   RPC_STARTUP | RPC_RUNTIME,
	   "Lock the cores in use for other programs to see: all, or none if another process has one", .result = "true")

static void rpc_framework_disable_cpumask_locks(struct rpc_request *req, void *params)
{
	core_locks_stop();
	rpc_reply_true(req);
}
RPC_METHOD("framework_disable_cpumask_locks", rpc_framework_disable_cpumask_locks, struct rpc_no_params, NULL,
	   RPC_STARTUP | RPC_RUNTIME, "End the locks of cores", .result = "true")
