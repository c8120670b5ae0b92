/* SPDX-License-Identifier: BSD-3-Clause */
/* Targets: their controllers, and which streams are connected to them. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "env_dpdk/env.h"
#include "tools/perf/perf.h"
#include "util/log.h"

#define OPENING_MAX 32 /* queue pairs that are being connected at a time: a target's listener has a backlog */

void perf_for_each_stream(struct perf *p, void (*fn)(struct perf_stream *s, void *arg), void *arg)
{
	for (unsigned i = 0; i < p->num_workers; i++) {
		struct perf_stream *s;
		TAILQ_FOREACH (s, &p->workers[i].streams, link) {
			fn(s, arg);
		}
	}
}

bool perf_any_target_failed(const struct perf *p)
{
	for (unsigned i = 0; i < p->opts.num_targets; i++) {
		if (p->targets[i].failed) {
			return true;
		}
	}
	return false;
}

/* ---- Their streams ---- */

static void perf_stream_want_if_of(struct perf_stream *s, void *target)
{
	s->wanted |= s->target == target;
}

static void perf_count_opening(struct perf_stream *s, void *n)
{
	*(unsigned *)n += s->opening;
}

static void perf_stream_open_in_turn(struct perf_stream *s, void *n)
{
	if (s->wanted && *(unsigned *)n < OPENING_MAX) {
		++*(unsigned *)n;
		perf_stream_open(s);
	}
}

void perf_open_some_streams(struct perf *p)
{
	unsigned n = 0;

	perf_for_each_stream(p, perf_count_opening, &n);
	perf_for_each_stream(p, perf_stream_open_in_turn, &n);
}

static void perf_stream_close_if_of(struct perf_stream *s, void *target)
{
	if (s->target == target) {
		perf_stream_close(s);
	}
}

static void perf_target_on_event(struct nvme_ctrlr *ctrlr, enum nvme_event event, uint32_t aer, void *arg)
{
	struct perf_target *t = arg;

	switch (event) {
	case NVME_EVENT_READY:
		t->ready = true;
		perf_for_each_stream(t->perf, perf_stream_want_if_of, t);
		perf_open_some_streams(t->perf);
		break;
	case NVME_EVENT_DOWN:
		thread_timer_stop(&t->refused_timer);
		t->ready = false;
		t->reconnects++;
		perf_for_each_stream(t->perf, perf_stream_close_if_of, t);
		break;
	case NVME_EVENT_FAILED:
	case NVME_EVENT_REMOVED:
		t->failed = true;
		perf_for_each_stream(t->perf, perf_stream_close_if_of, t);
		break;
	default:
		break;
	}
}

/* ---- Queue pairs that are refused ---- */

#define REFUSED_RETRY_S 1
#define REFUSED_APART_S 10 /* that long without one: those before do not count any more */

static void perf_target_reset(void *arg)
{
	struct perf_target *t = arg;

	if (t->ready && !t->closed) {
		nvme_ctrlr_reset(t->ctrlr); /* or it is being reset already */
	}
}

void perf_target_refuses_queue(struct perf_target *t, int error)
{
	int32_t limit_s = t->opts->loss_timeout_s;

	log_error("a queue pair could not be connected: %s", strerror(-error));
	if (t->refused_timer.running) {
		return;
	}
	if (env_ticks() - t->refused_ticks > REFUSED_APART_S * env_ticks_hz()) {
		t->refusals = 0;
	}
	t->refused_ticks = env_ticks();
	if (t->reconnects == 0 || (limit_s >= 0 && t->refusals * REFUSED_RETRY_S >= (uint32_t)limit_s)) {
		t->failed = true;
		return;
	}
	t->refusals++;
	thread_timer_start(&t->refused_timer, REFUSED_RETRY_S * UINT64_C(1000000));
}

/* ---- Connecting ---- */

static bool perf_targets_are_settled(void *arg)
{
	struct perf *p = arg;

	for (unsigned i = 0; i < p->opts.num_targets; i++) {
		if (!p->targets[i].ready && !p->targets[i].failed) {
			return false;
		}
	}
	return true;
}

static bool perf_create_ctrlrs(struct perf *p, struct nvme_ctrlr_opts *o)
{
	char error[NVME_ERROR_MAX];

	for (unsigned i = 0; i < p->opts.num_targets; i++) {
		struct perf_target *t = &p->targets[i];

		*t = (struct perf_target){.perf = p, .opts = &p->opts, .index = i};
		t->refused_timer = (struct thread_timer){.fn = perf_target_reset, .arg = t};
		o->event_arg = t;
		t->ctrlr = nvme_ctrlr_create(&p->opts.targets[i], o, error);
		if (t->ctrlr == NULL) {
			fprintf(stderr, "varve-perf: %s\n", error);
			return false;
		}
	}
	return true;
}

#define MOST_QUEUES 1024

/* How many queue pairs to ask a controller for, before it has told how many namespaces it has. A fabrics controller
 * spends nothing on those that are not connected; a drive is not asked for more than 16 namespaces may need. */
static uint16_t perf_queues_to_ask_for(const struct perf *p)
{
	uint32_t each = p->opts.qpairs * p->num_workers;

	if (p->opts.nsid == 0) {
		each = perf_any_drive(&p->opts) ? each * 16 : MOST_QUEUES;
	}
	return (uint16_t)(each < MOST_QUEUES ? each : MOST_QUEUES);
}

bool perf_connect_targets(struct perf *p)
{
	struct nvme_ctrlr_opts o;

	nvme_ctrlr_opts_default(&o);
	snprintf(o.hostnqn, sizeof(o.hostnqn), "%s", p->opts.hostnqn);
	o.hostid[0] = 0x76; /* a host of its own; never all zeroes (Base 5.27.1.21) */
	memcpy(o.hostid + 8, &(pid_t){getpid()}, sizeof(pid_t));
	o.keep_alive_ms = p->opts.keep_alive_ms;
	o.loss_timeout_s = p->opts.loss_timeout_s;
	o.reconnect_delay_s = 1;
	o.tcp_header_digest = p->opts.hdgst;
	o.tcp_data_digest = p->opts.ddgst;
	o.io_queues = perf_queues_to_ask_for(p);
	o.event = perf_target_on_event;
	bool created = perf_keys_get(&o, &p->opts) && perf_create_ctrlrs(p, &o);
	perf_keys_put(&o);
	if (!created) {
		return false;
	}
	thread_control_wait(perf_targets_are_settled, p, 60 * UINT64_C(1000000));
	for (unsigned i = 0; i < p->opts.num_targets; i++) {
		if (!p->targets[i].ready) {
			p->targets[i].told = true;
			fprintf(stderr, "varve-perf: %s %s: %s\n", p->opts.targets[i].traddr, p->opts.targets[i].subnqn,
				nvme_ctrlr_last_error(p->targets[i].ctrlr));
			return false;
		}
	}
	return true;
}

/* ---- The end ---- */

static void perf_target_on_gone(void *arg)
{
	((struct perf_target *)arg)->ctrlr = NULL;
}

static bool perf_targets_are_gone(void *arg)
{
	struct perf *p = arg;

	for (unsigned i = 0; i < p->opts.num_targets; i++) {
		if (p->targets[i].ctrlr != NULL) {
			return false;
		}
	}
	return true;
}

void perf_close_streams_of(struct perf *p, struct perf_target *target)
{
	perf_for_each_stream(p, perf_stream_close_if_of, target);
}

void perf_close_targets(struct perf *p)
{
	for (unsigned i = 0; i < p->opts.num_targets; i++) {
		p->targets[i].closed = true;
		thread_timer_stop(&p->targets[i].refused_timer);
		perf_close_streams_of(p, &p->targets[i]);
		if (p->targets[i].ctrlr != NULL) {
			nvme_ctrlr_destroy(p->targets[i].ctrlr, perf_target_on_gone, &p->targets[i]);
		}
	}
	if (!thread_control_wait(perf_targets_are_gone, p, PERF_SETTLE_US)) {
		fprintf(stderr, "varve-perf: a controller did not shut down in time\n");
	}
}
