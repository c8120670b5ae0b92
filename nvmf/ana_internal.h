/* SPDX-License-Identifier: BSD-3-Clause */
/* Asymmetric namespace access (Base 8.1): the state of each ANA group through each listener. Group ids are 1 to
 * max_namespaces of the subsystem. Only the control thread changes states; poll groups read those of the listener
 * through which a controller's host connected. */
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

/* The states that hosts see through one listener. Reference counted, because controllers outlive the listener. */
struct nvmf_ana {
	uint32_t refs;
	uint64_t change_count; /* of the log page */
	struct nvmf_ana_state {
		_Atomic uint8_t state; /* enum nvme_ana_state; groups read it too */
		uint64_t change_count; /* the value of the log page's when this group changed last */
	} groups[];                    /* by group id - 1 */
};

TAILQ_HEAD(nvmf_ana_members, nvmf_ns); /* of one group, sorted by nsid */

/* The state of a group. Any thread. */
static inline enum nvme_ana_state nvmf_ana_get(const struct nvmf_ana *ana, uint32_t anagrpid)
{
	return (enum nvme_ana_state)atomic_load_explicit(&ana->groups[anagrpid - 1].state, memory_order_relaxed);
}

/* The status that commands end with in a state; success in the states OPTIMIZED and NON_OPTIMIZED (Base 8.1.3). */
uint16_t nvmf_ana_status(enum nvme_ana_state state);
/* The state of a namespace's group for a controller; OPTIMIZED if the subsystem does not report states. */
enum nvme_ana_state nvmf_ana_of(const struct nvmf_ctrlr *ctrlr, const struct nvmf_ns *ns);

/* Makes the states of a listener, all groups in one state, with one reference; NULL: no memory. */
struct nvmf_ana *nvmf_ana_create(uint32_t num_groups, enum nvme_ana_state state);
/* Takes a reference, and returns ana, which may be NULL. */
struct nvmf_ana *nvmf_ana_hold(struct nvmf_ana *ana);
/* Gives a reference back; the last frees it. NULL: nothing. */
void nvmf_ana_release(struct nvmf_ana *ana);

/* Whether some listener of the subsystem refuses commands to namespaces of a group. */
bool nvmf_ana_restricts(const struct nvmf_subsystem *s, uint32_t anagrpid);

/* Adds a namespace to the group in its options: the log page changes, and hosts get an event. */
void nvmf_ana_join(struct nvmf_ns *ns);
/* Removes it from its group, in the same way. */
void nvmf_ana_leave(struct nvmf_ns *ns);
/* The members of a namespace's group have changed for some host: its visibility was changed. */
void nvmf_ana_members_changed(const struct nvmf_ns *ns);

/* Writes the log page (Base 5.16.1.13) as a controller's host sees it. Returns its length in bytes. */
uint64_t nvmf_ana_log(const struct nvmf_ctrlr *ctrlr, const struct nvmf_get_log *cmd, struct nvmf_window *w);

#endif
