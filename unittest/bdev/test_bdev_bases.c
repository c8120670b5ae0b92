/* SPDX-License-Identifier: BSD-3-Clause */
/* A bdev on three bases under stress: what may go wrong while something else is under way. The module of the tests' own
 * stripes; it tries a child that failed again, and flushes the bases after each write, as a second group of children.
 */
#include "unittest/bdev/fixture.h"

#include <errno.h>

#include "bdev/vbdev/vbdev.h"
#include "bdev_modules/passthru/passthru.h"
#include "util/iov.h"

#define BASES  3u
#define BLOCK  512u
#define CHUNK  4u /* blocks of a stripe */
#define BLOCKS 288u
#define IOVS   4u
#define FAULT  NVME_SC_DATA_XFER_ERROR /* of testdev.fail_one_in */

struct trio {
	struct bdev bdev;
	struct vbdev_bases bases;
	uint32_t count; /* children of a channel with each base */
	uint8_t tries;  /* of a parent's children that failed */
	bool drops;     /* the channel leaves a base by itself when the first child fails */
	atomic_uint detached, removed, dropped;
	atomic_bool gone;
};

struct trio_ctx {
	uint32_t todo; /* parts that have no child yet: stripes of a READ or WRITE, otherwise bases */
	uint8_t tries;
	bool flushes; /* a WRITE's second group */
};

struct trio_channel {
	struct bdev_child_pool *pool;
};

static struct bdev_module trio_module = {.name = "trio", .io_ctx_size = sizeof(struct trio_ctx)};
BDEV_MODULE_REGISTER(trio_module)

static struct bdev_child_pool *trio_pool(void *channel)
{
	return ((struct trio_channel *)channel)->pool;
}

static struct bdev_child_pool *pool_of(struct bdev_io *io)
{
	return trio_pool(bdev_channel_ctx(io->ch));
}

static struct trio *trio_of(struct bdev_io *io)
{
	return (struct trio *)bdev_channel_bdev(io->ch);
}

static bool is_striped(struct bdev_io *parent)
{
	const struct trio_ctx *ctx = bdev_io_ctx(parent);
	return (parent->type == BDEV_IO_READ || parent->type == BDEV_IO_WRITE) && !ctx->flushes;
}

/* 0, or what bdev_child_get() says. */
static int send_to_base(struct bdev_io *parent, uint32_t base)
{
	const struct trio_ctx *ctx = bdev_io_ctx(parent);
	struct bdev_io *child;
	int rc = bdev_child_get(pool_of(parent), base, parent, &child);

	if (rc == 0) {
		bdev_io_set_rw(child, ctx->flushes ? BDEV_IO_FLUSH : parent->type, NULL, 0, 0, 0);
		bdev_child_send(child);
	}
	return rc == -ENODEV ? 0 : rc;
}

static int send_stripe(struct bdev_io *parent, uint32_t part)
{
	uint64_t stripe = parent->offset_blocks / CHUNK + part, first = stripe * CHUNK, end = first + CHUNK;
	uint64_t parent_end = parent->offset_blocks + parent->num_blocks;
	struct bdev_io *child;
	int rc = bdev_child_get(pool_of(parent), stripe % BASES, parent, &child);

	if (rc != 0) {
		return rc;
	}
	first = first > parent->offset_blocks ? first : parent->offset_blocks;
	end = end < parent_end ? end : parent_end;
	struct iov_cursor c = iov_cursor_at(parent->iovs, (first - parent->offset_blocks) * BLOCK);
	size_t bytes = (end - first) * BLOCK;
	uint32_t n = iov_slice(&c, child->iovs, IOVS, &bytes);
	bdev_io_set_rw(child, parent->type, child->iovs, n, stripe / BASES * CHUNK + first % CHUNK, end - first);
	bdev_child_send(child);
	return 0;
}

static void trio_go_on(struct bdev_io *parent)
{
	struct trio_ctx *ctx = bdev_io_ctx(parent);

	for (uint32_t part = 0; ctx->todo >> part != 0; part++) {
		if (!(ctx->todo >> part & 1)) {
			continue;
		}
		int rc = is_striped(parent) ? send_stripe(parent, part) : send_to_base(parent, part);
		if (rc == -EAGAIN) {
			return;
		}
		ctx->todo &= ~(1u << part);
		if (rc != 0) {
			bdev_children_fail(parent, NVME_SC_INTERNAL);
		}
	}
	bdev_children_sent(parent);
}

static void count_dropped(void *arg)
{
	struct trio *t = arg;
	atomic_fetch_add(&t->dropped, 1);
}

static uint16_t trio_child_ended(struct bdev_io *child, struct bdev_io *parent)
{
	struct trio_ctx *ctx = bdev_io_ctx(parent);
	struct trio *t = trio_of(parent);
	uint32_t base = bdev_child_base(child);

	if (child->status != 0 && t->drops) {
		t->drops = false;
		bdev_child_pool_detach(pool_of(parent), base, count_dropped, t);
	}
	if (child->status == 0 || !is_striped(parent) || ctx->tries == 0) {
		return child->status;
	}
	ctx->tries--;
	uint64_t stripe = child->offset_blocks / CHUNK * BASES + base;
	ctx->todo |= 1u << (stripe - parent->offset_blocks / CHUNK);
	trio_go_on(parent);
	return 0;
}

static void trio_begin(struct bdev_io *parent, uint32_t parts)
{
	struct trio_ctx *ctx = bdev_io_ctx(parent);

	ctx->todo = parts != 0 ? (1u << parts) - 1 : 0;
	bdev_children_begin(parent);
	trio_go_on(parent);
}

static void trio_all_ended(struct bdev_io *parent, uint16_t status)
{
	struct trio_ctx *ctx = bdev_io_ctx(parent);

	if (status == 0 && parent->type == BDEV_IO_WRITE && !ctx->flushes) {
		ctx->flushes = true;
		trio_begin(parent, BASES);
	} else {
		bdev_io_complete(parent, status);
	}
}

static void trio_submit(void *channel, struct bdev_io *io)
{
	struct trio_ctx *ctx = bdev_io_ctx(io);

	if (io->type == BDEV_IO_ABORT) {
		bdev_child_abort(trio_pool(channel), io);
		return;
	}
	*ctx = (struct trio_ctx){.tries = trio_of(io)->tries};
	if (io->type == BDEV_IO_UNMAP) { /* of no base */
		trio_begin(io, 0);
	} else if (is_striped(io)) {
		uint64_t last = io->offset_blocks + io->num_blocks - 1;
		trio_begin(io, (uint32_t)(last / CHUNK - io->offset_blocks / CHUNK) + 1);
	} else {
		trio_begin(io, BASES);
	}
}

static int trio_channel_create(struct bdev *b, void *channel)
{
	struct trio *t = (struct trio *)b;
	struct trio_channel *c = channel;

	c->pool = vbdev_bases_pool_create(&t->bases, t->count, IOVS, NULL);
	return c->pool != NULL ? 0 : -errno;
}

static void trio_channel_destroy(struct bdev *b, void *channel)
{
	bdev_child_pool_destroy(trio_pool(channel));
}

static void trio_reset_channel(struct bdev *b, void *channel)
{
	bdev_child_fail_waiting(trio_pool(channel), NVME_SC_ABORT_REQ);
}

static void trio_closed(void *arg)
{
	struct trio *t = arg;

	bdev_destruct_done(&t->bdev);
	set_done(&t->gone);
}

static void trio_destruct(struct bdev *b)
{
	struct trio *t = (struct trio *)b;
	vbdev_bases_close(&t->bases, trio_closed, t);
}

static const struct bdev_child_ops trio_child_ops = {
	.resume = trio_go_on, .child_ended = trio_child_ended, .all_ended = trio_all_ended};
static const struct bdev_ops trio_ops = {
	.submit = trio_submit,
	.child_ops = &trio_child_ops,
	.channel_create = trio_channel_create,
	.channel_destroy = trio_channel_destroy,
	.channel_size = sizeof(struct trio_channel),
	.reset_channel = trio_reset_channel,
	.destruct = trio_destruct,
};

static void base_removed(struct vbdev_bases *bases, uint32_t base)
{
	atomic_fetch_add(&((struct trio *)bases->bdev)->removed, 1);
	vbdev_bases_detach(bases, base);
}

static void base_detached(struct vbdev_bases *bases, uint32_t base)
{
	atomic_fetch_add(&((struct trio *)bases->bdev)->detached, 1);
	fixture_wake();
}

static const struct vbdev_bases_ops trio_bases_ops = {
	.removed = base_removed, .detached = base_detached, .pool = trio_pool};

static struct trio *the;
static struct testdev *disk[BASES];
static const char *const names[BASES] = {"t0", "t1", "t2"};
static struct user top;
static char error[BDEV_ERROR_MAX];
static uint8_t data[BLOCKS * BLOCK] __attribute__((aligned(4096)));

static void disks_new(void)
{
	for (unsigned i = 0; i < BASES; i++) {
		disk[i] = testdev_new(names[i], BLOCK, BLOCKS / BASES);
		disk[i]->bdev.io_types |= 1u << BDEV_IO_RESET | 1u << BDEV_IO_FLUSH;
		CU_ASSERT_EQUAL_FATAL(testdev_register(disk[i]), 0);
	}
}

static void disks_delete(void)
{
	for (unsigned i = 0; i < BASES; i++) {
		if (disk[i] != NULL) {
			CU_ASSERT_TRUE(testdev_delete(disk[i]));
		}
	}
}

static struct trio *trio_new(uint32_t count)
{
	struct trio *t = aligned_alloc(64, (sizeof(*t) + 63) & ~(size_t)63);

	memset(t, 0, sizeof(*t));
	t->count = count;
	t->bdev.name = "trio";
	t->bdev.product_name = "trio";
	t->bdev.module = &trio_module;
	t->bdev.ops = &trio_ops;
	t->bdev.block_size = BLOCK;
	t->bdev.num_blocks = BLOCKS;
	t->bdev.numa_node = -1;
	t->bdev.io_types = 1u << BDEV_IO_READ | 1u << BDEV_IO_WRITE | 1u << BDEV_IO_ABORT | 1u << BDEV_IO_RESET |
			   1u << BDEV_IO_FLUSH | 1u << BDEV_IO_UNMAP;
	return t;
}

static int trio_open_bases(void)
{
	return vbdev_bases_open(&the->bases, &trio_bases_ops, &the->bdev, names, BASES, "trio", error);
}

static void start(uint32_t count)
{
	disks_new();
	the = trio_new(count);
	CU_ASSERT_EQUAL_FATAL(trio_open_bases(), 0);
	CU_ASSERT_EQUAL_FATAL(bdev_register(&the->bdev), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&top, "trio", true, fixture_thread(0)), 0);
}

static void trio_delete(void)
{
	bdev_unregister(&the->bdev, NULL, NULL);
	CU_ASSERT_TRUE(fixture_wait(&the->gone));
	free(the);
}

static void stop(void)
{
	user_close(&top);
	trio_delete();
	disks_delete();
}

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
	start(1);
	CU_ASSERT_EQUAL(user_io(&top, BDEV_IO_UNMAP, NULL, 0, 1), 0);
	stop();
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

	start(1);
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
	stop();
}

static void test_reset_reaches_bases_whose_children_are_all_out(void)
{
	struct request *r[4];

	start(1);
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
	stop();
}

static void test_a_channel_leaves_a_base_in_the_completion_of_a_child(void)
{
	start(4);
	the->drops = true;
	disk[1]->fail_status = FAULT;
	CU_ASSERT_EQUAL(user_io(&top, BDEV_IO_READ, data, 0, 36), FAULT);
	CU_ASSERT_EQUAL(atomic_load(&the->dropped), 1);
	CU_ASSERT_EQUAL(user_io(&top, BDEV_IO_READ, data, 0, 12), NVME_SC_INTERNAL);
	CU_ASSERT_EQUAL(user_io(&top, BDEV_IO_READ, data, 0, 4), 0);
	stop();
}

/* --- Bases that come and go --- */

static void wait_detached(unsigned n)
{
	CU_ASSERT_TRUE_FATAL(fixture_wait_count(&the->detached, n));
}

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

	start(4);
	for (unsigned i = 0; i < 2; i++) {
		CU_ASSERT_EQUAL_FATAL(user_open(&more[i], "trio", true, fixture_thread(i + 1)), 0);
	}
	vbdev_bases_detach(&the->bases, 1);
	wait_detached(1);
	disk[1]->opens = second_does_not_open;
	for (unsigned i = 0; i < 4; i++) {
		atomic_store(&openings, 0);
		disk[1]->open_error = errors[i];
		CU_ASSERT_EQUAL(vbdev_bases_attach(&the->bases, 1, "t1", "trio", error), errors[i]);
		wait_detached(i + 2);
		CU_ASSERT_EQUAL(bdev_get_claim(bdev_find("t1"), NULL), BDEV_CLAIM_NONE);
		CU_ASSERT_EQUAL(user_io(&more[0], BDEV_IO_READ, data, 4, 4), NVME_SC_INTERNAL);
	}
	disk[1]->opens = NULL;
	CU_ASSERT_EQUAL(vbdev_bases_attach(&the->bases, 1, "t1", "trio", error), 0);
	for (unsigned i = 0; i < 2; i++) {
		CU_ASSERT_EQUAL(user_io(&more[i], BDEV_IO_READ, data, 4, 4), 0);
		user_close(&more[i]);
	}
	stop();
}

static void test_a_bdev_does_not_come_to_stand_on_itself(void)
{
	start(1);
	vbdev_bases_detach(&the->bases, 2);
	wait_detached(1);
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
	stop();
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
	stop();
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
	stop();
}

static void test_each_allocation_of_attaching_may_fail(void)
{
	struct user more;
	unsigned detached = 1;
	int n = 0;

	start(4);
	CU_ASSERT_EQUAL_FATAL(user_open(&more, "trio", true, fixture_thread(1)), 0);
	vbdev_bases_detach(&the->bases, 1);
	wait_detached(detached);
	for (bool failed = true; failed; n++) {
		fail_allocation(n);
		int rc = vbdev_bases_attach(&the->bases, 1, "t1", "trio", error);
		failed = allocations_succeed_again();
		CU_ASSERT_EQUAL(rc, failed ? -ENOMEM : 0);
		if (the->bases.base[1].leaving != NULL) {
			wait_detached(++detached);
		}
		CU_ASSERT_EQUAL(bdev_get_claim(&disk[1]->bdev, NULL), failed ? BDEV_CLAIM_NONE : BDEV_CLAIM_EXCL_WRITE);
	}
	CU_ASSERT_TRUE(n > 4);
	CU_ASSERT_EQUAL(user_io(&top, BDEV_IO_READ, data, 0, 36), 0);
	CU_ASSERT_EQUAL(user_io(&more, BDEV_IO_READ, data, 0, 36), 0);
	user_close(&more);
	stop();
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

	start(4);
	for (bool failed = true; failed; n++) {
		fail_allocation(n);
		int rc = read_metadata();
		failed = allocations_succeed_again();
		CU_ASSERT_EQUAL(rc, failed ? -ENOMEM : 0);
	}
	CU_ASSERT_TRUE(n > 4);
	stop();
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
	UNIT(test_a_base_named_twice_is_refused),
	UNIT(test_each_allocation_of_opening_may_fail),
	UNIT(test_each_allocation_of_attaching_may_fail),
	UNIT(test_each_allocation_of_a_passthru_bdev_may_fail),
	UNIT(test_each_allocation_of_metadata_io_may_fail),
	UNIT_END,
};
UNIT_MAIN("bdev_bases", tests, fixture_start, fixture_stop)
