/* SPDX-License-Identifier: BSD-3-Clause */
/* Passthru bdevs: I/O of every type ends as the base ends it, and what happens to the base happens to them. */
#include <errno.h>

#include "bdev_modules/passthru/passthru.h"
#include "unittest/bdev/fixture.h"

static uint8_t buf[512] __attribute__((aligned(4096)));
static char error[BDEV_ERROR_MAX];
static struct iovec one_block = {buf, sizeof(buf)};

static void passthru_open(struct user *u, const char *base)
{
	CU_ASSERT_EQUAL_FATAL(bdev_passthru_create("p0", base, NULL, error), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(u, "p0", true, fixture_thread(0)), 0);
}

static void passthru_close(struct user *u)
{
	user_close(u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "p0"), 0);
}

static void test_io_is_carried_out_by_the_base(void)
{
	uint8_t out[512], in[512];
	struct user u;

	make_malloc("m0", 512, 100);
	passthru_open(&u, "m0");
	memset(out, 3, sizeof(out));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, out, 9, 1), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, in, 9, 1), 0);
	CU_ASSERT_EQUAL(memcmp(in, out, sizeof(in)), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_COMPARE, out, 9, 1), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE_ZEROES, NULL, 9, 1), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_COMPARE, out, 9, 1),
			BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_COMPARE_FAILED) | NVME_SC_DNR);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_UNMAP, NULL, 0, 100), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_FLUSH, NULL, 0, 0), 0);
	passthru_close(&u);
	CU_ASSERT_EQUAL(bdev_get_claim(bdev_find("m0"), NULL), BDEV_CLAIM_NONE);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
}

/* More than a channel has children. */
static void test_a_crowd_waits(void)
{
	struct request *r[300];
	struct user u;

	make_null("n0", 512, 100);
	passthru_open(&u, "n0");
	for (unsigned i = 0; i < 300; i++) {
		r[i] = request_new(&u);
		bdev_io_set_rw(r[i]->io, BDEV_IO_READ, &one_block, 1, i % 100, 1);
		request_submit(r[i]);
	}
	for (unsigned i = 0; i < 300; i++) {
		CU_ASSERT_EQUAL(request_finish(r[i]), 0);
	}
	passthru_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

static void test_abort_and_reset_reach_the_base(void)
{
	struct testdev *t = testdev_new("t0", 512, 100);
	struct request *r[2];
	struct user u;

	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	t->hold = true;
	passthru_open(&u, "t0");
	for (unsigned i = 0; i < 2; i++) {
		r[i] = request_new(&u);
		bdev_io_set_rw(r[i]->io, BDEV_IO_READ, &one_block, 1, 0, 1);
		request_submit(r[i]);
	}
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 2));
	struct request *abort = request_new(&u);
	abort->io->type = BDEV_IO_ABORT;
	abort->io->abort.target = r[0]->io;
	CU_ASSERT_EQUAL(request_run(abort), 0);
	CU_ASSERT_EQUAL(abort->cdw0, 0);
	request_free(abort);
	CU_ASSERT_EQUAL(request_finish(r[0]), NVME_SC_ABORT_REQ);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_RESET, NULL, 0, 0), 0);
	CU_ASSERT_EQUAL(request_finish(r[1]), NVME_SC_ABORT_REQ);
	passthru_close(&u);
	CU_ASSERT_TRUE(testdev_delete(t));
}

/* The RESET must not wait for a child that only the RESET sets free. */
static void test_reset_reaches_the_base_while_all_children_are_out(void)
{
	struct testdev *t = testdev_new("t0", 512, 100);
	struct request *r[200];
	struct user u;

	t->bdev.io_types |= 1u << BDEV_IO_RESET;
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	t->hold = true;
	passthru_open(&u, "t0");
	for (unsigned i = 0; i < 200; i++) {
		r[i] = request_new(&u);
		bdev_io_set_rw(r[i]->io, BDEV_IO_READ, &one_block, 1, 0, 1);
		request_submit(r[i]);
	}
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 128));
	for (unsigned i = 0; i < 2; i++) {
		CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_RESET, NULL, 0, 0), 0);
	}
	CU_ASSERT_EQUAL(atomic_load(&t->resets), 2);
	for (unsigned i = 0; i < 200; i++) {
		CU_ASSERT_EQUAL(request_finish(r[i]), NVME_SC_ABORT_REQ);
	}
	passthru_close(&u);
	CU_ASSERT_TRUE(testdev_delete(t));
}

static void test_a_base_that_grows_or_goes_takes_it_along(void)
{
	struct user u;

	make_null("n0", 512, 100);
	passthru_open(&u, "n0");
	u.close_on_remove = true;
	CU_ASSERT_EQUAL(bdev_null_resize("n0", 2, error), 0);
	CU_ASSERT_EQUAL(u.resizes, 1);
	CU_ASSERT_EQUAL(bdev_num_blocks(bdev_find("p0")), 4096);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
	CU_ASSERT_EQUAL(u.removes, 1);
	CU_ASSERT_PTR_NULL(bdev_find("p0"));
}

static void test_a_copy_takes_its_source_along(void)
{
	uint8_t out[512], in[512];
	struct user u;

	make_malloc("m0", 512, 100);
	passthru_open(&u, "m0");
	memset(out, 5, sizeof(out));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, out, 70, 1), 0);
	struct request *copy = request_new(&u);
	bdev_io_set_copy(copy->io, 70, 3, 1);
	request_submit(copy);
	CU_ASSERT_EQUAL(request_finish(copy), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, in, 3, 1), 0);
	CU_ASSERT_EQUAL(memcmp(in, out, sizeof(in)), 0);
	passthru_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
}

static void ignore_deletion(void *arg, int rc)
{
}

static void test_it_and_its_base_are_deleted_at_once(void)
{
	make_null("n0", 512, 100);
	CU_ASSERT_EQUAL_FATAL(bdev_passthru_create("p0", "n0", NULL, error), 0);
	bdev_passthru_delete("p0", ignore_deletion, NULL);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
	CU_ASSERT_PTR_NULL(bdev_find("p0"));
}

static void test_a_uuid_that_is_taken_leaves_the_base_free(void)
{
	make_null("n0", 512, 100);
	CU_ASSERT_EQUAL(bdev_passthru_create("p0", "n0", bdev_uuid(bdev_find("n0")), error), -EEXIST);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "uuid"));
	CU_ASSERT_EQUAL(bdev_get_claim(bdev_find("n0"), NULL), BDEV_CLAIM_NONE);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

static void test_creation_says_what_is_wrong(void)
{
	make_null("n0", 512, 100);
	CU_ASSERT_EQUAL(bdev_passthru_create("p0", "nowhere", NULL, error), -ENODEV);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "'nowhere'"));
	CU_ASSERT_EQUAL(bdev_passthru_create("", "n0", NULL, error), -EINVAL);
	CU_ASSERT_EQUAL(bdev_passthru_create("p0", "n0", NULL, error), 0);
	CU_ASSERT_EQUAL(bdev_passthru_create("p1", "n0", NULL, error), -EPERM);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "claimed by p0"));
	CU_ASSERT_EQUAL(bdev_passthru_create("p0", "n0", NULL, error), -EEXIST);
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "n0"), -ENODEV);
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "p0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

static const struct unit_test tests[] = {
	UNIT(test_io_is_carried_out_by_the_base),
	UNIT(test_a_crowd_waits),
	UNIT(test_abort_and_reset_reach_the_base),
	UNIT(test_reset_reaches_the_base_while_all_children_are_out),
	UNIT(test_a_base_that_grows_or_goes_takes_it_along),
	UNIT(test_a_copy_takes_its_source_along),
	UNIT(test_it_and_its_base_are_deleted_at_once),
	UNIT(test_a_uuid_that_is_taken_leaves_the_base_free),
	UNIT(test_creation_says_what_is_wrong),
	UNIT_END,
};
UNIT_MAIN("bdev_passthru", tests, fixture_start, fixture_stop)
