/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <string.h>

#include "unittest/lvol/image.h"

struct lvol_super *image_super(struct image *m)
{
	return (struct lvol_super *)m->bytes;
}

struct lvol_md_page *image_page(struct image *m, uint32_t index)
{
	return (struct lvol_md_page *)(m->bytes + (IMAGE_MD_FIRST + index) * LVOL_PAGE_BYTES);
}

void image_mark(struct image *m, uint64_t mask_page, uint32_t bit, bool value)
{
	uint8_t *byte = m->bytes + mask_page * LVOL_PAGE_BYTES + sizeof(struct lvol_mask_head) + bit / 8;

	*byte = (uint8_t)((*byte & ~(1 << bit % 8)) | value << bit % 8);
}

static void image_mask_init(struct image *m, uint64_t page, uint8_t type, uint32_t num_bits)
{
	struct lvol_mask_head h = {.type = type, .num_bits = num_bits};

	memcpy(m->bytes + page * LVOL_PAGE_BYTES, &h, sizeof(h));
}

void image_page_begin(struct image *m, uint32_t index, uint32_t root, uint32_t sequence)
{
	*image_page(m, index) =
		(struct lvol_md_page){.id = LVOL_ID_HIGH | root, .sequence = sequence, .next = LVOL_PAGE_NONE};
	m->filled[index] = 0;
	image_mark(m, 1, index, true);
}

void image_desc_add(struct image *m, uint32_t index, uint8_t type, const void *data, uint32_t length)
{
	struct lvol_desc_head h = {.type = type, .length = length};
	uint8_t *at = image_page(m, index)->descriptors + m->filled[index];

	memcpy(at, &h, sizeof(h));
	memcpy(at + sizeof(h), data, length);
	m->filled[index] += sizeof(h) + length;
}

void image_xattr_add(struct image *m, uint32_t index, bool internal, const char *name, const void *value,
		     uint16_t length)
{
	uint8_t data[512];
	uint16_t name_length = (uint16_t)strlen(name);

	memcpy(data, &name_length, 2);
	memcpy(data + 2, &length, 2);
	memcpy(data + 4, name, name_length);
	memcpy(data + 4 + name_length, value, length);
	image_desc_add(m, index, internal ? LVOL_DESC_XATTR_INTERNAL : LVOL_DESC_XATTR, data,
		       4u + name_length + length);
}

void image_flags_add(struct image *m, uint32_t index, uint64_t invalid, uint64_t data_ro)
{
	struct lvol_desc_flags f = {.invalid = invalid, .data_ro = data_ro};

	image_desc_add(m, index, LVOL_DESC_FLAGS, &f, sizeof(f));
}

void image_volume_add(struct image *m, uint32_t root, const char *name, const struct lvol_desc_rle *runs,
		      size_t num_runs)
{
	image_page_begin(m, root, root, 0);
	image_mark(m, 3, root, true);
	image_flags_add(m, root, 0, 0);
	image_xattr_add(m, root, false, "name", name, (uint16_t)(strlen(name) + 1));
	char uuid[] = "00000000-0000-0000-0000-000000000001";
	uuid[sizeof(uuid) - 2] = "0123456789abcdef"[root % 16];
	image_xattr_add(m, root, false, "uuid", uuid, LVOL_UUID_TEXT);
	if (num_runs > 0) {
		image_desc_add(m, root, LVOL_DESC_EXTENTS_RLE, runs, (uint32_t)(num_runs * sizeof(*runs)));
	}
	for (size_t i = 0; i < num_runs; i++) {
		for (uint32_t k = 0; runs[i].cluster != 0 && k < runs[i].count && runs[i].cluster + k < IMAGE_CLUSTERS;
		     k++) {
			image_mark(m, 2, runs[i].cluster + k, true);
		}
	}
}

void image_init(struct image *m)
{
	memset(m, 0, sizeof(*m));
	m->steps_left = UINT32_MAX;
	*image_super(m) = (struct lvol_super){
		.signature = LVOL_SIGNATURE,
		.version = 3,
		.length = LVOL_PAGE_BYTES,
		.clean = 1,
		.super_id = LVOL_ID_HIGH,
		.cluster_bytes = IMAGE_CLUSTER,
		.page_mask_first = 1,
		.page_mask_pages = 1,
		.cluster_mask_first = 2,
		.cluster_mask_pages = 1,
		.id_mask_first = 3,
		.id_mask_pages = 1,
		.md_first = IMAGE_MD_FIRST,
		.md_pages = IMAGE_MD_PAGES,
		.type = LVOL_STORE_TYPE,
		.size_bytes = sizeof(m->bytes),
		.io_unit_bytes = 4096,
		.md_page_bytes = LVOL_PAGE_BYTES,
	};
	image_mask_init(m, 1, LVOL_MASK_PAGES, IMAGE_MD_PAGES);
	image_mask_init(m, 2, LVOL_MASK_CLUSTERS, IMAGE_CLUSTERS);
	image_mask_init(m, 3, LVOL_MASK_IDS, IMAGE_MD_PAGES);
	for (uint32_t i = 0; i < 4; i++) {
		image_mark(m, 2, i, true);
	}
	image_volume_add(m, 0, "s", NULL, 0);
	image_seal(m);
}

void image_seal(struct image *m)
{
	image_super(m)->crc = lvol_crc(m->bytes);
	for (uint32_t i = 0; i < IMAGE_MD_PAGES; i++) {
		image_page(m, i)->crc = lvol_crc(image_page(m, i));
	}
}

static int image_read(void *ctx, uint64_t offset, void *to, size_t bytes)
{
	struct image *m = ctx;

	if (m->read_error != 0 && offset / LVOL_PAGE_BYTES <= m->fail_page &&
	    (offset + bytes - 1) / LVOL_PAGE_BYTES >= m->fail_page) {
		return m->read_error;
	}
	if (offset > sizeof(m->bytes) || bytes > sizeof(m->bytes) - offset) {
		return -EFAULT;
	}
	memcpy(to, m->bytes + offset, bytes);
	return 0;
}

static bool image_step(struct image *m)
{
	return m->steps_left > 0 && --m->steps_left > 0;
}

static int image_write(void *ctx, uint64_t offset, const void *from, size_t bytes)
{
	struct image *m = ctx;

	for (size_t at = 0; at < bytes; at += IMAGE_SECTOR) {
		if (!image_step(m)) {
			return -EIO;
		}
		memcpy(m->bytes + offset + at, (const uint8_t *)from + at, IMAGE_SECTOR);
		m->dirty[(offset + at) / IMAGE_SECTOR] = true;
	}
	return 0;
}

static int image_flush(void *ctx)
{
	struct image *m = ctx;

	if (!image_step(m)) {
		return -EIO;
	}
	memcpy(m->durable, m->bytes, sizeof(m->bytes));
	memset(m->dirty, 0, sizeof(m->dirty));
	return 0;
}

void image_power_fails(struct image *m, unsigned steps)
{
	m->steps_left = UINT32_MAX;
	image_flush(m);
	m->steps_left = steps;
}

void image_power_returns(struct image *m, uint32_t seed)
{
	for (size_t i = 0; i < sizeof(m->dirty) / sizeof(m->dirty[0]); i++) {
		if (m->dirty[i]) {
			seed = seed * 1664525 + 1013904223;
			if ((seed >> 16 & 1) != 0) {
				memcpy(m->durable + i * IMAGE_SECTOR, m->bytes + i * IMAGE_SECTOR, IMAGE_SECTOR);
			}
		}
	}
	memcpy(m->bytes, m->durable, sizeof(m->bytes));
	image_power_fails(m, UINT32_MAX);
}

struct lvol_device image_device(struct image *m)
{
	return (struct lvol_device){.size_bytes = sizeof(m->bytes),
				    .read = image_read,
				    .write = image_write,
				    .flush = image_flush,
				    .ctx = m};
}
