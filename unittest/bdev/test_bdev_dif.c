/* SPDX-License-Identifier: BSD-3-Clause */
/* Bdevs whose blocks carry metadata: what is checked, made, left out, and where; on malloc, null and what stands on
 * them. */
#include "bdev_modules/error/error.h"
#include "unittest/bdev/fixture.h"

#include <errno.h>

#include "bdev/dif.h"

#define GUARD_ERROR (BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_GUARD_CHECK) | NVME_SC_DNR)
#define APP_ERROR   (BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_APPTAG_CHECK) | NVME_SC_DNR)
#define REF_ERROR   (BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_REFTAG_CHECK) | NVME_SC_DNR)
#define MISCOMPARE  (BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_COMPARE_FAILED) | NVME_SC_DNR)

#define DATA 512u
#define EXT  520u
#define MANY 600u /* more than a buffer holds, so that plain I/O takes several pieces */

static uint8_t a[MANY * EXT], b[MANY * EXT], c[MANY * EXT];
static char error[BDEV_ERROR_MAX];
static bool apart; /* malloc bdevs keep metadata apart from the data: to their users it makes no difference */

static void make(const char *name, uint32_t block_size, struct bdev_md md)
{
	md.kept_apart = apart;
	const struct bdev_malloc_opts opts = {
		.name = name, .block_size = block_size, .num_blocks = 1000, .numa_id = -1, .md = md};

	CU_ASSERT_EQUAL_FATAL(bdev_malloc_create(&opts, NULL, error), 0);
}

static void open_new(struct user *u, uint8_t type)
{
	make("m0", DATA, (struct bdev_md){.size = 8, .dif_type = type});
	CU_ASSERT_EQUAL_FATAL(user_open(u, "m0", true, fixture_thread(0)), 0);
}

static void close_and_delete(struct user *u)
{
	user_close(u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
}

/* One I/O with flags and tags: iov lengths are the plain or the extended ones. */
static uint16_t run(struct user *u, enum bdev_io_type type, void *buf, uint64_t lba, uint64_t blocks, uint8_t flags,
		    uint32_t ref, uint16_t app, uint16_t mask)
{
	const struct bdev *dev = bdev_desc_bdev(u->desc);
	size_t bytes = blocks * (flags & BDEV_DIF_PLAIN ? bdev_data_block_size(dev) : bdev_block_size(dev)),
	       odd = bytes / 3 | 1;
	struct iovec iovs[2] = {{buf, odd}, {(uint8_t *)buf + odd, bytes - odd}};
	struct request *r = request_new(u);

	bdev_io_set_rw(r->io, type, iovs, buf != NULL ? 2 : 0, lba, blocks);
	bdev_io_set_dif(r->io, flags, ref, app, mask);
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

static void protect(uint8_t *ext, uint32_t blocks, uint8_t type, uint32_t ref, uint16_t app)
{
	const struct dif_format f = {DATA, 8, 0, type};
	const struct dif_tags tags = {.ref = ref, .app = app};

	dif_generate(&f, &tags, &(struct iovec){ext, blocks * EXT}, blocks);
}

static void test_what_is_written_with_good_protection_is_read_as_it_was(void)
{
	for (uint8_t type = 1; type <= 3; type++) {
		struct user u;
		open_new(&u, type);
		fill(a, 9 * EXT, type);
		protect(a, 9, type, 70, 0x55);
		CU_ASSERT_EQUAL(run(&u, BDEV_IO_WRITE, a, 70, 9, 0, 0, 0, 0), 0);
		CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, b, 70, 9, 0, 0, 0, 0), 0);
		CU_ASSERT_EQUAL(memcmp(a, b, 9 * EXT), 0);
		close_and_delete(&u);
	}
}

static void test_what_is_written_is_checked_before_it_changes_anything(void)
{
	struct user u;

	open_new(&u, 1);
	fill(a, 4 * EXT, 1);
	protect(a, 4, 1, 20, 0);
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_WRITE, a, 20, 4, 0, 0, 0, 0), 0);
	memcpy(b, a, 4 * EXT);
	b[2 * EXT + 7] ^= 1;
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_WRITE, b, 20, 4, 0, 0, 0, 0), GUARD_ERROR);
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_WRITE, a, 21, 4, 0, 0, 0, 0), REF_ERROR); /* it is not for there */
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_WRITE, a, 20, 4, BDEV_DIF_TAGS | BDEV_DIF_APP, 0, 3, 0xffff), APP_ERROR);
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, c, 20, 4, 0, 0, 0, 0), 0);
	CU_ASSERT_EQUAL(memcmp(a, c, 4 * EXT), 0);
	close_and_delete(&u);
}

static void test_what_was_stored_bad_is_found_when_it_is_read(void)
{
	struct user u;

	open_new(&u, 1);
	fill(a, 4 * EXT, 2);
	protect(a, 4, 1, 20, 0x77);
	a[3 * EXT] ^= 0x80;
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_WRITE, a, 20, 4, BDEV_DIF_TAGS, 0, 0, 0), 0); /* checks nothing */
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, b, 20, 4, 0, 0, 0, 0), GUARD_ERROR);
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, b, 20, 3, 0, 0, 0, 0), 0);
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, b, 20, 4, BDEV_DIF_PLAIN, 0, 0, 0), GUARD_ERROR);
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, b, 20, 4, BDEV_DIF_TAGS | BDEV_DIF_REF, 20, 0, 0), 0);
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, b, 20, 4, BDEV_DIF_TAGS | BDEV_DIF_REF, 21, 0, 0), REF_ERROR);
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, b, 20, 4, BDEV_DIF_TAGS | BDEV_DIF_APP, 0, 0x7f, 0xf0), 0);
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, b, 20, 4, BDEV_DIF_TAGS | BDEV_DIF_APP, 0, 0x7f, 0xff), APP_ERROR);
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_COMPARE, b, 20, 4, BDEV_DIF_PLAIN, 0, 0, 0), GUARD_ERROR);
	close_and_delete(&u);
}

static void test_plain_blocks_get_metadata_and_lose_it(void)
{
	for (uint8_t type = 0; type <= 3; type++) {
		struct user u;
		open_new(&u, type);
		fill(a, MANY * DATA, type);
		CU_ASSERT_EQUAL(run(&u, BDEV_IO_WRITE, a, 100, MANY, BDEV_DIF_PLAIN, 0, 0, 0), 0);
		CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, b, 100, MANY, 0, 0, 0, 0), 0); /* all of it passes */
		for (unsigned i = 0; i < MANY; i++) {
			const uint8_t *t = b + i * EXT + DATA;
			CU_ASSERT_EQUAL(memcmp(b + i * EXT, a + i * DATA, DATA), 0);
			CU_ASSERT_EQUAL(t[0] << 8 | t[1], type == 0 ? 0 : dif_crc(DIF_GUARD_16, 0, a + i * DATA, DATA));
			CU_ASSERT_EQUAL(t[6] << 8 | t[7], type == 1 || type == 2 ? 100 + i : 0);
		}
		CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, c, 100, MANY, BDEV_DIF_PLAIN, 0, 0, 0), 0);
		CU_ASSERT_EQUAL(memcmp(a, c, MANY * DATA), 0);
		CU_ASSERT_EQUAL(run(&u, BDEV_IO_COMPARE, a, 100, MANY, BDEV_DIF_PLAIN, 0, 0, 0), 0);
		a[(MANY - 1) * DATA] ^= 1;
		CU_ASSERT_EQUAL(run(&u, BDEV_IO_COMPARE, a, 100, MANY, BDEV_DIF_PLAIN, 0, 0, 0), MISCOMPARE);
		close_and_delete(&u);
	}
}

static void test_tags_of_plain_blocks_go_on_from_piece_to_piece(void)
{
	const uint8_t flags = BDEV_DIF_PLAIN | BDEV_DIF_TAGS | BDEV_DIF_GUARD | BDEV_DIF_APP | BDEV_DIF_REF;
	struct user u;

	open_new(&u, 2);
	fill(a, MANY * DATA, 5);
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_WRITE, a, 0, MANY, flags, 0xffffff00, 0xbeef, 0xffff), 0);
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, b, 0, MANY, flags, 0xffffff00, 0xbeef, 0xffff), 0);
	CU_ASSERT_EQUAL(memcmp(a, b, MANY * DATA), 0);
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, b, 599, 1, flags, 0xffffff00 + 599, 0xbeef, 0xffff), 0);
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, b, 599, 1, flags, 0xffffff00 + 598, 0xbeef, 0xffff), REF_ERROR);
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, b, 599, 1, flags, 0xffffff00 + 599, 0xbeee, 0xffff), APP_ERROR);
	close_and_delete(&u);
}

static void test_compare_and_write_of_plain_blocks_is_one(void)
{
	struct user u;

	open_new(&u, 1);
	fill(a, 3 * DATA, 6);
	fill(b, 3 * DATA, 7);
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_WRITE, a, 5, 3, BDEV_DIF_PLAIN, 0, 0, 0), 0);
	for (unsigned round = 0; round < 2; round++) {
		struct iovec old = {a, 3 * DATA}, new = {b, 3 * DATA};
		struct request *r = request_new(&u);
		r->io->compare.iovs = &old;
		r->io->compare.iovcnt = 1;
		bdev_io_set_rw(r->io, BDEV_IO_COMPARE_AND_WRITE, &new, 1, 5, 3);
		bdev_io_set_dif(r->io, BDEV_DIF_PLAIN, 0, 0, 0);
		CU_ASSERT_EQUAL(request_run(r), round == 0 ? 0 : MISCOMPARE);
		request_free(r);
	}
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, c, 5, 3, BDEV_DIF_PLAIN, 0, 0, 0), 0);
	CU_ASSERT_EQUAL(memcmp(b, c, 3 * DATA), 0);
	close_and_delete(&u);
}

static void test_zeroed_and_unmapped_blocks_pass_the_checks(void)
{
	for (uint8_t type = 1; type <= 3; type++) {
		struct user u;
		open_new(&u, type);
		CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, a, 0, MANY, 0, 0, 0, 0), 0); /* never written */
		CU_ASSERT_EQUAL(run(&u, BDEV_IO_WRITE_ZEROES, NULL, 30, 8, 0, 0, 0, 0), 0);
		CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, a, 30, 8, 0, 0, 0, 0), 0);
		CU_ASSERT_EQUAL(a[EXT + 0], 0);
		CU_ASSERT_EQUAL(a[EXT + 519], type == 3 ? 0 : 31);
		CU_ASSERT_EQUAL(run(&u, BDEV_IO_UNMAP, NULL, 31, 1, 0, 0, 0, 0), 0);
		CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, a, 30, 8, 0, 0, 0, 0), 0);
		CU_ASSERT_EQUAL(a[EXT + 0], 0);
		CU_ASSERT_EQUAL(a[EXT + 519], 0xff);
		close_and_delete(&u);
	}
}

static void test_verify_looks_at_the_protection(void)
{
	struct user u;

	open_new(&u, 1);
	fill(a, MANY * EXT, 9);
	protect(a, MANY, 1, 10, 0);
	a[580 * EXT + 3] ^= 1;
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_WRITE, a, 10, MANY, BDEV_DIF_TAGS, 0, 0, 0), 0);
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_VERIFY, NULL, 10, 580, 0, 0, 0, 0), 0);
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_VERIFY, NULL, 10, MANY, 0, 0, 0, 0), GUARD_ERROR);
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_VERIFY, NULL, 10, MANY, BDEV_DIF_TAGS | BDEV_DIF_REF, 10, 0, 0), 0);
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_VERIFY, NULL, 10, MANY, BDEV_DIF_TAGS | BDEV_DIF_REF, 11, 0, 0), REF_ERROR);
	close_and_delete(&u);
}

static uint16_t copy_blocks(struct user *u, uint64_t from, uint64_t to, uint64_t blocks)
{
	struct request *r = request_new(u);

	bdev_io_set_copy(r->io, from, to, blocks);
	uint16_t status = request_run(r);
	request_free(r);
	return status;
}

static void test_what_is_copied_belongs_to_where_it_is_then(void)
{
	struct user u;

	open_new(&u, 1);
	fill(a, 300 * DATA, 9);
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_WRITE, a, 10, 300, BDEV_DIF_PLAIN, 0, 0, 0), 0);
	CU_ASSERT_EQUAL(copy_blocks(&u, 8, 500, 302), 0); /* two that were never written */
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, b, 500, 302, BDEV_DIF_PLAIN, 0, 0, 0), 0);
	CU_ASSERT_EQUAL(memcmp(a, b + 2 * DATA, 300 * DATA), 0);
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, b, 500, 3, 0, 0, 0, 0), 0);
	CU_ASSERT_EQUAL(b[519], 0xff);
	CU_ASSERT_EQUAL(b[2 * EXT + 518] << 8 | b[2 * EXT + 519], 502);
	b[2 * EXT] ^= 1;
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_WRITE, b, 500, 3, BDEV_DIF_TAGS, 0, 0, 0), 0);
	CU_ASSERT_EQUAL(copy_blocks(&u, 500, 0, 3), GUARD_ERROR);
	close_and_delete(&u);
}

static void test_make_replaces_what_the_submitter_has(void)
{
	const uint8_t flags = BDEV_DIF_MAKE | BDEV_DIF_TAGS | BDEV_DIF_GUARD;
	struct user u;

	make("m0", DATA, (struct bdev_md){.size = 16, .dif_type = 1});
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "m0", true, fixture_thread(0)), 0);
	fill(a, 2 * 528, 8);
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_WRITE, a, 44, 2, flags, 44, 0, 0), 0);
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, b, 44, 2, 0, 0, 0, 0), 0);
	CU_ASSERT_EQUAL(memcmp(a, b, 520), 0); /* the data and the metadata in front */
	CU_ASSERT_EQUAL(b[527], 44);
	close_and_delete(&u);
}

static void test_lengths_are_those_of_the_kind_of_block(void)
{
	struct iovec iov = {a, 3 * EXT};
	struct user u;

	open_new(&u, 1);
	struct request *r = request_new(&u);
	bdev_io_set_rw(r->io, BDEV_IO_WRITE, &iov, 1, 0, 3);
	bdev_io_set_dif(r->io, BDEV_DIF_PLAIN, 0, 0, 0);
	CU_ASSERT_EQUAL(request_run(r), NVME_SC_SGL_INVALID_DATA | NVME_SC_DNR);
	iov.iov_len = 3 * DATA;
	bdev_io_set_dif(r->io, 0, 0, 0, 0);
	CU_ASSERT_EQUAL(request_run(r), NVME_SC_SGL_INVALID_DATA | NVME_SC_DNR);
	request_free(r);
	close_and_delete(&u);
}

static void test_blocks_with_metadata_have_no_zero_copy(void)
{
	struct user u;
	void *addr;
	size_t len;

	open_new(&u, 0);
	CU_ASSERT_FALSE(bdev_zcopy_region(bdev_find("m0"), &addr, &len));
	close_and_delete(&u);
}

static void test_null_reads_what_passes(void)
{
	const struct bdev_null_opts opts = {
		.name = "n0", .block_size = 4096, .num_blocks = 100, .md = {.size = 8, .dif_type = 1}};
	struct user u;

	CU_ASSERT_EQUAL_FATAL(bdev_null_create(&opts, error), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "n0", true, fixture_thread(0)), 0);
	fill(a, 4104 * 5, 1);
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, a, 3, 5, 0, 0, 0, 0), 0);
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_WRITE, a, 3, 5, 0, 0, 0, 0), 0);
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_WRITE, a, 4, 5, 0, 0, 0, 0), REF_ERROR);
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, a, 3, 5, BDEV_DIF_PLAIN, 0, 0, 0), 0);
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_WRITE, a, 3, 5, BDEV_DIF_PLAIN, 0, 0, 0), 0);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

/* What goes bad between two layers is found by the next one, on either way. */
static void test_corruption_in_a_stack_is_found_above_and_below(void)
{
	struct bdev_error_injection in = {.type = BDEV_IO_READ,
					  .kind = BDEV_ERROR_CORRUPT_DATA,
					  .num = 1,
					  .corrupt_offset = 600,
					  .corrupt_value = 1};
	struct user u;
	char name[256];

	make("m0", DATA, (struct bdev_md){.size = 8, .dif_type = 1});
	CU_ASSERT_EQUAL_FATAL(bdev_error_create("m0", NULL, name, error), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, name, true, fixture_thread(0)), 0);
	fill(a, 4 * DATA, 3);
	for (unsigned plain = 0; plain < 2; plain++) {
		uint8_t flags = plain ? BDEV_DIF_PLAIN : 0;
		CU_ASSERT_EQUAL(run(&u, BDEV_IO_WRITE, a, 8, 4, BDEV_DIF_PLAIN, 0, 0, 0), 0);
		in.type = BDEV_IO_READ;
		CU_ASSERT_EQUAL(bdev_error_inject(name, &in, error), 0);
		CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, b, 8, 4, flags, 0, 0, 0), GUARD_ERROR);
		CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, b, 8, 4, flags, 0, 0, 0), 0);
		in.type = BDEV_IO_WRITE;
		CU_ASSERT_EQUAL(bdev_error_inject(name, &in, error), 0);
		CU_ASSERT_EQUAL(run(&u, BDEV_IO_WRITE, plain ? a : b, 8, 4, flags, 0, 0, 0), GUARD_ERROR);
		CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, c, 8, 4, BDEV_DIF_PLAIN, 0, 0, 0), 0);
		CU_ASSERT_EQUAL(memcmp(a, c, 4 * DATA), 0);
	}
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_error_delete, name), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
}

static void test_blocks_of_64_kib_with_metadata(void)
{
	static uint8_t out[4 * 65600], in[4 * 65600];
	struct user u;

	make("m0", 65536, (struct bdev_md){.size = 64, .dif_type = 1, .dif_is_first = true});
	CU_ASSERT_EQUAL(bdev_block_size(bdev_find("m0")), 65600);
	CU_ASSERT_EQUAL(bdev_data_block_size(bdev_find("m0")), 65536);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "m0", true, fixture_thread(0)), 0);
	fill(out, 4 * 65536, 4);
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_WRITE, out, 990, 4, BDEV_DIF_PLAIN, 0, 0, 0), 0);
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, in, 990, 4, 0, 0, 0, 0), 0);
	CU_ASSERT_EQUAL(in[65536] << 8 | in[65537], dif_crc(DIF_GUARD_16, 0, out, 65536)); /* the guard comes first */
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, in, 990, 4, BDEV_DIF_PLAIN, 0, 0, 0), 0);
	CU_ASSERT_EQUAL(memcmp(in, out, 4 * 65536), 0);
	close_and_delete(&u);
}

/* Of T10, bit by bit: not the one under test. */
static uint16_t crc_by_bits(uint16_t crc, const uint8_t *data, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		crc ^= (uint16_t)(data[i] << 8);
		for (unsigned bit = 0; bit < 8; bit++) {
			crc = (uint16_t)(crc << 1 ^ (crc & 0x8000 ? 0x8bb7 : 0));
		}
	}
	return crc;
}

/* Every layout of metadata: what plain writes leave is computed here again, byte by byte. */
static void check_made(uint16_t md_size, uint8_t type, bool first)
{
	const unsigned ext = DATA + md_size, offset = first ? 0 : md_size - 8u;
	struct user u;

	make("m0", DATA, (struct bdev_md){.size = md_size, .dif_type = type, .dif_is_first = first});
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "m0", true, fixture_thread(0)), 0);
	fill(a, 7 * DATA, md_size + type);
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_WRITE, a, 40, 7, BDEV_DIF_PLAIN, 0, 0, 0), 0);
	CU_ASSERT_EQUAL(run(&u, BDEV_IO_READ, b, 39, 9, 0, 0, 0, 0), 0);
	for (unsigned i = 0; i < 7; i++) {
		const uint8_t *block = b + (i + 1) * ext;
		uint16_t guard = crc_by_bits(0, block, DATA + offset);
		uint8_t md[128] = {0}, *pi = md + offset;
		pi[0] = (uint8_t)(guard >> 8);
		pi[1] = (uint8_t)guard;
		pi[7] = type == 3 ? 0 : (uint8_t)(40 + i);
		CU_ASSERT_EQUAL(memcmp(block, a + i * DATA, DATA), 0);
		CU_ASSERT_EQUAL(memcmp(block + DATA, md, md_size), 0);
	}
	for (unsigned i = 0; i < 9; i += 8) { /* those beside it were never written */
		static const uint8_t escaped[8] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
		CU_ASSERT_EQUAL(memcmp(b + i * ext + DATA + offset, escaped, 8), 0);
	}
	close_and_delete(&u);
}

static void test_protection_is_what_the_specification_says(void)
{
	for (uint8_t type = 1; type <= 3; type++) {
		for (uint16_t md_size = 8; md_size <= 128; md_size = (uint16_t)(md_size * 2)) {
			check_made(md_size, type, false);
			check_made(md_size, type, true);
		}
	}
}

static void test_a_stack_shows_that_metadata_is_kept_apart(void)
{
	char name[256];

	for (unsigned i = 0; i < 2; i++) {
		apart = i == 1;
		make("m0", DATA, (struct bdev_md){.size = 8, .dif_type = 1});
		CU_ASSERT_EQUAL_FATAL(bdev_error_create("m0", NULL, name, error), 0);
		CU_ASSERT_EQUAL(bdev_get_md(bdev_find("m0"))->kept_apart, i == 1);
		CU_ASSERT_EQUAL(bdev_get_md(bdev_find(name))->kept_apart, i == 1);
		CU_ASSERT_EQUAL(bdev_block_size(bdev_find(name)), EXT);
		CU_ASSERT_EQUAL(fixture_delete(bdev_error_delete, name), 0);
		CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
	}
	apart = false;
}

static void refused(uint32_t block_size, struct bdev_md md, const char *why)
{
	const struct bdev_malloc_opts opts = {
		.name = "x", .block_size = block_size, .num_blocks = 10, .numa_id = -1, .md = md};
	const struct bdev_null_opts null = {.name = "x", .block_size = block_size, .num_blocks = 10, .md = md};

	CU_ASSERT_EQUAL(bdev_malloc_create(&opts, NULL, error), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, why));
	CU_ASSERT_EQUAL(bdev_null_create(&null, error), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, why));
}

static void test_formats_that_make_no_sense_are_refused(void)
{
	refused(512, (struct bdev_md){.size = 4}, "md_size 4");
	refused(512, (struct bdev_md){.size = 24}, "md_size 24");
	refused(512, (struct bdev_md){.size = 256}, "md_size 256");
	refused(512, (struct bdev_md){.size = 8, .dif_type = 4}, "dif_type 4");
	refused(512, (struct bdev_md){.dif_type = 1}, "md_size is 0");
	refused(512, (struct bdev_md){.size = 8, .dif_type = 1, .dif_guard = DIF_GUARD_32}, "md_size 8: ");
	refused(512, (struct bdev_md){.size = 8, .dif_type = 1, .dif_guard = DIF_GUARD_64},
		"16, 32, 64 and 128 are allowed");
	refused(512, (struct bdev_md){.size = 16, .dif_type = 1, .dif_guard = DIF_GUARDS},
		"dif_pi_format 3: must be 0");
	refused(512, (struct bdev_md){.dif_type = 1, .dif_guard = DIF_GUARD_64}, "md_size is 0");
}

#define APART(test_)                                                                                                   \
	static void test_##_apart(void)                                                                                \
	{                                                                                                              \
		apart = true;                                                                                          \
		test_();                                                                                               \
		apart = false;                                                                                         \
	}
APART(test_what_is_written_with_good_protection_is_read_as_it_was)
APART(test_what_is_written_is_checked_before_it_changes_anything)
APART(test_what_was_stored_bad_is_found_when_it_is_read)
APART(test_plain_blocks_get_metadata_and_lose_it)
APART(test_tags_of_plain_blocks_go_on_from_piece_to_piece)
APART(test_compare_and_write_of_plain_blocks_is_one)
APART(test_zeroed_and_unmapped_blocks_pass_the_checks)
APART(test_verify_looks_at_the_protection)
APART(test_what_is_copied_belongs_to_where_it_is_then)
APART(test_make_replaces_what_the_submitter_has)
APART(test_lengths_are_those_of_the_kind_of_block)
APART(test_blocks_with_metadata_have_no_zero_copy)
APART(test_corruption_in_a_stack_is_found_above_and_below)
APART(test_blocks_of_64_kib_with_metadata)
APART(test_protection_is_what_the_specification_says)

static const struct unit_test tests[] = {
	UNIT(test_what_is_written_with_good_protection_is_read_as_it_was),
	UNIT(test_what_is_written_is_checked_before_it_changes_anything),
	UNIT(test_what_was_stored_bad_is_found_when_it_is_read),
	UNIT(test_plain_blocks_get_metadata_and_lose_it),
	UNIT(test_tags_of_plain_blocks_go_on_from_piece_to_piece),
	UNIT(test_compare_and_write_of_plain_blocks_is_one),
	UNIT(test_zeroed_and_unmapped_blocks_pass_the_checks),
	UNIT(test_verify_looks_at_the_protection),
	UNIT(test_what_is_copied_belongs_to_where_it_is_then),
	UNIT(test_make_replaces_what_the_submitter_has),
	UNIT(test_lengths_are_those_of_the_kind_of_block),
	UNIT(test_blocks_with_metadata_have_no_zero_copy),
	UNIT(test_null_reads_what_passes),
	UNIT(test_corruption_in_a_stack_is_found_above_and_below),
	UNIT(test_blocks_of_64_kib_with_metadata),
	UNIT(test_protection_is_what_the_specification_says),
	UNIT(test_a_stack_shows_that_metadata_is_kept_apart),
	UNIT(test_formats_that_make_no_sense_are_refused),
	UNIT(test_what_is_written_with_good_protection_is_read_as_it_was_apart),
	UNIT(test_what_is_written_is_checked_before_it_changes_anything_apart),
	UNIT(test_what_was_stored_bad_is_found_when_it_is_read_apart),
	UNIT(test_plain_blocks_get_metadata_and_lose_it_apart),
	UNIT(test_tags_of_plain_blocks_go_on_from_piece_to_piece_apart),
	UNIT(test_compare_and_write_of_plain_blocks_is_one_apart),
	UNIT(test_zeroed_and_unmapped_blocks_pass_the_checks_apart),
	UNIT(test_verify_looks_at_the_protection_apart),
	UNIT(test_what_is_copied_belongs_to_where_it_is_then_apart),
	UNIT(test_make_replaces_what_the_submitter_has_apart),
	UNIT(test_lengths_are_those_of_the_kind_of_block_apart),
	UNIT(test_blocks_with_metadata_have_no_zero_copy_apart),
	UNIT(test_corruption_in_a_stack_is_found_above_and_below_apart),
	UNIT(test_blocks_of_64_kib_with_metadata_apart),
	UNIT(test_protection_is_what_the_specification_says_apart),
	UNIT_END,
};
UNIT_MAIN("bdev_dif", tests, fixture_start, fixture_stop)
