/* SPDX-License-Identifier: BSD-3-Clause */
/* iobuf_*: the pools of data buffers that all rooms share. */
#include <errno.h>

#include "env_dpdk/env.h"
#include "env_dpdk/iobuf.h"
#include "rpc/rpc.h"

static void iobuf_options_defaults(void *params)
{
	iobuf_get_opts(params);
}

static const struct rpc_param options_params[] = {
	RPC_PARAM(struct iobuf_opts, small_pool_count, RPC_UINT64, RPC_OPTIONAL,
		  "most small buffers; memory is taken as users come", .min = IOBUF_SMALL_COUNT_MIN,
		  .max = IOBUF_COUNT_MAX),
	RPC_PARAM(struct iobuf_opts, large_pool_count, RPC_UINT64, RPC_OPTIONAL, "most large buffers",
		  .min = IOBUF_LARGE_COUNT_MIN, .max = IOBUF_COUNT_MAX),
	RPC_PARAM(struct iobuf_opts, small_bufsize, RPC_UINT32, RPC_OPTIONAL,
		  "bytes of a small buffer, rounded up to 4096", .bytes = true, .min = IOBUF_SMALL_SIZE_MIN,
		  .max = IOBUF_SIZE_MAX),
	RPC_PARAM(struct iobuf_opts, large_bufsize, RPC_UINT32, RPC_OPTIONAL,
		  "bytes of a large buffer, rounded up to 4096", .bytes = true, .min = IOBUF_LARGE_SIZE_MIN,
		  .max = IOBUF_SIZE_MAX),
	RPC_PARAM(struct iobuf_opts, enable_numa, RPC_BOOL, RPC_OPTIONAL,
		  "buffers of their own for each NUMA node; the counts are of each"),
	RPC_PARAM_END};

static void rpc_iobuf_set_options(struct rpc_request *req, void *params)
{
	char error[ENV_ERROR_MAX];
	int rc = iobuf_set_opts(params, error);

	if (rc != 0) {
		rpc_error(req, rc == -EINVAL ? RPC_ERROR_INVALID_PARAMS : rc, "%s", error);
		return;
	}
	rpc_reply_true(req);
}
RPC_METHOD("iobuf_set_options", rpc_iobuf_set_options, struct iobuf_opts, options_params, RPC_STARTUP,
	   "Set sizes and numbers of the data buffers; what is not given stays as it is",
	   .defaults = iobuf_options_defaults, .result = "true")

static json_t *iobuf_stat_json(const struct iobuf_stat *s)
{
	json_t *o = json_object();

	json_object_set_new(o, "cache", rpc_uint(s->cache));
	json_object_set_new(o, "main", rpc_uint(s->main));
	json_object_set_new(o, "retry", rpc_uint(s->retry));
	json_object_set_new(o, "cache_size", rpc_uint(s->cache_size));
	return o;
}

static void iobuf_stats_add_module(void *arg, const char *module, const struct iobuf_stat *stat)
{
	json_t *o = json_object();

	json_object_set_new(o, "module", rpc_string(module));
	json_object_set_new(o, "small_pool", iobuf_stat_json(&stat[IOBUF_SMALL]));
	json_object_set_new(o, "large_pool", iobuf_stat_json(&stat[IOBUF_LARGE]));
	json_array_append_new(arg, o);
}

static void rpc_iobuf_get_stats(struct rpc_request *req, void *params)
{
	json_t *list = json_array();

	iobuf_for_each_module(iobuf_stats_add_module, list);
	rpc_reply(req, list);
}
#define POOL_SHAPE "{cache: int, main: int, retry: int, cache_size: int}"
RPC_METHOD("iobuf_get_stats", rpc_iobuf_get_stats, struct rpc_no_params, NULL, RPC_RUNTIME,
	   "Tell how users of data buffers got them: at hand, from the main pool, after waiting",
	   .result = "[{module: string, small_pool: " POOL_SHAPE ", large_pool: " POOL_SHAPE ", ...}]")

static void iobuf_write_options(json_t *methods)
{
	struct iobuf_opts o;
	json_t *params = json_object();

	iobuf_get_opts(&o);
	json_object_set_new(params, "small_pool_count", rpc_uint(o.small_pool_count));
	json_object_set_new(params, "large_pool_count", rpc_uint(o.large_pool_count));
	json_object_set_new(params, "small_bufsize", rpc_uint(o.small_bufsize));
	json_object_set_new(params, "large_bufsize", rpc_uint(o.large_bufsize));
	json_object_set_new(params, "enable_numa", json_boolean(o.enable_numa));
	rpc_config_add(methods, "iobuf_set_options", params);
}

static struct rpc_config iobuf_config = {.name = "iobuf", .after = "keyring", .write = iobuf_write_options};

__attribute__((constructor)) static void iobuf_register_config(void)
{
	rpc_config_register(&iobuf_config);
}
