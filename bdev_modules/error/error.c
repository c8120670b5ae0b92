/* SPDX-License-Identifier: BSD-3-Clause */
/* Each type of I/O has at most one injection, which counts down as it is applied. */
#include <errno.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bdev/vbdev/vbdev.h"
#include "bdev_modules/error/error.h"
#include "util/iov.h"
#include "util/log.h"

#define CHILDREN 128 /* I/Os that a channel may have at its base; more wait in the pool */

/* Of one type of I/O. Reactors read the other members only while `left` is above zero; the control thread writes them
 * only while `left` is zero. */
struct injection {
	_Atomic uint32_t left; /* I/Os that it will still be applied to */
	enum bdev_error_kind kind;
	uint64_t queue_depth; /* applied only while the channel has at least this many I/Os in flight */
	uint64_t corrupt_offset;
	uint8_t corrupt_value;
	uint16_t status;
};

struct error_bdev {
	struct vbdev v;
	struct injection injections[BDEV_IO_TYPES];
};

struct error_channel {
	struct bdev_child_pool *pool;
	TAILQ_HEAD(error_ctx_list, error_ctx) pending;
	struct error_ctx_list changed; /* writes that have a byte of their user's memory changed */
};

struct error_ctx {
	TAILQ_ENTRY(error_ctx) link;
	uint64_t corrupt_offset;
	uint8_t corrupt_value; /* 0: none */
};

static void error_examine(struct bdev *b);
static void error_fini(void);

static struct bdev_module bdev_error_module = {
	.name = "error", .io_ctx_size = sizeof(struct error_ctx), .examine = error_examine, .fini = error_fini};
BDEV_MODULE_REGISTER(bdev_error_module)

/* Changes the byte at ctx->corrupt_offset of io's data, if the data is that long. */
static void error_corrupt(struct bdev_io *io, const struct error_ctx *ctx)
{
	if (ctx->corrupt_offset < iov_length(io->iovs, io->iovcnt)) {
		struct iov_cursor c = iov_cursor_at(io->iovs, ctx->corrupt_offset);
		size_t n = 1;
		*(uint8_t *)iov_next(&c, &n) ^= ctx->corrupt_value;
	}
}

static void error_change(struct error_channel *c, struct bdev_io *io)
{
	struct error_ctx *ctx = bdev_io_ctx(io);

	error_corrupt(io, ctx);
	TAILQ_INSERT_TAIL(&c->changed, ctx, link);
}

static void error_change_back(struct error_channel *c, struct error_ctx *ctx)
{
	TAILQ_REMOVE(&c->changed, ctx, link);
	error_corrupt(bdev_io_from_ctx(ctx), ctx);
	ctx->corrupt_value = 0;
}

/* The pool may have ended writes that waited for a child, which error_child_done() does not see. Inside a frame: their
 * callbacks have not run. */
static void error_check_changed(struct error_channel *c)
{
	struct error_ctx *ctx = TAILQ_FIRST(&c->changed), *next;

	for (; ctx != NULL; ctx = next) {
		next = TAILQ_NEXT(ctx, link);
		if (bdev_io_from_ctx(ctx)->state == BDEV_IO_DONE) {
			error_change_back(c, ctx);
		}
	}
}

/* A READ's data is changed here. A WRITE's was changed before it went to the base; here the user's buffer gets its byte
 * back. */
static void error_child_done(struct bdev_io *child, void *arg)
{
	struct bdev_io *io = arg;
	struct error_ctx *ctx = bdev_io_ctx(io);

	if (ctx->corrupt_value != 0 && io->type == BDEV_IO_READ) {
		error_corrupt(io, ctx);
	} else if (ctx->corrupt_value != 0) {
		error_change_back(bdev_channel_ctx(io->ch), ctx);
	}
	bdev_io_complete_as(io, child);
}

static void error_pass_on(struct error_channel *c, struct bdev_io *io)
{
	((struct error_ctx *)bdev_io_ctx(io))->corrupt_value = 0;
	bdev_child_submit(c->pool, io);
}

static bool injection_hits(struct injection *in, const struct bdev_io *io)
{
	uint32_t left =
		atomic_load_explicit(&in->left, memory_order_acquire); /* pairs with the release in injection_arm() */

	if (left == 0 || bdev_channel_qd(io->ch) < in->queue_depth) {
		return false;
	}
	while (!atomic_compare_exchange_weak_explicit(&in->left, &left, left - 1, memory_order_acq_rel,
						      memory_order_acquire)) {
		if (left == 0) {
			return false;
		}
	}
	return true;
}

static void injection_apply(struct error_channel *c, struct bdev_io *io, const struct injection *in)
{
	struct error_ctx *ctx = bdev_io_ctx(io);

	switch (in->kind) {
	case BDEV_ERROR_FAILURE:
	case BDEV_ERROR_NVME_FAILURE:
		bdev_io_complete(io, in->status);
		break;
	case BDEV_ERROR_NOMEM:
		bdev_io_refuse(io);
		break;
	case BDEV_ERROR_PENDING:
		TAILQ_INSERT_TAIL(&c->pending, ctx, link);
		break;
	case BDEV_ERROR_CORRUPT_DATA:
		ctx->corrupt_offset = in->corrupt_offset;
		ctx->corrupt_value = in->corrupt_value;
		if (io->type != BDEV_IO_READ) {
			error_change(c, io);
		}
		bdev_child_submit(c->pool, io);
		error_check_changed(c);
		break;
	}
}

/* Ends io if it is pending. False: it is not. */
static bool error_end_pending(struct error_channel *c, struct bdev_io *io)
{
	struct error_ctx *target = bdev_io_ctx(io), *ctx;

	TAILQ_FOREACH (ctx, &c->pending, link) {
		if (ctx == target) {
			TAILQ_REMOVE(&c->pending, ctx, link);
			bdev_io_complete(io, NVME_SC_ABORT_REQ);
			return true;
		}
	}
	return false;
}

static void error_abort(struct error_channel *c, struct bdev_io *io)
{
	if (error_end_pending(c, io->abort.target)) {
		bdev_io_complete_cdw0(io, 0, 0);
	} else {
		bdev_child_abort(c->pool, io);
		error_check_changed(c);
	}
}

/* What is pending was never passed to the base. */
static void error_take_back(void *channel, struct bdev_io *io)
{
	struct error_channel *c = channel;

	if (!error_end_pending(c, io)) {
		bdev_child_take_back(c->pool, io);
		error_check_changed(c);
	}
}

static void error_submit(void *channel, struct bdev_io *io)
{
	struct error_bdev *e = (struct error_bdev *)bdev_channel_bdev(io->ch);
	struct error_channel *c = channel;
	struct injection *in = &e->injections[io->type];

	if (io->type == BDEV_IO_ABORT) {
		error_abort(c, io);
	} else if (injection_hits(in, io)) {
		injection_apply(c, io, in);
	} else {
		error_pass_on(c, io);
	}
}

static void error_reset_channel(struct bdev *b, void *channel)
{
	struct error_channel *c = channel;
	struct error_ctx *ctx;

	bdev_child_fail_waiting(c->pool, NVME_SC_ABORT_REQ);
	error_check_changed(c);
	while ((ctx = TAILQ_FIRST(&c->pending)) != NULL) {
		TAILQ_REMOVE(&c->pending, ctx, link);
		bdev_io_complete(bdev_io_from_ctx(ctx), NVME_SC_ABORT_REQ);
	}
}

static int error_channel_create(struct bdev *b, void *channel)
{
	struct error_channel *c = channel;

	TAILQ_INIT(&c->pending);
	TAILQ_INIT(&c->changed);
	c->pool = bdev_child_pool_create(((struct vbdev *)b)->base, CHILDREN, error_child_done);
	return c->pool != NULL ? 0 : -errno;
}

static void error_channel_destroy(struct bdev *b, void *channel)
{
	struct error_channel *c = channel;
	bdev_child_pool_destroy(c->pool);
}

static void error_dump_info(const struct bdev *b, struct json_t *driver_specific)
{
	json_object_set_new(
		driver_specific, "error_disk",
		json_pack("{s:s, s:s}", "name", b->name, "base_bdev", vbdev_base_name((const struct vbdev *)b)));
}

static const struct bdev_ops error_ops = {
	.submit = error_submit,
	.channel_create = error_channel_create,
	.channel_destroy = error_channel_destroy,
	.channel_size = sizeof(struct error_channel),
	.reset_channel = error_reset_channel,
	.take_back = error_take_back,
	.destruct = vbdev_destruct,
	.dump_info = error_dump_info,
};

static void error_free(struct vbdev *v)
{
	free(v);
}

/* Keeps how to make one when its base comes. */
static int error_wait(const char *name, const char *base_name, const uint8_t *uuid, char *error)
{
	struct vbdev_waiting *w = calloc(1, sizeof(*w));

	if (w == NULL) {
		return bdev_error(error, -ENOMEM, "out of memory");
	}
	vbdev_waiting_init(w, &bdev_error_module, name, base_name, uuid);
	vbdev_waiting_add(w);
	return 0;
}

static void error_base_removed(const struct vbdev *v)
{
	char error[BDEV_ERROR_MAX];

	if (error_wait(v->bdev.name, vbdev_base_name(v), v->bdev.uuid, error) != 0) {
		log_error("bdev %s: will not come back with its base: %s", v->bdev.name, error);
	}
}

/* uuid: NULL or zeros: a random one. -ENODEV: there is no such base. */
static int error_make(const char *name, const char *base_name, const uint8_t *uuid, char *error)
{
	struct error_bdev *e = aligned_alloc(64, (sizeof(*e) + 63) & ~(size_t)63);
	if (e == NULL) {
		return bdev_error(error, -ENOMEM, "out of memory");
	}
	memset(e, 0, sizeof(*e));
	e->v.free = error_free;
	e->v.base_removed = error_base_removed;
	int rc = vbdev_open(&e->v, name, base_name, name, error);
	if (rc != 0) {
		free(e);
		return rc;
	}
	e->v.bdev.product_name = "Error Injection Disk";
	e->v.bdev.module = &bdev_error_module;
	e->v.bdev.ops = &error_ops;
	if (uuid != NULL) {
		memcpy(e->v.bdev.uuid, uuid, sizeof(e->v.bdev.uuid));
	}
	return vbdev_register(&e->v, error);
}

int bdev_error_create(const char *base_name, const uint8_t *uuid, char *name, char *error)
{
	char wanted[300];

	snprintf(wanted, sizeof(wanted), "EE_%s", base_name);
	int rc = bdev_check_name(wanted, error);
	rc = rc != 0 ? rc : vbdev_waiting_check(wanted, base_name, error);
	rc = rc != 0 ? rc : error_make(wanted, base_name, uuid, error);
	rc = rc == -ENODEV ? error_wait(wanted, base_name, uuid, error) : rc;
	if (rc == 0 && name != NULL) {
		strcpy(name, wanted);
	}
	return rc;
}

static int error_base_came(const struct vbdev_waiting *w, char *error)
{
	return error_make(w->name, w->base_name, w->uuid, error);
}

static void error_examine(struct bdev *b)
{
	vbdev_waiting_examine(b, &bdev_error_module, error_base_came);
}

static void error_fini(void)
{
	vbdev_waiting_free(&bdev_error_module);
}

void bdev_error_delete(const char *name, bdev_delete_cb cb, void *arg)
{
	vbdev_waiting_delete(name, &bdev_error_module, cb, arg);
}

const char *bdev_error_base(const struct bdev *b)
{
	return b->module == &bdev_error_module ? vbdev_base_name((const struct vbdev *)b) : NULL;
}

/* --- Injections --- */

static const enum bdev_io_type injectable[] = {BDEV_IO_READ, BDEV_IO_WRITE, BDEV_IO_UNMAP, BDEV_IO_FLUSH};
#define INJECTABLE (sizeof(injectable) / sizeof(injectable[0]))

/* A reactor that saw `left` above zero may read the other members until the next grace period has ended. */
static void injection_disarm(struct injection *in)
{
	atomic_store_explicit(&in->left, 0, memory_order_release);
}

static void injection_arm(struct injection *in, const struct bdev_error_injection *opts)
{
	in->kind = opts->kind;
	in->queue_depth = opts->queue_depth;
	in->corrupt_offset = opts->corrupt_offset;
	in->corrupt_value = opts->corrupt_value;
	in->status = opts->kind == BDEV_ERROR_NVME_FAILURE ? BDEV_STATUS(opts->sct, opts->sc) : NVME_SC_INTERNAL;
	atomic_store_explicit(&in->left, opts->num, memory_order_release); /* pairs with injection_hits() */
}

static int injection_check(const struct bdev_error_injection *opts, char *error)
{
	if (opts->num == 0) {
		return bdev_error(error, -EINVAL, "num 0: must be at least 1");
	}
	if (opts->kind == BDEV_ERROR_CORRUPT_DATA && opts->corrupt_value == 0) {
		return bdev_error(error, -EINVAL, "corrupt_value 0: must be 1 to 255, to change anything");
	}
	if (opts->kind == BDEV_ERROR_NVME_FAILURE &&
	    (opts->sct > 7 || opts->sc > 0xff || (opts->sct == 0 && opts->sc == 0))) {
		return bdev_error(error, -EINVAL,
				  "nvme_sct %u, nvme_sc %u: must be 0 to 7 and 0 to 255, and no success", opts->sct,
				  opts->sc);
	}
	return 0;
}

int bdev_error_inject(const char *name, const struct bdev_error_injection *opts, char *error)
{
	struct error_bdev *e = (struct error_bdev *)bdev_find_of(name, &bdev_error_module);

	if (e == NULL) {
		return bdev_error(error, -ENODEV, "name: there is no error bdev '%.200s'", name);
	}
	int rc = opts->clear ? 0 : injection_check(opts, error);
	if (rc != 0) {
		return rc;
	}
	for (unsigned i = 0; i < INJECTABLE; i++) {
		if (opts->clear || opts->type == BDEV_IO_INVALID || opts->type == injectable[i]) {
			injection_disarm(&e->injections[injectable[i]]);
		}
	}
	if (opts->clear) {
		return 0;
	}
	thread_synchronize();
	for (unsigned i = 0; i < INJECTABLE; i++) {
		if (opts->type == BDEV_IO_INVALID || opts->type == injectable[i]) {
			injection_arm(&e->injections[injectable[i]], opts);
		}
	}
	return 0;
}

static void error_resume_channel(struct bdev *b, void *channel, void *arg)
{
	struct error_channel *c = channel;
	struct error_ctx *ctx;

	while ((ctx = TAILQ_FIRST(&c->pending)) != NULL) {
		TAILQ_REMOVE(&c->pending, ctx, link);
		error_pass_on(c, bdev_io_from_ctx(ctx));
	}
}

int bdev_error_resume_pending(const char *name, char *error)
{
	struct bdev *b = bdev_find_of(name, &bdev_error_module);

	if (b == NULL) {
		return bdev_error(error, -ENODEV, "name: there is no error bdev '%.200s'", name);
	}
	bdev_visit_module_channels(b, error_resume_channel, NULL);
	return 0;
}
