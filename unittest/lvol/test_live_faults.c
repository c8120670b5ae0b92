/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine where things come at once, where the device fails, where there is no memory, and on stores that another
 * program made. */
#include <errno.h>
#include <pthread.h>

#include "lvol/reserve.h"
#include "unittest/allocations.h"
#include "unittest/lvol/image.h"
#include "unittest/lvol/samples.h"
#include "unittest/lvol/world.h"
#include "unittest/unit.h"

static struct world w;
static struct lvol_error error;

void *__real_aligned_alloc(size_t alignment, size_t size);
char *__real_strdup(const char *s);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
char *__wrap_strdup(const char *s);

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
	return allocation_fails() ? NULL : __real_aligned_alloc(alignment, size);
}

char *__wrap_strdup(const char *s)
{
	return allocation_fails() ? NULL : __real_strdup(s);
}

/* ---- Many at once ---- */

enum { AT_ONCE = 12 };

static void test_first_writes_are_committed_together(void)
{
	struct lvol_live_fill fills[AT_ONCE], other;
	struct outcome o[AT_ONCE];

	world_create(&w, 96);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, AT_ONCE, true), 0);
	struct lvol_live_volume *v = world_volume(&w, 0);
	w.disk.late = true;
	uint64_t commits = lvol_live_info(w.store).commits;
	for (int i = 0; i < AT_ONCE; i++) {
		o[i] = (struct outcome){.done = false};
		CU_ASSERT_EQUAL_FATAL(lvol_live_fill_claim(v, (uint64_t)i, &fills[i]), 0);
		memset(w.disk.bytes + (uint64_t)fills[i].cluster * WORLD_CLUSTER, 0, WORLD_CLUSTER);
		CU_ASSERT_EQUAL(lvol_live_fill_claim(v, (uint64_t)i, &other), -EAGAIN);
		lvol_live_fill_commit(&fills[i], outcome_done, &o[i]);
		CU_ASSERT_FALSE(o[i].done || lvol_live_is_writable(lvol_live_entry(v, (uint64_t)i)));
	}
	for (int i = 0; i < AT_ONCE; i++) {
		CU_ASSERT_EQUAL(world_wait(&w, &o[i]), 0);
		CU_ASSERT_TRUE(lvol_live_is_writable(lvol_live_entry(v, (uint64_t)i)));
		CU_ASSERT_EQUAL(lvol_live_fill_claim(v, (uint64_t)i, &other), -EALREADY);
	}
	CU_ASSERT_EQUAL(lvol_live_info(w.store).commits, commits + 2); /* the first one, all others */
	CU_ASSERT_PTR_NULL(world_differs(&w, &w.model, NULL));
	world_free(&w);
}

static unsigned woken;

static void wake(struct lvol_live_waiter *waiter)
{
	(void)waiter;
	woken++;
}

static void test_who_waits_for_a_first_write_is_woken(void)
{
	struct lvol_live_fill f;
	struct lvol_live_waiter waiters[3] = {{.wake = wake}, {.wake = wake}, {.wake = wake}};
	struct outcome o = {.done = false};

	world_create(&w, 64);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 2, true), 0);
	struct lvol_live_volume *v = world_volume(&w, 0);
	uint32_t free_clusters = lvol_live_free_clusters(w.store);
	woken = 0;
	lvol_live_wait(v, 0, &waiters[0]);
	CU_ASSERT_EQUAL(woken, 1); /* nothing is under way */
	CU_ASSERT_EQUAL_FATAL(lvol_live_fill_claim(v, 0, &f), 0);
	lvol_live_wait(v, 0, &waiters[0]);
	lvol_live_wait(v, 0, &waiters[1]);
	CU_ASSERT_EQUAL(woken, 1);
	lvol_live_fill_abort(&f);
	CU_ASSERT_EQUAL(woken, 3);
	CU_ASSERT_EQUAL(lvol_live_entry(v, 0), 0);
	CU_ASSERT_EQUAL(lvol_live_free_clusters(w.store), free_clusters);
	CU_ASSERT_EQUAL_FATAL(lvol_live_fill_claim(v, 0, &f), 0);
	memset(w.disk.bytes + (uint64_t)f.cluster * WORLD_CLUSTER, 0, WORLD_CLUSTER);
	lvol_live_wait(v, 0, &waiters[2]);
	lvol_live_fill_commit(&f, outcome_done, &o);
	CU_ASSERT_TRUE(o.done && o.status == 0 && woken == 4);
	world_close(&w);
	world_free(&w);
}

/* Changes that are asked for at once take place one after the other. */
static void test_changes_wait_for_each_other(void)
{
	struct lvol_live_volume_opts opts = {.name = "new", .uuid = "u1", .num_clusters = 3, .thin = true};
	struct outcome o[6];

	memset(o, 0, sizeof(o));
	world_create(&w, 64);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 5, true), 0);
	CU_ASSERT_EQUAL(world_write(&w, 0, 0, 300), 0);
	w.disk.late = true;
	struct lvol_live_volume *v = world_volume(&w, 0);
	lvol_live_volume_snapshot(v, "snap", "u2", outcome_volume, &o[0]);
	lvol_live_volume_create(w.store, &opts, outcome_volume, &o[1]);
	lvol_live_volume_create(w.store, &opts, outcome_volume, &o[2]); /* the name is in use by then */
	lvol_live_volume_resize(v, 7, outcome_done, &o[3]);
	lvol_live_volume_rename(v, "renamed", outcome_done, &o[4]);
	lvol_live_close(w.store, outcome_done, &o[5]);
	for (int i = 0; i < 6; i++) {
		CU_ASSERT_EQUAL(world_wait(&w, &o[i]), i == 2 ? -EEXIST : 0);
	}
	CU_ASSERT_EQUAL(w.disk.paused, 0);
	w.store = NULL;
	world_check(&w, true);
	CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
	v = lvol_live_find(w.store, "renamed");
	CU_ASSERT_PTR_NOT_NULL_FATAL(v);
	CU_ASSERT_EQUAL(v->num_clusters, 7);
	CU_ASSERT_STRING_EQUAL(v->parent->name, "snap");
	CU_ASSERT_PTR_NOT_NULL(lvol_live_find(w.store, "new"));
	world_free(&w);
}

static void test_a_closing_store_takes_no_changes(void)
{
	struct outcome close = {.done = false}, o = {.done = false};
	struct lvol_live_fill f;

	world_create(&w, 64);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 5, true), 0);
	struct lvol_live_volume *v = world_volume(&w, 0);
	w.disk.late = true;
	lvol_live_close(w.store, outcome_done, &close);
	lvol_live_volume_rename(v, "x", outcome_done, &o);
	CU_ASSERT_EQUAL(lvol_live_fill_claim(v, 0, &f), -ESHUTDOWN);
	CU_ASSERT_EQUAL(world_wait(&w, &close), 0);
	CU_ASSERT_TRUE(o.done && o.status == -ESHUTDOWN);
	w.store = NULL;
	world_check(&w, true);
	world_free(&w);
}

/* A cluster is used again only after the grace period. */
static void test_freed_clusters_wait_for_the_grace_period(void)
{
	struct outcome o = {.done = false};

	world_create(&w, 64);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 5, true), 0);
	CU_ASSERT_EQUAL(world_write(&w, 0, 0, 5 * WORLD_SECTORS), 0);
	uint32_t free_clusters = lvol_live_free_clusters(w.store);
	w.disk.late = true;
	lvol_live_volume_resize(world_volume(&w, 0), 1, outcome_done, &o);
	CU_ASSERT_EQUAL(world_wait(&w, &o), 0);
	CU_ASSERT_EQUAL(lvol_live_free_clusters(w.store), free_clusters);
	disk_run(&w.disk);
	CU_ASSERT_EQUAL(lvol_live_free_clusters(w.store), free_clusters + 4);
	world_free(&w);
}

static void test_an_abandoned_store_ends_what_is_under_way(void)
{
	struct outcome o[3];

	for (unsigned steps = 0; steps < 12; steps++) {
		memset(o, 0, sizeof(o));
		world_create(&w, 64);
		CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 5, true), 0);
		struct lvol_live_volume *v = world_volume(&w, 0);
		w.disk.late = true;
		lvol_live_volume_resize(v, 7, outcome_done, &o[0]);
		lvol_live_volume_inflate(v, outcome_done, &o[1]);
		lvol_live_volume_rename(v, "x", outcome_done, &o[2]);
		for (unsigned i = 0; i < steps; i++) {
			disk_run_one(&w.disk);
		}
		world_forget(&w);
		CU_ASSERT_TRUE(o[0].done && o[1].done && o[2].done);
		CU_ASSERT_EQUAL(w.disk.paused, 0);
		world_check(&w, false);
		world_free(&w);
	}
}

/* ---- Threads ---- */

enum { THREADS = 4, THREAD_CLUSTERS = 200 };

struct claimer {
	struct lvol_live_volume *volume;
	struct lvol_live_fill fills[THREAD_CLUSTERS];
	unsigned claimed;
	pthread_t thread;
};

static void *claim_all(void *arg)
{
	struct claimer *c = arg;

	for (uint64_t n = 0; n < THREAD_CLUSTERS; n++) {
		int rc = lvol_live_fill_claim(c->volume, n, &c->fills[c->claimed]);
		c->claimed += rc == 0;
	}
	return NULL;
}

static void test_threads_claim_each_cluster_once(void)
{
	static struct claimer claimers[THREADS];
	static bool seen[1024];
	struct lvol_live_volume_opts opts = {.name = "v", .uuid = "u", .num_clusters = THREAD_CLUSTERS, .thin = true};
	struct outcome o = {.done = false};
	unsigned all = 0;

	world_create(&w, 300);
	lvol_live_volume_create(w.store, &opts, outcome_volume, &o);
	CU_ASSERT_EQUAL_FATAL(world_wait(&w, &o), 0);
	for (int i = 0; i < THREADS; i++) {
		claimers[i] = (struct claimer){.volume = o.volume};
		CU_ASSERT_EQUAL_FATAL(pthread_create(&claimers[i].thread, NULL, claim_all, &claimers[i]), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(claimers[i].thread, NULL);
	}
	for (int i = 0; i < THREADS; i++) {
		for (unsigned k = 0; k < claimers[i].claimed; k++, all++) {
			struct lvol_live_fill *f = &claimers[i].fills[k];
			CU_ASSERT_FALSE(seen[f->cluster]);
			seen[f->cluster] = true;
			o.done = false;
			lvol_live_fill_commit(f, outcome_done, &o);
			CU_ASSERT_EQUAL(world_wait(&w, &o), 0);
		}
	}
	CU_ASSERT_EQUAL(all, THREAD_CLUSTERS);
	CU_ASSERT_EQUAL(o.volume == NULL ? 0 : o.volume->num_own, THREAD_CLUSTERS);
	world_count(&w);
	world_close(&w);
	world_free(&w);
}

/* ---- Failures ---- */

/* Some of everything. Returns the first error. */
static int do_some(void)
{
	int rc = world_create_reserved(&w, 0, 5, true, 2);

	rc = rc != 0 ? rc : world_write(&w, 0, 3, 200);
	rc = rc != 0 ? rc : world_reserve(&w, 0, 5);
	rc = rc != 0 ? rc : world_snapshot(&w, 0, 1);
	rc = rc != 0 ? rc : world_write(&w, 0, 100, 200);
	rc = rc != 0 ? rc : world_clone(&w, 1, 2);
	rc = rc != 0 ? rc : world_volume_create(&w, 3, 4, false);
	rc = rc != 0 ? rc : world_resize(&w, 3, 6);
	rc = rc != 0 ? rc : world_resize(&w, 0, 4);
	rc = rc != 0 ? rc : world_unmap(&w, 0, 0, 3);
	rc = rc != 0 ? rc : world_inflate(&w, 2, true);
	rc = rc != 0 ? rc : world_delete(&w, 1);
	rc = rc != 0 ? rc : world_rename(&w, 0, "renamed");
	rc = rc != 0 ? rc : world_threshold(&w, 70);
	rc = rc != 0 ? rc : world_reserve(&w, 0, 0);
	rc = rc != 0 ? rc : world_inflate(&w, 0, true);
	return rc != 0 ? rc : world_delete(&w, 3);
}

/* Nothing that was acknowledged is lost, whatever the device has failed. */
static void fault(long fail_in, bool on)
{
	struct lvol_live *s = w.store;

	w.disk.fail_in = fail_in;
	w.disk.fail_on = on;
	int rc = do_some();
	CU_ASSERT_TRUE(rc == 0 || rc == -EIO || rc == -ENOSPC);
	w.disk.fail_in = -1;
	disk_run(&w.disk);
	CU_ASSERT_EQUAL(w.disk.paused, 0);
	if (rc == 0 && !lvol_live_info(s).failed) {
		world_close(&w);
	} else {
		world_forget(&w);
	}
	CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
	world_count(&w);
	world_close(&w);
	world_free(&w);
}

static void test_each_io_may_fail(void)
{
	world_create(&w, 96);
	unsigned long before = w.disk.ops;
	CU_ASSERT_EQUAL_FATAL(do_some(), 0);
	long ops = (long)(w.disk.ops - before);
	CU_ASSERT_TRUE(ops > 50);
	world_close(&w);
	world_free(&w);
	for (long k = 0; k < ops; k++) {
		for (int on = 0; on < 2; on++) {
			world_create(&w, 96);
			fault(k, on != 0);
		}
	}
}

static void test_an_open_or_close_may_fail(void)
{
	for (long k = 0; k < 40; k++) {
		struct outcome o = {.done = false};
		world_create(&w, 96);
		CU_ASSERT_EQUAL(do_some(), 0);
		w.disk.fail_in = k;
		lvol_live_close(w.store, outcome_done, &o);
		w.store = NULL;
		int rc = world_wait(&w, &o);
		CU_ASSERT_TRUE(rc == 0 || rc == -EIO);
		rc = rc != 0 ? rc : world_open(&w, &error);
		CU_ASSERT_TRUE(rc == 0 || rc == -EIO);
		w.disk.fail_in = -1;
		if (w.store == NULL) {
			CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
		}
		CU_ASSERT_PTR_NULL(world_differs(&w, &w.model, NULL));
		world_close(&w);
		world_free(&w);
	}
}

static void test_each_allocation_may_fail(void)
{
	bool failed = true;

	for (long k = 0; failed && k < 3000; k++) {
		world_create(&w, 96);
		allocations_left = k;
		int rc = do_some();
		failed = allocations_left < 0;
		allocations_left = -1;
		CU_ASSERT_TRUE_FATAL(rc == 0 || rc == -ENOMEM);
		disk_run(&w.disk);
		world_count(&w);
		world_close(&w);
		CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
		allocations_left = k;
		world_forget(&w);
		rc = world_open(&w, &error);
		allocations_left = -1;
		CU_ASSERT_TRUE(rc == 0 || rc == -ENOMEM);
		if (rc != 0) {
			CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
		}
		world_close(&w);
		world_free(&w);
	}
	CU_ASSERT_FALSE(failed);
}

/* ---- External snapshots ---- */

static struct lvol_live_volume *external_create(const char *name)
{
	struct lvol_live_volume_opts opts = {
		.name = name, .uuid = name, .num_clusters = 5, .external = "00000000-1111-2222-3333-444444444444"};
	struct outcome o = {.done = false};

	lvol_live_volume_create(w.store, &opts, outcome_volume, &o);
	CU_ASSERT_EQUAL_FATAL(world_wait(&w, &o), 0);
	return o.volume;
}

static bool external_is_at(const struct lvol_live_volume *v, uint64_t sector)
{
	return world_get(&w, v, sector) == disk_external(sector * DISK_SECTOR);
}

static void test_clones_of_something_external(void)
{
	struct outcome o = {.done = false};

	world_create(&w, 64);
	struct lvol_live_volume *v = external_create("e");
	CU_ASSERT_TRUE(v->thin && v->external_clusters == 5 && external_is_at(v, 7));
	CU_ASSERT_EQUAL(world_put(&w, v, 7, 1, 99), 0);
	CU_ASSERT_TRUE(world_get(&w, v, 7) == 99 && external_is_at(v, 6) && external_is_at(v, 8));
	lvol_live_volume_snapshot(v, "snap", "u2", outcome_volume, &o);
	CU_ASSERT_EQUAL_FATAL(world_wait(&w, &o), 0);
	CU_ASSERT_TRUE(v->external == NULL && v->external_clusters == 5 && o.volume->external != NULL);
	CU_ASSERT_EQUAL(world_put(&w, v, 2 * WORLD_SECTORS, 1, 98), 0);
	world_close(&w);
	CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
	v = lvol_live_find(w.store, "e");
	CU_ASSERT_TRUE(v->external_clusters == 5 && world_get(&w, v, 7) == 99 && external_is_at(v, 500));
	o.done = false;
	lvol_live_volume_inflate(v, outcome_done, &o);
	CU_ASSERT_EQUAL_FATAL(world_wait(&w, &o), 0);
	CU_ASSERT_TRUE(v->num_own == 5 && v->external_clusters == 0 && !v->thin && v->parent == NULL);
	CU_ASSERT_TRUE(world_get(&w, v, 7) == 99 && external_is_at(v, 500) && external_is_at(v, 8));
	CU_ASSERT_EQUAL(world_get(&w, v, 2 * WORLD_SECTORS), 98);
	world_close(&w);
	world_free(&w);
}

static void test_another_parent(void)
{
	struct outcome o = {.done = false};

	world_create(&w, 64);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 5, true), 0);
	CU_ASSERT_EQUAL(world_write(&w, 0, 0, 300), 0);
	CU_ASSERT_EQUAL(world_read_only(&w, 0), 0);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 1, 5, true), 0);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 2, 6, true), 0);
	struct lvol_live_volume *parent = world_volume(&w, 0), *v = world_volume(&w, 1);
	lvol_live_volume_set_parent(world_volume(&w, 2), parent, outcome_done, &o);
	CU_ASSERT_EQUAL(world_wait(&w, &o), -EINVAL);
	o.done = false;
	lvol_live_volume_set_parent(v, world_volume(&w, 2), outcome_done, &o);
	CU_ASSERT_EQUAL(world_wait(&w, &o), -EPERM);
	o.done = false;
	lvol_live_volume_set_parent(v, parent, outcome_done, &o);
	CU_ASSERT_EQUAL(world_wait(&w, &o), 0);
	memcpy(w.model.volumes[1].sectors, w.model.volumes[0].sectors, sizeof(w.model.volumes[0].sectors));
	w.model.volumes[1].parent = 0;
	CU_ASSERT_PTR_NULL(world_differs(&w, &w.model, NULL));
	world_close(&w);
	CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
	CU_ASSERT_PTR_NULL(world_differs(&w, &w.model, NULL));
	v = world_volume(&w, 1);
	o.done = false;
	lvol_live_volume_set_parent(v, world_volume(&w, 0), outcome_done, &o);
	CU_ASSERT_EQUAL(world_wait(&w, &o), -EEXIST);
	o.done = false;
	lvol_live_volume_set_parent_external(v, "bdev", outcome_done, &o);
	CU_ASSERT_EQUAL(world_wait(&w, &o), 0);
	CU_ASSERT_TRUE(v->parent == NULL && external_is_at(v, 3) && world_volume(&w, 0)->num_clones == 0);
	world_close(&w);
	world_free(&w);
}

/* What the user finds in the middle of a change of the parent. */
static struct {
	unsigned calls;
	char external[16];
	uint32_t entry[3];
	uint64_t external_clusters;
} seen;

static void external_changes(void *ctx, struct lvol_live_volume *v, const char *external)
{
	(void)ctx;
	seen.calls++;
	snprintf(seen.external, sizeof(seen.external), "%s", external == NULL ? "-" : external);
	for (uint64_t n = 0; n < 3; n++) {
		seen.entry[n] = lvol_live_cluster(lvol_live_entry(v, n));
	}
	seen.external_clusters = v->external_clusters;
}

/* A reader that finds no cluster must neither look into the old one where only the new one has the data, nor into the
 * new one where it is hidden. */
static void test_what_is_external_changes_between_entries(void)
{
	struct outcome o = {.done = false};

	world_create(&w, 64);
	world_close(&w);
	w.disk.external_changes = external_changes;
	CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
	struct lvol_live_volume *e = external_create("e"), *snapshot;
	lvol_live_volume_snapshot(e, "s", "u2", outcome_volume, &o);
	CU_ASSERT_EQUAL_FATAL(world_wait(&w, &o), 0);
	CU_ASSERT_STRING_EQUAL(lvol_live_external(e), lvol_live_external(o.volume));
	/* s: cluster 1 of its own, the rest in e's external snapshot. t: the same, of clusters 0 and 1. */
	CU_ASSERT_EQUAL(world_put(&w, e, WORLD_SECTORS, 1, 99), 0);
	o.done = false;
	lvol_live_volume_snapshot(e, "t", "u3", outcome_volume, &o);
	CU_ASSERT_EQUAL_FATAL(world_wait(&w, &o), 0);
	snapshot = o.volume;
	uint32_t cluster = lvol_live_cluster(lvol_live_entry(snapshot, 1));
	CU_ASSERT_TRUE(cluster != 0 && lvol_live_cluster(lvol_live_entry(e, 1)) == cluster);
	memset(&seen, 0, sizeof(seen));
	o.done = false;
	lvol_live_volume_set_parent_external(e, "bdev", outcome_done, &o);
	CU_ASSERT_EQUAL(world_wait(&w, &o), 0);
	/* The cluster is there until the other one is. */
	CU_ASSERT_TRUE(seen.calls == 1 && strcmp(seen.external, "bdev") == 0 && seen.external_clusters == 5);
	CU_ASSERT_TRUE(seen.entry[0] == 0 && seen.entry[1] == cluster && lvol_live_entry(e, 1) == 0);
	CU_ASSERT_STRING_EQUAL(lvol_live_external(e), "bdev");
	o.done = false;
	lvol_live_volume_set_parent(e, snapshot, outcome_done, &o);
	CU_ASSERT_EQUAL(world_wait(&w, &o), 0);
	CU_ASSERT_TRUE(seen.calls == 2 && strcmp(seen.external, "bdev") != 0 && seen.external_clusters == 5);
	CU_ASSERT_TRUE(seen.entry[1] == cluster && lvol_live_entry(e, 1) == cluster);
	/* One that has nothing external. */
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 5, true), 0);
	CU_ASSERT_EQUAL(world_read_only(&w, 0), 0);
	o.done = false;
	lvol_live_volume_set_parent(e, world_volume(&w, 0), outcome_done, &o);
	CU_ASSERT_EQUAL(world_wait(&w, &o), 0);
	CU_ASSERT_TRUE(seen.calls == 3 && strcmp(seen.external, "-") == 0 && seen.external_clusters == 0);
	CU_ASSERT_TRUE(seen.entry[1] == cluster && lvol_live_entry(e, 1) == 0 && lvol_live_external(e) == NULL);
	world_close(&w);
	world_free(&w);
}

/* Each volume has it by way of the nearest volume that has one. */
static void test_a_merged_snapshot_hands_on_its_external_snapshot(void)
{
	struct outcome o = {.done = false};
	struct lvol_live_volume *s[3];

	world_create(&w, 64);
	struct lvol_live_volume *e = external_create("e");
	for (unsigned i = 0; i < 3; i++) {
		char name[2] = {(char)('1' + i)}, uuid[3] = {'u', (char)('2' + i)};
		o.done = false;
		lvol_live_volume_snapshot(e, name, uuid, outcome_volume, &o);
		CU_ASSERT_EQUAL_FATAL(world_wait(&w, &o), 0);
		s[i] = o.volume;
	}
	for (unsigned i = 0; i < 3; i++) {
		CU_ASSERT_TRUE(e->external_at == s[i] && s[2]->external_at == s[i]);
		o.done = false;
		lvol_live_volume_delete(s[i], outcome_done, &o);
		CU_ASSERT_EQUAL_FATAL(world_wait(&w, &o), 0);
	}
	CU_ASSERT_TRUE(e->external_at == e && e->external != NULL && external_is_at(e, 9));
	world_close(&w);
	world_free(&w);
}

/* ---- Users that come ---- */

/* The change has begun while nobody used the volume: the user finds it held, and lets writes go on after it. */
static void test_a_user_comes_while_a_change_holds_its_volume(void)
{
	struct outcome o = {.done = false}, other = {.done = false};

	world_create(&w, 64);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 5, true), 0);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 1, 5, true), 0);
	struct lvol_live_volume *v = world_volume(&w, 0);
	v->user = NULL;
	w.disk.late = true;
	lvol_live_volume_snapshot(v, "s", "u2", outcome_volume, &o);
	lvol_live_volume_resize(v, 6, outcome_done, &other);
	CU_ASSERT_FALSE(o.done);
	CU_ASSERT_EQUAL(w.disk.paused, 0);
	CU_ASSERT_TRUE(lvol_live_volume_is_paused(v));
	CU_ASSERT_FALSE(lvol_live_volume_is_paused(world_volume(&w, 1)));
	v->user = &o;
	w.disk.paused++; /* as it does itself */
	CU_ASSERT_EQUAL(world_wait(&w, &o), 0);
	CU_ASSERT_EQUAL(world_wait(&w, &other), 0);
	CU_ASSERT_FALSE(lvol_live_volume_is_paused(v));
	CU_ASSERT_EQUAL(w.disk.paused, 0);
	world_close(&w);
	world_free(&w);
}

/* ---- Growing ---- */

/* The disk has twice the size now, the store not yet. */
static void grow_world(void)
{
	world_create(&w, 64);
	world_close(&w);
	uint8_t *larger = calloc(1, 2 * w.disk.size), *before = calloc(1, 2 * w.disk.size);
	memcpy(larger, w.disk.bytes, w.disk.size);
	free(w.disk.bytes);
	free(w.disk.before);
	w.disk.bytes = larger;
	w.disk.before = before;
	w.disk.size *= 2;
	disk_record(&w.disk);
	CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
}

/* A store that could not begin to grow goes on as before. */
static void test_memory_may_be_missing_for_growth(void)
{
	int rc = -ENOMEM;

	grow_world();
	uint32_t free_clusters = lvol_live_free_clusters(w.store);
	for (long k = 0; rc == -ENOMEM && k < 20; k++) {
		struct outcome o = {.done = false};
		allocations_left = k;
		lvol_live_grow(w.store, w.disk.size, outcome_done, &o);
		allocations_left = -1;
		rc = world_wait(&w, &o);
		CU_ASSERT_TRUE(rc == 0 || rc == -ENOMEM);
		CU_ASSERT_FALSE(lvol_live_info(w.store).failed);
		CU_ASSERT_EQUAL(lvol_live_free_clusters(w.store), free_clusters + (rc == 0 ? 64 : 0));
	}
	CU_ASSERT_EQUAL(rc, 0);
	world_close(&w);
	world_free(&w);
}

static void test_a_store_grows_with_its_device(void)
{
	struct outcome o = {.done = false};

	grow_world();
	uint32_t free_clusters = lvol_live_free_clusters(w.store);
	lvol_live_grow(w.store, w.disk.size, outcome_done, &o);
	CU_ASSERT_EQUAL(world_wait(&w, &o), 0);
	CU_ASSERT_EQUAL(lvol_live_free_clusters(w.store), free_clusters + 64);
	o.done = false;
	lvol_live_grow(w.store, w.disk.size, outcome_done, &o);
	CU_ASSERT_EQUAL(world_wait(&w, &o), -ENOSPC);
	for (int i = 0; i < 8; i++) {
		CU_ASSERT_EQUAL(world_volume_create(&w, i, 12, false), 0);
	}
	world_close(&w);
	CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
	CU_ASSERT_PTR_NULL(world_differs(&w, &w.model, NULL));
	world_count(&w);
	world_close(&w);
	world_free(&w);
}

static void test_a_destroyed_store_is_gone(void)
{
	struct outcome o = {.done = false};

	world_create(&w, 64);
	lvol_live_destroy(w.store, outcome_done, &o);
	CU_ASSERT_EQUAL(world_wait(&w, &o), 0);
	w.store = NULL;
	CU_ASSERT_EQUAL(world_open(&w, &error), -EILSEQ);
	world_free(&w);
}

/* ---- Stores of another program, and damaged ones ---- */

static struct image m;

static void image_to_disk(void)
{
	image_seal(&m);
	w = (struct world){.random = 1};
	disk_init(&w.disk, sizeof(m.bytes));
	memcpy(w.disk.bytes, m.bytes, sizeof(m.bytes));
	disk_record(&w.disk);
}

static void test_runs_of_an_older_program_become_tables(void)
{
	static const struct lvol_desc_rle runs[] = {{20, 2}, {0, 3}, {9, 1}};

	image_init(&m);
	image_volume_add(&m, 2, "old", runs, 3);
	for (uint32_t i = 0; i < 2; i++) {
		image_mark(&m, 2, 20 + i, true);
	}
	image_mark(&m, 2, 9, true);
	image_to_disk();
	int rc = world_open(&w, &error);
	CU_ASSERT_TRUE(rc == 0 || rc == -ENOSPC);
	if (rc == 0) {
		struct lvol_live_volume *v = lvol_live_find(w.store, "old");
		CU_ASSERT_PTR_NOT_NULL_FATAL(v);
		CU_ASSERT_EQUAL(lvol_live_entry(v, 1), LVOL_LIVE_OWN | 21);
		CU_ASSERT_EQUAL(lvol_live_entry(v, 5), LVOL_LIVE_OWN | 9);
		CU_ASSERT_EQUAL(lvol_live_entry(v, 3), 0);
		world_close(&w);
		CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
		CU_ASSERT_EQUAL(lvol_live_entry(lvol_live_find(w.store, "old"), 5), LVOL_LIVE_OWN | 9);
	}
	world_free(&w);
}

/* A thin volume with no cluster, whose first writes need as many pages as the store has. */
static void image_reserved_add(uint32_t root)
{
	const struct {
		uint64_t num_clusters;
		struct lvol_desc_table_entry entry;
	} table = {(uint64_t)IMAGE_MD_PAGES * LVOL_EXTENT_PAGE_CLUSTERS, {.page = 0, .count = IMAGE_MD_PAGES}};
	static const char uuid[] = "00000000-0000-0000-0000-00000000000f";
	uint8_t value[LVOL_RESERVE_BYTES];

	lvol_reserve_encode(1, value);
	image_page_begin(&m, root, root, 0);
	image_mark(&m, 3, root, true);
	image_flags_add(&m, root, LVOL_INVALID_THIN | LVOL_INVALID_EXTENT_TABLE, 0);
	image_xattr_add(&m, root, false, "name", "reserved", sizeof("reserved"));
	image_xattr_add(&m, root, false, "uuid", uuid, sizeof(uuid));
	image_xattr_add(&m, root, false, LVOL_RESERVE_XATTR, value, sizeof(value));
	image_desc_add(&m, root, LVOL_DESC_EXTENT_TABLE, &table, sizeof(table));
}

/* The page that it takes is promised, but so is more than there is: that it does not open would help nobody. */
static void test_a_store_whose_pages_are_promised_is_converted(void)
{
	static const struct lvol_desc_rle runs[] = {{20, 2}};

	image_init(&m);
	image_volume_add(&m, 1, "old", runs, 1);
	image_reserved_add(2);
	image_to_disk();
	CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
	CU_ASSERT_EQUAL(lvol_live_entry(lvol_live_find(w.store, "old"), 1), LVOL_LIVE_OWN | 21);
	CU_ASSERT_EQUAL(lvol_live_info(w.store).reserved_md_pages, IMAGE_MD_PAGES);
	CU_ASSERT_EQUAL(lvol_live_info(w.store).missing_md_pages,
			IMAGE_MD_PAGES - lvol_live_info(w.store).free_md_pages);
	disk_run(&w.disk);
	world_forget(&w);
	CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
	CU_ASSERT_EQUAL(lvol_live_entry(lvol_live_find(w.store, "old"), 1), LVOL_LIVE_OWN | 21);
	world_free(&w);
}

/* There is room for the journal, and for nothing else. */
static void test_a_store_that_cannot_be_converted_stays_closed(void)
{
	static const struct lvol_desc_rle runs[][1] = {{{20, 2}}, {{9, 1}}, {{12, 3}}};
	static const char *const names[] = {"a", "b", "c"};

	image_init(&m);
	for (uint32_t i = 0; i < 3; i++) {
		image_volume_add(&m, i + 1, names[i], runs[i], 1);
		for (uint32_t k = 0; k < runs[i][0].count; k++) {
			image_mark(&m, 2, runs[i][0].cluster + k, true);
		}
	}
	image_to_disk();
	CU_ASSERT_EQUAL(world_open(&w, &error), -ENOSPC);
	CU_ASSERT_TRUE(w.disk.num_log > 0); /* it had been marked as open */
	world_check(&w, true);
	CU_ASSERT_EQUAL(memcmp(w.disk.bytes, m.bytes, LVOL_PAGE_BYTES), 0);
	world_free(&w);
}

static void test_a_damaged_store_is_not_opened(void)
{
	static const struct lvol_desc_rle runs[] = {{20, 2}}, same[] = {{21, 1}};

	image_init(&m);
	image_volume_add(&m, 2, "a", runs, 1);
	image_volume_add(&m, 3, "b", same, 1);
	image_to_disk();
	CU_ASSERT_EQUAL(world_open(&w, &error), -EILSEQ);
	CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "belong to two volumes"));
	CU_ASSERT_EQUAL(w.disk.num_log, 0);
	world_free(&w);
	image_init(&m);
	image_volume_add(&m, 2, "a", runs, 1);
	image_to_disk();
	w.disk.bytes[(IMAGE_MD_FIRST + 2) * LVOL_PAGE_BYTES + 100] ^= 1;
	CU_ASSERT_EQUAL(world_open(&w, &error), -EILSEQ);
	CU_ASSERT_EQUAL(w.disk.num_log, 0);
	world_free(&w);
}

static void sample_to_disk(const struct sample *s)
{
	w = (struct world){.random = 1};
	strcpy(w.model.name, "lvs0");
	disk_init(&w.disk, s->bytes);
	memset(w.disk.bytes, 0, s->bytes);
	for (size_t i = 0; i < s->num_pages; i++) {
		const struct sample_page *p = &s->pages[i];
		for (size_t at = 0; at < LVOL_PAGE_BYTES; at += p->repeats ? 16 : LVOL_PAGE_BYTES) {
			memcpy(w.disk.bytes + (size_t)p->page * LVOL_PAGE_BYTES + at, p->bytes,
			       p->repeats ? 16 : LVOL_PAGE_BYTES);
		}
	}
	disk_record(&w.disk);
}

/* A block of a volume of the sample is {number, block} again and again, or zeroes. */
static void expect_blocks(const char *name, uint64_t first, uint64_t count, uint64_t number, uint64_t begin)
{
	const struct lvol_live_volume *v = lvol_live_find(w.store, name);

	CU_ASSERT_PTR_NOT_NULL_FATAL(v);
	for (uint64_t b = first; b < first + count; b++) {
		uint64_t words[2] = {0, 0}, at = b * LVOL_PAGE_BYTES;
		uint32_t cluster = lvol_live_cluster(lvol_live_entry(v, at / v->cluster_bytes));
		if (cluster != 0) {
			memcpy(words, w.disk.bytes + (uint64_t)cluster * v->cluster_bytes + at % v->cluster_bytes,
			       sizeof(words));
		}
		CU_ASSERT_TRUE(words[0] == number && words[1] == (number == 0 ? 0 : b - begin));
	}
}

static void expect_sample(bool late)
{
	CU_ASSERT_EQUAL(lvol_live_info(w.store).num_volumes, late ? 5 : 4);
	CU_ASSERT_STRING_EQUAL(lvol_live_info(w.store).uuid, "14ace1d1-a1e1-4f1d-838e-f8c5b0aed151");
	expect_blocks("thick", 0, 2048, 1, 0);
	expect_blocks("thin", 0, 512, 0, 0);
	expect_blocks("thin", 512, 768, 2, 512);
	expect_blocks("snap1", 512, 768, 2, 512);
	expect_blocks("clone1", 512, 88, 2, 512);
	expect_blocks("clone1", 600, 256, 3, 600);
	expect_blocks("clone1", 856, 424, 2, 512);
	expect_blocks("clone1", 1280, 2816, 0, 0);
}

/* A first write of {number, 0} to a block. */
static void write_block(struct lvol_live_volume *v, uint64_t block)
{
	static uint8_t cluster[1 << 20];
	struct lvol_live_fill f;
	struct outcome o = {.done = false};

	CU_ASSERT_EQUAL_FATAL(lvol_live_fill_claim(v, block * LVOL_PAGE_BYTES / v->cluster_bytes, &f), 0);
	memset(cluster, 0, sizeof(cluster));
	if (f.source != 0) {
		memcpy(cluster, w.disk.bytes + (uint64_t)f.source * v->cluster_bytes, sizeof(cluster));
	}
	memset(cluster + block * LVOL_PAGE_BYTES % v->cluster_bytes, 0x77, LVOL_PAGE_BYTES);
	memcpy(w.disk.bytes + (uint64_t)f.cluster * v->cluster_bytes, cluster, sizeof(cluster));
	lvol_live_fill_commit(&f, outcome_done, &o);
	CU_ASSERT_EQUAL(world_wait(&w, &o), 0);
}

static void test_stores_of_another_program(void)
{
	const struct sample *const samples[] = {&sample_clean, &sample_dirty};
	struct lvol_live_volume_opts opts = {.name = "new", .uuid = "u1", .num_clusters = 3};
	struct outcome o = {.done = false};

	for (int late = 0; late < 2; late++) {
		sample_to_disk(samples[late]);
		CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
		CU_ASSERT_EQUAL(lvol_live_info(w.store).recovered, late == 1);
		CU_ASSERT_EQUAL(lvol_live_info(w.store).free_clusters, 82);
		expect_sample(late == 1);
		world_close(&w);
		if (late == 0) {
			/* Nothing has changed but what the journal left in free pages, and that the volume which names
			 * the store has a copy of the superblock. */
			const struct lvol_super *super = (const struct lvol_super *)w.disk.bytes;
			for (size_t i = 0; i < samples[0]->num_pages; i++) {
				const struct sample_page *p = &samples[0]->pages[i];
				CU_ASSERT_EQUAL(p->page == super->md_first
							? 0
							: memcmp(w.disk.bytes + (size_t)p->page * LVOL_PAGE_BYTES,
								 p->bytes, p->repeats ? 16 : LVOL_PAGE_BYTES),
						0);
			}
		}
		CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
		write_block(lvol_live_find(w.store, "thin"), 1281);
		write_block(lvol_live_find(w.store, "clone1"), 2000);
		o.done = false;
		lvol_live_volume_create(w.store, &opts, outcome_volume, &o);
		CU_ASSERT_EQUAL(world_wait(&w, &o), 0);
		o.done = false;
		lvol_live_volume_snapshot(lvol_live_find(w.store, "thick"), "snap2", "u2", outcome_volume, &o);
		CU_ASSERT_EQUAL(world_wait(&w, &o), 0);
		o.done = false;
		lvol_live_volume_delete(lvol_live_find(w.store, "new"), outcome_done, &o);
		CU_ASSERT_EQUAL(world_wait(&w, &o), 0);
		world_close(&w);
		CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
		expect_blocks("thick", 0, 2048, 1, 0);
		expect_blocks("thin", 512, 768, 2, 512);
		expect_blocks("clone1", 600, 256, 3, 600);
		world_count(&w);
		world_close(&w);
		world_free(&w);
	}
}

static const struct unit_test tests[] = {
	UNIT(test_stores_of_another_program),
	UNIT(test_first_writes_are_committed_together),
	UNIT(test_who_waits_for_a_first_write_is_woken),
	UNIT(test_changes_wait_for_each_other),
	UNIT(test_a_closing_store_takes_no_changes),
	UNIT(test_freed_clusters_wait_for_the_grace_period),
	UNIT(test_an_abandoned_store_ends_what_is_under_way),
	UNIT(test_threads_claim_each_cluster_once),
	UNIT(test_each_io_may_fail),
	UNIT(test_an_open_or_close_may_fail),
	UNIT(test_each_allocation_may_fail),
	UNIT(test_clones_of_something_external),
	UNIT(test_another_parent),
	UNIT(test_what_is_external_changes_between_entries),
	UNIT(test_a_merged_snapshot_hands_on_its_external_snapshot),
	UNIT(test_a_user_comes_while_a_change_holds_its_volume),
	UNIT(test_memory_may_be_missing_for_growth),
	UNIT(test_a_store_grows_with_its_device),
	UNIT(test_a_destroyed_store_is_gone),
	UNIT(test_runs_of_an_older_program_become_tables),
	UNIT(test_a_store_whose_pages_are_promised_is_converted),
	UNIT(test_a_store_that_cannot_be_converted_stays_closed),
	UNIT(test_a_damaged_store_is_not_opened),
	UNIT_END,
};
UNIT_MAIN("lvol_live_faults", tests, NULL, NULL)
