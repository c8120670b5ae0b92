/* SPDX-License-Identifier: BSD-3-Clause */
/* Integrity bdevs: what is read is what was written, or an error. */
#include <errno.h>
#include <pthread.h>

#include "bdev_modules/integrity/test_integrity_kit.h"

/* --- A base whose bytes the tests can change --- */

/* memory: what is on it, KIT_UNITS units; NULL: zeroes. */
static struct testdev *base_with(const uint8_t *memory, uint32_t block_size, uint32_t units)
{
	struct testdev *t = testdev_new("m0", block_size, (uint64_t)units * UNIT_BYTES / block_size);

	t->bdev.io_types |= 1u << BDEV_IO_UNMAP | 1u << BDEV_IO_WRITE_ZEROES | 1u << BDEV_IO_FLUSH;
	if (memory != NULL) {
		memcpy(t->memory, memory, (size_t)units * UNIT_BYTES);
	}
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	return t;
}

static struct testdev *base_new(uint32_t block_size, uint32_t units)
{
	return base_with(NULL, block_size, units);
}

static uint8_t *base_unit(struct testdev *t, uint64_t unit)
{
	const struct integrity_bdev *d = integrity_of(bdev_integrity_find("i0"));

	return t->memory + (d->layout.data_first + unit) * UNIT_BYTES;
}

static struct testdev *start(struct user *u, uint32_t block_size, uint32_t units)
{
	struct testdev *t = base_new(block_size, units);

	CU_ASSERT_EQUAL_FATAL(kit_create("m0", true), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(u, "i0", true, fixture_thread(0)), 0);
	return t;
}

static void reopen(struct user *u)
{
	user_close(u);
	CU_ASSERT_EQUAL_FATAL(fixture_delete(bdev_integrity_delete, "i0"), 0);
	CU_ASSERT_EQUAL_FATAL(kit_create("m0", false), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(u, "i0", true, fixture_thread(1)), 0);
}

static void end(struct user *u, struct testdev *t)
{
	user_close(u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_integrity_delete, "i0"), 0);
	CU_ASSERT_EQUAL(bdev_get_claim(bdev_find("m0"), NULL), BDEV_CLAIM_NONE);
	CU_ASSERT_TRUE(testdev_delete(t));
}

static void test_data_is_there_after_it_was_closed(void)
{
	struct user u;

	kit_close_soon(false);
	struct testdev *t = start(&u, 512, KIT_UNITS);
	CU_ASSERT_EQUAL(bdev_block_size(bdev_find("i0")), UNIT_BYTES);
	CU_ASSERT_EQUAL(bdev_num_blocks(bdev_find("i0")), KIT_REGIONS * INTEGRITY_REGION_UNITS);
	CU_ASSERT_EQUAL(kit_write(&u, 500, 24, 1), 0); /* over the boundary of two regions */
	CU_ASSERT_EQUAL(kit_write(&u, KIT_REGIONS * 512 - 1, 1, 1), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_FLUSH, NULL, 0, 0), 0);
	CU_ASSERT_EQUAL(kit_info().regions_open, 3);
	CU_ASSERT_TRUE(kit_reads(&u, 500, 24, 1));
	reopen(&u);
	CU_ASSERT_EQUAL(kit_info().regions_unclean, 0);
	CU_ASSERT_TRUE(kit_reads(&u, 500, 24, 1));
	CU_ASSERT_TRUE(kit_reads(&u, KIT_REGIONS * 512 - 1, 1, 1));
	CU_ASSERT_EQUAL(kit_info().units_unchecked, 0);
	CU_ASSERT_EQUAL(kit_read(&u, 0, 1), 0);
	CU_ASSERT_EQUAL(kit_info().units_unchecked, 1); /* nobody has written it */
	CU_ASSERT_EQUAL(kit_info().errors, 0);
	end(&u, t);
}

static void wrong_byte_is_found(uint32_t block_size)
{
	struct user u;

	kit_close_soon(true);
	struct testdev *t = start(&u, block_size, KIT_UNITS);
	CU_ASSERT_EQUAL(kit_write(&u, 10, 8, 1), 0);
	for (unsigned open = 0; open < 2; open++) {
		base_unit(t, 13)[4095] ^= 1;
		CU_ASSERT_EQUAL(kit_read(&u, 10, 8), STATUS_WRONG);
		CU_ASSERT_EQUAL(kit_info().errors, 1);
		CU_ASSERT_EQUAL(kit_read(&u, 13, 1), STATUS_WRONG);
		CU_ASSERT_TRUE(kit_reads(&u, 10, 3, 1));
		CU_ASSERT_TRUE(kit_reads(&u, 14, 4, 1));
		CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_VERIFY, NULL, 10, 8), STATUS_WRONG);
		CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_COMPARE, kit_data, 13, 1) & BDEV_STATUS_MASK, STATUS_WRONG);
		CU_ASSERT_EQUAL(kit_info().errors, 4);
		CU_ASSERT_EQUAL(kit_write(&u, 13, 1, 1), 0);
		CU_ASSERT_TRUE(kit_reads(&u, 10, 8, 1));
		CU_ASSERT_TRUE(kit_wait_closed());
		reopen(&u);
	}
	end(&u, t);
}

static void test_a_wrong_byte_is_found(void)
{
	wrong_byte_is_found(512);
	wrong_byte_is_found(4096);
}

static void test_a_wrong_checksum_page_is_told_and_its_data_is_read(void)
{
	struct user u;

	kit_close_soon(true);
	struct testdev *t = start(&u, 512, KIT_UNITS);
	CU_ASSERT_EQUAL(kit_write(&u, 10, 8, 1), 0);
	CU_ASSERT_TRUE(kit_wait_closed());
	t->memory[integrity_of(bdev_find("i0"))->layout.sums_first * UNIT_BYTES + 16 + 4 * 11] ^= 1;
	reopen(&u);
	CU_ASSERT_TRUE(kit_reads(&u, 10, 8, 1));
	CU_ASSERT_EQUAL(kit_info().checksum_pages_wrong, 1);
	CU_ASSERT_EQUAL(kit_info().units_unchecked, 8);
	CU_ASSERT_EQUAL(kit_write(&u, 10, 8, 2), 0);
	CU_ASSERT_TRUE(kit_wait_closed());
	reopen(&u);
	CU_ASSERT_TRUE(kit_reads(&u, 10, 8, 2));
	CU_ASSERT_EQUAL(kit_info().checksum_pages_wrong, 0);
	CU_ASSERT_EQUAL(kit_info().units_unchecked, 0);
	end(&u, t);
}

static void test_zeroes_are_checked_and_unmapped_blocks_are_not(void)
{
	struct user u;

	kit_close_soon(true);
	struct testdev *t = start(&u, 512, KIT_UNITS);
	CU_ASSERT_EQUAL(kit_write(&u, 400, 250, 1), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE_ZEROES, NULL, 0, 1100), 0); /* three regions */
	CU_ASSERT_EQUAL(kit_read(&u, 400, 250), 0);
	CU_ASSERT_EQUAL(kit_data[0], 0);
	CU_ASSERT_EQUAL(memcmp(kit_data, kit_data + 1, 250 * UNIT_BYTES - 1), 0);
	CU_ASSERT_EQUAL(kit_info().units_unchecked, 0);
	base_unit(t, 1099)[0] ^= 1;
	CU_ASSERT_EQUAL(kit_read(&u, 1099, 1), STATUS_WRONG);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_UNMAP, NULL, 500, 600), 0);
	CU_ASSERT_EQUAL(kit_read(&u, 1090, 10), 0);
	CU_ASSERT_EQUAL(kit_data[0], 0xee); /* what this base has after that */
	CU_ASSERT_EQUAL(kit_info().units_unchecked, 10);
	CU_ASSERT_EQUAL(kit_read(&u, 0, 250), 0);
	CU_ASSERT_EQUAL(kit_info().units_unchecked, 10);
	end(&u, t);
}

/* --- What is refused --- */

static void test_nothing_is_lost_by_accident(void)
{
	struct user u;
	uint8_t uuid[16] = {1};
	struct bdev_integrity_opts opts = {.name = "i0", .base_bdev_name = "m0", .uuid = uuid};

	kit_close_soon(true);
	struct testdev *t = base_new(512, KIT_UNITS);
	memset(t->memory, 0xaa, (size_t)KIT_UNITS * UNIT_BYTES);
	CU_ASSERT_EQUAL(kit_create("m0", false), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(kit_error, "format: true"));
	CU_ASSERT_EQUAL(t->memory[0], 0xaa);
	CU_ASSERT_EQUAL(bdev_get_claim(bdev_find("m0"), NULL), BDEV_CLAIM_NONE);
	CU_ASSERT_EQUAL(kit_create("m0", true), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_integrity_delete, "i0"), 0);
	CU_ASSERT_EQUAL(kit_create("m0", true), -EEXIST);
	CU_ASSERT_EQUAL(kit_create_opts(&opts), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(kit_error, "not the one asked for"));
	t->memory[0] ^= 1; /* the last superblock is used */
	CU_ASSERT_EQUAL(kit_create("m0", false), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_integrity_delete, "i0"), 0);
	t->memory[0] ^= 1;
	t->memory[40] ^= 1;
	t->memory[(KIT_UNITS - 1) * UNIT_BYTES + 40] ^= 1;
	CU_ASSERT_EQUAL(kit_create("m0", true), -EEXIST); /* it may be somebody's data */
	CU_ASSERT_EQUAL(kit_create("m0", false), -EILSEQ);
	memset(t->memory, 0, UNIT_BYTES);
	memset(t->memory + (KIT_UNITS - 1) * UNIT_BYTES, 0, UNIT_BYTES);
	opts.format = true;
	CU_ASSERT_EQUAL_FATAL(kit_create_opts(&opts), 0);
	CU_ASSERT_EQUAL(memcmp(bdev_uuid(bdev_find("i0")), uuid, 16), 0);
	CU_ASSERT_EQUAL(kit_create("m1", false), -EEXIST);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "i0", true, fixture_thread(0)), 0);
	end(&u, t);
}

static void test_a_base_that_does_not_fit_is_refused(void)
{
	make_null("n0", 512, 8 * KIT_UNITS);
	CU_ASSERT_EQUAL(kit_create("n0", true), -EINVAL); /* keeps nothing */
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
	make_malloc("m0", 8192, KIT_UNITS);
	CU_ASSERT_EQUAL(kit_create("m0", true), -EINVAL);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
	make_malloc("m0", 512, 257 * 8);
	CU_ASSERT_EQUAL(kit_create("m0", true), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(kit_error, "too few"));
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
	CU_ASSERT_EQUAL(kit_create("m0", true), -ENODEV);
	CU_ASSERT_EQUAL(kit_create("", false), -EINVAL);
}

/* So a saved configuration can be loaded that has one on a RAM disk. */
static void test_one_is_made_where_nothing_was_ever_written(void)
{
	const uint8_t uuid[16] = {2};
	const struct bdev_integrity_opts opts = {.name = "i0", .base_bdev_name = "m0", .uuid = uuid};

	make_malloc("m0", 512, 8 * KIT_UNITS);
	CU_ASSERT_EQUAL_FATAL(kit_create_opts(&opts), 0);
	CU_ASSERT_EQUAL(memcmp(bdev_uuid(bdev_find("i0")), uuid, 16), 0);
	CU_ASSERT_EQUAL(kit_create_opts(&(struct bdev_integrity_opts){.name = "i1", .base_bdev_name = "i0"}), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_integrity_delete, "i1"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_integrity_delete, "i0"), 0);
	CU_ASSERT_EQUAL(kit_create("m0", true), -EEXIST);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
}

/* --- Bases that come and go --- */

static bool is_there(void *arg)
{
	return bdev_find(arg) != NULL;
}

static void test_it_waits_for_its_base_and_comes_back_with_it(void)
{
	struct user u;
	static uint8_t image[KIT_UNITS * UNIT_BYTES];
	uint8_t uuid[16];

	kit_close_soon(true);
	struct testdev *t = start(&u, 512, KIT_UNITS);
	memcpy(uuid, bdev_uuid(bdev_find("i0")), 16);
	CU_ASSERT_EQUAL(kit_write(&u, 0, 4, 1), 0);
	CU_ASSERT_TRUE(kit_wait_closed());
	memcpy(image, t->memory, sizeof(image));
	user_close(&u);
	CU_ASSERT_TRUE(testdev_delete(t)); /* and i0 with it */
	CU_ASSERT_PTR_NULL(bdev_find("i0"));
	CU_ASSERT_EQUAL(kit_create("m0", false), -EEXIST); /* it waits */
	t = base_new(512, KIT_UNITS);                      /* has nothing yet: it goes on waiting */
	CU_ASSERT_TRUE(testdev_delete(t));
	t = base_with(image, 512, KIT_UNITS);
	CU_ASSERT_TRUE_FATAL(fixture_poll(is_there, "i0"));
	CU_ASSERT_EQUAL(memcmp(bdev_uuid(bdev_find("i0")), uuid, 16), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "i0", true, fixture_thread(0)), 0);
	CU_ASSERT_TRUE(kit_reads(&u, 0, 4, 1));
	CU_ASSERT_EQUAL(kit_info().units_unchecked, 0);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_integrity_delete, "i0"), 0);
	CU_ASSERT_TRUE(testdev_delete(t));
}

static void creation_given_up(void *arg, int rc, const char *error)
{
	CU_ASSERT_TRUE(rc != 0);
	set_done(arg);
}

static void deletion_ended(void *arg, int rc)
{
	CU_ASSERT_EQUAL(rc, 0);
	set_done(arg);
}

static bool holds_one(void *t)
{
	return atomic_load(&((struct testdev *)t)->held) > 0;
}

/* The base does not answer: who deletes the bdev, or the base, does not wait for it. */
static void test_opening_is_given_up(void)
{
	const struct bdev_integrity_opts opts = {.name = "i0", .base_bdev_name = "m0", .format = true};
	struct testdev *t = base_new(512, KIT_UNITS);

	for (unsigned base_goes = 0; base_goes < 2; base_goes++) {
		atomic_bool created = false, deleted = false;
		t->hold = true;
		bdev_integrity_create(&opts, creation_given_up, &created);
		CU_ASSERT_TRUE_FATAL(fixture_poll(holds_one, t));
		CU_ASSERT_EQUAL(kit_create("m0", true), -EEXIST);
		if (base_goes) {
			CU_ASSERT_TRUE(testdev_delete(t));
		} else {
			bdev_integrity_delete("i0", deletion_ended, &deleted);
			CU_ASSERT_TRUE(fixture_wait(&deleted));
			t->hold = false;
		}
		CU_ASSERT_TRUE(fixture_wait(&created));
	}
	CU_ASSERT_EQUAL(fixture_delete(bdev_integrity_delete, "i0"), -ENODEV);
}

/* --- After a crash --- */

static void test_regions_that_were_open_are_read_anew(void)
{
	static uint8_t image[KIT_UNITS * UNIT_BYTES];
	struct user u;

	kit_close_soon(false);
	struct testdev *t = start(&u, 512, KIT_UNITS);
	CU_ASSERT_EQUAL(kit_write(&u, 0, 4, 1), 0);
	CU_ASSERT_EQUAL(kit_write(&u, 1530, 6, 1), 0); /* the last region may be shorter */
	memcpy(image, t->memory, sizeof(image));
	end(&u, t);
	t = base_with(image, 512, KIT_UNITS);
	kit_close_soon(true);
	integrity_limits.learns = true;
	CU_ASSERT_EQUAL_FATAL(kit_create("m0", false), 0);
	CU_ASSERT_EQUAL(kit_info().regions_unclean, 2);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "i0", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(kit_write(&u, 100, 4, 2), 0); /* meanwhile */
	CU_ASSERT_TRUE(kit_wait_closed());
	CU_ASSERT_EQUAL(kit_info().regions_unclean, 2);
	CU_ASSERT_TRUE(kit_reads(&u, 0, 4, 1));
	CU_ASSERT_TRUE(kit_reads(&u, 100, 4, 2));
	CU_ASSERT_TRUE(kit_reads(&u, 1530, 6, 1));
	CU_ASSERT_EQUAL(kit_read(&u, 256, 250), 0);
	CU_ASSERT_EQUAL(kit_info().units_unchecked, 0);
	base_unit(t, 500)[1] ^= 1;
	CU_ASSERT_EQUAL(kit_read(&u, 500, 1), STATUS_WRONG);
	reopen(&u);
	CU_ASSERT_EQUAL(kit_info().regions_unclean, 0);
	CU_ASSERT_EQUAL(kit_read(&u, 500, 1), STATUS_WRONG);
	end(&u, t);
}

static bool learns(void *arg)
{
	const struct integrity_bdev *d = integrity_of(bdev_integrity_find("i0"));

	return d->learning != NULL;
}

/* It is deleted while a region is read, with a write that waits for that. */
static void test_it_goes_while_it_reads_what_was_open(void)
{
	static uint8_t image[KIT_UNITS * UNIT_BYTES];
	struct user u;

	kit_close_soon(false);
	struct testdev *t = start(&u, 512, KIT_UNITS);
	CU_ASSERT_EQUAL(kit_write(&u, 0, 4, 1), 0);
	memcpy(image, t->memory, sizeof(image));
	end(&u, t);
	t = base_with(image, 512, KIT_UNITS);
	CU_ASSERT_EQUAL_FATAL(kit_create("m0", false), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "i0", true, fixture_thread(0)), 0);
	t->shuffle = true; /* it answers later */
	integrity_limits.learns = true;
	bool seen = fixture_poll(learns, NULL);
	CU_ASSERT_TRUE(seen);
	CU_ASSERT_EQUAL(kit_write(&u, 2, 1, 2), 0);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_integrity_delete, "i0"), 0);
	t->shuffle = false;
	CU_ASSERT_EQUAL_FATAL(kit_create("m0", false), 0);
	CU_ASSERT_EQUAL(kit_info().regions_unclean, 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "i0", true, fixture_thread(0)), 0);
	CU_ASSERT_TRUE(kit_reads(&u, 0, 2, 1));
	CU_ASSERT_TRUE(kit_reads(&u, 2, 1, 2));
	end(&u, t);
}

/* --- Memory for checksums is bounded --- */

static void test_more_regions_than_memory_for_them(void)
{
	static uint32_t version[20 * 512];
	uint64_t random = 3;
	struct user u;

	kit_close_soon(false);
	integrity_limits.slots = 4;
	struct testdev *t = start(&u, 512, 256 + 20 * 512 + 1);
	memset(version, 0, sizeof(version));
	for (unsigned i = 0; i < 400 / unit_stride(); i++) {
		uint64_t unit = fixture_random(&random) % 20 * 512 + fixture_random(&random) % 8;
		if (fixture_random(&random) % 2 == 0) {
			CU_ASSERT_EQUAL(kit_write(&u, unit, 1, ++version[unit]), 0);
		} else if (version[unit] != 0) {
			CU_ASSERT_TRUE(kit_reads(&u, unit, 1, version[unit]));
		}
		CU_ASSERT_TRUE(kit_info().regions_open <= 2);
	}
	reopen(&u);
	for (uint64_t unit = 0; unit < 20 * 512; unit++) {
		CU_ASSERT_TRUE(version[unit] == 0 || kit_reads(&u, unit, 1, version[unit]));
	}
	CU_ASSERT_EQUAL(kit_info().units_unchecked, 0);
	CU_ASSERT_EQUAL(kit_info().errors, 0);
	end(&u, t);
	integrity_limits.slots = 16384;
}

/* --- Errors of the base --- */

static void test_a_bitmap_that_cannot_be_written_fails_what_needs_it(void)
{
	struct user u;

	kit_close_soon(false);
	struct testdev *t = start(&u, 512, KIT_UNITS);
	CU_ASSERT_EQUAL(kit_write(&u, 0, 4, 1), 0);
	CU_ASSERT_EQUAL(kit_read(&u, 512, 1), 0); /* the checksums of the next region are there */
	t->fail_status = BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_WRITE_FAULT);
	CU_ASSERT_EQUAL(kit_write(&u, 512, 1, 1), BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_WRITE_FAULT));
	t->fail_status = 0;
	CU_ASSERT_TRUE(kit_info().read_only);
	CU_ASSERT_TRUE(kit_reads(&u, 0, 4, 1));
	CU_ASSERT_EQUAL(kit_write(&u, 512, 1, 2), 0);
	CU_ASSERT_FALSE(kit_info().read_only);
	reopen(&u);
	CU_ASSERT_EQUAL(kit_info().regions_unclean, 0);
	CU_ASSERT_TRUE(kit_reads(&u, 0, 4, 1));
	CU_ASSERT_TRUE(kit_reads(&u, 512, 1, 2));
	CU_ASSERT_EQUAL(kit_info().units_unchecked, 0);
	end(&u, t);
}

static void test_errors_at_random_are_never_wrong_data(void)
{
	static uint32_t version[8];
	uint64_t random = 5;
	struct user u;
	unsigned failed = 0, read = 0;

	kit_close_soon(true);
	struct testdev *t = start(&u, 512, KIT_UNITS);
	for (unsigned i = 0; i < 1500 / unit_stride(); i++) {
		uint64_t n = fixture_random(&random) % 8, unit = n * 190;
		if (i % 50 == 0) { /* it may have become read-only */
			t->fail_one_in = 0;
			reopen(&u);
			t->fail_one_in = 20;
		}
		if (fixture_random(&random) % 2 == 0) {
			uint16_t status = kit_write(&u, unit, 1, i + 1);
			version[n] = status == 0 ? i + 1 : 0; /* 0: not known */
			failed += status != 0;
			continue;
		}
		uint16_t status = kit_read(&u, unit, 1);
		CU_ASSERT_TRUE(status == 0 || status == NVME_SC_DATA_XFER_ERROR);
		if (status == 0 && version[n] != 0) {
			CU_ASSERT_TRUE(kit_is(kit_data, unit, version[n]));
			read++;
		}
	}
	t->fail_one_in = 0;
	CU_ASSERT_TRUE(failed > 10 && read > 10);
	CU_ASSERT_EQUAL(kit_info().errors, 0);
	end(&u, t);
}

/* --- Two users at once --- */

#define RACERS     8u
#define RACE_UNITS 6u

struct racer {
	struct user *user;
	struct bdev_io *io;
	struct iovec iov;
	uint8_t *buffer;
	uint64_t random;
	uint32_t left, id, regions;
	atomic_bool done;
	unsigned wrong;
};

static void racer_go(struct racer *r)
{
	static const enum bdev_io_type types[] = {BDEV_IO_READ, BDEV_IO_READ, BDEV_IO_WRITE, BDEV_IO_WRITE,
						  BDEV_IO_WRITE_ZEROES};
	uint64_t first = fixture_random(&r->random) % RACE_UNITS, n = fixture_random(&r->random) % 3 + 1;
	enum bdev_io_type type = types[fixture_random(&r->random) % 5];
	bool data = type != BDEV_IO_WRITE_ZEROES;

	for (uint64_t i = 0; i < n && type == BDEV_IO_WRITE; i++) {
		memset(r->buffer + i * UNIT_BYTES, (int)(r->left * RACERS + r->id), UNIT_BYTES);
	}
	r->iov = (struct iovec){r->buffer, n * UNIT_BYTES};
	first += fixture_random(&r->random) % r->regions * INTEGRITY_REGION_UNITS;
	bdev_io_set_rw(r->io, type, data ? &r->iov : NULL, data, 510 + first, n);
	bdev_submit(r->io);
}

static void racer_ended(struct bdev_io *io, void *arg)
{
	struct racer *r = arg;

	r->wrong += io->status != 0;
	for (uint64_t i = 0; i < io->num_blocks && io->type == BDEV_IO_READ;
	     i++) { /* a whole write, not parts of two */
		const uint8_t *p = r->buffer + i * UNIT_BYTES;
		r->wrong += memcmp(p, p + 1, UNIT_BYTES - 1) != 0;
	}
	if (--r->left == 0) {
		set_done(&r->done);
	} else {
		racer_go(r);
	}
}

static void racer_start(void *arg)
{
	racer_go(arg);
}

/* Eight I/Os at a time, of two threads, in places in so many regions. */
static void race(uint32_t regions, uint32_t count)
{
	struct racer r[RACERS];
	struct user u, users[2];

	kit_close_soon(true);
	struct testdev *t = start(&u, 512, 256 + (regions + 1) * INTEGRITY_REGION_UNITS + 1);
	for (uint32_t i = 0; i < regions; i++) {
		CU_ASSERT_EQUAL(
			user_io(&u, BDEV_IO_WRITE_ZEROES, NULL, 510 + i * INTEGRITY_REGION_UNITS, RACE_UNITS + 3), 0);
	}
	t->shuffle = true;
	for (unsigned i = 0; i < 2; i++) {
		CU_ASSERT_EQUAL_FATAL(user_open(&users[i], "i0", true, fixture_thread(i + 1)), 0);
	}
	for (uint32_t i = 0; i < RACERS; i++) {
		r[i] = (struct racer){.user = &users[i % 2],
				      .random = i + 1,
				      .left = count / unit_stride(),
				      .id = i,
				      .regions = regions};
		r[i].buffer = aligned_alloc(4096, 3ul * UNIT_BYTES);
		r[i].io = aligned_alloc(64, bdev_io_size());
		memset(r[i].io, 0, bdev_io_size());
		bdev_io_init(r[i].io, r[i].user->desc, r[i].user->ch, racer_ended, &r[i]);
		CU_ASSERT_EQUAL_FATAL(thread_send(r[i].user->thread, racer_start, &r[i]), 0);
	}
	for (uint32_t i = 0; i < RACERS; i++) {
		CU_ASSERT_TRUE_FATAL(fixture_wait(&r[i].done));
		CU_ASSERT_EQUAL(r[i].wrong, 0);
		free(r[i].io);
		free(r[i].buffer);
	}
	t->shuffle = false;
	user_close(&users[0]);
	user_close(&users[1]);
	reopen(&u);
	for (uint32_t i = 0; i < regions; i++) {
		CU_ASSERT_EQUAL(kit_read(&u, 510 + i * INTEGRITY_REGION_UNITS, RACE_UNITS), 0);
	}
	CU_ASSERT_EQUAL(kit_info().errors, 0);
	CU_ASSERT_EQUAL(kit_info().units_unchecked, 0);
	end(&u, t);
}

static void test_reads_and_writes_of_the_same_units_at_once(void)
{
	race(1, 1500);
}

/* Memory for checksums goes from region to region meanwhile, and regions are closed for others. */
static void test_reads_and_writes_of_many_regions_at_once(void)
{
	integrity_limits.slots = 4;
	race(12, 400);
	integrity_limits.slots = 16384;
}

/* --- Scrub --- */

static bool scrub_has_ended(void *arg)
{
	struct bdev_integrity_scrub *s = arg;

	bdev_integrity_scrub_get(bdev_find("i0"), s);
	return !s->running;
}

static void test_a_scrub_finds_what_is_wrong(void)
{
	struct bdev_integrity_scrub s;
	struct user u;

	kit_close_soon(true);
	struct testdev *t = start(&u, 512, KIT_UNITS);
	struct bdev *b = bdev_find("i0");
	bdev_integrity_scrub_get(b, &s);
	CU_ASSERT_FALSE(s.ever);
	CU_ASSERT_EQUAL(kit_write(&u, 0, 250, 1), 0);
	CU_ASSERT_EQUAL(kit_write(&u, 1400, 136, 1), 0);
	base_unit(t, 3)[0] ^= 1;
	base_unit(t, 4)[77] ^= 1;
	base_unit(t, 1535)[4095] ^= 1;
	CU_ASSERT_EQUAL(bdev_integrity_scrub_start(b, 0, kit_error), -EINVAL);
	CU_ASSERT_EQUAL(bdev_integrity_scrub_start(b, 100001, kit_error), -EINVAL);
	CU_ASSERT_EQUAL_FATAL(bdev_integrity_scrub_start(b, 1, kit_error), 0);
	CU_ASSERT_EQUAL(bdev_integrity_scrub_start(b, 100000, kit_error), 0); /* faster */
	CU_ASSERT_TRUE(fixture_poll(scrub_has_ended, &s));
	CU_ASSERT_TRUE(s.completed);
	CU_ASSERT_EQUAL(s.units_done, 1536);
	CU_ASSERT_EQUAL(s.units_bad, 3);
	CU_ASSERT_EQUAL(s.bad[0], 3);
	CU_ASSERT_EQUAL(s.bad[1], 4);
	CU_ASSERT_EQUAL(s.bad[2], 1535);
	CU_ASSERT_EQUAL(kit_write(&u, 0, 250, 1), 0);
	CU_ASSERT_EQUAL(kit_write(&u, 1400, 136, 1), 0);
	CU_ASSERT_EQUAL_FATAL(bdev_integrity_scrub_start(b, 100000, kit_error), 0);
	CU_ASSERT_TRUE(fixture_poll(scrub_has_ended, &s));
	CU_ASSERT_EQUAL(s.units_bad, 0);
	end(&u, t);
}

static void test_a_scrub_ends_when_it_is_told_to_and_with_its_bdev(void)
{
	struct bdev_integrity_scrub s;
	struct user u;

	kit_close_soon(true);
	struct testdev *t = start(&u, 512, KIT_UNITS);
	struct bdev *b = bdev_find("i0");
	bdev_integrity_scrub_stop(b);
	CU_ASSERT_EQUAL_FATAL(bdev_integrity_scrub_start(b, 1, kit_error), 0);
	bdev_integrity_scrub_stop(b);
	CU_ASSERT_TRUE(fixture_poll(scrub_has_ended, &s));
	CU_ASSERT_FALSE(s.completed);
	t->hold = true;
	CU_ASSERT_EQUAL_FATAL(bdev_integrity_scrub_start(b, 1, kit_error), 0);
	CU_ASSERT_TRUE(fixture_poll(holds_one, t));
	bdev_integrity_scrub_stop(b); /* while it reads */
	CU_ASSERT_EQUAL(bdev_integrity_scrub_start(b, 1, kit_error), -EBUSY);
	t->hold = false;
	end(&u, t);
}

static const struct unit_test tests[] = {
	UNIT(test_data_is_there_after_it_was_closed),
	UNIT(test_a_wrong_byte_is_found),
	UNIT(test_a_wrong_checksum_page_is_told_and_its_data_is_read),
	UNIT(test_zeroes_are_checked_and_unmapped_blocks_are_not),
	UNIT(test_nothing_is_lost_by_accident),
	UNIT(test_a_base_that_does_not_fit_is_refused),
	UNIT(test_one_is_made_where_nothing_was_ever_written),
	UNIT(test_it_waits_for_its_base_and_comes_back_with_it),
	UNIT(test_opening_is_given_up),
	UNIT(test_regions_that_were_open_are_read_anew),
	UNIT(test_it_goes_while_it_reads_what_was_open),
	UNIT(test_more_regions_than_memory_for_them),
	UNIT(test_a_bitmap_that_cannot_be_written_fails_what_needs_it),
	UNIT(test_errors_at_random_are_never_wrong_data),
	UNIT(test_reads_and_writes_of_the_same_units_at_once),
	UNIT(test_reads_and_writes_of_many_regions_at_once),
	UNIT(test_a_scrub_finds_what_is_wrong),
	UNIT(test_a_scrub_ends_when_it_is_told_to_and_with_its_bdev),
	UNIT_END,
};
UNIT_MAIN("bdev_integrity", tests, fixture_start, fixture_stop)
