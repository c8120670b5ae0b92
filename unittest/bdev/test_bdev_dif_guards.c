/* SPDX-License-Identifier: BSD-3-Clause */
/* Bdevs whose protection information has a guard of 32 or 64 bits: what is checked, made, left out, moved, and where
 * its tags are. test_bdev_dif.c has what does not depend on the format. */
#include "bdev_modules/error/error.h"
#include "unittest/bdev/fixture.h"

#include <errno.h>

#include "bdev/dif.h"

#define GUARD_ERROR   (BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_GUARD_CHECK) | NVME_SC_DNR)
#define APP_ERROR     (BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_APPTAG_CHECK) | NVME_SC_DNR)
#define REF_ERROR     (BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_REFTAG_CHECK) | NVME_SC_DNR)
#define STORAGE_ERROR (BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_STORAGE_TAG_CHECK) | NVME_SC_DNR)

#define DATA 512u
#define PI   16u
#define EXT  (DATA + PI)
#define MANY 600u /* more than a buffer holds, so that plain I/O takes several pieces */
#define ALL  (BDEV_DIF_TAGS | BDEV_DIF_GUARD | BDEV_DIF_APP | BDEV_DIF_REF | BDEV_DIF_STORAGE)

static uint8_t a[MANY * EXT], b[MANY * EXT];
static char error[BDEV_ERROR_MAX];

/* Each combination in turn. */
static struct bdev_md md;
static uint16_t storage; /* of the I/Os to come */

static void make(void)
{
	const struct bdev_malloc_opts opts = {
		.name = "m0", .block_size = DATA, .num_blocks = 1000, .numa_id = -1, .md = md};

	CU_ASSERT_EQUAL_FATAL(bdev_malloc_create(&opts, NULL, error), 0);
}

static void open_new(struct user *u)
{
	make();
	CU_ASSERT_EQUAL_FATAL(user_open(u, "m0", true, fixture_thread(0)), 0);
}

static void close_and_delete(struct user *u)
{
	user_close(u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
}

static void for_each_format(void (*test)(struct user *u))
{
	for (unsigned i = 0; i < 12; i++) {
		struct user u;
		md = (struct bdev_md){.size = PI,
				      .dif_type = (uint8_t)(i % 3 + 1),
				      .dif_guard = i / 3 % 2 == 0 ? DIF_GUARD_32 : DIF_GUARD_64,
				      .kept_apart = i >= 6};
		open_new(&u);
		test(&u);
		close_and_delete(&u);
	}
	storage = 0;
}

static uint16_t run(struct user *u, enum bdev_io_type type, void *buf, uint64_t lba, uint64_t blocks, uint8_t flags,
		    uint64_t ref, uint16_t app)
{
	size_t bytes = blocks * (flags & BDEV_DIF_PLAIN ? DATA : EXT), odd = bytes / 3 | 1;
	struct iovec iovs[2] = {{buf, odd}, {(uint8_t *)buf + odd, bytes - odd}};
	struct request *r = request_new(u);

	bdev_io_set_rw(r->io, type, iovs, buf != NULL ? 2 : 0, lba, blocks);
	bdev_io_set_dif(r->io, flags, ref, app, 0xffff);
	r->io->dif_storage = storage;
	uint16_t status = request_run(r);
	request_free(r);
	return status;
}

static void fill(uint8_t *buf, size_t bytes, uint64_t seed)
{
	for (size_t i = 0; i < bytes; i++) {
		buf[i] = (uint8_t)fixture_random(&seed);
	}
}

/* CRC-32C and CRC-64/NVME bit by bit: not those under test. */
static uint64_t crc_by_bits(const uint8_t *data, size_t bytes)
{
	bool is_32 = md.dif_guard == DIF_GUARD_32;
	uint64_t poly = is_32 ? 0x82f63b78 : UINT64_C(0x9a6c9329ac4bc9b5), ones = is_32 ? UINT32_MAX : UINT64_MAX,
		 crc = ones;

	for (size_t i = 0; i < bytes; i++) {
		crc ^= data[i];
		for (unsigned bit = 0; bit < 8; bit++) {
			crc = crc >> 1 ^ (crc & 1 ? poly : 0);
		}
	}
	return crc ^ ones;
}

static void put(uint8_t *at, uint64_t value, unsigned bytes)
{
	while (bytes-- > 0) {
		at[bytes] = (uint8_t)value;
		value >>= 8;
	}
}

/* NVM 5.2.1.2 and 5.2.1.3. */
static void expect_tuple(uint8_t pi[PI], uint64_t guard, uint16_t app, uint16_t first, uint64_t ref)
{
	if (md.dif_guard == DIF_GUARD_32) {
		put(pi, guard, 4);
		put(pi + 4, app, 2);
		put(pi + 6, first, 2);
		put(pi + 8, ref, 8);
	} else {
		put(pi, guard, 8);
		put(pi + 8, app, 2);
		put(pi + 10, ref, 6);
	}
}

static void tuples_are_as_specified(struct user *u)
{
	const uint64_t ref = UINT64_C(0xfffffffffffffffe); /* 48 or 64 bits of it overflow with the third block */

	storage = 0xabcd;
	fill(a, MANY * DATA, md.dif_type);
	CU_ASSERT_EQUAL(run(u, BDEV_IO_WRITE, a, 100, MANY, BDEV_DIF_PLAIN | BDEV_DIF_TAGS, ref, 0x5678), 0);
	CU_ASSERT_EQUAL(run(u, BDEV_IO_READ, b, 100, MANY, ALL, ref, 0x5678), 0);
	for (unsigned i = 0; i < MANY; i++) {
		uint8_t pi[PI];
		expect_tuple(pi, crc_by_bits(a + i * DATA, DATA), 0x5678, 0xabcd, md.dif_type == 3 ? ref : ref + i);
		CU_ASSERT_EQUAL(memcmp(b + i * EXT, a + i * DATA, DATA), 0);
		CU_ASSERT_EQUAL(memcmp(b + i * EXT + DATA, pi, PI), 0);
	}
	CU_ASSERT_EQUAL(run(u, BDEV_IO_READ, b, 100, MANY, ALL | BDEV_DIF_PLAIN, ref, 0x5678), 0);
	CU_ASSERT_EQUAL(memcmp(a, b, MANY * DATA), 0);
}

static void test_protection_is_what_the_specification_says(void)
{
	for_each_format(tuples_are_as_specified);
}

static void each_tag_is_checked(struct user *u)
{
	/* a difference in a bit beyond those that a guard of 16 bits has */
	const uint64_t ref = UINT64_C(0x123456789abc), other = ref ^ UINT64_C(1) << 40;

	storage = 0x1234;
	fill(a, 4 * EXT, 1);
	const uint8_t make = BDEV_DIF_TAGS | BDEV_DIF_MAKE;
	CU_ASSERT_EQUAL(run(u, BDEV_IO_WRITE, a, 20, 4, make, ref, 0x77), 0);
	for (unsigned plain = 0; plain < 2; plain++) {
		uint8_t flags = (uint8_t)(ALL | (plain ? BDEV_DIF_PLAIN : 0));
		CU_ASSERT_EQUAL(run(u, BDEV_IO_READ, b, 20, 4, flags, ref, 0x77), 0);
		CU_ASSERT_EQUAL(run(u, BDEV_IO_READ, b, 20, 4, flags, ref, 0x78), APP_ERROR);
		CU_ASSERT_EQUAL(run(u, BDEV_IO_READ, b, 20, 4, flags, other, 0x77), md.dif_type == 3 ? 0 : REF_ERROR);
		storage = 0x1235;
		CU_ASSERT_EQUAL(run(u, BDEV_IO_READ, b, 20, 4, flags, ref, 0x77),
				md.dif_guard == DIF_GUARD_32 ? STORAGE_ERROR : 0);
		CU_ASSERT_EQUAL(run(u, BDEV_IO_READ, b, 20, 4, flags & ~BDEV_DIF_STORAGE, ref, 0x77), 0);
		storage = 0x1234;
	}
	CU_ASSERT_EQUAL(run(u, BDEV_IO_VERIFY, NULL, 20, 4, ALL, ref, 0x77), 0);
	CU_ASSERT_EQUAL(run(u, BDEV_IO_VERIFY, NULL, 21, 3, ALL, md.dif_type == 3 ? ref : ref + 1, 0x77), 0);
	CU_ASSERT_EQUAL(run(u, BDEV_IO_VERIFY, NULL, 20, 4, ALL, ref, 0x76), APP_ERROR);
}

static void test_each_tag_is_checked(void)
{
	for_each_format(each_tag_is_checked);
}

static void bad_guards_are_found(struct user *u)
{
	for (unsigned bit = 0; bit < (md.dif_guard == DIF_GUARD_32 ? 32 : 64); bit++) {
		fill(a, 3 * DATA, bit);
		CU_ASSERT_EQUAL(run(u, BDEV_IO_WRITE, a, 7, 3, BDEV_DIF_PLAIN, 0, 0), 0);
		CU_ASSERT_EQUAL(run(u, BDEV_IO_READ, a, 7, 3, 0, 0, 0), 0);
		a[EXT + DATA + bit / 8] ^= (uint8_t)(1u << bit % 8);
		CU_ASSERT_EQUAL(run(u, BDEV_IO_WRITE, a, 7, 3, 0, 0, 0), GUARD_ERROR);
		CU_ASSERT_EQUAL(run(u, BDEV_IO_WRITE, a, 7, 3, BDEV_DIF_TAGS, 0, 0), 0); /* checks nothing */
		CU_ASSERT_EQUAL(run(u, BDEV_IO_READ, b, 7, 3, 0, 0, 0), GUARD_ERROR);
		CU_ASSERT_EQUAL(run(u, BDEV_IO_READ, b, 7, 3, BDEV_DIF_PLAIN, 0, 0), GUARD_ERROR);
		CU_ASSERT_EQUAL(run(u, BDEV_IO_COMPARE, b, 7, 3, BDEV_DIF_PLAIN, 0, 0), GUARD_ERROR);
		CU_ASSERT_EQUAL(run(u, BDEV_IO_VERIFY, NULL, 7, 3, 0, 0, 0), GUARD_ERROR);
		CU_ASSERT_EQUAL(run(u, BDEV_IO_READ, b, 7, 1, 0, 0, 0), 0);
	}
}

static void test_each_bit_of_a_guard_counts(void)
{
	for_each_format(bad_guards_are_found);
}

static void blocks_without_data_pass(struct user *u)
{
	static const uint8_t escaped[PI] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
					    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

	CU_ASSERT_EQUAL(run(u, BDEV_IO_READ, a, 0, MANY, 0, 0, 0), 0); /* never written */
	CU_ASSERT_EQUAL(memcmp(a + DATA, escaped, PI), 0);
	CU_ASSERT_EQUAL(run(u, BDEV_IO_WRITE_ZEROES, NULL, 30, 8, 0, 0, 0), 0);
	CU_ASSERT_EQUAL(run(u, BDEV_IO_READ, a, 30, 8, 0, 0, 0), 0);
	for (unsigned i = 0; i < 8; i++) {
		uint8_t pi[PI];
		expect_tuple(pi, crc_by_bits(a + i * EXT, DATA), 0, 0, md.dif_type == 3 ? 0 : 30 + i);
		CU_ASSERT_EQUAL(memcmp(a + i * EXT + DATA, pi, PI), 0);
	}
	CU_ASSERT_EQUAL(run(u, BDEV_IO_UNMAP, NULL, 31, 1, 0, 0, 0), 0);
	CU_ASSERT_EQUAL(run(u, BDEV_IO_READ, a, 30, 8, 0, 0, 0), 0);
	CU_ASSERT_EQUAL(memcmp(a + EXT + DATA, escaped, PI), 0);
}

static void test_zeroed_unmapped_and_unwritten_blocks_pass_the_checks(void)
{
	for_each_format(blocks_without_data_pass);
}

static void copies_have_new_reference_tags(struct user *u)
{
	struct request *r = request_new(u);
	uint8_t pi[PI];

	storage = 0x4321;
	fill(a, 300 * DATA, 9);
	CU_ASSERT_EQUAL(run(u, BDEV_IO_WRITE, a, 10, 300, BDEV_DIF_PLAIN | BDEV_DIF_TAGS, 10, 0x99), 0);
	bdev_io_set_copy(r->io, 10, 500, 300);
	CU_ASSERT_EQUAL(request_run(r), 0);
	request_free(r);
	CU_ASSERT_EQUAL(run(u, BDEV_IO_READ, b, 500, 300, 0, 0, 0), 0);
	for (unsigned i = 0; i < 300; i++) {
		expect_tuple(pi, crc_by_bits(a + i * DATA, DATA), 0x99, 0x4321, md.dif_type == 3 ? 10 : 500 + i);
		CU_ASSERT_EQUAL(memcmp(b + i * EXT, a + i * DATA, DATA), 0);
		CU_ASSERT_EQUAL(memcmp(b + i * EXT + DATA, pi, PI), 0);
	}
}

static void test_what_is_copied_belongs_to_where_it_is_then(void)
{
	for_each_format(copies_have_new_reference_tags);
}

/* What goes bad between two layers is found by the next one, and the tags of the one reach the other. */
static void test_a_stack_has_the_same_format(void)
{
	struct bdev_error_injection in = {.type = BDEV_IO_READ,
					  .kind = BDEV_ERROR_CORRUPT_DATA,
					  .num = 1,
					  .corrupt_offset = 600,
					  .corrupt_value = 1};
	char name[256];

	storage = 0x1111;
	for (unsigned i = 0; i < 2; i++) {
		struct user u;
		md = (struct bdev_md){.size = PI, .dif_type = 1, .dif_guard = i == 0 ? DIF_GUARD_32 : DIF_GUARD_64};
		make();
		CU_ASSERT_EQUAL_FATAL(bdev_error_create("m0", NULL, name, error), 0);
		CU_ASSERT_EQUAL(bdev_get_md(bdev_find(name))->dif_guard, md.dif_guard);
		CU_ASSERT_EQUAL(bdev_get_md(bdev_find(name))->storage_bits, i == 0 ? 16 : 0);
		CU_ASSERT_EQUAL_FATAL(user_open(&u, name, true, fixture_thread(0)), 0);
		fill(a, 4 * DATA, 3);
		CU_ASSERT_EQUAL(run(&u, BDEV_IO_WRITE, a, 8, 4, BDEV_DIF_PLAIN | ALL, 8, 5), 0);
		CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, b, 8, 4, ALL, 8, 5), 0);
		CU_ASSERT_EQUAL(bdev_error_inject(name, &in, error), 0);
		CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, b, 8, 4, 0, 0, 0), GUARD_ERROR);
		CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, b, 8, 4, BDEV_DIF_PLAIN, 0, 0), 0);
		CU_ASSERT_EQUAL(memcmp(a, b, 4 * DATA), 0);
		user_close(&u);
		CU_ASSERT_EQUAL(fixture_delete(bdev_error_delete, name), 0);
		CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
	}
	storage = 0;
}

/* The guard covers the metadata in front of the protection information. */
static void test_it_may_be_the_first_or_the_last_of_longer_metadata(void)
{
	static uint8_t out[3 * 4096], in[3 * (4096 + 128)];

	for (unsigned i = 0; i < 16; i++) {
		const uint16_t size = (uint16_t)(16 << i / 4);
		md = (struct bdev_md){.size = size,
				      .dif_type = 1,
				      .dif_guard = i % 2 ? DIF_GUARD_32 : DIF_GUARD_64,
				      .dif_is_first = i % 4 < 2};
		const struct bdev_malloc_opts opts = {
			.name = "m0", .block_size = 4096, .num_blocks = 10, .numa_id = -1, .md = md};
		unsigned ext = 4096u + size, offset = md.dif_is_first ? 0 : size - PI;
		struct iovec iov = {out, sizeof(out)};
		uint8_t pi[PI];
		struct user u;
		CU_ASSERT_EQUAL_FATAL(bdev_malloc_create(&opts, NULL, error), 0);
		CU_ASSERT_EQUAL_FATAL(user_open(&u, "m0", true, fixture_thread(0)), 0);
		struct request *r = request_new(&u);
		fill(out, sizeof(out), i);
		bdev_io_set_rw(r->io, BDEV_IO_WRITE, &iov, 1, 2, 3);
		bdev_io_set_dif(r->io, BDEV_DIF_PLAIN, 0, 0, 0);
		CU_ASSERT_EQUAL(request_run(r), 0);
		iov = (struct iovec){in, 3 * ext};
		bdev_io_set_rw(r->io, BDEV_IO_READ, &iov, 1, 2, 3);
		bdev_io_set_dif(r->io, 0, 0, 0, 0);
		CU_ASSERT_EQUAL(request_run(r), 0);
		for (unsigned n = 0; n < 3; n++) {
			expect_tuple(pi, crc_by_bits(in + n * ext, 4096 + offset), 0, 0, 2 + n);
			CU_ASSERT_EQUAL(memcmp(in + n * ext, out + n * 4096, 4096), 0);
			CU_ASSERT_EQUAL(memcmp(in + n * ext + 4096 + offset, pi, PI), 0);
		}
		request_free(r);
		close_and_delete(&u);
	}
}

static void test_null_reads_what_passes(void)
{
	for (unsigned i = 0; i < 2; i++) {
		const struct bdev_null_opts opts = {
			.name = "n0",
			.block_size = DATA,
			.num_blocks = 100,
			.md = {.size = PI, .dif_type = 1, .dif_guard = i ? DIF_GUARD_32 : DIF_GUARD_64}};
		struct user u;
		CU_ASSERT_EQUAL_FATAL(bdev_null_create(&opts, error), 0);
		CU_ASSERT_EQUAL_FATAL(user_open(&u, "n0", true, fixture_thread(0)), 0);
		fill(a, EXT * 5, 1);
		CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, a, 3, 5, 0, 0, 0), 0);
		CU_ASSERT_EQUAL(run(&u, BDEV_IO_WRITE, a, 3, 5, 0, 0, 0), 0);
		CU_ASSERT_EQUAL(run(&u, BDEV_IO_WRITE, a, 4, 5, 0, 0, 0), REF_ERROR);
		user_close(&u);
		CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
	}
}

static const struct unit_test tests[] = {
	UNIT(test_protection_is_what_the_specification_says),
	UNIT(test_each_tag_is_checked),
	UNIT(test_each_bit_of_a_guard_counts),
	UNIT(test_zeroed_unmapped_and_unwritten_blocks_pass_the_checks),
	UNIT(test_what_is_copied_belongs_to_where_it_is_then),
	UNIT(test_a_stack_has_the_same_format),
	UNIT(test_it_may_be_the_first_or_the_last_of_longer_metadata),
	UNIT(test_null_reads_what_passes),
	UNIT_END,
};
UNIT_MAIN("bdev_dif_guards", tests, fixture_start, fixture_stop)
