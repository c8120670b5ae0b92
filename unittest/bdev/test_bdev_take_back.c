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

/* Takes it back, and finds that it has ended by that alone. */
static void expect_taken(struct request *r)
{
	request_take_back(r);
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

	CU_ASSERT_EQUAL(bdev_set_qos_limits(&t->bdev, &(struct rate_limits){.rw_ios_per_sec = 1}), 0);
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
	request_take_back(first);
	uint16_t status = request_finish(first);
	CU_ASSERT_TRUE(status == 0 || status == NVME_SC_ABORT_REQ);
	unsigned submitted = atomic_load(&t->submitted);
	CU_ASSERT_EQUAL(bdev_set_qos_limits(&t->bdev, &(struct rate_limits){0}), 0);
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
	request_take_back(first); /* it is with the device */
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
	request_take_back(second);
	request_take_back(caw); /* its read is with the device, its write is not */
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
	request_take_back(r);
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
	request_take_back(first);
	CU_ASSERT_FALSE(atomic_load(&first->done));
	testdev_release(t, &below, 0);
	CU_ASSERT_EQUAL(request_finish(first), 0);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_delay_delete, "d0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "p0"), 0);
	user_close(&below);
	CU_ASSERT_TRUE(testdev_delete(t));
}

/* A user of a passthru bdev, whose base holds what it has; n writes, of which 128 get a child I/O. */
static struct testdev *write_through_passthru(struct user *u, struct user *below, struct request *r[], unsigned n)
{
	struct testdev *t = testdev_new("t0", BLOCK, BLOCKS);

	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(below, "t0", false, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL_FATAL(bdev_passthru_create("p0", "t0", NULL, error), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(u, "p0", true, fixture_thread(0)), 0);
	t->hold = true;
	for (unsigned i = 0; i < n; i++) {
		r[i] = submit_to(u, BDEV_IO_WRITE, &one, i % BLOCKS);
	}
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 128));
	return t;
}

static void passthru_end(struct testdev *t, struct user *u, struct user *below)
{
	user_close(u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "p0"), 0);
	user_close(below);
	CU_ASSERT_TRUE(testdev_delete(t));
}

/* More I/Os than the module has child I/Os wait in its pool. */
static void test_io_that_waits_for_a_child_io(void)
{
	enum { MANY = 140 };
	struct user u, below;
	struct request *r[MANY];
	struct testdev *t = write_through_passthru(&u, &below, r, MANY);

	expect_taken(r[MANY - 1]);
	for (unsigned i = 0; i < MANY - 1; i++) {
		request_take_back(r[i]);
	}
	t->hold = false;
	testdev_release(t, &below, 0);
	for (unsigned i = 0; i < MANY - 1; i++) {
		CU_ASSERT_EQUAL(request_finish(r[i]), i < 128 ? 0 : NVME_SC_ABORT_REQ);
	}
	CU_ASSERT_EQUAL(atomic_load(&t->submitted), 128);
	passthru_end(t, &u, &below);
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
	request_take_back(r);
	CU_ASSERT_EQUAL(request_finish(r), 0);
	unmake(t, &u, 1);
}

/* ---- All I/Os of a user, and which of them nothing has been carried out of ---- */

struct user_call {
	const struct user *user;
	bool begun_too;
};

static void take_back_user_here(void *arg)
{
	const struct user_call *call = arg;

	bdev_channel_take_back(call->user->ch, call->user->desc, call->begun_too);
}

static void take_back_user(const struct user *u, bool begun_too)
{
	thread_call(u->thread, take_back_user_here, &(struct user_call){u, begun_too});
}

static void expect_end(struct request *r, uint16_t status, bool untouched)
{
	CU_ASSERT_TRUE(request_wait(r));
	CU_ASSERT_EQUAL(bdev_io_was_untouched(r->io), untouched);
	CU_ASSERT_EQUAL(request_finish(r), status);
}

struct split_probe {
	const struct request *r;
	bool writes;
};

static void read_split(void *arg)
{
	struct split_probe *p = arg;

	p->writes = bdev_split_must_end(p->r->io);
}

static bool is_writing(void *arg)
{
	struct split_probe *p = arg;

	thread_call(p->r->user->thread, read_split, p);
	return p->writes;
}

static void test_a_user_s_io_that_waits_is_untouched_and_that_of_others_stays(void)
{
	struct user u[2];
	struct testdev *t = make(u, 1, 0);

	CU_ASSERT_EQUAL_FATAL(user_open(&u[1], "t0", true, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL(bdev_set_qos_limits(&t->bdev, &(struct rate_limits){.w_bytes_per_sec = BLOCK}), 0);
	struct request *big = submit_to(&u[0], BDEV_IO_WRITE, &all, 0);
	struct request *mine = submit_to(&u[0], BDEV_IO_WRITE, &one, 0),
		       *also = submit_to(&u[0], BDEV_IO_WRITE, &one, 1),
		       *theirs = submit_to(&u[1], BDEV_IO_WRITE, &one, 2);
	while (state_of(theirs) != BDEV_IO_WAIT_QOS) {
	}
	CU_ASSERT_EQUAL(request_finish(big), 0);
	take_back_user(&u[0], false);
	expect_end(mine, NVME_SC_ABORT_REQ, true);
	expect_end(also, NVME_SC_ABORT_REQ, true);
	CU_ASSERT_FALSE(atomic_load(&theirs->done));
	CU_ASSERT_EQUAL(bdev_set_qos_limits(&t->bdev, &(struct rate_limits){0}), 0);
	expect_end(theirs, 0, false);
	CU_ASSERT_EQUAL(atomic_load(&t->submitted), 2);
	user_close(&u[1]);
	unmake(t, u, 1);
}

static void try_again_here(void *arg)
{
	struct bdev_channel *ch = arg;

	bdev_enter(ch->thread);
	bdev_nomem_retry(ch, 1);
	bdev_leave(ch->thread);
}

/* By each way into a module, the fast one too. */
static void test_io_that_a_module_has_had_is_not_untouched(void)
{
	struct user u;
	struct testdev *t = make(&u, 1, 0);

	t->hold = true;
	t->slots = 1;
	struct request *with = submit_to(&u, BDEV_IO_WRITE, &one, 0), *refused = submit_to(&u, BDEV_IO_WRITE, &one, 1);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 1));
	while (state_of(refused) != BDEV_IO_WAIT_NOMEM) {
	}
	take_back_user(&u, false);
	expect_end(refused, NVME_SC_ABORT_REQ, true);
	testdev_release(t, &u, NVME_SC_ABORT_REQ); /* perhaps after it was carried out */
	expect_end(with, NVME_SC_ABORT_REQ, false);

	struct request *begun = submit_to(&u, BDEV_IO_WRITE, &one, 0), *blocker;
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 1));
	t->nomem_type = BDEV_IO_WRITE;
	testdev_give_back(t, &u); /* the device began it, and has no room for the rest */
	thread_call(u.thread, try_again_here, u.ch);
	take_back_user(&u, false);
	CU_ASSERT_EQUAL(state_of(begun), BDEV_IO_WAIT_NOMEM);
	take_back_user(&u, true);
	expect_end(begun, NVME_SC_ABORT_REQ, false);
	t->nomem_type = 0;

	/* it waits for a rate limit first, and is refused then: by the way of the stages, and that of those who wait */
	blocker = submit_to(&u, BDEV_IO_WRITE, &one, 0);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 1));
	thread_call(u.thread, change_slow_here, &(struct slow_change){u.ch, SLOW_LOCKED, 0});
	refused = submit_to(&u, BDEV_IO_WRITE, &one, 1);
	while (state_of(refused) != BDEV_IO_WAIT_NOMEM) {
	}
	t->slots = 2;
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 2)); /* tried again */
	take_back_user(&u, true);
	testdev_release(t, &u, NVME_SC_ABORT_REQ);
	expect_end(blocker, NVME_SC_ABORT_REQ, false);
	expect_end(refused, NVME_SC_ABORT_REQ, false);
	thread_call(u.thread, change_slow_here, &(struct slow_change){u.ch, 0, SLOW_LOCKED});
	unmake(t, &u, 1);
}

static void test_io_that_is_used_again_forgets_that_it_was_untouched(void)
{
	struct user u;
	struct testdev *t = make(&u, 1, 0);

	thread_call(u.thread, change_slow_here, &(struct slow_change){u.ch, SLOW_FROZEN, 0});
	struct request *r = submit_to(&u, BDEV_IO_WRITE, &one, 0);
	while (state_of(r) != BDEV_IO_WAIT_FREEZE) {
	}
	take_back_user(&u, false);
	CU_ASSERT_TRUE(request_wait(r));
	CU_ASSERT_TRUE(bdev_io_was_untouched(r->io));
	thread_call(u.thread, change_slow_here, &(struct slow_change){u.ch, 0, SLOW_FROZEN});
	t->fail_status = NVME_SC_ABORT_REQ;
	atomic_store(&r->done, false);
	request_submit(r);
	expect_end(r, NVME_SC_ABORT_REQ, false);
	unmake(t, &u, 1);
}

static void test_split_io_of_which_a_part_has_begun_goes_on(void)
{
	struct testdev *t = testdev_new("t0", BLOCK, BLOCKS);
	struct user u;

	t->bdev.max_rw_blocks = 1;
	t->hold = true;
	t->slots = 3;
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "t0", true, fixture_thread(0)), 0);
	struct request *r = submit_to(&u, BDEV_IO_WRITE, &all, 0);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 3));
	take_back_user(&u, false);
	t->hold = false;
	t->slots = 0;
	testdev_release(t, &u, 0);
	expect_end(r, 0, false);
	CU_ASSERT_EQUAL(memcmp(t->memory, data, sizeof(data)), 0);

	t->hold = true;
	t->slots = 3;
	r = submit_to(&u, BDEV_IO_WRITE, &all, 0);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 3));
	take_back_user(&u, true);
	testdev_release(t, &u, 0);
	expect_end(r, NVME_SC_ABORT_REQ, false);
	unmake(t, &u, 1);
}

/* Two blocks, of which the device takes one at a time: the first is written, the other one waits. */
static void test_compare_and_write_that_writes_is_carried_out_whole(void)
{
	struct testdev *t = testdev_new("t0", BLOCK, BLOCKS);
	static uint8_t none[2 * BLOCK], ones[2 * BLOCK];
	struct iovec expected = {none, sizeof(none)}, wanted = {ones, sizeof(ones)};
	struct user u;

	memset(ones, 1, sizeof(ones));
	t->bdev.max_rw_blocks = 1;
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "t0", true, fixture_thread(0)), 0);
	struct request *r = request_new(&u);
	bdev_io_set_rw(r->io, BDEV_IO_COMPARE_AND_WRITE, &wanted, 1, 4, 2);
	r->io->compare.iovs = &expected;
	r->io->compare.iovcnt = 1;
	t->hold = true;
	t->slots = 2;
	request_submit(r);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 2)); /* both reads */
	t->slots = 1;
	testdev_release(t, &u, 0);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 1)); /* one write */
	take_back_user(&u, true);
	request_take_back(r);
	struct request *abort = request_new(&u);
	abort->io->type = BDEV_IO_ABORT;
	abort->io->abort.target = r->io;
	CU_ASSERT_EQUAL(request_run(abort), 0);
	CU_ASSERT_EQUAL(abort->io->cdw0, 1);
	request_free(abort);
	CU_ASSERT_FALSE(atomic_load(&r->done));
	t->hold = false;
	t->slots = 0;
	testdev_release(t, &u, 0);
	expect_end(r, 0, false);
	CU_ASSERT_EQUAL(memcmp(t->memory + 4 * BLOCK, ones, sizeof(ones)), 0);
	unmake(t, &u, 1);
}

/* Two blocks: the first is written, and the other one fails by a status after which a host would repeat the command,
 * and find its own block. If it fails while it compares, it may. */
static void test_compare_and_write_that_fails_when_it_has_written_is_not_repeated(void)
{
	struct testdev *t = testdev_new("t0", BLOCK, BLOCKS);
	static uint8_t none[2 * BLOCK], ones[2 * BLOCK];
	struct iovec expected = {none, sizeof(none)}, wanted = {ones, sizeof(ones)};
	struct user u;

	memset(ones, 1, sizeof(ones));
	t->bdev.max_rw_blocks = 1;
	t->hold = true;
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "t0", true, fixture_thread(0)), 0);
	struct request *r = request_new(&u);
	bdev_io_set_rw(r->io, BDEV_IO_COMPARE_AND_WRITE, &wanted, 1, 4, 2);
	r->io->compare.iovs = &expected;
	r->io->compare.iovcnt = 1;
	request_submit(r);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 2)); /* both reads */
	t->slots = 1;
	testdev_release(t, &u, 0);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 1)); /* one write */
	unsigned submitted = atomic_load(&t->submitted);
	testdev_release(t, &u, 0);
	CU_ASSERT_TRUE(fixture_wait_count(&t->submitted, submitted + 1)); /* the other one */
	testdev_release(t, &u, NVME_SC_CMD_INTERRUPTED);
	expect_end(r, NVME_SC_CMD_INTERRUPTED | NVME_SC_DNR, false);
	CU_ASSERT_EQUAL(t->memory[4 * BLOCK], 1);

	r = request_new(&u);
	bdev_io_set_rw(r->io, BDEV_IO_COMPARE_AND_WRITE, &wanted, 1, 8, 2);
	r->io->compare.iovs = &expected;
	r->io->compare.iovcnt = 1;
	request_submit(r);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 1));
	testdev_release(t, &u, NVME_SC_CMD_INTERRUPTED); /* a read */
	t->hold = false;
	t->slots = 0;
	testdev_release(t, &u, 0);
	expect_end(r, NVME_SC_CMD_INTERRUPTED, false);
	CU_ASSERT_EQUAL(t->memory[8 * BLOCK], 0);
	unmake(t, &u, 1);
}

/* One block, whose write waits in a module: nothing would end it. */
static void test_compare_and_write_of_a_block_that_waits_to_be_written_is_taken_back(void)
{
	const struct bdev_error_injection pending = {.type = BDEV_IO_WRITE, .kind = BDEV_ERROR_PENDING, .num = 2};
	uint8_t none[BLOCK] = {0};
	struct iovec zero = {none, BLOCK};
	struct testdev *t = testdev_new("t0", BLOCK, BLOCKS);
	struct user u;

	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	CU_ASSERT_EQUAL_FATAL(bdev_error_create("t0", NULL, NULL, error), 0);
	CU_ASSERT_EQUAL(bdev_error_inject("EE_t0", &pending, error), 0);
	bdev_find("EE_t0")->io_types &= ~(1u << BDEV_IO_COMPARE_AND_WRITE); /* carried out above it */
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "EE_t0", true, fixture_thread(0)), 0);
	for (unsigned all_of_user = 0; all_of_user < 2; all_of_user++) {
		struct request *r = submit_caw(&u, &zero);
		struct split_probe p = {.r = r};
		CU_ASSERT_TRUE_FATAL(fixture_poll(is_writing, &p)); /* has handed its write over */
		if (all_of_user) {
			take_back_user(&u, false); /* a module has it */
			CU_ASSERT_FALSE(atomic_load(&r->done));
			take_back_user(&u, true);
		} else {
			request_take_back(r);
		}
		/* what the module says is not that the write had not begun */
		expect_end(r, NVME_SC_ABORT_REQ | NVME_SC_DNR, false);
	}
	CU_ASSERT_EQUAL(atomic_load(&t->submitted), 2); /* reads */
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_error_delete, "EE_t0"), 0);
	CU_ASSERT_TRUE(testdev_delete(t));
}

/* One block, whose write the device has refused, has begun, or has. */
static void test_compare_and_write_of_a_block_is_taken_back_until_its_write_begins(void)
{
	struct user u;
	struct testdev *t = make(&u, 1, 0);
	uint8_t none[BLOCK] = {0};
	struct iovec zero = {none, BLOCK};

	t->nomem_type = BDEV_IO_WRITE;
	struct request *r = submit_caw(&u, &zero);
	struct split_probe p = {.r = r};
	CU_ASSERT_TRUE_FATAL(fixture_poll(is_writing, &p)); /* has handed its write over */
	take_back_user(&u, true);
	expect_end(r, NVME_SC_ABORT_REQ, false); /* it may be repeated: nothing was written */

	t->nomem_type = 0;
	t->hold = true;
	r = submit_caw(&u, &zero);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 1));
	unsigned submitted = atomic_load(&t->submitted);
	testdev_release(t, &u, 0);
	CU_ASSERT_TRUE(fixture_wait_count(&t->submitted, submitted + 1));
	take_back_user(&u, true); /* the device has it */
	CU_ASSERT_FALSE(atomic_load(&r->done));
	t->nomem_type = BDEV_IO_WRITE;
	testdev_give_back(t, &u); /* the device began it, and has no room for the rest */
	take_back_user(&u, true);
	CU_ASSERT_FALSE(atomic_load(&r->done));
	t->nomem_type = 0;
	thread_call(u.thread, try_again_here, u.ch);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 1));
	testdev_release(t, &u, 0);
	expect_end(r, 0, false);
	t->hold = false;
	unmake(t, &u, 1);
}

/* Neither that which compares, nor that which waits for its lock, has written. */
static void test_compare_and_write_that_does_not_write_yet_is_untouched(void)
{
	struct user u;
	struct testdev *t = make(&u, 1, 0);
	uint8_t none[BLOCK] = {0};
	struct iovec zero = {none, BLOCK};

	t->hold = true;
	struct request *caw = submit_caw(&u, &zero);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 1));
	struct request *second = submit_caw(&u, &zero);
	while (state_of(second) != BDEV_IO_WAIT_LOCK) {
	}
	take_back_user(&u, false);
	t->hold = false;
	testdev_release(t, &u, 0);
	expect_end(caw, NVME_SC_ABORT_REQ, true);
	expect_end(second, NVME_SC_ABORT_REQ, true);
	CU_ASSERT_EQUAL(atomic_load(&t->submitted), 1);
	unmake(t, &u, 1);
}

/* --- A range lock that is not to be had, because who has the blocks does not end --- */

static bool lock_waits_for_writes(void *arg)
{
	const struct bdev_lock *lock = TAILQ_FIRST(&((struct testdev *)arg)->bdev.core->locks);

	return lock != NULL && lock->state == LOCK_CLOSING;
}

static bool two_locks_are_queued(void *arg)
{
	const struct bdev_lock *lock = TAILQ_FIRST(&((struct testdev *)arg)->bdev.core->locks);

	return lock != NULL && TAILQ_NEXT(lock, link) != NULL;
}

/* Two users; the first one has a write of block 4 in the device, for which a compare-and-write of the second one waits.
 */
static struct testdev *make_stuck_lock(struct user *u, struct request **write, struct request **caw, struct iovec *zero)
{
	struct testdev *t = make(u, 2, 0);

	t->hold = true;
	*write = submit_to(&u[0], BDEV_IO_WRITE, &one, 4);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 1));
	*caw = submit_caw(&u[1], zero);
	CU_ASSERT_TRUE_FATAL(fixture_poll(lock_waits_for_writes, t));
	return t;
}

/* Ends the write, and finds that the blocks can be locked again. */
static void unmake_stuck_lock(struct testdev *t, struct user *u, struct request *write)
{
	CU_ASSERT_FALSE(atomic_load(&write->done));
	CU_ASSERT_EQUAL(atomic_load(&t->submitted), 1);
	t->hold = false;
	testdev_release(t, &u[0], 0);
	CU_ASSERT_EQUAL(request_finish(write), 0);
	CU_ASSERT_EQUAL(request_finish(submit_caw(&u[0], &one)), 0);
	CU_ASSERT_EQUAL(request_finish(submit_caw(&u[1], &one)), 0);
	CU_ASSERT_TRUE(TAILQ_EMPTY(&t->bdev.core->locks));
	unmake(t, u, 2);
}

static void test_compare_and_write_that_waits_for_writes_of_others_is_taken_back(void)
{
	uint8_t none[BLOCK] = {0};
	struct iovec zero = {none, BLOCK};
	struct request *write, *caw;
	struct user u[2];
	struct testdev *t = make_stuck_lock(u, &write, &caw, &zero);

	request_take_back(caw);
	expect_end(caw, NVME_SC_ABORT_REQ, true);
	caw = submit_caw(&u[1], &zero);
	CU_ASSERT_TRUE_FATAL(fixture_poll(lock_waits_for_writes, t));
	take_back_user(&u[1], false);
	expect_end(caw, NVME_SC_ABORT_REQ, true);
	unmake_stuck_lock(t, u, write);
}

static void test_compare_and_write_behind_another_is_taken_back(void)
{
	uint8_t none[BLOCK] = {0};
	struct iovec zero = {none, BLOCK};
	enum { MANY = 2 * BDEV_LOCKS_PER_CHANNEL }; /* some wait for a lock of the channel's */
	struct request *write, *first, *second, *more[MANY];
	struct user u[2];
	struct testdev *t = make_stuck_lock(u, &write, &first, &zero);

	for (unsigned i = 0; i < MANY; i++) {
		more[i] = submit_caw(&u[1], &zero);
	}
	CU_ASSERT_TRUE_FATAL(fixture_poll(two_locks_are_queued, t));
	request_take_back(more[0]);
	expect_end(more[0], NVME_SC_ABORT_REQ, true);
	second = submit_caw(&u[0], &zero);
	while (state_of(second) != BDEV_IO_WAIT_LOCK) {
	}
	request_take_back(second);
	expect_end(second, NVME_SC_ABORT_REQ, true);
	CU_ASSERT_FALSE(atomic_load(&first->done));
	take_back_user(&u[1], true);
	expect_end(first, NVME_SC_ABORT_REQ, true);
	for (unsigned i = 1; i < MANY; i++) {
		expect_end(more[i], NVME_SC_ABORT_REQ, true);
	}
	unmake_stuck_lock(t, u, write);
}

static void test_compare_and_write_that_waits_for_its_lock_is_aborted(void)
{
	uint8_t none[BLOCK] = {0};
	struct iovec zero = {none, BLOCK};
	struct request *write, *caw;
	struct user u[2];
	struct testdev *t = make_stuck_lock(u, &write, &caw, &zero);
	struct request *abort = request_new(&u[1]);

	abort->io->type = BDEV_IO_ABORT;
	abort->io->abort.target = caw->io;
	CU_ASSERT_EQUAL(request_run(abort), 0);
	CU_ASSERT_EQUAL(abort->io->cdw0, 0);
	request_free(abort);
	expect_end(caw, NVME_SC_ABORT_REQ, true);
	unmake_stuck_lock(t, u, write);
}

static void test_compare_and_write_that_waits_for_its_lock_ends_with_a_reset(void)
{
	uint8_t none[BLOCK] = {0};
	struct iovec zero = {none, BLOCK};
	struct request *write, *caw;
	struct user u[2];
	struct testdev *t = make_stuck_lock(u, &write, &caw, &zero);
	struct request *reset = request_new(&u[0]);

	reset->io->type = BDEV_IO_RESET;
	request_submit(reset);
	expect_end(caw, NVME_SC_ABORT_REQ, true);
	t->hold = false;
	testdev_release(t, &u[0], 0);
	CU_ASSERT_TRUE(request_wait(write));
	request_finish(write);
	CU_ASSERT_EQUAL(request_finish(reset), 0);
	CU_ASSERT_EQUAL(request_finish(submit_caw(&u[1], &one)), 0);
	unmake(t, u, 2);
}

static void test_compare_and_write_that_waits_for_its_lock_ends_with_its_bdev(void)
{
	uint8_t none[BLOCK] = {0};
	struct iovec zero = {none, BLOCK};
	struct request *write, *caw;
	struct user u[2];
	struct testdev *t = make_stuck_lock(u, &write, &caw, &zero);

	bdev_unregister(&t->bdev, NULL, NULL);
	expect_end(caw, NVME_SC_INVALID_NS | NVME_SC_DNR, true);
	CU_ASSERT_FALSE(atomic_load(&write->done));
	testdev_release(t, &u[0], 0);
	CU_ASSERT_EQUAL(request_finish(write), 0);
	unmake(t, u, 2);
}

/* --- Stacks --- */

/* The I/O has come through three bdevs and, of many blocks, as many child I/Os. */
static void test_io_below_a_stack_is_untouched_if_no_bdev_has_begun_it(void)
{
	const struct bdev_delay_opts slow = {.name = "d0",
					     .base_bdev_name = "EE_t0",
					     .latency_us = {[BDEV_DELAY_AVG_WRITE] = 1, [BDEV_DELAY_P99_WRITE] = 1}};
	struct testdev *t = testdev_new("t0", BLOCK, BLOCKS);
	struct user u, below;

	t->bdev.max_rw_blocks = 1;
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&below, "t0", false, fixture_thread(0)), 0);
	CU_ASSERT_EQUAL_FATAL(bdev_error_create("t0", NULL, NULL, error), 0);
	CU_ASSERT_EQUAL_FATAL(bdev_delay_create(&slow, error), 0);
	CU_ASSERT_EQUAL_FATAL(bdev_passthru_create("p0", "d0", NULL, error), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "p0", true, fixture_thread(0)), 0);
	for (unsigned blocks = 1; blocks <= 8; blocks += 7) {
		struct iovec iov = {data, blocks * BLOCK};
		t->nomem_type = BDEV_IO_WRITE;
		struct request *r = submit_to(&u, BDEV_IO_WRITE, &iov, 0);
		while (state_of(r) != BDEV_IO_MODULE && state_of(r) != BDEV_IO_SPLIT) {
		}
		take_back_user(&u, true);
		expect_end(r, NVME_SC_ABORT_REQ, true);
		t->nomem_type = 0;
	}
	t->hold = true;
	t->slots = 1;
	struct iovec two = {data, 2 * BLOCK};
	struct request *r = submit_to(&u, BDEV_IO_WRITE, &two, 0);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 1)); /* a half; there is no room for the other one */
	take_back_user(&u, true);
	testdev_release(t, &below, NVME_SC_ABORT_REQ);
	expect_end(r, NVME_SC_ABORT_REQ, false);
	t->hold = false;
	t->slots = 0;
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_passthru_delete, "p0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_delay_delete, "d0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_error_delete, "EE_t0"), 0);
	user_close(&below);
	CU_ASSERT_TRUE(testdev_delete(t));
}

/* More I/Os than a pool has children; and, of a base that goes, all those that waited for the device. */
static void test_io_that_waits_for_a_child_is_untouched(void)
{
	enum { MANY = 130 };
	struct user u, below;
	struct request *r[MANY];
	struct testdev *t = write_through_passthru(&u, &below, r, MANY);

	while (state_of(r[MANY - 1]) != BDEV_IO_MODULE) {
	}
	take_back_user(&u, true);
	expect_end(r[MANY - 2], NVME_SC_ABORT_REQ, true);
	expect_end(r[MANY - 1], NVME_SC_ABORT_REQ, true);
	testdev_release(t, &below, NVME_SC_ABORT_REQ);
	for (unsigned i = 0; i < 128; i++) {
		expect_end(r[i], NVME_SC_ABORT_REQ, false);
	}
	passthru_end(t, &u, &below);
}

static void test_io_of_a_bdev_that_goes_is_untouched_if_it_waited(void)
{
	struct user u;
	struct testdev *t = make(&u, 1, 0);

	t->hold = true;
	t->slots = 1;
	struct request *with = submit_to(&u, BDEV_IO_WRITE, &one, 0), *waits = submit_to(&u, BDEV_IO_WRITE, &one, 1);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 1));
	while (state_of(waits) != BDEV_IO_WAIT_NOMEM) {
	}
	bdev_unregister(&t->bdev, NULL, NULL);
	expect_end(waits, NVME_SC_INVALID_NS | NVME_SC_DNR, true);
	expect_end(submit_to(&u, BDEV_IO_WRITE, &one, 1), NVME_SC_INVALID_NS | NVME_SC_DNR, true);
	testdev_release(t, &u, NVME_SC_INVALID_NS | NVME_SC_DNR);
	expect_end(with, NVME_SC_INVALID_NS | NVME_SC_DNR, false);
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
	UNIT(test_a_user_s_io_that_waits_is_untouched_and_that_of_others_stays),
	UNIT(test_io_that_a_module_has_had_is_not_untouched),
	UNIT(test_io_that_is_used_again_forgets_that_it_was_untouched),
	UNIT(test_split_io_of_which_a_part_has_begun_goes_on),
	UNIT(test_compare_and_write_that_writes_is_carried_out_whole),
	UNIT(test_compare_and_write_of_a_block_that_waits_to_be_written_is_taken_back),
	UNIT(test_compare_and_write_of_a_block_is_taken_back_until_its_write_begins),
	UNIT(test_compare_and_write_that_fails_when_it_has_written_is_not_repeated),
	UNIT(test_compare_and_write_that_does_not_write_yet_is_untouched),
	UNIT(test_compare_and_write_that_waits_for_writes_of_others_is_taken_back),
	UNIT(test_compare_and_write_behind_another_is_taken_back),
	UNIT(test_compare_and_write_that_waits_for_its_lock_is_aborted),
	UNIT(test_compare_and_write_that_waits_for_its_lock_ends_with_a_reset),
	UNIT(test_compare_and_write_that_waits_for_its_lock_ends_with_its_bdev),
	UNIT(test_io_below_a_stack_is_untouched_if_no_bdev_has_begun_it),
	UNIT(test_io_that_waits_for_a_child_is_untouched),
	UNIT(test_io_of_a_bdev_that_goes_is_untouched_if_it_waited),
	UNIT_END,
};
UNIT_MAIN("bdev_take_back", tests, fixture_start, fixture_stop)
