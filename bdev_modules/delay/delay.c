/* SPDX-License-Identifier: BSD-3-Clause */
/* Completions of the base are held in a list of the channel, each with a timer. */
#include <errno.h>
#include <jansson.h>
#include <rte_common.h>
#include <stdlib.h>
#include <string.h>

#include "bdev/vbdev/vbdev.h"
#include "bdev_modules/delay/delay.h"
#include "util/log.h"

#define CHILDREN       128 /* I/Os that a channel may have at its base; more wait in the pool */
#define MAX_LATENCY_US 3600000000ul

struct delay_bdev {
	struct vbdev v;
	/* Read by reactors, written by the control thread; relaxed, since no value depends on another. */
	uint64_t latency_us[BDEV_DELAY_LATENCIES];
};

struct delay_channel {
	struct bdev_child_pool *pool;
	TAILQ_HEAD(, delay_ctx) held;
	uint32_t random;
};

struct delay_ctx {
	struct thread_timer timer;
	TAILQ_ENTRY(delay_ctx) link;
	bool untouched; /* the child was */
};

/* One that is not there for want of its base. */
struct delay_waiting {
	struct vbdev_waiting w;
	uint64_t latency_us[BDEV_DELAY_LATENCIES];
};

static void delay_examine(struct bdev *b);
static void delay_fini(void);

static struct bdev_module bdev_delay_module = {
	.name = "delay", .io_ctx_size = sizeof(struct delay_ctx), .examine = delay_examine, .fini = delay_fini};
BDEV_MODULE_REGISTER(bdev_delay_module)

static uint64_t delay_latency(const struct delay_bdev *d, struct delay_channel *c, enum bdev_io_type type)
{
	c->random = c->random * 1664525 + 1013904223;
	unsigned thousandth = c->random / (UINT32_MAX / 1000), beyond = thousandth == 0 ? 2 : thousandth < 10;
	enum bdev_delay_latency first;

	switch (type) {
	case BDEV_IO_READ:
	case BDEV_IO_COMPARE:
	case BDEV_IO_VERIFY:
		first = BDEV_DELAY_AVG_READ;
		break;
	case BDEV_IO_WRITE:
	case BDEV_IO_WRITE_ZEROES:
	case BDEV_IO_COMPARE_AND_WRITE:
	case BDEV_IO_UNMAP:
	case BDEV_IO_FLUSH:
	case BDEV_IO_COPY:
	case BDEV_IO_WRITE_UNCORRECTABLE:
		first = BDEV_DELAY_AVG_WRITE;
		break;
	default:
		return 0;
	}
	uint64_t us = 0;
	for (unsigned i = 0; i <= beyond; i++) {
		us = RTE_MAX(us, __atomic_load_n(&d->latency_us[first + i], __ATOMIC_RELAXED));
	}
	return us;
}

static void delay_complete(struct bdev_io *io, uint16_t status)
{
	struct delay_channel *c = bdev_channel_ctx(io->ch);
	struct delay_ctx *ctx = bdev_io_ctx(io);

	thread_timer_stop(&ctx->timer);
	TAILQ_REMOVE(&c->held, ctx, link);
	(ctx->untouched ? bdev_io_complete_untouched : bdev_io_complete)(io, status);
}

static void delay_timer_fired(void *arg)
{
	struct bdev_io *io = arg;
	delay_complete(io, io->status);
}

/* While the I/O is held, io->status and io->cdw0 keep the child's result. */
static void delay_child_done(struct bdev_io *child, void *arg)
{
	struct bdev_io *io = arg;
	struct delay_channel *c = bdev_channel_ctx(io->ch);
	struct delay_ctx *ctx = bdev_io_ctx(io);
	uint64_t us = delay_latency((struct delay_bdev *)bdev_channel_bdev(io->ch), c, io->type);

	if (us == 0) {
		bdev_io_complete_as(io, child);
		return;
	}
	ctx->untouched = bdev_io_was_untouched(child);
	io->status = child->status;
	io->cdw0 = child->cdw0;
	memset(&ctx->timer, 0, sizeof(ctx->timer));
	ctx->timer.fn = delay_timer_fired;
	ctx->timer.arg = io;
	TAILQ_INSERT_TAIL(&c->held, ctx, link);
	thread_timer_start(&ctx->timer, us);
}

static void delay_abort(struct delay_channel *c, struct bdev_io *io)
{
	struct delay_ctx *target = bdev_io_ctx(io->abort.target), *ctx;

	TAILQ_FOREACH (ctx, &c->held, link) {
		if (ctx == target) {
			delay_complete(io->abort.target, NVME_SC_ABORT_REQ);
			bdev_io_complete_cdw0(io, 0, 0);
			return;
		}
	}
	bdev_child_abort(c->pool, io);
}

static void delay_submit(void *channel, struct bdev_io *io)
{
	struct delay_channel *c = channel;

	if (io->type == BDEV_IO_ABORT) {
		delay_abort(c, io);
	} else {
		bdev_child_submit(c->pool, io);
	}
}

static void delay_reset_channel(struct bdev *b, void *channel)
{
	struct delay_channel *c = channel;

	bdev_child_fail_waiting(c->pool, NVME_SC_ABORT_REQ);
	while (!TAILQ_EMPTY(&c->held)) {
		delay_complete(bdev_io_from_ctx(TAILQ_FIRST(&c->held)), NVME_SC_ABORT_REQ);
	}
}

/* What is held has been carried out by the base. */
static void delay_take_back(void *channel, struct bdev_io *io)
{
	struct delay_channel *c = channel;

	bdev_child_take_back(c->pool, io);
}

static int delay_channel_create(struct bdev *b, void *channel)
{
	struct delay_channel *c = channel;

	TAILQ_INIT(&c->held);
	c->random = (uint32_t)thread_id(thread_current());
	c->pool = bdev_child_pool_create(((struct vbdev *)b)->base, CHILDREN, delay_child_done);
	return c->pool != NULL ? 0 : -errno;
}

static void delay_channel_destroy(struct bdev *b, void *channel)
{
	struct delay_channel *c = channel;
	bdev_child_pool_destroy(c->pool);
}

static const char *const latency_names[BDEV_DELAY_LATENCIES] = {
	[BDEV_DELAY_AVG_READ] = "avg_read_latency",   [BDEV_DELAY_P99_READ] = "p99_read_latency",
	[BDEV_DELAY_P999_READ] = "p999_read_latency", [BDEV_DELAY_AVG_WRITE] = "avg_write_latency",
	[BDEV_DELAY_P99_WRITE] = "p99_write_latency", [BDEV_DELAY_P999_WRITE] = "p999_write_latency",
};

static bool delay_is_p999(enum bdev_delay_latency which)
{
	return which == BDEV_DELAY_P999_READ || which == BDEV_DELAY_P999_WRITE;
}

static void delay_dump_info(const struct bdev *b, struct json_t *driver_specific)
{
	const struct delay_bdev *d = (const struct delay_bdev *)b;

	json_t *o = json_pack("{s:s, s:s}", "name", b->name, "base_bdev_name", vbdev_base_name(&d->v));

	for (unsigned i = 0; i < BDEV_DELAY_LATENCIES; i++) {
		if (d->latency_us[i] != 0 || !delay_is_p999(i)) { /* control software knows only the other four */
			json_object_set_new(o, latency_names[i], json_integer((json_int_t)d->latency_us[i]));
		}
	}
	json_object_set_new(driver_specific, "delay", o);
}

static const struct bdev_ops delay_ops = {
	.submit = delay_submit,
	.channel_create = delay_channel_create,
	.channel_destroy = delay_channel_destroy,
	.channel_size = sizeof(struct delay_channel),
	.reset_channel = delay_reset_channel,
	.take_back = delay_take_back,
	.destruct = vbdev_destruct,
	.dump_info = delay_dump_info,
};

static int delay_check_maximum(unsigned which, uint64_t us, char *error)
{
	if (us > MAX_LATENCY_US) {
		return bdev_error(error, -EINVAL, "%s %lu: at most %lu us are allowed", latency_names[which], us,
				  MAX_LATENCY_US);
	}
	return 0;
}

static int delay_check_latencies(const uint64_t us[BDEV_DELAY_LATENCIES], char *error)
{
	for (unsigned i = 0; i < BDEV_DELAY_LATENCIES; i++) {
		int rc = delay_check_maximum(i, us[i], error);
		if (rc != 0) {
			return rc;
		}
	}
	for (unsigned i = 0; i < BDEV_DELAY_LATENCIES; i++) {
		bool first = i == BDEV_DELAY_AVG_READ || i == BDEV_DELAY_AVG_WRITE,
		     unset = delay_is_p999(i) && us[i] == 0;
		if (!first && !unset && us[i] < us[i - 1]) {
			return bdev_error(error, -EINVAL, "%s %lu: must be at least %s (%lu)", latency_names[i], us[i],
					  latency_names[i - 1], us[i - 1]);
		}
	}
	return 0;
}

static void delay_free(struct vbdev *v)
{
	free(v);
}

/* Keeps how to make one when its base comes. */
static int delay_wait(const struct bdev_delay_opts *opts, char *error)
{
	struct delay_waiting *d = calloc(1, sizeof(*d));

	if (d == NULL) {
		return bdev_error(error, -ENOMEM, "out of memory");
	}
	vbdev_waiting_init(&d->w, &bdev_delay_module, opts->name, opts->base_bdev_name, opts->uuid);
	memcpy(d->latency_us, opts->latency_us, sizeof(d->latency_us));
	vbdev_waiting_add(&d->w);
	return 0;
}

static void delay_base_removed(const struct vbdev *v)
{
	char error[BDEV_ERROR_MAX];
	struct bdev_delay_opts opts;

	if (bdev_delay_get(&v->bdev, &opts) && delay_wait(&opts, error) != 0) {
		log_error("bdev %s: will not come back with its base: %s", v->bdev.name, error);
	}
}

/* -ENODEV: there is no such base. */
static int delay_make(const struct bdev_delay_opts *opts, char *error)
{
	struct delay_bdev *d = aligned_alloc(64, (sizeof(*d) + 63) & ~(size_t)63);
	if (d == NULL) {
		return bdev_error(error, -ENOMEM, "out of memory");
	}
	memset(d, 0, sizeof(*d));
	d->v.free = delay_free;
	d->v.base_removed = delay_base_removed;
	int rc = vbdev_open(&d->v, opts->name, opts->base_bdev_name, opts->name, error);
	if (rc != 0) {
		free(d);
		return rc;
	}
	d->v.bdev.product_name = "delay";
	d->v.bdev.module = &bdev_delay_module;
	d->v.bdev.ops = &delay_ops;
	memcpy(d->latency_us, opts->latency_us, sizeof(d->latency_us));
	if (opts->uuid != NULL) {
		memcpy(d->v.bdev.uuid, opts->uuid, sizeof(d->v.bdev.uuid));
	}
	return vbdev_register(&d->v, error);
}

int bdev_delay_create(const struct bdev_delay_opts *opts, char *error)
{
	int rc = bdev_check_name(opts->name, error);

	rc = rc != 0 ? rc : delay_check_latencies(opts->latency_us, error);
	rc = rc != 0 ? rc : vbdev_waiting_check(opts->name, opts->base_bdev_name, error);
	rc = rc != 0 ? rc : delay_make(opts, error);
	return rc == -ENODEV ? delay_wait(opts, error) : rc;
}

static int delay_base_came(const struct vbdev_waiting *w, char *error)
{
	struct bdev_delay_opts opts;

	bdev_delay_get_waiting(w, &opts);
	return delay_make(&opts, error);
}

static void delay_examine(struct bdev *b)
{
	vbdev_waiting_examine(b, &bdev_delay_module, delay_base_came);
}

static void delay_fini(void)
{
	vbdev_waiting_free(&bdev_delay_module);
}

int bdev_delay_update_latency(const char *name, enum bdev_delay_latency which, uint64_t latency_us, char *error)
{
	struct delay_bdev *d = (struct delay_bdev *)bdev_find_of(name, &bdev_delay_module);
	struct delay_waiting *w = (struct delay_waiting *)vbdev_waiting_find(name, &bdev_delay_module);

	if (d == NULL && w == NULL) {
		return bdev_error(error, -ENODEV, "delay_bdev_name: there is no delay bdev '%.200s'", name);
	}
	/* Not checked against the others: clients raise an average before its p99. Until then the larger one counts
	 * (delay_latency()). */
	int rc = delay_check_maximum(which, latency_us, error);
	if (rc == 0 && w != NULL) {
		w->latency_us[which] = latency_us;
	}
	if (rc == 0 && d != NULL) {
		__atomic_store_n(&d->latency_us[which], latency_us, __ATOMIC_RELAXED);
	}
	return rc;
}

void bdev_delay_delete(const char *name, bdev_delete_cb cb, void *arg)
{
	vbdev_waiting_delete(name, &bdev_delay_module, cb, arg);
}

/* What has the same effect, and is accepted by bdev_delay_create(). */
static void delay_copy_latencies(uint64_t to[BDEV_DELAY_LATENCIES], const uint64_t from[BDEV_DELAY_LATENCIES])
{
	memcpy(to, from, sizeof(*to) * BDEV_DELAY_LATENCIES);
	for (unsigned avg = BDEV_DELAY_AVG_READ; avg <= BDEV_DELAY_AVG_WRITE; avg += BDEV_DELAY_AVG_WRITE) {
		uint64_t *us = &to[avg];
		us[1] = RTE_MAX(us[1], us[0]);
		us[2] = us[2] > us[1] ? us[2] : 0; /* not above the 99th: without effect, and left out */
	}
}

bool bdev_delay_get_waiting(const struct vbdev_waiting *w, struct bdev_delay_opts *opts)
{
	static const uint8_t none[16];

	if (w->module != &bdev_delay_module) {
		return false;
	}
	*opts = (struct bdev_delay_opts){.name = w->name, .base_bdev_name = w->base_name};
	opts->uuid = memcmp(w->uuid, none, sizeof(none)) != 0 ? w->uuid : NULL;
	delay_copy_latencies(opts->latency_us, ((const struct delay_waiting *)w)->latency_us);
	return true;
}

bool bdev_delay_get(const struct bdev *b, struct bdev_delay_opts *opts)
{
	if (b->module != &bdev_delay_module) {
		return false;
	}
	const struct delay_bdev *d = (const struct delay_bdev *)b;
	*opts = (struct bdev_delay_opts){.name = b->name, .uuid = b->uuid, .base_bdev_name = vbdev_base_name(&d->v)};
	delay_copy_latencies(opts->latency_us, d->latency_us);
	return true;
}
