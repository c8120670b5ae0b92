/* SPDX-License-Identifier: BSD-3-Clause */
/* Volumes as bdevs: what ends in another way than was meant. Nothing that it was counted in waits for it for ever. */
#include <errno.h>
#include <rte_common.h>
#include <string.h>

#include "bdev_modules/delay/delay.h"
#include "bdev_modules/lvol/internal.h"
#include "bdev_modules/lvol/test_lvol_kit.h"
#include "bdev_modules/passthru/passthru.h"

/* --- I/O that waits for a child --- */

#define CHILDREN 256u /* that a thread has at a base */
#define WAITERS  4u

/* Only the last ones wait, for a child: messages to a thread run in their order. */
static void write_more_than_children(struct user *u, struct testdev *t, struct request *r[])
{
	atomic_store(&t->held, 0);
	t->hold = true;
	for (unsigned i = 0; i < CHILDREN + WAITERS; i++) {
		r[i] = write_start(u, i % CLUSTER_BLOCKS);
	}
	CU_ASSERT_TRUE_FATAL(fixture_wait_count(&t->held, CHILDREN));
}

/* Counted wrongly, they would have each change of the volume wait, and each cluster that is given up. */
static void test_what_waited_for_a_child_is_not_counted_any_more(void)
{
	struct request *r[CHILDREN + WAITERS], **waiter = r + CHILDREN;
	struct user u, base;
	struct testdev *t = store_on_testdev(&u);
	struct operation op;

	watch_base(&base);
	write_more_than_children(&u, t, r);
	request_take_back(waiter[0]);
	CU_ASSERT_EQUAL(request_finish(waiter[0]), NVME_SC_ABORT_REQ);
	struct request *abort = abort_of(&u, waiter[1]);
	CU_ASSERT_EQUAL(request_run(abort), 0);
	CU_ASSERT_EQUAL(abort->cdw0, 0);
	request_free(abort);
	CU_ASSERT_EQUAL(request_finish(waiter[1]), NVME_SC_ABORT_REQ);
	struct request *reset = request_new(&u);
	reset->io->type = BDEV_IO_RESET;
	request_submit(reset);
	change_start(&op, BDEV_LVOL_SNAPSHOT, "lvs/v", "s", 0);
	/* While the base has all that it had. */
	CU_ASSERT_EQUAL(request_finish(waiter[2]), NVME_SC_ABORT_REQ);
	CU_ASSERT_EQUAL(request_finish(waiter[3]), NVME_SC_ABORT_REQ);
	t->hold = false; /* its poller completes what is held */
	for (unsigned i = 0; i < CHILDREN; i++) {
		CU_ASSERT_EQUAL(request_finish(r[i]), 0);
	}
	CU_ASSERT_EQUAL(request_finish(reset), 0);
	CU_ASSERT_EQUAL(operation_wait(&op), 0);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_DELETE, "lvs/s", NULL, 0), 0);
	/* Grace periods end, too. */
	uint32_t before = free_clusters();
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_UNMAP, NULL, 0, CLUSTER_BLOCKS), 0);
	before++;
	CU_ASSERT_TRUE(fixture_poll(has_free_clusters, &before));
	user_close(&base);
	store_off_testdev(t, &u);
}

/* A first write, WRITE_ZEROES and FLUSH wait as groups; the other volume has the same children. */
static void test_a_reset_ends_only_what_waits_for_its_volume(void)
{
	struct request *r[CHILDREN + WAITERS];
	struct user u, base, other;
	struct testdev *t = store_on_testdev(&u);

	CU_ASSERT_EQUAL_FATAL(volume_make("o", VOLUME_BYTES, true), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&other, "lvs/o", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(fill(&other, 1, 0, 1), 0);
	uint32_t before = free_clusters();
	watch_base(&base);
	write_more_than_children(&u, t, r);
	struct request *first = write_start(&u, 2 * CLUSTER_BLOCKS + 1), *theirs = write_start(&other, 0),
		       *theirs_first = write_start(&other, 2 * CLUSTER_BLOCKS), *reset = request_new(&u);
	struct request *zeroes = request_new(&u), *flush = request_new(&u);
	bdev_io_set_rw(zeroes->io, BDEV_IO_WRITE_ZEROES, NULL, 0, 0, 2);
	request_submit(zeroes);
	bdev_io_set_rw(flush->io, BDEV_IO_FLUSH, NULL, 0, 0, VOLUME_BLOCKS);
	request_submit(flush);
	reset->io->type = BDEV_IO_RESET;
	request_submit(reset);
	CU_ASSERT_EQUAL(request_finish(first), NVME_SC_ABORT_REQ);
	CU_ASSERT_EQUAL(request_finish(zeroes), NVME_SC_ABORT_REQ);
	CU_ASSERT_EQUAL(request_finish(flush), NVME_SC_ABORT_REQ);
	for (unsigned i = CHILDREN; i < CHILDREN + WAITERS; i++) {
		CU_ASSERT_EQUAL(request_finish(r[i]), NVME_SC_ABORT_REQ);
	}
	CU_ASSERT_FALSE(atomic_load(&theirs->done) || atomic_load(&theirs_first->done));
	t->hold = false;
	for (unsigned i = 0; i < CHILDREN; i++) {
		CU_ASSERT_EQUAL(request_finish(r[i]), 0);
	}
	CU_ASSERT_EQUAL(request_finish(theirs), 0);
	CU_ASSERT_EQUAL(request_finish(theirs_first), 0);
	CU_ASSERT_EQUAL(request_finish(reset), 0);
	/* The cluster that was not filled is free again. */
	before--;
	CU_ASSERT_TRUE(fixture_poll(has_free_clusters, &before));
	CU_ASSERT_EQUAL(fill(&u, 3, 2 * CLUSTER_BLOCKS, 1), 0);
	CU_ASSERT_TRUE(holds(&u, 0, 2 * CLUSTER_BLOCKS + 1, 1) && holds(&u, 3, 2 * CLUSTER_BLOCKS, 1));
	user_close(&base);
	user_close(&other);
	store_off_testdev(t, &u);
}

/* --- I/O that waits for a cluster --- */

/* Its thread goes before the cluster is there. */
static void test_a_thread_may_go_whose_io_waited_for_a_cluster(void)
{
	struct user u, base, other;
	struct testdev *t = store_on_testdev(&u);
	struct thread *short_lived = thread_create("short", NULL);

	watch_base(&base);
	CU_ASSERT_EQUAL_FATAL(user_open(&other, "lvs/v", true, short_lived), 0);
	atomic_store(&t->held, 0);
	t->hold = true;
	struct request *first = write_start(&u, CLUSTER_BLOCKS + 1);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 3)); /* it, and the zeroes around it */
	struct request *second = write_start(&other, CLUSTER_BLOCKS + 2);
	CU_ASSERT_TRUE(fixture_poll(something_waits, "first write to its cluster"));
	struct request *abort = abort_of(&other, second);
	CU_ASSERT_EQUAL(request_run(abort), 0);
	CU_ASSERT_EQUAL(abort->cdw0, 0);
	request_free(abort);
	CU_ASSERT_EQUAL(request_finish(second), NVME_SC_ABORT_REQ);
	user_close(&other);
	CU_ASSERT_EQUAL(thread_destroy(short_lived), 0);
	t->hold = false; /* its poller completes what is held */
	CU_ASSERT_EQUAL(request_finish(first), 0);
	user_close(&base);
	store_off_testdev(t, &u);
}

/* --- No memory --- */

static atomic_uint no_memory; /* so many allocations for devices fail */
void *__real_env_dma_malloc(size_t size, size_t align, int numa_node);
void *__wrap_env_dma_malloc(size_t size, size_t align, int numa_node);

void *__wrap_env_dma_malloc(size_t size, size_t align, int numa_node)
{
	if (atomic_load(&no_memory) > 0) {
		atomic_fetch_sub(&no_memory, 1);
		return NULL;
	}
	return __real_env_dma_malloc(size, align, numa_node);
}

static void test_metadata_are_written_when_there_is_memory_again(void)
{
	struct user u;

	store_on_malloc();
	CU_ASSERT_EQUAL_FATAL(volume_make("v", VOLUME_BYTES, true), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "lvs/v", true, fixture_thread(0)), 0);
	atomic_store(&no_memory, 3);
	CU_ASSERT_EQUAL(fill(&u, 1, 0, 1), 0);
	CU_ASSERT_EQUAL(atomic_load(&no_memory), 0);
	CU_ASSERT_EQUAL(fill(&u, 2, CLUSTER_BLOCKS, 1), 0);
	CU_ASSERT_FALSE(lvol_live_info(bdev_lvol_store_live(the_store())).failed);
	CU_ASSERT_TRUE(holds(&u, 1, 0, 1) && holds(&u, 2, CLUSTER_BLOCKS, 1));
	user_close(&u);
	store_off_malloc();
}

/* --- Examination --- */

static void test_a_bdev_that_does_not_answer_holds_nobody_up(void)
{
	struct testdev *t = testdev_new("t0", BLOCK, BASE_BLOCKS);
	const struct lvol_patience usual = lvol_patience;

	lvol_patience.probe_us = 1000;
	t->hold = t->deaf = true;
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	wait_for_examine();
	CU_ASSERT_EQUAL(atomic_load(&t->held), 1); /* it has not answered even now */
	lvol_patience = usual;
	t->hold = false; /* its poller completes what is held */
	CU_ASSERT_TRUE(testdev_delete(t));
}

static bool store_is_there(void *arg)
{
	return the_store() != NULL;
}

/* The store of m0, which is closed, and found again on a slow bdev. */
static void test_a_store_that_opens_slowly_holds_nobody_up(void)
{
	const struct lvol_patience usual = lvol_patience;

	make_malloc("m0", BLOCK, BASE_BLOCKS);
	CU_ASSERT_EQUAL_FATAL(bdev_passthru_create("p0", "m0", NULL, error), 0);
	wait_for_examine();
	CU_ASSERT_EQUAL_FATAL(store_make("p0"), 0);
	CU_ASSERT_EQUAL_FATAL(volume_make("v", VOLUME_BYTES, true), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "p0"), 0);
	lvol_patience.open_us = 1000;
	CU_ASSERT_EQUAL_FATAL(bdev_delay_create(&(struct bdev_delay_opts){.name = "d0",
									  .base_bdev_name = "m0",
									  .latency_us = {500000, 500000, 500000, 500000,
											 500000, 500000}},
						error),
			      0);
	wait_for_examine();
	CU_ASSERT_PTR_NULL(the_store());
	CU_ASSERT_TRUE(fixture_poll(store_is_there, NULL));
	CU_ASSERT_PTR_NOT_NULL(bdev_find("lvs/v"));
	lvol_patience = usual;
	CU_ASSERT_EQUAL(store_delete(), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_delay_delete, "d0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
}

static bool is_unclaimed(void *name)
{
	return bdev_get_claim(bdev_find(name), NULL) == BDEV_CLAIM_NONE;
}

static uint64_t writes_to(const char *name)
{
	struct bdev_stat stat;

	bdev_get_stat(bdev_find(name), &stat);
	return stat.class[BDEV_STAT_WRITE].ops;
}

/* A store that is closed, on t0; the copy of it that t1 is registered with is left as it is. */
static void test_a_second_sight_of_a_store_is_not_written_to(void)
{
	const size_t bytes = (size_t)BASE_BLOCKS * BLOCK;
	struct testdev *t = testdev_new("t0", BLOCK, BASE_BLOCKS), *twin = testdev_new("t1", BLOCK, BASE_BLOCKS);

	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	CU_ASSERT_EQUAL_FATAL(bdev_passthru_create("p0", "t0", NULL, error), 0);
	wait_for_examine();
	CU_ASSERT_EQUAL_FATAL(store_make("p0"), 0);
	CU_ASSERT_EQUAL_FATAL(volume_make("v", VOLUME_BYTES, true), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "p0"), 0);
	memcpy(twin->memory, t->memory, bytes);
	CU_ASSERT_EQUAL(bdev_examine("t0"), 0);
	wait_for_examine();
	CU_ASSERT_STRING_EQUAL(bdev_lvol_store_base(the_store()), "t0");
	CU_ASSERT_EQUAL_FATAL(testdev_register(twin), 0);
	wait_for_examine();
	CU_ASSERT_EQUAL(writes_to("t1"), 0);
	CU_ASSERT_STRING_EQUAL(bdev_lvol_store_base(the_store()), "t0");
	CU_ASSERT_TRUE(fixture_poll(is_unclaimed, (void *)(uintptr_t) "t1"));
	CU_ASSERT_EQUAL(store_delete(), 0);
	CU_ASSERT_EQUAL(bdev_examine("t1"), 0); /* now it is the only one */
	wait_for_examine();
	CU_ASSERT_STRING_EQUAL(bdev_lvol_store_base(the_store()), "t1");
	CU_ASSERT_EQUAL(store_delete(), 0);
	CU_ASSERT_TRUE(testdev_delete(t) && testdev_delete(twin));
}

static void test_a_volume_cannot_have_a_store(void)
{
	struct operation op = {0};

	store_on_malloc();
	CU_ASSERT_EQUAL_FATAL(volume_make("v", VOLUME_BYTES, true), 0);
	bdev_lvol_store_create(
		&(struct bdev_lvol_store_opts){.bdev_name = "lvs/v", .name = "inner", .cluster_bytes = CLUSTER},
		operation_ended, &op);
	CU_ASSERT_EQUAL(operation_wait(&op), -EINVAL);
	CU_ASSERT_EQUAL(bdev_get_claim(bdev_find("lvs/v"), NULL), BDEV_CLAIM_NONE);
	store_off_malloc();
}

/* --- Deletion --- */

/* Its users keep it, and learn why. */
static void test_a_deletion_that_is_refused_throws_nobody_out(void)
{
	struct user u, base;
	struct testdev *t = store_on_testdev(&u);
	struct operation inflate, op;

	watch_base(&base);
	atomic_store(&t->held, 0);
	t->hold = true;
	change_start(&inflate, BDEV_LVOL_INFLATE, "lvs/v", NULL, 0);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 1));
	change_start(&op, BDEV_LVOL_DELETE, "lvs/v", NULL, 0);
	CU_ASSERT_EQUAL(operation_wait(&op), -EBUSY);
	CU_ASSERT_PTR_NOT_NULL(strstr(op.why, "inflated"));
	CU_ASSERT_EQUAL(u.removes, 0);
	t->hold = false; /* its poller completes what is held */
	CU_ASSERT_EQUAL(operation_wait(&inflate), 0);
	CU_ASSERT_EQUAL(fill(&u, 1, 0, 1), 0);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_SNAPSHOT, "lvs/v", "s", 0), 0);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_CLONE, "lvs/s", "c", 0), 0);
	change_start(&op, BDEV_LVOL_DELETE, "lvs/s", NULL, 0);
	CU_ASSERT_EQUAL(operation_wait(&op), -EBUSY);
	CU_ASSERT_PTR_NOT_NULL(strstr(op.why, "several clones"));
	user_close(&base);
	store_off_testdev(t, &u);
}

/* --- Names --- */

static void store_rename_start(struct operation *op, const char *name)
{
	memset(op, 0, sizeof(*op));
	bdev_lvol_store_rename(the_store(), name, operation_ended, op);
}

static unsigned count_aliases(const char *name)
{
	const struct bdev *b = bdev_find(name);
	const char *alias = NULL;
	unsigned n = 0;

	while (b != NULL && (alias = bdev_alias_next(b, alias)) != NULL) {
		n++;
	}
	return n;
}

/* Both orders: a volume is renamed while its store is. */
static void test_a_store_and_its_volumes_are_renamed_at_once(void)
{
	struct operation store, v, w, again;

	store_on_malloc();
	CU_ASSERT_EQUAL_FATAL(volume_make("v", VOLUME_BYTES, true), 0);
	CU_ASSERT_EQUAL_FATAL(volume_make("w", VOLUME_BYTES, true), 0);
	struct bdev_lvol_store *s = the_store();
	change_start(&v, BDEV_LVOL_RENAME, "lvs/v", "v2", 0);
	store_rename_start(&store, "other");
	change_start(&w, BDEV_LVOL_RENAME, "lvs/w", "w2", 0);
	memset(&again, 0, sizeof(again));
	bdev_lvol_store_rename(s, "third", operation_ended, &again);
	CU_ASSERT_EQUAL(operation_wait(&again), -EBUSY);
	CU_ASSERT_EQUAL(operation_wait(&v), 0);
	CU_ASSERT_EQUAL(operation_wait(&store), 0);
	CU_ASSERT_EQUAL(operation_wait(&w), 0);
	CU_ASSERT_EQUAL(count_aliases("other/v2"), 1);
	CU_ASSERT_EQUAL(count_aliases("other/w2"), 1);
	const char *const old[] = {"lvs/v", "lvs/v2", "other/v", "lvs/w", "lvs/w2", "other/w"};
	for (unsigned i = 0; i < RTE_DIM(old); i++) {
		CU_ASSERT_PTR_NULL(bdev_find(old[i]));
	}
	memset(&store, 0, sizeof(store));
	bdev_lvol_store_rename(s, "lvs", operation_ended, &store);
	CU_ASSERT_EQUAL(operation_wait(&store), 0);
	store_off_malloc();
}

/* One that is being deleted gets no names any more, which nobody would take away. */
static void test_a_store_is_renamed_while_a_volume_goes(void)
{
	struct operation store, deletion;

	store_on_malloc();
	CU_ASSERT_EQUAL_FATAL(volume_make("v", VOLUME_BYTES, true), 0);
	CU_ASSERT_EQUAL_FATAL(volume_make("w", VOLUME_BYTES, true), 0);
	struct bdev_lvol_store *s = the_store();
	change_start(&deletion, BDEV_LVOL_DELETE, "lvs/v", NULL, 0);
	store_rename_start(&store, "other");
	CU_ASSERT_PTR_NULL(bdev_find("other/v"));
	CU_ASSERT_EQUAL(operation_wait(&deletion), 0);
	CU_ASSERT_EQUAL(operation_wait(&store), 0);
	CU_ASSERT_PTR_NULL(bdev_find("lvs/v"));
	CU_ASSERT_PTR_NULL(bdev_find("other/v"));
	CU_ASSERT_EQUAL(count_aliases("other/w"), 1);
	memset(&store, 0, sizeof(store));
	bdev_lvol_store_rename(s, "lvs", operation_ended, &store);
	CU_ASSERT_EQUAL(operation_wait(&store), 0);
	store_off_malloc();
}

static int delay_on(const char *base)
{
	return bdev_delay_create(&(struct bdev_delay_opts){.name = "d0", .base_bdev_name = base}, error);
}

static void test_a_bdev_that_waits_for_a_volumes_name_is_made(void)
{
	store_on_malloc();
	CU_ASSERT_EQUAL(delay_on("lvs/v"), 0);
	CU_ASSERT_PTR_NULL(bdev_find("d0"));
	CU_ASSERT_EQUAL_FATAL(volume_make("v", VOLUME_BYTES, true), 0);
	CU_ASSERT_PTR_NOT_NULL(bdev_find("d0"));
	CU_ASSERT_EQUAL(fixture_delete(bdev_delay_delete, "d0"), 0);
	CU_ASSERT_EQUAL(delay_on("lvs/v2"), 0);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_RENAME, "lvs/v", "v2", 0), 0);
	CU_ASSERT_PTR_NOT_NULL(bdev_find("d0"));
	CU_ASSERT_EQUAL(fixture_delete(bdev_delay_delete, "d0"), 0);
	store_off_malloc();
}

static bool waits_for_limit(void *r)
{
	return ((struct request *)r)->io->state == BDEV_IO_WAIT_QOS;
}

/* The layer let it pass when the volume could be written. */
static void test_a_write_that_waits_in_the_layer_does_not_change_a_volume_that_is_read_only_by_then(void)
{
	struct user u;
	struct testdev *t = store_on_testdev(&u);
	struct bdev *b = bdev_find("lvs/v");
	struct request *w[64];

	CU_ASSERT_EQUAL(fill(&u, 1, 0, CLUSTER_BLOCKS), 0);
	memset(data, 2, BLOCK);
	CU_ASSERT_EQUAL_FATAL(bdev_set_qos_limits(b, &(struct rate_limits){.rw_ios_per_sec = 1}), 0);
	for (unsigned i = 0; i < 64; i++) {
		w[i] = write_start(&u, 0);
	}
	CU_ASSERT_TRUE_FATAL(fixture_poll(waits_for_limit, w[63]));
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_SET_READ_ONLY, "lvs/v", NULL, 0), 0);
	CU_ASSERT_EQUAL(bdev_set_qos_limits(b, &(struct rate_limits){0}), 0);
	CU_ASSERT_EQUAL(request_finish(w[63]) & BDEV_STATUS_MASK, NVME_SC_NS_WRITE_PROTECTED);
	for (unsigned i = 0; i < 63; i++) {
		(void)request_finish(w[i]); /* the first ones may have been let through before */
	}
	store_off_testdev(t, &u);
}

static const struct unit_test tests[] = {
	UNIT(test_what_waited_for_a_child_is_not_counted_any_more),
	UNIT(test_a_reset_ends_only_what_waits_for_its_volume),
	UNIT(test_a_thread_may_go_whose_io_waited_for_a_cluster),
	UNIT(test_metadata_are_written_when_there_is_memory_again),
	UNIT(test_a_bdev_that_does_not_answer_holds_nobody_up),
	UNIT(test_a_store_that_opens_slowly_holds_nobody_up),
	UNIT(test_a_second_sight_of_a_store_is_not_written_to),
	UNIT(test_a_volume_cannot_have_a_store),
	UNIT(test_a_deletion_that_is_refused_throws_nobody_out),
	UNIT(test_a_store_and_its_volumes_are_renamed_at_once),
	UNIT(test_a_store_is_renamed_while_a_volume_goes),
	UNIT(test_a_bdev_that_waits_for_a_volumes_name_is_made),
	UNIT(test_a_write_that_waits_in_the_layer_does_not_change_a_volume_that_is_read_only_by_then),
	UNIT_END,
};
UNIT_MAIN("bdev_lvol_ends", tests, fixture_start, fixture_stop)
