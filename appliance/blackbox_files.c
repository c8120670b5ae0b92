/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/blackbox_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define INFIX      "_blackbox."
#define PART       ".part"
#define NS_S       1000000000u
#define MAX_IN_DIR 4096 /* in a listing; if there are more, the next listing sees them */

/* "START20261121T231502.123456Z" */
static void blackbox_put_time(char *to, size_t size, const char *start, uint64_t realtime_ns)
{
	time_t t = (time_t)(realtime_ns / NS_S);
	struct tm tm;
	char when[32];

	if (gmtime_r(&t, &tm) == NULL || strftime(when, sizeof(when), "%Y%m%dT%H%M%S", &tm) == 0) {
		snprintf(when, sizeof(when), "0");
	}
	snprintf(to, size, "%s%s.%06uZ", start, when, (unsigned)(realtime_ns % NS_S / 1000));
}

int blackbox_file_name(char *to, size_t size, const char *dir, const char *app, uint64_t realtime_ns, const char *cause,
		       int pid)
{
	char when[40];

	blackbox_put_time(when, sizeof(when), "", realtime_ns);
	int n = snprintf(to, size, "%s/%s" INFIX "%s.%s.pid%d", dir, app, when, cause, pid);
	return n > 0 && (size_t)n < size ? 0 : -ENAMETOOLONG;
}

int blackbox_file_name_unused(char *to, size_t size, const char *dir, const char *app, uint64_t realtime_ns,
			      const char *cause, int pid)
{
	int rc;

	do {
		rc = blackbox_file_name(to, size, dir, app, realtime_ns, cause, pid);
		realtime_ns += 1000;
	} while (rc == 0 && access(to, F_OK) == 0);
	return rc;
}

struct listing {
	char **names;
	size_t n;
};

static void listing_free(struct listing *l)
{
	for (size_t i = 0; i < l->n; i++) {
		free(l->names[i]);
	}
	free(l->names);
}

static bool text_starts_with(const char *text, const char *start)
{
	return strncmp(text, start, strlen(start)) == 0;
}

static bool text_ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);

	return n >= m && strcmp(text + n - m, end) == 0;
}

/* A live writer holds a lock on its unfinished file: without the lock, the writer is dead. */
static void listing_remove_if_dead(int dir_fd, const char *name)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

	if (fd >= 0) {
		if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
			unlinkat(dir_fd, name, 0);
		}
		close(fd);
	}
}

static int listing_compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sorts the oldest first. A file whose name has a time in the future was written before the clock was set back, so it
 * counts as older than all others. */
static void listing_sort(struct listing *l, const char *now)
{
	size_t future = 0;

	qsort(l->names, l->n, sizeof(char *), listing_compare_names);
	while (future < l->n && strcmp(l->names[l->n - 1 - future], now) > 0) {
		future++;
	}
	for (size_t turned = 0; turned < future; turned++) {
		char *last = l->names[l->n - 1];
		memmove(l->names + 1, l->names, (l->n - 1) * sizeof(char *));
		l->names[0] = last;
	}
}

/* Also removes unfinished files of the dead. */
static int listing_read(DIR *dir, const char *app, uint64_t now_ns, struct listing *l)
{
	char prefix[128], hidden[129], now[256];
	const struct dirent *e;

	snprintf(prefix, sizeof(prefix), "%.100s" INFIX, app);
	blackbox_put_time(now, sizeof(now), prefix, now_ns);
	snprintf(hidden, sizeof(hidden), ".%s", prefix);
	l->names = calloc(MAX_IN_DIR, sizeof(char *));
	if (l->names == NULL) {
		return -ENOMEM;
	}
	while (l->n < MAX_IN_DIR && (e = readdir(dir)) != NULL) {
		if (text_starts_with(e->d_name, hidden) && text_ends_with(e->d_name, PART)) {
			listing_remove_if_dead(dirfd(dir), e->d_name);
		} else if (text_starts_with(e->d_name, prefix)) {
			l->names[l->n] = strdup(e->d_name);
			if (l->names[l->n] == NULL) {
				return -ENOMEM;
			}
			l->n++;
		}
	}
	listing_sort(l, now);
	return 0;
}

static uint64_t listing_file_bytes(int dir_fd, const char *name)
{
	struct stat st;

	return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
}

static void listing_remove_oldest(int dir_fd, const struct listing *l, uint32_t max_files, uint64_t max_bytes,
				  uint64_t new_bytes, struct blackbox_usage *left)
{
	for (size_t i = 0; i < l->n; i++) {
		left->files++;
		left->bytes += listing_file_bytes(dir_fd, l->names[i]);
	}
	for (size_t i = 0; i < l->n && (left->files + 1 > max_files || left->bytes + new_bytes > max_bytes); i++) {
		uint64_t bytes = listing_file_bytes(dir_fd, l->names[i]);
		if (unlinkat(dir_fd, l->names[i], 0) == 0) {
			left->files--;
			left->bytes -= bytes;
		}
	}
}

int blackbox_make_room(const char *dir, const char *app, uint32_t max_files, uint64_t max_bytes, uint64_t new_bytes,
		       uint64_t now_ns, struct blackbox_usage *left)
{
	struct blackbox_usage usage = {0};
	struct listing l = {0};

	if (new_bytes > max_bytes || max_files == 0) {
		return -EFBIG;
	}
	DIR *d = opendir(dir);
	if (d == NULL) {
		return -errno;
	}
	int rc = listing_read(d, app, now_ns, &l);
	if (rc == 0) {
		listing_remove_oldest(dirfd(d), &l, max_files, max_bytes, new_bytes, &usage);
		/* Files of another user may not be removable: then there is no room. */
		rc = usage.files + 1 > max_files || usage.bytes + new_bytes > max_bytes ? -EPERM : 0;
	}
	listing_free(&l);
	closedir(d);
	if (left != NULL) {
		*left = usage;
	}
	return rc;
}

/* ---- Copies to look at ---- */

#define TIME_PATTERN                                                                                                   \
	"dddddddd"                                                                                                     \
	"T"                                                                                                            \
	"dddddd"                                                                                                       \
	"."                                                                                                            \
	"dddddd"                                                                                                       \
	"Z"                                                                                                            \
	"."

/* d: a digit; all else is itself. */
static bool text_fits(const char *text, const char *pattern)
{
	for (; *pattern != '\0'; pattern++, text++) {
		if (*pattern == 'd' ? *text < '0' || *text > '9' : *text != *pattern) {
			return false;
		}
	}
	return true;
}

bool blackbox_copy_name_parse(const char *name, const char *app, struct blackbox_copy_info *info)
{
	static const char allowed[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ._-";
	const size_t len = strlen(name), prefix = strlen(app) + strlen(INFIX), time_len = strlen(TIME_PATTERN);

	if (len >= sizeof(info->name) || strspn(name, allowed) != len || !text_starts_with(name, app) ||
	    !text_starts_with(name + strlen(app), INFIX) || !text_fits(name + prefix, TIME_PATTERN)) {
		return false;
	}
	const char *t = name + prefix, *cause = t + time_len;
	size_t n = strspn(cause, "abcdefghijklmnopqrstuvwxyz_");
	const char *pid = cause + n;
	if (n == 0 || n >= sizeof(info->cause) || !text_starts_with(pid, ".pid") || pid[4] == '\0' ||
	    pid[4 + strspn(pid + 4, "0123456789")] != '\0') {
		return false;
	}
	memset(info, 0, sizeof(*info));
	memcpy(info->name, name, len);
	memcpy(info->cause, cause, n);
	snprintf(info->time, sizeof(info->time), "%.4s-%.2s-%.2sT%.2s:%.2s:%.2s%.8s", t, t + 4, t + 6, t + 9, t + 11,
		 t + 13, t + 15);
	return true;
}

static bool copy_is_ours(const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_uid == geteuid() && st->st_nlink == 1;
}

int blackbox_copy_open(const char *dir, const char *app, const char *name, uint64_t *bytes)
{
	struct blackbox_copy_info info;
	struct stat st;

	if (!blackbox_copy_name_parse(name, app, &info)) {
		return -ENOENT;
	}
	int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir_fd < 0) {
		return -errno;
	}
	/* O_NONBLOCK: the name may be that of a FIFO. */
	int fd = openat(dir_fd, info.name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	bool other =
		errno == ELOOP || errno == ENXIO || errno == EACCES || errno == EPERM; /* not a file, or not ours */
	int rc = fd >= 0 ? fd : other ? -ENOENT : -errno;
	close(dir_fd);
	if (fd >= 0 && (fstat(fd, &st) != 0 || !copy_is_ours(&st))) {
		close(fd);
		return -ENOENT;
	}
	if (fd >= 0) {
		*bytes = (uint64_t)st.st_size;
	}
	return rc;
}

/* Whether a is to be listed before b. A name with a time in the future was made before the clock was set back, so it is
 * older than all others. now: as blackbox_put_time() writes it. */
static bool copy_is_newer(const struct blackbox_copy_info *a, const struct blackbox_copy_info *b, const char *now)
{
	bool a_future = strcmp(a->name, now) > 0, b_future = strcmp(b->name, now) > 0;

	return a_future != b_future ? b_future : strcmp(a->name, b->name) > 0;
}

/* Puts a copy into the list of the newest ones, which is sorted, and has room for max. Returns its new length. */
static size_t copy_list_insert(struct blackbox_copy_info *list, size_t n, size_t max,
			       const struct blackbox_copy_info *copy, const char *now)
{
	size_t at = n;

	while (at > 0 && copy_is_newer(copy, &list[at - 1], now)) {
		at--;
	}
	if (at == max) {
		return n;
	}
	n += n < max;
	memmove(&list[at + 1], &list[at], (n - 1 - at) * sizeof(*list));
	list[at] = *copy;
	return n;
}

/* Whether an entry of the folder is a copy of ours. Any user may make entries there. */
static bool copy_is_entry(DIR *dir, const struct dirent *e, const char *app, struct blackbox_copy_info *info)
{
	struct stat st;

	if ((e->d_type != DT_REG && e->d_type != DT_UNKNOWN) || !blackbox_copy_name_parse(e->d_name, app, info) ||
	    fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !copy_is_ours(&st)) {
		return false;
	}
	info->bytes = (uint64_t)st.st_size;
	return true;
}

int blackbox_copy_list(const char *dir, const char *app, uint64_t now_ns, struct blackbox_copy_info *list, size_t max,
		       bool *complete)
{
	struct blackbox_copy_info copy;
	char prefix[128], now[256];
	const struct dirent *e;
	size_t n = 0, entries = 0;

	snprintf(prefix, sizeof(prefix), "%.100s" INFIX, app);
	blackbox_put_time(now, sizeof(now), prefix, now_ns);
	DIR *d = opendir(dir);
	if (d == NULL) {
		return -errno;
	}
	errno = 0;
	while ((e = readdir(d)) != NULL && entries++ < BLACKBOX_COPY_ENTRIES_MAX) {
		if (copy_is_entry(d, e, app, &copy)) {
			n = copy_list_insert(list, n, max, &copy, now);
		}
		errno = 0;
	}
	int rc = e == NULL && errno != 0 ? -errno : (int)n;
	*complete = e == NULL;
	closedir(d);
	return rc;
}
