/* SPDX-License-Identifier: BSD-3-Clause */
#include "bdev_modules/crypto/xts.h"

#include <endian.h>
#include <errno.h>
#include <openssl/err.h>
#include <sys/mman.h>

#include "util/compiler.h"
#include "util/openssl_memory.h"

static EVP_CIPHER_CTX *xts_context(const EVP_CIPHER *cipher, const uint8_t *key, int encrypt)
{
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();

	if (ctx != NULL && !EVP_CipherInit_ex(ctx, cipher, NULL, key, NULL, encrypt)) {
		EVP_CIPHER_CTX_free(ctx);
		ctx = NULL;
	}
	return ctx;
}

int crypto_xts_create(struct crypto_xts *x, const uint8_t *key, size_t bytes)
{
	*x = (struct crypto_xts){0};
	/* Fetched outside: it stays, and OpenSSL's tables of it are no secret. */
	EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, bytes == XTS_KEY_MAX ? "AES-256-XTS" : "AES-128-XTS", NULL);
	int rc = cipher == NULL ? -ENOMEM : openssl_memory_secret_begin();

	if (rc == 0) {
		x->encrypt = xts_context(cipher, key, 1);
		x->decrypt = xts_context(cipher, key, 0);
		openssl_memory_secret_end();
		rc = x->encrypt != NULL && x->decrypt != NULL ? 0 : -ENOMEM;
	}
	EVP_CIPHER_free(cipher);
	if (rc != 0) {
		crypto_xts_destroy(x);
		ERR_clear_error();
	}
	return rc;
}

void crypto_xts_destroy(struct crypto_xts *x)
{
	EVP_CIPHER_CTX_free(x->encrypt);
	EVP_CIPHER_CTX_free(x->decrypt);
	*x = (struct crypto_xts){0};
}

static NOINLINE COLD bool xts_failed(void)
{
	ERR_clear_error(); /* the thread's next failure is not to be taken for this one */
	return false;
}

bool crypto_xts_block(EVP_CIPHER_CTX *ctx, uint64_t lba, const void *from, void *to, uint32_t bytes)
{
	const uint64_t tweak[2] = {htole64(lba), 0};
	int done;

	if (unlikely(!EVP_CipherInit_ex(ctx, NULL, NULL, NULL, (const uint8_t *)tweak, -1) ||
		     !EVP_CipherUpdate(ctx, to, &done, from, (int)bytes) || done != (int)bytes)) {
		return xts_failed();
	}
	return true;
}

bool crypto_xts_blocks(EVP_CIPHER_CTX *ctx, uint64_t lba, const void *from, void *to, uint32_t block_bytes,
		       uint64_t blocks)
{
	const uint8_t *in = from;
	uint8_t *out = to;

	for (uint64_t i = 0; i < blocks; i++) {
		if (!crypto_xts_block(ctx, lba + i, in + i * block_bytes, out + i * block_bytes, block_bytes)) {
			return false;
		}
	}
	return true;
}

uint8_t *crypto_plain_alloc(void)
{
	void *p = mmap(NULL, CRYPTO_BLOCK_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED) {
		return NULL;
	}
	if (madvise(p, CRYPTO_BLOCK_MAX, MADV_DONTDUMP) != 0) {
		munmap(p, CRYPTO_BLOCK_MAX);
		return NULL;
	}
	return p;
}

void crypto_plain_free(uint8_t *plain)
{
	if (plain != NULL) {
		munmap(plain, CRYPTO_BLOCK_MAX);
	}
}
