/* SPDX-License-Identifier: BSD-3-Clause */
/* What the log and notifications say of calls that were refused. */
#ifndef RPC_REFUSAL_H
#define RPC_REFUSAL_H

#include "rpc/rpc.h"

/* Whether the value of the parameter may be a secret: by the parameter's name, or by the value; NULL if that is not a
 * string. Pure. */
bool rpc_param_is_secret(const char *name, const char *value);
/* Whether the value may be a key, or have a good part of one: by the interchange format anywhere in it, or by 16
 * hexadecimal digits in a row. Pure. */
bool rpc_value_may_be_key(const char *value);
/* Puts asterisks in the place of what the message has of keys: values of parameters in the interchange format of keys,
 * and hexadecimal ones of parameters that may be secrets. Clients write messages to logs of their own. params: of the
 * call; may be NULL. Pure. */
void rpc_refusal_mask(const json_t *params, char *message);
/* Whether clients' calls that end with this code are told of in the log and as notifications: the call itself was
 * wrong. Others may be questions whose answer is no. Pure. */
bool rpc_refusal_is_told(int code);
/* Tells of a client's call that was refused, in the log and as a notification rpc_refused; of at most ten in a second.
 * method: its name, as the client wrote it. params: may be NULL. Control thread. */
void rpc_refusal_tell(const char *method, const json_t *params, int code, const char *message);

#endif
