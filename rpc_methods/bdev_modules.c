/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods that make, change and delete null, malloc, delay, error, uring and aio bdevs. */
#include <errno.h>
#include <string.h>

#include "bdev/module.h"
#include "bdev_modules/bdev_modules.h"
#include "rpc_methods/bdev.h"

/* Params hold UUIDs as text, in canonical form: the decoder has checked them. */
static const uint8_t *uuid_or_null(const char *text, uint8_t uuid[16])
{
	return text != NULL && bdev_uuid_parse(text, uuid) == 0 ? uuid : NULL;
}

static void answer_name(struct rpc_request *req, int rc, const char *name, const char *error)
{
	if (rc == 0) {
		rpc_reply(req, rpc_string(name));
	} else {
		rpc_error(req, rc, "%s", error);
	}
}

static void answer_true(struct rpc_request *req, int rc, const char *error)
{
	if (rc == 0) {
		rpc_reply_true(req);
	} else {
		rpc_error(req, rc, "%s", error);
	}
}

/* What null and malloc have in common. Sizes and types that do not fit their fields are told as they came. */
static bool decode_md(struct rpc_request *req, uint32_t md_size, int32_t dif_type, bool dif_is_head_of_md,
		      uint32_t dif_pi_format, struct bdev_md *md)
{
	if (md_size > 128) {
		rpc_error(req, -EINVAL, "md_size %u: must be 0, 8, 16, 32, 64 or 128", md_size);
		return false;
	}
	if (dif_type < 0 || dif_type > 3) {
		rpc_error(req, -EINVAL, "dif_type %d: must be 0 (none) to 3", dif_type);
		return false;
	}
	if (dif_pi_format != 0) {
		rpc_error(req, -ENOTSUP,
			  "dif_pi_format %u: guards of 32 and 64 bits are not supported, only 0 (16 bits) is allowed",
			  dif_pi_format);
		return false;
	}
	*md = (struct bdev_md){
		.size = (uint16_t)md_size, .dif_type = (uint8_t)dif_type, .dif_is_first = dif_is_head_of_md};
	return true;
}

/* --- Deletion: answered when the bdev is gone --- */

struct by_name {
	char *name;
	struct rpc_request *req;
};

static void deletion_done(void *arg, int rc)
{
	const struct by_name *p = arg;

	if (rc == 0) {
		rpc_reply_true(p->req);
	} else if (rc == -ENODEV) {
		rpc_error(p->req, rc, "name '%.200s': there is no such bdev, or it is of another kind", p->name);
	} else {
		rpc_error(p->req, rc, "name '%.200s': it is being deleted already", p->name);
	}
}

static const struct rpc_param by_name_params[] = {
	RPC_PARAM(struct by_name, name, RPC_STRING, RPC_REQUIRED, "of the bdev"), RPC_PARAM_END};

#define DELETE_METHOD(kind_, what_)                                                                                    \
	static void rpc_bdev_##kind_##_delete(struct rpc_request *req, void *params)                                   \
	{                                                                                                              \
		struct by_name *p = params;                                                                            \
		p->req = req;                                                                                          \
		bdev_##kind_##_delete(p->name, deletion_done, p);                                                      \
	}                                                                                                              \
	RPC_METHOD("bdev_" #kind_ "_delete", rpc_bdev_##kind_##_delete, struct by_name, by_name_params, RPC_RUNTIME,   \
		   "Delete " what_ "; answered when its users have let go of it", .result = "true")
DELETE_METHOD(null, "a null bdev")
DELETE_METHOD(malloc, "a RAM disk")
DELETE_METHOD(delay, "a delay bdev")
DELETE_METHOD(error, "an error bdev")
DELETE_METHOD(uring, "a bdev made by bdev_uring_create")
DELETE_METHOD(aio, "a bdev made by bdev_aio_create")

/* --- null --- */

struct null_create {
	char *name, *uuid;
	uint32_t block_size, physical_block_size, md_size, dif_pi_format;
	int32_t dif_type;
	bool dif_is_head_of_md;
	uint64_t num_blocks;
	uint32_t preferred_write_granularity, preferred_write_alignment, optimal_write_size;
	uint32_t preferred_unmap_granularity, preferred_unmap_alignment;
};

#define NULL_PARAM(field_, type_, required_, help_) RPC_PARAM(struct null_create, field_, type_, required_, help_)
static const struct rpc_param null_create_params[] = {
	NULL_PARAM(name, RPC_STRING, RPC_REQUIRED, "of the new bdev"),
	NULL_PARAM(block_size, RPC_UINT32, RPC_REQUIRED, "bytes of data: a multiple of 512, up to 65536"),
	NULL_PARAM(num_blocks, RPC_UINT64, RPC_REQUIRED, "blocks"),
	NULL_PARAM(uuid, RPC_UUID, RPC_OPTIONAL, "default: a random one"),
	NULL_PARAM(physical_block_size, RPC_UINT32, RPC_OPTIONAL, "bytes; default: block_size"),
	NULL_PARAM(md_size, RPC_UINT32, RPC_OPTIONAL,
		   "bytes of metadata behind a block's data: 8, 16, 32, 64, 128; default: 0"),
	NULL_PARAM(dif_type, RPC_INT32, RPC_OPTIONAL,
		   "protection information in the metadata: 1 to 3; default: 0, none"),
	NULL_PARAM(dif_pi_format, RPC_UINT32, RPC_OPTIONAL, "0: its guard has 16 bits; others are not supported"),
	NULL_PARAM(dif_is_head_of_md, RPC_BOOL, RPC_OPTIONAL, "it is the first 8 bytes of the metadata, not the last"),
	NULL_PARAM(preferred_write_granularity, RPC_UINT32, RPC_OPTIONAL, "blocks; shown to users"),
	NULL_PARAM(preferred_write_alignment, RPC_UINT32, RPC_OPTIONAL, "blocks; shown to users"),
	NULL_PARAM(optimal_write_size, RPC_UINT32, RPC_OPTIONAL, "blocks; shown to users"),
	NULL_PARAM(preferred_unmap_granularity, RPC_UINT32, RPC_OPTIONAL, "blocks; shown to users"),
	NULL_PARAM(preferred_unmap_alignment, RPC_UINT32, RPC_OPTIONAL, "blocks; shown to users"),
	RPC_PARAM_END};

static void rpc_bdev_null_create(struct rpc_request *req, void *params)
{
	const struct null_create *p = params;
	char error[BDEV_ERROR_MAX];
	uint8_t uuid[16];

	struct bdev_md md;

	if (!decode_md(req, p->md_size, p->dif_type, p->dif_is_head_of_md, p->dif_pi_format, &md)) {
		return;
	}
	const struct bdev_null_opts opts = {
		.md = md,
		.name = p->name,
		.uuid = uuid_or_null(p->uuid, uuid),
		.block_size = p->block_size,
		.physical_block_size = p->physical_block_size,
		.num_blocks = p->num_blocks,
		.hints = {.preferred_write_granularity = p->preferred_write_granularity,
			  .preferred_write_alignment = p->preferred_write_alignment,
			  .optimal_write_size = p->optimal_write_size,
			  .preferred_unmap_granularity = p->preferred_unmap_granularity,
			  .preferred_unmap_alignment = p->preferred_unmap_alignment},
	};
	answer_name(req, bdev_null_create(&opts, error), p->name, error);
}
RPC_METHOD("bdev_null_create", rpc_bdev_null_create, struct null_create, null_create_params, RPC_RUNTIME,
	   "Create a bdev that stores nothing and takes no time", .result = "string")

struct resize {
	char *name;
	uint64_t new_size;
};

static const struct rpc_param resize_params[] = {
	RPC_PARAM(struct resize, name, RPC_STRING, RPC_REQUIRED, "of the bdev"),
	RPC_PARAM(struct resize, new_size, RPC_UINT64, RPC_REQUIRED, "MiB"), RPC_PARAM_END};

static void rpc_bdev_null_resize(struct rpc_request *req, void *params)
{
	const struct resize *p = params;
	char error[BDEV_ERROR_MAX];

	answer_true(req, bdev_null_resize(p->name, p->new_size, error), error);
}
RPC_METHOD("bdev_null_resize", rpc_bdev_null_resize, struct resize, resize_params, RPC_RUNTIME,
	   "Change the size of a null bdev", .result = "true")

/* --- malloc --- */

struct malloc_create {
	char *name, *uuid;
	uint32_t block_size, physical_block_size, optimal_io_boundary, md_size, dif_pi_format;
	int32_t dif_type, numa_id;
	bool md_interleave, dif_is_head_of_md;
	uint64_t num_blocks;
};

#define MALLOC_PARAM(field_, type_, required_, help_) RPC_PARAM(struct malloc_create, field_, type_, required_, help_)
static const struct rpc_param malloc_create_params[] = {
	MALLOC_PARAM(name, RPC_STRING, RPC_OPTIONAL, "of the new bdev; default: Malloc0, Malloc1 ..."),
	MALLOC_PARAM(block_size, RPC_UINT32, RPC_REQUIRED, "bytes of data: a multiple of 512, up to 65536"),
	MALLOC_PARAM(num_blocks, RPC_UINT64, RPC_REQUIRED, "blocks"),
	MALLOC_PARAM(uuid, RPC_UUID, RPC_OPTIONAL, "default: a random one"),
	MALLOC_PARAM(physical_block_size, RPC_UINT32, RPC_OPTIONAL, "bytes; default: block_size"),
	MALLOC_PARAM(optimal_io_boundary, RPC_UINT32, RPC_OPTIONAL, "blocks, a power of two; default: none"),
	MALLOC_PARAM(md_size, RPC_UINT32, RPC_OPTIONAL,
		     "bytes of metadata behind a block's data: 8, 16, 32, 64, 128; default: 0"),
	MALLOC_PARAM(md_interleave, RPC_BOOL, RPC_OPTIONAL,
		     "metadata follows each block's data: must be true with md_size"),
	MALLOC_PARAM(dif_type, RPC_INT32, RPC_OPTIONAL,
		     "protection information in the metadata: 1 to 3; default: 0, none"),
	MALLOC_PARAM(dif_is_head_of_md, RPC_BOOL, RPC_OPTIONAL,
		     "it is the first 8 bytes of the metadata, not the last"),
	MALLOC_PARAM(dif_pi_format, RPC_UINT32, RPC_OPTIONAL, "0: its guard has 16 bits; others are not supported"),
	MALLOC_PARAM(numa_id, RPC_INT32, RPC_OPTIONAL, "node its memory comes from; default: -1, any"),
	RPC_PARAM_END};

static void malloc_create_defaults(void *params)
{
	((struct malloc_create *)params)->numa_id = -1;
}

static void malloc_created(void *req, int rc, const char *text)
{
	answer_name(req, rc, text, text);
}

static void rpc_bdev_malloc_create(struct rpc_request *req, void *params)
{
	const struct malloc_create *p = params;
	uint8_t uuid[16];

	struct bdev_md md;

	if (!decode_md(req, p->md_size, p->dif_type, p->dif_is_head_of_md, p->dif_pi_format, &md)) {
		return;
	}
	if (p->md_size != 0 && !p->md_interleave) {
		rpc_error(req, -ENOTSUP,
			  "md_interleave false: metadata apart from the data is not supported, md_size %u needs true",
			  p->md_size);
		return;
	}
	const struct bdev_malloc_opts opts = {
		.md = md,
		.name = p->name,
		.uuid = uuid_or_null(p->uuid, uuid),
		.block_size = p->block_size,
		.physical_block_size = p->physical_block_size,
		.optimal_io_boundary = p->optimal_io_boundary,
		.num_blocks = p->num_blocks,
		.numa_id = p->numa_id,
	};
	bdev_malloc_create_async(&opts, malloc_created, req);
}
RPC_METHOD("bdev_malloc_create", rpc_bdev_malloc_create, struct malloc_create, malloc_create_params, RPC_RUNTIME,
	   "Create a RAM disk", .defaults = malloc_create_defaults, .in_turn = true, .result = "string")

/* --- delay --- */

struct delay_create {
	char *name, *base_bdev_name, *uuid;
	uint64_t avg_read_latency, p99_read_latency, avg_write_latency, p99_write_latency;
	uint64_t p999_read_latency, p999_write_latency;
};

#define DELAY_PARAM(field_, type_, required_, help_) RPC_PARAM(struct delay_create, field_, type_, required_, help_)
static const struct rpc_param delay_create_params[] = {
	DELAY_PARAM(name, RPC_STRING, RPC_REQUIRED, "of the new bdev"),
	DELAY_PARAM(base_bdev_name, RPC_STRING, RPC_REQUIRED, "the bdev to make slower, which it claims"),
	DELAY_PARAM(avg_read_latency, RPC_UINT64, RPC_REQUIRED, "microseconds"),
	DELAY_PARAM(p99_read_latency, RPC_UINT64, RPC_REQUIRED, "microseconds, of one in a hundred"),
	DELAY_PARAM(avg_write_latency, RPC_UINT64, RPC_REQUIRED, "microseconds"),
	DELAY_PARAM(p99_write_latency, RPC_UINT64, RPC_REQUIRED, "microseconds, of one in a hundred"),
	DELAY_PARAM(p999_read_latency, RPC_UINT64, RPC_OPTIONAL,
		    "microseconds, of one in a thousand (default 0: as the 99th)"),
	DELAY_PARAM(p999_write_latency, RPC_UINT64, RPC_OPTIONAL,
		    "microseconds, of one in a thousand (default 0: as the 99th)"),
	DELAY_PARAM(uuid, RPC_UUID, RPC_OPTIONAL, "default: a random one"),
	RPC_PARAM_END};

static void rpc_bdev_delay_create(struct rpc_request *req, void *params)
{
	const struct delay_create *p = params;
	char error[BDEV_ERROR_MAX];
	uint8_t uuid[16];
	const struct bdev_delay_opts opts = {
		.name = p->name,
		.base_bdev_name = p->base_bdev_name,
		.uuid = uuid_or_null(p->uuid, uuid),
		.latency_us = {[BDEV_DELAY_AVG_READ] = p->avg_read_latency,
			       [BDEV_DELAY_P99_READ] = p->p99_read_latency,
			       [BDEV_DELAY_P999_READ] = p->p999_read_latency,
			       [BDEV_DELAY_AVG_WRITE] = p->avg_write_latency,
			       [BDEV_DELAY_P99_WRITE] = p->p99_write_latency,
			       [BDEV_DELAY_P999_WRITE] = p->p999_write_latency},
	};

	answer_name(req, bdev_delay_create(&opts, error), p->name, error);
}
RPC_METHOD("bdev_delay_create", rpc_bdev_delay_create, struct delay_create, delay_create_params, RPC_RUNTIME,
	   "Create a bdev that makes another one slower", .result = "string")

struct delay_update {
	char *delay_bdev_name;
	int latency_type;
	uint64_t latency_us;
};

static const struct rpc_enum latency_types[] = {{"avg_read", BDEV_DELAY_AVG_READ},
						{"p99_read", BDEV_DELAY_P99_READ},
						{"p999_read", BDEV_DELAY_P999_READ},
						{"avg_write", BDEV_DELAY_AVG_WRITE},
						{"p99_write", BDEV_DELAY_P99_WRITE},
						{"p999_write", BDEV_DELAY_P999_WRITE},
						{NULL, 0}};

static const struct rpc_param delay_update_params[] = {
	RPC_PARAM(struct delay_update, delay_bdev_name, RPC_STRING, RPC_REQUIRED, "of the delay bdev"),
	RPC_PARAM(struct delay_update, latency_type, RPC_ENUM, RPC_REQUIRED, "which", .enums = latency_types),
	RPC_PARAM(struct delay_update, latency_us, RPC_UINT64, RPC_REQUIRED, "microseconds"), RPC_PARAM_END};

static void rpc_bdev_delay_update_latency(struct rpc_request *req, void *params)
{
	const struct delay_update *p = params;
	char error[BDEV_ERROR_MAX];

	answer_true(req,
		    bdev_delay_update_latency(p->delay_bdev_name, (enum bdev_delay_latency)p->latency_type,
					      p->latency_us, error),
		    error);
}
RPC_METHOD("bdev_delay_update_latency", rpc_bdev_delay_update_latency, struct delay_update, delay_update_params,
	   RPC_RUNTIME, "Change a latency of a delay bdev", .result = "true")

/* --- error --- */

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

	answer_name(req, bdev_error_create(p->base_name, uuid_or_null(p->uuid, uuid), name, error), name, error);
}
RPC_METHOD("bdev_error_create", rpc_bdev_error_create, struct error_create, error_create_params, RPC_RUNTIME,
	   "Create EE_<base_name>, a bdev whose I/O can be made to fail", .result = "true|string")

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

	answer_true(req, bdev_error_inject(p->name, &in, error), error);
}
RPC_METHOD("bdev_error_inject_error", rpc_bdev_error_inject_error, struct inject_error, inject_error_params,
	   RPC_RUNTIME, "Make I/O of an error bdev fail, hang, wait or lie", .defaults = inject_error_defaults,
	   .result = "true")

static void rpc_bdev_error_resume_pending(struct rpc_request *req, void *params)
{
	char error[BDEV_ERROR_MAX];

	answer_true(req, bdev_error_resume_pending(((const struct by_name *)params)->name, error), error);
}
RPC_METHOD("bdev_error_resume_pending", rpc_bdev_error_resume_pending, struct by_name, by_name_params, RPC_RUNTIME,
	   "Let I/O go on that an injected 'pending' holds", .result = "true")

/* --- uring and aio --- */

struct file_create {
	char *name, *filename, *uuid;
	uint32_t block_size;
	bool readonly, fallocate, nowait;
};

#define FILE_PARAM(field_, type_, required_, help_) RPC_PARAM(struct file_create, field_, type_, required_, help_)
#define FILE_PARAMS                                                                                                    \
	FILE_PARAM(name, RPC_STRING, RPC_REQUIRED, "of the new bdev"),                                                 \
		FILE_PARAM(filename, RPC_STRING, RPC_REQUIRED, "a regular file or block device"),                      \
		FILE_PARAM(block_size, RPC_UINT32, RPC_OPTIONAL,                                                       \
			   "bytes, a power of two; default: the device's, or what direct I/O needs"),                  \
		FILE_PARAM(uuid, RPC_UUID, RPC_OPTIONAL, "default: a random one"),                                     \
		FILE_PARAM(readonly, RPC_BOOL, RPC_OPTIONAL, "refuse what changes data"),                              \
		FILE_PARAM(fallocate, RPC_BOOL, RPC_OPTIONAL,                                                          \
			   "unmap and write zeroes punch holes; default: unmap does nothing")
static const struct rpc_param uring_create_params[] = {FILE_PARAMS, RPC_PARAM_END};
static const struct rpc_param aio_create_params[] = {
	FILE_PARAMS,
	FILE_PARAM(nowait, RPC_BOOL, RPC_OPTIONAL, "saved for clients that set it; no effect: submitting never blocks"),
	RPC_PARAM_END};

static void file_create(struct rpc_request *req, const struct file_create *p, bool aio)
{
	char error[BDEV_ERROR_MAX];
	uint8_t uuid[16];
	const struct bdev_uring_opts opts = {
		.name = p->name,
		.filename = p->filename,
		.uuid = uuid_or_null(p->uuid, uuid),
		.block_size = p->block_size,
		.readonly = p->readonly,
		.fallocate = p->fallocate,
		.nowait = p->nowait,
		.aio = aio,
	};

	answer_name(req, bdev_uring_create(&opts, error), p->name, error);
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

	answer_true(req, bdev_uring_rescan(((const struct by_name *)params)->name, false, error), error);
}
RPC_METHOD("bdev_uring_rescan", rpc_bdev_uring_rescan, struct by_name, by_name_params, RPC_RUNTIME,
	   "Take up a new size of the file or device", .result = "true")

static void rpc_bdev_aio_rescan(struct rpc_request *req, void *params)
{
	char error[BDEV_ERROR_MAX];

	answer_true(req, bdev_uring_rescan(((const struct by_name *)params)->name, true, error), error);
}
RPC_METHOD("bdev_aio_rescan", rpc_bdev_aio_rescan, struct by_name, by_name_params, RPC_RUNTIME,
	   "Take up a new size of the file or device", .result = "true")
