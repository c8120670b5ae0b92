/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/target.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "bdev/bdev.h"
#include "bdev_modules/null/null.h"
#include "env_dpdk/env.h"
#include "nvmf/transport.h"
#include "trace/trace.h"
#include "util/log.h"

static const char *bench_name = "target"; /* until it is known */
static struct nvmf_tgt *tgt;
static struct thread *group_thread;
static struct poller *ticker;
static uint32_t nsid;
static int state;

_Noreturn void bench_target_fail(const char *what)
{
	fprintf(stderr, "bench %s: %s\n", bench_name, what);
	exit(1);
}

void bench_target_wait(bool (*done)(void *arg), void *arg, const char *what)
{
	if (!thread_control_wait(done, arg, 60000000)) {
		bench_target_fail(what);
	}
}

static void set_state(void *arg, int status)
{
	state = status == 0 ? 1 : -1;
}

static void bdev_gone(void *arg)
{
	state = 1;
}

static bool has_state(void *arg)
{
	return state != 0;
}

static void wait_state(const char *what)
{
	bench_target_wait(has_state, NULL, what);
	if (state < 0) {
		bench_target_fail(what);
	}
	state = 0;
}

/* So that what bench_target_wait() waits for is looked at often. */
static int tick(void *ctx)
{
	return POLLER_IDLE;
}

static void start_process(void)
{
	struct env_opts e = {.name = "bench", .instance_id = -1, .no_huge = true, .no_pci = true};
	struct thread_lib_opts t = {.poll_mode = POLL_MODE_BUSY};
	struct trace_opts trace = {.name = "bench",
				   .version = "1",
				   .instance_id = -1,
				   .num_entries = TRACE_DEFAULT_ENTRIES,
				   .num_user_threads = TRACE_DEFAULT_USER_THREADS};
	char error[1024];

	log_set_print_level(LOG_LEVEL_WARNING);
	if (env_init(&e, error) != 0 || trace_start(&trace, error) != 0) {
		bench_target_fail(error);
	}
	if (thread_lib_start(&t) != 0) {
		bench_target_fail("no threads");
	}
	ticker = poller_register(&(struct poller_opts){.name = "tick", .fn = tick, .period_us = 1000, .fd = -1});
}

void bench_target_start(const char *name, const struct nvmf_address *address, uint16_t queue_depth)
{
	struct bdev_null_opts disk = {.name = "Null0", .block_size = 4096, .num_blocks = BENCH_TARGET_BLOCKS};
	struct nvmf_tgt_opts opts = {.name = "bench"};
	struct nvmf_subsystem_opts sopts = {.serial_number = "1", .allow_any_host = true};
	struct nvmf_transport_opts topts;
	struct nvmf_subsystem *s;
	struct nvmf_ns_opts nopts = {0};
	char error[BDEV_ERROR_MAX], why[NVMF_ERROR_MAX];

	bench_name = name;
	start_process();
	if (bdev_init() != 0 || bdev_null_create(&disk, error) != 0 || nvmf_tgt_create(&opts, &tgt) != 0 ||
	    nvmf_transport_opts_init(address->trtype, &topts) != 0 || (topts.max_queue_depth = queue_depth) == 0 ||
	    (topts.max_anonymous = topts.max_anonymous_per_host = 0) != 0 ||
	    nvmf_transport_create(tgt, address->trtype, &topts, why) != 0 || nvmf_tgt_start(tgt) != 0 ||
	    nvmf_subsystem_create(tgt, BENCH_TARGET_NQN, &sopts, &s) != 0 ||
	    nvmf_subsystem_add_ns(s, "Null0", &nopts, &nsid) != 0 || nvmf_subsystem_add_listener(s, address) != 0) {
		bench_target_fail("the target could not be made");
	}
	nvmf_subsystem_start(s, set_state, NULL);
	wait_state("the subsystem does not start");
	group_thread = thread_next(thread_next(NULL));
}

void bench_target_stop(void)
{
	char path[256];

	nvmf_tgt_stop(tgt, set_state, NULL);
	wait_state("the target does not stop");
	nvmf_tgt_destroy(tgt);
	bdev_fini(bdev_gone, NULL);
	wait_state("the block devices do not stop");
	poller_unregister(&ticker);
	snprintf(path, sizeof(path), "%s", trace_file_path() ? trace_file_path() : "");
	thread_lib_stop();
	trace_stop();
	unlink(path);
	env_fini();
}

struct thread *bench_target_thread(void)
{
	return group_thread;
}

uint32_t bench_target_nsid(void)
{
	return nsid;
}

static void count_records(void *arg)
{
	uint64_t *n = arg;

	*n = 0;
	for (unsigned i = 0; i < TRACE_NUM_TPOINTS; i++) {
		*n += trace_ring.history->tpoint_count[i];
	}
}

uint64_t bench_target_records(void)
{
	uint64_t n;

	thread_call(group_thread, count_records, &n);
	return n;
}

double bench_target_cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}
