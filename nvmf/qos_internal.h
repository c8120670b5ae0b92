/* SPDX-License-Identifier: BSD-3-Clause */
/* Rate limits (nvmf/qos.h) on the way of a command. Group, where nothing else is said. */
#ifndef NVMF_QOS_INTERNAL_H
#define NVMF_QOS_INTERNAL_H

#include "nvmf/qos.h"
#include "nvmf/transport.h"

struct nvmf_command;

TAILQ_HEAD(nvmf_qos_list, nvmf_qos);

/* A command of a namespace with NVMF_NS_QOS arrives, or has waited. True: it has to wait, and was queued; later
 * nvmf_io_restart() goes on with it. False: it may go, and has been counted once. */
bool nvmf_qos_hold(struct nvmf_request *req, const struct nvmf_command *cmd, const struct nvmf_ns_view *nsv);
/* The poll group's view of a subsystem begins, and goes: no command waits in it. */
void nvmf_qos_view_init(struct nvmf_subsystem_view *view);
void nvmf_qos_view_fini(struct nvmf_subsystem_view *view);
/* Takes the waiting commands out of the queues of a queue pair or, for NULL, of all of the view, and finishes them with
 * a status. nsid: of one namespace; NVME_NSID_ALL: of all. */
void nvmf_qos_purge(struct nvmf_subsystem_view *view, struct nvmf_qpair *qpair, uint32_t nsid, uint16_t status);
/* Takes one waiting command out of its queue. */
void nvmf_qos_unwait(struct nvmf_request *req);

/* Control thread: a new queue pair of a controller gets its host's limits; q NULL: there are none. */
void nvmf_qos_link(struct nvmf_qpair *qpair, struct nvmf_qos *q);
/* Control thread: frees all limits of a subsystem, which has no views any more. */
void nvmf_qos_free(struct nvmf_subsystem *s);

#endif
