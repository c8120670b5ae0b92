/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "softverbs/shm.h"
#include "softverbs/wire.h"

int sv_wire_send(int fd, const void *message, size_t size, const int *fds, int num_fds)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(SV_WIRE_MAX_FDS * sizeof(int))];
	} control;
	struct iovec iov = {(void *)(uintptr_t)message, size};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

	if (num_fds > 0) {
		size_t bytes = (size_t)num_fds * sizeof(int);

		memset(&control, 0, sizeof(control));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(bytes);
		memcpy(CMSG_DATA(&control.header), fds, bytes);
		m.msg_control = &control;
		m.msg_controllen = CMSG_SPACE(bytes);
	}
	return sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)size ? 0 : errno;
}

ssize_t sv_wire_receive(int fd, void *message, size_t size, int *fds, int *num_fds)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(SV_WIRE_MAX_FDS * sizeof(int))];
	} control;
	struct iovec iov = {message, size};
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	ssize_t n;

	memset(message, 0, size);
	*num_fds = 0;
	n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	if (n < 0) {
		return n;
	}
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c != NULL; c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
			size_t bytes = c->cmsg_len - CMSG_LEN(0);

			/* The kernel passed no more than fit in the space that it was given. */
			memcpy(fds + *num_fds, CMSG_DATA(c), bytes);
			*num_fds += (int)(bytes / sizeof(int));
		}
	}
	/* A message that is longer than all valid ones counts as empty. */
	return (m.msg_flags & MSG_TRUNC) != 0 ? 0 : n;
}

void sv_wire_close_fds(const int *fds, int num_fds)
{
	for (int i = 0; i < num_fds; i++) {
		if (fds[i] >= 0) {
			close(fds[i]);
		}
	}
}

bool sv_link_msg_ok(const struct sv_link_msg *m, size_t size)
{
	return size == sizeof(*m) && m->magic == SV_ARENA_MAGIC && m->type >= SV_LINK_HELLO &&
	       m->type <= SV_LINK_FORGET && m->slot != 0 && m->slot < SV_MAX_SLOTS;
}

bool sv_cm_msg_ok(const struct sv_cm_msg *m, size_t size)
{
	static const uint8_t max_private[] = {
		[SV_CM_REQ] = SV_CM_REQ_PRIVATE,
		[SV_CM_REP] = SV_CM_REP_PRIVATE,
		[SV_CM_RTU] = 0,
		[SV_CM_REJ] = SV_CM_REJ_PRIVATE,
		[SV_CM_DREQ] = 0,
		[SV_CM_DREP] = 0,
	};

	return size == sizeof(*m) && m->magic == SV_ARENA_MAGIC && m->type >= SV_CM_REQ && m->type <= SV_CM_DREP &&
	       m->private_data_len <= max_private[m->type] && m->qpn <= 0xffffff && m->psn <= 0xffffff &&
	       m->retry_count <= 7 && m->rnr_retry_count <= 7 &&
	       (m->type != SV_CM_REQ || m->family == 4 || m->family == 6);
}
