/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods that make, change and delete uring and aio bdevs, and the calls that make them again. */
#include "bdev_modules/uring/uring.h"
#include "rpc_methods/bdev_module.h"

struct file_create {
	char *name, *filename, *uuid;
	uint32_t block_size;
	bool readonly, shared, standby, fallocate, nowait;
};

#define FILE_PARAM(field_, type_, required_, help_, ...)                                                               \
	RPC_PARAM(struct file_create, field_, type_, required_, help_, ##__VA_ARGS__)
/* own_: whether SPDK lacks readonly and fallocate. */
#define FILE_PARAMS(own_)                                                                                              \
	FILE_PARAM(name, RPC_STRING, RPC_REQUIRED, "of the new bdev"),                                                 \
		FILE_PARAM(filename, RPC_STRING, RPC_REQUIRED, "a regular file or block device"),                      \
		FILE_PARAM(block_size, RPC_UINT32, RPC_OPTIONAL,                                                       \
			   "bytes, a power of two; default: the device's, or what direct I/O needs", .bytes = true),   \
		FILE_PARAM(uuid, RPC_UUID, RPC_OPTIONAL, "default: a random one"),                                     \
		FILE_PARAM(readonly, RPC_BOOL, RPC_OPTIONAL,                                                           \
			   "refuse what changes data; others may use the file too, read-only or shared", .own = own_), \
		FILE_PARAM(shared, RPC_BOOL, RPC_OPTIONAL,                                                             \
			   "let other bdevs and processes that say so use the file too; default: it is this bdev's "   \
			   "alone",                                                                                    \
			   .own = true),                                                                               \
		FILE_PARAM(                                                                                            \
			standby, RPC_BOOL, RPC_OPTIONAL,                                                               \
			"refuse all I/O until bdev_own makes it the owner of the file; not with readonly or shared",   \
			.own = true),                                                                                  \
		FILE_PARAM(fallocate, RPC_BOOL, RPC_OPTIONAL,                                                          \
			   "unmap and write zeroes punch holes; default: unmap does nothing", .own = own_)
static const struct rpc_param uring_create_params[] = {FILE_PARAMS(true), RPC_PARAM_END};
static const struct rpc_param aio_create_params[] = {
	FILE_PARAMS(false),
	FILE_PARAM(nowait, RPC_BOOL, RPC_OPTIONAL, "saved for clients that set it; no effect: submitting never blocks"),
	RPC_PARAM_END};

static void file_create(struct rpc_request *req, const struct file_create *p, bool aio)
{
	char error[BDEV_ERROR_MAX];
	uint8_t uuid[16];
	const struct bdev_uring_opts opts = {
		.name = p->name,
		.filename = p->filename,
		.uuid = rpc_bdev_uuid(p->uuid, uuid),
		.block_size = p->block_size,
		.readonly = p->readonly,
		.shared = p->shared,
		.standby = p->standby,
		.fallocate = p->fallocate,
		.nowait = p->nowait,
		.aio = aio,
	};

	rpc_bdev_answer_name(req, bdev_uring_create(&opts, error), p->name, error);
}

static void rpc_bdev_uring_create(struct rpc_request *req, void *params)
{
	file_create(req, params, false);
}
RPC_METHOD("bdev_uring_create", rpc_bdev_uring_create, struct file_create, uring_create_params, RPC_RUNTIME,
	   "Create a bdev from a file or block device, through io_uring", .result = "string")

static void rpc_bdev_aio_create(struct rpc_request *req, void *params)
{
	file_create(req, params, true);
}
RPC_METHOD("bdev_aio_create", rpc_bdev_aio_create, struct file_create, aio_create_params, RPC_RUNTIME,
	   "Create a bdev from a file or block device; the same as bdev_uring_create, for clients that know "
	   "this name",
	   .result = "string")

static void rpc_bdev_uring_rescan(struct rpc_request *req, void *params)
{
	char error[BDEV_ERROR_MAX];

	rpc_bdev_answer_true(req, bdev_uring_rescan(((const struct rpc_bdev_by_name *)params)->name, false, error),
			     error);
}
RPC_METHOD("bdev_uring_rescan", rpc_bdev_uring_rescan, struct rpc_bdev_by_name, rpc_bdev_by_name_params, RPC_RUNTIME,
	   "Take up a new size of the file or device", .result = "true")

static void rpc_bdev_aio_rescan(struct rpc_request *req, void *params)
{
	char error[BDEV_ERROR_MAX];

	rpc_bdev_answer_true(req, bdev_uring_rescan(((const struct rpc_bdev_by_name *)params)->name, true, error),
			     error);
}
RPC_METHOD("bdev_aio_rescan", rpc_bdev_aio_rescan, struct rpc_bdev_by_name, rpc_bdev_by_name_params, RPC_RUNTIME,
	   "Take up a new size of the file or device", .result = "true")

RPC_BDEV_DELETE_METHOD(uring, "a bdev made by bdev_uring_create")
RPC_BDEV_DELETE_METHOD(aio, "a bdev made by bdev_aio_create")

static void bdev_uring_write_config(json_t *methods, const struct bdev *b)
{
	struct bdev_uring_opts o;

	bdev_uring_get(b, &o);
	json_t *params = rpc_bdev_params("name", o.name);
	json_object_set_new(params, "filename", rpc_string(o.filename));
	rpc_bdev_add_nonzero(params, "block_size", o.block_size);
	rpc_bdev_add_uuid(params, o.uuid);
	rpc_bdev_add_true(params, "readonly", o.readonly);
	rpc_bdev_add_true(params, "shared", o.shared);
	rpc_bdev_add_true(params, "standby", o.standby);
	rpc_bdev_add_true(params, "fallocate", o.fallocate);
	rpc_bdev_add_true(params, "nowait", o.nowait);
	rpc_config_add(methods, o.aio ? "bdev_aio_create" : "bdev_uring_create", params);
}
RPC_BDEV_CONFIG(uring, .write_bdev = bdev_uring_write_config)
