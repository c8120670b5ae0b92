/* SPDX-License-Identifier: BSD-3-Clause */
/* Cross-Controller Reset (TP8028; Base 2.3, 5.4.3): a host that has lost its connections to one controller, the
 * impacted controller, asks another one, the asker, to end it. The answer is a success only if the impacted controller
 * is gone: none of its commands is carried out any more. Control thread. */
#ifndef NVMF_CROSS_RESET_INTERNAL_H
#define NVMF_CROSS_RESET_INTERNAL_H

#include <stdint.h>
#include <sys/queue.h>
#include "nvmf/decode.h"

struct nvmf_ctrlr;
struct nvmf_window;

/* Identify Controller, CCRL: how many resets of other controllers one controller may have in progress. */
#define NVMF_CROSS_RESETS_MAX 8

/* The resets that one controller was asked for. */
struct nvmf_cross_resets {
	TAILQ_HEAD(, nvmf_cross_reset) list; /* the oldest first */
	unsigned num;
	uint64_t hold_us; /* how long a command is held back in the hope of an immediate success */
};

/* Gives a new controller its CIU and CIRN, and an empty list. 0 or -ENOMEM. */
int nvmf_cross_reset_init(struct nvmf_ctrlr *ctrlr);
/* To be called whenever CSTS.RDY is set: a controller that was ready before becomes another instance, with another CIU
 * and CIRN (TP8028). By its old name it is gone, for a controller is enabled only when its I/O queues have ended. */
void nvmf_cross_reset_renew(struct nvmf_ctrlr *ctrlr);
/* The controller ends or is reset: commands that are held back are answered, its entries of the log page vanish, and
 * peers are not asked any further. Controllers that were to be reset are reset nevertheless. */
void nvmf_cross_reset_forget(struct nvmf_ctrlr *ctrlr);
/* The controller is about to be freed: by its name it is gone. */
void nvmf_cross_reset_gone(struct nvmf_ctrlr *ctrlr);
/* Writes the log page Cross-Controller Reset; with RMC, removes the completed entries that it has written. Returns its
 * length in bytes. */
uint64_t nvmf_cross_reset_log(struct nvmf_ctrlr *ctrlr, const struct nvmf_get_log *cmd, struct nvmf_window *w);

#endif
