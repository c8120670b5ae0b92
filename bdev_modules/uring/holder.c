/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds out who has a file or block device: from sysfs, the kernel's lists of mounts and swap areas, and the
 * descriptors of other processes. Only what refusals say depends on it, but for the uses by the kernel. */
#include "bdev_modules/uring/claim.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/loop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define NOTE_NAME    "varve-bdev-files"
#define NOTE_LINK    "/memfd:" NOTE_NAME
#define SEARCHED_FDS 20000u /* of other processes: the control thread has other work */
#define SECTOR       512u   /* the unit of sysfs */
#define DISK_LAST    ((uint64_t)INT64_MAX)

/* --- sysfs --- */

static bool sysfs_read(dev_t rdev, const char *attribute, char *text, size_t bytes)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%s", major(rdev), minor(rdev), attribute);
	FILE *f = fopen(path, "re");
	if (f == NULL) {
		return false;
	}
	bool ok = fgets(text, (int)bytes, f) != NULL;
	fclose(f);
	text[ok ? strcspn(text, "\n") : 0] = '\0';
	return ok;
}

dev_t uring_holder_disk(dev_t rdev, uint64_t *first, uint64_t *last)
{
	char dev[32], start[32], size[32];
	unsigned major_, minor_;

	*first = 0;
	*last = DISK_LAST;
	if (!sysfs_read(rdev, "start", start, sizeof(start)) || !sysfs_read(rdev, "size", size, sizeof(size)) ||
	    !sysfs_read(rdev, "../dev", dev, sizeof(dev)) || sscanf(dev, "%u:%u", &major_, &minor_) != 2) {
		return rdev; /* only partitions have a start, and a device above them */
	}
	uint64_t bytes = strtoull(size, NULL, 10) * SECTOR;
	*first = strtoull(start, NULL, 10) * SECTOR;
	*last = *first + (bytes != 0 ? bytes - 1 : 0);
	return makedev(major_, minor_);
}

/* One is the other, or a partition of it. */
static bool devices_overlap(dev_t a, dev_t b)
{
	uint64_t first, last;

	return a == b || uring_holder_disk(a, &first, &last) == b || uring_holder_disk(b, &first, &last) == a;
}

/* Whether one is the other, or, if both are block devices, they overlap. */
static bool stats_overlap(const struct stat *a, const struct stat *b)
{
	if (S_ISBLK(a->st_mode) != S_ISBLK(b->st_mode)) {
		return false;
	}
	return S_ISBLK(a->st_mode) ? devices_overlap(a->st_rdev, b->st_rdev)
				   : a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static bool path_overlaps(const char *path, const struct stat *st)
{
	struct stat other;

	return stat(path, &other) == 0 && stats_overlap(&other, st);
}

/* --- Uses by the kernel --- */

/* A space, tab, line feed or backslash in a path is written as \ooo. In place. */
static void path_unescape(char *path)
{
	char *to = path;

	for (const char *from = path; *from != '\0'; to++) {
		unsigned value;
		if (from[0] == '\\' && sscanf(from + 1, "%3o", &value) == 1 && strnlen(from, 4) == 4) {
			*to = (char)value;
			from += 4;
		} else {
			*to = *from++;
		}
	}
	*to = '\0';
}

/* mountinfo: "36 35 98:0 / /mnt rw,noatime shared:1 - ext3 /dev/root rw,errors=continue". The device of some file
 * systems (btrfs) is not the one that they are on; then the source is. */
static bool mount_line_uses(char *line, const struct stat *st, char *use, size_t bytes)
{
	unsigned major_, minor_;
	char point[256] = "", source[256] = "";
	char *rest = strstr(line, " - ");

	if (rest == NULL || sscanf(line, "%*d %*d %u:%u %*s %255s", &major_, &minor_, point) != 3) {
		return false;
	}
	sscanf(rest, " - %*s %255s", source);
	path_unescape(source);
	if (!devices_overlap(makedev(major_, minor_), st->st_rdev) &&
	    (strncmp(source, "/dev/", 5) != 0 || !path_overlaps(source, st))) {
		return false;
	}
	path_unescape(point);
	snprintf(use, bytes, "mounted at %.100s", point);
	return true;
}

static bool swap_line_uses(char *line, const struct stat *st, char *use, size_t bytes)
{
	char path[256];

	if (sscanf(line, "/%255s", path + 1) != 1) {
		return false;
	}
	path[0] = '/';
	path_unescape(path);
	snprintf(use, bytes, "swap");
	return path_overlaps(path, st);
}

static bool list_has_use(const char *list, bool (*uses)(char *line, const struct stat *st, char *use, size_t bytes),
			 const struct stat *st, char *use, size_t bytes)
{
	char line[4096];
	bool found = false;
	FILE *f = fopen(list, "re");

	if (f == NULL) {
		return false;
	}
	while (!found && fgets(line, sizeof(line), f) != NULL) {
		found = uses(line, st, use, bytes);
	}
	fclose(f);
	return found;
}

/* dm and md devices that are built on the device whose folder this is. */
static bool folder_has_holder(const char *device_folder, char *use, size_t bytes)
{
	char path[PATH_MAX];
	const struct dirent *e;
	bool found = false;

	snprintf(path, sizeof(path), "%s/holders", device_folder);
	DIR *d = opendir(path);
	while (d != NULL && !found && (e = readdir(d)) != NULL) {
		if (e->d_name[0] != '.') {
			snprintf(use, bytes, "part of %.60s", e->d_name);
			found = true;
		}
	}
	if (d != NULL) {
		closedir(d);
	}
	return found;
}

static bool device_has_holder(dev_t rdev, char *use, size_t bytes)
{
	char folder[64], path[PATH_MAX];
	const struct dirent *e;

	snprintf(folder, sizeof(folder), "/sys/dev/block/%u:%u", major(rdev), minor(rdev));
	bool found = folder_has_holder(folder, use, bytes);
	DIR *d = found ? NULL : opendir(folder);
	while (d != NULL && !found && (e = readdir(d)) != NULL) {
		snprintf(path, sizeof(path), "%s/%s/partition", folder, e->d_name);
		if (e->d_name[0] != '.' && access(path, F_OK) == 0) {
			*strrchr(path, '/') = '\0';
			found = folder_has_holder(path, use, bytes);
		}
	}
	if (d != NULL) {
		closedir(d);
	}
	return found;
}

/* The device and inode of the file behind the loop device, which may have no name any more. */
static bool loop_ask_device(const char *loop, struct stat *file)
{
	struct loop_info64 info = {0}; /* valgrind does not know the ioctl */
	char node[PATH_MAX];

	snprintf(node, sizeof(node), "/dev/%s", loop);
	int fd = open(node, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	bool ok = fd >= 0 && ioctl(fd, LOOP_GET_STATUS64, &info) == 0;
	if (fd >= 0) {
		close(fd);
	}
	if (ok) {
		*file = (struct stat){
			.st_mode = S_IFREG, .st_dev = (dev_t)info.lo_device, .st_ino = (ino_t)info.lo_inode};
	}
	return ok;
}

/* The file or block device behind the loop device of that name; false: there is none. A file is told by its inode if
 * the device can be asked, by its name otherwise; a block device by its name. */
static bool loop_get_file(const char *loop, struct stat *file)
{
	char path[PATH_MAX], name[PATH_MAX];

	snprintf(path, sizeof(path), "/sys/block/%s/loop/backing_file", loop);
	FILE *f = fopen(path, "re");
	if (f == NULL) {
		return false;
	}
	bool ok = fgets(name, sizeof(name), f) != NULL;
	fclose(f);
	name[ok ? strcspn(name, "\n") : 0] = '\0';
	bool named = ok && stat(name, file) == 0;
	return ok && ((named && S_ISBLK(file->st_mode)) || loop_ask_device(loop, file) || named);
}

static bool loop_has_file(const char *loop, const struct stat *st)
{
	struct stat file;

	return loop_get_file(loop, &file) && stats_overlap(&file, st);
}

bool uring_holder_loop_file(dev_t disk, struct stat *file)
{
	char path[64], device[PATH_MAX];

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u", major(disk), minor(disk));
	ssize_t n = readlink(path, device, sizeof(device) - 1);
	device[n > 0 ? n : 0] = '\0';
	const char *slash = strrchr(device, '/');
	return slash != NULL && loop_get_file(slash + 1, file);
}

static bool file_is_behind_loop(const struct stat *st, char *use, size_t bytes)
{
	const struct dirent *e;
	bool found = false;
	DIR *d = opendir("/sys/block");

	while (d != NULL && !found && (e = readdir(d)) != NULL) {
		if (strncmp(e->d_name, "loop", 4) == 0 && loop_has_file(e->d_name, st)) {
			snprintf(use, bytes, "behind /dev/%.60s", e->d_name);
			found = true;
		}
	}
	if (d != NULL) {
		closedir(d);
	}
	return found;
}

bool uring_holder_in_kernel(const struct stat *st, char *use, size_t use_bytes)
{
	bool block = S_ISBLK(st->st_mode);

	return (block && list_has_use("/proc/self/mountinfo", mount_line_uses, st, use, use_bytes)) ||
	       list_has_use("/proc/swaps", swap_line_uses, st, use, use_bytes) ||
	       (block && device_has_holder(st->st_rdev, use, use_bytes)) || file_is_behind_loop(st, use, use_bytes);
}

/* --- Other processes --- */

/* Reads a file of /proc that may be long: its first bytes are enough. */
static bool proc_read(const char *path, char *text, size_t bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n = fd >= 0 ? read(fd, text, bytes - 1) : -1;

	if (fd >= 0) {
		close(fd);
	}
	text[n > 0 ? n : 0] = '\0';
	return n > 0;
}

/* fdinfo: "lock:\t1: OFDLCK ADVISORY  WRITE -1 08:01:1234 0 EOF". */
static bool fdinfo_conflicts(const char *fdinfo, const struct uring_claim *c)
{
	struct uring_claim other = {.dev = c->dev, .ino = c->ino};
	char type[8], end[32];

	for (const char *l = fdinfo; (l = strstr(l, "lock:")) != NULL; l++) {
		if (sscanf(l, "lock: %*d: OFDLCK %*s %7s %*d %*s %" SCNu64 " %31s", type, &other.first, end) == 3) {
			other.shared = strcmp(type, "READ") == 0;
			other.last = strcmp(end, "EOF") == 0 ? DISK_LAST : strtoull(end, NULL, 10);
			if (uring_claims_conflict(c, &other)) {
				return true;
			}
		}
	}
	return false;
}

static bool descriptor_conflicts(const char *pid, const char *fd, const struct uring_claim *c)
{
	char path[PATH_MAX], fdinfo[4096];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%s/fdinfo/%s", pid, fd);
	if (!proc_read(path, fdinfo, sizeof(fdinfo)) || !fdinfo_conflicts(fdinfo, c)) {
		return false;
	}
	snprintf(path, sizeof(path), "/proc/%s/fd/%s", pid, fd);
	return stat(path, &st) == 0 && st.st_dev == c->dev && st.st_ino == c->ino;
}

static bool process_conflicts(const char *pid, const struct uring_claim *c, unsigned *budget)
{
	char path[PATH_MAX];
	const struct dirent *e;
	bool found = false;

	snprintf(path, sizeof(path), "/proc/%s/fdinfo", pid);
	DIR *d = opendir(path);
	while (d != NULL && !found && *budget > 0 && (e = readdir(d)) != NULL) {
		if (e->d_name[0] != '.') {
			--*budget;
			found = descriptor_conflicts(pid, e->d_name, c);
		}
	}
	if (d != NULL) {
		closedir(d);
	}
	return found;
}

int uring_holder_find_process(const struct uring_claim *c, char *command)
{
	unsigned budget = SEARCHED_FDS;
	const struct dirent *e;
	char path[PATH_MAX];
	int pid = 0;
	DIR *d = opendir("/proc");

	while (d != NULL && pid == 0 && (e = readdir(d)) != NULL) {
		int n = atoi(e->d_name);
		if (n > 0 && n != getpid() && process_conflicts(e->d_name, c, &budget)) {
			pid = n;
			snprintf(path, sizeof(path), "/proc/%d/comm", n);
			proc_read(path, command, 16);
			command[strcspn(command, "\n")] = '\0';
		}
	}
	if (d != NULL) {
		closedir(d);
	}
	return pid;
}

/* --- The note: a line "DEV INO FIRST LAST NAME" for each claim --- */

static void note_create_line(const struct uring_claim *c, char *line, size_t bytes)
{
	snprintf(line, bytes, "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %d %.255s\n", (uint64_t)c->dev,
		 (uint64_t)c->ino, c->first, c->last, c->shared, c->name);
}

void uring_holder_note_write(const struct uring_claims *claims)
{
	static int fd = -1;
	const struct uring_claim *c;
	char line[400];

	if (fd >= 0) {
		close(fd);
		fd = -1;
	}
	if (LIST_EMPTY(claims) || (fd = memfd_create(NOTE_NAME, MFD_CLOEXEC)) < 0) {
		return; /* without a note, refusals elsewhere say only the pid */
	}
	LIST_FOREACH (c, claims, link) {
		note_create_line(c, line, sizeof(line));
		if (write(fd, line, strlen(line)) < 0) {
			return;
		}
	}
}

/* Another process wrote the line: its name is shown only if it is printable. */
static bool note_line_decode(const char *line, struct uring_claim *c, char name[256])
{
	uint64_t dev, ino;
	int shared;

	if (sscanf(line, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %d %255[ -~]", &dev, &ino, &c->first,
		   &c->last, &shared, name) != 6) {
		return false;
	}
	c->dev = (dev_t)dev;
	c->ino = (ino_t)ino;
	c->shared = shared != 0;
	return true;
}

static bool note_find_bdev(const char *path, const struct uring_claim *c, char *name, size_t name_bytes)
{
	char line[400], found[256];
	struct uring_claim other;
	bool match = false;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;

	if (f == NULL) {
		if (fd >= 0) {
			close(fd);
		}
		return false;
	}
	while (!match && fgets(line, sizeof(line), f) != NULL) {
		match = note_line_decode(line, &other, found) && uring_claims_conflict(c, &other);
	}
	fclose(f);
	if (match) {
		snprintf(name, name_bytes, "%s", found);
	}
	return match;
}

bool uring_holder_find_bdev(int pid, const struct uring_claim *c, char *name, size_t name_bytes)
{
	char path[PATH_MAX], target[64];
	const struct dirent *e;
	bool found = false;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	DIR *d = opendir(path);
	while (d != NULL && !found && (e = readdir(d)) != NULL) {
		ssize_t n = readlinkat(dirfd(d), e->d_name, target, sizeof(target) - 1);
		target[n > 0 ? n : 0] = '\0';
		if (strncmp(target, NOTE_LINK, strlen(NOTE_LINK)) == 0) {
			snprintf(path, sizeof(path), "/proc/%d/fd/%s", pid, e->d_name);
			found = note_find_bdev(path, c, name, name_bytes);
		}
	}
	if (d != NULL) {
		closedir(d);
	}
	return found;
}
