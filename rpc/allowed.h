/* SPDX-License-Identifier: BSD-3-Clause */
/* Which methods clients may call, if not all. */
#ifndef RPC_ALLOWED_H
#define RPC_ALLOWED_H

#include <stdbool.h>

struct rpc_method;

/* Limits what clients may call, in any state, to these methods: names separated by commas, which must stay; NULL: all.
 * rpc_call_method() is not limited. Before the server starts. */
void rpc_set_allowed(const char *names);
/* Whether clients may call the method. Control thread. */
bool rpc_method_allowed(const struct rpc_method *m);
/* Whether there is a method of that name. Control thread. */
bool rpc_method_exists(const char *name);

#endif
