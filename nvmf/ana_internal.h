/* SPDX-License-Identifier: BSD-3-Clause */
/* Asymmetric namespace access (Base 8.1): the state of each ANA group through each listener. Group ids are 1 to
 * max_namespaces of the subsystem. The control thread is the only writer; poll groups read the states of their
 * controllers' listener. */
#ifndef NVMF_ANA_INTERNAL_H
#define NVMF_ANA_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include "nvme/spec.h"

struct nvmf_ctrlr;
struct nvmf_get_log;
struct nvmf_listener;
struct nvmf_ns;
struct nvmf_subsystem;
struct nvmf_window;

/* The states as one listener shows them. Its controllers hold it too, for they end after it. */
struct nvmf_ana {
	uint32_t refs;
	uint64_t change_count; /* of the log page */
	struct nvmf_ana_state {
		_Atomic uint8_t state; /* enum nvme_ana_state; also read by groups */
		uint64_t change_count; /* when this group changed last */
	} groups[];                    /* by group id - 1 */
};

TAILQ_HEAD(nvmf_ana_members, nvmf_ns); /* of one group, sorted by nsid */

static inline enum nvme_ana_state nvmf_ana_get(const struct nvmf_ana *ana, uint32_t anagrpid)
{
	return (enum nvme_ana_state)atomic_load_explicit(&ana->groups[anagrpid - 1].state, memory_order_relaxed);
}

/* The status for commands to namespaces in a state; success for the two optimized ones (Base 8.1.3). */
uint16_t nvmf_ana_status(enum nvme_ana_state state);
/* What a controller's listener says of a namespace's group; OPTIMIZED if the subsystem does not report. */
enum nvme_ana_state nvmf_ana_of(const struct nvmf_ctrlr *ctrlr, const struct nvmf_ns *ns);

/* With every group in the given state, held once; NULL: no memory. */
struct nvmf_ana *nvmf_ana_create(uint32_t num_groups, enum nvme_ana_state state);
struct nvmf_ana *nvmf_ana_hold(struct nvmf_ana *ana); /* NULL stays NULL */
void nvmf_ana_release(struct nvmf_ana *ana);

/* Whether some listener keeps commands from a group. */
bool nvmf_ana_restricts(const struct nvmf_subsystem *s, uint32_t anagrpid);

/* A namespace joins the group of its options, or leaves it: the log changes, and hosts are told. */
void nvmf_ana_join(struct nvmf_ns *ns);
void nvmf_ana_leave(struct nvmf_ns *ns);
/* What the log says of its group has changed, for some host at least. */
void nvmf_ana_members_changed(const struct nvmf_ns *ns);

/* Writes the log page as a controller sees it: its length in bytes (Base 5.16.1.13). */
uint64_t nvmf_ana_log(const struct nvmf_ctrlr *ctrlr, const struct nvmf_get_log *cmd, struct nvmf_window *w);

#endif
