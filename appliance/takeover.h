/* SPDX-License-Identifier: BSD-3-Clause */
/* Taking over from another process, the predecessor (hand_over.h has its side), over a connection to its RPC socket:
 *
 *     successor      framework_hand_over {"pid": its own, "dry_run": true}
 *     predecessor    answers with the configuration as it is, {"subsystems": ...}, or why it cannot be handed over
 *     successor      checks that; framework_hand_over {"pid": its own, "timeout_s": ..., "force": ..., "ram_disks":
 * true} predecessor    answers true; ends all calls; notes the configuration; stops serving predecessor {"handed_over":
 * {"subsystems": ...}, "keys": ..., "reservations": ..., "statistics": ..., "ram_disks": ..., "notify_socket": ...,
 * "watchdog_us": ...}, or {"error": why}; before it, the descriptor of the file that RAM disks are in, if there is one
 * (bdev/kept_ram.h) successor      loads it, and listens at the same addresses, that of the RPC socket too successor
 * {"serving": true} predecessor    {"parted": true}, and ends
 *
 * The successor is an ordinary start that gets its configuration there. If it fails in any way, it ends. Control
 * thread, outside of its loop. */
#ifndef APPLIANCE_TAKEOVER_H
#define APPLIANCE_TAKEOVER_H

#include "appliance/config.h"
#include "appliance/options.h"
#include "appliance/parts.h"

/* Returns when the predecessor has stopped serving, with its configuration, which has been checked. 0; -ECANCELED: a
 * signal asked for the end of the process; another negative errno, and error (PART_ERROR_MAX bytes) says what failed.
 */
int takeover_begin(const struct appliance_options *options, struct config *config, char *error);
/* Tells the predecessor that this process serves. 0; or a negative errno and error: it has ended this one's time. */
int takeover_end(char *error);
/* Closes the connection, if there is one, and watches the predecessor no more, which takeover_end() begins if nothing
 * was heard of its end: until that, the file of RAM disks is not this process's (kept_ram_own()). */
void takeover_stop(void);

#endif
