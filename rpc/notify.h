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
struct notify_event {
	const char *type;
	char context[256]; /* what it happened to; longer ones are cut */
	char reason[256];  /* "": none */
	uint64_t time_us;  /* when, since 1970-01-01 UTC */
};
/* NULL: it is not kept any more, or has not happened yet. Valid until the next event. */
const struct notify_event *notify_get(uint64_t id);

#endif
