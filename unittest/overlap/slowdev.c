/* SPDX-License-Identifier: BSD-3-Clause */
/* Bdevs that answer late, in any order, or not at all. */
#include "unittest/overlap/overlap.h"

#include "bdev/module.h"
#include <errno.h>

/* A remote target's store is late by at most this, which is less than the target's quiesce_limit_ms. What takes longer
 * than a fence waits may be carried out behind newer writes: doc/host.md has that window. */
#define STORE_STICK_US 4000000

bool ov_plant_stale_write;

struct slowdev_channel {
	TAILQ_HEAD(, slowdev_ctx) held;
	struct slowdev *dev;
	struct thread *thread;
	TAILQ_ENTRY(slowdev_channel) link;
};

struct slowdev_ctx {
	struct thread_timer timer;
	struct slowdev_channel *channel;
	TAILQ_ENTRY(slowdev_ctx) link;
};

/* What bdevs b0 and b1 have in common: two targets export one store. */
static uint8_t shared_memory[2 * OV_BLOCKS * OV_BLOCK];

struct slowdev {
	struct bdev bdev;
	uint8_t *memory;
	uint32_t max_us;
	enum ov_stick stick;
	uint64_t random;
	TAILQ_HEAD(, slowdev_channel) channels;
	TAILQ_ENTRY(slowdev) link;
	char name[16];
};
static TAILQ_HEAD(, slowdev) slowdevs = TAILQ_HEAD_INITIALIZER(slowdevs);

static struct bdev_module slowdev_module = {.name = "slowdev", .io_ctx_size = sizeof(struct slowdev_ctx)};
BDEV_MODULE_REGISTER(slowdev_module)

static uint16_t slowdev_move(struct slowdev *d, struct bdev_io *io)
{
	uint8_t *disk = d->memory + io->offset_blocks * OV_BLOCK;

	for (uint32_t i = 0; i < io->iovcnt; i++) {
		size_t n = io->iovs[i].iov_len;
		if (io->type == BDEV_IO_READ) {
			memcpy(io->iovs[i].iov_base, disk, n);
		} else {
			memcpy(disk, io->iovs[i].iov_base, n);
		}
		disk += n;
	}
	return 0;
}

static uint16_t slowdev_execute(struct slowdev *d, struct bdev_io *io)
{
	if (io->type == BDEV_IO_READ || io->type == BDEV_IO_WRITE) {
		slowdev_move(d, io);
	}
	if (io->type == BDEV_IO_WRITE) {
		for (uint64_t b = 0; b < io->num_blocks; b++) {
			ov_write_carried_out(
				(const uint64_t *)(const void *)(d->memory + (io->offset_blocks + b) * OV_BLOCK));
		}
	}
	return 0;
}

static void slowdev_end(struct slowdev_ctx *ctx, uint16_t status)
{
	struct slowdev_channel *c = ctx->channel;
	struct bdev_io *io = bdev_io_from_ctx(ctx);

	thread_timer_stop(&ctx->timer);
	TAILQ_REMOVE(&c->held, ctx, link);
	bdev_io_complete(io, status != 0 ? status : slowdev_execute(c->dev, io));
}

static void slowdev_due(void *arg)
{
	slowdev_end(arg, 0);
}

/* What the planted fault carries out later: a copy of the data, when its command has long ended. */
static uint64_t late_block[OV_BLOCK / sizeof(uint64_t)];
static unsigned late_messages;

static void slowdev_carry_out(void *arg)
{
	if (--late_messages == 0) {
		ov_write_carried_out(late_block);
	} else {
		thread_send(thread_control(), slowdev_carry_out, NULL);
	}
}

static void slowdev_carry_out_later(const struct bdev_io *io)
{
	if (io->type == BDEV_IO_WRITE && late_messages == 0) {
		memcpy(late_block, io->iovs[0].iov_base, sizeof(late_block));
		late_messages = 200;
		thread_send(thread_control(), slowdev_carry_out, NULL);
	}
}

static void slowdev_abort(struct slowdev *d, struct slowdev_channel *c, struct bdev_io *io)
{
	struct slowdev_ctx *target = bdev_io_ctx(io->abort.target), *ctx;

	io->cdw0 = 1;
	TAILQ_FOREACH (ctx, &c->held, link) {
		if (ctx == target && d->stick != OV_STICK_DEAF) {
			if (ov_plant_stale_write) {
				slowdev_carry_out_later(bdev_io_from_ctx(ctx));
			}
			slowdev_end(ctx, NVME_SC_ABORT_REQ);
			io->cdw0 = 0;
			break;
		}
	}
	bdev_io_complete(io, 0);
}

static void slowdev_submit(void *channel, struct bdev_io *io)
{
	struct slowdev_channel *c = channel;
	struct slowdev *d = c->dev;
	struct slowdev_ctx *ctx = bdev_io_ctx(io);

	if (io->type == BDEV_IO_ABORT) {
		slowdev_abort(d, c, io);
		return;
	}
	uint32_t us = d->max_us != 0 ? (uint32_t)(fixture_random(&d->random) % d->max_us) : 0;
	if (d->stick == OV_STICK_NOT && us == 0) {
		bdev_io_complete(io, slowdev_execute(d, io));
		return;
	}
	*ctx = (struct slowdev_ctx){.timer = {.fn = slowdev_due, .arg = ctx}, .channel = c};
	TAILQ_INSERT_TAIL(&c->held, ctx, link);
	if (d->stick == OV_STICK_NOT) {
		thread_timer_start(&ctx->timer, us);
	} else if (ov_bdev_is_remote_store(d->name)) {
		thread_timer_start(&ctx->timer, STORE_STICK_US);
	}
}

static int slowdev_channel_create(struct bdev *b, void *channel)
{
	struct slowdev_channel *c = channel;

	c->dev = (struct slowdev *)b;
	c->thread = thread_current();
	TAILQ_INIT(&c->held);
	TAILQ_INSERT_TAIL(&c->dev->channels, c, link);
	return 0;
}

static void slowdev_channel_destroy(struct bdev *b, void *channel)
{
	struct slowdev_channel *c = channel;

	if (!TAILQ_EMPTY(&c->held)) {
		ov_fail("a channel of %s was destroyed while I/O was under way", bdev_name(b));
	}
	TAILQ_REMOVE(&c->dev->channels, c, link);
}

static void slowdev_reset_channel(struct bdev *b, void *channel)
{
	struct slowdev_channel *c = channel;

	while (!TAILQ_EMPTY(&c->held)) {
		slowdev_end(TAILQ_FIRST(&c->held), NVME_SC_ABORT_REQ);
	}
}

static bool is_shared(const char *name)
{
	return strcmp(name, "b0") == 0 || strcmp(name, "b1") == 0;
}

static void slowdev_free(struct slowdev *d)
{
	if (d->memory != shared_memory) {
		free(d->memory);
	}
	free(d);
}

static void slowdev_destruct(struct bdev *b)
{
	struct slowdev *d = (struct slowdev *)b;

	if (!TAILQ_EMPTY(&d->channels)) {
		ov_fail("%s was destructed while it had channels", d->name);
	}
	TAILQ_REMOVE(&slowdevs, d, link);
	bdev_destruct_done(b);
	slowdev_free(d);
}

static const struct bdev_ops slowdev_ops = {
	.submit = slowdev_submit,
	.channel_create = slowdev_channel_create,
	.channel_destroy = slowdev_channel_destroy,
	.channel_size = sizeof(struct slowdev_channel),
	.reset_channel = slowdev_reset_channel,
	.destruct = slowdev_destruct,
};

int ov_slowdev_create(const char *name, uint32_t max_us)
{
	struct slowdev *d = aligned_alloc(64, (sizeof(*d) + 63) & ~(size_t)63);

	memset(d, 0, sizeof(*d));
	snprintf(d->name, sizeof(d->name), "%s", name);
	d->max_us = max_us;
	d->random = max_us;
	d->memory = is_shared(name) ? shared_memory : calloc(2 * OV_BLOCKS, OV_BLOCK);
	TAILQ_INIT(&d->channels);
	d->bdev.name = d->name;
	d->bdev.product_name = "Slow disk";
	d->bdev.module = &slowdev_module;
	d->bdev.ops = &slowdev_ops;
	d->bdev.block_size = OV_BLOCK;
	d->bdev.num_blocks = OV_BLOCKS;
	d->bdev.numa_node = -1;
	d->bdev.io_types = 1u << BDEV_IO_READ | 1u << BDEV_IO_WRITE | 1u << BDEV_IO_ABORT | 1u << BDEV_IO_FLUSH |
			   1u << BDEV_IO_UNMAP;
	int rc = bdev_register(&d->bdev);
	if (rc != 0) {
		slowdev_free(d);
		return rc;
	}
	TAILQ_INSERT_TAIL(&slowdevs, d, link);
	return 0;
}

static struct slowdev *slowdev_find(const char *name)
{
	struct slowdev *d;

	TAILQ_FOREACH (d, &slowdevs, link) {
		if (strcmp(d->name, name) == 0) {
			break;
		}
	}
	return d;
}

void ov_slowdev_delete(const char *name, bdev_delete_cb cb, void *arg)
{
	struct slowdev *d = slowdev_find(name);

	if (d == NULL) {
		cb(arg, -ENODEV);
		return;
	}
	bdev_unregister(&d->bdev, cb, arg);
}

void ov_slowdevs_reset(void)
{
	memset(shared_memory, 0, sizeof(shared_memory));
}

void ov_slowdev_resize(const char *name, uint64_t blocks)
{
	struct slowdev *d = slowdev_find(name);

	if (d != NULL && bdev_get_state(&d->bdev) == BDEV_READY) {
		bdev_resize(&d->bdev, blocks);
	}
}

void ov_slowdev_stick(const char *name, enum ov_stick how)
{
	struct slowdev *d = slowdev_find(name);

	if (d != NULL) {
		d->stick = how;
	}
}

static void slowdev_release(void *arg)
{
	struct slowdev_channel *c = arg;

	while (!TAILQ_EMPTY(&c->held) && c->dev->stick == OV_STICK_NOT) {
		slowdev_end(TAILQ_FIRST(&c->held), 0);
	}
}

static struct slowdev_channel *slowdev_stuck_channel(struct slowdev *d)
{
	struct slowdev_channel *c;
	struct slowdev_ctx *ctx;

	TAILQ_FOREACH (c, &d->channels, link) {
		TAILQ_FOREACH (ctx, &c->held, link) {
			if (!ctx->timer.running) {
				return c;
			}
		}
	}
	return NULL;
}

/* While a channel is called, others run, so that channels come and go: slowdev_release() is for the one that has stuck
 * I/O, which cannot go. */
static void slowdev_unstick(struct slowdev *d)
{
	struct slowdev_channel *c;

	d->stick = OV_STICK_NOT;
	while ((c = slowdev_stuck_channel(d)) != NULL) {
		/* It has I/O until it is released; if that is aborted meanwhile, it may go: so at once, as its thread.
		 */
		sim_as(c->thread, slowdev_release, c);
	}
}

void ov_slowdev_unstick(const char *name)
{
	struct slowdev *d = slowdev_find(name);

	if (d != NULL) {
		slowdev_unstick(d);
	}
}

void ov_slowdevs_unstick(void)
{
	struct slowdev *d;

	TAILQ_FOREACH (d, &slowdevs, link) {
		slowdev_unstick(d);
	}
}
