/* SPDX-License-Identifier: BSD-3-Clause */
/* The methods of the varve that was built together with a tool, for the time when none runs. */
#ifndef TOOLS_KNOWN_KNOWN_H
#define TOOLS_KNOWN_KNOWN_H

#include <jansson.h>
#include <stddef.h>

/* JSON, as rpc_describe_methods answers; made by embed.py. */
extern const unsigned char rpc_known_text[];
extern const size_t rpc_known_size;

/* All descriptions; the caller's. NULL: no memory. */
json_t *rpc_known_methods(void);
/* The description of one method, by its name or alias, in an array of one, as rpc_describe_methods answers. The
 * caller's. NULL: there is none. */
json_t *rpc_known_method(const char *name);

#endif
