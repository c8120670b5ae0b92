/* SPDX-License-Identifier: BSD-3-Clause */
/* Volumes as bdevs: operators are told of a store that fills, once for each threshold, and of one that has space again.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bdev_modules/lvol/internal.h"
#include "bdev_modules/lvol/test_lvol_kit.h"
#include "bdev_modules/passthru/passthru.h"

/* --- What was told --- */

static struct {
	unsigned kinds[3], total;
	uint8_t percent; /* of the last one */
	enum bdev_lvol_space_kind kind;
	char reason[160];
} told;
static char told_order[256]; /* "L80 O100 R95 " */

static void tell(const char *store, const struct bdev_lvol_space_news *news, const char *reason)
{
	size_t at = strlen(told_order);

	CU_ASSERT_STRING_EQUAL(store, "lvs");
	told.kinds[news->kind]++;
	told.total++;
	told.percent = news->percent;
	told.kind = news->kind;
	snprintf(told.reason, sizeof(told.reason), "%s", reason);
	snprintf(told_order + at, sizeof(told_order) - at, "%c%u ", "LOR"[news->kind], news -> percent);
}

static void tell_forget(void)
{
	memset(&told, 0, sizeof(told));
	told_order[0] = '\0';
}

static void begin(struct user *u)
{
	bdev_lvol_observe_space(tell);
	tell_forget();
	store_on_malloc();
	CU_ASSERT_EQUAL_FATAL(volume_make("v", (uint64_t)BASE_BLOCKS * BLOCK, true), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(u, "lvs/v", true, fixture_thread(0)), 0);
}

static void end(struct user *u)
{
	user_close(u);
	store_off_malloc();
	bdev_lvol_observe_space(NULL);
}

static uint8_t reached(void)
{
	struct lvol_space space;

	return bdev_lvol_store_space(the_store(), &space);
}

static void flag_set(void *arg, int status)
{
	struct operation *op = arg;

	op->rc = status;
	set_done(&op->done);
}

static int space_set_list(struct lvol_space space)
{
	struct operation op = {0};

	bdev_lvol_store_set_space(the_store(), &space, flag_set, &op);
	return operation_wait(&op);
}

/* One threshold; 0: none. */
static int space_set(uint8_t percent)
{
	return space_set_list((struct lvol_space){.num = percent != 0, .percent = {percent}});
}

static uint32_t data_clusters(void)
{
	return lvol_live_info(bdev_lvol_store_live(the_store())).total_data_clusters;
}

/* First writes, up to the cluster `to` of v, from the one that was written last on; one after the other. */
static void fill_up(struct user *u, uint64_t from, uint64_t to)
{
	for (uint64_t n = from; n < to; n++) {
		CU_ASSERT_EQUAL(fill(u, 1, n * CLUSTER_BLOCKS, 1), 0);
	}
}

static void give_back(struct user *u, uint64_t first, uint64_t clusters)
{
	uint32_t want = free_clusters() + (uint32_t)clusters;

	CU_ASSERT_EQUAL(user_io(u, BDEV_IO_UNMAP, NULL, first * CLUSTER_BLOCKS, clusters * CLUSTER_BLOCKS), 0);
	CU_ASSERT_TRUE(fixture_poll(has_free_clusters, &want));
}

static bool is_told(void *order)
{
	return strcmp(told_order, order) == 0;
}

/* A full store has free clusters for a second before it is told of. */
static void wait_told(const char *order)
{
	CU_ASSERT_TRUE(fixture_poll(is_told, (void *)(uintptr_t)order));
	CU_ASSERT_STRING_EQUAL(told_order, order);
}

/* --- Tests --- */

static void test_each_threshold_is_told_once(void)
{
	struct user u;

	begin(&u);
	uint32_t all = data_clusters();
	fill_up(&u, 0, all * 79 / 100);
	CU_ASSERT_EQUAL(told.total, 0);
	fill_up(&u, all * 79 / 100, (all * 80 + 99) / 100);
	CU_ASSERT_STRING_EQUAL(told_order, "L80 ");
	CU_ASSERT_PTR_NOT_NULL(strstr(told.reason, "has reached 80 %"));
	fill_up(&u, (all * 80 + 99) / 100, all - 1);
	CU_ASSERT_STRING_EQUAL(told_order, "L80 L90 L95 ");
	CU_ASSERT_EQUAL(reached(), 95);
	fill_up(&u, all - 1, all);
	CU_ASSERT_STRING_EQUAL(told_order, "L80 L90 L95 O100 ");
	CU_ASSERT_EQUAL(fill(&u, 1, (uint64_t)all * CLUSTER_BLOCKS, 1), NVME_SC_CAP_EXCEEDED | NVME_SC_DNR);
	CU_ASSERT_EQUAL(told.total, 4);
	CU_ASSERT_EQUAL(reached(), LVOL_SPACE_FULL);
	end(&u);
}

/* To and fro about a threshold is not told again; and then what was left is. */
static void test_a_threshold_is_left_by_a_margin(void)
{
	struct user u;

	begin(&u);
	uint32_t all = data_clusters(), most = (all * 95 + 99) / 100;
	fill_up(&u, 0, most);
	CU_ASSERT_STRING_EQUAL(told_order, "L80 L90 L95 ");
	tell_forget();
	for (unsigned i = 0; i < 5; i++) {
		give_back(&u, 0, 2);
		fill_up(&u, 0, 2);
	}
	CU_ASSERT_EQUAL(told.total, 0);
	give_back(&u, 0, all * 4 / 100);
	CU_ASSERT_STRING_EQUAL(told_order, "R95 ");
	CU_ASSERT_EQUAL(reached(), 90);
	tell_forget();
	give_back(&u, all / 2, most - all / 2);
	CU_ASSERT_TRUE(told.kinds[BDEV_LVOL_SPACE_REGAINED] > 0);
	CU_ASSERT_EQUAL(told.kinds[BDEV_LVOL_SPACE_REGAINED], told.total);
	CU_ASSERT_EQUAL(told.percent, 80);
	CU_ASSERT_EQUAL(reached(), 0);
	end(&u);
}

/* First writes do not fail while any cluster is free; and who was told so must learn of it when they fail again. */
static void test_a_store_is_full_while_no_cluster_is_free(void)
{
	struct user u;

	begin(&u);
	uint32_t all = data_clusters();
	fill_up(&u, 0, all);
	CU_ASSERT_EQUAL(told.kinds[BDEV_LVOL_SPACE_OUT], 1);
	tell_forget();
	give_back(&u, 0, 2); /* less than 1 % */
	wait_told("R100 ");
	CU_ASSERT_EQUAL(reached(), 95);
	fill_up(&u, 0, 1);
	CU_ASSERT_STRING_EQUAL(told_order, "R100 ");
	fill_up(&u, 1, 2);
	CU_ASSERT_STRING_EQUAL(told_order, "R100 O100 ");
	CU_ASSERT_EQUAL(reached(), LVOL_SPACE_FULL);
	end(&u);
}

/* A host that gives up a cluster and takes it again at once, for ever, is not told of. */
static void test_a_full_store_that_churns_is_told_of_once(void)
{
	struct user u;

	begin(&u);
	fill_up(&u, 0, data_clusters());
	tell_forget();
	for (unsigned i = 0; i < 20; i++) {
		give_back(&u, 0, 1);
		CU_ASSERT_EQUAL(reached(), LVOL_SPACE_FULL);
		fill_up(&u, 0, 1);
	}
	CU_ASSERT_STRING_EQUAL(told_order, "");
	give_back(&u, 0, 1);
	end(&u); /* the store goes while it waits to tell of it */
	CU_ASSERT_STRING_EQUAL(told_order, "");
}

/* A thick volume takes all at once: the highest threshold is told. A volume that is deleted gives all back. */
static void test_several_thresholds_at_once(void)
{
	struct user u;

	begin(&u);
	uint32_t all = data_clusters();
	CU_ASSERT_EQUAL(volume_make("thick", (uint64_t)all * 92 / 100 * CLUSTER, false), 0);
	CU_ASSERT_STRING_EQUAL(told_order, "L90 ");
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_DELETE, "lvs/thick", NULL, 0), 0);
	CU_ASSERT_TRUE(fixture_poll(has_free_clusters, &all));
	CU_ASSERT_EQUAL(told.kinds[BDEV_LVOL_SPACE_LOW], 1);
	CU_ASSERT_EQUAL(told.percent, 80);
	CU_ASSERT_EQUAL(told.kind, BDEV_LVOL_SPACE_REGAINED);
	CU_ASSERT_EQUAL(reached(), 0);
	end(&u);
}

/* Whoever was told of a threshold that is none any more is told that it does not hold. */
static void test_other_thresholds(void)
{
	struct lvol_space space;
	struct user u;

	begin(&u);
	uint32_t all = data_clusters();
	fill_up(&u, 0, all / 2);
	CU_ASSERT_EQUAL(told.total, 0);
	CU_ASSERT_EQUAL(space_set(100), -EINVAL);
	CU_ASSERT_EQUAL(space_set(40), 0);
	CU_ASSERT_STRING_EQUAL(told_order, "L40 ");
	CU_ASSERT_EQUAL(space_set(40), 0); /* the same: nothing new */
	CU_ASSERT_EQUAL(space_set_list((struct lvol_space){.num = 2, .percent = {40, 70}}), 0);
	CU_ASSERT_STRING_EQUAL(told_order, "L40 "); /* what was reached is the same */
	CU_ASSERT_EQUAL(space_set(60), 0);
	CU_ASSERT_STRING_EQUAL(told_order, "L40 R40 ");
	CU_ASSERT_PTR_NOT_NULL(strstr(told.reason, "what was told of 40 % and above holds no more"));
	CU_ASSERT_EQUAL(bdev_lvol_store_space(the_store(), &space), 0);
	CU_ASSERT_EQUAL(space.num, 1);
	CU_ASSERT_EQUAL(space.percent[0], 60);
	fill_up(&u, all / 2, all * 61 / 100);
	CU_ASSERT_STRING_EQUAL(told_order, "L40 R40 L60 ");
	tell_forget();
	CU_ASSERT_EQUAL(space_set_list((struct lvol_space){.num = 2, .percent = {30, 60}}), 0);
	CU_ASSERT_STRING_EQUAL(told_order, "R60 L60 "); /* 30 belongs to it now */
	CU_ASSERT_EQUAL(space_set_list((struct lvol_space){.num = 2, .percent = {20, 50}}), 0);
	CU_ASSERT_STRING_EQUAL(told_order, "R60 L60 R30 L50 ");
	CU_ASSERT_EQUAL(space_set(0), 0);
	CU_ASSERT_STRING_EQUAL(told_order, "R60 L60 R30 L50 R20 ");
	CU_ASSERT_EQUAL(reached(), 0);
	end(&u);
}

static void test_other_thresholds_of_a_full_store(void)
{
	struct user u;

	begin(&u);
	uint32_t all = data_clusters();
	CU_ASSERT_EQUAL(space_set(0), 0);
	fill_up(&u, 0, all);
	CU_ASSERT_STRING_EQUAL(told_order, "O100 ");
	CU_ASSERT_EQUAL(space_set(70), 0);
	CU_ASSERT_STRING_EQUAL(told_order, "O100 "); /* it is as full as it was */
	CU_ASSERT_EQUAL(space_set(80), 0);
	CU_ASSERT_STRING_EQUAL(told_order, "O100 R70 O100 ");
	give_back(&u, 0, 2);
	wait_told("O100 R70 O100 R100 ");
	CU_ASSERT_EQUAL(space_set(50), 0);
	CU_ASSERT_STRING_EQUAL(told_order, "O100 R70 O100 R100 R80 L50 ");
	end(&u);
}

/* Who starts the daemon must learn of a store that was full before. */
static void test_a_store_that_is_opened_is_told_of(void)
{
	struct lvol_space space;
	struct user u;

	bdev_lvol_observe_space(tell);
	tell_forget();
	make_malloc("m0", BLOCK, BASE_BLOCKS);
	CU_ASSERT_EQUAL_FATAL(bdev_passthru_create("p0", "m0", NULL, error), 0);
	wait_for_examine();
	struct operation op = {0};
	const struct lvol_space mine = {.num = 2, .percent = {20, 90}};
	bdev_lvol_store_create(
		&(struct bdev_lvol_store_opts){
			.bdev_name = "p0", .name = "lvs", .cluster_bytes = CLUSTER, .space = &mine},
		operation_ended, &op);
	CU_ASSERT_EQUAL_FATAL(operation_wait(&op), 0);
	CU_ASSERT_EQUAL_FATAL(volume_make("v", (uint64_t)BASE_BLOCKS * BLOCK, true), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "lvs/v", true, fixture_thread(0)), 0);
	fill_up(&u, 0, data_clusters() * 30 / 100);
	CU_ASSERT_STRING_EQUAL(told_order, "L20 ");
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "p0"), 0);
	CU_ASSERT_EQUAL(told.total, 1); /* nothing of its end */
	CU_ASSERT_EQUAL(bdev_examine("m0"), 0);
	wait_for_examine();
	CU_ASSERT_STRING_EQUAL(told_order, "L20 L20 ");
	CU_ASSERT_EQUAL(bdev_lvol_store_space(the_store(), &space), 20);
	CU_ASSERT_EQUAL(space.num, 2);
	CU_ASSERT_EQUAL(store_delete(), 0);
	CU_ASSERT_EQUAL(told.total, 2);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
	bdev_lvol_observe_space(NULL);
}

/* Of two first writes to one cluster one takes another cluster, and gives it back; and one that fails does so, too.
 * While it has the last one the store is not told of as full. */
static void test_a_first_write_under_way_does_not_fill_a_store(void)
{
	const struct lvol_space usual = lvol_space_default();
	struct lvol_live_fill f;
	struct user u;

	begin(&u);
	uint32_t all = data_clusters();
	fill_up(&u, 0, all - 1);
	struct lvol_live_volume *v = lvol_live_find(bdev_lvol_store_live(the_store()), "v");
	CU_ASSERT_EQUAL_FATAL(lvol_live_fill_claim(v, all - 1, &f), 0);
	CU_ASSERT_EQUAL(free_clusters(), 0);
	CU_ASSERT_EQUAL(space_set_list(usual), 0); /* somebody looks meanwhile */
	CU_ASSERT_EQUAL(reached(), 95);
	lvol_live_fill_abort(&f);
	CU_ASSERT_EQUAL(space_set_list(usual), 0);
	CU_ASSERT_STRING_EQUAL(told_order, "L80 L90 L95 ");
	fill_up(&u, all - 1, all);
	CU_ASSERT_STRING_EQUAL(told_order, "L80 L90 L95 O100 ");
	end(&u);
}

/* --- Growing --- */

static bool holds_io(void *t)
{
	return atomic_load(&((struct testdev *)t)->held) > 0;
}

/* The superblock that says so is long in coming. Meanwhile what the store grows by is neither in use nor free, and
 * whoever looks is told nothing; then what is true. */
static void test_a_store_that_grows_on_a_late_disk(void)
{
	struct operation grown = {0}, set = {0};
	struct user u, base;
	struct testdev *t = testdev_new("t0", BLOCK, 2 * BASE_BLOCKS);

	bdev_lvol_observe_space(tell);
	tell_forget();
	t->bdev.num_blocks = BASE_BLOCKS;
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	wait_for_examine();
	CU_ASSERT_EQUAL_FATAL(store_make("t0"), 0);
	CU_ASSERT_EQUAL_FATAL(volume_make("v", (uint64_t)BASE_BLOCKS * BLOCK, true), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "lvs/v", true, fixture_thread(0)), 0);
	uint32_t all = data_clusters();
	fill_up(&u, 0, (all * 91 + 99) / 100);
	CU_ASSERT_STRING_EQUAL(told_order, "L80 L90 ");
	watch_base(&base);
	bdev_resize(&t->bdev, 2 * BASE_BLOCKS);
	atomic_store(&t->held, 0);
	t->hold = true;
	bdev_lvol_store_grow(the_store(), flag_set, &grown);
	bdev_lvol_store_set_space(the_store(), &(struct lvol_space){.num = 2, .percent = {80, 96}}, flag_set, &set);
	CU_ASSERT_TRUE_FATAL(fixture_poll(holds_io, t));
	CU_ASSERT_TRUE(lvol_live_info(bdev_lvol_store_live(the_store())).growing);
	lvol_space_changed(the_store());
	CU_ASSERT_STRING_EQUAL(told_order, "L80 L90 ");
	CU_ASSERT_EQUAL(reached(), 90);
	t->hold = false; /* its poller completes what is held */
	CU_ASSERT_EQUAL(operation_wait(&grown), 0);
	CU_ASSERT_EQUAL(operation_wait(&set), 0);
	CU_ASSERT_TRUE(data_clusters() > all * 3 / 2);
	CU_ASSERT_EQUAL(reached(), 0);
	CU_ASSERT_EQUAL(told.kinds[BDEV_LVOL_SPACE_LOW], 2);
	CU_ASSERT_TRUE(told.kinds[BDEV_LVOL_SPACE_OUT] == 0 && told.kinds[BDEV_LVOL_SPACE_REGAINED] > 0);
	CU_ASSERT_EQUAL(told.percent, 80);
	user_close(&base);
	store_off_testdev(t, &u);
	bdev_lvol_observe_space(NULL);
}

/* --- Reservations --- */

static int reserve(struct operation *op, const char *name, uint64_t clusters)
{
	change_start(op, BDEV_LVOL_RESERVE, name, NULL, clusters * CLUSTER);
	return operation_wait(op);
}

/* What is reserved is nobody else's: the store is full for them before it has no free cluster. */
static void test_reserved_clusters_count_as_used(void)
{
	struct operation op;
	struct user u, r;

	begin(&u);
	uint32_t all = data_clusters();
	CU_ASSERT_EQUAL_FATAL(volume_make("r", (uint64_t)all * CLUSTER, true), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&r, "lvs/r", true, fixture_thread(1)), 0);
	CU_ASSERT_EQUAL(reserve(&op, "lvs/r", all * 81 / 100), 0);
	CU_ASSERT_STRING_EQUAL(told_order, "L80 ");
	CU_ASSERT_PTR_NOT_NULL(strstr(told.reason, "clusters of 64 KiB are in use or reserved: it has reached 80 %"));
	CU_ASSERT_EQUAL(reserve(&op, "lvs/r", 4), 0);
	CU_ASSERT_STRING_EQUAL(told_order, "L80 R80 ");
	tell_forget();
	fill_up(&u, 0, all - 4);
	CU_ASSERT_STRING_EQUAL(told_order, "L80 L90 L95 O100 ");
	CU_ASSERT_PTR_NOT_NULL(strstr(told.reason, "some are given back, but for those that are reserved"));
	CU_ASSERT_EQUAL(fill(&u, 1, (uint64_t)(all - 4) * CLUSTER_BLOCKS, 1), NVME_SC_CAP_EXCEEDED | NVME_SC_DNR);
	fill_up(&r, 0, 4);
	CU_ASSERT_EQUAL(fill(&r, 1, 4 * CLUSTER_BLOCKS, 1), NVME_SC_CAP_EXCEEDED | NVME_SC_DNR);
	CU_ASSERT_EQUAL(told.total, 4);
	/* What it gives up is its own again. */
	CU_ASSERT_EQUAL(user_io(&r, BDEV_IO_UNMAP, NULL, 0, 2 * CLUSTER_BLOCKS), 0);
	CU_ASSERT_EQUAL(fill(&u, 1, (uint64_t)(all - 4) * CLUSTER_BLOCKS, 1), NVME_SC_CAP_EXCEEDED | NVME_SC_DNR);
	CU_ASSERT_EQUAL(told.total, 4);
	CU_ASSERT_EQUAL(fill(&r, 1, 4 * CLUSTER_BLOCKS, 1), 0);
	user_close(&r);
	end(&u);
}

static void test_what_cannot_be_reserved_is_named(void)
{
	struct operation op = {0};
	struct user u;

	begin(&u);
	uint32_t all = data_clusters();
	CU_ASSERT_EQUAL_FATAL(volume_make("r", 8 * CLUSTER, true), 0);
	CU_ASSERT_EQUAL(reserve(&op, "lvs/r", 9), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(
		strstr(op.why, "reserved_in_mib: 9 clusters of 64 KiB: at most its size, 8, is allowed"));
	bdev_lvol_create(&(struct bdev_lvol_opts){.store = the_store(),
						  .name = "x",
						  .size_bytes = CLUSTER,
						  .thin = true,
						  .reserved_bytes = CLUSTER + 1},
			 operation_ended, memset(&op, 0, sizeof(op)));
	CU_ASSERT_EQUAL(operation_wait(&op), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(
		strstr(op.why, "reserved_in_mib: 2 clusters of 64 KiB: at most its size, 1, is allowed"));
	fill_up(&u, 0, all - 5);
	CU_ASSERT_EQUAL(reserve(&op, "lvs/r", 6), -ENOSPC);
	CU_ASSERT_PTR_NOT_NULL(strstr(op.why, "reserved_in_mib: 6 clusters of 64 KiB: at most 5 are allowed"));
	CU_ASSERT_EQUAL(reserve(&op, "lvs/v", all), 0); /* what it has counts */
	CU_ASSERT_EQUAL(reserve(&op, "lvs/r", 1), -ENOSPC);
	CU_ASSERT_EQUAL(reserve(&op, "lvs/v", 0), 0);
	CU_ASSERT_EQUAL(reserve(&op, "lvs/r", 5), 0);
	CU_ASSERT_EQUAL(reserve(&op, "lvs/v", all - 4), -ENOSPC);
	CU_ASSERT_EQUAL(reserve(&op, "lvs/v", all - 5), 0);
	change_start(&op, BDEV_LVOL_SNAPSHOT, "lvs/v", "s", 0);
	CU_ASSERT_EQUAL(operation_wait(&op), -ENOSPC);
	CU_ASSERT_PTR_NOT_NULL(strstr(op.why, "free ones above a snapshot: 0 are free and not reserved"));
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_SNAPSHOT, "lvs/r", "s", 0), 0); /* it has none yet */
	CU_ASSERT_EQUAL(reserve(&op, "lvs/s", 1), -EPERM);
	CU_ASSERT_EQUAL(reserve(&op, "lvs/none", 1), -ENODEV);
	end(&u);
}

/* What is free, and what of it is not for all. */
static void test_what_has_no_room_is_told_what_there_is(void)
{
	struct operation op = {0};
	struct user u;

	begin(&u);
	uint32_t all = data_clusters();
	CU_ASSERT_EQUAL_FATAL(volume_make("r", (uint64_t)all * CLUSTER, true), 0);
	CU_ASSERT_EQUAL(reserve(&op, "lvs/r", all - 9), 0);
	struct bdev_lvol_opts thick = {.store = the_store(), .name = "x", .size_bytes = 10 * CLUSTER};
	char there[96];
	snprintf(there, sizeof(there), "no room: %u clusters of 64 KiB are free, %u are reserved for volumes, and ",
		 all, all - 9);
	/* Of a thick one its reservation is not what is missing, nor what another size needs. */
	for (int k = 0; k < 2; k++) {
		thick.reserved_bytes = k == 0 ? 0 : thick.size_bytes;
		bdev_lvol_create(&thick, operation_ended, memset(&op, 0, sizeof(op)));
		CU_ASSERT_EQUAL(operation_wait(&op), -ENOSPC);
		CU_ASSERT_PTR_NOT_NULL(strstr(op.why, there));
		CU_ASSERT_PTR_NOT_NULL(strstr(op.why, "metadata pages are free"));
	}
	thick.size_bytes = 9 * CLUSTER;
	thick.reserved_bytes = 0;
	bdev_lvol_create(&thick, operation_ended, memset(&op, 0, sizeof(op)));
	CU_ASSERT_EQUAL(operation_wait(&op), 0);
	change_start(&op, BDEV_LVOL_RESIZE, "lvs/x", NULL, 10 * CLUSTER);
	CU_ASSERT_EQUAL(operation_wait(&op), -ENOSPC);
	snprintf(there, sizeof(there), "no room: %u clusters of 64 KiB are free, %u are reserved for volumes, and ",
		 all - 9, all - 9);
	CU_ASSERT_PTR_NOT_NULL(strstr(op.why, there));
	struct bdev_lvol_opts thin = {
		.store = the_store(), .name = "y", .size_bytes = CLUSTER, .thin = true, .reserved_bytes = CLUSTER};
	bdev_lvol_create(&thin, operation_ended, memset(&op, 0, sizeof(op)));
	CU_ASSERT_EQUAL(operation_wait(&op), -ENOSPC);
	CU_ASSERT_PTR_NOT_NULL(strstr(op.why, "reserved_in_mib: 1 clusters of 64 KiB: at most 0 are allowed"));
	end(&u);
}

/* --- Metadata --- */

static void metadata_take(void *bytes, const struct bdev_module_figure *f)
{
	if (strcmp(f->name, "varve_lvol_store_metadata_bytes_total") == 0) {
		*(uint64_t *)bytes = f->value;
	}
}

static uint64_t metadata_told(void)
{
	uint64_t bytes = 0;

	bdev_lvol_module.figures(metadata_take, &bytes);
	return bytes;
}

static uint64_t base_written(void)
{
	struct bdev_stat stat;

	bdev_get_stat(bdev_find("m0"), &stat);
	return stat.class[bdev_io_stat_class(BDEV_IO_WRITE)].bytes;
}

/* apart: what else was written to the base, when the store was opened. */
static bool all_is_counted(void *apart)
{
	return base_written() == metadata_told() + *(uint64_t *)apart;
}

static void test_the_metadata_that_is_told_is_what_the_base_gets(void)
{
	struct user u;

	begin(&u);
	user_close(&u);
	CU_ASSERT_EQUAL_FATAL(change_run(BDEV_LVOL_RENAME, "lvs/v", "w", 0), 0);
	CU_ASSERT_EQUAL_FATAL(store_delete(), 0);
	CU_ASSERT_EQUAL_FATAL(store_make("m0"), 0);
	uint64_t apart = base_written(), before = metadata_told();
	CU_ASSERT_EQUAL(before, 0);
	CU_ASSERT_EQUAL_FATAL(volume_make("v", CLUSTER, true), 0);
	CU_ASSERT_EQUAL_FATAL(change_run(BDEV_LVOL_SNAPSHOT, "lvs/v", "s", 0), 0);
	CU_ASSERT_TRUE(fixture_poll(all_is_counted, &apart)); /* the last pages go to their places */
	CU_ASSERT_TRUE(metadata_told() >= before + 4 * 4096);
	store_off_malloc();
	bdev_lvol_observe_space(NULL);
}

static const struct unit_test tests[] = {
	UNIT(test_each_threshold_is_told_once),
	UNIT(test_a_threshold_is_left_by_a_margin),
	UNIT(test_a_store_is_full_while_no_cluster_is_free),
	UNIT(test_a_full_store_that_churns_is_told_of_once),
	UNIT(test_several_thresholds_at_once),
	UNIT(test_other_thresholds),
	UNIT(test_other_thresholds_of_a_full_store),
	UNIT(test_a_store_that_is_opened_is_told_of),
	UNIT(test_a_first_write_under_way_does_not_fill_a_store),
	UNIT(test_a_store_that_grows_on_a_late_disk),
	UNIT(test_reserved_clusters_count_as_used),
	UNIT(test_what_cannot_be_reserved_is_named),
	UNIT(test_what_has_no_room_is_told_what_there_is),
	UNIT(test_the_metadata_that_is_told_is_what_the_base_gets),
	UNIT_END,
};
UNIT_MAIN("bdev_lvol_space", tests, fixture_start, fixture_stop)
