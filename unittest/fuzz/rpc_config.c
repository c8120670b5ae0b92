/* SPDX-License-Identifier: BSD-3-Clause */
/* A configuration file: its shape, and the check against the registry, of which some methods are linked in here. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "appliance/config.h"
#include "rpc/rpc.h"
#include "util/log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct set {
	char *name;
	uint32_t value;
};

static const struct rpc_param set_params[] = {
	RPC_PARAM(struct set, name, RPC_STRING, RPC_REQUIRED, ""),
	RPC_PARAM(struct set, value, RPC_UINT32, RPC_OPTIONAL, ""),
	RPC_PARAM_END,
};

static void rpc_set(struct rpc_request *req, void *params)
{
	abort(); /* checking must not call anything */
}
RPC_METHOD("set", rpc_set, struct set, set_params, RPC_RUNTIME, "Never called", .result = "any")

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char error[CONFIG_ERROR_MAX] = "";
	struct config c;

	static FILE *nowhere;

	log_set_print_level(LOG_LEVEL_DISABLED);
	nowhere = nowhere != NULL ? nowhere : fopen("/dev/null", "w");
	const unsigned n_wrong = config_examine_text("fuzz.json", (const char *)data, size, nowhere);
	if (config_parse("fuzz.json", (const char *)data, size, &c, error) != 0) {
		if (error[0] == '\0') {
			abort();
		}
		if (n_wrong == 0) { /* what cannot be loaded has something wrong, and the other way round */
			abort();
		}
		return 0;
	}
	const int rc = config_check(&c, false, error);
	if ((rc != 0 && config_check(&c, true, error) != 0) || (rc != 0) != (n_wrong != 0)) {
		abort();
	}
	config_free(&c);
	return 0;
}
