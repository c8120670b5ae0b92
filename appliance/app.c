/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/app.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "appliance/blackbox.h"
#include "appliance/config.h"
#include "appliance/crash.h"
#include "appliance/metrics.h"
#include "appliance/rooms.h"
#include "appliance/service.h"
#include "appliance/signals.h"
#include "bdev_modules/malloc/malloc.h"
#include "dhchap/dhchap.h"
#include "verbs/pd.h"
#include "rpc/rpc.h"
#include "usdt/usdt.h"

#define FOREVER_US       3600000000ULL
#define CLOCK_REFRESH_US 10000000 /* between the trace file's notes of what time it is */

struct waiter {
	void (*fn)(void *arg);
	void *arg;
	SLIST_ENTRY(waiter) link;
};

static struct app {
	const struct appliance_options *options;
	enum appliance_state state;
	uint64_t state_since_us;
	bool failed;
	bool env_up, tracing, threads_up, rpc_up; /* what has been started, and is to be stopped */
	bool start_init;                          /* framework_start_init was called */
	struct config config;
	struct thread_timer clock_timer;
	SLIST_HEAD(, waiter) waiters; /* for RUNNING */
} app;

enum appliance_state app_state(void)
{
	return app.state;
}

const struct appliance_options *app_options(void)
{
	return app.options;
}

static uint64_t app_now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

uint64_t app_state_age_us(void)
{
	return app_now_us() - app.state_since_us;
}

static void app_set_state(enum appliance_state state)
{
	enum appliance_state old = app.state;

	app.state = state;
	app.state_since_us = app_now_us();
	service_status("%s", appliance_state_name(state));
	USDT(appliance_state, old, state);
	TRACE(APPLIANCE_STATE, 0, 0, 0, old, state);
}

static bool app_stop_wanted(void)
{
	return signals_stop_requested() != 0;
}

/* INIT: what needs neither memory nor threads, and the checks that should fail before anything is touched. */
static enum appliance_event app_do_init(void)
{
	char error[CONFIG_ERROR_MAX];
	int rc = crash_install();

	service_init();
	crash_prepare_core(app.options->limit_coredump);
	if (rc == 0) {
		rc = signals_install();
	}
	if (rc != 0) {
		log_error("cannot install signal handlers: %s", strerror(-rc));
		return APPLIANCE_ERROR;
	}
	if (app.options->config_file == NULL) {
		return APPLIANCE_DONE;
	}
	if (config_read(app.options->config_file, &app.config, error) != 0 ||
	    config_check(&app.config, app.options->ignore_init_errors, error) != 0) {
		log_error("%s", error);
		return APPLIANCE_ERROR;
	}
	return APPLIANCE_DONE;
}

static enum appliance_event app_do_env(void)
{
	char error[ENV_ERROR_MAX];

	if (env_init(&app.options->env, error) != 0) {
		log_error("%s", error);
		return APPLIANCE_ERROR;
	}
	app.env_up = true;
	return APPLIANCE_DONE;
}

static void app_log_how_to_trace(void)
{
	log_notice("Tracepoint Group Mask %s specified.", app.options->tracepoints);
	if (app.options->env.instance_id >= 0) {
		log_notice("Use 'varve-trace -s %s -i %d' to capture a snapshot of events at runtime.",
			   app.options->env.name, app.options->env.instance_id);
	} else {
		log_notice("Use 'varve-trace -s %s -p %d' to capture a snapshot of events at runtime.",
			   app.options->env.name, getpid());
	}
	log_notice("Or copy %s for offline analysis/debug.", trace_file_path());
}

/* Tracing is help, not duty: without it the daemon runs on. */
static enum appliance_event app_do_tracing(void)
{
	char error[TRACE_ERROR_MAX];
	struct trace_opts opts = {
		.name = app.options->env.name,
		.version = "varve " VARVE_VERSION,
		.instance_id = app.options->env.instance_id,
		.num_entries = app.options->trace_entries,
		.num_user_threads = TRACE_DEFAULT_USER_THREADS,
		.num_user_entries = TRACE_DEFAULT_USER_ENTRIES,
		.tsc_hz = env_ticks_hz(),
		.group = app.options->trace_group,
	};

	if (trace_start(&opts, error) != 0) {
		log_warning("%s", error);
		log_warning("There will be no tracing.");
		return APPLIANCE_DONE;
	}
	if (error[0] != '\0') {
		log_warning("%s", error);
	}
	app.tracing = trace_is_on();
	if (!app.tracing) {
		if (app.options->tracepoints != NULL) {
			log_warning("-e %s records nothing: --num-trace-entries is 0", app.options->tracepoints);
		}
		return APPLIANCE_DONE;
	}
	crash_set_trace_file(trace_file_path());
	trace_register_user_thread("control");
	if (app.options->tracepoints != NULL) {
		trace_set_masks(&app.options->trace_masks);
		app_log_how_to_trace();
	}
	return APPLIANCE_DONE;
}

static void app_clock_refresh(void *arg)
{
	trace_clock_refresh();
	thread_timer_start(&app.clock_timer, CLOCK_REFRESH_US);
}

static void app_wake_up(void)
{
	/* Waits look at signals_stop_requested() themselves; RUNNING is the loop itself. */
	if (app.state == APPLIANCE_RUNNING) {
		thread_control_exit();
	}
}

static void app_log_state(void)
{
	log_notice("state %s, process %d, RPC socket %s, trace file %s", appliance_state_name(app.state), getpid(),
		   app.options->rpc_path, app.tracing ? trace_file_path() : "none");
}

static enum appliance_event app_do_threads(void)
{
	struct thread_lib_opts opts = {.poll_mode = app.options->poll_mode, .reactor_started = crash_thread_init};
	int rc = thread_lib_start(&opts);

	if (rc != 0) {
		log_error("cannot start the reactors: %s", strerror(-rc));
		return APPLIANCE_ERROR;
	}
	app.threads_up = true;
	rc = signals_listen(app_wake_up, app_log_state);
	if (rc != 0) {
		log_error("cannot listen to signals: %s", strerror(-rc));
		return APPLIANCE_ERROR;
	}
	service_watchdog_start();
	if (app.tracing) {
		app.clock_timer.fn = app_clock_refresh;
		thread_timer_start(&app.clock_timer, CLOCK_REFRESH_US);
	}
	return APPLIANCE_DONE;
}

static enum appliance_event app_do_rpc(void)
{
	char error[RPC_ERROR_TEXT_MAX];
	struct rpc_server_opts opts = {.path = app.options->rpc_path, .mode = app.options->rpc_mode};

	rpc_set_state(RPC_STARTUP);
	rpc_set_deadline(app.options->rpc_deadline_s);
	if (rpc_server_start(&opts, error) != 0) {
		log_error("%s", error);
		return APPLIANCE_ERROR;
	}
	app.rpc_up = true;
	return app.options->wait_for_rpc ? APPLIANCE_PAUSE : APPLIANCE_DONE;
}

static bool app_wait_is_over(void *arg)
{
	return app.start_init || app_stop_wanted();
}

static enum appliance_event app_do_wait(void)
{
	log_notice("Waiting for framework_start_init on %s", app.options->rpc_path);
	service_ready(); /* whoever is to call it may have been ordered after us */
	service_status("waiting for framework_start_init on %s", app.options->rpc_path);
	while (!app_wait_is_over(NULL)) {
		thread_control_wait(app_wait_is_over, NULL, FOREVER_US);
	}
	return app.start_init ? APPLIANCE_DONE : APPLIANCE_STOP;
}

static enum appliance_event app_load_config(bool runtime)
{
	char error[CONFIG_ERROR_MAX];
	int rc = config_run(&app.config, runtime, app.options->ignore_init_errors, app_stop_wanted, error);

	if (rc == -ECANCELED) {
		return APPLIANCE_STOP;
	}
	if (rc != 0) {
		log_error("%s", error);
		return APPLIANCE_ERROR;
	}
	return APPLIANCE_DONE;
}

static enum appliance_event app_serve_metrics(void)
{
	char error[METRICS_ERROR_MAX];

	if (app.options->metrics != NULL && metrics_start(app.options->metrics, false, error) != 0) {
		log_error("no metrics: %s", error);
		return APPLIANCE_ERROR;
	}
	return APPLIANCE_DONE;
}

static enum appliance_event app_do_config(void)
{
	const char *room;
	enum appliance_event event = app_load_config(false);

	if (event != APPLIANCE_DONE) {
		return event;
	}
	int rc = rooms_start(&room);
	if (rc != 0) {
		log_error("cannot start %s: %s", room, strerror(-rc));
		return APPLIANCE_ERROR;
	}
	blackbox_start(app.options->env.name);
	event = app_load_config(true);
	config_free(&app.config);
	return event == APPLIANCE_DONE ? app_serve_metrics() : event;
}

static void app_call_waiters(void)
{
	struct waiter *w;

	while ((w = SLIST_FIRST(&app.waiters)) != NULL) {
		SLIST_REMOVE_HEAD(&app.waiters, link);
		w->fn(w->arg);
		free(w);
	}
}

void app_when_running(void (*fn)(void *arg), void *arg)
{
	struct waiter *w = app.state < APPLIANCE_RUNNING ? malloc(sizeof(*w)) : NULL;

	if (w == NULL) { /* it is, or it was, or there is no memory to remember the question */
		fn(arg);
		return;
	}
	*w = (struct waiter){.fn = fn, .arg = arg};
	SLIST_INSERT_HEAD(&app.waiters, w, link);
}

bool app_start_init(void)
{
	bool waiting = app.state == APPLIANCE_WAIT && !app.start_init;

	app.start_init |= waiting;
	return waiting;
}

static enum appliance_event app_do_running(void)
{
	rpc_set_state(RPC_RUNTIME);
	log_notice("varve %s is running, process %d, RPC socket %s", VARVE_VERSION, getpid(), app.options->rpc_path);
	service_ready();
	service_status("running, RPC socket %s", app.options->rpc_path);
	app_call_waiters();
	if (!app_stop_wanted()) {
		thread_control_run();
	}
	return APPLIANCE_STOP;
}

/* Everything in reverse, as far as it was started. */
static void app_take_down(void)
{
	app_call_waiters();
	if (app.rpc_up) {
		rpc_server_stop();
	}
	if (app.threads_up) {
		metrics_stop();
		blackbox_stop();
		bdev_malloc_wait();
		verbs_pd_wait();
		rooms_stop();
		verbs_pd_wait(); /* a host that came meanwhile may have had memory registered */
		dhchap_stop();   /* a controller that went in the middle of it has left a job behind */
		thread_timer_stop(&app.clock_timer);
		service_watchdog_stop();
		signals_unlisten();
		thread_lib_stop();
	}
	config_free(&app.config);
}

/* The very last: no state can be recorded after it. */
static void app_take_down_env(void)
{
	if (app.tracing) {
		trace_thread_detach();
		crash_set_trace_file(NULL);
		trace_stop();
	}
	if (app.env_up) {
		env_fini();
	}
}

static enum appliance_event app_do_stopping(void)
{
	log_notice("stopping: %s", strsignal(signals_stop_requested()));
	service_stopping();
	app_take_down();
	return APPLIANCE_DONE;
}

static enum appliance_event app_do_failed(void)
{
	app.failed = true;
	app_take_down();
	return APPLIANCE_DONE;
}

/* What is done in each state; the event it returns leads on, by the table in lifecycle.c. */
static enum appliance_event (*const actions[APPLIANCE_STATES])(void) = {
	[APPLIANCE_INIT] = app_do_init,         [APPLIANCE_ENV] = app_do_env,
	[APPLIANCE_TRACING] = app_do_tracing,   [APPLIANCE_THREADS] = app_do_threads,
	[APPLIANCE_RPC] = app_do_rpc,           [APPLIANCE_WAIT] = app_do_wait,
	[APPLIANCE_CONFIG] = app_do_config,     [APPLIANCE_RUNNING] = app_do_running,
	[APPLIANCE_STOPPING] = app_do_stopping, [APPLIANCE_FAILED] = app_do_failed,
};

int app_run(const struct appliance_options *options)
{
	app = (struct app){.options = options, .state = APPLIANCE_INIT, .state_since_us = app_now_us()};
	while (actions[app.state] != NULL) {
		enum appliance_event event = actions[app.state]();
		if (app.state == APPLIANCE_FAILED) {
			break;
		}
		int next = appliance_next_state(app.state, event);
		assert(next >= 0);
		app_set_state((enum appliance_state)next);
	}
	app_take_down_env();
	return app.failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
