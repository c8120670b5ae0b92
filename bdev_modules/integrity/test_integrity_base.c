/* SPDX-License-Identifier: BSD-3-Clause */
/* Integrity bdevs and their bases: which are refused, and what an integrity bdev does with one of which something is
 * damaged or cannot be read. */
#include <errno.h>

#include "bdev/owner.h"
#include "bdev_modules/integrity/test_integrity_kit.h"
#include "bdev_modules/passthru/passthru.h"

static struct testdev *base_new(uint32_t units)
{
	struct testdev *t = testdev_new("m0", 512, (uint64_t)units * UNIT_BYTES / 512);

	t->bdev.io_types |= 1u << BDEV_IO_UNMAP | 1u << BDEV_IO_WRITE_ZEROES | 1u << BDEV_IO_FLUSH;
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	return t;
}

/* --- Another owner --- */

static void owner_never(struct bdev_owner *o, uint64_t until_us, bool fence)
{
}
static void owner_never_gives(struct bdev_owner *o)
{
}
static uint32_t owner_has_none(const void *channel)
{
	return 0;
}
static const struct bdev_owner_ops owner_ops = {owner_never, owner_never_gives, owner_has_none};

static void test_a_standby_is_refused_also_below_another_bdev(void)
{
	struct bdev_owner owner;

	struct testdev *t = base_new(KIT_UNITS);
	CU_ASSERT_EQUAL_FATAL(bdev_passthru_create("p0", "m0", NULL, kit_error), 0);
	CU_ASSERT_EQUAL_FATAL(
		kit_create_opts(&(struct bdev_integrity_opts){.name = "i1", .base_bdev_name = "p0", .format = true}),
		0);
	bdev_owner_init(&owner, &t->bdev, &owner_ops);
	CU_ASSERT_EQUAL(kit_create("i1", true), -EINVAL); /* which is not one that passes all on */
	CU_ASSERT_PTR_NOT_NULL(strstr(kit_error, "bdev 'm0' was made with standby"));
	CU_ASSERT_EQUAL(fixture_delete(bdev_integrity_delete, "i1"), 0);
	memset(t->memory, 0, (size_t)KIT_UNITS * UNIT_BYTES);
	CU_ASSERT_EQUAL(kit_create("p0", true), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(kit_error, "bdev 'm0' was made with standby"));
	CU_ASSERT_EQUAL(bdev_get_claim(bdev_find("p0"), NULL), BDEV_CLAIM_NONE);
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "p0"), 0);
	CU_ASSERT_EQUAL(kit_create("m0", true), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(kit_error, "was made with standby"));
	bdev_owner_fini(&owner);
	CU_ASSERT_EQUAL(kit_create("m0", true), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_integrity_delete, "i0"), 0);
	CU_ASSERT_TRUE(testdev_delete(t));
}

/* A kind of bdev that tells its bases itself, as volumes do. */
static void test_a_standby_is_refused_also_below_an_integrity_bdev(void)
{
	const struct bdev_integrity_opts opts = {.name = "i1", .base_bdev_name = "i0", .format = true};
	struct bdev_owner owner;

	struct testdev *t = base_new(KIT_UNITS);
	CU_ASSERT_EQUAL_FATAL(kit_create("m0", true), 0);
	bdev_owner_init(&owner, &t->bdev, &owner_ops);
	CU_ASSERT_EQUAL(kit_create_opts(&opts), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(kit_error, "bdev 'm0' was made with standby"));
	CU_ASSERT_EQUAL(bdev_get_claim(bdev_find("i0"), NULL), BDEV_CLAIM_NONE);
	bdev_owner_fini(&owner);
	CU_ASSERT_EQUAL(kit_create_opts(&opts), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_integrity_delete, "i1"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_integrity_delete, "i0"), 0);
	CU_ASSERT_TRUE(testdev_delete(t));
}

/* --- Sectors that cannot be read --- */

#define STATUS_LOCKED BDEV_STATUS(NVME_SCT_MEDIA, 0x86) /* Access Denied */

static void bad_unit(struct testdev *t, uint64_t unit, uint16_t status)
{
	t->bad_block = unit * UNIT_BYTES / 512 + 3;
	atomic_store(&t->bad_status, status);
}

static const struct integrity_layout *layout_now(void)
{
	return &integrity_of(bdev_integrity_find("i0"))->layout;
}

static void open_again(struct user *u)
{
	CU_ASSERT_EQUAL_FATAL(kit_create("m0", false), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(u, "i0", true, fixture_thread(0)), 0);
}

static void close_it(struct user *u)
{
	user_close(u);
	CU_ASSERT_EQUAL_FATAL(fixture_delete(bdev_integrity_delete, "i0"), 0);
}

/* A base on which an integrity bdev was, with 8 units of version 1 at unit 10, and all regions closed. */
static struct testdev *base_used(struct integrity_layout *l, bool many_regions)
{
	struct user u;

	kit_close_soon(true);
	struct testdev *t = base_new(many_regions ? 256 + 20 * 512 + 1 : KIT_UNITS);
	CU_ASSERT_EQUAL_FATAL(kit_create("m0", true), 0);
	*l = *layout_now();
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "i0", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(kit_write(&u, 10, 8, 1), 0);
	CU_ASSERT_TRUE(kit_wait_closed());
	close_it(&u);
	return t;
}

/* --- Superblocks --- */

static bool super_is_right(const struct testdev *t, uint64_t unit, const struct integrity_layout *l)
{
	struct integrity_super right;

	integrity_super_encode(&right, l);
	return memcmp(t->memory + unit * UNIT_BYTES, &right, sizeof(right)) == 0;
}

static void open_and_close(void)
{
	CU_ASSERT_EQUAL_FATAL(kit_create("m0", false), 0);
	CU_ASSERT_EQUAL_FATAL(fixture_delete(bdev_integrity_delete, "i0"), 0);
}

static void test_a_superblock_that_is_wrong_or_lost_is_written_anew(void)
{
	struct integrity_layout l;

	struct testdev *t = base_used(&l, false);
	for (unsigned i = 0; i < 2; i++) {
		uint64_t unit = i == 0 ? 0 : KIT_UNITS - 1;
		t->memory[unit * UNIT_BYTES + 100] ^= 1;
		open_and_close();
		CU_ASSERT_TRUE(super_is_right(t, 0, &l) && super_is_right(t, KIT_UNITS - 1, &l));
		bad_unit(t, unit, i == 0 ? STATUS_WRONG : INTEGRITY_STATUS_UNWRITTEN);
		open_and_close();
		CU_ASSERT_EQUAL(atomic_load(&t->bad_status), 0);
		bad_unit(t, unit, STATUS_LOCKED);
		open_and_close();
		CU_ASSERT_NOT_EQUAL(atomic_load(&t->bad_status), 0);
		bad_unit(t, unit, NVME_SC_ABORT_REQ); /* it may be right */
		open_and_close();
		CU_ASSERT_NOT_EQUAL(atomic_load(&t->bad_status), 0);
		atomic_store(&t->bad_status, 0);
	}
	CU_ASSERT_TRUE(testdev_delete(t));
}

/* What cannot be read is not called missing: format: true would be the wrong advice. */
static void test_superblocks_that_cannot_be_read_are_not_called_missing(void)
{
	struct integrity_layout l;

	struct testdev *t = base_used(&l, false);
	for (unsigned format = 0; format < 2; format++) {
		t->fail_status = NVME_SC_ABORT_REQ;
		CU_ASSERT_TRUE(kit_create("m0", format) < 0);
		t->fail_status = 0;
		CU_ASSERT_PTR_NOT_NULL(strstr(kit_error, "its first blocks cannot be read"));
		CU_ASSERT_PTR_NULL(strstr(kit_error, "format"));
	}
	memset(t->memory, 0, UNIT_BYTES);
	bad_unit(t, KIT_UNITS - 1, STATUS_WRONG);
	CU_ASSERT_TRUE(kit_create("m0", true) < 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(kit_error, "its last blocks cannot be read"));
	CU_ASSERT_NOT_EQUAL(atomic_load(&t->bad_status), 0);
	atomic_store(&t->bad_status, 0);
	open_and_close();
	CU_ASSERT_TRUE(testdev_delete(t));
}

/* The base grows, and the bdev is opened once; then the first superblock is lost. */
static void test_the_last_superblock_is_found_after_its_base_has_grown(void)
{
	static uint8_t image[KIT_UNITS * UNIT_BYTES];
	struct integrity_layout l;
	struct user u;

	struct testdev *t = base_used(&l, false);
	memcpy(image, t->memory, sizeof(image));
	CU_ASSERT_TRUE(testdev_delete(t));
	t = base_new(KIT_UNITS + 300);
	memset(t->memory, 0xaa, (size_t)(KIT_UNITS + 300) * UNIT_BYTES);
	memcpy(t->memory, image, sizeof(image));
	open_and_close();
	memset(t->memory, 0, UNIT_BYTES);
	CU_ASSERT_EQUAL(kit_create("m0", true), -EEXIST);
	open_again(&u);
	CU_ASSERT_TRUE(kit_reads(&u, 10, 8, 1));
	CU_ASSERT_EQUAL(kit_info().units_unchecked, 0);
	CU_ASSERT_TRUE(super_is_right(t, 0, &l) && super_is_right(t, KIT_UNITS + 299, &l));
	close_it(&u);
	CU_ASSERT_TRUE(testdev_delete(t));
}

/* --- Pages --- */

/* Whether both copies of the bitmap are right, and one follows the other. */
static bool bitmap_is_right(const struct testdev *t, const struct integrity_layout *l)
{
	const struct integrity_bitmap_page *copies = (const void *)(t->memory + l->bitmap_first * UNIT_BYTES);
	struct integrity_error e;

	return integrity_bitmap_decode(&copies[0], l, 0, &e) == 0 &&
	       integrity_bitmap_decode(&copies[1], l, 0, &e) == 0 &&
	       (copies[0].sequence + 1 == copies[1].sequence || copies[1].sequence + 1 == copies[0].sequence);
}

/* It may be the copy that counts, so all regions are open; and both copies are right before anybody writes. */
static void test_a_copy_of_the_bitmap_that_cannot_be_read(void)
{
	struct integrity_layout l;
	struct user u;

	struct testdev *t = base_used(&l, false);
	for (unsigned copy = 0; copy < 4; copy++) {
		kit_close_soon(false);
		bad_unit(t, l.bitmap_first + copy % 2, STATUS_WRONG);
		open_again(&u);
		CU_ASSERT_EQUAL(kit_info().regions_unclean, KIT_REGIONS);
		CU_ASSERT_EQUAL(atomic_load(&t->bad_status), 0);
		CU_ASSERT_TRUE(bitmap_is_right(t, &l));
		CU_ASSERT_TRUE(kit_reads(&u, 10, 8, copy + 1));
		CU_ASSERT_EQUAL(kit_write(&u, 10, 8, copy + 2), 0);
		kit_close_soon(true);
		close_it(&u);
		open_again(&u);
		CU_ASSERT_TRUE(kit_wait_closed());
		close_it(&u);
		open_again(&u);
		CU_ASSERT_EQUAL(kit_info().regions_unclean, 0);
		CU_ASSERT_TRUE(kit_reads(&u, 10, 8, copy + 2));
		CU_ASSERT_EQUAL(kit_info().units_unchecked, 0);
		close_it(&u);
	}
	/* An error that passes is no reason to forget anything. */
	bad_unit(t, l.bitmap_first, NVME_SC_ABORT_REQ);
	CU_ASSERT_TRUE(kit_create("m0", false) != 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(kit_error, "the bitmap of open regions cannot be read"));
	atomic_store(&t->bad_status, 0);
	open_again(&u);
	CU_ASSERT_EQUAL(kit_info().regions_unclean, 0);
	close_it(&u);
	CU_ASSERT_TRUE(testdev_delete(t));
}

static void test_a_bitmap_of_which_both_copies_are_wrong_is_written_anew(void)
{
	struct integrity_layout l;
	struct user u;

	struct testdev *t = base_used(&l, false);
	struct integrity_bitmap_page *copies = (void *)(t->memory + l.bitmap_first * UNIT_BYTES);
	uint64_t later = copies[0].sequence > copies[1].sequence ? copies[0].sequence : copies[1].sequence;
	copies[0].bits[700] ^= 1;
	copies[1].bits[700] ^= 1;
	kit_close_soon(false);
	open_again(&u);
	CU_ASSERT_EQUAL(kit_info().regions_unclean, KIT_REGIONS);
	CU_ASSERT_TRUE(bitmap_is_right(t, &l));
	CU_ASSERT_TRUE(copies[0].sequence > later && copies[1].sequence > later);
	close_it(&u);
	CU_ASSERT_TRUE(testdev_delete(t));
}

static void test_a_checksum_page_that_cannot_be_read_is_written_anew(void)
{
	struct integrity_layout l;
	struct user u;

	struct testdev *t = base_used(&l, false);
	bad_unit(t, l.sums_first, STATUS_WRONG);
	open_again(&u);
	CU_ASSERT_TRUE(kit_reads(&u, 10, 8, 1));
	CU_ASSERT_EQUAL(kit_info().checksum_pages_wrong, 1);
	CU_ASSERT_EQUAL(kit_info().units_unchecked, 8);
	CU_ASSERT_EQUAL(kit_write(&u, 10, 4, 2), 0);
	CU_ASSERT_TRUE(kit_wait_closed());
	CU_ASSERT_EQUAL(atomic_load(&t->bad_status), 0);
	close_it(&u);
	open_again(&u);
	CU_ASSERT_TRUE(kit_reads(&u, 10, 4, 2));
	CU_ASSERT_EQUAL(kit_info().units_unchecked, 0);
	CU_ASSERT_TRUE(kit_reads(&u, 14, 4, 1));
	CU_ASSERT_EQUAL(kit_info().units_unchecked, 4);
	close_it(&u);
	/* One that cannot be read just now says nothing about its data. */
	bad_unit(t, l.sums_first, STATUS_LOCKED);
	open_again(&u);
	CU_ASSERT_EQUAL(kit_read(&u, 10, 4), STATUS_LOCKED);
	CU_ASSERT_EQUAL(kit_info().checksum_pages_wrong, 0);
	atomic_store(&t->bad_status, 0);
	CU_ASSERT_TRUE(kit_reads(&u, 10, 4, 2));
	CU_ASSERT_EQUAL(kit_info().units_unchecked, 0);
	close_it(&u);
	CU_ASSERT_TRUE(testdev_delete(t));
}

/* A drive that has lost a write, or a block, may answer with zeroes. */
static void test_pages_that_have_become_zeroes_are_noticed(void)
{
	struct integrity_layout l;
	struct user u;

	struct testdev *t = base_used(&l, false);
	memset(t->memory + l.sums_first * UNIT_BYTES, 0, UNIT_BYTES);
	open_again(&u);
	CU_ASSERT_EQUAL(kit_info().regions_unclean, 0);
	CU_ASSERT_EQUAL(kit_read(&u, 512, 1), 0); /* of a region without a page: that is as it should be */
	CU_ASSERT_EQUAL(kit_info().checksum_pages_wrong, 0);
	CU_ASSERT_TRUE(kit_reads(&u, 10, 8, 1));
	CU_ASSERT_EQUAL(kit_info().checksum_pages_wrong, 1);
	CU_ASSERT_TRUE(kit_wait_closed());
	close_it(&u);
	memset(t->memory + l.bitmap_first * UNIT_BYTES, 0, 2ul * UNIT_BYTES);
	open_again(&u);
	CU_ASSERT_EQUAL(kit_info().regions_unclean, KIT_REGIONS);
	CU_ASSERT_TRUE(kit_wait_closed());
	close_it(&u);
	CU_ASSERT_TRUE(testdev_delete(t));
}

/* Nobody writes to its region, and its checksums leave the memory and come back. */
static void test_a_wrong_checksum_page_is_counted_once(void)
{
	struct integrity_layout l;
	struct user u;

	integrity_limits.slots = 2;
	struct testdev *t = base_used(&l, true);
	t->memory[l.sums_first * UNIT_BYTES + 16] ^= 1;
	open_again(&u);
	for (unsigned i = 0; i < 3; i++) {
		for (uint64_t region = 0; region < 6; region++) {
			CU_ASSERT_EQUAL(kit_read(&u, region * 512 + 10, 1), 0);
		}
		CU_ASSERT_TRUE(kit_wait_closed());
	}
	CU_ASSERT_EQUAL(kit_info().checksum_pages_wrong, 1);
	close_it(&u);
	CU_ASSERT_TRUE(testdev_delete(t));
	integrity_limits.slots = 16384;
}

/* --- UNMAP --- */

/* What stays there goes on being checked. */
static void unmap_forgets_no_checksum(bool below_another)
{
	const char *name = below_another ? "p0" : "m0";
	struct user u;

	kit_close_soon(true);
	struct testdev *t = testdev_new("m0", 512, (uint64_t)KIT_UNITS * UNIT_BYTES / 512);
	t->bdev.io_types |= 1u << BDEV_IO_FLUSH;
	t->bdev.io_types &= ~(1u << BDEV_IO_UNMAP);
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	if (below_another) {
		CU_ASSERT_EQUAL_FATAL(bdev_passthru_create("p0", "m0", NULL, kit_error), 0);
	}
	CU_ASSERT_EQUAL_FATAL(kit_create(name, true), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "i0", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(kit_write(&u, 10, 8, 1), 0);
	user_io(&u, BDEV_IO_UNMAP, NULL, 0, 20);
	CU_ASSERT_TRUE(kit_reads(&u, 10, 8, 1));
	CU_ASSERT_EQUAL(kit_info().units_unchecked, 0);
	close_it(&u);
	if (below_another) {
		CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "p0"), 0);
	}
	CU_ASSERT_TRUE(testdev_delete(t));
}

static void test_unmap_on_a_base_without_it_forgets_no_checksum(void)
{
	unmap_forgets_no_checksum(false);
	unmap_forgets_no_checksum(true);
}

/* --- Scrubs --- */

static bool scrub_has_ended(void *arg)
{
	struct bdev_integrity_scrub *s = arg;

	bdev_integrity_scrub_get(bdev_find("i0"), s);
	return !s->running;
}

static bool scrub_has_begun(void *arg)
{
	struct bdev_integrity_scrub s;

	bdev_integrity_scrub_get(bdev_find("i0"), &s);
	return s.units_done > 0;
}

/* The data, and the checksum page. */
static bool base_holds_two(void *t)
{
	return atomic_load(&((struct testdev *)t)->held) == 2;
}

static struct bdev_integrity_scrub scrub(void)
{
	struct bdev_integrity_scrub s;

	CU_ASSERT_EQUAL_FATAL(bdev_integrity_scrub_start(bdev_find("i0"), 100000, kit_error), 0);
	CU_ASSERT_TRUE_FATAL(fixture_poll(scrub_has_ended, &s));
	CU_ASSERT_TRUE(s.completed);
	CU_ASSERT_EQUAL(s.units_done, KIT_REGIONS * INTEGRITY_REGION_UNITS);
	return s;
}

static void test_a_scrub_tells_what_is_wrong_from_what_it_does_not_know(void)
{
	struct bdev_integrity_scrub s;
	struct integrity_layout l;
	struct user u;

	struct testdev *t = base_used(&l, false);
	open_again(&u);
	bad_unit(t, l.data_first + 12, NVME_SC_ABORT_REQ);
	s = scrub();
	CU_ASSERT_EQUAL(s.units_bad, 0);
	CU_ASSERT_EQUAL(s.units_failed, 1);
	CU_ASSERT_EQUAL(s.units_unchecked, KIT_REGIONS * INTEGRITY_REGION_UNITS - 8);
	atomic_store(&t->bad_status, STATUS_WRONG);
	s = scrub();
	CU_ASSERT_EQUAL(s.units_bad, 1);
	CU_ASSERT_EQUAL(s.bad[0], 12);
	CU_ASSERT_EQUAL(s.units_failed, 0);
	atomic_store(&t->bad_status, 0);
	s = scrub();
	CU_ASSERT_EQUAL(s.units_bad + s.units_failed, 0);
	close_it(&u);
	CU_ASSERT_TRUE(testdev_delete(t));
}

static void deletion_was_answered(void *arg, int rc)
{
	CU_ASSERT_EQUAL(rc, 0);
	set_done(arg);
}

/* Nobody tells the scrub to stop: it hears that its bdev goes, while it reads and between two reads. */
static void test_a_scrub_ends_because_its_bdev_goes(void)
{
	struct integrity_layout l;

	struct testdev *t = base_used(&l, false);
	for (unsigned reads = 0; reads < 2; reads++) {
		atomic_bool deleted = false;
		CU_ASSERT_EQUAL_FATAL(kit_create("m0", false), 0);
		t->hold = reads;
		CU_ASSERT_EQUAL_FATAL(bdev_integrity_scrub_start(bdev_find("i0"), 1, kit_error), 0);
		CU_ASSERT_TRUE_FATAL(fixture_poll(reads ? base_holds_two : scrub_has_begun, t));
		unsigned before = atomic_load(&t->submitted);
		bdev_integrity_delete("i0", deletion_was_answered, &deleted);
		t->hold = false;
		CU_ASSERT_TRUE_FATAL(fixture_wait(&deleted));
		CU_ASSERT_EQUAL(atomic_load(&t->submitted), before); /* it has read no more */
		CU_ASSERT_EQUAL(bdev_get_claim(bdev_find("m0"), NULL), BDEV_CLAIM_NONE);
	}
	CU_ASSERT_TRUE(testdev_delete(t));
}

static const struct unit_test tests[] = {
	UNIT(test_a_superblock_that_is_wrong_or_lost_is_written_anew),
	UNIT(test_superblocks_that_cannot_be_read_are_not_called_missing),
	UNIT(test_the_last_superblock_is_found_after_its_base_has_grown),
	UNIT(test_a_copy_of_the_bitmap_that_cannot_be_read),
	UNIT(test_a_bitmap_of_which_both_copies_are_wrong_is_written_anew),
	UNIT(test_a_checksum_page_that_cannot_be_read_is_written_anew),
	UNIT(test_pages_that_have_become_zeroes_are_noticed),
	UNIT(test_a_wrong_checksum_page_is_counted_once),
	UNIT(test_a_standby_is_refused_also_below_another_bdev),
	UNIT(test_a_standby_is_refused_also_below_an_integrity_bdev),
	UNIT(test_unmap_on_a_base_without_it_forgets_no_checksum),
	UNIT(test_a_scrub_tells_what_is_wrong_from_what_it_does_not_know),
	UNIT(test_a_scrub_ends_because_its_bdev_goes),
	UNIT_END,
};
UNIT_MAIN("bdev_integrity_base", tests, fixture_start, fixture_stop)
