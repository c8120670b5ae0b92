/* SPDX-License-Identifier: BSD-3-Clause */
/* What another process cannot take over. Control thread. */
#ifndef APPLIANCE_HAND_OVER_LOSSES_H
#define APPLIANCE_HAND_OVER_LOSSES_H

#include <stdbool.h>
#include <stdint.h>

#define HAND_OVER_LOSSES_MAX 768

/* How much of RAM disks is copied while nobody is served, at most. What is in shared memory already is not counted: it
 * is mapped again, without a limit. */
#define HAND_OVER_RAM_MAX ((uint64_t)1 << 30)

/* Whether the other process would read another key for data, or none: text names the first one; or, with ram, whether
 * there is no memory for the copy of RAM disks. No force is meant for that. ram: the other process takes RAM disks
 * over.
 */
bool hand_over_spoils_data(bool ram, char text[HAND_OVER_LOSSES_MAX]);
/* Whether something would be lost, or the hand-over may never end, or takes longer than hosts should wait; text names
 * the first of it. */
bool hand_over_losses(bool ram, char text[HAND_OVER_LOSSES_MAX]);

#endif
