/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/metrics_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "util/parse.h"

static bool metrics_parse_ip4(const char *host, in_port_t port, struct metrics_address *a)
{
	struct sockaddr_in *in = (struct sockaddr_in *)&a->tcp;

	if (inet_pton(AF_INET, host, &in->sin_addr) != 1 || ntohl(in->sin_addr.s_addr) >> 24 != IN_LOOPBACKNET) {
		return false;
	}
	in->sin_family = AF_INET;
	in->sin_port = port;
	a->tcp_len = sizeof(*in);
	return true;
}

/* host has its brackets. */
static bool metrics_parse_ip6(char *host, in_port_t port, struct metrics_address *a)
{
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&a->tcp;
	size_t len = strlen(host);

	if (len < 2 || host[0] != '[' || host[len - 1] != ']') {
		return false;
	}
	host[len - 1] = '\0';
	if (inet_pton(AF_INET6, host + 1, &in6->sin6_addr) != 1 || !IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr)) {
		return false;
	}
	in6->sin6_family = AF_INET6;
	in6->sin6_port = port;
	a->tcp_len = sizeof(*in6);
	return true;
}

static bool metrics_parse_tcp(const char *text, struct metrics_address *a)
{
	const char *colon = strrchr(text, ':');
	char host[METRICS_ADDRESS_MAX];
	uint64_t port;

	if (colon == NULL || (size_t)(colon - text) >= sizeof(host) ||
	    parse_uint64(colon + 1, 0, UINT16_MAX, &port) != 0) {
		return false;
	}
	snprintf(host, sizeof(host), "%.*s", (int)(colon - text), text);
	return metrics_parse_ip4(host, htons((uint16_t)port), a) || metrics_parse_ip6(host, htons((uint16_t)port), a);
}

int metrics_address_parse(const char *text, struct metrics_address *a, char *error)
{
	struct sockaddr_un un;

	*a = (struct metrics_address){0};
	if (strncmp(text, "unix:", 5) == 0) {
		a->path = text + 5;
		if (a->path[0] == '/' && strlen(a->path) < sizeof(un.sun_path)) {
			return 0;
		}
		snprintf(error, METRICS_ERROR_MAX,
			 "\"%.200s\": a path after unix: begins with / and has less than %zu bytes", text,
			 sizeof(un.sun_path));
		return -EINVAL;
	}
	if (metrics_parse_tcp(text, a)) {
		return 0;
	}
	snprintf(error, METRICS_ERROR_MAX,
		 "\"%.200s\": metrics are served on unix:PATH, or on a port of a loopback address: "
		 "127.0.0.1:9464, [::1]:9464",
		 text);
	return -EINVAL;
}
