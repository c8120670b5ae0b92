/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls all parts; has those that belong to no other file: the daemon, state machines, buffers, the recorder. */
#include "appliance/metrics_collect.h"

#include "appliance/app.h"
#include "appliance/blackbox.h"
#include "appliance/metrics.h"
#include "env_dpdk/iobuf.h"
#include "trace/trace.h"
#include "util/build_id.h"
#include "util/state_machine.h"

/* ---- The daemon ---- */

static void collect_appliance(struct metrics_text *m)
{
	metrics_family(m, "varve_info", METRICS_GAUGE, "What runs; always 1.");
	metrics_uint(m, 1, "version", VARVE_VERSION, "build_id", build_id(), NULL);
	metrics_family(m, "varve_state", METRICS_GAUGE, "The state of the daemon's life cycle; always 1.");
	metrics_uint(m, 1, "state", appliance_state_name(app_state()), NULL);
	metrics_family(m, "varve_state_age_seconds", METRICS_GAUGE, "How long it has been in that state.");
	metrics_ns(m, app_state_age_us() * 1000, NULL);
}

static void collect_state_machines(struct metrics_text *m)
{
	metrics_family(m, "varve_state_violations_total", METRICS_COUNTER,
		       "Changes of state that must not be; each is a fault in varve, and in the log.");
	for (const struct state_machine *s = state_machine_next(NULL); s != NULL; s = state_machine_next(s)) {
		metrics_uint(m, state_machine_violations(s), "machine", s->name, NULL);
	}
}

/* ---- Buffers ---- */

#define BUFFER(name_, member_, help_)                                                                                  \
	METRIC("varve_buffer_" name_, METRICS_COUNTER, METRICS_PLAIN, struct iobuf_stat, member_, help_)
static const struct metric buffer_families[] = {
	BUFFER("gets_at_hand_total", cache, "Data buffers got from a thread's own."),
	BUFFER("gets_fetched_total", main, "Data buffers for which the main pool was asked."),
	BUFFER("waits_total", retry, "Requests that found no buffer, and waited."),
};

struct buffer_family {
	struct metrics_text *m;
	const struct metric *metric;
};

static void collect_module_buffers(void *arg, const char *module, const struct iobuf_stat *stat)
{
	static const char *const pools[IOBUF_CLASSES] = {[IOBUF_SMALL] = "small", [IOBUF_LARGE] = "large"};
	const struct buffer_family *f = arg;

	for (unsigned c = 0; c < IOBUF_CLASSES; c++) {
		metrics_sample(f->m, f->metric, &stat[c], "user", module, "pool", pools[c], NULL);
	}
}

static void collect_buffers(struct metrics_text *m)
{
	for (size_t f = 0; f < ARRAY_SIZE(buffer_families); f++) {
		struct buffer_family family = {.m = m, .metric = &buffer_families[f]};

		metrics_begin(m, &buffer_families[f]);
		iobuf_for_each_module(collect_module_buffers, &family);
	}
}

/* ---- The recorder ---- */

#define RING(name_, type_, member_, help_)                                                                             \
	METRIC("varve_trace_" name_, type_, METRICS_PLAIN, struct trace_slot_stats, member_, help_)
static const struct metric ring_families[] = {
	RING("slots_total", METRICS_COUNTER, recorded, "Slots of a trace ring that were recorded."),
	RING("overwritten_slots_total", METRICS_COUNTER, wrapped, "Those of them that were overwritten."),
	RING("ring_slots", METRICS_GAUGE, num_entries,
	     "Slots that the ring holds: with the rate of varve_trace_slots_total, the time that it spans."),
};

static void collect_trace_rings(struct metrics_text *m)
{
	struct trace_slot_stats s;
	char slot[COLLECT_NUMBER_MAX];

	for (size_t f = 0; f < ARRAY_SIZE(ring_families); f++) {
		metrics_begin(m, &ring_families[f]);
		for (unsigned i = 0; i < trace_num_slots(); i++) {
			if (trace_get_slot_stats(i, &s)) {
				metrics_sample(m, &ring_families[f], &s, "slot", collect_number(slot, i), "thread",
					       s.name, NULL);
			}
		}
	}
}

static void collect_trace(struct metrics_text *m)
{
	struct trace_file_loss loss;
	const struct blackbox_trigger *t;

	collect_trace_rings(m);
	trace_get_loss(&loss);
	metrics_family(m, "varve_trace_lost_events_total", METRICS_COUNTER, "Events of threads that have no ring.");
	metrics_uint(m, loss.no_slot, NULL);
	metrics_family(m, "varve_trace_triggers_fired_total", METRICS_COUNTER,
		       "How often a trigger of the black box fired.");
	TAILQ_FOREACH (t, blackbox_triggers(), link) {
		metrics_uint(m, t->fired, "trigger", t->opts.name, "type", blackbox_type_name(t->opts.type), NULL);
	}
}

void metrics_collect(struct metrics_text *m)
{
	collect_appliance(m);
	collect_state_machines(m);
	metrics_collect_reactors(m);
	metrics_collect_threads(m);
	metrics_collect_bdevs(m);
	metrics_collect_nvmf(m);
	collect_buffers(m);
	collect_trace(m);
}
