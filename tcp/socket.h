/* SPDX-License-Identifier: BSD-3-Clause */
/* Options of the sockets of all NVMe/TCP connections, of hosts and targets. Control thread. */
#ifndef TCP_SOCKET_H
#define TCP_SOCKET_H

#include <stdbool.h>
#include <stdint.h>

#define TCP_SOCKET_BUFFER_MAX ((UINT32_C(1) << 30) - 1) /* bytes: more than the kernel takes is cut by it */

/* What connections have in common that are served best by one poll group: SPDK's numbers. */
enum tcp_placement {
	TCP_PLACEMENT_NONE = 0,
	TCP_PLACEMENT_NAPI = 1, /* the queue of the network device that they come in by */
	TCP_PLACEMENT_CPU = 2,  /* the CPU that receives them */
};

struct tcp_socket_opts {
	uint32_t recv_buf_size;       /* bytes that the kernel keeps of what arrives; 0: as it chooses, and changes */
	uint32_t send_buf_size;       /* the same of what is sent */
	bool zerocopy_server;         /* targets send large data without a copy (tcp/zerocopy.h) */
	bool zerocopy_client;         /* hosts do */
	uint32_t zerocopy_threshold;  /* bytes of what is large; 0: TCP_ZEROCOPY_THRESHOLD */
	bool ktls;                    /* the kernel is asked to encrypt and decrypt (tls/kernel.h) */
	enum tcp_placement placement; /* by what a new connection is given to a poll group */
};

/* From now on new connections have these options. */
void tcp_socket_set_opts(const struct tcp_socket_opts *o);
/* Those that new connections have. */
const struct tcp_socket_opts *tcp_socket_opts(void);
/* Gives them to a socket before it connects or listens (what it accepts has them, too): the kernel scales windows by
 * them. One that the kernel refuses is told in the log, and the socket goes on without it. */
void tcp_socket_configure(int fd);
/* What a connected socket has in common with others, by the option `placement`: no number of anything, but equal for
 * those that belong together. 0: nothing, or the kernel does not know it. */
uint32_t tcp_socket_placement(int fd);

#endif
