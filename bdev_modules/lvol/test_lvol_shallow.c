/* SPDX-License-Identifier: BSD-3-Clause */
/* Shallow copies: what is written, and what ends them. */
#include <errno.h>
#include <string.h>

#include "bdev_modules/lvol/internal.h"
#include "bdev_modules/lvol/test_lvol_kit.h"

static struct bdev_lvol_shallow_copy now;

static bool has_ended(void *id)
{
	return bdev_lvol_shallow_copy_get(*(const uint32_t *)id, &now) && now.has_ended;
}

/* Its error; progress is in `now`. */
static int copy_wait(uint32_t id)
{
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_ended, &id));
	return now.error;
}

/* A snapshot "s" of a snapshot: cluster 0 is of the older one, 1 and 3 are its own; and a target full of 0xdd. */
static void begin(struct user *u)
{
	store_on_malloc();
	CU_ASSERT_EQUAL_FATAL(volume_make("v", VOLUME_BYTES, true), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(u, "lvs/v", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(fill(u, 1, 0, CLUSTER_BLOCKS), 0);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_SNAPSHOT, "lvs/v", "older", 0), 0);
	CU_ASSERT_EQUAL(fill(u, 2, CLUSTER_BLOCKS, CLUSTER_BLOCKS), 0);
	CU_ASSERT_EQUAL(fill(u, 3, 3 * CLUSTER_BLOCKS + 1, 1), 0);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_SNAPSHOT, "lvs/v", "s", 0), 0);
}

static void end(struct user *u)
{
	user_close(u);
	store_off_malloc();
}

static void target_fill(const char *name)
{
	struct user u;

	CU_ASSERT_EQUAL_FATAL(user_open(&u, name, true, fixture_thread(1)), 0);
	for (unsigned i = 0; i < 5 * CLUSTER_BLOCKS; i += CLUSTER_BLOCKS) {
		CU_ASSERT_EQUAL_FATAL(fill(&u, 0xdd, i, CLUSTER_BLOCKS), 0);
	}
	user_close(&u);
}

static void test_own_clusters_are_copied_and_no_others(void)
{
	struct user u, t, w;
	uint32_t id, other;

	begin(&u);
	make_malloc("t", BLOCK, VOLUME_BLOCKS + 1);
	target_fill("t");
	wait_for_examine();
	CU_ASSERT_EQUAL_FATAL(bdev_lvol_shallow_copy_start("lvs/s", "t", &id, error), 0);
	CU_ASSERT_EQUAL(bdev_lvol_shallow_copy_start("lvs/s", "t", &other, error), -EPERM); /* claimed */
	CU_ASSERT_EQUAL(user_open(&w, "t", true, fixture_thread(1)), -EPERM);
	CU_ASSERT_EQUAL(copy_wait(id), 0);
	CU_ASSERT_TRUE(now.copied_clusters == 2 && now.total_clusters == 2);
	CU_ASSERT_EQUAL_FATAL(user_open(&t, "t", true, fixture_thread(1)), 0);
	CU_ASSERT_TRUE(holds(&t, 0xdd, 0, CLUSTER_BLOCKS) && holds(&t, 2, CLUSTER_BLOCKS, CLUSTER_BLOCKS));
	CU_ASSERT_TRUE(holds(&t, 0xdd, 2 * CLUSTER_BLOCKS, CLUSTER_BLOCKS));
	CU_ASSERT_TRUE(holds(&t, 0, 3 * CLUSTER_BLOCKS, 1) && holds(&t, 3, 3 * CLUSTER_BLOCKS + 1, 1));
	CU_ASSERT_TRUE(holds(&t, 0xdd, 4 * CLUSTER_BLOCKS, CLUSTER_BLOCKS));
	user_close(&t);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "t"), 0);
	CU_ASSERT_FALSE(bdev_lvol_shallow_copy_get(id + 1, &now));
	end(&u);
}

static void test_what_cannot_be_copied_is_refused(void)
{
	struct user u;
	uint32_t id = 0;

	begin(&u);
	make_malloc("t", BLOCK, VOLUME_BLOCKS);
	make_malloc("small", BLOCK, VOLUME_BLOCKS - 1);
	wait_for_examine();
	CU_ASSERT_EQUAL(bdev_lvol_shallow_copy_start("lvs/nobody", "t", &id, error), -ENODEV);
	CU_ASSERT_EQUAL(bdev_lvol_shallow_copy_start("t", "t", &id, error), -ENODEV);
	CU_ASSERT_EQUAL(bdev_lvol_shallow_copy_start("lvs/s", "nobody", &id, error), -ENODEV);
	CU_ASSERT_EQUAL(bdev_lvol_shallow_copy_start("lvs/v", "t", &id, error), -EPERM);
	CU_ASSERT_EQUAL(bdev_lvol_shallow_copy_start("lvs/s", "small", &id, error), -EINVAL);
	CU_ASSERT_EQUAL(bdev_lvol_shallow_copy_start("lvs/s", "lvs/s", &id, error), -EROFS);
	CU_ASSERT_EQUAL(bdev_lvol_shallow_copy_start("lvs/s", "m0", &id, error), -EPERM);
	CU_ASSERT_EQUAL(id, 0);
	CU_ASSERT_EQUAL(bdev_get_claim(bdev_find("t"), NULL), BDEV_CLAIM_NONE);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "t"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "small"), 0);
	end(&u);
}

static struct testdev *target_on_testdev(void)
{
	struct testdev *t = testdev_new("t1", BLOCK, VOLUME_BLOCKS);

	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	wait_for_examine();
	return t;
}

static void test_an_error_of_the_target_ends_a_copy(void)
{
	struct user u;
	uint32_t id;

	begin(&u);
	struct testdev *t = target_on_testdev();
	t->fail_status = NVME_SC_INTERNAL;
	CU_ASSERT_EQUAL_FATAL(bdev_lvol_shallow_copy_start("lvs/s", "t1", &id, error), 0);
	CU_ASSERT_EQUAL(copy_wait(id), -EIO);
	CU_ASSERT_TRUE(now.copied_clusters == 0 && now.total_clusters == 2);
	t->fail_status = 0;
	CU_ASSERT_EQUAL_FATAL(bdev_lvol_shallow_copy_start("lvs/s", "t1", &id, error), 0);
	CU_ASSERT_EQUAL(copy_wait(id), 0);
	CU_ASSERT_TRUE(testdev_delete(t));
	end(&u);
}

/* The target goes before the first piece has been written. */
static void test_a_target_that_goes_ends_a_copy(void)
{
	struct user u;
	uint32_t id;

	begin(&u);
	struct testdev *t = target_on_testdev();
	CU_ASSERT_EQUAL_FATAL(bdev_lvol_shallow_copy_start("lvs/s", "t1", &id, error), 0);
	CU_ASSERT_TRUE(testdev_delete(t));
	CU_ASSERT_EQUAL(copy_wait(id), -ENODEV);
	CU_ASSERT_TRUE(now.copied_clusters < 2);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_DELETE, "lvs/s", NULL, 0), 0);
	end(&u);
}

/* Deleted while a write of the copy is with the target; the parent of what is copied may go before. */
static void test_a_volume_that_is_deleted_ends_its_copy(void)
{
	struct operation op;
	struct user u;
	uint32_t id;

	begin(&u);
	struct testdev *t = target_on_testdev();
	atomic_store(&t->held, 0);
	t->hold = true;
	CU_ASSERT_EQUAL_FATAL(bdev_lvol_shallow_copy_start("lvs/s", "t1", &id, error), 0);
	CU_ASSERT_TRUE_FATAL(fixture_wait_count(&t->held, 1));
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_DELETE, "lvs/older", NULL, 0), 0);
	change_start(&op, BDEV_LVOL_DELETE, "lvs/s", NULL, 0);
	CU_ASSERT_TRUE(bdev_lvol_shallow_copy_get(id, &now) && now.total_clusters == 2);
	t->hold = false;
	CU_ASSERT_EQUAL(operation_wait(&op), 0);
	CU_ASSERT_EQUAL(copy_wait(id), -ENODEV);
	CU_ASSERT_TRUE(holds(&u, 1, 0, CLUSTER_BLOCKS) && holds(&u, 2, CLUSTER_BLOCKS, CLUSTER_BLOCKS));
	CU_ASSERT_TRUE(testdev_delete(t));
	end(&u);
}

/* Those that have ended are known until there are many newer ones. */
static void test_old_copies_are_forgotten(void)
{
	struct user u;
	uint32_t first = 0, id = 0;

	begin(&u);
	make_malloc("t", BLOCK, VOLUME_BLOCKS);
	wait_for_examine();
	for (unsigned i = 0; i < 33; i++) {
		CU_ASSERT_EQUAL_FATAL(bdev_lvol_shallow_copy_start("lvs/s", "t", &id, error), 0);
		CU_ASSERT_EQUAL(copy_wait(id), 0);
		first = i == 0 ? id : first;
		CU_ASSERT_EQUAL(id, first + i);
	}
	CU_ASSERT_FALSE(bdev_lvol_shallow_copy_get(first, &now));
	CU_ASSERT_TRUE(bdev_lvol_shallow_copy_get(id, &now) && now.copied_clusters == 2);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "t"), 0);
	end(&u);
}

static const struct unit_test tests[] = {
	UNIT(test_own_clusters_are_copied_and_no_others),
	UNIT(test_what_cannot_be_copied_is_refused),
	UNIT(test_an_error_of_the_target_ends_a_copy),
	UNIT(test_a_target_that_goes_ends_a_copy),
	UNIT(test_a_volume_that_is_deleted_ends_its_copy),
	UNIT(test_old_copies_are_forgotten),
	UNIT_END,
};
UNIT_MAIN("bdev_lvol_shallow", tests, fixture_start, fixture_stop)
