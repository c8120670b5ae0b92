/* SPDX-License-Identifier: BSD-3-Clause */
/* Thresholds of space: which ones there may be, when a store reaches and leaves them, and that a store keeps them and
 * tells its user of each change of the space in use. */
#include <errno.h>
#include <string.h>

#include "lvol/live_internal.h"
#include "lvol/space.h"
#include "unittest/lvol/world.h"
#include "unittest/unit.h"

static struct lvol_space thresholds(uint8_t a, uint8_t b, uint8_t c)
{
	return (struct lvol_space){.num = 3, .percent = {a, b, c}};
}

static void test_thresholds_are_checked(void)
{
	struct lvol_error e;
	const uint8_t nine[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};

	CU_ASSERT_EQUAL(lvol_space_check(NULL, 0, &e), 0);
	CU_ASSERT_EQUAL(lvol_space_check((const uint8_t[]){1, 99}, 2, &e), 0);
	CU_ASSERT_EQUAL(lvol_space_check(nine, 8, &e), 0);
	CU_ASSERT_EQUAL(lvol_space_check(nine, 9, &e), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(e.text, "9 thresholds: there may be up to 8"));
	CU_ASSERT_EQUAL(lvol_space_check((const uint8_t[]){0}, 1, &e), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(e.text, "threshold 0: must be 1 to 99"));
	CU_ASSERT_EQUAL(lvol_space_check((const uint8_t[]){100}, 1, &e), -EINVAL);
	CU_ASSERT_EQUAL(lvol_space_check((const uint8_t[]){50, 50}, 2, &e), -EINVAL);
	CU_ASSERT_EQUAL(lvol_space_check((const uint8_t[]){50, 40}, 2, &e), -EINVAL);
}

static void test_what_is_stored_is_read(void)
{
	struct lvol_space in = thresholds(10, 20, 30), out;
	uint8_t value[LVOL_SPACE_BYTES + 1];
	struct lvol_error e;

	CU_ASSERT_EQUAL(lvol_space_encode(&in, value), 4);
	CU_ASSERT_EQUAL(lvol_space_decode(value, 4, &out, &e), 0);
	CU_ASSERT_TRUE(out.num == 3 && memcmp(out.percent, in.percent, 3) == 0);
	/* None is something else than nothing. */
	CU_ASSERT_EQUAL(lvol_space_decode(value, 1, &out, &e), 0);
	CU_ASSERT_EQUAL(out.num, 0);
	CU_ASSERT_EQUAL(lvol_space_decode(NULL, 0, &out, &e), 0);
	CU_ASSERT_EQUAL(out.num, lvol_space_default().num);
	CU_ASSERT_EQUAL(lvol_space_decode(value, 0, &out, &e), -EINVAL);
	memset(value, 1, sizeof(value));
	CU_ASSERT_EQUAL(lvol_space_decode(value, sizeof(value), &out, &e), -EINVAL);
	CU_ASSERT_EQUAL(lvol_space_decode(value, 3, &out, &e), -EINVAL);
	CU_ASSERT_EQUAL(out.percent[0], lvol_space_default().percent[0]);
	value[0] = 2;
	CU_ASSERT_EQUAL(lvol_space_decode(value, 2, &out, &e), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(e.text, "another form"));
}

static void test_a_threshold_is_reached_once_and_left_by_a_margin(void)
{
	const struct lvol_space s = thresholds(80, 90, 95);

	CU_ASSERT_EQUAL(lvol_space_reached(&s, 0, 799, 1000), 0);
	CU_ASSERT_EQUAL(lvol_space_reached(&s, 0, 800, 1000), 80);
	CU_ASSERT_EQUAL(lvol_space_reached(&s, 80, 780, 1000), 80);
	CU_ASSERT_EQUAL(lvol_space_reached(&s, 80, 779, 1000), 0);
	CU_ASSERT_EQUAL(lvol_space_reached(&s, 0, 780, 1000), 0);
	CU_ASSERT_EQUAL(lvol_space_reached(&s, 80, 950, 1000), 95);
	CU_ASSERT_EQUAL(lvol_space_reached(&s, 95, 935, 1000), 95);
	CU_ASSERT_EQUAL(lvol_space_reached(&s, 95, 929, 1000), 90);
	CU_ASSERT_EQUAL(lvol_space_reached(&s, 95, 999, 1000), 95);
	CU_ASSERT_EQUAL(lvol_space_reached(&s, 95, 1000, 1000), 100);
	/* A store that has one free cluster is not full. */
	CU_ASSERT_EQUAL(lvol_space_reached(&s, 100, 1000, 1000), 100);
	CU_ASSERT_EQUAL(lvol_space_reached(&s, 100, 999, 1000), 95);
	CU_ASSERT_EQUAL(lvol_space_reached(&s, 100, 930, 1000), 95);
	CU_ASSERT_EQUAL(lvol_space_reached(&s, 100, 929, 1000), 90);
	CU_ASSERT_EQUAL(lvol_space_reached(&s, 100, 0, 1000), 0);
}

static void test_small_and_empty_stores(void)
{
	const struct lvol_space s = thresholds(1, 50, 99), none = {.num = 0};

	CU_ASSERT_EQUAL(lvol_space_reached(&s, 0, 0, 0), 0);
	/* A margin of one cluster; and a store with nothing in it has left even the lowest one. */
	CU_ASSERT_EQUAL(lvol_space_reached(&s, 0, 1, 10), 1);
	CU_ASSERT_EQUAL(lvol_space_reached(&s, 1, 0, 10), 0);
	CU_ASSERT_EQUAL(lvol_space_reached(&s, 0, 5, 10), 50);
	CU_ASSERT_EQUAL(lvol_space_reached(&s, 50, 4, 10), 50);
	CU_ASSERT_EQUAL(lvol_space_reached(&s, 50, 3, 10), 1);
	CU_ASSERT_EQUAL(lvol_space_reached(&s, 0, 10, 10), 100);
	CU_ASSERT_EQUAL(lvol_space_reached(&s, 100, 9, 10), 99);
	CU_ASSERT_EQUAL(lvol_space_reached(&s, 99, 8, 10), 50);
	CU_ASSERT_EQUAL(lvol_space_reached(&none, 0, 9, 10), 0);
	CU_ASSERT_EQUAL(lvol_space_reached(&none, 0, 10, 10), 100);
	CU_ASSERT_EQUAL(lvol_space_reached(&s, 0, UINT32_MAX, UINT32_MAX), 100);
}

/* Whatever its use does, a store of n clusters that changes by one cluster to and fro reaches a threshold once. Only
 * that it is full is left at once. */
static void test_one_cluster_to_and_fro_is_told_once(void)
{
	const struct lvol_space s = thresholds(80, 90, 95);

	for (uint64_t n = 2; n < 300; n++) {
		for (uint64_t used = 1; used <= n; used++) {
			uint8_t at = lvol_space_reached(&s, 0, used, n);
			if (used == n) {
				CU_ASSERT_EQUAL(at, LVOL_SPACE_FULL);
				CU_ASSERT_EQUAL(lvol_space_reached(&s, at, used - 1, n), used > 1 ? 95 : 0);
			} else if (used > 1) {
				CU_ASSERT_EQUAL(lvol_space_reached(&s, at, used - 1, n), at);
			}
			CU_ASSERT_EQUAL(lvol_space_reached(&s, at, used, n), at);
			CU_ASSERT_EQUAL(lvol_space_reached(&s, at, 0, n), 0);
		}
	}
}

/* ---- A store ---- */

static unsigned changes; /* that the user was told of */
static struct world w;

static void count_change(void *ctx)
{
	(void)ctx;
	changes++;
}

static struct lvol_space space_of(void)
{
	struct lvol_error e = {"not set"};
	struct lvol_space s = lvol_live_space(w.store, &e);

	CU_ASSERT_STRING_EQUAL(e.text, "");
	return s;
}

static int space_set(const struct lvol_space *s)
{
	struct outcome o = {.done = false};

	lvol_live_set_space(w.store, s, outcome_done, &o);
	return world_wait(&w, &o);
}

static void world_reopen(void)
{
	struct lvol_error e;

	CU_ASSERT_EQUAL_FATAL(world_open(&w, &e), 0);
}

static void test_a_store_keeps_its_thresholds(void)
{
	const struct lvol_space mine = thresholds(10, 20, 30), bad = thresholds(10, 5, 30), none = {.num = 0};
	struct outcome o = {.done = false};

	world_create(&w, 40);
	CU_ASSERT_EQUAL(space_of().percent[0], 80);
	CU_ASSERT_EQUAL(space_set(&bad), -EINVAL);
	CU_ASSERT_EQUAL(space_set(&mine), 0);
	CU_ASSERT_EQUAL(space_of().percent[2], 30);
	lvol_live_rename_store(w.store, "other", outcome_done, &o);
	CU_ASSERT_EQUAL(world_wait(&w, &o), 0);
	snprintf(w.model.name, sizeof(w.model.name), "other");
	world_close(&w);
	world_reopen();
	CU_ASSERT_EQUAL(space_of().percent[2], 30);
	CU_ASSERT_EQUAL(space_set(&none), 0);
	world_forget(&w); /* as after a crash: what was acknowledged is there */
	world_reopen();
	CU_ASSERT_EQUAL(space_of().num, 0);
	CU_ASSERT_EQUAL(space_set(NULL), 0);
	world_close(&w);
	world_reopen();
	CU_ASSERT_EQUAL(space_of().percent[0], 80);
	world_close(&w);
	world_free(&w);
}

static void test_thresholds_at_the_creation(void)
{
	const struct lvol_space mine = thresholds(1, 2, 3), bad = thresholds(1, 2, 100);
	struct lvol_live_create_opts opts = {.name = "s",
					     .uuid = "11111111-2222-4333-8444-555555555555",
					     .cluster_bytes = WORLD_CLUSTER,
					     .space = &bad};
	struct outcome o = {.done = false};

	disk_init(&w.disk, 40 * WORLD_CLUSTER);
	struct lvol_live_user user = disk_user(&w.disk);
	lvol_live_create(&user, &opts, outcome_opened, &o);
	disk_run(&w.disk);
	CU_ASSERT_EQUAL(o.status, -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(o.error.text, "threshold 100"));
	opts.space = &mine;
	o = (struct outcome){.done = false};
	lvol_live_create(&user, &opts, outcome_opened, &o);
	disk_run(&w.disk);
	CU_ASSERT_EQUAL_FATAL(o.status, 0);
	w.store = o.store;
	CU_ASSERT_EQUAL(space_of().percent[2], 3);
	world_close(&w);
	world_free(&w);
}

static void test_each_change_of_space_is_told(void)
{
	struct lvol_error e;

	world_create(&w, 40);
	world_close(&w);
	w.disk.space_changed = count_change;
	CU_ASSERT_EQUAL_FATAL(world_open(&w, &e), 0);
	CU_ASSERT_EQUAL(world_volume_create(&w, 0, 4, true), 0);
	changes = 0;
	CU_ASSERT_EQUAL(world_rename(&w, 0, "renamed"), 0);
	CU_ASSERT_EQUAL(changes, 0);
	CU_ASSERT_EQUAL(world_write(&w, 0, 0, 1), 0);
	CU_ASSERT_EQUAL(changes, 1);
	CU_ASSERT_EQUAL(world_write(&w, 0, 1, 1), 0); /* of the same cluster */
	CU_ASSERT_EQUAL(changes, 1);
	CU_ASSERT_EQUAL(world_volume_create(&w, 1, 2, false), 0);
	CU_ASSERT_TRUE(changes > 1);
	changes = 0;
	CU_ASSERT_EQUAL(world_delete(&w, 1), 0);
	disk_run(&w.disk);
	CU_ASSERT_TRUE(changes > 0);
	struct lvol_live_info info = lvol_live_info(w.store);
	CU_ASSERT_EQUAL(info.coming_clusters, 0);
	CU_ASSERT_EQUAL(info.free_clusters + 1, info.total_data_clusters);
	world_close(&w);
	w.disk.space_changed = NULL;
	world_free(&w);
}

/* A damaged store may have two values: the default ones are none of them. */
static void test_each_value_is_removed(void)
{
	const uint8_t value[] = {LVOL_SPACE_FORM, 10};
	struct live_meta m = {.xattrs = NULL};

	CU_ASSERT_EQUAL(live_xattr_set(&m, LVOL_DESC_XATTR, LVOL_SPACE_XATTR, value, sizeof(value)), 0);
	CU_ASSERT_EQUAL(live_xattr_set(&m, LVOL_DESC_XATTR, "other", value, sizeof(value)), 0);
	CU_ASSERT_EQUAL(live_xattr_set(&m, LVOL_DESC_XATTR, "Varve_space", value, sizeof(value)), 0);
	CU_ASSERT_EQUAL_FATAL(m.num_xattrs, 3);
	m.xattrs[2].name[0] = 'v';
	CU_ASSERT_EQUAL(live_xattr_set(&m, LVOL_DESC_XATTR, LVOL_SPACE_XATTR, NULL, 0), 0);
	CU_ASSERT_EQUAL_FATAL(m.num_xattrs, 1);
	CU_ASSERT_STRING_EQUAL(m.xattrs[0].name, "other");
	live_meta_clear(&m);
}

/* Whoever looked while it grew, and let it be, must look again when it has not grown. */
static void test_a_growth_that_fails_is_told(void)
{
	struct outcome grown = {.done = false};
	struct lvol_error e;

	world_create(&w, 40);
	world_close(&w);
	w.disk.space_changed = count_change;
	CU_ASSERT_EQUAL_FATAL(world_open(&w, &e), 0);
	changes = 0;
	w.disk.late = true;
	w.disk.fail_status = -EIO;
	w.disk.fail_in = 0;
	lvol_live_grow(w.store, 50ull * WORLD_CLUSTER, outcome_done, &grown);
	CU_ASSERT_TRUE(lvol_live_info(w.store).growing);
	CU_ASSERT_EQUAL(changes, 0);
	CU_ASSERT_EQUAL(world_wait(&w, &grown), -EIO);
	CU_ASSERT_FALSE(lvol_live_info(w.store).growing);
	CU_ASSERT_EQUAL(changes, 1);
	w.disk.late = false;
	w.disk.fail_in = -1;
	world_forget(&w);
	w.disk.space_changed = NULL;
	world_free(&w);
}

static uint32_t most_used; /* of what was told */

static void watch_used(void *ctx)
{
	const struct lvol_live_info info = lvol_live_info(w.store);
	uint32_t used = info.used_clusters;

	count_change(ctx);
	most_used = used > most_used ? used : most_used;
}

/* Two first writes to the last free cluster: one of them takes it, and gives it back. It may still have it when the
 * other one is done. Nobody is told that the store is full before it is. */
static void test_first_writes_under_way_do_not_fill_a_store(void)
{
	struct outcome o = {.done = false};
	struct lvol_live_fill f[2];
	struct lvol_error e;

	world_create(&w, 24);
	world_close(&w);
	w.disk.space_changed = watch_used;
	CU_ASSERT_EQUAL_FATAL(world_open(&w, &e), 0);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 12, true), 0);
	uint32_t all = lvol_live_info(w.store).total_data_clusters;
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 1, all - 3, false), 0);
	CU_ASSERT_EQUAL(most_used, all - 3);
	for (uint64_t n = 0; n < 2; n++) {
		CU_ASSERT_EQUAL_FATAL(lvol_live_fill_claim(world_volume(&w, 0), n, &f[n]), 0);
	}
	CU_ASSERT_EQUAL(world_write(&w, 0, 2 * WORLD_SECTORS, 1), 0);
	CU_ASSERT_EQUAL(lvol_live_free_clusters(w.store), 0);
	CU_ASSERT_EQUAL(most_used, all - 2);
	lvol_live_fill_abort(&f[0]);
	CU_ASSERT_EQUAL(most_used, all - 2);
	memset(w.disk.bytes + (uint64_t)f[1].cluster * WORLD_CLUSTER, 0, WORLD_CLUSTER);
	lvol_live_fill_commit(&f[1], outcome_done, &o);
	CU_ASSERT_EQUAL(world_wait(&w, &o), 0);
	CU_ASSERT_EQUAL(most_used, all - 1);
	CU_ASSERT_EQUAL(world_write(&w, 0, 0, 1), 0);
	CU_ASSERT_EQUAL(most_used, all);
	world_count(&w);
	world_close(&w);
	w.disk.space_changed = NULL;
	world_free(&w);
}

/* What thick volumes take counts before it is zeroed: others do not get it. */
static void test_what_is_being_zeroed_is_in_use(void)
{
	struct lvol_live_volume_opts opts = {.name = "new", .uuid = "u", .num_clusters = 7};
	struct outcome made = {.done = false};

	world_create(&w, 24);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 3, false), 0);
	w.disk.late = true;
	lvol_live_volume_create(w.store, &opts, outcome_volume, &made);
	CU_ASSERT_FALSE(made.done);
	CU_ASSERT_EQUAL(lvol_live_info(w.store).used_clusters, 10);
	w.disk.fail_status = -EIO;
	w.disk.fail_in = 0;
	CU_ASSERT_EQUAL(world_wait(&w, &made), -EIO);
	w.disk.fail_in = -1;
	CU_ASSERT_EQUAL(lvol_live_info(w.store).used_clusters, 3);
	w.disk.late = false;
	world_count(&w);
	CU_ASSERT_EQUAL(world_resize(&w, 0, 9), 0);
	CU_ASSERT_EQUAL(lvol_live_info(w.store).used_clusters, 9);
	CU_ASSERT_EQUAL(world_delete(&w, 0), 0);
	CU_ASSERT_EQUAL(lvol_live_info(w.store).used_clusters, 0);
	world_count(&w);
	world_close(&w);
	world_free(&w);
}

/* What a store grows by is not told of as clusters in use, whoever looks meanwhile. */
static void test_a_store_that_grows_is_not_told_of_as_full(void)
{
	struct outcome grown = {.done = false}, renamed = {.done = false};
	struct lvol_error e;

	world_create(&w, 40);
	world_close(&w);
	w.disk.space_changed = watch_used;
	uint64_t whole = w.disk.size;
	w.disk.size = 20ull * WORLD_CLUSTER;
	struct lvol_live_create_opts opts = {
		.name = "s", .uuid = "11111111-2222-4333-8444-555555555555", .cluster_bytes = WORLD_CLUSTER};
	struct lvol_live_user user = disk_user(&w.disk);
	struct outcome o = {.done = false};
	user.space_changed = NULL;
	lvol_live_create(&user, &opts, outcome_opened, &o);
	disk_run(&w.disk);
	CU_ASSERT_EQUAL_FATAL(o.status, 0);
	w.store = o.store;
	world_close(&w);
	CU_ASSERT_EQUAL_FATAL(world_open(&w, &e), 0);
	w.disk.size = whole;
	uint32_t before = lvol_live_info(w.store).total_data_clusters;
	changes = most_used = 0;
	w.disk.late = true;
	lvol_live_grow(w.store, whole, outcome_done, &grown);
	lvol_live_rename_store(w.store, "other", outcome_done, &renamed);
	CU_ASSERT_TRUE(lvol_live_info(w.store).growing);
	CU_ASSERT_EQUAL(world_wait(&w, &grown), 0);
	CU_ASSERT_EQUAL(world_wait(&w, &renamed), 0);
	CU_ASSERT_FALSE(lvol_live_info(w.store).growing);
	CU_ASSERT_EQUAL(lvol_live_info(w.store).total_data_clusters, before + 20);
	CU_ASSERT_EQUAL(most_used, 0);
	CU_ASSERT_TRUE(changes > 0);
	w.disk.late = false;
	world_close(&w);
	w.disk.space_changed = NULL;
	world_free(&w);
}

static const struct unit_test tests[] = {
	UNIT(test_thresholds_are_checked),
	UNIT(test_what_is_stored_is_read),
	UNIT(test_a_threshold_is_reached_once_and_left_by_a_margin),
	UNIT(test_small_and_empty_stores),
	UNIT(test_one_cluster_to_and_fro_is_told_once),
	UNIT(test_a_store_keeps_its_thresholds),
	UNIT(test_thresholds_at_the_creation),
	UNIT(test_each_change_of_space_is_told),
	UNIT(test_each_value_is_removed),
	UNIT(test_a_growth_that_fails_is_told),
	UNIT(test_first_writes_under_way_do_not_fill_a_store),
	UNIT(test_what_is_being_zeroed_is_in_use),
	UNIT(test_a_store_that_grows_is_not_told_of_as_full),
	UNIT_END,
};
UNIT_MAIN("lvol_space", tests, NULL, NULL)
