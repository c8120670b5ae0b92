/* SPDX-License-Identifier: BSD-3-Clause */
/* The EAL's start, in children, since a process can start it once; and what decides about it, which is pure. */
#include "unittest/unit.h"
#include "unittest/env_dpdk/child.h"
#include "env_dpdk/env_internal.h"
#include "util/log.h"

#include <errno.h>
#include <inttypes.h>
#include <rte_mempool.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MB ((uint64_t)1024 * 1024)

static void expect_cores(const char *text, const char *list, const char *mask)
{
	char error[ENV_ERROR_MAX], got[ENV_CORES_MAX];
	cpu_set_t cores;

	CU_ASSERT_EQUAL_FATAL(env_cores_parse(text, &cores, error), 0);
	env_cores_format(&cores, got);
	CU_ASSERT_STRING_EQUAL(got, list);
	env_cores_format_mask(&cores, got);
	CU_ASSERT_STRING_EQUAL(got, mask);
}

static void test_core_masks_and_lists_are_understood(void)
{
	expect_cores("0x3", "0-1", "3");
	expect_cores("3", "0-1", "3");
	expect_cores("0XF0", "4-7", "f0");
	expect_cores("0x100f", "0-3,12", "100f");
	expect_cores("[0,2-3]", "0,2-3", "d");
	expect_cores("[2]", "2", "4");
	expect_cores("0-1", "0-1", "3");
	expect_cores("1,1,0", "0-1", "3");
	expect_cores("[1023]", "1023",
		     "8000000000000000000000000000000000000000000000000000000000000000"
		     "0000000000000000000000000000000000000000000000000000000000000000"
		     "0000000000000000000000000000000000000000000000000000000000000000"
		     "0000000000000000000000000000000000000000000000000000000000000000");
}

static void test_the_mask_of_no_core_is_zero(void)
{
	char got[ENV_CORES_MAX];
	cpu_set_t none;

	CPU_ZERO(&none);
	env_cores_format_mask(&none, got);
	CU_ASSERT_STRING_EQUAL(got, "0");
	env_cores_format(&none, got);
	CU_ASSERT_STRING_EQUAL(got, "");
}

static void test_wrong_core_sets_are_refused(void)
{
	static const char *const wrong[] = {
		"",     "0x",   "0",    "xyz",   "[0",     "0]",   "[]",     "1-0",
		"1-",   "-1",   "0,,1", "[0]1",  "[0,1]]", "0-1,", "[1024]", "4294967296-4294967297",
		"0x 1", " 0x1", "[ 0]", "0x1,2", "--",     "[[0]]"};
	char error[ENV_ERROR_MAX];
	cpu_set_t cores;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		error[0] = '\0';
		CU_ASSERT_EQUAL(env_cores_parse(wrong[i], &cores, error), -EINVAL);
		CU_ASSERT(strncmp(error, "cores '", 7) == 0);
	}
	/* One bit too many for a mask. */
	char mask[300];
	memset(mask, '0', sizeof(mask));
	mask[0] = '1';
	mask[CPU_SETSIZE / 4 + 1] = '\0';
	CU_ASSERT_EQUAL(env_cores_parse(mask, &cores, error), -EINVAL);
}

static void test_core_that_does_not_exist_is_named(void)
{
	char error[ENV_ERROR_MAX];
	cpu_set_t cores, allowed, present;

	env_cores_parse("0-7", &present, error);
	env_cores_parse("0-3", &allowed, error);
	env_cores_parse("1,9", &cores, error);
	CU_ASSERT_EQUAL(env_cores_check(&cores, &allowed, &present, error), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "core 9 does not exist: this machine has 0-7"));
	env_cores_parse("1,5", &cores, error);
	CU_ASSERT_EQUAL(env_cores_check(&cores, &allowed, &present, error), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "core 5 is not allowed"));
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "it may use 0-3"));
	env_cores_parse("1,2", &cores, error);
	CU_ASSERT_EQUAL(env_cores_check(&cores, &allowed, &present, error), 0);
	env_cores_parse("[500]", &cores, error);
	CU_ASSERT_EQUAL(env_cores_check(&cores, &cores, &cores, error), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "core 500"));
}

static void test_hugepages_are_used_when_enough_are_free(void)
{
	struct env_opts opts = {.mem_mb = 256};
	struct env_hugepages h = {.page_bytes = 2 * MB, .total_bytes = 512 * MB, .free_bytes = 256 * MB};
	struct env_memory_plan plan;
	char error[ENV_ERROR_MAX];

	CU_ASSERT_EQUAL(env_memory_plan(&opts, &h, 8192 * MB, 4096 * MB, &plan, error), 0);
	CU_ASSERT_TRUE(plan.hugepages);
	CU_ASSERT_EQUAL(plan.mem_mb, 256);
	CU_ASSERT_PTR_NOT_NULL(strstr(plan.why, "256 of 512 MB"));
}

static void test_ordinary_memory_is_used_otherwise_and_says_why(void)
{
	struct env_opts opts = {.mem_mb = 256};
	struct env_hugepages h = {.page_bytes = 2 * MB, .total_bytes = 512 * MB, .free_bytes = 254 * MB};
	struct env_memory_plan plan;
	char error[ENV_ERROR_MAX];

	CU_ASSERT_EQUAL(env_memory_plan(&opts, &h, 8192 * MB, 4096 * MB, &plan, error), 0);
	CU_ASSERT_FALSE(plan.hugepages);
	CU_ASSERT_STRING_EQUAL(plan.why, "256 MB of hugepages are needed, 254 of 512 MB are free");
	opts.no_huge = true;
	CU_ASSERT_EQUAL(env_memory_plan(&opts, &h, 8192 * MB, 4096 * MB, &plan, error), 0);
	CU_ASSERT_STRING_EQUAL(plan.why, "as asked for");
	opts = (struct env_opts){0};
	h = (struct env_hugepages){.error = EACCES};
	CU_ASSERT_EQUAL(env_memory_plan(&opts, &h, 8192 * MB, 4096 * MB, &plan, error), 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(plan.why, "Permission denied"));
	CU_ASSERT(plan.mem_mb > 0);
	h = (struct env_hugepages){0};
	CU_ASSERT_EQUAL(env_memory_plan(&opts, &h, 8192 * MB, 4096 * MB, &plan, error), 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(plan.why, "no hugepages"));
}

static void test_too_little_memory_says_what_to_do(void)
{
	struct env_opts opts = {.mem_mb = 5000, .no_huge = true};
	struct env_hugepages h = {0};
	struct env_memory_plan plan;
	char error[ENV_ERROR_MAX];

	CU_ASSERT_EQUAL(env_memory_plan(&opts, &h, 8192 * MB, 4096 * MB, &plan, error), -ENOMEM);
	CU_ASSERT_PTR_NOT_NULL(
		strstr(error, "5000 MB of memory asked for (-s), but only 4096 of this machine's 8192 MB"));
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "ask for less"));
	opts.mem_mb = 1;
	CU_ASSERT_EQUAL(env_memory_plan(&opts, &h, 8192 * MB, 4096 * MB, &plan, error), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "1 MB of memory (-s) is too little"));
}

static void write_file(const char *folder, const char *name, const char *text)
{
	char path[256];
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	FILE *f = fopen(path, "w");
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	fputs(text, f);
	fclose(f);
}

static void remove_folder(const char *folder)
{
	char command[300];

	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	CU_ASSERT_EQUAL(system(command), 0);
}

static void test_hugepage_pools_are_added_up(void)
{
	char folder[] = "/tmp/varve-unit-huge-XXXXXX", pool[256];
	struct env_hugepages h;

	CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
	snprintf(pool, sizeof(pool), "%s/hugepages-2048kB", folder);
	mkdir(pool, 0700);
	write_file(pool, "nr_hugepages", "100\n");
	write_file(pool, "free_hugepages", "40\n");
	snprintf(pool, sizeof(pool), "%s/hugepages-1048576kB", folder);
	mkdir(pool, 0700);
	write_file(pool, "nr_hugepages", "2\n");
	write_file(pool, "free_hugepages", "1\n");
	env_hugepages_read(folder, &h);
	CU_ASSERT_EQUAL(h.total_bytes, 200 * MB + 2048 * MB);
	CU_ASSERT_EQUAL(h.free_bytes, 80 * MB + 1024 * MB);
	CU_ASSERT_EQUAL(h.error, 0);
	remove_folder(folder);
	env_hugepages_read(folder, &h);
	CU_ASSERT_EQUAL(h.error, ENOENT);
}

static void test_a_control_group_leaves_what_its_files_take_up(void)
{
	char folder[] = "/tmp/varve-unit-cgroup-XXXXXX";

	CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
	CU_ASSERT_EQUAL(env_cgroup_available(folder), UINT64_MAX);
	write_file(folder, "memory.max", "max\n");
	write_file(folder, "memory.current", "900\n");
	CU_ASSERT_EQUAL(env_cgroup_available(folder), UINT64_MAX);
	write_file(folder, "memory.max", "1000\n");
	CU_ASSERT_EQUAL(env_cgroup_available(folder), 100);
	write_file(folder, "memory.stat",
		   "anon 80\nfile 820\nshmem 20\ninactive_anon 60\ninactive_file 500\nactive_file 300\n");
	CU_ASSERT_EQUAL(env_cgroup_available(folder), 900);
	write_file(folder, "memory.current", "1200\n"); /* the two are read one after the other */
	CU_ASSERT_EQUAL(env_cgroup_available(folder), 600);
	write_file(folder, "memory.current", "2000\n");
	CU_ASSERT_EQUAL(env_cgroup_available(folder), 0);
	write_file(folder, "memory.current", "700\n");
	CU_ASSERT_EQUAL(env_cgroup_available(folder), 1000);
	remove_folder(folder);
}

static int lcore_seen(void *arg)
{
	unsigned *lcore = arg;

	*lcore = env_lcore_current();
	return 100 + (int)*lcore;
}

static void child_lcores(void)
{
	struct env_opts opts = opts_for_tests();
	unsigned lcore, n = 0;
	cpu_set_t before, after;

	sched_getaffinity(0, sizeof(before), &before);
	CHECK(starts(&opts));
	sched_getaffinity(0, sizeof(after), &after);
	CHECK(CPU_EQUAL(&before, &after)); /* this thread is no lcore */
	CHECK(env_lcore_current() == ENV_LCORE_NONE);
	CHECK(env_lcore_count() == 4);
	ENV_FOREACH_LCORE (lcore) {
		unsigned seen = 99;
		CHECK(env_lcore_launch(lcore, lcore_seen, &seen) == 0);
		CHECK(env_lcore_wait(lcore) == 100 + (int)lcore);
		CHECK(seen == lcore);
		n++;
	}
	CHECK(n == 4);
	CHECK(env_lcore_launch(77, lcore_seen, &n) == -ENODEV);
	env_fini();
	char error[ENV_ERROR_MAX];
	CHECK(env_init(&opts, error) == -EALREADY);
}

static void test_every_lcore_runs_what_it_is_given(void)
{
	CU_ASSERT(child_passed(child_start(child_lcores)));
}

static void child_ticks(void)
{
	struct env_opts opts = opts_for_tests();
	struct env_time_pair a, b;

	CHECK(starts(&opts));
	/* Over a pause, what the ticks say and what the clock says differ by less than 100 ppm and the cost of
	 * reading. */
	env_time_pair_read(&a);
	poll(NULL, 0, 20);
	env_time_pair_read(&b);
	int64_t by_ticks = (int64_t)env_ticks_to_ns(b.tsc - a.tsc),
		by_clock = (int64_t)(b.monotonic_ns - a.monotonic_ns);
	CHECK(by_clock >= 20000000);
	CHECK(llabs(by_ticks - by_clock) < by_clock / 10000 + 20000);
	CHECK(env_us_to_ticks(1000000) >= env_ticks_hz() - 2 && env_us_to_ticks(1000000) <= env_ticks_hz() + 2);
	CHECK(env_us_to_ticks(UINT64_MAX) == UINT64_MAX);
	/* A year, in which 64-bit arithmetic would have overflowed. */
	uint64_t year_us = 31556952000000;
	int64_t off = (int64_t)(env_us_to_ticks(year_us) / (year_us / 1000000) - env_ticks_hz());
	CHECK(llabs(off) <= 2);
	env_fini();
}

static void test_ticks_keep_time(void)
{
	CU_ASSERT(child_passed(child_start(child_ticks)));
}

static void child_ticks_go_on(void)
{
	struct env_opts opts = opts_for_tests();

	env_ticks_offset =
		UINT64_C(1) << 62; /* the TSC of a machine that was just started cannot be set back by hours */
	CHECK(starts(&opts));
	uint64_t hour = env_us_to_ticks(UINT64_C(3600) * 1000000);
	/* No step back, though another CPU may have read a later time: the clock knows of none. */
	uint64_t offset = env_ticks_offset;
	CHECK(!env_ticks_go_on(env_ticks() + hour));
	CHECK(env_ticks_offset == offset);
	/* Time has gone an hour more than the rate tells. It goes on from the last note, not from the start. */
	env_ticks_offset += hour;
	env_ticks_note();
	uint64_t before = env_ticks();
	env_ticks_offset -= 2 * hour;
	env_ticks_note(); /* not yet noticed */
	CHECK(env_ticks_go_on(env_ticks() + hour / 2));
	CHECK(env_ticks() > before - hour / 2 && env_ticks() < before + hour / 2);
	/* The trace goes on with the counter. */
	uint64_t tsc = rte_rdtsc(), time = env_ticks();
	CHECK(env_ticks_to_tsc(time) >= tsc && env_ticks_to_tsc(time) <= rte_rdtsc());
	CHECK(env_ticks_to_tsc(time - tsc - hour) == 0);
	/* Nor does it end before what was read. */
	env_ticks_offset -= hour;
	CHECK(env_ticks_go_on(before + hour / 2));
	CHECK(env_ticks() >= before + hour / 2);
	env_fini();
}

static void test_ticks_go_on_when_the_tsc_was_reset(void)
{
	CU_ASSERT(child_passed(child_start(child_ticks_go_on)));
}

static struct {
	uint64_t bytes;
	unsigned regions;
} listened;

static void region_added(void *ctx, void *addr, size_t len)
{
	listened.bytes += len;
	listened.regions++;
}

static void region_removed(void *ctx, void *addr, size_t len)
{
	listened.bytes -= len;
	listened.regions--;
}

static void check_block(size_t size, size_t align)
{
	uint8_t *buf = env_dma_zmalloc(size, align, -1);
	size_t len = 2 * size;

	CHECK(buf != NULL);
	if (buf == NULL) {
		return;
	}
	CHECK((uintptr_t)buf % (align != 0 ? align : 64) == 0);
	CHECK(buf[0] == 0 && buf[size - 1] == 0);
	CHECK(env_iova(buf, &len) != ENV_IOVA_BAD);
	CHECK(len >= size);
	CHECK(env_iova(buf + size - 1, NULL) == env_iova(buf, NULL) + size - 1);
	memset(buf, 0xff, size); /* so that a block made of it again must be cleared */
	env_dma_nodump(buf, size);
	env_dma_free(buf);
}

static void child_memory(void)
{
	struct env_opts opts = opts_for_tests();
	static const size_t sizes[] = {1, 64, 4096, 100000, 1 << 20, 3 << 20, 64 << 20};
	struct env_mem_listener l = {.add = region_added, .remove = region_removed};
	struct env_mem_stats before, s;
	int on_stack;

	opts.mem_mb = 16;
	CHECK(starts(&opts));
	CHECK(!env_has_hugepages());
	CHECK(env_mem_listen(&l) == 0);
	env_mem_stats(&before);
	CHECK(listened.bytes == before.dma_bytes && listened.regions == before.regions);
	env_mem_repeat(&l);
	CHECK(listened.bytes == 2 * before.dma_bytes && listened.regions == 2 * before.regions);
	listened.bytes -= before.dma_bytes;
	listened.regions -= before.regions;
	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			check_block(sizes[i], 0);
			check_block(sizes[i], 4096);
		}
	}
	CHECK(env_iova(&on_stack, NULL) == ENV_IOVA_BAD);
	CHECK(env_iova(NULL, NULL) == ENV_IOVA_BAD);
	CHECK(env_iova((void *)UINTPTR_MAX, NULL) == ENV_IOVA_BAD);
	CHECK(env_dma_malloc(0, 0, -1) == NULL);
	CHECK(env_dma_malloc(100, 3, -1) == NULL);
	CHECK(env_dma_malloc(SIZE_MAX - 10, 0, -1) == NULL);
	/* More than the EAL's 16 MB, in small and in large pieces. */
	void *small[1000], *large = env_dma_malloc(100 << 20, 0, 0);
	CHECK(large != NULL);
	for (int i = 0; i < 1000; i++) {
		small[i] = env_dma_malloc(50000, 512, -1);
		CHECK(small[i] != NULL && env_iova(small[i], NULL) != ENV_IOVA_BAD);
	}
	env_mem_stats(&s);
	CHECK(s.heap_bytes - s.heap_free_bytes > 47 * MB);
	CHECK(s.mapped_bytes == 100 * MB && s.mapped_blocks == 1);
	CHECK(listened.bytes == s.dma_bytes && listened.regions == s.regions);
	/* What nobody touched takes no memory. */
	CHECK(s.resident_bytes < before.resident_bytes + 100 * MB);
	env_dma_free(large);
	CHECK(env_iova(large, NULL) == ENV_IOVA_BAD);
	for (int i = 0; i < 1000; i++) {
		env_dma_free(small[i]);
	}
	env_dma_free(NULL);
	env_mem_unlisten(&l);
	CHECK(listened.bytes == 0 && listened.regions == 0);
	env_fini();
}

static void test_memory_grows_beyond_the_fixed_heap(void)
{
	CU_ASSERT(child_passed(child_start(child_memory)));
}

/* Whether the mapping that addr lies in is one of a memfd, as /proc/self/maps has it. */
static bool is_in_memfd(const void *addr)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512], perms[5];
	uintptr_t start, end;
	bool found = false;

	while (f != NULL && !found && fgets(line, sizeof(line), f) != NULL) {
		found = sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &start, &end, perms) == 3 &&
			(uintptr_t)addr >= start && (uintptr_t)addr < end && perms[3] == 's' &&
			strstr(line, "/memfd:varve_dma") != NULL;
	}
	if (f != NULL) {
		fclose(f);
	}
	return found;
}

/* What all memfds of that name have in them. */
static uint64_t memfd_bytes(void)
{
	uint64_t bytes = 0;
	char path[32], name[64];
	struct stat st;

	for (int fd = 3; fd < 64; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		ssize_t n = readlink(path, name, sizeof(name) - 1);
		if (n > 0 && fstat(fd, &st) == 0) {
			name[n] = '\0';
			bytes += strstr(name, "memfd:varve_dma") != NULL ? (uint64_t)st.st_blocks * 512 : 0;
		}
	}
	return bytes;
}

static void child_shared_memory(void)
{
	struct env_opts opts = opts_for_tests();

	opts.no_huge = true;
	CHECK(starts(&opts));
	uint8_t *medium = env_dma_malloc(128 << 10, 0, -1), *large = env_dma_zmalloc(8 << 20, 0, -1);
	uint8_t *touched = env_dma_zmalloc_touched(8 << 20, 0, -1);
	CHECK(is_in_memfd(medium) && is_in_memfd(large) && !is_in_memfd(touched));
	uint64_t before = memfd_bytes();
	memset(large, 7, 8 << 20);
	CHECK(memfd_bytes() == before + 8 * MB);
	env_dma_free(large);
	CHECK(memfd_bytes() == before);
	large = env_dma_zmalloc(8 << 20, 0, -1);
	CHECK(large[0] == 0 && large[(8 << 20) - 1] == 0);
	env_dma_free(large);
	env_dma_free(medium);
	env_dma_free(touched);
	env_fini();
}

static void test_others_can_map_ordinary_memory_and_what_is_freed_is_given_back(void)
{
	CU_ASSERT(child_passed(child_start(child_shared_memory)));
}

static void child_mempool(void)
{
	struct env_opts opts = opts_for_tests();
	void *objects[100];

	CHECK(starts(&opts));
	CHECK(env_mempool_create("odd", 10, 100, 48, 0, -1) == NULL && errno == EINVAL);
	for (size_t align = 0; align <= 4096; align = align == 0 ? 64 : align * 8) {
		struct rte_mempool *mp = env_mempool_create("pool", 100, 8192, align, 0, -1);
		CHECK(mp != NULL);
		if (mp == NULL) {
			break;
		}
		CHECK(rte_mempool_get_bulk(mp, objects, 100) == 0);
		for (int i = 0; i < 100; i++) {
			size_t len = 8192;
			CHECK((uintptr_t)objects[i] % (align != 0 ? align : 64) == 0);
			CHECK(env_iova(objects[i], &len) != ENV_IOVA_BAD && len == 8192);
			memset(objects[i], i, 8192);
		}
		for (int i = 0; i < 100; i++) {
			CHECK(*(uint8_t *)objects[i] == i && ((uint8_t *)objects[i])[8191] == i);
		}
		CHECK(rte_mempool_get_bulk(mp, objects, 1) != 0);
		rte_mempool_put_bulk(mp, objects, 100);
		env_mempool_free(mp);
	}
	struct env_mem_stats s;
	env_mem_stats(&s);
	CHECK(s.mapped_blocks == 0);
	FILE *f = fopen("/dev/null", "w");
	env_mem_dump(f);
	fclose(f);
	env_fini();
}

static void test_pools_give_aligned_objects(void)
{
	CU_ASSERT(child_passed(child_start(child_mempool)));
}

static void child_wrong_options(void)
{
	char error[ENV_ERROR_MAX];
	struct env_opts opts = opts_for_tests();

	opts.oversubscribe = false;
	opts.cores = "[120]";
	CHECK(env_init(&opts, error) == -EINVAL);
	CHECK(strstr(error, "core 120 does not exist: this machine has ") != NULL);
	opts = opts_for_tests();
	opts.mem_mb = UINT32_MAX;
	CHECK(env_init(&opts, error) == -ENOMEM);
	CHECK(strstr(error, "(-s)") != NULL);
	opts = opts_for_tests();
	opts.pci_allowed = (const char *const[]){"nonsense", NULL};
	CHECK(env_init(&opts, error) == -EINVAL);
	CHECK(strstr(error, "PCI device 'nonsense'") != NULL);
	opts.pci_blocked = opts.pci_allowed;
	CHECK(env_init(&opts, error) == -EINVAL);
	CHECK(strstr(error, "not both") != NULL);
	/* After all these, it still starts. */
	opts = opts_for_tests();
	CHECK(starts(&opts));
	env_fini();
}

static void test_wrong_options_are_explained_and_start_nothing(void)
{
	CU_ASSERT(child_passed(child_start(child_wrong_options)));
}

static int eal_said[2];

static void child_says_nothing(void)
{
	struct env_opts opts = opts_for_tests();

	dup2(eal_said[1], STDOUT_FILENO);
	dup2(eal_said[1], STDERR_FILENO);
	CHECK(starts(&opts));
	env_fini();
}

static void test_the_eal_keeps_quiet(void)
{
	char text[4096];

	CU_ASSERT_EQUAL_FATAL(pipe(eal_said), 0);
	pid_t pid = child_start(child_says_nothing);
	CU_ASSERT(child_passed(pid));
	close(eal_said[1]);
	ssize_t n = read(eal_said[0], text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = '\0';
	CU_ASSERT_STRING_EQUAL(text, "");
	close(eal_said[0]);
}

static void child_eal_fails(void)
{
	struct env_opts opts = opts_for_tests();
	char error[ENV_ERROR_MAX];
	/* The EAL finds no room for its memory. */
	struct rlimit limit = {.rlim_cur = 300 * MB, .rlim_max = 300 * MB};

	setrlimit(RLIMIT_AS, &limit);
	opts.mem_mb = 1024;
	CHECK(env_init(&opts, error) < 0);
	CHECK(strstr(error, "DPDK's EAL does not start: ") != NULL);
	CHECK(strstr(error, "ordinary memory, 1024 MB") != NULL);
}

static void test_failure_of_the_eal_is_told_in_its_words(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	UNIT_SKIP("sanitizers need more address space than the test leaves");
#endif
	CU_ASSERT(child_passed(child_start(child_eal_fails)));
}

static int hold[2];

static void child_holds(void)
{
	struct env_opts opts = opts_for_tests();
	char byte;

	opts.pci_allowed = NULL;
	CHECK(starts(&opts));
	CHECK(write(hold[1], "x", 1) == 1);
	close(hold[1]);
	CHECK(read(hold[0], &byte, 0) == 0);
	pause();
}

static int count_entries(const char *command)
{
	int n = -1;
	FILE *f = popen(command, "r");

	if (f != NULL) {
		if (fscanf(f, "%d", &n) != 1) {
			n = -1;
		}
		pclose(f);
	}
	return n;
}

#define COUNT_LEFT "ls -A /var/run/dpdk/* /dev/hugepages 2>/dev/null | wc -l"

static void test_instances_run_side_by_side_and_leave_nothing_when_killed(void)
{
	pid_t pids[3];
	char ready;
	int before = count_entries(COUNT_LEFT);

	CU_ASSERT_EQUAL_FATAL(pipe(hold), 0);
	for (int i = 0; i < 3; i++) {
		pids[i] = child_start(child_holds);
	}
	for (int i = 0; i < 3; i++) {
		CU_ASSERT_EQUAL(read(hold[0], &ready, 1), 1);
	}
	CU_ASSERT_EQUAL(count_entries(COUNT_LEFT), before);
	for (int i = 0; i < 3; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	CU_ASSERT_EQUAL(count_entries(COUNT_LEFT), before);
	close(hold[0]);
	close(hold[1]);
}

static void child_coredump_filter(void)
{
	struct env_opts opts = opts_for_tests();
	unsigned filter = 0;

	CHECK(starts(&opts));
	FILE *f = fopen("/proc/self/coredump_filter", "r");
	CHECK(f != NULL && fscanf(f, "%x", &filter) == 1 && (filter & 0x48) == 0x48);
	fclose(f);
	env_fini();
}

static void test_core_dumps_include_the_memory_of_dpdk(void)
{
	if (access("/proc/self/coredump_filter", W_OK) != 0) {
		UNIT_SKIP("this kernel has no /proc/self/coredump_filter");
	}
	CU_ASSERT(child_passed(child_start(child_coredump_filter)));
}

static volatile sig_atomic_t signals_here, signals_elsewhere;

static void on_signal(int number)
{
	if (gettid() == getpid()) {
		signals_here++;
	} else {
		signals_elsewhere++;
	}
}

static void child_signals(void)
{
	struct env_opts opts = opts_for_tests();

	CHECK(starts(&opts));
	signal(SIGUSR1, on_signal);
	for (int i = 0; i < 50; i++) {
		kill(getpid(), SIGUSR1);
	}
	CHECK(signals_here == 50 && signals_elsewhere == 0);
	env_fini();
}

static void test_signals_reach_the_first_thread_only(void)
{
	CU_ASSERT(child_passed(child_start(child_signals)));
}

static int setup(void)
{
	log_set_print_level(LOG_LEVEL_DISABLED);
	return 0;
}

static const struct unit_test tests[] = {
	UNIT(test_core_masks_and_lists_are_understood),
	UNIT(test_the_mask_of_no_core_is_zero),
	UNIT(test_wrong_core_sets_are_refused),
	UNIT(test_core_that_does_not_exist_is_named),
	UNIT(test_hugepages_are_used_when_enough_are_free),
	UNIT(test_ordinary_memory_is_used_otherwise_and_says_why),
	UNIT(test_too_little_memory_says_what_to_do),
	UNIT(test_hugepage_pools_are_added_up),
	UNIT(test_a_control_group_leaves_what_its_files_take_up),
	UNIT(test_every_lcore_runs_what_it_is_given),
	UNIT(test_ticks_keep_time),
	UNIT(test_ticks_go_on_when_the_tsc_was_reset),
	UNIT(test_memory_grows_beyond_the_fixed_heap),
	UNIT(test_others_can_map_ordinary_memory_and_what_is_freed_is_given_back),
	UNIT(test_pools_give_aligned_objects),
	UNIT(test_wrong_options_are_explained_and_start_nothing),
	UNIT(test_the_eal_keeps_quiet),
	UNIT(test_failure_of_the_eal_is_told_in_its_words),
	UNIT(test_instances_run_side_by_side_and_leave_nothing_when_killed),
	UNIT(test_core_dumps_include_the_memory_of_dpdk),
	UNIT(test_signals_reach_the_first_thread_only),
	UNIT_END,
};

UNIT_MAIN("env", tests, setup, NULL)
