/* SPDX-License-Identifier: BSD-3-Clause */
/* A library to preload: a kernel that never says that it has copied what it was to send without a copy
 * (MSG_ZEROCOPY), as the one of the loopback interface does at once. So programs go on asking for it. */
#include <dlfcn.h>
#include <string.h>
#include <time.h> /* the next one wants it */
#include <linux/errqueue.h>
#include <sys/socket.h>

ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	static ssize_t (*real)(int, struct msghdr *, int);
	struct sock_extended_err e;

	if (real == NULL) {
		real = (ssize_t(*)(int, struct msghdr *, int))dlsym(RTLD_NEXT, "recvmsg");
	}
	ssize_t n = real(fd, msg, flags);
	if (n < 0 || (flags & MSG_ERRQUEUE) == 0) {
		return n;
	}
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c != NULL; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_len >= CMSG_LEN(sizeof(e))) {
			memcpy(&e, CMSG_DATA(c), sizeof(e));
			if (e.ee_origin == SO_EE_ORIGIN_ZEROCOPY) {
				e.ee_code &= (unsigned char)~SO_EE_CODE_ZEROCOPY_COPIED;
				memcpy(CMSG_DATA(c), &e, sizeof(e));
			}
		}
	}
	return n;
}
