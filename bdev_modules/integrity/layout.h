/* SPDX-License-Identifier: BSD-3-Clause */
/* What an integrity bdev keeps on its base, and pure functions that make and check it. Numbers are little endian.
 *
 *     unit 0                the superblock
 *     units 1 ...           the bitmap of open regions, in two copies
 *     behind them           the checksum pages, one for each region
 *     data_first ...        the data: unit n of the bdev is unit data_first + n of the base
 *     size_units - 1        the superblock again
 *
 * A unit has 4096 bytes, a region 512 units. All pages have 4096 bytes, and the CRC32C of what is before in their last
 * four. A checksum page is zeroes until its region has been closed for the first time, which the bitmap notes: later a
 * page of zeroes is one that was lost.
 *
 * A region is marked as open before the first write to it, and as closed when its data and its checksum page are
 * durable. Of a region that is found open after a crash nothing is known. Nothing of what is read is believed: each
 * function returns 0 or -EILSEQ, and why. Any thread. */
#ifndef BDEV_INTEGRITY_LAYOUT_H
#define BDEV_INTEGRITY_LAYOUT_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct iov_cursor;

#define INTEGRITY_UNIT_BYTES     4096u
#define INTEGRITY_REGION_UNITS   512u
#define INTEGRITY_REGION_SHIFT   9u
#define INTEGRITY_VERSION        1u
#define INTEGRITY_MAGIC          "varve-integrity" /* with the 0: 16 bytes */
#define INTEGRITY_BITMAP_MAGIC   0x62697456u
#define INTEGRITY_SUMS_MAGIC     0x6d757356u
#define INTEGRITY_BITMAP_REGIONS 16240u
#define INTEGRITY_SUM_UNKNOWN    0u                  /* the unit is read without a check */
#define INTEGRITY_SEQUENCE_MAX   (UINT64_C(1) << 62) /* of a right page; one that is wrong may have any */
#define INTEGRITY_REGIONS_MAX    (UINT32_C(1) << 30)

struct integrity_super {
	char magic[16];
	uint32_t version, unit_bytes, region_units, bitmap_pages;
	uint8_t uuid[16]; /* of the bdev */
	uint64_t id;      /* of this making of it: pages with another one are not part of it */
	uint64_t size_units, data_first, data_units;
	uint8_t reserved[4096 - 80 - 4];
	uint32_t crc;
};
static_assert(sizeof(struct integrity_super) == INTEGRITY_UNIT_BYTES, "a unit");

struct integrity_bitmap_page {
	uint32_t magic, index;
	uint64_t id;
	/* Grows with each write of the page; the copies are written in turns, each when the other is durable. */
	uint64_t sequence;
	uint8_t reserved[8];
	uint8_t bits[INTEGRITY_BITMAP_REGIONS / 8];   /* regions that are open */
	uint8_t closed[INTEGRITY_BITMAP_REGIONS / 8]; /* regions that have a checksum page, unless they are open */
	uint32_t crc;
};
static_assert(sizeof(struct integrity_bitmap_page) == INTEGRITY_UNIT_BYTES, "a unit");

struct integrity_sums_page {
	uint32_t magic, region;
	uint64_t id;
	uint32_t sum[INTEGRITY_REGION_UNITS]; /* by unit of the region; INTEGRITY_SUM_UNKNOWN */
	uint8_t reserved[4096 - 16 - 4 * INTEGRITY_REGION_UNITS - 4];
	uint32_t crc;
};
static_assert(sizeof(struct integrity_sums_page) == INTEGRITY_UNIT_BYTES, "a unit");

/* Where everything is, in units of the base. */
struct integrity_layout {
	uint64_t id;
	uint8_t uuid[16];
	uint64_t size_units; /* of the base, when it was made */
	uint32_t regions, bitmap_pages;
	uint64_t bitmap_first, sums_first, data_first, data_units;
};

/* Why something was refused. */
struct integrity_error {
	char text[160];
};

/* Computes the layout for a base of that many units; -EINVAL: it is too small or too large. id and uuid are left. */
int integrity_layout_make(struct integrity_layout *l, uint64_t size_units, struct integrity_error *e);
/* The superblock of a layout. */
void integrity_super_encode(struct integrity_super *s, const struct integrity_layout *l);
/* Whether it begins as a superblock does, right or wrong. */
bool integrity_super_is_one(const struct integrity_super *s);
/* Checks a superblock; base_units: the present size of the base, which may have grown. */
int integrity_super_decode(const struct integrity_super *s, uint64_t base_units, struct integrity_layout *l,
			   struct integrity_error *e);

/* Fills in all of a bitmap page but the bits and the sequence. */
void integrity_bitmap_seal(struct integrity_bitmap_page *p, const struct integrity_layout *l, uint32_t index);
/* Checks a copy of bitmap page `index`. */
int integrity_bitmap_decode(const struct integrity_bitmap_page *p, const struct integrity_layout *l, uint32_t index,
			    struct integrity_error *e);
/* Makes `to` the page that counts of its two copies: the later one that is right. A wrong one is one that was being
 * written when power failed, and then the earlier one is right for all I/O that was answered. If both are wrong, all
 * regions count as open: -EILSEQ. */
int integrity_bitmap_choose(const struct integrity_bitmap_page copies[2], const struct integrity_layout *l,
			    uint32_t index, struct integrity_bitmap_page *to, struct integrity_error *e);
/* Makes `to` a page with which all regions are open, as if it were the successor of the later copy: a copy that cannot
 * be read, which is zeroes here, may be the one that counts. */
void integrity_bitmap_open_all(const struct integrity_bitmap_page copies[2], struct integrity_bitmap_page *to);
static inline bool integrity_bitmap_is_open(const struct integrity_bitmap_page *p, uint32_t bit)
{
	return p->bits[bit / 8] >> bit % 8 & 1;
}
static inline bool integrity_bitmap_has_sums(const struct integrity_bitmap_page *p, uint32_t bit)
{
	return p->closed[bit / 8] >> bit % 8 & 1;
}
/* Marks a region as open or not. */
void integrity_bitmap_set(struct integrity_bitmap_page *p, uint32_t bit, bool open);
/* Marks a region as one that has a checksum page when it is not open. */
void integrity_bitmap_set_has_sums(struct integrity_bitmap_page *p, uint32_t bit);
/* How many regions of page `index` are open. */
uint32_t integrity_bitmap_count(const struct integrity_bitmap_page *p, const struct integrity_layout *l,
				uint32_t index);

/* Fills in all of a checksum page but the checksums. */
void integrity_sums_seal(struct integrity_sums_page *p, const struct integrity_layout *l, uint32_t region);
/* Checks the checksum page of a region, and copies the checksums; INTEGRITY_SUM_UNKNOWN all of them if it is wrong.
 * written: the region has been closed, so that a page of zeroes is wrong. */
int integrity_sums_decode(const struct integrity_sums_page *p, const struct integrity_layout *l, uint32_t region,
			  bool written, uint32_t sum[INTEGRITY_REGION_UNITS], struct integrity_error *e);

/* The checksum of the next unit of data, never INTEGRITY_SUM_UNKNOWN: its CRC32C, or 1 if that is 0. c moves behind the
 * unit. */
uint32_t integrity_sum(struct iov_cursor *c);
/* That of a unit of zeroes. */
uint32_t integrity_sum_of_zeroes(void);

#endif
