/* SPDX-License-Identifier: BSD-3-Clause */
/* A bdev that encrypts what it writes to its base, and decrypts what it reads from there, with a key of
 * bdev_modules/crypto/keys.h. It claims its base, follows each new size of it, and is removed when its base is; when
 * the base comes back, so does the bdev. Control thread. */
#ifndef BDEV_CRYPTO_H
#define BDEV_CRYPTO_H

#include "bdev/bdev.h"

struct vbdev_waiting;

struct bdev_crypto_opts {
	const char *name;           /* copied */
	const char *base_bdev_name; /* copied */
	const char *key_name;       /* of a key that is there */
	const uint8_t *uuid;        /* 16 bytes, copied; NULL: a random one */
};

/* Makes and registers one, or, if there is no such base, notes that one is to be made when the base comes
 * (bdev/vbdev/waiting.h). 0; or a negative errno, and error (BDEV_ERROR_MAX bytes) names the field, its value, and what
 * is allowed. */
int bdev_crypto_create(const struct bdev_crypto_opts *opts, char *error);

/* As bdev_unregister(), also of one that waits for its base; or cb(arg, -ENODEV) if no crypto bdev has that name. */
void bdev_crypto_delete(const char *name, bdev_delete_cb cb, void *arg);

/* The options that would make b again. Pointers in opts are into b. False: b is of another module. */
bool bdev_crypto_get(const struct bdev *b, struct bdev_crypto_opts *opts);
/* The same of one that waits for its base; uuid is NULL if none was given. */
bool bdev_crypto_get_waiting(const struct vbdev_waiting *w, struct bdev_crypto_opts *opts);

#endif
