/* SPDX-License-Identifier: BSD-3-Clause */
/* What the modules of this folder share. */
#ifndef BDEV_MODULE_UTIL_H
#define BDEV_MODULE_UTIL_H

#include "bdev/module.h"

/* Writes the reason and returns rc: `return bdev_error(error, -EINVAL, "block_size %u: ...", n);` */
int bdev_error(char *error, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The checks that all creators make; 0, or as above. */
int bdev_check_name(const char *name, char *error);
int bdev_check_blocks(uint32_t block_size, uint32_t md_size, uint64_t num_blocks, char *error);
/* md as the creators have it: its size is 0, 8, 16, 32, 64 or 128. Fills in the checks: guard, and for types 1 and 2
 * the reference tag. */
int bdev_check_md(struct bdev_md *md, char *error);
int bdev_check_physical_block_size(uint32_t physical_block_size, uint32_t block_size, char *error);
/* bdev_register(), with its reason in words. */
int bdev_register_or_say(struct bdev *b, char *error);

/* The bdev of that name (or alias, or UUID) if it is of this module, or NULL. */
struct bdev *bdev_find_of(const char *name, const struct bdev_module *module);
/* What the delete functions are made of. */
void bdev_delete_of(const char *name, const struct bdev_module *module, bdev_delete_cb cb, void *arg);

#endif
