/* SPDX-License-Identifier: BSD-3-Clause */
/* Who asks, at a Unix socket. */
#ifndef APPLIANCE_METRICS_PEER_H
#define APPLIANCE_METRICS_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

#define METRICS_PEER_GROUPS_MAX 256

struct metrics_peer {
	uid_t uid;
	gid_t gid;
	size_t n_groups; /* besides gid */
	gid_t groups[METRICS_PEER_GROUPS_MAX];
};
/* Who connected to a Unix socket. A peer of more than METRICS_PEER_GROUPS_MAX groups counts as a member of gid alone. 0
 * or a negative errno. */
int metrics_peer_get(int fd, struct metrics_peer *peer);
/* Whether the peer may read a copy of the black box: it is root or the owner of the file, or the file's group may read
 * it and the peer is a member. Pure. */
bool metrics_peer_may_read(const struct metrics_peer *peer, const struct stat *st);

#endif
