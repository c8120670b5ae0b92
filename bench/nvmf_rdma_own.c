/* SPDX-License-Identifier: BSD-3-Clause */
/* What the target itself costs per command: the real target, RDMA transport, block devices and threads, on verbs that
 * cost nothing (unittest/nvmf_rdma/fake_verbs.c) and that move no data. 4 KiB random reads of a null device, hosts with
 * 128 commands outstanding in all (one each where there are more hosts). What remains of the fake is measured and taken
 * off.
 *
 *     nvmf_rdma.own_ns		one connection, tracing off
 *     nvmf_rdma.own_ns_conn1 ...	the same with so many connections, each with its own controller
 *     nvmf_rdma.traced_own_ns		the groups nvmf_rdma and bdev recorded
 *     nvmf_rdma.events_per_io		records of one command then
 *     nvmf_rdma.ns_per_event		what each of them added
 *     nvmf_rdma.doorbells_per_io	calls of ibv_post_send */
#include <stddef.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/target.h"
#include "nvmf/nvmf.h"
#include "thread/thread.h"
#include "trace/trace.h"
#include "unittest/nvmf_rdma/fake_verbs.h"

#define HOSTS_MAX 256
#define IN_FLIGHT 128
#define IOS       200000
#define FEW_IOS   20000 /* where instructions are counted */
#define TURNS     11

struct host {
	struct fake_conn admin, io;
	bool answered;
	struct nvme_cqe cqe;
	uint32_t random;
};

static struct host hosts[HOSTS_MAX];
static struct nvme_sqe read_sqe;

/* One run; on the group's thread but for `done`. */
static struct {
	unsigned hosts, per_host;
	uint64_t to_send, to_come;
	double start, ns; /* CPU time of the group's thread: what else the machine does is not its cost */
	bool done;
} run;

/* Connecting: one command at a time, from the control thread. */

struct command {
	struct fake_conn *conn;
	const void *sqe, *data;
	uint32_t data_len;
};

static void on_answer(struct fake_conn *conn, const struct nvme_cqe *cqe)
{
	struct host *h = conn->arg;

	h->cqe = *cqe;
	__atomic_store_n(&h->answered, true, __ATOMIC_RELEASE);
}

static void send_command(void *arg)
{
	struct command *c = arg;

	if (!fake_send(c->conn, c->sqe, c->data, c->data_len)) {
		bench_target_fail("no receive is posted");
	}
}

static bool is_answered(void *arg)
{
	return __atomic_load_n(&((struct host *)arg)->answered, __ATOMIC_ACQUIRE);
}

static bool is_accepted(void *arg)
{
	return __atomic_load_n(&((struct fake_conn *)arg)->accepted, __ATOMIC_ACQUIRE);
}

static uint32_t do_command(struct host *h, struct fake_conn *conn, const void *sqe, const void *data, uint32_t data_len)
{
	struct command c = {.conn = conn, .sqe = sqe, .data = data, .data_len = data_len};

	h->answered = false;
	thread_call(bench_target_thread(), send_command, &c);
	bench_target_wait(is_answered, h, "a command of the connection was not answered");
	if (nvme_cqe_status(&h->cqe) != 0) {
		bench_target_fail("a command of the connection was not answered with success");
	}
	return le32toh(h->cqe.dw0);
}

static uint32_t connect_queue(struct host *h, struct fake_conn *conn, unsigned number, uint16_t qid, uint16_t cntlid,
			      uint16_t entries)
{
	struct nvmf_connect_data data = {.cntlid = htole16(cntlid)};
	struct nvmf_connect_sqe sqe = {
		.opcode = nvme_admin_fabrics,
		.flags = NVME_CMD_FLAGS_PSDT_SGL,
		.fctype = nvme_fabrics_type_connect,
		.qid = htole16(qid),
		.sqsize = htole16(entries - 1u),
		.sgl1 = nvme_sgl_make_plain(NVME_SGL_TYPE_DATA_BLOCK, NVME_SGL_SUBTYPE_OFFSET, 0, sizeof(data))};

	conn->arg = h;
	conn->on_response = on_answer;
	conn->cntlid = cntlid;
	data.hostid[0] = 1;
	memcpy(data.hostid + 8, &number, sizeof(number));
	strcpy(data.subsysnqn, BENCH_TARGET_NQN);
	snprintf(data.hostnqn, sizeof(data.hostnqn), "nqn.2026-11.io.varve:host%u", number);
	fake_connect(conn, qid, entries);
	bench_target_wait(is_accepted, conn, "a connection was not accepted");
	return do_command(h, conn, &sqe, &data, sizeof(data));
}

static void connect_host(struct host *h, unsigned number)
{
	struct nvmf_property_set_sqe enable = {.opcode = nvme_admin_fabrics,
					       .flags = NVME_CMD_FLAGS_PSDT_SGL,
					       .fctype = nvme_fabrics_type_property_set,
					       .ofst = htole32(NVME_REG_CC),
					       .value = htole64(1 | 6 << 16 | 4 << 20)};
	uint16_t cntlid = (uint16_t)connect_queue(h, &h->admin, number, 0, NVMF_CNTLID_DYNAMIC, 32);

	do_command(h, &h->admin, &enable, NULL, 0);
	connect_queue(h, &h->io, number, 1, cntlid, IN_FLIGHT + 1);
	h->random = number * 2654435761u + 1;
}

/* The measurement. */

static void send_read(struct host *h)
{
	h->random = h->random * 1664525 + 1013904223;
	read_sqe.cdw10 = htole32(h->random >> 10); /* below 2^22 */
	fake_send(&h->io, &read_sqe, NULL, 0);
}

static void wake(void *arg)
{
	run.done = true;
}

static void on_read(struct fake_conn *conn, const struct nvme_cqe *cqe)
{
	if (cqe->status != 0) {
		bench_target_fail("a read failed");
	}
	if (run.to_send != 0) {
		run.to_send--;
		send_read(conn->arg);
	}
	if (--run.to_come == 0) {
		bench_toggle_count();
		run.ns = bench_target_cpu_ns() - run.start;
		thread_send(thread_control(), wake, NULL);
	}
}

static void start_reads(void *arg)
{
	run.start = bench_target_cpu_ns();
	bench_toggle_count();
	for (unsigned i = 0; i < run.per_host; i++) {
		for (unsigned h = 0; h < run.hosts; h++) {
			hosts[h].io.on_response = on_read;
			run.to_send--;
			send_read(&hosts[h]);
		}
	}
}

static bool is_done(void *arg)
{
	return run.done;
}

static double one_run(unsigned n, unsigned ios)
{
	run.hosts = n;
	run.per_host = n >= IN_FLIGHT ? 1 : IN_FLIGHT / n;
	run.to_send = run.to_come = ios;
	run.done = false;
	thread_call(bench_target_thread(), start_reads, NULL);
	if (!thread_control_wait(is_done, NULL, 600000000)) { /* in callgrind it takes long */
		bench_target_fail("the reads do not end");
	}
	return run.ns / ios;
}

static double turn_off(void *arg)
{
	return one_run((unsigned)(uintptr_t)arg, IOS);
}

static uint64_t records;

static double one_traced_run(unsigned ios)
{
	trace_set_tpoints(TRACE_GROUP_NVMF_RDMA, UINT64_MAX);
	trace_set_tpoints(TRACE_GROUP_BDEV, UINT64_MAX);
	uint64_t before = bench_target_records();
	double ns = one_run(1, ios);
	records = bench_target_records() - before;
	trace_clear_tpoints(TRACE_GROUP_NVMF_RDMA, UINT64_MAX);
	trace_clear_tpoints(TRACE_GROUP_BDEV, UINT64_MAX);
	return ns;
}

static double turn_traced(void *arg)
{
	return one_traced_run(IOS);
}

/* What the fake takes for the same work, with nobody behind it. */
static double turn_fake(void *arg)
{
	return fake_verbs_cost_ns(IOS, NULL);
}

static void measure_times(void)
{
	static const char *const names[] = {"nvmf_rdma.own_ns_conn1", "nvmf_rdma.own_ns_conn8",
					    "nvmf_rdma.own_ns_conn64", "nvmf_rdma.own_ns_conn256"};
	struct bench_variant v[] = {{NULL, "ns", turn_fake, NULL},       {NULL, "ns", turn_off, (void *)1},
				    {NULL, "ns", turn_off, (void *)8},   {NULL, "ns", turn_off, (void *)64},
				    {NULL, "ns", turn_off, (void *)256}, {NULL, "ns", turn_traced, NULL}};
	uint64_t posts = fake_stats.post_send_calls, sends = fake_stats.sends;
	double medians[6];

	bench_run(v, 6, TURNS, medians);
	posts = fake_stats.post_send_calls - posts;
	sends = fake_stats.sends - sends;
	for (unsigned i = 0; i < 4; i++) {
		bench_print(names[i], medians[1 + i] - medians[0], "ns");
	}
	bench_print("nvmf_rdma.own_ns", medians[1] - medians[0], "ns");
	bench_print("nvmf_rdma.traced_own_ns", medians[5] - medians[0], "ns");
	bench_print("nvmf_rdma.events_per_io", (double)records / IOS, "events");
	bench_print("nvmf_rdma.ns_per_event", (medians[5] - medians[1]) / ((double)records / IOS), "ns");
	bench_print("nvmf_rdma.doorbells_per_io", (double)posts / (double)sends, "calls");
	bench_print("nvmf_rdma.fake_ns", medians[0], "ns");
}

/* After a run of each kind, which pays for what is done once. */
static void count_instructions(void)
{
	one_traced_run(FEW_IOS);
	fake_verbs_cost_ns(FEW_IOS, NULL);
	bench_counted("warm", FEW_IOS);
	fake_verbs_cost_ns(FEW_IOS, bench_toggle_count);
	bench_counted("fake", FEW_IOS);
	one_run(1, FEW_IOS);
	bench_counted("target", FEW_IOS);
	one_traced_run(FEW_IOS);
	bench_counted("target_traced", FEW_IOS);
}

int main(int argc, char **argv)
{
	const struct nvmf_address address = {.trtype = "RDMA", .adrfam = 1, .traddr = "127.0.0.1", .trsvcid = "4420"};
	bool counts = bench_counts(argc, argv);

	bench_target_start("nvmf_rdma", &address, 2 * IN_FLIGHT);
	read_sqe = (struct nvme_sqe){.opcode = nvme_cmd_read,
				     .flags = NVME_CMD_FLAGS_PSDT_SGL,
				     .nsid = htole32(bench_target_nsid()),
				     .sgl1 = nvme_sgl_make_keyed(0x1000, 4096, FAKE_RKEY, NVME_SGL_SUBTYPE_ADDRESS)};
	for (unsigned i = 0; i < (counts ? 1 : HOSTS_MAX); i++) {
		connect_host(&hosts[i], i);
	}
	if (counts) {
		count_instructions();
	} else {
		measure_times();
	}
	bench_target_stop();
	return 0;
}
