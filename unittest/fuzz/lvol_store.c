/* SPDX-License-Identifier: BSD-3-Clause */
/* Any bytes as a volume store: nothing reads outside of it, and what is accepted keeps its promises. Input: the first
 * pages of the store, the rest is zeroes. The checksums of the superblock and of the metadata pages are made right,
 * except where the first byte of the input is odd. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lvol/store.h"

enum { STORE_BYTES = 4 << 20, INPUT_MAX = 256 << 10 };
static uint8_t bytes[STORE_BYTES];

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct lvol_device device = {.size_bytes = STORE_BYTES, .read = fuzz_read};
	struct lvol_store *s;
	struct lvol_error e;

	if (size < 1 || size > INPUT_MAX) {
		return 0;
	}
	memset(bytes, 0, INPUT_MAX);
	memcpy(bytes, data + 1, size - 1);
	if ((data[0] & 1) == 0) {
		seal();
	}
	if (lvol_store_read(&device, &s, &e) != 0) {
		expect(e.text[0] != 0);
		return 0;
	}
	for (size_t i = 0; i < s->num_volumes; i++) {
		walk(s, &s->volumes[i]);
	}
	expect(lvol_store_check(s) == 0);
	lvol_store_free(s);
	return 0;
}
