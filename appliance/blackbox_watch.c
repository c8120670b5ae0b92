/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds what triggers are for. No timer runs, and no function of this file is called, unless there is a trigger that
 * needs it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "appliance/blackbox.h"
#include "bdev/bdev.h"
#include "env_dpdk/env.h"
#include "nvmf/nvmf.h"
#include "thread/thread.h"
#include "trace/trace.h"
#include "util/log.h"

#define AGES         (1u << BLACKBOX_REQUEST_AGE | 1u << BLACKBOX_STATE_AGE)
#define MAX_LATE     64 /* checked at a time; the next check sees the rest */
#define MAX_AGING    256
#define MAX_REACTORS CPU_SETSIZE

static struct blackbox_triggers *triggers;
static struct thread_timer ages_timer, stalls_timer, errors_timer;
static uint64_t ages_limit_us, ages_period_us, stalls_limit_us, stalls_period_us;
static struct blackbox_seen seen[MAX_REACTORS];

static uint64_t watch_ticks_to_us(uint64_t ticks)
{
	return env_ticks_to_ns(ticks) / 1000;
}

/* ---- Requests that are too old ---- */

static void watch_describe_request(const struct nvmf_inflight *f, uint64_t us, const char *what,
				   struct trace_file_cause *c)
{
	const char *host = f->hostnqn[0] != '\0' ? f->hostnqn : "a host that is not connected yet";
	char command[48] = "";

	if (!f->admin && !f->fabrics) {
		snprintf(command, sizeof(command), ", %u blocks at %llu", f->num_blocks, (unsigned long long)f->slba);
	}
	*c = (struct trace_file_cause){
		.lcore = -1,
		.object_type = f->object_type,
		.object_id = (uintptr_t)f->object,
		.object_start_tsc = env_ticks_to_tsc(f->start_ticks),
	};
	snprintf(c->state, sizeof(c->state), "%s", f->state);
	snprintf(c->waits_for, sizeof(c->waits_for), "%s", f->waits_for != NULL ? f->waits_for : "");
	snprintf(c->owner, sizeof(c->owner), "%s", f->hostnqn);
	snprintf(c->text, sizeof(c->text),
		 "%s for %llu us: command %u of queue %u of %.120s, opcode 0x%02x of namespace %u of "
		 "%.120s%s, state %s%s%s",
		 what, (unsigned long long)us, f->cid, f->qid, host, f->opcode, f->nsid, f->subnqn, command, f->state,
		 f->waits_for != NULL ? ", waits for " : "", f->waits_for != NULL ? f->waits_for : "");
}

static void watch_check_request(const struct nvmf_inflight *f)
{
	uint64_t age_us = watch_ticks_to_us(f->age_ticks), state_us = watch_ticks_to_us(f->state_age_ticks);
	struct trace_file_cause cause;

	watch_describe_request(f, age_us, "outstanding", &cause);
	blackbox_fire(BLACKBOX_REQUEST_AGE, age_us, &cause);
	watch_describe_request(f, state_us, "in one state", &cause);
	blackbox_fire(BLACKBOX_STATE_AGE, state_us, &cause);
}

/* ---- Requests that get older than the rings are long ---- */

static void watch_warn_of_short_rings(uint64_t ring_us)
{
	struct blackbox_trigger *t;

	TAILQ_FOREACH (t, triggers, link) {
		if ((AGES & 1u << t->opts.type) == 0 || t->opts.action == BLACKBOX_NOTIFY || t->short_ring ||
		    ring_us >= t->opts.limit_us) {
			continue;
		}
		t->short_ring = true;
		log_warning(
			"black box: trigger %s: the trace rings cover about %llu ms at the present rate, less than the "
			"limit of %llu ms. Only what was done for the %d oldest requests is kept for longer; for the "
			"rest raise --num-trace-entries or enable fewer tracepoints",
			t->opts.name, (unsigned long long)(ring_us / 1000),
			(unsigned long long)(t->opts.limit_us / 1000), TRACE_KEEP_OBJECTS);
	}
}

static int watch_compare_ages(const void *a, const void *b)
{
	const struct nvmf_inflight *x = a, *y = b;

	return x->age_ticks > y->age_ticks ? -1 : x->age_ticks < y->age_ticks;
}

static size_t watch_list_oldest(uint64_t min_age_us, struct trace_keep_object *objects)
{
	struct nvmf_inflight *late = calloc(MAX_AGING, sizeof(*late));
	size_t n = 0;

	for (struct nvmf_tgt *tgt = nvmf_tgt_next(NULL); late != NULL && tgt != NULL; tgt = nvmf_tgt_next(tgt)) {
		n += nvmf_tgt_get_late(tgt, env_us_to_ticks(min_age_us), MAX_AGING - n, &late[n]);
	}
	if (n > 0) {
		qsort(late, n, sizeof(*late), watch_compare_ages);
	}
	n = n < TRACE_KEEP_OBJECTS ? n : TRACE_KEEP_OBJECTS;
	for (size_t i = 0; i < n; i++) {
		objects[i] =
			(struct trace_keep_object){(uintptr_t)late[i].object, env_ticks_to_tsc(late[i].start_ticks)};
	}
	free(late);
	return n;
}

/* Keeps the events of the oldest requests if the rings are shorter than the limit. Returns after how many microseconds
 * that has to be repeated, or UINT64_MAX. */
static uint64_t watch_keep_aside(void)
{
	struct trace_keep_object objects[TRACE_KEEP_OBJECTS];
	uint64_t ring_us = blackbox_ring_us();
	uint64_t keep_us = blackbox_keep_us(blackbox_max_copy_limit_us(triggers, AGES), ring_us);

	watch_warn_of_short_rings(ring_us);
	trace_keep(objects, keep_us != UINT64_MAX ? watch_list_oldest(keep_us, objects) : 0);
	return keep_us;
}

static void watch_check_ages(void *arg)
{
	struct nvmf_inflight *late = calloc(MAX_LATE, sizeof(*late));
	uint64_t keep_us = watch_keep_aside();

	for (struct nvmf_tgt *tgt = nvmf_tgt_next(NULL); late != NULL && tgt != NULL; tgt = nvmf_tgt_next(tgt)) {
		size_t n = nvmf_tgt_get_late(tgt, env_us_to_ticks(ages_limit_us), MAX_LATE, late);
		if (n > 0) {
			qsort(late, n, sizeof(*late), watch_compare_ages);
		}
		for (size_t i = 0; i < n; i++) {
			watch_check_request(&late[i]);
		}
	}
	free(late);
	keep_us = keep_us > BLACKBOX_PERIOD_MIN_US ? keep_us : BLACKBOX_PERIOD_MIN_US;
	thread_timer_start(&ages_timer, keep_us < ages_period_us ? keep_us : ages_period_us);
}

/* ---- Reactors that do not poll ---- */

static void watch_log_stall(const struct reactor_progress *p, uint64_t us)
{
	struct trace_file_cause cause = {.lcore = (int32_t)p->lcore,
					 .object_start_tsc = env_ticks_to_tsc(p->round_ticks)};

	snprintf(cause.owner, sizeof(cause.owner), "reactor_%u", p->lcore);
	snprintf(cause.text, sizeof(cause.text),
		 "the reactor on lcore %u (OS thread %d) has not polled for %llu us: it is held in a "
		 "function, or does not get its CPU",
		 p->lcore, p->tid, (unsigned long long)us);
	blackbox_fire(BLACKBOX_REACTOR_STALL, us, &cause);
}

static void watch_check_reactors(void)
{
	uint64_t now_us = blackbox_now_us();
	struct reactor_progress p;

	for (uint32_t i = 0; i < MAX_REACTORS && reactor_get_progress(i, &p) == 0; i++) {
		uint64_t us = blackbox_stall_us(&seen[i], p.round_ticks, p.sleeping, now_us);
		if (us >= stalls_limit_us) {
			watch_log_stall(&p, us);
		}
	}
}

/* Called while the control thread waits for a reactor, perhaps for the one that is stuck: the control loop, which runs
 * the timer, does not run then. */
static void watch_check_while_waiting(void)
{
	watch_check_reactors();
	blackbox_copy_complete();
}

static void watch_check_stalls(void *arg)
{
	watch_check_reactors();
	thread_timer_start(&stalls_timer, stalls_period_us);
}

/* ---- I/O errors ---- */

static void watch_on_bdev_error(const struct bdev_error *e);

/* Microseconds until an error may fire a trigger again; UINT64_MAX: there is no such trigger. */
static uint64_t watch_errors_wanted_in_us(void)
{
	uint64_t now_us = blackbox_now_us(), in_us = UINT64_MAX;
	const struct blackbox_trigger *t;

	TAILQ_FOREACH (t, triggers, link) {
		if (t->opts.type == BLACKBOX_IO_ERROR) {
			uint64_t wait =
				blackbox_trigger_ready(t, now_us) ? 0 : t->last_us + t->opts.holdoff_us - now_us;
			in_us = wait < in_us ? wait : in_us;
		}
	}
	return in_us;
}

static void watch_arm_errors(void *arg)
{
	uint64_t in_us = watch_errors_wanted_in_us();

	thread_timer_stop(&errors_timer);
	bdev_report_next_error(in_us == 0 ? watch_on_bdev_error : NULL);
	if (in_us != 0 && in_us != UINT64_MAX) {
		thread_timer_start(&errors_timer, in_us);
	}
}

static void watch_on_bdev_error(const struct bdev_error *e)
{
	struct trace_file_cause cause = {
		.lcore = -1,
		.object_type = TRACE_OBJECT_BDEV_IO,
		.object_id = (uintptr_t)e->io,
		.object_start_tsc = env_ticks_to_tsc(e->submit_ticks),
		.status = e->status,
	};
	const char *type = bdev_io_type_name(e->type);

	snprintf(cause.owner, sizeof(cause.owner), "%s", e->bdev);
	snprintf(cause.state, sizeof(cause.state), "DONE");
	snprintf(cause.text, sizeof(cause.text),
		 "bdev %s: %s of %llu blocks at %llu failed with status 0x%03x (type %u, code 0x%02x) after "
		 "%llu us",
		 e->bdev, type != NULL ? type : "?", (unsigned long long)e->num_blocks,
		 (unsigned long long)e->offset_blocks, e->status, e->status >> 8, e->status & 0xff,
		 (unsigned long long)watch_ticks_to_us(e->done_ticks > e->submit_ticks ? e->done_ticks - e->submit_ticks
										       : 0));
	blackbox_fire(BLACKBOX_IO_ERROR, 0, &cause);
	watch_arm_errors(NULL);
}

/* ---- Queue pairs and hosts ---- */

static void watch_on_nvmf_fault(const struct nvmf_fault *f)
{
	bool silent = f->kind == NVMF_FAULT_KEEP_ALIVE;
	struct trace_file_cause cause = {.lcore = -1, .object_id = (uintptr_t)f->qpair};
	uint64_t us = silent ? watch_ticks_to_us(f->silent_ticks) : 0;

	snprintf(cause.owner, sizeof(cause.owner), "%s", f->hostnqn);
	if (silent) {
		snprintf(cause.text, sizeof(cause.text),
			 "%.160s, controller %u of %.160s, was silent for %llu us; its keep-alive timeout is "
			 "%llu us",
			 f->hostnqn, f->cntlid, f->subnqn, (unsigned long long)us,
			 (unsigned long long)watch_ticks_to_us(f->limit_ticks));
	} else {
		snprintf(cause.text, sizeof(cause.text), "queue %u of %.160s, controller %u of %.160s, broke: %.120s",
			 f->qid, f->hostnqn[0] != '\0' ? f->hostnqn : "an unknown host", f->cntlid, f->subnqn, f->why);
	}
	blackbox_fire(silent ? BLACKBOX_KEEP_ALIVE_LOSS : BLACKBOX_QPAIR_ERROR, us, &cause);
}

/* ---- What is watched ---- */

static void watch_timer_update(struct thread_timer *timer, thread_fn fn, uint64_t limit_us, uint64_t *kept_limit_us,
			       uint64_t *period_us)
{
	thread_timer_stop(timer);
	*kept_limit_us = limit_us;
	if (limit_us != UINT64_MAX) {
		*period_us = blackbox_period_us(limit_us);
		timer->fn = fn;
		thread_timer_start(timer, *period_us);
	}
}

uint64_t blackbox_ring_us(void)
{
	uint64_t ticks = trace_ring_ticks();

	return ticks != UINT64_MAX ? watch_ticks_to_us(ticks) : UINT64_MAX;
}

void blackbox_watch_update(struct blackbox_triggers *list)
{
	const struct blackbox_trigger *t;
	bool faults = false;

	triggers = list;
	watch_timer_update(&ages_timer, watch_check_ages, blackbox_min_limit_us(list, AGES), &ages_limit_us,
			   &ages_period_us);
	watch_timer_update(&stalls_timer, watch_check_stalls, blackbox_min_limit_us(list, 1u << BLACKBOX_REACTOR_STALL),
			   &stalls_limit_us, &stalls_period_us);
	if (ages_limit_us == UINT64_MAX) {
		trace_keep_stop();
	} else {
		/* soon, since only a check finds out how often checks are needed */
		thread_timer_start(&ages_timer, BLACKBOX_PERIOD_MIN_US);
		watch_warn_of_short_rings(blackbox_ring_us());
	}
	memset(seen, 0, sizeof(seen));
	thread_set_wait_hook(stalls_limit_us != UINT64_MAX ? watch_check_while_waiting : NULL, stalls_period_us);
	errors_timer.fn = watch_arm_errors;
	watch_arm_errors(NULL);
	TAILQ_FOREACH (t, list, link) {
		faults |= t->opts.type == BLACKBOX_QPAIR_ERROR || t->opts.type == BLACKBOX_KEEP_ALIVE_LOSS;
	}
	nvmf_set_fault_fn(faults ? watch_on_nvmf_fault : NULL);
}

void blackbox_watch_stop(void)
{
	thread_timer_stop(&ages_timer);
	trace_keep_stop();
	thread_timer_stop(&stalls_timer);
	thread_timer_stop(&errors_timer);
	thread_set_wait_hook(NULL, 0);
	bdev_report_next_error(NULL);
	nvmf_set_fault_fn(NULL);
}
