/* SPDX-License-Identifier: BSD-3-Clause */
/* Reservations on their way from one process to the other (nvmf/resv_kept.h). Control thread. */
#ifndef APPLIANCE_HAND_OVER_RESV_H
#define APPLIANCE_HAND_OVER_RESV_H

#include <jansson.h>

/* All that is kept: [{"tgt_name", "nqn", "nsid", "uuid", "generation", "text"}], text as in a ptpl_file. NULL: no
 * memory. */
json_t *hand_over_resv_export(void);
/* Keeps what the other process has said, after all of it was checked; list may be NULL: nothing. 0; -EBADMSG, or
 * another negative errno. */
int hand_over_resv_import(const json_t *list);

#endif
