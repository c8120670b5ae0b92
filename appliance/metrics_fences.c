/* SPDX-License-Identifier: BSD-3-Clause */
/* Metrics of fences: controllers of remote targets that were lost, and the commands that wait until they have ended. */
#include "appliance/metrics_collect.h"
#include "bdev_modules/nvme/bdev_nvme.h"

void metrics_collect_fences(struct metrics_text *m)
{
	struct bdev_nvme_fence_stat stat;

	bdev_nvme_get_fence_stat(&stat);
	metrics_family(m, "varve_nvme_fences", METRICS_GAUGE,
		       "Lost controllers of remote targets that may still carry out commands.");
	metrics_uint(m, stat.fences, NULL);
	metrics_family(m, "varve_nvme_fence_held_commands", METRICS_GAUGE,
		       "Commands that change data, and wait until the controller that they were lost with has ended.");
	metrics_uint(m, stat.held, NULL);
	metrics_family(m, "varve_nvme_fence_held_commands_total", METRICS_COUNTER,
		       "Commands that have waited so, or wait now.");
	metrics_uint(m, stat.commands_total, NULL);
	metrics_family(m, "varve_nvme_fences_ended_total", METRICS_COUNTER,
		       "Fences that have ended, by how: not_waited is less safe than the others.");
	for (unsigned i = 0; i < BDEV_NVME_FENCE_ENDS; i++) {
		metrics_uint(m, stat.ends[i], "result", bdev_nvme_fence_end_name(i), NULL);
	}
}
