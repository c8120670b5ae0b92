/* SPDX-License-Identifier: BSD-3-Clause */
/* The registered methods, and the registered parts of the configuration. Control thread. */
#ifndef RPC_REGISTRY_H
#define RPC_REGISTRY_H

#include "rpc/rpc.h"

/* The method of that name or alias; NULL: there is none. */
const struct rpc_method *rpc_method_find(const char *name);
/* All methods, sorted by name, one by one: NULL for the first; NULL: no more. */
const struct rpc_method *rpc_method_next(const struct rpc_method *after);

/* NULL: there is none of that name. */
const struct rpc_config *rpc_config_find(const char *name);
/* All parts of the configuration, *n of them, each behind the one that it names in `after`. The caller frees the array.
 * NULL: no memory. */
const struct rpc_config **rpc_config_in_order(size_t *n);

/* Appends the entries of a part; whole: also parameters that rpc_config_leaves_out() is about. Control thread. */
void rpc_config_write(const struct rpc_config *c, bool whole, json_t *methods);

/* The description of a method, as rpc_describe_methods answers it. */
json_t *rpc_method_describe(const struct rpc_method *m);

#endif
