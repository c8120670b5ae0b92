/* SPDX-License-Identifier: BSD-3-Clause */
/* When a store is so full that its operators are to be told: thresholds, in per cent of its clusters. Pure functions.
 *
 * A store reaches a threshold when so many of its clusters are in use or reserved, and leaves it only when there are
 * fewer by more than a margin of 2 %, rounded up: so a volume that gives up and takes a few clusters does not cross a
 * threshold again and again. A store is full, whatever its thresholds are, while all of them are. That has no margin:
 * the first writes that it says to fail do not fail any more when one is free, and fail again when it is taken. */
#ifndef VARVE_LVOL_SPACE_H
#define VARVE_LVOL_SPACE_H

#include <stddef.h>
#include <stdint.h>

#include "lvol/store.h"

enum {
	LVOL_SPACE_MAX = 8,    /* thresholds that a store may have */
	LVOL_SPACE_FULL = 100, /* per cent: all its clusters are in use or reserved */
	LVOL_SPACE_MARGIN = 2, /* per cent */
	LVOL_SPACE_FORM = 1,
	LVOL_SPACE_BYTES = 1 + LVOL_SPACE_MAX,
};

/* The extended attribute of the volume that names the store, which keeps the thresholds: the number of this form, and
 * one byte for each threshold. Other programs pass over attributes that they do not know. */
#define LVOL_SPACE_XATTR "varve_space"

struct lvol_space {
	uint8_t num;
	uint8_t percent[LVOL_SPACE_MAX]; /* ascending, 1 to 99 */
};

/* 80, 90 and 95 %: of a store that says nothing. */
struct lvol_space lvol_space_default(void);

/* Whether these are thresholds: 0; or -EINVAL, and the reason in e. */
int lvol_space_check(const uint8_t *percent, size_t num, struct lvol_error *e);

/* Writes the value of the attribute, and returns its bytes. */
size_t lvol_space_encode(const struct lvol_space *s, uint8_t value[LVOL_SPACE_BYTES]);
/* From the value of the attribute (NULL: there is none, which gives the default). 0; or -EINVAL and the reason in e,
 * and *s is the default. */
int lvol_space_decode(const void *value, size_t bytes, struct lvol_space *s, struct lvol_error *e);

/* The highest threshold that a store has reached with `used` of `total` clusters in use; 0: none; LVOL_SPACE_FULL: it
 * is full. before: what it had reached until now. */
uint8_t lvol_space_reached(const struct lvol_space *s, uint8_t before, uint64_t used, uint64_t total);

#endif
