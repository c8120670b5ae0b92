/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys as they come from outside: hexadecimal digits. Pure. */
#ifndef BDEV_CRYPTO_KEY_TEXT_H
#define BDEV_CRYPTO_KEY_TEXT_H

#include <stddef.h>
#include <stdint.h>

#define CRYPTO_ERROR_MAX 256

/* Decodes a pair of keys to `to` (XTS_KEY_MAX bytes): what encrypts data, then what encrypts tweaks. key2 may be NULL:
 * it was not given. 0 and *bytes, 32 or 64; or -EINVAL, and error (CRYPTO_ERROR_MAX bytes) says which parameter is
 * wrong, and never has a digit of a key. */
int crypto_key_decode(const char *key, const char *key2, uint8_t *to, size_t *bytes, char *error);
/* Whether the two keys at `key`, of `bytes` bytes together, may be used: 0; or -EINVAL and the reason in error. */
int crypto_key_check(const uint8_t *key, size_t bytes, char *error);

#endif
