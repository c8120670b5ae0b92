/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of integrity bdevs share. The bdev is "i0", on a base "m0". */
#ifndef TEST_INTEGRITY_KIT_H
#define TEST_INTEGRITY_KIT_H

#include "bdev_modules/integrity/integrity.h"
#include "bdev_modules/integrity/internal.h"
#include "unittest/bdev/fixture.h"

#define UNIT_BYTES   INTEGRITY_UNIT_BYTES
#define KIT_REGIONS  3u
#define KIT_UNITS    (256u + KIT_REGIONS * INTEGRITY_REGION_UNITS + 1u) /* of a base of so many regions */
#define STATUS_WRONG BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_READ_ERROR)

extern uint8_t kit_data[256 * UNIT_BYTES];
extern char kit_error[BDEV_ERROR_MAX];

/* Creates i0 on base, and waits. 0 or the error, which kit_error explains. */
int kit_create(const char *base, bool format);
int kit_create_opts(const struct bdev_integrity_opts *opts);
/* Regions are closed at once, or only at the end. Those that were found open are not read. */
void kit_close_soon(bool soon);
/* Waits until no region of i0 is open. */
bool kit_wait_closed(void);
struct bdev_integrity_info kit_info(void);
/* Writes units with numbers derived from unit and version; checks that they have them (data as read). */
void kit_fill(uint8_t *data, uint64_t unit, uint32_t version);
bool kit_is(const uint8_t *data, uint64_t unit, uint32_t version);
uint16_t kit_write(struct user *u, uint64_t unit, uint32_t units, uint32_t version);
/* Reads units; false: an error, or not that version. */
bool kit_reads(struct user *u, uint64_t unit, uint32_t units, uint32_t version);
uint16_t kit_read(struct user *u, uint64_t unit, uint32_t units);

#endif
