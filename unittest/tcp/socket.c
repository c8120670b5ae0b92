/* SPDX-License-Identifier: BSD-3-Clause */
/* Options of sockets: those of real ones, and what happens where the kernel refuses. */
#include "tcp/socket.h"
#include "unittest/unit.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util/log.h"

static int refuse[2]; /* names of options at SOL_SOCKET; 0: none */
static int refuse_errno, given;
static unsigned calls;

int __real_setsockopt(int fd, int level, int name, const void *value, socklen_t n);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t n);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t n)
{
	calls++;
	if (level == SOL_SOCKET && (name == refuse[0] || name == refuse[1])) {
		errno = refuse_errno;
		return -1;
	}
	return __real_setsockopt(fd, level, name, value, n);
}

/* The kernel's answer, unless the test has one, or an error. */
int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *n);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *n);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *n)
{
	if (given < 0) {
		errno = -given;
		return -1;
	}
	int rc = __real_getsockopt(fd, level, name, value, n);
	if (rc == 0 && given != 0) {
		*(int *)value = given;
	}
	return rc;
}

static unsigned warnings;

static void count_warnings(enum log_level level, const char *file, int line, const char *text)
{
	warnings += level == LOG_LEVEL_WARNING;
}

static int begin(void)
{
	refuse[0] = refuse[1] = refuse_errno = given = 0;
	calls = warnings = 0;
	return socket(AF_INET, SOCK_STREAM, 0);
}

static int option(int fd, int name)
{
	int value = 0;
	socklen_t n = sizeof(value);

	CU_ASSERT_EQUAL(__real_getsockopt(fd, SOL_SOCKET, name, &value, &n), 0);
	return value;
}

static void test_nothing_is_set_unless_it_is_asked_for(void)
{
	int fd = begin(), before = option(fd, SO_RCVBUF);

	tcp_socket_set_opts(&(struct tcp_socket_opts){0});
	tcp_socket_configure(fd);
	CU_ASSERT_EQUAL(calls, 0);
	CU_ASSERT_EQUAL(option(fd, SO_RCVBUF), before);
	close(fd);
}

static void test_sizes_are_those_that_were_asked_for(void)
{
	int fd = begin();

	tcp_socket_set_opts(&(struct tcp_socket_opts){.recv_buf_size = 50000, .send_buf_size = 40000});
	CU_ASSERT_EQUAL(tcp_socket_opts()->recv_buf_size, 50000);
	tcp_socket_configure(fd);
	CU_ASSERT_EQUAL(option(fd, SO_RCVBUF), 100000); /* the kernel doubles */
	CU_ASSERT_EQUAL(option(fd, SO_SNDBUF), 80000);
	CU_ASSERT_EQUAL(warnings, 0);
	close(fd);
}

static void test_without_the_capability_the_limit_holds(void)
{
	int fd = begin();

	refuse[0] = SO_RCVBUFFORCE;
	refuse[1] = SO_SNDBUFFORCE;
	refuse_errno = EPERM;
	tcp_socket_set_opts(&(struct tcp_socket_opts){.recv_buf_size = 50000, .send_buf_size = 40000});
	tcp_socket_configure(fd);
	CU_ASSERT_EQUAL(option(fd, SO_RCVBUF), 100000);
	CU_ASSERT_EQUAL(option(fd, SO_SNDBUF), 80000);
	CU_ASSERT_EQUAL(calls, 4);
	CU_ASSERT_EQUAL(warnings, 0);
	given = 30000; /* it gives less to both */
	tcp_socket_configure(fd);
	CU_ASSERT_EQUAL(warnings, 2);
	given = -ENOBUFS; /* what it gives is not known */
	tcp_socket_configure(fd);
	CU_ASSERT_EQUAL(warnings, 2);
	close(fd);
}

static void test_what_is_refused_is_told(void)
{
	int fd = begin();

	refuse[0] = SO_RCVBUFFORCE;
	refuse_errno = ENOMEM;
	tcp_socket_set_opts(&(struct tcp_socket_opts){.recv_buf_size = 50000});
	tcp_socket_configure(fd);
	CU_ASSERT_EQUAL(warnings, 1);
	CU_ASSERT_EQUAL(calls, 1);
	refuse[1] = SO_RCVBUF;
	refuse_errno = EPERM;
	tcp_socket_configure(fd);
	CU_ASSERT_EQUAL(warnings, 2);
	CU_ASSERT_EQUAL(calls, 3);
	close(fd);
}

static void test_placement_is_what_the_kernel_tells(void)
{
	static const struct {
		enum tcp_placement placement;
		int given;
		uint32_t number;
	} cases[] = {
		{TCP_PLACEMENT_NONE, 5, 0}, {TCP_PLACEMENT_NAPI, 8193, 8193},     {TCP_PLACEMENT_NAPI, -ENOPROTOOPT, 0},
		{TCP_PLACEMENT_CPU, 3, 4},  {TCP_PLACEMENT_CPU, -ENOPROTOOPT, 0}, {(enum tcp_placement)3, 5, 0},
	};
	int fd = begin();

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		tcp_socket_set_opts(&(struct tcp_socket_opts){.placement = cases[i].placement});
		given = cases[i].given;
		CU_ASSERT_EQUAL(tcp_socket_placement(fd), cases[i].number);
	}
	given = 0; /* the kernel's own answer: nothing has come in by a device */
	tcp_socket_set_opts(&(struct tcp_socket_opts){.placement = TCP_PLACEMENT_NAPI});
	CU_ASSERT_EQUAL(tcp_socket_placement(fd), 0);
	tcp_socket_set_opts(&(struct tcp_socket_opts){.placement = TCP_PLACEMENT_CPU});
	CU_ASSERT_EQUAL(tcp_socket_placement(fd), 0); /* -1 */
	tcp_socket_set_opts(&(struct tcp_socket_opts){0});
	close(fd);
}

static int setup(void)
{
	log_set_tap(count_warnings);
	return 0;
}

static const struct unit_test tests[] = {
	UNIT(test_nothing_is_set_unless_it_is_asked_for),  UNIT(test_sizes_are_those_that_were_asked_for),
	UNIT(test_without_the_capability_the_limit_holds), UNIT(test_what_is_refused_is_told),
	UNIT(test_placement_is_what_the_kernel_tells),     UNIT_END,
};

UNIT_MAIN("tcp_socket", tests, setup, NULL)
