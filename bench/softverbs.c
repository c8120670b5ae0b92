/* SPDX-License-Identifier: BSD-3-Clause */
/* Two processes over softverbs, each on a CPU of its own: latency of a small polled SEND, rates of 4 KiB WRITEs and
 * READs (also where the far memory is a memfd, which is mapped) and of 64-byte SENDs, beside what the bare copies reach
 * that any such library is made of, in turns. Started without a softverbs library preloaded it starts itself again with
 * the one of its build. */
#include "bench/bench.h"

#include <infiniband/verbs.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include <signal.h>

enum {
	TURNS = 15,
	BUFFER_BYTES = 1 << 20,
	BLOCK = 4096,
	BLOCKS = BUFFER_BYTES / BLOCK, /* consecutive operations use consecutive blocks, in all variants */
	QUEUE = 256,
	ECHOES = 20000,
	COPIES = 20000,
	SENDS = 50000,
	BATCH = 16, /* one signalled request in as many */
};

struct endpoint {
	uint32_t qpn, rkey;
	uint64_t addr;
	uint32_t memfd_rkey; /* of memory that the other side can map */
	uint64_t memfd_addr;
	union ibv_gid gid;
	pid_t pid;
};

struct command { /* what the far process is to do */
	enum { FAR_ECHO, FAR_SINK, FAR_CPU_TIME } what;
	uint32_t count;
};

static struct {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buf;
	uint8_t *memfd_buf;
	struct ibv_mr *memfd_mr;
	uint8_t *shared; /* plain shared memory, for the memcpy loop */
	struct endpoint other;
	int control;
} me;

static void check(int good, const char *what)
{
	if (!good) {
		perror(what);
		exit(1);
	}
}

static void open_side(int control, int cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpu % (int)sysconf(_SC_NPROCESSORS_ONLN), &set);
	sched_setaffinity(0, sizeof(set), &set);

	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	check(list != NULL && n > 0, "ibv_get_device_list");
	me.context = ibv_open_device(list[0]);
	check(me.context != NULL, "ibv_open_device");
	ibv_free_device_list(list);
	me.control = control;
	me.pd = ibv_alloc_pd(me.context);
	me.channel = ibv_create_comp_channel(me.context);
	me.cq = ibv_create_cq(me.context, 4 * QUEUE, NULL, me.channel, 0);
	me.buf = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	check(me.pd != NULL && me.cq != NULL && me.buf != MAP_FAILED, "opening");
	me.mr = ibv_reg_mr(me.pd, me.buf, BUFFER_BYTES,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	check(me.mr != NULL, "ibv_reg_mr");
	int fd = memfd_create("bench", MFD_CLOEXEC);
	check(fd >= 0 && ftruncate(fd, BUFFER_BYTES) == 0, "memfd");
	me.memfd_buf = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	check(me.memfd_buf != MAP_FAILED, "memfd");
	me.memfd_mr = ibv_reg_mr(me.pd, me.memfd_buf, BUFFER_BYTES,
				 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	check(me.memfd_mr != NULL, "ibv_reg_mr");
	struct ibv_qp_init_attr a = {.send_cq = me.cq,
				     .recv_cq = me.cq,
				     .qp_type = IBV_QPT_RC,
				     .cap = {.max_send_wr = QUEUE,
					     .max_recv_wr = QUEUE,
					     .max_send_sge = 1,
					     .max_recv_sge = 1,
					     .max_inline_data = 64}};
	me.qp = ibv_create_qp(me.pd, &a);
	check(me.qp != NULL, "ibv_create_qp");
}

static void connect_side(void)
{
	struct endpoint self = {.qpn = me.qp->qp_num,
				.rkey = me.mr->rkey,
				.addr = (uintptr_t)me.buf,
				.pid = getpid(),
				.memfd_rkey = me.memfd_mr->rkey,
				.memfd_addr = (uintptr_t)me.memfd_buf};
	check(ibv_query_gid(me.context, 1, 0, &self.gid) == 0, "ibv_query_gid");
	check(write(me.control, &self, sizeof(self)) == sizeof(self), "control socket");
	check(read(me.control, &me.other, sizeof(me.other)) == sizeof(me.other), "control socket");
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
				.port_num = 1,
				.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE};
	check(ibv_modify_qp(me.qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
	      "INIT");
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = me.other.qpn,
		.max_dest_rd_atomic = 16,
		.min_rnr_timer = 1,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = me.other.gid, .hop_limit = 1}}};
	check(ibv_modify_qp(me.qp, &a,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
	      "RTR");
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 16};
	check(ibv_modify_qp(me.qp, &a,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				    IBV_QP_MAX_QP_RD_ATOMIC) == 0,
	      "RTS");
}

static void post_recvs(uint32_t count)
{
	struct ibv_sge sge = {.addr = (uintptr_t)me.buf, .length = 64, .lkey = me.mr->lkey};
	struct ibv_recv_wr wr[BATCH], *bad;
	for (uint32_t i = 0; i < BATCH; i++) {
		wr[i] = (struct ibv_recv_wr){.sg_list = &sge, .num_sge = 1, .next = i + 1 < BATCH ? &wr[i + 1] : NULL};
	}
	for (; count >= BATCH; count -= BATCH) {
		check(ibv_post_recv(me.qp, wr, &bad) == 0, "ibv_post_recv");
	}
	if (count > 0) {
		wr[count - 1].next = NULL;
		check(ibv_post_recv(me.qp, wr, &bad) == 0, "ibv_post_recv");
	}
}

static void post(enum ibv_wr_opcode opcode, uint32_t i, uint32_t len, unsigned flags)
{
	uint32_t off = i % BLOCKS * BLOCK;
	struct ibv_sge sge = {.addr = (uintptr_t)me.buf + off, .length = len, .lkey = me.mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = opcode,
				 .send_flags = flags,
				 .wr.rdma = {.remote_addr = me.other.addr + off, .rkey = me.other.rkey}},
			   *bad;
	check(ibv_post_send(me.qp, &wr, &bad) == 0, "ibv_post_send");
}

/* Counts of completions, by kind. */
struct done {
	uint32_t sends, recvs;
};

static void reap(struct done *d)
{
	struct ibv_wc wc[BATCH];
	int n = ibv_poll_cq(me.cq, BATCH, wc);
	for (int i = 0; i < n; i++) {
		if (wc[i].status != IBV_WC_SUCCESS) {
			fprintf(stderr, "completion: %s\n", ibv_wc_status_str(wc[i].status));
			exit(1);
		}
		*(wc[i].opcode & IBV_WC_RECV ? &d->recvs : &d->sends) += 1;
	}
}

/* `count` requests, at most QUEUE in the queue, one in BATCH signalled. */
static void stream(enum ibv_wr_opcode opcode, uint32_t count, uint32_t len)
{
	struct done d = {0};
	for (uint32_t i = 0; i < count; i++) {
		while (i - d.sends * BATCH >= QUEUE) {
			reap(&d);
		}
		post(opcode, i, len, i % BATCH == BATCH - 1 ? IBV_SEND_SIGNALED : 0);
	}
	while (d.sends < count / BATCH) {
		reap(&d);
	}
}

/* --- the far process */

static void far_echo(uint32_t count)
{
	struct done d = {0};
	for (uint32_t i = 0; i < count; i++) {
		while (d.recvs == i) {
			reap(&d);
		}
		post_recvs(1);
		post(IBV_WR_SEND, 0, 8, IBV_SEND_INLINE | (i % BATCH == BATCH - 1 ? IBV_SEND_SIGNALED : 0));
	}
	while (d.sends < count / BATCH) {
		reap(&d);
	}
}

static void far_sink(uint32_t count)
{
	struct done d = {0};
	for (uint32_t posted = 0; d.recvs < count;) {
		reap(&d);
		if (d.recvs - posted >= BATCH) {
			post_recvs(d.recvs - posted);
			posted = d.recvs;
		}
	}
	post_recvs(count % BATCH);
}

static double cpu_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void far_main(int control)
{
	struct command c;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	open_side(control, 1);
	connect_side();
	post_recvs(QUEUE / 2);
	check(write(control, "r", 1) == 1, "control socket");
	while (read(control, &c, sizeof(c)) == sizeof(c)) {
		double answer = 0;
		switch (c.what) {
		case FAR_ECHO:
			far_echo(c.count);
			break;
		case FAR_SINK:
			far_sink(c.count);
			break;
		case FAR_CPU_TIME:
			answer = cpu_ns();
			break;
		}
		check(write(control, &answer, sizeof(answer)) == sizeof(answer), "control socket");
	}
	exit(0);
}

static void far_do(int what, uint32_t count)
{
	struct command c = {.what = what, .count = count};
	check(write(me.control, &c, sizeof(c)) == sizeof(c), "control socket");
}

static double far_answer(void)
{
	double answer;
	check(read(me.control, &answer, sizeof(answer)) == sizeof(answer), "control socket");
	return answer;
}

/* --- the turns */

static double send_latency_us(void *unused)
{
	struct done d = {0};
	far_do(FAR_ECHO, ECHOES);
	double start = bench_now_ns();
	for (uint32_t i = 0; i < ECHOES; i++) {
		post(IBV_WR_SEND, 0, 8, IBV_SEND_INLINE | (i % BATCH == BATCH - 1 ? IBV_SEND_SIGNALED : 0));
		while (d.recvs == i) {
			reap(&d);
		}
		post_recvs(1);
	}
	double ns = bench_now_ns() - start;
	while (d.sends < ECHOES / BATCH) {
		reap(&d);
	}
	far_answer();
	return ns / ECHOES / 2 / 1e3;
}

static double gbps(double start, uint32_t count)
{
	return count * (double)BLOCK * 8 / (bench_now_ns() - start);
}

static double kops(double start, uint32_t count)
{
	return count * 1e6 / (bench_now_ns() - start);
}

static double write4k_gbps(void *unused)
{
	double start = bench_now_ns();
	stream(IBV_WR_RDMA_WRITE, COPIES, BLOCK);
	return gbps(start, COPIES);
}

/* The same to memory of the other side that is a memfd. */
static double in_memfd(double (*turn)(void *unused))
{
	struct endpoint private = me.other;
	me.other.rkey = me.other.memfd_rkey;
	me.other.addr = me.other.memfd_addr;
	double result = turn(NULL);
	me.other = private;
	return result;
}

static double memfd_write4k_gbps(void *unused)
{
	return in_memfd(write4k_gbps);
}

static double read4k_kops(void *unused)
{
	double start = bench_now_ns();
	stream(IBV_WR_RDMA_READ, COPIES, BLOCK);
	return kops(start, COPIES);
}

static double memfd_read4k_kops(void *unused)
{
	return in_memfd(read4k_kops);
}

static double send64_kops(void *unused)
{
	far_do(FAR_SINK, SENDS);
	double start = bench_now_ns();
	stream(IBV_WR_SEND, SENDS, 64);
	far_answer();
	return kops(start, SENDS);
}

static void bare_vm(ssize_t (*copy)(pid_t, const struct iovec *, unsigned long, const struct iovec *, unsigned long,
				    unsigned long))
{
	for (uint32_t i = 0; i < COPIES; i++) {
		uint32_t off = i % BLOCKS * BLOCK;
		struct iovec here = {me.buf + off, BLOCK}, there = {(void *)(uintptr_t)(me.other.addr + off), BLOCK};
		check(copy(me.other.pid, &here, 1, &there, 1, 0) == BLOCK, "process_vm copy");
	}
}

static double bare_vm_write4k_gbps(void *unused)
{
	double start = bench_now_ns();
	bare_vm(process_vm_writev);
	return gbps(start, COPIES);
}

static double bare_vm_read4k_kops(void *unused)
{
	double start = bench_now_ns();
	bare_vm(process_vm_readv);
	return kops(start, COPIES);
}

static double bare_memcpy4k_gbps(void *unused)
{
	double start = bench_now_ns();
	for (uint32_t i = 0; i < COPIES; i++) {
		uint32_t off = i % BLOCKS * BLOCK;
		memcpy(me.shared + off, me.buf + off, BLOCK);
		__asm__ volatile("" : : "r"(me.shared) : "memory");
	}
	return gbps(start, COPIES);
}

/* Both processes wait for events on an armed channel: their CPU time per time, in percent. */
static double idle_cpu_pct(void *unused)
{
	struct pollfd p = {.fd = me.channel->fd, .events = POLLIN};
	struct ibv_cq *cq;
	void *context;
	/* The arming of the turn before has made an event of the traffic since. */
	while (poll(&p, 1, 0) == 1 && ibv_get_cq_event(me.channel, &cq, &context) == 0) {
		ibv_ack_cq_events(cq, 1);
	}
	check(ibv_req_notify_cq(me.cq, 0) == 0, "ibv_req_notify_cq");
	far_do(FAR_CPU_TIME, 0);
	double cpu = far_answer() + cpu_ns(), start = bench_now_ns();
	check(poll(&p, 1, 100) == 0, "the idle channel");
	double wall = bench_now_ns() - start;
	far_do(FAR_CPU_TIME, 0);
	return (far_answer() + cpu_ns() - cpu) / wall * 100;
}

/* --- start */

static void exec_under_softverbs(char **argv)
{
	char self[PATH_MAX], copy[PATH_MAX], library[2 * PATH_MAX];
	const char *build = getenv("VARVE_BUILD"), *before = getenv("LD_PRELOAD");
	if (before != NULL && strstr(before, "softverbs") != NULL) {
		return;
	}
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	check(n > 0, "/proc/self/exe");
	self[n] = '\0';
	strcpy(copy, self);
	if (build != NULL) {
		snprintf(library, sizeof(library), "%s/softverbs/libsoftverbs.so", build);
	} else {
		snprintf(library, sizeof(library), "%s/../softverbs/libsoftverbs.so", dirname(copy));
	}
	check(access(library, R_OK) == 0, library);
	setenv("LD_PRELOAD", library, 1);
	execv(self, argv);
	check(0, "exec");
}

static void start_far(void)
{
	int pair[2];
	char number[16], ready;
	check(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
	snprintf(number, sizeof(number), "%d", pair[1]);
	pid_t pid = vfork();
	check(pid >= 0, "vfork");
	if (pid == 0) {
		execl("/proc/self/exe", "bench-softverbs", "--far", number, (char *)NULL);
		_exit(127);
	}
	close(pair[1]);
	open_side(pair[0], 0);
	connect_side();
	post_recvs(QUEUE / 2);
	check(read(me.control, &ready, 1) == 1, "the other process");
	me.shared = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	check(me.shared != MAP_FAILED, "mmap");
}

int main(int argc, char **argv)
{
	static const struct bench_variant variants[] = {
		{"softverbs.send_lat_us", "us", send_latency_us, NULL},
		{"softverbs.write4k_gbps", "Gbit/s", write4k_gbps, NULL},
		{"softverbs.bare_vm_write4k_gbps", "Gbit/s", bare_vm_write4k_gbps, NULL},
		{"softverbs.bare_memcpy4k_gbps", "Gbit/s", bare_memcpy4k_gbps, NULL},
		{"softverbs.memfd_write4k_gbps", "Gbit/s", memfd_write4k_gbps, NULL},
		{"softverbs.memfd_read4k_kops", "kops/s", memfd_read4k_kops, NULL},
		{"softverbs.read4k_kops", "kops/s", read4k_kops, NULL},
		{"softverbs.bare_vm_read4k_kops", "kops/s", bare_vm_read4k_kops, NULL},
		{"softverbs.send64_kops", "kops/s", send64_kops, NULL},
		{"softverbs.idle_cpu_pct", "%", idle_cpu_pct, NULL},
	};
	exec_under_softverbs(argv);
	if (argc == 3 && strcmp(argv[1], "--far") == 0) {
		far_main(atoi(argv[2]));
	}
	start_far();
	bench_run(variants, sizeof(variants) / sizeof(variants[0]), TURNS, NULL);
	return 0;
}
