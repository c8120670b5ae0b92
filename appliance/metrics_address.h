/* SPDX-License-Identifier: BSD-3-Clause */
/* Where metrics may be had: unix:PATH, or a loopback address with a port. Pure. */
#ifndef APPLIANCE_METRICS_ADDRESS_H
#define APPLIANCE_METRICS_ADDRESS_H

#include <sys/socket.h>

#define METRICS_ERROR_MAX   1024
#define METRICS_ADDRESS_MAX 128

struct metrics_address {
	const char *path; /* unix:; points into the text. NULL: tcp */
	struct sockaddr_storage tcp;
	socklen_t tcp_len;
};
/* "unix:/run/varve/metrics.sock", "127.0.0.1:9464", "[::1]:9464"; port 0 takes any. 0, or -EINVAL and error. Other
 * hosts' way in is a proxy that knows whom to let in: who may see these numbers is not for varve to decide. */
int metrics_address_parse(const char *text, struct metrics_address *address, char *error);

#endif
