/* SPDX-License-Identifier: BSD-3-Clause */
/* The view of volumes: what they have of their store, and their I/O. */
#include <string.h>

#include "tools/top/top.h"

static const struct top_column volume_columns[] = {
	{"VOLUME", "alias", TOP_TEXT, 32},
	{"KIND", "kind", TOP_TEXT, 10},
	{"OWN", "own_bytes", TOP_BYTES, 8},
	{"RESERVED", "reserved_bytes", TOP_BYTES, 9},
	{"IOPS", "iops", TOP_RATE, 8},
	{"RD B/s", "read_bytes_per_s", TOP_BYTES, 8},
	{"WR B/s", "write_bytes_per_s", TOP_BYTES, 8},
	{"RD LAT", "read_latency_us", TOP_US, 9},
	{"WR LAT", "write_latency_us", TOP_US, 9},
	{"QD", "queue_depth", TOP_COUNT, 6},
};

static const char *top_volume_kind(const json_t *v)
{
	return json_is_true(json_object_get(v, "is_degraded"))   ? "degraded"
	       : json_is_true(json_object_get(v, "is_snapshot")) ? "snapshot"
	       : json_is_true(json_object_get(v, "is_clone")) || json_is_true(json_object_get(v, "is_esnap_clone"))
		       ? "clone"
	       : json_is_true(json_object_get(v, "is_thin_provisioned")) ? "thin"
									 : "thick";
}

/* {the name of a bdev: what it has done}. */
static json_t *top_bdevs_by_name(const struct top_sample *s)
{
	json_t *by_name = json_object(), *d;
	size_t i;

	json_array_foreach (json_object_get(s == NULL ? NULL : s->answers[TOP_BDEVS], "bdevs"), i, d) {
		const char *name = top_text(d, "name");
		if (name != NULL) {
			json_object_set(by_name, name, d);
		}
	}
	return by_name;
}

/* The bytes of a cluster of the volume's store; -1: it is not told. */
static double top_cluster_bytes(const struct top_sample *s, const json_t *v)
{
	const json_t *lvs = json_object_get(v, "lvs"), *store = top_same(s->answers[TOP_STORES], lvs, "uuid");

	return store != NULL ? top_number(store, "cluster_size") : -1;
}

static void top_set_volume_io(struct top_row *row, const json_t *d, const json_t *b, const struct top_sample *now,
			      double seconds)
{
	double reads = top_rate(d, b, "num_read_ops", seconds), writes = top_rate(d, b, "num_write_ops", seconds);

	top_set(row, 4, reads < 0 || writes < 0 ? -1 : reads + writes);
	top_set(row, 5, top_rate(d, b, "bytes_read", seconds));
	top_set(row, 6, top_rate(d, b, "bytes_written", seconds));
	top_set(row, 7, top_latency_us(d, b, "read_latency_ticks", "num_read_ops", now->tick_rate));
	top_set(row, 8, top_latency_us(d, b, "write_latency_ticks", "num_write_ops", now->tick_rate));
	top_set(row, 9, d != NULL ? top_number(d, "in_flight") : -1);
}

static void top_build_volumes(struct top_table *t, const struct top_sample *now, const struct top_sample *before)
{
	json_t *bdevs = top_bdevs_by_name(now), *old = top_bdevs_by_name(before), *v;
	double seconds = top_seconds(now, before);
	size_t i;

	json_array_foreach (now->answers[TOP_VOLUMES], i, v) {
		const char *uuid = top_text(v, "uuid");
		double cluster = top_cluster_bytes(now, v);
		struct top_row *row = top_table_row(t);
		top_set_text(row, 0, top_text(v, "alias"));
		top_set_text(row, 1, top_volume_kind(v));
		top_set(row, 2, cluster < 0 ? -1 : top_number(v, "num_allocated_clusters") * cluster);
		top_set(row, 3, cluster < 0 ? -1 : top_number(v, "num_reserved_clusters") * cluster);
		top_set_volume_io(row, uuid == NULL ? NULL : json_object_get(bdevs, uuid),
				  uuid == NULL ? NULL : json_object_get(old, uuid), now, seconds);
	}
	json_decref(bdevs);
	json_decref(old);
}

const struct top_view top_view_volumes = {
	"volumes", "Volumes", volume_columns,   sizeof(volume_columns) / sizeof(volume_columns[0]),
	4,         1,         top_build_volumes};
