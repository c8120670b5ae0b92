/* SPDX-License-Identifier: BSD-3-Clause */
#include "tcp/socket.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "util/log.h"

static struct tcp_socket_opts current;

void tcp_socket_set_opts(const struct tcp_socket_opts *o)
{
	current = *o;
}

const struct tcp_socket_opts *tcp_socket_opts(void)
{
	return &current;
}

/* The option that `limit` does not bind needs CAP_NET_ADMIN. The kernel doubles what it is given, for what it needs
 * itself, and tells that. */
static void set_buffer_size(int fd, int forced, int limited, uint32_t bytes, const char *what, const char *limit)
{
	int value = (int)bytes, got = 0;
	socklen_t size = sizeof(got);

	if (setsockopt(fd, SOL_SOCKET, forced, &value, sizeof(value)) == 0) {
		return;
	}
	if (errno != EPERM || setsockopt(fd, SOL_SOCKET, limited, &value, sizeof(value)) != 0) {
		log_limited(LOG_LEVEL_WARNING, "%s %u: %s", what, bytes, strerror(errno));
	} else if (getsockopt(fd, SOL_SOCKET, limited, &got, &size) == 0 && got / 2 < value) {
		log_limited(LOG_LEVEL_WARNING, "%s %u: the kernel gives %d (%s; more needs CAP_NET_ADMIN)", what, bytes,
			    got / 2, limit);
	}
}

void tcp_socket_configure(int fd)
{
	if (current.recv_buf_size != 0) {
		set_buffer_size(fd, SO_RCVBUFFORCE, SO_RCVBUF, current.recv_buf_size, "recv_buf_size",
				"net.core.rmem_max");
	}
	if (current.send_buf_size != 0) {
		set_buffer_size(fd, SO_SNDBUFFORCE, SO_SNDBUF, current.send_buf_size, "send_buf_size",
				"net.core.wmem_max");
	}
}

static uint32_t placement_option(int fd, int name)
{
	int value = -1;
	socklen_t size = sizeof(value);

	return getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 ? (uint32_t)value : UINT32_MAX;
}

/* A NAPI id of 0 is none (a device without, such as the loopback interface), and so is a CPU of -1. */
uint32_t tcp_socket_placement(int fd)
{
	uint32_t id;

	switch (current.placement) {
	case TCP_PLACEMENT_NAPI:
		id = placement_option(fd, SO_INCOMING_NAPI_ID);
		return id != UINT32_MAX ? id : 0;
	case TCP_PLACEMENT_CPU:
		return placement_option(fd, SO_INCOMING_CPU) + 1;
	default:
		return 0;
	}
}
