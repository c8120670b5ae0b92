/* SPDX-License-Identifier: BSD-3-Clause */
/* Protection information with a 16-bit guard (NVM 5.2, "16b Guard Protection Information"): 8 bytes in a block's
 * metadata.
 *
 *     guard	CRC-16 T10-DIF of the data, and of the metadata in front of the protection information
 *     app	the application's; ffffh (type 3: and a reference tag of ffffffffh) says: do not check this block
 *     ref	types 1 and 2: one more with each block; type 3: the application's
 *
 * Pure functions over blocks whose metadata follows their data (extended blocks), wherever iovs cut them. Any thread.
 */
#ifndef BDEV_DIF_H
#define BDEV_DIF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define DIF_BYTES 8u

struct dif_format {
	uint32_t data_size; /* bytes per block, metadata apart */
	uint16_t md_size;   /* bytes of metadata per block */
	uint16_t offset;    /* of the protection information in the metadata */
	uint8_t type;       /* 1 to 3; 0: there is none, and metadata is made of zeroes */
};

enum dif_check {
	DIF_CHECK_GUARD = 1,
	DIF_CHECK_APP = 2,
	DIF_CHECK_REF = 4, /* of no effect with type 3 */
};

struct dif_tags {
	uint32_t ref; /* of the first block */
	uint16_t app;
	uint16_t app_mask; /* bits of app that are checked */
	uint8_t checks;    /* enum dif_check */
};

/* The first block that fails a check. */
struct dif_error {
	enum dif_check check;
	uint32_t block; /* from the first one on */
	uint32_t expected, found;
};

/* CRC-16 T10-DIF (polynomial 8bb7h) of data, continued from crc; 0: from the start. */
uint16_t dif_crc(uint16_t crc, const void *data, size_t bytes);

/* Writes the protection information of blocks in place; iovs hold at least that many, whole. type 0: does nothing. */
void dif_generate(const struct dif_format *f, const struct dif_tags *tags, const struct iovec *iovs, uint32_t blocks);
/* Checks the protection information of blocks. False, and *error for the first block that fails. */
bool dif_verify(const struct dif_format *f, const struct dif_tags *tags, const struct iovec *iovs, uint32_t blocks,
		struct dif_error *error);

/* Types 1 and 2: gives blocks the reference tags ref, ref + 1 and so on, except blocks that are not to be checked. Type
 * 3 and 0: does nothing. */
void dif_move(const struct dif_format *f, uint32_t ref, const struct iovec *iovs, uint32_t blocks);

/* Copies the data of blocks from `skip` bytes into iovs to extended blocks, one after the other, and makes their
 * metadata. */
void dif_insert(const struct dif_format *f, const struct dif_tags *tags, const struct iovec *iovs, size_t skip,
		uint32_t blocks, void *extended);
/* Checks extended blocks, and copies their data to `skip` bytes into iovs and behind. The data of a block that fails is
 * copied, too. As dif_verify(). */
bool dif_strip(const struct dif_format *f, const struct dif_tags *tags, const struct iovec *iovs, size_t skip,
	       uint32_t blocks, const void *extended, struct dif_error *error);

#endif
