/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine: EAL start-up, lcores, time, DMA memory (PCI devices: env_dpdk/pci.h). Nothing above this room
 * needs a DPDK header for start-up, memory or PCI; data-path rooms may use rte_ring, rte_mempool and rte_hash
 * directly. */
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
	uint32_t mem_mb;    /* memory taken at the start; more is taken as it is needed. 0: the default */
	int instance_id;    /* -i; -1: none (names carry the pid) */
	bool no_huge;       /* never use hugepages; otherwise they are used when enough are free */
	bool no_pci;
	const char *const *pci_allowed; /* NULL-terminated BDFs, or NULL; not with pci_blocked */
	const char *const *pci_blocked;
};

#define ENV_ERROR_MAX 512

/* Starts the EAL. The caller's thread stays a plain OS thread (the EAL's main lcore is a thread made here,
 * which waits for env_lcore_launch like any other). On failure returns a negative errno, and error
 * (ENV_ERROR_MAX bytes) says what is wrong and what to do. One notice per process says which memory is used
 * and why. Once per process: a second call is -EALREADY, also after env_fini. Instances on one host share
 * nothing (no file of the EAL's is made), and nothing is left behind when one is killed. */
int env_init(const struct env_opts *opts, char *error);
/* Ends the lcores' threads (which must be idle) and cleans the EAL up. DMA memory is gone after this. */
void env_fini(void);

bool env_has_hugepages(void);

/* Core sets: a hexadecimal mask ("0x3", "f"), or a list of numbers and ranges, in brackets or not ("[0,2-3]",
 * "0-1"); text with neither bracket, comma nor dash is a mask. Returns 0, or -EINVAL with what is wrong in
 * error (ENV_ERROR_MAX bytes). */
int env_cores_parse(const char *text, cpu_set_t *cores, char *error);
#define ENV_CORES_MAX 512
/* Writes the set as a list ("0,2-3") or as a hexadecimal mask without 0x ("d"); buf has ENV_CORES_MAX
 * bytes. */
void env_cores_format(const cpu_set_t *cores, char *buf);
void env_cores_format_mask(const cpu_set_t *cores, char *buf);

/* lcores. ENV_FOREACH_LCORE visits all of them, the EAL's main one included. An lcore's id is its CPU's
 * number, except with oversubscribe. */
unsigned env_lcore_count(void);
/* Writes into *cpus the CPUs for worker threads: those that this process may use and that have no lcore; if there are
 * none, all that it may use. False, and an empty set, before env_init(). Any thread. */
bool env_worker_cpus(cpu_set_t *cpus);
#define ENV_LCORE_NONE UINT32_MAX
unsigned env_lcore_next(unsigned after); /* ENV_LCORE_NONE in: the first; out: no more */
#define ENV_FOREACH_LCORE(lcore)                                                                                       \
	for ((lcore) = env_lcore_next(ENV_LCORE_NONE); (lcore) != ENV_LCORE_NONE; (lcore) = env_lcore_next(lcore))
unsigned env_lcore_current(void); /* ENV_LCORE_NONE when not an lcore */
int env_lcore_numa_node(unsigned lcore);
/* True if several lcores may share a CPU: whoever polls without finding work should then yield. */
bool env_oversubscribed(void);
/* Runs fn(arg) on an idle lcore (-EBUSY if it is not, -ENODEV if there is none such); env_lcore_wait() sleeps
 * until fn has returned and returns its result. Control thread. */
int env_lcore_launch(unsigned lcore, int (*fn)(void *arg), void *arg);
int env_lcore_wait(unsigned lcore);

/* Time. Ticks are the TSC; the rate is calibrated against CLOCK_MONOTONIC, not rounded. */
#ifdef ENV_TICKS_VIRTUAL
extern uint64_t env_ticks_virtual; /* builds for fuzzing: the time, as the fuzzer has it; 0: the real one */
static inline uint64_t env_ticks(void)
{
	return env_ticks_virtual != 0 ? env_ticks_virtual : rte_rdtsc();
}
#else
static inline uint64_t env_ticks(void)
{
	return rte_rdtsc();
}
#endif
uint64_t env_ticks_hz(void);
/* Without a division, and without overflow: what does not fit is UINT64_MAX. */
uint64_t env_us_to_ticks(uint64_t us);
uint64_t env_ticks_to_ns(uint64_t ticks);
/* One reading of three clocks at (as nearly as possible) the same moment. */
struct env_time_pair {
	uint64_t tsc, monotonic_ns, realtime_ns;
};
void env_time_pair_read(struct env_time_pair *pair);

/* DMA-able memory on a NUMA node (-1: any); alignment a power of two or 0 (cache line). NULL when there is
 * none. Any thread, not on the I/O path. Large blocks (1 MB and more) without hugepages are mappings of their
 * own, taken up page by page as they are touched and given back by env_dma_free. When hugepages run out,
 * ordinary pages are used, with a warning. */
void *env_dma_malloc(size_t size, size_t align, int numa_node);
void *env_dma_zmalloc(size_t size, size_t align, int numa_node);
/* Zeroed, and every page is there: large blocks are touched before devices are told of them, since what a device is
 * told of it pins, and what else wants to tell it something waits for that. Takes a good part of a second per GB: not
 * for a thread that others wait for. */
void *env_dma_zmalloc_touched(size_t size, size_t align, int numa_node);
void env_dma_free(void *buf);
/* How much memory can be had without another process losing some: what this machine and the control group have left,
 * free hugepages included if they are used; UINT64_MAX: unknown. Allocating does not check it, since memory counts when
 * it is touched; who touches much at once had better ask. Any thread; reads files. */
uint64_t env_available_bytes(void);
/* Leaves the whole pages of [buf, buf + len) out of core dumps: for data, not for structures. */
void env_dma_nodump(void *buf, size_t len);

/* The I/O address of buf and, in *len (in: wanted), how many bytes from there are contiguous; UINT64_MAX: not
 * DMA-able. Any thread, no lock. */
#define ENV_IOVA_BAD UINT64_MAX
uint64_t env_iova(const void *buf, size_t *len);

/* A mempool of n objects of size bytes each, per-lcore caches of `cache` objects, objects aligned to align (a
 * power of two; 0: cache line; each object takes size + 64 bytes, rounded up to align), in DMA-able memory
 * that is left out of core dumps. NULL and errno. env_mempool_free: when all objects are back. Control
 * thread. */
struct rte_mempool *env_mempool_create(const char *name, unsigned n, size_t size, size_t align, unsigned cache,
				       int numa_node);
void env_mempool_free(struct rte_mempool *mp);

/* Regions of DMA-able memory, for transports that register memory with a device: add is called for each
 * region there is, and again as regions come (before anyone can use them); remove before they go, with the
 * same bounds. env_mem_listen: control thread. Callbacks: on the thread that allocates or frees, one at a
 * time; they must not allocate or free DMA memory, nor listen or unlisten. */
struct env_mem_listener {
	void (*add)(void *ctx, void *addr, size_t len);
	void (*remove)(void *ctx, void *addr, size_t len);
	void *ctx;
};
/* Returns 0, or -ENOSPC when there are too many listeners. l must live until env_mem_unlisten, which calls
 * remove for all. */
int env_mem_listen(const struct env_mem_listener *l);
void env_mem_unlisten(const struct env_mem_listener *l);
/* Calls l's add once more for each region there is: for one that could not do what it does with all of them, and knows
 * which it did. Control thread. */
void env_mem_repeat(const struct env_mem_listener *l);

struct env_mem_stats {
	bool hugepages;
	uint64_t heap_bytes, heap_free_bytes, heap_largest_free_bytes; /* DMA heaps */
	uint64_t mapped_bytes;                                         /* large blocks with a mapping of their own */
	uint32_t heap_blocks, mapped_blocks, regions;
	uint64_t dma_bytes;      /* all regions together */
	uint64_t resident_bytes; /* of the whole process; hugepages are not in it */
};
void env_mem_stats(struct env_mem_stats *stats);
/* Everything: heaps, memzones, mempools, regions, as text. */
void env_mem_dump(FILE *f);

#endif
