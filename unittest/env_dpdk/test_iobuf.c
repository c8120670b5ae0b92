/* SPDX-License-Identifier: BSD-3-Clause */
/* Data buffers. Each test starts and ends without users, so each sets the options it wants. */
#include "unittest/unit.h"

#include <errno.h>
#include <rte_ring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "env_dpdk/env.h"
#include "env_dpdk/iobuf.h"

static char error[ENV_ERROR_MAX];
static struct iobuf_module module = {.name = "unit"}, other = {.name = "another"};

static int setup(void)
{
	struct env_opts o = {.name = "unit-iobuf", .instance_id = -1, .no_huge = true, .no_pci = true};
	int rc = env_init(&o, error);

	if (rc != 0) {
		printf("%s\n", error);
	}
	iobuf_module_register(&module);
	iobuf_module_register(&other);
	iobuf_module_register(&module);
	return rc;
}

static int teardown(void)
{
	env_fini();
	return 0;
}

static void set_counts(uint64_t small, uint64_t large)
{
	struct iobuf_opts o;

	iobuf_get_opts(&o);
	o.small_pool_count = small;
	o.large_pool_count = large;
	CU_ASSERT_EQUAL_FATAL(iobuf_set_opts(&o, error), 0);
}

static struct iobuf_channel_opts small_channel(uint32_t floor, uint32_t keep)
{
	struct iobuf_channel_opts o = {.module = &module};

	o.class[IOBUF_SMALL].floor = floor;
	o.class[IOBUF_SMALL].keep = keep;
	return o;
}

/* Takes small buffers until there are no more; how many. */
static unsigned take_all(struct iobuf_channel *ch, void **taken)
{
	unsigned n = 0;

	while (iobuf_has(ch, IOBUF_SMALL, 1)) {
		taken[n++] = iobuf_take(ch, IOBUF_SMALL);
	}
	return n;
}

static void put_all(struct iobuf_channel *ch, void **taken, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		iobuf_put(ch, IOBUF_SMALL, taken[i]);
	}
}

static void test_options_out_of_range_are_refused_by_name_and_value(void)
{
	static const struct {
		struct iobuf_opts o;
		const char *words;
	} bad[] = {
		{{63, 1024, 8192, 135168, false}, "small_pool_count is 63: allowed are 64 to 4194304"},
		{{8192, 7, 8192, 135168, false}, "large_pool_count is 7: allowed are 8 to 4194304"},
		{{UINT64_MAX, 1024, 8192, 135168, false}, "small_pool_count is 18446744073709551615"},
		{{8192, 1024, 4095, 135168, false}, "small_bufsize is 4095: allowed are 4096 to 16777216"},
		{{8192, 1024, 8192, 8191, false}, "large_bufsize is 8191: allowed are 8192 to 16777216"},
		{{8192, 1024, 16384, 8192, false},
		 "small_bufsize is 16384: allowed are at most large_bufsize, 8192 bytes"},
	};
	struct iobuf_opts before, after;

	iobuf_get_opts(&before);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CU_ASSERT_EQUAL(iobuf_set_opts(&bad[i].o, error), -EINVAL);
		CU_ASSERT_PTR_NOT_NULL(strstr(error, bad[i].words));
	}
	iobuf_get_opts(&after);
	CU_ASSERT_EQUAL(before.small_pool_count, after.small_pool_count);
	CU_ASSERT_EQUAL(before.large_bufsize, after.large_bufsize);
}

static void test_buffers_are_aligned_apart_and_can_be_written(void)
{
	struct iobuf_channel_opts o = small_channel(4, 8);
	struct iobuf_channel ch;
	void *taken[2][16];

	set_counts(64, 8);
	o.class[IOBUF_LARGE].floor = 2;
	CU_ASSERT_EQUAL_FATAL(iobuf_channel_create(&ch, &o, error), 0);
	CU_ASSERT_EQUAL(iobuf_class_of(&ch, 8192), IOBUF_SMALL);
	CU_ASSERT_EQUAL(iobuf_class_of(&ch, 8193), IOBUF_LARGE);
	for (unsigned class = 0; class < IOBUF_CLASSES; class ++) {
		for (unsigned i = 0; i < 8; i++) {
			CU_ASSERT_FATAL(iobuf_has(&ch, class, 1));
			taken[class][i] = iobuf_take(&ch, class);
			CU_ASSERT_EQUAL((uintptr_t)taken[class][i] % IOBUF_ALIGN, 0);
			memset(taken[class][i], (int)(class * 8 + i), iobuf_size(class));
		}
	}
	for (unsigned class = 0; class < IOBUF_CLASSES; class ++) {
		for (unsigned i = 0; i < 8; i++) {
			const uint8_t *b = taken[class][i];
			CU_ASSERT(b[0] == class * 8 + i && b[iobuf_size(class) - 1] == class * 8 + i);
			iobuf_put(&ch, class, taken[class][i]);
		}
	}
	iobuf_channel_destroy(&ch);
}

static void test_the_buffer_used_last_is_used_next(void)
{
	struct iobuf_channel_opts o = small_channel(1, 8);
	struct iobuf_channel ch;

	CU_ASSERT_EQUAL_FATAL(iobuf_channel_create(&ch, &o, error), 0);
	CU_ASSERT_FATAL(iobuf_has(&ch, IOBUF_SMALL, 1));
	void *first = iobuf_take(&ch, IOBUF_SMALL);
	iobuf_put(&ch, IOBUF_SMALL, first);
	CU_ASSERT_FATAL(iobuf_has(&ch, IOBUF_SMALL, 1));
	CU_ASSERT_PTR_EQUAL(iobuf_take(&ch, IOBUF_SMALL), first);
	iobuf_put(&ch, IOBUF_SMALL, first);
	iobuf_channel_destroy(&ch);
}

static void test_a_channel_has_its_floor_whatever_another_takes(void)
{
	struct iobuf_channel_opts o = small_channel(6, 6);
	struct iobuf_channel greedy, modest;
	static void *taken[64], *own[64];

	set_counts(64, 8);
	CU_ASSERT_EQUAL_FATAL(iobuf_channel_create(&greedy, &o, error), 0);
	CU_ASSERT_EQUAL_FATAL(iobuf_channel_create(&modest, &o, error), 0);
	unsigned n = take_all(&greedy, taken);
	CU_ASSERT_EQUAL(n, 64 - 6);
	for (unsigned round = 0; round < 100; round++) {
		CU_ASSERT(iobuf_has(&modest, IOBUF_SMALL, 6));
		CU_ASSERT_EQUAL(take_all(&modest, own), 6);
		put_all(&modest, own, 6);
	}
	put_all(&greedy, taken, n);
	/* what one gives back the other gets, but for what the first keeps at hand */
	n = take_all(&modest, own);
	CU_ASSERT(n >= 64 - (2 * 6 + 6 + 1));
	put_all(&modest, own, n);
	iobuf_channel_destroy(&greedy);
	iobuf_channel_destroy(&modest);
}

static void test_the_reserve_is_apart_and_is_filled_first(void)
{
	struct iobuf_channel_opts o = small_channel(4, 4);
	struct iobuf_channel ch;
	static void *taken[64];

	o.reserve = IOBUF_RESERVE_MAX;
	set_counts(64, 8);
	CU_ASSERT_EQUAL_FATAL(iobuf_channel_create(&ch, &o, error), 0);
	unsigned n = take_all(&ch, taken);
	CU_ASSERT_EQUAL(n, 64 - IOBUF_RESERVE_MAX);
	CU_ASSERT_EQUAL_FATAL(ch.reserved_count, IOBUF_RESERVE_MAX);
	void *one = iobuf_take_reserved(&ch);
	iobuf_put(&ch, IOBUF_SMALL, one);
	CU_ASSERT(!iobuf_has(&ch, IOBUF_SMALL, 1));
	CU_ASSERT_EQUAL(ch.reserved_count, IOBUF_RESERVE_MAX);
	put_all(&ch, taken, n);
	iobuf_channel_destroy(&ch);
}

static void test_a_limit_holds_for_its_channels_together(void)
{
	struct iobuf_channel_opts o = small_channel(2, 4);
	struct iobuf_channel a, b, free_one;
	struct iobuf_limit limit;
	static void *ta[256], *tb[256], *tf[256];

	set_counts(200, 8);
	CU_ASSERT_EQUAL_FATAL(iobuf_limit_create(&limit, IOBUF_SMALL, 40, error), 0);
	CU_ASSERT_EQUAL_FATAL(iobuf_channel_create(&free_one, &o, error), 0);
	o.limit = &limit;
	CU_ASSERT_EQUAL_FATAL(iobuf_channel_create(&a, &o, error), 0);
	CU_ASSERT_EQUAL_FATAL(iobuf_channel_create(&b, &o, error), 0);
	unsigned na = take_all(&a, ta), nb = take_all(&b, tb), nf = take_all(&free_one, tf);
	CU_ASSERT_EQUAL(na + nb, 40);
	CU_ASSERT(nf >= 60); /* what is not limited goes on */
	put_all(&a, ta, na);
	put_all(&b, tb, nb);
	put_all(&free_one, tf, nf);
	iobuf_channel_destroy(&a);
	iobuf_channel_destroy(&b);
	CU_ASSERT_EQUAL(limit.left, 40);
	iobuf_limit_destroy(&limit);
	iobuf_channel_destroy(&free_one);
}

static void test_a_pool_that_is_too_small_says_which_option(void)
{
	struct iobuf_channel_opts o = small_channel(40, 40);
	struct iobuf_channel a, b;

	set_counts(64, 8);
	CU_ASSERT_EQUAL_FATAL(iobuf_channel_create(&a, &o, error), 0);
	CU_ASSERT_EQUAL(iobuf_channel_create(&b, &o, error), -ENOMEM);
	CU_ASSERT_PTR_NOT_NULL(strstr(
		error, "unit needs 40 data buffers of 8192 bytes for itself and got 24: small_pool_count of 64"));
	iobuf_channel_destroy(&b); /* as an owner does that has no flag for it */
	/* and what the failed one had got is back */
	static void *taken[64];
	unsigned n = take_all(&a, taken);
	CU_ASSERT_EQUAL(n, 64);
	put_all(&a, taken, n);
	iobuf_channel_destroy(&a);
}

static void test_options_are_fixed_while_there_are_users_and_memory_goes_with_the_last(void)
{
	struct iobuf_channel_opts o = small_channel(4, 64);
	struct iobuf_channel ch;
	struct iobuf_opts opts;
	struct env_mem_stats before, during, after;

	set_counts(8192, 1024);
	env_mem_stats(&before);
	CU_ASSERT_EQUAL_FATAL(iobuf_channel_create(&ch, &o, error), 0);
	env_mem_stats(&during);
	CU_ASSERT(during.dma_bytes > before.dma_bytes);
	/* not the pool, but what is needed of it */
	CU_ASSERT(during.dma_bytes - before.dma_bytes < (UINT64_C(8) << 20));
	iobuf_get_opts(&opts);
	CU_ASSERT_EQUAL(iobuf_set_opts(&opts, error), -EBUSY);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "in use"));
	iobuf_channel_destroy(&ch);
	env_mem_stats(&after);
	CU_ASSERT_EQUAL(after.mapped_bytes, before.mapped_bytes);
	CU_ASSERT_EQUAL(iobuf_set_opts(&opts, error), 0);
}

static void test_more_than_there_is_memory_for_is_refused(void)
{
	struct iobuf_opts o = {.small_pool_count = IOBUF_COUNT_MAX,
			       .large_pool_count = IOBUF_COUNT_MAX,
			       .small_bufsize = IOBUF_SIZE_MAX,
			       .large_bufsize = IOBUF_SIZE_MAX};
	struct iobuf_limit limit;

	CU_ASSERT_EQUAL_FATAL(iobuf_set_opts(&o, error), 0);
	/* 64 TB */
	CU_ASSERT_EQUAL(iobuf_limit_create(&limit, IOBUF_SMALL, (uint32_t)IOBUF_COUNT_MAX, error), -ENOMEM);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "no memory for 4194304 data buffers of 16777216 bytes"));
	struct iobuf_channel_opts co = small_channel(1, (uint32_t)IOBUF_COUNT_MAX);
	struct iobuf_channel ch;
	CU_ASSERT_EQUAL(iobuf_channel_create(&ch, &co, error), -ENOMEM);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "(of which there is memory for 0)"));
	o = (struct iobuf_opts){
		.small_pool_count = 8192, .large_pool_count = 1024, .small_bufsize = 8192, .large_bufsize = 135168};
	CU_ASSERT_EQUAL(iobuf_set_opts(&o, error), 0);
}

struct seen {
	char names[64];
	struct iobuf_stat unit[IOBUF_CLASSES];
};

static void see(void *arg, const char *name, const struct iobuf_stat *stat)
{
	struct seen *s = arg;

	strcat(strcat(s->names, name), " ");
	if (strcmp(name, "unit") == 0) {
		memcpy(s->unit, stat, sizeof(s->unit));
	}
}

static void test_the_statistics_count_every_get_once(void)
{
	struct iobuf_channel_opts o = small_channel(4, 8);
	struct iobuf_channel ch;
	static void *taken[64];
	struct seen before = {0}, s = {0};

	set_counts(64, 8);
	iobuf_for_each_module(see, &before);
	CU_ASSERT_STRING_EQUAL(before.names, "another unit ");
	CU_ASSERT_EQUAL_FATAL(iobuf_channel_create(&ch, &o, error), 0);
	/* four are at hand; the fifth has the main pool asked, for eight more to keep */
	for (unsigned i = 0; i < 5 + 8; i++) {
		CU_ASSERT_FATAL(iobuf_has(&ch, IOBUF_SMALL, 1));
		taken[i] = iobuf_take(&ch, IOBUF_SMALL);
	}
	iobuf_waits(&ch, IOBUF_SMALL);
	iobuf_waits(&ch, IOBUF_LARGE);
	put_all(&ch, taken, 13);
	for (unsigned living = 0; living < 2; living++) {
		s = (struct seen){0};
		iobuf_for_each_module(see, &s);
		CU_ASSERT_EQUAL(s.unit[IOBUF_SMALL].cache - before.unit[IOBUF_SMALL].cache, 12);
		CU_ASSERT_EQUAL(s.unit[IOBUF_SMALL].main - before.unit[IOBUF_SMALL].main, 1);
		CU_ASSERT_EQUAL(s.unit[IOBUF_SMALL].retry - before.unit[IOBUF_SMALL].retry, 1);
		CU_ASSERT_EQUAL(s.unit[IOBUF_LARGE].retry - before.unit[IOBUF_LARGE].retry, 1);
		iobuf_channel_destroy(&ch); /* the second time nothing: it is gone, what it counted is not */
	}
}

static unsigned in_use(void)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);
	unsigned n = UINT32_MAX;

	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	iobuf_dump(f);
	fclose(f);
	const char *at = strstr(text, " at hand of threads, ");
	if (at != NULL) {
		sscanf(at, " at hand of threads, %u in use", &n);
	}
	free(text);
	return n;
}

static void test_the_dump_tells_buffers_in_use_from_those_at_hand(void)
{
	struct iobuf_channel a, b;
	struct iobuf_channel_opts o = small_channel(4, 8);
	void *taken[512];

	set_counts(128, 8);
	o.reserve = 2;
	CU_ASSERT_EQUAL_FATAL(iobuf_channel_create(&a, &o, error), 0);
	o.module = &other;
	CU_ASSERT_EQUAL_FATAL(iobuf_channel_create(&b, &o, error), 0);
	CU_ASSERT_EQUAL(in_use(), 0);
	unsigned n = take_all(&a, taken);
	CU_ASSERT_EQUAL(in_use(), n);
	put_all(&a, taken + 3, n - 3);
	CU_ASSERT_EQUAL(in_use(), 3);
	put_all(&a, taken, 3);
	CU_ASSERT_EQUAL(in_use(), 0);
	iobuf_channel_destroy(&a);
	CU_ASSERT_EQUAL(in_use(), 0);
	iobuf_channel_destroy(&b);
}

static void test_pools_per_numa_node_work_with_one_node_too(void)
{
	struct iobuf_opts o;
	struct iobuf_limit limit;
	struct iobuf_channel_opts co = small_channel(4, 8);
	struct iobuf_channel ch;
	static void *taken[256];

	iobuf_get_opts(&o);
	o.enable_numa = true;
	o.small_pool_count = 256;
	CU_ASSERT_EQUAL_FATAL(iobuf_set_opts(&o, error), 0);
	CU_ASSERT_EQUAL_FATAL(iobuf_limit_create(&limit, IOBUF_SMALL, 200, error), 0);
	co.limit = &limit;
	CU_ASSERT_EQUAL_FATAL(iobuf_channel_create(&ch, &co, error), 0);
	unsigned n = take_all(&ch, taken);
	CU_ASSERT_EQUAL(n, 200);
	put_all(&ch, taken, n);
	iobuf_channel_destroy(&ch);
	iobuf_limit_destroy(&limit);
	o.enable_numa = false;
	CU_ASSERT_EQUAL(iobuf_set_opts(&o, error), 0);
}

/* What a thread has done to a main pool's ring when it is stopped in the midst of fetching a buffer, which it returns;
 * and what is missing. */
static void *fetch_begins(struct rte_ring *ring)
{
	volatile union __rte_ring_rts_poscnt *head = &ring->rts_cons.head;

	head->val.cnt++;
	return ((void **)(ring + 1))[head->val.pos++ & ring->mask];
}

static void fetch_ends(struct rte_ring *ring)
{
	ring->rts_cons.tail.raw = ring->rts_cons.head.raw;
}

static void test_a_thread_stopped_while_it_fetches_loses_nobody_a_buffer(void)
{
	struct iobuf_channel_opts o = small_channel(1, 4);
	struct iobuf_channel ch;
	void *taken[127], *other_has;

	set_counts(127, 8); /* a ring's length is a power of two, and one place of it stays empty */
	CU_ASSERT_EQUAL_FATAL(iobuf_channel_create(&ch, &o, error), 0);
	struct rte_ring *ring = *(struct rte_ring **)ch.cache[IOBUF_SMALL].pool; /* its first member */
	other_has = fetch_begins(ring);
	for (unsigned i = 0; i < 12; i++) {
		CU_ASSERT_FATAL(iobuf_has(&ch, IOBUF_SMALL, 1));
		taken[i] = iobuf_take(&ch, IOBUF_SMALL);
	}
	put_all(&ch, taken, 12); /* more than it likes to keep */
	fetch_ends(ring);
	unsigned n = take_all(&ch, taken);
	CU_ASSERT_EQUAL(n, 126);
	put_all(&ch, taken, n);
	rte_ring_enqueue(ring, other_has);
	iobuf_channel_destroy(&ch);
}

static const struct unit_test tests[] = {
	UNIT(test_options_out_of_range_are_refused_by_name_and_value),
	UNIT(test_buffers_are_aligned_apart_and_can_be_written),
	UNIT(test_the_buffer_used_last_is_used_next),
	UNIT(test_a_channel_has_its_floor_whatever_another_takes),
	UNIT(test_the_reserve_is_apart_and_is_filled_first),
	UNIT(test_a_limit_holds_for_its_channels_together),
	UNIT(test_a_pool_that_is_too_small_says_which_option),
	UNIT(test_options_are_fixed_while_there_are_users_and_memory_goes_with_the_last),
	UNIT(test_more_than_there_is_memory_for_is_refused),
	UNIT(test_the_statistics_count_every_get_once),
	UNIT(test_the_dump_tells_buffers_in_use_from_those_at_hand),
	UNIT(test_pools_per_numa_node_work_with_one_node_too),
	UNIT(test_a_thread_stopped_while_it_fetches_loses_nobody_a_buffer),
	UNIT_END,
};
UNIT_MAIN("iobuf", tests, setup, teardown)
