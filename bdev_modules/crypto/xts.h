/* SPDX-License-Identifier: BSD-3-Clause */
/* AES-XTS (IEEE 1619) by OpenSSL: a block is one data unit, whose tweak is the block's address, 64 bits little endian,
 * with zeroes behind it. */
#ifndef BDEV_CRYPTO_XTS_H
#define BDEV_CRYPTO_XTS_H

#include <openssl/evp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define XTS_KEY_MAX      64u /* bytes: both keys, one behind the other */
#define XTS_UNIT_MIN     16u /* bytes of a block, at least */
#define CRYPTO_BLOCK_MAX 65536u

/* Both directions of a key, with their key schedules made. Of one thread. */
struct crypto_xts {
	EVP_CIPHER_CTX *encrypt, *decrypt;
};
/* Makes one. key: of `bytes` bytes, 32 (AES-XTS 128) or 64 (256); what encrypts data comes first, then what encrypts
 * tweaks, which must differ. 0; -ENOMEM; or -ENOTSUP: key schedules would not be in memory of secret_alloc(). Not on
 * the I/O path. */
int crypto_xts_create(struct crypto_xts *x, const uint8_t *key, size_t bytes);
/* Ends it, and overwrites the key schedules. A zeroed one is ignored. */
void crypto_xts_destroy(struct crypto_xts *x);

/* Encrypts or decrypts one block of `bytes` bytes; to may be from. Allocates nothing, takes no lock. False: OpenSSL
 * failed; what is in `to` is not to be used. */
bool crypto_xts_block(EVP_CIPHER_CTX *ctx, uint64_t lba, const void *from, void *to, uint32_t bytes);
/* The same for blocks one behind the other. */
bool crypto_xts_blocks(EVP_CIPHER_CTX *ctx, uint64_t lba, const void *from, void *to, uint32_t block_bytes,
		       uint64_t blocks);

/* A buffer of CRYPTO_BLOCK_MAX bytes for a block of plain data. It has pages of its own, which are left out of core
 * dumps, and which nobody gets uncleared. NULL: no memory. */
uint8_t *crypto_plain_alloc(void);
/* Frees it; NULL is ignored. */
void crypto_plain_free(uint8_t *plain);

#endif
