/* SPDX-License-Identifier: BSD-3-Clause */
/* What another process cannot take over. Control thread. */
#ifndef APPLIANCE_HAND_OVER_LOSSES_H
#define APPLIANCE_HAND_OVER_LOSSES_H

#include <stdbool.h>

#define HAND_OVER_LOSSES_MAX 768

/* Whether the other process would read another key for data, or none: text names the first one. No force is meant for
 * that. */
bool hand_over_spoils_data(char text[HAND_OVER_LOSSES_MAX]);
/* Whether something would be lost, or the hand-over may never end; text names the first of it. */
bool hand_over_losses(char text[HAND_OVER_LOSSES_MAX]);

#endif
