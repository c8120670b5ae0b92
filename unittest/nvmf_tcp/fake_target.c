/* SPDX-License-Identifier: BSD-3-Clause */
#include "unittest/nvmf_tcp/fake_target.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <linux/errqueue.h>
#include <linux/sockios.h>

struct fake fake;
static struct nvmf_tcp_group group;
static struct nvmf_tcp_transport transport;
static struct nvmf_tcp_listener listener = {.transport = &transport};
static struct nvmf_request_queue waiting, held;
static uint64_t clock_ticks = 1000000;

static void must(bool good)
{
	fake.failures += !good;
}

/* ---- Sends without a copy ---- */

#define PINNED_MAX 512

static struct pin {
	uint32_t number;
	size_t at; /* in fake.sent */
	struct iovec iovs[NVMF_TCP_SEND_IOVS];
	size_t num_iovs;
} pins[PINNED_MAX];

static struct sock_extended_err notifications[PINNED_MAX];
static unsigned num_notifications;
static uint32_t next_number;

/* All of what a device sends again at this moment. */
static void copy_pinned(const struct pin *pin)
{
	size_t at = pin->at;

	for (size_t i = 0; i < pin->num_iovs; i++) {
		memcpy(fake.sent + at, pin->iovs[i].iov_base, pin->iovs[i].iov_len);
		at += pin->iovs[i].iov_len;
	}
}

void fake_take(unsigned n, unsigned count, bool copied)
{
	must(num_notifications < PINNED_MAX && n + count <= fake.pinned && count > 0);
	for (unsigned i = n; i < n + count; i++) {
		copy_pinned(&pins[i]);
		must(pins[i].number == pins[n].number + i - n);
	}
	notifications[num_notifications++] =
		(struct sock_extended_err){.ee_origin = SO_EE_ORIGIN_ZEROCOPY,
					   .ee_code = copied ? SO_EE_CODE_ZEROCOPY_COPIED : 0,
					   .ee_info = pins[n].number,
					   .ee_data = pins[n + count - 1].number};
	memmove(&pins[n], &pins[n + count], (fake.pinned - n - count) * sizeof(pins[0]));
	fake.pinned -= count;
	fake_run();
}

static ssize_t read_notification(struct msghdr *msg)
{
	struct cmsghdr *c = msg->msg_control;

	if (num_notifications == 0) {
		errno = EAGAIN;
		return -1;
	}
	*c = (struct cmsghdr){
		.cmsg_level = SOL_IP, .cmsg_type = IP_RECVERR, .cmsg_len = CMSG_LEN(sizeof(notifications[0]))};
	memcpy(CMSG_DATA(c), &notifications[0], sizeof(notifications[0]));
	msg->msg_controllen = CMSG_SPACE(sizeof(notifications[0]));
	memmove(&notifications[0], &notifications[1], --num_notifications * sizeof(notifications[0]));
	return 0;
}

static bool has_no_means(int flags)
{
	if ((flags & MSG_ZEROCOPY) == 0 || (fake.optmem != 0 && fake.pinned < PINNED_MAX)) {
		return false;
	}
	errno = ENOBUFS;
	return true;
}

static void pin_message(const struct msghdr *msg, size_t n)
{
	struct pin *pin = &pins[fake.pinned++];

	*pin = (struct pin){.number = next_number++, .at = fake.sent_bytes - n};
	for (size_t i = 0; i < msg->msg_iovlen && n > 0; i++) {
		struct iovec v = msg->msg_iov[i];

		v.iov_len = v.iov_len < n ? v.iov_len : n;
		pin->iovs[pin->num_iovs++] = v;
		n -= v.iov_len;
	}
	memset(fake.sent + pin->at, 0xaa, fake.sent_bytes - pin->at); /* until it is taken */
	fake.optmem--;
	fake.max = fake.pinned > fake.max ? fake.pinned : fake.max;
}

int __real_connect(int fd, const struct sockaddr *at, socklen_t n);
int __wrap_connect(int fd, const struct sockaddr *at, socklen_t n);
int __wrap_connect(int fd, const struct sockaddr *at, socklen_t n)
{
	if (fd != FAKE_FD) {
		return __real_connect(fd, at, n);
	}
	must(fake.fd_open && at->sa_family == AF_UNSPEC);
	fake.resets++;
	return 0;
}

int __real_ioctl(int fd, unsigned long what, ...);
int __wrap_ioctl(int fd, unsigned long what, ...);
int __wrap_ioctl(int fd, unsigned long what, ...)
{
	va_list list;
	void *arg;

	va_start(list, what);
	arg = va_arg(list, void *);
	va_end(list);
	if (fd != FAKE_FD) {
		return __real_ioctl(fd, what, arg);
	}
	must(fake.fd_open && what == SIOCOUTQ);
	if (fake.outq_fd != 0) {
		return __real_ioctl(fake.outq_fd, what, arg);
	}
	*(int *)arg = (int)fake.unacknowledged;
	return 0;
}

void fake_look(void)
{
	struct thread_timer *t = fake.qp != NULL ? &fake.qp->zerocopy_timer : NULL;

	if (t != NULL && t->running) {
		t->running = false;
		t->fn(t->arg);
		fake_run();
	}
}

/* ---- The socket ---- */

ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags)
{
	size_t n = 0;

	must(fd == FAKE_FD && fake.fd_open);
	if ((flags & MSG_ERRQUEUE) != 0) {
		return read_notification(msg);
	}
	for (size_t i = 0; i < msg->msg_iovlen && n < fake.in_at_once; i++) {
		size_t take = msg->msg_iov[i].iov_len;

		take = take < fake.in_bytes ? take : fake.in_bytes;
		take = take < fake.in_at_once - n ? take : fake.in_at_once - n;
		if (take == 0) {
			continue;
		}
		memcpy(msg->msg_iov[i].iov_base, fake.in, take);
		fake.in += take;
		fake.in_bytes -= take;
		n += take;
	}
	if (n == 0 && !fake.host_closed) {
		errno = EAGAIN;
		return -1;
	}
	return (ssize_t)n;
}

static size_t take_bytes(const void *from, size_t n)
{
	n = n < fake.room ? n : fake.room;
	if (n > FAKE_SENT_MAX - fake.sent_bytes) {
		fake.sent_bytes = 0; /* only a fuzzer has so many */
	}
	memcpy(fake.sent + fake.sent_bytes, from, n);
	fake.sent_bytes += n;
	fake.room -= n;
	return n;
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	size_t n = 0;

	must(fd == FAKE_FD && fake.fd_open && msg->msg_iovlen > 0);
	fake.sendmsgs++;
	if (fake.room == 0) {
		errno = EAGAIN;
		return -1;
	}
	if (has_no_means(flags)) {
		return -1;
	}
	for (size_t i = 0; i < msg->msg_iovlen; i++) {
		n += take_bytes(msg->msg_iov[i].iov_base, msg->msg_iov[i].iov_len);
	}
	if ((flags & MSG_ZEROCOPY) != 0) {
		pin_message(msg, n);
	}
	return (ssize_t)n;
}

ssize_t __wrap_send(int fd, const void *from, size_t n, int flags);
ssize_t __wrap_send(int fd, const void *from, size_t n, int flags)
{
	must(fd == FAKE_FD && fake.fd_open);
	return (ssize_t)take_bytes(from, n);
}

ssize_t __wrap_recv(int fd, void *to, size_t n, int flags);
ssize_t __wrap_recv(int fd, void *to, size_t n, int flags)
{
	return 0; /* of a socket that leaves: the host has closed */
}

int __wrap_epoll_ctl(int ep, int op, int fd, struct epoll_event *e);
int __wrap_epoll_ctl(int ep, int op, int fd, struct epoll_event *e)
{
	must(fd == FAKE_FD && fake.fd_open);
	fake.leaver_open = op == EPOLL_CTL_ADD && (e->data.u64 & NVMF_TCP_LEAVER_BIT) != 0;
	return 0;
}

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
	if (fd != FAKE_FD) { /* a fuzzer's own */
		return __real_close(fd);
	}
	must(fake.fd_open);
	fake.fd_open = false;
	return 0;
}

int __wrap_shutdown(int fd, int how);
int __wrap_shutdown(int fd, int how)
{
	must(fd == FAKE_FD && fake.fd_open);
	return 0;
}

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t n);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t n)
{
	return 0;
}

int __wrap_getsockname(int fd, struct sockaddr *at, socklen_t *n);
int __wrap_getsockname(int fd, struct sockaddr *at, socklen_t *n)
{
	errno = ENOBUFS;
	return -1;
}

/* ---- Memory, threads, traces ---- */

void *env_dma_malloc(size_t n, size_t align, int socket)
{
	void *p = aligned_alloc(align, (n + align - 1) / align * align);

	fake.memory += p != NULL;
	return p;
}

void *env_dma_zmalloc(size_t n, size_t align, int socket)
{
	void *p = env_dma_malloc(n, align, socket);

	return p != NULL ? memset(p, 0, n) : NULL;
}

void env_dma_free(void *p)
{
	fake.memory -= p != NULL;
	free(p);
}

uint64_t env_us_to_ticks(uint64_t us)
{
	return us;
}

uint64_t env_ticks_offset;
#ifdef ENV_TICKS_VIRTUAL
uint64_t env_ticks_virtual;
#endif
__thread uint64_t thread_round_ticks;

uint64_t thread_now_outside(void)
{
	return clock_ticks;
}

static char control_thread; /* has an address */

struct thread *thread_control(void)
{
	return (struct thread *)(void *)&control_thread;
}

struct thread *nvmf_poll_group_thread(const struct nvmf_poll_group *g)
{
	return NULL;
}

void thread_absence_check(void)
{
}

void thread_timer_start(struct thread_timer *t, uint64_t delay_us)
{
	t->running = true;
}

void thread_timer_stop(struct thread_timer *t)
{
	t->running = false;
}

uint64_t trace_group_mask[TRACE_NUM_GROUPS];
__thread struct trace_ring trace_ring;

void trace_record_no_slot(void)
{
}

uint16_t trace_owner_register(uint8_t type, const char *description)
{
	return 0;
}

void trace_owner_update(uint16_t id, const char *description)
{
}

void trace_owner_release(uint16_t id)
{
}

static struct {
	struct thread_msg *msg;
	void (*fn)(struct thread_msg *msg);
} posted[64];
static unsigned num_posted;

void thread_post(struct thread *to, struct thread_msg *msg, void (*fn)(struct thread_msg *msg))
{
	if (to == thread_control() && fake.control_is_quick) {
		fn(msg);
		return;
	}
	must(num_posted < 64);
	posted[num_posted].msg = msg;
	posted[num_posted++].fn = fn;
}

static void run_posted(void)
{
	while (num_posted > 0) {
		struct thread_msg *msg = posted[0].msg;
		void (*fn)(struct thread_msg * msg) = posted[0].fn;

		memmove(&posted[0], &posted[1], --num_posted * sizeof(posted[0]));
		fn(msg);
	}
}

/* ---- The target ---- */

int nvmf_qpair_accept(struct nvmf_qpair *qpair, uint16_t qid)
{
	fake.qp = (struct nvmf_tcp_qpair *)qpair;
	return 0;
}

void nvmf_connection_refused(const char *traddr, const char *why)
{
	must(false);
}

void nvmf_qpair_disconnect(struct nvmf_qpair *qpair, const char *why)
{
	if (qpair->state != NVMF_QPAIR_DISCONNECTING) {
		qpair->state = NVMF_QPAIR_DISCONNECTING;
		nvmf_tcp_op_qpair_close(qpair);
	}
}

void nvmf_qpair_fail(struct nvmf_qpair *qpair, const char *why)
{
	nvmf_qpair_disconnect(qpair, why);
}

void nvmf_qpair_closed(struct nvmf_qpair *qpair)
{
	must(nvmf_tcp_qpair_of(qpair)->receiver.stage != NULL); /* not set since its own was freed */
	fake.closed = true;
	nvmf_tcp_op_qpair_destroy(qpair);
	fake.qp = NULL;
}

size_t nvmf_request_size(void)
{
	return sizeof(struct nvmf_request);
}

static void answer(struct nvmf_request *req, uint16_t status)
{
	req->cqe = (struct nvme_cqe){.cid = req->sqe->cid, .status = htole16((uint16_t)(status << 1))};
	req->where = NVMF_REQUEST_TRANSPORT;
	fake.completed++;
	fake.last_status = status;
	nvmf_tcp_op_request_complete(req);
}

static enum nvmf_next start_connect(struct nvmf_request *req)
{
	if (req->qpair->sq_size != 0) {
		req->length = 0;
		req->xfer = NVME_DATA_TFR_NO_DATA_TFR;
		return NVMF_NEXT_EXEC;
	}
	req->length = 1024;
	req->xfer = NVME_DATA_TFR_HOST_TO_CTRL;
	return req->icd_len >= 1024 ? NVMF_NEXT_EXEC : NVMF_NEXT_BUFFER;
}

enum nvmf_next nvmf_request_start(struct nvmf_request *req)
{
	uint8_t opcode = req->sqe->opcode;

	req->start_ticks = thread_now();
	if (opcode == nvme_admin_fabrics) {
		return start_connect(req);
	}
	req->length = (le32toh(req->sqe->cdw12) & 0xff) * 512 + 512;
	req->xfer = opcode == nvme_cmd_write  ? NVME_DATA_TFR_HOST_TO_CTRL
		    : opcode == nvme_cmd_read ? NVME_DATA_TFR_CTRL_TO_HOST
					      : NVME_DATA_TFR_NO_DATA_TFR;
	if (req->xfer == NVME_DATA_TFR_NO_DATA_TFR) {
		req->length = 0;
		return NVMF_NEXT_EXEC;
	}
	if (req->xfer == NVME_DATA_TFR_HOST_TO_CTRL && req->icd_len == req->length) {
		req->iov[0] = (struct iovec){(void *)(uintptr_t)req->icd, req->length};
		req->iovcnt = 1;
		return NVMF_NEXT_EXEC;
	}
	return NVMF_NEXT_BUFFER;
}

static void carry_out(struct nvmf_request *req)
{
	if (req->sqe->opcode == nvme_admin_fabrics && req->qpair->sq_size == 0) {
		req->qpair->sq_size = FAKE_ENTRIES;
		req->qpair->qid = 1;
		memcpy(req->qpair->hostnqn, "host", sizeof("host"));
	} else if (req->xfer == NVME_DATA_TFR_HOST_TO_CTRL) {
		fake.writes++;
		fake.last_written = *(const uint8_t *)req->iov[0].iov_base;
	} else if (req->xfer == NVME_DATA_TFR_CTRL_TO_HOST) {
		memset(req->iov[0].iov_base, 0x5a, req->length);
	}
	answer(req, 0);
}

void nvmf_request_exec(struct nvmf_request *req)
{
	fake.executed++;
	if (fake.holds) {
		req->where = NVMF_REQUEST_BDEV;
		STAILQ_INSERT_TAIL(&held, req, link);
	} else {
		carry_out(req);
	}
}

void fake_carry_out(void)
{
	struct nvmf_request *req;

	while ((req = STAILQ_FIRST(&held)) != NULL) {
		STAILQ_REMOVE_HEAD(&held, link);
		carry_out(req);
	}
	fake_run();
}

void nvmf_request_fail(struct nvmf_request *req, uint16_t status)
{
	answer(req, status);
}

void nvmf_request_measured(struct nvmf_request *req, uint64_t ticks)
{
	/* statistics */
}

void nvmf_request_return(struct nvmf_request *req)
{
	must(false); /* it has no buffer of a bdev's */
}

/* ---- Buffers ---- */

uint16_t nvmf_buffers_get(struct nvmf_buffer_group *g, struct nvmf_request *req)
{
	if (fake.buffers_used == fake.buffers) {
		return 0;
	}
	fake.buffers_used++;
	req->iov[0] = (struct iovec){malloc(req->length), req->length};
	req->iovcnt = 1;
	return 1;
}

void nvmf_buffers_put(struct nvmf_buffer_group *g, const struct iovec *iov, uint16_t count)
{
	must(count == 1 && fake.buffers_used > 0);
	fake.buffers_used--;
	memset(iov[0].iov_base, 0xdd, iov[0].iov_len); /* it has another use */
	free(iov[0].iov_base);
}

void nvmf_buffers_wait(struct nvmf_buffer_group *g, struct nvmf_request *req)
{
	STAILQ_INSERT_TAIL(&waiting, req, link);
}

struct nvmf_request *nvmf_buffers_next(struct nvmf_buffer_group *g, uint16_t *count)
{
	struct nvmf_request *req = STAILQ_FIRST(&waiting);

	if (req == NULL || (*count = nvmf_buffers_get(g, req)) == 0) {
		return NULL;
	}
	STAILQ_REMOVE_HEAD(&waiting, link);
	return req;
}

void nvmf_buffers_stop_waiting(struct nvmf_buffer_group *g, struct nvmf_request *req)
{
	STAILQ_REMOVE(&waiting, req, nvmf_request, link);
}

/* ---- The test's side ---- */

void fake_open(void)
{
	struct sockaddr_in peer = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	memset(&fake, 0, offsetof(struct fake, sent)); /* what is behind it are options and counts */
	fake.sent_bytes = fake.sendmsgs = 0;
	fake.host_closed = fake.leaver_open = fake.holds = fake.control_is_quick = fake.closed = false;
	fake.buffers_used = fake.memory = fake.executed = fake.completed = fake.writes = fake.failures = 0;
	fake.pinned = fake.max = fake.resets = num_notifications = 0;
	fake.unacknowledged = 0;
	fake.outq_fd = 0;
	next_number = UINT32_MAX - 1;
	fake.fd_open = true;
	fake.buffers = 8;
	fake.optmem = UINT_MAX;
	fake.room = fake.in_at_once = SIZE_MAX;
	STAILQ_INIT(&waiting);
	STAILQ_INIT(&held);
	((struct nvmf_tcp_opts *)(void *)transport.base.opts.own)->c2h_success = true;
	transport.base.opts.max_io_size = 131072;
	transport.base.opts.in_capsule_data_size = 4096;
	transport.buffers.max_per_request = 4;
	group = (struct nvmf_tcp_group){.epoll = 3, .latency = {.until_sample = 1}};
	STAILQ_INIT(&group.dirty);
	TAILQ_INIT(&group.qpairs);
	STAILQ_INIT(&group.buffers.waiting);
	TAILQ_INIT(&group.leavers);
	tcp_socket_set_opts(&(struct tcp_socket_opts){.zerocopy_server = fake.zerocopy, .zerocopy_threshold = 8192});
	nvmf_tcp_qpair_accept(&listener, FAKE_FD, (struct sockaddr *)&peer, NULL);
	must(fake.qp != NULL && (fake.qp->zerocopy != NULL) == fake.zerocopy);
	if (fake.qp->zerocopy != NULL) {
		fake.qp->zerocopy->next = next_number; /* numbers begin again at 0 soon */
	}
	must(nvmf_tcp_op_qpair_add(&group.base, &fake.qp->base) == 0);
	fake.qp->base.state = NVMF_QPAIR_CONNECTING;
}

/* One round of the group's poller. False: nothing was to be done. */
static bool poll_once(void)
{
	struct nvmf_tcp_qpair *qp = fake.qp;
	bool did = num_posted != 0;

	run_posted();
	qp = fake.qp;
	if (qp == NULL || !nvmf_tcp_qpair_is_open(qp)) {
		return did;
	}
	if (num_notifications > 0) {
		did = true;
		must(qp->zerocopy != NULL && nvmf_tcp_zerocopy_notified(qp));
	}
	if ((fake.in_bytes > 0 || fake.host_closed) && (qp->events & EPOLLIN) != 0) {
		did = true;
		nvmf_tcp_qpair_receive(qp);
	}
	if (fake.room > 0 && nvmf_tcp_qpair_is_open(qp) && (qp->events & EPOLLOUT) != 0) {
		nvmf_tcp_qpair_mark_dirty(qp, false);
	}
	nvmf_tcp_group_run_waiting(&group);
	if (nvmf_tcp_qpair_is_open(qp) && qp->dirty) {
		did = true;
		nvmf_tcp_qpair_unmark_dirty(qp);
		nvmf_tcp_qpair_send(qp);
		if (nvmf_tcp_qpair_is_open(qp) && qp->look) {
			qp->look = false;
			nvmf_tcp_qpair_receive(qp);
		}
		if (nvmf_tcp_qpair_is_open(qp)) {
			nvmf_tcp_qpair_update_events(qp);
		}
	}
	return did;
}

void fake_run(void)
{
	while (poll_once()) {
		clock_ticks++;
	}
}

void fake_tick(void)
{
	clock_ticks++;
}

void fake_receive(const void *bytes, size_t length)
{
	fake.in = bytes;
	fake.in_bytes = length;
	fake_run();
}

struct nvmf_tcp_request *fake_request(uint16_t cid)
{
	for (uint32_t i = 0; fake.qp != NULL && i < fake.qp->array->base.count; i++) {
		struct nvmf_tcp_request *r = nvmf_tcp_request_at(fake.qp->array, i);

		if (r->state != TCP_REQ_FREE && le16toh(r->sqe.cid) == cid) {
			return r;
		}
	}
	return NULL;
}

bool fake_end(void)
{
	fake.host_closed = true;
	fake.in_bytes = 0;
	fake.room = SIZE_MAX;
	fake.holds = false;
	fake_run();
	if (fake.qp != NULL && fake.qp->state < NVMF_TCP_QPAIR_CLOSING) { /* it reads nothing at present */
		nvmf_qpair_disconnect(&fake.qp->base, "the test ends");
	}
	fake_carry_out();
	nvmf_tcp_leavers_close(&group);
	return fake.closed && fake.qp == NULL && !fake.fd_open && fake.buffers_used == 0 && fake.memory == 0 &&
	       STAILQ_EMPTY(&waiting) && group.num_dirty == 0 && group.connections == 0 &&
	       group.connection_bytes == 0 && fake.failures == 0;
}

/* ---- What hosts send ---- */

static struct tcp_agreed agreed;

void fake_icreq(uint8_t digests)
{
	struct tcp_icreq req = {.header_digest = digests & 1, .data_digest = digests & 2, .max_r2t = 1};
	struct tcp_icresp resp = {.header_digest = digests & 1, .data_digest = digests & 2, .max_h2c_data = 131072};
	uint8_t head[TCP_HEAD_MAX];

	agreed = tcp_agree(&req, &resp);
	fake_receive(head, tcp_icreq_encode(head, &req));
}

static uint8_t out[TCP_HEAD_MAX + (1 << 18)];

/* Behind a head of n bytes. */
static size_t add_data(size_t n, uint8_t fill, uint32_t length)
{
	memset(out + n, fill, length);
	if (tcp_data_digest_bytes(&agreed, length) != 0) {
		uint32_t digest = htole32(tcp_digest_end(tcp_digest_add(TCP_DIGEST_START, out + n, length)));

		memcpy(out + n + length, &digest, sizeof(digest));
	}
	return n + length + tcp_data_digest_bytes(&agreed, length);
}

static void send_command(const struct nvme_sqe *sqe, uint32_t data, uint8_t fill)
{
	fake_receive(out, add_data(tcp_capsule_cmd_encode(out, &agreed, sqe, data), fill, data));
}

void fake_command(uint8_t opcode, uint16_t cid, uint16_t blocks, uint8_t fill, bool in_capsule)
{
	struct nvme_sqe sqe = {.opcode = opcode, .cid = htole16(cid), .cdw12 = htole32(blocks - 1u)};

	send_command(&sqe, in_capsule ? blocks * 512u : 0, fill);
}

void fake_connect(void)
{
	struct nvme_sqe sqe = {.opcode = nvme_admin_fabrics, .cid = htole16(100)};

	send_command(&sqe, 1024, 0);
}

void fake_data(uint16_t cid, uint16_t ttag, uint32_t offset, uint32_t length, uint8_t fill, bool last,
	       uint32_t send_only)
{
	struct tcp_piece piece = {.cccid = cid, .ttag = ttag, .offset = offset, .length = length, .last = last};
	size_t n = add_data(tcp_h2c_data_encode(out, &agreed, &piece), fill, length);

	fake_receive(out, send_only != 0 && send_only < n ? send_only : n);
}
