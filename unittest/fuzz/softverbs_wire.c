/* SPDX-License-Identifier: BSD-3-Clause */
/* What a softverbs peer sends on a socket: whatever passes the checks must be safe to use. */
#include <stdlib.h>
#include <string.h>

#include "softverbs/shm.h"
#include "softverbs/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sv_cm_msg cm = {0};
	struct sv_link_msg link = {0};

	memcpy(&cm, data, size < sizeof(cm) ? size : sizeof(cm));
	memcpy(&link, data, size < sizeof(link) ? size : sizeof(link));
	/* Half of the inputs get past the first check. */
	if (size > 0 && data[size - 1] % 2 == 0) {
		cm.magic = link.magic = SV_ARENA_MAGIC;
	}
	if (sv_cm_msg_ok(&cm, size) &&
	    (cm.type < SV_CM_REQ || cm.type > SV_CM_DREP || cm.private_data_len > sizeof(cm.private_data) ||
	     (cm.type == SV_CM_REQ && cm.private_data_len > SV_CM_REQ_PRIVATE) || cm.qpn > 0xffffff)) {
		abort();
	}
	if (sv_link_msg_ok(&link, size) && (link.slot == 0 || link.slot >= SV_MAX_SLOTS)) {
		abort();
	}
	return 0;
}
