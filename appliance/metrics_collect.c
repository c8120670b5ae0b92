/* SPDX-License-Identifier: BSD-3-Clause */
/* What is told, room by room. A family's samples must stand together, so a room's objects are collected first, and then
 * written once per family. Names and units follow the conventions of Prometheus: seconds and bytes, _total for what
 * only grows. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "appliance/app.h"
#include "appliance/blackbox.h"
#include "appliance/metrics.h"
#include "bdev/bdev.h"
#include "env_dpdk/env.h"
#include "env_dpdk/iobuf.h"
#include "nvmf/nvmf.h"
#include "thread/thread.h"
#include "trace/trace.h"
#include "util/build_id.h"

#define NUMBER_MAX 24

static const char *collect_number(char to[NUMBER_MAX], uint64_t value)
{
	snprintf(to, NUMBER_MAX, "%" PRIu64, value);
	return to;
}

/* n objects; NULL when there are none, or no memory. */
static void *collect_array(size_t n, size_t size)
{
	return n > 0 ? calloc(n, size) : NULL;
}

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

/* ---- Reactors and threads ---- */

static void collect_reactors(struct metrics_text *m)
{
	struct reactor_stats *list = collect_array(env_lcore_count(), sizeof(*list));
	char(*lcore)[NUMBER_MAX] = collect_array(env_lcore_count(), sizeof(*lcore));
	unsigned n = 0, id;

	if (list == NULL || lcore == NULL) {
		free(list);
		free(lcore);
		return;
	}
	ENV_FOREACH_LCORE (id) {
		if (n < env_lcore_count() && reactor_get_stats(id, &list[n]) == 0) {
			collect_number(lcore[n++], id);
		}
	}
	metrics_family(m, "varve_reactor_busy_seconds_total", METRICS_COUNTER, "Time in which the reactor found work.");
	for (unsigned i = 0; i < n; i++) {
		metrics_ns(m, env_ticks_to_ns(list[i].busy_ticks), "lcore", lcore[i], NULL);
	}
	metrics_family(m, "varve_reactor_idle_seconds_total", METRICS_COUNTER,
		       "Time in which it found none, or slept.");
	for (unsigned i = 0; i < n; i++) {
		metrics_ns(m, env_ticks_to_ns(list[i].idle_ticks), "lcore", lcore[i], NULL);
	}
	metrics_family(m, "varve_reactor_system_seconds_total", METRICS_COUNTER, "Time of its thread in the kernel.");
	for (unsigned i = 0; i < n; i++) {
		metrics_ns(m, env_ticks_to_ns(list[i].sys_ticks), "lcore", lcore[i], NULL);
	}
	metrics_family(m, "varve_reactor_interrupt_seconds_total", METRICS_COUNTER, "Time of its core in interrupts.");
	for (unsigned i = 0; i < n; i++) {
		metrics_ns(m, env_ticks_to_ns(list[i].irq_ticks), "lcore", lcore[i], NULL);
	}
	metrics_family(m, "varve_reactor_sleeps_total", METRICS_COUNTER, "How often it went to sleep.");
	for (unsigned i = 0; i < n; i++) {
		metrics_uint(m, list[i].sleeps, "lcore", lcore[i], NULL);
	}
	metrics_family(m, "varve_reactor_sleeping", METRICS_GAUGE, "1 if it was asleep when it was asked.");
	for (unsigned i = 0; i < n; i++) {
		metrics_uint(m, list[i].sleeping, "lcore", lcore[i], NULL);
	}
	free(list);
	free(lcore);
}

struct one_thread {
	struct thread_stats stats;
	struct poller_stats *pollers;
	int n_pollers;
	char id[NUMBER_MAX];
};

static void collect_thread_families(struct metrics_text *m, const struct one_thread *t, size_t n)
{
	metrics_family(m, "varve_thread_busy_seconds_total", METRICS_COUNTER, "Time in which the thread had work.");
	for (size_t i = 0; i < n; i++) {
		metrics_ns(m, env_ticks_to_ns(t[i].stats.busy_ticks), "thread", t[i].stats.name, "id", t[i].id, NULL);
	}
	metrics_family(m, "varve_thread_idle_seconds_total", METRICS_COUNTER, "Time in which it had none.");
	for (size_t i = 0; i < n; i++) {
		metrics_ns(m, env_ticks_to_ns(t[i].stats.idle_ticks), "thread", t[i].stats.name, "id", t[i].id, NULL);
	}
	metrics_family(m, "varve_thread_pending_messages", METRICS_GAUGE, "Messages that it has not run yet.");
	for (size_t i = 0; i < n; i++) {
		metrics_uint(m, t[i].stats.pending_messages, "thread", t[i].stats.name, "id", t[i].id, NULL);
	}
	metrics_family(m, "varve_thread_channels", METRICS_GAUGE, "Its channels to devices.");
	for (size_t i = 0; i < n; i++) {
		metrics_uint(m, t[i].stats.channels, "thread", t[i].stats.name, "id", t[i].id, NULL);
	}
}

/* Where it runs, and how much it has to look after. */
static void collect_thread_places(struct metrics_text *m, const struct one_thread *t, size_t n)
{
	metrics_family(m, "varve_thread_lcore", METRICS_GAUGE,
		       "The reactor that it is on; the control thread is on none.");
	for (size_t i = 0; i < n; i++) {
		if (t[i].stats.lcore != ENV_LCORE_NONE) {
			metrics_uint(m, t[i].stats.lcore, "thread", t[i].stats.name, "id", t[i].id, NULL);
		}
	}
	metrics_family(m, "varve_thread_pollers", METRICS_GAUGE, "Its pollers by kind.");
	for (size_t i = 0; i < n; i++) {
		const struct thread_stats *s = &t[i].stats;
		metrics_uint(m, (uint64_t)s->active_pollers, "thread", s->name, "id", t[i].id, "kind", "active", NULL);
		metrics_uint(m, (uint64_t)s->timed_pollers, "thread", s->name, "id", t[i].id, "kind", "timed", NULL);
		metrics_uint(m, (uint64_t)s->paused_pollers, "thread", s->name, "id", t[i].id, "kind", "paused", NULL);
	}
	metrics_family(m, "varve_thread_timers", METRICS_GAUGE, "Its timers.");
	for (size_t i = 0; i < n; i++) {
		metrics_uint(m, (uint64_t)t[i].stats.timers, "thread", t[i].stats.name, "id", t[i].id, NULL);
	}
}

static void collect_poller_periods(struct metrics_text *m, const struct one_thread *t, size_t n)
{
	static const char *const kinds[] = {
		[POLLER_KIND_ACTIVE] = "active", [POLLER_KIND_TIMED] = "timed", [POLLER_KIND_PAUSED] = "paused"};
	char id[NUMBER_MAX];

	metrics_family(m, "varve_poller_period_seconds", METRICS_GAUGE,
		       "How often the poller is to run; 0: in every round.");
	for (size_t i = 0; i < n; i++) {
		for (int k = 0; k < t[i].n_pollers; k++) {
			const struct poller_stats *p = &t[i].pollers[k];
			metrics_ns(m, env_ticks_to_ns(p->period_ticks), "thread", t[i].stats.name, "thread_id", t[i].id,
				   "poller", p->name, "id", collect_number(id, p->id), "kind", kinds[p->kind], NULL);
		}
	}
}

static void collect_pollers(struct metrics_text *m, const struct one_thread *t, size_t n)
{
	static const struct {
		const char *name, *help;
	} families[] = {
		{"varve_poller_runs_total", "How often the poller ran."},
		{"varve_poller_busy_runs_total", "How often it found work."},
		{"varve_poller_seconds_total", "Time in it; for those that run in every round an estimate."},
	};

	for (unsigned f = 0; f < 3; f++) {
		metrics_family(m, families[f].name, METRICS_COUNTER, families[f].help);
		for (size_t i = 0; i < n; i++) {
			for (int k = 0; k < t[i].n_pollers; k++) {
				const struct poller_stats *p = &t[i].pollers[k];
				char id[NUMBER_MAX];
				collect_number(id, p->id);
				if (f == 2) {
					metrics_ns(m, env_ticks_to_ns(p->ticks), "thread", t[i].stats.name, "thread_id",
						   t[i].id, "poller", p->name, "id", id, NULL);
				} else {
					metrics_uint(m, f == 0 ? p->run_count : p->busy_count, "thread",
						     t[i].stats.name, "thread_id", t[i].id, "poller", p->name, "id", id,
						     NULL);
				}
			}
		}
	}
}

static void collect_threads(struct metrics_text *m)
{
	size_t room = 0, n = 0;

	for (struct thread *t = NULL; (t = thread_next(t)) != NULL;) {
		room++;
	}
	struct one_thread *list = collect_array(room, sizeof(*list));
	for (struct thread *t = NULL; list != NULL && n < room && (t = thread_next(t)) != NULL; n++) {
		thread_get_stats(t, &list[n].stats);
		list[n].n_pollers = thread_get_pollers(t, &list[n].pollers);
		collect_number(list[n].id, list[n].stats.id);
	}
	collect_thread_families(m, list, n);
	collect_thread_places(m, list, n);
	collect_pollers(m, list, n);
	collect_poller_periods(m, list, n);
	for (size_t i = 0; i < n; i++) {
		if (list[i].n_pollers > 0) {
			free(list[i].pollers);
		}
	}
	free(list);
}

/* ---- Block devices ---- */

struct one_bdev {
	struct bdev *b;
	struct bdev_stat stat;
};

static const char *const op_names[BDEV_STAT_CLASSES] = {
	[BDEV_STAT_OTHER] = "other", [BDEV_STAT_READ] = "read", [BDEV_STAT_WRITE] = "write",
	[BDEV_STAT_UNMAP] = "unmap", [BDEV_STAT_COPY] = "copy",
};

static void collect_bdev_ops(struct metrics_text *m, const struct one_bdev *list, size_t n)
{
	static const struct {
		const char *name, *help;
	} families[] = {
		{"varve_bdev_ios_total", "I/O that succeeded; unmap: and write zeroes."},
		{"varve_bdev_bytes_total", "Bytes that were moved."},
		{"varve_bdev_io_seconds_total", "Their latencies, added up."},
	};

	for (unsigned f = 0; f < 3; f++) {
		metrics_family(m, families[f].name, METRICS_COUNTER, families[f].help);
		for (size_t i = 0; i < n; i++) {
			for (unsigned c = 0; c < BDEV_STAT_CLASSES; c++) {
				const struct bdev_stat_ops *ops = &list[i].stat.class[c];
				const char *name = bdev_name(list[i].b);
				if (f == 2) {
					metrics_ns(m, env_ticks_to_ns(ops->ticks), "bdev", name, "op", op_names[c],
						   NULL);
				} else {
					metrics_uint(m, f == 0 ? ops->ops : ops->bytes, "bdev", name, "op", op_names[c],
						     NULL);
				}
			}
		}
	}
}

static void collect_bdev_errors(struct metrics_text *m, const struct one_bdev *list, size_t n)
{
	metrics_family(m, "varve_bdev_errors_total", METRICS_COUNTER,
		       "I/O that failed, by NVMe status (type and code, hexadecimal); other: of further kinds.");
	for (size_t i = 0; i < n; i++) {
		for (unsigned e = 0; e < BDEV_STAT_ERRORS; e++) {
			const struct bdev_stat_error *error = &list[i].stat.errors[e];
			char status[8];
			snprintf(status, sizeof(status), "%03x", error->status);
			if (error->count != 0) {
				metrics_uint(m, error->count, "bdev", bdev_name(list[i].b), "status",
					     e == BDEV_STAT_ERRORS - 1 ? "other" : status, NULL);
			}
		}
	}
}

static void collect_bdev_waits(struct metrics_text *m, const struct one_bdev *list, size_t n)
{
	metrics_family(m, "varve_bdev_waits_total", METRICS_COUNTER,
		       "I/O that had to wait: for the module's resources, a rate limit, or a piece of a split one.");
	for (size_t i = 0; i < n; i++) {
		const struct bdev_stat *s = &list[i].stat;
		const char *name = bdev_name(list[i].b);
		metrics_uint(m, s->nomem_waits, "bdev", name, "for", "resources", NULL);
		metrics_uint(m, s->qos_waits, "bdev", name, "for", "rate_limit", NULL);
		metrics_uint(m, s->child_waits, "bdev", name, "for", "piece", NULL);
	}
}

static void collect_bdevs(struct metrics_text *m)
{
	size_t room = 0, n = 0;

	for (struct bdev *b = bdev_next(NULL); b != NULL; b = bdev_next(b)) {
		room++;
	}
	struct one_bdev *list = collect_array(room, sizeof(*list));
	for (struct bdev *b = bdev_next(NULL); list != NULL && n < room && b != NULL; b = bdev_next(b), n++) {
		list[n].b = b;
		bdev_get_stat(b, &list[n].stat);
	}
	metrics_family(m, "varve_bdev_size_bytes", METRICS_GAUGE, "Size of the block device.");
	for (size_t i = 0; i < n; i++) {
		metrics_uint(m, bdev_num_blocks(list[i].b) * bdev_block_size(list[i].b), "bdev", bdev_name(list[i].b),
			     "product", bdev_product_name(list[i].b), NULL);
	}
	metrics_family(m, "varve_bdev_queue_depth", METRICS_GAUGE, "I/O in flight, that which waits included.");
	for (size_t i = 0; i < n; i++) {
		metrics_uint(m, list[i].stat.queue_depth, "bdev", bdev_name(list[i].b), NULL);
	}
	collect_bdev_ops(m, list, n);
	collect_bdev_errors(m, list, n);
	collect_bdev_waits(m, list, n);
	free(list);
}

/* ---- The target ---- */

#define FOR_SUBSYSTEMS(tgt_, s_)                                                                                       \
	for (struct nvmf_tgt *tgt_ = nvmf_tgt_next(NULL); tgt_ != NULL; tgt_ = nvmf_tgt_next(tgt_))                    \
		for (struct nvmf_subsystem *s_ = nvmf_subsystem_next(tgt_, NULL); s_ != NULL;                          \
		     s_ = nvmf_subsystem_next(tgt_, s_))

static uint64_t collect_count_namespaces(const struct nvmf_subsystem *s)
{
	uint64_t n = 0;

	for (struct nvmf_ns *ns = nvmf_ns_next(s, NULL); ns != NULL; ns = nvmf_ns_next(s, ns)) {
		n++;
	}
	return n;
}

static void collect_subsystems(struct metrics_text *m)
{
	metrics_family(m, "varve_nvmf_subsystem_state", METRICS_GAUGE, "The subsystem's state; always 1.");
	FOR_SUBSYSTEMS(tgt, s)
	{
		metrics_uint(m, 1, "target", nvmf_tgt_name(tgt), "subsystem", nvmf_subsystem_nqn(s), "state",
			     nvmf_subsystem_state_name(nvmf_subsystem_get_state(s)), NULL);
	}
	metrics_family(m, "varve_nvmf_subsystem_namespaces", METRICS_GAUGE, "Its namespaces.");
	FOR_SUBSYSTEMS(tgt, s)
	{
		metrics_uint(m, collect_count_namespaces(s), "target", nvmf_tgt_name(tgt), "subsystem",
			     nvmf_subsystem_nqn(s), NULL);
	}
}

/* The hosts that are connected: f(of a controller's info) once per family. */
static void collect_controllers(struct metrics_text *m)
{
	static const struct {
		const char *name, *help;
		enum metrics_type type;
	} families[] = {
		{"varve_nvmf_host_io_queue_pairs", "I/O queue pairs of a host's controller.", METRICS_GAUGE},
		{"varve_nvmf_host_errors_total", "Entries that were added to its error log.", METRICS_COUNTER},
		{"varve_nvmf_host_keep_alive_timeout_seconds", "Its keep-alive timeout; 0: none.", METRICS_GAUGE},
	};
	struct nvmf_ctrlr_info info;
	char cntlid[NUMBER_MAX];

	for (unsigned f = 0; f < 3; f++) {
		metrics_family(m, families[f].name, families[f].type, families[f].help);
		FOR_SUBSYSTEMS(tgt, s)
		{
			for (struct nvmf_ctrlr *c = nvmf_ctrlr_next(s, NULL); c != NULL; c = nvmf_ctrlr_next(s, c)) {
				nvmf_ctrlr_get_info(c, &info);
				collect_number(cntlid, info.cntlid);
				if (f == 2) {
					metrics_ns(m, info.kato_ms * UINT64_C(1000000), "subsystem",
						   nvmf_subsystem_nqn(s), "host", info.hostnqn, "cntlid", cntlid, NULL);
				} else {
					metrics_uint(m, f == 0 ? info.num_io_qpairs : info.errors, "subsystem",
						     nvmf_subsystem_nqn(s), "host", info.hostnqn, "cntlid", cntlid,
						     NULL);
				}
			}
		}
	}
}

struct one_group {
	const char *name;
	struct nvmf_poll_group_stats stats;
};

static void collect_group_families(struct metrics_text *m, const struct one_group *g, size_t n)
{
	metrics_family(m, "varve_nvmf_queue_pairs", METRICS_GAUGE, "Connected queue pairs of a poll group.");
	for (size_t i = 0; i < n; i++) {
		metrics_uint(m, g[i].stats.current_admin_qpairs, "group", g[i].name, "kind", "admin", NULL);
		metrics_uint(m, g[i].stats.current_io_qpairs, "group", g[i].name, "kind", "io", NULL);
	}
	metrics_family(m, "varve_nvmf_commands_total", METRICS_COUNTER, "I/O commands that were answered.");
	for (size_t i = 0; i < n; i++) {
		metrics_uint(m, g[i].stats.completed_nvme_io, "group", g[i].name, NULL);
	}
	metrics_family(m, "varve_nvmf_failed_commands_total", METRICS_COUNTER, "Those of them that failed.");
	for (size_t i = 0; i < n; i++) {
		metrics_uint(m, g[i].stats.failed_nvme_io, "group", g[i].name, NULL);
	}
	metrics_family(m, "varve_nvmf_held_commands", METRICS_GAUGE, "Commands held back by a paused subsystem.");
	for (size_t i = 0; i < n; i++) {
		metrics_uint(m, g[i].stats.pending_bdev_io, "group", g[i].name, NULL);
	}
	metrics_family(m, "varve_nvmf_buffer_waits_total", METRICS_COUNTER, "Commands that found no data buffer free.");
	for (size_t i = 0; i < n; i++) {
		for (unsigned t = 0; t < g[i].stats.num_transports; t++) {
			metrics_uint(m, g[i].stats.transports[t].pending_data_buffer, "group", g[i].name, "transport",
				     g[i].stats.transports[t].trtype, NULL);
		}
	}
}

static void collect_group_devices(struct metrics_text *m, const struct one_group *g, size_t n)
{
	static const struct {
		const char *name, *help;
		size_t offset;
	} families[] = {
#define DEVICE(name_, field_, help_) {"varve_nvmf_device_" name_, help_, offsetof(struct nvmf_device_stats, field_)}
		DEVICE("polls_total", polls, "How often the device's completion queue was polled."),
		DEVICE("idle_polls_total", idle_polls, "Polls that found nothing."),
		DEVICE("completions_total", completions, "Completions."),
		DEVICE("requests_total", requests, "Commands received."),
		DEVICE("read_waits_total", pending_rdma_read,
		       "Transfers from a host that waited for a credit or room."),
		DEVICE("write_waits_total", pending_rdma_write, "Answers that waited for room."),
		DEVICE("send_work_requests_total", total_send_wrs, "Work requests posted to send queues."),
		DEVICE("send_doorbells_total", send_doorbell_updates, "Posts that they took."),
#undef DEVICE
	};

	for (size_t f = 0; f < sizeof(families) / sizeof(families[0]); f++) {
		metrics_family(m, families[f].name, METRICS_COUNTER, families[f].help);
		for (size_t i = 0; i < n; i++) {
			for (unsigned t = 0; t < g[i].stats.num_transports; t++) {
				const struct nvmf_transport_stats *ts = &g[i].stats.transports[t];
				for (unsigned d = 0; d < ts->num_devices; d++) {
					uint64_t value;
					memcpy(&value, (const char *)&ts->devices[d] + families[f].offset,
					       sizeof(value));
					metrics_uint(m, value, "group", g[i].name, "transport", ts->trtype, "device",
						     ts->devices[d].name, NULL);
				}
			}
		}
	}
}

static void collect_groups(struct metrics_text *m)
{
	size_t room = 0, n = 0;

	for (struct nvmf_tgt *tgt = nvmf_tgt_next(NULL); tgt != NULL; tgt = nvmf_tgt_next(tgt)) {
		for (struct nvmf_poll_group *g = nvmf_poll_group_next(tgt, NULL); g != NULL;
		     g = nvmf_poll_group_next(tgt, g)) {
			room++;
		}
	}
	struct one_group *list = collect_array(room, sizeof(*list));
	for (struct nvmf_tgt *tgt = nvmf_tgt_next(NULL); list != NULL && tgt != NULL; tgt = nvmf_tgt_next(tgt)) {
		for (struct nvmf_poll_group *g = nvmf_poll_group_next(tgt, NULL); g != NULL && n < room;
		     g = nvmf_poll_group_next(tgt, g), n++) {
			list[n].name = nvmf_poll_group_name(g);
			nvmf_poll_group_get_stats(g, &list[n].stats);
		}
	}
	collect_group_families(m, list, n);
	collect_group_devices(m, list, n);
	free(list);
}

/* ---- What is outstanding, by state ---- */

#define MAX_STATES 64

struct state_count {
	const char *state;
	uint64_t count, oldest_ticks, longest_ticks;
};

static size_t collect_count_states(const struct nvmf_inflight *list, size_t n, struct state_count *states)
{
	size_t n_states = 0;

	for (size_t i = 0; i < n; i++) {
		const struct nvmf_inflight *f = &list[i];
		size_t k = 0;
		while (k < n_states && strcmp(states[k].state, f->state) != 0) {
			k++;
		}
		if (k == MAX_STATES) {
			continue;
		}
		n_states += k == n_states;
		struct state_count *s = &states[k];
		s->state = f->state;
		s->count++;
		s->oldest_ticks = f->age_ticks > s->oldest_ticks ? f->age_ticks : s->oldest_ticks;
		s->longest_ticks = f->state_age_ticks > s->longest_ticks ? f->state_age_ticks : s->longest_ticks;
	}
	return n_states;
}

static void collect_request_states(struct metrics_text *m, const struct state_count *s, size_t n)
{
	metrics_family(m, "varve_nvmf_requests", METRICS_GAUGE, "Outstanding commands by state.");
	for (size_t i = 0; i < n; i++) {
		metrics_uint(m, s[i].count, "state", s[i].state, NULL);
	}
	metrics_family(m, "varve_nvmf_request_oldest_seconds", METRICS_GAUGE,
		       "Age of the oldest command in that state.");
	for (size_t i = 0; i < n; i++) {
		metrics_ns(m, env_ticks_to_ns(s[i].oldest_ticks), "state", s[i].state, NULL);
	}
	metrics_family(m, "varve_nvmf_request_longest_state_seconds", METRICS_GAUGE,
		       "How long the one that has been in that state for longest has been.");
	for (size_t i = 0; i < n; i++) {
		metrics_ns(m, env_ticks_to_ns(s[i].longest_ticks), "state", s[i].state, NULL);
	}
}

static void collect_requests(struct metrics_text *m)
{
	struct state_count states[MAX_STATES] = {0};
	struct nvmf_inflight *list = NULL;
	struct nvmf_tgt *tgt = nvmf_tgt_next(NULL);
	/* The default target: others are a test's. */
	ssize_t got = tgt != NULL ? nvmf_tgt_get_inflight(tgt, &list) : 0;
	size_t n = (size_t)got;

	if (got < 0) {
		log_limited(LOG_LEVEL_WARNING, "metrics: no memory for the outstanding commands, which are left out");
		return;
	}
	collect_request_states(m, states, collect_count_states(list, n, states));
	if (tgt != NULL) {
		metrics_collect_qpairs(m, tgt, list, n);
	}
	free(list);
}

/* ---- Buffers ---- */

struct buffer_family {
	struct metrics_text *m;
	size_t offset; /* in struct iobuf_stat */
};

static void collect_module_buffers(void *arg, const char *module, const struct iobuf_stat *stat)
{
	static const char *const pools[IOBUF_CLASSES] = {[IOBUF_SMALL] = "small", [IOBUF_LARGE] = "large"};
	const struct buffer_family *f = arg;

	for (unsigned c = 0; c < IOBUF_CLASSES; c++) {
		uint64_t value;
		memcpy(&value, (const char *)&stat[c] + f->offset, sizeof(value));
		metrics_uint(f->m, value, "user", module, "pool", pools[c], NULL);
	}
}

static void collect_buffers(struct metrics_text *m)
{
	struct buffer_family f = {.m = m};

	metrics_family(m, "varve_buffer_gets_at_hand_total", METRICS_COUNTER, "Data buffers got from a thread's own.");
	f.offset = offsetof(struct iobuf_stat, cache);
	iobuf_for_each_module(collect_module_buffers, &f);
	metrics_family(m, "varve_buffer_gets_fetched_total", METRICS_COUNTER,
		       "Data buffers for which the main pool was asked.");
	f.offset = offsetof(struct iobuf_stat, main);
	iobuf_for_each_module(collect_module_buffers, &f);
	metrics_family(m, "varve_buffer_waits_total", METRICS_COUNTER, "Requests that found no buffer, and waited.");
	f.offset = offsetof(struct iobuf_stat, retry);
	iobuf_for_each_module(collect_module_buffers, &f);
}

/* ---- The recorder ---- */

static void collect_trace(struct metrics_text *m)
{
	struct trace_slot_stats s;
	struct trace_file_loss loss;
	const struct blackbox_trigger *t;
	char lcore[NUMBER_MAX];

	for (unsigned f = 0; f < 2; f++) {
		metrics_family(
			m, f == 0 ? "varve_trace_slots_total" : "varve_trace_overwritten_slots_total", METRICS_COUNTER,
			f == 0 ? "Slots of a trace ring that were recorded." : "Those of them that were overwritten.");
		for (unsigned i = 0; i < trace_num_slots(); i++) {
			if (trace_get_slot_stats(i, &s)) {
				metrics_uint(m, f == 0 ? s.recorded : s.wrapped, "slot", collect_number(lcore, i),
					     "thread", s.name, NULL);
			}
		}
	}
	metrics_family(m, "varve_trace_ring_slots", METRICS_GAUGE,
		       "Slots that the ring holds: with the rate of varve_trace_slots_total, the time that it spans.");
	for (unsigned i = 0; i < trace_num_slots(); i++) {
		if (trace_get_slot_stats(i, &s)) {
			metrics_uint(m, s.num_entries, "slot", collect_number(lcore, i), "thread", s.name, NULL);
		}
	}
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
	collect_reactors(m);
	collect_threads(m);
	collect_bdevs(m);
	collect_subsystems(m);
	collect_controllers(m);
	collect_groups(m);
	collect_requests(m);
	collect_buffers(m);
	collect_trace(m);
}
