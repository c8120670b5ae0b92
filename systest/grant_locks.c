/* SPDX-License-Identifier: BSD-3-Clause */
/* For a test that must notice it: a library to preload, with which each lock of a file is granted at once, whoever has
 * it. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>

/* With 64-bit file offsets, which the build sets, programs call this by the name fcntl64, and so it is named here. */
int fcntl(int fd, int command, ...)
{
	int (*real)(int, int, ...) = (int (*)(int, int, ...))dlsym(RTLD_NEXT, "fcntl64");
	va_list args;

	va_start(args, command);
	void *arg = va_arg(args, void *);
	va_end(args);
	if (command == F_OFD_SETLK) {
		return 0;
	}
	if (real == NULL) {
		errno = ENOSYS;
		return -1;
	}
	return real(fd, command, arg);
}
