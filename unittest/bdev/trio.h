/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of bdevs on several bases share: three of the tests' disks, and a bdev on them whose module stripes.
 * It tries a child that failed again, and flushes the bases after each write, as a second group of children. */
#ifndef UNITTEST_BDEV_TRIO_H
#define UNITTEST_BDEV_TRIO_H

#include "bdev/vbdev/vbdev.h"
#include "unittest/bdev/fixture.h"

#define BASES  3u
#define BLOCK  512u
#define CHUNK  4u /* blocks of a stripe */
#define BLOCKS 288u
#define IOVS   4u
#define FAULT  NVME_SC_DATA_XFER_ERROR /* of testdev.fail_one_in */

struct trio {
	struct bdev bdev;
	struct vbdev_bases bases;
	uint32_t count; /* children of a channel with each base */
	uint8_t tries;  /* of a parent's children that failed */
	bool drops;     /* the channel leaves a base by itself when the first child fails */
	atomic_uint detached, removed, dropped;
	atomic_bool gone;
};

/* What trio_start() makes. */
extern struct trio *the;
extern struct testdev *disk[BASES];
extern const char *const disk_names[BASES];
extern struct user top; /* of the trio, on the first thread */
extern char error[BDEV_ERROR_MAX];

/* A disk that is NULL has been deleted by the test. */
void disks_new(void);
void disks_delete(void);
/* Zeroed, but for what bdev_register() wants; its bases are not open. */
struct trio *trio_new(uint32_t count);
extern const struct vbdev_bases_ops trio_bases_ops;
/* Opens the disks as its bases: as vbdev_bases_open(). */
int trio_open_bases(void);
/* Makes and opens all of it; count: struct trio. */
void trio_start(uint32_t count);
void trio_stop(void);
void trio_delete(void); /* without the disks, which are to be deleted after it */
/* Waits until ops.detached has been called n times altogether. */
void trio_wait_detached(unsigned n);

#endif
