/* SPDX-License-Identifier: BSD-3-Clause */
/* Where DMA-able memory is: a list for listeners, and a two-level table by address (in steps of 2 MB) for env_iova().
 *
 * Writers hold the lock, readers do not. A new listener is told of one region at a time, and the lock is handed to
 * whoever waits for it in between: the control thread may allocate, free or count memory while a worker thread
 * registers all of it. One region alone may take long, too. So a concurrent listener's add function is called without
 * the lock, for regions that are there and for new ones. Who waits for it: the thread that adds a new region, the end
 * of that region, and the end of that listener. With hugepages the EAL tells of regions while it holds its own locks,
 * so that others wait for these. A table entry is one pointer, stored with release and loaded with acquire, to a struct
 * that is reused but never given back to malloc. So a caller that asks for the address of memory that is being freed,
 * which is a mistake, gets a wrong answer and nothing worse.
 */
#include "env_dpdk/env_internal.h"

#include "util/log.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#define SLOT_SHIFT 21
#define LOWER_BITS 13
#define UPPER_BITS (48 - SLOT_SHIFT - LOWER_BITS)
#define LISTENERS  64 /* VFIO, and two for each RDMA device: as host and as target */
#define SLOT_BYTES ((uintptr_t)1 << SLOT_SHIFT)

struct region {
	uintptr_t start, end;
	enum env_region_kind kind;
	bool unreachable; /* atomic: devices behind the IOMMU cannot reach it, since the IOMMU has no mapping for it */
	bool entering;    /* listeners are being told of it for the first time: it cannot be removed */
	uint64_t adding;  /* bit i: the add function of listeners[i] runs for it, without the lock */
	uint64_t told;  /* bit i: the add function of listeners[i] was called for it, and the remove function was not */
	uint64_t *phys; /* of each 2 MB step, after env_phys_start(); NULL: it has none */
	TAILQ_ENTRY(region) link;
};

struct lower {
	struct region *slots[1 << LOWER_BITS];
};

/* Whoever wants the lock waits for its turn first. So who gives the lock back and takes it again comes after those who
 * wait already. */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER, lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t added = PTHREAD_COND_INITIALIZER; /* `entering` or an `adding` bit has been cleared */
static TAILQ_HEAD(region_list, region) regions = TAILQ_HEAD_INITIALIZER(regions), spare = TAILQ_HEAD_INITIALIZER(spare);
static struct lower *upper[1 << UPPER_BITS];
static const struct env_mem_listener *listeners[LISTENERS];
static uint64_t leaving;    /* bit i: env_mem_unlisten() waits; listeners[i] is told of no region any more */
static int pagemap_fd = -1; /* open after env_phys_start() */

static_assert(LISTENERS <= 64, "a bit of `told` for each");

static void regions_lock(void)
{
	pthread_mutex_lock(&turn);
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&turn);
}

static void regions_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

/* The lock is held, so whoever has the turn waits. */
bool env_regions_are_awaited(void)
{
	if (pthread_mutex_trylock(&turn) != 0) {
		return true;
	}
	pthread_mutex_unlock(&turn);
	return false;
}

static struct region **region_slot(uintptr_t addr, bool make)
{
	uintptr_t number = addr >> SLOT_SHIFT;

	if (number >> (UPPER_BITS + LOWER_BITS) != 0) {
		return NULL;
	}
	struct lower **l = &upper[number >> LOWER_BITS];
	struct lower *lower = __atomic_load_n(l, __ATOMIC_ACQUIRE);
	if (lower == NULL && make) {
		lower = calloc(1, sizeof(*lower));
		__atomic_store_n(l, lower, __ATOMIC_RELEASE);
	}
	return lower != NULL ? &lower->slots[number & ((1 << LOWER_BITS) - 1)] : NULL;
}

uint64_t env_iova(const void *buf, size_t *len)
{
	uintptr_t addr = (uintptr_t)buf;
	struct region **slot = region_slot(addr, false);
	struct region *r = slot != NULL ? __atomic_load_n(slot, __ATOMIC_ACQUIRE) : NULL;

	if (r == NULL || addr < r->start || addr >= r->end) {
		return ENV_IOVA_BAD;
	}
	if (len != NULL && *len > r->end - addr) {
		*len = r->end - addr;
	}
	return addr; /* --iova-mode=va */
}

uint64_t env_iova_iommu(const void *buf, size_t *len)
{
	uintptr_t addr = (uintptr_t)buf;
	struct region **slot = region_slot(addr, false);
	const struct region *r = slot != NULL ? __atomic_load_n(slot, __ATOMIC_ACQUIRE) : NULL;

	if (r == NULL || addr < r->start || addr >= r->end || __atomic_load_n(&r->unreachable, __ATOMIC_RELAXED)) {
		return ENV_IOVA_BAD;
	}
	if (len != NULL && *len > r->end - addr) {
		*len = r->end - addr;
	}
	return addr;
}

/* The physical address of a 2 MB step, which lies within one hugepage; hugepages do not move. */

static uint64_t phys_read(uintptr_t addr)
{
	uint64_t entry; /* Documentation/admin-guide/mm/pagemap.rst: bit 63 present, bits 54:0 page frame number */
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

	if (pread(pagemap_fd, &entry, sizeof(entry), (off_t)(addr / page * sizeof(entry))) != sizeof(entry) ||
	    (entry >> 63) == 0 || (entry & ((UINT64_C(1) << 55) - 1)) == 0) {
		return ENV_IOVA_BAD;
	}
	return (entry & ((UINT64_C(1) << 55) - 1)) * page;
}

static int phys_fill(struct region *r)
{
	size_t n = (r->end - r->start + SLOT_BYTES - 1) >> SLOT_SHIFT;

	if (r->kind != ENV_REGION_EAL || !env_has_hugepages() || r->start % SLOT_BYTES != 0) {
		return -ENOTSUP;
	}
	uint64_t *phys = calloc(n, sizeof(*phys));
	if (phys == NULL) {
		return -ENOMEM;
	}
	for (size_t i = 0; i < n; i++) {
		phys[i] = phys_read(r->start + i * SLOT_BYTES);
		if (phys[i] == ENV_IOVA_BAD) {
			free(phys);
			return -EPERM;
		}
	}
	r->phys = phys;
	return 0;
}

int env_phys_start(void)
{
	struct region *r;
	int rc = 0;

	if (!env_has_hugepages()) {
		return -ENOTSUP;
	}
	regions_lock();
	if (pagemap_fd < 0) {
		pagemap_fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
		rc = pagemap_fd < 0 ? -EPERM : 0;
		TAILQ_FOREACH (r, &regions, link) {
			if (rc == 0 && phys_fill(r) == -EPERM) {
				rc = -EPERM;
			}
		}
		if (rc != 0 && pagemap_fd >= 0) {
			close(pagemap_fd);
			pagemap_fd = -1;
		}
	}
	regions_unlock();
	return rc;
}

uint64_t env_phys(const void *buf, size_t *len)
{
	uintptr_t addr = (uintptr_t)buf;
	struct region **slot = region_slot(addr, false);
	const struct region *r = slot != NULL ? __atomic_load_n(slot, __ATOMIC_ACQUIRE) : NULL;

	if (r == NULL || addr < r->start || addr >= r->end || r->phys == NULL) {
		return ENV_IOVA_BAD;
	}
	size_t step = (addr - r->start) >> SLOT_SHIFT;
	uint64_t at = r->phys[step] + (addr & (SLOT_BYTES - 1));
	size_t there = SLOT_BYTES - (addr & (SLOT_BYTES - 1));
	if (len != NULL) {
		while (there < *len && addr + there < r->end && r->phys[step + 1] == r->phys[step] + SLOT_BYTES) {
			there += SLOT_BYTES;
			step++;
		}
		there = there < r->end - addr ? there : r->end - addr;
		*len = *len < there ? *len : there;
	}
	return at;
}

/* Checks that the region's slots are free, and allocates their tables. Fails without setting a slot. */
static int slots_check(const struct region *r)
{
	for (uintptr_t a = r->start >> SLOT_SHIFT; a <= (r->end - 1) >> SLOT_SHIFT; a++) {
		struct region **slot = region_slot(a << SLOT_SHIFT, true);
		if (slot == NULL) {
			return -ENOMEM;
		}
		if (*slot != NULL) {
			return -EEXIST;
		}
	}
	return 0;
}

static void slots_set(const struct region *r, struct region *value)
{
	for (uintptr_t a = r->start >> SLOT_SHIFT; a <= (r->end - 1) >> SLOT_SHIFT; a++) {
		__atomic_store_n(region_slot(a << SLOT_SHIFT, true), value, __ATOMIC_RELEASE);
	}
}

/* Has the listener add the region, or remove it, unless it has done so. The lock is held. */
static void listener_tell(unsigned i, struct region *r, bool add)
{
	const struct env_mem_listener *l = listeners[i];
	uint64_t bit = UINT64_C(1) << i;

	if (l != NULL && ((r->told & bit) != 0) != add) {
		r->told ^= bit;
		(add ? l->add : l->remove)(l->ctx, (void *)r->start, r->end - r->start);
	}
}

/* Has the listener add the region without the lock, which is held before and after: neither can go meanwhile. */
static void listener_add_unlocked(unsigned i, struct region *r)
{
	const struct env_mem_listener *l = listeners[i];
	uint64_t bit = UINT64_C(1) << i;

	r->told |= bit;
	r->adding |= bit;
	regions_unlock();
	l->add(l->ctx, (void *)r->start, r->end - r->start);
	regions_lock();
	r->adding &= ~bit;
	pthread_cond_broadcast(&added);
}

/* Tells all listeners of a new region. The lock is held before and after. */
static void listeners_add(struct region *r)
{
	r->entering = true;
	for (unsigned i = 0; i < LISTENERS; i++) {
		uint64_t bit = UINT64_C(1) << i;

		if (listeners[i] == NULL || ((r->told | leaving) & bit) != 0) {
			continue;
		}
		if (listeners[i]->concurrent) {
			listener_add_unlocked(i, r);
		} else {
			listener_tell(i, r, true);
		}
	}
	r->entering = false;
	pthread_cond_broadcast(&added);
}

static void listeners_remove(struct region *r)
{
	for (unsigned i = 0; i < LISTENERS; i++) {
		listener_tell(i, r, false);
	}
}

static struct region *region_take_spare(void)
{
	struct region *r = TAILQ_FIRST(&spare);

	if (r != NULL) {
		TAILQ_REMOVE(&spare, r, link);
		return r;
	}
	return calloc(1, sizeof(*r));
}

/* The lock is held before and after. The slots are set first, so that no other region can be entered there: nobody
 * knows the memory until this has returned. */
static int region_add_locked(void *addr, size_t len, enum env_region_kind kind)
{
	struct region *r = region_take_spare();

	if (r == NULL) {
		return -ENOMEM;
	}
	r->start = (uintptr_t)addr;
	r->end = r->start + len;
	r->kind = kind;
	__atomic_store_n(&r->unreachable, false, __ATOMIC_RELAXED);
	r->told = 0;
	r->entering = false;
	r->adding = 0;
	int rc = slots_check(r);
	if (rc != 0) {
		TAILQ_INSERT_HEAD(&spare, r, link);
		return rc;
	}
	if (pagemap_fd >= 0) {
		phys_fill(r);
	}
	TAILQ_INSERT_TAIL(&regions, r, link);
	slots_set(r, r);
	listeners_add(r);
	return 0;
}

int env_region_add(void *addr, size_t len, enum env_region_kind kind)
{
	regions_lock();
	int rc = region_add_locked(addr, len, kind);
	regions_unlock();
	if (rc != 0) {
		log_error("DMA memory at %p, %zu bytes, cannot be entered: %s", addr, len, strerror(-rc));
	}
	return rc;
}

void env_region_set_unreachable(void *addr, bool unreachable)
{
	struct region *r;

	TAILQ_FOREACH (r, &regions, link) {
		if (r->start == (uintptr_t)addr) {
			__atomic_store_n(&r->unreachable, unreachable, __ATOMIC_RELAXED);
		}
	}
}

static struct region *region_find(const void *addr)
{
	struct region **slot = region_slot((uintptr_t)addr, false);
	struct region *r = slot != NULL ? __atomic_load_n(slot, __ATOMIC_ACQUIRE) : NULL;

	return r != NULL && r->start == (uintptr_t)addr ? r : NULL;
}

/* The lock is held; it is given back while devices still register the region. */
static struct region *region_find_settled(const void *addr)
{
	struct region *r;

	while ((r = region_find(addr)) != NULL && (r->entering || r->adding != 0)) {
		pthread_cond_wait(&added, &lock);
	}
	return r;
}

int env_region_remove(void *addr)
{
	regions_lock();
	struct region *r = region_find_settled(addr);
	if (r != NULL) {
		slots_set(r, NULL);
		listeners_remove(r);
		free(r->phys);
		r->phys = NULL;
		TAILQ_REMOVE(&regions, r, link);
		TAILQ_INSERT_HEAD(&spare, r, link);
	}
	regions_unlock();
	return r != NULL ? 0 : -ENOENT;
}

/* Takes no lock, because the lock is held while memory is registered with a device, which takes long. The caller owns
 * memory there, so the region cannot be removed meanwhile. */
size_t env_region_len(const void *addr, enum env_region_kind kind)
{
	const struct region *r = region_find(addr);

	return r != NULL && r->kind == kind ? r->end - r->start : 0;
}

/* Tells a listener of one region of which it does not know. False: it knows all. */
static bool listener_add_next(unsigned i)
{
	struct region *r;

	regions_lock();
	TAILQ_FOREACH (r, &regions, link) {
		if ((r->told & UINT64_C(1) << i) == 0) {
			if (listeners[i]->concurrent) {
				listener_add_unlocked(i, r);
			} else {
				listener_tell(i, r, true);
			}
			break;
		}
	}
	regions_unlock();
	return r != NULL;
}

int env_mem_listen(const struct env_mem_listener *l)
{
	unsigned i = 0;

	regions_lock();
	while (i < LISTENERS && listeners[i] != NULL) {
		i++;
	}
	if (i < LISTENERS) {
		listeners[i] = l; /* from now on it is told of new regions, and of the end of those that it knows */
	}
	regions_unlock();
	if (i == LISTENERS) {
		return -ENOSPC;
	}
	while (listener_add_next(i)) {
	}
	return 0;
}

static unsigned listener_find(const struct env_mem_listener *l)
{
	unsigned i = 0;

	while (i < LISTENERS && listeners[i] != l) {
		i++;
	}
	return i;
}

/* A region that is being added now is left out, and one that is still to be added. One that goes waits until it has
 * been added, so the list can be followed. */
void env_mem_repeat(const struct env_mem_listener *l)
{
	struct region *r;

	regions_lock();
	unsigned i = listener_find(l);
	TAILQ_FOREACH (r, &regions, link) {
		if (i == LISTENERS || (r->told & ~r->adding & UINT64_C(1) << i) == 0) {
			continue;
		}
		if (l->concurrent) {
			listener_add_unlocked(i, r);
		} else {
			l->add(l->ctx, (void *)r->start, r->end - r->start);
		}
	}
	regions_unlock();
}

static bool listener_is_adding(unsigned i)
{
	const struct region *r;

	TAILQ_FOREACH (r, &regions, link) {
		if ((r->adding & UINT64_C(1) << i) != 0) {
			return true;
		}
	}
	return false;
}

void env_mem_unlisten(const struct env_mem_listener *l)
{
	struct region *r;

	regions_lock();
	unsigned i = listener_find(l);
	if (i < LISTENERS) {
		leaving |= UINT64_C(1) << i;
		while (listener_is_adding(i)) {
			pthread_cond_wait(&added, &lock);
		}
		TAILQ_FOREACH (r, &regions, link) {
			listener_tell(i, r, false);
		}
		listeners[i] = NULL;
		leaving &= ~(UINT64_C(1) << i);
	}
	regions_unlock();
}

void env_region_stats(struct env_mem_stats *stats)
{
	struct region *r;

	regions_lock();
	TAILQ_FOREACH (r, &regions, link) {
		stats->regions++;
		stats->dma_bytes += r->end - r->start;
		if (r->kind == ENV_REGION_MAPPED) {
			stats->mapped_blocks++;
			stats->mapped_bytes += r->end - r->start;
		}
	}
	regions_unlock();
}

void env_region_dump(FILE *f)
{
	static const char *const kinds[] = {
		[ENV_REGION_EAL] = "the EAL's", [ENV_REGION_HEAP] = "heap", [ENV_REGION_MAPPED] = "mapped block"};
	struct region *r;

	regions_lock();
	fprintf(f, "DMA regions:\n");
	TAILQ_FOREACH (r, &regions, link) {
		fprintf(f, "  %#" PRIxPTR "-%#" PRIxPTR " %" PRIuPTR " KB %s\n", r->start, r->end,
			(r->end - r->start) / 1024, kinds[r->kind]);
	}
	regions_unlock();
}
