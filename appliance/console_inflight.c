/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/console_api.h"
#include "nvmf/nvmf.h"

size_t console_inflight_merge(struct nvmf_inflight *list, size_t n, const struct nvmf_inflight *found, size_t n_found,
			      size_t max)
{
	size_t kept = n_found < max ? 0 : n;

	n = kept;
	for (size_t i = 0; i < n_found && n < max; i++) {
		size_t j = 0;
		while (j < kept && (list[j].object != found[i].object || list[j].start_ticks != found[i].start_ticks)) {
			j++;
		}
		if (j == kept) {
			list[n++] = found[i];
		}
	}
	return n;
}
