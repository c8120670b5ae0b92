/* SPDX-License-Identifier: BSD-3-Clause */
/* Volumes as bdevs: what is read is what was written, through snapshots, clones and changes that come while I/O is
 * under way; and stores are closed when their base goes, and found again. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bdev_modules/lvol/test_lvol_kit.h"
#include "bdev_modules/passthru/passthru.h"

/* --- What is read --- */

static void test_what_nobody_wrote_is_zeroes(void)
{
	struct user u;

	store_on_malloc();
	CU_ASSERT_EQUAL_FATAL(volume_make("v", VOLUME_BYTES, true), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "lvs/v", true, fixture_thread(0)), 0);
	CU_ASSERT_TRUE(holds(&u, 0, 0, 2 * CLUSTER_BLOCKS));
	CU_ASSERT_EQUAL(fill(&u, 1, CLUSTER_BLOCKS + 3, 2), 0);
	CU_ASSERT_TRUE(holds(&u, 0, CLUSTER_BLOCKS, 3));
	CU_ASSERT_TRUE(holds(&u, 1, CLUSTER_BLOCKS + 3, 2));
	CU_ASSERT_TRUE(holds(&u, 0, CLUSTER_BLOCKS + 5, CLUSTER_BLOCKS - 5));
	CU_ASSERT_EQUAL(fill(&u, 2, 4 * CLUSTER_BLOCKS - 2, 4), 0); /* over the end of a cluster */
	CU_ASSERT_TRUE(holds(&u, 2, 4 * CLUSTER_BLOCKS - 2, 4));
	CU_ASSERT_TRUE(holds(&u, 0, 3 * CLUSTER_BLOCKS, CLUSTER_BLOCKS - 2));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_FLUSH, NULL, 0, VOLUME_BLOCKS), 0);
	user_close(&u);
	CU_ASSERT_EQUAL_FATAL(volume_make("thick", VOLUME_BYTES, false), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "lvs/thick", true, fixture_thread(0)), 0);
	CU_ASSERT_TRUE(holds(&u, 0, 0, VOLUME_BLOCKS));
	user_close(&u);
	store_off_malloc();
}

static void test_snapshots_and_clones_keep_what_was_there(void)
{
	struct user v, s, c;

	store_on_malloc();
	CU_ASSERT_EQUAL_FATAL(volume_make("v", VOLUME_BYTES, true), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&v, "lvs/v", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(fill(&v, 1, 0, CLUSTER_BLOCKS), 0);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_SNAPSHOT, "lvs/v", "s", 0), 0);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_SNAPSHOT, "lvs/v", "s", 0), -EEXIST);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_CLONE, "lvs/s", "c", 0), 0);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_CLONE, "lvs/v", "d", 0), -EPERM);
	CU_ASSERT_EQUAL_FATAL(user_open(&s, "lvs/s", false, fixture_thread(1)), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&c, "lvs/c", true, fixture_thread(2)), 0);
	CU_ASSERT_EQUAL(fill(&v, 2, 5, 1), 0);
	CU_ASSERT_EQUAL(fill(&c, 3, 7, 1), 0);
	CU_ASSERT_TRUE(holds(&v, 1, 0, 5) && holds(&v, 2, 5, 1) && holds(&v, 1, 6, CLUSTER_BLOCKS - 6));
	CU_ASSERT_TRUE(holds(&s, 1, 0, CLUSTER_BLOCKS) && holds(&s, 0, CLUSTER_BLOCKS, 1));
	CU_ASSERT_TRUE(holds(&c, 1, 0, 7) && holds(&c, 3, 7, 1) && holds(&c, 1, 8, CLUSTER_BLOCKS - 8));
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_DELETE, "lvs/s", NULL, 0), -EBUSY);
	struct user w;
	CU_ASSERT_EQUAL(user_open(&w, "lvs/s", true, fixture_thread(1)), -EROFS);
	user_close(&v);
	user_close(&c);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_DELETE, "lvs/v", NULL, 0), 0);
	user_close(&s);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_DELETE, "lvs/s", NULL, 0), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&c, "lvs/c", true, fixture_thread(2)), 0);
	CU_ASSERT_TRUE(holds(&c, 1, 0, 7) && holds(&c, 3, 7, 1) && holds(&c, 1, 8, CLUSTER_BLOCKS - 8));
	user_close(&c);
	store_off_malloc();
}

static void test_zeroes_are_written_everywhere(void)
{
	struct user u;

	store_on_malloc();
	CU_ASSERT_EQUAL_FATAL(volume_make("v", VOLUME_BYTES, true), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "lvs/v", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(fill(&u, 1, 0, CLUSTER_BLOCKS), 0);
	CU_ASSERT_EQUAL(fill(&u, 1, CLUSTER_BLOCKS, CLUSTER_BLOCKS), 0);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_SNAPSHOT, "lvs/v", "s", 0), 0);
	CU_ASSERT_EQUAL(fill(&u, 2, 3 * CLUSTER_BLOCKS, CLUSTER_BLOCKS), 0);
	uint32_t before = free_clusters();
	/* A part of a snapshot's cluster, one, nobody's, and a part of an own one. */
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE_ZEROES, NULL, 4, 3 * CLUSTER_BLOCKS), 0);
	CU_ASSERT_TRUE(holds(&u, 1, 0, 4) && holds(&u, 0, 4, 3 * CLUSTER_BLOCKS));
	CU_ASSERT_TRUE(holds(&u, 2, 3 * CLUSTER_BLOCKS + 4, CLUSTER_BLOCKS - 4));
	CU_ASSERT_EQUAL(free_clusters(), before - 2);
	user_close(&u);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "lvs/s", false, fixture_thread(0)), 0);
	CU_ASSERT_TRUE(holds(&u, 1, 0, 2 * CLUSTER_BLOCKS));
	user_close(&u);
	store_off_malloc();
}

static void test_unmap_gives_whole_clusters_back(void)
{
	struct user u;

	store_on_malloc();
	CU_ASSERT_EQUAL_FATAL(volume_make("v", VOLUME_BYTES, true), 0);
	uint32_t before = free_clusters();
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "lvs/v", true, fixture_thread(0)), 0);
	for (unsigned i = 0; i < 4; i++) {
		CU_ASSERT_EQUAL(fill(&u, 1, i * CLUSTER_BLOCKS, CLUSTER_BLOCKS), 0);
	}
	CU_ASSERT_EQUAL(free_clusters(), before - 4);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_UNMAP, NULL, 4, 3 * CLUSTER_BLOCKS), 0);
	before -= 2;
	CU_ASSERT_TRUE(fixture_poll(has_free_clusters, &before));
	CU_ASSERT_TRUE(holds(&u, 1, 0, 4) && holds(&u, 1, 3 * CLUSTER_BLOCKS + 4, CLUSTER_BLOCKS - 4));
	CU_ASSERT_TRUE(holds(&u, 0, CLUSTER_BLOCKS, 2 * CLUSTER_BLOCKS));
	CU_ASSERT_EQUAL(fill(&u, 5, CLUSTER_BLOCKS + 1, 1), 0);
	CU_ASSERT_TRUE(holds(&u, 0, CLUSTER_BLOCKS, 1) && holds(&u, 5, CLUSTER_BLOCKS + 1, 1));
	user_close(&u);
	store_off_malloc();
}

/* Many pieces that the base ends at once must not cost stack. */
static void test_long_ranges_are_carried_out_piece_by_piece(void)
{
	const uint64_t bytes = 4000ull * CLUSTER, blocks = bytes / BLOCK;
	struct user u;

	make_malloc("m0", BLOCK, 4500 * CLUSTER_BLOCKS);
	CU_ASSERT_EQUAL_FATAL(store_make("m0"), 0);
	CU_ASSERT_EQUAL_FATAL(volume_make("thick", bytes, false), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "lvs/thick", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(fill(&u, 1, 0, 1), 0);
	CU_ASSERT_EQUAL(fill(&u, 1, blocks - 1, 1), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_UNMAP, NULL, 0, blocks), 0);
	CU_ASSERT_EQUAL(fill(&u, 1, 0, 1), 0);
	CU_ASSERT_EQUAL(fill(&u, 1, blocks - 1, 1), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE_ZEROES, NULL, 0, blocks), 0);
	CU_ASSERT_TRUE(holds(&u, 0, 0, 1) && holds(&u, 0, blocks - 1, 1));
	user_close(&u);
	store_off_malloc();
}

static void test_a_full_store_refuses_first_writes_only(void)
{
	struct user u;

	store_on_malloc();
	uint64_t clusters = free_clusters();
	CU_ASSERT_EQUAL(volume_make("thick", (clusters + 1) * CLUSTER, false), -ENOSPC);
	CU_ASSERT_EQUAL_FATAL(volume_make("v", (clusters + 1) * CLUSTER, true), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "lvs/v", true, fixture_thread(0)), 0);
	uint64_t n = 0;
	uint16_t status = 0;
	for (; n <= clusters && status == 0; n++) {
		status = fill(&u, 1, n * CLUSTER_BLOCKS, 1);
	}
	CU_ASSERT_EQUAL(n, clusters + 1);
	CU_ASSERT_EQUAL(status, NVME_SC_CAP_EXCEEDED | NVME_SC_DNR);
	CU_ASSERT_EQUAL(fill(&u, 2, 0, 1), 0);
	CU_ASSERT_TRUE(holds(&u, 2, 0, 1) && holds(&u, 1, CLUSTER_BLOCKS, 1));
	CU_ASSERT_TRUE(holds(&u, 0, clusters * CLUSTER_BLOCKS, 1));
	user_close(&u);
	store_off_malloc();
}

/* --- Changes --- */

static void test_size_name_and_permission_change(void)
{
	struct user u;

	store_on_malloc();
	CU_ASSERT_EQUAL_FATAL(volume_make("v", VOLUME_BYTES, true), 0);
	CU_ASSERT_EQUAL(volume_make("v", VOLUME_BYTES, true), -EEXIST);
	CU_ASSERT_EQUAL(volume_make("", VOLUME_BYTES, true), -EINVAL);
	CU_ASSERT_EQUAL(volume_make("w", 0, true), -EINVAL);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "lvs/v", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(fill(&u, 1, VOLUME_BLOCKS - 1, 1), 0);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_RESIZE, "lvs/v", NULL, VOLUME_BYTES + 1), 0);
	CU_ASSERT_EQUAL(bdev_num_blocks(bdev_find("lvs/v")), VOLUME_BLOCKS + CLUSTER_BLOCKS);
	CU_ASSERT_EQUAL(u.resizes, 1);
	CU_ASSERT_EQUAL(fill(&u, 2, VOLUME_BLOCKS, 1), 0);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_RESIZE, "lvs/v", NULL, VOLUME_BYTES / 2), 0);
	CU_ASSERT_EQUAL(fill(&u, 2, VOLUME_BLOCKS / 2, 1), NVME_SC_LBA_RANGE | NVME_SC_DNR);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_RESIZE, "lvs/v", NULL, VOLUME_BYTES), 0);
	CU_ASSERT_TRUE(holds(&u, 0, VOLUME_BLOCKS - 1, 1));
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_RENAME, "lvs/v", "w", 0), 0);
	CU_ASSERT_PTR_NULL(bdev_find("lvs/v"));
	CU_ASSERT_PTR_NOT_NULL(bdev_find("lvs/w"));
	CU_ASSERT_EQUAL(fill(&u, 3, 0, 1), 0);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_SET_READ_ONLY, "lvs/w", NULL, 0), 0);
	CU_ASSERT_EQUAL(fill(&u, 4, 0, 1), NVME_SC_NS_WRITE_PROTECTED | NVME_SC_DNR);
	CU_ASSERT_TRUE(holds(&u, 3, 0, 1));
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_RESIZE, "lvs/w", NULL, 2 * VOLUME_BYTES), -EPERM);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_CLONE, "lvs/w", "c", 0), 0);
	user_close(&u);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_DELETE, "lvs/nobody", NULL, 0), -ENODEV);
	store_off_malloc();
}

static void test_a_store_is_renamed_with_its_volumes(void)
{
	struct operation op = {0};

	store_on_malloc();
	CU_ASSERT_EQUAL_FATAL(volume_make("v", VOLUME_BYTES, true), 0);
	bdev_lvol_store_rename(the_store(), "other", operation_ended, &op);
	CU_ASSERT_EQUAL(operation_wait(&op), 0);
	CU_ASSERT_PTR_NULL(bdev_find("lvs/v"));
	CU_ASSERT_PTR_NOT_NULL(bdev_find("other/v"));
	CU_ASSERT_PTR_NULL(the_store());
	memset(&op, 0, sizeof(op));
	int rc;
	bdev_lvol_store_rename(bdev_lvol_store_find(NULL, "other", &rc, error), "lvs", operation_ended, &op);
	CU_ASSERT_EQUAL(operation_wait(&op), 0);
	store_off_malloc();
}

/* --- The base --- */

static void test_a_store_is_closed_with_its_base_and_found_again(void)
{
	struct user u;

	make_malloc("m0", BLOCK, BASE_BLOCKS);
	CU_ASSERT_EQUAL_FATAL(bdev_passthru_create("p0", "m0", NULL, error), 0);
	wait_for_examine();
	CU_ASSERT_EQUAL_FATAL(store_make("p0"), 0);
	CU_ASSERT_EQUAL(store_make("p0"), -EEXIST);
	CU_ASSERT_EQUAL_FATAL(volume_make("v", VOLUME_BYTES, true), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "lvs/v", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(fill(&u, 1, 9, 1), 0);
	u.close_on_remove = true;
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "p0"), 0);
	CU_ASSERT_EQUAL(u.removes, 1);
	CU_ASSERT_PTR_NULL(bdev_find("lvs/v"));

	CU_ASSERT_EQUAL_FATAL(user_open(&u, "m0", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, data, 0, 1), 0);
	CU_ASSERT_EQUAL(data[8], 3); /* the superblock's version: it was closed */
	user_close(&u);
	CU_ASSERT_EQUAL(bdev_examine("m0"), 0);
	wait_for_examine();
	CU_ASSERT_EQUAL(bdev_get_claim(bdev_find("m0"), NULL), BDEV_CLAIM_EXCL_WRITE);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "lvs/v", true, fixture_thread(0)), 0);
	CU_ASSERT_TRUE(holds(&u, 0, 8, 1) && holds(&u, 1, 9, 1));
	user_close(&u);
	store_off_malloc();
}

/* In the metadata on a bdev. */
static unsigned text_replace(const char *bdev, const char *from, const char *to)
{
	struct user u;
	unsigned found = 0;

	CU_ASSERT_EQUAL_FATAL(user_open(&u, bdev, true, fixture_thread(0)), 0);
	for (uint64_t block = 0; block < BASE_BLOCKS / 4; block++) {
		CU_ASSERT_EQUAL_FATAL(user_io(&u, BDEV_IO_READ, data, block, 1), 0);
		uint8_t *at = memmem(data, BLOCK, from, strlen(from));
		if (at != NULL) {
			struct lvol_md_page *p = (struct lvol_md_page *)data;
			memcpy(at, to, strlen(to));
			p->crc = lvol_crc(p);
			CU_ASSERT_EQUAL_FATAL(user_io(&u, BDEV_IO_WRITE, data, block, 1), 0);
			found++;
		}
	}
	user_close(&u);
	return found;
}

/* A program that is broken may write that. Each can be reached, and the second one deleted. */
static void test_two_volumes_of_one_uuid_are_both_served(void)
{
	struct operation v = {0}, w = {0};
	char second[BDEV_ERROR_MAX];
	struct user u;

	make_malloc("m0", BLOCK, BASE_BLOCKS);
	CU_ASSERT_EQUAL_FATAL(bdev_passthru_create("p0", "m0", NULL, error), 0);
	wait_for_examine();
	CU_ASSERT_EQUAL_FATAL(store_make("p0"), 0);
	struct bdev_lvol_opts o = {.store = the_store(), .name = "v", .size_bytes = VOLUME_BYTES, .thin = true};
	bdev_lvol_create(&o, operation_ended, &v);
	CU_ASSERT_EQUAL_FATAL(operation_wait(&v), 0);
	o.name = "w";
	bdev_lvol_create(&o, operation_ended, &w);
	CU_ASSERT_EQUAL_FATAL(operation_wait(&w), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "lvs/w", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(fill(&u, 7, 3, 1), 0);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "p0"), 0);

	CU_ASSERT_TRUE_FATAL(text_replace("m0", w.uuid, v.uuid) > 0); /* old copies of the page may be there, too */
	CU_ASSERT_EQUAL(bdev_examine("m0"), 0);
	wait_for_examine();
	CU_ASSERT_PTR_EQUAL(bdev_find(v.uuid), bdev_find("lvs/v"));
	CU_ASSERT_PTR_NULL(bdev_find(w.uuid));
	CU_ASSERT_PTR_NOT_NULL_FATAL(bdev_find("lvs/w"));
	snprintf(second, sizeof(second), "%s", bdev_find("lvs/w")->name);
	CU_ASSERT_STRING_NOT_EQUAL(second, v.uuid);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, second, true, fixture_thread(0)), 0);
	CU_ASSERT_TRUE(holds(&u, 7, 3, 1));
	user_close(&u);
	CU_ASSERT_EQUAL(change_run(BDEV_LVOL_DELETE, second, NULL, 0), 0);
	CU_ASSERT_PTR_NOT_NULL(bdev_find(v.uuid));
	store_off_malloc();
}

static void test_bases_that_cannot_have_a_store_are_refused(void)
{
	struct operation op = {0};

	CU_ASSERT_EQUAL(store_make("nobody"), -ENODEV);
	make_malloc("m0", BLOCK, BASE_BLOCKS);
	wait_for_examine();
	bdev_lvol_store_create(&(struct bdev_lvol_store_opts){.bdev_name = "m0", .name = "lvs", .cluster_bytes = 70000},
			       operation_ended, &op);
	CU_ASSERT_EQUAL(operation_wait(&op), -EINVAL);
	CU_ASSERT_EQUAL(bdev_get_claim(bdev_find("m0"), NULL), BDEV_CLAIM_NONE);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
	make_malloc("m0", BLOCK, 4); /* too small */
	wait_for_examine();
	CU_ASSERT_NOT_EQUAL(store_make("m0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
}

/* --- What is under way --- */

/* A write that the base holds. */
static struct request *write_held(struct testdev *t, struct user *u)
{
	atomic_store(&t->held, 0);
	t->hold = true;
	struct request *r = write_start(u, 0);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 1));
	return r;
}

static void test_a_change_waits_for_writes_and_holds_new_ones_back(void)
{
	struct user u, base;
	struct testdev *t = store_on_testdev(&u);
	struct operation op;

	watch_base(&base);
	struct request *before = write_held(t, &u);
	change_start(&op, BDEV_LVOL_SNAPSHOT, "lvs/v", "s", 0);
	struct request *after = write_start(&u, 1), *aborted = write_start(&u, 2);
	CU_ASSERT_TRUE(fixture_poll(something_waits, "volume to be changed"));
	CU_ASSERT_FALSE(atomic_load(&op.done));
	struct request *read = request_new(&u);
	bdev_io_set_rw(read->io, BDEV_IO_READ, &other_block, 1, 0, 1);
	request_submit(read);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 2)); /* reads go on */
	struct request *abort = abort_of(&u, aborted);
	CU_ASSERT_EQUAL(request_run(abort), 0);
	CU_ASSERT_EQUAL(abort->cdw0, 0);
	request_free(abort);
	CU_ASSERT_EQUAL(request_finish(aborted), NVME_SC_ABORT_REQ);
	CU_ASSERT_FALSE(atomic_load(&after->done));
	memset(data, 9, BLOCK);
	t->hold = false; /* its poller completes what is held */
	CU_ASSERT_EQUAL(request_finish(before), 0);
	CU_ASSERT_EQUAL(request_finish(read), 0);
	CU_ASSERT_EQUAL(operation_wait(&op), 0);
	CU_ASSERT_EQUAL(request_finish(after), 0);
	user_close(&base);
	struct user s;
	CU_ASSERT_EQUAL_FATAL(user_open(&s, "lvs/s", false, fixture_thread(1)), 0);
	CU_ASSERT_TRUE(holds(&s, 9, 0, 1) && holds(&s, 0, 1, 1));
	user_close(&s);
	store_off_testdev(t, &u);
}

static void test_a_reset_ends_what_a_change_holds_back(void)
{
	struct user u, base;
	struct testdev *t = store_on_testdev(&u);
	struct operation op;

	watch_base(&base);
	struct request *before = write_held(t, &u);
	change_start(&op, BDEV_LVOL_RESIZE, "lvs/v", NULL, 2 * VOLUME_BYTES);
	struct request *after = write_start(&u, 1), *reset = request_new(&u);
	CU_ASSERT_TRUE(fixture_poll(something_waits, "volume to be changed"));
	reset->io->type = BDEV_IO_RESET;
	request_submit(reset);
	CU_ASSERT_EQUAL(request_finish(after), NVME_SC_ABORT_REQ);
	CU_ASSERT_FALSE(atomic_load(&reset->done));
	t->hold = false; /* its poller completes what is held */
	CU_ASSERT_EQUAL(request_finish(before), 0);
	CU_ASSERT_EQUAL(request_finish(reset), 0);
	CU_ASSERT_EQUAL(operation_wait(&op), 0);
	user_close(&base);
	store_off_testdev(t, &u);
}

/* Two first writes to one cluster: the second waits for the first, and can be aborted meanwhile. */
static void test_a_first_write_waits_for_the_one_before(void)
{
	struct user u, base;
	struct testdev *t = store_on_testdev(&u);

	watch_base(&base);
	atomic_store(&t->held, 0);
	t->hold = true;
	struct request *first = write_start(&u, CLUSTER_BLOCKS + 1);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 3)); /* it, and the zeroes around it */
	struct request *second = write_start(&u, CLUSTER_BLOCKS + 2), *third = write_start(&u, CLUSTER_BLOCKS + 3),
		       *other = write_start(&u, 2 * CLUSTER_BLOCKS);
	CU_ASSERT_TRUE(fixture_poll(something_waits, "first write to its cluster"));
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 5)); /* other clusters do not wait */
	struct request *abort = abort_of(&u, third);
	CU_ASSERT_EQUAL(request_run(abort), 0);
	CU_ASSERT_EQUAL(abort->cdw0, 0);
	request_free(abort);
	CU_ASSERT_EQUAL(request_finish(third), NVME_SC_ABORT_REQ);
	memset(data, 7, BLOCK);
	t->hold = false; /* its poller completes what is held */
	CU_ASSERT_EQUAL(request_finish(first), 0);
	CU_ASSERT_EQUAL(request_finish(second), 0);
	CU_ASSERT_EQUAL(request_finish(other), 0);
	CU_ASSERT_TRUE(holds(&u, 7, CLUSTER_BLOCKS + 1, 1) && holds(&u, 0, CLUSTER_BLOCKS + 3, 1));
	user_close(&base);
	store_off_testdev(t, &u);
}

static void test_a_first_write_that_fails_leaves_nothing(void)
{
	struct user u, base;
	struct testdev *t = store_on_testdev(&u);
	uint32_t before = free_clusters();

	watch_base(&base);
	atomic_store(&t->held, 0);
	t->hold = true;
	struct request *first = write_start(&u, CLUSTER_BLOCKS + 1);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 3));
	const uint16_t failure = BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_WRITE_FAULT);
	testdev_release(t, &base, failure);
	t->hold = false;
	CU_ASSERT_EQUAL(request_finish(first), failure);
	CU_ASSERT_TRUE(fixture_poll(has_free_clusters, &before));
	CU_ASSERT_TRUE(holds(&u, 0, CLUSTER_BLOCKS, CLUSTER_BLOCKS));
	CU_ASSERT_EQUAL(fill(&u, 3, CLUSTER_BLOCKS + 2, 1), 0);
	CU_ASSERT_TRUE(holds(&u, 0, CLUSTER_BLOCKS + 1, 1) && holds(&u, 3, CLUSTER_BLOCKS + 2, 1));
	user_close(&base);
	store_off_testdev(t, &u);
}

static void test_deletion_waits_for_io_and_users(void)
{
	struct user u, base;
	struct testdev *t = store_on_testdev(&u);
	struct operation op, again;

	watch_base(&base);
	atomic_store(&t->held, 0);
	t->hold = true;
	struct request *one = write_start(&u, 0), *first = write_start(&u, CLUSTER_BLOCKS);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 3)); /* the second of them with zeroes behind it */
	change_start(&op, BDEV_LVOL_DELETE, "lvs/v", NULL, 0);
	CU_ASSERT_EQUAL(u.removes, 1);
	change_start(&again, BDEV_LVOL_SNAPSHOT, "lvs/v", "s", 0);
	CU_ASSERT_EQUAL(operation_wait(&again), -ENODEV);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, data, 5, 1), NVME_SC_INVALID_NS | NVME_SC_DNR);
	t->hold = false; /* its poller completes what is held */
	CU_ASSERT_EQUAL(request_finish(one), 0);
	CU_ASSERT_EQUAL(request_finish(first), 0);
	CU_ASSERT_FALSE(atomic_load(&op.done));
	user_close(&u);
	u.desc = NULL;
	CU_ASSERT_EQUAL(operation_wait(&op), 0);
	CU_ASSERT_PTR_NULL(bdev_find("lvs/v"));
	user_close(&base);
	store_off_testdev(t, &u);
}

static void flag_removed(void *arg, int rc)
{
	set_done(arg);
}

static bool version_is_closed(void *memory)
{
	return ((const uint8_t *)memory)[8] == 3;
}

/* The base is removed while a write is under way and a snapshot waits for it: all ends, and the store is closed. */
static void test_the_base_goes_in_the_middle_of_a_change(void)
{
	struct user u, base;
	struct testdev *t = store_on_testdev(&u);
	atomic_bool removed = false;
	struct operation op;
	uint8_t *memory = t->memory;

	watch_base(&base);
	struct request *before = write_held(t, &u);
	change_start(&op, BDEV_LVOL_SNAPSHOT, "lvs/v", "s", 0);
	struct request *after = write_start(&u, 1);
	CU_ASSERT_TRUE(fixture_poll(something_waits, "volume to be changed"));
	base.close_on_remove = false;
	bdev_unregister(&t->bdev, flag_removed, &removed);
	CU_ASSERT_EQUAL(u.removes, 1);
	t->hold = false; /* its poller completes what is held */
	CU_ASSERT_EQUAL(request_finish(before), 0);
	CU_ASSERT_EQUAL(request_finish(after), 0);
	user_close(&u);
	CU_ASSERT_EQUAL(operation_wait(&op), 0);
	CU_ASSERT_TRUE(fixture_poll(version_is_closed, memory)); /* of the superblock: the store was closed */
	user_close(&base);
	CU_ASSERT_TRUE(fixture_wait(&removed));
}

/* --- Storm --- */

#define STORM_THREADS 3u
#define STORM_OPS     3000u

/* Each thread writes to its own blocks, in all clusters, and knows what is in them. */
struct storm {
	struct user user;
	unsigned index, ops;
	uint64_t random, block;
	uint32_t stamp, stamps[VOLUME_BLOCKS];
	bool writes;
	atomic_bool over;
	unsigned errors, mismatches;
	struct bdev_io *io;
	struct request *r;
	struct iovec iov;
	uint32_t buffer[BLOCK / 4] __attribute__((aligned(4096)));
};

static void storm_next(struct storm *s);

static void storm_done(struct bdev_io *io, void *arg)
{
	struct storm *s = arg;

	s->errors += io->status != 0;
	if (io->type == BDEV_IO_WRITE) {
		s->stamps[s->block] = s->stamp;
	} else if (io->type == BDEV_IO_READ) {
		s->mismatches += s->buffer[0] != s->stamps[s->block] || s->buffer[BLOCK / 4 - 1] != s->stamps[s->block];
	} else {
		s->stamps[s->block] = 0;
	}
	if (++s->ops == STORM_OPS) {
		set_done(&s->over);
	} else {
		storm_next(s);
	}
}

static void storm_next(struct storm *s)
{
	uint64_t kind = fixture_random(&s->random) % 8;

	s->block = fixture_random(&s->random) % (VOLUME_BLOCKS / STORM_THREADS) * STORM_THREADS + s->index;
	if (kind < 4) {
		s->stamp = (uint32_t)fixture_random(&s->random);
		for (unsigned i = 0; i < BLOCK / 4; i++) {
			s->buffer[i] = s->stamp;
		}
	}
	enum bdev_io_type type = kind < 4 ? BDEV_IO_WRITE : kind < 7 ? BDEV_IO_READ : BDEV_IO_WRITE_ZEROES;
	bool has_data = type != BDEV_IO_WRITE_ZEROES;
	bdev_io_set_rw(s->io, type, has_data ? &s->iov : NULL, has_data, s->block, 1);
	bdev_submit(s->io);
}

static void storm_start(void *arg)
{
	struct storm *s = arg;

	bdev_io_init(s->io, s->user.desc, s->user.ch, storm_done, s);
	storm_next(s);
}

static bool storms_are_over(const struct storm *s)
{
	for (unsigned i = 0; i < STORM_THREADS; i++) {
		if (!atomic_load(&s[i].over)) {
			return false;
		}
	}
	return true;
}

static void test_io_is_right_while_snapshots_come_and_go(void)
{
	static struct storm s[STORM_THREADS];

	store_on_malloc();
	CU_ASSERT_EQUAL_FATAL(volume_make("v", VOLUME_BYTES, true), 0);
	memset(s, 0, sizeof(s));
	for (unsigned i = 0; i < STORM_THREADS; i++) {
		s[i].index = i;
		s[i].random = i + 1;
		s[i].iov = (struct iovec){s[i].buffer, BLOCK};
		CU_ASSERT_EQUAL_FATAL(user_open(&s[i].user, "lvs/v", true, fixture_thread(i)), 0);
		s[i].r = request_new(&s[i].user);
		s[i].io = s[i].r->io;
		thread_send(fixture_thread(i), storm_start, &s[i]);
	}
	unsigned rounds = 0;
	while (!storms_are_over(s) || rounds == 0) {
		CU_ASSERT_EQUAL(change_run(BDEV_LVOL_SNAPSHOT, "lvs/v", "s", 0), 0);
		CU_ASSERT_EQUAL(change_run(BDEV_LVOL_CLONE, "lvs/s", "c", 0), 0);
		CU_ASSERT_EQUAL(change_run(BDEV_LVOL_RESIZE, "lvs/v", NULL, (33 + rounds % 2) * CLUSTER), 0);
		CU_ASSERT_EQUAL(change_run(BDEV_LVOL_DELETE, "lvs/c", NULL, 0), 0);
		CU_ASSERT_EQUAL(change_run(BDEV_LVOL_DELETE, "lvs/s", NULL, 0), 0);
		rounds++;
	}
	for (unsigned i = 0; i < STORM_THREADS; i++) {
		CU_ASSERT_EQUAL(s[i].errors, 0);
		CU_ASSERT_EQUAL(s[i].mismatches, 0);
		request_free(s[i].r);
		user_close(&s[i].user);
	}
	store_off_malloc();
}

static const struct unit_test tests[] = {
	UNIT(test_what_nobody_wrote_is_zeroes),
	UNIT(test_snapshots_and_clones_keep_what_was_there),
	UNIT(test_zeroes_are_written_everywhere),
	UNIT(test_unmap_gives_whole_clusters_back),
	UNIT(test_long_ranges_are_carried_out_piece_by_piece),
	UNIT(test_a_full_store_refuses_first_writes_only),
	UNIT(test_size_name_and_permission_change),
	UNIT(test_a_store_is_renamed_with_its_volumes),
	UNIT(test_a_store_is_closed_with_its_base_and_found_again),
	UNIT(test_two_volumes_of_one_uuid_are_both_served),
	UNIT(test_bases_that_cannot_have_a_store_are_refused),
	UNIT(test_a_change_waits_for_writes_and_holds_new_ones_back),
	UNIT(test_a_reset_ends_what_a_change_holds_back),
	UNIT(test_a_first_write_waits_for_the_one_before),
	UNIT(test_a_first_write_that_fails_leaves_nothing),
	UNIT(test_deletion_waits_for_io_and_users),
	UNIT(test_the_base_goes_in_the_middle_of_a_change),
	UNIT(test_io_is_right_while_snapshots_come_and_go),
	UNIT_END,
};
UNIT_MAIN("bdev_lvol", tests, fixture_start, fixture_stop)
