/* SPDX-License-Identifier: BSD-3-Clause */
/* Options of the sockets of all NVMe/TCP connections, of hosts and targets. Control thread. */
#ifndef TCP_SOCKET_H
#define TCP_SOCKET_H

#include <stdint.h>

#define TCP_SOCKET_BUFFER_MAX ((UINT32_C(1) << 30) - 1) /* bytes: more than the kernel takes is cut by it */

struct tcp_socket_opts {
	uint32_t recv_buf_size; /* bytes that the kernel keeps of what arrives; 0: as it chooses, and changes */
	uint32_t send_buf_size; /* the same of what is sent */
};

/* From now on new connections have these options. */
void tcp_socket_set_opts(const struct tcp_socket_opts *o);
/* Those that new connections have. */
const struct tcp_socket_opts *tcp_socket_opts(void);
/* Gives them to a socket before it connects or listens (what it accepts has them, too): the kernel scales windows by
 * them. One that the kernel refuses is told in the log, and the socket goes on without it. */
void tcp_socket_configure(int fd);

#endif
