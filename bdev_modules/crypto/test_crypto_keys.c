/* SPDX-License-Identifier: BSD-3-Clause */
/* AES-XTS by the vectors of IEEE 1619, keys as they come from outside, and where they are kept. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bdev_modules/crypto/key_text.h"
#include "bdev_modules/crypto/keys.h"
#include "bdev_modules/crypto/xts.h"
#include "keyring/keyring.h"
#include "unittest/unit.h"
#include "util/openssl_memory.h"
#include "util/secret.h"

#define HEX_11 "11111111111111111111111111111111"
#define HEX_22 "22222222222222222222222222222222"

static char error[BDEV_ERROR_MAX];

static void from_hex(const char *hex, uint8_t *to)
{
	CU_ASSERT_TRUE_FATAL(secret_from_hex(hex, to, strlen(hex) / 2));
}

/* `first` and `last`: the beginning and the end of what the data become. */
static void check_vector(const char *keys, uint64_t lba, const uint8_t *data, size_t bytes, const char *first,
			 const char *last)
{
	uint8_t key[XTS_KEY_MAX], out[512], expected[64];
	struct crypto_xts x;

	from_hex(keys, key);
	CU_ASSERT_EQUAL_FATAL(crypto_xts_create(&x, key, strlen(keys) / 2), 0);
	CU_ASSERT_TRUE(crypto_xts_block(x.encrypt, lba, data, out, (uint32_t)bytes));
	from_hex(first, expected);
	CU_ASSERT_EQUAL(memcmp(out, expected, strlen(first) / 2), 0);
	from_hex(last, expected);
	CU_ASSERT_EQUAL(memcmp(out + bytes - strlen(last) / 2, expected, strlen(last) / 2), 0);
	CU_ASSERT_TRUE(crypto_xts_block(x.decrypt, lba, out, out, (uint32_t)bytes));
	CU_ASSERT_EQUAL(memcmp(out, data, bytes), 0);
	crypto_xts_destroy(&x);
}

static void test_vectors_of_ieee_1619(void)
{
	uint8_t data[512];

	memset(data, 0x44, 32); /* vectors 2 and 3 */
	check_vector(HEX_11 HEX_22, 0x3333333333, data, 32, "c454185e6a16936e39334038acef838b",
		     "fb186fff7480adc4289382ecd6d394f0");
	check_vector("fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0" HEX_22, 0x3333333333, data, 32,
		     "af85336b597afc1a900b2eb21ec949d2", "92df4c047e0b21532186a5971a227a89");
	for (unsigned i = 0; i < 512; i++) { /* vector 10 */
		data[i] = (uint8_t)i;
	}
	check_vector("2718281828459045235360287471352662497757247093699959574966967627"
		     "3141592653589793238462643383279502884197169399375105820974944592",
		     0xff, data, 512, "1c3b3a102f770386e4836c99e370cf9bea00803f5e482357a4ae12d414a3e63b",
		     "c4f36ffda9fcea70b9c6e693e148c151");
}

static void test_blocks_follow_each_other(void)
{
	uint8_t key[XTS_KEY_MAX], data[4 * 512], all[4 * 512], one[512];
	struct crypto_xts x;

	for (unsigned i = 0; i < sizeof(key); i++) {
		key[i] = (uint8_t)(i + 1);
	}
	memset(data, 9, sizeof(data));
	CU_ASSERT_EQUAL_FATAL(crypto_xts_create(&x, key, sizeof(key)), 0);
	CU_ASSERT_TRUE(crypto_xts_blocks(x.encrypt, 0xfffffffe, data, all, 512, 4));
	for (unsigned i = 0; i < 4; i++) {
		CU_ASSERT_TRUE(crypto_xts_block(x.encrypt, 0xfffffffeul + i, data, one, 512));
		CU_ASSERT_EQUAL(memcmp(one, all + 512ul * i, 512), 0);
		CU_ASSERT_NOT_EQUAL(memcmp(one, all + 512ul * ((i + 1) % 4), 512), 0);
	}
	/* OpenSSL has no way to encrypt less than 16 bytes. */
	CU_ASSERT_FALSE(crypto_xts_block(x.encrypt, 0, data, all, 15));
	CU_ASSERT_TRUE(crypto_xts_block(x.encrypt, 0, data, all, 16));
	crypto_xts_destroy(&x);
	crypto_xts_destroy(&x);
}

struct wrong_key {
	const char *key, *key2, *why;
};

static void test_wrong_keys_are_refused_without_being_shown(void)
{
	static const struct wrong_key wrong[] = {
		{HEX_11, NULL, "\"key2\" is missing"},
		{"", HEX_22, "\"key\" has 0 characters"},
		{HEX_11, "", "\"key2\" has 0 characters"},
		{"1111", HEX_22, "\"key\" has 4 characters"},
		{HEX_11 "1", HEX_22, "\"key\" has 33"},
		{HEX_11, HEX_22 "22", "\"key2\" has 34"},
		{HEX_11 HEX_11, HEX_22, "\"key2\" has 32 digits and \"key\" 64"},
		{HEX_11, HEX_22 HEX_22, "\"key2\" has 64 digits and \"key\" 32"},
		{"1111111111111111111111111111111g", HEX_22, "\"key\" has characters that are no"},
		{HEX_11, "2222222222222222 222222222222222", "\"key2\" has characters that are no"},
		{HEX_11, HEX_11, "are equal"},
		{"abababababababababababababababab", "ABABABABABABABABABABABABABABABAB", "are equal"},
	};
	uint8_t key[XTS_KEY_MAX];
	size_t bytes = 0;

	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		CU_ASSERT_EQUAL(crypto_key_decode(wrong[i].key, wrong[i].key2, key, &bytes, error), -EINVAL);
		CU_ASSERT_PTR_NOT_NULL(strstr(error, wrong[i].why));
		CU_ASSERT_PTR_NULL(strstr(error, "1111"));
	}
	CU_ASSERT_EQUAL(crypto_key_decode(HEX_11, HEX_22, key, &bytes, error), 0);
	CU_ASSERT_EQUAL(bytes, 32);
	CU_ASSERT_EQUAL(key[15], 0x11);
	CU_ASSERT_EQUAL(key[16], 0x22);
	CU_ASSERT_EQUAL(crypto_key_decode(HEX_11 HEX_11, HEX_22 HEX_22, key, &bytes, error), 0);
	CU_ASSERT_EQUAL(bytes, 64);
	CU_ASSERT_EQUAL(key[31], 0x11);
	CU_ASSERT_EQUAL(key[32], 0x22);
}

static void test_key_schedules_are_in_memory_for_keys_and_wiped(void)
{
	uint8_t key[XTS_KEY_MAX];
	struct crypto_xts x;

	for (unsigned i = 0; i < sizeof(key); i++) {
		key[i] = (uint8_t)(i * 3 + 1);
	}
	CU_ASSERT_EQUAL_FATAL(crypto_xts_create(&x, key, sizeof(key)), 0);
	CU_ASSERT_TRUE(secret_owns(x.encrypt));
	CU_ASSERT_TRUE(secret_owns(x.decrypt));
	void *other = OPENSSL_malloc(100);
	CU_ASSERT_FALSE(secret_owns(other));
	other = OPENSSL_realloc(other, 1000);
	CU_ASSERT_FALSE(secret_owns(other));
	strcpy(other, "kept");
	for (size_t bytes = 2000; bytes < 100000; bytes *= 2) {
		other = OPENSSL_realloc(other, bytes);
		CU_ASSERT_STRING_EQUAL(other, "kept");
	}
	other = OPENSSL_realloc(other, 5);
	CU_ASSERT_STRING_EQUAL(other, "kept");
	CU_ASSERT_TRUE(openssl_memory_is_wiped());
	OPENSSL_free(other);
	crypto_xts_destroy(&x);
	CU_ASSERT_EQUAL(openssl_memory_secret_begin(), 0);
	char *p = OPENSSL_malloc(64);
	CU_ASSERT_TRUE(secret_owns(p));
	strcpy(p, "kept");
	openssl_memory_secret_end();
	p = OPENSSL_realloc(p, 200);
	CU_ASSERT_TRUE(secret_owns(p));
	CU_ASSERT_STRING_EQUAL(p, "kept");
	OPENSSL_free(p);
}

static void keyring_add(const char *text, int expected, const char *why)
{
	char path[] = "/tmp/varve-crypto-key-XXXXXX", wrong[KEYRING_ERROR_MAX] = "";
	int fd = mkstemp(path);

	CU_ASSERT_EQUAL(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	CU_ASSERT_EQUAL(keyring_file_add("ring", path, wrong), expected);
	CU_ASSERT_PTR_NOT_NULL(strstr(wrong, why));
	close(fd);
	unlink(path);
}

static void test_keys_of_the_keyring(void)
{
	const struct crypto_key_opts opts = {.name = "a", .keyring_key = "ring"};
	const struct crypto_key_opts both = {.name = "b", .keyring_key = "ring", .key = HEX_11};
	const struct crypto_key_opts none = {.name = "b"};
	size_t bytes;

	CU_ASSERT_EQUAL(crypto_key_create(&opts, error), -ENOENT);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "no such key"));
	keyring_add(HEX_11 HEX_22 "\n", 0, "");
	CU_ASSERT_EQUAL(crypto_key_create(&both, error), -EINVAL);
	CU_ASSERT_EQUAL(crypto_key_create(&none, error), -EINVAL);
	CU_ASSERT_EQUAL(crypto_key_create(&opts, error), 0);
	CU_ASSERT_EQUAL(crypto_key_create(&opts, error), -EEXIST);
	struct crypto_key *k = crypto_key_find("a");
	CU_ASSERT_STRING_EQUAL(crypto_key_keyring_name(k), "ring");
	CU_ASSERT_TRUE(crypto_key_is_saved(k));
	CU_ASSERT_EQUAL(crypto_key_secret(k, &bytes)[31], 0x22);
	CU_ASSERT_EQUAL(bytes, 32);
	CU_ASSERT_TRUE(secret_owns(crypto_key_secret(k, &bytes)));
	CU_ASSERT_EQUAL(keyring_file_remove("ring"), 0);
	CU_ASSERT_STRING_EQUAL(crypto_key_keyring_name(k), "ring"); /* held */
	CU_ASSERT_FALSE(crypto_key_is_saved(k));
	keyring_add(HEX_22 HEX_11, -EBUSY, "1 keys for crypto bdevs are still made of it");
	CU_ASSERT_EQUAL(crypto_key_destroy("a", error), 0);
	keyring_add(HEX_11 HEX_11, 0, "");
	CU_ASSERT_EQUAL(crypto_key_create(&opts, error), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "are equal"));
	CU_ASSERT_EQUAL(keyring_file_remove("ring"), 0);
	keyring_add(HEX_11, -EINVAL, "begins with 32 hexadecimal digits, and has 32");
	keyring_add(HEX_11 HEX_22 "x", -EINVAL, "begins with 64 hexadecimal digits, and has 65");
	keyring_add("DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:\n", 0, "");
	CU_ASSERT_EQUAL(crypto_key_create(&opts, error), -ENOENT);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "not for data"));
	CU_ASSERT_EQUAL(keyring_file_remove("ring"), 0);
}

static const struct unit_test tests[] = {
	UNIT(test_vectors_of_ieee_1619),
	UNIT(test_blocks_follow_each_other),
	UNIT(test_wrong_keys_are_refused_without_being_shown),
	UNIT(test_key_schedules_are_in_memory_for_keys_and_wiped),
	UNIT(test_keys_of_the_keyring),
	UNIT_END,
};
UNIT_MAIN("bdev_crypto_keys", tests, NULL, NULL)
