/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/service.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "env_dpdk/env.h"
#include "thread/thread.h"
#include "util/log.h"
#include "util/parse.h"

#define MESSAGE_MAX 512
#define SEND_WAIT_S 2 /* how long a message may wait for a manager that reads none; only at a change of state */
/* Checks per watchdog time. systemd advises two at least. There are more because a check in which a reactor got no CPU
 * proves nothing. */
#define LOOKS        4
#define MAX_REACTORS CPU_SETSIZE

static struct service {
	int fd; /* -1: there is no service manager */
	struct sockaddr_un to;
	socklen_t to_len;
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)]; /* as it was given */
	bool ready, stopping;
	uint64_t watchdog_us;
	struct thread_timer timer;
	uint64_t seen[MAX_REACTORS]; /* round_ticks at the last check */
	bool stuck;                  /* has been told */
} service = {.fd = -1};

/* flags: MSG_DONTWAIT for a message that may be lost. */
static void service_send(int flags, const char *message)
{
	if (service.fd >= 0 && sendto(service.fd, message, strlen(message), flags | MSG_NOSIGNAL,
				      (const struct sockaddr *)&service.to, service.to_len) < 0) {
		log_limited(LOG_LEVEL_WARNING, "the message \"%.40s\" could not be sent to the service manager: %s",
			    message, strerror(errno));
	}
}

static uint64_t watchdog_wanted(void)
{
	const char *us = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
	uint64_t value;

	if (us == NULL) {
		return 0;
	}
	if (pid != NULL && (parse_uint64(pid, 1, INT32_MAX, &value) != 0 || value != (uint64_t)getpid())) {
		return 0; /* meant for another process */
	}
	if (parse_uint64(us, LOOKS * 1000, UINT64_C(86400000000), &value) != 0) {
		log_warning(
			"WATCHDOG_USEC=%.32s is not a number of microseconds that can be kept: there is no watchdog",
			us);
		return 0;
	}
	return value;
}

static void service_open(const char *path)
{
	size_t len = path != NULL ? strlen(path) : 0;
	struct timeval wait = {.tv_sec = SEND_WAIT_S};

	if (len == 0) {
		return;
	}
	if ((path[0] != '/' && path[0] != '@') || len < 2 || len >= sizeof(service.to.sun_path)) {
		log_warning("NOTIFY_SOCKET is neither a path nor an abstract name (@...) of a socket: the service "
			    "manager is told nothing");
		return;
	}
	service.to = (struct sockaddr_un){.sun_family = AF_UNIX};
	memcpy(service.to.sun_path, path, len);
	if (path[0] == '@') {
		service.to.sun_path[0] = '\0';
	}
	service.to_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
	service.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (service.fd < 0) {
		log_warning("cannot make a socket for messages to the service manager: %s", strerror(errno));
		return;
	}
	setsockopt(service.fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	snprintf(service.path, sizeof(service.path), "%s", path);
}

void service_init(void)
{
	service_open(getenv("NOTIFY_SOCKET"));
	service.watchdog_us = service.fd >= 0 ? watchdog_wanted() : 0;
}

void service_adopt(const char *path, uint64_t watchdog_us)
{
	const char *own = getenv("NOTIFY_SOCKET");

	if (path == NULL || (own != NULL && own[0] != '\0' && strcmp(own, path) != 0)) {
		service_init();
	} else {
		service_open(path);
		service.watchdog_us = service.fd >= 0 ? watchdog_us : 0;
	}
	service_watchdog_start();
}

const char *service_path(uint64_t *watchdog_us)
{
	*watchdog_us = service.watchdog_us;
	return service.fd >= 0 ? service.path : NULL;
}

void service_hand_over(int pid)
{
	char text[32];

	snprintf(text, sizeof(text), "MAINPID=%d", pid);
	service_send(0, text);
	service.stopping = true; /* it does not stop: another process is the service */
}

void service_status(const char *fmt, ...)
{
	char text[MESSAGE_MAX];
	int n = snprintf(text, sizeof(text), "STATUS=");
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text + n, sizeof(text) - (size_t)n, fmt, ap);
	va_end(ap);
	service_send(MSG_DONTWAIT, text);
}

void service_ready(void)
{
	if (!service.ready) {
		service.ready = true;
		service_send(0, "READY=1");
	}
}

void service_stopping(void)
{
	if (!service.stopping) {
		service.stopping = true;
		service_send(0, "STOPPING=1");
	}
}

/* ---- The watchdog ---- */

static void watchdog_log_stuck(const struct reactor_progress *p)
{
	if (!service.stuck) {
		log_error("the reactor on lcore %u (OS thread %d) makes no rounds: the watchdog is not served until it "
			  "does",
			  p->lcore, p->tid);
		service_status("the reactor on lcore %u (OS thread %d) makes no rounds", p->lcore, p->tid);
		service.stuck = true;
	}
}

/* Notes the rounds for the next check, and wakes reactors that sleep. */
static void watchdog_note_rounds(void)
{
	struct reactor_progress p;

	for (uint32_t i = 0; i < MAX_REACTORS && reactor_get_progress(i, &p) == 0; i++) {
		service.seen[i] = p.round_ticks;
		reactor_wake(i);
	}
}

/* Whether each reactor has made a round since they were noted. */
static bool watchdog_all_polled(void)
{
	struct reactor_progress p;
	bool all = true;

	for (uint32_t i = 0; i < MAX_REACTORS && reactor_get_progress(i, &p) == 0; i++) {
		if (p.round_ticks == service.seen[i]) {
			watchdog_log_stuck(&p);
			all = false;
		}
	}
	return all;
}

static void watchdog_check(void *arg)
{
	if (watchdog_all_polled()) {
		service_send(MSG_DONTWAIT, "WATCHDOG=1");
		if (service.stuck) {
			log_notice("all reactors make rounds again");
			service_status("all reactors make rounds again");
			service.stuck = false;
		}
	}
	watchdog_note_rounds();
	thread_timer_start(&service.timer, service.watchdog_us / LOOKS);
}

void service_watchdog_start(void)
{
	if (service.watchdog_us == 0) {
		return;
	}
	log_notice("the service manager's watchdog needs a message every %" PRIu64 " us", service.watchdog_us);
	service.timer.fn = watchdog_check;
	watchdog_note_rounds();
	thread_timer_start(&service.timer, service.watchdog_us / LOOKS);
}

void service_watchdog_stop(void)
{
	thread_timer_stop(&service.timer);
}
