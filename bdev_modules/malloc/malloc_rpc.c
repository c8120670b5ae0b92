/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods that make, change and delete malloc bdevs, and the calls that make them again. */
#include <errno.h>

#include "bdev_modules/malloc/malloc.h"
#include "rpc_methods/bdev_module.h"

struct malloc_create {
	char *name, *uuid;
	uint32_t block_size, physical_block_size, optimal_io_boundary, md_size, dif_pi_format;
	int32_t dif_type, numa_id;
	bool md_interleave, dif_is_head_of_md;
	uint64_t num_blocks;
};

#define MALLOC_PARAM(field_, type_, required_, help_, ...)                                                             \
	RPC_PARAM(struct malloc_create, field_, type_, required_, help_, ##__VA_ARGS__)
static const struct rpc_param malloc_create_params[] = {
	MALLOC_PARAM(name, RPC_STRING, RPC_OPTIONAL, "of the new bdev; default: Malloc0, Malloc1 ..."),
	MALLOC_PARAM(block_size, RPC_UINT32, RPC_REQUIRED, "bytes of data: a multiple of 512, up to 65536",
		     .bytes = true),
	MALLOC_PARAM(num_blocks, RPC_UINT64, RPC_REQUIRED, "blocks"),
	MALLOC_PARAM(uuid, RPC_UUID, RPC_OPTIONAL, "default: a random one"),
	MALLOC_PARAM(physical_block_size, RPC_UINT32, RPC_OPTIONAL, "bytes; default: block_size", .bytes = true),
	MALLOC_PARAM(optimal_io_boundary, RPC_UINT32, RPC_OPTIONAL, "blocks, a power of two; default: none"),
	MALLOC_PARAM(md_size, RPC_UINT32, RPC_OPTIONAL, "bytes of metadata of a block: 8, 16, 32, 64, 128; default: 0"),
	MALLOC_PARAM(md_interleave, RPC_BOOL, RPC_OPTIONAL,
		     "metadata follows each block's data; false, the default: it is kept apart from the data, unless "
		     "block_size has md_size in it, as in files that SPDK saved"),
	MALLOC_PARAM(dif_type, RPC_INT32, RPC_OPTIONAL,
		     "protection information in the metadata: 1 to 3; default: 0, none"),
	MALLOC_PARAM(dif_is_head_of_md, RPC_BOOL, RPC_OPTIONAL,
		     "it is the first 8 or 16 bytes of the metadata, not the last"),
	MALLOC_PARAM(dif_pi_format, RPC_UINT32, RPC_OPTIONAL,
		     "0: its guard has 16 bits; 1: 32 bits; 2: 64 bits; 1 and 2 take 16 bytes"),
	MALLOC_PARAM(numa_id, RPC_INT32, RPC_OPTIONAL, "node its memory comes from; default: -1, any"),
	RPC_PARAM_END};

static void malloc_create_defaults(void *params)
{
	((struct malloc_create *)params)->numa_id = -1;
}

static void malloc_created(void *req, int rc, const char *text)
{
	rpc_bdev_answer_name(req, rc, text, text);
}

/* The bytes of data. SPDK saves a bdev with interleaved metadata with the bytes of data and metadata, 4104 for example,
 * and without md_interleave: no other bdev has blocks of such a size. */
static uint32_t malloc_block_size(const struct malloc_create *p)
{
	bool together =
		p->md_size != 0 && !p->md_interleave && p->block_size > p->md_size && p->block_size % 512 == p->md_size;

	return together ? p->block_size - p->md_size : p->block_size;
}

static void rpc_bdev_malloc_create(struct rpc_request *req, void *params)
{
	const struct malloc_create *p = params;
	uint8_t uuid[16];
	struct bdev_md md;

	if (!rpc_bdev_decode_md(req, p->md_size, p->dif_type, p->dif_is_head_of_md, p->dif_pi_format, &md)) {
		return;
	}
	uint32_t block_size = malloc_block_size(p);
	md.kept_apart = p->md_size != 0 && !p->md_interleave && block_size == p->block_size;
	const struct bdev_malloc_opts opts = {
		.md = md,
		.name = p->name,
		.uuid = rpc_bdev_uuid(p->uuid, uuid),
		.block_size = block_size,
		.physical_block_size = p->physical_block_size,
		.optimal_io_boundary = p->optimal_io_boundary,
		.num_blocks = p->num_blocks,
		.numa_id = p->numa_id,
	};
	bdev_malloc_create_async(&opts, malloc_created, req);
}
RPC_METHOD("bdev_malloc_create", rpc_bdev_malloc_create, struct malloc_create, malloc_create_params, RPC_RUNTIME,
	   "Create a RAM disk", .defaults = malloc_create_defaults, .in_turn = true, .result = "string")

RPC_BDEV_DELETE_METHOD(malloc, "a RAM disk")

static void bdev_malloc_write_config(json_t *methods, const struct bdev *b)
{
	struct bdev_malloc_opts o;

	bdev_malloc_get(b, &o);
	json_t *params = rpc_bdev_params("name", o.name);
	rpc_bdev_add_uint(params, "num_blocks", o.num_blocks);
	rpc_bdev_add_uint(params, "block_size", o.block_size);
	rpc_bdev_add_uint(params, "physical_block_size", o.physical_block_size);
	rpc_bdev_add_uuid(params, o.uuid);
	rpc_bdev_add_uint(params, "optimal_io_boundary", o.optimal_io_boundary);
	rpc_bdev_add_md(params, &o.md, !o.md.kept_apart);
	if (o.numa_id >= 0) {
		json_object_set_new(params, "numa_id", json_integer(o.numa_id));
	}
	rpc_config_add(methods, "bdev_malloc_create", params);
}
RPC_BDEV_CONFIG(malloc, .write_bdev = bdev_malloc_write_config)
