/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses of the connection manager, and the names of the sockets that represent them. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "softverbs/cm.h"

#define EPHEMERAL_FIRST 32768u
#define EPHEMERAL_COUNT 28232u

bool sv_cm_address_ok(const struct sockaddr *a)
{
	return a->sa_family == AF_INET || a->sa_family == AF_INET6;
}

socklen_t sv_cm_address_length(const struct sockaddr *a)
{
	return a->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

void sv_cm_gid_of(const struct sockaddr *a, union ibv_gid *gid)
{
	memset(gid, 0, sizeof(*gid));
	if (a->sa_family == AF_INET) {
		gid->raw[10] = gid->raw[11] = 0xff;
		memcpy(&gid->raw[12], &((const struct sockaddr_in *)a)->sin_addr, 4);
	} else {
		memcpy(gid->raw, &((const struct sockaddr_in6 *)a)->sin6_addr, 16);
	}
}

static bool gid_is_mapped_v4(const uint8_t gid[16])
{
	static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};

	return memcmp(gid, prefix, sizeof(prefix)) == 0;
}

bool sv_cm_address_is_any(const struct sockaddr *a)
{
	if (a->sa_family == AF_INET) {
		return ((const struct sockaddr_in *)a)->sin_addr.s_addr == INADDR_ANY;
	}
	return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)a)->sin6_addr);
}

uint16_t sv_cm_port(const struct sockaddr *a)
{
	switch (a->sa_family) {
	case AF_INET:
		return ((const struct sockaddr_in *)a)->sin_port;
	case AF_INET6:
		return ((const struct sockaddr_in6 *)a)->sin6_port;
	default:
		return 0;
	}
}

void sv_cm_set_port(struct sockaddr *a, uint16_t port)
{
	if (a->sa_family == AF_INET) {
		((struct sockaddr_in *)a)->sin_port = port;
	} else {
		((struct sockaddr_in6 *)a)->sin6_port = port;
	}
}

void sv_cm_address_from_gid(struct sockaddr_storage *address, uint8_t family, const uint8_t gid[16], uint16_t port)
{
	memset(address, 0, sizeof(*address));
	if (family == 4) {
		struct sockaddr_in *a = (struct sockaddr_in *)address;

		a->sin_family = AF_INET;
		a->sin_port = port;
		memcpy(&a->sin_addr, gid + 12, 4);
	} else {
		struct sockaddr_in6 *a = (struct sockaddr_in6 *)address;

		a->sin6_family = AF_INET6;
		a->sin6_port = port;
		memcpy(&a->sin6_addr, gid, 16);
	}
}

/* One name per address: an IPv4 address is the same whether it is written as IPv6 or not. */
static void address_text(const struct sockaddr *a, char *text, size_t size)
{
	union ibv_gid gid;

	sv_cm_gid_of(a, &gid);
	if (gid_is_mapped_v4(gid.raw)) {
		inet_ntop(AF_INET, &gid.raw[12], text, (socklen_t)size);
	} else {
		inet_ntop(AF_INET6, gid.raw, text, (socklen_t)size);
	}
}

static socklen_t endpoint_name(struct sockaddr_storage *name, uint32_t ps, const char *address, uint16_t port)
{
	return sv_socket_name(name, "cm/%x/%s/%u", ps, address, ntohs(port));
}

static bool text_is_any(const char *text)
{
	return strcmp(text, "0.0.0.0") == 0 || strcmp(text, "::") == 0;
}

/* As with sockets, 0.0.0.0 overlaps with IPv4 addresses, and :: with both kinds. */
static bool addresses_overlap(const char *mine, const char *theirs)
{
	bool mine6 = strchr(mine, ':') != NULL, theirs6 = strchr(theirs, ':') != NULL;

	if (strcmp(mine, theirs) == 0) {
		return true;
	}
	if (!text_is_any(mine) && !text_is_any(theirs)) {
		return false;
	}
	return mine6 == theirs6 || strcmp(mine, "::") == 0 || strcmp(theirs, "::") == 0;
}

/*
 * A wildcard and a specific address have different names but must not share a port: look at all names. Only sockets
 * that are not connected count (St 01): accepted ones are listed under the name of their listener.
 */
static bool port_is_taken(uint32_t ps, const char *address, uint16_t port)
{
	struct sockaddr_storage name;
	char line[512], prefix[128];
	FILE *f = fopen("/proc/net/unix", "re");
	bool taken = false;

	if (f == NULL) {
		return false; /* without it only equal names are refused */
	}
	sv_socket_name(&name, "cm/%x/", ps);
	snprintf(prefix, sizeof(prefix), "@%s", ((struct sockaddr_un *)&name)->sun_path + 1);
	while (!taken && fgets(line, sizeof(line), f) != NULL) {
		char *at = strstr(line, prefix), theirs[INET6_ADDRSTRLEN];
		unsigned their_port, socket_state;

		taken = at != NULL && sscanf(line, "%*s %*s %*s %*s %*s %x", &socket_state) == 1 && socket_state == 1 &&
			sscanf(at + strlen(prefix), "%45[^/]/%u", theirs, &their_port) == 2 &&
			their_port == ntohs(port) && addresses_overlap(address, theirs);
	}
	fclose(f);
	return taken;
}

static int bind_port(int fd, uint32_t ps, const char *text, uint16_t port, bool reuse)
{
	struct sockaddr_storage name;
	socklen_t length = endpoint_name(&name, ps, text, port);

	if (!reuse && port_is_taken(ps, text, port)) {
		return EADDRINUSE;
	}
	return bind(fd, (struct sockaddr *)&name, length) < 0 ? errno : 0;
}

/* Binds to any port whose name is not in use. There are many names of connections, so other addresses with the same
 * port are not looked for. */
static int bind_ephemeral(int fd, uint32_t ps, const char *text, uint16_t *port)
{
	static uint32_t next;
	struct sockaddr_storage name;

	next = next == 0 ? (uint32_t)getpid() * 61 : next;
	for (uint32_t i = 0; i < EPHEMERAL_COUNT; i++) {
		uint16_t p = htons((uint16_t)(EPHEMERAL_FIRST + next++ % EPHEMERAL_COUNT));
		socklen_t length = endpoint_name(&name, ps, text, p);

		if (bind(fd, (struct sockaddr *)&name, length) == 0) {
			*port = p;
			return 0;
		}
		if (errno != EADDRINUSE) {
			return errno;
		}
	}
	return EADDRINUSE;
}

int sv_cm_bind(struct sv_cm_id *id)
{
	struct sockaddr *source = &id->rdma.route.addr.src_addr;
	uint16_t port = sv_cm_port(source);
	char text[INET6_ADDRSTRLEN];
	int rc;

	id->source.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (id->source.fd < 0) {
		return errno;
	}
	address_text(source, text, sizeof(text));
	rc = port != 0 ? bind_port(id->source.fd, id->rdma.ps, text, port, id->reuseaddr)
		       : bind_ephemeral(id->source.fd, id->rdma.ps, text, &port);
	if (rc != 0) {
		close(id->source.fd);
		id->source.fd = -1;
		return rc;
	}
	sv_cm_set_port(source, port);
	return 0;
}

int sv_cm_connect(struct sv_cm_id *id)
{
	const struct sockaddr *dest = &id->rdma.route.addr.dst_addr;
	char text[INET6_ADDRSTRLEN];
	const char *candidates[] = {text, "0.0.0.0", "::"};
	struct sockaddr_storage name;

	address_text(dest, text, sizeof(text));
	for (size_t i = 0; i < ARRAY_SIZE(candidates); i++) {
		socklen_t length = endpoint_name(&name, id->rdma.ps, candidates[i], sv_cm_port(dest));

		if (i == 1 && strchr(text, ':') != NULL) {
			continue; /* an IPv6 address does not reach a listener for IPv4 */
		}
		if (connect(id->source.fd, (struct sockaddr *)&name, length) == 0) {
			return 0;
		}
		if (errno != ECONNREFUSED) {
			return errno;
		}
	}
	return ECONNREFUSED;
}
