/* SPDX-License-Identifier: BSD-3-Clause */
/* What the target itself costs per command over TCP: the real target, TCP transport, block devices and threads, on
 * system calls that cost nothing and move no data. Hosts connect through the kernel; then the poll group's
 * epoll_wait(), recvmsg() and sendmsg() are served here (the program is linked with --wrap). 4 KiB random reads of a
 * null device, hosts with 128 commands outstanding in all (one each where there are more hosts). What remains of the
 * fake is measured and taken off.
 *
 *     nvmf_tcp.own_ns			one connection, reads, tracing off
 *     nvmf_tcp.own_ns_conn1 ...	the same with so many connections, each with its own controller
 *     nvmf_tcp.own_write_ns		writes whose 4 KiB come in the capsule, and go through the stage of what is read
 *     nvmf_tcp.traced_own_ns		the groups nvmf_tcp and bdev recorded
 *     nvmf_tcp.events_per_io		records of one command then
 *     nvmf_tcp.ns_per_event		what each of them added
 *     nvmf_tcp.calls_per_io		system calls of the group for a read, 128 outstanding on one connection
 *     nvmf_tcp.calls_per_io_conn256	the same with 256 connections
 *     nvmf_tcp.write_calls_per_io	for a write, 128 outstanding on one connection */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/target.h"
#include "nvme/spec.h"
#include "tcp/pdu.h"
#include "trace/trace.h"
#include "util/compiler.h"

#define HOSTS_MAX 256
#define IN_FLIGHT 128
#define IOS       200000
#define FEW_IOS   20000 /* where instructions are counted */
#define TURNS     11
#define FDS_MAX   4096
#define IO_BYTES  4096

/* One side of a queue: the host's socket, and, once it is faked, what takes the kernel's place. */
struct queue {
	int host_fd, fd; /* of the host, of the target */
	uint16_t port;   /* of the host */
	void *epoll_data;
	uint32_t waiting;        /* commands that the target has not read completely */
	uint32_t read_of_first;  /* bytes of the first of them that it has read */
	uint64_t rest_of_answer; /* bytes of a PDU that the target has begun to send */
	bool ready;              /* in `ready` */
	uint32_t random;
	struct tcp_pdu_capsule_cmd capsule;
};

struct host {
	struct queue admin, io;
};

static struct host hosts[HOSTS_MAX];
static uint16_t port;

/* On the group's thread while a run lasts. */
static struct queue *by_fd[FDS_MAX];
static struct queue *ready[HOSTS_MAX];
static unsigned num_ready;
static int group_epoll = -1;
static struct queue *connecting;
static uint64_t calls;
static struct {
	bool faked, done;
	unsigned hosts, per_host;
	uint32_t capsule_bytes;
	uint64_t to_send, to_come;
	double start, ns;
} run;

/* ---- The kernel's place ---- */

static void make_ready(struct queue *q)
{
	if (!q->ready) {
		q->ready = true;
		ready[num_ready++] = q;
	}
}

static void wake(void *arg)
{
	run.done = true;
}

static void answer_came(struct queue *q)
{
	if (run.to_send != 0) {
		run.to_send--;
		q->waiting++;
		make_ready(q);
	}
	if (--run.to_come == 0) {
		bench_toggle_count();
		run.ns = bench_target_cpu_ns() - run.start;
		run.faked = false;
		thread_send(thread_control(), wake, NULL);
	}
}

int __real_epoll_wait(int ep, struct epoll_event *events, int max, int timeout);
int __wrap_epoll_wait(int ep, struct epoll_event *events, int max, int timeout);
int __wrap_epoll_wait(int ep, struct epoll_event *events, int max, int timeout)
{
	int n = 0;

	if (ep != group_epoll || !run.faked) {
		return __real_epoll_wait(ep, events, max, timeout);
	}
	calls++;
	for (; n < max && (unsigned)n < num_ready; n++) {
		struct queue *q = ready[n];

		events[n] = (struct epoll_event){.events = EPOLLIN, .data.ptr = q->epoll_data};
		q->ready = false;
	}
	num_ready -= (unsigned)n;
	memmove(ready, ready + n, num_ready * sizeof(ready[0]));
	return n;
}

/* Puts the next bytes that the host has sent to `at`: headers, while data are not written. Their number. */
static size_t take_bytes(struct queue *q, uint8_t *at, size_t room)
{
	const size_t head = sizeof(q->capsule);
	size_t taken = 0;

	while (taken < room && q->waiting != 0) {
		size_t n = run.capsule_bytes - q->read_of_first;

		n = n < room - taken ? n : room - taken;
		if (q->read_of_first < head) {
			size_t m = head - q->read_of_first;

			memcpy(at + taken, (uint8_t *)&q->capsule + q->read_of_first, m < n ? m : n);
		}
		taken += n;
		q->read_of_first += (uint32_t)n;
		if (q->read_of_first == run.capsule_bytes) {
			q->read_of_first = 0;
			q->waiting--;
			q->random = q->random * 1664525 + 1013904223;
			uint32_t lba = htole32(q->random >> 10); /* below BENCH_TARGET_BLOCKS */
			memcpy(q->capsule.sqe + 40, &lba, sizeof(lba));
		}
	}
	return taken;
}

ssize_t __real_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags)
{
	struct queue *q = run.faked && fd < FDS_MAX ? by_fd[fd] : NULL;
	size_t taken = 0;

	if (q == NULL) {
		return __real_recvmsg(fd, msg, flags);
	}
	calls++;
	for (size_t i = 0; i < msg->msg_iovlen && q->waiting != 0; i++) {
		taken += take_bytes(q, msg->msg_iov[i].iov_base, msg->msg_iov[i].iov_len);
	}
	if (taken == 0) {
		errno = EAGAIN;
		return -1;
	}
	if (q->waiting != 0) {
		make_ready(q); /* as epoll, level-triggered */
	}
	return (ssize_t)taken;
}

static void check_answer(const struct tcp_pdu_common *head)
{
	const struct tcp_pdu_capsule_resp *resp = (const struct tcp_pdu_capsule_resp *)head;

	if (head->type == TCP_PDU_CAPSULE_RESP
		    ? resp->cqe[14] != 0 || resp->cqe[15] != 0
		    : head->type != TCP_PDU_C2H_DATA || (head->flags & TCP_FLAG_SUCCESS) == 0) {
		bench_target_fail("an I/O failed");
	}
}

ssize_t __real_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	struct queue *q = run.faked && fd < FDS_MAX ? by_fd[fd] : NULL;
	size_t all = 0;

	if (q == NULL) {
		return __real_sendmsg(fd, msg, flags);
	}
	calls++;
	for (size_t i = 0; i < msg->msg_iovlen; i++) {
		size_t bytes = msg->msg_iov[i].iov_len;

		all += bytes;
		while (q->rest_of_answer < bytes) { /* the target sends headers in one piece */
			const struct tcp_pdu_common *head =
				(const void *)((uint8_t *)msg->msg_iov[i].iov_base + q->rest_of_answer);

			check_answer(head);
			q->rest_of_answer += le32toh(head->plen);
			answer_came(q);
		}
		q->rest_of_answer -= bytes;
	}
	return (ssize_t)all;
}

/* Which socket of the target is whose, and which epoll set has it. */
int __real_epoll_ctl(int ep, int op, int fd, struct epoll_event *e);
int __wrap_epoll_ctl(int ep, int op, int fd, struct epoll_event *e);
int __wrap_epoll_ctl(int ep, int op, int fd, struct epoll_event *e)
{
	struct sockaddr_in peer;
	socklen_t length = sizeof(peer);

	if (op == EPOLL_CTL_ADD && connecting != NULL && getpeername(fd, (struct sockaddr *)&peer, &length) == 0 &&
	    peer.sin_family == AF_INET && ntohs(peer.sin_port) == connecting->port) {
		connecting->epoll_data = e->data.ptr;
		connecting->fd = fd;
		group_epoll = ep;
	}
	return __real_epoll_ctl(ep, op, fd, e);
}

/* ---- Connecting: one command at a time, through the kernel ---- */

struct awaited {
	int fd;
	uint8_t *bytes;
	size_t have, want;
};

static bool has_come(void *arg)
{
	struct awaited *a = arg;
	ssize_t n = recv(a->fd, a->bytes + a->have, a->want - a->have, MSG_DONTWAIT);

	a->have += n > 0 ? (size_t)n : 0;
	return a->have == a->want;
}

static void exchange(struct queue *q, const void *request, size_t bytes, void *answer, size_t answer_bytes)
{
	struct awaited a = {.fd = q->host_fd, .bytes = answer, .want = answer_bytes};

	if (send(q->host_fd, request, bytes, MSG_NOSIGNAL) != (ssize_t)bytes) {
		bench_target_fail("a request could not be sent");
	}
	bench_target_wait(has_come, &a, "a request was not answered");
}

static uint32_t do_command(struct queue *q, const void *sqe, const void *data, uint32_t bytes)
{
	const struct tcp_agreed agreed = {.done = true, .align_to_ctrlr = 4};
	struct tcp_pdu_capsule_resp resp;
	uint8_t pdu[TCP_HEAD_MAX + 1024];
	uint32_t head = tcp_capsule_cmd_encode(pdu, &agreed, sqe, bytes);

	if (bytes != 0) {
		memcpy(pdu + head, data, bytes);
	}
	exchange(q, pdu, head + bytes, &resp, sizeof(resp));
	if (resp.common.type != TCP_PDU_CAPSULE_RESP || resp.cqe[14] != 0 || resp.cqe[15] != 0) {
		bench_target_fail("a command of the connection was not answered with success");
	}
	memcpy(&head, resp.cqe, sizeof(head));
	return le32toh(head);
}

static void open_connection(struct queue *q)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)}, own;
	socklen_t length = sizeof(own);
	uint8_t icreq[TCP_HEAD_MAX], icresp[sizeof(struct tcp_pdu_icresp)];
	const struct tcp_icreq req = {.max_r2t = 1};
	int on = 1;

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	q->host_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (q->host_fd < 0 || setsockopt(q->host_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0 ||
	    connect(q->host_fd, (struct sockaddr *)&to, sizeof(to)) != 0 ||
	    getsockname(q->host_fd, (struct sockaddr *)&own, &length) != 0) {
		bench_target_fail("a host could not connect");
	}
	q->port = ntohs(own.sin_port);
	connecting = q;
	exchange(q, icreq, tcp_icreq_encode(icreq, &req), icresp, sizeof(icresp));
	connecting = NULL;
	if (q->fd <= 0 || q->fd >= FDS_MAX) {
		bench_target_fail("the target's side of a connection was not found");
	}
}

static uint16_t connect_queue(struct queue *q, unsigned number, uint16_t qid, uint16_t cntlid, uint16_t entries)
{
	struct nvmf_connect_data data = {.cntlid = htole16(cntlid)};
	struct nvmf_connect_sqe sqe = {
		.opcode = nvme_admin_fabrics,
		.flags = NVME_CMD_FLAGS_PSDT_SGL,
		.fctype = nvme_fabrics_type_connect,
		.qid = htole16(qid),
		.sqsize = htole16(entries - 1u),
		.cattr = NVMF_CATTR_DISABLE_SQ_FLOW,
		.sgl1 = nvme_sgl_make_plain(NVME_SGL_TYPE_DATA_BLOCK, NVME_SGL_SUBTYPE_OFFSET, 0, sizeof(data))};

	data.hostid[0] = 1;
	memcpy(data.hostid + 8, &number, sizeof(number));
	strcpy(data.subsysnqn, BENCH_TARGET_NQN);
	snprintf(data.hostnqn, sizeof(data.hostnqn), "nqn.2026-11.io.varve:host%u", number);
	open_connection(q);
	return (uint16_t)do_command(q, &sqe, &data, sizeof(data));
}

static void connect_host(struct host *h, unsigned number)
{
	struct nvmf_property_set_sqe enable = {.opcode = nvme_admin_fabrics,
					       .flags = NVME_CMD_FLAGS_PSDT_SGL,
					       .fctype = nvme_fabrics_type_property_set,
					       .ofst = htole32(NVME_REG_CC),
					       .value = htole64(1 | 6 << 16 | 4 << 20)};
	uint16_t cntlid = connect_queue(&h->admin, number, 0, NVMF_CNTLID_DYNAMIC, 32);

	do_command(&h->admin, &enable, NULL, 0);
	connect_queue(&h->io, number, 1, cntlid, IN_FLIGHT + 1);
	by_fd[h->io.fd] = &h->io;
	h->io.random = number * 2654435761u + 1;
}

/* ---- The measurement ---- */

static void make_capsule(struct queue *q, bool writes)
{
	const struct tcp_agreed agreed = {.done = true, .align_to_ctrlr = 4};
	struct nvme_sqe sqe = {
		.opcode = writes ? nvme_cmd_write : nvme_cmd_read,
		.flags = NVME_CMD_FLAGS_PSDT_SGL,
		.nsid = htole32(bench_target_nsid()),
		.sgl1 = writes ? nvme_sgl_make_plain(NVME_SGL_TYPE_DATA_BLOCK, NVME_SGL_SUBTYPE_OFFSET, 0, IO_BYTES)
			       : nvme_sgl_make_plain(NVME_SGL_TYPE_TRANSPORT_DATA_BLOCK, NVME_SGL_SUBTYPE_TRANSPORT, 0,
						     IO_BYTES)};

	tcp_capsule_cmd_encode(&q->capsule, &agreed, &sqe, writes ? IO_BYTES : 0);
}

static void start_ios(void *arg)
{
	run.start = bench_target_cpu_ns();
	run.faked = true;
	bench_toggle_count();
	for (unsigned h = 0; h < run.hosts; h++) {
		hosts[h].io.waiting += run.per_host;
		run.to_send -= run.per_host;
		make_ready(&hosts[h].io);
	}
}

static bool is_done(void *arg)
{
	return run.done;
}

static void prepare_run(unsigned n, unsigned ios, bool writes)
{
	run.hosts = n;
	run.per_host = n >= IN_FLIGHT ? 1 : IN_FLIGHT / n;
	run.to_send = run.to_come = ios;
	run.capsule_bytes = (uint32_t)sizeof(struct tcp_pdu_capsule_cmd) + (writes ? IO_BYTES : 0);
	run.done = false;
	for (unsigned h = 0; h < n; h++) {
		make_capsule(&hosts[h].io, writes);
	}
}

static double one_run(unsigned n, unsigned ios, bool writes)
{
	prepare_run(n, ios, writes);
	calls = 0;
	thread_call(bench_target_thread(), start_ios, NULL);
	if (!thread_control_wait(is_done, NULL, 600000000)) { /* in callgrind it takes long */
		bench_target_fail("the I/Os do not end");
	}
	return run.ns / ios;
}

static double calls_per_io[HOSTS_MAX + 1], write_calls_per_io;

static double turn_reads(void *arg)
{
	unsigned n = (unsigned)(uintptr_t)arg;
	double ns = one_run(n, IOS, false);

	calls_per_io[n] = (double)calls / IOS;
	return ns;
}

static double turn_writes(void *arg)
{
	double ns = one_run(1, IOS, true);

	write_calls_per_io = (double)calls / IOS;
	return ns;
}

static uint64_t records;

static double one_traced_run(unsigned ios)
{
	uint64_t before = bench_target_records();

	trace_set_tpoints(TRACE_GROUP_NVMF_TCP, UINT64_MAX);
	trace_set_tpoints(TRACE_GROUP_BDEV, UINT64_MAX);
	double ns = one_run(1, ios, false);
	records = bench_target_records() - before;
	trace_clear_tpoints(TRACE_GROUP_NVMF_TCP, UINT64_MAX);
	trace_clear_tpoints(TRACE_GROUP_BDEV, UINT64_MAX);
	return ns;
}

static double turn_traced(void *arg)
{
	return one_traced_run(IOS);
}

/* What the fake takes for the same work, with nobody behind it: batches are read into one piece of memory, and
 * answered. */
static void run_fake(void *arg)
{
	static uint8_t stage[16384];
	static union tcp_header answer = {.common = {.hlen = sizeof(struct tcp_pdu_data)}};
	struct iovec stage_iov = {stage, sizeof(stage)}, iovs[2 * IN_FLIGHT];
	struct msghdr in = {.msg_iov = &stage_iov, .msg_iovlen = 1}, out = {.msg_iov = iovs};
	struct queue *q = &hosts[0].io;
	bool writes = run.capsule_bytes > IO_BYTES;

	answer.common.type = writes ? TCP_PDU_CAPSULE_RESP : TCP_PDU_C2H_DATA;
	answer.common.flags = writes ? 0 : TCP_FLAG_SUCCESS;
	answer.common.plen = htole32((uint32_t)sizeof(struct tcp_pdu_data) + (writes ? 0 : IO_BYTES));
	for (unsigned i = 0; i < 2 * IN_FLIGHT; i += 2) {
		iovs[i] = (struct iovec){&answer, sizeof(struct tcp_pdu_data)};
		iovs[i + 1] = (struct iovec){stage, writes ? 0 : IO_BYTES};
	}
	start_ios(NULL);
	while (run.faked) {
		struct epoll_event events[64];
		uint32_t before = q->waiting;

		__wrap_epoll_wait(group_epoll, events, 64, 0);
		__wrap_recvmsg(q->fd, &in, 0);
		out.msg_iovlen = (size_t)2 * (before - q->waiting);
		if (out.msg_iovlen != 0) {
			__wrap_sendmsg(q->fd, &out, 0);
		}
	}
}

static double one_fake_run(unsigned ios, bool writes)
{
	prepare_run(1, ios, writes);
	thread_call(bench_target_thread(), run_fake, NULL);
	if (!thread_control_wait(is_done, NULL, 600000000)) {
		bench_target_fail("the fake does not end");
	}
	return run.ns / ios;
}

static double turn_fake(void *arg)
{
	return one_fake_run(IOS, arg != NULL);
}

static void measure_times(void)
{
	static const char *const names[] = {"nvmf_tcp.own_ns_conn1", "nvmf_tcp.own_ns_conn8", "nvmf_tcp.own_ns_conn64",
					    "nvmf_tcp.own_ns_conn256"};
	struct bench_variant v[] = {{NULL, "ns", turn_fake, NULL},         {NULL, "ns", turn_reads, (void *)1},
				    {NULL, "ns", turn_reads, (void *)8},   {NULL, "ns", turn_reads, (void *)64},
				    {NULL, "ns", turn_reads, (void *)256}, {NULL, "ns", turn_traced, NULL},
				    {NULL, "ns", turn_fake, (void *)1},    {NULL, "ns", turn_writes, NULL}};
	double m[8];

	bench_run(v, 8, TURNS, m);
	for (unsigned i = 0; i < 4; i++) {
		bench_print(names[i], m[1 + i] - m[0], "ns");
	}
	bench_print("nvmf_tcp.own_ns", m[1] - m[0], "ns");
	bench_print("nvmf_tcp.own_write_ns", m[7] - m[6], "ns");
	bench_print("nvmf_tcp.traced_own_ns", m[5] - m[0], "ns");
	bench_print("nvmf_tcp.events_per_io", (double)records / IOS, "events");
	bench_print("nvmf_tcp.ns_per_event", (m[5] - m[1]) / ((double)records / IOS), "ns");
	bench_print("nvmf_tcp.calls_per_io", calls_per_io[1], "calls");
	bench_print("nvmf_tcp.calls_per_io_conn256", calls_per_io[HOSTS_MAX], "calls");
	bench_print("nvmf_tcp.write_calls_per_io", write_calls_per_io, "calls");
	bench_print("nvmf_tcp.fake_ns", m[0], "ns");
}

/* After a run of each kind, which pays for what is done once. */
static void count_instructions(void)
{
	one_traced_run(FEW_IOS);
	one_run(1, FEW_IOS, true);
	bench_counted("warm", FEW_IOS);
	one_fake_run(FEW_IOS, false);
	bench_counted("tcp_fake", FEW_IOS);
	one_fake_run(FEW_IOS, true);
	bench_counted("tcp_fake_write", FEW_IOS);
	one_run(1, FEW_IOS, false);
	bench_counted("tcp", FEW_IOS);
	one_run(1, FEW_IOS, true);
	bench_counted("tcp_write", FEW_IOS);
	one_traced_run(FEW_IOS);
	bench_counted("tcp_traced", FEW_IOS);
}

static void disconnect_host(const struct host *h)
{
	close(h->io.host_fd);
	close(h->admin.host_fd);
}

/* Chooses a port that nobody has. The socket keeps it until the target listens there, too. */
static int reserve_port(void)
{
	struct sockaddr_in own = {.sin_family = AF_INET};
	socklen_t length = sizeof(own);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
	    bind(fd, (struct sockaddr *)&own, sizeof(own)) != 0 ||
	    getsockname(fd, (struct sockaddr *)&own, &length) != 0) {
		bench_target_fail("there is no free port");
	}
	port = ntohs(own.sin_port);
	return fd;
}

int main(int argc, char **argv)
{
	struct nvmf_address address = {.trtype = "TCP", .adrfam = 1, .traddr = "127.0.0.1"};
	bool counts = bench_counts(argc, argv);
	unsigned n = counts ? 1 : HOSTS_MAX;

	int reserved = reserve_port();
	snprintf(address.trsvcid, sizeof(address.trsvcid), "%u", port);
	bench_target_start("nvmf_tcp", &address, 2 * IN_FLIGHT);
	close(reserved);
	for (unsigned i = 0; i < n; i++) {
		connect_host(&hosts[i], i);
	}
	if (counts) {
		count_instructions();
	} else {
		measure_times();
	}
	for (unsigned i = 0; i < n; i++) {
		disconnect_host(&hosts[i]);
	}
	bench_target_stop();
	return 0;
}
