/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/pid_file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int pid_file_fail(const char *path, int err, char *error, size_t error_bytes)
{
	snprintf(error, error_bytes, "cannot write the process id to %s (-f): %s", path, strerror(err));
	return -err;
}

/* Writes and closes. 0, or an errno. */
static int pid_file_fill(int fd)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%d\n", getpid());

	errno = EIO; /* a short write sets none */
	int err = write(fd, text, (size_t)len) == len && fchmod(fd, 0644) == 0 ? 0 : errno;
	if (close(fd) != 0 && err == 0) {
		err = errno;
	}
	return err;
}

int pid_file_write(const char *path, char *error, size_t error_bytes)
{
	char name[PATH_MAX];

	if (snprintf(name, sizeof(name), "%s.XXXXXX", path) >= (int)sizeof(name)) {
		return pid_file_fail(path, ENAMETOOLONG, error, error_bytes);
	}
	int fd = mkstemp(name);
	if (fd < 0) {
		return pid_file_fail(path, errno, error, error_bytes);
	}
	int err = pid_file_fill(fd);
	if (err == 0 && rename(name, path) != 0) {
		err = errno;
	}
	if (err != 0) {
		unlink(name);
		return pid_file_fail(path, err, error, error_bytes);
	}
	return 0;
}

void pid_file_remove(const char *path)
{
	int pid = 0;
	FILE *f = fopen(path, "re");

	if (f == NULL) {
		return; /* somebody has removed it */
	}
	if (fscanf(f, "%d", &pid) != 1) {
		pid = 0;
	}
	fclose(f);
	if (pid == getpid()) {
		unlink(path);
	}
}
