/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/perf/perf.h"

#include <inttypes.h>
#include <stdio.h>

#include "env_dpdk/env.h"

static const double percents[] = {1, 10, 50, 90, 99, 99.9, 99.99};
#define NUM_PERCENTS (sizeof(percents) / sizeof(percents[0]))

static double perf_ticks_to_us(uint64_t ticks)
{
	return (double)ticks * 1e6 / (double)env_ticks_hz();
}

static void perf_print_line(const struct perf_options *o, const struct perf_result *r, const char *what, uint64_t ios,
			    const struct histogram *h)
{
	if (ios == 0) {
		return;
	}
	printf("%-7s %12.0f %10.1f %9.1f %9.1f %9.1f %9.1f %9.1f %9.1f %9.1f\n", what, (double)ios / r->seconds,
	       (double)ios * o->io_size / r->seconds / 1048576.0, perf_ticks_to_us(histogram_mean(h)),
	       perf_ticks_to_us(h->min), perf_ticks_to_us(histogram_percentile(h, 50)),
	       perf_ticks_to_us(histogram_percentile(h, 90)), perf_ticks_to_us(histogram_percentile(h, 99)),
	       perf_ticks_to_us(histogram_percentile(h, 99.9)), perf_ticks_to_us(h->max));
}

void perf_report_text(const struct perf_options *o, const struct perf_result *r)
{
	const struct perf_stats *s = &r->stats;

	printf("                                            latency, us\n");
	printf("%-7s %12s %10s %9s %9s %9s %9s %9s %9s %9s\n", "", "IOPS", "MiB/s", "mean", "min", "50 %", "90 %",
	       "99 %", "99.9 %", "max");
	perf_print_line(o, r, "reads", s->reads, &s->read_ticks);
	perf_print_line(o, r, "writes", s->writes, &s->write_ticks);
	printf("%" PRIu64 " reads, %" PRIu64 " writes in %.2f s; %" PRIu64 " errors", s->reads, s->writes, r->seconds,
	       s->errors);
	if (o->verify) {
		printf("; %" PRIu64 " miscompares", r->miscompares);
	}
	if (s->late != 0) {
		printf("; %" PRIu64 " I/Os were due and had not begun", s->late);
	}
	if (r->reconnects != 0) {
		printf("; %u reconnects, %" PRIu64 " I/Os repeated", r->reconnects, s->retries);
	}
	printf("\n");
}

static void perf_print_json_latency(const char *name, const struct perf_result *r, const struct perf_options *o,
				    uint64_t ios, const struct histogram *h)
{
	printf("  \"%s\": {\"ios\": %" PRIu64
	       ", \"iops\": %.1f, \"bytes_per_s\": %.1f, \"latency_us\": {\"mean\": %.3f, \"min\": %.3f, "
	       "\"max\": %.3f",
	       name, ios, (double)ios / r->seconds, (double)ios * o->io_size / r->seconds,
	       perf_ticks_to_us(histogram_mean(h)), perf_ticks_to_us(h->total ? h->min : 0), perf_ticks_to_us(h->max));
	for (size_t i = 0; i < NUM_PERCENTS; i++) {
		printf(", \"p%g\": %.3f", percents[i], perf_ticks_to_us(histogram_percentile(h, percents[i])));
	}
	printf("}},\n");
}

void perf_report_json(const struct perf_options *o, const struct perf_result *r)
{
	const struct perf_stats *s = &r->stats;

	printf("{\n  \"seconds\": %.3f,\n  \"io_size\": %u,\n  \"queue_depth\": %u,\n", r->seconds, o->io_size,
	       o->queue_depth);
	perf_print_json_latency("read", r, o, s->reads, &s->read_ticks);
	perf_print_json_latency("write", r, o, s->writes, &s->write_ticks);
	printf("  \"errors\": %" PRIu64 ",\n  \"miscompares\": %" PRIu64
	       ",\n  \"verified\": %s,\n  \"reconnects\": %u,\n"
	       "  \"repeated\": %" PRIu64 ",\n  \"late\": %" PRIu64 "\n}\n",
	       s->errors, r->miscompares, o->verify ? "true" : "false", r->reconnects, s->retries, s->late);
}
