/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/outq.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define TEXTS_MAX 32

struct rpc_out {
	char *text;
	size_t len, sent;
	STAILQ_ENTRY(rpc_out) link;
};

void rpc_outq_init(struct rpc_outq *q)
{
	STAILQ_INIT(&q->queue);
	q->bytes = 0;
}

int rpc_outq_add(struct rpc_outq *q, char *text, size_t len)
{
	struct rpc_out *o = malloc(sizeof(*o));

	if (o == NULL) {
		return -ENOMEM;
	}
	*o = (struct rpc_out){.text = text, .len = len};
	STAILQ_INSERT_TAIL(&q->queue, o, link);
	q->bytes += len;
	return 0;
}

static void outq_drop_first(struct rpc_outq *q)
{
	struct rpc_out *o = STAILQ_FIRST(&q->queue);

	STAILQ_REMOVE_HEAD(&q->queue, link);
	free(o->text);
	free(o);
}

static void outq_drop_sent(struct rpc_outq *q, size_t n)
{
	q->bytes -= n;
	while (n > 0) {
		struct rpc_out *o = STAILQ_FIRST(&q->queue);
		size_t left = o->len - o->sent;
		if (n < left) {
			o->sent += n;
			return;
		}
		n -= left;
		outq_drop_first(q);
	}
}

int rpc_outq_send(struct rpc_outq *q, int fd)
{
	int progress = 0;

	while (q->bytes > 0) {
		struct iovec iov[TEXTS_MAX];
		struct msghdr msg = {.msg_iov = iov};
		struct rpc_out *o;
		STAILQ_FOREACH (o, &q->queue, link) {
			iov[msg.msg_iovlen++] = (struct iovec){o->text + o->sent, o->len - o->sent};
			if (msg.msg_iovlen == TEXTS_MAX) {
				break;
			}
		}
		ssize_t n = sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0) {
			if (errno == EINTR) {
				continue;
			}
			return errno == EAGAIN ? progress : -errno;
		}
		outq_drop_sent(q, (size_t)n);
		progress = 1;
	}
	return progress;
}

void rpc_outq_clear(struct rpc_outq *q)
{
	while (!STAILQ_EMPTY(&q->queue)) {
		outq_drop_first(q);
	}
	q->bytes = 0;
}
