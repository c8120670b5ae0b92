/* SPDX-License-Identifier: BSD-3-Clause */
/* A volume store in memory, made page by page. */
#ifndef UNITTEST_LVOL_IMAGE_H
#define UNITTEST_LVOL_IMAGE_H

#include "lvol/store.h"

enum { IMAGE_CLUSTER = 16384, IMAGE_CLUSTERS = 32, IMAGE_MD_FIRST = 4, IMAGE_MD_PAGES = 12, IMAGE_SECTOR = 512 };

struct image {
	uint8_t bytes[IMAGE_CLUSTER * IMAGE_CLUSTERS];
	size_t filled[IMAGE_MD_PAGES]; /* of the descriptors of each metadata page */
	int read_error;                /* what reads of image_fail_page answer */
	uint64_t fail_page;
	/* Writes of a repair: */
	uint8_t durable[IMAGE_CLUSTER * IMAGE_CLUSTERS];
	bool dirty[IMAGE_CLUSTER * IMAGE_CLUSTERS / IMAGE_SECTOR];
	unsigned steps_left; /* sectors written and flushes before power fails */
};

/* A closed store "s" without volumes, of 32 clusters of 4 pages; the first 4 hold the metadata. */
void image_init(struct image *m);
struct lvol_super *image_super(struct image *m);
struct lvol_md_page *image_page(struct image *m, uint32_t index);
/* Begins a page, whose volume has its root page at `root`. */
void image_page_begin(struct image *m, uint32_t index, uint32_t root, uint32_t sequence);
void image_desc_add(struct image *m, uint32_t index, uint8_t type, const void *data, uint32_t length);
void image_xattr_add(struct image *m, uint32_t index, bool internal, const char *name, const void *value,
		     uint16_t length);
void image_flags_add(struct image *m, uint32_t index, uint64_t invalid, uint64_t data_ro);
/* A volume with the extents that are given as runs {cluster, count}. */
void image_volume_add(struct image *m, uint32_t root, const char *name, const struct lvol_desc_rle *runs,
		      size_t num_runs);
/* Marks in the masks. */
void image_mark(struct image *m, uint64_t mask_page, uint32_t bit, bool value);
/* Gives all pages, and the superblock, the crc of their contents. */
void image_seal(struct image *m);
/* Lets power fail after so many steps. All that is in `bytes` by then is durable. */
void image_power_fails(struct image *m, unsigned steps);
/* What is found when power is back: of the sectors that were written since the last flush those that `seed` chooses. */
void image_power_returns(struct image *m, uint32_t seed);
struct lvol_device image_device(struct image *m);

#endif
