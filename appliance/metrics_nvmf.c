/* SPDX-License-Identifier: BSD-3-Clause */
/* Metrics of the target: subsystems, the hosts that are connected, poll groups, outstanding commands. */
#include <string.h>

#include "appliance/metrics_collect.h"
#include "nvmf/nvmf.h"
#include "nvmf/qos.h"
#include "util/log.h"

/* ---- Subsystems ---- */

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

/* ---- Controllers: the hosts that are connected ---- */

#define HOST(name_, type_, unit_, member_, help_)                                                                      \
	METRIC("varve_nvmf_host_" name_, type_, unit_, struct nvmf_ctrlr_info, member_, help_)
static const struct metric ctrlr_families[] = {
	HOST("io_queue_pairs", METRICS_GAUGE, METRICS_PLAIN, num_io_qpairs, "I/O queue pairs of a host's controller."),
	HOST("errors_total", METRICS_COUNTER, METRICS_PLAIN, errors, "Entries that were added to its error log."),
	HOST("keep_alive_timeout_seconds", METRICS_GAUGE, METRICS_MS, kato_ms, "Its keep-alive timeout; 0: none."),
};

static void collect_controller_family(struct metrics_text *m, const struct metric *family)
{
	struct nvmf_ctrlr_info info;
	char cntlid[COLLECT_NUMBER_MAX];

	metrics_begin(m, family);
	FOR_SUBSYSTEMS(tgt, s)
	{
		for (struct nvmf_ctrlr *c = nvmf_ctrlr_next(s, NULL); c != NULL; c = nvmf_ctrlr_next(s, c)) {
			nvmf_ctrlr_get_info(c, &info);
			metrics_sample(m, family, &info, "subsystem", nvmf_subsystem_nqn(s), "host", info.hostnqn,
				       "cntlid", collect_number(cntlid, info.cntlid), NULL);
		}
	}
}

/* ---- Hosts: latencies ---- */

static void collect_host_histogram(void *arg, const struct nvmf_host_latency_info *h)
{
	if (h->latency.histogram.counted != 0) { /* a series begins with its first command */
		metrics_histogram(arg, &h->latency.histogram, h->latency.ns, "subsystem", h->subnqn, "host", h->hostnqn,
				  NULL);
	}
}

static void collect_host_commands(void *arg, const struct nvmf_host_latency_info *h)
{
	metrics_uint(arg, h->commands, "subsystem", h->subnqn, "host", h->hostnqn, NULL);
}

static void collect_host_bytes(void *arg, const struct nvmf_host_latency_info *h)
{
	metrics_uint(arg, h->latency.bytes, "subsystem", h->subnqn, "host", h->hostnqn, NULL);
}

static void collect_host_latencies(struct metrics_text *m)
{
	static const struct {
		const char *name;
		enum metrics_type type;
		void (*fn)(void *arg, const struct nvmf_host_latency_info *h);
		const char *help;
	} families[] = {
		{"varve_nvmf_latency_seconds", METRICS_HISTOGRAM, collect_host_histogram,
		 "From the arrival of a host's I/O command to its response, by samples: each stands for the commands "
		 "before it. From the 257th host on: host=\"other\"."},
		{"varve_nvmf_host_commands_total", METRICS_COUNTER, collect_host_commands,
		 "I/O commands that were answered. From the 257th host on: host=\"other\"."},
		{"varve_nvmf_host_bytes_total", METRICS_COUNTER, collect_host_bytes,
		 "Bytes that they moved, estimated by samples. From the 257th host on: host=\"other\"."},
	};

	for (size_t i = 0; i < ARRAY_SIZE(families); i++) {
		metrics_family(m, families[i].name, families[i].type, families[i].help);
		for (struct nvmf_tgt *tgt = nvmf_tgt_next(NULL); tgt != NULL; tgt = nvmf_tgt_next(tgt)) {
			nvmf_tgt_for_each_host_latency(tgt, families[i].fn, m);
		}
	}
}

/* ---- Hosts: rate limits ---- */

static void collect_limit_family(struct metrics_text *m, bool time)
{
	struct rate_counts counts;

	FOR_SUBSYSTEMS(tgt, s)
	{
		for (const struct nvmf_qos *q = nvmf_qos_next(s, NULL); q != NULL; q = nvmf_qos_next(s, q)) {
			const char *host = nvmf_qos_host(q) != NULL ? nvmf_qos_host(q) : "";
			nvmf_qos_get_counts(q, &counts);
			if (time) {
				metrics_ns(m, counts.waited_us * 1000, "subsystem", nvmf_subsystem_nqn(s), "host", host,
					   NULL);
			} else {
				metrics_uint(m, counts.waits, "subsystem", nvmf_subsystem_nqn(s), "host", host, NULL);
			}
		}
	}
}

static void collect_limit_kinds(struct metrics_text *m, bool bytes)
{
	struct rate_counts counts;

	FOR_SUBSYSTEMS(tgt, s)
	{
		for (const struct nvmf_qos *q = nvmf_qos_next(s, NULL); q != NULL; q = nvmf_qos_next(s, q)) {
			const char *host = nvmf_qos_host(q) != NULL ? nvmf_qos_host(q) : "";
			nvmf_qos_get_counts(q, &counts);
			const uint64_t *n = bytes ? counts.bytes : counts.ios;
			metrics_uint(m, n[RATE_READS], "subsystem", nvmf_subsystem_nqn(s), "host", host, "op", "read",
				     NULL);
			metrics_uint(m, n[RATE_WRITES], "subsystem", nvmf_subsystem_nqn(s), "host", host, "op", "write",
				     NULL);
		}
	}
}

static void collect_limits(struct metrics_text *m)
{
	metrics_family(m, "varve_nvmf_limit_ios_total", METRICS_COUNTER,
		       "Commands that the rate limits of a host or, host=\"\", of all hosts together let through.");
	collect_limit_kinds(m, false);
	metrics_family(m, "varve_nvmf_limit_bytes_total", METRICS_COUNTER, "Their bytes.");
	collect_limit_kinds(m, true);
	metrics_family(
		m, "varve_nvmf_limit_waits_total", METRICS_COUNTER,
		"Commands that had to wait for a rate limit of their host or, host=\"\", of all hosts together.");
	collect_limit_family(m, false);
	metrics_family(m, "varve_nvmf_limit_waited_seconds_total", METRICS_COUNTER,
		       "How long those that went on have waited.");
	collect_limit_family(m, true);
}

/* ---- Poll groups ---- */

struct one_group {
	const char *name;
	struct nvmf_poll_group_stats stats;
};

#define GROUP(name_, type_, member_, help_)                                                                            \
	METRIC("varve_nvmf_" name_, type_, METRICS_PLAIN, struct nvmf_poll_group_stats, member_, help_)
static const struct metric group_families[] = {
	GROUP("commands_total", METRICS_COUNTER, completed_nvme_io, "I/O commands that were answered."),
	GROUP("failed_commands_total", METRICS_COUNTER, failed_nvme_io, "Those of them that failed."),
	GROUP("held_commands", METRICS_GAUGE, pending_bdev_io, "Commands held back by a paused subsystem."),
};
static const struct metric transport_buffer_waits =
	METRIC("varve_nvmf_buffer_waits_total", METRICS_COUNTER, METRICS_PLAIN, struct nvmf_transport_stats,
	       pending_data_buffer, "Commands that found no data buffer free.");

static void collect_group_families(struct metrics_text *m, const struct one_group *g, size_t n)
{
	metrics_family(m, "varve_nvmf_queue_pairs", METRICS_GAUGE, "Connected queue pairs of a poll group.");
	for (size_t i = 0; i < n; i++) {
		metrics_uint(m, g[i].stats.current_admin_qpairs, "group", g[i].name, "kind", "admin", NULL);
		metrics_uint(m, g[i].stats.current_io_qpairs, "group", g[i].name, "kind", "io", NULL);
	}
	for (size_t f = 0; f < ARRAY_SIZE(group_families); f++) {
		metrics_begin(m, &group_families[f]);
		for (size_t i = 0; i < n; i++) {
			metrics_sample(m, &group_families[f], &g[i].stats, "group", g[i].name, NULL);
		}
	}
	metrics_begin(m, &transport_buffer_waits);
	for (size_t i = 0; i < n; i++) {
		for (unsigned t = 0; t < g[i].stats.num_transports; t++) {
			const struct nvmf_transport_stats *ts = &g[i].stats.transports[t];
			metrics_sample(m, &transport_buffer_waits, ts, "group", g[i].name, "transport", ts->trtype,
				       NULL);
		}
	}
}

static void collect_device_counter(struct metrics_text *m, const struct one_group *g, size_t n, const char *metric)
{
	for (size_t i = 0; i < n; i++) {
		for (unsigned t = 0; t < g[i].stats.num_transports; t++) {
			const struct nvmf_transport_stats *ts = &g[i].stats.transports[t];
			unsigned c = nvmf_transport_counter_of_metric(ts->trtype, metric);
			for (unsigned d = 0; c < NVMF_DEVICE_COUNTERS_MAX && d < ts->num_devices; d++) {
				metrics_uint(m, ts->devices[d].counters[c], "group", g[i].name, "transport", ts->trtype,
					     "device", ts->devices[d].name, NULL);
			}
		}
	}
}

/* Whether a transport before number t of the types has a metric of that name: its family is written. */
static bool collect_has_metric_before(unsigned t, const char *metric)
{
	while (t-- != 0) {
		if (nvmf_transport_counter_of_metric(nvmf_transport_type(t), metric) < NVMF_DEVICE_COUNTERS_MAX) {
			return true;
		}
	}
	return false;
}

/* A family for each counter that a transport declares as a metric. */
static void collect_group_devices(struct metrics_text *m, const struct one_group *g, size_t n)
{
	const struct nvmf_device_counter *counter;
	const char *type;
	char name[128];

	for (unsigned t = 0; (type = nvmf_transport_type(t)) != NULL; t++) {
		for (unsigned c = 0; (counter = nvmf_transport_counter(type, c)) != NULL; c++) {
			if (counter->metric == NULL || collect_has_metric_before(t, counter->metric)) {
				continue;
			}
			snprintf(name, sizeof(name), "varve_nvmf_device_%s", counter->metric);
			metrics_family(m, name, METRICS_COUNTER, counter->help);
			collect_device_counter(m, g, n, counter->metric);
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

static const struct metric request_families[] = {
	METRIC("varve_nvmf_requests", METRICS_GAUGE, METRICS_PLAIN, struct state_count, count,
	       "Outstanding commands by state."),
	METRIC("varve_nvmf_request_oldest_seconds", METRICS_GAUGE, METRICS_TICKS, struct state_count, oldest_ticks,
	       "Age of the oldest command in that state."),
	METRIC("varve_nvmf_request_longest_state_seconds", METRICS_GAUGE, METRICS_TICKS, struct state_count,
	       longest_ticks, "How long the one that has been in that state for longest has been."),
};

static void collect_request_states(struct metrics_text *m, const struct state_count *s, size_t n)
{
	for (size_t f = 0; f < ARRAY_SIZE(request_families); f++) {
		metrics_begin(m, &request_families[f]);
		for (size_t i = 0; i < n; i++) {
			metrics_sample(m, &request_families[f], &s[i], "state", s[i].state, NULL);
		}
	}
}

static void collect_requests(struct metrics_text *m)
{
	struct state_count states[MAX_STATES] = {0};
	struct nvmf_inflight *list = NULL;
	struct nvmf_tgt *tgt = nvmf_tgt_next(NULL);
	/* The first target is the default one; only tests make others. */
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

void metrics_collect_nvmf(struct metrics_text *m)
{
	collect_subsystems(m);
	for (size_t f = 0; f < ARRAY_SIZE(ctrlr_families); f++) {
		collect_controller_family(m, &ctrlr_families[f]);
	}
	collect_host_latencies(m);
	collect_limits(m);
	collect_groups(m);
	collect_requests(m);
}
