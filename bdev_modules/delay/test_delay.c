/* SPDX-License-Identifier: BSD-3-Clause */
/* Delay bdevs, and stacks of them. */
#include "bdev_modules/delay/delay.h"
#include "unittest/bdev/fixture.h"

#include <errno.h>

#include "env_dpdk/env.h"

static uint8_t buf[8192] __attribute__((aligned(4096)));
static char error[BDEV_ERROR_MAX];

static struct bdev_delay_opts delay_opts(const char *name, const char *base, uint64_t read_us, uint64_t write_us)
{
	return (struct bdev_delay_opts){.name = name,
					.base_bdev_name = base,
					.latency_us = {[BDEV_DELAY_AVG_READ] = read_us,
						       [BDEV_DELAY_P99_READ] = read_us,
						       [BDEV_DELAY_AVG_WRITE] = write_us,
						       [BDEV_DELAY_P99_WRITE] = write_us}};
}

static uint64_t timed_us(struct user *u, enum bdev_io_type type)
{
	uint64_t start = env_ticks();
	CU_ASSERT_EQUAL(user_io(u, type, type == BDEV_IO_FLUSH ? NULL : buf, 0, 1), 0);
	return env_ticks_to_ns(env_ticks() - start) / 1000;
}

static void test_delay_holds_io_back_and_passes_data_through(void)
{
	struct user u;
	uint8_t out[512], in[512];

	make_malloc("m0", 512, 100);
	struct bdev_delay_opts opts = delay_opts("d0", "m0", 5000, 10000);
	CU_ASSERT_EQUAL_FATAL(bdev_delay_create(&opts, error), 0);
	CU_ASSERT_EQUAL(bdev_num_blocks(bdev_find("d0")), 100);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "d0", true, fixture_thread(0)), 0);
	memset(out, 3, sizeof(out));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, out, 9, 1), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, in, 9, 1), 0);
	CU_ASSERT_EQUAL(memcmp(in, out, 512), 0);
	CU_ASSERT_TRUE(timed_us(&u, BDEV_IO_READ) >= 5000); /* never early */
	CU_ASSERT_TRUE(timed_us(&u, BDEV_IO_WRITE) >= 10000);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, in, 100, 1), NVME_SC_LBA_RANGE | NVME_SC_DNR);
	/* the average first, as clients do: it counts even where the p99 has not followed yet */
	CU_ASSERT_EQUAL(bdev_delay_update_latency("d0", BDEV_DELAY_AVG_READ, 20000, error), 0);
	CU_ASSERT_TRUE(timed_us(&u, BDEV_IO_READ) >= 20000);
	CU_ASSERT_TRUE(bdev_delay_get(bdev_find("d0"), &opts));
	CU_ASSERT_EQUAL(opts.latency_us[BDEV_DELAY_P99_READ], 20000); /* so that what is saved can be loaded */
	CU_ASSERT_EQUAL(bdev_delay_update_latency("d0", BDEV_DELAY_P99_READ, 30000, error), 0);
	CU_ASSERT_EQUAL(bdev_delay_update_latency("d0", BDEV_DELAY_P99_READ, 3600000001, error), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "p99_read_latency 3600000001"));
	CU_ASSERT_EQUAL(bdev_delay_update_latency("m0", BDEV_DELAY_P99_READ, 1, error), -ENODEV);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_delay_delete, "d0"), 0);
	CU_ASSERT_EQUAL(bdev_get_claim(bdev_find("m0"), NULL), BDEV_CLAIM_NONE);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
}

static void test_delay_holds_one_in_a_thousand_longer(void)
{
	struct user u;
	unsigned held = 0;

	make_null("n0", 512, 100);
	struct bdev_delay_opts opts = delay_opts("d0", "n0", 0, 0);
	opts.latency_us[BDEV_DELAY_P999_READ] = 50000;
	CU_ASSERT_EQUAL_FATAL(bdev_delay_create(&opts, error), 0);
	CU_ASSERT_TRUE(bdev_delay_get(bdev_find("d0"), &opts));
	CU_ASSERT_EQUAL(opts.latency_us[BDEV_DELAY_P999_READ], 50000);
	CU_ASSERT_EQUAL(opts.latency_us[BDEV_DELAY_P999_WRITE], 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "d0", true, fixture_thread(0)), 0);
	for (unsigned i = 0; i < 10000; i++) {
		held += timed_us(&u, BDEV_IO_READ) >= 50000;
	}
	CU_ASSERT_TRUE(held >= 3 && held <= 50); /* the machine may hold some, too */
	/* one that the 99th has caught up with is as if it were not there */
	CU_ASSERT_EQUAL(bdev_delay_update_latency("d0", BDEV_DELAY_P99_READ, 60000, error), 0);
	CU_ASSERT_TRUE(bdev_delay_get(bdev_find("d0"), &opts));
	CU_ASSERT_EQUAL(opts.latency_us[BDEV_DELAY_P999_READ], 0);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_delay_delete, "d0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

static void test_delay_says_what_is_wrong(void)
{
	make_null("n0", 512, 100);
	struct bdev_delay_opts opts = delay_opts("d0", "", 1, 1);
	CU_ASSERT_EQUAL(bdev_delay_create(&opts, error), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "0 bytes"));
	opts = delay_opts("d0", "n0", 10, 10);
	opts.latency_us[BDEV_DELAY_P99_WRITE] = 9;
	CU_ASSERT_EQUAL(bdev_delay_create(&opts, error), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "p99_write_latency 9"));
	opts = delay_opts("d0", "n0", 10, 10);
	opts.latency_us[BDEV_DELAY_P999_READ] = 9;
	CU_ASSERT_EQUAL(bdev_delay_create(&opts, error), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "p999_read_latency 9"));
	opts = delay_opts("d0", "n0", 10, 10);
	CU_ASSERT_EQUAL(bdev_delay_create(&opts, error), 0);
	opts.name = "d1";
	CU_ASSERT_EQUAL(bdev_delay_create(&opts, error), -EPERM);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "claimed by d0"));
	CU_ASSERT_EQUAL(fixture_delete(bdev_delay_delete, "d0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

static struct request *submit(struct user *u, enum bdev_io_type type, struct iovec *iov)
{
	struct request *r = request_new(u);

	bdev_io_set_rw(r->io, type, iov, iov != NULL, 0, iov != NULL);
	request_submit(r);
	return r;
}

static struct iovec one_block = {buf, 512};

static bool is_with_module(void *arg)
{
	return ((struct request *)arg)->io->state == BDEV_IO_MODULE;
}

static void test_reset_and_abort_reach_io_that_is_held_back(void)
{
	struct user u;

	make_null("n0", 512, 100);
	struct bdev_delay_opts opts = delay_opts("d0", "n0", 1000000000, 1000000000);
	CU_ASSERT_EQUAL_FATAL(bdev_delay_create(&opts, error), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "d0", true, fixture_thread(0)), 0);
	struct request *a = submit(&u, BDEV_IO_READ, &one_block), *b = submit(&u, BDEV_IO_WRITE, &one_block);
	CU_ASSERT_TRUE(fixture_poll(is_with_module, b));
	struct request *abort = request_new(&u);
	abort->io->type = BDEV_IO_ABORT;
	abort->io->abort.target = a->io;
	CU_ASSERT_EQUAL(request_run(abort), 0);
	CU_ASSERT_EQUAL(abort->cdw0, 0);
	request_free(abort);
	CU_ASSERT_EQUAL(request_finish(a), NVME_SC_ABORT_REQ);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_RESET, NULL, 0, 0), 0);
	CU_ASSERT_EQUAL(request_finish(b), NVME_SC_ABORT_REQ);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_delay_delete, "d0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

static bool is_removed(void *arg)
{
	return ((const struct user *)arg)->removes > 0;
}

static void set_base_gone(void *flag, int rc)
{
	set_done(flag);
}

static void test_stack_goes_when_its_base_goes(void)
{
	struct user u;

	make_null("n0", 512, 100);
	struct bdev_delay_opts opts = delay_opts("d0", "n0", 1, 1), opts2 = delay_opts("d1", "d0", 1, 1);
	CU_ASSERT_EQUAL_FATAL(bdev_delay_create(&opts, error), 0);
	CU_ASSERT_EQUAL_FATAL(bdev_delay_create(&opts2, error), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "d1", true, fixture_thread(0)), 0);
	u.close_on_remove = true;
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, buf, 0, 1), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
	CU_ASSERT_EQUAL(u.removes, 1);
	CU_ASSERT_PTR_NULL(bdev_find("d0"));
	CU_ASSERT_PTR_NULL(bdev_find("d1"));
	CU_ASSERT_EQUAL(fixture_delete(bdev_delay_delete, "d0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_delay_delete, "d1"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_delay_delete, "d1"), -ENODEV);
	make_null("n0", 512, 100);
	CU_ASSERT_PTR_NULL(bdev_find("d0"));
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

/* A stack is asked for from the top, comes when its base does, goes with it, and comes back as it was. */
static void test_a_stack_waits_for_its_base(void)
{
	struct bdev_delay_opts opts = delay_opts("d0", "n0", 1, 1), opts2 = delay_opts("d1", "d0", 1, 1), now;
	uint8_t uuid[16];

	CU_ASSERT_EQUAL_FATAL(bdev_delay_create(&opts2, error), 0);
	CU_ASSERT_EQUAL_FATAL(bdev_delay_create(&opts, error), 0);
	CU_ASSERT_EQUAL(bdev_delay_create(&opts, error), -EEXIST);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "waits for its base 'n0'"));
	CU_ASSERT_PTR_NULL(bdev_find("d0"));
	CU_ASSERT_EQUAL(bdev_delay_update_latency("d0", BDEV_DELAY_AVG_READ, 7, error), 0);
	make_null("n0", 512, 100);
	CU_ASSERT_PTR_NOT_NULL_FATAL(bdev_find("d1"));
	CU_ASSERT_TRUE(bdev_delay_get(bdev_find("d0"), &now));
	CU_ASSERT_EQUAL(now.latency_us[BDEV_DELAY_P99_READ], 7);
	CU_ASSERT_EQUAL(bdev_delay_update_latency("d0", BDEV_DELAY_AVG_WRITE, 9, error), 0);
	memcpy(uuid, bdev_uuid(bdev_find("d1")), sizeof(uuid));
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
	CU_ASSERT_PTR_NULL(bdev_find("d0"));
	make_null("n0", 512, 50);
	CU_ASSERT_PTR_NOT_NULL_FATAL(bdev_find("d1"));
	CU_ASSERT_EQUAL(bdev_num_blocks(bdev_find("d1")), 50);
	CU_ASSERT_EQUAL(memcmp(uuid, bdev_uuid(bdev_find("d1")), sizeof(uuid)), 0);
	CU_ASSERT_TRUE(bdev_delay_get(bdev_find("d0"), &now));
	CU_ASSERT_EQUAL(now.latency_us[BDEV_DELAY_AVG_WRITE], 9);
	CU_ASSERT_EQUAL(fixture_delete(bdev_delay_delete, "d1"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_delay_delete, "d0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

static void test_one_of_two_gets_the_base_that_both_wait_for(void)
{
	struct bdev_delay_opts opts = delay_opts("d0", "n0", 1, 1), opts2 = delay_opts("d1", "n0", 1, 1);

	CU_ASSERT_EQUAL_FATAL(bdev_delay_create(&opts, error), 0);
	CU_ASSERT_EQUAL_FATAL(bdev_delay_create(&opts2, error), 0);
	make_null("n0", 512, 100);
	CU_ASSERT_PTR_NOT_NULL(bdev_find("d0"));
	CU_ASSERT_PTR_NULL(bdev_find("d1"));
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_delay_delete, "d0"), 0);
	make_null("n0", 512, 100);
	CU_ASSERT_PTR_NULL(bdev_find("d0"));
	CU_ASSERT_PTR_NOT_NULL(bdev_find("d1"));
	CU_ASSERT_EQUAL(fixture_delete(bdev_delay_delete, "d1"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

/* The base goes, the bdev with it, but a user holds on to the bdev: who deletes it meanwhile does not want it back, and
 * is told when it has gone. */
static void test_what_is_deleted_while_it_goes_does_not_come_back(void)
{
	atomic_bool base_gone = false, gone = false;
	struct user u;

	make_null("n0", 512, 100);
	struct bdev_delay_opts opts = delay_opts("d0", "n0", 1, 1);
	CU_ASSERT_EQUAL_FATAL(bdev_delay_create(&opts, error), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "d0", true, fixture_thread(0)), 0);
	bdev_null_delete("n0", set_base_gone, &base_gone);
	CU_ASSERT_TRUE(fixture_poll(is_removed, &u));
	bdev_delay_delete("d0", set_base_gone, &gone);
	CU_ASSERT_FALSE(atomic_load(&gone));
	CU_ASSERT_EQUAL(fixture_delete(bdev_delay_delete, "d0"), -EBUSY);
	user_close(&u);
	CU_ASSERT_TRUE(fixture_wait(&gone));
	CU_ASSERT_TRUE(fixture_wait(&base_gone));
	make_null("n0", 512, 100);
	CU_ASSERT_PTR_NULL(bdev_find("d0"));
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

static void test_delay_follows_a_resize_of_its_base(void)
{
	make_null("n0", 512, 100);
	struct bdev_delay_opts opts = delay_opts("d0", "n0", 1, 1);
	CU_ASSERT_EQUAL_FATAL(bdev_delay_create(&opts, error), 0);
	CU_ASSERT_EQUAL(bdev_null_resize("n0", 2, error), 0);
	CU_ASSERT_EQUAL(bdev_num_blocks(bdev_find("d0")), 4096);
	CU_ASSERT_EQUAL(fixture_delete(bdev_delay_delete, "d0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

/* More at once than a channel has children for its base. */
static void test_a_crowd_waits_for_children(void)
{
	struct request *r[300];
	struct user u;

	make_null("n0", 512, 100);
	struct bdev_delay_opts opts = delay_opts("d0", "n0", 100, 100), opts2 = delay_opts("d1", "d0", 200, 200);
	CU_ASSERT_EQUAL_FATAL(bdev_delay_create(&opts, error), 0);
	CU_ASSERT_EQUAL_FATAL(bdev_delay_create(&opts2, error), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "d1", true, fixture_thread(0)), 0);
	for (unsigned i = 0; i < 300; i++) {
		r[i] = submit(&u, BDEV_IO_READ, &one_block);
	}
	for (unsigned i = 0; i < 300; i++) {
		CU_ASSERT_EQUAL(request_finish(r[i]), 0);
	}
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_delay_delete, "d1"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_delay_delete, "d0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_null_delete, "n0"), 0);
}

static const struct unit_test tests[] = {
	UNIT(test_delay_holds_io_back_and_passes_data_through),
	UNIT(test_delay_holds_one_in_a_thousand_longer),
	UNIT(test_delay_says_what_is_wrong),
	UNIT(test_reset_and_abort_reach_io_that_is_held_back),
	UNIT(test_stack_goes_when_its_base_goes),
	UNIT(test_a_stack_waits_for_its_base),
	UNIT(test_one_of_two_gets_the_base_that_both_wait_for),
	UNIT(test_what_is_deleted_while_it_goes_does_not_come_back),
	UNIT(test_delay_follows_a_resize_of_its_base),
	UNIT(test_a_crowd_waits_for_children),
	UNIT_END,
};
UNIT_MAIN("bdev_delay", tests, fixture_start, fixture_stop)
