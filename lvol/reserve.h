/* SPDX-License-Identifier: BSD-3-Clause */
/* Reservations: how many clusters of its own a volume is sure of. Pure functions for what is stored of them. */
#ifndef VARVE_LVOL_RESERVE_H
#define VARVE_LVOL_RESERVE_H

#include <stddef.h>
#include <stdint.h>

#include "lvol/decode.h"

enum {
	LVOL_RESERVE_FORM = 1,
	LVOL_RESERVE_BYTES = 1 + 8,
};

/* The extended attribute of a volume with a reservation: the number of this form, then the clusters in 8 bytes, little
 * endian. Other programs pass over attributes that they do not know. */
#define LVOL_RESERVE_XATTR "varve_reserved"

/* Writes the value of the attribute. */
void lvol_reserve_encode(uint64_t clusters, uint8_t value[LVOL_RESERVE_BYTES]);
/* From the value of the attribute. 0; or -EINVAL and the reason in e, and *clusters is 0. */
int lvol_reserve_decode(const void *value, size_t bytes, uint64_t *clusters, struct lvol_error *e);

/* What counts of a reservation that a volume says: no more than its size, and none of a volume that cannot be written,
 * or whose flags forbid changes. */
uint64_t lvol_reserve_counts(const struct lvol_desc_flags *flags, uint64_t num_clusters, uint64_t reserved);

/* How many pages the table of a volume has, if all its clusters are its own. */
static inline uint64_t lvol_tables(uint64_t num_clusters)
{
	return num_clusters / LVOL_EXTENT_PAGE_CLUSTERS + (num_clusters % LVOL_EXTENT_PAGE_CLUSTERS != 0);
}

/* How many free metadata pages a volume with a reservation needs to write any of its clusters, whatever it gives up
 * between: its table has `tables` pages with the places of clusters when it has all of them, and `present` now; its
 * chain behind the root page has `chain_most` pages at most, and `chain` now. A first write into a page that is not
 * there writes the whole chain anew, before the old one is free. */
uint64_t lvol_reserve_pages(uint64_t tables, uint64_t present, uint64_t chain_most, uint64_t chain);

#endif
