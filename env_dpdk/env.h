/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine: start-up of the EAL, lcores, time, DMA memory (PCI devices: env_dpdk/pci.h). Other rooms need no DPDK
 * header for these; on the data path they may use rte_ring, rte_mempool and rte_hash directly. */
#ifndef ENV_DPDK_ENV_H
#define ENV_DPDK_ENV_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <rte_cycles.h>

struct rte_mempool;

struct env_opts {
	const char *name;   /* "varve"; names files and threads */
	const char *cores;  /* see env_cores_parse; NULL: the first CPU this process may run on */
	bool oversubscribe; /* tests: more lcores than CPUs; lcore ids float over the CPUs there are */
	uint32_t mem_mb;    /* MiB allocated at the start; more is allocated as needed. 0: the default */
	int instance_id;    /* -i; -1: none (names carry the pid) */
	bool no_huge;       /* never use hugepages; otherwise they are used when enough are free */
	bool no_pci;
	const char *const *pci_allowed; /* NULL-terminated BDFs, or NULL; not with pci_blocked */
	const char *const *pci_blocked;
};

#define ENV_ERROR_MAX 512

/* Starts the EAL. The caller's thread stays a plain OS thread: the EAL's main lcore is a thread that is made here and
 * waits for env_lcore_launch() like all others. A notice in the log says which memory is used, and why. 0; or a
 * negative errno, and error (ENV_ERROR_MAX bytes) says what is wrong and what to do. Once per process: later calls are
 * refused with -EALREADY, also after env_fini(). Processes on one host share nothing (the EAL makes no file), and one
 * that is killed leaves nothing behind. */
int env_init(const struct env_opts *opts, char *error);
/* Ends the threads of the lcores, which must be idle, and cleans up the EAL. DMA memory must not be used after this.
 * Control thread. */
void env_fini(void);

/* Whether DMA memory is in hugepages. Any thread. */
bool env_has_hugepages(void);

/* Parses a set of cores: a hexadecimal mask ("0x3", "f"), or a list of numbers and ranges, with or without brackets
 * ("[0,2-3]", "0-1"). A text without bracket, comma and dash is a mask. 0; or -EINVAL, and error (ENV_ERROR_MAX bytes)
 * says what is wrong. Any thread. */
int env_cores_parse(const char *text, cpu_set_t *cores, char *error);
#define ENV_CORES_MAX 512
/* Writes a set of cores as a list, "0,2-3", into buf (ENV_CORES_MAX bytes). Any thread. */
void env_cores_format(const cpu_set_t *cores, char *buf);
/* Writes a set of cores as a hexadecimal mask without 0x, "d", into buf (ENV_CORES_MAX bytes). Any thread. */
void env_cores_format_mask(const cpu_set_t *cores, char *buf);

/* How many lcores there are, the EAL's main one included. An lcore's id is the number of its CPU, except with
 * oversubscribe. Any thread. */
unsigned env_lcore_count(void);
/* Writes into *cpus the CPUs for worker threads: those that this process may use and that have no lcore; if there are
 * none, all that it may use. False, and an empty set, before env_init(). Any thread. */
bool env_worker_cpus(cpu_set_t *cpus);
#define ENV_LCORE_NONE UINT32_MAX
/* The ids of all lcores, one by one, in ascending order: ENV_LCORE_NONE for the first; ENV_LCORE_NONE: no more. */
unsigned env_lcore_next(unsigned after);
#define ENV_FOREACH_LCORE(lcore)                                                                                       \
	for ((lcore) = env_lcore_next(ENV_LCORE_NONE); (lcore) != ENV_LCORE_NONE; (lcore) = env_lcore_next(lcore))
/* The calling thread's lcore; ENV_LCORE_NONE: it has none. */
unsigned env_lcore_current(void);
/* The NUMA node of an lcore. Any thread. */
int env_lcore_numa_node(unsigned lcore);
/* True if several lcores may share a CPU; a loop that polls and finds no work should then yield. Any thread. */
bool env_oversubscribed(void);
/* Runs fn(arg) on an idle lcore. 0; -EBUSY: it is not idle; -ENODEV: no such lcore. Control thread. */
int env_lcore_launch(unsigned lcore, int (*fn)(void *arg), void *arg);
/* Sleeps until the function that was launched on the lcore has returned, and returns its result; 0 if none was
 * launched. Control thread. */
int env_lcore_wait(unsigned lcore);

/* Added to the TSC, which begins anew when some machines resume from suspend to RAM; 0 until then. Atomic; written by
 * env_ticks_go_on(). */
extern uint64_t env_ticks_offset;
/* The time in ticks without the test's. The offset is read first: a machine that is suspended between the two readings
 * then gives a time that is too early, which is noticed, and not one that is ahead by all the time it has run. Any
 * thread. */
static inline uint64_t env_ticks_real(void)
{
	uint64_t offset = __atomic_load_n(&env_ticks_offset, __ATOMIC_RELAXED);

	__asm__ volatile("" : "+r"(offset)); /* the compiler keeps the order of volatile statements */
	return rte_rdtsc() + offset;
}
#ifdef ENV_TICKS_VIRTUAL
extern uint64_t env_ticks_virtual; /* builds for fuzzing and with AddressSanitizer: the test's time; 0: the real time */
/* The time in ticks of the TSC. Any thread. */
static inline uint64_t env_ticks(void)
{
	return env_ticks_virtual != 0 ? env_ticks_virtual : env_ticks_real();
}
#else
/* The time in ticks of the TSC. Any thread. */
static inline uint64_t env_ticks(void)
{
	return env_ticks_real();
}
#endif
/* What the TSC was, or would have been, at a time in ticks: for comparison with times in the trace, which have no
 * offset. 0: the TSC has been reset since. Any thread. */
static inline uint64_t env_ticks_to_tsc(uint64_t ticks)
{
	uint64_t tsc = ticks - __atomic_load_n(&env_ticks_offset, __ATOMIC_RELAXED);

	return (int64_t)tsc > 0 ? tsc : 0;
}
/* Notes the time in ticks together with CLOCK_MONOTONIC, from which env_ticks_go_on() reckons. To be repeated, because
 * the rate of the TSC is known to parts per million only. Any thread. */
void env_ticks_note(void);
/* env_ticks() is less than `reached`, which a thread has read. If the TSC was reset, time goes on from `reached`, or
 * from the time that has passed by CLOCK_MONOTONIC since env_ticks_note(), whichever is later. False: it was not reset,
 * because env_ticks() is less behind CLOCK_MONOTONIC than behind `reached` (the TSCs of two CPUs differ), or it goes on
 * already, because another thread has noticed it, too. Any thread. */
bool env_ticks_go_on(uint64_t reached);
/* Ticks per second: calibrated against CLOCK_MONOTONIC, not rounded. Any thread. */
uint64_t env_ticks_hz(void);
/* Microseconds in ticks; UINT64_MAX if that does not fit. Without a division; any thread. */
uint64_t env_us_to_ticks(uint64_t us);
/* Ticks in nanoseconds; UINT64_MAX if that does not fit. Without a division; any thread. */
uint64_t env_ticks_to_ns(uint64_t ticks);
struct env_time_pair {
	uint64_t tsc, monotonic_ns, realtime_ns;
};
/* Reads the three clocks, as close together as possible. Any thread. */
void env_time_pair_read(struct env_time_pair *pair);

/* Allocates DMA-able memory of size bytes on a NUMA node (-1: any), aligned to align bytes (a power of two; 0: a cache
 * line); for env_dma_free(). NULL: no memory. Without hugepages a block of 1 MiB or more is a mapping of its own, whose
 * pages the kernel allocates as they are touched, and blocks of 64 KiB or more are in a memfd, which another process
 * may map. When hugepages run out, ordinary pages are used, with a warning in the log. Any thread, not on the I/O path.
 */
void *env_dma_malloc(size_t size, size_t align, int numa_node);
/* As env_dma_malloc(), and zeroes the memory. */
void *env_dma_zmalloc(size_t size, size_t align, int numa_node);
/* As env_dma_zmalloc(), and every page of a large block is touched before listeners (env_mem_listen()) are told of it.
 * Registering memory with a device pins its pages and holds a lock that other registrations wait for, which takes much
 * longer if pages must be allocated meanwhile. Takes a good part of a second per GB: for worker threads. Without
 * hugepages a large block is private memory, which the kernel may back with huge pages of its own. */
void *env_dma_zmalloc_touched(size_t size, size_t align, int numa_node);
/* Frees memory of these functions; NULL is ignored. No device may use it any more. Any thread. */
void env_dma_free(void *buf);
/* Maps what a file of shared memory (memfd) has from offset on, a multiple of 2 MiB, as DMA-able memory; the file must
 * reach to the next such multiple after size. Its pages are present when this returns. env_dma_unmap_file() ends it,
 * and leaves in the file what is there; env_dma_free() leaves a hole in the file. NULL: no memory. Any thread, not on
 * the I/O path. */
void *env_dma_map_file(int fd, off_t offset, size_t size);
/* Ends such a mapping. No device may use it any more. Any thread. */
void env_dma_unmap_file(void *buf);
/* How many bytes can be allocated without taking memory from other processes: the rest of the machine's and of the
 * control group's, with free hugepages if they are used; UINT64_MAX: unknown. The kernel counts memory when it is
 * touched, not when it is allocated, so a caller that will touch much should check this first. Any thread; reads
 * files. */
uint64_t env_available_bytes(void);
/* As env_available_bytes(), without hugepages: for what is always in ordinary pages, such as files of shared memory. */
uint64_t env_available_ordinary_bytes(void);
/* Excludes the whole pages within [buf, buf + len) from core dumps. For data of users, not for structures that a
 * debugger needs. Any thread. */
void env_dma_nodump(void *buf, size_t len);

#define ENV_IOVA_BAD UINT64_MAX
/* The I/O address of buf; ENV_IOVA_BAD: not DMA-able. *len: in, how many bytes are wanted; out, how many of them are
 * contiguous in I/O addresses. Any thread, no lock. */
uint64_t env_iova(const void *buf, size_t *len);

/* Makes a mempool of n objects of size bytes, aligned to align bytes (a power of two; 0: a cache line), with a cache of
 * `cache` objects per lcore, in DMA-able memory that is excluded from core dumps. An object takes size + 64 bytes,
 * rounded up to align. NULL and errno on failure. Control thread. */
struct rte_mempool *env_mempool_create(const char *name, unsigned n, size_t size, size_t align, unsigned cache,
				       int numa_node);
/* Frees a mempool, to which all objects must have been given back; NULL is ignored. Control thread. */
void env_mempool_free(struct rte_mempool *mp);

/* A user of DMA memory that registers it with a device. add is called for each region: for those that exist when the
 * listener is added, and for new ones before anybody can use them. remove is called before a region goes, with the same
 * bounds. Both run on the thread that allocates or frees (or listens); they must not allocate or free DMA memory, nor
 * add or remove listeners. They run one at a time, but for the add function of a concurrent listener: it is called for
 * a region while other threads add and remove other ones. So a region that takes long keeps waiting only who allocates
 * it, who frees it, and env_mem_unlisten() of that listener. Two kinds of memory are different. With hugepages, the EAL
 * grows and shrinks its heaps while it holds its locks: who allocates or frees of them waits as well. Without, small
 * blocks wait while the heap grows for another one. */
struct env_mem_listener {
	bool concurrent;
	void (*add)(void *ctx, void *addr, size_t len);
	void (*remove)(void *ctx, void *addr, size_t len);
	void *ctx;
};
/* Adds a listener, which must live until env_mem_unlisten(), and calls add for all regions, one by one: other threads
 * may allocate and free memory meanwhile, of which the listener is told, too. 0, or -ENOSPC: there are too many
 * listeners. Control thread or a worker thread. */
int env_mem_listen(const struct env_mem_listener *l);
/* Calls remove for all regions and removes the listener, whose env_mem_listen() has returned. Waits while its add
 * function runs on another thread. */
void env_mem_unlisten(const struct env_mem_listener *l);
/* Calls l's add once more for each region of which it was told, but not while it is being told, for a listener whose
 * add failed for some regions and that knows for which. Control thread. */
void env_mem_repeat(const struct env_mem_listener *l);

struct env_mem_stats {
	bool hugepages;
	uint64_t heap_bytes, heap_free_bytes, heap_largest_free_bytes; /* DMA heaps */
	uint64_t mapped_bytes; /* of large blocks that are mappings of their own */
	uint32_t heap_blocks, mapped_blocks, regions;
	uint64_t dma_bytes;      /* all regions together */
	uint64_t resident_bytes; /* of the whole process, without hugepages */
};
/* Fills *stats. Any thread. */
void env_mem_stats(struct env_mem_stats *stats);
/* Writes heaps, memzones, mempools and regions as text. Control thread. */
void env_mem_dump(FILE *f);

#endif
