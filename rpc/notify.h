/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading of what notify_send() (rpc/rpc.h) has kept. */
#ifndef RPC_NOTIFY_H
#define RPC_NOTIFY_H

#include "rpc/rpc.h"

#define NOTIFY_TYPES_MAX 64

/* The index-th type that was registered; NULL: no more. */
const char *notify_type(unsigned index);
/* The oldest event that is still kept. */
uint64_t notify_first(void);
/* False: it is not kept any more, or has not happened yet. */
bool notify_get(uint64_t id, const char **type, const char **context);

#endif
