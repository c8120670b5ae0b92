/* SPDX-License-Identifier: BSD-3-Clause */
/* COPY, VERIFY and WRITE_UNCORRECTABLE: what is wrong with them, what happens when their parts fail, blocks that cannot
 * be read. */
#include "unittest/bdev/fixture.h"

#include "bdev_modules/malloc/bad_blocks.h"
#include "nvme/spec.h"

#define BS     512u
#define BLOCKS 4096u

#define READ_ERROR BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_READ_ERROR)
#define OVERLAP    (BDEV_STATUS(NVME_SCT_CMD_SPECIFIC, NVME_SC_OVERLAPPING_IO_RANGE) | NVME_SC_DNR)

static uint8_t buf[128 * BS] __attribute__((aligned(4096)));

static uint16_t copy(struct user *u, uint64_t from, uint64_t to, uint64_t num)
{
	struct request *r = request_new(u);

	bdev_io_set_copy(r->io, from, to, num);
	uint16_t status = request_run(r);
	request_free(r);
	return status;
}

static struct testdev *open_testdev(struct testdev *t, struct user *u)
{
	for (size_t i = 0; i < BLOCKS; i++) {
		memset(t->memory + i * BS, (int)(i % 251), BS);
	}
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(u, "t0", true, fixture_thread(0)), 0);
	return t;
}

static void close_testdev(struct testdev *t, struct user *u)
{
	user_close(u);
	CU_ASSERT_TRUE(testdev_delete(t));
}

static bool holds(const struct testdev *t, uint64_t at, uint64_t original, uint64_t num)
{
	for (uint64_t i = 0; i < num; i++) {
		if (t->memory[(at + i) * BS] != (original + i) % 251) {
			return false;
		}
	}
	return true;
}

static void test_ranges_of_a_copy_are_checked(void)
{
	struct user u, reader;

	make_malloc("m0", BS, 100);
	CU_ASSERT_EQUAL_FATAL(user_open(&reader, "m0", false, fixture_thread(1)), 0);
	CU_ASSERT_EQUAL(copy(&reader, 0, 10, 1), NVME_SC_OP_DENIED | NVME_SC_DNR);
	CU_ASSERT_EQUAL(user_io(&reader, BDEV_IO_VERIFY, NULL, 0, 100), 0);
	user_close(&reader);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "m0", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(copy(&u, 0, 90, 10), 0);
	CU_ASSERT_EQUAL(copy(&u, 90, 0, 10), 0);
	CU_ASSERT_EQUAL(copy(&u, 0, 91, 10), NVME_SC_LBA_RANGE | NVME_SC_DNR);
	CU_ASSERT_EQUAL(copy(&u, 91, 0, 10), NVME_SC_LBA_RANGE | NVME_SC_DNR);
	CU_ASSERT_EQUAL(copy(&u, 100, 0, 1), NVME_SC_LBA_RANGE | NVME_SC_DNR);
	CU_ASSERT_EQUAL(copy(&u, UINT64_MAX, 0, 2), NVME_SC_LBA_RANGE | NVME_SC_DNR);
	CU_ASSERT_EQUAL(copy(&u, 0, 50, 0), NVME_SC_LBA_RANGE | NVME_SC_DNR);
	CU_ASSERT_EQUAL(copy(&u, 10, 19, 10), OVERLAP);
	CU_ASSERT_EQUAL(copy(&u, 19, 10, 10), OVERLAP);
	CU_ASSERT_EQUAL(copy(&u, 10, 10, 1), OVERLAP);
	CU_ASSERT_EQUAL(copy(&u, 20, 10, 10), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_VERIFY, NULL, 99, 2), NVME_SC_LBA_RANGE | NVME_SC_DNR);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
}

/* More than all buffers of the thread together: it goes on as they come back. */
static void test_a_large_copy_by_reads_and_writes_goes_through_few_buffers(void)
{
	struct testdev *t = testdev_new("t0", BS, BLOCKS);
	struct bdev_stat stat;
	struct user u;

	t->shuffle = true;
	open_testdev(t, &u);
	CU_ASSERT_EQUAL(copy(&u, 0, 2048, 2048), 0);
	CU_ASSERT_TRUE(holds(t, 2048, 0, 2048));
	CU_ASSERT_TRUE(holds(t, 0, 0, 2048));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_VERIFY, NULL, 0, BLOCKS), 0);
	bdev_get_stat(&t->bdev, &stat);
	CU_ASSERT_EQUAL(stat.class[BDEV_STAT_COPY].ops, 1);
	CU_ASSERT_EQUAL(stat.class[BDEV_STAT_COPY].bytes, 2048 * BS);
	close_testdev(t, &u);
}

static void test_an_error_of_the_read_is_the_copys_and_nothing_is_written(void)
{
	struct testdev *t = testdev_new("t0", BS, BLOCKS);
	struct user u;

	open_testdev(t, &u);
	t->fail_status = READ_ERROR;
	CU_ASSERT_EQUAL(copy(&u, 0, 1000, 64), READ_ERROR);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_VERIFY, NULL, 0, 64), READ_ERROR);
	t->fail_status = 0;
	CU_ASSERT_TRUE(holds(t, 1000, 1000, 64));
	close_testdev(t, &u);
}

/* A copy that has been read, and whose write is held. */
static struct request *copy_until_it_writes(struct testdev *t, struct user *u)
{
	struct request *r = request_new(u);

	t->hold = true;
	bdev_io_set_copy(r->io, 0, 1000, 8);
	request_submit(r);
	CU_ASSERT_TRUE_FATAL(fixture_wait_count(&t->submitted, 1));
	testdev_release(t, u, 0);
	CU_ASSERT_TRUE_FATAL(fixture_wait_count(&t->submitted, 2));
	return r;
}

static void test_an_error_of_the_write_is_the_copys(void)
{
	struct testdev *t = testdev_new("t0", BS, BLOCKS);
	struct user u;
	struct request *r;

	open_testdev(t, &u);
	r = copy_until_it_writes(t, &u);
	CU_ASSERT_FALSE(atomic_load(&r->done));
	testdev_release(t, &u, NVME_SC_INTERNAL);
	CU_ASSERT_TRUE_FATAL(request_wait(r));
	CU_ASSERT_EQUAL(r->status, NVME_SC_INTERNAL);
	CU_ASSERT_TRUE(holds(t, 1000, 1000, 8));
	request_free(r);
	t->hold = false;
	close_testdev(t, &u);
}

static bool is_split(void *arg, const struct bdev_inflight *one)
{
	bool *seen = arg;

	*seen = *seen || (one->type == BDEV_IO_COPY && one->state == BDEV_IO_SPLIT && one->children == 1 &&
			  one->offset_blocks == 1000);
	return true;
}

static void nothing(void *arg)
{
}

/* Handed to where its target is; r ends with it, or goes on. */
static struct request *submit_abort(struct user *u, struct request *r)
{
	struct request *a = request_new(u);

	bdev_io_set_rw(a->io, BDEV_IO_ABORT, NULL, 0, 0, 0);
	a->io->abort.target = r->io;
	request_submit(a);
	thread_call(u->thread, nothing, NULL); /* it has got there */
	return a;
}

/* Aborted while its read is under way: the write is left out. */
static void test_a_copy_is_seen_and_can_be_aborted(void)
{
	struct testdev *t = testdev_new("t0", BS, BLOCKS);
	struct user u;
	struct request *r, *a;
	bool seen = false;

	t->bdev.io_types &= ~(1u << BDEV_IO_ABORT);
	open_testdev(t, &u);
	t->hold = true;
	r = request_new(&u);
	bdev_io_set_copy(r->io, 0, 1000, 8);
	request_submit(r);
	CU_ASSERT_TRUE_FATAL(fixture_wait_count(&t->submitted, 1));
	bdev_for_each_inflight(&t->bdev, is_split, &seen);
	CU_ASSERT_TRUE(seen);
	a = submit_abort(&u, r);
	testdev_release(t, &u, 0);
	CU_ASSERT_TRUE_FATAL(request_wait(r));
	CU_ASSERT_TRUE_FATAL(request_wait(a));
	CU_ASSERT_EQUAL(a->status, 0);
	CU_ASSERT_EQUAL(a->cdw0, 0);
	CU_ASSERT_EQUAL(r->status, NVME_SC_ABORT_REQ);
	CU_ASSERT_EQUAL(atomic_load(&t->submitted), 1);
	CU_ASSERT_TRUE(holds(t, 1000, 1000, 8));
	request_free(r);
	request_free(a);
	t->hold = false;
	close_testdev(t, &u);
}

/* All that is left of it is a write, which goes on: "aborted" would not be true. */
static void test_a_copy_that_is_being_written_is_not_aborted(void)
{
	struct testdev *t = testdev_new("t0", BS, BLOCKS);
	struct user u;
	struct request *r, *a;

	t->bdev.io_types &= ~(1u << BDEV_IO_ABORT);
	open_testdev(t, &u);
	r = copy_until_it_writes(t, &u);
	a = submit_abort(&u, r);
	CU_ASSERT_TRUE_FATAL(request_wait(a));
	CU_ASSERT_EQUAL(a->status, 0);
	CU_ASSERT_EQUAL(a->cdw0, 1);
	testdev_release(t, &u, 0);
	CU_ASSERT_TRUE_FATAL(request_wait(r));
	CU_ASSERT_EQUAL(r->status, 0);
	CU_ASSERT_TRUE(holds(t, 1000, 0, 8));
	request_free(r);
	request_free(a);
	t->hold = false;
	close_testdev(t, &u);
}

static void test_uncorrectable_blocks_fail_to_be_read_until_they_are_written(void)
{
	const uint16_t bad = READ_ERROR | NVME_SC_DNR;
	struct user u;

	make_malloc("m0", BS, 200);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "m0", true, fixture_thread(0)), 0);
	CU_ASSERT_TRUE(bdev_io_type_supported(bdev_find("m0"), BDEV_IO_WRITE_UNCORRECTABLE));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE_UNCORRECTABLE, NULL, 60, 10), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buf, 59, 1), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buf, 59, 2), bad);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buf, 69, 1), bad);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buf, 70, 1), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_VERIFY, NULL, 0, 200), bad);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_COMPARE, buf, 60, 1), bad);
	CU_ASSERT_EQUAL(copy(&u, 60, 100, 5), bad);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, buf, 60, 4), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buf, 60, 4), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buf, 64, 1), bad);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE_ZEROES, NULL, 64, 2), 0);
	CU_ASSERT_EQUAL(copy(&u, 0, 66, 2), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_VERIFY, NULL, 0, 68), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_VERIFY, NULL, 68, 1), bad);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_UNMAP, NULL, 68, 2), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_VERIFY, NULL, 0, 200), 0);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
}

static void test_only_the_module_can_make_blocks_uncorrectable(void)
{
	struct user u;

	make_null("n0", BS, 100);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "n0", true, fixture_thread(0)), 0);
	CU_ASSERT_FALSE(bdev_io_type_supported(bdev_find("n0"), BDEV_IO_WRITE_UNCORRECTABLE));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE_UNCORRECTABLE, NULL, 0, 1), NVME_SC_INVALID_OPCODE | NVME_SC_DNR);
	CU_ASSERT_EQUAL(copy(&u, 0, 50, 50), 0);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

/* Against an array of flags. */
static void test_bad_blocks_are_counted_bit_by_bit(void)
{
	struct bad_blocks b = {0};
	bool flags[300] = {false};
	uint64_t rnd = 1;

	CU_ASSERT_FALSE(bad_blocks_any(&b, 0, 300));
	bad_blocks_clear(&b, 0, 300);
	for (unsigned n = 0; n < 2000; n++) {
		uint64_t first = fixture_random(&rnd) % 300, num = fixture_random(&rnd) % (300 - first) % 140 + 1;
		bool mark = fixture_random(&rnd) % 2, any = false;
		uint64_t count = 0;
		for (uint64_t i = first; i < first + num; i++) {
			any = any || flags[i];
			flags[i] = mark;
		}
		CU_ASSERT_EQUAL(bad_blocks_any(&b, first, num), any);
		if (mark) {
			CU_ASSERT_EQUAL(bad_blocks_mark(&b, 300, first, num), 0);
		} else {
			bad_blocks_clear(&b, first, num);
		}
		for (unsigned i = 0; i < 300; i++) {
			count += flags[i];
		}
		CU_ASSERT_EQUAL(b.count, count);
		CU_ASSERT_EQUAL(bad_blocks_none(&b), count == 0);
	}
	bad_blocks_free(&b);
}

static const struct unit_test tests[] = {
	UNIT(test_ranges_of_a_copy_are_checked),
	UNIT(test_a_large_copy_by_reads_and_writes_goes_through_few_buffers),
	UNIT(test_an_error_of_the_read_is_the_copys_and_nothing_is_written),
	UNIT(test_an_error_of_the_write_is_the_copys),
	UNIT(test_a_copy_is_seen_and_can_be_aborted),
	UNIT(test_a_copy_that_is_being_written_is_not_aborted),
	UNIT(test_uncorrectable_blocks_fail_to_be_read_until_they_are_written),
	UNIT(test_only_the_module_can_make_blocks_uncorrectable),
	UNIT(test_bad_blocks_are_counted_bit_by_bit),
	UNIT_END,
};
UNIT_MAIN("bdev_copy", tests, fixture_start, fixture_stop)
