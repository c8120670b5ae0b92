/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registered memory that is shared memory already. If a program keeps its data in a memfd (as DPDK does without
 * hugepages), peers map that memfd and copy directly, which for 4 KiB is some twenty times cheaper than a system call
 * per transfer.
 *
 * The owner recognizes such memory at registration, and gives the mapping a number that is never used again; it is in
 * the table of keys. A peer that finds the number there asks for the memfd over the link, and uses system calls until
 * it has come.
 *
 * Access to a mapping must never raise SIGBUS. Therefore only memfds in ordinary pages are mapped, and they are sealed
 * against shrinking at registration. (A memfd can be sealed only if that was asked for when it was made, so the library
 * has a memfd_create() of its own.) Keys are checked before each transfer in any case, and the range that a peer names
 * is checked against the mapping.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "softverbs/softverbs.h"

#define MAX_SHARED SV_MAX_MAPPINGS /* peers map no more */

/* Pages of one memfd that are contiguous in our memory and in the file. */
struct run {
	uint64_t start, end, offset;
	dev_t dev;
	ino_t ino;
};

static struct shared {
	struct run run;
	uint64_t id;
	uint32_t users; /* regions; 0: free, but while there is an id, peers have still to be told */
	int fd;
} g_shared[MAX_SHARED]; /* under sv.mr_lock */
static _Atomic bool g_forget;
static uint64_t g_next_id = 1;
static _Atomic bool g_has_memfd;

SV_EXPORT int memfd_create(const char *name, unsigned int flags)
{
	if ((flags & MFD_HUGETLB) == 0) {
		flags |= MFD_ALLOW_SEALING;
		atomic_store(&g_has_memfd, true);
	}
	return (int)syscall(SYS_memfd_create, name, flags);
}

/* Whether a memfd has ordinary pages and is sealed against shrinking. */
static bool memory_is_safe(int fd)
{
	struct statfs fs;
	int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
}

static bool parse_line(const char *line, struct run *r)
{
	unsigned major, minor;
	char perms[5], path[16];
	uint64_t ino;

	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 " %15s", &r->start, &r->end, perms,
		   &r->offset, &major, &minor, &ino, path) != 8) {
		return false;
	}
	r->dev = makedev(major, minor);
	r->ino = ino;
	return strcmp(perms, "rw-s") == 0 && strncmp(path, "/memfd:", 7) == 0;
}

static bool run_is_followed_by(const struct run *r, const struct run *next)
{
	return r->end == next->start && r->dev == next->dev && r->ino == next->ino &&
	       r->offset + (r->end - r->start) == next->offset;
}

/* The run that holds all of [start, end). */
static bool find_run(uint64_t start, uint64_t end, struct run *found)
{
	FILE *f = fopen("/proc/self/maps", "re");
	struct run r = {0}, next;
	char line[512];
	bool ok = false;

	while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
		bool shared = parse_line(line, &next);

		if (shared && run_is_followed_by(&r, &next)) {
			r.end = next.end;
		} else {
			ok = ok || (r.start <= start && r.end >= end);
			if (ok) {
				break;
			}
			r = shared ? next : (struct run){0};
		}
	}
	if (f != NULL) {
		fclose(f);
	}
	*found = r;
	return ok || (r.start <= start && r.end >= end && r.end != 0);
}

/* Seals the memfd and returns a descriptor of ours for it; -1: the program has closed it, or has forbidden sealing. */
static int find_fd(const struct run *r)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *e;
	int found = -1;

	while (dir != NULL && found < 0 && (e = readdir(dir)) != NULL) {
		int fd = atoi(e->d_name);
		struct stat st;

		if (e->d_name[0] != '.' && fstat(fd, &st) == 0 && st.st_ino == r->ino && st.st_dev == r->dev &&
		    (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR) {
			fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK); /* checks whether it is sealed, by this call or before */
			found = memory_is_safe(fd) ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
		}
	}
	if (dir != NULL) {
		closedir(dir);
	}
	return found;
}

static bool same_run(const struct run *a, const struct run *b)
{
	return a->start == b->start && a->end == b->end && a->offset == b->offset && a->dev == b->dev &&
	       a->ino == b->ino;
}

static struct shared *shared_add(const struct run *r)
{
	struct shared *unused = NULL;

	for (int i = 0; i < MAX_SHARED; i++) {
		struct shared *s = &g_shared[i];

		if (s->users != 0 && same_run(&s->run, r)) {
			return s;
		}
		if (s->users == 0 && s->id == 0) {
			unused = s;
		}
	}
	if (unused == NULL || (unused->fd = find_fd(r)) < 0) {
		return NULL;
	}
	unused->run = *r;
	unused->id = g_next_id++;
	return unused;
}

uint64_t sv_shared_get(const void *addr, size_t length)
{
	struct shared *s = NULL;
	struct run r;
	uint64_t id = 0;

	if (!atomic_load(&g_has_memfd) || !find_run((uintptr_t)addr, (uintptr_t)addr + length, &r)) {
		return 0;
	}
	pthread_mutex_lock(&sv.mr_lock);
	s = shared_add(&r);
	if (s != NULL) {
		s->users++;
		id = s->id;
	}
	pthread_mutex_unlock(&sv.mr_lock);
	return id;
}

static struct shared *find_id(uint64_t id)
{
	for (int i = 0; i < MAX_SHARED; i++) {
		if (g_shared[i].users != 0 && g_shared[i].id == id) {
			return &g_shared[i];
		}
	}
	return NULL;
}

void sv_shared_put(uint64_t id)
{
	struct shared *s;

	if (id == 0) {
		return;
	}
	pthread_mutex_lock(&sv.mr_lock);
	s = find_id(id);
	if (s != NULL && --s->users == 0) {
		close(s->fd);
		atomic_store(&g_forget, true);
		sv_kick_self();
	}
	pthread_mutex_unlock(&sv.mr_lock);
}

void sv_shared_tell(void)
{
	uint64_t gone[MAX_SHARED];
	int n = 0;

	if (!atomic_exchange(&g_forget, false)) {
		return;
	}
	pthread_mutex_lock(&sv.mr_lock);
	for (int i = 0; i < MAX_SHARED; i++) {
		if (g_shared[i].users == 0 && g_shared[i].id != 0) {
			gone[n++] = g_shared[i].id;
			g_shared[i].id = 0;
		}
	}
	pthread_mutex_unlock(&sv.mr_lock);
	for (int i = 0; i < n; i++) {
		sv_peer_tell_forget(gone[i]);
	}
}

int sv_shared_fd(uint64_t id, uint64_t *addr, uint64_t *length, uint64_t *offset)
{
	struct shared *s;
	int fd = -1;

	pthread_mutex_lock(&sv.mr_lock);
	s = find_id(id);
	if (s != NULL) {
		*addr = s->run.start;
		*length = s->run.end - s->run.start;
		*offset = s->run.offset;
		fd = fcntl(s->fd, F_DUPFD_CLOEXEC, 0);
	}
	pthread_mutex_unlock(&sv.mr_lock);
	return fd;
}

/* ---- Mapping a peer's memory ---- */

static bool mapping_is_valid(int fd, uint64_t addr, uint64_t length, uint64_t offset)
{
	struct stat st;

	return memory_is_safe(fd) && fstat(fd, &st) == 0 && length != 0 && (addr | length | offset) % SV_PAGE == 0 &&
	       offset <= (uint64_t)st.st_size && length <= (uint64_t)st.st_size - offset && addr <= UINT64_MAX - length;
}

struct sv_mapping *sv_mapping_make(int fd, uint64_t id, uint64_t addr, uint64_t length, uint64_t offset)
{
	struct sv_mapping *m = calloc(1, sizeof(*m));
	void *base;

	if (m == NULL) {
		return NULL;
	}
	m->id = id;
	if (fd < 0 || !mapping_is_valid(fd, addr, length, offset)) {
		return m;
	}
	base = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, (off_t)offset);
	if (base == MAP_FAILED) {
		return m;
	}
	madvise(base, length, MADV_DONTDUMP); /* somebody else's memory */
	m->base = base;
	m->addr = addr;
	m->length = length;
	return m;
}

void sv_mapping_free(struct sv_mapping *m)
{
	if (m->base != NULL) {
		munmap(m->base, m->length);
	}
	free(m);
}
