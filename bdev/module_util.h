/* SPDX-License-Identifier: BSD-3-Clause */
/* What the functions that create and delete bdevs share. Control thread. error: BDEV_ERROR_MAX bytes. */
#ifndef BDEV_MODULE_UTIL_H
#define BDEV_MODULE_UTIL_H

#include "bdev/module.h"

/* Writes the reason to error and returns rc: `return bdev_error(error, -EINVAL, "block_size %u: ...", n);` */
int bdev_error(char *error, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Whether a new bdev can have that name: 0; or a negative errno, and the reason in error. */
int bdev_check_name(const char *name, char *error);
/* Whether it can have blocks of that many bytes of data and of metadata, and so many of them: as bdev_check_name(). */
int bdev_check_blocks(uint32_t block_size, uint32_t md_size, uint64_t num_blocks, char *error);
/* Whether it can have that metadata, whose size must be 0, 8, 16, 32, 64 or 128: as bdev_check_name(). Sets md->checks:
 * the guard, and for types 1 and 2 the reference tag. */
int bdev_check_md(struct bdev_md *md, char *error);
/* Whether it can have that physical block size (bytes; 0: none given): as bdev_check_name(). */
int bdev_check_physical_block_size(uint32_t physical_block_size, uint32_t block_size, char *error);
/* The bdev_ops.bases of modules whose bdevs stand on no others. */
int bdev_bases_none(const struct bdev *b, const struct bdev *bases[BDEV_BASES_MAX]);
/* bdev_register(), with the reason for a failure in error. */
int bdev_register_or_say(struct bdev *b, char *error);

/* The bdev of that name (or alias, or UUID) if it is of this module, or NULL. */
struct bdev *bdev_find_of(const char *name, const struct bdev_module *module);
/* Unregisters the bdev of that name if it is of this module, and calls cb(arg, 0) when it is gone; or cb(arg, -ENODEV),
 * before this returns. */
void bdev_delete_of(const char *name, const struct bdev_module *module, bdev_delete_cb cb, void *arg);

#endif
