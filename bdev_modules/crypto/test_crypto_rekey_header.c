/* SPDX-License-Identifier: BSD-3-Clause */
/* The headers of a rekey's journal. */
#include <errno.h>

#include "bdev_modules/crypto/rekey_journal.h"
#include "unittest/unit.h"

static const uint8_t one_key[64] = "one key";
static const uint8_t other_key[64] = "another one";

static void header_sample(struct rekey_header *h)
{
	*h = (struct rekey_header){.generation = 9,
				   .position = 12345,
				   .state = REKEY_UNDER_WAY,
				   .block_size = 4096,
				   .chunk_blocks = 256,
				   .chunk_crc = 0xdeadbeef,
				   .base_uuid = "0123456789abcde",
				   .salt = "fedcba987654321",
				   .old_key = "old",
				   .new_key = "new",
				   .base_name = "Nvme0n1"};
}

static void test_a_header_is_read_as_it_was_written_and_any_damage_is_noticed(void)
{
	uint8_t bytes[REKEY_HEADER_BYTES];
	struct rekey_header h, in;

	header_sample(&h);
	rekey_header_encode(&h, bytes);
	CU_ASSERT_TRUE(rekey_header_decode(bytes, &in));
	CU_ASSERT_EQUAL(memcmp(&h, &in, sizeof(h)), 0);
	for (unsigned i = 0; i < sizeof(bytes); i++) {
		bytes[i] ^= (uint8_t)(1u << i % 8);
		CU_ASSERT_FALSE(rekey_header_decode(bytes, &in));
		bytes[i] ^= (uint8_t)(1u << i % 8);
	}
}

static void expect_unsound(const struct rekey_header *h)
{
	uint8_t bytes[REKEY_HEADER_BYTES];
	struct rekey_header in;

	rekey_header_encode(h, bytes);
	CU_ASSERT_FALSE(rekey_header_decode(bytes, &in));
}

static void test_a_header_whose_values_cannot_be_is_none(void)
{
	struct rekey_header h;

	header_sample(&h);
	h.state = 0;
	expect_unsound(&h);
	h.state = 5;
	expect_unsound(&h);
	h.state = REKEY_RUNNING; /* with a chunk */
	expect_unsound(&h);
	header_sample(&h);
	h.chunk_blocks = 0;
	expect_unsound(&h);
	h.chunk_blocks = 257;
	expect_unsound(&h);
	header_sample(&h);
	h.block_size = 8;
	expect_unsound(&h);
	h.block_size = 131072;
	expect_unsound(&h);
	header_sample(&h);
	h.position = UINT64_MAX - 255;
	expect_unsound(&h);
	header_sample(&h);
	h.generation = UINT64_MAX;
	expect_unsound(&h);
}

static void test_the_higher_generation_counts(void)
{
	struct rekey_header a = {.generation = 3}, b = {.generation = 4};

	CU_ASSERT_PTR_EQUAL(rekey_header_newest(&a, &b), &b);
	CU_ASSERT_PTR_EQUAL(rekey_header_newest(&b, &a), &b);
	CU_ASSERT_PTR_EQUAL(rekey_header_newest(NULL, &a), &a);
	CU_ASSERT_PTR_EQUAL(rekey_header_newest(&a, NULL), &a);
	CU_ASSERT_PTR_NULL(rekey_header_newest(NULL, NULL));
}

static void test_a_base_is_known_by_its_uuid_or_else_by_its_name(void)
{
	char error[REKEY_ERROR_MAX];
	struct rekey_header found, wanted;

	header_sample(&found);
	wanted = found;
	snprintf(wanted.base_name, sizeof(wanted.base_name), "another");
	CU_ASSERT_EQUAL(rekey_header_check(&found, &wanted, error), 0);
	wanted.base_uuid[3] ^= 1;
	CU_ASSERT_EQUAL(rekey_header_check(&found, &wanted, error), -EINVAL);
	memset(wanted.base_uuid, 0, sizeof(wanted.base_uuid));
	CU_ASSERT_EQUAL(rekey_header_check(&found, &wanted, error), -EINVAL);
	snprintf(wanted.base_name, sizeof(wanted.base_name), "Nvme0n1");
	CU_ASSERT_EQUAL(rekey_header_check(&found, &wanted, error), 0);
}

static void test_a_digest_tells_keys_apart_and_depends_on_the_salt(void)
{
	uint8_t a[REKEY_DIGEST], b[REKEY_DIGEST], salt[2][REKEY_SALT] = {"one", "other"};

	CU_ASSERT_EQUAL(rekey_key_digest(salt[0], one_key, 64, a), 0);
	CU_ASSERT_EQUAL(rekey_key_digest(salt[0], one_key, 64, b), 0);
	CU_ASSERT_EQUAL(memcmp(a, b, sizeof(a)), 0);
	CU_ASSERT_EQUAL(rekey_key_digest(salt[0], other_key, 64, b), 0);
	CU_ASSERT_NOT_EQUAL(memcmp(a, b, sizeof(a)), 0);
	CU_ASSERT_EQUAL(rekey_key_digest(salt[1], one_key, 64, b), 0);
	CU_ASSERT_NOT_EQUAL(memcmp(a, b, sizeof(a)), 0);
}

static const struct unit_test tests[] = {
	UNIT(test_a_header_is_read_as_it_was_written_and_any_damage_is_noticed),
	UNIT(test_a_header_whose_values_cannot_be_is_none),
	UNIT(test_the_higher_generation_counts),
	UNIT(test_a_base_is_known_by_its_uuid_or_else_by_its_name),
	UNIT(test_a_digest_tells_keys_apart_and_depends_on_the_salt),
	UNIT_END,
};
UNIT_MAIN("bdev_crypto_rekey_header", tests, NULL, NULL)
