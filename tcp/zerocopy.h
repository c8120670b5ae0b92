/* SPDX-License-Identifier: BSD-3-Clause */
/* Sending without a copy (MSG_ZEROCOPY): the kernel sends from the caller's memory, and tells in the socket's error
 * queue when it does not refer to it any more. The sends of a socket are numbered from 0, and a notification is of a
 * range of numbers, in any order.
 *
 * Each such send has an owner, whose memory must stay as it is until the owner's sends have been notified. Headers are
 * not sent so: they are few bytes, and whoever has them wants to use their memory again.
 *
 * One thread at a time uses a struct tcp_zerocopy. It allocates nothing once it is made. */
#ifndef TCP_ZEROCOPY_H
#define TCP_ZEROCOPY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define TCP_ZEROCOPY_MAX       256   /* sends of a socket whose notification has not come: beyond, it is copied */
#define TCP_ZEROCOPY_THRESHOLD 16384 /* bytes of data of a command from which on they are not copied, if 0 is given */
#define TCP_ZEROCOPY_LEAST     4096  /* the least threshold: a page is not worth its notification */

struct tcp_zerocopy {
	bool on;             /* false: the kernel has copied nevertheless, and is not asked for it any more */
	uint32_t threshold;  /* bytes */
	uint32_t next;       /* the number of the next send */
	uint32_t unnotified; /* sends whose notification has not come */
	void *owners[TCP_ZEROCOPY_MAX]; /* of these: that of number n is at n % TCP_ZEROCOPY_MAX */
};

/* What a notification says: sends from `first` to `last`, which may be less than `first`, for numbers begin again at 0
 * after UINT32_MAX. */
struct tcp_zerocopy_range {
	uint32_t first, last;
	bool copied; /* the kernel has copied them */
};

/* A send has been notified: called for each, with its owner. */
typedef void (*tcp_zerocopy_fn)(void *arg, void *owner, bool copied);

/* For a socket, with the option `threshold` of its sends. NULL: the kernel does not do it, or there is no memory; the
 * log says so. To be freed by free(), when nothing is unnotified or the socket has been closed. */
struct tcp_zerocopy *tcp_zerocopy_make(int fd, uint32_t threshold);
/* As sendmsg() without waiting, of memory of `owner`, with more flags. The number of bytes or a negative errno.
 * *refers: the kernel refers to the memory until the owner is notified. It does not where it has no means
 * (net.core.optmem_max, RLIMIT_MEMLOCK) or TCP_ZEROCOPY_MAX sends are unnotified: then it has copied. */
ssize_t tcp_zerocopy_send(struct tcp_zerocopy *z, int fd, const struct msghdr *msg, int flags, void *owner,
			  bool *refers);
/* Reads notifications, up to a budget, and calls fn for each send. True: there were some, and there may be more. */
bool tcp_zerocopy_read(struct tcp_zerocopy *z, int fd, tcp_zerocopy_fn fn, void *arg);
/* Ends the connection so that nothing that waits in the socket is sent any more, not even again: what is unnotified is
 * notified as soon as the network device has done with it. The socket stays open. */
void tcp_zerocopy_reset(int fd);

/* The parts of tcp_zerocopy_read(); pure functions. */

/* The range in a message of the error queue. False: it is about something else. */
bool tcp_zerocopy_decode(struct msghdr *msg, struct tcp_zerocopy_range *range);
/* Calls fn for each unnotified send of a range. Numbers of none are passed over. How many there were. */
uint32_t tcp_zerocopy_notify(struct tcp_zerocopy *z, const struct tcp_zerocopy_range *range, tcp_zerocopy_fn fn,
			     void *arg);

#endif
