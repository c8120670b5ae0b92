/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/app.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "appliance/hand_over.h"
#include "appliance/hand_over_config.h"
#include "appliance/rooms.h"
#include "appliance/service.h"
#include "appliance/signals.h"
#include "rpc/rpc.h"
#include "usdt/usdt.h"

#define FOREVER_US 3600000000ULL

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
	bool start_init;              /* framework_start_init was called */
	bool hand_over;               /* another process is about to take over */
	bool handed_over;             /* it has */
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

	appliance_state_check(old, state);
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

/* Starts what belongs to the state. */
static enum appliance_event app_start_rooms(void)
{
	char error[PART_ERROR_MAX];
	int rc = rooms_start(app.state, error);

	if (rc == 0) {
		return APPLIANCE_DONE;
	}
	if (rc == -ECANCELED) {
		return APPLIANCE_STOP;
	}
	log_error("%s", error);
	return APPLIANCE_ERROR;
}

void app_wake_up(void)
{
	/* Waits look at signals_stop_requested() themselves; RUNNING is the loop itself. */
	if (app.state == APPLIANCE_RUNNING) {
		thread_control_exit();
	}
}

/* The RPC socket, for people. */
static const char *app_rpc_text(void)
{
	return app.options->rpc_path != NULL ? app.options->rpc_path : "none";
}

void app_log_state(void)
{
	log_notice("state %s, process %d, RPC socket %s, trace file %s", appliance_state_name(app.state), getpid(),
		   app_rpc_text(), rooms_have_trace() ? trace_file_path() : "none");
}

void app_log_how_to_trace(void)
{
	const struct appliance_options *o = app.options;

	log_notice("Tracepoint Group Mask %s specified.", o->tracepoints);
	if (o->env.instance_id >= 0) {
		log_notice("Use 'varve-trace -s %s -i %d' to capture a snapshot of events at runtime.", o->env.name,
			   o->env.instance_id);
	} else {
		log_notice("Use 'varve-trace -s %s -p %d' to capture a snapshot of events at runtime.", o->env.name,
			   getpid());
	}
	log_notice("Or copy %s for offline analysis/debug.", trace_file_path());
}

static enum appliance_event app_do_rpc(void)
{
	enum appliance_event event = app_start_rooms();
	bool wait = app.options->wait_for_rpc && !app.start_init;

	return event == APPLIANCE_DONE && wait ? APPLIANCE_PAUSE : event;
}

static bool app_wait_is_over(void *arg)
{
	return app.start_init || app_stop_wanted();
}

static enum appliance_event app_do_wait(void)
{
	log_notice("Waiting for framework_start_init on %s", app.options->rpc_path);
	service_ready(); /* the program that will call it may be ordered to start after varve */
	service_status("waiting for framework_start_init on %s", app.options->rpc_path);
	while (!app_wait_is_over(NULL)) {
		thread_control_wait(app_wait_is_over, NULL, FOREVER_US);
	}
	return app.start_init ? APPLIANCE_DONE : APPLIANCE_STOP;
}

void app_call_waiters(void)
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

	if (w == NULL) { /* it is running, or was, or there is no memory for a waiter */
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
	log_notice("varve %s is running, process %d, RPC socket %s", VARVE_VERSION, getpid(), app_rpc_text());
	service_ready();
	if (hand_over_config_not_taken_back() != 0) {
		service_status("running, but without all that it had before another process failed to take over (see "
			       "the log), RPC socket %s",
			       app_rpc_text());
	} else {
		service_status("running, RPC socket %s", app_rpc_text());
	}
	app_call_waiters();
	app.hand_over = false;
	while (!app_stop_wanted()) {
		thread_control_run();
		if (app.hand_over && hand_over_prepare()) { /* when this process stops, it tells the other one so */
			return APPLIANCE_HAND_OVER;
		}
		app.hand_over = false;
	}
	return APPLIANCE_STOP;
}

void app_hand_over(void)
{
	app.hand_over = true;
	thread_control_exit();
}

static enum appliance_event app_do_handing_over(void)
{
	enum appliance_event event = hand_over_run();

	app.handed_over = event == APPLIANCE_DONE;
	return event;
}

static enum appliance_event app_do_stopping(void)
{
	log_notice("stopping: %s",
		   app.handed_over ? "another process has taken over" : strsignal(signals_stop_requested()));
	service_stopping();
	rooms_stop(APPLIANCE_THREADS);
	return APPLIANCE_DONE;
}

static enum appliance_event app_do_failed(void)
{
	app.failed = true;
	rooms_stop(APPLIANCE_THREADS);
	return APPLIANCE_DONE;
}

/* What is done in each state; the event it returns leads on, by the table in lifecycle.c. */
static enum appliance_event (*const actions[APPLIANCE_STATES])(void) = {
	[APPLIANCE_INIT] = app_start_rooms,
	[APPLIANCE_ENV] = app_start_rooms,
	[APPLIANCE_TRACING] = app_start_rooms,
	[APPLIANCE_THREADS] = app_start_rooms,
	[APPLIANCE_RPC] = app_do_rpc,
	[APPLIANCE_WAIT] = app_do_wait,
	[APPLIANCE_CONFIG] = app_start_rooms,
	[APPLIANCE_RUNNING] = app_do_running,
	[APPLIANCE_STOPPING] = app_do_stopping,
	[APPLIANCE_FAILED] = app_do_failed,
	[APPLIANCE_HANDING_OVER] = app_do_handing_over,
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
		/* An event that cannot occur in this state is a fault: app_set_state() reports it, and everything
		 * stops. */
		app_set_state(next >= 0 ? (enum appliance_state)next : APPLIANCE_FAILED);
	}
	rooms_stop(APPLIANCE_INIT); /* the trace and the environment: no state can be recorded after it */
	return app.failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
