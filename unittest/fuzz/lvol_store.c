/* SPDX-License-Identifier: BSD-3-Clause */
/* Any bytes as a volume store: nothing reads or writes outside of it, and what is accepted keeps its promises. What can
 * be opened for writing is changed and closed, and is a good store then. Input: the first
 * pages of the store, the rest is zeroes. The checksums of the superblock and of the metadata pages are made right,
 * except where the first byte of the input is odd; that of the superblock is wrong where it has bit 1, so that its copy
 * is used. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lvol/live.h"
#include "lvol/reserve.h"

enum { STORE_BYTES = 4 << 20, INPUT_MAX = 256 << 10 };
static uint8_t bytes[STORE_BYTES];
static bool written;

static void expect(bool truth)
{
	if (!truth) {
		abort();
	}
}

static int fuzz_read(void *ctx, uint64_t offset, void *to, size_t n)
{
	expect(offset <= STORE_BYTES && n <= STORE_BYTES - offset);
	memcpy(to, bytes + offset, n);
	return 0;
}

static void seal(void)
{
	struct lvol_super *s = (struct lvol_super *)bytes;

	s->crc = lvol_crc(s);
	for (uint64_t page = s->md_first;
	     page < (uint64_t)s->md_first + s->md_pages && page < INPUT_MAX / LVOL_PAGE_BYTES; page++) {
		struct lvol_md_page *p = (struct lvol_md_page *)(bytes + page * LVOL_PAGE_BYTES);
		p->crc = lvol_crc(p);
	}
}

static void walk(const struct lvol_store *s, const struct lvol_volume *v)
{
	static char data[4096];
	uint64_t size = v->num_clusters * s->geometry.cluster_bytes;

	for (size_t i = 0; i < v->num_runs; i++) {
		const struct lvol_run *r = &v->runs[i];
		expect(r->count > 0 && r->cluster >= s->geometry.num_md_clusters &&
		       r->count <= s->geometry.num_clusters - r->cluster);
		expect(i == 0 || r->first >= v->runs[i - 1].first + v->runs[i - 1].count);
		expect(lvol_volume_cluster(v, r->first) == r->cluster);
		expect(lvol_volume_data(s, v, r->first * s->geometry.cluster_bytes, data, sizeof(data)) ==
		       (v->damaged ? -EILSEQ : 0));
	}
	if (size > 0) {
		lvol_volume_data(s, v, size - 1, data, 1);
	}
}

/* ---- Opening it for writing ---- */

static void live_read(void *ctx, uint64_t offset, void *to, size_t n, lvol_live_done done, void *arg)
{
	done(arg, fuzz_read(ctx, offset, to, n));
}

static void live_write(void *ctx, uint64_t offset, const void *from, size_t n, lvol_live_done done, void *arg)
{
	(void)ctx;
	expect(offset <= STORE_BYTES && n <= STORE_BYTES - offset);
	memcpy(bytes + offset, from, n);
	done(arg, 0);
}

static void live_zeroes(void *ctx, uint64_t offset, uint64_t n, lvol_live_done done, void *arg)
{
	(void)ctx;
	expect(offset <= STORE_BYTES && n <= STORE_BYTES - offset);
	memset(bytes + offset, 0, n);
	done(arg, 0);
}

static void live_nothing(void *ctx, lvol_live_done done, void *arg)
{
	(void)ctx;
	done(arg, 0);
}

static struct lvol_live *opened;

static void live_opened(void *arg, int status, struct lvol_live *s, const struct lvol_error *e)
{
	(void)arg;
	expect((status == 0) == (s != NULL) && (status == 0 || e->text[0] != 0));
	opened = s;
}

static void status_set(void *arg, int status)
{
	*(int *)arg = status;
}

static void volume_set(void *arg, int status, struct lvol_live_volume *v)
{
	(void)v;
	*(int *)arg = status;
}

/* What a store says of its thresholds is good, or the default ones. */
static void space_walk(void)
{
	struct lvol_error e;
	const struct lvol_space space = lvol_live_space(opened, NULL);
	int status = 1;

	expect(lvol_space_check(space.percent, space.num, &e) == 0);
	lvol_live_set_space(opened, &space, status_set, &status);
}

static void space_fuzz(const void *value, size_t size)
{
	struct lvol_error e = {""};
	struct lvol_space space;
	int rc = lvol_space_decode(value, size, &space, &e);

	expect((rc == 0) == (e.text[0] == 0) && lvol_space_check(space.percent, space.num, &e) == 0);
	expect(rc != 0 || lvol_space_reached(&space, 0, size, size) == LVOL_SPACE_FULL);
}

static void reserve_fuzz(const void *value, size_t size)
{
	uint8_t again[LVOL_RESERVE_BYTES];
	struct lvol_error e = {""};
	uint64_t clusters;
	int rc = lvol_reserve_decode(value, size, &clusters, &e);

	expect((rc == 0) == (e.text[0] == 0) && (rc == 0 || clusters == 0));
	lvol_reserve_encode(clusters, again);
	expect(rc != 0 || memcmp(again, value, sizeof(again)) == 0);
}

/* Changes each volume, in a way that fits. */
static void live_change(void)
{
	static char names[64][16];
	int status = 1, n = 0;

	for (struct lvol_live_volume *v = NULL; n < 64 && (v = lvol_live_next(opened, v)) != NULL; n++) {
		struct lvol_live_fill f;
		snprintf(names[n], sizeof(names[n]), "fuzz%d", n);
		if (v->num_clusters > 0 && lvol_live_fill_claim(v, 0, &f) == 0) {
			lvol_live_fill_commit(&f, status_set, &status);
		}
		expect(v->reserved <= v->num_clusters && (!v->read_only || v->reserved == 0));
		if (!v->read_only) {
			lvol_live_volume_reserve(v, v->num_clusters / 3, status_set, &status);
			lvol_live_volume_snapshot(v, names[n], names[n], volume_set, &status);
			lvol_live_volume_resize(v, v->num_clusters / 2, status_set, &status);
		} else if (v->num_clones == 1) {
			struct lvol_live_volume *gone = v;
			v = lvol_live_next(opened, NULL);
			lvol_live_volume_delete(gone, status_set, &status);
			break;
		}
	}
}

static void live_walk(const struct lvol_device *device)
{
	static const struct lvol_live_user user = {
		.size_bytes = STORE_BYTES,
		.block_bytes = 512,
		.read = live_read,
		.write = live_write,
		.flush = live_nothing,
		.write_zeroes = live_zeroes,
		.synchronize = live_nothing,
	};
	struct lvol_store *s;
	struct lvol_error e;
	int status = 1;

	lvol_live_open(&user, live_opened, NULL);
	if (opened == NULL) {
		return;
	}
	space_walk();
	live_change();
	lvol_live_close(opened, status_set, &status);
	expect(status == 0);
	expect(lvol_store_read(device, &s, &e) == 0 && lvol_store_check(s) == 0 && s->geometry.clean);
	for (size_t i = 0; i < s->num_volumes; i++) {
		expect(!s->volumes[i].damaged);
	}
	expect(s->clusters_shared == 0);
	lvol_store_free(s);
}

/* Maps of forged sizes take only time. */
static bool sizes_are_small(const struct lvol_store *s)
{
	for (size_t i = 0; i < s->num_volumes; i++) {
		if (s->volumes[i].num_clusters > 1 << 16) {
			return false;
		}
	}
	return s->num_volumes < 64;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct lvol_device device = {.size_bytes = STORE_BYTES, .read = fuzz_read};
	struct lvol_store *s;
	struct lvol_error e;

	if (size < 1 || size > INPUT_MAX) {
		return 0;
	}
	space_fuzz(data, size);
	reserve_fuzz(data, size);
	memset(bytes, 0, written ? STORE_BYTES : INPUT_MAX);
	written = false;
	memcpy(bytes, data + 1, size - 1);
	if ((data[0] & 1) == 0) {
		seal();
	}
	bytes[LVOL_PAGE_BYTES - 1] ^= data[0] & 2;
	if (lvol_store_read(&device, &s, &e) != 0) {
		expect(e.text[0] != 0);
		return 0;
	}
	for (size_t i = 0; i < s->num_volumes; i++) {
		walk(s, &s->volumes[i]);
	}
	expect(lvol_store_check(s) == 0);
	bool small = sizes_are_small(s);
	lvol_store_free(s);
	if (small) {
		written = true;
		live_walk(&device);
	}
	return 0;
}
