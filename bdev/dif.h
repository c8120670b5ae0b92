/* SPDX-License-Identifier: BSD-3-Clause */
/* Protection information in a block's metadata (NVM 5.2), in the three formats of its guard:
 *
 *				bytes	guard	app	storage and reference space
 *     DIF_GUARD_16		8	2	2	4
 *     DIF_GUARD_32		16	4	2	10
 *     DIF_GUARD_64		16	8	2	6
 *
 *     guard	CRC-16 T10-DIF, CRC-32C or CRC-64/NVME of the data, and of the metadata in front of the protection
 *		information
 *     app	the application's; ffffh (type 3: and a reference tag of all ones) says: do not check this block
 *     space	the storage tag in its first bits, as many as the format says, and the reference tag
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

/* Numbers as in Identify Namespace (PIF). */
enum dif_guard {
	DIF_GUARD_16 = 0,
	DIF_GUARD_32 = 1,
	DIF_GUARD_64 = 2,
	DIF_GUARDS,
};

#define DIF_BYTES_MIN 8u
#define DIF_BYTES_MAX 16u

/* Bytes of protection information. */
static inline unsigned dif_bytes(enum dif_guard guard)
{
	return guard == DIF_GUARD_16 ? DIF_BYTES_MIN : DIF_BYTES_MAX;
}

/* Bits of the storage and reference space. */
static inline unsigned dif_space_bits(enum dif_guard guard)
{
	return guard == DIF_GUARD_16 ? 32 : guard == DIF_GUARD_32 ? 80 : 48;
}

/* Whether a storage tag of that many bits (NVM, Storage Tag Size) can be used. The specification allows one that fills
 * the space of a guard of 16 or 64 bits, too, which leaves no reference tag: such formats are not supported. */
static inline bool dif_storage_bits_are_good(enum dif_guard guard, unsigned storage_bits)
{
	return guard == DIF_GUARD_32 ? storage_bits >= 16 && storage_bits <= 64 : storage_bits < dif_space_bits(guard);
}

struct dif_format {
	uint32_t data_size;    /* bytes per block, metadata apart */
	uint16_t md_size;      /* bytes of metadata per block */
	uint16_t offset;       /* of the protection information in the metadata */
	uint8_t type;          /* 1 to 3; 0: there is none, and metadata is made of zeroes */
	uint8_t guard;         /* enum dif_guard */
	uint8_t storage_bits;  /* of the storage tag; the rest of the space, 64 bits at most, is the reference tag */
	uint64_t storage_mask; /* bits of the storage tag that are checked */
};

enum dif_check {
	DIF_CHECK_GUARD = 1,
	DIF_CHECK_APP = 2,
	DIF_CHECK_REF = 4, /* of no effect with type 3 */
	DIF_CHECK_STORAGE = 64,
};

struct dif_tags {
	/* Of the first block: the last 64 bits of the storage and reference space. Bits that the format does not have
	 * are not looked at. */
	uint64_t ref;
	uint16_t storage; /* the first 16 bits of a space of 80 */
	uint16_t app;
	uint16_t app_mask; /* bits of app that are checked */
	uint8_t checks;    /* enum dif_check */
};

/* The first block that fails a check. */
struct dif_error {
	enum dif_check check;
	uint32_t block; /* from the first one on */
	uint64_t expected, found;
};

/* The CRC of a guard over data, continued from crc; 0: from the start. */
uint64_t dif_crc(enum dif_guard guard, uint64_t crc, const void *data, size_t bytes);

/* dif_tags.ref of the block that is `blocks` behind the one with ref: types 1 and 2 count in the reference tag. */
uint64_t dif_ref_after(const struct dif_format *f, uint64_t ref, uint64_t blocks);

/* Writes the protection information of blocks in place; iovs hold at least that many, whole. type 0: does nothing. */
void dif_generate(const struct dif_format *f, const struct dif_tags *tags, const struct iovec *iovs, uint32_t blocks);
/* Checks the protection information of blocks. False, and *error for the first block that fails. */
bool dif_verify(const struct dif_format *f, const struct dif_tags *tags, const struct iovec *iovs, uint32_t blocks,
		struct dif_error *error);

/* Types 1 and 2: gives blocks the reference tags ref, ref + 1 and so on, except blocks that are not to be checked. Type
 * 3 and 0: does nothing. */
void dif_move(const struct dif_format *f, uint64_t ref, const struct iovec *iovs, uint32_t blocks);

/* Copies the data of blocks from `skip` bytes into iovs to extended blocks, one after the other, and makes their
 * metadata. */
void dif_insert(const struct dif_format *f, const struct dif_tags *tags, const struct iovec *iovs, size_t skip,
		uint32_t blocks, void *extended);
/* Checks extended blocks, and copies their data to `skip` bytes into iovs and behind. The data of a block that fails is
 * copied, too. As dif_verify(). */
bool dif_strip(const struct dif_format *f, const struct dif_tags *tags, const struct iovec *iovs, size_t skip,
	       uint32_t blocks, const void *extended, struct dif_error *error);

#endif
