/* SPDX-License-Identifier: BSD-3-Clause */
#include "tcp/zerocopy.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <linux/errqueue.h>

#include "util/log.h"

#define READS_MAX 16 /* notifications of one call; each may be of many sends */

struct tcp_zerocopy *tcp_zerocopy_make(int fd, uint32_t threshold)
{
	struct tcp_zerocopy *z = calloc(1, sizeof(*z));
	int on = 1;

	if (z == NULL || setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)) != 0) {
		log_limited(LOG_LEVEL_WARNING, "SO_ZEROCOPY: %s; what is sent is copied",
			    strerror(z == NULL ? ENOMEM : errno));
		free(z);
		return NULL;
	}
	z->on = true;
	z->threshold = threshold == 0                   ? TCP_ZEROCOPY_THRESHOLD
		       : threshold < TCP_ZEROCOPY_LEAST ? TCP_ZEROCOPY_LEAST
							: threshold;
	return z;
}

static ssize_t zerocopy_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	ssize_t n = sendmsg(fd, msg, flags | MSG_DONTWAIT | MSG_NOSIGNAL);

	return n >= 0 ? n : -errno;
}

ssize_t tcp_zerocopy_send(struct tcp_zerocopy *z, int fd, const struct msghdr *msg, int flags, void *owner,
			  bool *refers)
{
	void **place = &z->owners[z->next % TCP_ZEROCOPY_MAX];
	ssize_t n = *place == NULL ? zerocopy_sendmsg(fd, msg, flags | MSG_ZEROCOPY) : -ENOBUFS;

	*refers = n > 0;
	if (n == -ENOBUFS) { /* its number is not used */
		return zerocopy_sendmsg(fd, msg, flags);
	}
	if (n > 0) {
		*place = owner;
		z->next++;
		z->unnotified++;
	}
	return n;
}

bool tcp_zerocopy_decode(struct msghdr *msg, struct tcp_zerocopy_range *range)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c != NULL; c = CMSG_NXTHDR(msg, c)) {
		bool is_error = (c->cmsg_level == SOL_IP && c->cmsg_type == IP_RECVERR) ||
				(c->cmsg_level == SOL_IPV6 && c->cmsg_type == IPV6_RECVERR);
		struct sock_extended_err e;

		if (!is_error || c->cmsg_len < CMSG_LEN(sizeof(e))) {
			continue;
		}
		memcpy(&e, CMSG_DATA(c), sizeof(e));
		if (e.ee_origin == SO_EE_ORIGIN_ZEROCOPY && e.ee_errno == 0) {
			*range = (struct tcp_zerocopy_range){.first = e.ee_info,
							     .last = e.ee_data,
							     .copied = (e.ee_code & SO_EE_CODE_ZEROCOPY_COPIED) != 0};
			return true;
		}
	}
	return false;
}

uint32_t tcp_zerocopy_notify(struct tcp_zerocopy *z, const struct tcp_zerocopy_range *range, tcp_zerocopy_fn fn,
			     void *arg)
{
	uint32_t count = range->last - range->first + 1, done = 0;

	if (count == 0 || count > TCP_ZEROCOPY_MAX) {
		return 0;
	}
	for (uint32_t i = 0, n = range->first; i < count; i++, n++) {
		void **place = &z->owners[n % TCP_ZEROCOPY_MAX], *owner = *place;

		if (owner == NULL || z->next - n - 1 >= TCP_ZEROCOPY_MAX) {
			continue;
		}
		*place = NULL;
		z->unnotified--;
		done++;
		fn(arg, owner, range->copied);
	}
	return done;
}

/* To ask for no copy costs more than a copy where the kernel makes one nevertheless: on the loopback interface, and
 * where the network device cannot gather. */
static void stop_using(struct tcp_zerocopy *z)
{
	static atomic_bool told;

	z->on = false;
	if (!atomic_exchange_explicit(&told, true, memory_order_relaxed)) {
		log_notice("MSG_ZEROCOPY: the kernel has copied data that it was asked not to copy, as on the loopback "
			   "interface; on each connection where it does so, data are sent as usual from then on (told "
			   "once)");
	}
}

bool tcp_zerocopy_read(struct tcp_zerocopy *z, int fd, tcp_zerocopy_fn fn, void *arg)
{
	bool any = false;

	for (unsigned i = 0; i < READS_MAX && z->unnotified != 0; i++) {
		union {
			struct cmsghdr align;
			uint8_t bytes[CMSG_SPACE(sizeof(struct sock_extended_err) + sizeof(struct sockaddr_in6))];
		} control;
		struct msghdr msg = {.msg_control = &control, .msg_controllen = sizeof(control)};
		struct tcp_zerocopy_range range;

		if (recvmsg(fd, &msg, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) {
			return any;
		}
		any = true;
		if (tcp_zerocopy_decode(&msg, &range)) {
			if (range.copied && z->on) {
				stop_using(z);
			}
			(void)tcp_zerocopy_notify(z, &range, fn, arg);
		}
	}
	return any;
}

void tcp_zerocopy_reset(int fd)
{
	struct sockaddr none = {.sa_family = AF_UNSPEC};

	(void)connect(fd, &none, sizeof(none));
}
