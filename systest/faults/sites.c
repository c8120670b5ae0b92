/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of sites, and what was given at them and not given back. Uses nothing that is wrapped. */
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "systest/faults/faults.h"

void *__real_mmap64(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
int __real_open64(const char *path, int flags, ...);
char *getenv(const char *name);

struct fault_area *fault_area;
static uintptr_t base, text_end;

/* Of the stack of each thread: frames are followed within it only, for not all code keeps frame pointers. */
static __thread uintptr_t stack_low, stack_high;

static int find_program(struct dl_phdr_info *info, size_t size, void *arg)
{
	base = info->dlpi_addr;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type == PT_LOAD && (p->p_flags & PF_X)) {
			text_end = base + p->p_vaddr + p->p_memsz;
		}
	}
	return 1; /* the program is the first */
}

__attribute__((constructor(101))) static void faults_init(void)
{
	const char *path = getenv("VARVE_FAULTS");
	int fd = path ? __real_open64(path, O_RDWR | O_CLOEXEC) : -1;
	void *at = fd >= 0 ? __real_mmap64(NULL, sizeof(*fault_area), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
			   : MAP_FAILED;

	if (fd >= 0) {
		close(fd);
	}
	dl_iterate_phdr(find_program, NULL);
	if (at != MAP_FAILED) {
		fault_area = at;
	}
}

static void find_stack(void)
{
	pthread_attr_t attr;
	void *at;
	size_t size;

	stack_low = 1; /* once */
	if (pthread_getattr_np(pthread_self(), &attr) == 0) {
		if (pthread_attr_getstack(&attr, &at, &size) == 0) {
			stack_low = (uintptr_t)at;
			stack_high = stack_low + size;
		}
		pthread_attr_destroy(&attr);
	}
}

/* From the i-th caller on it is a library, called by us again: one of ours is enough to tell sites apart there.
 * (Callers that are no matter are NULL.) */
static void beyond_library(uint64_t pc[FAULT_DEPTH], int i)
{
	void *all[24];
	int n = backtrace(all, 24);
	bool library = false;

	for (int j = 0; j < n; j++) {
		uintptr_t ra = (uintptr_t)all[j];
		bool ours = ra >= base && ra < text_end;

		if (ours && library) {
			pc[i] = ra - base;
			return;
		}
		library |= !ours;
	}
}

static void callers(uint64_t pc[FAULT_DEPTH], void *first, void *frame)
{
	uintptr_t at = (uintptr_t)frame, ra = (uintptr_t)first;

	if (stack_low == 0) {
		find_stack();
	}
	for (int i = 0; i < FAULT_DEPTH; i++) {
		if (ra == 0) {
			return;
		}
		if (ra < base || ra >= text_end) {
			beyond_library(pc, i);
			return;
		}
		pc[i] = ra - base;
		if (at < stack_low || at > stack_high - 16 || at % 8 != 0) {
			return;
		}
		uintptr_t next = *(uintptr_t *)at;
		if (next <= at || next > stack_high - 16 || next % 8 != 0) {
			return;
		}
		at = next;
		ra = ((uintptr_t *)at)[1];
	}
}

static uint64_t mix(uint64_t h, uint64_t x)
{
	return (h ^ x) * UINT64_C(0x9e3779b97f4a7c15) + (h >> 29);
}

static struct fault_site *find(const char *name, void *first, void *frame, uint64_t detail)
{
	uint64_t pc[FAULT_DEPTH] = {0}, key = detail + 1;

	callers(pc, first, frame);
	for (int i = 0; i < FAULT_DEPTH; i++) {
		key = mix(key, pc[i]);
	}
	for (const char *c = name; *c != '\0'; c++) {
		key = mix(key, (uint8_t)*c);
	}
	key |= 1;
	for (uint32_t i = 0; i < FAULT_SITES; i++) {
		struct fault_site *s = &fault_area->sites[(key / 2 + i) % FAULT_SITES];
		uint64_t was = 0;

		if (atomic_load_explicit(&s->key, memory_order_acquire) == key) {
			return s;
		}
		if (atomic_compare_exchange_strong(&s->key, &was, key)) {
			memcpy(s->pc, pc, sizeof(pc));
			s->detail = detail;
			strncpy(s->name, name, FAULT_NAME - 1);
			return s;
		}
		if (was == key) {
			return s;
		}
	}
	atomic_fetch_add(&fault_area->overflow, 1);
	return NULL;
}

static bool is_armed(const struct fault_site *s)
{
	uint64_t key = atomic_load_explicit(&fault_area->key, memory_order_acquire);

	if (key == FAULT_BY_NAME) {
		return strncmp(s->name, fault_area->by_name,
			       strnlen(fault_area->by_name, sizeof(fault_area->by_name))) == 0;
	}
	return key == atomic_load_explicit(&s->key, memory_order_relaxed);
}

static bool fires(struct fault_site *s)
{
	atomic_fetch_add_explicit(&s->hits, 1, memory_order_relaxed);
	if (!is_armed(s) || atomic_fetch_sub(&fault_area->skip, 1) > 0 || atomic_fetch_sub(&fault_area->left, 1) <= 0) {
		return false;
	}
	atomic_fetch_add(&s->faults, 1);
	atomic_fetch_add(&fault_area->fired, 1);
	return true;
}

bool fault_here(const char *name, void *pc, void *frame, uint64_t detail)
{
	struct fault_site *s = fault_area ? find(name, pc, frame, detail) : NULL;

	return s != NULL && fires(s);
}

bool fault_gives(const char *name, void *pc, void *frame, struct fault_site **site)
{
	*site = fault_area ? find(name, pc, frame, 0) : NULL;
	return *site != NULL && fires(*site);
}

/* What was given: a hash table with a lock, whose entries are never moved. */
#define GIVEN (UINT32_C(1) << 18)

static struct given {
	const void *what;
	struct fault_site *site;
	uint32_t next; /* index + 1 */
} given[GIVEN];
static uint32_t heads[GIVEN], free_head, used;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint32_t *head_of(const void *what)
{
	return &heads[mix(1, (uintptr_t)what) >> 40 & (GIVEN - 1)];
}

static void drop(const void *what)
{
	for (uint32_t *link = head_of(what); *link != 0; link = &given[*link - 1].next) {
		uint32_t i = *link;
		struct given *g = &given[i - 1];

		if (g->what == what) {
			atomic_fetch_sub(&g->site->live, 1);
			*link = g->next;
			g->next = free_head;
			free_head = i;
			return;
		}
	}
}

void fault_untrack(const void *what)
{
	if (fault_area != NULL && what != NULL) {
		pthread_mutex_lock(&lock);
		drop(what);
		pthread_mutex_unlock(&lock);
	}
}

void fault_track(const void *what, struct fault_site *site)
{
	if (site == NULL || what == NULL) {
		return;
	}
	pthread_mutex_lock(&lock);
	drop(what); /* given back by somebody whose calls are not seen */
	uint32_t i = free_head, *head = head_of(what);
	if (i != 0) {
		free_head = given[i - 1].next;
	} else if (used < GIVEN) {
		i = ++used;
	}
	if (i != 0) {
		given[i - 1] = (struct given){.what = what, .site = site, .next = *head};
		*head = i;
		atomic_fetch_add(&site->live, 1);
	}
	pthread_mutex_unlock(&lock);
}
