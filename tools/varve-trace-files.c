/* SPDX-License-Identifier: BSD-3-Clause */
/* Choosing, listing and removing trace files. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/varve-trace.h"

static const char *file_writer_name(const struct trace_found_file *f)
{
	static const char *const names[] = {
		[TRACE_WRITER_LIVE] = "live",
		[TRACE_WRITER_GONE] = "dead",
		[TRACE_WRITER_UNKNOWN] = "unknown",
	};

	return f->error != 0 ? "unreadable" : names[f->writer];
}

/* Whether a file is one of `-s NAME`; no NAME means any. */
static bool file_has_name(const char *path, const char *name)
{
	const char *base = strrchr(path, '/');
	size_t n;

	if (name == NULL) {
		return true;
	}
	base = base != NULL ? base + 1 : path;
	n = strlen(name);
	return strncmp(base, name, n) == 0 && strncmp(base + n, "_trace.", strlen("_trace.")) == 0;
}

static bool files_find(const struct trace_options *opt, struct trace_found_file **files, size_t *n)
{
	int rc = trace_files_find(opt->dir, files, n);

	if (rc != 0) {
		trace_cli_error("%s: %s", opt->dir, strerror(-rc));
	}
	return rc == 0;
}

bool file_choose(const struct trace_options *opt, char *path, size_t size)
{
	const char *name = opt->name != NULL ? opt->name : "varve";
	struct trace_found_file *files;
	size_t n, i;

	if (opt->file != NULL) {
		snprintf(path, size, "%s", opt->file);
		return true;
	}
	if (opt->pid >= 0 || opt->instance >= 0) {
		snprintf(path, size, "%s/%s_trace.%s%ld", opt->dir, name, opt->pid >= 0 ? "pid" : "",
			 opt->pid >= 0 ? opt->pid : opt->instance);
		return true;
	}
	if (!files_find(opt, &files, &n)) {
		return false;
	}
	for (i = 0; i < n && (files[i].error != 0 || !file_has_name(files[i].path, opt->name)); i++) {
	}
	if (i < n) {
		snprintf(path, size, "%s", files[i].path);
		fprintf(stderr, "varve-trace: reading %s (%s)\n", path, file_writer_name(&files[i]));
	} else {
		trace_cli_error("%s holds no readable trace file%s%s; name one with -f FILE", opt->dir,
				opt->name != NULL ? " of " : "", opt->name != NULL ? opt->name : "");
	}
	free(files);
	return i < n;
}

int files_list(const struct trace_options *opt)
{
	struct trace_found_file *files;
	char when[32];
	size_t n;

	if (!files_find(opt, &files, &n)) {
		return 1;
	}
	printf("%-10s %8s %12s %-19s %s\n", "writer", "pid", "bytes", "modified", "file");
	for (size_t i = 0; i < n; i++) {
		if (!file_has_name(files[i].path, opt->name)) {
			continue;
		}
		time_of_day_format(files[i].mtime_ns, when, sizeof(when));
		printf("%-10s %8d %12" PRIu64 " %-19s %s", file_writer_name(&files[i]), (int)files[i].pid,
		       files[i].size_bytes, when, files[i].path);
		if (files[i].error != 0) {
			printf(" (%s)",
			       files[i].error == -EINVAL ? "not a valid trace file" : strerror(-files[i].error));
		}
		putchar('\n');
	}
	free(files);
	return 0;
}

int files_remove_dead(const struct trace_options *opt)
{
	struct trace_found_file *files;
	int status = 0;
	size_t n;

	if (!files_find(opt, &files, &n)) {
		return 1;
	}
	for (size_t i = 0; i < n; i++) {
		if (files[i].error != 0 || files[i].writer != TRACE_WRITER_GONE ||
		    !file_has_name(files[i].path, opt->name)) {
			continue;
		}
		if (unlink(files[i].path) == 0) {
			printf("removed %s\n", files[i].path);
		} else {
			trace_cli_error("%s: %s", files[i].path, strerror(errno));
			status = 1;
		}
	}
	free(files);
	return status;
}
