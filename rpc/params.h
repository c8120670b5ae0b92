/* SPDX-License-Identifier: BSD-3-Clause */
/* Parameters of a call, checked against a method's table and decoded into its struct. Pure. */
#ifndef RPC_PARAMS_H
#define RPC_PARAMS_H

#include "rpc/rpc.h"

/* Decodes given (an object, or NULL: nothing given) into params, which holds the defaults. 0, -ENOMEM, or -EINVAL:
 * then why says which parameter is wrong, how, and what would be accepted. In all cases rpc_params_free()
 * gives back what params owns. */
int rpc_params_decode(const struct rpc_param *table, json_t *given, void *params, char *why, size_t why_size);
void rpc_params_free(const struct rpc_param *table, void *params);

/* value as the client wrote it, in valid UTF-8, cut where it does not fit; returns text. */
#define RPC_VALUE_TEXT_MAX 80
const char *rpc_value_text(const json_t *value, char text[RPC_VALUE_TEXT_MAX]);

/* How --help and the documentation name a type: "uint32", "string", "enum" ... */
const char *rpc_type_name(enum rpc_type type);

#endif
