/* SPDX-License-Identifier: BSD-3-Clause */
/* A description of the gateway for generators of clients. Pure. */
#ifndef TOOLS_GATEWAY_OPENAPI_H
#define TOOLS_GATEWAY_OPENAPI_H

#include <jansson.h>

#include "tools/gateway/roles.h"

/* An OpenAPI 3.0 document of the methods that the role may call, from the result of rpc_describe_methods. The caller
 * releases it. NULL: no memory. */
json_t *gateway_openapi(const json_t *methods, enum gateway_role role);

#endif
