/* SPDX-License-Identifier: BSD-3-Clause */
/* Volumes that are clones of bdevs outside of the store: what they read, what becomes of them when that bdev goes and
 * comes, and how they change from one to another. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bdev_modules/lvol/internal.h"
#include "bdev_modules/lvol/test_lvol_kit.h"
#include "bdev_modules/passthru/passthru.h"

#define SMALL       512u                              /* blocks of the image */
#define PER         (BLOCK / SMALL)                   /* of them in a block of a volume */
#define IMAGE_BYTES (2 * CLUSTER + 3 * BLOCK + SMALL) /* its end is in a block of the third cluster */
#define THIRD       (2 * CLUSTER_BLOCKS)

static uint8_t block[BLOCK] __attribute__((aligned(4096))), long_data[2 * CLUSTER] __attribute__((aligned(4096)));

/* What the byte at an offset of an image is. */
static uint8_t image_byte(uint64_t offset)
{
	return offset < IMAGE_BYTES ? (uint8_t)(1 + offset / SMALL % 250) : 0;
}

static void image_make(const char *name)
{
	struct user u;

	make_malloc(name, SMALL, IMAGE_BYTES / SMALL);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, name, true, fixture_thread(0)), 0);
	for (uint64_t i = 0; i < IMAGE_BYTES / SMALL; i++) {
		memset(block, image_byte(i * SMALL), SMALL);
		CU_ASSERT_EQUAL_FATAL(user_io(&u, BDEV_IO_WRITE, block, i, 1), 0);
	}
	user_close(&u);
	wait_for_examine();
}

static void image_delete(const char *name)
{
	CU_ASSERT_EQUAL(bdev_get_claim(bdev_find(name), NULL), BDEV_CLAIM_NONE);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, name), 0);
}

static int image_clone(const char *bdev, const char *name)
{
	struct operation op = {0};

	bdev_lvol_clone_bdev(the_store(), bdev, name, operation_ended, &op);
	return operation_wait(&op);
}

/* Whether blocks of a volume are as in the image. */
static bool is_image(struct user *u, uint64_t first, uint64_t blocks)
{
	for (uint64_t i = first; i < first + blocks; i++) {
		memset(block, 0xfe, BLOCK);
		if (user_io(u, BDEV_IO_READ, block, i, 1) != 0) {
			return false;
		}
		for (size_t k = 0; k < BLOCK; k++) {
			if (block[k] != image_byte(i * BLOCK + k)) {
				return false;
			}
		}
	}
	return true;
}

static bool is_free(void *name)
{
	return bdev_get_claim(bdev_find(name), NULL) == BDEV_CLAIM_NONE;
}

static void begin(struct user *u)
{
	store_on_malloc();
	image_make("x");
	CU_ASSERT_EQUAL_FATAL(image_clone("x", "c"), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(u, "lvs/c", true, fixture_thread(0)), 0);
}

static void end(struct user *u)
{
	user_close(u);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_DELETE, "lvs/c", NULL, 0), 0);
	image_delete("x");
	store_off_malloc();
}

/* --- Data --- */

static void test_a_clone_has_the_data_of_the_bdev(void)
{
	struct user u, w;

	begin(&u);
	CU_ASSERT_EQUAL(bdev_num_blocks(bdev_find("lvs/c")), 3 * CLUSTER_BLOCKS);
	CU_ASSERT_TRUE(is_image(&u, 0, 3 * CLUSTER_BLOCKS));
	/* One READ over the end, which is in its last block, and one behind it. */
	memset(long_data, 0xfe, CLUSTER);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, long_data, THIRD, CLUSTER_BLOCKS), 0);
	for (size_t i = 0; i < CLUSTER; i++) {
		CU_ASSERT_EQUAL_FATAL(long_data[i], image_byte(2 * CLUSTER + i));
	}
	CU_ASSERT_TRUE(holds(&u, 0, THIRD + 8, 4));
	/* Nobody writes to it, and more may read it. */
	CU_ASSERT_EQUAL(user_open(&w, "x", true, fixture_thread(1)), -EPERM);
	CU_ASSERT_EQUAL(image_clone("x", "d"), 0);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_DELETE, "lvs/d", NULL, 0), 0);
	CU_ASSERT_EQUAL(bdev_get_claim(bdev_find("x"), NULL), BDEV_CLAIM_READ_MANY_WRITE_NONE);
	end(&u);
}

static void test_a_first_write_copies_what_is_around_it(void)
{
	struct user u;

	begin(&u);
	uint32_t before = free_clusters();
	CU_ASSERT_EQUAL(fill(&u, 0xaa, 5, 2), 0);
	CU_ASSERT_TRUE(is_image(&u, 0, 5) && holds(&u, 0xaa, 5, 2));
	CU_ASSERT_TRUE(is_image(&u, 7, 3 * CLUSTER_BLOCKS - 7));
	CU_ASSERT_EQUAL(free_clusters(), before - 1);
	/* Over the end of the image, in a cluster that it ends in. */
	CU_ASSERT_EQUAL(fill(&u, 0xbb, THIRD + 2, 3), 0);
	CU_ASSERT_TRUE(is_image(&u, THIRD, 2) && holds(&u, 0xbb, THIRD + 2, 3));
	CU_ASSERT_TRUE(holds(&u, 0, THIRD + 5, CLUSTER_BLOCKS - 5));
	/* All of one: nothing is to be read. */
	CU_ASSERT_EQUAL(fill(&u, 0xcc, CLUSTER_BLOCKS, CLUSTER_BLOCKS), 0);
	CU_ASSERT_TRUE(holds(&u, 0xcc, CLUSTER_BLOCKS, CLUSTER_BLOCKS));
	CU_ASSERT_EQUAL(free_clusters(), before - 3);
	end(&u);
}

/* Zeroes are data where the image has others; an UNMAP leaves it as it was. */
static void test_zeroes_hide_what_the_bdev_has(void)
{
	struct user u;

	begin(&u);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE_ZEROES, NULL, 4, CLUSTER_BLOCKS), 0);
	CU_ASSERT_TRUE(is_image(&u, 0, 4) && holds(&u, 0, 4, CLUSTER_BLOCKS));
	CU_ASSERT_TRUE(is_image(&u, CLUSTER_BLOCKS + 4, CLUSTER_BLOCKS - 4));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_UNMAP, NULL, THIRD, CLUSTER_BLOCKS), 0);
	CU_ASSERT_TRUE(is_image(&u, THIRD, CLUSTER_BLOCKS));
	end(&u);
}

/* More than one buffer for a cluster. */
static void test_large_clusters_are_copied_in_pieces(void)
{
	enum { LARGE = 4 << 20, BLOCKS = LARGE / BLOCK, THERE = BLOCKS - 3, MIDDLE = (128 << 10) / BLOCK };
	static uint8_t all[LARGE] __attribute__((aligned(4096)));
	struct operation op = {0};
	struct user u;

	make_malloc("m0", BLOCK, 32 * LARGE / BLOCK);
	make_malloc("x", BLOCK, THERE);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "x", true, fixture_thread(0)), 0);
	for (uint64_t i = 0; i < THERE; i++) {
		CU_ASSERT_EQUAL_FATAL(fill(&u, (uint8_t)(1 + i % 200), i, 1), 0);
	}
	user_close(&u);
	wait_for_examine();
	bdev_lvol_store_create(&(struct bdev_lvol_store_opts){.bdev_name = "m0", .name = "lvs", .cluster_bytes = LARGE},
			       operation_ended, &op);
	CU_ASSERT_EQUAL_FATAL(operation_wait(&op), 0);
	CU_ASSERT_EQUAL_FATAL(image_clone("x", "c"), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "lvs/c", true, fixture_thread(0)), 0);
	memset(all, 0xfe, LARGE); /* in one READ, over the end of the bdev */
	CU_ASSERT_EQUAL_FATAL(user_io(&u, BDEV_IO_READ, all, 0, BLOCKS), 0);
	for (uint64_t i = 0; i < BLOCKS; i++) {
		uint8_t byte = i < THERE ? (uint8_t)(1 + i % 200) : 0, *at = all + i * BLOCK;
		CU_ASSERT_TRUE_FATAL(at[0] == byte && memcmp(at, at + 1, BLOCK - 1) == 0);
	}
	CU_ASSERT_EQUAL(fill(&u, 0xff, MIDDLE - 1, 2), 0); /* over the end of the first piece */
	for (uint64_t i = 0; i < BLOCKS; i++) {
		bool own = i == MIDDLE - 1 || i == MIDDLE;
		CU_ASSERT_TRUE_FATAL(holds(&u, own ? 0xff : i < THERE ? (uint8_t)(1 + i % 200) : 0, i, 1));
	}
	user_close(&u);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_DELETE, "lvs/c", NULL, 0), 0);
	image_delete("x");
	store_off_malloc();
}

/* --- Snapshots --- */

static void test_snapshots_hand_on_what_is_external(void)
{
	struct user u, v;

	begin(&u);
	CU_ASSERT_EQUAL(fill(&u, 0xaa, 1, 1), 0);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_SNAPSHOT, "lvs/c", "s", 0), 0);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_CLONE, "lvs/s", "d", 0), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&v, "lvs/d", true, fixture_thread(1)), 0);
	CU_ASSERT_TRUE(is_image(&v, 0, 1) && holds(&v, 0xaa, 1, 1) && is_image(&v, 2, 3 * CLUSTER_BLOCKS - 2));
	CU_ASSERT_EQUAL(fill(&v, 0xbb, CLUSTER_BLOCKS + 1, 1), 0);
	CU_ASSERT_TRUE(is_image(&v, CLUSTER_BLOCKS, 1) && is_image(&v, CLUSTER_BLOCKS + 2, 4));
	CU_ASSERT_TRUE(is_image(&u, CLUSTER_BLOCKS, CLUSTER_BLOCKS));
	user_close(&v);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_DELETE, "lvs/d", NULL, 0), 0);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_DELETE, "lvs/s", NULL, 0), 0);
	CU_ASSERT_TRUE(is_image(&u, 0, 1) && holds(&u, 0xaa, 1, 1) && is_image(&u, 2, 3 * CLUSTER_BLOCKS - 2));
	end(&u);
}

static void test_an_inflated_volume_lets_the_bdev_go(void)
{
	struct user u, w;

	begin(&u);
	CU_ASSERT_EQUAL(fill(&u, 0xaa, 1, 1), 0);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_INFLATE, "lvs/c", NULL, 0), 0);
	CU_ASSERT_TRUE(fixture_poll(is_free, "x"));
	CU_ASSERT_EQUAL_FATAL(user_open(&w, "x", true, fixture_thread(1)), 0);
	CU_ASSERT_EQUAL(user_io(&w, BDEV_IO_WRITE_ZEROES, NULL, 0, IMAGE_BYTES / SMALL), 0);
	user_close(&w);
	CU_ASSERT_TRUE(is_image(&u, 0, 1) && holds(&u, 0xaa, 1, 1) && is_image(&u, 2, 3 * CLUSTER_BLOCKS - 2));
	end(&u);
}

/* --- The bdev goes and comes --- */

/* A clone of p0, which stands on the image, by its UUID; or by its name. */
static void begin_on_passthru(struct user *u, bool by_uuid)
{
	const uint8_t uuid[16] = {1, 2, 3};

	store_on_malloc();
	image_make("x");
	CU_ASSERT_EQUAL_FATAL(bdev_passthru_create("p0", "x", by_uuid ? uuid : NULL, error), 0);
	wait_for_examine();
	CU_ASSERT_EQUAL_FATAL(image_clone("p0", "c"), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(u, "lvs/c", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(fill(u, 0xaa, 1, 1), 0);
	u->close_on_remove = true;
}

static struct lvol_live_volume *the_clone(void)
{
	return lvol_live_find(bdev_lvol_store_live(the_store()), "c");
}

static void goes_and_comes(bool by_uuid)
{
	const uint8_t uuid[16] = {1, 2, 3};
	struct user u;

	begin_on_passthru(&u, by_uuid);
	CU_ASSERT_EQUAL(strcmp(the_clone()->external, "p0") == 0, !by_uuid);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_SNAPSHOT, "lvs/c", "s", 0), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "p0"), 0);
	CU_ASSERT_EQUAL(u.removes, 1);
	CU_ASSERT_TRUE(bdev_find("lvs/c") == NULL && bdev_find("lvs/s") == NULL);
	CU_ASSERT_TRUE(lvol_volume_is_degraded(the_clone()));
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_RENAME, "lvs/c", "d", 0), -ENODEV);
	CU_ASSERT_EQUAL_FATAL(bdev_passthru_create("p0", "x", by_uuid ? uuid : NULL, error), 0);
	wait_for_examine();
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "lvs/c", true, fixture_thread(0)), 0);
	CU_ASSERT_FALSE(lvol_volume_is_degraded(the_clone()));
	CU_ASSERT_TRUE(is_image(&u, 0, 1) && holds(&u, 0xaa, 1, 1) && is_image(&u, 2, 3 * CLUSTER_BLOCKS - 2));
	user_close(&u);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_DELETE, "lvs/c", NULL, 0), 0);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_DELETE, "lvs/s", NULL, 0), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "p0"), 0);
	image_delete("x");
	store_off_malloc();
}

static void test_a_volume_goes_and_comes_with_its_bdev(void)
{
	goes_and_comes(false);
	goes_and_comes(true);
}

static void test_a_volume_without_its_bdev_can_be_deleted(void)
{
	struct operation first, second;
	struct user u;

	begin_on_passthru(&u, false);
	uint32_t before = free_clusters() + 1;
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "p0"), 0);
	change_start(&first, BDEV_LVOL_DELETE, "lvs/c", NULL, 0);
	change_start(&second, BDEV_LVOL_DELETE, "lvs/c", NULL, 0); /* while it is being deleted, or after that */
	CU_ASSERT_EQUAL(operation_wait(&first), 0);
	CU_ASSERT_EQUAL(operation_wait(&second), -ENODEV);
	CU_ASSERT_TRUE(fixture_poll(has_free_clusters, &before));
	CU_ASSERT_EQUAL_FATAL(bdev_passthru_create("p0", "x", NULL, error), 0);
	wait_for_examine();
	CU_ASSERT_PTR_NULL(bdev_find("lvs/c"));
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "p0"), 0);
	image_delete("x");
	store_off_malloc();
}

static void passthru_deleted(void *arg, int rc)
{
	set_done(arg);
}

static bool has_no_bdev(void *name)
{
	return bdev_find(name) == NULL;
}

/* Its bdev goes with what it is a clone of, and still uses the volume. */
static void test_a_volume_whose_bdev_is_going_is_not_deleted(void)
{
	atomic_bool done = false;
	struct user u;

	begin_on_passthru(&u, false);
	bdev_passthru_delete("p0", passthru_deleted, &done);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_no_bdev, "lvs/c"));
	bool going = !TAILQ_EMPTY(&the_store()->volumes);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_DELETE, "lvs/c", NULL, 0), going ? -ENODEV : 0);
	CU_ASSERT_TRUE(fixture_wait(&done));
	CU_ASSERT_TRUE(TAILQ_EMPTY(&the_store()->volumes));
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_DELETE, "lvs/c", NULL, 0), going ? 0 : -ENODEV);
	image_delete("x");
	store_off_malloc();
}

/* The store is there before the bdev, and after it; and goes while its volumes wait. */
static void test_a_store_is_opened_before_the_bdev_is_there(void)
{
	struct user u;

	make_malloc("m0", BLOCK, BASE_BLOCKS);
	CU_ASSERT_EQUAL_FATAL(bdev_passthru_create("s0", "m0", NULL, error), 0);
	wait_for_examine();
	CU_ASSERT_EQUAL_FATAL(store_make("s0"), 0);
	image_make("x");
	CU_ASSERT_EQUAL_FATAL(bdev_passthru_create("p0", "x", NULL, error), 0);
	wait_for_examine();
	CU_ASSERT_EQUAL_FATAL(image_clone("p0", "c"), 0);
	CU_ASSERT_EQUAL_FATAL(volume_make("v", VOLUME_BYTES, true), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "s0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "p0"), 0);
	for (unsigned i = 0; i < 2; i++) { /* it is closed while the volume waits, too */
		CU_ASSERT_EQUAL_FATAL(bdev_passthru_create("s0", "m0", NULL, error), 0);
		wait_for_examine();
		CU_ASSERT_PTR_NULL(bdev_find("lvs/c"));
		CU_ASSERT_PTR_NOT_NULL(bdev_find("lvs/v"));
		CU_ASSERT_EQUAL(i == 0 ? fixture_delete(bdev_passthru_delete, "s0") : 0, 0);
	}
	CU_ASSERT_EQUAL_FATAL(bdev_passthru_create("p0", "x", NULL, error), 0);
	wait_for_examine();
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "lvs/c", true, fixture_thread(0)), 0);
	CU_ASSERT_TRUE(is_image(&u, 0, 3 * CLUSTER_BLOCKS));
	user_close(&u);
	CU_ASSERT_EQUAL(store_delete(), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "p0"), 0);
	image_delete("x");
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "s0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
}

/* --- From one to another --- */

static void test_what_cannot_be_an_external_snapshot_is_refused(void)
{
	struct operation op;
	struct user u;

	begin(&u);
	CU_ASSERT_EQUAL(image_clone("nobody", "d"), -ENODEV);
	CU_ASSERT_EQUAL(image_clone("lvs/c", "d"), -EINVAL);
	CU_ASSERT_EQUAL(image_clone("x", "c"), -EEXIST);
	CU_ASSERT_EQUAL(image_clone("x", ""), -EINVAL);
	CU_ASSERT_EQUAL(image_clone("m0", "d"), -EPERM); /* the store writes to it */
	CU_ASSERT_PTR_NULL(lvol_live_find(bdev_lvol_store_live(the_store()), "d"));
	change_start(&op, BDEV_LVOL_SET_PARENT_BDEV, "lvs/c", "x", 0);
	CU_ASSERT_EQUAL(operation_wait(&op), -EEXIST);
	CU_ASSERT_STRING_EQUAL(op.why, "volume lvs/c: this is its parent already");
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_SET_PARENT_BDEV, "lvs/c", "nobody", 0), -ENODEV);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_SET_PARENT_BDEV, "lvs/c", "lvs/c", 0), -EINVAL);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_SET_PARENT_BDEV, "lvs/c", "m0", 0), -EINVAL); /* its size */
	CU_ASSERT_EQUAL_FATAL(volume_make("thick", VOLUME_BYTES, false), 0);
	make_malloc("y", BLOCK, VOLUME_BLOCKS);
	wait_for_examine();
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_SET_PARENT_BDEV, "lvs/thick", "y", 0), -EINVAL);
	CU_ASSERT_TRUE(fixture_poll(is_free, "y"));
	/* One without data: a host would get what was in memory before. */
	make_null("n", SMALL, IMAGE_BYTES / SMALL);
	wait_for_examine();
	CU_ASSERT_EQUAL(image_clone("n", "d"), -EINVAL);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_SET_PARENT_BDEV, "lvs/c", "n", 0), -EINVAL);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n"), 0);
	/* A bdev on the volume itself. */
	user_close(&u);
	CU_ASSERT_EQUAL_FATAL(volume_make("v", VOLUME_BYTES, true), 0);
	CU_ASSERT_EQUAL_FATAL(bdev_passthru_create("p0", "lvs/v", NULL, error), 0);
	wait_for_examine();
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_SET_PARENT_BDEV, "lvs/v", "p0", 0), -EINVAL);
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "p0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "y"), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "lvs/c", true, fixture_thread(0)), 0);
	CU_ASSERT_TRUE(is_image(&u, 0, 3 * CLUSTER_BLOCKS));
	end(&u);
}

static void test_a_bdev_becomes_the_parent_and_a_snapshot_again(void)
{
	struct user u;

	store_on_malloc();
	image_make("x");
	/* A snapshot of the same data in the store. */
	CU_ASSERT_EQUAL_FATAL(image_clone("x", "s"), 0);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_INFLATE, "lvs/s", NULL, 0), 0);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_SET_READ_ONLY, "lvs/s", NULL, 0), 0);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_CLONE, "lvs/s", "c", 0), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "lvs/c", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(fill(&u, 0xaa, 1, 1), 0);
	CU_ASSERT_TRUE(fixture_poll(is_free, "x"));
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_SET_PARENT_BDEV, "lvs/c", "x", 0), 0);
	CU_ASSERT_FALSE(is_free("x"));
	CU_ASSERT_TRUE(the_clone()->parent == NULL && the_clone()->external != NULL);
	CU_ASSERT_TRUE(is_image(&u, 0, 1) && holds(&u, 0xaa, 1, 1) && is_image(&u, 2, 3 * CLUSTER_BLOCKS - 2));
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_DELETE, "lvs/s", NULL, 0), 0);
	CU_ASSERT_EQUAL(fill(&u, 0xbb, THIRD + 1, 1), 0);
	CU_ASSERT_TRUE(is_image(&u, THIRD, 1) && is_image(&u, THIRD + 2, CLUSTER_BLOCKS - 2));
	end(&u);
}

struct reader {
	struct user u;
	unsigned rounds, wrong;
	struct request *r;
	struct iovec iov;
	uint8_t *bytes;
};

static void reader_check(struct reader *r)
{
	r->rounds++;
	r->wrong += r->r->status != 0;
	for (size_t i = 0; i < 2 * CLUSTER && r->r->status == 0; i += 128) {
		r->wrong += r->bytes[i] != image_byte(i);
	}
}

static bool reader_has_read(void *arg)
{
	struct reader *r = arg;

	if (!atomic_load(&r->r->done)) {
		return false;
	}
	reader_check(r);
	return true;
}

static void reader_start(struct reader *r)
{
	r->r = request_new(&r->u);
	memset(r->bytes, 0xfe, 2 * CLUSTER);
	bdev_io_set_rw(r->r->io, BDEV_IO_READ, &r->iov, 1, 0, 2 * CLUSTER_BLOCKS);
	request_submit(r->r);
}

/* Reads are under way all the time, on another thread, and never see anything but the image. */
static void test_reads_go_on_while_one_bdev_takes_the_place_of_another(void)
{
	struct reader r = {.bytes = long_data, .iov = {long_data, sizeof(long_data)}};
	struct operation op;
	struct user u;

	begin(&u);
	image_make("y");
	CU_ASSERT_EQUAL_FATAL(user_open(&r.u, "lvs/c", false, fixture_thread(1)), 0);
	for (unsigned i = 0; i < 60; i++) {
		const char *now = i % 2 == 0 ? "y" : "x", *before = i % 2 == 0 ? "x" : "y";
		change_start(&op, BDEV_LVOL_SET_PARENT_BDEV, "lvs/c", now, 0);
		do {
			reader_start(&r);
			CU_ASSERT_TRUE_FATAL(fixture_poll(reader_has_read, &r));
			request_free(r.r);
		} while (!atomic_load(&op.done));
		CU_ASSERT_EQUAL(op.rc, 0);
		CU_ASSERT_TRUE(fixture_poll(is_free, (void *)(uintptr_t)before));
		CU_ASSERT_FALSE(is_free((void *)(uintptr_t)now));
	}
	CU_ASSERT_EQUAL(r.wrong, 0);
	CU_ASSERT_TRUE(r.rounds >= 60);
	user_close(&r.u);
	image_delete("y");
	end(&u);
}

/* --- What ends in another way --- */

static struct testdev *begin_on_testdev(struct user *u)
{
	struct testdev *t = testdev_new("t1", BLOCK, VOLUME_BLOCKS);

	store_on_malloc();
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	wait_for_examine();
	CU_ASSERT_EQUAL_FATAL(image_clone("t1", "v"), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(u, "lvs/v", true, fixture_thread(0)), 0);
	return t;
}

static void end_on_testdev(struct testdev *t, struct user *u)
{
	user_close(u);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_DELETE, "lvs/v", NULL, 0), 0);
	store_off_malloc();
	CU_ASSERT_TRUE(testdev_delete(t));
}

static void test_an_error_of_the_bdev_leaves_nothing_behind(void)
{
	struct user u;
	struct testdev *t = begin_on_testdev(&u);
	uint32_t before = free_clusters();

	t->fail_status = NVME_SC_INTERNAL;
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, data, 0, 1), NVME_SC_INTERNAL);
	CU_ASSERT_EQUAL(fill(&u, 1, 3, 1), NVME_SC_INTERNAL);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE_ZEROES, NULL, 3, 1), NVME_SC_INTERNAL);
	CU_ASSERT_NOT_EQUAL(change_run(BDEV_LVOL_INFLATE, "lvs/v", NULL, 0), 0);
	CU_ASSERT_TRUE(fixture_poll(has_free_clusters, &before));
	t->fail_status = 0;
	CU_ASSERT_EQUAL(fill(&u, 1, 3, 1), 0);
	CU_ASSERT_TRUE(holds(&u, 1, 3, 1) && holds(&u, 0, 4, 1));
	end_on_testdev(t, &u);
}

static void test_what_waits_for_the_bdev_can_be_aborted_and_reset(void)
{
	enum { MORE = 80 }; /* than a thread may have at it */
	struct request *r[MORE], *reset;
	struct user u;
	struct testdev *t = begin_on_testdev(&u);

	atomic_store(&t->held, 0);
	t->hold = true;
	for (unsigned i = 0; i < MORE; i++) {
		r[i] = request_new(&u);
		if (i % 2 == 0) {
			bdev_io_set_rw(r[i]->io, BDEV_IO_READ, &other_block, 1, i % 16, 1);
		} else {
			bdev_io_set_rw(r[i]->io, BDEV_IO_WRITE, &one_block, 1, (i % 30) * CLUSTER_BLOCKS, 1);
		}
		request_submit(r[i]);
	}
	CU_ASSERT_TRUE_FATAL(fixture_poll(something_waits, "the bdev that its volume is a clone of"));
	CU_ASSERT_TRUE_FATAL(fixture_wait_count(&t->held, 40));
	struct request *abort = abort_of(&u, r[0]);
	CU_ASSERT_EQUAL(request_run(abort), 0);
	CU_ASSERT_EQUAL(abort->cdw0, 0);
	request_free(abort);
	CU_ASSERT_EQUAL(request_finish(r[0]), NVME_SC_ABORT_REQ);
	reset = request_new(&u);
	reset->io->type = BDEV_IO_RESET;
	request_submit(reset);
	t->hold = false;
	for (unsigned i = 1; i < MORE; i++) {
		uint16_t status = request_finish(r[i]);
		CU_ASSERT_TRUE(status == 0 || status == NVME_SC_ABORT_REQ);
	}
	CU_ASSERT_EQUAL(request_finish(reset), 0);
	CU_ASSERT_EQUAL(fill(&u, 1, 3, 1), 0);
	CU_ASSERT_TRUE(holds(&u, 1, 3, 1));
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_SNAPSHOT, "lvs/v", "s", 0), 0);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_DELETE, "lvs/s", NULL, 0), 0);
	end_on_testdev(t, &u);
}

/* First writes copy through buffers. Of those that wait only a few have one. */
static void test_few_first_writes_have_a_buffer_at_a_time(void)
{
	enum { WRITES = 30, BUFFERS = 16 };
	struct request *r[WRITES];
	struct user u;
	struct testdev *t = begin_on_testdev(&u);

	atomic_store(&t->held, 0);
	t->hold = true;
	for (unsigned i = 0; i < WRITES; i++) {
		r[i] = write_start(&u, i * CLUSTER_BLOCKS + 1);
	}
	struct request *read = request_new(&u); /* behind them: it needs no buffer */
	bdev_io_set_rw(read->io, BDEV_IO_READ, &other_block, 1, 0, 1);
	request_submit(read);
	CU_ASSERT_TRUE_FATAL(fixture_wait_count(&t->held, BUFFERS + 1));
	/* One that waits is aborted, the others by a reset. */
	struct request *abort = abort_of(&u, r[WRITES - 1]), *reset = request_new(&u);
	CU_ASSERT_EQUAL(request_run(abort), 0);
	CU_ASSERT_EQUAL(abort->cdw0, 0);
	request_free(abort);
	CU_ASSERT_EQUAL(request_finish(r[WRITES - 1]), NVME_SC_ABORT_REQ);
	CU_ASSERT_EQUAL(atomic_load(&t->held), BUFFERS + 1);
	reset->io->type = BDEV_IO_RESET;
	request_submit(reset);
	for (unsigned i = BUFFERS; i < WRITES - 1; i++) {
		CU_ASSERT_EQUAL(request_finish(r[i]), NVME_SC_ABORT_REQ);
	}
	t->hold = false; /* its poller completes what is held */
	for (unsigned i = 0; i < BUFFERS; i++) {
		uint16_t status = request_finish(r[i]);
		CU_ASSERT_TRUE(status == 0 || status == NVME_SC_ABORT_REQ);
	}
	(void)request_finish(read);
	CU_ASSERT_EQUAL(request_finish(reset), 0);
	for (unsigned i = 0; i < WRITES; i++) { /* and without any of that, all of them get their turn */
		r[i] = write_start(&u, i * CLUSTER_BLOCKS + 1);
	}
	for (unsigned i = 0; i < WRITES; i++) {
		CU_ASSERT_EQUAL(request_finish(r[i]), 0);
	}
	CU_ASSERT_EQUAL(fill(&u, 1, 3, 1), 0);
	CU_ASSERT_TRUE(holds(&u, 1, 3, 1) && holds(&u, 0, 4, 1));
	end_on_testdev(t, &u);
}

/* A volume is being inflated while a first write copies the same. */
static void test_the_bdev_is_copied_by_a_change_and_by_writes(void)
{
	struct operation op;
	struct user u;
	struct testdev *t = begin_on_testdev(&u);

	atomic_store(&t->held, 0);
	t->hold = true;
	struct request *write = write_start(&u, CLUSTER_BLOCKS);
	change_start(&op, BDEV_LVOL_INFLATE, "lvs/v", NULL, 0);
	CU_ASSERT_TRUE_FATAL(fixture_wait_count(&t->held, 2));
	t->hold = false;
	CU_ASSERT_EQUAL(request_finish(write), 0);
	CU_ASSERT_EQUAL(operation_wait(&op), 0);
	end_on_testdev(t, &u);
}

/* --- Changes that meet --- */

/* A store whose writes can be held, and p0 on an image. */
static struct testdev *begin_meeting(void)
{
	struct testdev *t = testdev_new("t0", BLOCK, BASE_BLOCKS);

	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	wait_for_examine();
	CU_ASSERT_EQUAL_FATAL(store_make("t0"), 0);
	image_make("x");
	CU_ASSERT_EQUAL_FATAL(bdev_passthru_create("p0", "x", NULL, error), 0);
	wait_for_examine();
	return t;
}

static void end_meeting(struct testdev *t, struct user *u)
{
	user_close(u);
	CU_ASSERT_EQUAL(store_delete(), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "p0"), 0);
	image_delete("x");
	CU_ASSERT_TRUE(testdev_delete(t));
}

/* A change that has begun while the volume had no bdev holds it: the writes of a bdev that comes wait for its end. */
static void test_a_bdev_that_comes_while_a_change_holds_its_volume_is_paused(void)
{
	struct testdev *t = begin_meeting();
	struct operation op;
	struct user u;

	CU_ASSERT_EQUAL_FATAL(image_clone("p0", "v"), 0);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_SNAPSHOT, "lvs/v", "s", 0), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "p0"), 0);
	CU_ASSERT_PTR_NULL(bdev_find("lvs/v"));
	atomic_store(&t->held, 0);
	t->hold = true;
	change_start(&op, BDEV_LVOL_DELETE, "lvs/s", NULL, 0); /* its clusters become those of v */
	CU_ASSERT_TRUE_FATAL(fixture_wait_count(&t->held, 1));
	CU_ASSERT_EQUAL_FATAL(bdev_passthru_create("p0", "x", NULL, error), 0);
	wait_for_examine();
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "lvs/v", true, fixture_thread(0)), 0);
	struct request *write = write_start(&u, 1);
	CU_ASSERT_TRUE_FATAL(fixture_poll(something_waits, "its volume to be changed"));
	CU_ASSERT_FALSE(atomic_load(&op.done));
	t->hold = false; /* its poller completes what is held */
	CU_ASSERT_EQUAL(operation_wait(&op), 0);
	CU_ASSERT_EQUAL(request_finish(write), 0);
	end_meeting(t, &u);
}

/* Its bdev has gone, and the deletion has yet to begin: it is not one that waits for its bdev. */
static void test_a_clone_is_deleted_once(void)
{
	struct operation first, second;
	struct user u;

	begin(&u);
	user_close(&u);
	uint32_t before = free_clusters();
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_SNAPSHOT, "lvs/c", "s", 0), 0);
	for (unsigned i = 0; i < 2; i++) {
		const char *name = i == 0 ? "lvs/c" : "lvs/s";
		change_start(&first, BDEV_LVOL_DELETE, name, NULL, 0);
		CU_ASSERT_TRUE(fixture_poll(has_no_bdev, (void *)(uintptr_t)name));
		change_start(&second, BDEV_LVOL_DELETE, name, NULL, 0);
		CU_ASSERT_EQUAL(operation_wait(&second), -ENODEV);
		CU_ASSERT_EQUAL(operation_wait(&first), 0);
	}
	CU_ASSERT_EQUAL(free_clusters(), before);
	CU_ASSERT_EQUAL_FATAL(image_clone("x", "c"), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "lvs/c", true, fixture_thread(0)), 0);
	end(&u);
}

/* The bdev before the last change has been closed. */
static bool has_one_place(void *arg)
{
	const struct bdev_lvol *l = arg;

	return l->external.place[0].is_taken != l->external.place[1].is_taken;
}

/* A snapshot on x has the same data as y, and hides what x has there. */
static void test_reads_see_neither_bdev_where_a_snapshot_hides_it(void)
{
	struct iovec iov = {data, CLUSTER};
	struct operation op;
	struct user u, reader, y;
	unsigned wrong = 0;

	begin(&u);
	image_make("y");
	CU_ASSERT_EQUAL_FATAL(user_open(&y, "y", true, fixture_thread(0)), 0);
	memset(long_data, 0xfb, CLUSTER);
	CU_ASSERT_EQUAL(user_io(&y, BDEV_IO_WRITE, long_data, 0, CLUSTER / SMALL), 0);
	user_close(&y);
	wait_for_examine();
	CU_ASSERT_EQUAL(fill(&u, 0xfb, 0, CLUSTER_BLOCKS), 0);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_SNAPSHOT, "lvs/c", "s", 0), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&reader, "lvs/c", false, fixture_thread(1)), 0);
	for (unsigned i = 0; i < 100; i++) {
		change_start(&op, i % 2 == 0 ? BDEV_LVOL_SET_PARENT_BDEV : BDEV_LVOL_SET_PARENT, "lvs/c",
			     i % 2 == 0 ? "y" : "lvs/s", 0);
		do {
			struct request *r = request_new(&reader);
			memset(data, 0xfe, CLUSTER);
			bdev_io_set_rw(r->io, BDEV_IO_READ, &iov, 1, 0, CLUSTER_BLOCKS);
			request_submit(r);
			wrong += request_finish(r) != 0 || data[0] != 0xfb || memcmp(data, data + 1, CLUSTER - 1) != 0;
		} while (!atomic_load(&op.done));
		CU_ASSERT_EQUAL(op.rc, 0);
		CU_ASSERT_TRUE(fixture_poll(has_one_place, lvol_volume_of(bdev_find("lvs/c"))));
	}
	CU_ASSERT_EQUAL(wrong, 0);
	CU_ASSERT_TRUE(is_image(&u, CLUSTER_BLOCKS, 2 * CLUSTER_BLOCKS));
	user_close(&reader);
	CU_ASSERT_EQUAL(fill(&u, 0xaa, 1, 1), 0);
	CU_ASSERT_TRUE(holds(&u, 0xfb, 0, 1) && holds(&u, 0xaa, 1, 1) && holds(&u, 0xfb, 2, CLUSTER_BLOCKS - 2));
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_DELETE, "lvs/s", NULL, 0), 0);
	image_delete("y");
	end(&u);
}

/* A volume that has nothing external gets two at once: the end of the first change would take away what the second one
 * has prepared. */
static void test_one_change_of_the_parent_at_a_time(void)
{
	struct operation first, second;
	struct user u;

	store_on_malloc();
	image_make("x");
	image_make("y");
	CU_ASSERT_EQUAL_FATAL(volume_make("c", 3 * CLUSTER, true), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "lvs/c", true, fixture_thread(0)), 0);
	change_start(&first, BDEV_LVOL_SET_PARENT_BDEV, "lvs/c", "x", 0);
	change_start(&second, BDEV_LVOL_SET_PARENT_BDEV, "lvs/c", "y", 0);
	CU_ASSERT_EQUAL(operation_wait(&second), -EBUSY);
	CU_ASSERT_PTR_NOT_NULL(strstr(second.why, "another change of its parent"));
	CU_ASSERT_EQUAL(operation_wait(&first), 0);
	CU_ASSERT_TRUE(is_image(&u, 0, 3 * CLUSTER_BLOCKS));
	/* One that is refused, and a change of another kind that ends meanwhile, leave it as it is. */
	change_start(&first, BDEV_LVOL_INFLATE, "lvs/c", NULL, 0);
	change_start(&second, BDEV_LVOL_SET_PARENT_BDEV, "lvs/c", "y", 0);
	CU_ASSERT_EQUAL(operation_wait(&second), -EBUSY);
	CU_ASSERT_EQUAL(operation_wait(&first), 0);
	CU_ASSERT_TRUE(is_image(&u, 0, 3 * CLUSTER_BLOCKS));
	CU_ASSERT_TRUE(fixture_poll(is_free, "x") && fixture_poll(is_free, "y"));
	image_delete("y");
	end(&u);
}

/* Whatever comes to pass: what nobody can read is an error. */
static void test_data_that_cannot_be_read_are_no_zeroes(void)
{
	struct user u;

	begin(&u);
	struct bdev_lvol *l = lvol_volume_of(bdev_find("lvs/c"));
	int active = atomic_exchange(&l->external.active, -1);
	CU_ASSERT_NOT_EQUAL(user_io(&u, BDEV_IO_READ, data, 0, 1), 0);
	CU_ASSERT_NOT_EQUAL(fill(&u, 1, 0, 1), 0);
	CU_ASSERT_NOT_EQUAL(change_run(BDEV_LVOL_INFLATE, "lvs/c", NULL, 0), 0);
	atomic_store(&l->external.active, active);
	CU_ASSERT_TRUE(is_image(&u, 0, 3 * CLUSTER_BLOCKS));
	end(&u);
}

/* A bdev that a volume is about to depend on goes: the volume goes when it does depend on it. */
static void test_a_bdev_that_was_prepared_may_go(void)
{
	struct testdev *t = begin_meeting();
	struct operation op;
	struct user u;

	CU_ASSERT_EQUAL_FATAL(volume_make("v", 3 * CLUSTER, true), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "lvs/v", true, fixture_thread(0)), 0);
	u.close_on_remove = true;
	atomic_store(&t->held, 0);
	t->hold = true;
	change_start(&op, BDEV_LVOL_SET_PARENT_BDEV, "lvs/v", "p0", 0);
	CU_ASSERT_TRUE_FATAL(fixture_wait_count(&t->held, 1));
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "p0"), 0);
	CU_ASSERT_EQUAL(u.removes, 0);
	t->hold = false; /* its poller completes what is held */
	CU_ASSERT_EQUAL(operation_wait(&op), 0);
	CU_ASSERT_TRUE(fixture_poll(has_no_bdev, "lvs/v"));
	CU_ASSERT_EQUAL(u.removes, 1);
	CU_ASSERT_EQUAL_FATAL(bdev_passthru_create("p0", "x", NULL, error), 0);
	wait_for_examine();
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "lvs/v", true, fixture_thread(0)), 0);
	CU_ASSERT_TRUE(is_image(&u, 0, 3 * CLUSTER_BLOCKS));
	end_meeting(t, &u);
}

/* --- Sizes --- */

/* A volume of another store that a volume is a clone of. */
static void test_a_volume_that_others_depend_on_keeps_its_size(void)
{
	struct operation op = {0};
	int rc;

	store_on_malloc();
	make_malloc("m1", BLOCK, BASE_BLOCKS);
	wait_for_examine();
	bdev_lvol_store_create(
		&(struct bdev_lvol_store_opts){.bdev_name = "m1", .name = "other", .cluster_bytes = CLUSTER},
		operation_ended, &op);
	CU_ASSERT_EQUAL_FATAL(operation_wait(&op), 0);
	struct bdev_lvol_store *other = bdev_lvol_store_find(NULL, "other", &rc, error);
	memset(&op, 0, sizeof(op));
	bdev_lvol_create(&(struct bdev_lvol_opts){.store = other, .name = "w", .size_bytes = 4 * CLUSTER, .thin = true},
			 operation_ended, &op);
	CU_ASSERT_EQUAL_FATAL(operation_wait(&op), 0);
	CU_ASSERT_EQUAL_FATAL(image_clone("other/w", "c"), 0);
	for (uint64_t clusters = 3; clusters <= 5; clusters += 2) {
		change_start(&op, BDEV_LVOL_RESIZE, "other/w", NULL, clusters * CLUSTER);
		CU_ASSERT_EQUAL(operation_wait(&op), -EBUSY);
		CU_ASSERT_PTR_NOT_NULL(strstr(op.why, "external snapshot"));
		CU_ASSERT_EQUAL(bdev_num_blocks(bdev_find("other/w")), 4 * CLUSTER_BLOCKS);
	}
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_DELETE, "lvs/c", NULL, 0), 0);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_RESIZE, "other/w", NULL, 3 * CLUSTER), 0);
	memset(&op, 0, sizeof(op));
	bdev_lvol_store_delete(other, operation_ended, &op);
	CU_ASSERT_EQUAL(operation_wait(&op), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m1"), 0);
	store_off_malloc();
}

/* What a bdev grows by is not the volume's; what it loses is an error. */
static void test_a_bdev_that_changes_its_size_gives_no_other_data(void)
{
	struct bdev *x;
	struct user u;

	store_on_malloc();
	image_make("x");
	x = bdev_find("x");
	bdev_resize(x, IMAGE_BYTES / SMALL - 2 * PER);
	CU_ASSERT_EQUAL_FATAL(image_clone("x", "c"), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "lvs/c", true, fixture_thread(0)), 0);
	bdev_resize(x, IMAGE_BYTES / SMALL);
	CU_ASSERT_TRUE(is_image(&u, THIRD, 1) && holds(&u, 0, THIRD + 2, 4));
	bdev_resize(x, IMAGE_BYTES / SMALL - 3 * PER);
	CU_ASSERT_NOT_EQUAL(user_io(&u, BDEV_IO_READ, data, THIRD, 1), 0);
	CU_ASSERT_NOT_EQUAL(fill(&u, 0xaa, THIRD + 4, 1), 0);
	bdev_resize(x, IMAGE_BYTES / SMALL);
	CU_ASSERT_EQUAL(fill(&u, 0xaa, THIRD + 4, 1), 0);
	CU_ASSERT_TRUE(is_image(&u, THIRD, 1) && holds(&u, 0, THIRD + 2, 2) && holds(&u, 0xaa, THIRD + 4, 1));
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_INFLATE, "lvs/c", NULL, 0), 0);
	CU_ASSERT_TRUE(is_image(&u, 0, THIRD + 1) && holds(&u, 0, THIRD + 2, 2));
	end(&u);
}

/* --- Figures --- */

struct figures {
	uint64_t bytes, free, volumes, degraded, failed, metadata, own_v, own_c;
	unsigned num;
};

static void figure_take(void *arg, const struct bdev_module_figure *f)
{
	struct figures *all = arg;
	const struct {
		const char *name, *what;
		uint64_t *to;
	} known[] = {
		{"varve_lvol_store_bytes", "lvs", &all->bytes},
		{"varve_lvol_store_free_bytes", "lvs", &all->free},
		{"varve_lvol_store_volumes", "lvs", &all->volumes},
		{"varve_lvol_store_degraded_volumes", "lvs", &all->degraded},
		{"varve_lvol_store_failed", "lvs", &all->failed},
		{"varve_lvol_store_metadata_bytes_total", "lvs", &all->metadata},
		{"varve_lvol_own_bytes", "lvs/v", &all->own_v},
		{"varve_lvol_own_bytes", "lvs/c", &all->own_c},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (strcmp(f->name, known[i].name) == 0 && strcmp(f->what, known[i].what) == 0) {
			*known[i].to = f->value;
			CU_ASSERT_EQUAL(f->grows, i == 5);
			all->num++;
		}
	}
}

static struct figures figures_get(void)
{
	struct figures all = {.num = 0};

	bdev_lvol_module.figures(figure_take, &all);
	return all;
}

static void test_figures_tell_what_stores_and_volumes_have(void)
{
	struct user u, v;

	CU_ASSERT_EQUAL(figures_get().num, 0);
	begin_on_passthru(&u, false);
	CU_ASSERT_EQUAL_FATAL(volume_make("v", VOLUME_BYTES, false), 0);
	struct figures f = figures_get();
	CU_ASSERT_EQUAL(f.num, 8);
	CU_ASSERT_EQUAL(f.free, (uint64_t)free_clusters() * CLUSTER);
	CU_ASSERT_EQUAL(f.bytes, f.free + VOLUME_BYTES + CLUSTER);
	CU_ASSERT_TRUE(f.volumes == 2 && f.degraded == 0 && f.failed == 0);
	CU_ASSERT_TRUE(f.own_v == VOLUME_BYTES && f.own_c == CLUSTER);
	uint64_t before = f.metadata;
	CU_ASSERT_EQUAL_FATAL(user_open(&v, "lvs/v", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(fill(&v, 1, 0, 1), 0);
	CU_ASSERT_EQUAL(figures_get().metadata, before); /* it is allocated */
	user_close(&v);
	CU_ASSERT_EQUAL(fill(&u, 1, CLUSTER_BLOCKS, 1), 0);
	CU_ASSERT_TRUE(figures_get().metadata > before);
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "p0"), 0);
	f = figures_get();
	CU_ASSERT_TRUE(f.degraded == 1 && f.own_c == 2 * CLUSTER);
	CU_ASSERT_EQUAL(store_delete(), 0);
	CU_ASSERT_EQUAL(figures_get().num, 0);
	image_delete("x");
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
}

static const struct unit_test tests[] = {
	UNIT(test_a_clone_has_the_data_of_the_bdev),
	UNIT(test_a_first_write_copies_what_is_around_it),
	UNIT(test_zeroes_hide_what_the_bdev_has),
	UNIT(test_large_clusters_are_copied_in_pieces),
	UNIT(test_snapshots_hand_on_what_is_external),
	UNIT(test_an_inflated_volume_lets_the_bdev_go),
	UNIT(test_a_volume_goes_and_comes_with_its_bdev),
	UNIT(test_a_volume_without_its_bdev_can_be_deleted),
	UNIT(test_a_volume_whose_bdev_is_going_is_not_deleted),
	UNIT(test_a_store_is_opened_before_the_bdev_is_there),
	UNIT(test_what_cannot_be_an_external_snapshot_is_refused),
	UNIT(test_a_bdev_becomes_the_parent_and_a_snapshot_again),
	UNIT(test_reads_go_on_while_one_bdev_takes_the_place_of_another),
	UNIT(test_an_error_of_the_bdev_leaves_nothing_behind),
	UNIT(test_what_waits_for_the_bdev_can_be_aborted_and_reset),
	UNIT(test_few_first_writes_have_a_buffer_at_a_time),
	UNIT(test_the_bdev_is_copied_by_a_change_and_by_writes),
	UNIT(test_a_bdev_that_comes_while_a_change_holds_its_volume_is_paused),
	UNIT(test_a_clone_is_deleted_once),
	UNIT(test_reads_see_neither_bdev_where_a_snapshot_hides_it),
	UNIT(test_one_change_of_the_parent_at_a_time),
	UNIT(test_data_that_cannot_be_read_are_no_zeroes),
	UNIT(test_a_bdev_that_was_prepared_may_go),
	UNIT(test_a_volume_that_others_depend_on_keeps_its_size),
	UNIT(test_a_bdev_that_changes_its_size_gives_no_other_data),
	UNIT(test_figures_tell_what_stores_and_volumes_have),
	UNIT_END,
};
UNIT_MAIN("bdev_lvol_external", tests, fixture_start, fixture_stop)
