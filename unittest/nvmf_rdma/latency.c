/* SPDX-License-Identifier: BSD-3-Clause */
/* The target's own times of commands (request_latency), compared with what the block device takes and with what the
 * host measures, of commands that begin and end in one round of the reactor. */
#include <stdatomic.h>
#include <string.h>

#include "env_dpdk/env.h"
#include "nvmf/nvmf.h"
#include "nvmf/transport.h"
#include "unittest/bdev/fixture.h"
#include "unittest/nvmf_rdma/hosts.h"

#define DEVICE_NS 20000 /* that each read takes */
#define EXACT     60u   /* I/Os that are all samples */
#define IOS       600u

static struct nvmf_tgt *tgt;
static struct nvmf_subsystem *subsystem;
static struct host host;
static struct nvmf_address at = {.trtype = "RDMA", .adrfam = 1, .traddr = "127.0.0.1", .trsvcid = "4420"};

/* --- A device that ends I/O in submit after some work. The group's thread only. --- */

static struct bdev device;
static uint64_t device_ticks; /* that all I/O took in it */
static struct bdev_module slow_module = {.name = "slow"};
BDEV_MODULE_REGISTER(slow_module)

static void slow_submit(void *channel, struct bdev_io *io)
{
	uint64_t begun = env_ticks(), ticks;

	do {
		ticks = env_ticks() - begun;
	} while (env_ticks_to_ns(ticks) < DEVICE_NS);
	device_ticks += ticks;
	bdev_io_complete(io, 0);
}

static void slow_destruct(struct bdev *b)
{
	bdev_destruct_done(b);
}

static const struct bdev_ops slow_ops = {.submit = slow_submit, .destruct = slow_destruct};

static int device_make(void)
{
	device = (struct bdev){.name = "slow",
			       .product_name = "slow",
			       .num_blocks = 64,
			       .block_size = 4096,
			       .io_types = 1u << BDEV_IO_READ,
			       .numa_node = -1,
			       .ops = &slow_ops,
			       .module = &slow_module};
	return bdev_register(&device);
}

/* --- The host sends a command when the one before it was answered --- */

static struct {
	unsigned left;
	uint64_t sent, ticks;
	uint64_t longest_ticks; /* that the host waited for one of them */
	atomic_bool over;
} run;

static void send_read(void *arg)
{
	struct nvme_sqe sqe = host_rw(nvme_cmd_read, 1);

	run.sent = env_ticks();
	CU_ASSERT(fake_send(&host.io, &sqe, NULL, 0));
}

static void on_read(struct fake_conn *conn, const struct nvme_cqe *cqe)
{
	uint64_t ticks = env_ticks() - run.sent;

	run.ticks += ticks;
	run.longest_ticks = ticks > run.longest_ticks ? ticks : run.longest_ticks;
	CU_ASSERT_EQUAL(nvme_cqe_status(cqe), 0);
	if (--run.left != 0) {
		send_read(NULL);
	} else {
		set_done(&run.over);
	}
}

static uint64_t request_latency(void)
{
	struct nvmf_poll_group_stats stats;
	unsigned n = 0;

	nvmf_poll_group_get_stats(nvmf_poll_group_next(tgt, NULL), &stats);
	while (strcmp(nvmf_transport_counter("RDMA", n)->name, "request_latency") != 0) {
		n++;
	}
	return stats.transports[0].devices[0].counters[n];
}

/* What the target counts for that many reads. */
static uint64_t run_reads(unsigned n)
{
	uint64_t before = request_latency();

	memset(&run, 0, sizeof(run));
	device_ticks = 0;
	run.left = n;
	host.io.on_response = on_read;
	thread_call(host_group_thread, send_read, NULL);
	CU_ASSERT_TRUE_FATAL(fixture_wait(&run.over));
	return request_latency() - before;
}

static void test_each_of_the_first_commands_counts_with_its_exact_time(void)
{
	host_connect(&host, 0);
	uint64_t latency = run_reads(EXACT);

	CU_ASSERT(latency > device_ticks);
	CU_ASSERT(latency < run.ticks);
}

/* Where something else had the CPU during a command, that command may be a sample, and stands for many: then nothing
 * can be said, and the next samples have yet to correct what was learned from it. So this is the mean of an attempt in
 * which no command took long, or of the last attempt before the deadline. */
static void test_the_mean_of_many_commands_is_right(void)
{
	uint64_t deadline = env_ticks() + WAIT_US / 1000000 * env_ticks_hz(), latency;
	bool is_right, was_disturbed;

	do {
		latency = run_reads(IOS);
		was_disturbed = run.longest_ticks * 20 > run.ticks;
		is_right = latency > device_ticks / 5 * 4 && latency < run.ticks / 5 * 6;
	} while ((was_disturbed || !is_right) && env_ticks() < deadline);
	CU_ASSERT(is_right);
}

/* --- Set-up --- */

static atomic_int state;

static void set_state(void *arg, int status)
{
	atomic_store(&state, status == 0 ? 1 : -1);
	fixture_wake();
}

static bool has_state(void *arg)
{
	return atomic_load(&state) != 0;
}

static int wait_state(void)
{
	int rc = fixture_poll(has_state, NULL) && atomic_load(&state) > 0 ? 0 : -1;

	atomic_store(&state, 0);
	return rc;
}

static struct thread *find_group_thread(void)
{
	struct thread *t = thread_next(NULL);

	while (t != NULL && strcmp(thread_name(t), nvmf_poll_group_name(nvmf_poll_group_next(tgt, NULL))) != 0) {
		t = thread_next(t);
	}
	return t;
}

static int setup(void)
{
	struct nvmf_tgt_opts opts = {.name = "latency"};
	struct nvmf_subsystem_opts sopts = {.serial_number = "1", .allow_any_host = true};
	struct nvmf_transport_opts topts;
	char why[NVMF_ERROR_MAX];
	cpu_set_t cores;
	uint32_t nsid;
	int rc = fixture_start();

	CPU_ZERO(&cores);
	CPU_SET(1, &cores);
	opts.cores = &cores;
	nvmf_transport_opts_init("RDMA", &topts);
	if (rc != 0 || device_make() != 0 || nvmf_tgt_create(&opts, &tgt) != 0 ||
	    nvmf_transport_create(tgt, "RDMA", &topts, why) != 0 || nvmf_tgt_start(tgt) != 0 ||
	    nvmf_subsystem_create(tgt, HOST_SUBNQN, &sopts, &subsystem) != 0 ||
	    nvmf_subsystem_add_ns(subsystem, "slow", &(struct nvmf_ns_opts){0}, &nsid) != 0 ||
	    nvmf_subsystem_add_listener(subsystem, &at) != 0) {
		return -1;
	}
	nvmf_subsystem_start(subsystem, set_state, NULL);
	host_group_thread = find_group_thread();
	return host_group_thread != NULL ? wait_state() : -1;
}

static void device_gone(void *arg, int rc)
{
	set_done(arg);
}

static int teardown(void)
{
	atomic_bool gone = false;

	nvmf_tgt_stop(tgt, set_state, NULL);
	int rc = wait_state();
	nvmf_tgt_destroy(tgt);
	bdev_unregister(&device, device_gone, &gone);
	return rc | (fixture_wait(&gone) ? 0 : -1) | fixture_stop();
}

static const struct unit_test tests[] = {
	UNIT(test_each_of_the_first_commands_counts_with_its_exact_time),
	UNIT(test_the_mean_of_many_commands_is_right),
	UNIT_END,
};

UNIT_MAIN("nvmf_rdma_latency", tests, setup, teardown)
