/* SPDX-License-Identifier: BSD-3-Clause */
/* The events that notify_send() (rpc/rpc.h) has recorded. Control thread. */
#ifndef RPC_NOTIFY_H
#define RPC_NOTIFY_H

#include "rpc/rpc.h"

#define NOTIFY_TYPES_MAX 64

/* What a client is shown: the common types, or all; each view has its own numbers. */
enum notify_view { NOTIFY_COMMON, NOTIFY_ALL, NOTIFY_VIEWS };

/* The type number index of a view, from 0; NULL: no more. */
const char *notify_type(enum notify_view view, unsigned index);
/* The id of the oldest event that is still kept. */
uint64_t notify_first(enum notify_view view);
struct notify_event {
	const char *type;
	char context[256]; /* the name of the object that it happened to; longer ones are cut */
	char reason[256];  /* "": none */
	uint64_t time_us;  /* since 1970-01-01 UTC */
};
/* The event with that id; NULL: it is not kept any more, or has not happened yet. Valid until the next event. */
const struct notify_event *notify_get(enum notify_view view, uint64_t id);

#endif
