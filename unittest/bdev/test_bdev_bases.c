/* SPDX-License-Identifier: BSD-3-Clause */
/* A bdev on three bases: what may go wrong while something else is under way, and without memory. */
#include "unittest/bdev/trio.h"

#include <errno.h>

#include "bdev_modules/passthru/passthru.h"

static uint8_t data[BLOCKS * BLOCK] __attribute__((aligned(4096)));

static struct request *submit(enum bdev_io_type type, uint64_t offset, uint64_t num)
{
	static struct iovec iovs[16];
	static unsigned turn;
	struct iovec *iov = &iovs[turn++ % 16];
	struct request *r = request_new(&top);

	*iov = (struct iovec){data, num * BLOCK};
	bdev_io_set_rw(r->io, type, iov, num != 0, offset, num);
	request_submit(r);
	return r;
}

/* --- Groups --- */

static void test_a_group_without_children_ends(void)
{
	trio_start(1);
	CU_ASSERT_EQUAL(user_io(&top, BDEV_IO_UNMAP, NULL, 0, 1), 0);
	trio_stop();
}

static bool sum_children(void *sum, const struct bdev_inflight *one)
{
	*(uint32_t *)sum += one->children;
	return true;
}

/* That the module's parents wait for that much. */
static bool is_waited_for(void *arg)
{
	uint32_t sum = 0;

	bdev_for_each_inflight(&the->bdev, sum_children, &sum);
	return sum == *(const uint32_t *)arg;
}

/* Blocks 0, 12 and 24 begin stripes of the first base, which has one child for them. */
static void test_a_parent_that_was_reset_gets_no_more_children(void)
{
	struct user below;

	trio_start(1);
	the->tries = 1;
	disk[0]->bdev.io_types &= ~(1u << BDEV_IO_RESET);
	the->bdev.io_types &= ~(1u << BDEV_IO_RESET);
	CU_ASSERT_EQUAL_FATAL(user_open(&below, "t0", false, fixture_thread(0)), 0);
	disk[0]->hold = true;
	struct request *r = submit(BDEV_IO_READ, 0, 36);
	CU_ASSERT_TRUE(fixture_wait_count(&disk[0]->held, 1));
	struct request *reset = submit(BDEV_IO_RESET, 0, 0);
	CU_ASSERT_TRUE(fixture_poll(is_waited_for, &(uint32_t){1})); /* the reset has taken it out of the pool */
	disk[0]->hold = false;
	testdev_release(disk[0], &below, FAULT); /* the module would try again */
	CU_ASSERT_EQUAL(request_finish(r), NVME_SC_ABORT_REQ);
	CU_ASSERT_EQUAL(request_finish(reset), 0);
	CU_ASSERT_EQUAL(atomic_load(&disk[0]->submitted), 1);
	user_close(&below);
	trio_stop();
}

static void test_reset_reaches_bases_whose_children_are_all_out(void)
{
	struct request *r[4];

	trio_start(1);
	for (unsigned i = 0; i < BASES; i++) {
		disk[i]->hold = true;
	}
	for (unsigned i = 0; i < 4; i++) {
		r[i] = submit(BDEV_IO_READ, 0, 12);
	}
	for (unsigned i = 0; i < BASES; i++) {
		CU_ASSERT_TRUE(fixture_wait_count(&disk[i]->held, 1));
	}
	CU_ASSERT_EQUAL(user_io(&top, BDEV_IO_RESET, NULL, 0, 0), 0);
	for (unsigned i = 0; i < BASES; i++) {
		CU_ASSERT_EQUAL(atomic_load(&disk[i]->resets), 1);
	}
	for (unsigned i = 0; i < 4; i++) {
		CU_ASSERT_EQUAL(request_finish(r[i]), NVME_SC_ABORT_REQ);
	}
	trio_stop();
}

static void test_a_channel_leaves_a_base_in_the_completion_of_a_child(void)
{
	trio_start(4);
	the->drops = true;
	disk[1]->fail_status = FAULT;
	CU_ASSERT_EQUAL(user_io(&top, BDEV_IO_READ, data, 0, 36), FAULT);
	CU_ASSERT_EQUAL(atomic_load(&the->dropped), 1);
	CU_ASSERT_EQUAL(user_io(&top, BDEV_IO_READ, data, 0, 12), NVME_SC_INTERNAL);
	CU_ASSERT_EQUAL(user_io(&top, BDEV_IO_READ, data, 0, 4), 0);
	trio_stop();
}

/* --- Bases that come and go --- */

static atomic_uint openings;

static bool second_does_not_open(struct testdev *t)
{
	return atomic_fetch_add(&openings, 1) != 1;
}

/* Whatever the error is: none of them means that the channel has the base already. */
static void test_a_base_that_one_thread_cannot_use_does_not_come_in(void)
{
	static const int errors[] = {-ENOMEM, -EBUSY, -EAGAIN, -EALREADY};
	struct user more[2];

	trio_start(4);
	for (unsigned i = 0; i < 2; i++) {
		CU_ASSERT_EQUAL_FATAL(user_open(&more[i], "trio", true, fixture_thread(i + 1)), 0);
	}
	vbdev_bases_detach(&the->bases, 1);
	trio_wait_detached(1);
	disk[1]->opens = second_does_not_open;
	for (unsigned i = 0; i < 4; i++) {
		atomic_store(&openings, 0);
		disk[1]->open_error = errors[i];
		CU_ASSERT_EQUAL(vbdev_bases_attach(&the->bases, 1, "t1", "trio", error), errors[i]);
		trio_wait_detached(i + 2);
		CU_ASSERT_EQUAL(bdev_get_claim(bdev_find("t1"), NULL), BDEV_CLAIM_NONE);
		CU_ASSERT_EQUAL(user_io(&more[0], BDEV_IO_READ, data, 4, 4), NVME_SC_INTERNAL);
	}
	disk[1]->opens = NULL;
	CU_ASSERT_EQUAL(vbdev_bases_attach(&the->bases, 1, "t1", "trio", error), 0);
	for (unsigned i = 0; i < 2; i++) {
		CU_ASSERT_EQUAL(user_io(&more[i], BDEV_IO_READ, data, 4, 4), 0);
		user_close(&more[i]);
	}
	trio_stop();
}

static void test_a_bdev_does_not_come_to_stand_on_itself(void)
{
	trio_start(1);
	vbdev_bases_detach(&the->bases, 2);
	trio_wait_detached(1);
	user_close(&top); /* which writes: nobody could claim it */
	CU_ASSERT_EQUAL(vbdev_bases_attach(&the->bases, 2, "trio", "trio", error), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "'trio'"));
	CU_ASSERT_EQUAL_FATAL(bdev_passthru_create("p0", "trio", NULL, error), 0);
	CU_ASSERT_EQUAL_FATAL(bdev_passthru_create("p1", "p0", NULL, error), 0);
	CU_ASSERT_EQUAL(vbdev_bases_attach(&the->bases, 2, "p1", "trio", error), -EINVAL);
	CU_ASSERT_EQUAL(vbdev_bases_attach(&the->bases, 2, "p0", "trio", error), -EINVAL);
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "p1"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "p0"), 0);
	CU_ASSERT_EQUAL(vbdev_bases_attach(&the->bases, 2, "t2", "trio", error), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&top, "trio", true, fixture_thread(0)), 0);
	trio_stop();
}

static void deletion_done(void *flag, int rc)
{
	set_done(flag);
}

/* As a module may that reads what the bases say before it makes its bdev. */
static void test_a_base_goes_before_the_bdev_is_registered(void)
{
	atomic_bool deleted = false;

	disks_new();
	the = trio_new(1);
	CU_ASSERT_EQUAL_FATAL(trio_open_bases(), 0);
	bdev_unregister(&disk[1]->bdev, deletion_done, &deleted);
	CU_ASSERT_EQUAL(atomic_load(&the->removed), 1);
	CU_ASSERT_PTR_NULL(vbdev_bases_desc(&the->bases, 1));
	CU_ASSERT_EQUAL_FATAL(bdev_register(&the->bdev), 0); /* while it is being closed */
	CU_ASSERT_EQUAL_FATAL(user_open(&top, "trio", true, fixture_thread(0)), 0);
	CU_ASSERT_TRUE(fixture_wait(&deleted));
	disk[1] = NULL;
	CU_ASSERT_EQUAL(atomic_load(&the->detached), 1);
	CU_ASSERT_EQUAL(user_io(&top, BDEV_IO_READ, data, 0, 4), 0);
	CU_ASSERT_EQUAL(user_io(&top, BDEV_IO_READ, data, 4, 4), NVME_SC_INTERNAL);
	trio_stop();
}

static void bases_are_closed(void *flag)
{
	set_done(flag);
}

static void test_bases_are_closed_while_one_is_being_detached(void)
{
	atomic_bool closed = false;

	disks_new();
	the = trio_new(1);
	CU_ASSERT_EQUAL_FATAL(trio_open_bases(), 0);
	vbdev_bases_detach(&the->bases, 1);
	vbdev_bases_detach(&the->bases, 1); /* does nothing */
	vbdev_bases_close(&the->bases, bases_are_closed, &closed);
	CU_ASSERT_FALSE(atomic_load(&closed));
	CU_ASSERT_TRUE(fixture_wait(&closed));
	CU_ASSERT_EQUAL(atomic_load(&the->detached), 0);
	free(the);
	disks_delete();
}

/* The base's module completes the child that is waited for in a poller of its channel, and goes on there. */
static void test_the_channel_of_a_base_is_not_freed_under_its_module(void)
{
	trio_start(1);
	disk[1]->hold = disk[1]->shuffle = true;
	struct request *r = submit(BDEV_IO_READ, 4, 4);
	CU_ASSERT_TRUE(fixture_wait_count(&disk[1]->held, 1));
	vbdev_bases_detach(&the->bases, 1);
	disk[1]->hold = false;
	CU_ASSERT_EQUAL(request_finish(r), 0);
	trio_wait_detached(1);
	trio_delete();
	CU_ASSERT_FALSE(disk[1]->gone_in_poll);
	disks_delete();
}

static void test_a_base_named_twice_is_refused(void)
{
	static const char *const same[] = {"t0", "t1", "t0"};

	disks_new();
	the = trio_new(1);
	CU_ASSERT_EQUAL(vbdev_bases_open(&the->bases, &trio_bases_ops, &the->bdev, same, 3, "trio", error), -EPERM);
	for (unsigned i = 0; i < BASES; i++) {
		CU_ASSERT_EQUAL(bdev_get_claim(&disk[i]->bdev, NULL), BDEV_CLAIM_NONE);
	}
	free(the);
	disks_delete();
}

/* --- No memory --- */

static atomic_int allocations_left = INT32_MAX; /* until one fails */
static atomic_bool allocation_failed;

static bool allocation_fails(void)
{
	if (atomic_load(&allocations_left) == INT32_MAX || atomic_fetch_sub(&allocations_left, 1) != 0) {
		return false;
	}
	atomic_store(&allocation_failed, true);
	return true;
}

static void fail_allocation(int number)
{
	atomic_store(&allocation_failed, false);
	atomic_store(&allocations_left, number);
}

/* Whether one has failed. */
static bool allocations_succeed_again(void)
{
	atomic_store(&allocations_left, INT32_MAX);
	return atomic_load(&allocation_failed);
}

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes)
{
	return allocation_fails() ? NULL : __real_malloc(bytes);
}

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes)
{
	return allocation_fails() ? NULL : __real_calloc(count, bytes);
}

void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
	return allocation_fails() ? NULL : __real_aligned_alloc(alignment, bytes);
}

static void check_claims(enum bdev_claim_type type)
{
	for (unsigned i = 0; i < BASES; i++) {
		CU_ASSERT_EQUAL(bdev_get_claim(&disk[i]->bdev, NULL), type);
	}
}

/* Opens all there is, in one go; the first error. Nothing stays open if there is one. */
static int open_all(void)
{
	int rc = trio_open_bases();

	if (rc != 0) {
		return rc;
	}
	rc = bdev_register(&the->bdev);
	if (rc != 0) {
		vbdev_bases_close(&the->bases, NULL, NULL);
		return rc;
	}
	rc = user_open(&top, "trio", true, fixture_thread(0));
	if (rc != 0) {
		bdev_unregister(&the->bdev, NULL, NULL);
		CU_ASSERT_TRUE(fixture_wait(&the->gone));
	}
	return rc;
}

static void test_each_allocation_of_opening_may_fail(void)
{
	int n = 0;

	disks_new();
	for (bool failed = true; failed; n++) {
		the = trio_new(4);
		fail_allocation(n);
		int rc = open_all();
		failed = allocations_succeed_again();
		CU_ASSERT_EQUAL(rc, failed ? -ENOMEM : 0);
		if (failed) {
			check_claims(BDEV_CLAIM_NONE);
			free(the);
		}
	}
	CU_ASSERT_TRUE(n > 10);
	CU_ASSERT_EQUAL(user_io(&top, BDEV_IO_READ, data, 0, 36), 0);
	trio_stop();
}

static void test_each_allocation_of_attaching_may_fail(void)
{
	struct user more;
	unsigned detached = 1;
	int n = 0;

	trio_start(4);
	CU_ASSERT_EQUAL_FATAL(user_open(&more, "trio", true, fixture_thread(1)), 0);
	vbdev_bases_detach(&the->bases, 1);
	trio_wait_detached(detached);
	for (bool failed = true; failed; n++) {
		fail_allocation(n);
		int rc = vbdev_bases_attach(&the->bases, 1, "t1", "trio", error);
		failed = allocations_succeed_again();
		CU_ASSERT_EQUAL(rc, failed ? -ENOMEM : 0);
		if (the->bases.base[1].leaving != NULL) {
			trio_wait_detached(++detached);
		}
		CU_ASSERT_EQUAL(bdev_get_claim(&disk[1]->bdev, NULL), failed ? BDEV_CLAIM_NONE : BDEV_CLAIM_EXCL_WRITE);
	}
	CU_ASSERT_TRUE(n > 4);
	CU_ASSERT_EQUAL(user_io(&top, BDEV_IO_READ, data, 0, 36), 0);
	CU_ASSERT_EQUAL(user_io(&more, BDEV_IO_READ, data, 0, 36), 0);
	user_close(&more);
	trio_stop();
}

static void test_each_allocation_of_a_passthru_bdev_may_fail(void)
{
	int n = 0;

	disks_new();
	for (bool failed = true; failed; n++) {
		fail_allocation(n);
		int rc = bdev_passthru_create("p0", "t0", NULL, error);
		failed = allocations_succeed_again();
		CU_ASSERT_EQUAL(rc, failed ? -ENOMEM : 0);
		CU_ASSERT_EQUAL(bdev_get_claim(&disk[0]->bdev, NULL), failed ? BDEV_CLAIM_NONE : BDEV_CLAIM_EXCL_WRITE);
	}
	CU_ASSERT_TRUE(n > 4);
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "p0"), 0);
	disks_delete();
}

static void answered(struct vbdev_meta_op *op)
{
	set_done(op->caller);
}

/* The error of reading a block, on a base that is opened and closed; 1 if there is no answer. */
static int read_metadata(void)
{
	atomic_bool done = false, closed = false;
	struct vbdev_meta_op op = {
		.type = BDEV_IO_READ, .num_blocks = 1, .data = data, .done = answered, .caller = &done};
	struct vbdev_meta *meta;
	int rc = vbdev_meta_open(top.desc, "the_test", &meta);

	if (rc != 0) {
		return rc;
	}
	vbdev_meta_start(meta, &op);
	rc = fixture_wait(&done) ? op.error : 1;
	vbdev_meta_close(meta, bases_are_closed, &closed);
	return fixture_wait(&closed) ? rc : 1;
}

static void test_each_allocation_of_metadata_io_may_fail(void)
{
	int n = 0;

	trio_start(4);
	for (bool failed = true; failed; n++) {
		fail_allocation(n);
		int rc = read_metadata();
		failed = allocations_succeed_again();
		CU_ASSERT_EQUAL(rc, failed ? -ENOMEM : 0);
	}
	CU_ASSERT_TRUE(n > 4);
	trio_stop();
}

static const struct unit_test tests[] = {
	UNIT(test_a_group_without_children_ends),
	UNIT(test_a_parent_that_was_reset_gets_no_more_children),
	UNIT(test_reset_reaches_bases_whose_children_are_all_out),
	UNIT(test_a_channel_leaves_a_base_in_the_completion_of_a_child),
	UNIT(test_a_base_that_one_thread_cannot_use_does_not_come_in),
	UNIT(test_a_bdev_does_not_come_to_stand_on_itself),
	UNIT(test_a_base_goes_before_the_bdev_is_registered),
	UNIT(test_bases_are_closed_while_one_is_being_detached),
	UNIT(test_the_channel_of_a_base_is_not_freed_under_its_module),
	UNIT(test_a_base_named_twice_is_refused),
	UNIT(test_each_allocation_of_opening_may_fail),
	UNIT(test_each_allocation_of_attaching_may_fail),
	UNIT(test_each_allocation_of_a_passthru_bdev_may_fail),
	UNIT(test_each_allocation_of_metadata_io_may_fail),
	UNIT_END,
};
UNIT_MAIN("bdev_bases", tests, fixture_start, fixture_stop)
