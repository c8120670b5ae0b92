/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods that make and delete passthru bdevs, and the calls that make them again. */
#include "bdev_modules/passthru/passthru.h"
#include "rpc_methods/bdev_module.h"

struct passthru_create {
	char *name, *base_bdev_name, *uuid;
};

static const struct rpc_param passthru_create_params[] = {
	RPC_PARAM(struct passthru_create, name, RPC_STRING, RPC_REQUIRED, "of the new bdev"),
	RPC_PARAM(struct passthru_create, base_bdev_name, RPC_STRING, RPC_REQUIRED,
		  "the bdev to pass I/O to, which it claims"),
	RPC_PARAM(struct passthru_create, uuid, RPC_UUID, RPC_OPTIONAL, "default: a random one"), RPC_PARAM_END};

static void rpc_bdev_passthru_create(struct rpc_request *req, void *params)
{
	const struct passthru_create *p = params;
	char error[BDEV_ERROR_MAX];
	uint8_t uuid[16];
	int rc = bdev_passthru_create(p->name, p->base_bdev_name, rpc_bdev_uuid(p->uuid, uuid), error);

	rpc_bdev_answer_name(req, rc, p->name, error);
}
RPC_METHOD("bdev_passthru_create", rpc_bdev_passthru_create, struct passthru_create, passthru_create_params,
	   RPC_RUNTIME, "Create a bdev that passes all I/O to another one", .result = "string")

RPC_BDEV_DELETE_METHOD(passthru, "a passthru bdev")

static void bdev_passthru_write_config(json_t *methods, const struct bdev *b)
{
	json_t *params = rpc_bdev_params("name", bdev_name(b));

	json_object_set_new(params, "base_bdev_name", rpc_string(bdev_passthru_base(b)));
	rpc_bdev_add_uuid(params, bdev_uuid(b));
	rpc_config_add(methods, "bdev_passthru_create", params);
}
RPC_BDEV_CONFIG(passthru, .write_bdev = bdev_passthru_write_config)
