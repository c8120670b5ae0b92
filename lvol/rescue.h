/* SPDX-License-Identifier: BSD-3-Clause */
/* The second copy of a superblock. The format has one superblock, in page 0. What never changes in it is also an
 * extended attribute of the volume that names the store, which other programs preserve; what changes while varve has
 * the store open (struct lvol_super_open) is also in each head of the journal. Where both are is found without page 0,
 * by the heads of the masks. Pure functions, one thread at a time; nothing of what they are given is believed.
 *
 * Why a copy is never older than the superblock: nobody changes the fields of the attribute but its size, which only
 * grows. A head of the journal is written before the superblock says "open", and becomes zeroes before it says
 * "closed". Whatever else the superblock says of a store that is closed, its masks, is not believed: all metadata pages
 * are read.
 *
 * The device may have been given another use since, of which page 0 need not show anything. So nobody rescues a store
 * by himself: it takes the word of an operator (varve-lvol repair --superblock). */
#ifndef VARVE_LVOL_RESCUE_H
#define VARVE_LVOL_RESCUE_H

#include "lvol/decode.h"

#define LVOL_COPY_XATTR "varve_super"

enum { LVOL_COPY_FORM = 1, LVOL_RESCUE_PAGES_MAX = 256 };

/* The value of the attribute. */
struct lvol_super_copy {
	uint8_t form;
	uint32_t cluster_bytes, io_unit_bytes;
	uint32_t page_mask_first, page_mask_pages;
	uint32_t cluster_mask_first, cluster_mask_pages;
	uint32_t id_mask_first, id_mask_pages;
	uint32_t md_first, md_pages;
	uint64_t size_bytes;
} __attribute__((packed));
static_assert(sizeof(struct lvol_super_copy) == 49, "the copy of a superblock");

/* Makes the copy of a good superblock. Returns false if it could not be found without it, because the masks do not lie
 * as programs lay them. */
bool lvol_super_copy_make(const struct lvol_super *s, struct lvol_super_copy *c);

/* Whether the attribute of a volume is the copy of this superblock, as it is or as it was when the store was smaller.
 */
bool lvol_super_copy_is_of(const struct lvol_super *s, uint64_t volume, const void *value, size_t bytes);

/* Whether page 0 is the superblock of a volume store that was damaged, and not one that power has torn. A page of
 * zeroes is none: the store was destroyed. Nor is one that has neither the signature nor the type, nor one with a
 * partition table: programs that write these leave the bytes before them. */
bool lvol_super_is_damaged(const struct lvol_super *found);
/* Adds to the error of such a superblock what can be done. */
void lvol_rescue_refuse(struct lvol_error *e);

enum lvol_rescue_step {
	LVOL_RESCUE_PAGE_MASK,
	LVOL_RESCUE_CLUSTER_MASK,
	LVOL_RESCUE_ID_MASK,
	LVOL_RESCUE_PAGES,
	LVOL_RESCUE_FOUND,
	LVOL_RESCUE_LOST,
};

/* The search for a copy, page by page. */
struct lvol_rescue {
	enum lvol_rescue_step step;
	uint64_t device_bytes;
	uint32_t num_clusters; /* by the mask */
	struct lvol_area page_mask, cluster_mask, id_mask, md;
	bool tight;                       /* the mask of clusters has no room for more of them */
	uint32_t at;                      /* the next metadata page */
	bool has_copy, has_open;          /* what was found */
	bool copies_differ, opens_differ; /* and does not fit */
	bool old_journal;                 /* a head of the journal without what the superblock says */
	struct lvol_super_copy copy;
	struct lvol_super_open open; /* of the head that counts */
	uint64_t generation;         /* of that head */
	bool open_used;              /* its journal has pages */
	uint64_t open_bytes;         /* the size that heads know */
};

/* Begins a search on a device of that size. */
void lvol_rescue_begin(struct lvol_rescue *r, uint64_t device_bytes);
/* The pages that are to be read next: how many, at most LVOL_RESCUE_PAGES_MAX, within the device. 0: it is over. */
uint32_t lvol_rescue_next(const struct lvol_rescue *r, uint64_t *first);
/* They were read. */
void lvol_rescue_take(struct lvol_rescue *r, const void *pages);
/* What was found: the superblock of a store that was not closed, and its geometry. e: why the superblock is damaged;
 * what has become of it is added. Returns 0, or -EILSEQ if there is none that is certain. */
int lvol_rescue_decode(const struct lvol_rescue *r, struct lvol_super *super, struct lvol_geometry *g,
		       struct lvol_error *e);

#endif
