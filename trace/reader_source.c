/* SPDX-License-Identifier: BSD-3-Clause */
/* Opens a trace file, reads its bytes, and tells whether its writer lives. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace/reader_internal.h"

void trace_fail(struct trace_error *err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
}

void trace_problem(struct trace_reader *r, const char *fmt, ...)
{
	va_list ap;
	char *text = NULL;

	if (r->num_problems++ >= TRACE_MAX_PROBLEMS) {
		return;
	}
	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0) {
		text = NULL;
	}
	va_end(ap);
	if (text != NULL) {
		r->problems[r->num_problems_kept++] = text;
	}
}

const char *trace_reader_problem(const struct trace_reader *r, size_t n)
{
	return n < r->num_problems_kept ? r->problems[n] : NULL;
}

size_t trace_reader_num_problems(const struct trace_reader *r)
{
	return r->num_problems;
}

static int source_read_fd(int fd, uint64_t offset, uint8_t *buf, size_t length)
{
	while (length > 0) {
		ssize_t n = pread(fd, buf, length, (off_t)offset);
		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n < 0) {
			return -errno;
		}
		if (n == 0) {
			return -ENODATA;
		}
		buf += n;
		offset += (uint64_t)n;
		length -= (size_t)n;
	}
	return 0;
}

int trace_source_read(const struct trace_source *s, uint64_t offset, void *buf, size_t length)
{
	if (offset > s->size || length > s->size - offset) {
		return -ENODATA;
	}
	if (s->fd >= 0) {
		return source_read_fd(s->fd, offset, buf, length);
	}
	if (length > 0) {
		memcpy(buf, s->bytes + offset, length);
	}
	return 0;
}

static int reader_new(struct trace_source source, struct trace_reader **out, struct trace_error *err)
{
	struct trace_reader *r = calloc(1, sizeof(*r));
	if (r == NULL) {
		trace_fail(err, "out of memory");
		return -ENOMEM;
	}
	r->source = source;
	int rc = trace_tables_load(r, err);
	if (rc != 0) {
		r->source.fd = -1; /* the caller's still */
		trace_reader_close(r);
		return rc;
	}
	*out = r;
	return 0;
}

int trace_reader_open(const char *path, struct trace_reader **out, struct trace_error *err)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0) {
		int rc = -errno;
		trace_fail(err, "%s: %s", path, strerror(-rc));
		return rc;
	}
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
		trace_fail(err, "%s: not a regular file", path);
		close(fd);
		return -EINVAL;
	}
	struct trace_error why = {{0}};
	int rc = reader_new((struct trace_source){.fd = fd, .size = (uint64_t)st.st_size}, out, &why);
	if (rc != 0) {
		trace_fail(err, "%.100s: %.200s", path, why.text);
		close(fd);
	}
	return rc;
}

int trace_reader_open_memory(const void *bytes, size_t size, struct trace_reader **out, struct trace_error *err)
{
	return reader_new((struct trace_source){.fd = -1, .bytes = bytes, .size = size}, out, err);
}

void trace_reader_close(struct trace_reader *r)
{
	if (r == NULL) {
		return;
	}
	if (r->source.fd >= 0) {
		close(r->source.fd);
	}
	for (size_t i = 0; i < r->num_problems_kept; i++) {
		free(r->problems[i]);
	}
	free(r->tpoints);
	free(r->owners);
	free(r->histories);
	free(r);
}

/* The recorder holds flock(LOCK_EX) as long as it lives, and only the kernel releases it. A process id or a time might
 * be another process's. */
enum trace_writer trace_reader_writer(struct trace_reader *r)
{
	if (r->source.fd < 0) {
		return TRACE_WRITER_UNKNOWN;
	}
	if (flock(r->source.fd, LOCK_SH | LOCK_NB) != 0) {
		return errno == EWOULDBLOCK ? TRACE_WRITER_LIVE : TRACE_WRITER_UNKNOWN;
	}
	flock(r->source.fd, LOCK_UN);
	return r->has_info ? TRACE_WRITER_GONE : TRACE_WRITER_UNKNOWN;
}
