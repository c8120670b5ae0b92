/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks the parameters of a call against the method's table, and decodes them into its structure. Pure, but for the
 * log. */
#ifndef RPC_PARAMS_H
#define RPC_PARAMS_H

#include "rpc/rpc.h"

/* Decodes the JSON object `given` (NULL: nothing was given) into params, which holds the defaults. 0, -ENOMEM, or
 * -EINVAL: then why says which parameter is wrong, in which way, and which values would be accepted. In all cases the
 * caller calls rpc_params_free() afterwards. */
int rpc_params_decode(const struct rpc_param *table, json_t *given, void *params, char *why, size_t why_size);
/* Frees the members that params owns, not params itself. */
void rpc_params_free(const struct rpc_param *table, void *params);

#define RPC_VALUE_TEXT_MAX 80
/* Writes value as the client wrote it, in valid UTF-8, cut if it is longer. Returns text. */
const char *rpc_value_text(const json_t *value, char text[RPC_VALUE_TEXT_MAX]);

/* The same of the value of a parameter: what may be a secret (rpc_param_is_secret()) is not shown. */
const char *rpc_value_of_text(const char *name, const json_t *value, char text[RPC_VALUE_TEXT_MAX]);

/* A type's name in --help and in the documentation: "uint32", "string", "enum" ... */
const char *rpc_type_name(enum rpc_type type);

/* Writes a line to the log for each parameter in given that has no effect (RPC_NO_EFFECT) and asks for something, once
 * for each entry of a table. method: its name, for the line. given: as rpc_params_decode() has accepted it. Control
 * thread. */
void rpc_params_log_no_effect(const char *method, const struct rpc_param *table, json_t *given);

#endif
