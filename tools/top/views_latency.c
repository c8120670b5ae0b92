/* SPDX-License-Identifier: BSD-3-Clause */
/* How long the commands of each host took between two samples. */
#include <string.h>

#include "tools/top/top.h"
#include "util/latency.h"

/* What matters fits 80 columns. */
static const struct top_column latency_columns[] = {
	{"HOST", "hostnqn", TOP_TEXT, 36},     {"P50", "p50_us", TOP_US, 9},         {"P99", "p99_us", TOP_US, 9},
	{"IOPS", "iops", TOP_RATE, 8},         {"B/s", "bytes_per_s", TOP_BYTES, 8}, {"MEAN", "mean_us", TOP_US, 9},
	{"SUBSYSTEM", "subnqn", TOP_TEXT, 44},
};

/* The same host in the sample before. */
static const json_t *latency_find_before(const struct top_sample *before, const json_t *host)
{
	const char *hostnqn = top_text(host, "hostnqn"), *subnqn = top_text(host, "subnqn"), *h, *s;
	const json_t *one;
	size_t i;

	if (before == NULL || hostnqn == NULL || subnqn == NULL) {
		return NULL;
	}
	json_array_foreach (json_object_get(before->answers[TOP_HOST_LATENCIES], "hosts"), i, one) {
		h = top_text(one, "hostnqn");
		s = top_text(one, "subnqn");
		if (h != NULL && s != NULL && strcmp(h, hostnqn) == 0 && strcmp(s, subnqn) == 0) {
			return one;
		}
	}
	return NULL;
}

static bool latency_bounds_are_known(const struct top_sample *s)
{
	const json_t *bounds = json_object_get(s->answers[TOP_HOST_LATENCIES], "bounds_ns"), *bound;
	size_t i;

	json_array_foreach (bounds, i, bound) {
		if (i >= LATENCY_BUCKETS - 1 || json_integer_value(bound) != (json_int_t)latency_bounds_ns[i]) {
			return false;
		}
	}
	return json_array_size(bounds) == LATENCY_BUCKETS - 1;
}

/* What was counted between the samples. False: there is no sample before, or the counters were reset. */
static bool latency_grow(const json_t *now, const json_t *before, struct latency_histogram *grown)
{
	const json_t *new = json_object_get(now, "counts"), *old = json_object_get(before, "counts");

	memset(grown, 0, sizeof(*grown));
	for (size_t i = 0; i < LATENCY_BUCKETS; i++) {
		json_int_t n = json_integer_value(json_array_get(new, i));
		json_int_t o = json_integer_value(json_array_get(old, i));
		if (o < 0 || n < o) {
			return false;
		}
		grown->buckets[i] = (uint64_t)(n - o);
		grown->counted += (uint64_t)(n - o);
	}
	return before != NULL;
}

static double latency_quantile_us(const struct latency_histogram *h, double share)
{
	return (double)latency_histogram_quantile(h, share) / 1000;
}

static void top_build_latencies(struct top_table *t, const struct top_sample *now, const struct top_sample *before)
{
	double seconds = top_seconds(now, before);
	bool has_bounds = latency_bounds_are_known(now);
	struct latency_histogram grown;
	const json_t *host;
	size_t i;

	json_array_foreach (json_object_get(now->answers[TOP_HOST_LATENCIES], "hosts"), i, host) {
		const json_t *old = latency_find_before(before, host);
		bool has_grown = latency_grow(host, old, &grown) && grown.counted != 0;
		bool is_known = has_grown && has_bounds;
		double ns = top_number(host, "total_ns") - top_number(old, "total_ns");
		struct top_row *row = top_table_row(t);
		top_set_text(row, 0, top_text(host, "hostnqn"));
		top_set(row, 1, is_known ? latency_quantile_us(&grown, 0.5) : -1);
		top_set(row, 2, is_known ? latency_quantile_us(&grown, 0.99) : -1);
		top_set(row, 3, top_rate(host, old, "commands", seconds));
		top_set(row, 4, top_rate(host, old, "bytes", seconds));
		top_set(row, 5, has_grown ? ns / (double)grown.counted / 1000 : -1);
		top_set_text(row, 6, top_text(host, "subnqn"));
	}
}

const struct top_view top_view_latencies = {
	"latencies", "Latencies", latency_columns,    sizeof(latency_columns) / sizeof(latency_columns[0]),
	3,           1 | 1 << 6,  top_build_latencies};
