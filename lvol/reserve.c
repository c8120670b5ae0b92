/* SPDX-License-Identifier: BSD-3-Clause */
#include "lvol/reserve.h"

#include <errno.h>

#include "lvol/internal.h"

void lvol_reserve_encode(uint64_t clusters, uint8_t value[LVOL_RESERVE_BYTES])
{
	value[0] = LVOL_RESERVE_FORM;
	for (size_t i = 1; i < LVOL_RESERVE_BYTES; i++) {
		value[i] = (uint8_t)(clusters >> 8 * (i - 1));
	}
}

int lvol_reserve_decode(const void *value, size_t bytes, uint64_t *clusters, struct lvol_error *e)
{
	const uint8_t *v = value;

	*clusters = 0;
	if (bytes != LVOL_RESERVE_BYTES || v[0] != LVOL_RESERVE_FORM) {
		lvol_refuse(e, "the reservation has another form than %d, which has %d bytes", LVOL_RESERVE_FORM,
			    LVOL_RESERVE_BYTES);
		return -EINVAL;
	}
	for (size_t i = LVOL_RESERVE_BYTES; i-- > 1;) {
		*clusters = *clusters << 8 | v[i];
	}
	return 0;
}

uint64_t lvol_reserve_counts(const struct lvol_desc_flags *flags, uint64_t num_clusters, uint64_t reserved)
{
	if (flags->data_ro != 0 || (flags->md_ro & ~LVOL_MD_RO_KNOWN) != 0) {
		return 0;
	}
	return reserved < num_clusters ? reserved : num_clusters;
}

uint64_t lvol_reserve_pages(uint64_t tables, uint64_t present, uint64_t chain_most, uint64_t chain)
{
	if (present >= tables) {
		return 0;
	}
	return tables - present + chain_most + (chain < chain_most ? chain_most - chain : 0);
}
