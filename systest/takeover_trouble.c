/* SPDX-License-Identifier: BSD-3-Clause */
/* Trouble of a process that takes over: a library to preload, before the software RDMA device. Nothing can be bound to
 * the TCP port $VARVE_TROUBLE_PORT, which is in use; or, with $VARVE_TROUBLE_HOLD, bind() does not return while that
 * file exists, and has begun when the file $VARVE_TROUBLE_HOLD.held is there. The file $VARVE_TROUBLE_FILE cannot be
 * opened. What has the text $VARVE_TROUBLE_LOSE is not sent, and seems to be. When what is sent has the word serving,
 * the file $VARVE_TROUBLE_HOLD.said is there afterwards.
 *
 * Of either process: in the same way, what has the text $VARVE_TROUBLE_SAY is not sent, and a file
 * whose path ends with $VARVE_TROUBLE_UNLINK is not removed, while $VARVE_TROUBLE_HOLD exists.
 *
 * And of the process that is taken over from: $VARVE_TROUBLE_CGROUP is read in place of the control groups of another
 * process. With $VARVE_TROUBLE_LATE, which names the file that holds the other one,
 * that is let go, and has said that it serves, just before it is killed. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool is_port(const struct sockaddr *address)
{
	const char *text = getenv("VARVE_TROUBLE_PORT");

	return text != NULL && address->sa_family == AF_INET &&
	       ((const struct sockaddr_in *)address)->sin_port == htons((uint16_t)atoi(text));
}

static void make_file(const char *before, const char *after)
{
	char name[4096];

	snprintf(name, sizeof(name), "%s.%s", before, after);
	FILE *f = fopen(name, "w");
	if (f != NULL) {
		fclose(f);
	}
}

static void hold(const char *file)
{
	if (access(file, F_OK) == 0) {
		make_file(file, "held");
	}
	while (access(file, F_OK) == 0) {
		usleep(10000);
	}
}

int bind(int fd, const struct sockaddr *address, socklen_t len)
{
	int (*real)(int, const struct sockaddr *, socklen_t) =
		(int (*)(int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "bind");
	const char *file = getenv("VARVE_TROUBLE_HOLD");

	if (real == NULL || (is_port(address) && file == NULL)) {
		errno = real == NULL ? ENOSYS : EADDRINUSE;
		return -1;
	}
	if (is_port(address)) {
		hold(file);
	}
	return real(fd, address, len);
}

static bool is_groups_of_another(const char *path)
{
	static const char end[] = "/cgroup";
	size_t len = strlen(path);

	return strncmp(path, "/proc/", strlen("/proc/")) == 0 &&
	       strncmp(path, "/proc/self/", strlen("/proc/self/")) != 0 && len > strlen(end) &&
	       strcmp(path + len - strlen(end), end) == 0;
}

int unlink(const char *path)
{
	int (*real)(const char *) = (int (*)(const char *))dlsym(RTLD_NEXT, "unlink");
	const char *file = getenv("VARVE_TROUBLE_HOLD"), *what = getenv("VARVE_TROUBLE_UNLINK");

	if (real == NULL) {
		errno = ENOSYS;
		return -1;
	}
	if (file != NULL && what != NULL && strlen(path) >= strlen(what) &&
	    strcmp(path + strlen(path) - strlen(what), what) == 0) {
		hold(file);
	}
	return real(path);
}

/* The library is built for large files: this is open64() too. */
int open(const char *path, int flags, ...)
{
	int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
	const char *file = getenv("VARVE_TROUBLE_FILE");
	mode_t mode = 0;
	va_list ap;

	if (real == NULL || (file != NULL && strcmp(path, file) == 0)) {
		errno = real == NULL ? ENOSYS : EIO;
		return -1;
	}
	if (is_groups_of_another(path) && getenv("VARVE_TROUBLE_CGROUP") != NULL) {
		path = getenv("VARVE_TROUBLE_CGROUP");
	}
	if ((flags & (O_CREAT | O_TMPFILE)) != 0) {
		va_start(ap, flags);
		mode = va_arg(ap, mode_t);
		va_end(ap);
	}
	return real(path, flags, mode);
}

ssize_t send(int fd, const void *bytes, size_t len, int flags)
{
	ssize_t (*real)(int, const void *, size_t, int) =
		(ssize_t(*)(int, const void *, size_t, int))dlsym(RTLD_NEXT, "send");
	const char *file = getenv("VARVE_TROUBLE_HOLD");

	if (real == NULL) {
		errno = ENOSYS;
		return -1;
	}
	const char *words = getenv("VARVE_TROUBLE_SAY");
	if (file != NULL && words != NULL && memmem(bytes, len, words, strlen(words)) != NULL) {
		hold(file);
	}
	words = getenv("VARVE_TROUBLE_LOSE");
	if (words != NULL && memmem(bytes, len, words, strlen(words)) != NULL) {
		return (ssize_t)len;
	}
	ssize_t n = real(fd, bytes, len, flags);
	if (n > 0 && file != NULL && memmem(bytes, len, "\"serving\"", strlen("\"serving\"")) != NULL) {
		make_file(file, "said");
	}
	return n;
}

#define LATE_ROUNDS 6000 /* of 10 ms */

int pidfd_send_signal(int pidfd, int number, siginfo_t *info, unsigned flags)
{
	const char *file = getenv("VARVE_TROUBLE_LATE");
	char said[4096];

	if (number == SIGKILL && file != NULL) {
		snprintf(said, sizeof(said), "%s.said", file);
		unlink(file);
		for (int i = 0; i < LATE_ROUNDS && access(said, F_OK) != 0; i++) {
			usleep(10000);
		}
	}
	return (int)syscall(SYS_pidfd_send_signal, pidfd, number, info, flags);
}
