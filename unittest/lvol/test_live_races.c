/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine where something begins while something else is under way, and what a store that has failed still does. */
#include <errno.h>

#include "unittest/lvol/world.h"
#include "unittest/unit.h"

static struct world w;
static struct lvol_error error;

enum { SEEDS = 40 };

/* v0 is a clone of v1; both have data. */
static void race_world(uint32_t seed)
{
	world_create(&w, 96);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 6, true), 0);
	CU_ASSERT_EQUAL_FATAL(world_write(&w, 0, 0, 6 * WORLD_SECTORS), 0);
	CU_ASSERT_EQUAL_FATAL(world_snapshot(&w, 0, 1), 0);
	CU_ASSERT_EQUAL_FATAL(world_write(&w, 0, 5 * WORLD_SECTORS, 3), 0);
	disk_run(&w.disk);
	w.disk.random = seed + 1;
	w.disk.late = true;
}

/* A host's write, which waits for first writes that are under way. Returns its status. */
static int host_write(uint64_t sector)
{
	return world_write(&w, 0, sector, 2);
}

static void change_snapshot(struct lvol_live_volume *v, struct outcome *o)
{
	lvol_live_volume_snapshot(v, "v2", "u2", outcome_volume, o);
}

static void change_delete(struct lvol_live_volume *v, struct outcome *o)
{
	v->parent->user = NULL;
	lvol_live_volume_delete(v->parent, outcome_done, o);
}

static void change_shrink(struct lvol_live_volume *v, struct outcome *o)
{
	lvol_live_volume_resize(v, 3, outcome_done, o);
}

static void change_read_only(struct lvol_live_volume *v, struct outcome *o)
{
	lvol_live_volume_set_read_only(v, outcome_done, o);
}

/* The change has begun when the volume is to be inflated: what hosts write between is there at the end. */
static void race(void (*change)(struct lvol_live_volume *v, struct outcome *o), bool all, uint32_t seed)
{
	struct outcome changed = {.done = false}, inflated = {.done = false};

	race_world(seed);
	struct lvol_live_volume *v = world_volume(&w, 0);
	change(v, &changed);
	(all ? lvol_live_volume_inflate : lvol_live_volume_decouple)(v, outcome_done, &inflated);
	for (uint32_t k = 0; k < seed % 8 && !changed.done; k++) {
		disk_run_one(&w.disk);
	}
	CU_ASSERT_EQUAL(world_wait(&w, &changed), 0);
	for (uint64_t n = 0; n < 3; n++) {
		int rc = host_write(n * WORLD_SECTORS + 7);
		CU_ASSERT_TRUE(rc == 0 || (rc == -EPERM && v->read_only));
	}
	int rc = world_wait(&w, &inflated);
	CU_ASSERT_TRUE(rc == 0 || (rc == -EPERM && v->read_only) || (rc == -EINVAL && !all));
	for (uint64_t k = 0; k < v->num_clusters * WORLD_SECTORS; k++) {
		CU_ASSERT_EQUAL_FATAL(world_get(&w, v, k), w.model.volumes[0].sectors[k]);
	}
	for (uint64_t n = 0; n < v->num_clusters; n++) {
		CU_ASSERT_EQUAL(lvol_live_entry(v, n) & LVOL_LIVE_BUSY, 0);
	}
	world_count(&w);
	world_close(&w);
	world_free(&w);
}

static void test_an_inflation_waits_for_a_change_that_has_begun(void)
{
	static void (*const changes[])(struct lvol_live_volume * v, struct outcome * o) = {
		change_snapshot, change_delete, change_shrink, change_read_only};

	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		for (uint32_t seed = 0; seed < SEEDS && CU_get_number_of_failures() == 0; seed++) {
			race(changes[i], seed % 2 == 0, seed);
		}
	}
}

/* A change that is asked for after it finds the volume being filled. */
static void test_a_change_behind_an_inflation_is_refused(void)
{
	struct outcome first = {.done = false}, inflated = {.done = false}, later = {.done = false},
		       twice = {.done = false};

	race_world(1);
	struct lvol_live_volume *v = world_volume(&w, 0);
	lvol_live_volume_rename(v, "v0", outcome_done, &first);
	lvol_live_volume_inflate(v, outcome_done, &inflated);
	lvol_live_volume_inflate(v, outcome_done, &twice);
	change_snapshot(v, &later);
	CU_ASSERT_EQUAL(world_wait(&w, &first), 0);
	CU_ASSERT_EQUAL(world_wait(&w, &later), -EBUSY);
	CU_ASSERT_EQUAL(world_wait(&w, &twice), -EBUSY);
	CU_ASSERT_EQUAL(world_wait(&w, &inflated), 0);
	CU_ASSERT_TRUE(v->parent == NULL && v->num_own == 6 && !v->thin);
	world_count(&w);
	world_close(&w);
	world_free(&w);
}

/* ---- Size and reservation, asked for at once ---- */

struct asked {
	enum { ASKED_RESIZE, ASKED_RESERVE } what;
	uint64_t clusters;
	int status;                  /* that it must have */
	uint64_t size, reserved;     /* of the volume when it has ended */
	bool writes;                 /* it changes the store: it is committed */
	struct lvol_live_volume *of; /* the rest: what was seen */
	unsigned *ended, turn;
	uint64_t seen_size, seen_reserved, commits;
	int seen;
};

static void asked_done(void *arg, int status)
{
	struct asked *a = arg;

	a->turn = ++*a->ended;
	a->seen = status;
	a->seen_size = a->of->num_clusters;
	a->seen_reserved = a->of->reserved;
	a->commits = lvol_live_info(w.store).commits;
}

static void ask(struct asked *a)
{
	if (a->what == ASKED_RESIZE) {
		lvol_live_volume_resize(a->of, a->clusters, asked_done, a);
	} else {
		lvol_live_volume_reserve(a->of, a->clusters, asked_done, a);
	}
}

/* The volume has 8 clusters and reserves none when all of it is asked for. */
static const struct asked all_asked[] = {
	{ASKED_RESERVE, 5, 0, 8, 5, true},
	{ASKED_RESERVE, 0, 0, 8, 0, true}, /* none, as when it was asked for: but not as at its turn */
	{ASKED_RESERVE, 7, 0, 8, 7, true},
	{ASKED_RESERVE, 7, 0, 8, 7, false}, /* by now it has it */
	{ASKED_RESIZE, 4, 0, 4, 4, true},
	{ASKED_RESERVE, 5, -EINVAL, 4, 4, false}, /* by now that is more than its size */
	{ASKED_RESERVE, 4, 0, 4, 4, false},
	{ASKED_RESIZE, 12, 0, 12, 4, true},
	{ASKED_RESERVE, 9, 0, 12, 9, true}, /* by now it is not */
	{ASKED_RESIZE, 8, 0, 8, 8, true},
};

enum { NUM_ASKED = sizeof(all_asked) / sizeof(all_asked[0]) };

/* Some of it is under way already when the rest is asked for. */
static void ask_all(uint32_t seed)
{
	struct asked asked[NUM_ASKED];
	unsigned ended = 0;
	uint64_t commits;

	world_create(&w, 64);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 8, true), 0);
	CU_ASSERT_EQUAL_FATAL(world_write(&w, 0, 0, 2 * WORLD_SECTORS), 0);
	disk_run(&w.disk);
	w.disk.random = seed + 1;
	w.disk.late = true;
	commits = lvol_live_info(w.store).commits;
	for (unsigned i = 0; i < NUM_ASKED; i++) {
		asked[i] = all_asked[i];
		asked[i].of = world_volume(&w, 0);
		asked[i].ended = &ended;
		ask(&asked[i]);
		for (uint32_t k = 0; k < seed % 3 && i % 2 == 0; k++) {
			disk_run_one(&w.disk);
		}
	}
	CU_ASSERT_TRUE(seed % 3 != 0 || ended == 0);
	disk_run(&w.disk);
	CU_ASSERT_EQUAL_FATAL(ended, NUM_ASKED);
	for (unsigned i = 0; i < NUM_ASKED; i++) {
		const struct asked *a = &asked[i];
		CU_ASSERT_TRUE(a->turn == i + 1 && a->seen == a->status);
		CU_ASSERT_TRUE(a->seen_size == a->size && a->seen_reserved == a->reserved);
		CU_ASSERT_EQUAL(a->commits > commits, a->writes);
		commits = a->commits;
	}
	w.model.volumes[0].reserved = 8;
	CU_ASSERT_PTR_NULL(world_differs(&w, &w.model, NULL));
	world_count(&w);
	w.disk.late = false;
	world_close(&w);
	CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
	CU_ASSERT_PTR_NULL(world_differs(&w, &w.model, NULL));
	world_close(&w);
	world_free(&w);
}

static void test_a_reservation_is_compared_at_its_turn(void)
{
	for (uint32_t seed = 0; seed < SEEDS; seed++) {
		ask_all(seed);
	}
}

/* ---- Clusters whose size is no multiple of the pieces in which they are copied ---- */

enum { ODD_TIMES = 17, ODD_CLUSTER = ODD_TIMES * WORLD_CLUSTER };

static void odd_world(void)
{
	world_create(&w, 24 * ODD_TIMES);
	world_close(&w);
	struct lvol_super *super = (struct lvol_super *)w.disk.bytes;
	super->cluster_bytes = ODD_CLUSTER;
	super->clean = 0;
	super->crc = lvol_crc(super);
	disk_record(&w.disk);
	CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
}

static void odd_write(struct lvol_live_volume *v, uint64_t n)
{
	struct lvol_live_fill f;
	struct outcome o = {.done = false};

	CU_ASSERT_EQUAL_FATAL(lvol_live_fill_claim(v, n, &f), 0);
	for (uint32_t i = 0; i < ODD_CLUSTER; i++) {
		w.disk.bytes[(uint64_t)f.cluster * ODD_CLUSTER + i] = (uint8_t)(i / 4096 + 7 * n);
	}
	lvol_live_fill_commit(&f, outcome_done, &o);
	CU_ASSERT_EQUAL(world_wait(&w, &o), 0);
}

static bool odd_is_there(const struct lvol_live_volume *v, uint64_t n)
{
	uint64_t at = (uint64_t)lvol_live_cluster(lvol_live_entry(v, n)) * ODD_CLUSTER;

	for (uint32_t i = 0; i < ODD_CLUSTER; i++) {
		if (w.disk.bytes[at + i] != (uint8_t)(i / 4096 + 7 * n)) {
			return false;
		}
	}
	return at != 0;
}

static void test_clusters_of_odd_sizes_are_copied_whole(void)
{
	struct lvol_live_volume_opts opts = {.name = "v", .uuid = "u", .num_clusters = 4, .thin = true};
	struct outcome o = {.done = false};

	odd_world();
	lvol_live_volume_create(w.store, &opts, outcome_volume, &o);
	CU_ASSERT_EQUAL_FATAL(world_wait(&w, &o), 0);
	struct lvol_live_volume *v = o.volume;
	for (uint64_t n = 0; n < 4; n++) {
		odd_write(v, n);
	}
	o.done = false;
	lvol_live_volume_snapshot(v, "s", "u2", outcome_volume, &o);
	CU_ASSERT_EQUAL_FATAL(world_wait(&w, &o), 0);
	odd_write(v, 3); /* a neighbour of those that the copies get */
	o.done = false;
	lvol_live_volume_inflate(v, outcome_done, &o);
	CU_ASSERT_EQUAL(world_wait(&w, &o), 0);
	for (uint64_t n = 0; n < 4; n++) {
		CU_ASSERT_TRUE(odd_is_there(v, n) && odd_is_there(lvol_live_find(w.store, "s"), n));
	}
	world_close(&w);
	world_free(&w);
}

/* ---- Stores that have failed ---- */

static void give_up_release(struct lvol_live_volume *v, struct outcome *o)
{
	lvol_live_release(v, 0, v->num_clusters, NULL, outcome_done, o);
}

/* The device fails when clusters are given up, and comes back. What a host is told to have written then is there after
 * the next open. */
static void give_up(void (*op)(struct lvol_live_volume *v, struct outcome *o), long fail_in)
{
	struct outcome o = {.done = false};
	uint64_t sectors[6] = {0};

	world_create(&w, 96);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 6, true), 0);
	CU_ASSERT_EQUAL_FATAL(world_write(&w, 0, 0, 6 * WORLD_SECTORS), 0);
	struct lvol_live_volume *v = world_volume(&w, 0);
	w.disk.fail_in = fail_in;
	op(v, &o);
	w.disk.fail_in = -1;
	CU_ASSERT_TRUE(world_wait(&w, &o) == 0 || o.status == -EIO);
	for (uint64_t n = 0; n < v->num_clusters && lvol_live_info(w.store).failed; n++) {
		uint64_t own = v->num_own;
		int rc = world_put(&w, v, n * WORLD_SECTORS, 1, 1000 + n);
		CU_ASSERT_TRUE(rc == 0 ? own > 0 : rc == -EIO);
		sectors[n] = rc == 0 ? 1000 + n : 0;
	}
	world_forget(&w);
	CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
	v = world_volume(&w, 0);
	for (uint64_t n = 0; n < 6; n++) {
		CU_ASSERT_TRUE(sectors[n] == 0 || world_get(&w, v, n * WORLD_SECTORS) == sectors[n]);
	}
	world_close(&w);
	world_free(&w);
}

static void test_what_a_failed_store_acknowledges_is_kept(void)
{
	for (long k = 0; k < 12; k++) {
		give_up(give_up_release, k);
		give_up(change_shrink, k);
	}
}

/* ---- Space ---- */

static unsigned space_wakes;

static void space_woken(struct lvol_live_waiter *waiter)
{
	(void)waiter;
	space_wakes++;
}

/* v0 and v1 have all clusters. Returns how many v1 has. */
static uint32_t full_world(uint32_t seed)
{
	world_create(&w, 24);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 12, true), 0);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 1, 12, true), 0);
	CU_ASSERT_EQUAL_FATAL(world_write(&w, 0, 0, 12 * WORLD_SECTORS), 0);
	uint32_t left = lvol_live_free_clusters(w.store);
	CU_ASSERT_EQUAL_FATAL(world_write(&w, 1, 0, left * WORLD_SECTORS), 0);
	CU_ASSERT_EQUAL(world_write(&w, 1, (uint64_t)left * WORLD_SECTORS, 1), -ENOSPC);
	w.disk.random = seed + 1;
	w.disk.late = true;
	return left;
}

/* What was given up can be written at once, though it is in its grace period; but not more. */
static void test_a_first_write_waits_for_space_that_comes(void)
{
	for (uint32_t seed = 0; seed < SEEDS; seed++) {
		struct outcome o = {.done = false};
		uint64_t left = full_world(seed);
		lvol_live_release(world_volume(&w, 0), 3, 2, NULL, outcome_done, &o);
		CU_ASSERT_EQUAL(world_wait(&w, &o), 0);
		memset(w.model.volumes[0].sectors + 3 * WORLD_SECTORS, 0, 2 * WORLD_CLUSTER / DISK_SECTOR * 8);
		CU_ASSERT_EQUAL(world_write(&w, 1, left * WORLD_SECTORS, 1), 0);
		CU_ASSERT_EQUAL(world_write(&w, 1, (left + 1) * WORLD_SECTORS, 1), 0);
		CU_ASSERT_EQUAL(world_write(&w, 0, 3 * WORLD_SECTORS, 1), -ENOSPC);
		CU_ASSERT_PTR_NULL(world_differs(&w, &w.model, NULL));
		world_count(&w);
		world_close(&w);
		world_free(&w);
	}
}

static void test_a_thick_volume_waits_for_space_that_comes(void)
{
	for (uint32_t seed = 0; seed < SEEDS; seed++) {
		full_world(seed);
		CU_ASSERT_EQUAL(world_delete(&w, 0), 0);
		CU_ASSERT_EQUAL(world_volume_create(&w, 2, 13, false), -ENOSPC);
		CU_ASSERT_EQUAL(world_volume_create(&w, 3, 8, false), 0);
		CU_ASSERT_EQUAL(world_delete(&w, 3), 0);
		CU_ASSERT_EQUAL(world_volume_create(&w, 2, 12, false), 0);
		CU_ASSERT_EQUAL(world_volume_create(&w, 3, 1, false), -ENOSPC);
		CU_ASSERT_PTR_NULL(world_differs(&w, &w.model, NULL));
		world_count(&w);
		world_close(&w);
		world_free(&w);
	}
}

/* A store that goes away meanwhile leaves nobody waiting. */
static void test_who_waits_for_space_is_woken_at_the_end(void)
{
	for (uint32_t seed = 0; seed < SEEDS; seed++) {
		struct outcome o = {.done = false}, made = {.done = false}, closed = {.done = false};
		struct lvol_live_volume_opts opts = {.name = "new", .uuid = "u", .num_clusters = 9};
		struct lvol_live_waiter waiter = {.wake = space_woken};
		uint64_t left = full_world(seed);
		struct lvol_live_fill f;
		lvol_live_release(world_volume(&w, 0), 3, 2, NULL, outcome_done, &o);
		CU_ASSERT_EQUAL(world_wait(&w, &o), 0);
		struct lvol_live_volume *v = world_volume(&w, 1);
		CU_ASSERT_EQUAL(lvol_live_fill_claim(v, left, &f), -EAGAIN);
		space_wakes = 0;
		lvol_live_wait(v, left, &waiter);
		CU_ASSERT_EQUAL(space_wakes, 0);
		lvol_live_volume_create(w.store, &opts, outcome_volume, &made);
		for (uint32_t k = 0; k < seed % 4; k++) {
			disk_run_one(&w.disk);
		}
		if (seed % 2 == 0) {
			world_forget(&w);
		} else {
			lvol_live_close(w.store, outcome_done, &closed);
			CU_ASSERT_EQUAL(world_wait(&w, &closed), 0);
			w.store = NULL;
			world_check(&w, true);
		}
		CU_ASSERT_TRUE(space_wakes == 1 && made.done && made.status != 0);
		world_free(&w);
	}
}

/* ---- Waiting ---- */

static unsigned woken;

static void wake(struct lvol_live_waiter *waiter)
{
	(void)waiter;
	woken++;
}

/* Whether the release is under way by then, or still waits for the change before it. */
static void test_who_waits_for_a_release_is_woken_when_the_store_fails(void)
{
	for (unsigned steps = 0; steps < 8; steps++) {
		struct outcome first = {.done = false}, released = {.done = false};
		struct lvol_live_waiter waiters[6];
		race_world(steps);
		struct lvol_live_volume *v = world_volume(&w, 0);
		woken = 0;
		lvol_live_volume_rename(v, "x", outcome_done, &first);
		lvol_live_release(v, 0, 6, NULL, outcome_done, &released);
		for (unsigned i = 0; i < steps; i++) {
			disk_run_one(&w.disk);
		}
		for (uint64_t n = 0; n < 6; n++) {
			waiters[n].wake = wake;
			lvol_live_wait(v, n, &waiters[n]);
		}
		world_forget(&w);
		CU_ASSERT_TRUE(first.done && released.done && woken == 6);
		world_free(&w);
	}
}

static const struct unit_test tests[] = {
	UNIT(test_an_inflation_waits_for_a_change_that_has_begun),
	UNIT(test_a_change_behind_an_inflation_is_refused),
	UNIT(test_a_reservation_is_compared_at_its_turn),
	UNIT(test_clusters_of_odd_sizes_are_copied_whole),
	UNIT(test_what_a_failed_store_acknowledges_is_kept),
	UNIT(test_a_first_write_waits_for_space_that_comes),
	UNIT(test_a_thick_volume_waits_for_space_that_comes),
	UNIT(test_who_waits_for_space_is_woken_at_the_end),
	UNIT(test_who_waits_for_a_release_is_woken_when_the_store_fails),
	UNIT_END,
};
UNIT_MAIN("lvol_live_races", tests, NULL, NULL)
