/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/signals.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "thread/thread.h"

/* Two signals within this time are one request: a terminal and a supervisor may both send one. */
#define SAME_REQUEST_NS 500000000ULL

static volatile sig_atomic_t stop_signal, tell_wanted;
static uint64_t stop_ns;
static int wake_fd = -1;
static struct fd_source *source;
static void (*on_stop)(void), (*on_tell)(void);

static void signals_wake(void)
{
	uint64_t one = 1;

	while (write(wake_fd, &one, sizeof(one)) < 0 && errno == EINTR) {
	}
}

static uint64_t signals_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* After the first signal the control thread stops everything in order. A second signal means that the user does not
 * want to wait for that: it ends the process from here, even if the control thread hangs. */
static void signals_on_stop(int number)
{
	static const char text[] = "varve: a second signal: exit at once\n";
	int saved_errno = errno;

	if (stop_signal == 0) {
		stop_ns = signals_now_ns();
		stop_signal = number;
		signals_wake();
	} else if (signals_now_ns() - stop_ns > SAME_REQUEST_NS) {
		ssize_t ignored = write(STDERR_FILENO, text, sizeof(text) - 1);
		(void)ignored;
		_exit(128 + number);
	}
	errno = saved_errno;
}

static void signals_on_tell(int number)
{
	int saved_errno = errno;

	tell_wanted = 1;
	signals_wake();
	errno = saved_errno;
}

static int signals_set_handler(int number, void (*handler)(int))
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};

	sigfillset(&action.sa_mask);
	return sigaction(number, &action, NULL) == 0 ? 0 : -errno;
}

int signals_install(void)
{
	static const int stops[] = {SIGINT, SIGTERM, SIGHUP};

	wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (wake_fd < 0) {
		return -errno;
	}
	int rc = signals_set_handler(SIGUSR1, signals_on_tell);
	for (size_t i = 0; rc == 0 && i < sizeof(stops) / sizeof(stops[0]); i++) {
		rc = signals_set_handler(stops[i], signals_on_stop);
	}
	rc = rc == 0 ? signals_set_handler(SIGPIPE, SIG_IGN) : rc;
	return rc == 0 ? signals_set_handler(SIGXFSZ, SIG_IGN)
		       : rc; /* then a write beyond RLIMIT_FSIZE fails with EFBIG instead */
}

static void signals_event(void *arg, uint32_t events)
{
	uint64_t count;

	if (read(wake_fd, &count, sizeof(count)) < 0) {
		return;
	}
	if (tell_wanted) {
		tell_wanted = 0;
		on_tell();
	}
	if (stop_signal != 0) {
		on_stop();
	}
}

int signals_listen(void (*stop)(void), void (*tell)(void))
{
	on_stop = stop;
	on_tell = tell;
	source = fd_source_add(wake_fd, EPOLLIN, signals_event, NULL, "signals");
	return source != NULL ? 0 : -ENOMEM;
}

void signals_unlisten(void)
{
	if (source != NULL) {
		fd_source_remove(&source);
	}
}

int signals_stop_requested(void)
{
	return stop_signal;
}
