/* SPDX-License-Identifier: BSD-3-Clause */
/* Protection information made, checked, inserted and stripped, wherever iovs cut the blocks. */
#include "bdev/dif.h"
#include "unittest/unit.h"

/* T10's examples (SBC-3), and the check value that catalogues of CRCs have. */
static void test_the_crc_is_the_one_of_t10(void)
{
	uint8_t bytes[32] = {0};

	CU_ASSERT_EQUAL(dif_crc(0, bytes, 32), 0);
	memset(bytes, 0xff, 32);
	CU_ASSERT_EQUAL(dif_crc(0, bytes, 32), 0xa293);
	for (unsigned i = 0; i < 32; i++) {
		bytes[i] = (uint8_t)i;
	}
	CU_ASSERT_EQUAL(dif_crc(0, bytes, 32), 0x0224);
	memset(bytes, 0, 32);
	bytes[0] = bytes[1] = 0xff;
	CU_ASSERT_EQUAL(dif_crc(0, bytes, 32), 0x21b8);
	CU_ASSERT_EQUAL(dif_crc(0, "123456789", 9), 0xd0db);
	CU_ASSERT_EQUAL(dif_crc(dif_crc(0, "1234", 4), "56789", 5), 0xd0db);
}

#define BLOCKS 5u

static const struct dif_format formats[] = {
	{512, 8, 0, 1},  {512, 8, 0, 2},      {512, 8, 0, 3},   {512, 64, 0, 1},  {512, 64, 56, 1},
	{4096, 8, 0, 1}, {4096, 128, 120, 3}, {4096, 16, 8, 2}, {65536, 8, 0, 1}, {65536, 64, 56, 2},
};
#define FORMATS (sizeof(formats) / sizeof(formats[0]))

static uint64_t seed = 1;
static unsigned below(unsigned n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(seed >> 33) % n;
}

/* Cuts memory into pieces of any length, empty ones too. */
static void cut(struct iovec iovs[16], void *memory, size_t bytes)
{
	uint8_t *at = memory;

	for (unsigned i = 0; i < 16; i++) {
		size_t n = i == 15                 ? bytes
			   : below(5) == 0         ? 0
			   : bytes > 9 && below(2) ? below(9)
						   : below((unsigned)bytes + 1);
		iovs[i] = (struct iovec){at, n};
		at += n;
		bytes -= n;
	}
}

static uint8_t *random_bytes(size_t bytes)
{
	uint8_t *m = malloc(bytes);

	for (size_t i = 0; i < bytes; i++) {
		m[i] = (uint8_t)below(256);
	}
	return m;
}

static void test_what_is_made_passes_and_is_where_it_belongs(void)
{
	for (size_t n = 0; n < FORMATS; n++) {
		const struct dif_format *f = &formats[n];
		size_t block = f->data_size + f->md_size, bytes = BLOCKS * block;
		struct dif_tags tags = {.ref = 0xfffffffe, .app = 0x1234, .app_mask = 0xffff, .checks = 7};
		uint8_t *m = random_bytes(bytes);
		struct iovec iovs[16];
		struct dif_error e;

		cut(iovs, m, bytes);
		dif_generate(f, &tags, iovs, BLOCKS);
		for (unsigned i = 0; i < BLOCKS; i++) {
			const uint8_t *t = m + i * block + f->data_size + f->offset;
			uint32_t ref = f->type == 3 ? 0xfffffffe : 0xfffffffe + i;
			CU_ASSERT_EQUAL(t[0] << 8 | t[1], dif_crc(0, m + i * block, f->data_size + f->offset));
			CU_ASSERT_EQUAL(t[2] << 8 | t[3], 0x1234);
			CU_ASSERT_EQUAL((uint32_t)t[4] << 24 | t[5] << 16 | t[6] << 8 | t[7], ref);
		}
		cut(iovs, m, bytes);
		CU_ASSERT_TRUE(dif_verify(f, &tags, iovs, BLOCKS, &e));
		free(m);
	}
}

static void test_the_check_that_fails_is_named_with_its_block(void)
{
	static const struct {
		unsigned byte; /* of the tuple */
		enum dif_check check;
	} faults[] = {{1, DIF_CHECK_GUARD}, {3, DIF_CHECK_APP}, {7, DIF_CHECK_REF}};

	for (size_t n = 0; n < FORMATS; n++) {
		const struct dif_format *f = &formats[n];
		size_t block = f->data_size + f->md_size, bytes = BLOCKS * block;
		struct dif_tags tags = {.ref = 70, .app = 0xa5a5, .app_mask = 0x00ff, .checks = 7};
		uint8_t *m = random_bytes(bytes);
		struct iovec iovs[16];
		struct dif_error e;

		cut(iovs, m, bytes);
		dif_generate(f, &tags, iovs, BLOCKS);
		for (unsigned i = 0; i < 3; i++) {
			uint8_t *byte = m + 3 * block + f->data_size + f->offset + faults[i].byte;
			bool seen = faults[i].check != DIF_CHECK_REF || f->type != 3;
			*byte ^= 0x10;
			tags.checks = 7;
			CU_ASSERT_EQUAL(dif_verify(f, &tags, iovs, BLOCKS, &e), !seen);
			if (seen) {
				CU_ASSERT_EQUAL(e.check, faults[i].check);
				CU_ASSERT_EQUAL(e.block, 3);
				CU_ASSERT_EQUAL(e.found ^ e.expected, 0x10);
			}
			tags.checks = 7 & ~faults[i].check;
			CU_ASSERT_TRUE(dif_verify(f, &tags, iovs, BLOCKS, &e));
			CU_ASSERT_TRUE(dif_verify(f, &tags, iovs, 3, &e)); /* it is not among these */
			*byte ^= 0x10;
		}
		tags.checks = 7;
		m[3 * block + f->data_size + f->offset + 2] ^= 0x10; /* a bit of app that the mask leaves out */
		CU_ASSERT_TRUE(dif_verify(f, &tags, iovs, BLOCKS, &e));
		m[4 * block + 100] ^= 1; /* data */
		CU_ASSERT_FALSE(dif_verify(f, &tags, iovs, BLOCKS, &e));
		CU_ASSERT_EQUAL(e.check, DIF_CHECK_GUARD);
		CU_ASSERT_EQUAL(e.block, 4);
		free(m);
	}
}

static void test_a_block_says_that_it_is_not_to_be_checked(void)
{
	const struct dif_tags tags = {.checks = 7, .app_mask = 0xffff};
	uint8_t m[520];
	struct iovec iov = {m, sizeof(m)};
	struct dif_error e;

	for (uint8_t type = 1; type <= 3; type++) {
		const struct dif_format f = {512, 8, 0, type};
		memset(m, 0xff, sizeof(m));
		CU_ASSERT_TRUE(dif_verify(&f, &tags, &iov, 1, &e));
		m[519] = 0; /* of the reference tag, which counts with type 3 only */
		CU_ASSERT_EQUAL(dif_verify(&f, &tags, &iov, 1, &e), type != 3);
	}
}

static void test_insert_and_strip_are_each_others_reverse(void)
{
	for (size_t n = 0; n < FORMATS; n++) {
		const struct dif_format *f = &formats[n];
		size_t block = f->data_size + f->md_size, bytes = BLOCKS * f->data_size, skip = 3;
		const struct dif_tags tags = {.ref = 9, .app = 2, .app_mask = 0xffff, .checks = 7};
		uint8_t *plain = random_bytes(skip + bytes), *extended = random_bytes(BLOCKS * block),
			*back = random_bytes(skip + bytes);
		struct iovec iovs[16], whole = {extended, BLOCKS * block};
		struct dif_error e;

		cut(iovs, plain, skip + bytes);
		dif_insert(f, &tags, iovs, skip, BLOCKS, extended);
		CU_ASSERT_TRUE(dif_verify(f, &tags, &whole, BLOCKS, &e));
		cut(iovs, back, skip + bytes);
		CU_ASSERT_TRUE(dif_strip(f, &tags, iovs, skip, BLOCKS, extended, &e));
		CU_ASSERT_EQUAL(memcmp(plain + skip, back + skip, bytes), 0);
		extended[2 * block + 17] ^= 4;
		CU_ASSERT_FALSE(dif_strip(f, &tags, iovs, skip, BLOCKS, extended, &e));
		CU_ASSERT_EQUAL(e.block, 2);
		CU_ASSERT_EQUAL(e.check, DIF_CHECK_GUARD);
		free(plain);
		free(extended);
		free(back);
	}
}

static void test_metadata_without_protection_is_zeroes(void)
{
	const struct dif_format f = {512, 16, 0, 0};
	const struct dif_tags tags = {.checks = 7};
	uint8_t plain[1024], extended[2 * 528], zeroes[16] = {0}, back[1024];
	struct iovec iov = {plain, sizeof(plain)}, back_iov = {back, sizeof(back)};
	struct dif_error e;

	memset(plain, 5, sizeof(plain));
	memset(extended, 9, sizeof(extended));
	dif_insert(&f, &tags, &iov, 0, 2, extended);
	CU_ASSERT_EQUAL(memcmp(extended + 512, zeroes, 16), 0);
	CU_ASSERT_EQUAL(memcmp(extended + 528 + 512, zeroes, 16), 0);
	CU_ASSERT_TRUE(dif_strip(&f, &tags, &back_iov, 0, 2, extended, &e));
	CU_ASSERT_EQUAL(memcmp(plain, back, sizeof(plain)), 0);
}

static const struct unit_test tests[] = {
	UNIT(test_the_crc_is_the_one_of_t10),
	UNIT(test_what_is_made_passes_and_is_where_it_belongs),
	UNIT(test_the_check_that_fails_is_named_with_its_block),
	UNIT(test_a_block_says_that_it_is_not_to_be_checked),
	UNIT(test_insert_and_strip_are_each_others_reverse),
	UNIT(test_metadata_without_protection_is_zeroes),
	UNIT_END,
};
UNIT_MAIN("dif", tests, NULL, NULL)
