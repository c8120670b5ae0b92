/* SPDX-License-Identifier: BSD-3-Clause */
/* The live trace. A page asks again and again; a worker thread looks, one look at a time, only while somebody asks, and
 * less than 1/LOOK_SHARE of one CPU. Looks for the same thing are shared. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "appliance/console_api.h"
#include "appliance/console_looks.h"
#include "env_dpdk/env.h"
#include "rpc/rpc.h"
#include "thread/worker.h"
#include "trace/trace.h"

#define LOOK_TICK_US    1000000
#define LOOK_NICENESS   10 /* of the worker thread: it may have to share a reactor's CPU */
#define TRACE_FILE_PATH 256

static struct {
	struct console_looks looks;
	struct console_look *running; /* NULL: no job is under way */
	struct worker_job job;
	char path[TRACE_FILE_PATH];
	uint64_t secret, cpu_ns;
	struct thread_timer timer;
} live;
static struct worker_queue look_queue = WORKER_QUEUE_INITIALIZER(look_queue);

static uint64_t look_now_us(void)
{
	return env_ticks_to_ns(env_ticks()) / 1000;
}

/* ---- One look ---- */

static void console_look_work(struct worker_job *job)
{
	struct timespec t;

	setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), LOOK_NICENESS);
	look_take(live.path, &live.running->query, live.secret, live.running->next);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	live.cpu_ns = (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static void console_look_next(void *arg);

static void console_look_done(struct worker_job *job)
{
	struct console_look *l = live.running;

	if (job->error != 0) {
		snprintf(l->next->error, sizeof(l->next->error), "no thread can be started: %s", strerror(-job->error));
	}
	live.running = NULL;
	look_done(&live.looks, l, look_now_us(), live.cpu_ns / 1000);
	console_look_next(NULL);
}

/* Begins the next look when its time has come, and forgets old ones. The timer runs only while there are looks. */
static void console_look_next(void *arg)
{
	uint64_t now_us = look_now_us(), wait_us = LOOK_TICK_US;
	bool any = looks_forget(&live.looks, now_us);
	struct console_look *l = looks_next(&live.looks);

	if (l != NULL && live.running == NULL) {
		if (now_us >= live.looks.begin_us) {
			l->state = LOOK_RUNS;
			live.running = l;
			live.cpu_ns = 0;
			snprintf(live.path, sizeof(live.path), "%s", trace_file_path());
			live.job = (struct worker_job){.work = console_look_work, .done = console_look_done};
			worker_run(&look_queue, &live.job);
		} else {
			wait_us = live.looks.begin_us - now_us;
		}
	}
	thread_timer_stop(&live.timer);
	if (any) {
		live.timer.fn = console_look_next;
		thread_timer_start(&live.timer, wait_us);
	}
}

/* ---- Asking ---- */

/* The look for a query, which is begun if there is none or it is old. NULL: too many look, or there is no memory. */
static struct console_look *console_look_ask(const struct console_trace_query *q)
{
	if (live.secret == 0 && getrandom(&live.secret, sizeof(live.secret), GRND_NONBLOCK) < 0) {
		return NULL;
	}
	struct console_look *l = looks_ask(&live.looks, q, look_now_us());
	if (l != NULL) {
		console_look_next(NULL);
	}
	return l;
}

/* ---- The answer ---- */

static json_t *console_trace_groups(void)
{
	uint64_t on = trace_get_group_mask();
	json_t *list = json_array();

	for (unsigned g = 0; g < 64; g++) {
		const struct trace_group_info *info = trace_group_info(g);
		if (info != NULL) {
			json_t *o = json_object();
			json_object_set_new(o, "name", rpc_string(info->name));
			json_object_set_new(o, "on", json_boolean(on >> g & 1));
			json_array_append_new(list, o);
		}
	}
	return list;
}

static json_t *console_text_or_null(const char *text)
{
	return text[0] != '\0' ? rpc_string(text) : json_null();
}

static json_t *console_trace_event(const struct look_event *e)
{
	json_t *o = json_object();

	json_object_set_new(o, "shown", json_boolean(e->shown));
	json_object_set_new(o, "family", e->family != LOOK_NO_FAMILY ? json_integer(e->family) : json_null());
	json_object_set_new(o, "at_ns", rpc_uint(e->at_ns));
	json_object_set_new(o, "time_us", e->realtime_us != 0 ? rpc_uint(e->realtime_us) : json_null());
	json_object_set_new(o, "thread", rpc_string(e->thread));
	json_object_set_new(o, "owner", console_text_or_null(e->owner));
	json_object_set_new(o, "tpoint", rpc_string(e->tpoint));
	json_object_set_new(o, "object", console_text_or_null(e->object));
	json_object_set_new(o, "parent", console_text_or_null(e->parent));
	json_object_set_new(o, "since_ns", e->state_ns != TRACE_NO_TIME ? rpc_uint(e->state_ns) : json_null());
	json_object_set_new(o, "size", rpc_uint(e->size));
	json_object_set_new(o, "args", console_text_or_null(e->args));
	return o;
}

static void console_trace_add_result(json_t *o, const struct console_look *l)
{
	json_t *list = json_array();
	const struct look_result *r = l->result;

	for (size_t i = 0; i < r->n; i++) {
		json_array_append_new(list, console_trace_event(&r->events[i]));
	}
	json_object_set_new(o, "state", json_string(r->error[0] == '\0' ? "done" : "failed"));
	json_object_set_new(o, "error", console_text_or_null(r->error));
	json_object_set_new(o, "events", list);
	json_object_set_new(o, "matching", rpc_uint(r->matching));
	json_object_set_new(o, "entries", rpc_uint(r->entries));
	json_object_set_new(o, "ago_us", rpc_uint(look_now_us() - l->done_us));
}

json_t *console_trace(const char *query, size_t query_len)
{
	struct console_trace_query q;
	struct console_look *l;
	json_t *o = json_object();

	if (!console_query_trace(query, query_len, &q)) {
		json_decref(o);
		return NULL;
	}
	json_object_set_new(o, "groups", console_trace_groups());
	if (trace_file_path() == NULL) {
		json_object_set_new(o, "state", json_string("off"));
	} else if ((l = console_look_ask(&q)) == NULL) {
		json_object_set_new(o, "state", json_string("busy"));
	} else if (look_is_told(&live.looks, l, look_now_us())) {
		console_trace_add_result(o, l);
	} else {
		json_object_set_new(o, "state", json_string("pending"));
	}
	return o;
}

void console_trace_stop(void)
{
	thread_timer_stop(&live.timer);
	looks_stop(&live.looks);
}

void console_trace_wait(void)
{
	worker_wait(&look_queue, UINT64_MAX);
}
