/* SPDX-License-Identifier: BSD-3-Clause */
/* A listening Unix socket that belongs to one process at a time. A lock on PATH.lock says who is alive, so that the
 * socket of a dead process is replaced, and one in use never. */
#ifndef RPC_SOCKET_H
#define RPC_SOCKET_H

#include <stddef.h>

struct rpc_socket {
	int fd;
	int lock_fd;
	char *path;
};

/* 0, or a negative errno, and error says what is wrong and what to do. mode: permission bits of the socket,
 * which it has from its first moment. */
int rpc_socket_listen(struct rpc_socket *s, const char *path, unsigned mode, char *error, size_t error_size);
/* Removes the socket and the lock. */
void rpc_socket_close(struct rpc_socket *s);

#endif
