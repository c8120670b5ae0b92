/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/metrics_peer.h"

#include <errno.h>
#include <sys/socket.h>

int metrics_peer_get(int fd, struct metrics_peer *peer)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	*peer = (struct metrics_peer){0};
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) != 0) {
		return -errno;
	}
	if (cred.uid == (uid_t)-1) { /* not a Unix socket */
		return -ENOTCONN;
	}
	peer->uid = cred.uid;
	peer->gid = cred.gid;
	len = sizeof(peer->groups);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, peer->groups, &len) == 0) {
		peer->n_groups = len / sizeof(gid_t);
	}
	return 0;
}

static bool peer_is_member(const struct metrics_peer *peer, gid_t gid)
{
	for (size_t i = 0; i < peer->n_groups; i++) {
		if (peer->groups[i] == gid) {
			return true;
		}
	}
	return peer->gid == gid;
}

bool metrics_peer_may_read(const struct metrics_peer *peer, const struct stat *st)
{
	return peer->uid == 0 || peer->uid == st->st_uid ||
	       ((st->st_mode & S_IRGRP) != 0 && peer_is_member(peer, st->st_gid));
}
