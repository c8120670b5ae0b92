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

/* What follows the cause if events were kept that the rings have lost: sections 6 and 7 again, each with another line
 * at its end, and the ring "kept" of that line with its stamps. */
struct kept_layout {
	uint64_t offsets, stamp_offsets, history, stamps, end;
	uint64_t num_entries; /* a power of two */
};

struct trace_copy {
	int fd;
	uint64_t done, size; /* bytes of the live file */
	struct trace_file_cause cause;
	unsigned num_kept;
	struct trace_kept_slot kept[TRACE_KEEP_SLOTS];
	char path[PATH_MAX], part[PATH_MAX];
};

static struct kept_layout kept_layout(const struct trace_copy *c)
{
	uint64_t table = sizeof(struct trace_file_table) + (trace_state.num_slots + 1u) * sizeof(uint64_t);
	struct kept_layout l = {.offsets = c->size + sizeof(c->cause), .num_entries = 1};

	while (l.num_entries < c->num_kept) {
		l.num_entries *= 2;
	}
	l.stamp_offsets = l.offsets + table;
	l.history = l.stamp_offsets + table;
	l.stamps = l.history + sizeof(struct trace_file_history) + l.num_entries * sizeof(struct trace_file_entry);
	l.end = l.stamps + l.num_entries * sizeof(uint64_t);
	return l;
}

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
	struct trace_copy most = {.size = trace_state.map.size, .num_kept = TRACE_KEEP_SLOTS};

	return trace_is_on() ? kept_layout(&most).end : 0;
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
	c->num_kept = trace_kept_take(cause->object_id, cause->object_start_tsc, c->kept);
	if (snprintf(c->path, sizeof(c->path), "%s", path) >= (int)sizeof(c->path) ||
	    !copy_part_name(path, c->part, sizeof(c->part))) {
		return copy_fail(c, -ENAMETOOLONG, error);
	}
	c->fd = open(c->part, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
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
	int rc = posix_fallocate(c->fd, 0, (off_t)kept_layout(c).end);
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

/* ---- Events that were kept ---- */

/* Whether the copied ring has this slot, as a reader would decide it. */
static bool copy_has_slot(const struct trace_copy *c, const struct trace_kept_slot *k)
{
	const struct trace_slot *s = &trace_state.slots[k->ring];
	uint64_t at = k->index & (s->history->num_entries - 1), tsc, stamp;
	off_t entry_at = (off_t)((const uint8_t *)&s->history->entries[at] - trace_state.map.file);
	off_t stamp_at = (off_t)((const uint8_t *)&s->stamps[at] - trace_state.map.file);

	return pread(c->fd, &tsc, sizeof(tsc), entry_at) == sizeof(tsc) && tsc == k->entry.tsc &&
	       pread(c->fd, &stamp, sizeof(stamp), stamp_at) == sizeof(stamp) &&
	       stamp == TRACE_FILE_STAMP(tsc, k->index);
}

static bool copy_has_event(const struct trace_copy *c, const struct trace_kept_slot *k)
{
	for (unsigned i = 0; i < c->num_kept; i++) {
		if (c->kept[i].ring == k->ring && c->kept[i].event == k->event && !copy_has_slot(c, &c->kept[i])) {
			return false;
		}
	}
	return true;
}

static int kept_compare(const void *a, const void *b)
{
	const struct trace_kept_slot *x = a, *y = b;

	if (x->entry.tsc != y->entry.tsc) {
		return x->entry.tsc > y->entry.tsc ? 1 : -1;
	}
	if (x->ring != y->ring) {
		return x->ring > y->ring ? 1 : -1;
	}
	return (x->index > y->index) - (x->index < y->index);
}

/* Leaves only what the copied rings do not have. */
static void kept_reduce(struct trace_copy *c)
{
	struct trace_kept_slot left[TRACE_KEEP_SLOTS];
	unsigned n = 0;

	for (unsigned i = 0; i < c->num_kept; i++) {
		if (!copy_has_event(c, &c->kept[i])) {
			left[n++] = c->kept[i];
		}
	}
	memcpy(c->kept, left, n * sizeof(left[0]));
	c->num_kept = n;
	qsort(c->kept, n, sizeof(c->kept[0]), kept_compare);
}

/* The table of a section with one more line. */
static int kept_write_table(struct trace_copy *c, unsigned section, uint64_t line)
{
	const struct trace_file_header *header = (const void *)trace_state.map.file;
	struct trace_file_table head = {.count = (uint16_t)(trace_state.num_slots + 1u)};
	int rc = copy_write_all(c->fd, &head, sizeof(head));

	if (rc == 0) {
		rc = copy_write_all(c->fd, trace_state.map.file + header->section_offset[section] + sizeof(head),
				    trace_state.num_slots * sizeof(uint64_t));
	}
	return rc != 0 ? rc : copy_write_all(c->fd, &line, sizeof(line));
}

static int kept_write_ring(struct trace_copy *c, const struct kept_layout *l)
{
	static const struct trace_file_entry none;
	struct trace_file_history h = {.lcore = (int32_t)trace_state.num_slots,
				       .tname = "kept",
				       .num_entries = l->num_entries,
				       .num_tpoint_ids = TRACE_NUM_TPOINTS,
				       .next_entry = c->num_kept};

	for (unsigned i = 0; i < c->num_kept; i++) {
		if (c->kept[i].entry.tpoint_id < TRACE_NUM_TPOINTS) {
			h.tpoint_count[c->kept[i].entry.tpoint_id]++;
		}
	}
	int rc = copy_write_all(c->fd, &h, sizeof(h));
	for (unsigned i = 0; rc == 0 && i < l->num_entries; i++) {
		rc = copy_write_all(c->fd, i < c->num_kept ? &c->kept[i].entry : &none, sizeof(none));
	}
	for (unsigned i = 0; rc == 0 && i < l->num_entries; i++) {
		uint64_t stamp = i < c->num_kept ? TRACE_FILE_STAMP(c->kept[i].entry.tsc, i) : 0;
		rc = copy_write_all(c->fd, &stamp, sizeof(stamp));
	}
	return rc;
}

/* The header comes last: until then the file is complete without the ring. */
static int kept_write(struct trace_copy *c)
{
	struct trace_file_header header;

	kept_reduce(c);
	struct kept_layout l = kept_layout(c);
	uint64_t end = c->num_kept > 0 ? l.end : c->size + sizeof(c->cause);
	int rc = 0;
	if (c->num_kept > 0) {
		rc = kept_write_table(c, TRACE_SECTION_LCORE_OFFSETS, l.history);
		rc = rc != 0 ? rc : kept_write_table(c, TRACE_SECTION_STAMPS, l.stamps);
		rc = rc != 0 ? rc : kept_write_ring(c, &l);
		if (rc == 0 && pread(c->fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header)) {
			rc = -EIO;
		}
		header.file_size = end;
		header.section_offset[TRACE_SECTION_LCORE_OFFSETS] = l.offsets;
		header.section_offset[TRACE_SECTION_STAMPS] = l.stamp_offsets;
		if (rc == 0 && pwrite(c->fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header)) {
			rc = -EIO;
		}
	}
	return rc == 0 && ftruncate(c->fd, (off_t)end) != 0 ? -errno : rc;
}

static int copy_finish(struct trace_copy *c, char *error)
{
	int rc = copy_write_all(c->fd, &c->cause, sizeof(c->cause));

	rc = rc != 0 ? rc : kept_write(c);
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
