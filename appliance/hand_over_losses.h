/* SPDX-License-Identifier: BSD-3-Clause */
/* What another process cannot take over. Control thread. */
#ifndef APPLIANCE_HAND_OVER_LOSSES_H
#define APPLIANCE_HAND_OVER_LOSSES_H

#include <stdbool.h>

#define HAND_OVER_LOSSES_MAX 768

/* Whether something would be lost, or the hand-over may never end; text names the first of it. */
bool hand_over_losses(char text[HAND_OVER_LOSSES_MAX]);

#endif
