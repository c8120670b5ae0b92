/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers of a subsystem: other processes that export the same subsystem. They are asked to reset controllers that are
 * not this process's. Control thread. */
#ifndef NVMF_PEER_INTERNAL_H
#define NVMF_PEER_INTERNAL_H

#include <stdbool.h>
#include <sys/queue.h>
#include "nvmf/decode.h"

struct nvmf_ctrlr;
struct nvmf_subsystem;
struct nvmf_peer_request;

TAILQ_HEAD(nvmf_peers, nvmf_peer);

/* All peers of a subsystem are asked; called once, later. ended: one of them has proved that the controller is gone.
 * why: otherwise the reason, in words. The request is freed after that. */
typedef void (*nvmf_peers_done_fn)(void *arg, bool ended, const char *why);

/* Asks all peers of the asker's subsystem to reset a controller of the asker's host. NULL: nobody could be asked, and
 * *why says the reason. */
struct nvmf_peer_request *nvmf_peers_ask(const struct nvmf_ctrlr *asker, const struct nvmf_ctrlr_name *name,
					 nvmf_peers_done_fn done, void *arg, const char **why);
/* Ends a request that is not wanted any more: done is not called. */
void nvmf_peers_cancel(struct nvmf_peer_request *request);
/* Frees the peers of a subsystem, which has no controllers any more. */
void nvmf_peers_free(struct nvmf_subsystem *s);

#endif
