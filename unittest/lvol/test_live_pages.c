/* SPDX-License-Identifier: BSD-3-Clause */
/* Metadata pages that reservations keep: a volume with one writes any of its clusters, whatever others have taken. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lvol/live_internal.h"
#include "lvol/reserve.h"
#include "util/compiler.h"
#include "unittest/lvol/world.h"
#include "unittest/unit.h"

enum { TABLE = LVOL_EXTENT_PAGE_CLUSTERS, TABLES = 4 };

static struct world w;
static struct lvol_error error;

static unsigned eaten;

static void begin(uint32_t clusters)
{
	world_create(&w, clusters);
	eaten = 0;
}

static uint64_t kept(void)
{
	return lvol_live_info(w.store).reserved_md_pages;
}

static uint32_t free_pages(void)
{
	return lvol_live_info(w.store).free_md_pages;
}

static struct lvol_live_volume *found(const char *name)
{
	struct lvol_live_volume *v = lvol_live_find(w.store, name);

	CU_ASSERT_PTR_NOT_NULL_FATAL(v);
	return v;
}

static int create(const char *name, uint64_t clusters, uint64_t reserved)
{
	char uuid[LVOL_UUID_TEXT];
	struct outcome o = {.done = false};

	snprintf(uuid, sizeof(uuid), "uuid of %s", name);
	struct lvol_live_volume_opts opts = {
		.name = name, .uuid = uuid, .num_clusters = clusters, .thin = true, .reserved = reserved};
	lvol_live_volume_create(w.store, &opts, outcome_volume, &o);
	return world_wait(&w, &o);
}

static int snapshot(const char *name, const char *of)
{
	char uuid[LVOL_UUID_TEXT];
	struct outcome o = {.done = false};

	snprintf(uuid, sizeof(uuid), "uuid of %s", name);
	lvol_live_volume_snapshot(found(of), name, uuid, outcome_volume, &o);
	return world_wait(&w, &o);
}

static int reserve(const char *name, uint64_t clusters)
{
	struct outcome o = {.done = false};

	lvol_live_volume_reserve(found(name), clusters, outcome_done, &o);
	return world_wait(&w, &o);
}

static int resize(const char *name, uint64_t clusters)
{
	struct outcome o = {.done = false};

	lvol_live_volume_resize(found(name), clusters, outcome_done, &o);
	return world_wait(&w, &o);
}

static int delete (const char *name)
{
	struct outcome o = {.done = false};

	lvol_live_volume_delete(found(name), outcome_done, &o);
	return world_wait(&w, &o);
}

static int xattr(const char *of, const char *name, size_t bytes)
{
	static const uint8_t value[4000];
	struct outcome o = {.done = false};

	lvol_live_volume_xattr_set(found(of), name, value, (uint16_t)bytes, outcome_done, &o);
	return world_wait(&w, &o);
}

/* Writes a sector of the first cluster of a table. */
static int put(const char *name, uint64_t table)
{
	return world_put(&w, found(name), table * TABLE * WORLD_SECTORS, 1, 7);
}

static int give_up(const char *name, uint64_t table)
{
	struct outcome o = {.done = false};

	lvol_live_release(found(name), table * TABLE, 1, NULL, outcome_done, &o);
	int rc = world_wait(&w, &o);
	disk_run(&w.disk);
	return rc;
}

/* New volumes take each page that they get. */
static void eat(void)
{
	char name[16];
	int rc = 0;

	for (; rc == 0; eaten += rc == 0) {
		snprintf(name, sizeof(name), "e%u", eaten);
		rc = create(name, 1, 0);
	}
	CU_ASSERT_EQUAL(rc, -ENOSPC);
	CU_ASSERT_EQUAL(free_pages(), kept());
}

/* One page is free again. */
static void spare(void)
{
	char name[16];

	snprintf(name, sizeof(name), "e%u", --eaten);
	CU_ASSERT_EQUAL(delete (name), 0);
}

static void reopen(void)
{
	world_count(&w);
	world_close(&w);
	CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
	world_count(&w);
}

/* ---- How many ---- */

static void test_what_a_volume_needs(void)
{
	CU_ASSERT_EQUAL(lvol_reserve_pages(0, 0, 0, 0), 0);
	CU_ASSERT_EQUAL(lvol_reserve_pages(4, 0, 0, 0), 4);
	CU_ASSERT_EQUAL(lvol_reserve_pages(4, 3, 0, 0), 1);
	/* A chain that grows, and is there twice while it is written anew. */
	CU_ASSERT_EQUAL(lvol_reserve_pages(4, 1, 2, 0), 3 + 2 + 2);
	CU_ASSERT_EQUAL(lvol_reserve_pages(4, 1, 2, 1), 3 + 1 + 2);
	CU_ASSERT_EQUAL(lvol_reserve_pages(4, 1, 2, 3), 3 + 2); /* as another program wrote it */
	CU_ASSERT_EQUAL(lvol_reserve_pages(4, 4, 2, 1), 0);
	CU_ASSERT_EQUAL(lvol_reserve_pages(4, 5, 0, 0), 0);
	CU_ASSERT_EQUAL(lvol_reserve_pages(UINT64_MAX / 2, 0, 5, 0), UINT64_MAX / 2 + 10);
}

/* The pages of the chain when all tables are there, against those that are written. */
static void expect_chain(uint64_t tables)
{
	CU_ASSERT_EQUAL_FATAL(create("c", tables * TABLE, 0), 0);
	struct live_meta *m = &found("c")->internal->meta;
	for (uint64_t i = 0; i < tables; i++) {
		m->tables[i] = 1; /* never read */
	}
	for (int k = 0; k < 6; k++) {
		char name[8];
		snprintf(name, sizeof(name), "x%d", k);
		CU_ASSERT_EQUAL_FATAL(xattr("c", name, disk_random(&w.random) % 3900), 0);
		CU_ASSERT_EQUAL(live_meta_chain_most(m), m->num_chain);
	}
	memset(m->tables, 0, (size_t)tables * sizeof(*m->tables));
	CU_ASSERT_EQUAL_FATAL(xattr("c", "y", 1), 0);
	CU_ASSERT_TRUE(live_meta_chain_most(m) >= m->num_chain);
	CU_ASSERT_EQUAL_FATAL(delete ("c"), 0);
}

static void test_the_longest_chain_is_known(void)
{
	begin(256);
	for (uint64_t tables = 1; tables < 1200; tables += tables < 4 ? 1 : 37) {
		expect_chain(tables);
	}
	/* To the byte: the last entry of a root page, and the first one of the next. */
	for (uint64_t tables = 470; tables < 520; tables++) {
		CU_ASSERT_EQUAL_FATAL(create("c", tables * TABLE, 0), 0);
		struct live_meta *m = &found("c")->internal->meta;
		memset(m->tables, 1, (size_t)tables * sizeof(*m->tables));
		CU_ASSERT_EQUAL_FATAL(xattr("c", "x", tables % 7), 0);
		CU_ASSERT_EQUAL(live_meta_chain_most(m), m->num_chain);
		memset(m->tables, 0, (size_t)tables * sizeof(*m->tables));
		CU_ASSERT_EQUAL_FATAL(delete ("c"), 0);
	}
	world_free(&w);
}

/* ---- Who gets them ---- */

static void test_a_first_write_finds_a_page(void)
{
	begin(64);
	CU_ASSERT_EQUAL_FATAL(create("v", TABLES * TABLE, 5), 0);
	CU_ASSERT_EQUAL_FATAL(create("other", TABLES * TABLE, 0), 0);
	CU_ASSERT_EQUAL(put("other", 0), 0);
	CU_ASSERT_EQUAL(kept(), TABLES);
	eat();
	CU_ASSERT_TRUE(eaten > 3);
	/* Others get none, but what they have they use. */
	CU_ASSERT_EQUAL(put("other", 1), -ENOSPC);
	CU_ASSERT_EQUAL(world_put(&w, found("other"), WORLD_SECTORS, 1, 7), 0);
	CU_ASSERT_EQUAL(snapshot("s", "other"), -ENOSPC);
	CU_ASSERT_EQUAL(snapshot("s", "v"), -ENOSPC);
	CU_ASSERT_EQUAL(reserve("other", 1), -ENOSPC);
	CU_ASSERT_EQUAL(resize("v", TABLES * TABLE + 1), -ENOSPC);
	CU_ASSERT_EQUAL(kept(), TABLES);
	reopen();
	eat(); /* what a smaller journal has left */
	for (uint64_t i = 0; i < TABLES; i++) {
		CU_ASSERT_EQUAL(put("v", i), 0);
		CU_ASSERT_EQUAL(kept(), TABLES - 1 - i);
		CU_ASSERT_EQUAL(put("other", 1), -ENOSPC);
	}
	reopen();
	world_free(&w);
}

/* Pages of places stay with a volume that gives its clusters up: it may write elsewhere all the same. */
static void test_a_small_reservation_writes_anywhere(void)
{
	begin(64);
	CU_ASSERT_EQUAL_FATAL(create("v", TABLES * TABLE, 1), 0);
	eat();
	for (uint64_t i = 0; i < TABLES; i++) {
		CU_ASSERT_EQUAL(put("v", i), 0);
		CU_ASSERT_EQUAL(give_up("v", i), 0);
	}
	CU_ASSERT_EQUAL(kept(), 0);
	reopen();
	world_free(&w);
}

static void test_what_changes_the_pages_that_are_kept(void)
{
	begin(96);
	uint32_t pages = free_pages();
	CU_ASSERT_EQUAL_FATAL(create("v", TABLES * TABLE, 0), 0);
	CU_ASSERT_EQUAL(put("v", 1), 0);
	CU_ASSERT_EQUAL(kept(), 0);
	CU_ASSERT_EQUAL(reserve("v", 3), 0);
	CU_ASSERT_EQUAL(kept(), TABLES - 1);
	CU_ASSERT_EQUAL(resize("v", 6 * TABLE - 1), 0);
	CU_ASSERT_EQUAL(kept(), 6 - 1);
	CU_ASSERT_EQUAL(resize("v", 3 * TABLE), 0);
	CU_ASSERT_EQUAL(kept(), 3 - 1);
	CU_ASSERT_EQUAL(snapshot("s", "v"), 0);
	CU_ASSERT_EQUAL(kept(), 3); /* its page is the snapshot's */
	CU_ASSERT_EQUAL(put("v", 0), 0);
	CU_ASSERT_EQUAL(kept(), 2);
	reopen();
	CU_ASSERT_EQUAL(delete ("s"), 0); /* and its own again */
	CU_ASSERT_EQUAL(kept(), 1);
	CU_ASSERT_EQUAL(reserve("v", 0), 0);
	CU_ASSERT_EQUAL(kept(), 0);
	CU_ASSERT_EQUAL(reserve("v", 1), 0);
	CU_ASSERT_EQUAL(kept(), 1);
	CU_ASSERT_EQUAL(resize("v", 0), 0); /* reserves nothing of nothing */
	CU_ASSERT_EQUAL(kept(), 0);
	CU_ASSERT_EQUAL_FATAL(create("w", 2 * TABLE, 2), 0);
	struct outcome o = {.done = false};
	lvol_live_volume_set_read_only(found("w"), outcome_done, &o);
	CU_ASSERT_EQUAL(world_wait(&w, &o), 0);
	CU_ASSERT_EQUAL(kept(), 0);
	CU_ASSERT_EQUAL_FATAL(create("x", 2 * TABLE, 2), 0);
	CU_ASSERT_EQUAL(kept(), 2);
	reopen();
	CU_ASSERT_TRUE(delete ("x") == 0 && delete ("w") == 0 && delete ("v") == 0);
	CU_ASSERT_EQUAL(kept(), 0);
	disk_run(&w.disk);
	world_close(&w);
	CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
	CU_ASSERT_EQUAL(free_pages(), pages);
	world_free(&w);
}

static void test_a_snapshot_needs_its_pages_once_more(void)
{
	begin(64);
	CU_ASSERT_EQUAL_FATAL(create("v", 3 * TABLE, 3), 0);
	CU_ASSERT_TRUE(put("v", 0) == 0 && put("v", 2) == 0);
	eat();
	CU_ASSERT_EQUAL(kept(), 1);
	/* A root page for the snapshot, and the two pages that it takes. */
	for (unsigned k = 0; k < 3; k++) {
		CU_ASSERT_EQUAL(snapshot("s", "v"), -ENOSPC);
		spare();
	}
	CU_ASSERT_EQUAL(snapshot("s", "v"), 0);
	CU_ASSERT_EQUAL(kept(), 3);
	CU_ASSERT_EQUAL(free_pages(), 3);
	for (uint64_t i = 0; i < 3; i++) {
		CU_ASSERT_EQUAL(put("v", i), 0);
	}
	reopen();
	world_free(&w);
}

/* Attributes of many pages are written anew with each page of places that is new. */
static void test_a_long_chain_is_written_anew(void)
{
	begin(64);
	CU_ASSERT_EQUAL_FATAL(create("v", TABLES * TABLE, 4), 0);
	CU_ASSERT_EQUAL(xattr("v", "a", 3000), 0);
	CU_ASSERT_EQUAL(xattr("v", "b", 3000), 0);
	uint64_t chain = found("v")->internal->meta.num_chain;
	CU_ASSERT_TRUE(chain >= 1);
	CU_ASSERT_EQUAL(kept(), TABLES + chain);
	eat();
	CU_ASSERT_EQUAL(xattr("v", "c", 3000), -ENOSPC);
	for (uint64_t i = 0; i < TABLES; i++) {
		CU_ASSERT_EQUAL(put("v", i), 0);
	}
	CU_ASSERT_EQUAL(kept(), 0);
	reopen();
	world_free(&w);
}

enum { PROMISED = 12 };

/* A volume with attributes of many pages and all of its tables, one of which has no places, nor has its snapshot's, if
 * there is one. Nobody gets a page any more, but those that another volume is promised are there while a batch is
 * written. */
static void begin_empty_table(bool with_snapshot)
{
	static const char *const attributes[] = {"a", "b", "c", "d", "e"};

	begin(256);
	CU_ASSERT_EQUAL_FATAL(create("promised", PROMISED * TABLE, 1), 0);
	CU_ASSERT_EQUAL_FATAL(create("v", TABLES * TABLE, 4), 0);
	for (size_t i = 0; i < ARRAY_SIZE(attributes); i++) {
		CU_ASSERT_EQUAL_FATAL(xattr("v", attributes[i], 3900), 0);
	}
	if (with_snapshot) {
		CU_ASSERT_TRUE(put("v", 0) == 0 && give_up("v", 0) == 0 && snapshot("s", "v") == 0);
	}
	for (uint64_t i = 0; i < TABLES; i++) {
		CU_ASSERT_EQUAL(put("v", i), 0);
	}
	CU_ASSERT_EQUAL(give_up("v", with_snapshot ? 0 : TABLES - 1), 0);
	CU_ASSERT_EQUAL(kept(), PROMISED);
	eat();
}

/* What an operator is told to do where pages are short: it takes none. */
static void test_a_snapshot_goes_where_pages_are_short(void)
{
	begin_empty_table(true);
	CU_ASSERT_EQUAL(delete ("s"), 0);
	CU_ASSERT_EQUAL(kept(), PROMISED);
	CU_ASSERT_EQUAL(put("v", 0), 0);
	reopen();
	world_free(&w);
}

/* The same of a volume that shrinks within its last table. */
static void test_a_volume_shrinks_where_pages_are_short(void)
{
	begin_empty_table(false);
	CU_ASSERT_EQUAL(resize("v", TABLES * TABLE - 1), 0);
	CU_ASSERT_EQUAL(kept(), PROMISED);
	CU_ASSERT_EQUAL(put("v", TABLES - 1), 0);
	reopen();
	world_free(&w);
}

/* ---- At once ---- */

/* First writes of both kinds in one batch: those without a promise fail, and only those. */
static void test_a_batch_of_both_kinds(void)
{
	static const char *const names[] = {"other", "v", "other", "v"};
	struct lvol_live_fill fills[4];
	struct outcome o[4];

	for (uint32_t seed = 1; seed <= 10; seed++) {
		begin(64);
		CU_ASSERT_EQUAL_FATAL(create("v", TABLES * TABLE, 5), 0);
		CU_ASSERT_EQUAL_FATAL(create("other", TABLES * TABLE, 0), 0);
		eat();
		w.disk.random = seed;
		w.disk.late = true;
		for (uint64_t i = 0; i < 4; i++) {
			o[i] = (struct outcome){.done = false};
			CU_ASSERT_EQUAL_FATAL(lvol_live_fill_claim(found(names[i]), i * TABLE, &fills[i]), 0);
			memset(w.disk.bytes + (uint64_t)fills[i].cluster * WORLD_CLUSTER, 0, WORLD_CLUSTER);
		}
		for (uint64_t i = 0; i < 4; i++) {
			lvol_live_fill_commit(&fills[i], outcome_done, &o[i]);
		}
		CU_ASSERT_EQUAL(lvol_live_info(w.store).missing_md_pages, 0); /* with pages that are being written */
		for (uint64_t i = 0; i < 4; i++) {
			CU_ASSERT_EQUAL(world_wait(&w, &o[i]), i % 2 == 0 ? -ENOSPC : 0);
		}
		CU_ASSERT_EQUAL(kept(), TABLES - 2);
		w.disk.late = false;
		disk_run(&w.disk);
		reopen();
		world_free(&w);
	}
}

enum { MANY = 64 };

struct many {
	struct lvol_live_fill fills[MANY + 1];
	struct outcome o[MANY + 1];
};

static void fill_begin(struct many *m, unsigned i, const char *name, uint64_t n)
{
	m->o[i] = (struct outcome){.done = false};
	CU_ASSERT_EQUAL_FATAL(lvol_live_fill_claim(found(name), n, &m->fills[i]), 0);
	memset(w.disk.bytes + (uint64_t)m->fills[i].cluster * WORLD_CLUSTER, 0, WORLD_CLUSTER);
}

/* Commits those that have begun, and one more before the last half. Returns how many commits that took. */
static uint64_t fills_commit(struct many *m, unsigned num, int other)
{
	uint64_t before = lvol_live_info(w.store).commits;

	w.disk.late = true;
	for (unsigned i = 0; i < num; i++) {
		if (i == num / 2) {
			lvol_live_fill_commit(&m->fills[MANY], outcome_done, &m->o[MANY]);
		}
		lvol_live_fill_commit(&m->fills[i], outcome_done, &m->o[i]);
	}
	for (unsigned i = 0; i < num; i++) {
		CU_ASSERT_EQUAL(world_wait(&w, &m->o[i]), 0);
	}
	CU_ASSERT_EQUAL(world_wait(&w, &m->o[MANY]), other);
	w.disk.late = false;
	disk_run(&w.disk);
	return lvol_live_info(w.store).commits - before;
}

/* One that is refused, again and again, costs the others no commit: theirs are in as few batches as without it. */
static void test_who_is_refused_slows_nobody_down(void)
{
	static struct many m;

	begin(MANY + 64);
	CU_ASSERT_EQUAL_FATAL(create("v", TABLES * TABLE, 5), 0);
	CU_ASSERT_EQUAL_FATAL(create("other", TABLES * TABLE, 0), 0);
	eat();
	uint32_t clusters = lvol_live_info(w.store).free_clusters;
	for (uint64_t round = 0; round < 2; round++) {
		for (unsigned i = 0; i < MANY / 2; i++) {
			fill_begin(&m, i, "v", i % TABLES * TABLE + i / TABLES + round * MANY);
		}
		fill_begin(&m, MANY, "other", 0);
		CU_ASSERT_TRUE(fills_commit(&m, MANY / 2, -ENOSPC) <= 2); /* the first one begins a batch at once */
		CU_ASSERT_EQUAL(kept(), 0);
	}
	/* By itself: there is nothing to commit. */
	uint64_t commits = lvol_live_info(w.store).commits;
	CU_ASSERT_EQUAL(put("other", 0), -ENOSPC);
	CU_ASSERT_EQUAL(lvol_live_info(w.store).commits, commits);
	CU_ASSERT_EQUAL(lvol_live_info(w.store).free_clusters, clusters - MANY);
	reopen();
	world_free(&w);
}

/* The last free pages: those get them for whom there are enough, also where a chain is there twice for a moment. */
static void test_the_last_pages_are_given_away(void)
{
	static struct many m;

	for (unsigned pages = 0; pages < 8; pages++) {
		begin(MANY + 64);
		CU_ASSERT_EQUAL_FATAL(create("v", TABLES * TABLE, 5), 0);
		CU_ASSERT_EQUAL_FATAL(create("other", TABLES * TABLE, 0), 0);
		CU_ASSERT_TRUE(xattr("v", "a", 3900) == 0 && xattr("other", "a", 3900) == 0);
		CU_ASSERT_TRUE(xattr("other", "b", 3900) == 0 && xattr("other", "c", 3900) == 0);
		CU_ASSERT_TRUE(found("other")->internal->meta.num_chain > 1);
		eat();
		for (unsigned i = 0; i < pages; i++) {
			spare();
		}
		for (unsigned i = 0; i < TABLES; i++) {
			fill_begin(&m, 0, "v", 1 + i); /* a batch is under way while the others come */
			fill_begin(&m, 1, "v", i * TABLE + TABLE / 2);
			fill_begin(&m, MANY, "other", i * TABLE);
			CU_ASSERT_TRUE(fills_commit(&m, 2, pages > i ? 0 : -ENOSPC) <= 3);
			CU_ASSERT_EQUAL(kept(), i < TABLES - 1 ? TABLES - 1 - i + 1 : 0); /* 1: its chain */
		}
		CU_ASSERT_EQUAL(w.store->single_parts, 0);
		reopen();
		world_free(&w);
	}
}

/* Nobody is promised any, but the new chain must be written before the old one is free. */
static void test_a_chain_is_there_twice_for_a_moment(void)
{
	begin(64);
	CU_ASSERT_EQUAL_FATAL(create("other", TABLES * TABLE, 0), 0);
	CU_ASSERT_TRUE(xattr("other", "a", 3900) == 0 && xattr("other", "b", 3900) == 0);
	uint64_t chain = found("other")->internal->meta.num_chain;
	eat();
	for (uint64_t i = 0; i <= chain; i++) {
		CU_ASSERT_EQUAL(put("other", 0), -ENOSPC);
		spare();
	}
	CU_ASSERT_EQUAL(put("other", 0), 0);
	CU_ASSERT_EQUAL(free_pages(), chain);
	CU_ASSERT_EQUAL(w.store->single_parts, 0);
	reopen();
	world_free(&w);
}

/* Each of its operations fails once: then nothing is promised that is not there, and nothing is forgotten. */
static void test_a_batch_that_fails_keeps_what_it_kept(void)
{
	for (long k = 0; k < 12; k++) {
		begin(64);
		CU_ASSERT_EQUAL_FATAL(create("v", TABLES * TABLE, 5), 0);
		disk_run(&w.disk);
		w.disk.fail_in = k / 2;
		w.disk.fail_status = -EIO;
		int rc = k % 2 == 0 ? put("v", 1) : resize("v", (TABLES + 1) * TABLE);
		bool failed = lvol_live_info(w.store).failed;
		w.disk.fail_in = -1;
		CU_ASSERT_TRUE(rc == 0 || rc == -EIO);
		CU_ASSERT_TRUE(kept() == TABLES || kept() == (k % 2 == 0 ? TABLES - 1 : TABLES + 1));
		CU_ASSERT_EQUAL(lvol_live_info(w.store).missing_md_pages, 0);
		if (!failed) {
			world_count(&w);
		}
		world_forget(&w);
		CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
		world_count(&w);
		world_free(&w);
	}
}

/* ---- Opening ---- */

/* A journal finds its place anew with each open, and leaves what is kept. */
static void test_the_journal_leaves_what_is_kept(void)
{
	begin(256);
	uint32_t pages = free_pages();
	unsigned slots = w.store->geometry.journal_slot_pages;
	CU_ASSERT_TRUE(slots > LVOL_JOURNAL_SLOT_MIN);
	CU_ASSERT_EQUAL_FATAL(create("v", (uint64_t)(pages - 1) * TABLE, 1), 0);
	CU_ASSERT_EQUAL(kept(), pages - 1);
	CU_ASSERT_EQUAL(free_pages(), pages - 1);
	for (int k = 0; k < 3; k++) {
		reopen();
		CU_ASSERT_TRUE(w.store->geometry.journal_slot_pages < slots);
	}
	world_free(&w);
}

/* A program that does not know of reservations has taken the pages: who was promised some gets what there is, and
 * whatever takes none goes on. */
static void test_pages_that_another_program_has_taken(void)
{
	uint8_t value[LVOL_RESERVE_BYTES];

	begin(64);
	CU_ASSERT_EQUAL_FATAL(create("v", TABLES * TABLE, 0), 0);
	CU_ASSERT_EQUAL_FATAL(create("other", TABLES * TABLE, 0), 0);
	CU_ASSERT_EQUAL(put("other", 0), 0);
	eat();
	/* As it was written before pages were kept. */
	lvol_reserve_encode(5, value);
	CU_ASSERT_EQUAL_FATAL(
		live_xattr_set(&found("v")->internal->meta, LVOL_DESC_XATTR, LVOL_RESERVE_XATTR, value, sizeof(value)),
		0);
	CU_ASSERT_EQUAL_FATAL(xattr("v", "any", 1), 0);
	spare();
	disk_run(&w.disk);
	world_forget(&w);
	world_expect_problem(
		&w,
		"may need 4 metadata pages more, 1 are free: another program, or an older varve, has filled the store");
	CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
	CU_ASSERT_EQUAL(kept(), TABLES);
	CU_ASSERT_EQUAL(free_pages(), 1);
	CU_ASSERT_EQUAL(lvol_live_info(w.store).missing_md_pages, TABLES - 1);
	CU_ASSERT_EQUAL(put("other", 1), -ENOSPC);
	CU_ASSERT_EQUAL(create("new", 1, 0), -ENOSPC);
	CU_ASSERT_EQUAL(world_put(&w, found("other"), WORLD_SECTORS, 1, 7), 0);
	CU_ASSERT_EQUAL(xattr("other", "any", 1), 0);
	CU_ASSERT_EQUAL(put("v", 3), 0);
	CU_ASSERT_EQUAL(put("v", 2), -ENOSPC);
	/* What comes free is for it. */
	spare();
	CU_ASSERT_EQUAL(put("other", 1), -ENOSPC);
	CU_ASSERT_EQUAL(put("v", 2), 0);
	CU_ASSERT_EQUAL(lvol_live_info(w.store).missing_md_pages, 2);
	CU_ASSERT_EQUAL(reserve("v", 0), 0);
	CU_ASSERT_EQUAL(kept(), 0);
	reopen();
	world_expect_problem(&w, NULL);
	world_free(&w);
}

static const struct unit_test tests[] = {
	UNIT(test_what_a_volume_needs),
	UNIT(test_the_longest_chain_is_known),
	UNIT(test_a_first_write_finds_a_page),
	UNIT(test_a_small_reservation_writes_anywhere),
	UNIT(test_what_changes_the_pages_that_are_kept),
	UNIT(test_a_snapshot_needs_its_pages_once_more),
	UNIT(test_a_long_chain_is_written_anew),
	UNIT(test_a_snapshot_goes_where_pages_are_short),
	UNIT(test_a_volume_shrinks_where_pages_are_short),
	UNIT(test_a_batch_of_both_kinds),
	UNIT(test_who_is_refused_slows_nobody_down),
	UNIT(test_the_last_pages_are_given_away),
	UNIT(test_a_chain_is_there_twice_for_a_moment),
	UNIT(test_a_batch_that_fails_keeps_what_it_kept),
	UNIT(test_the_journal_leaves_what_is_kept),
	UNIT(test_pages_that_another_program_has_taken),
	UNIT_END,
};
UNIT_MAIN("lvol_live_pages", tests, NULL, NULL)
