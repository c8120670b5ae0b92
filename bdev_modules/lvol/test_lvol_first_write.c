/* SPDX-License-Identifier: BSD-3-Clause */
/* What a first write costs the bdevs below: nothing is read that it overwrites, and nothing is written twice. */
#include <string.h>

#include "bdev_modules/lvol/test_lvol_kit.h"

#define LARGE        (4u << 20)
#define LARGE_BLOCKS (LARGE / BLOCK)
#define PIECE        (128u << 10) /* of a copy from a bdev outside of the store */
#define PIECE_BLOCKS (PIECE / BLOCK)
#define PIECES       (LARGE / PIECE)

static uint8_t long_data[LARGE] __attribute__((aligned(4096)));

/* --- What the bdevs count --- */

struct counted {
	struct bdev_stat store, image;
	uint64_t md_bytes;
};
static struct counted before, now;

static void count(struct counted *c)
{
	struct bdev *image = bdev_find("x");

	/* First what the store has begun to write of its metadata: the base has not more of it. */
	c->md_bytes = lvol_live_info(bdev_lvol_store_live(the_store())).md_bytes;
	bdev_get_stat(bdev_find("m0"), &c->store);
	if (image != NULL) {
		bdev_get_stat(image, &c->image);
	}
}

static uint64_t store_bytes(enum bdev_stat_class class)
{
	return now.store.class[class].bytes - before.store.class[class].bytes;
}

static uint64_t image_reads(void)
{
	return now.image.class[BDEV_STAT_READ].ops - before.image.class[BDEV_STAT_READ].ops;
}

/* Metadata may still be on their way to their places: they are few bytes, and count as written already. */
static bool has_written(void *bytes)
{
	count(&now);
	return store_bytes(BDEV_STAT_WRITE) - (now.md_bytes - before.md_bytes) == *(const uint64_t *)bytes;
}

/* The base has got so many bytes of data, and nothing was read from it. */
static void check_store(uint64_t written, uint64_t copied, uint64_t zeroed)
{
	CU_ASSERT_TRUE(fixture_poll(has_written, &written));
	CU_ASSERT_EQUAL(store_bytes(BDEV_STAT_READ), 0);
	CU_ASSERT_EQUAL(store_bytes(BDEV_STAT_COPY), copied);
	CU_ASSERT_EQUAL(store_bytes(BDEV_STAT_UNMAP), zeroed);
	count(&before);
}

/* --- Above a snapshot --- */

static void begin(struct user *u)
{
	memset(&before, 0, sizeof(before));
	memset(&now, 0, sizeof(now));
	store_on_malloc();
	CU_ASSERT_EQUAL_FATAL(volume_make("v", VOLUME_BYTES, true), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(u, "lvs/v", true, fixture_thread(0)), 0);
	count(&before);
	for (unsigned i = 0; i < 4; i++) {
		CU_ASSERT_EQUAL(fill(u, 1, i * CLUSTER_BLOCKS, CLUSTER_BLOCKS), 0);
	}
	check_store(4 * CLUSTER, 0, 0);
	CU_ASSERT_EQUAL_FATAL(change_run(BDEV_LVOL_SNAPSHOT, "lvs/v", "s", 0), 0);
	check_store(0, 0, 0);
}

static void end(struct user *u)
{
	user_close(u);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_DELETE, "lvs/v", NULL, 0), 0);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_DELETE, "lvs/s", NULL, 0), 0);
	store_off_malloc();
}

static void test_a_write_of_a_cluster_neither_reads_nor_copies_the_snapshot(void)
{
	struct user u;

	begin(&u);
	CU_ASSERT_EQUAL(fill(&u, 2, 0, CLUSTER_BLOCKS), 0);
	check_store(CLUSTER, 0, 0);
	/* Two clusters and a block of a third one: only around that block something is copied. */
	memset(long_data, 3, sizeof(long_data));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, long_data, CLUSTER_BLOCKS, 2 * CLUSTER_BLOCKS + 1), 0);
	check_store(2 * CLUSTER + BLOCK, CLUSTER - BLOCK, 0);
	CU_ASSERT_TRUE(holds(&u, 2, 0, CLUSTER_BLOCKS) && holds(&u, 3, CLUSTER_BLOCKS, 2 * CLUSTER_BLOCKS + 1));
	CU_ASSERT_TRUE(holds(&u, 1, 3 * CLUSTER_BLOCKS + 1, CLUSTER_BLOCKS - 1));
	/* Of a clone, too. */
	struct user c;
	CU_ASSERT_EQUAL_FATAL(change_run(BDEV_LVOL_CLONE, "lvs/s", "c", 0), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&c, "lvs/c", true, fixture_thread(1)), 0);
	count(&before);
	CU_ASSERT_EQUAL(fill(&c, 4, CLUSTER_BLOCKS, CLUSTER_BLOCKS), 0);
	check_store(CLUSTER, 0, 0);
	CU_ASSERT_TRUE(holds(&c, 4, CLUSTER_BLOCKS, CLUSTER_BLOCKS) && holds(&c, 1, 0, CLUSTER_BLOCKS));
	user_close(&c);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_DELETE, "lvs/c", NULL, 0), 0);
	end(&u);
}

static void test_zeroes_in_a_whole_cluster_are_written_once(void)
{
	struct user u;

	begin(&u);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE_ZEROES, NULL, CLUSTER_BLOCKS, CLUSTER_BLOCKS), 0);
	check_store(0, 0, CLUSTER);
	CU_ASSERT_TRUE(holds(&u, 0, CLUSTER_BLOCKS, CLUSTER_BLOCKS) && holds(&u, 1, 0, CLUSTER_BLOCKS));
	end(&u);
}

/* --- Above a bdev outside of the store --- */

static void external_begin(struct user *u)
{
	struct operation op = {0};

	memset(&before, 0, sizeof(before));
	memset(&now, 0, sizeof(now));
	make_malloc("m0", BLOCK, 32 * LARGE_BLOCKS);
	make_malloc("x", BLOCK, 3 * LARGE_BLOCKS);
	CU_ASSERT_EQUAL_FATAL(user_open(u, "x", true, fixture_thread(0)), 0);
	memset(long_data, 1, sizeof(long_data));
	for (unsigned i = 0; i < 3; i++) {
		CU_ASSERT_EQUAL_FATAL(user_io(u, BDEV_IO_WRITE, long_data, i * LARGE_BLOCKS, LARGE_BLOCKS), 0);
	}
	user_close(u);
	wait_for_examine();
	bdev_lvol_store_create(&(struct bdev_lvol_store_opts){.bdev_name = "m0", .name = "lvs", .cluster_bytes = LARGE},
			       operation_ended, &op);
	CU_ASSERT_EQUAL_FATAL(operation_wait(&op), 0);
	op = (struct operation){.rc = 0};
	bdev_lvol_clone_bdev(the_store(), "x", "c", operation_ended, &op);
	CU_ASSERT_EQUAL_FATAL(operation_wait(&op), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(u, "lvs/c", true, fixture_thread(0)), 0);
	count(&before);
}

/* Each piece of the cluster has been written once, and those that the write does not cover were read. */
static void check_copied(unsigned pieces_read)
{
	const uint64_t all = LARGE;

	CU_ASSERT_TRUE(fixture_poll(has_written, (void *)(uintptr_t)&all));
	CU_ASSERT_EQUAL(image_reads(), pieces_read);
	check_store(LARGE, 0, 0);
}

static void test_pieces_that_a_write_covers_are_not_read_from_an_external_snapshot(void)
{
	const uint64_t second = LARGE_BLOCKS, third = 2 * LARGE_BLOCKS;
	struct user u;

	external_begin(&u);
	memset(long_data, 2, sizeof(long_data));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, long_data, PIECE_BLOCKS, PIECE_BLOCKS), 0);
	check_copied(PIECES - 1);
	/* A piece and parts of its neighbours: those are read. */
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, long_data, second + PIECE_BLOCKS - 1, PIECE_BLOCKS + 2), 0);
	check_copied(PIECES - 1);
	/* All but the last block, as zeroes. */
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE_ZEROES, NULL, third, LARGE_BLOCKS - 1), 0);
	check_copied(1);
	CU_ASSERT_TRUE(holds(&u, 1, 0, PIECE_BLOCKS) && holds(&u, 2, PIECE_BLOCKS, PIECE_BLOCKS));
	CU_ASSERT_TRUE(holds(&u, 1, 2 * PIECE_BLOCKS, LARGE_BLOCKS - PIECE_BLOCKS - 1));
	CU_ASSERT_TRUE(holds(&u, 2, second + PIECE_BLOCKS - 1, PIECE_BLOCKS + 2));
	CU_ASSERT_TRUE(holds(&u, 1, second + 2 * PIECE_BLOCKS + 1, LARGE_BLOCKS - 2 * PIECE_BLOCKS - 1));
	CU_ASSERT_TRUE(holds(&u, 0, third, LARGE_BLOCKS - 1) && holds(&u, 1, third + LARGE_BLOCKS - 1, 1));
	user_close(&u);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_DELETE, "lvs/c", NULL, 0), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "x"), 0);
	store_off_malloc();
}

static void test_a_write_of_a_cluster_does_not_read_an_external_snapshot(void)
{
	struct user u;

	external_begin(&u);
	memset(long_data, 2, sizeof(long_data));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, long_data, 0, LARGE_BLOCKS), 0);
	check_copied(0);
	CU_ASSERT_TRUE(holds(&u, 2, 0, LARGE_BLOCKS) && holds(&u, 1, LARGE_BLOCKS, 1));
	user_close(&u);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_DELETE, "lvs/c", NULL, 0), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "x"), 0);
	store_off_malloc();
}

static const struct unit_test tests[] = {
	UNIT(test_a_write_of_a_cluster_neither_reads_nor_copies_the_snapshot),
	UNIT(test_zeroes_in_a_whole_cluster_are_written_once),
	UNIT(test_pieces_that_a_write_covers_are_not_read_from_an_external_snapshot),
	UNIT(test_a_write_of_a_cluster_does_not_read_an_external_snapshot),
	UNIT_END,
};
UNIT_MAIN("bdev_lvol_first_write", tests, fixture_start, fixture_stop)
