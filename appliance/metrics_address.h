/* SPDX-License-Identifier: BSD-3-Clause */
/* The address on which metrics are served: unix:PATH, or a loopback address with a port. Pure. */
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
/* Parses "unix:/run/varve/metrics.sock", "127.0.0.1:9464" or "[::1]:9464"; port 0 means any free port. 0; or -EINVAL,
 * and error (METRICS_ERROR_MAX bytes) says why. Only this host can be served, because varve does not know which other
 * hosts may see the numbers: a proxy that does can pass them on. */
int metrics_address_parse(const char *text, struct metrics_address *address, char *error);

#endif
