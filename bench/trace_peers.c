/* SPDX-License-Identifier: BSD-3-Clause */
/* What an event with four arguments of 64 bits costs, in turns: in varve's recorder, in DPDK's (rte_trace, which
 * overwrites the oldest as ours does), and, if built with it, in LTTng-UST. bench/compare.py runs it.
 *
 *   bench-trace_peers           prints a line `name value unit` for each
 *   bench-trace_peers --lttng   the same with LTTng-UST, of which a session records bench:* already */
#include <rte_eal.h>
#include <rte_trace.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/trace_peers.h"
#ifdef HAVE_LTTNG
#include "bench/trace_lttng.h"
#endif
#include "trace/trace.h"

enum { RECORDS = 200000, TURNS = 101 };

static double turn_varve(void *arg)
{
	double start = bench_now_ns();
	for (uint64_t i = 0; i < RECORDS; i++) {
		__asm__ volatile("" : : "r"(i));
		TRACE(TEST_FOUR, 1, 4096, i, i, i + 1, i + 2, i + 3);
	}
	return (bench_now_ns() - start) / RECORDS;
}

static double turn_rte(void *arg)
{
	double start = bench_now_ns();
	for (uint64_t i = 0; i < RECORDS; i++) {
		__asm__ volatile("" : : "r"(i));
		bench_rte_four(i, i + 1, i + 2, i + 3);
	}
	return (bench_now_ns() - start) / RECORDS;
}

#ifdef HAVE_LTTNG
static double turn_lttng(void *arg)
{
	double start = bench_now_ns();
	for (uint64_t i = 0; i < RECORDS; i++) {
		__asm__ volatile("" : : "r"(i));
		lttng_ust_tracepoint(bench, four, i, i + 1, i + 2, i + 3);
	}
	return (bench_now_ns() - start) / RECORDS;
}
#endif

/* What was measured must have been recorded. */
static bool is_recorded(void)
{
	struct trace_slot_stats stats;

	trace_get_slot_stats(0, &stats);
	if (stats.recorded != (uint64_t)(TURNS + 1) * RECORDS * 3) { /* an event with four arguments has three slots */
		fprintf(stderr, "bench-trace_peers: varve has recorded %llu slots, which is not what was measured\n",
			(unsigned long long)stats.recorded);
		return false;
	}
	if (!rte_trace_is_enabled() || !rte_trace_point_is_enabled(&__bench_rte_four)) {
		fprintf(stderr, "bench-trace_peers: rte_trace does not record\n");
		return false;
	}
	return true;
}

static bool measure(bool with_lttng)
{
	struct bench_variant v[3] = {{"compare.varve_event_ns", "ns", turn_varve, NULL},
				     {"compare.rte_trace_event_ns", "ns", turn_rte, NULL}};
	unsigned n = 2;

#ifdef HAVE_LTTNG
	if (with_lttng) {
		if (!lttng_ust_tracepoint_enabled(bench, four)) {
			fprintf(stderr, "bench-trace_peers: no session of LTTng records bench:four\n");
			return false;
		}
		v[n++] = (struct bench_variant){"compare.lttng_event_ns", "ns", turn_lttng, NULL};
	}
#else
	if (with_lttng) {
		fprintf(stderr, "bench-trace_peers: built without liblttng-ust-dev\n");
		return false;
	}
#endif
	bench_run(v, n, TURNS, NULL);
	return is_recorded();
}

int main(int argc, char **argv)
{
	char *eal[] = {"bench",
		       "--no-huge",
		       "--no-shconf",
		       "--no-telemetry",
		       "--no-pci",
		       "-m",
		       "32",
		       "--iova-mode=va",
		       "--lcores=0@(0-1)",
		       "--log-level=4",
		       "--trace=bench.*",
		       "--trace-mode=overwrite",
		       NULL};
	struct trace_opts opts = {.name = "bench", .instance_id = -1, .num_entries = TRACE_DEFAULT_ENTRIES};
	char error[TRACE_ERROR_MAX], path[4096];

	if (rte_eal_init(sizeof(eal) / sizeof(eal[0]) - 1, eal) < 0) {
		fprintf(stderr, "bench-trace_peers: the EAL does not start\n");
		return 1;
	}
	if (trace_start(&opts, error) != 0) {
		fprintf(stderr, "bench-trace_peers: %s\n", error);
		return 1;
	}
	snprintf(path, sizeof(path), "%s", trace_file_path());
	trace_set_tpoints(TRACE_GROUP_TEST, UINT64_MAX);
	if (trace_thread_attach(0, "bench") != 0) {
		fprintf(stderr, "bench-trace_peers: no ring for lcore 0\n");
		return 1;
	}
	bool good = measure(argc == 2 && strcmp(argv[1], "--lttng") == 0);
	trace_stop();
	unlink(path);
	rte_eal_cleanup();
	return good ? 0 : 1;
}
