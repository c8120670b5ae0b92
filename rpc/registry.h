/* SPDX-License-Identifier: BSD-3-Clause */
/* What has been registered: methods and configuration subsystems. */
#ifndef RPC_REGISTRY_H
#define RPC_REGISTRY_H

#include "rpc/rpc.h"

/* By name or alias; NULL: no such method. */
const struct rpc_method *rpc_method_find(const char *name);
/* Sorted by name; NULL in: the first. */
const struct rpc_method *rpc_method_next(const struct rpc_method *after);

const struct rpc_config *rpc_config_find(const char *name);
/* All, each after the one it names in `after`; *n of them. The array is the caller's to free; NULL: no
 * memory. */
const struct rpc_config **rpc_config_in_order(size_t *n);

/* One method as rpc_describe_methods shows it. */
json_t *rpc_method_describe(const struct rpc_method *m);

#endif
