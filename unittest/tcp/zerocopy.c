/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends without a copy, and their notifications: by themselves, and on real sockets of the loopback interface, which
 * copies and says so. */
#include "tcp/zerocopy.h"
#include "unittest/unit.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <linux/errqueue.h>

#include "util/log.h"

static int refuse_errno; /* of the next sends with MSG_ZEROCOPY; 0: they reach the kernel, or are taken */
static bool pretend;     /* sends are taken without a kernel */
static unsigned asked, copied;

ssize_t __real_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	bool asks = (flags & MSG_ZEROCOPY) != 0;

	if (asks && refuse_errno != 0) {
		errno = refuse_errno;
		return -1;
	}
	*(asks ? &asked : &copied) += 1;
	return pretend ? (ssize_t)msg->msg_iov[0].iov_len : __real_sendmsg(fd, msg, flags);
}

int __real_setsockopt(int fd, int level, int name, const void *value, socklen_t n);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t n);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t n)
{
	if (pretend) {
		errno = refuse_errno;
		return refuse_errno != 0 ? -1 : 0;
	}
	return __real_setsockopt(fd, level, name, value, n);
}

/* Messages of the error queue, while it pretends: each of one copied send from `number` on, or of something else. */
static unsigned messages, strange;
static uint32_t number;

ssize_t __real_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags)
{
	struct sock_extended_err e = {.ee_origin = SO_EE_ORIGIN_ZEROCOPY, .ee_code = SO_EE_CODE_ZEROCOPY_COPIED};
	struct cmsghdr *c = msg->msg_control;

	if (!pretend) {
		return __real_recvmsg(fd, msg, flags);
	}
	CU_ASSERT_EQUAL(flags, MSG_ERRQUEUE | MSG_DONTWAIT);
	if (messages == 0) {
		errno = EAGAIN;
		return -1;
	}
	messages--;
	if (strange > 0) {
		strange--;
		e.ee_origin = SO_EE_ORIGIN_LOCAL;
	} else {
		e.ee_info = e.ee_data = number++;
	}
	*c = (struct cmsghdr){.cmsg_level = SOL_IP, .cmsg_type = IP_RECVERR, .cmsg_len = CMSG_LEN(sizeof(e))};
	memcpy(CMSG_DATA(c), &e, sizeof(e));
	msg->msg_controllen = CMSG_SPACE(sizeof(e));
	return 0;
}

static bool no_memory;

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	return no_memory ? NULL : __real_calloc(n, size);
}

static char owners[TCP_ZEROCOPY_MAX + 1]; /* have addresses */
static unsigned notified[TCP_ZEROCOPY_MAX + 1], all_notified, all_copied;

static void count_notified(void *arg, void *owner, bool was_copied)
{
	notified[(char *)owner - owners]++;
	all_notified++;
	all_copied += was_copied;
}

static struct tcp_zerocopy *begin_at(uint32_t next)
{
	refuse_errno = 0;
	pretend = true;
	asked = copied = all_notified = all_copied = 0;
	memset(notified, 0, sizeof(notified));
	struct tcp_zerocopy *z = tcp_zerocopy_make(0, 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(z);
	z->next = next;
	return z;
}

static ssize_t send_one(struct tcp_zerocopy *z, int fd, unsigned owner, bool *refers)
{
	static uint8_t bytes[65536];
	struct iovec iov = {bytes, sizeof(bytes)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	return tcp_zerocopy_send(z, fd, &msg, 0, &owners[owner], refers);
}

static void send_some(struct tcp_zerocopy *z, unsigned count)
{
	bool refers;

	for (unsigned i = 0; i < count; i++) {
		CU_ASSERT_EQUAL(send_one(z, 0, i, &refers), 65536);
		CU_ASSERT(refers);
	}
}

static uint32_t notify(struct tcp_zerocopy *z, uint32_t first, uint32_t last)
{
	struct tcp_zerocopy_range range = {.first = first, .last = last};

	return tcp_zerocopy_notify(z, &range, count_notified, NULL);
}

static void test_threshold_is_bounded(void)
{
	static const uint32_t given[] = {0, 1, 4096, 100000}, had[] = {16384, 4096, 4096, 100000};

	for (unsigned i = 0; i < 4; i++) {
		pretend = true;
		refuse_errno = 0;
		struct tcp_zerocopy *z = tcp_zerocopy_make(0, given[i]);
		CU_ASSERT_EQUAL(z->threshold, had[i]);
		free(z);
	}
}

static void test_without_the_kernel_or_memory_there_is_none(void)
{
	pretend = true;
	refuse_errno = EOPNOTSUPP;
	CU_ASSERT_PTR_NULL(tcp_zerocopy_make(0, 0));
	refuse_errno = 0;
	no_memory = true;
	CU_ASSERT_PTR_NULL(tcp_zerocopy_make(0, 0));
	no_memory = false;
}

static void test_each_send_is_notified_once_in_any_order(void)
{
	for (uint32_t next = UINT32_MAX - 4; next != 3; next++) { /* over the end of the numbers, too */
		struct tcp_zerocopy *z = begin_at(next);

		send_some(z, 6);
		CU_ASSERT_EQUAL(z->unnotified, 6);
		CU_ASSERT_EQUAL(notify(z, next + 2, next + 4), 3);
		CU_ASSERT_EQUAL(notify(z, next + 2, next + 4), 0); /* again */
		CU_ASSERT_EQUAL(notify(z, next, next + 5), 3);
		for (unsigned i = 0; i < 6; i++) {
			CU_ASSERT_EQUAL(notified[i], 1);
		}
		CU_ASSERT_EQUAL(z->unnotified, 0);
		free(z);
	}
}

static void test_numbers_of_no_send_are_passed_over(void)
{
	struct tcp_zerocopy *z = begin_at(1000);

	send_some(z, 2);
	CU_ASSERT_EQUAL(notify(z, 1002, 1010), 0);
	CU_ASSERT_EQUAL(notify(z, 990, 999), 0);
	CU_ASSERT_EQUAL(notify(z, 1000 + TCP_ZEROCOPY_MAX, 1000 + TCP_ZEROCOPY_MAX), 0); /* the same place */
	CU_ASSERT_EQUAL(notify(z, 1000 - TCP_ZEROCOPY_MAX, 1000 - TCP_ZEROCOPY_MAX), 0);
	CU_ASSERT_EQUAL(notify(z, 1001, 1000), 0); /* all numbers, and */
	CU_ASSERT_EQUAL(notify(z, 1001, 999), 0);  /* too many */
	CU_ASSERT_EQUAL(z->unnotified, 2);
	CU_ASSERT_EQUAL(notify(z, 998, 1005), 2);
	free(z);
}

static void test_what_has_no_place_is_copied(void)
{
	struct tcp_zerocopy *z = begin_at(7);
	bool refers;

	send_some(z, TCP_ZEROCOPY_MAX);
	CU_ASSERT_EQUAL(send_one(z, 0, TCP_ZEROCOPY_MAX, &refers), 65536);
	CU_ASSERT_FALSE(refers);
	CU_ASSERT_EQUAL(copied, 1);
	CU_ASSERT_EQUAL(notify(z, 8, 8), 1); /* not the oldest: its place is not the next */
	CU_ASSERT_EQUAL(send_one(z, 0, TCP_ZEROCOPY_MAX, &refers), 65536);
	CU_ASSERT_FALSE(refers);
	CU_ASSERT_EQUAL(notify(z, 7, 7), 1);
	CU_ASSERT_EQUAL(send_one(z, 0, TCP_ZEROCOPY_MAX, &refers), 65536);
	CU_ASSERT(refers);
	free(z);
}

static void test_refused_sends_are_copied_or_told(void)
{
	struct tcp_zerocopy *z = begin_at(0);
	bool refers = true;

	refuse_errno = ENOBUFS;
	CU_ASSERT_EQUAL(send_one(z, 0, 0, &refers), 65536);
	CU_ASSERT_FALSE(refers);
	CU_ASSERT_EQUAL(copied, 1);
	CU_ASSERT(z->on);
	refuse_errno = EAGAIN;
	CU_ASSERT_EQUAL(send_one(z, 0, 0, &refers), -EAGAIN);
	CU_ASSERT_FALSE(refers);
	CU_ASSERT_EQUAL(z->next, 0);
	CU_ASSERT_EQUAL(z->unnotified, 0);
	free(z);
}

/* A message of the error queue. */
static bool decode(int level, int type, size_t length, struct sock_extended_err e, struct tcp_zerocopy_range *range)
{
	union {
		struct cmsghdr c;
		uint8_t bytes[CMSG_SPACE(sizeof(e))];
	} control = {.bytes = {0}};
	struct msghdr msg = {.msg_control = &control, .msg_controllen = sizeof(control)};

	control.c = (struct cmsghdr){.cmsg_level = level, .cmsg_type = type, .cmsg_len = length};
	memcpy(CMSG_DATA(&control.c), &e, sizeof(e));
	return tcp_zerocopy_decode(&msg, range);
}

static void test_messages_of_the_error_queue(void)
{
	struct sock_extended_err e = {.ee_origin = SO_EE_ORIGIN_ZEROCOPY, .ee_info = 5, .ee_data = 9};
	size_t whole = CMSG_LEN(sizeof(e));
	struct tcp_zerocopy_range range = {0};
	struct msghdr none = {0};

	CU_ASSERT(decode(SOL_IP, IP_RECVERR, whole, e, &range));
	CU_ASSERT(range.first == 5 && range.last == 9 && !range.copied);
	e.ee_code = SO_EE_CODE_ZEROCOPY_COPIED;
	CU_ASSERT(decode(SOL_IPV6, IPV6_RECVERR, whole, e, &range));
	CU_ASSERT(range.copied);
	CU_ASSERT_FALSE(decode(SOL_IP, IP_RECVERR, whole - 1, e, &range));
	CU_ASSERT_FALSE(decode(SOL_IP, IP_TTL, whole, e, &range));
	CU_ASSERT_FALSE(decode(SOL_IPV6, IPV6_HOPLIMIT, whole, e, &range));
	CU_ASSERT_FALSE(decode(SOL_SOCKET, IP_RECVERR, whole, e, &range));
	e.ee_errno = ENOMSG;
	CU_ASSERT_FALSE(decode(SOL_IP, IP_RECVERR, whole, e, &range));
	e.ee_errno = 0;
	e.ee_origin = SO_EE_ORIGIN_LOCAL;
	CU_ASSERT_FALSE(decode(SOL_IP, IP_RECVERR, whole, e, &range));
	CU_ASSERT_FALSE(tcp_zerocopy_decode(&none, &range));
}

/* A call reads so many, and tells that there may be more; what is about something else is passed over. */
static void test_many_notifications_are_read_in_several_calls(void)
{
	struct tcp_zerocopy *z = begin_at(UINT32_MAX - 20);
	unsigned calls = 0;

	send_some(z, 100);
	number = UINT32_MAX - 20;
	strange = 3;
	messages = 103;
	while (tcp_zerocopy_read(z, 0, count_notified, NULL)) {
		calls++;
	}
	CU_ASSERT_EQUAL(calls, 7); /* of 16 messages each */
	CU_ASSERT_EQUAL(all_notified, 100);
	CU_ASSERT_EQUAL(all_copied, 100);
	CU_ASSERT_FALSE(z->on);
	send_some(z, 1);
	CU_ASSERT_FALSE(tcp_zerocopy_read(z, 0, count_notified, NULL)); /* none is there */
	free(z);
}

/* ---- Real sockets ---- */

static void connect_pair(int family, int fds[2])
{
	struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	struct sockaddr_in at4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr *sa = family == AF_INET6 ? (struct sockaddr *)&at : (struct sockaddr *)&at4;
	socklen_t n = family == AF_INET6 ? sizeof(at) : sizeof(at4);
	int listener = socket(family, SOCK_STREAM, 0);

	CU_ASSERT_EQUAL_FATAL(bind(listener, sa, n), 0);
	CU_ASSERT_EQUAL_FATAL(listen(listener, 1), 0);
	CU_ASSERT_EQUAL_FATAL(getsockname(listener, sa, &n), 0);
	fds[0] = socket(family, SOCK_STREAM, 0);
	CU_ASSERT_EQUAL_FATAL(connect(fds[0], sa, n), 0);
	fds[1] = accept(listener, NULL, NULL);
	CU_ASSERT_FATAL(fds[1] >= 0);
	close(listener);
}

static struct tcp_zerocopy *begin_real(int family, int fds[2])
{
	struct tcp_zerocopy *z = begin_at(0);

	free(z);
	pretend = false;
	connect_pair(family, fds);
	z = tcp_zerocopy_make(fds[0], 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(z);
	return z;
}

static void wait_for_error_queue(int fd)
{
	struct pollfd p = {.fd = fd};

	CU_ASSERT_EQUAL(poll(&p, 1, 60000), 1);
	CU_ASSERT((p.revents & POLLERR) != 0);
}

static void test_loopback_tells_that_it_copies(void)
{
	static const int families[] = {AF_INET, AF_INET6};
	int fds[2];
	bool refers;

	for (unsigned i = 0; i < 2; i++) {
		struct tcp_zerocopy *z = begin_real(families[i], fds);

		CU_ASSERT(send_one(z, fds[0], 0, &refers) > 0);
		CU_ASSERT_FATAL(refers);
		while (z->unnotified != 0) {
			wait_for_error_queue(fds[0]);
			CU_ASSERT(tcp_zerocopy_read(z, fds[0], count_notified, NULL));
		}
		CU_ASSERT_EQUAL(notified[0], 1);
		CU_ASSERT_EQUAL(all_copied, 1);
		CU_ASSERT_FALSE(z->on);
		CU_ASSERT_FALSE(tcp_zerocopy_read(z, fds[0], count_notified, NULL));
		close(fds[0]);
		close(fds[1]);
		free(z);
	}
}

/* A peer that reads nothing: what waits in the socket is notified when it is reset, and not sent any more. */
static void test_reset_takes_back_what_was_not_sent(void)
{
	struct timeval no_wait = {.tv_usec = 1};
	int fds[2];
	bool refers;
	unsigned sends = 0;
	struct tcp_zerocopy *z = begin_real(AF_INET, fds);

	while (send_one(z, fds[0], sends, &refers) > 0 && sends < TCP_ZEROCOPY_MAX - 1) {
		CU_ASSERT(refers);
		sends++;
	}
	CU_ASSERT_FATAL(sends > 1 && sends < TCP_ZEROCOPY_MAX - 1); /* it is full */
	while (tcp_zerocopy_read(z, fds[0], count_notified, NULL)) {
		/* those that have been delivered */
	}
	CU_ASSERT(z->unnotified != 0);
	tcp_zerocopy_reset(fds[0]);
	while (z->unnotified != 0) {
		wait_for_error_queue(fds[0]);
		(void)tcp_zerocopy_read(z, fds[0], count_notified, NULL);
	}
	CU_ASSERT_EQUAL(all_notified, sends);
	(void)__real_setsockopt(fds[1], SOL_SOCKET, SO_RCVTIMEO, &no_wait, sizeof(no_wait));
	ssize_t n;
	char byte;
	while ((n = recv(fds[1], &byte, 1, 0)) == 1) {
		/* what it had received */
	}
	CU_ASSERT(n < 0 && errno == ECONNRESET);
	close(fds[0]);
	close(fds[1]);
	free(z);
}

static const struct unit_test tests[] = {
	UNIT(test_threshold_is_bounded),
	UNIT(test_without_the_kernel_or_memory_there_is_none),
	UNIT(test_each_send_is_notified_once_in_any_order),
	UNIT(test_numbers_of_no_send_are_passed_over),
	UNIT(test_what_has_no_place_is_copied),
	UNIT(test_refused_sends_are_copied_or_told),
	UNIT(test_messages_of_the_error_queue),
	UNIT(test_many_notifications_are_read_in_several_calls),
	UNIT(test_loopback_tells_that_it_copies),
	UNIT(test_reset_takes_back_what_was_not_sent),
	UNIT_END,
};
UNIT_MAIN("tcp_zerocopy", tests, NULL, NULL)
