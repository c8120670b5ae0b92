/* SPDX-License-Identifier: BSD-3-Clause */
/* A listening Unix socket that one process at a time may have. A process that uses PATH holds a lock on PATH.lock: so
 * the socket of a dead process can be replaced, and one that is in use never is. */
#ifndef RPC_SOCKET_H
#define RPC_SOCKET_H

#include <stddef.h>

struct rpc_socket {
	int fd;
	int lock_fd;
	char *path;
};

/* Listens on path. mode: the socket's permission bits, which it has from the moment it exists. 0; or a negative errno,
 * and error says what is wrong and what to do. */
int rpc_socket_listen(struct rpc_socket *s, const char *path, unsigned mode, char *error, size_t error_size);
/* Closes and removes the socket and the lock. */
void rpc_socket_close(struct rpc_socket *s);

#endif
