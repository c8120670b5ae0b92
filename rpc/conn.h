/* SPDX-License-Identifier: BSD-3-Clause */
/* One client's connection: bytes in, calls run, answers out. Nothing a client does, or fails to do, holds up another:
 * it is read from only while it takes its answers, and dropped when it does not. */
#ifndef RPC_CONN_H
#define RPC_CONN_H

#include <stddef.h>

struct rpc_conn;

struct rpc_conn_opts {
	size_t max_message_size;
	/* Called once, when the connection closes by itself. */
	void (*closed)(struct rpc_conn *c, void *arg);
	/* Called after calls were started. */
	void (*called)(void *arg);
	void *arg;
};

/* Takes over fd (connected, non-blocking). NULL: no memory, and fd is closed. opts must outlive the connection. */
struct rpc_conn *rpc_conn_open(int fd, const struct rpc_conn_opts *opts);
/* Closes it now; what is not sent is lost, and answers that come later are dropped. */
void rpc_conn_close(struct rpc_conn *c);

#endif
