/* SPDX-License-Identifier: BSD-3-Clause */
/* Metrics of block devices. */
#include <string.h>

#include "appliance/metrics_collect.h"
#include "bdev/bdev.h"
#include "bdev/module.h"
#include "bdev/qos_group.h"
#include "env_dpdk/env.h"

struct one_bdev {
	struct bdev *b;
	const struct bdev_stat *stat;
};

static const struct metric bdev_queue_depth =
	METRIC("varve_bdev_queue_depth", METRICS_GAUGE, METRICS_PLAIN, struct bdev_stat, queue_depth,
	       "I/O in flight, that which waits included.");

#define BDEV_OPS(name_, unit_, member_, help_)                                                                         \
	METRIC("varve_bdev_" name_, METRICS_COUNTER, unit_, struct bdev_stat_ops, member_, help_)
/* For each class of I/O. */
static const struct metric bdev_op_families[] = {
	BDEV_OPS("ios_total", METRICS_PLAIN, ops, "I/O that succeeded; unmap: and write zeroes."),
	BDEV_OPS("bytes_total", METRICS_PLAIN, bytes, "Bytes that were moved."),
	BDEV_OPS("io_seconds_total", METRICS_TICKS, ticks, "Their latencies, added up."),
};

static const char *const op_names[BDEV_STAT_CLASSES] = {
	[BDEV_STAT_OTHER] = "other", [BDEV_STAT_READ] = "read", [BDEV_STAT_WRITE] = "write",
	[BDEV_STAT_UNMAP] = "unmap", [BDEV_STAT_COPY] = "copy",
};

static void collect_bdev_ops(struct metrics_text *m, const struct one_bdev *list, size_t n)
{
	for (size_t f = 0; f < ARRAY_SIZE(bdev_op_families); f++) {
		metrics_begin(m, &bdev_op_families[f]);
		for (size_t i = 0; i < n; i++) {
			for (unsigned c = 0; c < BDEV_STAT_CLASSES; c++) {
				metrics_sample(m, &bdev_op_families[f], &list[i].stat->class[c], "bdev",
					       bdev_name(list[i].b), "op", op_names[c], NULL);
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
			const struct bdev_stat_error *error = &list[i].stat->errors[e];
			char status[8];
			snprintf(status, sizeof(status), "%03x", error->status);
			if (error->count != 0) {
				metrics_uint(m, error->count, "bdev", bdev_name(list[i].b), "status",
					     e == BDEV_STAT_ERRORS - 1 ? "other" : status, NULL);
			}
		}
	}
}

static const struct metric bdev_failed =
	METRIC("varve_bdev_failed_total", METRICS_COUNTER, METRICS_PLAIN, struct bdev_stat, faults,
	       "I/O that failed for a fault of the device or of the way to it, not for what was asked of it.");

static void collect_bdev_failed(struct metrics_text *m, const struct one_bdev *list, size_t n)
{
	metrics_begin(m, &bdev_failed);
	for (size_t i = 0; i < n; i++) {
		metrics_sample(m, &bdev_failed, list[i].stat, "bdev", bdev_name(list[i].b), NULL);
	}
}

static void collect_bdev_waits(struct metrics_text *m, const struct one_bdev *list, size_t n)
{
	metrics_family(m, "varve_bdev_waits_total", METRICS_COUNTER,
		       "I/O that had to wait: for the module's resources, a rate limit, or a piece of a split one.");
	for (size_t i = 0; i < n; i++) {
		const struct bdev_stat *s = list[i].stat;
		const char *name = bdev_name(list[i].b);
		metrics_uint(m, s->nomem_waits, "bdev", name, "for", "resources", NULL);
		metrics_uint(m, s->qos_waits, "bdev", name, "for", "rate_limit", NULL);
		metrics_uint(m, s->child_waits, "bdev", name, "for", "piece", NULL);
	}
}

/* A series begins with its first I/O. */
static void collect_bdev_histogram(struct metrics_text *m, const struct bdev_stat *s, const char *name)
{
	if (s->reads.counted != 0) {
		metrics_histogram(m, &s->reads, env_ticks_to_ns(s->class[BDEV_STAT_READ].ticks), "bdev", name, "op",
				  op_names[BDEV_STAT_READ], NULL);
	}
	if (s->writes.counted != 0) {
		metrics_histogram(m, &s->writes, env_ticks_to_ns(s->class[BDEV_STAT_WRITE].ticks), "bdev", name, "op",
				  op_names[BDEV_STAT_WRITE], NULL);
	}
}

static void collect_add_times(struct bdev_stat *sum, const struct bdev_stat *s)
{
	latency_histogram_add(&sum->reads, &s->reads);
	latency_histogram_add(&sum->writes, &s->writes);
	sum->class[BDEV_STAT_READ].ticks += s->class[BDEV_STAT_READ].ticks;
	sum->class[BDEV_STAT_WRITE].ticks += s->class[BDEV_STAT_WRITE].ticks;
}

/* The histograms of the first COLLECT_HISTOGRAMS_MAX bdevs; those of all others are added up. */
static void collect_bdev_histograms(struct metrics_text *m, const struct one_bdev *list, size_t n)
{
	static const char other[] = "other";
	struct bdev_stat others = {0};

	metrics_family(
		m, "varve_bdev_latency_seconds", METRICS_HISTOGRAM,
		"Latencies of I/O that succeeded. A histogram is exact up to about 500 I/O per second and reactor; "
		"beyond that samples stand for the I/O between them. From the 257th bdev on: bdev=\"other\".");
	for (size_t i = 0; i < n; i++) {
		const char *name = bdev_name(list[i].b);
		if (i < COLLECT_HISTOGRAMS_MAX && strcmp(name, other) != 0) {
			collect_bdev_histogram(m, list[i].stat, name);
		} else {
			collect_add_times(&others, list[i].stat);
		}
	}
	collect_bdev_histogram(m, &others, other);
}

/* ---- Groups that share rate limits ---- */

static void collect_qos_group_kinds(struct metrics_text *m, bool bytes)
{
	struct rate_counts c;

	for (const struct bdev_qos_group *g = NULL; (g = bdev_qos_group_next(g)) != NULL;) {
		for (const struct bdev *b = NULL; (b = bdev_qos_group_next_bdev(g, b)) != NULL;) {
			bdev_qos_group_get_bdev_counts(b, &c);
			const uint64_t *n = bytes ? c.bytes : c.ios;
			metrics_uint(m, n[RATE_READS], "group", bdev_qos_group_name(g), "bdev", bdev_name(b), "op",
				     "read", NULL);
			metrics_uint(m, n[RATE_WRITES], "group", bdev_qos_group_name(g), "bdev", bdev_name(b), "op",
				     "write", NULL);
		}
	}
}

static void collect_qos_group_waits(struct metrics_text *m, bool time)
{
	struct rate_counts c;

	for (const struct bdev_qos_group *g = NULL; (g = bdev_qos_group_next(g)) != NULL;) {
		for (const struct bdev *b = NULL; (b = bdev_qos_group_next_bdev(g, b)) != NULL;) {
			bdev_qos_group_get_bdev_counts(b, &c);
			(time ? metrics_ns : metrics_uint)(m, time ? c.waited_us * 1000 : c.waits, "group",
							   bdev_qos_group_name(g), "bdev", bdev_name(b), NULL);
		}
	}
}

static void collect_qos_groups(struct metrics_text *m)
{
	metrics_family(m, "varve_qos_group_ios_total", METRICS_COUNTER,
		       "I/O of a bdev that its group's rate limits let through, since it came into the group.");
	collect_qos_group_kinds(m, false);
	metrics_family(m, "varve_qos_group_bytes_total", METRICS_COUNTER, "Their bytes.");
	collect_qos_group_kinds(m, true);
	metrics_family(m, "varve_qos_group_waits_total", METRICS_COUNTER,
		       "I/O of a bdev that had to wait because its group was at a rate limit.");
	collect_qos_group_waits(m, false);
	metrics_family(m, "varve_qos_group_waited_seconds_total", METRICS_COUNTER,
		       "How long those that went on have waited.");
	collect_qos_group_waits(m, true);
}

static void collect_figure(void *arg, const struct bdev_module_figure *f)
{
	struct metrics_text *m = arg;

	if (strcmp(m->family, f->name) != 0) {
		metrics_family(m, f->name, f->grows ? METRICS_COUNTER : METRICS_GAUGE, f->help);
	}
	metrics_uint(m, f->value, f->label, f->what, NULL);
}

static void collect_module_figures(struct metrics_text *m)
{
	for (const struct bdev_module *module = NULL; (module = bdev_module_next(module)) != NULL;) {
		if (module->figures != NULL) {
			module->figures(collect_figure, m);
		}
	}
}

/* Asks the reactors once for all. The number of bdevs; 0 also if there is no memory for them. */
static size_t collect_list(struct one_bdev **list, struct bdev_stat **stats)
{
	size_t room = 0, n = 0;

	for (struct bdev *b = NULL; (b = bdev_next(b)) != NULL;) {
		room++;
	}
	struct bdev **bdevs = collect_array(room, sizeof(*bdevs));
	*list = collect_array(room, sizeof(**list));
	*stats = collect_array(room, sizeof(**stats));
	bool has_memory = bdevs != NULL && *list != NULL && *stats != NULL;
	for (struct bdev *b = NULL; has_memory && n < room && (b = bdev_next(b)) != NULL; n++) {
		bdevs[n] = b;
		(*list)[n] = (struct one_bdev){.b = b, .stat = &(*stats)[n]};
	}
	bdev_get_stats(bdevs, *stats, n);
	free(bdevs);
	return n;
}

void metrics_collect_bdevs(struct metrics_text *m)
{
	struct one_bdev *list;
	struct bdev_stat *stats;
	size_t n = collect_list(&list, &stats);

	metrics_family(m, "varve_bdev_size_bytes", METRICS_GAUGE, "Size of the block device.");
	for (size_t i = 0; i < n; i++) {
		metrics_uint(m, bdev_num_blocks(list[i].b) * bdev_block_size(list[i].b), "bdev", bdev_name(list[i].b),
			     "product", bdev_product_name(list[i].b), NULL);
	}
	metrics_begin(m, &bdev_queue_depth);
	for (size_t i = 0; i < n; i++) {
		metrics_sample(m, &bdev_queue_depth, list[i].stat, "bdev", bdev_name(list[i].b), NULL);
	}
	collect_bdev_ops(m, list, n);
	collect_bdev_errors(m, list, n);
	collect_bdev_failed(m, list, n);
	collect_bdev_waits(m, list, n);
	collect_bdev_histograms(m, list, n);
	collect_qos_groups(m);
	collect_module_figures(m);
	free(list);
	free(stats);
}
