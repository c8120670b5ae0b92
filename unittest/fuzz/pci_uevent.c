/* SPDX-License-Identifier: BSD-3-Clause */
/* Uevents: what comes out is an address in its full form, or nothing. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "env_dpdk/pci_device.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct env_pci_uevent e;
	char full[16];
	char *text = malloc(size ? size : 1); /* exactly as long: reads beyond it are seen */

	memcpy(text, data, size);
	if (env_pci_uevent_parse(text, size, &e) && (env_pci_parse(e.bdf, full) != 0 || strcmp(full, e.bdf) != 0)) {
		abort();
	}
	free(text);
	return 0;
}
