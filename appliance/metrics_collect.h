/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of metrics_collect(), one per room. Control thread.
 *
 * The samples of a family must stand together, so each part first collects its objects, and then writes them once per
 * family. Names and units follow the conventions of Prometheus: seconds and bytes, _total for what only grows. */
#ifndef APPLIANCE_METRICS_COLLECT_H
#define APPLIANCE_METRICS_COLLECT_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "appliance/metrics_text.h"
#include "nvmf/nvmf.h"
#include "util/compiler.h"

/* A number as a label's value. */
#define COLLECT_NUMBER_MAX 24
static inline const char *collect_number(char to[COLLECT_NUMBER_MAX], uint64_t value)
{
	snprintf(to, COLLECT_NUMBER_MAX, "%" PRIu64, value);
	return to;
}

/* n zeroed objects, to be freed; NULL when there are none, or no memory: then they are left out. */
static inline void *collect_array(size_t n, size_t size)
{
	return n > 0 ? calloc(n, size) : NULL;
}

/* How many bdevs have histograms of their own in a scrape. */
#define COLLECT_HISTOGRAMS_MAX 256

/* Each reactor. */
void metrics_collect_reactors(struct metrics_text *m);
/* Each thread and its pollers. */
void metrics_collect_threads(struct metrics_text *m);
/* Each block device, and the figures of their modules. */
void metrics_collect_bdevs(struct metrics_text *m);
/* The targets: subsystems, hosts, poll groups, outstanding commands. */
void metrics_collect_nvmf(struct metrics_text *m);
/* Each subsystem and queue pair of a target, of which list has the n outstanding commands. */
void metrics_collect_qpairs(struct metrics_text *m, struct nvmf_tgt *tgt, const struct nvmf_inflight *list, size_t n);

#endif
