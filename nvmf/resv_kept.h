/* SPDX-License-Identifier: BSD-3-Clause */
/* Reservations that outlive their namespaces: those of a target that another process takes over, or that this process
 * starts again, where no ptpl_file keeps them. A namespace that is added takes what is kept for it, unless its
 * ptpl_file has other registrants. Control thread. */
#ifndef NVMF_RESV_KEPT_H
#define NVMF_RESV_KEPT_H

#include "nvmf/nvmf.h"
#include "nvmf/resv.h"

struct nvmf_resv_kept {
	const char *tgt_name, *nqn;
	uint32_t nsid;
	uint8_t uuid[16]; /* the namespace's */
	const struct nvmf_resv *state;
};

/* From now on, what a namespace with registrants has when it goes is kept; false: no more. */
void nvmf_resv_keep(bool on);
/* Whether all of that could be kept since nvmf_resv_keep(true): 0, or the negative errno of one that was not. */
int nvmf_resv_kept_whole(void);
/* Keeps a copy. 0; -EEXIST: something is kept for that namespace; -ENOMEM. */
int nvmf_resv_kept_add(const struct nvmf_resv_kept *k);
/* Calls fn with each, which stays valid during the call; stops at the first answer that is not 0, and returns that. */
int nvmf_resv_kept_for_each(int (*fn)(void *arg, const struct nvmf_resv_kept *k), void *arg);
/* Drops what is kept. Returns how many there were. */
unsigned nvmf_resv_kept_clear(void);

#endif
