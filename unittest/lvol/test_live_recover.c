/* SPDX-License-Identifier: BSD-3-Clause */
/* Opening a store is itself cut by power: while the journal is put in place, and while metadata of an older form is
 * converted. And what a deletion costs, however large the volume is. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lvol/live_internal.h"
#include "unittest/lvol/image.h"
#include "unittest/lvol/world.h"
#include "unittest/unit.h"

enum { CLUSTERS = 64, SEEDS = 8 };
static struct world w, crashed;
static struct lvol_error error;

/* Runs `check` on each state that power can leave of what is on the record of w. Returns how many there were.
 * damaged: the superblock is damaged, too, and is made anew. */
static unsigned each_crash(void (*check)(void), bool damaged)
{
	unsigned states = 0;

	crashed = (struct world){.random = 1};
	disk_init(&crashed.disk, w.disk.size);
	lvol_owner_self(&crashed.disk.owner);
	crashed.disk.owner.boot[0] ^= 2; /* w, which is open, may have the other one */
	for (size_t k = 0; k <= w.disk.num_log; k++) {
		for (uint32_t seed = 0; seed < SEEDS; seed++, states++) {
			disk_crash(&w.disk, k, seed, &crashed.disk);
			if (damaged) {
				((struct lvol_super *)crashed.disk.bytes)->cluster_bytes ^= 1;
				CU_ASSERT_EQUAL_FATAL(world_rescue(&crashed, &error), 0);
			} else {
				world_check(&crashed, false);
			}
			CU_ASSERT_EQUAL_FATAL(world_open(&crashed, &error), 0);
			check();
			world_forget(&crashed);
		}
	}
	disk_free(&crashed.disk);
	return states;
}

/* ---- The journal is put in place ---- */

static void expect_the_model(void)
{
	CU_ASSERT_PTR_NULL(world_differs(&crashed, &w.model, NULL));
	world_count(&crashed);
}

/* The machine stops when a batch is committed, before any of it is in its place: there are the pages of before, or
 * (rotten) what nobody can read. */
static void commit_and_stop(bool rotten)
{
	uint8_t *before;

	world_create(&w, CLUSTERS);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 6, true), 0);
	CU_ASSERT_EQUAL_FATAL(world_write(&w, 0, 3, 300), 0);
	disk_run(&w.disk);
	before = malloc(w.disk.size);
	memcpy(before, w.disk.bytes, w.disk.size);
	CU_ASSERT_EQUAL_FATAL(world_snapshot(&w, 0, 1), 0);
	disk_run(&w.disk);
	const struct lvol_journal_head *h = w.store->slot;
	CU_ASSERT_TRUE_FATAL(h->num_pages >= 2);
	for (uint32_t i = 0; i < h->num_pages; i++) {
		uint64_t at = live_md_offset(w.store, h->places[i]);
		memcpy(w.disk.bytes + at, before + at, LVOL_PAGE_BYTES);
		if (rotten) {
			memset(w.disk.bytes + at + 100, 0x5a, LVOL_PAGE_BYTES / 2);
		}
	}
	free(before);
	world_forget(&w);
	lvol_owner_self(&w.disk.owner);
	w.disk.owner.boot[0] ^= 1;
	disk_record(&w.disk);
}

static void test_power_fails_while_the_journal_is_put_in_place(void)
{
	for (int how = 0; how < 4; how++) {
		commit_and_stop(how % 2 != 0);
		CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
		CU_ASSERT_PTR_NULL(world_differs(&w, &w.model, NULL));
		CU_ASSERT_TRUE(each_crash(expect_the_model, how >= 2) > 60);
		world_close(&w);
		world_free(&w);
	}
}

/* ---- An older form is converted ---- */

static struct image m;

static void expect_the_runs(void)
{
	const struct lvol_live_volume *v = lvol_live_find(crashed.store, "old");

	CU_ASSERT_PTR_NOT_NULL_FATAL(v);
	for (uint64_t n = 0; n < 6; n++) {
		uint32_t want = n < 2 ? LVOL_LIVE_OWN | (uint32_t)(20 + n) : n == 5 ? LVOL_LIVE_OWN | 9u : 0;
		CU_ASSERT_EQUAL(lvol_live_entry(v, n), want);
	}
	CU_ASSERT_TRUE(v->num_clusters == 6 && v->num_own == 3);
	CU_ASSERT_FALSE(v->internal->meta.rle);
}

static void test_power_fails_while_old_runs_are_converted(void)
{
	static const struct lvol_desc_rle runs[] = {{20, 2}, {0, 3}, {9, 1}};

	image_init(&m);
	image_volume_add(&m, 2, "old", runs, 3);
	image_seal(&m);
	w = (struct world){.random = 1};
	disk_init(&w.disk, sizeof(m.bytes));
	memcpy(w.disk.bytes, m.bytes, sizeof(m.bytes));
	disk_record(&w.disk);
	CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
	CU_ASSERT_TRUE(lvol_live_info(w.store).commits >= 1);
	CU_ASSERT_TRUE(each_crash(expect_the_runs, false) > 60);
	world_close(&w);
	world_free(&w);
}

/* ---- A deletion ---- */

/* A thin volume with one cluster in each of so many pages of places. */
static struct lvol_live_volume *volume_of_pages(unsigned pages)
{
	const struct lvol_live_volume_opts opts = {.name = "large",
						   .uuid = "00000000-0000-0000-0000-00000000000a",
						   .num_clusters = (uint64_t)pages * LVOL_EXTENT_PAGE_CLUSTERS,
						   .thin = true};
	struct outcome o = {.done = false};

	lvol_live_volume_create(w.store, &opts, outcome_volume, &o);
	CU_ASSERT_EQUAL_FATAL(world_wait(&w, &o), 0);
	for (unsigned i = 0; i < pages; i++) {
		struct lvol_live_fill f;
		struct outcome filled = {.done = false};
		CU_ASSERT_EQUAL_FATAL(lvol_live_fill_claim(o.volume, (uint64_t)i * LVOL_EXTENT_PAGE_CLUSTERS, &f), 0);
		lvol_live_fill_commit(&f, outcome_done, &filled);
		CU_ASSERT_EQUAL_FATAL(world_wait(&w, &filled), 0);
	}
	return o.volume;
}

/* It is one batch of one page, and its clusters come free one after the other: however large the volume is, others wait
 * for no more than that. */
static void test_a_deletion_is_bounded(void)
{
	static const unsigned sizes[] = {1, 12};
	uint64_t bytes[2], operations[2];

	for (size_t i = 0; i < 2; i++) {
		world_create(&w, CLUSTERS);
		struct lvol_live_volume *v = volume_of_pages(sizes[i]);
		const struct lvol_live_info before = lvol_live_info(w.store);
		struct outcome o = {.done = false};
		disk_run(&w.disk);
		w.disk.late = true;
		operations[i] = w.disk.ops;
		lvol_live_volume_delete(v, outcome_done, &o);
		CU_ASSERT_EQUAL(world_wait(&w, &o), 0);
		operations[i] = w.disk.ops - operations[i];
		for (unsigned long ops = w.disk.ops; disk_run_one(&w.disk); ops = w.disk.ops) {
			CU_ASSERT_TRUE(w.disk.ops - ops <= 1);
		}
		const struct lvol_live_info after = lvol_live_info(w.store);
		CU_ASSERT_EQUAL(after.commits, before.commits + 1);
		CU_ASSERT_EQUAL(after.free_clusters, before.free_clusters + sizes[i]);
		bytes[i] = after.md_bytes - before.md_bytes;
		w.disk.late = false;
		world_close(&w);
		world_free(&w);
	}
	CU_ASSERT_EQUAL(bytes[0], 3 * (uint64_t)LVOL_PAGE_BYTES); /* the head, and the page there and in its place */
	CU_ASSERT_EQUAL(bytes[1], bytes[0]);
	CU_ASSERT_EQUAL(operations[1], operations[0]);
}

static const struct unit_test tests[] = {
	UNIT(test_power_fails_while_the_journal_is_put_in_place),
	UNIT(test_power_fails_while_old_runs_are_converted),
	UNIT(test_a_deletion_is_bounded),
	UNIT_END,
};
UNIT_MAIN("lvol_live_recover", tests, NULL, NULL)
