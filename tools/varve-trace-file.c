/* SPDX-License-Identifier: BSD-3-Clause */
/* The file that an exporter writes. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/varve-trace.h"

/* Whether an older page of --html is at path: it begins as all of them do, in every version. */
static bool file_is_page(const char *path)
{
	static const char mark[] = "Made by varve-trace.";
	char text[512] = "";
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	bool ok = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && read(fd, text, sizeof(text) - 1) > 0 &&
		  strncmp(text, "<!DOCTYPE html>", strlen("<!DOCTYPE html>")) == 0 && strstr(text, mark) != NULL;

	if (fd >= 0) {
		close(fd);
	}
	return ok;
}

/* Creates the file to write. `written`, of PATH_MAX bytes, becomes its name: one beside path if path is to be replaced.
 */
static int file_export_create(const char *path, bool replace, char *written)
{
	const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
	int fd = open(path, flags, 0600);

	snprintf(written, PATH_MAX, "%s", path);
	if (fd >= 0 || errno != EEXIST || !replace) {
		return fd;
	}
	if (!file_is_page(path)) {
		errno = EEXIST;
		return -1;
	}
	if (snprintf(written, PATH_MAX, "%s.%d.new", path, (int)getpid()) >= PATH_MAX) {
		errno = ENAMETOOLONG;
		return -1;
	}
	return open(written, flags, 0600);
}

static void file_complain(const char *path, bool replace)
{
	const char *why = strerror(errno);
	bool page_only = replace && errno == EEXIST;

	trace_cli_error(
		"%s: %s%s", path, why,
		page_only ? "; only a page that varve-trace has made is replaced: remove the file, or give another name"
			  : "");
}

/* Closes the file and, if it is complete, gives it its name. */
static int file_finish(struct out *out, const char *written, const char *path, int status)
{
	out_flush(out);
	if (close(out->fd) != 0 && out->error == 0) {
		out->error = errno;
	}
	if (out->error != 0) {
		trace_cli_error("%s: writing failed: %s", path, strerror(out->error));
		status = 1;
	}
	if (strcmp(written, path) == 0) {
		return status;
	}
	if (status == 0 && rename(written, path) != 0) {
		trace_cli_error("%s: %s", path, strerror(errno));
		status = 1;
	}
	if (status != 0) {
		unlink(written);
	}
	return status;
}

int file_write(struct trace_view *v, const struct trace_snapshot *s, const struct trace_lives *l, const bool *keep,
	       const char *path, bool replace,
	       int (*run)(struct trace_view *, const struct trace_snapshot *, const struct trace_lives *, const bool *,
			  struct out *))
{
	static struct out out;
	char written[PATH_MAX];

	out.fd = file_export_create(path, replace, written);
	if (out.fd < 0) {
		file_complain(path, replace);
		return 1;
	}
	struct out *stdout_of = v->out;
	v->out = &out;
	int status = run(v, s, l, keep, &out);
	v->out = stdout_of;
	return file_finish(&out, written, path, status);
}
