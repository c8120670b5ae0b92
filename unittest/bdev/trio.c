/* SPDX-License-Identifier: BSD-3-Clause */
#include "unittest/bdev/trio.h"

#include <errno.h>

#include "util/iov.h"

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

const struct vbdev_bases_ops trio_bases_ops = {.removed = base_removed, .detached = base_detached, .pool = trio_pool};

struct trio *the;
struct testdev *disk[BASES];
const char *const disk_names[BASES] = {"t0", "t1", "t2"};
struct user top;
char error[BDEV_ERROR_MAX];

void disks_new(void)
{
	for (unsigned i = 0; i < BASES; i++) {
		disk[i] = testdev_new(disk_names[i], BLOCK, BLOCKS / BASES);
		disk[i]->bdev.io_types |= 1u << BDEV_IO_RESET | 1u << BDEV_IO_FLUSH;
		CU_ASSERT_EQUAL_FATAL(testdev_register(disk[i]), 0);
	}
}

void disks_delete(void)
{
	for (unsigned i = 0; i < BASES; i++) {
		if (disk[i] != NULL) {
			CU_ASSERT_TRUE(testdev_delete(disk[i]));
		}
	}
}

struct trio *trio_new(uint32_t count)
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

int trio_open_bases(void)
{
	return vbdev_bases_open(&the->bases, &trio_bases_ops, &the->bdev, disk_names, BASES, "trio", error);
}

void trio_start(uint32_t count)
{
	disks_new();
	the = trio_new(count);
	CU_ASSERT_EQUAL_FATAL(trio_open_bases(), 0);
	CU_ASSERT_EQUAL_FATAL(bdev_register(&the->bdev), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&top, "trio", true, fixture_thread(0)), 0);
}

void trio_delete(void)
{
	user_close(&top);
	bdev_unregister(&the->bdev, NULL, NULL);
	CU_ASSERT_TRUE(fixture_wait(&the->gone));
	free(the);
}

void trio_stop(void)
{
	trio_delete();
	disks_delete();
}
void trio_wait_detached(unsigned n)
{
	CU_ASSERT_TRUE_FATAL(fixture_wait_count(&the->detached, n));
}
