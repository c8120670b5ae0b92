/* SPDX-License-Identifier: BSD-3-Clause */
/* The two processes: starting the far one, calling it, and what the suite's main() does first. */
#include "unittest/softverbs/sides.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <link.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CALL_BYTES = 16 << 10 };

struct call {            /* request and answer on the control socket, one datagram each */
	intptr_t offset; /* of the function from sides_main(): both run the same executable, at different
			    addresses */
	long result;
	uint32_t bytes;
	char arg[CALL_BYTES] __attribute__((aligned(16)));
};

static struct {
	pid_t pid;
	int fd;
} far_side = {.fd = -1};

static char test_name[128] = "(start)";

int64_t sides_now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

const char *sides_ip(void)
{
	return getenv("VERBS_SUITE_IP");
}

int fd_wait(int fd, int deadline_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int64_t end = sides_now_ms() + deadline_ms;
	for (;;) {
		int64_t left = end - sides_now_ms();
		int rc = poll(&p, 1, left > 0 ? (int)left : 0);
		if (rc > 0) {
			return 0;
		}
		if (rc == 0 && left <= 0) {
			return -ETIMEDOUT;
		}
		if (rc < 0 && errno != EINTR) {
			return -errno;
		}
	}
}

int fd_nonblocking(int fd)
{
	return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static size_t call_size(const struct call *c)
{
	return offsetof(struct call, arg) + c->bytes;
}

int far_begin(void (*fn)(void), const void *arg, size_t bytes)
{
	static struct call c;
	if (bytes > CALL_BYTES) {
		return -E2BIG;
	}
	c.offset = (intptr_t)fn - (intptr_t)sides_main;
	c.bytes = (uint32_t)bytes;
	memcpy(c.arg, arg, bytes);
	return send(far_side.fd, &c, call_size(&c), MSG_NOSIGNAL) < 0 ? -errno : 0;
}

long far_end(void *arg, size_t bytes)
{
	static struct call c;
	/* Twice the deadline, since the step there may wait for one. */
	if (fd_wait(far_side.fd, 2 * SIDE_DEADLINE_MS) != 0) {
		return -ETIMEDOUT;
	}
	ssize_t got = recv(far_side.fd, &c, sizeof(c), 0);
	if (got < (ssize_t)offsetof(struct call, arg)) {
		return -EPIPE;
	}
	memcpy(arg, c.arg, bytes);
	return c.result;
}

long far_call(void (*fn)(void), void *arg, size_t bytes)
{
	int rc = far_begin(fn, arg, bytes);
	return rc != 0 ? rc : far_end(arg, bytes);
}

pid_t far_pid(void)
{
	return far_side.pid;
}

static void far_serve(int fd) __attribute__((noreturn));
static void far_serve(int fd)
{
	static struct call c;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (recv(fd, &c, sizeof(c), 0) > 0) {
		long (*step)(void *) = (long (*)(void *))((intptr_t)sides_main + c.offset);
		c.result = step(c.arg);
		if (send(fd, &c, call_size(&c), MSG_NOSIGNAL) < 0) {
			break;
		}
	}
	_exit(0);
}

static long exit_now(int *status)
{
	exit(*status);
}

void far_kill(int signal_number)
{
	if (far_side.pid == 0) {
		return;
	}
	if (signal_number != 0) {
		kill(far_side.pid, signal_number);
	} else {
		FAR_BEGIN(exit_now, &(int){0});
	}
	while (waitpid(far_side.pid, NULL, 0) < 0 && errno == EINTR) {
	}
	close(far_side.fd);
	far_side.pid = 0;
	far_side.fd = -1;
}

int far_start(void)
{
	int pair[2];
	char number[16];
	far_kill(SIGKILL);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0) {
		return -errno;
	}
	fcntl(pair[0], F_SETFD, FD_CLOEXEC);
	snprintf(number, sizeof(number), "%d", pair[1]);
	/* vfork(): the parent has a device open, and pages that RDMA reads must not become copy-on-write. */
	pid_t pid = vfork();
	if (pid == 0) {
		execl("/proc/self/exe", program_invocation_short_name, "--far", number, (char *)NULL);
		_exit(127);
	}
	close(pair[1]);
	if (pid < 0) {
		close(pair[0]);
		return -errno;
	}
	far_side.pid = pid;
	far_side.fd = pair[0];
	return 0;
}

/* --- main() */

static void say(const char *s)
{
	if (write(STDOUT_FILENO, s, strlen(s)) < 0) {
		return;
	}
}

static void test_hangs(int signal_number)
{
	say("FAIL ");
	say(test_name);
	say(": it hangs\n");
	if (far_side.pid != 0) {
		kill(far_side.pid, SIGKILL);
	}
	_exit(1);
}

/* A sanitizer's runtime must come before what is preloaded: a library that this executable has among its own. */
static int find_runtime(struct dl_phdr_info *info, size_t size, void *path)
{
	const char *file = strrchr(info->dlpi_name, '/');
	if (file != NULL && (strncmp(file, "/libasan.so", 11) == 0 || strncmp(file, "/libtsan.so", 11) == 0)) {
		snprintf(path, PATH_MAX, "%s:", info->dlpi_name);
	}
	return 0;
}

/* $SOFTVERBS_LIBRARY, or the library next to the folder of this executable. */
static void find_library(char *library)
{
	char self[PATH_MAX];
	const char *given = getenv("SOFTVERBS_LIBRARY");
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	self[n < 0 ? 0 : n] = '\0';
	if (given != NULL) {
		snprintf(library, PATH_MAX, "%s", given);
	} else {
		snprintf(library, PATH_MAX, "%.4000s/../softverbs/libsoftverbs.so", dirname(self));
	}
	if (access(library, R_OK) != 0) {
		printf("SKIP %s: %s is not there, and no device's address was given in VERBS_SUITE_IP\n",
		       program_invocation_short_name, library);
		exit(0);
	}
}

/* Starts this program again with the library preloaded. */
static void exec_under_softverbs(char **argv)
{
	char library[PATH_MAX], runtime[PATH_MAX] = "", preload[3 * PATH_MAX];
	const char *before = getenv("LD_PRELOAD");
	setenv("VERBS_SUITE_IP", "127.0.0.1", 1);
	if (before == NULL || strstr(before, "softverbs") == NULL) {
		find_library(library);
		dl_iterate_phdr(find_runtime, runtime);
		snprintf(preload, sizeof(preload), "%s%s%s%s", runtime, library, before ? ":" : "",
			 before ? before : "");
		setenv("LD_PRELOAD", preload, 1);
	}
	execv("/proc/self/exe", argv);
	perror("exec");
	exit(2);
}

void sides_main(int argc, char **argv)
{
	if (sides_ip() == NULL) {
		exec_under_softverbs(argv);
	}
	if (argc == 3 && strcmp(argv[1], "--far") == 0) {
		far_serve(atoi(argv[2]));
	}
	signal(SIGALRM, test_hangs);
	setvbuf(stdout, NULL, _IOLBF, 0);
}

int sides_setup(void)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	if (list != NULL) {
		ibv_free_device_list(list);
	}
	if (n == 0) {
		printf("# no RDMA device\n");
		return 1;
	}
	return far_start();
}

int sides_teardown(void)
{
	alarm(0);
	far_kill(SIGKILL);
	return 0;
}

const char *sides_test_begins(const char *test)
{
	snprintf(test_name, sizeof(test_name), "%s", test);
	alarm(SIDE_TEST_SECONDS);
	return known_difference(test);
}
