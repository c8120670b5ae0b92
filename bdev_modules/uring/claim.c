/* SPDX-License-Identifier: BSD-3-Clause */
/* Opens and locks files and block devices: claim.h has the rules. */
#include "bdev_modules/uring/claim.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "bdev/module_util.h"
#include "util/log.h"

#define PROBES   20      /* of a shared device, while other users probe it too */
#define PROBE_NS 2000000 /* between two of them */
#define TO_END   ((uint64_t)INT64_MAX)

static struct uring_claims claims = LIST_HEAD_INITIALIZER(claims);

bool uring_claims_conflict(const struct uring_claim *a, const struct uring_claim *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->first <= b->last && b->first <= a->last &&
	       !(a->shared && b->shared);
}

static const struct uring_claim *claim_find_conflict(const struct uring_claim *c)
{
	const struct uring_claim *other;

	LIST_FOREACH (other, &claims, link) {
		if (uring_claims_conflict(c, other)) {
			return other;
		}
	}
	return NULL;
}

/* The range of c; whole files reach to the end of all files, so that one that grows stays locked. */
static struct flock claim_range(const struct uring_claim *c)
{
	return (struct flock){.l_type = c->shared ? F_RDLCK : F_WRLCK,
			      .l_whence = SEEK_SET,
			      .l_start = (off_t)c->first,
			      .l_len = c->last == TO_END ? 0 : (off_t)(c->last - c->first + 1)};
}

/* Who has the lock that fd could not get: the words behind "filename '...' is in use". */
static void claim_describe_process(const struct uring_claim *c, int fd, char *who, size_t bytes)
{
	struct flock range = claim_range(c);
	char command[16] = "", bdev[256] = "", by_bdev[288] = "";

	if (fcntl(fd, F_OFD_GETLK, &range) != 0) {
		range.l_type = F_UNLCK;
	}
	/* the kernel tells the pid of a process that has locked it in the old way (F_SETLK) */
	int pid = range.l_type != F_UNLCK && range.l_pid > 0 ? range.l_pid : uring_holder_find_process(c, command);
	if (pid != 0 && uring_holder_find_bdev(pid, c, bdev, sizeof(bdev))) {
		snprintf(by_bdev, sizeof(by_bdev), ", bdev '%.100s'", bdev);
	}
	const char *hint = range.l_type == F_RDLCK ? " (shared there: readonly or shared would share it)" : "";
	if (pid != 0) {
		snprintf(who, bytes, "by process %d%s%s%s%s%s", pid, command[0] != '\0' ? " (" : "", command,
			 command[0] != '\0' ? ")" : "", by_bdev, hint);
	} else {
		snprintf(who, bytes,
			 "by a process that is not visible here (of another user or namespace, or ended before its "
			 "last write)%s",
			 hint);
	}
}

static int claim_say_busy(const struct uring_claim *c, const char *filename, int fd, char *error)
{
	const struct uring_claim *other = claim_find_conflict(c);
	char who[256];

	if (other != NULL) {
		return bdev_error(error, -EBUSY, "filename '%.150s' is in use by bdev '%.100s' of this process%s",
				  filename, other->name,
				  other->shared ? " (shared there: readonly or shared would share it)" : "");
	}
	claim_describe_process(c, fd, who, sizeof(who));
	return bdev_error(error, -EBUSY, "filename '%.150s' is in use %s", filename, who);
}

/* Locks c's bytes of fd. */
static int claim_lock(struct uring_claim *c, const char *filename, int fd, char *error)
{
	struct flock range = claim_range(c);
	struct stat st;

	if (fstat(fd, &st) != 0) {
		return bdev_error(error, -errno, "filename '%.150s': %s", filename, strerror(errno));
	}
	c->dev = st.st_dev;
	c->ino = st.st_ino;
	if (fcntl(fd, F_OFD_SETLK, &range) == 0) {
		return 0;
	}
	if (errno == EAGAIN || errno == EACCES) {
		return claim_say_busy(c, filename, fd, error);
	}
	int rc = -errno;
	if (c->shared) {
		log_warning("bdev %s: filename '%s': its file system has no locks (%s): nothing keeps others from "
			    "using it alone",
			    c->name, filename, strerror(-rc));
		return 0;
	}
	return bdev_error(error, rc, "filename '%.150s': it cannot be locked: %s (shared would use it without)",
			  filename, strerror(-rc));
}

static int claim_refuse_kernel_use(const char *filename, const struct stat *st, char *error)
{
	char use[128];

	if (uring_holder_in_kernel(st, use, sizeof(use))) {
		return bdev_error(error, -EBUSY, "filename '%.150s' is in use by the kernel: it is %s", filename, use);
	}
	return 0;
}

/* --- Files --- */

static int claim_say_replaced(const char *filename, char *error)
{
	return bdev_error(error, -EAGAIN, "filename '%.150s' has become another file just now", filename);
}

static int claim_file(struct uring_claim *c, const struct uring_claim_opts *o, char *error)
{
	int mode = o->readonly ? O_RDONLY : O_RDWR;
	struct stat st;

	/* O_NONBLOCK: it may have become a FIFO, at which open() would wait */
	c->fd = open(o->filename, mode | O_NONBLOCK | O_CLOEXEC);
	if (c->fd < 0 || fstat(c->fd, &st) != 0 || fcntl(c->fd, F_SETFL, mode) != 0) {
		return bdev_error(error, -errno, "filename '%.150s': %s", o->filename, strerror(errno));
	}
	if (!S_ISREG(st.st_mode)) {
		return claim_say_replaced(o->filename, error);
	}
	c->first = 0;
	c->last = TO_END;
	if (o->standby) {
		return 0;
	}
	int rc = claim_lock(c, o->filename, c->fd, error);
	return rc != 0 ? rc : claim_refuse_kernel_use(o->filename, &st, error);
}

/* --- Block devices --- */

/* The kernel's name of a device, from a line DEVNAME=sda1 of its uevent file in sysfs. */
static bool device_find_node(dev_t rdev, char path[PATH_MAX])
{
	char line[256], name[200] = "";

	snprintf(line, sizeof(line), "/sys/dev/block/%u:%u/uevent", major(rdev), minor(rdev));
	FILE *f = fopen(line, "re");
	if (f == NULL) {
		return false;
	}
	while (name[0] == '\0' && fgets(line, sizeof(line), f) != NULL) {
		sscanf(line, "DEVNAME=%199s", name);
	}
	fclose(f);
	snprintf(path, PATH_MAX, "/dev/%s", name);
	return name[0] != '\0';
}

/* Opens the node of the disk that has the device's locks. Without one in /dev, the locks are on the node by which the
 * client names the device: then only those who use the same node find each other. */
static int device_open_disk(dev_t disk, const char *filename, bool shared)
{
	int flags = (shared ? O_RDONLY : O_RDWR) | O_CLOEXEC;
	char path[PATH_MAX];
	struct stat st;

	if (device_find_node(disk, path) && stat(path, &st) == 0 && S_ISBLK(st.st_mode) && st.st_rdev == disk) {
		return open(path, flags);
	}
	return open(filename, flags);
}

/* Those who share a device do not keep it open with O_EXCL; they only look whether the kernel or another program has
 * it. While one of them looks, the others are refused: they look again. */
static int device_probe(const char *filename)
{
	int fd = -1;

	for (unsigned i = 0; i < PROBES; i++) {
		fd = open(filename, O_RDONLY | O_EXCL | O_CLOEXEC);
		if (fd >= 0 || errno != EBUSY) {
			break;
		}
		nanosleep(&(struct timespec){.tv_nsec = PROBE_NS}, NULL);
	}
	if (fd >= 0) {
		close(fd);
	}
	return fd >= 0 ? 0 : -errno;
}

static int device_open(struct uring_claim *c, const struct uring_claim_opts *o, dev_t rdev, char *error)
{
	int rc = c->shared ? device_probe(o->filename) : 0;
	struct stat st;

	c->fd = rc != 0 ? -1
			: open(o->filename, (o->readonly ? O_RDONLY : O_RDWR) | (c->shared ? 0 : O_EXCL) | O_CLOEXEC);
	rc = rc != 0 ? rc : c->fd < 0 ? -errno : 0;
	if (rc == -EBUSY) {
		return bdev_error(error, rc,
				  "filename '%.150s' is in use by the kernel or another program: it cannot be opened "
				  "exclusively",
				  o->filename);
	}
	if (rc != 0) {
		return bdev_error(error, rc, "filename '%.150s': %s", o->filename, strerror(-rc));
	}
	if (fstat(c->fd, &st) != 0 || !S_ISBLK(st.st_mode) || st.st_rdev != rdev) {
		return claim_say_replaced(o->filename, error);
	}
	return 0;
}

/* A file can be attached to a loop device although a bdev has locked it. The other order is refused by
 * claim_refuse_kernel_use(). */
static int device_refuse_loop_on_claimed(const struct uring_claim *c, dev_t disk, const char *filename, char *error)
{
	char command[16];
	struct stat st;

	if (!uring_holder_loop_file(disk, &st) || S_ISBLK(st.st_mode)) {
		return 0;
	}
	const struct uring_claim behind = {
		.fd = -1, .dev = st.st_dev, .ino = st.st_ino, .last = TO_END, .shared = c->shared};
	return claim_find_conflict(&behind) != NULL || uring_holder_find_process(&behind, command) != 0
		       ? claim_say_busy(&behind, filename, -1, error)
		       : 0;
}

static int claim_device(struct uring_claim *c, const struct uring_claim_opts *o, const struct stat *st, char *error)
{
	dev_t disk = uring_holder_disk(st->st_rdev, &c->first, &c->last);
	int rc = claim_refuse_kernel_use(o->filename, st, error);

	rc = rc != 0 ? rc : device_refuse_loop_on_claimed(c, disk, o->filename, error);
	if (rc != 0) {
		return rc;
	}
	c->lock_fd = device_open_disk(disk, o->filename, c->shared);
	if (c->lock_fd < 0) {
		return bdev_error(error, -errno, "filename '%.150s': its disk cannot be opened for a lock: %s",
				  o->filename, strerror(errno));
	}
	rc = claim_lock(c, o->filename, c->lock_fd, error);
	return rc != 0 ? rc : device_open(c, o, st->st_rdev, error);
}

static void claim_close_files(struct uring_claim *c)
{
	if (c->fd >= 0) {
		close(c->fd);
	}
	if (c->lock_fd >= 0) {
		close(c->lock_fd);
	}
	c->fd = c->lock_fd = -1;
}

/* What the lock is for: for refusals, here and in other processes. */
static void claim_note(struct uring_claim *c)
{
	LIST_INSERT_HEAD(&claims, c, link);
	uring_holder_note_write(&claims);
}

/* Of a file, whose descriptor stays open. */
static void claim_unlock(const struct uring_claim *c)
{
	struct flock range = claim_range(c);

	range.l_type = F_UNLCK;
	fcntl(c->fd, F_OFD_SETLK, &range);
}

int uring_claim_open(struct uring_claim *c, const struct uring_claim_opts *o, char *error)
{
	struct stat st;
	int rc;

	*c = (struct uring_claim){.fd = -1, .lock_fd = -1, .name = o->name, .shared = o->shared || o->readonly};
	if (stat(o->filename, &st) != 0) {
		return bdev_error(error, -errno, "filename '%.150s': %s", o->filename, strerror(errno));
	}
	if (o->standby && S_ISBLK(st.st_mode)) {
		return bdev_error(error, -EINVAL,
				  "standby: filename '%.150s' is a block device; only regular files can be",
				  o->filename);
	}
	c->standby = o->standby;
	rc = S_ISBLK(st.st_mode) ? claim_device(c, o, &st, error) : claim_file(c, o, error);
	if (rc != 0) {
		claim_close_files(c);
		return rc;
	}
	if (!c->standby) {
		claim_note(c);
	}
	return 0;
}

int uring_claim_take(struct uring_claim *c, const char *filename, char *error)
{
	struct stat st;
	int rc = claim_lock(c, filename, c->fd, error);

	rc = rc != 0                  ? rc
	     : fstat(c->fd, &st) != 0 ? bdev_error(error, -errno, "filename '%.150s': %s", filename, strerror(errno))
				      : claim_refuse_kernel_use(filename, &st, error);
	if (rc != 0) {
		claim_unlock(c);
		return rc;
	}
	c->standby = false;
	claim_note(c);
	return 0;
}

void uring_claim_give(struct uring_claim *c)
{
	c->standby = true;
	LIST_REMOVE(c, link);
	uring_holder_note_write(&claims);
	claim_unlock(c);
}

void uring_claim_close(struct uring_claim *c)
{
	if (c->fd < 0) {
		return;
	}
	if (!c->standby) {
		LIST_REMOVE(c, link);
	}
	claim_close_files(c);
	uring_holder_note_write(&claims);
}
