/* SPDX-License-Identifier: BSD-3-Clause */
/* Stores that another program made, from unittest/data. */
#ifndef UNITTEST_LVOL_SAMPLES_H
#define UNITTEST_LVOL_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sample_page {
	uint32_t page;
	bool repeats;         /* the first 16 bytes */
	const uint8_t *bytes; /* 4096 or 16 */
};

struct sample {
	uint64_t bytes;
	size_t num_pages; /* that are not zeroes */
	const struct sample_page *pages;
};

extern const struct sample sample_clean, sample_dirty;

#endif
