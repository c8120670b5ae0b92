/* SPDX-License-Identifier: BSD-3-Clause */
/* The path of an I/O: results of good and bad ones, unrolled completion, statistics. */
#include "unittest/bdev/fixture.h"

#include "env_dpdk/env.h"

#define DNR(status_) ((status_) | NVME_SC_DNR)

static uint8_t buf[65536] __attribute__((aligned(4096)));

static void test_io_size_holds_the_largest_module_context(void)
{
	CU_ASSERT_TRUE(bdev_io_size() >= sizeof(struct bdev_io) + sizeof(void *));
	CU_ASSERT_EQUAL(bdev_io_size() % 64, 0);
}

static void test_written_data_is_read_back(void)
{
	struct user u;
	uint8_t out[8192], in[8192];

	make_malloc("m0", 4096, 100);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "m0", true, fixture_thread(0)), 0);
	memset(out, 0x5a, sizeof(out));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, out, 98, 2), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, in, 98, 2), 0);
	CU_ASSERT_EQUAL(memcmp(in, out, sizeof(in)), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_COMPARE, out, 98, 2), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE_ZEROES, NULL, 98, 1), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_COMPARE, out, 98, 2),
			DNR(BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_COMPARE_FAILED)));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, in, 98, 1), 0);
	CU_ASSERT_EQUAL(in[0] | in[4095], 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_FLUSH, NULL, 0, 0), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_UNMAP, NULL, 0, 100), 0);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
}

static void test_io_beyond_the_end_is_out_of_range(void)
{
	struct user u;

	make_null("n0", 512, 100);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "n0", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buf, 99, 1), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buf, 100, 1), DNR(NVME_SC_LBA_RANGE));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buf, 99, 2), DNR(NVME_SC_LBA_RANGE));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, buf, 1, UINT64_MAX / 512), DNR(NVME_SC_LBA_RANGE));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_UNMAP, NULL, UINT64_MAX, 2), DNR(NVME_SC_LBA_RANGE));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE_ZEROES, NULL, 0, 0), DNR(NVME_SC_LBA_RANGE));
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

static void test_data_that_does_not_add_up_is_rejected(void)
{
	struct user u;
	struct iovec iovs[2] = {{buf, 512}, {buf, 511}};

	make_null("n0", 512, 100);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "n0", true, fixture_thread(0)), 0);
	struct request *r = request_new(&u);
	bdev_io_set_rw(r->io, BDEV_IO_READ, iovs, 2, 0, 2);
	CU_ASSERT_EQUAL(request_run(r), DNR(NVME_SC_SGL_INVALID_DATA));
	bdev_io_set_rw(r->io, BDEV_IO_WRITE, iovs, 1, 0, 2);
	CU_ASSERT_EQUAL(request_run(r), DNR(NVME_SC_SGL_INVALID_DATA));
	bdev_io_set_rw(r->io, BDEV_IO_COMPARE, iovs, 0, 0, 1);
	CU_ASSERT_EQUAL(request_run(r), DNR(NVME_SC_SGL_INVALID_DATA));
	bdev_io_set_rw(r->io, BDEV_IO_COMPARE_AND_WRITE, iovs, 1, 0, 1);
	r->io->compare.iovs = &iovs[1];
	r->io->compare.iovcnt = 1;
	CU_ASSERT_EQUAL(request_run(r), DNR(NVME_SC_SGL_INVALID_DATA));
	request_free(r);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

static void test_writing_types_need_a_writing_descriptor(void)
{
	struct user u;

	make_null("n0", 512, 100);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "n0", false, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buf, 0, 1), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, buf, 0, 1), DNR(NVME_SC_OP_DENIED));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_UNMAP, NULL, 0, 1), DNR(NVME_SC_OP_DENIED));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE_ZEROES, NULL, 0, 1), DNR(NVME_SC_OP_DENIED));
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

static void test_unknown_types_are_invalid_opcodes(void)
{
	struct user u;

	make_null("n0", 512, 100);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "n0", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_INVALID, NULL, 0, 1), DNR(NVME_SC_INVALID_OPCODE));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_ZCOPY, NULL, 0, 1), DNR(NVME_SC_INVALID_OPCODE));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_NVME_ADMIN, NULL, 0, 1), DNR(NVME_SC_INVALID_OPCODE));
	CU_ASSERT_EQUAL(user_io(&u, 200, NULL, 0, 1), DNR(NVME_SC_INVALID_OPCODE));
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

/* Each completion submits the next: the stack must not grow with their number. */
struct chain {
	unsigned left;
	uintptr_t lowest, highest;
	atomic_bool done;
};

static void chain_next(struct bdev_io *io, void *arg)
{
	struct chain *c = arg;
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);

	c->lowest = here < c->lowest ? here : c->lowest;
	c->highest = here > c->highest ? here : c->highest;
	if (io->status != 0 || --c->left == 0) {
		atomic_store(&c->done, true);
		fixture_wake();
	} else {
		bdev_submit(io);
	}
}

static void test_completion_inside_submit_does_not_recurse(void)
{
	struct chain c = {.left = 100000, .lowest = UINTPTR_MAX};
	struct iovec iov = {buf, 512};
	struct user u;

	make_null("n0", 512, 100);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "n0", true, fixture_thread(1)), 0);
	struct request *r = request_new(&u);
	bdev_io_init(r->io, u.desc, u.ch, chain_next, &c);
	bdev_io_set_rw(r->io, BDEV_IO_READ, &iov, 1, 5, 1);
	request_submit(r);
	CU_ASSERT_TRUE(fixture_wait(&c.done));
	CU_ASSERT_EQUAL(c.left, 0);
	CU_ASSERT_TRUE(c.highest - c.lowest < 4096);
	request_free(r);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

/* The last completion puts the channel and the thread's context with it. */
static void put_in_callback(struct bdev_io *io, void *arg)
{
	bdev_channel_put(io->ch);
	set_done(arg);
}

static void test_channel_may_be_put_from_a_callback(void)
{
	atomic_bool done = false;
	struct iovec iov = {buf, 512};
	struct user u;

	make_null("n0", 512, 100);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "n0", true, fixture_thread(1)), 0);
	struct request *r = request_new(&u);
	bdev_io_init(r->io, u.desc, u.ch, put_in_callback, &done);
	bdev_io_set_rw(r->io, BDEV_IO_READ, &iov, 1, 5, 1);
	request_submit(r);
	CU_ASSERT_TRUE(fixture_wait(&done));
	request_free(r);
	bdev_close(u.desc);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

static void test_statistics_sum_over_channels_present_and_gone(void)
{
	struct bdev_stat s;
	struct user u[2];

	make_null("n0", 4096, 100);
	struct bdev *b = bdev_find("n0");
	CU_ASSERT_EQUAL_FATAL(user_open(&u[0], "n0", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u[1], "n0", true, fixture_thread(1)), 0);
	CU_ASSERT_EQUAL(user_io(&u[0], BDEV_IO_READ, buf, 0, 2), 0);
	CU_ASSERT_EQUAL(user_io(&u[1], BDEV_IO_READ, buf, 0, 1), 0);
	CU_ASSERT_EQUAL(user_io(&u[1], BDEV_IO_WRITE, buf, 0, 3), 0);
	CU_ASSERT_EQUAL(user_io(&u[1], BDEV_IO_UNMAP, NULL, 0, 10), 0);
	CU_ASSERT_NOT_EQUAL(user_io(&u[1], BDEV_IO_READ, buf, 100, 1), 0);
	user_close(&u[1]);
	bdev_get_stat(b, &s);
	CU_ASSERT_EQUAL(s.class[BDEV_STAT_READ].ops, 2);
	CU_ASSERT_EQUAL(s.class[BDEV_STAT_READ].bytes, 3 * 4096);
	CU_ASSERT_EQUAL(s.class[BDEV_STAT_WRITE].ops, 1);
	CU_ASSERT_EQUAL(s.class[BDEV_STAT_WRITE].bytes, 3 * 4096);
	CU_ASSERT_EQUAL(s.class[BDEV_STAT_UNMAP].bytes, 10 * 4096);
	CU_ASSERT_EQUAL(s.errors[0].status, NVME_SC_LBA_RANGE);
	CU_ASSERT_EQUAL(s.errors[0].count, 1);
	CU_ASSERT_EQUAL(s.errors[1].count, 0);
	CU_ASSERT_EQUAL(s.faults, 0); /* the bdev is well: it was asked for what it does not have */
	bdev_peek_stat(b, &s);
	CU_ASSERT(s.errors[0].status == NVME_SC_LBA_RANGE && s.errors[0].count == 1 && s.faults == 0);
	bdev_reset_stat(b, BDEV_STAT_RESET_ERROR);
	bdev_get_stat(b, &s);
	CU_ASSERT_EQUAL(s.errors[0].count, 0);
	CU_ASSERT_EQUAL(s.class[BDEV_STAT_READ].ops, 2);
	bdev_reset_stat(b, BDEV_STAT_RESET_ALL);
	bdev_get_stat(b, &s);
	CU_ASSERT_EQUAL(s.class[BDEV_STAT_READ].ops, 0);
	CU_ASSERT_EQUAL(s.class[BDEV_STAT_READ].min_ticks, UINT64_MAX);
	user_close(&u[0]);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

/* Zero copy: runs on the user's thread. */
struct zcopy {
	struct request *r;
	void *addr;
	struct iovec iov;
};

static void zcopy_get_here(void *arg)
{
	struct zcopy *l = arg;
	l->addr = bdev_zcopy_get(l->r->io);
}

static void zcopy_put_here(void *arg)
{
	bdev_zcopy_put(((struct zcopy *)arg)->r->io);
}

static void test_zero_copy_memory_is_the_disk(void)
{
	struct user u;
	struct zcopy l = {0};

	make_malloc("m0", 4096, 100);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "m0", true, fixture_thread(2)), 0);
	l.r = request_new(&u);
	bdev_io_set_rw(l.r->io, BDEV_IO_WRITE, &l.iov, 1, 7, 2);
	thread_call(u.thread, zcopy_get_here, &l);
	CU_ASSERT_PTR_NOT_NULL_FATAL(l.addr);
	memset(l.addr, 0x77, 8192); /* as a transport would */
	l.iov = (struct iovec){l.addr, 8192};
	CU_ASSERT_EQUAL(request_run(l.r), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buf, 7, 2), 0);
	CU_ASSERT_EQUAL(buf[0] & buf[8191], 0x77);

	void *region;
	size_t len;
	CU_ASSERT_TRUE(bdev_zcopy_region(bdev_find("m0"), &region, &len));
	CU_ASSERT_EQUAL(len, 100 * 4096);
	CU_ASSERT_PTR_EQUAL((uint8_t *)region + 7 * 4096, l.addr);

	thread_call(u.thread, zcopy_get_here, &l);
	CU_ASSERT_PTR_NOT_NULL(l.addr);
	thread_call(u.thread, zcopy_put_here, &l);
	bdev_io_set_rw(l.r->io, BDEV_IO_READ, &l.iov, 1, 99, 2);
	thread_call(u.thread, zcopy_get_here, &l);
	CU_ASSERT_PTR_NULL(l.addr); /* out of range */
	request_free(l.r);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
}

static void test_zero_copy_for_writing_needs_a_writing_descriptor(void)
{
	struct user u;
	struct zcopy l = {0};

	make_malloc("m0", 4096, 100);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "m0", false, fixture_thread(2)), 0);
	l.r = request_new(&u);
	bdev_io_set_rw(l.r->io, BDEV_IO_WRITE, &l.iov, 1, 7, 2);
	thread_call(u.thread, zcopy_get_here, &l);
	CU_ASSERT_PTR_NULL(l.addr);
	request_free(l.r);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
}

static const struct unit_test tests[] = {
	UNIT(test_io_size_holds_the_largest_module_context),
	UNIT(test_written_data_is_read_back),
	UNIT(test_io_beyond_the_end_is_out_of_range),
	UNIT(test_data_that_does_not_add_up_is_rejected),
	UNIT(test_writing_types_need_a_writing_descriptor),
	UNIT(test_unknown_types_are_invalid_opcodes),
	UNIT(test_completion_inside_submit_does_not_recurse),
	UNIT(test_channel_may_be_put_from_a_callback),
	UNIT(test_statistics_sum_over_channels_present_and_gone),
	UNIT(test_zero_copy_memory_is_the_disk),
	UNIT(test_zero_copy_for_writing_needs_a_writing_descriptor),
	UNIT_END,
};
UNIT_MAIN("bdev_io", tests, fixture_start, fixture_stop)
