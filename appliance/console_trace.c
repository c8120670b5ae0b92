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
#include "appliance/console_trace_look.h"
#include "env_dpdk/env.h"
#include "rpc/rpc.h"
#include "thread/worker.h"
#include "trace/trace.h"

#define LOOKS           4
#define LOOK_FRESH_US   1000000  /* for how long a look is given again */
#define LOOK_FORGET_US  10000000 /* a look that nobody has asked for is freed after that */
#define LOOK_TICK_US    1000000
#define LOOK_SHARE      200 /* after a look that took t of a CPU's time, the next one waits LOOK_SHARE * t */
#define LOOK_NICENESS   10  /* of the worker thread: it may have to share a reactor's CPU */
#define TRACE_FILE_PATH 256

enum look_state { LOOK_FREE, LOOK_WAITS, LOOK_RUNS, LOOK_DONE };

struct console_look {
	enum look_state state;
	struct console_trace_query query;
	uint64_t asked_ticks, done_ticks;
	struct look_result *result; /* the worker thread's in LOOK_RUNS */
};

static struct {
	struct console_look looks[LOOKS];
	struct console_look *running; /* NULL: no job is under way */
	struct worker_job job;
	char path[TRACE_FILE_PATH];
	uint64_t secret, cpu_ns;
	uint64_t next_ticks; /* no look begins before that */
	struct thread_timer timer;
} live;
static struct worker_queue look_queue = WORKER_QUEUE_INITIALIZER(look_queue);

static void console_look_free(struct console_look *l)
{
	free(l->result);
	*l = (struct console_look){.state = LOOK_FREE};
}

/* ---- One look ---- */

static void console_look_work(struct worker_job *job)
{
	struct timespec t;

	setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), LOOK_NICENESS);
	look_take(live.path, &live.running->query, live.secret, live.running->result);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	live.cpu_ns = (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static void console_look_next(void *arg);

static void console_look_done(struct worker_job *job)
{
	struct console_look *l = live.running;

	if (job->error != 0) {
		snprintf(l->result->error, sizeof(l->result->error), "no thread can be started: %s",
			 strerror(-job->error));
	}
	live.running = NULL;
	l->state = LOOK_DONE;
	l->done_ticks = env_ticks();
	live.next_ticks = l->done_ticks + env_us_to_ticks(live.cpu_ns / 1000 * LOOK_SHARE);
	console_look_next(NULL);
}

/* Of the looks that wait, the one that has waited for the longest time. */
static struct console_look *console_look_waiting(void)
{
	struct console_look *first = NULL;

	for (unsigned i = 0; i < LOOKS; i++) {
		struct console_look *l = &live.looks[i];
		if (l->state == LOOK_WAITS && (first == NULL || l->done_ticks < first->done_ticks)) {
			first = l;
		}
	}
	return first;
}

static bool console_look_is_forgotten(const struct console_look *l, uint64_t now)
{
	return l->state != LOOK_RUNS && now - l->asked_ticks >= env_us_to_ticks(LOOK_FORGET_US);
}

/* Frees looks that nobody asks for. Returns whether there are others. */
static bool console_look_forget(uint64_t now)
{
	bool any = false;

	for (unsigned i = 0; i < LOOKS; i++) {
		struct console_look *l = &live.looks[i];
		if (l->state != LOOK_FREE && console_look_is_forgotten(l, now)) {
			console_look_free(l);
		}
		any = any || l->state != LOOK_FREE;
	}
	return any;
}

/* Begins the next look when its time has come, and forgets old ones. The timer runs only while there are looks. */
static void console_look_next(void *arg)
{
	uint64_t now = env_ticks(), wait_us = LOOK_TICK_US;
	bool any = console_look_forget(now);
	struct console_look *l = console_look_waiting();

	if (l != NULL && live.running == NULL) {
		if (now >= live.next_ticks) {
			l->state = LOOK_RUNS;
			live.running = l;
			live.cpu_ns = 0;
			snprintf(live.path, sizeof(live.path), "%s", trace_file_path());
			live.job = (struct worker_job){.work = console_look_work, .done = console_look_done};
			worker_run(&look_queue, &live.job);
		} else {
			wait_us = env_ticks_to_ns(live.next_ticks - now) / 1000 + 1;
		}
	}
	thread_timer_stop(&live.timer);
	if (any) {
		live.timer.fn = console_look_next;
		thread_timer_start(&live.timer, wait_us);
	}
}

/* ---- Asking ---- */

static bool console_query_equal(const struct console_trace_query *a, const struct console_trace_query *b)
{
	return a->group == b->group && strcmp(a->text, b->text) == 0;
}

/* The look for this query, a free one, or the one that has been done and not asked for since the longest time. NULL:
 * all are wanted by others. */
static struct console_look *console_look_place(const struct console_trace_query *q, uint64_t now)
{
	struct console_look *free_one = NULL, *old = NULL;

	for (unsigned i = 0; i < LOOKS; i++) {
		struct console_look *l = &live.looks[i];
		if (l->state == LOOK_FREE) {
			free_one = l;
			continue;
		}
		if (console_query_equal(&l->query, q)) {
			return l;
		}
		bool unused = l->state == LOOK_DONE && now - l->asked_ticks >= env_us_to_ticks(LOOK_FRESH_US);
		if (unused && (old == NULL || l->asked_ticks < old->asked_ticks)) {
			old = l;
		}
	}
	return free_one != NULL ? free_one : old;
}

/* The look for a query, which is begun if there is none or it is old. NULL: too many look, or there is no memory. */
static struct console_look *console_look_ask(const struct console_trace_query *q)
{
	uint64_t now = env_ticks();
	struct console_look *l = console_look_place(q, now);

	if (l == NULL || (live.secret == 0 && getrandom(&live.secret, sizeof(live.secret), GRND_NONBLOCK) < 0)) {
		return NULL;
	}
	if (l->state == LOOK_FREE || !console_query_equal(&l->query, q)) {
		console_look_free(l);
		l->result = calloc(1, sizeof(*l->result));
		if (l->result == NULL) {
			return NULL;
		}
		l->query = *q;
		l->state = LOOK_WAITS;
	} else if (l->state == LOOK_DONE && now - l->done_ticks >= env_us_to_ticks(LOOK_FRESH_US)) {
		l->state = LOOK_WAITS;
	}
	l->asked_ticks = now;
	console_look_next(NULL);
	return l;
}

/* Whether there is something to tell: what was found before, too, if the next look must wait because of what the last
 * ones took. */
static bool console_look_has_result(const struct console_look *l)
{
	return l->state == LOOK_DONE || (l->state == LOOK_WAITS && l->done_ticks != 0 && env_ticks() < live.next_ticks);
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
	json_object_set_new(o, "ago_us", rpc_uint(env_ticks_to_ns(env_ticks() - l->done_ticks) / 1000));
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
	} else if (console_look_has_result(l)) {
		console_trace_add_result(o, l);
	} else {
		json_object_set_new(o, "state", json_string("pending"));
	}
	return o;
}

void console_trace_stop(void)
{
	thread_timer_stop(&live.timer);
	for (unsigned i = 0; i < LOOKS; i++) {
		live.looks[i].asked_ticks = 0; /* one that is under way is freed when it ends */
		if (live.looks[i].state != LOOK_RUNS) {
			console_look_free(&live.looks[i]);
		}
	}
}

void console_trace_wait(void)
{
	worker_wait(&look_queue, UINT64_MAX);
}
