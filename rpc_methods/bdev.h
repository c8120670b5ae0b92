/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of bdev methods share. Control thread. */
#ifndef RPC_BDEV_RPC_H
#define RPC_BDEV_RPC_H

#include "bdev/bdev.h"
#include "rpc/rpc.h"

/* The bdev of that name. NULL: there is none, and the request has been answered with that error. */
struct bdev *rpc_bdev_find(struct rpc_request *req, const char *name);

/* Adds the numbers of all classes of I/O as bdev_get_iostat tells them. */
void rpc_bdev_add_stat_ops(json_t *o, const struct bdev_stat_ops class[BDEV_STAT_CLASSES]);

#define RPC_BDEV_NOMEM_TIMEOUT_MS 5000
#define RPC_BDEV_SPLIT_CHILDREN   32

/* The parameters of the last bdev_set_options. */
struct rpc_bdev_options {
	uint32_t bdev_io_pool_size, bdev_io_cache_size;
	bool bdev_auto_examine;
	uint32_t iobuf_small_cache_size, iobuf_large_cache_size;
	uint32_t nomem_timeout_ms, split_children;
};
extern struct rpc_bdev_options rpc_bdev_options;

#endif
