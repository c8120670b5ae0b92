/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/hand_over_caller.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#define GROUPS_MAX 16384 /* bytes of a /proc/PID/cgroup */
#define SHOWN_MAX  200   /* of a unit's name, in a message */

static int __attribute__((format(printf, 3, 4))) caller_refuse(char *why, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, HAND_OVER_CALLER_ERROR_MAX, fmt, ap);
	va_end(ap);
	return rc;
}

/* ---- Units ---- */

static bool name_has_end(const char *name, size_t len, const char *end)
{
	size_t n = strlen(end);

	return len >= n && memcmp(name + len - n, end, n) == 0;
}

/* How long the path is up to its last name of a unit; all of it if there is none. */
static size_t unit_length(const char *path, size_t len)
{
	size_t found = len, begin = 0;
	bool any = false;

	for (size_t i = 0; i <= len; i++) {
		if (i < len && path[i] != '/') {
			continue;
		}
		if (name_has_end(path + begin, i - begin, ".service") ||
		    name_has_end(path + begin, i - begin, ".scope")) {
			found = i;
			any = true;
		}
		begin = i + 1;
	}
	return any ? found : len;
}

void hand_over_unit_of(const char *groups, char unit[HAND_OVER_UNIT_MAX])
{
	bool certain = false;

	unit[0] = '\0';
	for (const char *line = groups; *line != '\0' && !certain;) {
		size_t len = strcspn(line, "\n");
		const char *kind = memchr(line, ':', len); /* "0::/path", or "1:name=systemd:/path" beside others */
		const char *path = kind != NULL ? memchr(kind + 1, ':', len - (size_t)(kind + 1 - line)) : NULL;
		size_t kind_len = path != NULL ? (size_t)(path - kind - 1) : 0;
		certain = path != NULL && kind_len == strlen("name=systemd") &&
			  memcmp(kind + 1, "name=systemd", kind_len) == 0;
		if (certain || (path != NULL && kind_len == 0)) {
			path++;
			snprintf(unit, HAND_OVER_UNIT_MAX, "%.*s", (int)unit_length(path, len - (size_t)(path - line)),
				 path);
		}
		line += len + (line[len] == '\n');
	}
}

/* 0, or a negative errno. pid 0: this process. */
static int unit_read(int32_t pid, char unit[HAND_OVER_UNIT_MAX])
{
	char name[64] = "/proc/self/cgroup", text[GROUPS_MAX];
	size_t len = 0;
	ssize_t n;

	if (pid != 0) {
		snprintf(name, sizeof(name), "/proc/%d/cgroup", pid);
	}
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		return -errno;
	}
	while ((n = read(fd, text + len, sizeof(text) - 1 - len)) > 0) {
		len += (size_t)n;
	}
	int rc = n < 0 ? -errno : 0;
	close(fd);
	text[len] = '\0';
	hand_over_unit_of(text, unit);
	return rc;
}

static int caller_check_unit(int32_t pid, char why[HAND_OVER_CALLER_ERROR_MAX])
{
	char own[HAND_OVER_UNIT_MAX], other[HAND_OVER_UNIT_MAX];
	int rc = unit_read(0, own);

	rc = rc == 0 ? unit_read(pid, other) : rc;
	if (rc != 0) {
		return caller_refuse(why, rc, "the control group of process %d cannot be looked at: %s", pid,
				     strerror(-rc));
	}
	if (strcmp(own, other) != 0) {
		return caller_refuse(why, -EPERM,
				     "a service manager watches this process, in %.*s, and process %d runs in %.*s: it "
				     "could not be the service; systemctl reload lets another process take over in "
				     "there; force (--takeover-force) does it all the same",
				     SHOWN_MAX, own, pid, SHOWN_MAX, other);
	}
	return 0;
}

/* ---- The process ---- */

/* Whether the caller's end of the connection is closed. */
static bool caller_is_hung_up(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLRDHUP};

	return poll(&p, 1, 0) != 0;
}

/* A descriptor of the process that has connected, or -1 and errno. The kernel gives that of the very process since
 * Linux 6.5; before, by its number, which is another process's if that one has ended and left the connection to a
 * child. */
static int caller_pidfd(int fd, int32_t pid)
{
	int pidfd;
	socklen_t len = sizeof(pidfd);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &len) == 0) {
		return pidfd;
	}
	return errno == ENOPROTOOPT ? pidfd_open(pid, 0) : -1;
}

static int caller_check_peer(int fd, int32_t pid, char why[HAND_OVER_CALLER_ERROR_MAX])
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0 || peer.pid != pid || pid == getpid()) {
		return caller_refuse(why, -EPERM,
				     "parameter \"pid\" is %d: the caller is not that process, or is one that cannot "
				     "be seen from here; varve --takeover makes this call",
				     pid);
	}
	if (peer.uid != 0 && peer.uid != geteuid()) {
		return caller_refuse(
			why, -EPERM,
			"process %d belongs to user %u: only one of user %u, or of root if this one may end "
			"it, can take over",
			pid, peer.uid, geteuid());
	}
	return 0;
}

/* What can be said while the process is held. */
static int caller_check_process(int fd, int pidfd, int32_t pid, bool look_at_unit, char why[HAND_OVER_CALLER_ERROR_MAX])
{
	int rc = look_at_unit ? caller_check_unit(pid, why) : 0;

	if (rc != 0) {
		return rc;
	}
	/* It has not ended: the number has been its own all the time. */
	if (pidfd_send_signal(pidfd, 0, NULL, 0) != 0) {
		rc = -errno;
		return caller_refuse(why, rc, "process %d cannot be watched and, should it hang, ended: %s", pid,
				     strerror(-rc));
	}
	return caller_is_hung_up(fd) ? caller_refuse(why, -EPIPE, "process %d has hung up", pid) : 0;
}

int hand_over_caller_open(int fd, int32_t pid, bool service, bool force, int *pidfd,
			  char why[HAND_OVER_CALLER_ERROR_MAX])
{
	int rc = caller_check_peer(fd, pid, why);

	if (rc != 0) {
		return rc;
	}
	*pidfd = caller_pidfd(fd, pid);
	if (*pidfd < 0) {
		rc = -errno;
		return caller_refuse(why, rc, "process %d cannot be watched: %s", pid, strerror(-rc));
	}
	rc = caller_check_process(fd, *pidfd, pid, service && !force, why);
	if (rc != 0) {
		close(*pidfd);
		*pidfd = -1;
	}
	return rc;
}
