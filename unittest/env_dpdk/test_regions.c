/* SPDX-License-Identifier: BSD-3-Clause */
/* Listeners that take long, while others allocate and free memory. */
#include "unittest/unit.h"
#include "unittest/env_dpdk/child.h"
#include "env_dpdk/env_internal.h"
#include "util/log.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define MB ((uint64_t)1024 * 1024)

/* A listener whose device takes long: its first region is registered when the main thread waits for that. */
#define BESIDE_REGIONS 12
#define BESIDE_MAX     64
static struct {
	void *order[BESIDE_MAX]; /* the regions that it was told of; the listening thread's, or under its lock */
	unsigned added;
	int known; /* regions added and not removed */
	atomic_bool inside;
} beside;

static void beside_added(void *ctx, void *addr, size_t len)
{
	bool first = beside.added == 0;

	if (beside.added < BESIDE_MAX) {
		beside.order[beside.added] = addr;
	}
	beside.added++;
	beside.known++;
	if (first) {
		atomic_store(&beside.inside, true);
		while (!env_regions_are_awaited()) {
			sched_yield();
		}
	}
}

static void beside_removed(void *ctx, void *addr, size_t len)
{
	beside.known--;
}

static struct env_mem_listener beside_listener = {.add = beside_added, .remove = beside_removed};

static void *listen_beside(void *unused)
{
	return (void *)(intptr_t)env_mem_listen(&beside_listener);
}

static void child_memory_beside(void)
{
	struct env_opts opts = opts_for_tests();
	struct env_mem_stats s;
	void *blocks[BESIDE_REGIONS];
	pthread_t listening;
	void *rc;

	alarm(120); /* a deadlock ends the child */
	opts.mem_mb = 16;
	CHECK(starts(&opts));
	for (unsigned i = 0; i < BESIDE_REGIONS; i++) {
		blocks[i] = env_dma_zmalloc(2 << 20, 0, -1);
		CHECK(blocks[i] != NULL);
	}
	CHECK(pthread_create(&listening, NULL, listen_beside, NULL) == 0);
	while (!atomic_load(&beside.inside)) {
		sched_yield();
	}
	void *mine = env_dma_zmalloc(4 << 20, 0, -1);
	env_dma_free(blocks[BESIDE_REGIONS - 1]);
	CHECK(mine != NULL && env_iova(mine, NULL) != ENV_IOVA_BAD);
	CHECK(pthread_join(listening, &rc) == 0 && rc == NULL);
	env_mem_stats(&s);
	CHECK(beside.known == (int)s.regions);
	unsigned at = 0;
	while (at < beside.added && beside.order[at] != mine) {
		at++;
	}
	CHECK(at < BESIDE_REGIONS); /* it did not have to wait until all others were registered */
	env_dma_free(mine);
	CHECK(beside.known == (int)s.regions - 1);
	env_mem_unlisten(&beside_listener);
	CHECK(beside.known == 0);
	CHECK(env_mem_listen(&beside_listener) == 0); /* all anew */
	CHECK(beside.known == (int)s.regions - 1);
	env_mem_unlisten(&beside_listener);
	CHECK(beside.known == 0);
	env_fini();
}

static void test_memory_is_allocated_while_a_device_registers_what_there_is(void)
{
	CU_ASSERT(child_passed(child_start(child_memory_beside)));
}

/* A concurrent listener, whose first region is not registered before the main thread allows it. */
static struct {
	atomic_uintptr_t at; /* that region */
	atomic_bool may_end, has_ended, freed;
	atomic_int known;
} slow;

static void slow_added(void *ctx, void *addr, size_t len)
{
	uintptr_t none = 0;

	if (atomic_compare_exchange_strong(&slow.at, &none, (uintptr_t)addr)) {
		while (!atomic_load(&slow.may_end)) {
			sched_yield();
		}
		atomic_store(&slow.has_ended, true);
	}
	slow.known++;
}

static void slow_removed(void *ctx, void *addr, size_t len)
{
	CHECK((uintptr_t)addr != atomic_load(&slow.at) || atomic_load(&slow.has_ended));
	slow.known--;
}

static struct env_mem_listener slow_listener = {.concurrent = true, .add = slow_added, .remove = slow_removed};

static void *listen_slowly(void *unused)
{
	return (void *)(intptr_t)env_mem_listen(&slow_listener);
}

static void *remove_slow_region(void *unused)
{
	CHECK(env_region_remove((void *)atomic_load(&slow.at)) == 0);
	atomic_store(&slow.freed, true);
	return NULL;
}

static void child_memory_beside_one_region(void)
{
	static uint8_t first[2 * MB] __attribute__((aligned(2 * MB))); /* of which no allocator knows */
	struct env_opts opts = opts_for_tests();
	struct env_mem_stats s;
	pthread_t listening, removing;
	void *rc;

	alarm(120); /* a deadlock ends the child */
	opts.mem_mb = 16;
	CHECK(starts(&opts));
	env_mem_stats(&s);
	CHECK(pthread_create(&listening, NULL, listen_slowly, NULL) == 0);
	while (atomic_load(&slow.at) == 0) {
		sched_yield();
	}
	/* Others allocate, free and count, and the listener is told of it. */
	void *mine = env_dma_zmalloc(4 << 20, 0, -1), *more = env_dma_zmalloc(4 << 20, 0, -1);
	CHECK(mine != NULL && more != NULL && atomic_load(&slow.known) == 2);
	env_dma_free(more);
	CHECK(atomic_load(&slow.known) == 1);
	CHECK(env_region_add(first, sizeof(first), ENV_REGION_MAPPED) == 0);
	CHECK(atomic_load(&slow.known) == 2);
	CHECK(env_region_remove(first) == 0);
	/* The end of that region waits, and keeps nobody from anything. */
	CHECK(pthread_create(&removing, NULL, remove_slow_region, NULL) == 0);
	for (unsigned i = 0; i < 1000; i++) {
		env_dma_free(env_dma_zmalloc(4 << 20, 0, -1));
		sched_yield();
	}
	CHECK(!atomic_load(&slow.freed));
	atomic_store(&slow.may_end, true);
	CHECK(pthread_join(listening, &rc) == 0 && rc == NULL);
	CHECK(pthread_join(removing, NULL) == 0);
	CHECK(atomic_load(&slow.freed) && atomic_load(&slow.has_ended));
	env_mem_stats(&s);
	CHECK(atomic_load(&slow.known) == (int)s.regions);
	env_mem_unlisten(&slow_listener);
	CHECK(atomic_load(&slow.known) == 0);
}

static void test_only_the_end_of_a_region_waits_for_its_registration(void)
{
	CU_ASSERT(child_passed(child_start(child_memory_beside_one_region)));
}

#define NO_REGION_IS_SLOW UINTPTR_MAX

static void *allocate_slowly(void *unused)
{
	return env_dma_zmalloc(4 << 20, 0, -1);
}

static void *unlisten_slowly(void *unused)
{
	env_mem_unlisten(&slow_listener);
	CHECK(atomic_load(&slow.has_ended));
	atomic_store(&slow.freed, true);
	return NULL;
}

static struct env_mem_listener beside_slow = {.concurrent = true, .add = beside_added, .remove = beside_removed};

static void child_memory_beside_a_new_region(void)
{
	struct env_opts opts = opts_for_tests();
	struct env_mem_stats before, s;
	pthread_t allocating, unlistening;
	void *block;

	alarm(120); /* a deadlock ends the child */
	opts.mem_mb = 16;
	CHECK(starts(&opts));
	atomic_store(&slow.at, NO_REGION_IS_SLOW);
	CHECK(env_mem_listen(&slow_listener) == 0);
	atomic_store(&slow.at, 0);
	env_mem_stats(&before);
	CHECK(pthread_create(&allocating, NULL, allocate_slowly, NULL) == 0);
	while (atomic_load(&slow.at) == 0) {
		sched_yield();
	}
	/* Others allocate, free and count; a device that comes is told of that region, and of those that come. */
	void *mine = env_dma_zmalloc(4 << 20, 0, -1), *more = env_dma_zmalloc(4 << 20, 0, -1);
	CHECK(mine != NULL && more != NULL && env_iova(mine, NULL) != ENV_IOVA_BAD);
	env_dma_free(more);
	env_mem_stats(&s);
	CHECK(s.regions == before.regions + 2 && atomic_load(&slow.known) == (int)before.regions + 1);
	CHECK(env_region_add((void *)atomic_load(&slow.at), 4 * MB, ENV_REGION_MAPPED) == -EEXIST);
	beside.added = 1; /* this one does not wait */
	CHECK(env_mem_listen(&beside_slow) == 0);
	CHECK(beside.known == (int)s.regions);
	env_mem_unlisten(&beside_slow);
	CHECK(beside.known == 0);
	/* It is not told a second time while it is told. */
	env_mem_repeat(&slow_listener);
	CHECK(atomic_load(&slow.known) == 2 * ((int)before.regions + 1));
	atomic_fetch_sub(&slow.known, (int)before.regions + 1);
	/* The end of the listener waits, and keeps nobody from anything. */
	CHECK(pthread_create(&unlistening, NULL, unlisten_slowly, NULL) == 0);
	for (unsigned i = 0; i < 1000; i++) {
		env_dma_free(env_dma_zmalloc(4 << 20, 0, -1));
		sched_yield();
	}
	CHECK(!atomic_load(&slow.freed));
	atomic_store(&slow.may_end, true);
	CHECK(pthread_join(unlistening, NULL) == 0);
	CHECK(pthread_join(allocating, &block) == 0 && block != NULL && (uintptr_t)block == atomic_load(&slow.at));
	CHECK(atomic_load(&slow.freed) && atomic_load(&slow.known) == 0);
	env_dma_free(mine);
	env_dma_free(block);
	env_mem_stats(&s);
	CHECK(s.regions == before.regions && env_iova(block, NULL) == ENV_IOVA_BAD);
	env_fini();
}

static void test_a_new_region_keeps_others_waiting_for_nothing(void)
{
	CU_ASSERT(child_passed(child_start(child_memory_beside_a_new_region)));
}

static const struct unit_test tests[] = {
	UNIT(test_memory_is_allocated_while_a_device_registers_what_there_is),
	UNIT(test_only_the_end_of_a_region_waits_for_its_registration),
	UNIT(test_a_new_region_keeps_others_waiting_for_nothing),
	UNIT_END,
};

static int setup(void)
{
	log_set_print_level(LOG_LEVEL_DISABLED);
	return 0;
}

UNIT_MAIN("regions", tests, setup, NULL)
