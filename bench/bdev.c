/* SPDX-License-Identifier: BSD-3-Clause */
/* What the bdev layer costs: 4 KiB reads at queue depth 128 on one core.
 *
 *     bdev.null_ns		a null bdev, tracing off
 *     bdev.null_traced_ns	the same with every tracepoint of the bdev group on
 *     bdev.malloc_ns		a RAM disk of 64 MiB, random blocks
 *     bdev.memcpy_ns		memcpy of the same blocks in the same order, no layer at all
 *     bdev.allocs_per_io	calls of malloc and its kin per I/O, while the above ran */
#include <errno.h>
#include <string.h>

#include "bdev/bdev.h"
#include "bdev_modules/malloc/malloc.h"
#include "bdev_modules/null/null.h"
#include "bench/allocations.h"
#include "bench/bench.h"
#include "env_dpdk/env.h"
#include "thread/thread.h"
#include "trace/trace.h"

#define QD          128
#define BLOCK       4096
#define DISK_BLOCKS 16384 /* 64 MiB: larger than the caches */
#define IOS         400000
#define FEW_IOS     40000 /* where instructions are counted */
#define COPIES      100000
#define TURNS       31

static uint64_t counted_ios;

struct request {
	struct run *run;
	struct iovec iov;
	struct bdev_io io; /* last: the module's context follows */
};

struct run {
	struct thread *thread;
	struct bdev_desc *desc;
	struct bdev_channel *ch;
	uint8_t *requests;
	size_t stride;
	uint8_t *buffers;
	uint32_t random;
	unsigned ios, to_submit, to_complete;
	uint64_t start_ticks, ticks;
	bool traced, done;
};

static uint32_t next_block(struct run *r)
{
	r->random = r->random * 1664525 +
		    1013904223; /* Knuth's and Lewis's quick generator: enough to defeat prefetching */
	return (r->random >> 8) % DISK_BLOCKS;
}

static void wake(void *arg)
{
	((struct run *)arg)->done = true;
}

static void request_done(struct bdev_io *io, void *arg)
{
	struct run *r = arg;

	if (io->status != 0) {
		abort();
	}
	if (r->to_submit > 0) {
		r->to_submit--;
		io->offset_blocks = next_block(r);
		bdev_submit(io);
	}
	if (--r->to_complete == 0) {
		bench_toggle_count();
		r->ticks = env_ticks() - r->start_ticks;
		counting = false;
		thread_send(thread_control(), wake, r);
	}
}

static struct request *request_at(struct run *r, unsigned i)
{
	return (struct request *)(r->requests + i * r->stride);
}

static void start_run(void *arg)
{
	struct run *r = arg;

	r->to_submit = r->ios - QD;
	r->to_complete = r->ios;
	counting = true;
	r->start_ticks = env_ticks();
	bench_toggle_count();
	for (unsigned i = 0; i < QD; i++) {
		struct bdev_io *io = &request_at(r, i)->io;
		io->offset_blocks = next_block(r);
		bdev_submit(io);
	}
}

static bool is_done(void *arg)
{
	return ((struct run *)arg)->done;
}

static double ticks_to_ns(uint64_t ticks, unsigned n)
{
	return (double)ticks * 1e9 / (double)env_ticks_hz() / n;
}

static double turn_bdev(void *arg)
{
	struct run *r = arg;

	r->done = false;
	r->random = 1;
	if (r->traced) {
		trace_set_tpoints(TRACE_GROUP_BDEV, UINT64_MAX);
	}
	thread_send(r->thread, start_run, r);
	if (!thread_control_wait(is_done, r, 600000000)) {
		abort();
	}
	trace_clear_tpoints(TRACE_GROUP_BDEV, UINT64_MAX);
	counted_ios += r->ios;
	return ticks_to_ns(r->ticks, r->ios);
}

static void copy_run(void *arg)
{
	struct run *r = arg;
	void *disk;
	size_t len;

	if (!bdev_zcopy_region(bdev_desc_bdev(r->desc), &disk, &len)) {
		abort();
	}
	uint64_t start = env_ticks();
	for (unsigned i = 0; i < COPIES; i++) {
		memcpy(r->buffers + (size_t)(i % QD) * BLOCK, (uint8_t *)disk + (size_t)next_block(r) * BLOCK, BLOCK);
	}
	r->ticks = env_ticks() - start;
}

static double turn_memcpy(void *arg)
{
	struct run *r = arg;

	r->random = 1;
	thread_call(r->thread, copy_run, r);
	return ticks_to_ns(r->ticks, COPIES);
}

static void open_run(void *arg)
{
	struct run *r = arg;
	r->ch = bdev_channel_get(r->desc);
}

static void close_run(void *arg)
{
	struct run *r = arg;
	bdev_channel_put(r->ch);
}

static void event(struct bdev_desc *desc, enum bdev_event e, void *arg)
{
}

static void run_init(struct run *r, const char *bdev, struct thread *t, uint8_t *buffers)
{
	r->thread = t;
	r->ios = IOS;
	r->buffers = buffers;
	if (bdev_open(bdev, true, event, r, &r->desc) != 0) {
		abort();
	}
	thread_call(t, open_run, r);
	r->stride = (offsetof(struct request, io) + bdev_io_size() + 63) & ~(size_t)63;
	r->requests = aligned_alloc(64, QD * r->stride);
	if (r->ch == NULL || r->requests == NULL) {
		abort();
	}
	memset(r->requests, 0, QD * r->stride);
	for (unsigned i = 0; i < QD; i++) {
		struct request *q = request_at(r, i);
		q->iov = (struct iovec){buffers + (size_t)i * BLOCK, BLOCK};
		bdev_io_init(&q->io, r->desc, r->ch, request_done, r);
		bdev_io_set_rw(&q->io, BDEV_IO_READ, &q->iov, 1, 0, 1);
	}
}

static void run_fini(struct run *r)
{
	thread_call(r->thread, close_run, r);
	bdev_close(r->desc);
	free(r->requests);
}

static void check(int rc, const char *what, const char *error)
{
	if (rc != 0) {
		fprintf(stderr, "%s: %s\n", what, error);
		exit(1);
	}
}

static void set_true(void *flag)
{
	*(bool *)flag = true;
}

static bool is_true(void *flag)
{
	return *(bool *)flag;
}

static void make_bdevs(void)
{
	char error[BDEV_ERROR_MAX];
	const struct bdev_null_opts null = {.name = "null", .block_size = BLOCK, .num_blocks = DISK_BLOCKS};
	const struct bdev_malloc_opts ram = {
		.name = "ram", .block_size = BLOCK, .num_blocks = DISK_BLOCKS, .numa_id = -1};

	check(bdev_init(), "bdev_init", "failed");
	check(bdev_null_create(&null, error), "bdev_null_create", error);
	check(bdev_malloc_create(&ram, NULL, error), "bdev_malloc_create", error);
}

static void measure_times(struct run *null, struct run *traced, struct run *ram)
{
	const struct bench_variant variants[] = {
		{"bdev.null_ns", "ns", turn_bdev, null},
		{"bdev.null_traced_ns", "ns", turn_bdev, traced},
		{"bdev.malloc_ns", "ns", turn_bdev, ram},
		{"bdev.memcpy_ns", "ns", turn_memcpy, ram},
	};
	bench_run(variants, sizeof(variants) / sizeof(variants[0]), TURNS, NULL);
	bench_print("bdev.allocs_per_io", (double)allocations / (double)counted_ios, "allocations");
}

/* After a run of each kind, which pays for what is done once. */
static void count_instructions(struct run *null, struct run *traced)
{
	null->ios = traced->ios = FEW_IOS;
	turn_bdev(null);
	turn_bdev(traced);
	bench_counted("warm", FEW_IOS);
	turn_bdev(null);
	bench_counted("null", FEW_IOS);
	turn_bdev(traced);
	bench_counted("null_traced", FEW_IOS);
}

int main(int argc, char **argv)
{
	const struct env_opts env = {.name = "bench", .instance_id = -1, .no_huge = false, .no_pci = true};
	const struct trace_opts trace = {.name = "bench",
					 .instance_id = -1,
					 .num_entries = TRACE_DEFAULT_ENTRIES,
					 .num_user_threads = 1,
					 .num_user_entries = 64};
	char error[TRACE_ERROR_MAX];
	bool gone = false;

	check(env_init(&env, error), "env_init", error);
	check(trace_start(&trace, error), "trace_start", error);
	check(thread_lib_start(&(struct thread_lib_opts){.poll_mode = POLL_MODE_BUSY}), "thread_lib_start", "failed");
	make_bdevs();
	struct thread *t = thread_create("bench", NULL);
	uint8_t *buffers = env_dma_zmalloc((size_t)QD * BLOCK, 4096, -1);
	struct run null = {0}, traced = {.traced = true}, ram = {0};
	run_init(&null, "null", t, buffers);
	run_init(&traced, "null", t, buffers);
	run_init(&ram, "ram", t, buffers);

	if (bench_counts(argc, argv)) {
		count_instructions(&null, &traced);
	} else {
		measure_times(&null, &traced, &ram);
	}

	run_fini(&null);
	run_fini(&traced);
	run_fini(&ram);
	bdev_fini(set_true, &gone);
	thread_control_wait(is_true, &gone, 60000000);
	env_dma_free(buffers);
	thread_destroy(t);
	thread_lib_stop();
	char path[256];
	snprintf(path, sizeof(path), "%s", trace_file_path());
	trace_stop();
	remove(path); /* of no use to anybody */
	env_fini();
	return 0;
}
