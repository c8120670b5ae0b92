/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernel's events about PCI devices: NETLINK_KOBJECT_UEVENT, group 1. */
#include "env_dpdk/pci_internal.h"

#include <errno.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define UEVENT_MAX   8192 /* the kernel's own limit is 2 KiB of variables and a path */
#define BUFFER_BYTES (1 << 20)

int env_pci_uevent_open(void)
{
	struct sockaddr_nl addr = {.nl_family = AF_NETLINK, .nl_groups = 1};
	int size = BUFFER_BYTES;
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_KOBJECT_UEVENT);

	if (fd < 0) {
		return -errno;
	}
	/* Large, so that a burst of other devices' events does not lose ours. The first option needs a privilege;
	 * without it the second is used. */
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)) != 0) {
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	}
	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0) {
		int rc = -errno;
		close(fd);
		return rc;
	}
	return fd;
}

/* The value of key in text[0..len), or NULL; ended by a NUL within text. */
static const char *uevent_value(const char *text, size_t len, const char *key)
{
	size_t n = strlen(key);

	for (size_t at = 0; at < len;) {
		size_t item = strnlen(text + at, len - at);

		if (at + item < len && item > n && memcmp(text + at, key, n) == 0 && text[at + n] == '=') {
			return text + at + n + 1;
		}
		at += item + 1;
	}
	return NULL;
}

bool env_pci_uevent_parse(const char *text, size_t len, struct env_pci_uevent *event)
{
	const char *subsystem = uevent_value(text, len, "SUBSYSTEM"), *slot = uevent_value(text, len, "PCI_SLOT_NAME"),
		   *action = uevent_value(text, len, "ACTION"), *driver = uevent_value(text, len, "DRIVER");

	memset(event, 0, sizeof(*event));
	if (subsystem == NULL || slot == NULL || action == NULL || strcmp(subsystem, "pci") != 0 ||
	    env_pci_parse(slot, event->bdf) != 0) {
		return false;
	}
	if (strcmp(action, "add") == 0) {
		event->action = ENV_PCI_UEVENT_ADD;
	} else if (strcmp(action, "remove") == 0) {
		event->action = ENV_PCI_UEVENT_REMOVE;
	} else if (strcmp(action, "bind") == 0) {
		event->action = ENV_PCI_UEVENT_BIND;
		snprintf(event->driver, sizeof(event->driver), "%s", driver != NULL ? driver : "");
	}
	return true;
}

int env_pci_uevent_read(int fd, struct env_pci_uevent *event)
{
	char text[UEVENT_MAX];
	struct sockaddr_nl from;
	struct iovec iov = {.iov_base = text, .iov_len = sizeof(text)};

	for (;;) {
		struct msghdr msg = {.msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = &iov, .msg_iovlen = 1};
		ssize_t n = recvmsg(fd, &msg, MSG_DONTWAIT);

		if (n < 0 && errno == ENOBUFS) {
			*event = (struct env_pci_uevent){.action = ENV_PCI_UEVENT_LOST};
			return 1;
		}
		if (n < 0 && errno != EINTR) {
			return 0;
		}
		/* only from the kernel: a process could send such a message too */
		if (n > 0 && from.nl_pid == 0 && env_pci_uevent_parse(text, (size_t)n, event)) {
			return 1;
		}
	}
}
