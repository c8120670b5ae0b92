/* SPDX-License-Identifier: BSD-3-Clause */
/* Reservations: a volume gets the clusters that it is sure of, whatever others do, and nobody is promised what is not
 * there. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "lvol/live_internal.h"
#include "lvol/reserve.h"
#include "unittest/lvol/world.h"
#include "unittest/unit.h"

static struct world w;
static struct lvol_error error;

static uint32_t promised(void)
{
	return lvol_live_info(w.store).reserved_clusters;
}

/* First writes to clusters [from, from + count) of a volume, one sector each. The status. */
static int put(int i, uint64_t from, uint64_t count)
{
	int rc = 0;

	for (uint64_t n = from; n < from + count && rc == 0; n++) {
		rc = world_write(&w, i, n * WORLD_SECTORS, 1);
	}
	return rc;
}

/* Volumes 7 and 8 take all that they get. */
static void eat(void)
{
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 7, WORLD_CLUSTERS, true), 0);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 8, WORLD_CLUSTERS, true), 0);
	int rc = put(7, 0, WORLD_CLUSTERS);
	CU_ASSERT_EQUAL(rc == 0 ? put(8, 0, WORLD_CLUSTERS) : rc, -ENOSPC);
}

static void expect_kept(void)
{
	disk_run(&w.disk);
	CU_ASSERT_PTR_NULL(world_differs(&w, &w.model, NULL));
	world_count(&w);
	world_close(&w);
	CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
	CU_ASSERT_PTR_NULL(world_differs(&w, &w.model, NULL));
	world_count(&w);
}

/* ---- What is stored ---- */

static void test_what_is_stored_is_read(void)
{
	static const uint64_t some[] = {0, 1, 0x0123456789abcdefull, UINT64_MAX};
	uint8_t value[LVOL_RESERVE_BYTES];
	uint64_t clusters;

	for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++) {
		lvol_reserve_encode(some[i], value);
		CU_ASSERT_EQUAL(lvol_reserve_decode(value, sizeof(value), &clusters, &error), 0);
		CU_ASSERT_EQUAL(clusters, some[i]);
	}
	CU_ASSERT_EQUAL(value[0], LVOL_RESERVE_FORM);
	lvol_reserve_encode(0x0201, value);
	CU_ASSERT_TRUE(value[1] == 1 && value[2] == 2);
	for (size_t bytes = 0; bytes < sizeof(value); bytes++) {
		error.text[0] = '\0';
		CU_ASSERT_EQUAL(lvol_reserve_decode(value, bytes, &clusters, &error), -EINVAL);
		CU_ASSERT_TRUE(clusters == 0 && error.text[0] != '\0');
	}
	value[0]++;
	CU_ASSERT_EQUAL(lvol_reserve_decode(value, sizeof(value), &clusters, &error), -EINVAL);
}

/* ---- Who gets what is free ---- */

static void test_others_leave_what_is_reserved(void)
{
	world_create(&w, 24);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 8, true), 0);
	CU_ASSERT_EQUAL(put(0, 0, 1), 0);
	CU_ASSERT_EQUAL(world_reserve(&w, 0, 6), 0);
	CU_ASSERT_EQUAL(promised(), 5);
	eat();
	CU_ASSERT_EQUAL(lvol_live_free_clusters(w.store), 5);
	/* Neither a thick volume, nor one that grows, nor a copy gets one. */
	CU_ASSERT_EQUAL(world_volume_create(&w, 1, 1, false), -ENOSPC);
	CU_ASSERT_EQUAL(world_inflate(&w, 8, true), -ENOSPC);
	expect_kept();
	CU_ASSERT_EQUAL(put(0, 1, 5), 0);
	CU_ASSERT_EQUAL(promised(), 0);
	CU_ASSERT_EQUAL(put(0, 6, 1), -ENOSPC);
	CU_ASSERT_EQUAL(put(0, 0, 6), 0);
	expect_kept();
	world_free(&w);
}

static void test_a_thick_volume_grows_into_what_nobody_reserved(void)
{
	world_create(&w, 24);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 1, 2, false), 0);
	uint32_t left = lvol_live_free_clusters(w.store);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, WORLD_CLUSTERS, true), 0);
	CU_ASSERT_EQUAL(world_reserve(&w, 0, WORLD_CLUSTERS), 0);
	uint64_t most = 2 + left - WORLD_CLUSTERS;
	CU_ASSERT_EQUAL(world_resize(&w, 1, most + 1), -ENOSPC);
	CU_ASSERT_EQUAL(world_resize(&w, 1, most), 0);
	CU_ASSERT_EQUAL(world_resize(&w, 1, most + 1), -ENOSPC);
	CU_ASSERT_EQUAL(put(0, 0, WORLD_CLUSTERS), 0);
	expect_kept();
	world_free(&w);
}

static void test_more_than_there_is_cannot_be_reserved(void)
{
	world_create(&w, 24);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, WORLD_CLUSTERS, true), 0);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 1, WORLD_CLUSTERS, true), 0);
	uint32_t left = lvol_live_free_clusters(w.store);
	CU_ASSERT_EQUAL(world_reserve(&w, 0, WORLD_CLUSTERS + 1), -EINVAL);
	CU_ASSERT_EQUAL(world_reserve(&w, 0, WORLD_CLUSTERS), 0);
	CU_ASSERT_EQUAL(world_reserve(&w, 1, left - WORLD_CLUSTERS + 1), -ENOSPC);
	CU_ASSERT_EQUAL(promised(), WORLD_CLUSTERS);
	CU_ASSERT_EQUAL(world_reserve(&w, 1, left - WORLD_CLUSTERS), 0);
	uint64_t commits = lvol_live_info(w.store).commits;
	CU_ASSERT_EQUAL(world_reserve(&w, 1, left - WORLD_CLUSTERS), 0); /* it has it */
	CU_ASSERT_EQUAL(lvol_live_info(w.store).commits, commits);
	CU_ASSERT_EQUAL(world_create_reserved(&w, 2, 3, true, 1), -ENOSPC);
	CU_ASSERT_EQUAL(world_create_reserved(&w, 2, 3, true, 4), -EINVAL);
	CU_ASSERT_EQUAL(world_create_reserved(&w, 2, 1, false, 1), -ENOSPC);
	CU_ASSERT_EQUAL(world_reserve(&w, 0, 4), 0);
	CU_ASSERT_EQUAL(world_create_reserved(&w, 2, 3, false, 3), 0); /* it has all that it has reserved */
	CU_ASSERT_EQUAL(world_create_reserved(&w, 3, 6, true, 6), -ENOSPC);
	CU_ASSERT_EQUAL(world_create_reserved(&w, 3, 6, true, 5), 0);
	CU_ASSERT_EQUAL(promised(), left - 3);
	expect_kept();
	/* Own clusters count, and what is given up. */
	CU_ASSERT_EQUAL(world_delete(&w, 3), 0);
	CU_ASSERT_EQUAL(put(0, 0, 4), 0);
	CU_ASSERT_EQUAL(put(0, 4, 2), 0);
	CU_ASSERT_EQUAL(world_reserve(&w, 0, 10), -ENOSPC);
	CU_ASSERT_EQUAL(world_reserve(&w, 0, 9), 0);
	expect_kept();
	world_free(&w);
}

/* ---- Changes of volumes with a reservation ---- */

static void test_a_snapshot_needs_what_is_reserved_once_more(void)
{
	world_create(&w, 32);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 8, true), 0);
	CU_ASSERT_EQUAL(put(0, 0, 7), 0);
	CU_ASSERT_EQUAL(world_reserve(&w, 0, 6), 0);
	CU_ASSERT_EQUAL(promised(), 0);
	eat();
	CU_ASSERT_EQUAL(world_snapshot(&w, 0, 1), -ENOSPC);
	CU_ASSERT_EQUAL(promised(), 0);
	CU_ASSERT_EQUAL(world_unmap(&w, 7, 0, 5), 0);
	CU_ASSERT_EQUAL(world_snapshot(&w, 0, 1), -ENOSPC);
	CU_ASSERT_EQUAL(world_unmap(&w, 7, 5, 1), 0);
	CU_ASSERT_EQUAL_FATAL(world_snapshot(&w, 0, 1), 0);
	CU_ASSERT_EQUAL(promised(), 6);
	CU_ASSERT_EQUAL(world_volume(&w, 1)->reserved, 0);
	CU_ASSERT_EQUAL(put(7, 0, 1), -ENOSPC);
	CU_ASSERT_EQUAL(world_reserve(&w, 1, 1), -EPERM);
	expect_kept();
	CU_ASSERT_EQUAL(put(0, 2, 6), 0);
	CU_ASSERT_EQUAL(put(0, 0, 1), -ENOSPC);
	CU_ASSERT_EQUAL(promised(), 0);
	/* With the clusters of its snapshot it has more than it has reserved; what it does not need comes free. */
	CU_ASSERT_EQUAL(world_delete(&w, 1), 0);
	disk_run(&w.disk);
	CU_ASSERT_EQUAL(world_volume(&w, 0)->num_own, 8);
	CU_ASSERT_EQUAL(lvol_live_free_clusters(w.store), 5);
	expect_kept();
	world_free(&w);
}

/* A snapshot's clusters that become those of its clone. */
static void test_a_merge_fulfils_a_promise(void)
{
	world_create(&w, 40);
	CU_ASSERT_EQUAL_FATAL(world_create_reserved(&w, 0, 8, true, 6), 0);
	CU_ASSERT_EQUAL(put(0, 0, 4), 0);
	CU_ASSERT_EQUAL_FATAL(world_snapshot(&w, 0, 1), 0);
	CU_ASSERT_EQUAL(promised(), 6);
	CU_ASSERT_EQUAL(put(0, 0, 1), 0);
	CU_ASSERT_EQUAL(world_delete(&w, 1), 0);
	CU_ASSERT_EQUAL(promised(), 2);
	expect_kept();
	world_free(&w);
}

static void test_what_ends_a_reservation(void)
{
	world_create(&w, 64);
	CU_ASSERT_EQUAL_FATAL(world_create_reserved(&w, 0, 8, true, 6), 0);
	CU_ASSERT_EQUAL_FATAL(world_create_reserved(&w, 2, 8, true, 7), 0);
	CU_ASSERT_EQUAL(put(0, 0, 2), 0);
	CU_ASSERT_EQUAL(put(2, 4, 3), 0);
	CU_ASSERT_EQUAL(promised(), 4 + 4);
	CU_ASSERT_EQUAL(world_resize(&w, 2, 5), 0); /* one of its own is left, of five */
	CU_ASSERT_EQUAL(promised(), 4 + 4);
	CU_ASSERT_EQUAL(world_resize(&w, 2, 12), 0);
	CU_ASSERT_EQUAL(world_volume(&w, 2)->reserved, 5);
	expect_kept();
	CU_ASSERT_EQUAL(world_resize(&w, 2, 0), 0);
	CU_ASSERT_EQUAL(promised(), 4);
	CU_ASSERT_EQUAL(world_resize(&w, 2, 4), 0);
	CU_ASSERT_EQUAL(promised(), 4);
	CU_ASSERT_EQUAL(world_reserve(&w, 2, 4), 0);
	CU_ASSERT_EQUAL_FATAL(world_snapshot(&w, 2, 3), 0);
	CU_ASSERT_EQUAL_FATAL(world_clone(&w, 3, 4), 0);
	CU_ASSERT_EQUAL(world_volume(&w, 4)->reserved, 0);
	CU_ASSERT_EQUAL(world_rename(&w, 2, "renamed"), 0);
	CU_ASSERT_EQUAL(promised(), 8);
	CU_ASSERT_EQUAL(world_inflate(&w, 2, true), 0);
	CU_ASSERT_EQUAL(promised(), 4);
	CU_ASSERT_EQUAL(world_volume(&w, 2)->reserved, 4);
	CU_ASSERT_EQUAL(world_read_only(&w, 0), 0);
	CU_ASSERT_EQUAL(promised(), 0);
	CU_ASSERT_EQUAL(world_volume(&w, 0)->reserved, 0);
	expect_kept();
	CU_ASSERT_EQUAL_FATAL(world_create_reserved(&w, 5, 8, true, 6), 0);
	CU_ASSERT_EQUAL(put(5, 0, 1), 0);
	CU_ASSERT_EQUAL(promised(), 5);
	CU_ASSERT_EQUAL(world_delete(&w, 5), 0);
	CU_ASSERT_EQUAL(promised(), 0);
	expect_kept();
	world_free(&w);
}

static void test_its_attribute_is_the_stores(void)
{
	struct outcome o = {.done = false};
	uint16_t bytes;

	world_create(&w, 24);
	CU_ASSERT_EQUAL_FATAL(world_create_reserved(&w, 0, 8, true, 6), 0);
	lvol_live_volume_xattr_set(world_volume(&w, 0), LVOL_RESERVE_XATTR, NULL, 0, outcome_done, &o);
	CU_ASSERT_EQUAL(world_wait(&w, &o), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(lvol_live_volume_xattr(world_volume(&w, 0), LVOL_RESERVE_XATTR, &bytes));
	CU_ASSERT_EQUAL(bytes, LVOL_RESERVE_BYTES);
	CU_ASSERT_EQUAL(world_reserve(&w, 0, 0), 0);
	CU_ASSERT_PTR_NULL(lvol_live_volume_xattr(world_volume(&w, 0), LVOL_RESERVE_XATTR, &bytes));
	expect_kept();
	world_free(&w);
}

/* ---- What comes free ---- */

/* Clusters that it gives up are promised again, while they are on their way back. Nobody else gets them, and it waits
 * for them. */
static void test_what_it_gives_up_is_promised_again(void)
{
	for (uint32_t seed = 0; seed < 20; seed++) {
		struct outcome o = {.done = false};
		struct lvol_live_fill f;
		world_create(&w, 24);
		w.disk.random = seed + 1;
		CU_ASSERT_EQUAL_FATAL(world_create_reserved(&w, 0, 8, true, 6), 0);
		CU_ASSERT_EQUAL(put(0, 0, 6), 0);
		eat();
		w.disk.late = true;
		lvol_live_release(world_volume(&w, 0), 0, 2, NULL, outcome_done, &o);
		CU_ASSERT_EQUAL(world_wait(&w, &o), 0);
		memset(w.model.volumes[0].sectors, 0, 2 * WORLD_CLUSTER / DISK_SECTOR * 8);
		CU_ASSERT_EQUAL(promised(), 2);
		CU_ASSERT_EQUAL(lvol_live_info(w.store).coming_clusters, 2);
		CU_ASSERT_EQUAL(lvol_live_fill_claim(world_volume(&w, 8), WORLD_CLUSTERS - 1, &f), -ENOSPC);
		CU_ASSERT_EQUAL(world_volume_create(&w, 1, 1, false), -ENOSPC);
		CU_ASSERT_EQUAL(world_reserve(&w, 0, 7), -ENOSPC);
		CU_ASSERT_EQUAL(lvol_live_fill_claim(world_volume(&w, 0), 6, &f), -EAGAIN);
		CU_ASSERT_EQUAL(put(0, 6, 2), 0);
		CU_ASSERT_EQUAL(put(0, 0, 1), -ENOSPC);
		w.disk.late = false;
		expect_kept();
		world_free(&w);
	}
}

static unsigned woken;

static void wake(struct lvol_live_waiter *waiter)
{
	(void)waiter;
	woken++;
}

/* A cluster of volume 7 and one of volume 0 are given up. Whether both are on their way back at once then. */
static bool give_up_two(uint32_t seed)
{
	struct outcome theirs = {.done = false}, mine = {.done = false};

	world_create(&w, 24);
	w.disk.random = seed + 1;
	CU_ASSERT_EQUAL_FATAL(world_create_reserved(&w, 0, 8, true, 6), 0);
	CU_ASSERT_EQUAL(put(0, 0, 6), 0);
	eat();
	w.disk.late = true;
	lvol_live_release(world_volume(&w, 7), 0, 1, NULL, outcome_done, &theirs);
	lvol_live_release(world_volume(&w, 0), 0, 1, NULL, outcome_done, &mine);
	CU_ASSERT_TRUE(world_wait(&w, &theirs) == 0 && world_wait(&w, &mine) == 0);
	memset(w.model.volumes[7].sectors, 0, WORLD_CLUSTER / DISK_SECTOR * 8);
	memset(w.model.volumes[0].sectors, 0, WORLD_CLUSTER / DISK_SECTOR * 8);
	return lvol_live_info(w.store).coming_clusters == 2;
}

/* Of two that wait for space the one that was promised some is not behind the other. */
static void test_who_is_promised_a_cluster_is_woken(void)
{
	const uint64_t last = WORLD_CLUSTERS - 1;
	struct lvol_live_waiter other = {.wake = wake}, mine = {.wake = wake};
	struct lvol_live_fill f;
	unsigned tried = 0;

	for (uint32_t seed = 0; seed < 40; seed++) {
		woken = 0;
		if (give_up_two(seed)) {
			tried++;
			CU_ASSERT_EQUAL(lvol_live_fill_claim(world_volume(&w, 8), last, &f), -EAGAIN);
			lvol_live_wait(world_volume(&w, 8), last, &other);
			CU_ASSERT_EQUAL(lvol_live_fill_claim(world_volume(&w, 0), 7, &f), -EAGAIN);
			lvol_live_wait(world_volume(&w, 0), 7, &mine);
			while (woken == 0 && disk_run_one(&w.disk)) {
			}
			CU_ASSERT_EQUAL(woken, 2);
		}
		CU_ASSERT_EQUAL(put(7, 0, 1), 0);
		CU_ASSERT_EQUAL(put(8, last, 1), -ENOSPC);
		CU_ASSERT_EQUAL(put(0, 7, 1), 0);
		w.disk.late = false;
		expect_kept();
		world_free(&w);
	}
	CU_ASSERT_TRUE(tried > 0);
}

static void test_a_first_write_that_is_given_up_gives_its_promise_back(void)
{
	struct lvol_live_fill f[3];

	world_create(&w, 24);
	CU_ASSERT_EQUAL_FATAL(world_create_reserved(&w, 0, 8, true, 2), 0);
	uint32_t all = lvol_live_free_clusters(w.store);
	for (uint64_t n = 0; n < 3; n++) {
		CU_ASSERT_EQUAL_FATAL(lvol_live_fill_claim(world_volume(&w, 0), n, &f[n]), 0);
		CU_ASSERT_EQUAL(promised(), n < 2 ? 1 - n : 0);
	}
	lvol_live_fill_abort(&f[0]);
	CU_ASSERT_EQUAL(promised(), 0); /* it has two yet */
	lvol_live_fill_abort(&f[1]);
	CU_ASSERT_EQUAL(promised(), 1);
	/* What it has under way counts when another number is reserved, too. */
	CU_ASSERT_EQUAL(world_reserve(&w, 0, 4), 0);
	CU_ASSERT_EQUAL(promised(), 3);
	lvol_live_fill_abort(&f[2]);
	CU_ASSERT_EQUAL(promised(), 4);
	CU_ASSERT_EQUAL(world_reserve(&w, 0, 0), 0);
	CU_ASSERT_EQUAL(promised(), 0);
	CU_ASSERT_EQUAL(lvol_live_free_clusters(w.store), all);
	expect_kept();
	world_free(&w);
}

/* ---- Claims that overlap ---- */

/* Another thread has taken the last cluster and has not marked the entry yet: it may be this very one, and it may give
 * the cluster back. So nobody says that there is none before that is known. */
static void overlap(int i, bool reserved)
{
	struct lvol_live_waiter waiter = {.wake = wake};
	struct lvol_live_fill f;

	world_create(&w, 24);
	CU_ASSERT_EQUAL_FATAL(world_create_reserved(&w, 0, 8, true, reserved ? 1 : 0), 0);
	eat();
	if (!reserved) {
		CU_ASSERT_EQUAL(world_unmap(&w, 7, 0, 1), 0);
		disk_run(&w.disk);
	}
	struct lvol_live_volume *mine = world_volume(&w, 0), *v = world_volume(&w, i);
	uint64_t n = i == 0 ? 0 : WORLD_CLUSTERS - 1;
	CU_ASSERT_EQUAL_FATAL(lvol_live_free_clusters(w.store), 1);
	CU_ASSERT_TRUE_FATAL(live_account_take(w.store, mine));
	CU_ASSERT_EQUAL(lvol_live_fill_claim(v, n, &f), -EAGAIN);
	woken = 0;
	lvol_live_wait(v, n, &waiter);
	CU_ASSERT_EQUAL(woken, 1);
	CU_ASSERT_EQUAL(lvol_live_fill_claim(v, n, &f), -EAGAIN); /* a claim that found nothing does not count */
	live_account_settle(w.store);
	CU_ASSERT_EQUAL(lvol_live_fill_claim(v, n, &f), -ENOSPC);
	live_account_return(mine);
	int rc = lvol_live_fill_claim(v, n, &f);
	CU_ASSERT_EQUAL(rc, reserved && i != 0 ? -ENOSPC : 0);
	if (rc == 0) {
		lvol_live_fill_abort(&f);
	}
	CU_ASSERT_EQUAL(promised(), reserved ? 1 : 0);
	expect_kept();
	world_free(&w);
}

static void test_the_last_cluster_may_come_back_from_another_claim(void)
{
	overlap(0, true);
	overlap(8, true);
	overlap(0, false);
	overlap(8, false);
}

/* ---- Failures ---- */

/* Whatever fails, no promise is left over, and none is lost. */
static void test_a_change_that_fails_promises_nothing(void)
{
	for (long k = 0; k < 14; k++) {
		world_create(&w, 32);
		CU_ASSERT_EQUAL_FATAL(world_create_reserved(&w, 0, 8, true, 3), 0);
		CU_ASSERT_EQUAL(put(0, 0, 2), 0);
		disk_run(&w.disk);
		w.disk.fail_in = k / 2;
		w.disk.fail_status = -EIO;
		int rc = k % 2 == 0 ? world_reserve(&w, 0, 7) : world_snapshot(&w, 0, 1);
		bool failed = lvol_live_info(w.store).failed;
		w.disk.fail_in = -1;
		CU_ASSERT_TRUE(rc == 0 || rc == -EIO);
		CU_ASSERT_EQUAL(promised(), rc != 0 ? 1 : k % 2 == 0 ? 5 : 3);
		if (!failed) {
			CU_ASSERT_PTR_NULL(world_differs(&w, &w.model, NULL));
			world_count(&w);
		}
		world_forget(&w);
		CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
		world_count(&w);
		world_close(&w);
		world_free(&w);
	}
}

struct ended {
	struct outcome outcome; /* the first */
	uint32_t promised, left;
};

static void creation_ended(void *arg, int status, struct lvol_live_volume *v)
{
	struct ended *e = arg;

	e->promised = promised();
	e->left = (uint32_t)lvol_live_reservable(w.store, NULL);
	outcome_volume(&e->outcome, status, v);
}

/* Whoever is told of an error looks at what is left, and says so. */
static void test_a_change_that_fails_has_given_back_what_it_held(void)
{
	struct lvol_live_volume_opts opts = {.name = "new", .uuid = "u", .num_clusters = 4, .reserved = 4};

	for (int k = 0; k < 2; k++) {
		struct ended e = {.outcome.done = false};
		world_create(&w, 32);
		CU_ASSERT_EQUAL_FATAL(world_create_reserved(&w, 0, 8, true, 3), 0);
		disk_run(&w.disk);
		uint32_t left = (uint32_t)lvol_live_reservable(w.store, NULL), pages = w.store->free_pages;
		opts.thin = k == 0;
		w.store->free_pages = 0; /* its batch cannot be built after the promise was made */
		lvol_live_volume_create(w.store, &opts, creation_ended, &e);
		CU_ASSERT_EQUAL(world_wait(&w, &e.outcome), -ENOSPC);
		w.store->free_pages = pages;
		CU_ASSERT_TRUE(e.promised == 3 && e.left == left);
		expect_kept();
		world_free(&w);
	}
}

/* What a volume gave up in a store that has failed neither is free nor comes: that is no other program's doing. */
static void test_a_failed_store_does_not_miss_what_is_reserved(void)
{
	unsigned tried = 0;

	for (long k = 0; k < 8; k++) {
		struct outcome o = {.done = false};
		world_create(&w, 24);
		CU_ASSERT_EQUAL_FATAL(world_create_reserved(&w, 0, 8, true, 6), 0);
		CU_ASSERT_EQUAL(put(0, 0, 6), 0);
		eat();
		disk_run(&w.disk);
		w.disk.fail_in = k;
		lvol_live_release(world_volume(&w, 0), 0, 2, NULL, outcome_done, &o);
		int rc = world_wait(&w, &o);
		w.disk.fail_in = -1;
		const struct lvol_live_info info = lvol_live_info(w.store);
		tried +=
			rc == -EIO && info.failed && info.reserved_clusters > info.free_clusters + info.coming_clusters;
		CU_ASSERT_EQUAL(info.missing_clusters, 0);
		world_forget(&w);
		world_free(&w);
	}
	CU_ASSERT_TRUE(tried > 0);
}

/* ---- What others have written ---- */

/* Gives volume 0 an attribute, as another program might. */
static void forge(const void *value, uint16_t bytes, bool twice)
{
	struct live_meta *m = &world_volume(&w, 0)->internal->meta;

	CU_ASSERT_EQUAL_FATAL(live_xattr_set(m, LVOL_DESC_XATTR, LVOL_RESERVE_XATTR, value, bytes), 0);
	if (twice) {
		CU_ASSERT_EQUAL_FATAL(live_xattr_set(m, LVOL_DESC_XATTR, "Varve_reserved", value, bytes), 0);
		m->xattrs[m->num_xattrs - 1].name[0] = 'v';
	}
	CU_ASSERT_EQUAL_FATAL(world_rename(&w, 0, "forged"), 0);
	world_forget(&w);
}

/* problem: what the checker says of it, or NULL. */
static void open_forged(const void *value, uint16_t bytes, bool twice, const char *problem)
{
	forge(value, bytes, twice);
	world_expect_problem(&w, problem);
	CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
}

static void test_a_reservation_that_makes_no_sense_is_none(void)
{
	static const uint8_t form[LVOL_RESERVE_BYTES] = {LVOL_RESERVE_FORM + 1, 1},
			     good[] = {LVOL_RESERVE_FORM, 1, 0, 0, 0, 0, 0, 0, 0};

	for (int k = 0; k < 3; k++) {
		world_create(&w, 24);
		CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 8, true), 0);
		open_forged(k == 0 ? form : good, (uint16_t)(k == 1 ? 3 : LVOL_RESERVE_BYTES), k == 2,
			    "its reservation makes no sense");
		CU_ASSERT_PTR_NULL(world_differs(&w, &w.model, NULL));
		CU_ASSERT_EQUAL(world_reserve(&w, 0, 0), 0);
		expect_kept();
		CU_ASSERT_EQUAL(world_reserve(&w, 0, 3), 0);
		expect_kept();
		world_free(&w);
	}
}

static void test_no_volume_reserves_more_than_its_size(void)
{
	uint8_t value[LVOL_RESERVE_BYTES];

	world_create(&w, 24);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 8, true), 0);
	lvol_reserve_encode(UINT64_MAX, value);
	open_forged(value, sizeof(value), false, "more than its size (8)");
	CU_ASSERT_EQUAL(world_volume(&w, 0)->reserved, 8);
	CU_ASSERT_EQUAL(promised(), 8);
	w.model.volumes[0].reserved = 8;
	world_count(&w);
	CU_ASSERT_EQUAL(world_reserve(&w, 0, 8), 0); /* now it says so */
	expect_kept();
	CU_ASSERT_EQUAL(world_reserve(&w, 0, 7), 0);
	expect_kept();
	world_free(&w);
}

/* A program that does not know of reservations has filled the store. Who was promised clusters gets what there is. */
static void test_a_store_that_another_program_filled(void)
{
	uint8_t value[LVOL_RESERVE_BYTES];

	world_create(&w, 24);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 8, true), 0);
	eat();
	CU_ASSERT_EQUAL(world_unmap(&w, 7, 0, 3), 0);
	lvol_reserve_encode(5, value);
	open_forged(value, sizeof(value), false, "may need 5 clusters more, 3 are free");
	w.model.volumes[0].reserved = 5;
	CU_ASSERT_PTR_NULL(world_differs(&w, &w.model, NULL));
	CU_ASSERT_EQUAL(promised(), 5);
	CU_ASSERT_EQUAL(lvol_live_info(w.store).missing_clusters, 2);
	CU_ASSERT_EQUAL(put(7, 0, 1), -ENOSPC);
	CU_ASSERT_EQUAL(world_volume_create(&w, 1, 1, false), -ENOSPC);
	CU_ASSERT_EQUAL(world_reserve(&w, 0, 6), -ENOSPC);
	/* What comes free is for it, too. */
	CU_ASSERT_EQUAL(world_unmap(&w, 7, 3, 1), 0);
	disk_run(&w.disk);
	CU_ASSERT_EQUAL(put(7, 0, 1), -ENOSPC);
	CU_ASSERT_EQUAL(put(0, 0, 4), 0);
	struct lvol_live_fill f;
	CU_ASSERT_EQUAL(lvol_live_fill_claim(world_volume(&w, 0), 4, &f), -ENOSPC);
	CU_ASSERT_EQUAL(promised(), 1);
	CU_ASSERT_EQUAL(world_reserve(&w, 0, 4), 0);
	CU_ASSERT_EQUAL(promised(), 0);
	expect_kept();
	world_free(&w);
}

/* Flags that forbid changes, of a version to come: what it reserves counts neither in the store nor for the checker. */
static void test_a_volume_that_may_not_be_changed_reserves_nothing(void)
{
	static const struct lvol_desc_flags none = {0}, snapshot = {.data_ro = 1}, later = {.data_ro = 2},
					    known = {.md_ro = LVOL_MD_RO_KNOWN}, fixed = {.md_ro = 4};
	uint8_t value[LVOL_RESERVE_BYTES];

	CU_ASSERT_TRUE(lvol_reserve_counts(&none, 8, 5) == 5 && lvol_reserve_counts(&none, 8, 9) == 8);
	CU_ASSERT_TRUE(lvol_reserve_counts(&known, 8, 8) == 8 && lvol_reserve_counts(&fixed, 8, 5) == 0);
	CU_ASSERT_TRUE(lvol_reserve_counts(&snapshot, 8, 5) == 0 && lvol_reserve_counts(&later, 8, 5) == 0);
	world_create(&w, 24);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 8, true), 0);
	eat();
	CU_ASSERT_EQUAL(world_unmap(&w, 7, 0, 3), 0);
	world_volume(&w, 0)->internal->meta.flags.md_ro |= 4;
	lvol_reserve_encode(5, value);
	open_forged(value, sizeof(value), false, NULL);
	CU_ASSERT_TRUE(world_volume(&w, 0)->internal->fixed && promised() == 0);
	CU_ASSERT_EQUAL(world_reserve(&w, 0, 1), -EPERM);
	world_forget(&w);
	world_free(&w);
}

/* ---- Many threads ---- */

enum { THREADS = 4, LARGE = 4000, TRIES = 900, ROUNDS = 12 };

struct taker {
	pthread_t thread;
	struct lvol_live_volume *volumes[3];
	bool refused[3];
	uint32_t random;
	struct lvol_live_fill fills[TRIES];
	size_t num;
};

/* None are on their way back: -EAGAIN of an entry that is not busy is about another thread's claim. */
static int thread_claim(struct lvol_live_volume *v, uint64_t n, struct lvol_live_fill *f)
{
	int rc;

	while ((rc = lvol_live_fill_claim(v, n, f)) == -EAGAIN && (lvol_live_entry(v, n) & LVOL_LIVE_BUSY) == 0) {
		sched_yield();
	}
	return rc;
}

/* Claims here and there. */
static void *take(void *arg)
{
	struct taker *t = arg;

	for (int i = 0; i < TRIES; i++) {
		uint32_t k = disk_random(&t->random) % 3;
		uint64_t n = disk_random(&t->random) % LARGE;
		int rc = thread_claim(t->volumes[k], n, &t->fills[t->num]);
		t->num += rc == 0;
		t->refused[k] |= rc == -ENOSPC;
	}
	return NULL;
}

static struct lvol_live_volume *large_make(const char *name, const char *uuid, uint64_t reserved)
{
	struct lvol_live_volume_opts opts = {
		.name = name, .uuid = uuid, .num_clusters = LARGE, .thin = true, .reserved = reserved};
	struct outcome o = {.done = false};

	lvol_live_volume_create(w.store, &opts, outcome_volume, &o);
	CU_ASSERT_EQUAL_FATAL(world_wait(&w, &o), 0);
	return o.volume;
}

static int64_t balance(const struct lvol_live_volume *v)
{
	return atomic_load(&v->internal->balance);
}

static void expect_accounts(struct lvol_live_volume *const *v, const uint64_t *taken)
{
	uint64_t promises = 0, all = 0;

	for (int i = 0; i < 3; i++) {
		int64_t left = (int64_t)v[i]->reserved - (int64_t)(v[i]->num_own + taken[i]);
		CU_ASSERT_EQUAL(balance(v[i]), left);
		promises += left > 0 ? (uint64_t)left : 0;
		all += v[i]->num_own + taken[i];
	}
	const struct lvol_live_info info = lvol_live_info(w.store);
	CU_ASSERT_EQUAL(info.reserved_clusters, promises);
	CU_ASSERT_EQUAL(info.free_clusters + info.coming_clusters + all, info.total_data_clusters);
	CU_ASSERT_TRUE(promises <= info.free_clusters + info.coming_clusters);
}

static void threads_run(struct taker *takers, struct lvol_live_volume *const *v)
{
	for (int i = 0; i < THREADS; i++) {
		memcpy(takers[i].volumes, v, sizeof(takers[i].volumes));
		memset(takers[i].refused, 0, sizeof(takers[i].refused));
		takers[i].num = 0;
		CU_ASSERT_EQUAL_FATAL(pthread_create(&takers[i].thread, NULL, take, &takers[i]), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(takers[i].thread, NULL);
	}
}

static void count_taken(const struct taker *takers, struct lvol_live_volume *const *v, uint64_t *taken)
{
	memset(taken, 0, 3 * sizeof(*taken));
	for (int i = 0; i < THREADS; i++) {
		for (size_t k = 0; k < takers[i].num; k++) {
			for (int m = 0; m < 3; m++) {
				taken[m] += takers[i].fills[k].volume == v[m];
			}
		}
	}
}

/* Claims have only taken clusters in this round: a volume that has less than its reservation had so all the time. */
static void expect_none_refused(const struct taker *takers, struct lvol_live_volume *const *v)
{
	for (int i = 0; i < THREADS; i++) {
		for (int k = 0; k < 3; k++) {
			CU_ASSERT_TRUE(!takers[i].refused[k] || balance(v[k]) <= 0);
		}
	}
}

/* Threads claim clusters of three volumes at once, more than there are; then half of them are committed, the others
 * given up, and reservations change. The accounts are exact after each round, and a volume has got what it was
 * promised. */
static void test_threads_take_what_is_theirs(void)
{
	static struct taker takers[THREADS];
	uint64_t taken[3];

	world_create(&w, 3000);
	struct lvol_live_volume *const v[3] = {large_make("a", "u1", 1000), large_make("b", "u2", 300),
					       large_make("c", "u3", 0)};
	for (uint32_t i = 0; i < THREADS; i++) {
		takers[i].random = i + 1;
	}
	for (int round = 0; round < ROUNDS; round++) {
		threads_run(takers, v);
		expect_none_refused(takers, v);
		count_taken(takers, v, taken);
		expect_accounts(v, taken);
		for (int i = 0; i < THREADS; i++) {
			for (size_t k = 0; k < takers[i].num; k++) {
				struct outcome o = {.done = false};
				if (k % 2 == 0) {
					lvol_live_fill_commit(&takers[i].fills[k], outcome_done, &o);
					CU_ASSERT_EQUAL(world_wait(&w, &o), 0);
				} else {
					lvol_live_fill_abort(&takers[i].fills[k]);
				}
			}
		}
		memset(taken, 0, sizeof(taken));
		expect_accounts(v, taken);
		struct outcome changed = {.done = false}, released = {.done = false};
		lvol_live_volume_reserve(v[round % 3], disk_random(&w.random) % 1200, outcome_done, &changed);
		CU_ASSERT_TRUE(world_wait(&w, &changed) == 0 || changed.status == -ENOSPC);
		lvol_live_release(v[(round + 1) % 3], 0, LARGE / 4, NULL, outcome_done, &released);
		CU_ASSERT_EQUAL(world_wait(&w, &released), 0);
		disk_run(&w.disk);
		expect_accounts(v, taken);
	}
	world_forget(&w);
	world_free(&w);
}

struct greedy {
	pthread_t thread;
	struct lvol_live_volume *volume;
	uint64_t clusters;
	struct lvol_live_fill fills[LARGE];
	uint64_t num, refused;
};

static pthread_barrier_t greedy_start;

/* Claims each cluster; one that is refused is not claimed again. */
static void *take_all(void *arg)
{
	struct greedy *g = arg;

	g->num = 0;
	g->refused = 0;
	pthread_barrier_wait(&greedy_start);
	for (uint64_t n = 0; n < g->clusters; n++) {
		int rc = thread_claim(g->volume, n, &g->fills[g->num]);
		g->num += rc == 0;
		g->refused += rc == -ENOSPC;
	}
	return NULL;
}

static void greedy_run(struct greedy *g, int num)
{
	CU_ASSERT_EQUAL_FATAL(pthread_barrier_init(&greedy_start, NULL, (unsigned)num), 0);
	for (int i = num - 1; i >= 0; i--) {
		CU_ASSERT_EQUAL_FATAL(pthread_create(&g[i].thread, NULL, take_all, &g[i]), 0);
	}
	for (int i = 0; i < num; i++) {
		pthread_join(g[i].thread, NULL);
	}
	pthread_barrier_destroy(&greedy_start);
}

static struct greedy greedy[6];

/* Each volume is filled by two threads, which claim the same clusters, all volumes together with more than there is. */
static void test_threads_leave_what_is_promised_to_others(void)
{
	struct greedy *g = greedy;

	world_create(&w, 2000);
	g[0].volume = g[3].volume = large_make("a", "u1", 900);
	g[1].volume = g[4].volume = large_make("b", "u2", 500);
	g[2].volume = g[5].volume = large_make("c", "u3", 0);
	for (int i = 0; i < 6; i++) {
		g[i].clusters = LARGE;
	}
	uint32_t all = lvol_live_free_clusters(w.store);
	greedy_run(g, 6);
	CU_ASSERT_TRUE(g[0].num + g[3].num >= 900 && g[1].num + g[4].num >= 500);
	CU_ASSERT_EQUAL(g[0].num + g[1].num + g[2].num + g[3].num + g[4].num + g[5].num, all);
	CU_ASSERT_EQUAL(promised(), 0);
	CU_ASSERT_EQUAL(lvol_live_free_clusters(w.store), 0);
	world_forget(&w);
	world_free(&w);
}

/* What threads claim is exactly what there is for them: however they overlap, none is told that there is none. */
static void few_for_all(bool reserved)
{
	const uint64_t few = 3;
	struct greedy *g = greedy;

	world_create(&w, 24);
	CU_ASSERT_EQUAL_FATAL(world_create_reserved(&w, 0, few, true, reserved ? few : 0), 0);
	eat();
	if (!reserved) {
		CU_ASSERT_EQUAL(world_unmap(&w, 7, 0, few), 0);
		disk_run(&w.disk);
	}
	for (int i = 0; i < THREADS; i++) {
		g[i].volume = world_volume(&w, 0);
		g[i].clusters = few;
	}
	for (int round = 0; round < 400; round++) {
		uint64_t num = 0;
		greedy_run(g, THREADS);
		for (int i = 0; i < THREADS; i++) {
			CU_ASSERT_EQUAL(g[i].refused, 0);
			num += g[i].num;
			while (g[i].num > 0) {
				lvol_live_fill_abort(&g[i].fills[--g[i].num]);
			}
		}
		CU_ASSERT_EQUAL(num, few);
	}
	CU_ASSERT_EQUAL(promised(), reserved ? few : 0);
	expect_kept();
	world_free(&w);
}

static void test_threads_that_want_the_same_clusters_get_them(void)
{
	few_for_all(true);
	few_for_all(false);
}

static const struct unit_test tests[] = {
	UNIT(test_what_is_stored_is_read),
	UNIT(test_others_leave_what_is_reserved),
	UNIT(test_a_thick_volume_grows_into_what_nobody_reserved),
	UNIT(test_more_than_there_is_cannot_be_reserved),
	UNIT(test_a_snapshot_needs_what_is_reserved_once_more),
	UNIT(test_a_merge_fulfils_a_promise),
	UNIT(test_what_ends_a_reservation),
	UNIT(test_its_attribute_is_the_stores),
	UNIT(test_what_it_gives_up_is_promised_again),
	UNIT(test_who_is_promised_a_cluster_is_woken),
	UNIT(test_a_first_write_that_is_given_up_gives_its_promise_back),
	UNIT(test_the_last_cluster_may_come_back_from_another_claim),
	UNIT(test_a_change_that_fails_promises_nothing),
	UNIT(test_a_change_that_fails_has_given_back_what_it_held),
	UNIT(test_a_failed_store_does_not_miss_what_is_reserved),
	UNIT(test_a_reservation_that_makes_no_sense_is_none),
	UNIT(test_no_volume_reserves_more_than_its_size),
	UNIT(test_a_store_that_another_program_filled),
	UNIT(test_a_volume_that_may_not_be_changed_reserves_nothing),
	UNIT(test_threads_take_what_is_theirs),
	UNIT(test_threads_leave_what_is_promised_to_others),
	UNIT(test_threads_that_want_the_same_clusters_get_them),
	UNIT_END,
};
UNIT_MAIN("lvol_live_reserve", tests, NULL, NULL)
