/* SPDX-License-Identifier: BSD-3-Clause */
/* FLUSHes and metadata of integrity bdevs that fail. */
#include "bdev_modules/integrity/test_integrity_fault_base.h"

/* --- A base that reports what it has lost to one FLUSH only --- */

static void closes_when_told(struct user *u)
{
	fault_no_ticks();
	faults_start(u, KIT_REGIONS, NULL, true);
	CU_ASSERT_EQUAL(kit_write(u, 0, 4, 1), 0);
	integrity_limits.idle_us = 1;
}

static bool is_read_only(void *arg)
{
	return kit_info().read_only;
}

static void test_a_user_is_told_of_a_flush_that_failed(void)
{
	struct user u;

	closes_when_told(&u);
	fault_base.fail_kind = KIND_FLUSH;
	fault_base.fail_count = 1;
	fault_closer_goes();
	CU_ASSERT_TRUE(fixture_poll(is_read_only, NULL));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_FLUSH, NULL, 0, 0), STATUS_AGAIN);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_FLUSH, NULL, 0, 0), 0);
	faults_end(&u);
}

static bool it_has_failed(void *arg)
{
	return atomic_load(&fault_base.fail_count) == 0;
}

static struct request *flush_submit(struct user *u)
{
	struct request *r = request_new(u);

	r->io->type = BDEV_IO_FLUSH;
	request_submit(r);
	return r;
}

static bool a_user_waits(void *arg)
{
	return !STAILQ_EMPTY(&integrity_of(bdev_integrity_find("i0"))->flush_waiters);
}

static bool the_module_waits(void *arg)
{
	return !STAILQ_EMPTY(&integrity_of(bdev_integrity_find("i0"))->flush_queue);
}

/* Whose FLUSH was first is not known while both are at the fault_base. */
static void test_a_user_waits_for_a_flush_that_fails(void)
{
	struct user u;

	closes_when_told(&u);
	fault_base.hold_kind = KIND_FLUSH;
	fault_closer_goes();
	CU_ASSERT_TRUE_FATAL(fixture_wait(&fault_base.holds));
	unsigned before = fault_base.writes[KIND_FLUSH];
	for (unsigned i = 0; i < ENDERS; i++) {
		struct request *ended = flush_submit(&u);
		CU_ASSERT_TRUE_FATAL(fixture_poll(a_user_waits, NULL));
		fault_end_by(&u, ended, i);
		CU_ASSERT_EQUAL(request_finish(ended), NVME_SC_ABORT_REQ);
	}
	struct request *r = flush_submit(&u);
	CU_ASSERT_TRUE_FATAL(fixture_poll(a_user_waits, NULL));
	CU_ASSERT_EQUAL(fault_base.writes[KIND_FLUSH], before);
	fault_held_fails(NULL);
	CU_ASSERT_EQUAL(request_finish(r), STATUS_AGAIN);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_FLUSH, NULL, 0, 0), 0);
	faults_end(&u);
}

/* The user's FLUSH fails when the write of that kind is at the base, before it is flushed. When it is written again, a
 * FLUSH waits for that: or who sends them without end would keep it from ending. */
static void users_flush_fails_behind(struct user *u, enum fault_kind kind)
{
	struct iovec iov = {kit_data, UNIT_BYTES};
	struct request *r = request_new(u);

	bdev_io_set_rw(r->io, BDEV_IO_WRITE, &iov, 1, kind == KIND_BITMAP ? 512 : 0, 1);
	fault_base.hold_kind = kind;
	if (kind == KIND_BITMAP) {
		request_submit(r);
	} else {
		fault_closer_goes();
	}
	CU_ASSERT_TRUE_FATAL(fixture_wait(&fault_base.holds));
	unsigned before = fault_base.writes[kind];
	fault_base.fail_kind = KIND_FLUSH;
	fault_base.fail_count = 1;
	CU_ASSERT_EQUAL(user_io(u, BDEV_IO_FLUSH, NULL, 0, 0), STATUS_AGAIN);
	fault_base.hold_kind = kind;
	fault_release();
	CU_ASSERT_TRUE_FATAL(fixture_wait(&fault_base.holds));
	struct request *flush = flush_submit(u);
	CU_ASSERT_TRUE_FATAL(fixture_poll(a_user_waits, NULL));
	fault_release();
	CU_ASSERT_EQUAL(request_finish(flush), 0);
	if (kind == KIND_BITMAP) {
		CU_ASSERT_EQUAL(request_finish(r), 0);
	} else {
		CU_ASSERT_TRUE(kit_wait_closed());
		request_free(r);
	}
	CU_ASSERT_EQUAL(fault_base.writes[kind], before + 1);
	CU_ASSERT_FALSE(kit_info().read_only);
}

static void test_what_a_users_flush_may_have_lost_is_written_again(void)
{
	struct user u;

	closes_when_told(&u);
	users_flush_fails_behind(&u, KIND_SUMS);
	users_flush_fails_behind(&u, KIND_BITMAP);
	faults_end(&u);
}

static void test_it_waits_for_a_users_flush_that_fails(void)
{
	struct iovec iov = {kit_data, UNIT_BYTES};
	struct user u;

	closes_when_told(&u);
	fault_base.hold_kind = KIND_FLUSH;
	struct request *flush = flush_submit(&u), *write = request_new(&u);
	CU_ASSERT_TRUE_FATAL(fixture_wait(&fault_base.holds));
	unsigned flushes = fault_base.writes[KIND_FLUSH], bitmaps = fault_base.writes[KIND_BITMAP];
	bdev_io_set_rw(write->io, BDEV_IO_WRITE, &iov, 1, 512, 1);
	request_submit(write);
	CU_ASSERT_TRUE_FATAL(fixture_poll(the_module_waits, NULL));
	CU_ASSERT_EQUAL(fault_base.writes[KIND_FLUSH], flushes);
	CU_ASSERT_EQUAL_FATAL(thread_send(u.thread, fault_held_fails, NULL), 0);
	CU_ASSERT_EQUAL(request_finish(flush), STATUS_AGAIN);
	CU_ASSERT_EQUAL(request_finish(write), 0);
	CU_ASSERT_EQUAL(fault_base.writes[KIND_BITMAP], bitmaps + 2);
	faults_end(&u);
}

/* What was to be written in the module's turn fails: users' FLUSHes go on. */
static void test_a_write_that_fails_in_the_modules_turn_gives_it_back(void)
{
	struct iovec iov = {kit_data, UNIT_BYTES};
	struct user u;

	closes_when_told(&u);
	for (unsigned i = 0; i < 2; i++) {
		enum fault_kind kind = i == 0 ? KIND_BITMAP : KIND_SUMS;
		struct request *r = request_new(&u);
		bdev_io_set_rw(r->io, BDEV_IO_WRITE, &iov, 1, 512, 1);
		fault_base.hold_kind = kind;
		if (kind == KIND_BITMAP) {
			request_submit(r);
		} else {
			fault_closer_goes();
		}
		CU_ASSERT_TRUE_FATAL(fixture_wait(&fault_base.holds));
		fault_base.fail_kind = KIND_FLUSH;
		fault_base.fail_count = 1;
		CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_FLUSH, NULL, 0, 0), STATUS_AGAIN);
		fault_base.fail_kind = kind;
		fault_base.fail_count = 1;
		fault_release();
		CU_ASSERT_TRUE(fixture_poll(it_has_failed, NULL));
		CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_FLUSH, NULL, 0, 0), 0);
		if (kind == KIND_BITMAP) {
			CU_ASSERT_EQUAL(request_finish(r), STATUS_AGAIN);
		} else {
			request_free(r);
		}
	}
	faults_end(&u);
}

/* --- Metadata that cannot be written --- */

static atomic_uint notices;

static void count_notice(const char *type, const char *bdev, const char *text)
{
	atomic_fetch_add(&notices, 1);
}

static bool one_is_open(void *arg)
{
	return kit_info().regions_open == 1;
}

static bool was_tried_often(void *arg)
{
	return atomic_load(&fault_base.writes[KIND_SUMS]) >= *(const unsigned *)arg;
}

static void test_a_checksum_page_that_cannot_be_written_is_in_nobodys_way(void)
{
	struct user u;

	bdev_integrity_set_notice_fn(count_notice);
	atomic_store(&notices, 0);
	kit_close_soon(false);
	faults_start(&u, KIT_REGIONS, NULL, true);
	fault_base.fail_kind = KIND_SUMS;
	fault_base.fail_unit = fault_base.layout.sums_first + 1;
	fault_base.fail_count = UINT32_MAX;
	for (uint64_t r = 0; r < KIT_REGIONS; r++) {
		CU_ASSERT_EQUAL(kit_write(&u, r * 512, 1, 1), 0);
	}
	kit_close_soon(true);
	CU_ASSERT_TRUE(fixture_poll(one_is_open, NULL));
	unsigned often = fault_base.writes[KIND_SUMS] + 10;
	CU_ASSERT_TRUE(fixture_poll(was_tried_often, &often));
	CU_ASSERT_FALSE(kit_info().read_only);
	CU_ASSERT_EQUAL(notices, 1);
	for (unsigned i = 0; i < 2; i++) { /* it can be written the second time */
		user_close(&u);
		CU_ASSERT_EQUAL(fixture_delete(bdev_integrity_delete, "i0"), 0);
		fault_base.fail_count = 0;
		CU_ASSERT_EQUAL_FATAL(kit_create("m0", false), 0);
		CU_ASSERT_EQUAL_FATAL(user_open(&u, "i0", true, fixture_thread(0)), 0);
		CU_ASSERT_EQUAL(kit_info().regions_unclean, 1 - i);
		CU_ASSERT_TRUE(kit_wait_closed());
	}
	for (uint64_t r = 0; r < KIT_REGIONS; r++) {
		CU_ASSERT_TRUE(kit_reads(&u, r * 512, 1, 1));
	}
	CU_ASSERT_EQUAL(kit_info().units_unchecked, 1);
	faults_end(&u);
	bdev_integrity_set_notice_fn(NULL);
}

/* As many regions are open as may be, and none can be closed. */
static void test_a_write_that_waits_for_a_region_to_be_closed_ends(void)
{
	struct user u;

	for (enum fault_kind kind = KIND_FLUSH; kind <= KIND_SUMS; kind += KIND_SUMS - KIND_FLUSH) {
		fault_no_ticks();
		integrity_limits.slots = 4;
		faults_start(&u, 20, NULL, true);
		for (uint64_t r = 0; r < 2; r++) {
			CU_ASSERT_EQUAL(kit_write(&u, r * 512, 1, 1), 0);
		}
		fault_base.fail_kind = kind;
		fault_base.fail_count = UINT32_MAX;
		for (uint64_t r = 2; r < 5; r++) {
			CU_ASSERT_EQUAL(kit_write(&u, r * 512, 1, 1), STATUS_AGAIN);
		}
		CU_ASSERT_EQUAL(kit_write(&u, 0, 1, 2), 0);
		fault_base.fail_count = 0;
		integrity_limits.idle_us = 1;
		for (uint64_t r = 2; r < 5; r++) {
			CU_ASSERT_EQUAL(kit_write(&u, r * 512, 1, 2), 0);
		}
		CU_ASSERT_TRUE(kit_reads(&u, 0, 1, 2));
		CU_ASSERT_FALSE(kit_info().read_only);
		faults_end(&u);
		integrity_limits.slots = 16384;
	}
}

static bool is_not_read_only(void *arg)
{
	return !kit_info().read_only;
}

static void test_it_is_told_that_a_base_works_again_though_nothing_is_closed(void)
{
	struct user u;

	closes_when_told(&u);
	fault_base.fail_kind = KIND_FLUSH;
	fault_base.fail_count = 1;
	fault_closer_goes();
	CU_ASSERT_TRUE(fixture_poll(is_read_only, NULL));
	integrity_limits.idle_us = 1000000000;
	fault_closer_goes();
	CU_ASSERT_TRUE(fixture_poll(is_not_read_only, NULL));
	CU_ASSERT_EQUAL(kit_info().regions_open, 1);
	faults_end(&u);
}

static void test_a_page_of_the_bitmap_that_failed_is_written_at_the_end(void)
{
	struct user u;

	closes_when_told(&u);
	fault_base.fail_kind = KIND_BITMAP;
	fault_base.fail_count = 1;
	fault_closer_goes();
	CU_ASSERT_TRUE(fixture_poll(is_read_only, NULL));
	CU_ASSERT_EQUAL(kit_info().regions_open, 0);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_integrity_delete, "i0"), 0);
	CU_ASSERT_EQUAL_FATAL(kit_create("m0", false), 0);
	CU_ASSERT_EQUAL(kit_info().regions_unclean, 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "i0", true, fixture_thread(0)), 0);
	CU_ASSERT_TRUE(kit_reads(&u, 0, 4, 1));
	faults_end(&u);
}

/* --- UNMAP of many regions --- */

static void release_held(void *arg)
{
	fault_release();
}

struct ended_look {
	struct user *user;
	struct request *r;
	atomic_bool asked, ended;
};

static void ended_look_there(void *arg)
{
	struct ended_look *l = arg;

	atomic_store(&l->ended, ((struct integrity_io *)bdev_io_ctx(l->r->io))->ended);
	atomic_store(&l->asked, false);
}

/* The thread of its user knows that it is to end. */
static bool is_told_to_end(void *arg)
{
	struct ended_look *l = arg;

	if (!l->ended && !atomic_exchange(&l->asked, true)) {
		CU_ASSERT_EQUAL_FATAL(thread_send(l->user->thread, ended_look_there, l), 0);
	}
	return l->ended && !l->asked;
}

static void test_unmap_reads_no_page_that_was_never_written(void)
{
	struct user u;

	kit_close_soon(false);
	faults_start(&u, 20, NULL, true);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_UNMAP, NULL, 0, bdev_num_blocks(bdev_find("i0"))), 0);
	CU_ASSERT_EQUAL(kit_read(&u, 512, 1), 0);
	CU_ASSERT_EQUAL(fault_base.writes[KIND_UNMAP], 20);
	CU_ASSERT_EQUAL(fault_base.writes[KIND_SUMS_READ], 0);
	faults_end(&u);
}

static bool were_read(void *arg)
{
	return atomic_load(&fault_base.writes[KIND_SUMS_READ]) >= *(const unsigned *)arg;
}

/* While the first page is read the others are as well. */
static void test_unmap_reads_pages_together(void)
{
	struct user u;

	kit_close_soon(true);
	faults_start(&u, 20, NULL, true);
	for (uint64_t r = 0; r < 20; r++) {
		CU_ASSERT_EQUAL(kit_write(&u, r * 512, 1, 1), 0);
	}
	CU_ASSERT_TRUE(kit_wait_closed());
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_integrity_delete, "i0"), 0);
	CU_ASSERT_EQUAL_FATAL(kit_create("m0", false), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "i0", true, fixture_thread(0)), 0);
	fault_base.hold_kind = KIND_SUMS_READ;
	struct request *r = request_new(&u);
	bdev_io_set_rw(r->io, BDEV_IO_UNMAP, NULL, 0, 0, bdev_num_blocks(bdev_find("i0")));
	request_submit(r);
	CU_ASSERT_TRUE_FATAL(fixture_wait(&fault_base.holds));
	unsigned most = 1 + 20 / 4; /* a quarter of those that may be open, and its own */
	CU_ASSERT_TRUE(fixture_poll(were_read, &most));
	CU_ASSERT_EQUAL(fault_base.writes[KIND_UNMAP], 0);
	fault_release();
	CU_ASSERT_EQUAL(request_finish(r), 0);
	CU_ASSERT_EQUAL(fault_base.writes[KIND_UNMAP], 20);
	CU_ASSERT_EQUAL(fault_base.writes[KIND_SUMS_READ], 20);
	CU_ASSERT_EQUAL(kit_read(&u, 0, 1), 0);
	CU_ASSERT_EQUAL(kit_info().units_unchecked, 1);
	faults_end(&u);
}

/* The base has its first part. */
static void test_io_of_many_regions_is_ended_between_two(void)
{
	struct user u;

	for (unsigned i = 0; i < 2 * ENDERS; i++) {
		bool zeroes = i / ENDERS;
		kit_close_soon(false);
		faults_start(&u, 20, NULL, true);
		fault_base.hold_kind = zeroes ? KIND_ZEROES : KIND_UNMAP;
		struct request *r = request_new(&u);
		bdev_io_set_rw(r->io, zeroes ? BDEV_IO_WRITE_ZEROES : BDEV_IO_UNMAP, NULL, 0, 0,
			       bdev_num_blocks(bdev_find("i0")));
		request_submit(r);
		CU_ASSERT_TRUE_FATAL(fixture_wait(&fault_base.holds));
		struct request *ender = request_new(&u);
		ender->io->type = i % ENDERS == RESET ? BDEV_IO_RESET : BDEV_IO_ABORT;
		ender->io->abort.target = r->io;
		if (i % ENDERS == TAKE_BACK) {
			request_take_back(r);
		} else {
			request_submit(ender);
		}
		struct ended_look look = {&u, r};
		CU_ASSERT_TRUE_FATAL(fixture_poll(is_told_to_end, &look));
		CU_ASSERT_EQUAL_FATAL(thread_send(u.thread, release_held, NULL), 0);
		CU_ASSERT_EQUAL(request_finish(r), NVME_SC_ABORT_REQ);
		CU_ASSERT_EQUAL(fault_base.writes[zeroes ? KIND_ZEROES : KIND_UNMAP], 1);
		if (i % ENDERS == TAKE_BACK) {
			request_free(ender);
		} else {
			CU_ASSERT_EQUAL(request_finish(ender), 0);
		}
		CU_ASSERT_EQUAL(kit_write(&u, 0, 1, 1), 0);
		CU_ASSERT_TRUE(kit_reads(&u, 0, 1, 1));
		faults_end(&u);
	}
}

/* It changes no checksum, so the region is closed meanwhile. */
static void test_an_unmap_of_unknown_blocks_does_not_keep_a_region_open(void)
{
	struct user u;

	closes_when_told(&u);
	fault_base.hold_kind = KIND_UNMAP;
	struct request *r = request_new(&u);
	bdev_io_set_rw(r->io, BDEV_IO_UNMAP, NULL, 0, 8, 4);
	request_submit(r);
	CU_ASSERT_TRUE_FATAL(fixture_wait(&fault_base.holds));
	fault_closer_goes();
	CU_ASSERT_TRUE(kit_wait_closed());
	CU_ASSERT_EQUAL_FATAL(thread_send(u.thread, release_held, NULL), 0);
	CU_ASSERT_EQUAL(request_finish(r), 0);
	CU_ASSERT_EQUAL(kit_info().regions_open, 0);
	CU_ASSERT_TRUE(kit_reads(&u, 0, 4, 1));
	CU_ASSERT_EQUAL(kit_info().units_unchecked, 0);
	faults_end(&u);
}

/* --- A base that comes, and fails at first --- */

static bool it_is_there(void *arg)
{
	return bdev_integrity_find("i0") != NULL;
}

static void test_it_comes_when_an_error_of_its_base_has_passed(void)
{
	static uint8_t image[KIT_UNITS * UNIT_BYTES];
	uint64_t usual = integrity_limits.retry_us;
	struct user u;

	kit_close_soon(false);
	faults_start(&u, KIT_REGIONS, NULL, true);
	CU_ASSERT_EQUAL(kit_write(&u, 0, 4, 1), 0);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_integrity_delete, "i0"), 0);
	memcpy(image, fault_base.t->memory, sizeof(image));
	CU_ASSERT_TRUE(testdev_delete(fault_base.t));
	integrity_limits.retry_us = 1000;
	CU_ASSERT_EQUAL(kit_create("m0", false), 0);
	CU_ASSERT_FALSE(it_is_there(NULL));
	fault_base_new(KIT_REGIONS, image, true);
	fault_base.fail_kind = KIND_FLUSH;
	fault_base.fail_count = 2;
	CU_ASSERT_EQUAL_FATAL(testdev_register(fault_base.t), 0);
	CU_ASSERT_TRUE(fixture_poll(it_is_there, NULL));
	CU_ASSERT_TRUE(it_has_failed(NULL));
	/* What was read may have been in a cache that lost it: it is written for the FLUSH that succeeds. */
	CU_ASSERT_EQUAL(fault_base.writes[KIND_BITMAP], 1);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "i0", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_FLUSH, NULL, 0, 0), STATUS_AGAIN);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_FLUSH, NULL, 0, 0), 0);
	CU_ASSERT_TRUE(kit_reads(&u, 0, 4, 1));
	CU_ASSERT_EQUAL(kit_info().units_unchecked, 0);
	faults_end(&u);
	integrity_limits.retry_us = usual;
}

/* It was told to the module, before it was deleted and made again. */
static void test_a_user_is_told_of_a_flush_that_failed_in_an_earlier_life(void)
{
	struct user u;

	fault_no_ticks();
	faults_start(&u, KIT_REGIONS, NULL, true);
	CU_ASSERT_EQUAL(kit_write(&u, 0, 4, 1), 0);
	user_close(&u);
	fault_base.fail_kind = KIND_FLUSH;
	fault_base.fail_count = 1;
	CU_ASSERT_EQUAL(fixture_delete(bdev_integrity_delete, "i0"), 0); /* closes the region */
	CU_ASSERT_TRUE(it_has_failed(NULL));
	CU_ASSERT_EQUAL_FATAL(kit_create("m0", false), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "i0", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_FLUSH, NULL, 0, 0), STATUS_AGAIN);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_integrity_delete, "i0"), 0);
	CU_ASSERT_EQUAL_FATAL(kit_create("m0", false), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "i0", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_FLUSH, NULL, 0, 0), 0); /* it has been told */
	faults_end(&u);
}

/* It is deleted while it waits for another attempt. */
static void test_it_does_not_come_when_it_was_deleted_meanwhile(void)
{
	uint64_t usual = integrity_limits.retry_us;

	kit_close_soon(false);
	integrity_limits.retry_us = 1000;
	CU_ASSERT_EQUAL(kit_create("m0", false), 0);
	fault_base_new(KIT_REGIONS, NULL, true);
	fault_base.t->fail_status = STATUS_AGAIN;
	CU_ASSERT_EQUAL_FATAL(testdev_register(fault_base.t), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_integrity_delete, "i0"), 0);
	fault_base.t->fail_status = 0;
	CU_ASSERT_EQUAL(kit_create("m0", true), 0); /* nothing has its name, nor its base */
	CU_ASSERT_EQUAL(fixture_delete(bdev_integrity_delete, "i0"), 0);
	CU_ASSERT_TRUE(testdev_delete(fault_base.t));
	integrity_limits.retry_us = usual;
}

/* --- What is counted --- */

static const char *const figure_names[] = {
	"varve_integrity_checked_blocks_total", "varve_integrity_unchecked_blocks_total",
	"varve_integrity_wrong_blocks_total",   "varve_integrity_open_regions",
	"varve_integrity_metadata_bytes_total",
};
#define FIGURE_NAMES (sizeof(figure_names) / sizeof(figure_names[0]))

static void figure_take(void *arg, const struct bdev_module_figure *f)
{
	uint64_t *values = arg;

	CU_ASSERT_STRING_EQUAL(f->what, "i0");
	for (size_t i = 0; i < FIGURE_NAMES; i++) {
		if (strcmp(f->name, figure_names[i]) == 0) {
			CU_ASSERT_EQUAL(f->grows, i != 3);
			values[i] = f->value;
		}
	}
}

static void test_figures_are_of_all_threads_also_when_they_have_gone(void)
{
	uint64_t values[FIGURE_NAMES] = {0};
	struct user u, other;

	kit_close_soon(false);
	faults_start(&u, KIT_REGIONS, NULL, true);
	integrity_figures(figure_take, values);
	const uint64_t metadata = values[4];
	CU_ASSERT_EQUAL(kit_write(&u, 0, 4, 1), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&other, "i0", true, fixture_thread(1)), 0);
	CU_ASSERT_EQUAL(kit_read(&other, 0, 6), 0);
	user_close(&other);
	fault_base.t->memory[fault_base.layout.data_first * UNIT_BYTES] ^= 1;
	CU_ASSERT_EQUAL(kit_read(&u, 0, 1), STATUS_WRONG);
	CU_ASSERT_EQUAL(kit_read(&u, 1, 3), 0);
	integrity_figures(figure_take, values);
	CU_ASSERT_EQUAL(values[0], 4 + 1 + 3);
	CU_ASSERT_EQUAL(values[1], 2);
	CU_ASSERT_EQUAL(values[2], 1);
	CU_ASSERT_EQUAL(values[3], 1);
	CU_ASSERT_EQUAL(values[4], metadata + UNIT_BYTES);
	faults_end(&u);
}

static const struct unit_test tests[] = {
	UNIT(test_it_comes_when_an_error_of_its_base_has_passed),
	UNIT(test_a_user_is_told_of_a_flush_that_failed_in_an_earlier_life),
	UNIT(test_it_does_not_come_when_it_was_deleted_meanwhile),
	UNIT(test_figures_are_of_all_threads_also_when_they_have_gone),
	UNIT(test_io_of_many_regions_is_ended_between_two),
	UNIT(test_an_unmap_of_unknown_blocks_does_not_keep_a_region_open),
	UNIT(test_unmap_reads_no_page_that_was_never_written),
	UNIT(test_unmap_reads_pages_together),
	UNIT(test_a_checksum_page_that_cannot_be_written_is_in_nobodys_way),
	UNIT(test_a_write_that_waits_for_a_region_to_be_closed_ends),
	UNIT(test_it_is_told_that_a_base_works_again_though_nothing_is_closed),
	UNIT(test_a_page_of_the_bitmap_that_failed_is_written_at_the_end),
	UNIT(test_a_user_is_told_of_a_flush_that_failed),
	UNIT(test_a_user_waits_for_a_flush_that_fails),
	UNIT(test_what_a_users_flush_may_have_lost_is_written_again),
	UNIT(test_it_waits_for_a_users_flush_that_fails),
	UNIT(test_a_write_that_fails_in_the_modules_turn_gives_it_back),
	UNIT_END,
};
UNIT_MAIN("bdev_integrity_own", tests, fixture_start, fixture_stop)
