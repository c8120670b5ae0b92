/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of env_dpdk/ and its tests. */
#ifndef ENV_DPDK_ENV_INTERNAL_H
#define ENV_DPDK_ENV_INTERNAL_H

#include "env_dpdk/env.h"

/* Formats a message into error (ENV_ERROR_MAX bytes) and returns -err. */
int env_fail(char *error, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The EAL makes its runtime folder even if it will put nothing there, and never removes it. A path where no folder can
 * be made prevents that; without shared configuration the EAL only complains. */
#define ENV_EAL_RUNTIME_DIRECTORY "/dev/null"

/* Collects the EAL's messages while it starts, for errors; afterwards its warnings go to our log. */
int env_eal_log_open(void);
void env_eal_log_started(void);
/* The last complaint, or "". */
const char *env_eal_log_complaint(void);

/* What /sys and /proc say about memory. Folders are parameters for the tests. */
struct env_hugepages {
	uint64_t page_bytes; /* of the largest pool; 0: the kernel has none */
	uint64_t total_bytes, free_bytes;
	int error; /* errno, if it could not be read */
};
void env_hugepages_read(const char *sys_hugepages, struct env_hugepages *h);
/* MemAvailable and MemTotal in bytes, 0 where unknown. */
void env_memory_read(const char *meminfo, uint64_t *total, uint64_t *available);
/* How many bytes the control group (cgroups(7), version 2) of this folder may still allocate; UINT64_MAX: no limit. */
uint64_t env_cgroup_available(const char *folder);

struct env_memory_plan {
	bool hugepages;
	uint32_t mem_mb;
	char why[192];
};
/* Decides between hugepages and ordinary memory; pure. 0, or a negative errno with the reason in error. */
int env_memory_plan(const struct env_opts *opts, const struct env_hugepages *h, uint64_t total, uint64_t available,
		    struct env_memory_plan *plan, char *error);

/* CPUs: `allowed` is what sched_getaffinity says, `present` what the machine has. Pure. */
int env_cores_check(const cpu_set_t *cores, const cpu_set_t *allowed, const cpu_set_t *present, char *error);

/* On the EAL's main lcore: gives every other lcore its loop. */
int env_lcores_start(void);
void env_lcores_stop(void);
/* The loop of one lcore's thread: waits for launches until env_lcores_stop. */
int env_lcore_loop(void *unused);

void env_ticks_calibrate_begin(void);
void env_ticks_calibrate_end(void);

int env_memory_start(bool hugepages);
void env_memory_stop(void);

/* Regions. */
enum env_region_kind {
	ENV_REGION_EAL,    /* the EAL's own memory */
	ENV_REGION_HEAP,   /* added to our external heap */
	ENV_REGION_MAPPED, /* one large block */
};
int env_region_add(void *addr, size_t len, enum env_region_kind kind);
/* -ENOENT if there is no such region. */
int env_region_remove(void *addr);
/* The length of the region that starts at addr and is of this kind; 0: none such. */
size_t env_region_len(const void *addr, enum env_region_kind kind);
/* Whether another thread waits until a listener's add() or remove(), which calls this, has returned. */
bool env_regions_are_awaited(void);
void env_region_stats(struct env_mem_stats *stats);
void env_region_dump(FILE *f);

/* To be called in a listener's add() for its region: sets that devices behind the IOMMU cannot reach it. */
void env_region_set_unreachable(void *addr, bool unreachable);
/* As env_iova(), for devices behind the IOMMU. */
uint64_t env_iova_iommu(const void *buf, size_t *len);
/* From now on regions of hugepages have physical addresses, for devices without an IOMMU. -ENOTSUP: there are no
 * hugepages; -EPERM: the kernel does not tell us physical addresses. */
int env_phys_start(void);
/* As env_iova(), with the physical address. */
uint64_t env_phys(const void *buf, size_t *len);

void env_pci_start(const struct env_opts *opts);

#endif
