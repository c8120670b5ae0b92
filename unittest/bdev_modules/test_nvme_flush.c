/* SPDX-License-Identifier: BSD-3-Clause */
/* A Flush of a namespace that several controllers reach: the write cache is the controller's. */
#include "bdev_modules/nvme/internal.h"
#include "unittest/bdev_modules/fabric.h"
#include "unittest/bdev_modules/nvme_fixture.h"

static struct fabric_target *const t0 = &fabric_targets[0], *const t1 = &fabric_targets[1],
				   *const t2 = &fabric_targets[2];

/* A path through each target; the bits of caches say which of them have a cache. */
static void begin_paths(unsigned caches, struct user *u)
{
	struct bdev_nvme_options o;

	fabric_init();
	bdev_nvme_default_options(&o);
	o.keep_alive_timeout_ms = 0;
	CU_ASSERT_EQUAL(bdev_nvme_set_options(&o, last_error), 0);
	for (unsigned i = 0; i < FABRIC_TARGETS; i++) {
		struct bdev_nvme_attach a;

		bdev_nvme_attach_default(&a);
		a.name = "Nvme0";
		a.trid = (struct nvme_trid){.trtype = FABRIC, .subnqn = "nqn.2026-11.io.varve:shared"};
		a.trid.traddr[0] = (char)('0' + i);
		a.num_io_queues = 8;
		a.ctrlr_loss_timeout_sec = -1;
		a.reconnect_delay_sec = 1;
		fabric_targets[i].cache = (caches >> i & 1) != 0;
		CU_ASSERT_EQUAL_FATAL(attach_with(&a), 0);
	}
	CU_ASSERT_EQUAL_FATAL(user_open(u, "Nvme0n1", true, fixture_thread(0)), 0);
	wait_usable(FABRIC_TARGETS);
}

static void end_paths(struct user *u)
{
	user_close(u);
	while ((nvme = bdev_nvme_next(NULL)) != NULL) {
		CU_ASSERT_EQUAL(drive_detach(), 0);
	}
	CU_ASSERT(thread_control_wait(all_detached, NULL, WAIT_US));
}

static void set_broken(struct fabric_target *t, bool broken)
{
	fabric_lock();
	t->broken = t->refuses = broken;
	fabric_unlock();
}

static void test_a_flush_reaches_each_controller_that_has_a_cache(void)
{
	struct user u;

	begin_paths(1 << 1 | 1 << 2, &u);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, buffer, 5, 1), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_FLUSH, NULL, 0, FABRIC_BLOCKS), 0);
	CU_ASSERT_EQUAL(t0->flushes, 1); /* whose path I/O takes */
	CU_ASSERT_EQUAL(t1->flushes, 1);
	CU_ASSERT_EQUAL(t2->flushes, 1);
	end_paths(&u);
}

static void test_a_flush_does_not_go_where_no_cache_is(void)
{
	struct user u;

	begin_paths(1 << 0, &u);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_FLUSH, NULL, 0, FABRIC_BLOCKS), 0);
	CU_ASSERT_EQUAL(t0->flushes, 1);
	CU_ASSERT_EQUAL(t1->flushes, 0);
	CU_ASSERT_EQUAL(t2->flushes, 0);
	end_paths(&u);
}

static bool is_asked(void *target)
{
	bool asked;

	fabric_lock();
	asked = ((struct fabric_target *)target)->flushes != 0;
	fabric_unlock();
	return asked;
}

/* The second of three is lost while it flushes. */
static void test_a_flush_goes_on_without_a_controller_that_is_lost(void)
{
	struct user u;

	begin_paths(7, &u);
	fabric_lock();
	t2->keeps = true;
	fabric_unlock();
	struct request *r = request_new(&u);
	r->io->type = BDEV_IO_FLUSH;
	r->io->num_blocks = FABRIC_BLOCKS;
	request_submit(r);
	CU_ASSERT_FATAL(fixture_poll(is_asked, t2));
	set_broken(t2, true);
	CU_ASSERT_EQUAL(request_finish(r), 0);
	CU_ASSERT(t0->flushes >= 1);
	CU_ASSERT_EQUAL(t1->flushes, 1);
	fabric_lock();
	t2->keeps = false;
	fabric_unlock();
	set_broken(t2, false);
	wait_usable(FABRIC_TARGETS);
	end_paths(&u);
}

struct probe {
	struct request *r;
	bool waits; /* for room at its second controller */
};

static void look_here(void *arg)
{
	struct probe *p = arg;
	const struct bdev_nvme_io *n = bdev_io_ctx(p->r->io);

	p->waits = n->place == BDEV_NVME_IO_WAITING && n->flushed != 0;
}

static bool waits_for_its_second(void *arg)
{
	struct probe *p = arg;

	thread_call(p->r->user->thread, look_here, p);
	return p->waits;
}

/* More than the queue of the second controller takes. */
static void test_a_flush_that_one_controller_has_carried_out_has_begun(void)
{
	enum { MANY = 200 };
	struct request *r[MANY];
	struct user u;

	begin_paths(3, &u);
	fabric_lock();
	t1->keeps = true;
	fabric_unlock();
	for (unsigned i = 0; i < MANY; i++) {
		r[i] = request_new(&u);
		r[i]->io->type = BDEV_IO_FLUSH;
		r[i]->io->num_blocks = FABRIC_BLOCKS;
		request_submit(r[i]);
	}
	struct probe last = {.r = r[MANY - 1]};
	CU_ASSERT_FATAL(fixture_poll(waits_for_its_second, &last));
	request_take_back(last.r);
	CU_ASSERT(request_wait(last.r));
	CU_ASSERT_FALSE(bdev_io_was_untouched(last.r->io));
	CU_ASSERT_EQUAL(request_finish(last.r), NVME_ST(GENERIC, ABORT_REQ));
	set_broken(t1, true);
	for (unsigned i = 0; i < MANY - 1; i++) {
		CU_ASSERT_EQUAL(request_finish(r[i]), 0);
	}
	fabric_lock();
	t1->keeps = false;
	fabric_unlock();
	set_broken(t1, false);
	wait_usable(FABRIC_TARGETS);
	end_paths(&u);
}

static int setup(void)
{
	int rc = drive_setup();

	fabric_register();
	return rc;
}

static const struct unit_test tests[] = {
	UNIT(test_a_flush_reaches_each_controller_that_has_a_cache),
	UNIT(test_a_flush_does_not_go_where_no_cache_is),
	UNIT(test_a_flush_goes_on_without_a_controller_that_is_lost),
	UNIT(test_a_flush_that_one_controller_has_carried_out_has_begun),
	UNIT_END,
};
UNIT_MAIN("bdev_nvme_flush", tests, setup, drive_teardown)
