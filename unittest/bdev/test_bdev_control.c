/* SPDX-License-Identifier: BSD-3-Clause */
/* Reset, abort, waiting for resources, range locks. */
#include "bdev/internal.h"
#include "unittest/bdev/fixture.h"

static uint8_t buf[4096] __attribute__((aligned(4096)));

/* A testdev "t0" of 64 blocks and a user on each of the first n threads. */
static struct testdev *make(struct user *u, unsigned n, uint32_t more_types)
{
	struct testdev *t = testdev_new("t0", 512, 64);

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

static struct iovec iov = {buf, 512};

static struct request *submit(struct user *u, enum bdev_io_type type, uint64_t offset)
{
	struct request *r = request_new(u);

	bdev_io_set_rw(r->io, type, &iov, 1, offset, 1);
	request_submit(r);
	return r;
}

/* --- Reset --- */

static void test_reset_ends_what_the_module_holds(void)
{
	struct user u[2];
	struct testdev *t = make(u, 2, 1u << BDEV_IO_RESET);

	t->hold = true;
	struct request *a = submit(&u[0], BDEV_IO_READ, 0), *b = submit(&u[1], BDEV_IO_WRITE, 1);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 2));
	CU_ASSERT_EQUAL(user_io(&u[0], BDEV_IO_RESET, NULL, 0, 0), 0);
	CU_ASSERT_EQUAL(atomic_load(&t->resets), 1);
	t->hold = false;
	CU_ASSERT_EQUAL(request_finish(a), NVME_SC_ABORT_REQ);
	CU_ASSERT_EQUAL(request_finish(b), NVME_SC_ABORT_REQ);
	CU_ASSERT_EQUAL(user_io(&u[1], BDEV_IO_READ, buf, 0, 1), 0); /* goes on afterwards */
	unmake(t, u, 2);
}

static void test_resets_from_several_threads_run_one_after_the_other(void)
{
	struct user u[3];
	struct testdev *t = make(u, 3, 1u << BDEV_IO_RESET);
	struct request *r[12];

	for (unsigned i = 0; i < 12; i++) {
		r[i] = submit(&u[i % 3], BDEV_IO_RESET, 0);
	}
	for (unsigned i = 0; i < 12; i++) {
		CU_ASSERT_EQUAL(request_finish(r[i]), 0);
	}
	CU_ASSERT_EQUAL(atomic_load(&t->resets), 12);
	for (unsigned i = 0; i < 3; i++) {
		CU_ASSERT_EQUAL(user_io(&u[i], BDEV_IO_READ, buf, 0, 1), 0);
	}
	unmake(t, u, 3);
}

/* reset_channel ends what is held, so only what the module cannot end keeps a reset waiting: here, a zero-copy I/O. */
struct zcopy {
	struct request *r;
	void *addr;
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

struct state_probe {
	struct request *r;
	uint8_t state;
};

static void read_state(void *arg)
{
	struct state_probe *probe = arg;

	probe->state = probe->r->io->state;
}

/* The state of its I/O, read on the thread that changes it. */
static uint8_t request_state(struct request *r)
{
	struct state_probe probe = {.r = r};

	thread_call(r->user->thread, read_state, &probe);
	return probe.state;
}

static bool is_frozen(void *arg)
{
	return request_state(arg) == BDEV_IO_WAIT_FREEZE;
}

static void test_reset_without_module_support_waits_for_io_in_flight(void)
{
	struct user u;
	struct zcopy l;
	char error[BDEV_ERROR_MAX];
	const struct bdev_malloc_opts opts = {.name = "m0", .block_size = 512, .num_blocks = 64, .numa_id = -1};

	CU_ASSERT_EQUAL_FATAL(bdev_malloc_create(&opts, NULL, error), 0);
	bdev_find("m0")->io_types &= ~(1u << BDEV_IO_RESET);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "m0", true, fixture_thread(1)), 0);
	l.r = request_new(&u);
	bdev_io_set_rw(l.r->io, BDEV_IO_READ, &iov, 1, 0, 1);
	thread_call(u.thread, zcopy_get_here, &l);
	CU_ASSERT_PTR_NOT_NULL_FATAL(l.addr);
	struct request *reset = submit(&u, BDEV_IO_RESET, 0);
	struct request *probe = submit(&u, BDEV_IO_READ, 0); /* some time it is held back */
	while (!thread_control_wait(is_frozen, probe, 1000)) {
		CU_ASSERT_EQUAL_FATAL(request_finish(probe), 0);
		probe = submit(&u, BDEV_IO_READ, 0);
	}
	CU_ASSERT_FALSE(atomic_load(&reset->done));
	thread_call(u.thread, zcopy_put_here, &l);
	CU_ASSERT_EQUAL(request_finish(reset), 0);
	CU_ASSERT_EQUAL(request_finish(probe), 0);
	request_free(l.r);
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
}

/* --- Abort --- */

static struct request *submit_abort(struct user *u, struct request *target)
{
	struct request *r = request_new(u);

	r->io->type = BDEV_IO_ABORT;
	r->io->abort.target = target->io;
	request_submit(r);
	return r;
}

static uint32_t abort_result(struct user *u, struct request *target)
{
	struct request *a = submit_abort(u, target);

	CU_ASSERT_TRUE_FATAL(request_wait(a));
	CU_ASSERT_EQUAL(a->status, 0);
	uint32_t cdw0 = a->cdw0;
	request_free(a);
	return cdw0;
}

static void test_abort_of_held_io_ends_it(void)
{
	struct user u;
	struct testdev *t = make(&u, 1, 0);

	t->hold = true;
	struct request *r = submit(&u, BDEV_IO_READ, 0);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 1));
	CU_ASSERT_EQUAL(abort_result(&u, r), 0);
	CU_ASSERT_EQUAL(request_finish(r), NVME_SC_ABORT_REQ);
	unmake(t, &u, 1);
}

static void test_abort_of_what_is_not_in_flight_says_so(void)
{
	struct user u;
	struct testdev *t = make(&u, 1, 0);
	struct request *r = request_new(&u);

	CU_ASSERT_EQUAL(abort_result(&u, r), 1);
	request_free(r);
	unmake(t, &u, 1);
}

static void test_abort_of_waiting_io_ends_it(void)
{
	struct user u;
	struct testdev *t = make(&u, 1, 0);

	t->hold = true;
	t->slots = 1;
	struct request *first = submit(&u, BDEV_IO_READ, 0), *second = submit(&u, BDEV_IO_READ, 1);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 1));
	t->nomem_type = 0;
	CU_ASSERT_EQUAL(abort_result(&u, second), 0);
	CU_ASSERT_EQUAL(request_finish(second), NVME_SC_ABORT_REQ);
	testdev_release(t, &u, 0);
	CU_ASSERT_EQUAL(request_finish(first), 0);
	unmake(t, &u, 1);
}

static void test_abort_of_split_io_stops_it(void)
{
	struct testdev *t = testdev_new("t0", 512, 64);
	static uint8_t data[64 * 512];
	struct iovec all = {data, sizeof(data)};
	struct user u;

	t->bdev.max_rw_blocks = 1; /* 64 children, of which 32 are with the module at a time */
	t->hold = true;
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "t0", true, fixture_thread(0)), 0);
	struct request *r = request_new(&u);
	bdev_io_set_rw(r->io, BDEV_IO_READ, &all, 1, 0, 64);
	request_submit(r);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 32));
	CU_ASSERT_EQUAL(abort_result(&u, r), 0);
	CU_ASSERT_FALSE(atomic_load(&r->done)); /* the module still has children */
	testdev_release(t, &u, 0);
	CU_ASSERT_EQUAL(request_finish(r), NVME_SC_ABORT_REQ);
	CU_ASSERT_EQUAL(atomic_load(&t->submitted), 32);
	unmake(t, &u, 1);
}

/* All of it is with the module: nothing can be held back any more. */
static void test_abort_of_split_io_that_goes_on_says_so(void)
{
	struct testdev *t = testdev_new("t0", 512, 64);
	static uint8_t data[2 * 512];
	struct iovec all = {data, sizeof(data)};
	struct user u;

	t->bdev.max_rw_blocks = 1;
	t->hold = true;
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "t0", true, fixture_thread(0)), 0);
	struct request *r = request_new(&u);
	bdev_io_set_rw(r->io, BDEV_IO_WRITE, &all, 1, 0, 2);
	request_submit(r);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 2));
	CU_ASSERT_EQUAL(abort_result(&u, r), 1);
	testdev_release(t, &u, 0);
	CU_ASSERT_EQUAL(request_finish(r), 0);
	unmake(t, &u, 1);
}

static void gone(void *flag, int rc)
{
	set_done(flag);
}

/* Whoever has to let go of a bdev may have to get I/O back that hangs. */
static void test_io_of_a_bdev_that_goes_can_be_aborted(void)
{
	struct user u;
	struct testdev *t = make(&u, 1, 0);
	atomic_bool is_gone = false;

	t->hold = true;
	struct request *r = submit(&u, BDEV_IO_READ, 0);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 1));
	bdev_unregister(&t->bdev, gone, &is_gone);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, buf, 0, 1), NVME_SC_INVALID_NS | NVME_SC_DNR);
	CU_ASSERT_EQUAL(abort_result(&u, r), 0);
	CU_ASSERT_FALSE(atomic_load(&is_gone));
	testdev_release(t, &u, 0);
	CU_ASSERT_EQUAL(request_finish(r), NVME_SC_ABORT_REQ);
	user_close(&u);
	CU_ASSERT_TRUE(fixture_wait(&is_gone));
}

/* --- Resources --- */

static void test_io_waits_while_the_module_has_no_room(void)
{
	struct user u;
	struct testdev *t = make(&u, 1, 0);
	struct request *r[50];

	t->slots = 2;
	t->shuffle = true;
	for (unsigned i = 0; i < 50; i++) {
		r[i] = submit(&u, i % 2 ? BDEV_IO_READ : BDEV_IO_WRITE, i);
	}
	for (unsigned i = 0; i < 50; i++) {
		CU_ASSERT_EQUAL(request_finish(r[i]), 0);
	}
	CU_ASSERT_EQUAL(atomic_load(&t->max_depth), 2);
	struct bdev_stat s;
	bdev_get_stat(&t->bdev, &s);
	CU_ASSERT_TRUE(s.nomem_waits > 0);
	unmake(t, &u, 1);
}

static void test_io_that_never_finds_room_neither_blocks_others_nor_waits_for_ever(void)
{
	struct bdev_opts opts, before;
	struct user u;
	struct testdev *t = make(&u, 1, 0);
	struct request *bad[10], *good[20];

	bdev_get_opts(&before);
	opts = before;
	opts.nomem_timeout_ms = 1000;
	CU_ASSERT_EQUAL(bdev_set_opts(&opts), 0);
	t->nomem_type = BDEV_IO_WRITE;
	t->slots = 1; /* the good ones have to wait too */
	for (unsigned i = 0; i < 10; i++) {
		bad[i] = submit(&u, BDEV_IO_WRITE, i);
	}
	for (unsigned i = 0; i < 20; i++) {
		good[i] = submit(&u, BDEV_IO_READ, i);
	}
	for (unsigned i = 0; i < 20; i++) {
		CU_ASSERT_EQUAL(request_finish(good[i]), 0);
	}
	for (unsigned i = 0; i < 10; i++) {
		CU_ASSERT_EQUAL(request_finish(bad[i]), NVME_SC_CMD_INTERRUPTED);
	}
	CU_ASSERT_EQUAL(bdev_set_opts(&before), 0);
	unmake(t, &u, 1);
}

static bool is_past(void *ticks)
{
	return env_ticks() > *(const uint64_t *)ticks;
}

/* Only the time that an I/O has waited counts, not the time that the device had it. */
static void test_io_may_wait_for_room_again_after_the_device_had_it(void)
{
	struct bdev_opts opts, before;
	struct user u;
	struct testdev *t = make(&u, 1, 0);

	bdev_get_opts(&before);
	opts = before;
	opts.nomem_timeout_ms = 500;
	CU_ASSERT_EQUAL(bdev_set_opts(&opts), 0);
	t->nomem_type = BDEV_IO_WRITE;
	t->hold = true;
	struct request *r = submit(&u, BDEV_IO_WRITE, 3);
	struct bdev_stat s = {0};
	while (s.nomem_waits == 0) {
		bdev_get_stat(&t->bdev, &s);
	}
	t->nomem_type = 0;
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 1));
	uint64_t end = env_ticks() + env_us_to_ticks(600 * 1000);
	CU_ASSERT_TRUE(fixture_poll(is_past, &end));
	t->hold = false;
	testdev_give_back(t, &u);
	CU_ASSERT_EQUAL(request_finish(r), 0);
	CU_ASSERT_EQUAL(bdev_set_opts(&before), 0);
	unmake(t, &u, 1);
}

/* An ABORT that the module has no room for ends with its target, whose memory its owner may use for another I/O. */
static void test_an_abort_that_waits_for_room_ends_with_its_target(void)
{
	struct bdev_opts opts, before;
	struct bdev_stat s = {0};
	struct user u;
	struct testdev *t = make(&u, 1, 0);

	bdev_get_opts(&before);
	opts = before;
	opts.nomem_timeout_ms = 600000; /* nothing else ends it */
	CU_ASSERT_EQUAL(bdev_set_opts(&opts), 0);
	t->hold = true;
	struct request *r = submit(&u, BDEV_IO_READ, 3);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 1));
	t->nomem_type = BDEV_IO_ABORT;
	struct request *abort = request_new(&u);
	abort->io->type = BDEV_IO_ABORT;
	abort->io->abort.target = r->io;
	request_submit(abort);
	while (s.nomem_waits == 0) {
		bdev_get_stat(&t->bdev, &s);
	}
	CU_ASSERT_FALSE(atomic_load(&abort->done));
	testdev_release(t, &u, 0);
	CU_ASSERT_TRUE(request_wait(abort));
	CU_ASSERT_EQUAL(abort->cdw0, 1);
	CU_ASSERT_EQUAL(request_finish(abort), 0);
	CU_ASSERT_EQUAL(request_finish(r), 0);
	t->nomem_type = 0;
	t->hold = false;
	CU_ASSERT_EQUAL(bdev_set_opts(&before), 0);
	unmake(t, &u, 1);
}

static struct {
	bdev_io_cb cb;
	atomic_uint again;
} reuse;

static void submit_again(struct bdev_io *io, void *arg)
{
	if (atomic_fetch_add(&reuse.again, 1) == 0) {
		io->cb = reuse.cb;
		bdev_submit(io);
	}
}

/* The target's owner uses its memory for another I/O at once, and so many others wait in front of the ABORT that the
 * target's end does not have it tried again: it must not find the other I/O. */
static void test_an_abort_that_waits_for_room_spares_what_has_its_targets_memory(void)
{
	enum { IN_FRONT = 6 };
	struct request *w[IN_FRONT];
	struct bdev_stat s = {0};
	struct user u;
	struct testdev *t = make(&u, 1, 0);

	t->hold = true;
	t->slots = 1;
	struct request *r = submit(&u, BDEV_IO_READ, 3);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 1));
	reuse.cb = r->io->cb;
	r->io->cb = submit_again;
	for (unsigned i = 0; i < IN_FRONT; i++) {
		w[i] = submit(&u, BDEV_IO_WRITE, i);
	}
	struct request *abort = request_new(&u);
	abort->io->type = BDEV_IO_ABORT;
	abort->io->abort.target = r->io;
	request_submit(abort);
	while (s.nomem_waits <= IN_FRONT) {
		bdev_get_stat(&t->bdev, &s);
	}
	testdev_release(t, &u, 0);
	t->hold = false;
	CU_ASSERT_EQUAL(request_finish(r), 0);
	CU_ASSERT_EQUAL(atomic_load(&reuse.again), 1);
	CU_ASSERT_TRUE(request_wait(abort));
	CU_ASSERT_EQUAL(abort->cdw0, 1);
	CU_ASSERT_EQUAL(request_finish(abort), 0);
	for (unsigned i = 0; i < IN_FRONT; i++) {
		CU_ASSERT_EQUAL(request_finish(w[i]), 0);
	}
	unmake(t, &u, 1);
}

/* --- Compare-and-write --- */

static void test_compare_and_write_writes_only_when_equal(void)
{
	struct user u;
	struct testdev *t = make(&u, 1, 0);
	uint8_t old[1024], new[1024];
	struct iovec cmp = {old, 1024}, data = {new, 1024};
	struct request *r = request_new(&u);

	memset(old, 0, sizeof(old));
	memset(new, 9, sizeof(new));
	bdev_io_set_rw(r->io, BDEV_IO_COMPARE_AND_WRITE, &data, 1, 4, 2);
	r->io->compare.iovs = &cmp;
	r->io->compare.iovcnt = 1;
	CU_ASSERT_EQUAL(request_run(r), 0);
	CU_ASSERT_EQUAL(t->memory[4 * 512] & t->memory[6 * 512 - 1], 9);
	CU_ASSERT_EQUAL(t->memory[4 * 512 - 1] | t->memory[6 * 512], 0);
	CU_ASSERT_EQUAL(request_run(r) & BDEV_STATUS_MASK, BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_COMPARE_FAILED));
	request_free(r);
	unmake(t, &u, 1);
}

/* Four threads add one to the same block, a counter, by compare-and-write, while a fifth user's writes go to other
 * blocks: a lost update would leave the sum short. */
struct adder {
	struct user user;
	struct bdev_io *io;
	unsigned left, tries;
	uint64_t seen[64], next[64]; /* a block each */
	struct iovec cmp, data;
	atomic_bool done;
};

static void add_next(struct adder *a)
{
	memcpy(a->next, a->seen, sizeof(a->next));
	a->next[0]++;
	a->next[63]++;
	a->tries++;
	bdev_submit(a->io);
}

static void read_again(struct bdev_io *io, void *arg);

static void added(struct bdev_io *io, void *arg)
{
	struct adder *a = arg;

	if (io->status == 0 && --a->left == 0) {
		set_done(&a->done);
		return;
	}
	/* Whether lost or won, the block is not what it was. */
	bdev_io_init(io, a->user.desc, a->user.ch, read_again, a);
	bdev_io_set_rw(io, BDEV_IO_READ, &a->cmp, 1, 3, 1);
	bdev_submit(io);
}

static void read_again(struct bdev_io *io, void *arg)
{
	struct adder *a = arg;

	bdev_io_init(io, a->user.desc, a->user.ch, added, a);
	bdev_io_set_rw(io, BDEV_IO_COMPARE_AND_WRITE, &a->data, 1, 3, 1);
	io->compare.iovs = &a->cmp;
	io->compare.iovcnt = 1;
	add_next(a);
}

static void add_start(void *arg)
{
	struct adder *a = arg;
	read_again(a->io, a);
}

static void race_compare_and_writes(const char *bdev, unsigned each, uint64_t *sum)
{
	static struct adder a[4];
	uint64_t block[64];

	for (unsigned i = 0; i < 4; i++) {
		memset(&a[i], 0, sizeof(a[i]));
		CU_ASSERT_EQUAL_FATAL(user_open(&a[i].user, bdev, true, fixture_thread(i)), 0);
		a[i].io = aligned_alloc(64, bdev_io_size());
		memset(a[i].io, 0, bdev_io_size());
		a[i].left = each;
		a[i].cmp = (struct iovec){a[i].seen, 512};
		a[i].data = (struct iovec){a[i].next, 512};
	}
	for (unsigned i = 0; i < 4; i++) {
		thread_send(a[i].user.thread, add_start, &a[i]);
	}
	for (unsigned i = 0; i < 4; i++) {
		CU_ASSERT_TRUE_FATAL(fixture_wait(&a[i].done));
	}
	CU_ASSERT_EQUAL(user_io(&a[0].user, BDEV_IO_READ, block, 3, 1), 0);
	CU_ASSERT_EQUAL(block[0], block[63]);
	*sum = block[0];
	for (unsigned i = 0; i < 4; i++) {
		user_close(&a[i].user);
		free(a[i].io);
	}
}

static void test_compare_and_write_is_atomic_across_threads(void)
{
	struct testdev *t = testdev_new("t0", 512, 64);
	uint64_t sum = 0;

	t->shuffle = true; /* the compare and the write are far apart in time */
	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	race_compare_and_writes("t0", 50, &sum);
	CU_ASSERT_EQUAL(sum, 200);
	CU_ASSERT_TRUE(testdev_delete(t));
}

static void test_compare_and_write_is_atomic_on_a_ram_disk(void)
{
	uint64_t sum = 0;

	make_malloc("m0", 512, 64);
	race_compare_and_writes("m0", 100, &sum);
	CU_ASSERT_EQUAL(sum, 400);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
}

static bool waits_for_lock(void *arg)
{
	return request_state(arg) == BDEV_IO_WAIT_LOCK;
}

static void test_write_to_locked_blocks_waits_and_others_go_on(void)
{
	struct user u[2];
	struct testdev *t = make(u, 2, 0);
	uint8_t zero[512] = {0}, new[512] = {1}, other[512] = {2};
	struct iovec cmp = {zero, 512}, data = {new, 512}, late = {other, 512};
	struct request *caw = request_new(&u[0]), *w = request_new(&u[1]);

	t->hold = true; /* keeps the compare's read */
	bdev_io_set_rw(caw->io, BDEV_IO_COMPARE_AND_WRITE, &data, 1, 4, 1);
	caw->io->compare.iovs = &cmp;
	caw->io->compare.iovcnt = 1;
	request_submit(caw);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 1));
	bdev_io_set_rw(w->io, BDEV_IO_WRITE, &late, 1, 4, 1);
	request_submit(w);
	CU_ASSERT_TRUE(fixture_poll(waits_for_lock, w));
	/* Blocks beside it and reads are none of the lock's business. */
	struct request *beside = submit(&u[1], BDEV_IO_WRITE, 5), *reader = submit(&u[1], BDEV_IO_READ, 4);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 3));
	testdev_release(t, &u[1], 0);
	CU_ASSERT_EQUAL(request_finish(beside), 0);
	CU_ASSERT_EQUAL(request_finish(reader), 0);
	t->hold = false;
	testdev_release(t, &u[0], 0);
	CU_ASSERT_EQUAL(request_finish(caw), 0);
	CU_ASSERT_EQUAL(request_finish(w), 0);
	CU_ASSERT_EQUAL(t->memory[4 * 512], 2); /* the write came second */
	unmake(t, u, 2);
}

/* One user's compare with zeros and write of ones, behind another's write that the device holds. */
struct behind {
	uint8_t zero[512], ones[512], early[512];
	struct iovec cmp, data, first;
	struct request *caw, *w;
};

static void submit_behind(struct testdev *t, struct user u[2], uint8_t early, struct behind *b)
{
	*b = (struct behind){
		.ones = {1}, .early = {early}, .cmp = {b->zero, 512}, .data = {b->ones, 512}, .first = {b->early, 512}};
	b->caw = request_new(&u[0]);
	b->w = request_new(&u[1]);
	t->hold = true;
	bdev_io_set_rw(b->w->io, BDEV_IO_WRITE, &b->first, 1, 4, 1);
	request_submit(b->w);
	CU_ASSERT_TRUE(fixture_wait_count(&t->held, 1));
	bdev_io_set_rw(b->caw->io, BDEV_IO_COMPARE_AND_WRITE, &b->data, 1, 4, 1);
	b->caw->io->compare.iovs = &b->cmp;
	b->caw->io->compare.iovcnt = 1;
	request_submit(b->caw);
}

static void test_lock_waits_for_writes_in_flight(void)
{
	struct user u[2];
	struct testdev *t = make(u, 2, 0);
	struct behind b;

	submit_behind(t, u, 2, &b);
	CU_ASSERT_TRUE(fixture_poll(waits_for_lock, b.caw));
	t->hold = false;
	testdev_release(t, &u[1], 0);
	CU_ASSERT_EQUAL(request_finish(b.w), 0);
	CU_ASSERT_EQUAL(request_finish(b.caw) & BDEV_STATUS_MASK, BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_COMPARE_FAILED));
	CU_ASSERT_EQUAL(t->memory[4 * 512], 2);
	unmake(t, u, 2);
}

/* The callback of an I/O that went to all channels may put the one it came from: the others are still to be told. */
struct leaver {
	struct user user;
	struct bdev_io *io;
	struct iovec cmp, data;
	atomic_bool done;
};

static void put_and_tell(struct bdev_io *io, void *arg)
{
	struct leaver *l = arg;

	CU_ASSERT_EQUAL(io->status, 0);
	bdev_channel_put(l->user.ch);
	set_done(&l->done);
}

static void submit_last(void *arg)
{
	bdev_submit(((struct leaver *)arg)->io);
}

static void test_channel_may_go_with_the_io_that_went_to_all_channels(void)
{
	static uint8_t zero[512];

	for (unsigned i = 0; i < 2; i++) {
		struct testdev *t = testdev_new("t0", 512, 64);
		struct leaver l = {.cmp = {zero, 512}, .data = {zero, 512}};
		struct user stays;
		CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
		CU_ASSERT_EQUAL_FATAL(user_open(&l.user, "t0", true, fixture_thread(0)), 0);
		CU_ASSERT_EQUAL_FATAL(user_open(&stays, "t0", true, fixture_thread(1)), 0);
		struct request *r = request_new(&l.user); /* for its memory */
		l.io = r->io;
		bdev_io_init(l.io, l.user.desc, l.user.ch, put_and_tell, &l);
		bdev_io_set_rw(l.io, i == 0 ? BDEV_IO_COMPARE_AND_WRITE : BDEV_IO_RESET, &l.data, i == 0, 3, i == 0);
		l.io->compare.iovs = &l.cmp;
		l.io->compare.iovcnt = 1;
		thread_call(l.user.thread, submit_last, &l);
		CU_ASSERT_TRUE_FATAL(fixture_wait(&l.done));
		bdev_close(l.user.desc);
		request_free(r);
		CU_ASSERT_EQUAL(user_io(&stays, BDEV_IO_WRITE, buf, 3, 1), 0);
		unmake(t, &stays, 1);
	}
}

static __thread bool no_memory;

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes)
{
	return no_memory ? NULL : __real_malloc(bytes);
}

struct goer {
	struct testdev *t;
	struct user *user;
	bool locked; /* its channel knows of the lock */
};

static void look_for_lock(void *arg)
{
	struct goer *g = arg;
	g->locked = (g->user->ch->slow & SLOW_LOCKED) != 0;
}

static bool has_lock(void *arg)
{
	struct goer *g = arg;

	thread_call(g->user->thread, look_for_lock, g);
	return g->locked;
}

static void nothing(void *arg)
{
}

/* The control thread, which waits for this, has no room for messages. */
static void end_write_and_go(void *arg)
{
	struct goer *g = arg;

	while (thread_send(thread_control(), nothing, NULL) == 0) {
	}
	testdev_release(g->t, g->user, 0);
	no_memory = true;
	bdev_channel_put(g->user->ch);
	no_memory = false;
}

static void test_channel_that_a_lock_waits_for_goes_without_memory_or_room_for_messages(void)
{
	struct user u[2];
	struct testdev *t = make(u, 2, 0);
	struct goer goer = {.t = t, .user = &u[1]};
	struct behind b;

	submit_behind(t, u, 0, &b);
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_lock, &goer));
	CU_ASSERT_FALSE(atomic_load(&b.caw->done));
	t->hold = false;
	thread_call(u[1].thread, end_write_and_go, &goer);
	bdev_close(u[1].desc);
	CU_ASSERT_EQUAL(request_finish(b.w), 0);
	CU_ASSERT_EQUAL(request_finish(b.caw), 0);
	CU_ASSERT_EQUAL(t->memory[4 * 512], 1);
	unmake(t, u, 1);
}

/* In the reset's last visit to the channels, whose first one is the control thread's. */
static void visitor_done(struct bdev_io *io, void *arg)
{
	struct bdev_stat stat;

	bdev_get_stat(bdev_channel_bdev(io->ch), &stat); /* visits them too */
	set_done(arg);
}

static void test_a_visit_inside_a_visit_does_not_end_the_outer_one(void)
{
	struct testdev *t = testdev_new("t0", 512, 100);
	struct user visitor, other;
	atomic_bool done = false;

	CU_ASSERT_EQUAL_FATAL(testdev_register(t), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&visitor, "t0", true, thread_control()), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&other, "t0", true, fixture_thread(1)), 0);
	struct request *reset = request_new(&visitor);
	bdev_io_init(reset->io, visitor.desc, visitor.ch, visitor_done, &done);
	reset->io->type = BDEV_IO_RESET;
	bdev_submit(reset->io);
	CU_ASSERT_TRUE(fixture_wait(&done));
	request_free(reset);
	CU_ASSERT_EQUAL(user_io(&other, BDEV_IO_READ, buf, 0, 1), 0); /* it is not frozen any more */
	user_close(&visitor);
	user_close(&other);
	CU_ASSERT_TRUE(testdev_delete(t));
}

static const struct unit_test tests[] = {
	UNIT(test_reset_ends_what_the_module_holds),
	UNIT(test_resets_from_several_threads_run_one_after_the_other),
	UNIT(test_reset_without_module_support_waits_for_io_in_flight),
	UNIT(test_abort_of_held_io_ends_it),
	UNIT(test_abort_of_what_is_not_in_flight_says_so),
	UNIT(test_abort_of_waiting_io_ends_it),
	UNIT(test_abort_of_split_io_stops_it),
	UNIT(test_abort_of_split_io_that_goes_on_says_so),
	UNIT(test_io_of_a_bdev_that_goes_can_be_aborted),
	UNIT(test_io_waits_while_the_module_has_no_room),
	UNIT(test_io_may_wait_for_room_again_after_the_device_had_it),
	UNIT(test_an_abort_that_waits_for_room_ends_with_its_target),
	UNIT(test_an_abort_that_waits_for_room_spares_what_has_its_targets_memory),
	UNIT(test_io_that_never_finds_room_neither_blocks_others_nor_waits_for_ever),
	UNIT(test_compare_and_write_writes_only_when_equal),
	UNIT(test_compare_and_write_is_atomic_across_threads),
	UNIT(test_compare_and_write_is_atomic_on_a_ram_disk),
	UNIT(test_write_to_locked_blocks_waits_and_others_go_on),
	UNIT(test_lock_waits_for_writes_in_flight),
	UNIT(test_channel_may_go_with_the_io_that_went_to_all_channels),
	UNIT(test_channel_that_a_lock_waits_for_goes_without_memory_or_room_for_messages),
	UNIT(test_a_visit_inside_a_visit_does_not_end_the_outer_one),
	UNIT_END,
};
UNIT_MAIN("bdev_control", tests, fixture_start, fixture_stop)
