/* SPDX-License-Identifier: BSD-3-Clause */
/* A file in /dev/shm whose bytes are a DPDK memzone.
 *
 * [one anonymous page][the file's pages] is given to DPDK as an external heap, and one zone of exactly the
 * file's size is reserved in it. DPDK places a zone from the end of the free space downwards, so the zone is
 * the file and the heap's header of it lies in the anonymous page. That is checked; should DPDK ever do
 * otherwise, tracing refuses to start. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <rte_errno.h>
#include <rte_malloc.h>
#include <rte_memzone.h>

#include "trace/trace_internal.h"

#define LEAD_SIZE 4096

void trace_errorf(char *error, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(error, TRACE_ERROR_MAX, fmt, ap);
	va_end(ap);
}

/* Renames an existing file of that name to .old if its process is dead; -EEXIST: the process is alive. */
static int map_set_aside(const char *path, char *error)
{
	char old[PATH_MAX];
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0) {
		int err = errno;
		trace_errorf(error, "the trace file %s exists and cannot be opened: %s", path, strerror(err));
		return -err;
	}
	if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
		close(fd);
		trace_errorf(error, "the trace file %s belongs to a process that still runs", path);
		return -EEXIST;
	}
	close(fd);
	if (snprintf(old, sizeof(old), "%s.old", path) >= (int)sizeof(old) || rename(path, old) != 0) {
		trace_errorf(error, "the trace file %s of a dead process cannot be renamed: remove it", path);
		return -EEXIST;
	}
	return 0;
}

static int map_open_file(const char *path, char *error)
{
	const int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
	int fd = open(path, flags, 0600);

	if (fd < 0 && errno == EEXIST) {
		int rc = map_set_aside(path, error);
		if (rc != 0) {
			return rc;
		}
		fd = open(path, flags, 0600);
	}
	if (fd < 0) {
		int err = errno;
		trace_errorf(error, "cannot create the trace file %s: %s", path, strerror(err));
		return -err;
	}
	return fd;
}

static int map_set_file_group(int fd, const char *group, char *error)
{
	struct group g, *found;
	char buf[4096];
	int rc;

	if (group == NULL) {
		return 0;
	}
	rc = getgrnam_r(group, &g, buf, sizeof(buf), &found);
	if (found == NULL) {
		trace_errorf(error, "group '%s', who shall read the trace file, is not known here", group);
		return rc != 0 ? -rc : -ENOENT;
	}
	if (fchown(fd, (uid_t)-1, g.gr_gid) != 0 || fchmod(fd, 0640) != 0) {
		int err = errno;
		trace_errorf(error, "cannot let group '%s' read the trace file: %s", group, strerror(err));
		return -err;
	}
	return 0;
}

/* Allocates the pages now: if the file system is full, a later store would raise SIGBUS. */
static int map_allocate_blocks(int fd, const char *path, size_t size, char *error)
{
	int rc = posix_fallocate(fd, 0, (off_t)size);

	if (rc == ENOSPC || rc == EDQUOT) {
		struct statvfs fs = {0};
		fstatvfs(fd, &fs);
		trace_errorf(error,
			     "no room for the trace file %s: it needs %zu KiB and %" PRIu64
			     " KiB are free. Remove trace files of dead processes, enlarge the file system "
			     "(mount -o "
			     "remount,size=...; --shm-size for a container), or take fewer entries "
			     "(--num-trace-entries)",
			     path, size >> 10, (uint64_t)fs.f_bavail * fs.f_frsize >> 10);
	} else if (rc != 0) {
		trace_errorf(error, "cannot allocate %zu KiB for the trace file %s: %s", size >> 10, path,
			     strerror(rc));
	}
	return -rc;
}

static int map_file(struct trace_map *m, char *error)
{
	uint8_t *lead = mmap(NULL, LEAD_SIZE + m->size, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int err;

	if (lead == MAP_FAILED) {
		goto failed;
	}
	if (mmap(lead + LEAD_SIZE, m->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, m->fd, 0) ==
	    MAP_FAILED) {
		err = errno;
		munmap(lead, LEAD_SIZE + m->size);
		errno = err;
		goto failed;
	}
	m->lead = lead;
	m->file = lead + LEAD_SIZE;
	/* So that recording never waits for a page that was swapped out. A failure is only a warning. */
	m->locked = mlock(m->file, m->size) == 0;
	if (!m->locked) {
		trace_errorf(error,
			     "the trace file %s of %zu KiB cannot be locked in memory: %s. Recording goes on, but may "
			     "wait where "
			     "memory is swapped; raise the limit (ulimit -l, LimitMEMLOCK= in a systemd unit), or take "
			     "fewer entries "
			     "(--num-trace-entries)",
			     m->path, m->size >> 10, strerror(errno));
	}
	return 0;

failed:
	err = errno;
	trace_errorf(error,
		     "cannot map the trace file %s of %zu KiB: %s. If memory is limited by a lock limit, raise it "
		     "(ulimit -l, LimitMEMLOCK= in a systemd unit), or take fewer entries (--num-trace-entries)",
		     m->path, m->size >> 10, strerror(err));
	return -err;
}

static int heap_failed(const char *what, const char *path, char *error)
{
	int err = rte_errno != 0 ? rte_errno : EIO;

	trace_errorf(error, "cannot make the trace file %s a memzone: %s: %s", path, what, rte_strerror(err));
	return -err;
}

static int map_make_memzone(struct trace_map *m, const char *zone_name, char *error)
{
	int rc;

	if (rte_malloc_heap_create(m->heap) != 0) {
		return heap_failed("creating the heap", m->path, error);
	}
	if (rte_malloc_heap_memory_add(m->heap, m->lead, LEAD_SIZE + m->size, NULL, 0, LEAD_SIZE) != 0) {
		rc = heap_failed("adding memory to the heap", m->path, error);
		goto destroy;
	}
	m->zone = rte_memzone_reserve_aligned(zone_name, m->size, rte_malloc_heap_get_socket(m->heap), 0, LEAD_SIZE);
	if (m->zone == NULL) {
		rc = heap_failed("reserving the zone", m->path, error);
		goto remove;
	}
	if (m->zone->addr != m->file) {
		trace_errorf(error, "DPDK placed the trace memzone %td bytes from where the trace file is",
			     (uint8_t *)m->zone->addr - m->file);
		rc = -EFAULT;
		goto free_zone;
	}
	return 0;

free_zone:
	rte_memzone_free(m->zone);
remove:
	rte_malloc_heap_memory_remove(m->heap, m->lead, LEAD_SIZE + m->size);
destroy:
	rte_malloc_heap_destroy(m->heap);
	m->zone = NULL;
	return rc;
}

int trace_map_create(struct trace_map *m, const struct trace_map_opts *opts, char *error)
{
	int rc;

	memset(m, 0, sizeof(*m));
	m->size = opts->size;
	snprintf(m->heap, sizeof(m->heap), "%.31s", opts->zone_name);
	if (snprintf(m->path, sizeof(m->path), "%s", opts->path) >= (int)sizeof(m->path)) {
		trace_errorf(error, "the trace file's name is too long: %.100s...", opts->path);
		return -ENAMETOOLONG;
	}
	m->fd = map_open_file(m->path, error);
	if (m->fd < 0) {
		return m->fd;
	}
	/* Held until the process ends, in whatever way. Readers tell by it whether the process is alive. */
	flock(m->fd, LOCK_EX | LOCK_NB);
	rc = map_set_file_group(m->fd, opts->group, error);
	if (rc == 0) {
		rc = map_allocate_blocks(m->fd, m->path, m->size, error);
	}
	if (rc != 0) {
		goto remove_file;
	}
	rc = map_file(m, error);
	if (rc != 0) {
		goto remove_file;
	}
	rc = map_make_memzone(m, opts->zone_name, error);
	if (rc != 0) {
		goto unmap;
	}
	return 0;

unmap:
	munmap(m->lead, LEAD_SIZE + m->size);
remove_file:
	unlink(m->path);
	close(m->fd);
	m->fd = -1;
	return rc;
}

void trace_map_destroy(struct trace_map *m, bool keep)
{
	if (!keep) {
		unlink(m->path);
	}
	/* Freeing a memzone zeroes it, so other memory is mapped in place of the file first. */
	if (mmap(m->file, m->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
		 0) == MAP_FAILED) {
		close(m->fd);
		return; /* everything stays mapped, to the end of the process */
	}
	if (rte_memzone_free(m->zone) == 0 &&
	    rte_malloc_heap_memory_remove(m->heap, m->lead, LEAD_SIZE + m->size) == 0) {
		rte_malloc_heap_destroy(m->heap);
		munmap(m->lead, LEAD_SIZE + m->size);
	}
	close(m->fd);
	m->fd = -1;
}
