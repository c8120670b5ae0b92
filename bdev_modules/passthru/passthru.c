/* SPDX-License-Identifier: BSD-3-Clause */
#include "bdev_modules/passthru/passthru.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "bdev/vbdev/vbdev.h"

#define CHILDREN 128 /* I/Os that a channel may have at its base; more wait in the pool */

struct passthru_channel {
	struct bdev_child_pool *pool;
};

static struct bdev_module bdev_passthru_module = {.name = "passthru"};
BDEV_MODULE_REGISTER(bdev_passthru_module)

static void passthru_child_done(struct bdev_io *child, void *arg)
{
	bdev_io_complete_as(arg, child);
}

static void passthru_submit(void *channel, struct bdev_io *io)
{
	struct passthru_channel *c = channel;

	if (io->type == BDEV_IO_ABORT) {
		bdev_child_abort(c->pool, io);
	} else {
		bdev_child_submit(c->pool, io);
	}
}

/* I/Os at the base are ended by the RESET that follows, which is passed to the base like any other I/O. */
static void passthru_reset_channel(struct bdev *b, void *channel)
{
	struct passthru_channel *c = channel;

	bdev_child_fail_waiting(c->pool, NVME_SC_ABORT_REQ);
}

static void passthru_take_back(void *channel, struct bdev_io *io)
{
	struct passthru_channel *c = channel;

	bdev_child_take_back(c->pool, io);
}

static int passthru_channel_create(struct bdev *b, void *channel)
{
	struct passthru_channel *c = channel;

	c->pool = bdev_child_pool_create(((struct vbdev *)b)->base, CHILDREN, passthru_child_done);
	return c->pool != NULL ? 0 : -errno;
}

static void passthru_channel_destroy(struct bdev *b, void *channel)
{
	struct passthru_channel *c = channel;

	bdev_child_pool_destroy(c->pool);
}

static void passthru_dump_info(const struct bdev *b, struct json_t *driver_specific)
{
	json_object_set_new(driver_specific, "passthru",
			    json_pack("{s:s, s:s}", "name", b->name, "base_bdev_name", bdev_passthru_base(b)));
}

static const struct bdev_ops passthru_ops = {
	.submit = passthru_submit,
	.channel_create = passthru_channel_create,
	.channel_destroy = passthru_channel_destroy,
	.channel_size = sizeof(struct passthru_channel),
	.reset_channel = passthru_reset_channel,
	.take_back = passthru_take_back,
	.destruct = vbdev_destruct,
	.dump_info = passthru_dump_info,
};

static void passthru_free(struct vbdev *v)
{
	free(v);
}

int bdev_passthru_create(const char *name, const char *base_bdev_name, const uint8_t *uuid, char *error)
{
	int rc = bdev_check_name(name, error);

	if (rc != 0) {
		return rc;
	}
	struct vbdev *v = aligned_alloc(64, (sizeof(*v) + 63) & ~(size_t)63);
	if (v == NULL) {
		return bdev_error(error, -ENOMEM, "out of memory");
	}
	memset(v, 0, sizeof(*v));
	v->free = passthru_free;
	rc = vbdev_open(v, name, base_bdev_name, name, error);
	if (rc != 0) {
		free(v);
		return rc;
	}
	v->bdev.product_name = "passthru";
	v->bdev.module = &bdev_passthru_module;
	v->bdev.ops = &passthru_ops;
	if (uuid != NULL) {
		memcpy(v->bdev.uuid, uuid, sizeof(v->bdev.uuid));
	}
	return vbdev_register(v, error);
}

void bdev_passthru_delete(const char *name, bdev_delete_cb cb, void *arg)
{
	bdev_delete_of(name, &bdev_passthru_module, cb, arg);
}

const char *bdev_passthru_base(const struct bdev *b)
{
	return vbdev_base_name((const struct vbdev *)b);
}
