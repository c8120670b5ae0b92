/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine on a disk in memory: each operation does what it says, and is there or not after a crash at any point. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lvol/live_internal.h"
#include "unittest/lvol/world.h"
#include "unittest/unit.h"

static struct world w, crashed;
static struct lvol_error error;

static void expect_equal(void)
{
	const char *what = world_differs(&w, &w.model, NULL);

	CU_ASSERT_PTR_NULL(what);
	if (what != NULL) {
		printf("differs: %s\n", what);
	}
	world_count(&w);
}

/* Closes the store, opens it again, and expects what was there. */
static void expect_kept(void)
{
	expect_equal();
	world_close(&w);
	CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
	CU_ASSERT_FALSE(lvol_live_info(w.store).recovered);
	expect_equal();
}

static void test_a_new_store_is_empty(void)
{
	world_create(&w, 32);
	struct lvol_live_info i = lvol_live_info(w.store);
	CU_ASSERT_STRING_EQUAL(i.name, "s");
	CU_ASSERT_STRING_EQUAL(i.uuid, "00000000-0000-0000-0000-0000000000ff");
	CU_ASSERT_EQUAL(i.cluster_bytes, WORLD_CLUSTER);
	CU_ASSERT_EQUAL(i.num_volumes, 0);
	CU_ASSERT_EQUAL(i.free_clusters, i.total_data_clusters);
	expect_kept();
	world_free(&w);
}

static void test_bad_options_are_refused(void)
{
	static const struct {
		struct lvol_live_create_opts opts;
		uint32_t clusters;
	} bad[] = {
		{{.name = "", .uuid = "u", .cluster_bytes = 65536}, 32},
		{{.name = "a", .uuid = "", .cluster_bytes = 65536}, 32},
		{{.name = "a\nb", .uuid = "u", .cluster_bytes = 65536}, 32}, /* the next open would refuse these */
		{{.name = "a", .uuid = "u\177", .cluster_bytes = 65536}, 32},
		{{.name = "a", .uuid = "u", .cluster_bytes = 32768}, 32},
		{{.name = "a", .uuid = "u", .cluster_bytes = 65536 * 3}, 32},
		{{.name = "a", .uuid = "u"}, 32}, /* 4 MiB */
		{{.name = "a", .uuid = "u", .cluster_bytes = 65536}, 2},
	};

	for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++) {
		world_create(&w, 32);
		world_close(&w);
		struct lvol_live_user user = disk_user(&w.disk);
		user.size_bytes = (uint64_t)bad[k].clusters * WORLD_CLUSTER;
		struct outcome o = {.done = false};
		size_t log = w.disk.num_log;
		lvol_live_create(&user, &bad[k].opts, outcome_opened, &o);
		CU_ASSERT_TRUE(o.done && o.status == -EINVAL && o.error.text[0] != 0);
		CU_ASSERT_EQUAL(w.disk.num_log, log);
		CU_ASSERT_EQUAL(world_open(&w, &error), 0);
		world_free(&w);
	}
}

static void test_thin_volumes_take_clusters_when_they_are_written(void)
{
	world_create(&w, 32);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 10, true), 0);
	uint32_t free_clusters = lvol_live_free_clusters(w.store);
	CU_ASSERT_EQUAL(world_write(&w, 0, 5, 1), 0);
	CU_ASSERT_EQUAL(lvol_live_free_clusters(w.store), free_clusters - 1);
	CU_ASSERT_EQUAL(world_write(&w, 0, 6, 1), 0);
	CU_ASSERT_EQUAL(lvol_live_free_clusters(w.store), free_clusters - 1);
	CU_ASSERT_EQUAL(world_write(&w, 0, 3 * WORLD_SECTORS - 2, 5), 0);
	CU_ASSERT_EQUAL(world_volume(&w, 0)->num_own, 3);
	expect_kept();
	world_free(&w);
}

static void test_thick_volumes_are_zeroes(void)
{
	world_create(&w, 32);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 10, false), 0);
	CU_ASSERT_EQUAL(world_volume(&w, 0)->num_own, 10);
	CU_ASSERT_EQUAL(world_write(&w, 0, 100, 200), 0);
	CU_ASSERT_EQUAL(world_volume_create(&w, 1, 12, false), 0);
	CU_ASSERT_EQUAL(world_volume_create(&w, 2, 12, false), -ENOSPC);
	expect_kept();
	CU_ASSERT_EQUAL(world_delete(&w, 0), 0);
	CU_ASSERT_EQUAL(world_volume_create(&w, 2, 11, false), 0);
	expect_kept();
	world_free(&w);
}

static void test_snapshots_and_clones(void)
{
	world_create(&w, 48);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 6, false), 0);
	CU_ASSERT_EQUAL(world_write(&w, 0, 0, 300), 0);
	CU_ASSERT_EQUAL_FATAL(world_snapshot(&w, 0, 1), 0);
	CU_ASSERT_EQUAL(world_volume(&w, 0)->num_own, 0);
	CU_ASSERT_EQUAL(world_volume(&w, 1)->num_own, 6);
	CU_ASSERT_EQUAL(world_write(&w, 0, 130, 2), 0);
	CU_ASSERT_EQUAL_FATAL(world_clone(&w, 1, 2), 0);
	CU_ASSERT_EQUAL(world_write(&w, 2, 500, 100), 0);
	CU_ASSERT_EQUAL_FATAL(world_snapshot(&w, 2, 3), 0);
	CU_ASSERT_EQUAL(world_write(&w, 2, 0, 10), 0);
	expect_kept();
	CU_ASSERT_EQUAL(world_delete(&w, 1), -EBUSY);
	CU_ASSERT_EQUAL(world_delete(&w, 0), 0);
	CU_ASSERT_EQUAL(world_delete(&w, 1), 0); /* its clusters are those of v3 now */
	expect_kept();
	CU_ASSERT_EQUAL(world_volume(&w, 3)->num_own, 6);
	CU_ASSERT_EQUAL(world_write(&w, 3, 0, 1), -EPERM);
	CU_ASSERT_EQUAL(world_delete(&w, 3), 0);
	CU_ASSERT_EQUAL(world_delete(&w, 2), 0);
	expect_kept();
	CU_ASSERT_EQUAL(lvol_live_free_clusters(w.store), lvol_live_info(w.store).total_data_clusters);
	world_free(&w);
}

static void test_sizes_change(void)
{
	world_create(&w, 64);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 4, true), 0);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 1, 4, false), 0);
	CU_ASSERT_EQUAL(world_write(&w, 0, 0, 4 * WORLD_SECTORS), 0);
	CU_ASSERT_EQUAL(world_write(&w, 1, 0, 4 * WORLD_SECTORS), 0);
	for (uint64_t size = 1; size <= WORLD_CLUSTERS; size += 3) {
		CU_ASSERT_EQUAL(world_resize(&w, 0, size), 0);
		CU_ASSERT_EQUAL(world_resize(&w, 1, WORLD_CLUSTERS + 1 - size), 0);
		expect_kept();
	}
	CU_ASSERT_EQUAL(world_resize(&w, 0, 0), 0);
	CU_ASSERT_EQUAL(world_resize(&w, 0, 0), 0);
	expect_kept();
	CU_ASSERT_EQUAL(world_read_only(&w, 0), 0);
	CU_ASSERT_EQUAL(world_resize(&w, 0, 1), -EPERM);
	expect_kept();
	world_free(&w);
}

static void test_unmapped_clusters_come_free(void)
{
	world_create(&w, 48);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 8, true), 0);
	CU_ASSERT_EQUAL(world_write(&w, 0, 0, 5 * WORLD_SECTORS), 0);
	CU_ASSERT_EQUAL(world_unmap(&w, 0, 1, 6), 0);
	CU_ASSERT_EQUAL(world_volume(&w, 0)->num_own, 1);
	expect_kept();
	CU_ASSERT_EQUAL_FATAL(world_snapshot(&w, 0, 1), 0);
	CU_ASSERT_EQUAL(world_write(&w, 0, WORLD_SECTORS, 1), 0);
	CU_ASSERT_EQUAL(world_unmap(&w, 0, 0, 2), 0);
	CU_ASSERT_EQUAL(world_volume(&w, 0)->num_own, 1); /* zeroes over what the snapshot has */
	expect_kept();
	world_free(&w);
}

static void test_names(void)
{
	struct outcome o = {.done = false};

	world_create(&w, 48);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 1, true), 0);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 1, 1, true), 0);
	CU_ASSERT_EQUAL(world_rename(&w, 0, "v1"), -EEXIST);
	CU_ASSERT_EQUAL(world_rename(&w, 0, ""), -EINVAL);
	CU_ASSERT_EQUAL(world_rename(&w, 0, "a new name"), 0);
	CU_ASSERT_EQUAL(world_rename(&w, 0, "a new name"), 0);
	CU_ASSERT_EQUAL(world_volume_create(&w, 1, 1, true), -EEXIST);
	lvol_live_rename_store(w.store, "store2", outcome_done, &o);
	CU_ASSERT_EQUAL(world_wait(&w, &o), 0);
	strcpy(w.model.name, "store2");
	expect_kept();
	world_free(&w);
}

/* What the next open would take for damage is not written. */
static void test_texts_are_those_that_an_open_takes(void)
{
	static const struct lvol_live_volume_opts bad[] = {
		{.name = "a\tb", .uuid = "u", .thin = true},     {.name = "a", .uuid = "u\n", .thin = true},
		{.name = "a", .uuid = "\303\244", .thin = true}, {.name = "a", .uuid = "u", .external = "e\033"},
		{.name = "a", .uuid = "u", .external = ""},
	};

	world_create(&w, 48);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 1, true), 0);
	for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++) {
		struct outcome o = {.done = false};
		lvol_live_volume_create(w.store, &bad[k], outcome_volume, &o);
		CU_ASSERT_EQUAL(world_wait(&w, &o), -EINVAL);
	}
	struct outcome o = {.done = false};
	lvol_live_volume_set_parent_external(world_volume(&w, 0), "e\n", outcome_done, &o);
	CU_ASSERT_EQUAL(world_wait(&w, &o), -EINVAL);
	o.done = false;
	lvol_live_volume_snapshot(world_volume(&w, 0), "s", "u\r", outcome_volume, &o);
	CU_ASSERT_EQUAL(world_wait(&w, &o), -EINVAL);
	expect_kept();
	world_free(&w);
}

static int xattr_set(const char *name, const void *value, uint16_t bytes)
{
	struct outcome o = {.done = false};

	lvol_live_volume_xattr_set(world_volume(&w, 0), name, value, bytes, outcome_done, &o);
	return world_wait(&w, &o);
}

static void test_attributes_of_many_pages(void)
{
	static uint8_t value[5000];
	uint16_t bytes;

	world_create(&w, 48);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 3, true), 0);
	uint32_t pages = lvol_live_info(w.store).free_md_pages;
	memset(value, 7, sizeof(value));
	CU_ASSERT_EQUAL(xattr_set("a", value, 3000), 0);
	CU_ASSERT_EQUAL(xattr_set("b", value, 3000), 0);
	CU_ASSERT_EQUAL(xattr_set("c", "x", 1), 0);
	CU_ASSERT_EQUAL(xattr_set("b", value, 2000), 0);
	CU_ASSERT_EQUAL(xattr_set("d", value, 5000), -ENOSPC);
	CU_ASSERT_EQUAL(xattr_set("name", value, 1), -EINVAL);
	CU_ASSERT_EQUAL(xattr_set("e", NULL, 0), -ENOENT);
	CU_ASSERT_EQUAL(world_write(&w, 0, 1, 1), 0);
	expect_kept();
	const uint8_t *b = lvol_live_volume_xattr(world_volume(&w, 0), "b", &bytes);
	CU_ASSERT_TRUE(bytes == 2000 && b != NULL && memcmp(b, value, bytes) == 0);
	CU_ASSERT_EQUAL(xattr_set("a", NULL, 0), 0);
	CU_ASSERT_EQUAL(xattr_set("b", NULL, 0), 0);
	expect_kept();
	CU_ASSERT_PTR_NULL(lvol_live_volume_xattr(world_volume(&w, 0), "b", &bytes));
	CU_ASSERT_EQUAL(lvol_live_info(w.store).free_md_pages, pages - 1); /* where its cluster is */
	world_free(&w);
}

enum { CHAIN = 400, CHAIN_CLUSTERS = 4 };

static int chain_snapshot(unsigned n)
{
	struct outcome o = {.done = false};
	char name[16], uuid[LVOL_UUID_TEXT];

	snprintf(name, sizeof(name), "s%u", n);
	snprintf(uuid, sizeof(uuid), "00000000-0000-0000-0001-%012u", n);
	lvol_live_volume_snapshot(world_volume(&w, 0), name, uuid, outcome_volume, &o);
	return world_wait(&w, &o);
}

/* A store with room for the metadata of a long chain. */
static void chain_begin(void)
{
	struct lvol_live_create_opts opts = {.name = "s",
					     .uuid = "00000000-0000-0000-0000-0000000000ff",
					     .cluster_bytes = WORLD_CLUSTER,
					     .md_ratio = 1000};
	struct outcome o = {.done = false};

	world_create(&w, 128);
	world_forget(&w);
	struct lvol_live_user user = disk_user(&w.disk);
	lvol_live_create(&user, &opts, outcome_opened, &o);
	CU_ASSERT_EQUAL_FATAL(world_wait(&w, &o), 0);
	w.store = o.store;
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, CHAIN_CLUSTERS, true), 0);
}

/* The steps are counted, because time says nothing on a busy machine. */
static void test_an_open_is_linear_in_the_depth_of_snapshots(void)
{
	chain_begin();
	for (unsigned i = 0; i < CHAIN; i++) {
		CU_ASSERT_EQUAL_FATAL(chain_snapshot(i), 0);
		CU_ASSERT_EQUAL(i % 100 == 0 ? world_write(&w, 0, i % 3 * WORLD_SECTORS + i / 100, 1) : 0, 0);
	}
	world_close(&w);
	CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
	/* Two searches, and the map of each volume but the last one's snapshot. */
	CU_ASSERT_EQUAL(lvol_live_info(w.store).num_volumes, CHAIN + 1);
	CU_ASSERT_EQUAL(lvol_live_info(w.store).opening_steps, 2 * (CHAIN + 1) + CHAIN * CHAIN_CLUSTERS);
	struct lvol_live_volume *v = world_volume(&w, 0);
	unsigned depth = 0;
	for (const struct lvol_live_volume *p = v->parent; p != NULL; p = p->parent) {
		depth++;
		CU_ASSERT_EQUAL(p->num_clones, 1);
	}
	CU_ASSERT_EQUAL(depth, CHAIN);
	for (uint64_t k = 0; k < 3 * WORLD_SECTORS; k++) {
		CU_ASSERT_EQUAL(world_get(&w, v, k), w.model.volumes[0].sectors[k]);
	}
	world_count(&w);
	world_free(&w);
}

/* 256 metadata pages, of which few are in use. */
static void test_an_open_after_a_crash_reads_what_is_in_use(void)
{
	world_create(&w, 256);
	for (int i = 0; i < 4; i++) {
		CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, i, 6, true), 0);
		CU_ASSERT_EQUAL_FATAL(world_write(&w, i, 10, 5), 0);
	}
	for (unsigned i = 0; i < 2; i++) { /* the second time no batch was written since the open */
		const struct lvol_geometry g = w.store->geometry;
		uint64_t journal = (uint64_t)LVOL_JOURNAL_SLOTS * g.journal_slot_pages, used = 2 * 4 + 1;
		CU_ASSERT_TRUE(journal + 2 * used < g.md.pages / 2);
		world_forget(&w);
		w.disk.owner.pid = 0;
		w.disk.bytes_read = 0;
		CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
		CU_ASSERT_TRUE(lvol_live_info(w.store).recovered);
		uint64_t pages = w.disk.bytes_read / LVOL_PAGE_BYTES;
		CU_ASSERT_TRUE(pages >= 1 + journal + used && pages <= 1 + journal + 2 * used);
		expect_equal();
	}
	world_free(&w);
}

static void test_inflate_and_decouple(void)
{
	world_create(&w, 64);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 6, true), 0);
	CU_ASSERT_EQUAL(world_write(&w, 0, 0, 200), 0);
	CU_ASSERT_EQUAL_FATAL(world_snapshot(&w, 0, 1), 0);
	CU_ASSERT_EQUAL(world_write(&w, 0, 400, 1), 0);
	CU_ASSERT_EQUAL_FATAL(world_snapshot(&w, 0, 2), 0);
	CU_ASSERT_EQUAL_FATAL(world_clone(&w, 2, 3), 0);
	CU_ASSERT_EQUAL(world_inflate(&w, 0, false), 0);
	CU_ASSERT_EQUAL(world_volume(&w, 0)->num_own, 1);
	CU_ASSERT_STRING_EQUAL(world_volume(&w, 0)->parent->name, "v1");
	expect_kept();
	CU_ASSERT_EQUAL(world_inflate(&w, 3, true), 0);
	CU_ASSERT_TRUE(world_volume(&w, 3)->num_own == 6 && !world_volume(&w, 3)->thin);
	expect_kept();
	CU_ASSERT_EQUAL(world_inflate(&w, 3, false), -EINVAL);
	CU_ASSERT_EQUAL(world_inflate(&w, 0, false), 0);
	CU_ASSERT_PTR_NULL(world_volume(&w, 0)->parent);
	CU_ASSERT_TRUE(world_volume(&w, 0)->thin);
	expect_kept();
	world_free(&w);
}

/* ---- What may be done ---- */

static void test_what_may_be_deleted(void)
{
	world_create(&w, 64);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 4, true), 0);
	CU_ASSERT_EQUAL_FATAL(world_snapshot(&w, 0, 1), 0);
	CU_ASSERT_EQUAL(lvol_live_volume_may_delete(world_volume(&w, 0)), 0);
	CU_ASSERT_EQUAL(lvol_live_volume_may_delete(world_volume(&w, 1)), 0);
	CU_ASSERT_EQUAL_FATAL(world_clone(&w, 1, 2), 0);
	CU_ASSERT_EQUAL(lvol_live_volume_may_delete(world_volume(&w, 1)), -EBUSY);
	CU_ASSERT_EQUAL(world_delete(&w, 1), -EBUSY);
	CU_ASSERT_EQUAL(world_delete(&w, 2), 0);
	CU_ASSERT_EQUAL(lvol_live_volume_may_delete(world_volume(&w, 1)), 0);
	struct outcome o = {.done = false};
	w.disk.late = true;
	lvol_live_volume_inflate(world_volume(&w, 0), outcome_done, &o);
	CU_ASSERT_EQUAL(lvol_live_volume_may_delete(world_volume(&w, 0)), -EBUSY);
	CU_ASSERT_EQUAL(lvol_live_volume_may_delete(world_volume(&w, 1)), -EBUSY);
	CU_ASSERT_EQUAL(world_wait(&w, &o), 0);
	CU_ASSERT_EQUAL(lvol_live_volume_may_delete(world_volume(&w, 0)), 0);
	CU_ASSERT_EQUAL(world_delete(&w, 0), 0);
	world_free(&w);
}

/* Closes the store, lets a program of the future forbid changes of a volume's metadata, and opens it again. */
static void forbid_changes(int i)
{
	uint64_t id = world_volume(&w, i)->id;
	const uint64_t future = 1ull << 40;

	world_close(&w);
	const struct lvol_super *super = (const struct lvol_super *)w.disk.bytes;
	struct lvol_md_page *p =
		(struct lvol_md_page *)(w.disk.bytes + (super->md_first + (uint64_t)(uint32_t)id) * LVOL_PAGE_BYTES);
	CU_ASSERT_TRUE_FATAL(p->id == id && p->descriptors[0] == LVOL_DESC_FLAGS);
	memcpy(p->descriptors + sizeof(struct lvol_desc_head) + offsetof(struct lvol_desc_flags, md_ro), &future,
	       sizeof(future));
	p->crc = lvol_crc(p);
	CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
}

/* Of such a volume nothing changes, nor of the one whose metadata would change with it. */
static void test_what_a_program_of_the_future_forbids(void)
{
	struct outcome o = {.done = false};

	world_create(&w, 64);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 4, true), 0);
	CU_ASSERT_EQUAL_FATAL(world_write(&w, 0, 0, 300), 0);
	CU_ASSERT_EQUAL_FATAL(world_snapshot(&w, 0, 1), 0);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 2, 4, true), 0);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 3, 4, true), 0);
	forbid_changes(0);
	CU_ASSERT_TRUE(world_volume(&w, 0)->read_only);
	CU_ASSERT_EQUAL(world_delete(&w, 0), -EPERM);
	CU_ASSERT_EQUAL(world_delete(&w, 1), -EPERM); /* it would have its clusters */
	CU_ASSERT_EQUAL(world_rename(&w, 0, "x"), -EPERM);
	/* It does not say that it is a snapshot: a store with a clone of it could not be opened again. */
	CU_ASSERT_EQUAL(world_clone(&w, 0, 4), -EPERM);
	lvol_live_volume_set_parent(world_volume(&w, 2), world_volume(&w, 0), outcome_done, &o);
	CU_ASSERT_EQUAL(world_wait(&w, &o), -EPERM);
	CU_ASSERT_EQUAL(world_delete(&w, 3), 0);
	world_close(&w);
	CU_ASSERT_EQUAL(world_open(&w, &error), 0);
	world_free(&w);
}

/* ---- A full store ---- */

static void test_a_full_store_serves_what_is_there(void)
{
	world_create(&w, 24);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 12, true), 0);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 1, 12, true), 0);
	CU_ASSERT_EQUAL(world_write(&w, 0, 0, 12 * WORLD_SECTORS), 0);
	uint32_t left = lvol_live_free_clusters(w.store);
	CU_ASSERT_TRUE_FATAL(left < 12);
	CU_ASSERT_EQUAL(world_write(&w, 1, 0, left * WORLD_SECTORS), 0);
	CU_ASSERT_EQUAL(world_write(&w, 1, (uint64_t)left * WORLD_SECTORS, 1), -ENOSPC);
	CU_ASSERT_EQUAL(world_write(&w, 1, 3, 9), 0);
	expect_kept();
	CU_ASSERT_EQUAL(world_unmap(&w, 0, 0, 1), 0);
	disk_run(&w.disk);
	CU_ASSERT_EQUAL(world_write(&w, 1, (uint64_t)left * WORLD_SECTORS, 1), 0);
	expect_kept();
	world_free(&w);
}

static void test_metadata_pages_may_run_out(void)
{
	int n = 0, rc = 0;

	world_create(&w, 24);
	for (; n < WORLD_VOLUMES && rc == 0; n++) {
		rc = world_volume_create(&w, n, 1, true);
		rc = rc != 0 ? rc : world_write(&w, n, 0, 1);
	}
	CU_ASSERT_EQUAL(rc, -ENOSPC);
	expect_kept();
	CU_ASSERT_EQUAL(world_delete(&w, 0), 0);
	CU_ASSERT_EQUAL(world_volume_create(&w, 0, 1, true), 0);
	CU_ASSERT_EQUAL(world_write(&w, 0, 0, 1), 0);
	expect_kept();
	world_free(&w);
}

/* ---- Crashes ---- */

static int do_create_thin(void)
{
	return world_volume_create(&w, 8, 7, true);
}

static int do_create_thick(void)
{
	return world_volume_create(&w, 8, 7, false);
}

static int do_write_first(void)
{
	return world_write(&w, 0, 5 * WORLD_SECTORS - 3, 6);
}

static int do_write_again(void)
{
	return world_write(&w, 0, 10, 20);
}

static int do_write_clone(void)
{
	return world_write(&w, 2, 10, 20);
}

static int do_unmap(void)
{
	return world_unmap(&w, 3, 0, 4);
}

static int do_snapshot(void)
{
	return world_snapshot(&w, 2, 8);
}

static int do_clone(void)
{
	return world_clone(&w, 1, 8);
}

static int do_delete_volume(void)
{
	return world_delete(&w, 3);
}

static int do_delete_snapshot(void)
{
	return world_delete(&w, 4);
}

static int do_grow_thick(void)
{
	return world_resize(&w, 6, 8);
}

static int do_shrink(void)
{
	return world_resize(&w, 3, 2);
}

static int do_rename(void)
{
	return world_rename(&w, 3, "another");
}

static int do_read_only(void)
{
	return world_read_only(&w, 3);
}

static int do_inflate(void)
{
	return world_inflate(&w, 2, true);
}

static int do_decouple(void)
{
	return world_inflate(&w, 2, false);
}

static int do_store_rename(void)
{
	struct outcome o = {.done = false};

	lvol_live_rename_store(w.store, "other", outcome_done, &o);
	strcpy(w.model.name, "other");
	return world_wait(&w, &o);
}

static int do_threshold(void)
{
	return world_threshold(&w, 70);
}

static int do_create_reserved(void)
{
	return world_create_reserved(&w, 8, 7, true, 5);
}

static int do_reserve(void)
{
	return world_reserve(&w, 0, 6);
}

static int do_reserve_nothing(void)
{
	return world_reserve(&w, 2, 0);
}

/* An attribute that needs another page, of a volume with a reservation. */
static int do_xattr(void)
{
	static const uint8_t value[3900];
	struct outcome o = {.done = false};

	lvol_live_volume_xattr_set(world_volume(&w, 3), "long", value, sizeof(value), outcome_done, &o);
	return world_wait(&w, &o);
}

/* v3 becomes a clone of v4, which has other data: what v3 has not itself is read there. */
static int do_set_parent(void)
{
	struct lvol_live_volume *v = world_volume(&w, 3);
	struct model_volume *m = &w.model.volumes[3];
	struct outcome o = {.done = false};

	for (uint64_t k = 0; k < m->clusters * WORLD_SECTORS; k++) {
		bool own = (lvol_live_entry(v, k / WORLD_SECTORS) & LVOL_LIVE_OWN) != 0;
		m->sectors[k] = own ? m->sectors[k] : w.model.volumes[4].sectors[k];
	}
	m->parent = 4;
	lvol_live_volume_set_parent(v, world_volume(&w, 4), outcome_done, &o);
	return world_wait(&w, &o);
}

/* The device has twice the size. */
static int do_grow_store(void)
{
	struct outcome o = {.done = false};
	uint8_t **halves[] = {&w.disk.bytes, &w.disk.before};

	for (size_t i = 0; i < 2; i++) {
		uint8_t *larger = calloc(2, w.disk.size);
		memcpy(larger, *halves[i], w.disk.size);
		free(*halves[i]);
		*halves[i] = larger;
	}
	w.disk.size *= 2;
	uint32_t clusters = lvol_live_info(w.store).total_data_clusters;
	lvol_live_grow(w.store, w.disk.size, outcome_done, &o);
	int rc = world_wait(&w, &o);
	CU_ASSERT_TRUE(lvol_live_info(w.store).total_data_clusters > clusters);
	return rc;
}

static int do_close(void)
{
	struct outcome o = {.done = false};

	lvol_live_close(w.store, outcome_done, &o);
	w.store = NULL;
	return world_wait(&w, &o);
}

static int do_close_and_open(void)
{
	int rc = do_close();

	return rc != 0 ? rc : world_open(&w, NULL);
}

/* v0 is a clone of v1, v2 another one; v3 has no parent; v5 is a clone of v4; v6 is thick. v2, v3 and v5 have
 * reservations. */
static void sweep_world(void)
{
	world_create(&w, 96);
	world_volume_create(&w, 0, 6, true);
	world_write(&w, 0, 0, 300);
	world_snapshot(&w, 0, 1);
	world_clone(&w, 1, 2);
	world_write(&w, 0, 0, 5);
	world_write(&w, 2, 300, 5);
	world_volume_create(&w, 3, 5, true);
	world_write(&w, 3, 100, 300);
	world_volume_create(&w, 5, 5, true);
	world_write(&w, 5, 100, 300);
	world_snapshot(&w, 5, 4);
	world_write(&w, 5, 200, 3);
	world_volume_create(&w, 6, 4, false);
	world_reserve(&w, 2, 6);
	world_reserve(&w, 3, 4);
	world_reserve(&w, 5, 3);
	CU_ASSERT_EQUAL_FATAL(world_write(&w, 6, 100, 300), 0);
	expect_equal();
}

/* What was acknowledged and is not in the model: the size of the store, and attributes. */
static void sweep_acknowledged(void)
{
	if (w.store == NULL) {
		return;
	}
	CU_ASSERT_EQUAL(lvol_live_info(crashed.store).total_data_clusters, lvol_live_info(w.store).total_data_clusters);
	for (struct lvol_live_volume *v = NULL; (v = lvol_live_next(w.store, v)) != NULL;) {
		const struct lvol_live_volume *same = lvol_live_find(crashed.store, v->name);
		CU_ASSERT_PTR_NOT_NULL_FATAL(same);
		CU_ASSERT_EQUAL(same->internal->meta.num_xattrs, v->internal->meta.num_xattrs);
	}
}

/* Damages the superblock, so that no sector of it can be used, and the store is found only by the signature. */
static void sweep_damage(struct disk *d)
{
	memset(d->bytes + sizeof(((struct lvol_super *)NULL)->signature), 0x5a,
	       LVOL_PAGE_BYTES - sizeof(((struct lvol_super *)NULL)->signature));
}

/* Whether the journal of a disk has pages: then its store is open, or else another program could write before they are
 * put in their places. */
static bool journal_has_pages(const struct disk *d)
{
	for (uint64_t at = 0; at < d->size; at += LVOL_PAGE_BYTES) {
		const struct lvol_journal_head *h = (const struct lvol_journal_head *)(d->bytes + at);
		if (memcmp(h->magic, LVOL_JOURNAL_MAGIC, sizeof(h->magic)) == 0 && h->crc == lvol_crc(h) &&
		    h->num_pages > 0) {
			return true;
		}
	}
	return false;
}

static bool is_open(const struct disk *d)
{
	struct lvol_super settled;

	return lvol_super_settle((const struct lvol_super *)d->bytes, &settled) && settled.version == LVOL_VERSION_OPEN;
}

/* What the crashed store must be: as before the operation, or as after it. damaged: the superblock is, too, and is
 * made from its copy. */
static void sweep_state(const struct model *before, size_t entries, uint32_t seed, bool damaged)
{
	disk_crash(&w.disk, entries, seed, &crashed.disk);
	CU_ASSERT_TRUE(is_open(&crashed.disk) || !journal_has_pages(&crashed.disk));
	if (damaged) {
		sweep_damage(&crashed.disk);
		CU_ASSERT_EQUAL_FATAL(world_rescue(&crashed, &error), 0);
	} else {
		world_check(&crashed, false);
	}
	int rc = world_open(&crashed, &error);
	CU_ASSERT_EQUAL_FATAL(rc, 0);
	const char *old = world_differs(&crashed, before, &w.model);
	const char *now = world_differs(&crashed, &w.model, before);
	bool good = now == NULL || (old == NULL && entries < w.disk.num_log);
	CU_ASSERT_TRUE(good);
	if (!good) {
		printf("entries %zu of %zu, seed %u%s: differs from before: %s, from after: %s\n", entries,
		       w.disk.num_log, seed, damaged ? ", damaged" : "", old, now);
	}
	world_count(&crashed);
	if (entries == w.disk.num_log) {
		sweep_acknowledged();
	}
	if (seed % 2 == 0) {
		world_close(&crashed);
	} else {
		world_forget(&crashed);
	}
}

static void sweep(const char *name, int (*op)(void))
{
	struct model before;
	unsigned states = 0;
	unsigned long seeds = 16 / unit_stride();

	sweep_world();
	disk_run(&w.disk);
	disk_record(&w.disk);
	before = w.model;
	CU_ASSERT_EQUAL_FATAL(op(), 0);
	crashed.random = 1;
	disk_init(&crashed.disk, w.disk.size);
	/* This process has the store open on its first disk. */
	lvol_owner_self(&crashed.disk.owner);
	crashed.disk.owner.boot[0] ^= 1;
	for (size_t k = 0; k <= w.disk.num_log; k++) {
		for (uint32_t seed = 0; seed < seeds; seed++, states++) {
			sweep_state(&before, k, seed, false);
		}
		for (uint32_t seed = 0; seed < seeds; seed += 4, states++) {
			sweep_state(&before, k, seed + k % 4, true);
		}
	}
	printf("%s: %u states\n", name, states);
	disk_free(&crashed.disk);
	world_free(&w);
}

#define SWEEP(op_)                                                                                                     \
	static void test_power_fails_in_##op_(void)                                                                    \
	{                                                                                                              \
		sweep(#op_, do_##op_);                                                                                 \
	}
SWEEP(create_thin)
SWEEP(create_thick)
SWEEP(write_first)
SWEEP(write_again)
SWEEP(write_clone)
SWEEP(unmap)
SWEEP(snapshot)
SWEEP(clone)
SWEEP(delete_volume)
SWEEP(delete_snapshot)
SWEEP(grow_thick)
SWEEP(shrink)
SWEEP(rename)
SWEEP(read_only)
SWEEP(inflate)
SWEEP(decouple)
SWEEP(store_rename)
SWEEP(threshold)
SWEEP(create_reserved)
SWEEP(reserve)
SWEEP(reserve_nothing)
SWEEP(xattr)
SWEEP(set_parent)
SWEEP(grow_store)
SWEEP(close)
SWEEP(close_and_open)

/* ---- Random ones, against the model ---- */

static void crash_and_open(struct world *x, uint32_t seed)
{
	/* All operations are done, so what they wrote is durable. */
	size_t entries = x->disk.num_log;

	world_forget(x);
	disk_init(&crashed.disk, x->disk.size);
	disk_crash(&x->disk, entries, seed, &crashed.disk);
	memcpy(x->disk.bytes, crashed.disk.bytes, x->disk.size);
	disk_free(&crashed.disk);
	disk_record(&x->disk);
	world_check(x, false);
	CU_ASSERT_EQUAL_FATAL(world_open(x, &error), 0);
	CU_ASSERT_TRUE(lvol_live_info(x->store).recovered);
}

static unsigned long num_random, num_crashes;

static void random_run(uint32_t seed, unsigned ops, bool late)
{
	unsigned good = 0;

	world_create(&w, 64);
	w.random = seed * 7919 + 1;
	w.disk.random = seed + 1;
	w.disk.late = late;
	for (unsigned k = 0; k < ops; k++) {
		int rc = world_random_op(&w);
		CU_ASSERT_TRUE(rc == 0 || rc == -ENOSPC || rc == -EBUSY || rc == -EPERM || rc == -EINVAL);
		good += rc == 0;
		num_random++;
		uint32_t what = disk_random(&w.random) % 40;
		if (what == 0) {
			num_crashes++;
			crash_and_open(&w, seed + k);
		} else if (what == 1) {
			world_close(&w);
			CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
		}
		if (k % 8 == 0 || what < 2) {
			expect_equal();
		}
		if (CU_get_number_of_failures() > 0) {
			printf("seed %u, operation %u\n", seed, k);
			break;
		}
	}
	CU_ASSERT_TRUE(good > ops / 3);
	expect_kept();
	world_free(&w);
}

static unsigned long number_from(const char *variable, unsigned long usual)
{
	const char *text = getenv(variable);

	return text == NULL ? usual : strtoul(text, NULL, 10);
}

/* VARVE_LVOL_RUNS times 250 operations, from VARVE_SEED on; the last line counts them. */
static void test_random_operations(void)
{
	uint32_t first = (uint32_t)number_from("VARVE_SEED", 0);
	unsigned long runs = number_from("VARVE_LVOL_RUNS", unit_stride() == 1 ? 12 : 2); /* 2: both kinds of disk */

	for (uint32_t i = 0; i < runs && CU_get_number_of_failures() == 0; i++) {
		random_run(first + i, 250, (first + i) % 3 == 0);
	}
	printf("%lu operations, %lu crashes, %u failures\n", num_random, num_crashes, CU_get_number_of_failures());
}

static const struct unit_test tests[] = {
	UNIT(test_a_new_store_is_empty),
	UNIT(test_bad_options_are_refused),
	UNIT(test_thin_volumes_take_clusters_when_they_are_written),
	UNIT(test_thick_volumes_are_zeroes),
	UNIT(test_snapshots_and_clones),
	UNIT(test_sizes_change),
	UNIT(test_unmapped_clusters_come_free),
	UNIT(test_names),
	UNIT(test_texts_are_those_that_an_open_takes),
	UNIT(test_attributes_of_many_pages),
	UNIT(test_an_open_is_linear_in_the_depth_of_snapshots),
	UNIT(test_an_open_after_a_crash_reads_what_is_in_use),
	UNIT(test_inflate_and_decouple),
	UNIT(test_what_may_be_deleted),
	UNIT(test_what_a_program_of_the_future_forbids),
	UNIT(test_a_full_store_serves_what_is_there),
	UNIT(test_metadata_pages_may_run_out),
	UNIT(test_power_fails_in_create_thin),
	UNIT(test_power_fails_in_create_thick),
	UNIT(test_power_fails_in_write_first),
	UNIT(test_power_fails_in_write_again),
	UNIT(test_power_fails_in_write_clone),
	UNIT(test_power_fails_in_unmap),
	UNIT(test_power_fails_in_snapshot),
	UNIT(test_power_fails_in_clone),
	UNIT(test_power_fails_in_delete_volume),
	UNIT(test_power_fails_in_delete_snapshot),
	UNIT(test_power_fails_in_grow_thick),
	UNIT(test_power_fails_in_shrink),
	UNIT(test_power_fails_in_rename),
	UNIT(test_power_fails_in_read_only),
	UNIT(test_power_fails_in_inflate),
	UNIT(test_power_fails_in_decouple),
	UNIT(test_power_fails_in_store_rename),
	UNIT(test_power_fails_in_threshold),
	UNIT(test_power_fails_in_create_reserved),
	UNIT(test_power_fails_in_reserve),
	UNIT(test_power_fails_in_reserve_nothing),
	UNIT(test_power_fails_in_xattr),
	UNIT(test_power_fails_in_set_parent),
	UNIT(test_power_fails_in_grow_store),
	UNIT(test_power_fails_in_close),
	UNIT(test_power_fails_in_close_and_open),
	UNIT(test_random_operations),
	UNIT_END,
};
UNIT_MAIN("lvol_live", tests, NULL, NULL)
