/* SPDX-License-Identifier: BSD-3-Clause */
/* A client's connection: reads messages, runs their calls, sends the answers. Clients cannot delay each other: varve
 * reads from a client only while the client takes its answers, and drops a client that does not take them. Control
 * thread. */
#ifndef RPC_CONN_H
#define RPC_CONN_H

#include <stddef.h>

struct rpc_conn;

struct rpc_conn_opts {
	size_t max_message_size;
	/* Called once, when the connection closes for any reason but rpc_conn_close(); c is freed afterwards. */
	void (*closed)(struct rpc_conn *c, void *arg);
	/* Called after calls have been started: rpc_outstanding() may have grown. */
	void (*called)(void *arg);
	void *arg;
};

/* Serves fd, which is connected and non-blocking, and owns it from now on. NULL: no memory; fd has been closed. opts
 * must outlive the connection. */
struct rpc_conn *rpc_conn_open(int fd, const struct rpc_conn_opts *opts);
/* Closes and frees a connection now. Bytes that are not sent yet are lost; answers of methods that end later are
 * dropped. */
void rpc_conn_close(struct rpc_conn *c);

#endif
