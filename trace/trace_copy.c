/* SPDX-License-Identifier: BSD-3-Clause */
/* A copy of the live file, followed by the cause for which it was made. Recording goes on: write() copies the mapping
 * in ascending order, and the stamps at the end tell a reader which entries are whole, see (a) in trace_file.h. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace/trace_internal.h"

enum { FIRST_BYTES = 4096 }; /* the header's page, which differs from the live one */

struct trace_copy {
	int fd;
	uint64_t done, size; /* bytes of the live file */
	struct trace_file_cause cause;
	char path[PATH_MAX], part[PATH_MAX];
};

/* "dir/.name.part" */
static bool copy_part_name(const char *path, char *part, size_t size)
{
	const char *slash = strrchr(path, '/');
	int dir = slash != NULL ? (int)(slash - path) + 1 : 0;

	return snprintf(part, size, "%.*s.%s.part", dir, path, path + dir) < (int)size;
}

static int copy_fail(struct trace_copy *c, int rc, char *error)
{
	trace_errorf(error, "cannot write %.600s: %s", c->part, strerror(-rc));
	trace_copy_abandon(c);
	return rc;
}

uint64_t trace_copy_size(void)
{
	return trace_is_on() ? trace_state.map.size + sizeof(struct trace_file_cause) : 0;
}

int trace_copy_begin(const char *path, const struct trace_file_cause *cause, struct trace_copy **copy, char *error)
{
	struct stat st = {0};

	if (!trace_is_on()) {
		trace_errorf(error, "tracing is off");
		return -ENODEV;
	}
	struct trace_copy *c = calloc(1, sizeof(*c));
	if (c == NULL) {
		trace_errorf(error, "no memory for a copy of the trace file");
		return -ENOMEM;
	}
	c->fd = -1;
	c->size = trace_state.map.size;
	c->cause = *cause;
	c->cause.version = TRACE_CAUSE_VERSION;
	if (snprintf(c->path, sizeof(c->path), "%s", path) >= (int)sizeof(c->path) ||
	    !copy_part_name(path, c->part, sizeof(c->part))) {
		return copy_fail(c, -ENAMETOOLONG, error);
	}
	c->fd = open(c->part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (c->fd < 0) {
		int rc = -errno;
		c->part[0] = '\0';
		trace_errorf(error, "cannot create %.600s: %s", path, strerror(-rc));
		trace_copy_abandon(c);
		return rc;
	}
	flock(c->fd, LOCK_EX | LOCK_NB);
	/* Whoever may read the live file may read its copies. */
	if (fstat(trace_state.map.fd, &st) == 0 && (st.st_mode & S_IRGRP) && fchown(c->fd, (uid_t)-1, st.st_gid) == 0) {
		fchmod(c->fd, 0640);
	}
	int rc = posix_fallocate(c->fd, 0, (off_t)(c->size + sizeof(c->cause)));
	if (rc != 0) {
		return copy_fail(c, -rc, error);
	}
	*copy = c;
	return 0;
}

static int copy_write_all(int fd, const void *from, size_t n)
{
	while (n > 0) {
		ssize_t written = write(fd, from, n);
		if (written < 0 && errno != EINTR) {
			return -errno;
		}
		if (written > 0) {
			from = (const uint8_t *)from + written;
			n -= (size_t)written;
		}
	}
	return 0;
}

/* The header's page, which says where the cause will be. */
static int copy_write_first(struct trace_copy *c)
{
	union {
		struct trace_file_header header;
		uint8_t bytes[FIRST_BYTES];
	} page;

	memcpy(page.bytes, trace_state.map.file, sizeof(page.bytes));
	page.header.file_size = c->size + sizeof(c->cause);
	page.header.section_offset[TRACE_SECTION_CAUSE] = c->size;
	c->done = sizeof(page.bytes);
	return copy_write_all(c->fd, page.bytes, sizeof(page.bytes));
}

static int copy_finish(struct trace_copy *c, char *error)
{
	int rc = copy_write_all(c->fd, &c->cause, sizeof(c->cause));

	if (rc == 0 && rename(c->part, c->path) != 0) {
		rc = -errno;
	}
	if (rc != 0) {
		return copy_fail(c, rc, error);
	}
	close(c->fd);
	free(c);
	return 0;
}

int trace_copy_step(struct trace_copy *c, size_t max_bytes, char *error)
{
	uint64_t n = c->size - c->done < max_bytes ? c->size - c->done : max_bytes;
	int rc = 0;

	if (c->done == 0) {
		rc = copy_write_first(c);
	} else if (n > 0) {
		rc = copy_write_all(c->fd, trace_state.map.file + c->done, n);
		c->done += n;
	}
	if (rc != 0) {
		return copy_fail(c, rc, error);
	}
	return c->done < c->size ? 1 : copy_finish(c, error);
}

void trace_copy_abandon(struct trace_copy *c)
{
	if (c->fd >= 0) {
		unlink(c->part);
		close(c->fd);
	}
	free(c);
}
