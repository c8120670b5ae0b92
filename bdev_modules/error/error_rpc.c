/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods that make, change and delete error bdevs, and the calls that make them again. */
#include <string.h>

#include "bdev/module.h"
#include "bdev/vbdev/waiting.h"
#include "bdev_modules/error/error.h"
#include "rpc_methods/bdev_module.h"

struct error_create {
	char *base_name, *uuid;
};

static const struct rpc_param error_create_params[] = {
	RPC_PARAM(struct error_create, base_name, RPC_STRING, RPC_REQUIRED, "the bdev to make fail, which it claims"),
	RPC_PARAM(struct error_create, uuid, RPC_UUID, RPC_OPTIONAL, "default: a random one"), RPC_PARAM_END};

static void rpc_bdev_error_create(struct rpc_request *req, void *params)
{
	const struct error_create *p = params;
	char error[BDEV_ERROR_MAX], name[256];
	uint8_t uuid[16];

	rpc_bdev_answer_name(req, bdev_error_create(p->base_name, rpc_bdev_uuid(p->uuid, uuid), name, error), name,
			     error);
}
RPC_METHOD("bdev_error_create", rpc_bdev_error_create, struct error_create, error_create_params, RPC_RUNTIME,
	   "Create EE_<base_name>, a bdev whose I/O can be made to fail, at once or when its base comes",
	   .result = "true|string")

enum { INJECT_CLEAR = -1 };
static const struct rpc_enum inject_io_types[] = {{"clear", INJECT_CLEAR},
						  {"read", BDEV_IO_READ},
						  {"write", BDEV_IO_WRITE},
						  {"unmap", BDEV_IO_UNMAP},
						  {"flush", BDEV_IO_FLUSH},
						  {"all", BDEV_IO_INVALID},
						  {NULL, 0}};
static const struct rpc_enum inject_error_types[] = {
	{"failure", BDEV_ERROR_FAILURE},           {"pending", BDEV_ERROR_PENDING},
	{"corrupt_data", BDEV_ERROR_CORRUPT_DATA}, {"nomem", BDEV_ERROR_NOMEM},
	{"nvme_failure", BDEV_ERROR_NVME_FAILURE}, {NULL, 0}};

struct inject_error {
	char *name;
	int io_type, error_type;
	uint32_t num, nvme_sct, nvme_sc;
	uint64_t queue_depth, corrupt_offset;
	uint8_t corrupt_value;
};

#define INJECT_PARAM(field_, type_, required_, help_, ...)                                                             \
	RPC_PARAM(struct inject_error, field_, type_, required_, help_, ##__VA_ARGS__)
static const struct rpc_param inject_error_params[] = {
	INJECT_PARAM(name, RPC_STRING, RPC_REQUIRED, "of the error bdev"),
	INJECT_PARAM(io_type, RPC_ENUM, RPC_REQUIRED, "what is hit; clear: take all injections back",
		     .enums = inject_io_types),
	INJECT_PARAM(error_type, RPC_ENUM, RPC_REQUIRED, "what happens to it", .enums = inject_error_types),
	INJECT_PARAM(num, RPC_UINT32, RPC_OPTIONAL, "to so many I/Os; default: 1"),
	INJECT_PARAM(queue_depth, RPC_UINT64, RPC_OPTIONAL,
		     "only while so many are in flight on the channel; default: any"),
	INJECT_PARAM(corrupt_offset, RPC_UINT64, RPC_OPTIONAL, "corrupt_data: which byte of the I/O; default: 0"),
	INJECT_PARAM(corrupt_value, RPC_UINT8, RPC_OPTIONAL, "corrupt_data: is xored to it; default: 255"),
	INJECT_PARAM(nvme_sct, RPC_UINT32, RPC_OPTIONAL, "nvme_failure: status code type, 0 to 7"),
	INJECT_PARAM(nvme_sc, RPC_UINT32, RPC_OPTIONAL, "nvme_failure: status code, 0 to 255"),
	RPC_PARAM_END};

static void inject_error_defaults(void *params)
{
	struct inject_error *p = params;

	p->num = 1;
	p->corrupt_value = 255;
	p->nvme_sc = NVME_SC_INTERNAL;
}

static void rpc_bdev_error_inject_error(struct rpc_request *req, void *params)
{
	const struct inject_error *p = params;
	char error[BDEV_ERROR_MAX];
	const struct bdev_error_injection in = {
		.clear = p->io_type == INJECT_CLEAR,
		.type = p->io_type == INJECT_CLEAR ? BDEV_IO_INVALID : (enum bdev_io_type)p->io_type,
		.kind = (enum bdev_error_kind)p->error_type,
		.num = p->num,
		.queue_depth = p->queue_depth,
		.corrupt_offset = p->corrupt_offset,
		.corrupt_value = p->corrupt_value,
		.sct = p->nvme_sct,
		.sc = p->nvme_sc,
	};

	rpc_bdev_answer_true(req, bdev_error_inject(p->name, &in, error), error);
}
RPC_METHOD("bdev_error_inject_error", rpc_bdev_error_inject_error, struct inject_error, inject_error_params,
	   RPC_RUNTIME, "Make I/O of an error bdev fail, hang, wait or lie", .defaults = inject_error_defaults,
	   .result = "true")

static void rpc_bdev_error_resume_pending(struct rpc_request *req, void *params)
{
	char error[BDEV_ERROR_MAX];

	rpc_bdev_answer_true(req, bdev_error_resume_pending(((const struct rpc_bdev_by_name *)params)->name, error),
			     error);
}
RPC_METHOD("bdev_error_resume_pending", rpc_bdev_error_resume_pending, struct rpc_bdev_by_name, rpc_bdev_by_name_params,
	   RPC_RUNTIME, "Let I/O go on that an injected 'pending' holds", .result = "true")

RPC_BDEV_DELETE_METHOD(error, "an error bdev")

static void bdev_error_write_config(json_t *methods, const struct bdev *b)
{
	json_t *params = rpc_bdev_params("base_name", bdev_error_base(b));

	rpc_bdev_add_uuid(params, bdev_uuid(b));
	rpc_config_add(methods, "bdev_error_create", params);
}

static void bdev_error_write_waiting(json_t *methods, const struct vbdev_waiting *w)
{
	static const uint8_t none[16];
	json_t *params = rpc_bdev_params("base_name", w->base_name);

	if (memcmp(w->uuid, none, sizeof(none)) != 0) {
		rpc_bdev_add_uuid(params, w->uuid);
	}
	rpc_config_add(methods, "bdev_error_create", params);
}
RPC_BDEV_CONFIG(error, .write_bdev = bdev_error_write_config, .write_waiting = bdev_error_write_waiting)
