/* SPDX-License-Identifier: BSD-3-Clause */
/* Who may take over: the process that has connected, if it is what it says, of the same user, and of the same service.
 */
#ifndef APPLIANCE_HAND_OVER_CALLER_H
#define APPLIANCE_HAND_OVER_CALLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HAND_OVER_CALLER_ERROR_MAX 768
#define HAND_OVER_UNIT_MAX         4096

/* Opens the process at the other end of a connection. pid: what it says it is. It must belong to this process's
 * user, or to root if this process may send it signals. service: a service manager watches this process: then the
 * caller must belong to the same unit, as the manager takes no other one for the service; with force that is not looked
 * at. 0, and *pidfd is to be closed; or a negative errno, and why says what is wrong. Control thread. */
int hand_over_caller_open(int fd, int32_t pid, bool service, bool force, int *pidfd,
			  char why[HAND_OVER_CALLER_ERROR_MAX]);

/* The path of a service manager's unit (its service or scope) from the text of a /proc/PID/cgroup; outside of units,
 * of the control group; empty if there is none in the text. Pure. */
void hand_over_unit_of(const char *groups, char unit[HAND_OVER_UNIT_MAX]);

#endif
