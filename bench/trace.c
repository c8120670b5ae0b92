/* SPDX-License-Identifier: BSD-3-Clause */
/* The cost of a tracepoint: disabled, with one argument, with four, beside that of reading the TSC alone. The figures
 * `..._over_..._ns` are medians of the differences of turns that ran one after the other. */
#include <rte_eal.h>
#include <unistd.h>

#include "bench/bench.h"
#include "trace/trace.h"

enum { RECORDS = 200000, TURNS = 301 };

static double per_record(double start_ns)
{
	return (bench_now_ns() - start_ns) / RECORDS;
}

static double turn_loop(void)
{
	double start = bench_now_ns();
	for (uint64_t i = 0; i < RECORDS; i++) {
		__asm__ volatile("" : : "r"(i));
	}
	return per_record(start);
}

static double turn_disabled(void)
{
	double start = bench_now_ns();
	for (uint64_t i = 0; i < RECORDS; i++) {
		__asm__ volatile("" : : "r"(i));
		TRACE(TEST_STRING, 0, 0, i, 0, "", NULL);
	}
	return per_record(start);
}

static double turn_tsc(void)
{
	double start = bench_now_ns();
	for (uint64_t i = 0; i < RECORDS; i++) {
		uint64_t t = ticks_now();
		__asm__ volatile("" : : "r"(t));
	}
	return per_record(start);
}

static double turn_record1(void)
{
	double start = bench_now_ns();
	for (uint64_t i = 0; i < RECORDS; i++) {
		__asm__ volatile("" : : "r"(i));
		TRACE(TEST_ONE, 1, 4096, i, i);
	}
	return per_record(start);
}

static double turn_record4(void)
{
	double start = bench_now_ns();
	for (uint64_t i = 0; i < RECORDS; i++) {
		__asm__ volatile("" : : "r"(i));
		TRACE(TEST_FOUR, 1, 4096, i, i, i + 1, i + 2, i + 3);
	}
	return per_record(start);
}

/* Four arguments as a block device I/O has them. */
static double turn_bdev_io(void)
{
	double start = bench_now_ns();
	for (uint64_t i = 0; i < RECORDS; i++) {
		__asm__ volatile("" : : "r"(i));
		TRACE(BDEV_IO_START, 1, 4096, i, 1, &turn_bdev_io, i, 128);
	}
	return per_record(start);
}

static const struct variant {
	const char *name, *over_name;
	double (*turn)(void);
	int baseline; /* index into this table, -1: none */
} variants[] = {
	{"trace.loop_ns", NULL, turn_loop, -1},
	{"trace.disabled_ns", "trace.disabled_over_loop_ns", turn_disabled, 0},
	{"trace.tsc_ns", NULL, turn_tsc, -1},
	{"trace.record1_ns", "trace.record1_over_tsc_ns", turn_record1, 2},
	{"trace.record4_ns", "trace.record4_over_tsc_ns", turn_record4, 2},
	{"trace.bdev_io_ns", "trace.bdev_io_over_tsc_ns", turn_bdev_io, 2},
};
enum { VARIANTS = sizeof(variants) / sizeof(variants[0]) };

static double values[VARIANTS][TURNS], overs[VARIANTS][TURNS];

static void measure(void)
{
	for (int t = -1; t < TURNS; t++) { /* the first warms up */
		double now[VARIANTS];
		for (int v = 0; v < VARIANTS; v++) {
			now[v] = variants[v].turn();
		}
		for (int v = 0; v < VARIANTS && t >= 0; v++) {
			values[v][t] = now[v];
			overs[v][t] = variants[v].baseline >= 0 ? now[v] - now[variants[v].baseline] : 0;
		}
	}
	for (int v = 0; v < VARIANTS; v++) {
		bench_print(variants[v].name, bench_median(values[v], TURNS), "ns");
		if (variants[v].over_name != NULL) {
			bench_print(variants[v].over_name, bench_median(overs[v], TURNS), "ns");
		}
	}
}

int main(void)
{
	char *argv[] = {"bench", "--no-huge",      "--no-shconf",      "--no-telemetry", "--no-pci", "-m",
			"32",    "--iova-mode=va", "--lcores=0@(0-1)", "--log-level=4",  NULL};
	struct trace_opts opts = {.name = "bench", .instance_id = -1, .num_entries = TRACE_DEFAULT_ENTRIES};
	char error[TRACE_ERROR_MAX], path[4096];

	if (rte_eal_init(sizeof(argv) / sizeof(argv[0]) - 1, argv) < 0) {
		fprintf(stderr, "bench-trace: the EAL does not start\n");
		return 1;
	}
	if (trace_start(&opts, error) != 0) {
		fprintf(stderr, "bench-trace: %s\n", error);
		return 1;
	}
	snprintf(path, sizeof(path), "%s", trace_file_path());
	/* All but the tracepoint that stands for the disabled ones. */
	trace_set_tpoints(TRACE_GROUP_TEST, ~(1ull << (TRACE_TPOINT_TEST_STRING % TRACE_TPOINTS_PER_GROUP)));
	trace_set_tpoints(TRACE_GROUP_BDEV, UINT64_MAX);
	if (trace_thread_attach(0, "bench") != 0) {
		fprintf(stderr, "bench-trace: no ring for lcore 0\n");
		return 1;
	}
	measure();
	struct trace_slot_stats stats;
	trace_get_slot_stats(0, &stats);
	if (stats.recorded != (uint64_t)(TURNS + 1) * RECORDS * (1 + 3 + 2)) {
		fprintf(stderr, "bench-trace: %llu slots were written, which is not what was measured\n",
			(unsigned long long)stats.recorded);
		return 1;
	}
	trace_stop();
	unlink(path);
	rte_eal_cleanup();
	return 0;
}
