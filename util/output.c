/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *guarded;
static int status_if_lost;

static void output_close(void)
{
	errno = 0;
	if (fflush(stdout) == 0 && !ferror(stdout)) {
		return;
	}
	/* the errno of an earlier write is not known any more */
	fprintf(stderr, "%s: writing failed: %s\n", guarded,
		errno != 0 ? strerror(errno) : "not all of the output was taken");
	_exit(status_if_lost);
}

/* In ascending order, so that each open() gets the missing number. Opened in the wrong direction, so that using the
 * descriptor still fails with EBADF. */
static void take_closed(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) {
			_exit(status_if_lost); /* without /dev/null later files may get these numbers */
		}
	}
}

void output_guard(const char *program, int lost)
{
	guarded = program;
	status_if_lost = lost;
	take_closed();
	atexit(output_close);
}
