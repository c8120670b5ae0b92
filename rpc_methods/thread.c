/* SPDX-License-Identifier: BSD-3-Clause */
/* thread_* and framework_get_reactors: threads, pollers and reactors, and the CPU time they use. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "env_dpdk/env.h"
#include "rpc/rpc.h"
#include "thread/governor.h"
#include "thread/thread.h"

#define ALWAYS (RPC_STARTUP | RPC_RUNTIME)

/* A stock spdk_top refuses an object with a member that it does not know, so members it does not know are answered only
 * on demand. */
struct detail {
	bool detail;
};

static const struct rpc_param detail_params[] = {
	RPC_PARAM(struct detail, detail, RPC_BOOL, RPC_OPTIONAL,
		  "also members that stock clients do not know, and would refuse (default false)"),
	RPC_PARAM_END,
};

static json_t *rpc_thread_mask_json(const cpu_set_t *mask)
{
	char text[ENV_CORES_MAX];

	env_cores_format_mask(mask, text);
	return json_string(text);
}

/* Begins an answer with the rate of the ticks in it, as all of these methods do. */
static json_t *rpc_thread_answer_with_rate(void)
{
	json_t *o = json_object();

	json_object_set_new(o, "tick_rate", rpc_uint(env_ticks_hz()));
	return o;
}

static void rpc_thread_json_add_detail(json_t *o, const struct thread_stats *s)
{
	json_object_set_new(o, "lcore", s->lcore == ENV_LCORE_NONE ? json_null() : json_integer(s->lcore));
	json_object_set_new(o, "timers_count", json_integer(s->timers));
	json_object_set_new(o, "descriptors_count", json_integer(s->descriptors));
	json_object_set_new(o, "channels_count", json_integer(s->channels));
	json_object_set_new(o, "pending_messages", json_integer(s->pending_messages));
}

static json_t *rpc_thread_json(struct thread *t, bool detail)
{
	struct thread_stats s;
	json_t *o = json_object();

	thread_get_stats(t, &s);
	json_object_set_new(o, "name", rpc_string(s.name));
	json_object_set_new(o, "id", rpc_uint(s.id));
	json_object_set_new(o, "cpumask", rpc_thread_mask_json(&s.cpumask));
	json_object_set_new(o, "busy", rpc_uint(s.busy_ticks));
	json_object_set_new(o, "idle", rpc_uint(s.idle_ticks));
	json_object_set_new(o, "active_pollers_count", json_integer(s.active_pollers));
	json_object_set_new(o, "timed_pollers_count", json_integer(s.timed_pollers));
	json_object_set_new(o, "paused_pollers_count", json_integer(s.paused_pollers));
	if (detail) {
		rpc_thread_json_add_detail(o, &s);
	}
	return o;
}

static void rpc_thread_get_stats(struct rpc_request *req, void *params)
{
	const struct detail *p = params;
	json_t *o = rpc_thread_answer_with_rate(), *list = json_array();

	for (struct thread *t = NULL; (t = thread_next(t)) != NULL;) {
		json_array_append_new(list, rpc_thread_json(t, p->detail));
	}
	json_object_set_new(o, "threads", list);
	rpc_reply(req, o);
}
RPC_METHOD("thread_get_stats", rpc_thread_get_stats, struct detail, detail_params, ALWAYS,
	   "List threads with their busy and idle time",
	   .result = "{tick_rate: int, threads: [{name: string, id: int, cpumask: string, busy: int, idle: "
		     "int, active_pollers_count: int, timed_pollers_count: int, paused_pollers_count: int, "
		     "lcore?: int|null, timers_count?: int, descriptors_count?: int, channels_count?: int, "
		     "pending_messages?: int}]}")

static const char *const kind_states[] = {
	[POLLER_KIND_ACTIVE] = "waiting", [POLLER_KIND_TIMED] = "waiting", [POLLER_KIND_PAUSED] = "paused"};

static json_t *poller_json(const struct poller_stats *p, bool detail)
{
	json_t *o = json_object();

	json_object_set_new(o, "name", rpc_string(p->name));
	json_object_set_new(o, "id", rpc_uint(p->id));
	json_object_set_new(o, "state", json_string(kind_states[p->kind]));
	json_object_set_new(o, "run_count", rpc_uint(p->run_count));
	json_object_set_new(o, "busy_count", rpc_uint(p->busy_count));
	if (p->period_ticks != 0) {
		json_object_set_new(o, "period_ticks", rpc_uint(p->period_ticks));
	}
	if (detail) {
		json_object_set_new(o, "ticks", rpc_uint(p->ticks));
	}
	return o;
}

static json_t *rpc_thread_pollers_json(struct thread *t, bool detail)
{
	struct poller_stats *pollers;
	int n = thread_get_pollers(t, &pollers);
	json_t *o = json_object(), *lists[] = {json_array(), json_array(), json_array()};

	for (int i = 0; i < n; i++) {
		json_array_append_new(lists[pollers[i].kind], poller_json(&pollers[i], detail));
	}
	if (n > 0) {
		free(pollers);
	} else if (n < 0) {
		rpc_result_lacks_memory();
	}
	json_object_set_new(o, "name", rpc_string(thread_name(t)));
	json_object_set_new(o, "id", rpc_uint(thread_id(t)));
	json_object_set_new(o, "active_pollers", lists[POLLER_KIND_ACTIVE]);
	json_object_set_new(o, "timed_pollers", lists[POLLER_KIND_TIMED]);
	json_object_set_new(o, "paused_pollers", lists[POLLER_KIND_PAUSED]);
	return o;
}

static void rpc_thread_get_pollers(struct rpc_request *req, void *params)
{
	const struct detail *p = params;
	json_t *o = rpc_thread_answer_with_rate(), *list = json_array();

	for (struct thread *t = NULL; (t = thread_next(t)) != NULL;) {
		json_array_append_new(list, rpc_thread_pollers_json(t, p->detail));
	}
	json_object_set_new(o, "threads", list);
	rpc_reply(req, o);
}
#define POLLERS_SHAPE                                                                                                  \
	"[{name: string, id: int, state: string, run_count: int, busy_count: int, ticks?: int, "                       \
	"period_ticks?: int}]"
RPC_METHOD("thread_get_pollers", rpc_thread_get_pollers, struct detail, detail_params, ALWAYS,
	   "List each thread's pollers: how often they ran and found work, and the time spent in them",
	   .result = "{tick_rate: int, threads: [{name: string, id: int, active_pollers: " POLLERS_SHAPE
		     ", timed_pollers: " POLLERS_SHAPE ", paused_pollers: " POLLERS_SHAPE "}]}")

static json_t *rpc_thread_channels_json(struct thread *t)
{
	struct io_channel_stats *channels;
	int n = thread_get_io_channels(t, &channels);
	json_t *o = json_object(), *list = json_array();

	for (int i = 0; i < n; i++) {
		json_t *channel = json_object();
		json_object_set_new(channel, "name", rpc_string(channels[i].name));
		json_object_set_new(channel, "ref", json_integer(channels[i].refs));
		json_array_append_new(list, channel);
	}
	if (n > 0) {
		free(channels);
	} else if (n < 0) {
		rpc_result_lacks_memory();
	}
	json_object_set_new(o, "name", rpc_string(thread_name(t)));
	json_object_set_new(o, "id", rpc_uint(thread_id(t)));
	json_object_set_new(o, "io_channels", list);
	return o;
}

static void rpc_thread_get_io_channels(struct rpc_request *req, void *params)
{
	json_t *o = rpc_thread_answer_with_rate(), *list = json_array();

	for (struct thread *t = NULL; (t = thread_next(t)) != NULL;) {
		json_array_append_new(list, rpc_thread_channels_json(t));
	}
	json_object_set_new(o, "threads", list);
	rpc_reply(req, o);
}
RPC_METHOD("thread_get_io_channels", rpc_thread_get_io_channels, struct rpc_no_params, NULL, ALWAYS,
	   "List each thread's channels to I/O devices with their reference counts",
	   .result = "{tick_rate: int, threads: [{name: string, id: int, io_channels: [{name: string, ref: "
		     "int}]}]}")

struct set_cpumask {
	uint64_t id;
	char *cpumask;
};

static const struct rpc_param set_cpumask_params[] = {
	RPC_PARAM(struct set_cpumask, id, RPC_UINT64, RPC_REQUIRED, "of the thread, as in thread_get_stats"),
	RPC_PARAM(struct set_cpumask, cpumask, RPC_STRING, RPC_REQUIRED, "cores it may run on: 0x3, [0,2-3] or 0-1"),
	RPC_PARAM_END,
};

static void rpc_thread_available_cores(char *text)
{
	cpu_set_t cores;
	unsigned lcore;

	CPU_ZERO(&cores);
	ENV_FOREACH_LCORE (lcore) {
		CPU_SET(lcore, &cores);
	}
	env_cores_format(&cores, text);
}

static void rpc_thread_set_cpumask(struct rpc_request *req, void *params)
{
	const struct set_cpumask *p = params;
	char why[ENV_ERROR_MAX], cores[ENV_CORES_MAX];
	struct thread *t = thread_by_id(p->id);
	cpu_set_t mask;

	if (t == NULL) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "parameter \"id\" is %llu: there is no such thread; thread_get_stats lists those "
			  "there are",
			  (unsigned long long)p->id);
		return;
	}
	if (env_cores_parse(p->cpumask, &mask, why) != 0) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "parameter \"cpumask\": %s", why);
		return;
	}
	if (t == thread_control()) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "parameter \"id\" is %llu: the control thread runs on no core of its own",
			  (unsigned long long)p->id);
		return;
	}
	int rc = thread_set_cpumask(t, &mask);
	if (rc == 0) {
		rpc_reply_true(req);
		return;
	}
	rpc_thread_available_cores(cores);
	rpc_error(req, rc, "parameter \"cpumask\" is \"%s\": %s; the reactors are on %s", p->cpumask, strerror(-rc),
		  cores);
}
RPC_METHOD("thread_set_cpumask", rpc_thread_set_cpumask, struct set_cpumask, set_cpumask_params, RPC_RUNTIME,
	   "Choose the cores that a thread may run on; it moves if need be", .result = "true")

/* The threads on a reactor. */
static json_t *reactor_threads_json(unsigned lcore)
{
	json_t *list = json_array();

	for (struct thread *t = NULL; (t = thread_next(t)) != NULL;) {
		struct thread_stats s;
		thread_get_stats(t, &s);
		if (s.lcore != lcore) {
			continue;
		}
		json_t *o = json_object();
		json_object_set_new(o, "name", rpc_string(s.name));
		json_object_set_new(o, "id", rpc_uint(s.id));
		json_object_set_new(o, "cpumask", rpc_thread_mask_json(&s.cpumask));
		json_object_set_new(o, "elapsed", rpc_uint(s.busy_ticks + s.idle_ticks));
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *reactor_json(unsigned lcore, bool detail)
{
	struct reactor_stats s;

	if (reactor_get_stats(lcore, &s) != 0) {
		return NULL;
	}
	json_t *o = json_object();
	json_object_set_new(o, "lcore", json_integer(lcore));
	json_object_set_new(o, "numa_id", json_integer(env_lcore_numa_node(lcore)));
	json_object_set_new(o, "tid", json_integer(s.tid));
	json_object_set_new(o, "busy", rpc_uint(s.busy_ticks));
	json_object_set_new(o, "idle", rpc_uint(s.idle_ticks));
	if (governor_is_used()) { /* in MHz */
		json_object_set_new(o, "core_freq", json_integer(governor_khz_set(lcore) / 1000));
	}
	json_object_set_new(o, "in_interrupt", json_boolean(s.sleeping));
	json_object_set_new(o, "irq", rpc_uint(s.irq_jiffies));
	json_object_set_new(o, "sys", rpc_uint(s.sys_jiffies));
	json_object_set_new(o, "usr", rpc_uint(s.usr_jiffies));
	if (detail) {
		json_object_set_new(o, "sleeps", rpc_uint(s.sleeps));
	}
	json_object_set_new(o, "lw_threads", reactor_threads_json(lcore));
	return o;
}

static void rpc_framework_get_reactors(struct rpc_request *req, void *params)
{
	const struct detail *p = params;
	json_t *o = rpc_thread_answer_with_rate(), *list = json_array();
	unsigned lcore;

	json_object_set_new(o, "pid", json_integer(getpid()));
	ENV_FOREACH_LCORE (lcore) {
		json_array_append_new(list, reactor_json(lcore, p->detail));
	}
	json_object_set_new(o, "reactors", list);
	rpc_reply(req, o);
}
RPC_METHOD("framework_get_reactors", rpc_framework_get_reactors, struct detail, detail_params, ALWAYS,
	   "List the reactors with the threads on them, their busy and idle time (in ticks), and the time of their "
	   "CPUs in "
	   "interrupts, in the kernel and in programs (in jiffies)",
	   .result = "{tick_rate: int, pid: int, reactors: [{lcore: int, numa_id: int, tid: int, busy: int, idle: int, "
		     "core_freq?: int, "
		     "in_interrupt: bool, irq: int, sys: int, usr: int, sleeps?: int, lw_threads: [{name: string, id: "
		     "int, cpumask: string, elapsed: int}]}]}")
