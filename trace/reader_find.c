/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds trace files in a directory, and tells which of them a live process writes. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace/reader_internal.h"

/* NAME_trace.pidN or NAME_trace.N (an instance number); *pid gets N, or 0. */
static bool name_is_trace_file(const char *name, pid_t *pid)
{
	const char *p = strstr(name, "_trace.");

	*pid = 0;
	for (const char *q = p; q != NULL; q = strstr(q + 1, "_trace.")) {
		p = q; /* the last one */
	}
	if (p == NULL) {
		return false;
	}
	p += strlen("_trace.");
	bool has_pid = strncmp(p, "pid", 3) == 0;
	p += has_pid ? 3 : 0;
	size_t digits = strspn(p, "0123456789");
	if (digits == 0 || digits > 9 || p[digits] != '\0') {
		return false;
	}
	*pid = has_pid ? atoi(p) : 0;
	return true;
}

static bool process_read_file(const char *path, char *to, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, to, size - 1) : -1;

	if (fd >= 0) {
		close(fd);
	}
	to[n > 0 ? n : 0] = '\0';
	return n > 0;
}

bool trace_info_process_runs(const struct trace_file_info *info)
{
	char path[40], stat[1024], boot_id[sizeof(info->boot_id)];

	snprintf(path, sizeof(path), "/proc/%u/stat", info->pid);
	if (!process_read_file("/proc/sys/kernel/random/boot_id", boot_id, sizeof(boot_id)) ||
	    !process_read_file(path, stat, sizeof(stat))) {
		return false;
	}
	boot_id[strcspn(boot_id, "\n")] = '\0';
	/* Field 2 is the name, which may contain anything; field 3 is the state. */
	const char *p = strrchr(stat, ')');
	bool ended = p == NULL || p[1] == '\0' || strchr("ZXx", p[2]) != NULL;
	for (int field = 2; p != NULL && field < 22; field++) {
		p = strchr(p + 1, ' ');
	}
	return !ended && p != NULL && strtoull(p, NULL, 10) == info->start_time_ticks &&
	       strcmp(boot_id, info->boot_id) == 0;
}

/* A stock target does not lock its file: then the process id in the name decides. */
static enum trace_writer writer_of(struct trace_reader *r, pid_t pid)
{
	enum trace_writer writer = trace_reader_writer(r);
	bool dead = writer == TRACE_WRITER_UNKNOWN && pid != 0 && kill(pid, 0) != 0 && errno == ESRCH;

	return dead ? TRACE_WRITER_GONE : writer;
}

enum trace_writer trace_file_writer(struct trace_reader *r, const char *path)
{
	const char *slash = strrchr(path, '/');
	pid_t pid;

	return writer_of(r, name_is_trace_file(slash != NULL ? slash + 1 : path, &pid) ? pid : 0);
}

static void file_inspect(struct trace_found_file *f)
{
	struct stat st;
	struct trace_reader *r;
	struct trace_error err;

	if (stat(f->path, &st) != 0) {
		f->error = -errno;
		return;
	}
	f->size_bytes = (uint64_t)st.st_size;
	f->mtime_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
	f->error = trace_reader_open(f->path, &r, &err);
	if (f->error != 0) {
		return;
	}
	f->writer = writer_of(r, f->pid);
	trace_reader_close(r);
}

static int newest_first(const void *a, const void *b)
{
	const struct trace_found_file *x = a, *y = b;

	if (x->mtime_ns != y->mtime_ns) {
		return x->mtime_ns > y->mtime_ns ? -1 : 1;
	}
	return strcmp(x->path, y->path);
}

int trace_files_find(const char *dir, struct trace_found_file **files, size_t *num_files)
{
	struct trace_found_file *found = NULL;
	size_t n = 0;
	struct dirent *e;
	pid_t pid;
	DIR *d = opendir(dir);

	if (d == NULL) {
		return -errno;
	}
	while ((e = readdir(d)) != NULL) {
		if (!name_is_trace_file(e->d_name, &pid)) {
			continue;
		}
		void *p = realloc(found, (n + 1) * sizeof(*found));
		if (p == NULL) {
			free(found);
			closedir(d);
			return -ENOMEM;
		}
		found = p;
		found[n] = (struct trace_found_file){.pid = pid};
		if (snprintf(found[n].path, sizeof(found[n].path), "%s/%s", dir, e->d_name) <
		    (int)sizeof(found[n].path)) {
			file_inspect(&found[n++]);
		}
	}
	closedir(d);
	if (n > 0) {
		qsort(found, n, sizeof(*found), newest_first);
	}
	*files = found;
	*num_files = n;
	return 0;
}
