/* SPDX-License-Identifier: BSD-3-Clause */
#include "unittest/nvme/tcp_peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tcp/digest.h"
#include "tcp/receiver.h"

#define CONNS     16
#define CMDS      256
#define EVIL_TTAG 0x8000u /* of an R2T after which there is no response */
#define GET(x)    __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define SET(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELEASE)
#define ADD(x)    __atomic_fetch_add(&(x), 1, __ATOMIC_RELEASE)

struct peer peer;

/* A write whose data is coming. */
struct peer_cmd {
	bool used;
	struct nvme_sqe sqe;
	uint32_t length, asked, came, outstanding;
	uint8_t *data;
};

struct conn {
	int fd;
	uint16_t qid;
	struct tcp_receiver rx;
	uint8_t stage[4096];
	struct peer_cmd cmds[CMDS];
	struct tcp_piece piece;
	struct peer_cmd *cmd; /* whose data is arriving */
	struct iovec iov;
	uint8_t capsule_data[8192];
	bool mute;
};

static struct conn *conns[CONNS];
static int listener, wake;
static pthread_t thread;
static bool stopping, dropping;
static uint32_t cc;

/* --- Sending --- */

static void put(struct conn *c, const void *p, size_t n)
{
	for (size_t at = 0; at < n;) {
		ssize_t rc = send(c->fd, (const uint8_t *)p + at, n - at, MSG_NOSIGNAL);
		if (rc < 0 && errno == EAGAIN) {
			poll(&(struct pollfd){.fd = c->fd, .events = POLLOUT}, 1, 100);
		} else if (rc <= 0) {
			return; /* the host has gone, which the next read tells */
		} else {
			at += (size_t)rc;
		}
	}
}

static void put_data(struct conn *c, union tcp_header *h, uint32_t head, const void *data, uint32_t n, bool bad)
{
	uint32_t digest = htole32(tcp_digest_end(tcp_digest_add(TCP_DIGEST_START, data, n)) ^ (bad ? 1u : 0u));

	put(c, h, head);
	put(c, data, n);
	put(c, &digest, tcp_data_digest_bytes(&c->rx.agreed, n));
}

static void put_response(struct conn *c, uint16_t cid, uint16_t status, uint64_t result)
{
	struct nvme_cqe cqe = {
		.cid = htole16(cid), .status = htole16((uint16_t)(status << 1)), .result = htole64(result)};
	union tcp_header h;

	put(c, &h, tcp_capsule_resp_encode(&h, &c->rx.agreed, &cqe));
}

static void put_c2h(struct conn *c, uint16_t cid, uint32_t offset, const uint8_t *data, uint32_t n, bool last,
		    bool success, bool bad)
{
	struct tcp_piece p = {.cccid = cid, .offset = offset, .length = n, .last = last, .success = success};
	union tcp_header h;

	put_data(c, &h, tcp_c2h_data_encode(&h, &c->rx.agreed, &p), data, n, bad);
}

static void put_r2t(struct conn *c, uint16_t cid, uint16_t ttag, uint32_t offset, uint32_t n)
{
	struct tcp_piece p = {.cccid = cid, .ttag = ttag, .offset = offset, .length = n};
	union tcp_header h;

	put(c, &h, tcp_r2t_encode(&h, &c->rx.agreed, &p));
	ADD(peer.r2ts_sent);
}

/* Data of a read, and its response. */
static void put_read(struct conn *c, uint16_t cid, const uint8_t *data, uint32_t length)
{
	for (uint32_t at = 0; at < length;) {
		uint32_t n = length - at < peer.c2h_bytes ? length - at : peer.c2h_bytes;
		bool last = at + n == length;
		put_c2h(c, cid, at, data + at, n, last, last && peer.success, false);
		at += n;
	}
	if (!peer.success || length == 0) {
		put_response(c, cid, 0, 0);
	}
}

/* --- Doing wrong --- */

static int evil_of(const struct conn *c, bool write)
{
	int evil = GET(peer.evil);
	bool fits = c->qid == peer.evil_qid && (evil >= PEER_R2T_CCCID) == write;

	if (evil == PEER_DATA_TO_WRITE) {
		fits = c->qid == peer.evil_qid && write;
	}
	if (!fits) {
		return PEER_GOOD;
	}
	SET(peer.evil, PEER_GOOD);
	return evil;
}

/* A response whose header is changed at one byte. */
static void put_changed(struct conn *c, uint16_t cid, unsigned at, uint8_t value)
{
	struct nvme_cqe cqe = {.cid = htole16(cid)};
	union tcp_header h;
	uint32_t n = tcp_capsule_resp_encode(&h, &c->rx.agreed, &cqe);

	h.bytes[at] = value;
	put(c, &h, n);
}

static void put_term(struct conn *c)
{
	struct tcp_fault fault;
	union tcp_header h, bad = {.common = {.type = TCP_PDU_CAPSULE_CMD, .hlen = 72}};

	tcp_fault_set(&fault, TCP_FES_INVALID_FIELD, TCP_PDU_CAPSULE_CMD, 3, "PDO", 1, "");
	put(c, &h, tcp_term_encode(&h, TCP_CONTROLLER, &fault, &bad, 72));
}

static void evil_data(struct conn *c, int evil, uint16_t cid, const uint8_t *data, uint32_t length)
{
	union tcp_header h;
	struct tcp_piece p = {.cccid = cid, .length = length, .last = true};

	switch (evil) {
	case PEER_DATA_CCCID:
		put_c2h(c, cid ^ 1, 0, data, length, true, false, false);
		break;
	case PEER_DATA_OFFSET:
		put_c2h(c, cid, 8, data, length - 8, true, false, false);
		break;
	case PEER_DATA_MORE:
		put_c2h(c, cid, 0, data, length + 4, true, false, false);
		break;
	case PEER_DATA_AGAIN:
		put_c2h(c, cid, 0, data, length / 2, true, false, false);
		put_c2h(c, cid, length / 2, data, length / 2, true, false, false);
		break;
	case PEER_DATA_LENGTH:
		tcp_c2h_data_encode(&h, &c->rx.agreed, &p);
		h.data.datal = htole32(length - 4);
		put_data(c, &h, 24, data, length, false);
		break;
	case PEER_DATA_SUCCESS:
		put_c2h(c, cid, 0, data, length / 2, true, true, false);
		break;
	case PEER_DATA_DIGEST:
		put_c2h(c, cid, 0, data, length / 2, false, false, true);
		put_c2h(c, cid, length / 2, data, length / 2, true, peer.success, false);
		if (!peer.success) {
			put_response(c, cid, 0, 0);
		}
		break;
	case PEER_HALF:
		put_c2h(c, cid, 0, data, length / 2, false, false, false);
		put_response(c, cid, 0, 0);
		break;
	case PEER_CLOSE:
		put(c, &h, tcp_c2h_data_encode(&h, &c->rx.agreed, &p));
		put(c, data, length / 2);
		shutdown(c->fd, SHUT_RDWR);
		break;
	default:
		abort();
	}
}

static void evil_read(struct conn *c, int evil, uint16_t cid, const uint8_t *data, uint32_t length)
{
	struct tcp_icresp resp = {.max_h2c_data = 4096};
	union tcp_header h;

	switch (evil) {
	case PEER_HEADER_DIGEST:
		put_changed(c, cid, 24, 0x11);
		break;
	case PEER_RESP_CID:
		put_response(c, cid ^ 1, 0, 0);
		break;
	case PEER_RESP_TWICE:
		put_read(c, cid, data, length);
		put_response(c, cid, 0, 0);
		break;
	case PEER_TYPE:
		put_changed(c, cid, 0, TCP_PDU_H2C_DATA);
		break;
	case PEER_UNKNOWN:
		put_changed(c, cid, 0, 0x55);
		break;
	case PEER_ICRESP:
		put(c, &h, tcp_icresp_encode(&h, &resp));
		break;
	case PEER_HLEN:
		put_changed(c, cid, 2, 23);
		break;
	case PEER_PLEN:
		put_changed(c, cid, 4, 25);
		break;
	case PEER_PDO:
		tcp_c2h_data_encode(&h, &c->rx.agreed,
				    &(struct tcp_piece){.cccid = cid, .length = length, .last = true});
		h.common.pdo = 20;
		put(c, &h, 24);
		break;
	case PEER_TERM:
		put_term(c);
		break;
	case PEER_R2T_TO_READ:
		put_r2t(c, cid, 1, 0, length);
		break;
	default:
		evil_data(c, evil, cid, data, length);
		break;
	}
}

static void evil_write(struct conn *c, int evil, uint16_t cid, uint32_t length)
{
	switch (evil) {
	case PEER_DATA_TO_WRITE:
		put_c2h(c, cid, 0, peer.disk, length, true, false, false);
		break;
	case PEER_R2T_CCCID:
		put_r2t(c, cid ^ 1, 1, 0, length);
		break;
	case PEER_R2T_OFFSET:
		put_r2t(c, cid, 1, 4, length - 4);
		break;
	case PEER_R2T_MORE:
		put_r2t(c, cid, 1, 0, length + 4);
		break;
	case PEER_R2T_ZERO:
		put_r2t(c, cid, 1, 0, 0);
		break;
	case PEER_R2T_MANY: { /* in one piece, so that the host reads all of them before it sends anything */
		uint8_t all[1024 * 24];
		for (uint32_t i = 0; i < 1024; i++) {
			tcp_r2t_encode(
				all + i * 24, &c->rx.agreed,
				&(struct tcp_piece){.cccid = cid, .ttag = (uint16_t)i, .offset = i * 4, .length = 4});
		}
		put(c, all, sizeof(all));
		break;
	}
	case PEER_WRITE_SUCCESS:
		put_response(c, cid, 0, 0);
		break;
	case PEER_WRITE_ERROR: {
		struct tcp_piece p = {.cccid = cid, .ttag = EVIL_TTAG, .length = length};
		struct nvme_cqe cqe = {.cid = htole16(cid), .status = htole16(NVME_ST_DNR(GENERIC, INTERNAL) << 1)};
		union tcp_header h[2];
		uint8_t both[128];
		uint32_t n = tcp_r2t_encode(&h[0], &c->rx.agreed, &p);
		uint32_t m = tcp_capsule_resp_encode(&h[1], &c->rx.agreed, &cqe);
		memcpy(both, &h[0], n);
		memcpy(both + n, &h[1], m);
		put(c, both, n + m); /* together, so that the response is read before the data can be sent */
		break;
	}
	case PEER_MUTE:
		put_r2t(c, cid, EVIL_TTAG, 0, length);
		c->mute = true;
		break;
	default:
		abort();
	}
}

/* --- Commands --- */

static void identify(struct conn *c, const struct nvme_sqe *cmd, uint16_t cid)
{
	union {
		struct nvme_id_ctrl ctrl;
		struct nvme_id_ns ns;
		uint32_t list[1024];
		uint8_t bytes[4096 + 64];
	} d;

	memset(&d, 0, sizeof(d));
	switch (le32toh(cmd->cdw10) & 0xff) {
	case NVME_IDENTIFY_CNS_CTRL:
		d.ctrl.nn = htole32(1);
		d.ctrl.cntlid = htole16(1);
		d.ctrl.ioccsz = htole32((64 + peer.in_capsule) / 16);
		d.ctrl.iorcsz = htole32(1);
		d.ctrl.sgls = htole32(1 | NVME_CTRL_SGLS_OFFSET);
		break;
	case NVME_IDENTIFY_CNS_NS_ACTIVE_LIST:
		d.list[0] = htole32(le32toh(cmd->nsid) == 0 ? 1 : 0);
		break;
	case NVME_IDENTIFY_CNS_NS:
		d.ns.nsze = htole64(PEER_BLOCKS);
		d.ns.lbaf[0].ds = 9;
		break;
	default:
		d.bytes[0] = NVME_NIDT_UUID;
		d.bytes[1] = 16;
		d.bytes[4] = 1;
		break;
	}
	int evil = evil_of(c, false);

	if (evil != PEER_GOOD) {
		evil_read(c, evil, cid, d.bytes, 4096);
	} else {
		put_read(c, cid, d.bytes, 4096);
	}
}

static uint64_t property(uint32_t offset)
{
	switch (offset) {
	case NVME_REG_CAP:
		return 63 | UINT64_C(20) << 24 | UINT64_C(1) << 37;
	case NVME_REG_VS:
		return 0x10400;
	case NVME_REG_CC:
		return cc;
	default: /* CSTS */
		return (cc & 1) | ((cc >> 14 & 3) != 0 ? 2 << 2 : 0);
	}
}

static void admin(struct conn *c, const struct nvme_sqe *cmd, uint16_t cid)
{
	const struct nvmf_property_set_sqe *set = (const void *)cmd;
	const struct nvmf_property_get_sqe *get = (const void *)cmd;
	const struct nvmf_connect_sqe *connect = (const void *)cmd;

	if (cmd->opcode == nvme_admin_fabrics && set->fctype == nvme_fabrics_type_property_get) {
		put_response(c, cid, 0, property(le32toh(get->ofst)));
	} else if (cmd->opcode == nvme_admin_fabrics && set->fctype == nvme_fabrics_type_property_set) {
		cc = (uint32_t)le64toh(set->value);
		put_response(c, cid, 0, 0);
	} else if (cmd->opcode == nvme_admin_fabrics) {
		c->qid = le16toh(connect->qid);
		put_response(c, cid, 0, 1);
	} else if (cmd->opcode == nvme_admin_identify) {
		identify(c, cmd, cid);
	} else if (cmd->opcode == nvme_admin_set_features && le32toh(cmd->cdw10) == NVME_FEAT_FID_NUM_QUEUES) {
		put_response(c, cid, 0, 3 | 3 << 16);
	} else if (cmd->opcode != nvme_admin_async_event) { /* which has no answer */
		put_response(c, cid, 0, 0);
	}
}

static uint32_t io_length(const struct nvme_sqe *cmd)
{
	return ((le32toh(cmd->cdw12) & 0xffff) + 1) * PEER_BLOCK;
}

static uint8_t *io_place(const struct nvme_sqe *cmd)
{
	return peer.disk + (size_t)le32toh(cmd->cdw10) * PEER_BLOCK;
}

static void ask_for_data(struct conn *c, struct peer_cmd *w)
{
	while (w->outstanding < peer.r2ts && w->asked < w->length) {
		uint32_t n = w->length - w->asked < peer.r2t_bytes ? w->length - w->asked : peer.r2t_bytes;
		uint32_t at = w->asked;
		w->asked += n;
		w->outstanding++;
		put_r2t(c, le16toh(w->sqe.cid), (uint16_t)(w - c->cmds), at, n);
	}
}

static void write_begin(struct conn *c, const struct nvme_sqe *cmd)
{
	int evil = evil_of(c, true);

	for (unsigned i = 0; i < CMDS; i++) {
		struct peer_cmd *w = &c->cmds[i];
		if (w->used) {
			continue;
		}
		if (evil == PEER_GOOD || evil == PEER_WRITE_ERROR || evil == PEER_MUTE) {
			*w = (struct peer_cmd){
				.used = true, .sqe = *cmd, .length = io_length(cmd), .data = io_place(cmd)};
		}
		if (evil == PEER_GOOD) {
			ask_for_data(c, w);
		} else {
			w->asked = w->length; /* by one R2T */
			evil_write(c, evil, le16toh(cmd->cid), io_length(cmd));
		}
		return;
	}
	abort();
}

static void capsule_complete(struct conn *c)
{
	struct nvme_sqe cmd;
	uint16_t cid;

	memcpy(&cmd, c->rx.header.cmd.sqe, sizeof(cmd));
	cid = le16toh(cmd.cid);
	if (c->qid == 0 || cmd.opcode == nvme_admin_fabrics) {
		admin(c, &cmd, cid);
	} else if (cmd.opcode == nvme_cmd_read) {
		int evil = evil_of(c, false);
		if (evil != PEER_GOOD) {
			evil_read(c, evil, cid, io_place(&cmd), io_length(&cmd));
		} else {
			put_read(c, cid, io_place(&cmd), io_length(&cmd));
		}
	} else if (cmd.opcode == nvme_cmd_write && c->rx.shape.data == 0) {
		write_begin(c, &cmd);
	} else {
		if (c->rx.shape.data > 0 && cmd.opcode == nvme_cmd_write) {
			memcpy(io_place(&cmd), c->capsule_data, c->rx.shape.data);
			ADD(peer.capsules_with_data);
		}
		put_response(c, cid, c->rx.data_is_bad ? NVME_ST(GENERIC, TRAN_TPORT_ERROR) : 0, 0);
	}
}

/* --- Receiving --- */

static bool ic_exchange(struct conn *c)
{
	struct tcp_icreq req;
	struct tcp_fault fault;
	union tcp_header h;

	if (!tcp_icreq_decode(&c->rx.header.icreq, &req, &fault)) {
		ADD(peer.wrong);
		return false;
	}
	struct tcp_icresp resp = {.header_digest = req.header_digest && !peer.refuse_digests,
				  .data_digest = req.data_digest && !peer.refuse_digests,
				  .cpda = peer.cpda,
				  .max_h2c_data = peer.wrong_icresp ? 16 : peer.max_h2c_data};
	c->rx.agreed = tcp_agree(&req, &resp);
	c->rx.agreed.max_in_capsule = sizeof(c->capsule_data);
	if (peer.term_icresp) {
		put_term(c);
	} else if (!peer.mute_icresp) {
		put(c, &h, tcp_icresp_encode(&h, &resp));
	}
	return true;
}

static bool h2c_data_begins(struct conn *c)
{
	struct tcp_fault fault;

	if (!tcp_h2c_data_decode(&c->rx.header.data, &c->rx.shape, &c->piece, &fault)) {
		return false;
	}
	for (unsigned i = 0; i < CMDS; i++) {
		struct peer_cmd *w = &c->cmds[i];
		if (w->used && w->sqe.cid == htole16(c->piece.cccid) &&
		    (c->piece.ttag == i || c->piece.ttag == EVIL_TTAG) &&
		    tcp_piece_check(&c->piece, TCP_PDU_H2C_DATA, w->came, w->asked, &fault)) {
			c->cmd = w;
			c->iov = (struct iovec){w->data + w->came, c->piece.length};
			tcp_receiver_place(&c->rx, &c->iov, 1, 0);
			ADD(peer.h2c_pdus);
			return true;
		}
	}
	return false;
}

static void h2c_data_complete(struct conn *c)
{
	struct peer_cmd *w = c->cmd;

	w->came += c->piece.length;
	peer.wrong += c->rx.data_is_bad;
	if (c->piece.last) {
		w->outstanding--;
		ask_for_data(c, w);
	}
	if (w->came == w->length) {
		w->used = false;
		if (c->piece.ttag != EVIL_TTAG) {
			put_response(c, le16toh(w->sqe.cid), 0, 0);
		}
	}
}

static void term_came(struct conn *c)
{
	struct tcp_term term;

	tcp_term_decode(&c->rx.header, &c->rx.shape, &term);
	peer.term_fes = term.fes;
	peer.term_fei = term.fei;
	peer.term_type = term.pdu_bytes > 0 ? term.pdu[0] : 0xff;
	ADD(peer.terms);
}

static bool header_came(struct conn *c)
{
	switch (c->rx.header.common.type) {
	case TCP_PDU_ICREQ:
		return ic_exchange(c);
	case TCP_PDU_H2C_DATA:
		return h2c_data_begins(c);
	default:
		c->iov = (struct iovec){c->capsule_data, sizeof(c->capsule_data)};
		tcp_receiver_place(&c->rx, &c->iov, 1, 0);
		return true;
	}
}

/* False: the connection has ended. */
static bool conn_read(struct conn *c)
{
	struct tcp_fault fault;
	enum tcp_event e;

	if (tcp_receiver_read(&c->rx, c->fd) <= 0) {
		return false;
	}
	while ((e = tcp_receiver_next(&c->rx, &fault)) != TCP_EVENT_NONE) {
		if (e == TCP_EVENT_FAULT || (e == TCP_EVENT_HEADER && !header_came(c))) {
			ADD(peer.wrong);
			return false;
		}
		if (e == TCP_EVENT_PDU && c->rx.header.common.type == TCP_PDU_CAPSULE_CMD) {
			capsule_complete(c);
		} else if (e == TCP_EVENT_PDU && c->rx.header.common.type == TCP_PDU_H2C_DATA) {
			h2c_data_complete(c);
		} else if (e == TCP_EVENT_PDU && c->rx.header.common.type == TCP_PDU_H2C_TERM) {
			term_came(c);
		}
	}
	return true;
}

static void conn_end(unsigned i)
{
	close(conns[i]->fd);
	free(conns[i]);
	conns[i] = NULL;
}

static void conn_accept(void)
{
	struct conn *c = calloc(1, sizeof(*c));

	c->fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
	setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
	tcp_receiver_init(&c->rx, TCP_CONTROLLER, c->stage, sizeof(c->stage));
	for (unsigned i = 0; i < CONNS; i++) {
		if (conns[i] == NULL) {
			conns[i] = c;
			ADD(peer.connections);
			return;
		}
	}
	abort();
}

static void *peer_run(void *arg)
{
	while (!GET(stopping)) {
		struct pollfd fds[CONNS + 2] = {{.fd = listener, .events = POLLIN}, {.fd = wake, .events = POLLIN}};
		for (unsigned i = 0; i < CONNS; i++) {
			fds[i + 2] = (struct pollfd){.fd = conns[i] != NULL && !conns[i]->mute ? conns[i]->fd : -1,
						     .events = POLLIN};
		}
		poll(fds, CONNS + 2, -1);
		eventfd_t count;
		eventfd_read(wake, &count);
		/* A request that comes from now on is for the next round. */
		bool drop = __atomic_exchange_n(&dropping, false, __ATOMIC_ACQ_REL);
		for (unsigned i = 0; i < CONNS; i++) {
			if (conns[i] != NULL && (drop || (fds[i + 2].revents != 0 && !conn_read(conns[i])))) {
				conn_end(i);
			}
		}
		if (fds[0].revents != 0) {
			conn_accept();
		}
	}
	for (unsigned i = 0; i < CONNS; i++) {
		if (conns[i] != NULL) {
			conn_end(i);
		}
	}
	return NULL;
}

void peer_start(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(a);

	memset(&peer, 0, sizeof(peer));
	peer.max_h2c_data = 131072;
	peer.in_capsule = 4096;
	peer.r2t_bytes = 131072;
	peer.r2ts = 1;
	peer.c2h_bytes = 131072;
	peer.evil_qid = 1;
	cc = 0;
	stopping = dropping = false;
	listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	wake = eventfd(0, EFD_NONBLOCK);
	if (bind(listener, (struct sockaddr *)&a, sizeof(a)) != 0 || listen(listener, 16) != 0 ||
	    getsockname(listener, (struct sockaddr *)&a, &size) != 0) {
		abort();
	}
	peer.port = ntohs(a.sin_port);
	if (pthread_create(&thread, NULL, peer_run, NULL) != 0) {
		abort();
	}
}

void peer_stop(void)
{
	SET(stopping, true);
	eventfd_write(wake, 1);
	pthread_join(thread, NULL);
	close(listener);
	close(wake);
}

void peer_drop_all(void)
{
	SET(dropping, true);
	eventfd_write(wake, 1);
}
