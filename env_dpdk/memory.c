/* SPDX-License-Identifier: BSD-3-Clause */
/* DMA memory. With hugepages it comes from the EAL's heaps, which grow and shrink. Without hugepages the EAL's heap has
 * a fixed size: large blocks are mappings of their own, and when the heap is full, small blocks come from an external
 * heap that we add, and that grows. */
#include "env_dpdk/env_internal.h"

#include "env_dpdk/iobuf.h"
#include "util/log.h"
#include <errno.h>
#include <inttypes.h>
#include <numa.h>
#include <numaif.h>
#include <pthread.h>
#include <rte_malloc.h>
#include <rte_memory.h>
#include <rte_mempool.h>
#include <rte_memzone.h>
#include <rte_errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_2M     ((size_t)2 << 20)
#define LARGE_BYTES ((size_t)1 << 20)
#define HEAP_NAME   "varve_dma"
/* The external heap doubles its growth each time, since DPDK's lists of segments, one per growth, are few. */
#define HEAP_STEP_MIN ((size_t)4 << 20)
#define HEAP_STEP_MAX ((size_t)64 << 20)
/* Blocks of at least this size do not use the EAL's heap, which is kept for DPDK's own objects (rings, hash tables,
 * mempools). */
#define MEDIUM_BYTES ((size_t)64 << 10)
/* How much the EAL's allocator adds to a block, for header and alignment. */
#define HEAP_OVERHEAD 1024

static bool hugepages;
static bool numa;
static pthread_mutex_t heap_lock = PTHREAD_MUTEX_INITIALIZER;
static int heap_socket = -1; /* of the external heap; -1: not made yet. Atomic. */
static size_t heap_step = HEAP_STEP_MIN;

/* An IOMMU may translate no more than 39 bits (Intel's with three levels), and devices use our virtual addresses. So
 * mappings are placed from 64 GB on, below that limit, and elsewhere only when that range is full. */
#define LOW_START ((uintptr_t)64 << 30)
#define LOW_END   ((uintptr_t)1 << 39)

/* Address space only: nothing is there yet. */
static void *reserve_low(size_t len)
{
	static uintptr_t next = LOW_START; /* atomic; only a hint */
	uintptr_t hint = __atomic_fetch_add(&next, len, __ATOMIC_RELAXED);

	if (hint + len > LOW_END) {
		__atomic_store_n(&next, LOW_START, __ATOMIC_RELAXED); /* what was freed may be used again */
		hint = LOW_START;
	}
	return mmap((void *)hint, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

/* The memory is that of a memfd, as the EAL's is, so that processes on this machine may map it and move data without a
 * system call (softverbs does). One memfd has all regions: where one was, a hole is left, and its offsets are not used
 * again. */
static struct {
	pthread_mutex_t lock;
	int fd; /* -1: not made yet */
	off_t end;
} region_file = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

/* Makes the file longer by len bytes, and returns where they begin; -1: errno says why. */
static off_t region_file_grow(size_t len)
{
	off_t start = -1;

	pthread_mutex_lock(&region_file.lock);
	if (region_file.fd < 0) {
		region_file.fd = memfd_create("varve_dma", MFD_CLOEXEC);
	}
	if (region_file.fd >= 0 && ftruncate(region_file.fd, region_file.end + (off_t)len) == 0) {
		start = region_file.end;
		region_file.end += (off_t)len;
	}
	pthread_mutex_unlock(&region_file.lock);
	return start;
}

/* Puts memory at `start`, where address space is reserved. Private memory, which the kernel may back with huge pages,
 * if `shared` is false or there can be no such file. */
static int region_populate(void *start, size_t len, bool shared)
{
	off_t offset = shared ? region_file_grow(len) : -1;

	if (offset >= 0 && mmap(start, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
				region_file.fd, offset) == start) {
		return 0;
	}
	return mprotect(start, len, PROT_READ | PROT_WRITE);
}

/* 2 MB aligned, so that the kernel can back it with transparent huge pages, and no two regions share a 2 MB
 * step. Address space only. */
static uint8_t *reserve_aligned(size_t len, size_t align)
{
	uint8_t *raw = reserve_low(len + align);

	if (raw == MAP_FAILED) {
		return NULL;
	}
	uint8_t *start = (uint8_t *)(((uintptr_t)raw + align - 1) & ~(align - 1));
	if (start > raw) {
		munmap(raw, (size_t)(start - raw));
	}
	munmap(start + len, align - (size_t)(start - raw));
	return start;
}

/* Before any page is there. */
static void region_advise(void *start, size_t len, int numa_node)
{
	madvise(start, len, MADV_HUGEPAGE); /* advice only */
	if (numa && numa_node >= 0 && numa_node <= numa_max_node()) {
		struct bitmask *nodes = numa_allocate_nodemask();
		numa_bitmask_setbit(nodes, (unsigned)numa_node);
		/* A preference; and not numa_tonode_memory(), which prints when it fails (containers forbid it). */
		mbind(start, len, MPOL_PREFERRED, nodes->maskp, nodes->size + 1, 0);
		numa_free_nodemask(nodes);
	}
}

static void *map_aligned(size_t len, size_t align, int numa_node, bool shared)
{
	uint8_t *start = reserve_aligned(len, align);

	if (start == NULL) {
		return NULL;
	}
	if (region_populate(start, len, shared) != 0) {
		munmap(start, len);
		return NULL;
	}
	region_advise(start, len, numa_node);
	return start;
}

static void region_unmap(void *start, size_t len)
{
	madvise(start, len,
		MADV_REMOVE); /* out of the file, too; fails for private memory, which needs no such thing */
	munmap(start, len);
}

/* touch: it is zeroed here, and private: what RAM disks are made of, which others need not map. */
static void *region_map(size_t size, size_t align, int numa_node, enum env_region_kind kind, bool touch)
{
	size_t len = (size + HUGE_2M - 1) & ~(HUGE_2M - 1);

	if (align < HUGE_2M) {
		align = HUGE_2M;
	}
	if (len < size || len + align < len) {
		return NULL;
	}
	void *start = map_aligned(len, align, numa_node, !touch);
	if (start != NULL && touch) {
		memset(start, 0,
		       size); /* a page at a time, so that other threads' faults and mappings are served in between */
	}
	if (start != NULL && env_region_add(start, len, kind) != 0) {
		region_unmap(start, len);
		start = NULL;
	}
	return start;
}

/* heap_lock is held. */
static int heap_grow(size_t size)
{
	size_t len = heap_step > size + HEAP_OVERHEAD ? heap_step : size + HEAP_OVERHEAD;

	len = (len + HUGE_2M - 1) & ~(HUGE_2M - 1);
	if (heap_socket < 0) {
		if (rte_malloc_heap_create(HEAP_NAME) != 0) {
			return -rte_errno;
		}
		__atomic_store_n(&heap_socket, rte_malloc_heap_get_socket(HEAP_NAME), __ATOMIC_RELEASE);
	}
	void *start = region_map(len, 0, -1, ENV_REGION_HEAP, false);
	if (start == NULL) {
		return -ENOMEM;
	}
	if (rte_malloc_heap_memory_add(HEAP_NAME, start, len, NULL, 0, (size_t)sysconf(_SC_PAGESIZE)) != 0) {
		int rc = -rte_errno;
		env_region_remove(start);
		region_unmap(start, len);
		return rc;
	}
	if (heap_step < HEAP_STEP_MAX) {
		heap_step *= 2;
	}
	return 0;
}

static void *heap_alloc_growing(size_t size, size_t align)
{
	int socket = __atomic_load_n(&heap_socket, __ATOMIC_ACQUIRE);
	void *buf = socket >= 0 ? rte_malloc_socket(NULL, size, (unsigned)align, socket) : NULL;

	if (buf != NULL) {
		return buf;
	}
	pthread_mutex_lock(&heap_lock);
	/* Another thread may have grown it meanwhile. */
	buf = heap_socket >= 0 ? rte_malloc_socket(NULL, size, (unsigned)align, heap_socket) : NULL;
	if (buf == NULL && heap_grow(size + align) == 0) {
		buf = rte_malloc_socket(NULL, size, (unsigned)align, heap_socket);
	}
	pthread_mutex_unlock(&heap_lock);
	return buf;
}

static void *heap_alloc(size_t size, size_t align, int numa_node)
{
	void *buf = NULL;

	if (hugepages && numa_node >= 0) {
		buf = rte_malloc_socket(NULL, size, (unsigned)align, numa_node);
	}
	if (buf == NULL) {
		buf = rte_malloc_socket(NULL, size, (unsigned)align, SOCKET_ID_ANY);
	}
	return buf;
}

/* Allocates ordinary pages, for memory that the EAL's heaps do not have (with hugepages: not any more). New mappings
 * are zero. */
static void *ordinary_alloc(size_t size, size_t align, int numa_node, bool touch, bool *zeroed)
{
	if (hugepages) {
		log_limited(LOG_LEVEL_WARNING,
			    "hugepages are used up: %zu bytes of DMA memory are taken from ordinary pages; "
			    "set more aside "
			    "(sysctl vm.nr_hugepages)",
			    size);
	}
	if (size < LARGE_BYTES) {
		return heap_alloc_growing(size, align);
	}
	*zeroed = true;
	return region_map(size, align, numa_node, ENV_REGION_MAPPED, touch);
}

static void *dma_alloc(size_t size, size_t align, int numa_node, bool touch, bool *zeroed)
{
	void *buf = NULL;

	*zeroed = false;
	if (size == 0 || (align & (align - 1)) != 0 || align > HUGE_2M || size > SIZE_MAX / 2) {
		return NULL;
	}
	if (hugepages || size < MEDIUM_BYTES) {
		buf = heap_alloc(size, align, numa_node);
	}
	return buf != NULL ? buf : ordinary_alloc(size, align, numa_node, touch, zeroed);
}

void *env_dma_malloc(size_t size, size_t align, int numa_node)
{
	bool zeroed;

	return dma_alloc(size, align, numa_node, false, &zeroed);
}

static void *dma_zalloc(size_t size, size_t align, int numa_node, bool touch)
{
	bool zeroed;
	void *buf = dma_alloc(size, align, numa_node, touch, &zeroed);

	if (buf != NULL && !zeroed) {
		memset(buf, 0, size);
	}
	return buf;
}

void *env_dma_zmalloc(size_t size, size_t align, int numa_node)
{
	return dma_zalloc(size, align, numa_node, false);
}

void *env_dma_zmalloc_touched(size_t size, size_t align, int numa_node)
{
	return dma_zalloc(size, align, numa_node, true);
}

void env_dma_free(void *buf)
{
	size_t len = buf != NULL ? env_region_len(buf, ENV_REGION_MAPPED) : 0;

	if (len != 0) {
		env_region_remove(buf);
		region_unmap(buf, len);
	} else {
		rte_free(buf);
	}
}

void *env_dma_map_file(int fd, off_t offset, size_t size)
{
	size_t len = (size + HUGE_2M - 1) & ~(HUGE_2M - 1);
	uint8_t *start = len >= size && len != 0 ? reserve_aligned(len, HUGE_2M) : NULL;

	if (start == NULL) {
		return NULL;
	}
	if (mmap(start, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, offset) != start ||
	    env_region_add(start, len, ENV_REGION_MAPPED) != 0) {
		munmap(start, len);
		return NULL;
	}
	return start;
}

void env_dma_unmap_file(void *buf)
{
	size_t len = env_region_len(buf, ENV_REGION_MAPPED);

	env_region_remove(buf);
	munmap(buf, len);
}

void env_dma_nodump(void *buf, size_t len)
{
	uintptr_t page = hugepages ? HUGE_2M : (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t start = ((uintptr_t)buf + page - 1) & ~(page - 1), end = ((uintptr_t)buf + len) & ~(page - 1);

	if (end > start) {
		madvise((void *)start, end - start,
			MADV_DONTDUMP); /* may fail with larger pages; then core dumps are larger */
	}
}

/* Adds and removes regions as the EAL's heaps grow and shrink, with hugepages. The EAL holds its lock. External
 * segments are skipped: the trace file is not for DMA, and our own heap is added where it is made. */
static void eal_memory_event(enum rte_mem_event type, const void *addr, size_t len, void *arg)
{
	const struct rte_memseg_list *msl = rte_mem_virt2memseg_list(addr);

	if (msl == NULL || msl->external) {
		return;
	}
	if (type == RTE_MEM_EVENT_ALLOC) {
		env_region_add((void *)(uintptr_t)addr, len, ENV_REGION_EAL);
	} else if (env_region_remove((void *)(uintptr_t)addr) != 0) {
		log_error("the EAL frees %zu bytes at %p, which were not entered as a region", len, addr);
	}
}

static int eal_memory_walk(const struct rte_memseg_list *msl, const struct rte_memseg *ms, size_t len, void *arg)
{
	return msl->external ? 0 : env_region_add(ms->addr, len, ENV_REGION_EAL);
}

int env_memory_start(bool use_hugepages)
{
	hugepages = use_hugepages;
	numa = numa_available() >= 0;
	/* No other thread runs yet, so there is no event between the two calls. */
	if (hugepages && rte_mem_event_callback_register("varve", eal_memory_event, NULL) != 0) {
		return -rte_errno;
	}
	int rc = rte_memseg_contig_walk(eal_memory_walk, NULL);
	return rc < 0 ? -EIO : 0;
}

void env_memory_stop(void)
{
	if (hugepages) {
		rte_mem_event_callback_unregister("varve", NULL);
	}
}

static void pool_free_memory(struct rte_mempool_memhdr *memhdr, void *base)
{
	env_dma_free(base);
}

static int pool_populate(struct rte_mempool *mp, unsigned n, size_t align, int numa_node)
{
	size_t object = (size_t)mp->header_size + mp->elt_size + mp->trailer_size, len = n * object + align;
	uint8_t *base = env_dma_malloc(len, align, numa_node);

	if (base == NULL) {
		return -ENOMEM;
	}
	env_dma_nodump(base, len);
	/* Each object's header ends where the aligned object begins. */
	uint8_t *start = base + align - mp->header_size;
	int rc = rte_mempool_populate_iova(mp, (char *)start, (rte_iova_t)(uintptr_t)start, n * object,
					   pool_free_memory, base);
	if (rc <= 0) {
		env_dma_free(base);
		return rc < 0 ? rc : -ENOMEM;
	}
	return (unsigned)rc == n ? 0 : -ENOMEM;
}

struct rte_mempool *env_mempool_create(const char *name, unsigned n, size_t size, size_t align, unsigned cache,
				       int numa_node)
{
	if ((align & (align - 1)) != 0 || n == 0 || size == 0 || size > UINT32_MAX / 2 || align > HUGE_2M) {
		errno = EINVAL;
		return NULL;
	}
	if (align < RTE_CACHE_LINE_SIZE) {
		align = RTE_CACHE_LINE_SIZE;
	}
	struct rte_mempool_objsz layout;
	/* Without DPDK's spreading over memory channels, which would put objects off their alignment, and its gaps at
	 * page borders: I/O addresses are virtual ones, so they are contiguous. */
	unsigned flags = RTE_MEMPOOL_F_NO_SPREAD | RTE_MEMPOOL_F_NO_IOVA_CONTIG;
	rte_mempool_calc_obj_size((uint32_t)size, flags, &layout);
	/* Padded so that object after object stays aligned. */
	uint32_t total = (layout.total_size + (uint32_t)align - 1) & ~((uint32_t)align - 1);
	uint32_t padded = total - layout.header_size - layout.trailer_size;
	struct rte_mempool *mp = rte_mempool_create_empty(name, n, padded, cache, 0, SOCKET_ID_ANY, flags);
	if (mp == NULL) {
		errno = rte_errno;
		return NULL;
	}
	int rc = pool_populate(mp, n, align, numa_node);
	if (rc != 0) {
		rte_mempool_free(mp);
		errno = -rc;
		return NULL;
	}
	return mp;
}

void env_mempool_free(struct rte_mempool *mp)
{
	rte_mempool_free(mp);
}

static void heap_stats_add(int socket, struct env_mem_stats *stats)
{
	struct rte_malloc_socket_stats s;

	if (socket < 0 || rte_malloc_get_socket_stats(socket, &s) != 0) {
		return;
	}
	stats->heap_bytes += s.heap_totalsz_bytes;
	stats->heap_free_bytes += s.heap_freesz_bytes;
	stats->heap_blocks += s.alloc_count;
	if (s.greatest_free_size > stats->heap_largest_free_bytes) {
		stats->heap_largest_free_bytes = s.greatest_free_size;
	}
}

void env_mem_stats(struct env_mem_stats *stats)
{
	uint64_t pages = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	memset(stats, 0, sizeof(*stats));
	stats->hugepages = hugepages;
	for (unsigned i = 0; i < rte_socket_count(); i++) {
		heap_stats_add(rte_socket_id_by_idx(i), stats);
	}
	heap_stats_add(__atomic_load_n(&heap_socket, __ATOMIC_ACQUIRE), stats);
	env_region_stats(stats);
	if (f != NULL) {
		if (fscanf(f, "%*u %" SCNu64, &pages) == 1) {
			stats->resident_bytes = pages * (uint64_t)sysconf(_SC_PAGESIZE);
		}
		fclose(f);
	}
}

static void heap_dump(FILE *f, int socket)
{
	struct rte_malloc_socket_stats s;

	if (socket >= 0 && rte_malloc_get_socket_stats(socket, &s) == 0) {
		fprintf(f, "  %d: %zu KB, %zu KB free (largest piece %zu KB), %u blocks\n", socket,
			s.heap_totalsz_bytes / 1024, s.heap_freesz_bytes / 1024, s.greatest_free_size / 1024,
			s.alloc_count);
	}
}

/* DPDK's own dumps list every page and every lcore's cache, hundreds of lines; these do not. */
static void memzone_dump(const struct rte_memzone *mz, void *f)
{
	fprintf(f, "  %s: %p, %zu bytes, socket %d\n", mz->name, mz->addr, mz->len, mz->socket_id);
}

static void mempool_dump(struct rte_mempool *mp, void *f)
{
	fprintf(f, "  %s: %u objects of %u bytes, %u free, cache of %u per lcore\n", mp->name, mp->size, mp->elt_size,
		rte_mempool_avail_count(mp), mp->cache_size);
}

void env_mem_dump(FILE *f)
{
	struct env_mem_stats s;

	env_mem_stats(&s);
	fprintf(f,
		"Memory: %s, %" PRIu64 " KB in heaps (%" PRIu64 " KB free), %" PRIu64
		" KB in %u mapped blocks, %" PRIu64 " KB resident\n",
		s.hugepages ? "hugepages" : "ordinary pages", s.heap_bytes / 1024, s.heap_free_bytes / 1024,
		s.mapped_bytes / 1024, s.mapped_blocks, s.resident_bytes / 1024);
	env_region_dump(f);
	fprintf(f, "Heaps:\n");
	for (unsigned i = 0; i < rte_socket_count(); i++) {
		heap_dump(f, rte_socket_id_by_idx(i));
	}
	heap_dump(f, __atomic_load_n(&heap_socket, __ATOMIC_ACQUIRE));
	fprintf(f, "Memzones:\n");
	rte_memzone_walk(memzone_dump, f);
	fprintf(f, "Mempools:\n");
	rte_mempool_walk(mempool_dump, f);
	fprintf(f, "Data buffers:\n");
	iobuf_dump(f);
}
