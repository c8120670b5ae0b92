/* SPDX-License-Identifier: BSD-3-Clause */
/* The arena and its heap, which gives whole pages to rings, first fit. The list of free pages is in private memory. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "softverbs/softverbs.h"

#define ARENA_DEFAULT_MB 4096ull /* address space: pages use memory after they were touched */
#define ARENA_MIN_MB     64ull
#define ARENA_MAX_MB     65536ull

/* Free pages, sorted by offset, neighbours merged. */
struct hole {
	LIST_ENTRY(hole) link;
	uint64_t offset;
	uint64_t length;
};

static LIST_HEAD(, hole) g_holes = LIST_HEAD_INITIALIZER(g_holes);

static uint64_t arena_size_wanted(void)
{
	const char *text = getenv("SOFTVERBS_ARENA_MB");
	uint64_t mb = ARENA_DEFAULT_MB;

	if (text != NULL) {
		mb = strtoull(text, NULL, 10);
		if (mb < ARENA_MIN_MB || mb > ARENA_MAX_MB) {
			sv_warn("SOFTVERBS_ARENA_MB=%s: must be %llu to %llu; %llu is used", text, ARENA_MIN_MB,
				ARENA_MAX_MB, ARENA_DEFAULT_MB);
			mb = ARENA_DEFAULT_MB;
		}
	}
	return mb << 20;
}

int sv_arena_create(void)
{
	uint64_t size = arena_size_wanted();
	struct hole *all = calloc(1, sizeof(*all));
	int fd = (int)syscall(SYS_memfd_create, "softverbs", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *map;

	if (all == NULL || fd < 0) {
		goto fail;
	}
	/* Sealed, so that no peer can make our pages vanish. */
	if (ftruncate(fd, (off_t)size) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
		goto fail;
	}
	map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (map == MAP_FAILED) {
		goto fail;
	}
	/* Excluded from core dumps, for which the kernel would allocate all of the 4 GiB. */
	madvise(map, size, MADV_DONTDUMP);
	*all = (struct hole){.offset = SV_HEAP_OFFSET, .length = size - SV_HEAP_OFFSET};
	LIST_INSERT_HEAD(&g_holes, all, link);
	sv.arena = map;
	sv.arena_fd = fd;
	sv.arena_size = size;
	sv.arena->magic = SV_ARENA_MAGIC;
	sv.arena->version = SV_ARENA_VERSION;
	sv.arena->size = size;
	return 0;
fail:
	sv_warn("cannot make an arena of %llu MiB: %s (SOFTVERBS_ARENA_MB sets the size)",
		(unsigned long long)(size >> 20), strerror(errno));
	free(all);
	if (fd >= 0) {
		close(fd);
	}
	return ENOMEM;
}

static uint64_t round_pages(uint64_t size)
{
	return (size + SV_PAGE - 1) / SV_PAGE * SV_PAGE;
}

void *sv_heap_alloc(size_t size)
{
	struct hole *h;
	void *memory = NULL;

	size = round_pages(size);
	pthread_mutex_lock(&sv.heap_lock);
	LIST_FOREACH (h, &g_holes, link) {
		if (h->length >= size) {
			memory = (uint8_t *)sv.arena + h->offset;
			h->offset += size;
			h->length -= size;
			if (h->length == 0) {
				LIST_REMOVE(h, link);
				free(h);
			}
			break;
		}
	}
	pthread_mutex_unlock(&sv.heap_lock);
	if (memory == NULL) {
		errno = ENOMEM;
	}
	return memory;
}

static void hole_merge_next(struct hole *h)
{
	struct hole *next = LIST_NEXT(h, link);

	if (next != NULL && h->offset + h->length == next->offset) {
		h->length += next->length;
		LIST_REMOVE(next, link);
		free(next);
	}
}

void sv_heap_free(void *memory, size_t size)
{
	struct hole *h, *before = NULL, *fresh;
	uint64_t offset;

	if (memory == NULL) {
		return;
	}
	offset = sv_heap_offset(memory);
	size = round_pages(size);
	/* Give the pages back; they read as zeros when they are used again. */
	if (fallocate(sv.arena_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)size) < 0) {
		memset(memory, 0, size);
	}
	fresh = malloc(sizeof(*fresh));
	if (fresh == NULL) {
		return; /* the heap loses these pages, with no other effect */
	}
	*fresh = (struct hole){.offset = offset, .length = size};
	pthread_mutex_lock(&sv.heap_lock);
	LIST_FOREACH (h, &g_holes, link) {
		if (h->offset > offset) {
			break;
		}
		before = h;
	}
	if (before == NULL) {
		LIST_INSERT_HEAD(&g_holes, fresh, link);
	} else {
		LIST_INSERT_AFTER(before, fresh, link);
	}
	hole_merge_next(fresh);
	if (before != NULL) {
		hole_merge_next(before);
	}
	pthread_mutex_unlock(&sv.heap_lock);
}

uint64_t sv_heap_offset(const void *memory)
{
	return (uint64_t)((const uint8_t *)memory - (const uint8_t *)sv.arena);
}

bool sv_heap_contains(uint64_t arena_size, uint64_t offset, uint64_t length)
{
	return offset >= SV_HEAP_OFFSET && offset % 64 == 0 && offset <= arena_size && length <= arena_size - offset;
}

uint32_t sv_pow2(uint32_t n)
{
	uint32_t p = 1;

	while (p < n) {
		p <<= 1;
	}
	return p;
}

uint32_t sv_ring_stride(uint32_t size, uint32_t max_sge)
{
	uint32_t stage = SV_STAGE_MAX, stride;

	while (stage > SV_STAGE_MIN && (uint64_t)stage * size > SV_STAGE_TOTAL) {
		stage /= 2;
	}
	stride = sv_ring_stage_off(max_sge) + stage;
	/* An odd number of cache lines: slots spread over all sets of the caches. */
	return stride % 128 == 0 ? stride + 64 : stride;
}
