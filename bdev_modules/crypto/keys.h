/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys for crypto bdevs, by name. What is secret of a key is in memory of secret_alloc(); it is never shown, logged or
 * saved. Control thread. */
#ifndef BDEV_CRYPTO_KEYS_H
#define BDEV_CRYPTO_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bdev/bdev.h"

struct crypto_key;

/* What a key is made of: either key and key2, or keyring_key. */
struct crypto_key_opts {
	const char *name;
	const char *key, *key2;  /* hexadecimal digits */
	const char *keyring_key; /* a key for data in the keyring, which has both */
	bool of_bdev;            /* it belongs to the bdev of that name, and goes with it */
};
/* Makes a key. 0; or a negative errno, and error (BDEV_ERROR_MAX bytes) says what is wrong, without the key. */
int crypto_key_create(const struct crypto_key_opts *opts, char *error);
/* Destroys the key of that name. 0; or -ENOENT, or -EBUSY (a bdev uses it, or waits for its base and will use it), and
 * the reason in error. */
int crypto_key_destroy(const char *name, char *error);

/* The key of that name; NULL: there is none. */
struct crypto_key *crypto_key_find(const char *name);
/* All keys in the order in which they were made: NULL for the first; NULL: no more. */
struct crypto_key *crypto_key_next(const struct crypto_key *after);
/* A bdev uses the key from now on. */
void crypto_key_hold(struct crypto_key *k);
/* It does not any more. */
void crypto_key_put(struct crypto_key *k);
/* Destroys the keys of bdevs that are gone and not waited for. */
void crypto_key_sweep(void);
/* Destroys all. */
void crypto_key_fini(void);

/* Its name. */
const char *crypto_key_name(const struct crypto_key *k);
/* The name that it has in the keyring; NULL: it was not made from there. */
const char *crypto_key_keyring_name(const struct crypto_key *k);
/* Whether a saved configuration can make it again: the keyring has it, under that name. */
bool crypto_key_is_saved(const struct crypto_key *k);
/* Bdevs that use it. */
unsigned crypto_key_users(const struct crypto_key *k);
/* The key itself, of *bytes bytes, for crypto_xts_create(). Any thread, as long as it is held. */
const uint8_t *crypto_key_secret(const struct crypto_key *k, size_t *bytes);

#endif
