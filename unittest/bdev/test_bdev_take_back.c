/* SPDX-License-Identifier: BSD-3-Clause */
/* bdev_io_take_back() at each place where an I/O can wait: nothing of it reaches the device afterwards. */
#include "bdev/internal.h"
#include "bdev_modules/delay/delay.h"
#include "bdev_modules/error/error.h"
#include "bdev_modules/passthru/passthru.h"
#include "unittest/bdev/fixture.h"

#define BLOCK  512
#define BLOCKS 64

static uint8_t data[BLOCKS * BLOCK] __attribute__((aligned(4096)));
static struct iovec one = {data, BLOCK}, all = {data, sizeof(data)};
static char error[BDEV_ERROR_MAX];

static struct request *submit_to(struct user *u, enum bdev_io_type type, struct iovec *iov, uint64_t first)
{
	struct request *r = request_new(u);

	bdev_io_set_rw(r->io, type, iov, 1, first, iov->iov_len / BLOCK);
	request_submit(r);
	return r;
}

static void take_back_here(void *arg)
{
	bdev_io_take_back(((struct request *)arg)->io);
}

static void take_back(struct request *r)
{
	thread_call(r->user->thread, take_back_here, r);
}

/* Takes it back, and finds that it has ended by that alone. */
static void expect_taken(struct request *r)
{
	take_back(r);
	CU_ASSERT_TRUE(atomic_load(&r->done));
	CU_ASSERT_EQUAL(request_finish(r), NVME_SC_ABORT_REQ);
}

struct probe {
	struct request *r;
	uint8_t state;
};

static void read_state(void *arg)
{
	struct probe *p = arg;

	p->state = p->r->io->state;
}

static uint8_t state_of(struct request *r)
{
	struct probe p = {.r = r};

	thread_call(r->user->thread, read_state, &p);
	return p.state;
}

static struct testdev *make(struct user *u, unsigned n, uint32_t more_types)
{
	struct testdev *t = testdev_new("t0", BLOCK, BLOCKS);

	t->bdev.io_types |= more_types;
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	for (unsigned i = 0; i < n; i++) {
		CU_ASSERT_EQUAL_FATAL(user_open(&u[i], "t0", true, fixture_thread(i)), 0);
	}
	return t;
}

static void unmake(struct testdev *t, struct user *u, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		user_close(&u[i]);
	}
	CU_ASSERT_TRUE(testdev_delete(t));
}

static void test_io_that_waits_for_a_rate_limit(void)
{
	struct user u;
	struct testdev *t = make(&u, 1, 0);

	CU_ASSERT_EQUAL(bdev_set_qos_limits(&t->bdev, &(struct bdev_qos_limits){.rw_ios_per_sec = 1}), 0);
	struct request *first = submit_to(&u, BDEV_IO_WRITE, &one, 0), *second = submit_to(&u, BDEV_IO_WRITE, &one, 1),
		       *third = submit_to(&u, BDEV_IO_READ, &one, 1);
	while (state_of(third) != BDEV_IO_WAIT_QOS) {
	}
	expect_taken(third);
	if (state_of(second) == BDEV_IO_WAIT_QOS) {
		expect_taken(second);
	} else {
		CU_ASSERT_EQUAL(request_finish(second), 0);
	}
	take_back(first);
	uint16_t status = request_finish(first);
	CU_ASSERT_TRUE(status == 0 || status == NVME_SC_ABORT_REQ);
	unsigned submitted = atomic_load(&t->submitted);
	CU_ASSERT_EQUAL(bdev_set_qos_limits(&t->bdev, &(struct bdev_qos_limits){0}), 0);
	CU_ASSERT_EQUAL(atomic_load(&t->submitted), submitted); /* nobody waits any more */
	unmake(t, &u, 1);
}

static void test_io_for_which_the_module_has_no_room(void)
{
	struct user u;
	struct testdev *t = make(&u, 1, 0);

	t->hold = true;
	t->slots = 1;
	struct request *first = submit_to(&u, BDEV_IO_WRITE, &one, 0), *second = submit_to(&u, BDEV_IO_WRITE, &one, 1);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 1));
	expect_taken(second);
	take_back(first); /* it is with the device */
	CU_ASSERT_FALSE(atomic_load(&first->done));
	testdev_release(t, &u, 0);
	CU_ASSERT_EQUAL(request_finish(first), 0);
	unmake(t, &u, 1);
}

struct slow_change {
	struct bdev_channel *ch;
	uint32_t set, clear;
};

static void change_slow_here(void *arg)
{
	struct slow_change *c = arg;

	c->ch->slow = (c->ch->slow | c->set) & ~c->clear;
}

static void test_io_that_waits_for_a_reset(void)
{
	struct user u;
	struct testdev *t = make(&u, 1, 0);

	thread_call(u.thread, change_slow_here, &(struct slow_change){u.ch, SLOW_FROZEN, 0});
	struct request *r = submit_to(&u, BDEV_IO_WRITE, &one, 0);
	expect_taken(r);
	thread_call(u.thread, change_slow_here, &(struct slow_change){u.ch, 0, SLOW_FROZEN});
	CU_ASSERT_EQUAL(atomic_load(&t->submitted), 0);
	unmake(t, &u, 1);
}

static struct request *submit_caw(struct user *u, struct iovec *zero)
{
	struct request *r = request_new(u);

	bdev_io_set_rw(r->io, BDEV_IO_COMPARE_AND_WRITE, &one, 1, 4, 1);
	r->io->compare.iovs = zero;
	r->io->compare.iovcnt = 1;
	request_submit(r);
	return r;
}

static void test_io_that_waits_for_a_range_lock(void)
{
	struct user u[2];
	struct testdev *t = make(u, 2, 0);
	uint8_t none[BLOCK] = {0};
	struct iovec zero = {none, BLOCK};

	t->hold = true; /* keeps the compare's read */
	struct request *caw = submit_caw(&u[0], &zero);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 1));
	struct request *w = submit_to(&u[1], BDEV_IO_WRITE, &one, 4);
	while (state_of(w) != BDEV_IO_WAIT_LOCK) {
	}
	struct request *second = submit_caw(&u[1], &zero); /* behind the first, in the control thread's queue */
	expect_taken(w);
	take_back(second);
	take_back(caw); /* its read is with the device, its write is not */
	t->hold = false;
	testdev_release(t, &u[0], 0);
	CU_ASSERT_EQUAL(request_finish(caw), NVME_SC_ABORT_REQ);
	CU_ASSERT_EQUAL(request_finish(second), NVME_SC_ABORT_REQ);
	CU_ASSERT_EQUAL(atomic_load(&t->submitted), 1);
	unmake(t, u, 2);
}

static void test_split_io_of_which_a_part_has_begun(void)
{
	struct testdev *t = testdev_new("t0", BLOCK, BLOCKS);
	struct user u;

	t->bdev.max_rw_blocks = 1; /* 64 children, of which 32 may be with the module, and it takes 3 */
	t->hold = true;
	t->slots = 3;
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "t0", true, fixture_thread(0)), 0);
	struct request *r = submit_to(&u, BDEV_IO_WRITE, &all, 0);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 3));
	take_back(r);
	CU_ASSERT_FALSE(atomic_load(&r->done));
	unsigned submitted = atomic_load(&t->submitted);
	testdev_release(t, &u, 0);
	CU_ASSERT_EQUAL(request_finish(r), NVME_SC_ABORT_REQ);
	CU_ASSERT_EQUAL(atomic_load(&t->submitted), submitted);
	unmake(t, &u, 1);
}

static void test_io_below_a_stack_of_bdevs(void)
{
	struct user u, below;
	struct testdev *t = testdev_new("t0", BLOCK, BLOCKS);
	const struct bdev_delay_opts slow = {.name = "d0", .base_bdev_name = "p0"};

	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&below, "t0", false, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL_FATAL(bdev_passthru_create("p0", "t0", NULL, error), 0);
	CU_ASSERT_EQUAL_FATAL(bdev_delay_create(&slow, error), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "d0", true, fixture_thread(0)), 0);
	t->hold = true;
	t->slots = 1;
	struct request *first = submit_to(&u, BDEV_IO_WRITE, &one, 0), *second = submit_to(&u, BDEV_IO_WRITE, &one, 1);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 1));
	expect_taken(second);
	take_back(first);
	CU_ASSERT_FALSE(atomic_load(&first->done));
	testdev_release(t, &below, 0);
	CU_ASSERT_EQUAL(request_finish(first), 0);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_delay_delete, "d0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "p0"), 0);
	user_close(&below);
	CU_ASSERT_TRUE(testdev_delete(t));
}

/* More I/Os than the module has child I/Os wait in its pool. */
static void test_io_that_waits_for_a_child_io(void)
{
	enum { MANY = 140 };
	struct user u, below;
	struct testdev *t = testdev_new("t0", BLOCK, BLOCKS);
	struct request *r[MANY];

	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&below, "t0", false, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL_FATAL(bdev_passthru_create("p0", "t0", NULL, error), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "p0", true, fixture_thread(0)), 0);
	t->hold = true;
	for (unsigned i = 0; i < MANY; i++) {
		r[i] = submit_to(&u, BDEV_IO_WRITE, &one, i % BLOCKS);
	}
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 128));
	expect_taken(r[MANY - 1]);
	for (unsigned i = 0; i < MANY - 1; i++) {
		take_back(r[i]);
	}
	t->hold = false;
	testdev_release(t, &below, 0);
	for (unsigned i = 0; i < MANY - 1; i++) {
		CU_ASSERT_EQUAL(request_finish(r[i]), i < 128 ? 0 : NVME_SC_ABORT_REQ);
	}
	CU_ASSERT_EQUAL(atomic_load(&t->submitted), 128);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "p0"), 0);
	user_close(&below);
	CU_ASSERT_TRUE(testdev_delete(t));
}

static void test_pending_io_of_an_error_bdev(void)
{
	struct user u;
	char name[256];
	const struct bdev_error_injection in = {.type = BDEV_IO_WRITE, .kind = BDEV_ERROR_PENDING, .num = 1};

	make_malloc("m0", BLOCK, BLOCKS);
	CU_ASSERT_EQUAL_FATAL(bdev_error_create("m0", NULL, name, error), 0);
	CU_ASSERT_EQUAL(bdev_error_inject(name, &in, error), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, name, true, fixture_thread(0)), 0);
	expect_taken(submit_to(&u, BDEV_IO_WRITE, &one, 0));
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_error_delete, name), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
}

/* The byte is changed in the writer's own memory until the write has ended. */
static void test_write_that_was_to_be_corrupted_gets_its_byte_back(void)
{
	enum { MANY = 128 };
	const struct bdev_error_injection in = {.type = BDEV_IO_WRITE,
						.kind = BDEV_ERROR_CORRUPT_DATA,
						.num = 3,
						.corrupt_offset = 7,
						.corrupt_value = 0xff};
	struct testdev *t = testdev_new("t0", BLOCK, BLOCKS);
	struct request *r[MANY], *wait[3];
	static uint8_t mine[3][BLOCK];
	struct iovec iov[3];
	struct user u, below;

	t->hold = true;
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&below, "t0", false, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL_FATAL(bdev_error_create("t0", NULL, NULL, error), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "EE_t0", true, fixture_thread(0)), 0);
	for (unsigned i = 0; i < MANY; i++) {
		r[i] = submit_to(&u, BDEV_IO_WRITE, &one, i % BLOCKS);
	}
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, MANY));
	CU_ASSERT_EQUAL(bdev_error_inject("EE_t0", &in, error), 0);
	for (unsigned i = 0; i < 3; i++) {
		mine[i][7] = 0;
		iov[i] = (struct iovec){mine[i], BLOCK};
		wait[i] = submit_to(&u, BDEV_IO_WRITE, &iov[i], 1);
	}
	expect_taken(wait[0]);
	struct request *abort = request_new(&u);
	abort->io->type = BDEV_IO_ABORT;
	abort->io->abort.target = wait[1]->io;
	CU_ASSERT_EQUAL(request_run(abort), 0);
	request_free(abort);
	CU_ASSERT_EQUAL(request_finish(wait[1]), NVME_SC_ABORT_REQ);
	struct request *reset = request_new(&u);
	reset->io->type = BDEV_IO_RESET;
	request_submit(reset);
	CU_ASSERT_EQUAL(request_finish(wait[2]), NVME_SC_ABORT_REQ);
	for (unsigned i = 0; i < 3; i++) {
		CU_ASSERT_EQUAL(mine[i][7], 0);
	}
	for (unsigned i = 0; i < MANY; i++) {
		request_finish(r[i]);
	}
	CU_ASSERT_EQUAL(request_finish(reset), 0);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_error_delete, "EE_t0"), 0);
	user_close(&below);
	CU_ASSERT_TRUE(testdev_delete(t));
}

static void test_io_that_has_ended_is_left_alone(void)
{
	struct user u;
	struct testdev *t = make(&u, 1, 0);
	struct request *r = submit_to(&u, BDEV_IO_WRITE, &one, 0);

	CU_ASSERT_TRUE(request_wait(r));
	take_back(r);
	CU_ASSERT_EQUAL(request_finish(r), 0);
	unmake(t, &u, 1);
}

static const struct unit_test tests[] = {
	UNIT(test_io_that_waits_for_a_rate_limit),
	UNIT(test_io_for_which_the_module_has_no_room),
	UNIT(test_io_that_waits_for_a_reset),
	UNIT(test_io_that_waits_for_a_range_lock),
	UNIT(test_split_io_of_which_a_part_has_begun),
	UNIT(test_io_below_a_stack_of_bdevs),
	UNIT(test_io_that_waits_for_a_child_io),
	UNIT(test_pending_io_of_an_error_bdev),
	UNIT(test_write_that_was_to_be_corrupted_gets_its_byte_back),
	UNIT(test_io_that_has_ended_is_left_alone),
	UNIT_END,
};
UNIT_MAIN("bdev_take_back", tests, fixture_start, fixture_stop)
