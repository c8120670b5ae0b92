/* SPDX-License-Identifier: BSD-3-Clause */
/* What a store tells whoever watches it: batches of metadata, changes, and that it has failed. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "unittest/lvol/world.h"
#include "unittest/unit.h"

static struct world w;
static char told[512]; /* "journal:create committed:create=0 ended:create:v0=0 " */
static uint64_t generation;

static void watch(void *ctx, const struct lvol_live_event *e)
{
	size_t at = strlen(told);

	(void)ctx;
	switch (e->kind) {
	case LVOL_LIVE_JOURNAL:
		CU_ASSERT_TRUE(e->generation > generation && e->pages > 0);
		generation = e->generation;
		snprintf(told + at, sizeof(told) - at, "journal:%s ", e->change);
		break;
	case LVOL_LIVE_COMMITTED:
		CU_ASSERT_EQUAL(e->generation, generation);
		snprintf(told + at, sizeof(told) - at, "committed:%s=%d ", e->change, e->status);
		break;
	case LVOL_LIVE_FAILED:
		snprintf(told + at, sizeof(told) - at, "failed ");
		break;
	case LVOL_LIVE_CHANGE_WAITS:
		snprintf(told + at, sizeof(told) - at, "waits:%s:%s ", e->change, e->volume);
		break;
	case LVOL_LIVE_CHANGE_ENDED:
		snprintf(told + at, sizeof(told) - at, "ended:%s:%s=%d ", e->change, e->volume, e->status);
		break;
	}
}

static void watched_world(void)
{
	world_create(&w, 40);
	world_close(&w);
	generation = 0;
	w.disk.happened = watch;
	CU_ASSERT_EQUAL_FATAL(world_open(&w, NULL), 0);
	told[0] = '\0';
}

static void expect_told(const char *what)
{
	CU_ASSERT_STRING_EQUAL(told, what);
	told[0] = '\0';
}

static void test_changes_and_their_batches_are_told(void)
{
	watched_world();
	CU_ASSERT_EQUAL(world_volume_create(&w, 0, 4, true), 0);
	expect_told("journal:create committed:create=0 ended:create:v0=0 ");
	CU_ASSERT_EQUAL(world_write(&w, 0, 0, 1), 0);
	expect_told("journal: committed:=0 ");
	CU_ASSERT_EQUAL(world_snapshot(&w, 0, 1), 0);
	expect_told("waits:snapshot:v0 journal:snapshot committed:snapshot=0 ended:snapshot:v0=0 ");
	CU_ASSERT_EQUAL(world_rename(&w, 1, "v0"), -EEXIST);
	expect_told("ended:rename:v1=-17 ");
	CU_ASSERT_EQUAL(world_threshold(&w, 50), 0);
	expect_told("journal:set_thresholds committed:set_thresholds=0 ended:set_thresholds:=0 ");
	CU_ASSERT_EQUAL(world_delete(&w, 0), 0);
	expect_told("journal:delete committed:delete=0 ended:delete:v0=0 ");
	world_close(&w);
	expect_told("");
	world_free(&w);
}

/* Once, and what ends with it is told. */
static void test_a_store_that_fails_tells_of_it(void)
{
	watched_world();
	CU_ASSERT_EQUAL(world_volume_create(&w, 0, 4, true), 0);
	told[0] = '\0';
	w.disk.fail_status = -EIO;
	w.disk.fail_in = 1; /* the flush before succeeds */
	w.disk.fail_on = true;
	CU_ASSERT_EQUAL(world_rename(&w, 0, "other"), -EIO);
	CU_ASSERT_EQUAL(world_rename(&w, 0, "another"), -EIO);
	expect_told("journal:rename failed committed:rename=-5 ended:rename:v0=-5 ended:rename:v0=-5 ");
	world_free(&w); /* as if the device were gone: it has failed before */
	expect_told("");
}

static int refuse(void *ctx, const char *name, const char *uuid, struct lvol_error *e)
{
	(void)ctx, (void)name, (void)uuid, (void)e;
	return -EEXIST;
}

/* Nothing of it has failed. */
static void test_a_store_that_is_refused_is_not_told_of_as_failed(void)
{
	watched_world();
	world_close(&w);
	told[0] = '\0';
	w.disk.may_open = refuse;
	CU_ASSERT_EQUAL(world_open(&w, NULL), -EEXIST);
	expect_told("");
	w.disk.may_open = NULL;
	CU_ASSERT_EQUAL_FATAL(world_open(&w, NULL), 0);
	world_close(&w);
	world_free(&w);
}

static void test_a_change_of_the_store_names_no_volume(void)
{
	struct outcome o = {.done = false};

	watched_world();
	lvol_live_rename_store(w.store, "other", outcome_done, &o);
	CU_ASSERT_EQUAL(world_wait(&w, &o), 0);
	expect_told("journal:rename_store committed:rename_store=0 ended:rename_store:=0 ");
	snprintf(w.model.name, sizeof(w.model.name), "other");
	world_close(&w);
	world_free(&w);
}

/* A snapshot that is deleted holds back the writes of its clone. */
static void test_what_a_change_waits_for_is_named(void)
{
	watched_world();
	CU_ASSERT_EQUAL(world_volume_create(&w, 0, 4, true), 0);
	CU_ASSERT_EQUAL(world_write(&w, 0, 0, 1), 0);
	CU_ASSERT_EQUAL(world_snapshot(&w, 0, 1), 0);
	told[0] = '\0';
	CU_ASSERT_EQUAL(world_delete(&w, 1), 0);
	expect_told("waits:delete:v0 journal:delete committed:delete=0 ended:delete:v1=0 ");
	world_close(&w);
	world_free(&w);
}

/* Its end is told when it has ended, by the name of what was asked for. */
static void test_inflating_is_told_of_at_its_end(void)
{
	watched_world();
	CU_ASSERT_EQUAL(world_volume_create(&w, 0, 2, true), 0);
	CU_ASSERT_EQUAL(world_write(&w, 0, 0, 1), 0);
	CU_ASSERT_EQUAL(world_snapshot(&w, 0, 1), 0);
	told[0] = '\0';
	CU_ASSERT_EQUAL(world_inflate(&w, 0, false), 0);
	expect_told("journal: committed:=0 journal:detach committed:detach=0 ended:decouple:v0=0 ");
	CU_ASSERT_EQUAL(world_inflate(&w, 0, false), -EINVAL); /* it has no parent any more */
	expect_told("ended:decouple:v0=-22 ");
	CU_ASSERT_EQUAL(world_inflate(&w, 0, true), 0);
	expect_told("journal: committed:=0 journal:detach committed:detach=0 ended:inflate:v0=0 ");
	world_close(&w);
	world_free(&w);
}

static void test_inflating_without_room_is_told_of(void)
{
	watched_world();
	uint32_t all = lvol_live_info(w.store).total_data_clusters;
	CU_ASSERT_EQUAL(world_volume_create(&w, 0, 2, true), 0);
	struct outcome o = {.done = false};
	const struct lvol_live_volume_opts rest = {
		.name = "rest", .uuid = "22222222-2222-4333-8444-555555555555", .num_clusters = all};
	lvol_live_volume_create(w.store, &rest, outcome_volume, &o);
	CU_ASSERT_EQUAL_FATAL(world_wait(&w, &o), 0);
	told[0] = '\0';
	CU_ASSERT_EQUAL(world_inflate(&w, 0, true), -ENOSPC);
	expect_told("ended:inflate:v0=-28 ");
	world_forget(&w);
	world_free(&w);
}

static const struct unit_test tests[] = {
	UNIT(test_changes_and_their_batches_are_told),
	UNIT(test_a_store_that_fails_tells_of_it),
	UNIT(test_a_store_that_is_refused_is_not_told_of_as_failed),
	UNIT(test_a_change_of_the_store_names_no_volume),
	UNIT(test_what_a_change_waits_for_is_named),
	UNIT(test_inflating_is_told_of_at_its_end),
	UNIT(test_inflating_without_room_is_told_of),
	UNIT_END,
};
UNIT_MAIN("lvol_events", tests, NULL, NULL)
