/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/safe-text.h"
#include "tools/top/top.h"

static const char *const methods[TOP_ANSWERS] = {
	[TOP_STATE] = "appliance_get_state",
	[TOP_VERSION] = "spdk_get_version",
	[TOP_REACTORS] = "framework_get_reactors",
	[TOP_THREADS] = "thread_get_stats",
	[TOP_POLLERS] = "thread_get_pollers",
	[TOP_BDEVS] = "bdev_get_iostat",
	[TOP_SUBSYSTEMS] = "nvmf_get_subsystems",
	[TOP_TARGET] = "nvmf_get_stats",
	[TOP_INFLIGHT] = "nvmf_get_inflight",
	[TOP_BUFFERS] = "iobuf_get_stats",
	[TOP_TRACE] = "trace_get_stats",
	[TOP_TRIGGERS] = "trace_get_triggers",
	[TOP_TRANSPORT_TYPES] = "nvmf_get_transport_types",
	[TOP_QOS_GROUPS] = "bdev_get_qos_groups",
	[TOP_HOST_LATENCIES] = "nvmf_get_host_latencies",
	[TOP_STORES] = "bdev_lvol_get_lvstores",
	[TOP_VOLUMES] = "bdev_lvol_get_lvols",
};

/* These methods have members that stock clients do not accept; they must be asked for. */
static json_t *top_sample_parameters_of(enum top_answer answer)
{
	bool detail = answer == TOP_REACTORS || answer == TOP_THREADS || answer == TOP_POLLERS;

	return detail ? json_pack("{s:b}", "detail", 1) : NULL;
}

#define TICK_RATE_MAX 1e12

static uint64_t top_clock_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Calls two methods for each subsystem: for its controllers and for its queue pairs. A subsystem that was deleted
 * meanwhile gives an error, and is left out. */
static int top_sample_take_hosts(struct top_client *c, struct top_sample *s, char *why)
{
	size_t n = json_array_size(s->answers[TOP_SUBSYSTEMS]);
	const char **names = calloc(2 * n + 1, sizeof(*names));
	json_t **params = calloc(2 * n + 1, sizeof(*params)), **results = calloc(2 * n + 1, sizeof(*results));
	int rc = names != NULL && params != NULL && results != NULL ? 0 : -ENOMEM;

	for (size_t i = 0; rc == 0 && i < n; i++) {
		const char *nqn = top_text(json_array_get(s->answers[TOP_SUBSYSTEMS], i), "nqn");
		names[2 * i] = "nvmf_subsystem_get_controllers";
		names[2 * i + 1] = "nvmf_subsystem_get_qpairs";
		params[2 * i] = json_pack("{s:s}", "nqn", nqn != NULL ? nqn : "");
		params[2 * i + 1] = json_incref(params[2 * i]);
	}
	if (rc == 0 && n > 0) {
		rc = top_client_call(c, 2 * n, names, params, results, why);
	}
	for (size_t i = 0; rc == 0 && i < n; i++) {
		const char *nqn = top_text(json_array_get(s->answers[TOP_SUBSYSTEMS], i), "nqn");
		if (nqn != NULL && results[2 * i] != NULL) {
			json_object_set(s->controllers, nqn, results[2 * i]);
		}
		if (nqn != NULL && results[2 * i + 1] != NULL) {
			json_object_set(s->qpairs, nqn, results[2 * i + 1]);
		}
		json_decref(results[2 * i]);
		json_decref(results[2 * i + 1]);
	}
	free(names);
	free(params);
	free(results);
	return rc;
}

/* 0 for anything but a number from 0 to max. */
static double top_sample_is_whole(const json_t *o, const char *key, double max)
{
	double value = top_number(o, key);

	return value >= 0 && value <= max ? value : 0;
}

static char *top_sample_line_of(const json_t *o, const char *key)
{
	const char *text = top_text(o, key);
	char *line = text != NULL ? strdup(text) : NULL;

	if (line != NULL) {
		safe_text_line(line);
	}
	return line;
}

int top_sample_take(struct top_client *c, struct top_sample **sample, char *why)
{
	struct top_sample *s = calloc(1, sizeof(*s));

	if (s == NULL) {
		snprintf(why, TOP_WHY_MAX, "no memory");
		return -ENOMEM;
	}
	json_t *params[TOP_ANSWERS];
	for (unsigned i = 0; i < TOP_ANSWERS; i++) {
		params[i] = top_sample_parameters_of(i);
	}
	s->controllers = json_object();
	s->qpairs = json_object();
	int rc = top_client_call(c, TOP_ANSWERS, methods, params, s->answers, why);
	s->monotonic_ns = top_clock_ns(CLOCK_MONOTONIC);
	s->realtime_ns = top_clock_ns(CLOCK_REALTIME);
	if (rc == 0) {
		s->tick_rate = (uint64_t)top_sample_is_whole(s->answers[TOP_REACTORS], "tick_rate", TICK_RATE_MAX);
		s->pid = (json_int_t)top_sample_is_whole(s->answers[TOP_REACTORS], "pid", INT_MAX);
		s->version = top_sample_line_of(s->answers[TOP_VERSION], "version");
		s->state = top_sample_line_of(s->answers[TOP_STATE], "state");
		rc = top_sample_take_hosts(c, s, why);
	}
	if (rc != 0) {
		top_sample_free(s);
		return rc;
	}
	*sample = s;
	return 0;
}

void top_sample_free(struct top_sample *s)
{
	if (s == NULL) {
		return;
	}
	for (unsigned i = 0; i < TOP_ANSWERS; i++) {
		json_decref(s->answers[i]);
	}
	json_decref(s->controllers);
	json_decref(s->qpairs);
	free(s->version);
	free(s->state);
	free(s);
}

/* ---- What answers hold ---- */

double top_number(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	if (json_is_string(v)) { /* numbers beyond 2^63 are "0x..." */
		return (double)strtoull(json_string_value(v), NULL, 0);
	}
	return json_number_value(v);
}

const char *top_text(const json_t *o, const char *key)
{
	return json_string_value(json_object_get(o, key));
}

const json_t *top_same(const json_t *list, const json_t *o, const char *key)
{
	const json_t *wanted = json_object_get(o, key), *one;
	size_t i;

	json_array_foreach (list, i, one) {
		if (wanted != NULL && json_equal(json_object_get(one, key), wanted)) {
			return one;
		}
	}
	return NULL;
}

double top_seconds(const struct top_sample *now, const struct top_sample *before)
{
	return before != NULL ? (double)(now->monotonic_ns - before->monotonic_ns) / 1e9 : 0;
}

double top_rate(const json_t *now, const json_t *before, const char *key, double seconds)
{
	double grown = top_number(now, key) - top_number(before, key);

	return before != NULL && seconds > 0 && grown >= 0 ? grown / seconds : -1;
}

double top_latency_us(const json_t *now, const json_t *before, const char *ticks, const char *ops, uint64_t rate)
{
	double n = top_number(now, ops) - top_number(before, ops);
	double t = top_number(now, ticks) - top_number(before, ticks);

	return before != NULL && n > 0 && t >= 0 && rate > 0 ? t / n * 1e6 / (double)rate : -1;
}
