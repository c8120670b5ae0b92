/* SPDX-License-Identifier: BSD-3-Clause */
/* What the kernel allows NVMe/TCP at most: for bench/nvmf_tcp.py.
 *
 *     nvmf_tcp_bare serve PORT CPU
 *             The bare engine: a server that moves the bytes of 4 KiB reads and in-capsule writes between sockets and
 *             memory, and does nothing else: it polls epoll, receives, and sends the PDUs of all commands that have
 *             come in one sendmsg(). Every other command succeeds. Prints "ready" when it listens, runs until killed.
 *     nvmf_tcp_bare drive PORT CPU read|write CONNECTIONS DEPTH SECONDS NQN
 *             A light host, for this server and for real targets: DEPTH commands outstanding on each connection.
 *             It looks at no data. Each connection has a controller of its own. Prints the commands that have
 *             ended, and nanoseconds. */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "bench/bench.h"
#include "nvme/spec.h"
#include "tcp/pdu.h"

#define IO_BYTES    4096u
#define CAPSULE_MAX (sizeof(struct tcp_pdu_capsule_cmd) + IO_BYTES)
#define DEPTH_MAX   128u
#define CONNS_MAX   1024u
#define IN_BYTES    ((size_t)1 << 20)
#define DISK_BLOCKS 16384u

static const struct tcp_agreed agreed = {.done = true, .align_to_ctrlr = 4, .align_to_host = 4};

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "nvmf_tcp_bare: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void pin_to(const char *cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((unsigned)atoi(cpu), &set);
	if (sched_setaffinity(0, sizeof(set), &set) != 0) {
		die("CPU");
	}
}

static struct sockaddr_in loopback(const char *port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return a;
}

static void set_nodelay(int fd)
{
	int on = 1;

	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0) {
		die("TCP_NODELAY");
	}
}

/* ---- The bare engine ---- */

struct client {
	int fd;
	size_t have;                    /* bytes of a capsule that has not come completely */
	uint8_t in[CAPSULE_MAX + 1024]; /* (Connect has 1024 bytes of data) */
};

static uint8_t *disk;
static uint8_t stage[IN_BYTES];
static uint8_t heads[DEPTH_MAX][TCP_HEAD_MAX];
static struct iovec out[2 * DEPTH_MAX];
static unsigned num_out, num_heads;

static void send_out(int fd)
{
	struct iovec *at = out;

	while (num_out > 0) {
		struct msghdr msg = {.msg_iov = at, .msg_iovlen = num_out};
		ssize_t n = sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EAGAIN) {
			continue;
		}
		if (n < 0) {
			break; /* the host has gone */
		}
		for (; num_out > 0 && (size_t)n >= at->iov_len; at++, num_out--) {
			n -= (ssize_t)at->iov_len;
		}
		if (n > 0) {
			at->iov_base = (uint8_t *)at->iov_base + n;
			at->iov_len -= (size_t)n;
		}
	}
	num_out = num_heads = 0;
}

static void add_out(const void *bytes, size_t length)
{
	out[num_out++] = (struct iovec){(void *)(uintptr_t)bytes, length};
}

static void answer_command(const struct tcp_pdu_capsule_cmd *pdu, const uint8_t *data)
{
	const struct nvme_sqe *sqe = (const void *)pdu->sqe;
	uint8_t *blocks = disk + (size_t)(le32toh(sqe->cdw10) % DISK_BLOCKS) * IO_BYTES, *head = heads[num_heads++];

	if (sqe->opcode == nvme_cmd_read) {
		struct tcp_piece piece = {
			.cccid = le16toh(sqe->cid), .length = IO_BYTES, .last = true, .success = true};

		add_out(head, tcp_c2h_data_encode(head, &agreed, &piece));
		add_out(blocks, IO_BYTES);
		return;
	}
	if (sqe->opcode == nvme_cmd_write) {
		memcpy(blocks, data, IO_BYTES);
	}
	struct nvme_cqe cqe = {.cid = sqe->cid};
	add_out(head, tcp_capsule_resp_encode(head, &agreed, &cqe));
}

static void answer_pdu(int fd, const uint8_t *pdu)
{
	if (pdu[0] == TCP_PDU_ICREQ) {
		const struct tcp_icresp resp = {.max_h2c_data = 131072};
		uint8_t *head = heads[num_heads++];

		add_out(head, tcp_icresp_encode(head, &resp));
	} else {
		answer_command((const void *)pdu, pdu + sizeof(struct tcp_pdu_capsule_cmd));
	}
	if (num_heads == DEPTH_MAX) {
		send_out(fd);
	}
}

static uint32_t pdu_bytes(const uint8_t *pdu, size_t have)
{
	return have < sizeof(struct tcp_pdu_common) ? UINT32_MAX : le32toh(((const struct tcp_pdu_common *)pdu)->plen);
}

/* Answers what has come; a PDU that is not complete is kept. False: the host has gone. */
static bool serve_client(struct client *c)
{
	memcpy(stage, c->in, c->have);
	ssize_t n = recv(c->fd, stage + c->have, sizeof(stage) - c->have, MSG_DONTWAIT);
	size_t at = 0, end = c->have + (n > 0 ? (size_t)n : 0);

	if (n == 0 || (n < 0 && errno != EAGAIN)) {
		return false;
	}
	for (uint32_t bytes; (bytes = pdu_bytes(stage + at, end - at)) <= end - at; at += bytes) {
		answer_pdu(c->fd, stage + at);
	}
	c->have = end - at;
	if (c->have > sizeof(c->in)) {
		errno = EPROTO;
		die("a PDU that is too long");
	}
	memcpy(c->in, stage + at, c->have);
	send_out(c->fd);
	return true;
}

static void accept_client(int ep, int listener)
{
	struct client *c = calloc(1, sizeof(*c));
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};

	if (c == NULL || (c->fd = accept(listener, NULL, NULL)) < 0) {
		die("accept");
	}
	set_nodelay(c->fd);
	if (epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &e) != 0) {
		die("epoll");
	}
}

static int listen_at(const char *port)
{
	struct sockaddr_in a = loopback(port);
	int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
	    bind(fd, (struct sockaddr *)&a, sizeof(a)) != 0 || listen(fd, 1024) != 0) {
		die("listen");
	}
	return fd;
}

static void serve(const char *port)
{
	struct epoll_event events[64], e = {.events = EPOLLIN, .data.ptr = NULL};
	int ep = epoll_create1(0), listener = listen_at(port);

	disk = aligned_alloc(4096, (size_t)DISK_BLOCKS * IO_BYTES);
	if (disk == NULL || ep < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, listener, &e) != 0) {
		die("no memory");
	}
	memset(disk, 7, (size_t)DISK_BLOCKS * IO_BYTES);
	printf("ready\n");
	fflush(stdout);
	for (;;) {
		int n = epoll_wait(ep, events, 64, 0);

		for (int i = 0; i < n; i++) {
			struct client *c = events[i].data.ptr;

			if (c == NULL) {
				accept_client(ep, listener);
			} else if (!serve_client(c)) {
				close(c->fd);
				free(c);
			}
		}
	}
}

/* ---- The light host ---- */

struct conn {
	int fd;
	size_t have;   /* bytes of a header that has not come completely, at the beginning of `head` */
	uint64_t skip; /* bytes of the PDU under way that are still to come */
	uint32_t random;
	uint8_t head[sizeof(struct tcp_pdu_data)];
};

static struct conn conns[CONNS_MAX];
static uint8_t requests[DEPTH_MAX * CAPSULE_MAX];
static uint64_t ended;
static size_t capsule_bytes;

static void send_all(int fd, const void *bytes, size_t length)
{
	for (const uint8_t *at = bytes; length > 0;) {
		ssize_t n = send(fd, at, length, MSG_NOSIGNAL);

		if (n < 0) {
			die("send");
		}
		at += n;
		length -= (size_t)n;
	}
}

static void receive_all(int fd, void *bytes, size_t length)
{
	if (recv(fd, bytes, length, MSG_WAITALL) != (ssize_t)length) {
		die("the target has ended a connection");
	}
}

static int open_connection(const char *port)
{
	struct sockaddr_in a = loopback(port);
	const struct tcp_icreq req = {.max_r2t = 1};
	uint8_t head[TCP_HEAD_MAX], icresp[sizeof(struct tcp_pdu_icresp)];
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) != 0) {
		die("connect");
	}
	set_nodelay(fd);
	send_all(fd, head, tcp_icreq_encode(head, &req));
	receive_all(fd, icresp, sizeof(icresp));
	return fd;
}

static uint32_t do_command(int fd, const void *sqe, const void *data, uint32_t bytes)
{
	struct tcp_pdu_capsule_resp resp;
	uint8_t head[TCP_HEAD_MAX];

	send_all(fd, head, tcp_capsule_cmd_encode(head, &agreed, sqe, bytes));
	send_all(fd, data, bytes);
	receive_all(fd, &resp, sizeof(resp));
	const struct nvme_cqe *cqe = (const void *)resp.cqe;
	if (resp.common.type != TCP_PDU_CAPSULE_RESP || nvme_cqe_status(cqe) != 0) {
		errno = EPROTO;
		die("a command of the connection failed");
	}
	return le32toh(cqe->dw0);
}

static int connect_queue(const char *port, const char *nqn, unsigned number, uint16_t qid, uint32_t *cntlid)
{
	struct nvmf_connect_data data = {.cntlid = htole16((uint16_t)*cntlid)};
	struct nvmf_connect_sqe sqe = {
		.opcode = nvme_admin_fabrics,
		.flags = NVME_CMD_FLAGS_PSDT_SGL,
		.fctype = nvme_fabrics_type_connect,
		.qid = htole16(qid),
		.sqsize = htole16(qid == 0 ? 31 : DEPTH_MAX - 1),
		.cattr = NVMF_CATTR_DISABLE_SQ_FLOW,
		.sgl1 = nvme_sgl_make_plain(NVME_SGL_TYPE_DATA_BLOCK, NVME_SGL_SUBTYPE_OFFSET, 0, sizeof(data))};
	int fd = open_connection(port);

	data.hostid[0] = 1;
	memcpy(data.hostid + 8, &number, sizeof(number));
	snprintf(data.subsysnqn, sizeof(data.subsysnqn), "%s", nqn);
	snprintf(data.hostnqn, sizeof(data.hostnqn), "nqn.2026-11.io.varve:host%u", number);
	*cntlid = do_command(fd, &sqe, &data, sizeof(data)) & 0xffff;
	return fd;
}

static void connect_host(struct conn *c, const char *port, const char *nqn, unsigned number)
{
	struct nvmf_property_set_sqe enable = {.opcode = nvme_admin_fabrics,
					       .flags = NVME_CMD_FLAGS_PSDT_SGL,
					       .fctype = nvme_fabrics_type_property_set,
					       .ofst = htole32(NVME_REG_CC),
					       .value = htole64(1 | 6 << 16 | 4 << 20)};
	uint32_t cntlid = NVMF_CNTLID_DYNAMIC;
	int admin = connect_queue(port, nqn, number, 0, &cntlid); /* is open until the process ends */

	do_command(admin, &enable, NULL, 0);
	c->fd = connect_queue(port, nqn, number, 1, &cntlid);
	c->random = number * 2654435761u + 1;
}

static bool writes;

static void make_request(struct conn *c, unsigned i, uint16_t cid)
{
	c->random = c->random * 1664525 + 1013904223;
	struct nvme_sqe sqe = {
		.opcode = writes ? nvme_cmd_write : nvme_cmd_read,
		.flags = NVME_CMD_FLAGS_PSDT_SGL,
		.cid = htole16(cid),
		.nsid = htole32(1),
		.sgl1 = writes ? nvme_sgl_make_plain(NVME_SGL_TYPE_DATA_BLOCK, NVME_SGL_SUBTYPE_OFFSET, 0, IO_BYTES)
			       : nvme_sgl_make_plain(NVME_SGL_TYPE_TRANSPORT_DATA_BLOCK, NVME_SGL_SUBTYPE_TRANSPORT, 0,
						     IO_BYTES),
		.cdw10 = htole32((c->random >> 8) % DISK_BLOCKS)};

	tcp_capsule_cmd_encode(requests + i * capsule_bytes, &agreed, &sqe, writes ? IO_BYTES : 0);
}

static uint16_t cid_of_answer(const uint8_t *head)
{
	const struct tcp_pdu_capsule_resp *resp = (const void *)head;
	const struct nvme_cqe *cqe = (const void *)resp->cqe;

	if (resp->common.type == TCP_PDU_C2H_DATA && (resp->common.flags & TCP_FLAG_SUCCESS) != 0) {
		return le16toh(((const struct tcp_pdu_data *)head)->cccid);
	}
	if (resp->common.type != TCP_PDU_CAPSULE_RESP || nvme_cqe_status(cqe) != 0) {
		errno = EPROTO;
		die("an I/O failed");
	}
	return le16toh(cqe->cid);
}

/* Takes what has come, and sends a command for each that has ended. */
static void drive_connection(struct conn *c)
{
	static uint8_t in[IN_BYTES];
	ssize_t got = recv(c->fd, in, sizeof(in), MSG_DONTWAIT);
	unsigned n = 0;

	if (got < 0 && errno == EAGAIN) {
		return;
	}
	if (got <= 0) {
		die("the target has ended a connection");
	}
	for (size_t at = 0, end = (size_t)got; at < end;) {
		size_t skip = c->skip < end - at ? (size_t)c->skip : end - at;

		at += skip;
		c->skip -= skip;
		size_t part = sizeof(c->head) - c->have < end - at ? sizeof(c->head) - c->have : end - at;
		memcpy(c->head + c->have, in + at, part);
		c->have += part;
		at += part;
		if (c->have == sizeof(c->head)) {
			c->have = 0;
			c->skip = le32toh(((struct tcp_pdu_common *)c->head)->plen) - sizeof(c->head);
			make_request(c, n++, cid_of_answer(c->head));
		}
	}
	ended += n;
	send_all(c->fd, requests, n * capsule_bytes);
}

static void drive_all(unsigned n, double until)
{
	struct epoll_event events[64];
	int ep = epoll_create1(0);

	for (unsigned i = 0; i < n; i++) {
		struct epoll_event e = {.events = EPOLLIN, .data.ptr = &conns[i]};

		if (epoll_ctl(ep, EPOLL_CTL_ADD, conns[i].fd, &e) != 0) {
			die("epoll");
		}
	}
	while (bench_now_ns() < until || ended == 0) {
		int ready = n == 1 ? 1 : epoll_wait(ep, events, 64, 0);

		for (int i = 0; i < ready; i++) {
			drive_connection(n == 1 ? &conns[0] : events[i].data.ptr);
		}
	}
}

static void drive(char **args)
{
	const char *port = args[0], *nqn = args[6];
	unsigned n = (unsigned)atoi(args[3]), depth = (unsigned)atoi(args[4]);

	writes = strcmp(args[2], "write") == 0;
	capsule_bytes = sizeof(struct tcp_pdu_capsule_cmd) + (writes ? IO_BYTES : 0);
	if (n < 1 || n > CONNS_MAX || depth < 1 || depth >= DEPTH_MAX + 1) {
		errno = EINVAL;
		die("CONNECTIONS or DEPTH");
	}
	for (unsigned i = 0; i < n; i++) {
		connect_host(&conns[i], port, nqn, i);
	}
	double start = bench_now_ns();
	for (unsigned i = 0; i < n; i++) {
		for (unsigned k = 0; k < depth; k++) {
			make_request(&conns[i], k, (uint16_t)k);
		}
		send_all(conns[i].fd, requests, depth * capsule_bytes);
	}
	drive_all(n, start + atof(args[5]) * 1e9);
	printf("%llu %.0f\n", (unsigned long long)ended, bench_now_ns() - start);
}

int main(int argc, char **argv)
{
	bool serves = argc == 4 && strcmp(argv[1], "serve") == 0;

	if (!serves && (argc != 9 || strcmp(argv[1], "drive") != 0)) {
		fprintf(stderr, "usage: nvmf_tcp_bare serve PORT CPU\n"
				"       nvmf_tcp_bare drive PORT CPU read|write CONNECTIONS DEPTH SECONDS NQN\n");
		return 2;
	}
	pin_to(argv[3]);
	if (serves) {
		serve(argv[2]);
	} else {
		drive(argv + 2);
	}
	return 0;
}
