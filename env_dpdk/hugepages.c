/* SPDX-License-Identifier: BSD-3-Clause */
/* Chooses which kind of memory to use, from what the kernel has. */
#include "env_dpdk/env_internal.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MB ((uint64_t)1024 * 1024)
/* With fewer free hugepages than this they are not used: the EAL takes whole pages for each of its needs. */
#define HUGE_MIN_MB 64
/* Size of the EAL's heap without hugepages, which is fixed; its pages are resident after they were touched. */
#define NO_HUGE_DEFAULT_MB 64
#define MEM_MIN_MB         16

static int hugepages_read_number(const char *folder, const char *entry, const char *file, uint64_t *value)
{
	char path[512], text[32];

	snprintf(path, sizeof(path), "%s/%s/%s", folder, entry, file);
	FILE *f = fopen(path, "re");
	if (f == NULL) {
		return -errno;
	}
	bool ok = fgets(text, sizeof(text), f) != NULL;
	fclose(f);
	*value = ok ? strtoull(text, NULL, 10) : 0;
	return ok ? 0 : -EIO;
}

static void hugepages_add_pool(const char *folder, const char *entry, struct env_hugepages *h)
{
	uint64_t total, available, kb;

	if (sscanf(entry, "hugepages-%" SCNu64 "kB", &kb) != 1) {
		return;
	}
	int rc = hugepages_read_number(folder, entry, "nr_hugepages", &total);
	rc = rc != 0 ? rc : hugepages_read_number(folder, entry, "free_hugepages", &available);
	if (rc != 0) {
		h->error = -rc;
		return;
	}
	if (total > 0 || h->page_bytes == 0) {
		h->page_bytes = kb * 1024 > h->page_bytes || h->total_bytes == 0 ? kb * 1024 : h->page_bytes;
	}
	h->total_bytes += total * kb * 1024;
	h->free_bytes += available * kb * 1024;
}

void env_hugepages_read(const char *sys_hugepages, struct env_hugepages *h)
{
	struct dirent *e;

	memset(h, 0, sizeof(*h));
	DIR *d = opendir(sys_hugepages);
	if (d == NULL) {
		h->error = errno;
		return;
	}
	while ((e = readdir(d)) != NULL) {
		hugepages_add_pool(sys_hugepages, e->d_name, h);
	}
	closedir(d);
}

void env_memory_read(const char *meminfo, uint64_t *total, uint64_t *available)
{
	char line[128];
	uint64_t kb;
	FILE *f = fopen(meminfo, "re");

	*total = *available = 0;
	while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
		if (sscanf(line, "MemTotal: %" SCNu64 " kB", &kb) == 1) {
			*total = kb * 1024;
		} else if (sscanf(line, "MemAvailable: %" SCNu64 " kB", &kb) == 1) {
			*available = kb * 1024;
		}
	}
	if (f != NULL) {
		fclose(f);
	}
}

/* Pages that cache files. They count as used, and grow until the group's limit is reached, but the kernel frees them
 * before it refuses memory. */
static uint64_t cgroup_file_pages(const char *folder)
{
	char path[512], line[128];
	uint64_t bytes, sum = 0;

	snprintf(path, sizeof(path), "%s/memory.stat", folder);
	FILE *f = fopen(path, "re");
	while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
		if (sscanf(line, "inactive_file %" SCNu64, &bytes) == 1 ||
		    sscanf(line, "active_file %" SCNu64, &bytes) == 1) {
			sum += bytes;
		}
	}
	if (f != NULL) {
		fclose(f);
	}
	return sum;
}

uint64_t env_cgroup_available(const char *folder)
{
	uint64_t max = 0, current = 0;

	/* "max" reads as 0, and so does a group that is not there */
	if (hugepages_read_number(folder, "", "memory.max", &max) != 0 || max == 0 ||
	    hugepages_read_number(folder, "", "memory.current", &current) != 0) {
		return UINT64_MAX;
	}
	uint64_t files = cgroup_file_pages(folder), used = current > files ? current - files : 0;
	return max > used ? max - used : 0;
}

static uint64_t cgroup_available(void)
{
	char line[256], folder[320] = "";
	FILE *f = fopen("/proc/self/cgroup", "re");

	while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
		if (strncmp(line, "0::", 3) == 0) {
			line[strcspn(line, "\n")] = '\0';
			snprintf(folder, sizeof(folder), "/sys/fs/cgroup%s", line + 3);
		}
	}
	if (f != NULL) {
		fclose(f);
	}
	return env_cgroup_available(folder);
}

uint64_t env_available_ordinary_bytes(void)
{
	uint64_t total, available, limit = cgroup_available();

	env_memory_read("/proc/meminfo", &total, &available);
	if (total == 0) {
		return UINT64_MAX; /* nobody says */
	}
	return available < limit ? available : limit;
}

uint64_t env_available_bytes(void)
{
	struct env_hugepages h = {0};
	uint64_t ordinary = env_available_ordinary_bytes();

	if (env_has_hugepages()) {
		env_hugepages_read("/sys/kernel/mm/hugepages", &h);
	}
	return ordinary <= UINT64_MAX - h.free_bytes ? ordinary + h.free_bytes : UINT64_MAX;
}

static bool hugepages_suffice(const struct env_opts *opts, const struct env_hugepages *h, struct env_memory_plan *plan)
{
	uint64_t wanted_mb = opts->mem_mb != 0 ? opts->mem_mb : HUGE_MIN_MB;

	if (opts->no_huge) {
		snprintf(plan->why, sizeof(plan->why), "as asked for");
	} else if (h->error != 0) {
		snprintf(plan->why, sizeof(plan->why), "the kernel's hugepages cannot be read: %s", strerror(h->error));
	} else if (h->total_bytes == 0) {
		snprintf(plan->why, sizeof(plan->why), "this machine has no hugepages set aside");
	} else if (h->free_bytes < wanted_mb * MB) {
		snprintf(plan->why, sizeof(plan->why),
			 "%" PRIu64 " MB of hugepages are needed, %" PRIu64 " of %" PRIu64 " MB are free", wanted_mb,
			 h->free_bytes / MB, h->total_bytes / MB);
	} else {
		snprintf(plan->why, sizeof(plan->why), "%" PRIu64 " of %" PRIu64 " MB of hugepages are free",
			 h->free_bytes / MB, h->total_bytes / MB);
		return true;
	}
	return false;
}

int env_memory_plan(const struct env_opts *opts, const struct env_hugepages *h, uint64_t total, uint64_t available,
		    struct env_memory_plan *plan, char *error)
{
	if (opts->mem_mb != 0 && opts->mem_mb < MEM_MIN_MB) {
		return env_fail(error, EINVAL, "%u MB of memory (-s) is too little: at least %u MB are needed",
				opts->mem_mb, MEM_MIN_MB);
	}
	plan->hugepages = hugepages_suffice(opts, h, plan);
	plan->mem_mb = opts->mem_mb;
	if (plan->hugepages) {
		return 0;
	}
	if (plan->mem_mb == 0) {
		plan->mem_mb = NO_HUGE_DEFAULT_MB;
	}
	if (available != 0 && plan->mem_mb * MB > available) {
		return env_fail(error, ENOMEM,
				"%u MB of memory asked for (-s), but only %" PRIu64 " of this machine's %" PRIu64
				" MB are available, and no hugepages are used "
				"(%s): ask for less, or set hugepages aside "
				"(sysctl vm.nr_hugepages)",
				plan->mem_mb, available / MB, total / MB, plan->why);
	}
	return 0;
}
