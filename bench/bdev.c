/* SPDX-License-Identifier: BSD-3-Clause */
/* What the bdev layer costs: 4 KiB reads at queue depth 128 on one core.
 *
 *     bdev.null_ns		a null bdev, tracing off
 *     bdev.null_traced_ns	the same with every tracepoint of the bdev group on
 *     bdev.malloc_ns		a RAM disk of 64 MiB, random blocks
 *     bdev.memcpy_ns		memcpy of the same blocks in the same order, no layer at all
 *     bdev.allocs_per_io	calls of malloc and its kin per I/O, while the above ran */
#include <string.h>

#include "bdev_modules/malloc/malloc.h"
#include "bdev_modules/null/null.h"
#include "bench/bdev_load.h"
#include "bench/bench.h"
#include "env_dpdk/env.h"
#include "trace/trace.h"

#define QD          128
#define DISK_BLOCKS 16384 /* 64 MiB: larger than the caches */
#define IOS         400000
#define FEW_IOS     40000 /* where instructions are counted */
#define COPIES      100000
#define TURNS       31

static double turn_off(void *load)
{
	return bench_load_ns(bench_load_run(load, IOS), IOS);
}

static uint64_t run_traced(struct bench_load *load, unsigned ios)
{
	trace_set_tpoints(TRACE_GROUP_BDEV, UINT64_MAX);
	uint64_t ticks = bench_load_run(load, ios);
	trace_clear_tpoints(TRACE_GROUP_BDEV, UINT64_MAX);
	return ticks;
}

static double turn_traced(void *load)
{
	return bench_load_ns(run_traced(load, IOS), IOS);
}

static void copy_run(void *arg)
{
	struct bench_load *l = arg;
	void *disk;
	size_t len;

	if (!bdev_zcopy_region(bdev_desc_bdev(l->desc), &disk, &len)) {
		abort();
	}
	l->random = 1;
	uint64_t start = env_ticks();
	for (unsigned i = 0; i < COPIES; i++) {
		memcpy(l->buffers + (size_t)(i % QD) * BENCH_LOAD_BLOCK,
		       (uint8_t *)disk + (size_t)bench_load_next(l) * BENCH_LOAD_BLOCK, BENCH_LOAD_BLOCK);
	}
	l->ticks = env_ticks() - start;
}

static double turn_memcpy(void *arg)
{
	struct bench_load *l = arg;

	thread_call(l->thread, copy_run, l);
	return bench_load_ns(l->ticks, COPIES);
}

static void make_bdevs(void)
{
	char error[BDEV_ERROR_MAX];
	const struct bdev_null_opts null = {.name = "null", .block_size = BENCH_LOAD_BLOCK, .num_blocks = DISK_BLOCKS};
	const struct bdev_malloc_opts ram = {
		.name = "ram", .block_size = BENCH_LOAD_BLOCK, .num_blocks = DISK_BLOCKS, .numa_id = -1};

	bench_load_check(bdev_null_create(&null, error), "bdev_null_create", error);
	bench_load_check(bdev_malloc_create(&ram, NULL, error), "bdev_malloc_create", error);
}

static void measure_times(struct bench_load *null, struct bench_load *ram)
{
	const struct bench_variant variants[] = {
		{"bdev.null_ns", "ns", turn_off, null},
		{"bdev.null_traced_ns", "ns", turn_traced, null},
		{"bdev.malloc_ns", "ns", turn_off, ram},
		{"bdev.memcpy_ns", "ns", turn_memcpy, ram},
	};
	bench_run(variants, sizeof(variants) / sizeof(variants[0]), TURNS, NULL);
	bench_print("bdev.allocs_per_io", bench_load_allocations(), "allocations");
}

/* After a run of each kind, which pays for what is done once. */
static void count_instructions(struct bench_load *null)
{
	bench_load_run(null, FEW_IOS);
	run_traced(null, FEW_IOS);
	bench_counted("warm", FEW_IOS);
	bench_load_run(null, FEW_IOS);
	bench_counted("null", FEW_IOS);
	run_traced(null, FEW_IOS);
	bench_counted("null_traced", FEW_IOS);
}

int main(int argc, char **argv)
{
	const struct trace_opts trace = {.name = "bench",
					 .instance_id = -1,
					 .num_entries = TRACE_DEFAULT_ENTRIES,
					 .num_user_threads = 1,
					 .num_user_entries = 64};
	char error[TRACE_ERROR_MAX];

	bench_load_start_env();
	bench_load_check(trace_start(&trace, error), "trace_start", error);
	bench_load_start_threads();
	make_bdevs();
	struct bench_load null = {.bdev = "null",
				  .thread = thread_create("bench", NULL),
				  .queue_depth = QD,
				  .type = BDEV_IO_READ,
				  .bytes = BENCH_LOAD_BLOCK,
				  .block_mask = DISK_BLOCKS - 1,
				  .buffers = env_dma_zmalloc((size_t)QD * BENCH_LOAD_BLOCK, 4096, -1)};
	struct bench_load ram = null;
	ram.bdev = "ram";
	bench_load_open(&null);
	bench_load_open(&ram);

	if (bench_counts(argc, argv)) {
		count_instructions(&null);
	} else {
		measure_times(&null, &ram);
	}

	bench_load_close(&null);
	bench_load_close(&ram);
	bench_load_end_bdevs();
	env_dma_free(null.buffers);
	thread_destroy(null.thread);
	thread_lib_stop();
	char path[256];
	snprintf(path, sizeof(path), "%s", trace_file_path());
	trace_stop();
	remove(path); /* of no use to anybody */
	env_fini();
	return 0;
}
