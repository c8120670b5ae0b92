/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lvol/live_internal.h"
#include "unittest/lvol/world.h"
#include "unittest/unit.h"

static const uint64_t mixed = UINT64_MAX - 1;

void outcome_done(void *arg, int status)
{
	struct outcome *o = arg;

	o->done = true;
	o->status = status;
}

void outcome_volume(void *arg, int status, struct lvol_live_volume *v)
{
	struct outcome *o = arg;

	outcome_done(o, status);
	o->volume = v;
	if (v != NULL) {
		v->user = o; /* somebody uses it: it is paused */
	}
}

void outcome_opened(void *arg, int status, struct lvol_live *s, const struct lvol_error *e)
{
	struct outcome *o = arg;

	o->store = s;
	o->error = *e;
	CU_ASSERT_EQUAL(status == 0, s != NULL);
	CU_ASSERT_TRUE(status == 0 || e->text[0] != 0);
	outcome_done(o, status);
}

int world_wait(struct world *w, struct outcome *o)
{
	while (!o->done && disk_run_one(&w->disk)) {
	}
	CU_ASSERT_TRUE_FATAL(o->done);
	return o->status;
}

void world_create(struct world *w, uint32_t clusters)
{
	struct lvol_live_create_opts opts = {
		.name = "s", .uuid = "00000000-0000-0000-0000-0000000000ff", .cluster_bytes = WORLD_CLUSTER};
	struct outcome o = {.done = false};

	*w = (struct world){.random = 1};
	strcpy(w->model.name, "s");
	disk_init(&w->disk, (uint64_t)clusters * WORLD_CLUSTER);
	struct lvol_live_user user = disk_user(&w->disk);
	lvol_live_create(&user, &opts, outcome_opened, &o);
	CU_ASSERT_EQUAL_FATAL(world_wait(w, &o), 0);
	w->store = o.store;
}

int world_open(struct world *w, struct lvol_error *e)
{
	struct lvol_live_user user = disk_user(&w->disk);
	struct outcome o = {.done = false};

	lvol_live_open(&user, outcome_opened, &o);
	int status = world_wait(w, &o);
	w->store = o.store;
	if (e != NULL) {
		*e = o.error;
	}
	for (struct lvol_live_volume *v = NULL; status == 0 && (v = lvol_live_next(w->store, v)) != NULL;) {
		v->user = w;
	}
	return status;
}

void world_close(struct world *w)
{
	struct outcome o = {.done = false};

	lvol_live_close(w->store, outcome_done, &o);
	CU_ASSERT_EQUAL(world_wait(w, &o), 0);
	w->store = NULL;
	world_check(w, true);
}

void world_forget(struct world *w)
{
	if (w->store != NULL) {
		lvol_live_abandon(w->store);
		disk_run(&w->disk);
		w->store = NULL;
	}
}

void world_free(struct world *w)
{
	world_forget(w);
	disk_free(&w->disk);
}

static const char *number_name(int i)
{
	static char names[WORLD_VOLUMES][16];

	snprintf(names[i], sizeof(names[i]), "v%d", i);
	return names[i];
}

struct lvol_live_volume *world_volume(const struct world *w, int i)
{
	return lvol_live_find(w->store, w->model.volumes[i].name);
}

static const char *number_uuid(struct world *w)
{
	static char uuid[LVOL_UUID_TEXT];

	snprintf(uuid, sizeof(uuid), "00000000-0000-0000-0000-%012u", (unsigned)(disk_random(&w->random) & 0xfffffff));
	return uuid;
}

/* ---- Data, as a module does it ---- */

struct putting {
	struct lvol_live_waiter waiter;
	bool woken;
};

static void putting_wake(struct lvol_live_waiter *waiter)
{
	((struct putting *)waiter)->woken = true;
}

/* Claims cluster n of a volume, as soon as that can be. Returns the status. */
static int put_claim(struct world *w, struct lvol_live_volume *v, uint64_t n, struct lvol_live_fill *f)
{
	int rc;

	while ((rc = lvol_live_fill_claim(v, n, f)) == -EAGAIN) {
		struct putting p = {.waiter.wake = putting_wake};
		lvol_live_wait(v, n, &p.waiter);
		while (!p.woken) {
			CU_ASSERT_TRUE_FATAL(disk_run_one(&w->disk));
		}
	}
	CU_ASSERT_TRUE(rc != -ENOSPC || v->num_own >= v->reserved);
	return rc;
}

static int disk_put(struct world *w, uint64_t offset, const void *from, size_t bytes)
{
	struct lvol_live_user user = disk_user(&w->disk);
	struct outcome o = {.done = false};

	user.write(user.ctx, offset, from, bytes, outcome_done, &o);
	return world_wait(w, &o);
}

static int disk_sync(struct world *w)
{
	struct lvol_live_user user = disk_user(&w->disk);
	struct outcome o = {.done = false};

	user.flush(user.ctx, outcome_done, &o);
	return world_wait(w, &o);
}

static void fill_source(const struct world *w, const struct lvol_live_fill *f, uint8_t *cluster)
{
	memset(cluster, 0, WORLD_CLUSTER);
	if (f->source != 0) {
		memcpy(cluster, w->disk.bytes + (uint64_t)f->source * WORLD_CLUSTER, WORLD_CLUSTER);
	} else if (f->external) {
		for (size_t i = 0; i < WORLD_CLUSTER; i += 8) {
			uint64_t x = disk_external(f->n * WORLD_CLUSTER + i);
			memcpy(cluster + i, &x, 8);
		}
	}
}

static int put_first(struct world *w, struct lvol_live_fill *f, uint64_t at, uint64_t count, const uint8_t *data)
{
	static uint8_t cluster[WORLD_CLUSTER];
	struct outcome o = {.done = false};

	fill_source(w, f, cluster);
	memcpy(cluster + at * DISK_SECTOR, data, count * DISK_SECTOR);
	int rc = disk_put(w, (uint64_t)f->cluster * WORLD_CLUSTER, cluster, WORLD_CLUSTER);
	if (rc != 0) {
		lvol_live_fill_abort(f);
		return rc;
	}
	lvol_live_fill_commit(f, outcome_done, &o);
	return world_wait(w, &o);
}

/* Within one cluster. */
static int put_part(struct world *w, struct lvol_live_volume *v, uint64_t sector, uint64_t count, const uint8_t *data)
{
	uint64_t n = sector / WORLD_SECTORS, at = sector % WORLD_SECTORS;
	struct lvol_live_fill f;
	uint32_t entry = lvol_live_entry(v, n);

	if (v->read_only) {
		return -EPERM;
	}
	if (lvol_live_is_writable(entry)) {
		return disk_put(w, (uint64_t)lvol_live_cluster(entry) * WORLD_CLUSTER + at * DISK_SECTOR, data,
				count * DISK_SECTOR);
	}
	int rc = put_claim(w, v, n, &f);
	if (rc == -EALREADY) {
		return put_part(w, v, sector, count, data);
	}
	return rc != 0 ? rc : put_first(w, &f, at, count, data);
}

/* *written: how many sectors it has written, also before an error. */
static int put_counted(struct world *w, struct lvol_live_volume *v, uint64_t sector, uint64_t count, uint64_t tag,
		       uint64_t *written)
{
	static uint64_t data[WORLD_CLUSTER / 8];
	int rc = 0;

	*written = 0;
	for (uint64_t done = 0; done < count && rc == 0; *written = rc == 0 ? done : *written) {
		uint64_t left = WORLD_SECTORS - (sector + done) % WORLD_SECTORS;
		uint64_t n = count - done < left ? count - done : left;
		for (size_t i = 0; i < n * DISK_SECTOR / 8; i++) {
			data[i] = tag;
		}
		rc = put_part(w, v, sector + done, n, (const uint8_t *)data);
		done += n;
	}
	return rc != 0 ? rc : disk_sync(w);
}

int world_put(struct world *w, struct lvol_live_volume *v, uint64_t sector, uint64_t count, uint64_t tag)
{
	uint64_t written;

	return put_counted(w, v, sector, count, tag, &written);
}

uint64_t world_get(const struct world *w, const struct lvol_live_volume *v, uint64_t sector)
{
	uint32_t cluster = lvol_live_cluster(lvol_live_entry(v, sector / WORLD_SECTORS));
	uint64_t words[DISK_SECTOR / 8];

	if (cluster == 0) {
		return sector / WORLD_SECTORS < v->external_clusters ? disk_external(sector * DISK_SECTOR) : 0;
	}
	memcpy(words, w->disk.bytes + (uint64_t)cluster * WORLD_CLUSTER + sector % WORLD_SECTORS * DISK_SECTOR,
	       sizeof(words));
	if (words[0] == disk_external(sector * DISK_SECTOR)) {
		return words[0];
	}
	for (size_t i = 1; i < DISK_SECTOR / 8; i++) {
		if (words[i] != words[0]) {
			return mixed;
		}
	}
	return words[0];
}

/* ---- Operations ---- */

static void model_add(struct world *w, int i, struct lvol_live_volume *v, uint64_t clusters)
{
	struct model_volume *m = &w->model.volumes[i];

	CU_ASSERT_PTR_NOT_NULL_FATAL(v);
	*m = (struct model_volume){.there = true, .clusters = clusters, .parent = -1};
	strcpy(m->name, v->name);
}

int world_volume_create(struct world *w, int i, uint64_t clusters, bool thin)
{
	return world_create_reserved(w, i, clusters, thin, 0);
}

int world_create_reserved(struct world *w, int i, uint64_t clusters, bool thin, uint64_t reserved)
{
	struct lvol_live_volume_opts opts = {.name = number_name(i),
					     .uuid = number_uuid(w),
					     .num_clusters = clusters,
					     .thin = thin,
					     .reserved = reserved};
	struct outcome o = {.done = false};

	lvol_live_volume_create(w->store, &opts, outcome_volume, &o);
	int rc = world_wait(w, &o);
	if (rc == 0) {
		model_add(w, i, o.volume, clusters);
		w->model.volumes[i].thin = thin;
		w->model.volumes[i].reserved = reserved;
	}
	return rc;
}

int world_delete(struct world *w, int i)
{
	struct lvol_live_volume *v = world_volume(w, i);
	struct outcome o = {.done = false};
	struct model_volume *m = w->model.volumes;

	v->user = NULL;
	lvol_live_volume_delete(v, outcome_done, &o);
	int rc = world_wait(w, &o);
	if (rc != 0) {
		v->user = w;
		return rc;
	}
	for (int k = 0; k < WORLD_VOLUMES; k++) {
		m[k].parent = m[k].there && m[k].parent == i ? m[i].parent : m[k].parent;
	}
	m[i].there = false;
	return 0;
}

int world_snapshot(struct world *w, int i, int snapshot)
{
	struct lvol_live_volume *v = world_volume(w, i);
	struct model_volume *m = w->model.volumes;
	struct outcome o = {.done = false};

	lvol_live_volume_snapshot(v, number_name(snapshot), number_uuid(w), outcome_volume, &o);
	int rc = world_wait(w, &o);
	if (rc == 0) {
		m[snapshot] = m[i];
		strcpy(m[snapshot].name, number_name(snapshot));
		m[snapshot].read_only = true;
		m[snapshot].reserved = 0;
		m[i].parent = snapshot;
		m[i].thin = true;
	}
	return rc;
}

int world_clone(struct world *w, int i, int clone)
{
	struct model_volume *m = w->model.volumes;
	struct outcome o = {.done = false};

	lvol_live_volume_clone(world_volume(w, i), number_name(clone), number_uuid(w), outcome_volume, &o);
	int rc = world_wait(w, &o);
	if (rc == 0) {
		m[clone] = m[i];
		strcpy(m[clone].name, number_name(clone));
		m[clone].read_only = false;
		m[clone].reserved = 0;
		m[clone].thin = true;
		m[clone].parent = i;
	}
	return rc;
}

int world_rename(struct world *w, int i, const char *name)
{
	struct outcome o = {.done = false};

	lvol_live_volume_rename(world_volume(w, i), name, outcome_done, &o);
	int rc = world_wait(w, &o);
	if (rc == 0) {
		strcpy(w->model.volumes[i].name, name);
	}
	return rc;
}

int world_reserve(struct world *w, int i, uint64_t clusters)
{
	struct outcome o = {.done = false};

	lvol_live_volume_reserve(world_volume(w, i), clusters, outcome_done, &o);
	int rc = world_wait(w, &o);
	if (rc == 0) {
		w->model.volumes[i].reserved = clusters;
	}
	return rc;
}

int world_threshold(struct world *w, uint8_t percent)
{
	const struct lvol_space space = {.num = 1, .percent = {percent}};
	struct outcome o = {.done = false};

	lvol_live_set_space(w->store, percent == 0 ? NULL : &space, outcome_done, &o);
	int rc = world_wait(w, &o);
	if (rc == 0) {
		w->model.threshold = percent;
	}
	return rc;
}

int world_resize(struct world *w, int i, uint64_t clusters)
{
	struct model_volume *m = &w->model.volumes[i];
	struct outcome o = {.done = false};

	lvol_live_volume_resize(world_volume(w, i), clusters, outcome_done, &o);
	int rc = world_wait(w, &o);
	if (rc != 0) {
		return rc;
	}
	const struct model_volume *p = m->parent >= 0 ? &w->model.volumes[m->parent] : NULL;
	for (uint64_t k = (clusters < m->clusters ? clusters : m->clusters) * WORLD_SECTORS;
	     k < WORLD_CLUSTERS * (uint64_t)WORLD_SECTORS; k++) {
		/* What its snapshot has behind its end comes to light when it grows. */
		m->sectors[k] = p != NULL && k < clusters * WORLD_SECTORS && k < p->clusters * WORLD_SECTORS
					? p->sectors[k]
					: 0;
	}
	m->clusters = clusters;
	m->reserved = m->reserved < clusters ? m->reserved : clusters;
	return 0;
}

int world_read_only(struct world *w, int i)
{
	struct outcome o = {.done = false};

	lvol_live_volume_set_read_only(world_volume(w, i), outcome_done, &o);
	int rc = world_wait(w, &o);
	if (rc == 0) {
		w->model.volumes[i].read_only = true;
		w->model.volumes[i].reserved = 0;
	}
	return rc;
}

int world_inflate(struct world *w, int i, bool all)
{
	struct model_volume *m = &w->model.volumes[i];
	struct outcome o = {.done = false};

	(all ? lvol_live_volume_inflate : lvol_live_volume_decouple)(world_volume(w, i), outcome_done, &o);
	int rc = world_wait(w, &o);
	if (rc == 0) {
		m->thin = m->thin && !all;
		m->parent = all || m->parent < 0 ? -1 : w->model.volumes[m->parent].parent;
	}
	return rc;
}

int world_write(struct world *w, int i, uint64_t sector, uint64_t count)
{
	struct model_volume *m = &w->model.volumes[i];
	uint64_t tag = ++w->model.tag, written;
	int rc = put_counted(w, world_volume(w, i), sector, count, tag, &written);

	/* Of a write to several clusters those before the one for which there is no room. */
	for (uint64_t k = 0; k < written; k++) {
		m->sectors[sector + k] = tag;
	}
	return rc;
}

int world_unmap(struct world *w, int i, uint64_t cluster, uint64_t count)
{
	struct lvol_live_volume *v = world_volume(w, i);
	struct model_volume *m = &w->model.volumes[i];
	struct outcome o = {.done = false};
	uint64_t kept, released = 0;

	lvol_live_release(v, cluster, count, &kept, outcome_done, &o);
	int rc = world_wait(w, &o);
	bool released_ok = rc == 0;
	for (uint64_t n = cluster; n < cluster + count && rc == 0; n++) {
		bool data = lvol_live_cluster(lvol_live_entry(v, n)) != 0 || n < v->external_clusters;
		kept -= data;
		rc = data ? world_put(w, v, n * WORLD_SECTORS, WORLD_SECTORS, 0) : 0;
		released += rc == 0;
	}
	for (uint64_t k = 0; k < released * WORLD_SECTORS; k++) {
		m->sectors[cluster * WORLD_SECTORS + k] = 0;
	}
	/* What had no snapshot behind it has been given up, although zeroes found no room elsewhere. */
	for (uint64_t n = cluster + released; n < cluster + count && rc != 0 && released_ok; n++) {
		if (lvol_live_cluster(lvol_live_entry(v, n)) == 0 && n >= v->external_clusters) {
			memset(&m->sectors[n * WORLD_SECTORS], 0, WORLD_SECTORS * sizeof(m->sectors[0]));
		}
	}
	CU_ASSERT_TRUE(rc != 0 || kept == 0);
	return rc == 0 ? disk_sync(w) : rc;
}

/* ---- Random ones ---- */

static int random_of(struct world *w, bool there)
{
	for (int tries = 0; tries < 50; tries++) {
		int i = (int)(disk_random(&w->random) % WORLD_VOLUMES);
		if (w->model.volumes[i].there == there) {
			return i;
		}
	}
	return -1;
}

static int random_data_op(struct world *w, int i, uint32_t kind)
{
	const struct model_volume *m = &w->model.volumes[i];

	if (m->clusters == 0 || m->read_only) {
		return 0;
	}
	uint64_t sectors = m->clusters * WORLD_SECTORS, from = disk_random(&w->random) % sectors;
	uint64_t count = 1 + disk_random(&w->random) % (sectors - from < 200 ? sectors - from : 200);
	if (kind > 0) {
		return world_write(w, i, from, count);
	}
	from /= WORLD_SECTORS;
	return world_unmap(w, i, from, 1 + disk_random(&w->random) % (m->clusters - from));
}

static int random_volume_op(struct world *w, int i, int other, uint32_t kind)
{
	uint64_t clusters = disk_random(&w->random) % (WORLD_CLUSTERS + 1);

	switch (kind) {
	case 0:
		return other < 0 ? 0 : world_snapshot(w, i, other);
	case 1:
		return other < 0 ? 0 : world_clone(w, i, other);
	case 2:
		return world_delete(w, i);
	case 3:
		return world_resize(w, i, clusters);
	case 4:
		return world_inflate(w, i, disk_random(&w->random) % 2 == 0);
	case 5:
		return disk_random(&w->random) % 4 == 0 ? world_read_only(w, i) : 0;
	case 6:
		return other < 0 ? 0 : world_volume_create(w, other, clusters, disk_random(&w->random) % 3 > 0);
	case 7:
		return world_reserve(w, i, disk_random(&w->random) % 3 == 0 ? 0 : clusters);
	default:
		return random_data_op(w, i, kind - 8);
	}
}

int world_random_op(struct world *w)
{
	int i = random_of(w, true), other = random_of(w, false);

	if (i < 0) {
		return world_volume_create(w, other, 6, true);
	}
	return random_volume_op(w, i, other, disk_random(&w->random) % 14);
}

/* ---- Comparing ---- */

static bool sectors_differ(const struct world *w, const struct lvol_live_volume *v, const struct model_volume *m,
			   const struct model_volume *next)
{
	for (uint64_t k = 0; k < m->clusters * WORLD_SECTORS; k++) {
		uint64_t x = world_get(w, v, k);
		if (x != m->sectors[k] && (next == NULL || !next->there || x != next->sectors[k])) {
			return true;
		}
	}
	return false;
}

static const char *volume_differs(const struct world *w, const struct model *all, int i, const struct model *next)
{
	const struct model_volume *m = &all->volumes[i];
	const struct lvol_live_volume *v = lvol_live_find(w->store, m->name);

	if (v == NULL) {
		return "a volume is not there";
	}
	if (v->num_clusters != m->clusters) {
		return "a size";
	}
	if (v->thin != m->thin || v->read_only != m->read_only) {
		return "thin or read-only";
	}
	if (v->reserved != m->reserved) {
		return "a reservation";
	}
	if ((v->parent == NULL) != (m->parent < 0) ||
	    (v->parent != NULL && strcmp(v->parent->name, all->volumes[m->parent].name) != 0)) {
		return "a parent";
	}
	return sectors_differ(w, v, m, next == NULL ? NULL : &next->volumes[i]) ? "data" : NULL;
}

static const char *store_differs(const struct world *w, const struct model *m)
{
	struct lvol_error e;
	const struct lvol_space space = lvol_live_space(w->store, &e), usual = lvol_space_default();
	uint8_t first = m->threshold != 0 ? m->threshold : usual.percent[0];

	if (e.text[0] != '\0' || space.num != (m->threshold != 0 ? 1 : usual.num) || space.percent[0] != first) {
		return "the store's thresholds";
	}
	return strcmp(lvol_live_info(w->store).name, m->name) != 0 ? "the store's name" : NULL;
}

const char *world_differs(const struct world *w, const struct model *m, const struct model *next)
{
	const char *what = store_differs(w, m);
	uint32_t n = 0;

	for (int i = 0; i < WORLD_VOLUMES && what == NULL; i++) {
		n += m->volumes[i].there;
		what = m->volumes[i].there ? volume_differs(w, m, i, next) : NULL;
	}
	return what != NULL ? what : n != lvol_live_info(w->store).num_volumes ? "the number of volumes" : NULL;
}

static int check_read(void *ctx, uint64_t offset, void *to, size_t bytes)
{
	const struct world *w = ctx;

	CU_ASSERT_TRUE_FATAL(offset <= w->disk.size && bytes <= w->disk.size - offset);
	memcpy(to, w->disk.bytes + offset, bytes);
	return 0;
}

/* What the checker has looked at: to be freed. */
static int rescue_write(void *ctx, uint64_t offset, const void *from, size_t bytes)
{
	const struct world *w = ctx;

	CU_ASSERT_TRUE_FATAL(offset <= w->disk.size && bytes <= w->disk.size - offset);
	memcpy(w->disk.bytes + offset, from, bytes);
	return 0;
}

static int rescue_flush(void *ctx)
{
	(void)ctx;
	return 0;
}

int world_rescue(struct world *w, struct lvol_error *e)
{
	struct lvol_device d = {
		.size_bytes = w->disk.size, .read = check_read, .write = rescue_write, .flush = rescue_flush, .ctx = w};
	struct lvol_store *s;
	int rc = lvol_store_read(&d, &s, e);

	if (rc != 0) {
		return rc;
	}
	CU_ASSERT_TRUE(s->geometry.rescued && s->num_problems > 0);
	snprintf(e->text, sizeof(e->text), "%s", s->problems[0]);
	rc = lvol_store_check(s);
	rc = rc != 0 ? rc : lvol_store_close_write(s, e);
	lvol_store_free(s);
	return rc;
}

static struct lvol_store *world_checked(const struct world *w)
{
	struct lvol_device d = {.size_bytes = w->disk.size, .read = check_read, .ctx = (void *)(uintptr_t)w};
	struct lvol_store *s;
	struct lvol_error e;

	CU_ASSERT_EQUAL_FATAL(lvol_store_read(&d, &s, &e), 0);
	CU_ASSERT_EQUAL(lvol_store_check(s), 0);
	return s;
}

void world_expect_problem(const struct world *w, const char *words)
{
	struct lvol_store *s = world_checked(w);

	CU_ASSERT_EQUAL_FATAL(s->num_problems, words != NULL);
	CU_ASSERT_TRUE(words == NULL || strstr(s->problems[0], words) != NULL);
	lvol_store_free(s);
}

void world_check(const struct world *w, bool closed)
{
	const struct lvol_super *super = (const struct lvol_super *)w->disk.bytes;
	struct lvol_store *s = world_checked(w);

	CU_ASSERT_EQUAL(s->num_problems, 0);
	for (size_t i = 0; i < s->num_problems && i < 5; i++) {
		printf("problem: %s\n", s->problems[i]);
	}
	if (closed) {
		static const uint8_t zeroes[3996];
		CU_ASSERT_TRUE(s->geometry.clean && super->version == 3 && super->crc == lvol_crc(super));
		CU_ASSERT_EQUAL(memcmp(super->reserved, zeroes, sizeof(zeroes)), 0);
	}
	lvol_store_free(s);
}

void world_count(const struct world *w)
{
	struct lvol_live_info i = lvol_live_info(w->store);
	uint64_t own = 0, promised = 0, used = 0, pages = 0;

	disk_run((struct disk *)(uintptr_t)&w->disk);
	for (struct lvol_live_volume *v = NULL; (v = lvol_live_next(w->store, v)) != NULL;) {
		uint64_t n = 0;
		for (uint64_t k = 0; k < v->num_clusters; k++) {
			n += (lvol_live_entry(v, k) & LVOL_LIVE_OWN) != 0;
		}
		CU_ASSERT_EQUAL(n, v->num_own);
		own += n;
		promised += v->reserved > n ? v->reserved - n : 0;
		used += v->reserved > n ? v->reserved : n;
		CU_ASSERT_EQUAL(live_xattr_reserve_get(&v->internal->meta), v->reserved);
		pages += live_meta_promise(&v->internal->meta);
	}
	CU_ASSERT_EQUAL(pages, i.reserved_md_pages);
	CU_ASSERT_TRUE(i.missing_md_pages == 0 && pages <= i.free_md_pages);
	CU_ASSERT_EQUAL(own + lvol_live_free_clusters(w->store), i.total_data_clusters);
	CU_ASSERT_EQUAL(promised, i.reserved_clusters);
	CU_ASSERT_EQUAL(used, i.used_clusters);
	CU_ASSERT_TRUE(promised <= i.total_data_clusters - own);
}
