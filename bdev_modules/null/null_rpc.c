/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods that make, change and delete null bdevs, and the calls that make them again. */
#include <errno.h>

#include "bdev_modules/null/null.h"
#include "rpc_methods/bdev_module.h"

struct null_create {
	char *name, *uuid;
	uint32_t block_size, physical_block_size, md_size, dif_pi_format;
	int32_t dif_type;
	bool dif_is_head_of_md;
	uint64_t num_blocks;
	uint32_t preferred_write_granularity, preferred_write_alignment, optimal_write_size;
	uint32_t preferred_unmap_granularity, preferred_unmap_alignment;
};

#define NULL_PARAM(field_, type_, required_, help_, ...)                                                               \
	RPC_PARAM(struct null_create, field_, type_, required_, help_, ##__VA_ARGS__)
static const struct rpc_param null_create_params[] = {
	NULL_PARAM(name, RPC_STRING, RPC_REQUIRED, "of the new bdev"),
	NULL_PARAM(block_size, RPC_UINT32, RPC_REQUIRED, "bytes of data: a multiple of 512, up to 65536",
		   .bytes = true),
	NULL_PARAM(num_blocks, RPC_UINT64, RPC_REQUIRED, "blocks"),
	NULL_PARAM(uuid, RPC_UUID, RPC_OPTIONAL, "default: a random one"),
	NULL_PARAM(physical_block_size, RPC_UINT32, RPC_OPTIONAL, "bytes; default: block_size", .bytes = true),
	NULL_PARAM(md_size, RPC_UINT32, RPC_OPTIONAL,
		   "bytes of metadata behind a block's data: 8, 16, 32, 64, 128; default: 0"),
	NULL_PARAM(dif_type, RPC_INT32, RPC_OPTIONAL,
		   "protection information in the metadata: 1 to 3; default: 0, none"),
	NULL_PARAM(dif_pi_format, RPC_UINT32, RPC_OPTIONAL,
		   "0: its guard has 16 bits; 1: 32 bits; 2: 64 bits; 1 and 2 take 16 bytes"),
	NULL_PARAM(dif_is_head_of_md, RPC_BOOL, RPC_OPTIONAL,
		   "it is the first 8 or 16 bytes of the metadata, not the last"),
	NULL_PARAM(preferred_write_granularity, RPC_UINT32, RPC_OPTIONAL, "blocks; told to hosts (doc/compat.md)"),
	NULL_PARAM(preferred_write_alignment, RPC_UINT32, RPC_OPTIONAL, "blocks; told to hosts (doc/compat.md)"),
	NULL_PARAM(optimal_write_size, RPC_UINT32, RPC_OPTIONAL, "blocks; told to hosts (doc/compat.md)"),
	NULL_PARAM(preferred_unmap_granularity, RPC_UINT32, RPC_OPTIONAL, "blocks; told to hosts (doc/compat.md)"),
	NULL_PARAM(preferred_unmap_alignment, RPC_UINT32, RPC_OPTIONAL, "blocks; told to hosts (doc/compat.md)"),
	RPC_PARAM_END};

static void rpc_bdev_null_create(struct rpc_request *req, void *params)
{
	const struct null_create *p = params;
	char error[BDEV_ERROR_MAX];
	uint8_t uuid[16];

	struct bdev_md md;

	if (!rpc_bdev_decode_md(req, p->md_size, p->dif_type, p->dif_is_head_of_md, p->dif_pi_format, &md)) {
		return;
	}
	const struct bdev_null_opts opts = {
		.md = md,
		.name = p->name,
		.uuid = rpc_bdev_uuid(p->uuid, uuid),
		.block_size = p->block_size,
		.physical_block_size = p->physical_block_size,
		.num_blocks = p->num_blocks,
		.hints = {.preferred_write_granularity = p->preferred_write_granularity,
			  .preferred_write_alignment = p->preferred_write_alignment,
			  .optimal_write_size = p->optimal_write_size,
			  .preferred_unmap_granularity = p->preferred_unmap_granularity,
			  .preferred_unmap_alignment = p->preferred_unmap_alignment},
	};
	rpc_bdev_answer_name(req, bdev_null_create(&opts, error), p->name, error);
}
RPC_METHOD("bdev_null_create", rpc_bdev_null_create, struct null_create, null_create_params, RPC_RUNTIME,
	   "Create a bdev that stores nothing and takes no time", .result = "string")

struct null_resize {
	char *name;
	uint64_t new_size;
};

static const struct rpc_param null_resize_params[] = {
	RPC_PARAM(struct null_resize, name, RPC_STRING, RPC_REQUIRED, "of the bdev"),
	RPC_PARAM(struct null_resize, new_size, RPC_UINT64, RPC_REQUIRED, "MiB"), RPC_PARAM_END};

static void rpc_bdev_null_resize(struct rpc_request *req, void *params)
{
	const struct null_resize *p = params;
	char error[BDEV_ERROR_MAX];

	rpc_bdev_answer_true(req, bdev_null_resize(p->name, p->new_size, error), error);
}
RPC_METHOD("bdev_null_resize", rpc_bdev_null_resize, struct null_resize, null_resize_params, RPC_RUNTIME,
	   "Change the size of a null bdev", .result = "true")

RPC_BDEV_DELETE_METHOD(null, "a null bdev")

static void bdev_null_write_config(json_t *methods, const struct bdev *b)
{
	struct bdev_null_opts o;

	bdev_null_get(b, &o);
	json_t *params = rpc_bdev_params("name", o.name);
	rpc_bdev_add_uint(params, "num_blocks", o.num_blocks);
	rpc_bdev_add_uint(params, "block_size", o.block_size);
	rpc_bdev_add_uint(params, "physical_block_size", o.physical_block_size);
	rpc_bdev_add_nonzero(params, "preferred_write_granularity", o.hints.preferred_write_granularity);
	rpc_bdev_add_nonzero(params, "preferred_write_alignment", o.hints.preferred_write_alignment);
	rpc_bdev_add_nonzero(params, "optimal_write_size", o.hints.optimal_write_size);
	rpc_bdev_add_nonzero(params, "preferred_unmap_granularity", o.hints.preferred_unmap_granularity);
	rpc_bdev_add_nonzero(params, "preferred_unmap_alignment", o.hints.preferred_unmap_alignment);
	rpc_bdev_add_md(params, &o.md, false);
	rpc_bdev_add_uuid(params, o.uuid);
	rpc_config_add(methods, "bdev_null_create", params);
}
RPC_BDEV_CONFIG(null, .write_bdev = bdev_null_write_config)
