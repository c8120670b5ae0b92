/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "util/log_flags.h"

#define LOG_LINE_MAX      1024
#define LOG_LIMIT_LINES   10
#define LOG_LIMIT_SPAN_NS 1000000000ULL

static SLIST_HEAD(, log_flag) log_flags = SLIST_HEAD_INITIALIZER(log_flags);
static enum log_level log_print_level = LOG_LEVEL_NOTICE;
static enum log_level log_syslog_level = LOG_LEVEL_DISABLED;
static bool log_timestamps = true;
static log_tap *log_current_tap;

static const struct {
	const char *name;
	int priority;
} log_levels[] = {
	[LOG_LEVEL_ERROR] = {"ERROR", LOG_ERR},      [LOG_LEVEL_WARNING] = {"WARNING", LOG_WARNING},
	[LOG_LEVEL_NOTICE] = {"NOTICE", LOG_NOTICE}, [LOG_LEVEL_INFO] = {"INFO", LOG_INFO},
	[LOG_LEVEL_DEBUG] = {"DEBUG", LOG_DEBUG},
};

const char *log_level_name(enum log_level level)
{
	return level >= LOG_LEVEL_ERROR && level <= LOG_LEVEL_DEBUG ? log_levels[level].name : "DISABLED";
}

int log_level_parse(const char *name, enum log_level *level)
{
	for (int l = LOG_LEVEL_DISABLED; l <= LOG_LEVEL_DEBUG; l++) {
		if (strcasecmp(name, log_level_name((enum log_level)l)) == 0) {
			*level = (enum log_level)l;
			return 0;
		}
	}
	return -EINVAL;
}

void log_flag_register(struct log_flag *flag)
{
	struct log_flag *after = NULL, *f;

	SLIST_FOREACH (f, &log_flags, link) {
		if (strcmp(f->name, flag->name) > 0) {
			break;
		}
		after = f;
	}
	if (after == NULL) {
		SLIST_INSERT_HEAD(&log_flags, flag, link);
	} else {
		SLIST_INSERT_AFTER(after, flag, link);
	}
}

const struct log_flag *log_first_flag(void)
{
	return SLIST_FIRST(&log_flags);
}

int log_set_flag(const char *name, bool on)
{
	bool all = strcasecmp(name, "all") == 0, found = all;
	struct log_flag *f;

	SLIST_FOREACH (f, &log_flags, link) {
		if (all || strcasecmp(name, f->name) == 0) {
			f->enabled = on;
			found = true;
		}
	}
	if (found && !all) {
		return 0;
	}
	int rc = log_other_flag_set(name, on);
	return found ? 0 : rc;
}

static size_t log_format_prefix(char *line, size_t size, enum log_level level, const char *file, int line_no,
				const char *func)
{
	size_t n = 0;

	if (log_timestamps) {
		struct timespec now;
		struct tm tm;
		clock_gettime(CLOCK_REALTIME, &now);
		localtime_r(&now.tv_sec, &tm);
		n = strftime(line, size, "[%F %T", &tm);
		n += (size_t)snprintf(line + n, size - n, ".%06ld] ", now.tv_nsec / 1000);
	}
	n += (size_t)snprintf(line + n, size - n, "%s:%4d:%s: *%s*: ", file, line_no, func, log_level_name(level));
	return n < size ? n : size - 1;
}

void log_write(enum log_level level, const char *file, int line_no, const char *func, const char *fmt, ...)
{
	char line[LOG_LINE_MAX];
	va_list args;

	if (level > log_print_level && level > log_syslog_level) {
		return;
	}
	int saved_errno = errno;
	const char *slash = strrchr(file, '/');
	file = slash != NULL ? slash + 1 : file;
	size_t prefix = log_format_prefix(line, sizeof(line) - 1, level, file, line_no, func);
	va_start(args, fmt);
	int body = vsnprintf(line + prefix, sizeof(line) - 1 - prefix, fmt, args);
	va_end(args);
	size_t n = prefix + (body > 0 ? (size_t)body : 0);
	if (n > sizeof(line) - 2) {
		n = sizeof(line) - 2;
	}
	log_tap *tap = __atomic_load_n(&log_current_tap, __ATOMIC_RELAXED);
	if (tap != NULL) {
		tap(level, file, line_no, line + prefix);
	}
	if (level <= log_syslog_level) {
		syslog(log_levels[level].priority, "%s", line + prefix);
	}
	if (level <= log_print_level) {
		/* One write per line, so that lines of several threads never mix. */
		line[n++] = '\n';
		ssize_t ignored = write(STDERR_FILENO, line, n);
		(void)ignored;
	}
	errno = saved_errno;
}

/* Several threads may use a call site at once. Atomics prevent a data race; a line too many or too few does no harm. */
bool log_limit_pass(struct log_limit *l, uint32_t *suppressed)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	uint64_t now = (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
	uint64_t start = __atomic_load_n(&l->window_start_ns, __ATOMIC_RELAXED);
	if (start == 0 || now - start >= LOG_LIMIT_SPAN_NS) {
		__atomic_store_n(&l->window_start_ns, now, __ATOMIC_RELAXED);
		__atomic_store_n(&l->count, 0, __ATOMIC_RELAXED);
	}
	if (__atomic_add_fetch(&l->count, 1, __ATOMIC_RELAXED) > LOG_LIMIT_LINES) {
		__atomic_add_fetch(&l->suppressed, 1, __ATOMIC_RELAXED);
		return false;
	}
	*suppressed = __atomic_exchange_n(&l->suppressed, 0, __ATOMIC_RELAXED);
	return true;
}

void log_set_tap(log_tap *tap)
{
	__atomic_store_n(&log_current_tap, tap, __ATOMIC_RELAXED);
}

void log_set_print_level(enum log_level level)
{
	log_print_level = level;
}

enum log_level log_get_print_level(void)
{
	return log_print_level;
}

void log_set_level(enum log_level level)
{
	log_syslog_level = level;
}

enum log_level log_get_level(void)
{
	return log_syslog_level;
}

void log_enable_timestamps(bool on)
{
	log_timestamps = on;
}
