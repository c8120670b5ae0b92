/* SPDX-License-Identifier: BSD-3-Clause */
/* Core sets, lcores, words for the EAL and PCI addresses, as people write them: never out of bounds, and what is
 * accepted survives being written and read again. */
#include "env_dpdk/env.h"
#include "env_dpdk/pci.h"
#include "env_dpdk/startup.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char error[ENV_ERROR_MAX], text[ENV_CORES_MAX + 2], bdf[16];
	cpu_set_t cores, again;

	if (size >= sizeof(text)) {
		return 0;
	}
	memcpy(text, data, size);
	text[size] = '\0';
	if (env_pci_parse(text, bdf) == 0 && env_pci_parse(bdf, text) != 0) {
		abort();
	}
	memcpy(text, data, size);
	text[size] = '\0';
	struct env_lcore_map map;
	if (env_lcores_parse(text, &map, error) == 0 && (CPU_COUNT(&map.lcores) == 0 || CPU_COUNT(&map.cpus) == 0)) {
		abort();
	}
	if (env_eal_words_check(text, error) == 0 && strstr(text, "--iova-mode") == text) {
		abort();
	}
	if (env_cores_parse(text, &cores, error) != 0) {
		return 0;
	}
	env_cores_format_mask(&cores, text);
	if (env_cores_parse(text, &again, error) != 0 || !CPU_EQUAL(&cores, &again)) {
		abort();
	}
	/* The list may be cut when it is longer than the buffer. */
	text[0] = '[';
	env_cores_format(&cores, text + 1);
	if (strlen(text) < ENV_CORES_MAX - 32) {
		strcat(text, "]");
		if (env_cores_parse(text, &again, error) != 0 || !CPU_EQUAL(&cores, &again)) {
			abort();
		}
	}
	return 0;
}
