/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <unistd.h>

#include "rpc/rpc.h"

const char *rpc_client_path(void)
{
	const char *given = getenv("VARVE_RPC_SOCKET");

	if (given != NULL) {
		return given;
	}
	return access(RPC_SERVICE_PATH, F_OK) == 0 ? RPC_SERVICE_PATH : RPC_DEFAULT_PATH;
}
