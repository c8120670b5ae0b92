/* SPDX-License-Identifier: BSD-3-Clause */
/* Integrity bdevs while their base fails or does not answer, and while others keep the same regions busy. */
#include <errno.h>
#include <rte_common.h>

#include "bdev_modules/integrity/test_integrity_fault_base.h"

/* --- Load: I/Os that write single units without pause --- */

#define LOADERS 8u

struct loader {
	struct user *user;
	struct bdev_io *io;
	struct iovec iov;
	uint8_t *buffer;
	uint64_t random, first, units;
	atomic_bool stop, done;
	atomic_uint wrong, ended;
};
static struct loader loaders[2 * LOADERS];

static void loader_go(void *arg)
{
	struct loader *l = arg;

	l->iov = (struct iovec){l->buffer, UNIT_BYTES};
	bdev_io_set_rw(l->io, BDEV_IO_WRITE, &l->iov, 1, l->first + fixture_random(&l->random) % l->units, 1);
	bdev_submit(l->io);
}

static void loader_ended(struct bdev_io *io, void *arg)
{
	struct loader *l = arg;

	atomic_fetch_add(&l->wrong, io->status != 0);
	atomic_fetch_add(&l->ended, 1);
	if (l->stop) {
		set_done(&l->done);
	} else {
		loader_go(l);
	}
}

static void load_start(struct loader *l, unsigned n, struct user *u, uint64_t first, uint64_t units)
{
	for (unsigned i = 0; i < n; i++) {
		l[i] = (struct loader){.user = u, .random = i + 1, .first = first, .units = units};
		l[i].buffer = aligned_alloc(4096, UNIT_BYTES);
		memset(l[i].buffer, (int)i, UNIT_BYTES);
		l[i].io = aligned_alloc(64, bdev_io_size());
		memset(l[i].io, 0, bdev_io_size());
		bdev_io_init(l[i].io, u->desc, u->ch, loader_ended, &l[i]);
		CU_ASSERT_EQUAL_FATAL(thread_send(u->thread, loader_go, &l[i]), 0);
	}
}

static unsigned load_stop(struct loader *l, unsigned n)
{
	unsigned ended = 0;

	for (unsigned i = 0; i < n; i++) {
		atomic_store(&l[i].stop, true);
	}
	for (unsigned i = 0; i < n; i++) {
		CU_ASSERT_TRUE_FATAL(fixture_wait(&l[i].done));
		CU_ASSERT_EQUAL(l[i].wrong, 0);
		ended += l[i].ended;
		free(l[i].buffer);
		free(l[i].io);
	}
	return ended;
}

static unsigned load_count(const struct loader *l, unsigned n)
{
	unsigned ended = 0;

	for (unsigned i = 0; i < n; i++) {
		ended += atomic_load(&l[i].ended);
	}
	return ended;
}

/* --- I/O that others are in the way of --- */

/* While the load goes on: otherwise it would never end. */
static void test_a_large_io_has_its_turn_among_small_ones(void)
{
	struct user u, busy;

	kit_close_soon(false);
	faults_start(&u, 1, NULL, true);
	CU_ASSERT_EQUAL_FATAL(user_open(&busy, "i0", true, fixture_thread(1)), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE_ZEROES, NULL, 0, 512), 0);
	fault_base.t->shuffle = true;
	load_start(loaders, LOADERS, &busy, 0, 256);
	for (unsigned i = 0; i < 10; i++) {
		CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE_ZEROES, NULL, 0, 256), 0);
		CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, kit_data, 0, 256), 0);
		CU_ASSERT_EQUAL(kit_read(&u, 0, 256), 0);
	}
	CU_ASSERT_TRUE(load_stop(loaders, LOADERS) > 0);
	fault_base.t->shuffle = false;
	CU_ASSERT_EQUAL(kit_info().errors, 0);
	user_close(&busy);
	faults_end(&u);
}

static bool load_goes_on(void *arg)
{
	return load_count(loaders, LOADERS) > *(const unsigned *)arg;
}

/* Two regions are written without pause, and no third one may be open. */
static void test_a_region_has_its_turn_among_busy_ones(void)
{
	struct user u, busy;
	unsigned enough = 100;

	kit_close_soon(false);
	integrity_limits.slots = 4;
	faults_start(&u, 20, NULL, true);
	CU_ASSERT_EQUAL_FATAL(user_open(&busy, "i0", true, fixture_thread(1)), 0);
	fault_base.t->shuffle = true;
	load_start(loaders, LOADERS / 2, &busy, 0, 4);
	load_start(loaders + LOADERS / 2, LOADERS / 2, &busy, 512, 4);
	CU_ASSERT_TRUE(fixture_poll(load_goes_on, &enough));
	for (unsigned i = 2; i < 10; i++) {
		CU_ASSERT_EQUAL(kit_write(&u, i * 512ul, 1, i), 0);
	}
	enough += load_count(loaders, LOADERS);
	CU_ASSERT_TRUE(fixture_poll(load_goes_on, &enough));
	(void)load_stop(loaders, LOADERS);
	fault_base.t->shuffle = false;
	for (unsigned i = 2; i < 10; i++) {
		CU_ASSERT_TRUE(kit_reads(&u, i * 512ul, 1, i));
	}
	CU_ASSERT_TRUE(kit_info().regions_open <= 2);
	user_close(&busy);
	faults_end(&u);
	integrity_limits.slots = 16384;
}

/* --- Operations of the module that fail --- */

static uint8_t image[(256 + 20 * INTEGRITY_REGION_UNITS + 1) * UNIT_BYTES];

static bool fault_has_come(void *arg)
{
	return atomic_load(&fault_base.fail_count) == 0;
}

/* What is on the base at this moment opens, has the data, and calls none of it wrong. */
static void opens_as_it_is(struct user *u)
{
	memcpy(image, fault_base.t->memory, (size_t)KIT_UNITS * UNIT_BYTES);
	faults_end(u);
	faults_start(u, KIT_REGIONS, image, true);
	CU_ASSERT_TRUE(kit_reads(u, 0, 4, 1));
	CU_ASSERT_TRUE(kit_reads(u, 512, 4, 2));
	CU_ASSERT_EQUAL(kit_info().errors, 0);
}

static void a_failure_passes(enum fault_kind kind, bool carried_out)
{
	struct user u;

	kit_close_soon(false);
	faults_start(&u, KIT_REGIONS, NULL, true);
	CU_ASSERT_EQUAL(kit_write(&u, 0, 4, 1), 0);
	fault_base.fail_kind = kind;
	fault_base.carried_out = carried_out;
	fault_base.fail_count = 1;
	kit_close_soon(true);
	CU_ASSERT_TRUE(fixture_poll(fault_has_come, NULL));
	CU_ASSERT_TRUE(kit_wait_closed());
	CU_ASSERT_TRUE(kit_reads(&u, 0, 4, 1));
	CU_ASSERT_EQUAL(kit_write(&u, 512, 4, 2), 0);
	CU_ASSERT_TRUE(kit_wait_closed());
	CU_ASSERT_FALSE(kit_info().read_only);
	CU_ASSERT_EQUAL(kit_info().units_unchecked, 0);
	opens_as_it_is(&u);
	CU_ASSERT_EQUAL(kit_info().regions_unclean, 0);
	CU_ASSERT_EQUAL(kit_info().units_unchecked, 0);
	faults_end(&u);
}

static void test_a_failure_of_closing_passes(void)
{
	a_failure_passes(KIND_FLUSH, false);
	a_failure_passes(KIND_SUMS, false);
	a_failure_passes(KIND_SUMS, true);
	a_failure_passes(KIND_BITMAP, false);
	a_failure_passes(KIND_BITMAP, true);
}

/* The write has the base's status, so that its host may go another way; and a later one succeeds. */
static void test_a_failure_of_opening_is_the_bases(void)
{
	struct user u;

	for (unsigned i = 0; i < 4; i++) {
		fault_no_ticks();
		faults_start(&u, KIT_REGIONS, NULL, true);
		CU_ASSERT_EQUAL(kit_write(&u, 0, 4, 1), 0);
		fault_base.fail_kind = i % 2 == 0 ? KIND_BITMAP : KIND_FLUSH;
		fault_base.carried_out = i / 2;
		fault_base.fail_count = 1;
		CU_ASSERT_EQUAL(kit_write(&u, 512, 4, 1), STATUS_AGAIN);
		CU_ASSERT_TRUE(kit_info().read_only);
		CU_ASSERT_EQUAL(kit_write(&u, 2, 2, 1), 0); /* is open */
		CU_ASSERT_TRUE(kit_reads(&u, 0, 4, 1));
		CU_ASSERT_EQUAL(kit_write(&u, 512, 4, 2), 0);
		CU_ASSERT_FALSE(kit_info().read_only);
		memcpy(image, fault_base.t->memory, (size_t)KIT_UNITS * UNIT_BYTES);
		opens_as_it_is(&u);
		faults_end(&u);
		faults_start(&u, KIT_REGIONS, image, true);
		CU_ASSERT_EQUAL(kit_info().regions_unclean, 2);
		CU_ASSERT_TRUE(kit_reads(&u, 512, 4, 2));
		faults_end(&u);
	}
}

/* The copy that failed is written again: the other one is the only one that is right for certain. */
static void test_after_a_failure_the_same_copy_is_written(void)
{
	struct integrity_bitmap_page *copies[2];
	struct user u;

	fault_no_ticks();
	faults_start(&u, KIT_REGIONS, NULL, true);
	for (unsigned i = 0; i < 2; i++) {
		copies[i] =
			(struct integrity_bitmap_page *)(fault_base.t->memory + (fault_base.layout.bitmap_first +
										 i * fault_base.layout.bitmap_pages) *
											UNIT_BYTES);
	}
	CU_ASSERT_EQUAL(kit_write(&u, 0, 4, 1), 0);
	const unsigned newer = copies[1]->sequence > copies[0]->sequence;
	const uint64_t right = copies[newer]->sequence;
	fault_base.fail_kind = KIND_FLUSH;
	fault_base.carried_out = true;
	for (unsigned i = 0; i < 3; i++) {
		fault_base.fail_count = 1;
		CU_ASSERT_EQUAL(kit_write(&u, 512, 4, 1), STATUS_AGAIN);
		CU_ASSERT_EQUAL(copies[newer]->sequence, right);
	}
	CU_ASSERT_EQUAL(kit_write(&u, 512, 4, 1), 0);
	CU_ASSERT_EQUAL(copies[newer]->sequence, right);
	CU_ASSERT_EQUAL(copies[!newer]->sequence, right + 1);
	faults_end(&u);
}

/* More regions were open than there is memory for, and nothing can be closed: they can be read, and it can go. */
static void what_was_open_is_read_while_this_fails(enum fault_kind kind)
{
	struct user u;

	kit_close_soon(false);
	faults_start(&u, 20, NULL, true);
	for (uint64_t r = 0; r < 20; r++) {
		CU_ASSERT_EQUAL(kit_write(&u, r * 512, 1, 1), 0);
	}
	memcpy(image, fault_base.t->memory, sizeof(image));
	faults_end(&u);
	integrity_limits.slots = 4;
	faults_start(&u, 20, image, true);
	CU_ASSERT_EQUAL(kit_info().regions_unclean, 20);
	fault_base.fail_kind = kind;
	fault_base.fail_count = UINT32_MAX;
	for (uint64_t r = 0; r < 20; r++) {
		CU_ASSERT_TRUE(kit_reads(&u, r * 512, 1, 1));
	}
	CU_ASSERT_EQUAL(kit_info().read_only, kind == KIND_FLUSH);
	CU_ASSERT_EQUAL(kit_info().regions_unknown, 20);
	fault_base.fail_count = 0;
	kit_close_soon(true);
	CU_ASSERT_TRUE(kit_wait_closed());
	CU_ASSERT_FALSE(kit_info().read_only);
	for (uint64_t r = 0; r < 20; r++) {
		CU_ASSERT_TRUE(kit_reads(&u, r * 512, 1, 1));
	}
	fault_base.fail_count = UINT32_MAX;
	CU_ASSERT_EQUAL(kit_write(&u, 0, 1, 2), kind == KIND_FLUSH ? STATUS_AGAIN : 0);
	faults_end(&u);
	integrity_limits.slots = 16384;
}

static void test_what_was_open_is_read_while_nothing_can_be_closed(void)
{
	what_was_open_is_read_while_this_fails(KIND_FLUSH);
	what_was_open_is_read_while_this_fails(KIND_SUMS);
}

/* --- What the base did not do, and what it does at once --- */

static void test_a_write_that_never_began_leaves_the_old_checksums(void)
{
	struct integrity_bdev *d;
	struct user u;

	kit_close_soon(false);
	faults_start(&u, KIT_REGIONS, NULL, true);
	d = integrity_of(bdev_integrity_find("i0"));
	CU_ASSERT_EQUAL(kit_write(&u, 0, 4, 1), 0);
	fault_base.t->untouched_status = STATUS_AGAIN;
	struct request *r = request_new(&u);
	struct iovec iov = {kit_data, 4ul * UNIT_BYTES};
	bdev_io_set_rw(r->io, BDEV_IO_WRITE, &iov, 1, 0, 4);
	request_submit(r);
	CU_ASSERT_TRUE_FATAL(request_wait(r));
	CU_ASSERT_EQUAL(r->status, STATUS_AGAIN);
	CU_ASSERT_TRUE(bdev_io_was_untouched(r->io)); /* so it may be sent another way */
	request_free(r);
	fault_base.t->untouched_status = 0;
	CU_ASSERT_TRUE(kit_reads(&u, 0, 4, 1));
	CU_ASSERT_EQUAL(kit_info().units_unchecked, 0);
	fault_base.t->memory[(d->layout.data_first + 2) * UNIT_BYTES] ^= 1;
	CU_ASSERT_EQUAL(kit_read(&u, 0, 4), STATUS_WRONG);
	fault_base.t->fail_status = STATUS_AGAIN;
	CU_ASSERT_EQUAL(kit_write(&u, 0, 4, 2), STATUS_AGAIN);
	fault_base.t->fail_status = 0;
	CU_ASSERT_EQUAL(kit_read(&u, 0, 4), 0); /* perhaps some of it was written */
	CU_ASSERT_EQUAL(kit_info().units_unchecked, 4);
	faults_end(&u);
}

static void test_many_regions_do_not_fill_the_stack(void)
{
	const uint32_t regions = 400;
	struct user u;

	kit_close_soon(false);
	faults_start(&u, regions, NULL, true);
	fault_base.notes_stack = true;
	for (unsigned i = 0; i < 2; i++) { /* all regions are in memory the second time */
		fault_base.stack_low = UINTPTR_MAX;
		fault_base.stack_high = 0;
		CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_UNMAP, NULL, 0, bdev_num_blocks(bdev_find("i0"))), 0);
	}
	CU_ASSERT_TRUE(fault_base.stack_high - fault_base.stack_low < 128 * 1024);
	printf("stack: %lu bytes\n", fault_base.stack_high - fault_base.stack_low);
	faults_end(&u);
}

/* --- UNMAP --- */

static void test_unmap_writes_little_of_its_own(void)
{
	struct user u;
	const uint32_t regions = 20;

	kit_close_soon(true);
	faults_start(&u, regions, NULL, true);
	uint64_t units = bdev_num_blocks(bdev_find("i0"));
	unsigned before = fault_base.writes[KIND_BITMAP];
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_UNMAP, NULL, 0, units), 0);
	CU_ASSERT_EQUAL(fault_base.writes[KIND_BITMAP], before); /* nothing is known of any unit */
	CU_ASSERT_EQUAL(fault_base.writes[KIND_UNMAP], regions);
	for (uint64_t r = 0; r < regions; r++) {
		CU_ASSERT_EQUAL(kit_write(&u, r * 512, 1, 1), 0);
	}
	CU_ASSERT_TRUE(kit_wait_closed());
	kit_close_soon(false);
	before = fault_base.writes[KIND_BITMAP];
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_UNMAP, NULL, 0, units), 0);
	CU_ASSERT_TRUE(fault_base.writes[KIND_BITMAP] - before >= 1);
	CU_ASSERT_TRUE(fault_base.writes[KIND_BITMAP] - before < regions);
	CU_ASSERT_EQUAL(kit_read(&u, 0, 1), 0);
	CU_ASSERT_EQUAL(kit_data[0], 0xee);
	CU_ASSERT_EQUAL(kit_info().units_unchecked, 1);
	CU_ASSERT_EQUAL(kit_info().errors, 0);
	faults_end(&u);
}

static void test_a_base_without_unmap_keeps_its_checksums(void)
{
	struct user u;

	kit_close_soon(true);
	faults_start(&u, KIT_REGIONS, NULL, false);
	CU_ASSERT_EQUAL(kit_write(&u, 0, 4, 1), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_UNMAP, NULL, 0, 4), 0);
	CU_ASSERT_TRUE(kit_reads(&u, 0, 4, 1));
	CU_ASSERT_EQUAL(kit_info().units_unchecked, 0);
	faults_end(&u);
}

/* --- A base that does not answer --- */

static struct request *held_write(struct user *u, struct iovec *iov, uint64_t unit, unsigned held)
{
	struct request *r = request_new(u);

	bdev_io_set_rw(r->io, BDEV_IO_WRITE, iov, 1, unit, 1);
	request_submit(r);
	CU_ASSERT_TRUE_FATAL(fixture_wait_count(&fault_base.t->held, held));
	return r;
}

/* The base does not answer the write of the bitmap, or another write of the same unit (for which a RESET would wait).
 */
static void test_io_that_waits_is_ended(void)
{
	struct user u, other;
	struct iovec iov = {kit_data, UNIT_BYTES};

	for (unsigned i = 0; i < 2 * ENDERS - 1; i++) {
		bool of_units = i / ENDERS;
		kit_close_soon(false);
		faults_start(&u, KIT_REGIONS, NULL, true);
		CU_ASSERT_EQUAL_FATAL(user_open(&other, "i0", true, fixture_thread(1)), 0);
		CU_ASSERT_EQUAL(kit_write(&u, 0, 4, 1), 0);
		CU_ASSERT_EQUAL(kit_read(&u, 512, 1), 0);
		fault_base.t->hold = true;
		struct request *first = of_units ? held_write(&other, &iov, 0, 1) : NULL;
		struct request *r = held_write(&u, &iov, of_units ? 0 : 512, 1);
		fault_end_by(&u, r, i % ENDERS);
		CU_ASSERT_TRUE_FATAL(request_wait(r));
		CU_ASSERT_EQUAL(r->status, NVME_SC_ABORT_REQ);
		CU_ASSERT_TRUE(bdev_io_was_untouched(r->io));
		request_free(r);
		fault_base.t->hold = false;
		if (first != NULL) {
			CU_ASSERT_EQUAL(request_finish(first), 0);
		}
		CU_ASSERT_EQUAL(kit_write(&u, 0, 1, 3), 0);
		CU_ASSERT_EQUAL(kit_write(&u, 512, 1, 3), 0);
		CU_ASSERT_TRUE(kit_reads(&u, 0, 1, 3));
		user_close(&other);
		faults_end(&u);
	}
}

static void test_it_goes_while_its_base_does_not_answer(void)
{
	uint64_t usual = integrity_limits.end_us;
	struct user u;

	kit_close_soon(false);
	integrity_limits.end_us = 50000;
	faults_start(&u, KIT_REGIONS, NULL, true);
	CU_ASSERT_EQUAL(kit_write(&u, 0, 4, 1), 0);
	user_close(&u);
	fault_base.t->hold = true;
	CU_ASSERT_EQUAL(fixture_delete(bdev_integrity_delete, "i0"), 0);
	fault_base.t->hold = false;
	integrity_limits.end_us = usual;
	CU_ASSERT_EQUAL_FATAL(kit_create("m0", false), 0);
	CU_ASSERT_EQUAL(kit_info().regions_unclean, 1);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "i0", true, fixture_thread(0)), 0);
	CU_ASSERT_TRUE(kit_reads(&u, 0, 4, 1));
	faults_end(&u);
}

/* --- It goes while it does something of its own --- */

struct going {
	const struct integrity_bdev *d;
	atomic_bool done;
	int rc;
};

static void gone(void *arg, int rc)
{
	struct going *g = arg;

	g->rc = rc;
	set_done(&g->done);
}

static bool is_ending(void *arg)
{
	return ((const struct going *)arg)->d->ending;
}

/* Until i0 waits for the held I/O. */
static void go(struct going *g)
{
	*g = (struct going){.d = integrity_of(bdev_integrity_find("i0"))};
	bdev_integrity_delete("i0", gone, g);
	CU_ASSERT_TRUE_FATAL(fixture_poll(is_ending, g));
	CU_ASSERT_FALSE(g->done);
}

static void go_on(struct going *g)
{
	fault_release();
	CU_ASSERT_TRUE_FATAL(fixture_wait(&g->done));
	CU_ASSERT_EQUAL(g->rc, 0);
}

static void created_again(struct user *u)
{
	CU_ASSERT_EQUAL_FATAL(kit_create("m0", false), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(u, "i0", true, fixture_thread(0)), 0);
}

/* A wrong checksum page has made it open a region, behind the write of the bitmap that closes another one. fails: so
 * does the write that opens it. */
static void it_goes_while_a_region_is_opened(bool fails)
{
	struct going g;
	struct user u;

	kit_close_soon(false);
	faults_start(&u, KIT_REGIONS, NULL, true);
	CU_ASSERT_EQUAL(kit_write(&u, 512, 4, 1), 0);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_integrity_delete, "i0"), 0);
	fault_base.t->memory[(fault_base.layout.sums_first + 1) * UNIT_BYTES + 100] ^= 1;
	created_again(&u);
	CU_ASSERT_EQUAL(kit_write(&u, 0, 4, 1), 0);
	fault_base.hold_kind = KIND_SUMS;
	kit_close_soon(true);
	fault_closer_goes();
	CU_ASSERT_TRUE_FATAL(fixture_wait(&fault_base.holds));
	fault_base.hold_kind = KIND_BITMAP;
	fault_release();
	CU_ASSERT_TRUE_FATAL(fixture_wait(&fault_base.holds));
	CU_ASSERT_TRUE(kit_reads(&u, 512, 4, 1));
	CU_ASSERT_EQUAL(kit_info().checksum_pages_wrong, 1);
	CU_ASSERT_EQUAL(kit_info().regions_open, 2);
	user_close(&u);
	go(&g);
	fault_base.fail_kind = KIND_BITMAP;
	fault_base.fail_count = fails;
	go_on(&g);
	fault_base.fail_count = 0;
	created_again(&u);
	CU_ASSERT_EQUAL(kit_info().regions_unclean, 0);
	CU_ASSERT_TRUE(kit_reads(&u, 0, 4, 1));
	CU_ASSERT_TRUE(kit_reads(&u, 512, 4, 1));
	CU_ASSERT_EQUAL(kit_info().checksum_pages_wrong, fails);
	faults_end(&u);
}

static void test_it_goes_while_a_region_is_opened(void)
{
	it_goes_while_a_region_is_opened(false);
	it_goes_while_a_region_is_opened(true);
}

/* --- What was open at a crash --- */

/* The base of i0 as it is when these regions are open, and have one unit written. */
static void crashed_with_open(uint32_t regions, uint32_t open)
{
	struct user u;

	kit_close_soon(false);
	faults_start(&u, regions, NULL, true);
	for (uint64_t r = 0; r < open; r++) {
		CU_ASSERT_EQUAL(kit_write(&u, r * 512, 1, 1), 0);
	}
	memcpy(image, fault_base.t->memory, (256ul + regions * INTEGRITY_REGION_UNITS + 1) * UNIT_BYTES);
	faults_end(&u);
	kit_close_soon(true);
	integrity_limits.learns = true;
}

/* i0 on that; it does nothing before fault_closer_goes(). */
static void faults_start_unlearned(struct user *u, uint32_t regions)
{
	uint64_t usual = integrity_limits.tick_us;

	integrity_limits.tick_us = 1000000000;
	faults_start(u, regions, image, true);
	integrity_limits.tick_us = usual;
}

static void all_units_are_checked(struct user *u, uint32_t regions)
{
	CU_ASSERT_TRUE(kit_wait_closed());
	for (uint64_t r = 0; r < regions; r++) {
		for (uint64_t unit = r * 512; unit < r * 512 + 512; unit += 511) {
			uint8_t *byte =
				fault_base.t->memory + (fault_base.layout.data_first + unit) * UNIT_BYTES + unit % 512;
			CU_ASSERT_EQUAL(kit_read(u, unit, 1), 0);
			*byte ^= 1;
			CU_ASSERT_EQUAL(kit_read(u, unit, 1), STATUS_WRONG);
			*byte ^= 1;
		}
	}
}

static void test_what_was_open_is_learned_after_errors_that_pass(void)
{
	struct user u;

	crashed_with_open(KIT_REGIONS, KIT_REGIONS);
	faults_start_unlearned(&u, KIT_REGIONS);
	fault_base.fail_kind = KIND_READ;
	fault_base.fail_count = 4 * KIT_REGIONS;
	fault_closer_goes();
	all_units_are_checked(&u, KIT_REGIONS);
	CU_ASSERT_EQUAL(fault_base.fail_count, 0);
	faults_end(&u);
}

static void test_what_was_not_learned_stays_open(void)
{
	struct going g;
	struct user u;

	crashed_with_open(KIT_REGIONS, KIT_REGIONS);
	faults_start_unlearned(&u, KIT_REGIONS);
	fault_base.hold_kind = KIND_READ;
	fault_closer_goes();
	CU_ASSERT_TRUE_FATAL(fixture_wait(&fault_base.holds));
	user_close(&u);
	go(&g);
	go_on(&g);
	created_again(&u);
	CU_ASSERT_EQUAL(kit_info().regions_unclean, KIT_REGIONS);
	all_units_are_checked(&u, KIT_REGIONS);
	faults_end(&u);
}

/* Unmapped, or partly written, since the crash: the base may return something else the next time. */
static void test_what_was_lost_is_not_learned(void)
{
	struct user u;

	crashed_with_open(KIT_REGIONS, 2);
	faults_start_unlearned(&u, KIT_REGIONS);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_UNMAP, NULL, 3, 1), 0);
	fault_base.t->fail_status = STATUS_AGAIN;
	CU_ASSERT_EQUAL(kit_write(&u, 512 + 3, 1, 1), STATUS_AGAIN);
	fault_base.t->fail_status = 0;
	fault_closer_goes();
	all_units_are_checked(&u, 2);
	for (uint64_t unit = 3; unit < 512 + 4; unit += 512) {
		uint8_t *byte = fault_base.t->memory + (fault_base.layout.data_first + unit) * UNIT_BYTES;
		uint64_t before = kit_info().units_unchecked;
		*byte ^= 1;
		CU_ASSERT_EQUAL(kit_read(&u, unit, 1), 0);
		CU_ASSERT_EQUAL(kit_info().units_unchecked, before + 1);
	}
	CU_ASSERT_EQUAL(kit_info().errors, 4);
	faults_end(&u);
}

/* While one is read another one, that has still to be, gives its place away. */
static void test_what_was_not_learned_is_not_closed_for_others(void)
{
	struct user u;

	crashed_with_open(20, 4);
	integrity_limits.slots = 4;
	faults_start_unlearned(&u, 20);
	fault_base.hold_kind = KIND_READ;
	fault_closer_goes();
	CU_ASSERT_TRUE_FATAL(fixture_wait(&fault_base.holds));
	CU_ASSERT_EQUAL(kit_info().regions_open, 2);
	CU_ASSERT_EQUAL(kit_write(&u, 10 * 512, 1, 1), 0);
	CU_ASSERT_EQUAL(kit_info().regions_unknown, 4);
	fault_release();
	all_units_are_checked(&u, 4);
	CU_ASSERT_TRUE(kit_reads(&u, 10 * 512, 1, 1));
	faults_end(&u);
	integrity_limits.slots = 16384;
}

static bool one_is_closing(void *arg)
{
	const struct integrity_bdev *d = integrity_of(bdev_integrity_find("i0"));

	return d->slots[0].state == SLOT_CLOSING || d->slots[1].state == SLOT_CLOSING;
}

/* Both regions that may be open cannot be read, and are busy: a write that needs the place of one waits for its writes
 * only. */
static void test_a_region_has_its_turn_among_unlearned_ones(void)
{
	struct user u, other;
	struct iovec iov = {kit_data, UNIT_BYTES};

	crashed_with_open(20, 2);
	integrity_limits.slots = 4;
	faults_start_unlearned(&u, 20);
	CU_ASSERT_EQUAL(kit_read(&u, 10ul * 512, 1), 0); /* its checksums are in memory */
	fault_base.fail_kind = KIND_READ;
	fault_base.fail_count = UINT32_MAX;
	CU_ASSERT_EQUAL_FATAL(user_open(&other, "i0", true, fixture_thread(1)), 0);
	CU_ASSERT_EQUAL(kit_write(&u, 0, 1, 1), 0); /* they have slots */
	CU_ASSERT_EQUAL(kit_write(&u, 512, 1, 1), 0);
	kit_fill(kit_data, 0, 2);
	fault_base.t->hold = true;
	struct request *writes[3] = {held_write(&u, &iov, 0, 1), held_write(&u, &iov, 512, 2), request_new(&other)};
	bdev_io_set_rw(writes[2]->io, BDEV_IO_WRITE, &iov, 1, 10ul * 512, 1);
	fault_closer_goes();
	request_submit(writes[2]);
	CU_ASSERT_TRUE(fixture_poll(one_is_closing, NULL));
	CU_ASSERT_FALSE(writes[2]->done);
	fault_base.t->hold = false;
	for (unsigned i = 0; i < 3; i++) {
		CU_ASSERT_EQUAL(request_finish(writes[i]), 0);
	}
	CU_ASSERT_TRUE(kit_info().regions_unknown < 2);
	fault_base.fail_count = 0;
	CU_ASSERT_TRUE(kit_wait_closed());
	CU_ASSERT_TRUE(kit_reads(&u, 0, 1, 2));
	CU_ASSERT_EQUAL(kit_info().units_unchecked, 1);
	user_close(&other);
	faults_end(&u);
	integrity_limits.slots = 16384;
}

static const struct unit_test tests[] = {
	UNIT(test_a_large_io_has_its_turn_among_small_ones),
	UNIT(test_a_region_has_its_turn_among_busy_ones),
	UNIT(test_a_failure_of_closing_passes),
	UNIT(test_a_failure_of_opening_is_the_bases),
	UNIT(test_after_a_failure_the_same_copy_is_written),
	UNIT(test_what_was_open_is_read_while_nothing_can_be_closed),
	UNIT(test_a_write_that_never_began_leaves_the_old_checksums),
	UNIT(test_many_regions_do_not_fill_the_stack),
	UNIT(test_unmap_writes_little_of_its_own),
	UNIT(test_a_base_without_unmap_keeps_its_checksums),
	UNIT(test_io_that_waits_is_ended),
	UNIT(test_it_goes_while_its_base_does_not_answer),
	UNIT(test_it_goes_while_a_region_is_opened),
	UNIT(test_what_was_open_is_learned_after_errors_that_pass),
	UNIT(test_what_was_not_learned_stays_open),
	UNIT(test_what_was_lost_is_not_learned),
	UNIT(test_what_was_not_learned_is_not_closed_for_others),
	UNIT(test_a_region_has_its_turn_among_unlearned_ones),
	UNIT_END,
};
UNIT_MAIN("bdev_integrity_faults", tests, fixture_start, fixture_stop)
