/* SPDX-License-Identifier: BSD-3-Clause */
/* Trouble of a process that takes over: a library to preload, before the software RDMA device. Nothing can be bound to
 * the TCP port $VARVE_TROUBLE_PORT, which is in use; or, with $VARVE_TROUBLE_HOLD, bind() does not return while that
 * file exists, and has begun when the file $VARVE_TROUBLE_HOLD.held is there. The file $VARVE_TROUBLE_FILE cannot be
 * opened. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool is_port(const struct sockaddr *address)
{
	const char *text = getenv("VARVE_TROUBLE_PORT");

	return text != NULL && address->sa_family == AF_INET &&
	       ((const struct sockaddr_in *)address)->sin_port == htons((uint16_t)atoi(text));
}

static void hold(const char *file)
{
	char held[4096];

	snprintf(held, sizeof(held), "%s.held", file);
	FILE *f = fopen(held, "w");
	if (f != NULL) {
		fclose(f);
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
	if ((flags & (O_CREAT | O_TMPFILE)) != 0) {
		va_start(ap, flags);
		mode = va_arg(ap, mode_t);
		va_end(ap);
	}
	return real(path, flags, mode);
}
