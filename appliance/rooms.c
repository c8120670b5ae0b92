/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/rooms.h"

#include <errno.h>
#include <string.h>

#include "appliance/app.h"
#include "appliance/blackbox.h"
#include "appliance/config.h"
#include "appliance/core_locks.h"
#include "appliance/crash.h"
#include "appliance/console_api.h"
#include "appliance/hand_over_config.h"
#include "appliance/metrics.h"
#include "appliance/pid_file.h"
#include "appliance/service.h"
#include "appliance/signals.h"
#include "appliance/takeover.h"
#include "bdev/bdev.h"
#include "bdev/kept_ram.h"
#include "bdev/kept_stat.h"
#include "bdev/qos_group.h"
#include "dhchap/dhchap.h"
#include "keyring/keyring.h"
#include "nvmf/nvmf.h"
#include "nvmf/resv_kept.h"
#include "rpc/allowed.h"
#include "rpc/rpc.h"
#include "tls/handshake.h"
#include "trace/trace.h"
#include "util/build_id.h"
#include "util/compiler.h"
#include "verbs/pd.h"

#define STOP_REPORT_US   5000000
#define CLOCK_REFRESH_US 10000000 /* between the trace file's notes of what time it is */
/* The kernel ends I/O of a process that was killed after the process, and keeps its locks of files until then. */
#define TAKE_BACK_ROUNDS 100 /* of config.h */
#define RPC_AGAIN_US     1000000
/* A bdev that discovery finds may come when all is served already; it goes on counting where it was. */
#define LATE_BDEVS_US 60000000

/* The first of the parts that another process takes over. */
#define HANDED_OVER "the configuration's start-up methods"

static struct config config;
static bool taken_over;     /* from another process, at the start */
static bool had_core_locks; /* when all was handed over */
static bool handing_over;   /* all is being stopped, and may be started again */
static bool took_back;      /* what was handed over: as much of it as can be is served, whatever fails */
static bool tracing;
static struct thread_timer clock_timer;
static struct thread_timer rpc_timer; /* until the RPC server can listen */

/* ---- INIT: what needs neither memory nor threads, and the checks that should fail before anything is touched ---- */

static int rooms_start_crash_reports(char *error)
{
	return crash_install();
}

static int rooms_start_service(char *error)
{
	if (app_options()->takeover == NULL) { /* otherwise the manager listens to another process still */
		service_init();
	}
	return 0;
}

static int rooms_start_core_dumps(char *error)
{
	crash_prepare_core(app_options()->limit_coredump);
	return 0;
}

static int rooms_start_signal_handlers(char *error)
{
	return signals_install();
}

/* When all is taken back, what hosts do not need does not end the process. */
static int rooms_end_without(enum hand_over_part part, int rc, const char *error)
{
	if (!took_back) {
		return rc;
	}
	hand_over_note_part(part, rc != 0 ? error : NULL);
	return 0;
}

static int rooms_write_pid_file(char *error)
{
	const char *path = app_options()->pid_file;

	return rooms_end_without(HAND_OVER_PID_FILE, path != NULL ? pid_file_write(path, error, PART_ERROR_MAX) : 0,
				 error);
}

static void rooms_remove_pid_file(void)
{
	if (app_options()->pid_file != NULL) {
		pid_file_remove(app_options()->pid_file);
	}
}

static int rooms_read_configuration(char *error)
{
	const struct appliance_options *o = app_options();

	if (o->config_file == NULL || o->takeover != NULL) {
		return 0;
	}
	int rc = config_read(o->config_file, &config, error);
	rc = rc == 0 ? config_check(&config, o->ignore_init_errors, error) : rc;
	if (rc != 0) {
		config_free(&config);
	}
	return rc;
}

static void rooms_free_configuration(void)
{
	config_free(&config);
}

/* ---- ENV and TRACING ---- */

static int rooms_start_env(char *error)
{
	env_startup_set(&app_options()->startup);
	return env_init(&app_options()->env, error);
}

static int rooms_lock_cores_now(char *error)
{
	const struct appliance_options *o = app_options();

	/* Oversubscribed lcores are on no CPU of their own. */
	if (!o->no_core_locks && !o->env.oversubscribe) {
		core_locks_start();
	}
	return 0;
}

static int rooms_lock_cores(char *error)
{
	/* Otherwise another process has the locks still. */
	return app_options()->takeover == NULL ? rooms_lock_cores_now(error) : 0;
}

/* Makes the trace file; true if there is one. */
static bool rooms_create_trace(const struct appliance_options *o, char *error)
{
	struct trace_opts opts = {
		.name = o->env.name,
		.version = "varve " VARVE_VERSION,
		.instance_id = o->env.instance_id,
		.num_entries = o->trace_entries,
		.num_user_threads = TRACE_DEFAULT_USER_THREADS,
		.num_user_entries = TRACE_DEFAULT_USER_ENTRIES,
		.tsc_hz = env_ticks_hz(),
		.group = o->trace_group,
	};

	if (trace_start(&opts, error) != 0) {
		log_warning("%s", error);
		log_warning("There will be no tracing.");
		return false;
	}
	if (error[0] != '\0') {
		log_warning("%s", error);
	}
	if (!trace_is_on() && o->tracepoints != NULL) {
		log_warning("-e %s records nothing: --num-trace-entries is 0", o->tracepoints);
	}
	return trace_is_on();
}

/* Always 0: the daemon works without a trace as well. */
static int rooms_start_trace(char *error)
{
	const struct appliance_options *o = app_options();

	tracing = rooms_create_trace(o, error);
	if (!tracing) {
		return 0;
	}
	crash_set_trace_file(trace_file_path());
	trace_register_user_thread("control");
	if (o->tracepoints != NULL) {
		trace_set_masks(&o->trace_masks);
		app_log_how_to_trace();
	}
	return 0;
}

static void rooms_stop_trace(void)
{
	if (tracing) {
		trace_thread_detach();
		crash_set_trace_file(NULL);
		trace_stop();
	}
	tracing = false;
}

bool rooms_have_trace(void)
{
	return tracing;
}

/* ---- THREADS and RPC ---- */

static int rooms_start_reactors(char *error)
{
	struct thread_lib_opts opts = {.poll_mode = app_options()->poll_mode, .reactor_started = crash_thread_init};

	return thread_lib_start(&opts);
}

static int rooms_start_signals(char *error)
{
	return signals_listen(app_wake_up, app_log_state);
}

static int rooms_start_watchdog(char *error)
{
	service_watchdog_start();
	return 0;
}

static void rooms_refresh_trace_clock(void *arg)
{
	trace_clock_refresh();
	thread_timer_start(&clock_timer, CLOCK_REFRESH_US);
}

static int rooms_start_trace_clock(char *error)
{
	if (tracing) {
		clock_timer.fn = rooms_refresh_trace_clock;
		thread_timer_start(&clock_timer, CLOCK_REFRESH_US);
	}
	return 0;
}

static void rooms_stop_trace_clock(void)
{
	thread_timer_stop(&clock_timer);
}

static void rooms_wait_for_dhchap(void (*done)(void *arg), void *arg)
{
	dhchap_stop();
	tls_handshake_stop();
	done(arg);
}

static void rooms_wait_for_registrations(void (*done)(void *arg), void *arg)
{
	verbs_pd_wait();
	done(arg);
}

/* A name that is allowed and does not exist is allowed in vain: perhaps it is misspelt. */
static void rooms_check_allowed(const char *names)
{
	char name[128];

	for (const char *at = names; *at != '\0'; at += *at == ',') {
		size_t n = strcspn(at, ",");
		snprintf(name, sizeof(name), "%.*s", n < sizeof(name) ? (int)n : (int)sizeof(name) - 1, at);
		if (!rpc_method_exists(name)) {
			log_warning("--rpcs-allowed: there is no method \"%s\"", name);
		}
		at += n;
	}
}

static int rooms_listen(char *error)
{
	const struct appliance_options *o = app_options();
	struct rpc_server_opts opts = {.path = o->rpc_path, .mode = o->rpc_mode};

	return o->rpc_path != NULL ? rpc_server_start(&opts, error) : 0;
}

/* What is in the way of the socket may go. */
static void rooms_listen_again(void *arg)
{
	char why[PART_ERROR_MAX];

	if (rooms_listen(why) != 0) {
		thread_timer_start(&rpc_timer, RPC_AGAIN_US);
		return;
	}
	log_notice("the RPC socket %s is taken back now", app_options()->rpc_path);
	hand_over_note_part(HAND_OVER_RPC, NULL);
}

static int rooms_start_rpc(char *error)
{
	const struct appliance_options *o = app_options();

	rpc_set_state(RPC_STARTUP);
	rpc_set_deadline(o->rpc_deadline_s);
	if (o->rpcs_allowed != NULL) {
		rooms_check_allowed(o->rpcs_allowed);
		rpc_set_allowed(o->rpcs_allowed);
	}
	int rc = rooms_listen(error);
	if (rc != 0 && took_back) {
		rpc_timer.fn = rooms_listen_again;
		thread_timer_start(&rpc_timer, RPC_AGAIN_US);
	}
	return rooms_end_without(HAND_OVER_RPC, rc, error);
}

static void rooms_stop_rpc(void)
{
	thread_timer_stop(&rpc_timer);
	rpc_server_stop();
}

/* ---- Taking over, and handing over ---- */

static int rooms_take_over(char *error)
{
	const struct appliance_options *o = app_options();

	if (o->takeover == NULL || taken_over) {
		return 0;
	}
	int rc = takeover_begin(o, &config, error);
	return rc == 0 ? rooms_lock_cores_now(error) : rc;
}

/* All is there again but for late bdevs. What belongs to none of it is not for an object of that name that an operator
 * makes some day. */
static void rooms_end_statistics(void)
{
	bdev_qos_groups_take_absent();
	kept_ram_clear();
	kept_stat_clear_after(LATE_BDEVS_US);
}

static int rooms_end_takeover(char *error)
{
	if (app_options()->takeover != NULL && !taken_over) {
		int rc = takeover_end(error);
		taken_over = rc == 0;
		if (taken_over) {
			rooms_end_statistics();
		}
		return rc;
	}
	return 0;
}

/* ---- CONFIG ---- */

static bool rooms_stop_is_wanted(void)
{
	return signals_stop_requested() != 0;
}

/* A process that is about to take over ignores nothing, whatever its options say: the other one has it all. */
static bool rooms_ignore_errors(void)
{
	const struct appliance_options *o = app_options();

	return took_back || (o->ignore_init_errors && (o->takeover == NULL || taken_over));
}

static int rooms_run_startup_methods(char *error)
{
	return config_run(&config, false, rooms_ignore_errors(), rooms_stop_is_wanted, error);
}

static int rooms_start_bdev(char *error)
{
	return bdev_init();
}

static int rooms_start_nvmf(char *error)
{
	return nvmf_init();
}

static int rooms_start_blackbox(char *error)
{
	blackbox_start(app_options()->env.name);
	return 0;
}

/* Each reservation that was handed over has its namespace now. */
static int rooms_end_reservations(char *error)
{
	unsigned left = nvmf_resv_kept_clear();
	int rc = nvmf_resv_kept_whole();

	if (took_back && rc != 0) {
		snprintf(error, PART_ERROR_MAX, "some could not be kept: %s", strerror(-rc));
		hand_over_note_part(HAND_OVER_RESERVATIONS, error);
	}
	if (left == 0) {
		return 0;
	}
	if (took_back) {
		snprintf(error, PART_ERROR_MAX, "those of %u namespaces, which were not taken back", left);
		hand_over_note_part(HAND_OVER_RESERVATIONS, error);
		return 0;
	}
	snprintf(error, PART_ERROR_MAX,
		 "the reservations of %u namespaces cannot be taken over: there are no such "
		 "namespaces",
		 left);
	return -ENOENT;
}

static int rooms_run_runtime_methods(char *error)
{
	int rc = config_run(&config, true, rooms_ignore_errors(), rooms_stop_is_wanted, error);

	config_free(&config);
	keyring_forget_set_aside();
	return rc == 0 ? rooms_end_reservations(error) : rc;
}

/* Hosts that came earlier would find half of what they are served. They wait instead. */
static int rooms_hold_hosts(char *error)
{
	nvmf_hold_connections(took_back || (app_options()->takeover != NULL && !taken_over));
	return 0;
}

static int rooms_let_hosts_in(char *error)
{
	nvmf_hold_connections(false);
	return 0;
}

/* Another process may fail to take over, and the files may change meanwhile. */
static void rooms_stop_keys(void)
{
	if (handing_over) {
		keyring_set_aside();
	} else {
		keyring_clear();
	}
}

static void rooms_forget_what_was_handed_over(void)
{
	keyring_clear();
	nvmf_resv_kept_clear();
	kept_stat_clear();
	kept_ram_clear();
}

static int rooms_check_what_was_taken_back(char *error)
{
	if (took_back) {
		hand_over_config_check();
		rooms_end_statistics();
	}
	return 0;
}

static int rooms_start_metrics(char *error)
{
	char why[METRICS_ERROR_MAX];
	const char *address = app_options()->metrics;
	int rc = address != NULL ? metrics_start(address, false, false, why) : 0;

	if (rc != 0) {
		snprintf(error, PART_ERROR_MAX, "no metrics: %s", why);
	}
	return rooms_end_without(HAND_OVER_METRICS, rc, error);
}

static void rooms_stop_metrics(void)
{
	metrics_stop();
}

static void rooms_wait_for_looks(void (*done)(void *arg), void *arg)
{
	console_trace_wait();
	done(arg);
}

/* Parts of one state are started from the top to the bottom of the table. All parts are stopped from the bottom to the
 * top, whatever their states: parts that take orders from outside stop first, parts that others use stop last. Each
 * comment says why its row is where it is.
 *
 * Parts without a start may be in use as soon as the state has been reached, because of an RPC or of a line of the
 * configuration. So they are stopped even if the daemon never gets beyond that state. */
static const struct part rows[] = {
	/* From here on, a crash is reported. */
	{.name = "crash reports", .when = APPLIANCE_INIT, .start = rooms_start_crash_reports},
	{.name = "the service manager's messages", .when = APPLIANCE_INIT, .start = rooms_start_service},
	{.name = "core dumps", .when = APPLIANCE_INIT, .start = rooms_start_core_dumps},
	/* Before any other thread is made (signals.h). From here on, a signal that asks for the end is remembered. */
	{.name = "signal handlers", .when = APPLIANCE_INIT, .start = rooms_start_signal_handlers},
	/* A wrong configuration is found before memory and devices are touched. */
	{.name = "the configuration",
	 .when = APPLIANCE_INIT,
	 .start = rooms_read_configuration,
	 .stop = rooms_free_configuration},

	/* Removed last: until then, scripts may ask the process to end. */
	{.name = "the file with the process id", .when = APPLIANCE_INIT, .stop = rooms_remove_pid_file},

	/* All memory, cores and devices come from here. */
	{.name = "the environment", .when = APPLIANCE_ENV, .start = rooms_start_env, .stop = env_fini},
	/* The environment knows which CPUs there are to lock. */
	{.name = "the locks of cores", .when = APPLIANCE_ENV, .start = rooms_lock_cores, .stop = core_locks_stop},
	/* Records everything that the parts below do, until the state STOPPED itself; its rings are made for the
	 * environment's lcores. */
	{.name = "the trace", .when = APPLIANCE_TRACING, .start = rooms_start_trace, .stop = rooms_stop_trace},

	/* The control loop begins here. All parts below use it to stop. */
	{.name = "the reactors", .when = APPLIANCE_THREADS, .start = rooms_start_reactors, .stop = thread_lib_stop},
	/* The first signal wakes the control loop while anything below starts or stops. (The second one ends the
	 * process in the handler.) */
	{.name = "signals", .when = APPLIANCE_THREADS, .start = rooms_start_signals, .stop = signals_unlisten},
	/* Served until everything that may take long has stopped: otherwise the service manager would kill a daemon
	   that stops slowly. */
	{.name = "the watchdog",
	 .when = APPLIANCE_THREADS,
	 .start = rooms_start_watchdog,
	 .stop = service_watchdog_stop},
	{.name = "the trace's clock",
	 .when = APPLIANCE_THREADS,
	 .start = rooms_start_trace_clock,
	 .stop = rooms_stop_trace_clock},
	/* A controller that ended in the middle of its authentication leaves a job behind, on a worker thread that
	 * sends its end to the control thread. */
	{.name = "DH-HMAC-CHAP", .when = APPLIANCE_THREADS, .stop_slow = rooms_wait_for_dhchap},
	/* A host that connected while nvmf stopped may have begun a registration. */
	{.name = "registrations of memory", .when = APPLIANCE_THREADS, .stop_slow = rooms_wait_for_registrations},

	/* What another process has, if this one is to take its place. All that this one needs of its own is there: the
	 * other one has stopped serving when this returns. */
	{.name = "the take-over", .when = APPLIANCE_RPC, .start = rooms_take_over, .stop = takeover_stop},

	/* Keys, reservations and statistics that were kept for the case that the other process fails. */
	{.name = "what was handed over", .when = APPLIANCE_THREADS, .stop = rooms_forget_what_was_handed_over},

	/* From here on, all is handed over when another process takes over from this one. */
	/* Methods that may be called before the rooms start. Before the RPC server starts, so that what clients set
	 * before framework_start_init comes over what the file says. */
	{.name = HANDED_OVER, .when = APPLIANCE_RPC, .start = rooms_run_startup_methods},
	/* Used by nvmf and bdevs. */
	{.name = "keys", .when = APPLIANCE_THREADS, .stop = rooms_stop_keys},
	{.name = "bdev", .when = APPLIANCE_CONFIG, .start = rooms_start_bdev, .stop_slow = bdev_fini},
	/* Opens bdevs. */
	{.name = "nvmf", .when = APPLIANCE_CONFIG, .start = rooms_start_nvmf, .stop_slow = nvmf_fini},
	/* When nvmf releases a protection domain whose memory is being registered, it waits without running the control
	   loop. So the registrations of before are waited for here, where the loop runs. */
	{.name = "registrations of memory", .when = APPLIANCE_THREADS, .stop_slow = rooms_wait_for_registrations},
	/* A worker thread registers the memory of a bdev that is being made. For that, too, nvmf would wait without
	   running the control loop. */
	{.name = "the making of bdevs", .when = APPLIANCE_CONFIG, .stop_slow = bdev_finish_creations},
	/* Looks at the requests of nvmf and the errors of bdev. Triggers may be set before it is started. */
	{.name = "the black box's triggers", .when = APPLIANCE_THREADS, .stop = blackbox_stop},
	{.name = "the black box", .when = APPLIANCE_CONFIG, .start = rooms_start_blackbox},
	/* Before there are listeners: hosts that came now would find half of the namespaces. */
	{.name = "the wait of hosts", .when = APPLIANCE_CONFIG, .start = rooms_hold_hosts},
	/* All other methods; triggers among them have an effect at once. */
	{.name = "the configuration's methods", .when = APPLIANCE_CONFIG, .start = rooms_run_runtime_methods},
	/* A page may have asked for the trace just before. A worker thread reads it, and sends its end to the control
	 * thread. */
	{.name = "looks at the trace", .when = APPLIANCE_THREADS, .stop_slow = rooms_wait_for_looks},
	/* Asks all rooms for numbers, so it stops before them. If the configuration's methods have started metrics
	   already, --metrics is an error. */
	{.name = "metrics' connections", .when = APPLIANCE_THREADS, .stop = rooms_stop_metrics},
	{.name = "metrics", .when = APPLIANCE_CONFIG, .start = rooms_start_metrics},
	/* All is there. */
	{.name = "the connections of hosts", .when = APPLIANCE_CONFIG, .start = rooms_let_hosts_in},
	{.name = "what was taken back", .when = APPLIANCE_CONFIG, .start = rooms_check_what_was_taken_back},
	/* All that the other process had is served by this one: the other one ends. */
	{.name = "the end of the take-over", .when = APPLIANCE_CONFIG, .start = rooms_end_takeover},

	/* Started before the configuration is loaded, for framework_start_init; stopped first, so that no method begins
	 * while rooms stop. */
	{.name = "the RPC server", .when = APPLIANCE_RPC, .start = rooms_start_rpc, .stop = rooms_stop_rpc},
	/* After the server, which fails if another daemon listens at the same place: that daemon's file stays. */
	{.name = "the file with the process id", .when = APPLIANCE_RPC, .start = rooms_write_pid_file},
	/* Answers RPCs that wait for the daemon to run, while their clients are still connected. */
	{.name = "RPCs that wait for the start", .when = APPLIANCE_RPC, .stop = app_call_waiters},
};

static struct parts parts = {.table = rows, .n = ARRAY_SIZE(rows), .report_us = STOP_REPORT_US};

int rooms_start(enum appliance_state state, char *error)
{
	return parts_start(&parts, state, error);
}

void rooms_stop(enum appliance_state first)
{
	parts_stop(&parts, first);
}

void rooms_hand_over(void)
{
	had_core_locks = core_locks_held();
	handing_over = true;
	keyring_keep_removed();
	nvmf_resv_keep(true);
	kept_stat_keep(true);
	parts_stop_from(&parts, HANDED_OVER);
	nvmf_resv_keep(false);
	kept_stat_keep(false);
	handing_over = false;
	core_locks_stop();
}

int rooms_keep_configuration(const char *text, size_t len, char *error)
{
	int rc = config_parse("what was handed over", text, len, &config, error);

	rc = rc == 0 ? config_check(&config, false, error) : rc;
	if (rc != 0) {
		config_free(&config);
	}
	return rc;
}

void rooms_take_back(void)
{
	took_back = true;
	config.busy_rounds = TAKE_BACK_ROUNDS;
	if (had_core_locks) {
		core_locks_start();
	}
}
