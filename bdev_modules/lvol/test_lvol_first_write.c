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

/* Volume "c" of a store on a bdev that is there, above an image "x" of so many blocks. */
static void external_make(struct user *u, const char *base, uint32_t cluster_bytes, uint64_t image_blocks)
{
	struct operation op = {0};

	make_malloc("x", BLOCK, image_blocks);
	CU_ASSERT_EQUAL_FATAL(user_open(u, "x", true, fixture_thread(0)), 0);
	memset(long_data, 1, sizeof(long_data));
	for (uint64_t at = 0; at < image_blocks; at += LARGE_BLOCKS) {
		uint64_t left = image_blocks - at;
		CU_ASSERT_EQUAL_FATAL(
			user_io(u, BDEV_IO_WRITE, long_data, at, left < LARGE_BLOCKS ? left : LARGE_BLOCKS), 0);
	}
	user_close(u);
	wait_for_examine();
	bdev_lvol_store_create(
		&(struct bdev_lvol_store_opts){.bdev_name = base, .name = "lvs", .cluster_bytes = cluster_bytes},
		operation_ended, &op);
	CU_ASSERT_EQUAL_FATAL(operation_wait(&op), 0);
	op = (struct operation){.rc = 0};
	bdev_lvol_clone_bdev(the_store(), "x", "c", operation_ended, &op);
	CU_ASSERT_EQUAL_FATAL(operation_wait(&op), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(u, "lvs/c", true, fixture_thread(0)), 0);
}

static void external_begin(struct user *u, uint32_t cluster_bytes, uint64_t image_blocks)
{
	memset(&before, 0, sizeof(before));
	memset(&now, 0, sizeof(now));
	make_malloc("m0", BLOCK, 32 * LARGE_BLOCKS);
	external_make(u, "m0", cluster_bytes, image_blocks);
	count(&before);
}

static void external_end(struct user *u)
{
	user_close(u);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_DELETE, "lvs/c", NULL, 0), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "x"), 0);
	store_off_malloc();
}

/* Each piece of the cluster has been written once, and those that the write does not cover were read. */
static void check_copied_cluster(uint64_t cluster_bytes, unsigned pieces_read)
{
	CU_ASSERT_TRUE(fixture_poll(has_written, &cluster_bytes));
	CU_ASSERT_EQUAL(image_reads(), pieces_read);
	check_store(cluster_bytes, 0, 0);
}

static void check_copied(unsigned pieces_read)
{
	check_copied_cluster(LARGE, pieces_read);
}

static void test_pieces_that_a_write_covers_are_not_read_from_an_external_snapshot(void)
{
	const uint64_t second = LARGE_BLOCKS, third = 2 * LARGE_BLOCKS;
	struct user u;

	external_begin(&u, LARGE, 3 * LARGE_BLOCKS);
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
	external_end(&u);
}

static void test_a_write_of_a_cluster_does_not_read_an_external_snapshot(void)
{
	struct user u;

	external_begin(&u, LARGE, 3 * LARGE_BLOCKS);
	memset(long_data, 2, sizeof(long_data));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, long_data, 0, LARGE_BLOCKS), 0);
	check_copied(0);
	CU_ASSERT_TRUE(holds(&u, 2, 0, LARGE_BLOCKS) && holds(&u, 1, LARGE_BLOCKS, 1));
	external_end(&u);
}

/* The bdev outside ends within a piece that is covered, or before it: what is not covered is the bdev's, and zeroes
 * behind its end. */
static void test_a_covered_piece_at_the_end_of_an_external_snapshot(void)
{
	const uint64_t last = LARGE_BLOCKS, there = PIECE_BLOCKS + 5, three = 3 * PIECE_BLOCKS;
	struct user u;

	external_begin(&u, LARGE, last + there);
	memset(long_data, 2, sizeof(long_data));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, long_data, last + PIECE_BLOCKS, PIECE_BLOCKS), 0);
	check_copied(1);
	CU_ASSERT_TRUE(holds(&u, 1, last, PIECE_BLOCKS) && holds(&u, 2, last + PIECE_BLOCKS, PIECE_BLOCKS));
	CU_ASSERT_TRUE(holds(&u, 0, last + 2 * PIECE_BLOCKS, LARGE_BLOCKS - 2 * PIECE_BLOCKS));
	external_end(&u);
	external_begin(&u, LARGE, last + there);
	memset(long_data, 2, sizeof(long_data));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, long_data, last + three, PIECE_BLOCKS), 0);
	check_copied(2);
	CU_ASSERT_TRUE(holds(&u, 1, last, there) && holds(&u, 0, last + there, three - there));
	CU_ASSERT_TRUE(holds(&u, 2, last + three, PIECE_BLOCKS));
	CU_ASSERT_TRUE(holds(&u, 0, last + three + PIECE_BLOCKS, LARGE_BLOCKS - three - PIECE_BLOCKS));
	external_end(&u);
}

/* A cluster that is smaller than a piece. */
static void test_a_small_cluster_is_one_piece(void)
{
	struct user u;

	external_begin(&u, CLUSTER, 3 * CLUSTER_BLOCKS - 2);
	CU_ASSERT_EQUAL(fill(&u, 2, 0, CLUSTER_BLOCKS), 0);
	check_copied_cluster(CLUSTER, 0);
	CU_ASSERT_EQUAL(fill(&u, 2, CLUSTER_BLOCKS, CLUSTER_BLOCKS - 1), 0);
	check_copied_cluster(CLUSTER, 1);
	CU_ASSERT_EQUAL(fill(&u, 2, 2 * CLUSTER_BLOCKS, CLUSTER_BLOCKS), 0);
	check_copied_cluster(CLUSTER, 0);
	CU_ASSERT_TRUE(holds(&u, 2, 0, 2 * CLUSTER_BLOCKS - 1) && holds(&u, 1, 2 * CLUSTER_BLOCKS - 1, 1));
	CU_ASSERT_TRUE(holds(&u, 2, 2 * CLUSTER_BLOCKS, CLUSTER_BLOCKS));
	external_end(&u);
}

/* A write that covers the first of two pieces of a cluster; the base fails one of them. Nothing of it is seen then, and
 * its cluster is free again. */
static void fail_piece(struct testdev *t, struct user *u, struct user *base, unsigned piece)
{
	struct iovec iov = {long_data, PIECE};
	struct request *r = request_new(u);
	uint32_t all = free_clusters();

	memset(long_data, 2, sizeof(long_data));
	bdev_io_set_rw(r->io, BDEV_IO_WRITE, &iov, 1, 0, PIECE_BLOCKS);
	t->hold = true;
	request_submit(r);
	CU_ASSERT_TRUE_FATAL(fixture_wait_count(&t->held, 1));
	if (piece == 1) {
		testdev_release(t, base, 0);
		CU_ASSERT_TRUE_FATAL(fixture_wait_count(&t->held, 1));
	}
	testdev_release(t, base, NVME_SC_INTERNAL);
	CU_ASSERT_EQUAL(request_finish(r), NVME_SC_INTERNAL);
	t->hold = false;
	CU_ASSERT_TRUE(fixture_poll(has_free_clusters, &all));
	CU_ASSERT_TRUE(holds(u, 1, 0, 4 * PIECE_BLOCKS));
}

static void test_a_covered_piece_that_the_base_fails_leaves_nothing_behind(void)
{
	struct testdev *t = testdev_new("t0", BLOCK, BASE_BLOCKS);
	struct user u, base;

	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	wait_for_examine();
	external_make(&u, "t0", 2 * PIECE, 4 * PIECE_BLOCKS);
	watch_base(&base);
	fail_piece(t, &u, &base, 0);
	fail_piece(t, &u, &base, 1);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, long_data, 0, PIECE_BLOCKS), 0);
	CU_ASSERT_TRUE(holds(&u, 2, 0, PIECE_BLOCKS) && holds(&u, 1, PIECE_BLOCKS, 3 * PIECE_BLOCKS));
	user_close(&u);
	user_close(&base);
	CU_ASSERT_EQUAL(store_delete(), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "x"), 0);
	CU_ASSERT_TRUE(testdev_delete(t));
}

static const struct unit_test tests[] = {
	UNIT(test_a_write_of_a_cluster_neither_reads_nor_copies_the_snapshot),
	UNIT(test_zeroes_in_a_whole_cluster_are_written_once),
	UNIT(test_pieces_that_a_write_covers_are_not_read_from_an_external_snapshot),
	UNIT(test_a_write_of_a_cluster_does_not_read_an_external_snapshot),
	UNIT(test_a_covered_piece_at_the_end_of_an_external_snapshot),
	UNIT(test_a_small_cluster_is_one_piece),
	UNIT(test_a_covered_piece_that_the_base_fails_leaves_nothing_behind),
	UNIT_END,
};
UNIT_MAIN("bdev_lvol_first_write", tests, fixture_start, fixture_stop)
