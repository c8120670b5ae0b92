/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/bdev_load.h"

#include <string.h>

#include "bench/allocations.h"
#include "bench/bench.h"
#include "env_dpdk/env.h"

static uint64_t counted_ios;

/* ---- The process ---- */

void bench_load_check(int rc, const char *what, const char *error)
{
	if (rc != 0) {
		fprintf(stderr, "%s: %s\n", what, error);
		exit(1);
	}
}

void bench_load_start_env(void)
{
	const struct env_opts env = {.name = "bench", .instance_id = -1, .no_huge = false, .no_pci = true};
	char error[ENV_ERROR_MAX];

	bench_load_check(env_init(&env, error), "env_init", error);
}

void bench_load_start_threads(void)
{
	bench_load_check(thread_lib_start(&(struct thread_lib_opts){.poll_mode = POLL_MODE_BUSY}), "thread_lib_start",
			 "failed");
	bench_load_check(bdev_init(), "bdev_init", "failed");
}

static void set_true(void *flag)
{
	*(bool *)flag = true;
}

static bool is_true(void *flag)
{
	return *(bool *)flag;
}

void bench_load_end_bdevs(void)
{
	bool gone = false;

	bdev_fini(set_true, &gone);
	if (!thread_control_wait(is_true, &gone, 60000000)) {
		bench_load_check(-1, "bdev_fini", "does not end");
	}
}

/* ---- A load ---- */

static struct bench_request *request_at(struct bench_load *l, unsigned i)
{
	return (struct bench_request *)(l->requests + i * l->stride);
}

static void load_request_done(struct bdev_io *io, void *arg)
{
	struct bench_load *l = arg;

	if (io->status != 0) {
		abort();
	}
	if (l->to_submit > 0) {
		l->to_submit--;
		io->offset_blocks = bench_load_next(l);
		bdev_submit(io);
	}
	if (--l->to_complete == 0) {
		bench_toggle_count();
		l->ticks = env_ticks() - l->start_ticks;
		counting = false;
		thread_send(thread_control(), set_true, &l->done);
	}
}

static void load_start(void *arg)
{
	struct bench_load *l = arg;

	l->to_submit = l->ios - l->queue_depth;
	l->to_complete = l->ios;
	counting = true;
	l->start_ticks = env_ticks();
	bench_toggle_count();
	for (unsigned i = 0; i < l->queue_depth; i++) {
		struct bdev_io *io = &request_at(l, i)->io;
		io->offset_blocks = bench_load_next(l);
		bdev_submit(io);
	}
}

uint64_t bench_load_run(struct bench_load *l, unsigned ios)
{
	l->ios = ios;
	l->random = 1;
	l->next_block = 0;
	l->done = false;
	thread_send(l->thread, load_start, l);
	if (!thread_control_wait(is_true, &l->done, 600000000)) { /* in callgrind it takes long */
		bench_load_check(-1, l->bdev, "its I/O does not end");
	}
	counted_ios += ios;
	return l->ticks;
}

double bench_load_allocations(void)
{
	return (double)allocations / (double)counted_ios;
}

static void load_get_channel(void *arg)
{
	struct bench_load *l = arg;

	l->ch = bdev_channel_get(l->desc);
}

static void load_put_channel(void *arg)
{
	bdev_channel_put(((struct bench_load *)arg)->ch);
}

static void load_event(struct bdev_desc *desc, enum bdev_event e, void *arg)
{
}

void bench_load_open(struct bench_load *l)
{
	bench_load_check(bdev_open(l->bdev, true, load_event, l, &l->desc), l->bdev, "cannot be opened");
	thread_call(l->thread, load_get_channel, l);
	l->stride = (offsetof(struct bench_request, io) + bdev_io_size() + 63) & ~(size_t)63;
	l->requests = aligned_alloc(64, l->queue_depth * l->stride);
	if (l->ch == NULL || l->requests == NULL) {
		bench_load_check(-1, l->bdev, "no memory");
	}
	memset(l->requests, 0, l->queue_depth * l->stride);
	for (unsigned i = 0; i < l->queue_depth; i++) {
		struct bench_request *r = request_at(l, i);
		r->iov = (struct iovec){l->buffers + (size_t)i * l->bytes, l->bytes};
		bdev_io_init(&r->io, l->desc, l->ch, load_request_done, l);
		bdev_io_set_rw(&r->io, l->type, &r->iov, 1, 0, l->bytes / BENCH_LOAD_BLOCK);
	}
}

void bench_load_close(struct bench_load *l)
{
	thread_call(l->thread, load_put_channel, l);
	bdev_close(l->desc);
	free(l->requests);
}
