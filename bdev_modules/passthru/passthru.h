/* SPDX-License-Identifier: BSD-3-Clause */
/* A bdev that passes every I/O to its base bdev as it is: an example of a module, and a second name for a bdev. It
 * claims its base, takes over each new size of it, and is removed when its base is. Control thread. */
#ifndef BDEV_PASSTHRU_H
#define BDEV_PASSTHRU_H

#include "bdev/bdev.h"

/* Makes and registers one. name and base_bdev_name are copied; uuid: 16 bytes, or NULL for a random one. 0; or a
 * negative errno, and error (BDEV_ERROR_MAX bytes) names the field, its value, and the values that are allowed. */
int bdev_passthru_create(const char *name, const char *base_bdev_name, const uint8_t *uuid, char *error);

/* As bdev_unregister(); or cb(arg, -ENODEV) if no passthru bdev has that name. */
void bdev_passthru_delete(const char *name, bdev_delete_cb cb, void *arg);

/* The name of b's base. b is a passthru bdev. */
const char *bdev_passthru_base(const struct bdev *b);

#endif
