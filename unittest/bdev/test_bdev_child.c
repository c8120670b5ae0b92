/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups of child I/Os, on one base and on several: a module of the test's own that stripes or mirrors. */
#include "unittest/bdev/fixture.h"

#include <errno.h>

#include "bdev/vbdev/vbdev.h"
#include "util/iov.h"

#define BLOCK  512u
#define CHUNK  4u /* blocks of a stripe */
#define BLOCKS 64u
#define IOVS   3u

struct stack {
	struct bdev bdev;
	struct vbdev_bases bases;
	bool mirror;  /* blocks are on all bases; otherwise in turns of CHUNK blocks */
	bool forgive; /* mirror: a failed read is tried on the next base, a failed write counts for nothing */
	bool keeps;   /* does not go when a base goes, but without it */
	uint32_t count;
	atomic_uint detached, resized, ended;
	atomic_bool gone;
};

struct stack_ctx {
	uint64_t next;            /* stripe: blocks that have children; mirror: bases that have */
	struct iov_cursor memory; /* stripe: of the next block */
	uint32_t base;            /* mirror: to read from */
};

struct stack_channel {
	struct bdev_child_pool *pool;
};

static struct bdev_module stack_module = {.name = "stack", .io_ctx_size = sizeof(struct stack_ctx)};
BDEV_MODULE_REGISTER(stack_module)

static struct bdev_child_pool *stack_pool(void *channel)
{
	return ((struct stack_channel *)channel)->pool;
}

static struct bdev_child_pool *pool_of(struct bdev_io *io)
{
	return stack_pool(bdev_channel_ctx(io->ch));
}

static struct stack *stack_of(struct bdev_io *io)
{
	return (struct stack *)bdev_channel_bdev(io->ch);
}

/* False: the parent waits, or has failed. */
static bool get(struct bdev_io *parent, uint32_t base, struct bdev_io **child)
{
	int rc = bdev_child_get(pool_of(parent), base, parent, child);

	if (rc != 0 && rc != -EAGAIN) {
		bdev_children_fail(parent, NVME_SC_INTERNAL);
		bdev_children_sent(parent);
	}
	return rc == 0;
}

static void stripe_go_on(struct bdev_io *parent)
{
	struct stack_ctx *ctx = bdev_io_ctx(parent);
	const size_t block = stack_of(parent)->bdev.block_size;
	struct bdev_io *child;

	while (ctx->next < parent->num_blocks) {
		uint64_t lba = parent->offset_blocks + ctx->next, stripe = lba / CHUNK;
		uint64_t blocks = CHUNK - lba % CHUNK, left = parent->num_blocks - ctx->next;

		if (!get(parent, stripe % 2, &child)) {
			return;
		}
		blocks = blocks < left ? blocks : left;
		size_t bytes = blocks * block;
		uint32_t n = iov_slice(&ctx->memory, child->iovs, IOVS, &bytes);
		CU_ASSERT_EQUAL(bytes, blocks * block);
		CU_ASSERT_EQUAL(bdev_child_base(child), stripe % 2);
		bdev_io_set_rw(child, parent->type, child->iovs, n, stripe / 2 * CHUNK + lba % CHUNK, blocks);
		bdev_child_set_dif(child, ctx->next);
		ctx->next += blocks;
		bdev_child_send(child);
	}
	bdev_children_sent(parent);
}

/* 0, or what bdev_child_get() says. */
static int mirror_send(struct bdev_io *parent, uint32_t base)
{
	struct bdev_io *child;
	int rc = bdev_child_get(pool_of(parent), base, parent, &child);

	if (rc == 0) {
		bdev_io_set_rw(child, parent->type, parent->iovs, parent->iovcnt, parent->offset_blocks,
			       parent->num_blocks);
		bdev_child_send(child);
	}
	return rc;
}

static int mirror_read(struct bdev_io *parent)
{
	struct stack_ctx *ctx = bdev_io_ctx(parent);
	int rc = mirror_send(parent, ctx->base);

	while (rc == -ENODEV && ctx->base < 1) {
		rc = mirror_send(parent, ++ctx->base);
	}
	if (rc == -ENODEV) {
		bdev_children_fail(parent, NVME_SC_INTERNAL);
	}
	return rc;
}

static void mirror_go_on(struct bdev_io *parent)
{
	struct stack_ctx *ctx = bdev_io_ctx(parent);
	int rc = 0;

	if (parent->type == BDEV_IO_READ) {
		rc = mirror_read(parent);
	} else {
		while (rc != -EAGAIN && ctx->next < 2) {
			rc = mirror_send(parent, (uint32_t)ctx->next);
			ctx->next += rc != -EAGAIN;
		}
	}
	if (rc != -EAGAIN) {
		bdev_children_sent(parent);
	}
}

static uint16_t stack_child_ended(struct bdev_io *child, struct bdev_io *parent)
{
	struct stack *s = stack_of(parent);
	struct stack_ctx *ctx = bdev_io_ctx(parent);

	atomic_fetch_add(&s->ended, 1);
	if (!s->forgive || child->status == 0) {
		return child->status;
	}
	if (parent->type == BDEV_IO_READ) {
		if (ctx->base == 1) {
			return child->status;
		}
		ctx->base = 1;
		mirror_read(parent);
	}
	return 0;
}

static void go_on(struct bdev_io *parent)
{
	if (stack_of(parent)->mirror) {
		mirror_go_on(parent);
	} else {
		stripe_go_on(parent);
	}
}

static void stack_submit(void *channel, struct bdev_io *io)
{
	struct stack_channel *c = channel;

	if (io->type == BDEV_IO_ABORT) {
		bdev_child_abort(c->pool, io);
		return;
	}
	*(struct stack_ctx *)bdev_io_ctx(io) = (struct stack_ctx){.memory = iov_cursor_at(io->iovs, 0)};
	bdev_children_begin(io);
	go_on(io);
}

static int stack_channel_create(struct bdev *b, void *channel)
{
	struct stack *s = (struct stack *)b;
	struct stack_channel *c = channel;

	c->pool = vbdev_bases_pool_create(&s->bases, s->count, IOVS, NULL);
	return c->pool != NULL ? 0 : -errno;
}

static void stack_channel_destroy(struct bdev *b, void *channel)
{
	bdev_child_pool_destroy(stack_pool(channel));
}

static void stack_reset_channel(struct bdev *b, void *channel)
{
	bdev_child_fail_waiting(stack_pool(channel), NVME_SC_ABORT_REQ);
}

static void stack_closed(void *arg)
{
	struct stack *s = arg;

	bdev_destruct_done(&s->bdev);
	set_done(&s->gone);
}

static void stack_destruct(struct bdev *b)
{
	struct stack *s = (struct stack *)b;
	vbdev_bases_close(&s->bases, stack_closed, s);
}

static const struct bdev_child_ops stack_child_ops = {.resume = go_on, .child_ended = stack_child_ended};
static const struct bdev_ops stack_ops = {
	.submit = stack_submit,
	.child_ops = &stack_child_ops,
	.channel_create = stack_channel_create,
	.channel_destroy = stack_channel_destroy,
	.channel_size = sizeof(struct stack_channel),
	.reset_channel = stack_reset_channel,
	.destruct = stack_destruct,
};

static void base_removed(struct vbdev_bases *bases, uint32_t base)
{
	struct stack *s = (struct stack *)bases->bdev;

	if (s->keeps) {
		vbdev_bases_detach(bases, base);
	} else {
		bdev_unregister(&s->bdev, NULL, NULL);
	}
}

static void base_resized(struct vbdev_bases *bases, uint32_t base)
{
	atomic_fetch_add(&((struct stack *)bases->bdev)->resized, base + 1);
}

static void base_detached(struct vbdev_bases *bases, uint32_t base)
{
	atomic_fetch_add(&((struct stack *)bases->bdev)->detached, 1);
	fixture_wake();
}

static const struct vbdev_bases_ops stack_bases_ops = {
	.removed = base_removed, .resized = base_resized, .detached = base_detached, .pool = stack_pool};

static struct stack *the;
static struct testdev *disk[2];
static struct user top, below[2];
static char error[BDEV_ERROR_MAX];
static uint8_t out[BLOCKS * BLOCK] __attribute__((aligned(4096))), in[BLOCKS * BLOCK] __attribute__((aligned(4096)));

static struct stack *stack_new(uint32_t count, bool mirror)
{
	struct stack *s = aligned_alloc(64, (sizeof(*s) + 63) & ~(size_t)63);

	memset(s, 0, sizeof(*s));
	s->count = count;
	s->mirror = mirror;
	s->bdev.name = "stack";
	s->bdev.product_name = "stack";
	s->bdev.module = &stack_module;
	s->bdev.ops = &stack_ops;
	s->bdev.block_size = BLOCK;
	s->bdev.num_blocks = BLOCKS;
	s->bdev.numa_node = -1;
	s->bdev.io_types = 1u << BDEV_IO_READ | 1u << BDEV_IO_WRITE | 1u << BDEV_IO_ABORT;
	return s;
}

/* On two disks of the tests' own. */
static void start(uint32_t count, bool mirror)
{
	const char *const names[] = {"t0", "t1"};

	for (unsigned i = 0; i < 2; i++) {
		disk[i] = testdev_new(names[i], BLOCK, BLOCKS);
		CU_ASSERT_EQUAL_FATAL(testdev_register(disk[i]), 0);
	}
	the = stack_new(count, mirror);
	CU_ASSERT_EQUAL_FATAL(vbdev_bases_open(&the->bases, &stack_bases_ops, &the->bdev, names, 2, "stack", error), 0);
	CU_ASSERT_EQUAL_FATAL(bdev_register(&the->bdev), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&top, "stack", true, fixture_thread(0)), 0);
	for (unsigned i = 0; i < 2; i++) {
		CU_ASSERT_EQUAL_FATAL(user_open(&below[i], names[i], false, fixture_thread(0)), 0);
		below[i].close_on_remove = true;
	}
}

static void stack_delete(void)
{
	user_close(&top);
	bdev_unregister(&the->bdev, NULL, NULL);
	CU_ASSERT_TRUE(fixture_wait(&the->gone));
	free(the);
}

static void stop(void)
{
	stack_delete();
	for (unsigned i = 0; i < 2; i++) {
		if (below[i].desc != NULL) {
			CU_ASSERT_TRUE(testdev_delete(disk[i]));
		}
	}
}

static struct request *submit(enum bdev_io_type type, uint64_t offset, uint64_t num)
{
	static struct iovec iovs[32];
	static unsigned turn;
	struct iovec *iov = &iovs[turn++ % 32];
	struct request *r = request_new(&top);

	*iov = (struct iovec){in, num * BLOCK};
	bdev_io_set_rw(r->io, type, iov, 1, offset, num);
	request_submit(r);
	return r;
}

static bool has_held(void *arg)
{
	return atomic_load(&disk[0]->held) + atomic_load(&disk[1]->held) >= *(const unsigned *)arg;
}

static void wait_held(unsigned n)
{
	CU_ASSERT_TRUE_FATAL(fixture_poll(has_held, &n));
}

static uint32_t abort_request(struct request *target)
{
	struct request *abort = request_new(&top);

	abort->io->type = BDEV_IO_ABORT;
	abort->io->abort.target = target->io;
	CU_ASSERT_EQUAL(request_run(abort), 0);
	uint32_t cdw0 = abort->cdw0;
	request_free(abort);
	return cdw0;
}

static void fill(uint8_t *p, size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n; i++) {
		p[i] = (uint8_t)fixture_random(&seed);
	}
}

/* --- Data --- */

static void check_stripes(void)
{
	for (uint64_t lba = 0; lba < BLOCKS; lba++) {
		uint64_t stripe = lba / CHUNK;
		const uint8_t *on_disk = disk[stripe % 2]->memory + (stripe / 2 * CHUNK + lba % CHUNK) * BLOCK;
		CU_ASSERT_EQUAL(memcmp(on_disk, out + lba * BLOCK, BLOCK), 0);
	}
}

static void test_children_go_to_other_offsets_with_their_part_of_the_data(void)
{
	for (uint32_t count = 1; count <= 16; count *= 4) {
		start(count, false);
		fill(out, sizeof(out), count);
		CU_ASSERT_EQUAL(user_io(&top, BDEV_IO_WRITE, out, 0, BLOCKS), 0);
		check_stripes();
		for (uint64_t offset = 0; offset < 9; offset++) {
			for (uint64_t num = 1; num < 20; num += 3) {
				memset(in, 0, sizeof(in));
				CU_ASSERT_EQUAL(user_io(&top, BDEV_IO_READ, in, offset, num), 0);
				CU_ASSERT_EQUAL(memcmp(in, out + offset * BLOCK, num * BLOCK), 0);
			}
		}
		stop();
	}
}

/* The disks are short of slots, and complete in any order: the layer tries again what they refuse. */
static void test_many_parents_share_few_children_and_busy_disks(void)
{
	struct request *r[200];
	struct iovec iov[200];

	start(2, false);
	for (unsigned i = 0; i < 2; i++) {
		disk[i]->slots = 1;
		disk[i]->shuffle = true;
	}
	fill(out, sizeof(out), 7);
	for (unsigned i = 0; i < 200; i++) { /* 100 for each half of the disk: writes of the same data */
		uint64_t offset = i % 2 * (BLOCKS / 2);
		r[i] = request_new(&top);
		iov[i] = (struct iovec){out + offset * BLOCK, BLOCKS / 2 * BLOCK};
		bdev_io_set_rw(r[i]->io, BDEV_IO_WRITE, &iov[i], 1, offset, BLOCKS / 2);
		request_submit(r[i]);
	}
	for (unsigned i = 0; i < 200; i++) {
		CU_ASSERT_EQUAL(request_finish(r[i]), 0);
	}
	check_stripes();
	CU_ASSERT_TRUE(atomic_load(&disk[0]->max_depth) <= 2);
	stop();
}

/* Their protection information names the stack's blocks, which are not the base's. */
static void test_children_carry_the_tags_of_the_parents_blocks(void)
{
	const char *const names[] = {"m0", "m1"};
	const struct bdev_md md = {.size = 8, .dif_type = 1, .checks = BDEV_DIF_GUARD | BDEV_DIF_REF};
	struct iovec iov = {out, 30 * BLOCK};

	for (unsigned i = 0; i < 2; i++) {
		const struct bdev_malloc_opts opts = {
			.name = names[i], .block_size = BLOCK, .num_blocks = BLOCKS, .numa_id = -1, .md = md};
		CU_ASSERT_EQUAL_FATAL(bdev_malloc_create(&opts, NULL, error), 0);
	}
	the = stack_new(2, false);
	the->bdev.block_size = BLOCK + md.size;
	the->bdev.md = md;
	CU_ASSERT_EQUAL_FATAL(vbdev_bases_open(&the->bases, &stack_bases_ops, &the->bdev, names, 2, "stack", error), 0);
	CU_ASSERT_EQUAL_FATAL(bdev_register(&the->bdev), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&top, "stack", true, fixture_thread(0)), 0);
	fill(out, sizeof(out), 11);
	struct request *r = request_new(&top);
	bdev_io_set_rw(r->io, BDEV_IO_WRITE, &iov, 1, 7, 30);
	bdev_io_set_dif(r->io, BDEV_DIF_PLAIN, 0, 0, 0);
	CU_ASSERT_EQUAL(request_run(r), 0);
	memset(in, 0, sizeof(in));
	iov.iov_base = in;
	r->io->type = BDEV_IO_READ;
	CU_ASSERT_EQUAL(request_run(r), 0);
	CU_ASSERT_EQUAL(memcmp(in, out, 30 * BLOCK), 0);
	bdev_io_set_dif(r->io, BDEV_DIF_PLAIN | BDEV_DIF_TAGS | BDEV_DIF_REF, 8, 0, 0); /* one too many */
	CU_ASSERT_EQUAL(request_run(r), BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_REFTAG_CHECK) | NVME_SC_DNR);
	request_free(r);
	stack_delete();
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m1"), 0);
}

/* --- Errors --- */

static void test_the_first_error_is_that_of_the_parent_when_all_have_ended(void)
{
	start(8, false);
	disk[0]->hold = disk[1]->hold = true;
	struct request *r = submit(BDEV_IO_READ, 0, 16); /* four children */
	wait_held(4);
	testdev_release(disk[1], &below[1], BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_READ_ERROR));
	CU_ASSERT_FALSE(atomic_load(&r->done));
	testdev_release(disk[0], &below[0], NVME_SC_INTERNAL);
	CU_ASSERT_EQUAL(request_finish(r), BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_READ_ERROR));
	CU_ASSERT_EQUAL(atomic_load(&the->ended), 4);
	stop();
}

static void test_a_mirror_makes_up_for_an_error_of_one_base(void)
{
	start(1, true);
	fill(out, BLOCK, 1);
	CU_ASSERT_EQUAL(user_io(&top, BDEV_IO_WRITE, out, 3, 1), 0);
	CU_ASSERT_EQUAL(memcmp(disk[0]->memory + 3 * BLOCK, disk[1]->memory + 3 * BLOCK, BLOCK), 0);
	disk[0]->fail_status = NVME_SC_INTERNAL;
	CU_ASSERT_EQUAL(user_io(&top, BDEV_IO_READ, in, 3, 1), NVME_SC_INTERNAL);
	the->forgive = true;
	memset(in, 0, BLOCK);
	CU_ASSERT_EQUAL(user_io(&top, BDEV_IO_READ, in, 3, 1), 0);
	CU_ASSERT_EQUAL(memcmp(in, out, BLOCK), 0);
	CU_ASSERT_EQUAL(user_io(&top, BDEV_IO_WRITE, out, 3, 1), 0);
	disk[1]->fail_status = NVME_SC_DATA_XFER_ERROR;
	CU_ASSERT_EQUAL(user_io(&top, BDEV_IO_READ, in, 3, 1), NVME_SC_DATA_XFER_ERROR);
	stop();
}

/* The second base has no child left for the read that the first has failed: it waits. */
static void test_another_try_may_wait_for_a_child(void)
{
	start(1, true);
	the->forgive = true;
	disk[0]->hold = disk[1]->hold = true;
	struct request *w = submit(BDEV_IO_WRITE, 0, 1); /* one on each disk */
	wait_held(2);
	struct request *r = submit(BDEV_IO_READ, 1, 1);
	testdev_release(disk[0], &below[0], 0);
	wait_held(2); /* the read is with the first disk; the write's other child with the second */
	testdev_release(disk[0], &below[0], NVME_SC_INTERNAL);
	CU_ASSERT_FALSE(atomic_load(&r->done));
	disk[1]->hold = false;
	testdev_release(disk[1], &below[1], 0);
	CU_ASSERT_EQUAL(request_finish(w), 0);
	CU_ASSERT_EQUAL(request_finish(r), 0);
	stop();
}

/* --- Abort and reset --- */

static void test_abort_ends_every_child(void)
{
	start(8, false);
	disk[0]->hold = disk[1]->hold = true;
	struct request *r = submit(BDEV_IO_READ, 0, 24), *other = submit(BDEV_IO_READ, 0, 4);
	wait_held(7);
	CU_ASSERT_EQUAL(abort_request(r), 0);
	CU_ASSERT_EQUAL(request_finish(r), NVME_SC_ABORT_REQ);
	CU_ASSERT_EQUAL(atomic_load(&disk[0]->held), 1);
	CU_ASSERT_FALSE(atomic_load(&other->done));
	testdev_release(disk[0], &below[0], 0);
	CU_ASSERT_EQUAL(request_finish(other), 0);
	stop();
}

static void test_abort_reaches_a_parent_that_waits_with_children_out(void)
{
	start(1, false);
	disk[0]->hold = disk[1]->hold = true;
	struct request *r = submit(BDEV_IO_READ, 0, 24), *behind = submit(BDEV_IO_READ, 0, 4);
	wait_held(2);
	CU_ASSERT_EQUAL(abort_request(behind), 0); /* it has no child yet */
	CU_ASSERT_EQUAL(request_finish(behind), NVME_SC_ABORT_REQ);
	CU_ASSERT_EQUAL(abort_request(r), 0);
	CU_ASSERT_EQUAL(request_finish(r), NVME_SC_ABORT_REQ);
	CU_ASSERT_EQUAL(atomic_load(&the->ended), 2); /* no more were made */
	stop();
}

static void test_abort_that_the_base_does_not_hear_says_so(void)
{
	start(2, false);
	disk[0]->hold = disk[1]->hold = true;
	disk[0]->deaf = disk[1]->deaf = true;
	struct request *r = submit(BDEV_IO_READ, 0, 16);
	wait_held(4);
	CU_ASSERT_EQUAL(abort_request(r), 1);
	testdev_release(disk[0], &below[0], 0);
	testdev_release(disk[1], &below[1], 0);
	CU_ASSERT_EQUAL(request_finish(r), 0); /* it was whole already */
	stop();
}

/* Aborts of several parents at once share the base's one child for them. */
static void test_many_aborts_at_once(void)
{
	struct request *r[8], *abort[8];

	start(8, true);
	disk[0]->hold = disk[1]->hold = true;
	for (unsigned i = 0; i < 8; i++) {
		r[i] = submit(BDEV_IO_WRITE, i, 1);
	}
	wait_held(16);
	for (unsigned i = 0; i < 8; i++) {
		abort[i] = request_new(&top);
		abort[i]->io->type = BDEV_IO_ABORT;
		abort[i]->io->abort.target = r[i]->io;
		request_submit(abort[i]);
	}
	for (unsigned i = 0; i < 8; i++) {
		CU_ASSERT_EQUAL(request_finish(abort[i]), 0);
		CU_ASSERT_EQUAL(request_finish(r[i]), NVME_SC_ABORT_REQ);
	}
	stop();
}

static struct request *submit_abort(struct request *target)
{
	struct request *abort = request_new(&top);

	abort->io->type = BDEV_IO_ABORT;
	abort->io->abort.target = target->io;
	request_submit(abort);
	return abort;
}

/* The base does not take an ABORT; the children that the aborts are for end by themselves, and the aborts with them. */
static void test_aborts_that_wait_end_when_there_is_nothing_left_to_abort(void)
{
	struct request *r[3], *abort[3];

	start(8, true);
	disk[0]->hold = true;
	disk[0]->nomem_type = BDEV_IO_ABORT;
	for (unsigned i = 0; i < 3; i++) {
		r[i] = submit(BDEV_IO_READ, i, 1);
	}
	wait_held(3);
	for (unsigned i = 0; i < 3; i++) {
		abort[i] = submit_abort(r[i]);
	}
	testdev_release(disk[0], &below[0], 0);
	for (unsigned i = 0; i < 3; i++) {
		CU_ASSERT_EQUAL(request_finish(r[i]), 0);
	}
	for (unsigned i = 0; i < 3; i++) {
		CU_ASSERT_TRUE(request_wait(abort[i]));
		CU_ASSERT_EQUAL(abort[i]->status, 0);
		CU_ASSERT_EQUAL(abort[i]->cdw0, 1);
		request_free(abort[i]);
	}
	disk[0]->nomem_type = 0;
	stop();
}

static void test_one_parent_is_aborted_twice(void)
{
	start(1, true);
	disk[0]->hold = disk[1]->hold = true;
	disk[0]->nomem_type = disk[1]->nomem_type = BDEV_IO_ABORT;
	struct request *w = submit(BDEV_IO_WRITE, 0, 1);
	wait_held(2);
	struct request *first = submit_abort(w), *second = submit_abort(w);
	CU_ASSERT_FALSE(atomic_load(&w->done));
	disk[0]->nomem_type = disk[1]->nomem_type = 0;
	CU_ASSERT_EQUAL(request_finish(first), 0);
	CU_ASSERT_EQUAL(request_finish(second), 0);
	CU_ASSERT_EQUAL(request_finish(w), NVME_SC_ABORT_REQ);
	stop();
}

static void test_reset_ends_those_that_wait_and_waits_for_the_children(void)
{
	start(1, false);
	disk[0]->hold = disk[1]->hold = true;
	struct request *a = submit(BDEV_IO_READ, 0, 24), *b = submit(BDEV_IO_READ, 4, 4);
	wait_held(2);
	struct request *reset = request_new(&top);
	reset->io->type = BDEV_IO_RESET;
	request_submit(reset);
	CU_ASSERT_EQUAL(request_finish(b), NVME_SC_ABORT_REQ); /* had no child */
	CU_ASSERT_FALSE(atomic_load(&a->done));
	CU_ASSERT_FALSE(atomic_load(&reset->done));
	testdev_release(disk[0], &below[0], 0);
	testdev_release(disk[1], &below[1], 0);
	CU_ASSERT_EQUAL(request_finish(a), NVME_SC_ABORT_REQ);
	CU_ASSERT_EQUAL(request_finish(reset), 0);
	CU_ASSERT_EQUAL(atomic_load(&the->ended), 2);
	stop();
}

/* --- Bases that come and go --- */

static void test_bases_are_claimed_all_or_none(void)
{
	const char *const names[] = {"m0", "m1", "nowhere"};
	struct stack *s = stack_new(1, true), *second = stack_new(1, true);

	make_malloc("m0", BLOCK, BLOCKS);
	make_malloc("m1", BLOCK, BLOCKS);
	CU_ASSERT_EQUAL(vbdev_bases_open(&s->bases, &stack_bases_ops, &s->bdev, names, 3, "stack", error), -ENODEV);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "nowhere"));
	CU_ASSERT_EQUAL(bdev_get_claim(bdev_find("m0"), NULL), BDEV_CLAIM_NONE);
	CU_ASSERT_EQUAL(vbdev_bases_open(&s->bases, &stack_bases_ops, &s->bdev, &names[1], 1, "stack", error), 0);
	CU_ASSERT_EQUAL(vbdev_bases_open(&second->bases, &stack_bases_ops, &second->bdev, names, 2, "second", error),
			-EPERM);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "claimed by stack"));
	CU_ASSERT_EQUAL(bdev_get_claim(bdev_find("m0"), NULL), BDEV_CLAIM_NONE);
	vbdev_bases_close(&s->bases, NULL, NULL);
	CU_ASSERT_EQUAL(bdev_get_claim(bdev_find("m1"), NULL), BDEV_CLAIM_NONE);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m1"), 0);
	free(s);
	free(second);
}

static void deletion_done(void *flag, int rc)
{
	set_done(flag);
}

static void test_a_base_that_goes_in_flight_is_left_when_its_children_have_ended(void)
{
	atomic_bool deleted = false;

	start(4, true);
	the->forgive = the->keeps = true;
	disk[0]->hold = disk[1]->hold = true;
	fill(in, BLOCK, 3);
	struct request *w = submit(BDEV_IO_WRITE, 0, 1);
	wait_held(2);
	/* The test's own descriptor stays for a moment: it reaches the disk's channel. */
	below[1].close_on_remove = false;
	bdev_unregister(&disk[1]->bdev, deletion_done, &deleted);
	testdev_release(disk[0], &below[0], 0);
	CU_ASSERT_FALSE(atomic_load(&w->done)); /* the other child is still out, and the base waits for it */
	CU_ASSERT_EQUAL(atomic_load(&the->detached), 0);
	testdev_release(disk[1], &below[1], NVME_SC_INTERNAL);
	user_close(&below[1]);
	CU_ASSERT_EQUAL(request_finish(w), 0);
	CU_ASSERT_TRUE(fixture_wait_count(&the->detached, 1));
	CU_ASSERT_TRUE(fixture_wait(&deleted));
	disk[0]->hold = false;
	CU_ASSERT_EQUAL(user_io(&top, BDEV_IO_WRITE, in, 2, 1), 0);
	CU_ASSERT_EQUAL(user_io(&top, BDEV_IO_READ, in, 2, 1), 0);
	stop();
}

static void test_those_that_wait_for_a_base_that_goes_learn_of_it(void)
{
	atomic_bool deleted = false;

	start(1, false);
	the->keeps = true;
	disk[0]->hold = disk[1]->hold = true;
	struct request *a = submit(BDEV_IO_READ, 4, 4), *b = submit(BDEV_IO_READ, 4, 4);
	wait_held(1);
	below[1].close_on_remove = false;
	bdev_unregister(&disk[1]->bdev, deletion_done, &deleted);
	CU_ASSERT_EQUAL(request_finish(b), NVME_SC_INTERNAL); /* by the module's rule */
	testdev_release(disk[1], &below[1], 0);
	user_close(&below[1]);
	CU_ASSERT_EQUAL(request_finish(a), 0);
	CU_ASSERT_TRUE(fixture_wait(&deleted));
	CU_ASSERT_EQUAL(user_io(&top, BDEV_IO_READ, in, 4, 4), NVME_SC_INTERNAL);
	stop();
}

static void test_a_free_place_is_filled_while_io_goes_on(void)
{
	atomic_bool deleted = false;
	struct user second;

	start(4, true);
	the->keeps = true;
	CU_ASSERT_EQUAL_FATAL(user_open(&second, "stack", true, fixture_thread(1)), 0);
	CU_ASSERT_EQUAL(vbdev_bases_attach(&the->bases, 1, "t1", "stack", error), -EBUSY);
	bdev_unregister(&disk[1]->bdev, deletion_done, &deleted);
	CU_ASSERT_TRUE(fixture_wait(&deleted));
	CU_ASSERT_EQUAL(atomic_load(&the->detached), 1);
	CU_ASSERT_EQUAL(vbdev_bases_attach(&the->bases, 1, "nowhere", "stack", error), -ENODEV);
	disk[1] = testdev_new("t1", BLOCK, BLOCKS);
	CU_ASSERT_EQUAL_FATAL(testdev_register(disk[1]), 0);
	disk[0]->hold = true;
	fill(in, BLOCK, 4);
	struct request *w = submit(BDEV_IO_WRITE, 9, 1);
	wait_held(1);
	CU_ASSERT_EQUAL(vbdev_bases_attach(&the->bases, 1, "t1", "stack", error), 0);
	disk[0]->hold = false;
	testdev_release(disk[0], &below[0], 0);
	CU_ASSERT_EQUAL(request_finish(w), 0);
	fill(out, BLOCK, 5);
	CU_ASSERT_EQUAL(user_io(&second, BDEV_IO_WRITE, out, 9, 1), 0);
	CU_ASSERT_EQUAL(memcmp(disk[1]->memory + 9 * BLOCK, out, BLOCK), 0);
	user_close(&second);
	stack_delete();
	CU_ASSERT_TRUE(testdev_delete(disk[0]));
	CU_ASSERT_TRUE(testdev_delete(disk[1]));
}

static bool opens_nowhere(struct testdev *t)
{
	return false;
}

static void test_a_base_that_a_thread_cannot_use_does_not_come_in(void)
{
	atomic_bool deleted = false;

	start(4, true);
	the->keeps = true;
	bdev_unregister(&disk[1]->bdev, deletion_done, &deleted);
	CU_ASSERT_TRUE(fixture_wait(&deleted));
	disk[1] = testdev_new("t1", BLOCK, BLOCKS);
	disk[1]->opens = opens_nowhere;
	CU_ASSERT_EQUAL_FATAL(testdev_register(disk[1]), 0);
	CU_ASSERT_EQUAL(vbdev_bases_attach(&the->bases, 1, "t1", "stack", error), -ENOMEM);
	CU_ASSERT_TRUE(fixture_wait_count(&the->detached, 2));
	CU_ASSERT_EQUAL(user_io(&top, BDEV_IO_WRITE, in, 0, 1), 0);
	CU_ASSERT_TRUE(testdev_delete(disk[1]));
	stop();
}

/* A base is being left when the whole goes. */
static void test_deletion_waits_for_a_base_that_is_being_detached(void)
{
	atomic_bool deleted = false;

	start(4, true);
	the->keeps = true;
	bdev_unregister(&disk[1]->bdev, deletion_done, &deleted);
	stop(); /* before the message that ends the detaching has come */
	CU_ASSERT_TRUE(fixture_wait(&deleted));
}

static void test_a_stack_without_a_rule_goes_with_its_base(void)
{
	atomic_bool deleted = false;

	start(4, false);
	top.close_on_remove = true;
	bdev_unregister(&disk[0]->bdev, deletion_done, &deleted);
	CU_ASSERT_TRUE(fixture_wait(&deleted));
	CU_ASSERT_TRUE(fixture_wait(&the->gone));
	free(the);
	CU_ASSERT_TRUE(testdev_delete(disk[1]));
}

static void test_resize_names_the_base(void)
{
	start(1, true);
	CU_ASSERT_EQUAL(bdev_resize(&disk[1]->bdev, BLOCKS / 2), 0);
	CU_ASSERT_EQUAL(atomic_load(&the->resized), 2);
	CU_ASSERT_EQUAL(bdev_resize(&disk[1]->bdev, BLOCKS), 0);
	stop();
}

/* The count in an I/O has 16 bits: with more children than that it would reach 0 before they have ended. */
static void test_a_pool_has_no_more_children_than_an_io_can_count(void)
{
	static const struct {
		uint32_t n_bases, count;
		bool fits;
	} cases[] = {{1, 65532, true}, {1, 65533, false}, {2, 32765, true},       {2, 32766, false},
		     {64, 1021, true}, {64, 1022, false}, {1, UINT32_MAX, false}, {64, UINT32_MAX, false}};
	static struct bdev_desc *const absent[64];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		errno = 0;
		struct bdev_child_pool *pool = bdev_child_pool_create_for(&(struct bdev_child_pool_opts){
			.bases = absent, .n_bases = cases[i].n_bases, .count = cases[i].count});
		CU_ASSERT_EQUAL(pool != NULL, cases[i].fits);
		CU_ASSERT(cases[i].fits || errno == EINVAL);
		bdev_child_pool_destroy(pool);
	}
}

static const struct unit_test tests[] = {
	UNIT(test_children_go_to_other_offsets_with_their_part_of_the_data),
	UNIT(test_many_parents_share_few_children_and_busy_disks),
	UNIT(test_children_carry_the_tags_of_the_parents_blocks),
	UNIT(test_the_first_error_is_that_of_the_parent_when_all_have_ended),
	UNIT(test_a_mirror_makes_up_for_an_error_of_one_base),
	UNIT(test_another_try_may_wait_for_a_child),
	UNIT(test_abort_ends_every_child),
	UNIT(test_abort_reaches_a_parent_that_waits_with_children_out),
	UNIT(test_abort_that_the_base_does_not_hear_says_so),
	UNIT(test_many_aborts_at_once),
	UNIT(test_aborts_that_wait_end_when_there_is_nothing_left_to_abort),
	UNIT(test_one_parent_is_aborted_twice),
	UNIT(test_reset_ends_those_that_wait_and_waits_for_the_children),
	UNIT(test_bases_are_claimed_all_or_none),
	UNIT(test_a_base_that_goes_in_flight_is_left_when_its_children_have_ended),
	UNIT(test_those_that_wait_for_a_base_that_goes_learn_of_it),
	UNIT(test_a_free_place_is_filled_while_io_goes_on),
	UNIT(test_a_base_that_a_thread_cannot_use_does_not_come_in),
	UNIT(test_deletion_waits_for_a_base_that_is_being_detached),
	UNIT(test_a_stack_without_a_rule_goes_with_its_base),
	UNIT(test_resize_names_the_base),
	UNIT(test_a_pool_has_no_more_children_than_an_io_can_count),
	UNIT_END,
};
UNIT_MAIN("bdev_child", tests, fixture_start, fixture_stop)
