/* SPDX-License-Identifier: BSD-3-Clause */
/* Options of the sockets of all NVMe/TCP connections, of hosts and targets. Control thread. */
#ifndef TCP_SOCKET_H
#define TCP_SOCKET_H

#include <stdbool.h>
#include <stdint.h>

#define TCP_SOCKET_BUFFER_MAX (UINT32_C(1) << 30) /* bytes */

struct tcp_socket_opts {
	uint32_t recv_buf_size; /* bytes that the kernel keeps of what arrives; 0: as it chooses, and changes */
	uint32_t send_buf_size; /* the same of what is sent */
	bool quickack;          /* a connection begins by acknowledging at once what arrives */
};

/* From now on new connections have these options. */
void tcp_socket_set_opts(const struct tcp_socket_opts *o);
/* Those that new connections have. */
const struct tcp_socket_opts *tcp_socket_opts(void);
/* Gives them to the socket of a new connection. One that the kernel refuses is told in the log, and the connection goes
 * on without it. */
void tcp_socket_configure(int fd);

#endif
