/* SPDX-License-Identifier: BSD-3-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tools/gateway/gateway.h"
#include "util/parse.h"

static int gateway_listen_fail(char why[GATEWAY_WHY_MAX], const char *text, int error)
{
	snprintf(why, GATEWAY_WHY_MAX, "\"%s\": %s", text, strerror(error));
	return -error;
}

/* Removes the socket that a gateway left there which is gone. */
static void gateway_listen_remove(const struct sockaddr_un *addr)
{
	struct stat st;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && lstat(addr->sun_path, &st) == 0 && S_ISSOCK(st.st_mode) &&
	    connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) != 0 && errno == ECONNREFUSED) {
		unlink(addr->sun_path);
	}
	if (fd >= 0) {
		close(fd);
	}
}

static int gateway_listen_on(const char *text, const struct sockaddr *addr, socklen_t len, char why[GATEWAY_WHY_MAX])
{
	int fd = socket(addr->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	if (fd < 0) {
		return gateway_listen_fail(why, text, errno);
	}
	if (addr->sa_family != AF_UNIX) {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	}
	if (addr->sa_family == AF_INET6) {
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	}
	if (bind(fd, addr, len) != 0 || listen(fd, 128) != 0) {
		int error = errno;
		close(fd);
		return gateway_listen_fail(why, text, error);
	}
	return fd;
}

static int gateway_listen_unix(const char *path, char why[GATEWAY_WHY_MAX])
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};

	if (strlen(path) == 0 || strlen(path) >= sizeof(addr.sun_path)) {
		snprintf(why, GATEWAY_WHY_MAX, "the path \"%.200s\" must have 1 to %zu bytes", path,
			 sizeof(addr.sun_path) - 1);
		return -EINVAL;
	}
	strcpy(addr.sun_path, path);
	gateway_listen_remove(&addr);
	mode_t mask = umask(0177);
	int fd = gateway_listen_on(path, (struct sockaddr *)&addr, sizeof(addr), why);
	umask(mask);
	return fd;
}

static bool gateway_address_is_local(const struct sockaddr *addr)
{
	const struct in6_addr *six = &((const struct sockaddr_in6 *)addr)->sin6_addr;

	return addr->sa_family == AF_INET ? ntohl(((const struct sockaddr_in *)addr)->sin_addr.s_addr) >> 24 == 127
					  : IN6_IS_ADDR_LOOPBACK(six);
}

/* Cuts ADDRESS:PORT or [ADDRESS]:PORT in two. */
static bool gateway_listen_split(char *text, char **host, char **port)
{
	char *colon = strrchr(text, ':');
	uint64_t number;

	if (colon == NULL || colon == text || parse_uint64(colon + 1, 1, 65535, &number) != 0) {
		return false;
	}
	*colon = '\0';
	*port = colon + 1;
	*host = text;
	if (text[0] != '[') {
		return strchr(text, ':') == NULL; /* an IPv6 address needs brackets */
	}
	if (colon[-1] != ']') {
		return false;
	}
	colon[-1] = '\0';
	*host = text + 1;
	return true;
}

int gateway_listen(const char *text, bool *local, char why[GATEWAY_WHY_MAX])
{
	const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
	char copy[128], *host, *port;
	struct addrinfo *found;

	*local = true;
	if (strncmp(text, "unix:", 5) == 0) {
		return gateway_listen_unix(text + 5, why);
	}
	if (snprintf(copy, sizeof(copy), "%s", text) >= (int)sizeof(copy) ||
	    !gateway_listen_split(copy, &host, &port) || getaddrinfo(host, port, &hints, &found) != 0) {
		snprintf(why, GATEWAY_WHY_MAX,
			 "\"%.200s\" is not ADDRESS:PORT with an IPv4 address, [ADDRESS]:PORT with an IPv6 address, or "
			 "unix:PATH",
			 text);
		return -EINVAL;
	}
	*local = gateway_address_is_local(found->ai_addr);
	int fd = gateway_listen_on(text, found->ai_addr, found->ai_addrlen, why);
	freeaddrinfo(found);
	return fd;
}
