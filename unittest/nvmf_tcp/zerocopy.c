/* SPDX-License-Identifier: BSD-3-Clause */
/* Data that the kernel sends without a copy: nothing that it refers to has another use before it says so. The fake
 * socket reads the memory when the host takes it, as a device does that sends it again. */
#include "unittest/nvmf_tcp/fake_target.h"
#include "unittest/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <linux/sockios.h>

#include "nvmf_tcp/rules.h"

#define LARGE 16 /* blocks: 8 KiB, which is the threshold */

static void open_live(uint8_t digests)
{
	fake.zerocopy = true;
	fake_open();
	fake_icreq(digests);
	fake_connect();
	CU_ASSERT_EQUAL_FATAL(fake.qp->state, NVMF_TCP_QPAIR_LIVE);
	fake.sent_bytes = 0;
}

/* Of a read of `length` bytes without digests, whose PDUs begin at fake.sent[at]: whether all its data are right. */
static bool data_are_right(size_t at, size_t length)
{
	bool right = fake.sent[at] == TCP_PDU_C2H_DATA;

	for (size_t i = 0; i < length; i++) {
		right = right && fake.sent[at + 24 + i] == 0x5a;
	}
	return right;
}

static void test_buffer_is_kept_until_its_notification(void)
{
	open_live(0);
	fake_command(nvme_cmd_read, 1, LARGE, 0, false);
	CU_ASSERT_EQUAL(fake.pinned, 1);
	CU_ASSERT_EQUAL(fake.buffers_used, 1);
	CU_ASSERT_EQUAL(fake.qp->in_use, 1);
	CU_ASSERT_EQUAL(fake.qp->held, 1);
	CU_ASSERT_EQUAL(fake.qp->unsent, 0);
	fake_take(0, 1, false);
	CU_ASSERT_EQUAL(fake.buffers_used, 0);
	CU_ASSERT_EQUAL(fake.qp->in_use, 0);
	CU_ASSERT_EQUAL(fake.qp->held, 0);
	CU_ASSERT(data_are_right(0, 8192));
	CU_ASSERT_EQUAL(fake.qp->tgroup->counters.zerocopy_sends, 1);
	CU_ASSERT(fake_end());
}

static void test_small_data_and_requests_without_the_option_are_copied(void)
{
	open_live(0);
	fake_command(nvme_cmd_read, 1, LARGE - 1, 0, false);
	CU_ASSERT_EQUAL(fake.max, 0);
	CU_ASSERT_EQUAL(fake.qp->in_use, 0);
	CU_ASSERT(fake_end());
	fake.zerocopy = false;
	fake_open();
	CU_ASSERT_PTR_NULL(fake.qp->zerocopy);
	fake_icreq(0);
	fake_connect();
	fake_command(nvme_cmd_read, 1, 4 * LARGE, 0, false);
	CU_ASSERT_EQUAL(fake.max, 0);
	CU_ASSERT(fake_end());
}

/* Notifications in the wrong order, and after each of the requests in between. */
static void test_notifications_in_any_order(void)
{
	for (unsigned first = 0; first < 3; first++) {
		open_live(0);
		fake.holds = true;
		for (uint16_t cid = 0; cid < 3; cid++) {
			fake_command(nvme_cmd_read, cid, LARGE, 0, false);
		}
		fake.holds = false;
		fake_carry_out();
		CU_ASSERT_EQUAL(fake.pinned, 3);
		fake_take(first, 1, false);
		CU_ASSERT_EQUAL(fake.buffers_used, 2);
		CU_ASSERT_PTR_NULL(fake_request((uint16_t)first));
		while (fake.pinned > 0) {
			fake_take(fake.pinned - 1, 1, false);
			CU_ASSERT_EQUAL(fake.buffers_used, fake.pinned);
		}
		for (unsigned i = 0; i < 3; i++) {
			CU_ASSERT(data_are_right(i * (24 + 8192), 8192));
		}
		CU_ASSERT(fake_end());
	}
}

static void test_one_notification_of_many_sends(void)
{
	open_live(0);
	for (uint16_t cid = 0; cid < 3; cid++) {
		fake_command(nvme_cmd_read, cid, LARGE, 0, false);
	}
	fake_take(0, 3, false);
	CU_ASSERT_EQUAL(fake.buffers_used, 0);
	CU_ASSERT_EQUAL(fake.qp->in_use, 0);
	CU_ASSERT(fake_end());
}

/* Each way to cut the stream, with small and large requests and digests: as many and the same bytes as with copies. */
static void test_stream_is_the_same_in_pieces_of_each_size(void)
{
	static uint8_t copied[60000];
	size_t whole = 0;

	for (size_t n = SIZE_MAX; n != 0; n = n == SIZE_MAX ? 9000 : n * 2 / 3) {
		open_live(3);
		fake.qp->zerocopy->on = n != SIZE_MAX;
		fake.room = 0;
		fake_command(nvme_cmd_read, 1, LARGE, 0, false);
		fake_command(nvme_cmd_flush, 2, 1, 0, false);
		fake_command(nvme_cmd_read, 3, 3, 0, false);
		fake_command(nvme_cmd_read, 4, 2 * LARGE, 0, false);
		for (unsigned i = 0; fake.qp->unsent != 0 && i < 100000; i++) {
			fake.room = n;
			fake_run();
			if (fake.pinned > 100) {
				fake_take(3, 90, false);
			}
		}
		CU_ASSERT_EQUAL(fake.qp->unsent, 0);
		while (fake.pinned > 0) {
			unsigned last = fake.pinned - 1;
			fake_take(last, 1, false);
		}
		CU_ASSERT_EQUAL(fake.qp->in_use, 0);
		CU_ASSERT_EQUAL(fake.buffers_used, 0);
		if (n == SIZE_MAX) {
			whole = fake.sent_bytes;
			CU_ASSERT_FATAL(whole < sizeof(copied));
			memcpy(copied, fake.sent, whole);
		}
		CU_ASSERT_EQUAL(fake.sent_bytes, whole);
		CU_ASSERT_EQUAL(memcmp(fake.sent, copied, whole), 0);
		CU_ASSERT(fake_end());
	}
}

/* A host whose whole queue is answered sends the next commands before the notifications have come: it has to wait. */
static void test_full_queue_waits_for_notifications(void)
{
	open_live(0);
	for (uint16_t cid = 0; cid < FAKE_ENTRIES; cid++) {
		fake_command(nvme_cmd_read, cid, LARGE, 0, false);
	}
	CU_ASSERT_EQUAL(fake.pinned, FAKE_ENTRIES);
	CU_ASSERT(fake.qp->starved);
	fake_command(nvme_cmd_read, 9, 1, 0, false);
	CU_ASSERT_PTR_NULL(fake_request(9));
	CU_ASSERT(nvmf_tcp_qpair_is_open(fake.qp));
	fake_take(0, 1, false);
	CU_ASSERT_FALSE(nvmf_tcp_qpair_reads_nothing(fake.qp));
	CU_ASSERT_EQUAL(fake.completed, 2 + FAKE_ENTRIES);
	fake_take(0, FAKE_ENTRIES - 1, false);
	CU_ASSERT(fake_end());
}

/* The same, if some of the queue is executing, and the last free request is taken while others are held. */
static void test_last_request_is_taken_while_others_are_held(void)
{
	open_live(0);
	fake_command(nvme_cmd_read, 0, LARGE, 0, false);
	fake.holds = true;
	for (uint16_t cid = 1; cid < FAKE_ENTRIES; cid++) {
		fake_command(nvme_cmd_flush, cid, 1, 0, false);
	}
	CU_ASSERT(fake.qp->starved);
	fake_command(nvme_cmd_flush, 9, 1, 0, false);
	CU_ASSERT(nvmf_tcp_qpair_is_open(fake.qp));
	fake_take(0, 1, false);
	CU_ASSERT_PTR_NOT_NULL(fake_request(9));
	fake_command(nvme_cmd_flush, 10, 1, 0, false); /* one too many: nothing is held any more */
	CU_ASSERT_FALSE(fake.qp != NULL && nvmf_tcp_qpair_is_open(fake.qp));
	CU_ASSERT(fake_end());
}

/* Twice as many commands as the queue has entries in one read: those that wait are kept, whatever is read for others.
 */
static void test_commands_that_wait_are_kept(void)
{
	static uint8_t stream[2 * FAKE_ENTRIES * TCP_HEAD_MAX];
	size_t length = 0;

	open_live(0);
	fake_command(nvme_cmd_read, 100, LARGE, 0, false);
	for (uint16_t cid = 0; cid < 2 * FAKE_ENTRIES - 1; cid++) {
		struct nvme_sqe sqe = {.opcode = nvme_cmd_flush, .cid = htole16(cid)};

		length += tcp_capsule_cmd_encode(stream + length, &fake.qp->receiver.agreed, &sqe, 0);
	}
	fake.holds = true;
	fake_receive(stream, length);
	CU_ASSERT_EQUAL(fake.executed, 2 + FAKE_ENTRIES - 1);
	memset(fake.qp->tgroup->stage, 0xee, sizeof(fake.qp->tgroup->stage));
	fake.holds = false;
	fake_carry_out();
	fake_take(0, 1, false);
	CU_ASSERT_EQUAL(fake.executed, 2 + 2 * FAKE_ENTRIES - 1);
	CU_ASSERT_EQUAL(fake.completed, 2 + 2 * FAKE_ENTRIES - 1);
	CU_ASSERT(fake_end());
}

/* Where nothing is held, many commands come in one read, as without the option. */
static void test_commands_come_in_as_few_reads(void)
{
	static uint8_t stream[2 * (TCP_HEAD_MAX + 4096)];
	size_t length = 0;

	open_live(0);
	for (uint16_t cid = 0; cid < 2; cid++) {
		struct nvme_sqe sqe = {.opcode = nvme_cmd_write, .cid = htole16(cid), .cdw12 = htole32(7)};

		length += tcp_capsule_cmd_encode(stream + length, &fake.qp->receiver.agreed, &sqe, 4096) + 4096;
	}
	uint64_t before = fake.qp->tgroup->counters.reads;
	fake_receive(stream, length);
	CU_ASSERT_EQUAL(fake.writes, 2);
	CU_ASSERT_EQUAL(fake.qp->tgroup->counters.reads - before, 1);
	CU_ASSERT(fake_end());
}

static void test_without_means_it_copies(void)
{
	open_live(0);
	fake.optmem = 1;
	for (uint16_t cid = 0; cid < 3; cid++) {
		fake_command(nvme_cmd_read, cid, LARGE, 0, false);
	}
	CU_ASSERT_EQUAL(fake.max, 1);
	CU_ASSERT_EQUAL(fake.buffers_used, 1);
	CU_ASSERT(data_are_right(24 + 8192, 8192));
	CU_ASSERT(fake.qp->zerocopy->on);
	fake_take(0, 1, false);
	CU_ASSERT_EQUAL(fake.buffers_used, 0);
	CU_ASSERT(fake_end());
}

static void test_kernel_that_copies_is_asked_no_more(void)
{
	open_live(0);
	fake_command(nvme_cmd_read, 0, LARGE, 0, false);
	fake_command(nvme_cmd_read, 1, LARGE, 0, false);
	fake_take(0, 1, true);
	CU_ASSERT_FALSE(fake.qp->zerocopy->on);
	CU_ASSERT_EQUAL(fake.buffers_used, 1); /* the other's notification is still to come */
	fake_command(nvme_cmd_read, 2, LARGE, 0, false);
	CU_ASSERT_EQUAL(fake.max, 2);
	CU_ASSERT_EQUAL(fake.buffers_used, 1);
	fake_take(0, 1, true);
	CU_ASSERT_EQUAL(fake.qp->tgroup->counters.zerocopy_copied, 2);
	CU_ASSERT(data_are_right(0, 8192));
	CU_ASSERT(fake_end());
}

/* Part of the data was sent without a copy, and the rest is not sent for want of room when the kernel says that it
 * copies. */
static void test_kernel_that_copies_in_the_middle_of_data(void)
{
	open_live(0);
	fake.room = 24 + 4096;
	fake_command(nvme_cmd_read, 0, LARGE, 0, false);
	CU_ASSERT_EQUAL(fake.pinned, 1);
	fake_take(0, 1, true);
	CU_ASSERT_EQUAL(fake.buffers_used, 1);
	fake.room = SIZE_MAX;
	fake_run();
	CU_ASSERT_EQUAL(fake.buffers_used, 0);
	CU_ASSERT_EQUAL(fake.max, 1);
	CU_ASSERT(data_are_right(0, 8192));
	CU_ASSERT(fake_end());
}

/* The connection ends while notifications are outstanding: the requests stay, and so does the socket. */
static void test_end_waits_for_notifications(void)
{
	for (unsigned sent = 0; sent < 3; sent++) { /* all, a part, a part and another request behind it */
		open_live(0);
		fake.room = sent == 0 ? SIZE_MAX : 24 + 5000;
		fake_command(nvme_cmd_read, 1, LARGE, 0, false);
		if (sent == 2) {
			fake_command(nvme_cmd_read, 2, LARGE, 0, false);
		}
		nvmf_qpair_fail(&fake.qp->base, "the target ends it");
		fake_look();
		CU_ASSERT_EQUAL(fake.qp->state, NVMF_TCP_QPAIR_CLOSING);
		CU_ASSERT_EQUAL(fake.buffers_used, 1);
		CU_ASSERT(fake.fd_open && !fake.leaver_open);
		CU_ASSERT_EQUAL(fake.resets, 0);
		fake_take(0, 1, false);
		CU_ASSERT_EQUAL(fake.sent[24], 0x5a);
		fake_look();
		CU_ASSERT(fake.leaver_open || !fake.fd_open);
		CU_ASSERT_EQUAL(fake.buffers_used, 0);
		CU_ASSERT_PTR_NULL(fake.qp);
		CU_ASSERT(fake_end());
	}
}

static void test_host_that_takes_nothing_is_reset(void)
{
	open_live(0);
	fake_command(nvme_cmd_read, 1, LARGE, 0, false);
	nvmf_qpair_fail(&fake.qp->base, "the target ends it");
	for (unsigned i = 0; i < 1100 && fake.resets == 0; i++) {
		fake_look();
		CU_ASSERT_EQUAL(fake.buffers_used, 1);
	}
	CU_ASSERT_EQUAL(fake.resets, 1);
	fake_look(); /* the device has not done with it */
	CU_ASSERT_EQUAL(fake.buffers_used, 1);
	fake_take(0, 1, false);
	fake_look();
	CU_ASSERT_PTR_NULL(fake.qp);
	CU_ASSERT(fake_end());
}

static void test_broken_connection_is_reset_at_once(void)
{
	open_live(0);
	fake_command(nvme_cmd_read, 1, LARGE, 0, false);
	fake.host_closed = true;
	fake_run();
	CU_ASSERT_EQUAL(fake.qp->state, NVMF_TCP_QPAIR_CLOSING);
	fake_look();
	CU_ASSERT_EQUAL(fake.resets, 1);
	CU_ASSERT_EQUAL(fake.buffers_used, 1);
	fake_take(0, 1, false);
	fake_look();
	CU_ASSERT(fake_end());
}

/* More sends than are followed: those beyond are copied. */
static void test_more_sends_than_are_followed(void)
{
	open_live(0);
	fake.room = 24;
	fake_command(nvme_cmd_read, 1, 256, 0, false);
	for (unsigned i = 0; i < TCP_ZEROCOPY_MAX + 10; i++) {
		fake.room = 100;
		fake_run();
	}
	CU_ASSERT_EQUAL(fake.max, TCP_ZEROCOPY_MAX);
	CU_ASSERT_EQUAL(fake.sent[24 + 100 * TCP_ZEROCOPY_MAX], 0x5a);
	fake.room = SIZE_MAX;
	fake_run();
	CU_ASSERT_EQUAL(fake.buffers_used, 1);
	fake_take(0, TCP_ZEROCOPY_MAX, false);
	CU_ASSERT_EQUAL(fake.buffers_used, 0);
	CU_ASSERT(data_are_right(0, 131072));
	CU_ASSERT(fake_end());
}

/* ---- Hosts that take too little ---- */

/* A look at the connections. The host has left so many bytes, and commands of others wait for a buffer. False: the
 * connection was ended. */
static bool look_for_stalled(size_t unacknowledged, bool scarce)
{
	fake.unacknowledged = unacknowledged;
	fake.qp->tgroup->buffers.waits += scarce;
	fake_tick();
	nvmf_tcp_group_poll_stalled(fake.qp->tgroup);
	return fake.qp->state == NVMF_TCP_QPAIR_LIVE;
}

/* All reads that the queue has room for are answered. Returns how many bytes the host has to take. */
static size_t open_with_reads(uint16_t blocks)
{
	open_live(0);
	for (uint16_t cid = 0; cid < FAKE_ENTRIES; cid++) {
		fake_command(nvme_cmd_read, cid, blocks, 0, false);
	}
	CU_ASSERT_EQUAL(fake.pinned, FAKE_ENTRIES);
	CU_ASSERT_EQUAL(fake.qp->unsent, 0);
	return FAKE_ENTRIES * (24 + (size_t)blocks * 512);
}

static void end_with_reads(void)
{
	while (fake.pinned > 0) {
		fake_take(0, 1, false);
	}
	if (fake.qp != NULL) {
		fake_look();
	}
	CU_ASSERT(fake_end());
}

/* One send has one notification, after all of its bytes: what counts are the bytes. */
static void test_slow_host_that_takes_data_stays(void)
{
	size_t left = open_with_reads(256);

	for (unsigned i = 0; i < 60; i++) {
		left -= 4096;
		CU_ASSERT_FATAL(look_for_stalled(left, false));
	}
	end_with_reads();
}

static void test_host_that_takes_too_few_bytes_is_disconnected(void)
{
	size_t left = open_with_reads(256);
	unsigned looks = 0;

	do {
		left -= 4095;
	} while (looks++ < 60 && look_for_stalled(left, false));
	CU_ASSERT_EQUAL(looks, 6); /* since the first it is under way */
	end_with_reads();
}

/* ---- The same with what a real socket tells ---- */

/* The target's side and the host's of a connection on the loopback interface. */
struct real_pair {
	int target, host;
};

int __real_connect(int fd, const struct sockaddr *at, socklen_t n);
int __real_setsockopt(int fd, int level, int name, const void *value, socklen_t n);
int __real_getsockname(int fd, struct sockaddr *at, socklen_t *n);

/* With a descriptor that is not the fake's. */
static int socket_above_fake(int fd)
{
	int above = fcntl(fd, F_DUPFD, 100);

	CU_ASSERT_FATAL(fd >= 0 && above >= 100);
	(void)close(fd);
	return above;
}

static struct real_pair open_real_pair(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof(at);
	int much = 1 << 20, little = 16384, rc;
	int listener = socket_above_fake(socket(AF_INET, SOCK_STREAM, 0));
	struct real_pair p = {.target = socket_above_fake(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0))};

	CU_ASSERT_EQUAL(__real_setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &little, sizeof(little)), 0);
	CU_ASSERT_EQUAL(__real_setsockopt(p.target, SOL_SOCKET, SO_SNDBUF, &much, sizeof(much)), 0);
	CU_ASSERT_EQUAL_FATAL(bind(listener, (struct sockaddr *)&at, n), 0);
	CU_ASSERT_EQUAL_FATAL(listen(listener, 1), 0);
	CU_ASSERT_EQUAL_FATAL(__real_getsockname(listener, (struct sockaddr *)&at, &n), 0);
	rc = __real_connect(p.target, (struct sockaddr *)&at, n);
	CU_ASSERT_FATAL(rc == 0 || errno == EINPROGRESS);
	p.host = socket_above_fake(accept(listener, NULL, NULL));
	(void)close(listener);
	return p;
}

static size_t unacknowledged(const struct real_pair *p)
{
	int bytes = 0;

	CU_ASSERT_EQUAL(ioctl(p->target, SIOCOUTQ, &bytes), 0);
	return (size_t)bytes;
}

/* A connection whose answers to reads have been given to the real socket, as many bytes of them as it takes. */
static struct real_pair open_real_with_reads(void)
{
	struct real_pair p = open_real_pair();
	struct pollfd writable = {.fd = p.target, .events = POLLOUT};
	size_t bytes = open_with_reads(256), given = 0;
	ssize_t n;

	CU_ASSERT_EQUAL(poll(&writable, 1, 60000), 1);
	while (given < bytes && (n = write(p.target, fake.sent + given, bytes - given)) > 0) {
		given += (size_t)n;
	}
	CU_ASSERT_FATAL(unacknowledged(&p) > 32 * 4096);
	fake.outq_fd = p.target;
	return p;
}

static void end_real(const struct real_pair *p)
{
	end_with_reads();
	(void)close(p->target);
	(void)close(p->host);
}

/* The host reads until the target's kernel knows that it has taken so many bytes. */
static void take_real(const struct real_pair *p, size_t bytes)
{
	static uint8_t taken[4096];
	size_t before = unacknowledged(p);

	while (before - unacknowledged(p) < bytes) {
		struct pollfd readable = {.fd = p->host, .events = POLLIN};

		CU_ASSERT_EQUAL_FATAL(poll(&readable, 1, 60000), 1);
		CU_ASSERT_FATAL(read(p->host, taken, sizeof(taken)) > 0);
	}
}

static void test_slow_host_behind_a_real_socket_stays(void)
{
	struct real_pair p = open_real_with_reads();
	unsigned looks = 0;

	while (unacknowledged(&p) > 65536) {
		take_real(&p, 4096);
		CU_ASSERT_FATAL(look_for_stalled(0, false));
		looks++;
	}
	CU_ASSERT(looks > 6); /* one that takes nothing has ended by then: below */
	end_real(&p);
}

/* Its kernel takes as much as there is room for, so that the first looks may find that it does. */
static void test_host_behind_a_real_socket_that_reads_nothing_is_disconnected(void)
{
	struct real_pair p = open_real_with_reads();
	size_t before = unacknowledged(&p);
	unsigned looks = 1;

	while (look_for_stalled(0, false) && looks < 60) {
		looks++;
	}
	CU_ASSERT(looks >= 6 && looks < 60);
	CU_ASSERT(before - unacknowledged(&p) < 65536);
	end_real(&p);
}

/* Enough at each look, but what it has was to be acknowledged long ago. */
static void test_host_that_keeps_scarce_buffers_is_disconnected(void)
{
	size_t left = open_with_reads(256);
	unsigned looks = 0;

	do {
		left -= 4096;
	} while (looks++ < 60 && look_for_stalled(left, true));
	CU_ASSERT_EQUAL(looks, 18);
	end_with_reads();
}

/* A host that has something under way at each look, and takes all of it soon. */
static void test_quick_host_with_few_data_stays(void)
{
	open_live(0);
	for (unsigned i = 0; i < 60; i++) {
		fake_command(nvme_cmd_read, 1, LARGE, 0, false);
		CU_ASSERT_FATAL(look_for_stalled(24 + 8192, true));
		fake_take(0, 1, false);
	}
	CU_ASSERT(fake_end());
}

/* ---- What operators see ---- */

static void test_held_request_has_its_own_state(void)
{
	open_live(0);
	fake_command(nvme_cmd_read, 1, LARGE, 0, false);
	CU_ASSERT_EQUAL_FATAL(fake_request(1)->state, TCP_REQ_HELD);
	CU_ASSERT_STRING_EQUAL(nvmf_tcp_request_states[TCP_REQ_HELD].waits_for, "the host's acknowledgement");
	CU_ASSERT_FALSE(nvmf_tcp_op_request_abort(&fake_request(1)->req, NVME_ST(GENERIC, ABORT_REQ)));
	fake_take(0, 1, false);
	CU_ASSERT(fake_end());
}

static const struct unit_test tests[] = {
	UNIT(test_buffer_is_kept_until_its_notification),
	UNIT(test_small_data_and_requests_without_the_option_are_copied),
	UNIT(test_notifications_in_any_order),
	UNIT(test_one_notification_of_many_sends),
	UNIT(test_stream_is_the_same_in_pieces_of_each_size),
	UNIT(test_full_queue_waits_for_notifications),
	UNIT(test_last_request_is_taken_while_others_are_held),
	UNIT(test_commands_that_wait_are_kept),
	UNIT(test_commands_come_in_as_few_reads),
	UNIT(test_without_means_it_copies),
	UNIT(test_kernel_that_copies_is_asked_no_more),
	UNIT(test_kernel_that_copies_in_the_middle_of_data),
	UNIT(test_end_waits_for_notifications),
	UNIT(test_host_that_takes_nothing_is_reset),
	UNIT(test_broken_connection_is_reset_at_once),
	UNIT(test_more_sends_than_are_followed),
	UNIT(test_slow_host_that_takes_data_stays),
	UNIT(test_host_that_takes_too_few_bytes_is_disconnected),
	UNIT(test_slow_host_behind_a_real_socket_stays),
	UNIT(test_host_behind_a_real_socket_that_reads_nothing_is_disconnected),
	UNIT(test_host_that_keeps_scarce_buffers_is_disconnected),
	UNIT(test_quick_host_with_few_data_stays),
	UNIT(test_held_request_has_its_own_state),
	UNIT_END,
};
UNIT_MAIN("nvmf_tcp_zerocopy", tests, NULL, NULL)
