/* SPDX-License-Identifier: BSD-3-Clause */
#include "bdev_modules/crypto/test_crypto_kit.h"

#include <openssl/evp.h>

#include "bdev_modules/crypto/crypto.h"
#include "bdev_modules/crypto/keys.h"
#include "bdev_modules/crypto/xts.h"
#include "unittest/allocations.h"

char error[BDEV_ERROR_MAX];
struct testdev *crypto_disk;
struct user crypto_user;
atomic_int crypto_openssl_left = -1;

static uint8_t raw_key[XTS_KEY_MAX];
static struct user below; /* of the disk, on the same channel as the crypto bdev */

int __real_EVP_CipherUpdate(EVP_CIPHER_CTX *ctx, unsigned char *out, int *outl, const unsigned char *in, int inl);
int __wrap_EVP_CipherUpdate(EVP_CIPHER_CTX *ctx, unsigned char *out, int *outl, const unsigned char *in, int inl);
int __wrap_EVP_CipherUpdate(EVP_CIPHER_CTX *ctx, unsigned char *out, int *outl, const unsigned char *in, int inl)
{
	if (atomic_load(&crypto_openssl_left) >= 0 && atomic_fetch_sub(&crypto_openssl_left, 1) == 0) {
		return 0;
	}
	return __real_EVP_CipherUpdate(ctx, out, outl, in, inl);
}

void crypto_allocations_left(long n)
{
	allocations_left = n;
}

int crypto_kit_make_key(void)
{
	const struct crypto_key_opts key = {.name = "k", .key = KEY_A, .key2 = KEY_B};

	return crypto_key_create(&key, error);
}

int crypto_kit_start(void)
{
	size_t bytes;
	int rc = crypto_kit_make_key();

	if (rc == 0) {
		memcpy(raw_key, crypto_key_secret(crypto_key_find("k"), &bytes), sizeof(raw_key));
	}
	return rc;
}

void crypto_make_on_testdev(uint32_t block_size, uint64_t num_blocks)
{
	const struct bdev_crypto_opts opts = {.name = "c0", .base_bdev_name = "t0", .key_name = "k"};

	crypto_disk = testdev_new("t0", block_size, num_blocks);
	crypto_disk->bdev.io_types |= 1u << BDEV_IO_RESET | 1u << BDEV_IO_UNMAP;
	CU_ASSERT_EQUAL_FATAL(testdev_register(crypto_disk), 0);
	CU_ASSERT_EQUAL_FATAL(bdev_crypto_create(&opts, error), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&crypto_user, "c0", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&below, "t0", false, fixture_thread(0)), 0);
	below.close_on_remove = true;
}

void crypto_release(void)
{
	testdev_release(crypto_disk, &below, 0);
}

void crypto_unmake(void)
{
	user_close(&crypto_user);
	CU_ASSERT_EQUAL(fixture_delete(bdev_crypto_delete, "c0"), 0);
	CU_ASSERT_TRUE(testdev_delete(crypto_disk));
}

void crypto_fill(void *to, size_t bytes, uint64_t seed)
{
	uint64_t state = seed;
	uint8_t *at = to;

	for (size_t i = 0; i < bytes; i++) {
		at[i] = (uint8_t)fixture_random(&state);
	}
}

void crypto_expect_on_base(uint64_t lba, const void *data, uint64_t blocks)
{
	uint32_t size = crypto_disk->bdev.block_size;
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
	uint8_t *plain = malloc(size);

	for (uint64_t i = 0; i < blocks; i++) {
		uint8_t tweak[16] = {0};
		int n = 0;
		for (unsigned b = 0; b < 8; b++) {
			tweak[b] = (uint8_t)((lba + i) >> (8 * b));
		}
		CU_ASSERT_EQUAL_FATAL(EVP_DecryptInit_ex(ctx, EVP_aes_256_xts(), NULL, raw_key, tweak), 1);
		CU_ASSERT_EQUAL_FATAL(
			EVP_DecryptUpdate(ctx, plain, &n, crypto_disk->memory + (lba + i) * size, (int)size), 1);
		CU_ASSERT_EQUAL(memcmp(plain, (const uint8_t *)data + i * size, size), 0);
	}
	free(plain);
	EVP_CIPHER_CTX_free(ctx);
}

static void do_nothing(void *arg)
{
}

void crypto_sync(void)
{
	thread_call(fixture_thread(0), do_nothing, NULL);
}

void crypto_deleted(void *flag, int rc)
{
	CU_ASSERT_EQUAL(rc, 0);
	set_done(flag);
}

void crypto_hold_on(void)
{
	below.close_on_remove = false;
}

void crypto_let_go(void)
{
	user_close(&below);
}
