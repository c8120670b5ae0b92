/* SPDX-License-Identifier: BSD-3-Clause */
/* Pure decoders of the structures in lvol/spec.h. Nothing of what they are given is believed: each returns 0, or
 * -EILSEQ with a text that names the field, its value and what is allowed. Any thread. */
#ifndef VARVE_LVOL_DECODE_H
#define VARVE_LVOL_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lvol/spec.h"

/* Why something was refused. */
struct lvol_error {
	char text[200];
};

/* Pages, counted from the beginning of the store. */
struct lvol_area {
	uint32_t first, pages;
};

/* A superblock that was found to be right: the areas lie behind each other and within the store, and each mask has room
 * for its bits. */
struct lvol_geometry {
	uint32_t version;
	bool clean;
	uint64_t super_id; /* LVOL_ID_NONE: the store has no name */
	uint64_t size_bytes;
	uint32_t cluster_bytes, io_unit_bytes;
	uint32_t num_clusters;
	uint32_t num_md_clusters; /* the first clusters, which hold metadata */
	struct lvol_area page_mask, cluster_mask, id_mask, md;
	uint32_t journal_first, journal_slot_pages; /* metadata pages; 0: none. See struct lvol_super_open */
	struct lvol_owner owner;                    /* who has it open, or had it */
	bool rescued; /* the superblock is damaged, and this is what its copy says: lvol/rescue.h */
};

/* What a superblock must have been from which power took some sectors: itself if its crc fits. Returns whether `to` has
 * one whose crc fits. */
bool lvol_super_settle(const struct lvol_super *s, struct lvol_super *to);

/* Whether page 0 has a partition table, which no superblock has. */
bool lvol_super_has_partitions(const struct lvol_super *found);

/* device_bytes: the size of what the store is on. */
int lvol_super_decode(const struct lvol_super *s, uint64_t device_bytes, struct lvol_geometry *g, struct lvol_error *e);

/* The CRC32C of a page or a superblock: of all of it but the last 4 bytes. */
uint32_t lvol_crc(const void *page);

/* The CRC32C of the pages behind the head of a slot of the journal, each without its last 4 bytes. */
uint32_t lvol_journal_crc(const struct lvol_journal_head *h);

/* How many of the first metadata pages may be in use, by the slot of the journal that counts (NULL: none). */
uint32_t lvol_journal_used(const struct lvol_journal_head *h, uint32_t md_pages);

/* Checks a slot of the journal, `slot_pages` long, of a store with so many metadata pages. Returns whether it is valid:
 * a slot that is not is one whose write was not completed. */
bool lvol_journal_decode(const void *slot, uint32_t slot_pages, uint32_t md_pages);

/* Bytes that the head and num_bits bits of a mask take. */
size_t lvol_mask_bytes(uint32_t num_bits);

/* Pages that they take. */
uint64_t lvol_mask_pages(uint32_t num_bits);

/* Checks the head of a mask, which must have just num_bits bits. Returns the bits, or NULL. bytes:
 * lvol_mask_bytes(num_bits) of them. */
const uint8_t *lvol_mask_decode(const void *bytes, enum lvol_mask_type type, uint32_t num_bits, struct lvol_error *e);

static inline bool lvol_bit(const uint8_t *bits, uint64_t n)
{
	return bits[n / 8] >> n % 8 & 1;
}

/* Checks a metadata page apart from its descriptors. index: its place in the metadata area. */
int lvol_page_decode(const struct lvol_md_page *p, uint32_t index, uint32_t md_pages, struct lvol_error *e);

/* Whether a good page is the first one of a volume. */
bool lvol_page_is_root(const struct lvol_md_page *p, uint32_t index);

struct lvol_desc {
	uint8_t type; /* enum lvol_desc_type, or one that we do not know */
	uint32_t length;
	const uint8_t *data; /* in the page, at any alignment */
};

/* Finds the next descriptor of a page. at: where it may begin; 0 at first. Returns 1, 0 behind the last one, or
 * -EILSEQ. */
int lvol_desc_next(const struct lvol_md_page *p, size_t *at, struct lvol_desc *d, struct lvol_error *e);

struct lvol_xattr {
	const char *name; /* name_length bytes, without a 0 */
	uint16_t name_length;
	const uint8_t *value;
	uint16_t value_length;
};

/* Decodes an extended attribute; x points into the page. Any number of them have one name. */
int lvol_xattr_decode(const struct lvol_desc *d, struct lvol_xattr *x, struct lvol_error *e);

/* Whether it has that name. */
bool lvol_xattr_is(const struct lvol_xattr *x, const char *name);

/* Decodes a volume's flags, and refuses those without which it must not be used. */
int lvol_flags_decode(const struct lvol_desc *d, struct lvol_desc_flags *f, struct lvol_error *e);

/* The entry n of an array that begins `skip` bytes behind the head of a descriptor. The caller has checked that it is
 * there. */
struct lvol_desc_rle lvol_desc_pair(const struct lvol_desc *d, size_t skip, size_t n);

/* The number that begins `at` bytes behind the head. The caller has checked that it is there. */
uint32_t lvol_desc_u32(const struct lvol_desc *d, size_t at);
/* See lvol_desc_u32(). */
uint64_t lvol_desc_u64(const struct lvol_desc *d, size_t at);

#endif
