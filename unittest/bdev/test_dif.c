/* SPDX-License-Identifier: BSD-3-Clause */
/* Protection information made, checked, inserted and stripped, wherever iovs cut the blocks. */
#include "bdev/dif.h"
#include "bdev/dif_crc64.h"
#include "unittest/unit.h"

/* T10's examples (SBC-3), and the check value that catalogues of CRCs have. */
static void test_the_crc_is_the_one_of_t10(void)
{
	uint8_t bytes[32] = {0};

	CU_ASSERT_EQUAL(dif_crc(DIF_GUARD_16, 0, bytes, 32), 0);
	memset(bytes, 0xff, 32);
	CU_ASSERT_EQUAL(dif_crc(DIF_GUARD_16, 0, bytes, 32), 0xa293);
	for (unsigned i = 0; i < 32; i++) {
		bytes[i] = (uint8_t)i;
	}
	CU_ASSERT_EQUAL(dif_crc(DIF_GUARD_16, 0, bytes, 32), 0x0224);
	memset(bytes, 0, 32);
	bytes[0] = bytes[1] = 0xff;
	CU_ASSERT_EQUAL(dif_crc(DIF_GUARD_16, 0, bytes, 32), 0x21b8);
}

/* NVM 5.2.1.2 and 5.2.1.3 have examples of 4 KiB; the check value of "123456789" is in catalogues of CRCs. */
static void test_the_crcs_are_those_of_the_specification(void)
{
	static const struct {
		uint64_t check, zeroes, ones, up, down;
	} known[DIF_GUARDS] = {
		[DIF_GUARD_32] = {0xe3069283, 0x98f94189, 0x25c1fe13, 0x9c71fe32, 0x214941a8},
		[DIF_GUARD_64] = {UINT64_C(0xae8b14860a799888), UINT64_C(0x6482d367eb22b64e),
				  UINT64_C(0xc0ddba7302eca3ac), UINT64_C(0x3e729f5f6750449c),
				  UINT64_C(0x9a2df64b8e9e517e)},
	};
	static uint8_t bytes[4096];

	CU_ASSERT_EQUAL(dif_crc(DIF_GUARD_16, 0, "123456789", 9), 0xd0db);
	for (enum dif_guard g = DIF_GUARD_32; g < DIF_GUARDS; g++) {
		CU_ASSERT_EQUAL(dif_crc(g, 0, "123456789", 9), known[g].check);
		memset(bytes, 0, sizeof(bytes));
		CU_ASSERT_EQUAL(dif_crc(g, 0, bytes, sizeof(bytes)), known[g].zeroes);
		memset(bytes, 0xff, sizeof(bytes));
		CU_ASSERT_EQUAL(dif_crc(g, 0, bytes, sizeof(bytes)), known[g].ones);
		for (unsigned i = 0; i < sizeof(bytes); i++) {
			bytes[i] = (uint8_t)i;
		}
		CU_ASSERT_EQUAL(dif_crc(g, 0, bytes, sizeof(bytes)), known[g].up);
		for (unsigned i = 0; i < sizeof(bytes); i++) {
			bytes[i] = (uint8_t)~i;
		}
		CU_ASSERT_EQUAL(dif_crc(g, 0, bytes, sizeof(bytes)), known[g].down);
	}
	for (enum dif_guard g = DIF_GUARD_16; g < DIF_GUARDS; g++) {
		CU_ASSERT_EQUAL(dif_crc(g, dif_crc(g, 0, "1234", 4), "56789", 5), dif_crc(g, 0, "123456789", 9));
		CU_ASSERT_EQUAL(dif_crc(g, dif_crc(g, 0, "", 0), "123456789", 9), dif_crc(g, 0, "123456789", 9));
	}
}

#define BLOCKS 5u

static const struct dif_format formats[] = {
	{512, 8, 0, 1},
	{512, 8, 0, 2},
	{512, 8, 0, 3},
	{512, 64, 0, 1},
	{512, 64, 56, 1},
	{4096, 8, 0, 1},
	{4096, 128, 120, 3},
	{4096, 16, 8, 2},
	{65536, 8, 0, 1},
	{65536, 64, 56, 2},
	{512, 8, 0, 1, DIF_GUARD_16, 8, 0xff},
	{512, 16, 0, 1, DIF_GUARD_32, 16, 0xffff},
	{512, 64, 0, 2, DIF_GUARD_32, 16, 0xffff},
	{4096, 16, 0, 3, DIF_GUARD_32, 16, 0xffff},
	{4096, 64, 48, 1, DIF_GUARD_32, 40, UINT64_C(0xff00ff00ff)},
	{65536, 128, 112, 2, DIF_GUARD_32, 64, UINT64_MAX},
	{512, 16, 0, 1, DIF_GUARD_64},
	{4096, 16, 0, 2, DIF_GUARD_64},
	{4096, 64, 48, 3, DIF_GUARD_64},
	{4096, 32, 0, 1, DIF_GUARD_64, 16, 0xf0f0},
	{65536, 16, 0, 1, DIF_GUARD_64, 24, 0xffffff},
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

/* The field of protection information as the specification places it, whatever dif.c does. */
static uint64_t field(const uint8_t *at, unsigned bytes)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < bytes; i++) {
		value = value << 8 | at[i];
	}
	return value;
}

static unsigned guard_size(const struct dif_format *f)
{
	static const unsigned bytes[DIF_GUARDS] = {2, 4, 8};
	return bytes[f->guard];
}

static unsigned ref_bits(const struct dif_format *f)
{
	static const unsigned bits[DIF_GUARDS] = {32, 80, 48};
	return bits[f->guard] - f->storage_bits;
}

static uint64_t ones(unsigned bits)
{
	return bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
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
		/* the reference tag is about to overflow: what is above it in ref, the storage tag's, stays */
		const struct dif_tags tags = {
			.ref = UINT64_MAX - 1, .storage = 0xbeef, .app = 0x1234, .app_mask = 0xffff, .checks = 71};
		unsigned first = guard_size(f), last = dif_bytes(f->guard);
		uint8_t *m = random_bytes(bytes);
		struct iovec iovs[16];
		struct dif_error e;

		cut(iovs, m, bytes);
		dif_generate(f, &tags, iovs, BLOCKS);
		for (unsigned i = 0; i < BLOCKS; i++) {
			const uint8_t *t = m + i * block + f->data_size + f->offset;
			uint64_t ref = f->type == 3 ? UINT64_MAX - 1
						    : (~ones(ref_bits(f)) | ((UINT64_MAX - 1 + i) & ones(ref_bits(f))));
			unsigned space = last - first - 2, low = space < 8 ? space : 8;
			CU_ASSERT_EQUAL(field(t, first), dif_crc(f->guard, 0, m + i * block, f->data_size + f->offset));
			CU_ASSERT_EQUAL(field(t + first, 2), 0x1234);
			CU_ASSERT_EQUAL(field(t + last - low, low), ref & ones(low * 8));
			CU_ASSERT_TRUE(space <= 8 || field(t + first + 2, 2) == 0xbeef);
		}
		cut(iovs, m, bytes);
		CU_ASSERT_TRUE(dif_verify(f, &tags, iovs, BLOCKS, &e));
		free(m);
	}
}

/* f's tuple, its bytes counted from the last: the reference tag's last byte, and the last one of the application tag
 * and the guard. */
static unsigned byte_of(const struct dif_format *f, enum dif_check check)
{
	return check == DIF_CHECK_GUARD ? guard_size(f) - 1
	       : check == DIF_CHECK_APP ? guard_size(f) + 1
					: dif_bytes(f->guard) - 1;
}

static void one_check_fails(const struct dif_format *f, uint8_t *m, struct iovec *iovs, struct dif_tags tags,
			    enum dif_check check)
{
	uint8_t *byte = m + 3 * (f->data_size + f->md_size) + f->data_size + f->offset + byte_of(f, check);
	bool seen = check != DIF_CHECK_REF || f->type != 3;
	struct dif_error e;

	*byte ^= 0x10;
	tags.checks = 7;
	CU_ASSERT_EQUAL(dif_verify(f, &tags, iovs, BLOCKS, &e), !seen);
	if (seen) {
		CU_ASSERT_EQUAL(e.check, check);
		CU_ASSERT_EQUAL(e.block, 3);
		CU_ASSERT_EQUAL(e.found ^ e.expected, 0x10);
	}
	tags.checks = 7 & ~check;
	CU_ASSERT_TRUE(dif_verify(f, &tags, iovs, BLOCKS, &e));
	CU_ASSERT_TRUE(dif_verify(f, &tags, iovs, 3, &e)); /* it is not among these */
	*byte ^= 0x10;
}

static void test_the_check_that_fails_is_named_with_its_block(void)
{
	static const enum dif_check checks[] = {DIF_CHECK_GUARD, DIF_CHECK_APP, DIF_CHECK_REF};

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
			one_check_fails(f, m, iovs, tags, checks[i]);
		}
		/* a bit of app that the mask leaves out */
		m[3 * block + f->data_size + f->offset + guard_size(f)] ^= 0x10;
		CU_ASSERT_TRUE(dif_verify(f, &tags, iovs, BLOCKS, &e));
		m[4 * block + 100] ^= 1; /* data */
		CU_ASSERT_FALSE(dif_verify(f, &tags, iovs, BLOCKS, &e));
		CU_ASSERT_EQUAL(e.check, DIF_CHECK_GUARD);
		CU_ASSERT_EQUAL(e.block, 4);
		free(m);
	}
}

/* The storage tag is all of the space that the reference tag is not, checked as far as the mask says. */
static void test_each_bit_of_the_storage_tag_is_checked_if_the_mask_has_it(void)
{
	for (size_t n = 0; n < FORMATS; n++) {
		const struct dif_format *f = &formats[n];
		struct dif_tags tags = {
			.ref = UINT64_C(0x0123456789abcdef), .storage = 0x55aa, .checks = DIF_CHECK_STORAGE};
		size_t block = f->data_size + f->md_size;
		uint8_t *m = random_bytes(block), *end = m + f->data_size + f->offset + dif_bytes(f->guard);
		struct iovec iov = {m, block};
		struct dif_error e;

		dif_generate(f, &tags, &iov, 1);
		for (unsigned bit = 0; bit < ref_bits(f) + f->storage_bits; bit++) {
			unsigned of_tag = bit - ref_bits(f);
			bool counts = bit >= ref_bits(f) && (f->storage_mask >> of_tag & 1);
			end[-1 - (int)(bit / 8)] ^= (uint8_t)(1u << bit % 8);
			CU_ASSERT_EQUAL(dif_verify(f, &tags, &iov, 1, &e), !counts);
			CU_ASSERT_TRUE(!counts || (e.check == DIF_CHECK_STORAGE &&
						   (e.expected ^ e.found) == UINT64_C(1) << of_tag));
			end[-1 - (int)(bit / 8)] ^= (uint8_t)(1u << bit % 8);
		}
		free(m);
	}
}

static void test_moving_blocks_changes_their_reference_tags_only(void)
{
	for (size_t n = 0; n < FORMATS; n++) {
		const struct dif_format *f = &formats[n];
		size_t block = f->data_size + f->md_size, bytes = BLOCKS * block;
		struct dif_tags tags = {.ref = UINT64_C(0xfedcba9876543210),
					.storage = 0x1234,
					.app = 5,
					.app_mask = 0xffff,
					.checks = 71};
		uint64_t to = ones(ref_bits(f)) - 2;
		uint8_t *m = random_bytes(bytes);
		struct iovec iovs[16];
		struct dif_error e;

		cut(iovs, m, bytes);
		dif_generate(f, &tags, iovs, BLOCKS);
		dif_move(f, to, iovs, BLOCKS);
		tags.ref = f->type == 3 ? tags.ref : (tags.ref & ~ones(ref_bits(f))) | to;
		CU_ASSERT_TRUE(dif_verify(f, &tags, iovs, BLOCKS, &e));
		tags.ref = dif_ref_after(f, tags.ref, 3);
		CU_ASSERT_TRUE(f->type == 3 || (tags.ref & ones(ref_bits(f))) == 0);
		free(m);
	}
}

static void test_storage_tags_leave_a_reference_tag(void)
{
	static const unsigned least[DIF_GUARDS] = {0, 16, 0}, most[DIF_GUARDS] = {31, 64, 47};

	for (enum dif_guard g = DIF_GUARD_16; g < DIF_GUARDS; g++) {
		for (unsigned bits = 0; bits < 128; bits++) {
			CU_ASSERT_EQUAL(dif_storage_bits_are_good(g, bits), bits >= least[g] && bits <= most[g]);
		}
	}
}

static void test_a_block_says_that_it_is_not_to_be_checked(void)
{
	const struct dif_tags tags = {.checks = 71, .app_mask = 0xffff};
	uint8_t m[528];
	struct iovec iov = {m, sizeof(m)};
	struct dif_error e;

	for (unsigned i = 0; i < 9; i++) {
		struct dif_format f = {512, 16, 0, (uint8_t)(i / 3 + 1), (uint8_t)(i % 3)};
		f.offset = (uint16_t)(16 - dif_bytes(f.guard));
		f.storage_bits = f.guard == DIF_GUARD_32 ? 16 : 0;
		f.storage_mask = f.guard == DIF_GUARD_32 ? 0xffff : 0;
		memset(m, 0xff, sizeof(m));
		CU_ASSERT_TRUE(dif_verify(&f, &tags, &iov, 1, &e));
		m[512 + f.offset + guard_size(&f) + 2] ^=
			f.guard == DIF_GUARD_32; /* of the storage tag: does not count */
		CU_ASSERT_TRUE(dif_verify(&f, &tags, &iov, 1, &e));
		m[527] = 0; /* of the reference tag, which counts with type 3 only */
		CU_ASSERT_EQUAL(dif_verify(&f, &tags, &iov, 1, &e), f.type != 3);
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

/* Whatever the processor has, and however the data is cut and aligned. */
static void test_both_ways_to_a_crc_of_64_bits_agree(void)
{
	uint8_t *m = random_bytes(2048);

	for (unsigned i = 0; i < 5000; i++) {
		size_t from = below(200), bytes = below(1024), middle = below((unsigned)bytes + 1);
		uint64_t whole = dif_crc64_by_table(i, m + from, bytes);
		CU_ASSERT_EQUAL(dif_crc64(i, m + from, bytes), whole);
		CU_ASSERT_EQUAL(dif_crc64(dif_crc64(i, m + from, middle), m + from + middle, bytes - middle), whole);
	}
	free(m);
}

static const struct unit_test tests[] = {
	UNIT(test_the_crc_is_the_one_of_t10),
	UNIT(test_the_crcs_are_those_of_the_specification),
	UNIT(test_both_ways_to_a_crc_of_64_bits_agree),
	UNIT(test_what_is_made_passes_and_is_where_it_belongs),
	UNIT(test_the_check_that_fails_is_named_with_its_block),
	UNIT(test_each_bit_of_the_storage_tag_is_checked_if_the_mask_has_it),
	UNIT(test_moving_blocks_changes_their_reference_tags_only),
	UNIT(test_storage_tags_leave_a_reference_tag),
	UNIT(test_a_block_says_that_it_is_not_to_be_checked),
	UNIT(test_insert_and_strip_are_each_others_reverse),
	UNIT(test_metadata_without_protection_is_zeroes),
	UNIT_END,
};
UNIT_MAIN("dif", tests, NULL, NULL)
