/* SPDX-License-Identifier: BSD-3-Clause */
/* Views of I/O: block devices, subsystems, hosts, outstanding commands, buffers, the trace. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "tools/top/top.h"

#define N(columns_) (sizeof(columns_) / sizeof((columns_)[0]))

static const json_t *top_list_of(const struct top_sample *s, enum top_answer answer, const char *key)
{
	return s == NULL ? NULL : key != NULL ? json_object_get(s->answers[answer], key) : s->answers[answer];
}

static double top_sum(double a, double b)
{
	return a < 0 || b < 0 ? -1 : a + b;
}

/* ---- Block devices ---- */

static const struct top_column bdev_columns[] = {
	{"BDEV", "name", TOP_TEXT, 24},
	{"IOPS", "iops", TOP_RATE, 8},
	{"READ/s", "read_iops", TOP_RATE, 8},
	{"WRITE/s", "write_iops", TOP_RATE, 8},
	{"RD B/s", "read_bytes_per_s", TOP_BYTES, 8},
	{"WR B/s", "write_bytes_per_s", TOP_BYTES, 8},
	{"RD LAT", "read_latency_us", TOP_US, 9},
	{"WR LAT", "write_latency_us", TOP_US, 9},
	{"QD", "queue_depth", TOP_COUNT, 6},
	{"WAIT MEM/s", "resource_waits_per_s", TOP_RATE, 10},
	{"WAIT QOS/s", "rate_limit_waits_per_s", TOP_RATE, 10},
	{"QOS GROUP", "qos_group", TOP_TEXT, 16},
	{"ERRORS", "errors", TOP_COUNT, 8},
};

/* {bdev: the name of its group}. */
static json_t *top_qos_groups_by_bdev(const struct top_sample *now)
{
	json_t *by_bdev = json_object(), *group, *bdev;
	size_t i, j;

	json_array_foreach (now->answers[TOP_QOS_GROUPS], i, group) {
		json_array_foreach (json_object_get(group, "bdevs"), j, bdev) {
			const char *name = top_text(bdev, "name");
			if (name != NULL) {
				json_object_set(by_bdev, name, json_object_get(group, "name"));
			}
		}
	}
	return by_bdev;
}

static double top_count_errors(const json_t *bdev)
{
	const char *key;
	json_t *value, *errors = json_object_get(bdev, "io_error");
	double n = 0;

	json_object_foreach (errors, key, value) {
		n += json_number_value(value);
	}
	return n;
}

static void top_build_bdevs(struct top_table *t, const struct top_sample *now, const struct top_sample *before)
{
	const json_t *list = top_list_of(now, TOP_BDEVS, "bdevs"), *old = top_list_of(before, TOP_BDEVS, "bdevs"), *d;
	double seconds = top_seconds(now, before);
	json_t *groups = top_qos_groups_by_bdev(now);
	size_t i;

	json_array_foreach (list, i, d) {
		const json_t *b = top_same(old, d, "name");
		double reads = top_rate(d, b, "num_read_ops", seconds),
		       writes = top_rate(d, b, "num_write_ops", seconds);
		double other =
			top_sum(top_rate(d, b, "num_unmap_ops", seconds), top_rate(d, b, "num_copy_ops", seconds));
		struct top_row *row = top_table_row(t);
		top_set_text(row, 0, top_text(d, "name"));
		top_set(row, 1, top_sum(top_sum(reads, writes), other));
		top_set(row, 2, reads);
		top_set(row, 3, writes);
		top_set(row, 4, top_rate(d, b, "bytes_read", seconds));
		top_set(row, 5, top_rate(d, b, "bytes_written", seconds));
		top_set(row, 6, top_latency_us(d, b, "read_latency_ticks", "num_read_ops", now->tick_rate));
		top_set(row, 7, top_latency_us(d, b, "write_latency_ticks", "num_write_ops", now->tick_rate));
		top_set(row, 8, top_number(d, "in_flight"));
		top_set(row, 9, top_rate(d, b, "num_nomem_waits", seconds));
		top_set(row, 10, top_rate(d, b, "num_qos_waits", seconds));
		top_set_text(row, 11, top_text(d, "name") != NULL ? top_text(groups, top_text(d, "name")) : NULL);
		top_set(row, 12, top_count_errors(d));
	}
	json_decref(groups);
}

const struct top_view top_view_bdevs = {"bdevs", "Bdevs", bdev_columns, N(bdev_columns), 1, 1, top_build_bdevs};

/* ---- Subsystems ---- */

static const struct top_column subsystem_columns[] = {
	{"SUBSYSTEM", "nqn", TOP_TEXT, 44},       {"STATE", "state", TOP_TEXT, 9},
	{"SINCE", "state_us", TOP_US, 10},        {"NS", "namespaces", TOP_COUNT, 4},
	{"HOSTS", "controllers", TOP_COUNT, 6},   {"QPAIRS", "qpairs", TOP_COUNT, 6},
	{"INFLIGHT", "inflight", TOP_COUNT, 8},   {"OLDEST", "oldest_us", TOP_US, 10},
	{"LISTENERS", "listeners", TOP_COUNT, 9},
};

/* Counts the commands of a subsystem, or (q not NULL) of one of its queue pairs. Commands that wait for an event for
 * their host are not late. */
static void top_count_inflight(const struct top_sample *s, const char *nqn, const json_t *q, double *n,
			       double *oldest_us)
{
	const json_t *f;
	size_t i;

	*n = 0;
	*oldest_us = -1;
	json_array_foreach (s->answers[TOP_INFLIGHT], i, f) {
		const char *subnqn = top_text(f, "subnqn"), *state = top_text(f, "state");
		if (subnqn == NULL || strcmp(subnqn, nqn) != 0 ||
		    (q != NULL && (top_number(f, "cntlid") != top_number(q, "cntlid") ||
				   top_number(f, "qid") != top_number(q, "qid")))) {
			continue;
		}
		double age = state != NULL && strcmp(state, "HELD") == 0 ? -1 : top_number(f, "age_us");
		*n += 1;
		*oldest_us = age > *oldest_us ? age : *oldest_us;
	}
}

static void top_build_subsystems(struct top_table *t, const struct top_sample *now, const struct top_sample *before)
{
	const json_t *s;
	size_t i;

	json_array_foreach (top_list_of(now, TOP_SUBSYSTEMS, NULL), i, s) {
		const char *nqn = top_text(s, "nqn");
		double inflight, oldest;
		if (nqn == NULL) {
			continue;
		}
		top_count_inflight(now, nqn, NULL, &inflight, &oldest);
		struct top_row *row = top_table_row(t);
		top_set_text(row, 0, nqn);
		top_set_text(row, 1, top_text(s, "state"));
		top_set(row, 2, top_number(s, "state_us"));
		top_set(row, 3, (double)json_array_size(json_object_get(s, "namespaces")));
		top_set(row, 4, (double)json_array_size(json_object_get(now->controllers, nqn)));
		top_set(row, 5, (double)json_array_size(json_object_get(now->qpairs, nqn)));
		top_set(row, 6, inflight);
		top_set(row, 7, oldest);
		top_set(row, 8, (double)json_array_size(json_object_get(s, "listen_addresses")));
	}
}

const struct top_view top_view_subsystems = {
	"subsystems", "Subsystems", subsystem_columns, N(subsystem_columns), UINT_MAX, 1, top_build_subsystems};

/* ---- Hosts and queue pairs ---- */

static const struct top_column host_columns[] = {
	{"HOST", "hostnqn", TOP_TEXT, 36},  {"SUBSYSTEM", "subnqn", TOP_TEXT, 28},  {"CNTLID", "cntlid", TOP_COUNT, 6},
	{"QID", "qid", TOP_COUNT, 4},       {"STATE", "state", TOP_TEXT, 11},       {"SINCE", "state_us", TOP_US, 10},
	{"PEER", "peer", TOP_TEXT, 22},     {"INFLIGHT", "inflight", TOP_COUNT, 8}, {"OLDEST", "oldest_us", TOP_US, 10},
	{"THREAD", "thread", TOP_TEXT, 24},
};

static void top_add_qpair(struct top_table *t, const struct top_sample *now, const char *nqn, const json_t *q)
{
	const json_t *peer = json_object_get(q, "peer_address");
	const char *traddr = top_text(peer, "traddr"), *trsvcid = top_text(peer, "trsvcid");
	char address[320];
	double inflight, oldest;

	snprintf(address, sizeof(address), "%s:%s", traddr != NULL ? traddr : "?", trsvcid != NULL ? trsvcid : "?");
	top_count_inflight(now, nqn, q, &inflight, &oldest);
	struct top_row *row = top_table_row(t);
	top_set_text(row, 0, top_text(q, "hostnqn"));
	top_set_text(row, 1, nqn);
	top_set(row, 2, top_number(q, "cntlid"));
	top_set(row, 3, top_number(q, "qid"));
	top_set_text(row, 4, top_text(q, "state"));
	top_set(row, 5, top_number(q, "state_us"));
	top_set_text(row, 6, address);
	top_set(row, 7, inflight);
	top_set(row, 8, oldest);
	top_set_text(row, 9, top_text(q, "thread"));
}

static void top_build_hosts(struct top_table *t, const struct top_sample *now, const struct top_sample *before)
{
	const char *nqn;
	json_t *list;
	const json_t *q;
	size_t i;

	json_object_foreach (now->qpairs, nqn, list) {
		json_array_foreach (list, i, q) {
			top_add_qpair(t, now, nqn, q);
		}
	}
}

const struct top_view top_view_hosts = {"hosts", "Hosts", host_columns, N(host_columns), UINT_MAX, 15, top_build_hosts};

/* ---- Outstanding commands by state ---- */

static const struct top_column request_columns[] = {
	{"STATE", "state", TOP_TEXT, 36},
	{"WAITS FOR", "waits_for", TOP_TEXT, 28},
	{"COUNT", "count", TOP_COUNT, 8},
	{"IN STATE", "longest_us", TOP_US, 10},
	{"MEAN", "mean_us", TOP_US, 10},
	{"OLDEST", "oldest_us", TOP_US, 10},
	{"OLDEST OF", "oldest_hostnqn", TOP_TEXT, 36},
};

static bool top_is_same_text(const char *a, const char *b)
{
	return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static struct top_row *top_find_state(struct top_table *t, const char *state, const char *waits_for)
{
	for (size_t i = 0; i < t->n_rows; i++) {
		const struct top_row *r = &t->rows[i];
		if (top_is_same_text(r->cells[0].text, state) && top_is_same_text(r->cells[1].text, waits_for)) {
			return &t->rows[i];
		}
	}
	struct top_row *row = top_table_row(t);
	top_set_text(row, 0, state);
	top_set_text(row, 1, waits_for);
	for (unsigned c = 2; c < 6; c++) {
		top_set(row, c, 0);
	}
	return row;
}

static void top_build_requests(struct top_table *t, const struct top_sample *now, const struct top_sample *before)
{
	const json_t *f;
	size_t i;

	json_array_foreach (top_list_of(now, TOP_INFLIGHT, NULL), i, f) {
		struct top_row *row = top_find_state(t, top_text(f, "state"), top_text(f, "waits_for"));
		double in_state = top_number(f, "state_us"), age = top_number(f, "age_us");
		double n = row->cells[2].value;
		top_set(row, 2, n + 1);
		top_set(row, 3, in_state > row->cells[3].value ? in_state : row->cells[3].value);
		top_set(row, 4, (row->cells[4].value * n + in_state) / (n + 1));
		if (n == 0 || age > row->cells[5].value) {
			free(row->cells[6].text);
			top_set(row, 5, age);
			top_set_text(row, 6, top_text(f, "hostnqn"));
		}
	}
}

const struct top_view top_view_requests = {"requests", "Requests", request_columns,   N(request_columns),
					   2,          3,          top_build_requests};

/* ---- Buffers, and what else commands wait for ---- */

static const struct top_column buffer_columns[] = {
	{"WHO", "who", TOP_TEXT, 30},
	{"RESOURCE", "resource", TOP_TEXT, 28},
	{"AT HAND/s", "at_hand_per_s", TOP_RATE, 10},
	{"FETCHED/s", "fetched_per_s", TOP_RATE, 10},
	{"WAITS/s", "waits_per_s", TOP_RATE, 9},
	{"WAITS", "waits", TOP_COUNT, 10},
};

static void top_add_waits(struct top_table *t, const char *who, const char *resource, const json_t *now,
			  const json_t *before, const char *key, double seconds)
{
	struct top_row *row = top_table_row(t);

	top_set_text(row, 0, who);
	top_set_text(row, 1, resource);
	top_set(row, 2, -1);
	top_set(row, 3, -1);
	top_set(row, 4, top_rate(now, before, key, seconds));
	top_set(row, 5, top_number(now, key));
}

static void top_add_pool(struct top_table *t, const json_t *module, const json_t *old, const char *pool,
			 const char *resource, double seconds)
{
	const json_t *now = json_object_get(module, pool), *before = old != NULL ? json_object_get(old, pool) : NULL;

	top_add_waits(t, top_text(module, "module"), resource, now, before, "retry", seconds);
	struct top_row *row = &t->rows[t->n_rows - 1];
	top_set(row, 2, top_rate(now, before, "cache", seconds));
	top_set(row, 3, top_rate(now, before, "main", seconds));
}

/* The counters of a device that the transport says count commands which waited, and for what. */
static void top_add_device(struct top_table *t, const char *group, const json_t *type, const json_t *device,
			   const json_t *old, double seconds)
{
	const json_t *counter;
	size_t i;

	json_array_foreach (json_object_get(type, "counters"), i, counter) {
		const char *key = top_text(counter, "name"), *resource = top_text(counter, "waits_for");

		if (key != NULL && resource != NULL) {
			top_add_waits(t, group, resource, device, old, key, seconds);
		}
	}
}

/* types: what the transports tell about themselves; NULL: the daemon cannot say. */
static void top_add_group(struct top_table *t, const json_t *group, const json_t *old, const json_t *types,
			  double seconds)
{
	const json_t *transport, *device;
	const char *name = top_text(group, "name");
	size_t i, k;

	top_add_waits(t, name, "paused subsystem (now)", group, old, "pending_bdev_io", 0);
	json_array_foreach (json_object_get(group, "transports"), i, transport) {
		const json_t *b = top_same(json_object_get(old, "transports"), transport, "trtype");
		top_add_waits(t, name, "data buffer", transport, b, "pending_data_buffer", seconds);
		json_array_foreach (json_object_get(transport, "devices"), k, device) {
			const json_t *d = top_same(json_object_get(b, "devices"), device, "name");
			top_add_device(t, name, top_same(types, transport, "trtype"), device, d, seconds);
		}
	}
}

static void top_build_buffers(struct top_table *t, const struct top_sample *now, const struct top_sample *before)
{
	const json_t *module, *group;
	double seconds = top_seconds(now, before);
	size_t i;

	json_array_foreach (top_list_of(now, TOP_BUFFERS, NULL), i, module) {
		const json_t *b = top_same(top_list_of(before, TOP_BUFFERS, NULL), module, "module");
		top_add_pool(t, module, b, "small_pool", "small buffer", seconds);
		top_add_pool(t, module, b, "large_pool", "large buffer", seconds);
	}
	json_array_foreach (top_list_of(now, TOP_TARGET, "poll_groups"), i, group) {
		top_add_group(t, group, top_same(top_list_of(before, TOP_TARGET, "poll_groups"), group, "name"),
			      top_list_of(now, TOP_TRANSPORT_TYPES, NULL), seconds);
	}
}

const struct top_view top_view_buffers = {"buffers", "Buffers", buffer_columns,   N(buffer_columns),
					  4,         3,         top_build_buffers};

/* ---- The trace ---- */

static const struct top_column trace_columns[] = {
	{"RING", "thread", TOP_TEXT, 28},           {"SLOTS", "slots", TOP_COUNT, 9},
	{"SLOTS/s", "slots_per_s", TOP_RATE, 9},    {"LOST/s", "overwritten_per_s", TOP_RATE, 9},
	{"RECORDED", "recorded", TOP_COUNT, 14},    {"OVERWRITTEN", "overwritten", TOP_COUNT, 14},
	{"HOLDS", "holds_us", TOP_US, 10},          {"FIRED", "fired", TOP_COUNT, 6},
	{"LAST CAUSE", "last_cause", TOP_TEXT, 60},
};

static void top_add_trigger(struct top_table *t, const json_t *trigger)
{
	char name[64];

	snprintf(name, sizeof(name), "trigger %.48s",
		 top_text(trigger, "name") != NULL ? top_text(trigger, "name") : "?");
	struct top_row *row = top_table_row(t);
	top_set_text(row, 0, name);
	for (unsigned c = 1; c < 7; c++) {
		top_set(row, c, -1);
	}
	top_set(row, 7, top_number(trigger, "fired"));
	top_set_text(row, 8, top_text(trigger, "last_cause"));
}

static void top_build_trace(struct top_table *t, const struct top_sample *now, const struct top_sample *before)
{
	const json_t *slot, *trigger;
	double seconds = top_seconds(now, before);
	size_t i;

	json_array_foreach (top_list_of(now, TOP_TRACE, "slots"), i, slot) {
		const json_t *b = top_same(top_list_of(before, TOP_TRACE, "slots"), slot, "lcore");
		const char *thread = top_text(slot, "thread");
		double rate = top_rate(slot, b, "recorded", seconds);
		if (thread == NULL || (thread[0] == '\0' && top_number(slot, "recorded") == 0)) {
			continue; /* nobody's */
		}
		struct top_row *row = top_table_row(t);
		top_set_text(row, 0, thread);
		top_set(row, 1, top_number(slot, "num_entries"));
		top_set(row, 2, rate);
		top_set(row, 3, top_rate(slot, b, "overwritten", seconds));
		top_set(row, 4, top_number(slot, "recorded"));
		top_set(row, 5, top_number(slot, "overwritten"));
		top_set(row, 6, rate > 0 ? 1e6 * top_number(slot, "num_entries") / rate : -1);
		top_set(row, 7, -1);
		top_set_text(row, 8, NULL);
	}
	json_array_foreach (top_list_of(now, TOP_TRIGGERS, "triggers"), i, trigger) {
		top_add_trigger(t, trigger);
	}
}

const struct top_view top_view_trace = {"trace",  "Trace", trace_columns,  N(trace_columns),
					UINT_MAX, 1,       top_build_trace};

/* ---- All of them ---- */

const struct top_view *const top_views[] = {
	&top_view_reactors,   &top_view_threads,   &top_view_pollers,  &top_view_bdevs,
	&top_view_subsystems, &top_view_hosts,     &top_view_requests, &top_view_buffers,
	&top_view_trace,      &top_view_latencies, &top_view_volumes,
};
const unsigned top_n_views = N(top_views);

int top_view_find(const char *name)
{
	for (unsigned i = 0; i < top_n_views; i++) {
		if (strcmp(top_views[i]->name, name) == 0) {
			return (int)i;
		}
	}
	return -1;
}
